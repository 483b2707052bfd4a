"""One call on a live server that may make it a task: polled, answered and followed to its end."""
# Source: the extension `io.modelcontextprotocol/tasks` of MCP 2026-07-28.

from __future__ import annotations

from typing import Final

from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.drive.conversation import (
    Answered,
    AskedOtherwise,
    Conversation,
    Finished,
    LiveAsk,
    NeedsAnswers,
    Requests,
    Script,
    ServerSession,
    has_error,
    request_beside,
    with_body,
)
from mrtr_cassette.core.protocol.calls import Call, read_call
from mrtr_cassette.core.protocol.dialect import INPUT_RESPONSES
from mrtr_cassette.core.protocol.methods import CANCEL_TASK, GET_TASK, TASK_ID, UPDATE_TASK
from mrtr_cassette.core.protocol.tasks import POLL_INTERVAL, TaskState, created_task, polled_state
from mrtr_cassette.core.record.recorder import Observation
from mrtr_cassette.core.wire.http import End, Request
from mrtr_cassette.core.wire.jsonbytes import replace_members

_POLL_MS: Final = 1000.0
"""How long to wait before a poll where the server says nothing of it."""
_LONGEST_WAIT_S: Final = 1.0
"""The longest wait between polls while a client waits for the response to its own."""


def _wait_s(state: TaskState | None) -> float:
    """Return the seconds to wait before the next poll, which the server asks for."""
    asked_for = None if state is None else state.tree.get(POLL_INTERVAL)
    if not isinstance(asked_for, int | float) or asked_for < 0:
        asked_for = _POLL_MS
    return asked_for / 1000


def _update(call: Request, task_id: str, answers: bytes) -> Request:
    """Return the request that answers a task, beside another one of its client."""
    update = request_beside(call, UPDATE_TASK, {TASK_ID: task_id})
    body = replace_members(update.body, ("params",), {INPUT_RESPONSES: answers})
    return with_body(update, body)


class TaskConversation(Conversation):
    """A conversation that goes on with the task that a server makes of the call.

    Its script is told of the task when that is created, and of each state that asks something new.
    A task that has not ended when the conversation does is cancelled.
    """

    def __init__(self, request: Request, script: Script, session: ServerSession) -> None:
        super().__init__(request, script, session)
        self._unsent: list[Request] = []
        self._seen_keys: set[str] = set()

    @property
    def wait_s(self) -> float:
        """Seconds to wait before the next request: as long as the server asks for between polls."""
        if self.task is None or self._unsent or self.standing is not None:
            return 0.0
        return _wait_s(self.task)

    def next(self) -> Observation | None:
        """Return the next request: of the call, then polls and updates of its task."""
        if self.task is None:
            return super().next()
        if self.standing is not None:
            return self.leave()
        request = self._unsent.pop(0) if self._unsent else self._of_task(GET_TASK)
        return self.session.request(request, self)

    def leave(self) -> Observation | None:
        """Return the request that cancels the task, unless it has ended or was cancelled."""
        if self.task is None or self.task.is_over:
            return None
        request, self.task = self._of_task(CANCEL_TASK), None
        self._is_due = False
        return self.session.request(request, self)

    def _of_task(self, method: str) -> Request:
        identity = "" if self.task is None else self.task.id
        return request_beside(self.request, method, {TASK_ID: identity})

    def responded(self, observation: Observation) -> None:
        """Take the response to the last request, which the observation has seen whole."""
        if self.task is None:
            super().responded(observation)
            standing = self.standing
            state = created_task(observation.call.message, observation.response)
            if isinstance(standing, Finished) and state is not None:
                self.task, self.standing, self._asked = state, None, self._asked - 1
                self._tell(LiveAsk(standing.turn, standing.exchange, task=state))
            return
        self.session.responded(observation)
        exchange = observation.seal(End.COMPLETE, 0.0)
        if observation.call.method == GET_TASK:
            self._polled(exchange, polled_state(observation.response))
        elif observation.call.method == UPDATE_TASK and has_error(exchange):
            self.standing = Finished(self._asked + 1, exchange)

    def _polled(self, exchange: RecordedExchange, state: TaskState | None) -> None:
        if state is None or state.is_over:
            self.task = state
            self.standing = Finished(self._asked + 1, exchange)
            return
        self.task = state
        sealed = polled_state(exchange.rpc_response)
        names = state.input_requests if sealed is None else sealed.input_requests
        keys = dict(zip(names, state.input_requests, strict=False))
        new = {name: key for name, key in keys.items() if key not in self._seen_keys}
        if new:
            self._seen_keys.update(new.values())
            self._asked += 1
            call = read_call(self.request)
            self._tell(LiveAsk(self._asked, exchange, task=state, task_keys=new, call=call))

    def _tell(self, ask: LiveAsk) -> None:
        self._replied(ask, self._script.answer(ask))

    def _replied(
        self, ask: LiveAsk, reply: Answered | NeedsAnswers | AskedOtherwise
    ) -> Observation | None:
        if ask.task is None or not isinstance(reply, Answered):
            return super()._replied(ask, reply)
        if reply.value is not None:
            self._unsent.append(_update(self.request, ask.task.id, reply.value))
        if reply.cancels:
            self._unsent.append(self._of_task(CANCEL_TASK))
        return None


class AnsweredTask:
    """A task whose questions are answered in the place of the client that called."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.answered: set[str] = set()
        """The keys of the questions that have been answered."""
        self.left: set[str] = set()
        """The keys of the questions that are left to the client."""
        self.asked = 0
        """How many states asked something new."""


class AnsweredPoll(Requests):
    """One poll of a client: what the task asks is answered, and it is polled until that shows."""

    def __init__(self, poll: Request, session: ServerSession, task: AnsweredTask) -> None:
        super().__init__(poll, session)
        self._of, self._due = task, [poll]
        self._ask: LiveAsk | None = None

    @property
    def wait_s(self) -> float:
        """Seconds to wait before the next request."""
        is_again = self.last is not None and [self.request] == self._due
        return min(_wait_s(self.task), _LONGEST_WAIT_S) if is_again else 0.0

    @property
    def unanswered(self) -> LiveAsk | None:
        """The ask that needs an answer from elsewhere."""
        return self._ask

    def next(self) -> Observation | None:
        """Return the next request to send; None where the client gets the last response."""
        if self._ask is not None:
            self._of.left.update(self._ask.task_keys)
            self._ask = None
        return self.session.request(self._due.pop(0), self) if self._due else None

    def answer(self, answer: Answered) -> Observation | None:
        """Answer what the last poll asked; then poll again."""
        ask = self._ask
        if ask is not None and ask.task is not None and answer.value is not None:
            self._ask = None
            self._of.answered.update(ask.task_keys)
            self._due = [_update(self.request, ask.task.id, answer.value), self.request]
        return None

    def responded(self, observation: Observation) -> None:
        """Take the response to the last request, which the observation has seen whole."""
        self.session.responded(observation)
        exchange = observation.seal(End.COMPLETE, 0.0)
        if observation.call.method == UPDATE_TASK:
            # The client sees what the server does not take.
            self._of.left.update(self._of.answered if has_error(exchange) else ())
            return
        self.last, self.task = exchange, polled_state(observation.response)
        asked = {} if self.task is None else self.task.input_requests
        new = {key: key for key in asked if key not in self._of.answered | self._of.left}
        if new:
            self._of.asked += 1
            turn, call = self._of.asked, self._of.call
            self._ask = LiveAsk(turn, exchange, task=self.task, task_keys=new, call=call)
        elif asked and asked.keys() <= self._of.answered - self._of.left:
            # The answers have not taken effect.
            self._due = [self.request]
