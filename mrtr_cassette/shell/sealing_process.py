"""A process of our own that works on what is large, so that the event loop goes on meanwhile.

Owns: what is large, the process, and what goes to it and comes back.
Does not own: the work itself (`core.record`, `core.format`).
Rule: a thread would not do: Python runs one at a time, and reading or searching a body of 10 MB
keeps it for up to seconds. Only RE2 lets others run, so a thread looks what there is to do at all.
What goes to the process is cut in pieces, between which the loop turns.

It is started when something large comes first, and ends with the recording, or when the recorder
is killed and its end of the socket closes.
"""

from __future__ import annotations

import asyncio
import json
import pickle
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import IO, Any, Final, NamedTuple

from mrtr_cassette.core.format.journal import encode_line
from mrtr_cassette.core.protocol.calls import Call, outline
from mrtr_cassette.core.protocol.dialect import InputRequired
from mrtr_cassette.core.protocol.jsonrpc import Message
from mrtr_cassette.core.record.objections import Judgement, verdict_of
from mrtr_cassette.core.record.recorder import PassedMessage, Recorder
from mrtr_cassette.core.record.sealer import Seen
from mrtr_cassette.core.record.sealing import Unread
from mrtr_cassette.core.secrets.credentials import Credentials
from mrtr_cassette.core.secrets.redact import Redactor, keyed_hash
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.wire.coding import AT_ONCE
from mrtr_cassette.core.wire.http import Piece, Request
from mrtr_cassette.core.wire.jsonbytes import opens_more
from mrtr_cassette.core.wire.pieces import LARGE
from mrtr_cassette.core.wire.readable import content_coding
from mrtr_cassette.errors import MrtrCassetteError

_SMALL: Final = 8 * 1024
"""Bytes of which nothing takes long, whatever they are."""
_MOST_VALUES: Final = 50_000
_MOST_BRACKETS: Final = 5_000
"""Values of JSON, and arrays and objects among them, that are read in no time."""
_PIECES_AT_ONCE: Final = 1000
_BYTES_AT_ONCE: Final = 256 * 1024
"""What passes between here and the process from one turn of the loop to the next, at most."""
Listed = tuple[str, str, bool]
_SIZE = struct.Struct("!Q")
_PROGRAM = """
import json, sys
sys.path[:] = json.loads(sys.argv[2])
from mrtr_cassette.shell.sealing_process import work
work(int(sys.argv[1]))
"""


@dataclass(frozen=True, slots=True)
class RecorderSettings:
    """What a recorder is made of, here and in the process.

    Attributes:
        seals, seals_answers, kept_headers, largest_body: as `Recorder` has them.
        rules: what the user changes about redaction.
        key: of the hashes that stand for secrets while recording.
    """

    seals: bool
    seals_answers: bool
    kept_headers: frozenset[str]
    largest_body: int
    rules: RedactionRules
    key: bytes

    def recorder(self) -> Recorder:
        """Return a recorder that has seen nothing."""
        redactor = Redactor(self.rules, keyed_hash(self.key))
        return Recorder(
            seals=self.seals,
            redactor=redactor,
            credentials=Credentials(redactor),
            seals_answers=self.seals_answers,
            kept_headers=self.kept_headers,
            largest_body=self.largest_body,
            largest_at_once=AT_ONCE,
        )


class SealedLine(NamedTuple):
    """An exchange as a line of the journal.

    Attributes:
        line: the line, in parts of moderate size.
        ask: what its response asks; None for a final response.
        unread: which of its bodies can't be read.
        verdict: what it says of the recording.
        states: the states in it that are known from now on.
    """

    line: Sequence[bytes]
    ask: InputRequired | None
    unread: Sequence[Unread]
    verdict: Judgement | None
    states: Sequence[str]


class SealingProcess:
    """The process, as the event loop has it; it does one thing after the other."""

    def __init__(self, settings: RecorderSettings, recorder: Recorder) -> None:
        """Begin without a process.

        Args:
            settings: what the recorder in the process is made of.
            recorder: the one here, whose states the process has to know too.
        """
        self._settings = settings
        self._recorder = recorder
        self._turn = asyncio.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._told: tuple[list[Listed], list[Listed]] = ([], [])

    def is_large_request(self, request: Request) -> bool:
        """Tell whether reading a request may take long; a compressed one may be any size."""
        body = request.body
        if content_coding(request.headers) or len(body) > LARGE:
            return True
        if len(body) <= AT_ONCE:
            return False
        return body.count(b",") > _MOST_VALUES or opens_more(body, _MOST_BRACKETS)

    def is_large(self, seen: Seen) -> bool:
        """Tell whether sealing an exchange may take long."""
        request, pieces = seen.call.request, seen.response.pieces
        if len(pieces) > _PIECES_AT_ONCE or content_coding(request.headers):
            return True
        size = len(request.body) + sum(len(piece.raw) for piece in pieces)
        if size <= _SMALL or size > AT_ONCE:
            return size > AT_ONCE
        if self._recorder.seals_answers and len(request.body) > _SMALL:
            return True
        redactor = self._recorder.redactor
        bodies = b"\0".join((request.body, seen.response.body))
        return redactor is not None and redactor.may_change(bodies)

    async def read(self, request: Request) -> Call:
        """Read a request; of its contents only short texts come back.

        Raises:
            MrtrCassetteError: the process was killed.
        """
        async with self._turn:
            await self._send_body(request)
            await self._send(_read, replace(request, body=b""))
            return Call(request, await self._receive())

    async def read_message(self, passed: PassedMessage) -> Message | None:
        """Read a message of a response; of its contents only short texts come back.

        Raises:
            MrtrCassetteError: the process was killed.
        """
        async with self._turn:
            await self._send(_read_message, passed)
            message: Message | None = await self._receive()
            return message

    async def seal(self, seen: Seen) -> SealedLine:
        """Seal an exchange as `Recorder.seal` does, and return it as a line of the journal.

        Raises:
            MrtrCassetteError: the process was killed.
        """
        known, request = self._recorder.known, seen.call.request
        async with self._turn:
            await self._tell()
            await self._send_body(request)
            for some in _by_size(seen.response.pieces):
                await self._send(_take_pieces, some)
            # The request is read there, so nothing that was read goes with it.
            call = Call(replace(request, body=b""), None)
            without = replace(seen.response, pieces=())
            await self._send(_seal, seen._replace(call=call, response=without))
            sealed: SealedLine = await self._receive()
            line = [await self._receive() for _ in range(await self._receive())]
        for state in sealed.states:
            known.remember(state)
            await asyncio.sleep(0)
        return sealed._replace(line=line)

    async def _tell(self) -> None:
        """Tell the process what is looked for in all that passes, if that has changed."""
        known = self._recorder.known.listed()
        credentials = self._recorder.credentials
        passed = [] if credentials is None else credentials.known.listed()
        if (known, passed) != self._told:
            await self._send(_know, known, passed)
            self._told = (known, passed)

    async def _send_body(self, request: Request) -> None:
        for part in _cut(request.body):
            await self._send(_take_body, part)

    async def _send(self, function: Callable[..., Any], *arguments: Any) -> None:
        if self._process is None:
            await self._start()
        try:
            self._writer.write(_frame((function.__name__, arguments)))
            await self._writer.drain()
        except OSError:
            raise _killed() from None

    async def _receive(self) -> Any:
        try:
            (size,) = _SIZE.unpack(await self._reader.readexactly(_SIZE.size))
            result = pickle.loads(await self._reader.readexactly(size))  # noqa: S301  our own
        except (OSError, asyncio.IncompleteReadError):
            raise _killed() from None
        if isinstance(result, Exception):
            raise result
        return result

    async def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            # An event loop's own way needs the main thread; the program is our own.
            self._process = subprocess.Popen(  # noqa: ASYNC220, S603
                [sys.executable, "-c", _PROGRAM, str(theirs.fileno()), json.dumps(sys.path)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                # Ctrl-C ends the recorder, which then ends its process.
                start_new_session=True,
            )
        self._reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        await self._send(_begin, self._settings)

    async def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._writer.close()
            await asyncio.to_thread(self._process.wait)


async def is_plain_exchange(recorder: Recorder, seen: Seen) -> bool:
    """Tell whether a large exchange is sealed in no time, as it has nothing to take out.

    A thread does for this: RE2 lets the others run.
    """
    request, pieces = seen.call.request, seen.response.pieces
    if content_coding(request.headers) or len(pieces) > _PIECES_AT_ONCE:
        return False
    if len(request.body) + sum(len(piece.raw) for piece in pieces) > LARGE:
        return False
    return await asyncio.to_thread(recorder.is_plain, seen)


def _killed() -> MrtrCassetteError:
    return MrtrCassetteError("the process that works on large bodies was ended by another program")


def _frame(value: Any) -> bytes:
    raw = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    return _SIZE.pack(len(raw)) + raw


def _cut(raw: bytes) -> Iterator[bytes]:
    for at in range(0, len(raw), _BYTES_AT_ONCE):
        yield raw[at : at + _BYTES_AT_ONCE]


def _by_size(pieces: Iterable[Piece]) -> Iterator[list[tuple[bytes, float, int]]]:
    """Yield pieces, some at a time; as tuples, which take less time to pack."""
    some: list[tuple[bytes, float, int]] = []
    size = 0
    for piece in pieces:
        some.append((piece.raw, piece.at_ms, piece.after))
        size += len(piece.raw)
        if size > _BYTES_AT_ONCE or len(some) == _PIECES_AT_ONCE:
            yield some
            some, size = [], 0
    if some:
        yield some


# What the process does


@dataclass(slots=True)
class _Desk:
    """What the process has before it."""

    recorder: Recorder
    body: bytearray = field(default_factory=bytearray)
    pieces: list[Piece] = field(default_factory=list)


def _begin(desk: _Desk, settings: RecorderSettings) -> None:
    desk.recorder = settings.recorder()


def _know(desk: _Desk, states: Iterable[Listed], credentials: Iterable[Listed]) -> None:
    desk.recorder.known.relist(states)
    if desk.recorder.credentials is not None:
        desk.recorder.credentials.relist(credentials)


def _take_body(desk: _Desk, part: bytes) -> None:
    desk.body += part


def _take_pieces(desk: _Desk, pieces: Iterable[tuple[bytes, float, int]]) -> None:
    desk.pieces += [Piece(*piece) for piece in pieces]


def _read(desk: _Desk, request: Request) -> Message | None:
    return outline(_call(desk, request).message)


def _call(desk: _Desk, request: Request) -> Call:
    body, desk.body = bytes(desk.body), bytearray()
    return desk.recorder.read(replace(request, body=body))


def _read_message(_: _Desk, passed: PassedMessage) -> Message | None:
    return outline(passed.read())


def _seal(desk: _Desk, seen: Seen) -> SealedLine:
    recorder = desk.recorder
    pieces, desk.pieces = tuple(desk.pieces), []
    before = set(recorder.known)
    response = replace(seen.response, pieces=pieces)
    seen = seen._replace(call=_call(desk, seen.call.request), response=response)
    exchange, ask, unread = recorder.seal(seen)
    states = [state for state in recorder.known if state not in before]
    line = encode_line(exchange, continues=seen.continues)
    verdict = None if seen.continues else verdict_of(exchange)
    return SealedLine([line], ask, unread, verdict, states)


_WITHOUT_RESULT: Final = (_begin, _know, _take_body, _take_pieces)
_WITH_RESULT: Final = (_read, _read_message, _seal)


def work(descriptor: int) -> None:
    """Do what comes through a socket until its other end closes."""
    desk = _Desk(Recorder(seals=True))
    functions = {function.__name__: function for function in (*_WITHOUT_RESULT, *_WITH_RESULT)}
    with socket.socket(fileno=descriptor) as ours, ours.makefile("rb") as file:
        for name, arguments in _frames(file):
            result: Any
            try:
                result = functions[name](desk, *arguments)
            except Exception as error:  # noqa: BLE001  it is raised where the work was wanted
                result = error
            if functions[name] in _WITH_RESULT:
                for frame in _frames_of(result):
                    ours.sendall(frame)


def _frames_of(result: Any) -> Iterator[bytes]:
    """Yield a result as it goes back; a line follows it, in parts, after how many there are."""
    if not isinstance(result, SealedLine):
        yield _frame(result)
        return
    parts = [part for line in result.line for part in _cut(line)]
    yield _frame(result._replace(line=()))
    yield _frame(len(parts))
    yield from map(_frame, parts)


def _frames(file: IO[bytes]) -> Iterator[Any]:
    while len(head := file.read(_SIZE.size)) == _SIZE.size:
        yield pickle.loads(file.read(*_SIZE.unpack(head)))  # noqa: S301  the recorder's own
