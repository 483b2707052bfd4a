"""Requests to a live server in its session, and the built-in client, which `call` is."""
# Source: MCP 2026-07-28, "Versioning", "Transports" (`Mcp-Param-*`); MCP 2025-11-25, "Lifecycle",
# "Session Management", "Resumability and Redelivery".

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from json.encoder import encode_basestring_ascii
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol

from mrtr_cassette.core.cassette.lookup import caller_values
from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.cassette.texts import with_texts
from mrtr_cassette.core.protocol.calls import Call, read_call
from mrtr_cassette.core.protocol.jsonrpc import (
    ID_PATH,
    Kind,
    Message,
    last_response,
    server_message,
)
from mrtr_cassette.core.protocol.methods import (
    DISCOVER,
    INITIALIZE,
    INITIALIZED,
    method_of,
)
from mrtr_cassette.core.protocol.tasks import TASKS
from mrtr_cassette.core.record.pushes import OpenPush
from mrtr_cassette.core.record.recorder import Observation, Recorder
from mrtr_cassette.core.secrets.names import SESSION, STATE, TASK, Ref, with_refs
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
    to_json,
)
from mrtr_cassette.core.wire.pointers import value_at
from mrtr_cassette.core.wire.sse import event_id, retry_ms

_FIRST_ID: Final = 2_042_100_000
"""Ids of our own requests are the numbers after this one, which hardly any other text has."""
_TEXT_ID: Final = b"mrtr-cassette-"
"""Where a server wants texts, ids begin with this; a number follows."""
OWN_ID: Final = re.compile(rb"%b[0-9]+|(?<![0-9])20421[0-9]{5}(?![0-9])" % _TEXT_ID)
_INVALID_REQUEST: Final = -32600
_OF_ALL: Final = frozenset({"authorization", "mcp-protocol-version", SESSION_HEADER})
"""Headers that all requests of a session have alike."""
_PAUSE_MS: Final = 1000
"""How long the SDKs' clients wait by default, and the longest wait."""
_PONG: Final = b'{"jsonrpc":"2.0","id":%b,"result":{}}'
_OF_CALL: Final = ("mcp-name", "mcp-param-")
ISSUED: Final[tuple[MemberPath, ...]] = (
    ("result", "nextCursor"),
    ("result", "taskId"),
    ("result", "task", "taskId"),
)
"""Where a server issues what its client sends back, and where that does."""
SENT_BACK: Final[tuple[MemberPath, ...]] = (
    ("params", "cursor"),
    ("params", "taskId"),
    ("params", "_meta", "io.modelcontextprotocol/related-task", "taskId"),
)


class RequestOwner(Protocol):
    """Whoever sends requests in a session, and gets what the server pushes because of these."""

    request: Request

    def push_received(self, push: OpenPush) -> Observation | None:
        """Take a pushed request; return the request that answers it."""
        ...


class ServerSession:
    """What all conversations in one session with a live server have in common.

    A server without sessions has one, whose `id` is empty.
    """

    def __init__(self, recorder: Recorder, session_id: str = "") -> None:
        self.recorder = recorder
        self.id = session_id
        self.wants_text = False
        """Whether the server's replies show that ids have to be texts."""
        self._sent = 0
        self._owners: dict[int, RequestOwner] = {}

    def request(self, request: Request, owner: RequestOwner) -> Observation:
        """Return a request as it is sent in this session, a call with an id of its own.

        The observation is to be shown the response; the owner gets what the server pushes because
        of the request.
        """
        self._sent += 1
        call = read_call(request)
        if call.message is not None and call.message.kind is Kind.REQUEST:
            body, identity = request.body, b"%d" % (_FIRST_ID + self._sent)
            # Where another client had a text, it was answered.
            if self.wants_text or _is_text(call.message.id):
                identity = b'"%b%d"' % (_TEXT_ID, self._sent)
            spans = find_spans(body, [ID_PATH])[ID_PATH]
            request = with_body(
                request, splice(body, [(span, identity) for span in spans])
            )
        request = _readable(in_session(request, self.id))
        observation = self.recorder.request_received(request, 0.0)
        self._owners[observation.number] = owner
        return observation

    def post(self, first: Request, body: bytes, owner: RequestOwner) -> Observation:
        """Return the request that posts a message which is no call, where `first` was sent."""
        if first.is_line:
            return self.request(line_request(body), owner)
        kept = tuple(pair for pair in first.headers if pair[0].lower() in _OF_ALL)
        return self.request(
            Request("POST", first.target, (*POST_HEADERS, *kept), body), owner
        )

    def pong(self, ping: Message, owner: RequestOwner) -> Observation:
        """Return the request that answers a ping of the server."""
        identity = ping.spelled(ID_PATH) or b"null"
        return self.post(owner.request, _PONG % identity, owner)

    def pushed(self, push: OpenPush) -> Observation | None:
        """Take a request that the server pushed, on whatever stream."""
        owner = self._owners.get(push.exchange)
        return None if owner is None else owner.push_received(push)

    def as_recorded(self, push: OpenPush) -> tuple[RecordedExchange, Message]:
        """Return a pushed request as it would be recorded: as the response to its call."""
        piece = Piece(push.message.raw, 0.0, 0)
        response = Response(200, JSON_HEADERS, (piece,), End.COMPLETE)
        request = push.call.request
        seen = RecordedExchange(
            push.exchange, request, response, 0.0, 0.0, None, None, 0
        )
        exchange = self.recorder.seal(seen, push.call).exchange
        sealed = (
            None
            if exchange.response is None
            else server_message(exchange.response.body)
        )
        return exchange, sealed or push.message

    def responded(self, observation: Observation) -> RequestOwner | None:
        """Take the whole response to one of its requests; return whose request it was.

        A session has the id that comes with the result of `initialize`; servers name one in errors
        too, which they forget at once.
        """
        if observation.call.method == INITIALIZE and observation.status == 200:
            self.id = observation.session or self.id
        return self._owners.pop(observation.number, None)

    def refused_id(self, exchange: RecordedExchange) -> bool:
        """Take a reply; tell whether it refuses a request whose id is a number.

        From then on ids are texts, as they are where the reply spells the id as a text.
        """
        request, response = exchange.call.message, exchange.response
        reply = None if response is None else last_response(response)
        if self.wants_text or request is None or reply is None or _is_text(request.id):
            return False
        error = reply.tree.get("error")
        code = error.get("code") if isinstance(error, dict) else None
        is_refused = reply.id is None and code == _INVALID_REQUEST
        self.wants_text = is_refused or reply.id == canonical(request.id)
        return is_refused


def _is_text(identity: str | None) -> bool:
    return identity is not None and identity.startswith('"')


def with_id_of(call: Call, live: RecordedExchange) -> RecordedExchange:
    """Return a live exchange with the id of another call, in whatever repeats it too."""
    own, identity = (
        caller_values(each.message).id or b"" for each in (live.call, call)
    )
    own = own.strip(b'"')
    if not OWN_ID.fullmatch(own):
        return live
    # In a text, quotes may be escaped; a server that quotes one writes a number without them.
    repeated = re.compile(rb"""(\\*["'])?(?<![0-9])%b(?![0-9])(?(1)\1)""" % own)

    def other_id(found: re.Match[bytes]) -> bytes:
        quote = found[1] or b""
        return quote + identity[1:-1] + quote if identity.startswith(b'"') else identity

    return with_texts(live, lambda raw, _: repeated.sub(other_id, raw))


def resumption(observation: Observation) -> tuple[Request, float] | None:
    """Return what asks for the rest of a response that the server let go of, and after how long.

    A server may end the stream of a call before the response, once it has sent an event with an id;
    the client waits as many seconds as `retry` says (MCP 2025-11-25, "Resumability and
    Redelivery"). None stands for a response that is whole.
    """
    call, events = observation.call, observation.events
    is_call = call.message is not None and call.message.kind is Kind.REQUEST
    last = next(filter(None, map(event_id, reversed(events))), "")
    if observation.is_answered or observation.is_listening or not (is_call and last):
        return None
    waits = [wait for wait in map(retry_ms, events) if wait is not None]
    kept = tuple(pair for pair in call.request.headers if pair[0].lower() in _OF_ALL)
    headers = (("Accept", EVENT_STREAM), *kept, ("Last-Event-ID", last))
    request = _readable(Request("GET", call.request.target, headers, b""))
    return request, min(waits[-1] if waits else _PAUSE_MS, _PAUSE_MS) / 1000


def in_session(request: Request, session: str) -> Request:
    """Return a request in a session, or in none."""
    if request.header(SESSION_HEADER) == session:
        return request
    return _with_header(request, "Mcp-Session-Id", session)


def _readable(request: Request) -> Request:
    return (
        request
        if request.is_line
        else _with_header(request, "Accept-Encoding", "identity")
    )


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


def with_live_names(raw: bytes, live_by_name: Mapping[str, str]) -> bytes:
    """Return a JSON text of a cassette with live values in the place of its names for them.

    What was recorded verbatim is no name, and may be a word.
    """

    def live(ref: Ref) -> bytes | None:
        value = (
            live_by_name.get(ref.name) if ref.kind in (STATE, TASK, SESSION) else None
        )
        return None if value is None else encode_basestring_ascii(value)[1:-1].encode()

    return with_refs(raw, live)


def issued_values(recorded: Message | None, live: Message | None) -> dict[str, str]:
    """Return the cursors and task ids of a live response by those of a recorded one."""
    trees = [{} if message is None else message.tree for message in (recorded, live)]
    old, new = ([value_at(tree, path) for path in ISSUED] for tree in trees)
    pairs = zip(old, new, strict=True)
    return {
        one: other
        for one, other in pairs
        if isinstance(one, str) and isinstance(other, str)
    }


def request_beside(
    call: Request, method: str, params: Mapping[str, Any] = MappingProxyType({})
) -> Request:
    """Return another request of the client that makes a call, with its headers and `_meta`."""
    calling = read_call(call).message
    if calling is not None and "_meta" in calling.params:
        meta = {
            name: value
            for name, value in calling.meta.items()
            if name != "progressToken"
        }
        params = {**params, "_meta": meta}
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
    return with_body(request, to_json(message).encode())


def header_text(text: str) -> str:
    """Return a text as a header has it: as it is, or in Base64 where a header can't have it."""
    is_plain = text.isascii() and text.isprintable() and text == text.strip()
    if is_plain and not text.startswith("=?"):
        return text
    return f"=?base64?{b64encode(text.encode('utf-8', 'surrogatepass')).decode()}?="


Era = Literal["legacy", "modern"]
MODERN_VERSION: Final = "2026-07-28"
LEGACY_VERSION: Final = "2025-11-25"
_META: Final = "io.modelcontextprotocol/"
_VERSION_HEADER: Final = "MCP-Protocol-Version"


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
        return self._post(INITIALIZED, None, ((_VERSION_HEADER, self._version),))

    def listening(self) -> Request:
        """Return the request for the stream on which a server of an earlier revision asks too."""
        headers = (("Accept", EVENT_STREAM), (_VERSION_HEADER, self._version))
        return Request("GET", self._target, headers, b"")

    def leaving(self) -> Request:
        """Return the request that ends a session."""
        return Request("DELETE", self._target, ((_VERSION_HEADER, self._version),), b"")

    def call(
        self,
        method: str,
        params: Mapping[str, Any],
        input_schema: Mapping[str, Any] | None = None,
    ) -> Request:
        """Return the first request of a call; the tool's schema may want arguments in headers."""
        version = (_VERSION_HEADER, self._version)
        if self.era == "legacy":
            return self._post(method, params, (version,))
        meta = {
            f"{_META}protocolVersion": self._version,
            f"{_META}clientInfo": self._about,
            f"{_META}clientCapabilities": self._capabilities,
        }
        name = params.get(method_of(method).named_by)
        named = (("Mcp-Name", header_text(name)),) if isinstance(name, str) else ()
        arguments = _argument_headers(input_schema or {}, params.get("arguments"))
        headers = (version, ("Mcp-Method", method), *named, *arguments)
        return self._post(method, {**params, "_meta": meta}, headers)

    def _post(
        self, method: str, params: Mapping[str, Any] | None, headers: Headers
    ) -> Request:
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if not method.startswith("notifications/"):
            message["id"] = 0
        if params is not None:
            message["params"] = params
        return Request(
            "POST", self._target, (*POST_HEADERS, *headers), to_json(message).encode()
        )


def is_modern(call: Call) -> bool:
    """Tell whether a request says for itself who sends it, as the newer revision has it."""
    return call.message is not None and f"{_META}protocolVersion" in call.message.meta


def declaring(request: Request, kinds: Collection[str]) -> Request:
    """Return a request of the newer revision that declares these kinds besides its own."""
    message = read_call(request).message
    if message is None or not isinstance(message.params.get("_meta"), dict):
        return request
    own = message.meta.get(f"{_META}clientCapabilities")
    both = dict(own) if isinstance(own, dict) else {}
    for name, value in _capabilities(kinds).items():
        inner = both.get(name)
        both[name] = {**inner, **value} if isinstance(inner, dict) else value
    member = {f"{_META}clientCapabilities": canonical(both).encode()}
    return with_body(
        request, replace_members(request.body, ("params", "_meta"), member)
    )


def _capabilities(kinds: Collection[str]) -> dict[str, Any]:
    modes = {kind: dict[str, Any]() for kind in ("form", "url") if kind in kinds}
    others = {kind: dict[str, Any]() for kind in ("sampling", "roots") if kind in kinds}
    return {"elicitation": modes, **others} if modes else others


def _argument_headers(
    schema: Mapping[str, Any], arguments: Any
) -> Iterator[tuple[str, str]]:
    fields = schema.get("properties")
    for name, member in fields.items() if isinstance(fields, dict) else ():
        header = member.get("x-mcp-header") if isinstance(member, dict) else None
        value = arguments.get(name) if isinstance(arguments, dict) else None
        if isinstance(header, str) and value is not None:
            text = value if isinstance(value, str) else to_json(value)
            yield f"Mcp-Param-{header}", header_text(text)
