"""Texts that a server made up and that its client sends back: the live server gets its own."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from mrtr_cassette.core.cassette.recorded import Cassette, RecordedExchange
from mrtr_cassette.core.cassette.texts import response_with_changed_texts
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
_PATHS_OF_SENT_HANDLES: Final[tuple[MemberPath, ...]] = (
    ("params", "arguments"),
    ("params", "argument"),
    ("params", "uri"),
    ("params", "inputResponses"),
    ("result",),
)
"""Where a client may send a handle back: in a call, or in an answer to a question."""

_COMMIT_SHA: Final = re.compile("[0-9a-f]{40}")
_SHORTEST_COMMIT_SHA: Final = 7
"""The digits of a commit's sha that clients send at least."""

_REPEATING_HEADER_PREFIXES: Final = ("mcp-name", "mcp-param-")
"""Begin the names of headers that repeat what the body has."""

_BASE64_HEADER_PREFIX: Final = "=?base64?"


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
            issued_handles = issued_texts.issued_texts_for(token)
            if not issued_handles:
                client_tokens.add(token)

            for text in issued_handles:
                yield SentBack(token, text, issued_texts.first_issuer[text], number)

        for text in handles_issued_in(exchange):
            issued_texts.note_issued_text(text, number)


class _IssuedTexts:
    """Texts that responses have, each by the number of the first interaction that has it."""

    def __init__(self) -> None:
        self.first_issuer: dict[str, int] = {}
        self._sha_by_digits: dict[str, str] = {}
        """Commits by the first digits of their shas."""

    def note_issued_text(self, text: str, number: int) -> None:
        """Take a text of a response."""
        self.first_issuer.setdefault(text, number)
        if _COMMIT_SHA.fullmatch(text):
            self._sha_by_digits[text[:_SHORTEST_COMMIT_SHA]] = text

    def issued_texts_for(self, token: str) -> list[str]:
        """Return the texts that a client may send back by a token: itself, or a commit's sha."""
        possible_texts = []
        if token in self.first_issuer:
            possible_texts.append(token)

        whole_commit_sha = self._sha_by_digits.get(token[:_SHORTEST_COMMIT_SHA], "")
        if whole_commit_sha != token and _is_start_of_sha(token, whole_commit_sha):
            possible_texts.append(whole_commit_sha)

        return possible_texts


def _is_start_of_sha(token: str, sha: str) -> bool:
    """Tell whether a text is a sha, or its first digits."""
    return len(token) >= _SHORTEST_COMMIT_SHA and sha.startswith(token)


def handles_sent_in(request: Request) -> set[str]:
    """Return the texts in a request that may be handles."""
    if read_call(request).message is None:
        return set()

    sent_words: set[str] = set()
    for _, span in find_spans(request.body, _PATHS_OF_SENT_HANDLES):
        sent_words.update(_long_words_outside_refs(span.slice_of(request.body)))

    return set(filter(_is_handle, sent_words))


def handles_issued_in(exchange: RecordedExchange) -> set[str]:
    """Return the texts in a response that may be handles; tools and prompts are called by names."""
    method = exchange.call.method
    is_of_resources = method.startswith("resources/")
    is_surface = method_of(method).describes_server and not is_of_resources
    if exchange.response is None or is_surface:
        return set()

    return set(filter(_is_handle, _long_words_outside_refs(exchange.response.body)))


def _long_words_outside_refs(raw: bytes) -> Iterator[str]:
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
        self._recorded_handles = set(handles)
        self._live_handles = live_handles
        self._live_by_recorded: dict[str, str] = {}
        self._recorded_by_live: dict[str, str] = {}

    def expect_handles(self, handles: Iterable[str]) -> None:
        """Take more of them."""
        self._recorded_handles.update(handles)

    @property
    def has_handles(self) -> bool:
        """Whether there are any."""
        return bool(self._recorded_handles)

    def knows_live_handle_for(self, recorded: str) -> bool:
        """Tell whether the live server's own is known."""
        return recorded in self._live_by_recorded

    def learn_live_handles(
        self, recorded: Message | None, live: Message | None
    ) -> None:
        """Take the live response to a call, which may have others in the recorded places."""
        if not self._recorded_handles or recorded is None or live is None:
            return

        changes = value_changes(recorded.tree.get("result"), live.tree.get("result"))
        for change in changes:
            for recorded_word, live_word in _differing_word_pairs(change):
                is_handle = recorded_word in self._recorded_handles
                if is_handle and self._may_be_live_handle(live_word):
                    self._note_live_handle(recorded_word, live_word)

    def _may_be_live_handle(self, token: str) -> bool:
        """Tell whether a word may be a handle of the other run."""
        return self._live_handles is None or token in self._live_handles

    def _note_live_handle(self, recorded: str, live: str) -> None:
        """Take the live handle in the place of a recorded one."""
        for recorded_spelling in self._spellings_of_handle(recorded):
            live_spelling = live
            if recorded_spelling != recorded:
                live_spelling = live[: len(recorded_spelling)]

            self._live_by_recorded[recorded_spelling] = live_spelling
            if _is_handle(live_spelling):
                self._recorded_by_live[live_spelling] = recorded_spelling

    def _spellings_of_handle(self, recorded: str) -> list[str]:
        """Return a handle, and what a client has sent of it if it is a sha."""
        if not _COMMIT_SHA.fullmatch(recorded):
            return [recorded]

        spellings = []
        for handle in self._recorded_handles:
            if _is_start_of_sha(handle, recorded):
                spellings.append(handle)

        return spellings

    def answer_in_live(self, answer: bytes) -> bytes:
        """Return a recorded answer with the live server's handles."""
        return _with_other_handles(answer, self._live_by_recorded)

    def with_live_handles(self, request: Request) -> Request:
        """Return a recorded request with the live server's handles."""
        return _request_with_other_handles(request, self._live_by_recorded)

    def with_recorded_handles(self, exchange: RecordedExchange) -> RecordedExchange:
        """Return a live exchange with the recorded handles; itself if it has none."""
        recorded_by_live = self._recorded_by_live
        if not recorded_by_live:
            return exchange

        request = _request_with_other_handles(exchange.request, recorded_by_live)
        response = exchange.response
        if response is not None:
            response = response_with_changed_texts(
                response, lambda raw, _: _with_other_handles(raw, recorded_by_live)
            )

        if request == exchange.request and response == exchange.response:
            return exchange

        return replace(exchange, request=request, response=response)


def _request_with_other_handles(
    request: Request, new_by_old: Mapping[str, str]
) -> Request:
    """Return a request with other handles where a client sends them back."""
    if not new_by_old or read_call(request).message is None:
        return request

    replacements = []
    for _, span in find_spans(request.body, _PATHS_OF_SENT_HANDLES):
        sent_value = span.slice_of(request.body)
        replacements.append((span, _with_other_handles(sent_value, new_by_old)))

    headers = []
    # The body may have another length.
    for name, value in without_header(request.headers, "content-length"):
        headers.append((name, _header_with_other_handles(name, value, new_by_old)))

    body = splice(request.body, replacements)
    return replace(request, headers=tuple(headers), body=body)


def _header_with_other_handles(
    name: str, value: str, new_by_old: Mapping[str, str]
) -> str:
    """Return the value of a header with other handles, if it repeats what the body has."""
    if not name.lower().startswith(_REPEATING_HEADER_PREFIXES):
        return value
    if value.startswith(_BASE64_HEADER_PREFIX):
        return value

    replaced_value = _TOKEN_PATTERN.sub(
        lambda match: new_by_old.get(match[0], match[0]), value
    )
    if replaced_value == value:
        return value

    return header_text(replaced_value)


def _with_other_handles(raw: bytes, new_by_old: Mapping[str, str]) -> bytes:
    """Return JSON with other words in its texts, and other numbers for numbers."""

    def replaced_word(match: re.Match[bytes]) -> bytes:
        word = match[0].decode("latin-1")
        return new_by_old.get(word, word).encode("latin-1")

    def with_replaced_words(match: re.Match[bytes]) -> bytes:
        """Return a text with other words, or a number replaced by another number."""
        text_or_number = match[0]
        replaced = _ESCAPE_OR_LONG_TOKEN.sub(replaced_word, text_or_number)
        is_text = text_or_number.startswith(b'"')
        if is_text or replaced.isdigit():
            return replaced

        return text_or_number

    return _TEXT_OR_NUMBER.sub(with_replaced_words, raw)


def _differing_word_pairs(change: Change) -> Iterator[tuple[str, str]]:
    """Yield the words of two values that differ, in pairs by their places."""
    recorded = _text_or_number(change.recorded)
    received = _text_or_number(change.received)
    if recorded is None or received is None:
        return

    old_words = _TOKEN_PATTERN.findall(recorded)
    new_words = _TOKEN_PATTERN.findall(received)
    for old_index, new_index in paired_indices(old_words, new_words):
        if old_index is not None and new_index is not None:
            yield old_words[old_index], new_words[new_index]


def _text_or_number(value: str | None) -> str | None:
    """Return a text, or a number as one; None for what is neither."""
    if value is None or value.startswith(("[", "{", "t", "f", "n")):
        return None
    if value.startswith('"'):
        return str(json.loads(value))
    return value
