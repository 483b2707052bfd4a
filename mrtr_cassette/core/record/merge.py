"""Merge what several recorders saw into one recording, as one recorder would have seen it.

The files' order and their number mean nothing. What contradicts itself is an error that names the
files; what can only be guessed is told. What one recorder saw stays in its order, and nothing
stands before what caused it: the ask before the retry with its state, the opening of a session
before its use, what a server pushed before the answer to it. Only then the clocks decide.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import NamedTuple

from mrtr_cassette.core.cassette.journal import JournalHeader
from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    RecordedBy,
    RecordedExchange,
    RecorderFacts,
)
from mrtr_cassette.core.protocol.calls import NO_SESSION, session_of
from mrtr_cassette.core.protocol.tasks import named_task
from mrtr_cassette.core.record.linking import Moment, facts_of
from mrtr_cassette.core.record.naming import (
    is_journal_token,
    lasting,
    recounted,
    renumbered,
    reopened,
)
from mrtr_cassette.core.secrets.sealed import renumber, sha256_of
from mrtr_cassette.errors import CassetteError, counted

_ORIGIN = re.compile("[a-z]+://[^/?]*")
_TOLD_MS = 1.0
"""Milliseconds from which on a clock is told to be wrong."""


@dataclass(frozen=True, slots=True)
class Source:
    """What one file has of one recorder."""

    name: str
    header: JournalHeader
    exchanges: Mapping[int, RecordedExchange]
    """By number at the recorder."""
    namespace: str
    """Whose tokens stand for its secrets."""
    is_published: bool = False
    """It is a cassette."""

    @property
    def recorder(self) -> str:
        """The id of the recorder."""
        return self.header.recorder or ""

    @property
    def began_ms(self) -> float:
        """When the recorder began, by its wall clock."""
        return self.header.wall_ms or 0.0


class Merged(NamedTuple):
    """Several recordings in one."""

    header: JournalHeader
    recorders: tuple[RecorderFacts, ...]
    exchanges: Mapping[int, RecordedExchange]
    notes: tuple[str, ...]
    """What to know of it, in words."""


def merged(sources: Sequence[Source]) -> Merged:
    """Return what recorders saw in one.

    Raises:
        CassetteError: they can't be put together, or contradict each other.
    """
    sources = sorted(sources, key=lambda source: (source.began_ms, source.recorder, source.name))
    by_id: dict[str, list[Source]] = {}
    for source in sources:
        _check_alike(sources[0], source)
        by_id.setdefault(source.recorder, []).append(source)
    recorders = [_Recorder(by_id[identity]) for identity in sorted(by_id)]
    givers = _givers_of(recorders)
    corrections = _clock_corrections(recorders, givers)
    began = [each.began_ms + late for each, late in zip(recorders, corrections, strict=True)]
    offsets_ms = [each - min(began) for each in began]
    notes = (
        *_notes_of_files(sources, recorders),
        *_notes_of_clocks(recorders, corrections),
        *_notes_of_causes(recorders, givers),
    )
    facts = [
        RecorderFacts(recorder.id, recorder.began_ms, offset_ms)
        for recorder, offset_ms in zip(recorders, offsets_ms, strict=True)
    ]
    exchanges = _as_one(recorders, offsets_ms, givers)
    first = recorders[offsets_ms.index(0)]
    return Merged(first.sources[0].header, tuple(facts), exchanges, notes)


def _check_alike(first: Source, source: Source) -> None:
    """Make sure that two recordings can stand in one cassette."""
    one, two = first.header, source.header
    reason, hint = "", "merge what was recorded alike"
    for what, mine, others in (
        ("the transport", two.transport, one.transport),
        ("request states", two.request_state, one.request_state),
        ("answers", two.answers or "readable", one.answers or "readable"),
    ):
        if mine != others:
            raise CassetteError(
                source.name, f"{what}: {mine}, and {others} in {first.name}", hint=hint
            )
    if two.redaction != one.redaction:
        reason = f"it was recorded with other rules of redaction than {first.name}"
        hint = f"a placeholder would not mean the same; {hint}"
    elif two.transport == "stdio" and source.recorder != first.recorder:
        reason = f"it is a recording over pipes, and so is {first.name}: each has a client and a "
        reason += "server of its own"
        hint = "only pieces of one journal can be merged"
    elif two.transport != "stdio" and _path(two.upstream) != _path(one.upstream):
        reason = f"its upstream is {two.upstream}, and that of {first.name} is {one.upstream}: "
        reason += "another path is another server"
        hint = "merge each server's recordings into a cassette of its own"
    if reason:
        raise CassetteError(source.name, reason, hint=hint)


def _path(upstream: str) -> str:
    return _ORIGIN.sub("", upstream)


# What one recorder saw


class _Seen(NamedTuple):
    source: Source
    exchange: RecordedExchange


class _Recorder:
    """All that the sources have of one recorder, in its order."""

    def __init__(self, sources: Iterable[Source]) -> None:
        # A journal has ids of sessions that a cassette has not.
        self.sources = sorted(
            sources,
            key=lambda each: (each.is_published, -len(each.exchanges), each.namespace, each.name),
        )
        self.id, self.began_ms = self.sources[0].recorder, self.sources[0].began_ms
        self.seen: dict[int, _Seen] = {}
        for source in self.sources:
            for number, exchange in source.exchanges.items():
                self._take(number, _Seen(source, exchange))
        self.happenings = [
            happening
            for number, seen in sorted(self.seen.items())
            for happening in _happenings_of(number, seen.exchange)
        ]
        self.happenings.sort(key=lambda happening: happening[:3])

    def _take(self, number: int, seen: _Seen) -> None:
        """Take an exchange that is new, or of which this source has more."""
        taken = self.seen.setdefault(number, seen)
        if taken is seen:
            return
        mine, others = _content(seen.exchange), _content(taken.exchange)
        if not (mine.startswith(others) or others.startswith(mine)):
            call = seen.exchange.call.title
            raise CassetteError(
                seen.source.name,
                f"exchange {number} of its recorder, {call}, is not as in {taken.source.name}",
                hint="one of the files was edited or damaged; leave one of them out",
            )
        if len(mine) > len(others):
            self.seen[number] = seen

    def needs(self) -> Iterator[tuple[_Happening, _Cause]]:
        """Yield all that has to be there before what it saw."""
        for happening in self.happenings:
            for cause in happening.needs:
                yield happening, cause


def _content(exchange: RecordedExchange) -> str:
    """Return what two copies of one exchange share, of which one may have more of the response."""
    request, response = exchange.request, exchange.response
    status = 0 if response is None else response.status
    bodies = [request.body] if response is None else [request.body, response.body]
    if any(b"elicitationId" in body for body in bodies):
        # What a server made up has another name in each file.
        bodies = []
    text = b"\n".join([f"{request.method} {request.target} {status}".encode(), *bodies])
    return lasting(text.decode("latin-1"))


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

    def came(moment: Moment, *causes: _Cause, needs: tuple[_Cause, ...] = ()) -> _Happening:
        return _Happening(max(number, moment.after), True, moment.at_ms, number, needs, causes)

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

_Givers = Mapping[_Cause, Sequence[tuple[int, _Happening]]]
"""Who gave each cause: the index of the recorder, and what it saw."""
_Head = tuple[float, bool, int, _Happening]
"""What comes next of a recorder: when, whether it is a request, whose, and what."""


def _givers_of(recorders: Sequence[_Recorder]) -> _Givers:
    givers: dict[_Cause, list[tuple[int, _Happening]]] = {}
    for index, recorder in enumerate(recorders):
        for happening in recorder.happenings:
            for cause in happening.gives:
                givers.setdefault(cause, []).append((index, happening))
    return givers


def _clock_corrections(recorders: Sequence[_Recorder], givers: _Givers) -> list[float]:
    """Return by how many milliseconds each clock has to be put forward so that causes come first.

    It is no more than what the recordings prove, so clocks that contradict nothing stay.
    """
    bounds: dict[tuple[int, int], float] = {}
    for index, recorder in enumerate(recorders):
        for happening, cause in recorder.needs():
            given = givers.get(cause, ())
            if len(given) == 1 and given[0][0] != index:
                other, source = given[0]
                given_ms = recorders[other].began_ms + source.at_ms
                late = given_ms - recorder.began_ms - happening.at_ms
                bounds[other, index] = max(late, bounds.get((other, index), late))
    corrections = [0.0] * len(recorders)
    # A clock that is put forward may push others; more rounds than clocks would go round in
    # circles, where clocks did not run alike.
    for _ in recorders:
        for (other, index), late in sorted(bounds.items()):
            corrections[index] = max(corrections[index], corrections[other] + late)
    return corrections


def _as_one(
    recorders: Sequence[_Recorder], offsets_ms: Sequence[float], givers: _Givers
) -> dict[int, RecordedExchange]:
    """Return the exchanges of all recorders, counted and timed as one recorder would have."""
    requests: list[tuple[int, int]] = []
    afters: dict[tuple[int, int, int, float], int] = {}
    for index, happening in _in_order(recorders, offsets_ms, givers):
        after, is_piece, at_ms, number = happening[:4]
        if is_piece:
            afters[index, number, after, at_ms] = len(requests)
        else:
            requests.append((index, number))
    token = _same_secrets(recorders, givers)
    whole: dict[int, RecordedExchange] = {}
    for place, (index, own) in enumerate(requests, start=1):
        exchange = recounted(
            recorders[index].seen[own].exchange,
            RecordedBy(recorders[index].id, own),
            place,
            lambda after, at_ms, i=index, n=own: afters[i, n, max(n, after), at_ms],  # type: ignore[misc]
            offsets_ms[index],
        )
        # All recorders are one world, whose order the clocks tell.
        exchange = replace(exchange, follows=())
        whole[place] = renumbered(exchange, token) if token else exchange
    return whole


def _in_order(
    recorders: Sequence[_Recorder], offsets_ms: Sequence[float], givers: _Givers
) -> Iterator[tuple[int, _Happening]]:
    """Yield what recorders saw, the earliest first that has its causes."""
    others = {cause: {index for index, _ in given} for cause, given in givers.items()}
    given: set[_Cause] = set()
    waiting: dict[_Cause, list[_Head]] = {}
    rest = [iter(recorder.happenings) for recorder in recorders]
    heads: list[_Head] = []

    def advance(index: int) -> None:
        each = next(rest[index], None)
        if each is not None:
            # A request of the same moment comes later: its client may have waited for this.
            heappush(heads, (offsets_ms[index] + each.at_ms, not each.is_piece, index, each))

    for index in range(len(rest)):
        advance(index)
    while heads or waiting:
        is_stuck = not heads
        if is_stuck:
            # No true cause is missing: a server issued a state, or an id was used, again.
            heads += sorted(head for each in waiting.values() for head in each)
            waiting.clear()
        head = heappop(heads)
        index, happening = head[2:]
        missing = [
            cause
            for cause in happening.needs
            if cause not in given and index not in others.get(cause, {index})
        ]
        if missing and not is_stuck:
            waiting.setdefault(missing[0], []).append(head)
            continue
        yield index, happening
        given.update(happening.gives)
        for cause in happening.gives:
            for each in waiting.pop(cause, ()):
                heappush(heads, each)
        advance(index)


# Secrets

_RuleAndToken = tuple[str, str]


def _same_secrets(
    recorders: Sequence[_Recorder], givers: _Givers
) -> Callable[[str, str], str | None] | None:
    """Return what gives the one token of a secret that has several; None where none has.

    Each recorder has a key of its own, so its tokens tell nothing about those of another one. A
    retry repeats the arguments of its call, which is the only proof; without it, two tokens stay
    two secrets. Two tokens of one recorder never become one.
    """
    same: dict[_RuleAndToken, dict[str, str]] = {}
    for recorder in recorders:
        for happening, cause in recorder.needs():
            given = givers.get(cause, ())
            if cause[0] != _SESSION and len(given) == 1:
                index, asked = given[0]
                call, retry = recorders[index].seen[asked.number], recorder.seen[happening.number]
                if call.source.namespace != retry.source.namespace:
                    same |= _repeated(call, retry, same)

    def token_for(rule: str, token: str) -> str | None:
        tokens = same.get((rule, token))
        return None if tokens is None else min(tokens.values())

    return token_for if same else None


def _repeated(
    call: _Seen, retry: _Seen, known: Mapping[_RuleAndToken, dict[str, str]]
) -> dict[_RuleAndToken, dict[str, str]]:
    """Return the tokens, by namespace, of the secrets of a call that a retry repeats."""
    without, tokens = _tokens_in(call)
    other_without, other_tokens = _tokens_in(retry)
    same: dict[_RuleAndToken, dict[str, str]] = {}
    if without != other_without:
        return same
    for one, two in zip(tokens, other_tokens, strict=True):
        mine = same.get(one) or known.get(one) or {call.source.namespace: one[1]}
        others = same.get(two) or known.get(two) or {retry.source.namespace: two[1]}
        if any(mine[name] != others[name] for name in mine.keys() & others.keys()):
            return {}
        both = {**mine, **others}
        same.update({(one[0], token): both for token in both.values()})
    return same


def _tokens_in(seen: _Seen) -> tuple[str, list[_RuleAndToken]]:
    """Return the call key of a request without its tokens, and these with their rules."""
    tokens: list[_RuleAndToken] = []

    def number(rule: str, token: str) -> int | None:
        if not is_journal_token(token):
            return None
        tokens.append((rule, token))
        return 0

    return renumber("\n".join(seen.exchange.call.key()), number), tokens


# What to know of a merge


def _notes_of_files(sources: Sequence[Source], recorders: Sequence[_Recorder]) -> Iterator[str]:
    added = {seen.source.name for each in recorders for seen in each.seen.values()}
    for name in sorted({source.name for source in sources if source.exchanges} - added):
        yield f"{name} adds nothing: the other files have all of it"
    upstreams = sorted({source.header.upstream for source in sources})
    if len(upstreams) > 1:
        yield f"the upstreams are {', '.join(upstreams)}; the cassette names the first recorder's"


def _notes_of_clocks(recorders: Sequence[_Recorder], corrections: Sequence[float]) -> Iterator[str]:
    for recorder, correction in zip(recorders, corrections, strict=True):
        if correction >= _TOLD_MS:
            yield (
                f"{recorder.sources[0].name}: its clock was at least {correction / 1000:,.3f} s "
                "behind, as calls that passed through several recorders show; its times are put "
                "forward"
            )


def _notes_of_causes(recorders: Sequence[_Recorder], givers: _Givers) -> Iterator[str]:
    """Yield which sessions and calls have their beginning in none of the files."""
    unlinked: dict[tuple[str, str, bool], list[_Cause]] = {}
    for recorder in recorders:
        for happening, cause in recorder.needs():
            source, exchange = recorder.seen[happening.number]
            # A task may be older than all recordings.
            if cause not in givers and named_task(exchange.call.message) is None:
                place = cause[0], source.name, source.is_published
                unlinked.setdefault(place, []).append(cause)
    for (kind, name, is_published), causes in sorted(unlinked.items()):
        if kind == _STATE:
            yield f"{name}: {counted(len(causes), 'answer')} to an ask that no file has"
        elif kind == _SESSION:
            why = "no file has where they were opened"
            if is_published:
                why = "a cassette keeps no ids of sessions by which they could be linked; merge "
                why += "the journals"
            sessions = counted(len(set(causes)), "session")
            yield f"{name}: {sessions} began at another recorder, and {why}"


# The recordings that the tests of one run made for one cassette


class RunPart(NamedTuple):
    """What was recorded in one go, for one test or for several, one after the other."""

    cassette: Cassette
    """With what it was added to."""
    places: Mapping[int, int]
    """By number of each exchange that was added, the place of the first test that made it."""


class Joined(NamedTuple):
    """Parts as one recording: all of one part comes before the next one."""

    recorders: Sequence[RecorderFacts]
    exchanges: Mapping[int, RecordedExchange]
    places: Mapping[int, int]
    """By the same number, the place of the first test that made an exchange."""


def joined(parts: Sequence[RunPart], known: Collection[str]) -> Joined:
    """Return what several parts have of recorders that are not known yet, one after the other.

    Parts have nothing to do with each other, so the replay of one must not wait for another.
    """
    recorders: list[RecorderFacts] = []
    exchanges: dict[int, RecordedExchange] = {}
    places: dict[int, int] = {}
    for index, part in enumerate(parts):
        begin = max(exchanges, default=0)
        by_recorder = reopened(part.cassette, f"part {index}")
        for recorder in part.cassette.recorders:
            if recorder.id in known or recorder.id not in by_recorder:
                continue
            before = max(exchanges, default=0)
            first = recorders[0] if recorders else recorder
            offset_ms = max(0.0, recorder.wall_ms - first.wall_ms)
            recorders.append(recorder._replace(offset_ms=offset_ms))
            for number, exchange in by_recorder[recorder.id].items():
                exchanges[before + number] = recounted(
                    *(exchange, RecordedBy(recorder.id, number), before + number),
                    lambda after, _, before=before: before + after,  # type: ignore[misc]
                    offset_ms,
                )
        for number in exchanges.keys() - places.keys():
            places[number] = part.places.get(number - begin, 0)
    return Joined(recorders, exchanges, places)
