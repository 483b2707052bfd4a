"""New responses in a cassette: accepted from a live server, or recorded over it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import pairwise, zip_longest
from operator import attrgetter
from typing import Final, NamedTuple

from mrtr_cassette.core.cassette.digests import new_digests, with_digests
from mrtr_cassette.core.cassette.dump import dump
from mrtr_cassette.core.cassette.edited import with_recorded_times
from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    PushedRequest,
    RecordedExchange,
    RecordedInteraction,
    TurnPlace,
    in_conversation_order,
    task_turns,
)
from mrtr_cassette.core.cassette.sessions import opened_session
from mrtr_cassette.core.cassette.texts import recounted, with_texts
from mrtr_cassette.core.cassette.transports import response_over_http
from mrtr_cassette.core.compare.conversations import (
    IgnoredFor,
    changed_keys,
    comparable_text,
    compared,
    ignores_nothing,
)
from mrtr_cassette.core.compare.values import Change, Verdict
from mrtr_cassette.core.drive.conversation import OWN_ID, with_body
from mrtr_cassette.core.drive.kept_names import KeptNames
from mrtr_cassette.core.drive.verification import Accepts, LivePair, VerifiedInteraction
from mrtr_cassette.core.protocol.dialect import with_answer_keys
from mrtr_cassette.core.protocol.jsonrpc import ID_PATH, Kind, Located, messages_in, splice_pieces
from mrtr_cassette.core.protocol.tasks import created_id, polled_state
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.secrets.sealed import (
    occurrence_in,
    reveal,
    reveal_in_json,
    sha256_of,
    state_surrogate,
)
from mrtr_cassette.core.wire.http import VALIDATING_HEADERS, Request, Response
from mrtr_cassette.core.wire.jsonbytes import Span, canonical, find_spans

ACCEPTABLE: Final[tuple[Verdict, ...]] = (
    "text-changed",
    "shape-changed",
    "surface-changed",
    "key-changed",
    "error-changed",
    "refused",
    "rounds-changed",
    "question-changed",
)
"""The verdicts that can be accepted."""

_INTERNAL_ERROR: Final = -32603
_NOT_COMPARED: Final = frozenset({"skipped", "not-reached", "unstable"})
_SETTINGS: Final = attrgetter("transport", "request_state", "redaction", "seals_answers")
"""What a recording leaves out or hides: another one can't share its interactions."""
_PORT = re.compile(r"^(https?://(?:localhost|127\.0\.0\.1|\[::1\])):[0-9]+(?=/|$)")


# Accepting what a live server says


class TakenResponse(NamedTuple):
    """A live response, and the recorded exchange that gets it.

    Attributes:
        names: the new keys of its questions by the recorded ones; None for one that is gone.
        retry: the recorded exchange whose request answers it.
    """

    base: RecordedExchange
    live: RecordedExchange
    names: Mapping[str, str | None] = {}
    retry: RecordedExchange | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """One response of a live server that could stand in the cassette, or a whole conversation.

    Attributes:
        turns: the turns that differ, from 1, or 0 for the final response.
        states: the recorded request state or session id by the SHA-256 of the live one.
        is_whole: it is a conversation with more or fewer turns, or in another order.
    """

    number: int
    call: str
    turns: tuple[int, ...]
    changes: tuple[Change, ...]
    problem: str | None = None
    taken: tuple[TakenResponse, ...] = ()
    states: Mapping[str, str] = field(default_factory=dict)
    is_whole: bool = False

    @property
    def turn(self) -> int:
        """The first turn that differs."""
        return self.turns[0]

    @property
    def counting(self) -> tuple[Change, ...]:
        """The changes that are more than information."""
        return tuple(change for change in self.changes if not change.is_information)

    @property
    def ends_open(self) -> bool:
        """Whether the conversation ends at a question for which no answer is recorded."""
        return self.is_whole and self.taken[-1].live.ask is not None

    @property
    def is_breakdown(self) -> bool:
        """Whether the live server failed by itself, which says nothing of what it would say."""
        if not self.taken:
            return False
        live = self.taken[-1].live
        error = live.rpc_members.get("error")
        code = error.get("code") if isinstance(error, dict) else None
        is_down = live.response is not None and live.response.status >= 500
        return code == _INTERNAL_ERROR or is_down


Choose = Callable[[Sequence[Proposal]], Sequence[Proposal]]
"""Returns which of the proposals are accepted."""


def accepting(cassette: Cassette, choose: Choose) -> Accepts:
    """Return what tells while a conversation is repeated whether a turn of it is accepted."""

    def accepts(verified: VerifiedInteraction, turn: int) -> bool:
        proposed = _proposals_of(cassette, verified)
        return any(turn in proposal.turns for proposal in choose(proposed))

    return accepts


def proposals(cassette: Cassette, verified: Iterable[VerifiedInteraction]) -> list[Proposal]:
    """Return what could be taken into a cassette, in its order, as its file has it."""
    proposed: list[Proposal] = []
    for interaction in sorted(verified, key=lambda verified: verified.number):
        if interaction.verdict not in _NOT_COMPARED:
            proposed += _proposals_of(cassette, interaction)
    return proposed


def _proposals_of(cassette: Cassette, verified: VerifiedInteraction) -> list[Proposal]:
    interaction = cassette.interactions[verified.number - 1]
    states = {sha256_of(live): recorded for live, recorded in verified.states}
    # The conversation was repeated over the transport of the live server.
    sent = _responses(verified.planned.interaction)
    places = dict(zip(sent, _responses(interaction), strict=False))
    pairs = []
    for pair in verified.pairs:
        live = response_over_http(pair.live) if cassette.transport == "http" else pair.live
        pairs.append(pair._replace(recorded=places[pair.recorded], live=live))
    changed = tuple(dict.fromkeys(change.turn for change in verified.changes))
    if not changed:
        return []
    if verified.is_rerouted:
        changes = tuple(change for _, change in verified.changes)
        return [_whole_proposal(cassette, verified, changed, changes, pairs, states)]
    return [_turn_proposal(cassette, verified, turn, pairs, states) for turn in changed]


def _turn_proposal(
    cassette: Cassette,
    verified: VerifiedInteraction,
    turn: int,
    pairs: Sequence[LivePair],
    states: Mapping[str, str],
) -> Proposal:
    """Return the proposal of the response that asks a turn, or of the final one."""
    interaction = cassette.interactions[verified.number - 1]
    changes = tuple(change for at, change in verified.changes if at == turn)
    recorded = _asking(interaction).get(turn)
    lives = [pair.live for pair in pairs if pair.recorded is recorded]
    taken: tuple[TakenResponse, ...] = ()
    if verified.after is not None:
        problem: str | None = _strayed(verified.after)
    elif recorded is None:
        problem = "the server pushed it, as part of another response"
    elif not lives or lives[-1].response is None:
        problem = "the live server gave no response"
    else:
        live = lives[-1]
        names = _new_keys(recorded, live, changes)
        retry = _retry_to(interaction, recorded)
        taken = (TakenResponse(recorded, live, names, retry),)
        objections = (
            *_objections(recorded, live),
            *_objections_to_ask(recorded, live, names, is_answered=retry is not None),
            *_objections_to_task(recorded, live, changed_keys(changes), interaction),
        )
        problem = next(iter(objections), None)
    return Proposal(verified.number, verified.call, (turn,), changes, problem, taken, states)


def _strayed(number: int) -> str:
    return f"it may depend on #{number}, which did not end as recorded"


def _whole_proposal(
    cassette: Cassette,
    verified: VerifiedInteraction,
    turns: tuple[int, ...],
    changes: tuple[Change, ...],
    pairs: Sequence[LivePair],
    states: dict[str, str],
) -> Proposal:
    """Return the proposal of a conversation that took another course than the recorded one."""
    interaction = cassette.interactions[verified.number - 1]
    base: RecordedExchange | None = interaction.exchanges[0]
    taken: list[TakenResponse] = []
    problems: list[str] = []
    if verified.after is not None:
        problems.append(_strayed(verified.after))
    if interaction.pushed_turns or any(pair.live.created_task is not None for pair in pairs):
        problems.append("the server pushed a part of it, or made it a task: record it again")
    for pair in pairs:
        if base is None:
            break
        names = _new_keys(pair.recorded, pair.live, changes)
        retry = None if pair is pairs[-1] else _retry_to(interaction, pair.recorded)
        taken.append(TakenResponse(base, pair.live, names, retry))
        problems += _objections(base, pair.live)
        if pair is not pairs[-1]:
            problems += _objections_to_ask(pair.recorded, pair.live, names, is_answered=True)
        base = retry
    shared = [it for it in interaction.exchanges if _sharing(cassette, it) > 1]
    if shared:
        problems.append("other branches answer a question of it: record it again")
    last = taken[-1].live
    if last.ask is not None and last.issued_sha256 is not None:
        states |= {last.issued_sha256: _new_state(cassette, interaction)}
        if cassette.request_state == "verbatim":
            problems.append("its request states are kept as they are: record it again")
    return Proposal(
        verified.number,
        verified.call,
        turns,
        changes,
        next(iter(problems), None),
        tuple(taken),
        states,
        is_whole=True,
    )


def _new_keys(
    recorded: RecordedExchange, live: RecordedExchange, changes: Iterable[Change]
) -> dict[str, str | None]:
    """Return the new keys of a live ask by the recorded ones; None for a question that is gone."""
    names: dict[str, str | None] = {}
    names.update(changed_keys(changes))
    if recorded.ask is not None and live.ask is not None:
        asked = {comparable_text(key) for key in live.ask.input_requests}
        for key in recorded.ask.input_requests:
            if key not in names and comparable_text(key) not in asked:
                names[key] = None
    return names


def _retry_to(
    interaction: RecordedInteraction, asking: RecordedExchange
) -> RecordedExchange | None:
    """Return the exchange whose request answers another one of the same interaction."""
    for recorded, retry in pairwise(interaction.exchanges):
        if recorded is asking:
            return retry
    return None


def _sharing(cassette: Cassette, exchange: RecordedExchange) -> int:
    """Return how many interactions have an exchange."""
    return sum(exchange in interaction.exchanges for interaction in cassette.interactions)


def _new_state(cassette: Cassette, interaction: RecordedInteraction) -> str:
    """Return the name of the state of a question after all that are recorded in an interaction."""
    call = interaction.exchanges[0].call
    digest = sha256_of("\n".join(call.key()))
    turn = len(interaction.exchanges) + 1
    occurrences = [0]
    for other in cassette.interactions:
        for exchange in other.exchanges:
            issued = None if exchange.ask is None else exchange.ask.request_state
            occurrence = None if issued is None else occurrence_in(issued)
            if occurrence is None:
                continue
            if other is interaction:
                return state_surrogate(digest, occurrence, turn)
            occurrences.append(occurrence)
    return state_surrogate(digest, max(occurrences) + 1, turn)


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
        and not each.is_breakdown
        and any(change.verdict in verdicts for change in each.changes)
        and all(change.verdict in verdicts for change in each.counting)
    ]


def _objections(recorded: RecordedExchange, live: RecordedExchange) -> Iterator[str]:
    if bool(opened_session(recorded.response)) != bool(opened_session(live.response)):
        yield "a session came or went: record it again"
    body = b"" if live.response is None else live.response.body
    if not {*OWN_ID.findall(body)} <= {*OWN_ID.findall(recorded.request.body)}:
        yield "it repeats the id that another request of this comparison had"
    if [each.piece for each in _pushed_in(recorded)] != [each.piece for each in _pushed_in(live)]:
        yield "the server pushed other requests in it, or at other places, than was recorded"
    if recorded.rpc_response is None and live.rpc_response is not None:
        yield "its response stands in what resumed its stream: record it again"


def _objections_to_ask(
    recorded: RecordedExchange,
    live: RecordedExchange,
    names: Mapping[str, str | None],
    *,
    is_answered: bool,
) -> Iterator[str]:
    old = recorded.ask
    new = live.ask
    if old is None or new is None:
        return
    if (old.request_state is None) != (new.request_state is None):
        yield "a request state came or went, which the recorded answer has to repeat"
    if old.dialect != new.dialect:
        yield f"the server asks in the dialect {new.dialect}, and the answer is in {old.dialect}"
    unanswered = {*new.input_requests} - {*old.input_requests, *names.values()}
    if unanswered and is_answered:
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
    if old is None or new is None or len(old.input_requests) != len(new.input_requests) or names:
        yield "the task asks or ends where it did not, or under another key: record it again"
        return
    others = (step.state for step in interaction.steps if step.exchange is not recorded)
    if any(each.input_requests.keys() & old.input_requests for each in others if each is not None):
        yield "other states of the task show the same question: record it again"


def accepted(data: bytes, cassette: Cassette, proposed: Collection[Proposal]) -> bytes:
    """Return the file of a cassette with responses of a live server in it.

    The recorded answers get the keys that equal questions have now. A conversation that takes
    another course has the requests that answer its questions now, and ends where it ends now.
    """
    kept = KeptNames(data)
    new: dict[RecordedExchange, RecordedExchange] = {}
    requests: dict[RecordedExchange, Request] = {}
    courses: dict[int, tuple[RecordedExchange, ...]] = {}
    for proposal in proposed:
        for base, live, names, retry in proposal.taken:
            new[base] = _as_recorded(base, live, proposal.states, kept)
            if names and retry is not None:
                body = with_answer_keys(retry.request.body, names)
                requests[retry] = with_body(retry.request, body)
        if proposal.is_whole:
            courses[proposal.number] = tuple([response.base for response in proposal.taken])
    for exchange, request in requests.items():
        new[exchange] = replace(new.get(exchange, exchange), request=request)
    interactions = []
    for interaction in cassette.interactions:
        exchanges = courses.get(interaction.number, interaction.exchanges)
        numbers = sorted(exchange.number for exchange in exchanges if exchange.number is not None)
        if len(numbers) == len(exchanges) and exchanges != interaction.exchanges:
            for exchange, number in zip(exchanges, numbers, strict=True):
                new[exchange] = replace(new.get(exchange, exchange), number=number)
        steps = () if interaction.number in courses else interaction.steps
        interactions.append(replace(interaction, exchanges=exchanges, steps=steps))
    return dump(replace(cassette, interactions=tuple(interactions)).with_exchanges(new))


def _as_recorded(
    recorded: RecordedExchange,
    live: RecordedExchange,
    states: Mapping[str, str],
    kept: KeptNames,
) -> RecordedExchange:
    """Return a recorded exchange with a live response that has the recorded names and keys."""
    before, now = (polled_state(each.rpc_response) for each in (recorded, live))
    keys: list[tuple[bytes, bytes]] = []
    if before is not None and now is not None:
        for key, name in zip(now.input_requests, before.input_requests, strict=False):
            live_key = reveal(key, states.get)
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
    issued = recorded.issued_sha256
    if (recorded.ask is None) is not (live.ask is None):
        issued = live.issued_sha256
    return replace(recorded, response=with_recorded_times(recorded, response), issued_sha256=issued)


def _push_ids(recorded: RecordedExchange, live: RecordedExchange) -> Iterator[tuple[Span, bytes]]:
    for before, now in zip(_pushed_in(recorded), _pushed_in(live), strict=True):
        identity = before.message.spelled(ID_PATH)
        span = now.in_body(find_spans(now.message.raw, [ID_PATH])[ID_PATH][-1])
        if identity is not None and span is not None:
            yield span, identity


# Recording over a cassette


def recorded_over(
    earlier: Cassette, recorded: Cassette, ignored_for: IgnoredFor = ignores_nothing
) -> tuple[Cassette, int]:
    """Return a recording in which interactions that are the same stand as they did; and how many.

    What differs only at the ignored pointers is the same.

    Where all are the same, that is the earlier cassette itself. Branches, and calls of which one
    stream tells, are kept together or not at all.
    """
    if _SETTINGS(earlier) != _SETTINGS(recorded):
        return recorded, 0
    partners: dict[int, RecordedInteraction] = {}
    same: dict[int, int] = {}
    for each in compared(earlier, recorded, ignored_for).interactions:
        if each.recorded is not None and each.received is not None:
            old = partners[each.received] = earlier.interactions[each.recorded - 1]
            # What diff calls the same may say more: a list with a further tool is not kept.
            says_more = any(stage.changes for stage in each.stages)
            new_headers = _new_headers(old, recorded.interactions[each.received - 1])
            if each.mark == "=" and not (says_more or new_headers):
                same[each.received] = each.recorded
    if len(same) == len(earlier.interactions) == len(recorded.interactions):
        return earlier, len(same)
    kept = {
        new: old
        for new, old in same.items()
        if _places(partners[new]) == _places(recorded.interactions[new - 1])
    }
    before, after = _connected(earlier), _connected(recorded)
    while apart := [
        new for new, old in kept.items() if {kept.get(each) for each in after[new]} != before[old]
    ]:
        for number in apart:
            del kept[number]
    exchanges = _exchanges_over(recorded, partners, kept)
    return _merged(earlier, recorded, exchanges, kept, partners), len(kept)


def _new_headers(old: RecordedInteraction, new: RecordedInteraction) -> set[str]:
    """Return the headers that are recorded now and were not, and that don't count in `diff`.

    The user may want those of requests, and clients act on what responses say of copies and proofs.
    """
    found: set[str] = set()
    for before, after in zip(old.exchanges, new.exchanges, strict=False):
        names = _names_of(after.request) - _names_of(before.request)
        if before.response is not None and after.response is not None:
            more = _names_of(after.response) - _names_of(before.response)
            names |= more & VALIDATING_HEADERS
        found |= names
    return found


def _names_of(said: Request | Response) -> set[str]:
    return {name.lower() for name, _ in said.headers}


def _places(interaction: RecordedInteraction) -> list[TurnPlace]:
    """Return the places of its exchanges, but for what a client saw of a task."""
    return [place for _, place in interaction.placed if place.step is None]


def _connected(cassette: Cassette) -> dict[int, set[int]]:
    """Return, for each interaction, those without which it can't be kept, and itself."""
    connected = {each.number: {each.number} for each in cassette.interactions}
    branches = [(each.number, each.branch.of) for each in cassette.interactions if each.branch]
    for one, other in [*branches, *Player(cassette).connected]:
        connected[one].add(other)
        connected[other].add(one)
    return connected


def _exchanges_over(
    recorded: Cassette, partners: Mapping[int, RecordedInteraction], kept: Collection[int]
) -> dict[RecordedExchange, RecordedExchange]:
    """Return what becomes of the earlier exchanges that are kept, and of the new ones."""
    stands_for: dict[RecordedExchange, RecordedExchange] = {}
    changed: dict[RecordedExchange, RecordedExchange | None] = {}
    for new in recorded.interactions:
        old = partners.get(new.number)
        if old is not None and new.number in kept:
            stands_for |= _in_pairs(old, new)
            continue
        changed |= dict.fromkeys(new.own)
        for one, other in zip(() if old is None else old.exchanges, new.exchanges, strict=False):
            # The id of a task stands in more places than are changed.
            if created_id(other.call.message, other.rpc_response) is None:
                changed[other] = one
    names = KeptNames()
    exchanges: dict[RecordedExchange, RecordedExchange] = {}
    for one, other in stands_for.items():
        names.keep(one, other)
        response = None if one.response is None else with_recorded_times(other, one.response)
        stands = replace(other, request=one.request, response=response)
        issued, echoed = one.issued_sha256, one.echoed_sha256
        exchanges[one] = replace(stands, issued_sha256=issued, echoed_sha256=echoed)
    for each, partner in changed.items():
        if partner is not None:
            names.issued(partner, each)
    for each, partner in changed.items():
        exchanges[each] = names.in_kept(each, partner)
    # Announced digests become those of the texts as they stand now.
    digests = new_digests({}, [(stands_for.get(it, it), now) for it, now in exchanges.items()])
    for each in changed if digests else ():
        exchanges[each] = with_texts(exchanges[each], lambda raw, _: with_digests(raw, digests))
    return _in_earlier_time(exchanges, {**changed, **{kept: kept for kept in stands_for}})


def _in_earlier_time(
    exchanges: Mapping[RecordedExchange, RecordedExchange],
    partners: Mapping[RecordedExchange, RecordedExchange | None],
) -> dict[RecordedExchange, RecordedExchange]:
    """Return exchanges with the times of their earlier partners, where all came in the same order.

    An exchange without such a partner has its time after the one before it.
    """
    timed: dict[RecordedExchange, RecordedExchange] = {}
    offset_ms = 0.0
    for source, exchange in sorted(exchanges.items(), key=lambda pair: pair[1].number or 0):
        partner = partners.get(source)
        if partner is not None and _counts(partner) == _counts(exchange):
            offset_ms = partner.ended_ms - exchange.ended_ms
            response = partner.response
            if partner is not source and exchange.response is not None:
                response = with_recorded_times(partner, exchange.response)
            times = partner.started_ms, partner.ended_ms
            timed[source] = replace(
                exchange, started_ms=times[0], ended_ms=times[1], response=response
            )
        elif exchange.number is None:
            timed[source] = exchange
        else:
            timed[source] = recounted(
                exchange,
                exchange.recorded_by,
                exchange.number,
                lambda after, _: after,
                offset_ms,
            )
    return timed


def _counts(exchange: RecordedExchange) -> tuple[object, ...]:
    """Return how many requests had arrived when it came, at each of its events, and at its end."""
    response = exchange.response
    afters: list[int] = []
    if response is not None and response.is_framed:
        afters = [piece.after for piece in response.pieces if piece.raw]
    is_alone = {*afters} <= {exchange.number, exchange.ended_after}
    return exchange.number, exchange.ended_after, () if is_alone else tuple(afters)


def _same_upstream(earlier: str, recorded: str) -> bool:
    """Tell whether two upstreams differ at most by the port of this machine, which is chance."""
    places = [_PORT.sub(r"\1", upstream) for upstream in (earlier, recorded)]
    return places[0] == places[1]


def _in_pairs(
    old: RecordedInteraction, new: RecordedInteraction
) -> Iterator[tuple[RecordedExchange, RecordedExchange]]:
    """Yield the own exchanges of two interactions that have the same places, in pairs.

    How many states of a task a client sees depends on when it polls: a step more than the new task
    has stands for itself, without a number.
    """
    before, after = ([it for it, at in one.placed if at.step is None] for one in (old, new))
    yield from zip(before, after, strict=True)
    # Both end alike.
    for one, other in zip_longest(old.steps[::-1], new.steps[::-1][: len(old.steps)]):
        yield one.exchange, replace(one.exchange, number=None) if other is None else other.exchange


def _merged(
    earlier: Cassette,
    recorded: Cassette,
    exchanges: Mapping[RecordedExchange, RecordedExchange],
    kept: Mapping[int, int],
    partners: Mapping[int, RecordedInteraction],
) -> Cassette:
    """Return both in one, in the order of the new conversation."""
    before = earlier.with_exchanges(exchanges).interactions
    after = recorded.with_exchanges(exchanges).interactions
    order = _ordered(recorded.interactions, partners, kept)
    new_numbers = {new: number for number, new in enumerate(order, start=1)}
    old_numbers = {old: new_numbers[new] for new, old in kept.items()}
    interactions = tuple(
        _numbered(before[kept[new] - 1], old_numbers)
        if new in kept
        else _numbered(after[new - 1], new_numbers)
        for new in order
    )
    upstream = recorded.upstream
    if _same_upstream(earlier.upstream, upstream):
        upstream = earlier.upstream
    return replace(recorded, interactions=interactions, upstream=upstream)


def _ordered(
    recorded: Sequence[RecordedInteraction],
    partners: Mapping[int, RecordedInteraction],
    kept: Collection[int],
) -> list[int]:
    """Return the numbers of new interactions in their order.

    Which of two calls that were in flight together came first is chance: these stand in the earlier
    order, and one that is new after what came before it.
    """
    places: dict[int, int] = {}
    place = 0
    for interaction in recorded:
        partner = partners.get(interaction.number)
        place = place if partner is None else partner.number
        if interaction.branch is not None and interaction.number not in kept:
            place = places[interaction.branch.of]
        places[interaction.number] = place
    in_flight: list[tuple[int, int]] = []
    placed: dict[int, None] = {}
    waiting = iter(in_conversation_order(recorded))
    following = next(waiting, None)
    for ended_after, number in sorted((_ended_after(call), call.number) for call in recorded):
        while number not in placed:
            while following is not None and _arrived(following) <= ended_after:
                heappush(in_flight, (places[following.number], following.number))
                following = next(waiting, None)
            placed[heappop(in_flight)[1]] = None
    return list(placed)


def _arrived(interaction: RecordedInteraction) -> int:
    return min(exchange.number or 0 for exchange in interaction.own)


def _ended_after(interaction: RecordedInteraction) -> float:
    """Return how many requests had arrived when a call ended; one that was left has no end."""
    ends = [exchange.ended_after for exchange in interaction.own]
    return max(float("inf") if end is None else end for end in ends)


def _numbered(interaction: RecordedInteraction, numbers: Mapping[int, int]) -> RecordedInteraction:
    """Return an interaction with the new numbers of itself and of those that it refers to."""

    def asked(each: PushedRequest) -> PushedRequest:
        return replace(each, interaction=each.interaction and numbers[each.interaction])

    branch = interaction.branch
    return replace(
        interaction,
        number=numbers[interaction.number],
        branch=branch and branch._replace(of=numbers[branch.of]),
        pushed_turns=tuple(
            replace(turn, asked=tuple(map(asked, turn.asked))) for turn in interaction.pushed_turns
        ),
    )


def _pushed_in(exchange: RecordedExchange) -> list[Located]:
    """Return the requests that a response has."""
    located = () if exchange.response is None else messages_in(exchange.response)
    return [each for each in located if each.message.kind is Kind.REQUEST]
