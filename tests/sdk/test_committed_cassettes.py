"""The cassettes in `cassettes/`, replayed without any server; `record_cassettes.py` makes them."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from processes import (
    CASSETTES,
    PROGRAM,
    TRANSCRIPTS,
    Listening,
    listening,
    record_command,
    replay_command,
    run,
)
from record_cassettes import SOURCES, converse

from mrtr_cassette.core.cassette.dump import dump
from mrtr_cassette.core.cassette.load import load

every_cassette = pytest.mark.parametrize(
    "cassette", sorted(CASSETTES.glob("*.json")), ids=lambda path: path.stem
)


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    """Make a validator of the schema that the command line prints."""
    printed = run((*PROGRAM, "schema"))
    assert (printed.code, printed.stderr) == (0, "")
    schema = json.loads(printed.stdout)
    Draft202012Validator.check_schema(schema)

    return Draft202012Validator(schema)


def committed(name: str) -> Path:
    """Return a cassette's file."""
    return CASSETTES / f"{name}.json"


def was_all_played(name: str, replay: Listening) -> bool:
    """Tell whether a replay that has ended played every interaction and missed nothing."""
    count = len(json.loads(committed(name).read_text())["interactions"])
    summary = f"played {count} of {count} interactions, no misses\n"
    return (replay.code, replay.stderr) == (0, summary)


@every_cassette
def test_cassette_is_valid_by_the_published_schema(
    cassette: Path, validator: Draft202012Validator
) -> None:
    """A cassette is valid by the JSON Schema that `mrtr-cassette schema` prints."""
    problems = [
        error.message
        for error in validator.iter_errors(json.loads(cassette.read_bytes()))
    ]

    assert problems == []


@every_cassette
def test_cassette_comes_back_from_the_codec(cassette: Path) -> None:
    """Decoding a cassette and encoding it again gives the same bytes."""
    data = cassette.read_bytes()

    assert dump(load(data, cassette.name)) == data


@pytest.mark.parametrize("name", SOURCES)
def test_recording_a_replay_leaves_the_cassette_alone(
    name: str, tmp_path: Path, typescript_sdk: None
) -> None:
    """A replay can't be told from the server: recorded over its own cassette, it is the same."""
    cassette = tmp_path / f"{name}.json"
    shutil.copy(committed(name), cassette)
    with (
        listening(replay_command(committed(name)), signal.SIGINT) as replay,
        listening(
            record_command(replay.url, cassette, "--force"), signal.SIGINT
        ) as proxy,
    ):
        transcript = converse(name, proxy.url)

    assert cassette.read_bytes() == committed(name).read_bytes()
    assert transcript == (TRANSCRIPTS / f"{name}.txt").read_text()
    assert was_all_played(name, replay)
