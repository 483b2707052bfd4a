"""Facts about async context managers in threads of their own."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from contextlib import asynccontextmanager

import pytest

from mrtr_cassette.shell.runs.running import in_thread


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
    gate, left = threading.Event(), threading.Event()

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
