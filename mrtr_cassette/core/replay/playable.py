"""A recorded exchange in one replay: its lookup key, and how often it has been played."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mrtr_cassette.core.exchange.caller_values import digest_of
from mrtr_cassette.core.exchange.lookup import LookupKey, lookup_key
from mrtr_cassette.core.exchange.recorded import Cassette, PushedRequest, RecordedExchange
from mrtr_cassette.core.exchange.sessions import Streams, listens, opened_session, session_of
from mrtr_cassette.core.protocol.calls import Call, CallKey, Traits, read_call
from mrtr_cassette.core.protocol.dialect import INPUT_REQUESTS
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.protocol.messages import Ask
from mrtr_cassette.core.replay.matching import MatchedForm, Secret, alike
from mrtr_cassette.core.secrets.surrogates import sha256_of
from mrtr_cassette.core.wire.http import Request
from mrtr_cassette.core.wire.jsonbytes import MemberPath, canonical


class Question(NamedTuple):
    """What an ask without state asks: equal questions of a call are the same one.

    Attributes:
        call: the call.
        input_requests: their canonical text.
    """

    call: CallKey
    input_requests: str


class PushedQuestion(NamedTuple):
    """What a posted answer answers.

    Attributes:
        pending: the exchange that was pending when the server asked.
        request: the request that it pushed.
    """

    pending: Playable
    request: PushedRequest


@dataclass(eq=False, slots=True)
class Playable:
    """One recorded exchange in one replay.

    Attributes:
        exchange: what was recorded.
        interaction: number of its interaction, from 1.
        turn: the turn that its request answers, from 1; 0 for a first request.
        asking_turn: the turn that its response asks, if it does.
        session: id of its recorded session; empty where it has none.
        opens_session: its response gave that id to its client.
        is_listening: its response is a stream that tells what other requests caused.
        begun: the exchange with which the stream began that it resumes, or None.
        request: its request as it is matched, without secrets.
        kind: the kind of the request's message, or None if its body is no message.
        lookup: its lookup key.
        traits: what breaks ties with others of the same lookup key.
        caller: who sent the request.
        ask: where its response asks for input, or None.
        parent: the exchange whose ask it answers; None for a first request and an orphan.
        digest: digest of the request's body without the caller's values, where these can be cut.
        secrets: what stands for secrets in its request.
        question: what its ask asks, where that has no state.
        lookup_number: the same for all exchanges of one lookup key.
        occurrence: how many exchanges of its lookup key its session had, up to and with it.
        played: how often it has been played.
        same: the one that is played in its place, where it is the same one; None as a rule.
        answers: what it answers, if it is a posted answer; else None.
    """

    exchange: RecordedExchange
    interaction: int
    turn: int
    asking_turn: int
    session: str
    opens_session: bool
    is_listening: bool
    request: Request
    kind: Kind | None
    lookup: LookupKey
    traits: Traits
    caller: str
    ask: Ask | None
    parent: Playable | None
    digest: bytes | None
    secrets: tuple[Secret, ...]
    question: Question | None = field(init=False)
    lookup_number: int = 0
    occurrence: int = 0
    played: int = 0
    same: Playable | None = None
    answers: PushedQuestion | None = None
    begun: Playable | None = None

    def __post_init__(self) -> None:
        """Work out what its ask asks."""
        self.question = None
        if self.ask is not None and self.ask.request_state is None:
            requests = self.ask.message.tree["result"].get(INPUT_REQUESTS)
            self.question = Question(self.key, canonical(requests))

    @property
    def stream(self) -> Playable:
        """The exchange with which the stream began that its response belongs to."""
        return self.begun or self

    @property
    def was_played(self) -> bool:
        """Whether it, or what is played in its place, has been played."""
        return bool((self.same or self).played)

    @property
    def key(self) -> CallKey:
        """Its call key."""
        return self.lookup.call

    @property
    def call(self) -> Call:
        """Its request as it is matched, read."""
        return read_call(self.request)

    @property
    def issued_sha256(self) -> str | None:
        """Hash of the request state that its ask issues on replay, or None."""
        state = None if self.ask is None else self.ask.request_state
        return None if state is None else sha256_of(state)

    def issued(self, sha256: str) -> bool:
        """Tell whether its ask issued a state with this hash, on replay or while recorded."""
        return self.ask is not None and sha256 in (self.issued_sha256, self.exchange.issued_sha256)

    @property
    def arrival(self) -> tuple[float, int, int]:
        """Orders exchanges as their requests arrived, or as the file has them."""
        number = self.exchange.number
        return float("inf") if number is None else number, self.interaction, self.turn


class CassettePlace(NamedTuple):
    """Where on a cassette an exchange stands.

    Attributes:
        interaction: number of its interaction, from 1.
        turn: the turn that its request answers, from 1; 0 for a first request.
        asking_turn: the turn that its response asks, if it does.
        parent: the exchange whose ask it answers, or None.
        answers: what it answers, if it is a posted answer; else None.
    """

    interaction: int
    turn: int
    asking_turn: int = 0
    parent: Playable | None = None
    answers: PushedQuestion | None = None


def playable(
    exchange: RecordedExchange,
    place: CassettePlace,
    request: Request,
    secrets: tuple[Secret, ...],
    ignored: Collection[MemberPath],
    *,
    header_names: Collection[str] = (),
) -> Playable:
    """Return an exchange as a replay knows it.

    Args:
        exchange: what was recorded.
        place: where it stands.
        request: its request as it is matched.
        secrets: what stands for secrets in its request.
        ignored: members of the params that don't count.
        header_names: lower-case names of the headers that are traits, besides MCP's.
    """
    call = read_call(request)
    session = session_of(exchange.request)
    response = exchange.response
    opened = "" if session else opened_session(response)
    return Playable(
        exchange=exchange,
        interaction=place.interaction,
        turn=place.turn,
        asking_turn=place.asking_turn,
        session=session or opened,
        opens_session=bool(opened),
        is_listening=listens(call, response),
        request=request,
        kind=None if call.message is None else call.message.kind,
        lookup=lookup_key(call, ignored),
        traits=call.traits_with(header_names),
        caller=call.caller,
        ask=exchange.ask,
        parent=place.parent,
        digest=None if call.message is None else digest_of(call.message),
        secrets=secrets,
        answers=place.answers,
    )


def playables_of(
    cassette: Cassette, matched: MatchedForm, ignored: Collection[MemberPath]
) -> list[list[Playable]]:
    """Return the exchanges of each interaction that no earlier one has."""

    def made(exchange: RecordedExchange, place: CassettePlace) -> Playable:
        request, secrets = alike(matched, matched.recorded(exchange.request), ignored)
        names = matched.header_names
        return playable(exchange, place, request, secrets, ignored, header_names=names)

    # All of each interaction, as a branch begins with what it shares.
    chains: list[list[Playable]] = []
    own: list[list[Playable]] = []
    for interaction in cassette.interactions:
        branch, shared = interaction.branch, interaction.shared
        chain = [] if branch is None else chains[branch.of - 1][:shared]
        turns = iter([place.turn for place in interaction.places])
        for exchange in interaction.exchanges[shared:]:
            parent = chain[-1] if chain else None
            asking = interaction.asking_turn(len(chain))
            place = CassettePlace(interaction.number, next(turns), asking, parent)
            chain.append(made(exchange, place))
        posted = []
        for turn in interaction.pushed_turns:
            requests = {asked.key: asked for asked in turn.asked}
            for answer in turn.answers if turn.position >= shared else ():
                question = PushedQuestion(chain[turn.position], requests[answer.key])
                place = CassettePlace(interaction.number, next(turns), answers=question)
                posted.append(made(answer.exchange, place))
        chains.append(chain)
        own.append([*chain[shared:], *posted])
    return own


def number_lookups(by_arrival: Iterable[Playable]) -> None:
    """Number the lookup keys of all exchanges, and count how often each comes in a session.

    Equal answers to what was asked during other calls count apart. What resumes a stream has the
    number of that stream in the place of a key, as each session has other ids of events.
    """
    numbers: dict[tuple[Any, ...], int] = {}
    occurrences: Counter[tuple[str, int]] = Counter()
    streams = Streams[Playable]()
    for each in by_arrival:
        key: tuple[Any, ...] = each.lookup, each.answers and each.answers.pending.lookup_number
        begun = each.begun = streams.add(each.exchange, each)
        if begun is not None:
            each.is_listening = each.is_listening and begun.is_listening
            key = begun.lookup_number, begun.occurrence
        each.lookup_number = numbers.setdefault(key, len(numbers))
        occurrences[each.session, each.lookup_number] += 1
        each.occurrence = occurrences[each.session, each.lookup_number]
