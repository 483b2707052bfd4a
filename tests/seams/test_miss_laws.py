"""Laws of misses: each has every form in which somebody reads it, whatever was sent or recorded."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree as ET

import orjson
import pytest
from builders import (
    ACCEPTED,
    Answer,
    Conversation,
    Step,
    cassette_of,
    get,
    loaded,
    notification,
    player_of,
    post,
    retry,
    sse,
    stream,
    tool,
    within,
)
from harmless import HOSTILE, assert_harmless
from hypothesis import given, settings
from hypothesis import strategies as st
from messages import YES, Json, asks, form, message, result, text
from pushing import branched
from tasking import created, task_steps

from mrtr_cassette.core.cassette.entries import ReplayEntry
from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.compare.conversations import ignores_nothing
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.protocol.jsonrpc import ID_PATH
from mrtr_cassette.core.replay.deliveries import Play
from mrtr_cassette.core.replay.diagnosis import Miss, Reason
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.report.ci import miss_annotation, replay_junit
from mrtr_cassette.core.report.events import replay_log_line
from mrtr_cassette.core.report.page import cassette_page
from mrtr_cassette.core.report.replay_events import missed_event
from mrtr_cassette.core.report.runs import (
    InteractionOutcome,
    MissesError,
    MissReport,
    ReplayReport,
    error_body,
    report_of_miss,
    report_of_replay,
    summary_data,
)
from mrtr_cassette.core.wire.http import Request
from mrtr_cassette.core.wire.jsonbytes import parse
from mrtr_cassette.core.wire.pointers import Difference, escape_pointer
from mrtr_cassette.shell.files.reports import page_assets, saved_report
from mrtr_cassette.terms import LIBRARY_TERMS

# Made-up texts, values and requests


WORDS = (
    "a",
    "b",
    "",
    "a/b~c",
    "<<append>>",
    "\u2028\x85",
    "\ud800",
    HOSTILE,
    "x" * 300,
)
words = st.one_of(st.sampled_from(WORDS), st.text(max_size=6))
scalars = st.one_of(
    st.sampled_from([None, True, 0, 1, 10**18, -(10**400), 1.5]), words, st.integers()
)
values: st.SearchStrategy[Json] = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(words, inner, max_size=3)
    ),
    max_leaves=8,
)
objects = st.dictionaries(words, values, max_size=3)


def nested(value: Json, levels: int) -> Json:
    """Return a value below many others."""
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}

    return value


deep = st.builds(nested, scalars, st.integers(150, 200))
maybe = st.one_of(st.none(), st.none(), values)
answers = st.one_of(
    objects,
    deep,
    values,
    st.lists(
        st.builds(lambda key, value: {"id": key, "value": value}, words, values),
        max_size=2,
    ),
)


def spelled(value: Json) -> bytes:
    """Spell JSON in ASCII, so that it may have lone surrogates."""
    return json.dumps(value).encode()


@st.composite
def calls(draw: st.DrawFn) -> Request:
    """Return a request of a client of any era, of which few members differ from others'."""
    method = draw(
        st.sampled_from(
            ["tools/call", "tools/call", "prompts/get", "resources/read", "tasks/get"]
        )
    )

    method = draw(
        st.sampled_from([method, method, "tasks/update", "odd/method", "tools/list"])
    )
    name = draw(st.sampled_from(["a", "a", "b", HOSTILE, "mrtr-task:1"]))
    named_by = {
        "resources/read": "uri",
        "tasks/get": "taskId",
        "tasks/update": "taskId",
    }

    params: dict[str, Json] = {named_by.get(method, "name"): name}
    arguments = draw(st.one_of(st.just({}), values, deep))
    if arguments != {}:
        params["arguments"] = arguments

    if draw(st.booleans()):
        params["inputResponses"] = draw(answers)

    if draw(st.integers(0, 2)) == 0:
        params["requestState"] = draw(st.one_of(values, st.just("S" * 30)))

    if draw(st.integers(0, 9)) == 0:
        params = draw(values)

    return post(
        spelled(message(method, params, id=draw(st.one_of(words, st.integers()))))
    )


@st.composite
def posts(draw: st.DrawFn) -> Request:
    """Return a posted answer to what a server may have pushed."""
    identity = draw(st.sampled_from([0, 1, 2, "a"]))
    value = draw(values)
    if draw(st.booleans()):
        return post(spelled(result(value, id=identity)))
    return post(spelled({"jsonrpc": "2.0", "id": identity, "error": value}))


opaque = st.one_of(
    st.binary(max_size=12).map(post),
    values.map(lambda value: post(spelled(value))),
    st.sampled_from(
        [get("/mcp"), get("/x\x85"), get("/mcp", ("Last-Event-ID", HOSTILE))]
    ),
    st.builds(
        lambda name: post(tool("a"), ("Mcp-Name", name)), st.sampled_from(["b", "\xe9"])
    ),
    st.builds(lambda name: post(spelled(message(name, None, id=None))), words),
)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """Return a request, perhaps of a session."""
    request = draw(st.one_of(calls(), calls(), calls(), posts(), opaque))
    return within("mrtr-session:1", request) if draw(st.booleans()) else request


@st.composite
def responses(draw: st.DrawFn, request: Request) -> Answer:
    """Return a response, which may ask, push, create a task or make no sense."""
    call = read_call(request)
    identity = None if call.message is None else call.message.spelled(ID_PATH)
    keys = {key: form(draw(words)) for key in draw(st.lists(words, max_size=2))}
    state = draw(st.sampled_from([None, "S" * 30, "", HOSTILE]))
    asking = {**asks(state=state), "inputRequests": keys}
    value = draw(
        st.sampled_from([asking, asking, text("done"), created("t-123456789012345"), 1])
    )
    whole = b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (
        identity or b"null",
        spelled(value),
    )

    pushed = spelled(
        {"jsonrpc": "2.0", "id": draw(st.integers(0, 2)), **form(draw(words))}
    )

    return draw(
        st.sampled_from(
            [Answer((whole,)), Answer((whole,)), stream(pushed, whole), ACCEPTED]
        )
    )


@st.composite
def cassettes(draw: st.DrawFn) -> Cassette:
    """Return a cassette of a few requests, which may overlap."""
    flags = [draw(st.booleans()) for _ in range(3)]
    talk = Conversation(seals=flags[0], redacts=flags[1], seals_answers=flags[2])
    for request in draw(st.lists(requests(), min_size=1, max_size=4)):
        number = talk.request(request)
        if draw(st.integers(0, 5)):
            talk.response(number, draw(responses(request)))

    return loaded(talk.cassette(), draw(paths))


paths = st.sampled_from(
    ["talk.json", "\udcff.json", f"{HOSTILE}.json", "::error::.json"]
)


# Every form


def text_is_harmless(miss: Miss, report: MissReport) -> None:
    """Read what a terminal shows."""
    assert report.text.encode()
    assert_harmless(report.text)
    assert report.text.startswith(f"miss: {miss.reason.value}: ")
    assert all(report.fixes)
    assert str(MissesError(report.cassette, [report])).encode()


def json_has_all(_miss: Miss, report: MissReport) -> None:
    """Read the JSON report, as `view` does."""
    whole = ReplayReport(report.cassette, (), (report, report))
    raw = orjson.dumps(summary_data(whole))
    assert summary_data(saved_report(raw)) == orjson.loads(raw)
    event, line = replay_log_line(whole)
    assert orjson.loads(orjson.dumps(event))["misses"] == 2
    assert line.encode()


def junit_has_a_failure(_miss: Miss, report: MissReport) -> None:
    """Read the XML."""
    root = ET.fromstring(replay_junit(ReplayReport(report.cassette, (), (report,))))
    (failure,) = root.iter("failure")
    assert (failure.get("type"), bool(failure.text)) == (report.reason, True)


def runner_sees_one_line(_miss: Miss, report: MissReport) -> None:
    """Read the annotation of GitHub Actions."""
    assert miss_annotation(report).isprintable()


def page_shows_it(_miss: Miss, report: MissReport) -> None:
    """Open the page with it."""
    outcome = InteractionOutcome(1, report.request, "played", 1, "c.json")
    replayed = ReplayReport(report.cassette, (outcome,), (report,))
    html = "".join(
        cassette_page(ONE_CALL, page_assets(), replayed, None, ignores_nothing)
    )
    assert report.reason in html
    assert html.encode()


def client_gets_an_error(miss: Miss, report: MissReport) -> None:
    """Read the JSON-RPC error, under the id of the request, and under that of another call."""
    for answered in (miss.call, b'"other"', None):
        error = parse(error_body(report, answered))["error"]
        assert error["data"] == parse(orjson.dumps(report.facts))
        assert error["message"] == report.text


def log_has_an_event(miss: Miss, _report: MissReport) -> None:
    """Read the event."""
    event = missed_event(miss)
    assert orjson.loads(orjson.dumps(event)) == event
    assert event["reason"] == miss.reason.value


RENDERINGS: tuple[Callable[[Miss, MissReport], None], ...] = (
    text_is_harmless,
    json_has_all,
    junit_has_a_failure,
    runner_sees_one_line,
    page_shows_it,
    client_gets_an_error,
    log_has_an_event,
)


def render(miss: Miss, player: Player) -> None:
    """Make sure that a miss has every form."""
    report = report_of_miss(miss, player, LIBRARY_TERMS)
    for rendering in RENDERINGS:
        rendering(miss, report)


# Misses as values

SCRIPT: tuple[Step, ...] = (
    (tool("plain"), text("x")),
    (tool("ask"), asks("a", HOSTILE, state="S" * 30)),
    (retry(tool("ask"), {"a": YES}, state="S" * 30), text("x")),
    (tool("stateless"), asks("a")),
    (retry(tool("stateless"), {"a": YES}), text("x")),
    (b"junk", Answer((b"x",))),
    (notification("notifications/x"), ACCEPTED),
    (get("/mcp", ("Accept", "text/event-stream")), Answer((sse(b"{}"),))),
    *task_steps("task-12345678901234"),
)
ONE_CALL = loaded(cassette_of(SCRIPT[0]))
HOSTILE_PATH = Player(loaded(cassette_of(*SCRIPT), f"\udcff{HOSTILE}"))
NEAREST: list[ReplayEntry | None] = [
    None,
    *player_of(*SCRIPT).entries.in_file_order,
    *player_of(*SCRIPT, seals_answers=True, redacts=True).entries.in_file_order,
    *Player(branched()).entries.in_file_order,
]
"""Every kind of exchange: asks and answers of every way, tasks and their steps, and no message."""

pointers = st.one_of(
    st.sampled_from(
        ["", "/", "/inputResponses", "/inputResponses/a", "/arguments", "/error"]
    ),
    st.lists(words, max_size=4).map(
        lambda keys: "".join(f"/{escape_pointer(key)}" for key in keys)
    ),
)
shown = st.one_of(st.none(), words)
differing = st.lists(st.builds(Difference, pointers, shown, shown), max_size=3).map(
    tuple
)


@pytest.mark.parametrize("reason", Reason)
@settings(max_examples=settings.default.max_examples // 4)
@given(requests(), words, st.sampled_from(NEAREST), differing)
def test_miss_of_every_reason_has_every_form(
    reason: Reason,
    request_: Request,
    detail: str,
    nearest: ReplayEntry | None,
    differences: tuple[Difference, ...],
) -> None:
    """Whatever is nearest and differs, a miss is text, JSON, XML, a page, an error and an event."""
    render(
        Miss(read_call(request_), reason, detail, nearest, differences), HOSTILE_PATH
    )


# Misses as they come


@given(
    cassette=cassettes(),
    asked=st.lists(requests(), min_size=1, max_size=4),
    strict=st.booleans(),
)
def test_whatever_is_missed_has_every_form(
    cassette: Cassette, asked: list[Request], *, strict: bool
) -> None:
    """Made-up requests to made-up cassettes get what was recorded, or a miss in every form."""
    player = Player(cassette, strict=strict)
    recorded: list[Request] = []
    for interaction in cassette.interactions:
        recorded += [exchange.request for exchange in interaction.unshared_exchanges]

    for request in (*asked, *recorded, *recorded):
        decision = player.request_received(request)
        if isinstance(decision, Miss):
            render(decision, player)
        elif isinstance(decision, Play) and decision.delivery is not None:
            _read_on(player, decision)

    whole = report_of_replay(player)

    assert len(whole.misses) == len(player.tally.misses)
    assert ET.fromstring(replay_junit(whole)).tag == "testsuites"


def _read_on(player: Player, play: Play) -> None:
    delivery: Any = play.delivery
    step = delivery.take_next()
    if hasattr(step, "miss"):
        render(step.miss, player)
