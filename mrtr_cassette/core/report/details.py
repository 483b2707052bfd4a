"""All that a cassette has of each call: what `inspection` says of it, and what it leaves out.

Rule: texts are as they were recorded; whoever shows one makes it printable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from mrtr_cassette.core.exchange.recorded import (
    Cassette,
    PushedTurn,
    RecordedExchange,
    RecordedInteraction,
)
from mrtr_cassette.core.exchange.sessions import listens, opened_session, session_of
from mrtr_cassette.core.protocol.calls import Call
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.protocol.messages import messages_in
from mrtr_cassette.core.report.endings import Endings
from mrtr_cassette.core.report.inspection import Inspection, Interaction, inspected
from mrtr_cassette.core.wire.http import Response
from mrtr_cassette.errors import counted

_CLIENT_INFO = "io.modelcontextprotocol/clientInfo"

FinalKind = Literal["result", "failed result", "error", "text", "nothing"]
"""A result, one with `isError`, a JSON-RPC error, a body that is no response to a call, or none."""


class FinalResponse(NamedTuple):
    """What a call got in the end.

    Attributes:
        kind: what it is.
        value: the result or the error, as `jsonbytes.parse` returns it; or the text of the body.
    """

    kind: FinalKind
    value: Any


class Said(NamedTuple):
    """A notification that a server sent on the stream of a call.

    Attributes:
        at_ms: milliseconds since the recording began.
        method: its method.
        params: its params; empty where it has none.
    """

    at_ms: float
    method: str
    params: Mapping[str, Any]


Whose = Literal["server", "person"]


class Stretch(NamedTuple):
    """Time in which a call waited for the server, or for whoever answers what the server asked.

    Attributes:
        whose: who was waited for.
        start_ms: milliseconds since the recording began.
        end_ms: not before `start_ms`.
    """

    whose: Whose
    start_ms: float
    end_ms: float


@dataclass(frozen=True, slots=True)
class InteractionDetails:
    """One logical call on a cassette, with all that was said.

    Attributes:
        interaction: its outline.
        method: its JSON-RPC method, or the HTTP method and path.
        name: of the tool or prompt, the URI of the resource, or an empty string.
        parameters: what its first request sent beside its name; None where there is nothing.
        client: name and version of the client, or an empty string.
        session: id of its session, or an empty string.
        final: what it got in the end.
        said: what the server said on its own streams.
        stretches: its own time, in order.
        answering_ms: how long each turn waited for its answers; None where it was not answered.
        listens: it is a stream that tells what other calls caused.
    """

    interaction: Interaction
    method: str
    name: str
    parameters: Any
    client: str
    session: str
    final: FinalResponse
    said: tuple[Said, ...]
    stretches: tuple[Stretch, ...]
    answering_ms: tuple[float | None, ...]
    listens: bool


@dataclass(frozen=True, slots=True)
class CassetteDetails:
    """A cassette with all that was said.

    Attributes:
        inspection: its outline.
        transport: what it was recorded over.
        redacts: known secrets were replaced by placeholders.
        seals_answers: of what users answered only hashes were kept.
        interactions: in the order of the file.
    """

    inspection: Inspection
    transport: str
    redacts: bool
    seals_answers: bool
    interactions: tuple[InteractionDetails, ...]


def detailed(cassette: Cassette) -> CassetteDetails:
    """Return all that a cassette has."""
    inspection = inspected(cassette)
    endings = Endings(cassette.interactions)
    pairs = zip(cassette.interactions, inspection.interactions, strict=True)
    return CassetteDetails(
        inspection,
        cassette.transport,
        cassette.redaction is not None,
        cassette.seals_answers,
        tuple(_details(recorded, interaction, endings) for recorded, interaction in pairs),
    )


def _details(
    recorded: RecordedInteraction, interaction: Interaction, endings: Endings
) -> InteractionDetails:
    first, last = recorded.exchanges[0], recorded.exchanges[-1]
    call = first.call
    chain = recorded.exchanges[recorded.shared :]
    return InteractionDetails(
        interaction=interaction,
        method=call.method or call.title,
        name=call.name,
        parameters=_parameters(call),
        client=_client(call),
        session=session_of(first.request) or opened_session(first.response),
        final=_final_response(last, endings),
        said=tuple(said for exchange in chain for said in _said_in(exchange)),
        stretches=tuple(_stretches(recorded)),
        answering_ms=_answering_times(recorded),
        listens=listens(call, first.response),
    )


def _parameters(call: Call) -> Any:
    """Return what a request sends beside its method and name; of a call only its arguments."""
    message = call.message
    if message is None or not call.is_rpc:
        return None
    parameters: Any = {key: value for key, value in message.params.items() if key != "_meta"}
    if call.name:
        parameters = parameters.get("arguments")
    return parameters or None


def _client(call: Call) -> str:
    message = call.message
    if message is None:
        return ""
    info = message.meta.get(_CLIENT_INFO) or message.params.get("clientInfo")
    if not isinstance(info, dict):
        return ""
    facts = (info.get("title") or info.get("name"), info.get("version"))
    return " ".join(fact for fact in facts if isinstance(fact, str))


def _final_response(exchange: RecordedExchange, endings: Endings) -> FinalResponse:
    message = None if exchange.ask is not None else endings.final_message(exchange)
    if message is not None and "error" in message.tree:
        return FinalResponse("error", message.tree["error"])
    if message is not None:
        result = message.tree.get("result")
        failed = isinstance(result, dict) and result.get("isError") is True
        return FinalResponse("failed result" if failed else "result", result)
    response = exchange.response
    # The messages of a stream are told one by one.
    if exchange.ask is not None or response is None or response.is_framed or not response.body:
        return FinalResponse("nothing", None)
    return FinalResponse("text", _text_of(response))


def _text_of(response: Response) -> str:
    body = response.body
    try:
        return body.decode()
    except UnicodeDecodeError:
        return f"({counted(len(body), 'byte')} that are no text)"


def _said_in(exchange: RecordedExchange) -> Iterator[Said]:
    response = exchange.response
    if response is None:
        return
    for located in messages_in(response):
        message = located.message
        if message.kind is Kind.NOTIFICATION:
            yield Said(response.pieces[located.piece].at_ms, message.method, message.params)


# Time


def _stretches(recorded: RecordedInteraction) -> Iterator[Stretch]:
    """Yield whose time passed during a call, without what it shares with another one."""
    exchanges, shared = recorded.exchanges, recorded.shared
    for position in range(shared, len(exchanges)):
        exchange = exchanges[position]
        ask = exchanges[position - 1].ask if position > shared else None
        # A client that is to call again, and nothing else, asks nobody.
        if ask is not None and ask.input_requests:
            asked_ms = exchanges[position - 1].ended_ms
            yield _stretch("person", asked_ms, exchange.started_ms)
        at_ms = exchange.started_ms
        for turn in recorded.pushed_turns:
            waiting = _waiting(turn) if turn.position == position else None
            if waiting is not None:
                yield _stretch("server", at_ms, waiting.start_ms)
                yield waiting
                at_ms = waiting.end_ms
        yield _stretch("server", at_ms, exchange.ended_ms)


def _stretch(whose: Whose, start_ms: float, end_ms: float) -> Stretch:
    # A client may send its answers before a response that has asked has ended.
    return Stretch(whose, start_ms, max(start_ms, end_ms))


def _waiting(turn: PushedTurn) -> Stretch | None:
    """Return the time from the first pushed request of a turn to its last answer, if any came."""
    if not turn.answers:
        return None
    asked_ms = min(_pushed_ms(pushed.exchange, pushed.piece) for pushed in turn.asked)
    return _stretch("person", asked_ms, max(each.exchange.started_ms for each in turn.answers))


def _pushed_ms(exchange: RecordedExchange, piece: int) -> float:
    response = exchange.response
    return exchange.started_ms if response is None else response.pieces[piece].at_ms


def _answering_times(recorded: RecordedInteraction) -> tuple[float | None, ...]:
    """Return how long each turn waited for its answers, in the order of the turns."""
    times: dict[int, float | None] = {}
    for turn, number in zip(recorded.pushed_turns, recorded.pushed_numbers, strict=True):
        waiting = _waiting(turn)
        times[number] = None if waiting is None else waiting.end_ms - waiting.start_ms
    exchanges = recorded.exchanges
    for position, exchange in enumerate(exchanges):
        following = exchanges[position + 1] if position + 1 < len(exchanges) else None
        if following is not None:
            waited_ms = max(0.0, following.started_ms - exchange.ended_ms)
            times[recorded.asking_turn(position)] = waited_ms
        elif exchange.ask is not None:
            times[recorded.asking_turn(position)] = None
    return tuple(times[number] for number in sorted(times))
