"""Places that don't count, read from options and from the files that they name."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from pathlib import Path

from mrtr_cassette.core.cassette.journal import JournalHeader
from mrtr_cassette.core.compare.conversations import IgnoredFor
from mrtr_cassette.core.compare.values import check_pointers, masks_as_places
from mrtr_cassette.core.drive.ignored import (
    IgnoredPlaces,
    ignored_pointers,
    read_ignored_file,
)
from mrtr_cassette.errors import UsageError
from mrtr_cassette.options import FilePath
from mrtr_cassette.shell.files.disk import system_reason


def read_rules(
    ignore: Collection[str],
    ignore_from: FilePath | None,
    masks: Collection[str],
    learned: FilePath | None = None,
) -> list[IgnoredPlaces]:
    """Return the places of options and of files, of which the one for what is learned may be new.

    Raises:
        UsageError: a file can't be read, or an option is no pointer, or no pattern.
    """
    check_pointers(ignore)
    rules = [IgnoredPlaces("*", (*ignore, *masks_as_places(masks)))]
    for file in (ignore_from, learned):
        if file is None:
            continue

        path = Path(file)
        try:
            rules += read_ignored_file(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            if file != learned:
                raise UsageError(f"<<ignore_from>>: there is no file {path}") from None
        except (OSError, ValueError) as error:
            reason = system_reason(error) if isinstance(error, OSError) else str(error)
            raise UsageError(f"can't read the rules in {path}: {reason}") from None

    return rules


def ignored_for_options(
    ignore: Collection[str],
    ignore_from: FilePath | None,
    masks: Collection[str] = (),
) -> IgnoredFor:
    """Return what tells the places that don't count in a call."""
    return partial(ignored_pointers, read_rules(ignore, ignore_from, masks))


def ignored_for_header(header: JournalHeader) -> IgnoredFor:
    """Return what tells the pointers that don't count where a recording replaces a cassette."""
    rules = [IgnoredPlaces(pattern, pointers) for pattern, pointers in header.ignored]
    return partial(ignored_pointers, rules)
