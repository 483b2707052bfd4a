"""What is known of what was recorded: exchanges, interactions, a whole cassette.

Rule: each value is complete when it is made, and never changes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from mrtr_cassette.core.protocol.calls import Call, read_call
from mrtr_cassette.core.protocol.dialect import may_ask
from mrtr_cassette.core.protocol.jsonrpc import Message
from mrtr_cassette.core.protocol.messages import Ask, Located, ask_in, response_to
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.wire.http import Request, Response

RequestState = Literal["sealed", "verbatim"]
Transport = Literal["http", "stdio"]


class RecordedBy(NamedTuple):
    """Which recorder saw an exchange, and as which of its own.

    Attributes:
        recorder: the recorder's id.
        number: place in the order in which requests arrived there, from 1.
    """

    recorder: str
    number: int


class RecorderFacts(NamedTuple):
    """One of the recorders whose exchanges are in a recording.

    Attributes:
        id: made up when it began.
        wall_ms: its wall clock when it began, in milliseconds since 1970.
        offset_ms: when it began, on the common time of the exchanges of all recorders.
    """

    id: str
    wall_ms: float
    offset_ms: float = 0


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
        ended_after: how many requests had arrived when the response ended; None where it is not
            known.
        recorded_by: which recorder saw it; None where that is not known.
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

    @property
    def call(self) -> Call:
        """The request, read; each time anew."""
        return read_call(self.request)

    @property
    def ask(self) -> Ask | None:
        """Where the response asks for input, read each time anew; None where it doesn't."""
        response = self.response
        if response is None or not may_ask(response.body):
            return None
        return ask_in(self.call.message, response)

    @property
    def located_response(self) -> Located | None:
        """The JSON-RPC response to its request, and its place, read each time anew; or None."""
        response = self.response
        return None if response is None else response_to(self.call.message, response)

    @property
    def rpc_response(self) -> Message | None:
        """The JSON-RPC response to its request, read each time anew; or None."""
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


@dataclass(frozen=True, slots=True, eq=False)
class PostedAnswer:
    """The response that a client posted to a pushed request.

    Attributes:
        key: that of the pushed request.
        exchange: the request that carried the response.
    """

    key: str
    exchange: RecordedExchange


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


def asking_turn(position: int, pushed_turns: Iterable[PushedTurn]) -> int:
    """Return the number of the turn that the response of an exchange asks.

    Args:
        position: index of the exchange among those of its interaction.
    """
    # What was pushed while its request was pending comes before it.
    return position + 1 + sum(turn.position <= position for turn in pushed_turns)


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
        path: how messages name its file.
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
