"""The lookup key of a request: its call, the request state, the answers.

Source: docs/matching.md.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from mrtr_cassette.core.protocol.calls import Call, CallKey
from mrtr_cassette.core.protocol.dialect import INPUT_RESPONSES, Answers
from mrtr_cassette.core.secrets.surrogates import compared_sha256
from mrtr_cassette.core.wire.jsonbytes import MemberPath, canonical
from mrtr_cassette.core.wire.pointers import without_paths

_NO_ANSWERS = f'{{"{INPUT_RESPONSES}":{{}}}}'


class LookupKey(NamedTuple):
    """What two requests share if and only if they get the same recorded exchanges.

    Attributes:
        call: the call.
        state: hash of the request state that a retry echoes, or None.
        answers: canonical text of a retry's answers and their shape, or None.
    """

    call: CallKey
    state: str | None
    answers: str | None


def lookup_key(call: Call, ignored: Collection[MemberPath] = ()) -> LookupKey:
    """Return the key by which a request's recorded exchange is looked up."""
    answers = call.answers
    key = call.key(ignored)
    if answers is None:
        return LookupKey(key, None, None)
    state = None if answers.request_state is None else compared_sha256(answers.request_state)
    responses = _comparable(answers, ignored)
    # Some clients answer a state-only ask with an empty map, others with none.
    if state is not None and responses == _NO_ANSWERS:
        responses = None
    return LookupKey(key, state, responses)


def has_member(call: Call, path: MemberPath) -> bool:
    """Tell whether a request has a member that counts unless it is left out."""
    return lookup_key(call, (path,)) != lookup_key(call)


def _comparable(answers: Answers, ignored: Collection[MemberPath]) -> str | None:
    """Return the canonical text of a retry's answers, or None.

    A member that is null equals an absent one.
    """
    responses = answers.input_responses
    if responses is None:
        return None
    kept = without_paths({INPUT_RESPONSES: responses}, ignored)
    text = canonical(kept, without_null=True)
    return text if answers.shape == "map" else f"{answers.shape} {text}"
