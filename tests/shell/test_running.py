"""Facts about running until a signal or a command's end, and in threads."""

import asyncio
import os
import signal
import sys
import threading
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from harness import looped
from standin import Visit, response, upstream

from mrtr_cassette.errors import UsageError
from mrtr_cassette.shell.runs.running import (
    URL_VARIABLE,
    in_thread,
    result_in_thread,
    run,
    run_command,
    stop_signals,
)


async def code_of(
    *command: str, url: str = "http://x/", said: list[str] | None = None
) -> int:
    """Run a command to its end and return its code."""
    say = (said if said is not None else []).append
    return (await run_command(command, url, asyncio.Queue(), say)).exit_code


@looped
async def test_a_second_loop_in_one_thread_is_refused_by_name() -> None:
    """Where gevent makes greenlets of threads, the error says so and names the ways out."""
    with pytest.raises(
        UsageError, match=r"greenlets of all threads.*patch_all\(thread=False\)"
    ):
        run(asyncio.sleep(0))


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("raise SystemExit(7)", 7),
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
            128 + signal.SIGKILL,
        ),
    ],
)
@looped
async def test_the_code_is_the_commands(program: str, code: int) -> None:
    """A command's exit code is passed on; where a signal ends it, it is 128 and the number."""
    assert await code_of(sys.executable, "-c", program) == code


@looped
async def test_the_command_finds_the_url_beside_its_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The URL is in one variable, all others are there too, and no proxy stands before the URL."""
    monkeypatch.setenv("ANOTHER", "kept")
    monkeypatch.setenv("HTTP_PROXY", "http://company:3128")
    for given, expected in (("", "u"), ("a,.b", "a,.b,u"), ("*", "*")):
        monkeypatch.setenv("NO_PROXY", given)
        there = {
            URL_VARIABLE: "http://u:80/",
            "ANOTHER": "kept",
            "NO_PROXY": expected,
            "no_proxy": expected,
        }

        program = (
            f"import os; raise SystemExit(not {there}.items() <= os.environ.items())"
        )

        assert await code_of(sys.executable, "-c", program, url="http://u:80/") == 0

    assert URL_VARIABLE not in os.environ


@looped
async def test_a_command_that_cannot_be_run_has_the_shells_code(tmp_path: Path) -> None:
    """A command that isn't there is 127, one that can't be executed 126, and it is said which."""
    said: list[str] = []

    assert await code_of("no-such-command", said=said) == 127

    plain = tmp_path / "plain"
    plain.write_text("text")

    assert await code_of(str(plain), said=said) == 126
    assert await code_of(str(tmp_path), said=said) == 126
    assert said[0] == "error: can't run 'no-such-command': no such file or directory"
    assert [line.partition(": can't run ")[0] for line in said] == ["error"] * 3


CALL = f"urllib.request.urlopen(os.environ['{URL_VARIABLE}']).read()"


async def stopped(
    program: str,
    *numbers: signal.Signals,
    reaches_command: bool = False,
    grace_s: float = 10.0,
) -> int:
    """Run a program that calls its URL; its first calls are followed by a signal to us each.

    Args:
        program: Python code.
        numbers: the signals.
        reaches_command: it gets them too, as from a terminal.
        grace_s: seconds that it has to end.
    """
    signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
    left = list(numbers)

    async def script(visit: Visit) -> None:
        await visit.send(response())
        if left:
            number = left.pop(0)
            signals.put_nowait(number)
            if reaches_command:
                _, target, _ = visit.request.head.line.split()
                os.kill(int(target.rpartition("/")[2]), number)

    setup = f"import os, signal, sys, urllib.request\nos.environ['{URL_VARIABLE}'] += f'/{{os.getpid()}}'\n"
    async with upstream(script) as server:
        command = [sys.executable, "-c", setup + program]
        end = await run_command(command, server.url, signals, print, grace_s)

    assert left == []
    assert end.was_stopped == bool(numbers)
    return end.exit_code


@looped
async def test_sigterm_ends_the_command() -> None:
    """SIGTERM reaches us alone: the command is told to end, and its code counts."""
    assert (
        await stopped(f"{CALL}; signal.pause()", signal.SIGTERM) == 128 + signal.SIGTERM
    )

    handles = "signal.signal(signal.SIGTERM, lambda *_: os._exit(5))"

    assert await stopped(f"{handles}; {CALL}; signal.pause()", signal.SIGTERM) == 5


@looped
async def test_sigint_leaves_the_command_its_own_end() -> None:
    """A terminal's Ctrl-C has reached the command as well: it can still call us before it ends."""
    program = f"""
def leave(*_):
    {CALL}
    os._exit(5)
signal.signal(signal.SIGINT, leave)
{CALL}
signal.pause()
"""

    assert await stopped(program, signal.SIGINT, reaches_command=True) == 5


@looped
async def test_second_signal_ends_a_command_that_sigint_did_not() -> None:
    """Who presses Ctrl-C again won't wait: SIGTERM."""
    program = (
        f"signal.signal(signal.SIGINT, signal.SIG_IGN); {CALL}; {CALL}; signal.pause()"
    )

    assert await stopped(program, signal.SIGINT, signal.SIGINT) == 128 + signal.SIGTERM


@looped
async def test_a_command_that_will_not_end_is_killed() -> None:
    """A command that ignores the signals is killed when its time is up."""
    ignores = (
        "for n in (signal.SIGINT, signal.SIGTERM): signal.signal(n, signal.SIG_IGN)"
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        code = await stopped(f"{ignores}\n{CALL}; signal.pause()", number, grace_s=0.01)

        assert code == 128 + signal.SIGKILL


@looped
async def test_signals_come_in_good_order() -> None:
    """SIGINT and SIGTERM are put in the queue; after the block they are Python's again."""
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGINT]
    async with stop_signals() as signals:
        for number in numbers:
            os.kill(os.getpid(), number)

            assert await signals.get() is number

    for number in numbers:
        assert signal.getsignal(number) in {signal.SIG_DFL, signal.default_int_handler}


# In a thread


def test_a_value_is_given_and_the_thread_has_ended_afterwards():
    """Both ends of the manager run in one thread, which is not the caller's."""
    threads = []

    @asynccontextmanager
    async def manager():
        threads.append(threading.current_thread())
        yield "value"
        threads.append(threading.current_thread())

    with in_thread(manager()) as value:
        assert value == "value"

    first, last = threads

    assert first is last
    assert first is not threading.current_thread()

    first.join()


@pytest.mark.parametrize("when", ["entering", "leaving"])
def test_errors_arrive_in_the_caller(when):
    """What goes wrong on either end is raised where the block stands."""

    @asynccontextmanager
    async def manager():
        if when == "entering":
            raise LookupError(when)

        yield
        raise LookupError(when)

    with pytest.raises(LookupError, match=when), in_thread(manager()):
        pass


def test_an_interrupted_start_is_undone():
    """Ctrl-C while the manager is being entered leaves it as soon as it has been."""
    gate = threading.Event()
    left = threading.Event()

    @asynccontextmanager
    async def manager():
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.to_thread(gate.wait)
        yield
        left.set()

    # Whoever started us may have it ignored, as a shell does for what runs in the background.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), in_thread(manager()):
            pass
    finally:
        signal.signal(signal.SIGINT, before)

    assert not left.is_set()

    gate.set()

    assert left.wait(60)


def test_an_interrupted_call_of_the_library_is_cancelled() -> None:
    """Ctrl-C ends what a function of the library waits for, once that has cleaned up."""
    steps = []

    async def waiting() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            steps.append("left")

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            result_in_thread(waiting())
    finally:
        signal.signal(signal.SIGINT, before)

    assert steps == ["left"]
