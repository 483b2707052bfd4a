"""Facts about large exchanges, which a process of our own seals while the event loop goes on."""

from __future__ import annotations

import asyncio
import gzip
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import STREAM_HEADERS, tool
from builders import post as posted
from harness import looped, post, raw_body, read, taping
from messages import asks, compact, message, result, text, tool_call
from standin import JSON, answering, event_stream, json_response, response

from mrtr_cassette.core.format.journal import encode_line
from mrtr_cassette.core.record.recorder import PassedMessage, Recorder
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.wire.coding import LARGEST_RATIO
from mrtr_cassette.core.wire.http import End, Headers
from mrtr_cassette.errors import MrtrCassetteError
from mrtr_cassette.shell.journal_file import journal_path
from mrtr_cassette.shell.recorded_journal import RecordedJournal
from mrtr_cassette.shell.sealing_process import RecorderSettings, SealingProcess, is_plain_exchange

SETTINGS = RecorderSettings(
    seals=True,
    seals_answers=False,
    kept_headers=frozenset(),
    largest_body=10**8,
    rules=RedactionRules(),
    key=b"k" * 32,
)
SECRET = "not-a-real-key-0123456789"
STATE = "state-that-is-issued-" + "x" * 40
OTHER = "state-of-another-call-" + "y" * 40
JSON_HEADERS: Headers = (("Content-Type", "application/json"),)
PADDING = "The quick brown fox jumps over the lazy dog. " * 3000
"""More than is sealed at once."""


@asynccontextmanager
async def working(settings: RecorderSettings, recorder: Recorder) -> AsyncIterator[SealingProcess]:
    """Give the process until the block ends."""
    sealing = SealingProcess(settings, recorder)
    try:
        yield sealing
    finally:
        await sealing.close()


def observed(recorder: Recorder, body: bytes, *, headers: Headers = JSON_HEADERS, **asked: Any):
    """Return an exchange that has passed."""
    observation = recorder.request_received(posted(tool("x", **asked)), 1.0)
    observation.response_started(200, headers)
    observation.response_bytes(body, 2.0)
    return observation.seen(End.COMPLETE, 3.0)


LARGE = {
    "secrets": (compact(result({"apiKey": SECRET, "text": PADDING})), JSON_HEADERS, {}),
    "a state": (compact(result(asks("ok", state=STATE) | {"text": PADDING})), JSON_HEADERS, {}),
    "events": (b'data: {"apiKey":"%b"}\n\n' % SECRET.encode() * 5000, STREAM_HEADERS, {}),
    "a request": (compact(result({})), JSON_HEADERS, {"password": SECRET, "text": PADDING}),
    "bytes": (bytes(range(256)) * 1000, JSON_HEADERS, {}),
}


@pytest.mark.parametrize("name", LARGE)
@looped
async def test_large_exchange_is_sealed_as_a_small_one_is(name: str) -> None:
    """The process gives the line that the recorder would give here, and the same states are known."""
    body, headers, asked = LARGE[name]
    here, there = SETTINGS.recorder(), SETTINGS.recorder()
    expected = here.seal(observed(here, body, headers=headers, **asked))
    async with working(SETTINGS, there) as sealing:
        seen = observed(there, body, headers=headers, **asked)
        assert sealing.is_large(seen)
        sealed = await sealing.seal(seen)
    assert b"".join(sealed.line) == encode_line(expected.exchange)
    assert SECRET.encode() not in b"".join(sealed.line)
    assert (sealed.ask, list(sealed.unread)) == (expected.ask, list(expected.unread))
    assert list(there.known) == list(here.known)


@looped
async def test_states_are_known_on_both_sides() -> None:
    """A state that a small exchange issued is replaced in a large one, and the other way round."""
    recorder = SETTINGS.recorder()
    async with working(SETTINGS, recorder) as sealing:
        recorder.seal(observed(recorder, compact(result(asks("ok", state=STATE)))))
        other = STATE.replace("issued", "given")
        body = compact(result(asks("ok", state=other) | {"text": f"{PADDING} {STATE}"}))
        sealed = await sealing.seal(observed(recorder, body))
        assert STATE.encode() not in b"".join(sealed.line)
        assert list(recorder.known) == [STATE, other]
        small = recorder.seal(observed(recorder, compact(result(text(f"again {other}")))))
        assert other.encode() not in encode_line(small.exchange)


@pytest.mark.parametrize(
    ("body", "large"),
    [
        (compact(result({"apiKey": SECRET})), False),
        (compact(result({"text": PADDING[:20_000]})), False),
        (compact(result({"apiKey": SECRET, "text": PADDING[:20_000]})), True),
        (compact(result({"text": PADDING})), True),
    ],
    ids=["small", "moderate", "moderate, with what may be a secret", "large"],
)
@looped
async def test_what_may_take_long_is_large(body: bytes, *, large: bool) -> None:
    """How large is too large depends on what may have to be searched."""
    recorder = SETTINGS.recorder()
    assert SealingProcess(SETTINGS, recorder).is_large(observed(recorder, body)) is large


@pytest.mark.parametrize("seals", [False, True])
@looped
async def test_a_request_of_moderate_size_is_large_where_answers_are_sealed(*, seals: bool) -> None:
    """Each value of an answer gets a hash of its own, which takes long for many."""
    settings = replace(SETTINGS, seals_answers=seals)
    recorder = settings.recorder()
    seen = observed(recorder, compact(result({})), numbers=[1.5] * 5000)
    assert SealingProcess(settings, recorder).is_large(seen) is seals


@pytest.mark.parametrize(
    ("value", "headers", "plain"),
    [
        ({"text": PADDING}, JSON_HEADERS, True),
        ({"apiKey": SECRET, "text": PADDING}, JSON_HEADERS, False),
        (asks("ok", state=STATE) | {"text": PADDING}, JSON_HEADERS, False),
        ({"text": PADDING, "escaped": "\u0001"}, JSON_HEADERS, False),
        ({"text": PADDING * 10}, JSON_HEADERS, False),
    ],
    ids=["text", "a secret", "a state", "an escape", "too large"],
)
@looped
async def test_plain_text_is_sealed_here(
    value: dict[str, Any], headers: Headers, *, plain: bool
) -> None:
    """What has nothing to take out needs no process, and is sealed as anything is."""
    recorder = SETTINGS.recorder()
    recorder.known.remember(OTHER)
    seen = observed(recorder, compact(result(value | {"repeated": OTHER})), headers=headers)
    assert SealingProcess(SETTINGS, recorder).is_large(seen)
    assert await is_plain_exchange(recorder, seen) is plain
    if plain:
        sealed = recorder.seal(seen, is_plain=True)
        assert encode_line(sealed.exchange) == encode_line(recorder.seal(seen).exchange)
        assert OTHER.encode() not in encode_line(sealed.exchange)


@pytest.mark.parametrize(
    ("arguments", "large"),
    [
        ({"text": PADDING}, False),
        ({"numbers": [0] * 60_000}, True),
        ({"lists": [[]] * 30_000}, True),
        ({"text": PADDING * 10}, True),
    ],
    ids=["text", "many values", "many lists", "too large"],
)
@looped
async def test_request_of_few_values_is_read_here(
    arguments: dict[str, Any], *, large: bool
) -> None:
    """A long text is read in no time; it need not go to the process first."""
    body = compact(tool_call("deploy", arguments=arguments))
    assert SealingProcess(SETTINGS, SETTINGS.recorder()).is_large_request(posted(body)) is large


@looped
async def test_request_and_message_are_read_there() -> None:
    """Of what was read come back the names, the ids and which answers there are."""
    recorder = SETTINGS.recorder()
    packed = gzip.compress(
        compact(
            tool_call("deploy", id=7, arguments={"text": PADDING}, inputResponses={"ok": PADDING})
        )
    )
    async with working(SETTINGS, recorder) as sealing:
        coded = posted(packed, ("Content-Encoding", "gzip"))
        assert sealing.is_large_request(coded)
        read_there = await sealing.read(coded)
        assert (read_there.request, read_there.method, read_there.name) == (
            coded,
            "tools/call",
            "deploy",
        )
        assert read_there.message is not None
        assert read_there.message.id == "7"
        assert read_there.answers is not None
        assert read_there.answers.input_responses == {"ok": None}
        event = b"data: %b\n\n" % compact(result(text(PADDING), id=7))
        heard = await sealing.read_message(PassedMessage(event, False, True))
        assert heard is not None
        assert (heard.id, heard.tree) == ("7", {})
        assert await sealing.read_message(PassedMessage(b"no message", True, True)) is None


@looped
async def test_large_exchange_is_on_disk_before_the_client_has_it(tmp_path: Path) -> None:
    """When the client has the last byte, the line is in the journal."""
    path = tmp_path / "c.json"
    async with taping(path, answering(json_response(result(text(PADDING))))) as tape:
        answer = await post(tape.url, message("ping"))
        assert answer.body == compact(result(text(PADDING)))
        journal = RecordedJournal(journal_path(path))
        assert journal[1].response is not None
        assert journal[1].response.body == answer.body
        journal.close()


@looped
async def test_large_response_in_one_event_ends_the_call(tmp_path: Path) -> None:
    """An event that takes too long to be read here is known to be the response all the same."""
    path = tmp_path / "c.json"
    replies = [event_stream(message("notifications/x", {"error": PADDING}), result(text(PADDING)))]
    async with taping(path, answering(*replies)) as tape:
        answer = await post(tape.url, message("ping"))
        assert answer.is_whole
    (interaction,) = read(path)["interactions"]
    assert len(interaction["response"]["events"]) == 2


@looped
async def test_large_request_is_recorded(tmp_path: Path) -> None:
    """What a client sends is read and sealed there; the log names its call."""
    path = tmp_path / "c.json"
    async with taping(path, answering(json_response(result({}, id=3)))) as tape:
        await post(tape.url, tool_call("deploy", id=3, arguments={"apiKey": SECRET, "t": PADDING}))
    assert any('tools/call "deploy" -> HTTP 200' in line for line in tape.log)
    body = raw_body(read(path)["interactions"][0]["request"])
    assert SECRET.encode() not in body
    assert PADDING.encode() in body


@looped
async def test_small_exchanges_go_on_beside_a_large_one(tmp_path: Path) -> None:
    """While a large exchange is worked on, small ones are recorded and their lines stay whole."""
    path = tmp_path / "c.json"
    values = [result(text(PADDING * 20)), *[result({})] * 20]
    replies = [json_response(value, "Connection: close") for value in values]
    async with taping(path, answering(*replies)) as tape:
        large = asyncio.create_task(post(tape.url, message("ping")))
        await asyncio.sleep(0)
        for _ in range(20):
            await post(tape.url, message("ping"))
        await large
    assert len(read(path)["interactions"]) == 21


@looped
async def test_client_that_leaves_loses_nothing(tmp_path: Path) -> None:
    """What had to be done with a response is done although nobody waits for it any more."""
    path = tmp_path / "c.json"
    async with taping(
        path, answering(json_response(result({"apiKey": SECRET, "text": PADDING})))
    ) as tape:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await post(tape.url, message("ping"))
        await asyncio.sleep(0.1)
    assert not [line for line in tape.log if "FAILED" in line]


@looped
async def test_worker_that_is_killed_is_told(tmp_path: Path) -> None:
    """The client gets every byte, and the user learns that the recording is not whole."""
    path = tmp_path / "c.json"
    recorder = SETTINGS.recorder()
    async with working(SETTINGS, recorder) as sealing:
        await sealing.seal(observed(recorder, LARGE["secrets"][0]))
        process = sealing._process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(MrtrCassetteError, match="ended by another program"):
            await sealing.seal(observed(recorder, LARGE["secrets"][0]))
    assert not path.exists()


@looped
async def test_compression_bomb_is_refused_and_told(tmp_path: Path) -> None:
    """A large body that decodes to more than 200 times its size passes, and is not recorded."""
    path = tmp_path / "c.json"
    bomb = gzip.compress(b"0" * (32 * 1024 * 1024))
    reply = response(bomb, JSON, "Content-Encoding: gzip")
    async with taping(path, answering(reply)) as tape:
        answer = await post(tape.url, message("ping"), "Accept-Encoding: gzip")
        assert answer.body == bomb
    (told,) = [line for line in tape.log if "FAILED" in line]
    assert f"decodes to more than {LARGEST_RATIO} times its size" in told


@looped
async def test_loop_goes_on_while_a_large_body_is_searched(tmp_path: Path) -> None:
    """Between two turns of the loop there is little work, whatever 4 MB consist of."""
    value = {"apiKey": SECRET, "n": [0] * (2 * 1024 * 1024)}
    longest = 0.0

    async def turns() -> None:
        nonlocal longest
        last = time.thread_time()
        while True:
            await asyncio.sleep(0.001)
            now = time.thread_time()
            longest = max(longest, now - last)
            last = now

    recorder = SETTINGS.recorder()
    seen = observed(recorder, compact(result(value)))
    async with working(SETTINGS, recorder) as sealing:
        turning = asyncio.create_task(turns())
        await sealing.seal(seen)
        turning.cancel()
    # In processor time the search takes a quarter of a second.
    assert longest < 0.1
