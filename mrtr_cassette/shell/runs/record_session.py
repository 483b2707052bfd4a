"""Write relayed exchanges to the journal, and publish the journal as a cassette."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from mrtr_cassette.core.cassette.journal import JournalHeader, encode_line
from mrtr_cassette.core.cassette.recorded import Cassette, RecordedExchange, Transport
from mrtr_cassette.core.drive.appending import LiveAsks
from mrtr_cassette.core.protocol.methods import GET_TASK
from mrtr_cassette.core.protocol.tasks import polled_state
from mrtr_cassette.core.record.recorder import Due, Observation, Recorder
from mrtr_cassette.core.record.sealing import Unread
from mrtr_cassette.core.report.events import (
    failed_said,
    pushed_said,
    request_event,
    response_said,
    unreachable_said,
    unread_said,
)
from mrtr_cassette.core.secrets.credentials import Credentials
from mrtr_cassette.core.secrets.redact import Redactor, keyed_hash
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.wire.http import End, Headers, Request
from mrtr_cassette.errors import CassetteError, MrtrCassetteError, UsageError, internal_error
from mrtr_cassette.options import RecordOptions
from mrtr_cassette.shell.files import cassettes
from mrtr_cassette.shell.files.cassettes import publish_journal
from mrtr_cassette.shell.files.log import Announcer, Clock
from mrtr_cassette.shell.files.stores import Location
from mrtr_cassette.shell.runs.sessions import RecordSession


@dataclass(slots=True, eq=False)
class Watcher:
    """Records all exchanges of one recording; a failure of it never breaks the relay."""

    recorder: Recorder
    journal: cassettes.Journal
    session: RecordSession
    announcer: Announcer
    clock: Clock
    started: float
    """When the recording began, by that clock."""
    live_asks: LiveAsks = field(default_factory=LiveAsks)
    """The questions without a state that the upstream has asked."""
    told_states: dict[str, str] = field(default_factory=dict)
    """The digest of the latest state of each task, by its id."""
    is_told: bool = field(init=False)
    """Somebody wants to know what happens."""
    _under_way: set[asyncio.Task[None]] = field(default_factory=set)
    _warned_of: set[Unread] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Look once who wants to know: exchanges are many."""
        self.is_told = self.announcer.log is not None or bool(self.announcer.listeners)

    def go_on(self, work: Coroutine[Any, Any, None]) -> None:
        """Do some work that must be done before the recording ends, and not before."""
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    @asynccontextmanager
    async def finishing(self) -> AsyncIterator[None]:
        """Wait, when the block ends, for the work under way."""
        try:
            yield
        finally:
            while self._under_way:
                await asyncio.wait(self._under_way)

    def unreachable(self, request: Request, problem: str) -> None:
        """Count a request without a response, which is no exchange to record."""
        self.session.unreachable += 1
        shown = f"{request.method} {self.recorder.shown(request.target, is_target=True)}"
        self.announcer.say(unreachable_said, shown, problem)

    def warn_of(self, observation: Observation, unread: Unread) -> None:
        """Say, once for each reason, that a body can't be read."""
        if unread not in self._warned_of:
            self._warned_of.add(unread)
            self.announcer.say(unread_said, observation, unread, self.announcer.terms)

    def failed(self, error: Exception) -> None:
        """Say, once, that the recording is not whole; what passes goes on."""
        if self.session.problem is not None:
            return
        if isinstance(error, MrtrCassetteError):
            problem = error.in_terms(self.announcer.terms)
        elif isinstance(error, OSError):
            problem = f"{self.session.path}: {error.strerror or error}".lower()
        else:
            problem = internal_error(error)
        self.session.problem = problem
        self.announcer.say(failed_said, problem)


class ExchangeRecording:
    """Records one exchange while it is relayed.

    Bytes may be passed on when the method that takes them has returned: the journal has what is due
    by then. After a failure, which is said once, nothing more of the exchange is recorded.
    """

    def __init__(self, watcher: Watcher, request: Request) -> None:
        self.watcher = watcher
        self.observation: Observation | None = None
        self._sealed: RecordedExchange | None = None
        try:
            now_ms = (watcher.clock.now() - watcher.started) * 1000
            self.observation = watcher.recorder.request_received(request, now_ms)
            if watcher.is_told:
                watcher.announcer.tell(request_event, self.observation)
        except Exception as error:  # noqa: BLE001  the recorder is a spectator
            self._failed(error)

    def forget(self) -> None:
        """Record nothing of this exchange."""
        self.observation = None

    def response_started(self, status: int, headers: Headers) -> None:
        """Show the response's head."""
        self._show(Observation.response_started, status, headers)

    def response_bytes(self, chunk: bytes) -> None:
        """Show bytes that will be passed on."""
        self._show(Observation.response_bytes, chunk)

    def response_ended(self, end: End) -> None:
        """Show the end."""
        self._show(Observation.response_ended, end=end)

    def _show(self, take: Callable[..., Due | None], *args: Any, end: End | None = None) -> None:
        """Show the observation something, and write what is due."""
        observation, watcher = self.observation, self.watcher
        if observation is None:
            return
        now_ms = (watcher.clock.now() - watcher.started) * 1000
        try:
            if end is None:
                due = take(observation, *args, now_ms)
            else:
                due = take(observation, now_ms, end)
            if due is not None:
                self._write(due, observation)
            for push in observation.take_pushed() if observation.pushed else ():
                watcher.announcer.say(pushed_said, observation, push)
            if end is not None:
                watcher.session.exchanges += 1
                if watcher.is_told and self._sealed is not None:
                    self._tell(observation, self._sealed, end, now_ms)
        except Exception as error:  # noqa: BLE001
            self._failed(error)

    def _tell(
        self, observation: Observation, exchange: RecordedExchange, end: End, now_ms: float
    ) -> None:
        """Say what came; a poll of a task has a line only where the state is another one."""
        watcher = self.watcher
        announcer, told = watcher.announcer, watcher.told_states
        is_poll = observation.call.method == GET_TASK
        state = polled_state(observation.response) if is_poll else None
        if state is not None and told.get(state.id) == state.digest:
            state, announcer = None, replace(announcer, log=None)
        elif state is not None:
            told[state.id] = state.digest
        announcer.say(response_said, observation, exchange, end, now_ms, state)

    def _failed(self, error: Exception) -> None:
        self.observation = None
        self.watcher.failed(error)

    def _write(self, due: Due, observation: Observation) -> None:
        watcher = self.watcher
        exchange, ask, unread = watcher.recorder.seal(due.exchange, due.call)
        if ask is not None and observation.ask is None:
            watcher.live_asks.asked(observation.call, ask)
        observation.ask = ask
        self._sealed = exchange
        for each in unread:
            watcher.warn_of(observation, each)
        watcher.journal.append(encode_line(exchange, continues=due.continues))
        if not due.continues and not watcher.session.outcomes.has_success:
            watcher.session.outcomes.add(exchange)


def check_output(output: Location, options: RecordOptions) -> Cassette | None:
    """Make sure that the cassette can be written; return the one to add to, or None."""
    cassettes.check_replaceable(output)
    if not cassettes.exists(output) or options.existing == "replace":
        return None
    if options.existing == "keep":
        hint = "use <<replace>> to replace it or <<append>> to add to it"
        raise CassetteError(output, "the cassette exists", hint=hint)
    earlier = cassettes.load_cassette(output)
    kept, states = {True: "sealed", False: "readable"}, options.request_state
    answers, before = kept[options.seal_answers], kept[earlier.seals_answers]
    if earlier.request_state != states:
        raise _kept_otherwise(output, "request states", earlier.request_state, states)
    if before != answers:
        raise _kept_otherwise(output, "answers", before, answers)
    return earlier


def _kept_otherwise(output: Location, what: str, before: str, now: str) -> UsageError:
    option = {"answers": "<<seal_answers>>"}.get(what, "<<request_state>>")
    return UsageError(
        f"{output} has its {what} {before}, and this recording would have them {now}",
        hint=f"choose another <<cassette>>, or {option} as it was recorded",
    )


def rules_of_both(earlier: Cassette | None, rules: RedactionRules) -> RedactionRules:
    """Return the redaction rules of a cassette, and those of what is added to it."""
    if earlier is None or earlier.redaction is None:
        return rules
    before = earlier.redaction
    return RedactionRules(
        patterns=tuple(dict.fromkeys((*before.patterns, *rules.patterns))),
        keys=tuple(dict.fromkeys((*before.keys, *rules.keys))),
        disabled=tuple(name for name in before.disabled if name in rules.disabled),
    )


def kept_as_in(cassette: Cassette, options: RecordOptions) -> RecordOptions:
    """Return options by which a recording keeps and hides what a cassette keeps and hides."""
    rules = rules_of_both(cassette, options.redaction)
    return replace(
        options,
        redact=rules.patterns,
        redact_keys=rules.keys,
        no_redact=rules.disabled,
        request_state=cassette.request_state,
        seal_answers=cassette.seals_answers,
    )


@contextmanager
def journaling(
    session: RecordSession,
    options: RecordOptions,
    announcer: Announcer,
    clock: Clock,
    *,
    upstream: str,
    transport: Transport = "http",
    client: str | None = None,
    publishes: bool = True,
) -> Iterator[Watcher]:
    """Write a journal until the block ends, and then the cassette.

    Then the journal becomes the cassette, unless something speaks against it; without `publishes`
    it stays.

    Args:
        upstream: names the server in the cassette.
        client: hash of the client, where it has started this process.

    Raises:
        CassetteError: the journal can't be written, or the cassette not be published.
    """
    now, rules = datetime.now(UTC), rules_of_both(session.base, options.redaction)
    header = JournalHeader(
        upstream=upstream,
        request_state=options.request_state,
        recorded_at=now.isoformat(timespec="seconds"),
        existing=options.existing,
        redaction=rules,
        answers="sealed" if options.seal_answers else None,
        transport=transport,
        client=client,
        recorder=secrets.token_hex(16),
        wall_ms=now.timestamp() * 1000,
    )
    journal = cassettes.Journal(cassettes.journal_path(session.path), header, session.path)
    redactor = Redactor(rules, keyed_hash(secrets.token_bytes(32)))
    recorder = Recorder(
        seals=options.request_state == "sealed",
        redactor=redactor,
        credentials=Credentials(redactor),
        seals_answers=options.seal_answers,
        kept_headers=options.kept_headers,
        largest_body=options.max_body,
    )
    try:
        yield Watcher(recorder, journal, session, announcer, clock, clock.now())
    finally:
        with journal.held():
            try:
                journal.close()
            except CassetteError as error:
                session.problem = session.problem or error.in_terms(session.terms)
                publishes = False
            if publishes and session.objection is None:
                session.published, lost = publish_journal(session.path)
                session.problem = lost or session.problem
