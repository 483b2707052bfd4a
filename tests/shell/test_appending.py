"""Facts about appending: what the cassette has is played, what it lacks is recorded."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from harness import connected, http, looped, playing, post, read, taping
from messages import (
    NO,
    JsonObject,
    compact,
    input_required,
    message,
    result,
    tool_call,
    yes,
)
from standin import EVENTS, JSON, PushingServer, Visit, json_response, response
from tasking import created, state

from mrtr_cassette.errors import UsageError
from mrtr_cassette.options import RecordOptions
from mrtr_cassette.shell.runs.recording import recording

NOT_LED = -32012
REFUSED = {"code": -32602, "message": "Invalid or expired requestState"}

Script = Callable[[Visit], Awaitable[None]]


def state_of(run: str, turn: int) -> str:
    """Return the state that a server's run issues in a turn; no other run knows it."""
    return f"{run}-turn-{turn}-{'s' * 24}"


def server(run: str, question: str = "Really?", **more: Any) -> Script:
    """Ask twice if the first answer is an accept; refuse the states of other runs."""

    async def script(visit: Visit) -> None:
        body = visit.request.json
        params = body.get("params", {})
        identity = body.get("id")
        state = params.get("requestState")
        action = next(iter(params.get("inputResponses", {}).values()), {}).get("action")
        form = {"method": "elicitation/create", "params": {"message": question}}
        if state is None:
            reply = input_required(
                state=state_of(run, 1),
                id=identity,
                inputRequests={"confirm": form},
                **more,
            )
        elif state == state_of(run, 1) and action == "accept":
            reply = input_required("scope", state=state_of(run, 2), id=identity)
        elif state in {state_of(run, 1), state_of(run, 2)}:
            reply = result({"was": action, "by": run, "echoed": state}, id=identity)
        else:
            reply = {"jsonrpc": "2.0", "id": identity, "error": REFUSED}

        await visit.send(json_response(reply))

    return script


def retry(asked: JsonObject, answers: JsonObject, number: int = 2) -> JsonObject:
    """Answer an ask."""
    state = asked["result"].get("requestState")
    more = {} if state is None else {"requestState": state}
    return tool_call("wipe", id=number, inputResponses=answers, **more)


async def accept_both(url: str) -> list[JsonObject]:
    """Have the conversation with two accepts; return the three responses."""
    first = (await post(url, tool_call("wipe", id=1))).json
    second = (await post(url, retry(first, yes("confirm"), 2))).json
    third = (await post(url, retry(second, yes("scope"), 3))).json

    return [first, second, third]


async def decline_first(url: str) -> list[JsonObject]:
    """Decline what is asked first; return the two responses."""
    first = (await post(url, tool_call("wipe", id=1))).json
    second = (await post(url, retry(first, {"confirm": NO}, 2))).json
    return [first, second]


async def recorded(path: Path, **options: Any) -> Path:
    """Record the two accepts with a first run of the server."""
    async with taping(path, server("first"), **options) as tape:
        await accept_both(tape.url)

    return path


def outcome_of(body: JsonObject) -> tuple[str, Any]:
    """Return what was answered, and which run of the server says so."""
    return body["result"]["was"], body["result"]["by"]


@looped
async def test_what_is_recorded_is_played_and_the_file_stays(tmp_path: Path) -> None:
    """A run that lacks nothing calls nobody, and leaves the cassette as it is, byte for byte."""
    path = await recorded(tmp_path / "c.json")
    before = path.read_bytes()
    async with taping(path, server("second"), existing="append") as tape:
        responses = await accept_both(tape.url)

        assert tape.server.received == []

    assert outcome_of(responses[-1]) == ("accept", "first")
    assert (tape.recording_run.outcome.played, tape.recording_run.exchange_count) == (
        3,
        0,
    )
    assert tape.recording_run.publishing.published is None
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@looped
async def test_unrecorded_answer_leads_the_server_and_becomes_a_branch(
    tmp_path: Path,
) -> None:
    """The server is asked first, the retry has its state, and the cassette plays both answers."""
    path = await recorded(tmp_path / "c.json")
    before = read(path)
    async with taping(path, server("second"), existing="append") as tape:
        asked = (await post(tape.url, tool_call("wipe", id=1))).json
        sent = retry(asked, {"confirm": NO}, 7)
        declined = (await post(tape.url, sent, "Authorization: Bearer mine")).json
        led, retried = tape.server.received

    assert declined["id"] == 7
    assert outcome_of(declined) == ("decline", "second")
    assert led.head.values("authorization") == ["Bearer mine"]
    assert led.json == tool_call("wipe", id=2042100001)
    assert retried.json == sent | {
        "params": sent["params"] | {"requestState": state_of("second", 1)}
    }
    assert (tape.recording_run.outcome.played, tape.recording_run.exchange_count) == (
        1,
        1,
    )

    after = read(path)

    assert after["interactions"][:-1] == before["interactions"]
    assert after["interactions"][-1]["branch"] == {"of": 1, "turn": 1}
    assert b"second-turn" not in path.read_bytes(), "the live state is on the disk"

    async with playing(path) as replay:
        assert outcome_of((await decline_first(replay.url))[-1]) == (
            "decline",
            "second",
        )

    async with playing(path) as replay:
        assert outcome_of((await accept_both(replay.url))[-1]) == ("accept", "first")
        assert replay.player.tally.misses == []


@looped
async def test_changed_question_is_an_error_and_nothing_is_recorded(
    tmp_path: Path,
) -> None:
    """Where the live server asks something else, client and run are told what, and where."""
    path = await recorded(tmp_path / "c.json")
    before = path.read_bytes()
    async with taping(
        path, server("second", "Wipe it all?"), existing="append"
    ) as tape:
        error = (await decline_first(tape.url))[-1]["error"]

        assert len(tape.server.received) == 1

    assert error["code"] == NOT_LED
    assert error["data"]["nearest"]["interaction"] == 1
    assert error["data"]["differences"] == [
        {
            "pointer": "/inputRequests/confirm/params/message",
            "recorded": '"Really?"',
            "received": '"Wipe it all?"',
        }
    ]

    assert error["message"] in tape.log
    assert len(tape.recording_run.unrecorded) == 1
    assert path.read_bytes() == before


def sessions_server(run: str) -> Script:
    """Be a server of the 2025 era, which knows its own sessions only."""

    async def script(visit: Visit) -> None:
        body = visit.request.json
        given = visit.request.head.values("mcp-session-id")
        if body["method"] == "initialize":
            reply = result({"protocolVersion": "2025-11-25"}, id=body["id"])
            await visit.send(json_response(reply, f"Mcp-Session-Id: raw-{run}"))
        elif given != [f"raw-{run}"]:
            await visit.send(response(b"", status="404 Not Found"))
        elif "id" in body:
            by = "any" if body["params"]["name"] == "one" else run
            await visit.send(json_response(result({"by": by}, id=body["id"])))
        else:
            await visit.send(response(b"", status="202 Accepted"))

    return script


async def in_session(url: str, *names: str) -> list[JsonObject]:
    """Open a session and call tools in it."""
    opened = await post(url, message("initialize", {"capabilities": {}}))
    (session,) = opened.head.values("mcp-session-id")
    header = f"Mcp-Session-Id: {session}"
    await post(url, message("notifications/initialized", id=None), header)

    return [(await post(url, tool_call(name, id=9), header)).json for name in names]


@looped
async def test_recorded_session_is_opened_with_the_live_server(tmp_path: Path) -> None:
    """A call in a session that was played goes up in a live one, which is opened once, after the played write."""
    path = tmp_path / "c.json"
    async with taping(path, sessions_server("first")) as tape:
        await in_session(tape.url, "one")

    async with taping(path, sessions_server("second"), existing="append") as tape:
        responses = await in_session(tape.url, "one", "two", "three")
        sent = [request.json["method"] for request in tape.server.received]

    servers = [response["result"]["by"] for response in responses]
    sessions = set()
    for interaction in read(path)["interactions"][1:]:
        headers = interaction["request"]["http"]["headers"]
        sessions.add(headers["Mcp-Session-Id"])

    assert sent == ["initialize", "notifications/initialized", *["tools/call"] * 3]
    assert servers == ["any", "second", "second"]
    assert sessions == {"mrtr-session:1"}

    async with playing(path) as replay:
        assert await in_session(replay.url, "one", "two", "three") == responses
        assert replay.player.tally.misses == []


def pushing_server(run: str) -> Script:
    """Be a server of the 2025 era that asks on the stream of each call, with the same id."""
    return PushingServer(
        message("elicitation/create", {"message": "Sure?"}, id=0),
        lambda answer: {"by": run, "action": answer["result"]["action"]},
        session=f"raw-{run}",
    )


async def asked_in_session(url: str, name: str, action: str) -> list[JsonObject]:
    """Open a session, call a tool in it and answer what is asked; return all that was streamed."""
    opened = await post(url, message("initialize", {"capabilities": {}}))
    header = f"Mcp-Session-Id: {opened.head.values('mcp-session-id')[0]}"
    async with connected(url) as client:
        _, body = await client.ask(
            "POST", "/mcp", JSON, header, body=compact(tool_call(name))
        )
        said = await body.some()
        await post(url, result({"action": action}, id=0), header)
        said += await body.rest()

    return [
        json.loads(line[5:]) for line in said.splitlines() if line.startswith(b"data:")
    ]


def calls_in(path: Path) -> list[JsonObject]:
    """Return the interactions of a cassette that are calls of tools."""
    return [
        interaction
        for interaction in read(path)["interactions"]
        if interaction["request"]["body"].get("method") == "tools/call"
    ]


@looped
async def test_answer_to_a_live_push_goes_to_the_server_that_asked(
    tmp_path: Path,
) -> None:
    """An equal answer in the cassette, to the same id, is not played for it."""
    path = tmp_path / "c.json"
    async with taping(path, pushing_server("first")) as tape:
        await asked_in_session(tape.url, "one", "accept")

    (before,) = calls_in(path)
    async with taping(path, pushing_server("second"), existing="append") as tape:
        _, done = await asked_in_session(tape.url, "two", "accept")

    assert done["result"] == {"by": "second", "action": "accept"}

    first, second = calls_in(path)

    assert first == before
    assert [turn["via"] for turn in second["elicitation_turns"]] == ["push"]

    async with playing(path) as replay:
        for name, run in (("one", "first"), ("two", "second")):
            _, done = await asked_in_session(replay.url, name, "accept")

            assert done["result"]["by"] == run

        assert replay.player.tally.misses == []


def breaking_server(run: str) -> Script:
    """Break off the stream of each call after its first event; count events from 1 in a session."""
    calls: list[tuple[str, int]] = []

    async def script(visit: Visit) -> None:
        request = visit.request
        session = f"Mcp-Session-Id: raw-{run}"
        resumed = request.head.values("last-event-id")
        if resumed:
            name, number = calls[int(resumed[0]) - 1]
            rest = compact(result({"by": run, "was": name}, id=number))
            await visit.send(response(b"data: " + rest + b"\n\n", EVENTS))
        elif request.json["method"] == "tools/call":
            calls.append((request.json["params"]["name"], request.json["id"]))
            await visit.send(response(b"id: %d\ndata:\n\n" % len(calls), EVENTS))
        else:
            opened = result({"by": "any"}, id=request.json.get("id", 0))
            await visit.send(json_response(opened, session))

    return script


async def resumed_in_session(url: str, name: str) -> JsonObject:
    """Open a session and call a tool in it; resume its stream, and return what that has."""
    opened = await post(url, message("initialize", {"capabilities": {}}))
    header = f"Mcp-Session-Id: {opened.head.values('mcp-session-id')[0]}"
    stream = await post(url, tool_call(name), header)
    event = stream.body.splitlines()[0].removeprefix(b"id: ").decode()
    resumed = await http(
        "GET", url, "Accept: text/event-stream", header, f"Last-Event-ID: {event}"
    )
    said: JsonObject = json.loads(resumed.body.removeprefix(b"data: "))

    return said["result"]


@looped
async def test_stream_of_a_live_call_is_resumed_with_the_server_that_began_it(
    tmp_path: Path,
) -> None:
    """An equal event id in the cassette belongs to another stream: both servers count from 1."""
    path = tmp_path / "c.json"
    async with taping(path, breaking_server("first")) as tape:
        await resumed_in_session(tape.url, "one")

    async with taping(path, breaking_server("second"), existing="append") as tape:
        rest = await resumed_in_session(tape.url, "two")

    assert rest == {"by": "second", "was": "two"}

    async with playing(path) as replay:
        for name, run in (("one", "first"), ("two", "second")):
            rest = await resumed_in_session(replay.url, name)

            assert rest == {"by": run, "was": name}

        assert replay.player.tally.misses == []


@looped
async def test_another_answer_to_a_played_push_is_refused(tmp_path: Path) -> None:
    """The call gets the miss as its error, nobody asks the server, and the file stays."""
    path = tmp_path / "c.json"
    async with taping(path, pushing_server("first")) as tape:
        await asked_in_session(tape.url, "one", "accept")

    before = path.read_bytes()
    async with taping(path, pushing_server("second"), existing="append") as tape:
        _, refused = await asked_in_session(tape.url, "one", "decline")

        assert tape.server.received == []

    assert "answers-differ" in refused["error"]["message"]
    assert (
        '/action: recorded "accept", received "decline"' in refused["error"]["message"]
    )

    (failure,) = tape.recording_run.unrecorded

    assert "any answer but the recorded one is refused" in failure
    assert path.read_bytes() == before


async def task_server(visit: Visit) -> None:
    """Make a task of each call, which asks until it is answered."""
    body = visit.request.json
    replies = {
        "tools/call": created("task-1"),
        "tasks/get": state("task-1", "input_required", "a"),
        "tasks/update": {},
    }
    await visit.send(json_response(result(replies[body["method"]], id=body["id"])))


@looped
async def test_another_answer_to_a_played_task_is_refused(tmp_path: Path) -> None:
    """The server, which knows nothing of the task that was recorded, is not asked."""
    path = tmp_path / "c.json"
    update = message("tasks/update", {"taskId": "task-1", "inputResponses": yes("a")})
    talk = [tool_call("wipe"), message("tasks/get", {"taskId": "task-1"}), update]
    async with taping(path, task_server) as tape:
        for request in talk:
            await post(tape.url, request)

    async with taping(path, task_server, existing="append") as tape:
        task = (await post(tape.url, talk[0])).json["result"]["taskId"]
        await post(tape.url, message("tasks/get", {"taskId": task}))
        declining = {"taskId": task, "inputResponses": {"a": NO}}
        error = (await post(tape.url, message("tasks/update", declining))).json["error"]

        assert tape.server.received == []

    assert error["code"] == NOT_LED
    assert "the task of a call that is played as recorded" in error["message"]


@looped
async def test_sealed_and_readable_answers_are_not_mixed(tmp_path: Path) -> None:
    """A cassette has its answers all sealed, or none, as replay compares them in one way."""
    path = await recorded(tmp_path / "c.json")
    with pytest.raises(UsageError, match="has its answers readable"):
        async with recording(
            "http://127.0.0.1:9/mcp",
            path,
            RecordOptions(existing="append", seal_answers=True),
        ):
            raise AssertionError("unreachable because it was refused")


def pager(run: str) -> Script:
    """List a letter a page, three in all, under cursors that no other run has issued."""
    issued: dict[str | None, int] = {None: 0}

    async def script(visit: Visit) -> None:
        body = visit.request.json
        page = issued.get(body["params"].get("cursor"))
        if page is None:
            error = {"code": -32602, "message": "Invalid cursor"}
            await visit.send(
                json_response({"jsonrpc": "2.0", "id": body["id"], "error": error})
            )
            return

        issued[f"{run}-{page}-{len(issued)}"] = page + 1
        more = {} if page == 2 else {"nextCursor": list(issued)[-1]}
        tools = [{"name": f"{'abc'[page]}", "inputSchema": {"type": "object"}}]
        await visit.send(json_response(result({"tools": tools, **more}, id=body["id"])))

    return script


async def listed(url: str, most: int = 3) -> list[str]:
    """List tools page by page, as a client does; return their names."""
    names: list[str] = []
    params: JsonObject = {}
    for number in range(most):
        answer = await post(url, message("tools/list", id=number, params=params))
        names += [listed_tool["name"] for listed_tool in answer.result["tools"]]
        params = {"cursor": answer.result.get("nextCursor")}

    return names


@looped
async def test_page_after_a_recorded_one_is_not_asked_for(tmp_path: Path) -> None:
    """The live server never issued its cursor: the list has to be recorded whole."""
    path = tmp_path / "c.json"
    async with taping(path, pager("first")) as tape:
        await listed(tape.url, 1)

    before = path.read_bytes()
    async with taping(path, pager("second"), existing="append") as tape:
        with pytest.raises(KeyError):
            await listed(tape.url)

        assert tape.server.received == []

    assert "record the whole list again" in tape.recording_run.unrecorded[0]
    assert path.read_bytes() == before


# Histories of writes


class Ledger:
    """A server that counts, and keeps bookings."""

    def __init__(self, start: int = 0) -> None:
        self.count = start
        self.booked: list[str] = []

    async def __call__(self, visit: Visit) -> None:
        body = visit.request.json
        name = body["params"]["name"]
        arguments = body["params"]["arguments"]
        self.count += name == "inc"
        self.booked += [arguments["item"]] if name == "book" else []
        values = {"inc": self.count, "count": self.count, "book": "booked"}
        answer = values.get(name, self.booked)
        await visit.send(json_response(result({"value": answer}, id=body["id"])))


INC = tool_call("inc", arguments={})
COUNT = tool_call("count", arguments={})
BOOKINGS = tool_call("bookings", arguments={})
SEAT = tool_call("book", arguments={"item": "seat"})
ROOM = tool_call("book", arguments={"item": "room"})
READS = ("count", "bookings")


async def values(url: str, *calls: JsonObject) -> list[Any]:
    """Make calls; return what each gives, or that it was refused."""
    bodies = [(await post(url, call)).json for call in calls]
    return [
        body["result"]["value"] if "result" in body else "refused" for body in bodies
    ]


@pytest.mark.parametrize(
    ("recorded", "calls", "expected"),
    [
        ([INC], [INC, INC], [1, 2]),
        ([SEAT], [SEAT, BOOKINGS], ["booked", ["seat"]]),
        ([SEAT, BOOKINGS], [ROOM, BOOKINGS], ["booked", ["room"]]),
        (
            [INC, SEAT, BOOKINGS],
            [INC, SEAT, COUNT, BOOKINGS],
            [1, "booked", 1, ["seat"]],
        ),
    ],
    ids=[
        "a second write",
        "a read of a played write",
        "a read after a live write",
        "two writes",
    ],
)
@looped
async def test_appended_calls_say_what_the_server_alone_would_have_said(
    tmp_path: Path,
    recorded: list[JsonObject],
    calls: list[JsonObject],
    expected: list[Any],
) -> None:
    """Played writes are made by the server before it gets a call; what is read after a live write is live. The cassette plays both runs."""
    path = tmp_path / "c.json"
    async with taping(path, Ledger()) as tape:
        before = await values(tape.url, *recorded)

    async with taping(path, Ledger(), existing="append", reads=READS) as tape:
        assert await values(tape.url, *calls) == expected

    assert tape.recording_run.unrecorded == []

    for run, said in ((recorded, before), (calls, expected)):
        async with playing(path, reads=READS) as replay:
            assert await values(replay.url, *run) == said


@looped
async def test_server_that_makes_a_played_write_otherwise_gets_nothing_more(
    tmp_path: Path,
) -> None:
    """What would be recorded after it never happened: each call is refused with the difference and the way out, and the cassette stays as it is."""
    path = tmp_path / "c.json"
    async with taping(path, Ledger()) as tape:
        await values(tape.url, INC)

    before = path.read_bytes()
    async with taping(path, Ledger(start=5), existing="append", reads=READS) as tape:
        assert await values(tape.url, INC, COUNT, SEAT) == [1, "refused", "refused"]
        assert [visit.json["params"]["name"] for visit in tape.server.received] == [
            "inc"
        ]

    for refusal in tape.recording_run.unrecorded:
        assert "/value: recorded 1, received 6" in refusal
        assert 'tools/call "inc" was played before it' in refusal
        assert "reads=" in refusal

    assert path.read_bytes() == before


@looped
async def test_secrets_of_the_client_are_repeated_as_it_sent_them(
    tmp_path: Path,
) -> None:
    """The cassette has a placeholder; the server gets what the client had sent."""
    path = tmp_path / "c.json"
    secret = f"ghp_{'a1B2' * 9}"
    call = tool_call("book", arguments={"item": secret})
    async with taping(path, Ledger()) as tape:
        await values(tape.url, call)

    assert secret not in path.read_text()

    async with taping(path, Ledger(), existing="append", reads=READS) as tape:
        assert await values(tape.url, call, BOOKINGS) == ["booked", [secret]]


@looped
async def test_played_write_is_repeated_with_the_answer_to_what_was_pushed(
    tmp_path: Path,
) -> None:
    """The server asks again on the stream of the repeated call, and gets the recorded answer."""
    path = tmp_path / "c.json"

    def asking(run: str) -> Script:
        question = message("elicitation/create", {"message": "Sure?"}, id=0)
        return PushingServer(
            question, lambda answer: answer["result"], session=f"raw-{run}"
        )

    async def called(url: str, header: str, name: str) -> JsonObject:
        async with connected(url) as client:
            _, body = await client.ask(
                "POST", "/mcp", JSON, header, body=compact(tool_call(name))
            )
            said = await body.some()
            await post(url, result({"action": "accept"}, id=0), header)
            said += await body.rest()

        (*_, last) = [line for line in said.splitlines() if line.startswith(b"data:")]
        done: JsonObject = json.loads(last[5:])
        return done

    async def run(url: str, *names: str) -> list[JsonObject]:
        opened = await post(url, message("initialize", {"capabilities": {}}))
        header = f"Mcp-Session-Id: {opened.head.values('mcp-session-id')[0]}"
        return [await called(url, header, name) for name in names]

    async with taping(path, asking("first")) as tape:
        await run(tape.url, "one")

    async with taping(path, asking("second"), existing="append") as tape:
        responses = await run(tape.url, "one", "two")
        sent = [visit.json for visit in tape.server.received]

    assert [response["result"] for response in responses] == [{"action": "accept"}] * 2

    calls = [
        request["params"]["name"]
        for request in sent
        if request.get("method") == "tools/call"
    ]

    assert calls == ["one", "two"]
    assert tape.recording_run.unrecorded == []


@looped
async def test_played_task_is_repeated_to_its_end(tmp_path: Path) -> None:
    """What a task has written is there before the next call."""
    path = tmp_path / "c.json"

    def working() -> Script:
        done: list[str] = []

        async def script(visit: Visit) -> None:
            body = visit.request.json
            name = body["params"].get("name")
            if name == "rows":
                value = {"rows": len(done)}
            elif name is not None:
                value = created("task-1")
            else:
                done[:] = ["row"]
                value = state("task-1", "completed", result={"content": []})

            await visit.send(json_response(result(value, id=body["id"])))

        return script

    async def add(url: str) -> None:
        task = (await post(url, tool_call("add"))).result["taskId"]
        polled = await post(url, message("tasks/get", {"taskId": task}))

        assert polled.result["status"] == "completed"

    async with taping(path, working()) as tape:
        await add(tape.url)

    async with taping(path, working(), existing="append", reads=["rows"]) as tape:
        await add(tape.url)

        assert (await post(tape.url, tool_call("rows"))).result == {"rows": 1}


def pages(run: str) -> Script:
    """Make up an id for each page that is created or found; open those of this run only."""
    known: list[str] = []

    async def script(visit: Visit) -> None:
        body = visit.request.json
        if body["method"] == "tools/list":
            hints = {"readOnlyHint": True}
            tools = [
                {"name": name, "annotations": hints} for name in ("search", "open")
            ]
            await visit.send(json_response(result({"tools": tools}, id=body["id"])))

            return

        name = body["params"]["name"]
        arguments = body["params"].get("arguments", {})
        if name == "open":
            words = "the page" if arguments["id"] in known else "not found"
        else:
            known.append(f"{run}-{len(known)}a7f3c")
            words = f"{name}: {known[-1]}"

        reply = {"content": [{"type": "text", "text": words}]}
        await visit.send(json_response(result(reply, id=body["id"])))

    return script


async def opened_page(url: str, tool: str) -> tuple[str, str]:
    """Create or find a page, and open it by its id; return the id, and what is said."""
    await post(url, message("tools/list"))
    said = (await post(url, tool_call(tool, id=2))).text
    identity = said.partition(": ")[2]

    return identity, (
        await post(url, tool_call("open", id=3, arguments={"id": identity}))
    ).text


@pytest.mark.parametrize("tool", ["create", "search"])
@looped
async def test_an_id_of_a_played_call_is_the_live_servers_own(
    tmp_path: Path, tool: str
) -> None:
    """What made it is repeated first; the cassette has the id that the client has."""
    path = tmp_path / "c.json"
    async with taping(path, pages("first")) as tape:
        await post(tape.url, message("tools/list"))
        await post(tape.url, tool_call(tool, id=2))

    async with taping(path, pages("second"), existing="append") as tape:
        identity, words = await opened_page(tape.url, tool)
        sent = [received.json for received in tape.server.received]

    assert (identity, words) == ("first-0a7f3c", "the page")
    assert [request["params"]["name"] for request in sent] == [tool, "open"]
    assert sent[-1]["params"]["arguments"] == {"id": "second-0a7f3c"}

    async with playing(path) as replay:
        assert await opened_page(replay.url, tool) == ("first-0a7f3c", "the page")
        assert replay.player.tally.misses == []
