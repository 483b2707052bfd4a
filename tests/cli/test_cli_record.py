"""Facts about `record` and `recover` as programs."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from commands import (
    STATE,
    UPSTREAM,
    asking,
    caller,
    conversation,
    pinged,
    words_to_record,
)
from harness import Outcome, command, http, looped, post, read, run, run_here, taping
from messages import message, result, tool_call
from standin import Visit, answering, json_response, response, upstream

from mrtr_cassette.shell.runs.running import in_thread

PONG = json_response(result({}, id=0))


def recording(
    path: Path, *replies: bytes, client: list[str], options: tuple[str, ...] = ()
) -> Outcome:
    """Record a client of a server with these replies, in this process."""
    with in_thread(upstream(answering(*replies))) as server:
        words = (*words_to_record(path, server.url), *options)
        return run_here(*words, "--", *client)


@looped
async def test_a_signal_ends_a_recording_in_good_order(tmp_path: Path) -> None:
    """The cassette is written where the program was started; stdout has one line, the code is 0."""
    path = tmp_path / "cassette.json"
    program = shutil.which("mrtr-cassette", path=Path(sys.executable).parent)

    assert program is not None

    async with (
        upstream(asking) as server,
        command(
            "record",
            "--port",
            0,
            "-o",
            path.name,
            server.url,
            program=[program],
            cwd=tmp_path,
        ) as process,
    ):
        url = await process.listening()
        await conversation(url)
        ended = await process.stopped()

    assert process.first_line == f"listening on {url}\n"
    assert (ended.code, ended.out) == (0, "")

    said, *_, wrote = ended.err.splitlines()

    assert said == "point the client there; Ctrl-C writes cassette.json"
    assert wrote == f"wrote {path.name}: 2 interactions, 3 exchanges recorded"
    assert len(read(path)["interactions"]) == 2
    assert [path.name for path in tmp_path.iterdir()] == [path.name]
    assert STATE not in ended.err + path.read_text()


@looped
async def test_secret_of_the_address_is_what_the_client_has_to_put_in(
    tmp_path: Path,
) -> None:
    """The address is printed with a placeholder, by which no server knows a client."""
    async with (
        upstream(asking) as server,
        command(
            "record", "--port", 0, "-o", tmp_path / "c", f"{server.url}?api_key={STATE}"
        ) as process,
    ):
        url = await process.listening()
        ended = await process.stopped()

    assert url.endswith("?api_key=%3Capi-key:1%3E")
    assert "with the secrets in the places of their placeholders; Ctrl-C" in ended.err


def test_an_upstream_that_is_away_is_told_and_survived(tmp_path: Path) -> None:
    """A recording in which the upstream never answered says so, writes nothing and ends with 4."""
    program = [sys.executable, "-c", SWALLOWING]
    ended = run_here(
        "record", "--port", 0, *UPSTREAM, "--output", tmp_path / "c", "--", *program
    )

    assert ended.code == 4
    assert "gave no response" in ended.err
    assert ended.err.splitlines()[-1] == "nothing was recorded, no cassette was written"
    assert list(tmp_path.iterdir()) == []


SWALLOWING = """
import os, urllib.request
from contextlib import suppress

for _ in range(2):
    with suppress(OSError):
        body = b'{"jsonrpc":"2.0","id":0,"method":"ping"}'
        urllib.request.urlopen(os.environ["MRTR_CASSETTE_URL"], body).read()
"""


def test_a_command_is_recorded(tmp_path: Path) -> None:
    """`-- CLIENT` finds the URL, and its end ends the recording; a URL needs no option."""
    path = tmp_path / "c.json"
    with in_thread(upstream(answering(PONG))) as server:
        ended = run_here("record", "--output", path, server.url, "--", *caller("ping"))

    assert ended.code == 0
    assert len(read(path)["interactions"]) == 1


LOGGING_IN = """
import os, urllib.request

call = b'{"jsonrpc":"2.0","id":0,"method":"tools/call","params":{"name":"login","arguments":%s}}'
headers = {"Content-Type": "application/json"}
body = call % b'{"password":"open sesame"}'
url = os.environ["MRTR_CASSETTE_URL"]
urllib.request.urlopen(urllib.request.Request(url, body, headers)).read()
"""


def test_a_report_has_what_a_recording_came_to(tmp_path: Path) -> None:
    """`--report` has the facts of the last line and what was replaced, as JSON."""
    path = tmp_path / "c.json"
    report = tmp_path / "report.json"
    client = [sys.executable, "-c", LOGGING_IN]
    ended = recording(path, PONG, client=client, options=("--report", str(report)))

    assert ended.code == 0

    facts = read(report)

    assert (facts["cassette"], facts["interactions"], facts["exchanges"]) == (
        str(path),
        1,
        1,
    )

    calls = [{"interaction": 1, "call": 'tools/call "login"'}]

    assert facts["redacted"] == [{"rule": "password", "count": 1, "calls": calls}]
    assert '  redacted: password ×1 (#1 tools/call "login")' in ended.err.splitlines()
    assert "sesame" not in ended.err + report.read_text() + path.read_text()


@pytest.mark.parametrize(
    ("reply", "client", "code", "what"),
    [
        (PONG, caller("ping", code=7), 7, f"{sys.executable!r} ended with 7"),
        (
            response(b"no", status="404 Not Found"),
            [sys.executable, "-c", SWALLOWING],
            4,
            "all 2 requests got 404; is the path /mcp right?",
        ),
    ],
)
def test_what_is_hardly_meant_leaves_no_cassette(
    tmp_path: Path, reply: bytes, client: list[str], code: int, what: str
) -> None:
    """After a failed command, or errors only, the journal stays, and `recover` publishes it."""
    path = tmp_path / "c.json"
    ended = recording(path, reply, reply, client=client)

    assert ended.code == code
    assert ended.err.endswith(
        f"{path} was not written: {what}\n"
        "the recording is in the journal beside it; publish it with: "
        f"mrtr-cassette recover {path} (or delete the journal)\n"
    )

    assert [path.name for path in tmp_path.iterdir()] == ["c.json.journal"]

    # What has only errors is in nobody's way.
    again = recording(path, reply, reply, client=client)

    assert ("ended before it was published" in again.err) == (code == 7)
    assert run_here("recover", path).code == 0
    assert read(path)["interactions"]


def test_a_command_that_asked_nothing_is_no_recording(tmp_path: Path) -> None:
    """`record -- CLIENT` says so where no request came, and ends with 1."""
    ended = recording(tmp_path / "c.json", client=caller())

    assert ended.code == 1
    assert ended.err.splitlines() == [
        "nothing was recorded, no cassette was written",
        f"error: no client came; does {sys.executable!r} read MRTR_CASSETTE_URL?",
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "numbers", [(signal.SIGINT, signal.SIGTERM), (signal.SIGTERM,), (signal.SIGHUP,)]
)
@looped
async def test_a_signal_ends_the_command_and_the_recording(
    tmp_path: Path, numbers: tuple[signal.Signals, ...]
) -> None:
    """A signal to us ends the command too, and what it did until then is published.

    After SIGINT a second one does: a terminal would have sent the first to the command as well.
    """
    path = tmp_path / "c.json"
    waits = caller(
        "ping", then="import signal; print('done', flush=True); signal.pause()"
    )
    async with (
        upstream(answering(PONG)) as server,
        command(*words_to_record(path, server.url), "--", *waits) as process,
    ):
        await process.listening()

        assert process.process.stdout is not None

        await process.process.stdout.readuntil(b"done\n")
        for number in numbers:
            process.kill(number)

        ended = await process.ended()

    assert ended.code == 128 + signal.SIGTERM
    assert len(read(path)["interactions"]) == 1


# --- What exists, and what can't be written ---


def test_force_replaces_what_exists_but_not_by_nothing(tmp_path: Path) -> None:
    """What exists is refused with what to do; with `--force` a recording takes its place."""
    path = tmp_path / "c.json"
    path.write_text("precious")

    assert run_here("record", "--port", 0, "--output", path, *UPSTREAM) == Outcome(
        3,
        "",
        f"error: {path}: the cassette exists; use --force to replace it or --append to add to it\n",
    )

    recording(path, client=caller(), options=("--force",))

    assert path.read_text() == "precious"
    assert recording(path, PONG, client=caller("ping"), options=("--force",)).code == 0
    assert len(read(path)["interactions"]) == 1

    before = path.stat().st_mtime_ns, path.read_bytes()
    again = recording(path, PONG, client=caller("ping"), options=("--force",))

    assert (path.stat().st_mtime_ns, path.read_bytes()) == before
    assert again.err.endswith(
        f"{path}: 1 interaction, same, kept, 1 exchange recorded\n"
    )


@pytest.mark.parametrize("option", ["--force", "--append", None])
def test_json_that_is_no_cassette_is_never_replaced(
    tmp_path: Path, option: str | None
) -> None:
    """A file of another kind is named as such, and stays, whatever is to become of a cassette."""
    path = tmp_path / "package.json"
    path.write_text('{"name": "precious"}')
    options = [] if option is None else [option]
    done = run_here("record", "--port", 0, "--output", path, *options, *UPSTREAM)

    assert done.code == 3
    assert done.err.startswith(f"error: {path}: JSON, but not a cassette")
    assert path.read_text() == '{"name": "precious"}'


@looped
async def test_append_adds_what_is_missing(tmp_path: Path) -> None:
    """`--append` plays what is there, records the rest, and then has nothing left to do."""
    path = await pinged(tmp_path / "c.json")
    said = []
    async with upstream(asking) as server:
        for _ in range(2):
            async with command(
                *words_to_record(path, server.url), "--append"
            ) as process:
                url = await process.listening()

                assert (
                    await run("inspect", path)
                ).err == ""  # no note of a living recorder

                await post(url, message("ping"))
                await conversation(url)
                ended = await process.stopped()

                assert ended.code == 0

                said.append(ended.err.splitlines()[-1])

        assert len(server.received) == 3

    assert said == [
        f"wrote {path}: 3 interactions, 3 exchanges recorded, 1 played",
        f"{path} stays as it is, 0 exchanges recorded, 4 played",
    ]


@looped
async def test_append_that_cannot_be_led_exits_with_1(tmp_path: Path) -> None:
    """A retry to an ask that the live server does not repeat is told, counted, and fails the run."""
    path = tmp_path / "c.json"
    async with taping(path, asking) as tape:
        await post(tape.url, tool_call("deploy", id=1))

    before = path.read_bytes()

    async def script(visit: Visit) -> None:
        await visit.send(json_response(result({}, id=visit.request.json["id"])))

    async with (
        upstream(script) as server,
        command(*words_to_record(path, server.url), "--append") as process,
    ):
        await conversation(await process.listening())
        ended = await process.stopped()

    assert ended.code == 1
    assert (
        "\nmiss: unrecorded: the live server asks nothing in turn 1: HTTP 200\n"
        in ended.err
    )

    assert ended.err.endswith(
        f"{path} stays as it is, 0 exchanges recorded, 1 played, 2 could not be recorded\n"
    )
    assert path.read_bytes() == before


# --- Recorders that were killed ---


async def killed(path: Path, *options: object) -> None:
    """Kill a recorder after three whole exchanges and one that is under way."""
    came = asyncio.Event()

    async def script(visit: Visit) -> None:
        if visit.request.head.line.startswith("GET"):
            came.set()
            await visit.left()
        else:
            await asking(visit)

    async with (
        upstream(script) as server,
        command(*words_to_record(path, server.url), *options) as process,
    ):
        url = await process.listening()
        await conversation(url)
        pending = asyncio.create_task(http("GET", url))
        await came.wait()
        second = await run("record", "--port", 0, "--output", path, *UPSTREAM, *options)
        assert (second.code, second.out) == (3, "")
        assert "another recorder is writing" in second.err
        recover = await run("recover", path)
        assert recover.code == 3
        assert "its recorder is still running; stop it first" in recover.err
        process.kill(signal.SIGKILL)
        assert (await process.ended()).code == -signal.SIGKILL
        await asyncio.gather(pending, return_exceptions=True)


@looped
async def test_a_killed_recording_is_recovered(tmp_path: Path) -> None:
    """After `kill -9` every command says `recover`, which gives all that was complete; it plays."""
    path = tmp_path / "c.json"
    journal = tmp_path / "c.json.journal"
    await killed(path)

    assert [path.name for path in tmp_path.iterdir()] == [journal.name]

    kept = journal.read_bytes()
    for arguments in (
        ("record", "--port", 0, *UPSTREAM, "--output", path),
        ("replay", path),
        ("inspect", path),
    ):
        ended = await run(*arguments)

        assert (ended.code, ended.out) == (3, "")
        assert f"mrtr-cassette recover {path}" in ended.err

    path.write_text("precious")
    ended = await run("recover", path)

    assert (ended.code, path.read_text()) == (3, "precious")
    assert not any(option in ended.err for option in ("--force", "--append"))

    path.unlink()

    assert await run("recover", path) == Outcome(
        0, "", f"wrote {path}: 2 interactions, 3 exchanges recorded\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["c.json"]

    async with command("replay", path, "--port", 0) as process:
        assert len(await conversation(await process.listening())) == 3
        assert (
            await process.stopped()
        ).err == "played 2 of 2 interactions, no misses\n"

    # Killed between the two steps of publishing: the cassette has all of it.
    journal.write_bytes(kept)
    (tmp_path / f".mrtr-cassette-{sha256(b'c.json').hexdigest()[:8]}-left").touch()

    assert (await run("recover", path)).code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["c.json"]

    again = await run("recover", path)

    assert (again.code, again.out) == (3, "")
    assert "there is no journal to recover" in again.err

    path.unlink()
    journal.write_bytes(kept[:-20])

    assert "is incomplete (" in (await run("recover", path)).err


@pytest.mark.parametrize("is_dangling", [False, True])
def test_a_link_is_not_followed_out_of_its_folder(
    tmp_path: Path, *, is_dangling: bool
) -> None:
    """No file elsewhere is written, read or removed by a link that came with a stranger's folder."""
    folder = tmp_path / "theirs"
    path = tmp_path / "theirs" / "c.json"
    folder.mkdir()

    assert recording(path, PONG, client=caller("ping", code=7)).code == 7

    outside = tmp_path / "precious"
    if not is_dangling:
        outside.write_text("precious")

    before = path.with_name("c.json.journal").read_bytes()

    def refused(name: str, *words: str) -> None:
        link = folder / name
        link.symlink_to(Path("..") / outside.name)
        if words:
            ended = run_here(*words)
        else:
            ended = recording(path, client=caller(), options=("--force",))

        assert ended.code == 3
        assert "link that leads out of its folder" in ended.err
        assert (link.is_symlink(), outside.exists()) == (True, not is_dangling)

        link.unlink()

    refused("c.json", "recover", str(path))

    assert path.with_name("c.json.journal").read_bytes() == before

    path.with_name("c.json.journal").unlink()
    refused("c.json")
    refused("c.json.journal")
    refused("c.json.journal", "recover", str(path))

    assert is_dangling or outside.read_text() == "precious"


@looped
async def test_what_was_killed_beside_a_cassette_is_recovered_as_it_was_meant(
    tmp_path: Path,
) -> None:
    """The earlier cassette plays as it is, with a note; `recover` adds, once."""
    path = await pinged(tmp_path / "c.json")
    journal = tmp_path / "c.json.journal"
    before = path.read_bytes()
    await killed(path, "--append")

    assert path.read_bytes() == before

    note = f"mrtr-cassette recover {path} (or delete the journal)"
    shown = await run("inspect", path)

    assert (shown.code, shown.err.count(note)) == (0, 1)
    assert shown.err.startswith(
        f"note: {path}.journal: an earlier recording ended before it was"
    )

    told = await run(
        "replay", path, "--port", 0, "--log-format", "json", "--", *caller("ping")
    )

    assert (
        next(json.loads(line)["event"] for line in told.err.splitlines())
        == "unpublished"
    )

    kept = journal.read_bytes()

    assert await run("recover", path) == Outcome(
        0, "", f"wrote {path}: 3 interactions, 3 exchanges recorded\n"
    )
    assert (await run("inspect", path)).err == ""

    # As of a recorder that was killed between publishing and the end of its journal.
    published = path.read_bytes()
    journal.write_bytes(kept)
    ended = await run("recover", path)

    assert (ended.code, ended.out) == (0, "")
    assert ended.err.startswith(f"{path} is complete; ")
    assert [path.name for path in tmp_path.iterdir()] == ["c.json"]
    assert path.read_bytes() == published


@looped
async def test_recover_ends_a_recording_as_record_would_have(tmp_path: Path) -> None:
    """It keeps what `--ignore` says is the same, and tells the counts and what was redacted."""
    path = tmp_path / "c.json"
    login = tool_call("login", arguments={"password": "correct-horse-7"})
    first = ""
    told = []
    texts = []
    for number, is_killed in ((1, False), (2, False), (2, True)):
        replies = [
            json_response(result({"at": number})),
            json_response(result({"of": number})),
        ]

        options = ("-o", path, "--force", "--ignore", "/result/at")
        async with (
            upstream(answering(*replies)) as server,
            command("record", "--port", 0, *options, server.url) as process,
        ):
            url = await process.listening()
            for body in (tool_call("clock"), login):
                await post(url, body)

            if is_killed:
                process.kill(signal.SIGKILL)
                await process.ended()
                ended = await run("recover", path)
            else:
                ended = await process.stopped()

        told.append(ended.err.partition("wrote ")[2])
        texts.append(path.read_text().partition('"recording"')[0])
        # The third one is recorded over what the second one was.
        first = first if number == 2 else path.read_text()
        path.write_text(first)

    redacted = '  redacted: password ×1 (#2 tools/call "login")\n'
    counts = f"{path}: 2 interactions (1 kept), 2 exchanges recorded\n"

    assert told[1:] == [counts + redacted] * 2
    assert texts[1] == texts[2] != texts[0]
