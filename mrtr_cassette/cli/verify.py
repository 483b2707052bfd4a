"""`mrtr-cassette verify`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mrtr_cassette.cli.accept import accept_options, acceptance_of, tell_of_update
from mrtr_cassette.cli.common import (
    CASSETTE,
    TERMS,
    Log,
    TakesServer,
    json_report,
    read_options,
    say,
    server_after_dashes,
    shared_options,
    tell_unused,
    warn_of_path,
)
from mrtr_cassette.errors import CassetteError, UsageError
from mrtr_cassette.shell.stores import Location
from mrtr_cassette.verify_options import VerifyOptions

if TYPE_CHECKING:
    from mrtr_cassette.core.report.verification import Verification
    from mrtr_cassette.shell.updating import Choose


@click.command(cls=TakesServer)
@click.argument("cassettes", nargs=-1, required=True, type=CASSETTE)
@click.option("--upstream", metavar="URL", help="The live server.")
@shared_options(VerifyOptions)
@accept_options
@click.option(
    "--report",
    "reports",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the verdicts: JSON, JUnit XML where the name ends in .xml, Markdown where it ends "
    "in .md; may be repeated.",
)
@click.pass_context
def verify(
    context: click.Context,
    /,
    *,
    cassettes: tuple[Location, ...],
    upstream: str | None,
    reports: tuple[Path, ...],
    verdicts: tuple[str, ...],
    review: bool,
    **given: Any,
) -> None:
    """Repeat what CASSETTES recorded with a live server, and tell what it does differently.

    A folder stands for all cassettes in it. The server is at --upstream, or -- SERVER starts it: on
    pipes, or over HTTP where an argument has {port}. Each question of the server is compared with
    the recorded one, and only the recorded one is answered. With --accept or --review, what the
    server says now is taken into the cassette.

    The exit code is 0 where all is the same, 1 where something differs, 4 where nothing could be
    compared.
    """
    from mrtr_cassette.shell.files import REPORT, check_place
    from mrtr_cassette.shell.running import run_until_signal

    log = Log("text")
    options = read_options(VerifyOptions, given, log)
    command = server_after_dashes(context) or []
    if (upstream is None) is (not command):
        raise UsageError(
            "verify needs one live server",
            hint="give --upstream URL, or -- SERVER ARGS, which starts it",
        )
    for report in reports:
        check_place(report, REPORT)
    paths = _cassettes_in(cassettes)
    warn_of_path(upstream, paths)
    choose = acceptance_of(verdicts, reviews=review)
    verifications, code = run_until_signal(_verify(paths, upstream or command, options, choose))
    _report(verifications, reports)
    sys.exit(code)


def _cassettes_in(paths: Sequence[Location]) -> list[Location]:
    """Return the cassettes, and those in folders.

    Raises:
        UsageError: a folder has none.
    """
    from mrtr_cassette.shell.cassette_file import is_cassette

    cassettes: list[Location] = []
    for path in paths:
        if not isinstance(path, Path) or not path.is_dir():
            cassettes.append(path)
            continue
        within = [each for each in sorted(path.rglob("*.json")) if is_cassette(each)]
        if not within:
            raise UsageError(f"there is no cassette in {path}")
        cassettes += within
    return cassettes


async def _verify(
    paths: Sequence[Location],
    upstream: str | Sequence[str],
    options: VerifyOptions,
    choose: Choose | None,
) -> tuple[list[Verification], int]:
    from mrtr_cassette.core.compare.changes import unused_pointers
    from mrtr_cassette.core.report.verification import exit_code_of, verification_text
    from mrtr_cassette.shell.updating import update_cassette
    from mrtr_cassette.shell.verifying import verify_cassette

    verifications = []
    problems = 0
    for path in paths:
        try:
            update = None
            if choose is None:
                verification = await verify_cassette(path, upstream, options)
            else:
                update = await update_cassette(path, upstream, options, choose)
                verification = update.verification
        except CassetteError as error:
            say(f"error: {error.in_terms(TERMS)}")
            problems = error.exit_code
            continue
        say(verification_text(verification))
        if update is not None:
            tell_of_update(update)
        verifications.append(verification)
    left_out = [change for each in verifications for change in each.left_out]
    tell_unused(unused_pointers(options.ignore, left_out), Log("text"))
    return verifications, problems or exit_code_of(verifications)


def _report(verifications: Sequence[Verification], paths: Sequence[Path]) -> None:
    """Write the reports, and print what fails as annotations under GitHub Actions."""
    from mrtr_cassette.core.report.junit import verification_junit
    from mrtr_cassette.core.report.verification import (
        verification_annotations,
        verification_data,
        verification_markdown,
    )
    from mrtr_cassette.shell.files import REPORT, write_own

    if os.environ.get("GITHUB_ACTIONS") == "true":
        for verification in verifications:
            for line in verification_annotations(verification):
                click.echo(line)
    for path in paths:
        match path.suffix.lower():
            case ".xml":
                data = verification_junit(verifications)
            case ".md":
                data = verification_markdown(verifications).encode()
            case _:
                data = f"{json_report(verification_data(verifications))}\n".encode()
        write_own(path, REPORT, [data])
