"""The command line: options in, one call of the shell, an exit code out.

Exit codes: 0 good; 1 misses or differences; 2 usage; 3 cassette or file; 4 upstream; with
`-- COMMAND` the command's own code where it failed.
"""

from __future__ import annotations

import gc
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mrtr_cassette import __version__
from mrtr_cassette.errors import MrtrCassetteError, UpstreamError, UsageError

if TYPE_CHECKING:
    from mrtr_cassette.core.report.summary import ReplayReport
    from mrtr_cassette.core.secrets.rules import RedactionRules
    from mrtr_cassette.core.wire.jsonbytes import MemberPath
    from mrtr_cassette.shell.http_server import Access
    from mrtr_cassette.shell.recording import RecordSession

DEFAULT_PORT = 8722
_COMMAND = "command"
TERMS = {
    "accept_gzip": "--header 'Accept-Encoding: gzip'",
    "append": "--append",
    "cassette": "--output",
    "header_form": "--header 'Name: value'",
    "ignore_value": "--ignore POINTER",
    "max_body": "--max-body",
    "record": "mrtr-cassette record --upstream URL --output FILE",
    "repeat_always": "--repeat always",
    "replace": "--force",
}


class _Group(click.Group):
    """A command group that shows our errors as one line, with their exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except MrtrCassetteError as error:
            _say(f"error: {error.in_terms(TERMS)}")
            ctx.exit(error.exit_code)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _proxy_options(command: Any) -> Any:
    command = click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="What stderr gets: lines for people, or one JSON object for each event.",
    )(command)
    command = click.option(
        "--max-body",
        default=256,
        show_default=True,
        metavar="MIB",
        type=click.IntRange(1),
        help="Largest body that is taken and kept, in MiB.",
    )(command)
    command = click.option(
        "--allow-origin",
        "allowed_origins",
        multiple=True,
        metavar="ORIGIN",
        help="Let pages of this origin call the proxy, such as https://app.example; "
        "may be repeated.",
    )(command)
    command = click.option(
        "--allow-host",
        "allowed_hosts",
        multiple=True,
        metavar="NAME",
        help="Let clients call the proxy by this name too; may be repeated.",
    )(command)
    command = click.option(
        "--port",
        default=DEFAULT_PORT,
        show_default=True,
        type=click.IntRange(0, 65535),
        help="Port to listen on; 0 takes a free one.",
    )(command)
    return click.option(
        "--host",
        default="127.0.0.1",
        show_default=True,
        help="Address to listen on; any but loopback opens the proxy to others.",
    )(command)


def _matching_options(command: Any) -> Any:
    command = click.option(
        "--repeat",
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        show_default=True,
        help="Whether a call may be played more often than recorded; auto: where it only reads.",
    )(command)
    return click.option(
        "--ignore",
        "ignored",
        multiple=True,
        metavar="POINTER",
        help="Leave a value out of matching: a JSON Pointer into the params, such as "
        "/inputResponses/summary or /arguments/requestedAt; may be repeated.",
    )(command)


def _access(options: dict[str, Any]) -> Access:
    from mrtr_cassette.shell.http_server import Access

    access = Access(
        host=options["host"],
        port=options["port"],
        allowed_hosts=options["allowed_hosts"],
        allowed_origins=options["allowed_origins"],
        max_body=options["max_body"] * 1024 * 1024,
    )
    if not access.is_loopback:
        _say(
            f"warning: listening on {access.host}: whoever reaches this machine can read what is "
            "played, or call the upstream through this proxy"
        )
    return access


def _logs(options: dict[str, Any]) -> dict[str, Any]:
    """Return where the shell's logs go."""
    if options["log_format"] == "text":
        return {"log": _say}

    import orjson

    return {"on_event": lambda event: _say(orjson.dumps(event).decode())}


def _conclude(options: dict[str, Any], text: str, facts: dict[str, Any]) -> None:
    """Say what a run came to, in the form of its log."""
    if options["log_format"] == "text":
        _say(text)
        return

    import orjson

    _say(orjson.dumps({"event": "concluded", **facts}).decode())


def _command_argument(command: Any) -> Any:
    return click.argument(_COMMAND, nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND ...]")(
        command
    )


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mrtr-cassette")
def main() -> None:
    """Record a conversation between an MCP client and server, and play the server back.

    It works where ordinary recorders fail: on calls that ask for input half-way
    (multi round-trip requests, MCP 2026-07-28), whose state token is another one on every run.

    \b
      mrtr-cassette record --upstream http://localhost:8000/mcp
      mrtr-cassette inspect cassette.json
      mrtr-cassette replay cassette.json

    `mrtr-cassette demo` shows all of it with a server of its own.
    """  # noqa: D301  \b is click's mark for lines that stay as they are


@main.command()
@click.option(
    "--upstream", required=True, metavar="URL", help="The real server, as the client would name it."
)
@click.option(
    "--output",
    default="cassette.json",
    show_default=True,
    type=click.Path(path_type=Path),
    help="The cassette to write.",
)
@_proxy_options
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="'NAME: VALUE'",
    help="Add a header to every request to the upstream; may be repeated.",
)
@click.option(
    "--request-state",
    type=click.Choice(["sealed", "verbatim"]),
    default="sealed",
    show_default=True,
    help="sealed: raw state tokens never reach the disk; verbatim: they are kept as they are.",
)
@click.option(
    "--redact",
    "patterns",
    multiple=True,
    metavar="REGEX",
    help="Replace what this matches by a placeholder, besides the known shapes of secrets; with a "
    "group, group 1; may be repeated.",
)
@click.option(
    "--redact-key",
    "keys",
    multiple=True,
    metavar="NAME",
    help="Replace values under this member name too, such as pin; may be repeated.",
)
@click.option(
    "--no-redact",
    "disabled",
    multiple=True,
    metavar="NAME",
    help="Switch off a rule, such as jwt, or a member name, such as password; may be repeated.",
)
@click.option("--seal-answers", is_flag=True, help="Keep only hashes of what the user answered.")
@click.option(
    "--ca-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Certificates (PEM) by which a TLS upstream is verified, besides the system's.",
)
@click.option(
    "--insecure", is_flag=True, help="Don't verify a TLS upstream: whoever answers is believed."
)
@click.option(
    "--fsync",
    is_flag=True,
    help="Have each exchange on the medium before its client has it, against a power cut.",
)
@click.option("--force", is_flag=True, help="Replace the cassette if it exists.")
@click.option(
    "--append",
    is_flag=True,
    help="Play what the cassette has, record what it lacks, and add that.",
)
@_matching_options
@_command_argument
def record(**options: Any) -> None:
    """Record what passes between client and server.

    Point the client at the address that is printed, do what is to be recorded, and stop with
    Ctrl-C: the cassette is written then. With -- COMMAND it stops when the command ends; the
    command finds the address in the environment variable MRTR_CASSETTE_URL. With --append the
    upstream is called only for what the cassette lacks; --ignore and --repeat say what that is.
    """
    from mrtr_cassette.shell.running import allow_many_files, run

    if options["force"] and options["append"]:
        raise UsageError("--force and --append don't go together")
    if (options["ignored"] or options["repeat"] != "auto") and not options["append"]:
        raise UsageError("--ignore and --repeat need --append", hint="they say what it plays")
    if options["insecure"]:
        _say("WARNING: --insecure: the upstream is not verified; anyone may be answering")
    allow_many_files()
    sys.exit(run(_record(**options)))


async def _record(**options: Any) -> int:
    from mrtr_cassette.core.replay.player import Repeat
    from mrtr_cassette.shell.recording import recording
    from mrtr_cassette.shell.running import stop_signals

    existing = "replace" if options["force"] else "append" if options["append"] else "keep"
    code = 0
    async with stop_signals() as signals:
        async with recording(
            options["upstream"],
            options["output"],
            access=_access(options),
            headers=tuple(_header(text) for text in options["headers"]),
            request_state=options["request_state"],
            existing=existing,  # type: ignore[arg-type]
            ignored=[_pointer(text) for text in options["ignored"]],
            repeat=Repeat(options["repeat"]),
            redaction=_redaction(options),
            seals_answers=options["seal_answers"],
            ca_file=options["ca_file"],
            verifies=not options["insecure"],
            syncs=options["fsync"],
            **_logs(options),
        ) as session:
            code = await _until_stopped(session.url, options[_COMMAND], signals)
        _conclude_recording(options, session)
    if code:
        return code
    if session.problem is not None:
        text = f"error: the recording is not whole: {session.problem}"
        _conclude(options, text, {"problem": session.problem})
        return 3
    if session.unreachable and not session.exchanges:
        return UpstreamError.exit_code
    return 1 if session.not_led else 0


def _conclude_recording(options: dict[str, Any], session: RecordSession) -> None:
    published = session.published
    count = 0 if published is None else len(published.interactions)
    done = [f"{session.exchanges} exchange{'' if session.exchanges == 1 else 's'} recorded"]
    facts = {"interactions": count, "exchanges": session.exchanges}
    if session.player is not None:
        done.append(f"{session.played} played")
        facts |= {"played": session.played, "not_led": len(session.not_led)}
    if session.not_led:
        done.append(f"{len(session.not_led)} could not be recorded")
    if published is not None:
        text = f"wrote {session.path}: {count} interaction{'' if count == 1 else 's'}"
    elif session.player is not None:
        text = f"{session.path} stays as it is"
    else:
        text = "nothing was recorded, no cassette was written"
        done = []
    _conclude(options, ", ".join([text, *done]), facts)


@main.command()
@click.argument("cassette", type=click.Path(path_type=Path))
@_proxy_options
@_matching_options
@click.option(
    "--pace",
    type=click.Choice(["none", "recorded"]),
    default="none",
    show_default=True,
    help="Send event streams at once, or in the recorded rhythm.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write what was played, missed and unplayed: JSON, or JUnit XML where the name ends "
    "in .xml.",
)
@_command_argument
def replay(**options: Any) -> None:
    """Serve CASSETTE as if it were the server.

    Nothing else is needed, no network either. Point the client at the address that is printed
    and stop with Ctrl-C, or give -- COMMAND: it finds the address in the environment variable
    MRTR_CASSETTE_URL. A request that was not recorded gets an error that says why, and the exit
    code is 1.
    """
    from mrtr_cassette.shell.running import allow_many_files, run

    allow_many_files()
    sys.exit(run(_replay(**options)))


async def _replay(**options: Any) -> int:
    from mrtr_cassette.core.replay.player import Repeat
    from mrtr_cassette.core.report.summary import report_of_replay, summary_text
    from mrtr_cassette.shell.files import check_writable, without_collection
    from mrtr_cassette.shell.replaying import replaying
    from mrtr_cassette.shell.running import stop_signals

    report = options["report"]
    if report is not None:
        check_writable(report)
    _tell_of_journal(options["cassette"], options)
    async with stop_signals() as signals:
        async with AsyncExitStack() as stack:
            with without_collection():
                served = replaying(
                    options["cassette"],
                    access=_access(options),
                    ignored=[_pointer(text) for text in options["ignored"]],
                    repeat=Repeat(options["repeat"]),
                    paced=options["pace"] == "recorded",
                    **_logs(options),
                )
                session = await stack.enter_async_context(served)
                # What was loaded stays, so looking for garbage in it would be in vain.
                gc.freeze()
            code = await _until_stopped(session.url, options[_COMMAND], signals)
        summary = report_of_replay(session.player)
        _conclude(
            options,
            summary_text(summary),
            {
                "interactions": len(summary.interactions),
                "unplayed": [each.number for each in summary.incomplete],
                "misses": len(summary.misses),
            },
        )
        _report(summary, report)
    return code or (1 if session.player.misses else 0)


def _report(summary: ReplayReport, path: Path | None) -> None:
    """Write the report that was asked for, and say misses where GitHub shows them."""
    import orjson

    from mrtr_cassette.core.report.junit import junit
    from mrtr_cassette.core.report.misses import annotation
    from mrtr_cassette.core.report.summary import summary_data
    from mrtr_cassette.shell.files import write_report

    if os.environ.get("GITHUB_ACTIONS") == "true":
        # Standard error has one JSON object a line, if asked for; the runner reads both streams.
        for miss in summary.misses:
            click.echo(annotation(miss))
    if path is None:
        return
    if path.suffix.lower() == ".xml":
        write_report(path, junit(summary))
    else:
        options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
        write_report(path, orjson.dumps(summary_data(summary), option=options))


def _tell_of_journal(cassette: Path, options: dict[str, Any]) -> None:
    """Say that a killed recording left something beside a cassette, which is whole all the same."""
    from mrtr_cassette.shell.files import unpublished

    note = unpublished(cassette) if cassette.exists() else None
    if note is None:
        return
    if options["log_format"] == "text":
        _say(f"note: {note}")
    else:
        _logs(options)["on_event"]({"event": "unpublished", "note": note})


async def _until_stopped(url: str, command: tuple[str, ...], signals: Any) -> int:
    """Announce the address; wait for the command's end or a signal; return the command's code."""
    from mrtr_cassette.shell.running import run_command

    click.echo(f"listening on {url}")
    if command:
        return await run_command(command, url, signals, _say)
    await signals.get()
    return 0


def _redaction(options: dict[str, Any]) -> RedactionRules:
    from mrtr_cassette.options import redaction_rules

    return redaction_rules(options["patterns"], options["keys"], options["disabled"])


def _header(text: str) -> tuple[str, str]:
    from mrtr_cassette.options import upstream_header

    name, colon, value = text.partition(":")
    form = "--header is not of the form 'Name: value'"
    return upstream_header(name.strip() if colon else "", value.strip(), form)


def _pointer(text: str) -> MemberPath:
    from mrtr_cassette.options import ignored_member

    return ignored_member(text, "--ignore")


@main.command()
@click.argument("cassette", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
def inspect(cassette: Path, *, as_json: bool) -> None:
    """Show who asked what, and what was answered.

    Each interaction on CASSETTE with its turns, how it ended, its size and its time.
    """
    import orjson

    from mrtr_cassette.core.replay.player import Player
    from mrtr_cassette.core.report.report import inspection, inspection_text
    from mrtr_cassette.shell.files import read_cassette, without_collection

    _tell_of_journal(cassette, {"log_format": "text"})
    with without_collection():
        recorded = read_cassette(cassette)
        data = inspection(recorded, Player(recorded, str(cassette)))
    if as_json:
        click.echo(orjson.dumps(data, option=orjson.OPT_INDENT_2).decode())
    else:
        click.echo(inspection_text(data))


@main.command()
@click.argument("cassette", type=click.Path(path_type=Path))
def recover(cassette: Path) -> None:
    """Publish what a killed recording left.

    CASSETTE is written from the journal beside it, which goes.
    """
    from mrtr_cassette.errors import CassetteError
    from mrtr_cassette.shell.files import is_being_written, journal_path
    from mrtr_cassette.shell.publishing import publish_journal

    journal = journal_path(cassette)
    if not journal.exists():
        raise CassetteError(journal, "there is no journal to recover from")
    if is_being_written(journal):
        raise CassetteError(journal, "its recorder is still at work", hint="stop that one first")
    published, lost = publish_journal(cassette)
    if lost is not None:
        _say(f"{journal}: {lost}")
    if published is None:
        _say(f"{journal} held no whole exchange, no cassette was written")
    else:
        count = len(published.interactions)
        _say(f"wrote {cassette}: {count} interaction{'' if count == 1 else 's'}")


@main.command()
def schema() -> None:
    """Print the JSON Schema of the cassette format."""
    from mrtr_cassette.core.format.codec import schema as generated

    click.echo(generated(), nl=False)


@main.command()
def demo() -> None:
    """Show the main job on a server of our own.

    Record it, stop it, replay it, and compare every byte.
    """
    from mrtr_cassette.demo.run import run_demo
    from mrtr_cassette.shell.running import run

    sys.exit(run(run_demo(click.echo)))
