"""What differs between two cassettes, or between a cassette and a live server, as a report."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
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
    common_pointer,
    is_below,
    without_indices,
)
from mrtr_cassette.core.drive.ignored import Learned
from mrtr_cassette.core.drive.updating import Proposal
from mrtr_cassette.core.drive.verification import Reached, TurnChange, VerifiedInteraction
from mrtr_cassette.core.protocol.dialect import INPUT_REQUESTS
from mrtr_cassette.core.report.text import as_data
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.core.wire.pointers import ANY, Difference, excerpts
from mrtr_cassette.errors import counted, printable, printable_lines, shorten
from mrtr_cassette.terms import LIBRARY_TERMS, Terms, in_terms

_STRUCTURED: Final = "/structuredContent"
_TEXTS: Final = f"/content/{ANY}/text"

_MARKED: Final[Mapping[Mark, str]] = {
    "~": "changed",
    "-": "only in the first",
    "+": "only in the second",
}
_NOT_COMPARED = frozenset({"skipped", "not-reached"})
_MARKS = {"same": "=", "skipped": "-"}
_DIFFERENT, _UNREACHABLE = 1, 4
_OF_WHOLE_RESPONSES: Final = frozenset({"refused", "rounds-changed"})
"""Verdicts whose values are all that a response says."""
_NOT_IN_BOTH: Final[Mapping[Mark, str]] = {"-": "not called", "+": "not recorded"}


# Changes that are told as one


@dataclass(frozen=True, slots=True)
class Fold:
    """Changes with one verdict that are told as one.

    Attributes:
        pointer: their place, in which `*` stands for indices that differ.
        changes: in order, one for each index.
        repeated_at: where a text of the result says the same again; or empty.
    """

    pointer: str
    changes: tuple[Change, ...]
    repeated_at: str = ""

    @property
    def first(self) -> Change:
        """The first of its changes."""
        return self.changes[0]


def folded(changes: Iterable[Change]) -> list[Fold]:
    """Return changes of one response in their order, with those as one that people read as one."""
    groups: dict[object, list[Change]] = defaultdict(list)
    for change in changes:
        kind = change.recorded is None, change.received is None
        place = without_indices(change.pointer)
        groups[place, change.verdict, change.is_information, kind].append(change)
    folds = [
        Fold(common_pointer([change.pointer for change in group]), tuple(group))
        for group in groups.values()
    ]
    # Tools repeat structured content in a text.
    texts: dict[object, list[Fold]] = defaultdict(list)
    for fold in folds:
        if is_below(fold.pointer, _TEXTS):
            texts[_values(fold)].append(fold)
    repeated: dict[Fold, Fold] = {}
    for fold in folds:
        if is_below(fold.pointer, _STRUCTURED):
            for text in texts[_values(fold)]:
                is_same = fold.pointer.endswith(text.pointer.partition(TEXT_STEP)[2])
                if is_same and text not in repeated.values():
                    repeated[fold] = text
                    break
    left_out = set(repeated.values())
    return [
        replace(fold, repeated_at=repeated[fold].pointer) if fold in repeated else fold
        for fold in folds
        if fold not in left_out
    ]


def _values(fold: Fold) -> tuple[tuple[str | None, str | None], ...]:
    return tuple((_as_text(old), _as_text(new)) for _, _, old, new, *_ in fold.changes)


def _as_text(value: str | None) -> str | None:
    return json.loads(value) if value is not None and value.startswith('"') else value


# Lines


def shown_values(change: Change | Difference) -> tuple[str | None, str | None]:
    """Return the two values of a change as people read them; long ones from where they part.

    Of whole responses, it is the first line of what they say.
    """
    if isinstance(change, Change) and change.verdict in _OF_WHOLE_RESPONSES:
        return _said(change.recorded), _said(change.received)
    old, new = (
        json.dumps(json.loads(value), ensure_ascii=False)
        if value is not None and value.startswith('"')
        else value
        for value in (change.recorded, change.received)
    )
    if old is not None and new is not None:
        old, new = excerpts(old, new)
    elif old is not None:
        old = shorten(old)
    elif new is not None:
        new = shorten(new)
    return _printable_value(old), _printable_value(new)


def _said(value: str | None) -> str | None:
    """Return the first line of what a response says: its question, its text, or its error."""
    if value is None:
        return None
    said: Any = json.loads(value)
    error = said.get("error") if isinstance(said, dict) else None
    if isinstance(error, dict):
        return printable(f"error {error.get('code')}: {_first_line(error.get('message'))}")
    asked = _asked(said)
    if asked:
        return printable(f"asks {'; '.join(asked)}")
    content = said.get("content") if isinstance(said, dict) else None
    texts = [item.get("text") for item in content or () if isinstance(item, dict)]
    if texts and isinstance(texts[0], str):
        prefix = "isError: " if said.get("isError") is True else ""
        return printable(f"{prefix}{_first_line(texts[0])}")
    return printable(shorten(value))


def _first_line(text: object) -> str:
    return shorten(json.dumps(str(text).partition("\n")[0], ensure_ascii=False))


def _asked(said: Any) -> list[str]:
    """Return the questions of a value of `inputRequests`, or of what has one."""
    asked = said.get(INPUT_REQUESTS, said) if isinstance(said, dict) else said
    rows = asked.items() if isinstance(asked, dict) else []
    questions = []
    for key, request in rows:
        params = request.get("params") if isinstance(request, dict) else None
        if isinstance(params, dict) and "method" in request:
            message = params.get("message")
            shown = request["method"] if message is None else _first_line(message)
            questions.append(f"{key}: {shown}")
    return questions


def _printable_value(value: str | None) -> str | None:
    return None if value is None else printable(value)


def fold_lines(fold: Fold) -> Iterator[str]:
    """Yield changes that are told as one: verdict and place, the recorded value, the other one."""
    change, count = fold.first, len(fold.changes)
    if change.verdict == "key-changed":
        old, new = (printable(json.loads(value or '""')) for value in change[2:4])
        yield f"key-changed: {old} → {new}"
        return
    facts: list[str] = [change.verdict]
    if count > 1:
        facts = [f"{change.verdict} in {count} places"]
        facts += ["the first of them"] if len(set(_values(fold))) > 1 else []
    facts += [f"and again at {printable(fold.repeated_at)}"] if fold.repeated_at else []
    facts += ["information only"] if change.is_information else []
    yield f"{printable(fold.pointer) or '/'}: {', '.join(facts)}"
    recorded, received = shown_values(change)
    if recorded is not None:
        yield f"- {recorded}"
    if received is not None:
        yield f"+ {received}"


# Two cassettes


def comparison_text(comparison: CassetteComparison) -> str:
    """Return two compared cassettes as text: what is not the same, and what it comes to."""
    lines = [f"- {printable(comparison.recorded)}", f"+ {printable(comparison.received)}"]
    for each in comparison.interactions:
        if each.mark != "=" or each.is_moved:
            lines += _interaction_lines(each)
    stages = (stage for each in comparison.interactions for stage in each.stages)
    lines += _information_lines(stage.changes for stage in stages)
    lines.append(conclusion(comparison))
    return printable_lines("\n".join(lines))


def held_text(comparison: CassetteComparison, terms: Terms = LIBRARY_TERMS) -> str:
    """Return a cassette and what a test did now as text: the verdict, the facts, the ways out."""
    differing = [each for each in comparison.interactions if each.mark != "="]
    # Of those with one verdict a call that names something says more than one of discovery.
    worst = max(differing, key=lambda each: (VERDICTS.index(each.verdict), '"' in each.call))
    verdict = worst.verdict if worst.mark == "~" else _NOT_IN_BOTH[worst.mark]
    more = f", and {len(differing) - 1} more" if len(differing) > 1 else ""
    head = f"{verdict}: {printable(worst.call)}{more}"
    ways = [
        "fix: let the server, or the test, do as recorded",
        f" or: {in_terms('record what happens now with <<record_again>>', terms)}",
    ]
    return "\n".join([head, "", comparison_text(comparison), *ways])


def _interaction_lines(interaction: InteractionComparison) -> Iterator[str]:
    mark = interaction.mark
    facts: list[str] = [interaction.verdict] if mark == "~" else []
    facts += ["moved"] if interaction.is_moved else []
    recorded, received = interaction.recorded, interaction.received
    number = f"#{received if recorded is None else recorded}"
    if None not in (recorded, received) and recorded != received:
        number = f"#{recorded} (now #{received})"
    line = f"{mark} {number} {printable(interaction.call)}"
    yield f"{line}: {', '.join(facts)}" if facts else line
    for difference in interaction.request:
        yield f"    request {printable(difference.pointer) or '/'}"
        old, new = shown_values(difference)
        yield f"      - {old or 'nothing'}"
        yield f"      + {new or 'nothing'}"
    if mark == "~":
        places = ((_place_of(stage), stage.counting) for stage in interaction.stages)
        yield from _places_lines(places)


def _place_of(stage: Stage) -> str:
    if stage.turn is None:
        return "response"
    return f"turn {stage.turn}" if stage.kind == "ask" else f"turn {stage.turn} answer"


def _places_lines(places: Iterable[tuple[str, Iterable[Change]]]) -> Iterator[str]:
    for place, changes in places:
        for fold in folded(changes):
            first, *values = fold_lines(fold)
            yield f"    {place} {first}"
            yield from (f"      {line}" for line in values)


def _information_lines(responses: Iterable[Iterable[Change]]) -> Iterator[str]:
    """Yield what is information in several responses, each change once."""
    told: Counter[Fold] = Counter()
    for changes in responses:
        folds = folded(change for change in changes if change.is_information)
        told.update({_of_server(fold): 1 for fold in folds})
    for fold, count in told.items():
        first, *values = fold_lines(fold)
        line = f"information, {counted(count, 'time')}: {first.removesuffix(', information only')}"
        if len(values) == 2:
            old, new = (value[2:] for value in values)
            yield f"{line}: {old} → {new}"
            continue
        yield line
        yield from (f"      {value}" for value in values)


def _of_server(fold: Fold) -> Fold:
    """Return what a server says of itself as if it said it in one place."""
    _, name, member = fold.pointer.partition("serverInfo/")
    if not name:
        return fold
    pointer = f"/{name}{member}"
    changes = tuple(change._replace(pointer=pointer) for change in fold.changes)
    return replace(fold, pointer=pointer, changes=changes)


def conclusion(comparison: CassetteComparison) -> str:
    """Return in one line what two cassettes came to."""
    counts, total = comparison.counts, len(comparison.interactions)
    facts = [f"{counts[mark]} {text}" for mark, text in _MARKED.items() if counts[mark]]
    differing = total - counts["="]
    if differing:
        verb = "differs" if differing == 1 else "differ"
        text = f"{differing} of {counted(total, 'interaction')} {verb}: {', '.join(facts)}"
    else:
        text = f"the same: {counted(total, 'interaction')}"
    moved = sum(each.is_moved for each in comparison.interactions)
    return f"{text}; {moved} moved" if moved else text


def comparison_data(comparison: CassetteComparison) -> Any:
    """Return two compared cassettes as JSON-ready data."""
    return as_data(comparison, _ROWS)


def comparison_markdown(comparison: CassetteComparison) -> str:
    """Return two compared cassettes as Markdown, for a pull request."""
    *shown, last = comparison_text(comparison).split("\n")
    return "\n".join([f"**{last}**", "", *_diff_block(shown)])


def _diff_block(shown: Sequence[str]) -> list[str]:
    fence = "`" * (1 + max([2, *map(len, re.findall("`+", "\n".join(shown)))]))
    return [f"{fence}diff", *map(_in_diff, shown), fence] if shown else []


def _in_diff(line: str) -> str:
    bare = line.lstrip(" ")
    mark, indent = bare[:2], line[: len(line) - len(bare)]
    if mark in ("- ", "+ "):
        return f"{mark[0]} {indent}{bare[2:]}"
    return f"! {indent}{bare[2:]}" if mark == "~ " else f"  {indent}{bare.removeprefix('= ')}"


# A cassette and a live server


@dataclass(frozen=True, slots=True)
class Verification:
    """What came of one cassette."""

    cassette: str
    upstream: str
    interactions: tuple[VerifiedInteraction, ...]
    fail_on: frozenset[str] = frozenset()
    places: tuple[tuple[str, Learned], ...] = ()
    accepted: frozenset[int] = frozenset()
    untried: tuple[str, ...] = ()
    proposed: tuple[Proposal, ...] = ()
    """What could be taken into the cassette."""
    varying: tuple[str, ...] = ()
    """Places that differ from the recording, and between two equal calls."""

    @property
    def learned(self) -> list[tuple[str, str]]:
        """The pointers that are left out from now on, each with its call."""
        return [(call, place.pointer) for call, place in self.places if place.reason is None]

    @property
    def left_out(self) -> list[Change]:
        """Where the live server differs at what is ignored."""
        return [change for each in self.interactions for change in each.left_out]

    @property
    def counts(self) -> dict[str, int]:
        """How many interactions have each verdict, the lightest first."""
        counts = Counter(each.verdict for each in self.interactions)
        return {verdict: counts[verdict] for verdict in VERDICTS if counts[verdict]}

    @property
    def compared(self) -> int:
        """How many interactions were compared."""
        return sum(each.verdict not in _NOT_COMPARED for each in self.interactions)

    @property
    def failures(self) -> tuple[VerifiedInteraction, ...]:
        """The interactions that make the run fail."""
        return tuple(each for each in self.interactions if self.fails(each))

    def fails(self, each: VerifiedInteraction) -> bool:
        """Tell whether an interaction makes the run fail."""
        if each.number in self.accepted:
            return False
        if each.verdict == "not-reached":
            return True
        if self.fail_on:
            return each.verdict in self.fail_on
        return each.verdict not in ("same", "skipped")

    @property
    def is_good(self) -> bool:
        """Whether something was compared, and nothing fails."""
        return exit_code_of([self]) == 0


def exit_code_of(verifications: Sequence[Verification]) -> int:
    """Return what the command line returns for several cassettes."""
    if not any(each.compared for each in verifications):
        return _UNREACHABLE
    return _DIFFERENT if any(each.failures for each in verifications) else 0


def verification_text(verification: Verification) -> str:
    """Return it for people: what is not the same, and the counts."""
    lines = []
    for interaction in verification.interactions:
        if interaction.verdict != "same":
            lines += interaction_lines(interaction)
    lines += _notes(verification)
    for call, place in verification.places:
        if place.reason is not None:
            lines.append(f"not learned: {call} {place.pointer or '/'}: {place.reason}")
        elif place.is_unstable:
            lines.append(f"learned: {call} {place.pointer}")
        else:
            lines.append(f"learned: {call} {place.pointer}, where only the recording differs")
    for call in verification.untried:
        lines.append(f"not called twice: {call}: the server does not mark it readOnlyHint")
    return "\n".join([*lines, summary_line(verification)])


def _notes(verification: Verification) -> Iterator[str]:
    """Yield what is information, each change once for all calls."""
    responses = []
    for interaction in verification.interactions:
        for _, changes in groupby(interaction.changes, key=lambda change: change.turn):
            responses.append([change for _, change in changes])
    return _information_lines(responses)


def interaction_lines(interaction: VerifiedInteraction, *, is_whole: bool = False) -> list[str]:
    """Return what came of one interaction, with all its changes, or with its whole responses."""
    mark = _MARKS.get(interaction.verdict, "~")
    lines = [f"{mark} #{interaction.number} {interaction.call}: {interaction.verdict}"]
    if interaction.reason is not None:
        lines.append(f"    {printable(interaction.reason)}")
    reached = {response.turn: response for response in interaction.reached}
    places = []
    for turn, changes in groupby(interaction.changes, key=lambda change: change.turn):
        counting = [change for _, change in changes if not change.is_information]
        if turn in reached:
            counting = [_with_responses(change, reached[turn]) for change in counting]
        places.append((f"turn {turn}" if turn else "response", counting))
    lines += _places_lines(places)
    for response in reached.values() if is_whole else ():
        lines += _whole_lines(response)
    return lines


def _with_responses(change: Change, response: Reached) -> Change:
    """Return a change of a whole response with all that was expected, and all that came."""
    if change.verdict not in _OF_WHOLE_RESPONSES:
        return change
    expected, received = canonical(response.expected), canonical(response.received)
    return change._replace(recorded=expected, received=received)


def _whole_lines(response: Reached) -> Iterator[str]:
    place = f"turn {response.turn}" if response.turn else "response"
    for mark, name, value in (
        ("-", "expected", response.expected),
        ("+", "received", response.received),
    ):
        yield f"    {place}, {name}:"
        for line in json.dumps(value, indent=2, ensure_ascii=False).split("\n"):
            yield f"      {mark} {printable(line)}"


def summary_line(verification: Verification) -> str:
    """Return in one line how many interactions have which verdict."""
    counts = ", ".join(f"{count} {verdict}" for verdict, count in verification.counts.items())
    total = counted(len(verification.interactions), "interaction")
    names = f"{printable(verification.cassette)} against {printable(verification.upstream)}"
    line = f"{names}: {total}: {counts or 'none'}"
    return line if verification.compared else f"{line}; nothing was compared"


def verification_data(verifications: Sequence[Verification]) -> dict[str, Any]:
    """Return it as JSON values, for programs."""
    return {"cassettes": as_data([*verifications], _ROWS)}


_ROWS: Final[Mapping[type, str]] = {
    Change: "verdict pointer recorded received is_information",
    CassetteComparison: "recorded received same=is_same verdict interactions",
    InteractionComparison: "mark recorded received call verdict moved=is_moved request stages",
    Stage: "kind turn mark changes",
    Verification: "cassette upstream is_good counts accepted interactions",
    VerifiedInteraction: "number call verdict reason changes responses=reached",
    TurnChange: "turn verdict=change.verdict pointer=change.pointer recorded=change.recorded "
    "received=change.received is_information=change.is_information",
}


def verification_markdown(verifications: Sequence[Verification]) -> str:
    """Return it as Markdown, for a pull request or a job's summary."""
    lines = []
    for verification in verifications:
        summary = re.sub(r"[\\`*_{}\[\]<>#|~]", r"\\\g<0>", summary_line(verification))
        failing = []
        for interaction in verification.failures:
            failing += interaction_lines(interaction, is_whole=True)
        failing += _notes(verification)
        lines += [f"### {summary}", "", *_diff_block(failing), ""]
    return "\n".join(lines)
