"""Bodies and headers as a cassette has them, byte for byte; and the digest of an exchange."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from mrtr_cassette.core.cassette.model import BodyModel, EventModel, HeaderMap, LineModel
from mrtr_cassette.core.wire.http import End, Headers, Request, Response
from mrtr_cassette.core.wire.jsonbytes import is_deep
from mrtr_cassette.core.wire.sse import read_event
from mrtr_cassette.errors import CassetteError, printable

_FORMS = ("body", "text", "base64", "events", "lines")
_ENDS = {End.COMPLETE: b"", End.OPEN: b"open", End.BROKEN: b"broken"}
_WITHHELD = re.compile("mrtr-withheld:[0-9]+:[0-9a-f]{64}")
"""What earlier versions wrote for a body of which they kept only the size and the SHA-256."""


def damaged(path: str, pointer: str, reason: str) -> CassetteError:
    """Return the error for a place in a file, named by its JSON Pointer."""
    return CassetteError(
        path, printable(f"at {pointer}: {reason}"), hint="restore the file, or record it again"
    )


def encode_body(raw: bytes) -> dict[str, Any]:
    """Return the fields of a `Body` for these bytes."""
    if not raw:
        return {}
    value = _json_that_round_trips(raw)
    return encode_opaque(raw) if value is None else {"body": value}


def encode_response_body(response: Response) -> dict[str, Any]:
    """Return the same for a response: event by event, or line by line, where it has them."""
    if not response.is_framed:
        return encode_body(response.body)
    pieces = [piece.raw for piece in response.pieces if piece.raw]
    if not pieces:
        return {}
    if response.is_lines:
        return {"lines": [_encode_line(raw) for raw in pieces]}
    return {"events": [_encode_event(raw, first=number == 0) for number, raw in enumerate(pieces)]}


def _encode_line(raw: bytes) -> dict[str, Any]:
    value = _json_that_round_trips(raw[:-1]) if raw.endswith(b"\n") else None
    return encode_opaque(raw) if value is None else {"data": value}


def _encode_event(raw: bytes, *, first: bool) -> dict[str, Any]:
    event = read_event(raw, first=first)
    if event.data is None or len(event.lines) != 1:
        return encode_opaque(raw)
    span, value = event.lines[0][1], _json_that_round_trips(event.data)
    try:
        before, after = raw[: span.start].decode(), raw[span.end :].decode()
    except UnicodeDecodeError:
        value = None
    if value is None:
        return encode_opaque(raw)
    return {"before": before, "data": value, "after": after}


def encode_opaque(raw: bytes) -> dict[str, str]:
    """Return bytes as `text`, or as `base64` where they are not UTF-8."""
    try:
        return {"text": raw.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw).decode()}


def _json_that_round_trips(raw: bytes) -> Any:
    """Return the value if it gives back the same bytes; None where it doesn't, and for null."""
    try:
        value = orjson.loads(raw)
        return value if orjson.dumps(value) == raw and not is_deep(raw) else None
    except (ValueError, TypeError):
        return None


def decode_body(body: BodyModel, path: str, pointer: str) -> tuple[bytes, ...]:
    """Return the bytes of a body; of an event stream or a pipe, event by event or line by line.

    Raises:
        CassetteError: two forms at once, or no base64; it names the place, `pointer`.
    """
    forms = [form for form in _FORMS if getattr(body, form) is not None]
    if len(forms) > 1:
        raise damaged(path, pointer, f"both `{forms[0]}` and `{forms[1]}`")
    pieces: Sequence[EventModel | LineModel] = body.events or body.lines or ()
    if pieces:
        at = f"{pointer}/{forms[0]}"
        return tuple([_decode_piece(each, path, f"{at}/{n}") for n, each in enumerate(pieces)])
    if body.body is not None:
        return (_compact(body.body, path, pointer),)
    raw = _decode_opaque(body, path, pointer)
    return (raw,) if raw else ()


def _decode_piece(piece: EventModel | LineModel, path: str, pointer: str) -> bytes:
    if piece.data is None:
        return _decode_opaque(piece, path, pointer)
    data = _compact(piece.data, path, pointer)
    if isinstance(piece, LineModel):
        return data + b"\n"
    return (piece.before or "").encode() + data + (piece.after or "").encode()


def _compact(value: Any, path: str, pointer: str) -> bytes:
    try:
        # A copy, as what orjson returns holds on to the 4 KiB that it was written in.
        return bytes(memoryview(orjson.dumps(value)))
    except TypeError as error:
        raise damaged(path, pointer, str(error).lower()) from None


def _decode_opaque(body: BodyModel | EventModel | LineModel, path: str, pointer: str) -> bytes:
    if body.text is not None and _WITHHELD.fullmatch(body.text):
        raise CassetteError(
            path,
            f"at {pointer}: the body was withheld by --strict-redaction, so it can't be played",
            hint="record it again",
        )
    if body.base64 is not None:
        try:
            return base64.b64decode(body.base64, validate=True)
        except ValueError as error:
            raise damaged(path, f"{pointer}/base64", str(error).lower()) from None
    return (body.text or "").encode()


def headers_of(headers: HeaderMap) -> Headers:
    """Return the headers of a cassette as pairs."""
    return tuple(
        [
            (name, value)
            for name, values in headers.items()
            for value in ([values] if isinstance(values, str) else values)
        ]
    )


def header_map(headers: Headers) -> HeaderMap:
    """Return headers as a cassette has them: a name that came more than once has a list."""
    values: dict[str, list[str]] = {}
    for name, value in headers:
        values.setdefault(name, []).append(value)
    return {name: each[0] if len(each) == 1 else each for name, each in values.items()}


def exchange_sha256(request: Request, response: Response | None) -> str:
    """Return the digest of one exchange, which covers values, and not how the file spells them."""
    fields = [
        request.method.encode(),
        request.target.encode(),
        _header_fields(request.headers),
        request.body,
    ]
    if response is None:
        fields += (b"", b"", b"", b"")
    else:
        fields += (
            b"%d" % response.status,
            _header_fields(response.headers),
            _ENDS[response.end],
            response.body,
        )
    return hashlib.sha256(_netstrings(fields)).hexdigest()


def _header_fields(headers: Headers) -> bytes:
    return _netstrings([text.encode() for pair in headers for text in pair])


def _netstrings(fields: Iterable[bytes]) -> bytes:
    return b"".join([b"%d:%b," % (len(field), field) for field in fields])
