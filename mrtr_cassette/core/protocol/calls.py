"""Which call a request makes: its call key, and what else distinguishes equal calls."""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from sys import intern
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.protocol.dialect import (
    INPUT_RESPONSES,
    NO_PARAMS,
    REQUEST_STATE,
    Answers,
    answers_in,
)
from mrtr_cassette.core.protocol.jsonrpc import (
    Kind,
    Message,
    id_or_token_text,
    message_in,
    server_messages,
)
from mrtr_cassette.core.protocol.methods import (
    CALL_TOOL,
    GET_TASK,
    INITIALIZE,
    METHODS,
    method_of,
)
from mrtr_cassette.core.wire.http import (
    CONDITION_HEADERS,
    LAST_EVENT_ID_HEADER,
    SESSION_HEADER,
    Headers,
    Request,
    decoded_header,
    header_value,
)
from mrtr_cassette.core.wire.jsonbytes import MemberPath, Span, canonical, parse
from mrtr_cassette.core.wire.pointers import (
    members_of,
    without_null_members,
    without_paths,
)
from mrtr_cassette.errors import NotJsonError, printable

NO_SESSION: Final = ""
"""The session of all clients that have none."""

_SHORTEST_ID: Final = 16
"""Characters from which a part of a URL is taken for a session id, whatever its name."""

_SESSION_NAME: Final = re.compile(r"session|client|conn|sid\Z|\Aid\Z", re.IGNORECASE)
_QUERY_VALUE: Final = re.compile(r"(?<=[?&])([^=&#]*)=([^&#]+)")
_PATH_SEGMENT: Final = re.compile(r"(?<=/)[^/#]+")
_URL_DELIMITER: Final = re.compile("[/?&]")
_VERSION_SEGMENT: Final = re.compile("v[0-9.]+")
_DECIMAL_DIGIT: Final = re.compile("[0-9]")
_SESSION_SURROGATE: Final = r"mrtr-session(?::|%3A)[0-9]{1,9}"
_SESSION_HASH: Final = r"sha256(?::|%3A)[0-9a-f]{64}"
_ANY_SESSION_NAME = re.compile(f"{_SESSION_SURROGATE}|{_SESSION_HASH}", re.ASCII)
# A hash may also be a digest that a client sends; under such a name it is a session's.
_SESSION_NAME_IN_URL = re.compile(
    f"{_SESSION_SURROGATE}|(?<=[Ss]ession[Ii]d=){_SESSION_HASH}|(?<=session_id=){_SESSION_HASH}",
    re.ASCII,
)


def session_of(request: Request) -> str:
    """Return the id of the session in which a recorded request was sent."""
    return header_value(request.headers, SESSION_HEADER) or session_in(request.target)


@lru_cache(maxsize=1024)
def session_in(text: str) -> str:
    """Return the session id in a recorded URL."""
    match = _ANY_SESSION_NAME.search(text)
    if match is None:
        return NO_SESSION
    return match[0].replace("%3A", ":")


def session_ids_in_target(target: str, stream_target: str) -> list[Span]:
    """Return where session ids stand in the target to which a client of HTTP+SSE posts.

    These are the long values of its query, or the last long segment of its path with a digit. A
    short one is an id by its name, or by a digit, where the target of the stream has it not.
    """
    query_values = list(_QUERY_VALUE.finditer(target))
    spans_of_long_values = []
    for match in query_values:
        if len(match[2]) >= _SHORTEST_ID:
            spans_of_long_values.append(Span(*match.span(2)))

    if spans_of_long_values:
        return spans_of_long_values

    path = target.partition("?")[0]
    segments_with_digit = []
    for match in _PATH_SEGMENT.finditer(path):
        if _DECIMAL_DIGIT.search(match[0]):
            segments_with_digit.append(match)

    segments_with_digit.reverse()
    for match in segments_with_digit:
        if len(match[0]) >= _SHORTEST_ID:
            return [Span(*match.span())]

    segments_of_stream = set(_URL_DELIMITER.split(stream_target))
    return _short_session_id_in(query_values, segments_with_digit, segments_of_stream)


def _short_session_id_in(
    values: Iterable[re.Match[str]],
    segments: Iterable[re.Match[str]],
    segments_of_stream: Container[str],
) -> list[Span]:
    """Return the short id that stands in a query's values or a path's segments, if one does."""
    for match in values:
        if _SESSION_NAME.search(match[1]) and match[0] not in segments_of_stream:
            return [Span(*match.span(2))]

    for match in segments:
        is_version = _VERSION_SEGMENT.fullmatch(match[0])
        if match[0] not in segments_of_stream and not is_version:
            return [Span(*match.span())]

    return []


@lru_cache(maxsize=1024)
def without_session(target: str) -> str:
    """Return a URL with one name in the place of any session id."""
    return _SESSION_NAME_IN_URL.sub("mrtr-session", target)


_PARAMS_NEVER_IN_KEY = frozenset({"_meta", INPUT_RESPONSES, REQUEST_STATE})
_CLIENT_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
_CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
PROTOCOL_VERSION: Final = "io.modelcontextprotocol/protocolVersion"

# Header values by what they mean, whichever way a client spells them

PARAMETER_PREFIX: Final = "mcp-param-"
_NAME_HEADER: Final = "mcp-name"
_QUOTED_STRING: Final = r'"(?:[^"\\]|\\.)*"'
_LIST_ITEM: Final = re.compile(rf'(?:[^",]|{_QUOTED_STRING})+')
_ITEM_PART: Final = re.compile(rf'(?:[^";]|{_QUOTED_STRING})+')
_DECIMAL_NUMBER: Final = re.compile(
    r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?", re.ASCII
)
_FULL_WEIGHT: Final = Decimal(1)

MediaRange = tuple[str, ...]
"""A type of media, and its parameters in alphabetical order."""


def media_ranges(accept: str) -> frozenset[tuple[MediaRange, Decimal]]:
    """Return the types of media that an `Accept` names, each with its weight."""
    weights: dict[MediaRange, Decimal] = {}
    for item in _LIST_ITEM.findall(accept):
        type_and_parameters = [part.strip() for part in _ITEM_PART.findall(item)]
        weight = _FULL_WEIGHT
        parameters = []
        for part in type_and_parameters[1:]:
            name, _, value = part.partition("=")
            name = name.strip().lower()
            value = value.strip().strip('"')
            if name == "q":
                weight = _weight_of_q(value)
            elif name:
                parameters.append(f"{name}={value}")

        if type_and_parameters and type_and_parameters[0]:
            weights[type_and_parameters[0].lower(), *sorted(parameters)] = weight

    return frozenset(weights.items())


def _weight_of_q(text: str) -> Decimal:
    """Return the weight that a `q` gives; the full weight if it is no finite number."""
    try:
        weight = Decimal(text)
    except InvalidOperation:
        return _FULL_WEIGHT

    return weight if weight.is_finite() else _FULL_WEIGHT


def header_meaning(name: str, value: str) -> str:
    """Return the text, or the number, that a header says, by its lower-case name.

    MCP has names and arguments in headers, where any text may be spelled in base64.
    """
    is_parameter = name.startswith(PARAMETER_PREFIX)
    if not is_parameter and name != _NAME_HEADER:
        return value

    decoded_value = decoded_header(value)
    decoded_text = value if decoded_value is None else decoded_value
    if not is_parameter or not _DECIMAL_NUMBER.fullmatch(decoded_text):
        return decoded_text

    try:
        return canonical(parse(decoded_text.encode()))
    except NotJsonError:
        return decoded_text


_FURTHER_TRAIT_HEADERS = (
    "mcp-method",
    "mcp-name",
    PARAMETER_PREFIX,
    "access-control-request-",
)
_EMPTY_MESSAGE: Final = Message(b"", Kind.RESPONSE, {}, "", None, {}, {})
"""Stands for the message of a request that has none."""

_META_NOT_OF_CALLER = frozenset(
    {
        "progressToken",
        "traceparent",
        "tracestate",
        _CLIENT_CAPABILITIES,
        PROTOCOL_VERSION,
    }
)


def resumed_event_id(request: Request) -> str:
    """Return the id of the event after which a GET asks for the rest of a stream, or nothing."""
    if request.method != "GET":
        return ""
    return request.header(LAST_EVENT_ID_HEADER)


class CallKey(NamedTuple):
    """What two requests share if and only if they are the same call."""

    endpoint: str
    method: str
    name: str
    arguments: str

    @property
    def without_arguments(self) -> CallKey:
        """The key that it shares with the calls of the same name, whatever their arguments."""
        return self._replace(arguments="")

    @property
    def tool_or_method(self) -> str:
        """What a user names who says that it only reads: the tool, or the method."""
        return self.name if self.method == CALL_TOOL else self.method

    def __str__(self) -> str:
        """Return the call's name for messages."""
        title = self.method or self.endpoint
        if self.method and self.name:
            title += f' "{self.name}"'

        return printable(title)


class Traits(NamedTuple):
    """What a server's response to the same call may depend on, the weightiest first.

    Traits break ties among recorded requests with the same key. Headers are compared by what they
    mean, and only then by their spelling.
    """

    empty_members_text: str = ""
    session: str = ""
    is_conditional: bool = False
    named_headers: Headers = ()
    is_authorized: bool = False
    has_progress_token: bool = False
    capabilities: str = ""
    protocol_version: str = ""
    further_headers: Headers = ()
    accepted: frozenset[MediaRange] = frozenset()
    weights: frozenset[tuple[MediaRange, Decimal]] = frozenset()
    spellings: Headers = ()


def depends_on_writes(kind: Kind | None, method: str) -> bool:
    """Tell whether the result of a message depends on what was written before it."""
    return kind is Kind.REQUEST and not method_of(method).steady


class Call(NamedTuple):
    """One request, read."""

    request: Request
    message: Message | None

    @property
    def _message_or_empty(self) -> Message:
        """Its message; an empty response if it has none."""
        return self.message or _EMPTY_MESSAGE

    @property
    def kind(self) -> Kind | None:
        """The kind of its message; None where it has none."""
        return None if self.message is None else self.message.kind

    @property
    def is_rpc(self) -> bool:
        """Whether it is a JSON-RPC request or notification."""
        return self._message_or_empty.kind is not Kind.RESPONSE

    @property
    def method(self) -> str:
        """JSON-RPC method; for other HTTP traffic an empty string."""
        if self.message is None:
            return ""
        return self.message.method

    @property
    def depends_on_writes(self) -> bool:
        """Whether its result depends on what was written before it."""
        return depends_on_writes(self._message_or_empty.kind, self.method)

    @property
    def answers(self) -> Answers | None:
        """The answers of a retry; None for any other request."""
        rpc = self._message_or_empty
        if rpc.kind is not Kind.REQUEST:
            return None
        return answers_in(rpc.params)

    @property
    def named_task_id(self) -> str | None:
        """The id, which a response issued, of the task that it is about; None for any other."""
        return self._message_or_empty.named_task_id

    @property
    def is_poll(self) -> bool:
        """Whether it asks for the state of a task."""
        return self.method == GET_TASK

    @property
    def echoed(self) -> str | None:
        """The id that it names, or the request state that it carries, or None."""
        if self.named_task_id:
            return self.named_task_id

        answers = self.answers
        return None if answers is None else answers.request_state

    @property
    def arguments(self) -> Any:
        """The value whose canonical text the key has; bytes if the body is no JSON."""
        if self.is_rpc:
            return self._params_in_key

        try:
            tree = parse(self.request.body)
        except NotJsonError:
            return self.request.body

        if not self.batch:
            return tree

        return [_without_callers_values(item) for item in tree]

    @property
    def _params_in_key(self) -> Any:
        """The params without the name, and without members by which equal calls may differ."""
        params = self._message_or_empty.tree.get("params")
        if params in NO_PARAMS:
            return {}
        if not isinstance(params, dict):
            return params

        remaining_params = params.copy()
        for member in self._null_members:
            del remaining_params[member]

        method = method_of(self.method)
        for member in (*_PARAMS_NEVER_IN_KEY, *method.not_in_key):
            remaining_params.pop(member, None)

        if method.named_by:
            if isinstance(remaining_params.get(method.named_by), str):
                del remaining_params[method.named_by]

            if remaining_params.get("arguments") in (None, {}):
                remaining_params.pop("arguments", None)

        return remaining_params

    @property
    def name(self) -> str:
        """What names the call: a tool's or prompt's name, a resource's URI, a task's id."""
        name = self._message_or_empty.params.get(method_of(self.method).named_by)
        if not isinstance(name, str):
            return ""
        return name

    @property
    def cursor(self) -> str | None:
        """The cursor of the page of a list that it requests; None for any other request."""
        cursor = self._message_or_empty.params.get("cursor")
        return cursor if isinstance(cursor, str) else None

    @property
    def endpoint(self) -> str:
        """Its HTTP method and path, as in its key."""
        if not self.request.is_line:
            return f"{self.request.method} {without_session(self.request.target)}"
        return "" if self.method else line_label(self)

    @property
    def title(self) -> str:
        """Its name in messages, without the key's arguments, which may be large."""
        return str(CallKey(self.endpoint, self.method, self.name, ""))

    def key(self, ignored: Collection[MemberPath] = ()) -> CallKey:
        """Return the call key."""
        arguments = self._arguments_text(ignored)
        if self._message_or_empty.kind is Kind.NOTIFICATION:
            # A notification gets no response, even one that has a request's method.
            arguments = f"notification {arguments}"

        contradicting_header = self.contradicting_header
        if contradicting_header:
            arguments = f"{arguments} {contradicting_header}"

        event_id = resumed_event_id(self.request)
        if event_id:
            arguments = f"{arguments} after {event_id}"

        # Nearly all calls share these strings with others.
        endpoint = intern(self.endpoint)
        return CallKey(endpoint, intern(self.method), intern(self.name), arguments)

    def _arguments_text(self, ignored: Collection[MemberPath]) -> str:
        """Return the canonical text of the arguments, without the values at ignored paths."""
        arguments = self.arguments
        is_answer = self.message is not None and self.message.kind is Kind.RESPONSE
        if ignored and is_answer:
            compared_result = without_paths(arguments.get("result"), ignored)
            arguments = {**arguments, "result": compared_result}
        elif ignored:
            arguments = without_paths(arguments, ignored)
            if self.name and members_of(arguments).get("arguments") == {}:
                del arguments["arguments"]

        if isinstance(arguments, bytes):
            return f"bytes {arguments.decode('latin-1')}"

        if is_answer:
            arguments = without_null_members(arguments)

        return canonical(arguments)

    @property
    def contradicting_header(self) -> str:
        """The header that says something else than the body; empty where none does.

        A server refuses such a request, whatever the body asks for.
        """
        if not self.is_rpc:
            return ""

        method = self.request.header("mcp-method")
        if method not in ("", self.method):
            return f"Mcp-Method: {method}"

        spelled_name = self.request.header("mcp-name")
        if spelled_name in ("", self.name):
            return ""

        name = header_meaning("mcp-name", spelled_name)
        if name == self.name or not method_of(self.method).named_by:
            return ""

        return f"Mcp-Name: {name}"

    def traits(self, header_names: Collection[str] = ()) -> Traits:
        """Return what breaks ties among recorded requests with the same key.

        Among the headers are those with these lower-case names.
        """
        rpc = self._message_or_empty
        capabilities = rpc.meta.get(_CLIENT_CAPABILITIES)
        version = rpc.meta.get(PROTOCOL_VERSION)
        if rpc.method == INITIALIZE:
            capabilities = rpc.params.get("capabilities")
            version = rpc.params.get("protocolVersion")

        headers = self.request.headers
        of_headers = traits_of_headers(headers)
        return Traits(
            empty_members_text=self._empty_members_text,
            session=session_of(self.request),
            is_conditional=of_headers.is_conditional,
            named_headers=_named_headers(headers, header_names),
            is_authorized=of_headers.is_authorized,
            has_progress_token=rpc.progress_token is not None,
            capabilities=canonical(capabilities),
            protocol_version=f"{canonical(version)} {of_headers.protocol_version}",
            further_headers=of_headers.further_headers,
            accepted=of_headers.accepted,
            weights=of_headers.weights,
            spellings=of_headers.spellings,
        )

    @property
    def batch(self) -> list[Message]:
        """The requests of a batch (MCP 2025-03-26) over HTTP; none for anything else."""
        body = self.request.body
        is_array = self.message is None and body.lstrip().startswith(b"[")
        if not is_array or self.request.is_line:
            return []

        messages = server_messages(body)
        return [message for message, _ in messages if message.kind is Kind.REQUEST]

    @property
    def _null_members(self) -> list[str]:
        """The members of its params that say the same as absent ones, as MCP has no null there."""
        params = self._message_or_empty.params
        if self.method in METHODS:
            return [name for name in params if params[name] is None]
        return ["cursor"] if params.get("cursor", "") is None else []

    @property
    def _empty_members_text(self) -> str:
        """What equals absent params or members of them, where only one of both was recorded."""
        params = self._message_or_empty.tree.get("params", {})
        if params in NO_PARAMS:
            return canonical(params)

        empty_members = dict.fromkeys(self._null_members)
        named_by = method_of(self.method).named_by
        if named_by:
            for name in (named_by, "arguments"):
                if self._message_or_empty.params.get(name) in ("", {}):
                    empty_members[name] = self._message_or_empty.params[name]

        return canonical(empty_members) if empty_members else ""

    @property
    def client(self) -> str:
        """The client's `clientInfo` in `_meta`; empty where it has none."""
        info = self._message_or_empty.meta.get(_CLIENT_INFO)
        if info is None:
            return ""
        return canonical(info)

    @property
    def caller(self) -> str:
        """Its sender: the session, and the members of `_meta` that identify a client."""
        rpc = self._message_or_empty
        client = {}
        for key, value in rpc.meta.items():
            if key not in _META_NOT_OF_CALLER:
                client[key] = value

        if rpc.method == INITIALIZE:
            client["clientInfo"] = rpc.params.get("clientInfo")

        client_text = canonical(client) if client else "{}"
        return f"{session_of(self.request)} {client_text}"


def _without_callers_values(item: Any) -> Any:
    """Return an item of a batch without the id and the metadata of a request, which never count.

    An id that no request can have stays: no response is under it.
    """
    is_request = {"id", "method"} <= members_of(item).keys()
    if not is_request or id_or_token_text(item["id"]) is None:
        return item

    params = item.get("params")
    if isinstance(params, dict):
        params = {name: value for name, value in params.items() if name != "_meta"}

    return {**item, "id": "", "params": params}


def _named_headers(headers: Headers, names: Collection[str]) -> Headers:
    """Return the headers with some lower-case names, in order."""
    if not names:
        return ()

    named = []
    for name, value in headers:
        if name.lower() in names:
            named.append((name.lower(), value))

    return tuple(sorted(named))


@lru_cache(maxsize=1024)
def traits_of_headers(headers: Headers) -> Traits:
    """Return the traits that headers have.

    Cached, as a client sends the same headers with all of its calls.
    """
    names = set()
    spelled_headers = []
    meant_headers = []
    for spelled_name, value in headers:
        name = spelled_name.lower()
        names.add(name)
        if name.startswith(_FURTHER_TRAIT_HEADERS):
            spelled_headers.append((name, value))
            meant_headers.append((name, header_meaning(name, value)))

    accept = header_value(headers, "accept")
    weights = media_ranges(accept)

    return Traits(
        is_conditional=not names.isdisjoint(CONDITION_HEADERS),
        session=header_value(headers, SESSION_HEADER),
        is_authorized="authorization" in names,
        protocol_version=header_value(headers, "mcp-protocol-version"),
        further_headers=tuple(sorted(meant_headers)),
        accepted=frozenset(media for media, weight in weights if weight),
        weights=weights,
        spellings=(*sorted(spelled_headers), ("accept", accept)),
    )


def gets_response_lines(call: Call) -> bool:
    """Tell whether what came over a pipe gets a response: a request, and the channel itself."""
    if call.message is None:
        return not call.request.body
    return call.message.kind is Kind.REQUEST


def line_label(call: Call) -> str:
    """Return how messages name what came over a pipe and is no JSON-RPC request."""
    if call.message is not None:
        return "a JSON-RPC response"
    if call.request.body:
        return "a line that is not a message"
    return "what the server says by itself"


def read_call(request: Request) -> Call:
    """Read a request."""
    if request.method != "POST" and not request.is_line:
        return Call(request, None)
    return Call(request, message_in(request.body))
