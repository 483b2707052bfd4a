"""Short builders, so that tests of the core read like transcripts.

Requests and response bodies are bytes, made of the JSON values of `messages`.
A script is a list of steps, each a request and its response, and `Conversation` is for the scripts
whose exchanges overlap.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field, replace
from typing import Any, Literal, NamedTuple

import orjson
from messages import Json, compact, message, result, tool_call

from mrtr_cassette.core.cassette.dump import dump
from mrtr_cassette.core.cassette.journal import JournalHeader
from mrtr_cassette.core.cassette.load import decode_cassette, load
from mrtr_cassette.core.cassette.model import CassetteModel
from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    RecordedExchange,
    RecordedInteraction,
    RequestState,
    Transport,
)
from mrtr_cassette.core.protocol.any_server import HarmlessReply
from mrtr_cassette.core.record.assembly import assemble
from mrtr_cassette.core.record.pushes import OpenPush
from mrtr_cassette.core.record.recorder import Observation, Recorder
from mrtr_cassette.core.record.sealing import ExchangeSealer
from mrtr_cassette.core.replay.deliveries import Delivery, Play, Sending
from mrtr_cassette.core.replay.diagnosis import Miss
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.secrets.credentials import Credentials
from mrtr_cassette.core.secrets.names import sha256_of
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.wire.http import (
    NO_STATUS,
    SESSION_HEADER,
    End,
    Headers,
    Piece,
    Request,
    Response,
    header_value,
)
from mrtr_cassette.core.wire.sse import SseFramer

JSON_HEADERS: Headers = (("Content-Type", "application/json"),)
STREAM_HEADERS: Headers = (("Content-Type", "text/event-stream"),)
JOURNAL_HEADER = JournalHeader(
    "http://localhost:8000/mcp", "sealed", "2026-08-01T00:00:00+00:00", "keep"
)

# Requests


def rpc(method: str, params: Json = None, number: Json = 1) -> bytes:
    """Return a JSON-RPC request."""
    return compact(message(method, params, id=number))


def tool(name: str, /, **arguments: Json) -> bytes:
    """Return a `tools/call` request with id 1."""
    return compact(tool_call(name, arguments=arguments))


def notification(method: str, /, **params: Json) -> bytes:
    """Return a JSON-RPC notification."""
    return compact(message(method, params, id=None))


def changed(request: bytes, *path: str, to: Json) -> bytes:
    """Return a request with one member put in."""
    tree = json.loads(request)
    inner = tree
    for step in path[:-1]:
        inner = inner.setdefault(step, {})

    inner[path[-1]] = to
    return compact(tree)


def with_id(request: bytes, number: Json) -> bytes:
    """Return the same request under another id."""
    return changed(request, "id", to=number)


def with_token(request: bytes, token: Json) -> bytes:
    """Return the same request with a progress token."""
    return changed(request, "params", "_meta", "progressToken", to=token)


def with_meta(request: bytes, **meta: Json) -> bytes:
    """Return the same request with other `_meta`."""
    return changed(request, "params", "_meta", to=meta)


def retry(
    request: bytes, answers: Json = None, *, state: Json = None, number: Json = 2
) -> bytes:
    """Return the request again, with answers, an echoed state or both."""
    if answers is not None:
        request = changed(request, "params", "inputResponses", to=answers)

    if state is not None:
        request = changed(request, "params", "requestState", to=state)

    return with_id(request, number)


def post(body: bytes, *headers: tuple[str, str], target: str = "/mcp") -> Request:
    """Return a POST of a body."""
    return Request("POST", target, (*JSON_HEADERS, *headers), body)


def get(target: str, *headers: tuple[str, str]) -> Request:
    """Return a GET."""
    return Request("GET", target, headers, b"")


# Responses


def id_of(request: bytes) -> Json:
    """Return the id of a request."""
    return json.loads(request).get("id")


def answer(request: bytes, value: Json) -> bytes:
    """Return the JSON-RPC response that gives a request its result."""
    return compact(result(value, id=id_of(request)))


def refusal(request: bytes, code: int = -32602, words: str = "invalid state") -> bytes:
    """Return a JSON-RPC error in response to a request."""
    error = {"code": code, "message": words}
    return compact({"jsonrpc": "2.0", "id": id_of(request), "error": error})


def progress(token: Json, done: int = 1) -> bytes:
    """Return a progress notification."""
    return notification("notifications/progress", progressToken=token, progress=done)


def sse(*messages: bytes, end: bytes = b"\n") -> bytes:
    """Return an event stream with one event for each message."""
    return b"".join(b"data: " + message + end + end for message in messages)


def framed(*chunks: bytes) -> tuple[list[bytes], bytes]:
    """Return the bytes of all events of a stream that comes in these chunks, and the rest."""
    framer = SseFramer()
    events = [event for chunk in chunks for event in framer.feed(chunk)]
    last, rest = framer.finish()

    return events + ([last] if last else []), rest


class Answer(NamedTuple):
    """A response in all detail; each chunk is read on its own."""

    chunks: tuple[bytes, ...]
    headers: Headers = JSON_HEADERS
    status: int = 200
    end: End = End.COMPLETE


def stream(*messages: bytes, end: End = End.COMPLETE) -> Answer:
    """Return an event stream that arrives event by event."""
    return Answer(tuple(sse(message) for message in messages), STREAM_HEADERS, end=end)


Step = tuple[bytes | Request, Json]
"""A request, and a result, a body, or an `Answer`."""


def as_request(request: bytes | Request) -> Request:
    """Return a request; bytes are the body of a POST."""
    return request if isinstance(request, Request) else post(request)


def as_answer(request: bytes | Request, response: Json) -> Answer:
    """Return a response; a mapping is the result of the request."""
    if isinstance(response, Answer):
        return response
    if isinstance(response, bytes):
        return Answer((response,))
    return Answer((answer(as_request(request).body, response),))


def show(observation: Observation, response: Json) -> None:
    """Show a live server's response; a function makes it of the body of the request."""
    request = observation.call.request
    given = as_answer(
        request, response(request.body) if callable(response) else response
    )
    observation.response_started(given.status, given.headers)
    for chunk in given.chunks:
        observation.response_bytes(chunk, 0.0)

    observation.response_ended(0.0)


def respond(steps: Any, response: Json) -> Request:
    """Send the next request of some steps, and let a live server respond; return the request."""
    observation = steps.next_request()
    assert observation is not None
    show(observation, response)
    steps.response_received(observation)
    request: Request = observation.call.request

    return request


def follow(steps: Any, *responses: Json) -> list[Request]:
    """Have a live server give these responses, of which none is left; return what was sent."""
    sent = [respond(steps, response) for response in responses]
    assert steps.next_request() is None
    return sent


class FixedScript:
    """Gives fixed replies to asks, the last one again and again; a function makes one of the ask."""

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)
        self.asks: list[Any] = []

    def reply_to_ask(self, ask: Any) -> Any:
        self.asks.append(ask)
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        return reply(ask) if callable(reply) else reply


def push_on(observation: Observation, pushed: bytes) -> OpenPush:
    """Have a live server push a request on the stream of a response."""
    if not observation.status:
        observation.response_started(200, STREAM_HEADERS)

    observation.response_bytes(sse(pushed), 0.0)
    (push,) = observation.take_pushes()
    return push


@dataclass
class Conversation:
    """A recording under way, whose exchanges may overlap; each event takes a millisecond."""

    seals: bool = True
    redacts: bool = False
    seals_answers: bool = False
    kept_headers: frozenset[str] = frozenset()
    exchanges: list[RecordedExchange] = field(default_factory=list, init=False)
    _observations: list[Observation] = field(default_factory=list, init=False)
    _now_ms: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        """Begin recording."""
        redactor = Redactor(RedactionRules(), token_of) if self.redacts else None
        sealer = ExchangeSealer(
            seals_states=self.seals,
            redactor=redactor,
            credentials=None if redactor is None else Credentials(redactor),
            seals_answers=self.seals_answers,
            kept_headers=self.kept_headers,
        )
        self.recorder = Recorder(sealer)

    def tick(self) -> float:
        self._now_ms += 1
        return self._now_ms

    def request(self, request: bytes | Request) -> int:
        observation = self.recorder.request_received(as_request(request), self.tick())
        self._observations.append(observation)
        return observation.number

    def observation(self, number: int) -> Observation:
        return self._observations[number - 1]

    def response(self, number: int, response: Json) -> RecordedExchange:
        """Let the whole response to a request arrive."""
        observation = self.observation(number)
        found = as_answer(observation.call.request, response)
        if found.status:
            observation.response_started(found.status, found.headers)

        for chunk in found.chunks:
            observation.response_bytes(chunk, self.tick())

        observation.response_ended(self.tick())
        self.exchanges.append(observation.seal(found.end, self.tick()))
        return self.exchanges[-1]

    def exchange(self, request: bytes | Request, response: Json) -> RecordedExchange:
        """Let a request arrive, and then the whole response to it."""
        return self.response(self.request(request), response)

    def stream(self, request: bytes | Request) -> int:
        """Let a request arrive to which the response is a stream; return its number."""
        number = self.request(request)
        self.observation(number).response_started(200, STREAM_HEADERS)
        return number

    def event(self, number: int, message: bytes) -> None:
        self.observation(number).response_bytes(sse(message), self.tick())

    def end(self, number: int, end: End = End.COMPLETE) -> None:
        observation = self.observation(number)
        observation.response_ended(self.tick())
        self.exchanges.append(observation.seal(end, self.tick()))

    def cassette(self, **options: Any) -> CassetteModel:
        state: RequestState = "sealed" if self.seals else "verbatim"
        redaction = RedactionRules() if self.redacts else None
        return assembled(
            [
                self.recorder.sealer.without_repeated_secrets(exchange)
                for exchange in self.exchanges
            ],
            request_state=state,
            redaction=redaction,
            answers="sealed" if self.seals_answers else None,
            **options,
        )


def token_of(rule: str, secret: str) -> str:
    """Stand for the shell's keyed hash."""
    return sha256_of(f"{rule} {secret}")[:24]


def assembled(
    exchanges: Iterable[RecordedExchange],
    *,
    request_state: RequestState = "sealed",
    recorded_at: str = JOURNAL_HEADER.recorded_at,
    redaction: RedactionRules | None = None,
    answers: Literal["sealed"] | None = None,
    earlier: CassetteModel | None = None,
    transport: Transport = "http",
) -> CassetteModel:
    """Return the cassette of some exchanges."""
    header = replace(
        JOURNAL_HEADER,
        request_state=request_state,
        recorded_at=recorded_at,
        redaction=redaction,
        answers=answers,
        transport=transport,
    )

    journal = {exchange.number or 0: exchange for exchange in exchanges}
    before = None if earlier is None else loaded(earlier)

    return decode_cassette(
        dump(assemble(header, journal, "mrtr-cassette test", before)), "f"
    )


def encode_cassette(cassette: CassetteModel) -> bytes:
    """Return a cassette as a file."""
    tree = cassette.model_dump(by_alias=True, exclude_none=True)
    return orjson.dumps(tree, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def without_digests(tree: Json) -> Json:
    """Return the content of a cassette without digests, so that anything in it may be edited."""
    recording = {
        name: value for name, value in tree["recording"].items() if name != "sha256"
    }
    recording["exchanges"] = [
        {name: value for name, value in facts.items() if name != "sha256"}
        for facts in recording["exchanges"]
    ]
    return {**tree, "recording": recording}


def conversation(*script: Step, **options: bool) -> Conversation:
    """Record exchanges that follow one another."""
    talk = Conversation(**options)
    for request, response in script:
        talk.exchange(request, response)

    return talk


def converse(*script: Step, **options: bool) -> list[RecordedExchange]:
    """Return exchanges that follow one another."""
    return conversation(*script, **options).exchanges


def cassette_of(*script: Step, **options: bool) -> CassetteModel:
    """Return the cassette of exchanges that follow one another."""
    return conversation(*script, **options).cassette()


def exchange(
    request: bytes | Request, response: Json, *, number: int = 1, **options: bool
) -> RecordedExchange:
    """Return one exchange, recorded under a number."""
    talk = Conversation(**options)
    talk.recorder.arrivals.count = number - 1
    talk.request(request)

    return talk.response(1, response)


def values_of(exchange: RecordedExchange) -> tuple[Any, ...]:
    """Return what is known of an exchange, for comparing it with what is known of another."""
    return astuple(exchange)


def response_of(response: Json, request: bytes = b"{}") -> Response:
    """Return a response as a value, one piece for each chunk."""
    found = as_answer(request, response)
    pieces = tuple(Piece(chunk, at, 1) for at, chunk in enumerate(found.chunks))
    return Response(found.status, found.headers, pieces, found.end)


# Pipes


def pipe_cassette(*exchanges: tuple[Request, list[bytes] | None, End]) -> Cassette:
    """Return a cassette that was recorded over pipes: requests, their lines, and their ends."""
    interactions = []
    for number, (request, lines, end) in enumerate(exchanges, start=1):
        response = None
        if lines is not None:
            pieces = tuple(Piece(line + b"\n", 0, number) for line in lines)
            response = Response(NO_STATUS, (), pieces, end)

        exchange = RecordedExchange(number, request, response, 0, 0, None, None)
        interactions.append(
            RecordedInteraction(number, (exchange,), None, is_orphan=False)
        )

    empty = loaded(cassette_of())
    return replace(empty, transport="stdio", interactions=tuple(interactions))


# Sessions

INITIALIZE = rpc("initialize", {"clientInfo": {"name": "c"}}, number=0)
INITIALIZED = notification("notifications/initialized")
ACCEPTED = Answer((), (), 202)


def opened(session: str) -> Answer:
    """Return the response that opens a session."""
    headers = (*JSON_HEADERS, ("Mcp-Session-Id", session))
    return Answer((answer(INITIALIZE, {"serverInfo": {"name": "s"}}),), headers)


def within(session: str, request: bytes | Request) -> Request:
    """Return a request in a session."""
    request = as_request(request)
    return replace(request, headers=(*request.headers, ("Mcp-Session-Id", session)))


def session_steps(session: str, *script: tuple[bytes, Json]) -> list[Step]:
    """Return what a client does in a session from its beginning."""
    return [
        (INITIALIZE, opened(session)),
        (within(session, INITIALIZED), ACCEPTED),
        *((within(session, request), response) for request, response in script),
    ]


# Replaying


def loaded(cassette: CassetteModel, path: str = "f") -> Cassette:
    """Return a cassette that went through a file; what was edited in it needs no new digests."""
    tree = json.loads(encode_cassette(cassette))
    return load(compact(without_digests(tree)), path)


def player_of(
    *script: Step,
    seals: bool = True,
    redacts: bool = False,
    seals_answers: bool = False,
    **options: Any,
) -> Player:
    """Return a replay of a script's cassette."""
    cassette = cassette_of(
        *script, seals=seals, redacts=redacts, seals_answers=seals_answers
    )
    return Player(loaded(cassette, "talk.json"), **options)


def hit(player: Player, request: bytes | Request) -> Play:
    """Return what a request gets, which must have been recorded."""
    decision = player.request_received(as_request(request))
    assert isinstance(decision, Play), decision
    return decision


def play(player: Player, request: bytes | Request) -> bytes:
    """Return the bytes that a request gets, which must be recorded ones."""
    return sent_now(hit(player, request))


def delivery_of(player: Player, request: bytes | Request) -> Delivery:
    """Return the reply to a request on its way."""
    delivery = hit(player, request).delivery
    assert delivery is not None
    return delivery


def open_session(player: Player) -> str:
    """Open a session, and return its id."""
    return header_value(delivery_of(player, INITIALIZE).headers, SESSION_HEADER)


def sent_now(play: Play) -> bytes:
    """Return the bytes of a reply that wait for nothing any more."""
    sent = b""
    delivery = play.delivery
    while delivery is not None and isinstance(step := delivery.take_next(), Sending):
        sent += step.raw

    return sent


def told(delivery: Delivery) -> list[Any]:
    """Return what a reply says now: bytes, the id and the reason of a refused call, and its end."""
    said: list[Any] = []
    while (step := delivery.take_next()) is not None:
        if isinstance(step, End):
            return [*said, step]

        said.append(
            step.raw if isinstance(step, Sending) else (step.id, step.miss.reason)
        )

    return said


def missed(player: Player, request: bytes | Request) -> Miss:
    """Return the miss that a request is, which it must be."""
    decision = player.request_received(as_request(request))
    assert isinstance(decision, Miss), "a recorded answer was played"
    return decision


def heard(player: Player, request: bytes | Request) -> str:
    """Return what a request gets, in a few words: a text, a whole refusal, or why it is a miss."""
    found = player.request_received(as_request(request))
    if isinstance(found, Miss):
        return f"miss {found.reason.value}"
    if isinstance(found, HarmlessReply):
        return "harmless"

    raw = sent_now(found)
    return said(raw) if b'"result"' in raw else raw.decode()


def result_of(body: bytes) -> Json:
    """Return what stands under `result`."""
    return json.loads(body)["result"]


def state_in(body: bytes) -> str:
    """Return the request state that an ask issued."""
    state: str = result_of(body)["requestState"]
    return state


def said(body: bytes) -> str:
    """Return the text of a final result."""
    words: str = result_of(body)["content"][0]["text"]
    return words


def members(cassette: CassetteModel, *path: str | int) -> Mapping[str, Any] | Json:
    """Return what stands at a path of the file."""
    value: Json = cassette.model_dump(by_alias=True, exclude_none=True)
    for step in path:
        value = value[step]

    return value
