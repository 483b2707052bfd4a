"""What can be done about a server that differs from its cassettes: only what works is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mrtr_cassette.core.compare.values import VERDICTS, Verdict, without_ignored
from mrtr_cassette.core.drive.script import without_turns
from mrtr_cassette.core.drive.updating import ACCEPTABLE, Proposal, accepted_by_verdict
from mrtr_cassette.core.report.comparison import Verification
from mrtr_cassette.errors import counted, printable
from mrtr_cassette.terms import Terms, in_terms

_RULES_FILE: Final = "ignore.toml"
_MOST_NAMED: Final = 3
_RESET: Final = (
    "run the server as it was recorded, such as in the same folder, and restore what it keeps, "
    "such as files, if an earlier call has changed it"
)


def advice_on(verifications: Sequence[Verification], terms: Terms) -> list[str]:
    """Return the ways out of a failed verification, in the terms of a front.

    The live server's responses may be taken where the heaviest verdict can be, and values be left
    out that differ in every run, which nothing that is taken would mend.
    """
    lines: list[str] = []
    for way in [
        *_acceptance(verifications, terms),
        *_leaving_out(verifications, terms),
    ]:
        head = " or" if lines else "fix"
        lines.append(f"{head}: {way}")

    return lines


def _acceptance(verifications: Sequence[Verification], terms: Terms) -> list[str]:
    """Return how responses with the heaviest verdict are taken, and which these are."""
    verdicts, proposed = _failing(verifications)
    heaviest = max(verdicts - {"not-reached"}, key=VERDICTS.index, default=None)
    if heaviest not in ACCEPTABLE:
        return []

    # A response is taken if all its changes are accepted.
    accepted = {str(heaviest)}
    for proposal in accepted_by_verdict(proposed, ACCEPTABLE):
        if heaviest in proposal.verdicts:
            accepted |= proposal.verdicts

    taken = accepted_by_verdict(proposed, accepted)
    if not taken:
        return []

    words = in_terms("<<accept_verdicts>>", terms, {"verdicts": sorted(accepted)})
    if len(verifications) == 1:
        names = _names_of(taken)
    else:
        names = counted(len(taken), "response")

    taking = f"take the server's new responses into the cassette with {words}: {names}"
    if heaviest not in ("refused", "rounds-changed"):
        return [taking]

    # Earlier calls may be why: what they wrote may outlive the server's process.
    return [_RESET, taking]


def _failing(
    verifications: Sequence[Verification],
) -> tuple[set[Verdict], list[Proposal]]:
    """Return the verdicts of the calls that fail by themselves, and what is proposed for them."""
    verdicts: set[Verdict] = set()
    proposed: list[Proposal] = []
    for verification in verifications:
        failing = set()
        for call in verification.failures:
            if not call.varies:
                failing.add(call.number)
                verdicts.add(call.verdict)

        for proposal in verification.proposed:
            if proposal.number in failing:
                proposed.append(proposal)

    return verdicts, proposed


def _names_of(taken: Sequence[Proposal]) -> str:
    names = ", ".join(map(proposal_name, taken[:_MOST_NAMED]))
    more = len(taken) - _MOST_NAMED
    return f"{names} and {counted(more, 'more response')}" if more > 0 else names


def proposal_name(proposal: Proposal) -> str:
    """Return which response of a cassette could be another one."""
    turn = f", turn {proposal.turn}" if proposal.turn else ""
    return f"#{proposal.number} {printable(proposal.call)}{turn}"


def _leaving_out(verifications: Sequence[Verification], terms: Terms) -> list[str]:
    found: list[str] = []
    for verification in verifications:
        for call in verification.failures:
            found += filter(str.isprintable, call.varying)

    pointers = list(dict.fromkeys(found))
    if not pointers:
        return []

    ignoring = in_terms("<<ignore_values>>", terms, {"pointers": pointers})
    learning = in_terms("<<learn_places>>", terms, {"rules": _RULES_FILE})
    found_places = (
        f"have such places found, written to a file, and left out with {learning}"
    )
    # With an option they are left out of all calls.
    if _hide_changes(verifications, pointers):
        return [found_places]

    return [f"leave out values that change in every run with {ignoring}", found_places]


def _hide_changes(
    verifications: Sequence[Verification], pointers: Sequence[str]
) -> bool:
    """Tell whether a call differs at one of these places, and won't in every run."""
    for verification in verifications:
        for call in verification.failures:
            of_others = set(pointers).difference(call.varying)
            changes = without_turns(call.changes)
            if len(without_ignored(changes, of_others)) < len(changes):
                return True

    return False
