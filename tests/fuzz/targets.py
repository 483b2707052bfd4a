"""What the fuzzer throws bytes at, and the laws that hold whatever they are.

Each target takes any bytes. It returns, or it fails: by an assertion where a law is broken, or by
the exception that nobody documented. Documented ones are caught where they are documented.

An input begins with choices, one byte each, and ends with text; ASCII digits make good choices, so
that a corpus can be read. Several texts are separated by `SEPARATOR`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple
from decimal import Decimal, InvalidOperation
from functools import cache
from itertools import pairwise
from typing import Any

import orjson
from adversarial import assert_linear, near_misses
from builders import (
    answer,
    assembled,
    cassette_of,
    decode_cassette,
    encode_cassette,
    exchange,
    framed,
    get,
    loaded,
    notification,
    retry,
    rpc,
    stream,
    tool,
    with_token,
    without_digests,
)
from core.secrets.planted import SHAPES
from messages import array_asks, asks, text

from mrtr_cassette.core.cassette.journal import (
    CHECKSUM_LENGTH,
    decode_line,
    encode_line,
    with_checksum,
)
from mrtr_cassette.core.cassette.lookup import caller_values, lookup_key
from mrtr_cassette.core.cassette.model import CassetteModel
from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.protocol.dialect import (
    ECHOED_STATE_PATH,
    ISSUED_STATE_PATH,
    answers_in,
    recognise,
)
from mrtr_cassette.core.protocol.jsonrpc import (
    ID_PATH,
    TOKEN_PATH,
    Kind,
    Message,
    classify,
    echoes,
)
from mrtr_cassette.core.record.recorder import Observation, Recorder
from mrtr_cassette.core.replay.diagnosis import Harmless, Miss
from mrtr_cassette.core.replay.order import Repeat
from mrtr_cassette.core.replay.player import Play, Player
from mrtr_cassette.core.replay.reply import Reply
from mrtr_cassette.core.report.details import details_of
from mrtr_cassette.core.report.events import (
    harmless_event,
    missed_event,
    played_event,
    request_event,
    response_said,
)
from mrtr_cassette.core.report.misses import error_body, report_of_miss, upstream_error_body
from mrtr_cassette.core.report.runs import report_of_replay, summary_text
from mrtr_cassette.core.report.text import inspection_data, inspection_text
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.wire.http import End, Headers, Request
from mrtr_cassette.core.wire.jsonbytes import (
    MemberPath,
    Span,
    canonical,
    find_spans,
    parse,
    splice,
)
from mrtr_cassette.core.wire.pointers import differences
from mrtr_cassette.core.wire.sse import Event, event_id_spans, read_event
from mrtr_cassette.errors import BodyTooLargeError, CassetteError, NotJsonError

Target = Callable[[bytes], None]

SEPARATOR = b"\x1e"
PATH = "c.json"
BOM = b"\xef\xbb\xbf"


class Choices:
    """The bytes at the beginning of an input, each of which chooses something."""

    def __init__(self, data: bytes, count: int) -> None:
        self._choices = iter(data[:count])
        self.rest = data[count:]

    def one_of(self, *options: Any) -> Any:
        """Return one of the options; the first where the input is too short to choose."""
        return options[next(self._choices, 0) % len(options)]

    def texts(self, count: int) -> list[bytes]:
        """Return so many texts; what is missing is empty."""
        found = self.rest.split(SEPARATOR, count - 1)
        return found + [b""] * (count - len(found))

    def cuts(self, text: bytes, count: int) -> list[bytes]:
        """Return a text in pieces, cut at so many places."""
        places = [next(self._choices, 0) for _ in range(count)]
        at = [0, *sorted(place * (len(text) + 1) // 256 for place in places), len(text)]
        return [text[start:end] for start, end in pairwise(at)]


# --- Event streams ---


def sse(data: bytes) -> None:
    """No byte is lost, however the stream is cut, and data is what the standard says."""
    choices = Choices(data, 2)
    raw = choices.rest
    whole = framed(raw)
    assert framed(*choices.cuts(raw, 2)) == whole
    assert framed(*(raw[at : at + 1] for at in range(min(len(raw), 300))), raw[300:]) == whole
    events, rest = whole
    assert (events, rest) == _framed_slowly(raw)
    for index, event in enumerate(events):
        _check_data(read_event(event, first=index == 0), first=index == 0)


def _framed_slowly(raw: bytes) -> tuple[list[bytes], bytes]:
    """Cut a stream into events by looking at one byte after the other."""
    events = []
    start = 0
    line = len(BOM) if raw.startswith(BOM) else 0
    at = line
    while at < len(raw):
        if raw[at] not in b"\r\n":
            at += 1
            continue
        end = at + (2 if raw[at : at + 2] == b"\r\n" else 1)
        if at == line:
            events.append(raw[start:end])
            start = end
        line = at = end
    return events, raw[start:]


def _check_data(event: Event, *, first: bool) -> None:
    text = event.raw.removeprefix(BOM) if first else event.raw
    lines = [line.partition(b":") for line in re.split(rb"\r\n|\r|\n", text)]
    data = [value.removeprefix(b" ") for name, _, value in lines if name == b"data"]
    assert event.data == (b"\n".join(data) if data else None)
    spans = [event.raw[span.start : span.end] for _, span in event.lines]
    assert spans == data
    for offset, span in event.lines:
        inner = Span(offset, offset + span.end - span.start)
        assert event.raw_span(inner) == span


# --- JSON as bytes ---

SUBSCRIPTION: MemberPath = ("result", "_meta", "io.modelcontextprotocol/subscriptionId")
PATHS: tuple[MemberPath, ...] = (
    ID_PATH,
    TOKEN_PATH,
    ECHOED_STATE_PATH,
    ISSUED_STATE_PATH,
    SUBSCRIPTION,
)


def spans(data: bytes) -> None:
    """Replacing spans leaves every other byte, and gives the JSON with the new values."""
    try:
        tree = parse(data)
    except NotJsonError:
        with contextlib.suppress(NotJsonError):
            find_spans(data, PATHS)
        return
    found = find_spans(data, PATHS)
    places = sorted({span for one in found.values() for span in one})
    new = b'["new"]'
    replaced = splice(data, [(span, new) for span in places])
    at = other = 0
    for span in places:
        assert replaced[other : other + span.start - at] == data[at : span.start]
        other += span.start - at
        assert replaced[other : other + len(new)] == new
        at, other = span.end, other + len(new)
    assert replaced[other:] == data[at:]
    after = parse(replaced)
    for path, one in found.items():
        assert all(_is_json(data[span.start : span.end]) for span in one)
        if not _has_duplicates(data):
            (span,) = one
            value = _at(tree, path)
            assert canonical_or_none(parse(data[span.start : span.end])) == canonical_or_none(value)
            assert _at(after, path) == ["new"]
    if not _has_duplicates(data):
        assert {path for path in PATHS if _is_there(tree, path)} == found.keys()


def _is_json(raw: bytes) -> bool:
    parse(raw)
    return raw == raw.strip()


def canonical_or_none(value: Any) -> str | None:
    """Return the canonical text; None of what has none."""
    try:
        return canonical(value)
    except NotJsonError:
        return None


def _at(tree: Any, path: MemberPath) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def _is_there(tree: Any, path: MemberPath) -> bool:
    for key in path:
        if not isinstance(tree, dict) or key not in tree:
            return False
        tree = tree[key]
    return True


def _has_duplicates(data: bytes) -> bool:
    found = []

    def read(pairs: list[tuple[str, Any]]) -> None:
        found.append(len(dict(pairs)) < len(pairs))

    json.loads(data, object_pairs_hook=read, parse_int=str, parse_float=str)
    return any(found)


# --- Messages ---

CALLER = b'{"jsonrpc":"2.0","id":7,"method":"m","params":{"_meta":{"progressToken":"t"}}}'


def messages(data: bytes) -> None:
    """Reading a message, its dialect and its key fails for no bytes, and space changes nothing."""
    message = classify(data)
    request = Request("POST", "/mcp", (), data)
    call = read_call(request)
    slot = lookup_key(call)
    assert (call.message is None) == (message is None)
    orjson.dumps(str(call.key()))
    _ = call.traits, call.caller, lookup_key(read_call(Request("GET", "/a?b", (), data)))
    json.loads(upstream_error_body(request, "gone"))
    if message is None:
        return
    assert lookup_key(read_call(Request("POST", "/mcp", (), b" \r\n" + data + b"\t"))) == slot
    text = canonical(message.tree)
    assert canonical(parse(text.encode())) == text
    assert differences(message.tree, parse(text.encode())) == []
    recognise(message.tree.get("result"))
    answers_in(message.params)
    caller = classify(CALLER)
    assert caller is not None
    for one, other in ((message, caller), (caller, message), (message, message)):
        if other.kind is not Kind.REQUEST:
            continue
        found = echoes(one, other)
        for span in (*found.id, *found.progress_token):
            assert canonical(parse(one.raw[span.start : span.end])) in {
                other.id,
                other.progress_token,
            }


# --- The recorder ---

ASKED = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}'
TYPES = ("application/json", "text/event-stream", "Text/Event-Stream; charset=utf-8", "", "\xff;,")
CODINGS = ("", "gzip", "deflate", "br", "GZIP ", "gzip, gzip", "x-gzip")
ENDS = (End.COMPLETE, End.OPEN, End.BROKEN)
STATUSES = (200, 202, 204, 400, 404, 500)
SMALL = 400


def recorder(data: bytes) -> None:
    """Whatever passes is kept byte for byte, survives the files, and is what a replay gives back.

    The choices: content type, coding, whether the body really is coded, its announced length, how
    it ended, the status, whether states are sealed, whether little is kept, and three cuts.
    """
    choices = Choices(data, 11)
    kind, coding = choices.one_of(*TYPES), choices.one_of(*CODINGS)
    is_coded = choices.one_of(True, False)
    length = choices.one_of(None, 0, 1, -1, "9" * 30, "\u0661", "1, 1")
    end, status = choices.one_of(*ENDS), choices.one_of(*STATUSES)
    seals, is_limited = choices.one_of(True, False), choices.one_of(False, True)
    asked, plain = choices.texts(2)
    request = Request("POST", "/mcp", (("Content-Type", "application/json"),), asked or ASKED)
    body = zlib.compress(plain) if coding and is_coded else plain
    headers = _headers(kind, coding, length, len(body))
    chunks = choices.cuts(body, 3)

    taping = Recorder(seals=seals, largest_body=SMALL if is_limited else 2**28)
    seen = taping.request_received(request, 0.5)
    orjson.dumps(request_event(seen))
    try:
        _pass(seen, status, headers, chunks)
    except BodyTooLargeError:
        assert len(body) > SMALL
        return
    kept = seen.seal(end, 9.5)
    orjson.dumps(response_said(seen, end, 10.0))
    assert seen.size == len(body)
    if not seals and not coding:
        assert _without_event_ids(kept.response.body) == _without_event_ids(body)
    _check_files(kept, seals=seals)
    if not seals:
        _check_replay(kept, request)


def _without_event_ids(body: bytes) -> bytes:
    """Return a body in which all ids of events are one: they are sealed."""
    return splice(body, [(span, b"id") for span in event_id_spans(body)])


def _headers(kind: str, coding: str, length: Any, size: int) -> Headers:
    announced = str(size + length) if isinstance(length, int) else length
    pairs = (("Content-Type", kind), ("Content-Encoding", coding), ("Content-Length", announced))
    return tuple((name, value) for name, value in pairs if value)


def _pass(seen: Observation, status: int, headers: Headers, chunks: Iterable[bytes]) -> None:
    seen.response_started(status, headers)
    for chunk in chunks:
        seen.response_bytes(chunk, 1.5)
        if seen.is_answered:
            seen.seal(End.COMPLETE, 2.5)
    seen.response_ended(3.5)


def _check_files(kept: RecordedExchange, *, seals: bool) -> None:
    """Check that an exchange survives the journal and the cassette, and that nothing leaks."""
    line = encode_line(kept)
    assert line.count(b"\n") == 1
    assert astuple(decode_line(line)) == astuple(kept)
    cassette = assembled([kept], request_state="sealed" if seals else "verbatim")
    encoded = encode_cassette(cassette)
    assert decode_cassette(encoded, PATH) == cassette
    inspection_text(details_of(loaded(cassette, PATH)))


def _check_replay(kept: RecordedExchange, request: Request) -> None:
    """Check that the request gets the kept bytes, its id in its own spelling."""
    cassette = assembled([kept], request_state="verbatim")
    player = Player(loaded(cassette, PATH))
    play = player.request_received(request)
    assert isinstance(play, Play), play
    assert play.delivery is not None
    assert kept.response is not None
    reply = play.delivery.reply
    assert _without_event_ids(_filled(reply, None)) == _without_event_ids(kept.response.body)
    assert reply.headers == kept.response.headers
    mine = classify(_filled(reply, read_call(request).message))
    theirs = classify(kept.response.body)
    assert (mine is None) == (theirs is None)
    if mine is not None and theirs is not None:
        assert canonical(mine.tree) == canonical(theirs.tree)


def _filled(reply: Reply, caller: Message | None) -> bytes:
    values = caller_values(caller)
    return b"".join(part.fill(lambda _request: values) for part in reply.parts)


def secrets(data: bytes) -> None:
    """A state that is issued and echoed back reaches neither journal nor cassette.

    The choices: how the ask comes, how it ended, and two cuts. The texts: what else stands in the
    ask's result, and in the retry's params.
    """
    choices = Choices(data, 4)
    is_stream, end = choices.one_of(False, True), choices.one_of(*ENDS)
    beside, answers = choices.texts(2)
    state = "S3cret-state.0123456789abcdef"
    raw = b'{"jsonrpc":"2.0","id":1,"result":{"requestState":"%s","x":"%s"}}' % (
        state.encode(),
        beside,
    )
    body = b"data: " + raw + b"\n\n" if is_stream else raw
    taping = Recorder(seals=True)
    headers: Headers = (("Content-Type", TYPES[is_stream]),)
    first = taping.request_received(Request("POST", "/mcp", (), ASKED), 0)
    _pass(first, 200, headers, choices.cuts(body, 2))
    kept = [first.seal(end, 1)]
    again = (
        b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":'
        b'{"name":"x","requestState":"%s","inputResponses":{"a":"%s"}}}' % (state.encode(), answers)
    )
    if classify(again) is None:
        return
    second = taping.request_received(Request("POST", "/mcp", (), again), 2)
    _pass(second, 200, headers, [body])
    kept.append(second.seal(End.COMPLETE, 3))
    for one in kept:
        assert state.encode() not in encode_line(one)
    cassette = assembled(kept)
    assert state.encode() not in encode_cassette(cassette)
    assert decode_cassette(encode_cassette(cassette), PATH) == cassette
    Player(loaded(cassette, PATH))


# --- Files ---


def journal(data: bytes) -> None:
    """A line is an exchange that can be published, or a ValueError; so is any JSON."""
    with contextlib.suppress(ValueError):
        decode_line(with_checksum(data))
    with contextlib.suppress(ValueError):
        found = decode_line(data)
        if isinstance(found, RecordedExchange):
            assert astuple(decode_line(encode_line(found))) == astuple(found)
            encode_cassette(assembled([found]))


def cassette(data: bytes) -> None:
    """A file is a cassette that can be read, written, shown, played and added to, or an error."""
    try:
        read = decode_cassette(data, PATH)
        player = Player(loaded(read, PATH))
    except CassetteError as error:
        refusal = str(error)
    else:
        _check_readable(read, player)
        return
    assert refusal.startswith(f"{PATH}: ")
    refusal.encode()


def _check_readable(read: CassetteModel, player: Player) -> None:
    """Check that what could be read can be written, shown, played and added to."""
    encoded = encode_cassette(read)
    assert decode_cassette(encoded, PATH) == read
    shown = details_of(loaded(read, PATH))
    orjson.dumps(inspection_data(shown))
    inspection_text(shown).encode()
    for own in player.interactions:
        for each in own:
            _ask(player, read, each.request)
    summary_text(report_of_replay(player)).encode()
    added = assembled(
        [exchange(ASKED, {"content": []})], request_state=read.request_state, earlier=read
    )
    assert len(added.interactions) == len(read.interactions) + 1
    assert decode_cassette(encode_cassette(added), PATH) == added


ODD_VALUES: tuple[Any, ...] = (
    *(None, True, 0, 1, 2, -1, 7, 100, 999, 1000, 2**63 - 1, 2**64 - 1, 0.5, 1e300),
    *("", "x", "open", "POST", "/", "http://x/y?z#a", "\n", "\x00", "\u00e9", "\u2028", "0" * 64),
    *([], {}, [[]], ["x"], {"x": "y"}, [None], {"": ""}, [{"text": "x"}], [0, 0]),
)


def damage(data: bytes) -> None:
    """A file of ours with values put in, taken out and swapped is read or refused, never half.

    The first byte chooses the file. Of each three that follow, two choose a place and one says
    what happens there.
    """
    file = ("cassette", "no digests", "journal")[data[0] % 3] if data else "cassette"
    line = encode_line(exchange(ASKED, {"content": []}))[:-CHECKSUM_LENGTH]
    tree = orjson.loads(line if file == "journal" else encode_cassette(recorded()))
    if file == "no digests":
        tree = without_digests(tree)
    for at in range(1, min(len(data) - 2, 24), 3):
        places = list(_places(tree))
        if places:
            _damage(places[int.from_bytes(data[at : at + 2]) % len(places)], data[at + 2])
    try:
        written = orjson.dumps(tree)
    except TypeError:
        return
    (journal if file == "journal" else cassette)(written)


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container with each of its keys."""
    keys = list(tree) if isinstance(tree, dict) else range(len(tree))
    for key in keys:
        yield tree, key
        if isinstance(tree[key], dict | list):
            yield from _places(tree[key])


def _damage(place: tuple[Any, Any], how: int) -> None:
    inside, key = place
    if how < len(ODD_VALUES):
        inside[key] = orjson.loads(orjson.dumps(ODD_VALUES[how]))
    elif how % 4 == 0:
        del inside[key]
    elif how % 4 == 1 and isinstance(inside, list):
        inside.insert(0, inside[key])
    elif how % 4 == 2 and isinstance(inside, list):
        inside.reverse()
    elif isinstance(inside, dict):
        inside[f"{key}x"] = inside.pop(key)


# --- The player ---

STATES = ("first-state-0123456789abcdef", "second-state-0123456789abcdef")


@cache
def recorded() -> CassetteModel:
    """Return a cassette with turns, branches, streams, two dialects, and other traffic."""
    deploy, wipe, old = tool("deploy", env="prod", n=1), tool("wipe"), tool("old")
    one, two = STATES
    accepted = retry(deploy, {"ok": True}, state=one)
    wiped, tokened = retry(wipe, {"ok": 1.5}), with_token(wipe, 1)
    return cassette_of(
        (deploy, asks("ok", state=one)),
        (accepted, stream(answer(accepted, asks("ok", state=two)))),
        (retry(deploy, {"ok": {"a": [1, None]}}, state=two), text("done")),
        (retry(deploy, {"ok": False}, state=one), text("")),
        (wipe, asks("ok")),
        (wiped, stream(answer(wiped, text("wiped")))),
        (tokened, stream(answer(tokened, text("streamed")))),
        (old, array_asks("q", state=f"{one}x")),
        (retry(old, [{"id": "q", "value": "a"}], state=f"{one}x"), text("")),
        (rpc("tools/list", number="l"), b"[]"),
        (notification("notifications/x"), b"[]"),
        (b'[{"jsonrpc":"2.0","id":1,"method":"a"}]', b"[]"),
        (b"no JSON \xff", b"[]"),
        (get("/mcp?a=1", ("Mcp-Session-Id", "s")), b"[]"),
        (Request("DELETE", "/mcp", (), b""), b"[]"),
    )


METHODS = ("POST", "GET", "DELETE", "PUT", "HEAD", "\xe9", "")
TARGETS = ("/mcp", "/mcp?a=1", "/mcp?", "/", "/\xff%00", "")
ACCEPTS = ("", "application/json", "text/event-stream", "\xff", "*/*")


def player(data: bytes) -> None:
    """A request gets the recorded answer to the same question, or a miss that can be told.

    The choices: HTTP method, target, `Accept`, and what may be played again; the texts are bodies
    of requests, one after the other.
    """
    choices = Choices(data, 4)
    method, target = choices.one_of(*METHODS), choices.one_of(*TARGETS)
    accept, repeat = choices.one_of(*ACCEPTS), choices.one_of(*Repeat)
    headers: Headers = (("Accept", accept),) if accept else ()
    playing = Player(loaded(recorded(), PATH), repeat=repeat)
    bodies = choices.rest.split(SEPARATOR)[:12]
    for body in bodies:
        _ask(playing, recorded(), Request(method, target, headers, body))
    assert playing.plays + len(playing.misses) + len(playing.harmless) == len(bodies)
    summary_text(report_of_replay(playing)).encode()


def _ask(playing: Player, cassette: CassetteModel, request: Request) -> None:
    """Ask for one request's answer, and check what comes."""
    decision = playing.request_received(request)
    if isinstance(decision, Harmless):
        orjson.dumps(harmless_event(decision))
        return
    if isinstance(decision, Miss):
        report = report_of_miss(decision, PATH)
        body = error_body(report, decision.call)
        json.loads(body)
        orjson.dumps(missed_event(decision))
        report.text.encode()
        message = decision.call.message
        if message is not None and message.kind is Kind.REQUEST:
            assert b'"id":%b,' % (message.spelled(ID_PATH) or b"") in body
        return
    orjson.dumps(played_event(decision))
    theirs = decision.entry.call.request
    assert (request.method, request.target) == (theirs.method, theirs.target)
    asked, known = read_call(request).message, decision.entry.call.message
    assert (asked is None) == (known is None)
    if asked is None or known is None:
        return
    assert asked.kind is known.kind
    if asked.kind is not Kind.RESPONSE:
        assert _question(request.body) == _question(theirs.body)
        place = decision.entry.interaction, decision.entry.turn
        raw = {
            facts.echoed_state_sha256
            for facts in cassette.recording.exchanges
            if (facts.interaction, facts.turn) == place
        }
        state = _state(asked.tree)
        assert state == _state(known.tree) or _sha256(state) in raw
    if decision.delivery is not None and asked.kind is Kind.REQUEST:
        _check_id(decision.delivery.reply, asked, known)


def _state(tree: dict[str, Any]) -> Any:
    params = tree.get("params")
    state = params.get("requestState") if isinstance(params, dict) else None
    return state if state is None or isinstance(state, str) else canonical(state)


def _sha256(state: Any) -> str:
    return hashlib.sha256(str(state).encode("utf-8", "surrogatepass")).hexdigest()


def _check_id(reply: Reply, asked: Message, known: Message) -> None:
    """Check that a response has its caller's own id where it had the recorded caller's."""
    before, after = _filled(reply, None), _filled(reply, asked)
    was, now = classify(_last_data(before)), classify(_last_data(after))
    assert (was is None) == (now is None)
    if was is not None and now is not None and was.kind is Kind.RESPONSE:
        assert now.id == (asked.id if was.id == known.id else was.id)


def _last_data(body: bytes) -> bytes:
    events, _ = framed(body)
    data = read_event(events[-1], first=len(events) == 1).data if events else None
    return data or body


def _question(body: bytes) -> Any:
    """Return what a request asks, read by another reader: method, params, answers."""
    try:
        tree = json.loads(body, parse_int=_number, parse_float=_number)
    except InvalidOperation:
        return None
    params = tree.get("params", {})
    if not isinstance(params, dict):
        return [tree["method"], params]
    answers = _without_null(params.get("inputResponses"))
    kept = {k: v for k, v in params.items() if k not in {"_meta", "requestState", "inputResponses"}}
    if tree["method"] in {"tools/call", "prompts/get", "resources/read"}:
        kept |= {member: kept.get(member) or None for member in ("arguments", "name", "uri")}
    if tree["method"] == "initialize":
        for member in ("capabilities", "clientInfo", "protocolVersion"):
            kept.pop(member, None)
    if isinstance(answers, list) and all(
        isinstance(one, dict) and isinstance(one.get("id"), str) for one in answers
    ):
        by_id = {one["id"]: {k: v for k, v in one.items() if k != "id"} for one in answers}
        answers = ["array", by_id]
    if answers == {} and params.get("requestState") is not None:
        answers = None
    if tree["method"] == "notifications/cancelled":
        kept.pop("requestId", None)
    return [tree["method"], kept, answers]


def _number(text: str) -> tuple[str, Decimal]:
    # A tuple, because a bare number would equal `true`.
    return "number", Decimal(text)


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_null(one) for key, one in value.items() if one is not None}
    return [_without_null(one) for one in value] if isinstance(value, list) else value


# --- What a search for secrets costs ---

MEDIA_TYPES = (
    "text/plain",
    "application/json",
    "application/x-www-form-urlencoded",
    "text/event-stream",
)


def work(data: bytes) -> None:
    """The search takes steps in proportion to the length, whatever parts of secrets stand where."""
    choices = Choices(data, 3)
    _, secret = choices.one_of(*SHAPES)
    _, part = choices.one_of(*near_misses(secret))
    content_type = choices.one_of(*MEDIA_TYPES)
    piece = part(80) + choices.rest[:80]
    redactor = Redactor(RedactionRules(), lambda _rule, _secret: "T")
    assert_linear(lambda raw: redactor.body(raw, content_type), piece * 20, piece * 80)


TARGETS_BY_NAME: dict[str, Target] = {
    one.__name__: one
    for one in (sse, spans, messages, recorder, secrets, work, journal, cassette, damage, player)
}
