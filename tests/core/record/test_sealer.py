"""Facts about what an exchange becomes on its way to the disk."""

from __future__ import annotations

from builders import JSON_HEADERS, answer, post, token_of, tool
from messages import asks, text

from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.record.sealer import Sealer, Seen, kept_of_response
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.secrets.surrogates import sealed_hash, sha256_of
from mrtr_cassette.core.wire.http import End, Headers, Piece, Response

STATE = "s" * 40
CALL = tool("deploy", env="prod")
SECRET = "not-a-real-key-0123456789"


def seen(*pieces: bytes, headers: Headers = JSON_HEADERS, is_paced: bool = False) -> Seen:
    """Return an exchange whose response came in these pieces."""
    came = tuple(Piece(raw, float(at), 1) for at, raw in enumerate(pieces, start=2))
    response = Response(200, headers, came, End.COMPLETE)
    return Seen(1, read_call(post(CALL)), response, True, is_paced, 1.0, 9.0, 1)


def test_state_is_sealed_and_known() -> None:
    """What an ask issued is a hash on the disk, and is looked for from now on."""
    sealer = Sealer(seals=True)
    exchange, ask, unread = sealer.seal(seen(answer(CALL, asks("ok", state=STATE))))
    assert exchange.response is not None
    assert sealed_hash(STATE).encode() in exchange.response.body
    assert (ask and ask.request_state, exchange.issued_sha256) == (STATE, sha256_of(STATE))
    assert (list(sealer.known), list(unread)) == ([STATE], [])


def test_verbatim_state_stays() -> None:
    """Without sealing, states and all other bytes stay."""
    body = answer(CALL, asks("ok", state=STATE))
    exchange = Sealer(seals=False).seal(seen(body)).exchange
    assert exchange.response is not None
    assert exchange.response.body == body


def test_secret_across_pieces_is_replaced() -> None:
    """Pieces that the network cut are one; those that the server sent as such stay apart."""
    body = answer(CALL, {"apiKey": SECRET})
    sealer = Sealer(seals=True, redactor=Redactor(RedactionRules(), token_of))
    at = body.index(b"real")
    exchange = sealer.seal(seen(body[:at], body[at:])).exchange
    assert exchange.response is not None
    assert len(exchange.response.pieces) == 1
    assert SECRET.encode() not in exchange.response.body
    parts = answer(CALL, text("a")), b"\n"
    paced = sealer.seal(seen(*parts, is_paced=True)).exchange.response
    assert paced is not None
    assert tuple(piece.raw for piece in paced.pieces) == parts


def test_answers_are_sealed_where_that_is_wanted() -> None:
    """A request that answers keeps hashes of its answers."""
    request = post(
        tool("deploy", env="prod").replace(
            b'"arguments"', b'"inputResponses":{"ok":"yes"},"arguments"'
        )
    )
    kept = seen(answer(CALL, {}))._replace(call=read_call(request))
    exchange = Sealer(seals=True, seals_answers=True).seal(kept).exchange
    assert b"mrtr-answer:" in exchange.request.body


def test_session_of_a_response_is_sealed() -> None:
    """Its id is a credential; what is kept besides is what a client depends on."""
    headers = (*JSON_HEADERS, ("Mcp-Session-Id", "abc"), ("Date", "today"))
    assert kept_of_response(headers) == (*JSON_HEADERS, ("Mcp-Session-Id", sealed_hash("abc")))
