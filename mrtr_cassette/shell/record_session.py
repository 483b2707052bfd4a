"""A recording under way, as its callers see it.

Owns: what a recording has come to so far.
Does not own: who counts it (`watching`, `appending`), and the cassette's making (`publishing`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from mrtr_cassette.core.drive.unrecorded import Unrecorded
from mrtr_cassette.core.exchange.recorded import Cassette
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.errors import LIBRARY_TERMS, Terms


@dataclass(slots=True)
class RecordSession:
    """A recording under way, and what it came to.

    Attributes:
        url: what the client connects to.
        path: the cassette that will be published.
        earlier: the cassette that is added to; None where there was none.
        player: what plays it.
        terms: how its reports spell the options.
        exchanges: how many exchanges are in the journal.
        unreachable: how many requests the upstream did not answer.
        unrecorded: requests that could not be recorded, in order.
        problem: why the recording is not whole, or None.
        published: how many interactions the published cassette has; None where there is none.
    """

    url: str
    path: Path
    earlier: Cassette | None = None
    player: Player | None = None
    terms: Terms = field(default_factory=lambda: LIBRARY_TERMS)
    exchanges: int = 0
    unreachable: int = 0
    unrecorded: list[Unrecorded] = field(default_factory=list)
    problem: str | None = None
    published: int | None = None

    @property
    def is_unused(self) -> bool:
        """Whether no client has sent a request."""
        return not (self.exchanges or self.unreachable or self.unrecorded or self.played)

    @property
    def played(self) -> int:
        """How many requests got their response from the cassette that is added to."""
        return 0 if self.player is None else self.player.plays
