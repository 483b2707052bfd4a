"""Pings that a server sends, and the answers to them, which tell nothing of the server."""
# Source: MCP 2025-11-25, "Ping".

from __future__ import annotations

from collections.abc import Iterable

from mrtr_cassette.core.cassette.recorded import RecordedExchange, RecordedInteraction
from mrtr_cassette.core.cassette.sessions import opened_session
from mrtr_cassette.core.protocol.calls import session_of
from mrtr_cassette.core.protocol.jsonrpc import Kind, messages_in
from mrtr_cassette.core.protocol.methods import PING

PingIds = frozenset[tuple[str, str]]
"""Sessions, and the ids of pings in them as canonical texts."""


def ping_ids(exchanges: Iterable[RecordedExchange]) -> PingIds:
    """Return the ids of the pings that a server sent."""
    ids: set[tuple[str, str]] = set()
    for exchange in exchanges:
        response = exchange.response
        if response is None or b'"ping"' not in response.body:
            continue
        session = session_of(exchange.request) or opened_session(response)
        for located in messages_in(response):
            message = located.message
            is_ping = message.kind is Kind.REQUEST and message.method == PING
            if is_ping and message.id is not None:
                ids.add((session, message.id))
    return frozenset(ids)


def without_pongs(interactions: Iterable[RecordedInteraction]) -> list[RecordedInteraction]:
    """Return the interactions that are more than the answer to a ping."""
    given = list(interactions)
    ids = ping_ids(exchange for interaction in given for exchange in interaction.own)
    kept = []
    for interaction in given:
        exchange = interaction.exchanges[0]
        message = exchange.call.message
        answered = None
        if message is not None and message.kind is Kind.RESPONSE:
            answered = message.id
        if (session_of(exchange.request), answered) not in ids:
            kept.append(interaction)
    return kept
