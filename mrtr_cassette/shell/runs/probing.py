"""Probe a live server: bring it to recorded questions, and answer in ways nobody recorded."""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from mrtr_cassette.core.cassette.dump import dump
from mrtr_cassette.core.cassette.load import load
from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.cassette.sessions import cassette_with_joined_streams
from mrtr_cassette.core.cassette.texts import with_examples_for_shared_texts
from mrtr_cassette.core.cassette.transports import is_over_old_transport
from mrtr_cassette.core.drive.conversation import Conversation, LiveAsk
from mrtr_cassette.core.drive.ignored import ignored_pointers
from mrtr_cassette.core.drive.live_session import with_body
from mrtr_cassette.core.drive.plan import PlannedInteraction
from mrtr_cassette.core.drive.probing import (
    PROBE_AS_RECORDED,
    PROBE_CANCELLED,
    PROBE_DECLINED,
    PROBE_EXPIRED,
    PROBE_OTHER_ARGUMENTS,
    PROBE_OTHER_QUESTION,
    PROBE_OTHER_TOOL,
    PROBE_REPEATED,
    PROBE_UNASKED,
    PROBE_URL_ACCEPTED,
    BranchRequests,
    Probe,
    ProbedAsk,
    ProbingScript,
    altered_state,
    most_requests_of_probes,
    needs_server_state,
    probed_asks,
    probes_of_ask,
    with_another_argument,
)
from mrtr_cassette.core.drive.verdicts import (
    Baseline,
    Probed,
    Reaction,
    probe_outcome,
    reaction_of_conversation,
    varying_places,
    verdict_and_reason,
)
from mrtr_cassette.core.drive.verification import VerifiedInteraction
from mrtr_cassette.core.report.probes import ExpectedFinding, Probing, read_expected
from mrtr_cassette.core.report.runs import recording_text
from mrtr_cassette.core.secrets.credentials import AddSettings, UserSettings
from mrtr_cassette.core.wire.http import Request
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.errors import (
    BodyTooLargeError,
    CassetteError,
    MuteServerError,
    UpstreamError,
    UsageError,
    counted,
)
from mrtr_cassette.options import (
    ProbeOptions,
    RecordOptions,
    SecretOptions,
    UpstreamOptions,
    VerifyOptions,
    options_of,
)
from mrtr_cassette.shell.files.cassettes import (
    cassette_exists,
    publish_cassette,
    read_file,
)
from mrtr_cassette.shell.files.disk import system_reason
from mrtr_cassette.shell.files.log import Announcer
from mrtr_cassette.shell.files.stores import Location, location_of
from mrtr_cassette.shell.http.transport import Upstream, UpstreamResponse
from mrtr_cassette.shell.runs.journaling import (
    RecordedServer,
    RecordingRun,
    check_output,
    journaling,
    with_rules_of_cassette,
)
from mrtr_cassette.shell.runs.live_server import AnswerRefusedError
from mrtr_cassette.shell.runs.recording import Relay
from mrtr_cassette.shell.runs.upstreams import Target
from mrtr_cassette.shell.runs.verifying import (
    LiveRun,
    RunFindings,
    live_run,
    over_transport_of,
    part_of,
    plans_of,
    rules_of,
)

_OTHER_STATE_PROBES: Final = (
    PROBE_OTHER_ARGUMENTS,
    PROBE_OTHER_TOOL,
    PROBE_OTHER_QUESTION,
)
"""The probes that send the state of another ask."""

_NO_PROBE: Final = ""
"""Stands for the name of the next probe where there is none."""

_STILL_ASKED_S: Final = 5.0
"""Seconds for which a task may go on asking what was answered: answers take effect later."""


Progress = Callable[[int, int, str, str], None]
"""Takes how many probes were made, of how many, and the next one with its question."""


@dataclass(frozen=True, slots=True)
class RunObserver:
    """Gets told how a run gets on."""

    say: Callable[[str], None]
    progress: Progress | None = None


def read_expected_file(path: Path) -> tuple[ExpectedFinding, ...]:
    """Read a file of expected findings.

    Raises:
        UsageError: it can't be read.
    """
    try:
        return read_expected(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"can't read {path}: {system_reason(error)}") from None
    except ValueError as error:
        problem = f"{path} is not a file of expected findings: {error}"
        raise UsageError(problem) from None


def _verify_options(options: ProbeOptions, only: Collection[str]) -> VerifyOptions:
    """Return how the recorded calls are repeated."""
    names = [*options_of(UpstreamOptions), "ignore", "ignore_from", "timeout"]
    option_values = {name: getattr(options, name) for name in names}
    allowed = options.allow_destructive

    return VerifyOptions(only=only, allow_destructive=allowed, **option_values)


async def probe_cassette(
    path: Location,
    upstream: str | Sequence[str],
    options: ProbeOptions,
    observer: RunObserver | None = None,
) -> Probing:
    """Probe a live server with one cassette.

    Raises:
        UsageError: the upstream is no URL and no command, or a file can't be read.
        CassetteError: the cassette can't be read, or not be sent over the server's transport.
        UpstreamError: the command can't be run, or does not listen.
    """
    recorded_cassette = load(read_file(path), str(path))
    return await probe_recorded(recorded_cassette, upstream, options, observer)


async def probe_recorded(
    recorded: Cassette,
    upstream: str | Sequence[str],
    options: ProbeOptions,
    observer: RunObserver | None = None,
) -> Probing:
    """Probe a live server with what is recorded, in a file or so far; raises the same."""
    options.check_secrets()
    expected: tuple[ExpectedFinding, ...] = ()
    if options.expect is not None:
        expected = read_expected_file(Path(options.expect))

    cassette = with_examples_for_shared_texts(recorded)
    sent_cassette = cassette
    if options.record is None or cassette.transport == "stdio":
        sent_cassette = over_transport_of(cassette, upstream)

    sent_cassette = cassette_with_joined_streams(sent_cassette)
    branches_context: AbstractAsyncContextManager[_Branches | None] = nullcontext()
    if options.record is not None:
        _check_takes_branches(recorded, upstream)
        branches_context = _recorded_branches(
            recorded, location_of(options.record), options
        )

    probed_numbers = []
    for plan in plans_of(
        cassette, sent_cassette, upstream, _verify_options(options, options.only)
    ):
        for ask in probed_asks(plan):
            probed_numbers.append(f"{ask.planned.interaction.number}")

    if not probed_numbers:
        return Probing(cassette.path, str(upstream))

    async with branches_context as branches:
        probing = await _probe_cassette(
            cassette,
            sent_cassette,
            upstream,
            options,
            probed_numbers,
            observer=observer,
            branches=branches,
        )

    if branches is not None:
        branches.report_recorded(observer)

    return probing.with_expected(expected)


# Recording


def _check_takes_branches(recorded: Cassette, upstream: str | Sequence[str]) -> None:
    """Make sure that a cassette can have answers of a live server as branches.

    Raises:
        CassetteError: it can't.
    """
    reason = None
    if is_over_old_transport(recorded):
        reason = "it was recorded over HTTP+SSE, and gets no branches"
    elif recorded.transport == "stdio" and isinstance(upstream, str):
        reason = "it was recorded over pipes, and branches would come over HTTP"
    elif recorded.redaction is not None and recorded.redaction.shared:
        reason = "it was cut out for strangers, and its requests have placeholders"

    if reason is not None:
        hint = "record it again, as it will be probed"
        raise CassetteError(recorded.path, reason, hint=hint)


@asynccontextmanager
async def _recorded_branches(
    recorded: Cassette, output: Location, options: ProbeOptions
) -> AsyncIterator[_Branches]:
    """Record branches until the block ends, in a copy of the cassette or in itself.

    Raises:
        CassetteError: the file exists, or can't be written.
        UsageError: branches are to be added to another cassette than the probed one.
    """
    option_values = {name: getattr(options, name) for name in options_of(SecretOptions)}
    record_options = RecordOptions(
        existing=options.existing,
        max_body=options.max_body,
        terms=options.terms,
        publish_anyway=True,
        **option_values,
    )

    is_probed_cassette = str(output) == recorded.path
    adds_to_existing = options.existing == "append" and cassette_exists(output)
    if adds_to_existing and not is_probed_cassette:
        problem = f"{output} is not the cassette that is probed, to which <<append>> adds branches"
        hint = f"name {recorded.path} or a new file, or use <<replace>>"
        raise UsageError(problem, hint=hint)

    check_output(output, record_options)
    record_options = with_rules_of_cassette(
        recorded, replace(record_options, existing="append")
    )
    server = RecordedServer(
        recorded.upstream, recorded.transport, recorded.client, recorded.command
    )
    with journaling(
        output, record_options, Announcer(), recorded, None, server
    ) as recording_run:
        yield _Branches(recorded, recording_run, options)


@dataclass(slots=True, eq=False)
class _Branches:
    """Records what a live server says to answers that were not recorded."""

    recorded: Cassette
    recording_run: RecordingRun
    options: ProbeOptions
    branch_requests: BranchRequests | None = None
    """What is recorded of the conversation under way; None: nothing."""

    _is_begun: bool = False

    def recorded_target(self, target: Target) -> Target:
        """Return how a server is reached whose responses are recorded."""

        @asynccontextmanager
        async def connected(add_settings: AddSettings) -> AsyncIterator[Upstream]:
            """Open a server whose responses are recorded, all of them before the block ends."""

            def add_to_both(settings: UserSettings) -> None:
                add_settings(settings)
                self.recording_run.recorder.sealer.add_settings(settings)

            connection = target.connect(add_to_both)
            background_work = self.recording_run.background_work.finished_at_end()
            async with connection as live_upstream, background_work:
                relay = Relay(live_upstream, target.origin, self.recording_run)
                yield _BranchUpstream(relay, self)

        is_on_pipes = self.recorded.transport == "stdio"
        return replace(target, connect=connected, is_on_pipes=is_on_pipes)

    @contextmanager
    def recording_answers_of(self, script: ProbingScript) -> Iterator[None]:
        """Record the answers of a conversation."""
        self.branch_requests = BranchRequests(script, self.recording_run.recorder)
        try:
            yield
        finally:
            self.branch_requests = None

    def request_to_record(self, request: Request) -> Request | None:
        """Return a request as it is recorded; None if it is not."""
        if self.branch_requests is None or self.recording_run.problem is not None:
            return None

        recorded_request = self.branch_requests.request_of_recorded_client(request)
        if recorded_request is not None and not self._is_begun:
            try:
                self._write_branch_cassette()
            except CassetteError as error:
                self.recording_run.report_failure(error)
                return None

        return recorded_request

    def _write_branch_cassette(self) -> None:
        """Write a copy of the cassette, to which the journal adds branches."""
        output = self.recording_run.path
        existing = self.options.existing
        if existing != "append" or not cassette_exists(output):
            publish_cassette(
                output, [dump(self.recorded)], replace=existing == "replace"
            )

        self._is_begun = True

    def report_recorded(self, observer: RunObserver | None) -> None:
        """Say what was recorded.

        Raises:
            CassetteError: the recording is incomplete.
        """
        if observer is not None:
            observer.say(recording_text(self.recording_run.report))

        if self.recording_run.problem is not None:
            reason = f"the recording is incomplete: {self.recording_run.problem}"
            raise CassetteError(self.recording_run.path, reason)


@dataclass(frozen=True, slots=True)
class _BranchUpstream:
    """A live server whose responses to some requests are recorded."""

    relay: Relay
    branches: _Branches

    async def send_request(self, request: Request) -> UpstreamResponse:
        """Send a request, and return its response when the head has come."""
        recorded_request = self.branches.request_to_record(request)
        if recorded_request is None:
            return await self.relay.upstream.send_request(request)

        response = await self.relay.send_request(recorded_request, request)
        response.record_head()
        response.reads_rest_when_left = True

        return response


# Probing


async def _probe_cassette(
    cassette: Cassette,
    sent_cassette: Cassette,
    upstream: str | Sequence[str],
    options: ProbeOptions,
    probed_numbers: Sequence[str],
    *,
    observer: RunObserver | None,
    branches: _Branches | None,
) -> Probing:
    """Probe the questions of the interactions with these numbers of one cassette."""
    verify_options = _verify_options(options, probed_numbers)
    probers = []
    for plan in plans_of(cassette, sent_cassette, upstream, verify_options):
        probers.append(_Prober(plan, options, observer, branches))

    request_limit = sum(prober.most_requests for prober in probers)
    probed: list[Probed] = []
    shown_server = ""
    rules = rules_of(verify_options)
    for prober in probers:
        run_context = live_run(
            cassette,
            part_of(sent_cassette, prober.plan),
            upstream,
            verify_options,
            RunFindings(rules),
            consented_tools=options.only,
        )
        async with run_context as run:
            shown_server = run.shown_server
            if branches is not None:
                run.target = branches.recorded_target(run.target)

            if prober is probers[0] and observer is not None:
                conversation_limit = sum(
                    prober.most_conversations for prober in probers
                )
                requests = counted(request_limit, "request")
                requests_text = f"at most {requests} to {shown_server}"
                conversations = counted(conversation_limit, "conversation")
                observer.say(f"{cassette.path}: {requests_text} in {conversations}")

            prober.run = run
            probed += await prober.probe_all()

    return Probing(cassette.path, shown_server, tuple(probed), request_limit)


@dataclass(slots=True, eq=False)
class _Prober:
    """Probes the questions of one run of the recorder, with a live server."""

    plan: Sequence[PlannedInteraction]
    options: ProbeOptions
    observer: RunObserver | None
    branches: _Branches | None = None
    probes_by_ask: dict[ProbedAsk, list[Probe]] = field(init=False)
    run: LiveRun = field(init=False)
    """Set when the live server is reached."""

    _probes_done: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        """Find the questions of the plan and the probes for them."""
        is_slow = self.options.slow is not None
        self.probes_by_ask = {}
        for ask in probed_asks(self.plan):
            self.probes_by_ask[ask] = probes_of_ask(ask, is_slow=is_slow)

    @property
    def most_conversations(self) -> int:
        """How many conversations it has at most."""
        sent_calls = [call for call in self.plan if call.is_sent]
        probes = sum(len(probes) + 2 for probes in self.probes_by_ask.values())
        return len(sent_calls) + probes

    @property
    def most_requests(self) -> int:
        """How many requests it makes at most, besides polls of tasks."""
        count = 0
        for call in self.plan:
            if call.is_sent:
                count += 1 + len(call.interaction.unshared_exchanges)

        latest = max([ask.index for ask in self.probes_by_ask], default=0)
        for ask, probes in self.probes_by_ask.items():
            count += most_requests_of_probes(ask, probes, latest)

        return count

    async def probe_all(self) -> list[Probed]:
        """Repeat the recorded calls, and probe each question where it comes."""
        results: list[Probed] = []
        verified_calls = []
        for call in self.plan:
            verified_call = await self.run.repeat_call(call)
            if verified_call is not None:
                verified_calls.append(verified_call)

            reason = _why_not_repeated(verified_call)
            for ask, probes in self.probes_by_ask.items():
                if ask.planned is not call:
                    continue

                if reason is None:
                    results += await self._probe_together(ask, probes)
                else:
                    results += self._not_reached(ask, probes, reason)

        self.run.refuse_if_all_not_found(verified_calls)
        for server in self.run.servers_by_session.values():
            await server.close()

        return results

    def _not_reached(
        self, ask: ProbedAsk, probes: Sequence[Probe], reason: str
    ) -> list[Probed]:
        """Return the outcomes of probes whose question did not come, and count them as done."""
        self._probes_done += len(probes)
        return [probe_outcome(ask, probe, "not-reached", reason) for probe in probes]

    async def _probe_together(
        self, ask: ProbedAsk, probes: Sequence[Probe]
    ) -> list[Probed]:
        """Probe one question, or several that are asked together."""
        accepted_reaction, script = await self._answer_ask(ask, PROBE_AS_RECORDED)
        if script.reply is None:
            reason = _why_unreached(accepted_reaction)
            return self._not_reached(ask, probes, reason)

        second_reaction, _ = await self._answer_ask(ask, PROBE_AS_RECORDED)
        known_pointers = ignored_pointers(self.run.findings.rules, ask.planned.call)
        ignored = (*known_pointers, *varying_places(accepted_reaction, second_reaction))
        baseline = Baseline(ask, accepted_reaction, script, ignored)
        reactions = []
        for probe in probes:
            self._report_next_probe(probe.name, ask)
            self._probes_done += 1
            reactions.append(await self._reaction_to_probe(baseline, probe))

        self._report_next_probe(_NO_PROBE, ask)
        results = []
        # A decline is judged by what cancelling gives, and that is known only now.
        for probe, reaction in zip(probes, reactions, strict=True):
            results.append(self._judged_probe(baseline, probe, reaction))

        return results

    def _report_next_probe(self, name: str, ask: ProbedAsk) -> None:
        """Say which probe is next, or that there is none."""
        if self.observer is not None and self.observer.progress is not None:
            call = ask.planned.call.title
            number = ask.planned.interaction.number
            question = f"#{number} {call}, turn {ask.turn.number}"
            total = 0
            if name != _NO_PROBE:
                total = sum(len(probes) for probes in self.probes_by_ask.values())

            self.observer.progress(self._probes_done, total, name, question)

    async def _reaction_to_probe(
        self, baseline: Baseline, probe: Probe
    ) -> Reaction | str:
        """Make one probe; return the server's reaction, or why it was not reached."""
        ask = baseline.ask
        if not baseline.is_accepted and probe.name != PROBE_URL_ACCEPTED:
            return "the server does not accept the recorded answers"
        if needs_server_state(probe) and not baseline.has_state:
            return "the server sends no state with its question"

        if probe.is_about_state:
            try:
                return await self._answer_with_state(baseline, probe)
            except _NoStateError as error:
                return str(error)

        reaction, script = await self._answer_ask(ask, probe)
        if script.reply is None:
            return _why_unreached(reaction)

        if probe.name in (PROBE_DECLINED, PROBE_CANCELLED):
            baseline.declining_reactions[probe.name, probe.question] = reaction

        return reaction

    def _judged_probe(
        self, baseline: Baseline, probe: Probe, reaction: Reaction | str
    ) -> Probed:
        """Judge the reaction to a probe."""
        ask = baseline.ask
        if isinstance(reaction, str):
            return probe_outcome(ask, probe, "not-reached", reaction)

        verdict, reason = verdict_and_reason(probe, baseline, reaction)
        return probe_outcome(
            ask,
            probe,
            verdict,
            reason,
            self.options.fail_on,
            baseline.reactions_told_with_probe(probe, reaction),
        )

    # Conversations

    async def _answer_ask(
        self, ask: ProbedAsk, probe: Probe
    ) -> tuple[Reaction, ProbingScript]:
        """Bring the server to an ask, answer it, and return how the call ends."""
        conversation, script = self._conversation_and_script(ask, probe)
        recording_context: AbstractContextManager[None] = nullcontext()
        if self.branches is not None and probe is not PROBE_AS_RECORDED:
            recording_context = self.branches.recording_answers_of(script)

        with recording_context:
            return await self._follow_conversation(conversation, script), script

    def _conversation_and_script(
        self, ask: ProbedAsk, probe: Probe | None
    ) -> tuple[Conversation, ProbingScript]:
        """Return a conversation that brings the server to an ask and probes it, and its script."""
        verifier = self.run.verifier
        script = ProbingScript(verifier.separate_script(ask.planned), ask, probe)
        return verifier.conversation_with(ask.planned, script), script

    async def _follow_conversation(
        self, conversation: Conversation, script: ProbingScript
    ) -> Reaction:
        """Have a conversation; return what came of the answer to the ask."""
        call = script.ask.planned
        timeout = asyncio.timeout(None)
        try:
            server = await self.run.server_for(call)
            async with timeout:
                watch = partial(self._limit_repeated_asks, timeout, script)
                await server.follow_conversation(conversation, watch=watch)
        except TimeoutError:
            if script.live_ask is None:
                raise AssertionError("unreachable because it was asked") from None
            return Reaction(script.live_ask.exchange, script.live_ask)
        except AnswerRefusedError as error:
            await self._reopen_session(call)
            return Reaction(error.exchange)
        except (UpstreamError, BodyTooLargeError, CassetteError) as error:
            if isinstance(error, MuteServerError) and not self._probes_done:
                raise

            await self._reopen_session(call)
            return Reaction(problem=str(error))

        return reaction_of_conversation(conversation, script.next_ask)

    def _limit_repeated_asks(
        self,
        timeout: asyncio.Timeout,
        script: ProbingScript,
        conversation: Conversation,
    ) -> None:
        """Limit how long a task may go on asking for what was answered."""
        if not script.is_still_asked(conversation):
            timeout.reschedule(None)
        elif timeout.when() is None:
            now = asyncio.get_running_loop().time()
            timeout.reschedule(now + min(_STILL_ASKED_S, self.options.timeout / 2))

    async def _reopen_session(self, call: PlannedInteraction) -> None:
        """Start the server again, or open its session again, if it may have lost that."""
        if self.branches is not None:
            self.branches.branch_requests = None

        await self.run.close_server_of(call)
        self.run.verifier.sessions.forget_session_of(call)
        for opening_call in self.plan:
            is_opening = opening_call.part in ("opening", "listening")
            session = opening_call.opens_session or opening_call.session
            if is_opening and session == call.session:
                await self.run.repeat_call(opening_call)

    # Request states

    async def _answer_with_state(self, baseline: Baseline, probe: Probe) -> Reaction:
        """Answer an ask as recorded, with another state or without having been asked.

        Raises:
            _NoStateError: there is no such state.
        """
        ask = baseline.ask
        if probe.name in _OTHER_STATE_PROBES:
            return await self._answer_with_states_of_other_asks(baseline, probe)

        script = baseline.script
        state = None
        if probe.name != PROBE_UNASKED:
            script = await self._script_at_ask(ask)
            state = _state_sent_by_probe(probe, script.live_ask)

        if probe.name == PROBE_EXPIRED:
            await asyncio.sleep(self.options.slow or 0)

        reaction = await self._send_retry(baseline, script, state)
        if probe.name == PROBE_REPEATED and reaction.problem is None:
            reaction = await self._send_retry(baseline, script, state)

        return reaction

    async def _answer_with_states_of_other_asks(
        self, baseline: Baseline, probe: Probe
    ) -> Reaction:
        """Answer an ask as recorded with states of other asks, until one is not refused.

        Raises:
            _NoStateError: there is no such state.
        """
        reaction: Reaction | None = None
        async for state in self._states_of_other_asks(baseline.ask, probe):
            reaction = await self._send_retry(baseline, baseline.script, state)
            if not baseline.is_refusal(reaction):
                break

        if reaction is None:
            raise _NoStateError(f"{probe.sent_in_words} is not known")

        return reaction

    async def _script_at_ask(self, ask: ProbedAsk) -> ProbingScript:
        """Bring the server to an ask, and leave it there.

        Raises:
            _NoStateError: it was not reached.
        """
        conversation, script = self._conversation_and_script(ask, None)
        reaction = await self._follow_conversation(conversation, script)
        if script.reply is None:
            raise _NoStateError(_why_unreached(reaction))

        return script

    async def _send_retry(
        self, baseline: Baseline, script_at_ask: ProbingScript, state: str | None
    ) -> Reaction:
        """Answer an ask that was reached as recorded, with a state; return how the call ends."""
        live_ask = script_at_ask.live_ask
        if live_ask is None or script_at_ask.reply is None:
            raise AssertionError("unreachable because the ask was reached")

        conversation, script = self._conversation_and_script(baseline.ask, None)
        for earlier_ask in baseline.script.seen_asks[: baseline.ask.index]:
            script.reply_to_ask(earlier_ask)

        conversation.go_on_with_retry(live_ask, script_at_ask.reply.value, state)
        return await self._follow_conversation(conversation, script)

    async def _states_of_other_asks(
        self, ask: ProbedAsk, probe: Probe
    ) -> AsyncIterator[str]:
        """Bring the server to other asks, and yield their states, one of each kind."""
        is_found = False
        for other_asks in self._asks_for_other_states(ask, probe):
            for other_ask in other_asks:
                conversation, script = self._conversation_and_script(other_ask, None)
                await self._follow_conversation(conversation, script)
                live_ask = script.live_ask
                if live_ask is not None and live_ask.request_state is not None:
                    is_found = True
                    yield live_ask.request_state
                    break

        is_of_first_ask = probe.name == PROBE_OTHER_ARGUMENTS and ask.index == 1
        if is_of_first_ask and not is_found:
            altered_ask = await self._ask_after_other_arguments(ask)
            if altered_ask is not None and altered_ask.request_state is not None:
                yield altered_ask.request_state

    async def _ask_after_other_arguments(self, ask: ProbedAsk) -> LiveAsk | None:
        """Make a call with another argument; return what the server asks first."""
        conversation, script = self._conversation_and_script(ask, None)
        schema = self.run.verifier.tools.input_schema(ask.planned)
        body = with_another_argument(conversation.request.body, schema)
        if body is None:
            return None

        altered_request = with_body(conversation.request, body)
        call_conversation = Conversation(altered_request, script, conversation.session)
        return (await self._follow_conversation(call_conversation, script)).ask

    def _asks_for_other_states(
        self, ask: ProbedAsk, probe: Probe
    ) -> Iterable[Sequence[ProbedAsk]]:
        """Return the asks whose states a probe sends: in this round, and of a tool in another."""
        if probe.name == PROBE_OTHER_QUESTION:
            return [[replace(ask, index=ask.index - 1)]]

        same_round: list[ProbedAsk] = []
        other_rounds: list[ProbedAsk] = []
        arguments = canonical(ask.planned.call.arguments)
        wants_same_tool = probe.name == PROBE_OTHER_ARGUMENTS
        for other_ask in self.probes_by_ask:
            planned = other_ask.planned
            is_of_tool = other_ask.tool == ask.tool
            if other_ask.via != "result" or is_of_tool != wants_same_tool:
                continue
            if is_of_tool and canonical(planned.call.arguments) == arguments:
                continue
            if planned.why_skipped or self.run.verifier.tools.may_destroy(planned):
                continue

            if other_ask.index == ask.index:
                same_round.append(other_ask)
            elif not is_of_tool:
                other_rounds.append(other_ask)

        # The last round is the nearest to what a tool does.
        return same_round, other_rounds[::-1]


def _why_not_repeated(outcome: VerifiedInteraction | None) -> str | None:
    """Return why the questions of a call are not reached; None if they may be."""
    if outcome is None or outcome.verdict not in ("skipped", "not-reached"):
        return None
    return outcome.reason or outcome.verdict


def _why_unreached(reaction: Reaction) -> str:
    """Return why an ask was not reached."""
    if reaction.problem is not None:
        return reaction.problem
    if reaction.ask is None:
        return "the server does not ask"
    return "the server asks something else"


class _NoStateError(Exception):
    """There is no state of the kind that a probe sends."""


def _state_sent_by_probe(probe: Probe, live_ask: LiveAsk | None) -> str | None:
    """Return the state that a probe sends in place of the live one."""
    state = None if live_ask is None else live_ask.request_state
    if state is None or probe.name == "state-dropped":
        return None
    if probe.name == "state-altered":
        return altered_state(state)
    if probe.name == "state-cut":
        return state[: len(state) // 2]

    return "" if probe.name == "state-empty" else state
