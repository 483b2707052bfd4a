"""Secrets that stand on a cassette all the same.

Owns: where on a cassette the rules of redaction find something.
Does not own: the rules (`secrets.rules`), what replaces secrets while recording (`sealing`).
Rule: a cassette is searched by its own rules; one that was not redacted by the built-in ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from mrtr_cassette.core.exchange.recorded import Cassette, TurnPlace
from mrtr_cassette.core.record.sealing import redacted
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.wire.http import Request, Response

_NOTHING = Request("GET", "/", (), b"")
"""A request in which there is nothing to find."""


class ExposedSecret(NamedTuple):
    """A secret that can be read on a cassette.

    Attributes:
        interaction: number of its interaction, from 1.
        place: where in the interaction its exchange stands.
        side: whether the request has it or the response.
        rule: the rule of redaction that finds it.
    """

    interaction: int
    place: TurnPlace
    side: Literal["request", "response"]
    rule: str


def exposed_secrets(cassette: Cassette) -> Iterator[ExposedSecret]:
    """Yield what the rules of redaction find on a cassette; a rule once for each side."""
    rules = cassette.redaction or RedactionRules()
    for interaction in cassette.interactions:
        for exchange, place in zip(interaction.own, interaction.places, strict=True):
            for rule in _rules_in_request(rules, exchange.request):
                yield ExposedSecret(interaction.number, place, "request", rule)
            for rule in _rules_in_response(rules, exchange.response):
                yield ExposedSecret(interaction.number, place, "response", rule)


def _rules_in_request(rules: RedactionRules, request: Request) -> list[str]:
    redactor, matched = _noting(rules)
    redactor.request(request)
    return list(matched)


def _rules_in_response(rules: RedactionRules, response: Response | None) -> list[str]:
    redactor, matched = _noting(rules)
    if response is not None:
        redacted(_NOTHING, response, redactor)
    return list(matched)


def _noting(rules: RedactionRules) -> tuple[Redactor, dict[str, None]]:
    """Return what redacts one text, and where it notes the rules that found something in it."""
    matched: dict[str, None] = {}

    def token(rule: str, _secret: str) -> str:
        matched[rule] = None
        return "0"

    return Redactor(rules, token), matched
