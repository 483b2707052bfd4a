"""Facts about faults: trouble that is laid over a replay, and leaves the cassette alone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from builders import (
    INITIALIZE,
    as_request,
    cassette_of,
    conversation,
    encode_cassette,
    rpc,
    session_steps,
)
from commands import conversation as converse
from commands import recorded
from harness import Answer, connected, http, looped, playing, post, taped
from messages import compact, message, result, tool_call, yes
from standin import event, event_stream, json_response
from tasking import task_steps

from mrtr_cassette.core.replay.diagnosis import Miss
from mrtr_cassette.shell.files.disk import Clock
from mrtr_cassette.shell.runs.proxy_runs import ReplayRun

DEPLOY = tool_call("deploy")
LIST = message("tools/list")


def counts(replay_run: ReplayRun) -> list[tuple[int, int]]:
    """Return how many requests came at the place of each fault, and how many met it."""
    return [(fault.came, fault.times) for fault in replay_run.fault_outcomes]


def left_over(replay_run: ReplayRun) -> tuple[list[int], list[Miss]]:
    """Return the interactions that were not played whole, and the misses."""
    player = replay_run.player
    return player.played_part.unplayed_numbers, player.tally.misses


async def listed(path: Path) -> Path:
    """Record one list of tools."""
    await taped(path, (LIST, json_response(result({"tools": []}))))
    return path


@looped
async def test_a_refused_call_stays_unplayed(tmp_path: Path) -> None:
    """The first call gets 429 with Retry-After, the retry its recorded answer."""
    path = await recorded(tmp_path / "c.json")
    fault = {"tool": "deploy", "occurrence": 1, "status": 429, "retry_after": 7}
    async with playing(path, faults=[fault]) as replay_run:
        refused = await post(replay_run.url, DEPLOY)

        assert replay_run.player.tally.reply_count == 0

        answered = await converse(replay_run.url)

        assert left_over(replay_run) == ([], [])
        assert counts(replay_run) == [(1, 1)]

    assert (refused.status, refused.head.values("retry-after")) == (429, ["7"])
    assert [answer["result"] for answer in answered[1:]] == [
        {"was": "decline"},
        {"was": "accept"},
    ]


@looped
async def test_a_request_meets_the_first_fault_and_all_count_it(tmp_path: Path) -> None:
    """Faults by occurrence make a sequence, in whichever order they are."""
    path = await listed(tmp_path / "c.json")
    faults = [
        {"method": "tools/list", "occurrence": 2, "status": 503},
        {"occurrence": 1, "status": 401},
        {"tool": "deploy", "status": 500},
    ]

    async with playing(path, faults=faults) as replay_run:
        answers = [await post(replay_run.url, LIST) for _ in range(3)]

        assert counts(replay_run) == [(1, 1), (1, 1), (0, 0)]

    assert [answer.status for answer in answers] == [401, 503, 200]
    assert answers[0].head.values("www-authenticate") == ["Bearer"]


@looped
async def test_what_was_not_recorded_is_a_miss_and_no_fault(tmp_path: Path) -> None:
    """A fault never hides that a request has no recorded answer."""
    path = await listed(tmp_path / "c.json")
    async with playing(path, faults=[{"status": 500}]) as replay_run:
        answer = await post(replay_run.url, tool_call("unknown"))

        assert counts(replay_run) == [(0, 0)]

    assert (answer.status, answer.reason) == (200, "unknown-method")


async def broken(replay_run: ReplayRun, body: Any) -> bytes | None:
    """Send a request whose response is cut short; return what came, None without a head."""
    async with connected(replay_run.url) as connection:
        target = "/" + replay_run.url.split("/", 3)[3]
        try:
            head, content = await connection.ask(
                "POST", target, "Content-Type: application/json", body=compact(body)
            )
        except (ConnectionError, asyncio.IncompleteReadError, IndexError):
            return None

        seen = await content.rest()
        assert Answer(head, seen, content.is_whole).is_whole is False
        return seen


MESSAGES = [message(f"notifications/{name}", id=None) for name in "abc"]
MESSAGES.append(result({"done": True}))
EVENTS = [*map(event, MESSAGES)]
STREAM = b"".join(EVENTS)


@pytest.mark.parametrize(
    ("drop", "kept"),
    [
        ("head", None),
        ("body", STREAM[: len(STREAM) // 2]),
        (0, b""),
        (2, b"".join(EVENTS[:2])),
        (9, STREAM),
    ],
)
@looped
async def test_a_dropped_stream_can_be_asked_for_again(
    drop: str | int, kept: bytes | None, tmp_path: Path
) -> None:
    """So many events come, then the connection is lost; the retry gets the whole stream."""
    await taped(tmp_path / "c.json", (DEPLOY, event_stream(*MESSAGES)))
    fault = {"turn": 0, "occurrence": 1, "drop": drop}
    async with playing(tmp_path / "c.json", faults=[fault]) as replay_run:
        assert await broken(replay_run, DEPLOY) == kept

        whole = await post(replay_run.url, DEPLOY)

        assert left_over(replay_run) == ([], [])

    assert whole.body == STREAM


@looped
async def test_an_expired_state_lets_the_call_begin_again(tmp_path: Path) -> None:
    """The answer gets the specification's error; the same call then asks and is answered."""
    path = await recorded(tmp_path / "c.json")
    fault = {"tool": "deploy", "occurrence": 1, "expired_state": True}
    async with playing(path, faults=[fault]) as replay_run:
        asked = await post(replay_run.url, DEPLOY)
        params = {"inputResponses": yes("confirm"), "requestState": asked.state}
        refused = await post(replay_run.url, tool_call("deploy", id="x", **params))
        await converse(replay_run.url)

        assert left_over(replay_run) == ([], [])
        assert counts(replay_run) == [(1, 1)]

    assert refused.json["id"] == "x"
    assert refused.error == {
        "code": -32602,
        "message": "Invalid or expired requestState",
    }


@pytest.mark.parametrize("drop", ["head", 0])
@looped
async def test_a_dropped_answer_lets_the_call_begin_again(
    drop: str | int, tmp_path: Path
) -> None:
    """Also if no event at all came: the same call asks again, and is answered."""
    path = await recorded(tmp_path / "c.json")
    fault = {"tool": "deploy", "turn": 1, "occurrence": 1, "drop": drop}
    async with playing(path, faults=[fault]) as replay_run:
        asked = await post(replay_run.url, DEPLOY)
        params = {"inputResponses": yes("confirm"), "requestState": asked.state}
        await broken(replay_run, tool_call("deploy", id="x", **params))
        await converse(replay_run.url)

        assert left_over(replay_run) == ([], [])
        assert counts(replay_run) == [(1, 1)]


@looped
async def test_a_refused_answer_to_a_task_can_be_given_again(tmp_path: Path) -> None:
    """Its question stays asked, also where equal calls are held to the writes before them."""
    requests = [as_request(request) for request, _ in task_steps("t1")]
    listing = (rpc("tools/list"), {"tools": []})
    script = cassette_of(*task_steps("t1"), listing, listing, seals=False)
    (tmp_path / "c.json").write_bytes(encode_cassette(script))
    fault = {"method": "tasks/update", "occurrence": 1, "status": 503}
    requests.insert(3, requests[3])
    async with playing(tmp_path / "c.json", faults=[fault]) as replay_run:
        statuses = []
        for request in requests:
            headers = [f"{name}: {value}" for name, value in request.headers]
            answer = await http("POST", replay_run.url, *headers, body=request.body)
            statuses.append(answer.status)

        assert replay_run.player.tally.misses == []
        assert 1 not in replay_run.player.played_part.unplayed_numbers

    assert statuses == [200, 200, 200, 503, 200, 200]


@looped
async def test_a_lost_session_stays_lost(tmp_path: Path) -> None:
    """From one request on everything in a session gets 404; a new session gets it all."""
    call = rpc("tools/list")
    talk = conversation(*session_steps("s1", (call, {"tools": []})))
    (tmp_path / "c.json").write_bytes(encode_cassette(talk.cassette()))
    fault = {"method": "tools/list", "occurrence": 1, "session_lost": True}
    async with playing(tmp_path / "c.json", faults=[fault]) as replay_run:
        statuses = []
        opened = ""
        for body in (INITIALIZE, call, call, INITIALIZE, call):
            within = f"Mcp-Session-Id: {opened}"
            headers = () if body is INITIALIZE else (within,)
            answer = await post(replay_run.url, body, *headers)
            statuses.append(answer.status)
            if body is INITIALIZE:
                (opened,) = answer.head.values("mcp-session-id")

        assert counts(replay_run) == [(1, 2)]
        assert replay_run.player.tally.misses == []

    assert statuses == [200, 404, 404, 200, 200]


@looped
async def test_time_is_taken_as_faults_say(tmp_path: Path) -> None:
    """A delay comes before the response, and so many bytes a second take their time."""
    path = await listed(tmp_path / "c.json")
    now = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    faults = [{"delay": 1.5, "occurrence": 1}, {"slow": 10, "occurrence": 2}]
    clock = Clock(lambda: now, sleep)
    times = []
    async with playing(path, faults=faults, clock=clock) as replay_run:
        for _ in range(3):
            began = now
            answer = await post(replay_run.url, LIST)
            times.append(round(now - began, 6))

        assert replay_run.player.tally.reply_count == 3

    assert times == [1.5, len(answer.body) / 10, 0]
    assert answer.is_whole


@looped
async def test_chance_is_the_same_in_every_run(tmp_path: Path) -> None:
    """The same seed spares the same requests, another seed others; both are counted."""
    path = await listed(tmp_path / "c.json")

    async def statuses(seed: int) -> list[int]:
        fault = {"status": 503, "probability": 0.5, "seed": seed}
        async with playing(path, faults=[fault]) as replay_run:
            answers = [await post(replay_run.url, LIST) for _ in range(40)]
            refused = [answer.status for answer in answers].count(503)

            assert counts(replay_run) == [(40, refused)]

        return [answer.status for answer in answers]

    first = await statuses(1)

    assert first == await statuses(1) != await statuses(2)
    assert 8 < first.count(503) < 32
