"""A request that can't be recorded, because the live server is not where the cassette is."""

from __future__ import annotations

from dataclasses import dataclass

from mrtr_cassette.core.exchange.recorded import RecordedExchange
from mrtr_cassette.core.protocol.calls import Call
from mrtr_cassette.core.replay.playable import Playable
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.core.wire.pointers import Difference
from mrtr_cassette.errors import shorten


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """A request that was not sent on and not recorded.

    Attributes:
        call: the request, as messages may show it.
        detail: why, as a sentence.
        asker: the recorded exchange whose ask the server should have repeated, or None.
        differences: where the recorded ask and the live one differ, by JSON Pointer into the
            result.
    """

    call: Call
    detail: str
    asker: Playable | None = None
    differences: tuple[Difference, ...] = ()


def has_error(exchange: RecordedExchange) -> bool:
    """Tell whether an exchange ended with a JSON-RPC error."""
    return _error_text(exchange) is not None


def outcome(exchange: RecordedExchange) -> str:
    """Return what a live server responded, in a few words."""
    response = exchange.response
    if response is None:
        return "no response"
    error = _error_text(exchange)
    text = "a response" if response.is_lines else f"HTTP {response.status}"
    return text if error is None else f"{text}, error {shorten(error)}"


def _error_text(exchange: RecordedExchange) -> str | None:
    error = exchange.rpc_members.get("error")
    return None if error is None else canonical(error)
