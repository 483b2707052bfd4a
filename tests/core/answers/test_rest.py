"""Facts about an endpoint that gives answers: what it gets, and which replies are right."""

from __future__ import annotations

from typing import Any

import pytest
from messages import compact

from mrtr_cassette.core.answers.asked import Asked
from mrtr_cassette.core.answers.rest import read_reply, request_body
from mrtr_cassette.core.protocol.dialect import InputRequest, recognise
from mrtr_cassette.core.wire.jsonbytes import parse

FORM = InputRequest("form", "Sure?", {"message": "Sure?"})
JSON = "application/json; charset=utf-8"
YES = {"action": "accept"}
GOOD = compact({"inputResponses": {"a": YES}})


def asked(requests: Any) -> Asked:
    """Return what a call is asked."""
    return Asked("tools/call", "deploy", {"env": "prod"}, 2, requests)


def test_endpoint_gets_the_call_and_the_full_requests() -> None:
    """Method, name, arguments, turn, and each request as the server spelled it."""
    requests = {"a": FORM, "b": InputRequest("roots", "")}
    assert parse(request_body(asked(requests))) == {
        "method": "tools/call",
        "name": "deploy",
        "arguments": {"env": "prod"},
        "turn": 2,
        "inputRequests": {
            "a": {"method": "elicitation/create", "params": FORM.definition},
            "b": {"method": "roots/list", "params": {}},
        },
    }


def test_array_is_asked_and_answered_as_an_array() -> None:
    """What is optional may be left out, and each answer has the id of its request."""
    items = [{"id": "a", "kind": "string"}, {"id": "b", "kind": "string", "required": False}]
    ask = recognise({"inputRequests": items, "requestState": "s"})
    assert ask is not None
    array = asked(ask.input_requests)
    assert parse(request_body(array))["inputRequests"] == items
    reply = compact({"inputResponses": [{"id": "a", "value": "y"}]})
    assert read_reply(array, 200, JSON, reply) == {"a": {"value": "y"}}
    wanted = "its `inputResponses` is not an array of objects with `id`"
    assert read_reply(array, 200, JSON, GOOD) == wanted


def test_reply_gives_the_answers() -> None:
    """Any status of success, and any JSON content type."""
    for status, media in ((200, JSON), (201, "application/problem+json")):
        assert read_reply(asked({"a": FORM}), status, media, GOOD) == {"a": YES}


@pytest.mark.parametrize(
    ("status", "media", "body", "reason"),
    [
        (404, JSON, GOOD, "it answered HTTP 404"),
        (302, JSON, GOOD, "it redirects (HTTP 302), which is not followed"),
        (200, "text/html", b"<html>", "it answered text/html, and not application/json"),
        (200, "", GOOD, "it answered without a content type, and not application/json"),
        (200, JSON, b"{", "its reply is no JSON"),
        (200, JSON, b"[]", "its reply is no object with `inputResponses` and nothing else"),
        (200, JSON, b'{"inputResponses":{},"a":1}', "its reply is no object with"),
        (200, JSON, b'{"inputResponses":null}', "its `inputResponses` is not an object of answers"),
        (200, JSON, b'{"inputResponses":[]}', "its `inputResponses` is not an object of answers"),
        (200, JSON, b'{"inputResponses":{}}', "it does not answer 'a'"),
        (200, JSON, b'{"inputResponses":{"a":{},"x":{}}}', "it answers 'x', which was not asked"),
        (200, JSON, b'{"inputResponses":{"a":{},"a":{}}}', "its reply has 'a' twice"),
        (200, JSON, GOOD[:-1] + b"," + GOOD[1:], "its reply has 'inputResponses' twice"),
        (200, JSON, b'{"inputResponses":[{"id":"a"},{"id":"a"}]}', "its reply has 'a' twice"),
    ],
)
def test_reply_that_is_not_wholly_right_gives_nothing(
    status: int, media: str, body: bytes, reason: str
) -> None:
    """The reason says what came instead."""
    found = read_reply(asked({"a": FORM}), status, media, body)
    assert isinstance(found, str)
    assert found.startswith(reason)
