"""Facts about answers that fit what they answer, and those that don't."""

from __future__ import annotations

from typing import Any

import pytest

from mrtr_cassette.core.answers.checking import is_required, problem_of, sampled
from mrtr_cassette.core.protocol.dialect import InputRequest, recognise

FORM = InputRequest(
    "form",
    "Deploy?",
    {
        "requestedSchema": {
            "type": "object",
            "properties": {"confirm": {"type": "boolean"}},
            "required": ["confirm"],
        }
    },
)
URL = InputRequest("url", "Sign in", {"mode": "url", "url": "https://example.com"})
ROOTS = InputRequest("roots", "")
SAMPLING = InputRequest("sampling", "")


def bare(kind: str, **more: Any) -> InputRequest:
    """Return a request in the array dialect."""
    item = {"id": "x", "kind": kind, **more}
    ask = recognise({"inputRequests": [item], "requestState": "s"})
    assert ask is not None
    return ask.input_requests["x"]


@pytest.mark.parametrize(
    ("request_", "answer", "problem"),
    [
        (FORM, {"action": "accept", "content": {"confirm": True}}, None),
        (FORM, {"action": "decline"}, None),
        (FORM, {"action": "cancel"}, None),
        (FORM, {"action": "accept"}, "/confirm is required and missing"),
        (FORM, {"action": "accept", "content": 1}, "is a whole number, and not an object"),
        (FORM, {"action": "decline", "content": {}}, "has content, and a decline has none"),
        (FORM, {"confirm": True}, "has no `action` that is accept, decline or cancel"),
        (FORM, True, "has no `action` that is accept, decline or cancel"),
        (InputRequest("form", ""), {"action": "accept", "content": {"any": 1}}, None),
        (URL, {"action": "accept"}, None),
        (URL, {"action": "accept", "content": {}}, "has content, and an accepted URL has none"),
        (ROOTS, {"roots": [{"uri": "file:///a"}]}, None),
        (ROOTS, {"roots": [{"uri": "/a"}]}, "has a root without a `uri` that begins with file://"),
        (ROOTS, {}, "has no `roots` that is a list"),
        (SAMPLING, sampled("Fine"), None),
        (SAMPLING, {"role": "assistant", "content": {}}, "has no `model` that is a text"),
        (SAMPLING, {"role": "assistant"}, "has no `content` that is an object or a list"),
        (SAMPLING, {"role": "system"}, "has no `role` that is user or assistant"),
        (bare("string"), {"value": "Rome"}, None),
        (bare("number"), {"value": "5"}, "is a text, and not a number"),
        (bare("boolean"), {"value": 1}, "is a whole number, and not true or false"),
        (bare("date"), {"value": 1}, None),
        (bare("string"), "Rome", "is a text, and not an object with a `value`"),
        (InputRequest("tasks/ask", ""), {}, None),
        (InputRequest("tasks/ask", ""), 1, "is a whole number, and not an object"),
    ],
)
def test_answer_fits_or_says_why_not(
    request_: InputRequest, answer: Any, problem: str | None
) -> None:
    """The problem names the place and what is wrong, and never quotes the answer."""
    assert problem_of(request_, answer) == problem


def test_only_the_array_dialect_has_optional_requests() -> None:
    """`required` is true where the server leaves it out."""
    assert is_required(FORM)
    assert is_required(bare("string"))
    assert not is_required(bare("string", required=False))
