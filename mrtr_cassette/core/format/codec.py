"""Cassettes and journal lines as bytes, and bytes as cassettes and journal lines.

Owns: the readable form of a body that gives back the same bytes, the version gate, and the errors
that name the place in a damaged file.
Law: `decode(encode(cassette)) == cassette`, and a body comes back byte for byte.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple, TypeVar, cast

import orjson
from pydantic import ValidationError

from mrtr_cassette.core.format.cassette import (
    SCHEMA_ID,
    VERSION,
    Body,
    Branch,
    Cassette,
    Event,
    ExchangeFacts,
    HeaderMap,
    Interaction,
    JournalLine,
    Opaque,
)
from mrtr_cassette.core.wire.http import End, Exchange, Headers, Piece, Request, Response
from mrtr_cassette.core.wire.jsonbytes import escape_pointer, is_deep
from mrtr_cassette.core.wire.sse import read_event
from mrtr_cassette.errors import CassetteError, shorten


def encode_cassette(cassette: Cassette) -> bytes:
    """Return the file: JSON, two-space indentation, fixed key order, a newline at the end."""
    return orjson.dumps(
        cassette.model_dump(by_alias=True, exclude_none=True),
        option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE,
    )


def decode_cassette(data: bytes, path: str) -> Cassette:
    """Read a file.

    Args:
        data: the file's bytes.
        path: how messages name the file.

    Raises:
        CassetteError: empty, no JSON, no cassette, of another version, or of a wrong type.
    """
    head, interactions, exchanges = decode_parts(data, path)
    facts = {"exchanges": list(exchanges)}
    return head.model_copy(
        update={
            "interactions": list(interactions),
            "recording": head.recording.model_copy(update=facts),
        }
    )


class Parts(NamedTuple):
    """A cassette whose two lists are read item by item, as there may be many.

    An error in an item is raised when its turn comes.

    Attributes:
        head: the cassette less the items of the lists.
        interactions: its interactions.
        exchanges: the facts of its exchanges.
    """

    head: Cassette
    interactions: Iterator[Interaction]
    exchanges: Iterator[ExchangeFacts]


def decode_parts(data: bytes, path: str) -> Parts:
    """Read a file, its lists item by item.

    Raises:
        CassetteError: as `decode_cassette`.
    """
    if not data or data.isspace():
        raise CassetteError(path, "the file is empty", hint="record it again")
    tree, interactions, exchanges = _parts(data, path)
    _check_version(tree, path)
    try:
        head = Cassette.model_validate(tree)
    except ValidationError as error:
        raise _invalid(path, error) from None
    return Parts(
        head,
        _read_interactions(interactions, path),
        _validated(exchanges, ExchangeFacts, path, "/recording/exchanges"),
    )


class _List(NamedTuple):
    """A list of objects in a file, as `encode_cassette` spells it; no string has a line's end."""

    place: tuple[str, ...]
    first: bytes
    end: bytes
    between: bytes
    last: bytes


def _list_at(*place: str) -> _List:
    outer = b"\n" + b"  " * len(place)
    inner = outer + b"  "
    end = inner + b"}"
    return _List(
        place,
        first=b'%b"%b": [%b{' % (outer, place[-1].encode(), inner),
        end=end,
        between=b"%b,%b{" % (end, inner),
        last=b"%b%b]" % (end, outer),
    )


_INTERACTIONS = _list_at("interactions")
_EXCHANGES = _list_at("recording", "exchanges")


def _parts(data: bytes, path: str) -> tuple[Any, Iterable[Any], Iterable[Any]]:
    """Return what stands in a file less the items of its lists, and these."""
    cut: dict[_List, tuple[int, int]] = {}
    rest: list[bytes] = []
    at = 0
    for one in (_INTERACTIONS, _EXCHANGES):
        first, last = data.find(one.first, at), data.rfind(one.last, at)
        if not 0 <= first < last:
            break
        rest += (data[at:first], b'"%b":[]' % one.place[-1].encode())
        cut[one] = first + len(one.first) - 1, last
        at = last + len(one.last)
    try:
        tree = orjson.loads(b"".join([*rest, data[at:]]))
    except orjson.JSONDecodeError:
        cut.clear()
        tree = _json(data, path)
    interactions, exchanges = (
        _read_by_parts(data, one, *cut[one], path) if one in cut else _taken_out(tree, one)
        for one in (_INTERACTIONS, _EXCHANGES)
    )
    return tree, interactions, exchanges


def _taken_out(tree: Any, one: _List) -> list[Any]:
    """Return the items of a list, which is empty from then on."""
    *outer, name = one.place
    for step in outer:
        tree = tree.get(step) if isinstance(tree, dict) else None
    if not isinstance(tree, dict) or not isinstance(tree.get(name), list):
        return []
    items: list[Any] = tree[name]
    tree[name] = []
    return items


_READ_AT_ONCE = 32 * 1024
"""Bytes of items, or one item, that are read as JSON at once; many small texts take longer."""


def _read_by_parts(data: bytes, one: _List, at: int, last: int, path: str) -> Iterator[Any]:
    count = 0
    while at <= last:
        end = data.find(one.between, at + _READ_AT_ONCE, last)
        end = last if end < 0 else end
        try:
            trees = orjson.loads(b"[%b]" % data[at : end + len(one.end)])
        except orjson.JSONDecodeError:
            # Read as a whole, the file tells where it is damaged.
            yield from _taken_out(_json(data, path), one)[count:]
            return
        yield from trees
        count += len(trees)
        at = end + len(one.between) - 1


def _json(data: bytes, path: str) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise CassetteError(
            path,
            f"not JSON: {error}",
            hint="the file is damaged or no cassette; restore it or record it again",
        ) from None


def _read_interactions(trees: Iterable[Any], path: str) -> Iterator[Interaction]:
    turns: list[int] = []
    for index, interaction in enumerate(_validated(trees, Interaction, path, "/interactions")):
        turns.append(len(interaction.elicitation_turns))
        if turns[-1]:
            _check_turns(interaction, path, f"/interactions/{index}")
        if interaction.branch is not None:
            _check_branch(interaction, turns, interaction.branch, path)
        yield interaction


_Item = TypeVar("_Item", Interaction, ExchangeFacts)
AT_ONCE = 32
"""Items that are read together, step by step: a processor is quicker at more of the same."""


def _validated(
    trees: Iterable[Any], model: type[_Item], path: str, pointer: str
) -> Iterator[_Item]:
    """Yield what items of a list are; all that come before a wrong one are yielded."""
    coming = enumerate(trees)
    while batch := list(islice(coming, AT_ONCE)):
        items: list[_Item] = []
        for index, tree in batch:
            try:
                items.append(model.model_validate(tree))
            except ValidationError as error:
                yield from items
                raise _invalid(path, error, f"{pointer}/{index}") from None
        yield from items


def _invalid(path: str, error: ValidationError, at: str = "") -> CassetteError:
    first = error.errors(include_url=False)[0]
    pointer = at + "".join(f"/{escape_pointer(str(step))}" for step in first["loc"])
    found = f", found {_shown(first['input'])}" if first["type"] != "missing" else ""
    return _damaged(path, pointer, f"{first['msg'].lower()}{found}")


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "an array"
    return shorten(repr(value))


def _damaged(path: str, pointer: str, reason: str) -> CassetteError:
    return CassetteError(
        path, f"at {pointer}: {reason}", hint="restore the file, or record it again"
    )


def _check_version(tree: Any, path: str) -> None:
    version = tree.get("version") if isinstance(tree, dict) else None
    if type(version) is not int or "interactions" not in tree:
        raise CassetteError(
            path,
            "JSON, but no mrtr-cassette file (no `version` and `interactions` at its top level)",
            hint="name a file that `mrtr-cassette record` wrote",
        )
    if version != VERSION:
        raise CassetteError(
            path,
            f"cassette version {version}, and this program reads version {VERSION}",
            hint="update mrtr-cassette" if version > VERSION else "record it again",
        )


def _check_turns(interaction: Interaction, path: str, pointer: str) -> None:
    """Make sure that only the last turn lacks an answer, and that nothing follows it."""
    turns = interaction.elicitation_turns
    for index, turn in enumerate(turns):
        if turn.answer is None and index + 1 < len(turns):
            at = f"{pointer}/elicitation_turns/{index}"
            raise _damaged(path, at, "no `answer`, and another turn follows")
    if turns and turns[-1].answer is None and interaction.response is not None:
        raise _damaged(path, f"{pointer}/response", "a response after a turn without `answer`")


def _check_branch(interaction: Interaction, turns: list[int], branch: Branch, path: str) -> None:
    """Check the branch that the last of the interactions read is; `turns` has their turns."""
    index = len(turns) - 1
    pointer = f"/interactions/{index}/branch"
    if branch.of > index:
        raise _damaged(path, f"{pointer}/of", f"{branch.of} is no earlier interaction")
    for number in (index, branch.of - 1):
        if branch.turn > turns[number]:
            reason = f"interaction {number + 1} has no such turn"
            raise _damaged(path, f"{pointer}/turn", reason)
    if interaction.elicitation_turns[branch.turn - 1].answer is None:
        raise _damaged(path, f"{pointer}/turn", "the branch has no answer of its own there")


def schema() -> bytes:
    """Return the JSON Schema of the cassette format."""
    generated = Cassette.model_json_schema(by_alias=True)
    tree = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        **generated,
    }
    return orjson.dumps(tree, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def encode_body(pieces: tuple[bytes, ...], *, events: bool) -> dict[str, Any]:
    """Return the fields of a `Body` for these bytes.

    Args:
        events: each piece is an event of an event stream.
    """
    raw = b"".join(pieces)
    if not raw:
        return {}
    digest = hashlib.sha256(raw).hexdigest()
    if events:
        shown = [
            _encode_event(piece, first=index == 0) for index, piece in enumerate(pieces) if piece
        ]
        return {"events": shown, "sha256": digest}
    value = _json_that_round_trips(raw)
    if value is not None:
        return {"body": value, "sha256": digest}
    return {**_encode_opaque(raw), "sha256": digest}


def _encode_event(raw: bytes, *, first: bool) -> Event:
    event = read_event(raw, first=first)
    if event.data is not None and len(event.lines) == 1:
        span = event.lines[0][1]
        value = _json_that_round_trips(event.data)
        try:
            before, after = raw[: span.start].decode(), raw[span.end :].decode()
        except UnicodeDecodeError:
            value = None
        if value is not None:
            return Event(before=before, data=value, after=after)
    return Event.model_validate(_encode_opaque(raw))


def _encode_opaque(raw: bytes) -> dict[str, str]:
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


def decode_body(body: Body, path: str, pointer: str) -> tuple[bytes, ...]:
    """Return the bytes of a body; of an event stream, event by event.

    Args:
        path: how messages name the file.
        pointer: where in the file the body stands, as a JSON Pointer.

    Raises:
        CassetteError: two forms at once, no base64, or bytes that aren't the recorded ones.
    """
    given = (body.body, body.text, body.base64, body.events)
    if given.count(None) < len(given) - 1:
        names = ("body", "text", "base64", "events")
        forms = [name for name, form in zip(names, given, strict=True) if form is not None]
        raise _damaged(path, pointer, f"both `{forms[0]}` and `{forms[1]}`")
    if body.events is not None:
        pieces = tuple(
            _decode_event(event, path, f"{pointer}/events/{index}")
            for index, event in enumerate(body.events)
        )
    elif body.body is not None:
        pieces = (_compact(body.body, path, pointer),)
    else:
        raw = _decode_opaque(body, path, pointer)
        pieces = (raw,) if raw else ()
    if body.sha256 is not None:
        digest = hashlib.sha256(b"".join(pieces)).hexdigest()
        if digest != body.sha256:
            raise CassetteError(
                path,
                f"at {pointer}: the body's sha256 is {digest}, not {body.sha256}",
                hint="if you edited the body on purpose, put the first one in, "
                "or remove the line `sha256`",
            )
    return pieces


def _decode_event(event: Event, path: str, pointer: str) -> bytes:
    if event.data is not None:
        data = _compact(event.data, path, pointer)
        return (event.before or "").encode() + data + (event.after or "").encode()
    return _decode_opaque(event, path, pointer)


def _compact(value: Any, path: str, pointer: str) -> bytes:
    try:
        # A copy, as what orjson returns holds on to the 4 KiB that it was written in.
        return bytes(memoryview(orjson.dumps(value)))
    except TypeError as error:
        raise _damaged(path, pointer, str(error).lower()) from None


def _decode_opaque(body: Body | Event, path: str, pointer: str) -> bytes:
    if body.base64 is not None:
        try:
            return base64.b64decode(body.base64, validate=True)
        except ValueError as error:
            raise _damaged(path, f"{pointer}/base64", str(error).lower()) from None
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
    found: HeaderMap = {}
    for name, value in headers:
        before = found.get(name)
        if before is None:
            found[name] = value
        else:
            found[name] = [*([before] if isinstance(before, str) else before), value]
    return found


def encode_journal_line(exchange: Exchange) -> bytes:
    """Return one exchange as one line of JSON."""
    request, response = exchange.request, exchange.response
    return orjson.dumps(
        {
            "number": exchange.number,
            "started_ms": exchange.started_ms,
            "ended_ms": exchange.ended_ms,
            "issued_sha256": exchange.issued_sha256,
            "echoed_sha256": exchange.echoed_sha256,
            "request": [
                request.method,
                request.target,
                request.headers,
                _encode_opaque(request.body),
            ],
            "response": [
                response.status,
                response.headers,
                response.end.value,
                [[_encode_opaque(p.raw), p.at_ms, p.after] for p in response.pieces],
            ],
        },
        option=orjson.OPT_APPEND_NEWLINE,
    )


def decode_journal_line(line: bytes) -> Exchange:
    """Read what `encode_journal_line` wrote.

    Raises:
        ValueError: it is something else.
    """
    read = JournalLine.model_validate_json(line, strict=True)
    method, target, headers, body = read.request
    status, response_headers, end, pieces = read.response
    return Exchange(
        number=read.number,
        request=Request(method, target, tuple(headers), _opaque(body)),
        response=Response(
            status,
            tuple(response_headers),
            tuple(Piece(_opaque(raw), at_ms, after) for raw, at_ms, after in pieces),
            End(end),
        ),
        started_ms=read.started_ms,
        ended_ms=read.ended_ms,
        issued_sha256=read.issued_sha256,
        echoed_sha256=read.echoed_sha256,
    )


def _opaque(raw: Opaque) -> bytes:
    if raw.base64 is not None:
        return base64.b64decode(raw.base64, validate=True)
    if raw.text is None:
        raise ValueError("neither text nor base64")
    return raw.text.encode()
