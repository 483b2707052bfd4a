"""Verify a live server against a cassette, and accept its changes into it."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from mrtr_cassette.core.cassette.load import load
from mrtr_cassette.core.cassette.old_transport import is_over_old_transport, over_lines
from mrtr_cassette.core.cassette.recorded import Cassette, RecordedInteraction
from mrtr_cassette.core.cassette.sessions import rejoined
from mrtr_cassette.core.cassette.transports import over_http, over_pipes
from mrtr_cassette.core.compare.conversations import held_to
from mrtr_cassette.core.compare.values import WORD
from mrtr_cassette.core.drive.ignored import (
    IgnoredPlaces,
    Learned,
    call_name,
    ignored_in,
    learned,
    write_ignored,
)
from mrtr_cassette.core.drive.plan import (
    Planned,
    check_patterns,
    planned,
    planned_by_run,
)
from mrtr_cassette.core.drive.updating import (
    Choose,
    Proposal,
    accepted,
    accepting,
    proposals,
)
from mrtr_cassette.core.drive.verification import (
    Accepts,
    Repeated,
    VerifiedInteraction,
    Verifier,
)
from mrtr_cassette.core.protocol.calls import session_of
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.protocol.methods import CALL_TOOL
from mrtr_cassette.core.report.comparison import Verification, held_text
from mrtr_cassette.core.secrets.credentials import Given
from mrtr_cassette.core.secrets.redact import keyed_hash
from mrtr_cassette.core.secrets.rules import BUILT_IN
from mrtr_cassette.errors import (
    BodyTooLargeError,
    CassetteError,
    UpstreamError,
    UsageError,
)
from mrtr_cassette.options import VerifyOptions
from mrtr_cassette.shell.files.cassettes import (
    load_cassette,
    load_if_readable,
    publish,
    read_file,
)
from mrtr_cassette.shell.files.disk import reason_of, write_whole
from mrtr_cassette.shell.files.ignored import read_rules
from mrtr_cassette.shell.files.stores import Location
from mrtr_cassette.shell.pipes.upstream import over_old_transport
from mrtr_cassette.shell.runs.live_server import LiveServer
from mrtr_cassette.shell.runs.upstreams import (
    NOT_FOUND,
    Target,
    is_on_pipes,
    nothing_at,
    reaching,
)


def check_selection(paths: Sequence[Location], only: Collection[str]) -> None:
    """Make sure that what selects calls fits some of those cassettes that can be read.

    Raises:
        UsageError: it fits none.
    """
    interactions: list[RecordedInteraction] = []
    for path in paths if only else ():
        cassette = load_if_readable(path)
        interactions += cassette.interactions if cassette else ()
    if interactions:
        check_patterns(interactions, tuple(only))


async def verify_cassette(
    path: Location, upstream: str | Sequence[str], options: VerifyOptions
) -> Verification:
    """Verify a live server against one cassette.

    Raises:
        UsageError: the upstream is no URL and no command, or what is ignored can't be read.
        CassetteError: the cassette can't be read, or not be sent over the server's transport.
        UpstreamError: the command can't be run, or does not listen.
    """
    return await _held(load(read_file(path), str(path)), upstream, options)


async def _held(
    cassette: Cassette,
    upstream: str | Sequence[str],
    options: VerifyOptions,
    accepts: Accepts | None = None,
) -> Verification:
    options.check_secrets()
    found = _Found(read_rules(options.ignore, options.ignore_from, options.learn))
    recorded = rejoined(_as_sent(cassette, upstream))
    is_old = is_over_old_transport(cassette)
    can_be_taken = _takes_changes(cassette, upstream)
    shown = ""
    for plan in _plans(
        recorded, upstream, options, is_piped=is_old or is_on_pipes(upstream)
    ):
        reached = reaching(upstream, options, cassette.redaction or BUILT_IN, cassette)
        async with reached as target, AsyncExitStack() as stack:
            shown = target.command or target.name
            part = replace(recorded, interactions=_interactions_of(plan))
            verifier = _verifier(part, target, options, found.rules, accepts)
            server = _over_lines(target) if is_old else target
            run = _Run(verifier, server, options, stack, found)
            found.verified += await run.all(plan)
            _check_path(found.verified, target, shown)
    if options.learn is not None:
        _keep_learned(Path(options.learn), found.places)
    verified = tuple(sorted(found.verified, key=lambda interaction: interaction.number))
    return Verification(
        cassette.path,
        shown,
        verified,
        frozenset(options.fail_on),
        tuple(found.places),
        untried=tuple(found.untried),
        # What came over another transport can't stand in the cassette.
        proposed=tuple(proposals(cassette, verified)) if can_be_taken else (),
        varying=tuple(found.varying),
    )


def _takes_changes(cassette: Cassette, upstream: str | Sequence[str]) -> bool:
    """Tell whether responses of a live server can stand in a cassette.

    A session over HTTP has streams and an end that pipes have not.
    """
    if is_on_pipes(upstream) is (cassette.transport == "stdio"):
        return True
    exchanges = [
        each for interaction in cassette.interactions for each in interaction.own
    ]
    has_session = any(session_of(exchange.request) for exchange in exchanges)
    return is_on_pipes(upstream) and not has_session


def _as_sent(cassette: Cassette, upstream: str | Sequence[str]) -> Cassette:
    """Return a cassette as one of the transport of a live server."""
    if is_over_old_transport(cassette):
        return over_lines(cassette)
    return over_pipes(cassette) if is_on_pipes(upstream) else over_http(cassette)


def _plans(
    cassette: Cassette,
    upstream: str | Sequence[str],
    options: VerifyOptions,
    *,
    is_piped: bool,
) -> list[list[Planned]]:
    """Return what is repeated, apart for each server that is started."""
    plan = planned(cassette, tuple(options.only), is_on_pipes=is_piped)
    if cassette.command is None or isinstance(upstream, str):
        return [plan]
    return planned_by_run(plan, cassette.recorders) or [plan]


def _interactions_of(plan: Sequence[Planned]) -> tuple[RecordedInteraction, ...]:
    return tuple(dict.fromkeys([call.interaction for call in plan]))


def _check_path(
    verified: Sequence[VerifiedInteraction], target: Target, shown: str
) -> None:
    """Make sure that the server has something at the path: that not all is 404."""
    sent = [interaction for interaction in verified if interaction.verdict != "skipped"]
    last = [
        interaction.pairs[-1].live.response for interaction in sent if interaction.pairs
    ]
    statuses = {response.status for response in last if response is not None}
    are_unreached = all(interaction.verdict == "not-reached" for interaction in sent)
    if are_unreached and statuses == {NOT_FOUND}:
        raise nothing_at(target.path, shown, is_started=target.command is not None)


def _verifier(
    cassette: Cassette,
    target: Target,
    options: VerifyOptions,
    rules: list[IgnoredPlaces],
    accepts: Accepts | None,
) -> Verifier:
    verifier = Verifier(
        cassette,
        target.path,
        partial(ignored_in, rules),
        token_of=keyed_hash(os.urandom(16)),
        allows_destructive=options.allow_destructive,
        largest_body=options.max_body,
        accepts=accepts,
    )
    verifier.was_given(Given(secrets=options.secrets))
    return verifier


def _over_lines(target: Target) -> Target:
    """Return how a server that may speak HTTP+SSE is reached by lines."""
    if target.is_on_pipes:
        return target
    connecting, headers = target.connecting, target.given.headers
    connected = over_old_transport(connecting, target.path, target.origin, headers)
    return replace(target, connecting=connected, is_on_pipes=True)


def _keep_learned(path: Path, places: Sequence[tuple[str, Learned]]) -> None:
    """Add what was learned to the file."""
    by_call: dict[str, list[str]] = {}
    for call, place in places:
        if place.reason is None:
            by_call.setdefault(call, []).append(place.pointer)
    if not by_call:
        return
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        for call, pointers in by_call.items():
            text = write_ignored(text, call, pointers)
        write_whole(path, [text.encode()], replace=True)
    except OSError as error:
        raise UsageError(
            f"can't write what was learned to {path}: {reason_of(error)}"
        ) from None


@dataclass(eq=False, slots=True)
class _Found:
    """What the runs of one verification share: rules, and what came of it so far."""

    rules: list[IgnoredPlaces]
    verified: list[VerifiedInteraction] = field(default_factory=list)
    places: list[tuple[str, Learned]] = field(default_factory=list)
    untried: dict[str, None] = field(default_factory=dict)
    varying: dict[str, None] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class _Run:
    """A run of the recorder and its live server, while they are compared."""

    verifier: Verifier
    target: Target
    options: VerifyOptions
    stack: AsyncExitStack
    found: _Found
    servers: dict[str, LiveServer] = field(default_factory=dict, init=False)
    listening: list[Repeated] = field(default_factory=list, init=False)

    async def _server(self, each: Planned) -> LiveServer:
        key = each.session if self.target.is_on_pipes else ""
        if key not in self.servers:
            connected = self.target.connecting(self.verifier.was_given)
            upstream = await self.stack.enter_async_context(connected)
            target, seconds = self.target, float(self.options.timeout)
            server = LiveServer(upstream, target.origin, target.given.headers, seconds)
            self.stack.push_async_callback(server.close)
            self.servers[key] = server
        return self.servers[key]

    async def all(self, plan: Sequence[Planned]) -> list[VerifiedInteraction]:
        """Repeat the conversations of the run, and return what came of those that are compared."""
        repeated = [await self.one(each) for each in plan]
        for server in self.servers.values():
            await server.close()
        verified = [each for each in repeated if each is not None]
        verified += [self.verifier.ended(each) for each in self.listening]
        return [each for each in verified if not each.planned.is_brought]

    async def one(self, each: Planned) -> VerifiedInteraction | None:
        """Repeat one conversation; a listening stream is verified at the end."""
        try:
            server = await self._server(each)
            if not await server.asked(partial(self.verifier.awaits, each)):
                self.verifier.give_up(each)
            tools = self.verifier.tools_for(each)
            if tools is not None:
                await server.follow(tools)
            repeated = self.verifier.begin(each)
            if isinstance(repeated, VerifiedInteraction):
                return repeated
            if each.part == "listening":
                repeated.stream = await server.listen(repeated.conversation)
                self.listening.append(repeated)
                return None
            await server.follow(repeated.conversation)
            await server.asked(partial(self.verifier.awaits_more, each))
            verified = self.verifier.ended(repeated)
            if each.is_brought or verified.verdict in ("skipped", "not-reached"):
                return verified
            return await self._called_again(server, verified)
        except (UpstreamError, BodyTooLargeError, CassetteError) as error:
            return self.verifier.failed(each, str(error))

    async def _called_again(
        self, server: LiveServer, first: VerifiedInteraction
    ) -> VerifiedInteraction:
        """Find what differs by itself; a call that changes nothing is made once more for that."""
        learns = self.options.learn is not None
        differs = any(not change.is_information for _, change in first.changes)
        if not learns and not differs:
            return first
        again: VerifiedInteraction | None = None
        if self.verifier.only_reads(first.planned):
            repeated = self.verifier.begin(first.planned)
            if isinstance(repeated, Repeated) and first.pairs:
                await server.follow(repeated.conversation)
                again = repeated.verified()
        elif learns and first.planned.call.method == CALL_TOOL:
            self.found.untried[call_name(first.planned.call)] = None
        places = learned(first, again, ignored_in(self.found.rules, first.planned.call))
        return self._learned(first, places) if learns else self._noted(first, places)

    def _noted(
        self, first: VerifiedInteraction, places: Sequence[Learned]
    ) -> VerifiedInteraction:
        """Note where two calls differ, of what differs from the recording."""
        differing = {change.pointer for _, change in first.changes}
        for place in places:
            is_varying = place.is_unstable and place.reason is None
            if is_varying and place.pointer.partition(WORD)[0] in differing:
                self.found.varying[place.pointer] = None
        return first

    def _learned(
        self, first: VerifiedInteraction, places: Sequence[Learned]
    ) -> VerifiedInteraction:
        """Leave out from now on what has been learned."""
        name = call_name(first.planned.call)
        known = self.found.places
        known += [(name, place) for place in places if (name, place) not in known]
        pointers = tuple(place.pointer for place in places if place.reason is None)
        refused = [
            place.reason for place in places if place.is_unstable and place.reason
        ]
        if pointers:
            self.found.rules.append(IgnoredPlaces(name, pointers))
            # What has been learned doesn't count in this conversation either.
            first = self.verifier.verified_again(first)
        return (
            replace(first, verdict="unstable", reason=refused[0]) if refused else first
        )


def differences_of(
    path: Location,
    repeated: Cassette | None,
    options: VerifyOptions,
    *,
    is_part: bool,
    is_open: bool = False,
) -> str | None:
    """Return, as text, what differs where the client of a cassette made its calls again; or None.

    Args:
        repeated: the recording of that; None where no call was made.
        is_part: calls that were not made are no difference.
        is_open: the client may still leave, which is no call.

    Raises:
        CassetteError: the cassette can't be read.
        UsageError: what is ignored can't be read.
    """
    recorded = load_cassette(path)
    made = replace(repeated or replace(recorded, interactions=()), path="this run")
    rules = read_rules(options.ignore, options.ignore_from, options.learn)
    ignored_for = partial(ignored_in, rules)
    comparison = held_to(recorded, made, ignored_for, is_part=is_part)
    differing = [each for each in comparison.interactions if each.mark != "="]
    if is_open:
        calls = {each.number for each in recorded.interactions if _is_request(each)}
        differing = [
            each for each in differing if each.mark != "-" or each.recorded in calls
        ]
    verdicts = {each.verdict for each in differing}
    fails = verdicts.intersection(options.fail_on) if options.fail_on else verdicts
    return held_text(comparison, options.terms) if fails else None


def _is_request(interaction: RecordedInteraction) -> bool:
    message = interaction.exchanges[0].call.message
    return message is not None and message.kind is Kind.REQUEST


@dataclass(frozen=True, slots=True)
class Update:
    """The result of updating one cassette: verdicts, and which proposals were accepted."""

    verification: Verification
    accepted: tuple[Proposal, ...]
    left: tuple[Proposal, ...]
    written: Location | None


async def update_cassette(
    path: Location,
    upstream: str | Sequence[str],
    options: VerifyOptions,
    choose: Choose,
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
        raise UsageError(
            f"{path} was recorded over HTTP+SSE, and no changes are taken into such a cassette",
            hint="record it again",
        )
    if not _takes_changes(cassette, upstream):
        raise UsageError(
            f"{path} was recorded over another transport than that of the live server",
            hint="verify it over that one, or record it again",
        )
    accepts = accepting(cassette, choose)
    verification = await _held(cassette, upstream, options, accepts)
    proposed = verification.proposed
    chosen = tuple(choose(proposed)) if proposed else ()
    if chosen:
        if read_file(path) != data:
            raise CassetteError(
                path, "it was changed meanwhile", hint="verify it once more"
            )
        publish(path, [accepted(data, cassette, chosen)], replace=True)
    left = tuple(proposal for proposal in proposed if proposal not in chosen)
    refused = {proposal.number for proposal in left if proposal.counting}
    taken = frozenset(proposal.number for proposal in chosen)
    verification = replace(verification, accepted=taken - refused)
    return Update(verification, chosen, left, path if chosen else None)
