"""Facts about recordings: what is sealed, what is the same when recorded again, what is refused."""

import asyncio
import gzip
import json
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import (
    call,
    connected,
    demo_server,
    http,
    looped,
    playing,
    post,
    read,
    taping,
)
from messages import NO, JsonObject, compact, input_required, message, result, tool_call, yes
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

from mrtr_cassette.errors import CassetteError, UsageError
from mrtr_cassette.options import RecordOptions
from mrtr_cassette.shell.recording import recording

# --- Sealing ---

STATE = "eyJrZXkiOiJzZWNyZXQtc3RhdGUifQ.MEUCIQDx/y+z=="
JSON_STATE = '{"turn":1,"note":"a \\"quoted\\" word","signature":"abcdefghijkl"}'


def _ask_in_json(state: str) -> bytes:
    return json_response(input_required("confirm", state=state))


def _ask_in_stream(state: str) -> bytes:
    log = message("notifications/message", {"data": f"issued {state}"}, id=None)
    return event_stream(log, input_required("confirm", state=state))


def _ask_in_gzip(state: str) -> bytes:
    coded = gzip.compress(compact(input_required("confirm", state=state)))
    return response(coded, JSON, "Content-Encoding: gzip")


def _ask_in_pieces(state: str) -> bytes:
    body = compact(input_required("confirm", state=state))
    return (
        stream_head(JSON)
        + b"".join(chunk(body[i : i + 7]) for i in range(0, len(body), 7))
        + chunk(b"")
    )


def _ask_escaped(state: str) -> bytes:
    spelled = json.dumps(state).replace("/", "\\/").encode()
    body = b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","requestState":%b}}'
    return response(body % spelled, JSON)


REPEATS: dict[str, Callable[[str], bytes]] = {
    "error message": lambda state: json_response(
        {"jsonrpc": "2.0", "id": 2, "error": {"code": -32602, "message": f"Invalid: {state}"}},
        status="400 Bad Request",
    ),
    "event": lambda state: event_stream(
        message("notifications/message", {"data": f"got {state}!"}, id=None), result({}, id=2)
    ),
    "gzip": lambda state: response(
        gzip.compress(compact(result({"text": state}, id=2))), JSON, "Content-Encoding: gzip"
    ),
    "text": lambda state: response(f"no such state: {state}\n".encode(), status="400 Bad Request"),
}


def spellings(secret: str) -> list[bytes]:
    """Return how a secret would stand in our files."""
    once = json.dumps(secret)[1:-1]
    twice = json.dumps(once)[1:-1]
    return [text.encode() for text in (secret, once, twice, json.dumps(twice)[1:-1])]


async def _leaks(
    tmp_path: Path, state: str, ask: bytes, repeat: bytes, **options: Any
) -> tuple[bool, bool]:
    """Record an ask and its answer; tell whether the raw state is in the journal, the cassette."""
    async with taping(tmp_path / "c.json", answering(ask, repeat), **options) as tape:
        await post(tape.url, tool_call("deploy"))
        answers = {"inputResponses": yes("confirm"), "requestState": state}
        await post(tape.url, tool_call("deploy", id=2, **answers))
        journal = (tmp_path / "c.json.journal").read_bytes()
        assert tape.server.received[1].json["params"]["requestState"] == state
        assert not any(state in line for line in tape.log)
    cassette = (tmp_path / "c.json").read_bytes()
    return tuple(any(one in data for one in spellings(state)) for data in (journal, cassette))  # type: ignore[return-value]


@pytest.mark.parametrize("state", [STATE, JSON_STATE], ids=["token", "JSON"])
@pytest.mark.parametrize(
    "ask", [_ask_in_json, _ask_in_stream, _ask_in_gzip, _ask_in_pieces, _ask_escaped]
)
@looped
async def test_no_raw_state_that_was_asked_with_is_written(
    tmp_path: Path, state: str, ask: Callable[[str], bytes]
) -> None:
    """However an ask is spelled, its raw state is neither in the journal nor in the cassette."""
    done = json_response(result({}, id=2))
    assert await _leaks(tmp_path, state, ask(state), done) == (False, False)


@pytest.mark.parametrize("state", [STATE, JSON_STATE], ids=["token", "JSON"])
@pytest.mark.parametrize("repeat", [name for name in REPEATS if name != "text"])
@looped
async def test_no_raw_state_that_an_answer_repeats_is_written(
    tmp_path: Path, state: str, repeat: str
) -> None:
    """A server that repeats the state in other text doesn't bring it to disk."""
    repeated = REPEATS[repeat](state)
    assert await _leaks(tmp_path, state, _ask_in_json(state), repeated) == (False, False)


@looped
async def test_no_raw_state_that_plain_text_repeats_is_written(tmp_path: Path) -> None:
    """A server that repeats the state in a body that is no JSON doesn't bring it to disk."""
    repeated = REPEATS["text"](STATE)
    assert await _leaks(tmp_path, STATE, _ask_in_json(STATE), repeated) == (False, False)


@looped
async def test_no_raw_json_state_that_plain_text_repeats_is_written(tmp_path: Path) -> None:
    """A state with quotes that plain text repeats, unescaped there, is not written."""
    repeated = REPEATS["text"](JSON_STATE)
    assert await _leaks(tmp_path, JSON_STATE, _ask_in_json(JSON_STATE), repeated) == (False, False)


@looped
async def test_no_raw_state_in_json_within_json_is_written(tmp_path: Path) -> None:
    """A state with quotes in JSON that is the text of a JSON string, escaped twice, is not written."""
    repeated = json_response(result({"text": json.dumps({"got": JSON_STATE})}, id=2))
    assert await _leaks(tmp_path, JSON_STATE, _ask_in_json(JSON_STATE), repeated) == (False, False)


@looped
async def test_no_raw_state_with_escaped_slashes_is_written(tmp_path: Path) -> None:
    """A state that is repeated with its slashes escaped, as PHP does, is not written."""
    body = compact(result({"text": f"got {STATE}"}, id=2)).replace(b"/", b"\\/")
    async with taping(
        tmp_path / "c.json", answering(_ask_in_json(STATE), response(body, JSON))
    ) as tape:
        await post(tape.url, tool_call("deploy"))
        await post(tape.url, tool_call("deploy", id=2, requestState=STATE))
        journal = (tmp_path / "c.json.journal").read_text()
    for text in (journal, (tmp_path / "c.json").read_text()):
        assert STATE not in text.replace("\\", "")


@looped
async def test_no_raw_state_of_a_broken_ask_is_written(tmp_path: Path) -> None:
    """An ask that breaks off behind its state doesn't bring the state to disk."""
    body = compact(input_required("confirm", state=STATE))
    reply = response(b"", JSON, f"Content-Length: {len(body)}", length=False) + body[:-1]
    gate = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.send(reply)
        await gate.wait()
        visit.close()

    async with taping(tmp_path / "c.json", script) as tape, connected(tape.url) as client:
        _, answer = await client.ask("POST", "/mcp", JSON, body=compact(tool_call("deploy")))
        await answer.until(body[:-1])
        gate.set()
        assert await answer.rest() == b""
        await client.closed()
    assert STATE not in (tmp_path / "c.json").read_text()


@pytest.mark.parametrize(
    "half",
    [
        {"resultType": "input_required", "inputRequests": ["odd"], "requestState": STATE},
        {"inputRequests": [], "requestState": STATE},
        {"resultType": "complete", "requestState": STATE},
    ],
)
@looped
async def test_no_raw_state_of_a_half_shaped_ask_is_written(
    tmp_path: Path, half: JsonObject
) -> None:
    """A `requestState` in a result that is no ask of any dialect is not written either."""
    async with taping(tmp_path / "c.json", answering(json_response(result(half)))) as tape:
        await post(tape.url, tool_call("deploy"))
    assert STATE not in (tmp_path / "c.json").read_text()


@looped
async def test_no_raw_state_that_another_exchange_repeats_is_written(tmp_path: Path) -> None:
    """A state that another call's answer shows, as a list of pending calls would, is not written."""
    other = json_response(result({"pending": [STATE]}, id=2))
    async with taping(tmp_path / "c.json", answering(_ask_in_json(STATE), other)) as tape:
        await post(tape.url, tool_call("deploy"))
        await post(tape.url, tool_call("pending", id=2))
    assert STATE not in (tmp_path / "c.json").read_text()


@looped
async def test_no_raw_state_of_a_tampered_retry_is_written(tmp_path: Path) -> None:
    """A state that the client lengthened, and the refusal that quotes it, are not written."""
    tampered = STATE + "A"
    refusal = {"jsonrpc": "2.0", "id": 2, "error": {"code": -32602, "message": f"Bad {tampered}"}}
    replies = (_ask_in_json(STATE), json_response(refusal, status="400 Bad Request"))
    async with taping(tmp_path / "c.json", answering(*replies)) as tape:
        await post(tape.url, tool_call("deploy"))
        await post(tape.url, tool_call("deploy", id=2, requestState=tampered))
        journal = (tmp_path / "c.json.journal").read_text()
    for text in (journal, (tmp_path / "c.json").read_text()):
        assert STATE not in text
    assert [one.get("orphan") for one in read(tmp_path / "c.json")["interactions"]] == [None, True]


@looped
async def test_no_credential_is_written(tmp_path: Path) -> None:
    """Neither `Authorization` nor cookies nor unknown headers reach the journal or the cassette."""
    reply = response(b"{}", JSON, "Set-Cookie: sid=SECRET-1", "X-Auth-Token: SECRET-2")
    secrets = (
        "Authorization: Bearer SECRET-3",
        "Cookie: sid=SECRET-4",
        "X-Api-Key: SECRET-5",
        "Proxy-Authorization: SECRET-6",
    )
    async with taping(
        tmp_path / "c.json", answering(reply), headers=(("X-Added", "SECRET-7"),)
    ) as tape:
        answer = await post(tape.url, message("ping"), *secrets)
        assert answer.head.values("set-cookie") == ["sid=SECRET-1"]
        assert tape.server.only.head.values("authorization") == ["Bearer SECRET-3"]
        journal = (tmp_path / "c.json.journal").read_text()
    for text in (journal, (tmp_path / "c.json").read_text(), *tape.log):
        assert "SECRET" not in text


@looped
async def test_headers_that_the_user_named_are_kept(tmp_path: Path) -> None:
    """Of a named header the value is kept, of `Authorization` that it was there."""
    async with taping(
        tmp_path / "c.json", answering(json_response(result({}))), match_headers=["x-tenant"]
    ) as tape:
        await post(tape.url, message("ping"), "X-Tenant: acme", "Authorization: Bearer SECRET")
    headers = read(tmp_path / "c.json")["interactions"][0]["request"]["http"]["headers"]

    assert (headers["X-Tenant"], headers["Authorization"]) == ("acme", "")


@looped
async def test_session_ids_are_sealed(tmp_path: Path) -> None:
    """A raw session id is neither in the journal nor in the cassette, whoever sent it."""
    session = "1868a90c-7f5e-4ac2-b0a1-4f1a4b8dd1b5"
    replies = (
        json_response(result({}), f"mcp-session-id: {session}"),
        json_response(result({}, id=2)),
        response(status="204 No Content", length=False),
    )
    async with taping(tmp_path / "c.json", answering(*replies)) as tape:
        answer = await post(tape.url, message("initialize"))
        assert answer.head.values("mcp-session-id") == [session]
        await post(tape.url, message("ping", id=2), f"Mcp-Session-Id: {session}")
        await http("DELETE", tape.url, f"Mcp-Session-Id: {session}")
        journal = (tmp_path / "c.json.journal").read_text()
    for text in (journal, (tmp_path / "c.json").read_text()):
        assert session not in text
    assert [
        (one["request"]["http"]["headers"].get("Mcp-Session-Id"))
        for one in read(tmp_path / "c.json")["interactions"]
    ] == [None, "mrtr-session:1", "mrtr-session:1"]


@pytest.mark.parametrize("state", [STATE, JSON_STATE], ids=["token", "JSON"])
@looped
async def test_verbatim_keeps_the_state(tmp_path: Path, state: str) -> None:
    """With `verbatim` the raw state is in ask and answer, and replay gives back the very bytes."""
    ask, done = input_required("confirm", state=state), result({}, id=2)
    retry = tool_call("deploy", id=2, inputResponses=yes("confirm"), requestState=state)
    script = answering(json_response(ask), json_response(done))
    async with taping(tmp_path / "c.json", script, request_state="verbatim") as tape:
        await post(tape.url, tool_call("deploy"))
        await post(tape.url, retry)
    (turn,) = read(tmp_path / "c.json")["interactions"][0]["elicitation_turns"]
    assert turn["ask"]["body"]["result"]["requestState"] == state
    assert turn["answer"]["body"]["params"]["requestState"] == state
    async with playing(tmp_path / "c.json") as replay:
        assert (await post(replay.url, tool_call("deploy"))).body == compact(ask)
        assert (await post(replay.url, retry)).body == compact(done)


# --- Recording again ---


async def _converse(url: str) -> None:
    """Have a conversation with the demo server in which every kind of turn occurs."""
    version: JsonObject = {"version": "2.0"}
    meta = {"progressToken": "p"}
    await post(url, message("server/discover", {"_meta": {}}, id="probe"))
    ask = (await call(url, "release-train", version)).json["result"]
    for number, answers in enumerate(
        (yes("approve"), {"window": {"action": "accept", "content": {"window": "Friday"}}})
    ):
        ask = (
            await call(
                url, "release-train", version, id=number + 2,
                inputResponses=answers, requestState=ask["requestState"],
            )
        ).json["result"]  # fmt: skip
    await call(url, "count", {"to": 2}, id=5, meta=meta)
    late = await call(url, "ask-late", {"steps": 1}, id=6, meta=meta)
    state = json.loads(late.body.split(b"data: ")[-1])["result"]["requestState"]
    for answers in ({"confirm": NO}, yes("confirm")):
        await call(url, "ask-late", {"steps": 1}, id=7, inputResponses=answers, requestState=state)
    bad = state[:-1] + ("0" if state[-1] != "0" else "1")
    refused = await call(url, "ask-late", {"steps": 1}, id=8, requestState=bad)
    assert refused.status == 400
    await call(url, "build", {"target": "x"}, id=9)


@looped
async def test_recording_an_unchanged_server_again_changes_no_line(tmp_path: Path) -> None:
    """Two recordings of the same server, with another key, are equal outside `recording`."""
    port = 0
    for name in ("one.json", "two.json"):
        async with demo_server(port) as url:
            port = int(url.split(":")[2].partition("/")[0])
            async with recording(url, tmp_path / name) as session:
                await _converse(session.url)
    one, two = (read(tmp_path / name) for name in ("one.json", "two.json"))
    assert len(one["interactions"]) == 7
    first, second = one.pop("recording"), two.pop("recording")
    assert one == two
    assert list(one) == list(two)
    hashes = [
        fact["request_state_sha256"]
        for fact in first["exchanges"]
        if "request_state_sha256" in fact
    ]
    assert hashes
    assert not set(hashes) & {fact.get("request_state_sha256") for fact in second["exchanges"]}


# --- What is refused ---


@pytest.mark.parametrize(
    "url",
    ["", "localhost:8000/mcp", "ftp://x/mcp", "http://", "http:///mcp", "http://x:99999/", "http://[::1", "stdio:cat"],
)  # fmt: skip
@looped
async def test_what_is_no_http_url_is_refused(tmp_path: Path, url: str) -> None:
    """An upstream that is no HTTP URL is a usage error that shows it, and nothing is made."""
    with pytest.raises(UsageError) as caught:
        async with recording(url, tmp_path / "c.json"):
            pass
    assert repr(url) in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://bob:hunter2pass", "http://bob:…"),
        ("http://bob:hunter2pass/mcp", "http://bob:…/mcp"),
        ("http://bob:hunter2/pass@host/mcp", "http://…@host/mcp"),
        ("http://bob:hunter2?pass@host/mcp", "http://…@host/mcp"),
        ("bob:hunter2pass@host/?api_key=sup3rs3cret", "…@host/?api_key=<api-key:1>"),
        ("ftp://host/ghp_abcdefghijklmnopqrstuvwxyz0123456789", "ftp://host/%3Cgithub:1%3E"),
    ],
)
@looped
async def test_what_is_no_http_url_is_shown_without_its_secrets(
    tmp_path: Path, url: str, shown: str
) -> None:
    """The error about an upstream repeats neither user and password nor a known secret."""
    with pytest.raises(UsageError) as caught:
        async with recording(url, tmp_path / "c.json"):
            pass
    assert repr(shown) in str(caught.value)
    assert not re.search("hunter2|pass|sup3rs3cret|ghp_", str(caught.value))


@looped
async def test_upstreams_url_is_kept_and_shown_without_its_secrets(tmp_path: Path) -> None:
    """Secrets in the upstream's URL are placeholders that are the same in every recording."""
    path = tmp_path / "c.json"
    async with upstream(answering(json_response(result({})))) as server:
        named = server.url.replace("//", "//bob:hunter2pass@")
        named += "/ghp_abcdefghijklmnopqrstuvwxyz0123456789?api_key=sup3rs3cret"
        async with recording(named, path) as session:
            await post(session.url, tool_call("x"))
    assert session.url.endswith("?api_key=sup3rs3cret")
    assert session.shown_url.endswith("/%3Cgithub:1%3E?api_key=%3Capi-key:1%3E")
    assert read(path)["upstream"].endswith("/%3Cgithub:1%3E?api_key=%3Capi-key:1%3E")
    assert not re.search("hunter2|sup3rs3cret|ghp_", path.read_text())


@pytest.mark.parametrize("url", ["http://a b/", "http://localhost:8000/mcp "])
@looped
async def test_a_url_with_a_space_is_refused(tmp_path: Path, url: str) -> None:
    """A URL with a space, such as one that was copied with what follows it, is a usage error."""
    with pytest.raises(UsageError):
        async with recording(url, tmp_path / "c.json"):
            pass


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
@looped
async def test_an_upstream_that_is_the_proxy_itself_is_refused(tmp_path: Path, name: str) -> None:
    """Who names our own address as the upstream, where each request would come round, is told."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(UsageError):
        async with recording(
            f"http://{name}:{port}/mcp", tmp_path / "c.json", RecordOptions(port=port)
        ):
            pass


@looped
async def test_an_existing_cassette_is_left_alone(tmp_path: Path) -> None:
    """An output that exists is refused before anything is served, and stays as it is."""
    path = tmp_path / "c.json"
    path.write_text("precious")
    with pytest.raises(CassetteError, match='the cassette exists; use existing="replace"'):
        async with recording("http://127.0.0.1:1/", path):
            pass
    assert path.read_text() == "precious"
    assert [one.name for one in tmp_path.iterdir()] == ["c.json"]


@looped
async def test_a_cassette_that_appears_meanwhile_is_left_alone(tmp_path: Path) -> None:
    """A file that another program writes to the output while recording is not overwritten."""
    path = tmp_path / "c.json"

    async def surprised() -> None:
        async with taping(path, answering(response(b"x"))) as tape:
            await http("GET", tape.url)
            path.write_text("precious")

    with pytest.raises(CassetteError, match="the cassette exists"):
        await surprised()
    assert path.read_text() == "precious"
    assert (tmp_path / "c.json.journal").exists()


@looped
async def test_a_second_recording_of_the_same_cassette_is_refused(tmp_path: Path) -> None:
    """While one recording writes to an output another one to it is refused, and the first goes on."""
    path = tmp_path / "c.json"
    async with taping(path, answering(response(b"x"))) as tape:
        with pytest.raises(CassetteError, match="another recorder is writing"):
            async with recording("http://127.0.0.1:1/", path):
                pass
        await http("GET", tape.url)
    assert len(read(path)["interactions"]) == 1


# --- HTTP+SSE ---


async def legacy_session(path: Path, session: str) -> tuple[bytes, bytes]:
    """Record a session over HTTP+SSE; return what the client read on the stream."""
    posted: asyncio.Queue[JsonObject] = asyncio.Queue()

    async def script(visit: Visit) -> None:
        head = visit.request.head
        if head.line.startswith("GET"):
            url = f"http://{head.values('host')[0]}/messages?session_id={session}"
            await visit.send(
                stream_head(EVENTS), chunk(f"event: endpoint\ndata: {url}\n\n".encode())
            )
            request = await posted.get()
            await visit.send(chunk(event(result({"of": session}, id=request["id"]))))
            await visit.left()
        else:
            assert f"/messages?session_id={session}" in head.line
            await visit.send(
                response(b"Accepted", "Content-Type: text/plain", status="202 Accepted")
            )
            posted.put_nowait(visit.request.json)

    async with taping(path, script, path="/sse") as tape, connected(tape.url) as client:
        _, body = await client.ask("GET", "/sse", "Accept: text/event-stream")
        endpoint = await body.until(b"\n\n")
        target = re.findall(rb"data: (/\S+)", endpoint)[0].decode()
        url = f"{tape.url.removesuffix('/sse')}{target}"
        accepted = await post(url, message("tools/list", id=1))
        assert accepted.status == 202
        return endpoint, await body.until(b"}\n\n")


@looped
async def test_the_old_transport_is_recorded(tmp_path: Path) -> None:
    """A client comes back to the recorder to post, and no recording has the session's id."""
    ids = ("0f9d8c7b6a5e4d3c", "a1b2c3d4e5f60718")
    for name in ids:
        endpoint, answer = await legacy_session(tmp_path / f"{name}.json", name)
        assert endpoint == f"event: endpoint\ndata: /messages?session_id={name}\n\n".encode()
        assert name.encode() in answer
    one, other = (read(tmp_path / f"{name}.json") for name in ids)
    assert one["interactions"] == other["interactions"]
    stream, called = one["interactions"]
    assert stream["request"]["http"]["path"] == "/sse"
    assert called["request"]["http"]["path"] == "/messages?session_id=mrtr-session:1"
    assert stream["response"]["events"][0]["text"] == (
        "event: endpoint\ndata: /messages?session_id=mrtr-session:1\n\n"
    )
    assert ids[0] not in str(one)
