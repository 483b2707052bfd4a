"""Values in any text: references take their places, and give back every byte."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrtr_cassette.core.secrets.values import Values
from mrtr_cassette.core.wire.http import Request, header_text

ROOT = "/tmp/x1"
"""The text of a value in these examples."""

WINDOWS = r"C:\Users\Ann Lee\x1"
_PIECES = st.one_of(
    st.sampled_from(
        [
            ROOT,
            f"{ROOT}/",
            f"{ROOT}0",
            "/tmp/x1/sub",
            "%2Ftmp%2Fx1",
            "\\/tmp\\/x1",
            "{root}",
            "{=root}",
            "{==root:url}",
            '"{port:number}"',
            "{port:number}",
            "54321",
            '"',
            "\\",
            "\\\\",
            "\\n",
            "/",
            "file://",
            " ",
            ":",
            ",",
            "{",
            "}",
            "=",
            "\n",
            "data: ",
            "a",
            ".",
            "-",
            "\\u00e9",
            "%20",
        ]
    ).map(str.encode),
    st.binary(max_size=3),
)
TEXTS = st.lists(_PIECES, max_size=12).map(b"".join)
_SAFE = "/:@!$&'()*+,;=~"
_NAME = st.text("ab é\"'%{}()+~-.", min_size=1, max_size=6)
FOLDERS = st.lists(_NAME, min_size=1, max_size=3).map(
    lambda names: "/w/" + "/".join(names)
)


@given(TEXTS, st.sampled_from(["body", "header", "target"]))
def test_every_byte_of_any_text_comes_back(raw: bytes, place: Any) -> None:
    """A text with values, look-alikes and broken escapes is the same after sealing and revealing."""
    values = Values((), {"root": ROOT, "sub": "/tmp/x1/sub", "port": "54321"})
    sealed = values.sealed_bytes(raw, place)

    assert values.revealed_bytes(sealed, place) == raw


@given(FOLDERS, FOLDERS)
def test_a_text_with_other_values_is_the_one_that_another_run_would_have(
    first: str, second: str
) -> None:
    """Sealed with one folder and revealed with another, JSON is as if written with the other."""

    def written(folder: str) -> bytes:
        tree = {
            "alone": folder,
            "path": f"{folder}/one.txt",
            "told": f"read\n{folder}/one.txt, {{root}} and /other{first}",
            "uri": f"file://{quote(folder, _SAFE)}/one.txt",
            "longer": f"{first}0/x",
        }
        return json.dumps(tree, ensure_ascii=False).encode()

    sealed = Values((), {"root": first}).sealed_bytes(written(first))

    assert b"{=root}" in sealed
    assert Values((), {"root": second}).revealed_bytes(sealed) == written(second)


@pytest.mark.parametrize(
    ("text", "sealed"),
    [
        ("/tmp/x1", "{root}"),
        ("/tmp/x1/one.txt", "{root}/one.txt"),
        ("/tmp/x10", "/tmp/x10"),
        ("/tmp/x1-old /tmp/x1.bak", "/tmp/x1-old /tmp/x1.bak"),
        ("in /tmp/x1.", "in {root}."),
        ("/private/tmp/x1", "/private/tmp/x1"),
        ("./tmp/x1 ../tmp/x1", "./tmp/x1 ../tmp/x1"),
        ("file:///tmp/x1/a", "file://{root}/a"),
        ("a=/tmp/x1:/tmp/x1/sub/b", "a={root}:{sub}/b"),
        (r"line\n/tmp/x1\nnext", r"line\n{root}\nnext"),
        (r"file:\/\/\/tmp\/x1\/a", r"file:\/\/{root:slash}\/a"),
        ("?path=%2Ftmp%2Fx1%2Fa", "?path={root:component}%2Fa"),
        ("/tmp/x1%20y", "/tmp/x1%20y"),
        ("{root} {=root} {other}", "{=root} {==root} {other}"),
        (
            '{"port":54321,"at":"http://h:54321/"}',
            '{"port":"{port:number}","at":"http://h:{port}/"}',
        ),
        ("154321 54321.5 x54321", "154321 54321.5 x54321"),
    ],
)
def test_a_value_is_found_alone_and_as_the_beginning_of_a_path(
    text: str, sealed: str
) -> None:
    """Only where the text begins and ends as a whole is it a value; the longer one wins."""
    values = Values((), {"root": ROOT, "sub": "/tmp/x1/sub", "port": "54321"})

    assert values.sealed_bytes(text.encode()).decode() == sealed
    assert values.revealed_bytes(sealed.encode()).decode() == text


def test_a_folder_of_windows_is_found_in_escapes_and_urls() -> None:
    """Backslashes of JSON, of JSON in JSON, and the slashes of a URL are spellings of one value."""
    values = Values((), {"root": WINDOWS})
    raw = json.dumps(
        {
            "path": f"{WINDOWS}\\one.txt",
            "text": json.dumps({"path": f"{WINDOWS}\\one.txt"}),
            "uri": "file:///C:/Users/Ann%20Lee/x1/one.txt",
        }
    ).encode()

    sealed = values.sealed_bytes(raw)

    assert json.loads(sealed)["path"] == "{root}\\one.txt"
    assert b"Ann" not in sealed
    assert values.revealed_bytes(sealed) == raw

    elsewhere = Values((), {"root": r"D:\x"}).revealed_bytes(sealed)

    assert json.loads(elsewhere)["uri"] == "file:///D:/x/one.txt"
    assert json.loads(json.loads(elsewhere)["text"])["path"] == "D:\\x\\one.txt"


def test_headers_and_targets_have_references_too() -> None:
    """A name that a header spells in base64 stays in base64, and comes back as it was."""
    values = Values((), {"root": ROOT})
    uri = f"file://{ROOT}/é.txt"
    request = Request(
        "GET",
        f"/files?path={quote(ROOT, safe='')}",
        (("Mcp-Name", header_text(uri)), ("Mcp-Param-Path", ROOT)),
        b"",
    )

    sealed = values.sealed_request(request)

    assert sealed.headers[1][1] == "{root}"
    assert sealed.target == "/files?path={root:component}"
    assert ROOT not in str(sealed)
    assert values.revealed_request(sealed) == request


def test_a_cassette_without_values_is_no_business_of_theirs() -> None:
    """Without names, no text changes, whatever it looks like."""
    raw = b'{"a":"{root} {=root:url}"}'

    assert Values().sealed_bytes(raw) is raw
    assert Values().revealed_bytes(raw) is raw
