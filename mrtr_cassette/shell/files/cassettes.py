"""Cassettes on disk and in stores, and the journals on this machine that become cassettes."""

from __future__ import annotations

import gc
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from glob import glob, has_magic
from pathlib import Path
from typing import Final

from mrtr_cassette.core.cassette.load import (
    LFS_POINTER,
    accept_edit,
    foreign_error,
    is_not_meant_as_cassette,
    lfs_pointer_error,
    load,
)
from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.errors import BeingRecordedError, CassetteError, UsageError
from mrtr_cassette.shell.files.disk import (
    check_link_stays_in_folder,
    check_writable,
    is_locked,
    system_reason,
    write_whole,
)
from mrtr_cassette.shell.files.stores import Location, location_of
from mrtr_cassette.terms import shell_command

OPENED_VARIABLE: Final = "MRTR_CASSETTE_OPENED"
"""Names a file that takes the path of each cassette that a process reads or writes."""

_CASSETTE_MARK: Final = b'"urn:mrtr-cassette:cassette:'
_JOURNAL_SUFFIX: Final = ".journal"
_BEGINNING_BYTES: Final = 1024
"""Bytes of a cassette in which its schema is named."""


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Switch the garbage collector off while very many objects are made that all stay alive."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def load_cassette(path: Location) -> Cassette:
    """Load a cassette; where it is missing, and only a journal stands, the error says so."""
    return load(read_file(path), str(path))


def load_if_readable(path: Location) -> Cassette | None:
    """Load a cassette; None where there is none, or it can't be read."""
    with suppress(CassetteError):
        return load_cassette(path)

    return None


def load_unless_null_device(path: Location) -> Cassette:
    """Load a cassette; the null device, with which git stands for no file, is one without calls."""
    return Cassette(str(path)) if str(path) == os.devnull else load_cassette(path)


def read_file(path: Location) -> bytes:
    """Return the bytes of a cassette; the error of a missing one says how to get one."""
    _note_opened(path)
    try:
        return path.read_bytes()
    except FileNotFoundError:
        if os.path.lexists(journal_path(path)):
            raise journal_in_the_way(path) from None

        hint = "record one with: <<record>>"
        raise CassetteError(path, "there is no such cassette", hint=hint) from None
    except OSError as error:
        raise CassetteError(path, system_reason(error)) from None


def _note_opened(path: Location) -> None:
    """Add the path of a cassette on disk to the file that `OPENED_VARIABLE` names, if it is set."""
    list_path = os.environ.get(OPENED_VARIABLE)
    if list_path and isinstance(path, Path):
        with Path(list_path).open("a", encoding="utf-8") as file:
            file.write(f"{path.resolve()}\n")


def publish_cassette(
    path: Location, pieces: Iterable[bytes], *, replace: bool, hint: str | None = None
) -> None:
    """Write a cassette, of which a reader sees the old or the new.

    Raises:
        CassetteError: it exists and is not to be replaced, or can't be written; with the hint.
    """
    check_replaceable(path)
    _note_opened(path)
    try:
        if isinstance(path, Path):
            write_whole(path, pieces, replace=replace)
        else:
            path.write(pieces, replace=replace)
    except FileExistsError:
        raise CassetteError(path, "the cassette exists", hint=hint) from None
    except OSError as error:
        raise CassetteError(path, system_reason(error), hint=hint) from None


def cassette_exists(path: Location) -> bool:
    """Tell whether a cassette exists; an error of its disk or store is a CassetteError."""
    try:
        return path.exists()
    except OSError as error:
        raise CassetteError(path, system_reason(error)) from None


def check_replaceable(path: Location) -> None:
    """Make sure that a cassette can be written here: only over another one, damaged or not.

    Raises:
        CassetteError: something else is in its place.
    """
    if isinstance(path, Path):
        check_writable(path)
        if path.exists() and not path.is_file():
            raise CassetteError(path, "is not a regular file", hint="name a file")
        if _beginning_of(path).startswith(LFS_POINTER):
            raise lfs_pointer_error(path)
        if (
            path.exists()
            and not is_cassette(path)
            and is_not_meant_as_cassette(path.read_bytes())
        ):
            raise foreign_error(path)

        check_link_stays_in_folder(path)


def is_cassette(path: Path) -> bool:
    """Tell whether a JSON file says at its beginning that it is a cassette."""
    return _CASSETTE_MARK in _beginning_of(path)


def _beginning_of(path: Path) -> bytes:
    """Return the first bytes of a file; none where it can't be read."""
    with suppress(OSError), path.open("rb") as file:
        return file.read(_BEGINNING_BYTES)

    return b""


def cassettes_in(
    words: Sequence[str],
    suffixes: Collection[str] = (".json",),
    *,
    takes_all: bool = False,
) -> list[Location]:
    """Return the cassettes, or journals, that words name: files, objects, folders and globs.

    With `takes_all`, folders and globs stand for all their files with one of the suffixes.
    """
    cassette_places: list[Location] = []
    for word in words:
        path = location_of(word)
        files = _matching_files(word, path)
        if files is None:
            cassette_places.append(path)
            continue

        places_in_folder = []
        for file in files:
            if file.suffix in suffixes and file.is_file():
                if takes_all or file.suffix == ".journal" or is_cassette(file):
                    places_in_folder.append(file)

        if not places_in_folder:
            kind = "cassette" if ".json" in suffixes else "journal"
            raise UsageError(f"there is no {kind} in {path}")

        cassette_places += sorted(places_in_folder)

    return cassette_places


def _matching_files(word: str, path: Location) -> Iterable[Path] | None:
    """Return what a folder has, or what a glob finds; None for a single file or object."""
    if not isinstance(path, Path):
        return None
    if path.is_dir():
        return path.rglob("*")
    # The names of cassettes may have brackets, as parameters of tests do.
    if has_magic(word) and not path.exists():
        return map(Path, glob(word, recursive=True))  # noqa: PTH207  Path takes no absolute one

    return None


def accept_edits(path: Location) -> int:
    """Accept what was edited in a cassette; return how many exchanges that changes."""
    data = read_file(path)
    accepted_data, changed_count = accept_edit(data, str(path))
    if accepted_data != data:
        publish_cassette(path, [accepted_data], replace=True)

    return changed_count


# Journals


def journal_path(cassette: Location) -> Path:
    """Return where the journal of a recording to `cassette` stands: on this machine always."""
    if isinstance(cassette, Path):
        return cassette.parent / (cassette.name + _JOURNAL_SUFFIX)
    return cassette.folder / (cassette.local_name + _JOURNAL_SUFFIX)


def journal_in_the_way(cassette: Location) -> CassetteError:
    """Return the error for a journal that stands where another one would be written."""
    path = journal_path(cassette)
    if is_locked(path):
        return BeingRecordedError(
            path,
            "another recorder is writing this recording",
            hint="choose another <<cassette>>",
        )

    return CassetteError(
        path,
        "an earlier recording ended before it was published",
        hint=f"publish it with: {shell_command('publish_journal', path=str(cassette))} "
        "(or delete the journal)",
    )


def unpublished_warning(cassette: Location) -> str | None:
    """Return a warning if a killed recording left its journal beside a cassette."""
    journal = journal_path(cassette)
    was_left_behind = os.path.lexists(journal) and not is_locked(journal)
    return str(journal_in_the_way(cassette)) if was_left_behind else None
