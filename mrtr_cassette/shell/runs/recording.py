"""Record with a proxy between clients and the upstream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from mrtr_cassette.core.answers.fulfilment import LeavesToSources, Rounds, Sources
from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.cassette.transports import STARTED_HERE
from mrtr_cassette.core.drive.conversation import (
    Answered,
    Conversation,
    Finished,
    LiveAsk,
    NeedsAnswers,
    ServerSession,
    declaring,
    is_modern,
    with_id_of,
)
from mrtr_cassette.core.drive.tasks import AnsweredPoll, AnsweredTask
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.protocol.methods import GET_TASK, method_of
from mrtr_cassette.core.protocol.origins import ServerOrigin
from mrtr_cassette.core.record.recorder import Recorder
from mrtr_cassette.core.secrets.credentials import shown_by
from mrtr_cassette.core.wire.http import ANSWERED_BY_HEADER, Headers, Request
from mrtr_cassette.errors import UpstreamError, UsageError
from mrtr_cassette.options import RecordOptions
from mrtr_cassette.shell.files import cassettes
from mrtr_cassette.shell.files.log import CLOCK, Announcer, Clock, OnEvent
from mrtr_cassette.shell.files.stores import Location
from mrtr_cassette.shell.http.access import OwnOrigin, is_own_name, listening
from mrtr_cassette.shell.http.transport import Downstream, Handler
from mrtr_cassette.shell.runs.admin import Admin
from mrtr_cassette.shell.runs.answerers import Answerers, answerers, load_answers
from mrtr_cassette.shell.runs.appending import appender_of, appending_player
from mrtr_cassette.shell.runs.live_server import LiveServer
from mrtr_cassette.shell.runs.record_session import check_output, journaling, rules_of_both
from mrtr_cassette.shell.runs.relay import Relay, RelayedResponse
from mrtr_cassette.shell.runs.sessions import RecordSession
from mrtr_cassette.shell.runs.upstreams import target_of

DEFAULTS: Final = RecordOptions()


@asynccontextmanager
async def recording(
    upstream: str | Sequence[str],
    output: Location,
    options: RecordOptions = DEFAULTS,
    *,
    started: Sequence[str] | None = None,
    kept_for: Location | None = None,
    on_event: OnEvent | None = None,
    clock: Clock = CLOCK,
) -> AsyncIterator[RecordSession]:
    """Record what passes until the block ends, then publish the cassette.

    With `existing="append"`, what the cassette has is played, and only what it lacks is sent to the
    upstream and recorded. Where it lacks nothing, the file stays untouched.

    Args:
        upstream: URL of the real server, or the command of one on pipes, which is called over HTTP.
        started: the command by which we have started the server at the URL, or an empty one where
            it is an application: the cassette doesn't name the port, which is another on every run.
        kept_for: the cassette, named by messages, that the caller makes of the journal; or None.

    Raises:
        CassetteError: the cassette can't be written, or exists.
        UsageError: the upstream is no URL, or the address can't be bound.
    """
    admin = Admin(options)
    target = target_of(upstream, options, options.redaction, started or ())
    with cassettes.without_collection():
        earlier = check_output(output, options)
        earlier = None if earlier is None else replace(earlier, path=str(kept_for or output))
        player = None if earlier is None else appending_player(earlier, options, target.given)
    rules = rules_of_both(earlier, options.redaction)
    shown = shown_by(rules)
    with listening(options) as listener:
        if target.port == listener.port and is_own_name(target.host, options):
            raise UsageError(f"the upstream {shown(target.name)} is this proxy itself")
        own_url = listener.url(target.path)
        session = RecordSession(own_url, shown(own_url), output, earlier, player, options.terms)
        session.publishes_anyway = options.publish_anyway
        announcer = Announcer(options.log, admin.listeners(on_event), options.terms)
        with journaling(
            *(session, options, announcer, clock),
            upstream=shown(target.name if started is None else STARTED_HERE),
            publishes=kept_for is None,
        ) as watcher:
            async with target.connecting(watcher.recorder) as server:
                relay = Relay(server, target.origin, target.headers, watcher)
                entries = () if player is None else player.entries
                async with _handling(relay, options) as handler, watcher.finishing():
                    served = OwnOrigin(handler, ServerOrigin(target.name), listener.url(""))
                    session.authorities_elsewhere = served.elsewhere
                    async with admin.serving(
                        served.handle, listener, announcer, entries
                    ) as session.admin_url:
                        yield session


@asynccontextmanager
async def _handling(relay: Relay, options: RecordOptions) -> AsyncIterator[Handler]:
    """Open the handler of requests: the relay, an appender or auto-answers before it."""
    session = relay.watcher.session
    if session.base is not None and session.player is not None:
        yield appender_of(relay, session.base, session.player).handle
    elif options.answers is not None:
        sources = Sources(file=load_answers(Path(options.answers)))
        async with answerers(sources, relay.watcher.announcer) as those:
            yield AutoAnswerHandler(relay, sources, those).handle
    else:
        yield relay.handle


@dataclass(slots=True)
class _AnsweredUpstream:
    """The recorded upstream of one call; the requests say who answered."""

    relay: Relay
    sources: Sources
    answerers: Answerers
    rounds: Rounds
    answered_by: str = ""
    last: RelayedResponse | None = None

    async def send(self, request: Request, _headers: Headers) -> RelayedResponse:
        """Send a request that declares what the sources can answer."""
        received = request
        if self.answered_by and read_call(request).method != GET_TASK:
            marked = (*request.headers, (ANSWERED_BY_HEADER, self.answered_by))
            received = replace(request, headers=marked)
        self.last = await self.relay.send(received, declaring(request, self.sources.kinds))
        self.last.begin()
        self.last.reads_on = True
        return self.last

    async def supply(self, ask: LiveAsk) -> Answered | None:
        """Answer an ask."""
        if ask.push is not None:
            return None
        reply = await self.answerers.answer(self.rounds, ask)
        if self.rounds.turns:
            who = dict.fromkeys(self.rounds.turns[-1].answered_by.values())
            self.answered_by = ", ".join(who) or "nobody: a retry only"
        return reply


@dataclass(frozen=True, slots=True)
class AutoAnswerHandler:
    """Has the conversations of calls in the client's place, and records them.

    It is not transparent: what the sources can answer is declared for the client, and a call's
    response is passed on when it is whole. What nobody answers is passed on as the server asked it.
    The client polls its tasks itself; a poll that asks is answered, and repeated for the client.
    """

    relay: Relay
    sources: Sources
    answerers: Answerers
    tasks: dict[str, tuple[AnsweredTask, Rounds]] = field(default_factory=dict)
    """The tasks that calls have created, by their ids."""

    async def handle(self, request: Request, downstream: Downstream) -> None:
        """Answer one request."""
        call, session = read_call(request), ServerSession(Recorder(seals=False))
        asks_again = method_of(call.method).answered_by == call.method
        task, rounds = self.tasks.get(call.name if call.method == GET_TASK else "", (None, None))
        steps: AnsweredPoll | Conversation | None = None
        if task is not None and is_modern(call):
            steps = AnsweredPoll(request, session, task)
        elif asks_again and is_modern(call) and call.answers is None:
            steps = Conversation(request, LeavesToSources(), session)
        if steps is None:
            await self.relay.handle(request, downstream)
            return
        rounds = rounds or Rounds(self.sources)
        upstream = _AnsweredUpstream(self.relay, self.sources, self.answerers, rounds)
        try:
            await LiveServer(upstream, self.relay.shown_as).follow(steps, upstream.supply)
        except UpstreamError as error:
            await self.relay.answer_unreachable(request, downstream, str(error))
            return
        exchange = steps.last if isinstance(steps, AnsweredPoll) else _last_of(steps)
        if upstream.last is None or exchange is None or exchange.response is None:
            downstream.break_off()
            return
        created = exchange.created_task
        if created is not None:
            self.tasks[created.id] = AnsweredTask(call), rounds
        headers = tuple(
            pair for pair in upstream.last.passed if pair[0].lower() != "content-length"
        )
        await downstream.send_whole(upstream.last.status, headers, with_id_of(call, exchange))


def _last_of(conversation: Conversation) -> RecordedExchange | None:
    """Return the exchange whose response the client gets."""
    standing = conversation.standing
    if isinstance(standing, NeedsAnswers):
        return standing.ask.exchange
    return standing.exchange if isinstance(standing, Finished) else None
