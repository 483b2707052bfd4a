"""The replay side of one run: requests in, recorded replies or misses out.

Owns: which recorded exchange a request gets, and what has been played.
Does not own: why nothing matches (`diagnosis`), sockets (the shell).
Rule: a request gets a recorded reply only if call, request state and answers are the recorded
ones. The closest match is never played.
Source: docs/matching.md.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from mrtr_cassette.core.exchange.caller_values import CallerValues, caller_values, cut_body
from mrtr_cassette.core.exchange.lookup import LookupKey, lookup_key
from mrtr_cassette.core.exchange.recorded import Cassette
from mrtr_cassette.core.protocol.calls import (
    Call,
    CallKey,
    Traits,
    is_read_only,
    read_call,
    traits_of_headers,
)
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.replay.diagnosis import (
    Miss,
    no_match,
    no_more,
    not_kept,
    other_secrets,
)
from mrtr_cassette.core.replay.gates import gates_of
from mrtr_cassette.core.replay.given import GivenOut
from mrtr_cassette.core.replay.harmless import Harmless, HarmlessRequests
from mrtr_cassette.core.replay.index import Candidates, Index
from mrtr_cassette.core.replay.matching import (
    MatchedForm,
    Secret,
    all_alike,
    has_placeholders,
    secrets_in,
)
from mrtr_cassette.core.replay.playable import Playable, Question, playable
from mrtr_cassette.core.replay.reply import Echo, Reply, build_reply, echoes_in
from mrtr_cassette.core.replay.told_apart import ToldApart
from mrtr_cassette.core.wire.http import Request
from mrtr_cassette.core.wire.jsonbytes import MemberPath
from mrtr_cassette.core.wire.readable import readable

_SAFE_HTTP = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})


class Repeat(Enum):
    """Whether an exchange that has been played may be played again."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Play:
    """A hit: the recorded reply, or None where the recorded request never got one."""

    request: Request
    playable: Playable
    reply: Reply | None
    values: CallerValues

    @property
    def call(self) -> Call:
        """The request, read."""
        return read_call(self.request)


class _Wanted(NamedTuple):
    """What a request is matched by, and the caller's values in it."""

    lookup: LookupKey
    traits: Traits
    caller: str
    values: CallerValues
    secrets: tuple[Secret, ...]


class Player:
    """One replay of one cassette.

    Attributes:
        path: how messages name the cassette's file.
        interactions: for each interaction, the exchanges that no earlier one has.
        misses: the requests that got no recorded reply, in order.
        harmless: the requests that were not recorded and got what any server answers, in order.
        plays: how many did.
    """

    def __init__(
        self,
        cassette: Cassette,
        *,
        ignored: Collection[MemberPath] = (),
        repeat: Repeat = Repeat.AUTO,
        paced: bool = False,
        strict: bool = False,
    ) -> None:
        """Prepare a replay.

        Args:
            cassette: what was recorded.
            ignored: members of the params that don't count, as keys from the outermost inwards.
            repeat: whether what has been played may be played again.
            paced: the shell will keep the recorded rhythm.
            strict: harmless requests that were not recorded are misses.
        """
        self.path = cassette.path
        self.misses: list[Miss] = []
        self.harmless: list[Harmless] = []
        self.plays = 0
        self._ignored = tuple(ignored)
        self._repeat = repeat
        self._paced = paced
        self._arrived: set[int] = set()
        self._asked: set[Question] = set()
        self._given = GivenOut(cassette.upstream)
        self._told_apart = ToldApart()
        self._matched = MatchedForm(cassette, self._given)
        self.interactions = _playables(cassette, self._matched, self._ignored)
        self._playables = [each for own in self.interactions for each in own]
        self._harmless = None if strict else HarmlessRequests(self._playables)
        self._gates = gates_of(self._playables)
        self._replies: dict[Playable, Reply] = {}
        self._echoes: dict[Playable, tuple[Echo, ...]] = {}
        self._index = Index(has_placeholders=self._matched.has_placeholders)
        self._by_digest: dict[bytes, Playable] = {}
        for each in sorted(self._playables, key=lambda each: each.arrival):
            self._index.add(each)
            # Otherwise the form in which a request is matched depends on all of it.
            if each.digest is not None and self._matched.keeps_body(each.request):
                self._by_digest.setdefault(each.digest, each)

    def key_of(self, call: Call) -> CallKey:
        """Return the call key by which a request is matched, for a miss."""
        return call.key(self._ignored)

    def request_received(self, request: Request) -> Play | Miss | Harmless:
        """Find the recorded reply to a request, and count it as played, missed or harmless."""
        request = readable(request)
        wanted = self._recognised(request) or self._read(request)
        candidates = self._candidates(wanted.lookup, request)
        nearest = candidates.nearest(wanted.traits) if candidates is not None else []
        several = candidates is not None and candidates.has_several_secrets
        fitting = self._told_apart.fitting(nearest, wanted.secrets, several=several)
        chosen = self._choose(fitting, wanted.caller)
        if chosen is None or chosen.is_withheld:
            return self._unanswered(request, nearest, fitting, chosen)
        self._told_apart.played(chosen, wanted.secrets)
        if not chosen.played and chosen.exchange.response is not None:
            self._given.played(chosen.exchange.response)
        chosen.played += 1
        if chosen.question is not None:
            self._asked.add(chosen.question)
        self.plays += 1
        if chosen.exchange.number is not None:
            self._arrived.add(chosen.exchange.number)
        return Play(request, chosen, self._reply(chosen), wanted.values)

    def _recognised(self, request: Request) -> _Wanted | None:
        """Read a request that differs from a recorded one in the caller's values only."""
        cut = cut_body(request.body)
        same = None if cut is None else self._by_digest.get(cut.digest)
        if (
            cut is None
            or same is None
            or request.method != same.request.method
            or request.target != same.request.target
            or traits_of_headers(request.headers) != traits_of_headers(same.request.headers)
        ):
            return None
        return _Wanted(same.lookup, same.traits, same.caller, cut.values, ())

    def _read(self, request: Request) -> _Wanted:
        received = read_call(request)
        matched, secrets = _alike(self._matched, self._matched.received(request), self._ignored)
        call = received if matched is request else read_call(matched)
        lookup = lookup_key(call, self._ignored)
        values = caller_values(received.message)
        return _Wanted(lookup, call.traits, call.caller, values, secrets)

    def _candidates(self, lookup: LookupKey, received: Request) -> Candidates | None:
        candidates = self._index.of(lookup)
        # A secret that the client knows by itself is found by the same rule while recording.
        if candidates is None and self._matched.has_placeholders and has_placeholders(received):
            return self._index.of_any_rule(lookup)
        return candidates

    def _choose(self, candidates: Sequence[Playable], caller: str) -> Playable | None:
        reachable = [each for each in candidates if self._was_asked(each)]
        # What may always be repeated begins again with the first, once all have been played.
        rounds = 0
        if self._repeat is Repeat.ALWAYS and reachable:
            rounds = min(each.played for each in reachable)
        unplayed = [each for each in reachable if each.played <= rounds]
        if len(unplayed) > 1:
            for each in unplayed:
                if each.caller == caller:
                    return each
        if unplayed:
            return unplayed[0]
        return reachable[-1] if reachable and self._may_repeat(reachable[-1]) else None

    def _was_asked(self, playable: Playable) -> bool:
        """Tell whether the ask that an exchange answers has been played, or one just like it."""
        parent = playable.parent
        return parent is None or parent.played > 0 or parent.question in self._asked

    def _may_repeat(self, playable: Playable) -> bool:
        if self._repeat is Repeat.NEVER:
            return False
        if playable.kind is None or playable.kind is Kind.RESPONSE:
            return playable.request.method in _SAFE_HTTP
        return playable.kind is Kind.NOTIFICATION or is_read_only(playable.key.method)

    def _unanswered(
        self,
        request: Request,
        candidates: Sequence[Playable],
        fitting: Sequence[Playable],
        chosen: Playable | None,
    ) -> Miss | Harmless:
        harmless = None
        if self._harmless is not None and not candidates:
            harmless = self._harmless.answer_to(read_call(request))
        if harmless is not None:
            self.harmless.append(harmless)
            return harmless
        miss = self._miss(request, candidates, fitting, chosen)
        self.misses.append(miss)
        return miss

    def _miss(
        self,
        request: Request,
        candidates: Sequence[Playable],
        fitting: Sequence[Playable],
        chosen: Playable | None,
    ) -> Miss:
        # What is told of a miss has no secrets either.
        call = read_call(self._matched.told(request))
        if chosen is not None:
            return not_kept(call, chosen)
        if not candidates:
            return no_match(call, self._playables, self._ignored)
        if not fitting:
            return other_secrets(call, candidates)
        return no_more(call, fitting, was_asked=any(map(self._was_asked, fitting)))

    def _reply(self, playable: Playable) -> Reply | None:
        exchange = playable.exchange
        if exchange.response is None:
            return None
        reply = self._replies.get(playable)
        if reply is None:
            echoes = self._echoes.get(playable)
            if echoes is None:
                echoes = echoes_in(exchange.call.message, exchange.response)
                self._echoes[playable] = echoes
            reply = build_reply(
                echoes,
                exchange.response,
                self._gates.get(exchange, ()),
                started_ms=exchange.started_ms,
                paced=self._paced,
            )
            # Of all replies only a stream costs more to put together than to keep.
            if reply.is_event_stream:
                self._replies[playable] = reply
        return reply

    def redacted(self, text: str) -> str:
        """Return a text for the terminal, without what the cassette's rules know as secrets."""
        return self._matched.shown(text)

    @property
    def unplayed(self) -> list[int]:
        """Numbers of the interactions of which something was never played."""
        return [
            number
            for number, own in enumerate(self.interactions, start=1)
            if not all(each.played for each in own)
        ]

    def is_due(self, gate: frozenset[int]) -> bool:
        """Tell whether all requests that a part waits for have come."""
        return gate <= self._arrived


def _alike(
    matched: MatchedForm, request: Request, ignored: Collection[MemberPath]
) -> tuple[Request, tuple[Secret, ...]]:
    """Return a request in which all secrets of a rule are the same one, and which they are."""
    if not matched.has_placeholders:
        return request, ()
    alike = all_alike(request)
    if alike == request:
        return request, ()
    return alike, secrets_in(lookup_key(read_call(request), ignored))


def _playables(
    cassette: Cassette, matched: MatchedForm, ignored: Collection[MemberPath]
) -> list[list[Playable]]:
    """Return the exchanges of each interaction that no earlier one has."""
    # All of each interaction, as a branch begins with what it shares.
    chains: list[list[Playable]] = []
    for interaction in cassette.interactions:
        branch, shared = interaction.branch, interaction.shared
        chain = [] if branch is None else chains[branch.of - 1][:shared]
        for exchange in interaction.exchanges[shared:]:
            place = interaction.number, len(chain)
            parent = chain[-1] if chain else None
            request, secrets = _alike(matched, matched.recorded(exchange.request), ignored)
            chain.append(playable(exchange, place, request, parent, secrets, ignored))
        chains.append(chain)
    return [
        chain[interaction.shared :] if interaction.shared else chain
        for interaction, chain in zip(cassette.interactions, chains, strict=True)
    ]
