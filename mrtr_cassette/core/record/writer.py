"""When one exchange is due on disk.

Rule: what makes the client's response whole is on disk before the client has it, and so is each
message of a stream that tells what other requests cause: a killed recording lacks nothing that a
client has. What passes later is written at the end, once.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from mrtr_cassette.core.record.recorder import Observation
from mrtr_cassette.core.record.sealer import Seen
from mrtr_cassette.core.wire.http import NO_STATUS, End, Headers


class Due(NamedTuple):
    """What is to be written now.

    Attributes:
        seen: the exchange as it is now, which replaces what was written of it before, or what has
            come since.
        is_first: nothing was written before of the whole exchange.
    """

    seen: Seen
    is_first: bool


class _OnDisk(Enum):
    """What is on disk of an exchange."""

    NOTHING = auto()
    SO_FAR = auto()
    """All that has come of a stream that goes on."""
    ALL = auto()
    NOT_THE_LATEST = auto()


_MAY_BE_WHOLE = (_OnDisk.NOTHING, _OnDisk.SO_FAR)


class ExchangeWriter:
    """Says of one exchange when it is due on disk.

    Each input that returns something due wants it written before anything is passed on.
    """

    __slots__ = ("_on_disk", "_written", "observation")

    def __init__(self, observation: Observation) -> None:
        """Begin with the request; nothing is due before the client can have a response."""
        self.observation = observation
        self._on_disk = _OnDisk.NOTHING
        self._written = 0

    def response_started(self, status: int, headers: Headers, at_ms: float) -> Due | None:
        """Take the response's head."""
        self.observation.response_started(status, headers)
        if self.observation.is_listening and status != NO_STATUS:
            return self._so_far(at_ms)
        return None

    def response_bytes(self, chunk: bytes, at_ms: float) -> Due | None:
        """Take the next bytes of the response's body, before they are passed on.

        Raises:
            BodyTooLargeError: the body is larger, or has more events, than what is kept.
        """
        observation = self.observation
        observation.response_bytes(chunk, at_ms)
        if self._on_disk in _MAY_BE_WHOLE:
            if observation.is_answered:
                return self._whole(End.COMPLETE, at_ms)
            if observation.is_listening and observation.pieces > self._written:
                return self._so_far(at_ms)
        else:
            self._on_disk = _OnDisk.NOT_THE_LATEST
        return None

    def response_ended(self, end: End, at_ms: float) -> Due | None:
        """Take the end of the bytes, whatever caused it."""
        had_more = self.observation.response_ended(at_ms)
        if self._on_disk is _OnDisk.SO_FAR:
            return Due(self.observation.seen(end, at_ms, since=self._written), is_first=False)
        if had_more or self._on_disk is not _OnDisk.ALL:
            return self._whole(end, at_ms)
        return None

    def _so_far(self, at_ms: float) -> Due:
        """Return what has come of a stream since it was written last."""
        is_first = self._on_disk is _OnDisk.NOTHING
        since = None if is_first else self._written
        self._on_disk, self._written = _OnDisk.SO_FAR, self.observation.pieces
        return Due(self.observation.seen(End.OPEN, at_ms, since=since), is_first)

    def _whole(self, end: End, at_ms: float) -> Due:
        is_first = self._on_disk in _MAY_BE_WHOLE
        self._on_disk = _OnDisk.ALL
        return Due(self.observation.seen(end, at_ms), is_first)
