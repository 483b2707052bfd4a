"""Session ids in what a recording has: in a header, or in the URL of HTTP+SSE.

Owns: finding what stands for a session id in a request, and a URL that tells no session.
Does not own: what stands for a session id (`secrets.surrogates`), which session an exchange opens
(`exchange.sessions`).
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


@lru_cache(maxsize=1024)
def without_session(target: str) -> str:
    """Return a URL in which every session id is the same one."""
    return _IN_URL.sub("mrtr-session", target)
