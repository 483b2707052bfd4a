"""A cassette as replay knows it: its exchanges, read, and what each has to wait for.

Owns: turning the file's interactions into a tree of exchanges, branches joined where they part.
Does not own: which exchange a request gets (`player`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from itertools import islice
from sys import intern
from typing import Any, NamedTuple

from mrtr_cassette.core.exchange.caller_values import rest_of
from mrtr_cassette.core.exchange.lookup import LookupKey, lookup_key
from mrtr_cassette.core.format.bodies import decode_body, headers_of
from mrtr_cassette.core.format.codec import AT_ONCE
from mrtr_cassette.core.format.model import (
    AnswerModel,
    BranchModel,
    CassetteModel,
    ExchangeFactsModel,
    HttpModel,
    InteractionModel,
    RequestModel,
    ResponseModel,
)
from mrtr_cassette.core.protocol.calls import Call, CallKey, Traits, is_reading, read_call
from mrtr_cassette.core.protocol.dialect import may_ask
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.protocol.messages import Ask, ask_in, messages_in
from mrtr_cassette.core.replay.reply import Echoed, echoed_in
from mrtr_cassette.core.secrets.states import sha256_of
from mrtr_cassette.core.wire.http import End, Piece, Request, Response
from mrtr_cassette.core.wire.jsonbytes import (
    MemberPath,
    canonical,
)


class _Unread(Enum):
    """Stands for what has not been looked for yet."""

    ASK = 1
    ECHOED = 2


@dataclass(eq=False, slots=True)
class Node:
    """One recorded exchange and what replay knows of it; there may be very many.

    Attributes:
        interaction: number of the interaction, from 1.
        turn: the turn that its request answers, from 1; 0 for a first request.
        request: the recorded request.
        kind: what its message is, or None where its body is none.
        slot: what it is found by.
        traits: what breaks ties with others of the same key.
        caller: who asked.
        response: the recorded response, or None where there was none.
        number: the exchange's number in the recording, or None where that is not known.
        raw_echoed_sha256: hash of the raw state that the request carried while it was recorded.
        raw_issued_sha256: hash of the raw state that the ask issued while it was recorded.
        rest: what is left of the request's body without the caller's own values, or None.
        parent: the exchange whose ask it answers; None for a first request and an orphan.
        gates: for each piece of the response, the exchanges whose requests it waits for.
        played: how often it has been played.
    """

    interaction: int
    turn: int
    request: Request
    kind: Kind | None
    slot: LookupKey
    traits: Traits
    caller: str
    response: Response | None
    number: int | None
    raw_echoed_sha256: str | None
    raw_issued_sha256: str | None
    rest: bytes | None
    _asked: Ask | _Unread | None
    _echoed: Echoed | _Unread
    parent: Node | None = None
    gates: tuple[frozenset[int], ...] = ()
    played: int = 0

    @property
    def call(self) -> Call:
        """The recorded request, read."""
        return read_call(self.request)

    @property
    def key(self) -> CallKey:
        """Its call key."""
        return self.slot[0]

    def match_as(self, request: Request, ignored: Collection[MemberPath]) -> None:
        """Take another request in the recorded one's place, such as one without its secrets."""
        if request != self.request:
            call = read_call(request)
            self.request = request
            self.slot, self.traits = lookup_key(call, ignored), call.traits
            self.caller = call.caller

    @property
    def ask(self) -> Ask | None:
        """The ask that the response is, or None."""
        if isinstance(self._asked, _Unread):
            found = None
            if self.response is not None:
                found = ask_in(self.call.message, self.response)
            self._asked = found
        return self._asked

    @property
    def echoed(self) -> Echoed:
        """Where its response repeats what is the caller's own."""
        if isinstance(self._echoed, _Unread):
            self._echoed = ()
            if self.response is not None:
                self._echoed = echoed_in(self.call.message, self.response)
        return self._echoed

    @property
    def issued_sha256(self) -> str | None:
        """Hash of the request state that its ask issues on replay, or None."""
        state = self.ask.request_state if self.ask is not None else None
        return None if state is None else sha256_of(state)

    @property
    def question(self) -> tuple[CallKey, str] | None:
        """What its ask asks, where the ask has no state: equal asks of a call are the same one."""
        found = self.ask
        if found is None or found.request_state is not None:
            return None
        return self.key, canonical(found.message.tree["result"].get("inputRequests"))

    def issued(self, sha256: str) -> bool:
        """Tell whether its ask issued a state with this hash, on replay or while recorded."""
        return self.ask is not None and sha256 in {self.issued_sha256, self.raw_issued_sha256}


class _Step(NamedTuple):
    """One exchange as the file has it: which one it is, and where its parts stand."""

    interaction: int
    turn: int
    branch: BranchModel | None
    http: HttpModel
    request: RequestModel | AnswerModel
    request_at: str
    response: ResponseModel | None
    response_at: str


def _steps(number: int, interaction: InteractionModel) -> Iterator[_Step]:
    pointer = f"/interactions/{number - 1}"
    branch, http = interaction.branch, interaction.request.http
    request: RequestModel | AnswerModel = interaction.request
    at = f"{pointer}/request"
    turn = 0
    for turn, asked in enumerate(interaction.elicitation_turns, start=1):
        turn_at = f"{pointer}/elicitation_turns/{turn - 1}"
        yield _Step(number, turn - 1, branch, http, request, at, asked.ask, f"{turn_at}/ask")
        if asked.answer is None:
            return
        request, at = asked.answer, f"{turn_at}/answer"
    response_at = f"{pointer}/response"
    yield _Step(number, turn, branch, http, request, at, interaction.response, response_at)


def read_nodes(
    cassette: CassetteModel,
    path: str,
    ignored: Collection[MemberPath] = (),
    matched_as: Callable[[Request], Request] = lambda request: request,
    *,
    interactions: Iterable[InteractionModel] | None = None,
    exchanges: Iterable[ExchangeFactsModel] | None = None,
) -> list[list[Node]]:
    """Return each interaction's own exchanges; those a branch shares are the other's.

    Args:
        cassette: what was recorded.
        path: how messages name its file.
        ignored: members of the params that don't count.
        matched_as: what a request is matched as, where that is not itself.
        interactions: those of the cassette, where it was read without them.
        exchanges: the facts of its exchanges, where it was read without them.

    Raises:
        CassetteError: a body isn't what was recorded, or not what its place asks for.
    """
    timings = _Timings(cassette.recording.exchanges if exchanges is None else exchanges)
    reader = _Reader(path, ignored, matched_as, timings)
    recorded = enumerate(cassette.interactions if interactions is None else interactions, start=1)
    chains: list[list[Node]] = []
    shared: list[int] = []
    while batch := list(islice(recorded, AT_ONCE)):
        steps = [step for number, interaction in batch for step in _steps(number, interaction)]
        for step, node in zip(steps, reader.nodes(steps), strict=True):
            if step.turn == 0:
                branch = step.branch
                shared.append(0 if branch is None else branch.turn)
                chains.append([] if branch is None else chains[branch.of - 1][: branch.turn])
            chain = chains[-1]
            if step.turn >= shared[-1]:
                node.parent = chain[-1] if chain else None
                chain.append(node)
    timings.read_rest()
    own = [chain[turns:] if turns else chain for chain, turns in zip(chains, shared, strict=True)]
    _set_gates([node for nodes in own for node in nodes])
    return own


class _Timings:
    """The facts of exchanges, read no further than they are wanted: most stand in file order."""

    def __init__(self, facts: Iterable[ExchangeFactsModel]) -> None:
        self._coming = iter(facts)
        self._read: dict[tuple[int, int], ExchangeFactsModel] = {}

    def of(self, interaction: int, turn: int) -> ExchangeFactsModel | None:
        """Return the facts of an exchange, which are wanted once."""
        wanted = interaction, turn
        if wanted in self._read:
            return self._read.pop(wanted)
        for facts in self._coming:
            found = facts.interaction, facts.turn
            if found == wanted:
                return facts
            self._read[found] = facts
        return None

    def read_rest(self) -> None:
        """Read what nobody wanted, as it has to be right too."""
        for _ in self._coming:
            pass


class _Reader:
    """Turns steps into nodes that don't know their parents yet.

    Of many exchanges most have the same headers, traits and callers: one of each is enough.
    """

    def __init__(
        self,
        path: str,
        ignored: Collection[MemberPath],
        matched_as: Callable[[Request], Request],
        timings: _Timings,
    ) -> None:
        self._path = path
        self._ignored = ignored
        self._matched_as = matched_as
        self._timings = timings
        self._same: dict[Any, Any] = {}

    def nodes(self, steps: Sequence[_Step]) -> list[Node]:
        """Return the exchanges of some steps, each part of all before the next part."""
        same = self._same
        timings = [self._timings.of(step.interaction, step.turn) for step in steps]
        requests = [self._request(step) for step in steps]
        responses = list(map(self._response, steps, timings))
        calls = [read_call(self._matched_as(request)) for request in requests]
        slots = [lookup_key(call, self._ignored) for call in calls]
        all_traits = [call.traits for call in calls]
        callers = [call.caller for call in calls]
        rests = [None if call.message is None else rest_of(call.message) for call in calls]
        all_echoed = list(map(_echoed, calls, responses))
        return [
            Node(
                interaction=step.interaction,
                turn=step.turn,
                request=call.request,
                kind=None if call.message is None else call.message.kind,
                slot=slot,
                traits=same.setdefault(traits, traits),
                caller=same.setdefault(caller, caller),
                response=response,
                number=None if timing is None else timing.number,
                raw_echoed_sha256=None if timing is None else timing.echoed_state_sha256,
                raw_issued_sha256=None if timing is None else timing.request_state_sha256,
                rest=rest,
                _asked=None if response is None or not may_ask(response.body) else _Unread.ASK,
                _echoed=echoed,
            )
            for step, timing, call, slot, traits, caller, response, rest, echoed in zip(
                steps,
                timings,
                calls,
                slots,
                all_traits,
                callers,
                responses,
                rests,
                all_echoed,
                strict=True,
            )
        ]

    def _request(self, step: _Step) -> Request:
        request, http = step.request, step.http
        headers = headers_of(request.headers if isinstance(request, AnswerModel) else http.headers)
        headers = self._same.setdefault(headers, headers)
        body = b"".join(decode_body(request, self._path, step.request_at))
        return Request(intern(http.method), intern(http.path), headers, body)

    def _response(self, step: _Step, timing: ExchangeFactsModel | None) -> Response | None:
        recorded = step.response
        if recorded is None:
            return None
        raw: Sequence[bytes] = decode_body(recorded, self._path, step.response_at)
        facts = timing.pieces if timing is not None else None
        if facts and recorded.events is None:
            raw = _cut(b"".join(raw), [piece.size or 0 for piece in facts])
        if facts is None or len(facts) != len(raw):
            pieces = [Piece(piece, 0, 0) for piece in raw]
        else:
            pieces = [
                Piece(piece, fact.at_ms, fact.after) for piece, fact in zip(raw, facts, strict=True)
            ]
        headers = headers_of(recorded.headers)
        headers = self._same.setdefault(headers, headers)
        end = End.COMPLETE if recorded.end is None else End(recorded.end)
        return Response(recorded.status, headers, tuple(pieces), end)


def _echoed(call: Call, response: Response | None) -> Echoed | _Unread:
    """Find what a body of one message repeats; of a stream, which has many, when it is played."""
    if response is None or response.is_event_stream:
        return _Unread.ECHOED
    return echoed_in(call.message, response)


def _cut(raw: bytes, sizes: Iterable[int]) -> Sequence[bytes]:
    """Cut a body into pieces of these sizes; a rest, as after editing, goes to the last."""
    at = 0
    pieces = []
    for size in sizes:
        pieces.append(raw[at : at + size])
        at += size
    if pieces:
        pieces[-1] += raw[at:]
    return pieces


def _set_gates(nodes: Sequence[Node]) -> None:
    """Work out which requests each piece of a response has to wait for.

    A stream that listens tells what other requests caused: its events wait for the calls that had
    arrived by then. A response in whose stream the server pushed a request waits for the client's
    answer to that. Nothing else waits, because parallel calls owe each other nothing.
    """
    causing = sorted(
        node.number for node in nodes if node.number is not None and _can_cause_events(node)
    )
    answering: dict[str | None, list[int]] = {}
    for node in nodes:
        if node.number is not None and node.kind is Kind.RESPONSE:
            message = node.call.message
            answering.setdefault(message.id if message else None, []).append(node.number)
    for node in nodes:
        if node.response is None:
            continue
        number, pieces = node.number, node.response.pieces
        if number is not None and _listens(node):
            node.gates = tuple(
                frozenset(n for n in causing if number < n <= piece.after) for piece in pieces
            )
        elif number is not None and answering and node.response.is_event_stream:
            node.gates = _gates_of_pushed(number, node.response, answering)
        else:
            node.gates = _no_gates(len(pieces))


@lru_cache(maxsize=64)
def _no_gates(pieces: int) -> tuple[frozenset[int], ...]:
    return (frozenset(),) * pieces


def _listens(node: Node) -> bool:
    if node.kind is None:
        return node.request.method == "GET"
    return node.key.method == "subscriptions/listen"


def _can_cause_events(node: Node) -> bool:
    return node.kind is Kind.REQUEST and not is_reading(node.key.method)


def _gates_of_pushed(
    number: int, response: Response, answering: dict[str | None, list[int]]
) -> tuple[frozenset[int], ...]:
    """Return the gates of a response in whose stream the server may have pushed requests."""
    answers_to = {
        located.piece: min(
            (n for n in answering.get(located.message.id, ()) if n > number), default=0
        )
        for located in messages_in(response)
        if located.message.kind is Kind.REQUEST
    }
    gates = []
    pushed: set[int] = set()
    for index, piece in enumerate(response.pieces):
        gates.append(frozenset(answer for answer in pushed if 0 < answer <= piece.after))
        pushed.add(answers_to.get(index, 0))
    return tuple(gates)
