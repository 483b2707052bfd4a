"""What passed in the sessions of a recording, and when.

Rule: what has happened is counted in requests that had arrived; the clock only tells apart what
happened between two of them.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from sys import intern
from typing import NamedTuple

from mrtr_cassette.core.exchange.recorded import RecordedExchange
from mrtr_cassette.core.exchange.sessions import (
    NO_SESSION,
    ends_session,
    is_answered,
    listens,
    opened_session,
    session_of,
)
from mrtr_cassette.core.protocol.calls import Call
from mrtr_cassette.core.protocol.jsonrpc import Kind, Message
from mrtr_cassette.core.protocol.messages import completed_by
from mrtr_cassette.core.secrets.placeholders import renumber
from mrtr_cassette.core.secrets.surrogates import SEALED_HASH
from mrtr_cassette.core.wire.http import EVENT_STREAM, End, Request, Response
from mrtr_cassette.core.wire.lines import opens_channel

_LONGEST_TEXT = 200
_CUT_HASH = re.compile(r"(?:<[^<>]*|sha256(?::|%3A)[0-9a-f]*)\Z")
_JOURNAL_TOKEN = re.compile("[0-9a-f]{24}")


class Moment(NamedTuple):
    """When something happened.

    Attributes:
        after: how many requests had arrived by then.
        at_ms: milliseconds since the recording began.
    """

    after: int
    at_ms: float


NEVER = Moment(2**53, 0.0)


class Push(NamedTuple):
    """A request that the server sent of itself.

    Attributes:
        id: canonical text of its id.
        method: what it asks for.
        piece: index of the piece of the response that completes it.
        moment: when it had arrived.
    """

    id: str
    method: str
    piece: int
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
_RANKS = {"initialize": Rank.INITIALIZE, "notifications/initialized": Rank.INITIALIZED}


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """What is to know of an exchange in its session.

    Attributes:
        session: the session's id, as the journal has it.
        text: the beginning of its call key, without what every recording has anew.
        rank: which place in its session the request has.
        request_id: canonical text of the id of the request; None for anything else.
        posted_id: canonical text of the id of the JSON-RPC response that the request is, or None.
        pushes: the requests in its response.
        responses: the id of each JSON-RPC response to another request, and when it came.
        ended: when the response ended, or the call whose stream it resumes; never where it says no
            more than that the request has arrived, and the response comes on a listening stream.
        is_answered: its response has the response to the request.
        resumes: number of the call whose stream it resumes, or None.
        ends_session: it is a DELETE, which was not refused.
        seeks_stream: it is a GET of a listening stream.
        is_silent: its response, if there is any, has no message of a server that lets it listen.
        is_left: its client left its response.
    """

    session: str
    text: str
    rank: Rank
    request_id: str | None
    posted_id: str | None
    pushes: tuple[Push, ...]
    responses: tuple[tuple[str, Moment], ...]
    ended: Moment
    is_answered: bool
    resumes: int | None = None
    ends_session: bool = False
    seeks_stream: bool = False
    is_silent: bool = False
    is_left: bool = False

    @property
    def listens(self) -> bool:
        """Whether its response tells what other requests caused."""
        return self.rank in _LISTENING


def session_facts(
    exchange: RecordedExchange, call: Call, key: str, *, asks: bool, resumes: int | None = None
) -> SessionFacts:
    """Return what is to know of an exchange, which has a number, in its session.

    Args:
        exchange: the exchange.
        call: its request, read.
        key: the text of its call key.
        asks: its response is an input-required result.
        resumes: number of the call whose stream it resumes, or None.
    """
    response, message = exchange.response, call.message
    session = session_of(exchange.request)
    opened = NO_SESSION if session else opened_session(response)
    is_of_call = asks or resumes is not None
    rank = Rank.CALL if is_of_call else _rank_of(call, response, opens=bool(opened))
    has_others = rank in _LISTENING or resumes is not None
    pushes: list[Push] = []
    responses: list[tuple[str, Moment]] = []
    for piece, moment, came in _messages(response, has_others=has_others):
        if came.kind is Kind.RESPONSE and has_others:
            responses.append((came.id or "", moment))
        elif came.kind is Kind.REQUEST:
            pushes.append(Push(intern(came.id or ""), intern(came.method), piece, moment))
    kind = None if message is None else message.kind
    identity = "" if message is None else message.id
    is_request = kind is Kind.REQUEST
    ended = _ended(exchange) if resumes is None or not responses else responses[-1][1]
    is_accepted = is_request and response is not None and response.only_accepts
    return SessionFacts(
        session=intern(session or opened),
        text=_beginning_of(key),
        rank=rank,
        request_id=identity if is_request else None,
        posted_id=identity if kind is Kind.RESPONSE else None,
        pushes=tuple(pushes),
        responses=tuple(responses),
        ended=NEVER if is_accepted else ended,
        is_answered=not is_accepted and (response is None or _has_answer(response)),
        resumes=resumes,
        ends_session=ends_session(exchange.request, response),
        seeks_stream=resumes is None and seeks_stream(exchange.request),
        is_silent=_is_silent(response),
        is_left=response is not None and response.end is End.OPEN,
    )


def seeks_stream(request: Request) -> bool:
    """Tell whether a request asks for a listening stream."""
    return request.method == "GET" and EVENT_STREAM in request.header("accept")


def _is_silent(response: Response | None) -> bool:
    if response is None or not response.is_event_stream:
        return response is None or response.status >= 400
    return not any(b"jsonrpc" in piece.raw for piece in response.pieces)


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
    return renumber(text, without_token)


def without_token(_rule: str, token: str) -> int | None:
    """Return one number for all secrets of a journal; None for what is none."""
    return 0 if is_journal_token(token) else None


def is_journal_token(token: str) -> bool:
    """Tell whether a text in a placeholder is what a journal has; any other is somebody's text."""
    return _JOURNAL_TOKEN.fullmatch(token) is not None


def _rank_of(call: Call, response: Response | None, *, opens: bool) -> Rank:
    if listens(call, response):
        return Rank.OPENING_STREAM if opens or opens_channel(call.request) else Rank.LISTENING
    return _RANKS.get(call.method, Rank.CALL)


def _messages(
    response: Response | None, *, has_others: bool
) -> Iterator[tuple[int, Moment, Message]]:
    """Yield the messages of an event stream that have an id, with their piece and its moment."""
    if response is None or not response.is_framed:
        return
    for index, piece in enumerate(response.pieces):
        # On the stream of a call, what has an id and no method is the response to the call.
        if b'"id"' in piece.raw and (has_others or b'"method"' in piece.raw):
            message = completed_by(response, index)
            if message is not None and message.id is not None:
                yield index, Moment(piece.after, piece.at_ms), message


def _has_answer(response: Response) -> bool:
    """Tell whether a response has the response to its request; what is no stream is that."""
    return not response.is_framed or is_answered(response)


def _ended(exchange: RecordedExchange) -> Moment:
    after = exchange.ended_after
    if after is None:
        # Older journals lack it.
        pieces = () if exchange.response is None else exchange.response.pieces
        after = pieces[-1].after if pieces else exchange.number or 0
    return Moment(after, exchange.ended_ms)


def ends_of(facts: Mapping[int, SessionFacts]) -> dict[int, Moment]:
    """Return when each exchange was over.

    That is the end of its response, or, where the response to the request came on another stream of
    its session, that moment.

    Args:
        facts: by number, in arrival order.
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


def ended_with_session(facts: Mapping[int, SessionFacts]) -> dict[int, int]:
    """Return the listening streams that ended with their session, and the DELETE that ended it.

    Where nothing but the DELETE came after its client left a stream, client and server were
    closing, and which of them was the first to close the stream is chance. One that the server
    ended before the DELETE was let go.

    Args:
        facts: by number, in arrival order.
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


def streams_of_closing(facts: Mapping[int, SessionFacts]) -> set[int]:
    """Return the streams that clients tried to open or to resume while they ended their session.

    Whether a client comes back before its DELETE, after it, or not at all is chance.

    Args:
        facts: by number, in arrival order.
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
    return {
        number
        for number in again
        if facts[number].is_silent and number > last.get(facts[number].session, 0)
    }
