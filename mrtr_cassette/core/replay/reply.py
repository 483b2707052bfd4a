"""What a client gets for a request: recorded bytes with its own values, as soon as they are due."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import itemgetter
from types import MappingProxyType
from typing import Final, NamedTuple

from mrtr_cassette.core.cassette.lookup import CallerValues
from mrtr_cassette.core.protocol.jsonrpc import Kind, Message, echoes
from mrtr_cassette.core.protocol.messages import messages_in
from mrtr_cassette.core.protocol.tasks import TaskState, clock_spans, notified_state, polled_state
from mrtr_cassette.core.replay.diagnosis import Miss
from mrtr_cassette.core.replay.history import NO_WAITS, OPEN, Gate, Waits
from mrtr_cassette.core.replay.matching import ReplayEntry
from mrtr_cassette.core.replay.order import LiveSession
from mrtr_cassette.core.wire.http import HOP_BY_HOP, End, Headers, Response
from mrtr_cassette.core.wire.jsonbytes import Span

_FRAMING = HOP_BY_HOP | {"content-length"}


class Echo(NamedTuple):
    """A place in a body that repeats a value of its caller, or of the caller of another request.

    The recorded bytes stand where that caller has no such value.
    """

    span: Span
    value: str
    """The name of a member of `CallerValues`."""
    recorded: bytes
    request: ReplayEntry | None = None


class TaskValue(NamedTuple):
    """A place in a body that has a time of a task, or how often it is polled."""

    span: Span
    value: str
    """The name of a member of the task's state."""
    recorded: bytes
    task: str


_VALUES: Final = ("id", "progress_token", "id_as_text")

Gap = Echo | TaskValue


class Part(NamedTuple):
    """Pieces of a recorded body that are sent together, in rhythm `at_ms` after the request."""

    segments: tuple[bytes | Gap, ...]
    at_ms: float
    gate: Gate
    pieces: range

    def fill(self, value_of: Callable[[Gap], bytes | None]) -> bytes:
        """Return the bytes with values in the gaps; recorded ones where there are none."""
        filled = []
        for each in self.segments:
            if isinstance(each, bytes):
                filled.append(each)
            else:
                filled.append(value_of(each) or each.recorded)
        return b"".join(filled)


class Reply(NamedTuple):
    """One recorded response, ready to be served: outside the gaps every byte is recorded.

    Attributes:
        notified: the states of tasks of which its pieces notify the client.
    """

    status: int
    headers: Headers
    parts: tuple[Part, ...]
    end: End
    is_event_stream: bool
    waits: Waits
    notified: Mapping[int, TaskState] = MappingProxyType({})


class _Beginning(NamedTuple):
    """Where in a body a part begins, with which piece, and what it waits for."""

    start: int
    piece: int
    at_ms: float
    gate: Gate


def build_reply(
    gaps: Sequence[Gap],
    response: Response,
    waits: Waits,
    *,
    started_ms: float = 0,
    piecewise: bool = False,
) -> Reply:
    """Return what to send for a recorded response; `piecewise` keeps all of its pieces apart."""
    body = response.body
    beginnings: list[_Beginning] = []
    start = 0
    for index, piece in enumerate(response.pieces):
        gate = waits.pieces[index] if waits.pieces else OPEN
        if piecewise or not beginnings or gate != beginnings[-1].gate:
            beginnings.append(_Beginning(start, index, piece.at_ms - started_ms, gate))
        start += len(piece.raw)
    parts = []
    sent = place = 0
    behind = _Beginning(start, len(response.pieces), 0, OPEN)
    for (_, piece_at, at_ms, gate), (end, next_piece, *_) in pairwise([*beginnings, behind]):
        # A value goes whole with the part in which it begins.
        segments: list[bytes | Gap] = []
        while place < len(gaps) and gaps[place].span.start < end:
            span = gaps[place].span
            segments += (body[sent : span.start], gaps[place])
            sent = span.end
            place += 1
        segments.append(body[sent:end])
        sent = max(sent, end)
        parts.append(Part(tuple(segments), at_ms, gate, range(piece_at, next_piece)))
    # Who posts a message may leave as soon as it is accepted; others read on.
    is_left = response.end is End.OPEN and response.only_accepts
    ended = End.COMPLETE if is_left else response.end
    is_stream = response.is_event_stream
    # The recorder keeps no framing, but a stranger's cassette may name one that is not the body's.
    headers = tuple(pair for pair in response.headers if pair[0].lower() not in _FRAMING)
    return Reply(response.status, headers, tuple(parts), ended, is_stream, waits)


def echoes_in(
    request: Message | None, response: Response, waits: Waits = NO_WAITS
) -> tuple[Echo, ...]:
    """Return where a response's body repeats the values of its caller, or of other requests.

    What a listening stream waits for tells to which requests it responds.
    """
    own = request if request is not None and request.kind is Kind.REQUEST else None
    if own is None and not waits.pieces:
        return ()
    body = response.body
    placed: list[Echo] = []
    for located in messages_in(response):
        other = waits.pieces[located.piece].request if waits.pieces else None
        asked = None if other is None else other.asker
        for message, entry in ((own, None), (asked, other)):
            if message is None:
                continue
            repeated = echoes(located.message, message)
            values = (repeated.id, repeated.progress_token, repeated.id_as_text)
            found = [
                Echo(span, value, body[span.start : span.end], entry)
                for spans, value in zip(values, _VALUES, strict=True)
                for span in map(located.in_body, spans)
                if span is not None
            ]
            placed += found
            if found:
                break
    return tuple(sorted(placed, key=itemgetter(0)))


class TaskValues(NamedTuple):
    """Where a response says how tasks are, and of which states it notifies its client."""

    gaps: tuple[TaskValue, ...] = ()
    notified: Mapping[int, TaskState] = MappingProxyType({})


def task_values_in(response: Response, tasks: Collection[str]) -> TaskValues:
    """Return where a response has what depends on the clock in the states of some tasks."""
    if not tasks or b'"taskId"' not in response.body:
        return TaskValues()
    gaps: list[TaskValue] = []
    notified: dict[int, TaskState] = {}
    for located in messages_in(response):
        message = located.message
        state = notified_state(message) or polled_state(message)
        if state is None or state.id not in tasks:
            continue
        if message.method:
            notified[located.piece] = state
        for name, inner in clock_spans(message):
            span = located.in_body(inner)
            if span is not None:
                gaps.append(TaskValue(span, name, response.body[span.start : span.end], state.id))
    return TaskValues(tuple(gaps), notified)


class Sending(NamedTuple):
    """Bytes that are due: pieces of the recorded body, which may respond to another request."""

    raw: bytes
    at_ms: float
    is_last: bool
    pieces: range
    responds: bool = False


class Refusal(NamedTuple):
    """A call gets, under its own id, the miss of an answer in the place of its response."""

    miss: Miss
    id: bytes | None
    is_last: bool


class Ending(NamedTuple):
    """Everything has been sent."""

    end: End


@dataclass(slots=True)
class Delivery:
    """A reply on its way to one client: what is sent next, and whether it has to wait.

    A wait that can't end, because the client gave another answer than the recorded one, ends with
    the miss as the response to the call. Nothing of a listening stream is sent twice. A client that
    has sent what it sent later while recorded has passed over what was over by then: nothing waits
    for that any more, and what was said about a call that it may still make is set aside until
    then.

    Attributes:
        values: the caller's values.
        resumes: parts that its client has had already.
    """

    entry: ReplayEntry
    reply: Reply
    session: LiveSession
    values: CallerValues
    resumes: int = 0
    _sent: int = 0
    _counts: list[int] = field(default_factory=list)
    _is_refused: bool = False
    _set_aside: list[Part] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin behind what its client has had."""
        self._sent = self.resumes
        if self.reply.waits.lanes:
            self._counts = self._first_counts()

    def follow(self, entry: ReplayEntry, reply: Reply) -> None:
        """Go on with what another recorded session has in the place of this stream."""
        self.entry, self.reply = entry, reply
        self._sent = min(self._sent, len(reply.parts))
        self._counts = self._first_counts()
        self._set_aside = []

    def _first_counts(self) -> list[int]:
        return [lane.first for lane in self.reply.waits.lanes]

    @property
    def missing_notification(self) -> ReplayEntry | None:
        """The notification that what comes next waits for, or None."""
        reply = self.reply
        is_last = self._sent == len(reply.parts)
        gate = reply.waits.end if is_last else reply.parts[self._sent].gate
        awaited = self._awaited(gate, self._counts)
        is_notification = awaited is not None and awaited.kind is Kind.NOTIFICATION
        return awaited if is_notification else None

    @property
    def is_whole(self) -> bool:
        """Whether the response can be sent in one write as soon as it is due."""
        reply = self.reply
        return len(reply.parts) <= 1 and not reply.is_event_stream and reply.end is End.COMPLETE

    @property
    def headers(self) -> Headers:
        """The headers of the response, as its client gets them."""
        return self.session.spelled_headers(self.reply.headers, self.entry.session)

    def next(self) -> Sending | Refusal | Ending | None:
        """Return what is sent next; None as long as it waits for what clients send."""
        session, entry = self.session, self.entry
        miss = session.refused.pop(entry.stream, None) if session.refused else None
        if miss is not None:
            self._is_refused = True
            return Refusal(miss, self.values.id, is_last=True)
        if session.unrecorded and entry.is_listening:
            return Sending(session.unrecorded.popleft(), 0, is_last=False, pieces=range(0))
        part = None if self._is_refused else self._due_part()
        if part is None:
            is_over = self._is_refused or self._sent == len(self.reply.parts)
            return self._ending() if is_over else None
        if entry.session:
            session.sent[entry] = self._sent
        is_last = (
            self._sent == len(self.reply.parts)
            and self.reply.end is End.COMPLETE
            and self._is_due(self.reply.waits.end)
        )
        request = part.gate.request if part.gate.responds else None
        refused = None if request is None else session.refused.pop(request, None)
        if refused is not None and request is not None:
            return Refusal(refused, session.values_of(request).id, is_last)
        for at in part.pieces if self.reply.notified else ():
            state = self.reply.notified.get(at)
            if state is not None and state.id in session.tasks:
                session.tasks[state.id].saw(state)
        raw = session.spelled(part.fill(self._value_of), entry.session)
        return Sending(raw, part.at_ms, is_last, part.pieces, part.gate.responds)

    def _ending(self) -> Ending | None:
        end = End.COMPLETE if self._is_refused else self.reply.end
        if end is End.COMPLETE:
            is_due = self._is_refused or self._is_due(self.reply.waits.end)
            return Ending(end) if is_due else None
        # On a stream that has all responses, what was not recorded may still come.
        may_come = self._set_aside or self.session.unrecorded is not None
        return None if end is End.OPEN and may_come else Ending(end)

    def _value_of(self, gap: Gap) -> bytes | None:
        if isinstance(gap, TaskValue):
            task = self.session.tasks.get(gap.task)
            return None if task is None else task.value(gap.value, gap.recorded)
        values = self.values if gap.request is None else self.session.values_of(gap.request)
        value: bytes | None = getattr(values, gap.value)
        return value

    def _due_part(self) -> Part | None:
        for part in self._set_aside:
            # What was passed over counts again once its call has come.
            if self._awaited(part.gate, self._first_counts()) is None:
                self._set_aside.remove(part)
                return part
        while self._sent < len(self.reply.parts):
            part = self.reply.parts[self._sent]
            if self._is_due(part.gate):
                self._sent += 1
                return part
            request = part.gate.request
            if request is None or not self._is_passed_over(request):
                return None
            self._sent += 1
            self._set_aside.append(part)
        return None

    def _is_due(self, gate: Gate) -> bool:
        return gate is OPEN or self._awaited(gate, self._counts) is None

    def _awaited(self, gate: Gate, counts: list[int]) -> ReplayEntry | None:
        """Return the first request that a gate waits for; None where it waits no more.

        For each lane, `counts` has how many of its requests are waited for no more.
        """
        has_arrived = self.session.has_arrived
        for index, needed in enumerate(gate.counts):
            entries = self.reply.waits.lanes[index].arrivals
            count = counts[index]
            while count < needed and (
                has_arrived(entries[count]) or self._is_passed_over(entries[count])
            ):
                count += 1
            counts[index] = count
            if count < needed:
                return entries[count]
        return None if gate.request is None or has_arrived(gate.request) else gate.request

    def _is_passed_over(self, entry: ReplayEntry) -> bool:
        """Tell whether the client has gone on without a request that it sent while recorded."""
        session = self.session
        if not entry.session or entry.session != session.recorded:
            return False
        if entry.kind is Kind.RESPONSE:
            pending = None if entry.answers is None else entry.answers.pending
            if pending is None or pending.kind is not Kind.REQUEST or session.has_arrived(pending):
                return False
            return self._is_passed_over(pending)
        over = self.reply.waits.over(entry)
        return over is not None and session.reached > over
