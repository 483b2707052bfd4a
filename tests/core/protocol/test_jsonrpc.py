from __future__ import annotations

import json

import pytest
from builders import (
    STREAM_HEADERS,
    Answer,
    answer,
    notification,
    progress,
    response_of,
    rpc,
    sse,
    stream,
    tool,
    with_token,
)
from hypothesis import assume, given
from hypothesis import strategies as st
from messages import SUBSCRIPTION_KEY, asks, compact, text

from mrtr_cassette.core.protocol.dialect import ECHOED_STATE_PATH
from mrtr_cassette.core.protocol.jsonrpc import (
    ECHO_PLACES,
    ID_PATH,
    TOKEN_PATH,
    Kind,
    Message,
    ask_in,
    comparable_id_or_token,
    echoes_of_request,
    message_in,
    messages_in,
    response_to,
    splice_pieces,
)
from mrtr_cassette.core.wire.http import Piece
from mrtr_cassette.core.wire.jsonbytes import Span, canonical, find_spans, parse


def message(raw: bytes) -> Message:
    """Return a message that must be one."""
    found = message_in(raw)
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
def test_message_is_of_one_kind(
    raw: bytes, kind: Kind, method: str, identity: str | None
) -> None:
    """A message is a request, a notification or a response."""
    found = message(raw)

    assert (found.kind, found.method, found.id, found.raw) == (
        kind,
        method,
        identity,
        raw,
    )


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
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"n":1e'
        + b"9" * 5_000
        + b"}}",
        b"\xef\xbb\xbf" + rpc("ping"),
    ],
)
def test_anything_else_is_opaque(raw: bytes) -> None:
    """A batch, other JSON, and what can't be read or compared is no message."""
    assert message_in(raw) is None


MEMBER_VALUES = st.one_of(
    st.integers(-2, 10**20),
    st.text('id"\\é', max_size=4),
    st.dictionaries(st.sampled_from(["id", "a"]), st.sampled_from(["id", 1, None])),
)


@given(
    st.dictionaries(st.sampled_from(["id", "params", "a", 'x"id']), MEMBER_VALUES),
    st.booleans(),
    st.sampled_from(["", "\\u0069d", "id"]),
)
def test_id_is_as_it_was_spelled(
    members: dict[str, object],
    ensure_ascii: bool,  # noqa: FBT001
    second_key: str,
) -> None:
    """Wherever else its key is, as a text or in another member, and however it is spelled."""
    members = {"jsonrpc": "2.0", "result": {}, **members}
    raw = json.dumps(members, ensure_ascii=ensure_ascii)
    if second_key:
        raw = f'{raw[:-1]}, "{second_key}" : 7 }}'

    found = message(raw.encode())

    assert found.spelled_id == found.spelled(ID_PATH)


@pytest.mark.parametrize("size", [100, 1 << 15, 1 << 21])
def test_message_that_was_just_read_is_not_read_again(size: int) -> None:
    """Its tree is the same object for all who ask."""
    raw = tool("x", text="x" * size)

    assert message(raw) is message(raw)


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
    ("repeated", "name", "value"),
    [
        ("5", 5, " as text"),
        (5, "5", " as number"),
        ("5", "5", ""),
        (5.0, 5, ""),
        ('"5"', "5", None),
        ('"5"', 5, None),
        ("5.0", 5, None),
        ("6", 5, None),
        (None, 5, None),
    ],
)
def test_server_may_make_texts_of_numbers_and_numbers_of_texts(
    repeated: object, name: object, value: str | None
) -> None:
    """An id of a request or subscription and a token are repeated in the type that the server has."""
    request = message(with_token(rpc("subscriptions/listen", number=name), name))
    of_id = [] if value is None else [f"id{value}"]
    of_token = [] if value is None else [f"progress_token{value}"]

    for raw, found in (
        (notification("n", _meta=of(repeated)), of_id),
        (result(name, _meta=of(repeated)), ["id", *of_id]),
        (result(repeated), of_id),
        (progress(repeated), of_token),
    ):
        assert [
            echo.value for echo in echoes_of_request(message(raw), request)
        ] == found


IN_SCHEMA = {
    ("JSONRPCResultResponse", "id"): ("id",),
    ("JSONRPCErrorResponse", "id"): ("id",),
    ("SubscriptionsListenResultMetaObject", SUBSCRIPTION_KEY): (
        "result",
        "_meta",
        SUBSCRIPTION_KEY,
    ),
    ("NotificationMetaObject", SUBSCRIPTION_KEY): ("params", "_meta", SUBSCRIPTION_KEY),
    ("ProgressNotificationParams", "progressToken"): ("params", "progressToken"),
    ("CancelledNotificationParams", "requestId"): ("params", "requestId"),
}
"""The properties of type RequestId and ProgressToken in the JSON Schemas of MCP 2025-11-25 and
2026-07-28, and where they stand in a message. Left out are those of requests, which give a value
instead of repeating it, and types that only extend JSONRPCResultResponse or JSONRPCErrorResponse."""


def test_places_of_the_callers_values_are_those_of_the_schema() -> None:
    """The table has each place in which the protocol repeats a caller's value, and no other."""
    assert {place.path for place in ECHO_PLACES} == {*IN_SCHEMA.values()}


@pytest.mark.parametrize("method", ["subscriptions/listen", "events/stream"])
@pytest.mark.parametrize("spelled", [7, "7"])
def test_only_a_listening_stream_is_cancelled_by_its_server(
    spelled: int | str, method: str
) -> None:
    """Its cancellation repeats the id; otherwise a server cancels what it has asked itself."""
    cancelled = message(
        notification("notifications/cancelled", requestId=spelled, reason="bye")
    )
    listen = message(rpc(method, {}, 7))
    call = message(rpc("tools/call", {}, 7))

    (found,) = echoes_of_request(cancelled, listen)

    assert cancelled.raw[found.span.start : found.span.end] == compact(spelled)
    assert echoes_of_request(cancelled, call) == []


SUBSCRIBED = SUBSCRIPTION_KEY.encode()
keys = st.sampled_from(
    [
        b"id",
        b"\\u0069d",
        b"progressToken",
        b"a",
        b"params",
        b"result",
        b"_meta",
        b"method",
        SUBSCRIBED,
        SUBSCRIBED.replace(b"/", b"\\/"),
    ]
)
scalars = st.sampled_from(
    [
        b"5",
        b"5.0",
        b"-0",
        b"0",
        b"null",
        b'"t"',
        b'"5"',
        b'"\\u0074"',
        b'"id"',
        b'"\\"id\\":5"',
    ]
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
    [
        [(b"id", b"5")],
        [(b"method", b'"n"')],
        [(b"params", b'{"progressToken":"t"}')],
        [],
    ]
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
    asked = message_in(asking % (identity, token))
    assume(asked is not None)
    sent = spelled_object([(b"jsonrpc", b'"2.0"'), *head, *members])
    answer = message_in(sent)
    assume(answer is not None)

    is_response = answer.kind is Kind.RESPONSE
    subscription = ("result" if is_response else "params", "_meta", SUBSCRIPTION_KEY)
    wanted = {subscription: asked.id}
    if is_response:
        wanted[ID_PATH] = asked.id
    else:
        wanted["params", "progressToken"] = asked.progress_token

    expected = set()
    for path, span in find_spans(sent, wanted.keys()):
        found = canonical(parse(span.slice_of(sent)))
        if comparable_id_or_token(found) == comparable_id_or_token(wanted[path]):
            expected.add(span)

    assert {echo.span for echo in echoes_of_request(answer, asked)} == expected


# The messages of a response

CALL = tool("deploy")
DONE = answer(CALL, text("done"))
ASK = answer(CALL, asks("ok", state="S"))


@pytest.mark.parametrize(
    ("response", "found"),
    [
        (DONE, [(DONE, 0, 0)]),
        (Answer((DONE[:9], DONE[9:])), [(DONE, 1, 0)]),
        (Answer((b"",)), []),
        (b"<html>\n</html>", []),
        (b"no message\n", []),
        (
            Answer((progress(1) + b"\n", DONE)),
            [(progress(1) + b"\n", 0, 0), (DONE, 1, len(progress(1)) + 1)],
        ),
        (
            Answer(
                (
                    progress(1)[:9],
                    progress(1)[9:] + b"\r\n" + DONE[:5],
                    DONE[5:] + b"\n",
                )
            ),
            [(progress(1) + b"\r\n", 1, 0), (DONE + b"\n", 2, len(progress(1)) + 2)],
        ),
        (Answer((b"junk\n" + DONE,)), [(DONE, 0, 5)]),
        (
            stream(progress(1), DONE),
            [(progress(1), 0, 0), (DONE, 1, len(sse(progress(1))))],
        ),
        (
            stream(progress(1), progress(22), DONE),
            [
                (progress(1), 0, 0),
                (progress(22), 1, len(sse(progress(1)))),
                (DONE, 2, len(sse(progress(1), progress(22)))),
            ],
        ),
        (Answer((b": ping\n\n", b"data\n\n", b"data: junk\n\n"), STREAM_HEADERS), []),
    ],
)
def test_messages_are_found_where_they_stand(
    response: Answer | bytes, found: list[tuple[bytes, int, int]]
) -> None:
    """Messages are found in JSON, newline-delimited JSON and event streams, with their place."""
    located = messages_in(response_of(response))

    assert [
        (found.message.raw, found.piece, found.offset) for found in located
    ] == found


def test_span_of_a_message_is_placed_in_the_body() -> None:
    """A span of a message stands where its event's data line does, or nowhere across lines."""
    event = b'id: 1\ndata: {"jsonrpc":"2.0",\ndata: "id":1,"result":{}}\n\n'
    response = response_of(Answer((b": ping\n\n", event), STREAM_HEADERS))
    (located,) = messages_in(response)
    raw = located.message.raw

    def placed(part: bytes) -> bytes | None:
        at = raw.index(part)
        span = located.in_body(Span(at, at + len(part)))
        return None if span is None else response.body[span.start : span.end]

    assert placed(b'"id":1') == b'"id":1'
    assert placed(b'"2.0"') == b'"2.0"'
    assert placed(b'"2.0",\n"id"') is None


@pytest.mark.parametrize(
    ("bodies", "found"),
    [
        ([DONE], DONE),
        ([progress(1), DONE, answer(CALL, text("again"))], DONE),
        ([rpc("elicitation/create", {}, number=1), DONE], DONE),
        ([DONE.replace(b'"id":1', b'"id":1.0')], DONE.replace(b'"id":1', b'"id":1.0')),
        ([DONE.replace(b'"id":1', b'"id":"1"')], DONE.replace(b'"id":1', b'"id":"1"')),
        ([DONE.replace(b'"id":1', b'"id":"1"'), DONE], DONE),
        ([DONE.replace(b'"id":1', b'"id":null')], None),
        ([rpc("elicitation/create", {}, number=1)], None),
        ([], None),
    ],
)
def test_response_is_the_one_with_the_requests_id(
    bodies: list[bytes], found: bytes | None
) -> None:
    """Only a response answers a request, whatever id a pushed request has."""
    located = response_to(message(CALL), response_of(stream(*bodies)))

    assert (None if located is None else located.message.raw) == found


def test_ask_is_a_response_to_a_request() -> None:
    """An ask is found as the last event of a stream too; nothing else asks."""
    found = ask_in(message(CALL), response_of(stream(progress(1), ASK)))

    assert found is not None
    assert (found.message.raw, found.piece) == (ASK, 1)
    assert (found.dialect, found.request_state) == ("2026-07-28", "S")
    assert list(found.input_requests) == ["ok"]
    assert ask_in(message(CALL), response_of(DONE)) is None
    assert (
        ask_in(
            message(CALL),
            response_of(Answer((b'{"jsonrpc":"2.0","id":1,"error":{}}',))),
        )
        is None
    )

    assert ask_in(None, response_of(ASK)) is None
    assert ask_in(message(notification("n")), response_of(ASK)) is None


@pytest.mark.parametrize(
    ("replacements", "spliced"),
    [
        ([], [b"abc", b"def", b"ghi"]),
        ([(Span(1, 2), b"-")], [b"a-c", b"def", b"ghi"]),
        ([(Span(2, 7), b"=")], [b"ab=", b"", b"hi"]),
        ([(Span(3, 6), b"=")], [b"abc", b"=", b"ghi"]),
        ([(Span(7, 8), b"x"), (Span(0, 1), b"y")], [b"ybc", b"def", b"gxi"]),
        (
            [(Span(2, 4), b"="), (Span(4, 6), b"-"), (Span(6, 7), b"+")],
            [b"ab=", b"-", b"+hi"],
        ),
        ([(Span(1, 8), b"="), (Span(4, 5), b"-")], [b"a=", b"", b"i"]),
        ([(Span(1, 5), b"="), (Span(4, 8), b"-")], [b"a=", b"", b"i"]),
    ],
)
def test_span_is_replaced_across_pieces(
    replacements: list[tuple[Span, bytes]], spliced: list[bytes]
) -> None:
    """What replaces a span stands in the piece where the span began; no byte of any span stays."""
    pieces = tuple(Piece(raw, at, 0) for at, raw in enumerate((b"abc", b"def", b"ghi")))

    changed = splice_pieces(pieces, replacements)

    assert [piece.raw for piece in changed] == spliced
    assert [piece.at_ms for piece in changed] == [0, 1, 2]


def test_response_without_replacements_keeps_its_pieces() -> None:
    """Most responses that are written again have nothing to replace, and may be large."""
    pieces = (Piece(b"abc", 0, 0), Piece(b"def", 1, 0))

    assert splice_pieces(pieces, iter(())) is pieces
