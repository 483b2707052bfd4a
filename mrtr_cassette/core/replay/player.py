"""The replay side of one run: requests in, recorded replies or misses out.

Owns: which recorded exchange a request gets, and what has been played.
Does not own: why nothing matches (`diagnosis`), sockets (`shell`).
Rule: a request gets a recorded reply only if call, request state and answers are the recorded
ones. There is no closest match.
Source: docs/matching.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from mrtr_cassette.core.exchange.caller_values import Own, cut_own, own_of
from mrtr_cassette.core.exchange.lookup import LookupKey, lookup_key
from mrtr_cassette.core.exchange.nodes import Node, read_nodes
from mrtr_cassette.core.format.model import CassetteModel, ExchangeFactsModel, InteractionModel
from mrtr_cassette.core.protocol.calls import (
    Call,
    CallKey,
    Traits,
    is_reading,
    read_call,
    traits_of_headers,
)
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.record.recorder import redacted_request
from mrtr_cassette.core.replay.diagnosis import Miss, no_match, no_more
from mrtr_cassette.core.replay.reply import Reply, build_reply
from mrtr_cassette.core.secrets.answers import seal_answers
from mrtr_cassette.core.secrets.placeholders import without_numbers, without_rules
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.states import as_recorded, seal_states
from mrtr_cassette.core.wire.http import Headers, Request
from mrtr_cassette.core.wire.jsonbytes import MemberPath

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
    node: Node
    reply: Reply | None
    own: Own

    @property
    def call(self) -> Call:
        """The request, read."""
        return read_call(self.request)


class _Asked(NamedTuple):
    """What a request asks for, and what in it is the caller's own."""

    slot: LookupKey
    traits: Traits
    caller: str
    own: Own


@dataclass(slots=True)
class _Shelf:
    """Recorded exchanges that the same request can get, in recorded order, by traits."""

    by_traits: dict[Traits, list[Node]] = field(default_factory=dict)

    def add(self, node: Node) -> None:
        self.by_traits.setdefault(node.traits, []).append(node)

    def most_specific(self, traits: Traits) -> list[Node]:
        """Return the exchanges whose traits come nearest, in recorded order.

        Those with other traits are no answers, even when these have all been played: the same
        body may have been refused for its headers.
        """
        exact = self.by_traits.get(traits)
        if exact is not None:
            return exact
        scored = [
            (tuple(one == other for one, other in zip(known, traits, strict=True)), nodes)
            for known, nodes in self.by_traits.items()
        ]
        best = max(score for score, _ in scored)
        chosen = [nodes for score, nodes in scored if score == best]
        if len(chosen) == 1:
            return chosen[0]
        return sorted(
            (node for nodes in chosen for node in nodes),
            key=_arrival,
        )


def _arrival(node: Node) -> tuple[float, int, int]:
    """Order exchanges as their requests arrived, or as the file has them."""
    number = float("inf") if node.number is None else node.number
    return number, node.interaction, node.turn


def redactor_of(cassette: CassetteModel) -> Redactor | None:
    """Return what redacts by a cassette's rules, all secrets of a rule alike, or None."""
    if cassette.redaction is None:
        return None
    return Redactor(cassette.redaction.rules(), lambda _rule, _secret: "0")


def _without_numbers(request: Request) -> Request:
    return Request(
        request.method,
        without_numbers(request.target),
        tuple((name, without_numbers(value)) for name, value in request.headers),
        without_numbers(request.body.decode("latin-1")).encode("latin-1"),
    )


def _may_have_placeholders(request: Request) -> bool:
    # As they are, escaped in JSON, or percent-encoded.
    body = request.body
    return (
        # Quicker than `in`, which takes a number too.
        max(map(body.find, (b"<", b"003", b"%3"))) >= 0
        or "%3" in request.target
        or _has_angle(request.headers)
    )


@lru_cache(maxsize=1024)
def _has_angle(headers: Headers) -> bool:
    return any("<" in value for _, value in headers)


def _by_any_rule(slot: LookupKey) -> LookupKey:
    key, state, answers = slot
    return LookupKey(
        CallKey(*map(without_rules, key)),
        state,
        None if answers is None else without_rules(answers),
    )


class Player:
    """One replay of one cassette."""

    def __init__(
        self,
        cassette: CassetteModel,
        path: str,
        *,
        interactions: Iterable[InteractionModel] | None = None,
        exchanges: Iterable[ExchangeFactsModel] | None = None,
        ignored: Collection[MemberPath] = (),
        repeat: Repeat = Repeat.AUTO,
        paced: bool = False,
    ) -> None:
        """Prepare a replay.

        Args:
            cassette: what was recorded.
            path: how messages name its file.
            interactions: those of the cassette, where it was read without them.
            exchanges: the facts of its exchanges, where it was read without them.
            ignored: members of the params that don't count, as keys from the outermost inwards.
            repeat: whether what has been played may be played again.
            paced: the shell will keep the recorded rhythm.

        Raises:
            CassetteError: a body in the cassette isn't what was recorded.
        """
        self.path = path
        self.misses: list[Miss] = []
        self.plays = 0
        self.arrived: set[int] = set()
        self._ignored = tuple(ignored)
        self._repeat = repeat
        self._paced = paced
        self._states_are_sealed = cassette.request_state == "sealed"
        self._answers_are_sealed = cassette.answers is not None
        self._redactor = redactor_of(cassette)
        self._has_placeholders = False
        self.interactions = read_nodes(
            cassette,
            path,
            self._ignored,
            self._recorded_as,
            interactions=interactions,
            exchanges=exchanges,
        )
        self._nodes = [node for nodes in self.interactions for node in nodes]
        if self._has_placeholders:
            # What has none may still have secrets: not everything need be recorded by these rules.
            for node in self._nodes:
                node.match_as(self._redacted(node.request), self._ignored)
        self._streams: dict[Node, Reply] = {}
        self._asked: set[tuple[CallKey, str]] = set()
        self._index: dict[LookupKey, _Shelf] = {}
        self._index_by_any_rule: dict[LookupKey, _Shelf] = {}
        self._by_rest: dict[bytes, Node] = {}
        # Else what a request is matched as has to be worked out from all of it.
        is_matched_as_sent = not (self._has_placeholders or self._answers_are_sealed)
        for node in sorted(self._nodes, key=_arrival):
            self._add(node)
            if node.rest is not None and is_matched_as_sent:
                self._by_rest.setdefault(node.rest, node)

    def _add(self, node: Node) -> None:
        key, state, answers = node.slot
        self._shelve(node.slot, node)
        # What a client sends that doesn't come from the cassette, such as a literal in a test,
        # is known by the hash of what was sent while recording.
        raw = node.raw_echoed_sha256
        if raw is not None and raw != state:
            self._shelve(LookupKey(key, raw, answers), node)

    def _shelve(self, slot: LookupKey, node: Node) -> None:
        self._index.setdefault(slot, _Shelf()).add(node)
        if self._has_placeholders:
            by_any_rule = _by_any_rule(slot)
            if by_any_rule != slot:
                self._index_by_any_rule.setdefault(by_any_rule, _Shelf()).add(node)

    def _shelf(self, slot: LookupKey, received: Request) -> _Shelf | None:
        """Return the exchanges that a request can get.

        A client that was given a placeholder may send it where another rule found the secret while
        recording. What it knows by itself is found by the same rule on both sides.
        """
        shelf = self._index.get(slot)
        if shelf is None and self._has_placeholders and _without_numbers(received) != received:
            shelf = self._index_by_any_rule.get(_by_any_rule(slot))
        return shelf

    def key_of(self, call: Call) -> CallKey:
        """Return the key by which a request is matched, as a miss has it."""
        return call.key(self._ignored)

    def request_received(self, request: Request) -> Play | Miss:
        """Find the recorded reply to a request, and count it as played or missed."""
        asked = self._seen_before(request) or self._read(request)
        shelf = self._shelf(asked.slot, request)
        candidates = shelf.most_specific(asked.traits) if shelf is not None else []
        node = self._choose(candidates, asked.caller)
        if node is None:
            # What is told of a miss has no secrets either.
            call = read_call(self._redacted(self._matched_as(request)))
            miss = (
                no_more(call, candidates, was_asked=any(map(self._was_asked, candidates)))
                if candidates
                else no_match(call, self._nodes, self._ignored)
            )
            self.misses.append(miss)
            return miss
        node.played += 1
        if node.question is not None:
            self._asked.add(node.question)
        self.plays += 1
        if node.number is not None:
            self.arrived.add(node.number)
        return Play(request, node, self._reply(node), asked.own)

    def _seen_before(self, request: Request) -> _Asked | None:
        """Read a request that differs from a recorded one in the caller's own values only."""
        cut = cut_own(request.body)
        node = None if cut is None else self._by_rest.get(cut[0])
        if (
            cut is None
            or node is None
            or request.method != node.request.method
            or request.target != node.request.target
            or traits_of_headers(request.headers) != traits_of_headers(node.request.headers)
        ):
            return None
        return _Asked(node.slot, node.traits, node.caller, cut[1])

    def _read(self, request: Request) -> _Asked:
        asked = read_call(request)
        matched = self._matched_as(request)
        call = asked if matched is request else read_call(matched)
        slot = lookup_key(call, self._ignored)
        return _Asked(slot, call.traits, call.caller, own_of(asked.message))

    def _matched_as(self, request: Request) -> Request:
        """Return a request as it is matched: states, secrets and answers as they were recorded.

        Which secret it was is not known any more, so a placeholder tells its rule only.
        """
        request = self._sealed(request)
        return self._redacted(request) if self._has_placeholders else request

    def _redacted(self, request: Request) -> Request:
        if self._redactor is None:
            return request
        redacted = _without_numbers(redacted_request(request, self._redactor))
        return request if redacted == request else redacted

    def _sealed(self, request: Request) -> Request:
        body = request.body
        if self._states_are_sealed:
            body = seal_states(body, as_recorded)
        if self._answers_are_sealed:
            body = seal_answers(body)
        return request if body == request.body else replace(request, body=body)

    def _recorded_as(self, request: Request) -> Request:
        """Return a recorded request as it is matched, and note whether placeholders are in it."""
        request = self._sealed(request)
        if self._redactor is not None and not self._has_placeholders:
            self._has_placeholders = _may_have_placeholders(request) and (
                _without_numbers(request) != request
            )
        return request

    def redacted(self, text: str) -> str:
        """Return a text for the terminal, without what the cassette's rules know as secrets."""
        return text if self._redactor is None else self._redactor.text(text)

    def _reply(self, node: Node) -> Reply | None:
        if node.response is None:
            return None
        reply = self._streams.get(node)
        if reply is None:
            reply = build_reply(node.echoed, node.response, node.gates, paced=self._paced)
            # Of all replies only a stream costs more to put together than to keep.
            if reply.is_event_stream:
                self._streams[node] = reply
        return reply

    def _choose(self, candidates: Sequence[Node], caller: str) -> Node | None:
        reachable = [node for node in candidates if self._was_asked(node)]
        unplayed = [node for node in reachable if not node.played]
        if len(unplayed) > 1:
            for node in unplayed:
                if node.caller == caller:
                    return node
        if unplayed:
            return unplayed[0]
        return reachable[-1] if reachable and self._may_repeat(reachable[-1]) else None

    def _was_asked(self, node: Node) -> bool:
        """Tell whether the ask that an exchange answers has been played, or one just like it."""
        parent = node.parent
        return parent is None or parent.played > 0 or parent.question in self._asked

    def _may_repeat(self, node: Node) -> bool:
        if self._repeat is not Repeat.AUTO:
            return self._repeat is Repeat.ALWAYS
        if node.kind is None or node.kind is Kind.RESPONSE:
            return node.request.method in _SAFE_HTTP
        return node.kind is Kind.NOTIFICATION or is_reading(node.key.method)

    @property
    def unplayed(self) -> list[int]:
        """Numbers of the interactions of which something was never played."""
        return [
            number
            for number, nodes in enumerate(self.interactions, start=1)
            if not all(node.played for node in nodes)
        ]

    def is_due(self, gate: frozenset[int]) -> bool:
        """Tell whether all requests that a part waits for have come."""
        return gate <= self.arrived
