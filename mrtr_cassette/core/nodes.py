"""A cassette as replay knows it: its exchanges, read, and what each has to wait for.

Owns: turning the file's interactions into a tree of exchanges, branches joined where they part.
Does not own: which exchange a request gets (`player`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from mrtr_cassette.core.calls import Call, CallKey, is_reading, read_call
from mrtr_cassette.core.cassette import (
    Answering,
    Asking,
    Cassette,
    ExchangeFacts,
    Interaction,
    Responding,
)
from mrtr_cassette.core.codec import decode_body, headers_of
from mrtr_cassette.core.dialect import Ask
from mrtr_cassette.core.jsonbytes import Path, canonical
from mrtr_cassette.core.jsonrpc import Kind
from mrtr_cassette.core.messages import ask_in, messages_in, response_to
from mrtr_cassette.core.seal import sha256_of
from mrtr_cassette.core.wire import End, Piece, Request, Response


@dataclass(eq=False)
class Node:
    """One recorded exchange and what replay knows of it.

    Attributes:
        interaction: number of the interaction, from 1.
        turn: the turn that its request answers, from 1; 0 for a first request.
        call: the recorded request.
        key: its call key.
        response: the recorded response, or None where there was none.
        ask: the ask that the response is, or None.
        parent: the exchange whose ask it answers; None for a first request and an orphan.
        number: the exchange's number in the recording, or None where that is not known.
        raw_echoed_sha256: hash of the raw state that the request carried while it was recorded.
        raw_issued_sha256: hash of the raw state that the ask issued while it was recorded.
        gates: for each piece of the response, the exchanges whose requests it waits for.
        played: how often it has been played.
    """

    interaction: int
    turn: int
    call: Call
    key: CallKey
    response: Response | None
    ask: Ask | None
    parent: Node | None
    number: int | None
    raw_echoed_sha256: str | None
    raw_issued_sha256: str | None
    gates: tuple[frozenset[int], ...] = ()
    played: int = 0

    @property
    def issued_sha256(self) -> str | None:
        """Hash of the request state that its ask issues on replay, or None."""
        state = self.ask.request_state if self.ask is not None else None
        return None if state is None else sha256_of(state)

    @cached_property
    def question(self) -> tuple[CallKey, str] | None:
        """What its ask asks, where the ask has no state: equal asks of a call are the same one."""
        message, response = self.call.message, self.response
        if self.ask is None or self.ask.request_state is not None:
            return None
        located = response_to(message, response) if message and response else None
        result = located.message.tree["result"] if located is not None else {}
        return self.key, canonical(result.get("inputRequests"))

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
) -> list[list[Node]]:
    """Return each interaction's own exchanges; those a branch shares are the other's.

    Args:
        cassette: what was recorded.
        path: how messages name its file.
        ignored: members of the params that don't count.
        matched_as: what a request is matched as, where that is not itself.

    Raises:
        CassetteError: a body isn't what was recorded, or not what its place asks for.
    """
    timings = {(facts.interaction, facts.turn): facts for facts in cassette.recording.exchanges}
    whole: list[list[Node]] = []
    own: list[list[Node]] = []
    for index, interaction in enumerate(cassette.interactions):
        branch = interaction.branch
        shared = branch.turn if branch is not None else 0
        chain = whole[branch.of - 1][:shared] if branch is not None else []
        for turn, step in enumerate(_steps(interaction, f"/interactions/{index}")):
            timing = timings.get((index + 1, turn))
            request = _request(interaction, step, path)
            response = _response(step, timing, path)
            if turn >= shared:
                call = read_call(matched_as(request))
                found = ask_in(call.message, response) if response is not None else None
                node = Node(
                    interaction=index + 1,
                    turn=turn,
                    call=call,
                    key=call.key(ignored),
                    response=response,
                    ask=found[1] if found is not None else None,
                    parent=chain[-1] if chain else None,
                    number=timing.number if timing is not None else None,
                    raw_echoed_sha256=timing.echoed_state_sha256 if timing is not None else None,
                    raw_issued_sha256=timing.request_state_sha256 if timing is not None else None,
                )
                chain = [*chain, node]
        whole.append(chain)
        own.append(chain[shared:])
    _set_gates([node for nodes in own for node in nodes])
    return own


def _request(interaction: Interaction, step: _Step, path: str) -> Request:
    http = interaction.request.http
    request = step.request
    headers = request.headers if isinstance(request, Answering) else http.headers
    body = b"".join(decode_body(request, path, step.request_at))
    return Request(http.method, http.path, headers_of(headers), body)


def _response(step: _Step, timing: ExchangeFacts | None, path: str) -> Response | None:
    recorded = step.response
    if recorded is None:
        return None
    raw = decode_body(recorded, path, step.response_at)
    end = End.COMPLETE if recorded.end is None else End(recorded.end)
    facts = timing.pieces if timing is not None else None
    if facts and recorded.events is None:
        raw = tuple(_cut(b"".join(raw), [piece.size or 0 for piece in facts]))
    if facts is None or len(facts) != len(raw):
        pieces = tuple(Piece(piece, 0, 0) for piece in raw)
    else:
        pieces = tuple(
            Piece(piece, fact.at_ms, fact.after) for piece, fact in zip(raw, facts, strict=True)
        )
    return Response(recorded.status, headers_of(recorded.headers), pieces, end)


def _cut(raw: bytes, sizes: Iterable[int]) -> Iterable[bytes]:
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
        message = node.call.message
        if node.number is not None and message is not None and message.kind is Kind.RESPONSE:
            answering.setdefault(message.id, []).append(node.number)
    for node in nodes:
        if node.response is None:
            continue
        pieces = node.response.pieces
        nothing: frozenset[int] = frozenset()
        if node.number is None:
            node.gates = (nothing,) * len(pieces)
        elif _listens(node):
            node.gates = tuple(
                frozenset(n for n in causing if node.number < n <= piece.after) for piece in pieces
            )
        else:
            node.gates = _gates_of_pushed(node.number, node.response, answering)


def _listens(node: Node) -> bool:
    message = node.call.message
    if message is None:
        return node.call.request.method == "GET"
    return message.method == "subscriptions/listen"


def _can_cause_events(node: Node) -> bool:
    message = node.call.message
    return message is not None and message.kind is Kind.REQUEST and not is_reading(message.method)


def _gates_of_pushed(
    number: int, response: Response, answering: dict[str | None, list[int]]
) -> tuple[frozenset[int], ...]:
    """Return the gates of a response in whose stream the server may have pushed requests."""
    if not response.is_event_stream or not answering:
        return (frozenset(),) * len(response.pieces)
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
