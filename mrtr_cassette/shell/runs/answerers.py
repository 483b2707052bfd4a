"""Get answers to an ask: from an endpoint over HTTP, or from a person at a terminal."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from yarl import URL

from mrtr_cassette.core.answers.forms import dialogue
from mrtr_cassette.core.answers.fulfilment import LARGEST_REPLY, Rounds
from mrtr_cassette.core.answers.written import AnswersFile, RestModel, read_answers
from mrtr_cassette.core.drive.conversation import Answered, LiveAsk
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.report.events import turn_said
from mrtr_cassette.core.wire.http import JSON_HEADERS
from mrtr_cassette.errors import UsageError
from mrtr_cassette.options import checked_headers
from mrtr_cassette.shell.files.disk import reason_of
from mrtr_cassette.shell.files.log import Announcer
from mrtr_cassette.shell.http.client import credentials, shown_url, tls_context, upstream_url
from mrtr_cassette.shell.http.forward_proxy import proxy_text

AskTheEndpoint = Callable[[bytes], Awaitable[bytes | str]]
"""Asks the endpoint; returns what it replies, or why it doesn't."""
AskThePerson = Callable[[str, InputRequest], Awaitable[Any]]
"""Asks a person one request for input, and returns the answer or None."""
_LONGEST_LINE: Final = 1024 * 1024


def load_answers(path: Path) -> AnswersFile:
    """Return an answers file.

    Raises:
        UsageError: it can't be read, or a member can't be meant.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UsageError(f"can't read {path}: {reason_of(error)}") from None
    return read_answers(raw, str(path))


@dataclass(frozen=True, slots=True)
class Answerers:
    """Answers asks by the endpoint and the person; the announcer says who answered."""

    announcer: Announcer = field(default_factory=Announcer)
    ask_endpoint: AskTheEndpoint | None = None
    ask_person: AskThePerson | None = None

    async def answer(self, rounds: Rounds, ask: LiveAsk) -> Answered | None:
        """Return the answer to an ask; None where there is none."""
        steps, told = rounds.answer(ask), len(rounds.turns)
        reply: Any = None
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as ended:
                for turn in rounds.turns[told:]:
                    self.announcer.say(turn_said, turn)
                answer: Answered | None = ended.value
                return answer
            reply = None
            if isinstance(step, float):
                await asyncio.sleep(step)
            elif isinstance(step, tuple) and self.ask_person is not None:
                reply = await self.ask_person(*step)
            elif isinstance(step, bytes) and self.ask_endpoint is not None:
                reply = await self.ask_endpoint(step)


# An endpoint


@asynccontextmanager
async def answers_endpoint(
    rest: RestModel | None,
    ca_file: Path | None = None,
    *,
    verifies: bool = True,
    largest: int = LARGEST_REPLY,
) -> AsyncIterator[AskTheEndpoint | None]:
    """Open a function that posts to an endpoint, if there is one, and follows no redirect.

    Raises:
        UsageError: its URL is none, or a header can't be sent.
    """
    if rest is None:
        yield None
        return
    # Most runs have no endpoint, and an HTTP client takes long to import.
    import aiohttp

    try:
        url = upstream_url(rest.url)
    except UsageError:
        raise UsageError("rest.url of the answers file is no HTTP URL") from None
    headers = [*JSON_HEADERS, *credentials(url), *checked_headers(rest.headers)]
    proxy = proxy_text(url)
    tls = tls_context(url, ca_file, verifies=verifies)

    async def ask(body: bytes) -> bytes | str:
        try:
            async with (
                asyncio.timeout(rest.timeout),
                client.post(URL(shown_url(url)), data=body, allow_redirects=False) as response,
            ):
                reply = b""
                async for chunk in response.content.iter_any():
                    reply += chunk
                    if len(reply) > largest:
                        return f"its reply has more than {largest:,} bytes"
                is_good = 200 <= response.status < 300
                return reply if is_good else f"it answered HTTP {response.status}"
        except (aiohttp.ClientError, OSError) as error:
            if isinstance(error, TimeoutError):
                return f"nothing whole within {rest.timeout:g} s"
            if isinstance(error, aiohttp.ClientConnectorCertificateError):
                return f"its certificate is not verified ({error.certificate_error})"
            if isinstance(error, aiohttp.ClientConnectorError):
                return f"no connection ({error.strerror or type(error.os_error).__name__})"
            return f"the connection failed ({type(error).__name__})"

    connector = aiohttp.TCPConnector(ssl=tls or True)
    async with aiohttp.ClientSession(connector=connector, headers=headers, proxy=proxy) as client:
        yield ask


# A person


def has_terminal() -> bool:
    """Tell whether a person can read what is asked, and type."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


async def ask_at_terminal(key: str, request: InputRequest) -> Any:
    """Ask one request for input; return the answer, or None where there is none."""
    loop, terminal, came = asyncio.get_running_loop(), sys.stdin.fileno(), asyncio.Event()
    steps = dialogue(key, request)
    reply: str | None = None
    while True:
        try:
            lines, text = steps.send(reply)
        except StopIteration as ended:
            return ended.value
        sys.stderr.write("".join([*(f"{line}\n" for line in lines), text]))
        sys.stderr.flush()
        loop.add_reader(terminal, came.set)
        try:
            await came.wait()
        finally:
            loop.remove_reader(terminal)
        came.clear()
        # A terminal hands over one line at a time.
        line = os.read(terminal, _LONGEST_LINE)
        reply = line.decode("utf-8", "replace").rstrip("\r\n") if line else None
