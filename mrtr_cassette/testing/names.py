"""Names of cassettes that every file system tells apart.

Owns: the file name of a test's own cassette.
Does not own: the folder, which is pytest's side (`pytest_plugin`).
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from mrtr_cassette.errors import CassetteError

_LONGEST_NAME = 120
"""Characters of a file name's readable part; file systems take 255 bytes."""


def file_name(name: str) -> str:
    """Return the name of a test's own cassette, without `.json`.

    `test_deploy[prod]` becomes `test_deploy-prod`. A hash follows where the readable part does not
    tell tests apart on every file system: other characters than ASCII letters, digits, `_`, `-`
    and `.`, capitals in a parameter, or a long name.

    Args:
        name: the test's name with its classes and parameters.
    """
    function, bracket, parameters = name.partition("[")
    plain = f"{function}-{parameters.removesuffix(']')}" if bracket else function
    safe = re.sub(r"[^A-Za-z0-9_.-]+", "-", plain)[:_LONGEST_NAME]
    if safe == plain and parameters == parameters.lower():
        return plain
    return f"{safe}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:10]}"


def check_spelling(path: Path) -> None:
    """Refuse a name that some file systems can't tell from another one beside it.

    Raises:
        CassetteError: another file's name differs in capitals only.
    """
    if not path.parent.is_dir():
        return
    for other in (beside.name for beside in path.parent.iterdir()):
        if other != path.name and other.casefold() == path.name.casefold():
            raise CassetteError(
                path,
                f"{other!r} stands beside it, and not every file system tells the two apart",
                hint="name one of them in the marker: @pytest.mark.mrtr_cassette(NAME)",
            )
