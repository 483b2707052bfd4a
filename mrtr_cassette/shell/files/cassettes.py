"""Cassettes on disk and in stores: read, written, checked.

Rule: what exists is never overwritten unasked, and a reader sees the old file or the new one.
"""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from mrtr_cassette.core.cassette.load import AcceptedEdit, accept_edit, load
from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.record.publish_check import ExposedSecret, exposed_secrets
from mrtr_cassette.errors import CassetteError
from mrtr_cassette.shell.files.disk import (
    check_writable,
    real_path,
    reason_of,
    remove_leftovers,
    write_whole,
)
from mrtr_cassette.shell.files.journals import journal_in_the_way, journal_path, stands
from mrtr_cassette.shell.files.log import Progress
from mrtr_cassette.shell.files.stores import Location

OPENED_VARIABLE: Final = "MRTR_CASSETTE_OPENED"
"""Names a file that takes the path of each cassette that a process reads or writes."""
_URL = re.compile("https?:/", re.IGNORECASE)
"""What a URL begins with that was taken for a path, which has no two slashes in a row."""
_MARK = re.compile(rb'"\$schema"\s*:\s*"urn:mrtr-cassette:cassette:')
_BEGINNING: Final = 1024
"""Bytes of a cassette in which its schema is named."""


@contextmanager
def without_collection() -> Iterator[None]:
    """Switch the garbage collector off while very many objects are made that all stay alive."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def load_cassette(path: Location, progress: Progress | None = None) -> Cassette:
    """Load a cassette; where it is missing, and only a journal stands, the error says so."""
    return load(read_file(path), str(path), progress=progress)


def load_if_any(path: Location) -> Cassette:
    """Load a cassette; the null device, with which git stands for no file, is one without calls."""
    if str(path) != os.devnull:
        return load_cassette(path)
    return Cassette(
        path=str(path),
        upstream="",
        request_state="sealed",
        redaction=None,
        seals_answers=False,
        recorded_at="",
        tool="",
        interactions=(),
    )


def read_file(path: Location) -> bytes:
    """Return the bytes of a cassette; the error of a missing one says how to get one."""
    _note(path)
    try:
        return path.read_bytes()
    except FileNotFoundError:
        journal = journal_path(path)
        if stands(journal):
            raise journal_in_the_way(journal, path) from None
        if _URL.match(str(path)):
            hint = "record the server first with: <<record>>"
            raise CassetteError(path, "a URL, and a cassette is a file", hint=hint) from None
        hint = "record one with: <<record>>"
        raise CassetteError(path, "there is no such cassette", hint=hint) from None
    except OSError as error:
        raise CassetteError(path, reason_of(error)) from None


def _note(path: Location) -> None:
    opened = os.environ.get(OPENED_VARIABLE)
    if opened and isinstance(path, Path):
        with Path(opened).open("a", encoding="utf-8") as file:
            file.write(f"{path.resolve()}\n")


def publish(path: Location, pieces: Iterable[bytes], *, replace: bool) -> None:
    """Write a cassette, of which a reader sees the old or the new; a CassetteError says why not."""
    check_replaceable(path)
    _note(path)
    recover = f"mrtr-cassette recover {path}"
    try:
        write(path, pieces, replace=replace)
    except FileExistsError:
        hint = f"move it away and publish the recording with: {recover}"
        raise CassetteError(path, "the cassette exists", hint=hint) from None
    except OSError as error:
        hint = f"the recording is in the journal; publish it with: {recover}"
        raise CassetteError(path, reason_of(error), hint=hint) from None


def write(path: Location, pieces: Iterable[bytes], *, replace: bool) -> None:
    """Write a cassette as `publish` does, and leave it to the caller to say what is wrong.

    Raises:
        FileExistsError: it exists, and is not to be replaced.
        OSError: it could not be written.
    """
    if isinstance(path, Path):
        write_whole(path, pieces, replace=replace)
    else:
        path.write(pieces, replace=replace)


def exists(path: Location) -> bool:
    """Tell whether there is a cassette; a CassetteError says that nobody can tell."""
    try:
        return path.exists()
    except OSError as error:
        raise CassetteError(path, reason_of(error)) from None


def tidy(path: Location) -> None:
    """Remove what runs that were killed while they wrote a cassette left beside it."""
    if isinstance(path, Path):
        remove_leftovers(real_path(path))


def cassette_exists(path: Location) -> CassetteError:
    """Return the error for a cassette that would be overwritten unasked."""
    return CassetteError(
        path, "the cassette exists", hint="use <<replace>> to replace it or <<append>> to add to it"
    )


def check_replaceable(path: Location) -> None:
    """Make sure that a cassette can be written here, in the place of no pipe or device."""
    if isinstance(path, Path):
        check_writable(path)
        if path.exists() and not path.is_file():
            raise CassetteError(path, "is no regular file", hint="name a file")


def is_cassette(path: Path) -> bool:
    """Tell whether a JSON file says at its beginning that it is a cassette."""
    try:
        with path.open("rb") as file:
            return _MARK.search(file.read(_BEGINNING)) is not None
    except OSError:
        return False


def check(path: Location, progress: Progress) -> tuple[int, list[ExposedSecret]]:
    """Return how many interactions a cassette has, all of them as recorded, and secrets in it."""
    cassette = load_cassette(path, progress)
    return len(cassette.interactions), list(exposed_secrets(cassette))


def fix(path: Location) -> AcceptedEdit:
    """Accept what was edited in a cassette; it is written only where that changes it."""
    data = read_file(path)
    accepted = accept_edit(data, str(path))
    if accepted.data != data:
        publish(path, [accepted.data], replace=True)
    return accepted
