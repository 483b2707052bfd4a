"""How `make docs` makes a site of README and docs; nothing is loaded from elsewhere.

The sidebar is the index in docs/README.md, and the reference of the library its docstrings.
"""

from __future__ import annotations

import inspect
import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from posixpath import dirname, join, normpath

from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config, GoogleDocstring

import mrtr_cassette

ROOT = Path(__file__).resolve().parent.parent.parent
LIBRARY = "docs/site/library"
HEADING = re.compile(r"^## (.+)$")
PAGE_LINK = re.compile(r"\]\(([\w./-]+)\.md\b")
FOLDER_LINK = re.compile(r"(?<=\]\()([\w./-]+/[\w-]+)(?=\))")
CODE = re.compile(r"(`[^`]*`)")
MARKUP = re.compile(r"\*(?![a-z*]+:)|(?<=\w)_(?!\w)|\|")
"""Signs that reStructuredText reads as markup and our docstrings don't mean so."""
STYLE = Config(napoleon_use_ivar=True)

project = "mrtr-cassette"
author = "The contributors of mrtr-cassette"
release = mrtr_cassette.__version__
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "docs/site/*.rst", "npm/README.md"]
exclude_patterns = [
    ".*",
    "CODE_OF_CONDUCT.md",
    "build",
    "dist",
    "mrtr_cassette",
    "tests",
    "**/node_modules",
]
extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_heading_anchors = 6
default_role = "code"
autodoc_typehints = "none"
autodoc_class_signature = "separated"
autodoc_member_order = "bysource"
highlight_language = "none"
html_theme = "furo"
html_title = f"mrtr-cassette {release}"
html_show_sphinx = False
html_copy_source = False
html_use_index = False
html_permalinks_icon = "#"


def sections() -> Iterator[tuple[str, list[str]]]:
    """Yield the sections of the index with their pages, each page once."""
    seen = {"README", "docs/README"}
    title = ""
    pages: list[str] = []
    for line in (ROOT / "docs" / "README.md").read_text("utf-8").splitlines():
        heading = HEADING.match(line)
        if heading:
            if title:
                yield title, pages
            title = heading[1]
            pages = []
        for target in PAGE_LINK.findall(line):
            page = normpath(join("docs", target))
            if page not in seen:
                seen.add(page)
                pages.append(page)
    yield title, pages
    yield "Project", [LIBRARY, "CONTRIBUTING", "SECURITY", "CHANGELOG"]


def sidebar() -> str:
    """Return the hidden tables of contents from which the theme makes its sidebar."""
    tables = []
    for title, pages in [("", ["docs/README"]), *sections()]:
        caption = f":caption: {title}\n" if title else ""
        entries = "\n".join(f"/{page}" for page in pages)
        tables.append(f"```{{toctree}}\n:hidden:\n{caption}\n{entries}\n```\n")
    return "\n" + "\n".join(tables)


def reference() -> str:
    """Return the directives that show every public name of the library."""
    groups: dict[str, list[str]] = {
        "Functions": [],
        "Results": [],
        "Options": [],
        "Errors": [],
    }
    for name in mrtr_cassette.__all__:
        public = getattr(mrtr_cassette, name)
        if inspect.isfunction(public):
            groups["Functions"].append(f".. autofunction:: {name}\n")
        elif issubclass(public, Exception):
            groups["Errors"].append(f".. autoexception:: {name}\n   :members:\n")
        elif name.endswith("Options"):
            # Its fields are in its docstring.
            groups["Options"].append(f".. autoclass:: {name}\n")
        else:
            groups["Results"].append(
                f".. autoclass:: {name}\n   :members:\n   :inherited-members: tuple\n"
            )
    parts = [".. py:currentmodule:: mrtr_cassette\n"]
    for title, directives in groups.items():
        parts += [f"{title}\n{'-' * len(title)}\n", *directives]
    return "\n" + "\n".join(parts)


def in_repository(page: str, text: str) -> str:
    """Return a page whose links to folders lead to the repository: a site has none."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]
    repository = settings["hatch"]["metadata"]["hooks"]["custom"]["repository"]

    def absolute(found: re.Match[str]) -> str:
        target = normpath(join(dirname(page), found[1]))
        is_folder = (ROOT / target).is_dir()
        return f"{repository}/tree/v{release}/{target}" if is_folder else found[0]

    return FOLDER_LINK.sub(absolute, text)


def complete_page(app: Sphinx, page: str, content: list[str]) -> None:
    """Add to two pages what is made of other files, and mend links that a site can't have."""
    content[0] = in_repository(page, content[0])
    if page == root_doc:
        content[0] += sidebar()
    if page == LIBRARY:
        content[0] += reference()


def as_link(code: str) -> str:
    """Make a link of the name of a public class."""
    return f":py:obj:{code}" if code.strip("`") in mrtr_cassette.__all__ else code


def read_docstring(
    app: Sphinx, kind: str, name: str, found: object, options: object, lines: list[str]
) -> None:
    """Make reStructuredText of a docstring in Google's style."""
    for number, line in enumerate(lines):
        parts = CODE.split(line)
        parts[::2] = [MARKUP.sub(r"\\\g<0>", part) for part in parts[::2]]
        parts[1::2] = [as_link(part) for part in parts[1::2]]
        lines[number] = "".join(parts)
    if kind not in ("property", "attribute"):
        lines[:] = GoogleDocstring(lines, STYLE, app, kind, name, found).lines()


def copy_start_page(app: Sphinx, exception: Exception | None) -> None:
    """Show README to whoever opens the folder of the site."""
    if exception is None and app.builder.name == "html":
        out = Path(app.outdir)
        shutil.copy(out / "README.html", out / "index.html")


def setup(app: Sphinx) -> None:
    """Connect the functions of this file."""
    app.connect("source-read", complete_page)
    app.connect("autodoc-process-docstring", read_docstring)
    app.connect("build-finished", copy_start_page)
