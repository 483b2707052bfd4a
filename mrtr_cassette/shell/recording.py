"""Recording: relays between a client and the upstream, and writes down what passes.

Owns: one upstream request for each client request, passing bytes on as they arrive, and the
journal and the cassette of a run.
Does not own: what the bytes mean (`core.recorder`).
Rule: relay first. A failure of the recording never breaks the client's call.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import re
import secrets
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

from aiohttp import hdrs, web
from yarl import URL

from mrtr_cassette.core.drive.leading import Lead, Leads, NotLed
from mrtr_cassette.core.exchange.recorded import RecordedExchange, RequestState
from mrtr_cassette.core.format.journal import Existing, JournalHeader, encode_line
from mrtr_cassette.core.format.model import CassetteModel
from mrtr_cassette.core.protocol.calls import Call
from mrtr_cassette.core.protocol.dialect import InputRequired
from mrtr_cassette.core.record.recorder import Observation, Recorder
from mrtr_cassette.core.replay.player import Player, Repeat
from mrtr_cassette.core.report.events import (
    exchange_line,
    lead_event,
    lead_line,
    not_led_event,
    request_event,
    response_event,
    unread_coding_line,
)
from mrtr_cassette.core.report.rpc_errors import upstream_error_body
from mrtr_cassette.core.report.unrecorded import report_of_unrecorded
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.wire.http import End, Headers, Request
from mrtr_cassette.core.wire.jsonbytes import MemberPath
from mrtr_cassette.errors import (
    BodyTooLargeError,
    UpstreamError,
    UsageError,
)
from mrtr_cassette.shell import files
from mrtr_cassette.shell.appending import Appender
from mrtr_cassette.shell.http_client import Client, RawHeaders, UpstreamResponse, connecting
from mrtr_cassette.shell.http_server import (
    LOOPBACK,
    Access,
    Handler,
    Response,
    break_off,
    end_to_end,
    header_text,
    render_head,
    serving,
)
from mrtr_cassette.shell.publishing import publish_journal, read_earlier
from mrtr_cassette.shell.replaying import Log, OnEvent, ReplayServer

BUILT_IN = RedactionRules()
"""The rules of redaction as they come."""

_OWN_BY_US = frozenset({"host", "expect"})
"""Request headers of one connection for which `end_to_end` has no rule."""


@dataclass(slots=True)
class RecordSession:
    """A recording under way, and what it came to.

    Attributes:
        url: what the client connects to.
        path: the cassette that will be published.
        exchanges: how many exchanges are in the journal.
        unreachable: how many requests the upstream did not answer.
        not_led: retries that a live server could not be led to, in order; nothing was recorded.
        earlier: the cassette that is added to; None where there was none.
        player: what plays it.
        problem: why the recording is not whole, or None.
        published: the cassette, once it is; None where there was nothing to publish.
    """

    url: str
    path: Path
    exchanges: int = 0
    unreachable: int = 0
    not_led: list[NotLed] = field(default_factory=list)
    earlier: CassetteModel | None = None
    player: Player | None = None
    problem: str | None = None
    published: CassetteModel | None = None

    @property
    def played(self) -> int:
        """How many requests got their response from the cassette that is added to."""
        return 0 if self.player is None else self.player.plays


def upstream_url(text: str) -> URL:
    """Return the URL of an upstream.

    Raises:
        UsageError: it is none, or no HTTP URL.
    """
    try:
        url = URL(text)
        port = url.port
    except ValueError as error:
        raise UsageError(f"the upstream {text!r} is no URL: {error}") from None
    if (
        re.search(r"\s", text)
        or url.scheme not in {"http", "https"}
        or not url.host
        or port is None
    ):
        raise UsageError(
            f"the upstream {text!r} is no HTTP URL", hint="give one like http://localhost:8000/mcp"
        )
    return url


@asynccontextmanager
async def recording(
    upstream: str,
    output: Path,
    *,
    access: Access = LOOPBACK,
    headers: Headers = (),
    request_state: RequestState = "sealed",
    existing: Existing = "keep",
    ignored: Collection[MemberPath] = (),
    repeat: Repeat = Repeat.AUTO,
    redaction: RedactionRules = BUILT_IN,
    seals_answers: bool = False,
    ca_file: Path | None = None,
    verifies: bool = True,
    syncs: bool = False,
    named: str | None = None,
    publishes: bool = True,
    log: Log | None = None,
    on_event: OnEvent | None = None,
) -> AsyncIterator[RecordSession]:
    """Record what passes until the block ends, then publish the cassette.

    With `existing="append"`, what the cassette has is played, and only what it lacks is sent to the
    upstream and recorded. Where it lacks nothing, the file stays untouched.

    Args:
        upstream: URL of the real server.
        output: the cassette.
        access: where to listen, and for whom.
        headers: added to every upstream request, in the place of the client's of that name.
        request_state: whether raw states are replaced by surrogates.
        existing: what becomes of a cassette that exists.
        ignored: members of the params that don't count in matching with what is added to.
        repeat: whether what has been played of it may be played again.
        redaction: what is changed about the built-in rules of redaction.
        seals_answers: of what users answer only hashes are kept.
        ca_file: certificates (PEM) by which a TLS upstream is verified, besides the system's.
        verifies: a TLS upstream that can't be verified is refused.
        syncs: what is written is on the medium before the client has its response.
        named: what the cassette names as its upstream, where the URL is another one on every run.
        publishes: when the block ends, the journal becomes the cassette; else it stays.
        log: takes one line for each exchange and each problem.
        on_event: takes the same and more as facts, for programs.

    Raises:
        CassetteError: the cassette can't be written, or exists.
        UsageError: the upstream is no URL, or the address can't be bound.
    """
    url = upstream_url(upstream)
    with files.without_collection():
        earlier = _check_output(
            output, existing, request_state, "sealed" if seals_answers else None
        )
    redaction = _rules_of_both(earlier, redaction)
    redactor = Redactor(redaction, _keyed_hash(secrets.token_bytes(32)))
    header = JournalHeader(
        upstream=redactor.text(named or shown_url(url)),
        request_state=request_state,
        recorded_at=datetime.now(UTC).isoformat(timespec="seconds"),
        existing=existing,
        redaction=redaction,
        answers="sealed" if seals_answers else None,
    )
    if url.user is not None:
        headers = ((hdrs.AUTHORIZATION, _basic(url.user, url.password or "")), *headers)
    session = RecordSession("", output, earlier=earlier)
    if earlier is not None:
        with files.without_collection():
            session.player = Player(earlier, str(output), ignored=ignored, repeat=repeat)
    recorder = Recorder(
        seals=request_state == "sealed",
        redactor=redactor,
        seals_answers=seals_answers,
        largest_body=access.max_body,
    )
    relay = _Relay(url.origin(), headers, recorder, session, log, on_event)
    handler: Handler = relay.handle
    if earlier is not None and session.player is not None:
        server = ReplayServer(session.player, False, log, on_event)
        appender = Appender(server, relay, Leads(earlier, session.player))
        relay.on_ask = appender.live_asks.asked
        handler = appender.handle
    is_tls = url.scheme == "https" or ca_file is not None
    tls = _tls(ca_file, verifies=verifies) if is_tls else None
    try:
        async with (
            connecting(url.origin(), tls) as relay.client,
            serving(handler, access, log, files_each=2) as address,
        ):
            session.url = address.url(url.raw_path_qs)
            if url.port == address.port and (access.is_named(url.host or "")):
                raise UsageError(f"the upstream {shown_url(url)} is this proxy itself")
            relay.journal = files.Journal(files.journal_path(output), header, syncs=syncs)
            yield session
    finally:
        if relay.journal is not None:
            relay.journal.close()
        if relay.journal is not None and publishes:
            session.published, lost = publish_journal(output)
            if lost is not None:
                session.problem = lost


def _rules_of_both(earlier: CassetteModel | None, rules: RedactionRules) -> RedactionRules:
    """Return the rules for a cassette that is added to: its own, and then those of the addition."""
    if earlier is None or earlier.redaction is None:
        return rules
    before = earlier.redaction.rules()
    return RedactionRules(
        patterns=tuple(dict.fromkeys((*before.patterns, *rules.patterns))),
        keys=tuple(dict.fromkeys((*before.keys, *rules.keys))),
        disabled=tuple(name for name in before.disabled if name in rules.disabled),
    )


def _keyed_hash(key: bytes) -> Callable[[str, str], str]:
    """Return what stands for a secret in the journal: its hash under a key that nobody keeps."""

    def token(_rule: str, secret: str) -> str:
        raw = secret.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(raw, key=key, digest_size=12).hexdigest()

    return token


def _tls(ca_file: Path | None, *, verifies: bool) -> ssl.SSLContext:
    """Return how TLS upstreams are verified, if they are."""
    try:
        context = ssl.create_default_context()
        context.set_alpn_protocols(["http/1.1"])
        if not verifies:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if ca_file is not None:
            context.load_verify_locations(ca_file)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"can't use the certificates in {ca_file}: {reason}") from None
    return context


def _basic(user: str, password: str) -> str:
    """Return the `Authorization` of a user (RFC 7617)."""
    if ":" in user:
        raise UsageError("the upstream's user has a colon, which Basic authentication can't carry")
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def _check_output(
    output: Path,
    existing: Existing,
    request_state: RequestState,
    answers: Literal["sealed"] | None,
) -> CassetteModel | None:
    """Make sure, before anything is recorded, that the cassette can be written.

    Returns:
        the cassette that is added to, or None.
    """
    files.check_writable(output)
    if not output.exists() or existing == "replace":
        return None
    if existing == "keep":
        raise files.cassette_exists(output)
    earlier = read_earlier(output)
    if earlier.request_state != request_state:
        raise UsageError(
            f"{output} has its request states {earlier.request_state}, "
            f"and this recording would have them {request_state}",
            hint="choose another --output, or the same --request-state",
        )
    if earlier.answers != answers:
        raise UsageError(
            f"{output} has its answers {earlier.answers or 'readable'}, "
            f"and this recording would have them {answers or 'readable'}",
            hint="choose another --output, or --seal-answers as it was recorded",
        )
    return earlier


def shown_url(url: URL) -> str:
    """Return a URL without its user and password."""
    return str(url.with_user(None).with_fragment(None))


@dataclass(slots=True)
class _Relay:
    """Passes requests on to one origin, and what passes to the recorder."""

    origin: URL
    headers: Headers
    recorder: Recorder
    session: RecordSession
    log: Log | None
    on_event: OnEvent | None
    started: float = field(default_factory=time.monotonic)
    warned_of: set[str] = field(default_factory=set)
    journal: files.Journal | None = None
    on_ask: Callable[[Call, InputRequired], None] = lambda _call, _ask: None
    client: Client = field(init=False)

    def now_ms(self) -> float:
        """Milliseconds since the recording began."""
        return (time.monotonic() - self.started) * 1000

    async def handle(
        self, request: web.BaseRequest, asked: Request, sent: Request | None = None
    ) -> web.StreamResponse:
        """Relay one exchange; `sent` is sent, where that is not what the client asked."""
        spectator = _Spectator(self, asked)
        try:
            upstream = await self._send(asked if sent is None else sent)
        except OSError as error:
            return self.unreachable(asked, self._no_response(_words(error)))
        except asyncio.CancelledError:
            spectator.response_ended(End.OPEN)
            raise
        try:
            return await self._relay(request, asked, upstream, spectator)
        finally:
            upstream.close()

    async def _send(self, asked: Request) -> UpstreamResponse:
        return await self.client.send(asked, _sent_headers(asked.headers, self.headers))

    async def _relay(
        self,
        request: web.BaseRequest,
        asked: Request,
        upstream: UpstreamResponse,
        spectator: _Spectator,
    ) -> web.StreamResponse:
        head = _passed_headers(upstream.headers)
        try:
            reason = upstream.reason.decode("utf-8", "surrogateescape")
            rendered = render_head(upstream.status, head, reason=reason)
        except ValueError as error:
            spectator.forget()
            return self.unreachable(asked, self._no_response(str(error)))
        response = Response(request, rendered)
        spectator.response_started(upstream.status, head)
        # What has come with the head goes on with it.
        chunk = upstream.read_now()
        if chunk:
            spectator.response_bytes(chunk)
        if upstream.is_read:
            spectator.response_ended(End.COMPLETE)
            await response.send(chunk, is_last=True)
            return response
        end = End.OPEN
        try:
            await response.send(chunk)
            while True:
                try:
                    chunk = await upstream.read()
                except OSError:
                    end = End.BROKEN
                    break
                if chunk:
                    spectator.response_bytes(chunk)
                if upstream.is_read:
                    end = End.COMPLETE
                    break
                await response.send(chunk)
        finally:
            # Before the client can know that its response is complete.
            spectator.response_ended(end)
        if end is End.BROKEN:
            break_off(request)
        else:
            await response.send(chunk, is_last=True)
        return response

    async def ask(self, observation: Observation) -> None:
        """Send a request of our own, and show its response to the observation.

        Raises:
            UpstreamError: there was no response.
            BodyTooLargeError: the response is larger than what is kept.
        """
        try:
            upstream = await self._send(observation.call.request)
            try:
                head = _passed_headers(upstream.headers)
                observation.response_started(upstream.status, head)
                while not observation.is_answered and (chunk := await upstream.read()):
                    observation.response_bytes(chunk, 0.0)
                observation.response_ended(0.0)
            finally:
                upstream.close()
        except OSError as error:
            raise UpstreamError(self._no_response(_words(error))) from None

    def led(self, lead: Lead) -> None:
        """Say that the server has been led, and look for its states from now on."""
        for live, recorded in lead.states:
            self.recorder.known.remember(recorded)
            self.recorder.known.remember(live, shown_as=recorded)
        self.say(partial(lead_event, lead), partial(lead_line, lead))

    def not_led(self, failure: NotLed) -> None:
        """Say that the server could not be led."""
        self.session.not_led.append(failure)
        redactor = self.recorder.redactor
        redacted = str if redactor is None else redactor.text
        report = report_of_unrecorded(failure, str(self.session.path), redacted)
        self.say(partial(not_led_event, failure), lambda: report.text)

    def _no_response(self, reason: str) -> str:
        return f"the upstream {shown_url(self.origin)} gave no response: {reason}"

    def unreachable(self, asked: Request, problem: str) -> web.StreamResponse:
        """Answer for an upstream that gave no response; that is no exchange to record."""
        self.session.unreachable += 1
        self.say(
            lambda: {"event": "unreachable", "problem": problem},
            lambda: (
                f"{asked.method} {self.recorder.shown_target(asked.target)}: "
                f"{problem}; not recorded"
            ),
        )
        return web.Response(
            status=502,
            body=upstream_error_body(asked, problem),
            content_type="application/json",
        )

    def say(self, event: Callable[[], dict[str, Any]], line: Callable[[], str] | None) -> None:
        """Log what somebody wants to know, in either form.

        A log that nobody reads any more must not break what passes.
        """
        with suppress(OSError):
            if self.on_event is not None:
                self.on_event(event())
            if self.log is not None and line is not None:
                self.log(line())

    def warn(self, coding: str) -> None:
        """Say, once for each coding, that responses under it can't be read."""
        if coding and coding not in self.warned_of:
            self.warned_of.add(coding)
            self.say(
                lambda: {"event": "unread-coding", "coding": coding},
                lambda: unread_coding_line(coding),
            )

    def write_down(self, exchange: RecordedExchange) -> None:
        """Append an exchange to the journal.

        Raises:
            OSError: it could not be written.
        """
        if self.journal is not None:
            self.journal.append(encode_line(exchange))

    def fail(self, problem: str) -> None:
        """Say, once, that the recording is not whole; what passes goes on."""
        if self.session.problem is None:
            self.session.problem = problem
            self.say(
                lambda: {"event": "failed", "problem": problem},
                lambda: f"RECORDING FAILED: {problem}; the traffic goes on",
            )


class _Guard:
    """Hands whatever error its block raises to a function: the recorder is a spectator."""

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self._failed = failed

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> bool:
        if isinstance(error, Exception):
            self._failed(error)
            return True
        return False


class _Spectator:
    """Shows one exchange to the recorder, and keeps the recorder's failures from the relay."""

    def __init__(self, relay: _Relay, asked: Request) -> None:
        """Begin with the request."""
        self._relay = relay
        self._observation: Observation | None = None
        self._is_written = False
        self._is_stale = False
        with self._guard():
            self._observation = relay.recorder.request_received(asked, relay.now_ms())
            relay.say(partial(request_event, self._observation), None)

    def _guard(self) -> _Guard:
        return _Guard(self._failed)

    def _failed(self, error: Exception) -> None:
        self._observation = None
        if isinstance(error, BodyTooLargeError):
            problem = str(error)
        elif isinstance(error, OSError):
            problem = f"{self._relay.session.path}: {error.strerror or error}".lower()
        else:
            problem = f"INTERNAL ERROR, please report it: {error!r}"
        self._relay.fail(problem)

    def forget(self) -> None:
        """Keep nothing of this exchange, because none came about."""
        self._observation = None

    def response_started(self, status: int, headers: Headers) -> None:
        """Show the response's head."""
        if self._observation is not None:
            with self._guard():
                self._observation.response_started(status, headers)
                self._relay.warn(self._observation.unread_coding)

    def response_bytes(self, chunk: bytes) -> None:
        """Show bytes that will be passed on, and write the exchange down if they complete it."""
        observation = self._observation
        if observation is not None:
            with self._guard():
                observation.response_bytes(chunk, self._relay.now_ms())
                self._is_stale = True
                if observation.is_answered and not self._is_written:
                    self._write(observation, End.COMPLETE)

    def response_ended(self, end: End) -> None:
        """Show the end, and write the exchange down as it is now."""
        observation = self._observation
        if observation is None:
            return
        with self._guard():
            had_more = observation.response_ended(self._relay.now_ms())
            if had_more or self._is_stale or not self._is_written:
                self._write(observation, end)
            self._relay.session.exchanges += 1
            now = self._relay.now_ms()
            self._relay.say(
                partial(response_event, observation, end, now),
                partial(exchange_line, observation, now),
            )

    def _write(self, observation: Observation, end: End) -> None:
        exchange = observation.exchange(end, self._relay.now_ms())
        if observation.ask is not None and not self._is_written:
            self._relay.on_ask(observation.call, observation.ask)
        self._relay.write_down(exchange)
        self._is_written = True
        self._is_stale = False


# What comes again, call after call, is worked out once.


@lru_cache(maxsize=1024)
def _sent_headers(asked: Headers, added: Headers) -> Headers:
    """Return a client's headers as they go upstream, with those that the user added."""
    left_out = _OWN_BY_US | {name.lower() for name, _ in added}
    kept = [pair for pair in end_to_end(asked) if pair[0].lower() not in left_out]
    return (*kept, *added)


@lru_cache(maxsize=1024)
def _passed_headers(raw: RawHeaders) -> Headers:
    """Return an upstream's headers as they go to the client."""
    return end_to_end((header_text(name), header_text(value)) for name, value in raw)


def _words(error: OSError) -> str:
    """Return what went wrong, in the system's words where it has some."""
    # Those two have numbers of their own.
    is_system = not isinstance(error, (socket.gaierror, ssl.SSLError))
    text = os.strerror(error.errno) if is_system and error.errno else error.strerror or str(error)
    return text.lower() or type(error).__name__
