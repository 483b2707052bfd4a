"""The client side of a live server: sessions, requests, and one call until it stands still."""
# Source: MCP 2026-07-28, "Multi Round-Trip Requests", "Versioning", "Transports" (`Mcp-Param-*`),
# "Pagination"; MCP 2025-11-25, "Lifecycle", "Session Management", "Elicitation", "Tasks".

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from json.encoder import encode_basestring_ascii
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, Protocol

from mrtr_cassette.core.cassette.lookup import caller_values
from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.compare.values import Change
from mrtr_cassette.core.protocol.calls import Call, read_call
from mrtr_cassette.core.protocol.dialect import write_retry
from mrtr_cassette.core.protocol.jsonrpc import ID_PATH, Kind, Message, classify
from mrtr_cassette.core.protocol.methods import DISCOVER, INITIALIZE, INITIALIZED, method_of
from mrtr_cassette.core.protocol.tasks import TASKS, TaskState
from mrtr_cassette.core.record.linking import OpenPush
from mrtr_cassette.core.record.recorder import Observation, Recorder
from mrtr_cassette.core.wire.http import (
    EVENT_STREAM,
    JSON_HEADERS,
    POST_HEADERS,
    SESSION_HEADER,
    End,
    Headers,
    Piece,
    Request,
    Response,
    line_request,
)
from mrtr_cassette.core.wire.jsonbytes import (
    MemberPath,
    canonical,
    find_spans,
    parse,
    replace_members,
    splice,
)
from mrtr_cassette.core.wire.pointers import value_at
from mrtr_cassette.core.wire.sse import event_id, retry_ms
from mrtr_cassette.errors import shorten

_OWN_ID: Final = b"mrtr-cassette-"
"""The ids of verify's requests begin with this; a number follows."""
_REPEATED = re.compile(
    rb"""(?P<quote>\\*["'])?(?P<id>%b[0-9]+)(?(quote)(?P=quote))""" % re.escape(_OWN_ID)
)
_OF_ALL: Final = frozenset({"authorization", "mcp-protocol-version", SESSION_HEADER})
"""Headers that all requests of a session have alike."""
_PAUSE_MS: Final = 1000
"""How long the SDKs' clients wait by default, and the longest wait."""
_MOST_PAGES: Final = 100
"""Pages that are read; a server may have no last one."""
_OF_CALL: Final = ("mcp-name", "mcp-param-")
ISSUED: Final[tuple[MemberPath, ...]] = (
    ("result", "nextCursor"),
    ("result", "taskId"),
    ("result", "task", "taskId"),
)
"""Where a server issues what its client sends back."""
_SENT_BACK: Final[tuple[MemberPath, ...]] = (
    ("params", "cursor"),
    ("params", "taskId"),
    ("params", "_meta", "io.modelcontextprotocol/related-task", "taskId"),
)


class ServerSession:
    """What all conversations in one session with a live server have in common.

    A server without sessions has one, whose `id` is empty.
    """

    def __init__(self, recorder: Recorder, session_id: str = "") -> None:
        self.recorder = recorder
        self.id = session_id
        self._sent = 0
        self._owners: dict[int, Requests] = {}

    def request(self, request: Request, owner: Requests) -> Observation:
        """Return a request as it is sent in this session, a call with an id of its own.

        The observation is to be shown the response; the owner gets what the server pushes because
        of the request.
        """
        self._sent += 1
        call = read_call(request)
        if call.message is not None and call.message.kind is Kind.REQUEST:
            body, identity = request.body, b'"%b%d"' % (_OWN_ID, self._sent)
            spans = find_spans(body, [ID_PATH])[ID_PATH]
            request = with_body(request, splice(body, [(span, identity) for span in spans]))
        request = _readable(in_session(request, self.id))
        observation = self.recorder.request_received(request, 0.0)
        self._owners[observation.number] = owner
        return observation

    def post(self, first: Request, body: bytes, owner: Requests) -> Observation:
        """Return the request that posts a message which is no call, where `first` was sent."""
        if first.is_line:
            return self.request(line_request(body), owner)
        kept = tuple(pair for pair in first.headers if pair[0].lower() in _OF_ALL)
        return self.request(Request("POST", first.target, (*POST_HEADERS, *kept), body), owner)

    def pushed(self, push: OpenPush) -> Observation | None:
        """Take a request that the server pushed, on whatever stream."""
        owner = self._owners.get(push.exchange)
        return None if owner is None else owner.push_received(push)

    def as_recorded(self, push: OpenPush) -> tuple[RecordedExchange, Message]:
        """Return a pushed request as it would be recorded: as the response to its call."""
        piece = Piece(push.message.raw, 0.0, 0)
        response = Response(200, JSON_HEADERS, (piece,), End.COMPLETE)
        request = push.call.request
        seen = RecordedExchange(push.exchange, request, response, 0.0, 0.0, None, None, 0)
        exchange = self.recorder.seal(seen, push.call).exchange
        sealed = None if exchange.response is None else classify(exchange.response.body)
        return exchange, sealed or push.message

    def responded(self, observation: Observation) -> None:
        """Take the whole response to one of its requests.

        A session has the id that comes with the result of `initialize`; servers name one in errors
        too, which they forget at once.
        """
        if observation.call.method == INITIALIZE and observation.status == 200:
            self.id = observation.session or self.id
        self._owners.pop(observation.number, None)


def id_of(exchange: RecordedExchange) -> bytes:
    """Return the id of a request as it is spelled; empty where it has none."""
    return caller_values(exchange.call.message).id or b""


def with_ids(exchange: RecordedExchange, recorded: Mapping[bytes, bytes]) -> RecordedExchange:
    """Return a live exchange with the recorded ids, by our own, in whatever repeats them too."""

    def as_recorded(found: re.Match[bytes]) -> bytes:
        identity = recorded.get(b'"%b"' % found["id"])
        if identity is None:
            return found[0]
        # A server that quotes a text writes a number without quotes.
        quote = found["quote"] or b""
        return quote + identity[1:-1] + quote if identity.startswith(b'"') else identity

    def changed(raw: bytes) -> bytes:
        return _REPEATED.sub(as_recorded, raw)

    request, response = exchange.request, exchange.response
    if _OWN_ID not in request.body:
        return exchange
    if response is not None:
        pieces = tuple(piece._replace(raw=changed(piece.raw)) for piece in response.pieces)
        response = replace(response, pieces=pieces)
    request = replace(request, body=changed(request.body))
    return replace(exchange, request=request, response=response)


def repeats_own_id(live: RecordedExchange, recorded: RecordedExchange) -> bool:
    """Tell whether a live response has an id of ours that is not its request's."""
    live = with_ids(live, {id_of(live): id_of(recorded)})
    body = b"" if live.response is None else live.response.body
    return any(b'"%b"' % found["id"] != id_of(recorded) for found in _REPEATED.finditer(body))


class Resumption(NamedTuple):
    """What a client sends for the rest of a response, after so many seconds."""

    request: Request
    after_s: float


def resumption(observation: Observation) -> Resumption | None:
    """Return how the rest of a response is asked for that the server let go of; None if it didn't.

    A server may end the stream of a call before the response, once it has sent an event with an id;
    the client waits as long as `retry` says (MCP 2025-11-25, "Resumability and Redelivery").
    """
    call, events = observation.call, observation.events
    is_call = call.message is not None and call.message.kind is Kind.REQUEST
    if observation.is_answered or observation.is_listening or not is_call:
        return None
    last = next(filter(None, map(event_id, reversed(events))), "")
    if not last:
        return None
    waits = [wait for wait in map(retry_ms, events) if wait is not None]
    kept = tuple(pair for pair in call.request.headers if pair[0].lower() in _OF_ALL)
    headers = (("Accept", EVENT_STREAM), *kept, ("Last-Event-ID", last))
    request = _readable(Request("GET", call.request.target, headers, b""))
    return Resumption(request, min(waits[-1] if waits else _PAUSE_MS, _PAUSE_MS) / 1000)


def in_session(request: Request, session: str) -> Request:
    """Return a request in a session, or in none."""
    if request.header(SESSION_HEADER) == session:
        return request
    return _with_header(request, "Mcp-Session-Id", session)


def _readable(request: Request) -> Request:
    return request if request.is_line else _with_header(request, "Accept-Encoding", "identity")


def _with_header(request: Request, name: str, value: str) -> Request:
    kept = tuple(pair for pair in request.headers if pair[0].lower() != name.lower())
    return replace(request, headers=(*kept, (name, value)) if value else kept)


def with_body(request: Request, body: bytes) -> Request:
    """Return a request with another body; the length that it announced goes."""
    return replace(_with_header(request, "Content-Length", ""), body=body)


def with_values(
    body: bytes, paths: Sequence[MemberPath], new_value: Callable[[str], str | None]
) -> bytes:
    """Return a request with other texts at some places; None leaves one as it is."""
    replacements = []
    for span in (span for spans in find_spans(body, paths).values() for span in spans):
        value = parse(body[span.start : span.end])
        new = new_value(value) if isinstance(value, str) else None
        if new is not None:
            replacements.append((span, encode_basestring_ascii(new).encode()))
    return splice(body, replacements)


class LiveValues:
    """Cursors and task ids that a live server issues anew, by those that were recorded."""

    def __init__(self) -> None:
        self._live: dict[str, str] = {}

    def issued(
        self, recorded: Message, live: Message, original: Callable[[str], str] = str
    ) -> None:
        """Take two responses to the same request, in the live one what was sealed as it came."""
        for path in ISSUED:
            old, new = (value_at(message.tree, path) for message in (recorded, live))
            if isinstance(old, str) and isinstance(new, str):
                self._live[old] = original(new)

    def in_live(self, body: bytes) -> bytes:
        """Return a request with the live values in it."""
        return with_values(body, _SENT_BACK, self._live.get) if self._live else body


class Requests:
    """Requests to a live server, each made of the response before it; no push is answered."""

    def __init__(self, first: Request, session: ServerSession) -> None:
        self.request = first
        self.last: RecordedExchange | None = None
        self.session = session
        self.task: TaskState | None = None
        """The latest state of the task that the server has made of them."""
        self._is_over = False

    @property
    def wait_s(self) -> float:
        """Seconds to wait before the next request."""
        return 0.0

    @property
    def is_over(self) -> bool:
        """Whether nothing that still comes is of interest."""
        return self._is_over

    @property
    def unanswered(self) -> LiveAsk | None:
        """The ask that needs an answer from elsewhere."""
        return None

    def answer(self, answer: Answered) -> Observation | None:  # noqa: ARG002
        """Answer it; return the request that posts the answer to a pushed request."""
        return None

    def next(self) -> Observation | None:
        """Return the next request to send, to be shown its response; None where there is none."""
        return None if self.is_over else self.session.request(self.request, self)

    def leave(self) -> Observation | None:
        """Return the request that tells the server that nobody waits any more, if one does."""
        return None

    def pushed(self, push: OpenPush) -> Observation | None:
        """Take a request that stood in a response; it may belong to other requests."""
        return self.session.pushed(push)

    def push_received(self, push: OpenPush) -> Observation | None:  # noqa: ARG002
        """Take a request that the server pushed because of one of these; leave it unanswered."""
        return None

    def responded(self, observation: Observation) -> None:
        """Take the response to the last request, which the observation has seen whole."""
        self.session.responded(observation)
        self.last = observation.seal(End.COMPLETE, 0.0)
        following = self._after(self.last)
        self.request, self._is_over = following or self.request, following is None

    def _after(self, exchange: RecordedExchange) -> Request | None:
        raise NotImplementedError


class Pages(Requests):
    """A list of a live server, page after page, at most so many."""

    def __init__(self, listing: Request, session: ServerSession, most: int = _MOST_PAGES) -> None:
        super().__init__(listing, session)
        self.left = most

    def _after(self, exchange: RecordedExchange) -> Request | None:
        self.left -= 1
        cursor = exchange.next_cursor
        return page_at(self.request, cursor) if cursor is not None and self.left else None


def page_at(listing: Request, cursor: str | None) -> Request:
    """Return the request for the page at a cursor; None stands for the first page."""
    value = None if cursor is None else encode_basestring_ascii(cursor).encode()
    return with_body(listing, replace_members(listing.body, ("params",), {"cursor": value}))


class ToolList(Pages):
    """The tools of a live server."""

    def __init__(self, listing: Request, session: ServerSession) -> None:
        super().__init__(listing, session)
        self.tools: list[Any] = []
        self.is_whole = True

    def _after(self, exchange: RecordedExchange) -> Request | None:
        result = exchange.rpc_members.get("result")
        tools = result.get("tools") if isinstance(result, dict) else None
        self.is_whole = isinstance(tools, list)
        self.tools += tools if isinstance(tools, list) else ()
        return super()._after(exchange) if self.is_whole else None

    def destroys(self, name: str) -> bool:
        """Tell whether the server says that a tool may destroy something."""
        hints = self._hints_of(name)
        return hints.get("destructiveHint") is True and hints.get("readOnlyHint") is not True

    def only_reads(self, name: str) -> bool:
        """Tell whether the server says that a tool changes nothing."""
        return self._hints_of(name).get("readOnlyHint") is True

    def _hints_of(self, name: str) -> Mapping[str, Any]:
        named = (each for each in self.tools if isinstance(each, dict) and each.get("name") == name)
        hints = next(named, {}).get("annotations")
        return hints if isinstance(hints, dict) else {}


def request_beside(
    call: Request, method: str, params: Mapping[str, Any] = MappingProxyType({})
) -> Request:
    """Return another request of the client that makes a call, with its headers and `_meta`."""
    meta = parse(call.body).get("params", {}).get("_meta")
    if isinstance(meta, dict):
        params = {**params, "_meta": {k: v for k, v in meta.items() if k != "progressToken"}}
    message = {"jsonrpc": "2.0", "id": 0, "method": method, "params": dict(params)}
    headers = tuple(
        (name, method if name.lower() == "mcp-method" else value)
        for name, value in call.headers
        if not name.lower().startswith(_OF_CALL)
    )
    name = params.get(method_of(method).named_by)
    if isinstance(name, str) and call.header("mcp-method"):
        headers += (("Mcp-Name", header_text(name)),)
    request = Request(call.method, call.target, headers, b"")
    return with_body(request, canonical(message).encode())


def header_text(text: str) -> str:
    """Return a text as a header has it: as it is, or in Base64 where a header can't have it."""
    is_plain = text.isascii() and text.isprintable() and text == text.strip()
    if is_plain and not text.startswith("=?"):
        return text
    return f"=?base64?{b64encode(text.encode('utf-8', 'surrogatepass')).decode()}?="


def has_error(exchange: RecordedExchange) -> bool:
    """Tell whether an exchange ended with a JSON-RPC error."""
    return exchange.rpc_members.get("error") is not None


def outcome(exchange: RecordedExchange) -> str:
    """Return what a live server responded, in a few words."""
    response = exchange.response
    if response is None:
        return "no response"
    text = "a response" if response.is_lines else f"HTTP {response.status}"
    error = exchange.rpc_members.get("error")
    return text if error is None else f"{text}, error {shorten(canonical(error))}"


@dataclass(frozen=True, slots=True)
class LiveAsk:
    """An ask of the live server: a response to the call, or a request pushed meanwhile.

    Attributes:
        task: the state of the call's task, in the response that creates it or that asks.
        task_keys: the keys under which that state asks something new, by how they are recorded.
        call: the call, where the exchange is a poll of its task.
    """

    turn: int
    exchange: RecordedExchange
    request_state: str | None = None
    push: Message | None = None
    key: str = ""
    task: TaskState | None = None
    task_keys: Mapping[str, str] = field(default_factory=dict)
    call: Call | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer to an ask.

    Attributes:
        value: JSON text of `inputResponses`, which None leaves out; to a pushed request, of the
            member of its response.
        member: of the response to a pushed request.
        cancels: whether the task that asks is cancelled next.
    """

    value: bytes | None
    member: Literal["result", "error"] = "result"
    cancels: bool = False


@dataclass(frozen=True, slots=True)
class NeedsAnswers:
    """The server asks what the script expects, or anything, and the script has no answer."""

    ask: LiveAsk


@dataclass(frozen=True, slots=True)
class AskedOtherwise:
    """The server asks something else than the script answers, with these differences."""

    ask: LiveAsk
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """The server asks nothing: it has given its result, an error, or no answer at all."""

    turn: int
    exchange: RecordedExchange


class Script(Protocol):
    """What is answered in a conversation."""

    def answer(self, ask: LiveAsk) -> Answered | NeedsAnswers | AskedOtherwise:
        """Answer an ask, or say why it is not answered."""
        ...


class Conversation(Requests):
    """One call on a live server, or another request that is no part of one."""

    def __init__(self, request: Request, script: Script, session: ServerSession) -> None:
        super().__init__(request, session)
        self.standing: NeedsAnswers | AskedOtherwise | Finished | None = None
        self.request_state: str | None = None
        self._asked = 0
        self._script = script
        self._input_responses: bytes | None = None
        self._is_due = True
        self._pending: Observation | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing that still comes is of interest."""
        return self.standing is not None

    def next(self) -> Observation | None:
        """Return the next request to send, to be shown its response; None where there is none.

        Where a pushed request is not answered, this is the one that cancels the call.
        """
        if self.standing is not None and self._pending is not None:
            return self._cancellation(self._pending)
        if self.standing is not None or not self._is_due:
            return None
        self._is_due = False
        request = self.request
        message = read_call(request).message
        if message is not None and message.kind is Kind.REQUEST:
            body = write_retry(request.body, self._input_responses, self.request_state)
            request = with_body(request, body)
        self._pending = self.session.request(request, self)
        return self._pending

    def _cancellation(self, pending: Observation) -> Observation | None:
        self._pending = None
        message = pending.call.message
        identity = None if message is None else message.spelled(ID_PATH)
        if identity is None:
            return None
        cancelled = (
            b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%b}}'
        )
        return self.session.post(self.request, cancelled % identity, self)

    def push_received(self, push: OpenPush) -> Observation | None:
        """Take a request that the server pushed because of this call."""
        if self.standing is not None:
            return None
        self._asked += 1
        exchange, message = self.session.as_recorded(push)
        ask = LiveAsk(self._asked, exchange, None, message, push.key)
        return self._replied(ask, self._script.answer(ask))

    def responded(self, observation: Observation) -> None:
        """Take the response to the last request, which the observation has seen whole."""
        self.session.responded(observation)
        # A server may also give its result without waiting for an answer.
        is_late = isinstance(self.standing, NeedsAnswers) and observation.is_answered
        if observation is not self._pending or not (self.standing is None or is_late):
            return
        self._pending = self.standing = None
        exchange = observation.seal(End.COMPLETE, 0.0)
        self._asked += 1
        if observation.ask is None:
            self.standing = Finished(self._asked, exchange)
            return
        self.request_state = observation.ask.request_state
        ask = LiveAsk(self._asked, exchange, self.request_state)
        self._replied(ask, self._script.answer(ask))

    @property
    def unanswered(self) -> LiveAsk | None:
        """The ask that the script had no answer to."""
        return self.standing.ask if isinstance(self.standing, NeedsAnswers) else None

    def answer(self, answer: Answered) -> Observation | None:
        """Answer it, unless the server has not waited for that."""
        ask = self.unanswered
        if ask is None:
            return None
        self.standing = None
        return self._replied(ask, answer)

    def _replied(
        self, ask: LiveAsk, reply: Answered | NeedsAnswers | AskedOtherwise
    ) -> Observation | None:
        if not isinstance(reply, Answered):
            self.standing = reply
        elif ask.push is None:
            self._input_responses = reply.value
            self._is_due = True
        else:
            response = b'{"jsonrpc":"2.0","id":%b,"%b":%b}'
            identity = ask.push.spelled(ID_PATH) or b"null"
            body = response % (identity, reply.member.encode(), reply.value or b"{}")
            return self.session.post(self.request, body, self)
        return None


# The built-in client, which `call` is

Era = Literal["legacy", "modern"]

MODERN_VERSION: Final = "2026-07-28"
LEGACY_VERSION: Final = "2025-11-25"
_META: Final = "io.modelcontextprotocol/"
_VERSION_HEADER: Final = "MCP-Protocol-Version"
_CAPABILITIES: Final[Mapping[str, tuple[str, ...]]] = {
    "form": ("elicitation", "form"),
    "url": ("elicitation", "url"),
    "sampling": ("sampling",),
    "roots": ("roots",),
}


class OwnClient:
    """The built-in client; its `era`, which revision the server speaks, is None until known."""

    def __init__(self, target: str, kinds: Collection[str], version: str) -> None:
        self.era: Era | None = None
        self._target = target
        self._about = {"name": "mrtr-cassette", "version": version}
        self._capabilities = _capabilities(kinds)
        self._version = MODERN_VERSION

    def discover(self) -> Request:
        """Return the request by which the newer revision is tried."""
        return self.call(DISCOVER, {})

    def discovered(self, exchange: RecordedExchange) -> None:
        """Take the response to it."""
        result = exchange.rpc_members.get("result")
        versions = result.get("supportedVersions") if isinstance(result, dict) else None
        is_modern = isinstance(versions, list) and MODERN_VERSION in versions
        if TASKS in (value_at(result, ("capabilities", "extensions")) or ()):
            self._capabilities = {**self._capabilities, "extensions": {TASKS: {}}}
        self.era = "modern" if is_modern else "legacy"
        self._version = MODERN_VERSION if is_modern else LEGACY_VERSION

    def initialize(self) -> Request:
        """Return the request that opens a session of an earlier revision."""
        params = {
            "protocolVersion": self._version,
            "capabilities": self._capabilities,
            "clientInfo": self._about,
        }
        return self._post(INITIALIZE, params, ())

    def initialized(self, exchange: RecordedExchange) -> Request | None:
        """Take the response to `initialize`; return the next request, or None if there is none."""
        result = exchange.rpc_members.get("result")
        if not isinstance(result, dict):
            return None
        version = result.get("protocolVersion")
        self._version = version if isinstance(version, str) else self._version
        return self._post(INITIALIZED, None, self._headers("", None, {}))

    def listening(self) -> Request:
        """Return the request for the stream on which a server of an earlier revision asks too."""
        headers = (("Accept", EVENT_STREAM), (_VERSION_HEADER, self._version))
        return Request("GET", self._target, headers, b"")

    def leaving(self) -> Request:
        """Return the request that ends a session."""
        return Request("DELETE", self._target, ((_VERSION_HEADER, self._version),), b"")

    def call(
        self, method: str, params: Mapping[str, Any], input_schema: Mapping[str, Any] | None = None
    ) -> Request:
        """Return the first request of a call; the tool's schema may want arguments in headers."""
        headers = self._headers(method, input_schema, params)
        if self.era == "legacy":
            return self._post(method, params, headers)
        meta = {
            f"{_META}protocolVersion": self._version,
            f"{_META}clientInfo": self._about,
            f"{_META}clientCapabilities": self._capabilities,
        }
        return self._post(method, {**params, "_meta": meta}, headers)

    def _headers(
        self, method: str, input_schema: Mapping[str, Any] | None, params: Mapping[str, Any]
    ) -> Headers:
        headers = [(_VERSION_HEADER, self._version)]
        if self.era == "legacy":
            return tuple(headers)
        headers.append(("Mcp-Method", method))
        name = params.get(method_of(method).named_by)
        if isinstance(name, str):
            headers.append(("Mcp-Name", header_text(name)))
        return (*headers, *_argument_headers(input_schema or {}, params.get("arguments")))

    def _post(self, method: str, params: Mapping[str, Any] | None, headers: Headers) -> Request:
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if not method.startswith("notifications/"):
            message["id"] = 0
        if params is not None:
            message["params"] = params
        return Request("POST", self._target, (*POST_HEADERS, *headers), canonical(message).encode())


def is_modern(call: Call) -> bool:
    """Tell whether a request says for itself who sends it, as the newer revision has it."""
    return call.message is not None and f"{_META}protocolVersion" in call.message.meta


def declaring(request: Request, kinds: Collection[str]) -> Request:
    """Return a request of the newer revision that declares these kinds besides its own."""
    call = read_call(request)
    own = {} if call.message is None else call.message.meta.get(f"{_META}clientCapabilities")
    both = dict(own) if isinstance(own, dict) else {}
    for name, value in _capabilities(kinds).items():
        inner = both.get(name)
        both[name] = {**inner, **value} if isinstance(inner, dict) else value
    member = {f"{_META}clientCapabilities": canonical(both).encode()}
    return with_body(request, replace_members(request.body, ("params", "_meta"), member))


def with_id_of(call: Call, exchange: RecordedExchange) -> bytes:
    """Return the body of a response with the id of another call in the place of its own."""
    response, located = exchange.response, exchange.located_response
    own = None if call.message is None else call.message.spelled(ID_PATH)
    if response is None or own is None or located is None:
        return b"" if response is None else response.body
    spans = find_spans(located.message.raw, [ID_PATH])[ID_PATH]
    places = [place for span in spans if (place := located.in_body(span)) is not None]
    return splice(response.body, [(place, own) for place in places])


def _capabilities(kinds: Collection[str]) -> dict[str, Any]:
    capabilities: dict[str, Any] = {}
    for kind, path in _CAPABILITIES.items():
        inner = capabilities
        for step in path if kind in kinds else ():
            inner = inner.setdefault(step, {})
    return capabilities


def _argument_headers(schema: Mapping[str, Any], arguments: Any) -> Iterator[tuple[str, str]]:
    fields = schema.get("properties")
    for name, member in fields.items() if isinstance(fields, dict) else ():
        header = member.get("x-mcp-header") if isinstance(member, dict) else None
        value = arguments.get(name) if isinstance(arguments, dict) else None
        if isinstance(header, str) and value is not None:
            text = value if isinstance(value, str) else canonical(value)
            yield f"Mcp-Param-{header}", header_text(text)
