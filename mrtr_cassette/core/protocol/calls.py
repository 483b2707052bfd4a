"""Which call a request makes: its call key, and what else distinguishes equal calls.

Owns: the key that requests share if they are the same call, the traits that break ties among equal
calls, and what identifies the caller.
Does not own: how answers are spelled (`dialect`), in which order recordings are chosen (`replay`).
Rule: ids and `_meta` never count in a key. All other params do.
Source: docs/matching.md.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from sys import intern
from typing import Any, NamedTuple

from mrtr_cassette.core.protocol.dialect import (
    INPUT_RESPONSES,
    REQUEST_STATE,
    Answers,
    answers_in,
)
from mrtr_cassette.core.protocol.jsonrpc import Kind, Message, classify
from mrtr_cassette.core.wire.http import SESSION_HEADER, Headers, Request, header_value
from mrtr_cassette.core.wire.jsonbytes import (
    MemberPath,
    canonical,
    parse,
)
from mrtr_cassette.core.wire.pointers import without_paths
from mrtr_cassette.errors import NotJsonError, printable

_NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_READ_ONLY = frozenset(
    {
        "completion/complete",
        "initialize",
        "logging/setLevel",
        "ping",
        "prompts/get",
        "resources/read",
        "server/discover",
        "subscriptions/listen",
    }
)
_NEVER_IN_KEY = frozenset({"_meta", INPUT_RESPONSES, REQUEST_STATE})
_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
_PROTOCOL_VERSION = "io.modelcontextprotocol/protocolVersion"
_FURTHER_HEADERS = ("mcp-method", "mcp-name", "mcp-param-", "access-control-request-")
_NOT_OF_CALLER = frozenset(
    {"progressToken", "traceparent", "tracestate", _CAPABILITIES, _PROTOCOL_VERSION}
)


def is_read_only(method: str) -> bool:
    """Tell whether a JSON-RPC method changes nothing, so that its response may be played again."""
    return method in _READ_ONLY or method.endswith("/list")


class CallKey(NamedTuple):
    """What two requests share if and only if they are the same call.

    Attributes:
        endpoint: HTTP method and path with query; of what is no call and came over a pipe, what it
            is.
        method: JSON-RPC method; for other HTTP traffic an empty string.
        name: the tool's or prompt's name, the resource's URI, or an empty string.
        arguments: canonical text of all other params.
    """

    endpoint: str
    method: str
    name: str
    arguments: str

    def __str__(self) -> str:
        """Return the call's name for messages."""
        if not self.method:
            return printable(self.endpoint)
        return printable(f'{self.method} "{self.name}"' if self.name else self.method)


class Traits(NamedTuple):
    """What a server's response to the same call may depend on, the weightiest first.

    Traits break ties among recorded requests with the same key.
    """

    session: str
    has_progress_token: bool
    capabilities: str
    protocol_version: str
    further_headers: tuple[tuple[str, str], ...]
    accept: str


class Call(NamedTuple):
    """One request, read.

    Attributes:
        request: the request.
        message: its JSON-RPC message, or None for any other body.
    """

    request: Request
    message: Message | None

    @property
    def is_rpc(self) -> bool:
        """Whether it is a JSON-RPC request or notification."""
        return self.message is not None and self.message.kind is not Kind.RESPONSE

    @property
    def method(self) -> str:
        """JSON-RPC method; for other HTTP traffic an empty string."""
        return self.message.method if self.message is not None and self.is_rpc else ""

    @property
    def answers(self) -> Answers | None:
        """The answers of a retry; None for any other request."""
        if self.message is None or self.message.kind is not Kind.REQUEST:
            return None
        return answers_in(self.message.params)

    @property
    def arguments(self) -> Any:
        """The value whose canonical text the key has; bytes if the body is no JSON."""
        if self.message is None or not self.is_rpc:
            try:
                return parse(self.request.body)
            except NotJsonError:
                return self.request.body
        params = self.message.tree.get("params", {})
        if not isinstance(params, dict):
            return params
        kept = {key: value for key, value in params.items() if key not in _NEVER_IN_KEY}
        if self.message.method == "notifications/cancelled":
            kept.pop("requestId", None)
        named_by = _NAMED_BY.get(self.message.method)
        if named_by:
            if isinstance(kept.get(named_by), str):
                del kept[named_by]
            if kept.get("arguments") in (None, {}):
                kept.pop("arguments", None)
        return kept

    @property
    def name(self) -> str:
        """The tool's or prompt's name, or the resource's URI."""
        if self.message is None:
            return ""
        name = self.message.params.get(_NAMED_BY.get(self.message.method, ""))
        return name if isinstance(name, str) else ""

    def key(self, ignored: Collection[MemberPath] = ()) -> CallKey:
        """Return the call key.

        Args:
            ignored: members that don't count: of the params, or of the result of a posted answer,
                in which a member that is null never counts.
        """
        arguments, method, name = self.arguments, self.method, self.name
        is_answer = self.message is not None and self.message.kind is Kind.RESPONSE
        if ignored and is_answer:
            arguments = {**arguments, "result": without_paths(arguments.get("result"), ignored)}
        elif ignored:
            arguments = without_paths(arguments, ignored)
            if isinstance(arguments, dict) and name and arguments.get("arguments") == {}:
                del arguments["arguments"]
        if isinstance(arguments, bytes):
            text = f"bytes {arguments.decode('latin-1')}"
        else:
            text = canonical(arguments, without_null=is_answer)
        if self.message is not None and self.message.kind is Kind.NOTIFICATION:
            # A notification gets no response, even one that has a request's method.
            text = f"notification {text}"
        if self.request.is_line:
            endpoint = "" if method else line_label(self)
        else:
            endpoint = f"{self.request.method} {self.request.target}"
        # Nearly all calls share these strings with others.
        return CallKey(intern(endpoint), intern(method), intern(name), text)

    @property
    def traits(self) -> Traits:
        """What breaks ties among recorded requests with the same key."""
        meta: Mapping[str, Any] = self.message.meta if self.message is not None else {}
        version = meta.get(_PROTOCOL_VERSION)
        session, header_version, further_headers, accept = traits_of_headers(self.request.headers)
        return Traits(
            session,
            self.message is not None and self.message.progress_token is not None,
            canonical(meta.get(_CAPABILITIES)),
            f"{canonical(version)} {header_version}",
            further_headers,
            accept,
        )

    @property
    def caller(self) -> str:
        """Who sends the request, as far as it tells: its session and the rest of its `_meta`."""
        meta = self.message.meta if self.message is not None else {}
        identity = {key: value for key, value in meta.items() if key not in _NOT_OF_CALLER}
        session = traits_of_headers(self.request.headers)[0]
        return f"{session} {canonical(identity) if identity else '{}'}"


@lru_cache(maxsize=1024)
def traits_of_headers(
    headers: Headers,
) -> tuple[str, str, tuple[tuple[str, str], ...], str]:
    """Return session, protocol version, further `Mcp-*` headers or a preflight's, `Accept`.

    Cached, as a client sends the same headers with all of its calls.
    """
    return (
        header_value(headers, SESSION_HEADER),
        header_value(headers, "mcp-protocol-version"),
        tuple(
            sorted(
                (name.lower(), value)
                for name, value in headers
                if name.lower().startswith(_FURTHER_HEADERS)
            )
        ),
        header_value(headers, "accept"),
    )


def line_label(call: Call) -> str:
    """Return how messages name what came over a pipe and is no JSON-RPC request."""
    if call.message is not None:
        return "a JSON-RPC response"
    return "a line that is no message" if call.request.body else "what the server says by itself"


def read_call(request: Request) -> Call:
    """Read a request."""
    is_message = request.method == "POST" or request.is_line
    return Call(request, classify(request.body) if is_message else None)
