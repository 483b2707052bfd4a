"""Facts about which interactions are repeated, and why others are not."""

from __future__ import annotations

from builders import (
    Answer,
    cassette_of,
    get,
    loaded,
    notification,
    post,
    retry,
    rpc,
    stream,
    tool,
)
from messages import YES, asks, compact, text

from mrtr_cassette.core.drive.plan import Planned, endpoint_of, planned
from mrtr_cassette.core.exchange.transports import over_pipes
from mrtr_cassette.core.wire.http import End

CALL = tool("deploy", env="prod")
EVENTS = (("Content-Type", "text/event-stream"),)
STATE = "recorded-state-0123456789"


def plan_of(*script: object, only: tuple[str, ...] = (), **options: bool) -> list[Planned]:
    """Return the plan of a script."""
    return planned(loaded(cassette_of(*script, **options), "c.json"), only)


def test_each_kind_of_traffic_has_its_part() -> None:
    """Calls, openings, notices, listening streams and the rest of HTTP."""
    plan = plan_of(
        (rpc("initialize"), {}),
        (notification("notifications/initialized"), Answer((), (), 202)),
        (get("/mcp"), Answer((b": hello\n\n",), EVENTS)),
        (CALL, text("done")),
        (notification("notifications/progress"), Answer((), (), 202)),
        (get("/.well-known/x"), Answer((b"no",), (), 404)),
        (rpc("resources/list"), {"resources": []}),
    )
    assert [each.part for each in plan] == [
        "opening", "opening", "listening", "call", "notice", "other", "call",
    ]  # fmt: skip
    assert [each.skipped for each in plan] == [None] * 7
    assert [each.only_reads for each in plan] == [False] * 6 + [True]
    assert plan[3].label == 'tools/call "deploy"'
    assert [each.is_tool for each in plan].count(True) == 1


def test_what_cannot_be_sent_as_recorded_is_skipped_with_a_reason() -> None:
    """A cut response, a state of nowhere, a cancellation, a resumed stream, a subscription."""
    posted = compact({"jsonrpc": "2.0", "id": "x", "result": {}})
    for script, reason in (
        ([(retry(CALL, {"a": YES}, state="unknown" * 4), text("x"))], "begins with a retry"),
        ([(CALL, stream(end=End.OPEN))], "its client left"),
        ([(notification("notifications/cancelled", requestId=1), Answer((), (), 202))], "cancels"),
        ([(post(posted), Answer((), (), 202))], "answers what a server pushed"),
        ([(get("/mcp", ("Last-Event-ID", "7")), Answer((b": x\n\n",), EVENTS))], "resumes"),
        ([(rpc("subscriptions/listen"), stream(end=End.OPEN))], "listens to what"),
        ([(get("/x"), Answer((b"a",), (), end=End.BROKEN))], "no whole response"),
        ([(tool("a", at="sha256:" + "0" * 64), text("x"))], "that no recorded response issued"),
    ):
        plan = plan_of(*script)
        assert reason in str(plan[0].skipped), script
    plan = plan_of((tool("a", password="hunter22"), text("x")), redacts=True)
    assert plan[0].skipped == "its request has redacted secrets"


def test_conversation_over_the_old_stream_is_skipped() -> None:
    """Its responses stand on a stream that another request opened."""
    endpoint = b"event: endpoint\ndata: /messages?session_id=0123456789abcdef01\n\n"
    (first,) = plan_of((get("/sse"), Answer((endpoint,), EVENTS)))
    assert "HTTP+SSE" in str(first.skipped)


def test_patterns_select_by_method_name_both_or_number() -> None:
    """One of them has to match."""
    script = ((CALL, text("x")), (rpc("tools/list"), {"tools": []}))
    for pattern, wanted in (
        ("deploy", [1]),
        ("tools/*", [1, 2]),
        ("tools/call deploy", [1]),
        ("2", [2]),
        ("none", []),
    ):
        plan = plan_of(*script, only=(pattern,))
        assert [each.interaction.number for each in plan if each.is_compared] == wanted


def test_beginning_of_a_pipe_means_nothing_over_http() -> None:
    """Over pipes everything is sent in its start of the server."""
    cassette = loaded(cassette_of((CALL, asks("a", state=STATE))), "c.json")
    plan = planned(over_pipes(cassette), is_on_pipes=True)
    assert [each.skipped for each in plan] == [None]
    over = planned(over_pipes(cassette))
    assert "beginning of a pipe" in str(over[0].skipped)


def test_endpoint_is_the_path_of_the_upstream() -> None:
    """Without its query."""
    assert endpoint_of("http://localhost:8000/mcp?x=1") == "/mcp"
    assert endpoint_of("http://localhost:8000") == "/"
