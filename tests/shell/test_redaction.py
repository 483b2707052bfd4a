"""Secrets stay off the disk and the terminal, look-alikes stay as they are, and cassettes play."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from core.secrets.planted import (
    GITHUB,
    PLANTED,
    Place,
    Planted,
    content_type_of,
    message_of,
)
from harness import ACCEPT, Answer, http, looped, playing, post, taping
from messages import input_required, message, result, tool_call
from standin import JSON, Visit, answering, json_response, response, upstream
from verifying import reported_miss

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.report.events import recording_log_line
from mrtr_cassette.core.secrets.names import sha256_of
from mrtr_cassette.errors import UsageError
from mrtr_cassette.options import ReplayOptions, VerifyOptions
from mrtr_cassette.shell.runs.verifying import verify_cassette

IN_RESPONSES = {Place.RESULT, Place.ERROR, Place.EVENT}


@dataclass(frozen=True)
class Sent:
    """One row as an exchange: what the client sends and what the upstream answers."""

    row: Planted
    method: str
    target: str
    headers: tuple[str, ...]
    body: bytes | None
    reply: bytes


def _exchange(number: int, row: Planted) -> Sent:
    target = f"/mcp/{number}"
    plain = json_response(result({"number": number}))
    if row.place in IN_RESPONSES:
        reply = response(message_of(row), f"Content-Type: {content_type_of(row)}")
        body = json.dumps(tool_call(f"row-{number}")).encode()
        return Sent(row, "POST", target, (JSON, ACCEPT), body, reply)

    if row.place is Place.TARGET:
        return Sent(row, "GET", row.raw, (), None, plain)
    if row.place is Place.HEADER:
        return Sent(row, "GET", target, (f"Mcp-Param-Row: {row.raw}",), None, plain)

    headers = (f"Content-Type: {content_type_of(row)}", ACCEPT)
    return Sent(row, "POST", target, headers, message_of(row), plain)


async def _send(url: str, sent: Sent) -> Answer:
    return await http(
        sent.method, url, *sent.headers, body=sent.body, target=sent.target
    )


async def _record(path: Path, exchanges: Sequence[Sent]) -> str:
    """Record all of them and return what is on disk and in the log meanwhile and afterwards."""
    script = answering(*(sent.reply for sent in exchanges))
    async with taping(path, script, request_state="verbatim") as tape:
        for sent in exchanges:
            assert (await _send(tape.url, sent)).is_whole, sent.row.name

        journal = path.with_name(path.name + ".journal").read_text()

    return "\n".join([journal, path.read_text(), *tape.log])


@looped
async def test_no_planted_secret_is_written_and_the_cassette_plays(
    tmp_path: Path,
) -> None:
    """Of all planted secrets none is on disk or in the log, and each request finds its reply."""
    path = tmp_path / "c.json"
    rows = [row for row in PLANTED if row.secret is not None]
    exchanges = [_exchange(number, row) for number, row in enumerate(rows)]

    written = await _record(path, exchanges)

    for row in rows:
        assert row.secret is not None

        spellings = {
            row.secret,
            json.dumps(row.secret)[1:-1],
            quote(row.secret, safe=""),
        }

        found = [
            written[max(0, at - 150) : at + 60]
            for spelling in spellings
            if (at := written.find(spelling)) >= 0
        ]

        assert not found, row.name

    async with playing(path) as replay:
        for sent in exchanges:
            await _send(replay.url, sent)
            texts = [
                reported_miss(miss, Cassette("c.json")).text
                for miss in replay.player.tally.misses
            ]

            assert not texts, (sent.row.name, texts)


@pytest.mark.parametrize("dialect", ["map", "list"])
@looped
async def test_ask_whose_key_is_a_secret_is_answered_on_replay(
    tmp_path: Path, dialect: str
) -> None:
    """A key or an id that is a secret is given as a placeholder, and is answered as one."""
    path = tmp_path / "c.json"
    state = "a-state-that-is-long-enough-to-be-one"
    asking = input_required(GITHUB, "other", state=state)
    if dialect == "list":
        asks = [{"id": GITHUB, "kind": "form", "description": "?"}]
        asking = result({"inputRequests": asks, "requestState": state})

    def retry(asked: Any) -> Any:
        asks = asked["inputRequests"]
        state = asked["requestState"]
        answer = {"action": "accept", "content": {"otp": "73190544"}}
        if dialect == "list":
            answers: Any = [{"id": ask["id"], "value": answer} for ask in asks]
        else:
            answers = dict.fromkeys(asks, answer)

        return tool_call("open", id=2, inputResponses=answers, requestState=state)

    script = answering(json_response(asking), json_response(result({"ok": 1}, id=2)))
    async with taping(path, script) as tape:
        asked = json.loads((await post(tape.url, tool_call("open"))).body)["result"]

        assert GITHUB in json.dumps(asked)

        await post(tape.url, retry(asked))
        journal = path.with_name("c.json.journal").read_text()

    for text in (journal, path.read_text(), *tape.log):
        assert GITHUB not in text
        assert "73190544" not in text

    (interaction,) = json.loads(path.read_text())["interactions"]

    assert len(interaction["elicitation_turns"]) == 1

    async with playing(path) as replay:
        asked = json.loads((await post(replay.url, tool_call("open"))).body)["result"]

        assert "<github:1>" in json.dumps(asked)
        assert json.loads((await post(replay.url, retry(asked))).body)["result"] == {
            "ok": 1
        }
        assert replay.player.tally.misses == []


@looped
async def test_what_is_added_is_redacted_by_the_rules_of_both(tmp_path: Path) -> None:
    """An appended recording keeps the numbers of earlier patterns, and all of it plays."""
    path = tmp_path / "c.json"
    first = tool_call("find", arguments={"who": "cust-77"})
    second = tool_call("find", arguments={"who": "emp-12 cust-9"})

    third = tool_call("login", arguments={"password": "made up", "pin": "0000"})
    before = {"redact": ["cust-[0-9]+"], "no_redact": ["password"]}
    async with taping(
        path, answering(json_response(result({"n": 1}))), **before
    ) as tape:
        await post(tape.url, first)

    replies = [json_response(result({"n": n})) for n in (2, 3)]
    rules = {"redact": ["emp-[0-9]+"], "redact_keys": ["pin"]}
    async with taping(path, answering(*replies), existing="append", **rules) as tape:
        await post(tape.url, second)
        await post(tape.url, third)

    tree = json.loads(path.read_text())

    assert tree["redaction"] == {
        "patterns": ["cust-[0-9]+", "emp-[0-9]+"],
        "keys": ["pin"],
        "disabled": [],
    }

    asked = [
        interaction["request"]["body"]["params"]["arguments"]
        for interaction in tree["interactions"]
    ]

    assert asked == [
        {"who": "<custom-1:1>"},
        {"who": "<custom-2:1> <custom-1:2>"},
        {"password": "<password:1>", "pin": "<custom-key:1>"},
    ]

    async with playing(path) as replay:
        for number, call in ((3, third), (2, second), (1, first)):
            assert json.loads((await post(replay.url, call)).body)["result"] == {
                "n": number
            }


CALL = json.dumps(tool_call("x", arguments={"note": f"it is {GITHUB}"})).encode()
GZIP = "Content-Encoding: gzip"


@looped
async def test_coded_request_is_searched_and_plays(tmp_path: Path) -> None:
    """A request in any coding passes as it is, and is kept and matched as it can be read."""
    path = tmp_path / "c.json"
    body = gzip.compress(CALL, mtime=0)
    headers = (JSON, GZIP)

    async with taping(path, answering(json_response(result({"a": 1})))) as tape:
        recorded = await http("POST", tape.url, *headers, body=body)

    assert tape.server.only.body == body
    assert GITHUB not in path.read_text()
    assert "it is <github:1>" in path.read_text()

    for sent, with_headers in ((body, headers), (CALL, (JSON,))):
        async with playing(path) as replay:
            played = await http("POST", replay.url, *with_headers, body=sent)

            assert played.body == recorded.body

    async with playing(path) as replay:
        another_call = gzip.compress(CALL.replace(b"it is", b"it was"), mtime=0)
        missed = await http("POST", replay.url, JSON, GZIP, body=another_call)

        assert missed.error["code"] == -32010


@looped
async def test_bodies_that_cannot_be_searched_are_kept_and_told(tmp_path: Path) -> None:
    """They are recorded as they are, and play; each reason is a warning, and the end counts them."""
    path = tmp_path / "c.json"
    unread = CALL.decode().encode("utf-16")
    script = answering(*[response(unread, JSON, "Content-Encoding: br")] * 2)
    async with taping(path, script) as tape:
        for _ in range(2):
            recorded = await http("POST", tape.url, JSON, body=unread)

    warnings = [line for line in tape.log if line.startswith("warning: ")]

    assert [line.partition(", can't be searched")[0] for line in warnings] == [
        "warning: the request of exchange 1, POST /mcp",
        "warning: the response of exchange 1, POST /mcp",
    ]

    assert tape.recording_run.report.unread == 2

    async with playing(path) as replay:
        assert (await http("POST", replay.url, JSON, body=unread)).body == recorded.body


@looped
async def test_advice_for_an_unread_body_helps(tmp_path: Path) -> None:
    """A server and the proxy before it may both encode what they are asked to encode."""
    plain = json.dumps(result({"a": 1})).encode()

    async def encode_twice(visit: Visit) -> None:
        if "gzip" in visit.request.head.values("accept-encoding"):
            body = gzip.compress(gzip.compress(plain))
            await visit.send(response(body, JSON, "Content-Encoding: gzip, gzip"))
        else:
            await visit.send(json_response(result({"a": 1})))

    async def unread_count(name: str, **options: Any) -> tuple[int, list[str]]:
        async with taping(tmp_path / name, encode_twice, **options) as tape:
            await http("POST", tape.url, JSON, "Accept-Encoding: gzip", body=CALL)

        return tape.recording_run.report.unread, tape.log

    count, log = await unread_count("a.json")

    assert count == 1

    (advised,) = re.findall(r"headers=({.*?})", "\n".join(log))
    count, _ = await unread_count("b.json", headers=json.loads(advised))

    assert count == 0


@looped
async def test_credentials_are_found_wherever_they_are_repeated(tmp_path: Path) -> None:
    """What the client, the user and the server put into headers is nowhere on disk, and plays."""
    path = tmp_path / "c.json"
    secrets = (
        "kq7x-client-4711",
        "kq7x-user-4712",
        "kq7x-cookie-4713",
        "kq7x-session-4714",
    )

    encoded = base64.b64encode(f'{{"token":"{secrets[0]}"}}'.encode()).decode()
    told = {"debug": [*secrets, encoded, quote(f"a?b={secrets[1]}/", safe="")]}
    script = answering(
        json_response(
            result(told),
            f"Set-Cookie: sid={secrets[2]}; Path=/",
            f"Mcp-Session-Id: {secrets[3]}",
        ),
        json_response(result({"a": 1})),
    )

    sent = (JSON, ACCEPT, f"Authorization: Bearer {secrets[0]}")
    call = tool_call(
        "x", arguments={"as": f"client {secrets[0]}", "in": f"session {secrets[3]}"}
    )
    async with taping(path, script, headers={"X-Upstream-Auth": secrets[1]}) as tape:
        body = json.dumps(tool_call("y")).encode()
        await http("POST", tape.url, *sent, body=body)
        await http("POST", tape.url, *sent, body=json.dumps(call).encode())
        journal = path.with_name(path.name + ".journal").read_text()

    kept = journal + path.read_text() + "".join(tape.log)
    for secret in (*secrets, encoded[12:30]):
        assert secret not in kept

    assert "session mrtr-session:1" in path.read_text()
    assert "client <authorization:1>" in path.read_text()

    given = json.dumps(call).replace(secrets[3], "mrtr-session:1")
    async with playing(path) as replay:
        played = await http("POST", replay.url, *sent, body=given.encode())

        assert played.result == {"a": 1}

    async with playing(path) as replay:
        headers = [JSON, ACCEPT, "Authorization: Bearer another-token-1"]
        body = given.replace(secrets[0], "another-token-1").encode()
        played = await http("POST", replay.url, *headers, body=body)

        assert played.result == {"a": 1}

    async with playing(path) as replay:
        # What stands in the place of a placeholder may be a secret by itself.
        played = await http("POST", replay.url, JSON, ACCEPT, body=given.encode())

        assert played.result == {"a": 1}

        body = given.replace(secrets[0], "nobody").encode()
        missed = await http("POST", replay.url, JSON, ACCEPT, body=body)

        assert missed.error


SKILL = f"# Deploy\nUse the key {GITHUB}.\n"
LISTED = {"files": [{"uri": "skill://deploy", "digest": f"sha256:{sha256_of(SKILL)}"}]}


def skills(body: dict[str, Any]) -> dict[str, Any]:
    """Say what a server of a skill says: a list with the digest of a file, and the file."""
    is_list = body["method"] == "skills/list"
    read = {
        "contents": [
            {"uri": "skill://deploy", "mimeType": "text/markdown", "text": SKILL}
        ]
    }
    return result(LISTED if is_list else read, id=body["id"])


@pytest.mark.parametrize("is_appended", [False, True])
@looped
async def test_announced_digest_is_that_of_the_redacted_text(
    tmp_path: Path, *, is_appended: bool
) -> None:
    """A client that checks a file of a skill accepts the replay; publishing and `verify` know."""

    async def server(visit: Visit) -> None:
        await visit.send(json_response(skills(visit.request.json)))

    path = tmp_path / "c.json"
    calls = [
        message("skills/list"),
        message("resources/read", {"uri": "skill://deploy"}),
    ]

    runs = [calls[:1], calls[1:]] if is_appended else [calls]
    for number, run in enumerate(runs):
        existing = "append" if number else "keep"
        async with taping(path, server, existing=existing, publish_anyway=True) as tape:
            for call in run:
                await post(tape.url, call)

    async with playing(path) as replay:
        listed, read_ = [
            (await post(replay.url, call)).json["result"] for call in calls
        ]

    text = read_["contents"][0]["text"]

    assert "<github:1>" in text
    assert listed["files"][0]["digest"] == f"sha256:{sha256_of(text)}"

    async with upstream(server) as live:
        verification = await verify_cassette(path, live.url, VerifyOptions())

    assert verification.counts == {"same": 2}


@looped
@pytest.mark.parametrize("name", ["redact_env", "redact_values"])
async def test_text_that_the_user_calls_a_secret_is_in_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It may be words; the client that recorded is played, and a miss doesn't show it either."""
    secret = "open sesame please"
    path = tmp_path / "c.json"
    monkeypatch.setenv("DOOR", secret)
    given: Any = {name: ["DOOR" if name == "redact_env" else secret]}
    encoded = base64.b64encode(f"say {secret}!".encode()).decode()
    call = tool_call("say", arguments={"text": f"say {secret}!", "raw": encoded})
    async with taping(
        path, answering(json_response(result({"said": secret}))), **given
    ) as tape:
        await post(tape.url, call)
        journal = path.with_name("c.json.journal").read_text()

    for text in (journal, path.read_text(), *tape.log):
        assert secret not in text
        assert encoded not in text

    assert "<secret:1>" in path.read_text()

    async with playing(path, **given) as replay:
        assert "<secret:1>" in (await post(replay.url, call)).body.decode()

        miss = await post(
            replay.url, tool_call("say", arguments={"text": f"no {secret}"})
        )

        assert secret not in miss.body.decode()


@looped
async def test_variable_that_is_not_set_or_short_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where something is recorded; a replay may be without it."""
    path = tmp_path / "c.json"
    monkeypatch.setenv("SHORT", "seven77")
    monkeypatch.delenv("GONE", raising=False)
    with pytest.raises(UsageError, match="the environment variable 'GONE' is not set"):
        async with taping(path, answering(), redact_env=["GONE"]):
            pass

    with pytest.raises(
        UsageError, match="the value of 'SHORT' has 7 characters, and 8"
    ) as short:
        async with taping(path, answering(), redact_env=["SHORT"]):
            pass

    with pytest.raises(
        UsageError, match="a text has 5 characters, and 8 are needed"
    ) as text:
        VerifyOptions(redact_values=["abcde"])

    assert "seven77" not in str(short.value)
    assert "abcde" not in str(text.value)
    assert ReplayOptions(redact_env=["GONE"]).secrets == ()
    assert not [*tmp_path.iterdir()]


@looped
async def test_secret_that_is_found_later_is_not_in_the_cassette(
    tmp_path: Path,
) -> None:
    """What the journal had before it was found by its name is written anew at the end."""
    path = tmp_path / "c.json"
    secret = "hunter2hunter"
    replies = [json_response(result({"n": n})) for n in (1, 2)]
    before = tool_call("type", arguments={"text": secret})
    async with taping(path, answering(*replies)) as tape:
        await post(tape.url, before)
        await post(tape.url, tool_call("login", arguments={"password": secret}))

    assert secret not in path.read_text()

    async with playing(path) as replay:
        assert b'"n":1' in (await post(replay.url, before)).body


@looped
async def test_recording_tells_what_was_replaced(tmp_path: Path) -> None:
    """Its end names rule, count and calls; where it adds to a cassette, only of what is new."""
    path = tmp_path / "c.json"
    login = tool_call("login", arguments={"password": "c0rrect-horse"})
    repeat = tool_call("type", arguments={"text": "c0rrect-horse"})
    reset = tool_call("reset", arguments={"password": "battery-staple", "api_key": 12})
    told = []
    for existing, calls in (
        ("keep", (login, repeat, login)),
        ("append", (login, reset)),
        ("replace", (repeat, reset)),
        ("replace", (tool_call("add"),)),
    ):
        script = answering(*[json_response(result({"ok": 1}))] * len(calls))
        async with taping(path, script, existing=existing) as tape:
            for call in calls:
                await post(tape.url, call)

        event, line = recording_log_line(tape.recording_run.report)
        told.append((line.splitlines()[1:], event["redacted"]))

    logins = [
        {"interaction": number, "call": 'tools/call "login"'} for number in (1, 3)
    ]
    typed = {"interaction": 2, "call": 'tools/call "type"'}
    added = {"interaction": 4, "call": 'tools/call "reset"'}
    second = {"interaction": 2, "call": 'tools/call "reset"'}

    assert told == [
        (
            [
                '  redacted: password ×3 (#1, #3 tools/call "login"; #2 tools/call "type")'
            ],
            [{"rule": "password", "count": 3, "calls": [logins[0], typed, logins[1]]}],
        ),
        (
            [
                '  redacted: password ×1 (#4 tools/call "reset")',
                '  redacted: api-key ×1 (#4 tools/call "reset")',
            ],
            [
                {"rule": "password", "count": 1, "calls": [added]},
                {"rule": "api-key", "count": 1, "calls": [added]},
            ],
        ),
        (
            [
                '  redacted: password ×1 (#2 tools/call "reset")',
                '  redacted: api-key ×1 (#2 tools/call "reset")',
            ],
            [
                {"rule": "password", "count": 1, "calls": [second]},
                {"rule": "api-key", "count": 1, "calls": [second]},
            ],
        ),
        ([], []),
    ]
