"""Facts about a cassette's file: what was recorded comes back, and what is no cassette is named."""

from __future__ import annotations

import codecs
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import astuple, replace
from typing import Any

import jsonschema
import orjson
import pytest
from builders import (
    JSON_HEADERS,
    STREAM_HEADERS,
    Answer,
    answer,
    cassette_of,
    encode_cassette,
    get,
    loaded,
    notification,
    post,
    progress,
    retry,
    sse,
    tool,
    values_of,
    with_token,
    without_digests,
)
from hypothesis import given
from messages import NO, YES, asks, text
from pushing import SCRIPTS, branched, made_up
from samples import sample

from mrtr_cassette.core.cassette.dump import dump, exchange_sha256
from mrtr_cassette.core.cassette.journal import decode_journal_line, encode_journal_line
from mrtr_cassette.core.cassette.load import load
from mrtr_cassette.core.cassette.model import SCHEMA_ID, cassette_schema
from mrtr_cassette.core.cassette.recorded import (
    RecordedBy,
    RecordedExchange,
    RecordedInteraction,
    RecorderFacts,
)
from mrtr_cassette.core.wire.http import (
    NO_STATUS,
    End,
    Piece,
    Request,
    Response,
    channel_request,
    header_value,
    line_request,
)
from mrtr_cassette.errors import CassetteError

CALL = tool("deploy", env="prod")
STATE = "S" * 30
TALK = (
    (CALL, asks("ok", state=STATE)),
    (
        post(retry(CALL, {"ok": YES}, state=STATE), ("Accept", "a"), ("Accept", "b")),
        text("done"),
    ),
    (retry(CALL, {"ok": NO}, state=STATE), asks("again")),
    (retry(CALL, {"ok": YES}, state="T" * 30), text("refused")),
    (
        get("/mcp?x=1", ("Accept", "a"), ("Accept", "b")),
        Answer((b"\xff", b"x"), end=End.OPEN),
    ),
    (
        tool("flow"),
        Answer((sse(progress(1)), b": ping\n\n"), STREAM_HEADERS, end=End.BROKEN),
    ),
    (tool("gone"), Answer((), status=0, end=End.OPEN)),
)
Change = Callable[[Any], object]


def tree_of(*script: Any) -> dict[str, Any]:
    """Return the file of a talk as JSON."""
    tree: dict[str, Any] = json.loads(encode_cassette(cassette_of(*(script or TALK))))
    return tree


def edited(change: Change, data: bytes = b"") -> bytes:
    """Return a file after an edit by hand, without digests."""
    tree = without_digests(json.loads(data) if data else tree_of())
    change(tree)
    return json.dumps(tree).encode()


def at(tree: Any, *path: str | int) -> Any:
    """Return what stands at a place."""
    for step in path:
        tree = tree[step]

    return tree


# What was recorded comes back


@given(SCRIPTS)
def test_pushed_turns_are_loaded_as_they_were_written(script: Any) -> None:
    """A file has each pushed request in its place, and each posted answer with its facts."""
    cassette, _ = made_up(script)

    assert astuple(load(dump(cassette), "f")) == astuple(cassette)


def test_header_that_comes_again_after_others_comes_back() -> None:
    """All of its values in their order, as proxies add a `Vary` behind the headers of a server."""
    twice = (("vary", "origin"), ("cache-control", "no-store"), ("vary", "accept"))
    alternating = Answer((answer(CALL, text("done")),), (*JSON_HEADERS, *twice))
    data = encode_cassette(cassette_of((CALL, alternating)))
    (exchange,) = load(data, "f").exchanges
    response = exchange.response

    assert response is not None
    assert sorted(response.headers) == sorted((*JSON_HEADERS, *twice))
    assert header_value(response.headers, "vary") == "origin, accept"


def test_recorders_and_their_exchanges_come_back() -> None:
    """In whole milliseconds; the first recorder and a number that is the same are left out."""
    cassette = loaded(cassette_of((tool("a"), text("b")), (tool("c"), text("d"))))
    owners = [RecordedBy("A", 1), RecordedBy("B", 1)]
    interactions = []
    for interaction, owner in zip(cassette.interactions, owners, strict=True):
        owned = replace(interaction.exchanges[0], recorded_by=owner)
        interactions.append(replace(interaction, exchanges=(owned,)))

    recorders = RecorderFacts("A", 7.4), RecorderFacts("B", 8.6, 1.2)
    changed = replace(cassette, interactions=tuple(interactions), recorders=recorders)
    data = dump(changed)
    first, second = json.loads(data)["recording"]["exchanges"]

    assert not first.keys() & {"recorder", "own_number"}
    assert (second["recorder"], second["own_number"]) == (2, 1)

    again = load(data, "f")

    assert again.recorders == (RecorderFacts("A", 7), RecorderFacts("B", 9, 1))
    assert [
        interaction.unshared_exchanges[0].recorded_by
        for interaction in again.interactions
    ] == owners


def test_all_facts_of_a_recorder_come_back() -> None:
    """Those too that no other test gives a value."""
    recorder = sample(RecorderFacts)
    cassette = replace(loaded(cassette_of()), recorders=(recorder,))

    assert load(dump(cassette), "f").recorders == (recorder,)


# How the file looks


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (
            b'{"a":null,"b":[1.5,true,"\xc3\xa9"]}',
            {"body": {"a": None, "b": [1.5, True, "é"]}},
        ),
        (b"false", {"body": False}),
        (b"", {}),
        (b"null", {"text": "null"}),
        (b'{"a": 1}', {"text": '{"a": 1}'}),
        (b"1.0e2", {"text": "1.0e2"}),
        (b'{"a":1,"a":2}', {"text": '{"a":1,"a":2}'}),
        (b"\xef\xbb\xbf{}", {"text": "\ufeff{}"}),
        (b"[" * 201 + b"]" * 201, {"text": "[" * 201 + "]" * 201}),
        (b"\xff\xfe", {"base64": "//4="}),
        (b'"\xed\xa0\x80"', {"base64": "Iu2ggCI="}),
    ],
)
def test_body_has_the_most_readable_form_that_gives_it_back(
    raw: bytes, shown: dict[str, Any]
) -> None:
    """A body is JSON where that round-trips, else text, else base64."""
    found = tree_of((b"x", raw))["interactions"][0]["response"]

    assert {key: found[key] for key in found.keys() - {"status", "headers"}} == shown


@pytest.mark.parametrize(
    ("raw", "form"),
    [
        (
            b'event: x\ndata: {"a":1}\n\n',
            {"before": "event: x\ndata: ", "data": {"a": 1}, "after": "\n\n"},
        ),
        (
            b'data:{"a":1}\r\n\r\n',
            {"before": "data:", "data": {"a": 1}, "after": "\r\n\r\n"},
        ),
        (b"data: 1\n:x\n\n", {"before": "data: ", "data": 1, "after": "\n:x\n\n"}),
        (b'data: {"a": 1}\n\n', {"text": 'data: {"a": 1}\n\n'}),
        (b'data: {"a":\ndata: 1}\n\n', {"text": 'data: {"a":\ndata: 1}\n\n'}),
        (b"data: null\n\n", {"text": "data: null\n\n"}),
        (b": ping\n\n", {"text": ": ping\n\n"}),
        (b": \xff\ndata: 1\n\n", {"base64": "OiD/CmRhdGE6IDEKCg=="}),
        (b"\xef\xbb\xbfdata: 1\n\n", {"text": "\ufeffdata: 1\n\n"}),
    ],
)
def test_event_shows_its_data_as_json_where_that_gives_it_back(
    raw: bytes, form: dict[str, Any]
) -> None:
    """An event is framing and JSON, else text, else base64; a byte order mark begins a stream."""
    streamed = Answer((b"\xef\xbb\xbfdata: 0\n\n", raw), STREAM_HEADERS)
    first, second = tree_of((CALL, streamed))["interactions"][0]["response"]["events"]

    assert first == {"before": "\ufeffdata: ", "data": 0, "after": "\n\n"}
    assert second == form


def test_file_is_indented_and_has_one_exchange_a_line() -> None:
    """A person reads the interactions from top to bottom, and skips the recording block."""
    data = dump(loaded(cassette_of(*TALK)))
    tree = json.loads(data)
    before, block = data.split(b'  "recording": ')
    head = {key: value for key, value in tree.items() if key != "recording"}

    assert list(head) == [
        "$schema",
        "version",
        "upstream",
        "request_state",
        "interactions",
    ]

    assert list(tree["interactions"][1]) == ["branch", "request", "elicitation_turns"]
    assert tree["interactions"][3]["request"]["http"]["headers"] == {
        "Accept": ["a", "b"]
    }
    assert (
        orjson.dumps(head, option=orjson.OPT_INDENT_2).removesuffix(b"\n}") + b",\n"
        == before
    )

    lines = [line for line in block.split(b"\n") if line.startswith(b"      {")]

    assert [json.loads(line.rstrip(b",")) for line in lines] == tree["recording"][
        "exchanges"
    ]
    assert data.endswith(b"]\n  }\n}\n")


def test_file_is_valid_by_the_published_schema() -> None:
    """The schema accepts what is written, refuses what isn't, and speaks of no code's models."""
    published = json.loads(cassette_schema())
    jsonschema.Draft202012Validator.check_schema(published)
    validator = jsonschema.Draft202012Validator(published)

    named = {"PieceModel", "Piece"} & published["$defs"].keys()

    assert (published["$id"], named) == (SCHEMA_ID, {"Piece"})
    assert list(validator.iter_errors(tree_of())) == []

    for change in (
        {"version": 2},
        {"extra": 1},
        {"interactions": {}},
        {"request_state": "open"},
    ):
        assert not validator.is_valid({**tree_of(), **change})


# Times


@pytest.mark.parametrize("sizes", [[], [None], [99, 1], [1, 4], [3, 3]])
def test_timings_that_do_not_fit_lose_no_byte(sizes: list[int | None]) -> None:
    """Edited timings may cost the rhythm, but never change what is served."""
    pieces = [
        {"at_ms": 0, "after": 1} | ({"size": size} if size else {}) for size in sizes
    ]
    for chunks, headers in (
        ((b"123", b"456"), ()),
        ((sse(b"1"), sse(b"2")), STREAM_HEADERS),
    ):
        tree = without_digests(tree_of((get("/"), Answer(chunks, headers))))
        tree["recording"]["exchanges"][0]["pieces"] = pieces
        response = load(orjson.dumps(tree), "f").interactions[0].exchanges[0].response

        assert response is not None
        assert response.body == b"".join(chunks)


def test_facts_may_be_missing_or_in_another_order() -> None:
    """Without them a cassette is loaded without order and rhythm; those of nothing are checked."""
    data = encode_cassette(cassette_of(*TALK))

    def facts_of(change: Change) -> list[tuple[int | None, float]]:
        changed = edited(lambda tree: change(tree["recording"]["exchanges"]), data)
        found = []
        for interaction in load(changed, "f").interactions:
            for exchange in interaction.unshared_exchanges:
                found.append((exchange.number, exchange.ended_ms))

        return found

    assert facts_of(lambda facts: facts.reverse()) == facts_of(lambda _: None)
    assert set(facts_of(lambda facts: facts.clear())) == {(None, 0)}

    moved = facts_of(lambda facts: facts[0].update(interaction=99))

    assert [number for number, _ in moved[:2]] == [None, 2]


# Digests


SMALL = dump(loaded(cassette_of((CALL, text("done")))))


@pytest.mark.parametrize("bit", range(8))
def test_no_flipped_bit_goes_unnoticed(bit: int) -> None:
    """Each bit of a file counts, or changes nothing that was exchanged."""
    known = values_of(load(SMALL, "f").interactions[0].exchanges[0])[1:3]
    for place in range(len(SMALL)):
        damaged = bytearray(SMALL)
        damaged[place] ^= 1 << bit
        try:
            cassette = load(bytes(damaged), "f")
        except CassetteError:
            continue

        assert values_of(cassette.interactions[0].exchanges[0])[1:3] == known


def test_digests_are_those_that_the_description_of_the_format_gives() -> None:
    """Another program computes the same ones, by the words of docs/cassette-format.md alone."""

    def netstring(raw: bytes) -> bytes:
        return b"%d:%b," % (len(raw), raw)

    def headers(members: dict[str, str]) -> bytes:
        found = b""
        for name, value in members.items():
            found += netstring(name.encode()) + netstring(value.encode())

        return found

    def body(members: dict[str, Any]) -> bytes:
        return json.dumps(members["body"], separators=(",", ":")).encode()

    cassette = cassette_of((CALL, text("done")), (tool("o", n=1), text("t")))
    tree = json.loads(dump(loaded(cassette)))
    for facts in tree["recording"]["exchanges"]:
        interaction = tree["interactions"][facts["interaction"] - 1]
        request = interaction["request"]
        response = interaction["response"]
        fields = [
            request["http"]["method"].encode(),
            request["http"]["path"].encode(),
            headers(request["http"]["headers"]),
            body(request),
            str(response["status"]).encode(),
            headers(response["headers"]),
            response.get("end", "").encode(),
            body(response),
        ]

        strings = b"".join(map(netstring, fields))
        digest = hashlib.sha256(strings).hexdigest()

        assert facts["sha256"] == digest


REQUEST = Request("POST", "/mcp", (("a", "b"), ("c", "d")), b"body")
RESPONSE = Response(
    200, (("e", "f"),), (Piece(b"12", 0, 0), Piece(b"3", 0, 0)), End.COMPLETE
)


@pytest.mark.parametrize(
    ("request_", "response"),
    [
        (replace(REQUEST, method="GET"), RESPONSE),
        (replace(REQUEST, target="/mcpb", body=b"ody"), RESPONSE),
        (replace(REQUEST, headers=(("a", "bc"), ("", "d"))), RESPONSE),
        (replace(REQUEST, headers=(("c", "d"), ("a", "b"))), RESPONSE),
        (REQUEST, None),
        (REQUEST, replace(RESPONSE, status=201)),
        (REQUEST, replace(RESPONSE, end=End.OPEN)),
        (REQUEST, replace(RESPONSE, pieces=RESPONSE.pieces[:1])),
        (REQUEST, replace(RESPONSE, headers=())),
    ],
)
def test_whatever_differs_gives_another_digest(
    request_: Request, response: Response | None
) -> None:
    """No two fields can be mistaken for others; only how the network cut a body doesn't count."""
    digest = exchange_sha256(REQUEST, RESPONSE)

    assert exchange_sha256(request_, response) != digest
    assert (
        exchange_sha256(REQUEST, replace(RESPONSE, pieces=(Piece(b"123", 5, 6),)))
        == digest
    )


TURN = ("elicitation_turns", 0)


@pytest.mark.parametrize(
    ("path", "place"),
    [
        (("request",), "interaction 1: "),
        ((*TURN, "ask"), "interaction 1: "),
        ((*TURN, "answer"), "interaction 1, turn 1: "),
        (("response",), "interaction 1, turn 1: "),
    ],
)
def test_exchange_that_is_not_the_recorded_one_is_refused(
    path: tuple[str | int, ...], place: str
) -> None:
    """An edited body is an error that names its place, and the way to accept it."""
    tree = tree_of(*TALK)
    at(tree["interactions"][0], *path)["body"]["jsonrpc"] = "3.0"

    with pytest.raises(
        CassetteError, match=f"^f: {place}.*the sha256 of .*check f --fix$"
    ):
        load(orjson.dumps(tree), "f")


# What is no cassette


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b" \n", r"^f: not JSON: "),
        (b"{", r"^f: not JSON: .*; the file is damaged, or not a cassette; restore it"),
        (b"\xff", r"^f: not JSON: "),
        (
            SMALL.replace(b'"number":1', b'"number"1'),
            r"^f: not JSON: .*line \d+ column",
        ),
        (
            b"{\n<<<<<<< HEAD\n1\n=======\n2\n>>>>>>> x\n}",
            r"^f: line 2 is the mark of a merge conf",
        ),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
            r"^f: a pointer of Git LFS, and not the cassette; fetch it with: git lfs pull$",
        ),
        (
            SMALL.decode().encode("utf-16"),
            r"^f: not JSON: .*UTF-16, and a cassette is UTF-8",
        ),
        (b"[]", r"^f: JSON, but not a cassette"),
        (b'{"interactions":[]}', r"^f: JSON, but not a cassette"),
        (b'{"version":true,"interactions":[]}', r"^f: JSON, but not a cassette"),
        (
            b'{"version":2,"interactions":[]}',
            r"^f: cassette version 2, and this program reads version 1; update mrtr-cassette$",
        ),
        (
            b'{"version":0,"interactions":[]}',
            r"^f: cassette version 0, .*; record it again$",
        ),
        (b'{"version":1,"interactions":[]}', r"^f: at /upstream: field required(;|$)"),
    ],
)
def test_file_that_is_no_cassette_is_refused_with_the_way_out(
    data: bytes, message: str
) -> None:
    """An error names file, place and reason, and what can be done."""
    with pytest.raises(CassetteError, match=message):
        load(data, "f")


def test_a_byte_order_mark_is_read_over() -> None:
    """What an editor put before a cassette changes nothing of it."""
    assert dump(load(codecs.BOM_UTF8 + SMALL, "f")) == SMALL


GONE = object()
DEEP = json.loads("[" * 300 + "]" * 300)
RULES = {"patterns": ["("], "keys": [], "disabled": []}


def with_patterns(*patterns: str) -> Any:
    """Return rules of redaction with these patterns."""
    return {"patterns": [*patterns], "keys": [], "disabled": []}


TURNS = "elicitation_turns"
ASK = tree_of()["interactions"][1][TURNS][1]
FIRST = ("interactions", 0)
SECOND = ("interactions", 1)
FOURTH = ("interactions", 3)


def put(tree: Any, path: Sequence[str | int], to: Any) -> None:
    """Give a member another value, or remove it."""
    inner = at(tree, *path[:-1])
    if to is GONE:
        del inner[path[-1]]
    else:
        inner[path[-1]] = to


@pytest.mark.parametrize(
    ("path", "to", "message"),
    [
        (("upstream",), 5, "/upstream: input should be a valid string, found 5"),
        (
            ("a/b",),
            "x" * 300,
            r"/a~1b: extra inputs .*, found 'x{199}… \(102 more characters\)",
        ),
        ((*FIRST, "request"), GONE, "/interactions/0/request: field required"),
        (
            (*FIRST, "response", "status"),
            "200",
            "/interactions/0/response/status: .* found '200'",
        ),
        ((*FIRST, "request", "text"), "1", "/interactions/0: both `body` and `text`"),
        ((*FIRST, "request", "body"), DEEP, "/interactions/0: "),
        ((*FOURTH, "response", "base64"), "A", "/interactions/3: Invalid base64"),
        (("redaction",), RULES, "/redaction: .*not a regular expression"),
        (
            ("redaction",),
            with_patterns("(a)" * 300),
            "/redaction: .*too many groups: 200",
        ),
        (
            ("redaction",),
            with_patterns("(a)" * 20_000),
            "/redaction: .* has 60,000 characters",
        ),
        (
            ("redaction",),
            with_patterns(r"\pL{1,250}"),
            "/redaction: .*repeats too much",
        ),
        (
            ("redaction",),
            with_patterns(*["(a)"] * 201),
            "/redaction: .*there are 201 .* 100 at most",
        ),
        (
            ("redaction",),
            with_patterns(*["(a)(b)(c)"] * 70),
            "/redaction: .*too many groups",
        ),
        ((*SECOND, "branch", "of"), 2, "/interactions/1: it branches at no answered"),
        ((*SECOND, "branch", "turn"), 3, "/interactions/1: it branches at no answered"),
        ((*SECOND, TURNS), [ASK], "/interactions/1: it branches at no answered result"),
        (
            (*SECOND, "request", "body"),
            1,
            "/interactions/1: .* not the same as interaction 1",
        ),
        ((*FIRST, TURNS), [ASK] * 2, "/interactions/0: turn 2 follows a turn without"),
        ((*FIRST, TURNS), [ASK], "/interactions/0: `response` follows a turn without"),
    ],
)
def test_what_cannot_have_been_recorded_is_named_by_its_place(
    path: Sequence[str | int], to: Any, message: str
) -> None:
    """None of it is passed over, whatever an editor or a merge made of the file."""
    with pytest.raises(CassetteError, match=f"^f: at {message}"):
        load(edited(lambda tree: put(tree, path, to)), "f")


@pytest.mark.parametrize(
    ("turn", "path", "to", "reason"),
    [
        (0, ("ask", "events"), [], "at {at}/push/ask/events: "),
        (
            0,
            ("ask", "events", 0, "event"),
            9,
            "at /interactions/1: elicitation-1 is not a request",
        ),
        (
            0,
            ("ask", "events", 0, "event"),
            2,
            "at /interactions/1: elicitation-1 is not a request",
        ),
        (
            0,
            ("ask", "events", 1, "interaction"),
            9,
            "at /interactions/1: roots-1 is not a request",
        ),
        (
            0,
            ("ask", "events", 1, "key"),
            "elicitation-1",
            "at /interactions/1: keys of turn 1",
        ),
        (
            0,
            ("answer", "responses", 1, "key"),
            "other",
            "at /interactions/1: keys of turn 1",
        ),
        (
            1,
            ("ask", "events", 0, "event"),
            0,
            "at /interactions/2: up to the ask of turn 3",
        ),
        (2, ("via",), "push", "at {at}/push/ask/events/0/key: field required"),
        (2, ("via",), "mail", "at {at}: `via` should be 'result', 'push' or 'task'"),
    ],
)
def test_pushed_turn_that_cannot_be_is_refused(
    turn: int, path: tuple[str | int, ...], to: Any, reason: str
) -> None:
    """An error names the place of a pushed turn that names nothing, or that differs in a branch."""
    changed = (2,) if "up to" in reason else (1, 2)

    def change(tree: Any) -> None:
        for index in changed:
            put(tree, ("interactions", index, "elicitation_turns", turn, *path), to)

    place = f"/interactions/{changed[0]}/elicitation_turns/{turn}"
    data = edited(change, dump(branched()))
    with pytest.raises(CassetteError) as caught:
        load(data, "f")

    assert str(caught.value).startswith(f"f: {reason.format(at=place)}")


# Pipes


ADD = with_token(tool("add", a=1), "t")


def piped(
    number: int, request: Request, *lines: bytes, end: End | None
) -> RecordedInteraction:
    """Return what was recorded of one request on a pipe; without an end there was no response."""
    response = None
    if end is not None:
        pieces = tuple(
            Piece(line, number + index, number) for index, line in enumerate(lines)
        )
        response = Response(NO_STATUS, (), pieces, end)

    exchange = RecordedExchange(
        number, request, response, number, number + 5, None, None
    )
    return RecordedInteraction(number, (exchange,), None, is_orphan=False)


INITIALIZED = notification("notifications/initialized")
PIPED = replace(
    loaded(cassette_of()),
    interactions=(
        piped(
            1,
            channel_request(),
            b"ready\n",
            b"\xff\n",
            b'{"a": 1}\n',
            b"{}",
            end=End.OPEN,
        ),
        piped(
            2,
            line_request(ADD),
            progress("t") + b"\n",
            answer(ADD, {}) + b"\n",
            end=End.COMPLETE,
        ),
        piped(3, line_request(INITIALIZED, "mrtr-session:1"), end=None),
        piped(4, line_request(b"no json\n"), end=None),
        piped(5, line_request(tool("die")), end=End.BROKEN),
    ),
    transport="stdio",
    client="0" * 64,
)


def test_a_recording_of_pipes_comes_back() -> None:
    """Requests, lines, ends, sessions and the client come back from a file and from a journal."""
    assert astuple(load(dump(PIPED), "f")) == astuple(PIPED)

    for interaction in PIPED.interactions:
        (exchange,) = interaction.exchanges

        assert values_of(
            decode_journal_line(encode_journal_line(exchange))
        ) == values_of(exchange)


def test_file_of_pipes_has_no_http() -> None:
    """It has lines, and no member that only HTTP gives a meaning."""
    first, second, third, fourth, fifth = json.loads(dump(PIPED))["interactions"]

    lines = [
        {"text": "ready\n"},
        {"base64": "/wo="},
        {"text": '{"a": 1}\n'},
        {"text": "{}"},
    ]

    assert first == {
        "request": {},
        "elicitation_turns": [],
        "response": {"end": "open", "lines": lines},
    }

    assert second["request"] == {"body": json.loads(ADD)}
    assert [line["data"]["jsonrpc"] for line in second["response"]["lines"]] == [
        "2.0",
        "2.0",
    ]

    assert third["request"]["session"] == "mrtr-session:1"
    assert fourth == {"request": {"text": "no json"}, "elicitation_turns": []}
    assert fifth["response"] == {"end": "broken"}


@pytest.mark.parametrize(
    ("transport", "place", "value", "reason"),
    [
        (
            "stdio",
            ("request", "http"),
            {"method": "POST", "path": "/", "headers": {}},
            "it has mem",
        ),
        ("stdio", ("response", "headers"), {}, "it has members of HTTP"),
        (None, ("request", "http"), None, "it has not all members of HTTP"),
    ],
)
def test_transport_says_whether_there_is_http(
    transport: str | None, place: tuple[str, str], value: Any, reason: str
) -> None:
    """Members of HTTP in a cassette of pipes are an error, and so is their lack."""

    def change(tree: Any) -> None:
        put(tree, ("transport",), transport)
        put(tree, ("interactions", 0, *place), value)

    data = edited(change, dump(replace(PIPED, interactions=PIPED.interactions[1:2])))
    with pytest.raises(CassetteError, match=f"/interactions/0: {reason}"):
        load(data, "f")
