"""What can be done about a server that differs from its cassettes: only what works is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mrtr_cassette.core.compare.values import VERDICTS, Verdict
from mrtr_cassette.core.drive.updating import ACCEPTABLE, Proposal, accepted_by_verdict
from mrtr_cassette.core.report.comparison import Verification
from mrtr_cassette.errors import counted, printable
from mrtr_cassette.terms import Terms, in_terms

_RULES_FILE: Final = "ignore.toml"
_MOST_NAMED: Final = 3


def advice_on(verifications: Sequence[Verification], terms: Terms) -> list[str]:
    """Return the ways out of a failed verification, in the terms of a front.

    The live server's responses may be taken where the heaviest verdict can be, and values be left
    out where two equal calls got different ones.
    """
    ways = [*_acceptance(verifications, terms), *_leaving_out(verifications, terms)]
    return [f"{' or' if number else 'fix'}: {way}" for number, way in enumerate(ways)]


def _acceptance(verifications: Sequence[Verification], terms: Terms) -> list[str]:
    """Return how responses with the heaviest verdict are taken, and which these are."""
    verdicts: set[Verdict] = set()
    proposed: list[Proposal] = []
    for verification in verifications:
        failing = {each.number for each in verification.failures}
        verdicts |= {each.verdict for each in verification.failures}
        proposed += [
            proposal for proposal in verification.proposed if proposal.number in failing
        ]
    heaviest = max(verdicts - {"not-reached"}, key=VERDICTS.index, default=None)
    if heaviest not in ACCEPTABLE:
        return []
    # A response is taken if all its changes are accepted.
    accepted = {str(heaviest)}
    for proposal in accepted_by_verdict(proposed, ACCEPTABLE):
        own = {str(change.verdict) for change in proposal.counting}
        if heaviest in own:
            accepted |= own
    taken = accepted_by_verdict(proposed, accepted)
    if not taken:
        return []
    words = in_terms("<<accept_verdicts>>", terms, {"verdicts": sorted(accepted)})
    return [
        f"take what the server says now into the cassette with {words}: {_names_of(taken)}"
    ]


def _names_of(taken: Sequence[Proposal]) -> str:
    names = ", ".join(map(proposal_name, taken[:_MOST_NAMED]))
    more = len(taken) - _MOST_NAMED
    return f"{names} and {counted(more, 'more response')}" if more > 0 else names


def proposal_name(proposal: Proposal) -> str:
    """Return which response of a cassette could be another one."""
    turn = f", turn {proposal.turn}" if proposal.turn else ""
    return f"#{proposal.number} {printable(proposal.call)}{turn}"


def _leaving_out(verifications: Sequence[Verification], terms: Terms) -> list[str]:
    found = [pointer for each in verifications for pointer in each.varying]
    pointers = list(dict.fromkeys(filter(str.isprintable, found)))
    if not pointers:
        return []
    ignoring = in_terms("<<ignore_values>>", terms, {"pointers": pointers})
    learning = in_terms("<<learn_places>>", terms, {"rules": _RULES_FILE})
    return [
        f"leave out what two equal calls to the server differ in with {ignoring}",
        f"have such places found, written to a file, and left out with {learning}",
    ]
