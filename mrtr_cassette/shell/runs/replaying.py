"""Replaying: the recording is the server.

Rule: nothing here can reach the network; no HTTP client is imported (see tests/test_layering.py).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from string import punctuation
from threading import Lock
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.cassette.texts import combine_cassettes
from mrtr_cassette.core.cassette.transports import cassette_over_http
from mrtr_cassette.core.protocol.any_server import HarmlessReply
from mrtr_cassette.core.protocol.calls import Call, read_call, session_of
from mrtr_cassette.core.replay.deliveries import Delivery, Play, Refusal, Sending
from mrtr_cassette.core.replay.diagnosis import Miss
from mrtr_cassette.core.replay.faults import EXPIRED_STATE, Fault, Faults, read_faults
from mrtr_cassette.core.replay.order import History, Repeat
from mrtr_cassette.core.replay.player import Choice, Player
from mrtr_cassette.core.replay.sessions import LiveSession
from mrtr_cassette.core.report.replay_events import (
    AskingEvents,
    asking_events,
    fault_log_line,
    harmless_event,
    missed_event,
    played_events,
)
from mrtr_cassette.core.secrets.credentials import NO_SETTINGS, UserSettings
from mrtr_cassette.core.secrets.values import values_of
from mrtr_cassette.core.wire.http import JSON_HEADERS, NO_STATUS, End, Headers, Request
from mrtr_cassette.errors import damage_error
from mrtr_cassette.options import ProxyOptions, ReplayOptions
from mrtr_cassette.shell.files.cassettes import (
    load_cassette,
    without_garbage_collection,
)
from mrtr_cassette.shell.files.disk import CLOCK, Clock
from mrtr_cassette.shell.files.log import Announcer, OnEvent
from mrtr_cassette.shell.files.stores import Location, location_of
from mrtr_cassette.shell.http.server import OriginRewriter
from mrtr_cassette.shell.http.transport import TEXT_HEADERS, Downstream
from mrtr_cassette.shell.runs.proxy_runs import ReplayRun, miss_terms
from mrtr_cassette.shell.runs.sites import PortSite, Site

if TYPE_CHECKING:
    from mrtr_cassette.core.report.runs import MissReport

DEFAULTS: Final = ReplayOptions()
_PAUSE_BETWEEN_EVENTS_S: Final = 0.05
"""Seconds between an event and a response that follows it on a stream that many requests share.

Of what the TypeScript SDK's client of HTTP+SSE reads at once, it handles responses first, and drops
the progress of a call that has its response: only time keeps the two apart.
"""

_MOST_LOADED: Final = 16
"""Unions of cassettes that are kept for further plays."""

_SLOW_STEP_S: Final = 0.02
"""Seconds between the pieces of a response that a fault slows down."""


def replaying(
    path: Location,
    options: ReplayOptions = DEFAULTS,
    *,
    site: Site | None = None,
    on_event: OnEvent | None = None,
    clock: Clock = CLOCK,
    loaded: LoadedReplays | None = None,
) -> AbstractAsyncContextManager[ReplayRun]:
    """Load a cassette, and return what serves it at a site; by default on a port of its own.

    One that is `loaded` already is not loaded again.

    Raises:
        CassetteError: the cassette can't be read.
        UsageError: later, the address can't be bound.
    """
    site = site or PortSite(options)
    terms = miss_terms(options)
    announcer = Announcer(options.log, site.listeners(on_event), terms)
    # A loop that many runs share is not held up: it comes later.
    cassette, server = load_server(
        path, cassette_over_http, options, announcer, clock, loaded
    )
    replay_run = ReplayRun("", "", path, cassette, server.player, terms)
    replay_run.faults = server.faults

    return _serving_replay(replay_run, server, site)


@asynccontextmanager
async def _serving_replay(
    replay_run: ReplayRun, server: ReplayServer, site: Site
) -> AsyncIterator[ReplayRun]:
    """Serve a replay on a site, and set the run's URLs, until the block ends."""
    player = server.player
    path_and_query = _path_and_query_of_server(replay_run.played_cassette)
    shown_target = player.normaliser.sent_secrets.shown_target(path_and_query)
    # What it still learns is of this replay alone.
    origin = copy(player.origin)
    with site.opened_url() as base_url:
        replay_run.url = f"{base_url}{path_and_query}"
        replay_run.shown_url = f"{base_url}{shown_target}"
        rewriter = OriginRewriter(server.answer_request, origin, base_url)
        replay_run.elsewhere = rewriter.elsewhere
        try:
            serving_context = site.serving(rewriter.answer_request, server.announcer)
            async with serving_context as replay_run.admin_url:
                yield replay_run
        finally:
            await server.close()


def _path_and_query_of_server(cassette: Cassette) -> str:
    """Return path and query of the recorded server, percent-encoded where that is needed."""
    try:
        upstream = urlsplit(cassette.upstream)
    except ValueError as error:
        raise damage_error(cassette.path, "/upstream", f"no URL: {error}") from None

    path_and_query = upstream.path or "/"
    if upstream.query:
        path_and_query = f"{path_and_query}?{upstream.query}"

    return quote(path_and_query, safe=punctuation)


def load_server(
    path: Location,
    to_transport: Callable[[Cassette], Cassette],
    options: ReplayOptions,
    announcer: Announcer,
    clock: Clock = CLOCK,
    loaded: LoadedReplays | None = None,
) -> tuple[Cassette, ReplayServer]:
    """Load a cassette for a transport, and return it with its server.

    Raises:
        CassetteError: the cassette can't be read, or not be played over the transport.
    """
    loaded = loaded or LoadedReplays()
    cassette, player = loaded.load_or_reuse(path, to_transport, options)
    server = ReplayServer(player, announcer, options.pace == "recorded", clock)
    if options.faults:
        is_piped = to_transport is not cassette_over_http
        server.faults = Faults(read_faults(options.faults, is_piped=is_piped))

    if announcer.listeners:
        server.asking_events = asking_events(cassette.interactions)

    return cassette, server


def load_played(path: Location, options: ReplayOptions) -> list[Cassette]:
    """Load a cassette, and those that are played as one with it."""
    return [load_cassette(location_of(place)) for place in (path, *options.beside)]


def _load_replay(
    path: Location, to_transport: Callable[[Cassette], Cassette], options: ReplayOptions
) -> tuple[Cassette, Player]:
    """Load what is played, with a player that has played nothing."""
    with without_garbage_collection():
        cassettes = load_played(path, options)
        combined_cassette = combine_cassettes(cassettes)
        served_cassette = to_transport(combined_cassette)
        player = player_of(served_cassette, options, stateless=options.stateless)
        if combined_cassette.transport == "stdio":
            # A miss names the command that started the server.
            player.recording = replace(
                served_cassette, command=combined_cassette.server
            )

    if options.pace == "recorded":
        player.send_piece_by_piece()

    player.set_poll_interval(options.poll_interval)
    player.stops = options.on_miss == "stop"
    player.paths = tuple([cassette.path for cassette in cassettes])
    player.adds_to = str(path)

    return served_cassette, player


class LoadedReplays:
    """Loads what many replays play once, as long as the files don't change; for many threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._loaded_replays: dict[object, tuple[Cassette, Player]] = {}
        """The one that was played last is the last one."""

    def load_or_reuse(
        self,
        path: Location,
        to_transport: Callable[[Cassette], Cassette],
        options: ReplayOptions,
    ) -> tuple[Cassette, Player]:
        """Return what is played, with a player of its own.

        Raises:
            CassetteError: a cassette can't be read.
        """
        load_replay = partial(_load_replay, path, to_transport, options)
        versions = tuple(map(_file_version, [str(path), *options.beside]))
        if None in versions:
            cassette, player = load_replay()
        else:
            key = (versions, to_transport, repr(options))
            cassette, player = self._kept_replay(key, load_replay)

        if options.secrets:
            player.normaliser.sent_secrets.add_settings(
                UserSettings(secrets=options.secrets)
            )

        return cassette, player

    def _kept_replay(
        self, key: object, load_replay: Callable[[], tuple[Cassette, Player]]
    ) -> tuple[Cassette, Player]:
        """Return what is kept under a key, or loaded now, with a player of its own."""
        # Threads that begin to play the same cassette at once load it once.
        with self._lock:
            loaded_replay = self._loaded_replays.pop(key, None) or load_replay()
            self._loaded_replays[key] = loaded_replay
            if len(self._loaded_replays) > _MOST_LOADED:
                del self._loaded_replays[next(iter(self._loaded_replays))]

            cassette, unplayed_player = loaded_replay
            return cassette, unplayed_player.fresh_player()


def _file_version(path: str) -> tuple[object, ...] | None:
    """Return what changes when a file does; None for what is in a store, which may always."""
    try:
        file_status = os.stat(path)  # noqa: PTH116  a hundred times faster for many files
    except OSError:
        return None

    return path, file_status.st_ino, file_status.st_size, file_status.st_mtime_ns


def player_of(
    cassette: Cassette,
    options: ProxyOptions,
    settings: UserSettings = NO_SETTINGS,
    **player_options: Any,
) -> Player:
    """Return a player that matches as the options say; the live server has these credentials."""
    player = Player(
        cassette,
        ignored=options.ignored,
        repeat=Repeat(options.repeat),
        history=History(options.history),
        reads=options.reads,
        matchers=options.matchers,
        **player_options,
    )

    player.before_record = options.record_hook
    player.normaliser.values = values_of(
        cassette.values,
        options.texts,
        cassette.path,
        needs_all=bool(player_options.get("stateless")),
    )

    player.normaliser.sent_secrets.add_settings(
        settings._replace(secrets=options.secrets)
    )

    return player


@dataclass(slots=True)
class ReplayServer:
    """Answers requests from a player.

    Attributes:
        paced: event streams keep the recorded rhythm.
        asking_events: what is told while a response is sent; empty if nobody wants to be told.
        faults: what goes wrong in this replay, or None.
        silence_s: seconds without a request in its session after which a notification or a read is
            waited for no more.
    """

    player: Player
    announcer: Announcer
    paced: bool
    clock: Clock = CLOCK
    asking_events: AskingEvents = field(default_factory=dict)
    faults: Faults | None = None
    silence_s: float = 10.0
    _latest_miss_report: tuple[Miss, MissReport] | None = None
    """The miss that was last reported, which may be the answer to all further requests."""

    _waiting_responses: set[asyncio.Task[None]] = field(default_factory=set)
    _arrival_events: dict[LiveSession, asyncio.Event] = field(default_factory=dict)
    """Set when the next request of a session has got its reply; of sessions where replies wait."""

    async def answer_request(self, request: Request, downstream: Downstream) -> None:
        """Answer one request."""
        miss = self.player.stopping_miss_for(request)
        if miss is not None:
            body = self._miss_error_body(miss, read_call(request))
            await self._send_unrecorded_response(request, body, downstream)
            return

        if self.faults is not None:
            choice = self.player.choose_reply(request, self.clock.wall())
            lookup = choice.prepared.normalised.lookup
            fault = self.faults.fault_met_by(
                lookup, choice.recording.entry, session_of(request)
            )
            if fault is not None:
                await self._meet_fault(fault, choice, downstream)
                return

        await self._answer_as_decided(request, downstream)

    async def _answer_as_decided(
        self, request: Request, downstream: Downstream
    ) -> None:
        """Answer a request as the player decides: by a reply, a miss or any server's answer."""
        decision = self.player.request_received(request, self.clock.wall())
        if isinstance(decision, Play):
            await self.answer_with_play(decision, downstream)
        elif isinstance(decision, Miss):
            await self._answer_miss(request, decision, downstream)
        else:
            await self._answer_harmless_request(request, decision, downstream)

    async def _meet_fault(
        self, fault: Fault, choice: Choice, downstream: Downstream
    ) -> None:
        """Let a request meet a fault; what it doesn't get of a response stays unplayed."""
        request = choice.request
        call = self.player.normaliser.sent_secrets.shown_text(
            str(choice.prepared.normalised.lookup.call)
        )
        self.announcer.say(fault_log_line, fault.name, call)
        await self.clock.sleep(fault.delay)
        if fault.slow:
            downstream = _Slowed(downstream, fault.slow, self.clock, request.is_line)

        if fault.replaces_response:
            self.player.let_call_start_over(choice)

        if fault.drop is not None:
            await self._drop_connection(fault, choice, downstream)
        elif fault.expired_state:
            body = EXPIRED_STATE % (choice.prepared.caller_values.id or b"null")
            await self._send_unrecorded_response(request, body, downstream)
        elif fault.status is not None or fault.session_lost:
            await _send_fault_error(fault, downstream)
        else:
            await self._answer_as_decided(request, downstream)

    async def _drop_connection(
        self, fault: Fault, choice: Choice, downstream: Downstream
    ) -> None:
        """Lose the connection before a response, or in its middle."""
        delivery = None
        if fault.drop != "head":
            delivery = self.player.unplayed_response(choice)

        if delivery is not None:
            reply = delivery.reply
            downstream.begin_response(reply.status, delivery.headers)
            kept_body = fault.kept_part_of_body(
                delivery.body, is_event_stream=reply.is_event_stream
            )
            await downstream.send_chunk(kept_body)

        downstream.break_off()

    async def _answer_harmless_request(
        self, request: Request, reply: HarmlessReply, downstream: Downstream
    ) -> None:
        """Give a request that was not recorded the answer of any server."""
        self.announcer.tell(harmless_event, reply)
        # The notification may cancel a call for other reasons than the recorded one.
        self._wake_waiting_responses(self.player.session_of(request))
        await self._send_unrecorded_response(
            request, reply.body, downstream, reply.status, reply.headers
        )

    async def answer_with_play(self, play: Play, downstream: Downstream) -> None:
        """Answer a request with what was recorded for it."""
        if self.announcer.listeners:
            for event in played_events(play):
                self.announcer.tell(dict, event)

        if play.miss is not None:
            self._tell_miss(play.miss)

        self._wake_waiting_responses(play.session)
        delivery = play.delivery
        if delivery is None:
            await self._hold_open_or_miss(play, downstream)
        else:
            await self._send_response(play, delivery, downstream)

    async def _send_response(
        self, play: Play, delivery: Delivery, downstream: Downstream
    ) -> None:
        """Send a recorded response, and hold it open or end it with a miss if it has no end."""
        patience = play.patience
        refusal_task = None
        if patience is not None and patience.is_for_cancellation:
            refusal_task = self._start_waiting_task(
                self._refuse_after_waiting(play, delivery)
            )

        response = delivery.entry.exchange.response
        is_accepted = response is not None and response.is_acknowledgement
        try:
            if delivery.is_whole:
                await self._send_whole(delivery, downstream)
            elif await self._send_delivery(delivery, downstream) is End.OPEN:
                await self._hold_open_or_miss(play, downstream)
        finally:
            delivery.note_finished()
            self._wake_waiting_responses(play.session)
            if refusal_task is not None and not is_accepted:
                refusal_task.cancel()

        if patience is not None and is_accepted and refusal_task is None:
            # The connection on which the call was accepted is free for the next request.
            self._start_waiting_task(self._respond_on_stream(play))

    async def close(self) -> None:
        """Wait no more for what accepted calls may still get: a miss of them comes too late."""
        waiting_tasks = tuple(self._waiting_responses)
        for waiting_task in waiting_tasks:
            waiting_task.cancel()

        await asyncio.gather(*waiting_tasks, return_exceptions=True)

    def _start_waiting_task(
        self, coroutine: Coroutine[Any, Any, None]
    ) -> asyncio.Task[None]:
        """Begin to wait for the time at which a call gets its miss."""
        task = asyncio.create_task(coroutine)
        self._waiting_responses.add(task)
        task.add_done_callback(self._waiting_responses.discard)
        return task

    async def _refuse_after_waiting(self, play: Play, delivery: Delivery) -> None:
        """Refuse a call in the end whose response waits for its cancellation."""
        miss = await self._miss_after_waiting(play)
        if miss is not None:
            delivery.refuse_call(miss)
            self._wake_waiting_responses(play.session)

    async def _respond_on_stream(self, play: Play) -> None:
        """Give an accepted call without a recorded response its miss in the end, over HTTP+SSE."""
        miss = await self._miss_after_waiting(play)
        if miss is None:
            return

        body = self._miss_error_body(miss, play.request_id)
        if self.player.respond_on_stream(play.request, body):
            self._wake_waiting_responses(play.session)

    async def _miss_after_waiting(self, play: Play) -> Miss | None:
        """Wait, and return the miss for a call that gets no response; None if it is cancelled."""
        patience = play.patience
        if patience is None:
            return None

        await self.clock.sleep(patience.seconds)
        miss = self.player.count_uncancelled_call_without_response(play)
        if miss is not None:
            self._tell_miss(miss)

        return miss

    async def _hold_open_or_miss(self, play: Play, downstream: Downstream) -> None:
        """Wait for a client to leave; a call without a recorded response gets a miss in the end."""
        if play.patience is None:
            # Over pipes nothing says that there is no response.
            if play.delivery is not None or not play.request.is_line:
                await _wait_until_cancelled()

            return

        miss = await self._miss_after_waiting(play)
        if miss is None:
            await _wait_until_cancelled()
            return

        miss_body = self._miss_error_body(miss, play.request_id)
        delivery = play.delivery
        if delivery is None:
            await downstream.send_response(200, JSON_HEADERS, miss_body)
        elif delivery.reply.is_message_stream:
            await self._send_message(miss_body, delivery, downstream, is_last=True)
        else:
            downstream.break_off()

    async def _answer_miss(
        self, request: Request, miss: Miss, downstream: Downstream
    ) -> None:
        """Say a miss, and answer its request with it."""
        report = self._tell_miss(miss)
        if miss.call.message is None:
            await downstream.send_response(
                404, TEXT_HEADERS, f"{report.text}\n".encode()
            )
            return

        if miss.is_refused:
            # The call that waits for this answer gets the miss.
            await self.accept_message(request, downstream)
        else:
            await self._send_unrecorded_response(
                request, self._miss_error_body(miss, miss.call), downstream
            )

    async def _send_unrecorded_response(
        self,
        request: Request,
        body: bytes,
        downstream: Downstream,
        status: int = 200,
        headers: Headers = JSON_HEADERS,
    ) -> None:
        """Give a request a response that was not recorded."""
        if body and self.player.respond_on_stream(request, body):
            await self.accept_message(request, downstream)
        else:
            await downstream.send_response(status, headers, body)

    async def accept_message(self, request: Request, downstream: Downstream) -> None:
        """Accept a message to which the response comes elsewhere, and send what is due now."""
        self._wake_waiting_responses(self.player.session_of(request))
        await downstream.send_response(202, (), b"")

    def _tell_miss(self, miss: Miss) -> MissReport:
        """Say a miss, and return its report."""
        report = self._report_of_latest_miss(miss)
        self.announcer.say(lambda: (missed_event(miss), report.text))
        return report

    def _report_of_latest_miss(self, miss: Miss) -> MissReport:
        """Return the report of a miss; the latest is kept, as further requests may get it too."""
        # Most replays have no miss.
        from mrtr_cassette.core.report.runs import report_of_miss

        if self._latest_miss_report is None or self._latest_miss_report[0] is not miss:
            report = report_of_miss(miss, self.player, self.announcer.terms)
            self._latest_miss_report = (miss, report)

        return self._latest_miss_report[1]

    def _miss_error_body(self, miss: Miss, answered: Call | bytes | None) -> bytes:
        """Return the JSON-RPC error that a client gets for a call, or for the call with this id."""
        from mrtr_cassette.core.report.runs import error_body

        return error_body(self._report_of_latest_miss(miss), answered)

    def _wake_waiting_responses(self, session: LiveSession) -> None:
        """Let responses go on that wait for a request of their session or an event in it."""
        arrival_event = self._arrival_events.pop(session, None)
        if arrival_event is not None:
            arrival_event.set()

    async def _send_whole(self, delivery: Delivery, downstream: Downstream) -> None:
        """Send a response whole, once all of it is due; a refusal takes its place."""
        body = b""
        while not isinstance(step := delivery.take_next(), End):
            if step is None:
                await self._wait_for_arrival(delivery)
                continue

            if isinstance(step, Refusal):
                body = self._miss_error_body(step.miss, step.id)
                await downstream.send_response(200, JSON_HEADERS, body)
                return

            body += step.raw
            if step.is_last:
                break

        await downstream.send_response(delivery.reply.status, delivery.headers, body)

    async def _send_delivery(self, delivery: Delivery, downstream: Downstream) -> End:
        """Send a response as it becomes due; return how it ends."""
        started_s = self.clock.now()
        downstream.begin_response(delivery.reply.status, delivery.headers)
        is_head_sent = False
        is_event_sent = False
        while not isinstance(step := delivery.take_next(), End):
            if step is None or (self.paced and not is_head_sent):
                # The head does not wait for the first part.
                await downstream.send_chunk()
                is_head_sent = True

            if step is None:
                await self._wait_for_arrival(delivery)
                is_event_sent = False
                continue

            if isinstance(step, Refusal):
                body = self._miss_error_body(step.miss, step.id)
                await self._send_message(
                    body, delivery, downstream, is_last=step.is_last
                )
            else:
                await self._wait_for_recorded_time(
                    step, started_s, follows_event=is_event_sent
                )
                await self._send_part(step, delivery, downstream)
                is_event_sent = True

            if step.is_last:
                return End.COMPLETE

        await downstream.send_chunk(is_last=step is End.COMPLETE)
        if step is End.BROKEN:
            downstream.break_off()

        return step

    async def _wait_for_recorded_time(
        self, part: Sending, started_s: float, *, follows_event: bool
    ) -> None:
        """Wait until a part is as late as it was recorded, or apart from the event before it."""
        if self.paced:
            elapsed_s = self.clock.now() - started_s
            await self.clock.sleep(max(0.0, part.at_ms / 1000 - elapsed_s))
        elif part.is_response and follows_event:
            await self.clock.sleep(_PAUSE_BETWEEN_EVENTS_S)

    async def _send_part(
        self, part: Sending, delivery: Delivery, downstream: Downstream
    ) -> None:
        """Send a part of a response, and tell of what it asks."""
        await downstream.send_chunk(part.raw, is_last=part.is_last)
        # A response may wait for it.
        self._wake_waiting_responses(delivery.session)
        for piece, asking_event in self.asking_events.get(delivery.entry.exchange, ()):
            if piece in part.pieces:
                self.announcer.tell(dict, asking_event)

    async def _send_message(
        self,
        message: bytes,
        delivery: Delivery,
        downstream: Downstream,
        *,
        is_last: bool,
    ) -> None:
        """Send a message of our own on a stream of events or lines."""
        framed_message = b"event: message\ndata: " + message + b"\n\n"
        if delivery.entry.normalised.request.is_line:
            framed_message = message + b"\n"

        await downstream.send_chunk(framed_message, is_last=is_last)

    async def _wait_for_arrival(self, delivery: Delivery) -> None:
        """Wait until its session has had a request or an event, as a part may wait for it.

        A client that never sends what this part waits for may say nothing else until it has it, and
        one that never reads a stream may wait for a response.
        """
        session = delivery.session
        arrival_event = self._arrival_events.setdefault(session, asyncio.Event())
        skippable = delivery.skippable_request
        is_behind = bool(delivery.streams_due_first)
        may_go_on = is_behind or skippable is not None
        may_give_up = may_go_on or delivery.is_asked_on_unread_stream
        patience_s = self.silence_s if may_give_up else None

        try:
            async with asyncio.timeout(patience_s):
                await arrival_event.wait()
        except TimeoutError:
            if skippable is not None:
                session.waive_request(skippable)
            elif is_behind:
                # Nobody reads them.
                for stream in delivery.streams_due_first:
                    stream.is_finished = True
            else:
                self._tell_miss(self.player.refuse_unheard_call(delivery))

            self._wake_waiting_responses(session)

        if is_behind and not delivery.entry.normalised.request.is_line:
            # What came first comes by another connection.
            await self.clock.sleep(_PAUSE_BETWEEN_EVENTS_S)


async def _wait_until_cancelled() -> None:
    """Wait until the task is cancelled, as a client's is that leaves."""
    await asyncio.Event().wait()


async def _send_fault_error(fault: Fault, downstream: Downstream) -> None:
    """Send the HTTP error of a fault; a lost session is a 404."""
    status = fault.status or 404
    headers = TEXT_HEADERS
    if fault.retry_after is not None:
        headers = (*headers, ("Retry-After", str(fault.retry_after)))

    if status == 401:
        headers = (*headers, ("WWW-Authenticate", "Bearer"))

    await downstream.send_response(status, headers, f"{fault.name}\n".encode())


@dataclass(slots=True)
class _Slowed:
    """Sends a response to a client at so many bytes a second."""

    downstream: Downstream
    bytes_per_s: int
    clock: Clock
    is_line: bool
    _due_time: float = 0.0
    """When the next bytes are due."""

    def begin_response(
        self, status: int, headers: Headers, reason: str | None = None
    ) -> None:
        """Begin a response."""
        self.downstream.begin_response(status, headers, reason)

    async def send_chunk(self, chunk: bytes = b"", *, is_last: bool = False) -> None:
        """Send the next bytes a few at a time, each as late as so many bytes take."""
        # Where nothing was sent for a while, nothing is caught up with.
        self._due_time = max(self._due_time, self.clock.now())
        step_size = max(1, round(self.bytes_per_s * _SLOW_STEP_S))
        for start in range(0, len(chunk), step_size):
            part = chunk[start : start + step_size]
            self._due_time += len(part) / self.bytes_per_s
            await self.clock.sleep(max(0.0, self._due_time - self.clock.now()))
            await self.downstream.send_chunk(part)

        await self.downstream.send_chunk(is_last=is_last)

    async def send_response(self, status: int, headers: Headers, body: bytes) -> None:
        """Send a whole response."""
        if self.is_line and status != NO_STATUS:
            # It is our own, which gets its line end there.
            await self.downstream.send_response(status, headers, body)
            return

        self.begin_response(status, (*headers, ("Content-Length", str(len(body)))))
        await self.send_chunk(body, is_last=True)

    def break_off(self) -> None:
        """End the response so that its client sees that it is incomplete."""
        self.downstream.break_off()
