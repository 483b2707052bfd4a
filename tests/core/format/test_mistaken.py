from __future__ import annotations

import gzip
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrtr_cassette.core.format.codec import decode_parts
from mrtr_cassette.core.format.mistaken import mistaken_text
from mrtr_cassette.errors import CassetteError


def refusal(data: bytes) -> str:
    """Return why a file is no cassette."""
    with pytest.raises(CassetteError) as caught:
        decode_parts(data, "f")
    return str(caught.value)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (
            b'{\n  "version": 1,\n<<<<<<< HEAD\n  "a": 1\n=======\n  "a": 2\n>>>>>>> theirs\n}\n',
            "f: line 3 is the mark of a merge conflict; take one side whole (git checkout",
        ),
        (
            b"# made by hand\n---\ninteractions:\n- request:\n    body: null\n",
            "f: it is a YAML cassette of another tool, such as VCR.py or pytest-recording;",
        ),
        (b"http_interactions:\n- request: {}\n", "f: it is a YAML cassette of another tool,"),
        (b"name: ci\non: push\n", "f: it is YAML, not JSON;"),
        (b"<!DOCTYPE html>\n<p>not found\n", "f: it is HTML or XML, not JSON;"),
        (b'<?xml version="1.0"?><a/>', "f: it is HTML or XML, not JSON;"),
        (gzip.compress(b"{}", mtime=0), "f: it is compressed by gzip; unpack it first"),
        ('{"version": 1}'.encode("utf-16"), "f: it is in UTF-16; save it in UTF-8"),
        (
            b'{"journal":1,"upstream":"u"} 0\n[1] 0\n',
            "f: it is the journal of a recording, not a cassette; make the cassette of it with:",
        ),
        (b"nothing of all this", "f: not JSON:"),
    ],
)
def test_text_that_is_no_cassette_is_named(data: bytes, said: str) -> None:
    """Who gives another file, or a damaged one, is told what it is and what to do."""
    assert refusal(data).startswith(said)


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ({"log": {"version": "1.2", "entries": []}}, "f: it is an HTTP archive (HAR);"),
        ({"mcpServers": {}}, "f: it is a client's configuration of servers;"),
        ({"interactions": []}, "f: JSON, but no mrtr-cassette file"),
        ({"http_interactions": []}, "f: it is a cassette of another tool, such as VCR for Ruby;"),
        ({"$schema": "x", "properties": {}}, "f: it is a JSON Schema, not a cassette;"),
        (
            {"cassette": "c", "interactions": [], "misses": []},
            "f: it is the report of a replay, not its cassette;",
        ),
        ({"a": 1}, "f: JSON, but no mrtr-cassette file"),
        ([], "f: JSON, but no mrtr-cassette file"),
    ],
)
def test_json_that_is_no_cassette_is_named(tree: Any, said: str) -> None:
    """JSON of other tools, and our own that is no cassette, is told apart."""
    assert refusal(orjson.dumps(tree)).startswith(said)


@given(st.binary())
def test_any_bytes_are_looked_at(data: bytes) -> None:
    """No bytes make it fail, and what it says is text."""
    mistaken = mistaken_text(data)
    assert mistaken is None or all(mistaken)
