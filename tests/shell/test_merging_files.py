"""Merging files: journals as they lie about, cassettes, and what is none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest
from builders import JOURNAL_HEADER, cassette_of, converse, encode_cassette, retry, tool
from messages import Json, asks, text

import mrtr_cassette
from mrtr_cassette.core.cassette.journal import (
    JournalHeader,
    encode_journal_header,
    encode_journal_line,
)
from mrtr_cassette.core.cassette.load import load
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.errors import CassetteError, UsageError
from mrtr_cassette.shell.files.cassettes import journal_path, load_cassette
from mrtr_cassette.shell.files.journals import (
    Journal,
    merge_files,
    publish_journal,
    recover_journal,
)

YES: Json = {"action": "accept"}
CALL = tool("deploy")
STATE = "a state that the server signed"
FIRST, SECOND = converse(
    (CALL, asks("ok", state=STATE)),
    (retry(CALL, {"ok": YES}, state=STATE), text("done")),
)


def header(recorder: int, **changes: object) -> JournalHeader:
    """Return what a recorder's journal says of itself."""
    return replace(
        JOURNAL_HEADER,
        redaction=RedactionRules(),
        recorder=f"{recorder:032x}",
        wall_ms=1e12,
        **changes,
    )


def journal(path: Path, recorder: int, *exchanges: object, **changes: object) -> Path:
    """Write a journal."""
    lines = [
        encode_journal_line(replace(exchange, number=at))
        for at, exchange in enumerate(exchanges, start=1)
    ]  # type: ignore[type-var]

    path.write_bytes(
        encode_journal_header(header(recorder, **changes)) + b"".join(lines)
    )
    return path


@pytest.fixture
def two(tmp_path: Path) -> list[Path]:
    """Return the journals of two recorders through which one call passed."""
    return [
        journal(tmp_path / "one.json.journal", 1, FIRST),
        journal(tmp_path / "two.json.journal", 2, SECOND),
    ]


def test_files_of_a_store_are_merged_alike(two: list[Path], tmp_path: Path) -> None:
    """Journals and cassettes are fetched, the cassette is put, and what is wrong has its URL.

    The files stay, and rounds of two recorders are one call.
    """
    before = [path.read_bytes() for path in two]
    store = fsspec.filesystem("memory")
    urls = [f"memory://merged/{path.name}" for path in two]
    for path, url in zip(two, urls, strict=True):
        store.pipe_file(url, path.read_bytes())

    output = tmp_path / "whole.json"
    url = "memory://merged/whole.json"

    assert mrtr_cassette.merge(two, output) == mrtr_cassette.merge(urls, url) == ()
    assert store.cat_file(url) == output.read_bytes()
    assert mrtr_cassette.merge([url, *urls], url, existing="replace") == ()

    (interaction,) = load(store.cat_file(url), url).interactions

    assert (len(interaction.exchanges), interaction.is_orphan) == (2, False)
    assert [path.read_bytes() for path in two] == before

    with pytest.raises(CassetteError, match=f"^{url}: the cassette exists"):
        mrtr_cassette.merge(urls, url)

    store.pipe_file(urls[0], b'{"journal":99}\n')
    with pytest.raises(CassetteError, match=f"^{urls[0]}"):
        mrtr_cassette.merge(urls, url, existing="replace")


def test_copies_of_a_cassette_that_names_no_recorder_count_once(tmp_path: Path) -> None:
    """Each exchange has the name of its recorder only in newer cassettes."""
    tree = json.loads(encode_cassette(cassette_of((CALL, text("done")))))
    tree["recording"].pop("recorders", None)
    files = [tmp_path / "one.json", tmp_path / "two.json"]
    for file in files:
        file.write_text(json.dumps(tree))

    mrtr_cassette.merge(files, tmp_path / "whole.json")

    assert len(load((tmp_path / "whole.json").read_bytes(), "").interactions) == 1


def test_output_is_replaced_only_when_asked(two: list[Path], tmp_path: Path) -> None:
    """As every command has it."""
    output = tmp_path / "whole.json"
    output.write_bytes(b"mine")

    with pytest.raises(CassetteError, match="the cassette exists"):
        merge_files(two, output)

    assert output.read_bytes() == b"mine"

    with pytest.raises(UsageError, match="nothing to merge"):
        merge_files([], output)

    with pytest.raises(UsageError, match="'append', and not one of keep, replace"):
        mrtr_cassette.merge(two, output, existing="append")

    merge_files(two, output, replaces=True)

    # Also where it is one of the files itself.
    assert len(merge_files([*two, output], output, replaces=True)[0].interactions) == 1


def test_journal_and_its_own_cassette_are_one(tmp_path: Path) -> None:
    """Also of a run that was killed while it wrote, and of one that is at work."""
    path = tmp_path / "c.json"
    kept = tmp_path / "kept.journal"
    journal(journal_path(path), 1, FIRST, SECOND)
    kept.write_bytes(journal_path(path).read_bytes() + b'{"number":3,"torn')
    publish_journal(path)
    working = Journal(tmp_path / "working", header(2))
    working.append(encode_journal_line(replace(FIRST, number=1)))

    merged, notes = merge_files(
        [path, kept, kept, working.path], tmp_path / "whole.json"
    )
    working.close()

    assert (len(merged.interactions), len(merged.recorders)) == (2, 2)
    assert notes == (
        f"{kept}: line 4 is incomplete (17 bytes); it is left out",
        f"{working.path}: its recorder is still running; its exchanges so far are merged",
    )


def test_cassette_of_a_recorder_at_work_is_left_to_it(tmp_path: Path) -> None:
    """If it is killed, its journal would be taken for one whose exchanges are all in the cassette."""
    path = tmp_path / "c.json"
    working = Journal(path, header(1))
    working.append(encode_journal_line(replace(FIRST, number=1)))

    with pytest.raises(CassetteError, match="another recorder is writing"):
        merge_files([working.path], path)

    working.append(encode_journal_line(replace(SECOND, number=2)))
    working.close()
    recover_journal(path)

    assert len(list(load_cassette(path).exchanges)) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no such cassette"),
        (b"{}", "none.json"),
        (b'{"journal":99} 00000000\n', "journal version 99"),
        (encode_journal_header(header(1)), "no file has a complete exchange"),
        (encode_journal_header(header(1, existing="append")), "it adds to a cassette"),
    ],
)
def test_what_cannot_be_merged_is_an_error(
    content: bytes | None, message: str, tmp_path: Path
) -> None:
    """It names the file, and nothing is written."""
    path = tmp_path / "none.json"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(CassetteError, match=message):
        merge_files([path], tmp_path / "c.json")

    assert not (tmp_path / "c.json").exists()
