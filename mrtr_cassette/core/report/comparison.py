"""Reports of the differences between two cassettes, or a cassette and a live server."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from mrtr_cassette.core.compare.conversations import (
    CassetteComparison,
    InteractionComparison,
    Mark,
    Stage,
)
from mrtr_cassette.core.compare.values import (
    TEXT_STEP,
    VERDICTS,
    Change,
    Verdict,
    common_pointer,
    is_below,
    without_ignored_changes,
    without_indices,
)
from mrtr_cassette.core.drive.ignored import LearnedPlace
from mrtr_cassette.core.drive.script import LivePair, TurnChange, without_turn_numbers
from mrtr_cassette.core.drive.updating import (
    ACCEPTABLE_VERDICTS,
    Proposal,
    accepted_by_verdict,
)
from mrtr_cassette.core.drive.verdicts import Probed
from mrtr_cassette.core.drive.verification import VerifiedInteraction
from mrtr_cassette.core.protocol.dialect import INPUT_REQUESTS
from mrtr_cassette.core.report.ci import (
    Case,
    Failure,
    Suite,
    error_annotation,
    junit_xml,
)
from mrtr_cassette.core.report.text import (
    answer_words,
    as_data,
    counts_text,
    diff_block,
    escaped_for_markdown,
)
from mrtr_cassette.core.wire.jsonbytes import canonical, parse
from mrtr_cassette.core.wire.pointers import (
    ANY,
    Difference,
    differing_excerpts,
    members_of,
)
from mrtr_cassette.errors import counted, printable, printable_lines, shorten
from mrtr_cassette.terms import Terms, in_terms

_STRUCTURED_CONTENT: Final = "/structuredContent"
_TEXT_POINTER: Final = f"/content/{ANY}/text"

_MARK_WORDS: Final[Mapping[Mark, str]] = {
    "~": "changed",
    "-": "removed",
    "+": "added",
}
_VERDICT_MARKS = {"same": "=", "skipped": "-"}
_EXIT_DIFFERENT: Final = 1
_EXIT_UNREACHABLE: Final = 4
_VERDICTS_SHOWN_WHOLE: Final = frozenset({"refused", "rounds-changed"})
"""Verdicts whose values are whole responses."""

_ONE_SIDED_WORDS: Final[Mapping[Mark, str]] = {"-": "not called", "+": "not recorded"}


# Changes that are told as one


@dataclass(frozen=True, slots=True)
class ChangeGroup:
    """Changes with one verdict that are told as one.

    Attributes:
        pointer: their place, in which `*` stands for indices that differ.
        changes: in order, one for each index.
        repeated_at: the text of the result that repeats them; or empty.
    """

    pointer: str
    changes: tuple[Change, ...]
    repeated_at: str = ""

    @property
    def first(self) -> Change:
        """The first of its changes."""
        return self.changes[0]


def grouped_changes(changes: Iterable[Change]) -> list[ChangeGroup]:
    """Group the changes of a response that people read as one; they stay in order."""
    groups = _groups_by_place(changes)
    text_groups = _text_group_by_repeated_content(groups)
    groups_told_elsewhere = set(text_groups.values())
    grouped = []
    for group in groups:
        if group in text_groups:
            grouped.append(replace(group, repeated_at=text_groups[group].pointer))
        elif group not in groups_told_elsewhere:
            grouped.append(group)

    return grouped


def _groups_by_place(changes: Iterable[Change]) -> list[ChangeGroup]:
    """Group changes with one verdict whose places differ in indices alone."""
    changes_alike: dict[object, list[Change]] = defaultdict(list)
    for change in changes:
        place = without_indices(change.pointer)
        is_added = change.recorded is None
        is_removed = change.received is None
        group_key = (place, change.verdict, change.is_information, is_added, is_removed)
        changes_alike[group_key].append(change)

    groups = []
    for group_changes in changes_alike.values():
        pointer = common_pointer([change.pointer for change in group_changes])
        groups.append(ChangeGroup(pointer, tuple(group_changes)))

    return groups


def _text_group_by_repeated_content(
    groups: Sequence[ChangeGroup],
) -> dict[ChangeGroup, ChangeGroup]:
    """Find the texts in which tools repeat structured content, by the changes of the latter."""
    text_groups_by_values: dict[object, list[ChangeGroup]] = defaultdict(list)
    for group in groups:
        if is_below(group.pointer, _TEXT_POINTER):
            text_groups_by_values[_value_pairs_of_group(group)].append(group)

    text_group_by_content: dict[ChangeGroup, ChangeGroup] = {}
    for group in groups:
        candidates = []
        if is_below(group.pointer, _STRUCTURED_CONTENT):
            candidates = text_groups_by_values[_value_pairs_of_group(group)]

        for text in candidates:
            place = text.pointer.partition(TEXT_STEP)[2]
            if group.pointer.endswith(place):
                text_group_by_content[group] = text
                candidates.remove(text)
                break

    return text_group_by_content


def _value_pairs_of_group(
    group: ChangeGroup,
) -> tuple[tuple[str | None, str | None], ...]:
    """Return the values of all changes of a group, as texts."""
    values = []
    for change in group.changes:
        values.append(
            (_unquoted_text(change.recorded), _unquoted_text(change.received))
        )

    return tuple(values)


def _unquoted_text(value: str | None) -> str | None:
    """Return the text of a JSON string; other JSON, and None, as it is."""
    if value is None or not value.startswith('"'):
        return value

    text: str = json.loads(value)
    return text


# Lines


def shown_values(change: Change | Difference) -> tuple[str | None, str | None]:
    """Return the two values of a change as people read them; long ones from where they differ.

    A whole response is shown by the first line of its message.
    """
    old = change.recorded
    new = change.received
    if isinstance(change, Change) and change.verdict in _VERDICTS_SHOWN_WHOLE:
        return _shown_value(old, response_line), _shown_value(new, response_line)
    if not old or not new:
        return _shown_value(old, _short_json), _shown_value(new, _short_json)

    before, after = differing_excerpts(_readable_json(old), _readable_json(new))
    return printable(before), printable(after)


def _shown_value(value: str | None, in_short: Callable[[str], str]) -> str | None:
    """Return a value in short as it may be printed, if there is one."""
    if not value:
        return value
    return printable(in_short(value))


def _short_json(value: str) -> str:
    """Return a JSON value in short, without escapes for the characters of a text."""
    return shorten(_readable_json(value))


def _readable_json(value: str) -> str:
    """Return a JSON value in which the characters of a text are not escaped."""
    if value.startswith('"'):
        return json.dumps(json.loads(value), ensure_ascii=False)
    return value


def response_line(value: str) -> str:
    """Return the first line of a response's message: its question, its text, or its error."""
    members = members_of(json.loads(value))
    error = members.get("error")
    if isinstance(error, dict):
        return f"error {error.get('code')}: {_first_line(error.get('message'))}"

    questions = _question_texts(members.get(INPUT_REQUESTS, members))
    if questions:
        return f"asks {'; '.join(questions)}"

    text = _first_content_text(members.get("content"))
    if text is None:
        return shorten(value)

    line = _first_line(text)
    if members.get("isError") is True:
        line = f"isError: {line}"

    return line


def _first_content_text(content: Any) -> str | None:
    """Return the text of the first block of a result's content, if it has one."""
    blocks = content if isinstance(content, list) else ()
    for block in blocks:
        if isinstance(block, dict):
            text = block.get("text")
            return text if isinstance(text, str) else None

    return None


def _first_line(text: object) -> str:
    """Return the first line of a text, quoted as in JSON and shortened."""
    return shorten(json.dumps(str(text).partition("\n")[0], ensure_ascii=False))


def _question_texts(asked: Any) -> list[str]:
    """Return the questions of a value of `inputRequests`."""
    questions = []
    for key, request in members_of(asked).items():
        params = members_of(request).get("params")
        if isinstance(params, dict) and "method" in request:
            shown = request["method"]
            if params.get("message") is not None:
                shown = _first_line(params["message"])

            questions.append(f"{key}: {shown}")

    return questions


def group_lines(group: ChangeGroup) -> Iterator[str]:
    """Yield folded changes: verdict and place, then the recorded and the received value."""
    change = group.first
    if change.verdict == "key-changed":
        old = printable(_unquoted_text(change.recorded) or "")
        new = printable(_unquoted_text(change.received) or "")
        yield f"key-changed: {old} → {new}"

        return

    facts: list[str] = [change.verdict]
    if len(group.changes) > 1:
        facts = [f"{change.verdict} in {len(group.changes)} places"]
        if len(set(_value_pairs_of_group(group))) > 1:
            facts.append("the first of them")

    if group.repeated_at:
        facts.append(f"and again at {printable(group.repeated_at)}")

    if change.is_information:
        facts.append("information only")

    yield f"{printable(group.pointer) or '/'}: {', '.join(facts)}"
    recorded, received = shown_values(change)
    if recorded is not None:
        yield f"- {recorded}"

    if received is not None:
        yield f"+ {received}"


# Two cassettes


def comparison_text(
    comparison: CassetteComparison, words_by_mark: Mapping[Mark, str] = _MARK_WORDS
) -> str:
    """Return two compared cassettes as text: their differences, and a conclusion."""
    lines = [
        f"- {printable(comparison.recorded)}",
        f"+ {printable(comparison.received)}",
    ]

    responses = []
    for interaction in comparison.interactions:
        if interaction.mark != "=" or interaction.is_moved:
            lines += _interaction_comparison_lines(interaction)

        for stage in interaction.stages:
            responses.append(stage.changes)

    lines += _distinct_information_lines(responses)
    lines.append(difference_summary(comparison, words_by_mark))
    return printable_lines("\n".join(lines))


def suite_differences_text(comparison: CassetteComparison, terms: Terms) -> str:
    """Return how a test differs from its cassette: the verdict, the facts, the ways out."""
    differing_interactions = comparison.differing_interactions
    heaviest_difference = max(differing_interactions, key=_severity_rank)
    verdict = _ONE_SIDED_WORDS.get(
        heaviest_difference.mark, heaviest_difference.verdict
    )
    head = f"{verdict}: {_call_words(heaviest_difference)}"
    if len(differing_interactions) > 1:
        head += f", and {len(differing_interactions) - 1} more"

    ways = [
        "fix: let the server, or the test, behave as recorded",
        f" or: {in_terms('record the new conversation with <<record_again>>', terms)}",
    ]

    differences = comparison_text(comparison, {**_MARK_WORDS, **_ONE_SIDED_WORDS})
    return "\n".join([head, "", differences, *ways])


def _severity_rank(interaction: InteractionComparison) -> tuple[int, bool]:
    """Return the rank of a differing interaction; the greatest one is told first."""
    # With equal verdicts a call that names something says more than one of discovery.
    return VERDICTS.index(interaction.verdict), '"' in interaction.call


def _call_words(interaction: InteractionComparison) -> str:
    """Return the call of an interaction; the answers too, if only one side has it.

    The other side may have the same call with other answers.
    """
    answer_texts = []
    for stage in interaction.stages:
        if stage.kind != "answer" or interaction.mark not in _ONE_SIDED_WORDS:
            continue

        for change in stage.changes:
            answers = parse((change.recorded or change.received or "{}").encode())
            answer_texts.append(answer_words(members_of(answers)))

    call = printable(interaction.call)
    if not answer_texts:
        return call

    return f"{call}, answered with {', then '.join(answer_texts)}"


def _interaction_comparison_lines(interaction: InteractionComparison) -> Iterator[str]:
    """Yield an interaction of two cassettes with its changes."""
    mark = interaction.mark
    facts: list[str] = [interaction.verdict] if mark == "~" else []
    if interaction.is_moved:
        facts.append("moved")

    line = f"{mark} {_number_words(interaction)} {_call_words(interaction)}"
    if facts:
        line += f": {', '.join(facts)}"

    yield line
    for difference in interaction.request:
        yield f"    request {printable(difference.pointer) or '/'}"
        old, new = shown_values(difference)
        yield f"      - {old or 'nothing'}"
        yield f"      + {new or 'nothing'}"

    if mark == "~":
        for stage in interaction.stages:
            yield from _lines_of_changes_at(_stage_words(stage), stage.counting_changes)


def _number_words(interaction: InteractionComparison) -> str:
    """Return the number of an interaction in one cassette, or its numbers in both."""
    recorded = interaction.recorded
    received = interaction.received
    if recorded is None or received == recorded:
        return f"#{received}"
    if received is None:
        return f"#{recorded}"

    return f"#{recorded} (now #{received})"


def _stage_words(stage: Stage) -> str:
    """Return a stage in words: its turn, and whether it is the client's answer."""
    place = _turn_words(stage.turn)
    return f"{place} answer" if stage.kind == "answer" else place


def _turn_words(turn: int | None) -> str:
    """Return a turn in words, or `response` if there is none."""
    if turn:
        return f"turn {turn}"
    return "response"


def _lines_of_changes_at(place: str, changes: Iterable[Change]) -> Iterator[str]:
    """Yield the changes at a place of a conversation."""
    for group in grouped_changes(changes):
        first, *values = group_lines(group)
        yield f"    {place} {first}"
        for value in values:
            yield f"      {value}"


def _distinct_information_lines(responses: Iterable[Iterable[Change]]) -> Iterator[str]:
    """Yield the information in several responses, each change once."""
    group_counts: Counter[ChangeGroup] = Counter()
    for changes in responses:
        information = []
        for change in changes:
            if change.is_information:
                information.append(change)

        groups = map(_with_server_info_at_one_place, grouped_changes(information))
        group_counts.update(dict.fromkeys(groups, 1))

    for group, count in group_counts.items():
        first, *values = group_lines(group)
        line = f"information, {counted(count, 'time')}: {first.removesuffix(', information only')}"
        if len(values) == 2:
            old, new = values
            yield f"{line}: {old[2:]} → {new[2:]}"
            continue

        yield line
        for value in values:
            yield f"      {value}"


def _with_server_info_at_one_place(group: ChangeGroup) -> ChangeGroup:
    """Return a change of a server's name or version as if all responses had these in one place."""
    _, name, member = group.pointer.partition("serverInfo/")
    if not name:
        return group

    pointer = f"/{name}{member}"
    changes = tuple(change._replace(pointer=pointer) for change in group.changes)
    return replace(group, pointer=pointer, changes=changes)


def difference_summary(
    comparison: CassetteComparison, words_by_mark: Mapping[Mark, str] = _MARK_WORDS
) -> str:
    """Return in one line how many interactions of two cassettes differ."""
    total = counted(len(comparison.interactions), "interaction")
    text = f"the same: {total}"
    differing_count = len(comparison.differing_interactions)
    if differing_count:
        facts = []
        for mark, words in words_by_mark.items():
            count = comparison.count_by_mark[mark]
            if count:
                facts.append(f"{count} {words}")

        verb = "differs" if differing_count == 1 else "differ"
        text = f"{differing_count} of {total} {verb}: {', '.join(facts)}"

    moved_count = sum(interaction.is_moved for interaction in comparison.interactions)
    if moved_count:
        return f"{text}; {moved_count} moved"

    return text


def comparison_data(comparison: CassetteComparison) -> Any:
    """Return two compared cassettes as JSON-ready data."""
    return as_data(comparison, _JSON_MEMBERS)


def comparison_markdown(comparison: CassetteComparison) -> str:
    """Return two compared cassettes as Markdown, for a pull request."""
    *shown, last = comparison_text(comparison).split("\n")
    return "\n".join([f"**{last}**", "", *diff_block(shown)])


# A cassette and a live server


@dataclass(frozen=True, slots=True)
class Verification:
    """The outcome of verifying one cassette."""

    cassette: str
    upstream: str
    interactions: tuple[VerifiedInteraction, ...]
    fail_on: frozenset[str] = frozenset()
    places: tuple[tuple[str, LearnedPlace], ...] = ()
    accepted: frozenset[int] = frozenset()
    untried: tuple[str, ...] = ()
    proposed: tuple[Proposal, ...] = ()
    """Responses that could be taken into the cassette."""

    @property
    def learned(self) -> list[tuple[str, str]]:
        """The pointers that are left out from now on, each with its call."""
        pointers = []
        for call, place in self.places:
            if place.reason is None:
                pointers.append((call, place.pointer))

        return pointers

    @property
    def left_out(self) -> list[Change]:
        """The changes of the live server at places that are ignored."""
        changes: list[Change] = []
        for interaction in self.interactions:
            changes += interaction.findings.left_out

        return changes

    @property
    def counts(self) -> Counter[str]:
        """How many interactions have each verdict, the lightest first."""
        return verdict_counts(self.interactions, VERDICTS)

    @property
    def compared(self) -> int:
        """How many interactions were compared."""
        counts = self.counts
        return counts.total() - counts["skipped"] - counts["not-reached"]

    @property
    def failures(self) -> tuple[VerifiedInteraction, ...]:
        """The interactions that make the run fail."""
        return tuple(filter(self.fails, self.interactions))

    def fails(self, interaction: VerifiedInteraction) -> bool:
        """Tell whether an interaction makes the run fail."""
        if interaction.number in self.accepted:
            return False
        if interaction.verdict == "not-reached":
            return True
        if self.fail_on:
            return interaction.verdict in self.fail_on

        return interaction.verdict not in ("same", "skipped")

    @property
    def is_good(self) -> bool:
        """Whether something was compared, and nothing fails."""
        return exit_code_of([self]) == 0


def verdict_counts(
    judged: Iterable[VerifiedInteraction | Probed], order: Sequence[str]
) -> Counter[str]:
    """Count verdicts, and put the counts into an order."""
    verdicts: list[str] = [outcome.verdict for outcome in judged]
    return Counter(sorted(verdicts, key=order.index))


def exit_code_of(verifications: Sequence[Verification]) -> int:
    """Return the exit code of the command line for several cassettes."""
    if not any(verification.compared for verification in verifications):
        return _EXIT_UNREACHABLE
    if any(verification.failures for verification in verifications):
        return _EXIT_DIFFERENT
    return 0


def verification_text(verification: Verification) -> str:
    """Return a verification for people: what is not the same, and the counts."""
    lines = []
    for interaction in verification.interactions:
        if interaction.verdict != "same":
            lines += interaction_lines(interaction)

    lines += _lines_of_distinct_information(verification)
    for call, learned_place in verification.places:
        if learned_place.reason is not None:
            lines.append(
                f"not learned: {call} {learned_place.pointer or '/'}: {learned_place.reason}"
            )
        elif learned_place.is_unstable:
            lines.append(f"learned: {call} {learned_place.pointer}")
        else:
            lines.append(
                f"learned: {call} {learned_place.pointer}, where only the recording differs"
            )

    for call in verification.untried:
        lines.append(
            f"not called twice: {call}: the server does not mark it readOnlyHint"
        )

    return "\n".join([*lines, summary_line(verification)])


def _lines_of_distinct_information(verification: Verification) -> Iterator[str]:
    """Yield the information in all calls, each change once."""
    responses: list[list[Change]] = []
    for interaction in verification.interactions:
        responses += _changes_by_turn(interaction).values()

    return _distinct_information_lines(responses)


def _changes_by_turn(interaction: VerifiedInteraction) -> dict[int, list[Change]]:
    """Return the changes of an interaction by turn; 0 is the final response."""
    turns: dict[int, list[Change]] = defaultdict(list)
    for turn, change in interaction.changes:
        turns[turn].append(change)

    return turns


def interaction_lines(
    interaction: VerifiedInteraction, *, is_whole: bool = False
) -> list[str]:
    """Return the outcome of one interaction with all its changes, and with whole responses."""
    mark = _VERDICT_MARKS.get(interaction.verdict, "~")
    lines = [f"{mark} #{interaction.number} {interaction.call}: {interaction.verdict}"]
    if interaction.reason is not None:
        lines.append(f"    {printable(interaction.reason)}")

    shown_pairs = interaction.reached
    responses = {response.turn: response for response in shown_pairs}
    for turn, changes in _changes_by_turn(interaction).items():
        counting_changes = []
        for change in changes:
            if not change.is_information:
                counting_changes.append(
                    _with_whole_responses(change, responses.get(turn))
                )

        lines += _lines_of_changes_at(_turn_words(turn), counting_changes)

    if is_whole:
        for response in shown_pairs:
            place = _turn_words(response.turn)
            lines += _whole_response_lines("-", f"{place}, expected", response.expected)
            lines += _whole_response_lines("+", f"{place}, received", response.received)

    return lines


def _with_whole_responses(change: Change, response: LivePair | None) -> Change:
    """Return a change of a whole response with both responses as its values."""
    if response is None or change.verdict not in _VERDICTS_SHOWN_WHOLE:
        return change

    expected_response = canonical(response.expected)
    received = canonical(response.received)
    return change._replace(recorded=expected_response, received=received)


def _whole_response_lines(mark: str, title: str, response: Any) -> Iterator[str]:
    """Yield a whole response, line by line."""
    yield f"    {title}:"
    for line in json.dumps(response, indent=2, ensure_ascii=False).split("\n"):
        yield f"      {mark} {printable(line)}"


def summary_line(verification: Verification) -> str:
    """Return in one line how many interactions have which verdict."""
    total = counted(len(verification.interactions), "interaction")
    cassette = printable(verification.cassette)
    upstream = printable(verification.upstream)
    counts = counts_text(verification.counts)
    line = f"{cassette} against {upstream}: {total}: {counts}"
    if verification.compared:
        return line

    return f"{line}; nothing was compared"


def verification_data(verifications: Sequence[Verification]) -> dict[str, Any]:
    """Return verifications as JSON values, for programs."""
    return {"cassettes": as_data([*verifications], _JSON_MEMBERS)}


_JSON_MEMBERS: Final[Mapping[type, str]] = {
    Change: "verdict pointer recorded received is_information",
    CassetteComparison: "recorded received same=is_same verdict interactions",
    InteractionComparison: "mark recorded received call verdict moved=is_moved request stages",
    Stage: "kind turn mark changes",
    Verification: "cassette upstream is_good counts accepted interactions",
    VerifiedInteraction: "number call verdict reason changes responses=reached",
    LivePair: "turn expected received",
    TurnChange: "turn verdict=change.verdict pointer=change.pointer recorded=change.recorded "
    "received=change.received is_information=change.is_information",
}


def verification_markdown(verifications: Sequence[Verification]) -> str:
    """Return verifications as Markdown, for a pull request or a job's summary."""
    lines = []
    for verification in verifications:
        summary = escaped_for_markdown(summary_line(verification))
        failing_interactions = []
        for interaction in verification.failures:
            failing_interactions += interaction_lines(interaction, is_whole=True)

        failing_interactions += _lines_of_distinct_information(verification)
        lines += [f"### {summary}", "", *diff_block(failing_interactions), ""]

    return "\n".join(lines)


def verification_junit(verifications: Iterable[Verification]) -> bytes:
    """Return the outcome of verifying as XML, a suite for each cassette."""
    suites = [
        Suite(verification.cassette, _junit_cases_of(verification))
        for verification in verifications
    ]
    return junit_xml("mrtr-cassette verify", suites)


def _junit_cases_of(verification: Verification) -> Iterator[Case]:
    """Return the interactions that a server was held to as cases."""
    for interaction in verification.interactions:
        name = f"#{interaction.number} {interaction.call}"
        verdict = interaction.verdict
        reason = interaction.reason or ""
        if verification.fails(interaction):
            text = "\n".join(interaction_lines(interaction, is_whole=True))
            yield Case(name, Failure(verdict, reason or verdict, text))
        else:
            yield Case(name, skip_reason=reason if verdict == "skipped" else None)


def verification_annotations(verification: Verification) -> list[str]:
    """Return the annotations that GitHub Actions shows beside the cassette's file."""
    lines = []
    for interaction in verification.failures:
        facts = []
        if interaction.reason:
            facts.append(printable(interaction.reason))

        for group in grouped_changes(without_turn_numbers(interaction.changes)):
            facts.append(f"{group.pointer or '/'} {group.first.verdict}")

        title = f"#{interaction.number} {interaction.call}: {interaction.verdict}"
        text = shorten("; ".join(facts) or interaction.verdict)
        lines.append(error_annotation(verification.cassette, title, text))

    return lines


# What can be done about a server that differs from its cassettes: only what works is told


_RULES_FILE: Final = "ignore.toml"
_MOST_NAMED: Final = 3
_RESET_SERVER: Final = (
    "run the server as it was recorded, such as in the same folder, and restore what it keeps, "
    "such as files, if an earlier call has changed it"
)


def advice_on(verifications: Sequence[Verification], terms: Terms) -> list[str]:
    """Return the ways out of a failed verification, in the terms of a front.

    The live server's responses may be taken where the heaviest verdict can be, and values be left
    out that differ in every run, which nothing that is taken would mend.
    """
    lines: list[str] = []
    for way in [
        *_acceptance_lines(verifications, terms),
        *_suggestions_to_ignore(verifications, terms),
    ]:
        first_word = " or" if lines else "fix"
        lines.append(f"{first_word}: {way}")

    return lines


def _acceptance_lines(verifications: Sequence[Verification], terms: Terms) -> list[str]:
    """Return how responses with the heaviest verdict are taken, and which these are."""
    verdicts, proposals = _failing_verdicts(verifications)
    heaviest_verdict = max(verdicts - {"not-reached"}, key=VERDICTS.index, default=None)
    if heaviest_verdict not in ACCEPTABLE_VERDICTS:
        return []

    accepted_verdicts = _verdicts_accepted_with(heaviest_verdict, proposals)
    taken_proposals = accepted_by_verdict(proposals, accepted_verdicts)
    if not taken_proposals:
        return []

    accepting_words = in_terms(
        "<<accept_verdicts>>", terms, {"verdicts": sorted(accepted_verdicts)}
    )
    if len(verifications) == 1:
        names = _first_proposal_names(taken_proposals)
    else:
        names = counted(len(taken_proposals), "response")

    advice = f"take the server's new responses into the cassette with {accepting_words}: {names}"
    if heaviest_verdict not in ("refused", "rounds-changed"):
        return [advice]

    # Earlier calls may be why: what they wrote may outlive the server's process.
    return [_RESET_SERVER, advice]


def _verdicts_accepted_with(
    heaviest_verdict: Verdict, proposals: Sequence[Proposal]
) -> set[str]:
    """Return the verdicts to accept, so that all changes of the heaviest responses are.

    A list in which the tool of a refused call is missing is accepted with the refusal.
    """
    accepted_verdicts = {str(heaviest_verdict)}
    for proposal in accepted_by_verdict(proposals, ACCEPTABLE_VERDICTS):
        is_list_of_refused = False
        if heaviest_verdict == "refused":
            is_list_of_refused = "surface-changed" in proposal.verdicts

        if heaviest_verdict in proposal.verdicts or is_list_of_refused:
            accepted_verdicts |= proposal.verdicts

    return accepted_verdicts


def _failing_verdicts(
    verifications: Sequence[Verification],
) -> tuple[set[Verdict], list[Proposal]]:
    """Return the verdicts of the calls that fail by themselves, and what is proposed for them."""
    verdicts: set[Verdict] = set()
    proposals: list[Proposal] = []
    for verification in verifications:
        failing_numbers = set()
        for call in verification.failures:
            if not call.differs_only_at_varying_places:
                failing_numbers.add(call.number)
                verdicts.add(call.verdict)

        for proposal in verification.proposed:
            if proposal.number in failing_numbers:
                proposals.append(proposal)

    return verdicts, proposals


def _first_proposal_names(proposals: Sequence[Proposal]) -> str:
    """Return the names of the first few proposals, and how many more there are."""
    names = ", ".join(map(proposal_name, proposals[:_MOST_NAMED]))
    more_count = len(proposals) - _MOST_NAMED
    if more_count <= 0:
        return names

    return f"{names} and {counted(more_count, 'more response')}"


def proposal_name(proposal: Proposal) -> str:
    """Return which response of a cassette could be another one."""
    turn = f", turn {proposal.first_turn}" if proposal.first_turn else ""
    return f"#{proposal.number} {printable(proposal.call)}{turn}"


def _suggestions_to_ignore(
    verifications: Sequence[Verification], terms: Terms
) -> list[str]:
    """Return suggestions for values that change in every run; none if no failed call has any."""
    suggestions: list[str] = []
    for verification in verifications:
        for call in verification.failures:
            suggestions += filter(str.isprintable, call.varying_places)

    pointers = list(dict.fromkeys(suggestions))
    if not pointers:
        return []

    ignore_command = in_terms("<<ignore_values>>", terms, {"pointers": pointers})
    learn_command = in_terms("<<learn_places>>", terms, {"rules": _RULES_FILE})
    found_places = (
        f"have such places found, written to a file, and left out with {learn_command}"
    )
    # With an option they are left out of all calls.
    if _would_hide_changes(verifications, pointers):
        return [found_places]

    return [
        f"leave out values that change in every run with {ignore_command}",
        found_places,
    ]


def _would_hide_changes(
    verifications: Sequence[Verification], pointers: Sequence[str]
) -> bool:
    """Tell whether a call differs at one of these places, and won't in every run."""
    for verification in verifications:
        for call in verification.failures:
            of_others = set(pointers).difference(call.varying_places)
            changes = without_turn_numbers(call.changes)
            if len(without_ignored_changes(changes, of_others)) < len(changes):
                return True

    return False
