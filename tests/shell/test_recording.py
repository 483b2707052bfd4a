"""Facts about recordings: what is kept of what passes, what is refused, and that a recorder breaks no call."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import connected, http, looped, playing, post, read, taping
from messages import (
    JsonObject,
    compact,
    input_required,
    message,
    result,
    tool_call,
    yes,
)
from standin import (
    JSON,
    Script,
    Visit,
    answering,
    chunk,
    event,
    event_stream,
    json_response,
    response,
    stream_head,
    upstream,
)

from mrtr_cassette.core.record.recorder import Observation, Recorder
from mrtr_cassette.core.record.sealing import ExchangeSealer
from mrtr_cassette.core.report.runs import recording_text
from mrtr_cassette.errors import UsageError
from mrtr_cassette.options import RecordOptions
from mrtr_cassette.shell.files.journals import Journal
from mrtr_cassette.shell.runs.recording import recording

# --- Sealing ---

STATE = "eyJrZXkiOiJzZWNyZXQtc3RhdGUifQ.MEUCIQDx/y+z=="


def _ask_in_stream(state: str) -> bytes:
    log = message("notifications/message", {"data": f"issued {state}"}, id=None)
    return event_stream(log, input_required("confirm", state=state))


def _ask_in_gzip(state: str) -> bytes:
    coded = gzip.compress(compact(input_required("confirm", state=state)))
    return response(coded, JSON, "Content-Encoding: gzip")


@pytest.mark.parametrize("ask", [_ask_in_stream, _ask_in_gzip])
@looped
async def test_no_raw_state_is_written(
    tmp_path: Path, ask: Callable[[str], bytes]
) -> None:
    """However an ask passes, its raw state is in neither journal nor cassette nor log."""
    script = answering(ask(STATE), json_response(result({}, id=2)))
    async with taping(tmp_path / "c.json", script) as tape:
        await post(tape.url, tool_call("deploy"))
        answers = {"inputResponses": yes("confirm"), "requestState": STATE}
        await post(tape.url, tool_call("deploy", id=2, **answers))

        assert tape.server.received[1].json["params"]["requestState"] == STATE

        journal = (tmp_path / "c.json.journal").read_text()

    for written in (journal, (tmp_path / "c.json").read_text(), *tape.log):
        assert STATE not in written


# --- Recording over a cassette ---


def _pages(run: str, *names: str) -> Script:
    """Return a server whose pages have cursors of its own run."""
    more = [{"nextCursor": f"{run}-{page}"} for page in range(1, len(names))]
    pages = zip(names, [*more, {}], strict=True)
    replies = [
        result({"tools": [{"name": name, "inputSchema": {}}], **page})
        for name, page in pages
    ]

    return answering(*map(json_response, replies))


async def _all_pages(url: str) -> list[str]:
    """List all tools, and return their names."""
    names: list[str] = []
    cursor: JsonObject | None = {}
    while cursor is not None:
        page = (await post(url, message("tools/list", cursor))).json["result"]
        names += [tool["name"] for tool in page["tools"]]
        cursor = {"cursor": page["nextCursor"]} if "nextCursor" in page else None

    return names


@looped
async def test_recording_over_a_cassette_writes_what_changed(tmp_path: Path) -> None:
    """Where nothing did, the file is left alone; a page that did stands behind the kept cursor."""
    path = tmp_path / "c.json"
    files = []
    said = []
    changed = ("one", "2", "three")
    for run, names in (
        ("a", ("one", "two", "three")),
        ("b", ("one", "two", "three")),
        ("c", changed),
    ):
        async with (
            upstream(_pages(f"run {run}", *names)) as server,
            recording(
                server.url, path, RecordOptions(existing="replace")
            ) as recording_run,
        ):
            await _all_pages(recording_run.url)

        files.append(
            (path.stat().st_mtime_ns, path.read_bytes(), read(path)["interactions"])
        )
        said.append(recording_text(recording_run.report))

    assert files[0] == files[1]

    (_, _, before), (_, _, after) = files[1:3]
    kept = [old == new for old, new in zip(before, after, strict=True)]

    assert kept == [True, False, True]
    assert said == [
        f"wrote {path}: 3 interactions, 3 exchanges recorded",
        f"{path}: 3 interactions, same, kept, 3 exchanges recorded",
        f"wrote {path}: 3 interactions (2 kept), 3 exchanges recorded",
    ]

    async with playing(path) as replay:
        assert await _all_pages(replay.url) == [*changed]


@looped
async def test_recording_over_a_cassette_keeps_what_differs_where_nothing_counts(
    tmp_path: Path,
) -> None:
    """A time in arguments and in a result is left out of what is the same, as in `diff`."""
    path = tmp_path / "c.json"
    file = tmp_path / "ignored.toml"
    file.write_text("[[ignore]]\npointers = ['/params/arguments/at', '/result/at']\n")
    for number, options in enumerate(
        (
            {"existing": "keep"},
            {"existing": "replace", "ignore": ["/arguments/at", "/result/at"]},
            {"existing": "replace", "ignore_from": file},
            {"existing": "replace", "ignore": ["/arguments/at"]},
        )
    ):
        script = answering(json_response(result({"at": number})))
        async with taping(path, script, **options) as tape:
            await post(tape.url, tool_call("clock", arguments={"at": number}))

        assert tape.recording_run.report.is_same == (number in (1, 2)), options


# --- What is refused ---


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        *(
            (url, url)
            for url in ("", "localhost:8000/mcp", "ftp://x/mcp", "http:///mcp")
        ),
        *((url, url) for url in ("http://x:99999/", "http://a b/")),
        ("http://[::1", "http://…"),
        ("http://bob:hunter2pass/mcp", "http://…"),
        ("http://bob:hunter2/pass@host/mcp", "http://…"),
        ("bob:hunter2pass@host/?api_key=sup3rs3cret", "…"),
        (
            "ftp://host/ghp_abcdefghijklmnopqrstuvwxyz0123456789",
            "ftp://host/%3Cgithub:1%3E",
        ),
    ],
)
@looped
async def test_what_is_no_http_url_is_refused(
    tmp_path: Path, url: str, shown: str
) -> None:
    """The error shows it without its secrets, and nothing is made."""
    with pytest.raises(UsageError) as caught:
        async with recording(url, tmp_path / "c.json"):
            pass

    assert repr(shown) in str(caught.value)
    assert not re.search("hunter2|sup3rs3cret|ghp_", str(caught.value))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
@looped
async def test_an_upstream_that_is_the_proxy_itself_is_refused(
    tmp_path: Path, name: str
) -> None:
    """Who names our own address as the upstream, where each request would come round, is told."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    with pytest.raises(UsageError):
        async with recording(
            f"http://{name}:{port}/mcp", tmp_path / "c.json", RecordOptions(port=port)
        ):
            pass


# --- The journal ---


@looped
async def test_a_recording_that_fails_publishes_what_it_has(tmp_path: Path) -> None:
    """An error in the block, such as a failing test, still publishes what was recorded."""

    async def failing() -> None:
        async with taping(tmp_path / "c.json", answering(response(b"x"))) as tape:
            await http("GET", tape.url)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await failing()

    assert len(read(tmp_path / "c.json")["interactions"]) == 1
    assert not (tmp_path / "c.json.journal").exists()


# --- The recorder is a spectator ---

WATCHED = [
    (Recorder, "request_received"),
    (Observation, "response_bytes"),
    (ExchangeSealer, "seal"),
    (Journal, "append"),
]


@pytest.mark.parametrize(("owner", "name"), WATCHED)
@pytest.mark.parametrize("error", [OSError(28, "No space left"), RuntimeError("boom")])
@looped
async def test_a_failing_recorder_never_breaks_the_call(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    name: str,
    error: Exception,
) -> None:
    """Whatever fails in the recording, each client gets every byte, and the user is told once."""

    def failing(*_: object) -> None:
        raise error

    async with taping(
        tmp_path / "c.json", answering(*[event_stream(result({}))] * 2)
    ) as tape:
        monkeypatch.setattr(owner, name, failing)
        for _ in range(2):
            answer = await post(tape.url, message("ping"))

            assert (answer.body, answer.is_whole) == (event(result({})), True)

        monkeypatch.undo()

    assert tape.recording_run.problem is not None

    told = [line for line in tape.log if line.startswith("RECORDING FAILED: ")]

    assert len(told) == 1


@looped
async def test_pushed_requests_and_their_answers_are_told_as_they_pass(
    tmp_path: Path,
) -> None:
    """The log has what a server asks while its call is pending, and that it was answered."""
    events: list[dict[str, Any]] = []
    pushed = message("elicitation/create", {"message": "Sure?"}, id="push")
    answered = asyncio.Event()

    async def script(visit: Visit) -> None:
        if "method" in visit.request.json:
            await visit.send(stream_head(), chunk(event(pushed)))
            await answered.wait()
            await visit.send(chunk(event(result({"done": 1}))), chunk(b""))
        else:
            await visit.send(response(status="202 Accepted"))
            answered.set()

    async with (
        taping(tmp_path / "c.json", script, on_event=events.append) as tape,
        connected(tape.url) as client,
    ):
        _, body = await client.ask(
            "POST", "/mcp", JSON, body=compact(tool_call("deploy"))
        )
        await body.some()
        told = [event["event"] for event in events]
        await post(tape.url, result({"action": "decline"}, id="push"))
        await body.rest()

    assert told == ["started", "asked"]
    assert events[1]["keys"] == {"elicitation-1": "form"}

    answers = [event for event in events if event["event"] == "answered"]

    assert [
        (answer["exchange"], answer["call"], answer["keys"]) for answer in answers
    ] == [(2, 'tools/call "deploy"', ["elicitation-1"])]
    assert '   1  tools/call "deploy" asks: Sure?' in tape.log
    assert "decline" not in json.dumps(events)
    assert "Sure?" not in json.dumps(events)


@looped
async def test_a_line_that_was_cut_short_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a line that the full disk cut short, the lines that fit again are whole."""
    append = Journal.append

    def half(journal: Journal, line: bytes) -> None:
        append(journal, line[: len(line) // 2])
        raise OSError(28, "No space left on device")

    async with taping(tmp_path / "c.json", answering(*[response(b"x")] * 3)) as tape:
        await http("GET", tape.url, target="/1")
        monkeypatch.setattr(Journal, "append", half)
        await http("GET", tape.url, target="/2")
        monkeypatch.undo()
        await http("GET", tape.url, target="/3")

    kept = [
        interaction["request"]["http"]["path"]
        for interaction in read(tmp_path / "c.json")["interactions"]
    ]

    assert kept == ["/1", "/3"]
