"""Have conversations with a live server, for commands that are clients themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.drive.conversation import AskAnswer, Conversation, LiveAsk
from mrtr_cassette.core.drive.live_session import RequestOwner, resuming_request
from mrtr_cassette.core.protocol.jsonrpc import Message, server_messages
from mrtr_cassette.core.record.pushes import OpenPush
from mrtr_cassette.core.record.recorder import Observation
from mrtr_cassette.core.wire.http import End, is_event_stream
from mrtr_cassette.errors import MrtrCassetteError, MuteServerError, UpstreamError
from mrtr_cassette.shell.http.transport import (
    Upstream,
    UpstreamResponse,
    headers_for_client,
    no_response_error,
)
from mrtr_cassette.shell.pipes.upstream import NEEDS_PORT, NotMcpError

Watch = Callable[[Conversation], None]
"""Looks at a conversation after each response."""

Supply = Callable[[LiveAsk], Awaitable[AskAnswer | None]]
"""Gives the answer to an ask that a script has none for, however long it takes; None gives up."""

_LEAVING_S: Final = 2.0
"""Seconds for cancelling a task that nobody waits for any more."""

_HEAD_S: Final = 0.5
"""Seconds that other requests leave the head of a listening stream to come first.

Many servers lose what they push before the stream has begun, and some send its head with the first
event only.
"""

_QUESTION_S: Final = 10.0
"""Seconds for a question that a server asks of its own accord: many ask soon after their start."""

_LOWEST_REFUSED_STATUS: Final = 400
"""The lowest HTTP status of a response that refuses its request."""


class AnswerRefusedError(UpstreamError):
    """A server refuses the answer to a question that it pushed."""

    def __init__(self, shown_as: str, exchange: RecordedExchange, status: int) -> None:
        super().__init__(
            f"{shown_as} refuses the answer to its question: HTTP {status}"
        )
        self.exchange = exchange


@dataclass(eq=False, slots=True)
class _PendingResponse:
    """A request whose response is being read."""

    conversation: Conversation
    reading_task: asyncio.Task[None]
    supply: Supply | None
    refusal: UpstreamError | None = None
    """The server refused a posted answer for which it waits."""


@dataclass(eq=False, slots=True)
class LiveServer:
    """A live server."""

    upstream: Upstream
    shown_as: str
    call_limit_s: float | None = None
    head_limit_s: float = _HEAD_S
    is_on_pipes: bool = False
    _has_sent_message: bool = field(default=False, init=False)
    _pending_responses: list[_PendingResponse] = field(default_factory=list, init=False)
    _background_tasks: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    """What reads listening streams, and the responses to posted answers."""

    _answering_lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _answers_under_way: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    """What posts answers; the server has taken them when these have ended."""

    _question_came: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    async def follow_conversation(
        self,
        conversation: Conversation,
        supply: Supply | None = None,
        watch: Watch | None = None,
    ) -> None:
        """Send one request after the other, until there is none.

        `supply` answers what the script of a conversation has no answer to, and `watch` looks at
        the conversation. `call_limit_s` is the time for all of a call: its rounds, and its task.

        Raises:
            UpstreamError: it did not end in time.
            BodyTooLargeError: a response is larger than what is kept.
        """
        missing_response = conversation.missing_response
        try:
            async with asyncio.timeout(self.call_limit_s):
                try:
                    await self._follow_without_limit(conversation, supply, watch)
                except asyncio.CancelledError:
                    missing_response = conversation.missing_response
                    await self._leave(conversation)
                    raise
        except TimeoutError:
            raise self._timeout_error(missing_response) from None

    @property
    def is_mute(self) -> bool:
        """Whether it was started on pipes, and no message has come from it."""
        return self.is_on_pipes and not self._has_sent_message

    def _timeout_error(self, missing_response: str) -> UpstreamError:
        """Return the error for a call that took too long, which says if the server is mute."""
        if not self.is_mute:
            reason = ValueError(f"{missing_response} within {self.call_limit_s:g} s")
            return UpstreamError(no_response_error(self.shown_as, reason))

        reason = ValueError(
            f"nothing on its stdout within {self.call_limit_s:g} s; {NEEDS_PORT}"
        )
        return MuteServerError(no_response_error(self.shown_as, reason))

    async def _leave(self, conversation: Conversation) -> None:
        """Tell the server that nobody waits any more for the end of a call."""
        observation = conversation.leave()
        if observation is None:
            return

        with suppress(OSError, MrtrCassetteError):
            async with asyncio.timeout(_LEAVING_S):
                await self._read_whole_response(observation, conversation)

    async def _follow_without_limit(
        self, conversation: Conversation, supply: Supply | None, watch: Watch | None
    ) -> None:
        """Do the work of `follow_conversation`, without its limit of time."""
        while True:
            if conversation.wait_s:
                await asyncio.sleep(conversation.wait_s)

            observation = conversation.next_request()
            if observation is None:
                return

            await self._exchange_while_of_interest(observation, conversation, supply)
            conversation.response_received(observation)
            if watch is not None:
                watch(conversation)

            ask = conversation.unanswered_ask
            if supply is None or ask is None:
                continue

            answer = await supply(ask)
            if answer is not None:
                conversation.answer_unanswered_ask(answer)
            else:
                # The ask stays open while the call is cancelled.
                supply = None

    async def _exchange_while_of_interest(
        self,
        observation: Observation,
        conversation: Conversation,
        supply: Supply | None,
    ) -> None:
        """Send a request, and read its response until that is of no interest any more."""
        pending_response = self._begin_exchange(observation, conversation, supply)
        reading_task = pending_response.reading_task
        try:
            if conversation.leaving.is_call_left_now(observation):
                await asyncio.wait({reading_task}, timeout=self.head_limit_s)
                self._leave_as_client_left(observation, conversation)

            await asyncio.wait({reading_task})
        finally:
            reading_task.cancel()

        error: BaseException | None = pending_response.refusal
        if not reading_task.cancelled():
            error = reading_task.exception()

        if isinstance(error, NotMcpError):
            raise MuteServerError(no_response_error(self.shown_as, error))
        if isinstance(error, OSError):
            raise UpstreamError(no_response_error(self.shown_as, error))
        if error is not None:
            raise error

    async def listen(
        self, conversation: Conversation, supply: Supply | None = None
    ) -> Observation | None:
        """Send one request whose response is a listening stream, and read it beside all others.

        Returns the observation, or None where there is nothing to send. A server need not have
        such a stream, and other requests don't wait for its head. `close` leaves it.
        """
        observation = conversation.next_request()
        if observation is None:
            return None

        head_event = asyncio.Event()
        reading_task = self._begin_exchange(
            observation, conversation, supply, head_event
        ).reading_task
        self._keep_in_background(reading_task)
        head_wait = asyncio.ensure_future(head_event.wait())
        awaited_futures: set[asyncio.Future[Any]] = {reading_task, head_wait}
        await asyncio.wait(
            awaited_futures,
            timeout=self.head_limit_s,
            return_when=asyncio.FIRST_COMPLETED,
        )
        head_wait.cancel()

        return observation

    async def wait_for_due_questions(self, is_due: Callable[[], bool]) -> bool:
        """Wait until the questions that are due have come, and all answers have been taken.

        Returns whether they came in time.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_QUESTION_S):
                while is_due():
                    self._question_came.clear()
                    await self._question_came.wait()

        if self._answers_under_way:
            await asyncio.wait(self._answers_under_way, timeout=self.call_limit_s)

        return not is_due()

    async def close(self) -> None:
        """Leave the listening streams, and whatever else is under way."""
        tasks = list(self._background_tasks)
        for task in tasks:
            task.cancel()

        await asyncio.gather(*tasks, return_exceptions=True)

    def _keep_in_background(self, task: asyncio.Task[None]) -> None:
        """Let a task go on beside all others, whatever comes of it."""

        def forget_ended_task(task: asyncio.Task[None]) -> None:
            self._background_tasks.discard(task)
            if not task.cancelled():
                task.exception()

        self._background_tasks.add(task)
        task.add_done_callback(forget_ended_task)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start work that goes on beside all others, and return its task."""
        task = asyncio.ensure_future(work)
        self._keep_in_background(task)
        return task

    def _begin_exchange(
        self,
        observation: Observation,
        conversation: Conversation,
        supply: Supply | None,
        head_event: asyncio.Event | None = None,
    ) -> _PendingResponse:
        """Start a task that sends a request and reads the response, and keep it as under way."""
        reading_task = asyncio.ensure_future(
            self._read_whole_response(observation, conversation, head_event)
        )
        pending_response = _PendingResponse(conversation, reading_task, supply)
        self._pending_responses.append(pending_response)
        reading_task.add_done_callback(
            lambda _: self._pending_responses.remove(pending_response)
        )

        return pending_response

    async def _read_whole_response(
        self,
        observation: Observation,
        conversation: Conversation,
        head_event: asyncio.Event | None = None,
    ) -> None:
        """Send a request, and read its response to the end, also when it breaks off and resumes."""
        with closing(
            await self.upstream.send_request(observation.call.request)
        ) as response:
            observation.response_started(
                response.status, headers_for_client(response.headers)
            )
            if head_event is not None:
                head_event.set()

            self._leave_as_client_left(observation, conversation)
            await self._show_until_answered(response, observation, conversation)

        while (resumption := resuming_request(observation)) is not None:
            request, after_s = resumption
            await asyncio.sleep(after_s)
            with closing(await self.upstream.send_request(request)) as response:
                if not is_event_stream(headers_for_client(response.headers)):
                    break

                await self._show_until_answered(response, observation, conversation)

        observation.response_ended(0.0)

    async def _show_until_answered(
        self,
        response: UpstreamResponse,
        observation: Observation,
        conversation: Conversation,
    ) -> None:
        """Show the observation a response until it is answered; answer its pings and questions."""
        while not observation.is_answered and (chunk := await response.read()):
            if self.is_mute:
                self._has_sent_message = any(map(server_messages, chunk.splitlines()))

            observation.response_bytes(chunk, 0.0)
            for ping in observation.take_pings():
                self._start_task(self._answer_ping(ping, conversation))

            for push in observation.take_pushes():
                await self._start_push_answer(push, conversation)

            self._leave_as_client_left(observation, conversation)

    def _leave_as_client_left(
        self, observation: Observation, conversation: Conversation
    ) -> None:
        """Leave a call after what has come, as its client left it."""
        if conversation.is_over:
            return

        cancelling_request = conversation.response_part_received(observation)
        if cancelling_request is not None:
            self._start_task(
                self._read_whole_response(cancelling_request, conversation)
            )

        if conversation.is_over:
            self._stop_reading()

    def _stop_reading(self) -> None:
        """Leave the responses that are of no interest any more."""
        for pending_response in self._pending_responses:
            if pending_response.conversation.is_over:
                pending_response.reading_task.cancel()

    async def _start_push_answer(
        self, push: OpenPush, conversation: Conversation
    ) -> None:
        """Start to post the answer to a pushed question, if a script or `supply` has any."""
        async with self._answering_lock:
            answer_post = conversation.session.give_push_to_owner(push)
            if answer_post is None:
                answer_post = await self._take_supplied_answer()

            if answer_post is not None:
                # Beside the stream, on which the server may wait for this answer.
                post = self._start_task(self._post_answer(answer_post, conversation))
                self._answers_under_way.add(post)
                post.add_done_callback(self._answers_under_way.discard)

        self._question_came.set()
        self._stop_reading()

    async def _answer_ping(self, ping: Message, conversation: Conversation) -> None:
        """Answer a ping, whatever comes of it."""
        with suppress(OSError, MrtrCassetteError):
            pong = conversation.session.post_response(ping, conversation)
            await self._read_whole_response(pong, conversation)
            conversation.session.response_received(pong)

    async def _post_answer(
        self, answer_post: Observation, conversation: Conversation
    ) -> None:
        """Post an answer; where the server refuses it, the call that waits for it fails."""
        problem: UpstreamError | None = None
        try:
            await self._read_whole_response(answer_post, conversation)
            if answer_post.status >= _LOWEST_REFUSED_STATUS:
                exchange = answer_post.seal(End.COMPLETE, 0.0)
                problem = AnswerRefusedError(
                    self.shown_as, exchange, answer_post.status
                )
        except OSError as error:
            problem = UpstreamError(no_response_error(self.shown_as, error))

        owner = conversation.session.response_received(answer_post)
        if problem is not None and owner is not None:
            self._fail_waiting_call(owner, problem)

    def _fail_waiting_call(self, owner: RequestOwner, refusal: UpstreamError) -> None:
        """Let a call fail whose response waits for the refused answer."""
        for pending_response in self._pending_responses:
            is_in_background = pending_response.reading_task in self._background_tasks
            if pending_response.conversation is owner and not is_in_background:
                pending_response.refusal = refusal
                pending_response.reading_task.cancel()

    async def _take_supplied_answer(self) -> Observation | None:
        """Get an answer for the first conversation that waits for one, and take it."""
        for pending_response in self._pending_responses:
            ask = pending_response.conversation.unanswered_ask
            if pending_response.supply is not None and ask is not None:
                answer = await pending_response.supply(ask)
                if answer is None:
                    return None
                return pending_response.conversation.answer_unanswered_ask(answer)

        return None
