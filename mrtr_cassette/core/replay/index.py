"""Recorded exchanges, by what requests find them by.

Source: docs/matching.md, "Traits".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from mrtr_cassette.core.exchange.lookup import LookupKey
from mrtr_cassette.core.protocol.calls import Traits
from mrtr_cassette.core.replay.matching import Secret, by_any_rule
from mrtr_cassette.core.replay.playable import Playable


@dataclass(slots=True)
class Candidates:
    """Recorded exchanges of one lookup key, in recorded order, by traits."""

    by_traits: dict[Traits, list[Playable]] = field(default_factory=dict)
    _secrets: set[tuple[Secret, ...]] = field(default_factory=set)

    @property
    def has_several_secrets(self) -> bool:
        """Whether the requests are told apart by the secrets in them."""
        return len(self._secrets) > 1

    def add(self, playable: Playable) -> None:
        """Add an exchange, after all whose requests arrived earlier."""
        self._secrets.add(playable.secrets)
        self.by_traits.setdefault(playable.traits, []).append(playable)

    def __iter__(self) -> Iterator[Playable]:
        """Yield all of them."""
        for playables in self.by_traits.values():
            yield from playables

    def nearest(self, traits: Traits) -> list[Playable]:
        """Return the exchanges whose traits come nearest, in recorded order.

        Recordings with other traits are never a substitute, even when these are used up: the same
        body may have been refused for its headers.
        """
        exact = self.by_traits.get(traits)
        if exact is not None:
            return exact
        scored = [
            (tuple(one == other for one, other in zip(known, traits, strict=True)), playables)
            for known, playables in self.by_traits.items()
        ]
        best = max(score for score, _ in scored)
        chosen = [playables for score, playables in scored if score == best]
        if len(chosen) == 1:
            return chosen[0]
        return sorted(
            (playable for playables in chosen for playable in playables),
            key=lambda playable: playable.arrival,
        )


class Index:
    """All recorded exchanges of a replay."""

    def __init__(
        self, known_as: Callable[[LookupKey], LookupKey], *, has_placeholders: bool
    ) -> None:
        """Begin empty.

        Args:
            known_as: returns by which lookup key a request is looked up.
            has_placeholders: some recorded request has placeholders of secrets.
        """
        self._known_as = known_as
        self._has_placeholders = has_placeholders
        self._by_lookup: dict[LookupKey, Candidates] = {}
        self._by_any_rule: dict[LookupKey, Candidates] = {}

    def add(self, playable: Playable) -> None:
        """Add an exchange, after all whose requests arrived earlier."""
        lookup = playable.lookup
        self._add(lookup, playable)
        # A state that the client didn't get from the cassette, such as a literal in a test, has the
        # hash of the state that was sent while recording.
        raw_state = playable.exchange.echoed_sha256
        if raw_state is not None and raw_state != lookup.state:
            self._add(self._known_as(lookup._replace(state=raw_state)), playable)

    def _add(self, lookup: LookupKey, playable: Playable) -> None:
        self._by_lookup.setdefault(lookup, Candidates()).add(playable)
        if self._has_placeholders:
            general = by_any_rule(lookup)
            if general != lookup:
                self._by_any_rule.setdefault(general, Candidates()).add(playable)

    def of(self, lookup: LookupKey) -> Candidates | None:
        """Return the exchanges with a lookup key, or None."""
        return self._by_lookup.get(lookup)

    def of_any_rule(self, lookup: LookupKey) -> Candidates | None:
        """Return the exchanges with a lookup key in which any rule may have found a secret.

        A client that was given a placeholder may send it where another rule found the secret while
        recording.
        """
        return self._by_any_rule.get(by_any_rule(lookup))
