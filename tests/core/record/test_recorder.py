from __future__ import annotations

import gzip
import json
import zlib
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from urllib.parse import quote

import pytest
from builders import (
    JSON_HEADERS,
    STREAM_HEADERS,
    Answer,
    Conversation,
    answer,
    changed,
    conversation,
    exchange,
    get,
    notification,
    post,
    progress,
    refusal,
    retry,
    rpc,
    sse,
    stream,
    token_of,
    tool,
)
from hypothesis import given
from hypothesis import strategies as st
from messages import YES, asks, compact, text

from mrtr_cassette.core.protocol.dialect import ECHOED_STATE_PATH
from mrtr_cassette.core.record.recorder import Observation, Recorder
from mrtr_cassette.core.record.sealing import ExchangeSealer
from mrtr_cassette.core.secrets.credentials import UserSettings
from mrtr_cassette.core.secrets.names import sealed_hash, sha256_of
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.wire.http import End, Headers, Request

CALL = tool("deploy", env="prod")
STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"
DONE = answer(CALL, text("done"))
PACKED = gzip.compress(DONE, mtime=0)


def observing(request: bytes, headers: Headers, status: int = 200) -> Observation:
    """Return what is seen of an exchange whose response has begun."""
    observation = Recorder(ExchangeSealer(seals_states=True)).request_received(
        post(request), 1.0
    )
    observation.response_started(status, headers)
    return observation


def state_of(body: bytes) -> str:
    """Return the state that a retry carries."""
    inner = json.loads(body)
    for step in ECHOED_STATE_PATH:
        inner = inner[step]

    return str(inner)


def test_body_of_known_length_is_one_piece() -> None:
    """Where the length was announced, chunks are the network's and not the server's."""
    length = ("Content-Length", str(len(DONE)))
    recorded = exchange(CALL, Answer((DONE[:9], DONE[9:]), (*JSON_HEADERS, length)))

    (piece,) = recorded.response.pieces

    assert (piece.raw, piece.at_ms) == (DONE, 3.0)


@pytest.mark.parametrize(
    ("headers", "chunks", "answered"),
    [
        ((("Content-Length", "4"),), [b"ab", b"cd"], [False, True]),
        ((("content-length", "4"),), [b"abcdef"], [True]),
        ((("content-length", "4"),), [b"abc", b"d"], [False, True]),
        ((), [b"ab", b"cd"], [False, False]),
        ((("Content-Length", "four"),), [b"abcd"], [False]),
        ((("Content-Length", "4"), ("Content-Length", "4")), [b"abcd"], [False]),
        (
            STREAM_HEADERS,
            [sse(progress(1)), sse(DONE), sse(progress(1))],
            [False, True, True],
        ),
        (STREAM_HEADERS, [sse(DONE)[:-1], b"\n"], [False, True]),
        (STREAM_HEADERS, [sse(DONE.replace(b'"id":1', b'"id":2'))], [False]),
        (
            STREAM_HEADERS,
            [sse(rpc("elicitation/create", {"result": 1}, number=1))],
            [False],
        ),
        (STREAM_HEADERS, [sse(refusal(CALL)), b": ping\n\n"], [True, True]),
        (STREAM_HEADERS, [sse(b'{"result": junk'), b"data\n\n"], [False, False]),
    ],
)
def test_client_has_its_response_with_the_last_byte_of_it(
    headers: Headers, chunks: list[bytes], answered: list[bool]
) -> None:
    """A response is whole with its announced length, or with the event that answers."""
    observation = observing(CALL, headers)
    seen = []
    for chunk in chunks:
        observation.response_bytes(chunk, 2.0)
        seen.append(observation.is_answered)

    assert seen == answered


def test_compressed_response_that_becomes_too_large_is_kept_compressed() -> None:
    """A body that would become too large when decoded is kept as it came."""
    packed = gzip.compress(b"0" * 1_000)
    recorder = Recorder(ExchangeSealer(seals_states=True), largest_body=100)
    observation = recorder.request_received(post(CALL), 1.0)
    observation.response_started(200, (*JSON_HEADERS, ("Content-Encoding", "gzip")))
    observation.response_bytes(packed, 2.0)

    recorded = observation.seal(End.COMPLETE, 3.0)

    assert recorded.response.body == packed
    assert ("Content-Encoding", "gzip") in recorded.response.headers


@pytest.mark.parametrize("end", [End.OPEN, End.BROKEN])
def test_response_that_the_client_has_whole_is_complete(end: End) -> None:
    """Whatever cuts the connection later, a whole response is complete."""
    assert exchange(CALL, stream(DONE, end=end)).response.end is End.COMPLETE
    assert exchange(CALL, stream(progress(1), end=end)).response.end is end
    assert exchange(CALL, Answer((), end=end)).response.end is end


def test_id_of_an_event_is_sealed_in_a_session_only() -> None:
    """There it resumes a stream; elsewhere it stays as it is, and so does one that is named."""
    session = ("Mcp-Session-Id", "one")
    given = Answer((b"id: 7\ndata: " + DONE + b"\n\n",), STREAM_HEADERS)
    for headers, kept in (((), "7"), ((session,), sealed_hash("7"))):
        recorded = exchange(post(CALL, *headers), given)
        resumed = exchange(get("/mcp", *headers, ("Last-Event-ID", "7")), given).request

        assert recorded.response.body.startswith(f"id: {kept}\n".encode())
        assert resumed.header("last-event-id") == kept


@pytest.mark.parametrize(
    ("coding", "body", "kept", "shown"),
    [
        ("gzip", PACKED, DONE, None),
        ("deflate", zlib.compress(DONE), DONE, None),
        ("br", b"\x8b\x00", b"\x8b\x00", "br"),
        ("gzip", b"no gzip", b"no gzip", "gzip"),
        ("gzip", b"", b"", "gzip"),
        ("identity", DONE, DONE, "identity"),
    ],
)
def test_known_coding_is_kept_decoded(
    coding: str, body: bytes, kept: bytes, shown: str | None
) -> None:
    """A body is kept without a known coding; what can't be decoded is kept as it came."""
    headers = (*JSON_HEADERS, ("Content-Encoding", coding))
    chunks = tuple(body[at : at + 5] for at in range(0, len(body), 5))

    recorded = exchange(CALL, Answer(chunks, headers))

    assert recorded.response.body == kept
    assert dict(recorded.response.headers).get("Content-Encoding") == shown


def test_headers_are_kept_by_the_list_and_sessions_as_placeholders() -> None:
    """Unlisted headers and credentials are dropped, and session ids replaced by their hash."""
    secret = ("Authorization", "Bearer s3cret")
    session = ("Mcp-Session-Id", "s3ssion")
    recorded = exchange(
        post(CALL, secret, session, ("Accept", "a")),
        Answer(
            (DONE,),
            (*JSON_HEADERS, ("mcp-session-id", "s3ssion"), ("Set-Cookie", "s3cret")),
        ),
    )

    sealed = sealed_hash("s3ssion")

    assert recorded.request.headers == (
        *JSON_HEADERS,
        ("Authorization", ""),
        ("Mcp-Session-Id", sealed),
        ("Accept", "a"),
    )
    assert recorded.response.headers == (*JSON_HEADERS, ("mcp-session-id", sealed))


# Sealing


@pytest.mark.parametrize(
    "state", ["", "ok", '{"a": "\\"b\\""}', "é\u2028\ud800", "x" * 100_000]
)
def test_any_state_is_sealed_in_its_place(state: str) -> None:
    """Empty, short, quoted, odd and long states are all replaced, and nothing else is."""
    body = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "result": asks("k", state=state)}
    ).encode()
    plain = body.replace(
        json.dumps(state).encode(), b'"%s"' % sealed_hash(state).encode()
    )

    recorded = exchange(CALL, body)

    assert recorded.response.body == plain
    assert (recorded.issued_sha256, recorded.echoed_sha256) == (sha256_of(state), None)

    echo = retry(CALL, {"k": YES}, state="STATE").replace(
        b'"STATE"', json.dumps(state).encode()
    )
    again = exchange(echo, text("done"))

    assert state_of(again.request.body) == sealed_hash(state)
    assert (again.issued_sha256, again.echoed_sha256) == (None, sha256_of(state))


def test_state_with_something_added_keeps_what_was_added() -> None:
    """A tampered state that contains an issued one is sealed in part, so that it can be replayed."""
    talk = conversation(
        (CALL, asks("ok", state=STATE)),
        (retry(CALL, {"ok": YES}, state=STATE + "x"), refusal(CALL)),
    )

    tampered = talk.exchanges[1]

    assert state_of(tampered.request.body) == sealed_hash(STATE) + "x"
    assert tampered.echoed_sha256 == sha256_of(STATE + "x")


def test_issued_state_that_contains_an_earlier_one_is_sealed_whole() -> None:
    """A server may issue a state that begins with the one before; that is no tampering."""
    later = STATE + ".second-round"
    talk = conversation(
        (CALL, asks("a", state=STATE)),
        (retry(CALL, {"a": YES}, state=STATE), asks("b", state=later)),
        (
            retry(CALL, {"b": f"for {later}"}, state=later),
            text(f"got {later} and {STATE}"),
        ),
    )

    request = talk.exchanges[2].request
    response = talk.exchanges[2].response

    assert state_of(request.body) == sealed_hash(later)
    assert f"for {sealed_hash(later)}".encode() in request.body
    assert (
        f"got {sealed_hash(later)} and {sealed_hash(STATE)}".encode() in response.body
    )


@pytest.mark.parametrize("framed", [False, True], ids=["whole", "stream"])
def test_issued_state_that_has_an_earlier_one_as_a_member_is_sealed_whole(
    *, framed: bool
) -> None:
    """A state may be JSON in which the one before stands under `requestState`."""
    later = compact({"requestState": STATE, "rest": "known to nobody"}).decode()
    second = retry(CALL, {"a": YES}, state=STATE)
    ask = asks("b", state=later)
    talk = conversation(
        (CALL, asks("a", state=STATE)),
        (second, stream(answer(second, ask)) if framed else ask),
        (retry(CALL, {"b": YES}, state=later), text("done")),
    )

    issuing = talk.exchanges[1].response.body
    echoing = talk.exchanges[2].request.body

    assert b'"requestState":"%b"}' % sealed_hash(later).encode() in issuing
    assert state_of(echoing) == sealed_hash(later)
    assert b"known to nobody" not in issuing + echoing


def test_state_that_is_no_string_is_no_secret() -> None:
    """A state that no server can have issued is recorded as it was, with a hash."""
    body = changed(CALL, "params", "requestState", to=5)
    recorded = exchange(body, refusal(CALL))

    assert recorded.request.body == body
    assert recorded.echoed_sha256 not in {None, sha256_of("5")}


@pytest.mark.parametrize("end", list(End))
@pytest.mark.parametrize("lines", [False, True], ids=["one message", "lines"])
def test_state_is_sealed_once_however_the_response_ends(
    end: End,
    lines: bool,  # noqa: FBT001
) -> None:
    """A whole ask has the hash of its raw state, even where its end was lost or it is one of lines."""
    ask = answer(CALL, asks("ok", state=STATE))
    body = progress(1) + b"\n" + ask + b"\n" if lines else ask

    recorded = exchange(CALL, Answer((body,), end=end))

    assert recorded.response.body == body.replace(
        STATE.encode(), sealed_hash(STATE).encode()
    )
    assert recorded.issued_sha256 == sha256_of(STATE)


ODD_BODIES = [
    b'[{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"requestState":"%s"}}]',
    b'{"jsonrpc":"2.0","id":2,"method":"m"}\n{"params":{"requestState":"%s"}}\n',
    b'what follows is cut: {"requestState" : "%s',
]
"""What has a state and is no message that we read."""


@pytest.mark.parametrize("odd", ODD_BODIES)
@pytest.mark.parametrize("state", [STATE, "short"])
def test_state_in_what_is_no_message_is_sealed(odd: bytes, state: str) -> None:
    """Whatever stands under `requestState` is sealed, in requests, responses and events."""
    raw = odd % state.encode()
    sealed = odd % sealed_hash(state).encode()

    assert exchange(raw, b"x").request.body == sealed
    assert exchange(CALL, raw).response.body == sealed

    if b"\n" not in raw:
        assert exchange(CALL, stream(raw)).response.body == sse(sealed)


@pytest.mark.parametrize(
    "spell", [quote, partial(quote, safe=""), lambda text: quote(text).lower()]
)
@pytest.mark.parametrize(
    "state", ["eyJzdGVwIjoxfQ/c2lnbmF0dXJl+=", '{"step": "\u00e9/1", "of": "twenty"}']
)
def test_state_in_a_url_is_sealed(spell: Callable[[str], str], state: str) -> None:
    """A state that is repeated percent-encoded is sealed, in bodies, targets and headers."""
    url = f"/confirm?state={spell(state.lower())}&x=%20"
    state = state.lower()
    asked = asks("k", state=state)
    asked["inputRequests"]["k"]["params"]["url"] = f"https://example.com{url}"
    moved = Answer((b"",), (("Location", url),), 302)
    talk = conversation((CALL, asked), (get(url), moved))
    sealed = f"/confirm?state={sealed_hash(state).replace(':', '%3A')}&x=%20"

    ask, confirmed = talk.exchanges

    assert f'"https://example.com{sealed}"'.encode() in ask.response.body
    assert confirmed.request.target == sealed
    assert confirmed.response.headers == (("Location", sealed),)


@pytest.mark.parametrize("cut", [1, 2, 20])
@pytest.mark.parametrize("streams", [False, True])
def test_state_in_an_ask_that_broke_off_does_not_reach_the_disk(
    cut: int,
    streams: bool,  # noqa: FBT001
) -> None:
    """An ask that the upstream didn't finish is no ask, but its state is a secret all the same."""
    result = {
        "inputRequests": {},
        "requestState": STATE,
        "resultType": "input_required",
    }

    body = compact({"jsonrpc": "2.0", "id": 1, "result": result})
    headers = STREAM_HEADERS if streams else JSON_HEADERS
    raw = (b"data: " + body if streams else body)[:-cut]

    recorded = exchange(CALL, Answer((raw,), headers, end=End.BROKEN))

    assert STATE.encode() not in recorded.response.body


# Redacting

PASSWORD = "correct-horse-battery"
HIDDEN = f"<password:{token_of('password', PASSWORD)}>".encode()


def test_secrets_are_redacted_across_chunks_and_in_events() -> None:
    """A secret that arrived in two chunks is found, and events stay events."""
    body = answer(CALL, {"password": PASSWORD})
    at = body.index(b"horse")
    whole = exchange(CALL, Answer((body[:at], body[at:])), redacts=True)
    events = exchange(CALL, stream(progress(1), body), redacts=True)

    assert whole.response.body == body.replace(PASSWORD.encode(), HIDDEN)
    assert [piece.raw for piece in events.response.pieces] == [
        sse(progress(1)),
        sse(body.replace(PASSWORD.encode(), HIDDEN)),
    ]


ENCODED = b64encode(f"DB_PASSWORD={PASSWORD}-{PASSWORD}\n".encode())
EVENTS = st.sampled_from(
    [
        sse(progress(1)),
        sse(b'{"text":"password=%b"}' % PASSWORD.encode()),
        b'data: {"password":\r\ndata: "%b"}\r\n\r\n' % PASSWORD.encode(),
        b'data: {"password":"%b"}\r\r' % PASSWORD.encode(),
        b": password=%b\nid: 7\n\n" % PASSWORD.encode(),
        b'data: {"key":"-----BEGIN PRIVATE KEY-----\\nMIIEvQIBADANBgkqhkiG9w0B\n\n',
        b'data: {"key":"%b\n\n' % ENCODED,
        b"data: %b\n\nid: 7\ndata: and so on\n\n" % ENCODED.rstrip(b"="),
        b"id: 7\ndata: word\n\n",
    ]
)


@given(st.lists(EVENTS, min_size=2, max_size=5))
def test_each_event_is_redacted_as_if_it_were_alone(events: list[bytes]) -> None:
    """Whatever an event breaks off in, what is replaced does not go on in the next one."""
    redactor = Redactor(RedactionRules(), token_of)
    received = Answer(tuple(events), STREAM_HEADERS)

    received_pieces = exchange(CALL, received).response.pieces
    redacted_pieces = exchange(CALL, received, redacts=True).response.pieces

    for piece, redacted in zip(received_pieces, redacted_pieces, strict=True):
        assert redacted.raw == redactor.redacted_body(piece.raw, "text/event-stream")


def test_states_are_sealed_and_not_redacted() -> None:
    """A state under a telling name is a state all the same."""
    state = "Bearer " + "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJlLW9m"
    recorded = exchange(CALL, asks("k", state=state), redacts=True)

    assert json.loads(recorded.response.body)["result"]["requestState"] == sealed_hash(
        state
    )


@pytest.mark.parametrize(
    ("request_", "label"),
    [
        (tool("login", password=PASSWORD), 'tools/call "login"'),
        (get(f"/x?password={PASSWORD}"), "GET /x?password="),
        (get("/plain"), "GET /plain"),
    ],
)
def test_label_of_a_call_has_no_secret(request_: bytes | Request, label: str) -> None:
    """What a log calls a call is redacted."""
    for redacts in (True, False):
        talk = Conversation(redacts=redacts)
        found = talk.observation(talk.request(request_)).label

        assert found.startswith(label)
        assert PASSWORD not in found or not redacts


SESSION = "8c5ad7b0e1f24f6d9b3a"
ENDPOINT = b"event: endpoint\ndata: /messages?session_id=" + SESSION.encode() + b"\n\n"


@pytest.mark.parametrize("redacts", [False, True])
def test_log_has_no_secret_that_is_known(redacts: bool) -> None:  # noqa: FBT001
    """States and credentials that have passed are replaced, wherever a text repeats them."""
    talk = Conversation(redacts=redacts)
    recorder = talk.recorder
    talk.exchange(CALL, asks("a", state=STATE))
    token = "Zx81-qwertzuiop-4711"
    recorder.sealer.add_settings(
        UserSettings(headers=(("Authorization", f"Bearer {token}"),))
    )

    shown = recorder.sealer.loggable_text(f"{STATE} {token} \x1b[2J")

    assert STATE not in shown
    assert (token in shown) is not redacts
    assert "\x1b" not in shown


def test_session_that_the_url_of_a_stream_names_is_a_credential() -> None:
    """A server of HTTP+SSE gives its session in the first event, and nobody may read it."""
    for redacts in (True, False):
        talk = Conversation(redacts=redacts)
        stream_ = talk.stream(get("/sse"))
        talk.observation(stream_).response_bytes(ENDPOINT, 1.0)

        assert (
            SESSION in talk.recorder.sealer.loggable_text(f"session {SESSION}")
        ) is not redacts


@pytest.mark.parametrize(
    ("request_", "status", "headers", "acknowledges"),
    [
        (CALL, 202, (), True),
        (CALL, 200, JSON_HEADERS, False),
        (CALL, 202, STREAM_HEADERS, False),
        (notification("notifications/x"), 202, (), True),
        (notification("notifications/x"), 204, (), True),
        (DONE, 200, (), True),
        (DONE, 200, STREAM_HEADERS, False),
    ],
)
def test_response_to_what_wants_none_acknowledges(
    request_: bytes,
    status: int,
    headers: Headers,
    acknowledges: bool,  # noqa: FBT001
) -> None:
    """Clients leave such a response without reading it; a result is none, nor is a stream."""
    assert observing(request_, headers, status).is_acknowledgement is acknowledges


JSON_STATE = '{"turn":1,"note":"a \\"quoted\\" word","signature":"abcdefghijkl"}'


@pytest.mark.parametrize(
    "state", [STATE, JSON_STATE, "MEUCIQDx/y+z==/with/slashes/in/it"]
)
@pytest.mark.parametrize(
    "repeat",
    [
        lambda state: Answer((f"no such state: {state}\n".encode(),), (), 400),
        lambda state: text(json.dumps({"got": state})),
        lambda state: Answer((answer(CALL, text(state)).replace(b"/", b"\\/"),)),
        lambda state: {"inputRequests": [], "requestState": state},
    ],
    ids=["plain text", "JSON in JSON", "escaped slashes", "half an ask"],
)
def test_no_spelling_of_a_state_reaches_the_disk(
    state: str, repeat: Callable[[str], object]
) -> None:
    """However a server repeats a state, it is sealed."""
    talk = conversation(
        (CALL, asks("k", state=state)),
        (retry(CALL, {"k": YES}, state=state), repeat(state)),
    )

    for recorded in talk.exchanges:
        kept = (
            (recorded.request.body + recorded.response.body).decode().replace("\\", "")
        )

        assert state.replace("\\", "") not in kept
