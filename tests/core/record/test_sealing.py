from __future__ import annotations

import json
from dataclasses import replace
from urllib.parse import quote

import pytest
from builders import (
    JSON_HEADERS,
    STREAM_HEADERS,
    Answer,
    answer,
    changed,
    notification,
    post,
    response_of,
    retry,
    sse,
    stream,
    token_of,
    tool,
)
from messages import YES, asks, compact, text

from mrtr_cassette.core.record.sealing import (
    Unread,
    redacted,
    seal_event_ids,
    seal_states,
    unread_bodies,
    without_credentials,
)
from mrtr_cassette.core.secrets.credentials import Credentials
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.secrets.states import KnownStates
from mrtr_cassette.core.secrets.surrogates import sealed_hash
from mrtr_cassette.core.wire.http import End, Piece, Request, Response

CALL = tool("deploy", env="prod")
REQUEST = Request("POST", "/mcp", JSON_HEADERS, CALL)
STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"
ASK = answer(CALL, asks("a", state=STATE))
DONE = response_of(text("done"), CALL)
SECRET = "ghp_" + "a1B2c3D4e5" * 4
PLACED = f"<github:{token_of('github', SECRET)}>"


def known(*states: str) -> KnownStates:
    """Return states that were issued or echoed before."""
    made = KnownStates()
    for state in states:
        made.remember(state)
    return made


def sealed_response(response: Response, *states: str) -> Response:
    """Return the response to `CALL`, sealed."""
    return seal_states(post(CALL), response, known(*states))[1]


def sealed_request(request: Request, *states: str) -> Request:
    """Return a request, sealed."""
    return seal_states(request, DONE, known(*states))[0]


def test_exchange_without_states_stays_as_it_is() -> None:
    """Where no state is known and none is issued or echoed, there is nothing to seal."""
    states = known()
    request = post(CALL)

    sealed = seal_states(request, DONE, states)

    assert sealed[0] is request
    assert sealed[1] is DONE
    assert sealed[2] == []
    assert not len(states)


def test_states_of_both_sides_are_sealed_and_known() -> None:
    """The echoed and the issued state become hashes; the issued one is told."""
    states = known()
    following = f"{STATE}-2"
    request = post(retry(CALL, {"a": YES}, state=STATE))
    response = response_of(asks("b", state=following), request.body)

    sealed_request, sealed_response, issued = seal_states(request, response, states)

    assert sealed_request.body == request.body.replace(STATE.encode(), sealed_hash(STATE).encode())
    assert sealed_response.body == response.body.replace(
        following.encode(), sealed_hash(following).encode()
    )
    assert issued == [following]
    assert list(states) == [STATE, following]


def test_known_state_is_sealed_wherever_it_is_repeated() -> None:
    """A state that was issued before is sealed in a target, in headers and in other members."""
    request = Request(
        "POST", f"/mcp?s={quote(STATE)}", (*JSON_HEADERS, ("Mcp-Name", STATE)), tool("go", to=STATE)
    )
    response = response_of(
        Answer((answer(CALL, text(STATE)),), (*JSON_HEADERS, ("Location", f"/{STATE}"))), CALL
    )
    hashed = sealed_hash(STATE)

    request, response, issued = seal_states(request, response, known(STATE))

    assert hashed.removeprefix("sha256:") in request.target
    assert request.headers == (*JSON_HEADERS, ("Mcp-Name", hashed))
    assert json.loads(request.body)["params"]["arguments"] == {"to": hashed}
    assert response.headers == (*JSON_HEADERS, ("Location", f"/{hashed}"))
    assert response.body == answer(CALL, text(hashed))
    assert issued == []


def test_tampered_state_keeps_what_was_tampered() -> None:
    """A state that contains a known one has only that one replaced; else it is sealed whole."""
    tampered = f"{STATE}.tampered"

    def echoed(*states: str) -> str:
        request = sealed_request(post(retry(CALL, state=tampered)), *states)
        return str(json.loads(request.body)["params"]["requestState"])

    assert echoed(STATE) == f"{sealed_hash(STATE)}.tampered"
    assert echoed() == sealed_hash(tampered)
    assert echoed(STATE, tampered) == sealed_hash(tampered)


def test_short_state_is_sealed_in_its_place_only() -> None:
    """A short state may be an ordinary word elsewhere."""
    request = sealed_request(
        post(changed(retry(CALL, state="step-1"), "params", "to", to="step-1"))
    )

    params = json.loads(request.body)["params"]
    assert (params["requestState"], params["to"]) == (sealed_hash("step-1"), "step-1")


def test_streamed_state_is_sealed_in_its_event() -> None:
    """Each event stays an event; those without states stay as they are."""
    progress = notification("notifications/progress", progressToken=1, progress=1)
    response = response_of(stream(progress, ASK, progress), CALL)

    sealed = sealed_response(response)

    assert [piece.raw for piece in sealed.pieces] == [
        sse(progress),
        sse(answer(CALL, asks("a", state=sealed_hash(STATE)))),
        sse(progress),
    ]
    assert [piece.at_ms for piece in sealed.pieces] == [0, 1, 2]


def test_known_state_is_sealed_in_each_event() -> None:
    """An event that repeats a known state has its hash; no other event changes."""
    says = notification("notifications/message", data=STATE)
    sealed = sealed_response(response_of(stream(says, CALL), CALL), STATE)

    assert [piece.raw for piece in sealed.pieces] == [
        sse(says.replace(STATE.encode(), sealed_hash(STATE).encode())),
        sse(CALL),
    ]


def test_states_that_a_stream_names_in_comments_are_none() -> None:
    """An event without data has no state, whatever its comment says."""
    comment = b': "requestState":"%s"\n\n' % STATE.encode()
    response = response_of(Answer((comment, sse(CALL)), STREAM_HEADERS), CALL)
    states = known()

    assert seal_states(post(CALL), response, states) == (post(CALL), response, [])
    assert not len(states)


def test_state_across_data_lines_has_no_place() -> None:
    """A state that two lines of an event share stands at no place of the body."""
    ask = ASK.replace(STATE[:9].encode(), STATE[:9].encode() + b"\ndata: ")
    response = response_of(Answer((b"data: " + ask + b"\n\n",), STREAM_HEADERS), CALL)

    _, sealed, issued = seal_states(post(CALL), response, known())

    assert sealed == response
    assert issued == []


@pytest.mark.parametrize("cut", [1, len(ASK) // 2, ASK.index(STATE.encode()) + 3, len(ASK) - 1])
def test_state_in_chunks_is_sealed_where_it_stands(cut: int) -> None:
    """A body keeps its chunks where only the state in its place is sealed."""
    response = response_of(Answer((ASK[:cut], ASK[cut:])), CALL)

    sealed = sealed_response(response)

    assert sealed.body == compact(json.loads(ASK)).replace(
        STATE.encode(), sealed_hash(STATE).encode()
    )
    assert len(sealed.pieces) == 2


def test_known_state_across_chunks_makes_one_piece() -> None:
    """What is repeated may stand across two chunks, so that a changed body is one, the last."""
    body = answer(CALL, text(STATE))
    response = response_of(Answer((body[:50], body[50:])), CALL)

    (piece,) = sealed_response(response, STATE).pieces

    assert (piece.raw, piece.at_ms) == (answer(CALL, text(sealed_hash(STATE))), 1)


def test_response_without_secrets_is_the_same() -> None:
    """Redaction keeps all pieces of a body that has no secret."""
    body = answer(CALL, text("done"))
    response = response_of(Answer((body[:9], body[9:])), CALL)

    assert redacted_response(response, Redactor(RedactionRules(), token_of)) == response


def redacted_response(response: Response, redactor: Redactor) -> Response:
    """Return a response to a request without secrets, redacted."""
    request, response = redacted(REQUEST, response, redactor)
    assert request is REQUEST
    return response


def test_secrets_of_a_response_become_placeholders() -> None:
    """Headers and a body are redacted; in a stream each event stays an event."""
    redactor = Redactor(RedactionRules(), token_of)
    body = answer(CALL, text(SECRET))
    cut = body.index(SECRET.encode()) + 7
    headers = (*JSON_HEADERS, ("Location", f"/{SECRET}"))

    response = response_of(Answer((body[:cut], body[cut:]), headers), CALL)
    whole = redacted_response(response, redactor)
    events = redacted_response(response_of(stream(body, CALL), CALL), redactor)

    assert [piece.raw for piece in whole.pieces] == [answer(CALL, text(PLACED))]
    assert whole.headers == (*JSON_HEADERS, ("Location", f"/{PLACED}"))
    assert [piece.raw for piece in events.pieces] == [sse(answer(CALL, text(PLACED))), sse(CALL)]


def test_response_that_only_looks_like_one_with_secrets_is_the_same() -> None:
    """A word that rules look for is no secret by itself."""
    body = answer(CALL, text("ghp_ and password: are what a secret begins with"))
    response = response_of(Answer((body[:9], body[9:])), CALL)
    redactor = Redactor(RedactionRules(), token_of)

    assert redacted_response(response, redactor) == response


def test_events_are_redacted_where_they_are_changed() -> None:
    """What has a secret in two of its events keeps all of them, each as one event."""
    redactor = Redactor(RedactionRules(), token_of)
    secret = answer(CALL, text(SECRET))
    events = redacted_response(response_of(stream(secret, CALL, secret), CALL), redactor)

    placed = sse(answer(CALL, text(PLACED)))
    assert [piece.raw for piece in events.pieces] == [placed, sse(CALL), placed]


def cut(raw: bytes, *headers: tuple[str, str], size: int = 7) -> Response:
    """Return a response with a body that came in pieces."""
    pieces = tuple(Piece(raw[at : at + size], at, 0) for at in range(0, len(raw), size))
    return Response(200, headers, pieces, End.COMPLETE)


def test_credentials_that_a_response_repeats_are_replaced() -> None:
    """Body and headers are searched; a response without any is the same one."""
    credentials = Credentials(Redactor(RedactionRules(), lambda _rule, _secret: "1"))
    credentials.seen((("Authorization", "Bearer kq7x-4711"),))
    repeating = cut(b"it is kq7x-4711", ("Location", "/kq7x-4711"))

    request, sealed = without_credentials(REQUEST, repeating, credentials)

    assert request is REQUEST
    assert sealed.body == b"it is <authorization:1>"
    assert sealed.headers == (("Location", "/<authorization:1>"),)
    assert without_credentials(REQUEST, DONE, credentials) == (REQUEST, DONE)


def test_bodies_that_cannot_be_read_are_known() -> None:
    """Each has a reason."""
    unread = b"\x00\xff\x00 and more"
    request, response = Request("POST", "/", (), unread), cut(unread)

    bodies = unread_bodies(request, response)

    assert bodies == [Unread("request", "it is no UTF-8"), Unread("response", "it is no UTF-8")]
    assert unread_bodies(post(CALL), DONE) == []


def test_ids_of_events_are_sealed() -> None:
    """Each id of an event becomes its hash, and no other byte; other bodies stay."""
    raw = b"id: a\r\ndata: id: b\r\n\r\n"
    pieces = tuple(Piece(each, 1.0, 1) for each in (raw, b"id:\ndata: x\n\n", b"id:c\n\n"))
    streamed = Response(200, (("Content-Type", "text/event-stream"),), pieces, End.COMPLETE)
    whole = replace(streamed, headers=())

    assert [piece.raw for piece in seal_event_ids(streamed).pieces] == [
        raw.replace(b"id: a", b"id: " + sealed_hash("a").encode()),
        b"id:\ndata: x\n\n",
        b"id:" + sealed_hash("c").encode() + b"\n\n",
    ]
    assert seal_event_ids(whole) is whole
    without = replace(streamed, pieces=pieces[1:2])
    assert seal_event_ids(without) is without
