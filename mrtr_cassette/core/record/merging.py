"""What several recorders saw, as one recorder would have seen it.

Rule: the files' order and their number mean nothing. What contradicts itself is an error that names
the files; what can only be guessed is told.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from mrtr_cassette.core.exchange.recorded import RecordedBy, RecordedExchange, RecorderFacts
from mrtr_cassette.core.format.journal import JournalHeader
from mrtr_cassette.core.record.causality import (
    SESSION,
    STATE,
    Cause,
    Chain,
    Givers,
    Happening,
    Order,
    clock_corrections,
    givers_of,
    happenings_of,
)
from mrtr_cassette.core.record.history import lasting
from mrtr_cassette.core.record.same_secrets import SameSecrets
from mrtr_cassette.core.record.texts import renumbered
from mrtr_cassette.core.wire.http import Piece
from mrtr_cassette.errors import CassetteError, counted

_ORIGIN = re.compile("[a-z]+://[^/?]*")
_TOLD_MS = 1.0
"""Milliseconds from which on a clock is told to be wrong."""


@dataclass(frozen=True, slots=True)
class Source:
    """What one file, or the pieces of one journal, have of one recorder.

    Attributes:
        name: how messages name the file.
        header: what it says of the recording, with recorder and clock.
        exchanges: by number at the recorder.
        namespace: whose tokens stand for its secrets.
        is_published: it is a cassette.
    """

    name: str
    header: JournalHeader
    exchanges: Mapping[int, RecordedExchange]
    namespace: str
    is_published: bool = False

    @property
    def recorder(self) -> str:
        """The id of the recorder."""
        return self.header.recorder or ""

    @property
    def began_ms(self) -> float:
        """When the recorder began, by its wall clock."""
        return self.header.wall_ms or 0.0


class Merged(NamedTuple):
    """Several recordings in one.

    Attributes:
        header: what it says of itself.
        recorders: whose exchanges it has.
        exchanges: by number.
        notes: what to know of it, in words.
    """

    header: JournalHeader
    recorders: tuple[RecorderFacts, ...]
    exchanges: Mapping[int, RecordedExchange]
    notes: tuple[str, ...]


def merged(sources: Sequence[Source]) -> Merged:
    """Return what recorders saw in one.

    Args:
        sources: at least one, in any order.

    Raises:
        CassetteError: they can't be put together, or contradict each other.
    """
    sources = sorted(sources, key=lambda source: (source.began_ms, source.recorder, source.name))
    for source in sources:
        _check_alike(sources[0], source)
    recorders = _recorders_of(sources)
    chains = [recorder.chain() for recorder in recorders]
    givers = givers_of(chains)
    corrections = clock_corrections(chains, givers)
    order = Order(chains, corrections, givers)
    secrets = _same_secrets(recorders, chains, givers)
    first = order.offsets_ms.index(0)
    notes = [
        *_notes_of_files(sources, recorders),
        *_notes_of_clocks(recorders, corrections),
        *_notes_of_causes(recorders, chains, givers),
    ]
    return Merged(
        recorders[first].sources[0].header,
        tuple(
            RecorderFacts(recorder.id, chain.began_ms, offset_ms)
            for recorder, chain, offset_ms in zip(recorders, chains, order.offsets_ms, strict=True)
        ),
        dict(enumerate(_counted_on(recorders, order, secrets), start=1)),
        tuple(notes),
    )


def _check_alike(first: Source, source: Source) -> None:
    """Make sure that two recordings can stand in one cassette."""
    one, two = first.header, source.header
    for what, mine, others in (
        ("the transport", two.transport, one.transport),
        ("request states", two.request_state, one.request_state),
        ("answers", two.answers or "readable", one.answers or "readable"),
    ):
        if mine != others:
            reason = f"{what}: {mine}, and {others} in {first.name}"
            raise CassetteError(source.name, reason, hint="merge what was recorded alike")
    if two.redaction != one.redaction:
        raise CassetteError(
            source.name,
            f"it was recorded with other rules of redaction than {first.name}",
            hint="a placeholder would not mean the same; merge what was recorded alike",
        )
    if two.transport == "stdio":
        if source.recorder != first.recorder:
            raise CassetteError(
                source.name,
                f"it is a recording over pipes, and so is {first.name}: each has a client and a "
                "server of its own",
                hint="only pieces of one journal can be merged",
            )
    elif _ORIGIN.sub("", two.upstream) != _ORIGIN.sub("", one.upstream):
        raise CassetteError(
            source.name,
            f"its upstream is {two.upstream}, and that of {first.name} is {one.upstream}: another "
            "path is another server",
            hint="merge each server's recordings into a cassette of its own",
        )


class _Seen(NamedTuple):
    source: Source
    exchange: RecordedExchange


class _Recorder:
    """All that the sources have of one recorder.

    Attributes:
        id: its id.
        sources: which have something of it, the best first.
        seen: its exchanges by number, each with the source that has most of it.
    """

    def __init__(self, identity: str, sources: Iterable[Source]) -> None:
        self.id = identity
        # A journal has ids of sessions that a cassette has not.
        self.sources = sorted(
            sources,
            key=lambda each: (each.is_published, -len(each.exchanges), each.namespace, each.name),
        )
        self.seen: dict[int, _Seen] = {}
        for source in self.sources:
            for number, exchange in source.exchanges.items():
                self._take(number, _Seen(source, exchange))

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

    def chain(self) -> Chain:
        """Return what it saw, in its order."""
        happenings = [
            happening
            for number, seen in sorted(self.seen.items())
            for happening in happenings_of(number, seen.exchange)
        ]
        happenings.sort(key=lambda happening: happening[:3])
        return Chain(self.sources[0].began_ms, happenings)


def _recorders_of(sources: Iterable[Source]) -> list[_Recorder]:
    by_id: dict[str, list[Source]] = {}
    for source in sources:
        by_id.setdefault(source.recorder, []).append(source)
    return [_Recorder(identity, by_id[identity]) for identity in sorted(by_id)]


def _content(exchange: RecordedExchange) -> bytes:
    """Return what two copies of one exchange share, of which one may have more of the response."""
    request, response = exchange.request, exchange.response
    bodies = [request.body]
    status = 0
    if response is not None:
        status = response.status or 0
        bodies.append(response.body)
    head = f"{request.method} {request.target} {status}".encode()
    if any(b"elicitationId" in body for body in bodies):
        # What a server made up has another name in each file.
        return lasting(head.decode()).encode()
    text = b"\n".join([head, *bodies]).decode("latin-1")
    return lasting(text).encode("latin-1")


def _same_secrets(
    recorders: Sequence[_Recorder],
    chains: Sequence[Chain],
    givers: Givers,
) -> SameSecrets:
    secrets = SameSecrets()
    for index, happening, cause in _needs_of(chains):
        given = givers.get(cause, ())
        if cause[0] == SESSION or len(given) != 1:
            continue
        other, asked = given[0]
        retry, call = recorders[index].seen[happening.number], recorders[other].seen[asked.number]
        mine, others = retry.source.namespace, call.source.namespace
        if mine != others:
            keys = ["\n".join(each.exchange.call.key()) for each in (call, retry)]
            secrets.repeated(keys[0], others, keys[1], mine)
    return secrets


def _needs_of(chains: Sequence[Chain]) -> Iterator[tuple[int, Happening, Cause]]:
    for index, chain in enumerate(chains):
        for happening in chain.happenings:
            for cause in happening.needs:
                yield index, happening, cause


def _counted_on(
    recorders: Sequence[_Recorder], order: Order, secrets: SameSecrets
) -> Iterator[RecordedExchange]:
    """Yield the exchanges of all recorders, counted and timed as one recorder would have."""
    after = order.after
    for number, (index, own) in enumerate(order.requests, start=1):
        recorder, offset_ms = recorders[index], order.offsets_ms[index]
        exchange = recorder.seen[own].exchange
        response, ended_after = exchange.response, exchange.ended_after
        if response is not None:
            pieces = [
                Piece(raw, at_ms + offset_ms, after(index, own, count, at_ms))
                for raw, at_ms, count in response.pieces
            ]
            response = replace(response, pieces=tuple(pieces))
        if ended_after is not None:
            ended_after = after(index, own, ended_after, exchange.ended_ms)
        exchange = replace(
            exchange,
            number=number,
            response=response,
            started_ms=exchange.started_ms + offset_ms,
            ended_ms=exchange.ended_ms + offset_ms,
            ended_after=ended_after,
            recorded_by=RecordedBy(recorder.id, own),
        )
        yield renumbered(exchange, secrets.token) if secrets else exchange


def _notes_of_files(sources: Sequence[Source], recorders: Sequence[_Recorder]) -> Iterator[str]:
    """Yield what to know of the files."""
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


def _notes_of_causes(
    recorders: Sequence[_Recorder], chains: Sequence[Chain], givers: Givers
) -> Iterator[str]:
    """Yield which sessions and calls have their beginning in none of the files."""
    unlinked: dict[tuple[str, str, bool], list[Cause]] = {}
    for index, happening, cause in _needs_of(chains):
        if cause not in givers:
            source = recorders[index].seen[happening.number].source
            unlinked.setdefault((cause[0], source.name, source.is_published), []).append(cause)
    for (kind, name, is_published), causes in sorted(unlinked.items()):
        if kind == STATE:
            yield f"{name}: {counted(len(causes), 'answer')} to an ask that no file has"
        elif kind == SESSION:
            why = (
                "a cassette keeps no ids of sessions by which they could be linked; merge the "
                "journals"
                if is_published
                else "no file has where they were opened"
            )
            sessions = counted(len(set(causes)), "session")
            yield f"{name}: {sessions} began at another recorder, and {why}"
