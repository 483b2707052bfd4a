"""The errors that the library raises for a run that ended in good order and came to no good."""

from __future__ import annotations

from collections.abc import Sequence

from mrtr_cassette.core.report.inspection import Interaction
from mrtr_cassette.core.report.misses import MissReport
from mrtr_cassette.errors import MrtrCassetteError, counted


class MissesError(MrtrCassetteError):
    """A replay was asked something that was not recorded.

    Attributes:
        misses: what it was, in order.
    """

    def __init__(self, path: object, misses: Sequence[MissReport]) -> None:
        head = f"{counted(len(misses), 'request')} had no recorded answer on {path}"
        super().__init__("\n\n".join([head, *(miss.text for miss in misses)]))
        self.misses = tuple(misses)


class UnpublishedError(MrtrCassetteError):
    """What was recorded is hardly what was meant, so it is not published as a cassette.

    Attributes:
        reason: what is wrong with it.
    """

    exit_code = 4

    def __init__(self, path: object, reason: str) -> None:
        super().__init__(
            f"{path} was not written: {reason}\n"
            "what was recorded is in the journal beside it; publish it with: "
            f"mrtr-cassette recover {path} (or delete the journal)"
        )
        self.reason = reason


class UnplayedError(MrtrCassetteError):
    """A replay was to play all of its cassette, and did not.

    Attributes:
        unplayed: the interactions of which something was not played.
    """

    def __init__(self, path: object, unplayed: Sequence[Interaction]) -> None:
        head = f"not all that is on {path} was played:"
        super().__init__("\n".join([head, *(f"  #{each.number} {each.call}" for each in unplayed)]))
        self.unplayed = tuple(unplayed)
