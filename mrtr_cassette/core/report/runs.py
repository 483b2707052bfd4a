"""Misses, and the outcomes of replays, recordings and calls: as values, text, and JSON data."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final, Literal, NamedTuple

import orjson

from mrtr_cassette.core.answers.forms import CallTurn, UnansweredQuestion, spelled_pair
from mrtr_cassette.core.cassette.entries import ReplayEntry
from mrtr_cassette.core.cassette.recorded import Cassette, InteractionPlace
from mrtr_cassette.core.protocol.calls import Call, read_call
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.replay.diagnosis import Miss, Reason
from mrtr_cassette.core.replay.faults import FaultOutcome
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.report.details import (
    Interaction,
    Redaction,
    arguments_json,
    redaction_lines,
)
from mrtr_cassette.core.report.fixes import differing_questions, fixes_of
from mrtr_cassette.core.report.text import as_data, result_texts, short_digests
from mrtr_cassette.core.secrets.credentials import text_redactor
from mrtr_cassette.core.secrets.names import without_numbers
from mrtr_cassette.core.secrets.rules import BUILT_IN_RULES
from mrtr_cassette.core.wire.http import Request
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.core.wire.pointers import Difference, differing_excerpts
from mrtr_cassette.errors import (
    MrtrCassetteError,
    UpstreamError,
    counted,
    line_by_line,
    printable,
    printable_lines,
    shorten,
)
from mrtr_cassette.terms import (
    LIBRARY_TERMS,
    SHELL_TERMS,
    Terms,
    in_terms,
    shell_command,
)

# Misses

MISS_CODE: Final = -32010
UPSTREAM_CODE: Final = -32011
"""The upstream gave no response."""

UNRECORDED_CODE: Final = -32012
"""A request that the cassette lacks could not be recorded."""

_BEGINS_MISS: Final = "miss: "


class Nearest(NamedTuple):
    """The recorded exchange that comes nearest to a request without a recorded reply.

    `cassette` is the file that has it, and counts its interaction.
    """

    interaction: int
    turn: int
    call: str
    cassette: str

    def __str__(self) -> str:
        """Return its place on the cassette."""
        exchange = self.call
        if self.turn:
            exchange += f", answer of turn {self.turn}"

        return f"#{self.interaction} ({exchange}) in {self.cassette}"


def nearest_recording(entry: ReplayEntry, call: str, path: str) -> Nearest:
    """Return the recorded exchange that comes nearest to a request; `path` is the player's."""
    place = entry.place.in_file
    return Nearest(place.number, entry.turn, call, place.file or path)


@dataclass(frozen=True, slots=True)
class MissReport:
    """A request that has no recorded reply, or could not be recorded."""

    reason: str
    detail: str
    request: str
    questions: tuple[str, ...]
    cassette: str
    nearest: Nearest | None
    differences: tuple[Difference, ...]
    fixes: tuple[str, ...]
    text: str

    @property
    def facts(self) -> dict[str, Any]:
        """All but the text as JSON, for `error.data` in the response to the client."""
        facts: dict[str, Any] = as_data(self, {})
        del facts["text"]
        return facts


class MissesError(MrtrCassetteError):
    """A replay was asked something that was not recorded."""

    def __init__(self, path: object, misses: Sequence[MissReport]) -> None:
        head = f"{counted(len(misses), 'request')} had no recorded answer on {path}"
        super().__init__("\n\n".join([head, *(miss.text for miss in misses)]))
        self.misses = tuple(misses)


def report_of_miss(miss: Miss, player: Player, terms: Terms) -> MissReport:
    """Return a miss of a replay as a report, with the ways out in the terms of a front."""
    return miss_report(
        miss,
        player.recording,
        player.normaliser.sent_secrets.shown_text,
        terms,
        player.adds_to,
    )


def miss_report(
    miss: Miss,
    cassette: Cassette,
    redacted: Callable[[str], str],
    terms: Terms,
    adds_to: str | None,
) -> MissReport:
    """Return a miss as a report; more is recorded to the file `adds_to`, or to the cassette."""
    path = cassette.path

    def redact(text: str) -> str:
        return printable(redacted(text))

    request = redact(_request_text(miss))
    detail = redact(miss.detail)
    questions = list(map(redact, _differing_questions(miss)))
    nearest = _nearest_recording_to(miss, redact, path)
    differences = []
    for difference in miss.differences:
        differences.append(_shown_difference(difference, redact))

    fixes = [redact(fix) for fix in fixes_of(miss, cassette, adds_to or path, terms)]
    lines = [f"{_BEGINS_MISS}{miss.reason.value}: {detail}", f"  request:  {request}"]
    for question in questions:
        lines.append(f"  question: {question}")

    if nearest is None:
        lines.append(f"  cassette: {path}")
    else:
        lines.append(f"  nearest:  {nearest}")

    lines += map(_difference_line, differences)
    head = "  fix:      "
    for fix in fixes:
        lines.append(f"{head}{fix}")
        head = "       or:  "

    return MissReport(
        reason=miss.reason.value,
        detail=detail,
        request=request,
        questions=tuple(questions),
        cassette=path,
        nearest=nearest,
        differences=tuple(differences),
        fixes=tuple(fixes),
        text=short_digests(printable_lines(redacted("\n".join(lines)))),
    )


def _nearest_recording_to(
    miss: Miss, redact: Callable[[str], str], path: str
) -> Nearest | None:
    """Return the recorded exchange that comes nearest to a missed request."""
    entry = miss.nearest
    if entry is None:
        return None

    key = (entry.continued_entry or entry).key
    return nearest_recording(entry, redact(str(key)), path)


def _shown_difference(
    difference: Difference, redact: Callable[[str], str]
) -> Difference:
    """Return a difference with values that may be shown."""
    recorded = difference.recorded
    received = difference.received
    return Difference(
        redact(difference.pointer),
        None if recorded is None else redact(recorded),
        None if received is None else redact(received),
    )


def _difference_line(difference: Difference) -> str:
    """Return a difference in a line for people; of long values the parts that differ."""
    old = difference.recorded or "nothing"
    new = difference.received or "nothing"
    recorded, received = differing_excerpts(old, new)

    return f"  {difference.pointer or '/'}: recorded {recorded}, received {received}"


def _request_text(miss: Miss) -> str:
    """Return a missed request in words."""
    call = miss.call
    text = call.title
    arguments = arguments_json(call)
    if arguments is not None:
        text += f" with {shorten(arguments)}"

    answers = call.answers
    if answers is not None:
        text += f", answering {', '.join(sorted(answers.input_responses or {})) or 'nothing'}"
        if answers.request_state is not None:
            text += ", echoing a request state"

    question = None if miss.nearest is None else miss.nearest.answered_question
    if question is not None:
        text += f", answering {question.key}"

    return text


def _differing_questions(miss: Miss) -> Iterator[str]:
    """Yield the questions whose answers differ."""
    for key, request in differing_questions(miss).items():
        question = f"{key} ({request.kind})"
        if request.message:
            question += f" {shorten(canonical(request.message))}"

        yield question


# JSON-RPC errors from the proxy itself


def error_body(report: MissReport, answered: Call | bytes | None) -> bytes:
    """Return the JSON-RPC error that a client gets for a call, or for the call with this id."""
    code = MISS_CODE
    if report.reason == Reason.UNRECORDED.value:
        code = UNRECORDED_CODE

    return _rpc_error_body(
        answered, {"code": code, "message": report.text, "data": report.facts}
    )


def upstream_error_body(request: Request, problem: str) -> bytes:
    """Return the JSON-RPC error that a client gets when the upstream gave no response."""
    return _rpc_error_body(
        read_call(request), {"code": UPSTREAM_CODE, "message": problem}
    )


def _rpc_error_body(answered: Call | bytes | None, error: Mapping[str, Any]) -> bytes:
    """Return a JSON-RPC error for a call, or for a request with an id."""
    caller_id = answered
    if isinstance(answered, Call):
        caller_id = _spelled_request_id(answered)

    return b'{"jsonrpc":"2.0","id":%s,"error":%s}' % (
        caller_id or b"null",
        orjson.dumps(error),
    )


def _spelled_request_id(call: Call) -> bytes | None:
    """Return the id of a call's request as it is spelled; None if the call is no request."""
    message = call.message
    if message is None or message.kind is not Kind.REQUEST:
        return None
    return message.spelled_id


# Replays

_MOST_LISTED: Final = 10

PlayOutcome = Literal["played", "played in part", "never played"]
"""Whether an interaction was played in a replay."""


@dataclass(frozen=True, slots=True)
class InteractionOutcome:
    """Whether an interaction was played in a replay, and how many of its own replies were.

    `number` is its own in the file `cassette`.
    """

    number: int
    call: str
    outcome: PlayOutcome
    plays: int
    cassette: str


class HarmlessRequest(NamedTuple):
    """A request that was not recorded and got what any server answers, and how often."""

    call: str
    answer: str
    times: int


class StrayedRead(NamedTuple):
    """A read that was played after other writes than recorded, and how often."""

    number: int
    call: str
    times: int
    cassette: str


class KindMatch(NamedTuple):
    """How often values matched others of a kind, or requests as the function of this name says."""

    kind: str
    times: int


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """The outcome of a replay: all interactions in the cassette's order, misses as they came."""

    cassette: str
    interactions: tuple[InteractionOutcome, ...]
    misses: tuple[MissReport, ...]
    harmless: tuple[HarmlessRequest, ...] = ()
    elsewhere: tuple[str, ...] = ()
    without_response: tuple[int, ...] = ()
    """The interactions that were played up to a call whose response was not recorded.

    They are counted, from 1, through `interactions`.
    """

    after_other_writes: tuple[StrayedRead, ...] = ()
    faults: tuple[FaultOutcome, ...] = ()
    by_kind: tuple[KindMatch, ...] = ()
    learned: Mapping[str, str] = field(default_factory=dict)
    """The values that requests have taught, with their texts."""

    @property
    def is_of_several(self) -> bool:
        """Whether several cassettes were played together."""
        return len({call.cassette for call in self.interactions}) > 1

    def report_of_file(self, file: str) -> ReplayReport:
        """Return what it says of a single cassette, and all misses."""
        interactions = []
        without_response = []
        for number, call in enumerate(self.interactions, start=1):
            if call.cassette == file:
                interactions.append(call)
                if number in self.without_response:
                    without_response.append(len(interactions))

        misses = []
        for miss in self.misses:
            if miss.nearest is None or miss.nearest.cassette == file:
                misses.append(miss)
            else:
                misses.append(replace(miss, nearest=None))

        strayed_reads = [
            read for read in self.after_other_writes if read.cassette == file
        ]
        return replace(
            self,
            cassette=file,
            interactions=tuple(interactions),
            misses=tuple(misses),
            without_response=tuple(without_response),
            after_other_writes=tuple(strayed_reads),
        )

    def title_of(self, interaction: InteractionOutcome | StrayedRead) -> str:
        """Return an interaction's number and call, and its file if there are several."""
        file = interaction.cassette if self.is_of_several else ""
        return InteractionPlace(interaction.number, file).named_with(interaction.call)

    @property
    def not_fully_played(self) -> list[InteractionOutcome]:
        """The interactions of which something was never played."""
        return [call for call in self.interactions if call.outcome != "played"]


class UnplayedError(MrtrCassetteError):
    """A replay was to play all of its cassette, and did not."""

    def __init__(self, path: object, unplayed: Sequence[Interaction]) -> None:
        lines = [f"not all that is on {path} was played:"]
        for interaction in unplayed:
            name = interaction.place.named_with(interaction.call)
            lines.append(f"  {name}")

        super().__init__("\n".join(lines))
        self.unplayed = tuple(unplayed)


def report_of_replay(player: Player, terms: Terms = LIBRARY_TERMS) -> ReplayReport:
    """Return the outcome of a replay so far."""
    played_part = player.played_part
    tally = player.tally
    # Many interactions are of the same call.
    redact = cache(player.normaliser.sent_secrets.shown_text)
    unplayed_numbers = set(played_part.unplayed_numbers)
    interactions = []
    for number, entries in enumerate(player.entries.by_interaction, start=1):
        plays = 0
        for entry in entries:
            # The client decides how often it polls a task.
            if entry.call_of_step is None:
                plays += played_part.play_counts[entry]

        outcome: PlayOutcome = "played"
        if number in unplayed_numbers:
            outcome = "played in part" if plays else "never played"

        call = redact(str(entries[0].key))
        place = entries[0].place.in_file
        interactions.append(
            InteractionOutcome(
                place.number, call, outcome, plays, place.file or player.recording.path
            )
        )

    strayed_reads = []
    for number, times in played_part.after_other_writes.items():
        read = interactions[number - 1]
        strayed_reads.append(StrayedRead(read.number, read.call, times, read.cassette))

    times_by_harmless_request: Counter[tuple[str, str]] = Counter()
    # Another thread may replay meanwhile.
    for request in tuple(tally.harmless):
        times_by_harmless_request[redact(request.call.title), request.answer] += 1

    harmless_requests = []
    for (title, answer), times in times_by_harmless_request.items():
        harmless_requests.append(HarmlessRequest(title, answer, times))

    return ReplayReport(
        player.recording.path,
        tuple(interactions),
        _reports_of_misses(player, terms),
        tuple(harmless_requests),
        without_response=tuple(played_part.numbers_without_response),
        after_other_writes=tuple(strayed_reads),
        by_kind=tuple(
            [
                KindMatch(*match_count)
                for match_count in tally.match_counts_by_kind.items()
            ]
        ),
        learned=dict(tally.learned),
    )


def _reports_of_misses(player: Player, terms: Terms) -> tuple[MissReport, ...]:
    """Return the misses so far."""
    # Another thread may replay meanwhile.
    misses = tuple(player.tally.misses)
    return tuple(report_of_miss(miss, player, terms) for miss in misses)


def unmet_faults_text(faults: Sequence[FaultOutcome]) -> str | None:
    """Return which faults nothing met, which fails a run or a test; None where all were."""
    return "\n".join([str(fault) for fault in faults if not fault.came]) or None


def summary_text(report: ReplayReport, terms: Terms = LIBRARY_TERMS) -> str:
    """Return the outcome of a replay in one or a few lines."""
    total = len(report.interactions)
    not_fully_played = report.not_fully_played
    played_words = f"played {total - len(not_fully_played)} of {total} interactions"
    lines = [f"{played_words}, {_misses_text(report.misses)}"]
    unplayed_lines = []
    for call in not_fully_played:
        unplayed_lines.append(f"  {call.outcome}: {report.title_of(call)}")

    if report.misses and unplayed_lines:
        # A client goes no further than its miss, which a list of all that is left would hide.
        count = counted(len(unplayed_lines), "interaction")
        lines.append(f"  {count} not fully played; --report FILE lists them")
    else:
        lines += _first_ten_and_rest_count(unplayed_lines)

    unanswered_lines = []
    for number in report.without_response:
        title = report.title_of(report.interactions[number - 1])
        unanswered_lines.append(f"  no response was recorded: {title}")

    lines += _first_ten_and_rest_count(unanswered_lines)
    harmless = []
    for request in report.harmless:
        times = _times_if_several(request.times)
        harmless.append(
            f"  not recorded, answered as by any server{times}: {request.call}"
        )

    lines += _first_ten_and_rest_count(harmless)
    strayed_reads = []
    for read in report.after_other_writes:
        title = report.title_of(read)
        strayed_reads.append(
            f"  played after other writes than recorded{_times_if_several(read.times)}: {title}"
        )

    lines += _first_ten_and_rest_count(strayed_reads)
    if strayed_reads:
        hint = "  reads are held to the writes before them with <<history_strict>>"
        lines.append(in_terms(hint, terms))

    for match in report.by_kind:
        times = counted(match.times, "time")
        lines.append(f"  matched without being equal, by {match.kind}: {times}")

    lines += map(_line_about_place_elsewhere, report.elsewhere)
    lines += _first_ten_and_rest_count(_indented_lines(report.faults))
    lines += _indented_lines(learned_lines(report.learned))

    return line_by_line(*lines)


def _indented_lines(lines: Iterable[object]) -> list[str]:
    """Return lines indented by two spaces, as a summary has its details."""
    return [f"  {line}" for line in lines]


def learned_lines(learned: Mapping[str, str]) -> list[str]:
    """Return, for people, which texts of values requests have taught."""
    lines = []
    for name, text in learned.items():
        lines.append(f"learned from the first request: {{{name}}} = {text}")

    return lines


def _times_if_several(count: int) -> str:
    """Return how many times something happened, with a space before it; empty for a single time."""
    if count > 1:
        return f" {count} times"
    return ""


def _line_about_place_elsewhere(place: str) -> str:
    """Return the line about a place that clients were sent to and that is not recorded."""
    return f"  not recorded, as it is elsewhere: {place}"


def _first_ten_and_rest_count(lines: list[str]) -> list[str]:
    """Return the first ten lines and, if there are more, a line with the number of the others."""
    further_count = len(lines) - _MOST_LISTED
    if further_count > 0:
        return [*lines[:_MOST_LISTED], f"  and {further_count} more"]
    return lines


def _misses_text(misses: Sequence[MissReport]) -> str:
    """Return how many requests were missed, and for which reasons."""
    if not misses:
        return "no misses"

    reasons = Counter(miss.reason for miss in misses)
    reason_words = []
    for reason, times in sorted(reasons.items()):
        reason_words.append(f"{reason} {times}")

    noun = "miss" if len(misses) == 1 else "misses"
    return f"{len(misses)} {noun} ({', '.join(reason_words)})"


def summary_data(report: ReplayReport | RecordingReport) -> Any:
    """Return the outcome of a replay or a recording as JSON-ready data."""
    return as_data(report, {})


def report_of_cassette(report: ReplayReport, cassette: Cassette) -> ReplayReport | None:
    """Return what a report says of a cassette, which may have been played with others.

    It keeps all misses, as a replay that missed a request may be cut short. Return None if it has
    nothing of the cassette, or if several have the same calls and none of them has its path.
    """
    files = list(dict.fromkeys([call.cassette for call in report.interactions]))
    reports = {file: report.report_of_file(file) for file in files}
    matching_files = [file for file in files if _has_calls_of(reports[file], cassette)]
    if cassette.path in matching_files:
        matching_files = [cassette.path]

    if len(matching_files) != 1:
        return None

    return reports[matching_files[0]]


def _has_calls_of(report: ReplayReport, cassette: Cassette) -> bool:
    """Tell whether a report has the calls of a cassette, in its order."""
    if len(report.interactions) != len(cassette.interactions):
        return False

    redact = text_redactor(cassette.redaction or BUILT_IN_RULES)
    for outcome, recorded in zip(
        report.interactions, cassette.interactions, strict=True
    ):
        call = str(recorded.exchanges[0].call.key())
        # A report has no tokens of secrets, as `SentSecrets.shown_text` leaves them out.
        if outcome.call != without_numbers(redact(call)):
            return False

    return True


# Recordings


class UnpublishedError(MrtrCassetteError):
    """A recording is hardly the one that was meant, so it is not published as a cassette."""

    exit_code = 4

    def __init__(self, path: object, reason: str) -> None:
        shown = printable(str(path))
        super().__init__(
            f"{shown} was not written: {printable(reason)}\n"
            "the recording is in the journal beside it; publish it with: "
            f"{shell_command('publish_journal', path=shown)} (or delete the journal)"
        )
        self.reason = reason


@dataclass(frozen=True, slots=True)
class RecordingReport:
    """The outcome of a recording."""

    cassette: str
    interactions: int | None
    exchanges: int
    played: int | None = None
    unrecorded: int = 0
    objection: str | None = None
    kept: int = 0
    """How many interactions are as they were before."""

    is_same: bool = False
    """All are, and the file was left alone."""

    elsewhere: tuple[str, ...] = ()
    unread: int = 0
    """How many exchanges have a body that could not be read."""

    redacted: tuple[Redaction, ...] = ()
    incomplete: int = 0
    """How many exchanges have no whole response: a client left, or the server was lost."""


def recording_text(report: RecordingReport) -> str:
    """Return the outcome of a recording in one or a few lines."""
    if report.objection is not None:
        return str(UnpublishedError(report.cassette, report.objection))

    counts_in_words = [f"{counted(report.exchanges, 'exchange')} recorded"]
    if report.played is not None:
        counts_in_words.append(f"{report.played} played")

    if report.unrecorded:
        counts_in_words.append(f"{report.unrecorded} could not be recorded")

    if report.unread:
        counts_in_words.append(f"{report.unread} with a body that could not be read")

    if report.incomplete:
        counts_in_words.append(f"{report.incomplete} without a whole response")

    if report.is_same:
        kept_count = counted(report.kept, "interaction")
        outcome = f"{report.cassette}: {kept_count}, same, kept"
    elif report.interactions is not None:
        written_count = counted(report.interactions, "interaction")
        outcome = f"wrote {report.cassette}: {written_count}"
        if report.kept:
            outcome += f" ({report.kept} kept)"
    elif report.played is not None:
        outcome = f"{report.cassette} stays as it is"
    else:
        return "nothing was recorded, no cassette was written"

    lines = [", ".join([outcome, *counts_in_words])]
    lines += map(_line_about_place_elsewhere, report.elsewhere)
    lines += _indented_lines(redaction_lines(report.redacted))

    return line_by_line(*lines)


# Calls


@dataclass(frozen=True, slots=True)
class CallResult:
    """The outcome of a call.

    Attributes:
        name: the tool's or prompt's name, or the resource's URI; empty for any other method.
        problem: why the server can't be used, or None.
        unused: names of the given answers that no question asked for.
    """

    method: str
    name: str
    turns: tuple[CallTurn, ...] = ()
    result: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    unanswered: UnansweredQuestion | None = None
    problem: str | None = None
    unused: tuple[str, ...] = ()

    @property
    def is_error(self) -> bool:
        """Whether it has no result, or one that a tool marks as an error."""
        return self.exit_code != 0

    @property
    def text(self) -> str:
        """The texts of the result, each on lines of its own; an error's message.

        Raises:
            UpstreamError: the call has neither.
        """
        if self.error is not None:
            return str(self.error.get("message", ""))

        if self.result is None:
            problems = "; ".join(_problems_of_call(self, _example_as_argument))
            raise UpstreamError(problems or "the call has no result")

        return "\n".join(result_texts(self.result))

    @property
    def exit_code(self) -> int:
        """The exit code of the command line."""
        if self.problem is not None:
            return UpstreamError.exit_code
        if self.unanswered is not None:
            return UnansweredError.exit_code
        return int(self.result is None or self.result.get("isError") is True)


_CALL_MEMBERS: Final[Mapping[type, str | Callable[[Any], Any]]] = {
    CallResult: "method name turns unanswered result error problem",
    CallTurn: "turn=number via asked=requests answered=answers answered_by "
    "request_state_sha256=state_sha256",
    InputRequest: "kind message",
    UnansweredQuestion: lambda question: {
        "key": question.key,
        "reason": question.detail,
        "ask": question.asked.data_for_programs(),
    },
}


def call_data(result: CallResult) -> Any:
    """Return a call with its whole conversation, for programs."""
    return as_data(result, _CALL_MEMBERS)


def problem_lines(result: CallResult, *, is_miss_told: bool) -> list[str]:
    """Return the problems of a call, and its unused answers, for people.

    A miss that the replay has told them already is not repeated.
    """
    error = result.error
    if is_miss_told and error is not None and _is_miss_of_our_replay(error):
        result = replace(
            result, error={**error, "message": "not recorded, for the reason above"}
        )

    lines = []
    for problem in _problems_of_call(result, _example_as_options):
        lines.append(f"error: {problem}")

    for name in result.unused:
        lines.append(f"warning: {unused_answers_text([name])}")

    return lines


def _is_miss_of_our_replay(error: Mapping[str, Any]) -> bool:
    """Tell whether an error of a call is a miss of our own replay."""
    has_our_message = str(error.get("message")).startswith(_BEGINS_MISS)
    return has_our_message and error.get("code") in (MISS_CODE, UNRECORDED_CODE)


def _problems_of_call(
    result: CallResult, spell_example: Callable[[UnansweredQuestion], str]
) -> Iterator[str]:
    """Yield why a call has no result, with the way to answer an open question."""
    if result.problem is not None:
        yield result.problem

    if result.unanswered is not None:
        question = result.unanswered
        place = f"turn {question.asked.turn} is not answered: {question.key!r}"
        line = f"{place}: {question.detail}"
        if question.example:
            line += f"; write {printable(spell_example(question))}"

        yield line

    if result.error is not None:
        yield f"{result.error.get('code')}: {result.error.get('message')}"


def unused_answers_text(names: Sequence[str]) -> str:
    """Return that no question asked for some answers."""
    return f"nothing asked for the answer {' or '.join(map(repr, names))}"


def _example_as_options(unanswered: UnansweredQuestion) -> str:
    """Spell an example of an answer for the command line."""
    pairs = []
    for name, value in unanswered.example.items():
        pairs.append(spelled_pair(name, value))

    return in_terms("<<answer>>", SHELL_TERMS, {"given": pairs})


def _example_as_argument(unanswered: UnansweredQuestion) -> str:
    """Spell an example of an answer for the library."""
    return f"answers={json.loads(canonical(unanswered.example))!r}"


class UnansweredError(MrtrCassetteError):
    """A call ended with a question that nothing answers."""

    exit_code = 5

    def __init__(self, result: CallResult) -> None:
        hint = None
        if result.unused:
            hint = unused_answers_text(result.unused)

        super().__init__(
            "; ".join(_problems_of_call(result, _example_as_argument)), hint=hint
        )
        self.result = result
