from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrtr_cassette.core.cassette.client_config import (
    has_wrapped_server,
    unwrapped_config,
    wrapped_config,
)
from mrtr_cassette.errors import CassetteError

RECORD = ("/bin/mrtr-cassette", "record", "--stdio", "--output", "/c.json")
REPLAY = ("/usr/bin/python3", "-m", "mrtr_cassette", "replay", "--stdio", "/c.json")

WITH_COMMENTS = b"""\xef\xbb\xbf{
  // what the desktop starts, "mcpServers": {}
  "theme": "dark", /* "command": 1 */
  "mcpServers": {
    "weather": {
      "command": "uvx",
      "args": [
        "weather-server", // the newest
        "--key", "${API_KEY}", "http://x/*y*/",
      ],
      "env": {"API_KEY": "${input:key}", "args": "command"},
    },
    "plain": {"command": "/opt/s\\u00e9rver"},
    "empty": {"args": [ ], "command": "run"},
    "s\xc3\xa9rver": {"command": "node", "args": ["a.js"]},
    "remote": {"url": "https://example.com/mcp"},
    "odd": {"command": "x", "args": "y"}
  },
}
"""


@pytest.mark.parametrize("ours", [RECORD, REPLAY])
@pytest.mark.parametrize("server", ["weather", "plain", "empty", "sérver"])
def test_wrapping_and_unwrapping_gives_back_every_byte(
    server: str, ours: Sequence[str]
) -> None:
    """Comments, last commas, a byte order mark, variables and odd spaces are all still there."""
    changed = wrapped_config(WITH_COMMENTS, "f", server, ours)

    assert changed != WITH_COMMENTS
    assert unwrapped_config(changed, "f", server) == WITH_COMMENTS


SERVERS = {"mcpServers": {"a": {"command": "x"}}}


@pytest.mark.parametrize(
    "place",
    [
        ("context_servers",),
        ("amp.mcpServers",),
        ("mcp", "servers"),
        ("projects", "/home/jörg", "mcpServers"),
    ],
)
@pytest.mark.parametrize("is_ascii", [True, False])
def test_servers_are_found_wherever_a_client_has_them(
    place: tuple[str, ...], *, is_ascii: bool
) -> None:
    """Beside empty `mcpServers` too, as Claude Code has them for all projects."""
    config: Any = {"a": {"command": "node", "args": ["a.js"]}}
    for name in reversed(place):
        config = {name: config}

    config |= {"mcpServers": {}}
    data = json.dumps(config, indent=2, ensure_ascii=is_ascii).encode()
    changed = wrapped_config(data, "f", "a", RECORD)

    assert changed.replace(b'"record", ', b"") != changed
    assert has_wrapped_server(changed, "f")
    assert unwrapped_config(changed, "f", "a") == data


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'[mcp_servers.a]\ncommand = "node"', "not JSON"),
        (b'{"mcp": {"a": {"command": ["node"]}}}', "it has no `mcpServers`, `servers`"),
        (
            json.dumps({"projects": {"/x": SERVERS, "/y": SERVERS}}).encode(),
            "it has several servers 'a'",
        ),
    ],
)
def test_what_is_to_be_written_by_hand_is_told(data: bytes, reason: str) -> None:
    """The advice is the command that stands before the server's own."""
    with pytest.raises(CassetteError, match=reason) as caught:
        wrapped_config(data, "f", "a", RECORD)

    assert str(caught.value).endswith(
        "by hand: /bin/mrtr-cassette record --stdio --output /c.json --"
    )

    with pytest.raises(CassetteError, match=f"{reason}.* by hand"):
        unwrapped_config(data, "f", "a")


an_argument = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


@given(
    an_argument,
    st.none() | st.lists(an_argument, max_size=4),
    st.sampled_from([None, 0, 2, "\t"]),
    st.sampled_from(
        [json.dumps, lambda tree, **how: json.dumps(tree, ensure_ascii=False, **how)]
    ),
    an_argument,
    st.sampled_from(["mcpServers", "servers"]),
)
def test_any_server_comes_back(
    command: str,
    args: list[str] | None,
    indent: int | str | None,
    dumps: Callable[..., str],
    name: str,
    key: str,
) -> None:
    """Its own command stands behind ours and two dashes, and unwrapping gives back the file."""
    entry = {"command": command} | ({} if args is None else {"args": args})
    config = {"other": 1, key: {name: entry, f"{name}2": {"command": "x"}}}
    data = dumps(config, indent=indent).encode()

    changed = wrapped_config(data, "f", name, REPLAY)

    assert json.loads(changed)[key][name] == {
        "command": REPLAY[0],
        "args": [*REPLAY[1:], "--", command, *(args or [])],
    }
    assert unwrapped_config(changed, "f", name) == data


@pytest.mark.parametrize(
    ("data", "server", "reason"),
    [
        (b"{", "a", "not JSON"),
        (b"[]", "a", "no `mcpServers`"),
        (b'{"mcpServers": 1}', "a", "no `mcpServers`"),
        (WITH_COMMENTS, "nobody", "no server 'nobody'; it has 'weather', 'plain'"),
        (WITH_COMMENTS, "remote", "the server 'remote' has no `command`"),
        (WITH_COMMENTS, "odd", "`args` of the server 'odd' is not a list"),
        (
            wrapped_config(WITH_COMMENTS, "f", "weather", REPLAY),
            "weather",
            "is wrapped already",
        ),
    ],
)
def test_what_cannot_be_wrapped_is_named(data: bytes, server: str, reason: str) -> None:
    """A file or a server that can't be wrapped is an error that says why."""
    with pytest.raises(CassetteError) as caught:
        wrapped_config(data, "f", server, RECORD)

    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://example.com/mcp", "https://example.com/mcp"),
        (
            "http://a.example/mcp?api_key=made-up",
            "'http://a.example/mcp?api_key=%3Capi-key:1%3E'",
        ),
    ],
)
def test_a_server_with_a_url_is_recorded_by_its_url(url: str, shown: str) -> None:
    """The advice has the cassette that was asked for, and the URL without its secrets."""
    data = json.dumps({"servers": {"web": {"type": "http", "url": url}}}).encode()
    with pytest.raises(CassetteError) as caught:
        wrapped_config(data, "f", "web", RECORD)

    assert str(caught.value) == (
        "f: the server 'web' has no `command`; record a server with a URL by a proxy: "
        f"mrtr-cassette record --upstream {shown} --output /c.json"
    )


@pytest.mark.parametrize(
    "server",
    [
        {"command": "node", "args": ["record", "--stdio", "--", "x"]},
        {"command": "mrtr-cassette", "args": ["record", "--stdio"]},
        {"command": "mrtr-cassette", "args": ["record", "--stdio", "--"]},
        {"command": "mrtr-cassette", "args": ["inspect", "--", "x"]},
        {"command": "mrtr-cassette"},
    ],
)
def test_what_is_not_wrapped_is_not_unwrapped(server: dict[str, object]) -> None:
    """Only what `wrap` writes is taken back."""
    data = json.dumps({"mcpServers": {"a": server}}).encode()

    with pytest.raises(CassetteError, match="'a' is not wrapped"):
        unwrapped_config(data, "f", "a")
