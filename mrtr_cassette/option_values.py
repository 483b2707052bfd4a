"""What an option is: its kind, the values that it takes, and what the fronts have to know of it.

Rule: every run of pytest imports this module, so it imports nothing large.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, fields
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from mrtr_cassette.errors import UsageError

if TYPE_CHECKING:
    from mrtr_cassette.core.wire.http import Headers
    from mrtr_cassette.core.wire.jsonbytes import MemberPath

FilePath = str | os.PathLike[str]
Kind = Literal["text", "number", "switch", "choice", "list", "headers", "file", "function"]


class Option(NamedTuple):
    """What the fronts have to know of one option.

    Attributes:
        kind: what its values are.
        help: what it does, as a sentence without its full stop.
        flag: its flag on the command line; empty where it has none of its own.
        flags: for a choice, the flags that stand for a value, each with its help text.
        metavar: what stands for its value in a help text.
        choices: the values of a choice.
        smallest: the smallest number.
        largest: the largest number, or None.
        unit: how many bytes one is on the command line.
        shell_default: the command line's default where that is another one.
        in_suites: a test suite can set it. The mode says what becomes of a cassette that exists,
            pytest selects what is verified, a miss fails its test, and a test has one process that
            replays, which nobody watches from outside.
    """

    kind: Kind
    help: str
    flag: str = ""
    flags: Mapping[str, tuple[str, str]] | None = None
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    smallest: int = 0
    largest: int | None = None
    unit: int = 1
    shell_default: Any = None
    in_suites: bool = True


def header_of(text: str) -> tuple[str, str]:
    """Return a header that is written as one text, `Name: value`; without a colon it is none."""
    name, colon, value = text.partition(":")
    return (name.strip(), value.strip()) if colon else ("", "")


def checked(name: str, option: Option, value: Any) -> Any:
    """Return a value in its unchangeable form.

    Raises:
        UsageError: it is of the wrong type or none of those that there are.
    """
    match option.kind:
        case "list":
            return _checked_list(name, value)
        case "headers":
            return checked_headers(value)
        case "choice":
            if value not in option.choices:
                known = ", ".join(option.choices)
                raise UsageError(f"<<{name}>> is {value!r}, and not one of {known}")
        case "number":
            _check_number(name, option, value)
        case "file":
            _require(name, value, value is None or isinstance(value, str | os.PathLike), "a path")
        case "text":
            _require(name, value, isinstance(value, str), "a text")
        case "switch":
            _require(name, value, isinstance(value, bool), "True or False")
        case "function":
            _require(name, value, value is None or callable(value), "a function")
    return value


def _require(name: str, value: Any, is_right: bool, wanted: str) -> None:  # noqa: FBT001
    if not is_right:
        raise UsageError(f"<<{name}>> is {value!r}, and not {wanted}")


def _check_number(name: str, option: Option, value: Any) -> None:
    _require(name, value, isinstance(value, int) and not isinstance(value, bool), "a whole number")
    if value < option.smallest or (option.largest is not None and value > option.largest):
        most = "" if option.largest is None else f" and at most {option.largest}"
        raise UsageError(f"<<{name}>> is {value}, and not at least {option.smallest}{most}")


def _checked_list(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        raise UsageError(f"<<{name}>> is one text", hint=f"give a list: {name}=[{value!r}]")
    is_list = isinstance(value, Sequence | set | frozenset)
    _require(
        name, value, is_list and all(isinstance(each, str) for each in value), "a list of texts"
    )
    return tuple(value)


def checked_headers(value: Any) -> Headers:
    """Return headers as pairs.

    Raises:
        UsageError: one can't be sent, or is the connection's own.
    """
    from mrtr_cassette.core.wire.http import FORBIDDEN_IN_HEADER, HEADER_NAME, HOP_BY_HOP

    is_mapping = isinstance(value, Mapping)
    # Values are not shown: they may be secrets.
    if isinstance(value, str) or not isinstance(value, Mapping | Sequence):
        raise UsageError("<<headers>> is no mapping of names to values")
    pairs = tuple((name, value[name]) for name in value) if is_mapping else tuple(value)
    for name, text in pairs:
        if not (
            isinstance(name, str)
            and isinstance(text, str)
            and HEADER_NAME.fullmatch(name)
            and not FORBIDDEN_IN_HEADER.search(text)
        ):
            raise UsageError(
                f"<<headers>>: the header {name!r} is none that HTTP can carry",
                hint="give it as <<header_form>>",
            )
        if name.lower() in HOP_BY_HOP | {"content-length", "expect"}:
            raise UsageError(f"<<headers>>: the header {name!r} is set by the connection itself")
    return pairs


def ignored_paths(pointers: Iterable[str]) -> tuple[MemberPath, ...]:
    """Return the members of the params that don't count in matching.

    Raises:
        UsageError: one is no JSON Pointer.
    """
    from mrtr_cassette.core.wire.pointers import pointer_path

    paths = []
    for pointer in pointers:
        try:
            paths.append(pointer_path(pointer))
        except ValueError:
            raise UsageError(
                f"<<ignore>> {pointer!r} is no JSON Pointer",
                hint="it begins with a slash, such as /arguments/requestedAt",
            ) from None
    return tuple(paths)


def kept_header_names(names: Iterable[str]) -> frozenset[str]:
    """Return the lower-case names of headers that are kept too.

    Raises:
        UsageError: one is no name, or that of a credential.
    """
    from mrtr_cassette.core.wire.http import CREDENTIAL_HEADERS, HEADER_NAME

    for name in names:
        if not HEADER_NAME.fullmatch(name):
            raise UsageError(f"<<match_headers>> {name!r} is no name of a header")
        if name.lower() in CREDENTIAL_HEADERS:
            raise UsageError(
                f"<<match_headers>> {name!r} would keep a credential",
                hint="whether there is an Authorization counts anyway, its value never does",
            )
    return frozenset(name.lower() for name in names)


def check_names(names: Iterable[str], known: Collection[str], owner: str) -> None:
    """Refuse names that are none of the options of `owner`.

    Raises:
        UsageError: a name is unknown.
    """
    import difflib

    for name in names:
        if name in known:
            continue
        nearest = difflib.get_close_matches(name, known, n=1)
        raise UsageError(
            f"{owner} has no option {name!r}",
            hint=f"did you mean {nearest[0]!r}?" if nearest else f"it has {', '.join(known)}",
        )


def option_field(
    kind: Kind, text: str, flag: str = "", *, default: Any = None, **facts: Any
) -> Any:
    """Return a field that is an option; one of a list is empty, and a choice the first of them.

    Args:
        default: that of a number or a text.
    """
    if kind in ("list", "headers"):
        default = ()
    elif kind == "switch":
        default = False
    elif kind == "choice":
        default = facts["choices"][0]
    return field(default=default, metadata=as_option(kind, text, flag, **facts))


def as_option(kind: Kind, text: str, flag: str = "", **facts: Any) -> Mapping[str, Option]:
    """Return the metadata of a field that is an option."""
    return {"option": Option(kind=kind, help=text, flag=flag, **facts)}


def options_of(options: type[Any]) -> dict[str, Option]:
    """Return the options of a class by name, in the order in which a help text has them."""
    return {
        each.name: each.metadata["option"] for each in fields(options) if "option" in each.metadata
    }


def default_of(options: type[Any], name: str) -> Any:
    """Return the default of an option."""
    return options.__dataclass_fields__[name].default


def list_options(options: type[Any]) -> None:
    """Say in the description of a class what each of its options does."""
    lines = [
        f"    {name}: {option.help}{', in bytes' if option.unit > 1 else ''}."
        for name, option in options_of(options).items()
    ]
    options.__doc__ = "\n".join([f"{options.__doc__}\n\nArgs:", *lines])
