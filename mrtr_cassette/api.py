"""The library: recording, replaying, verifying and comparing from Python.

Rule: the keywords of `record`, `replay` and `verify` are the fields of their option classes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypedDict, TypeVar, Unpack

from mrtr_cassette.core.compare.cassettes import CassetteComparison, compared
from mrtr_cassette.core.compare.changes import check_pointers
from mrtr_cassette.core.exchange.recorded import Cassette
from mrtr_cassette.core.report.failures import MissesError, UnplayedError, UnpublishedError
from mrtr_cassette.core.report.inspection import Interaction, inspected
from mrtr_cassette.core.report.misses import MissReport
from mrtr_cassette.core.report.verification import Verification
from mrtr_cassette.errors import MrtrCassetteError, UsageError
from mrtr_cassette.option_values import FilePath, default_of
from mrtr_cassette.options import (
    Existing,
    OnMiss,
    Pace,
    ProxyOptions,
    RecordOptions,
    Repeats,
    ReplayOptions,
    RequestStates,
)
from mrtr_cassette.shell import cassette_file
from mrtr_cassette.shell.background import Proxy, awaited, result_in_thread
from mrtr_cassette.shell.client_starts import (
    PipedRecording,
    PipedReplay,
    recorded_by_client,
    replayed_by_client,
)
from mrtr_cassette.shell.merging import merge_files
from mrtr_cassette.shell.record_session import RecordSession
from mrtr_cassette.shell.recording import recording
from mrtr_cassette.shell.replaying import ReplaySession, replaying
from mrtr_cassette.shell.stores import location, path_of
from mrtr_cassette.shell.verifying import verify_cassette
from mrtr_cassette.verify_options import VerifyOptions

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _ShownRun:
    """What a recording and a replay have in common."""

    _session: RecordSession | PipedRecording | ReplaySession | PipedReplay

    @property
    def url(self) -> str:
        """What the client connects to."""
        return self._session.url

    @property
    def admin_url(self) -> str | None:
        """Where /livez, /readyz and /metrics are served; None without `admin_port`."""
        session = self._session
        return session.admin_url if isinstance(session, RecordSession | ReplaySession) else None

    @property
    def command(self) -> list[str]:
        """What the client starts as its server, where that is on pipes."""
        return self._session.command

    @property
    def path(self) -> Path:
        """The cassette; a recording writes it when the block ends."""
        return path_of(location(self.place))

    @property
    def place(self) -> str:
        """The same as text: its path, or its URL in a store without the credentials in it."""
        return str(self._session.path)


@dataclass(frozen=True, slots=True)
class Recording(_ShownRun):
    """A recording under way, or done."""

    _session: RecordSession | PipedRecording

    @property
    def interactions(self) -> tuple[Interaction, ...]:
        """What has been recorded so far, with what was on a cassette that is added to."""
        cassette = self._session.recorded()
        return () if cassette is None else _interactions(cassette)

    @property
    def unplayed(self) -> tuple[Interaction, ...]:
        """What is on a cassette that is added to and was not, or not wholly, played so far."""
        session = self._session
        return () if session.earlier is None else _numbered(session.earlier, session.unplayed)

    @property
    def unrecorded(self) -> tuple[str, ...]:
        """Why retries were not recorded: the live server no longer asks what was recorded."""
        return self._session.unrecorded_texts

    @property
    def problem(self) -> str | None:
        """Why the recording is not whole, or None."""
        return self._session.problem

    @property
    def objection(self) -> str | None:
        """Why what was recorded is not published as a cassette, or None."""
        return self._session.objection

    @property
    def unreachable(self) -> int:
        """How many requests the upstream did not answer."""
        return self._session.unreachable


@dataclass(frozen=True, slots=True)
class Replay(_ShownRun):
    """A replay under way, or done."""

    _session: ReplaySession | PipedReplay

    @property
    def problems(self) -> tuple[str, ...]:
        """Why processes that the client started as its server came to nothing."""
        session = self._session
        return tuple(session.problems) if isinstance(session, PipedReplay) else ()

    @property
    def interactions(self) -> tuple[Interaction, ...]:
        """What is on the cassette."""
        return _interactions(self._session.cassette)

    @property
    def played(self) -> int:
        """How many requests got a recorded reply so far."""
        return self._session.played

    @property
    def misses(self) -> tuple[MissReport, ...]:
        """What was asked so far and had not been recorded."""
        return self._session.misses

    @property
    def unplayed(self) -> tuple[Interaction, ...]:
        """What is on the cassette and was not, or not wholly, played so far."""
        return _numbered(self._session.cassette, self._session.unplayed)


class _Keywords(TypedDict, total=False):
    host: str
    port: int
    admin_port: int | None
    allow_hosts: Collection[str]
    allow_origins: Collection[str]
    max_body: int
    ignore: Collection[str]
    repeat: Repeats
    log: Callable[[str], None] | None


class ReplayKeywords(_Keywords, total=False):
    """The keywords of `replay`, as types; `ReplayOptions` says what each does."""

    pace: Pace
    strict: bool
    stateless: bool
    fail_on_unplayed: bool
    on_miss: OnMiss


class RecordKeywords(_Keywords, total=False):
    """The keywords of `record`, as types; `RecordOptions` says what each does."""

    headers: Mapping[str, str] | Sequence[tuple[str, str]]
    match_headers: Collection[str]
    request_state: RequestStates
    redact: Collection[str]
    redact_keys: Collection[str]
    no_redact: Collection[str]
    seal_answers: bool
    answers: FilePath | None
    ca_file: FilePath | None
    insecure: bool
    publish_anyway: bool
    existing: Existing


class VerifyKeywords(TypedDict, total=False):
    """The keywords of `verify`, as types; `VerifyOptions` says what each does."""

    max_body: int
    log: Callable[[str], None] | None
    headers: Mapping[str, str] | Sequence[tuple[str, str]]
    ca_file: FilePath | None
    insecure: bool
    only: Collection[str]
    ignore: Collection[str]
    ignore_from: FilePath | None
    learn: FilePath | None
    allow_destructive: bool
    fail_on: Collection[str]
    timeout: int


def record(
    upstream: str | Sequence[str],
    path: FilePath = "cassette.json",
    *,
    stdio: bool = False,
    **options: Unpack[RecordKeywords],
) -> Proxy[Recording]:
    """Record what passes between a client and a server, in a `with` or an `async with` block.

    The cassette is written when the block ends, also where it ends with an exception, but not if
    every request got an error that is not MCP's, unless `publish_anyway` is true.

    Args:
        upstream: URL of the real server, as the client would name it; or its command.
        path: the cassette to write: a file, or the URL of one in a store.
        stdio: the server is on pipes: `upstream` is its program and arguments, and the client
            starts `command`.
        **options: as in `RecordOptions`; `help(mrtr_cassette.RecordOptions)` lists them.

    Raises:
        UsageError: an option is wrong; or, when the block begins, the address can't be bound.
        CassetteError: when the block begins or ends: the cassette can't be written, or exists.
        UnpublishedError: when the block ends: there were only errors, and no cassette is written.
    """
    checked = RecordOptions(**options)
    if stdio == isinstance(upstream, str):
        raise UsageError(
            f"the upstream {upstream!r} is {'no' if stdio else 'a'} command",
            hint="with stdio=True it is the server's program and arguments, else a URL",
        )
    if stdio:
        _refuse_with_pipes(checked, "admin_port", "answers")
    if isinstance(upstream, str):
        opened = partial(recording, upstream, location(path), checked)
        return Proxy(partial(_shown_as, Recording, opened), _check_recording)
    started = partial(recorded_by_client, upstream, location(path), checked)
    return Proxy(partial(_shown_as, Recording, lambda: awaited(started())), _check_recording)


def replay(
    path: FilePath, *, stdio: bool = False, **options: Unpack[ReplayKeywords]
) -> Proxy[Replay]:
    """Serve a cassette as if it were the server, in a `with` or an `async with` block.

    The client of a request that was not recorded gets an error, and so does the block when it ends
    without another exception, unless `on_miss` is "report".

    Args:
        path: the cassette: a file, or the URL of one in a store.
        stdio: as a server on pipes: the client starts `command`.
        **options: as in `ReplayOptions`; `help(mrtr_cassette.ReplayOptions)` lists them.

    Raises:
        UsageError: an option is wrong; or, when the block begins, the address can't be bound.
        CassetteError: when the block begins: the cassette can't be read.
        MissesError: when the block ends: something was asked that was not recorded.
        UnplayedError: when the block ends: not all was played, with `fail_on_unplayed`.
    """
    return replay_with(path, ReplayOptions(**options), stdio=stdio)


def replay_with(path: FilePath, options: ReplayOptions, *, stdio: bool = False) -> Proxy[Replay]:
    """Serve a cassette as `replay` does, with options that have been checked."""
    check = partial(_check_replay, options)
    if stdio and options.stateless:
        raise UsageError("stdio and stateless don't go together: a pipe has one process")
    if stdio:
        _refuse_with_pipes(options, "admin_port")
        started = partial(replayed_by_client, location(path), options)
        return Proxy(partial(_shown_as, Replay, lambda: awaited(started())), check)
    return Proxy(partial(_shown_as, Replay, partial(replaying, location(path), options)), check)


def _refuse_with_pipes(options: ProxyOptions, *names: str) -> None:
    """Make sure that options are not given that mean something over HTTP only."""
    for name in names:
        if getattr(options, name) != default_of(type(options), name):
            raise UsageError(f"{name} and stdio=True don't go together")


def verify(
    path: FilePath, upstream: str | Sequence[str], **options: Unpack[VerifyKeywords]
) -> Verification:
    """Repeat what a cassette recorded with a live server, and tell what it does differently.

    It returns when all has been compared; a program with an event loop runs it in a thread.

    Args:
        path: the cassette, which is only read: a file, or the URL of one in a store.
        upstream: URL of the server, or the command that starts it: on pipes, or over HTTP where an
            argument has `{port}`.
        **options: as in `VerifyOptions`; `help(mrtr_cassette.VerifyOptions)` lists them.

    Raises:
        UsageError: an option is wrong.
        CassetteError: the cassette can't be read, or not be sent over the server's transport.
        UpstreamError: the command can't be run, or does not listen.
    """
    return verify_with(path, upstream, VerifyOptions(**options))


def verify_with(
    path: FilePath,
    upstream: str | Sequence[str],
    options: VerifyOptions,
    command: Sequence[str] = (),
) -> Verification:
    """Hold a live server to a cassette as `verify` does, with options that have been checked.

    Args:
        command: what has started the server at a URL already, where we have.
    """
    return result_in_thread(verify_cassette(location(path), upstream, options, command))


def _check_recording(recording: Recording) -> None:
    """Raise why a recording that has ended is no cassette."""
    if recording.objection is not None:
        raise UnpublishedError(recording.place, recording.objection)


def _check_replay(options: ReplayOptions, replay: Replay) -> None:
    """Raise what a replay that has ended did wrong."""
    for problem in replay.problems:
        raise MrtrCassetteError(problem)
    if options.on_miss == "raise" and replay.misses:
        raise MissesError(replay.place, replay.misses)
    if options.fail_on_unplayed and replay.unplayed:
        raise UnplayedError(replay.place, replay.unplayed)


@asynccontextmanager
async def _shown_as(
    view: Callable[[S], T], opened: Callable[[], AbstractAsyncContextManager[S]]
) -> AsyncIterator[T]:
    """Run a session of the shell, and give the view of it that users get."""
    async with opened() as session:
        yield view(session)


def _numbered(cassette: Cassette, numbers: Collection[int]) -> tuple[Interaction, ...]:
    wanted = set(numbers)
    return tuple(each for each in _interactions(cassette) if each.number in wanted)


def _interactions(cassette: Cassette) -> tuple[Interaction, ...]:
    return inspected(cassette).interactions


def diff(
    recorded: FilePath, received: FilePath, *, ignore: Collection[str] = ()
) -> CassetteComparison:
    """Compare two cassettes, call by call and turn by turn.

    Args:
        recorded: the first file; the null device stands for one without interactions.
        received: the second file.
        ignore: JSON Pointers into results and questions, at which and below which nothing counts.

    Raises:
        CassetteError: a file is missing or damaged.
        UsageError: what is ignored is no pointer.
    """
    check_pointers(ignore)
    with cassette_file.without_collection():
        old, new = (cassette_file.load_if_any(location(path)) for path in (recorded, received))
        return compared(old, new, ignore)


def merge(
    recordings: Collection[FilePath], path: FilePath, *, existing: Existing = "keep"
) -> tuple[str, ...]:
    """Write one cassette of what several recorders recorded of one service.

    Args:
        recordings: cassettes, journals and pieces of journals, in any order.
        path: the cassette to write.
        existing: "replace" replaces one that exists.

    Returns:
        what to know of it, in words: clocks that were wrong, calls without their beginning.

    Raises:
        CassetteError: a file can't be read, they contradict each other, or the cassette exists.
        UsageError: there is no file, or another value of `existing`.
    """
    if existing not in ("keep", "replace"):
        raise UsageError(f"existing is {existing!r}, and not one of keep, replace")
    files = [location(each) for each in recordings]
    return merge_files(files, location(path), replaces=existing == "replace").notes
