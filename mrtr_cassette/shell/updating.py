"""Updating: what a live server says now is taken into the cassette that it was held to.

Rule: a file is written at once and only if nobody else changed it meanwhile; nothing that was not
accepted is written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mrtr_cassette.core.compare.accepting import accepted
from mrtr_cassette.core.drive.acceptance import Proposal, proposals
from mrtr_cassette.core.report.verification import Verification
from mrtr_cassette.errors import CassetteError, UsageError
from mrtr_cassette.shell.cassette_file import publish, read_file
from mrtr_cassette.shell.stores import Location
from mrtr_cassette.shell.verifying import Held, hold
from mrtr_cassette.verify_options import VerifyOptions

Choose = Callable[[Sequence[Proposal]], Sequence[Proposal]]
"""Returns which of the proposals are accepted."""


@dataclass(frozen=True, slots=True)
class Update:
    """What came of updating one cassette.

    Attributes:
        verification: the verdicts, and which interactions are as the live server has them now.
        accepted: what was taken.
        left: what was not.
        written: the file that was written; None where nothing was taken.
    """

    verification: Verification
    accepted: tuple[Proposal, ...]
    left: tuple[Proposal, ...]
    written: Location | None


async def update_cassette(
    path: Location, upstream: str | Sequence[str], options: VerifyOptions, choose: Choose
) -> Update:
    """Hold a live server to one cassette, and take what is accepted into it.

    Args:
        upstream: URL of the server, or the command that starts it.

    Raises:
        UsageError: the cassette was recorded over another transport than the live server's.
        CassetteError: as for `hold`; or the file was changed meanwhile, or can't be written.
        UpstreamError: as for `hold`.
    """
    held = await hold(path, upstream, options)
    if not held.is_of_transport:
        raise UsageError(
            f"{path} was recorded over another transport than that of the live server",
            hint="verify it over that one, or record it again",
        )
    updating = _Updating(held.verification)
    is_written = False
    # Each time a conversation gets at least one turn further.
    for _ in range(max((len(each.exchanges) for each in held.cassette.interactions), default=0)):
        chosen = updating.choose(held, choose)
        if chosen:
            _write(held, path, chosen)
            is_written = True
        unfollowed = {str(each.number) for each in chosen if each.goes_on}
        if not unfollowed:
            break
        held = await hold(path, upstream, replace(options, only=sorted(unfollowed)))
    return updating.update(path if is_written else None)


def _write(held: Held, path: Location, chosen: Sequence[Proposal]) -> None:
    if read_file(path) != held.data:
        raise CassetteError(path, "it was changed meanwhile", hint="verify it once more")
    responses = [each.taken for each in chosen if each.taken is not None]
    publish(path, [accepted(held.data, held.cassette, responses)], replace=True)


class _Updating:
    """What has come of updating so far."""

    def __init__(self, verification: Verification) -> None:
        """Begin with the verdicts on all interactions."""
        self._verification = verification
        self._interactions = {each.number: each for each in verification.interactions}
        self._left: dict[int, list[Proposal]] = {}
        self._taken: list[Proposal] = []
        self._accepted: set[int] = set()

    def choose(self, held: Held, choose: Choose) -> list[Proposal]:
        """Take the verdicts on what was repeated, and return what is accepted of it."""
        repeated = {
            each.planned.interaction.number for each in held.verified if each.verdict != "skipped"
        }
        for each in held.verification.interactions:
            if each.number in repeated:
                self._interactions[each.number] = each
        proposed = proposals(held.cassette, held.verified)
        chosen = list(choose(proposed)) if proposed else []
        self._taken += chosen
        proposed_by_number: defaultdict[int, list[Proposal]] = defaultdict(list)
        for proposal in proposed:
            proposed_by_number[proposal.number].append(proposal)
        taken = {(proposal.number, proposal.turn) for proposal in chosen}
        for number in repeated:
            of_interaction = proposed_by_number[number]
            refused = [each for each in of_interaction if (each.number, each.turn) not in taken]
            self._left[number] = refused
            is_whole = not any(each.counting for each in refused)
            if of_interaction and is_whole:
                self._accepted.add(number)
            else:
                self._accepted.discard(number)
        return chosen

    def update(self, written: Location | None) -> Update:
        """Return what came of it in the end."""
        interactions = tuple(self._interactions[number] for number in sorted(self._interactions))
        verification = replace(
            self._verification, interactions=interactions, accepted=frozenset(self._accepted)
        )
        left = tuple(each for number in sorted(self._left) for each in self._left[number])
        return Update(verification, tuple(self._taken), left, written)
