"""Verifying: a live server is held to a cassette.

Rule: a cassette is only read.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from mrtr_cassette.core.drive.ignored import (
    IgnoredPlaces,
    call_name,
    ignored_in,
    read_ignored,
    write_ignored,
)
from mrtr_cassette.core.drive.learning import Learned, learned
from mrtr_cassette.core.drive.plan import Planned, planned
from mrtr_cassette.core.drive.verification import Repeated, Verified, Verifier
from mrtr_cassette.core.exchange.recorded import Cassette
from mrtr_cassette.core.exchange.sessions import rejoined
from mrtr_cassette.core.exchange.transports import over_http, over_pipes
from mrtr_cassette.core.format.load import load
from mrtr_cassette.core.report.verification import Verification, verification_of
from mrtr_cassette.core.secrets.redact import keyed_hash
from mrtr_cassette.core.secrets.rules import BUILT_IN
from mrtr_cassette.errors import BodyTooLargeError, CassetteError, UpstreamError, UsageError
from mrtr_cassette.shell.background import awaited
from mrtr_cassette.shell.cassette_file import read_file
from mrtr_cassette.shell.files import reason_of, write_whole
from mrtr_cassette.shell.live_server import LiveServer
from mrtr_cassette.shell.stores import Location
from mrtr_cassette.shell.upstream_servers import PORT, running_command
from mrtr_cassette.shell.upstream_target import Target, target_of
from mrtr_cassette.verify_options import VerifyOptions


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """One cassette to which a live server was held.

    Attributes:
        data: the bytes of its file.
        cassette: the same, loaded.
        verified: what came of each interaction.
        verification: the same as a report.
        is_of_transport: the live server was called over the transport of the recording.
    """

    data: bytes
    cassette: Cassette
    verified: tuple[Verified, ...]
    verification: Verification
    is_of_transport: bool


async def verify_cassette(
    path: Location,
    upstream: str | Sequence[str],
    options: VerifyOptions,
    command: Sequence[str] = (),
) -> Verification:
    """Hold a live server to one cassette; the arguments and errors are those of `hold`."""
    return (await hold(path, upstream, options, command)).verification


async def hold(
    path: Location,
    upstream: str | Sequence[str],
    options: VerifyOptions,
    command: Sequence[str] = (),
) -> Held:
    """Hold a live server to one cassette, and return all that came of it.

    Args:
        upstream: URL of the server, or the command that starts it; one with `{port}` serves HTTP.
        command: what has started the server at a URL already, where we have.

    Raises:
        UsageError: the upstream is no URL and no command, or what is ignored can't be read.
        CassetteError: the cassette can't be read, or not be sent over the server's transport.
        UpstreamError: the command can't be run, or does not listen.
    """
    data = read_file(path)
    cassette = load(data, str(path))
    rules = read_rules(options)
    async with AsyncExitStack() as stack:
        if not isinstance(upstream, str) and any(PORT in part for part in upstream):
            command, running = upstream, awaited(running_command(upstream, Path.cwd()))
            upstream = (await stack.enter_async_context(running)).url
        target = target_of(upstream, options, cassette.redaction or BUILT_IN, command)
        run = _Run(cassette, target, options, rules, stack)
        verified = await run.all()
        if options.learn is not None:
            _keep_learned(Path(options.learn), run.places)
        name = target.origin if target.is_on_pipes else target.name
        verification = verification_of(str(path), name, verified, options.fail_on, run.places)
        is_of_transport = target.is_on_pipes is (cassette.transport == "stdio")
        return Held(data, cassette, tuple(verified), verification, is_of_transport)


def _keep_learned(path: Path, places: Sequence[tuple[str, Learned]]) -> None:
    """Add what was learned to the file.

    Raises:
        UsageError: it can't be written.
    """
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
        raise UsageError(f"can't write what was learned to {path}: {reason_of(error)}") from None


def read_rules(options: VerifyOptions) -> list[IgnoredPlaces]:
    """Return what doesn't count, by the options and by the files that they name.

    Raises:
        UsageError: a file can't be read.
    """
    rules = [IgnoredPlaces("*", tuple(options.ignore))]
    files = [options.ignore_from, options.learn]
    for path in [Path(file) for file in files if file is not None]:
        try:
            rules += read_ignored(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            if path != (None if options.learn is None else Path(options.learn)):
                raise UsageError(f"<<ignore_from>>: there is no file {path}") from None
        except (OSError, ValueError) as error:
            reason = reason_of(error) if isinstance(error, OSError) else str(error)
            raise UsageError(f"can't read what {path} ignores: {reason}") from None
    return rules


@dataclass(eq=False, slots=True)
class _Run:
    """One cassette and one live server, while they are compared."""

    recorded: Cassette
    target: Target
    options: VerifyOptions
    rules: list[IgnoredPlaces]
    stack: AsyncExitStack
    verifier: Verifier = field(init=False)
    places: list[tuple[str, Learned]] = field(default_factory=list, init=False)
    _servers: dict[str, LiveServer] = field(default_factory=dict, init=False)
    _listening: list[Repeated] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        """Have the cassette in the form of the server's transport."""
        is_on_pipes = self.target.is_on_pipes
        cassette = over_pipes(self.recorded) if is_on_pipes else over_http(self.recorded)
        self.verifier = Verifier(
            rejoined(cassette),
            self.target.path,
            partial(ignored_in, self.rules),
            token_of=keyed_hash(os.urandom(16)),
            allows_destructive=self.options.allow_destructive,
            largest_body=self.options.max_body,
        )

    async def all(self) -> list[Verified]:
        """Repeat all conversations, in recorded order."""
        plan = planned(
            self.verifier.cassette, tuple(self.options.only), is_on_pipes=self.target.is_on_pipes
        )
        verified = [await self._one(each) for each in plan]
        for server in self._servers.values():
            await server.close()
        return [
            *(each for each in verified if each is not None),
            *(self.verifier.ended(each) for each in self._listening),
        ]

    async def _server(self, each: Planned) -> LiveServer:
        """Return the live server of a session: over pipes each session is one start of it."""
        key = each.session if self.target.is_on_pipes else ""
        if key not in self._servers:
            upstream = await self.stack.enter_async_context(self.target.connecting(self.verifier))
            seconds = float(self.options.timeout)
            server = LiveServer(upstream, self.target.origin, self.target.headers, seconds)
            self._servers[key] = server
        return self._servers[key]

    async def _one(self, each: Planned) -> Verified | None:
        """Repeat one interaction; None stands for a listening stream, which is still heard."""
        try:
            server = await self._server(each)
            tools = self.verifier.tools_for(each)
            if tools is not None:
                await server.follow(tools)
            repeated = self.verifier.begin(each)
            if isinstance(repeated, Verified):
                return repeated
            if each.part == "listening":
                repeated.has_begun(await server.listen(repeated.conversation))
                self._listening.append(repeated)
                return None
            return await self._followed(server, repeated)
        except (UpstreamError, BodyTooLargeError, CassetteError) as error:
            return self.verifier.failed(each, str(error))

    async def _followed(self, server: LiveServer, repeated: Repeated) -> Verified:
        """Repeat a conversation."""
        await server.follow(repeated.conversation)
        verified = self.verifier.ended(repeated)
        if self.options.learn is not None and self.verifier.only_reads(repeated.planned):
            return await self._learned(server, verified)
        return verified

    async def _learned(self, server: LiveServer, first: Verified) -> Verified:
        """Have a conversation that only reads once more, and learn what differs by itself."""
        again = self.verifier.begin(first.planned)
        if not isinstance(again, Repeated) or not first.live:
            return first
        await server.follow(again.conversation)
        name = call_name(first.planned.call)
        ignored = ignored_in(self.rules, first.planned.call)
        places = learned(first, again.verified(), ignored)
        self.places += [(name, place) for place in places if (name, place) not in self.places]
        pointers = tuple(place.pointer for place in places if place.reason is None)
        refused = [place.reason for place in places if place.reason is not None]
        if pointers:
            self.rules.append(IgnoredPlaces(name, pointers))
            # What has been learned doesn't count in this conversation either.
            first = self.verifier.verified_again(first)
        return self.verifier.unstable(first, refused[0]) if refused else first
