"""Options as people write them, as the values that the shell takes.

Owns: the checks that the command line, the library and the pytest plugin share.
Does not own: which options there are, and how each front end spells them.
"""

from __future__ import annotations

from collections.abc import Sequence

from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.wire.jsonbytes import Path as MemberPath
from mrtr_cassette.core.wire.jsonbytes import pointer_path
from mrtr_cassette.errors import UsageError


def ignored_member(pointer: str, option: str) -> MemberPath:
    """Return the keys of a member that doesn't count in matching.

    Args:
        pointer: a JSON Pointer into the params.
        option: how the front end spells the option.

    Raises:
        UsageError: it is no JSON Pointer.
    """
    try:
        return pointer_path(pointer)
    except ValueError:
        raise UsageError(
            f"{option} {pointer!r} is no JSON Pointer",
            hint="it begins with a slash, such as /arguments/requestedAt",
        ) from None


def upstream_header(name: str, value: str, form: str) -> tuple[str, str]:
    """Return a header that every upstream request gets.

    Args:
        name: its name.
        value: its value.
        form: how the front end spells the option, and its form.

    Raises:
        UsageError: HTTP can't carry it.
    """
    is_token = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    if not is_token or "\n" in value or "\r" in value:
        raise UsageError(f"a {form}")
    return name, value


def redaction_rules(
    patterns: Sequence[str], keys: Sequence[str], disabled: Sequence[str]
) -> RedactionRules:
    """Return what is changed about the built-in rules of redaction.

    Raises:
        UsageError: a pattern, key or rule is none.
    """
    try:
        return RedactionRules(tuple(patterns), tuple(keys), tuple(disabled))
    except ValueError as error:
        raise UsageError(str(error)) from None
