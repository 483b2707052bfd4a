"""Messages of a server on pipes that name no request: they come before any response by chance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.protocol.jsonrpc import server_message
from mrtr_cassette.core.protocol.methods import LOG, method_of
from mrtr_cassette.core.wire.http import opens_channel

_NAMES_REQUEST: Final = frozenset({"progressToken", "requestId", "taskId"})
"""Members of a notification's params that name the request or task it is about."""


def drop_strays(method: str, recorded: list[Any], live: list[Any]) -> None:
    """Drop messages that may be about an earlier call over a pipe, if one run has more of them.

    Log messages before any call, or of the server's own accord, belong to no call.
    """
    if method_of(method).listens:
        return
    if not method or method_of(method).describes_server:
        _drop(recorded, _is_log)
        _drop(live, _is_log)
    if method and sum(map(_is_stray, recorded)) != sum(map(_is_stray, live)):
        _drop(recorded, _is_stray)
        _drop(live, _is_stray)


def _drop(messages: list[Any], is_dropped: Callable[[Mapping[str, Any]], bool]) -> None:
    messages[:] = [message for message in messages if not is_dropped(message)]


def _is_log(message: Mapping[str, Any]) -> bool:
    return message.get("method") == LOG


def _is_stray(message: Mapping[str, Any]) -> bool:
    return "method" in message and _NAMES_REQUEST.isdisjoint(message.get("params") or ())


def only_logs(exchange: RecordedExchange) -> bool:
    """Tell whether it is the beginning of a pipe on which a server only logs."""
    response = exchange.response
    is_beginning = exchange.request.is_line and opens_channel(exchange.request)
    if response is None or not is_beginning:
        return False
    for piece in response.pieces:
        message = server_message(piece.raw)
        if message is None or message.method != LOG:
            return False
    return True
