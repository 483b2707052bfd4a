"""Facts about the command `prune`, which takes out what a replay never played."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders import cassette_of, encode_cassette, loaded, missed, play, post, tool
from click.testing import CliRunner, Result
from messages import text

from mrtr_cassette.cli import main
from mrtr_cassette.core.cassette.dump import dump
from mrtr_cassette.core.cassette.texts import combine_cassettes
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.report.runs import report_of_replay, summary_data
from mrtr_cassette.shell.files.cassettes import load_cassette

SCRIPT = tuple((tool(name), text(name)) for name in ("one", "two", "three"))


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cassette of three calls."""
    monkeypatch.chdir(tmp_path)
    Path("c.json").write_bytes(dump(loaded(cassette_of(*SCRIPT), "c.json")))


def replayed(*names: str) -> Player:
    """Replay some of the calls, and write the report."""
    player = Player(loaded(cassette_of(*SCRIPT), "c.json"))
    for name in names:
        play(player, post(tool(name)))

    report(player)
    return player


def report(player: Player) -> None:
    """Write the report of a replay."""
    Path("report.json").write_text(json.dumps(summary_data(report_of_replay(player))))


def prune(name: str = "c.json") -> Result:
    """Run the command."""
    return CliRunner().invoke(main, ["prune", name, "--report", "report.json"])


def test_what_was_never_played_is_taken_out_and_told() -> None:
    """All other lines stay, and the rest plays; what was wholly played stays as it is."""
    before = Path("c.json").read_text().splitlines()
    replayed("one", "three")
    pruned = prune()

    assert (pruned.exit_code, pruned.stdout) == (0, 'removed #2 tools/call "two"\n')
    assert pruned.stderr == "wrote c.json: 2 interactions\n"

    after = Path("c.json").read_text().splitlines()
    added = [line for line in after if line not in before]

    assert [json.loads(line.rstrip(","))["interaction"] for line in added] == [2]

    checked = CliRunner().invoke(main, ["check", "c.json"])

    assert "2 interactions, all as recorded" in checked.stdout

    stale = prune()

    assert (
        stale.exit_code,
        "is not a JSON report of a replay of this" in stale.stderr,
    ) == (2, True)


def test_report_that_proves_nothing_changes_nothing() -> None:
    """One of another cassette, of a replay that missed something, or of one without a request."""
    data = Path("c.json").read_bytes()
    replayed("one", "two", "three")

    assert prune().stderr == "c.json: everything was played; nothing was removed\n"

    extended = cassette_of(*SCRIPT[:2], (tool("four"), text("four")))
    Path("other.json").write_bytes(encode_cassette(extended))

    assert (
        "is not a JSON report of a replay of this cassette"
        in prune("other.json").stderr
    )

    replayed()

    assert "played nothing" in prune().stderr

    player = replayed("one")
    missed(player, post(tool("five")))
    report(player)

    assert "missed requests, and may be cut short" in prune().stderr
    assert Path("c.json").read_bytes() == data


def test_files_that_were_played_as_one_are_pruned_one_by_one() -> None:
    """The report has the number that a call has in its own file; equal files need their names."""
    other = cassette_of((tool("four"), text("4")), (tool("five"), text("5")))
    Path("other.json").write_bytes(dump(loaded(other, "other.json")))
    cassettes = [load_cassette(Path(name)) for name in ("c.json", "other.json")]
    player = Player(combine_cassettes(cassettes))
    for name in ("one", "two", "three", "five"):
        play(player, post(tool(name)))

    report(player)

    assert prune().stderr == "c.json: everything was played; nothing was removed\n"
    assert prune("other.json").stdout == 'removed #1 tools/call "four"\n'
