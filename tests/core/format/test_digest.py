from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from builders import (
    STREAM_HEADERS,
    Answer,
    conversation,
    encode_cassette,
    get,
    post,
    progress,
    retry,
    sse,
    tool,
)
from hypothesis import given
from hypothesis import strategies as st
from messages import NO, YES, asks, text
from pushed_cassettes import branched

from mrtr_cassette.core.exchange.recorded import Cassette
from mrtr_cassette.core.format.digest import exchange_sha256
from mrtr_cassette.core.format.dump import dump
from mrtr_cassette.core.format.load import load
from mrtr_cassette.core.wire.http import End, Piece, Request, Response
from mrtr_cassette.errors import CassetteError

CALL = tool("deploy", env="prod")
STATE = "S" * 30
TALK = (
    (CALL, asks("ok", state=STATE)),
    (post(retry(CALL, {"ok": YES}, state=STATE), ("Accept", "a"), ("Accept", "b")), text("done")),
    (retry(CALL, {"ok": NO}, state=STATE), text("left")),
    (
        retry(CALL, {"ok": YES}, state="T" * 30),
        Answer((sse(progress(1)), b": \xff"), STREAM_HEADERS),
    ),
    (get("/mcp?a=1"), Answer((b"\xff", b"x"), end=End.BROKEN)),
    (tool("gone"), Answer((), status=0, end=End.OPEN)),
)


def written(*script: Any) -> bytes:
    """Return the file of a talk."""
    return dump(load(encode_cassette(conversation(*script, redacts=True).cassette()), "f"))


def values(cassette: Cassette) -> Any:
    """Return what was exchanged."""
    return [
        (
            each.request,
            response and (response.status, response.headers, response.body, response.end),
        )
        for interaction in cassette.interactions
        for each in interaction.exchanges
        for response in [each.response]
    ]


FILE = written(*TALK)
SMALL = written((CALL, text("done")))
KNOWN = {FILE: values(load(FILE, "f")), SMALL: values(load(SMALL, "f"))}


def check_flip(data: bytes, at: int, bit: int) -> None:
    """Check that a flipped bit is an error, or changes nothing that is loaded."""
    damaged = bytearray(data)
    damaged[at] ^= 1 << bit
    try:
        cassette = load(bytes(damaged), "f")
    except CassetteError:
        return
    assert values(cassette) == KNOWN[data]


@pytest.mark.parametrize("bit", range(8))
def test_no_flipped_bit_of_a_small_cassette_goes_unnoticed(bit: int) -> None:
    """Each bit of a file counts, or changes nothing that was exchanged."""
    for at in range(len(SMALL)):
        check_flip(SMALL, at, bit)


@given(st.integers(0, len(FILE) - 1), st.integers(0, 7))
def test_no_flipped_bit_goes_unnoticed(at: int, bit: int) -> None:
    """So it is with branches, orphans, streams, lists of headers and every form of a body."""
    check_flip(FILE, at, bit)


def by_the_book(tree: dict[str, Any]) -> Iterator[str]:
    """Yield the digests as docs/cassette-format.md says how to compute them, by its words alone."""

    def netstring(raw: bytes) -> bytes:
        return str(len(raw)).encode() + b":" + raw + b","

    def headers(members: dict[str, Any]) -> bytes:
        pairs = [
            (name, value)
            for name, each in members.items()
            for value in (each if isinstance(each, list) else [each])
        ]
        return b"".join(
            netstring(name.encode()) + netstring(value.encode()) for name, value in pairs
        )

    def body(members: dict[str, Any]) -> bytes:
        value = members.get("body")
        return b"" if value is None else json.dumps(value, separators=(",", ":")).encode()

    for each in tree["recording"]["exchanges"]:
        interaction = tree["interactions"][each["interaction"] - 1]
        request, response = interaction["request"], interaction["response"]
        fields = [
            request["http"]["method"].encode(),
            request["http"]["path"].encode(),
            headers(request["http"]["headers"]),
            body(request),
            str(response["status"]).encode(),
            headers(response["headers"]),
            response.get("end", "").encode(),
            body(response),
        ]
        yield hashlib.sha256(b"".join(map(netstring, fields))).hexdigest()


def test_digests_are_those_that_the_description_of_the_format_gives() -> None:
    """Another program computes the same ones."""
    tree = json.loads(written((CALL, text("done")), (tool("other", n=1), text("too"))))
    digests = [each["sha256"] for each in tree["recording"]["exchanges"]]

    assert digests == list(by_the_book(tree))


REQUEST = Request("POST", "/mcp", (("a", "b"), ("c", "d")), b"body")
RESPONSE = Response(200, (("e", "f"),), (Piece(b"12", 0, 0), Piece(b"3", 0, 0)), End.COMPLETE)


@pytest.mark.parametrize(
    ("request_", "response"),
    [
        (Request("GET", "/mcp", REQUEST.headers, b"body"), RESPONSE),
        (Request("POST", "/mcpb", REQUEST.headers, b"ody"), RESPONSE),
        (Request("POST", "/mcp", (("a", "bc"), ("", "d")), b"body"), RESPONSE),
        (Request("POST", "/mcp", (("c", "d"), ("a", "b")), b"body"), RESPONSE),
        (Request("POST", "/mcp", (("a", "b"),), b"body"), RESPONSE),
        (REQUEST, None),
        (REQUEST, Response(201, RESPONSE.headers, RESPONSE.pieces, End.COMPLETE)),
        (REQUEST, Response(200, RESPONSE.headers, RESPONSE.pieces, End.OPEN)),
        (REQUEST, Response(200, RESPONSE.headers, RESPONSE.pieces[:1], End.COMPLETE)),
        (REQUEST, Response(200, (), RESPONSE.pieces, End.COMPLETE)),
    ],
)
def test_whatever_differs_gives_another_digest(
    request_: Request, response: Response | None
) -> None:
    """Nothing that was exchanged is left out, and no two fields can be mistaken for others."""
    assert exchange_sha256(request_, response) != exchange_sha256(REQUEST, RESPONSE)


def test_pieces_of_a_body_do_not_count() -> None:
    """Chunks are the network's; the digest is of the bytes."""
    joined = Response(200, RESPONSE.headers, (Piece(b"123", 5, 6),), End.COMPLETE)

    assert exchange_sha256(REQUEST, joined) == exchange_sha256(REQUEST, RESPONSE)


def test_edited_answer_is_named_by_its_number() -> None:
    """Which of several posted answers is another one is said."""
    tree = json.loads(dump(branched()))
    turn = tree["interactions"][1]["elicitation_turns"][0]
    turn["answer"]["responses"][0]["request"]["body"]["id"] = 9

    with pytest.raises(
        CassetteError, match="interaction 2, turn 1, answer 1: the sha256 of the ex"
    ):
        load(json.dumps(tree).encode(), "f")
