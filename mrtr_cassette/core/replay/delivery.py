"""One reply on its way to a client: what is sent next, and whether it has to wait.

Owns: how far the reply has been sent, and what comes in the place of a part that can't come any
more.
Does not own: waiting and sending (the shell).
Rule: a wait that can't end, because the client gave another answer than the recorded one, ends
with the miss as the response to the call; and nothing of a listening stream is sent twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from mrtr_cassette.core.exchange.caller_values import CallerValues
from mrtr_cassette.core.replay.diagnosis import Miss
from mrtr_cassette.core.replay.live_sessions import LiveSession
from mrtr_cassette.core.replay.playable import Playable
from mrtr_cassette.core.replay.reply import Reply
from mrtr_cassette.core.replay.timeline import Gate
from mrtr_cassette.core.wire.http import End, Headers


class Sending(NamedTuple):
    """Bytes that are due.

    Attributes:
        raw: the bytes.
        at_ms: milliseconds after the request, in the recorded rhythm.
        is_last: the reply ends with them.
        pieces: which pieces of the recorded body they are, as indices.
    """

    raw: bytes
    at_ms: float
    is_last: bool
    pieces: range


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

    def __post_init__(self) -> None:
        """Begin behind what its client has had."""
        self._sent = self.resumes
        self._counts = [lane.first for lane in self.reply.waits.lanes]

    def follow(self, playable: Playable, reply: Reply) -> None:
        """Go on with what another recorded session has in the place of this stream."""
        self.playable, self.reply = playable, reply
        self._sent = min(self._sent, len(reply.parts))
        self._counts = [lane.first for lane in reply.waits.lanes]

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
        miss = self.session.refused.pop(self.playable, None)
        if miss is not None:
            self._is_refused = True
            return Refusal(miss, self.values.id, is_last=True)
        if self.playable.is_listening and self.session.unrecorded:
            return Sending(self.session.unrecorded.popleft(), 0, is_last=False, pieces=range(0))
        if self._is_refused or self._sent == len(self.reply.parts):
            return self._ending()
        part = self.reply.parts[self._sent]
        if not self._is_due(part.gate):
            return None
        self._sent += 1
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
        return Sending(raw, part.at_ms, is_last, part.pieces)

    def _ending(self) -> Ending | None:
        end = End.COMPLETE if self._is_refused else self.reply.end
        if end is End.COMPLETE:
            is_due = self._is_refused or self._is_due(self.reply.waits.end)
            return Ending(end) if is_due else None
        # What was not recorded may still come on a stream that has all responses.
        is_needed = end is End.OPEN and self.session.unrecorded is not None
        return None if is_needed else Ending(end)

    def _values_of(self, request: Playable | None) -> CallerValues:
        return self.values if request is None else self.session.values_of(request)

    def _is_due(self, gate: Gate) -> bool:
        has_arrived = self.session.has_arrived
        for index, needed in enumerate(gate.counts):
            playables = self.reply.waits.lanes[index].arrivals.playables
            count = self._counts[index]
            while count < needed and has_arrived(playables[count]):
                count += 1
            self._counts[index] = count
            if count < needed:
                return False
        return gate.request is None or has_arrived(gate.request)
