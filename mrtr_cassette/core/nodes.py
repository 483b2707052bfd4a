"""A cassette as replay knows it: its exchanges, read, and what each has to wait for.

Owns: turning the file's interactions into a tree of exchanges, branches joined where they part.
Does not own: which exchange a request gets (`player`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from sys import intern
from typing import Any, NamedTuple

from mrtr_cassette.core.calls import Call, CallKey, Slot, Traits, is_reading, read_call, slot_of
from mrtr_cassette.core.cassette import (
    Answering,
    Asking,
    Cassette,
    ExchangeFacts,
    Interaction,
    Responding,
)
from mrtr_cassette.core.codec import decode_body, headers_of
from mrtr_cassette.core.dialect import Ask, may_ask
from mrtr_cassette.core.jsonbytes import Path, canonical
from mrtr_cassette.core.jsonrpc import Kind, Message
from mrtr_cassette.core.messages import ask_in, messages_in
from mrtr_cassette.core.own import rest_of
from mrtr_cassette.core.seal import sha256_of
from mrtr_cassette.core.wire import End, Piece, Request, Response


class _Unread(Enum):
    """Stands for what has not been looked for yet."""

    ASK = 1


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
        parent: the exchange whose ask it answers; None for a first request and an orphan.
        number: the exchange's number in the recording, or None where that is not known.
        raw_echoed_sha256: hash of the raw state that the request carried while it was recorded.
        raw_issued_sha256: hash of the raw state that the ask issued while it was recorded.
        rest: what is left of the request's body without the caller's own values, or None.
        gates: for each piece of the response, the exchanges whose requests it waits for.
        played: how often it has been played.
    """

    interaction: int
    turn: int
    request: Request
    kind: Kind | None
    slot: Slot
    traits: Traits
    caller: str
    response: Response | None
    parent: Node | None
    number: int | None = None
    raw_echoed_sha256: str | None = None
    raw_issued_sha256: str | None = None
    rest: bytes | None = None
    gates: tuple[frozenset[int], ...] = ()
    played: int = 0
    _asked: tuple[Ask, Message] | _Unread | None = _Unread.ASK

    @property
    def call(self) -> Call:
        """The recorded request, read."""
        return read_call(self.request)

    @property
    def key(self) -> CallKey:
        """Its call key."""
        return self.slot[0]

    def match_as(self, request: Request, ignored: Collection[Path]) -> None:
        """Take another request in the recorded one's place, such as one without its secrets."""
        if request != self.request:
            call = read_call(request)
            self.request = request
            self.slot, self.traits = slot_of(call, ignored), call.traits
            self.caller = call.caller

    @property
    def ask(self) -> Ask | None:
        """The ask that the response is, or None."""
        found = self._found()
        return None if found is None else found[0]

    def _found(self) -> tuple[Ask, Message] | None:
        if isinstance(self._asked, _Unread):
            found = None
            if self.response is not None and may_ask(self.response.body):
                found = ask_in(self.call.message, self.response)
            self._asked = None if found is None else (found[1], found[0].message)
        return self._asked

    @property
    def issued_sha256(self) -> str | None:
        """Hash of the request state that its ask issues on replay, or None."""
        state = self.ask.request_state if self.ask is not None else None
        return None if state is None else sha256_of(state)

    @property
    def question(self) -> tuple[CallKey, str] | None:
        """What its ask asks, where the ask has no state: equal asks of a call are the same one."""
        found = self._found()
        if found is None or found[0].request_state is not None:
            return None
        return self.key, canonical(found[1].tree["result"].get("inputRequests"))

    def issued(self, sha256: str) -> bool:
        """Tell whether its ask issued a state with this hash, on replay or while recorded."""
        return self.ask is not None and sha256 in {self.issued_sha256, self.raw_issued_sha256}


class _Step(NamedTuple):
    """One exchange as the file has it, and where."""

    request: Asking | Answering
    request_at: str
    response: Responding | None
    response_at: str


def _steps(interaction: Interaction, pointer: str) -> Iterator[_Step]:
    request: Asking | Answering = interaction.request
    at = f"{pointer}/request"
    for index, turn in enumerate(interaction.elicitation_turns):
        turn_at = f"{pointer}/elicitation_turns/{index}"
        yield _Step(request, at, turn.ask, f"{turn_at}/ask")
        if turn.answer is None:
            return
        request, at = turn.answer, f"{turn_at}/answer"
    yield _Step(request, at, interaction.response, f"{pointer}/response")


def read_nodes(
    cassette: Cassette,
    path: str,
    ignored: Collection[Path] = (),
    matched_as: Callable[[Request], Request] = lambda request: request,
    *,
    interactions: Iterable[Interaction] | None = None,
    exchanges: Iterable[ExchangeFacts] | None = None,
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
    # Of many exchanges most have the same headers, traits and callers: one of each is enough.
    same: dict[Any, Any] = {}
    whole: list[list[Node]] = []
    own: list[list[Node]] = []
    recorded = cassette.interactions if interactions is None else interactions
    for index, interaction in enumerate(recorded):
        branch = interaction.branch
        shared = branch.turn if branch is not None else 0
        chain = whole[branch.of - 1][:shared] if branch is not None else []
        for turn, step in enumerate(_steps(interaction, f"/interactions/{index}")):
            timing = timings.of(index + 1, turn)
            request = _request(interaction, step, path, same)
            response = _response(step, timing, path, same)
            if turn >= shared:
                call = read_call(matched_as(request))
                parent = chain[-1] if chain else None
                key, state, answers = slot_of(call, ignored)
                key = CallKey(intern(key[0]), intern(key[1]), intern(key[2]), key[3])
                traits, caller = call.traits, call.caller
                node = Node(
                    index + 1,
                    turn,
                    call.request,
                    None if call.message is None else call.message.kind,
                    (key, state, answers),
                    same.setdefault(traits, traits),
                    same.setdefault(caller, caller),
                    response,
                    parent,
                )
                if timing is not None:
                    node.number = timing.number
                    node.raw_echoed_sha256 = timing.echoed_state_sha256
                    node.raw_issued_sha256 = timing.request_state_sha256
                if call.message is not None:
                    node.rest = rest_of(call.message)
                chain.append(node)
        whole.append(chain)
        own.append(chain[shared:] if shared else chain)
    timings.read_rest()
    _set_gates([node for nodes in own for node in nodes])
    return own


class _Timings:
    """The facts of exchanges, read no further than they are wanted: most stand in file order."""

    def __init__(self, facts: Iterable[ExchangeFacts]) -> None:
        self._coming = iter(facts)
        self._read: dict[tuple[int, int], ExchangeFacts] = {}

    def of(self, interaction: int, turn: int) -> ExchangeFacts | None:
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


def _request(interaction: Interaction, step: _Step, path: str, same: dict[Any, Any]) -> Request:
    http = interaction.request.http
    request = step.request
    headers = headers_of(request.headers if isinstance(request, Answering) else http.headers)
    body = b"".join(decode_body(request, path, step.request_at))
    return Request(intern(http.method), intern(http.path), same.setdefault(headers, headers), body)


def _response(
    step: _Step, timing: ExchangeFacts | None, path: str, same: dict[Any, Any]
) -> Response | None:
    recorded = step.response
    if recorded is None:
        return None
    raw: Sequence[bytes] = decode_body(recorded, path, step.response_at)
    end = End.COMPLETE if recorded.end is None else End(recorded.end)
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
    return Response(recorded.status, same.setdefault(headers, headers), tuple(pieces), end)


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
