"""Tell what passed in the sessions of a recording, and when.

What has happened is counted in requests that had arrived; the clock only tells apart what happened
between two of them.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from sys import intern
from typing import NamedTuple

from mrtr_cassette.core.cassette.recorded import RecordedBy, RecordedExchange
from mrtr_cassette.core.cassette.sessions import ends_session, is_answered, listens, opened_session
from mrtr_cassette.core.protocol.calls import NO_SESSION, Call, session_of
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.protocol.messages import ask_in, completed_by
from mrtr_cassette.core.protocol.methods import INITIALIZE, INITIALIZED
from mrtr_cassette.core.secrets.sealed import SEALED_HASH, renumber, sha256_of
from mrtr_cassette.core.wire.http import EVENT_STREAM, End, Piece, Response
from mrtr_cassette.core.wire.lines import opens_channel

_LONGEST_TEXT = 200
_CUT_HASH = re.compile(r"(?:<[^<>]*|sha256(?::|%3A)[0-9a-f]*)\Z")
_JOURNAL_TOKEN = re.compile("[0-9a-f]{24}")


class Moment(NamedTuple):
    """When something happened: how many requests had arrived, and milliseconds since the begin."""

    after: int
    at_ms: float


NEVER = Moment(2**53, 0.0)


class Push(NamedTuple):
    """A request that the server sent of itself, with the canonical text of its id."""

    id: str
    method: str
    piece: int
    """Index of the piece of the response that completes it."""
    moment: Moment


class Rank(IntEnum):
    """Which of the requests of one session come first, where nothing else tells."""

    OPENING_STREAM = 0
    """The stream on which HTTP+SSE opens a session."""
    INITIALIZE = 1
    INITIALIZED = 2
    LISTENING = 3
    CALL = 4


_LISTENING = (Rank.OPENING_STREAM, Rank.LISTENING)
_RANKS = {INITIALIZE: Rank.INITIALIZE, INITIALIZED: Rank.INITIALIZED}


@dataclass(frozen=True, slots=True)
class ExchangeFacts:
    """Facts about one exchange that linking and ordering need; ids are canonical texts."""

    session: str = NO_SESSION
    """The session's id, as the journal has it."""
    text: str = ""
    """The beginning of its call key, without what every recording has anew."""
    rank: Rank = Rank.CALL
    request_id: str | None = None
    posted_id: str | None = None
    """That of the JSON-RPC response that the request is."""
    pushes: tuple[Push, ...] = ()
    responses: tuple[tuple[str, Moment], ...] = ()
    """The id of each JSON-RPC response to another request, and when it came."""
    ended: Moment = NEVER
    """When the response ended, or the call whose stream it resumes; never where it says no more
    than that the request has arrived, and the response comes on a listening stream."""
    is_answered: bool = True
    """Its response has the response to the request."""
    resumes: int | None = None
    """Number of the call whose stream it resumes."""
    ends_session: bool = False
    """It is a DELETE, which was not refused."""
    seeks_stream: bool = False
    """It is a GET of a listening stream."""
    is_silent: bool = False
    """Its response, if there is any, has no message of a server that lets it listen."""
    is_left: bool = False
    """Its client left its response."""
    call: str = ""
    """The hash of its call key."""
    caller: str = ""
    """Session and client, as far as a request tells."""
    client: str = ""
    """Which program asks: it answers nothing that another program was asked."""
    answered_keys: frozenset[str] | None = None
    """The keys of a retry's `inputResponses`; None where the request is no retry."""
    echoed: str | None = None
    """Hash of the request state that it echoes."""
    asked_keys: frozenset[str] | None = None
    """The keys of an ask's `inputRequests`; None where the response is no ask."""
    issued: tuple[str, ...] = ()
    """Hashes by which a retry may echo the state that the ask issued, if it issued one: an earlier
    cassette issues another state on replay than the server did."""
    asked: Moment = NEVER
    """When the ask was whole: only later requests can answer it."""

    @property
    def listens(self) -> bool:
        """Whether its response tells what other requests caused."""
        return self.rank in _LISTENING


def facts_of(exchange: RecordedExchange, call: Call, resumes: int | None = None) -> ExchangeFacts:
    """Return the facts about an exchange with this call, which may resume a call's stream."""
    request, response, message = exchange.request, exchange.response, call.message
    ask = None if response is None else ask_in(message, response)
    key = "\n".join(call.key())
    session = session_of(request)
    opened = NO_SESSION if session else opened_session(response)
    rank = Rank.CALL
    if ask is None and resumes is None:
        rank = _RANKS.get(call.method, Rank.CALL)
        if listens(call, response):
            rank = Rank.OPENING_STREAM if opened or opens_channel(request) else Rank.LISTENING
    has_others = rank in _LISTENING or resumes is not None
    pushes, responses = _said(response, has_others=has_others)
    kind = None if message is None else message.kind
    identity = "" if message is None else message.id
    is_accepted = kind is Kind.REQUEST and response is not None and response.only_accepts
    ended = Moment(exchange.ended_after or exchange.number or 0, exchange.ended_ms)
    if is_accepted:
        ended = NEVER
    elif resumes is not None and responses:
        ended = responses[-1][1]
    return ExchangeFacts(
        session=intern(session or opened),
        text=_beginning_of(key),
        rank=rank,
        request_id=identity if kind is Kind.REQUEST else None,
        posted_id=identity if kind is Kind.RESPONSE else None,
        pushes=pushes,
        responses=responses,
        ended=ended,
        # What is no stream is the response to its request.
        is_answered=not is_accepted
        and (response is None or not response.is_framed or is_answered(response)),
        resumes=resumes,
        ends_session=ends_session(request, response),
        seeks_stream=resumes is None
        and request.method == "GET"
        and EVENT_STREAM in request.header("accept"),
        is_silent=_is_silent(response),
        is_left=response is not None and response.end is End.OPEN,
        call=intern(sha256_of(key)),
        caller=intern(call.caller),
        client=intern(call.client),
        answered_keys=frozenset(call.answers.input_responses or ()) if call.answers else None,
        echoed=exchange.echoed_sha256 if call.answers else None,
        asked_keys=None if ask is None else frozenset(ask.input_requests),
        issued=(exchange.issued_sha256,) if ask and exchange.issued_sha256 is not None else (),
        asked=_moment_of(response.pieces[ask.piece]) if response and ask else NEVER,
    )


def _moment_of(piece: Piece) -> Moment:
    return Moment(piece.after, piece.at_ms)


def _is_silent(response: Response | None) -> bool:
    if response is None or not response.is_event_stream:
        return response is None or response.status >= 400
    return not any(b"jsonrpc" in piece.raw for piece in response.pieces)


def _said(
    response: Response | None, *, has_others: bool
) -> tuple[tuple[Push, ...], tuple[tuple[str, Moment], ...]]:
    """Return what a stream pushes, and what it says in response to other requests."""
    pushes: list[Push] = []
    responses: list[tuple[str, Moment]] = []
    for index, piece in enumerate(response.pieces if response and response.is_framed else ()):
        # On the stream of a call, what has an id and no method is the response to the call.
        if b'"id"' in piece.raw and (has_others or b'"method"' in piece.raw):
            message = completed_by(response, index) if response else None
            if message is None or message.id is None:
                continue
            if message.kind is Kind.RESPONSE and has_others:
                responses.append((message.id, _moment_of(piece)))
            elif message.kind is Kind.REQUEST:
                name = intern(message.method)
                pushes.append(Push(intern(message.id), name, index, _moment_of(piece)))
    return tuple(pushes), tuple(responses)


# What every recording has anew


def _beginning_of(key: str) -> str:
    text = key[:_LONGEST_TEXT]
    if "sha256" in text or "<" in text or "%3" in text:
        # A hash that is cut in two is left out.
        text = _CUT_HASH.sub("", lasting(text))
    return intern(text)


def lasting(text: str) -> str:
    """Return a text of the journal without the hashes that every recording has anew."""
    if "sha256" in text:
        text = SEALED_HASH.sub("sha256", text)
    return renumber(text, lambda _, token: 0 if is_journal_token(token) else None)


def is_journal_token(token: str) -> bool:
    """Tell whether a text in a placeholder is what a journal has; any other is somebody's text."""
    return _JOURNAL_TOKEN.fullmatch(token) is not None


def recounted(
    exchange: RecordedExchange,
    by: RecordedBy | None,
    number: int,
    after: Callable[[int, float], int],
    offset_ms: float = 0.0,
) -> RecordedExchange:
    """Return an exchange as another recording counts it, which began `offset_ms` earlier.

    `after` tells how many requests had arrived there, by how many had here and when.
    """

    def time(at_ms: float) -> float:
        return max(0.0, at_ms + offset_ms)

    response, ended_after = exchange.response, exchange.ended_after
    if response is not None:
        pieces = [Piece(raw, time(ms), after(count, ms)) for raw, ms, count in response.pieces]
        response = replace(response, pieces=tuple(pieces))
    return replace(
        exchange,
        number=number,
        response=response,
        started_ms=time(exchange.started_ms),
        ended_ms=time(exchange.ended_ms),
        ended_after=None if ended_after is None else after(ended_after, exchange.ended_ms),
        recorded_by=by,
    )


# The ends of exchanges, by their facts in arrival order


def ends_of(facts: Mapping[int, ExchangeFacts]) -> dict[int, Moment]:
    """Return when each exchange was over.

    That is the end of its response, or, where the response to the request came on another stream of
    its session, that moment.
    """
    waiting: dict[tuple[str, str], deque[Moment]] = {}
    for each in facts.values():
        for identity, moment in each.responses:
            waiting.setdefault((each.session, identity), deque()).append(moment)
    ends: dict[int, Moment] = {}
    for number, each in facts.items():
        ends[number] = each.ended
        if each.request_id is not None and not each.is_answered:
            moments = waiting.get((each.session, each.request_id), deque())
            while moments and moments[0].after < number:
                moments.popleft()
            if moments:
                ends[number] = moments.popleft()
    return ends


def ended_with_session(facts: Mapping[int, ExchangeFacts]) -> dict[int, int]:
    """Return the listening streams that ended with their session, and the DELETE that ended it.

    Where nothing else came after its client left a stream, who closed it first is chance. One that
    the server ended before the DELETE was let go.
    """
    deletes: dict[str, int] = {}
    last: dict[str, int] = {}
    for number, each in facts.items():
        if each.ends_session:
            deletes.setdefault(each.session, number)
        elif each.session not in deletes:
            last[each.session] = number
    return {
        number: deletes[each.session]
        for number, each in facts.items()
        if each.listens
        and each.session != NO_SESSION
        and each.session in deletes
        and last.get(each.session, 0) <= each.ended.after
        and (each.is_left or each.ended.after >= deletes[each.session])
    }


def streams_of_closing(facts: Mapping[int, ExchangeFacts]) -> list[int]:
    """Return the streams that clients tried to open or to resume while they ended their session.

    Whether a client comes back before its DELETE, after it, or not at all is chance.
    """
    ended = {each.session for each in facts.values() if each.ends_session} - {NO_SESSION}
    last: dict[str, int] = {}
    sought: set[str] = set()
    again: list[int] = []
    for number, each in facts.items():
        if each.session not in ended or each.ends_session:
            continue
        comes_back = each.resumes is not None and facts[each.resumes].is_answered
        if not (each.seeks_stream or comes_back):
            last[each.session] = number
        elif comes_back or each.session in sought:
            again.append(number)
        else:
            sought.add(each.session)
    return [
        number
        for number in again
        if facts[number].is_silent and number > last.get(facts[number].session, 0)
    ]
