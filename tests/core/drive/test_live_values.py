"""Facts about values that a live server issues in the place of the recorded ones."""

from __future__ import annotations

import json

import pytest
from builders import answer, rpc
from messages import Json

from mrtr_cassette.core.drive.live_values import LiveValues
from mrtr_cassette.core.protocol.jsonrpc import Message, classify


def message_of(result: Json) -> Message:
    """Return the response that gives a result."""
    message = classify(answer(rpc("x"), result))
    assert message is not None
    return message


@pytest.mark.parametrize(
    ("issued", "sent"),
    [
        (lambda value: {"nextCursor": value}, lambda value: {"cursor": value}),
        (lambda value: {"taskId": value}, lambda value: {"taskId": value}),
        (
            lambda value: {"task": {"taskId": value}},
            lambda value: {"_meta": {"io.modelcontextprotocol/related-task": {"taskId": value}}},
        ),
    ],
    ids=["cursor", "task", "related task"],
)
def test_what_the_live_server_issued_is_sent_back_to_it(issued: Json, sent: Json) -> None:
    """In its place; the same text elsewhere, and what was never issued, stay."""
    values = LiveValues()
    request = rpc("tasks/get", {**sent("old"), "note": "old"})
    assert values.in_live(request) == request
    values.issued(message_of(issued("old")), message_of(issued('new "one"')))
    assert json.loads(values.in_live(request))["params"] == {**sent('new "one"'), "note": "old"}
    other = rpc("tasks/get", sent("other"))
    assert values.in_live(other) == other


def test_what_is_no_text_is_not_taken() -> None:
    """A result of another shape issues nothing."""
    values = LiveValues()
    for old, new in (({"nextCursor": 5}, {"nextCursor": "new"}), ({"task": 1}, {}), (None, [])):
        values.issued(message_of(old), message_of(new))
    request = rpc("tools/list", {"cursor": "new"})
    assert values.in_live(request) == request
