"""The lines of a journal: compact JSON, a space, and its CRC-32, which shows any flipped bit."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
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
_FACT_NAMES = (
    "number",
    "started_ms",
    "ended_ms",
    "ended_after",
    "issued_sha256",
    "echoed_sha256",
)
"""The members of a line that are attributes of an exchange."""

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
    """Patterns of calls, and pointers into them that don't count when a cassette is replaced."""

    values: tuple[str, ...] = ()
    """The names of the values to which texts refer."""


def encode_journal_header(header: JournalHeader) -> bytes:
    """Return the first line of a journal."""
    tree = {"journal": JOURNAL_VERSION, **asdict(header)}
    return with_checksum(orjson.dumps(tree))


def decode_journal_header(line: bytes, path: str) -> JournalHeader:
    """Read the first line of a journal, with or without its end.

    Raises:
        CassetteError: it is the line of something else, of another version, or damaged.
    """
    body, is_intact = _json_and_whether_intact(line)
    try:
        tree = orjson.loads(body)
    except orjson.JSONDecodeError:
        tree = None

    version = None
    if isinstance(tree, dict):
        version = tree.pop("journal", None)

    if type(version) is not int:
        raise CassetteError(path, "its first line is not a journal's")
    # A version that is not known may have checksums of another kind.
    if version != JOURNAL_VERSION:
        raise CassetteError(
            path,
            f"journal version {version}, and this program reads version {JOURNAL_VERSION}",
            hint="publish it with the version of mrtr-cassette that recorded it",
        )
    if not is_intact:
        raise CassetteError(
            path, "its first line is damaged: the checksum doesn't match"
        )

    return _journal_header_from_members(tree)


def _journal_header_from_members(tree: dict[str, Any]) -> JournalHeader:
    """Return a header from its members, whose arrays become tuples."""
    rules = tree.pop("redaction")
    redaction = None
    if rules:
        members = {name: tuple(texts) for name, texts in rules.items()}
        redaction = RedactionRules(**members)

    ignored = []
    for pattern, pointers in tree.pop("ignored", ()):
        ignored.append((pattern, tuple(pointers)))

    values = tuple(tree.pop("values", ()))
    return JournalHeader(
        **tree, redaction=redaction, ignored=tuple(ignored), values=values
    )


class Continuation(NamedTuple):
    """The pieces of a response that came since the last line about it, and its present end."""

    number: int
    pieces: tuple[Piece, ...]
    end: End
    ended_ms: float
    ended_after: int
    digests: tuple[tuple[str, str], ...] = ()


def encode_journal_line(
    exchange: RecordedExchange, *, continues: bool = False
) -> bytes:
    """Return one exchange as a line; if it continues, only what no earlier line has."""
    if continues and exchange.response is not None:
        tree = _tree_of_continuation(exchange, exchange.response)
    else:
        tree = _tree_of_exchange(exchange)

    return with_checksum(orjson.dumps(tree))


def _tree_of_continuation(
    exchange: RecordedExchange, response: Response
) -> dict[str, Any]:
    """Return the JSON of a line with further pieces of a response, and its present end."""
    tree: dict[str, Any] = {
        "continues": exchange.number,
        "ended_ms": exchange.ended_ms,
        "ended_after": exchange.ended_after,
        "end": response.end.value,
        "pieces": _piece_trees(response.pieces),
    }
    if exchange.digests:
        tree["digests"] = dict(exchange.digests)

    return tree


def _tree_of_exchange(exchange: RecordedExchange) -> dict[str, Any]:
    """Return the JSON of a line that has all of an exchange as it is now."""
    request = exchange.request
    response = exchange.response
    body = encode_opaque(request.body)
    tree: dict[str, Any] = {name: getattr(exchange, name) for name in _FACT_NAMES}
    tree["follows"] = exchange.played_writes
    tree["request"] = [request.method, request.target, request.headers, body]
    tree["response"] = None
    if exchange.digests:
        tree["digests"] = dict(exchange.digests)

    if response is not None:
        pieces = _piece_trees(response.pieces)
        end = response.end.value
        tree["response"] = [response.status, response.headers, end, pieces]

    return tree


def _piece_trees(pieces: Iterable[Piece]) -> list[Any]:
    """Return the bytes of pieces, when they came, and after how many requests."""
    return [
        [encode_opaque(raw), at_ms, arrived_count]
        for raw, at_ms, arrived_count in pieces
    ]


def decode_journal_line(
    line: bytes, recorder: str | None = None
) -> RecordedExchange | Continuation:
    """Read a line that `encode_journal_line` wrote, with or without its end.

    Raises:
        ValueError: it is torn, damaged, or something else.
    """
    body, is_intact = _json_and_whether_intact(line)
    if not is_intact:
        raise ValueError("the checksum doesn't match")

    try:
        tree = orjson.loads(body)
        if "continues" in tree:
            return _continuation_of_tree(tree)
        return _exchange_of_tree(tree, recorder)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"no exchange: {error}") from None


def _continuation_of_tree(tree: Mapping[str, Any]) -> Continuation:
    """Return the continuation in the JSON of a line."""
    return Continuation(
        number=tree["continues"],
        pieces=_pieces_of_trees(tree["pieces"]),
        end=End(tree["end"]),
        ended_ms=tree["ended_ms"],
        ended_after=tree["ended_after"],
        digests=tuple(tree.get("digests", {}).items()),
    )


def _exchange_of_tree(
    tree: Mapping[str, Any], recorder: str | None
) -> RecordedExchange:
    """Return the exchange in the JSON of a line, as seen by a recorder if it has a name."""
    method, target, headers, body = tree["request"]
    response = None
    if tree["response"] is not None:
        status, response_headers, end, pieces = tree["response"]
        response = Response(
            status,
            _headers_of_pairs(response_headers),
            _pieces_of_trees(pieces),
            End(end),
        )

    recorded_by = None
    if recorder is not None:
        recorded_by = RecordedBy(recorder, tree["number"])

    facts = {name: tree[name] for name in _FACT_NAMES}
    return RecordedExchange(
        **facts,
        request=Request(method, target, _headers_of_pairs(headers), _raw_bytes(body)),
        response=response,
        recorded_by=recorded_by,
        played_writes=tuple(tree.get("follows", ())),
        digests=tuple(tree.get("digests", {}).items()),
    )


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
    first_line, *lines = data.split(b"\n")
    header = decode_journal_header(first_line, path)
    begun_exchanges: dict[int, RecordedExchange] = {}
    continuations: dict[int, list[Continuation]] = {}
    lost = []
    for line_number, line in enumerate(lines, start=2):
        try:
            decoded = decode_journal_line(line, header.recorder)
        except ValueError:
            if line:
                size = f"{len(line):,} bytes"
                lost.append(
                    f"line {line_number} is incomplete ({size}); it is left out"
                )

            continue

        if isinstance(decoded, RecordedExchange):
            number = decoded.number or 0
            begun_exchanges[number] = decoded
            continuations[number] = []
        elif decoded.number in begun_exchanges:
            continuations[decoded.number].append(decoded)
        else:
            problem = "continues a response whose beginning is lost; it is left out"
            lost.append(f"line {line_number} {problem}")

    exchanges = {}
    for number, exchange in begun_exchanges.items():
        exchanges[number] = _continued_exchange(exchange, continuations[number])

    return JournalContent(header, exchanges, "; ".join(lost) or None)


def _continued_exchange(
    exchange: RecordedExchange, continuations: Sequence[Continuation]
) -> RecordedExchange:
    """Return an exchange as the last line about it leaves it."""
    response = exchange.response
    if not continuations or response is None:
        return exchange

    pieces = [*response.pieces]
    digests = [*exchange.digests]
    for continuation in continuations:
        pieces += continuation.pieces
        digests += continuation.digests

    last_continuation = continuations[-1]
    whole_response = replace(response, pieces=tuple(pieces), end=last_continuation.end)
    return replace(
        exchange,
        response=whole_response,
        ended_ms=last_continuation.ended_ms,
        ended_after=last_continuation.ended_after,
        digests=tuple(digests),
    )


def with_checksum(body: bytes) -> bytes:
    """Return a line of a journal from the JSON that it holds."""
    return b"%b %08x\n" % (body, crc32(body))


def _json_and_whether_intact(line: bytes) -> tuple[bytes, bool]:
    """Return the JSON of a line, with or without its end, and whether its checksum matches."""
    whole_line = line.removesuffix(b"\n") + b"\n"
    body = whole_line[:-CHECKSUM_LENGTH]
    return body, with_checksum(body) == whole_line


def _headers_of_pairs(pairs: Any) -> Headers:
    """Return headers from pairs of JSON; equal texts share their memory."""
    # Most exchanges have the same ones.
    headers = [(intern(name), intern(value)) for name, value in pairs]
    return tuple(headers)


def _pieces_of_trees(trees: Any) -> tuple[Piece, ...]:
    """Return pieces from the lists that `_piece_trees` returned."""
    pieces = [
        Piece(_raw_bytes(raw), at_ms, arrived_count)
        for raw, at_ms, arrived_count in trees
    ]
    return tuple(pieces)


def _raw_bytes(tree: dict[str, str]) -> bytes:
    """Return the bytes that are written as `text` or as `base64`."""
    if "text" in tree:
        return tree["text"].encode()
    return base64.b64decode(tree["base64"])
