"""The library: what the commands do, from Python.

Rule: the keywords of `record`, `replay`, `verify` and `call` are the fields of their options.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack

import orjson

from mrtr_cassette.core.answers.fulfilment import Sources
from mrtr_cassette.core.answers.given import GivenAnswers, Wanted, WrittenPair
from mrtr_cassette.core.compare.conversations import CassetteComparison, compared
from mrtr_cassette.core.compare.values import check_pointers
from mrtr_cassette.core.protocol.calls import NAMED_BY
from mrtr_cassette.core.report.comparison import Verification
from mrtr_cassette.core.report.misses import MissesError
from mrtr_cassette.core.report.runs import (
    CallResult,
    UnansweredError,
    UnplayedError,
    UnpublishedError,
    unused_text,
)
from mrtr_cassette.core.wire.jsonbytes import parse
from mrtr_cassette.errors import MrtrCassetteError, UsageError
from mrtr_cassette.options import (
    CallOptions,
    Existing,
    FilePath,
    OnMiss,
    Pace,
    ProxyOptions,
    RecordOptions,
    Repeats,
    ReplayOptions,
    RequestStates,
    VerifyOptions,
    default_of,
)
from mrtr_cassette.shell.files import cassettes
from mrtr_cassette.shell.files.cassettes import merge_files
from mrtr_cassette.shell.files.log import Announcer
from mrtr_cassette.shell.files.stores import location
from mrtr_cassette.shell.runs.answerers import load_answers
from mrtr_cassette.shell.runs.background import Proxy, result_in_thread
from mrtr_cassette.shell.runs.calling import call as call_server
from mrtr_cassette.shell.runs.client_starts import (
    recorded_by_client,
    replayed_by_client,
)
from mrtr_cassette.shell.runs.recording import recording
from mrtr_cassette.shell.runs.replaying import replaying
from mrtr_cassette.shell.runs.verifying import verify_cassette
from mrtr_cassette.shell.runs.views import Recording, Replay

Answers = Mapping[str, Any] | FilePath | None
S = TypeVar("S")
T = TypeVar("T")


class _Keywords(TypedDict, total=False):
    host: str
    port: int
    admin_port: int | None
    allow_hosts: Collection[str]
    ignore: Collection[str]
    repeat: Repeats
    log: Callable[[str], None] | None


class ReplayKeywords(_Keywords, total=False):
    """The keywords of `replay`, as types; `ReplayOptions` says what each does."""

    pace: Pace
    stateless: bool
    fail_on_unplayed: bool
    on_miss: OnMiss


class RecordKeywords(_Keywords, total=False):
    """The keywords of `record`, as types; `RecordOptions` says what each does."""

    max_body: int
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


class CallKeywords(TypedDict, total=False):
    """The keywords of `call`, as types; `CallOptions` says what each does."""

    headers: Mapping[str, str] | Sequence[tuple[str, str]]
    ca_file: FilePath | None
    insecure: bool
    max_body: int
    timeout: int
    existing: Existing
    log: Callable[[str], None] | None


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
    return Proxy(partial(_shown_as, Recording, started), _check_recording)


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
    checked = ReplayOptions(**options)
    check = partial(_check_replay, checked)
    if stdio and checked.stateless:
        raise UsageError("stdio and stateless don't go together: a pipe has one process")
    if stdio:
        _refuse_with_pipes(checked, "admin_port")
        started = partial(replayed_by_client, location(path), checked)
        return Proxy(partial(_shown_as, Replay, started), check)
    return Proxy(partial(_shown_as, Replay, partial(replaying, location(path), checked)), check)


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
    with cassettes.without_collection():
        old, new = (cassettes.load_if_any(location(path)) for path in (recorded, received))
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


def call(
    upstream: str | Sequence[str],
    name: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    method: str = "tools/call",
    answers: Answers = None,
    path: FilePath | None = None,
    **options: Unpack[CallKeywords],
) -> CallResult:
    """Make one call on a server, answer what it asks, and return what it came to.

    It returns when the call has ended; a program with an event loop runs it in a thread.

    Args:
        upstream: URL of the server, or its program and arguments, if it is on pipes.
        name: the tool's or prompt's name, or the resource's URI.
        arguments: those of the call.
        method: `tools/call`, `prompts/get` or `resources/read`.
        answers: by the name of a field or the key of a question; or an answers file.
        path: the cassette in which the call is recorded; None where it isn't.
        **options: as in `CallOptions`; `help(mrtr_cassette.CallOptions)` lists them.

    Raises:
        UsageError: an option, an answer or an argument is wrong, or the tool is unknown.
        UnansweredError: nothing answers a question of the server.
        CassetteError: the cassette can't be written, or exists.
    """
    result = answered_call(upstream, name, arguments, method, answers, path, **options)
    if result.unused:
        warnings.warn(unused_text(result.unused), stacklevel=2)
    return result


def answered_call(
    upstream: str | Sequence[str],
    name: str,
    arguments: Mapping[str, Any] | None,
    method: str,
    answers: Answers,
    path: FilePath | None = None,
    **options: Unpack[CallKeywords],
) -> CallResult:
    """Make a call as `call` does, but for the warning."""
    checked = CallOptions(**options)
    if method not in NAMED_BY:
        raise UsageError(f"the method {method!r} is not one of {', '.join(NAMED_BY)}")
    wanted = Wanted(method, name, _pairs_of(arguments or {}, "arguments"))
    calling = call_server(
        upstream,
        wanted,
        _sources_of(answers),
        checked,
        Announcer(checked.log),
        cassette=None if path is None else location(path),
    )
    result = result_in_thread(calling)
    if result.unanswered is not None:
        raise UnansweredError(result)
    return result


def _sources_of(answers: Answers) -> Sources:
    if answers is None:
        return Sources()
    if isinstance(answers, str | os.PathLike):
        return Sources(file=load_answers(Path(answers)))
    return Sources(GivenAnswers(_pairs_of(answers, "answers")))


def _pairs_of(values: Any, what: str) -> tuple[WrittenPair, ...]:
    """Return what a program gives by name, as JSON values.

    Raises:
        UsageError: it is no mapping, or a value is none that JSON has.
    """
    if not isinstance(values, Mapping):
        raise UsageError(f"{what} is {values!r}, and not a mapping of names to values")
    pairs = []
    for name, value in values.items():
        try:
            pairs.append(WrittenPair(name, parse(orjson.dumps(value)), is_json=True))
        except TypeError:
            raise UsageError(f"{what}: {name!r} has no value that JSON can carry") from None
    return tuple(pairs)
