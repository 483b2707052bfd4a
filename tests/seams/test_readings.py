"""What clients read is found, whatever its spelling and coding, or it is told and a miss."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, NamedTuple

import pytest
from builders import (
    JSON_HEADERS,
    Answer,
    Conversation,
    as_request,
    get,
    loaded,
    play,
    post,
    retry,
    sent_now,
    sse,
    tool,
)
from codings import packed_by_libraries
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp_types.jsonrpc import (
    JSONRPCNotification,
    JSONRPCRequest,
    jsonrpc_message_adapter,
)
from messages import Json, asks, compact, text
from pydantic import ValidationError

from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.record.sealing import ExchangeSealer
from mrtr_cassette.core.replay.deliveries import Play
from mrtr_cassette.core.replay.diagnosis import Miss, Reason
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.wire.http import Request
from mrtr_cassette.core.wire.sse import read_event

# How servers spell a response. Each takes the id of the request and a result, in which the text
# "WORD" stands for what is no JSON.


class Spelling(NamedTuple):
    """How a server writes a response, and whether it must be found there."""

    write: Callable[[Json, Json], bytes]
    is_read: bool = True


def message(identity: Json, result: Json) -> bytes:
    """Return a response as JSON."""
    return compact({"jsonrpc": "2.0", "id": identity, "result": result})


def retyped(identity: Json, result: Json) -> bytes:
    """Make a text of a number, and a number of a text."""
    if isinstance(identity, str) and identity.isdigit():
        return message(int(identity), result)

    return message(str(identity), result)


def with_word(word: bytes) -> Spelling:
    """Return how a server writes a response with something in it that is no JSON."""
    return Spelling(
        lambda identity, result: message(identity, result).replace(b'"WORD"', word)
    )


def around(before: bytes, after: bytes) -> Spelling:
    """Return how a server writes a response with something before and after it."""
    return Spelling(lambda identity, result: before + message(identity, result) + after)


def nested(levels: int) -> Spelling:
    """Return how a server writes a response that is nested deeply."""
    return with_word(b"[" * levels + b'{"id":"a\\"]"}' + b"]" * levels)


def unread(change: Callable[[bytes], bytes]) -> Spelling:
    """Return how a server writes what hardly a client reads, and nothing here does."""
    return Spelling(
        lambda identity, result: change(message(identity, result)), is_read=False
    )


SPELLINGS = {
    "plain": Spelling(message),
    "other type": Spelling(retyped),
    "decimal": Spelling(
        lambda identity, result: message(
            identity if isinstance(identity, str) else float(identity), result
        )
    ),
    "byte order mark": around(b"\xef\xbb\xbf", b""),
    "array": around(b"[", b"]"),
    "array with a comma": around(b" [ ", b" , ]"),
    "Latin-1": with_word(b'"caf\xe9 \xff"'),
    "NaN": with_word(b"NaN"),
    "Infinity": with_word(b'[Infinity,-Infinity,{"a":NaN}]'),
    "number": with_word(b"[01,+1,.5,0x1F]"),
    "trailing comma": with_word(b'{"a":[1,2,],}'),
    "NULs": around(b"\0", b"\0\0"),
    "control characters": with_word(b'"a\nb\x00\x1b"'),
    "comment": with_word(b'1 /* "id": 9 } */ // ]\n'),
    "garbage behind": around(b"", b'\n<!-- {"jsonrpc":"2.0"} -->'),
    "201 levels": nested(199),
    "5000 levels": nested(5000),
    "UTF-16": unread(lambda raw: raw.decode().encode("utf-16")),
    "quotes": unread(lambda raw: raw.replace(b'"', b"'")),
    "escape": unread(lambda raw: raw.replace(b'"WORD"', b'"a\\x20\\u12"')),
    "names": unread(lambda raw: re.sub(rb'"(\w+)":', rb"\1:", raw)),
    "JSON-RPC 1": unread(lambda raw: raw.replace(b'"jsonrpc":"2.0",', b"")),
}

# In which coding a body comes. Each takes the body, and returns the header's value and the bytes.


def raw_deflate(body: bytes) -> bytes:
    """Return a body in deflate without the header of zlib, as many servers send it."""
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


CODINGS: dict[str, Callable[[bytes], tuple[str, bytes]]] = {
    "none": lambda body: ("identity", body),
    "gzip": lambda body: ("gzip", gzip.compress(body)),
    "members": lambda body: ("gzip", gzip.compress(body[:9]) + gzip.compress(body[9:])),
    "deflate": lambda body: ("deflate", zlib.compress(body)),
    "raw deflate": lambda body: ("deflate", raw_deflate(body)),
    **{
        f"library {index}": lambda body, index=index: packed_by_libraries(body)[index]
        for index in range(len(packed_by_libraries(b"")))
    },
}
UNKNOWN: dict[str, Callable[[bytes], tuple[str, bytes]]] = {
    "unknown": lambda body: ("xyz", body[::-1]),
    "twice": lambda body: ("gzip, gzip", gzip.compress(gzip.compress(body))),
    "cut": lambda body: ("gzip", gzip.compress(body)[:-3]),
}

# How clients read. Each takes what a body decodes to, and returns the messages in it.


def of_python_sdk(raw: bytes) -> list[Any]:
    """Read as the official Python SDK does."""
    try:
        read = jsonrpc_message_adapter.validate_json(raw, by_name=False)
    except ValidationError:
        return []

    return (
        []
        if isinstance(read, JSONRPCRequest | JSONRPCNotification)
        else [read.model_dump()]
    )


def of_web(raw: bytes) -> list[Any]:
    """Read as `fetch` and `JSON.parse` do, and as the official TypeScript SDK takes arrays."""

    def refuse(word: str) -> None:
        raise ValueError(word)

    try:
        read = json.loads(raw.decode("utf-8-sig", "replace"), parse_constant=refuse)
    except (ValueError, RecursionError):
        return []

    return read if isinstance(read, list) else [read]


def of_python(raw: bytes) -> list[Any]:
    """Read as Python's `json` does."""
    try:
        read = json.loads(raw)
    except (ValueError, RecursionError):
        return []

    return read if isinstance(read, list) else [read]


def of_tolerant(raw: bytes) -> list[Any]:
    """Read as clients do that forgive trailing commas, comments, NULs, and what follows."""
    plain = raw.decode("utf-8-sig", "replace").strip("\0 \n")
    plain = re.sub(r"/\*.*?\*/|//[^\n]*\n|,(?=\s*[\]}])", "", plain)
    try:
        read, _ = json.JSONDecoder(strict=False).raw_decode(plain)
    except (ValueError, RecursionError):
        return []

    return read if isinstance(read, list) else [read]


READERS = (of_python_sdk, of_web, of_python, of_tolerant)


def correlated(identity: Json) -> Json:
    """Return an id as clients compare it, to whom `1` and `"1"` are the same."""
    try:
        return float(identity)
    except (TypeError, ValueError):
        return identity


def outcomes(body: bytes, identity: Json, *, is_stream: bool) -> list[Json]:
    """Return, for each client, the result that it finds for a request in a body; None for none."""
    texts: Iterable[bytes] = [body]
    if is_stream:
        texts = [
            read_event(event, first=False).data or b"" for event in body.split(b"\n\n")
        ]

    found: list[Json] = []
    for read in READERS:
        wanted = correlated(identity)
        responses = []
        for message_ in chain.from_iterable(map(read, texts)):
            if isinstance(message_, dict) and correlated(message_.get("id")) == wanted:
                responses.append(message_)

        # Not a number is no number that equals itself.
        found.append(repr(responses[0].get("result")) if responses else None)

    return found


identities = st.one_of(
    st.integers(0, 30), st.sampled_from(["0", "7", "a", "", "call-1", "1.5", 10**17])
)
LATIN = {"content": [{"type": "text", "text": "done"}], "extra": "WORD"}
STATE = "a-state-of-the-server-0123456789"


class Case(NamedTuple):
    """One response on the wire."""

    spelling: str
    coding: str
    is_stream: bool
    is_ask: bool


cases = st.builds(
    Case,
    st.sampled_from(sorted(SPELLINGS)),
    st.sampled_from([*CODINGS, *UNKNOWN]),
    st.booleans(),
    st.booleans(),
)


def answer_of(case: Case, identity: Json, result: Json) -> tuple[Answer, bytes]:
    """Return a server's response to a request, and what it decodes to."""
    body = SPELLINGS[case.spelling].write(identity, result)
    if case.is_stream:
        body = sse(body.replace(b"\n", b"\ndata: "))

    coding, packed = {**CODINGS, **UNKNOWN}[case.coding](body)
    kind = "text/event-stream" if case.is_stream else "application/json"
    headers = (("Content-Type", kind), ("Content-Encoding", coding))

    return Answer((packed,), headers), body


def with_id(body: bytes, identity: Json) -> bytes:
    """Return a request under another id."""
    return compact(json.loads(body) | {"id": identity})


@given(cases, identities, identities)
@settings(max_examples=150)
def test_client_finds_its_response_in_every_spelling_and_coding(
    case: Case, recorded_id: Json, caller_id: Json
) -> None:
    """A client that read the recorded response reads what is played, or gets a miss that was told."""
    call = with_id(tool("deploy"), recorded_id)
    result: Json = (
        {**asks("ok", state=STATE), "extra": "WORD"} if case.is_ask else LATIN
    )
    answer, body = answer_of(case, recorded_id, result)
    talk = Conversation()
    exchange = talk.exchange(call, answer)
    told = (
        ExchangeSealer(seals_states=False)
        .seal(exchange, read_call(as_request(call)))
        .unread
    )
    if case.is_ask:
        answered = with_id(retry(tool("deploy"), {"ok": True}, state=STATE), 99)
        talk.exchange(answered, text("done"))

    player = Player(loaded(talk.cassette()))

    got = player.request_received(as_request(with_id(call, caller_id)))

    is_read = SPELLINGS[case.spelling].is_read and case.coding not in UNKNOWN
    is_same = type(recorded_id) is type(caller_id) and recorded_id == caller_id
    if isinstance(got, Miss):
        assert not is_read
        assert not is_same
        assert told, "a client gets a miss for what nobody was told"
        assert got.reason is Reason.UNREADABLE

        return

    assert isinstance(got, Play)

    if is_same and not is_read:
        return

    played = sent_now(got)
    if case.is_ask:
        state = re.search(rb"mrtr-state:[0-9a-f:]+", played)

        assert state is not None, (
            "the ask is not recognised, so its state is not sealed"
        )

        played = played.replace(state[0], STATE.encode())
        answered = retry(tool("deploy"), {"ok": True}, state=state[0].decode())

        assert b"done" in play(player, answered)

    before = outcomes(body, recorded_id, is_stream=case.is_stream)
    after = outcomes(played, caller_id, is_stream=case.is_stream)
    for recorded, found in zip(before, after, strict=True):
        assert recorded in (None, found)


@pytest.mark.parametrize(
    ("request_", "is_told"),
    [
        (get("/items"), False),
        (post(b'{"client_name":"c"}', target="/register"), False),
        (post(b"grant_type=password", target="/token"), False),
        (post(tool("deploy")), True),
        (post(b"[%b]" % tool("deploy")), True),
    ],
)
def test_json_with_an_id_is_only_missed_where_a_message_is_awaited(
    request_: Request,
    is_told: bool,  # noqa: FBT001
) -> None:
    """A server of MCP also registers clients and gives out tokens: that is other JSON."""
    other_json = Answer((b'{"client_id":"c-1","items":[]}',), JSON_HEADERS)
    exchange = Conversation().exchange(request_, other_json)
    told = ExchangeSealer(seals_states=False).seal(exchange, read_call(request_)).unread

    assert bool(told) is is_told
