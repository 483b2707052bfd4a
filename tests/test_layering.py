"""The layers hold by construction: what a module may import and call is read from its source."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "mrtr_cassette"
CORE = sorted((PACKAGE / "core").rglob("*.py"))
SHELL = sorted((PACKAGE / "shell").rglob("*.py"))

FOLDERS = (
    "wire",
    "protocol",
    "secrets",
    "cassette",
    "record",
    "replay",
    "compare",
    "drive",
    "answers",
    "report",
)
"""The folders of the core; a module imports from its own folder and from those before it."""

SHELL_FOLDERS = ("files", "http", "pipes", "runs")
"""The folders of the shell, in the same order."""

WAITS_OR_VARIES = frozenset(
    {
        "asyncio",
        "http",
        "io",
        "logging",
        "multiprocessing",
        "os",
        "pathlib",
        "random",
        "secrets",
        "selectors",
        "shutil",
        "signal",
        "socket",
        "ssl",
        "subprocess",
        "tempfile",
        "threading",
        "time",
        "urllib",
        "uuid",
    }
)
"""Modules of the standard library that do I/O, tell time, make chance or wait."""

THIRD_PARTY = {
    "jinja2": frozenset({"page"}),
    "markupsafe": frozenset({"markup", "page"}),
    "orjson": None,
    "pydantic": frozenset({"written", "load", "model"}),
    "pydantic_core": frozenset({"load", "shapes"}),
    "re2": frozenset({"rules"}),
}
"""Third-party packages that the core may use, and by which modules; None stands for all."""

OWN = ("mrtr_cassette.terms", "mrtr_cassette.errors", "mrtr_cassette.core")

CALLS = frozenset(
    {"breakpoint", "compile", "eval", "exec", "input", "open", "print", "__import__"}
)
"""Built-in functions that read, write or run something."""

OFFLINE = (
    "mrtr_cassette.api",
    "mrtr_cassette.cli",
    "mrtr_cassette.cli.proxies",
    "mrtr_cassette.shell.runs.replaying",
    "mrtr_cassette.shell.runs.client_starts",
    "mrtr_cassette.shell.runs.piped",
    "mrtr_cassette.shell.runs.views",
    "mrtr_cassette.testing.uses",
)
"""Modules that play a cassette, or are loaded before one is played."""

CLIENTS = frozenset(
    {
        "aiohttp",
        "asyncio.create_connection",
        "asyncio.open_connection",
        "http.client",
        "httpx",
        "mrtr_cassette.shell.http.client",
        "mrtr_cassette.shell.http.fetched",
        "mrtr_cassette.shell.pipes.processes",
        "mrtr_cassette.shell.pipes.upstream",
        "mrtr_cassette.shell.runs.recording",
        "mrtr_cassette.shell.runs.upstreams",
        "subprocess",
        "urllib.request",
        "yarl",
    }
)
"""Modules and functions that call a server, or start one."""

MAY_START = frozenset({"mrtr_cassette.shell.runs.piped"})
"""Modules that ask the system who started this process."""

SEARCH_FOR_NAMES = frozenset(
    {
        "core.cassette.model",
        "core.protocol.calls",
        "core.report.text",
        "core.secrets.names",
    }
)
"""The modules with a pattern of our names: besides the one that cuts texts, one below it that reads
URLs, one that refuses a body that older versions withheld, and one that shortens what is shown."""

PATTERN_OF_NAMES = re.compile(r"(?:mrtr-[a-z(?]+|sha256|\{[A-Z]+\}).*\[0-9")


@cache
def tree_of(path: Path) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports_in(tree: ast.Module) -> Iterator[str]:
    """Yield the dotted names that are imported, wherever in a syntax tree."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def imports_of(path: Path) -> tuple[str, ...]:
    """Return the dotted names that a module imports, wherever in it."""
    return tuple(imports_in(tree_of(path)))


@cache
def attributes_of(path: Path) -> frozenset[str]:
    """Return the dotted names that a module uses."""
    attributes = [
        node for node in ast.walk(tree_of(path)) if isinstance(node, ast.Attribute)
    ]
    return frozenset(map(ast.unparse, attributes))


def is_within(name: str, package: str) -> bool:
    """Tell whether a dotted name is a package or something inside it."""
    return name == package or name.startswith(f"{package}.")


def test_there_is_a_core() -> None:
    """The rules below are about something."""
    assert len(CORE) > 15


@pytest.mark.parametrize(
    "path", CORE, ids=lambda path: f"{path.parent.name}.{path.stem}"
)
def test_core_imports_nothing_that_waits(path: Path) -> None:
    """The core imports its own modules, its few libraries, and of Python what can't do I/O."""
    for name in imports_of(path):
        package = name.partition(".")[0]
        if package in THIRD_PARTY:
            modules = THIRD_PARTY[package]

            assert modules is None or path.stem in modules, f"{name} in {path.stem}"
        elif package == "mrtr_cassette":
            assert any(is_within(name, package) for package in OWN), (
                f"{name} in {path.stem}"
            )
        else:
            assert package in sys.stdlib_module_names, f"{name} in {path.stem}"
            assert package not in WAITS_OR_VARIES, f"{name} in {path.stem}"


@pytest.mark.parametrize(
    "path", CORE, ids=lambda path: f"{path.parent.name}.{path.stem}"
)
def test_core_reads_writes_and_awaits_nothing(path: Path) -> None:
    """The core calls no built-in function that does I/O, and has no coroutine."""
    for node in ast.walk(tree_of(path)):
        assert not isinstance(
            node, ast.AsyncFunctionDef | ast.AsyncFor | ast.AsyncWith | ast.Await
        ), f"line {node.lineno} of {path.stem}"

        if isinstance(node, ast.Name):
            assert node.id not in CALLS, (
                f"{node.id} in line {node.lineno} of {path.stem}"
            )

        if isinstance(node, ast.Attribute):
            # Times are read and moved by `datetime`, which must not tell the time of the day.
            assert node.attr not in {"now", "today", "utcnow"}, (
                f"line {node.lineno} of {path.stem}"
            )


def dotted(path: Path) -> str:
    """Return the name of a module of the package."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {dotted(path): path for path in PACKAGE.rglob("*.py")}


def modules_of(names: Iterable[str]) -> Iterator[str]:
    """Yield the modules of this package that imports name."""
    for name in names:
        if name in MODULES:
            yield name
        elif name.rpartition(".")[0] in MODULES:
            yield name.rpartition(".")[0]


def test_every_folder_has_its_place() -> None:
    """The orders of folders are complete."""
    assert {path.parent.name for path in CORE} - {"core"} == set(FOLDERS)
    assert {path.parent.name for path in SHELL} - {"shell"} == set(SHELL_FOLDERS)


@pytest.mark.parametrize("path", [*CORE, *SHELL], ids=dotted)
def test_imports_point_one_way(path: Path) -> None:
    """A module imports nothing from a folder of its half that comes after its own."""
    half = path.parent.parent.name
    folder = path.parent.name
    if half == "mrtr_cassette":
        return

    folders = FOLDERS if half == "core" else SHELL_FOLDERS
    allowed = folders[: folders.index(folder) + 1]
    for name in modules_of(imports_of(path)):
        if name.startswith(f"mrtr_cassette.{half}."):
            assert name.split(".")[2] in allowed, f"{name} in {dotted(path)}"


@pytest.mark.parametrize(
    "path", sorted((PACKAGE / "core" / "replay").glob("*.py")), ids=dotted
)
def test_replaying_needs_no_recording(path: Path) -> None:
    """What plays a cassette imports nothing of what records one."""
    for name in modules_of(imports_of(path)):
        assert not is_within(name, "mrtr_cassette.core.record"), (
            f"{name} in {dotted(path)}"
        )


def test_few_modules_search_texts_for_our_names() -> None:
    """Our names are cut out of texts in one place; each further pattern of one has a reason."""
    found = {
        dotted(path)
        for path in PACKAGE.rglob("*.py")
        if PATTERN_OF_NAMES.search(path.read_text(encoding="utf-8"))
    }

    assert found == {f"mrtr_cassette.{module}" for module in SEARCH_FOR_NAMES}


def test_modules_form_no_circle() -> None:
    """Each module of the package can be imported before those that use it."""
    uses = {
        dotted(path): set(modules_of(imports_of(path))) - {dotted(path)}
        for path in PACKAGE.rglob("*.py")
        if path.name != "__init__.py"
    }
    while uses:
        free = {module for module, used in uses.items() if not used & uses.keys()}

        assert free, f"a circle in {sorted(uses)}"

        uses = {module: used for module, used in uses.items() if module not in free}


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=dotted)
def test_modules_use_no_private_name_of_another(path: Path) -> None:
    """What begins with an underscore is its own module's."""
    for name in imports_of(path):
        if is_within(name, "mrtr_cassette"):
            last = name.rpartition(".")[2]

            assert not last.startswith("_") or last.startswith("__"), (
                f"{name} in {dotted(path)}"
            )


def loaded_by(tree: ast.AST) -> Iterator[str]:
    """Yield the dotted names that are imported when a module is, and not when a function runs."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from imports_in(ast.Module([node], []))

        is_later = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        is_for_types = (
            isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        )
        if not (is_later or is_for_types):
            yield from loaded_by(node)


@cache
def loaded_with(module: str) -> frozenset[str]:
    """Return the dotted names that are imported when a module of the package is."""
    return frozenset(loaded_by(tree_of(MODULES[module])))


def closure(module: str) -> Iterator[str]:
    """Yield a module and all of the package that it loads."""
    loaded: set[str] = set()
    left = [module]
    while left:
        module = left.pop()
        if module not in loaded:
            loaded.add(module)
            yield module
            left += modules_of(loaded_with(module))


@pytest.mark.parametrize("module", OFFLINE)
def test_replay_loads_no_client(module: str) -> None:
    """What plays a cassette loads nothing that calls or starts a server, and names nothing either."""
    for loaded in closure(module):
        for name in loaded_with(loaded) | attributes_of(MODULES[loaded]):
            is_allowed = name.startswith("subprocess") and loaded in MAY_START
            is_client = any(is_within(name, client) for client in CLIENTS)

            assert is_allowed or not is_client, f"{name} in {loaded}"


@pytest.mark.parametrize(
    "module", [*OFFLINE, "mrtr_cassette.cli.live", "mrtr_cassette.shell.files.reports"]
)
def test_only_who_makes_a_page_loads_the_library_of_templates(module: str) -> None:
    """It takes a tenth of a start."""
    for loaded in closure(module):
        assert not any(is_within(name, "jinja2") for name in loaded_with(loaded)), (
            loaded
        )


@pytest.mark.parametrize(
    "module", [*OFFLINE, "mrtr_cassette.cli.files", "mrtr_cassette.cli.serve"]
)
def test_only_who_calls_a_server_loads_what_drives_it(module: str) -> None:
    """It takes a quarter of a start; a failing replay and the reports of a suite need none of it."""
    for loaded in (*closure(module), *closure("mrtr_cassette.core.report.ci")):
        assert not is_within(loaded, "mrtr_cassette.core.drive"), loaded


@pytest.mark.parametrize(
    "folder", ["mrtr_cassette.core.record", "mrtr_cassette.core.replay"]
)
def test_what_shows_files_loads_neither_recorder_nor_player(folder: str) -> None:
    """They take a third of a start, and most commands about files need none of it."""
    for loaded in closure("mrtr_cassette.cli.files"):
        assert not is_within(loaded, folder), loaded


PLAYS = """
import sys
from mrtr_cassette.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    print(*sys.modules, file=sys.stderr)
"""


@pytest.mark.parametrize("options", [["--stdio"], ["--", sys.executable, "-c", ""]])
def test_running_replay_has_loaded_no_client(options: list[str]) -> None:
    """The same holds by the end of a replay, over HTTP and on pipes."""
    cassette = PACKAGE.parent / "cassettes" / "python-sdk.json"
    command = [sys.executable, "-c", PLAYS, "replay", str(cassette), *options]
    ended = subprocess.run(
        command, input="", capture_output=True, text=True, check=True
    )
    loaded = ended.stderr.splitlines()[-1].split()

    assert "mrtr_cassette.shell.runs.replaying" in loaded
    assert not CLIENTS - {"subprocess"} & {*loaded}


@pytest.mark.parametrize(
    ("module", "below"),
    [("terms", frozenset()), ("errors", frozenset({"mrtr_cassette.terms"}))],
)
def test_errors_stand_below_the_core(module: str, below: frozenset[str]) -> None:
    """The errors import nothing of this package but how their ways out are spelled."""
    used = set(modules_of(imports_of(PACKAGE / f"{module}.py")))

    assert used == below
