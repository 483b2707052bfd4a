"""Verify a live server against a cassette, and accept its changes into it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from mrtr_cassette.core.cassette.load import load
from mrtr_cassette.core.cassette.recorded import Cassette, RecordedInteraction
from mrtr_cassette.core.cassette.sessions import cassette_with_joined_streams
from mrtr_cassette.core.cassette.texts import with_examples_for_shared_texts
from mrtr_cassette.core.cassette.transports import (
    cassette_over_http,
    cassette_over_pipes,
    http_sse_over_pipes,
    is_over_old_transport,
)
from mrtr_cassette.core.compare.conversations import comparison_with_run
from mrtr_cassette.core.drive.ignored import (
    IgnoredPlaces,
    LearnedPlace,
    call_name,
    ignored_file_with_places,
    ignored_pointers,
    learned_places,
    varying_pointers_in,
)
from mrtr_cassette.core.drive.plan import (
    PlannedInteraction,
    planned_by_run,
    planned_interactions,
    refuse_unmatched_patterns,
)
from mrtr_cassette.core.drive.updating import (
    ChooseProposals,
    Proposal,
    proposals_for_cassette,
    turn_accepter,
    updated_cassette_file,
)
from mrtr_cassette.core.drive.verification import (
    Accepts,
    RepeatedInteraction,
    VerifiedInteraction,
    Verifier,
)
from mrtr_cassette.core.protocol.calls import session_of
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.protocol.methods import CALL_TOOL
from mrtr_cassette.core.report.comparison import Verification, suite_differences_text
from mrtr_cassette.core.secrets.credentials import UserSettings
from mrtr_cassette.core.secrets.redact import keyed_hash
from mrtr_cassette.core.secrets.rules import BUILT_IN_RULES
from mrtr_cassette.core.secrets.values import Values, values_of
from mrtr_cassette.errors import (
    BodyTooLargeError,
    CassetteError,
    MuteServerError,
    UpstreamError,
    UsageError,
)
from mrtr_cassette.options import VerifyOptions
from mrtr_cassette.shell.files.cassettes import (
    load_cassette,
    load_if_readable,
    publish_cassette,
    read_file,
)
from mrtr_cassette.shell.files.disk import system_reason, write_whole
from mrtr_cassette.shell.files.ignored import read_rules
from mrtr_cassette.shell.files.stores import Location
from mrtr_cassette.shell.pipes.upstream import connect_over_sse
from mrtr_cassette.shell.runs.live_server import LiveServer
from mrtr_cassette.shell.runs.upstreams import (
    NOT_SERVED_STATUSES,
    Target,
    is_on_pipes,
    not_served_error,
    reached_upstream,
)


def check_selection_and_values_fit(
    paths: Sequence[Location], only: Collection[str], texts: Mapping[str, str]
) -> None:
    """Make sure that what selects calls, and values, fit some cassettes that can be read.

    Raises:
        UsageError: it fits none.
    """
    if not only and not texts:
        return

    interactions: list[RecordedInteraction] = []
    value_names: list[str] = []
    for path in paths:
        cassette = load_if_readable(path)
        if cassette is not None:
            interactions += cassette.interactions
            value_names += cassette.values

    if interactions:
        names = sorted(set(value_names))
        values_of(names, texts, ", ".join(map(str, paths)))
        refuse_unmatched_patterns(interactions, tuple(only))


async def verify_cassette(
    path: Location, upstream: str | Sequence[str], options: VerifyOptions
) -> Verification:
    """Verify a live server against one cassette.

    Raises:
        UsageError: the upstream is no URL and no command, or what is ignored can't be read.
        CassetteError: the cassette can't be read, or not be sent over the server's transport.
        UpstreamError: the command can't be run, or does not listen.
    """
    cassette = load(read_file(path), str(path))
    return await _verify_cassette(
        with_examples_for_shared_texts(cassette), upstream, options
    )


async def _verify_cassette(
    cassette: Cassette,
    upstream: str | Sequence[str],
    options: VerifyOptions,
    accepts: Accepts | None = None,
) -> Verification:
    """Repeat a cassette's conversations with a live server, and compare."""
    options.check_secrets()
    findings = RunFindings(rules_of(options))
    sent_cassette = cassette_with_joined_streams(over_transport_of(cassette, upstream))
    shown_server = ""
    verified: list[VerifiedInteraction] = []
    for plan in plans_of(cassette, sent_cassette, upstream, options):
        part_to_repeat = part_of(sent_cassette, plan)
        run_context = live_run(
            cassette, part_to_repeat, upstream, options, findings, accepts=accepts
        )
        async with run_context as run:
            shown_server = run.shown_server
            verified += await run.repeat_all(plan)
            run.refuse_if_all_not_found(verified)

    verified.sort(key=lambda interaction: interaction.number)
    proposals: Sequence[Proposal] = ()
    redaction = cassette.redaction or BUILT_IN_RULES
    # What came over another transport, or for examples of texts, can't be in the cassette.
    if _takes_changes(cassette, upstream) and not redaction.shared:
        proposals = proposals_for_cassette(cassette, verified)

    verification = Verification(
        cassette.path,
        shown_server,
        tuple(verified),
        frozenset(options.fail_on),
        tuple(findings.places),
        untried=tuple(findings.untried),
        proposed=tuple(proposals),
    )
    if options.learn is not None:
        _write_learned(Path(options.learn), verification.learned)

    return verification


def _takes_changes(cassette: Cassette, upstream: str | Sequence[str]) -> bool:
    """Tell whether responses of a live server can become part of a cassette.

    A session over HTTP has streams and an end that pipes have not.
    """
    is_piped = is_on_pipes(upstream)
    if is_piped is (cassette.transport == "stdio"):
        return True
    return is_piped and not _has_session(cassette)


def _has_session(cassette: Cassette) -> bool:
    """Tell whether any request in a cassette was sent in a session."""
    for interaction in cassette.interactions:
        for exchange in interaction.unshared_exchanges:
            if session_of(exchange.request):
                return True

    return False


def over_transport_of(cassette: Cassette, upstream: str | Sequence[str]) -> Cassette:
    """Return a cassette as one of the transport of a live server."""
    if is_over_old_transport(cassette):
        return http_sse_over_pipes(cassette)
    if is_on_pipes(upstream):
        return cassette_over_pipes(cassette)
    return cassette_over_http(cassette)


def plans_of(
    cassette: Cassette,
    sent_cassette: Cassette,
    upstream: str | Sequence[str],
    options: VerifyOptions,
) -> list[list[PlannedInteraction]]:
    """Return what is repeated of a cassette as it is sent, apart for each server to start."""
    takes_lines = is_over_old_transport(cassette) or is_on_pipes(upstream)
    has_lines = False
    for interaction in sent_cassette.interactions:
        if interaction.exchanges[0].request.is_line:
            has_lines = True

    # A server on pipes takes requests of HTTP, too.
    is_piped = takes_lines and has_lines
    plan = planned_interactions(
        sent_cassette, tuple(options.only), is_on_pipes=is_piped
    )
    was_started = cassette.command is not None or cassette.transport == "stdio"
    if isinstance(upstream, str) or not was_started:
        return [plan]

    return planned_by_run(plan, sent_cassette.recorders) or [plan]


@asynccontextmanager
async def live_run(
    cassette: Cassette,
    part_to_repeat: Cassette,
    upstream: str | Sequence[str],
    options: VerifyOptions,
    findings: RunFindings,
    *,
    accepts: Accepts | None = None,
    consented_tools: Collection[str] = (),
) -> AsyncIterator[LiveRun]:
    """Reach the live server, to repeat a part of a cassette, until the block ends."""
    redaction = cassette.redaction or BUILT_IN_RULES
    upstream_context = reached_upstream(upstream, options, redaction, cassette)
    async with upstream_context as target, AsyncExitStack() as exit_stack:
        verifier = Verifier(
            part_to_repeat,
            target.path,
            partial(ignored_pointers, findings.rules),
            token_of=keyed_hash(os.urandom(16)),
            allows_destructive=options.allow_destructive,
            largest_body=options.max_body,
            accepts=accepts,
            values=_values_known_to(cassette, options),
        )

        verifier.sessions.add_settings(UserSettings(secrets=options.secrets))
        verifier.tools.consent_to(consented_tools)
        called_target = target
        if is_over_old_transport(cassette):
            called_target = _target_over_lines(target)

        yield LiveRun(verifier, called_target, options, exit_stack, findings, target)


def part_of(cassette: Cassette, plan: Sequence[PlannedInteraction]) -> Cassette:
    """Return a cassette with the interactions of a plan alone."""
    interactions = dict.fromkeys([call.interaction for call in plan])
    return replace(cassette, interactions=tuple(interactions))


def _values_known_to(cassette: Cassette, options: VerifyOptions) -> Values:
    """Return the values that a cassette knows; others may know the rest."""
    known_values = {}
    for name, text in options.texts.items():
        if name in cassette.values:
            known_values[name] = text

    return values_of(cassette.values, known_values, cassette.path, needs_all=True)


def _target_over_lines(target: Target) -> Target:
    """Return how a server that may speak HTTP+SSE is reached by lines."""
    if target.is_on_pipes:
        return target

    connect = connect_over_sse(target.connect, target.path, target.origin)
    return replace(target, connect=connect, is_on_pipes=True)


def _write_learned(path: Path, learned: Sequence[tuple[str, str]]) -> None:
    """Add what was learned to the file: pointers, each with its call."""
    pointers_by_call: dict[str, list[str]] = {}
    for call, pointer in learned:
        pointers_by_call.setdefault(call, []).append(pointer)

    if not pointers_by_call:
        return

    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        for call, pointers in pointers_by_call.items():
            text = ignored_file_with_places(text, call, pointers)

        write_whole(path, [text.encode()], replace=True)
    except OSError as error:
        problem = f"can't write what was learned to {path}: {system_reason(error)}"
        raise UsageError(problem) from None


@dataclass(eq=False, slots=True)
class RunFindings:
    """The findings of a verification so far; all its runs add to them."""

    rules: list[IgnoredPlaces]
    """The places that don't count, with those that were learned."""

    places: list[tuple[str, LearnedPlace]] = field(default_factory=list)
    """What was learned, with the call's name."""

    untried: dict[str, None] = field(default_factory=dict)
    """The calls that were not made once more, as they may change something."""


def rules_of(options: VerifyOptions) -> list[IgnoredPlaces]:
    """Return the places that don't count by the options of a verification."""
    return read_rules(options.ignore, options.ignore_from, options.masks, options.learn)


@dataclass(eq=False, slots=True)
class LiveRun:
    """Repeats what one run of the recorder recorded, with a live server."""

    verifier: Verifier
    target: Target
    options: VerifyOptions
    exit_stack: AsyncExitStack
    findings: RunFindings
    reached_target: Target
    servers_by_session: dict[str, LiveServer] = field(default_factory=dict, init=False)
    """By session; over HTTP one server has them all."""

    _connections_by_session: dict[str, AsyncExitStack] = field(
        default_factory=dict, init=False
    )
    """The connections to them, likewise."""

    listening_streams: list[RepeatedInteraction] = field(
        default_factory=list, init=False
    )

    @property
    def shown_server(self) -> str:
        """The server's name, for people."""
        return self.reached_target.command or self.reached_target.name

    def refuse_if_all_not_found(self, verified: Sequence[VerifiedInteraction]) -> None:
        """Make sure that the server has something at the path: that not all is 404.

        Raises:
            UpstreamError: it has nothing there.
        """
        statuses = set()
        for interaction in verified:
            if interaction.verdict == "skipped":
                continue
            if interaction.verdict != "not-reached":
                return

            if interaction.findings.response_pairs:
                response = interaction.findings.response_pairs[-1].live.response
                if response is not None:
                    statuses.add(response.status)

        if statuses and statuses.issubset(NOT_SERVED_STATUSES):
            target = self.reached_target
            is_started = target.command is not None
            status = min(statuses)
            raise not_served_error(
                target.path, self.shown_server, status, is_started=is_started
            )

    async def server_for(self, call: PlannedInteraction) -> LiveServer:
        """Return the server of a call's session; over pipes it is started for the first one."""
        server_key = self._server_key(call)
        if server_key not in self.servers_by_session:
            target = self.target
            connection = await self.exit_stack.enter_async_context(AsyncExitStack())
            client_context = target.connect(self.verifier.sessions.add_settings)
            server = LiveServer(
                await connection.enter_async_context(client_context),
                target.origin,
                float(self.options.timeout),
                is_on_pipes=self.reached_target.is_on_pipes,
            )

            connection.push_async_callback(server.close)
            self._connections_by_session[server_key] = connection
            self.servers_by_session[server_key] = server

        return self.servers_by_session[server_key]

    def _server_key(self, call: PlannedInteraction) -> str:
        """Return the key of a call's server: its session on pipes; all share a server over HTTP."""
        return call.session if self.target.is_on_pipes else ""

    async def close_server_of(self, call: PlannedInteraction) -> None:
        """Close the server of a call's session, so that the next call gets another one."""
        server_key = self._server_key(call)
        if server_key in self.servers_by_session:
            del self.servers_by_session[server_key]
            await self._connections_by_session.pop(server_key).aclose()

    async def repeat_all(
        self, plan: Sequence[PlannedInteraction]
    ) -> list[VerifiedInteraction]:
        """Repeat the conversations of the run, and return what came of those that are compared."""
        verified = []
        for planned in plan:
            result = await self.repeat_call(planned)
            if result is not None:
                verified.append(result)

        for server in self.servers_by_session.values():
            await server.close()

        for repeated in self.listening_streams:
            verified.append(self.verifier.end_interaction(repeated))

        return [result for result in verified if not result.planned.is_setup]

    async def repeat_call(self, call: PlannedInteraction) -> VerifiedInteraction | None:
        """Repeat one conversation; a listening stream is verified at the end."""
        try:
            server = await self.server_for(call)
            expected_turns = self.verifier.expected_turns
            if not await server.wait_for_due_questions(
                partial(expected_turns.awaits_question_before_call, call)
            ):
                self.verifier.give_up_overdue_turns(call)

            tools = self.verifier.tools.list_needed_for(call)
            if tools is not None:
                await server.follow_conversation(tools)

            repeated = self.verifier.begin_interaction(call)
            if isinstance(repeated, VerifiedInteraction):
                return repeated

            if call.part == "listening":
                repeated.stream = await server.listen(repeated.conversation)
                self.listening_streams.append(repeated)
                return None

            await server.follow_conversation(repeated.conversation)
            await server.wait_for_due_questions(
                partial(expected_turns.awaits_question_of_pending_call, call)
            )
            verified = self.verifier.end_interaction(repeated)
            if call.is_setup or verified.verdict in ("skipped", "not-reached"):
                return verified

            return await self._learn_varying_places(server, verified)
        except MuteServerError:
            raise
        except (UpstreamError, BodyTooLargeError, CassetteError) as error:
            return self.verifier.unreached_interaction(call, str(error))

    async def _learn_varying_places(
        self, server: LiveServer, first_result: VerifiedInteraction
    ) -> VerifiedInteraction:
        """Find what differs by itself; a call that changes nothing is made once more for that."""
        learns = self.options.learn is not None
        differs = any(not change.is_information for _, change in first_result.changes)
        if not learns and not differs:
            return first_result

        second_result: VerifiedInteraction | None = None
        if self.verifier.tools.only_reads(first_result.planned):
            repeated = self.verifier.begin_interaction(first_result.planned)
            has_response = bool(first_result.findings.response_pairs)
            if has_response and isinstance(repeated, RepeatedInteraction):
                await server.follow_conversation(repeated.conversation)
                second_result = repeated.verified_interaction()
        elif learns and first_result.planned.call.method == CALL_TOOL:
            self.findings.untried[call_name(first_result.planned.call)] = None

        places = learned_places(
            first_result,
            second_result,
            ignored_pointers(self.findings.rules, first_result.planned.call),
        )
        if learns:
            return self._leave_out_learned(first_result, places)

        is_written = self.verifier.may_show_written_values(first_result.planned)
        varying_pointers = varying_pointers_in(
            first_result, places, is_written=is_written
        )
        return replace(first_result, varying_places=varying_pointers)

    def _leave_out_learned(
        self, first_result: VerifiedInteraction, places: Sequence[LearnedPlace]
    ) -> VerifiedInteraction:
        """Leave out from now on what has been learned."""
        name_of_call = call_name(first_result.planned.call)
        pointers = []
        refusal_reason = None
        for place in places:
            if (name_of_call, place) not in self.findings.places:
                self.findings.places.append((name_of_call, place))

            if place.reason is None:
                pointers.append(place.pointer)
            elif place.is_unstable:
                refusal_reason = refusal_reason or place.reason

        if pointers:
            self.findings.rules.append(IgnoredPlaces(name_of_call, tuple(pointers)))
            # What has been learned doesn't count in this conversation either.
            first_result = self.verifier.without_newly_ignored(first_result)

        if refusal_reason:
            return replace(first_result, verdict="unstable", reason=refusal_reason)

        return first_result


def differences_of(
    path: Location,
    cassette_of_run: Cassette | None,
    options: VerifyOptions,
    *,
    may_lack_calls: bool,
    is_open: bool,
) -> str | None:
    """Return, as text, what differs where the client of a cassette made its calls again; or None.

    Args:
        cassette_of_run: the recording of that; None where no call was made.
        may_lack_calls: calls that were not made are no difference.
        is_open: the client may still leave, which is no call.

    Raises:
        CassetteError: the cassette can't be read.
        UsageError: what is ignored can't be read.
    """
    recorded_cassette = load_cassette(path)
    if cassette_of_run is None:
        cassette_of_run = replace(recorded_cassette, interactions=())

    run_cassette = replace(cassette_of_run, path="this run")
    rules = rules_of(options)
    comparison = comparison_with_run(
        recorded_cassette,
        run_cassette,
        partial(ignored_pointers, rules),
        may_lack_calls=may_lack_calls,
    )
    numbers_not_due: set[int] = set()
    if is_open:
        numbers_not_due = _numbers_begun_by_no_request(recorded_cassette)

    verdicts = set()
    for compared in comparison.interactions:
        is_missing = compared.mark == "-"
        if compared.mark == "=" or (
            is_missing and compared.recorded in numbers_not_due
        ):
            continue

        verdicts.add(compared.verdict)

    if options.fail_on:
        verdicts.intersection_update(options.fail_on)

    return suite_differences_text(comparison, options.terms) if verdicts else None


def _numbers_begun_by_no_request(cassette: Cassette) -> set[int]:
    """Return the numbers of the interactions that begin with no JSON-RPC request."""
    numbers = set()
    for interaction in cassette.interactions:
        message = interaction.exchanges[0].call.message
        if message is None or message.kind is not Kind.REQUEST:
            numbers.add(interaction.number)

    return numbers


@dataclass(frozen=True, slots=True)
class Update:
    """The result of updating one cassette: verdicts, and which proposals were accepted."""

    verification: Verification
    accepted_proposals: tuple[Proposal, ...]
    left_proposals: tuple[Proposal, ...]
    written_path: Location | None
    cassette: Cassette
    """What was verified, with the live server as the recorded one."""


async def update_cassette(
    path: Location,
    upstream: str | Sequence[str],
    options: VerifyOptions,
    choose: ChooseProposals,
) -> Update:
    """Verify a live server against one cassette, and write accepted changes into it.

    Raises:
        UsageError: the cassette was recorded over another transport than the live server's.
        CassetteError: as to verify; or the file was changed meanwhile, or can't be written.
        UpstreamError: as to verify.
    """
    data = read_file(path)
    cassette = load(data, str(path))
    if is_over_old_transport(cassette):
        problem = (
            f"{path} was recorded over HTTP+SSE, and no changes are taken into such a "
            "cassette"
        )
        hint = "record it again"
        raise UsageError(problem, hint=hint)
    if not _takes_changes(cassette, upstream):
        raise _other_transport(path, upstream)

    accepts = turn_accepter(cassette, choose)
    verification = await _verify_cassette(cassette, upstream, options, accepts)
    proposals = verification.proposed
    accepted_proposals: tuple[Proposal, ...] = ()
    if proposals:
        accepted_proposals = tuple(choose(proposals))

    if accepted_proposals:
        if read_file(path) != data:
            hint = "verify it once more"
            raise CassetteError(path, "it was changed meanwhile", hint=hint)

        publish_cassette(
            path,
            [updated_cassette_file(data, cassette, accepted_proposals)],
            replace=True,
        )

    left_proposals = tuple(
        proposal for proposal in proposals if proposal not in accepted_proposals
    )
    refused_numbers = {
        proposal.number for proposal in left_proposals if proposal.counting_changes
    }
    accepted_numbers = frozenset(proposal.number for proposal in accepted_proposals)
    verification = replace(verification, accepted=accepted_numbers - refused_numbers)
    written_path = path if accepted_proposals else None
    live_cassette = _recorded_from(cassette, upstream, verification.upstream)

    return Update(
        verification, accepted_proposals, left_proposals, written_path, live_cassette
    )


def _recorded_from(
    cassette: Cassette, upstream: str | Sequence[str], shown: str
) -> Cassette:
    """Return a cassette as one of another server, which messages show in this form."""
    if isinstance(upstream, str):
        return replace(cassette, upstream=shown, command=None)
    if cassette.transport == "stdio":
        return replace(cassette, upstream=shown)
    return replace(cassette, command=shown)


def _other_transport(path: Location, upstream: str | Sequence[str]) -> UsageError:
    """Return the error of a cassette that can't take what is said over a server's transport."""
    recorder = "record_again" if isinstance(upstream, str) else "record_started_again"
    recorded = "pipes"
    live = "HTTP"
    if is_on_pipes(upstream):
        recorder = "record_pipe_again"
        recorded = "HTTP"
        live = "pipes"

    return UsageError(
        f"{path} was recorded over {recorded}, and the live server is called over {live}",
        hint=f"verify it over {recorded}, or record it over {live} with: <<{recorder}>>",
        values={"path": str(path)},
    )
