"""What is known of what was recorded: exchanges, interactions, a whole cassette."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from mrtr_cassette.core.protocol.calls import Call, read_call
from mrtr_cassette.core.protocol.dialect import InputRequest, input_request, may_ask
from mrtr_cassette.core.protocol.jsonrpc import Message
from mrtr_cassette.core.protocol.messages import Ask, Located, ask_in, completed_by, response_to
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.wire.http import Request, Response

RequestState = Literal["sealed", "verbatim"]
Transport = Literal["http", "stdio"]


class RecordedBy(NamedTuple):
    """The id of the recorder that saw an exchange, and its number in arrival order there."""

    recorder: str
    number: int


class RecorderFacts(NamedTuple):
    """One of the recorders whose exchanges are in a recording."""

    id: str
    wall_ms: float
    """Its wall clock when it began, in milliseconds since 1970."""
    offset_ms: float = 0
    """When it began, on the common time of the exchanges of all recorders."""


@dataclass(frozen=True, slots=True, eq=False)
class RecordedExchange:
    """One request and its response, as they are kept.

    Two of them are equal only if they are the same one: equal calls may be recorded often.

    Attributes:
        number: place in the order in which requests arrived, from 1; None where a cassette doesn't
            tell.
        request: the request.
        response: the response, or None where none began.
        started_ms: when the request had arrived, in milliseconds since the recording began.
        ended_ms: when the response ended.
        issued_sha256: hash of the raw request state that the response issued, or None.
        echoed_sha256: hash of the raw request state that the request carried, or None.
        ended_after: how many requests had arrived when the response ended, if known.
        recorded_by: which recorder saw it, if known.
    """

    number: int | None
    request: Request
    response: Response | None
    started_ms: float
    ended_ms: float
    issued_sha256: str | None
    echoed_sha256: str | None
    ended_after: int | None = None
    recorded_by: RecordedBy | None = None

    # The messages are read each time anew.

    @property
    def call(self) -> Call:
        """The request, read."""
        return read_call(self.request)

    @property
    def ask(self) -> Ask | None:
        """Where the response asks for input; None where it doesn't."""
        response = self.response
        if response is None or not may_ask(response.body):
            return None
        return ask_in(self.call.message, response)

    @property
    def located_response(self) -> Located | None:
        """The JSON-RPC response to its request, and its place; or None."""
        response = self.response
        return None if response is None else response_to(self.call.message, response)

    @property
    def rpc_response(self) -> Message | None:
        """The JSON-RPC response to its request, or None."""
        located = self.located_response
        return None if located is None else located.message

    @property
    def rpc_members(self) -> Mapping[str, Any]:
        """The members of the JSON-RPC response to its request; none where there is no response."""
        response = self.rpc_response
        return {} if response is None else response.tree

    @property
    def next_cursor(self) -> str | None:
        """The cursor that its response, a page of a list, issued for the next one; or None."""
        response = self.response
        if response is None or b'"nextCursor"' not in response.body:
            return None
        result = self.rpc_members.get("result")
        cursor = result.get("nextCursor") if isinstance(result, dict) else None
        return cursor if isinstance(cursor, str) else None


@dataclass(frozen=True, slots=True, eq=False)
class PushedRequest:
    """A request that the server sent of itself, to be answered by a JSON-RPC response.

    Attributes:
        key: our name for it within its turn, such as `elicitation-1`.
        exchange: in whose response it stands: the call's own, or a listening stream.
        piece: index of the piece of that response that completes it.
        interaction: number of the interaction whose last response that is, where it is not the
            one that was pending.
    """

    key: str
    exchange: RecordedExchange
    piece: int
    interaction: int | None = None

    @property
    def message(self) -> Message:
        """The request as a JSON-RPC message."""
        response = self.exchange.response
        message = None if response is None else completed_by(response, self.piece)
        if message is None:
            raise AssertionError("unreachable because a pushed request is a message of a response")
        return message

    @property
    def asks(self) -> InputRequest:
        """What it asks."""
        message = self.message
        return input_request(message.method, message.params)


@dataclass(frozen=True, slots=True, eq=False)
class PostedAnswer:
    """The exchange in which a client posted the response to the pushed request with this key."""

    key: str
    exchange: RecordedExchange


def posted_answer(response: Message | None) -> Any:
    """Return what a posted response says: its result, or an object with its error."""
    tree: Mapping[str, Any] = {} if response is None else response.tree
    return tree["result"] if "result" in tree else {"error": tree.get("error")}


@dataclass(frozen=True, slots=True, eq=False)
class PushedTurn:
    """Pushed requests that were open together, and the answers to them.

    Attributes:
        position: index of the exchange that was pending meanwhile, among those of its interaction.
        asked: the requests, in the order in which they came.
        answers: the answers, in the order in which they came; a request may have none.
    """

    position: int
    asked: tuple[PushedRequest, ...]
    answers: tuple[PostedAnswer, ...]

    @property
    def requests(self) -> dict[str, InputRequest]:
        """What the server asked, by key."""
        return {each.key: each.asks for each in self.asked}

    @property
    def posted(self) -> dict[str, Any] | None:
        """What the client answered, by key; None where it never answered."""
        return {
            each.key: posted_answer(each.exchange.call.message) for each in self.answers
        } or None


def asking_turn(position: int, pushed_turns: Iterable[PushedTurn]) -> int:
    """Return the number of the turn that the response of the exchange at a position asks."""
    # What was pushed while its request was pending comes before it.
    return position + 1 + sum(turn.position <= position for turn in pushed_turns)


class TurnPlace(NamedTuple):
    """Where in its interaction an exchange stands.

    Attributes:
        turn: number of the turn that its request answers, from 1; 0 for the first request.
        answer: index of a posted answer among those of its turn; None for any other exchange.
    """

    turn: int
    answer: int | None = None


class Branch(NamedTuple):
    """Where an interaction parts from another one: that one's ask, answered in another way.

    Attributes:
        of: number of the other interaction, from 1.
        turn: number of the turn whose ask they share, from 1.
    """

    of: int
    turn: int


@dataclass(frozen=True, slots=True, eq=False)
class RecordedInteraction:
    """One logical call: its exchanges from the first request to the last response.

    The exchange at index `position` answers, in its request, the ask of the one before it.
    What the server pushed meanwhile, and what was posted in return, stands in `pushed_turns`.

    Attributes:
        number: its number in the cassette, from 1.
        exchanges: all of them but posted answers; it shares the first ones with the interaction
            that it parts from.
        branch: where it parts from another interaction, or None.
        is_orphan: its first request continues a state that no recorded ask issued.
        pushed_turns: its turns in which the server pushed the asks, in order.
    """

    number: int
    exchanges: tuple[RecordedExchange, ...]
    branch: Branch | None
    is_orphan: bool
    pushed_turns: tuple[PushedTurn, ...] = ()

    @property
    def shared(self) -> int:
        """How many of `exchanges` it shares with the interaction that it parts from."""
        if self.branch is None:
            return 0
        turn = self.branch.turn
        return turn - sum(number < turn for number in self.pushed_numbers)

    @property
    def own(self) -> tuple[RecordedExchange, ...]:
        """The exchanges that no earlier interaction has, posted answers after all others."""
        shared = self.shared
        own = self.exchanges[shared:]
        if not self.pushed_turns:
            return own
        turns = (turn for turn in self.pushed_turns if turn.position >= shared)
        return (*own, *(answer.exchange for turn in turns for answer in turn.answers))

    @property
    def places(self) -> tuple[TurnPlace, ...]:
        """Where in the interaction each exchange of `own` stands."""
        shared = self.shared
        if not self.pushed_turns:
            return tuple([TurnPlace(at) for at in range(shared, len(self.exchanges))])
        positions = [turn.position for turn in self.pushed_turns]
        places = [
            TurnPlace(position and position + bisect_left(positions, position))
            for position in range(shared, len(self.exchanges))
        ]
        places += [
            TurnPlace(number, index)
            for turn, number in zip(self.pushed_turns, self.pushed_numbers, strict=True)
            if turn.position >= shared
            for index in range(len(turn.answers))
        ]
        return tuple(places)

    def asking_turn(self, position: int) -> int:
        """Return the number of the turn that the response of one of `exchanges` asks."""
        return asking_turn(position, self.pushed_turns)

    @property
    def pushed_numbers(self) -> list[int]:
        """The number of each pushed turn among all turns."""
        return [turn.position + at for at, turn in enumerate(self.pushed_turns, start=1)]


@dataclass(frozen=True, slots=True)
class Cassette:
    """A recording, loaded.

    Attributes:
        path: the file's path, as messages show it.
        upstream: the server's URL, without credentials; or its command.
        request_state: whether raw states were replaced by surrogates.
        redaction: by which rules secrets became placeholders; None where nothing was redacted.
        seals_answers: of what users answered only hashes were kept.
        recorded_at: ISO 8601, UTC.
        tool: name and version of the program that recorded it.
        interactions: in the order of the file.
        transport: what it was recorded over.
        client: over stdio, hash of the process that started the recorder; else None.
        recorders: those that saw the exchanges; none where that is not known.
    """

    path: str
    upstream: str
    request_state: RequestState
    redaction: RedactionRules | None
    seals_answers: bool
    recorded_at: str
    tool: str
    interactions: tuple[RecordedInteraction, ...]
    transport: Transport = "http"
    client: str | None = None
    recorders: tuple[RecorderFacts, ...] = ()

    def with_exchanges(
        self,
        changed: Mapping[RecordedExchange, RecordedExchange],
        pieces: Mapping[RecordedExchange, Sequence[int]] | None = None,
    ) -> Cassette:
        """Return the same with other exchanges in the place of some, wherever they stand.

        Args:
            pieces: for each exchange the new index of each piece of its response, where they moved.
        """

        def new(each: RecordedExchange) -> RecordedExchange:
            return changed.get(each, each)

        def turn_of(turn: PushedTurn) -> PushedTurn:
            asked = [
                replace(
                    each,
                    exchange=new(each.exchange),
                    piece=pieces[each.exchange][each.piece] if pieces else each.piece,
                )
                for each in turn.asked
            ]
            answers = [PostedAnswer(each.key, new(each.exchange)) for each in turn.answers]
            return PushedTurn(turn.position, tuple(asked), tuple(answers))

        interactions = [
            replace(
                each,
                exchanges=tuple(map(new, each.exchanges)),
                pushed_turns=tuple(map(turn_of, each.pushed_turns)),
            )
            for each in (self.interactions if changed else ())
        ]
        return replace(self, interactions=tuple(interactions)) if changed else self


class PushedAsk(NamedTuple):
    """A pushed request in the response that it stands in.

    Attributes:
        interaction: number of the interaction that it belongs to.
        turn: number of its turn there.
        call: the request during which the server asked.
        request: the pushed request.
    """

    interaction: int
    turn: int
    call: Call
    request: PushedRequest


def pushed_asks(
    interactions: Iterable[RecordedInteraction],
) -> dict[RecordedExchange, list[PushedAsk]]:
    """Return what servers pushed, by the exchange in whose response it stands."""
    asks: dict[RecordedExchange, list[PushedAsk]] = {}
    for each in interactions:
        for turn, number in zip(each.pushed_turns, each.pushed_numbers, strict=True):
            call = each.exchanges[turn.position].call
            for request in turn.asked if turn.position >= each.shared else ():
                ask = PushedAsk(each.number, number, call, request)
                asks.setdefault(request.exchange, []).append(ask)
    return asks
