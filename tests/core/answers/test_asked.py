"""Facts about what a call is asked, as sources of answers see it."""

from __future__ import annotations

from builders import post, tool

from mrtr_cassette.core.answers.asked import asked_in
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.protocol.dialect import InputRequest


def test_asked_is_the_call_and_its_requests() -> None:
    """A part of the requests is asked within the same call and turn."""
    requests = {"a": InputRequest("form", "?", {"message": "?"}), "b": InputRequest("roots", "")}
    asked = asked_in(read_call(post(tool("deploy", env="prod"))), 2, requests)
    assert asked.data() == {
        "method": "tools/call",
        "name": "deploy",
        "arguments": {"env": "prod"},
        "turn": 2,
        "inputRequests": {
            "a": {"method": "elicitation/create", "params": {"message": "?"}},
            "b": {"method": "roots/list", "params": {}},
        },
    }
    part = asked.of({"b": requests["b"]})
    assert (part.name, part.turn, list(part.requests)) == ("deploy", 2, ["b"])
