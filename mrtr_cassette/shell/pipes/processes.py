"""Start and end servers on pipes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, cast

from mrtr_cassette.core.secrets.credentials import AddSettings
from mrtr_cassette.core.wire.http import PipeRead
from mrtr_cassette.errors import UpstreamError
from mrtr_cassette.shell.files.disk import monotonic, system_reason
from mrtr_cassette.shell.pipes.commands import command_in_words, credentials_given_to
from mrtr_cassette.shell.pipes.lines import LineWriter, pipe_reads

_POLL_S: Final = 0.01
"""Seconds between two looks at a process group, which gives no notice."""

_GUARD_SCRIPT: Final = (
    'read -r _ || { kill -s TERM -- "-$1"; sleep 1; kill -s KILL -- "-$1"; } '
    "2>/dev/null"
)
"""Ends a process group when its own stdin ends without a line: whoever held it was killed."""


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """A running process and its children; its id is the leader's."""

    leader: subprocess.Popen[bytes]

    def send_signal(self, number: int) -> bool:
        """Send the group a signal; return whether a process is left in it."""
        # A process that has ended keeps its group alive until it is waited for.
        self.leader.poll()
        try:
            os.killpg(self.leader.pid, number)
        except (ProcessLookupError, PermissionError):
            return False

        return True

    def stop(self, grace_s: float) -> None:
        """End the group: SIGTERM, then SIGKILL after so many seconds."""
        deadline = monotonic() + grace_s
        self.send_signal(signal.SIGTERM)
        while self.send_signal(0):
            if monotonic() > deadline:
                self.send_signal(signal.SIGKILL)
                break

            time.sleep(_POLL_S)

        self.leader.wait()

    async def stop_in_thread(self, grace_s: float) -> None:
        """End the group as `stop` does; a cancellation doesn't break that off."""
        loop = asyncio.get_running_loop()
        stop_future = loop.run_in_executor(None, self.stop, grace_s)
        try:
            await asyncio.shield(stop_future)
        except asyncio.CancelledError:
            await asyncio.wait({stop_future})
            raise


class CommandError(UpstreamError):
    """The server's command can't be run; the exit code is a shell's."""

    def __init__(self, command: Sequence[str], error: OSError) -> None:
        super().__init__(
            f"can't run the server {command_in_words(command)!r}: {system_reason(error)}"
        )
        self.exit_code = 127 if isinstance(error, FileNotFoundError) else 126


@dataclass(frozen=True, slots=True)
class GracePeriods:
    """The seconds that a server has to end.

    Clients send SIGTERM two seconds after they closed stdin, and SIGKILL two seconds later; the
    TypeScript SDK ends the server that it probes by both at once, and by SIGKILL after a second.
    """

    after_close: float = 5.0
    """From the end of the client until SIGTERM; a server may have much to finish."""

    after_sigterm: float = 2.0
    """From that SIGTERM until SIGKILL."""

    after_end_request: float = 1.2
    """From a signal to this process, which SIGTERM to the server follows, until SIGKILL."""

    after_end_request_and_close: float = 0.5
    """The same where the client has closed stdin too."""

    for_leftovers: float = 0.15
    """For the server's children after its own end, until SIGKILL."""


class ServerProcess:
    """A running server, which leads a process group of its own."""

    def __init__(self, process: subprocess.Popen[bytes], grace: GracePeriods) -> None:
        self._process_group = ProcessGroup(process)
        self._grace_times = grace
        self._stdin = cast("IO[bytes]", process.stdin)
        self._stdout = cast("IO[bytes]", process.stdout)
        self.client_left = asyncio.Event()
        self.writer = LineWriter(self._stdin.fileno())

    def stdout_reads(self, longest_line: int) -> AsyncIterator[PipeRead]:
        """Yield what the server says, in lines, as it is read."""
        return pipe_reads(self._stdout.fileno(), longest_line)

    async def close_stdin(self) -> None:
        """Close the server's stdin once everything is written to it."""
        # First of all, or the server's own end would seem to have come before.
        self.client_left.set()
        await self.writer.finish()
        self.writer.close()

    async def wait_until_ended(
        self, end_requested: asyncio.Event, output_read: asyncio.Future[None]
    ) -> bool:
        """Wait until the server has ended, or end it when its time is up.

        `output_read` is done when all that the server said has been read. Returns whether it
        ended before anybody wanted it to.
        """
        exit_future = asyncio.ensure_future(
            asyncio.to_thread(self._process_group.leader.wait)
        )
        ending_request = asyncio.ensure_future(end_requested.wait())
        client_leaving = asyncio.ensure_future(self.client_left.wait())
        try:
            await _wait_for_first(None, exit_future, ending_request, client_leaving)
            was_wanted = ending_request.done() or client_leaving.done()
            ended_by_itself = output_read.done() or not was_wanted
            if not ending_request.done():
                await _wait_for_first(
                    self._grace_times.after_close, exit_future, ending_request
                )

            if not exit_future.done():
                await self._terminate_server(
                    exit_future, ending_request, client_leaving
                )
        finally:
            ending_request.cancel()
            client_leaving.cancel()

        # What the server said last is read by then, unless a child of its own talks on.
        await asyncio.wait({output_read}, timeout=self._grace_times.for_leftovers)
        await self._process_group.stop_in_thread(self._grace_times.for_leftovers)
        await asyncio.wait({output_read}, timeout=self._grace_times.for_leftovers)

        return ended_by_itself

    async def _terminate_server(
        self,
        exit_future: asyncio.Future[Any],
        end_request: asyncio.Future[Any],
        client_leaving: asyncio.Future[Any],
    ) -> None:
        """Send SIGTERM to the server, and SIGKILL if its grace passes before it has ended."""
        grace = self._grace_times
        self.writer.close()
        self._process_group.send_signal(signal.SIGTERM)
        grace_s = grace.after_sigterm
        if end_request.done():
            grace_s = grace.after_end_request
            if client_leaving.done():
                grace_s = grace.after_end_request_and_close

        deadline = monotonic() + grace_s
        awaited_futures = [exit_future]
        for future in (end_request, client_leaving):
            if not future.done():
                awaited_futures.append(future)

        await _wait_for_first(grace_s, *awaited_futures)
        if end_request.done() and client_leaving.done():
            await _wait_for_first(
                min(deadline - monotonic(), grace.after_end_request_and_close),
                exit_future,
            )

        if not exit_future.done():
            self._process_group.send_signal(signal.SIGKILL)
            await exit_future

    @property
    def exit_code(self) -> int:
        """Its exit code, once it has ended; 128 and the number of the signal that ended it."""
        code = self._process_group.leader.wait()
        return 128 - code if code < 0 else code

    def close(self) -> None:
        """Kill the processes that are left, and close the pipes."""
        if self._process_group.send_signal(0):
            self._process_group.stop(0.0)

        for pipe in (self._stdin, self._stdout):
            with suppress(OSError):
                pipe.close()


class ServerOnDemand:
    """A server that is started when it is first needed, and read until its stdout ends."""

    def __init__(
        self,
        start: Callable[[], AbstractContextManager[ServerProcess]],
        read: Callable[[ServerProcess], Coroutine[Any, Any, None]],
    ) -> None:
        self._start = start
        self._read = read
        self._exit_stack = ExitStack()
        self._process: ServerProcess | None = None
        self._reading_task: asyncio.Future[None] | None = None

    def started(self) -> ServerProcess:
        """Return the server, which is started unless it was.

        Raises:
            OSError: it can't be started.
        """
        if self._process is None:
            try:
                self._process = self._exit_stack.enter_context(self._start())
            except CommandError as error:
                raise OSError(0, str(error)) from None

            self._reading_task = asyncio.ensure_future(self._read(self._process))

        return self._process

    async def close(self, end_requested: asyncio.Event) -> int | None:
        """End the server, and return its exit code; None where it was never started."""
        process = self._process
        if process is None or self._reading_task is None:
            return None

        close_task = asyncio.ensure_future(process.close_stdin())
        try:
            await process.wait_until_ended(end_requested, self._reading_task)
            return process.exit_code
        finally:
            close_task.cancel()
            self._reading_task.cancel()
            # Where nobody waits any longer, it is killed.
            self._exit_stack.close()


async def _wait_for_first(seconds: float | None, *futures: asyncio.Future[Any]) -> None:
    """Wait up to so many seconds until one of these is done."""
    await asyncio.wait(futures, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)


@contextmanager
def server_process(
    command: Sequence[str],
    add_settings: AddSettings,
    cwd: Path | None = None,
    grace: GracePeriods | None = None,
) -> Iterator[ServerProcess]:
    """Run a server until the block ends, here or elsewhere; its stderr is this process's.

    Raises:
        CommandError: it can't be run.
    """
    add_settings(credentials_given_to(command))
    try:
        process = subprocess.Popen(  # noqa: S603  it is the user's own command
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            cwd=cwd,
            process_group=0,
        )
    except OSError as error:
        raise CommandError(command, error) from None

    server = ServerProcess(process, grace or GracePeriods())
    try:
        with guarded_process_group(process.pid):
            yield server
    finally:
        server.close()


@contextmanager
def guarded_process_group(group: int) -> Iterator[None]:
    """End a process group even if this process is killed before the block ends.

    The block stops the group: until then, nobody else has its number.
    """
    try:
        guard = subprocess.Popen(  # noqa: S603
            ["/bin/sh", "-c", _GUARD_SCRIPT, "sh", str(group)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            # Whoever kills the group of this process must not kill the guard.
            start_new_session=True,
        )
    except OSError:
        os.killpg(group, signal.SIGKILL)
        raise

    try:
        yield
    finally:
        guard.kill()
        guard.wait()
        cast("IO[bytes]", guard.stdin).close()
