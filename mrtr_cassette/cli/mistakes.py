"""Common mistakes on the command line, each told with what was probably meant."""

from __future__ import annotations

import difflib
import os
import shlex
import shutil
from collections.abc import Sequence
from typing import Final

import click

from mrtr_cassette.core.protocol.origins import lacks_scheme
from mrtr_cassette.errors import UsageError

MEANT: Final = "did you mean"
_LIKENESS: Final = 0.8
"""From which on an option may have been meant by another spelling."""


def refuse_misplaced(words: Sequence[str]) -> None:
    """Refuse a URL without its scheme, and a program whose `--` was forgotten."""
    for place, word in enumerate(words):
        if os.path.lexists(word):
            continue
        refuse_without_scheme(word)
        if shutil.which(word) is not None:
            command = shlex.join(words[place:])
            raise UsageError(
                f"{word!r} is a program", hint=f"put -- before it: -- {command}"
            )


def refuse_without_scheme(word: str) -> None:
    """Refuse a URL without its scheme."""
    if lacks_scheme(word):
        raise UsageError(f"{word!r} has no scheme", hint=f"write http://{word}")


def unknown_option(error: click.NoSuchOption) -> str:
    """Return that there is no such option, and which one may have been meant."""
    text = f"no such option {error.option_name!r}"
    known = error.possibilities or ()
    meant = difflib.get_close_matches(error.option_name, known, n=1, cutoff=_LIKENESS)
    return f"{text}; {MEANT} {meant[0]}?" if meant else text
