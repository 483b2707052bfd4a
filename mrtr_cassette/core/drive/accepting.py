"""Taking responses of a live server into the cassette that it was held to."""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest
from typing import Any, Final

from mrtr_cassette.core.cassette.load import with_responses
from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    RecordedExchange,
    RecordedInteraction,
    task_turns,
)
from mrtr_cassette.core.compare.responses import changed_keys, elicitation_id
from mrtr_cassette.core.compare.values import Change, Verdict
from mrtr_cassette.core.drive.conversation import ISSUED, repeats_own_id, with_body
from mrtr_cassette.core.drive.verification import VerifiedInteraction
from mrtr_cassette.core.protocol.dialect import INPUT_REQUESTS, with_answer_keys
from mrtr_cassette.core.protocol.jsonrpc import ID_PATH, Kind
from mrtr_cassette.core.protocol.messages import Located, messages_in, splice_pieces
from mrtr_cassette.core.protocol.methods import TASK_VALUES, method_of
from mrtr_cassette.core.protocol.tasks import polled_state
from mrtr_cassette.core.record.naming import SecretNumbers, is_journal_token
from mrtr_cassette.core.secrets.sealed import (
    PLACEHOLDER,
    SEALED_HASH,
    renumber,
    reveal_in_json,
    reveal_text,
    sha256_of,
)
from mrtr_cassette.core.wire.http import SESSION_HEADER, Response, header_value
from mrtr_cassette.core.wire.jsonbytes import Span, canonical, find_spans
from mrtr_cassette.core.wire.pointers import value_at
from mrtr_cassette.core.wire.sse import event_id_spans

ACCEPTABLE: Final[tuple[Verdict, ...]] = (
    "text-changed",
    "shape-changed",
    "surface-changed",
    "key-changed",
    "question-changed",
)
"""The verdicts that can be accepted wherever they are found."""

_NOT_COMPARED: Final = frozenset({"skipped", "not-reached", "unstable"})
_NUMBER = re.compile("[0-9]{1,9}")


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """One response of a live server that could stand in the cassette.

    `turn` is the one that it asks, from 1, or 0 for the final response; `states` has the recorded
    request state or session id by the SHA-256 of the live one.
    """

    number: int
    call: str
    turn: int
    changes: tuple[Change, ...]
    problem: str | None = None
    recorded: RecordedExchange | None = None
    live: RecordedExchange | None = None
    states: Mapping[str, str] | None = None
    is_last: bool = True

    @property
    def counting(self) -> tuple[Change, ...]:
        """The changes that are more than information."""
        return tuple(change for change in self.changes if not change.is_information)

    @property
    def goes_on(self) -> bool:
        """Whether the conversation goes on when it is taken, and has not been followed so far."""
        is_other = any(change.verdict == "question-changed" for change in self.changes)
        return is_other and not self.is_last and self.live is not None and self.live.ask is not None


def proposals(cassette: Cassette, verified: Iterable[VerifiedInteraction]) -> list[Proposal]:
    """Return what could be taken into a cassette, in its order, as its file has it."""
    proposed: list[Proposal] = []
    for each in sorted(verified, key=lambda each: each.number):
        if each.verdict not in _NOT_COMPARED:
            proposed += _proposals_of(cassette, each)
    return proposed


def _proposals_of(cassette: Cassette, verified: VerifiedInteraction) -> Iterator[Proposal]:
    interaction = cassette.interactions[verified.number - 1]
    states = {sha256_of(live): recorded for live, recorded in verified.states}
    # The conversation was repeated over the transport of the live server.
    sent, recorded_ones = _responses(verified.planned.interaction), _responses(interaction)
    places = {each: place for place, each in zip(recorded_ones, sent, strict=False)}
    lives = {places[pair.recorded]: pair.live for pair in verified.pairs}
    asking = _asking(interaction)
    for turn in dict.fromkeys(change.turn for change in verified.changes):
        changes = tuple(change for at, change in verified.changes if at == turn)
        proposal = Proposal(interaction.number, verified.call, turn, changes)
        recorded = asking.get(turn)
        if recorded is None:
            problem = "the server pushed it, as part of another response"
            yield replace(proposal, problem=problem)
        elif recorded not in lives:
            yield replace(proposal, problem="the live server gave no response")
        else:
            proposal = replace(
                proposal,
                recorded=recorded,
                live=lives[recorded],
                states=states,
                is_last=recorded is asking[0],
            )
            problems = [
                *_objections(proposal, cassette),
                *_objections_of_task(proposal, interaction),
            ]
            yield replace(proposal, problem=next(iter(problems), None))


def _responses(interaction: RecordedInteraction) -> list[RecordedExchange]:
    return [*interaction.exchanges, *(step.exchange for step in interaction.steps)]


def _asking(interaction: RecordedInteraction) -> dict[int, RecordedExchange]:
    """Return the exchanges by the turn that their response asks; the last one has 0."""
    asking = {interaction.asking_turn(at): each for at, each in enumerate(interaction.exchanges)}
    first = max(asking)
    for number, turn in enumerate(task_turns(interaction.steps), start=first):
        asking[number] = interaction.steps[turn.asked].exchange
    return asking | {0: interaction.ending}


def accepted_by_verdict(proposed: Iterable[Proposal], verdicts: Collection[str]) -> list[Proposal]:
    """Return the proposals that are taken because of the verdicts of their changes."""
    return [
        each
        for each in proposed
        if each.problem is None
        and any(change.verdict in verdicts for change in each.changes)
        and all(change.verdict in verdicts for change in each.counting)
    ]


def _objections(proposal: Proposal, cassette: Cassette) -> Iterator[str]:
    recorded, live = proposal.recorded, proposal.live
    if recorded is None or live is None:
        return
    if live.response is None:
        yield "the live server gave no response"
    if repeats_own_id(live, recorded):
        yield "it repeats the id that another request of this comparison had"
    if [each.piece for each in _pushed_in(recorded)] != [each.piece for each in _pushed_in(live)]:
        yield "the server pushed other requests in it, or at other places, than was recorded"
    old, new = recorded.ask, live.ask
    if old is None and new is not None:
        yield "the server asks once more, and no answer is recorded"
    if old is not None and new is None:
        if sum(recorded in each.exchanges for each in cassette.interactions) > 1:
            yield "other branches answer the question that is gone"
    elif recorded.rpc_response is None and live.rpc_response is not None:
        yield "its response stands in what resumed its stream: record it again"
    if old is None or new is None:
        return
    if (old.request_state is None) != (new.request_state is None):
        yield "a request state came or went, which the recorded answer has to repeat"
    if old.dialect != new.dialect:
        yield f"the server asks in the dialect {new.dialect}, and the answer is in {old.dialect}"
    renamed = changed_keys(proposal.changes).values()
    unanswered = {*new.input_requests} - {*old.input_requests, *renamed}
    if unanswered and not proposal.is_last:
        yield f"no answer is recorded for {', '.join(sorted(unanswered))}"


def _objections_of_task(proposal: Proposal, interaction: RecordedInteraction) -> Iterator[str]:
    recorded, live = proposal.recorded, proposal.live
    if recorded is None or live is None or not interaction.task_id:
        if live is not None and live.created_task is not None:
            yield "the server makes a task of the call now: record it again"
        return
    old, new = polled_state(recorded.rpc_response), polled_state(live.rpc_response)
    if old is None or new is None or len(old.input_requests) != len(new.input_requests):
        yield "the task asks or ends where it did not: record it again"
        return
    others = (step.state for step in interaction.steps if step.exchange is not recorded)
    if any(each.input_requests.keys() & old.input_requests for each in others if each is not None):
        yield "other states of the task show the same question: record it again"
    if changed_keys(proposal.changes):
        yield "the recorded answer is under another key: record it again"


def _pushed_in(exchange: RecordedExchange) -> list[Located]:
    located = () if exchange.response is None else messages_in(exchange.response)
    return [each for each in located if each.message.kind is Kind.REQUEST]


def accepted(data: bytes, cassette: Cassette, taken: Collection[Proposal]) -> bytes:
    """Return the file of a cassette with responses of a live server in it.

    Where the new response ends a conversation in which the recorded one asks, the turns from that
    ask on go. The recorded answers get the keys that equal questions have now.
    """
    numbers = SecretNumbers()
    numbers.leave_out_those_in(data)
    responses = {
        each.recorded: _as_recorded(each.recorded, each.live, each.states or {}, numbers)
        for each in taken
        if each.recorded is not None and each.live is not None
    }
    names = {each.recorded: changed_keys(each.changes) for each in taken}
    retries = {
        retry: with_body(retry.request, with_answer_keys(retry.request.body, names[asking]))
        for interaction in cassette.interactions
        for asking, retry in pairwise(interaction.exchanges)
        if names.get(asking)
    }
    return with_responses(cassette, responses, retries)


def _as_recorded(
    recorded: RecordedExchange,
    live: RecordedExchange,
    states: Mapping[str, str],
    numbers: SecretNumbers,
) -> Response:
    response = live.response
    if response is None:
        raise AssertionError("unreachable because what has no response is not taken")
    old = recorded.response or response
    names = {**states, **_recorded_ids(old, response)}
    pieces = splice_pieces(
        response.pieces, [*_push_ids(recorded, live), *issued_values(recorded, live)]
    )
    texts = [piece.raw for piece in pieces]
    for before, now in zip(questions_of(recorded), questions_of(live), strict=False):
        was, identity = elicitation_id(before), elicitation_id(now)
        if was is not None and identity is not None:
            texts = [raw.replace(identity.encode(), was.encode()) for raw in texts]
    texts = [reveal_in_json(raw, names) for raw in texts]
    for key, name in _task_keys(recorded, live, names):
        texts = [raw.replace(key, name) for raw in texts]
    texts = _with_numbers(texts, old.body, numbers)
    headers = tuple(
        (name, renumber(reveal_text(value, names.get), numbers.number))
        for name, value in response.headers
    )
    pieces = tuple(piece._replace(raw=raw) for piece, raw in zip(pieces, texts, strict=True))
    return replace(response, headers=headers, pieces=pieces)


def _task_keys(
    recorded: RecordedExchange, live: RecordedExchange, names: Mapping[str, str]
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys of what a task asks, and the recorded ones in their place."""
    states = [polled_state(each.rpc_response) for each in (recorded, live)]
    old, new = (() if each is None else tuple(each.input_requests) for each in states)
    for name, key in zip(old, new, strict=False):
        yield canonical(reveal_text(key, names.get)).encode(), canonical(name).encode()


def _recorded_ids(recorded: Response, live: Response) -> dict[str, str]:
    """Return the recorded ids of session and events, in order, by the SHA-256 of the live ones.

    An event more loses its id, which no client of the cassette can have.
    """
    old, new = (
        [header_value(each.headers, SESSION_HEADER), *_event_ids(each)] for each in (recorded, live)
    )
    pairs = zip_longest(new, old[: len(new)], fillvalue="")
    return {sealed[2]: was for now, was in pairs if (sealed := SEALED_HASH.fullmatch(now))}


def _event_ids(response: Response) -> Iterator[str]:
    for piece in response.pieces:
        for span in event_id_spans(piece.raw):
            yield piece.raw[span.start : span.end].decode("latin-1")


def _push_ids(recorded: RecordedExchange, live: RecordedExchange) -> Iterator[tuple[Span, bytes]]:
    for before, now in zip(_pushed_in(recorded), _pushed_in(live), strict=True):
        identity = before.message.spelled(ID_PATH)
        span = now.in_body(find_spans(now.message.raw, [ID_PATH])[ID_PATH][-1])
        if identity is not None and span is not None:
            yield span, identity


def issued_values(
    recorded: RecordedExchange, live: RecordedExchange
) -> Iterator[tuple[Span, bytes]]:
    """Yield where a live response issues a cursor, or an id and times of a task; and those."""
    before, now = recorded.located_response, live.located_response
    if before is None or now is None:
        return
    volatile = method_of(recorded.call.method).volatile
    times = [("result", *path) for path in volatile if len(path) == 1 and path[0] in TASK_VALUES]
    for path, spans in find_spans(now.message.raw, [*ISSUED, *times]).items():
        value, span = value_at(before.message.tree, path), now.in_body(spans[-1])
        if isinstance(value, str) and span is not None:
            yield span, canonical(value).encode()


def questions_of(exchange: RecordedExchange) -> list[Any]:
    """Return what a response asks: the pushed requests in it, then those of its result."""
    pushed = [each.message.tree for each in _pushed_in(exchange)]
    result = {} if exchange.ask is None else exchange.ask.message.tree["result"]
    asked = result.get(INPUT_REQUESTS)
    return [*pushed, *(asked.values() if isinstance(asked, dict) else ())]


def _with_numbers(texts: list[bytes], before: bytes, numbers: SecretNumbers) -> list[bytes]:
    recorded: dict[str, deque[str]] = defaultdict(deque)
    for match in PLACEHOLDER.finditer(before.decode("latin-1")):
        if _NUMBER.fullmatch(match["token"]):
            recorded[match["rule"]].append(match["token"])
    matches = PLACEHOLDER.finditer(b"".join(texts).decode("latin-1"))
    counts = Counter(match["rule"] for match in matches if is_journal_token(match["token"]))
    as_many = {rule for rule, tokens in recorded.items() if len(tokens) == counts[rule]}

    def number(rule: str, token: str) -> int | str | None:
        if rule in as_many and is_journal_token(token):
            return recorded[rule].popleft()
        return numbers.number(rule, token)

    return [renumber(text, number) for text in texts]
