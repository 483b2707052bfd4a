"""Facts about verifying: what an unchanged server, a changed one, and a broken one come to."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from pathlib import Path
from pipes import LINES_SERVER
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest
from builders import pipe_cassette
from contract import Contract, Plant, Reply, record_contract
from harness import ACCEPT, connected, looped, post, taping
from messages import CAPABLE, compact, message, result, text, tool_call
from standin import (
    JSON,
    Script,
    Visit,
    chunk,
    event,
    json_response,
    response,
    stream_head,
    upstream,
)
from tasking import created, state
from yarl import URL

from mrtr_cassette.core.drive.plan import planned_interactions
from mrtr_cassette.core.report.comparison import Verification
from mrtr_cassette.core.wire.http import End, channel_request, line_request
from mrtr_cassette.errors import UsageError
from mrtr_cassette.options import VerifyOptions
from mrtr_cassette.shell.http.client import connected_client
from mrtr_cassette.shell.pipes.upstream import PipeUpstream, StreamUpstream
from mrtr_cassette.shell.runs.verifying import (
    RunFindings,
    live_run,
    update_cassette,
    verify_cassette,
)

PING = compact(message("ping", id=1))
PONG = compact(result({}, id=1))
EVENTS_ACCEPTED = "Accept: text/event-stream"
ALL_SAME = {"same": 17}


@pytest.fixture(scope="module")
def cassette(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cassette of all that the server says."""
    return record_contract(tmp_path_factory.mktemp("verified") / "contract.json")


async def verified(path: Path, script: Script, **options: Any) -> Verification:
    """Hold a server that does what a script says to a cassette."""
    async with upstream(script) as server:
        return await verify_cassette(path, server.url, VerifyOptions(**options))


@looped
async def test_unchanged_server_is_the_same(cassette: Path) -> None:
    """With new states and sessions nothing differs, all answers are given, and the file stays."""
    server = Contract()
    before = cassette.read_bytes()
    verification = await verified(cassette, server)

    assert cassette.read_bytes() == before
    assert verification.counts == ALL_SAME
    assert verification.is_good
    assert not any(interaction.changes for interaction in verification.interactions)
    assert server.answers == {
        "deploy.1": 2,
        "train.1": 1,
        "train.2": 1,
        "train.3": 1,
        "plan.1": 1,
        "late.1": 1,
        "prompt.1": 1,
        "push": 1,
    }


def at(*path: Any) -> Callable[[Any], Plant]:
    """Return what makes a plant that sets a member of the result, or takes it out."""

    def to(value: Any) -> Plant:
        def plant(reply: Reply) -> None:
            target: Any = reply.said[-1]
            for key in path[:-1]:
                target = target[key]

            if value is None:
                del target[path[-1]]
            else:
                target[path[-1]] = value

        return plant

    return to


@looped
async def test_question_that_is_another_one_is_told_and_not_answered(
    cassette: Path,
) -> None:
    """It has its verdict and its place in both conversations that are asked it."""
    words = at("result", "inputRequests", "confirm", "params", "message")(
        "Deploy to production?"
    )
    server = Contract(**{"deploy.1": words})
    verification = await verified(cassette, server)
    differing = [
        interaction
        for interaction in verification.interactions
        if interaction.verdict != "same"
    ]

    assert [interaction.verdict for interaction in differing] == [
        "question-changed"
    ] * 2

    for interaction in differing:
        assert interaction.call == 'tools/call "deploy"'
        assert [change.pointer for _, change in interaction.changes] == [
            "/inputRequests/confirm/params/message"
        ]

    assert not server.answers["deploy.1"]


def failing(server: Script, fault: Script, name: str) -> Script:
    """Return a server that fails in the calls of one tool."""

    async def script(visit: Visit) -> None:
        is_call = (
            b'"tools/call"' in visit.request.body
            and name.encode() in visit.request.body
        )
        await (fault if is_call else server)(visit)

    return script


async def breaks_off(visit: Visit) -> None:
    """Die in the middle of a response."""
    await visit.send(response(b"{", "Content-Length: 99", length=False))
    visit.reset()


@looped
async def test_broken_server_is_never_the_same(cassette: Path) -> None:
    """What did not come is not reached, and all else is compared."""
    verification = await verified(cassette, failing(Contract(), breaks_off, "deploy"))
    broken = [
        interaction
        for interaction in verification.interactions
        if "deploy" in interaction.call
    ]

    assert [interaction.verdict for interaction in broken] == ["not-reached"] * 2
    assert all("gave no response" in str(interaction.reason) for interaction in broken)
    assert verification.counts["same"] == 15
    assert not verification.is_good


@looped
async def test_server_that_is_away_is_compared_with_nothing(cassette: Path) -> None:
    """Nothing is reached, and the exit code says so."""
    async with upstream(Contract()) as server:
        gone = server.url

    away = await verify_cassette(cassette, gone, VerifyOptions())

    assert (away.compared, away.counts) == (0, {"not-reached": 17})


@looped
async def test_places_are_left_out_where_they_are_named(
    cassette: Path, tmp_path: Path
) -> None:
    """By an option for all calls, by a file for some."""
    changed = Contract(**{"train.end": at("result", "content", 0, "text")("Finished")})
    rules = tmp_path / "ignore.toml"
    rules.write_text(
        '[[ignore]]\ncall = "tools/call train"\npointers = ["/content/0/text"]\n'
    )
    other_rules = tmp_path / "other.toml"
    other_rules.write_text(
        '[[ignore]]\ncall = "tools/call plan"\npointers = ["/content/0/text"]\n'
    )
    for options, is_good in (
        ({"ignore": ["/content"]}, True),
        ({"ignore_from": rules}, True),
        ({"ignore_from": other_rules}, False),
    ):
        assert (await verified(cassette, changed, **options)).is_good is is_good

    with pytest.raises(UsageError, match="no file"):
        await verified(cassette, changed, ignore_from=tmp_path / "none.toml")


CLOCK = "tools/call clock"
LEARNED = {
    "/content/0/text#json/at",
    "/structuredContent/count",
    "/structuredContent/id",
    "/structuredContent/items#order",
}


@looped
async def test_what_differs_by_itself_is_learned_and_hides_nothing_else(
    tmp_path: Path,
) -> None:
    """Exact places of times, ids, counts and orders; a change beside them is still found."""
    path = tmp_path / "clock.json"
    rules = tmp_path / "rules" / "ignore.toml"
    rules.parent.mkdir()
    async with taping(path, Contract()) as tape:
        await post(tape.url, tool_call("clock"))

    before = await verified(path, Contract())

    assert before.counts == {"text-changed": 1}

    learning = await verified(path, Contract(), learn=rules)

    assert learning.counts == {"same": 1}
    assert set(learning.learned) == {(CLOCK, pointer) for pointer in LEARNED}

    for _ in range(3):
        assert (await verified(path, Contract(), ignore_from=rules)).counts == {
            "same": 1
        }

    beside = at("result", "structuredContent", "stable")("no")
    found = await verified(path, Contract(clock=beside), ignore_from=rules)
    changes = found.interactions[0].changes

    assert [change.pointer for _, change in changes] == ["/structuredContent/stable"]

    again = await verified(path, Contract(), learn=rules)

    assert again.learned == []


@looped
async def test_only_what_reads_is_asked_twice(cassette: Path, tmp_path: Path) -> None:
    """A tool is called twice only where the server says that it changes nothing."""
    server = Contract()
    await verified(cassette, server, learn=tmp_path / "ignore.toml")

    assert server.called["deploy"] == 4
    assert server.called["build"] == 1
    assert server.answers["prompt.1"] == 2


class Slow:
    """A server whose call ends only when it is cancelled, or left: with an error, if it `responds`."""

    def __init__(self, *, responds: bool) -> None:
        self.responds = responds
        self.cancelled: list[Any] = []
        self._told = asyncio.Event()

    async def __call__(self, visit: Visit) -> None:
        """Answer one request."""
        body = visit.request.json
        if body["method"] == "notifications/cancelled":
            self.cancelled.append(body["params"]["requestId"])
            await visit.send(response(b"", status="202 Accepted"))
            self._told.set()

            return

        if body["method"] == "tools/list":
            await visit.send(
                json_response(
                    {"jsonrpc": "2.0", "id": body["id"], "result": {"tools": []}}
                )
            )
            return

        token = body["params"]["_meta"]["progressToken"]
        step = message(
            "notifications/progress", {"progressToken": token, "progress": 1}, id=None
        )
        await visit.send(stream_head(), chunk(event(step)))
        if not self.responds:
            await visit.left()
            return

        await self._told.wait()
        error = {"code": -32000, "message": "cancelled"}
        ending = {"jsonrpc": "2.0", "id": body["id"], "error": error}
        await visit.send(chunk(event(ending)), chunk(b""))


async def leave_slow(url: str, *, cancels: bool, responds: bool) -> None:
    """Make the call, leave it after its progress, and read the rest if there is any."""
    async with connected(url) as connection:
        call = tool_call("slow", id=7, _meta={**CAPABLE, "progressToken": 7})
        path = urlsplit(url).path
        _, body = await connection.ask("POST", path, JSON, ACCEPT, body=compact(call))
        await body.until(b"\n\n")
        if cancels:
            await post(
                url, message("notifications/cancelled", {"requestId": 7}, id=None)
            )

        if responds:
            await body.rest()


@pytest.mark.parametrize(
    ("cancels", "responds"), [(True, True), (True, False), (False, False)], ids=str
)
@looped
async def test_a_call_that_its_client_left_is_left_at_the_same_point(
    tmp_path: Path, *, cancels: bool, responds: bool
) -> None:
    """With a notification that has the id of today, or without one; a response is compared."""
    path = tmp_path / "slow.json"
    async with taping(path, Slow(responds=responds)) as tape:
        await leave_slow(tape.url, cancels=cancels, responds=responds)

    server = Slow(responds=responds)
    verification = await verified(path, server)

    assert verification.counts == {"same": 1 + cancels}
    assert len(server.cancelled) == cancels
    assert 7 not in server.cancelled


def building(*ends: str, seen: list[str] | None = None) -> Script:
    """Return a server whose only call is a task, in each of these states for one poll."""
    left = list(ends)

    async def script(visit: Visit) -> None:
        body = visit.request.json
        method = body["method"]
        if seen is not None:
            seen.append(method)

        said: Any = {}
        if method == "tools/call":
            said = created("the-task")
        elif method == "tasks/get":
            status = left.pop(0) if left[1:] else left[0]
            more = {"result": text("built")} if status == "completed" else {}
            said = state("the-task", status, **more)

        await visit.send(json_response(result(said, id=body["id"])))

    return script


@looped
async def test_time_of_a_call_is_that_of_all_its_exchanges(tmp_path: Path) -> None:
    """Each poll of a task that never ends is answered at once; the whole is over in time."""
    path = tmp_path / "task.json"
    seen = []
    async with taping(path, building("working", "completed")) as tape:
        await post(tape.url, tool_call("build", _meta=CAPABLE))
        for number in (2, 3):
            await post(
                tape.url, message("tasks/get", {"taskId": "the-task"}, id=number)
            )

    assert (await verified(path, building("working", "completed"))).is_good

    verification = await verified(path, building("working", seen=seen), timeout=1)
    (interaction,) = verification.interactions

    assert interaction.verdict == "not-reached"
    assert "its task did not end within 1 s" in str(interaction.reason)
    assert seen[-1] == "tasks/cancel"


def old_server(endpoint: str = "/messages?session_id={}") -> Script:
    """Return a server of HTTP+SSE: its one stream says where to post, and has all responses."""
    said: asyncio.Queue[bytes] = asyncio.Queue()
    session = secrets.token_hex(16)

    async def script(visit: Visit) -> None:
        if visit.request.head.line.startswith("GET"):
            await visit.send(stream_head())
            lead = f"event: endpoint\ndata: {endpoint.format(session)}\n\n"
            await visit.send(chunk(lead.encode()))
            while body := await said.get():
                await visit.send(chunk(body))

            return

        is_known = session in visit.request.head.line
        await visit.send(
            response(b"", status="202 Accepted" if is_known else "404 Not RunFindings")
        )
        asked = visit.request.json
        reply = {
            "content": [{"type": "text", "text": f"done {asked['params'].get('name')}"}]
        }
        reply = {"tools": []} if asked["method"] == "tools/list" else reply
        said.put_nowait(event(result(reply, id=asked["id"])))

    return script


async def no_stream(visit: Visit) -> None:
    """Have no stream, as servers of later revisions may."""
    await visit.send(response(b"", status="405 Method Not Allowed"))


async def record_old(path: Path) -> None:
    """Record one call over HTTP+SSE."""
    async with taping(path, old_server()) as tape, connected(tape.url) as connection:
        _, body = await connection.ask("GET", urlsplit(tape.url).path, EVENTS_ACCEPTED)
        lead = await body.until(b"\n\n")
        endpoint = lead.rpartition(b"data: ")[2].strip().decode()
        await post(urljoin(tape.url, endpoint), tool_call("build", id=5))
        await body.until(b"done build")


@looped
async def test_a_session_of_the_old_transport_is_repeated(tmp_path: Path) -> None:
    """Each line is posted where the stream of today says, which is never another server."""
    path = tmp_path / "old.json"
    await record_old(path)

    assert (await verified(path, old_server())).counts == {"same": 1, "skipped": 1}

    for server, words in (
        (
            old_server("https://other.example/messages"),
            "sends its client to another server",
        ),
        (old_server("/elsewhere"), "status 404 for a posted message"),
        (no_stream, "status 405 and no stream that says where to post"),
    ):
        verification = await verified(path, server)

        assert verification.counts == {"not-reached": 1, "skipped": 1}

        reasons = [str(failure.reason) for failure in verification.failures]

        assert words in reasons[0], reasons

    with pytest.raises(UsageError, match="no changes are taken into such a cassette"):
        await update_cassette(
            path, "http://127.0.0.1:9/sse", VerifyOptions(), lambda _: []
        )


@looped
async def test_a_line_after_the_end_of_its_stream_is_told() -> None:
    """The response could only come on the stream, so nobody waits for it."""

    async def script(visit: Visit) -> None:
        if visit.request.head.line.startswith("GET"):
            await visit.send(stream_head(), chunk(b"event: endpoint\ndata: /post\n\n"))
            await visit.send(chunk(b""))
        else:
            await visit.send(response(b"", status="202 Accepted"))

    async with upstream(script) as server:
        url = URL(server.url)
        async with connected_client(url.origin(), None) as http:
            over_stream = StreamUpstream(
                http, url.path, str(url.origin()), lambda _: None
            )
            listening = await over_stream.send_request(channel_request())
            with pytest.raises(ConnectionResetError):
                await listening.read()

            with pytest.raises(ConnectionResetError, match="the server has ended"):
                await over_stream.send_request(line_request(PING))

            await over_stream.close()


@looped
async def test_the_server_of_a_session_ends_when_it_is_closed() -> None:
    """The next call of the session gets a server of its own."""
    cassette = pipe_cassette((line_request(PING), [PONG], End.COMPLETE))
    (call,) = planned_interactions(cassette, is_on_pipes=True)
    reached = live_run(
        cassette, cassette, LINES_SERVER, VerifyOptions(), RunFindings([])
    )
    async with reached as run:
        await run.repeat_call(call)
        server = await run.server_for(call)
        await run.close_server_of(call)

        assert isinstance(server.upstream, PipeUpstream)
        assert server.upstream.exit_code == 0
        assert await run.server_for(call) is not server
