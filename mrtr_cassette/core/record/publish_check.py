"""Reasons not to publish a recording automatically, and secrets that are on a cassette anyway."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    ExchangePlace,
    RecordedExchange,
)
from mrtr_cassette.core.protocol.jsonrpc import messages_in
from mrtr_cassette.core.record.sealing import NO_RESPONSE, Side, redacted_messages
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.wire.http import Request, Response, header_value
from mrtr_cassette.errors import printable
from mrtr_cassette.terms import LIBRARY_TERMS, Terms, in_terms

HTML = "HTML"
_ADVICE_BY_ERROR: Mapping[str, str] = {
    **dict.fromkeys(
        ("401", "403"), "does the server want credentials, such as <<header_form>>?"
    ),
    **dict.fromkeys(("404", "405"), "is the path {path} right?"),
    **dict.fromkeys(("502", "503", "504"), "does the server run?"),
}


@dataclass(slots=True)
class Outcomes:
    """Whether the exchanges of a recording are errors of the transport."""

    errors: dict[int, tuple[str, str]] = field(default_factory=dict)
    """By number, the error of the transport that an exchange is, such as `404`, and its path."""

    has_success: bool = False
    """An exchange is no error, which says enough: no more is kept of a long recording."""

    def note_outcome(self, exchange: RecordedExchange) -> None:
        """Take note of an exchange; of a later state of one, if it comes again."""
        request = exchange.request
        response = exchange.response
        if response is None or request.method == "OPTIONS":
            return
        if response.is_lines and not response.pieces:
            return
        if response.status == 405 and request.method != "POST":
            # A server that has no stream and no sessions says so.
            return

        error = _transport_error(response)
        # A refusal in JSON-RPC is MCP, whatever its HTTP status.
        if error is None or messages_in(response):
            self.has_success = True
            self.errors.clear()
        else:
            path, _, _ = request.target.partition("?")
            self.errors[exchange.number or 0] = (error, path)

    @property
    def has_response(self) -> bool:
        """Whether an exchange has a response that says something about the server."""
        return bool(self.errors) or self.has_success

    @property
    def has_only_errors(self) -> bool:
        """Whether there are exchanges, and all are errors that are not MCP's."""
        return bool(self.errors) and not self.has_success

    def why_not_publish(
        self,
        failure: str | None = None,
        terms: Terms = LIBRARY_TERMS,
        *,
        is_started: bool = False,
    ) -> str | None:
        """Return why a recording is hardly what was meant, as a sentence; None if it may be.

        One exchange that is no error is enough, unless the recorded command failed. We choose the
        path of a server that `is_started` here.
        """
        if not self.has_only_errors:
            return failure

        error_count = len(self.errors)
        requests = (
            "the only request" if error_count == 1 else f"all {error_count} requests"
        )
        error_names = " or ".join(sorted({error for error, _ in self.errors.values()}))
        error, path = next(iter(self.errors.values()))
        advice = _ADVICE_BY_ERROR.get(error, "is the upstream an MCP server?").format(
            path=printable(path)
        )
        if path in ("", "/") and "path" in advice:
            advice = "the URL has no path, and most servers have /mcp"
        elif is_started and "path" in advice:
            advice = f"{advice} name another one with <<upstream_path>>"

        return in_terms(f"{requests} got {error_names}; {advice}", terms)


def _transport_error(response: Response) -> str | None:
    """Return the error of the transport that a response is; None for any other response."""
    if response.status >= 300:
        return str(response.status)

    content_type = header_value(response.headers, "content-type")
    media_type, _, _ = content_type.partition(";")
    return HTML if media_type.strip().lower() == "text/html" else None


def exposed_secrets(cassette: Cassette) -> Iterator[tuple[ExchangePlace, Side, str]]:
    """Yield what rules of redaction find on a cassette; a rule once for each side.

    It is searched by its own rules; one that was not redacted by the built-in ones.
    """
    found_rules = []

    def note_found_rule(rule: str, _secret: str) -> str:
        found_rules.append(rule)
        return "0"

    rules = cassette.redaction or RedactionRules()
    empty_request = Request("GET", "/", (), b"")
    for interaction in cassette.interactions:
        for exchange, place in interaction.placed_exchanges:
            sides: dict[Side, tuple[Request, Response]] = {
                "request": (exchange.request, NO_RESPONSE),
                "response": (empty_request, exchange.response or NO_RESPONSE),
            }
            for side, (request, response) in sides.items():
                # A redactor asks for the tokens of equal headers only once.
                redacted_messages(request, response, Redactor(rules, note_found_rule))
                for rule in dict.fromkeys(found_rules):
                    yield place, side, rule

                found_rules.clear()
