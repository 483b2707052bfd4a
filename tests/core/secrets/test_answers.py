from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import pytest
from builders import post, retry, tool

from mrtr_cassette.core.cassette.lookup import lookup_key
from mrtr_cassette.core.protocol.calls import CallKey, read_call
from mrtr_cassette.core.secrets.sealed import seal_answers

DEPLOY = tool("deploy", env="prod", replicas=3)


def key(request: bytes) -> CallKey:
    """Return the call key of a request."""
    return read_call(post(request)).key()


def sealed_answers(answers: object) -> Any:
    """Return what is kept of a retry's answers."""
    return json.loads(seal_answers(retry(DEPLOY, answers, state="S")))["params"][
        "inputResponses"
    ]


def hash_of(value: bytes) -> str:
    """Return what stands for an answer whose canonical text is this."""
    return f"mrtr-answer:{hashlib.sha256(value).hexdigest()}"


@pytest.mark.parametrize(
    ("answers", "sealed"),
    [
        ({}, {}),
        ({"a": "x"}, {"a": hash_of(b'"x"')}),
        ({"a": 1.50}, {"a": hash_of(b"1.5")}),
        ({"a": {"b": 1, "a": None}}, {"a": hash_of(b'{"b":1}')}),
        ({"a": {"action": "decline"}}, {"a": {"action": "decline"}}),
        (
            {"a": {"action": "accept", "content": {"pin": 1}, "note": None}},
            {"a": {"action": "accept", "content": hash_of(b'{"pin":1}')}},
        ),
        ({"a": {"action": 5}}, {"a": hash_of(b'{"action":5}')}),
        ({"a": {"action": {}}}, {"a": hash_of(b'{"action":{}}')}),
        ({"a": {"action": "my secret"}}, {"a": hash_of(b'{"action":"my secret"}')}),
        ({"a": {"id": "4711"}}, {"a": hash_of(b'{"id":"4711"}')}),
        (
            {"a": {"action": "accept", "content": {"id": "4711", "action": "accept"}}},
            {
                "a": {
                    "action": "accept",
                    "content": hash_of(b'{"action":"accept","id":"4711"}'),
                }
            },
        ),
        (
            {"a": {"action": "accept", "4711": True}},
            {"a": {"action": "accept", hash_of(b'"4711"'): hash_of(b"true")}},
        ),
        (
            [{"id": "a", "value": {"id": "4711"}, "4711": 1}, {"id": 4711}],
            [
                {
                    "id": "a",
                    "value": hash_of(b'{"id":"4711"}'),
                    hash_of(b'"4711"'): hash_of(b"1"),
                },
                hash_of(b'{"id":4711}'),
            ],
        ),
        ([{"id": "a", "value": "x"}], [{"id": "a", "value": hash_of(b'"x"')}]),
        (["x"], [hash_of(b'"x"')]),
    ],
)
def test_of_answers_only_hashes_are_kept(answers: object, sealed: object) -> None:
    """Values are hashed by what they mean; keys, ids and actions stay readable."""
    assert sealed_answers(answers) == sealed


def test_sealing_answers_changes_nothing_else() -> None:
    """Around the answers every byte stays, and what has been sealed stays as it is."""
    body = retry(DEPLOY.replace(b"3", b"3.0"), {"a": "x"}, state="S").replace(
        b',"', b' ,"'
    )

    sealed = seal_answers(body)

    assert sealed == body.replace(
        b'{"a":"x"}', b'{"a":"%s"}' % hash_of(b'"x"').encode()
    )
    assert seal_answers(sealed) == sealed


ELICITED = b'{"jsonrpc": "2.0","id":"pushed","result":{"action":"accept","content":{"pin":1234}}}'


SAMPLED = (
    b'{"jsonrpc":"2.0","id":7,"result":{"role":"assistant","content":{"text":"1234"}}}'
)


RESULT = b'{"jsonrpc":"2.0","id":7,"result":%s}'


@pytest.mark.parametrize(
    "body",
    [
        retry(DEPLOY, "1234", state="S"),
        retry(DEPLOY, 1234, state="S"),
        retry(DEPLOY, True, state="S"),
        retry(DEPLOY, ["1234"], state="S"),
        retry(DEPLOY, [[1234]], state="S"),
        RESULT % b'"1234"',
        RESULT % b"1234",
        RESULT % b"false",
        RESULT % b"0",
        RESULT % b"[1234]",
        RESULT % b'{"id":"1234"}',
        # A member that comes twice or is escaped.
        b'{"params":{"inputResponses":{"a":1234}},"params":{}}',
        b'{"params":{"inputResponses":{"a":1234},"inputResponses":null}}',
        b'{"jsonrpc":"2.0","id":1,"result":1234,"result":{}}',
        b'[{"jsonrpc":"2.0","id":1,"result":1234,"result":{}}]',
        b'{"params":{"inputRespons\\u0065s":{"a":1234}}}',
        # What can't be read is hashed whole.
        b'{"params":{"inputRespons\\u0065s":{"a":1234}}',
        b'{"params":{"inputResponses":{"pin":1234},}}',
        b'{"jsonrpc":"2.0","result":1e99999999999999999999999999991234}',
        b'{"jsonrpc":"2.0","result":{"pin":1234}',
    ],
)
def test_no_answer_is_kept(body: bytes) -> None:
    """Whatever an answer is and however it is named, only a hash of it stays."""
    sealed = seal_answers(body)

    assert b"1234" not in sealed
    assert sealed.count(b"mrtr-answer:") == 1
    assert seal_answers(sealed) == sealed


@pytest.mark.parametrize("body", [ELICITED, SAMPLED])
def test_response_that_a_client_posts_is_an_answer(body: bytes) -> None:
    """What a client answers a pushed request is hashed; its id and its action stay."""
    sealed = seal_answers(body)

    assert b"1234" not in sealed
    assert sealed.startswith(body[:30])
    assert (b'"action":"accept"' in sealed) is (body is ELICITED)
    assert seal_answers(sealed) == sealed
    assert key(sealed) != key(seal_answers(body.replace(b"1234", b"4321")))


def test_batch_is_hashed_whole() -> None:
    """Nobody answers in a batch, which MCP no longer has, so none is taken apart."""
    sealed = seal_answers(b"[%s, %s]" % (ELICITED, DEPLOY))

    assert re.fullmatch(rb"mrtr-answer:[0-9a-f]{64}", sealed)
    assert seal_answers(sealed) == sealed


@pytest.mark.parametrize(
    "body",
    [
        DEPLOY,
        b"opaque",
        b"[1,2]",
        retry(DEPLOY, state="S"),
        b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"no"}}',
        b'{"jsonrpc":"2.0","id":1,"result":{}}',
        b'{"result":{"of":"something else"}}',
        b'{"jsonrpc":"2.0","method":"m","params":{"inputResponses":null},"result":1}',
    ],
)
def test_nothing_is_sealed_where_nothing_is_answered(body: bytes) -> None:
    """A request without answers is kept as it is."""
    assert seal_answers(body) == body


def test_sealed_answers_are_equal_if_the_answers_are() -> None:
    """Spelling and null members don't show in a hash, and every value does."""

    def slot(answers: object) -> object:
        return lookup_key(read_call(post(seal_answers(retry(DEPLOY, answers)))))

    given: dict[str, object] = {"action": "accept", "content": {"x": 1, "y": None}}
    same: dict[str, object] = {"content": {"x": 1.0}, "action": "accept", "_meta": None}

    assert slot({"a": given}) == slot({"a": same})
    assert slot({"a": given}) != slot({"a": {**given, "action": "decline"}})
    assert slot({"a": given}) != slot({"a": {**given, "content": {"x": 2}}})
    assert slot({"a": given}) != slot({"b": given})
