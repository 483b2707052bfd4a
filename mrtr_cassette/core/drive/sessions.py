"""The recorded sessions (2025 era) of clients, and the live sessions in their place.

Source: MCP 2025-11-25, "Session Management".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from mrtr_cassette.core.drive.server_session import in_session, readable
from mrtr_cassette.core.drive.unrecorded import Unrecorded, has_error, outcome
from mrtr_cassette.core.protocol.calls import Call
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.record.open_pushes import OpenPush
from mrtr_cassette.core.record.recorder import Observation, Recorder
from mrtr_cassette.core.secrets.credentials import Credentials
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.surrogates import SESSION_SURROGATE
from mrtr_cassette.core.wire.http import SESSION_HEADER, End, Request, Response, header_value


class Sessions:
    """The sessions (2025 era) that a cassette opened for clients, and the live ones for them."""

    def __init__(self, redactor: Redactor | None, credentials: Credentials | None = None) -> None:
        """Begin without any; what a live server says is shown redacted."""
        self._new_recorder = partial(
            Recorder, seals=False, redactor=redactor, credentials=credentials
        )
        self._opening: dict[str, list[Request]] = {}
        self._live: dict[str, str] = {}

    def played(self, request: Request, method: str, response: Response | None) -> None:
        """Take a request that was played, as it may have opened a session.

        Args:
            request: the request.
            method: its JSON-RPC method.
            response: what was recorded for it.
        """
        if method == "initialize" and response is not None:
            given = request if request.is_line else response
            session = header_value(given.headers, SESSION_HEADER)
            if session:
                self._opening[session] = [request]
        elif method == "notifications/initialized":
            self._opening.get(request.header(SESSION_HEADER), []).append(request)

    def opening_for(self, call: Call) -> SessionOpening | Unrecorded | None:
        """Return how a live session is opened for a request; None where it needs none."""
        session = call.request.header(SESSION_HEADER)
        if not SESSION_SURROGATE.fullmatch(session) or session in self._live:
            return None
        if call.request.is_line and (session not in self._opening or call.method == "initialize"):
            # What the client says to it opens it, or it needs no opening (from 2026-07-28 on).
            self._live[session] = session
            return None
        if session not in self._opening:
            detail = "its session was recorded, and this client has not opened it with `initialize`"
            return Unrecorded(call, detail)
        if call.message is not None and call.message.kind is Kind.RESPONSE:
            detail = "it answers what was asked in a recorded stream, and no live server asked it"
            return Unrecorded(call, detail)
        return SessionOpening(call, session, self._opening[session], self._new_recorder())

    def opened(self, opening: SessionOpening) -> None:
        """Take a live session that has been opened."""
        session = opening.session
        if opening.is_on_pipe:
            session = opening.recorded_session
        self._live[opening.recorded_session] = session

    def in_live(self, request: Request) -> Request:
        """Return a request in the live session, where it is in a recorded one."""
        live = self._live.get(request.header(SESSION_HEADER))
        return request if live is None else in_session(request, live)


class SessionOpening:
    """One session of the cassette, opened again with the live server.

    Attributes:
        recorded_session: the session id that the client has.
        session: the live one; empty where the server gave none.
        is_on_pipe: the server is on pipes, and gives no session ids.
        failure: why no session could be opened, or None.
    """

    def __init__(
        self, call: Call, recorded_session: str, requests: Sequence[Request], recorder: Recorder
    ) -> None:
        """Begin with what the client sent to open its session."""
        self.recorded_session = recorded_session
        self.session = ""
        self.is_on_pipe = call.request.is_line
        self.failure: Unrecorded | None = None
        self._call = call
        self._unsent = list(requests)
        self._recorder = recorder

    def next(self) -> Observation | None:
        """Return the next request, to be shown its response; None where the session is open."""
        if self.is_over:
            return None
        request = in_session(self._unsent.pop(0), self.session)
        return self._recorder.request_received(readable(request), 0.0)

    @property
    def is_over(self) -> bool:
        """Whether there is nothing more to send."""
        return self.failure is not None or not self._unsent

    def pushed(self, _push: OpenPush) -> None:
        """Leave a request of the server unanswered: the client is asked in its own session."""

    def responded(self, observation: Observation) -> None:
        """Take the response to the last request."""
        exchange = observation.seal(End.COMPLETE, 0.0)
        status = 0 if exchange.response is None else exchange.response.status
        is_good = self.is_on_pipe or 200 <= status < 300
        if not is_good or has_error(exchange):
            detail = f"the live server opened no session: {outcome(exchange)}"
            self.failure = Unrecorded(self._call, detail)
        self.session = observation.session or self.session
