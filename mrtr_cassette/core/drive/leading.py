"""Leading a live server to the point where a recorded conversation stands.

A retry that isn't recorded answers an ask of the cassette, whose state no live server knows. So
the server is asked the same again first: the recorded conversation is had with it, from the first
request to the ask, and the retry goes on with the state that the server issued now.

Owns: what is sent for that, whether the server asks what was recorded, and why it can't be led.
Does not own: sending (`shell.appending`).
Rule: the retry is the client's own; only the request state in it is another one.
Source: MCP 2026-07-28, "Multi Round-Trip Requests": a retry is the original call with
`inputResponses` and `requestState`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from json.encoder import encode_basestring_ascii
from typing import Any

from mrtr_cassette.core.protocol.calls import Call, CallKey
from mrtr_cassette.core.protocol.dialect import (
    ECHOED_STATE_PATH,
    InputRequired,
    answers_text,
    write_retry,
)
from mrtr_cassette.core.protocol.jsonrpc import ID_PATH, Kind
from mrtr_cassette.core.protocol.messages import response_to
from mrtr_cassette.core.record.recorder import Observation, Recorder
from mrtr_cassette.core.replay.playable import Playable
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.secrets.answers import SEALED_ANSWER
from mrtr_cassette.core.secrets.placeholders import without_numbers
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.states import SHORTEST_SEARCHED
from mrtr_cassette.core.secrets.surrogates import (
    SESSION_SURROGATE,
    STATE_SURROGATE,
    reveal,
    sha256_of,
)
from mrtr_cassette.core.wire.http import SESSION_HEADER, End, Request, Response, header_value
from mrtr_cassette.core.wire.jsonbytes import (
    canonical,
    find_spans,
    parse,
    splice,
)
from mrtr_cassette.core.wire.pointers import (
    Difference,
    differences,
)
from mrtr_cassette.errors import shorten

_FIRST_SUCCESS = 200
_FIRST_REDIRECT = 300


@dataclass(frozen=True, slots=True)
class NotLed:
    """A request that could not be sent on, as the live server is not where the cassette is.

    Attributes:
        call: the request.
        detail: why, as a sentence.
        asker: the recorded exchange whose ask the server should have repeated, or None.
        differences: where the recorded ask and the live one differ, by JSON Pointer into the
            result.
    """

    call: Call
    detail: str
    asker: Playable | None = None
    differences: tuple[Difference, ...] = ()


class Leads:
    """Finds what a retry answers in a cassette.

    Attributes:
        redactor: redacts what the live server says, as what was recorded is.
    """

    def __init__(self, player: Player, redactor: Redactor | None) -> None:
        """Find the asks of a cassette.

        Args:
            player: what plays it.
            redactor: redacts what the live server says, as what was recorded is.
        """
        self._player = player
        self._asks: dict[str, list[Playable]] = {}
        self.redactor = redactor
        for own in player.interactions:
            for asker in own:
                if asker.ask is not None and asker.ask.request_state is not None:
                    self._asks.setdefault(asker.ask.request_state, []).append(asker)

    def lead_for(self, call: Call, shown: Call) -> Lead | NotLed | None:
        """Return how the server is led to the ask that a request answers.

        None stands for a request that can be sent as it is: one without state, or with a state
        that a server issued.

        Args:
            call: the request as it would be sent.
            shown: the same as it is matched, and as messages may show it.
        """
        answers = call.answers
        state = answers.request_state if answers is not None else None
        if state is None:
            return None
        # What a client adds to a state goes to the server too, to be refused there.
        within = [issued for issued in self._asks if _is_within(issued, state)]
        if within:
            key = self._player.key_of(shown)
            issued = max(within, key=len)
            askers = self._asks[issued]
            found = next((asker for asker in askers if asker.key == key), None)
            if found is None:
                detail = "its request state was recorded for another call"
                return NotLed(shown, detail, askers[0])
            return self._lead(call, shown, found, issued)
        if STATE_SURROGATE.search(state):
            return NotLed(shown, "its request state is of no ask in this cassette")
        return None

    def _lead(self, call: Call, shown: Call, asker: Playable, issued: str) -> Lead | NotLed:
        chain = _conversation(asker)
        problem = _problem_of(chain)
        if problem is not None:
            return NotLed(shown, problem, asker)
        return Lead(call, shown, chain, issued, self.redactor)


def _is_within(issued: str, state: str) -> bool:
    """Tell whether a state is a recorded one, with or without something added."""
    return issued == state or (len(issued) >= SHORTEST_SEARCHED and issued in state)


def _conversation(asker: Playable) -> list[Playable]:
    chain = [asker]
    while chain[0].parent is not None:
        chain.insert(0, chain[0].parent)
    return chain


def _problem_of(chain: Sequence[Playable]) -> str | None:
    """Return why a recorded conversation can't be had again, or None."""
    if chain[0].exchange.call.answers is not None:
        return "the recorded conversation begins with a retry whose ask was not recorded"
    for node in chain[1:]:
        answers = answers_text(node.exchange.request.body) or b""
        if SEALED_ANSWER.search(answers.decode("latin-1")):
            return f"the recorded answer of turn {node.turn} is sealed: only its hash is known"
        if _plain(answers) != answers:
            return f"the recorded answer of turn {node.turn} has redacted secrets"
    return None


def _plain(raw: bytes) -> bytes:
    """Return a JSON text in which placeholders tell the rule only."""
    return without_numbers(raw.decode("latin-1")).encode("latin-1")


class Lead:
    """One conversation of the cassette, had again with the live server up to an ask.

    Attributes:
        asker: the recorded exchange whose ask the retry answers.
        state: the request state that the live server issued last, or None.
        recorded_state: the one that the cassette has of the ask that the retry answers.
        states: for each ask with state so far, the live one and the recorded one.
    """

    def __init__(
        self,
        call: Call,
        shown: Call,
        chain: Sequence[Playable],
        issued: str,
        redactor: Redactor | None,
    ) -> None:
        """Begin with the first request of the chain, which ends on the ask.

        Args:
            call: the client's retry.
            shown: the same as messages may show it.
            chain: the recorded exchanges.
            issued: the request state that the ask has in the cassette.
            redactor: redacts what the server says, as what was recorded is.
        """
        self._call = call
        self._shown = shown
        self.asker = chain[-1]
        self.state: str | None = None
        self.recorded_state = issued
        self._chain = chain
        self._sent = 0
        self._recorder = Recorder(seals=True, redactor=redactor)
        self._recorded_by_hash: dict[str, str] = {}
        self.states: list[tuple[str, str]] = []

    def next(self) -> Observation | None:
        """Return the next request, to be shown its response; None where the server has asked all.

        It is the client's retry less what makes it one, with the answers that the cassette has.
        """
        if self._sent == len(self._chain):
            return None
        node = self._chain[self._sent]
        self._sent += 1
        request = self._call.request
        body = write_retry(request.body, answers_text(node.exchange.request.body), self.state)
        # The client uses its own id for the retry.
        identity = b'"mrtr-cassette-%d"' % self._sent
        body = splice(body, [(span, identity) for span in find_spans(body, [ID_PATH])[ID_PATH]])
        return self._recorder.request_received(_readable(_with_body(request, body)), 0.0)

    def responded(self, observation: Observation) -> NotLed | None:
        """Take the response to the last request; return what keeps the server from being led."""
        node = self._chain[self._sent - 1]
        exchange = observation.seal(End.COMPLETE, 0.0)
        ask = observation.ask
        turn = f"turn {node.turn + 1}"
        if ask is None:
            outcome = _outcome(observation.call, exchange.response)
            detail = f"the live server asks nothing in {turn}: {outcome}"
            return NotLed(self._shown, detail, node)
        self.state = ask.request_state
        recorded = node.ask.request_state if node.ask is not None else None
        if self.state is not None and recorded is not None:
            self._recorded_by_hash[sha256_of(self.state)] = recorded
            self.states.append((self.state, recorded))
        found = differences(
            _requests_of(node.exchange.call, node.exchange.response, {}),
            _requests_of(observation.call, exchange.response, self._recorded_by_hash),
            "/inputRequests",
        )
        if self.state is None and recorded is not None:
            found.append(Difference("/requestState", '"…"', None))
        if found:
            detail = f"the live server asks something else in {turn}"
            return NotLed(self._shown, detail, node, tuple(found))
        return None

    def retry(self) -> Request:
        """Return the client's retry with the live state in the place of the recorded one."""
        request = self._call.request
        replacements = []
        for span in find_spans(request.body, [ECHOED_STATE_PATH])[ECHOED_STATE_PATH]:
            value = parse(request.body[span.start : span.end])
            if isinstance(value, str):
                value = value.replace(self.recorded_state, self.state or "")
                replacements.append((span, encode_basestring_ascii(value).encode()))
        return _with_body(request, splice(request.body, replacements))


def _requests_of(call: Call, response: Response | None, recorded_by_hash: dict[str, str]) -> Any:
    """Return the `inputRequests` of an ask, comparable: without states and numbers of its own."""
    located = response_to(call.message, response) if response is not None else None
    if located is None:
        raise AssertionError("unreachable because only asks are compared")
    raw = _plain(reveal(located.message.raw, recorded_by_hash.get))
    return parse(raw)["result"].get("inputRequests")


class LiveAsks:
    """The asks without state that a live server has made in this run, and nobody has answered.

    Their answers could be taken for those to a recorded ask of the same call, which may have asked
    something else.
    """

    def __init__(self) -> None:
        """Begin without any."""
        self._open: dict[CallKey, list[frozenset[str]]] = {}

    def asked(self, call: Call, ask: InputRequired) -> None:
        """Take what a live server asked."""
        if ask.request_state is None:
            self._open.setdefault(call.key(), []).append(frozenset(ask.input_requests))

    def answered_by(self, call: Call) -> bool:
        """Tell whether a request may answer one of them, which is answered then."""
        answers = call.answers
        if answers is None or answers.request_state is not None:
            return False
        key = call.key()
        for asked in self._open.get(key, ()):
            if asked >= set(answers.input_responses or ()):
                self._open[key].remove(asked)
                return True
        return False


class Sessions:
    """The sessions (2025 era) that a cassette opened for clients, and the live ones for them."""

    def __init__(self, redactor: Redactor | None) -> None:
        """Begin without any; what a live server says is shown redacted."""
        self._redactor = redactor
        self._opening: dict[str, list[Request]] = {}
        self._live: dict[str, str] = {}

    def played(self, call: Call, response: Response | None) -> None:
        """Take a request that was played, as it may have opened a session."""
        method = call.message.method if call.message is not None else ""
        if method == "initialize" and response is not None:
            session = header_value(response.headers, SESSION_HEADER)
            if session:
                self._opening[session] = [call.request]
        elif method == "notifications/initialized":
            self._opening.get(call.request.header(SESSION_HEADER), []).append(call.request)

    def opening_for(self, call: Call) -> Opening | NotLed | None:
        """Return how a live session is opened for a request; None where it needs none."""
        session = call.request.header(SESSION_HEADER)
        if not SESSION_SURROGATE.fullmatch(session) or session in self._live:
            return None
        if session not in self._opening:
            detail = "its session was recorded, and this client has not opened it with `initialize`"
            return NotLed(call, detail)
        if call.message is not None and call.message.kind is Kind.RESPONSE:
            detail = "it answers what was asked in a recorded stream, and no live server asked it"
            return NotLed(call, detail)
        return Opening(call, session, self._opening[session], self._redactor)

    def opened(self, opening: Opening) -> None:
        """Take a live session that has been opened."""
        self._live[opening.recorded_session] = opening.session

    def in_live(self, request: Request) -> Request:
        """Return a request in the live session, where it is in a recorded one."""
        live = self._live.get(request.header(SESSION_HEADER))
        return request if live is None else _in_session(request, live)


class Opening:
    """One session of the cassette, opened again with the live server.

    Attributes:
        recorded_session: the session id that the client has.
        session: the live one; empty where the server gave none.
    """

    def __init__(
        self,
        call: Call,
        recorded_session: str,
        requests: Sequence[Request],
        redactor: Redactor | None,
    ) -> None:
        """Begin with what the client sent to open its session."""
        self.recorded_session = recorded_session
        self.session = ""
        self._call = call
        self._left = list(requests)
        self._recorder = Recorder(seals=False, redactor=redactor)

    def next(self) -> Observation | None:
        """Return the next request, to be shown its response; None where the session is open."""
        if not self._left:
            return None
        request = _in_session(self._left.pop(0), self.session)
        return self._recorder.request_received(_readable(request), 0.0)

    def responded(self, observation: Observation) -> NotLed | None:
        """Take the response to the last request; return why no session could be opened."""
        response = observation.seal(End.COMPLETE, 0.0).response
        is_success = response is not None and _FIRST_SUCCESS <= response.status < _FIRST_REDIRECT
        if not is_success or _error_in(observation.call, response):
            outcome = _outcome(observation.call, response)
            return NotLed(self._call, f"the live server opened no session: {outcome}")
        self.session = observation.session or self.session
        return None


def _in_session(request: Request, session: str) -> Request:
    kept = tuple(pair for pair in request.headers if pair[0].lower() != SESSION_HEADER)
    added = (("Mcp-Session-Id", session),) if session else ()
    return replace(request, headers=(*kept, *added))


def _error_in(call: Call, response: Response | None) -> Any:
    located = None if response is None else response_to(call.message, response)
    return located.message.tree.get("error") if located is not None else None


def _outcome(call: Call, response: Response | None) -> str:
    if response is None:
        return "no response"
    error = _error_in(call, response)
    text = f"HTTP {response.status}"
    return text if error is None else f"{text}, error {shorten(canonical(error))}"


def _readable(request: Request) -> Request:
    """Return a request whose response comes in no coding, as it is for us and not the client."""
    kept = tuple(pair for pair in request.headers if pair[0].lower() != "accept-encoding")
    return replace(request, headers=(*kept, ("Accept-Encoding", "identity")))


def _with_body(request: Request, body: bytes) -> Request:
    headers = tuple(pair for pair in request.headers if pair[0].lower() != "content-length")
    return replace(request, headers=headers, body=body)
