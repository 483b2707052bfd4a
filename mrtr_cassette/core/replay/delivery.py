"""One reply on its way to a client: what is sent next, and whether it has to wait.

Rule: a wait that can't end, because the client gave another answer than the recorded one, ends
with the miss as the response to the call; and nothing of a listening stream is sent twice. A client
that has sent what it sent later while recorded has passed over what was over by then: nothing waits
for that any more, and what was said about a call that it may still make is set aside until it does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from mrtr_cassette.core.exchange.caller_values import CallerValues
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.replay.diagnosis import Miss
from mrtr_cassette.core.replay.live_sessions import LiveSession
from mrtr_cassette.core.replay.playable import Playable
from mrtr_cassette.core.replay.reply import Part, Reply
from mrtr_cassette.core.replay.timeline import Gate
from mrtr_cassette.core.wire.http import End, Headers


class Sending(NamedTuple):
    """Bytes that are due.

    Attributes:
        raw: the bytes.
        at_ms: milliseconds after the request, in the recorded rhythm.
        is_last: the reply ends with them.
        pieces: which pieces of the recorded body they are, as indices.
        responds: they are the response to another request.
    """

    raw: bytes
    at_ms: float
    is_last: bool
    pieces: range
    responds: bool = False


class Refusal(NamedTuple):
    """A call gets a miss in the place of its recorded response.

    Attributes:
        miss: the wrong answer to what the server asked meanwhile.
        id: the call's own id, as its client spelled it; None where it has none.
        is_last: the reply ends with it.
    """

    miss: Miss
    id: bytes | None
    is_last: bool


class Ending(NamedTuple):
    """Everything has been sent.

    Attributes:
        end: how the reply ends.
    """

    end: End


@dataclass(slots=True)
class Delivery:
    """A reply in one live session.

    Attributes:
        playable: what is replied.
        reply: the recorded response.
        session: where its client is.
        values: the caller's values.
        resumes: parts that its client has had already.
    """

    playable: Playable
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
        self._counts = self._first_counts()

    def follow(self, playable: Playable, reply: Reply) -> None:
        """Go on with what another recorded session has in the place of this stream."""
        self.playable, self.reply = playable, reply
        self._sent = min(self._sent, len(reply.parts))
        self._counts = self._first_counts()
        self._set_aside = []

    def _first_counts(self) -> list[int]:
        return [lane.first for lane in self.reply.waits.lanes]

    @property
    def missing_notification(self) -> Playable | None:
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
        return self.session.spelled_headers(self.reply.headers, self.playable.session)

    def next(self) -> Sending | Refusal | Ending | None:
        """Return what is sent next; None as long as it waits for what clients send."""
        miss = self.session.refused.pop(self.playable.stream, None)
        if miss is not None:
            self._is_refused = True
            return Refusal(miss, self.values.id, is_last=True)
        if self.playable.is_listening and self.session.unrecorded:
            return Sending(self.session.unrecorded.popleft(), 0, is_last=False, pieces=range(0))
        part = None if self._is_refused else self._due_part()
        if part is None:
            is_over = self._is_refused or self._sent == len(self.reply.parts)
            return self._ending() if is_over else None
        if self.playable.session:
            self.session.sent[self.playable] = self._sent
        is_last = (
            self._sent == len(self.reply.parts)
            and self.reply.end is End.COMPLETE
            and self._is_due(self.reply.waits.end)
        )
        request = part.gate.request if part.gate.responds else None
        refused = None if request is None else self.session.refused.pop(request, None)
        if refused is not None and request is not None:
            return Refusal(refused, self.session.values_of(request).id, is_last)
        raw = self.session.spelled(part.fill(self._values_of), self.playable.session)
        return Sending(raw, part.at_ms, is_last, part.pieces, part.gate.responds)

    def _ending(self) -> Ending | None:
        end = End.COMPLETE if self._is_refused else self.reply.end
        if end is End.COMPLETE:
            is_due = self._is_refused or self._is_due(self.reply.waits.end)
            return Ending(end) if is_due else None
        # On a stream that has all responses, what was not recorded may still come.
        may_come = self._set_aside or self.session.unrecorded is not None
        return None if end is End.OPEN and may_come else Ending(end)

    def _values_of(self, request: Playable | None) -> CallerValues:
        return self.values if request is None else self.session.values_of(request)

    def _due_part(self) -> Part | None:
        """Return the next part that is due, and take it as sent."""
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
        return self._awaited(gate, self._counts) is None

    def _awaited(self, gate: Gate, counts: list[int]) -> Playable | None:
        """Return the first request that a gate waits for; None where it waits no more.

        Args:
            gate: the gate.
            counts: for each lane, how many of its requests are waited for no more; is brought up to
                date.
        """
        has_arrived = self.session.has_arrived
        for index, needed in enumerate(gate.counts):
            playables = self.reply.waits.lanes[index].arrivals.playables
            count = counts[index]
            while count < needed and (
                has_arrived(playables[count]) or self._is_passed_over(playables[count])
            ):
                count += 1
            counts[index] = count
            if count < needed:
                return playables[count]
        return None if gate.request is None or has_arrived(gate.request) else gate.request

    def _is_passed_over(self, playable: Playable) -> bool:
        """Tell whether the client has gone on without a request that it sent while recorded."""
        session = self.session
        if not playable.session or playable.session != session.recorded:
            return False
        if playable.kind is Kind.RESPONSE:
            pending = None if playable.answers is None else playable.answers.pending
            if pending is None or pending.kind is not Kind.REQUEST or session.has_arrived(pending):
                return False
            return self._is_passed_over(pending)
        over = self.reply.waits.over(playable)
        return over is not None and session.reached > over
