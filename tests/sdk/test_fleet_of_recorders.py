"""Two recorders in front of one server of an official SDK, through which a client's rounds pass in turns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from harness import looped
from in_turns import run_flows
from processes import StartServer

import mrtr_cassette

FLOWS = ("list", "release-train", "deploy")


def content(path: Path) -> Any:
    """Return what two recordings of the same server share."""
    tree = json.loads(path.read_bytes())
    del tree["recording"]
    return tree


@looped
async def through(urls: list[str]) -> None:
    """Run the flows, each request with the next recorder."""
    await run_flows(urls, FLOWS)


def test_rounds_through_two_recorders_are_what_one_recorder_has(
    start_server: StartServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """What two recorders saw of the conversations is, merged, what one records, and plays."""
    one, two, whole = (tmp_path / f"{name}.json" for name in ("one", "two", "whole"))
    with start_server("python", 0) as server:
        with (
            mrtr_cassette.record(server.url, one) as first,
            mrtr_cassette.record(server.url, two) as second,
        ):
            through([first.url, second.url])
            journals = [tmp_path / f"{path.stem}.journal" for path in (one, two)]
            for path, copy in zip((one, two), journals, strict=True):
                copy.write_bytes(path.with_name(f"{path.name}.journal").read_bytes())
        recorded = capsys.readouterr().out
        with mrtr_cassette.record(server.url, whole) as alone:
            through([alone.url])
    assert capsys.readouterr().out == recorded
    merged, of_cassettes = tmp_path / "merged.json", tmp_path / "of cassettes.json"

    notes = mrtr_cassette.merge(journals, merged)
    mrtr_cassette.merge([two, one], of_cassettes)

    assert notes == ()
    assert content(merged) == content(whole)
    assert content(of_cassettes) == content(whole)
    assert b'"orphan": true' in one.read_bytes()
    with mrtr_cassette.replay(merged) as player:
        through([player.url])
    assert capsys.readouterr().out == recorded
