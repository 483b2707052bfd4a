"""Facts about what is kept of what passes: when it is on disk, and that keeping it never breaks a call."""

import asyncio
import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from harness import (
    connected,
    http,
    looped,
    post,
    raw_body,
    read,
    request,
    taping,
)
from messages import compact, message, result, tool_call
from standin import (
    EVENTS,
    JSON,
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
from mrtr_cassette.options import RecordOptions
from mrtr_cassette.shell import journal_file
from mrtr_cassette.shell.http.server import HttpDownstream
from mrtr_cassette.shell.recording import recording

# --- The journal ---


@pytest.mark.parametrize(
    "reply",
    [
        json_response(result({"a": 1})),
        stream_head(JSON) + chunk(compact(result({"a": 1}))) + chunk(b""),
        stream_head() + chunk(event(result({"a": 1}))),
        response(gzip.compress(compact(result({"a": 1}))), JSON, "Content-Encoding: gzip"),
        response(status="202 Accepted"),
        response(status="204 No Content", length=False),
    ],
    ids=["length", "chunked", "event", "gzip", "empty", "no content"],
)
@looped
async def test_what_the_client_has_whole_is_in_the_journal(tmp_path: Path, reply: bytes) -> None:
    """When the client has its last byte the exchange is on disk, even if the stream goes on."""

    async def script(visit: Visit) -> None:
        await visit.send(reply)
        await visit.left()

    async with taping(tmp_path / "c.json", script) as tape, connected(tape.url) as client:
        _, body = await client.ask("POST", "/mcp", JSON, body=compact(message("ping", id=1)))
        if b"event-stream" in reply:
            await body.until(b"\n\n")
        else:
            await body.rest()
            assert body.is_whole
        (line,) = tape.journal
        assert line["response"][0] == int(reply.split()[1])
        assert line["response"][2] == "complete"
        if b"HTTP/1.1 200" in reply:
            assert '"result":{"a":1}' in json.dumps(line["response"][3]).replace("\\", "")


HEADS = {
    "length": json_response(result({})),
    "event": stream_head() + chunk(event(result({}))) + chunk(b""),
    "chunked": stream_head(JSON) + chunk(compact(result({}))) + chunk(b""),
    "empty": response(status="202 Accepted"),
    "without": response(status="204 No Content", length=False),
}


@pytest.mark.parametrize(
    ("reply", "comes", "expected"),
    [
        *((name, "whole", ["journal", "send"]) for name in HEADS),
        ("length", "in parts", ["send", "journal", "send"]),
        ("event", "in parts", ["send", "journal", "send"]),
        ("chunked", "in parts", ["send", "send", "journal", "send"]),
    ],
)
@looped
async def test_the_journal_is_written_before_the_last_byte(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    reply: str,
    comes: str,
    expected: list[str],
) -> None:
    """The line is on disk before the bytes that make the response whole are given to the socket."""
    done: list[str] = []
    head, end, rest = HEADS[reply].partition(b"\r\n\r\n")
    client_has = [asyncio.Event(), asyncio.Event()]

    async def script(visit: Visit) -> None:
        if comes == "whole":
            await visit.send(HEADS[reply])
            return
        await visit.send(head + end)
        await client_has[0].wait()
        if reply == "chunked":
            await visit.send(rest[: -len(chunk(b""))])
            await client_has[1].wait()
            await visit.send(chunk(b""))
        else:
            await visit.send(rest)

    def noting(owner: type, name: str) -> None:
        original = getattr(owner, name)

        def noted(*args: Any, **kwargs: Any) -> Any:
            done.append("journal" if owner is journal_file.Journal else name)
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, noted)

    async with taping(tmp_path / "c.json", script) as tape, connected(tape.url) as client:
        noting(journal_file.Journal, "append")
        for name in ("send_whole", "send"):
            noting(HttpDownstream, name)
        await client.write(request("POST", "/mcp", JSON, body=compact(message("ping"))))
        _, body = await client.answer(is_empty=reply == "without")
        client_has[0].set()
        if reply == "chunked" and comes == "in parts":
            await body.until(b"}}")
            client_has[1].set()
        await body.rest()
        monkeypatch.undo()
    # The end of a chunked body may come with its last bytes, or after them.
    assert done[: len(expected)] == expected
    assert done.count("journal") == 1


@looped
async def test_a_coded_stream_passes_and_is_written_down_event_by_event(tmp_path: Path) -> None:
    """Events of a gzip stream reach the client coded, one by one, and the response is on disk at once."""
    coder = zlib.compressobj(wbits=31)
    note = message("notifications/n", id=None)
    coded = [
        coder.compress(event(one)) + coder.flush(zlib.Z_SYNC_FLUSH) for one in (note, result({}))
    ]

    async def script(visit: Visit) -> None:
        await visit.send(stream_head(EVENTS, "Content-Encoding: gzip"))
        for one, gate in zip(coded, gates, strict=True):
            await visit.send(chunk(one))
            await gate.wait()
        await visit.send(chunk(coder.flush()), chunk(b""))

    gates = [asyncio.Event() for _ in coded]
    async with taping(tmp_path / "c.json", script) as tape, connected(tape.url) as client:
        _, body = await client.ask("POST", "/mcp", JSON, body=compact(message("ping")))
        assert await body.some() == coded[0]
        assert tape.journal == []
        gates[0].set()
        assert await body.some() == coded[1]
        assert [line["response"][2] for line in tape.journal] == ["complete"]
        gates[1].set()
        await body.rest()
        assert body.is_whole
    kept = read(tmp_path / "c.json")["interactions"][0]["response"]
    assert raw_body(kept) == event(note) + event(result({}))


@looped
async def test_a_later_event_of_an_answered_stream_is_kept_too(tmp_path: Path) -> None:
    """What a stream has after its response is in the cassette, which counts the stream as whole."""

    async def script(visit: Visit) -> None:
        await visit.send(stream_head(), chunk(event(result({}))))
        await gate.wait()
        await visit.send(chunk(b": bye\n\n"), chunk(b""))

    gate = asyncio.Event()
    async with taping(tmp_path / "c.json", script) as tape, connected(tape.url) as client:
        _, body = await client.ask("POST", "/mcp", JSON, body=compact(message("ping")))
        await body.until(b"\n\n")
        gate.set()
        assert await body.rest() == b": bye\n\n"
    kept = read(tmp_path / "c.json")["interactions"][0]["response"]
    assert raw_body(kept) == event(result({})) + b": bye\n\n"


@looped
async def test_nothing_recorded_writes_nothing(tmp_path: Path) -> None:
    """A recording in which nothing passed leaves neither cassette nor journal."""
    async with taping(tmp_path / "c.json", answering()) as tape:
        assert (tmp_path / "c.json.journal").exists()
    assert tape.session.published is None
    assert list(tmp_path.iterdir()) == []


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
    (Observation, "response_started"),
    (Observation, "response_bytes"),
    (Recorder, "seal"),
    (Observation, "response_ended"),
    (journal_file.Journal, "append"),
]


@pytest.mark.parametrize(("owner", "name"), WATCHED)
@pytest.mark.parametrize("error", [OSError(28, "No space left"), RuntimeError("boom")])
@looped
async def test_a_failing_recorder_never_breaks_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, error: Exception
) -> None:
    """Whatever fails in the recording, each client gets every byte, and the user is told once."""

    def failing(*_: object) -> None:
        raise error

    async with taping(tmp_path / "c.json", answering(*[event_stream(result({}))] * 2)) as tape:
        monkeypatch.setattr(owner, name, failing)
        for _ in range(2):
            answer = await post(tape.url, message("ping"))
            assert (answer.body, answer.is_whole) == (event(result({})), True)
        monkeypatch.undo()
    assert tape.session.problem is not None
    told = [line for line in tape.log if line.startswith("RECORDING FAILED: ")]
    assert len(told) == 1


@looped
async def test_a_coding_that_cannot_be_read_is_warned_of_once(tmp_path: Path) -> None:
    """What nobody can look into passes byte for byte, is kept, and is said to be kept as it is."""
    events: list[dict[str, Any]] = []
    packed = response(b"\x8b\x00", JSON, "Content-Encoding: br")
    script = answering(packed, packed, json_response(result({})))
    async with taping(tmp_path / "c.json", script, on_event=events.append) as tape:
        for _ in range(3):
            answer = await post(tape.url, message("ping"), "Accept-Encoding: br, gzip")
        assert answer.is_whole
    assert [event["exchange"] for event in events if event["event"] == "unread"] == [1]
    (warning,) = (line for line in tape.log if "can't be decoded" in line)
    assert "the response of exchange 1, ping, can't be searched" in warning
    assert "its content coding br can't be decoded here" in warning
    kept = read(tmp_path / "c.json")["interactions"][0]["response"]
    assert kept["headers"]["Content-Encoding"] == "br"
    assert all(seen.head.values("accept-encoding") == ["br, gzip"] for seen in tape.server.received)


@looped
async def test_pushed_requests_and_their_answers_are_told_as_they_pass(tmp_path: Path) -> None:
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
        _, body = await client.ask("POST", "/mcp", JSON, body=compact(tool_call("deploy")))
        await body.some()
        told = [each["event"] for each in events]
        await post(tape.url, result({"action": "decline"}, id="push"))
        await body.rest()
    assert told == ["started", "asked"]
    assert events[1]["keys"] == {"elicitation-1": "form"}
    answers = [each for each in events if each["event"] == "answered"]
    assert [(each["exchange"], each["call"], each["keys"]) for each in answers] == [
        (2, 'tools/call "deploy"', ["elicitation-1"])
    ]
    assert '   1  tools/call "deploy" asks elicitation-1 (form)' in tape.log
    assert "decline" not in json.dumps(events)
    assert "Sure?" not in json.dumps(events)


@looped
async def test_a_failing_log_never_breaks_the_call(tmp_path: Path) -> None:
    """When nobody reads the log any more, as after `2>&1 | head`, the client gets every byte."""

    def broken(_: str) -> None:
        raise BrokenPipeError

    async with (
        upstream(answering(event_stream(result({})))) as server,
        recording(server.url, tmp_path / "c.json", RecordOptions(log=broken)) as session,
    ):
        answer = await post(session.url, message("ping"))
        assert (answer.body, answer.is_whole) == (event(result({})), True)
    assert len(read(tmp_path / "c.json")["interactions"]) == 1


@looped
async def test_a_line_that_was_cut_short_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a line that the full disk cut short, the lines that fit again are whole."""
    append = journal_file.Journal.append

    def half(journal: journal_file.Journal, line: bytes) -> None:
        append(journal, line[: len(line) // 2])
        raise OSError(28, "No space left on device")

    async with taping(tmp_path / "c.json", answering(*[response(b"x")] * 3)) as tape:
        await http("GET", tape.url, target="/1")
        monkeypatch.setattr(journal_file.Journal, "append", half)
        await http("GET", tape.url, target="/2")
        monkeypatch.undo()
        await http("GET", tape.url, target="/3")
    kept = [one["request"]["http"]["path"] for one in read(tmp_path / "c.json")["interactions"]]
    assert kept == ["/1", "/3"]
