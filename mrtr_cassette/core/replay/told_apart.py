"""Which recorded secret it is that a client sends, where several were recorded for one call.

Rule: a cassette has no secret, so a secret is first taken for the next recorded one that nobody
has used, and from then on only for that one.
Source: docs/matching.md, "Secrets".
"""

from __future__ import annotations

from collections.abc import Callable

from mrtr_cassette.core.replay.matching import Secret
from mrtr_cassette.core.replay.playable import Playable


class ToldApart:
    """The secrets of one replay that have been told apart."""

    def __init__(self) -> None:
        """Begin with none."""
        self._received: dict[Secret, Secret] = {}

    def fitting(
        self, candidates: list[Playable], received: tuple[Secret, ...], *, several: bool
    ) -> list[Playable]:
        """Return the recorded exchanges whose secrets can be those of a request.

        Args:
            candidates: exchanges that are equal but for their secrets.
            received: the secrets of the request.
            several: there may be candidates with different secrets.
        """
        if not received:
            return candidates
        if not several:
            return [each for each in candidates if not self._has_been_another(each, received)]
        same = [each for each in candidates if _all(self._is, each, received)]
        return same or [
            each
            for each in candidates
            if _all(self._may_be, each, received) and not self._has_been_another(each, received)
        ]

    def _has_been_another(self, playable: Playable, received: tuple[Secret, ...]) -> bool:
        """Tell whether a secret was played as another one earlier in the same interaction."""
        earlier: set[Secret] = set()
        parent = playable.parent
        while parent is not None:
            earlier.update(parent.secrets)
            parent = parent.parent
        return any(
            self._is(other, secret)
            for recorded, secret in zip(playable.secrets, received, strict=False)
            if not self._is(recorded, secret)
            for other in earlier
            if other.rule == recorded.rule and other != recorded
        )

    def played(self, playable: Playable, received: tuple[Secret, ...]) -> None:
        """Take note of what the secrets of a request were played as."""
        for recorded, secret in zip(playable.secrets, received, strict=False):
            if recorded.rule == secret.rule and secret.is_received:
                self._received.setdefault(recorded, secret)

    def _is(self, recorded: Secret, received: Secret) -> bool:
        return received in (recorded, self._received.get(recorded))

    def _may_be(self, recorded: Secret, received: Secret) -> bool:
        is_new = recorded not in self._received and received.is_received
        return is_new or self._is(recorded, received)


def _all(
    fits: Callable[[Secret, Secret], bool], playable: Playable, received: tuple[Secret, ...]
) -> bool:
    # A placeholder that the client was given may stand where another rule found the secret.
    return all(
        recorded.rule != secret.rule or fits(recorded, secret)
        for recorded, secret in zip(playable.secrets, received, strict=False)
    )
