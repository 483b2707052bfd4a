"""Recording, adding and replaying on pipes, as processes that a client starts."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import termios
import threading
from pathlib import Path
from pipes import (
    LINES_SERVER,
    call,
    piped,
    processes_with,
    recorder,
    spoken,
    stays_recent,
    until,
)
from typing import Any

import pytest
from builders import cassette_of, encode_cassette, notification, rpc
from harness import looped, read
from messages import text
from processes import PEERS, PROGRAM, run

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.protocol.calls import session_of
from mrtr_cassette.core.record.sealing import ExchangeSealer
from mrtr_cassette.core.wire.http import line_request
from mrtr_cassette.shell.files.cassettes import load_cassette
from mrtr_cassette.shell.pipes.lines import pipe_reads
from mrtr_cassette.shell.pipes.processes import GracePeriods, server_process
from mrtr_cassette.shell.pipes.upstream import pipe_upstream

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
    pytest.mark.usefixtures("forks_programs"),
]


ANOTHER = [sys.executable, str(PEERS / "client_of_clients.py")]
"""Another client, which starts the rest of the command."""


def ask(number: int, **params: Any) -> bytes:
    """Return a request that says what the server is to do, as a line."""
    return rpc("tools/list", params, number) + b"\n"


def lines_of(cassette: Cassette) -> list[tuple[bytes, list[bytes] | None]]:
    """Return each request's body with the lines of its response."""
    found: list[tuple[bytes, list[bytes] | None]] = []
    for interaction in cassette.interactions:
        for exchange in interaction.exchanges:
            lines = None
            if exchange.response is not None:
                lines = [piece.raw for piece in exchange.response.pieces]

            found.append((exchange.request.body, lines))

    return found


def unread_bytes(pipe: int) -> int:
    """Return how many bytes of a pipe nobody has read."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


@looped
async def test_reader_that_is_left_takes_nothing_of_another_file() -> None:
    """The number of a descriptor that is closed is the next file's, such as the next server's."""
    source, target = os.pipe()
    other_source, other_target = os.pipe()
    threads = set(threading.enumerate())
    reads = pipe_reads(source, 1_000)
    os.write(target, b"taken\n")
    await anext(reads)
    # These fill the room of the thread, which then waits with one more.
    for _ in range(16):
        os.write(target, b"untaken\n")
        while unread_bytes(source):
            os.sched_yield()

    reopened = os.dup(source)
    os.dup2(other_source, source)
    os.write(other_target, b"another's\n")
    os.write(target, b"last\n")
    (thread,) = set(threading.enumerate()) - threads
    await reads.aclose()
    await asyncio.to_thread(thread.join)

    assert unread_bytes(other_source) == len(b"another's\n")

    for descriptor in (source, reopened, target, other_source, other_target):
        os.close(descriptor)


@pytest.mark.parametrize(
    "raw",
    [
        ask(1) + ask(2, say="noise\nmore "),
        ask(1, echo=True) + b"no json\n\xff\xfe\n\r\n\n" + ask(2)[:-1],
        ask(1, echo=True) + b"x" * 300_000 + b"\n" + ask(2, big=300_000),
        b"",
    ],
)
def test_bytes_pass_untouched(tmp_path: Path, raw: bytes) -> None:
    """The client gets the bytes that the server says, and the server those of the client."""
    with_us = spoken(recorder(tmp_path / "c.json"), raw)
    without = spoken(LINES_SERVER, raw)

    assert with_us.stdout == without.stdout
    assert with_us.returncode == without.returncode == 0


FRAMED_SERVER = """
import sys
heard, said = sys.stdin.buffer, sys.stdout.buffer
while header := heard.readline():
    frame = header + heard.readline() + heard.read(int(header.split(b":")[1]))
    said.write(frame)
    said.flush()
"""
"""A server whose messages have their length before them, and no end of a line behind."""


def test_bytes_that_end_no_line_pass_when_nothing_more_comes(tmp_path: Path) -> None:
    """Client and server wait for nothing; what they said is recorded as it is, and told once."""
    output = tmp_path / "c.json"
    errors = tmp_path / "err"
    frames = [b"Content-Length: 4\r\n\r\n{12}", b"Content-Length: 3\r\n\r\n345"]

    with piped(
        recorder(output, sys.executable, "-c", FRAMED_SERVER), stderr=errors
    ) as pipe:
        for frame in frames:
            pipe.say(frame)
            heard = b""
            while len(heard) < len(frame):
                heard += pipe.stdout.read(len(frame) - len(heard))

            assert heard == frame

        assert pipe.end() == (b"", 0)

    lines = [
        b"Content-Length: 4\r\n",
        b"\r\n",
        b"{12}Content-Length: 3\r\n",
        b"\r\n",
        b"345",
    ]

    (by_server, said), *by_client = lines_of(load_cassette(output))

    assert (by_server, said) == (b"", lines)
    assert by_client == [(line.strip() or line, None) for line in lines]
    assert errors.read_text().count("framed by Content-Length") == 2


def test_a_later_recording_of_one_parent_is_its_own(tmp_path: Path) -> None:
    """A start of the same process belongs to the last one only within seconds."""
    output = tmp_path / "c.json"
    spoken(recorder(output), call(1, a=1))
    os.utime(output, (0, 0))

    assert spoken(recorder(output, options=("--force",)), call(1, a=2)).returncode == 0

    (interaction,) = load_cassette(output).interactions

    assert b'"a":2' in interaction.exchanges[0].request.body

    os.utime(output, (0, 0))

    assert spoken(recorder(output), call(1, a=3)).returncode == 3
    assert len(load_cassette(output).interactions) == 1


def test_a_probe_is_continued_however_late_the_work_begins(tmp_path: Path) -> None:
    """The TypeScript SDK's client starts a server for its probe and another for its calls."""
    output = tmp_path / "c.json"
    probe = rpc("server/discover", {}, "server-discover-probe-1") + b"\n"
    spoken(recorder(output), probe)
    os.utime(output, (0, 0))

    assert spoken(recorder(output, options=("--force",)), call(1)).returncode == 0

    methods = [request for request, _ in lines_of(load_cassette(output))]

    assert [b"server/discover" in request for request in methods] == [True, False]


def test_recordings_of_one_shell_replace_with_force(tmp_path: Path) -> None:
    """A shell is no client: what it runs one after the other is not one recording."""
    output = tmp_path / "c.json"
    said = tmp_path / "said"
    said.write_bytes(call(1, a=1))
    run = shlex.join(recorder(output, options=("--force",)))
    script = f"{run} < {said}\n{run} < {said}\n"
    for words in [], ["-c", script]:
        shell = ["/bin/sh", *words]
        subprocess.run(shell, input=script, text=True, check=True, capture_output=True)

        assert len(load_cassette(output).interactions) == 1


def test_what_passes_is_recorded(tmp_path: Path) -> None:
    """Each line is an exchange's request, or a line of the response to one."""
    output = tmp_path / "c.json"
    ready = '{"jsonrpc":"2.0","method":"notifications/message"}\n'

    with piped(recorder(output)) as pipe:
        pipe.say(b"hello\n" + ask(1, say=ready))
        said = [pipe.hear(), pipe.hear()]
        pipe.say(ask(2))
        said += [pipe.hear()]

        assert pipe.end() == (b"", 0)

    assert lines_of(load_cassette(output)) == [
        (b"hello", None),
        (ask(1, say=ready)[:-1], said[:2]),
        (ask(2)[:-1], said[2:]),
    ]

    assert load_cassette(output).transport == "stdio"
    assert load_cassette(output).upstream.endswith("server_lines.py")


def test_response_is_on_disk_before_the_client_has_it(tmp_path: Path) -> None:
    """However this program is killed, `recover` publishes every response that the client has."""
    chance = random.Random(11)
    output = tmp_path / "c.json"
    with piped(recorder(output)) as pipe:
        count = chance.randrange(1, 40)
        for number in range(count):
            pipe.say(ask(number))
            heard = pipe.hear()

        pipe.signal(signal.SIGKILL)
        pipe.process.wait()

        assert run([*PROGRAM, "recover", str(output)]).code == 0

        recorded = lines_of(load_cassette(output))

        assert len(recorded) == count
        assert recorded[-1] == (ask(count - 1)[:-1], [heard])

    assert until(lambda: not processes_with(str(output)))


def test_exit_code_is_the_servers(tmp_path: Path) -> None:
    """Whether it ends because the client does or of its own accord, its code is ours."""
    code = 3
    at_the_end = spoken(
        recorder(tmp_path / "a.json", *LINES_SERVER, "--code", str(code)), ask(1)
    )
    of_itself = tmp_path / "b.json"
    with piped(recorder(of_itself)) as pipe:
        pipe.say(ask(1) + ask(2, exit=code))
        answered = pipe.hear()

        assert pipe.hear() == b""
        assert pipe.process.wait(30) == code

    assert at_the_end.returncode == code
    assert answered

    ends = {}
    for interaction in load_cassette(of_itself).interactions:
        for exchange in interaction.exchanges:
            assert exchange.response is not None

            ends[exchange.request.body] = exchange.response.end.value

    assert ends[ask(1).rstrip()] == "complete"
    assert ends[ask(2, exit=code).rstrip()] == "broken"


def test_what_is_said_after_the_end_of_the_client_is_recorded_too(
    tmp_path: Path,
) -> None:
    """The server may finish when its stdin has ended; the client gets that, and so do we."""
    output = tmp_path / "c.json"

    done = spoken(recorder(output, *LINES_SERVER, "--last", "bye"), ask(1))

    assert done.stdout.endswith(b"}\nbye")
    assert lines_of(load_cassette(output))[0] == (b"", [b"bye"])


@pytest.mark.parametrize(
    "how", ["closed and signal", "interrupt", "signal while adding"]
)
def test_deaf_server_with_a_child_is_ended_in_time(tmp_path: Path, how: str) -> None:
    """Signals end what ignores SIGTERM and the end of stdin, children included, and publish."""
    output = tmp_path / "c.json"
    mark = f"--mark={tmp_path}"
    options = ("--append",) if how == "signal while adding" else ()
    if options:
        said(recorder(output), call(1, a=1))

    command = recorder(
        output, *LINES_SERVER, "--deaf", "--child", mark, options=options
    )
    with piped(command) as pipe:
        pipe.say(call(2, a=2))

        assert pipe.hear()

        if how == "closed and signal":
            pipe.stdin.close()

        pipe.signal(signal.SIGINT if how == "interrupt" else signal.SIGTERM)

        assert pipe.process.wait(30) == 128 + signal.SIGKILL

    assert len(load_cassette(output).interactions) == 1 + len(options)
    assert until(lambda: not processes_with(mark))


@looped
async def test_server_that_is_deaf_to_the_end_of_its_client_is_ended(
    tmp_path: Path,
) -> None:
    """SIGTERM follows the end of its stdin, and SIGKILL that, for its child too."""
    command = (*LINES_SERVER, "--deaf", "--child", f"--mark={tmp_path}")
    grace = GracePeriods(after_close=0.01, after_sigterm=0.01)
    with server_process(
        command, ExchangeSealer(seals_states=False).add_settings, grace=grace
    ) as server:
        server.writer.write(ask(1))
        heard = server.stdout_reads(1000)

        assert len((await anext(heard)).lines) == 1

        closing = asyncio.ensure_future(server.close_stdin())
        said = asyncio.ensure_future(anext(heard))

        assert not await server.wait_until_ended(asyncio.Event(), said)

        await closing
        said.cancel()

        assert server.exit_code == 128 + signal.SIGKILL

    assert until(lambda: not processes_with(f"--mark={tmp_path}"))


@looped
async def test_server_does_not_outlive_its_client_that_is_cancelled_twice(
    tmp_path: Path,
) -> None:
    """Where nobody waits for its end any longer, a deaf server is killed, with its child."""
    command = (*LINES_SERVER, "--deaf", "--child", f"--mark={tmp_path}")
    began = asyncio.Event()

    async def calling() -> None:
        add_settings = ExchangeSealer(seals_states=False).add_settings
        async with pipe_upstream(command, 1000, add_settings) as upstream:
            await (await upstream.send_request(line_request(call(1)))).read()
            began.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(calling())
    await began.wait()
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)

    with pytest.raises(asyncio.CancelledError):
        await task

    assert until(lambda: not processes_with(f"--mark={tmp_path}"))


def test_killed_recorder_leaves_no_process(tmp_path: Path) -> None:
    """Where this program is killed, a deaf server and its children end too."""
    output = tmp_path / "c.json"
    mark = f"--mark={output}"
    with piped(recorder(output, *LINES_SERVER, "--deaf", "--child", mark)) as pipe:
        pipe.say(ask(1))

        assert pipe.hear()

        pipe.signal(signal.SIGKILL)
        pipe.process.wait()

    assert until(lambda: not processes_with(f"{output}"))


def test_server_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    """A command that does not exist is an error with a shell's exit code, and leaves nothing."""
    done = spoken(recorder(tmp_path / "c.json", "no-such-server"), ask(1))

    assert done.returncode == 127
    assert b"error: can't run the server 'no-such-server': no such file" in done.stderr
    assert done.stdout == b""
    assert list(tmp_path.iterdir()) == []


def test_server_that_answers_nothing_leaves_no_cassette(tmp_path: Path) -> None:
    """A server that ends before it has answered is no recording; its code is ours."""
    output = tmp_path / "c.json"

    done = spoken(recorder(output), ask(1, exit=7))

    assert done.returncode == 7
    assert b"ended with 7 and answered nothing" in done.stderr
    assert not output.exists()

    # What has no response is in nobody's way.
    again = spoken(recorder(output), ask(1))

    assert again.returncode == 0
    assert output.exists()
    assert not output.with_name("c.json.journal").exists()


@pytest.fixture
def own_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let recorders keep their marks where they go with the test."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@pytest.mark.usefixtures("own_temporary_files")
def test_recording_over_a_cassette_leaves_alone_what_is_the_same(
    tmp_path: Path,
) -> None:
    """Another client's ids and traces are no change; a call that it adds is one."""
    output = tmp_path / "c.json"
    files = []
    for first, more in (
        ("a-1", b""),
        ("b-1", b""),
        ("c-1", rpc("ping", {}, 9) + b"\n"),
    ):
        line = rpc("tools/list", {"_meta": {"traceparent": first}}, first) + b"\n"
        command = [*ANOTHER, *recorder(output, options=["--force"])]

        assert spoken(command, line + more).returncode == 0

        files.append((output.stat().st_mtime_ns, read(output)["interactions"]))

    assert files[0] == files[1]
    assert files[2][1][:-1] == files[0][1]
    assert len(files[2][1]) == 2


@pytest.mark.usefixtures("own_temporary_files")
def test_further_start_adds_to_a_cassette_that_the_first_one_left_alone(
    tmp_path: Path,
) -> None:
    """What the client recorded first was the same; it stays, with what comes then."""
    output = tmp_path / "c.json"
    starts = [*ANOTHER, "--each-line", *recorder(output, options=["--force"])]
    files = []
    for lines in (ask(1), ask(1) + rpc("ping", {}, 9) + b"\n"):
        assert spoken(starts, lines).returncode == 0

        files.append(read(output)["interactions"])

    assert files[1][:-1] == files[0]
    assert len(files[1]) == 2


@pytest.mark.usefixtures("own_temporary_files")
def test_cassette_that_was_left_alone_long_ago_hides_no_newer_one(
    tmp_path: Path,
) -> None:
    """A further start belongs to what the one just before it has recorded."""
    output = tmp_path / "c.json"
    for value, is_late, count in (
        (1, False, 1),
        (1, True, 1),
        (2, True, 1),
        (3, False, 2),
    ):
        if is_late:
            for path in tmp_path.iterdir():
                os.utime(path, (0, 0))
        elif output.exists():
            stays_recent(output)

        spoken(recorder(output, options=["--force"]), call(1, a=value))

        assert len(load_cassette(output).interactions) == count


def test_client_need_not_wait_for_the_end_of_its_first_server(tmp_path: Path) -> None:
    """A further start waits until the first recording is published, or publishes what it left."""
    output = tmp_path / "c.json"
    with piped(recorder(output, *LINES_SERVER, "--deaf")) as first:
        first.say(ask(1))

        assert first.hear()

        first.stdin.close()
        first.signal(signal.SIGTERM)

        assert spoken(recorder(output), ask(2)).returncode == 0

    stays_recent(output)
    with piped(recorder(output)) as killed:
        killed.say(ask(3))

        assert killed.hear()

        killed.signal(signal.SIGKILL)
        killed.process.wait()

        assert spoken(recorder(output), ask(4)).returncode == 0

    bodies = [json.loads(body)["id"] for body, _ in lines_of(load_cassette(output))]

    assert bodies == [1, 2, 3, 4]


def test_cassette_of_another_client_is_not_touched(tmp_path: Path) -> None:
    """A second client's recorder on the same file is refused, whether the first one still runs."""
    output = tmp_path / "c.json"

    with piped([*ANOTHER, *recorder(output)]) as pipe:
        pipe.say(ask(1))

        assert pipe.hear()

        refused = spoken(recorder(output), ask(2))

        assert refused.returncode == 3
        assert b"another recorder is writing this recording" in refused.stderr
        assert pipe.end() == (b"", 0)

    before = output.read_bytes()
    refused = spoken(recorder(output), ask(2))

    assert refused.returncode == 3
    assert b"the cassette exists" in refused.stderr
    assert refused.stdout == b""
    assert output.read_bytes() == before


def test_line_that_is_too_long_passes_and_fails_the_run(tmp_path: Path) -> None:
    """A line beyond the limit passes whole; the recording says that it lacks it."""
    raw = ask(1) + ask(2, big=1_200_000)

    done = spoken(recorder(tmp_path / "c.json", options=("--max-body", "1")), raw)

    assert done.stdout == spoken(LINES_SERVER, raw).stdout
    assert done.returncode == 3
    assert b"a line has more than 1,048,576 bytes and is not recorded" in done.stderr


def test_client_that_stops_listening_ends_the_server(tmp_path: Path) -> None:
    """Where nobody takes what the server says, its stdin is closed, and all is published."""
    output = tmp_path / "c.json"
    with piped(recorder(output)) as pipe:
        pipe.say(ask(1))

        assert pipe.hear()

        pipe.stdout.close()
        pipe.say(ask(2))
        pipe.stdin.close()

        assert pipe.process.wait(30) == 0

    assert len(load_cassette(output).interactions) == 2


def test_descriptors_are_not_handed_on(tmp_path: Path) -> None:
    """The server has stdin, stdout and stderr, and nothing else of this program."""
    code = "import os; print(sorted(os.listdir('/proc/self/fd')), flush=True); input()"
    with piped(recorder(tmp_path / "c.json", sys.executable, "-c", code)) as pipe:
        assert pipe.hear() == b"['0', '1', '2', '3']\n"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--stdio",), "--stdio needs a command"),
        (
            ("--stdio", "--upstream", "http://x", "--", "server"),
            "--stdio needs a command",
        ),
        (
            ("--stdio", "--port", "1", "--", "server"),
            "--port and --stdio don't go together",
        ),
        ((), "there is no server to record"),
        (("--upstream", " "), "there is no server to record"),
        (("--upstream", "a 'b"), '--upstream "a \'b": no closing quotation'),
    ],
)
def test_what_does_not_go_together_is_refused(
    arguments: tuple[str, ...], reason: str
) -> None:
    """Options of HTTP on pipes, no server, or a command that a shell could not read."""
    done = run([*PROGRAM, "record", *arguments])

    assert done.code == 2
    assert reason in done.stderr


# Adding

INITIALIZED = notification("notifications/initialized") + b"\n"


STRICT_SERVER = """
import json, sys
opened = set()
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        opened.add(message["method"])
        continue
    if message["method"] == "initialize":
        opened.add("initialize")
    ready = len(opened) == 2 or message["method"] == "initialize"
    outcome = {"result": message["params"]} if ready else {"error": {"code": -1, "message": "shut"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}), flush=True)
"""


COUNTER = """
import json, sys
count = 0
for line in sys.stdin:
    message = json.loads(line)
    count += 1
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"value": count}}), flush=True)
"""


def initialize(number: int = 0) -> bytes:
    """Return a client's first line before 2026-07-28."""
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "c"},
    }
    return rpc("initialize", params, number) + b"\n"


def said(command: list[str], *lines: bytes) -> list[Any]:
    """Say lines one after the other, and return the answers to those that get one."""
    answers = []
    with piped(command) as pipe:
        for line in lines:
            pipe.say(line)
            if b'"id"' in line:
                answers.append(json.loads(pipe.hear()))

        assert pipe.end() == (b"", 0)

    return answers


def test_what_is_missing_is_recorded_and_added(tmp_path: Path) -> None:
    """The server answers what the cassette lacks; afterwards all of it plays."""
    output = tmp_path / "c.json"
    mark = f"--mark={output}"
    said(recorder(output), call(1, a=1))

    answers = said(
        recorder(output, *LINES_SERVER, mark, options=("--append",)),
        call(7, a=1),
        call(8, a=2),
    )

    assert [answer["id"] for answer in answers] == [7, 8]
    assert answers[1]["result"]["arguments"] == {"a": 2}

    cassette = load_cassette(output)

    assert [
        session_of(interaction.exchanges[0].request)
        for interaction in cassette.interactions
    ] == ["", ""]

    replayed = spoken(
        recorder(output, "no-such-server", options=("--append",)), call(1, a=2)
    )

    assert replayed.returncode == 0
    assert not processes_with(mark)


def test_played_writes_are_made_by_the_started_server_first(tmp_path: Path) -> None:
    """A counter goes on from what was played; all that was said plays again."""
    output = tmp_path / "c.json"
    server = (sys.executable, "-c", COUNTER)
    counted = [call(number, a=1) for number in range(1, 4)]

    assert values(said(recorder(output, *server), counted[0])) == [1]

    appended = said(recorder(output, *server, options=("--append",)), *counted)
    played = said([*PROGRAM, "replay", "--stdio", str(output)], *counted)

    assert values(appended) == values(played) == [1, 2, 3]


def values(answers: list[Any]) -> list[int]:
    """Return what a counter says."""
    return [answer["result"]["value"] for answer in answers]


def test_server_that_wants_to_be_initialized_is(tmp_path: Path) -> None:
    """Before 2026-07-28 a server gets the handshake that the client had from the cassette."""
    output = tmp_path / "c.json"
    server = (sys.executable, "-c", STRICT_SERVER)
    said(recorder(output, *server), initialize(), INITIALIZED, call(1, a=1))

    answers = said(
        recorder(output, *server, options=("--append",)),
        initialize(3),
        INITIALIZED,
        call(4, a=2),
    )

    assert answers[1]["result"]["arguments"] == {"a": 2}
    assert len(load_cassette(output).interactions) == 4

    played = said(
        recorder(output, "gone", options=("--append",)),
        initialize(),
        INITIALIZED,
        call(1, a=2),
    )

    assert played[1]["result"] == answers[1]["result"]


# Replaying


def replayer(cassette: Path, *options: str) -> list[str]:
    """Return the command that is the server of a cassette."""
    return [*PROGRAM, "replay", "--stdio", str(cassette), *options]


def recorded(folder: Path, *lines: bytes) -> Path:
    """Record what a client says line by line, waiting for each answer; return the cassette."""
    output = folder / "c.json"
    said(recorder(output), *lines)
    return output


def test_all_at_once_is_answered_before_the_end(tmp_path: Path) -> None:
    """A client that closes its stdin at once gets all answers, with its own ids, in any order."""
    cassette = recorded(tmp_path, *(call(number, a=number) for number in range(50)))

    calls = [call(150 - number, a=number) for number in range(50)]
    done = spoken(replayer(cassette), b"".join(calls))

    responses = map(json.loads, done.stdout.splitlines())
    answers = {response["id"]: response["result"] for response in responses}

    assert answers == {
        150 - number: {"name": "t", "arguments": {"a": number}, "big": ""}
        for number in range(50)
    }

    assert done.returncode == 0
    assert b"played 50 of 50 interactions, no misses" in done.stderr


def test_miss_is_an_error_to_the_request(tmp_path: Path) -> None:
    """What was not recorded gets a JSON-RPC error, a report, and the exit code 1."""
    cassette = recorded(tmp_path, call(1, a=1))
    report = tmp_path / "report.json"

    done = spoken(replayer(cassette, "--report", str(report)), call(7, a=3))

    (line,) = done.stdout.splitlines()

    assert json.loads(line)["id"] == 7
    assert json.loads(line)["error"]["code"] == -32010
    assert done.returncode == 1
    assert b"1 miss" in done.stderr
    assert len(json.loads(report.read_bytes())["misses"]) == 1


@pytest.mark.usefixtures("own_temporary_files")
def test_what_a_probe_played_counts_for_the_start_after_it(tmp_path: Path) -> None:
    """The TypeScript SDK's client discovers in a process of its own, and its calls don't count so."""
    path = tmp_path / "c.json"
    probe = rpc("server/discover", {}, "server-discover-probe-1")
    work = call(1, a=1)
    versions = {"supportedVersions": ["2026-07-28"]}
    cassette = cassette_of((probe, versions), (work, text("done")))
    path.write_bytes(encode_cassette(cassette))
    replayer = [*PROGRAM, "replay", "--stdio", "--fail-on-unplayed", str(path)]

    alone = spoken(replayer, work)

    assert b"never played: #1 server/discover" in alone.stderr

    after_a_call = spoken(replayer, work)

    assert b"never played: #1 server/discover" in after_a_call.stderr
    assert b'never played: #2 tools/call "t"' in spoken(replayer, probe + b"\n").stderr

    (note,) = tmp_path.glob("mrtr-cassette-probed-*")
    stays_recent(note)
    of_another = spoken([*ANOTHER, *replayer], work)

    assert b"never played: #1 server/discover" in of_another.stderr

    after_a_probe = spoken(replayer, work)

    assert b"played 2 of 2 interactions, no misses" in after_a_probe.stderr
    assert [alone.returncode, after_a_probe.returncode] == [1, 0]
    assert not note.exists()


def test_nothing_but_messages_is_written(tmp_path: Path) -> None:
    """A miss that wants no response is told on stderr only; the replaced server is not started."""
    cassette = recorded(tmp_path, call(1))

    command = [*replayer(cassette), "--", "no-such-server", "--flag"]
    done = spoken(command, b"no json\n\n" + rpc("x", number=None) + b"\n")

    assert done.stdout == b""
    assert done.returncode == 1


def test_what_the_server_said_by_itself_is_said_again(tmp_path: Path) -> None:
    """Noise before the first request comes at once, and what followed a notification after it."""
    code = (
        "import sys\nprint('ready', flush=True)\nsys.stdin.readline()\n"
        "print('noted', flush=True)\nsys.stdin.read()"
    )

    output = tmp_path / "c.json"
    initialized = notification("notifications/initialized") + b"\n"
    with piped(recorder(output, sys.executable, "-c", code)) as pipe:
        assert pipe.hear() == b"ready\n"

        pipe.say(initialized)

        assert pipe.hear() == b"noted\n"

        pipe.end()

    with piped(replayer(output)) as pipe:
        assert pipe.hear() == b"ready\n"

        pipe.say(initialized)

        assert pipe.hear() == b"noted\n"
        assert pipe.end() == (b"", 0)


def test_what_the_server_logged_after_a_response_comes_after_it(tmp_path: Path) -> None:
    """A log on stdout is no message, and the client has it as late as it came."""
    response = {"jsonrpc": "2.0", "id": 1, "result": {}}
    code = f"import sys\nsys.stdin.readline()\nprint({json.dumps(response)!r})\nprint('listed')"
    output = tmp_path / "c.json"
    live = spoken(recorder(output, sys.executable, "-c", code), ask(1))

    assert live.stdout.splitlines()[1:] == [b"listed"]
    assert spoken(replayer(output), ask(1)).stdout == live.stdout


def test_server_that_died_dies_again(tmp_path: Path) -> None:
    """Where the recorded server ended during a call, the replay ends there too."""
    output = tmp_path / "c.json"
    die = rpc("die", {"exit": 3}) + b"\n"
    with piped(recorder(output)) as pipe:
        pipe.say(call(1))

        assert pipe.hear()

        pipe.say(die)

        assert pipe.hear() == b""
        assert pipe.process.wait(30) == 3

    with piped(replayer(output)) as pipe:
        pipe.say(call(1))

        assert pipe.hear()

        pipe.say(die)

        assert pipe.hear() == b""
        assert pipe.process.wait(30) == 0


def test_signal_ends_the_replay(tmp_path: Path) -> None:
    """SIGTERM ends a replay whose client is still there, with its summary."""
    errors = tmp_path / "errors"
    with piped(replayer(recorded(tmp_path, call(1))), errors) as pipe:
        pipe.say(call(1))

        assert pipe.hear()

        pipe.signal(signal.SIGTERM)

        assert pipe.process.wait(30) == 0

    assert "played 1 of 1 interactions" in errors.read_text()
