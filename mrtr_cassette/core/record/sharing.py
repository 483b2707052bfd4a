"""Take out of a recording what could identify somebody, so that strangers may have it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final, NamedTuple

from mrtr_cassette.core.cassette.digests import digest_replacements, with_digests
from mrtr_cassette.core.cassette.recorded import Cassette, RecordedExchange
from mrtr_cassette.core.cassette.texts import exchange_with_changed_texts
from mrtr_cassette.core.cassette.transports import ENDPOINT, is_started_here
from mrtr_cassette.core.protocol.origins import origin_in
from mrtr_cassette.core.record.assembly import SecretNumbers
from mrtr_cassette.core.record.sealing import (
    NO_RESPONSE,
    exchange_without_known_secrets,
    redacted_messages,
    with_messages,
    without_known_secrets,
)
from mrtr_cassette.core.secrets.credentials import Credentials, RepeatedSecrets
from mrtr_cassette.core.secrets.names import (
    as_bytes,
    has_secrets,
    placeholder,
    secrets_in,
)
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.rules import BUILT_IN_RULES
from mrtr_cassette.core.secrets.shapes import SharedKind, rule_of_kind
from mrtr_cassette.core.wire.http import Response
from mrtr_cassette.core.wire.jsonbytes import (
    MemberPath,
    canonical,
    find_spans,
    parse,
    splice,
)
from mrtr_cassette.core.wire.pointers import members_of
from mrtr_cassette.errors import CassetteError, NotJsonError

_SHARED_KINDS: Final[tuple[SharedKind, ...]] = ("email", "host", "ip", "user")
_CLIENT_INFO_PATHS: Final[tuple[MemberPath, ...]] = (
    ("params", "clientInfo"),
    ("params", "_meta", "io.modelcontextprotocol/clientInfo"),
)
_KEPT_OF_CLIENT: Final = ("name", "version")
_HOST_PLACEHOLDER: Final = placeholder(rule_of_kind("host"), "1")
_PORT_PATTERN = re.compile(r":\d+\Z")
_LOOPBACK_HOSTS: Final = ("localhost", "127.0.0.1", "[::1]")
_SHORTEST_FOLDER: Final = 6
"""Characters of a folder that no other text has by chance."""

_SHARED_FOLDER: Final = "/shared"
_BEFORE_PATH_PATTERN: Final = (
    rb"((?:\A|%b)(?:/\.well-known/[\w-]+)?)" % _HOST_PLACEHOLDER.encode()
)
_PATH_END_PATTERN: Final = rb"(?=[/?#\"\\\s]|\Z)"


class SharedCassette(NamedTuple):
    """A cassette for strangers, and how many descriptions of clients were cut short."""

    cassette: Cassette
    shortened_client_count: int


def shareable_cassette(
    cassette: Cassette, *, blanks_text: bool = False
) -> SharedCassette:
    """Return a cassette in which placeholders are in the places of what could identify somebody.

    The built-in rules of redaction are applied too, also those that were switched off. With
    `blanks_text`, texts of several words are replaced as well.

    Raises:
        CassetteError: it has raw request states.
    """
    if cassette.request_state == "verbatim":
        raise CassetteError(
            cassette.path,
            "it has raw request states, which may be secrets",
            hint="record it again with sealed ones, which is the default",
        )

    sharing = _Sharing(cassette, blanks_text=blanks_text)
    changed_exchanges = {}
    for exchange in cassette.exchanges:
        changed_exchanges[exchange] = sharing.without_found_secrets(exchange)

    for exchange, without_found in changed_exchanges.items():
        # A secret may be found after it was in a text where nothing tells it.
        changed_exchanges[exchange] = sharing.without_known_secrets(without_found)

    digests = digest_replacements({}, changed_exchanges.items())
    if digests:
        for exchange, changed_exchange in changed_exchanges.items():
            changed_exchanges[exchange] = exchange_with_changed_texts(
                changed_exchange, lambda raw, _name: with_digests(raw, digests)
            )

    shareable = replace(
        cassette.with_exchanges(changed_exchanges),
        redaction=sharing.rules,
        upstream=sharing.shareable_server(cassette.upstream),
        command=sharing.shareable_server(cassette.command or "") or None,
    )
    return SharedCassette(shareable, sharing.shortened_client_count)


class _Sharing:
    """Takes texts out of the exchanges of one cassette, the same one always for the same."""

    def __init__(self, cassette: Cassette, *, blanks_text: bool) -> None:
        rules_before = cassette.redaction or BUILT_IN_RULES
        kinds = _SHARED_KINDS
        if blanks_text:
            kinds = (*_SHARED_KINDS, "text")

        self.rules = replace(rules_before, disabled=(), shared=kinds)
        self.shortened_client_count = 0
        self._secret_numbers = _numbers_after(cassette)
        self._redactor = Redactor(self.rules, self._placeholder_number)
        # The whole cassette is searched for each secret, whatever was found after it.
        self._credentials = Credentials(
            self._redactor,
            seals_sessions=False,
            known_secrets=RepeatedSecrets(most_texts=None),
        )
        self._hosts = RepeatedSecrets()
        self._path_replacements: list[tuple[re.Pattern[bytes], bytes]] = []
        upstream = cassette.upstream
        is_known = is_started_here(upstream) or has_secrets(origin_in(upstream))
        if "://" in upstream and not is_known:
            self._add_server(upstream)

    def _placeholder_number(self, rule: str, secret: str) -> str:
        """Return the number of a secret's placeholder; a new secret gets the next of its rule."""
        return str(self._secret_numbers.number_of_secret(rule, secret))

    def _add_server(self, url: str) -> None:
        """Take the server's host and path, which are replaced from now on."""
        origin = origin_in(url)
        authority = origin.partition("://")[2].rpartition("@")[2]
        host = _PORT_PATTERN.sub("", authority)
        colon_and_port = authority[len(host) :]
        host_names = list(_LOOPBACK_HOSTS) if host in _LOOPBACK_HOSTS else [host]
        for host_name in host_names:
            if colon_and_port:
                host_and_port = f"{host_name}{colon_and_port}"
                self._hosts.add_known_text(
                    host_and_port, _HOST_PLACEHOLDER, is_permanent=True
                )

        if host not in _LOOPBACK_HOSTS:
            # A name without a dot may be a word.
            slashes = "" if "." in host else "//"
            placeholder_text = f"{slashes}{_HOST_PLACEHOLDER}"
            self._hosts.add_known_text(
                f"{slashes}{host}", placeholder_text, is_permanent=True
            )

        path = url[len(origin) :].partition("?")[0].rstrip("/")
        folder = path.rpartition("/")[0]
        if path and path != ENDPOINT:
            self._add_path(_BEFORE_PATH_PATTERN, path, ENDPOINT)

        if len(folder) >= _SHORTEST_FOLDER:
            self._add_path(rb"()", folder, _SHARED_FOLDER)

    def _add_path(self, before_pattern: bytes, path: str, new_path: str) -> None:
        """Take a path that another one replaces from now on, after what a pattern matches."""
        spelled_path = re.escape(as_bytes(path)).replace(b"/", rb"\\?/")
        pattern = re.compile(before_pattern + spelled_path + _PATH_END_PATTERN)
        self._path_replacements.append((pattern, rb"\g<1>%b" % new_path.encode()))

    def shareable_server(self, server: str) -> str:
        """Return the URL of the server, or the command that starts it, for strangers."""
        if "://" in server:
            if is_started_here(server):
                return server

            scheme = server.partition("://")[0]
            return f"{scheme}://{_HOST_PLACEHOLDER}{ENDPOINT}"

        words_without_folders = []
        for word in server.replace("\\", "/").split(" "):
            words_without_folders.append(word.rpartition("/")[2] or word)

        return self._redactor.redacted_text(" ".join(words_without_folders))

    def without_found_secrets(self, exchange: RecordedExchange) -> RecordedExchange:
        """Return an exchange without what rules find in it, and without the server's place."""
        request = exchange.request
        response = exchange.response or NO_RESPONSE
        request = replace(request, body=self._with_short_client_info(request.body))
        request, response = without_known_secrets(request, response, self._hosts)
        self._credentials.add_headers(request.headers)
        request, response = redacted_messages(request, response, self._redactor)
        if "text" in self.rules.shared:
            response = self._with_placeholder_for_text_body(response)

        without_secrets = with_messages(exchange, request, response)
        return exchange_with_changed_texts(without_secrets, self._with_shared_path)

    def without_known_secrets(self, exchange: RecordedExchange) -> RecordedExchange:
        """Return an exchange without the secrets that were found in others."""
        return exchange_without_known_secrets(exchange, self._credentials.known_secrets)

    def _with_placeholder_for_text_body(self, response: Response) -> Response:
        """Return a response without a text that is not JSON, such as the page of an error."""
        body = response.body
        if response.is_message_stream or len(body.split()) < 2:
            return response

        try:
            parse(body)
        except NotJsonError:
            page = body.decode("latin-1")
            placeholder = self._redactor.placeholder(rule_of_kind("text"), page)
            placeholder_piece = response.pieces[-1]._replace(raw=placeholder.encode())

            return replace(response, pieces=(placeholder_piece,))

        return response

    def _with_shared_path(self, raw: bytes, _name: str) -> bytes:
        """Return a text of an exchange in which the server's paths are replaced."""
        for pattern, replacement in self._path_replacements:
            raw = pattern.sub(replacement, raw)

        return raw

    def _with_short_client_info(self, body: bytes) -> bytes:
        """Return a request's body with no more of its client than name and version."""
        if b"clientInfo" not in body:
            return body

        try:
            client_infos = find_spans(body, _CLIENT_INFO_PATHS)
        except NotJsonError:
            return body

        client_info_replacements = []
        for _, span in client_infos:
            client_info = parse(span.slice_of(body))
            short_info = {}
            for name in _KEPT_OF_CLIENT:
                if name in members_of(client_info):
                    short_info[name] = client_info[name]

            if short_info != client_info:
                shortened = canonical(short_info).encode()
                client_info_replacements.append((span, shortened))

        self.shortened_client_count += len(client_info_replacements)
        return splice(body, client_info_replacements)


def _numbers_after(cassette: Cassette) -> SecretNumbers:
    """Return numbers of secrets that go on from those of a cassette's placeholders."""
    secret_numbers = SecretNumbers()

    def reserve_numbers(raw: bytes, _name: str) -> bytes:
        """Take the numbers of a text's placeholders; return the text as it is."""
        for secret in secrets_in(raw):
            secret_numbers.reserve_number(secret)

        return raw

    for exchange in cassette.exchanges:
        exchange_with_changed_texts(exchange, reserve_numbers)

    return secret_numbers
