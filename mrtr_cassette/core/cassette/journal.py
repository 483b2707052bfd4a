"""The lines of a journal: compact JSON, a space, and its CRC-32, which shows any flipped bit."""

from __future__ import annotations

import base64
from dataclasses import asdict, dataclass, replace
from itertools import chain
from sys import intern
from typing import Any, Final, Literal, NamedTuple
from zlib import crc32

import orjson

from mrtr_cassette.core.cassette.dump import encode_opaque
from mrtr_cassette.core.cassette.recorded import (
    RecordedBy,
    RecordedExchange,
    RequestState,
    Transport,
)
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.wire.http import End, Headers, Piece, Request, Response
from mrtr_cassette.errors import CassetteError

JOURNAL_VERSION: Final = 3

CHECKSUM_LENGTH: Final = len(b" 00000000\n")
_FACTS: Final = (
    "number",
    "started_ms",
    "ended_ms",
    "ended_after",
    "issued_sha256",
    "echoed_sha256",
)
"""The members of a line that are those of an exchange."""

Existing = Literal["keep", "replace", "append"]
"""Whether publishing keeps, replaces or extends a cassette that exists."""


@dataclass(frozen=True, slots=True)
class JournalHeader:
    """Facts about a recording, in the journal's first line; most go into its cassette."""

    upstream: str
    request_state: RequestState
    recorded_at: str
    existing: Existing
    redaction: RedactionRules | None = None
    answers: Literal["sealed"] | None = None
    transport: Transport = "http"
    client: str | None = None
    command: str | None = None
    recorder: str | None = None
    wall_ms: float | None = None
    ignored: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Patterns of calls with pointers that don't count where a cassette is recorded over."""


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
    version = tree.pop("journal", None) if isinstance(tree, dict) else None
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
        raise CassetteError(
            path, "its first line is damaged: the checksum is not that of the line"
        )
    rules = tree.pop("redaction")
    redaction = rules and RedactionRules(
        **{name: tuple(texts) for name, texts in rules.items()}
    )
    ignored = [
        (pattern, tuple(pointers)) for pattern, pointers in tree.pop("ignored", ())
    ]
    return JournalHeader(**tree, redaction=redaction, ignored=tuple(ignored))


class Continuation(NamedTuple):
    """The pieces of a response since the last line about it, and its present end."""

    number: int
    pieces: tuple[Piece, ...]
    end: End
    ended_ms: float
    ended_after: int


def encode_line(exchange: RecordedExchange, *, continues: bool = False) -> bytes:
    """Return one exchange as a line; if it continues, only what no earlier line has."""
    request, response = exchange.request, exchange.response
    pieces = () if response is None else response.pieces
    encoded = [[encode_opaque(raw), at_ms, after] for raw, at_ms, after in pieces]
    if continues and response is not None:
        tree: dict[str, Any] = {
            "continues": exchange.number,
            "ended_ms": exchange.ended_ms,
            "ended_after": exchange.ended_after,
            "end": response.end.value,
            "pieces": encoded,
        }
    else:
        body = encode_opaque(request.body)
        tree = {name: getattr(exchange, name) for name in _FACTS}
        tree["follows"] = exchange.follows
        tree["request"] = [request.method, request.target, request.headers, body]
        tree["response"] = None
        if exchange.digests:
            tree["digests"] = dict(exchange.digests)
        if response is not None:
            head = (response.status, response.headers, response.end.value)
            tree["response"] = [*head, encoded]
    return with_checksum(orjson.dumps(tree))


def decode_line(
    line: bytes, recorder: str | None = None
) -> RecordedExchange | Continuation:
    """Read a line that `encode_line` wrote, with or without its end.

    Raises:
        ValueError: it is torn, damaged, or something else.
    """
    line, body = _parts(line)
    if with_checksum(body) != line:
        raise ValueError("the checksum is not that of the line")
    try:
        tree = orjson.loads(body)
        if "continues" in tree:
            facts = tree["ended_ms"], tree["ended_after"]
            return Continuation(
                tree["continues"], _pieces(tree["pieces"]), End(tree["end"]), *facts
            )
        method, target, headers, raw = tree["request"]
        response = None
        if tree["response"] is not None:
            status, its_headers, end, pieces = tree["response"]
            response = Response(
                status, _headers(its_headers), _pieces(pieces), End(end)
            )
        return RecordedExchange(
            **{name: tree[name] for name in _FACTS},
            request=Request(method, target, _headers(headers), _raw(raw)),
            response=response,
            recorded_by=None
            if recorder is None
            else RecordedBy(recorder, tree["number"]),
            follows=tuple(tree.get("follows", ())),
            digests=tuple(tree.get("digests", {}).items()),
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"no exchange: {error}") from None


class JournalContent(NamedTuple):
    """What was read of a journal: the exchanges by number, and what is lost, in words."""

    header: JournalHeader
    exchanges: dict[int, RecordedExchange]
    lost: str | None


def decode_journal(data: bytes, path: str) -> JournalContent:
    """Read a journal; the last line about an exchange counts, with those that continue it.

    Raises:
        CassetteError: its first line is not one of ours.
    """
    first, *lines = data.split(b"\n")
    header = decode_header(first, path)
    found: dict[int, tuple[RecordedExchange, list[Continuation]]] = {}
    problems = []
    for at, line in enumerate(lines, start=2):
        try:
            decoded = decode_line(line, header.recorder)
        except ValueError:
            if line:
                problems.append(f"line {at} is not whole ({len(line):,} bytes)")
            continue
        if isinstance(decoded, RecordedExchange):
            found[decoded.number or 0] = decoded, []
        elif decoded.number in found:
            found[decoded.number][1].append(decoded)
        else:
            problems.append(f"line {at} continues a response whose beginning is lost")
    exchanges = {}
    for number, (exchange, further) in found.items():
        exchanges[number], response = exchange, exchange.response
        if further and response is not None:
            pieces = (
                *response.pieces,
                *chain.from_iterable(each.pieces for each in further),
            )
            exchanges[number] = replace(
                exchange,
                response=replace(response, pieces=pieces, end=further[-1].end),
                ended_ms=further[-1].ended_ms,
                ended_after=further[-1].ended_after,
            )
    return JournalContent(
        header,
        exchanges,
        "; ".join([f"{each}; it is left out" for each in problems]) or None,
    )


def with_checksum(body: bytes) -> bytes:
    """Return a line of a journal from the JSON that it holds."""
    return b"%b %08x\n" % (body, crc32(body))


def _parts(line: bytes) -> tuple[bytes, bytes]:
    line = line if line.endswith(b"\n") else line + b"\n"
    return line, line[:-CHECKSUM_LENGTH]


def _headers(pairs: Any) -> Headers:
    # Most exchanges have the same ones.
    return tuple([(intern(name), intern(value)) for name, value in pairs])


def _pieces(trees: Any) -> tuple[Piece, ...]:
    return tuple([Piece(_raw(raw), at_ms, after) for raw, at_ms, after in trees])


def _raw(tree: dict[str, str]) -> bytes:
    return tree["text"].encode() if "text" in tree else base64.b64decode(tree["base64"])
