"""Which sessions a recording opened, and which recordings a request gets by the one it names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum

from mrtr_cassette.core.cassette.sessions import issued_session
from mrtr_cassette.core.protocol.calls import NO_SESSION
from mrtr_cassette.core.replay.matching import ReplayEntry


class Standing(Enum):
    """How a request names a session; the value says why it doesn't get what others got."""

    NONE = "this was recorded in a session, and the request names none"
    UNKNOWN = "the request names a session that no recorded response opened"
    OPENED = "this was recorded only outside the session, and refused there"


class OpenedSessions:
    """The sessions that responses of a recording opened.

    They count at the paths where clients named a session. Where nothing was opened, the server
    keeps no sessions, whatever its clients name.
    """

    def __init__(self, entries: Iterable[ReplayEntry]) -> None:
        entries = list(entries)
        self._ids = {issued_session(entry.exchange) for entry in entries} - {NO_SESSION}
        self._paths: set[str] = set()
        for entry in entries if self._ids else ():
            if entry.kind is not None and entry.traits.session != NO_SESSION:
                self._paths.add(_path(entry.key.endpoint))

    def standing_of(self, session: str) -> Standing:
        """Return how a request stands that names a session as the recording names it."""
        if session == NO_SESSION:
            return Standing.NONE
        return Standing.OPENED if session in self._ids else Standing.UNKNOWN

    def is_outside(self, session: str, endpoint: str) -> bool:
        """Tell whether a request lacks an open session where the server wants one."""
        is_bound = _path(endpoint) in self._paths
        return is_bound and self.standing_of(session) is not Standing.OPENED

    def keep(self, entries: Sequence[ReplayEntry], session: str) -> Sequence[ReplayEntry]:
        """Keep those of some equal requests that a request gets which names a session.

        What the server said without a session it may say in one too, unless it refused.
        """
        if _path(entries[0].key.endpoint) not in self._paths:
            return entries
        standing = self.standing_of(session)
        alike = [entry for entry in entries if self.standing_of(entry.traits.session) is standing]
        if alike or standing is not Standing.OPENED:
            return alike
        outside = [entry for entry in entries if entry.traits.session == NO_SESSION]
        return [entry for entry in outside if not entry.is_refused]


def _path(endpoint: str) -> str:
    return endpoint.partition(" ")[2]
