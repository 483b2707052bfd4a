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
    Script,
    ServerSession,
    has_error,
    request_beside,
    with_body,
)
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.protocol.dialect import INPUT_RESPONSES
from mrtr_cassette.core.protocol.methods import CANCEL_TASK, GET_TASK, UPDATE_TASK
from mrtr_cassette.core.protocol.tasks import TaskState, created_task, polled_state
from mrtr_cassette.core.record.recorder import Observation
from mrtr_cassette.core.wire.http import End, Request
from mrtr_cassette.core.wire.jsonbytes import replace_members

_POLL_MS: Final = 1000.0
"""How long to wait before a poll where the server says nothing of it."""


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
        asked_for = self.task.tree.get("pollIntervalMs")
        if not isinstance(asked_for, int | float) or asked_for < 0:
            asked_for = _POLL_MS
        return asked_for / 1000

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
        return request_beside(self.request, method, {"taskId": identity})

    def responded(self, observation: Observation) -> None:
        """Take the response to the last request, which the observation has seen whole."""
        if self.task is None:
            super().responded(observation)
            standing = self.standing
            state = created_task(observation.response)
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
            update = self._of_task(UPDATE_TASK)
            answers = {INPUT_RESPONSES: reply.value}
            self._unsent.append(
                with_body(update, replace_members(update.body, ("params",), answers))
            )
        if reply.cancels:
            self._unsent.append(self._of_task(CANCEL_TASK))
        return None
