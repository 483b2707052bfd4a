"""What the fuzzer throws bytes at beside the laws of `seams/test_laws.py`, and what holds then.

Each target takes any bytes. It returns, or it fails: by an assertion where a law is broken, or by
the exception that nobody documented. Documented ones are caught where they are documented.

An input begins with choices, one byte each, and ends with text; ASCII digits make good choices, so
that a corpus can be read. Several texts are separated by `SEPARATOR`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any

import orjson
from builders import (
    answer,
    assembled,
    cassette_of,
    decode_cassette,
    encode_cassette,
    exchange,
    get,
    loaded,
    notification,
    retry,
    rpc,
    stream,
    tool,
    with_token,
)
from messages import array_asks, asks, text

from mrtr_cassette.core.cassette.model import CassetteModel
from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.protocol.any_server import HarmlessReply
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.protocol.jsonrpc import ID_PATH, Kind
from mrtr_cassette.core.replay.diagnosis import Miss
from mrtr_cassette.core.replay.order import Repeat
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.report.details import details_of
from mrtr_cassette.core.report.replay_events import (
    harmless_event,
    missed_event,
    played_events,
)
from mrtr_cassette.core.report.runs import (
    error_body,
    miss_report,
    report_of_replay,
    summary_text,
)
from mrtr_cassette.core.report.text import inspection_data, inspection_text
from mrtr_cassette.core.wire.http import Headers, Request
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.errors import CassetteError
from mrtr_cassette.terms import LIBRARY_TERMS

Target = Callable[[bytes], None]

SEPARATOR = b"\x1e"
PATH = "c.json"


class Choices:
    """The bytes at the beginning of an input, each of which chooses something."""

    def __init__(self, data: bytes, count: int) -> None:
        self._choices = iter(data[:count])
        self.rest = data[count:]

    def one_of(self, *options: Any) -> Any:
        """Return one of the options; the first where the input is too short to choose."""
        return options[next(self._choices, 0) % len(options)]


ASKED = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}'


# --- Files ---


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
    for entries in player.entries.by_interaction:
        for entry in entries:
            _ask(player, read, entry.exchange.request)

    summary_text(report_of_replay(player)).encode()
    with suppress(CassetteError):
        Player(loaded(read, PATH), stateless=True)

    added = assembled(
        [exchange(ASKED, {"content": []})],
        request_state=read.request_state,
        earlier=read,
    )

    assert len(added.interactions) == len(read.interactions) + 1
    assert decode_cassette(encode_cassette(added), PATH) == added


# --- The player ---

STATES = ("first-state-0123456789abcdef", "second-state-0123456789abcdef")


@cache
def recorded() -> CassetteModel:
    """Return a cassette with turns, branches, streams, two dialects, and other traffic."""
    deploy = tool("deploy", env="prod", n=1)
    wipe = tool("wipe")
    old = tool("old")
    first, second = STATES
    accepted = retry(deploy, {"ok": True}, state=first)
    wiped = retry(wipe, {"ok": 1.5})
    tokened = with_token(wipe, 1)

    return cassette_of(
        (deploy, asks("ok", state=first)),
        (accepted, stream(answer(accepted, asks("ok", state=second)))),
        (retry(deploy, {"ok": {"a": [1, None]}}, state=second), text("done")),
        (retry(deploy, {"ok": False}, state=first), text("")),
        (wipe, asks("ok")),
        (wiped, stream(answer(wiped, text("wiped")))),
        (tokened, stream(answer(tokened, text("streamed")))),
        (old, array_asks("q", state=f"{first}x")),
        (retry(old, [{"id": "q", "value": "a"}], state=f"{first}x"), text("")),
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
    method = choices.one_of(*METHODS)
    target = choices.one_of(*TARGETS)
    accept = choices.one_of(*ACCEPTS)
    repeat = choices.one_of(*Repeat)
    headers: Headers = (("Accept", accept),) if accept else ()
    playing = Player(loaded(recorded(), PATH), repeat=repeat)
    bodies = choices.rest.split(SEPARATOR)[:12]
    for body in bodies:
        _ask(playing, recorded(), Request(method, target, headers, body))

    assert playing.tally.reply_count + len(playing.tally.misses) + len(
        playing.tally.harmless
    ) == len(bodies)
    summary_text(report_of_replay(playing)).encode()


def _ask(playing: Player, cassette: CassetteModel, request: Request) -> None:
    """Ask for one request's answer, and check what comes."""
    decision = playing.request_received(request)
    if isinstance(decision, HarmlessReply):
        orjson.dumps(harmless_event(decision))
        return

    if isinstance(decision, Miss):
        report = miss_report(decision, Cassette(PATH), str, LIBRARY_TERMS, None)
        body = error_body(report, decision.call)
        json.loads(body)
        orjson.dumps(missed_event(decision))
        report.text.encode()
        message = decision.call.message
        if message is not None and message.kind is Kind.REQUEST:
            assert b'"id":%b,' % (message.spelled(ID_PATH) or b"") in body

        return

    orjson.dumps([*played_events(decision)])
    theirs = decision.entry.exchange.request
    assert (request.method, request.target) == (theirs.method, theirs.target)
    asked = read_call(request).message
    known = decision.entry.exchange.call.message
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


def _state(tree: dict[str, Any]) -> Any:
    params = tree.get("params")
    state = params.get("requestState") if isinstance(params, dict) else None
    return state if state is None or isinstance(state, str) else canonical(state)


def _sha256(state: Any) -> str:
    return hashlib.sha256(str(state).encode("utf-8", "surrogatepass")).hexdigest()


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
    kept = {
        k: v
        for k, v in params.items()
        if k not in {"_meta", "requestState", "inputResponses"}
    }

    if tree["method"] in {"tools/call", "prompts/get", "resources/read"}:
        kept |= {
            member: kept.get(member) or None for member in ("arguments", "name", "uri")
        }

    if tree["method"] == "initialize":
        for member in ("capabilities", "clientInfo", "protocolVersion"):
            kept.pop(member, None)

    if isinstance(answers, list) and all(
        isinstance(answer, dict) and isinstance(answer.get("id"), str)
        for answer in answers
    ):
        by_id = {
            answer["id"]: {k: v for k, v in answer.items() if k != "id"}
            for answer in answers
        }
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
        return {
            key: _without_null(member)
            for key, member in value.items()
            if member is not None
        }

    return [_without_null(item) for item in value] if isinstance(value, list) else value


TARGETS_BY_NAME: dict[str, Target] = {
    target.__name__: target for target in (cassette, player)
}
