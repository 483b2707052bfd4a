"""Facts about calls without a client: sessions of both eras, rounds, time, and what fails."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import looped
from messages import CAPABILITIES_KEY, form, message, result
from standin import PushingServer, Visit, json_response, response, upstream
from tasking import created, state

from mrtr_cassette.core.answers.fulfilment import AnswerSources
from mrtr_cassette.core.answers.written import (
    AnswersFile,
    GivenAnswers,
    answers_from_tree,
    read_pairs,
    wanted_call,
)
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.report.runs import CallResult
from mrtr_cassette.errors import UsageError
from mrtr_cassette.options import CallOptions
from mrtr_cassette.shell.files.cassettes import load_cassette
from mrtr_cassette.shell.files.log import Announcer, given_listeners
from mrtr_cassette.shell.runs.answerers import AskThePerson
from mrtr_cassette.shell.runs.calling import call

TOOLS = [
    {
        "name": "deploy",
        "inputSchema": {
            "type": "object",
            "properties": {"env": {"type": "string", "x-mcp-header": "Env"}},
        },
    }
]
MODERN: dict[str, Any] = {
    "server/discover": {"supportedVersions": ["2026-07-28"]},
    "tools/list": {"tools": TOOLS},
}
DONE = {"content": [{"type": "text", "text": "done"}]}
DECLINED: Any = {"otherwise": "decline"}


class Server:
    """A server that answers each method as it is told, and keeps what it was sent."""

    def __init__(self, *calls: Any, lists: dict[str, Any] | None = None) -> None:
        """Take the results of the calls, in order; the last one again and again."""
        self._calls = list(calls)
        self._lists = MODERN if lists is None else lists
        self.received: list[Any] = []

    async def __call__(self, visit: Visit) -> None:
        """Answer one request."""
        body = visit.request.json
        method = body["method"]
        listed = self._lists.get(method)
        if method == "tools/call":
            self.received.append(visit.request)
            listed = self._calls.pop(0) if len(self._calls) > 1 else self._calls[0]

        if callable(listed):
            listed = listed(body)

        if listed is None:
            error = {"code": -32601, "message": f"no {method}"}
            reply: Any = {"jsonrpc": "2.0", "id": body["id"], "error": error}
        else:
            reply = result(listed, id=body["id"])

        await visit.send(json_response(reply))

    @property
    def params(self) -> list[Any]:
        """The params of the calls, in order."""
        return [received.json["params"] for received in self.received]


def asking(key: str = "confirm", state: str | None = None) -> Any:
    """Return a result that asks for one form."""
    more = {} if state is None else {"requestState": state}
    return {"resultType": "input_required", "inputRequests": {key: form()}, **more}


async def called(
    script: Any,
    *words: str,
    given: tuple[str, ...] = (),
    rules: dict[str, Any] | None = None,
    cassette: Path | None = None,
    person: AskThePerson | None = None,
    log: Callable[[dict[str, Any]], None] | None = None,
    **options: Any,
) -> CallResult:
    """Call a server that does what a script says."""
    file = AnswersFile() if rules is None else answers_from_tree(rules, "answers.toml")
    sources = AnswerSources(
        GivenAnswers(read_pairs(given, "answer")), file, person is not None
    )
    async with upstream(script) as server:
        return await call(
            server.url,
            wanted_call(words or ("deploy", "env=prod")),
            sources,
            CallOptions(**options),
            Announcer(None, given_listeners(log)),
            cassette=cassette,
            ask_person=person,
        )


def tasks(*states: Any, seen: list[Any] | None = None) -> Server:
    """Return a server that makes a task of a call, in each of these states for one poll."""
    left = list(states)

    def polled(body: Any) -> Any:
        (seen if seen is not None else []).append(body)
        if body["method"] != "tasks/get":
            return {}
        if len(left) > 1:
            return left.pop(0)

        return left[0]

    extension: Any = {
        "capabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    }
    methods = dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), polled)
    lists = {
        **MODERN,
        "server/discover": {**MODERN["server/discover"], **extension},
        **methods,
    }

    return Server(created("the-task"), lists=lists)


@looped
async def test_task_is_answered_from_the_sources_and_ends_as_the_call() -> None:
    """The client declares the extension, tells how the task gets on, and returns its result."""
    asked = state("the-task", "input_required", "the-task:1f")
    asked["inputRequests"]["the-task:1f"] = form()
    ended = state("the-task", "completed", result=DONE)
    seen: list[Any] = []
    events: list[Any] = []
    server = tasks(state("the-task"), asked, asked, ended, seen=seen)
    rules = {
        "rule": [{"tool": "deploy", "message": "Are you sure?", "action": "decline"}]
    }
    got = await called(server, rules=rules, log=events.append)

    assert (got.text, got.exit_code) == ("done", 0)

    ((turn),) = got.turns

    assert (turn.via, turn.answered_by) == ("task", {"task:1": "rule 1"})

    (update,) = [body["params"] for body in seen if body["method"] == "tasks/update"]

    assert update["inputResponses"] == {"the-task:1f": {"action": "decline"}}

    extensions = server.params[0]["_meta"][CAPABILITIES_KEY]["extensions"]

    assert extensions == update["_meta"][CAPABILITIES_KEY]["extensions"] != {}
    assert [event["status"] for event in events if event["event"] == "task"] == [
        "working"
    ]


@pytest.mark.parametrize(
    ("ending", "code", "problem"),
    [
        (state("t", "failed", error={"code": -1, "message": "no"}), 1, None),
        (
            state("t", "cancelled", statusMessage="too late"),
            4,
            "its task ended as cancelled: too",
        ),
    ],
)
@looped
async def test_task_without_a_result_is_no_success(
    ending: Any, code: int, problem: Any
) -> None:
    """Its error is the call's; where it has none, its status is told."""
    got = await called(tasks(ending))

    assert got.exit_code == code
    assert str(got.problem).startswith(str(problem))


@pytest.mark.parametrize("asks", [True, False])
@looped
async def test_task_is_cancelled_where_nobody_waits_for_it(*, asks: bool) -> None:
    """Where time is up, and where nothing answers its question, which is told once."""
    seen: list[Any] = []
    events: list[Any] = []
    at_work = state("the-task", "input_required" if asks else "working", *["a"] * asks)
    got = await called(tasks(at_work, seen=seen), log=events.append, timeout=1)

    assert [event["event"] for event in events].count("unanswered") == asks
    assert (got.unanswered is not None, got.problem is None) == (asks, asks)
    assert [request["method"] for request in seen][-1] == "tasks/cancel"


@looped
async def test_each_leg_is_the_call_with_the_latest_answers() -> None:
    """A fresh id, the exact state, and the answers of the last round only."""
    state = '{"step": "1", "q": "\\""}'
    server = Server(asking("a"), asking("b", state), DONE)
    ended = await called(server, rules=DECLINED)

    assert ended.text == "done"

    ids = [received.json["id"] for received in server.received]

    assert len(set(ids)) == 3

    first, second, third = server.params

    assert "inputResponses" not in first
    assert list(second["inputResponses"]) == ["a"]
    assert "requestState" not in second
    assert list(third["inputResponses"]) == ["b"]
    assert third["requestState"] == state
    assert {tuple(params["arguments"].items()) for params in server.params} == {
        (("env", "prod"),)
    }
    assert [received.head.values("mcp-param-env") for received in server.received] == [
        ["prod"]
    ] * 3


@looped
async def test_time_counts_from_the_first_leg() -> None:
    """One budget for the whole call: it ends while the server is silent."""

    async def silent(visit: Visit) -> None:
        if visit.request.json["method"] == "tools/call":
            await visit.left()
        else:
            await Server(DONE)(visit)

    ended = await called(silent, timeout=1)

    assert (ended.exit_code, ended.problem) == (4, "the call took more than 1 s")


@looped
async def test_time_of_a_call_counts_what_a_person_takes_to_answer() -> None:
    """No exchange is under way meanwhile, and the call ends in time all the same."""
    answered = asyncio.Event()

    async def person(_key: str, _request: InputRequest) -> Any:
        await answered.wait()

    ended = await called(Server(asking()), person=person, timeout=1)

    assert (ended.exit_code, ended.problem) == (4, "the call took more than 1 s")


@looped
async def test_nothing_is_answered_without_a_source() -> None:
    """The ask is there to be shown, and all kinds are declared so that there is one."""
    server = Server(asking())
    ended = await called(server)

    assert ended.exit_code == 5
    assert ended.unanswered is not None
    assert ended.unanswered.asked.data_for_programs()["inputRequests"] == {
        "confirm": form()
    }

    (params,) = server.params
    capabilities = params["_meta"]["io.modelcontextprotocol/clientCapabilities"]

    assert capabilities.keys() == {"elicitation", "sampling", "roots"}

    # Servers on the SDKs refuse what is undeclared, and never ask.
    server = Server(DONE)
    await called(server, rules={"rule": [{"kind": "roots", "result": {"roots": []}}]})
    capabilities = server.params[0]["_meta"][
        "io.modelcontextprotocol/clientCapabilities"
    ]

    assert capabilities == {"roots": {}}


@looped
async def test_a_tool_is_looked_up_before_the_call_and_judges_its_arguments_itself() -> (
    None
):
    """It may stand on a later page of the list."""

    def page(body: Any) -> Any:
        if "cursor" in body["params"]:
            return {"tools": TOOLS}

        return {"tools": [], "nextCursor": "2"}

    server = Server(DONE, lists={**MODERN, "tools/list": page})
    with pytest.raises(UsageError, match="no tool 'deploi'; it has deploy"):
        await called(server, "deploi")

    assert not server.received

    await called(server, "deploy", "env:=5")

    assert server.params[0]["arguments"] == {"env": 5}
    # A server that lists no tools is called all the same.
    assert (
        await called(Server(DONE, lists={**MODERN, "tools/list": None}), "any")
    ).text == "done"


@looped
async def test_errors_of_the_server_and_the_tool_are_told_apart_from_no_server() -> (
    None
):
    """1 is what the server says, 4 is that there is none."""
    assert (await called(Server(None))).exit_code == 1
    assert (await called(Server({**DONE, "isError": True}))).exit_code == 1

    async def refusing(visit: Visit) -> None:
        await visit.send(
            response(b"<html>", "Content-Type: text/html", status="401 No")
        )

    ended = await called(refusing)

    assert ended.exit_code == 4
    assert "opens no session: HTTP 401" in (ended.problem or "")


@looped
async def test_recorded_call_goes_through_the_proxy(tmp_path: Path) -> None:
    """The cassette has the whole conversation with sealed states; an upstream away is exit 4."""
    cassette = tmp_path / "cassette.json"
    events: list[Any] = []
    server = Server(asking(state="a raw state of the server"), DONE)
    ended = await called(server, rules=DECLINED, cassette=cassette, log=events.append)

    assert ended.text == "done"
    assert [event["event"] for event in events] == ["answered", "ended", "concluded"]
    assert events[0]["answered_by"] == {"confirm": "otherwise"}
    assert "a raw state" not in str(events)
    assert "a raw state" not in cassette.read_text()

    recorded = load_cassette(cassette)
    methods = [
        interaction.exchanges[0].call.method for interaction in recorded.interactions
    ]

    assert methods == ["server/discover", "tools/list", "tools/call"]

    gone = await call(
        "http://127.0.0.1:9/mcp",
        wanted_call(["deploy"]),
        AnswerSources(),
        CallOptions(),
        Announcer(),
        cassette=tmp_path / "gone.json",
    )

    assert gone.exit_code == 4
    assert "connection refused" in (gone.problem or "")


def earlier() -> PushingServer:
    """Return a server of the 2025 era that asks for roots, too."""
    return PushingServer(
        message("elicitation/create", form()["params"], id="push-1"),
        lambda _: DONE,
        greeting=message("roots/list", id="push-0"),
        tools=TOOLS,
    )


@looped
async def test_pushed_questions_are_answered_by_the_same_sources(
    tmp_path: Path,
) -> None:
    """On the call's stream or outside of it; the session is opened and ended."""
    for cassette in (None, tmp_path / "cassette.json"):
        server = earlier()
        rules = {"rule": [{"message": "Are you sure?", "action": "cancel"}]}
        ended = await called(server, rules=rules, cassette=cassette)

        assert ended.text == "done"

        (turn,) = ended.turns

        assert (turn.via, turn.answered_by) == ("push", {"elicitation-1": "rule 1"})

        by_id = {message["id"]: message for message in server.posted}

        assert by_id["push-1"]["result"] == {"action": "cancel"}
        assert by_id["push-0"]["error"]["message"] == "nobody answers roots/list"
        assert server.ended == ["session-1"]


@looped
async def test_pushed_question_that_nobody_answers_ends_the_call() -> None:
    """The call is cancelled, and the question shown, once."""
    server = earlier()
    events: list[Any] = []
    ended = await called(server, log=events.append)

    assert ended.exit_code == 5
    assert ended.unanswered is not None
    assert ended.unanswered.key == "elicitation-1"
    assert [event["event"] for event in events].count("unanswered") == 1


@pytest.mark.parametrize("on_session", [True, False])
@looped
async def test_pushed_question_about_roots_ends_no_call(*, on_session: bool) -> None:
    """It is about the client, whatever call is pending: where nobody answers it, it is refused."""
    asked = message("roots/list", id="push-1")
    server = PushingServer(asked, lambda _: DONE, on_session=on_session, tools=TOOLS)
    ended = await called(server)

    assert (ended.exit_code, ended.text) == (0, "done")
    assert [(turn.via, turn.answered_by) for turn in ended.turns] == [("push", {})]

    (answer,) = server.posted

    assert answer["error"]["message"] == "nobody answers roots/list"


ASKS_FIRST = """
import json, sys

def say(**members):
    print(json.dumps({"jsonrpc": "2.0", **members}), flush=True)

listing = None
for line in sys.stdin:
    read = json.loads(line)
    match read.get("method"):
        case "initialize":
            opened = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {}}
            say(id=read["id"], result=opened)
        case "tools/list":
            listing = read["id"]
            say(id="push-0", method="roots/list")
        case "tools/call":
            say(id=read["id"], result={"content": [{"type": "text", "text": "done"}]})
        case None:
            say(id=listing, result={"tools": [{"name": "deploy"}]})
        case _:
            if "id" in read:
                say(id=read["id"], error={"code": -32601, "message": "unknown"})
"""


@looped
async def test_question_on_pipes_before_the_call_is_refused() -> None:
    """A server that waits for the answer lists its tools then."""
    ended = await call(
        [sys.executable, "-c", ASKS_FIRST],
        wanted_call(["deploy"]),
        AnswerSources(),
        CallOptions(timeout=30),
        Announcer(),
    )

    assert (ended.problem, ended.text, ended.turns) == (None, "done", ())
