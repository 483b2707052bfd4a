"""Which recorded requests are equal where a replay remembers nothing, and what it can't play then.

A request state, or a session, stands for any that an equal request got.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.protocol.jsonrpc import Kind, messages_in
from mrtr_cassette.core.replay.history import Timelines
from mrtr_cassette.core.replay.matching import MatchedForm, ReplayEntry
from mrtr_cassette.core.replay.tasks import RecordedTask
from mrtr_cassette.core.replay.worlds import answer_digest
from mrtr_cassette.core.secrets.names import Ref
from mrtr_cassette.errors import CassetteError, shorten

_MOST_LISTED: Final = 10
_REMEDY: Final = "serve it without, from one process"


class EqualRequests:
    """Lets the first of equal requests stand for all of them.

    Raises:
        CassetteError: some reply depends on more than its request; the error names which.
    """

    def __init__(
        self,
        cassette: Cassette,
        by_arrival: Iterable[ReplayEntry],
        matched: MatchedForm,
        timelines: Timelines,
        tasks: Iterable[RecordedTask],
    ) -> None:
        self._matched = matched
        self._roots: dict[str, str] = {}
        by_arrival = [each for each in by_arrival if each.created_by is None]
        reason = f"<<stateless>> can't play what one process has to remember; {_REMEDY}, "
        reason += "or from several to which a load balancer routes each session"
        _refuse(cassette, reason, [*_bound(cassette, by_arrival, timelines, tasks)])
        groups: dict[object, list[ReplayEntry]] = {}
        # Whatever a request carries was issued before it arrived.
        for each in by_arrival:
            group = groups.setdefault(self._identify(each), [])
            group.append(each)
            first = group[0]
            for name, other in (
                (first.issued_sha256, each.issued_sha256),
                (first.issued_sha256, each.exchange.issued_sha256),
                (first.session, each.session) if each.opens_session else ("", ""),
            ):
                if name and other and self.root(name) != self.root(other):
                    self._roots[self.root(other)] = self.root(name)
        ambiguous = []
        for group in groups.values():
            first = next((each for each in group if each.exchange.response), group[0])
            for each in group:
                each.same = None if each is first else first
            if len(group) > 1 and len({*_digests(group)}) > 1:
                numbers = sorted({each.interaction for each in group})
                listed = shorten(", ".join(f"#{number}" for number in numbers))
                ambiguous.append(f"{listed}: {first.key}")
        reason = "with <<stateless>> nothing tells which of several recorded answers these "
        reason += f"requests get; {_REMEDY}, or record one answer to each, or a header by "
        reason += "<<match_headers>> that tells them apart"
        _refuse(cassette, reason, ambiguous)

    def root(self, name: str) -> str:
        """Return the first of the sessions, or hashes of states, that stand for the same as one."""
        while name in self._roots:
            name = self._roots[name]
        return name

    def _identify(self, entry: ReplayEntry) -> object:
        """Put the first of equal names into what an entry is found by, and return all of this."""
        session = self.root(entry.traits.session)
        entry.caller = f"{session}{entry.caller[len(entry.traits.session) :]}"
        entry.traits = entry.traits._replace(session=session)
        if entry.lookup.state is not None:
            entry.lookup = entry.lookup._replace(state=self.root(entry.lookup.state))
        return entry.lookup, entry.traits, entry.caller, *map(self._known_as, entry.secrets)

    def _known_as(self, secret: Ref) -> str:
        """Return what a secret is known by; those that clients know by themselves are all alike."""
        text = secret.name
        return text if text in self._matched.issued else secret.kind

    def fitting(self, entries: list[ReplayEntry], received: tuple[Ref, ...]) -> list[ReplayEntry]:
        """Return the exchanges whose secrets can be those of a request."""
        known = [*map(self._known_as, received)]
        same = [each for each in entries if [*map(self._known_as, each.secrets)] == known]
        return same or (entries if len(entries) == 1 else [])


def _digests(group: Iterable[ReplayEntry]) -> Iterator[bytes]:
    for each in group:
        last = each
        # The client gets the end of what the proxy answered.
        while last.answered_by_proxy is not None:
            last = last.answered_by_proxy
        # A notification may have got no response, and what listening streams say is compared apart.
        is_silent = last.kind is Kind.NOTIFICATION and last.exchange.response is None
        if not (is_silent or last.is_listening):
            yield answer_digest(last)


def _bound(
    cassette: Cassette,
    by_arrival: Iterable[ReplayEntry],
    timelines: Timelines,
    tasks: Iterable[RecordedTask],
) -> Iterator[str]:
    """Say which calls get what depends on other requests, and why."""
    for task in tasks:
        if task.asks or task.causes:
            reason = "which state of its task is played depends on what was answered or cancelled"
            yield f"(#{task.creating.interaction}): {reason}"
    pushing = {each.number for each in cassette.interactions if each.pushed_turns}
    for each in by_arrival:
        reason, response = "", each.exchange.response
        if each.interaction in pushing and not each.turn:
            reason = "the server asks by requests of its own, which are answered by other requests"
        elif each.stream is not each and each.stream.kind is Kind.REQUEST:
            reason = "a request gets the rest of what was said to another one"
        elif response is not None and each.is_listening:
            waits = timelines.waits_of(each)
            said = [located.piece for located in messages_in(response)]
            if any(gate.is_for_later(each) for gate in waits.pieces[: max(said, default=-1) + 1]):
                reason = "a stream says what other requests caused"
        if reason:
            session = f"{each.session} " if each.session else ""
            yield f"{session}(#{each.interaction}): {reason}"


def _refuse(cassette: Cassette, reason: str, items: Sequence[str]) -> None:
    if items:
        more = [f"and {len(items) - _MOST_LISTED} more"] if len(items) > _MOST_LISTED else []
        listed = "\n  ".join([f"{reason}:", *items[:_MOST_LISTED], *more])
        raise CassetteError(cassette.path, listed)
