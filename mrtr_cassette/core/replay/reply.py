"""What a client gets for a request: recorded bytes with its own values, as soon as they are due."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import Final, NamedTuple

from mrtr_cassette.core.cassette.lookup import CallerValues
from mrtr_cassette.core.cassette.texts import headers_with
from mrtr_cassette.core.protocol.jsonrpc import Kind, Message, echoes, messages_in
from mrtr_cassette.core.protocol.tasks import TaskState, clock_spans, notified_state, polled_state
from mrtr_cassette.core.replay.diagnosis import Miss
from mrtr_cassette.core.replay.history import NO_WAITS, OPEN, Gate, Lifetime, Waits
from mrtr_cassette.core.replay.matching import ReplayEntry
from mrtr_cassette.core.replay.order import LiveSession
from mrtr_cassette.core.secrets.names import renaming
from mrtr_cassette.core.wire.http import End, Headers, Piece, Response, kept_response_headers
from mrtr_cassette.core.wire.jsonbytes import Span


class Gap(NamedTuple):
    """A place in a body that has another value in every replay, or the recorded bytes.

    Attributes:
        value: its name, as `CallerValues` has it, or the state of a task.
        source: the id of that task, or the request whose caller it is, if not the caller itself.
    """

    span: Span
    value: str
    recorded: bytes
    source: ReplayEntry | str | None = None


class Came(NamedTuple):
    """When a piece came: after how many requests in all, and at which time of the recorder."""

    after: int
    at_ms: float


NEVER_CAME: Final = Came(0, 0)
"""Stands for when it is not known."""


class Part(NamedTuple):
    """Pieces of a recorded body that are sent together, in rhythm `at_ms` after the request."""

    segments: tuple[bytes | Gap, ...]
    at_ms: float
    gate: Gate
    pieces: range
    came: Came


class Reply(NamedTuple):
    """One recorded response, ready to be served: outside the gaps every byte is recorded.

    Attributes:
        notified: the states of tasks of which its pieces notify the client.
        responds_at: the piece that completes the JSON-RPC response to the request, or None.
    """

    status: int
    headers: Headers
    parts: tuple[Part, ...]
    end: End
    is_event_stream: bool
    is_framed: bool
    waits: Waits
    notified: Mapping[int, TaskState]
    responds_at: int | None


def build_reply(
    request: Message | None,
    response: Response,
    waits: Waits = NO_WAITS,
    *,
    tasks: Collection[str] = (),
    started_ms: float = 0,
    ended: Came = NEVER_CAME,
    piecewise: bool = False,
    batch: Sequence[Message] = (),
) -> Reply:
    """Return what to send for a recorded response to a request; `piecewise` keeps pieces apart.

    What depends on the clock in the states of `tasks` is a gap. `batch` has the requests of one.
    """
    gaps, notified, responds_at = _places_in(request, response, waits, tasks)
    gaps = gaps or _places_of_batch(batch, response)
    gates = waits.pieces or (OPEN,) * len(response.pieces)
    firsts = [at for at, gate in enumerate(gates) if piecewise or at == 0 or gate != OPEN]
    ends = [*accumulate([len(piece.raw) for piece in response.pieces])]
    body, parts, sent = response.body, list[Part](), 0
    for first, behind in pairwise([*firsts, len(gates)]):
        end = ends[behind - 1]
        segments: list[bytes | Gap] = []
        # A value goes whole with the part in which it begins.
        while gaps and gaps[0].span.start < end:
            segments += (body[sent : gaps[0].span.start], gaps[0])
            sent = gaps.pop(0).span.end
        segments.append(body[sent:end])
        sent = max(sent, end)
        pause = response.pieces[first].at_ms - started_ms
        came = _came(response.pieces[first], ended)
        parts.append(Part(tuple(segments), pause, gates[first], range(first, behind), came))
    # Who posts a message may leave as soon as it is accepted; others read on.
    is_left = response.end is End.OPEN and response.only_accepts
    return Reply(
        response.status,
        # A stranger's cassette may have what no recorder keeps: other framing, or cookies.
        kept_response_headers(response.headers),
        tuple(parts),
        End.COMPLETE if is_left else response.end,
        response.is_event_stream,
        response.is_framed,
        waits,
        notified,
        responds_at,
    )


def _came(piece: Piece, ended: Came) -> Came:
    # Of a whole body only its end is known.
    return Came(piece.after, piece.at_ms) if piece.after else ended


def _places_in(
    request: Message | None, response: Response, waits: Waits, tasks: Collection[str]
) -> tuple[list[Gap], dict[int, TaskState], int | None]:
    """Return the gaps of a body, and the states of tasks of which its pieces notify a client.

    Return also which piece responds to the request. What a listening stream waits for tells to
    which requests it responds.
    """
    gaps: list[Gap] = []
    notified: dict[int, TaskState] = {}
    responds_at: int | None = None
    own = request if request is not None and request.kind is Kind.REQUEST else None
    has_tasks = tasks and b'"taskId"' in response.body
    for located in messages_in(response):
        message = located.message
        if own is not None and message.kind is Kind.RESPONSE and message.id == own.id:
            responds_at = located.piece
        found: list[tuple[Span, str, ReplayEntry | str | None]] = []
        other = waits.pieces[located.piece].request if waits.pieces else None
        for asker, entry in ((own, None), (None if other is None else other.asker, other)):
            if asker is not None and not found:
                found += [(*echo, entry) for echo in echoes(message, asker)]
        state = (notified_state(message) or polled_state(message)) if has_tasks else None
        if state is not None and state.id in tasks:
            found += [(span, name, state.id) for name, span in clock_spans(message)]
            if message.method:
                notified[located.piece] = state
        for inner, value, source in found:
            span = located.in_body(inner)
            if span is not None:
                gaps.append(Gap(span, value, response.body[span.start : span.end], source))
    return sorted(gaps, key=itemgetter(0)), notified, responds_at


def _places_of_batch(batch: Sequence[Message], response: Response) -> list[Gap]:
    """Return the gaps of a body that responds to several requests."""
    gaps: dict[Span, Gap] = {}
    for located in messages_in(response) if batch else ():
        for at, asker in enumerate(batch):
            for echo in echoes(located.message, asker):
                span = located.in_body(echo.span)
                is_exact = echo.value in ("id", "progress_token")
                # Beside `1` another request may have `"1"`, which is nearly the same.
                if span is not None and (is_exact or span not in gaps):
                    recorded = response.body[span.start : span.end]
                    gaps[span] = Gap(span, f"{at}:{echo.value}", recorded)
    return sorted(gaps.values(), key=itemgetter(0))


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


@dataclass(slots=True)
class Delivery:
    """A reply on its way to one client: what is sent next, and whether it has to wait.

    A wait that can't end, because the client gave another answer than the recorded one, ends with
    the miss as the response to the call. A client that has sent what it sent later while recorded
    has passed over what was over by then: nothing waits for that any more, and what was said about
    a call that it may still make is set aside until then.

    Attributes:
        values: the caller's values.
        listening: the listening streams of its session, whose clients get there first what came
            before the response to the request.
        sent: parts that its client has had.
        is_left: whether its client has left, or reads no more.
    """

    entry: ReplayEntry
    reply: Reply
    session: LiveSession
    values: CallerValues
    lifetime_of: Callable[[ReplayEntry], Lifetime]
    listening: Sequence[Delivery] = ()
    sent: int = 0
    is_left: bool = False
    _set_aside: list[Part] = field(default_factory=list)

    def follow(self, entry: ReplayEntry, reply: Reply) -> None:
        """Go on with what another recorded session has in the place of this stream."""
        self.entry, self.reply = entry, reply
        self.sent = min(self.sent, len(reply.parts))
        self._set_aside = []

    @property
    def missing_notification(self) -> ReplayEntry | None:
        """The notification that what comes next waits for, or None."""
        parts, end = self.reply.parts, self.reply.waits.end
        missing = self._missing(end if self.sent == len(parts) else parts[self.sent].gate)
        return missing if missing is not None and missing.kind is Kind.NOTIFICATION else None

    @property
    def is_behind(self) -> bool:
        """Whether it only waits for what listening streams have to send first."""
        part = self._due_part()
        return part is not None and any(True for _ in self._owing(part))

    def go_first(self) -> None:
        """Wait no more for streams that nobody reads."""
        part = self._due_part()
        for stream in () if part is None else [*self._owing(part)]:
            stream.is_left = True

    def end(self) -> None:
        """Take note that its client has all of it, or has left: nobody waits for it any more."""
        self.is_left = True
        self.session.answer(self.entry.stream)

    def _owing(self, part: Part) -> Iterator[Delivery]:
        """Yield the streams that have to send something before a part."""
        # Without the recording block nobody knows what came first.
        if self.reply.responds_at in part.pieces and part.came.after:
            yield from (each for each in self.listening if each.owes(self.entry.stream, part.came))

    def owes(self, call: ReplayEntry, came: Came) -> bool:
        """Tell whether what it sends next came before the response to a call, which came then.

        What waits for other requests is not sent next: a client may send these after the response.
        """
        part = None if self.is_left else self._due_part()
        if part is None:
            return False
        # Clients of several requests have progress of each on one stream, always before the end.
        if part.gate.request is call and not part.gate.responds:
            return part.came.after <= came.after
        return part.came <= came

    @property
    def is_whole(self) -> bool:
        """Whether the response can be sent in one write as soon as it is due."""
        reply = self.reply
        return len(reply.parts) <= 1 and not reply.is_event_stream and reply.end is End.COMPLETE

    @property
    def headers(self) -> Headers:
        """The headers of the response, as its client gets them."""
        headers, recorded = self.reply.headers, self.entry.session
        if not recorded:
            return headers
        change = renaming({recorded: self.session.id})
        return headers_with(headers, lambda raw, _: change(raw))

    def next(self) -> Sending | Refusal | End | None:
        """Return what is sent next, or the end; None while it waits for what clients send."""
        session, entry = self.session, self.entry
        if entry.stream in session.refused:
            self.sent, self._set_aside = 0, []
            self.reply = self.reply._replace(parts=(), end=End.COMPLETE, waits=NO_WAITS)
            return Refusal(session.refused.pop(entry.stream), self.values.id, is_last=True)
        if session.unrecorded and entry.is_listening:
            return Sending(session.unrecorded.popleft(), 0, is_last=False, pieces=range(0))
        part = self._due_part()
        if part is None:
            return self._ending() if self.sent == len(self.reply.parts) else None
        if any(True for _ in self._owing(part)):
            return None
        self._take(part)
        filled = [it if isinstance(it, bytes) else self._value_of(it) for it in part.segments]
        raw = b"".join(filled)
        names = session.known_tasks
        if entry.session:
            session.sent[entry] = self.sent
            names = {**names, entry.session: session.id}
        if names:
            raw = renaming(names)(raw)
        is_last = self.sent == len(self.reply.parts) and self._ending() is End.COMPLETE
        request = part.gate.request
        if part.gate.responds and request is not None and request in session.refused:
            return Refusal(session.refused.pop(request), session.values_of(request).id, is_last)
        for at in part.pieces if self.reply.notified else ():
            state = self.reply.notified.get(at)
            if state is not None and state.id in session.tasks:
                session.tasks[state.id].saw(state)
        return Sending(raw, part.at_ms, is_last, part.pieces, part.gate.responds)

    def _ending(self) -> End | None:
        end = self.reply.end
        if end is End.COMPLETE:
            is_due = self._missing(self.reply.waits.end) is None
            return end if is_due and not self._has_lines_to_come() else None
        # On a stream that has all responses, what was not recorded may still come.
        may_come = self._set_aside or self.session.unrecorded is not None
        return None if end is End.OPEN and may_come else end

    def _value_of(self, gap: Gap) -> bytes:
        source = gap.source
        if isinstance(source, str):
            task = self.session.tasks.get(source)
            return gap.recorded if task is None else task.value(gap.value, gap.recorded)
        values = self.values if source is None else self.session.values_of(source)
        return values.spelled(gap.value) or gap.recorded

    def _due_part(self) -> Part | None:
        """Return the part that is sent next; what was passed over before it is set aside."""
        for part in self._set_aside:
            if self._is_here(part.gate) and self._missing(part.gate) is None:
                return part
        while self.sent < len(self.reply.parts):
            part = self.reply.parts[self.sent]
            if self._missing(part.gate) is not None:
                return None
            if self._is_here(part.gate):
                return part
            request = part.gate.request
            if request is not None and not self._is_passed_over(request):
                return None
            self.sent += 1
            self._set_aside.append(part)
        return None

    def _is_here(self, gate: Gate) -> bool:
        """Tell whether what a part is about has come, and what it follows was sent."""
        if gate.follows is not None and not self.session.has_answered(gate.follows):
            return False
        return gate.request is None or self.session.has_arrived(gate.request)

    def _has_lines_to_come(self) -> bool:
        """Tell whether lines wait for the response to a call that its client has made."""
        for part in self._set_aside:
            call = part.gate.follows
            if call is not None and self.session.has_arrived(call):
                return True
        return False

    def _take(self, part: Part) -> None:
        if part in self._set_aside:
            self._set_aside.remove(part)
        else:
            self.sent += 1

    def _missing(self, gate: Gate) -> ReplayEntry | None:
        """Return the latest cause that has not come, and is waited for; None where all have."""
        for each in reversed(gate.causes):
            if not (self.session.has_arrived(each) or self._is_passed_over(each)):
                return each
        return None

    def _is_passed_over(self, entry: ReplayEntry) -> bool:
        """Tell whether the client has gone on without a request that it sent while recorded."""
        session = self.session
        if not entry.session or entry.session != session.recorded:
            return False
        if entry.kind is Kind.RESPONSE:
            call = entry.answered_call
            left_out = call is not None and not session.has_arrived(call)
            return call is not None and left_out and self._is_passed_over(call)
        return session.reached > self.lifetime_of(entry).end[0]
