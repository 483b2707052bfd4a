"""Secrets that stand on a cassette all the same.

Rule: a cassette is searched by its own rules; one that was not redacted by the built-in ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from mrtr_cassette.core.exchange.recorded import Cassette, TurnPlace
from mrtr_cassette.core.record.sealing import redacted
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.wire.http import NO_STATUS, End, Request, Response

Side = Literal["request", "response"]

_NO_REQUEST = Request("GET", "/", (), b"")
_NO_RESPONSE = Response(NO_STATUS, (), (), End.COMPLETE)


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
    side: Side
    rule: str


def exposed_secrets(cassette: Cassette) -> Iterator[ExposedSecret]:
    """Yield what the rules of redaction find on a cassette; a rule once for each side."""
    rules = cassette.redaction or RedactionRules()
    for interaction in cassette.interactions:
        for exchange, place in zip(interaction.own, interaction.places, strict=True):
            sides: tuple[tuple[Side, Request, Response | None], ...] = (
                ("request", exchange.request, _NO_RESPONSE),
                ("response", _NO_REQUEST, exchange.response),
            )
            for side, request, response in sides:
                for rule in _rules_that_match(rules, request, response or _NO_RESPONSE):
                    yield ExposedSecret(interaction.number, place, side, rule)


def _rules_that_match(rules: RedactionRules, request: Request, response: Response) -> list[str]:
    matched: dict[str, None] = {}

    def token(rule: str, _secret: str) -> str:
        matched[rule] = None
        return "0"

    redacted(request, response, Redactor(rules, token))
    return list(matched)
