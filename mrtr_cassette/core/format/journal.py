"""The journal of a recording: a header, then one exchange a line, or what came of one since.

Rule: no flipped bit goes unnoticed. A line that is torn or damaged is never taken for another one.

A line is compact JSON, a space, and the CRC-32 of that JSON in eight hexadecimal digits.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import Any, Final, Literal, NamedTuple
from zlib import crc32

import orjson

from mrtr_cassette.core.exchange.recorded import (
    RecordedBy,
    RecordedExchange,
    RequestState,
    Transport,
)
from mrtr_cassette.core.format.bodies import damaged, encode_opaque
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.wire.http import (
    FORBIDDEN_IN_HEADER,
    HEADER_NAME,
    NO_STATUS,
    End,
    Headers,
    Piece,
    Request,
    Response,
)
from mrtr_cassette.errors import CassetteError, shorten

JOURNAL_VERSION: Final = 3

CHECKSUM_LENGTH: Final = len(b" 00000000\n")
"""Bytes of a line after its JSON."""

Existing = Literal["keep", "replace", "append"]
"""What becomes of a cassette that exists when a recording is published."""

_LARGEST_NUMBER = 2**53
_SHA256 = re.compile("[0-9a-f]{64}")
_CHOICES = {
    "request_state": ("sealed", "verbatim"),
    "existing": ("keep", "replace", "append"),
    "answers": (None, "sealed"),
    "transport": ("http", "stdio"),
}
_MAY_BE_NONE = ("redaction", "client", "recorder", "wall_ms")


@dataclass(frozen=True, slots=True)
class JournalHeader:
    """What a recording says of itself, in the journal's first line.

    Attributes:
        upstream: the server's URL, without credentials; or its command.
        request_state: whether raw states were replaced by surrogates.
        recorded_at: when it began, ISO 8601, UTC.
        existing: what becomes of a cassette that exists.
        redaction: by which rules secrets became placeholders; None where nothing was redacted.
        answers: `sealed` where only hashes of users' answers are kept.
        transport: what is recorded.
        client: over stdio, hash of the process that started the recorder; else None.
        recorder: an id that tells its exchanges from those of any other recorder; None where that
            is not known.
        wall_ms: the wall clock when it began, in milliseconds since 1970; None in the same ones.
    """

    upstream: str
    request_state: RequestState
    recorded_at: str
    existing: Existing
    redaction: RedactionRules | None = None
    answers: Literal["sealed"] | None = None
    transport: Transport = "http"
    client: str | None = None
    recorder: str | None = None
    wall_ms: float | None = None


def encode_header(header: JournalHeader) -> bytes:
    """Return the first line of a journal."""
    return with_checksum(orjson.dumps({"journal": JOURNAL_VERSION, **asdict(header)}))


def decode_header(line: bytes, path: str) -> JournalHeader:
    """Read the first line of a journal, with or without its end.

    Raises:
        CassetteError: it is none, of another version, or damaged.
    """
    line, body = _parts(line)
    try:
        tree = orjson.loads(body)
    except orjson.JSONDecodeError:
        tree = None
    version = tree.get("journal") if isinstance(tree, dict) else None
    if type(version) is not int:
        raise CassetteError(path, "its first line is not that of a journal")
    # A version that is not known may have checksums of another kind.
    if version != JOURNAL_VERSION:
        raise CassetteError(
            path,
            f"journal version {version}, and this program reads version {JOURNAL_VERSION}",
            hint="publish it with the version of mrtr-cassette that recorded it",
        )
    if with_checksum(body) != line:
        raise CassetteError(path, "its first line is damaged: the checksum is not that of the line")
    return _read_header(tree, path)


def _read_header(tree: dict[str, Any], path: str) -> JournalHeader:
    del tree["journal"]
    names = JournalHeader.__dataclass_fields__
    for name in (*names, *tree):
        if name not in tree or name not in names:
            raise _wrong(path, name, "is missing" if name in names else "is unknown")
        value = tree[name]
        if name == "redaction" or (name in _MAY_BE_NONE and value is None):
            continue
        if name == "wall_ms":
            if type(value) not in (float, int):
                raise _wrong(path, name, f"should be a number, found {shorten(repr(value))}")
        elif name in _CHOICES:
            if value not in _CHOICES[name]:
                choices = " or ".join(repr(choice) for choice in _CHOICES[name])
                raise _wrong(path, name, f"should be {choices}, found {shorten(repr(value))}")
        elif not isinstance(value, str):
            raise _wrong(path, name, f"should be text, found {shorten(repr(value))}")
    return JournalHeader(**{**tree, "redaction": _read_rules(tree["redaction"], path)})


def _read_rules(tree: Any, path: str) -> RedactionRules | None:
    if tree is None:
        return None
    names = RedactionRules.__dataclass_fields__
    if not isinstance(tree, dict) or tree.keys() != names.keys():
        raise _wrong(path, "redaction", f"should be an object with {', '.join(names)}")
    for name, values in tree.items():
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise _wrong(path, f"redaction/{name}", "should be a list of texts")
    try:
        return RedactionRules(**{name: tuple(values) for name, values in tree.items()})
    except ValueError as error:
        raise _wrong(path, "redaction", str(error)) from None


def _wrong(path: str, name: str, reason: str) -> CassetteError:
    return damaged(path, f"line 1, /{name}", reason)


class Continuation(NamedTuple):
    """What came of a response since the lines before.

    Attributes:
        number: that of its exchange.
        pieces: further pieces of the response.
        end: how the response stands since then.
        ended_ms: the time of that.
        ended_after: how many requests had arrived by then.
    """

    number: int
    pieces: tuple[Piece, ...]
    end: End
    ended_ms: float
    ended_after: int


def joined(first: RecordedExchange, further: Sequence[Continuation]) -> RecordedExchange:
    """Return an exchange with what came of its response in further lines."""
    response = first.response
    if not further or response is None:
        return first
    last = further[-1]
    added = chain.from_iterable(each.pieces for each in further)
    return replace(
        first,
        response=replace(response, pieces=(*response.pieces, *added), end=last.end),
        ended_ms=last.ended_ms,
        ended_after=last.ended_after,
    )


def encode_line(exchange: RecordedExchange, *, continues: bool = False) -> bytes:
    """Return one exchange, which has a number, as one line.

    Args:
        continues: its response has only what comes after what is in the lines before.
    """
    request, response = exchange.request, exchange.response
    if continues and response is not None:
        tree = {
            "continues": exchange.number,
            "ended_ms": exchange.ended_ms,
            "ended_after": exchange.ended_after,
            "end": response.end.value,
            "pieces": _pieces_tree(response),
        }
    else:
        body = encode_opaque(request.body)
        tree = {
            "number": exchange.number,
            "started_ms": exchange.started_ms,
            "ended_ms": exchange.ended_ms,
            "ended_after": exchange.ended_after,
            "issued_sha256": exchange.issued_sha256,
            "echoed_sha256": exchange.echoed_sha256,
            "request": [request.method, request.target, request.headers, body],
            "response": None if response is None else _response_tree(response),
        }
    return with_checksum(orjson.dumps(tree))


def _response_tree(response: Response) -> list[Any]:
    return [response.status, response.headers, response.end.value, _pieces_tree(response)]


def _pieces_tree(response: Response) -> list[Any]:
    try:
        return [[{"text": raw.decode()}, at_ms, after] for raw, at_ms, after in response.pieces]
    except UnicodeDecodeError:
        return [[encode_opaque(raw), at_ms, after] for raw, at_ms, after in response.pieces]


def decode_line(line: bytes, recorder: str | None = None) -> RecordedExchange | Continuation:
    """Read a line that `encode_line` wrote, with or without its end.

    Args:
        recorder: the id of whose journal it stands in, where that is known.

    Raises:
        ValueError: it is torn, damaged, or something else.
    """
    line, body = _parts(line)
    if with_checksum(body) != line:
        raise ValueError("the checksum is not that of the line")
    try:
        tree = orjson.loads(body)
        if "continues" in tree:
            return Continuation(
                _count(tree["continues"], least=1),
                _pieces(tree["pieces"]),
                End(tree["end"]),
                _milliseconds(tree["ended_ms"]),
                _count(tree["ended_after"]),
            )
        method, target, headers, raw = tree["request"]
        number = _count(tree["number"], least=1)
        return RecordedExchange(
            number=number,
            request=Request(_text(method), _text(target), _headers(headers), _opaque(raw)),
            response=_response(tree["response"]),
            started_ms=_milliseconds(tree["started_ms"]),
            ended_ms=_milliseconds(tree["ended_ms"]),
            issued_sha256=_digest(tree["issued_sha256"]),
            echoed_sha256=_digest(tree["echoed_sha256"]),
            ended_after=None if tree["ended_after"] is None else _count(tree["ended_after"]),
            recorded_by=None if recorder is None else RecordedBy(recorder, number),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"no exchange: {error}") from None


def with_checksum(body: bytes) -> bytes:
    """Return a line of a journal from the JSON that it holds."""
    return b"%b %08x\n" % (body, crc32(body))


def _parts(line: bytes) -> tuple[bytes, bytes]:
    """Return a line with its end, and the JSON in it."""
    line = line if line.endswith(b"\n") else line + b"\n"
    return line, line[:-CHECKSUM_LENGTH]


def _response(tree: Any) -> Response | None:
    if tree is None:
        return None
    status, headers, end, pieces = tree
    return Response(_status(status), _headers(headers), _pieces(pieces), End(end))


def _pieces(trees: Any) -> tuple[Piece, ...]:
    return tuple(
        [Piece(_opaque(raw), _milliseconds(at_ms), _count(after)) for raw, at_ms, after in trees]
    )


def _status(value: Any) -> int:
    return NO_STATUS if value is NO_STATUS else _count(value, least=100, most=999)


def _count(value: Any, *, least: int = 0, most: int = _LARGEST_NUMBER) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"no such number: {value!r}")
    return value


def _milliseconds(value: Any) -> float:
    if type(value) not in (float, int) or not 0 <= value <= _LARGEST_NUMBER:
        raise ValueError(f"no such time: {value!r}")
    return float(value)


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(f"no text: {value!r}")
    return value


def _digest(value: Any) -> str | None:
    if value is not None and not _SHA256.fullmatch(value):
        raise ValueError(f"no SHA-256: {value!r}")
    return _text(value) if value is not None else None


def _headers(pairs: Any) -> Headers:
    return _checked_headers(tuple([(name, value) for name, value in pairs]))


@lru_cache(maxsize=1024)
def _checked_headers(headers: Headers) -> Headers:
    for name, value in headers:
        if not HEADER_NAME.fullmatch(name) or FORBIDDEN_IN_HEADER.search(value):
            raise ValueError(f"no header: {name!r}")
    return headers


def _opaque(tree: Any) -> bytes:
    if "text" in tree:
        return _text(tree["text"]).encode()
    return base64.b64decode(_text(tree["base64"]), validate=True)
