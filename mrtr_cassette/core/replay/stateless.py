"""Replay without memory: a request gets the same reply from every process, whatever was played.

Rule: no answer depends on what this process was asked before.
Source: docs/matching.md, "Without memory".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from mrtr_cassette.core.exchange.caller_values import CallerValues
from mrtr_cassette.core.exchange.lookup import LookupKey
from mrtr_cassette.core.exchange.recorded import Cassette
from mrtr_cassette.core.exchange.sessions import NO_SESSION, session_of
from mrtr_cassette.core.protocol.calls import Traits
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.protocol.messages import messages_in
from mrtr_cassette.core.replay.index import Candidates
from mrtr_cassette.core.replay.live_sessions import LiveSession
from mrtr_cassette.core.replay.matching import Secret
from mrtr_cassette.core.replay.playable import Playable
from mrtr_cassette.core.replay.sameness import Sameness
from mrtr_cassette.core.replay.timeline import NO_WAITS, Gate, Timelines, Waits
from mrtr_cassette.core.wire.http import Headers, Request
from mrtr_cassette.errors import CassetteError

_MOST_LISTED: Final = 10

_TOLD_BY: Final = {
    "empty_members": "empty arguments",
    "session": "the session",
    "is_authorized": "the header Authorization",
    "has_progress_token": "a progress token",
    "capabilities": "the client's capabilities",
    "protocol_version": "the protocol version",
    "accept": "the header Accept",
}
"""How messages name the traits, headers of many names aside."""


class SeveralAnswers(NamedTuple):
    """The same request with several recorded answers.

    Attributes:
        call: what was called, such as `tools/call "status"`.
        interactions: numbers of the interactions that it is in.
        told_apart_by: what tells the requests apart; empty where nothing does.
    """

    call: str
    interactions: tuple[int, ...]
    told_apart_by: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return a line for messages."""
        line = f"{_numbered(self.interactions)}: {self.call}"
        by = ", ".join(self.told_apart_by)
        return f"{line}, told apart by {by}" if by else line


class NeedsOneProcess(NamedTuple):
    """What was recorded and can only be played by one process.

    Attributes:
        session: id of the session; empty where it has none.
        interactions: numbers of the interactions for which that is so.
        reason: why.
    """

    session: str
    interactions: tuple[int, ...]
    reason: str

    def __str__(self) -> str:
        """Return a line for messages."""
        where = f"{self.session} ({_numbered(self.interactions)})" if self.session else ""
        return f"{where or _numbered(self.interactions)}: {self.reason}"


class Purity(NamedTuple):
    """Whether a cassette is a pure function of the request.

    Attributes:
        told_apart: the same request with several answers, and what tells which it gets.
        ambiguous: the same where nothing tells.
        bound: what can only be played by one process.
    """

    told_apart: tuple[SeveralAnswers, ...]
    ambiguous: tuple[SeveralAnswers, ...]
    bound: tuple[NeedsOneProcess, ...]

    def check(self, path: str) -> None:
        """Make sure that it is.

        Raises:
            CassetteError: it is not; the error names what is in the way.
        """
        if self.bound:
            reason = (
                "<<stateless>> can't play what one process has to remember; serve it without, from "
                "one process, or from several to which a load balancer routes each session"
            )
            raise CassetteError(path, listed(reason, self.bound))
        if self.ambiguous:
            reason = (
                "with <<stateless>> nothing tells which of several recorded answers these requests "
                "get; serve it without, from one process, or record one answer to each, or a "
                "header by <<match_headers>> that tells them apart"
            )
            raise CassetteError(path, listed(reason, self.ambiguous))


class Stateless:
    """What a request gets from any process.

    Attributes:
        purity: whether the cassette allows that.
        held_open: listening streams whose recorded end waited for other requests.
    """

    def __init__(
        self,
        cassette: Cassette,
        by_arrival: Sequence[Playable],
        timelines: Timelines,
        answered: Mapping[Playable, Playable],
    ) -> None:
        """Compare what was recorded, and let one exchange stand for all that are the same.

        Args:
            cassette: what was recorded.
            by_arrival: all exchanges of it, in the order in which they arrived.
            timelines: what waits for what.
            answered: the exchange with the answers that the recorder gave in its client's place, by
                the one that asks.
        """
        self._same = Sameness(by_arrival, answered)
        groups = _groups(by_arrival, self._same)
        several = [*_several(groups, self._same)]
        self.held_open: set[Playable] = set()
        self.purity = Purity(
            tuple(each for each in several if each.told_apart_by),
            tuple(each for each in several if not each.told_apart_by),
            (*_pushing(cassette, by_arrival), *self._gated(by_arrival, timelines)),
        )
        self._states = self._same.states
        self._shared = LiveSession(NO_SESSION, NO_SESSION)
        self._sessions = {
            each.session: LiveSession(self._same.root(each.session), each.session)
            for each in by_arrival
            if each.session
        }
        for cells in groups.values():
            for cell, members in cells.items():
                first = next((each for each in members if each.exchange.response), members[0])
                for each in members:
                    each.lookup, each.traits = cell.lookup, cell.traits
                    each.caller = cell.caller
                    each.same = None if each is first else first

    def _gated(
        self, by_arrival: Iterable[Playable], timelines: Timelines
    ) -> Iterator[NeedsOneProcess]:
        """Find listening streams that tell what other requests caused."""
        for each in by_arrival:
            response, number = each.exchange.response, each.exchange.number
            if each.begun is not None and each.begun.kind is Kind.REQUEST:
                reason = "a request gets the rest of what was said to another one"
                yield NeedsOneProcess(each.session, (each.interaction,), reason)
            if response is None or number is None or not each.is_listening:
                continue
            waits = timelines.waits_of(each)
            saying = {located.piece for located in messages_in(response)}
            gates = [gate for at, gate in enumerate(waits.pieces) if at in saying]
            if any(_waits_for_later(gate, waits, number) for gate in gates):
                reason = "a stream says what other requests caused"
                yield NeedsOneProcess(each.session, (each.interaction,), reason)
            elif _waits_for_later(waits.end, waits, number):
                self.held_open.add(each)

    def known_as(self, lookup: LookupKey) -> LookupKey:
        """Return the lookup key of what stands for all that is the same."""
        state = None if lookup.state is None else self._states.get(lookup.state)
        return lookup if state is None else lookup._replace(state=state)

    def session_of(self, request: Request) -> LiveSession:
        """Return the session in which a client sent a request; nothing is counted in it."""
        if not self._sessions:
            return self._shared
        return self._sessions.get(session_of(request), self._shared)

    def of_session(self, _session: LiveSession, nearest: list[Playable]) -> list[Playable]:
        """Return all: clients that have equal sessions are not told apart."""
        return nearest

    def fitting(
        self, nearest: list[Playable], secrets: tuple[Secret, ...], _candidates: Candidates | None
    ) -> list[Playable]:
        """Return the exchanges whose secrets can be those of a request."""
        if not secrets:
            return nearest
        same = [each for each in nearest if self._has(each, secrets)]
        is_one_answer = len({self._same.says.get(each) for each in nearest}) == 1
        return same or (nearest if is_one_answer else [])

    def _has(self, playable: Playable, received: tuple[Secret, ...]) -> bool:
        # A placeholder that the client was given may stand where another rule found the secret.
        return all(
            recorded.rule != secret.rule or self._same.secret(recorded) == self._same.secret(secret)
            for recorded, secret in zip(playable.secrets, received, strict=False)
        )

    def choose(
        self, fitting: Sequence[Playable], caller: str, _session: LiveSession
    ) -> Playable | None:
        """Return the one of the same client, or else the first."""
        for each in fitting:
            if each.caller == caller:
                return each
        return fitting[0] if fitting else None

    def played(
        self, chosen: Playable, _secrets: tuple[Secret, ...], session: LiveSession
    ) -> LiveSession:
        """Return the session that the client of an exchange is in."""
        return self._sessions[chosen.session] if chosen.opens_session else session

    def arrived(self, chosen: Playable, values: CallerValues, session: LiveSession) -> None:
        """Take note of nothing."""

    def waits_of(self, _playable: Playable) -> Waits:
        """Let nothing wait."""
        return NO_WAITS


class _Cell(NamedTuple):
    """What a request is played by."""

    lookup: LookupKey
    traits: Traits
    secrets: tuple[str, ...]
    caller: str


_Groups = dict[LookupKey, dict[_Cell, list[Playable]]]


def _groups(by_arrival: Iterable[Playable], same: Sameness) -> _Groups:
    """Return the exchanges by lookup key, and by all that is the same in their requests."""
    groups: _Groups = {}
    for each in by_arrival:
        cell = _Cell(*same.identity(each), same.caller(each))
        groups.setdefault(cell.lookup, {}).setdefault(cell, []).append(each)
    return groups


def _several(groups: _Groups, same: Sameness) -> Iterator[SeveralAnswers]:
    """Find requests with several answers."""
    for lookup, cells in groups.items():
        said = {cell: _said(members, same) for cell, members in cells.items()}
        for cell, members in cells.items():
            if len(said[cell]) > 1:
                yield SeveralAnswers(str(lookup.call), _interactions(members))
        if all(len(each) <= 1 for each in said.values()) and len(set().union(*said.values())) > 1:
            members = [each for cell in cells.values() for each in cell]
            yield SeveralAnswers(str(lookup.call), _interactions(members), _told_apart_by(cells))


def _said(members: Iterable[Playable], same: Sameness) -> set[bytes]:
    """Return what the responses to equal requests say; that one got none tells nothing of some."""
    return {
        same.says[each]
        for each in members
        if each in same.says
        and (each.exchange.response is not None or each.kind is not Kind.NOTIFICATION)
    }


def _told_apart_by(cells: Iterable[_Cell]) -> tuple[str, ...]:
    """Return how messages name what differs between requests."""
    cells = [*cells]
    names: list[str] = []
    for name, *values in zip(Traits._fields, *(cell.traits for cell in cells), strict=True):
        if len(set(values)) > 1:
            names += [_TOLD_BY[name]] if name in _TOLD_BY else _differing(values)
    if len({cell.secrets for cell in cells}) > 1:
        names.append("a secret that the server gave out")
    if len({cell.caller.removeprefix(cell.traits.session) for cell in cells}) > 1:
        names.append("the client")
    return tuple(names)


def _differing(headers: Sequence[Headers]) -> list[str]:
    """Return how messages name the headers that not all requests have alike."""
    common = set(headers[0]).intersection(*headers)
    names = sorted({name for each in headers for name, _ in set(each) - common})
    return [f"the header {'-'.join(map(str.capitalize, name.split('-')))}" for name in names]


def _pushing(cassette: Cassette, by_arrival: Iterable[Playable]) -> Iterator[NeedsOneProcess]:
    """Find the sessions in which the server sends requests, whose answers are posted."""
    session_of_interaction = {each.interaction: each.session for each in by_arrival}
    pushing: dict[str, list[int]] = {}
    for each in cassette.interactions:
        if each.pushed_turns:
            session = session_of_interaction.get(each.number, NO_SESSION)
            pushing.setdefault(session, []).append(each.number)
    for session, numbers in pushing.items():
        reason = "the server asks by requests of its own, which are answered by other requests"
        yield NeedsOneProcess(session, tuple(numbers), reason)


def _waits_for_later(gate: Gate, waits: Waits, number: int) -> bool:
    """Tell whether what is gated is about another request, or waits for one after the stream's."""
    return gate.request is not None or any(
        each.kind is not Kind.NOTIFICATION and (each.exchange.number or 0) > number
        for lane, count in zip(waits.lanes, gate.counts, strict=True)
        for each in reversed(lane.arrivals.playables[:count])
    )


def _interactions(members: Iterable[Playable]) -> tuple[int, ...]:
    return tuple(sorted({each.interaction for each in members}))


def _numbered(interactions: Sequence[int]) -> str:
    numbers = [f"#{number}" for number in interactions[:_MOST_LISTED]]
    if len(interactions) > _MOST_LISTED:
        numbers.append(f"{len(interactions) - _MOST_LISTED} more")
    return ", ".join(numbers)


def listed(reason: str, items: Sequence[object]) -> str:
    """Return a line with lines for the first of some items."""
    lines = [f"{reason}:", *(f"  {each}" for each in items[:_MOST_LISTED])]
    if len(items) > _MOST_LISTED:
        lines.append(f"  and {len(items) - _MOST_LISTED} more")
    return "\n".join(lines)
