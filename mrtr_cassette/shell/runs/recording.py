"""Record with a proxy between clients and the upstream: relay, append, or answer for the client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from mrtr_cassette.core.answers.fulfilment import AnswerSources, LeavesToSources, Rounds
from mrtr_cassette.core.cassette.recorded import Cassette, RecordedExchange
from mrtr_cassette.core.cassette.sessions import (
    EndpointPassing,
    foreign_redirect_origin,
)
from mrtr_cassette.core.cassette.transports import is_started_here
from mrtr_cassette.core.compare.conversations import IgnoredFor
from mrtr_cassette.core.drive.appending import (
    Appending,
    RepeatedPlayedCall,
    ReplayToAsk,
)
from mrtr_cassette.core.drive.conversation import (
    AnsweredPoll,
    AskAnswer,
    Conversation,
    FinishedCall,
    LiveAsk,
    NeedsAnswers,
)
from mrtr_cassette.core.drive.live_session import (
    ServerSession,
    is_modern,
    with_declared_kinds,
    with_id_of,
)
from mrtr_cassette.core.protocol.calls import Call, read_call
from mrtr_cassette.core.protocol.methods import method_of
from mrtr_cassette.core.protocol.origins import ServerOrigin
from mrtr_cassette.core.record.recorder import Observation, Recorder
from mrtr_cassette.core.record.sealing import ExchangeSealer
from mrtr_cassette.core.replay.deliveries import Play
from mrtr_cassette.core.replay.diagnosis import Miss
from mrtr_cassette.core.replay.matching import redactor_of
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.report.events import (
    caught_up_log_line,
    repeated_log_line,
    unreachable_log_line,
)
from mrtr_cassette.core.report.replay_events import missed_event
from mrtr_cassette.core.report.runs import (
    error_body,
    report_of_miss,
    upstream_error_body,
)
from mrtr_cassette.core.secrets.credentials import UserSettings, text_redactor
from mrtr_cassette.core.wire.http import (
    ANSWERED_BY_HEADER,
    JSON_HEADERS,
    End,
    Headers,
    Request,
    is_event_stream,
    without_header,
)
from mrtr_cassette.errors import BodyTooLargeError, UpstreamError, UsageError
from mrtr_cassette.options import RecordOptions
from mrtr_cassette.shell.files import cassettes
from mrtr_cassette.shell.files.ignored import ignored_for_options
from mrtr_cassette.shell.files.log import Announcer, OnEvent
from mrtr_cassette.shell.files.stores import Location
from mrtr_cassette.shell.http.access import is_own_name
from mrtr_cassette.shell.http.server import OriginRewriter
from mrtr_cassette.shell.http.transport import (
    Downstream,
    Handler,
    RawHeaders,
    Upstream,
    UpstreamResponse,
    headers_for_client,
    no_response_error,
)
from mrtr_cassette.shell.runs.answerers import Answerers, answers_endpoint, load_answers
from mrtr_cassette.shell.runs.journaling import (
    ExchangeRecording,
    RecordedServer,
    RecordingRun,
    check_output,
    check_transport,
    combined_rules,
    journaling,
)
from mrtr_cassette.shell.runs.live_server import LiveServer
from mrtr_cassette.shell.runs.replaying import ReplayServer, player_of
from mrtr_cassette.shell.runs.sites import PortSite, Site
from mrtr_cassette.shell.runs.upstreams import Target, is_on_pipes, reached_upstream

DEFAULTS: Final = RecordOptions()
_LARGEST_REST: Final = 64 * 1024
_LONGEST_REST_S: Final = 1.0
"""Bytes and seconds that are read on of a response whose reader has left."""


@asynccontextmanager
async def recording(
    upstream: str | Sequence[str],
    output: Location,
    options: RecordOptions = DEFAULTS,
    *,
    started: Sequence[str] | None = None,
    caller_publishes_to: Location | None = None,
    site: Site | None = None,
    on_event: OnEvent | None = None,
) -> AsyncIterator[RecordingRun]:
    """Record what passes until the block ends, then publish the cassette.

    With `existing="append"`, what the cassette has is played, and only what it lacks is sent to the
    upstream and recorded. Where it lacks nothing, the file stays untouched.

    Args:
        upstream: URL of the real server, or its command: with `{port}`, or of one on pipes, which
            is called over HTTP.
        started: the command by which we have started the server at the URL, or an empty one where
            it is an application: the cassette doesn't name the port, which is another on every run.
        caller_publishes_to: the cassette, named by messages, that the caller makes of the journal;
            or None.
        site: where clients reach it; None: on a port of its own.

    Raises:
        CassetteError: the cassette can't be written, or exists.
        UsageError: the upstream is no URL, the address can't be bound, or a cassette that is to be
            added to was recorded over pipes.
        UpstreamError: the command can't be run, or does not listen.
    """
    with cassettes.without_garbage_collection():
        earlier = check_output(output, options)

    if earlier is not None:
        check_transport(earlier, str(caller_publishes_to or output), "http")

    path_source = earlier
    starts_command = not isinstance(upstream, str) and not is_on_pipes(upstream)
    if path_source is None and starts_command:
        # The server is called at the path that a cassette has.
        path_source = cassettes.load_if_readable(output)

    named_place = caller_publishes_to or output
    site = site or PortSite(options)
    upstream_context = reached_upstream(
        upstream, options, options.redaction, path_source, started
    )
    async with upstream_context as target:
        recording_context = _recording_of_target(
            target, output, options, earlier, named_place, site=site, on_event=on_event
        )
        async with recording_context as recording_run:
            recording_run.publishing.is_wanted = caller_publishes_to is None
            yield recording_run


@asynccontextmanager
async def _recording_of_target(
    target: Target,
    output: Location,
    options: RecordOptions,
    earlier: Cassette | None,
    named_place: Location,
    *,
    site: Site,
    on_event: OnEvent | None,
) -> AsyncIterator[RecordingRun]:
    """Record a server that runs; messages name the cassette by its `named_place`."""
    secrets = UserSettings(secrets=options.secrets)
    rules = combined_rules(earlier, options.redaction)
    redact = text_redactor(rules, secrets)
    redact_target = text_redactor(rules, secrets, is_target=True)
    server = RecordedServer(redact(target.recorded_as))
    if target.command is not None:
        server = server._replace(command=redact(target.command))

    origin = ServerOrigin(target.name)
    player = None
    if earlier is not None:
        earlier = replace(earlier, path=str(named_place))
        # What is played names the origin that the server had when it was recorded.
        origin.add(earlier.upstream, any_port=is_started_here(earlier.upstream))
        player = _player_to_add_to(earlier, server, options, target)

    announcer = Announcer(options.log, site.listeners(on_event), options.terms)
    with site.opened_url() as base_url:
        is_own_port = target.port == urlsplit(base_url).port
        if is_own_port and is_own_name(target.host, options):
            raise UsageError(f"the upstream {redact(target.name)} is this proxy itself")

        with journaling(
            output, options, announcer, earlier, player, server
        ) as recording_run:
            recording_run.url = f"{base_url}{target.path}"
            recording_run.shown_url = f"{base_url}{redact_target(target.path)}"
            recording_run.server_settings = target.settings
            recording_run.publishing.is_server_started = (
                target.recorded_as != target.name
            )
            connection = target.connect(recording_run.recorder.sealer.add_settings)
            async with connection as live_upstream:
                relay = Relay(live_upstream, target.origin, recording_run)
                background_work = recording_run.background_work.finished_at_end()
                async with _opened_handler(relay, options) as handler, background_work:
                    rewriter = OriginRewriter(handler, origin, base_url)
                    recording_run.elsewhere = rewriter.elsewhere
                    serving_context = site.serving(rewriter.answer_request, announcer)
                    async with serving_context as recording_run.admin_url:
                        yield recording_run


def _player_to_add_to(
    earlier: Cassette, server: RecordedServer, options: RecordOptions, target: Target
) -> Player:
    """Return the player of a cassette that is added to."""
    with cassettes.without_garbage_collection():
        player = player_of(earlier, options, target.settings, strict=True)

    # A miss names the server that is recorded now.
    player.recording = replace(
        earlier, upstream=server.upstream, command=server.command
    )
    return player


@asynccontextmanager
async def _opened_handler(
    relay: Relay, options: RecordOptions
) -> AsyncIterator[Handler]:
    """Open the handler of requests: the relay, an appender or auto-answers before it."""
    recording_run = relay.recording_run
    if recording_run.played_cassette is not None and recording_run.player is not None:
        ignored_for = ignored_for_options(
            options.ignore, options.ignore_from, options.masks
        )
        appender = Appender(
            relay, recording_run.played_cassette, recording_run.player, ignored_for
        )
        try:
            yield appender.answer_request
        finally:
            await appender.close()
    elif options.answers is not None:
        sources = AnswerSources(file=load_answers(Path(options.answers)))
        async with answers_endpoint(sources.file.rest) as endpoint:
            answerers = Answerers(recording_run.announcer, endpoint)
            yield AutoAnswerHandler(relay, sources, answerers).answer_request
    else:
        yield relay.relay_exchange


class RelayedResponse(ExchangeRecording):
    """An upstream's response that is recorded as it is read: what was read may be passed on.

    A stream that says where its client is to post leads it back here, if that is at `upstream`.
    """

    status: int
    reason: bytes
    headers: RawHeaders
    client_headers: Headers
    """The headers that go to the client."""

    _upstream_response: UpstreamResponse

    def __init__(
        self, recording_run: RecordingRun, request: Request, upstream: str
    ) -> None:
        """Record a request that will be sent to an upstream, which is shown like this."""
        super().__init__(recording_run, request)
        self.is_read = False
        self.reads_rest_when_left = False
        """The rest is read on when the reader has left, as that of an acknowledgement is."""
        self._request = request
        self._upstream_url = upstream
        self._is_end_recorded = False
        self._endpoint_passing: EndpointPassing | None = None

    def take_response_head(self, response: UpstreamResponse) -> None:
        """Take the upstream's response, whose head has come."""
        self._upstream_response = response
        self.status = response.status
        self.reason = response.reason
        self.headers = response.headers
        self.client_headers = headers_for_client(response.headers)
        if self._request.method == "GET" and is_event_stream(self.client_headers):
            # Over HTTP+SSE such a stream says where its client is to post.
            self._endpoint_passing = EndpointPassing(ServerOrigin(self._upstream_url))

    def record_head(self) -> None:
        """Record the head."""
        self.response_started(self.status, self.client_headers)
        if not 300 <= self.status < 400:
            return

        foreign_origin = foreign_redirect_origin(
            self._request,
            self.status,
            self.client_headers,
            ServerOrigin(self._upstream_url),
        )
        if foreign_origin is not None:
            self.note_sent_elsewhere("a redirect to", foreign_origin)

    def read_now(self) -> bytes:
        """Return the bytes that have come with the head."""
        if self._is_end_recorded:
            return b""
        return self._record_chunk(self._upstream_response.read_now())

    async def read(self) -> bytes:
        """Return the next bytes, or none at the end; an OSError says that the body is cut short."""
        if self._is_end_recorded:
            return b""

        try:
            chunk = await self._upstream_response.read()
        except OSError:
            self._record_end(End.BROKEN)
            raise

        return self._record_chunk(chunk)

    def close(self) -> None:
        """Leave the rest; an acknowledgement is read to its end, as clients may or may not wait."""
        observation = self.observation
        if not self._is_end_recorded and observation is not None:
            if self.reads_rest_when_left or observation.is_acknowledgement:
                self.recording_run.background_work.begin(self._read_rest(observation))
                return

        self._record_end(End.OPEN)

    def _record_chunk(self, chunk: bytes) -> bytes:
        """Record bytes of the response, and its end after the last; return them as passed on."""
        is_read = self._upstream_response.is_read
        if self._endpoint_passing is not None:
            chunk = self._with_own_endpoint(
                self._endpoint_passing, chunk, is_last=is_read
            )

        if chunk:
            self.response_bytes(chunk)

        if is_read:
            self.is_read = True
            # Before the client can know that its response is complete.
            self._record_end(End.COMPLETE)

        return chunk

    def _with_own_endpoint(
        self, endpoint: EndpointPassing, chunk: bytes, *, is_last: bool
    ) -> bytes:
        """Return bytes of a stream that leads its client back here."""
        passed_bytes = endpoint.feed(chunk)
        if is_last:
            passed_bytes += endpoint.release_held_bytes()

        if endpoint.is_over:
            if endpoint.foreign_origin:
                self.note_sent_elsewhere(
                    "the endpoint of HTTP+SSE at", endpoint.foreign_origin
                )

            self._endpoint_passing = None

        return passed_bytes

    def _record_end(self, end: End) -> None:
        """Record the end of the response and close it, unless that was done before."""
        if not self._is_end_recorded:
            self._is_end_recorded = True
            self.response_ended(end)
            self._upstream_response.close()

    async def _read_rest(self, observation: Observation) -> None:
        """Read the rest of the response within limits of time and size, and record its end."""
        try:
            async with asyncio.timeout(_LONGEST_REST_S):
                while not self.is_read and observation.size < _LARGEST_REST:
                    await self.read()
        except OSError:  # TimeoutError is one
            pass
        finally:
            self._record_end(End.OPEN)


@dataclass(frozen=True, slots=True)
class Relay:
    """Passes requests to one upstream, and records the exchanges."""

    upstream: Upstream
    shown_as: str
    """The upstream, as shown in messages."""

    recording_run: RecordingRun

    async def relay_exchange(
        self,
        request: Request,
        downstream: Downstream,
        upstream_request: Request | None = None,
    ) -> None:
        """Relay one exchange; `upstream_request` goes upstream in the place of the client's."""
        try:
            response = await self.send_request(request, upstream_request)
            try:
                reason = response.reason.decode("utf-8", "surrogateescape")
                downstream.begin_response(
                    response.status, response.client_headers, reason
                )
            except ValueError:
                response.leave_unrecorded()
                response.close()
                raise
        except (OSError, ValueError) as error:
            await self.answer_unreachable(
                request, downstream, no_response_error(self.shown_as, error)
            )
            return

        response.record_head()
        try:
            chunk = response.read_now()
            while not response.is_read:
                await downstream.send_chunk(chunk)
                try:
                    chunk = await response.read()
                except OSError:
                    downstream.break_off()
                    return
        finally:
            response.close()

        await downstream.send_chunk(chunk, is_last=True)

    async def send_request(
        self, client_request: Request, upstream_request: Request | None = None
    ) -> RelayedResponse:
        """Send a request upstream, and return its response when the head has come.

        Raises:
            OSError: there is no response.
        """
        relayed_response = RelayedResponse(
            self.recording_run, client_request, self.shown_as
        )
        sent_request = upstream_request or client_request
        try:
            relayed_response.take_response_head(
                await self.upstream.send_request(sent_request)
            )
        except asyncio.CancelledError:
            relayed_response.response_ended(End.OPEN)
            raise

        return relayed_response

    async def answer_unreachable(
        self, request: Request, downstream: Downstream, problem: str
    ) -> None:
        """Answer for an upstream that gave no response, and count what is no exchange to record."""
        recording_run = self.recording_run
        recording_run.unreachable_count += 1
        target = recording_run.recorder.sealer.loggable_text(
            request.target, is_target=True
        )
        shown_request = f"{request.method} {target}"
        recording_run.announcer.say(unreachable_log_line, shown_request, problem)
        await downstream.send_response(
            502, JSON_HEADERS, upstream_error_body(request, problem)
        )


# Adding to a cassette


class Appender:
    """Answers requests from a cassette, or from the upstream if the cassette lacks them.

    The upstream is brought to where the client is; nothing that is sent for that is recorded.
    """

    def __init__(
        self,
        relay: Relay,
        earlier: Cassette,
        player: Player,
        ignored_for: IgnoredFor,
    ) -> None:
        """Prepare to play `earlier`, whose responses the recorder has to know."""
        recording_run = relay.recording_run
        recorder = recording_run.recorder
        for exchange in earlier.exchanges:
            if exchange.response is not None:
                recorder.sealer.announced.add_response(
                    exchange.response, exchange.response
                )

        new_sealer = partial(
            ExchangeSealer,
            redactor=redactor_of(earlier),
            credentials=recorder.sealer.credentials,
            values=recorder.sealer.values,
        )

        self._relay = relay
        self._recording_run = recording_run
        self._player = player
        self._replay_server = ReplayServer(player, recording_run.announcer, paced=False)
        self._live_server = LiveServer(relay.upstream, relay.shown_as)
        self._appending = Appending(
            player,
            recorder,
            recording_run.live_asks,
            recording_run.live_streams,
            new_sealer,
            ignored_for,
        )
        self._bringing_lock = asyncio.Lock()
        """Held while the live server is brought to where a client is."""

    async def answer_request(self, request: Request, downstream: Downstream) -> None:
        """Answer one request."""
        decision = self._appending.play_if_recorded(
            request, self._replay_server.clock.wall()
        )
        if isinstance(decision, Play):
            await self._replay_server.answer_with_play(decision, downstream)
        elif isinstance(decision, Miss):
            await self._refuse_request(request, decision, downstream)
        else:
            await self._relay_live_request(request, decision, downstream)

    async def _relay_live_request(
        self, request: Request, shown_call: Call, downstream: Downstream
    ) -> None:
        """Relay a request that the cassette lacks, once the upstream is where the client is."""
        try:
            live_request = await self._bring_server_to_turn(request, shown_call)
        except (UpstreamError, BodyTooLargeError) as error:
            await self._relay.answer_unreachable(request, downstream, str(error))
            return

        if isinstance(live_request, Miss):
            await self._refuse_request(request, live_request, downstream)
        else:
            await self._relay.relay_exchange(
                self._appending.request_as_recorded(request), downstream, live_request
            )

    async def close(self) -> None:
        """Stop playing what was recorded before."""
        await self._replay_server.close()

    async def pass_on_unsolicited(
        self, request: Request, downstream: Downstream
    ) -> None:
        """Pass on what the upstream says of its own accord, on a pipe."""
        await self._relay.relay_exchange(
            self._appending.request_as_recorded(request), downstream
        )

    async def _bring_server_to_turn(
        self, request: Request, shown_call: Call
    ) -> Request | Miss:
        """Bring the live server to the client's turn, and return the request in its terms."""
        async with self._bringing_lock:
            conversations = self._appending.bring_server_to_client(request, shown_call)
            while True:
                try:
                    conversation = next(conversations)
                except StopIteration as stop:
                    live_request: Request | Miss = stop.value
                    return live_request

                await self._live_server.follow_conversation(conversation)
                self._report_conversation(conversation)

    def _report_conversation(self, conversation: Conversation) -> None:
        """Say that a call was repeated, or that the upstream was brought to an ask."""
        announcer = self._recording_run.announcer
        if isinstance(conversation, RepeatedPlayedCall):
            announcer.say(repeated_log_line, conversation.entry)
        elif isinstance(conversation, ReplayToAsk) and conversation.failure is None:
            announcer.say(caught_up_log_line, conversation.asking_entry)

    async def _refuse_request(
        self, request: Request, miss: Miss, downstream: Downstream
    ) -> None:
        """Say why a request can't be recorded, and answer it with that as a JSON-RPC error."""
        recording_run = self._recording_run
        report = report_of_miss(miss, self._player, recording_run.terms)
        recording_run.unrecorded.append(report.text)
        recording_run.announcer.say(lambda: (missed_event(miss), report.text))
        if miss.is_refused:
            await self._replay_server.accept_message(request, downstream)
        else:
            body = error_body(report, miss.call)
            await downstream.send_response(200, JSON_HEADERS, body)


# Answering for the client


@dataclass(slots=True)
class _AnsweredUpstream:
    """The recorded upstream of one call; the requests say who answered."""

    relay: Relay
    sources: AnswerSources
    answerers: Answerers
    rounds: Rounds
    answered_by: str = ""
    last_response: RelayedResponse | None = None

    async def send_request(self, request: Request) -> RelayedResponse:
        """Send a request that declares what the sources can answer."""
        recorded_request = request
        if self.answered_by and not read_call(request).is_poll:
            marked_headers = (*request.headers, (ANSWERED_BY_HEADER, self.answered_by))
            recorded_request = replace(request, headers=marked_headers)

        self.last_response = await self.relay.send_request(
            recorded_request, with_declared_kinds(request, self.sources.declared_kinds)
        )
        self.last_response.record_head()
        self.last_response.reads_rest_when_left = True

        return self.last_response

    async def supply(self, ask: LiveAsk) -> AskAnswer | None:
        """Answer an ask."""
        if ask.via == "push":
            return None

        reply = await self.answerers.answer(self.rounds, ask)
        if self.rounds.turns:
            sources = dict.fromkeys(self.rounds.turns[-1].answered_by.values())
            self.answered_by = ", ".join(sources) or "nobody: a retry only"

        return reply


@dataclass(frozen=True, slots=True)
class _PolledCall:
    """A call that ends elsewhere, which of its questions were answered, and how."""

    call: Call
    rounds: Rounds
    answered_questions: dict[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AutoAnswerHandler:
    """Has the conversations of calls in the client's place, and records them.

    It is not transparent: what the sources can answer is declared for the client, and a call's
    response is passed on when it is whole. What nobody answers is passed on as the server asked it.
    The client polls its tasks itself; a poll that asks is answered, and repeated for the client.
    """

    relay: Relay
    sources: AnswerSources
    answerers: Answerers
    polled_calls: dict[str, _PolledCall] = field(default_factory=dict)
    """The calls that end elsewhere, by the ids with which clients poll them."""

    async def answer_request(self, request: Request, downstream: Downstream) -> None:
        """Answer one request."""
        call = read_call(request)
        polled = self.polled_calls.get(call.name) if call.is_poll else None
        conversation = self._asking_conversation(request, call, polled)
        if conversation is None:
            await self.relay.relay_exchange(request, downstream)
            return

        rounds = Rounds(self.sources) if polled is None else polled.rounds
        upstream = _AnsweredUpstream(self.relay, self.sources, self.answerers, rounds)
        try:
            await LiveServer(upstream, self.relay.shown_as).follow_conversation(
                conversation, upstream.supply
            )
        except (UpstreamError, BodyTooLargeError) as error:
            await self.relay.answer_unreachable(request, downstream, str(error))
            return

        exchange = _last_exchange(conversation)
        last_response = upstream.last_response
        if last_response is None or exchange is None or exchange.response is None:
            downstream.break_off()
            return

        if exchange.ends_elsewhere and exchange.created_task_id is not None:
            self.polled_calls[exchange.created_task_id] = _PolledCall(call, rounds)

        headers = without_header(last_response.client_headers, "content-length")
        response = with_id_of(call, exchange).response or exchange.response
        status = last_response.status
        await downstream.send_response(status, headers, response.body)

    def _asking_conversation(
        self, request: Request, call: Call, polled: _PolledCall | None
    ) -> Conversation | None:
        """Return the conversation of a call that may ask, or None."""
        if not is_modern(call):
            return None

        session = ServerSession(Recorder(ExchangeSealer(seals_states=False)))
        if polled is not None:
            turns = len(polled.rounds.turns)
            return AnsweredPoll(
                request, session, polled.call, polled.answered_questions, turns
            )

        if method_of(call.method).asks and call.answers is None:
            script = LeavesToSources()
            return Conversation(request, script, session, follows_to_end=False)

        return None


def _last_exchange(conversation: Conversation) -> RecordedExchange | None:
    """Return the exchange with which a conversation ended, or None."""
    if isinstance(conversation.stopping_point, NeedsAnswers):
        return conversation.stopping_point.ask.exchange
    if isinstance(conversation.stopping_point, FinishedCall):
        return conversation.stopping_point.exchange
    return None
