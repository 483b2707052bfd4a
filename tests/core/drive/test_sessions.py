from __future__ import annotations

from builders import JSON_HEADERS, Answer, answer, as_answer, notification, post, rpc, tool

from mrtr_cassette.core.drive.sessions import SessionOpening, Sessions
from mrtr_cassette.core.drive.unrecorded import Unrecorded
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.wire.http import End, Headers, Piece, Request, Response
from mrtr_cassette.core.wire.lines import line_request

SESSION = "Mcp-Session-Id"
RECORDED, LIVE = "mrtr-session:1", "live-session"
INITIALIZE = rpc("initialize", {"capabilities": {}})
INITIALIZED = notification("notifications/initialized")


def response(headers: Headers = ()) -> Response:
    """Return the recorded response to `initialize`."""
    return Response(200, headers, (Piece(b"{}", 0, 1),), End.COMPLETE)


def in_session(body: bytes, session: str = RECORDED) -> Request:
    """Return a request in a session."""
    return post(body, (SESSION, session))


def opened_sessions() -> Sessions:
    """Return sessions of which one was opened from the cassette."""
    sessions = Sessions(None)
    sessions.played(post(INITIALIZE), "initialize", response(((SESSION, RECORDED),)))
    sessions.played(in_session(INITIALIZED), "notifications/initialized", None)
    return sessions


def opening_of(sessions: Sessions) -> SessionOpening:
    """Return how a live session is opened for a call in the recorded one."""
    opening = sessions.opening_for(read_call(in_session(tool("a"))))
    assert isinstance(opening, SessionOpening)
    return opening


def respond(opening: SessionOpening, given: Answer) -> Unrecorded | None:
    """Send the next request, and let the live server respond."""
    observation = opening.next()
    assert observation is not None
    observation.response_started(given.status, given.headers)
    for chunk in given.chunks:
        observation.response_bytes(chunk, 0.0)
    observation.response_ended(0.0)
    opening.responded(observation)
    return opening.failure


OPENED = Answer((answer(INITIALIZE, {}),), (*JSON_HEADERS, (SESSION, LIVE)))


def test_session_is_opened_as_the_client_opened_the_recorded_one() -> None:
    """The client's own `initialize` goes to the server, then what followed, in the live session."""
    sessions = opened_sessions()
    opening = opening_of(sessions)

    assert respond(opening, OPENED) is None
    second = opening.next()
    assert second is not None
    assert second.call.request.body == INITIALIZED
    assert second.call.request.header("mcp-session-id") == LIVE
    second.response_started(202, ())
    second.response_ended(0.0)
    opening.responded(second)
    assert opening.failure is None
    assert opening.next() is None
    sessions.opened(opening)

    assert sessions.in_live(in_session(tool("a"))).header("mcp-session-id") == LIVE
    assert sessions.opening_for(read_call(in_session(tool("a")))) is None


def test_request_without_a_recorded_session_needs_no_opening() -> None:
    """A request outside of sessions, or in a live one, goes to the server as it is."""
    sessions = opened_sessions()

    for request in (post(tool("a")), in_session(tool("a"), "another")):
        assert sessions.opening_for(read_call(request)) is None
        assert sessions.in_live(request) == request


def test_session_of_a_pipe_stands_for_itself() -> None:
    """What the client says opens it: over pipes there are no ids to translate."""
    sessions = Sessions(None)
    call = read_call(line_request(tool("a"), RECORDED))
    assert sessions.opening_for(call) is None
    assert sessions.in_live(call.request) == call.request


def test_session_that_nobody_opened_here_is_refused() -> None:
    """Without the client's `initialize` no live session can stand for a recorded one."""
    failure = Sessions(None).opening_for(read_call(in_session(tool("a"))))

    assert isinstance(failure, Unrecorded)
    assert "this client has not opened it" in failure.detail


def test_answer_to_a_recorded_push_is_refused() -> None:
    """No live server asked what a recorded stream asked."""
    failure = opened_sessions().opening_for(read_call(in_session(answer(rpc("x"), {}))))

    assert isinstance(failure, Unrecorded)
    assert "no live server asked it" in failure.detail


def test_server_that_opens_no_session_is_told() -> None:
    """An error status or a JSON-RPC error says why."""
    refused = as_answer(INITIALIZE, b'{"jsonrpc":"2.0","id":1,"error":{"code":1}}')
    for given, outcome in (
        (Answer((b"x",), (), 500), "HTTP 500"),
        (refused, 'HTTP 200, error {"code":1}'),
    ):
        failure = respond(opening_of(opened_sessions()), given)
        assert failure is not None
        assert failure.detail == f"the live server opened no session: {outcome}"


def test_server_without_sessions_is_called_without_one() -> None:
    """A live server that gives no session id is called without that header."""
    sessions = opened_sessions()
    opening = opening_of(sessions)
    assert respond(opening, Answer((answer(INITIALIZE, {}),))) is None
    sessions.opened(opening)

    assert sessions.in_live(in_session(tool("a"))).header("mcp-session-id") == ""
