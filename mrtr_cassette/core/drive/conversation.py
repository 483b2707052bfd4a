"""One call on a live server, until it stands still."""
# Source: MCP 2026-07-28, "Multi Round-Trip Requests", "Pagination"; MCP 2025-11-25, "Elicitation";
# the extension `io.modelcontextprotocol/tasks` of MCP 2026-07-28.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from json.encoder import encode_basestring_ascii
from typing import Any, Final, Literal, Protocol

from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.compare.values import Change
from mrtr_cassette.core.drive.departures import Departure, Leaving
from mrtr_cassette.core.drive.live_session import (
    ServerSession,
    request_beside,
    with_body,
)
from mrtr_cassette.core.protocol.calls import Call, read_call
from mrtr_cassette.core.protocol.dialect import (
    INPUT_RESPONSES,
    InputRequired,
    with_answer_keys,
    with_params,
    write_retry,
)
from mrtr_cassette.core.protocol.jsonrpc import ID_PATH, Kind, Message
from mrtr_cassette.core.protocol.methods import (
    CANCEL_TASK,
    GET_TASK,
    TASK_ID,
    UPDATE_TASK,
)
from mrtr_cassette.core.protocol.tasks import (
    POLL_INTERVAL,
    TaskState,
    created_task,
    polled_state,
)
from mrtr_cassette.core.record.pushes import OpenPush
from mrtr_cassette.core.record.recorder import Observation
from mrtr_cassette.core.wire.http import End, Request
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.errors import shorten

_MOST_PAGES: Final = 100
"""Pages that are read; a server may have no last one."""
_POLL_S: Final = 1.0
"""How long to wait before a poll where the server says nothing of it."""
_CANCELLED: Final = (
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%b}}'
)


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
        so_far: the call that was pending when a request was pushed, as it would be recorded then.
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
    so_far: RecordedExchange | None = None


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
        self.leaving = Leaving(departure)
        self.standing: NeedsAnswers | AskedOtherwise | Finished | None = None
        self.task: TaskState | None = None
        """The latest state of the task that the server has made of the call."""
        self._script, self._follows_task = script, follows_task
        self._asked = 0
        self._seen_keys: set[str] = set()
        self._due = [self._with_answers(None, None)]

    @property
    def is_over(self) -> bool:
        """Whether nothing that still comes is of interest."""
        return self.standing is not None

    @property
    def unanswered(self) -> LiveAsk | None:
        """The ask that needs an answer from elsewhere."""
        return self.standing.ask if isinstance(self.standing, NeedsAnswers) else None

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
        pending, departure = self.leaving.pending, self.leaving.departure
        if self.is_over and pending is not None:
            self.leaving.pending = None
            return (
                None
                if departure and departure.notice is None
                else self._cancel(pending)
            )
        if self.is_over:
            return self.leave()
        if self.task is not None and not self._due:
            self._due = [self._of_task(GET_TASK, self.task)]
        if not self._due:
            return None
        observation = self.session.request(self._due.pop(0), self)
        self.leaving.sends(observation if self.task is None else None)
        return observation

    def _cancel(self, pending: Observation) -> Observation | None:
        message = pending.call.message
        identity = None if message is None else message.spelled(ID_PATH)
        if identity is None:
            return None
        cancelling = self.session.post(self.request, _CANCELLED % identity, self)
        self.leaving.cancelling = cancelling
        return cancelling

    def came(self, observation: Observation) -> Observation | None:
        """Take what has come of a response, after which the call may be left.

        Returns the notification that cancels it beside the response, if that is waited for.
        """
        if self.is_over or not self.leaving.is_due(observation):
            return None
        departure = self.leaving.departure
        if departure and departure.waits:
            return self._cancel(observation)
        self.standing = Finished(self._asked + 1, observation.seal(End.OPEN, 0.0))
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
        pending = self.leaving.pending
        so_far = None if pending is None else pending.seal(End.OPEN, 0.0)
        return self._tell(replace(ask, so_far=so_far))

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
                self.standing = Finished(self._asked + 1, exchange, response)
            return
        # A server may also give its result without waiting for an answer.
        is_late = self.unanswered is not None and observation.is_answered
        if observation is not self.leaving.pending or (self.is_over and not is_late):
            return
        self.leaving.pending = None
        self.standing = None
        if self.session.refused_id(exchange):
            self._due = [observation.call.request]
            self.leaving.sends_again()
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
            self.standing = Finished(self._asked + 1, exchange, response)

    def _after(
        self, _exchange: RecordedExchange, _response: Message | None
    ) -> Request | None:
        """Return the request that follows a response, if any does."""
        return None

    def _polled(self, exchange: RecordedExchange, response: Message | None) -> None:
        state = self.task = polled_state(response)
        if state is None or state.is_over:
            self.standing = Finished(self._asked + 1, exchange, response)
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
        return (
            None
            if self._script is None
            else self._replied(ask, self._script.answer(ask))
        )

    def answer(self, answer: Answered) -> Observation | None:
        """Answer the ask that has no answer so far, unless the server has not waited for that."""
        ask = self.unanswered
        if ask is None:
            return None
        self.standing = None
        return self._replied(ask, answer)

    def _replied(self, ask: LiveAsk, reply: Reply) -> Observation | None:
        if not isinstance(reply, Answered):
            self.standing = reply
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

    def _after(
        self, _exchange: RecordedExchange, response: Message | None
    ) -> Request | None:
        result = None if response is None else response.tree.get("result")
        page = result if isinstance(result, dict) else {}
        tools = page.get("tools")
        self.is_whole = isinstance(tools, list)
        self.tools += tools if isinstance(tools, list) else ()
        self._pages += 1
        cursor = page.get("nextCursor")
        if (
            not self.is_whole
            or not isinstance(cursor, str)
            or self._pages == _MOST_PAGES
        ):
            return None
        member = {"cursor": encode_basestring_ascii(cursor).encode()}
        return with_body(self.request, with_params(self.request.body, member))

    def hints(self, name: str) -> Mapping[str, Any]:
        """Return what the server says that a tool does to the world."""
        named = (
            each
            for each in self.tools
            if isinstance(each, dict) and each.get("name") == name
        )
        hints = next(named, {}).get("annotations")
        return hints if isinstance(hints, dict) else {}


class AnsweredPoll(Conversation):
    """One poll of a client: what the task asks is answered, and it is polled until that shows.

    `seen` has the keys of the task's questions so far, and whether they were answered here; others
    are left to the client that made the `call`, as are those of an update that fails.
    """

    def __init__(
        self,
        poll: Request,
        session: ServerSession,
        call: Call,
        seen: dict[str, bool],
        asked: int,
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
        self.leaving.pending = None
        exchange = observation.seal(End.COMPLETE, 0.0)
        if observation.call.method == UPDATE_TASK:
            self._seen.update(
                dict.fromkeys(self._seen, False) if has_error(exchange) else ()
            )
            return
        state = polled_state(observation.response)
        asked = {} if state is None else state.input_requests
        new = {key: key for key in asked if key not in self._seen}
        # Answers may not have taken effect so far.
        self.task = (
            state if asked and all(self._seen.get(key) for key in asked) else None
        )
        if new:
            self._asked += 1
            self._seen.update(dict.fromkeys(new, False))
            ask = LiveAsk(
                self._asked, exchange, task=state, task_keys=new, call=self._call
            )
            self.standing = NeedsAnswers(ask)
        elif self.task is None:
            self.standing = Finished(self._asked, exchange)
