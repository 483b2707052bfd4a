"""Session ids in what a recording has: in a header, or in the URL of HTTP+SSE.

Rule: which session a request is sent in is no part of what it asks for.
Source: MCP 2025-11-25, "Session Management"; MCP 2024-11-05, "HTTP with SSE".
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from mrtr_cassette.core.wire.http import SESSION_HEADER, Request, header_value

NO_SESSION: Final = ""
"""The session of all clients that have none."""

_SHORTEST_ID: Final = 16
"""Characters of a session id, which nobody must be able to guess; what is shorter may be a word."""
_DIGIT: Final = re.compile("[0-9]")
_SURROGATE: Final = r"mrtr-session(?::|%3A)[0-9]{1,9}"
_HASH: Final = r"sha256(?::|%3A)[0-9a-f]{64}"
_ANY = re.compile(f"{_SURROGATE}|{_HASH}", re.ASCII)
# A hash may also be a digest that a client sends; under such a name it is a session's.
_IN_URL = re.compile(f"{_SURROGATE}|(?<=[Ss]ession[Ii]d=){_HASH}|(?<=session_id=){_HASH}", re.ASCII)


def session_of(request: Request) -> str:
    """Return the id of the session in which a recorded request was sent."""
    return header_value(request.headers, SESSION_HEADER) or session_in(request.target)


@lru_cache(maxsize=1024)
def session_in(text: str) -> str:
    """Return the session id that stands in a URL of a recording."""
    match = _ANY.search(text)
    return NO_SESSION if match is None else match[0].replace("%3A", ":")


def ids_given_in(url: str) -> list[str]:
    """Return what tells the session in the URL that a client of HTTP+SSE has to post to.

    These are the long values of its query, or else the last long segment of its path that is no
    word.
    """
    path, _, query = url.partition("?")
    pairs = (pair.partition("=") for pair in query.split("&"))
    values = [value for _, _, value in pairs if len(value) >= _SHORTEST_ID]
    if "://" in path:
        path = path.partition("://")[2].partition("/")[2]
    segments = [each for each in path.split("/") if len(each) >= _SHORTEST_ID]
    return values or [each for each in segments if _DIGIT.search(each)][-1:]


@lru_cache(maxsize=1024)
def without_session(target: str) -> str:
    """Return a URL in which every session id is the same one."""
    return _IN_URL.sub("mrtr-session", target)
