from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import orjson
import pytest
from builders import (
    STREAM_HEADERS,
    Answer,
    asks,
    cassette_of,
    encode_cassette,
    exchange,
    get,
    loaded,
    post,
    retry,
    sse,
    text,
    tool,
    values_of,
    without_digests,
)

from mrtr_cassette.core.format.bodies import decode_body, encode_body, header_map, headers_of
from mrtr_cassette.core.format.codec import AT_ONCE, decode_cassette, decode_parts
from mrtr_cassette.core.format.journal import (
    CHECKSUM_LENGTH,
    decode_line,
    encode_line,
    with_checksum,
)
from mrtr_cassette.core.format.model import BodyModel
from mrtr_cassette.core.wire.http import End, Headers
from mrtr_cassette.errors import CassetteError

CALL = tool("deploy", env="prod")
TALK = (
    (CALL, asks("ok", state="S" * 30)),
    (retry(CALL, {"ok": 1}, state="S" * 30), text("done")),
    (retry(CALL, {"ok": 2}, state="S" * 30), text("left")),
)


def decoded(fields: dict[str, Any]) -> tuple[bytes, ...]:
    """Return the pieces of a body that went through a file."""
    written = BodyModel.model_validate(fields).model_dump(exclude_none=True)
    return decode_body(BodyModel.model_validate(orjson.loads(orjson.dumps(written))), "f", "/at")


@pytest.mark.parametrize(
    ("raw", "form", "shown"),
    [
        (b'{"a":null,"b":[1.5,true,"\xc3\xa9"]}', "body", {"a": None, "b": [1.5, True, "é"]}),
        (b"false", "body", False),
        (b"0", "body", 0),
        (b'""', "body", ""),
        (b"[]", "body", []),
        (b"null", "text", "null"),
        (b'{"a": 1}', "text", '{"a": 1}'),
        (b"1.0e2", "text", "1.0e2"),
        (b"18446744073709551616", "text", "18446744073709551616"),
        (b'{"a":1,"a":2}', "text", '{"a":1,"a":2}'),
        (b'"\\u00e9"', "text", '"\\u00e9"'),
        (b'"\\ud800"', "text", '"\\ud800"'),
        (b"-0", "text", "-0"),
        (b"1e400", "text", "1e400"),
        (b"\xef\xbb\xbf{}", "text", "\ufeff{}"),
        (b"a\r\n\x00b", "text", "a\r\n\x00b"),
        (b"[" * 201 + b"]" * 201, "text", "[" * 201 + "]" * 201),
        (b"\xff\xfe", "base64", "//4="),
        (b'"\xed\xa0\x80"', "base64", "Iu2ggCI="),
    ],
)
def test_body_has_the_most_readable_form_that_gives_it_back(
    raw: bytes, form: str, shown: object
) -> None:
    """A body is JSON where that round-trips, else text, else base64; always byte for byte."""
    fields = encode_body((raw,), events=False)

    assert fields.keys() == {form}
    assert fields[form] == shown
    assert decoded(fields) == (raw,)


@pytest.mark.parametrize("levels", [1, 199, 200, 201, 253, 254, 255, 1_000])
def test_deep_body_comes_back(levels: int) -> None:
    """However deep a body is nested, the file holds it."""
    raw = b'{"a":[' * levels + b"1" + b"]}" * levels
    cassette = cassette_of((b"x", raw))

    assert decode_cassette(encode_cassette(cassette), "f") == cassette
    response = loaded(cassette).interactions[0].exchanges[0].response
    assert response is not None
    assert response.body == raw


def test_empty_body_has_no_form() -> None:
    """Nothing is written for a body without bytes."""
    assert encode_body((), events=False) == encode_body((b"",), events=True) == {}
    assert decoded({}) == ()


@pytest.mark.parametrize(
    ("raw", "form"),
    [
        (
            b'id: 1\ndata: {"a":1}\n\n',
            {"before": "id: 1\ndata: ", "data": {"a": 1}, "after": "\n\n"},
        ),
        (b'data:{"a":1}\r\n\r\n', {"before": "data:", "data": {"a": 1}, "after": "\r\n\r\n"}),
        (b"data: 1\nid: 2\n\n", {"before": "data: ", "data": 1, "after": "\nid: 2\n\n"}),
        (b'data: {"a": 1}\n\n', {"text": 'data: {"a": 1}\n\n'}),
        (b'data: {"a":\ndata: 1}\n\n', {"text": 'data: {"a":\ndata: 1}\n\n'}),
        (b"data: null\n\n", {"text": "data: null\n\n"}),
        (b": ping\n\n", {"text": ": ping\n\n"}),
        (b"data\n\n", {"text": "data\n\n"}),
        (b"data: \xff\n\n", {"base64": "ZGF0YTog/woK"}),
        (b": \xff\ndata: 1\n\n", {"base64": "OiD/CmRhdGE6IDEKCg=="}),
    ],
)
def test_event_shows_its_data_as_json_where_that_gives_it_back(
    raw: bytes, form: dict[str, Any]
) -> None:
    """An event is framing and JSON, else text, else base64; always byte for byte."""
    fields = encode_body((b"data: 0\n\n", raw), events=True)

    assert fields["events"][1] == form
    assert decoded(fields) == (b"data: 0\n\n", raw)


def test_byte_order_mark_of_a_stream_comes_back() -> None:
    """A byte order mark before the first event is kept, and is no part of a later one."""
    marked = b"\xef\xbb\xbf" + sse(b"{}")
    fields = encode_body((marked, marked), events=True)

    first, second = fields["events"]

    assert first == {"before": "\ufeffdata: ", "data": {}, "after": "\n\n"}
    assert second == {"text": "\ufeffdata: {}\n\n"}
    assert decoded(fields) == (marked, marked)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"body": 1, "text": "1"}, "f: at /at: both `body` and `text`"),
        ({"base64": "AA==", "events": []}, "f: at /at: both `base64` and `events`"),
        ({"base64": "A"}, "f: at /at/base64: "),
        ({"base64": "\u00e9"}, "f: at /at/base64: "),
        ({"events": [{"text": ""}, {"base64": "A"}]}, "f: at /at/events/1/base64: "),
    ],
)
def test_damaged_body_is_refused_with_its_place(fields: dict[str, Any], message: str) -> None:
    """An error names file, place and reason, whatever is wrong with a body."""
    with pytest.raises(CassetteError, match=f"^{message}"):
        decoded(fields)


def test_body_that_is_too_deep_to_write_is_refused() -> None:
    """A hand-made body that no cassette of ours would hold as JSON is an error with its place."""
    value: Any = []
    for _ in range(300):
        value = [value]
    with pytest.raises(CassetteError, match=r"^f: at /at"):
        decode_body(BodyModel(body=value), "f", "/at")


def test_body_is_what_stands_there() -> None:
    """A body that was written by hand is read as it is spelled."""
    assert decoded({"body": {"b": 1, "a": 2}}) == (b'{"b":1,"a":2}',)
    assert decoded({"events": [{"data": 1}, {"before": "data: ", "data": 2, "after": "\n\n"}]}) == (
        b"1",
        b"data: 2\n\n",
    )


@pytest.mark.parametrize(
    ("headers", "shown"),
    [
        ((), {}),
        ((("Accept", "a"), ("Mcp-Name", "n")), {"Accept": "a", "Mcp-Name": "n"}),
        ((("A", "1"), ("A", "2"), ("A", "3")), {"A": ["1", "2", "3"]}),
        ((("A", "1"), ("a", "2")), {"A": "1", "a": "2"}),
    ],
)
def test_headers_come_back(headers: Headers, shown: dict[str, Any]) -> None:
    """A header that came once is a string, one that came more often a list."""
    assert header_map(headers) == shown
    assert headers_of(header_map(headers)) == headers


def test_cassette_comes_back() -> None:
    """A written cassette is read as it was, and written as it was read."""
    cassette = cassette_of(*TALK)
    written = encode_cassette(cassette)

    assert decode_cassette(written, "f") == cassette
    assert encode_cassette(decode_cassette(written, "f")) == written
    assert written.endswith(b"\n}\n")
    assert b'\n  "version": 1,\n' in written


def edited(change: Callable[[dict[str, Any]], object]) -> bytes:
    """Return the file of a talk after an edit by hand."""
    tree = without_digests(json.loads(encode_cassette(cassette_of(*TALK))))
    change(tree)
    return json.dumps(tree).encode()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"^f: the file is empty; record it again$"),
        (b" \n", r"^f: the file is empty; record it again$"),
        (b"{", r"^f: not JSON: .*; the file is damaged or no cassette; restore it"),
        (b"\xff", r"^f: not JSON: "),
        (b"[" * 100_000, r"^f: not JSON: "),
        (b'{"version":1,"interactions":"\\ud800"}', r"^f: not JSON: "),
        (b"[]", r"^f: JSON, but no mrtr-cassette file"),
        (b"null", r"^f: JSON, but no mrtr-cassette file"),
        (b'{"interactions":[]}', r"^f: JSON, but no mrtr-cassette file"),
        (b'{"version":1}', r"^f: JSON, but no mrtr-cassette file"),
        (b'{"version":true,"interactions":[]}', r"^f: JSON, but no mrtr-cassette file"),
        (b'{"version":1.0,"interactions":[]}', r"^f: JSON, but no mrtr-cassette file"),
        (b'{"version":"1","interactions":[]}', r"^f: JSON, but no mrtr-cassette file"),
        (
            b'{"version":2,"interactions":[]}',
            r"^f: cassette version 2, and this program reads version 1; update mrtr-cassette$",
        ),
        (
            b'{"version":0,"interactions":[]}',
            r"^f: cassette version 0, and this program reads version 1; record it again$",
        ),
        (b'{"version":1,"interactions":[]}', r"^f: at /upstream: field required(;|$)"),
        (
            edited(lambda tree: tree.update(upstream=5)),
            r"^f: at /upstream: input should be a valid string, found 5(;|$)",
        ),
        (
            edited(lambda tree: tree.update({"a/b": "x" * 300})),
            r"^f: at /a~1b: extra inputs are not permitted, found 'x{199}… \(102 more characters\)(;|$)",
        ),
        (
            edited(lambda tree: tree["interactions"][0]["request"]["http"].pop("path")),
            r"^f: at /interactions/0/request/http/path: field required(;|$)",
        ),
        (
            edited(lambda tree: tree["interactions"][0]["response"].update(status="200")),
            r"^f: at /interactions/0/response/status: input should be a valid integer, found '200'(;|$)",
        ),
        (
            edited(lambda tree: tree["recording"].update(sha256="x")),
            r"^f: at /recording/sha256: string should match pattern",
        ),
        (
            edited(lambda tree: tree["interactions"][1]["branch"].update(of=2)),
            r"^f: at /interactions/1/branch/of: 2 is no earlier interaction(;|$)",
        ),
        (
            edited(lambda tree: tree["interactions"][1]["branch"].update(turn=2)),
            r"^f: at /interactions/1/branch/turn: interaction 2 has no such turn(;|$)",
        ),
        (
            edited(
                lambda tree: (
                    tree["interactions"][1]["branch"].update(turn=2),
                    tree["interactions"][1]["elicitation_turns"].append(
                        tree["interactions"][1]["elicitation_turns"][0]
                    ),
                )
            ),
            r"^f: at /interactions/1/branch/turn: interaction 1 has no such turn(;|$)",
        ),
    ],
)
def test_file_that_is_no_whole_cassette_is_refused(data: bytes, message: str) -> None:
    """An error names file, place and reason, and what can be done."""
    with pytest.raises(CassetteError, match=message):
        decode_cassette(data, "f")


INDENTED = orjson.OPT_INDENT_2


@pytest.mark.parametrize("option", [None, INDENTED, INDENTED | orjson.OPT_SORT_KEYS])
@pytest.mark.parametrize("script", [(), TALK])
def test_file_is_the_same_however_it_is_spelled(script: Sequence[Any], option: int | None) -> None:
    """Spaces and the order of members don't count; the lists may be read item by item or not."""
    cassette = cassette_of(*script)
    tree = orjson.loads(encode_cassette(cassette))

    assert decode_cassette(orjson.dumps(tree, option=option), "f") == cassette


@pytest.mark.parametrize("option", [None, INDENTED, INDENTED | orjson.OPT_SORT_KEYS])
@pytest.mark.parametrize(
    ("place", "pointer"),
    [
        (("interactions", 1, "response", "status"), "/interactions/1/response/status"),
        (("recording", "exchanges", 2, "number"), "/recording/exchanges/2/number"),
        (("recording", "tool"), "/recording/tool"),
    ],
)
def test_wrong_value_is_named_by_its_place(
    place: Sequence[str | int], pointer: str, option: int | None
) -> None:
    """Whether a list is read item by item or not, the error says where in the file it is."""
    tree = orjson.loads(encode_cassette(cassette_of(*TALK)))
    inner = tree
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = []

    with pytest.raises(CassetteError, match=rf"^f: at {pointer}: .*, found an array"):
        decode_cassette(orjson.dumps(tree, option=option), "f")


@pytest.mark.parametrize("number", [0, AT_ONCE - 1, AT_ONCE, 2 * AT_ONCE])
def test_items_before_a_wrong_one_are_read(number: int) -> None:
    """Of a list, an item is right or wrong by itself, though several are read together."""
    tree = orjson.loads(encode_cassette(cassette_of(*[(CALL, text("done"))] * (2 * AT_ONCE + 1))))
    tree["interactions"][number]["response"]["status"] = 1
    interactions = decode_parts(orjson.dumps(tree, option=INDENTED), "f").interactions

    assert len(list(islice(interactions, number))) == number
    with pytest.raises(CassetteError, match=rf"^f: at /interactions/{number}/response/status: "):
        next(interactions)


@pytest.mark.parametrize("broken", [b'"number": 2', b'"status": 200'])
@pytest.mark.parametrize("calls", [2, 100])
def test_damage_within_a_list_is_told_as_that_of_the_file(broken: bytes, calls: int) -> None:
    """What is no JSON in one item makes the file no JSON, at its place in the file."""
    whole = encode_cassette(cassette_of(*[(CALL, text("done"))] * calls))
    before, _, after = whole.rpartition(broken)
    data = before + broken.replace(b":", b"") + after

    with pytest.raises(CassetteError, match=r"^f: not JSON: .*line \d+") as raised:
        decode_cassette(data, "f")
    line = before.count(b"\n") + 1
    assert f"line {line} " in str(raised.value)


@pytest.mark.parametrize("depth", [250, 500, 990, 1_010])
def test_file_of_a_wrong_type_is_refused_however_deep(depth: int) -> None:
    """A wrong value that is nested deeply is an error like any other."""
    tree = json.loads(encode_cassette(cassette_of(*TALK)))
    tree["interactions"] = [0]
    data = json.dumps(tree).replace("[0]", f"[{'[' * depth}{']' * depth}]").encode()

    with pytest.raises(CassetteError, match=r"^f: "):
        decode_cassette(data, "f")


@pytest.mark.parametrize(
    "change",
    [
        lambda turns, _: turns.insert(0, {"ask": turns[0]["ask"]}),
        lambda turns, _: turns[0].pop("answer"),
    ],
    ids=["turn without answer before another", "response after a turn without answer"],
)
def test_file_whose_turns_cannot_have_happened_is_refused(
    change: Callable[[list[Any], Any], object],
) -> None:
    """Only the last turn may lack an answer, and then there is no response: none is ignored."""
    data = edited(
        lambda tree: (
            tree["interactions"].pop(),
            change(tree["interactions"][0]["elicitation_turns"], tree),
        )
    )
    with pytest.raises(CassetteError, match=r"^f: at /interactions/0/"):
        decode_cassette(data, "f")


@pytest.mark.parametrize(
    ("rules", "named"),
    [({"patterns": ["("]}, "no regular expression"), ({"disabled": ["cursor"]}, "'cursor'")],
)
def test_file_whose_rules_cannot_be_meant_is_refused(
    rules: dict[str, list[str]], named: str
) -> None:
    """Rules of redaction that were damaged by hand are an error that names them."""
    tree = orjson.loads(encode_cassette(cassette_of((tool("x"), text("y")), redacts=True)))
    tree["redaction"].update(rules)

    with pytest.raises(CassetteError, match=rf"f\.json: at /redaction: .*{named}"):
        decode_cassette(orjson.dumps(tree), "f.json")


def test_response_after_an_unanswered_later_turn_is_refused() -> None:
    """Of several turns it is the last that ends an interaction."""
    script = [
        (CALL, asks("a")),
        (retry(CALL, {"a": 1}), asks("b")),
        (retry(CALL, {"b": 1}), text("done")),
    ]
    tree = json.loads(encode_cassette(cassette_of(*script)))
    del tree["interactions"][0]["elicitation_turns"][1]["answer"]

    with pytest.raises(CassetteError, match=r"^f: at /interactions/0/response"):
        decode_cassette(json.dumps(tree).encode(), "f")


def test_branch_of_a_turn_that_it_does_not_answer_is_refused() -> None:
    """A branch without an answer of its own is no interaction."""

    def cut(tree: dict[str, Any]) -> None:
        del tree["interactions"][1]["elicitation_turns"][0]["answer"]
        del tree["interactions"][1]["response"]

    with pytest.raises(CassetteError, match=r"^f: at /interactions/1/"):
        decode_cassette(edited(cut), "f")


STREAM = Answer((sse(b"{}"), b": \xff\n\n"), STREAM_HEADERS, end=End.OPEN)


@pytest.mark.parametrize(
    "recorded",
    [
        exchange(CALL, text("done")),
        exchange(b"\xff\x00", b"\xfe"),
        exchange(get("/mcp?x=1", ("Accept", "é")), STREAM),
        exchange(CALL, Answer((), status=0, end=End.OPEN)),
        exchange(CALL, asks("ok", state="S"), number=7),
        exchange(retry(CALL, {"ok": 1}, state="S"), Answer((b"a", b"b"), end=End.BROKEN)),
    ],
)
def test_journal_line_comes_back(recorded: Any) -> None:
    """An exchange is one line, and comes back as it was; the line cut short is refused."""
    line = encode_line(recorded)

    assert line.count(b"\n") == 1
    assert values_of(decode_line(line)) == values_of(recorded)
    for cut in range(len(line) - 1):
        with pytest.raises(ValueError, match=r"."):
            decode_line(line[:cut])


def test_journal_line_of_a_name_that_is_no_text_comes_back() -> None:
    """Bodies with lone surrogates pass through the journal, escaped or not."""
    for body in (rb'"\ud800"', b'"\xed\xa0\x80"'):
        recorded = exchange(post(body), body)

        assert values_of(decode_line(encode_line(recorded))) == values_of(recorded)


def journal_tree() -> dict[str, Any]:
    """Return what a journal line holds."""
    tree: dict[str, Any] = json.loads(encode_line(exchange(CALL, text("done")))[:-CHECKSUM_LENGTH])
    return tree


@pytest.mark.parametrize(
    "tree",
    [
        None,
        5,
        [],
        "x",
        {},
        {**journal_tree(), "request": 5},
        {**journal_tree(), "request": ["POST", "/", [["a"]], {"text": ""}]},
        {**journal_tree(), "request": ["POST", "/", 5, {"text": ""}]},
        {**journal_tree(), "request": ["POST", "/", [], {"base64": "A"}]},
        {**journal_tree(), "request": ["POST", "/", [], {"base64": "é"}]},
        {**journal_tree(), "request": ["POST", "/", [], {"base64": "AA=!="}]},
        {**journal_tree(), "request": ["POST", "/", [], {"base64": 5}]},
        {**journal_tree(), "request": ["POST", "/", [], {"text": 5}]},
        {**journal_tree(), "request": ["POST", "/", [], "base64"]},
        {**journal_tree(), "response": [200, [], "ended", []]},
        {**journal_tree(), "response": [200, [], [], []]},
        {**journal_tree(), "response": [200, [], "open", [1]]},
        {**journal_tree(), "response": [200, [], "open", [[{"text": ""}, 1]]]},
        {key: value for key, value in journal_tree().items() if key != "number"},
        {**journal_tree(), "number": "1"},
        {**journal_tree(), "request": ["POST", "/", [], {}]},
        {**journal_tree(), "number": 0},
        {**journal_tree(), "started_ms": "1"},
        {**journal_tree(), "issued_sha256": "x"},
        {**journal_tree(), "request": ["POST", "/", [["Accept", 5]], {"text": ""}]},
        {**journal_tree(), "response": ["200", [], "open", []]},
        {**journal_tree(), "response": [200, [], "open", [[{"text": ""}, 1, "1"]]]},
    ],
)
def test_journal_line_of_another_shape_is_refused(tree: Any) -> None:
    """JSON that is no exchange is refused by the one documented error."""
    with pytest.raises(ValueError, match=r"."):
        decode_line(with_checksum(json.dumps(tree).encode()))


def test_end_of_a_response_comes_back() -> None:
    """How a response ended survives the journal and the cassette."""
    for end in End:
        recorded = replace(exchange(CALL, Answer((b"a",), end=end)), number=1)
        response = decode_line(encode_line(recorded)).response
        assert response is not None
        assert response.end is end

        cassette = loaded(cassette_of((CALL, Answer((b"a",), end=end))))
        response = cassette.interactions[0].exchanges[0].response
        assert response is not None
        assert response.end is end
