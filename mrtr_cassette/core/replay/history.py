"""Order constraints of a recording: what the server says waits for what its client said before.

And several cassettes as one, in which each keeps its order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from operator import itemgetter
from typing import Final, NamedTuple

from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    RecordedBy,
    RecordedExchange,
    RecordedInteraction,
    RecorderFacts,
)
from mrtr_cassette.core.cassette.sessions import ends_session, is_answered
from mrtr_cassette.core.cassette.texts import recounted, with_texts
from mrtr_cassette.core.protocol.calls import NO_SESSION
from mrtr_cassette.core.protocol.jsonrpc import (
    Kind,
    Message,
    messages_in,
    repeated_token,
    same_name,
)
from mrtr_cassette.core.protocol.methods import method_of
from mrtr_cassette.core.replay.matching import ReplayEntry
from mrtr_cassette.core.secrets.names import SESSION, TASK, Change, Ref, with_refs
from mrtr_cassette.core.wire.http import End, Response
from mrtr_cassette.errors import CassetteError

# What the server says waits

_ACKNOWLEDGED = (Kind.RESPONSE, Kind.NOTIFICATION)


Arrivals = list[ReplayEntry]
"""Numbered exchanges in the order in which their requests arrived."""


def _arrived(arrivals: Arrivals, after: int) -> int:
    """Return how many had arrived when `after` requests had arrived in all."""
    return bisect_right(arrivals, after, key=lambda each: each.exchange.number or 0)


class Gate(NamedTuple):
    """What a part of a response waits for, besides all that is sent before it.

    Attributes:
        causes: what clients must have sent, in the order of arrival.
        request: the request that a message on a listening stream is about, or None.
        responds: whether the message is the response to that request.
        follows: the call whose response came before a line that is no message, or None.
    """

    causes: tuple[ReplayEntry, ...] = ()
    request: ReplayEntry | None = None
    responds: bool = False
    follows: ReplayEntry | None = None

    def is_for_later(self, entry: ReplayEntry) -> bool:
        """Tell whether it is about another request, or waits for one that came after one."""
        number = entry.exchange.number or 0
        return self.request not in (None, entry) or any(
            each.kind is not Kind.NOTIFICATION and (each.exchange.number or 0) > number
            for each in self.causes
        )


OPEN: Final = Gate()
"""Waits for nothing."""


class Waits(NamedTuple):
    """What the pieces of one response wait for, and its end; no pieces where nothing waits."""

    pieces: tuple[Gate, ...] = ()
    end: Gate = OPEN


NO_WAITS: Final = Waits()


class Lifetime(NamedTuple):
    """When a request arrived, and when it had its response, as requests arrive."""

    start: tuple[float, ...]
    end: tuple[float, ...]


_NEVER: Final = (float("inf"), float("inf"))


class Timelines:
    """What the clients of each recorded session sent; no session waits for another one."""

    def __init__(self, by_arrival: Sequence[ReplayEntry]) -> None:
        self._by_arrival = by_arrival
        # By session, the requests that may change something, and all else that may cause something.
        self._changes: dict[str, Arrivals] = {}
        self._messages: dict[str, Arrivals] = {}
        # The requests by their ids (True) and their progress tokens.
        self._named: dict[tuple[str, bool, str | None], Arrivals] = {}
        self._during: dict[ReplayEntry, Arrivals] = {}
        self._asking: dict[tuple[RecordedExchange, int], ReplayEntry] = {}
        for each in by_arrival:
            # Nothing waits for the answer to a ping.
            if each.exchange.number is None or each.is_pong:
                continue
            if each.answers is not None and each.answered_call is not None:
                pending, pushed = each.answers
                self._during.setdefault(pending, []).append(each)
                self._asking[pushed.exchange, pushed.piece] = pending
            if each.kind is Kind.REQUEST and each.asker is not None:
                for name in (
                    (True, each.asker.same_id),
                    (False, same_name(each.asker.progress_token)),
                ):
                    self._named.setdefault((each.session, *name), []).append(each)
                if not method_of(each.key.method).reads:
                    self._changes.setdefault(each.session, []).append(each)
            # Clients without a session have nothing in common but what they change.
            elif each.session != NO_SESSION and (
                each.kind is not None or ends_session(each.request, each.exchange.response)
            ):
                self._messages.setdefault(each.session, []).append(each)

    def lifetime_of(self, entry: ReplayEntry) -> Lifetime:
        """Return when a request arrived, and when it had its response, wherever that came."""
        if entry.exchange.number is None:
            # Without the recording block there is only the order of the file.
            return Lifetime(entry.arrival, entry.arrival)
        ended = _end_of(entry) or self._ended_elsewhere.get(entry)
        return Lifetime(entry.arrival, _NEVER if ended is None else (ended, *_NEVER))

    def has_response(self, call: ReplayEntry) -> bool:
        """Tell whether the response to a call was recorded, on whichever stream it came."""
        return call.exchange.rpc_response is not None or call in self._ended_elsewhere

    @cached_property
    def _ended_elsewhere(self) -> dict[ReplayEntry, int]:
        """How many requests had arrived with responses on a stream that another request began."""
        ended: dict[ReplayEntry, int] = {}
        for each in self._by_arrival:
            response = each.exchange.response
            if each.is_listening and response is not None:
                for piece, gate in zip(response.pieces, self.waits_of(each).pieces, strict=False):
                    if gate.responds and gate.request is not None:
                        ended[gate.request] = piece.after
            elif each.stream is not each and (end := _end_of(each)) is not None:
                ended[each.stream] = end
        return ended

    def waits_of(self, entry: ReplayEntry) -> Waits:
        """Return what the response to a request waits for.

        It waits for the notifications and the posted answers that had arrived before it. That the
        server has taken one of these, or a request whose response comes on a listening stream,
        waits for nothing: a client that posts one after the other would wait for ever.
        """
        exchange, response = entry.exchange, entry.exchange.response
        if response is None or exchange.number is None:
            return NO_WAITS
        is_message = entry.kind in _ACKNOWLEDGED and not response.is_framed
        if is_message or response.only_accepts:
            return NO_WAITS
        causes, passed = self._causes_of(entry, response), 0
        if not causes and not entry.is_listening:
            return NO_WAITS

        def gate(after: int) -> Gate:
            nonlocal passed
            before, passed = passed, max(passed, _arrived(causes, after))
            return Gate(tuple(causes[before:passed]))

        # Of a whole body only its end is known.
        last = response.pieces[-1].after if response.pieces else 0
        ended = last if exchange.ended_after is None else exchange.ended_after
        pieces = [gate(piece.after or ended) for piece in response.pieces]
        for located in messages_in(response) if entry.is_listening else ():
            place, message = located.piece, located.message
            after = response.pieces[place].after
            request = self._request_of(entry.session, message, after)
            request = request or self._asking.get((exchange, place))
            responds = message.kind is Kind.RESPONSE
            pieces[place] = pieces[place]._replace(request=request, responds=responds)
        if entry.is_listening and response.is_lines:
            pieces = self._after_responses(entry, response, pieces)
        return Waits(tuple(pieces), gate(ended))

    def _after_responses(
        self, entry: ReplayEntry, response: Response, gates: list[Gate]
    ) -> list[Gate]:
        """Let each line that is no message, such as a log, wait for the response before it."""
        responses = self._responses.get(entry.session, [])
        spoken = {located.piece for located in messages_in(response)}
        waiting = list(gates)
        for at, piece in enumerate(response.pieces):
            came = (piece.after, piece.at_ms)
            before = bisect_right(responses, came, key=itemgetter(0))
            if before and at not in spoken:
                waiting[at] = gates[at]._replace(follows=responses[before - 1][1])
        return waiting

    @cached_property
    def _responses(self) -> dict[str, list[tuple[tuple[int, float], ReplayEntry]]]:
        """The calls of each session whose responses came in lines, by when these came."""
        found: dict[str, list[tuple[tuple[int, float], ReplayEntry]]] = {}
        for entry in self._by_arrival:
            response = entry.exchange.response
            located = entry.exchange.located_response
            if response is not None and response.is_lines and located is not None:
                piece = response.pieces[located.piece]
                came = (piece.after, piece.at_ms)
                found.setdefault(entry.session, []).append((came, entry))
        for responses in found.values():
            responses.sort(key=itemgetter(0))
        return found

    def _request_of(self, session: str, message: Message, after: int) -> ReplayEntry | None:
        """Return the latest request that a message of the server is about, or None."""
        responds = message.kind is Kind.RESPONSE
        name = message.same_id if responds else same_name(repeated_token(message))
        named = [] if name is None else self._named.get((session, responds, name), [])
        before = named[: _arrived(named, after)]
        return before[-1] if before else None

    def answers_during(self, pending: ReplayEntry) -> Sequence[ReplayEntry]:
        """Return the answers to what the server asked during a call, as they arrived."""
        return self._during.get(pending, ())

    def _causes_of(self, entry: ReplayEntry, response: Response) -> Arrivals:
        """Return what clients sent for which a response waits.

        Calls do not wait for each other, nor for answers to what was asked during other calls. A
        listening stream tells what all of them caused, so it waits for every answer, and for all
        requests that can have changed something since it began.
        """
        messages, begun = self._messages.get(entry.session, []), entry.stream
        if entry.is_listening:
            changes = self._changes.get(entry.session, [])
            since = _arrived(changes, begun.exchange.number or 0)
            causes = messages + changes[since:]
            return sorted(causes, key=lambda each: each.exchange.number or 0)
        # What left a call without its response may be the end of the session.
        is_cut = response.is_event_stream and not is_answered(response)
        return [
            each
            for each in messages or self.answers_during(begun)
            if (each.answered_call in (None, begun) if each.kind is not None else is_cut)
        ]


def _end_of(entry: ReplayEntry) -> int | None:
    """Return how many requests had arrived when a request had its response on its own stream."""
    exchange, response = entry.exchange, entry.exchange.response
    if entry.kind is not Kind.REQUEST:
        return exchange.ended_after
    if response is None or response.only_accepts:
        return None
    located = exchange.located_response if response.is_framed else None
    after = None if located is None else response.pieces[located.piece].after
    is_whole = is_answered(response) if response.is_framed else response.end is End.COMPLETE
    return after or (exchange.ended_after if is_whole else None)


# Several cassettes

_NAMES_OF_A_CASSETTE: Final = 100_000


def united(cassettes: Sequence[Cassette]) -> Cassette:
    """Return several cassettes as one, in which each has worlds of its own.

    Raises:
        CassetteError: they were recorded by different rules.
    """
    first, *others = cassettes
    if not others:
        return first
    interactions: list[RecordedInteraction] = []
    recorders: list[RecorderFacts] = []
    arrived = 0
    for index, cassette in enumerate(cassettes):
        for name in ("transport", "request_state", "redaction", "seals_answers"):
            if getattr(cassette, name) != getattr(first, name):
                words = name.replace("_", " ")
                reason = f"it was recorded with another {words} than {first.path}"
                raise CassetteError(cassette.path, reason, hint="play each by itself")
        moved = _moved(cassette, index, arrived)
        arrived = max((each.ended_after or each.number or 0 for each in moved.values()), default=0)
        before = len(interactions)
        for one in cassette.with_exchanges(moved).interactions:
            branch = one.branch and one.branch._replace(of=before + one.branch.of)
            interactions.append(replace(one, number=before + one.number, branch=branch))
        known = cassette.recorders or [RecorderFacts("", 0)]
        recorders += [each._replace(id=f"{index}:{each.id}") for each in known]
    path = ", ".join([each.path for each in cassettes])
    return replace(first, path=path, interactions=tuple(interactions), recorders=tuple(recorders))


def _moved(cassette: Cassette, index: int, before: int) -> dict[RecordedExchange, RecordedExchange]:
    """Return a cassette's exchanges with numbers and names that those before it don't have."""
    change = _renumbered(index * _NAMES_OF_A_CASSETTE)
    changed: dict[RecordedExchange, RecordedExchange] = {}
    recorded = [exchange for interaction in cassette.interactions for exchange in interaction.own]
    recorded.sort(key=lambda exchange: exchange.number or 0)
    for at, exchange in enumerate(recorded, start=1):
        by = exchange.recorded_by or RecordedBy("", at)
        by = by._replace(recorder=f"{index}:{by.recorder}")
        number = before + (exchange.number or at)
        moved = recounted(exchange, by, number, lambda after, _: after and before + after)
        moved = replace(moved, follows=tuple([before + write for write in exchange.follows]))
        changed[exchange] = with_texts(moved, lambda raw, _: with_refs(raw, change))
    return changed


def _renumbered(first: int) -> Change:
    """Return what counts names and secrets from another number on."""

    def renumbered(ref: Ref) -> Ref | None:
        is_number = ref.token.isdigit() if ref.is_secret else ref.kind in (SESSION, TASK)
        return ref.with_last(first + int(ref.token)) if is_number else None

    return renumbered
