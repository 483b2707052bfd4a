"""The commands that talk to a live server themselves: `call`, `verify`, `probe` and `demo`."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from mrtr_cassette.cli.common import (
    CASSETTE,
    FILE,
    LEFT_NOTHING_OUT,
    TERMS,
    Log,
    log_option,
    places_argument,
    print_annotations,
    read_options,
    refuse_misplaced,
    refuse_without_scheme,
    report_option,
    shared_options,
    tell_unused,
    warn_of_path,
    with_fetched,
    write_reports,
)
from mrtr_cassette.cli.group import (
    TakesCommand,
    after_dashes,
    coloured_line,
    say,
    tell,
    tell_error,
)
from mrtr_cassette.core.answers.fulfilment import AnswerSources
from mrtr_cassette.core.answers.written import (
    AnswersFile,
    GivenAnswers,
    read_pairs,
    wanted_call,
)
from mrtr_cassette.core.compare.values import Change, unused_masks, unused_pointers
from mrtr_cassette.core.drive.updating import (
    ACCEPTABLE_VERDICTS,
    ChooseProposals,
    Proposal,
    accepted_by_verdict,
)
from mrtr_cassette.core.report.comparison import (
    ChangeGroup,
    Verification,
    advice_on,
    exit_code_of,
    group_lines,
    grouped_changes,
    proposal_name,
    verification_annotations,
    verification_data,
    verification_junit,
    verification_markdown,
    verification_text,
)
from mrtr_cassette.core.report.fixes import record_more_fix
from mrtr_cassette.core.report.probes import (
    Probing,
    probing_annotations,
    probing_code_of,
    probing_junit,
    probings_data,
    probings_markdown,
    unmet_expectations,
)
from mrtr_cassette.core.report.runs import CallResult, call_data, problem_lines
from mrtr_cassette.core.report.text import json_text
from mrtr_cassette.core.secrets.rules import BUILT_IN_RULES
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.errors import (
    CassetteError,
    UsageError,
    counted,
    printable,
    printable_json,
    printable_lines,
)
from mrtr_cassette.options import CallOptions, ProbeOptions, VerifyOptions
from mrtr_cassette.shell.files.cassettes import cassettes_in
from mrtr_cassette.shell.files.log import Announcer, given_listeners
from mrtr_cassette.shell.files.stores import Location, is_address
from mrtr_cassette.shell.runs.answerers import (
    ask_at_terminal,
    confirm_at_terminal,
    has_terminal,
    load_answers,
)
from mrtr_cassette.shell.runs.calling import call as call_server
from mrtr_cassette.shell.runs.probing import Progress, RunObserver, probe_cassette
from mrtr_cassette.shell.runs.running import (
    MISSES_TOLD_VARIABLE,
    URL_VARIABLE,
    run_until_signal,
)
from mrtr_cassette.shell.runs.verifying import (
    Update,
    check_selection_and_values_fit,
    update_cassette,
    verify_cassette,
)

cassettes_and_url_argument = places_argument("words", "CASSETTE... [URL]")
live_server = click.option("--upstream", metavar="URL", help="The live server.")


@click.command(cls=TakesCommand, program="SERVER", has_tool=True)
@click.argument(
    "words", nargs=-1, metavar="[URL] TOOL|METHOD [NAME=VALUE | NAME:=JSON ...]"
)
@click.option(
    "--answer",
    "given",
    multiple=True,
    metavar="NAME=VALUE",
    help="Answer the field or question of this name; NAME:=JSON takes JSON; may be repeated.",
)
@click.option(
    "--answers",
    "answers_path",
    type=FILE,
    metavar="FILE",
    help="Answer by the rules in this TOML file.",
)
@live_server
@click.option(
    "-o",
    "--output",
    "--record",
    "cassette",
    type=CASSETTE,
    metavar="CASSETTE",
    help="Record the call to this cassette.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the whole conversation as JSON."
)
@shared_options(CallOptions)
@log_option
@click.pass_context
def call(
    context: click.Context,
    /,
    words: tuple[str, ...],
    given: tuple[str, ...],
    answers_path: Path | None,
    cassette: Location | None,
    log: Log,
    *,
    upstream: str | None,
    as_json: bool,
    **other_options: Any,
) -> None:
    """Make a call on a live server, and answer its questions.

    \b
      mrtr-cassette call http://localhost:8000/mcp deploy env=prod --answer confirm=yes
      mrtr-cassette call http://localhost:8000/mcp prompts/get release-notes version=2
      mrtr-cassette call deploy env=prod -- python server.py

    Without URL and SERVER it calls the server at MRTR_CASSETTE_URL, as after `replay CASSETTE --`.
    Questions are answered by --answer, by the rules and the endpoint of --answers, and by you, at a
    terminal. Without an answer, the question is printed as JSON, and the exit code is 5. It is 1 if
    the tool or the server says that the call failed, and 4 if the server can't be used.
    """  # noqa: D301  \b is click's mark for lines that stay as they are
    options = read_options(CallOptions, other_options, log)
    server, call_words = _server_and_words(words, upstream, after_dashes(context))
    wanted = wanted_call(call_words)
    if cassette is not None:
        warn_of_path(server, BUILT_IN_RULES)

    has_person = has_terminal()
    answers_file = AnswersFile() if answers_path is None else load_answers(answers_path)
    sources = AnswerSources(
        GivenAnswers(read_pairs(given, "answer")), answers_file, has_person
    )
    if cassette is None:
        _refuse_without_output(options)

    announcer = Announcer(
        log.write_line, given_listeners(log.write_event), options.terms
    )
    ask_person = ask_at_terminal if has_person else None
    call_arguments = (server, wanted, sources, options, announcer)
    result = run_until_signal(
        call_server(*call_arguments, cassette=cassette, ask_person=ask_person)
    )
    # A replay on pipes, and one that has started this command, tell misses on the same terminal.
    told_url = os.environ.get(MISSES_TOLD_VARIABLE)
    is_miss_told = not isinstance(server, str) or server == told_url
    for line in problem_lines(result, is_miss_told=is_miss_told):
        say(line)

    if as_json:
        click.echo(printable_json(canonical(call_data(result))))
    else:
        _print_result(result)

    sys.exit(result.exit_code)


def _print_result(result: CallResult) -> None:
    """Print the question that nothing answered, or the result."""
    if result.unanswered is not None:
        click.echo(
            printable_json(canonical(result.unanswered.asked.data_for_programs()))
        )
    elif result.result is not None:
        text = result.text
        if not text.strip():
            text = json_text(result.result)

        click.echo(printable_lines(text))


def _refuse_without_output(options: CallOptions) -> None:
    """Refuse options of `call` that have a use only with `--output`."""
    if options.existing != "keep":
        raise UsageError("--force and --append need --output CASSETTE")
    if options.values:
        raise UsageError("--value needs --output CASSETTE, which has its name")


def _server_and_words(
    words: Sequence[str], upstream: str | None, command: list[str] | None
) -> tuple[str | list[str], Sequence[str]]:
    """Return the server's URL or command, and the words that are left for the call."""
    if words:
        refuse_without_scheme(words[0])

    if upstream is not None:
        refuse_without_scheme(upstream)
    elif words and "://" in words[0]:
        upstream = words[0]
        words = words[1:]

    if command is not None:
        if not command:
            raise UsageError("the command after -- is missing")
        if upstream is not None:
            hint = "give its URL, or -- SERVER ARGS"
            raise UsageError("call takes a single server", hint=hint)

        return command, words

    words_without_equals = [word for word in words[1:] if "=" not in word]
    # A single one is more likely an argument without its value, such as env.
    if len(words_without_equals) > 1:
        refuse_misplaced(words_without_equals)

    if upstream is None:
        upstream = _server_in_environment()

    return upstream, words


def _server_in_environment() -> str:
    """Return the server's URL from the variable MRTR_CASSETTE_URL, which has to be set."""
    url = os.environ.get(URL_VARIABLE)
    if not url:
        hint = f"give its URL first, or its command after --, or set {URL_VARIABLE}"
        raise UsageError("the server is missing", hint=hint)

    return url


@click.command()
@click.option(
    "--serve",
    "port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Only start the server, at http://localhost:PORT/mcp, until Ctrl-C.",
)
def demo(port: int | None) -> None:
    """Record and replay an included server.

    Records the server, stops it, replays it, and compares every byte.
    """
    if port is not None:
        from mrtr_cassette.demo.server import serve

        serve(port)
        return

    from mrtr_cassette.demo.run import run_demo

    run_demo(click.echo)


@click.command(cls=TakesCommand, program="SERVER")
@cassettes_and_url_argument
@live_server
@shared_options(VerifyOptions)
@click.option(
    "--accept",
    "verdicts",
    metavar="VERDICT",
    multiple=True,
    help="Take responses with this verdict into the cassette, such as text-changed, or all; may be "
    "repeated.",
)
@click.option(
    "--review",
    is_flag=True,
    help="Ask at the terminal which responses to take into the cassette.",
)
@report_option("Write the verdicts", ".json", ".xml", ".md")
@click.pass_context
def verify(
    context: click.Context,
    /,
    *,
    words: tuple[str, ...],
    upstream: str | None,
    reports: tuple[Path, ...],
    verdicts: tuple[str, ...],
    review: bool,
    **given_options: Any,
) -> None:
    """Repeat recorded calls with a live server, and compare.

    A folder or a glob means all cassettes in it. The server is at URL, or -- SERVER starts it: on
    pipes, or over HTTP if an argument has {port}. With --upstream or -- SERVER, a cassette may be
    the address of one, which is fetched first. A question of the server is answered only if it
    is the recorded question. With --accept or --review, changed responses are taken into the
    cassette.

    The exit code is 0 if everything is the same, 1 if something differs, and 4 if nothing could be
    compared.
    """
    log = Log()
    options = read_options(VerifyOptions, given_options, log)
    paths, server = cassettes_and_server(context, words, upstream)
    check_selection_and_values_fit(paths, options.only, options.texts)
    choose = chooser_of_proposals(verdicts, reviews=review)
    verifications, exit_code = run_until_signal(
        _verify_cassettes(paths, server, options, choose)
    )
    _report_verdicts(verifications, reports)
    sys.exit(exit_code)


def cassettes_and_server(
    context: click.Context, words: Sequence[str], upstream: str | None
) -> tuple[list[Location], str | list[str]]:
    """Return the cassettes that a command was given, and the live server.

    Raises:
        UsageError: the command needs another number of them.
    """
    name = context.info_name
    command = after_dashes(context) or []
    urls = []
    # Beside a server, a URL is the address of a cassette.
    if upstream is None and not command:
        urls = [word for word in words if is_address(word)]

    cassettes = [word for word in words if word not in urls]
    servers: list[str | list[str]] = [*urls]
    refuse_misplaced(cassettes)
    if upstream is not None:
        refuse_without_scheme(upstream)
        servers.append(upstream)

    if command:
        servers.append(command)

    if len(servers) != 1:
        hint = "give its URL, or -- SERVER ARGS, which starts it"
        raise UsageError(f"{name} needs a single live server", hint=hint)
    if not cassettes:
        hint = "name it before the server's URL"
        raise UsageError(f"{name} needs a cassette", hint=hint)

    return cassettes_in(with_fetched(cassettes)), servers[0]


async def _verify_cassettes(
    paths: Sequence[Location],
    upstream: str | Sequence[str],
    options: VerifyOptions,
    choose: ChooseProposals | None,
) -> tuple[list[Verification], int]:
    """Verify cassettes, and update them if `choose` is given; return also the exit code."""
    verifications: list[Verification] = []
    problem_code = 0
    for path in paths:
        update = None
        try:
            if choose is None:
                verification = await verify_cassette(path, upstream, options)
            else:
                update = await update_cassette(path, upstream, options, choose)
                verification = update.verification
        except CassetteError as error:
            problem_code = tell_error(error)
            continue

        verifications.append(verification)
        tell(verification_text(verification))
        if update is not None:
            _tell_of_update(update)

    _tell_what_to_do(verifications, options)
    return verifications, problem_code or exit_code_of(verifications)


def _tell_what_to_do(
    verifications: Sequence[Verification], options: VerifyOptions
) -> None:
    """Say how to go on from the verdicts, and which options made no difference."""
    has_learned = any(verification.learned for verification in verifications)
    if options.learn is not None and not has_learned:
        say(f"note: nothing was learned; {options.learn} is unchanged")

    for line in advice_on(verifications, TERMS):
        say(line)

    if any(_was_withheld(verification) for verification in verifications):
        say(_WITHHELD_NOTE)

    left_out: list[Change] = []
    for verification in verifications:
        left_out.extend(verification.left_out)

    unused = []
    for pointer in unused_pointers(options.ignore, left_out):
        unused.append(("ignore", pointer))

    for mask in unused_masks(options.masks, left_out):
        unused.append(("masks", mask))

    tell_unused(unused, Log(), LEFT_NOTHING_OUT)


def _was_withheld(verification: Verification) -> bool:
    """Tell whether a recorded call was not sent because its tool may destroy something."""
    return any(interaction.may_destroy for interaction in verification.interactions)


_WITHHELD_NOTE: Final = (
    "note: destructive tools were not called, and later calls not compared; call them with "
    "--allow-destructive"
)


def _report_verdicts(
    verifications: Sequence[Verification], paths: Sequence[Path]
) -> None:
    """Annotate the verdicts under GitHub Actions, and write their reports to these files."""
    for verification in verifications:
        print_annotations(verification_annotations(verification))

    forms = {
        ".json": verification_data,
        ".xml": verification_junit,
        ".md": verification_markdown,
    }
    write_reports(paths, verifications, forms)


_ALL_VERDICTS: Final = "all"
_ACCEPT_BY_VERDICT: Final = (
    "take changes by their verdict, such as with --accept text-changed"
)


def chooser_of_proposals(
    verdicts: Sequence[str], *, reviews: bool
) -> ChooseProposals | None:
    """Return the function that chooses proposals; None if the cassettes are only read.

    Raises:
        UsageError: a verdict can't be accepted, or a review has no terminal.
    """
    if not verdicts and not reviews:
        return None

    for verdict in verdicts:
        if verdict not in (_ALL_VERDICTS, *ACCEPTABLE_VERDICTS):
            problem = f"--accept {verdict!r} is not a verdict that can be accepted"
            hint = f"use {', '.join(ACCEPTABLE_VERDICTS)}, or all"
            raise UsageError(problem, hint=hint)

    accepted_verdicts = set(
        ACCEPTABLE_VERDICTS if _ALL_VERDICTS in verdicts else verdicts
    )
    if not reviews:
        return lambda proposed: accepted_by_verdict(proposed, accepted_verdicts)
    if not has_terminal():
        raise UsageError("--review needs a terminal", hint=_ACCEPT_BY_VERDICT)

    return partial(_accepted_at_terminal, accepted_verdicts, {})


def _accepted_at_terminal(
    verdicts: Collection[str],
    decisions: dict[object, bool],
    proposed: Sequence[Proposal],
) -> list[Proposal]:
    """Ask at the terminal which responses are accepted, but for changes with these verdicts."""
    accepted_proposals: list[Proposal] = []
    for proposal in proposed:
        if proposal.problem is not None:
            continue

        groups = grouped_changes(proposal.counting_changes or proposal.changes)
        # Branches share a question, which is asked about once.
        recorded_responses = [response.recorded for response in proposal.taken]
        question_key = (*recorded_responses, *groups)
        groups_to_ask = [
            group for group in groups if group.first.verdict not in verdicts
        ]
        if groups_to_ask and question_key not in decisions:
            decisions[question_key] = _is_accepted_at_terminal(proposal, groups_to_ask)

        if decisions.get(question_key, True):
            accepted_proposals.append(proposal)

    return accepted_proposals


def _is_accepted_at_terminal(proposal: Proposal, groups: Sequence[ChangeGroup]) -> bool:
    """Show the changes of a proposal at the terminal, and ask whether to take them."""
    say(proposal_name(proposal))
    for group in groups:
        for line in group_lines(group):
            click.echo(f"    {coloured_line(line)}", err=True)

    return confirm_at_terminal("  accept?")


def _tell_of_update(update: Update) -> None:
    """Say which responses a cassette took, why it can't take others, and if it was written."""
    for proposal in update.accepted_proposals:
        verdicts = ", ".join(
            dict.fromkeys(change.verdict for change in proposal.changes)
        )
        say(f"accepted: {proposal_name(proposal)}: {verdicts}")
        if proposal.ends_at_question:
            recorder = record_more_fix(update.cassette, TERMS)
            say(
                f"  it ends at a question without a recorded answer: record that with {recorder}"
            )

    for proposal in update.left_proposals:
        name = proposal_name(proposal)
        if proposal.problem is not None:
            say(f"can't be taken: {name}: {printable(proposal.problem)}")
        elif proposal.is_breakdown:
            say(f"not taken: {name}: the server broke down; --review takes that too")

    if update.written_path is not None:
        responses = counted(len(update.accepted_proposals), "response")
        say(f"wrote {update.written_path}: {responses} accepted")


# Probes


@click.command(cls=TakesCommand, program="SERVER")
@cassettes_and_url_argument
@live_server
@shared_options(ProbeOptions)
@report_option("Write the outcomes", ".json", ".xml", ".md")
@click.pass_context
def probe(
    context: click.Context,
    /,
    *,
    words: tuple[str, ...],
    upstream: str | None,
    reports: tuple[Path, ...],
    **given_options: Any,
) -> None:
    """Try answers on a live server that were never recorded.

    Brings the server to each recorded question, as `verify` does, and then declines, sends a wrong
    type, an altered request state, and so on. A finding is a server that goes on as if the recorded
    answers had been given, or that breaks down. It makes many calls: use a server whose data
    doesn't matter.

    The exit code is 0 without findings, 1 with a finding, and 4 if no question was reached.
    """
    log = Log()
    options = read_options(ProbeOptions, given_options, log)
    paths, server = cassettes_and_server(context, words, upstream)
    check_selection_and_values_fit(paths, options.only, options.texts)
    probings, exit_code = run_until_signal(_probe_cassettes(paths, server, options))
    for probing in probings:
        print_annotations(probing_annotations(probing))

    forms = {".json": probings_data, ".xml": probing_junit, ".md": probings_markdown}
    write_reports(reports, probings, forms)
    sys.exit(exit_code)


async def _probe_cassettes(
    paths: Sequence[Location], upstream: str | Sequence[str], options: ProbeOptions
) -> tuple[list[Probing], int]:
    """Probe the questions of cassettes and show the progress; return also the exit code."""
    progress = _show_progress if sys.stderr.isatty() else _question_progress()
    observer = RunObserver(say, progress)
    probings: list[Probing] = []
    problem_code = 0
    for path in paths:
        try:
            probing = await probe_cassette(path, upstream, options, observer)
        except CassetteError as error:
            problem_code = tell_error(error)
            continue

        probings.append(probing)
        tell(probing.text)

    for expectation in unmet_expectations(probings):
        say(f"error: {options.expect}: not found: {printable(str(expectation))}")

    return probings, problem_code or probing_code_of(probings)


def _question_progress() -> Progress:
    """Return what says in a line, for each question, how far a run is."""
    last_question = ""

    def show_progress(done: int, total: int, name: str, question: str) -> None:
        nonlocal last_question
        if name and question != last_question:
            last_question = question
            say(f"{done} of {counted(total, 'probe')} made; next: {question}")

    return show_progress


def _show_progress(done: int, total: int, name: str, _question: str) -> None:
    """Show how far a run is, in the last line of the terminal."""
    progress_text = f"probe {done + 1} of {total}: {name}" if done < total else ""
    click.echo(f"\r\x1b[K{progress_text}", err=True, nl=False)
