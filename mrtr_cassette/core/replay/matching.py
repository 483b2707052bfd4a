"""The form in which a request is matched: states, answers and secrets as they were recorded.

Owns: turning what a client sends, and what was recorded, into that form.
Does not own: what is compared (`exchange.lookup`), what a request gets (`player`).
Rule: which of several secrets it was is not known any more, so a placeholder tells its rule only.
Source: docs/matching.md.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from mrtr_cassette.core.exchange.lookup import LookupKey
from mrtr_cassette.core.exchange.recorded import Cassette
from mrtr_cassette.core.protocol.calls import CallKey
from mrtr_cassette.core.secrets.answers import seal_answers
from mrtr_cassette.core.secrets.placeholders import without_numbers, without_rules
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.states import seal_states
from mrtr_cassette.core.secrets.surrogates import as_recorded
from mrtr_cassette.core.wire.http import Headers, Request


def redactor_of(cassette: Cassette) -> Redactor | None:
    """Return what redacts by a cassette's rules, all secrets of a rule alike, or None."""
    if cassette.redaction is None:
        return None
    return Redactor(cassette.redaction, lambda _rule, _secret: "0")


class MatchedForm:
    """Turns requests into the form in which they are compared with one cassette's.

    Attributes:
        has_placeholders: some recorded request has placeholders of secrets.
    """

    def __init__(self, cassette: Cassette) -> None:
        """Look at how a cassette was recorded."""
        self._states_are_sealed = cassette.request_state == "sealed"
        self._answers_are_sealed = cassette.seals_answers
        self._redactor = redactor_of(cassette)
        self.has_placeholders = self._redactor is not None and any(
            has_placeholders(exchange.request)
            for interaction in cassette.interactions
            for exchange in interaction.own
        )

    @property
    def keeps_bodies(self) -> bool:
        """Whether a request without states is matched as it was sent."""
        return not (self.has_placeholders or self._answers_are_sealed)

    def of(self, request: Request) -> Request:
        """Return a request as it is matched; the same one where nothing has to change."""
        body = request.body
        if self._states_are_sealed:
            body = seal_states(body, as_recorded)
        if self._answers_are_sealed:
            body = seal_answers(body)
        if body != request.body:
            request = replace(request, body=body)
        return self.without_secrets(request) if self.has_placeholders else request

    def without_secrets(self, request: Request) -> Request:
        """Return a request in which secrets are placeholders; the same one where it has none."""
        if self._redactor is None:
            return request
        redacted = _without_numbers(self._redactor.request(request))
        return request if redacted == request else redacted

    def shown(self, text: str) -> str:
        """Return a text for the terminal, without what the cassette's rules know as secrets."""
        return text if self._redactor is None else self._redactor.text(text)


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
    return _may_have_placeholders(request) and _without_numbers(request) != request


def _without_numbers(request: Request) -> Request:
    return Request(
        request.method,
        without_numbers(request.target),
        tuple((name, without_numbers(value)) for name, value in request.headers),
        without_numbers(request.body.decode("latin-1")).encode("latin-1"),
    )


def _may_have_placeholders(request: Request) -> bool:
    # As they are, escaped in JSON, or percent-encoded.
    body = request.body
    return (
        # Quicker than `in`, which takes a number too.
        max(map(body.find, (b"<", b"003", b"%3"))) >= 0
        or "%3" in request.target
        or _has_angle(request.headers)
    )


@lru_cache(maxsize=1024)
def _has_angle(headers: Headers) -> bool:
    return any("<" in value for _, value in headers)
