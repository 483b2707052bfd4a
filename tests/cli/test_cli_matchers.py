"""Facts about matchers from the outside: the command line, the library, a play and pipes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from pipes import call, recorder, spoken
from typing import Any

import pytest
from harness import command, looped, playing, post, run_here, taped, taping
from messages import asks, message, result, tool_call
from playing import serving
from processes import PROGRAM
from standin import answering, event_stream, json_response

import mrtr_cassette

FIRST = "11111111-0000-4000-8000-00000000000a"
SECOND = "22222222-0000-4000-8000-00000000000a"
THIRD = "33333333-0000-4000-8000-00000000000a"
NOW = "2026-11-29T07:00:00Z"
LATER = "2026-11-29T08:30:00.5+01:00"


def made(words: str, **structured: Any) -> dict[str, Any]:
    """Return the result of a tool."""
    content = [{"type": "text", "text": words}]
    return {"content": content, "structuredContent": structured}


def create(identity: Any, at: Any = NOW, **more: Any) -> dict[str, Any]:
    """Return a call whose arguments vary; what it asks for is in them at another depth."""
    return tool_call("create", arguments={"id": identity, "in": [{"at": at}], **more})


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A cassette of a creation whose result repeats its id, and of one over an event stream."""
    path = tmp_path / "c.json"
    kept = {"id": FIRST, "all": [{"id": FIRST, "n": 7}], "note": f"the {FIRST}"}
    streamed = message(
        "notifications/message", {"level": "info", "data": {"message": SECOND}}, id=None
    )
    asyncio.run(
        taped(
            path,
            (create(FIRST, n=7), json_response(result(made(FIRST, **kept)))),
            (
                create(SECOND),
                event_stream(
                    streamed,
                    result(made(f"made {SECOND}", id=SECOND)),
                ),
            ),
        )
    )

    return path


@looped
async def test_values_of_a_kind_match_and_are_counted(recorded: Path) -> None:
    """Ids and times of this run get the recorded answer; the summary says by which matchers."""
    matchers = (
        "--match",
        "/arguments/id=uuid",
        "--match",
        "/params/arguments/**=rfc3339",
    )

    async with command("replay", recorded, "--port", 0, *matchers) as process:
        url = await process.listening()
        played = await post(url, create(THIRD, LATER, n=7.0))

        assert played.json["result"]["content"][0]["text"] == FIRST

        wrong = [
            await post(url, create("no id")),
            await post(url, create(THIRD, "yesterday")),
            await post(url, create(THIRD, n=8)),
        ]
        ended = await process.stopped()

    texts = [answer.json["error"]["message"] for answer in wrong]

    assert '/arguments/id: recorded "<uuid>", received "no id"' in texts[0]
    assert '/arguments/in/0/at: recorded "<rfc3339>", received "yesterday"' in texts[1]
    assert "/arguments/n: recorded 7, received 8" in texts[2]
    assert "  matched without being equal, by /arguments/id=uuid: 1 time\n" in ended.err
    assert "equal, by /params/arguments/**=rfc3339: 1 time\n" in ended.err


@looped
async def test_a_response_repeats_the_callers_value(recorded: Path) -> None:
    """With `echo` whole strings and numbers are the caller's; texts around them stay."""
    match = {"/arguments/id": "uuid", "/arguments/n": "number"}
    async with playing(recorded, match=match, echo=True, repeat="always") as replay_run:
        whole = (await post(replay_run.url, create(THIRD, n=8.50))).json["result"]
        streamed = await post(replay_run.url, create(THIRD))
        again = await post(replay_run.url, create(SECOND))

    assert whole == made(
        THIRD, id=THIRD, all=[{"id": THIRD, "n": 8.5}], note=f"the {FIRST}"
    )
    assert streamed.body.count(THIRD.encode()) == 2
    assert f'"text":"made {SECOND}"'.encode() in streamed.body
    assert streamed.body.replace(THIRD.encode(), SECOND.encode()) == again.body


@looped
async def test_equal_comes_before_matched_and_matched_before_ignored(
    tmp_path: Path,
) -> None:
    """A recording with the same values wins, then one of their kinds, then an ignored one."""
    path = tmp_path / "c.json"
    calls = [("a", 1, 1), ("b", 2, 1), ("c", 2, 2)]
    await taped(
        path,
        *[
            (
                tool_call("get", arguments={"id": identity, "n": number}),
                json_response(result({"was": words})),
            )
            for words, identity, number in calls
        ],
    )

    options = {
        "match": {"/arguments/id": "number"},
        "ignore": ["/arguments/n"],
        "repeat": "always",
    }

    received = {
        (2, 2): "c",
        (2, 1): "b",
        (1, 1): "a",
        (9, 2): "c",
        (9, 1): "a",
        (9, 9): "a",
    }
    for (identity, number), words in received.items():
        async with playing(path, **options) as replay_run:
            sent = tool_call("get", arguments={"id": identity, "n": number})
            played = await post(replay_run.url, sent)

            assert played.json["result"] == {"was": words}, (identity, number)


@looped
async def test_answers_match_by_kind_too(tmp_path: Path) -> None:
    """What a user answered may vary like arguments, and never the state or the name."""
    path = tmp_path / "c.json"
    answer = {"k": {"action": "accept", "content": {"port": 5001}}}
    again = tool_call("go", inputResponses=answer, requestState="s")
    await taped(
        path,
        (tool_call("go"), json_response(result(asks("k", state="s")))),
        (again, json_response(result({"done": 1}))),
    )

    async with playing(path, match={"/**": "number", "/**/port": "any"}) as replay_run:
        asked = await post(replay_run.url, tool_call("go"))
        state = asked.json["result"]["requestState"]
        answer["k"]["content"]["port"] = 6000
        played = await post(
            replay_run.url, tool_call("go", inputResponses=answer, requestState=state)
        )
        missed = await post(replay_run.url, tool_call("stop"))
        lost = await post(
            replay_run.url, tool_call("go", inputResponses=answer, requestState="t")
        )

    assert played.json["result"] == {"done": 1}
    assert b"unknown-name" in missed.body
    assert "error" in lost.json


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "arguments/id=uuid",
            "--match 'arguments/id' is not a JSON Pointer; it begins",
        ),
        (
            "/arguments/id",
            "--match '/arguments/id' has no kind; give it as POINTER=KIND",
        ),
        ("/a=uid", "--match '/a': no kind is called 'uid'; did you mean 'uuid'?"),
        ("/a=/(/", "--match '/a': /(/ is not a regular expression: unclosed group"),
        (r"/a=/(?=x)/", "--match '/a': /(?=x)/ is not a regular expression"),
    ],
)
def test_what_can_not_be_meant_is_refused(
    text: str, problem: str, recorded: Path
) -> None:
    """A wrong pointer or kind is an error of usage that names it."""
    ended = run_here("replay", recorded, "--match", text)

    assert ended.code == 2
    assert problem in ended.err


def test_the_library_and_a_play_take_the_same(recorded: Path) -> None:
    """A matcher that nothing met is told; `echo` alone is refused."""
    with pytest.raises(mrtr_cassette.UsageError, match="match is 3, and not a mapping"):
        mrtr_cassette.replay(recorded, match=3)  # type: ignore[arg-type]

    with pytest.raises(mrtr_cassette.UsageError, match="echo needs match"):
        mrtr_cassette.replay(recorded, echo=True)

    replay = mrtr_cassette.replay(recorded, match={"/arguments/no": "/x=[a-z]+/"})
    session = replay.__enter__()
    asyncio.run(post(session.url, create(FIRST, n=7)))
    asyncio.run(post(session.url, create(SECOND)))
    with pytest.warns(UserWarning, match="match '/arguments/no=/x=.a-z.+/' matched no"):
        replay.__exit__(None, None, None)

    with serving(recorded.parent) as serve:
        play = serve.begin("c", match={"/arguments/id": f"/{THIRD[:4]}.*/"}, echo=True)
        asyncio.run(post(play["url"], create(THIRD)))
        report = serve.end(play)
        play = serve.begin("c", match={"/**/id": "uuid"}, ignore=["/arguments/no"])
        asyncio.run(post(play["url"], create(THIRD)))
        matched = serve.end(play)

    # A kind is that of both values.
    assert [miss["reason"] for miss in report["misses"]] == ["arguments-differ"]
    assert matched["matched"] == {"/**/id=uuid": 1}
    assert matched["unused"] == [{"option": "ignore", "value": "/arguments/no"}]


def test_matchers_on_pipes(tmp_path: Path) -> None:
    """A server on pipes matches as one over HTTP."""
    path = tmp_path / "c.json"
    spoken(recorder(path), call(1, id=FIRST))
    replay = [*PROGRAM, "replay", str(path), "--stdio"]
    whole = spoken(replay, call(1, id=FIRST))
    matched = spoken([*replay, "--match", "/**/id=uuid"], call(1, id=SECOND))

    assert (matched.stdout, matched.returncode) == (whole.stdout, 0)
    assert b"equal, by /**/id=uuid: 1 time" in matched.stderr
    assert json.loads(whole.stdout)["result"]


def test_stand_ins_of_values_are_no_values(tmp_path: Path) -> None:
    """Who sends the text that stands for a kind is not taken for a value of that kind."""
    path = tmp_path / "c.json"
    asyncio.run(taped(path, (create(FIRST), json_response(result({})))))
    options = {"match": {"/arguments/id": "uuid"}, "on_miss": "report"}
    with mrtr_cassette.replay(path, **options) as session:  # type: ignore[arg-type]
        for text in ("<uuid>", "<uuid>'", "uuid"):
            asyncio.run(post(session.url, create(text)))

        assert len(session.misses) == 3


def any_id(recorded: mrtr_cassette.ClientRequest, _received: object) -> bool:
    """Match what has an id."""
    return "id" in recorded.arguments or bool(1 / len(recorded.arguments))


def test_functions_stay_in_their_process(recorded: Path) -> None:
    """Pipes and plays don't take them, and `echo` needs kinds."""
    replay = mrtr_cassette.replay(recorded, stdio=True, match=any_id)
    wrong = "match is a function, and clients on pipes start another process"
    with pytest.raises(mrtr_cassette.UsageError, match=wrong):
        replay.__enter__()

    with pytest.raises(mrtr_cassette.UsageError, match="echo needs match with kinds"):
        mrtr_cassette.replay(recorded, match=any_id, echo=True)

    with pytest.raises(
        mrtr_cassette.UsageError, match="before_record is 3, and not a f"
    ):
        mrtr_cassette.replay(recorded, before_record=3)

    with serving(recorded.parent) as serve:
        answer = serve.request("POST", body={"cassette": "c", "before_record": "f"})

    assert "a play has no option 'before_record'" in str(answer)


@looped
async def test_what_a_failing_function_sees_is_not_sent_on(tmp_path: Path) -> None:
    """While appending, its error is why a request is not recorded."""
    path = tmp_path / "c.json"
    await taped(path, (tool_call("get"), json_response(result({}))))
    script = answering(json_response(result({"new": 1})))
    async with taping(path, script, existing="append", match=any_id) as tape:
        failed = await post(tape.url, tool_call("get", arguments={"id": 1}))
        text = failed.json["error"]["message"]

        assert text.startswith(
            "miss: hook-failed: match: any_id raised ZeroDivisionError"
        )
        assert not tape.server.received
        assert tape.recording_run.unrecorded == [text]
