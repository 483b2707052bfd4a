"""Get answers to an ask: from an endpoint over HTTP, or from a person at a terminal."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mrtr_cassette.core.answers.forms import dialogue_with_person
from mrtr_cassette.core.answers.fulfilment import LARGEST_REPLY, Rounds
from mrtr_cassette.core.answers.written import AnswersFile, RestModel, read_answers_file
from mrtr_cassette.core.drive.conversation import AskAnswer, LiveAsk
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.report.events import turn_log_line
from mrtr_cassette.core.wire.http import JSON_HEADERS, Request
from mrtr_cassette.errors import StoppedError, UsageError
from mrtr_cassette.options import checked_headers
from mrtr_cassette.shell.files.disk import system_reason
from mrtr_cassette.shell.files.log import Announcer
from mrtr_cassette.shell.http.client import (
    connected_client,
    forward_proxy,
    read_up_to,
    tls_context,
    upstream_url,
    url_credentials,
)
from mrtr_cassette.shell.http.transport import Upstream, connection_problem
from mrtr_cassette.shell.runs.running import waiting_for_input

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
        raise UsageError(f"can't read {path}: {system_reason(error)}") from None

    return read_answers_file(raw, str(path))


@dataclass(frozen=True, slots=True)
class Answerers:
    """Answers asks by the endpoint and the person; the announcer says who answered."""

    announcer: Announcer
    ask_endpoint: AskTheEndpoint | None
    ask_person: AskThePerson | None = None

    async def answer(self, rounds: Rounds, ask: LiveAsk) -> AskAnswer | None:
        """Return the answer to an ask; None where there is none."""
        fulfilment = rounds.answer_ask(ask)
        reported_count = len(rounds.turns)
        reply: Any = None
        while True:
            try:
                awaited = fulfilment.send(reply)
            except StopIteration as ended:
                for turn in rounds.turns[reported_count:]:
                    self.announcer.say(turn_log_line, turn)

                answer: AskAnswer | None = ended.value
                return answer

            reply = None
            if isinstance(awaited, float):
                await asyncio.sleep(awaited)
            elif isinstance(awaited, tuple) and self.ask_person is not None:
                reply = await self.ask_person(*awaited)
            elif isinstance(awaited, bytes) and self.ask_endpoint is not None:
                reply = await self.ask_endpoint(awaited)


# An endpoint


@asynccontextmanager
async def answers_endpoint(
    endpoint: RestModel | None,
    ca_file: Path | None = None,
    *,
    verifies: bool = True,
) -> AsyncIterator[AskTheEndpoint | None]:
    """Open a function that posts to an endpoint, if there is one, and follows no redirect.

    Raises:
        UsageError: its URL is none, or a header can't be sent.
    """
    if endpoint is None:
        yield None
        return

    try:
        url = upstream_url(endpoint.url)
    except UsageError:
        raise UsageError("rest.url of the answers file is not an HTTP URL") from None

    headers = (*JSON_HEADERS, *url_credentials(url), *checked_headers(endpoint.headers))
    tls = tls_context(url, ca_file, verifies=verifies)
    client_context = connected_client(url.origin(), tls, forward_proxy(url), headers)
    async with client_context as client:

        async def post_to_endpoint(body: bytes) -> bytes | str:
            """Post a body to the endpoint; return its reply, or why there is none."""
            request = Request("POST", url.raw_path_qs, (), body)
            try:
                async with asyncio.timeout(endpoint.timeout):
                    return await _reply_of_endpoint(client, request)
            except TimeoutError as error:
                timeout_words = f"no complete response within {endpoint.timeout:g} s"
                return str(error) or timeout_words
            except OSError as error:
                return connection_problem(error)

        yield post_to_endpoint


async def _reply_of_endpoint(client: Upstream, request: Request) -> bytes | str:
    """Return the body of a response with a status of success, or else why it can't be used."""
    with closing(await client.send_request(request)) as response:
        reply = await read_up_to(LARGEST_REPLY, response)

    if reply is None:
        return f"its reply has more than {LARGEST_REPLY:,} bytes"
    if 200 <= response.status < 300:
        return reply
    return f"it answered HTTP {response.status}"


# A person


def has_terminal() -> bool:
    """Tell whether a person can read what is asked, and type."""
    return all(
        stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr)
    )


async def ask_at_terminal(key: str, request: InputRequest) -> Any:
    """Ask one request for input; return the answer, or None where there is none."""
    loop = asyncio.get_running_loop()
    terminal = sys.stdin.fileno()
    input_came = asyncio.Event()
    dialogue = dialogue_with_person(key, request)
    reply: str | None = None
    while True:
        try:
            lines, prompt_text = dialogue.send(reply)
        except StopIteration as ended:
            return ended.value

        for line in lines:
            sys.stderr.write(f"{line}\n")

        sys.stderr.write(prompt_text)
        sys.stderr.flush()
        loop.add_reader(terminal, input_came.set)
        try:
            await input_came.wait()
        finally:
            loop.remove_reader(terminal)

        input_came.clear()
        reply = _line_from(terminal)


def confirm_at_terminal(question: str) -> bool:
    """Ask a question that yes or no answers, while nothing else happens; no answer is no.

    Raises:
        StoppedError: a signal came, or the end of the lines.
    """
    terminal = sys.stdin.fileno()
    with waiting_for_input(terminal) as wait_for_input:
        while True:
            sys.stderr.write(f"{question} [y/N]: ")
            sys.stderr.flush()
            wait_for_input()
            reply = _line_from(terminal)
            if reply is None:
                raise StoppedError(signal.SIGINT)

            answer = reply.strip().lower()
            if answer in ("y", "yes"):
                return True
            if answer in ("", "n", "no"):
                return False


def _line_from(terminal: int) -> str | None:
    """Read the line that a person has typed; None at the end of the lines."""
    # A terminal hands over one line at a time.
    raw_line = os.read(terminal, _LONGEST_LINE)
    if not raw_line:
        return None
    return raw_line.decode("utf-8", "replace").rstrip("\r\n")
