"""What `verify` takes into a cassette: the options for it, and asking at a terminal.

Rule: nothing is written that nobody asked for; without a terminal nobody can be asked.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import click

from mrtr_cassette.cli.common import has_colour, painted, say
from mrtr_cassette.errors import UsageError, counted, printable

if TYPE_CHECKING:
    from mrtr_cassette.core.compare.changes import Change
    from mrtr_cassette.core.drive.acceptance import Proposal
    from mrtr_cassette.shell.updating import Choose, Update

_ALL: Final = "all"


def accept_options(command: Any) -> Any:
    """Give a command the options of updating."""
    for option in (
        click.option(
            "--review",
            is_flag=True,
            help="Ask at the terminal, change by change, what is taken into the cassette.",
        ),
        click.option(
            "--accept",
            "verdicts",
            metavar="VERDICT",
            multiple=True,
            help="Take responses with this verdict into the cassette, such as text-changed; all "
            "stands for all but errors and changed rounds; may be repeated.",
        ),
    ):
        command = option(command)
    return command


def acceptance_of(verdicts: Sequence[str], *, reviews: bool) -> Choose | None:
    """Return what says which proposals are accepted; None where the cassettes are only read.

    Args:
        verdicts: those that are accepted, or `all`.

    Raises:
        UsageError: they can't be meant, or there is no terminal to ask at.
    """
    from mrtr_cassette.core.drive.acceptance import ACCEPTABLE, accepted_by_verdict

    if not (verdicts or reviews):
        return None
    for verdict in verdicts:
        if verdict in ("error-changed", "rounds-changed"):
            raise UsageError(
                f"--accept {verdict}: errors and changed rounds are accepted one by one",
                hint="use --review",
            )
        if verdict not in (_ALL, *ACCEPTABLE):
            raise UsageError(
                f"--accept {verdict!r} is no verdict that can be accepted",
                hint=f"these are {', '.join(ACCEPTABLE)}, and all",
            )
    by_verdict = set(ACCEPTABLE if _ALL in verdicts else verdicts)
    if not reviews:
        return lambda proposed: accepted_by_verdict(proposed, by_verdict)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("--review needs a terminal", hint="use --accept VERDICT")
    return Review(by_verdict).choose


@dataclass(slots=True)
class Review:
    """Asks at the terminal what is accepted, one change at a time.

    Attributes:
        verdicts: those whose changes are accepted without a question.
    """

    verdicts: set[str]
    _decided: dict[tuple[object, Change], bool] = field(default_factory=dict, init=False)
    _is_over: bool = field(default=False, init=False)

    def choose(self, proposed: Sequence[Proposal]) -> list[Proposal]:
        """Return the proposals of which all changes are accepted."""
        askable = [each for each in proposed if each.problem is None]
        total = sum(len(self._changes_of(each)) for each in askable)
        asked = 0
        chosen = []
        for each in askable:
            changes = self._changes_of(each)
            accepted = [
                self._accepts(each, change, f"{number} of {total}")
                for number, change in enumerate(changes, start=asked + 1)
            ]
            asked += len(changes)
            if all(accepted):
                chosen.append(each)
            elif any(accepted):
                say(f"  {_name(each)} stays: a response is taken whole")
        return chosen

    @staticmethod
    def _changes_of(proposal: Proposal) -> Sequence[Change]:
        return proposal.counting or proposal.changes

    def _accepts(self, proposal: Proposal, change: Change, place: str) -> bool:
        # Branches share a question, which is asked about once.
        key = (None if proposal.taken is None else proposal.taken.recorded, change)
        if key not in self._decided:
            self._decided[key] = self._asked(proposal, change, place)
        return self._decided[key]

    def _asked(self, proposal: Proposal, change: Change, place: str) -> bool:
        from mrtr_cassette.core.drive.acceptance import ACCEPTABLE
        from mrtr_cassette.core.report.comparison import change_lines, plain

        if self._is_over or change.verdict in self.verdicts:
            return not self._is_over
        say(f"{place}: {_name(proposal)}")
        for line in change_lines(change, painted if has_colour(sys.stderr) else plain):
            click.echo(f"    {line}", err=True)
        keys = {"y": "yes", "n": "no"}
        if change.verdict in ACCEPTABLE:
            keys["a"] = f"all {change.verdict}"
        keys["q"] = "quit"
        shown = ", ".join(f"{key}: {words}" for key, words in keys.items())
        answer = click.prompt(
            f"  accept? ({shown})", type=click.Choice(list(keys)), show_choices=False, err=True
        )
        if answer == "a":
            self.verdicts.add(change.verdict)
        self._is_over = answer == "q"
        return answer in ("y", "a")


def _name(proposal: Proposal) -> str:
    turn = f", turn {proposal.turn}" if proposal.turn else ""
    return f"#{proposal.number} {printable(proposal.call)}{turn}"


def tell_of_update(update: Update) -> None:
    """Say what was taken into a cassette, and what can't be."""
    for each in update.accepted:
        verdicts = ", ".join(dict.fromkeys(change.verdict for change in each.changes))
        say(f"accepted: {_name(each)}: {verdicts}")
    for each in update.left:
        if each.problem is not None:
            say(f"can't be taken: {_name(each)}: {printable(each.problem)}")
    if update.written is not None:
        say(f"wrote {update.written}: {counted(len(update.accepted), 'response')} accepted")
