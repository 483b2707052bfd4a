"""Facts about one exchange that linking and ordering need.

What happened is counted in requests that had arrived; the clock only separates two things that
happened between the same two requests. Ids are spelled as clients compare them.
"""

from __future__ import annotations

from dataclasses import dataclass
from sys import intern
from typing import NamedTuple

from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.cassette.sessions import is_answered, listens, opened_session
from mrtr_cassette.core.protocol.calls import NO_SESSION, Call, session_of
from mrtr_cassette.core.protocol.jsonrpc import Kind, ask_in, completed_by
from mrtr_cassette.core.protocol.methods import GET_TASK, PING, TASK_STEPS
from mrtr_cassette.core.protocol.tasks import named_task, polled_state
from mrtr_cassette.core.secrets.names import sha256_of
from mrtr_cassette.core.wire.http import Piece, Response
from mrtr_cassette.core.wire.jsonbytes import canonical


class Moment(NamedTuple):
    """When something happened: how many requests had arrived, and milliseconds since the start."""

    after: int
    at_ms: float


NEVER = Moment(2**53, 0.0)


class Push(NamedTuple):
    """A request that the server sent on its own initiative."""

    id: str
    method: str
    piece: int
    """Index of the piece of the response that completes it."""
    moment: Moment


class TaskFacts(NamedTuple):
    """The task that a request polls, updates or cancels, by the hash of its id.

    `got` is the same for polls with the same result, and empty for a poll without a response.
    """

    sha256: str
    is_poll: bool = False
    got: str = ""
    is_over: bool = False


NO_TASK = TaskFacts("")


@dataclass(frozen=True, slots=True)
class ExchangeFacts:
    """Facts about one exchange."""

    session: str = NO_SESSION
    """The session's id, as written in the journal."""
    listens: bool = False
    """Its response carries messages that other requests caused."""
    request_id: str | None = None
    posted_id: str | None = None
    """Id of the JSON-RPC response that the client posted with this request."""
    pushes: tuple[Push, ...] = ()
    responses: tuple[tuple[str, Moment], ...] = ()
    """The id of each JSON-RPC response to another request, and when it came."""
    ended: Moment = NEVER
    """When the response ended; never if it only accepts the request, and the JSON-RPC response
    comes on a listening stream."""
    is_answered: bool = True
    """Its response contains the JSON-RPC response to the request."""
    resumes: int | None = None
    """Number of the call whose stream it resumes."""
    call: str = ""
    """The hash of its call key."""
    caller: str = ""
    """Session and client, as far as a request tells."""
    client: str = ""
    """The program that asks; it never answers an ask that another program received."""
    answered_keys: frozenset[str] | None = None
    """The keys of a retry's `inputResponses`; None if the request is not a retry."""
    echoed: str | None = None
    """Hash of the request state that it echoes."""
    asked_keys: frozenset[str] | None = None
    """The keys of an ask's `inputRequests`; None if the response is not an ask."""
    issued: tuple[str, ...] = ()
    """Hashes by which a retry may echo the state that the ask issued. An earlier cassette issues
    another state on replay than the server did."""
    asked: Moment = NEVER
    """When the ask was complete; only later requests can answer it."""
    creates_task: bool = False
    """The response creates a task; `issued` then has the hash of the task's id."""
    task: TaskFacts = NO_TASK


def facts_of(
    exchange: RecordedExchange, call: Call, resumes: int | None = None
) -> ExchangeFacts:
    """Return the facts about an exchange with this call, which may resume a call's stream."""
    response = exchange.response
    message = call.message
    request_id = None
    posted_id = None
    if message is not None and message.kind is Kind.REQUEST:
        request_id = message.same_id
    elif message is not None and message.kind is Kind.RESPONSE:
        posted_id = message.same_id
    answered_keys = None
    echoed = None
    if call.answers:
        answered_keys = frozenset(call.answers.input_responses or ())
        echoed = exchange.echoed_sha256
    issued: tuple[str, ...] = ()
    if exchange.issued_sha256 is not None:
        issued = (exchange.issued_sha256,)
    heard = _response_facts(call, response, is_resumption=resumes is not None)
    ended = Moment(exchange.ended_after or exchange.number or 0, exchange.ended_ms)
    has_response = heard.has_response
    if request_id is not None and response is not None and response.only_accepts:
        ended = NEVER
        has_response = False
    return ExchangeFacts(
        session=intern(session_of(exchange.request) or opened_session(response)),
        listens=heard.listens,
        request_id=request_id,
        posted_id=posted_id,
        pushes=heard.pushes,
        responses=heard.responses,
        ended=ended,
        is_answered=has_response,
        resumes=resumes,
        call=intern(sha256_of("\n".join(call.key()))),
        caller=intern(call.caller),
        client=intern(call.client),
        answered_keys=answered_keys,
        echoed=echoed,
        asked_keys=heard.asked_keys,
        issued=issued,
        asked=heard.asked,
        creates_task=exchange.created_task is not None,
        task=_task_of(exchange, call),
    )


class _ResponseFacts(NamedTuple):
    """Facts that only the response tells."""

    listens: bool = False
    pushes: tuple[Push, ...] = ()
    """The requests that the server pushed in it."""
    responses: tuple[tuple[str, Moment], ...] = ()
    """The responses to other requests than its own."""
    has_response: bool = True
    """It has the JSON-RPC response to its request, as far as it is a stream."""
    asked_keys: frozenset[str] | None = None
    asked: Moment = NEVER


def _response_facts(
    call: Call, response: Response | None, *, is_resumption: bool
) -> _ResponseFacts:
    if response is None:
        return _ResponseFacts(listens=not is_resumption and listens(call, None))
    ask = ask_in(call.message, response)
    if ask is not None:
        heard = _ResponseFacts(
            asked_keys=frozenset(ask.input_requests),
            asked=_moment_of(response.pieces[ask.piece]),
        )
    else:
        heard = _ResponseFacts(listens=not is_resumption and listens(call, response))
    if not response.is_framed:
        return heard
    is_shared = heard.listens or is_resumption
    pushes, responses = _stream_facts(response, is_shared=is_shared)
    return heard._replace(
        pushes=pushes, responses=responses, has_response=is_answered(response)
    )


def _task_of(exchange: RecordedExchange, call: Call) -> TaskFacts:
    identity = named_task(call.message) if call.method in TASK_STEPS else None
    if identity is None:
        return NO_TASK
    sha256 = exchange.echoed_sha256 or sha256_of(identity)
    is_poll = call.method == GET_TASK
    response = exchange.response
    if not is_poll or response is None:
        return TaskFacts(sha256, is_poll=is_poll)
    message = exchange.rpc_response
    state = polled_state(message)
    if state is None:
        error = None
        if message is not None:
            error = message.tree.get("error")
        got = f"{response.status} {canonical(error)}"
        is_over = False
    else:
        got = state.digest
        is_over = state.is_over
    # The id is another one in each recording.
    got = got.replace(canonical(identity)[1:-1], "<task>")
    return TaskFacts(sha256, is_poll=True, got=sha256_of(got), is_over=is_over)


def _moment_of(piece: Piece) -> Moment:
    return Moment(piece.after, piece.at_ms)


def _stream_facts(
    response: Response, *, is_shared: bool
) -> tuple[tuple[Push, ...], tuple[tuple[str, Moment], ...]]:
    """Return the requests that a stream pushes, and its responses to other requests than its own.

    It is shared if it carries what other requests caused.
    """
    pushes: list[Push] = []
    responses: list[tuple[str, Moment]] = []
    for index, piece in enumerate(response.pieces):
        # In the stream of a call, a message with an id and no method is the response to the call.
        is_of_interest = is_shared or b'"method"' in piece.raw
        if b'"id"' not in piece.raw or not is_of_interest:
            continue
        message = completed_by(response, index)
        if message is None or message.same_id is None:
            continue
        moment = _moment_of(piece)
        if message.kind is Kind.REQUEST and message.method != PING:
            pushes.append(
                Push(intern(message.same_id), intern(message.method), index, moment)
            )
        elif message.kind is Kind.RESPONSE and is_shared:
            responses.append((message.same_id, moment))
    return tuple(pushes), tuple(responses)
