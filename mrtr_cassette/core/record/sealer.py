"""What an exchange becomes on its way to the disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

from mrtr_cassette.core.exchange.recorded import RecordedExchange
from mrtr_cassette.core.protocol.calls import Call
from mrtr_cassette.core.protocol.dialect import REQUEST_STATE, InputRequired, may_ask, recognise
from mrtr_cassette.core.protocol.messages import response_to
from mrtr_cassette.core.record.sealing import (
    Unread,
    redacted,
    seal_event_ids,
    seal_states,
    unread_bodies,
    without_credentials,
)
from mrtr_cassette.core.secrets.answers import seal_answers
from mrtr_cassette.core.secrets.credentials import Credentials
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.states import KnownStates
from mrtr_cassette.core.secrets.surrogates import sealed_hash, sha256_of
from mrtr_cassette.core.wire.http import (
    LAST_EVENT_ID_HEADER,
    SESSION_HEADER,
    Headers,
    Request,
    Response,
    kept_request_headers,
    kept_response_headers,
)

_IDS = (SESSION_HEADER, LAST_EVENT_ID_HEADER)


class Seen(NamedTuple):
    """An exchange as it passed: nothing has been taken out of it yet.

    Attributes:
        number: place of the request in arrival order, from 1.
        call: the request, read.
        response: what came of the response.
        has_begun: there is a response at all.
        is_paced: its pieces came when the server had them, and not as the network cut them.
        started_ms: when the request had arrived.
        ended_ms: the time of the end.
        ended_after: how many requests had arrived by then.
        continues: its response has only what came since it was written before.
    """

    number: int
    call: Call
    response: Response
    has_begun: bool
    is_paced: bool
    started_ms: float
    ended_ms: float
    ended_after: int
    continues: bool = False


class Sealed(NamedTuple):
    """An exchange ready for the disk.

    Attributes:
        exchange: the exchange.
        ask: what its response asks; None for a final response.
        unread: which of its bodies can't be read.
    """

    exchange: RecordedExchange
    ask: InputRequired | None
    unread: Sequence[Unread]


@dataclass(slots=True)
class Sealer:
    """Takes out of exchanges what must not reach the disk.

    Attributes:
        seals: raw states are replaced by their hash on the way to disk.
        redactor: replaces secrets on the way to disk.
        credentials: those that have passed, which are replaced wherever they are repeated.
        seals_answers: of what users answer only hashes reach the disk.
        kept_headers: lower-case names of headers of requests that are kept besides MCP's.
        known: the states that were issued or echoed.
    """

    seals: bool
    redactor: Redactor | None = None
    credentials: Credentials | None = None
    seals_answers: bool = False
    kept_headers: frozenset[str] = frozenset()
    known: KnownStates = field(default_factory=KnownStates)

    def seal(self, seen: Seen) -> Sealed:
        """Take out what must not reach the disk; the states are known from now on."""
        call, received = seen.call, seen.call.request
        headers = _kept_of_request(received.headers, self.kept_headers)
        request = Request(received.method, received.target, headers, received.body)
        response = seen.response if seen.is_paced else _joined(seen.response)
        unread = unread_bodies(received, response)
        response = seal_event_ids(response)
        answers = call.answers
        echoed = answers.request_state if answers is not None else None
        asks = may_ask(response.body)
        located = response_to(call.message, response) if asks else None
        result = located.message.tree.get("result") if located is not None else None
        issued = result.get(REQUEST_STATE) if isinstance(result, dict) else None
        if self.seals:
            request, response, states = seal_states(request, response, self.known)
            if located is None and states:
                # What was not understood, such as an ask that broke off, may issue one too.
                issued = states[0]
        if self.seals_answers:
            request = replace(request, body=seal_answers(request.body))
        if self.redactor is not None:
            request, response = redacted(request, response, self.redactor)
        if self.credentials is not None and len(self.credentials.known):
            request, response = without_credentials(request, response, self.credentials)
        exchange = RecordedExchange(
            number=seen.number,
            request=request,
            response=response if seen.has_begun else None,
            started_ms=seen.started_ms,
            ended_ms=seen.ended_ms,
            issued_sha256=sha256_of(issued) if isinstance(issued, str) else None,
            echoed_sha256=None if echoed is None else sha256_of(echoed),
            ended_after=seen.ended_after,
        )
        return Sealed(exchange, recognise(result), unread)


# Headers come again with call after call; what is kept of them is worked out once.


@lru_cache(maxsize=1024)
def _kept_of_request(headers: Headers, named: frozenset[str]) -> Headers:
    return _with_sealed_ids(kept_request_headers(headers, named))


@lru_cache(maxsize=1024)
def kept_of_response(headers: Headers) -> Headers:
    """Return the headers of a response that are kept."""
    return _with_sealed_ids(kept_response_headers(headers))


def _joined(response: Response) -> Response:
    if len(response.pieces) < 2:
        return response
    return replace(response, pieces=(response.pieces[-1]._replace(raw=response.body),))


def _with_sealed_ids(headers: Headers) -> Headers:
    return tuple(
        (name, sealed_hash(value) if name.lower() in _IDS else value) for name, value in headers
    )
