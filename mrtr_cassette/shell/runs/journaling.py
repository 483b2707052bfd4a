"""A recording under way: its journal, and what it came to so far."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from mrtr_cassette.core.cassette.journal import (
    JournalHeader,
    decode_journal,
    encode_journal_line,
)
from mrtr_cassette.core.cassette.recorded import Cassette, RecordedExchange, Transport
from mrtr_cassette.core.cassette.sessions import LiveStreams, lacks_end
from mrtr_cassette.core.cassette.transports import TRANSPORTS
from mrtr_cassette.core.protocol.tasks import TaskState, polled_state
from mrtr_cassette.core.record.linking import LiveAsks
from mrtr_cassette.core.record.publish_check import Outcomes
from mrtr_cassette.core.record.recorder import DueExchange, Observation, Recorder
from mrtr_cassette.core.record.sealing import ExchangeSealer, UnreadBody
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.report.events import (
    failure_log_line,
    other_server_log_line,
    push_log_line,
    request_event,
    response_log_line,
    unread_log_line,
)
from mrtr_cassette.core.report.runs import RecordingReport
from mrtr_cassette.core.secrets.credentials import Credentials, UserSettings
from mrtr_cassette.core.secrets.redact import Redactor, keyed_hash
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.secrets.values import Values, values_of
from mrtr_cassette.core.wire.http import End, Headers, Request
from mrtr_cassette.errors import (
    CassetteError,
    MrtrCassetteError,
    UsageError,
    internal_error,
)
from mrtr_cassette.options import RecordOptions
from mrtr_cassette.shell.files.cassettes import (
    cassette_exists,
    check_replaceable,
    load_cassette,
)
from mrtr_cassette.shell.files.disk import CLOCK, system_reason
from mrtr_cassette.shell.files.journals import (
    Journal,
    Publication,
    publish_journal,
    recorded_so_far,
)
from mrtr_cassette.shell.files.log import Announcer
from mrtr_cassette.shell.files.stores import Location
from mrtr_cassette.shell.runs.proxy_runs import ProxyRun, miss_terms
from mrtr_cassette.terms import Terms


@dataclass(slots=True, eq=False)
class Publishing:
    """Whether a journal becomes a cassette, and the cassette that it became."""

    is_wanted: bool = True
    """It becomes one unless there is an objection."""

    ignores_objections: bool = False
    """It is published even if it has only errors, or the recorded command has failed."""

    outcomes: Outcomes = field(default_factory=Outcomes)
    failure: str | None = None
    """How the command that was recorded failed."""

    is_server_started: bool = False
    """We have started the server, and chosen its path."""

    published: Publication | None = None
    """The published cassette; None where there is none."""

    def note_exchange(self, exchange: RecordedExchange) -> None:
        """Take note of an exchange that was written."""
        if not self.outcomes.has_success:
            self.outcomes.note_outcome(exchange)

    def objection(self, terms: Terms) -> str | None:
        """Return why exchanges are not published as a cassette."""
        if self.ignores_objections:
            return None
        return self.outcomes.why_not_publish(
            self.failure, terms, is_started=self.is_server_started
        )


@dataclass(slots=True)
class ExchangeCounts:
    """How many exchanges are in a journal."""

    written: int = 0
    unread: int = 0
    """How many of them have a body that could not be read."""

    incomplete: int = 0
    """How many of them have no whole response."""


class BackgroundWork:
    """Work that a recording waits for before it ends."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Do some work in the background."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @asynccontextmanager
    async def finished_at_end(self) -> AsyncIterator[None]:
        """Wait, when the block ends, for the work under way."""
        try:
            yield
        finally:
            while self._tasks:
                await asyncio.wait(self._tasks)


class SaidOnce:
    """What a recording has said, and does not say again."""

    def __init__(self) -> None:
        self._digests_by_task: dict[str, str] = {}
        """The digest of the latest state of each task, by its id."""
        self._unread_bodies: set[UnreadBody] = set()

    def is_new_state(self, state: TaskState) -> bool:
        """Tell whether a task's state is another one than was said of it last."""
        if self._digests_by_task.get(state.id) == state.digest:
            return False

        self._digests_by_task[state.id] = state.digest
        return True

    def is_new_body(self, body: UnreadBody) -> bool:
        """Tell whether nothing was said so far of a body that could not be read."""
        if body in self._unread_bodies:
            return False

        self._unread_bodies.add(body)
        return True


@dataclass(slots=True, eq=False, kw_only=True)
class RecordingRun(ProxyRun):
    """A recording under way, and what it came to; a failure of it never breaks what passes."""

    recorder: Recorder
    journal: Journal
    announcer: Announcer = field(default_factory=Announcer)
    said_once: SaidOnce = field(default_factory=SaidOnce)
    publishing: Publishing = field(default_factory=Publishing)
    counts: ExchangeCounts = field(default_factory=ExchangeCounts)
    background_work: BackgroundWork = field(default_factory=BackgroundWork)
    live_asks: LiveAsks = field(default_factory=LiveAsks)
    """The questions without a state that the upstream has asked."""

    live_streams: LiveStreams = field(default_factory=LiveStreams)
    """The streams that the upstream has begun while a cassette is played."""

    server_settings: UserSettings = field(default_factory=UserSettings)
    """The credentials that the server is given."""

    _began_at: float = field(default_factory=CLOCK.now)

    is_recording = True

    @property
    def report(self) -> RecordingReport:
        """The results so far."""
        published = self.publishing.published
        publication = published or Publication(0)
        return RecordingReport(
            cassette=str(self.path),
            interactions=None if published is None else publication.interactions,
            kept=publication.kept,
            is_same=publication.is_same,
            redacted=publication.redacted,
            exchanges=self.counts.written,
            played=None if self.player is None else self.player.tally.reply_count,
            unrecorded=len(self.unrecorded),
            objection=self.objection,
            elsewhere=tuple(self.elsewhere),
            unread=self.counts.unread,
            incomplete=self.counts.incomplete,
        )

    @property
    def exchange_count(self) -> int:
        """How many exchanges have been recorded."""
        return self.counts.written

    @property
    def is_unused(self) -> bool:
        """Whether no client has sent a request."""
        played_count = self.player is not None and self.player.tally.reply_count
        unserved_count = self.unreachable_count + len(self.unrecorded)
        return not (self.counts.written or played_count or unserved_count)

    @property
    def objection(self) -> str | None:
        """Why it is not published as a cassette."""
        if not self.counts.written:
            return None
        return self.publishing.objection(self.terms)

    def cassette_so_far(self) -> Cassette | None:
        """Return the cassette as it is by now."""
        if self.publishing.published is not None:
            return load_cassette(self.path)

        # Another thread may ask, while this one writes the journal.
        without_repeated_secrets = self.recorder.sealer.without_repeated_secrets
        cassette = recorded_so_far(self.path, without_repeated_secrets)
        return cassette or self.played_cassette

    def now_ms(self) -> float:
        """Return the milliseconds since the recording began."""
        return (CLOCK.now() - self._began_at) * 1000

    def write_exchange(
        self, due: DueExchange, observation: Observation
    ) -> RecordedExchange:
        """Seal what is due of an exchange, and write it to the journal."""
        exchange, ask, unread_bodies = self.recorder.sealer.seal(due.exchange, due.call)
        if ask is not None and observation.ask is None:
            self.live_asks.add_ask(observation.call, ask)
        if self.player is not None:
            self.live_streams.add_events(exchange.response)

        observation.ask = ask
        if observation.is_left_out:
            self.recorder.leave_out(exchange, observation.call)
            return exchange

        if unread_bodies and not due.continues_written:
            self.counts.unread += 1

        for body in unread_bodies:
            if self.said_once.is_new_body(body):
                self.announcer.say(unread_log_line, observation, body, self.terms)

        self.journal.append(
            encode_journal_line(exchange, continues=due.continues_written)
        )
        if not due.continues_written:
            self.publishing.note_exchange(exchange)

        return exchange

    def _replace_repeated_secrets(self) -> None:
        """Write those exchanges anew that have a secret which was found after them."""
        # Publishing tells what is wrong with a journal.
        with suppress(CassetteError, OSError):
            journal = self.journal.path.read_bytes()
            if not self.recorder.sealer.may_repeat_secrets(journal):
                return

            content = decode_journal(journal, str(self.journal.path))
            for exchange in content.exchanges.values():
                changed_exchange = self.recorder.sealer.without_repeated_secrets(
                    exchange
                )
                if changed_exchange != exchange:
                    self.journal.append(encode_journal_line(changed_exchange))

    def end(self) -> None:
        """Publish the journal unless there is an objection."""
        try:
            self._replace_repeated_secrets()
            if self.publishing.is_wanted and self.objection is None:
                self.journal.check_in_place()
                self.publishing.published, left_out = publish_journal(self.path)
                self.problem = left_out or self.problem
        finally:
            # While it is open it is locked, and nobody takes it for a killed recorder's.
            self.journal.close()

    def report_failure(self, error: Exception) -> None:
        """Say, once, that the recording is incomplete; what passes goes on."""
        if self.problem is not None:
            return

        if isinstance(error, MrtrCassetteError):
            self.problem = error.in_terms(self.terms)
        elif isinstance(error, OSError):
            self.problem = f"{self.path}: {system_reason(error)}"
        else:
            self.problem = internal_error(error)

        self.announcer.say(failure_log_line, self.problem)


class ExchangeRecording:
    """Records one exchange while it is relayed.

    Bytes may be passed on when the method that takes them has returned: the journal has what is due
    by then. After a failure, which is said once, nothing more of the exchange is recorded.
    """

    def __init__(self, recording_run: RecordingRun, request: Request) -> None:
        """Show the recorder a request; a failure is said, and not raised."""
        self.recording_run = recording_run
        self.observation: Observation | None = None
        self._sealed_exchange: RecordedExchange | None = None
        try:
            self.observation = recording_run.recorder.request_received(
                request, recording_run.now_ms()
            )
            recording_run.announcer.tell(request_event, self.observation)
        except Exception as error:  # noqa: BLE001  the recorder is a spectator
            self._stop_recording(error)

    def leave_unrecorded(self) -> None:
        """Record nothing of this exchange."""
        self.observation = None

    def response_started(self, status: int, headers: Headers) -> None:
        """Show the response's head."""
        self._show_observation(Observation.response_started, status, headers)

    def response_bytes(self, chunk: bytes) -> None:
        """Show bytes that will be passed on."""
        self._show_observation(Observation.response_bytes, chunk)

    def response_ended(self, end: End) -> None:
        """Show the end."""
        observation = self.observation
        if observation is None:
            return

        now_ms = self.recording_run.now_ms()
        try:
            self._write_due_exchange(
                observation, observation.response_ended(now_ms, end)
            )
            if observation.is_left_out:
                return

            self.recording_run.counts.written += 1
            exchange = self._sealed_exchange
            if exchange is None:
                return

            if lacks_end(observation.call, exchange.response):
                self.recording_run.counts.incomplete += 1

            self._report_exchange(observation, exchange, end, now_ms)
        except Exception as error:  # noqa: BLE001
            self._stop_recording(error)

    def note_sent_elsewhere(self, how: str, origin: str) -> None:
        """Say that the response sends its client to another server, once for each."""
        elsewhere = self.recording_run.elsewhere
        place = f"{how} {origin}"
        if self.observation is not None and place not in elsewhere:
            self.recording_run.announcer.say(
                other_server_log_line, self.observation, place
            )

        elsewhere[place] = None

    def _show_observation(
        self, take: Callable[..., DueExchange | None], *args: Any
    ) -> None:
        """Show the observation something, and write what is due."""
        observation = self.observation
        if observation is None:
            return

        now_ms = self.recording_run.now_ms()
        try:
            self._write_due_exchange(observation, take(observation, *args, now_ms))
        except Exception as error:  # noqa: BLE001
            self._stop_recording(error)

    def _write_due_exchange(
        self, observation: Observation, due: DueExchange | None
    ) -> None:
        """Write an exchange that is due to the journal, and say which questions were pushed."""
        if due is not None:
            self._sealed_exchange = self.recording_run.write_exchange(due, observation)

        for push in observation.take_pushes():
            self.recording_run.announcer.say(push_log_line, observation, push)

    def _report_exchange(
        self,
        observation: Observation,
        exchange: RecordedExchange,
        end: End,
        now_ms: float,
    ) -> None:
        """Say what came; a poll of a task has a line only if the state is another one."""
        announcer = self.recording_run.announcer
        said_once = self.recording_run.said_once
        new_task_state = None
        if observation.call.is_poll:
            new_task_state = polled_state(observation.response)

        if new_task_state is not None and not said_once.is_new_state(new_task_state):
            announcer = replace(announcer, log=None)
            new_task_state = None

        announcer.say(
            response_log_line, observation, exchange, end, now_ms, new_task_state
        )

    def _stop_recording(self, error: Exception) -> None:
        """Record no more of this exchange, and say why the recording is incomplete."""
        self.observation = None
        self.recording_run.report_failure(error)


def check_output(output: Location, options: RecordOptions) -> Cassette | None:
    """Make sure that the cassette can be written; return the one to add to, or None.

    Raises:
        CassetteError: there is a cassette, which is to be kept.
        UsageError: the cassette to add to hides other things than this recording would.
    """
    check_replaceable(output)
    if not cassette_exists(output) or options.existing == "replace":
        return None

    if options.existing == "keep":
        hint = "use <<replace>> to replace it or <<append>> to add to it"
        raise CassetteError(output, "the cassette exists", hint=hint)

    earlier = load_cassette(output)
    if earlier.request_state != options.request_state:
        problem = (
            f"{output} has its request states {earlier.request_state}, and this recording would "
            f"have them {options.request_state}"
        )
        hint = "choose another <<cassette>>, or <<request_state>> as it was recorded"
        raise UsageError(problem, hint=hint)

    if earlier.seals_answers != options.seal_answers:
        words = {True: "sealed", False: "readable"}
        problem = (
            f"{output} has its answers {words[earlier.seals_answers]}, and this recording would "
            f"have them {words[options.seal_answers]}"
        )
        hint = "choose another <<cassette>>, or <<seal_answers>> as it was recorded"
        raise UsageError(problem, hint=hint)

    values_of(earlier.values, options.texts, output, needs_all=True)
    return earlier


def check_transport(earlier: Cassette, shown_place: str, transport: Transport) -> None:
    """Make sure that a recording over a transport can be added to a cassette.

    Raises:
        UsageError: the cassette was recorded over the other one.
    """
    if earlier.transport == transport:
        return

    earlier_words = TRANSPORTS[earlier.transport]
    new = TRANSPORTS[transport]
    problem = (
        f"{shown_place} was recorded over {earlier_words}, and this recording would be over "
        f"{new}"
    )
    hint = "choose another <<cassette>>, or record all of it again with <<replace>>"
    raise UsageError(problem, hint=hint)


def combined_rules(earlier: Cassette | None, rules: RedactionRules) -> RedactionRules:
    """Return the redaction rules of a cassette, and those of what is added to it."""
    if earlier is None or earlier.redaction is None:
        return rules

    earlier_rules = earlier.redaction
    return RedactionRules(
        patterns=tuple(dict.fromkeys((*earlier_rules.patterns, *rules.patterns))),
        keys=tuple(dict.fromkeys((*earlier_rules.keys, *rules.keys))),
        disabled=tuple(
            name for name in earlier_rules.disabled if name in rules.disabled
        ),
    )


def with_rules_of_cassette(cassette: Cassette, options: RecordOptions) -> RecordOptions:
    """Return options by which a recording keeps and hides what a cassette keeps and hides."""
    rules = combined_rules(cassette, options.redaction)
    return replace(
        options,
        redact=rules.patterns,
        redact_keys=rules.keys,
        no_redact=rules.disabled,
        request_state=cassette.request_state,
        seal_answers=cassette.seals_answers,
        match_headers=sorted({*options.match_headers, *cassette.kept_headers}),
    )


class RecordedServer(NamedTuple):
    """What a cassette says of its server.

    Attributes:
        client: hash of the client, where it has started this process.
        command: starts the server at a URL, where we did that.
    """

    upstream: str
    transport: Transport = "http"
    client: str | None = None
    command: str | None = None

    def with_sealed_commands(self, values: Values) -> RecordedServer:
        """Return the same with references in commands; a URL has none."""
        sealed_server = self
        if self.transport == "stdio":
            sealed_server = sealed_server._replace(
                upstream=values.sealed_text(self.upstream)
            )

        if self.command is not None:
            sealed_server = sealed_server._replace(
                command=values.sealed_text(self.command)
            )

        return sealed_server


def _ignored_by_call(options: RecordOptions) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the calls and pointers that don't count, if the recording replaces a cassette."""
    ignores_something = options.ignore or options.ignore_from or options.masks
    if options.existing != "replace" or not ignores_something:
        return ()

    # A client that waits for its server doesn't wait for the import.
    from mrtr_cassette.shell.files.ignored import read_rules

    rules = read_rules(options.ignore, options.ignore_from, options.masks)
    return tuple([(rule.call, rule.pointers) for rule in rules])


def _new_recorder(options: RecordOptions) -> Recorder:
    """Return a recorder with these options, which hashes secrets with a new key."""
    redactor = Redactor(options.redaction, keyed_hash(secrets.token_bytes(32)))
    sealer = ExchangeSealer(
        seals_states=options.request_state == "sealed",
        redactor=redactor,
        credentials=Credentials(redactor),
        seals_answers=options.seal_answers,
        values=Values((), options.texts),
        kept_headers=options.kept_headers,
    )
    sealer.add_settings(UserSettings(secrets=options.secrets))

    return Recorder(
        sealer, before_record=options.record_hook, largest_body=options.max_body
    )


@contextmanager
def journaling(
    output: Location,
    options: RecordOptions,
    announcer: Announcer,
    earlier: Cassette | None,
    player: Player | None,
    server: RecordedServer,
) -> Iterator[RecordingRun]:
    """Write a journal until the block ends; then it becomes the cassette, or stays.

    Args:
        earlier: the cassette that is added to, which `player` plays.

    Raises:
        CassetteError: the journal can't be written, or the cassette not be published.
    """
    options.check_secrets()
    if earlier is not None:
        options = with_rules_of_cassette(earlier, options)

    ignored = _ignored_by_call(options)
    now = datetime.now(UTC)
    recorder = _new_recorder(options)
    header = JournalHeader(
        **server.with_sealed_commands(recorder.sealer.values)._asdict(),
        request_state=options.request_state,
        recorded_at=now.isoformat(timespec="seconds"),
        existing=options.existing,
        redaction=options.redaction,
        answers="sealed" if options.seal_answers else None,
        recorder=secrets.token_hex(16),
        wall_ms=now.timestamp() * 1000,
        ignored=ignored,
        values=recorder.sealer.values.names,
    )

    journal = Journal(output, header)
    recording_run = RecordingRun(
        server.upstream,
        server.upstream,
        output,
        earlier,
        player,
        miss_terms(options),
        recorder=recorder,
        journal=journal,
        announcer=announcer,
        publishing=Publishing(ignores_objections=options.publish_anyway),
    )
    try:
        yield recording_run
    finally:
        recording_run.end()
