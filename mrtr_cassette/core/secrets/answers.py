"""Keeping what users answered off the disk.

Rule: of an elicitation the action stays readable, as branches are told apart by it, and of the
dialect that lists answers the id of each. Everything else is a hash.
Source: docs/security.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
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

_MARKERS = (f'"{INPUT_RESPONSES}"'.encode(), b'"result"', b"\\u", b"mrtr-answer:")
"""What a body has at least one of if there is something to seal; a name may be escaped."""
_RESULT: MemberPath = ("result",)
_ACTIONS = ("accept", "decline", "cancel")
SEALED_ANSWER = re.compile(r"mrtr-answer:[0-9a-f]{64}")

_IsSealed = Callable[[str], bool]


def looks_sealed(text: str) -> bool:
    """Tell whether a text looks like a sealed answer."""
    return SEALED_ANSWER.fullmatch(text) is not None


def seal_answers(body: bytes, is_sealed: _IsSealed = looks_sealed) -> bytes:
    """Replace what a client answers by hashes; the `action` of an elicitation stays readable.

    Answers are what a retry has, and the result of a response that a client posts. They are
    written anew, which costs nothing: requests are matched, never played back.

    Args:
        body: the body of a request.
        is_sealed: tells which text is a sealed answer already, and stays.
    """
    if not any(marker in body for marker in _MARKERS):
        return body
    try:
        tree = parse(body)
        if isinstance(tree, list):
            sealed = [_with_sealed_answers(message, is_sealed) for message in tree]
            return canonical(sealed).encode()
        answers_at = _answers_at(tree)
        spans = find_spans(body, answers_at) if answers_at else {}
        return splice(
            body,
            [
                (span, canonical(_sealed(path, parse(body[slice(*span)]), is_sealed)).encode())
                for path, places in spans.items()
                for span in places
            ],
        )
    except NotJsonError:
        text = body.decode("latin-1")
        return body if is_sealed(text) else _answer_hash(text).encode()


def _answers_at(message: Any) -> tuple[MemberPath, ...]:
    """Return where a message may have answers, whichever of several members of a name counts."""
    if not isinstance(message, dict):
        return ()
    is_response = "jsonrpc" in message and "method" not in message
    return (ANSWERS_PATH, _RESULT) if is_response else (ANSWERS_PATH,)


def _with_sealed_answers(message: Any, is_sealed: _IsSealed) -> Any:
    """Return a message of a batch with what it answers sealed."""
    for path in _answers_at(message):
        *outer, name = path
        members = message.get(outer[0]) if outer else message
        if isinstance(members, dict) and name in members:
            members = {**members, name: _sealed(path, members[name], is_sealed)}
            message = {**message, outer[0]: members} if outer else members
    return message


def _sealed(path: MemberPath, answers: Any, is_sealed: _IsSealed) -> Any:
    """Return the answers at a path with hashes of their values."""
    if path == ANSWERS_PATH and isinstance(answers, dict):
        return {key: _sealed_answer(answer, is_sealed) for key, answer in answers.items()}
    if path == ANSWERS_PATH and isinstance(answers, list):
        return [_sealed_item(item, is_sealed) for item in answers]
    # An empty result answers nothing: it only says that the request has come.
    return answers if answers == {} else _sealed_answer(answers, is_sealed)


def _sealed_item(item: Any, is_sealed: _IsSealed) -> Any:
    """Return an answer of the dialect that lists them, each with the id of what it answers."""
    if isinstance(item, dict) and isinstance(item.get("id"), str):
        rest = {name: value for name, value in item.items() if name != "id"}
        return {"id": item["id"], **_sealed_members(rest, {"value"}, _sealed_answer, is_sealed)}
    return _sealed_answer(item, is_sealed)


def _sealed_answer(answer: Any, is_sealed: _IsSealed) -> Any:
    """Return an answer as its hash, or of an elicitation as its action and hashes."""
    if isinstance(answer, dict) and answer.get("action") in _ACTIONS:
        rest = {name: value for name, value in answer.items() if name != "action"}
        return {
            "action": answer["action"],
            **_sealed_members(rest, {"content", "_meta"}, _hashed, is_sealed),
        }
    return _hashed(answer, is_sealed)


def _sealed_members(
    members: dict[str, Any],
    known: Collection[str],
    seal: Callable[[Any, _IsSealed], Any],
    is_sealed: _IsSealed,
) -> dict[str, Any]:
    """Return members with their values sealed; a name that is not known is the client's own."""
    return {
        name if name in known else _hashed(name, is_sealed): seal(value, is_sealed)
        for name, value in members.items()
        if value is not None
    }


def _hashed(value: Any, is_sealed: _IsSealed) -> Any:
    """Return a value as its hash; what has been sealed stays as it is."""
    if value is None or (isinstance(value, str) and is_sealed(value)):
        return value
    return _answer_hash(canonical(value, without_null=True))


def _answer_hash(text: str) -> str:
    return f"mrtr-answer:{sha256_of(text)}"
