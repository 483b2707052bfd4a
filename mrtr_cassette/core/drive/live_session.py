"""Requests to a live server in its session, and the built-in client that `call` uses."""
# Source: MCP 2026-07-28, "Versioning", "Transports" (`Mcp-Param-*`); MCP 2025-11-25, "Lifecycle",
# "Session Management", "Resumability and Redelivery".

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol

from mrtr_cassette.core.cassette.lookup import caller_values
from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.cassette.texts import exchange_with_changed_texts
from mrtr_cassette.core.protocol.calls import Call, read_call
from mrtr_cassette.core.protocol.dialect import QUESTION_KINDS
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
    ISSUED_VALUE_PATHS,
    SPOKEN_EXTENSIONS,
    method_of,
)
from mrtr_cassette.core.record.pushes import OpenPush
from mrtr_cassette.core.record.recorder import Observation, Recorder
from mrtr_cassette.core.secrets.names import LIVE, Ref, with_changed_refs
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
    header_text,
    header_value,
    line_request,
    without_header,
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
from mrtr_cassette.core.wire.pointers import members_of, value_at
from mrtr_cassette.core.wire.sse import event_id, retry_ms

Header = tuple[str, str]
_FIRST_ID: Final = 2_042_100_000
"""Our requests have the numbers after this one as ids; hardly any other text contains them."""

_TEXT_ID_PREFIX: Final = b"mrtr-cassette-"
"""Begins our ids for a server that accepts only texts; a number follows."""

GENERATED_ID: Final = re.compile(
    rb"%b[0-9]+|(?<![0-9])20421[0-9]{5}(?![0-9])" % _TEXT_ID_PREFIX
)
_INVALID_REQUEST: Final = -32600
_SESSION_WIDE_HEADERS: Final = frozenset(
    {"authorization", "mcp-protocol-version", SESSION_HEADER}
)
"""Headers that are the same in all requests of a session."""

_DEFAULT_RECONNECT_MS: Final = 1000
"""How long clients of the SDKs wait by default, and the longest that we wait."""

_RESPONSE_BODY: Final = b'{"jsonrpc":"2.0","id":%b,"%b":%b}'
_CALL_HEADER_PREFIXES: Final = ("mcp-name", "mcp-param-")


class RequestOwner(Protocol):
    """Sends requests in a session, and gets the requests that the server pushes meanwhile."""

    request: Request

    def push_received(self, push: OpenPush) -> Observation | None:
        """Take a pushed request; return the request that answers it."""
        ...


class ServerSession:
    """State shared by all conversations in one session with a live server.

    A server without sessions has one, whose `id` is empty.
    """

    def __init__(self, recorder: Recorder, session_id: str = "") -> None:
        self.recorder = recorder
        self.id = session_id
        self.wants_text_ids = False
        """Whether replies of the server show that ids have to be texts."""
        self._request_count = 0
        self._owners_by_number: dict[int, RequestOwner] = {}

    def request_in_session(self, request: Request, owner: RequestOwner) -> Observation:
        """Return a request as it is sent in this session, a call with a new id.

        The observation is to be shown the response; the owner gets the requests that the server
        pushes because of this one.
        """
        self._request_count += 1
        message = read_call(request).message
        if message is not None and message.kind is Kind.REQUEST:
            request = self._with_new_id(request, message)

        request = _with_identity_encoding(with_session_header(request, self.id))
        request = self.recorder.sealer.values.revealed_request(request)
        observation = self.recorder.request_received(request, 0.0)
        self._owners_by_number[observation.number] = owner

        return observation

    def _with_new_id(self, request: Request, message: Message) -> Request:
        """Return a call with the next id, spelled as the server wants it."""
        new_id = b"%d" % (_FIRST_ID + self._request_count)
        # The recorded server answered another client under a text.
        if self.wants_text_ids or _is_text_id(message.id):
            new_id = b'"%b%d"' % (_TEXT_ID_PREFIX, self._request_count)

        replacements = []
        for _, span in find_spans(request.body, [ID_PATH]):
            replacements.append((span, new_id))

        return with_body(request, splice(request.body, replacements))

    def post_message(self, body: bytes, owner: RequestOwner) -> Observation:
        """Return the request that posts a message which is no call, where its owner sends."""
        owner_request = owner.request
        if owner_request.is_line:
            post_request = line_request(body)
        else:
            headers = (*POST_HEADERS, *_session_wide_headers(owner_request))
            post_request = Request("POST", owner_request.target, headers, body)

        return self.request_in_session(post_request, owner)

    def post_response(
        self,
        pushed: Message,
        owner: RequestOwner,
        value: bytes = b"{}",
        member: str = "result",
    ) -> Observation:
        """Return the request that responds to one of the server; an empty result is for a ping."""
        identity = pushed.spelled_id or b"null"
        return self.post_message(
            _RESPONSE_BODY % (identity, member.encode(), value), owner
        )

    def give_push_to_owner(self, push: OpenPush) -> Observation | None:
        """Take a request that the server pushed, on whatever stream."""
        owner = self._owners_by_number.get(push.exchange_number)
        if owner is None:
            return None
        return owner.push_received(push)

    def push_as_recorded(self, push: OpenPush) -> tuple[RecordedExchange, Message]:
        """Return a pushed request as it would be recorded: as the response to its call."""
        piece = Piece(push.message.raw, 0.0, 0)
        response = Response(200, JSON_HEADERS, (piece,), End.COMPLETE)
        request = push.call.request
        unsealed_exchange = RecordedExchange(
            push.exchange_number, request, response, 0.0, 0.0, ended_after=0
        )
        exchange = self.recorder.sealer.seal(unsealed_exchange, push.call).exchange
        if exchange.response is None:
            return exchange, push.message

        sealed_message = server_message(exchange.response.body)
        return exchange, sealed_message or push.message

    def response_received(self, observation: Observation) -> RequestOwner | None:
        """Take the whole response to a request; return the owner of the request.

        A session has the id that comes with the result of `initialize`. Servers also name one in
        errors, and forget it at once.
        """
        if observation.call.method == INITIALIZE and observation.status == 200:
            self.id = observation.session or self.id

        return self._owners_by_number.pop(observation.number, None)

    def refuses_number_id(self, exchange: RecordedExchange) -> bool:
        """Take a reply; tell whether it refuses a request because its id is a number.

        From then on ids are texts, and also once a reply spells a number as a text.
        """
        request = exchange.call.message
        response = exchange.response
        if self.wants_text_ids or request is None or response is None:
            return False

        reply = last_response(response)
        if reply is None or _is_text_id(request.id):
            return False

        error = members_of(reply.tree.get("error"))
        is_refused = reply.id is None and error.get("code") == _INVALID_REQUEST
        self.wants_text_ids = is_refused or reply.id == canonical(request.id)

        return is_refused


def _is_text_id(identity: str | None) -> bool:
    """Tell whether an id, as JSON, is a text."""
    return identity is not None and identity.startswith('"')


def with_id_of(call: Call, live: RecordedExchange) -> RecordedExchange:
    """Return a live exchange with the id of another call, also where the response repeats it."""
    live_id = caller_values(live.call.message).id or b""
    digits = live_id.strip(b'"')
    if not GENERATED_ID.fullmatch(digits):
        return live

    call_id = caller_values(call.message).id or b""
    # In a text, quotes may be escaped; a server that quotes one writes a number without them.
    repeated_id_pattern = re.compile(
        rb"""(\\*["'])?(?<![0-9])%b(?![0-9])(?(1)\1)""" % digits
    )

    def call_id_in_quotes_of(id_match: re.Match[bytes]) -> bytes:
        quote = id_match[1] or b""
        if call_id.startswith(b'"'):
            return quote + call_id[1:-1] + quote
        return call_id

    def with_call_id(raw: bytes, _name: str) -> bytes:
        return repeated_id_pattern.sub(call_id_in_quotes_of, raw)

    return exchange_with_changed_texts(live, with_call_id)


def resuming_request(observation: Observation) -> tuple[Request, float] | None:
    """Return the request for the rest of a response that broke off, and the wait before it.

    A server may end the stream of a call before the response, once it has sent an event with an id;
    the client waits as many seconds as `retry` says (MCP 2025-11-25, "Resumability and
    Redelivery"). None means that the response is complete, or can't be resumed.
    """
    call = observation.call
    if call.message is None or call.message.kind is not Kind.REQUEST:
        return None
    if observation.is_answered or observation.is_listening:
        return None

    last_id = ""
    wait_ms = _DEFAULT_RECONNECT_MS
    for event in observation.events:
        last_id = event_id(event) or last_id
        wait = retry_ms(event)
        if wait is not None:
            wait_ms = wait

    if not last_id:
        return None

    session_headers = _session_wide_headers(call.request)
    headers = (("Accept", EVENT_STREAM), *session_headers, ("Last-Event-ID", last_id))
    request = _with_identity_encoding(Request("GET", call.request.target, headers, b""))

    return request, min(wait_ms, _DEFAULT_RECONNECT_MS) / 1000


def _session_wide_headers(request: Request) -> Headers:
    """Return the headers of a request that all requests of its session have."""
    shared_headers = []
    for name, value in request.headers:
        if name.lower() in _SESSION_WIDE_HEADERS:
            shared_headers.append((name, value))

    return tuple(shared_headers)


def with_session_header(request: Request, session: str) -> Request:
    """Return a request in a session, or in none."""
    if request.header(SESSION_HEADER) == session:
        return request
    return _with_header(request, "Mcp-Session-Id", session)


def _with_identity_encoding(request: Request) -> Request:
    """Return a request whose response is not to be compressed."""
    if request.is_line:
        return request
    return _with_header(request, "Accept-Encoding", "identity")


def _with_header(request: Request, name: str, value: str) -> Request:
    """Return a request with another value of a header; an empty one removes it."""
    headers = without_header(request.headers, name.lower())
    if value:
        headers = (*headers, (name, value))

    return replace(request, headers=headers)


def with_body(request: Request, body: bytes) -> Request:
    """Return a request with another body, and without the length that it announced."""
    return replace(_with_header(request, "Content-Length", ""), body=body)


def with_texts_replaced_at(
    body: bytes, paths: Sequence[MemberPath], new_value: Callable[[str], str | None]
) -> bytes:
    """Return a request with other texts at some places; None leaves one as it is."""
    replacements = []
    for _, span in find_spans(body, paths):
        value = parse(span.slice_of(body))
        if not isinstance(value, str):
            continue

        new_text = new_value(value)
        if new_text is not None:
            replacements.append((span, to_json(new_text).encode()))

    return splice(body, replacements)


def with_live_names(raw: bytes, live_by_name: Mapping[str, str]) -> bytes:
    """Return a JSON text of a cassette with live values in place of the cassette's names.

    A value that was recorded verbatim is no name, and may be an ordinary word.
    """

    def live_value_of_ref(ref: Ref) -> bytes | None:
        """Return the live value of a reference, as JSON without quotes; None leaves it as it is."""
        if ref.kind not in LIVE or ref.name not in live_by_name:
            return None

        quoted_value = to_json(live_by_name[ref.name])
        return quoted_value[1:-1].encode()

    return with_changed_refs(raw, live_value_of_ref)


def issued_values(recorded: Message | None, live: Message | None) -> dict[str, str]:
    """Return the cursors and task ids of a live response by those of the recorded one."""
    values: dict[str, str] = {}
    if recorded is None or live is None:
        return values

    for path in ISSUED_VALUE_PATHS:
        recorded_value = value_at(recorded.tree, path)
        live_value = value_at(live.tree, path)
        if isinstance(recorded_value, str) and isinstance(live_value, str):
            values[recorded_value] = live_value

    return values


def other_request_of_client(
    call: Request, method: str, params: Mapping[str, Any] = MappingProxyType({})
) -> Request:
    """Return another request of the client that makes a call, with its headers and `_meta`."""
    members = dict(params)
    call_message = read_call(call).message
    if call_message is not None and "_meta" in call_message.params:
        meta = dict(call_message.meta)
        meta.pop("progressToken", None)
        members["_meta"] = meta

    message = {
        "jsonrpc": "2.0",
        "id": 0,
        "method": method,
        "params": members,
    }

    headers = _headers_of_other_request(call, method)
    if call.header("mcp-method"):
        headers += _name_headers(method, params)

    request = Request(call.method, call.target, tuple(headers), b"")
    return with_body(request, to_json(message).encode())


def _name_headers(method: str, params: Mapping[str, Any]) -> list[Header]:
    """Return the header with the name of what is called, if the method names anything."""
    name = params.get(method_of(method).named_by)
    if not isinstance(name, str):
        return []
    return [("Mcp-Name", header_text(name))]


def _headers_of_other_request(call: Request, method: str) -> list[Header]:
    """Return the headers of a call as another request of its client has them."""
    headers = []
    for name, value in call.headers:
        lower = name.lower()
        if lower == "mcp-method":
            headers.append((name, method))
        elif not lower.startswith(_CALL_HEADER_PREFIXES):
            headers.append((name, value))

    return headers


Era = Literal["legacy", "modern"]
MODERN_VERSION: Final = "2026-07-28"
LEGACY_VERSION: Final = "2025-11-25"
_META_PREFIX: Final = "io.modelcontextprotocol/"
_CAPABILITIES_KEY: Final = f"{_META_PREFIX}clientCapabilities"
VERSION_HEADER: Final = "MCP-Protocol-Version"


class BuiltInClient:
    """The built-in client; its `era`, the revision that the server speaks, is None until known.

    A user who adds the header of the newer revision knows it.
    """

    def __init__(
        self, target: str, kinds: Collection[str], version: str, added_headers: Headers
    ) -> None:
        self.era: Era | None = None
        if header_value(added_headers, VERSION_HEADER.lower()) == MODERN_VERSION:
            self.era = "modern"

        self._target = target
        self._client_info = {"name": "mrtr-cassette", "version": version}
        self._capabilities = _client_capabilities(kinds)
        self._protocol_version = MODERN_VERSION

    @property
    def _version_header(self) -> Header:
        """The header with the revision that the client speaks."""
        return VERSION_HEADER, self._protocol_version

    def discover_request(self) -> Request:
        """Return the request that tries the newer revision."""
        return self.call_request(DISCOVER, {})

    def take_discover_response(self, exchange: RecordedExchange) -> None:
        """Take the response to it."""
        result = exchange.result_members
        versions = result.get("supportedVersions")
        extensions = value_at(result, ("capabilities", "extensions"))
        spoken_extensions = SPOKEN_EXTENSIONS & members_of(extensions).keys()
        if spoken_extensions:
            self._capabilities["extensions"] = {
                extension: {} for extension in spoken_extensions
            }

        if isinstance(versions, list) and MODERN_VERSION in versions:
            self.era = "modern"
        else:
            self.era = "legacy"
            self._protocol_version = LEGACY_VERSION

    def initialize_request(self) -> Request:
        """Return the request that opens a session of an earlier revision."""
        params = {
            "protocolVersion": self._protocol_version,
            "capabilities": self._capabilities,
            "clientInfo": self._client_info,
        }
        return self._posting_request(INITIALIZE, params, ())

    def take_initialize_response(self, exchange: RecordedExchange) -> Request | None:
        """Take the response to `initialize`; return the next request, or None if there is none."""
        result = exchange.rpc_members.get("result")
        if not isinstance(result, dict):
            return None

        version = result.get("protocolVersion")
        if isinstance(version, str):
            self._protocol_version = version

        return self._posting_request(INITIALIZED, None, (self._version_header,))

    def listening_request(self) -> Request:
        """Return the request for the stream on which a server of an earlier revision asks too."""
        headers = (("Accept", EVENT_STREAM), self._version_header)
        return Request("GET", self._target, headers, b"")

    def session_end_request(self) -> Request:
        """Return the request that ends a session."""
        return Request("DELETE", self._target, (self._version_header,), b"")

    def call_request(
        self,
        method: str,
        params: Mapping[str, Any],
        input_schema: Mapping[str, Any] | None = None,
    ) -> Request:
        """Return the first request of a call; the tool's schema may want arguments in headers."""
        if self.era == "legacy":
            return self._posting_request(method, params, (self._version_header,))

        meta = {
            f"{_META_PREFIX}protocolVersion": self._protocol_version,
            f"{_META_PREFIX}clientInfo": self._client_info,
            _CAPABILITIES_KEY: self._capabilities,
        }

        headers = [self._version_header, ("Mcp-Method", method)]
        headers += _name_headers(method, params)
        headers += _argument_headers(input_schema or {}, params.get("arguments"))
        return self._posting_request(method, {**params, "_meta": meta}, headers)

    def _posting_request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        headers: Iterable[Header],
    ) -> Request:
        """Return the HTTP request that posts a message; notifications have no id."""
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if not method.startswith("notifications/"):
            message["id"] = 0

        if params is not None:
            message["params"] = params

        body = to_json(message).encode()
        return Request("POST", self._target, (*POST_HEADERS, *headers), body)


def is_modern(call: Call) -> bool:
    """Tell whether a request itself says who sends it, as the newer revision demands."""
    if call.message is None:
        return False
    return f"{_META_PREFIX}protocolVersion" in call.message.meta


def with_declared_kinds(request: Request, kinds: Collection[str]) -> Request:
    """Return a request of the newer revision that declares more kinds of questions."""
    message = read_call(request).message
    if message is None or not isinstance(message.params.get("_meta"), dict):
        return request

    declared_capabilities = dict(members_of(message.meta.get(_CAPABILITIES_KEY)))
    for name, capability in _client_capabilities(kinds).items():
        declared_options = members_of(declared_capabilities.get(name))
        declared_capabilities[name] = {**declared_options, **capability}

    member = {_CAPABILITIES_KEY: canonical(declared_capabilities).encode()}
    body = replace_members(request.body, ("params", "_meta"), member)
    return with_body(request, body)


def _client_capabilities(kinds: Collection[str]) -> dict[str, Any]:
    """Return the capabilities of a client that answers these kinds of questions."""
    capabilities: dict[str, Any] = {}
    for kind in QUESTION_KINDS:
        if kind.name not in kinds:
            continue

        members = capabilities
        for name in kind.capability:
            members = members.setdefault(name, {})

    return capabilities


def _argument_headers(schema: Mapping[str, Any], arguments: Any) -> Iterator[Header]:
    """Yield the headers in which a tool wants to have some of its arguments too."""
    values = members_of(arguments)
    for name, definition in members_of(schema.get("properties")).items():
        header = members_of(definition).get("x-mcp-header")
        value = values.get(name)
        if isinstance(header, str) and value is not None:
            text = value
            if not isinstance(value, str):
                text = to_json(value)

            yield f"Mcp-Param-{header}", header_text(text)
