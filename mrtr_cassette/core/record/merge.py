"""Merge what several recorders saw into one recording, as one recorder would have seen it.

The files' order and their number mean nothing. What contradicts itself is an error that names the
files. What one recorder saw stays in its order, and nothing stands before what caused it: the ask
before the retry with its state, the opening of a session before its use, what a server pushed
before the answer to it. Only then the clocks decide.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from itertools import count
from operator import itemgetter
from typing import NamedTuple

from mrtr_cassette.core.cassette.digests import Announced
from mrtr_cassette.core.cassette.journal import JournalHeader
from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    RecordedBy,
    RecordedExchange,
    RecorderFacts,
)
from mrtr_cassette.core.cassette.texts import recounted, with_texts
from mrtr_cassette.core.protocol.calls import NO_SESSION, session_of
from mrtr_cassette.core.protocol.tasks import named_task
from mrtr_cassette.core.record.assembly import assemble, issued_name
from mrtr_cassette.core.record.facts import Moment, facts_of
from mrtr_cassette.core.secrets.names import (
    HASH,
    SESSION,
    STATE,
    TASK,
    Change,
    Ref,
    compared_sha256,
    is_cassette_token,
    is_journal_token,
    is_of_kind,
    lasting,
    renumber,
    sha256_of,
    with_refs,
)
from mrtr_cassette.errors import CassetteError, counted

_ORIGIN = re.compile("[a-z]+://[^/?]*")


@dataclass(frozen=True, slots=True)
class Source:
    """What one file has of one recorder."""

    name: str
    header: JournalHeader
    exchanges: Mapping[int, RecordedExchange]
    """By number at the recorder."""
    is_published: bool = False
    """It is a cassette, whose placeholders have numbers of its own."""

    @property
    def recorder(self) -> str:
        """The id of the recorder."""
        return self.header.recorder or ""

    @property
    def key(self) -> str:
        """What tells whose tokens stand for its secrets."""
        return self.name if self.is_published else self.recorder


def merged(sources: Sequence[Source], tool: str) -> tuple[Cassette, tuple[str, ...]]:
    """Return the cassette of what recorders saw, and what to know of it, in words.

    Raises:
        CassetteError: they can't be put together, or contradict each other.
    """
    # A journal has ids of sessions that a cassette has not.
    sources = sorted(
        sources, key=lambda each: (each.is_published, -len(each.exchanges), each.name)
    )
    by_id: dict[str, _Recorder] = {}
    for source in sources:
        _check_alike(sources[0], source)
        began_ms = source.header.wall_ms or 0.0
        recorder = by_id.setdefault(
            source.recorder, _Recorder(source.recorder, began_ms)
        )
        for number, exchange in source.exchanges.items():
            recorder.take(number, source, exchange)
    recorders = sorted(by_id.values(), key=lambda each: (each.began_ms, each.id))
    givers: dict[_Cause, list[tuple[int, _Seen]]] = {}
    for index, recorder in enumerate(recorders):
        for happening in recorder.happenings:
            for cause in happening.gives:
                givers.setdefault(cause, []).append(
                    (index, recorder.seen[happening.number])
                )
    first = next(each for each in sources if each.recorder == recorders[0].id)
    cassette = assemble(first.header, _as_one(recorders, givers), tool)
    facts = [
        RecorderFacts(each.id, each.began_ms, each.began_ms - recorders[0].began_ms)
        for each in recorders
    ]
    return replace(cassette, recorders=tuple(facts)), tuple(
        _notes_of(recorders, givers)
    )


def _check_alike(first: Source, source: Source) -> None:
    """Make sure that two recordings can stand in one cassette."""
    one, two = first.header, source.header
    for name in ("transport", "request_state", "redaction", "answers"):
        if getattr(one, name) != getattr(two, name):
            reason = f"it was recorded with another {name.replace('_', ' ')} than {first.name}"
            raise CassetteError(
                source.name, reason, hint="merge what was recorded alike"
            )
    if two.transport == "stdio" and source.recorder != first.recorder:
        reason = f"it is of pipes, as {first.name} is: each has a client and a server of its own"
        raise CassetteError(
            source.name, reason, hint="only pieces of one journal can be merged"
        )
    if _ORIGIN.sub("", two.upstream) != _ORIGIN.sub("", one.upstream):
        reason = f"its upstream is {two.upstream}, and that of {first.name} is {one.upstream}"
        hint = "another path is another server; merge each server's recordings by themselves"
        raise CassetteError(source.name, reason, hint=hint)


def sources_of(cassette: Cassette) -> Iterator[Source]:
    """Yield what a cassette has of each of its recorders."""
    clocks = {recorder.id: recorder.wall_ms for recorder in cassette.recorders}
    # Older cassettes name no recorder; a copy has the same one.
    unnamed = sha256_of(f"{cassette.recorded_at}\n{cassette.upstream}")[:32]
    began_ms = 0.0
    with suppress(ValueError):
        began_ms = datetime.fromisoformat(cassette.recorded_at).timestamp() * 1000
    for recorder, exchanges in _reopened(cassette).items():
        header = JournalHeader(
            upstream=cassette.upstream,
            request_state=cassette.request_state,
            recorded_at=cassette.recorded_at,
            existing="keep",
            redaction=cassette.redaction,
            answers="sealed" if cassette.seals_answers else None,
            transport=cassette.transport,
            client=cassette.client,
            command=cassette.command,
            recorder=recorder or unnamed,
            wall_ms=clocks.get(recorder, began_ms),
        )
        yield Source(cassette.path, header, exchanges, is_published=True)


# What one recorder saw

_Seen = tuple[Source, RecordedExchange]
_Cause = tuple[str, ...]
"""The kind of a cause, and what tells it from others of the kind."""
_STATE, _SESSION, _ASK, _PUSH, _REQUEST = "state", "session", "ask", "push", "request"


class _Happening(NamedTuple):
    """A request, a piece of a response or its end, as one recorder saw it."""

    after: int
    """How many of the recorder's requests had arrived, with this one if it is one."""
    is_piece: bool
    at_ms: float
    number: int
    """The exchange at its recorder."""
    needs: tuple[_Cause, ...] = ()
    """What has to be there before."""
    gives: tuple[_Cause, ...] = ()
    """What is there from then on."""


@dataclass
class _Recorder:
    """All that the sources have of one recorder."""

    id: str
    began_ms: float
    """By its wall clock."""
    seen: dict[int, _Seen] = field(default_factory=dict)

    def take(self, number: int, source: Source, exchange: RecordedExchange) -> None:
        """Take an exchange that is new, or of which this source has more."""
        other, taken = self.seen.setdefault(number, (source, exchange))
        if taken is exchange:
            return
        mine, others = _content(exchange), _content(taken)
        if not (mine.startswith(others) or others.startswith(mine)):
            raise CassetteError(
                source.name,
                f"exchange {number} of its recorder, {exchange.call.title}, is not as in "
                f"{other.name}",
                hint="one of the files was edited or damaged; leave one of them out",
            )
        if len(mine) > len(others):
            self.seen[number] = source, exchange

    @cached_property
    def happenings(self) -> list[_Happening]:
        """What it saw, in its order."""
        seen = sorted(self.seen.items())
        found = [
            each for number, (_, one) in seen for each in _happenings_of(number, one)
        ]
        return sorted(found, key=lambda each: each[:3])


def _content(exchange: RecordedExchange) -> str:
    """Return what two copies of one exchange share, of which one may have more of the response."""
    request, response = exchange.request, exchange.response
    status = 0 if response is None else response.status
    body = b"" if response is None else response.body
    head = f"{request.method} {request.target} {status}".encode()
    return lasting(b"\n".join([head, request.body, body]).decode("latin-1"))


def _happenings_of(number: int, exchange: RecordedExchange) -> Iterator[_Happening]:
    """Yield what was seen of an exchange, with its causes and what it causes."""
    call, response = exchange.call, exchange.response
    key = "\n".join(call.key())
    facts = facts_of(exchange, call)
    session, in_session = facts.session, session_of(exchange.request) != NO_SESSION
    of_call: _Cause = (_ASK, sha256_of(lasting(key)), call.client)
    needs: list[_Cause] = [(_SESSION, session)] if in_session else []
    if exchange.echoed_sha256 is not None:
        needs.append((_STATE, exchange.echoed_sha256))
    elif call.answers is not None:
        needs.append(of_call)
    if facts.posted_id is not None:
        needs.append((_PUSH, session, facts.posted_id))
    gives = () if facts.request_id is None else ((_REQUEST, session, facts.request_id),)
    yield _Happening(number, False, exchange.started_ms, number, tuple(needs), gives)

    def came(
        moment: Moment, *causes: _Cause, needs: tuple[_Cause, ...] = ()
    ) -> _Happening:
        return _Happening(
            max(number, moment.after), True, moment.at_ms, number, needs, causes
        )

    pieces = () if response is None else response.pieces
    moments = [Moment(piece.after, piece.at_ms) for piece in pieces]
    moments.append(Moment(exchange.ended_after or number, exchange.ended_ms))
    yield from map(came, moments)
    if session != NO_SESSION and not in_session:
        yield came(moments[0], (_SESSION, session))
    if exchange.issued_sha256 is not None:
        whole = moments[-1] if facts.asked_keys is None else facts.asked
        yield came(whole, (_STATE, exchange.issued_sha256))
    elif facts.asked_keys is not None:
        yield came(facts.asked, of_call)
    for push in facts.pushes:
        yield came(push.moment, (_PUSH, session, push.id))
    for identity, moment in facts.responses:
        yield came(moment, needs=((_REQUEST, session, identity),))


# The order of what several recorders saw

_Givers = Mapping[_Cause, Sequence[tuple[int, _Seen]]]
"""Who gave each cause: the index of the recorder, and the exchange."""


def _in_order(
    recorders: Sequence[_Recorder], givers: _Givers
) -> Iterator[tuple[int, _Happening]]:
    """Yield what recorders saw, the earliest first that has its causes."""
    rest = [deque(recorder.happenings) for recorder in recorders]
    given: set[_Cause] = set()
    elsewhere = [
        {
            cause
            for cause, found in givers.items()
            if all(it != index for it, _ in found)
        }
        for index in range(len(recorders))
    ]
    while heads := [(index, left[0]) for index, left in enumerate(rest) if left]:
        ready = [
            (index, head)
            for index, head in heads
            if given.issuperset(elsewhere[index].intersection(head.needs))
        ]
        # Where none is, no true cause is missing: a state was issued, or an id was used, again.
        index, head = min(
            ready or heads,
            # A request of the same moment comes later: its client may have waited for this.
            key=lambda each: (
                recorders[each[0]].began_ms + each[1].at_ms,
                not each[1].is_piece,
            ),
        )
        yield index, rest[index].popleft()
        given.update(head.gives)


def _as_one(
    recorders: Sequence[_Recorder], givers: _Givers
) -> dict[int, RecordedExchange]:
    """Return the exchanges of all recorders, counted and timed as one recorder would have."""
    requests: list[tuple[int, int]] = []
    afters: dict[tuple[int, int, int, float], int] = {}
    for index, (after, is_piece, at_ms, number, _, _) in _in_order(recorders, givers):
        if is_piece:
            afters[index, number, after, at_ms] = len(requests)
        else:
            requests.append((index, number))
    token_of = _token_of(recorders, givers)
    whole: dict[int, RecordedExchange] = {}
    for place, (index, own) in enumerate(requests, start=1):
        recorder = recorders[index]
        exchange = recounted(
            recorder.seen[own][1],
            RecordedBy(recorder.id, own),
            place,
            lambda after, at_ms, i=index, n=own: afters[i, n, max(n, after), at_ms],  # type: ignore[misc]
            recorder.began_ms - recorders[0].began_ms,
        )
        # All recorders are one world, whose order the clocks tell.
        whole[place] = with_texts(
            replace(exchange, follows=()), lambda raw, _: renumber(raw, token_of)
        )
    return whole


def _needs(recorders: Sequence[_Recorder]) -> Iterator[tuple[_Seen, _Cause]]:
    """Yield what had to be there before each exchange."""
    for recorder in recorders:
        for happening in recorder.happenings:
            for cause in happening.needs:
                yield recorder.seen[happening.number], cause


def _notes_of(recorders: Sequence[_Recorder], givers: _Givers) -> Iterator[str]:
    """Yield which sessions and calls have their beginning in none of the files."""
    unlinked: dict[tuple[str, str], list[_Cause]] = {}
    for (source, exchange), cause in _needs(recorders):
        # A task may be older than all recordings.
        if cause not in givers and named_task(exchange.call.message) is None:
            unlinked.setdefault((cause[0], source.name), []).append(cause)
    for (kind, name), causes in sorted(unlinked.items()):
        if kind == _STATE:
            yield f"{name}: {counted(len(causes), 'answer')} to an ask that no file has"
        elif kind == _SESSION:
            yield (
                f"{name}: {counted(len(set(causes)), 'session')} began at another recorder, and no "
                "file tells where; journals have the ids of sessions, and cassettes have not"
            )


def _token_of(
    recorders: Sequence[_Recorder], givers: _Givers
) -> Callable[[str, str], str]:
    """Return what gives the one token of each secret that has several.

    Each recorder has a key of its own, so its tokens tell nothing about those of another one. A
    retry repeats the arguments of its call, which is the only proof; without it, two tokens stay
    two secrets.
    """
    same: dict[tuple[str, str], str] = {}

    def token_of(rule: str, token: str) -> str:
        while (rule, token) in same:
            token = same[rule, token]
        return token

    for (source, retry), cause in _needs(recorders):
        given = givers.get(cause, ())
        if cause[0] not in (_STATE, _ASK) or len(given) != 1:
            continue
        ((_, (asking, call)),) = given
        without, tokens = _tokens_in(call)
        other_without, other_tokens = _tokens_in(retry)
        if asking.key != source.key and without == other_without:
            for (rule, token), (_, other) in zip(tokens, other_tokens, strict=True):
                one, two = sorted([token_of(rule, token), token_of(rule, other)])
                same |= {(rule, two): one} if one != two else {}
    return token_of


def _tokens_in(exchange: RecordedExchange) -> tuple[str, list[tuple[str, str]]]:
    """Return the call key of a request without its tokens, and these with their rules."""
    tokens: list[tuple[str, str]] = []

    def number(rule: str, token: str) -> int | None:
        if not is_journal_token(token):
            return None
        tokens.append((rule, token))
        return 0

    return renumber("\n".join(exchange.call.key()), number), tokens


# A cassette's exchanges as the journals of its recorders had them


def _reopened(cassette: Cassette) -> dict[str, dict[int, RecordedExchange]]:
    """Return the exchanges of a cassette by recorder, and by number there.

    A state has the hash that `recording` keeps. What a cassette has no hash of (session ids, ids of
    events and of questions, secrets) gets one of its own path. A recorder that is not known has an
    empty id.
    """
    own = [
        exchange
        for interaction in cassette.interactions
        for exchange in interaction.own
    ]
    free = count(max((exchange.number or 0 for exchange in own), default=0) + 1)
    numbered = {exchange.number or next(free): exchange for exchange in own}
    states = {
        name: each.issued_sha256 or _sha256_of_name(name, cassette.path)
        for each in own
        if (name := issued_name(each)) is not None
    }
    offsets = {each.id: each.offset_ms for each in cassette.recorders}
    numbers: dict[str, list[tuple[int, int]]] = {}
    announced = Announced()
    before: dict[int, RecordedExchange] = {}
    for number in sorted(numbered):
        exchange = before[number] = _put_back(numbered[number], states, cassette.path)
        named = numbered[number].response
        if named is not None and exchange.response is not None:
            digests = announced.add(named, exchange.response)
            before[number] = replace(exchange, digests=digests)
        recorder, at = numbered[number].recorded_by or RecordedBy("", number)
        numbers.setdefault(recorder, [(0, 0)]).append((number, at))
    return {
        recorder: {
            at: _as_counted(before[number], at, its, offsets.get(recorder, 0))
            for number, at in its[1:]
        }
        for recorder, its in numbers.items()
    }


def _as_counted(
    exchange: RecordedExchange,
    number: int,
    numbers: Sequence[tuple[int, int]],
    offset_ms: float,
) -> RecordedExchange:
    """Return an exchange as its recorder counted: its own requests, and the time since it began."""
    response, ended_after = exchange.response, exchange.ended_after or 0
    if response is not None:
        # Of a response in one piece a cassette tells the end alone.
        pieces = [
            each
            if each.after
            else each._replace(at_ms=exchange.ended_ms, after=ended_after)
            for each in response.pieces
        ]
        response = replace(response, pieces=tuple(pieces))

    def after(count: int, _: float) -> int:
        return max(
            number, numbers[bisect_right(numbers, count, key=itemgetter(0)) - 1][1]
        )

    exchange = replace(exchange, response=response, ended_after=ended_after)
    return recounted(exchange, exchange.recorded_by, number, after, -offset_ms)


def _put_back(
    exchange: RecordedExchange, states: Mapping[str, str], path: str
) -> RecordedExchange:
    """Return an exchange with what stood where it has names; `states` has hashes by name."""
    message, answers = exchange.call.message, exchange.call.answers
    echoed = named_task(message) or (None if answers is None else answers.request_state)
    issued = issued_name(exchange)
    if echoed is not None and echoed not in states:
        # A later recording that was added echoed the name itself.
        states = {
            **states,
            echoed: exchange.echoed_sha256 or _sha256_of_name(echoed, path),
        }

    change = _names_put_back(states, path)
    return replace(
        with_texts(exchange, lambda raw, _: with_refs(raw, change)),
        issued_sha256=None if issued is None else states[issued],
        echoed_sha256=None if echoed is None else states[echoed],
    )


def _names_put_back(states: Mapping[str, str], path: str) -> Change:
    """Return what makes hashes of names, and tokens of a journal of the numbers of secrets."""

    def as_in_journal(ref: Ref) -> Ref | None:
        if ref.is_secret and is_cassette_token(ref.token):
            return ref.with_last(sha256_of(f"{path} {ref.kind} {ref.token}")[:24])
        if ref.kind not in (STATE, TASK, SESSION):
            return None
        sha256 = states.get(ref.name) or sha256_of(f"{path} {ref.name}")
        return Ref(HASH, (sha256,), ref.spelling)

    return as_in_journal


def _sha256_of_name(state: str, path: str) -> str:
    is_surrogate = is_of_kind(state, STATE, TASK)
    return sha256_of(f"{path} {state}") if is_surrogate else compared_sha256(state)
