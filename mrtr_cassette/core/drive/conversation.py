"""The client side of a live server: sessions, requests, and one call until it stands still."""
# Source: MCP 2026-07-28, "Multi Round-Trip Requests", "Versioning", "Transports" (`Mcp-Param-*`),
# "Pagination"; MCP 2025-11-25, "Lifecycle", "Session Management", "Elicitation"; the
# extension `io.modelcontextprotocol/tasks` of MCP 2026-07-28.

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from json.encoder import encode_basestring_ascii
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol

from mrtr_cassette.core.cassette.lookup import caller_values
from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.cassette.texts import with_texts
from mrtr_cassette.core.compare.values import Change
from mrtr_cassette.core.drive.departures import Departure, messages_so_far
from mrtr_cassette.core.protocol.calls import Call, read_call
from mrtr_cassette.core.protocol.dialect import (
    INPUT_RESPONSES,
    InputRequired,
    with_answer_keys,
    with_params,
    write_retry,
)
from mrtr_cassette.core.protocol.jsonrpc import (
    ID_PATH,
    Kind,
    Message,
    last_response,
    server_message,
)
from mrtr_cassette.core.protocol.methods import (
    CANCEL_TASK,
    DISCOVER,
    GET_TASK,
    INITIALIZE,
    INITIALIZED,
    TASK_ID,
    UPDATE_TASK,
    method_of,
)
from mrtr_cassette.core.protocol.tasks import (
    POLL_INTERVAL,
    TASKS,
    TaskState,
    created_task,
    polled_state,
)
from mrtr_cassette.core.record.pushes import OpenPush
from mrtr_cassette.core.record.recorder import Observation, Recorder
from mrtr_cassette.core.secrets.sealed import is_name
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
from mrtr_cassette.errors import shorten

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
_MOST_PAGES: Final = 100
"""Pages that are read; a server may have no last one."""
_POLL_S: Final = 1.0
"""How long to wait before a poll where the server says nothing of it."""
_CANCELLED: Final = (
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%b}}'
)
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
        self._owners: dict[int, Conversation] = {}

    def request(self, request: Request, owner: Conversation) -> Observation:
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
            request = with_body(request, splice(body, [(span, identity) for span in spans]))
        request = _readable(in_session(request, self.id))
        observation = self.recorder.request_received(request, 0.0)
        self._owners[observation.number] = owner
        return observation

    def post(self, first: Request, body: bytes, owner: Conversation) -> Observation:
        """Return the request that posts a message which is no call, where `first` was sent."""
        if first.is_line:
            return self.request(line_request(body), owner)
        kept = tuple(pair for pair in first.headers if pair[0].lower() in _OF_ALL)
        return self.request(Request("POST", first.target, (*POST_HEADERS, *kept), body), owner)

    def pong(self, ping: Message, owner: Conversation) -> Observation:
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
        seen = RecordedExchange(push.exchange, request, response, 0.0, 0.0, None, None, 0)
        exchange = self.recorder.seal(seen, push.call).exchange
        sealed = None if exchange.response is None else server_message(exchange.response.body)
        return exchange, sealed or push.message

    def responded(self, observation: Observation) -> Conversation | None:
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
    own, identity = (caller_values(each.message).id or b"" for each in (live.call, call))
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


def with_live_names(raw: bytes, live_by_name: Mapping[str, str]) -> bytes:
    """Return a JSON text of a cassette with live values in the place of its names for them.

    What was recorded verbatim is no name, and may be a word.
    """
    names = [name for name in live_by_name if is_name(name)]
    if not names or b"mrtr-" not in raw:
        return raw
    longest_first = sorted(names, key=len, reverse=True)
    any_of_them = b"|".join(re.escape(name.encode()) for name in longest_first)

    def live(found: re.Match[bytes]) -> bytes:
        return encode_basestring_ascii(live_by_name[found[0].decode()])[1:-1].encode()

    return re.sub(rb"(?:%b)(?![0-9:])" % any_of_them, live, raw)


def issued_values(recorded: Message | None, live: Message | None) -> dict[str, str]:
    """Return the cursors and task ids of a live response by those of a recorded one."""
    trees = [{} if message is None else message.tree for message in (recorded, live)]
    old, new = ([value_at(tree, path) for path in ISSUED] for tree in trees)
    pairs = zip(old, new, strict=True)
    return {one: other for one, other in pairs if isinstance(one, str) and isinstance(other, str)}


def request_beside(
    call: Request, method: str, params: Mapping[str, Any] = MappingProxyType({})
) -> Request:
    """Return another request of the client that makes a call, with its headers and `_meta`."""
    calling = read_call(call).message
    if calling is not None and "_meta" in calling.params:
        meta = {name: value for name, value in calling.meta.items() if name != "progressToken"}
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
    if error is None:
        return text
    words = error.get("message") if isinstance(error, dict) else None
    if not isinstance(words, str):
        return f"{text}, error {shorten(canonical(error))}"
    first, _, _ = words.partition("\n")
    return f"{text}, error {canonical(error.get('code'))}: {shorten(first)}"


@dataclass(frozen=True, slots=True)
class LiveAsk:
    """An ask of the live server: a response to the call, or a request pushed meanwhile.

    `exchange` and `push` are as they would be recorded. Whatever goes back to the server is taken
    from what it said itself, which the other attributes have.

    Attributes:
        response: the response to the call as it came.
        push_id: the id of the pushed request as it came.
        live_keys: the keys of its questions as they came, by those that would be recorded.
        task: the state of the call's task, in the response that creates it or that asks.
        task_keys: the keys under which that state asks something new, by how they are recorded.
        call: the call, where the exchange is a poll of its task.
    """

    turn: int
    exchange: RecordedExchange
    request_state: str | None = None
    push: Message | None = None
    key: str = ""
    push_id: bytes = b"null"
    response: Message | None = None
    live_keys: Mapping[str, str] = field(default_factory=dict)
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
    response: Message | None = None
    """The response to the call as it came."""


Reply = Answered | NeedsAnswers | AskedOtherwise


class Script(Protocol):
    """What is answered in a conversation."""

    def answer(self, ask: LiveAsk) -> Reply:
        """Answer an ask, or say why it is not answered."""
        ...


class Conversation:
    """One call on a live server, or other requests, each made of the response before it.

    With `follows_task` it goes on with the task that the server makes of the call. Its script is
    told of the task when that is created, and of each state that asks something new. A task that
    has not ended when the conversation does is cancelled. Without a script nothing is answered. It
    is left as its `departure` says.
    """

    def __init__(
        self,
        request: Request,
        script: Script | None,
        session: ServerSession,
        *,
        follows_task: bool = False,
        departure: Departure | None = None,
    ) -> None:
        self.request, self.session = request, session
        self.cancelling: Observation | None = None
        """The notification that cancels the call, once it is sent."""
        self.standing: NeedsAnswers | AskedOtherwise | Finished | None = None
        self.is_over = False
        """Whether nothing that still comes is of interest."""
        self.unanswered: LiveAsk | None = None
        """The ask that needs an answer from elsewhere."""
        self.task: TaskState | None = None
        """The latest state of the task that the server has made of the call."""
        self._script, self._follows_task = script, follows_task
        self._asked = 0
        self._seen_keys: set[str] = set()
        self._pending: Observation | None = None
        self._departure, self._requests = departure, 0
        self._due = [self._with_answers(None, None)]

    def _with_answers(self, answers: bytes | None, state: str | None) -> Request:
        message = read_call(self.request).message
        if message is None or message.kind is not Kind.REQUEST:
            return self.request
        return with_body(self.request, write_retry(self.request.body, answers, state))

    @property
    def wait_s(self) -> float:
        """Seconds to wait before the next request: as long as the server asks for between polls."""
        if self.task is None or self._due or self.is_over:
            return 0.0
        asked_for = self.task.tree.get(POLL_INTERVAL)
        if not isinstance(asked_for, int | float) or asked_for < 0:
            return _POLL_S
        return asked_for / 1000

    def next(self) -> Observation | None:
        """Return the next request: of the call, then polls and updates of its task.

        Where an ask is not answered, this is the one that cancels the call or its task.
        """
        if self.is_over and self._pending is not None:
            pending, self._pending = self._pending, None
            departure = self._departure
            return None if departure and departure.notice is None else self._cancel(pending)
        if self.is_over:
            return self.leave()
        if self.task is not None and not self._due:
            self._due = [self._of_task(GET_TASK, self.task)]
        if not self._due:
            return None
        observation = self.session.request(self._due.pop(0), self)
        self._pending = observation if self.task is None else None
        self._requests += 1
        return observation

    def _cancel(self, pending: Observation) -> Observation | None:
        message = pending.call.message
        identity = None if message is None else message.spelled(ID_PATH)
        if identity is None:
            return None
        self.cancelling = self.session.post(self.request, _CANCELLED % identity, self)
        return self.cancelling

    @property
    def may_leave_at_once(self) -> bool:
        """Whether the pending request is to be left before anything has come."""
        departure = self._departure
        if departure is None or self._pending is None:
            return False
        return departure.after == 0 and departure.request == self._requests - 1

    def came(self, observation: Observation) -> Observation | None:
        """Take what has come of a response, after which the call may be left.

        Returns the notification that cancels it beside the response, if that is waited for.
        """
        departure = self._departure
        if departure is None or observation is not self._pending or self.is_over:
            return None
        if departure.request != self._requests - 1 or self.cancelling is not None:
            return None
        exchange = observation.seal(End.OPEN, 0.0)
        if observation.is_answered or messages_so_far(exchange.response) < departure.after:
            return None
        if departure.waits:
            return self._cancel(observation)
        self._stand(Finished(self._asked + 1, exchange))
        return None

    def leave(self) -> Observation | None:
        """Return the request that cancels the task, unless it has ended or was cancelled."""
        task, self.task = self.task, None
        if task is None or task.is_over:
            return None
        return self.session.request(self._of_task(CANCEL_TASK, task), self)

    def _of_task(self, method: str, task: TaskState) -> Request:
        return request_beside(self.request, method, {TASK_ID: task.id})

    def push_received(self, push: OpenPush) -> Observation | None:
        """Take a request that the server pushed because of this call."""
        if self.is_over or self._script is None:
            return None
        exchange, message = self.session.as_recorded(push)
        identity = push.message.spelled(ID_PATH) or b"null"
        ask = LiveAsk(self._asked + 1, exchange, None, message, push.key, identity)
        return self._tell(ask)

    def responded(self, observation: Observation) -> None:
        """Take the response to the last request, which the observation has seen whole."""
        self.session.responded(observation)
        exchange = observation.seal(End.COMPLETE, 0.0)
        response = observation.response
        method = observation.call.method
        if self.task is not None:
            if method == GET_TASK:
                self._polled(exchange, response)
            elif method == UPDATE_TASK and has_error(exchange):
                self._stand(Finished(self._asked + 1, exchange, response))
            return
        # A server may also give its result without waiting for an answer.
        is_late = self.unanswered is not None and observation.is_answered
        if observation is not self._pending or (self.is_over and not is_late):
            return
        self._pending = None
        self._stand(None)
        if self.session.refused_id(exchange):
            self._due = [observation.call.request]
            self._requests -= 1
            return
        if self._follows_task:
            self.task = created_task(observation.call.message, response)
        ask = LiveAsk(self._asked + 1, exchange, response=response, task=self.task)
        asked = observation.ask
        if self.task is not None:
            self._tell(ask)
        elif asked is not None and self._script is not None:
            keys = _live_keys(exchange, asked)
            self._tell(replace(ask, request_state=asked.request_state, live_keys=keys))
        elif (following := self._after(exchange, response)) is not None:
            self._due = [following]
        else:
            self._stand(Finished(self._asked + 1, exchange, response))

    def _after(self, _exchange: RecordedExchange, _response: Message | None) -> Request | None:
        """Return the request that follows a response, if any does."""
        return None

    def _polled(self, exchange: RecordedExchange, response: Message | None) -> None:
        state = self.task = polled_state(response)
        if state is None or state.is_over:
            self._stand(Finished(self._asked + 1, exchange, response))
            return
        sealed = polled_state(exchange.rpc_response) or state
        keys = zip(sealed.input_requests, state.input_requests, strict=False)
        new = {name: key for name, key in keys if key not in self._seen_keys}
        if new:
            self._seen_keys.update(new.values())
            ask = LiveAsk(self._asked + 1, exchange, response=response, task=state)
            self._tell(replace(ask, task_keys=new, call=read_call(self.request)))

    def _tell(self, ask: LiveAsk) -> Observation | None:
        # That a call becomes a task is no turn.
        self._asked += ask.task is None or bool(ask.task_keys)
        return None if self._script is None else self._replied(ask, self._script.answer(ask))

    def answer(self, answer: Answered) -> Observation | None:
        """Answer the ask that has no answer so far, unless the server has not waited for that."""
        ask = self.unanswered
        if ask is None:
            return None
        self._stand(None)
        return self._replied(ask, answer)

    def _stand(self, standing: NeedsAnswers | AskedOtherwise | Finished | None) -> None:
        self.standing, self.is_over = standing, standing is not None
        self.unanswered = standing.ask if isinstance(standing, NeedsAnswers) else None

    def _replied(self, ask: LiveAsk, reply: Reply) -> Observation | None:
        if not isinstance(reply, Answered):
            self._stand(reply)
        elif ask.push is not None:
            response = b'{"jsonrpc":"2.0","id":%b,"%b":%b}'
            body = response % (ask.push_id, reply.member.encode(), reply.value or b"{}")
            return self.session.post(self.request, body, self)
        elif ask.task is None:
            retry = self._with_answers(reply.value, ask.request_state)
            names = {key: live for key, live in ask.live_keys.items() if key != live}
            self._due = [with_body(retry, with_answer_keys(retry.body, names))]
        else:
            if reply.value is not None:
                update = self._of_task(UPDATE_TASK, ask.task)
                body = with_params(update.body, {INPUT_RESPONSES: reply.value})
                self._due.append(with_body(update, body))
            if reply.cancels:
                self._due.append(self._of_task(CANCEL_TASK, ask.task))
        return None


def _live_keys(exchange: RecordedExchange, asked: InputRequired) -> dict[str, str]:
    """Return the keys of an ask as the server has them, by those that would be recorded."""
    sealed = {} if exchange.ask is None else exchange.ask.input_requests
    return dict(zip(sealed, asked.input_requests, strict=False))


class ToolList(Conversation):
    """The tools of a live server, listed page after page."""

    def __init__(
        self, listing: Request, session: ServerSession, script: Script | None = None
    ) -> None:
        super().__init__(listing, script, session)
        self.tools: list[Any] = []
        self.is_whole = True
        self._pages = 0

    def _after(self, _exchange: RecordedExchange, response: Message | None) -> Request | None:
        result = None if response is None else response.tree.get("result")
        page = result if isinstance(result, dict) else {}
        tools = page.get("tools")
        self.is_whole = isinstance(tools, list)
        self.tools += tools if isinstance(tools, list) else ()
        self._pages += 1
        cursor = page.get("nextCursor")
        if not self.is_whole or not isinstance(cursor, str) or self._pages == _MOST_PAGES:
            return None
        member = {"cursor": encode_basestring_ascii(cursor).encode()}
        return with_body(self.request, with_params(self.request.body, member))

    def hints(self, name: str) -> Mapping[str, Any]:
        """Return what the server says that a tool does to the world."""
        named = (each for each in self.tools if isinstance(each, dict) and each.get("name") == name)
        hints = next(named, {}).get("annotations")
        return hints if isinstance(hints, dict) else {}


# Tasks


class AnsweredPoll(Conversation):
    """One poll of a client: what the task asks is answered, and it is polled until that shows.

    `seen` has the keys of the task's questions so far, and whether they were answered here; others
    are left to the client that made the `call`, as are those of an update that fails.
    """

    def __init__(
        self, poll: Request, session: ServerSession, call: Call, seen: dict[str, bool], asked: int
    ) -> None:
        super().__init__(poll, None, session)
        self._call, self._seen, self._asked = call, seen, asked

    def leave(self) -> Observation | None:
        """Leave the task to its client."""
        return None

    def answer(self, answer: Answered) -> Observation | None:
        """Answer what the last poll asked; then poll again."""
        ask = self.unanswered
        if ask is not None and answer.value is not None:
            self._seen.update(dict.fromkeys(ask.task_keys, True))
            self.task = ask.task
            super().answer(answer)
        return None

    def responded(self, observation: Observation) -> None:
        """Take the response to the last request, which the observation has seen whole."""
        self.session.responded(observation)
        self._pending, exchange = None, observation.seal(End.COMPLETE, 0.0)
        if observation.call.method == UPDATE_TASK:
            self._seen.update(dict.fromkeys(self._seen, False) if has_error(exchange) else ())
            return
        state = polled_state(observation.response)
        asked = {} if state is None else state.input_requests
        new = {key: key for key in asked if key not in self._seen}
        # Answers may not have taken effect so far.
        self.task = state if asked and all(self._seen.get(key) for key in asked) else None
        if new:
            self._asked += 1
            self._seen.update(dict.fromkeys(new, False))
            ask = LiveAsk(self._asked, exchange, task=state, task_keys=new, call=self._call)
            self._stand(NeedsAnswers(ask))
        elif self.task is None:
            self._stand(Finished(self._asked, exchange))


# The built-in client, which `call` is, and what is declared for another one

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
        self, method: str, params: Mapping[str, Any], input_schema: Mapping[str, Any] | None = None
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

    def _post(self, method: str, params: Mapping[str, Any] | None, headers: Headers) -> Request:
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if not method.startswith("notifications/"):
            message["id"] = 0
        if params is not None:
            message["params"] = params
        return Request("POST", self._target, (*POST_HEADERS, *headers), to_json(message).encode())


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
    return with_body(request, replace_members(request.body, ("params", "_meta"), member))


def _capabilities(kinds: Collection[str]) -> dict[str, Any]:
    modes = {kind: dict[str, Any]() for kind in ("form", "url") if kind in kinds}
    others = {kind: dict[str, Any]() for kind in ("sampling", "roots") if kind in kinds}
    return {"elicitation": modes, **others} if modes else others


def _argument_headers(schema: Mapping[str, Any], arguments: Any) -> Iterator[tuple[str, str]]:
    fields = schema.get("properties")
    for name, member in fields.items() if isinstance(fields, dict) else ():
        header = member.get("x-mcp-header") if isinstance(member, dict) else None
        value = arguments.get(name) if isinstance(arguments, dict) else None
        if isinstance(header, str) and value is not None:
            text = value if isinstance(value, str) else to_json(value)
            yield f"Mcp-Param-{header}", header_text(text)
