"""Why a recording is hardly what was meant, and is not published by itself.

Rule: one exchange that is not such an error is enough for a recording to be one. A refusal in
JSON-RPC is MCP, whatever its HTTP status.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from mrtr_cassette.core.exchange.recorded import RecordedExchange
from mrtr_cassette.core.protocol.messages import messages_in
from mrtr_cassette.core.wire.http import header_value
from mrtr_cassette.errors import LIBRARY_TERMS, Terms, in_terms, printable

HTML = "HTML"
_ADVICE: Mapping[str, str] = {
    "401": "does the server want credentials, such as <<header_form>>?",
    "403": "does the server want credentials, such as <<header_form>>?",
    "404": "is the path {path} right?",
    "405": "is the path {path} right?",
    "502": "does the server run?",
    "503": "does the server run?",
    "504": "does the server run?",
}


class Judgement(NamedTuple):
    """What an exchange says of a recording.

    Attributes:
        error: the error of the transport that it is, such as `404`; None where it is none.
        path: the path of its request, without the query.
    """

    error: str | None
    path: str


def verdict_of(exchange: RecordedExchange) -> Judgement | None:
    """Return what an exchange says of a recording; None where it says nothing."""
    request, response = exchange.request, exchange.response
    if response is None or request.method == "OPTIONS":
        return None
    if response.is_lines and not response.pieces:
        return None
    if response.status == 405 and request.method != "POST":
        # A server that has no stream and no sessions says so.
        return None
    error = None
    media_type = header_value(response.headers, "content-type").partition(";")[0].strip().lower()
    if response.status >= 300:
        error = str(response.status)
    elif media_type == "text/html":
        error = HTML
    if error is not None and messages_in(response):
        error = None
    return Judgement(error, request.target.partition("?")[0])


def objection_to(
    verdicts: Mapping[int, Judgement], failure: str | None = None, terms: Terms = LIBRARY_TERMS
) -> str | None:
    """Return why a recording is hardly what was meant, as a sentence; None where it may be.

    Args:
        verdicts: what its exchanges say, by number.
        failure: how the command that was recorded failed, or None.
        terms: how the front spells options.
    """
    if not verdicts or any(verdict.error is None for verdict in verdicts.values()):
        return failure
    errors = Counter(verdict.error for verdict in verdicts.values() if verdict.error is not None)
    count = len(verdicts)
    requests = "the only request" if count == 1 else f"all {count} requests"
    if len(errors) > 1:
        named = ", ".join(f"{error} ({times})" for error, times in sorted(errors.items()))
        return f"{requests} got errors: {named}; is the upstream an MCP server?"
    (error,) = errors
    path = printable(next(iter(verdicts.values())).path)
    advice = _ADVICE.get(error, "is the upstream an MCP server?").format(path=path)
    return in_terms(f"{requests} got {error}; {advice}", terms)
