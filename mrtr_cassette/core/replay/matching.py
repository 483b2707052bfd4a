"""The form in which a request is matched: states, answers and secrets as they were recorded.

Rule: what stands for a state, an answer or a secret counts in a cassette, and from a client only
where this replay gave it out; anything else that looks so is the client's own text.
Source: docs/matching.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import lru_cache
from typing import Final, NamedTuple

from mrtr_cassette.core.exchange.lookup import LookupKey, lookup_key
from mrtr_cassette.core.exchange.recorded import Cassette
from mrtr_cassette.core.protocol.calls import CallKey, read_call
from mrtr_cassette.core.replay.given import GivenOut
from mrtr_cassette.core.secrets.answers import looks_sealed, seal_answers
from mrtr_cassette.core.secrets.credentials import Credentials, Given
from mrtr_cassette.core.secrets.placeholders import (
    LONGEST_TOKEN,
    PLACEHOLDER,
    placeholder,
    placeholders_in,
    renumber,
    without_numbers,
    without_rules,
)
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.secrets.states import may_have_states, seal_states
from mrtr_cassette.core.secrets.surrogates import SEALED_HASH, as_recorded, sealed_hash
from mrtr_cassette.core.wire.http import Headers, Request, named_by_user
from mrtr_cassette.core.wire.jsonbytes import MemberPath

_RECEIVED: Final = "received."
"""What the token of a secret that a client sent begins with; a cassette's tokens are numbers."""
_NOT_GIVEN: Final = "not-given."
"""The same for what looks like a placeholder, and was not given to the client."""


class Secret(NamedTuple):
    """What stands for a secret.

    Attributes:
        rule: the rule that found it.
        token: tells it from others of this rule.
    """

    rule: str
    token: str

    @property
    def is_received(self) -> bool:
        """Whether a client sent the secret itself."""
        return self.token.startswith(_RECEIVED)


def secrets_in(lookup: LookupKey) -> tuple[Secret, ...]:
    """Return what stands for secrets in a lookup key, in the order of its canonical texts."""
    return tuple(
        Secret(match["rule"], match["token"])
        for text in (*lookup.call, lookup.answers or "")
        for match in placeholders_in(text)
    )


def redactor_of(cassette: Cassette) -> Redactor | None:
    """Return what redacts by a cassette's rules, all secrets of a rule alike, or None."""
    if cassette.redaction is None:
        return None
    return Redactor(cassette.redaction, _same_token)


def _same_token(_rule: str, _secret: str) -> str:
    return "0"


class MatchedForm:
    """Turns requests into the form in which they are compared with one cassette's.

    Attributes:
        header_names: lower-case names of the headers that were kept because the user named them.
        has_placeholders: some recorded request has placeholders of secrets.
    """

    def __init__(self, cassette: Cassette, given: GivenOut) -> None:
        """Look at how a cassette was recorded.

        Args:
            cassette: what was recorded.
            given: what the replay gave the client.
        """
        self._given = given
        self._states_are_sealed = cassette.request_state == "sealed"
        self._answers_are_sealed = cassette.seals_answers
        self._redactor = redactor_of(cassette)
        self._telling_redactor: Redactor | None = None
        self._credentials: Credentials | None = None
        self._tokens: dict[Secret, str] = {}
        self.header_names: frozenset[str] = frozenset().union(
            *{
                named_by_user(exchange.request.headers)
                for interaction in cassette.interactions
                for exchange in interaction.own
            }
        )
        self.has_placeholders = self._redactor is not None and any(
            has_placeholders(exchange.request)
            for interaction in cassette.interactions
            for exchange in interaction.own
        )
        if self.has_placeholders and cassette.redaction is not None:
            self._telling_redactor = Redactor(cassette.redaction, self._token)
        redactor = self._telling_redactor or self._redactor
        if redactor is not None:
            self._credentials = Credentials(redactor, seals_sessions=False)
        # A cassette that was written by hand has no rules, but what is shown of it has.
        self._showing_redactor = self._redactor or Redactor(RedactionRules(), _same_token)

    def was_given(self, given: Given) -> None:
        """Look for the credentials in what the server was given from now on."""
        if self._credentials is not None:
            self._credentials.was_given(given)

    def keeps_body(self, recorded: Request) -> bool:
        """Tell whether the bytes of a recorded request, as it is matched, match by themselves."""
        if self.has_placeholders or self._answers_are_sealed or self.header_names:
            return False
        # The hash of a state counts only where it was given.
        return b"sha256" not in recorded.body or not may_have_states(recorded.body)

    def recorded(self, request: Request) -> Request:
        """Return a recorded request as it is matched, its secrets told apart."""
        new_state = as_recorded if self._states_are_sealed else _raw
        request = self._sealed(request, new_state, looks_sealed)
        return self._redacted(request)

    def received(self, request: Request) -> Request:
        """Return a client's request as it is matched; the same one where nothing has to change."""
        if self._telling_redactor is not None and self._credentials is not None:
            self._credentials.seen(request.headers)
        new_state = self._received_state if self._states_are_sealed else _raw
        request = self._sealed(request, new_state, self._is_given_answer)
        if not self.has_placeholders or not _may_have_placeholders(request):
            return self._redacted(request)
        # What is not ours stays what it looks like until secrets have been found: it is none.
        marked = _changed(request, self._marked)
        return _changed(self._redacted(marked), _disowned)

    def _sealed(
        self,
        request: Request,
        new_state: Callable[[str], str],
        is_sealed_answer: Callable[[str], bool],
    ) -> Request:
        body = request.body
        if self._states_are_sealed or b"sha256" in body or b"\\u" in body:
            body = seal_states(body, new_state)
        if self._answers_are_sealed:
            body = seal_answers(body, is_sealed_answer)
        return request if body == request.body else replace(request, body=body)

    def _redacted(self, request: Request) -> Request:
        if self._telling_redactor is None or self._credentials is None:
            return request
        return self._credentials.sealed_request(self._telling_redactor.request(request))

    def _received_state(self, state: str) -> str:
        sealed = SEALED_HASH.fullmatch(state)
        if sealed is not None and f"sha256:{sealed[2]}" not in self._given:
            return sealed_hash(state)
        return as_recorded(state)

    def _is_given_answer(self, text: str) -> bool:
        return looks_sealed(text) and text in self._given

    def _marked(self, text: str) -> str:
        def marked(rule: str, token: str) -> str | None:
            is_given = placeholder(rule, token) in self._given
            return None if is_given else f"{_NOT_GIVEN}{token}"[:LONGEST_TOKEN]

        return renumber(text, marked)

    def _token(self, rule: str, secret: str) -> str:
        return self._tokens.setdefault(Secret(rule, secret), f"{_RECEIVED}{len(self._tokens)}")

    def told(self, request: Request) -> Request:
        """Return a client's request as it is matched, without secrets, for what is told of it."""
        matched = self.received(request)
        if self._redactor is None or self._credentials is None:
            return matched
        # Once more would take what was not given for a secret.
        if not self.has_placeholders:
            self._credentials.seen(request.headers)
            matched = self._credentials.sealed_request(self._redactor.request(matched))
        return all_alike(matched)

    def shown(self, text: str) -> str:
        """Return a text for the terminal, without known secrets."""
        return self._showing_redactor.text(text)


def alike(
    matched: MatchedForm, request: Request, ignored: Collection[MemberPath]
) -> tuple[Request, tuple[Secret, ...]]:
    """Return a request in which all secrets of a rule are the same one, and which they are."""
    if not matched.has_placeholders:
        return request, ()
    same = all_alike(request)
    if same == request:
        return request, ()
    return same, secrets_in(lookup_key(read_call(request), ignored))


def by_any_rule(lookup: LookupKey) -> LookupKey:
    """Return a lookup key in which placeholders don't tell their rules either."""
    call, state, answers = lookup
    return LookupKey(
        CallKey(*map(without_rules, call)),
        state,
        None if answers is None else without_rules(answers),
    )


def has_placeholders(request: Request) -> bool:
    """Tell whether a request has placeholders of secrets."""
    return _may_have_placeholders(request) and all_alike(request) != request


def all_alike(request: Request) -> Request:
    """Return a request in which all secrets of a rule are the same one."""
    return _changed(request, without_numbers)


def _changed(request: Request, change: Callable[[str], str]) -> Request:
    return Request(
        request.method,
        change(request.target),
        tuple((name, change(value)) for name, value in request.headers),
        change(request.body.decode("latin-1")).encode("latin-1"),
    )


def _disowned(text: str) -> str:
    """Return a text in which what is marked as not given is no placeholder any more."""

    def disowned(match: re.Match[str]) -> str:
        token = match["token"]
        if not token.startswith(_NOT_GIVEN):
            return match[0]
        return match[0].replace(token, f"{token.removeprefix(_NOT_GIVEN)}~not-given")

    return PLACEHOLDER.sub(disowned, text)


def _raw(state: str) -> str:
    """Return a state that is no hash, whatever it looks like."""
    return sealed_hash(state) if SEALED_HASH.fullmatch(state) else state


def _may_have_placeholders(request: Request) -> bool:
    # As they are, escaped in JSON, or percent-encoded.
    body = request.body
    return (
        # Quicker than `in`, which takes a number too.
        body.find(b"<") >= 0
        or body.find(b"003") >= 0
        or body.find(b"%3") >= 0
        or "%3" in request.target
        or _has_angle(request.headers)
    )


@lru_cache(maxsize=1024)
def _has_angle(headers: Headers) -> bool:
    return any("<" in value for _, value in headers)
