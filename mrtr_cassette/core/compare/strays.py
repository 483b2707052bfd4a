"""What a server on pipes says that names no request: before which response it comes is chance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.protocol.jsonrpc import server_message
from mrtr_cassette.core.protocol.methods import LOG, method_of
from mrtr_cassette.core.wire.http import opens_channel

_NAMES_REQUEST: Final = frozenset({"progressToken", "requestId", "taskId"})
"""Members of a notification's params of which each tells what it is about."""


def drop_strays(method: str, recorded: list[Any], live: list[Any]) -> None:
    """Drop what may be about an earlier call over a pipe, where there is more of it in one run.

    What is logged before any call, or of the server's own accord, belongs to none.
    """
    if method_of(method).listens:
        return
    if not method or method_of(method).describes_server:
        for messages in (recorded, live):
            messages[:] = [message for message in messages if message.get("method") != LOG]
    counts = [sum(map(_is_stray, messages)) for messages in (recorded, live)]
    if method and counts[0] != counts[1]:
        for messages in (recorded, live):
            messages[:] = [message for message in messages if not _is_stray(message)]


def _is_stray(message: Mapping[str, Any]) -> bool:
    return "method" in message and _NAMES_REQUEST.isdisjoint(message.get("params") or ())


def only_logs(exchange: RecordedExchange) -> bool:
    """Tell whether it is the beginning of a pipe on which a server does nothing but log."""
    response = exchange.response
    if response is None or not (exchange.request.is_line and opens_channel(exchange.request)):
        return False
    messages = [server_message(piece.raw) for piece in response.pieces]
    return all(message is not None and message.method == LOG for message in messages)
