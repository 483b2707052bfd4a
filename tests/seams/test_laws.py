"""Laws of the core, tried on made-up input.

The `ci` profile tries the same examples on every run; `MRTR_HYPOTHESIS_PROFILE=deep` tries many
more, and others each time.
"""

from __future__ import annotations

import gzip
import itertools
import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any, NamedTuple

from builders import (
    JSON_HEADERS,
    STREAM_HEADERS,
    Answer,
    Conversation,
    changed,
    conversation,
    decode_cassette,
    encode_cassette,
    loaded,
    post,
    progress,
    retry,
    rpc,
    sent_now,
    sse,
    tool,
    values_of,
    with_id,
    with_token,
)
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from messages import Json, asks, compact, text
from verifying import reported_miss

from mrtr_cassette.core.cassette.dump import dump
from mrtr_cassette.core.cassette.journal import decode_journal_line, encode_journal_line
from mrtr_cassette.core.cassette.lookup import lookup_key
from mrtr_cassette.core.cassette.model import CassetteModel
from mrtr_cassette.core.cassette.recorded import Cassette, RecordedExchange
from mrtr_cassette.core.drive.rerecording import recorded_over
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.protocol.dialect import answers_in, ask_in_result
from mrtr_cassette.core.protocol.jsonrpc import message_in
from mrtr_cassette.core.replay.deliveries import Play
from mrtr_cassette.core.replay.diagnosis import Miss, Reason
from mrtr_cassette.core.replay.order import History, Repeat
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.report.details import details_of
from mrtr_cassette.core.report.events import response_log_line
from mrtr_cassette.core.report.runs import error_body, report_of_replay, summary_text
from mrtr_cassette.core.report.text import inspection_text
from mrtr_cassette.core.secrets.sealed import is_searched_everywhere
from mrtr_cassette.core.wire.codings import with_decoded_body
from mrtr_cassette.core.wire.http import End, Request
from mrtr_cassette.core.wire.jsonbytes import (
    MemberPath,
    Number,
    canonical,
    find_spans,
    parse,
    splice,
)
from mrtr_cassette.core.wire.pointers import without_null_members
from mrtr_cassette.core.wire.sse import SseFramer, read_event
from mrtr_cassette.errors import CassetteError, NotJsonError

# Made-up JSON, and made-up spellings of it


class Num(NamedTuple):
    """A number by its value: `mantissa` times ten to the power of `exponent`."""

    mantissa: int
    exponent: int


numbers = st.builds(
    Num,
    st.one_of(
        st.integers(-20, 20),
        st.integers(),
        st.sampled_from([2**53, 2**64, 2**64 + 1, 10**30]),
    ),
    st.one_of(st.just(0), st.integers(-25, 25)),
)
texts = st.one_of(
    st.text(max_size=8), st.sampled_from(["\ud800", "a\udfff", "\U0001f600", "\x00"])
)
scalars = st.one_of(st.none(), st.booleans(), numbers, texts)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)
    ),
    max_leaves=12,
)
objects = st.dictionaries(texts, values, max_size=4)


def spellings(number: Num) -> list[str]:
    """Return ways to write a number."""
    mantissa = number.mantissa
    exponent = number.exponent
    return [
        f"{mantissa}e{exponent}",
        f"{mantissa}.0E{exponent:+}",
        f"{mantissa * 100}e{exponent - 2}",
        f"{mantissa}e{exponent:+04}",
        format(Decimal(f"{mantissa}e{exponent}"), "f"),
    ]


def spell(value: Any, chance: Random) -> bytes:
    """Return a JSON text of a value, in a spelling left to chance."""

    def space() -> bytes:
        return chance.choice([b"", b"", b"", b" ", b"\n\t", b"\r\n  "])

    def string(words: str) -> bytes:
        escaped = json.dumps(words).encode()
        if not words.isprintable():
            return escaped

        utf16 = words.encode("utf-16-be")
        every = b"".join(
            b"\\u" + utf16[at : at + 2].hex().encode() for at in range(0, len(utf16), 2)
        )
        return chance.choice(
            [escaped, b'"%s"' % every, json.dumps(words, ensure_ascii=False).encode()]
        )

    def write(inner: Any) -> bytes:
        if isinstance(inner, Num):
            return chance.choice(spellings(inner)).encode()
        if isinstance(inner, str):
            return string(inner)

        if isinstance(inner, dict):
            keys = chance.sample(list(inner), len(inner))
            pairs = [
                space()
                + string(key)
                + space()
                + b":"
                + space()
                + write(inner[key])
                + space()
                for key in keys
            ]
            return b"{" + (b",".join(pairs) or space()) + b"}"

        if isinstance(inner, list):
            items = [space() + write(item) + space() for item in inner]
            return b"[" + (b",".join(items) or space()) + b"]"

        return json.dumps(inner).encode()

    return write(value)


seeds = st.integers(0, 2**32).map(Random)


def spelled(value: Any) -> st.SearchStrategy[bytes]:
    """Return JSON texts of a value, in any spelling."""
    return seeds.map(lambda chance: spell(value, chance))


def meaning(value: Any) -> Any:
    """Return what two values share if and only if they are the same, told by other means."""
    if isinstance(value, Num):
        return ("number", value.mantissa * Fraction(10) ** value.exponent)
    if isinstance(value, dict):
        return (
            "object",
            frozenset((key, meaning(inner)) for key, inner in value.items()),
        )
    if isinstance(value, list):
        return ("array", tuple(meaning(inner) for inner in value))

    return (type(value).__name__, value)


def scalar_paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return where in a value its scalars are."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        paths = []
        for key, inner in items:
            paths += scalar_paths(inner, (*at, key))

        return paths

    return [at]


def with_scalar(value: Any, path: tuple[Any, ...], scalar: Any) -> Any:
    """Return a value with one scalar replaced."""
    if not path:
        return scalar

    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = with_scalar(value[path[0]], path[1:], scalar)
    return copy


@st.composite
def cut(draw: st.DrawFn, raw: bytes) -> list[bytes]:
    """Return bytes cut into chunks anywhere, some of them empty."""
    places = sorted(draw(st.lists(st.integers(0, len(raw)), max_size=6)))
    return [raw[start:end] for start, end in itertools.pairwise([0, *places, len(raw)])]


# Event streams

FRAGMENTS = (
    b"data: ",
    b"data:",
    b"data",
    b"id: 1",
    b": ping",
    b"event: x",
    b"\n",
    b"\r",
    b"\r\n",
    b"\n\n",
    b"\r\r",
    b"\r\n\r\n",
    b"\xef\xbb\xbf",
    b"\xef",
    b"{}",
    b'{"jsonrpc":"2.0","id":1,"result":{}}',
    b"\x00",
    b"\xff",
    b"\xc2\x85",
    b" ",
    b":",
)
fragments = st.one_of(st.sampled_from(FRAGMENTS), st.binary(max_size=3))
streams = st.lists(fragments, max_size=14).map(b"".join)


def dispatched(raw: bytes) -> list[bytes]:
    """Return the data of each event that ends, by the letter of the standard."""
    lines = re.split(rb"\r\n|\r|\n", raw.removeprefix(b"\xef\xbb\xbf"))
    events = []
    data = None
    for line in lines[:-1]:
        if not line:
            if data is not None:
                events.append(b"\n".join(data))

            data = None
        elif line.partition(b":")[0] == b"data":
            rest = line.partition(b":")[2]
            data = [*(data or []), rest.removeprefix(b" ")]

    return events


@given(st.data())
def test_framing_loses_nothing_and_does_not_depend_on_the_cut(
    data: st.DataObject,
) -> None:
    """The bytes of all events and the rest are the stream, and the events those of the standard."""
    raw = data.draw(streams)
    runs = []
    for chunks in (
        data.draw(cut(raw)),
        [raw],
        [raw[at : at + 1] for at in range(len(raw))],
    ):
        framer = SseFramer()
        events: list[Any] = []
        for chunk in chunks:
            events += framer.feed(chunk)

        last, rest = framer.finish()
        runs.append(([*events, last] if last else events, rest))

    framed, rest = runs[0]

    assert runs == [runs[0]] * 3
    assert b"".join(framed) + rest == raw

    events = [read_event(event, first=index == 0) for index, event in enumerate(framed)]

    assert [event.data for event in events if event.data is not None] == dispatched(raw)

    for event in events:
        for offset, line in event.data_lines:
            assert event.data is not None
            assert event.data[offset:].startswith(event.raw[line.start : line.end])


# Splicing

SPLICED: tuple[MemberPath, ...] = (
    ("id",),
    ("params", "_meta", "progressToken"),
    ("params", "requestState"),
)


@st.composite
def messy_objects(draw: st.DrawFn) -> bytes:
    """Return an object whose members may come twice, and some of which are those we splice."""
    chance = draw(seeds)

    def obj(inner: Callable[[], bytes], names: list[str]) -> bytes:
        pairs = [
            spell(draw(st.sampled_from(names)), chance)
            + b" :" * (at % 2)
            + b":" * (1 - at % 2)
            + inner()
            for at in range(draw(st.integers(0, 4)))
        ]
        return b"{" + b" ,".join(pairs) + b"}"

    def leaf() -> bytes:
        return spell(draw(values), chance)

    def meta() -> bytes:
        return obj(leaf, ["progressToken", "id"]) if draw(st.booleans()) else leaf()

    def params() -> bytes:
        return (
            obj(meta, ["_meta", "requestState", "id"])
            if draw(st.booleans())
            else leaf()
        )

    return b"\t" + obj(params, ["id", "params", "", "ïd", "i\\d"]) + b"\n"


def duplicates_kept(raw: bytes) -> Any:
    """Return what a text says, with objects as lists of all their members."""
    return json.loads(
        raw,
        object_pairs_hook=lambda pairs: ("object", pairs),
        parse_int=str,
        parse_float=str,
    )


@given(messy_objects(), st.sampled_from(SPLICED), values.flatmap(spelled))
def test_splicing_changes_the_span_and_nothing_else(
    raw: bytes, path: MemberPath, new: bytes
) -> None:
    """Outside the spans every byte stays, the members get the new value, and it can be undone."""
    spans = [span for _, span in find_spans(raw, [path])]
    old = [raw[span.start : span.end] for span in spans]
    marks = [b'"mark %d"' % at for at in range(len(spans))]

    spliced = splice(raw, [(span, new) for span in spans])

    outside = [raw]
    if spans:
        marked = splice(raw, list(zip(spans, marks, strict=True)))
        outside = re.split(b"|".join(marks), marked)

    assert spliced == new.join(outside)

    restored = outside[0]
    for inside, part in zip(old, outside[1:], strict=True):
        restored += inside + part

    assert restored == raw

    found = [span for _, span in find_spans(spliced, [path])]

    assert [spliced[span.start : span.end] for span in found] == [new] * len(spans)
    assert splice(spliced, list(zip(found, old, strict=True))) == raw

    def replaced(value: Any, at: MemberPath) -> Any:
        if not at:
            return duplicates_kept(new)
        if not (isinstance(value, tuple) and value[0] == "object"):
            return value

        return (
            "object",
            [
                (key, replaced(inner, at[1:]) if key == at[0] else inner)
                for key, inner in value[1]
            ],
        )

    assert duplicates_kept(spliced) == replaced(duplicates_kept(raw), path)


# Keys


@given(values, values)
def test_canonical_text_tells_values_apart(first: Any, second: Any) -> None:
    """Two values have the same canonical text if and only if they mean the same."""

    def text_of(value: Any) -> str:
        def read(inner: Any) -> Any:
            if isinstance(inner, Num):
                return Number(f"{inner.mantissa}e{inner.exponent}")
            if isinstance(inner, dict):
                return {key: read(member) for key, member in inner.items()}
            return [read(item) for item in inner] if isinstance(inner, list) else inner

        return canonical(read(value))

    is_same = meaning(first) == meaning(second)

    assert (text_of(first) == text_of(second)) is is_same


def spelled_call(
    draw: Callable[[st.SearchStrategy[Any]], Any], arguments: Any, **params: Any
) -> bytes:
    """Return a call in any spelling, with any id and `_meta`, and with arguments if there are any."""
    inner = {"name": "deploy", **params}
    if arguments or draw(st.booleans()):
        inner["arguments"] = arguments

    if draw(st.booleans()):
        inner["_meta"] = draw(objects)

    tree = {
        "jsonrpc": "2.0",
        "id": draw(st.one_of(numbers, texts)),
        "method": "tools/call",
        "params": inner,
    }

    raw: bytes = draw(spelled(tree))
    return raw


@given(st.data())
def test_key_does_not_depend_on_spelling_id_or_meta(data: st.DataObject) -> None:
    """The same call has the same key, whoever sends it and however it is spelled."""
    arguments = data.draw(objects)
    call = read_call(post(spelled_call(data.draw, arguments)))
    again = read_call(post(spelled_call(data.draw, arguments)))

    assert call.key() == again.key()
    assert lookup_key(call) == lookup_key(again)


@given(st.data())
def test_key_depends_on_every_scalar(data: st.DataObject) -> None:
    """One other scalar anywhere makes another call; the same in answers makes another retry."""
    arguments = {"x": data.draw(values), "y": data.draw(scalars)}
    path = data.draw(st.sampled_from(scalar_paths(arguments)))
    changed_arguments = with_scalar(arguments, path, data.draw(scalars))
    differs = meaning(arguments) != meaning(changed_arguments)

    call = read_call(post(spelled_call(data.draw, arguments)))
    changed_call = read_call(post(spelled_call(data.draw, changed_arguments)))

    assert (call.key() != changed_call.key()) is differs

    def stripped(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: stripped(inner)
                for key, inner in value.items()
                if inner is not None
            }

        return (
            [stripped(inner) for inner in value] if isinstance(value, list) else value
        )

    retries = [
        read_call(
            post(spelled_call(data.draw, {}, inputResponses=value, requestState="S"))
        )
        for value in (arguments, changed_arguments)
    ]

    answers_differ = meaning(stripped(arguments)) != meaning(
        stripped(changed_arguments)
    )

    assert (lookup_key(retries[0]) != lookup_key(retries[1])) is answers_differ


# Hostile bytes

LONE = b'"\\ud800"'
HOSTILE: list[bytes] = [
    b"",
    b"\x00",
    b"\xef\xbb\xbf" + tool("a"),
    b"\xff\xfe{\x00}\x00",
    b'{"jsonrpc":"2.0","id":%s,"method":%s,"params":{"name":%s}}' % (LONE, LONE, LONE),
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%s,"arguments":{%s:%s}}}'
    % (LONE, LONE, LONE),
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","inputResponses":{%s:[]},"requestState":%s}}'
    % (LONE, LONE),
    b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":{%s:{"method":%s}},"requestState":%s}}'
    % (LONE, LONE, LONE),
    b'{"jsonrpc":"2.0","id":1,"method":"\xed\xa0\x80"}',
    b'{"jsonrpc":"2.0","id":1,"method":"a\\u0000b","params":{"name":"\\u0000"}}',
    b'{"jsonrpc":"2.0","id":1,"id":2,"method":"a","method":"tools/call","params":1,"params":{"name":"a","name":"b"}}',
    b'{"jsonrpc":"2.0","id":%s,"method":"a","params":{"n":-%s.5}}'
    % (b"9" * 5_000, b"9" * 5_000),
    b'{"jsonrpc":"2.0","id":1,"method":"a","params":{"n":1e%s}}' % (b"9" * 5_000),
    b'{"jsonrpc":"2.0","id":1e-%s,"method":"a"}' % (b"9" * 5_000),
    b'{"jsonrpc":"2.0","id":1,"method":"a","params":{"n":1e400,"m":1e-400}}',
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b'{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":'
    + b"[" * 197
    + b"]" * 197
    + b"}}",
    b'{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":'
    + b"[" * 199
    + b"]" * 199
    + b"}}",
    b'{"jsonrpc":"2.0","id":1,"result":' + b"[" * 500 + b"]" * 500 + b"}",
    tool("deploy", env="prod")[:-7],
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"deploy","requestState":5}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"deploy","requestState":[],"inputResponses":5}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}',
    b'{"jsonrpc":"2.0","id":null,"method":"tools/call"}',
    b'{"jsonrpc":"2.0","id":{},"result":{}}',
    b'{"jsonrpc":"2.0","id":1,"result":{"inputRequests":[{"id":"a","kind":"b"}],"requestState":"s"}}',
    b'{"jsonrpc":"2.0","id":1,"error":{"code":1e99,"message":[]}}',
    b"data: {}\r",
    b"data: \xef\xbb\xbf{}\n\n",
    b"\r",
    gzip.compress(b"{}")[:-4],
    gzip.compress(b"{}") + b"trailing",
    b"NaN",
    b"-Infinity",
    b'"' + b'\\"' * 300,
]


@st.composite
def mutated(draw: st.DrawFn, raw: bytes) -> bytes:
    """Return bytes with a few of them cut out, repeated or replaced."""
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(raw)))
        latest = min(len(raw), start + 12)
        end = draw(st.integers(start, latest))
        new = draw(
            st.one_of(
                st.binary(max_size=4),
                st.sampled_from([LONE, b"null", b"{}", b"[]", b"1", b"\r", b'"']),
            )
        )
        raw = raw[:start] + new + raw[end:]

    return raw


MESSAGES = [
    with_token(tool("deploy", env="prod"), 1),
    retry(tool("deploy", env="prod"), {"a": 1}, state="S" * 30),
    retry(tool("deploy"), [{"id": "a", "value": 1}], state="S"),
    compact({"jsonrpc": "2.0", "id": 1, "result": asks("a", state="S" * 30)}),
    compact({"jsonrpc": "2.0", "id": 1, "result": text("done")}),
    progress(1),
    rpc("subscriptions/listen", {}),
]
hostile = st.one_of(
    st.sampled_from(HOSTILE),
    st.sampled_from(MESSAGES),
    st.sampled_from(MESSAGES).flatmap(mutated),
    st.binary(max_size=40),
    values.flatmap(spelled),
)
hostile_messages = st.sampled_from([*HOSTILE[:10], *MESSAGES])
hostile_events = st.lists(hostile_messages, max_size=4).map(lambda all_: sse(*all_))
hostile_streams = st.one_of(streams, hostile_events, hostile)
HEADERS = {
    "Content-Type": ("text/event-stream", "application/json", ";;"),
    "content-encoding": ("gzip", "br", "gzip, gzip"),
    "Content-Length": ("5", "-1", "٣", "9" * 5_000),
    "Mcp-Session-Id": ("s", ""),
    "Accept": ("\x01é",),
}
ENCODED = ("content-encoding", "gzip")
HEADER_LINES: list[tuple[str, str]] = []
for name, all_ in HEADERS.items():
    HEADER_LINES += [(name, value) for value in all_]

hostile_headers = st.lists(st.sampled_from(HEADER_LINES), max_size=4).map(tuple)


def everything_about(raw: bytes) -> None:
    """Read bytes in every way in which the core reads messages."""
    message_in(raw)
    try:
        tree = parse(raw)
    except NotJsonError:
        return

    ask_in_result(tree)
    if isinstance(tree, dict):
        answers_in(tree)
        ask_in_result(tree.get("result"))
        find_spans(raw, SPLICED)

    try:
        canonical(tree)
        canonical(without_null_members(tree))
    except NotJsonError:
        return


def test_reading_is_total_on_known_traps() -> None:
    """Whatever the bytes are, they are read, or refused by the one documented error."""
    for raw in HOSTILE:
        everything_about(raw)


@given(hostile)
def test_reading_is_total(raw: bytes) -> None:
    """Made-up bytes, and made-up lines of a journal, are read or refused alike."""
    everything_about(raw)
    with suppress(ValueError):
        decode_journal_line(raw)


def recorded_hostility(
    draw: Callable[[st.SearchStrategy[Any]], Any], *, seals: bool
) -> Conversation:
    """Return a recording of exchanges whose bytes make no sense."""
    talk = Conversation(
        seals, redacts=draw(st.booleans()), seals_answers=draw(st.booleans())
    )
    for _ in range(draw(st.integers(1, 3))):
        method = draw(st.sampled_from(["POST", "POST", "POST", "GET", "DELETE"]))
        request = Request(
            method,
            draw(st.sampled_from(["/mcp", "/mcp?é", "*"])),
            draw(hostile_headers),
            draw(hostile),
        )

        number = talk.request(request)
        observation = talk.observation(number)
        if draw(st.integers(0, 9)):
            headers = draw(hostile_headers)
            body = draw(hostile_streams)
            if ENCODED in headers and draw(st.booleans()):
                body = gzip.compress(body)

            observation.response_started(
                draw(st.sampled_from([200, 202, 404, 999])), headers
            )
            for chunk in draw(cut(body)):
                observation.response_bytes(chunk, talk.tick())
                if draw(st.booleans()):
                    observation.seal(End.COMPLETE, talk.tick())

        observation.response_ended(talk.tick())
        recorded = observation.seal(draw(st.sampled_from(End)), talk.tick())
        response_log_line(observation, recorded, End.COMPLETE, talk.tick())
        line = encode_journal_line(recorded)
        assert values_of(decode_journal_line(line)) == values_of(recorded)
        talk.exchanges.append(recorded)

    return talk


MEMORY = (Reason.ALREADY_PLAYED, Reason.OUT_OF_ORDER)
"""Why only a process that remembers misses a request."""


@settings(max_examples=settings.default.max_examples // 4)
@given(st.data())
def test_recording_and_replaying_are_total(data: st.DataObject) -> None:
    """Whatever passes, it is recorded, written, read, inspected, and played to whoever asks."""
    talk = recorded_hostility(data.draw, seals=data.draw(st.booleans()))
    cassette = talk.cassette()
    written = encode_cassette(cassette)

    assert decode_cassette(written, "f") == cassette
    assert encode_cassette(decode_cassette(written, "f")) == written

    player = Player(loaded(cassette, "f"), repeat=data.draw(st.sampled_from(Repeat)))
    inspection_text(details_of(loaded(cassette)))
    requests = [exchange.request for exchange in talk.exchanges]
    requests += [post(data.draw(hostile)) for _ in range(2)]
    for request in requests:
        decision = player.request_received(request)
        if isinstance(decision, Miss):
            report = reported_miss(decision, Cassette("f"))

            assert report.text.encode()
            assert parse(error_body(report, decision.call))["error"]["code"]
        elif isinstance(decision, Play):
            sent_now(decision)

    assert summary_text(report_of_replay(player))
    assert player.tally.reply_count + len(player.tally.misses) + len(
        player.tally.harmless
    ) == len(requests)

    with suppress(CassetteError):
        stateless = Player(loaded(cassette, "f"), stateless=True)
        for request in requests:
            decision = stateless.request_received(request)
            assert not isinstance(decision, Miss) or decision.reason not in MEMORY


# Cassettes and journals


@given(st.data())
def test_cassette_gives_back_every_byte(data: st.DataObject) -> None:
    """Bodies and events come back from the file as they were recorded, cut as they were cut."""
    script: list[tuple[Request, Answer]] = []
    for _ in range(data.draw(st.integers(1, 3))):
        body = data.draw(st.one_of(hostile, hostile_streams))
        headers = data.draw(st.sampled_from([STREAM_HEADERS, JSON_HEADERS, ()]))
        chunks = tuple(data.draw(cut(body)))
        request = Request("PUT", "/x", (), data.draw(hostile))
        end = data.draw(st.sampled_from(End))
        script.append((request, Answer(chunks, headers, end=end)))

    talk = conversation(*script, seals=False)
    cassette = talk.cassette()

    for read in (cassette, decode_cassette(encode_cassette(cassette), "f")):
        exchanges: list[RecordedExchange] = []
        for interaction in loaded(read).interactions:
            exchanges += interaction.exchanges

        for exchange, (request, sent), recorded in zip(
            exchanges, script, talk.exchanges, strict=True
        ):
            response = exchange.response

            # A request is kept as it can be read: it is matched, and never played back.
            assert exchange.request.body == with_decoded_body(request).body
            assert response is not None
            assert response.body == b"".join(sent.chunks) == recorded.response.body
            assert response.end is recorded.response.end

            if recorded.response.is_event_stream:
                pieces = [piece.raw for piece in response.pieces]

                assert pieces == [piece.raw for piece in recorded.response.pieces]


# Record, then replay

CALLS = (
    tool("deploy", env="prod"),
    rpc("prompts/get", {"name": "tea", "arguments": {"n": 1}}),
)
ANSWER_SETS: tuple[Json, ...] = (
    {"a": {"action": "accept", "content": {"n": 1.5, "note": None}}},
    {"a": {"action": "decline"}},
)
STATE_KINDS = ("none", "short", "long", "quoted", "only")


@dataclass
class Turn:
    """What happens in one exchange: the answers and whose state, and what the response asks."""

    answers: Json = None
    echoes: int | None = None
    """Which exchange's state is echoed; None for none."""

    answers_to: int | None = None
    """The exchange that must have been answered before this one is sent."""

    asks: str | None = None
    state: str | None = None
    request: bytes = b""
    shape: str = "whole"
    at: int = 0
    """Where the response is cut, in the shapes that are."""

    is_quoted: bool = False
    """The response repeats the state that was echoed."""

    is_changed: bool = False
    """The server says something else than in the recording before."""


class Own(NamedTuple):
    """The values of an exchange that are the caller's own, or come from the server's chance."""

    identity: Json
    token: Json
    issued: str | None
    echoed: str | None


def body_of(turn: Turn, number: int, caller: Own) -> bytes:
    """Return the response of an exchange, for some values that are the caller's own."""
    words = f"exchange {number}" + (f" for {caller.echoed}" if turn.is_quoted else "")
    words += " changed" * turn.is_changed
    if turn.asks is None:
        result = text(words)
    else:
        keys = () if turn.asks == "only" else ("a",)
        result = {**asks(*keys, state=caller.issued), "log": words}

    response = compact({"jsonrpc": "2.0", "id": caller.identity, "result": result})
    if turn.shape in {"whole", "pieces"}:
        return response

    end = b"\r\n" if turn.shape == "crlf" else b"\n"
    news = b""
    if b"progressToken" in turn.request:
        news = sse(progress(caller.token), progress(caller.token, 2), end=end)

    return b": ping" + end + end + news + b"id: 7" + end + sse(response, end=end)


@dataclass
class Plan:
    """A conversation in the making: exchanges, and the order in which they begin and end."""

    turns: list[Turn] = field(default_factory=list)
    schedule: list[tuple[str, int]] = field(default_factory=list)
    seals: bool = True


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Return a conversation with parallel interactions, some identical, branched or abandoned."""
    plan = Plan(seals=draw(st.integers(0, 3)) > 0)
    alike = draw(st.booleans())
    turns = plan.turns
    for thread in range(draw(st.integers(1, 4))):
        call = draw(st.sampled_from(CALLS)) if alike else tool(f"tool-{thread}")
        if draw(st.booleans()):
            call = with_token(call, 1)

        if draw(st.booleans()):
            call = changed(
                call, "params", "_meta", "client", to=draw(st.integers(0, 1))
            )

        shape = draw(st.sampled_from(["whole", "pieces", "lf", "crlf"]))
        kinds = draw(
            st.lists(
                st.sampled_from((*STATE_KINDS, *([] if alike else ["same"]))),
                max_size=3,
            )
        )

        abandoned = bool(kinds) and draw(st.integers(0, 4)) == 0
        branches = "same" not in kinds and draw(st.integers(0, 2)) == 0
        last: int | None = None
        for at in range(len(kinds) + (0 if abandoned else 1)):
            kind = kinds[at] if at < len(kinds) else None
            state = (
                None if kind in {None, "none"} else made_up_state(str(kind), len(turns))
            )
            turn = Turn(
                asks=kind,
                state=state,
                request=call,
                shape=shape,
                at=draw(st.integers(0, 200)),
            )

            if last is not None:
                answer_last(turn, turns, last, draw(st.sampled_from(ANSWER_SETS)))

            turns.append(turn)
            last = len(turns) - 1
            if branches and at > 0:
                branch = Turn(request=call, shape=shape)
                before = turns[last]
                assert before.answers_to is not None
                answer_last(
                    branch, turns, before.answers_to, {"a": {"action": "cancel"}}
                )
                branch.answers_to = last
                turns.append(branch)

    pending: list[int] = []
    done: set[int] = set()
    waiting = list(range(len(turns)))
    while waiting or pending:
        ready = []
        for place in waiting:
            if turns[place].answers_to in done | {None}:
                ready.append(("begin", place))

        ends = [("end", place) for place in pending]
        step, place = draw(st.sampled_from(ready + ends))
        plan.schedule.append((step, place))
        if step == "begin":
            waiting.remove(place)
            pending.append(place)
        else:
            pending.remove(place)
            done.add(place)

    return plan


def made_up_state(kind: str, number: int) -> str:
    """Return a state of a kind; all but `same` are unlike any other."""
    spelled_kinds = {
        "short": f"s{number:02}",
        "quoted": f'{{"exchange": {number:02}, "é": "\\"quoted\\" and long"}}',
        "same": "one-and-the-same-state-for-everybody",
    }
    return spelled_kinds.get(kind, f"state-of-exchange-{number:02}-{'x' * 20}")


def answer_last(turn: Turn, turns: list[Turn], asked: int, answers: Json) -> None:
    """Make a turn the answer to an earlier one's ask."""
    turn.answers_to = asked
    turn.answers = None if turns[asked].asks == "only" else answers
    turn.echoes = asked if turns[asked].state is not None else None
    # Which surrogate stands for a state that two asks issued can't be told from the text.
    is_one_asks_own = turns[asked].asks != "same"
    turn.is_quoted = is_one_asks_own and is_searched_everywhere(
        turns[asked].state or ""
    )
    turn.request = retry(turn.request, turn.answers, state=turns[asked].state)


def respond(plan: Plan, number: int) -> Answer:
    """Return the recorded response of an exchange."""
    turn = plan.turns[number]
    echoed = None if turn.echoes is None else plan.turns[turn.echoes].state
    body = body_of(
        turn, number, Own(f"id-{number}", f"token-{number}", turn.state, echoed)
    )
    if turn.shape == "whole":
        return Answer((body,), (*JSON_HEADERS, ("Content-Length", str(len(body)))))

    at = turn.at % (len(body) + 1)
    return Answer(
        (body[:at], body[at:]),
        JSON_HEADERS if turn.shape == "pieces" else STREAM_HEADERS,
    )


def asked_by(turn: Turn, identity: Json, token: Json, state: str | None) -> bytes:
    """Return a turn's request with a caller's own id, token and state."""
    request = with_id(turn.request, identity)
    if b"progressToken" in request:
        request = with_token(request, token)

    if state is None:
        return request

    return changed(request, "params", "requestState", to=state)


def recorded_plan(
    plan: Plan, schedule: list[tuple[str, int]] | None = None
) -> tuple[Conversation, list[int]]:
    """Record a plan, or a part of its schedule in which all that begins also ends.

    Returns:
        the conversation, and which turn each exchange is, in arrival order.
    """
    talk = Conversation(plan.seals)
    numbers: dict[int, int] = {}
    for step, place in plan.schedule if schedule is None else schedule:
        if step == "begin":
            turn = plan.turns[place]
            state = None if turn.echoes is None else plan.turns[turn.echoes].state
            request = asked_by(turn, f"id-{place}", f"token-{place}", state)
            numbers[place] = talk.request(request)
        else:
            talk.response(numbers[place], respond(plan, place))

    return talk, sorted(numbers, key=numbers.__getitem__)


def replayed(
    plan: Plan, cassette: CassetteModel, order: list[int], **options: Any
) -> Player:
    """Play a plan's requests in some order, checking every byte of every response."""
    player = Player(loaded(cassette), **options)
    issued: dict[int, str] = {}
    for step, place in enumerate(order):
        turn = plan.turns[place]
        identity: Json = step if step % 2 else f"other {step}"
        token: Json = f"t{step}" if step % 2 else 1000 + step
        echoed = None if turn.echoes is None else issued[turn.echoes]
        request = post(asked_by(turn, identity, token, echoed))
        decision = player.request_received(request)
        assert isinstance(decision, Play), reported_miss(decision, Cassette("f")).text
        got = sent_now(decision)
        if turn.state is not None:
            issued[place] = state_of(got)
            assert (issued[place] == turn.state) is not plan.seals

        caller = Own(identity, token, issued.get(place), echoed)
        assert got == body_of(turn, place, caller)

    return player


def state_of(body: bytes) -> str:
    """Return the state that a response issues, whatever its framing."""
    (line,) = [line for line in body.splitlines() if b'"result"' in line]
    state: str = json.loads(line.removeprefix(b"data: "))["result"]["requestState"]
    return state


def assert_all_was_played_once(player: Player, plan: Plan) -> None:
    """Every recorded exchange was played exactly once, and nothing was missed."""
    entries = itertools.chain.from_iterable(player.entries.by_interaction)
    assert [player.played_part.play_counts[entry] for entry in entries] == [1] * len(
        plan.turns
    )
    assert (
        player.tally.reply_count,
        player.tally.misses,
        player.played_part.unplayed_numbers,
    ) == (
        len(plan.turns),
        [],
        [],
    )


@given(plans(), st.data())
def test_what_was_recorded_in_two_runs_plays_as_one(
    plan: Plan, data: st.DataObject
) -> None:
    """Wherever nothing is under way, a recording may stop and be added to later."""
    balance = [0]
    for what, _ in plan.schedule:
        balance.append(balance[-1] + (1 if what == "begin" else -1))

    cut = data.draw(
        st.sampled_from([at for at, count in enumerate(balance) if not count])
    )
    first, early = recorded_plan(plan, plan.schedule[:cut])
    second, late = recorded_plan(plan, plan.schedule[cut:])
    before = decode_cassette(encode_cassette(first.cassette()), "f")
    both = second.cassette(earlier=before)

    assert_all_was_played_once(replayed(plan, both, [*early, *late]), plan)
    for earlier, later in zip(before.interactions, both.interactions, strict=False):
        turns = earlier.elicitation_turns
        may_go_on = not turns or turns[-1].answer is None

        assert may_go_on or earlier == later

    assert len(both.interactions) >= len(before.interactions)


@given(plans(), st.randoms(use_true_random=False))
def test_what_was_recorded_plays_in_another_order(plan: Plan, chance: Any) -> None:
    """Any order plays that respects each interaction, and the recorded order of equal requests."""
    talk, arrived = recorded_plan(plan)
    cassette = talk.cassette()
    player = Player(loaded(cassette, "f"))
    entries = itertools.chain.from_iterable(player.entries.by_interaction)
    before: dict[int, set[int]] = {place: set() for place in arrived}
    alike: dict[Any, int] = {}
    for entry in sorted(entries, key=lambda recorded: recorded.arrival):
        place = arrived[(entry.exchange.number or 0) - 1]
        if entry.answered_ask is not None:
            before[place].add(arrived[(entry.answered_ask.exchange.number or 0) - 1])

        echoes = plan.turns[place].echoes
        if echoes is not None:
            before[place].add(echoes)

        call = read_call(entry.normalised.request)
        same = (*lookup_key(call)[::2], echoes, call.traits())
        if same in alike:
            before[place].add(alike[same])

        alike[same] = place

    order: list[int] = []
    while len(order) < len(arrived):
        left = [place for place in arrived if place not in order]
        ready = [place for place in left if before[place] <= set(order)]
        order.append(chance.choice(ready))

    player = replayed(plan, cassette, order, history=History.ORDER)
    assert_all_was_played_once(player, plan)


@given(plans(), st.randoms(use_true_random=False))
def test_any_replica_plays_what_was_recorded(plan: Plan, chance: Any) -> None:
    """Without memory each request gets its response in any order, as often as it comes.

    Equal requests of a plan get different responses, which no replica can play.
    """
    talk, arrived = recorded_plan(plan)
    cassette = talk.cassette()
    keys = {lookup_key(read_call(post(turn.request))) for turn in plan.turns}
    if len(keys) < len(plan.turns):
        with suppress(CassetteError):
            Player(loaded(cassette), stateless=True)

        return

    order = [*arrived, *sorted(arrived, key=lambda _: chance.random()), *arrived]
    player = replayed(plan, cassette, order, stateless=True)

    assert (player.tally.misses, player.played_part.unplayed_numbers) == ([], [])


def other_state(state: str) -> str:
    """Return a state of the same kind from another run of the server."""
    return (
        state.replace("state", "token").replace("s0", "z0").replace("quoted", "spoken")
    )


@given(plans(), st.data())
def test_state_that_is_not_the_issued_one_is_never_served(
    plan: Plan, data: st.DataObject
) -> None:
    """A request with one character of its state changed is a miss, whatever else was recorded."""
    talk, order = recorded_plan(plan)
    echoing = [place for place in order if plan.turns[place].echoes is not None]
    assume(echoing)
    player = replayed(plan, talk.cassette(), order)
    turn = plan.turns[data.draw(st.sampled_from(echoing))]
    asked = plan.turns[turn.echoes or 0]
    state = asked.state or ""
    at = data.draw(st.integers(0, len(state) - 1))
    altered = state[:at] + data.draw(st.sampled_from("§~Ω")) + state[at + 1 :]
    played = player.tally.reply_count

    decision = player.request_received(post(asked_by(turn, 1, 1, altered)))

    assert isinstance(decision, Miss)
    assert player.tally.reply_count == played


@given(plans(), st.data())
def test_recorded_over_plays_as_the_new_recording(
    plan: Plan, data: st.DataObject
) -> None:
    """What the server says now is played, in whatever was kept of the recording before."""
    assume(plan.seals)
    before = loaded(recorded_plan(plan)[0].cassette())
    turns = [replace(turn) for turn in plan.turns]
    for turn in turns:
        turn.state = None if turn.state is None else other_state(turn.state)
        turn.is_changed = data.draw(st.integers(0, 3)) == 0

    again = Plan(turns, plan.schedule, plan.seals)
    talk, arrived = recorded_plan(again)
    whole, _ = recorded_over(before, loaded(talk.cassette()))

    assert (whole is before) is not any(turn.is_changed for turn in turns)

    player = replayed(again, decode_cassette(dump(whole), "f"), arrived)
    assert_all_was_played_once(player, again)
