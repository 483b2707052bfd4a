"""The commands `record` and `replay`, and those that let a client start one of the two."""

# A replay loads no client and no recorder: what records imports them in its functions, and what
# concludes the reports.

from __future__ import annotations

import asyncio
import gc
import os
import shlex
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import click

from mrtr_cassette.cli.common import (
    CASSETTE,
    FILE,
    TERMS,
    Listening,
    Log,
    is_given,
    log_option,
    places_argument,
    print_annotations,
    read_options,
    refuse_misplaced,
    refuse_without_scheme,
    report_option,
    shared_options,
    tell_of_journal,
    tell_unused,
    warn_of_path,
    with_fetched,
    with_free_port,
    write_reports,
)
from mrtr_cassette.cli.group import TakesCommand, after_dashes, say, tell
from mrtr_cassette.core.cassette.client_config import (
    has_wrapped_server,
    unwrapped_config,
    wrapped_config,
)
from mrtr_cassette.core.secrets.credentials import text_redactor
from mrtr_cassette.core.secrets.rules import BUILT_IN_RULES
from mrtr_cassette.errors import CassetteError, UpstreamError, UsageError
from mrtr_cassette.options import (
    AnyOptions,
    ListeningOptions,
    RecordOptions,
    ReplayOptions,
    default_of,
    options_of,
)
from mrtr_cassette.shell.files.cassettes import (
    cassette_exists,
    cassettes_in,
    load_cassette,
    unpublished_warning,
    without_garbage_collection,
)
from mrtr_cassette.shell.files.disk import change_config
from mrtr_cassette.shell.files.log import BackgroundCaller
from mrtr_cassette.shell.files.stores import Location, full_name, path_of
from mrtr_cassette.shell.http.access import is_loopback
from mrtr_cassette.shell.pipes.commands import credentials_given_to
from mrtr_cassette.shell.runs.proxy_runs import ProxyRun, ReplayRun
from mrtr_cassette.shell.runs.replaying import replaying
from mrtr_cassette.shell.runs.running import (
    URL_VARIABLE,
    CommandEnd,
    run,
    run_command,
    stop_signals,
)
from mrtr_cassette.shell.runs.sites import PortSite
from mrtr_cassette.terms import Terms, shell_command, shell_words

if TYPE_CHECKING:
    from mrtr_cassette.shell.runs.journaling import RecordingRun

_Run = TypeVar("_Run", bound=ProxyRun)

_DRAIN_S: Final = 10.0
"""Seconds that requests under way have to end when a stateless replay does."""

_LOG_S: Final = 1.0
"""Seconds that a log has for what is still to be said when a run ends."""

_HTTP_ONLY: Final = frozenset(
    {
        "admin_port",
        "allow_hosts",
        "answers",
        "ca_file",
        "headers",
        "host",
        "insecure",
        "port",
        "stateless",
    }
)


@click.command(cls=TakesCommand, program="CLIENT")
@click.argument("words", nargs=-1, metavar="[URL]")
@click.option(
    "--upstream",
    metavar="URL|COMMAND",
    help="The real server, as the client would name it; or what starts one on pipes, such as "
    "'python server.py', which clients call over HTTP.",
)
@click.option(
    "--stdio",
    is_flag=True,
    help="Record between stdin and stdout and the server that -- SERVER starts.",
)
@click.option(
    "-o",
    "--output",
    default="cassette.json",
    show_default=True,
    type=CASSETTE,
    metavar="CASSETTE",
    help="The cassette to write: a file, or an object in a store such as s3://bucket/name.json.",
)
@click.option(
    "--next",
    "takes_next",
    is_flag=True,
    help="With --stdio: record each further start of the server to a file of its own, such as "
    "cassette-2.json.",
)
@shared_options(RecordOptions)
@log_option
@report_option("Write a summary of the recording, with redactions by call", ".json")
@click.pass_context
def record(
    context: click.Context,
    /,
    words: tuple[str, ...],
    upstream: str | None,
    output: Location,
    log: Log,
    reports: tuple[Path, ...],
    *,
    stdio: bool,
    takes_next: bool,
    **given_options: Any,
) -> None:
    """Record what passes between client and server.

    The server is at URL, or what --upstream says. Point the client at the address that is printed,
    do what is to be recorded, and stop with Ctrl-C: the cassette is written then. With -- CLIENT
    it stops when that command ends, which finds the address in the environment variable
    MRTR_CASSETTE_URL. A command that failed leaves no cassette, and neither do requests that got
    only errors such as 404. With --append the upstream is called only for what the cassette lacks;
    --ignore, --repeat, --history and --reads say what that is.

    With --stdio it takes the place of a server that a client starts: -- SERVER starts that, and
    the cassette is written when it ends. The exit code is the server's.
    """
    options = read_options(RecordOptions, given_options, log)
    command = tuple(after_dashes(context) or ())
    if stdio:
        if not command or words or upstream is not None:
            problem = "--stdio needs a command that starts the server, and no URL"
            hint = "mrtr-cassette record --stdio --output FILE -- SERVER ARGS"
            raise UsageError(problem, hint=hint)

        if takes_next:
            from mrtr_cassette.shell.runs.pipe_recording import next_free_place

            output = next_free_place(path_of(output))

        _refuse_http_options(context)
        _run_with_log(options, log, partial(_record_pipe, command, output, reports))

    if takes_next:
        raise UsageError("--next needs --stdio")

    server = _server_to_record(words, upstream)
    if options.answers is not None:
        say("note: this proxy answers in its client's place, and is not transparent")

    earlier = None
    if options.existing == "append" and cassette_exists(output):
        earlier = load_cassette(output)

    from mrtr_cassette.shell.runs.journaling import combined_rules

    warn_of_path(server, combined_rules(earlier, options.redaction))
    options = _served_over_http(options, context, command)
    record_server = partial(_record_over_http, server, output, reports, command)
    _run_with_log(options, log, record_server)


def _server_to_record(words: Sequence[str], upstream: str | None) -> str | list[str]:
    """Return the URL of the server to record, or the words of the command that starts it."""
    refuse_misplaced(words)
    if words and upstream is None and "://" in words[0]:
        upstream = words[0]
        words = words[1:]

    if words:
        hint = "write the command after --"
        raise UsageError(f"unexpected argument {words[0]!r}", hint=hint)
    if not upstream or not upstream.strip():
        hint = "give its URL, or --stdio -- SERVER ARGS"
        raise UsageError("there is no server to record", hint=hint)
    if "://" in upstream:
        return upstream

    refuse_without_scheme(upstream)
    try:
        words = shlex.split(upstream)
    except ValueError as error:
        raise UsageError(f"--upstream {upstream!r}: {str(error).lower()}") from None

    command = list(map(_with_home_expanded, words))
    if shutil.which(command[0]) is None:
        problem = f"the upstream {upstream!r} is neither an HTTP URL nor a program"
        hint = "a URL begins with http:// or https://"
        raise UsageError(problem, hint=hint)

    return command


def _with_home_expanded(word: str) -> str:
    """Return a word with the home directory that it begins with, as a shell would."""
    # No shell sees it, and a cassette names what is in a home directory so.
    return os.path.expanduser(word) if word.startswith("~/") else word  # noqa: PTH111


async def _record_over_http(
    upstream: str | list[str],
    output: Location,
    reports: tuple[Path, ...],
    command: tuple[str, ...],
    options: RecordOptions,
    log: Log,
) -> int:
    """Record over HTTP until a command or a signal ends it; return the exit code."""
    from mrtr_cassette.shell.runs.recording import recording

    async with stop_signals() as signals:
        proxy = recording(upstream, output, options, on_event=log.write_event)
        async with _started(proxy) as recording_run:
            address = "there"
            if recording_run.shown_url != recording_run.url:
                address += ", with the secrets in the places of their placeholders"

            hint = f"point the client {address}; Ctrl-C writes {output}"
            command_end = await _wait_until_stopped(
                recording_run, command, signals, log, hint
            )
            if command_end.exit_code and not command_end.was_stopped:
                recording_run.publishing.failure = (
                    f"{command[0]!r} ended with {command_end.exit_code}"
                )

        exit_code = _conclude_recording(recording_run, log, reports)
        has_no_client = recording_run.is_unused and _tell_of_no_client(
            command, command_end, log
        )

    return command_end.exit_code or exit_code or int(has_no_client)


async def _record_pipe(
    command: tuple[str, ...],
    output: Location,
    reports: tuple[Path, ...],
    options: RecordOptions,
    log: Log,
) -> int:
    """Record between the client on stdin and stdout and the server; return the exit code."""
    from mrtr_cassette.shell.runs.pipe_recording import record_pipe
    from mrtr_cassette.shell.runs.piped import starting_client

    recording_run, server_exit_code = await record_pipe(
        command, output, options, log.write_event, client=starting_client()
    )
    exit_code = _conclude_recording(recording_run, log, reports)
    return server_exit_code or exit_code


def _conclude_recording(
    recording_run: RecordingRun, log: Log, reports: tuple[Path, ...]
) -> int:
    """Say what became of a recording; return the exit code."""
    from mrtr_cassette.core.report.events import recording_log_line
    from mrtr_cassette.core.report.runs import summary_data

    recording_report = recording_run.report
    event, line = recording_log_line(recording_report)
    log.tell(line, event)
    write_reports(reports, recording_report, {".json": summary_data})
    tell_unused(recording_run.outcome.unused or (), log)
    if recording_run.problem is not None:
        text = f"error: the recording is incomplete: {recording_run.problem}"
        log.tell(text, {"event": "concluded", "problem": recording_run.problem})
        return 3

    was_never_reached = (
        recording_run.unreachable_count and not recording_run.exchange_count
    )
    if recording_run.objection is not None or was_never_reached:
        return UpstreamError.exit_code

    return 1 if recording_run.unrecorded else 0


@click.command(cls=TakesCommand, program="CLIENT")
@places_argument("words", "CASSETTE...")
@shared_options(ReplayOptions)
@log_option
@report_option(
    "Write what was played, missed and unplayed",
    ".json",
    ".xml",
    ".md",
    markdown_of="--trials",
)
@click.option(
    "--stdio", is_flag=True, help="Serve on stdin and stdout instead of HTTP."
)
@click.option(
    "--trials",
    is_flag=True,
    help="Serve a play for each trial of an agent, which a POST to /.mrtr/plays begins; "
    "--history is strict.",
)
@click.pass_context
def replay(
    context: click.Context,
    /,
    words: tuple[str, ...],
    log: Log,
    reports: tuple[Path, ...],
    *,
    stdio: bool,
    trials: bool,
    **given_options: Any,
) -> None:
    """Serve CASSETTE as if it were the server.

    Several are played as one. A folder or a glob stands for all cassettes in it. What an address
    names (https://..., with #sha256=DIGEST only that file) is fetched before anything is played.

    Nothing else is needed, no network either. Point the client at the address that is printed
    and stop with Ctrl-C, or give -- CLIENT: it finds the address in the environment variable
    MRTR_CASSETTE_URL. A request that was not recorded gets an error that says why, and the exit
    code is 1, as where the command sent no request at all.

    With --stdio it is the server that a client starts; -- SERVER may say in whose place it stands,
    and is not started.
    """
    refuse_misplaced(words)
    cassettes = cassettes_in(with_fetched(words))
    cassette, *further_cassettes = cassettes
    command = tuple(after_dashes(context) or ())
    options = replace(
        read_options(ReplayOptions, given_options, log),
        beside=[*map(full_name, further_cassettes)],
    )
    for place in cassettes:
        tell_of_journal(place, log)

    if trials:
        if stdio or options.admin_port is not None:
            refused_option = "--stdio" if stdio else "--admin-port"
            raise UsageError(f"{refused_option} and --trials don't go together")

        _serve_trials(context, cassettes, options, log, reports)

    for report in reports:
        if report.suffix.lower() == ".md":
            problem = f"--report {report}: a replay has a .md report of --trials only"
            hint = "use a name that ends in .json or .xml"
            raise UsageError(problem, hint=hint)

    if stdio:
        _refuse_http_options(context)
        _run_with_log(options, log, partial(_replay_pipe, cassette, reports, command))

    options = _served_over_http(options, context, command)
    replay_cassette = partial(_replay_over_http, cassette, reports, command)
    _run_with_log(options, log, replay_cassette)


def _serve_trials(
    context: click.Context,
    cassettes: Sequence[Location],
    options: ReplayOptions,
    log: Log,
    reports: tuple[Path, ...],
) -> NoReturn:
    """Serve plays for trials of an agent, with strict history by default; end the process."""
    # Most replays don't need what plays need.
    from mrtr_cassette.cli.serve import serve_trials
    from mrtr_cassette.testing.plays import Trials

    if options.history == "auto":
        options = replace(options, history="strict")

    trial_options: dict[str, Any] = {}
    listening_options = options_of(ListeningOptions)
    for name in options_of(ReplayOptions):
        if name in listening_options or name in ("log", "beside"):
            continue

        value = getattr(options, name)
        if value != default_of(ReplayOptions, name):
            trial_options[name] = value

    # The further ones are named beside the first.
    places = [cassette.absolute() for cassette in cassettes]
    serve_trials(
        context, Trials(places, trial_options, options.terms), options, log, reports
    )


def _terms_with_client(command: tuple[str, ...]) -> Terms:
    """Return the terms with the client that a recording would run, unless it is given secrets."""
    client_words = shell_words(command)
    if not command:
        return TERMS

    without_secrets = text_redactor(BUILT_IN_RULES, credentials_given_to(command))
    if without_secrets(client_words) != client_words:
        return TERMS
    return {**TERMS, "client": f" -- {client_words}"}


async def _replay_over_http(
    cassette: Location,
    reports: tuple[Path, ...],
    command: tuple[str, ...],
    options: ReplayOptions,
    log: Log,
) -> int:
    """Replay over HTTP until a command or a signal ends it; return the exit code."""
    # What a load balancer has sent here is answered before this process ends.
    drain_s = _DRAIN_S if options.stateless else 0.0
    async with stop_signals() as signals:
        site = PortSite(options, drain_s)
        proxy = replaying(cassette, options, site=site, on_event=log.write_event)
        async with _started(proxy) as replay_run:
            command_end = await _wait_until_stopped(replay_run, command, signals, log)

        has_failed = _conclude_replay(replay_run, options, log, reports)
        tally = replay_run.player.tally
        has_met_fault = any(fault.came for fault in replay_run.fault_outcomes)
        was_asked = tally.reply_count or tally.misses or has_met_fault
        has_no_client = not was_asked and _tell_of_no_client(command, command_end, log)

    return command_end.exit_code or int(has_failed or has_no_client)


async def _replay_pipe(
    cassette: Location,
    reports: tuple[Path, ...],
    command: tuple[str, ...],
    options: ReplayOptions,
    log: Log,
) -> int:
    """Replay to the client on stdin and stdout; return the exit code."""
    # Most replays are over HTTP.
    from mrtr_cassette.shell.runs.piped import replay_pipe, starting_client

    replay_run, _ = await replay_pipe(
        cassette,
        options,
        log.write_event,
        server_command=command,
        client=starting_client(),
    )
    return int(_conclude_replay(replay_run, options, log, reports))


def _conclude_replay(
    replay_run: ReplayRun, options: ReplayOptions, log: Log, reports: tuple[Path, ...]
) -> bool:
    """Say what a replay came to; return whether it failed."""
    # Whoever waits for a replay doesn't wait for its report.
    from mrtr_cassette.core.report.events import replay_log_line
    from mrtr_cassette.core.report.runs import (
        report_of_replay,
        summary_data,
        unmet_faults_text,
    )

    player = replay_run.player
    elsewhere = tuple(replay_run.elsewhere)
    summary = report_of_replay(player, replay_run.terms)
    faults = replay_run.fault_outcomes
    summary = replace(summary, elsewhere=elsewhere, faults=faults)
    event, line = replay_log_line(summary, options.terms)
    log.tell(line, event)
    if summary.misses or reports:
        # Most replays need no report, whose import takes long.
        from mrtr_cassette.core.report.ci import miss_annotation, replay_junit

        print_annotations(map(miss_annotation, summary.misses))
        forms = {".json": summary_data, ".xml": replay_junit}
        write_reports(reports, summary, forms)

    tell_unused(player.unused_options(), log)
    is_incomplete = options.fail_on_unplayed and bool(summary.not_fully_played)
    return bool(summary.misses or unmet_faults_text(faults)) or is_incomplete


# What both do


def _served_over_http(
    options: Listening, context: click.Context, command: tuple[str, ...]
) -> Listening:
    """Return options for a proxy over HTTP and its client; warn if other machines can reach it."""
    options = replace(options, terms=_terms_with_client(command))
    options = with_free_port(options, context, command)
    if not is_loopback(options.host):
        say(
            f"warning: listening on {options.host}: anyone who reaches "
            "this machine can read the replay, or call the upstream through this proxy"
        )

    return options


def _refuse_http_options(context: click.Context) -> None:
    """Refuse options that only HTTP has.

    Raises:
        UsageError: there is one.
    """
    for option in context.command.params:
        name = option.name or ""
        if name in _HTTP_ONLY and is_given(context, name):
            problem = (
                f"{option.opts[0]} and --stdio don't go together: pipes have no HTTP"
            )
            raise UsageError(problem)


def _run_with_log(
    options: AnyOptions,
    log: Log,
    proxy_main: Callable[[AnyOptions, Log], Coroutine[Any, Any, int]],
) -> NoReturn:
    """Run `proxy_main` with a log that is written in another thread, and exit with its code."""
    # Nothing that passes waits for who reads the log.
    background_log: BackgroundCaller[Any] = BackgroundCaller(log.write_event or say)
    if log.write_event is None:
        log.write_line = background_log
    else:
        log.write_event = background_log

    try:
        sys.exit(run(proxy_main(replace(options, log=log.write_line), log)))
    finally:
        background_log.finish(_LOG_S)


def _tell_of_no_client(
    command: Sequence[str], command_end: CommandEnd, log: Log
) -> bool:
    """Say that a command has run and sent nothing to the proxy, and return that it has."""
    has_run = bool(command) and command_end.has_run
    if has_run:
        text = f"error: no client came; does {command[0]!r} read {URL_VARIABLE}?"
        log.tell(text, {"event": "no_client", "command": command[0]})

    return has_run


@asynccontextmanager
async def _started(proxy: AbstractAsyncContextManager[_Run]) -> AsyncIterator[_Run]:
    """Start a proxy, and end it with the block; what it loads is not searched for garbage."""
    async with AsyncExitStack() as stack:
        with without_garbage_collection():
            proxy_run = await stack.enter_async_context(proxy)
            # What is loaded stays: the collector need not look at it later either.
            gc.freeze()

        yield proxy_run


async def _wait_until_stopped(
    proxy_run: ProxyRun,
    command: Sequence[str],
    signals: asyncio.Queue[signal.Signals],
    log: Log,
    hint: str = "",
) -> CommandEnd:
    """Announce the address, and wait for the command's end or a signal."""
    tell(f"listening on {proxy_run.shown_url}")
    if command:
        tells_misses = log.write_line is not None
        return await run_command(
            command, proxy_run.url, signals, say, tells_misses=tells_misses
        )

    if hint:
        say(hint)

    await signals.get()
    return CommandEnd(0, was_stopped=True)


# A proxy that a client starts

_file_argument = click.argument("file", type=FILE)
_server_argument = click.argument("server")


@click.command()
@_file_argument
@_server_argument
@click.option(
    "--record",
    type=CASSETTE,
    metavar="CASSETTE",
    help="Record the server to this cassette.",
)
@click.option(
    "--replay",
    type=CASSETTE,
    metavar="CASSETTE",
    help="Play this cassette instead of the server.",
)
def wrap(
    file: Path, server: str, record: Location | None, replay: Location | None
) -> None:
    """Let a client start a recorder or a replay instead of a server.

    FILE is the client's configuration (its `mcpServers`), SERVER a name in it. The rest of FILE
    stays as it is, and a copy without wrapped servers is kept beside it. `unwrap` undoes this.
    """
    if record is not None and replay is None:
        # The journal of any other would stand wherever the client runs.
        output = str(path_of(record).absolute())
        arguments = ["record", "--stdio", "--next", "--output", output]
    elif replay is not None and record is None:
        place = replay.absolute() if isinstance(replay, Path) else replay.url
        # The client would not show why its replay does not start.
        for cassette in cassettes_in([str(place)]):
            _check_playable(cassette, file, server)

        arguments = ["replay", "--stdio", str(place)]
    else:
        raise UsageError("give either --record or --replay, with a cassette")

    command = [*_command_of_program(), *arguments]
    backup = change_config(
        file,
        lambda data: wrapped_config(data, str(file), server, command),
        lambda data: not has_wrapped_server(data, str(file)),
    )
    say(f"wrote {file}; the old file is {backup}; restart the client")


def _check_playable(cassette: Location, file: Path, server: str) -> None:
    """Make sure that a cassette can be played in the place of a server of a configuration.

    Raises:
        CassetteError: it can't be read, or there is none.
    """
    is_missing = unpublished_warning(cassette) is None and not cassette_exists(cassette)
    if is_missing:
        record_command = shell_command(
            "wrap_server", file=str(file), server=server, path=str(cassette)
        )
        hint = f"record one with: {record_command}"
        raise CassetteError(cassette, "there is no such cassette", hint=hint)

    load_cassette(cassette)


@click.command()
@_file_argument
@_server_argument
def unwrap(file: Path, server: str) -> None:
    """Restore a wrapped server's own command."""
    change_config(
        file,
        lambda data: unwrapped_config(data, str(file), server),
        lambda _data: False,
    )
    say(f"wrote {file}; restart the client")


def _command_of_program() -> list[str]:
    """Return how a client starts this program, whatever PATH it has."""
    script = Path(sys.argv[0]).absolute()
    if script.name == "mrtr-cassette" and script.is_file():
        return [str(script)]
    return [sys.executable, "-m", "mrtr_cassette"]
