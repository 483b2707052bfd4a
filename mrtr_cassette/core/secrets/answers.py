"""Keeping what users answered off the disk.

Owns: where answers stand in a request, and the hash that stands for each value.
Rule: an `action` such as `accept` stays readable, as branches are told apart by it.
Source: docs/security.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
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

_IsSealed = Callable[[str], bool]


def looks_sealed(text: str) -> bool:
    """Tell whether a text looks like a sealed answer."""
    return SEALED_ANSWER.fullmatch(text) is not None


def seal_answers(body: bytes, is_sealed: _IsSealed = looks_sealed) -> bytes:
    """Replace what a client answers by hashes; an `action` such as `accept` stays readable.

    Answers are what a retry has, and the result of a response that a client posts. They are
    written anew, which costs nothing: requests are matched, never played back.

    Args:
        body: the body of a request.
        is_sealed: tells which text is a sealed answer already, and stays.
    """
    try:
        tree = parse(body)
        if isinstance(tree, list):
            sealed = [_with_sealed_answers(message, is_sealed) for message in tree]
            return body if sealed == tree else canonical(sealed).encode()
        answers = _sealed_answers(tree, is_sealed)
        spans = find_spans(body, answers.keys()) if answers else {}
    except NotJsonError:
        text = body.decode("latin-1")
        may_answer = any(name in body for name in (_INPUT_RESPONSES, b'"result"'))
        hashes = may_answer or (looks_sealed(text) and not is_sealed(text))
        return _answer_hash(text).encode() if hashes else body
    return splice(
        body,
        [
            (span, json.dumps(answers[path], separators=(",", ":")).encode())
            for path, found in spans.items()
            for span in found
        ],
    )


def _sealed_answers(message: Any, is_sealed: _IsSealed) -> dict[MemberPath, Any]:
    """Return what a message answers, sealed, by where in it that stands."""
    if not isinstance(message, dict):
        return {}
    params = message.get("params")
    responses = params.get(INPUT_RESPONSES) if isinstance(params, dict) else None
    if isinstance(responses, dict):
        sealed = {key: _sealed_answer(value, is_sealed) for key, value in responses.items()}
        return {ANSWERS_PATH: sealed}
    if isinstance(responses, list):
        return {ANSWERS_PATH: [_sealed_answer(value, is_sealed) for value in responses]}
    if responses is not None:
        return {ANSWERS_PATH: _sealed_answer(responses, is_sealed)}
    if "jsonrpc" in message and "method" not in message and message.get("result"):
        return {_RESULT: _sealed_answer(message["result"], is_sealed)}
    return {}


def _with_sealed_answers(message: Any, is_sealed: _IsSealed) -> Any:
    """Return a message of a batch with what it answers sealed."""
    for (*outer, name), sealed in _sealed_answers(message, is_sealed).items():
        if outer:
            return {**message, "params": {**message["params"], name: sealed}}
        return {**message, name: sealed}
    return message


def _sealed_answer(value: Any, is_sealed: _IsSealed) -> Any:
    """Return an answer with hashes of its values; what has been sealed stays as it is."""
    if value is None or (isinstance(value, str) and is_sealed(value)):
        return value
    if isinstance(value, dict):
        kept = {name: value[name] for name in ("action", "id") if isinstance(value.get(name), str)}
        if kept:
            rest = {
                name: _sealed_answer(item, is_sealed)
                for name, item in value.items()
                if name not in kept and item is not None
            }
            return kept | rest
    return _answer_hash(canonical(value, without_null=True))


def _answer_hash(text: str) -> str:
    return f"mrtr-answer:{sha256_of(text)}"
