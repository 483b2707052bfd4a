"""What a replay, a recording or a call came to: as values, text for people, and JSON data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from shlex import quote
from typing import Any, Final, Literal, NamedTuple

from mrtr_cassette.core.answers.fulfilment import CallTurn, Unanswered
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.report.details import Interaction
from mrtr_cassette.core.report.misses import MissReport, Nearest, report_of_miss
from mrtr_cassette.core.report.text import as_data, result_texts
from mrtr_cassette.core.wire.jsonbytes import parse
from mrtr_cassette.core.wire.pointers import Difference
from mrtr_cassette.errors import (
    LIBRARY_TERMS,
    MrtrCassetteError,
    Terms,
    UpstreamError,
    counted,
    printable,
)

_MOST_LISTED: Final = 10

# Replays


Outcome = Literal["played", "played in part", "never played"]
"""What became of an interaction in a replay."""


@dataclass(frozen=True, slots=True)
class InteractionOutcome:
    """What became of one interaction in a replay, and how many of its own replies were played."""

    number: int
    call: str
    outcome: Outcome
    plays: int


class HarmlessRequest(NamedTuple):
    """A request that was not recorded and got what any server answers, and how often."""

    call: str
    answer: str
    times: int


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """The outcome of a replay: all interactions in the cassette's order, misses as they came."""

    cassette: str
    interactions: tuple[InteractionOutcome, ...]
    misses: tuple[MissReport, ...]
    harmless: tuple[HarmlessRequest, ...] = ()
    authorities_elsewhere: tuple[str, ...] = ()

    @property
    def incomplete(self) -> list[InteractionOutcome]:
        """The interactions of which something was never played."""
        return [each for each in self.interactions if each.outcome != "played"]


class UnplayedError(MrtrCassetteError):
    """A replay was to play all of its cassette, and did not."""

    def __init__(self, path: object, unplayed: Sequence[Interaction]) -> None:
        head = f"not all that is on {path} was played:"
        super().__init__("\n".join([head, *(f"  #{each.number} {each.call}" for each in unplayed)]))
        self.unplayed = tuple(unplayed)


def report_of_replay(player: Player, terms: Terms = LIBRARY_TERMS) -> ReplayReport:
    """Return what a replay has come to so far."""
    unplayed = set(player.unplayed)
    # Many interactions are of the same call.
    redacted = cache(player.redacted)
    interactions = []
    for number, exchanges in enumerate(player.interactions, start=1):
        # How often a task is polled is the client's affair.
        plays = sum(each.played for each in exchanges if each.created_by is None)
        outcome: Outcome = "played"
        if number in unplayed:
            outcome = "played in part" if plays else "never played"
        call = redacted(str(exchanges[0].key))
        interactions.append(InteractionOutcome(number, call, outcome, plays))
    # Another thread may replay meanwhile.
    harmless = Counter((redacted(each.call.title), each.answer) for each in (*player.harmless,))
    return ReplayReport(
        player.path,
        tuple(interactions),
        reports_of_misses(player, terms),
        tuple(HarmlessRequest(*each, times) for each, times in harmless.items()),
    )


def reports_of_misses(player: Player, terms: Terms = LIBRARY_TERMS) -> tuple[MissReport, ...]:
    """Return what was missed so far."""
    # Another thread may replay meanwhile.
    misses = tuple(player.misses)
    return tuple(report_of_miss(miss, player.path, player.redacted, terms) for miss in misses)


def summary_text(report: ReplayReport) -> str:
    """Return what a replay came to, in one or a few lines."""
    total, incomplete = len(report.interactions), report.incomplete
    played = f"played {total - len(incomplete)} of {total} interactions"
    lines = [f"{played}, {_misses_text(report.misses)}"]
    lines += _first_ten([f"  {it.outcome}: #{it.number} {it.call}" for it in incomplete])
    if report.harmless:
        lines.append(harmless_text(report.harmless))
    lines += map(_elsewhere_text, report.authorities_elsewhere)
    return "\n".join(lines)


def harmless_text(requests: Sequence[HarmlessRequest]) -> str:
    """Return, a line each, what was not recorded and got what any server answers."""
    lines = []
    for each in requests:
        times = f" {each.times} times" if each.times > 1 else ""
        lines.append(f"  not recorded, answered as by any server{times}: {each.call}")
    return "\n".join(_first_ten(lines))


def _elsewhere_text(origin: str) -> str:
    return f"  not recorded, as it is elsewhere: the authorization server {origin}"


def _first_ten(lines: list[str]) -> list[str]:
    rest = len(lines) - _MOST_LISTED
    return [*lines[:_MOST_LISTED], f"  and {rest} more"] if rest > 0 else lines


def _misses_text(misses: Sequence[MissReport]) -> str:
    if not misses:
        return "no misses"
    reasons = Counter(miss.reason for miss in misses)
    named = ", ".join(f"{reason} {times}" for reason, times in sorted(reasons.items()))
    return f"{len(misses)} {'miss' if len(misses) == 1 else 'misses'} ({named})"


def summary_data(report: ReplayReport) -> dict[str, Any]:
    """Return what a replay came to, as JSON-ready data."""
    data: dict[str, Any] = as_data(report, {})
    return data


def saved_report(raw: bytes) -> ReplayReport:
    """Return the report that `summary_data` made JSON of.

    Raises:
        ValueError: it is no such report.
    """
    tree = parse(raw)
    try:
        interactions = [InteractionOutcome(**each) for each in tree["interactions"]]
        misses = [
            replace(
                MissReport(**{**each, "fixes": tuple(each["fixes"])}),
                nearest=each["nearest"] and Nearest(**each["nearest"]),
                differences=tuple(Difference(**it) for it in each["differences"]),
            )
            for each in tree["misses"]
        ]
        harmless = [HarmlessRequest(**each) for each in tree["harmless"]]
        return ReplayReport(tree["cassette"], tuple(interactions), tuple(misses), tuple(harmless))
    except (KeyError, TypeError) as error:
        raise ValueError(error) from None


# Recordings


class UnpublishedError(MrtrCassetteError):
    """What was recorded is hardly what was meant, so it is not published as a cassette."""

    exit_code = 4

    def __init__(self, path: object, reason: str) -> None:
        super().__init__(
            f"{path} was not written: {reason}\n"
            "what was recorded is in the journal beside it; publish it with: "
            f"mrtr-cassette recover {path} (or delete the journal)"
        )
        self.reason = reason


@dataclass(frozen=True, slots=True)
class RecordingReport:
    """The outcome of a recording."""

    cassette: str
    interactions: int | None
    exchanges: int
    played: int | None
    unrecorded: int
    objection: str | None = None
    kept: int = 0
    """How many interactions stand as they did before."""
    is_same: bool = False
    """All do, and the file was left alone."""
    authorities_elsewhere: tuple[str, ...] = ()


def recording_text(report: RecordingReport) -> str:
    """Return what a recording came to, in one or a few lines."""
    if report.objection is not None:
        return str(UnpublishedError(report.cassette, report.objection))
    parts = [f"{counted(report.exchanges, 'exchange')} recorded"]
    if report.played is not None:
        parts.append(f"{report.played} played")
    if report.unrecorded:
        parts.append(f"{report.unrecorded} could not be recorded")
    if report.is_same:
        outcome = f"{report.cassette}: {counted(report.kept, 'interaction')}, same, kept"
    elif report.interactions is not None:
        outcome = f"wrote {report.cassette}: {counted(report.interactions, 'interaction')}"
        if report.kept:
            outcome += f" ({report.kept} kept)"
    elif report.played is not None:
        outcome = f"{report.cassette} stays as it is"
    else:
        return "nothing was recorded, no cassette was written"
    elsewhere = map(_elsewhere_text, report.authorities_elsewhere)
    return "\n".join([", ".join([outcome, *parts]), *elsewhere])


# Calls

_DONE: Final = 0
_REFUSED: Final = 1
_UPSTREAM: Final = 4
_UNANSWERED: Final = 5


@dataclass(frozen=True, slots=True)
class CallResult:
    """What a call came to.

    Attributes:
        name: the tool's or prompt's name, or the resource's URI; empty for any other method.
        problem: why the server can't be used, or None.
        unused: names of the call's own answers that nothing was asked for.
    """

    method: str
    name: str
    turns: tuple[CallTurn, ...] = ()
    result: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    unanswered: Unanswered | None = None
    problem: str | None = None
    unused: tuple[str, ...] = ()

    @property
    def is_error(self) -> bool:
        """Whether it has no result, or one that a tool marks as an error."""
        return self.exit_code != _DONE

    @property
    def text(self) -> str:
        """The texts of the result, each on lines of its own; an error's message.

        Raises:
            UpstreamError: the call has neither.
        """
        if self.error is not None:
            return str(self.error.get("message", ""))
        if self.result is None:
            raise UpstreamError(
                "; ".join(_problems(self, _as_argument)) or "the call has no result"
            )
        return "\n".join(result_texts(self.result))

    @property
    def exit_code(self) -> int:
        """The exit code of the command line."""
        if self.problem is not None:
            return _UPSTREAM
        if self.unanswered is not None:
            return _UNANSWERED
        is_refused = self.result is None or self.result.get("isError") is True
        return _REFUSED if is_refused else _DONE


_CALL_ROWS: Final[Mapping[type, str | Callable[[Any], Any]]] = {
    CallResult: "method name turns unanswered result error problem",
    CallTurn: "turn=number via asked=requests answered=answers answered_by "
    "request_state_sha256=state_sha256",
    InputRequest: "kind message",
    Unanswered: lambda it: {"key": it.key, "reason": it.detail, "ask": it.asked.data()},
}


def call_data(result: CallResult) -> dict[str, Any]:
    """Return a call with its whole conversation, for programs."""
    data = as_data(result, _CALL_ROWS)
    return {name: value for name, value in data.items() if value is not None}


def problem_lines(result: CallResult) -> list[str]:
    """Return what went wrong, and what was given for nothing, for people."""
    warnings = [f"warning: {unused_text([name])}" for name in result.unused]
    return [*(f"error: {each}" for each in _problems(result, _as_options)), *warnings]


def _problems(result: CallResult, spelled: Callable[[Unanswered], str]) -> Iterator[str]:
    if result.problem is not None:
        yield result.problem
    if result.unanswered is not None:
        asked = result.unanswered
        line = f"; write {printable(spelled(asked))}" if asked.names else ""
        yield f"turn {asked.asked.turn} is not answered: {asked.key!r}: {asked.detail}{line}"
    if result.error is not None:
        yield f"{result.error.get('code')}: {result.error.get('message')}"


def unused_text(names: Sequence[str]) -> str:
    """Return that answers were given for nothing."""
    return f"nothing asked for the answer {' or '.join(map(repr, names))}"


def _as_options(unanswered: Unanswered) -> str:
    is_json = unanswered.asked.requests[unanswered.key].kind == "roots"
    value = ":=JSON" if is_json else "=VALUE"
    return " ".join(f"--answer {quote(f'{name}{value}')}" for name in unanswered.names)


def _as_argument(unanswered: Unanswered) -> str:
    return f"answers={{{', '.join(f'{name!r}: …' for name in unanswered.names)}}}"


class UnansweredError(MrtrCassetteError):
    """A call ended with a question that nothing answers."""

    exit_code = _UNANSWERED

    def __init__(self, result: CallResult) -> None:
        hint = unused_text(result.unused) if result.unused else None
        super().__init__("; ".join(_problems(result, _as_argument)), hint=hint)
        self.result = result
