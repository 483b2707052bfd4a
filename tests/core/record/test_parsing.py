"""What was read once is not read again, whoever asks for it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from builders import JOURNAL_HEADER, Conversation, loaded, retry, tool
from messages import input_required

from mrtr_cassette.core.protocol import jsonrpc
from mrtr_cassette.core.record.assembly import assemble
from mrtr_cassette.core.record.merge import merged_cassette, sources_of
from mrtr_cassette.core.report.details import details_of
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.wire.jsonbytes import to_json

CALLS = 20
YES = {"k": {"action": "accept", "content": {"ok": True}}}


def recorded() -> Conversation:
    """Record calls that ask once; no two messages are the same."""
    conversation = Conversation(redacts=True)
    for number in range(CALLS):
        state = f"state-of-{number:04d}-{'f00d' * 6}"
        call = tool("parsed_once", number=number)
        ask = input_required("k", state=state, words=f"{number}?")
        conversation.exchange(call, to_json(ask).encode())
        again = retry(call, YES, state=state)
        done = {"jsonrpc": "2.0", "id": 2, "result": {"content": [], "number": number}}
        conversation.exchange(again, to_json(done).encode())

    return conversation


def test_each_message_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recording, publishing, merging and showing parse no text of a message a second time."""
    parsed: Counter[bytes] = Counter()
    parse = jsonrpc.parse

    def counting(raw: bytes) -> Any:
        parsed[raw] += 1
        return parse(raw)

    monkeypatch.setattr(jsonrpc, "parse", counting)

    conversation = recorded()
    header = replace(
        JOURNAL_HEADER, redaction=RedactionRules(), recorder="1" * 32, wall_ms=1.0
    )
    exchanges = {exchange.number or 0: exchange for exchange in conversation.exchanges}
    assemble(header, exchanges, "test")
    cassette = loaded(conversation.cassette())
    merged_cassette([*sources_of(cassette)], "test")
    details_of(cassette)

    messages = 4 * CALLS

    assert len(parsed) >= messages
    assert sum(parsed.values()) <= 1.1 * len(parsed)
