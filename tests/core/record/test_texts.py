"""Changing every text of an exchange alike."""

from __future__ import annotations

from builders import Answer, exchange, post

from mrtr_cassette.core.record.texts import renumbered, with_texts
from mrtr_cassette.core.wire.http import Request

SAID = exchange(
    post(b'{"a":"<jwt:x>"}', ("Mcp-Name", "<jwt:y>"), target="/mcp?token=<jwt:x>"),
    Answer((b"<jwt:x>", b"<jwt:y>"), (("Location", "/<jwt:x>"),)),
)


def test_every_text_is_changed() -> None:
    """Target, headers and bodies, of request and response."""
    changed = renumbered(SAID, lambda _, token: {"x": 1, "y": 2}[token])

    assert changed.request.target == "/mcp?token=<jwt:1>"
    assert changed.request.header("mcp-name") == "<jwt:2>"
    assert changed.request.body == b'{"a":"<jwt:1>"}'
    assert changed.response is not None
    assert changed.response.body == b"<jwt:1><jwt:2>"
    assert changed.response.headers == (("Location", "/<jwt:1>"),)


def test_what_does_not_change_is_the_same_object() -> None:
    """Also where there is no response."""
    assert renumbered(SAID, lambda _rule, _token: None) is SAID
    silent = exchange(Request("GET", "/", (), b""), Answer((), status=0))
    assert silent.response is None
    assert with_texts(silent, lambda raw: raw) is silent  # type: ignore[arg-type]
