"""Conversations as golden cases: what a client and a server said, in order, as readable files.

    # What the conversation shows.
    --- request 1
    {"jsonrpc":"2.0","id":«id»,"method":"ping"}
    --- response 1
    {"jsonrpc":"2.0","id":«id»,"result":{}}

A request is a POST of JSON to /mcp and a response is a 200 with JSON, unless a first line says
otherwise, such as `GET /health` or `202`; headers follow it, and an empty line. A body ends before
the line end of its last line, unless it is an event stream. A `response 1 goes on` sends more of a
response that has begun. `request misses REASON` is made of the replay at the end, and `inspect` is
what `mrtr-cassette inspect` prints.

«id», «token» and «state NAME» stand for what may differ when the conversation is repeated: the
request's id, its progress token, and a request state, which a replay issues as a surrogate.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from goldens import Case, Section, as_bytes
from harness import ACCEPT, Connection, connected, http, playing, request
from standin import (
    EVENTS,
    JSON,
    Body,
    Head,
    Visit,
    chunk,
    response,
    stream_head,
    upstream,
)

from mrtr_cassette.shell.runs.recording import recording

_HEAD = re.compile(r"(?:[A-Z]+ /\S*|\d{3})\n")
_GZIP = "Content-Encoding: gzip"
_MARK = re.compile("«(id|token|state (\\w+))»".encode())


class Step(NamedTuple):
    """One section of a conversation.

    Attributes:
        word: `request`, `response` or `misses`.
        number: of the exchange.
        line: the first line of the message; empty where a response goes on.
        template: the bytes of the body, with marks for what may differ.
        is_last: the response ends with this step.
        reason: why the request misses.
    """

    word: str
    number: int
    line: str
    headers: tuple[str, ...]
    template: bytes
    is_last: bool = True
    reason: str = ""


@dataclass
class Values:
    """What differs from one repetition of a conversation to the next.

    Attributes:
        states: request states by name; those that a replay issues are added as they come.
    """

    id_of: Callable[[int], object]
    token_of: Callable[[int], object]
    states: dict[str, bytes] = field(default_factory=dict)

    def fill(self, step: Step) -> bytes:
        """Return the body of a step; the server's own states are made up where none is known."""
        return self._filled(step, step.template)

    def headers(self, step: Step) -> list[str]:
        """Return the headers of a step, with states in them."""
        return [self._filled(step, header.encode()).decode() for header in step.headers]

    def take_headers(self, step: Step, head: Head) -> None:
        """Know the states that stand in the headers of a response."""
        for header in step.headers:
            name, _, value = header.partition(": ")
            if mark := _MARK.fullmatch(value.encode()):
                self.states.setdefault(mark[2].decode(), head.values(name)[0].encode())

    def _filled(self, step: Step, template: bytes) -> bytes:
        return _MARK.sub(lambda mark: self._value(step, mark), template)

    def _value(self, step: Step, mark: re.Match[bytes]) -> bytes:
        if mark[2] is not None:
            name = mark[2].decode()
            return self.states.setdefault(
                name, b"a-request-state-of-the-server-" + mark[2]
            )

        value = self.id_of if mark[1] == b"id" else self.token_of
        return json.dumps(value(step.number)).encode()

    def pattern(self, step: Step) -> re.Pattern[bytes]:
        """Return what the body of a step matches; unknown states are groups."""
        pattern = b""
        at = 0
        for mark in _MARK.finditer(step.template):
            pattern += re.escape(step.template[at : mark.start()])
            if mark[2] is None or mark[2].decode() in self.states:
                pattern += re.escape(self._value(step, mark))
            else:
                group = b"(?P<%b>" % mark[2]
                is_again = group in pattern
                pattern += b"(?P=%b)" % mark[2] if is_again else group + rb'[^"\\]+)'

            at = mark.end()

        return re.compile(pattern + re.escape(step.template[at:]))


def recorded_values() -> Values:
    """Return the values of a recording."""
    return Values(lambda number: number, lambda number: number)


def other_values() -> Values:
    """Return values of other types and lengths than the recorded ones."""
    return Values(lambda number: f"again-{number}", lambda number: 1000 + number)


@dataclass(frozen=True)
class Conversation:
    """A case, read as a conversation."""

    case: Case

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The steps in order, misses last."""
        said = list(_steps(self.case))
        last = {
            step.number: at for at, step in enumerate(said) if step.word == "response"
        }
        steps = []
        for at, step in enumerate(said):
            if step.word == "response":
                steps.append(step._replace(is_last=last.get(step.number) == at))
            else:
                steps.append(step)

        return tuple(steps)


def _steps(case: Case) -> Iterator[Step]:
    for section in case.sections[1:]:
        word, _, rest = section.title.partition(" ")
        if word == "inspect":
            continue

        if rest.startswith("misses "):
            yield _step(section, "misses", 0)._replace(
                reason=rest.removeprefix("misses ")
            )
        else:
            number, _, goes_on = rest.partition(" ")
            step = _step(section, word, int(number))
            yield step._replace(line="") if goes_on else step


def _step(section: Section, word: str, number: int) -> Step:
    is_response = word == "response"
    line = "200" if is_response else "POST /mcp"
    headers = (JSON,)
    text = section.text
    if _HEAD.match(text):
        head, _, text = text.partition("\n\n")
        line, *given = head.splitlines()
        headers = tuple(given)

    if not is_response and ACCEPT not in headers:
        headers = (*headers, ACCEPT)

    if EVENTS not in headers:
        text = text.removesuffix("\n")

    return Step(word, number, line, headers, as_bytes(text))


def _coded(step: Step, body: bytes) -> bytes:
    return gzip.compress(body, mtime=0) if _GZIP in step.headers else body


class Server:
    """Sends the recorded responses, each part when it is told to."""

    def __init__(self, earlier: int = 0) -> None:
        self._earlier = earlier
        self._visits: dict[int, asyncio.Queue[bytes | None]] = {}
        self._arrived: dict[int, asyncio.Event] = {}

    def _parts(self, number: int) -> asyncio.Queue[bytes | None]:
        return self._visits.setdefault(number, asyncio.Queue())

    def arrived(self, number: int) -> asyncio.Event:
        return self._arrived.setdefault(number, asyncio.Event())

    async def script(self, visit: Visit) -> None:
        """Send what there is to send, until the end of the response."""
        number = visit.number - self._earlier
        self.arrived(number).set()
        while (part := await self._parts(number).get()) is not None:
            await visit.send(part)

        visit.close()

    def send(self, step: Step, headers: Sequence[str], body: bytes) -> None:
        coded = _coded(step, body)
        parts = self._parts(step.number)
        status = f"{step.line} Status"
        if step.line and step.is_last and EVENTS not in step.headers:
            parts.put_nowait(response(coded, *headers, status=status))
        else:
            head = stream_head(*headers, status=status) if step.line else b""
            parts.put_nowait(
                head + chunk(coded) + (chunk(b"") if step.is_last else b"")
            )

        if step.is_last:
            parts.put_nowait(None)


class Client:
    """Makes the requests, and compares each byte of what comes."""

    def __init__(self, url: str, values: Values, stack: AsyncExitStack) -> None:
        self._url = url
        self._values = values
        self._stack = stack
        self._connections: dict[int, Connection] = {}
        self._bodies: dict[int, Body] = {}
        self._unread: dict[int, bytes] = {}
        self._is_coded: dict[int, bool] = {}

    async def send(self, step: Step) -> None:
        connection = await self._stack.enter_async_context(connected(self._url))
        self._connections[step.number] = connection
        method, _, target = step.line.partition(" ")
        body = self._values.fill(step)
        await connection.write(
            request(
                method,
                target,
                *self._values.headers(step),
                body=body if method == "POST" else None,
            )
        )

    async def receive(self, step: Step) -> None:
        """Read one part of a response, which must be as the case says, but for states."""
        if step.line:
            head, body = await self._connections[step.number].answer()
            self._bodies[step.number] = body
            self._unread[step.number] = b""
            self._values.take_headers(step, head)
            status = head.line.split()[1]
            assert status == step.line, f"response {step.number} has status {status}"
            assert f"Content-Type: {head.values('content-type')[0]}" in step.headers
            # A replay sends the text of a body that was recorded compressed.
            self._is_coded[step.number] = head.values("content-encoding") == ["gzip"]

        body = self._bodies[step.number]
        pattern = self._values.pattern(step)
        raw = self._unread.pop(step.number)
        if step.is_last:
            raw += await body.rest()
            raw = gzip.decompress(raw) if self._is_coded[step.number] else raw

        while not (match := pattern.match(raw)) and not body.is_whole:
            raw += await body.some()

        what = f"response {step.number}: {raw!r}\nis not {pattern.pattern!r}"
        assert match, what
        self._unread[step.number] = raw[match.end() :]
        assert not step.is_last or (body.is_whole and match.end() == len(raw)), what
        self._values.states.update(match.groupdict())

    async def miss(self, step: Step) -> str:
        method, _, target = step.line.partition(" ")
        body = self._values.fill(step)
        answer = await http(method, self._url, *step.headers, body=body, target=target)

        return answer.reason


async def record(conversation: Conversation, *cassettes: Path) -> None:
    """Record a conversation several times; of all but the first the journal stays."""
    server = Server()

    async def script(visit: Visit) -> None:
        # The server of the recording under way: there is another for each.
        await server.script(visit)

    async with upstream(script) as there:
        for path in cassettes:
            server = Server(len(there.received))
            values = recorded_values()
            publishes = path == cassettes[0]
            async with (
                recording(
                    there.url, path, caller_publishes_to=None if publishes else path
                ) as recording_run,
                AsyncExitStack() as stack,
            ):
                client = Client(recording_run.url, values, stack)
                for step in conversation.steps:
                    if step.word == "request":
                        await client.send(step)
                        await server.arrived(step.number).wait()
                    elif step.word == "response":
                        server.send(step, values.headers(step), values.fill(step))
                        await client.receive(step)


async def repeat(conversation: Conversation, cassette: Path, values: Values) -> None:
    """Repeat a conversation with a replay; every recorded byte comes back, then the misses miss."""
    async with playing(cassette, repeat="never") as replay_run:
        client = await hold(conversation, replay_run.url, values)
        assert (
            replay_run.player.tally.misses,
            replay_run.player.played_part.unplayed_numbers,
        ) == (
            [],
            [],
        )
        for step in conversation.steps:
            if step.word == "misses":
                reason = await client.miss(step)
                assert reason == step.reason, reason


async def hold(conversation: Conversation, url: str, values: Values) -> Client:
    """Send the requests of a conversation, and compare the responses."""
    async with AsyncExitStack() as stack:
        client = Client(url, values, stack)
        for step in conversation.steps:
            if step.word == "request":
                await client.send(step)
            elif step.word == "response":
                await client.receive(step)

        return client
