"""One call on a live server, until it ends or waits for an answer."""
# Source: MCP 2026-07-28, "Multi Round-Trip Requests", "Pagination", "Cancellation"; MCP 2025-11-25,
# "Elicitation"; the extension `io.modelcontextprotocol/tasks` of MCP 2026-07-28.

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, Protocol

from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.compare.responses import (
    asked_question,
    is_failure,
    polled_questions,
    pushed_value,
)
from mrtr_cassette.core.compare.values import Change
from mrtr_cassette.core.drive.live_session import (
    ServerSession,
    other_request_of_client,
    with_body,
)
from mrtr_cassette.core.protocol.calls import Call, read_call
from mrtr_cassette.core.protocol.dialect import (
    DIALECTS,
    INPUT_RESPONSES,
    InputRequest,
    InputRequired,
    input_request,
    with_answer_keys,
    with_params,
    write_answers,
    write_retry,
)
from mrtr_cassette.core.protocol.jsonrpc import Kind, Message, Via, messages_in
from mrtr_cassette.core.protocol.methods import (
    CANCEL_TASK,
    GET_TASK,
    PING,
    TASK_ID,
    UPDATE_TASK,
)
from mrtr_cassette.core.protocol.tasks import (
    POLL_INTERVAL,
    TaskState,
    created_task,
    polled_state,
    stable_key_names,
)
from mrtr_cassette.core.record.pushes import OpenPush
from mrtr_cassette.core.record.recorder import Observation
from mrtr_cassette.core.wire.http import End, Request, Response
from mrtr_cassette.core.wire.jsonbytes import (
    canonical,
    decimal_of,
    replace_members,
    to_json,
)
from mrtr_cassette.core.wire.pointers import members_of
from mrtr_cassette.errors import shorten

_MOST_PAGES: Final = 100
"""Pages of a list that are read; a server may have no last one."""

_DEFAULT_POLL_S: Final = 1.0
"""Seconds between polls if the server says nothing about it."""

_CANCELLED_NOTIFICATION: Final = (
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%b}}'
)


def has_error(exchange: RecordedExchange) -> bool:
    """Tell whether an exchange ended with a JSON-RPC error."""
    return exchange.rpc_members.get("error") is not None


def response_in_words(exchange: RecordedExchange) -> str:
    """Describe the response of a live server in a few words."""
    response = exchange.response
    if response is None:
        return "no response"

    text = f"HTTP {response.status}"
    if response.is_lines:
        text = "a response"

    error = exchange.rpc_members.get("error")
    if error is None:
        return text

    message = members_of(error).get("message")
    if not isinstance(message, str):
        return f"{text}, error {shorten(canonical(error))}"

    code = canonical(error.get("code"))
    first_line, _, _ = message.partition("\n")
    return f"{text}, error {code}: {shorten(first_line)}"


@dataclass(frozen=True, slots=True)
class AskAnswer:
    """An answer to an ask.

    Attributes:
        value: JSON text of `inputResponses`, which None leaves out; for a pushed request, JSON
            text of the `member` of its response.
        cancels: whether the task that asks is cancelled next.
        leaves: whether nothing is awaited of the task once it is cancelled.
    """

    value: bytes | None
    member: Literal["result", "error"] = "result"
    cancels: bool = False
    leaves: bool = False


@dataclass(frozen=True, slots=True)
class LiveAsk:
    """An ask of the live server: a response to the call, if it is of no other class.

    `exchange` is as it would be recorded. The other attributes are as the server sent them, since
    answers have to repeat that.

    Attributes:
        response: the response that asks.
        live_keys: the live keys of its questions, by those that would be recorded.
    """

    turn: int
    exchange: RecordedExchange
    request_state: str | None = None
    response: Message | None = None
    live_keys: Mapping[str, str] = field(default_factory=dict)

    via: ClassVar[Via] = "result"
    """The way by which the server asks."""

    @property
    def call(self) -> Call:
        """The call that is asked something."""
        return self.exchange.call

    @property
    def asks_nothing(self) -> bool:
        """Whether it only makes the call a task."""
        return False

    @property
    def requests(self) -> Mapping[str, InputRequest]:
        """What it asks, by the keys under which it is answered."""
        asked = self.exchange.ask
        return {} if asked is None else asked.input_requests

    @property
    def question(self) -> Any:
        """What it asks, for `question_changes`."""
        return asked_question(self.exchange)

    def answers_in_server_form(self, answers: Mapping[str, Any]) -> AskAnswer:
        """Return answers to its requests in the form in which the server takes them."""
        recorded_ask = self.exchange.ask
        if recorded_ask is None or not recorded_ask.input_requests:
            return AskAnswer(None)
        return AskAnswer(write_answers(recorded_ask.dialect, answers))

    def with_answer(
        self, answered: AskAnswer, live_key: str, answer: bytes | None
    ) -> AskAnswer:
        """Return answers with another one to a question, by its live key; None is no answer."""
        value = answered.value or b"{}"
        return AskAnswer(replace_members(value, (), {live_key: answer}))

    @property
    def answer_if_nobody_answers(self) -> AskAnswer | None:
        """The answer to what nobody answers; None if only the call can be given up."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedAsk(LiveAsk):
    """A request that the live server pushed because of a call.

    Attributes:
        key: its key as it would be recorded.
        message: the request as it would be recorded.
        pushed: the request as the server sent it.
        response_so_far: the pending call as it would be recorded if it ended now.
    """

    key: str
    message: Message
    pushed: Message
    response_so_far: RecordedExchange | None = None

    via: ClassVar[Via] = "push"

    @property
    def requests(self) -> Mapping[str, InputRequest]:
        """What it asks, by our key."""
        return {self.key: input_request(self.message.method, self.message.params)}

    @property
    def question(self) -> Any:
        """What it asks, for `question_changes`."""
        return {"question": pushed_value(self.message.raw)}

    def answers_in_server_form(self, answers: Mapping[str, Any]) -> AskAnswer:
        """Return the result to be posted."""
        return AskAnswer(to_json(answers[self.key]).encode())

    def with_answer(
        self, _answered: AskAnswer, _live_key: str, answer: bytes | None
    ) -> AskAnswer:
        """Return another result to be posted."""
        return AskAnswer(answer)

    @property
    def answer_if_nobody_answers(self) -> AskAnswer:
        """The error to be posted if nobody answers."""
        message = f"nobody answers {self.message.method}"
        error = {"code": -32601, "message": message}
        return AskAnswer(canonical(error).encode(), "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAsk(LiveAsk):
    """A state of the call's task that asks, or in which the task is created.

    Attributes:
        task: the state, whose requests under `live_keys` are asked for the first time.
        created_by_call: the call, if the exchange is a poll.
    """

    task: TaskState
    created_by_call: Call | None = None

    via: ClassVar[Via] = "task"

    @property
    def call(self) -> Call:
        """The call that has become the task."""
        return self.created_by_call or self.exchange.call

    @property
    def asks_nothing(self) -> bool:
        """Whether it only makes the call a task."""
        return not self.live_keys

    @property
    def _new_requests(self) -> dict[str, InputRequest]:
        """What the task asks for the first time, by its own keys."""
        requests = self.task.input_requests
        return {key: requests[key] for key in self.live_keys.values()}

    @property
    def _answer_keys(self) -> dict[str, str]:
        """The keys under which it is answered by those of the task, which may have its id."""
        return stable_key_names(self._new_requests, self.task.id)

    @property
    def requests(self) -> Mapping[str, InputRequest]:
        """What it asks, by the keys under which it is answered."""
        names = self._answer_keys
        return {names[key]: request for key, request in self._new_requests.items()}

    @property
    def question(self) -> Any:
        """What it asks, for `question_changes`."""
        return polled_questions(self._new_requests, self.task.id)

    def answers_in_server_form(self, answers: Mapping[str, Any]) -> AskAnswer:
        """Return answers under the keys of the task."""
        given_answers = {}
        for key, name in self._answer_keys.items():
            if name in answers:
                given_answers[key] = answers[name]

        return self.answers_for_update(given_answers)

    def answers_for_update(
        self, answers: Mapping[str, Any], *, cancels: bool = False, leaves: bool = False
    ) -> AskAnswer:
        """Return answers by the keys of the task, if there are any."""
        value = None
        if answers:
            value = write_answers(DIALECTS[0].name, answers)

        return AskAnswer(value, cancels=cancels, leaves=leaves)


@dataclass(frozen=True, slots=True)
class NeedsAnswers:
    """The script has no answer to an ask, though it may have expected it."""

    ask: LiveAsk


@dataclass(frozen=True, slots=True)
class AskedOtherwise:
    """The server asks something else than the script answers, with these differences."""

    ask: LiveAsk
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class FinishedCall:
    """The server asks nothing: the call has a result, an error, or no response at all.

    Attributes:
        response: the response to the call as the server sent it.
    """

    turn: int
    exchange: RecordedExchange
    response: Message | None = None


Reply = AskAnswer | NeedsAnswers | AskedOtherwise


class Script(Protocol):
    """Answers the asks of a conversation."""

    def reply_to_ask(self, ask: LiveAsk) -> Reply:
        """Answer an ask, or say why it is not answered."""
        ...


class Conversation:
    """One call on a live server, or other requests, each made of the response before it.

    A call may end elsewhere than in its response: it goes on with the task that the server makes of
    the call, if it `follows_to_end`. Its script is told of the task when that is created, and of
    each state that asks something new. A task that has not ended when the conversation does is
    cancelled. Without a script nothing is answered. The recorded client may have left the call
    early: then `departure` says how. The task is polled on after as many `poll_failures`.
    """

    def __init__(
        self,
        request: Request,
        script: Script | None,
        session: ServerSession,
        *,
        follows_to_end: bool = True,
        departure: Departure | None = None,
        poll_failures: int = 0,
    ) -> None:
        self.request = request
        self.session = session
        self.leaving = Leaving(departure)
        self.stopping_point: NeedsAnswers | AskedOtherwise | FinishedCall | None = None
        """Where the conversation stopped; None while it goes on."""
        self.state: TaskState | None = None
        """The latest state of the task that the server has made of the call."""
        self._script = script
        self._follows_to_end = follows_to_end
        self._poll_failures_left = poll_failures
        self._last_ask: TaskAsk | None = None
        """The last state of the task that is awaited."""
        self._ask_count = 0
        self._seen_keys: set[str] = set()
        """The live keys under which the task has asked."""
        self._due_requests = [self._call_with_answers(None, None)]
        """The requests to be sent next."""

    @property
    def is_over(self) -> bool:
        """Whether later messages can be ignored."""
        return self.stopping_point is not None

    @property
    def unanswered_ask(self) -> LiveAsk | None:
        """The ask that waits for an answer from elsewhere."""
        if isinstance(self.stopping_point, NeedsAnswers):
            return self.stopping_point.ask
        return None

    def still_asks(self, ask: LiveAsk) -> bool:
        """Tell whether a later state of the task goes on asking what one asked before."""
        task = self.state
        if task is None or not isinstance(ask, TaskAsk) or task is ask.task:
            return False
        return not task.input_requests.keys().isdisjoint(ask.live_keys.values())

    def _call_with_answers(self, answers: bytes | None, state: str | None) -> Request:
        """Return the call's request with other answers and another state."""
        message = read_call(self.request).message
        if message is None or message.kind is not Kind.REQUEST:
            return self.request
        return with_body(self.request, write_retry(self.request.body, answers, state))

    @property
    def wait_s(self) -> float:
        """Seconds to wait before the next request: as long as the server asks for between polls."""
        if self.state is None or self._due_requests or self.is_over:
            return 0.0

        interval_ms = decimal_of(self.state.tree.get(POLL_INTERVAL))
        if interval_ms is None or interval_ms < 0:
            return _DEFAULT_POLL_S

        return float(interval_ms) / 1000

    def next_request(self) -> Observation | None:
        """Return the next request: of the call, then polls and updates of its task.

        If an ask is not answered, it is the one that cancels the call or its task.
        """
        if self.is_over:
            return self._leaving_request()

        if self.state is not None and not self._due_requests:
            self._due_requests = [self._request_about_task(GET_TASK, self.state)]

        if not self._due_requests:
            return None

        observation = self.session.request_in_session(self._due_requests.pop(0), self)
        if self.state is None:
            self.leaving.pending_request = observation

        return observation

    # Leaving

    def _leaving_request(self) -> Observation | None:
        """Return the request that cancels the call or its task; None if nothing is pending."""
        pending_request = self.leaving.pending_request
        if pending_request is None:
            return self.leave()

        self.leaving.pending_request = None
        departure = self.leaving.client_departure
        if departure is not None and departure.notice is None:
            # The recorded client closed the connection.
            return None

        return self._cancel_pending_request(pending_request)

    def _cancel_pending_request(
        self, pending_request: Observation
    ) -> Observation | None:
        """Return the notification that cancels a pending request; None if that has no id."""
        message = pending_request.call.message
        identity = None if message is None else message.spelled_id
        if identity is None:
            return None

        cancel_post = self.session.post_message(
            _CANCELLED_NOTIFICATION % identity, self
        )
        self.leaving.sent_cancellation = cancel_post
        return cancel_post

    def response_part_received(self, observation: Observation) -> Observation | None:
        """Take a part of a response, after which the call may be left.

        Returns the notification that cancels it, if the response is waited for all the same.
        """
        if self.is_over or not self.leaving.is_call_left_now(observation):
            return None

        departure = self.leaving.client_departure
        if departure is not None and departure.is_answered:
            return self._cancel_pending_request(observation)

        self.stopping_point = FinishedCall(
            self._ask_count + 1, observation.seal(End.OPEN, 0.0)
        )
        return None

    @property
    def missing_response(self) -> str:
        """What has not come, in words."""
        if self.state is None:
            return "no complete response"
        return "its task did not end"

    def leave(self) -> Observation | None:
        """Return the request that cancels the task, unless it has ended or was cancelled."""
        task = self.state
        self.state = None
        if task is None or task.is_over:
            return None

        return self.session.request_in_session(
            self._request_about_task(CANCEL_TASK, task), self
        )

    def _request_about_task(self, method: str, task: TaskState) -> Request:
        """Return a request about a task, with the headers of the call."""
        return other_request_of_client(self.request, method, {TASK_ID: task.id})

    # What the server says

    def push_received(self, push: OpenPush) -> Observation | None:
        """Take a request that the server pushed because of this call."""
        if self.is_over or self._script is None:
            return None

        exchange, message = self.session.push_as_recorded(push)
        pending_request = self.leaving.pending_request
        response_so_far = None
        if pending_request is not None:
            response_so_far = pending_request.seal(End.OPEN, 0.0)

        ask = PushedAsk(
            self._ask_count + 1,
            exchange,
            key=push.key,
            message=message,
            pushed=push.message,
            response_so_far=response_so_far,
        )
        return self._let_script_answer(ask)

    def response_received(self, observation: Observation) -> None:
        """Take the response to the last request, which the observation has seen whole."""
        self.session.response_received(observation)
        exchange = observation.seal(End.COMPLETE, 0.0)
        if self.state is not None:
            self._take_response_about_task(observation, exchange)
        elif self._is_call_response_awaited(observation):
            self._take_call_response(observation, exchange)

    def _is_call_response_awaited(self, observation: Observation) -> bool:
        """Tell whether a response to the call still counts."""
        if observation is not self.leaving.pending_request:
            return False

        # A server may also give its result without waiting for an answer.
        is_late = self.unanswered_ask is not None and observation.is_answered
        return is_late or not self.is_over

    def _take_call_response(
        self, observation: Observation, exchange: RecordedExchange
    ) -> None:
        """Take the response to the call: a task, an ask, the end, or a refusal of its id."""
        response = observation.response
        self.leaving.pending_request = None
        self.stopping_point = None
        if self.session.refuses_number_id(exchange):
            self._due_requests = [observation.call.request]
            return

        self.leaving.request_index += 1
        if self._follows_to_end:
            self.state = created_task(observation.call.message, response)

        turn = self._ask_count + 1
        asked = observation.ask
        if self.state is not None:
            self._let_script_answer(
                TaskAsk(turn, exchange, response=response, task=self.state)
            )
        elif asked is not None and self._script is not None:
            keys = _live_keys_of_ask(exchange, asked)
            state = asked.request_state
            self._let_script_answer(LiveAsk(turn, exchange, state, response, keys))
        else:
            following_request = self._following_request(exchange, response)
            if following_request is None:
                self.stopping_point = FinishedCall(turn, exchange, response)
            else:
                self._due_requests = [following_request]

    def _following_request(
        self, _exchange: RecordedExchange, _response: Message | None
    ) -> Request | None:
        """Return the request that follows a response which asks nothing, or nobody."""
        return None

    def _take_response_about_task(
        self, observation: Observation, exchange: RecordedExchange
    ) -> None:
        """Take the response to a poll, or to an update, which ends the conversation if it fails."""
        method = observation.call.method
        response = observation.response
        if method == GET_TASK:
            self._take_task_state(exchange, response)
        elif method == UPDATE_TASK and is_failure(exchange):
            self.stopping_point = FinishedCall(self._ask_count + 1, exchange, response)
        elif method == CANCEL_TASK and self._last_ask is not None:
            self.state = None
            self.stopping_point = FinishedCall(
                self._ask_count + 1, self._last_ask.exchange, self._last_ask.response
            )

    def _take_task_state(
        self, exchange: RecordedExchange, response: Message | None
    ) -> None:
        """Take a state of the task, which may ask something new, or be the last one."""
        state = polled_state(response)
        if state is None and self._poll_failures_left:
            self._poll_failures_left -= 1
            return

        self.state = state
        if state is None or state.is_over:
            self.stopping_point = FinishedCall(self._ask_count + 1, exchange, response)
            return

        sealed_state = polled_state(exchange.rpc_response) or state
        new_keys = {}
        for name, key in zip(
            sealed_state.input_requests, state.input_requests, strict=False
        ):
            if key not in self._seen_keys:
                new_keys[name] = key

        if not new_keys:
            return

        self._seen_keys.update(new_keys.values())
        ask = TaskAsk(
            self._ask_count + 1,
            exchange,
            response=response,
            live_keys=new_keys,
            task=state,
            created_by_call=read_call(self.request),
        )
        self._let_script_answer(ask)

    # Answers

    def _let_script_answer(self, ask: LiveAsk) -> Observation | None:
        """Let the script answer an ask; return the request that posts the answer, if any."""
        if not ask.asks_nothing:
            self._ask_count += 1

        if self._script is None:
            return None
        return self._send_or_stop_by_reply(ask, self._script.reply_to_ask(ask))

    def answer_unanswered_ask(self, answer: AskAnswer) -> Observation | None:
        """Answer the ask that is unanswered so far, unless the server has not waited for that."""
        ask = self.unanswered_ask
        if ask is None:
            return None

        self.stopping_point = None
        return self._send_or_stop_by_reply(ask, answer)

    def _send_or_stop_by_reply(self, ask: LiveAsk, reply: Reply) -> Observation | None:
        """Take the reply to an ask; return the request to post if the ask was pushed, or None."""
        if not isinstance(reply, AskAnswer):
            self.stopping_point = reply
            return None

        if isinstance(ask, PushedAsk):
            value = reply.value or b"{}"
            return self.session.post_response(ask.pushed, self, value, reply.member)

        if isinstance(ask, TaskAsk):
            self._due_requests += self._requests_that_answer_task(ask.task, reply)
            if reply.leaves:
                self._last_ask = ask

            return None

        self.go_on_with_retry(ask, reply.value, ask.request_state)
        return None

    def go_on_with_retry(
        self, ask: LiveAsk, answers: bytes | None, state: str | None
    ) -> None:
        """Send next the call again with answers to an ask, and a request state."""
        names = {}
        for key, live_key in ask.live_keys.items():
            if key != live_key:
                names[key] = live_key

        retry = self._call_with_answers(answers, state)
        self._due_requests = [with_body(retry, with_answer_keys(retry.body, names))]

    def _requests_that_answer_task(
        self, task: TaskState, reply: AskAnswer
    ) -> list[Request]:
        """Return the requests that answer a state of a task."""
        requests = []
        if reply.value is not None:
            update = self._request_about_task(UPDATE_TASK, task)
            body = with_params(update.body, {INPUT_RESPONSES: reply.value})
            requests.append(with_body(update, body))

        if reply.cancels:
            requests.append(self._request_about_task(CANCEL_TASK, task))

        return requests


def _live_keys_of_ask(
    exchange: RecordedExchange, asked: InputRequired
) -> dict[str, str]:
    """Return the live keys of an ask by those that would be recorded."""
    if exchange.ask is None:
        return {}

    recorded_requests = exchange.ask.input_requests
    return dict(zip(recorded_requests, asked.input_requests, strict=False))


class ToolList(Conversation):
    """The tools of a live server, listed page after page."""

    def __init__(
        self,
        list_request: Request,
        session: ServerSession,
        script: Script | None = None,
    ) -> None:
        super().__init__(list_request, script, session, follows_to_end=False)
        self.tools: list[Any] = []
        self.is_whole = True
        self._page_count = 0

    def _following_request(
        self, _exchange: RecordedExchange, response: Message | None
    ) -> Request | None:
        """Take a page of tools; return the request for the next page if it is read."""
        page: dict[str, Any] = {}
        if response is not None:
            page = members_of(response.tree.get("result"))

        tools = page.get("tools")
        self._page_count += 1
        self.is_whole = isinstance(tools, list)
        if not isinstance(tools, list):
            return None

        self.tools += tools
        cursor = page.get("nextCursor")
        if not isinstance(cursor, str) or self._page_count == _MOST_PAGES:
            return None

        member = {"cursor": to_json(cursor).encode()}
        return with_body(self.request, with_params(self.request.body, member))

    def members_of_tool(self, name: str) -> Mapping[str, Any]:
        """Return what the server says of a tool; nothing if it is not listed."""
        for tool in self.tools:
            if isinstance(tool, dict) and tool.get("name") == name:
                return tool

        return {}


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
        answered_by_key: dict[str, bool],
        asked: int,
    ) -> None:
        super().__init__(poll, None, session)
        self._call = call
        self._answered_by_key = answered_by_key
        self._ask_count = asked

    def leave(self) -> Observation | None:
        """Leave the task to its client."""
        return None

    def answer_unanswered_ask(self, answer: AskAnswer) -> Observation | None:
        """Answer what the last poll asked; then poll again."""
        ask = self.unanswered_ask
        if isinstance(ask, TaskAsk) and answer.value is not None:
            self._mark_questions(ask.live_keys, is_answered=True)
            self.state = ask.task
            super().answer_unanswered_ask(answer)

        return None

    def response_received(self, observation: Observation) -> None:
        """Take the response to the last request, which the observation has seen whole."""
        self.session.response_received(observation)
        self.leaving.pending_request = None
        exchange = observation.seal(End.COMPLETE, 0.0)
        is_update = observation.call.method == UPDATE_TASK
        if not is_update:
            self._take_task_state(exchange, observation.response)
        elif is_failure(exchange):
            self._mark_questions(self._answered_by_key, is_answered=False)

    def _take_task_state(
        self, exchange: RecordedExchange, response: Message | None
    ) -> None:
        """Take a state of the task, to poll again if all that it asks has been answered."""
        state = polled_state(response)
        asked_requests = {} if state is None else state.input_requests
        new_keys = {
            key: key for key in asked_requests if key not in self._answered_by_key
        }
        # Answers may not have taken effect so far.
        answered = [self._answered_by_key.get(key) for key in asked_requests]
        is_answered = bool(answered) and all(answered)
        self.state = state if is_answered else None
        if state is not None and new_keys:
            self._ask_count += 1
            self._mark_questions(new_keys, is_answered=False)
            ask = TaskAsk(
                self._ask_count,
                exchange,
                live_keys=new_keys,
                task=state,
                created_by_call=self._call,
            )
            self.stopping_point = NeedsAnswers(ask)
        elif self.state is None:
            self.stopping_point = FinishedCall(self._ask_count, exchange)

    def _mark_questions(self, keys: Iterable[str], *, is_answered: bool) -> None:
        """Take note of whether the task's questions with these keys were answered here."""
        self._answered_by_key.update(dict.fromkeys(keys, is_answered))


# Leaving a call before it ends


@dataclass(frozen=True, slots=True)
class Departure:
    """How a client left a call.

    Attributes:
        request_index: which of the call's requests was pending, from 0.
        message_count: how many messages of its response had come.
        notice: the number of the interaction that cancels it; None if its client just left.
        is_answered: whether a response came all the same.
    """

    request_index: int
    message_count: int
    notice: int | None = None
    is_answered: bool = False


def count_messages_so_far(
    response: Response | None, before_request: int | None = None
) -> int:
    """Count the messages of a response, but for pings, that came before a numbered request.

    Over a pipe, only messages that name their request count.
    """
    if response is None:
        return 0

    count = 0
    for located in messages_in(response):
        message = located.message
        is_named = "progressToken" in message.params or message.kind is Kind.REQUEST
        arrived_count = response.pieces[located.piece].arrived_count
        is_early = before_request is None or arrived_count < before_request
        is_about_call = message.method != PING and (is_named or not response.is_lines)
        if is_early and is_about_call and message.kind is not Kind.RESPONSE:
            count += 1

    return count


@dataclass(slots=True, eq=False)
class Leaving:
    """Leaving a call on the live server, as its recorded client did or because nobody answers.

    Attributes:
        request_index: which of the call's requests is pending, from 0.
        pending_request: the request of the call whose response is not complete yet.
        sent_cancellation: the notification that cancels the call, once sent.
    """

    client_departure: Departure | None
    request_index: int = 0
    pending_request: Observation | None = None
    sent_cancellation: Observation | None = None

    def is_call_left_now(self, observation: Observation) -> bool:
        """Tell whether the call is left now, after this much of a response."""
        departure = self.client_departure
        if departure is None or observation is not self.pending_request:
            return False
        if observation.is_answered or self.sent_cancellation is not None:
            return False
        if departure.request_index != self.request_index:
            return False

        response_so_far = observation.seal(End.OPEN, 0.0)
        message_count = count_messages_so_far(response_so_far.response)
        return message_count >= departure.message_count
