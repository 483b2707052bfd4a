"""Find what is secret in a URL: passwords and tokens before its host, and words of its path."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from mrtr_cassette.core.secrets.rules import looks_random

_LONGEST_USERINFO = 1024
_REST = re.compile(r"[^\s\"'<>\\]*")
_AUTHORITY = re.compile(r"[^/?#]*")
_HOST = r"(?:[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}|localhost|[0-9]+(?:\.[0-9]+){3}|[\w.-]+(?=:[0-9]))"
_UP_TO_HOST = re.compile(rf"[/?#][^@]{{1,256}}?(?:@[^@/?#]{{1,64}})??(?=@{_HOST}(?![\w.-]))")
_UP_TO_SECOND_HOST = re.compile(rf"/[^@/?#=&]{{1,256}}?(?=@{_HOST}(?![\w.-]))")
_WORD = re.compile(r"(?!localhost\Z)[\w-]+")
_TEMPLATE = re.compile(r"[$%]?\{")
_PORT = re.compile(r"[0-9]{1,5}/")
_DATABASE = re.compile(r"(?i)(?:postgres|sql|mariadb|mongodb|srv|rediss?|amqps?)\Z")
_TOKEN = re.compile(
    r"[A-Za-z0-9]{24,}|(?=.{20})(?=[\w-]*[0-9])(?=[\w-]*[A-Za-z])[\w-]*|(?=.{10})(?:[A-Za-z]*[0-9]+(?=[A-Za-z])){2}[A-Za-z0-9]*"
)
_BEFORE_QUERY = re.compile(r"[?#]")
_RANDOM_HEX = re.compile(r"(?=.*[0-9])(?=.*[A-Fa-f])[0-9A-Fa-f-]{16,}")
_KINDS = ("[0-9a-f]", "[0-9a-f-]", "[0-9A-Za-z]", "[0-9A-Za-z_-]", "[^/?#]")
_NO_PASSWORDS = frozenset({"", "x-oauth-basic"})
"""What stands in the place of a password where the user's name is a token."""


def patterns_of_path(url: str) -> list[str]:
    """Return patterns that find what looks random in the path of a URL, each as its group 1."""
    patterns = []
    # What stands before the first segment is the host, which a request's target doesn't have.
    segments = ["", *_BEFORE_QUERY.split(url)[0].split("/")[3:]]
    for before, segment in pairwise(segments):
        if looks_random(segment) or _RANDOM_HEX.fullmatch(segment):
            kind = next(kind for kind in _KINDS if re.fullmatch(f"{kind}+", segment))
            beside = f"{before}/" if _WORD.fullmatch(before) else ""
            patterns.append(f"/{beside}({kind}{{{len(segment)}}})")
    return patterns


def credentials_in(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of passwords before the hosts of URLs, and of tokens in their place."""
    at = text.find("://")
    while at >= 0:
        start = at + 3
        at = text.find("://", start)
        end = min(len(text) if at < 0 else at, start + _LONGEST_USERINFO)
        if text.find("@", start, end) >= 0:
            rest = _REST.match(text, start, end)
            is_of_database = _DATABASE.search(text[max(0, start - 16) : start - 3]) is not None
            before_host = _of_database if is_of_database else _before_host
            for first, last in before_host(rest[0] if rest else ""):
                yield start + first, start + last


def _of_database(rest: str) -> Iterator[tuple[int, int]]:
    path, _, _ = rest.partition("?")
    userinfo, has_host, _ = (path if "@" in path else rest).rpartition("@")
    user, colon, password = userinfo.partition(":")
    if "@" not in path and _PORT.match(password):
        return
    if has_host and colon and password and "/" not in user and not _TEMPLATE.match(password):
        yield len(user) + 1, len(userinfo)


def _before_host(rest: str) -> Iterator[tuple[int, int]]:
    authority = _AUTHORITY.match(rest)
    end = authority.end() if authority else 0
    userinfo, has_host, host = rest[:end].rpartition("@")
    user, colon, password = (userinfo if has_host else host).partition(":")
    if has_host:
        # What has been taken for a host may be the middle of a password.
        more = _UP_TO_SECOND_HOST.match(rest, end) if _WORD.fullmatch(host) else None
        last = len(userinfo) if more is None else more.end()
        if host.startswith("sha256:"):
            return
        if (not colon or password in _NO_PASSWORDS) and _is_token(user):
            yield 0, len(user)
            return
    else:
        # What looks like a port is one.
        is_port = not password or password.isdigit() or user.startswith("[")
        more = None if is_port else _UP_TO_HOST.match(rest, end)
        last = 0 if more is None else more.end()
    first = len(user) + 1
    if colon and first < last and not _TEMPLATE.match(rest, first):
        yield first, last


def _is_token(user: str) -> bool:
    return looks_random(user) or _TOKEN.fullmatch(user) is not None
