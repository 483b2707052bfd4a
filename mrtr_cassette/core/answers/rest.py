"""An endpoint that is asked for answers: what it gets, and what may come back.

Rule: a reply that is not wholly right gives no answer at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mrtr_cassette.core.answers.asked import Asked
from mrtr_cassette.core.answers.checking import is_required
from mrtr_cassette.core.protocol.dialect import INPUT_RESPONSES, answers_in
from mrtr_cassette.core.wire.jsonbytes import canonical, find_spans, parse
from mrtr_cassette.errors import NotJsonError

LARGEST_REPLY: Final = 16 * 1024 * 1024
"""Bytes of a reply; sampled images are large, and nothing else is."""


def request_body(asked: Asked) -> bytes:
    """Return what the endpoint is asked."""
    return canonical(asked.data()).encode()


def read_reply(
    asked: Asked, status: int, content_type: str, body: bytes
) -> Mapping[str, Any] | str:
    """Return the answers of a reply by key, or why it gives none."""
    return _fault_of_head(status, content_type) or _answers_in(asked, body)


def _fault_of_head(status: int, content_type: str) -> str:
    if 300 <= status < 400:
        return f"it redirects (HTTP {status}), which is not followed"
    if not 200 <= status < 300:
        return f"it answered HTTP {status}"
    media = content_type.partition(";")[0].strip().lower()
    if media != "application/json" and not media.endswith("+json"):
        return f"it answered {media or 'without a content type'}, and not application/json"
    return ""


def _answers_in(asked: Asked, body: bytes) -> Mapping[str, Any] | str:
    try:
        tree = parse(body)
    except NotJsonError:
        return "its reply is no JSON"
    if not isinstance(tree, dict) or tree.keys() != {INPUT_RESPONSES}:
        return f"its reply is no object with `{INPUT_RESPONSES}` and nothing else"
    twice = _given_twice(tree[INPUT_RESPONSES], body)
    if twice is not None:
        return f"its reply has {twice!r} twice"
    return _answers_of(asked, tree)


def _given_twice(responses: Any, body: bytes) -> str | None:
    """Return a key, or an id of an array, that comes more than once."""
    if isinstance(responses, dict):
        paths = [(INPUT_RESPONSES, key) for key in responses]
        spans = {**find_spans(body, [(INPUT_RESPONSES,)]), **find_spans(body, paths)}
        return next((path[-1] for path, each in spans.items() if len(each) > 1), None)
    ids = [each.get("id") for each in responses or () if isinstance(each, dict)]
    return next((str(each) for each in ids if ids.count(each) > 1), None)


def _answers_of(asked: Asked, tree: Mapping[str, Any]) -> Mapping[str, Any] | str:
    answers = answers_in(tree)
    wanted = "array" if any(each.takes_value for each in asked.requests.values()) else "map"
    if answers is None or answers.shape != wanted or answers.input_responses is None:
        form = "an array of objects with `id`" if wanted == "array" else "an object of answers"
        return f"its `{INPUT_RESPONSES}` is not {form}"
    responses = answers.input_responses
    unknown = [key for key in responses if key not in asked.requests]
    if unknown:
        return f"it answers {unknown[0]!r}, which was not asked"
    missing = [
        key
        for key, request in asked.requests.items()
        if key not in responses and is_required(request)
    ]
    return f"it does not answer {missing[0]!r}" if missing else responses
