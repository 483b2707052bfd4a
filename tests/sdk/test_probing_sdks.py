"""Servers on the official SDKs, probed: what the page about probes says of them is so."""

from __future__ import annotations

import re
import shutil
from textwrap import dedent

import pytest
from probed_styles import CALLS, SIGN_IN, STYLES, probed, row_of
from processes import PEERS
from shown import ROOT, Reader

from mrtr_cassette.core.drive.probing import PROBES

PAGE = (ROOT / "docs" / "probe.md").read_text()
EXAMPLES = ROOT / "docs" / "examples"
EXAMPLE = re.compile(
    r"^\[`[^`]*`\]\(examples/([^)]*)\)[^\n]*\n\n```\w+\n(.*?)^```",
    re.MULTILINE | re.DOTALL,
)
SOUND = {
    "Python SDK, `Resolve` with strict models",
    "TypeScript SDK, bound codec and schemas",
}
"""The ways to write a server that hold a client to what it was asked."""

TRUSTING = "TypeScript SDK, by hand, pushed"
TRYING = [CALLS[1], CALLS[3], SIGN_IN]
"""A call of two rounds, one with bounds and choices, and one of a page; `make probed` makes more."""

TRIED = [style for style in STYLES if style.name in {*SOUND, TRUSTING}]


@pytest.mark.parametrize("style", TRIED, ids=lambda style: style.name)
def test_a_server_does_what_the_table_says(style, typescript_sdk, tmp_path):
    """Its row is on the page, and only servers that trust their client have findings.

    The others act on none of the probes. Only age and repetition are left to SDK and tool.
    """
    is_sound = style.name in SOUND
    report = probed(style, tmp_path, TRYING if is_sound else CALLS)

    assert report["is_good"] is is_sound
    assert row_of(style, report) in PAGE

    refused = set()
    for made in report["probes"]:
        if made["verdict"] in ("refused", "ignored", "changed"):
            refused.add(made["probe"])

    if is_sound:
        assert set(PROBES) - refused == {"retry-repeated", "state-expired"}


def test_the_page_has_all_servers():
    """`make probed` prints the rows of the others, in the same order."""
    rows = re.findall(r"^\| (.*) \| .* \| (?:yes|no) \|$", PAGE, re.MULTILINE)

    assert rows == [style.name for style in STYLES]


def test_the_page_shows_what_its_servers_have():
    """Each part of a server that the page shows stands in its file."""
    examples = EXAMPLE.findall(PAGE)

    assert len(examples) == 3

    for name, shown in examples:
        lines = (EXAMPLES / name).read_text().splitlines()
        program = "\n".join(line.strip() for line in lines)
        for part in re.split(r"\n\.\.\.\n", dedent(shown).strip()):
            assert "\n".join(line.strip() for line in part.splitlines()) in program


def test_the_page_is_followed(typescript_sdk, tmp_path):
    """Probing finds what the page shows, and nothing in the servers that are mended."""
    for name, _ in EXAMPLE.findall(PAGE):
        shutil.copy(EXAMPLES / name, tmp_path)

    (tmp_path / "node_modules").symlink_to(PEERS / "node_modules")
    consoles = re.findall(r"^```console\n.*?^```", PAGE, re.MULTILINE | re.DOTALL)
    Reader(tmp_path).follow("\n".join(consoles))
