"""Bodies and headers as a cassette has them, and back.

Rule: a body comes back byte for byte, or there is an error that names its place.
"""

from __future__ import annotations

import base64
import re
from typing import Any, cast

import orjson

from mrtr_cassette.core.format.model import BodyModel, EventModel, HeaderMap, LineModel
from mrtr_cassette.core.wire.http import Headers, Response
from mrtr_cassette.core.wire.jsonbytes import is_deep
from mrtr_cassette.core.wire.sse import read_event
from mrtr_cassette.errors import CassetteError, printable

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
    if value is not None:
        return {"body": value}
    return encode_opaque(raw)


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
    if event.data is not None and len(event.lines) == 1:
        span = event.lines[0][1]
        value = _json_that_round_trips(event.data)
        try:
            before, after = raw[: span.start].decode(), raw[span.end :].decode()
        except UnicodeDecodeError:
            value = None
        if value is not None:
            return {"before": before, "data": value, "after": after}
    return encode_opaque(raw)


def encode_opaque(raw: bytes) -> dict[str, str]:
    """Return bytes as `text`, or as `base64` where they are no UTF-8."""
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

    Args:
        pointer: where in the file the body stands, as a JSON Pointer.

    Raises:
        CassetteError: two forms at once, or no base64.
    """
    given = (body.body, body.text, body.base64, body.events, body.lines)
    if given.count(None) < len(given) - 1:
        names = ("body", "text", "base64", "events", "lines")
        forms = [name for name, form in zip(names, given, strict=True) if form is not None]
        raise damaged(path, pointer, f"both `{forms[0]}` and `{forms[1]}`")
    if body.events is not None:
        pieces = tuple(
            _decode_event(event, path, f"{pointer}/events/{index}")
            for index, event in enumerate(body.events)
        )
    elif body.lines is not None:
        pieces = tuple(
            _decode_line(line, path, f"{pointer}/lines/{index}")
            for index, line in enumerate(body.lines)
        )
    elif body.body is not None:
        pieces = (_compact(body.body, path, pointer),)
    else:
        raw = _decode_opaque(body, path, pointer)
        pieces = (raw,) if raw else ()
    return pieces


def _decode_event(event: EventModel, path: str, pointer: str) -> bytes:
    if event.data is not None:
        data = _compact(event.data, path, pointer)
        return (event.before or "").encode() + data + (event.after or "").encode()
    return _decode_opaque(event, path, pointer)


def _decode_line(line: LineModel, path: str, pointer: str) -> bytes:
    if line.data is not None:
        return _compact(line.data, path, pointer) + b"\n"
    return _decode_opaque(line, path, pointer)


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
    if list not in map(type, headers.values()):
        return cast("Headers", tuple(headers.items()))
    return tuple(
        (name, value)
        for name, values in headers.items()
        for value in ([values] if isinstance(values, str) else values)
    )


def header_map(headers: Headers) -> HeaderMap:
    """Return headers as a cassette has them: a name that came more than once has a list."""
    members: HeaderMap = {}
    for name, value in headers:
        before = members.get(name)
        if before is None:
            members[name] = value
        else:
            members[name] = [*([before] if isinstance(before, str) else before), value]
    return members
