"""Keeping what users answered off the disk.

Owns: where answers stand in a request, and the hash that stands for each value.
Rule: an `action` such as `accept` stays readable, as branches are told apart by it.
Source: docs/security.md.
"""

from __future__ import annotations

import json
import re
from typing import Any

from mrtr_cassette.core.protocol.dialect import ANSWERS_PATH, INPUT_RESPONSES
from mrtr_cassette.core.secrets.surrogates import sha256_of
from mrtr_cassette.core.wire.jsonbytes import (
    MemberPath,
    canonical,
    find_spans,
    parse,
    splice,
)
from mrtr_cassette.errors import NotJsonError

_INPUT_RESPONSES = f'"{INPUT_RESPONSES}"'.encode()
_RESULT: MemberPath = ("result",)
SEALED_ANSWER = re.compile(r"mrtr-answer:[0-9a-f]{64}")


def seal_answers(body: bytes) -> bytes:
    """Replace what a client answers by hashes; an `action` such as `accept` stays readable.

    Answers are what a retry has, and the result of a response that a client posts. They are
    written anew, which costs nothing: requests are matched, never played back.
    """
    try:
        tree = parse(body)
        if isinstance(tree, list):
            sealed = [_with_sealed_answers(message) for message in tree]
            return body if sealed == tree else canonical(sealed).encode()
        answers = _sealed_answers(tree)
        spans = find_spans(body, answers.keys()) if answers else {}
    except NotJsonError:
        may_answer = any(name in body for name in (_INPUT_RESPONSES, b'"result"'))
        return _answer_hash(body.decode("latin-1")).encode() if may_answer else body
    return splice(
        body,
        [
            (span, json.dumps(answers[path], separators=(",", ":")).encode())
            for path, found in spans.items()
            for span in found
        ],
    )


def _sealed_answers(message: Any) -> dict[MemberPath, Any]:
    """Return what a message answers, sealed, by where in it that stands."""
    if not isinstance(message, dict):
        return {}
    params = message.get("params")
    responses = params.get(INPUT_RESPONSES) if isinstance(params, dict) else None
    if isinstance(responses, dict):
        return {ANSWERS_PATH: {key: _sealed_answer(value) for key, value in responses.items()}}
    if isinstance(responses, list):
        return {ANSWERS_PATH: [_sealed_answer(value) for value in responses]}
    if responses is not None:
        return {ANSWERS_PATH: _sealed_answer(responses)}
    if "jsonrpc" in message and "method" not in message and message.get("result"):
        return {_RESULT: _sealed_answer(message["result"])}
    return {}


def _with_sealed_answers(message: Any) -> Any:
    """Return a message of a batch with what it answers sealed."""
    for (*outer, name), sealed in _sealed_answers(message).items():
        if outer:
            return {**message, "params": {**message["params"], name: sealed}}
        return {**message, name: sealed}
    return message


def _sealed_answer(value: Any) -> Any:
    """Return an answer with hashes of its values; what has been sealed stays as it is."""
    if value is None or (isinstance(value, str) and SEALED_ANSWER.fullmatch(value)):
        return value
    if isinstance(value, dict):
        kept = {name: value[name] for name in ("action", "id") if isinstance(value.get(name), str)}
        if kept:
            rest = {
                name: _sealed_answer(item)
                for name, item in value.items()
                if name not in kept and item is not None
            }
            return kept | rest
    return _answer_hash(canonical(value, without_null=True))


def _answer_hash(text: str) -> str:
    return f"mrtr-answer:{sha256_of(text)}"
