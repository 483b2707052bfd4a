"""What differs between two recorded conversations, stage by stage.

Rule: a turn that only one of them has is a change of rounds, and the others are compared all the
same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from mrtr_cassette.core.compare.changes import Change, Verdict, heaviest, without_ignored
from mrtr_cassette.core.compare.pairing import paired
from mrtr_cassette.core.compare.responses import (
    TRACE_MEMBERS,
    asked_question,
    changes_beside,
    changes_of_ask,
    changes_of_result,
    comparable_text,
    comparable_tree,
    outcome_value,
    pinned_question,
    pushed_question,
    question_changes,
)
from mrtr_cassette.core.compare.values import ABSENT, change_of, pinned, value_changes
from mrtr_cassette.core.exchange.recorded import RecordedExchange, RecordedInteraction
from mrtr_cassette.core.protocol.calls import TRAITS_OF_INITIALIZE, Call, CallKey
from mrtr_cassette.core.protocol.dialect import INPUT_REQUESTS, INPUT_RESPONSES, answers_text
from mrtr_cassette.core.protocol.messages import Via
from mrtr_cassette.core.wire.http import (
    ANSWERED_BY_HEADER,
    CREDENTIAL_HEADERS,
    LAST_EVENT_ID_HEADER,
    SESSION_HEADER,
)
from mrtr_cassette.core.wire.jsonbytes import MemberPath, canonical

Mark = Literal["=", "~", "-", "+"]
"""Both have it and it is the same, both have it and it differs, the first or the second lacks it.

`-` stands for what only the first one has, `+` for what only the second one has.
"""
StageKind = Literal["request", "ask", "answer", "result"]

_VOLATILE_OF_REQUESTS: frozenset[MemberPath] = frozenset(
    (name,) for name in ("progressToken", *TRACE_MEMBERS)
)
_VOLATILE_HEADERS = CREDENTIAL_HEADERS | {LAST_EVENT_ID_HEADER}
"""Headers of which it is told whether they are there."""
_UNTOLD_HEADERS = frozenset({"content-type", SESSION_HEADER, ANSWERED_BY_HEADER})


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a conversation, compared.

    Attributes:
        kind: what it is.
        turn: number of its turn where the conversation was recorded, or else in the other one;
            None for the request and the result.
        mark: which of the two conversations have it.
        changes: where it differs; what only one of them has is one change.
    """

    kind: StageKind
    turn: int | None
    mark: Mark
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Side:
    """One interaction as a comparison reads it.

    Attributes:
        interaction: the interaction.
        turns: its turns.
        page: how many recorded pages of its list come before the page that it requests.
    """

    interaction: RecordedInteraction
    turns: tuple[AskedTurn, ...]
    page: int = 0

    @property
    def call(self) -> CallKey:
        """What was called; of a page whose cursor a recorded one issued, without the cursor."""
        return self.interaction.exchanges[0].call.key([("cursor",)] if self.page else ())

    @property
    def answers(self) -> tuple[str, ...]:
        """Canonical text of all answers in order, those of an orphan's first request too."""
        first = _given(self.interaction.exchanges[0])
        given = [turn.answers for turn in self.turns]
        return tuple("" if each is ABSENT else canonical(each) for each in (first, *given))


class AskedTurn(NamedTuple):
    """One turn of an interaction.

    Attributes:
        via: how the server asked.
        question: what it asked, by key.
        answers: what was answered, by key, or `ABSENT`.
        exchange: the one whose response asks; None where requests were pushed.
    """

    via: Via
    question: Any
    answers: Any
    exchange: RecordedExchange | None


def side_of(interaction: RecordedInteraction, page: int = 0) -> Side:
    """Read an interaction."""
    return Side(interaction, tuple(_turns_of(interaction)), page)


def _turns_of(interaction: RecordedInteraction) -> Iterator[AskedTurn]:
    exchanges = interaction.exchanges
    pushed = list(reversed(interaction.pushed_turns))
    for position, exchange in enumerate(exchanges):
        while pushed and pushed[-1].position == position:
            turn = pushed.pop()
            posted = {each.key: _posted(each.exchange) for each in turn.answers}
            yield AskedTurn("push", pushed_question(turn), posted or ABSENT, None)
        if exchange.ask is not None:
            is_last = position + 1 == len(exchanges)
            answers = ABSENT if is_last else _given(exchanges[position + 1])
            yield AskedTurn("result", asked_question(exchange), answers, exchange)


def _given(retry: RecordedExchange) -> Any:
    """Return what a retry answers; an empty object where it only repeats the state."""
    if retry.call.answers is None:
        return ABSENT
    text = answers_text(retry.request.body)
    return {} if text is None else _without_null(comparable_tree(text))


def _posted(exchange: RecordedExchange) -> Any:
    message = exchange.call.message
    tree = {} if message is None else comparable_tree(message.raw)
    return _without_null(tree["result"] if "result" in tree else {"error": tree.get("error")})


def _without_null(value: Any) -> Any:
    """Return answers without members that are null, which count as absent."""
    if isinstance(value, list):
        return [_without_null(item) for item in value]
    if isinstance(value, dict):
        return {key: _without_null(item) for key, item in value.items() if item is not None}
    return value


def stages_of(old: Side | None, new: Side | None, ignored: Collection[str] = ()) -> list[Stage]:
    """Compare two interactions stage by stage; one of them may be missing."""
    stages = []
    if old is not None and new is not None:
        stages.append(_request_stage(old, new))
    old_turns, new_turns = (() if side is None else side.turns for side in (old, new))
    keys = (
        [(canonical(pinned_question(turn.question)), turn.via) for turn in turns]
        for turns in (old_turns, new_turns)
    )
    verdict: Verdict = "shape-changed" if old is None or new is None else "rounds-changed"
    for at_old, at_new in paired(*keys):
        turn = (at_new if at_old is None else at_old) or 0
        before = None if at_old is None else old_turns[at_old]
        after = None if at_new is None else new_turns[at_new]
        if before is not None and after is not None:
            stages += _turn_stages(turn + 1, before, after)
        else:
            stages += _one_sided_stages(turn + 1, before, after, verdict)
    stages += _result_stages(old, new)
    return [_without_ignored(stage, ignored) for stage in stages] if ignored else stages


def _without_ignored(stage: Stage, ignored: Collection[str]) -> Stage:
    changes = tuple(without_ignored(stage.changes, ignored))
    mark = _mark(changes) if stage.mark in ("=", "~") else stage.mark
    return Stage(stage.kind, stage.turn, mark, changes)


def _mark(changes: Collection[Change]) -> Mark:
    return "=" if heaviest(changes) == "same" else "~"


def _compared(kind: StageKind, turn: int | None, changes: list[Change]) -> Stage:
    return Stage(kind, turn, _mark(changes), tuple(changes))


def _request_stage(old: Side, new: Side) -> Stage:
    """Compare what requests say beside their call: worth knowing, as servers may look at it."""
    changes: dict[Change, None] = {}
    pairs = zip(old.interaction.exchanges, new.interaction.exchanges, strict=False)
    for before, after in pairs:
        if before is not after:
            recorded, received = _said_beside(before.call), _said_beside(after.call)
            changes |= dict.fromkeys(value_changes(recorded, received, "/#request"))
    information = [change._replace(is_information=True) for change in changes]
    return _compared("request", None, information)


def _said_beside(call: Call) -> dict[str, Any]:
    """Return what a request says beside its call: its headers, `_meta`, who opens a session."""
    headers = {
        name.lower(): "..." if name.lower() in _VOLATILE_HEADERS else comparable_text(value)
        for name, value in call.request.headers
        if name.lower() not in _UNTOLD_HEADERS
    }
    message = call.message if call.is_rpc else None
    meta, params = ({}, {}) if message is None else (message.meta, message.params)
    told = TRAITS_OF_INITIALIZE if call.method == "initialize" else ()
    return {
        "_meta": pinned(meta, _VOLATILE_OF_REQUESTS),
        "headers": headers,
        "params": {name: params[name] for name in told if name in params},
    }


def _turn_stages(turn: int, old: AskedTurn, new: AskedTurn) -> Iterator[Stage]:
    if old.exchange is not None and new.exchange is not None:
        changes = changes_of_ask(old.exchange, new.exchange)
        changes = changes_beside(old.exchange, new.exchange) + changes
    else:
        changes = question_changes(old.question, new.question)
    yield _compared("ask", turn, changes)
    if old.answers is not ABSENT or new.answers is not ABSENT:
        changes = value_changes(old.answers, new.answers, f"/{INPUT_RESPONSES}")
        yield _compared("answer", turn, changes)


def _one_sided_stages(
    number: int, old: AskedTurn | None, new: AskedTurn | None, verdict: Verdict
) -> Iterator[Stage]:
    questions = [ABSENT if turn is None else turn.question for turn in (old, new)]
    answers = [ABSENT if turn is None else turn.answers for turn in (old, new)]
    mark: Mark = "+" if old is None else "-"
    change = change_of(verdict, f"/{INPUT_REQUESTS}", *questions)
    yield Stage("ask", number, mark, (change,))
    if answers != [ABSENT, ABSENT]:
        change = change_of(verdict, f"/{INPUT_RESPONSES}", *answers)
        yield Stage("answer", number, mark, (change,))


def _result_stages(old: Side | None, new: Side | None) -> Iterator[Stage]:
    before, after = (_final(side) for side in (old, new))
    if before is not None and after is not None:
        yield _compared("result", None, changes_of_result(before, after))
    elif before is not None or after is not None:
        outcomes = [ABSENT if each is None else outcome_value(each) for each in (before, after)]
        change = change_of("shape-changed", "", *outcomes)
        yield Stage("result", None, "+" if before is None else "-", (change,))


def _final(side: Side | None) -> RecordedExchange | None:
    """Return the exchange with the last response, unless that is an ask that nobody answered."""
    last = None if side is None else side.interaction.exchanges[-1]
    return None if last is None or last.ask is not None else last
