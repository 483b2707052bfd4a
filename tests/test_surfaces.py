"""The surfaces that stay from version 1.0 on are pinned in tests/data/surfaces.txt: a change is a decision."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass

from commands import walk
from goldens import DATA

import mrtr_cassette
from mrtr_cassette import options, pytest_plugin
from mrtr_cassette.cli import main
from mrtr_cassette.testing import settings
from mrtr_cassette.testing.names import FIXTURES

GOLDEN = DATA / "surfaces.txt"
FURTHER_FIXTURES = ("mrtr_cassettes", "mrtr_upstream", "mrtr_cassette_config")


def parameters() -> Iterator[str]:
    """Yield a line for every argument and option of every command."""
    for path, command in walk(main, ("mrtr-cassette",)):
        for parameter in command.params:
            flags = " ".join([*parameter.opts, *parameter.secondary_opts])
            yield f"{' '.join(path)} {flags} {parameter.metavar or ''}".rstrip()


def library() -> Iterator[str]:
    """Yield a line for every exported name, with its parameters, or the fields of options."""
    for name in sorted(mrtr_cassette.__all__):
        exported = getattr(mrtr_cassette, name)
        if is_dataclass(exported) and name.endswith("Options"):
            for field in fields(exported):
                has_default = field.default is not MISSING and not callable(
                    field.default
                )
                default = f" = {field.default!r}" if has_default else ""
                yield f"{name}.{field.name}{default}"
        elif inspect.isfunction(exported):
            parameters = inspect.signature(exported).parameters.values()
            yield f"{name}({', '.join(str(p).partition(':')[0] for p in parameters)})"
        else:
            yield name


def suites() -> Iterator[str]:
    """Yield the arguments of the marker, which are those of a play too, and the fixtures."""
    yield from sorted(f"marker {name}" for name in settings._NAMES)
    for name in (*FIXTURES, *FURTHER_FIXTURES):
        assert hasattr(pytest_plugin, name)
        yield f"fixture {name}"
    yield from (f"mode {mode}" for mode in options.MODES)


def test_surfaces_are_as_promised(updates_goldens):
    """Commands and options, exported names, the marker, fixtures and modes are in one file."""
    lines = [*parameters(), "", *library(), "", *suites(), ""]
    text = "\n".join(lines)
    if updates_goldens:
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")
