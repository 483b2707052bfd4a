from __future__ import annotations

import json

import pytest
from builders import get, notification, post, retry, tool, with_id
from messages import NO, YES, Json, compact

from mrtr_cassette.core.exchange.lookup import LookupKey, lookup_key
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.secrets.surrogates import sealed_hash, sha256_of
from mrtr_cassette.core.wire.http import Request
from mrtr_cassette.core.wire.pointers import pointer_path

CALL = tool("deploy", env="prod")
STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"
OTHER = {"action": "accept", "content": {"ok": False}}


def key_of(request: bytes | Request, *ignored: str) -> LookupKey:
    """Return the lookup key of a request."""
    request = request if isinstance(request, Request) else post(request)
    return lookup_key(read_call(request), [pointer_path(pointer) for pointer in ignored])


@pytest.mark.parametrize(
    "request_", [CALL, notification("notifications/cancelled", requestId=1), b"opaque", get("/mcp")]
)
def test_request_that_is_no_retry_has_the_key_of_its_call(request_: bytes | Request) -> None:
    """Without answers and state, only the call counts."""
    request = request_ if isinstance(request_, Request) else post(request_)

    assert key_of(request) == LookupKey(read_call(request).key(), None, None)


def test_retry_is_told_apart_by_its_answers_and_its_state() -> None:
    """A retry is the same call as the first request, and another for each answer and each state."""
    requests = [
        CALL,
        retry(CALL, {"a": YES}),
        retry(CALL, {"a": NO}),
        retry(CALL, {"b": YES}),
        retry(CALL, {"a": YES}, state=STATE),
        retry(CALL, {"a": YES}, state=f"{STATE}-2"),
        retry(CALL, state=STATE),
    ]
    keys = [key_of(request) for request in requests]

    assert {key.call for key in keys} == {key_of(CALL).call}
    assert len(set(keys)) == len(requests)
    assert key_of(with_id(retry(CALL, {"a": YES}), "another")) == keys[1]


@pytest.mark.parametrize(
    ("state", "sha256"),
    [
        (STATE, sha256_of(STATE)),
        (sealed_hash(STATE), sha256_of(STATE)),
        (sealed_hash(STATE).replace(":", "%3A"), sha256_of(STATE)),
        (f" {sealed_hash(STATE)}", sha256_of(f" {sealed_hash(STATE)}")),
        ("", sha256_of("")),
    ],
)
def test_state_is_compared_by_hash(state: str, sha256: str) -> None:
    """A sealed hash is compared as the state that it stands for."""
    assert key_of(retry(CALL, state=state)).state == sha256


@pytest.mark.parametrize(
    ("answers", "same"),
    [
        ({"a": YES, "b": NO}, {"b": NO, "a": YES}),
        ({"a": {"action": "accept", "content": None}}, {"a": {"action": "accept"}}),
        (
            {"a": {"action": "accept", "content": {"n": 1.0}}},
            {"a": {"action": "accept", "content": {"n": 1}}},
        ),
    ],
)
def test_spelling_of_answers_does_not_count(answers: Json, same: Json) -> None:
    """Answers are compared by their canonical text, in which null equals an absent member."""
    assert key_of(retry(CALL, answers)) == key_of(retry(CALL, same))


def test_empty_answers_equal_none_only_beside_a_state() -> None:
    """Some clients answer a state-only ask with an empty map, others with none."""
    assert key_of(retry(CALL, {}, state=STATE)) == key_of(retry(CALL, state=STATE))
    assert key_of(retry(CALL, {})).answers == '{"inputResponses":{}}'
    assert key_of(retry(CALL, {})) != key_of(CALL)


@pytest.mark.parametrize(
    ("answers", "other"),
    [
        ({"a": {"value": 1}}, [{"id": "a", "value": 1}]),
        ({}, []),
        ({"": "x"}, "x"),
        ({"": ["x"]}, ["x"]),
        ([{"id": "", "value": 1}], [{"value": 1}]),
    ],
)
def test_shape_of_answers_counts(answers: Json, other: Json) -> None:
    """A map is neither an array of the same answers, nor anything else."""
    assert key_of(retry(CALL, answers)) != key_of(retry(CALL, other))
    assert key_of(retry(CALL, answers, state=STATE)) != key_of(retry(CALL, other, state=STATE))


@pytest.mark.parametrize(
    "answers",
    [None, {"inputResponses": None}, {"requestState": None}],
)
def test_null_makes_no_retry(answers: Json) -> None:
    """A member that is null equals an absent one, so the request is the first of its call."""
    request = json.loads(CALL)
    request["params"].update(answers or {})

    assert key_of(compact(request)) == key_of(CALL)


@pytest.mark.parametrize(
    ("request_", "other", "ignored"),
    [
        (CALL, tool("deploy", env="test"), "/arguments/env"),
        (retry(CALL, {"a": YES}), retry(CALL, {"a": OTHER}), "/inputResponses/a/content/ok"),
        (retry(CALL, {"a": YES}), retry(CALL, {}), "/inputResponses/a"),
    ],
)
def test_ignored_members_do_not_count(request_: bytes, other: bytes, ignored: str) -> None:
    """A member at an ignored path counts neither in the call nor in the answers."""
    assert key_of(request_) != key_of(other)
    assert key_of(request_, ignored) == key_of(other, ignored)
    assert key_of(request_, "/elsewhere") == key_of(request_)
