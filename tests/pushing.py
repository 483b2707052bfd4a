"""Sessions in which a server pushes requests, made by hand and made up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from builders import (
    ACCEPTED,
    Conversation,
    answer,
    cassette_of,
    get,
    loaded,
    notification,
    post,
    retry,
    tool,
    with_id,
)
from hypothesis import strategies as st
from messages import NO, YES, Json, asks, compact, form, message, result, text

from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    PostedAnswer,
    PushedRequest,
    PushedTurn,
    RecordedExchange,
    RecordedInteraction,
)
from mrtr_cassette.core.secrets.names import sealed_hash
from mrtr_cassette.core.wire.http import End, Request

SESSION = ("Mcp-Session-Id", "sess-0123456789abcdef")


def elicit(number: Json = "push-1", words: str = "Deploy?", **params: Json) -> bytes:
    """Return a pushed form elicitation, or another one with these params."""
    return compact(
        message("elicitation/create", {"message": words, **params}, id=number)
    )


def sample(number: Json = "push-2") -> bytes:
    """Return a pushed request for sampling."""
    return compact(
        message("sampling/createMessage", {"messages": [], "maxTokens": 9}, id=number)
    )


def roots(number: Json = "push-3") -> bytes:
    """Return a pushed request for roots."""
    return compact(message("roots/list", id=number))


def posted(pushed: bytes, value: Json) -> Request:
    """Return the request with the answer to a pushed request; an error is an exception's text."""
    number = json.loads(pushed)["id"]
    if isinstance(value, Exception):
        error = {"code": -1, "message": str(value)}
        return post(compact({"jsonrpc": "2.0", "id": number, "error": error}), SESSION)

    return post(compact(result(value, id=number)), SESSION)


def in_sealed_session(request: Request) -> Request:
    """Return a request as a client of a cassette has it that never was a file."""
    headers = [
        (name, sealed_hash(value) if name == SESSION[0] else value)
        for name, value in request.headers
    ]
    return replace(request, headers=tuple(headers))


def _in_session(request: bytes | Request) -> Request:
    return request if isinstance(request, Request) else post(request, SESSION)


class PushingSession:
    """A recording under way in which the server pushes requests."""

    def __init__(self) -> None:
        self.talk = Conversation()

    def open(self, request: bytes | Request) -> int:
        """Let a request arrive whose response is a stream; return its number."""
        return self.talk.stream(_in_session(request))

    def listen(self) -> int:
        """Let the GET of a listening stream arrive; return its number."""
        return self.open(get("/mcp", SESSION))

    def say(self, stream: int, *messages: bytes) -> None:
        """Let the server say something on a stream."""
        for said in messages:
            self.talk.event(stream, said)

    def post(self, request: bytes | Request, response: Json = ACCEPTED) -> int:
        """Let a request and its whole response arrive; return its number."""
        number = self.talk.request(_in_session(request))
        self.talk.response(number, response)
        return number

    def end(self, stream: int, *messages: bytes, how: End = End.COMPLETE) -> None:
        """Let a stream end, after these messages."""
        self.say(stream, *messages)
        self.talk.end(stream, how)

    def exchange(self, number: int) -> RecordedExchange:
        return next(
            exchange for exchange in self.talk.exchanges if exchange.number == number
        )

    def turn(
        self,
        pushed: dict[str, tuple[int, int]],
        answers: dict[str, int] | None = None,
        position: int = 0,
    ) -> PushedTurn:
        """Return a turn.

        Args:
            pushed: for each key, in which exchange and which of its pieces the request stands.
            answers: for each key, the exchange that answers it.
            position: index of the exchange that was pending meanwhile.
        """
        requests = [
            PushedRequest(key, self.exchange(number), piece)
            for key, (number, piece) in pushed.items()
        ]
        posted_answers = [
            PostedAnswer(key, self.exchange(number))
            for key, number in (answers or {}).items()
        ]
        return PushedTurn(position, tuple(requests), tuple(posted_answers))


def cassette_with(
    *interactions: tuple[Sequence[RecordedExchange], Sequence[PushedTurn]],
) -> Cassette:
    """Return a cassette of these interactions, each with its pushed turns."""
    recorded = []
    for number, (exchanges, turns) in enumerate(interactions, start=1):
        recorded.append(
            RecordedInteraction(number, tuple(exchanges), None, False, tuple(turns))
        )

    empty = loaded(cassette_of(), "talk.json")
    return replace(empty, interactions=tuple(recorded))


def asked_once(pushed: bytes, value: Json, call: bytes, done: Json) -> Cassette:
    """Return a cassette of one call in whose stream the server pushes one request."""
    session = PushingSession()
    number = session.open(call)
    session.say(number, pushed)
    posts = session.post(posted(pushed, value))
    session.end(number, answer(call, done))
    key = {"elicitation/create": "elicitation-1", "roots/list": "roots-1"}.get(
        json.loads(pushed)["method"], "sampling-1"
    )
    turn = session.turn({key: (number, 0)}, {key: posts})

    return cassette_with(([session.exchange(number)], [turn]))


def branched() -> Cassette:
    """Return a recording with every kind of pushed turn.

    A call is asked on its own stream and on a listening one, then by its result; a branch answers
    that in another way, and is asked once more.
    """
    call = tool("deploy", env="prod")
    again = retry(call, {"ok": YES})
    declined = retry(call, {"ok": NO})
    pushes = [
        compact({"jsonrpc": "2.0", "id": n, **form(f"question {n}")}) for n in range(5)
    ]
    session = PushingSession()
    stream = session.listen()
    asking = session.open(call)
    session.say(asking, pushes[2])
    session.say(stream, notification("notifications/x"), roots())
    session.post(posted(pushes[2], YES))
    session.post(posted(roots(), NO))
    session.end(asking, pushes[3], answer(call, asks("ok")))
    session.end(session.open(again), answer(again, text("done")))
    left = session.open(declined)
    session.say(left, pushes[4])
    session.post(posted(pushes[4], YES))
    session.end(left, answer(declined, text("left")))
    session.end(stream)

    return loaded(session.talk.cassette())


SCRIPTS = st.lists(
    st.tuples(
        st.sampled_from(["call", "listen", "push", "post", "end"]),
        st.sampled_from(["one-0123456789abcdef", "two-0123456789abcdef"]),
        st.integers(0, 5),
    ),
    max_size=30,
)
"""What happens, in which session, and to which of its streams or pushed requests."""


def pushed_to(session: PushingSession, stream: int) -> list[tuple[int, str]]:
    """Return what was pushed on a stream since this was asked last: to which exchange, as what."""
    return [
        (push.exchange_number, push.key)
        for push in session.talk.observation(stream).take_pushes()
    ]


def made_up(
    script: list[tuple[str, str, int]],
) -> tuple[Cassette, list[tuple[int, str]]]:
    """Return the cassette of a script, and what was pushed to whom as it was told live."""
    session = PushingSession()
    streams: dict[int, str] = {}
    live: list[tuple[int, str]] = []
    for step, name, pick in script:
        header = ("Mcp-Session-Id", name)
        numbers = [number for number, session in streams.items() if session == name]
        if step == "call":
            request = with_id(
                tool("deploy"), len(session.talk.exchanges) + len(streams) + 10
            )
            streams[session.open(post(request, header))] = name
        elif step == "listen":
            streams[session.open(get("/mcp", header))] = name
        elif step == "post":
            answered = posted(elicit(pick), YES)
            session.post(post(answered.body, header))
        elif numbers and step == "push":
            number = numbers[pick % len(numbers)]
            session.say(number, elicit(pick))
            live += pushed_to(session, number)
        elif numbers:
            number = numbers[pick % len(numbers)]
            del streams[number]
            session.end(number)

    for number in streams:
        session.end(number)

    return loaded(session.talk.cassette()), live
