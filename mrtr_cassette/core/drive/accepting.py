"""Taking responses of a live server into the cassette that it was held to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from mrtr_cassette.core.cassette.load import with_responses
from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    RecordedExchange,
    RecordedInteraction,
    task_turns,
)
from mrtr_cassette.core.cassette.sessions import opened_session
from mrtr_cassette.core.compare.responses import changed_keys
from mrtr_cassette.core.compare.values import Change, Verdict
from mrtr_cassette.core.drive.conversation import OWN_ID, with_body
from mrtr_cassette.core.drive.rerecording import KeptNames, pushed_in
from mrtr_cassette.core.drive.verification import VerifiedInteraction
from mrtr_cassette.core.protocol.dialect import with_answer_keys
from mrtr_cassette.core.protocol.jsonrpc import ID_PATH
from mrtr_cassette.core.protocol.messages import splice_pieces
from mrtr_cassette.core.protocol.tasks import polled_state
from mrtr_cassette.core.record.naming import with_texts
from mrtr_cassette.core.secrets.sealed import reveal_in_json, reveal_text, sha256_of
from mrtr_cassette.core.wire.http import Response
from mrtr_cassette.core.wire.jsonbytes import Span, canonical, find_spans

ACCEPTABLE: Final[tuple[Verdict, ...]] = (
    "text-changed",
    "shape-changed",
    "surface-changed",
    "key-changed",
    "question-changed",
)
"""The verdicts that can be accepted wherever they are found."""

_NOT_COMPARED: Final = frozenset({"skipped", "not-reached", "unstable"})


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
        recorded = asking.get(turn)
        live = None if recorded is None else lives.get(recorded)
        if recorded is None:
            problem: str | None = "the server pushed it, as part of another response"
        elif live is None or live.response is None:
            problem = "the live server gave no response"
        else:
            names, is_last = changed_keys(changes), recorded is asking[0]
            objections = (
                *_objections(recorded, live, cassette),
                *_objections_to_ask(recorded, live, names, is_last=is_last),
                *_objections_to_task(recorded, live, names, interaction),
            )
            problem = next(iter(objections), None)
        is_last = recorded is asking[0]
        yield Proposal(
            verified.number, verified.call, turn, changes, problem, recorded, live, states, is_last
        )


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


def _objections(
    recorded: RecordedExchange, live: RecordedExchange, cassette: Cassette
) -> Iterator[str]:
    if bool(opened_session(recorded.response)) != bool(opened_session(live.response)):
        yield "a session came or went: record it again"
    body = b"" if live.response is None else live.response.body
    if OWN_ID in body and OWN_ID not in recorded.request.body:
        yield "it repeats the id that another request of this comparison had"
    if [each.piece for each in pushed_in(recorded)] != [each.piece for each in pushed_in(live)]:
        yield "the server pushed other requests in it, or at other places, than was recorded"
    if recorded.ask is not None and live.ask is None:
        if sum(recorded in each.exchanges for each in cassette.interactions) > 1:
            yield "other branches answer the question that is gone"
    elif recorded.rpc_response is None and live.rpc_response is not None:
        yield "its response stands in what resumed its stream: record it again"


def _objections_to_ask(
    recorded: RecordedExchange, live: RecordedExchange, names: Mapping[str, str], *, is_last: bool
) -> Iterator[str]:
    old, new = recorded.ask, live.ask
    if new is None:
        return
    if old is None:
        yield "the server asks once more, and no answer is recorded"
        return
    if (old.request_state is None) != (new.request_state is None):
        yield "a request state came or went, which the recorded answer has to repeat"
    if old.dialect != new.dialect:
        yield f"the server asks in the dialect {new.dialect}, and the answer is in {old.dialect}"
    unanswered = {*new.input_requests} - {*old.input_requests, *names.values()}
    if unanswered and not is_last:
        yield f"no answer is recorded for {', '.join(sorted(unanswered))}"


def _objections_to_task(
    recorded: RecordedExchange,
    live: RecordedExchange,
    names: Mapping[str, str],
    interaction: RecordedInteraction,
) -> Iterator[str]:
    if not interaction.task_id:
        if live.created_task is not None:
            yield "the server makes a task of the call now: record it again"
        return
    old, new = polled_state(recorded.rpc_response), polled_state(live.rpc_response)
    if old is None or new is None or len(old.input_requests) != len(new.input_requests):
        yield "the task asks or ends where it did not: record it again"
        return
    others = (step.state for step in interaction.steps if step.exchange is not recorded)
    if any(each.input_requests.keys() & old.input_requests for each in others if each is not None):
        yield "other states of the task show the same question: record it again"
    if names:
        yield "the recorded answer is under another key: record it again"


def accepted(data: bytes, cassette: Cassette, taken: Collection[Proposal]) -> bytes:
    """Return the file of a cassette with responses of a live server in it.

    Where the new response ends a conversation in which the recorded one asks, the turns from that
    ask on go. The recorded answers get the keys that equal questions have now.
    """
    kept = KeptNames(data)
    responses = {
        each.recorded: _as_recorded(each.recorded, each.live, each.states or {}, kept)
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
    kept: KeptNames,
) -> Response:
    """Return a live response with the recorded names, ids and keys."""
    before, now = (polled_state(each.rpc_response) for each in (recorded, live))
    keys: list[tuple[bytes, bytes]] = []
    if before is not None and now is not None:
        for key, name in zip(now.input_requests, before.input_requests, strict=False):
            live_key = reveal_text(key, states.get)
            keys.append((canonical(live_key).encode(), canonical(name).encode()))

    def revealed(raw: bytes, _header: str) -> bytes:
        raw = reveal_in_json(raw, states)
        for key, name in keys:
            raw = raw.replace(key, name)
        return raw

    response = live.response
    if response is not None:
        pieces = splice_pieces(response.pieces, _push_ids(recorded, live))
        live = replace(live, response=replace(response, pieces=pieces))
    live = with_texts(live, revealed)
    kept.keep(recorded, live)
    response = kept.in_kept(live, recorded).response
    if response is None:
        raise AssertionError("unreachable because what has no response is not taken")
    return response


def _push_ids(recorded: RecordedExchange, live: RecordedExchange) -> Iterator[tuple[Span, bytes]]:
    for before, now in zip(pushed_in(recorded), pushed_in(live), strict=True):
        identity = before.message.spelled(ID_PATH)
        span = now.in_body(find_spans(now.message.raw, [ID_PATH])[ID_PATH][-1])
        if identity is not None and span is not None:
            yield span, identity
