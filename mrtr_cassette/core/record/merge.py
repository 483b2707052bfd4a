"""Merge what several recorders saw into one recording, as one recorder would have seen it.

The files' order and their number mean nothing. What contradicts itself is an error that names the
files; what can only be guessed is told. What one recorder saw stays in its order, and nothing
stands before what caused it: the ask before the retry with its state, the opening of a session
before its use, what a server pushed before the answer to it. Only then the clocks decide.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import ChainMap, Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count, islice
from typing import NamedTuple

from mrtr_cassette.core.cassette.journal import JournalHeader
from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    RecordedBy,
    RecordedExchange,
    RecorderFacts,
)
from mrtr_cassette.core.protocol.calls import NO_SESSION, session_of
from mrtr_cassette.core.protocol.messages import ask_in
from mrtr_cassette.core.record.history import (
    Moment,
    is_journal_token,
    lasting,
    recounted,
    session_facts,
)
from mrtr_cassette.core.record.naming import renumbered, with_texts
from mrtr_cassette.core.secrets.sealed import STATE_SURROGATE, compared_sha256, renumber, sha256_of
from mrtr_cassette.errors import CassetteError, counted

_ORIGIN = re.compile("[a-z]+://[^/?]*")
_TOLD_MS = 1.0
"""Milliseconds from which on a clock is told to be wrong."""


@dataclass(frozen=True, slots=True)
class Source:
    """What one file, or the pieces of one journal, have of one recorder."""

    name: str
    """The file's, as shown in messages."""
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
    for source in sources:
        _check_alike(sources[0], source)
    by_id: dict[str, list[Source]] = {}
    for source in sources:
        by_id.setdefault(source.recorder, []).append(source)
    recorders = [_Recorder(by_id[identity]) for identity in sorted(by_id)]
    givers = _givers_of(recorders)
    corrections = _clock_corrections(recorders, givers)
    order = _Order(recorders, corrections, givers)
    secrets = _same_secrets(recorders, givers)
    first = recorders[order.offsets_ms.index(0)]
    notes = [
        *_notes_of_files(sources, recorders),
        *_notes_of_clocks(recorders, corrections),
        *_notes_of_causes(recorders, givers),
    ]
    return Merged(
        first.sources[0].header,
        tuple(
            RecorderFacts(recorder.id, recorder.began_ms, offset_ms)
            for recorder, offset_ms in zip(recorders, order.offsets_ms, strict=True)
        ),
        dict(enumerate(order.exchanges(secrets), start=1)),
        tuple(notes),
    )


def _check_alike(first: Source, source: Source) -> None:
    """Make sure that two recordings can stand in one cassette."""
    one, two = first.header, source.header
    reason, hint = "", "merge what was recorded alike"
    if two.transport != one.transport:
        reason = f"the transport: {two.transport}, and {one.transport} in {first.name}"
    elif two.request_state != one.request_state:
        reason = f"request states: {two.request_state}, and {one.request_state} in {first.name}"
    elif two.answers != one.answers:
        mine, others = two.answers or "readable", one.answers or "readable"
        reason = f"answers: {mine}, and {others} in {first.name}"
    elif two.redaction != one.redaction:
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


def _content(exchange: RecordedExchange) -> bytes:
    """Return what two copies of one exchange share, of which one may have more of the response."""
    request, response = exchange.request, exchange.response
    status = 0 if response is None else response.status or 0
    bodies = [request.body] if response is None else [request.body, response.body]
    if any(b"elicitationId" in body for body in bodies):
        # What a server made up has another name in each file.
        bodies = []
    text = b"\n".join([f"{request.method} {request.target} {status}".encode(), *bodies])
    return lasting(text.decode("latin-1")).encode("latin-1")


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
    ask = None if response is None else ask_in(call.message, response)
    facts = session_facts(exchange, call, key, asks=ask is not None)
    session, in_session = facts.session, session_of(exchange.request) != NO_SESSION
    of_call: _Cause = (_ASK, sha256_of(lasting(key)), call.client)
    needs: list[_Cause] = [(_SESSION, session)] if in_session else []
    if exchange.echoed_sha256 is not None:
        needs.append((_STATE, exchange.echoed_sha256))
    elif call.answers is not None:
        needs.append(of_call)
    if facts.posted_id is not None:
        needs.append((_PUSH, session, facts.posted_id))
    identity = facts.request_id
    gives = () if identity is None else ((_REQUEST, session, identity),)
    yield _Happening(number, False, exchange.started_ms, number, tuple(needs), gives)

    pieces = () if response is None else response.pieces
    moments = [Moment(piece.after, piece.at_ms) for piece in pieces]
    moments.append(Moment(exchange.ended_after or number, exchange.ended_ms))
    came: list[tuple[Moment, tuple[_Cause, ...], tuple[_Cause, ...]]]
    came = [(moment, (), ()) for moment in moments]
    if session != NO_SESSION and not in_session:
        came.append((moments[0], (), ((_SESSION, session),)))
    if exchange.issued_sha256 is not None:
        issued = moments[-1 if ask is None else ask.piece]
        came.append((issued, (), ((_STATE, exchange.issued_sha256),)))
    elif ask is not None:
        came.append((moments[ask.piece], (), (of_call,)))
    came += [(push.moment, (), ((_PUSH, session, push.id),)) for push in facts.pushes]
    came += [(moment, ((_REQUEST, session, each),), ()) for each, moment in facts.responses]
    for (after, at_ms), caused_by, causes in came:
        yield _Happening(max(number, after), True, at_ms, number, caused_by, causes)


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


class _Order:
    """All requests in one order, and where in it everything else stands."""

    def __init__(
        self, recorders: Sequence[_Recorder], corrections: Sequence[float], givers: _Givers
    ) -> None:
        began = [each.began_ms + late for each, late in zip(recorders, corrections, strict=True)]
        self.offsets_ms = [each - min(began) for each in began]
        """How much later than the first one each recorder began."""
        self._recorders = recorders
        self._requests: list[tuple[int, int]] = []
        self._afters: dict[tuple[int, int, int, float], int] = {}
        for index, happening in self._merged(givers):
            after, is_piece, at_ms, number = happening[:4]
            if is_piece:
                self._afters[index, number, after, at_ms] = len(self._requests)
            else:
                self._requests.append((index, number))

    def exchanges(self, secrets: _SameSecrets) -> Iterator[RecordedExchange]:
        """Yield the exchanges of all recorders, counted and timed as one recorder would have."""
        for number, (index, own) in enumerate(self._requests, start=1):
            recorder = self._recorders[index]
            exchange = recounted(
                recorder.seen[own].exchange,
                RecordedBy(recorder.id, own),
                number,
                lambda after, at_ms, i=index, n=own: self._afters[i, n, max(n, after), at_ms],  # type: ignore[misc]
                self.offsets_ms[index],
            )
            yield renumbered(exchange, secrets.token) if secrets else exchange

    def _merged(self, givers: _Givers) -> Iterator[tuple[int, _Happening]]:
        """Yield what recorders saw, the earliest first that has its causes."""
        others = {cause: {index for index, _ in given} for cause, given in givers.items()}
        given: set[_Cause] = set()
        waiting: dict[_Cause, list[_Head]] = {}
        rest = [iter(recorder.happenings) for recorder in self._recorders]
        heads: list[_Head] = []

        def advance(index: int) -> None:
            for each in islice(rest[index], 1):
                # A request of the same moment comes later: its client may have waited for this.
                at_ms = self.offsets_ms[index] + each.at_ms
                heappush(heads, (at_ms, not each.is_piece, index, each))

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


class _SameSecrets:
    """Tokens of several recorders that stand for the same secret.

    Each recorder has a key of its own, so its tokens tell nothing about those of another one. A
    retry repeats the arguments of its call, which is the only proof; without it, two tokens stay
    two secrets. Two tokens of one recorder never become one.
    """

    def __init__(self) -> None:
        self._same: dict[_RuleAndToken, dict[str, str]] = {}

    def __bool__(self) -> bool:
        """Tell whether any two tokens are the same secret."""
        return bool(self._same)

    def repeated(self, call: _Seen, retry: _Seen) -> None:
        """Take note of a call and of a retry that repeats it through another recorder."""
        without, tokens = _tokens_in(call)
        other_without, other_tokens = _tokens_in(retry)
        if without != other_without:
            return
        same: dict[_RuleAndToken, dict[str, str]] = {}
        for one, two in zip(tokens, other_tokens, strict=True):
            known = same.get(one) or self._same.get(one) or {call.source.namespace: one[1]}
            others = same.get(two) or self._same.get(two) or {retry.source.namespace: two[1]}
            if any(known[name] != others[name] for name in known.keys() & others.keys()):
                return
            joined = {**known, **others}
            same.update({(one[0], token): joined for token in joined.values()})
        self._same |= same

    def token(self, rule: str, token: str) -> str | None:
        """Return the one token of a secret that has several; None for any other."""
        same = self._same.get((rule, token))
        return None if same is None else min(same.values())


def _tokens_in(seen: _Seen) -> tuple[str, list[_RuleAndToken]]:
    """Return the call key of a request without its tokens, and these with their rules."""
    tokens: list[_RuleAndToken] = []

    def number(rule: str, token: str) -> int | None:
        if not is_journal_token(token):
            return None
        tokens.append((rule, token))
        return 0

    return renumber("\n".join(seen.exchange.call.key()), number), tokens


def _same_secrets(recorders: Sequence[_Recorder], givers: _Givers) -> _SameSecrets:
    secrets = _SameSecrets()
    for recorder in recorders:
        for happening, cause in recorder.needs():
            given = givers.get(cause, ())
            if cause[0] != _SESSION and len(given) == 1:
                other, asked = given[0]
                call, retry = recorders[other].seen[asked.number], recorder.seen[happening.number]
                if call.source.namespace != retry.source.namespace:
                    secrets.repeated(call, retry)
    return secrets


# What to know of a merge


def _notes_of_files(sources: Sequence[Source], recorders: Sequence[_Recorder]) -> Iterator[str]:
    added = Counter(seen.source.name for each in recorders for seen in each.seen.values())
    had = Counter[str]()
    for source in sources:
        had[source.name] += len(source.exchanges)
    for name in sorted(had):
        if had[name] and not added[name]:
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
            if cause not in givers:
                source = recorder.seen[happening.number].source
                place = cause[0], source.name, source.is_published
                unlinked.setdefault(place, []).append(cause)
    for (kind, name, is_published), causes in sorted(unlinked.items()):
        if kind == _STATE:
            yield f"{name}: {counted(len(causes), 'answer')} to an ask that no file has"
        elif kind == _SESSION:
            why = (
                "a cassette keeps no ids of sessions by which they could be linked; merge the "
                "journals"
                if is_published
                else "no file has where they were opened"
            )
            sessions = counted(len(set(causes)), "session")
            yield f"{name}: {sessions} began at another recorder, and {why}"


# A cassette's exchanges as the journals of its recorders had them

_SURROGATE = re.compile(
    rb"mrtr-(?:state(?P<colon>:|%3A)[0-9a-f]{16}(?P=colon)[0-9]{1,9}(?P=colon)[0-9]{1,9}"
    rb"|session(?P<of_session>:|%3A)[0-9]{1,9}"
    rb"|(?P<counted>event|elicitation)(?P<of_counted>:|%3A)[0-9]{1,9}(?P=of_counted)[0-9]{1,9})"
)
_LONGEST_NUMBER = 10


def reopened(cassette: Cassette, digest: str) -> dict[str, dict[int, RecordedExchange]]:
    """Return the exchanges of a cassette by recorder, and by number there.

    A state has the hash that `recording` keeps. What a cassette has no hash of (session ids, ids of
    events and of questions, secrets) gets one that no other file's is taken for.

    Args:
        cassette: the cassette; a recorder that it does not name has an empty id.
        digest: tells this file from any other one.
    """
    own = [exchange for interaction in cassette.interactions for exchange in interaction.own]
    free = count(max((exchange.number or 0 for exchange in own), default=0) + 1)
    numbered = {exchange.number or next(free): exchange for exchange in own}
    names = _Names(digest, own)
    offsets = {each.id: each.offset_ms for each in cassette.recorders}
    by_recorder: dict[str, dict[int, RecordedBy]] = {}
    for number in sorted(numbered):
        by = numbered[number].recorded_by or RecordedBy("", number)
        by_recorder.setdefault(by.recorder, {})[number] = by
    return {
        recorder: _as_counted(names, numbered, numbers, offsets.get(recorder, 0))
        for recorder, numbers in by_recorder.items()
    }


def _as_counted(
    names: _Names,
    exchanges: Mapping[int, RecordedExchange],
    numbers: Mapping[int, RecordedBy],
    offset_ms: float,
) -> dict[int, RecordedExchange]:
    """Return exchanges as their recorder counted: its own requests, and the time since it began."""
    counts, own = list(numbers), [0, *(each.number for each in numbers.values())]
    recorded: dict[int, RecordedExchange] = {}
    for number, (_, at) in numbers.items():
        exchange = names.put_into(exchanges[number])
        response, ended_after = exchange.response, exchange.ended_after or 0
        if response is not None:
            # Of a response in one piece a cassette tells the end alone.
            pieces = [
                each if each.after else each._replace(at_ms=exchange.ended_ms, after=ended_after)
                for each in response.pieces
            ]
            response = replace(response, pieces=tuple(pieces))
        exchange = replace(exchange, response=response, ended_after=ended_after)
        recorded[at] = recounted(
            *(exchange, exchange.recorded_by, at),
            lambda after, _, at=at: max(at, own[bisect_right(counts, after)]),  # type: ignore[misc]
            -offset_ms,
        )
    return recorded


class _Names:
    """What stood in the place of the names and numbers that a cassette has."""

    def __init__(self, digest: str, exchanges: Iterable[RecordedExchange]) -> None:
        self._digest = digest
        asked = [(each, each.ask) for each in exchanges]
        self._issued = {
            ask.request_state: each.issued_sha256 or self._sha256(ask.request_state)
            for each, ask in asked
            if ask is not None and ask.request_state is not None
        }

    def put_into(self, exchange: RecordedExchange) -> RecordedExchange:
        answers, ask = exchange.call.answers, exchange.ask
        echoed = None if answers is None else answers.request_state
        issued = None if ask is None else ask.request_state
        own = {}
        if echoed is not None and echoed not in self._issued:
            # A later recording that was added echoed the name itself.
            own[echoed] = exchange.echoed_sha256 or self._sha256(echoed)
        states = ChainMap(own, self._issued)

        def hashed(match: re.Match[bytes]) -> bytes:
            name = match[0].replace(b"%3A", b":").decode()
            sha256 = states.get(name) or sha256_of(f"{self._digest} {name}")
            if match["counted"] == b"elicitation":
                return f"0{sha256[:31]}".encode()
            colon = match["colon"] or match["of_session"] or match["of_counted"]
            return b"sha256%b%b" % (colon, sha256.encode())

        return replace(
            with_texts(exchange, lambda raw, _: renumber(_SURROGATE.sub(hashed, raw), self._token)),
            issued_sha256=None if issued is None else states[issued],
            echoed_sha256=None if echoed is None else states[echoed],
        )

    def _sha256(self, state: str) -> str:
        if STATE_SURROGATE.fullmatch(state):
            return sha256_of(f"{self._digest} {state}")
        return compared_sha256(state)

    def _token(self, rule: str, number: str) -> str | None:
        is_number = number.isascii() and number.isdigit() and len(number) < _LONGEST_NUMBER
        return sha256_of(f"{self._digest} {rule} {number}")[:24] if is_number else None


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
    """Return what several parts have of recorders that are not known yet, by their ids.

    What parts say of the same time is told one after the other: they have nothing to do with each
    other, and the replay of one must not wait for another.
    """
    recorders: list[RecorderFacts] = []
    exchanges: dict[int, RecordedExchange] = {}
    places: dict[int, int] = {}
    for index, part in enumerate(parts):
        begin = len(exchanges) and max(exchanges)
        by_recorder = reopened(part.cassette, f"part {index}")
        for recorder in part.cassette.recorders:
            if recorder.id in known or recorder.id not in by_recorder:
                continue
            before = len(exchanges) and max(exchanges)
            first = recorders[0] if recorders else recorder
            offset_ms = max(0.0, recorder.wall_ms - first.wall_ms)
            recorders.append(recorder._replace(offset_ms=offset_ms))
            for number, exchange in by_recorder[recorder.id].items():
                by = RecordedBy(recorder.id, number)
                exchanges[before + number] = recounted(
                    *(exchange, by, before + number),
                    lambda after, _, before=before: before + after,  # type: ignore[misc]
                    offset_ms,
                )
        for number in exchanges.keys() - places.keys():
            places[number] = part.places.get(number - begin, 0)
    return Joined(recorders, exchanges, places)
