"""Texts that a server made up and that its client sends back: the live server gets its own."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from mrtr_cassette.core.cassette.recorded import Cassette, RecordedExchange
from mrtr_cassette.core.cassette.texts import response_with
from mrtr_cassette.core.compare.values import Change, paired_indices, value_changes
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.protocol.jsonrpc import Message
from mrtr_cassette.core.protocol.methods import method_of
from mrtr_cassette.core.secrets.names import Ref, split_at_refs
from mrtr_cassette.core.secrets.sealed import reads_as_words
from mrtr_cassette.core.wire.http import Request, header_text, without_header
from mrtr_cassette.core.wire.jsonbytes import MemberPath, find_spans, splice

_SHORTEST_HANDLE: Final = 6
_TOKEN_PATTERN: Final = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_ESCAPE_OR_LONG_TOKEN: Final = re.compile(
    rb"\\+(?:u[0-9A-Fa-f]{4}|.)|[A-Za-z0-9_-]{%d,}" % _SHORTEST_HANDLE, re.DOTALL
)
"""An escape of JSON, or a token that is long enough for a handle."""

_TEXT_OR_NUMBER: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[0-9]+')
_DIGIT: Final = re.compile("[0-9]")
_SENT_BACK_PATHS: Final[tuple[MemberPath, ...]] = (
    ("params", "arguments"),
    ("params", "argument"),
    ("params", "uri"),
    ("params", "inputResponses"),
    ("result",),
)
"""Where a client may send a handle back: in a call, or in an answer to a question."""

_SHA_PATTERN: Final = re.compile("[0-9a-f]{40}")
_SHORTEST_SHA: Final = 7
"""The digits of a commit's sha that clients send at least."""

_HEADER_PREFIXES: Final = ("mcp-name", "mcp-param-")
"""Begin the names of headers that repeat what the body has."""

_ENCODED_PREFIX: Final = "=?base64?"


def _is_handle(token: str) -> bool:
    """Tell whether a text may be made up: it is no word and no small number."""
    if len(token) < _SHORTEST_HANDLE or token.startswith("mrtr-"):
        return False
    return _DIGIT.search(token) is not None or not reads_as_words(token)


class SentBack(NamedTuple):
    """A handle in an interaction's requests, and the interaction whose response has it first.

    `issued` is the whole of it, of which a client may send the beginning back.
    """

    handle: str
    issued: str
    issued_by: int
    sent_by: int


def handles_in(cassette: Cassette) -> frozenset[str]:
    """Return the texts that a recorded response has first, and a later request too."""
    handles = set()
    for repeated in sent_back_in(cassette):
        handles |= {repeated.handle, repeated.issued}

    return frozenset(handles)


def sent_back_in(cassette: Cassette) -> Iterator[SentBack]:
    """Yield each handle of a recording with the interactions that send it back, in their order."""
    exchanges = []
    for interaction in cassette.interactions:
        for exchange in interaction.unshared_exchanges:
            exchanges.append((interaction.number, exchange))

    exchanges.sort(key=lambda numbered_exchange: numbered_exchange[1].number or 0)
    issued_texts = _IssuedTexts()
    client_tokens: set[str] = set()
    for number, exchange in exchanges:
        for token in sorted(handles_sent_in(exchange.request) - client_tokens):
            texts = issued_texts.issued_texts_for(token)
            if not texts:
                client_tokens.add(token)

            for text in texts:
                yield SentBack(token, text, issued_texts.first_issuer[text], number)

        for text in handles_issued_in(exchange):
            issued_texts.add(text, number)


class _IssuedTexts:
    """Texts that responses have, each by the number of the first interaction that has it."""

    def __init__(self) -> None:
        self.first_issuer: dict[str, int] = {}
        self._sha_by_digits: dict[str, str] = {}
        """Commits by the first digits of their shas."""

    def add(self, text: str, number: int) -> None:
        """Take a text of a response."""
        self.first_issuer.setdefault(text, number)
        if _SHA_PATTERN.fullmatch(text):
            self._sha_by_digits[text[:_SHORTEST_SHA]] = text

    def issued_texts_for(self, token: str) -> list[str]:
        """Return the texts that a client may send back by a token: itself, or a commit's sha."""
        texts = []
        if token in self.first_issuer:
            texts.append(token)

        whole_commit_sha = self._sha_by_digits.get(token[:_SHORTEST_SHA], "")
        if whole_commit_sha != token and _is_beginning(token, whole_commit_sha):
            texts.append(whole_commit_sha)

        return texts


def _is_beginning(token: str, sha: str) -> bool:
    """Tell whether a text is a sha, or its first digits."""
    return len(token) >= _SHORTEST_SHA and sha.startswith(token)


def handles_sent_in(request: Request) -> set[str]:
    """Return the texts in a request that may be handles."""
    if read_call(request).message is None:
        return set()

    tokens: set[str] = set()
    for _, span in find_spans(request.body, _SENT_BACK_PATHS):
        tokens.update(_handle_words(span.slice_of(request.body)))

    return set(filter(_is_handle, tokens))


def handles_issued_in(exchange: RecordedExchange) -> set[str]:
    """Return the texts in a response that may be handles; tools and prompts are called by names."""
    method = exchange.call.method
    is_of_resources = method.startswith("resources/")
    is_surface = method_of(method).describes_server and not is_of_resources
    if exchange.response is None or is_surface:
        return set()

    return set(filter(_is_handle, _handle_words(exchange.response.body)))


def _handle_words(raw: bytes) -> Iterator[str]:
    """Yield the words in JSON that are long enough for handles, and in none of our names."""
    for part in split_at_refs(raw):
        if isinstance(part, Ref):
            continue

        for match in _ESCAPE_OR_LONG_TOKEN.finditer(part):
            if not match[0].startswith(b"\\"):
                yield match[0].decode()


class Handles:
    """Some handles, and what another run of the server has in their places: the live one."""

    def __init__(
        self, handles: Iterable[str] = (), live_handles: Collection[str] | None = None
    ) -> None:
        """Take the handles of a recording, and those of the other run as far as it is recorded."""
        self._handle_names = set(handles)
        self._live_handles = live_handles
        self._live_by_recorded: dict[str, str] = {}
        self._recorded_by_live: dict[str, str] = {}

    def expect_handles(self, handles: Iterable[str]) -> None:
        """Take more of them."""
        self._handle_names.update(handles)

    @property
    def has_handles(self) -> bool:
        """Whether there are any."""
        return bool(self._handle_names)

    def is_known(self, name: str) -> bool:
        """Tell whether the live server's own is known."""
        return name in self._live_by_recorded

    def take_response(self, recorded: Message | None, live: Message | None) -> None:
        """Take the live response to a call, which may have others in the recorded places."""
        if not self._handle_names or recorded is None or live is None:
            return

        changes = value_changes(recorded.tree.get("result"), live.tree.get("result"))
        for change in changes:
            for old, new in _token_pairs(change):
                if old in self._handle_names and self._may_be_live(new):
                    self._take_pair(old, new)

    def _may_be_live(self, token: str) -> bool:
        """Tell whether a word may be a handle of the other run."""
        return self._live_handles is None or token in self._live_handles

    def _take_pair(self, recorded: str, live: str) -> None:
        """Take the live handle in the place of a recorded one."""
        for name in self._handle_spellings(recorded):
            live_name = live
            if name != recorded:
                live_name = live[: len(name)]

            self._live_by_recorded[name] = live_name
            if _is_handle(live_name):
                self._recorded_by_live[live_name] = name

    def _handle_spellings(self, name: str) -> list[str]:
        """Return a handle, and what a client has sent of it if it is a sha."""
        if not _SHA_PATTERN.fullmatch(name):
            return [name]
        return [handle for handle in self._handle_names if _is_beginning(handle, name)]

    def answer_in_live(self, answer: bytes) -> bytes:
        """Return a recorded answer with the live server's handles."""
        return _with_other_handles(answer, self._live_by_recorded)

    def with_live_handles(self, request: Request) -> Request:
        """Return a recorded request with the live server's handles."""
        return _with_handles(request, self._live_by_recorded)

    def with_recorded_handles(self, exchange: RecordedExchange) -> RecordedExchange:
        """Return a live exchange with the recorded handles; itself if it has none."""
        recorded_by_live = self._recorded_by_live
        if not recorded_by_live:
            return exchange

        request = _with_handles(exchange.request, recorded_by_live)
        response = exchange.response
        if response is not None:
            response = response_with(
                response, lambda raw, _: _with_other_handles(raw, recorded_by_live)
            )

        if request == exchange.request and response == exchange.response:
            return exchange

        return replace(exchange, request=request, response=response)


def _with_handles(request: Request, new: Mapping[str, str]) -> Request:
    """Return a request with other handles where a client sends them back."""
    if not new or read_call(request).message is None:
        return request

    replacements = []
    for _, span in find_spans(request.body, _SENT_BACK_PATHS):
        part = span.slice_of(request.body)
        replacements.append((span, _with_other_handles(part, new)))

    headers = []
    # The body may have another length.
    for name, value in without_header(request.headers, "content-length"):
        headers.append((name, _header_with_handles(name, value, new)))

    body = splice(request.body, replacements)
    return replace(request, headers=tuple(headers), body=body)


def _header_with_handles(name: str, value: str, new: Mapping[str, str]) -> str:
    """Return the value of a header with other handles, if it repeats what the body has."""
    if not name.lower().startswith(_HEADER_PREFIXES):
        return value
    if value.startswith(_ENCODED_PREFIX):
        return value

    replaced_value = _TOKEN_PATTERN.sub(
        lambda match: new.get(match[0], match[0]), value
    )
    if replaced_value == value:
        return value

    return header_text(replaced_value)


def _with_other_handles(raw: bytes, new: Mapping[str, str]) -> bytes:
    """Return JSON with other words in its texts, and other numbers for numbers."""

    def word(match: re.Match[bytes]) -> bytes:
        token = match[0].decode("latin-1")
        return new.get(token, token).encode("latin-1")

    def value(match: re.Match[bytes]) -> bytes:
        """Return a text with other words, or a number replaced by another number."""
        recorded = match[0]
        replaced_text = _ESCAPE_OR_LONG_TOKEN.sub(word, recorded)
        is_text = recorded.startswith(b'"')
        if is_text or replaced_text.isdigit():
            return replaced_text

        return recorded

    return _TEXT_OR_NUMBER.sub(value, raw)


def _token_pairs(change: Change) -> Iterator[tuple[str, str]]:
    """Yield the words of two values that differ, in pairs by their places."""
    recorded = _text_or_number(change.recorded)
    received = _text_or_number(change.received)
    if recorded is None or received is None:
        return

    old = _TOKEN_PATTERN.findall(recorded)
    new = _TOKEN_PATTERN.findall(received)
    for old_index, new_index in paired_indices(old, new):
        if old_index is not None and new_index is not None:
            yield old[old_index], new[new_index]


def _text_or_number(value: str | None) -> str | None:
    """Return a text, or a number as one; None for what is neither."""
    if value is None or value.startswith(("[", "{", "t", "f", "n")):
        return None
    if value.startswith('"'):
        return str(json.loads(value))
    return value
