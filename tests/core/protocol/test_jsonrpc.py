from __future__ import annotations

import pytest
from builders import notification, rpc, with_token
from hypothesis import assume, given
from hypothesis import strategies as st
from messages import SUBSCRIPTION_KEY, compact

from mrtr_cassette.core.protocol.dialect import ECHOED_STATE_PATH
from mrtr_cassette.core.protocol.jsonrpc import ID_PATH, TOKEN_PATH, Kind, Message, classify, echoes
from mrtr_cassette.core.wire.jsonbytes import canonical, find_spans, parse


def message(raw: bytes) -> Message:
    """Return a message that must be one."""
    found = classify(raw)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("raw", "kind", "method", "identity"),
    [
        (rpc("ping", number=1), Kind.REQUEST, "ping", "1"),
        (rpc("ping", number="1"), Kind.REQUEST, "ping", '"1"'),
        (b'{"method":"ping","id":1e0,"jsonrpc":"2.0"}', Kind.REQUEST, "ping", "1"),
        (b'{"jsonrpc":"2.0","method":"m","id":1,"result":{}}', Kind.REQUEST, "m", "1"),
        (notification("notifications/x"), Kind.NOTIFICATION, "notifications/x", None),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', Kind.RESPONSE, "", "1"),
        (b'{"jsonrpc":"2.0","id":null,"error":{}}', Kind.RESPONSE, "", None),
        (b'{"jsonrpc":"2.0","error":{}}', Kind.RESPONSE, "", None),
        (b'{"jsonrpc":"2.0","method":5,"id":1,"result":null}', Kind.RESPONSE, "", "1"),
    ],
)
def test_message_is_of_one_kind(raw: bytes, kind: Kind, method: str, identity: str | None) -> None:
    """A message is a request, a notification or a response."""
    found = message(raw)

    assert (found.kind, found.method, found.id, found.raw) == (kind, method, identity, raw)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
        b'{"id":1,"method":"ping"}',
        b'{"jsonrpc":"1.0","id":1,"method":"ping"}',
        b'{"jsonrpc":2.0,"id":1,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1}',
        b'{"jsonrpc":"2.0","id":null,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":[1],"method":"ping"}',
        b'{"jsonrpc":"2.0","id":true,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"n":1e' + b"9" * 5_000 + b"}}",
        b"\xef\xbb\xbf" + rpc("ping"),
    ],
)
def test_anything_else_is_opaque(raw: bytes) -> None:
    """A batch, other JSON, and what can't be read or compared is no message."""
    assert classify(raw) is None


def test_parts_are_as_they_were_spelled() -> None:
    """Id, token and state are given as the caller spelled them; the last of duplicates counts."""
    raw = (
        b'{"jsonrpc":"2.0","id": 1.0,"method":"m",'
        b'"params":{"_meta":{"progressToken":"\\u0061"},"requestState":"s","requestState":"t"}}'
    )

    found = message(raw)

    assert found.spelled(ID_PATH) == b"1.0"
    assert found.spelled(TOKEN_PATH) == b'"\\u0061"'
    assert found.spelled(ECHOED_STATE_PATH) == b'"t"'
    assert message(rpc("m")).spelled(TOKEN_PATH) is None


ASKED = with_token(rpc("tools/call", {"name": "a"}, number=5), "t")


def result(identity: object, **members: object) -> bytes:
    """Return a response."""
    return compact({"jsonrpc": "2.0", "id": identity, "result": members})


def of(subscription: object) -> dict[str, object]:
    """Return the `_meta` of what a subscription sends."""
    return {SUBSCRIPTION_KEY: subscription}


@pytest.mark.parametrize(
    ("subscription", "identity", "is_text"),
    [("5", 5, True), ("5", "5", False), ('"5"', "5", False), ("6", 5, False), (None, 5, False)],
)
def test_subscription_id_may_be_the_string_of_a_number(
    subscription: object,
    identity: object,
    is_text: bool,  # noqa: FBT001
) -> None:
    """A server that makes strings of ids repeats a number as a string."""
    request = message(rpc("subscriptions/listen", number=identity))

    for raw in (
        notification("n", _meta=of(subscription)),
        result(identity, _meta=of(subscription)),
    ):
        spans = echoes(message(raw), request).id_as_text
        assert [raw[span.start : span.end] for span in spans] == [b'"5"'] * is_text


SUBSCRIBED = SUBSCRIPTION_KEY.encode()
keys = st.sampled_from(
    [
        *(b"id", b"\\u0069d", b"progressToken", b"a", b"params", b"result", b"_meta", b"method"),
        *(SUBSCRIBED, SUBSCRIBED.replace(b"/", b"\\/")),
    ]
)
scalars = st.sampled_from(
    [b"5", b"5.0", b"-0", b"0", b"null", b'"t"', b'"5"', b'"\\u0074"', b'"id"', b'"\\"id\\":5"']
)


def spelled_object(members: list[tuple[bytes, bytes]]) -> bytes:
    """Return an object with these members, also where a key comes twice."""
    return b"{%b}" % b", ".join(b'"%b" :%b' % member for member in members)


objects = st.recursive(
    scalars,
    lambda inner: st.lists(st.tuples(keys, inner), max_size=3).map(spelled_object),
    max_leaves=6,
)
heads = st.sampled_from(
    [[(b"id", b"5")], [(b"method", b'"n"')], [(b"params", b'{"progressToken":"t"}')], []]
)


@given(heads, st.lists(st.tuples(keys, objects), max_size=4), scalars, scalars)
def test_echoes_are_those_that_stand_at_their_paths(
    head: list[tuple[bytes, bytes]],
    members: list[tuple[bytes, bytes]],
    identity: bytes,
    token: bytes,
) -> None:
    """Whatever keys come twice or in another spelling, an echo is what stands at its path."""
    asking = b'{"jsonrpc":"2.0","id":%b,"method":"m","params":{"_meta":{"progressToken":%b}}}'
    asked = classify(asking % (identity, token))
    assume(asked is not None)
    sent = spelled_object([(b"jsonrpc", b'"2.0"'), *head, *members])
    answer = classify(sent)
    assume(answer is not None)

    is_response = answer.kind is Kind.RESPONSE
    subscription = ("result" if is_response else "params", "_meta", SUBSCRIPTION_KEY)
    wanted = {subscription: asked.id}
    wanted |= (
        {ID_PATH: asked.id} if is_response else {("params", "progressToken"): asked.progress_token}
    )
    expected = {
        span
        for path, spans in find_spans(sent, wanted.keys()).items()
        for span in spans
        if canonical(parse(sent[span.start : span.end])) == wanted[path]
    }
    found = echoes(answer, asked)
    assert {*found.id, *found.progress_token} == expected
