"""The library: what the commands do, from Python; its keywords are the fields of the options."""

# A replay loads no client and no recorder: what else needs them imports them in its functions.

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from mrtr_cassette.core.cassette.texts import cassette_with_references
from mrtr_cassette.core.compare.conversations import (
    CassetteComparison,
    cassette_comparison,
)
from mrtr_cassette.core.report.runs import (
    CallResult,
    MissesError,
    UnplayedError,
    UnpublishedError,
    unmet_faults_text,
    unused_answers_text,
)
from mrtr_cassette.errors import CassetteError, MrtrCassetteError, UsageError
from mrtr_cassette.options import (
    CallOptions,
    Existing,
    FilePath,
    ProbeOptions,
    ProxyOptions,
    RecordOptions,
    ReplayOptions,
    VerifyOptions,
    checked_values,
    default_of,
    options_from,
)
from mrtr_cassette.shell.files import cassettes
from mrtr_cassette.shell.files.stores import (
    Location,
    full_name,
    is_address,
    keep_fetched,
    location_of,
)
from mrtr_cassette.shell.runs.replaying import replaying
from mrtr_cassette.shell.runs.running import Proxy, result_in_thread
from mrtr_cassette.shell.runs.views import Recording, Replay

if TYPE_CHECKING:
    from mrtr_cassette.core.report.comparison import Verification
    from mrtr_cassette.core.report.probes import Probing
    from mrtr_cassette.shell.runs.calling import Answers


def record(
    upstream: str | Sequence[str],
    path: FilePath = "cassette.json",
    *,
    stdio: bool = False,
    **options: Any,
) -> Proxy[Recording]:
    """Record what passes between a client and a server, in a `with` or an `async with` block.

    The cassette is written when the block ends, also where it ends with an exception, but not if
    every request got an error that is not MCP's, unless `publish_anyway` is true.

    Args:
        upstream: URL of the real server, as the client would name it; or the command that starts
            it: on pipes, or over HTTP where an argument has `{port}`.
        path: the cassette to write: a file, or the URL of one in a store.
        stdio: the client speaks over pipes too: it starts `command`, and `upstream` is the program
            and arguments of the server.
        **options: as in `RecordOptions`; `help(mrtr_cassette.RecordOptions)` lists them.

    Raises:
        UsageError: an option is wrong; or, when the block begins, the address can't be bound.
        CassetteError: when the block begins or ends: the cassette can't be written, exists, or
            lacks what `before_record` raised an error for.
        UnpublishedError: when the block ends: there were only errors, and no cassette is written.
    """
    from mrtr_cassette.shell.runs.recording import recording

    checked_options = options_from(RecordOptions, options, "record")
    open_run: Callable[..., Any] = recording
    if stdio:
        if isinstance(upstream, str):
            hint = "with stdio=True it is the server's program and arguments"
            raise UsageError(f"the upstream {upstream!r} is not a command", hint=hint)

        _refuse_with_pipes(checked_options, "admin_port", "answers")
        from mrtr_cassette.shell.runs.client_starts import recorded_by_client

        open_run = recorded_by_client

    open_proxy = partial(open_run, upstream, location_of(path), checked_options)
    return Proxy(open_proxy, Recording, partial(_check_recording, checked_options))


def replay(
    path: FilePath, *beside: FilePath, stdio: bool = False, **options: Any
) -> Proxy[Replay]:
    """Serve a cassette as if it were the server, in a `with` or an `async with` block.

    The client of a request that was not recorded gets an error, and so does the block when it ends
    without another exception, unless `on_miss` is "report". With "stop", all requests after a miss
    get the same error.

    Args:
        path: the cassette: a file, the URL of one in a store, or an address from which it is
            fetched first, such as https://example.com/bug.json#sha256=DIGEST.
        beside: further cassettes, which are played as one with it.
        stdio: as a server on pipes: the client starts `command`.
        **options: as in `ReplayOptions`; `help(mrtr_cassette.ReplayOptions)` lists them.

    Raises:
        UsageError: an option is wrong; or, when the block begins, the address can't be bound.
        CassetteError: when the block begins: the cassette can't be read.
        MissesError: when the block ends: something was asked that was not recorded.
        UnplayedError: when the block ends: not all was played, with `fail_on_unplayed`.
        MrtrCassetteError: when the block ends: nothing met one of the `faults`.
    """
    places = [full_name(_read_place(cassette)) for cassette in beside]
    options["beside"] = [*places, *options.get("beside", ())]
    checked_options = options_from(ReplayOptions, options, "replay")
    place = _read_place(path)
    open_run: Callable[..., Any] = replaying
    if stdio:
        if checked_options.stateless:
            problem = "stdio and stateless don't go together: a pipe has one process"
            raise UsageError(problem)

        _refuse_with_pipes(checked_options, "admin_port")
        from mrtr_cassette.shell.runs.client_starts import replayed_by_client

        open_run = replayed_by_client

    open_proxy = partial(open_run, place, checked_options)
    return Proxy(open_proxy, Replay, partial(_check_replay, checked_options))


def _read_place(path: FilePath | Location) -> Location:
    """Return where a cassette is that is only read; it is fetched if an address names it."""
    if is_address(path):
        from mrtr_cassette.shell.http.fetched import fetch_cassette

        fetched = result_in_thread(fetch_cassette(str(path)))
        path = keep_fetched(fetched.shown, fetched.data)

    return location_of(path)


def _refuse_with_pipes(options: ProxyOptions, *option_names: str) -> None:
    """Raise a `UsageError` if any of the named options, which need HTTP, is not its default."""
    for option_name in option_names:
        if getattr(options, option_name) != default_of(type(options), option_name):
            raise UsageError(f"{option_name} and stdio=True don't go together")


def verify(
    path: FilePath, upstream: str | Sequence[str], **options: Any
) -> Verification:
    """Repeat what a cassette recorded with a live server, and tell what it does differently.

    It returns when all has been compared; a program with an event loop runs it in a thread.

    Args:
        path: the cassette, which is only read: a file, the URL of one in a store, or an address.
        upstream: URL of the server, or the command that starts it: on pipes, or over HTTP where an
            argument has `{port}`.
        **options: as in `VerifyOptions`; `help(mrtr_cassette.VerifyOptions)` lists them.

    Raises:
        UsageError: an option is wrong.
        CassetteError: the cassette can't be read, or not be sent over the server's transport.
        UpstreamError: the command can't be run, or does not listen.
    """
    from mrtr_cassette.shell.runs.verifying import (
        check_selection_and_values_fit,
        verify_cassette,
    )

    checked_options = options_from(VerifyOptions, options, "verify")
    place = _read_place(path)
    check_selection_and_values_fit([place], checked_options.only, checked_options.texts)

    return result_in_thread(verify_cassette(place, upstream, checked_options))


def probe(path: FilePath, upstream: str | Sequence[str], **options: Any) -> Probing:
    """Answer the recorded questions of a live server in ways that nobody recorded.

    It returns when all has been probed; a program with an event loop runs it in a thread.

    Args:
        path: the cassette, which is only read: a file, the URL of one in a store, or an address.
        upstream: URL of the server, or the command that starts it: on pipes, or over HTTP where an
            argument has `{port}`.
        **options: as in `ProbeOptions`; `help(mrtr_cassette.ProbeOptions)` lists them.

    Raises:
        UsageError: an option is wrong, or a file can't be read.
        CassetteError: the cassette can't be read, or not be sent over the server's transport.
        UpstreamError: the command can't be run, or does not listen.
    """
    from mrtr_cassette.shell.runs.probing import probe_cassette
    from mrtr_cassette.shell.runs.verifying import check_selection_and_values_fit

    checked_options = options_from(ProbeOptions, options, "probe")
    place = _read_place(path)
    check_selection_and_values_fit([place], checked_options.only, checked_options.texts)

    return result_in_thread(probe_cassette(place, upstream, checked_options))


def _check_recording(options: RecordOptions, recording: Recording) -> None:
    """Raise an error if a recording was not published, or is incomplete with `before_record`."""
    if recording.objection is not None:
        raise UnpublishedError(recording.place, recording.objection)
    if options.before_record is not None and recording.problem is not None:
        reason = f"the recording is incomplete: {recording.problem}"
        raise CassetteError(recording.place, reason)

    _warn_of_unused(recording)


def _warn_of_unused(view: Recording | Replay) -> None:
    """Warn of the values of options that matched nothing in a recording or a replay."""
    for name, value in view.unused_options or ():
        warnings.warn(f"{name} {value!r} matched nothing in {view.place}", stacklevel=2)


def _check_replay(options: ReplayOptions, replay: Replay) -> None:
    """Raise an error for a problem, unmet faults and, by the options, misses and unplayed calls."""
    if replay.problem is not None:
        raise MrtrCassetteError(replay.problem)
    if options.on_miss != "report" and replay.misses:
        raise MissesError(replay.place, replay.misses)

    unmet_faults = unmet_faults_text(replay.faults)
    if unmet_faults is not None:
        raise MrtrCassetteError(unmet_faults)
    if options.fail_on_unplayed and replay.unplayed:
        raise UnplayedError(replay.place, replay.unplayed)

    _warn_of_unused(replay)


def diff(
    recorded: FilePath | Location,
    received: FilePath | Location,
    *,
    ignore: Collection[str] = (),
    ignore_from: FilePath | None = None,
    masks: Collection[str] = (),
    values: Any = (),
) -> CassetteComparison:
    """Compare two cassettes, call by call and turn by turn.

    Args:
        recorded: the first one, as for `verify`; the null device is one without interactions.
        ignore: JSON Pointers into params and results, at which and below which nothing counts.
        ignore_from: a file that names such places, as `verify` takes it.
        masks: regular expressions; what they match within a text doesn't count.
        values: texts by name, which count as the value in a cassette that doesn't know the name.

    Raises:
        CassetteError: a file is missing or damaged.
        UsageError: what is ignored is no pointer, or its file can't be read.
    """
    from mrtr_cassette.shell.files.ignored import ignored_for_options

    ignored_for = ignored_for_options(ignore, ignore_from, masks)
    with cassettes.without_garbage_collection():
        old = cassettes.load_unless_null_device(_read_place(recorded))
        new = cassettes.load_unless_null_device(_read_place(received))
        texts = dict(checked_values(values))
        old = cassette_with_references(old, texts)
        new = cassette_with_references(new, texts)

        return cassette_comparison(old, new, ignored_for)


def merge(
    recordings: Collection[FilePath], path: FilePath, *, existing: Existing = "keep"
) -> tuple[str, ...]:
    """Write one cassette of what several recorders recorded of one service.

    Args:
        recordings: cassettes and journals, in any order.
        existing: "replace" replaces one that exists.

    Returns:
        sentences on what to know of it, such as clocks that were wrong.

    Raises:
        CassetteError: a file can't be read, they contradict each other, or the cassette exists.
        UsageError: there is no file, or another value of `existing`.
    """
    if existing not in ("keep", "replace"):
        raise UsageError(f"existing is {existing!r}, and not one of keep, replace")

    from mrtr_cassette.shell.files.journals import merge_files

    files = [location_of(recording) for recording in recordings]
    return merge_files(files, location_of(path), replaces=existing == "replace")[1]


def call(
    upstream: str | Sequence[str],
    name: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    method: str = "tools/call",
    answers: Answers = None,
    path: FilePath | None = None,
    **options: Any,
) -> CallResult:
    """Make one call on a server, answer what it asks, and return what it came to.

    It returns when the call has ended; a program with an event loop runs it in a thread.

    Args:
        upstream: URL of the server, or the command that starts it: on pipes, or over HTTP where an
            argument has `{port}`.
        name: the tool's or prompt's name, or the resource's URI.
        method: `tools/call`, `prompts/get` or `resources/read`.
        answers: by the name of a field or the key of a question; or an answers file.
        path: the cassette in which the call is recorded; None where it isn't.
        **options: as in `CallOptions`; `help(mrtr_cassette.CallOptions)` lists them.

    Raises:
        UsageError: an option, an answer or an argument is wrong, or the tool is unknown.
        UnansweredError: nothing answers a question of the server.
        CassetteError: the cassette can't be written, or exists.
    """
    from mrtr_cassette.shell.runs.calling import answered_call

    checked_options = options_from(CallOptions, options, "call")
    result = answered_call(
        upstream, name, arguments, method, answers, path=path, options=checked_options
    )
    if result.unused:
        warnings.warn(unused_answers_text(result.unused), stacklevel=2)

    return result
