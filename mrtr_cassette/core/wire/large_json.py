"""JSON that is large, read in pieces, so that other threads can go on meanwhile.

Owns: cutting arrays, objects and strings where a piece ends, the values of such arrays and objects,
and walking through them piece by piece.
Does not own: what JSON is (`jsonbytes`, whose functions read and write a piece).
Rule: no call of C works on more than a piece at a time, and each takes at most a few milliseconds:
Python lets another thread run between its own instructions only. The value is the very one that is
read in one go.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from heapq import merge
from json import decoder as json_decoder
from typing import Any, AnyStr, Final

from mrtr_cassette.core.wire.pieces import PIECE
from mrtr_cassette.errors import NotJsonError

_scan_string: Callable[[str, int, bool], tuple[str, int]] = json_decoder.scanstring  # type: ignore[attr-defined]
_MEMBERS_AT_ONCE: Final = 64
_SPACE = re.compile(r"[ \t\n\r]*+")
_IN_STRING = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_STR_MARKS: Final[tuple[Any, ...]] = (_IN_STRING, '"', "\\")
_BYTES_MARKS: Final[tuple[Any, ...]] = (
    re.compile(_IN_STRING.pattern.encode(), re.DOTALL),
    b'"',
    b"\\",
)
_WHOLE_ESCAPES = re.compile(r'[^"\\]*+(?:\\(?:u[0-9a-fA-F]{4}|[^u])[^"\\]*+)*+')
_BACKSLASHES = ("\\", ord("\\"))
_HALVES = re.compile(r"[\ud800-\udbff][\udc00-\udfff]")
"""A character of which each half is spelled by an escape of its own."""


class LargeList(list[Any]):
    """An array that was read in pieces; it lets go of its items in pieces, too."""

    __slots__ = ("_ends",)

    def __init__(self, items: Iterable[Any] = ()) -> None:
        """Begin with items of any size, each of which is a batch of its own."""
        super().__init__(items)
        self._ends = list(range(1, len(self) + 1))

    def take(self, batch: list[Any]) -> None:
        """Add items that come from one piece."""
        self += batch
        self._ends.append(len(self))

    def batches(self) -> Iterator[list[Any]]:
        """Yield the items, those of one piece together."""
        start = 0
        for end in self._ends:
            yield self[start:end]
            start = end

    def __del__(self) -> None:
        """Let go of the items."""
        while self._ends:
            self._ends.pop()
            del self[self._ends[-1] if self._ends else 0 :]


class LargeDict(dict[str, Any]):
    """An object that was read in pieces; it lets go of its members in pieces, too."""

    __slots__ = ()

    def copy(self) -> LargeDict:
        """Return an object with the same members."""
        return LargeDict(self)

    def batches(self) -> Iterator[dict[str, Any]]:
        """Yield the members by their names in order, some together; one that is long by itself."""
        some: dict[str, Any] = {}
        for name in in_order(self):
            value = self[name]
            is_long = isinstance(value, str) and len(value) > PIECE
            if is_long or len(some) == _MEMBERS_AT_ONCE:
                yield some
                some = {}
            some[name] = value
            if is_long:
                yield some
                some = {}
        yield some

    def __del__(self) -> None:
        """Let go of the members."""
        while self:
            self.popitem()


def in_order(names: Collection[str]) -> Iterable[str]:
    """Return names in order."""
    if len(names) <= PIECE // _MEMBERS_AT_ONCE:
        return sorted(names)
    runs: list[list[str]] = []
    for name in names:
        if not runs or len(runs[-1]) == PIECE // _MEMBERS_AT_ONCE:
            runs.append([])
        runs[-1].append(name)
    for run in runs:
        run.sort()
    return merge(*runs)


def string_end(text: AnyStr, at: int, piece: int = PIECE) -> int:
    """Return where a string of JSON ends that goes on at an offset: at its quote, or with the text.

    A backslash that ends the text is not part of what goes before it.
    """
    inside, quote, backslash = _STR_MARKS if isinstance(text, str) else _BYTES_MARKS
    end = text.find(quote, at)
    if end < 0:
        end = len(text)
    if text.find(backslash, at, end) < 0:
        return end
    while True:
        piece_end = min(at + piece, len(text))
        at = _end_of(inside.match(text, at, piece_end), at)
        # What is cut off within an escape goes on before it.
        is_cut = at == piece_end or (at == piece_end - 1 and text[at] in _BACKSLASHES)
        if not is_cut or piece_end == len(text):
            return at


class _Ignored(list[Any]):
    """What is read only to find its end."""

    def take(self, batch: list[Any]) -> None:
        """Keep nothing."""

    def update(self, batch: dict[str, Any]) -> None:
        """Keep nothing."""


class LargeReader:
    """Reads values from a text piece by piece, as a decoder of Python's reads them in one go."""

    def __init__(
        self,
        decoder: json.JSONDecoder,
        read: Callable[[str], Any],
        *,
        keeps: bool = True,
        piece: int = PIECE,
    ) -> None:
        """Take what reads a piece.

        Args:
            decoder: reads any value.
            read: reads most values much faster, and raises ValueError for the others.
            keeps: what is read is returned, and not only where it ends.
            piece: characters that are read at once.
        """
        self._piece = piece
        self._scan_small: Callable[[str, int], tuple[Any, int]] = decoder.scan_once  # type: ignore[attr-defined]
        self._read = read
        self._keeps = keeps

    def decode(self, text: str) -> Any:
        """Read one JSON text.

        Raises:
            NotJsonError: it is none.
        """
        try:
            value, at = self.scan(text, _space_end(text, 0))
        except StopIteration as stop:
            raise NotJsonError(f"no value at {stop.value}") from None
        except ValueError as error:
            raise NotJsonError(str(error)) from None
        if _space_end(text, at) != len(text):
            raise NotJsonError(f"more than one value at {at}")
        return value

    def scan(self, text: str, at: int) -> tuple[Any, int]:
        """Read the value that begins at an offset; return it, and the offset after it.

        Raises:
            StopIteration: there is none.
            ValueError: it is wrong.
        """
        match text[at : at + 1]:
            case "[":
                return self._array(text, at + 1)
            case "{":
                return self._object(text, at + 1)
            case '"':
                return _string(text, at + 1, self._piece)
        return self._scan_small(text, at)

    def _array(self, text: str, at: int) -> tuple[Any, int]:
        items = LargeList() if self._keeps else _Ignored()
        at = _space_end(text, at)
        if text[at : at + 1] == "]":
            return items, at + 1
        while True:
            piece = text[at : at + self._piece]
            batch, size = self._quickly(piece, "[]") or self._items(piece)
            if size:
                at += size
            else:
                value, at = self.scan(text, at)
                batch = [value]
                at = _space_end(text, at)
            items.take(batch)
            if text[at : at + 1] == "]":
                return items, at + 1
            at = _after_comma(text, at)

    def _object(self, text: str, at: int) -> tuple[Any, int]:
        members = LargeDict() if self._keeps else _Ignored()
        at = _space_end(text, at)
        if text[at : at + 1] == "}":
            return members, at + 1
        while True:
            piece = text[at : at + self._piece]
            batch, size = self._quickly(piece, "{}") or self._members(piece)
            if size:
                at += size
            else:
                name, at = _name(text, at, self._piece)
                value, at = self.scan(text, at)
                batch = {name: value}
                at = _space_end(text, at)
            members.update(batch)
            if text[at : at + 1] == "}":
                return members, at + 1
            at = _after_comma(text, at)

    def _quickly(self, piece: str, brackets: str) -> tuple[Any, int] | None:
        """Read all items or members that are whole in a piece; return also where they end.

        What is JSON between these brackets, up to a comma, is cut at a comma of its own: one in a
        string or in a value would leave that open.
        """
        for ending in ("},", "],", ","):
            end = piece.rfind(ending) + len(ending) - 1
            if end >= len(ending):
                try:
                    batch = self._read(f"{brackets[0]}{piece[:end]}{brackets[1]}")
                except ValueError:
                    continue
                if batch:
                    return batch, end
        return None

    def _items(self, piece: str) -> tuple[list[Any], int]:
        """Read the items that are whole in a piece, one by one; return also where they end."""
        batch: list[Any] = []
        end = at = 0
        while at < len(piece):
            try:
                value, at = self._scan_small(piece, at)
            except (StopIteration, json.JSONDecodeError):
                break
            at = _space_end(piece, at)
            if piece[at : at + 1] not in (",", "]"):
                # It goes on behind the piece, or is wrong.
                break
            batch.append(value)
            end = at
            if piece[at] == "]":
                break
            at = _space_end(piece, at + 1)
        return batch, end

    def _members(self, piece: str) -> tuple[dict[str, Any], int]:
        """Read the members that are whole in a piece, one by one; return also where they end."""
        batch: dict[str, Any] = {}
        end = at = 0
        while at < len(piece):
            try:
                name, at = _name(piece, at, len(piece))
                value, at = self._scan_small(piece, at)
            except (StopIteration, json.JSONDecodeError):
                break
            at = _space_end(piece, at)
            if piece[at : at + 1] not in (",", "}"):
                break
            batch[name] = value
            end = at
            if piece[at] == "}":
                break
            at = _space_end(piece, at + 1)
        return batch, end


def _name(text: str, at: int, piece: int) -> tuple[str, int]:
    """Read a member's name and the colon; return also where its value begins."""
    if text[at : at + 1] != '"':
        raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text, at)
    name, at = _string(text, at + 1, piece)
    at = _space_end(text, at)
    if text[at : at + 1] != ":":
        raise json.JSONDecodeError("Expecting ':' delimiter", text, at)
    return name, _space_end(text, at + 1)


def _after_comma(text: str, at: int) -> int:
    if text[at : at + 1] != ",":
        raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
    return _space_end(text, at + 1)


def _string(text: str, at: int, piece: int) -> tuple[str, int]:
    """Read the string of which the contents begin at an offset."""
    start, end = at, string_end(text, at, piece)
    # Without escapes it is copied as it is, which takes half a millisecond for each megabyte.
    if end - at <= piece or text[end : end + 1] != '"' or text.find("\\", at, end) < 0:
        return _scan_string(text, at, True)
    parts: list[str] = []
    while at < end:
        piece_end = _end_of(_WHOLE_ESCAPES.match(text, at, min(at + piece, end)), at)
        if piece_end == at:
            # There is a wrong escape.
            return _scan_string(text, start, True)
        part = _scan_string(f'{text[at:piece_end]}"', 0, True)[0]
        if parts and _HALVES.fullmatch(halves := parts[-1][-1:] + part[:1]):
            parts[-1] = parts[-1][:-1]
            part = halves.encode("utf-16", "surrogatepass").decode("utf-16") + part[1:]
        parts.append(part)
        at = piece_end
    return "".join(parts), end + 1


def _space_end(text: str, at: int) -> int:
    return _end_of(_SPACE.match(text, at), at)


def _end_of(match: re.Match[Any] | None, at: int) -> int:
    return at if match is None else match.end()
