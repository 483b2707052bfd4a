"""Replace the server's origin where authorization over HTTP names it."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import Final

from mrtr_cassette.core.wire.http import Headers, Request, Response, without_header
from mrtr_cassette.core.wire.jsonbytes import find_spans, parse, splice
from mrtr_cassette.core.wire.pointers import members_of
from mrtr_cassette.errors import NotJsonError

_METADATA_TARGET = re.compile(
    r"/\.well-known/"
    r"(?:oauth-protected-resource|oauth-authorization-server|openid-configuration)(?=[/?]|\Z)"
)
"""Matches the paths of RFC 9728, RFC 8414 and OpenID Connect Discovery."""

_LOOPBACK_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}
_ESCAPED_COLON: Final = re.compile(r"\\u003A", re.IGNORECASE)
_ESCAPED_SLASH: Final = re.compile(r"\\(?:/|u002F)", re.IGNORECASE)
_COLON: Final = rf"(?::|%3A|{_ESCAPED_COLON.pattern})"
_SLASH: Final = rf"(?:/|%2F|{_ESCAPED_SLASH.pattern})"
_LEADING_AUTHORITY = re.compile(r"\s*(?:[A-Za-z][\w+.-]*:)?[/\\]{2}[^/?#\\]*")
"""Matches the beginning of a URL that names a host, with a scheme or without one."""

_USER_IN_URL = re.compile("//[^/]*@")
_ORIGIN_PARTS = re.compile(
    r"(?P<scheme>[\w+.-]+)://(?P<host>\[[^\]/]*\]|<[^>/]*>|[^/?#:@]*)(?::(?P<port>\d+))?"
)
_LOCAL_PORT = re.compile(
    rf"(https?{_COLON}{_SLASH}{{2}}(?:localhost|127\.0\.0\.1|\[::1\])){_COLON}[0-9]+",
    re.IGNORECASE,
)
_PERCENT_ESCAPES: Final = str.maketrans(
    {":": "%3A", "/": "%2F", "[": "%5B", "]": "%5D", "<": "%3C", ">": "%3E"}
)
_ANNOUNCED_METADATA = re.compile(
    r"resource_metadata=\"?[\w+.-]+://[^/\"?#]*([^\"#, ]*)"
)
"""Matches where a challenge announces a document, which may be anywhere (RFC 9728)."""

_STATE_IN_QUERY = re.compile(r"(?<=[?&]state=)[^&#]*")
_ENDPOINT_MEMBERS: Final = (
    "issuer",
    "authorization_endpoint",
    "token_endpoint",
    "registration_endpoint",
)
_REGISTRATION_URL: Final = "registration_client_uri"
_NO_SCHEME = re.compile(
    r"(?:(?:localhost|\[[0-9a-f:]+\]|[\w-]+(?:\.[\w-]+)+):\d+|localhost)(?:/\S*)?",
    re.IGNORECASE,
)
"""Matches a URL that begins with its host."""

_FORM_CONTENT_TYPE: Final = "application/x-www-form-urlencoded"


def authorization_state(target: str) -> str | None:
    """Return the `state` of an authorization request, as it is spelled in its URL, or None."""
    if "response_type=" not in target:
        return None

    match = _STATE_IN_QUERY.search(target)
    return None if match is None else match[0]


def with_client_state(headers: Headers, state: str) -> Headers:
    """Return the headers of an authorization response with the client's own `state`."""
    changed_headers = []
    for name, value in headers:
        new_value = value
        if name.lower() == "location":
            new_value = _STATE_IN_QUERY.sub(lambda _: state, value)

        changed_headers.append((name, new_value))

    return tuple(changed_headers)


def lacks_scheme(text: str) -> bool:
    """Tell whether a text is a URL but for its scheme, such as localhost:8000/mcp."""
    return _NO_SCHEME.fullmatch(text) is not None


def origin_in(url: str) -> str:
    """Return the origin that a URL names, or begins with; empty where it names none."""
    match = _LEADING_AUTHORITY.match(url)
    if match is None:
        return ""
    return match[0].strip()


def path_in(url: str) -> str:
    """Return the path of a URL, or of an origin under whose path a whole server is."""
    return url[len(origin_in(url)) :]


def without_local_ports(text: str) -> str:
    """Return a text in which URLs of this machine have no port, which is chance."""
    return _LOCAL_PORT.sub(r"\1", text)


def shown_origin(url: str) -> str:
    """Return the origin of a URL for messages, without its user."""
    return _USER_IN_URL.sub("//", origin_in(url))


class ServerOrigin:
    """Finds a server's origin, however it is spelled, and replaces it by another, or the reverse.

    `localhost`, `127.0.0.1` and `[::1]` are one, and a server that a recording started itself has
    any port.
    """

    def __init__(self, url: str, *, any_port: bool = False) -> None:
        """Take the URL of a server."""
        self._origin_pattern = _origin_pattern(url, any_port=any_port)
        self._server_spelling = origin_in(url) or url
        """How the server last spelled its own origin; it may accept no other spelling."""
        self._announced_targets: set[str] = set()
        """Targets of documents that challenges have announced."""
        self._registration_targets: set[str] = set()
        """Targets where clients register, and where each manages its registration."""

    def add(self, url: str, *, any_port: bool) -> None:
        """Take a further URL of the server, such as the one at which it was recorded."""
        further_pattern = _origin_pattern(url, any_port=any_port)
        self._origin_pattern = re.compile(
            f"{self._origin_pattern.pattern}|{further_pattern.pattern}", re.IGNORECASE
        )

    def is_named(self, origin: str) -> bool:
        """Tell whether an origin is the server's."""
        return self._origin_pattern.fullmatch(origin) is not None

    def path_of(self, url: str) -> str | None:
        """Return a URL without the origin; None where it names one that is not the server's."""
        origin = origin_in(url)
        possible_origins = [origin]
        if origin.startswith("//"):
            possible_origins = [f"{scheme}:{origin}" for scheme in _DEFAULT_PORTS]

        if origin and not any(map(self.is_named, possible_origins)):
            return None

        path = url.lstrip()[len(origin) :]
        if origin and not path.startswith("/"):
            return f"/{path}"

        return path

    def with_origin_replaced(self, text: str, origin: str) -> str:
        """Return a text with the server's origin replaced."""

        def replaced_origin(match: re.Match[str]) -> str:
            return self._origin_as_spelled(origin, match[0])

        return self._origin_pattern.sub(replaced_origin, text)

    def _origin_as_spelled(self, origin: str, spelled: str) -> str:
        """Return an origin in the server's spelling, and remember that unless it is encoded."""
        if "%" not in spelled:
            plain = _ESCAPED_SLASH.sub("/", spelled)
            self._server_spelling = _ESCAPED_COLON.sub(":", plain)

        return _spelled_alike(origin, spelled)

    def document_with_origin(self, body: bytes, origin: str) -> bytes:
        """Return a metadata document with the server's origin replaced."""
        self._note_registration(body, "registration_endpoint")
        return self._bytes_with_origin(body, origin)

    def _bytes_with_origin(self, raw: bytes, origin: str) -> bytes:
        """Return a text of any encoding with the server's origin replaced."""
        text = raw.decode("utf-8", "surrogateescape")
        return self.with_origin_replaced(text, origin).encode(
            "utf-8", "surrogateescape"
        )

    def learn_from_exchange(self, request: Request, response: Response) -> None:
        """Learn from an exchange how the server spells its origin, and where its documents are."""
        if response.status in (401, 403):
            self.headers_with_origin(response.headers, "")
        elif self.asks_for_metadata(request):
            self.document_with_origin(response.body, "")
        elif self.registers_client(request):
            self.registration_with_origin(response.body, "")

    def registers_client(self, request: Request) -> bool:
        """Tell whether a request registers a client, or is about its registration."""
        return request.target in self._registration_targets

    def registration_with_origin(self, body: bytes, origin: str) -> bytes:
        """Return the answer to a client that registers: it says where to manage that (RFC 7592).

        All other URLs in it are the client's own.
        """
        self._note_registration(body, _REGISTRATION_URL)
        try:
            places = find_spans(body, [(_REGISTRATION_URL,)])
        except NotJsonError:
            return body

        replacements = []
        for _, span in places:
            url = self._bytes_with_origin(span.slice_of(body), origin)
            replacements.append((span, url))

        return splice(body, replacements)

    def _note_registration(self, document: bytes, name: str) -> None:
        """Remember the target that a member of a document names, if it is the server's."""
        try:
            url = members_of(parse(document)).get(name)
        except NotJsonError:
            return

        target = self.path_of(url) if isinstance(url, str) else None
        if target is not None:
            self._registration_targets.add(target)

    def asks_for_metadata(self, request: Request) -> bool:
        """Tell whether a request asks for a document that tells clients how to be authorized."""
        if request.method != "GET":
            return False

        if request.target in self._announced_targets:
            return True
        return _METADATA_TARGET.search(request.target) is not None

    def headers_with_origin(self, headers: Headers, origin: str) -> Headers:
        """Return headers of a response with the server's origin replaced, but in those of CORS.

        They name the origin of a page, which may be the server's own.
        """
        new_headers = []
        for name, value in headers:
            lower_name = name.lower()
            if lower_name == "www-authenticate":
                self._announced_targets.update(_ANNOUNCED_METADATA.findall(value))

            new_value = value
            if lower_name == "location":
                new_value = self._redirect_url(value, origin)
            elif not lower_name.startswith("access-control-"):
                new_value = self.with_origin_replaced(value, origin)

            new_headers.append((name, new_value))

        return tuple(new_headers)

    def _redirect_url(self, url: str, origin: str) -> str:
        """Return the URL of a redirect, which leads to `origin` if it led to the server."""
        path = self.path_of(url)
        if url.startswith("/") and not origin_in(url):
            return path_in(origin) + self.with_origin_replaced(url, origin)
        if path is None or not origin_in(url):
            return self.with_origin_replaced(url, origin)

        # How a redirect spells the origin says nothing about its name as a resource.
        return origin + self.with_origin_replaced(path, origin)

    def request_with_origin(self, request: Request, origin: str) -> Request:
        """Return a request as the server has to see it: its `resource` (RFC 8707) is the server's.

        A document is asked for without a coding, in which nothing could be found.
        """
        if self.asks_for_metadata(request) or self.registers_client(request):
            headers = without_header(request.headers, "accept-encoding")
            return replace(request, headers=headers)

        resource_pattern = _resource_pattern(origin)

        def with_server_origin(match: re.Match[str]) -> str:
            return match[1] + _spelled_alike(self._server_spelling, match[2])

        target = resource_pattern.sub(with_server_origin, request.target)
        if target != request.target:
            request = replace(request, target=target)

        if request.header("content-type").startswith(_FORM_CONTENT_TYPE):
            form = request.body.decode("latin-1")
            body = resource_pattern.sub(with_server_origin, form).encode("latin-1")
            if body != request.body:
                headers = without_header(request.headers, "content-length")
                request = replace(request, headers=headers, body=body)

        return request

    def other_authorization_servers(self, document: bytes) -> list[str]:
        """Return the origins of the authorization servers in a document that are not the server."""
        try:
            members = members_of(parse(document))
        except NotJsonError:
            return []

        urls = [members.get(name) for name in _ENDPOINT_MEMBERS]
        servers = members.get("authorization_servers")
        if isinstance(servers, list):
            urls += servers

        origins = dict.fromkeys(origin_in(url) for url in urls if isinstance(url, str))
        return [origin for origin in origins if origin and not self.is_named(origin)]


def _spelled_alike(origin: str, spelled: str) -> str:
    """Return an origin percent-encoded or with JSON escapes if the other spelling has them."""
    if "%" in spelled:
        return origin.translate(_PERCENT_ESCAPES)

    escaped_slash = _ESCAPED_SLASH.search(spelled)
    if escaped_slash is not None:
        return origin.replace("/", escaped_slash[0])

    return origin


@lru_cache(maxsize=64)
def _resource_pattern(origin: str) -> re.Pattern[str]:
    """Return a pattern for `resource` parameters with the URL of a server in any spelling."""
    pattern = _origin_pattern(origin).pattern
    path = path_in(origin)
    escaped_path = path.translate(_PERCENT_ESCAPES)
    prefix = f"(?:{re.escape(path)}|{re.escape(escaped_path)})"

    return re.compile(rf"((?:\A|[?&])resource=)({pattern}{prefix})", re.IGNORECASE)


@lru_cache(maxsize=64)
def _origin_pattern(origin: str, *, any_port: bool = False) -> re.Pattern[str]:
    """Return what matches an origin however it is spelled; nothing for what is no URL.

    A server behind TLS may not know of it, so either scheme is the server's.
    """
    match = _ORIGIN_PARTS.match(origin)
    if match is None:
        return re.compile(r"(?!)")

    host = match["host"].lower()
    hosts = sorted(_LOOPBACK_HOSTS) if host in _LOOPBACK_HOSTS else [host]
    host_patterns = []
    for name in hosts:
        host_patterns += [re.escape(name), re.escape(name.translate(_PERCENT_ESCAPES))]

    usual_port = _DEFAULT_PORTS.get(match["scheme"].lower(), "")
    port_number = match["port"] or usual_port
    schemes = _DEFAULT_PORTS if usual_port else {match["scheme"]: ""}
    any_host = f"(?:{'|'.join(host_patterns)})"
    origin_patterns = []
    for scheme, default_port in schemes.items():
        port_pattern = f"{_COLON}{port_number}"
        if any_port:
            port_pattern = f"{_COLON}[0-9]+"
        elif port_number == usual_port:
            port_pattern = f"{_COLON}(?:{port_number}|{default_port})"

        if any_port or port_number in (usual_port, default_port):
            port_pattern = f"(?:{port_pattern})?"

        origin_patterns.append(f"{scheme}{_COLON}{_SLASH}{{2}}{any_host}{port_pattern}")

    any_origin = f"(?:{'|'.join(origin_patterns)})"
    delimited_origin = rf"(?<![\w.+-]){any_origin}(?![\w.:@-]|%3A|%40|\\u003A|\\u0040)"
    return re.compile(delimited_origin, re.IGNORECASE)
