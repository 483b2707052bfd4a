from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mrtr_cassette.core.cassette.dump import dump
from mrtr_cassette.core.cassette.journal import (
    decode_journal_header,
    decode_journal_line,
)
from mrtr_cassette.core.cassette.load import load
from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    RecordedExchange,
    RecordedInteraction,
)
from mrtr_cassette.core.secrets.rules import RedactionRules

FROZEN = Path(__file__).parents[1] / "data" / "frozen"
CASSETTES = sorted(FROZEN.glob("v*/*.cassette.json"))
JOURNALS = sorted(FROZEN.glob("v*/*.journal"))


def said_of(exchange: RecordedExchange) -> dict[str, Any]:
    """Return what is known of an exchange as JSON; a character of a body is a byte."""
    request = exchange.request
    response = exchange.response
    # The first files don't say it.
    ended_after = exchange.ended_after
    said: dict[str, Any] = {
        "number": exchange.number,
        "times_ms": [exchange.started_ms, exchange.ended_ms],
        "states": [exchange.issued_sha256, exchange.echoed_sha256],
        "request": [
            request.method,
            request.target,
            [list(pair) for pair in request.headers],
            request.body.decode("latin-1"),
        ],
        "response": None,
    }
    if ended_after is not None:
        said["ended_after"] = ended_after

    if response is not None:
        pieces = [
            [piece.raw.decode("latin-1"), piece.at_ms, piece.arrived_count]
            for piece in response.pieces
        ]
        said["response"] = [
            response.status,
            [list(pair) for pair in response.headers],
            response.end.value,
            pieces,
        ]

    return said


def said_by(cassette: Cassette) -> dict[str, Any]:
    """Return what a cassette says as JSON."""
    names = ("upstream", "request_state", "seals_answers", "recorded_at", "tool")
    interactions = []
    for interaction in cassette.interactions:
        branch = interaction.branch
        said: dict[str, Any] = {
            "branch": None if branch is None else list(branch),
            "is_orphan": interaction.is_orphan,
            "exchanges": [said_of(exchange) for exchange in interaction.exchanges],
        }
        if interaction.pushed_turns:
            said["pushed_turns"] = said_of_turns(interaction)

        interactions.append(said)

    return {
        **{name: getattr(cassette, name) for name in names},
        "redaction": said_of_rules(cassette.redaction),
        "interactions": interactions,
    }


def said_of_turns(interaction: RecordedInteraction) -> list[Any]:
    """Return what is known of the pushed turns of an interaction as JSON."""
    said = []
    for turn in interaction.pushed_turns:
        asked = [
            [push.key, push.exchange.number, push.piece_index, push.interaction]
            for push in turn.pushed_requests
        ]
        answers = [[answer.key, said_of(answer.exchange)] for answer in turn.answers]
        said.append({"position": turn.position, "asked": asked, "answers": answers})

    return said


def said_by_line(line: bytes) -> Any:
    """Return what a line of a journal says as JSON; None for one that is not whole."""
    try:
        found = decode_journal_line(line)
    except ValueError:
        return None

    if isinstance(found, RecordedExchange):
        return said_of(found)

    pieces = [
        [piece.raw.decode("latin-1"), piece.at_ms, piece.arrived_count]
        for piece in found.pieces
    ]
    return [found.number, pieces, found.end.value, found.ended_ms, found.ended_after]


def said_of_rules(rules: RedactionRules | None) -> Any:
    """Return rules of redaction as JSON."""
    return rules and [list(rules.patterns), list(rules.keys), list(rules.disabled)]


def said_in(journal: bytes) -> dict[str, Any]:
    """Return what a journal says as JSON."""
    first, *lines = journal.removesuffix(b"\n").split(b"\n")
    header = decode_journal_header(first, "journal")
    names = ("upstream", "request_state", "recorded_at", "existing", "answers")

    return {
        **{name: getattr(header, name) for name in names},
        "redaction": said_of_rules(header.redaction),
        "lines": list(map(said_by_line, lines)),
    }


def expected_of(path: Path) -> Any:
    """Return what a frozen file said when it was frozen."""
    return json.loads(path.with_name(f"{path.name}.values").read_bytes())


@pytest.mark.parametrize(
    "path", CASSETTES, ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_frozen_cassette_says_what_it_said(path: Path) -> None:
    """Every version reads the cassettes of all versions before it, to the same values."""
    cassette = load(path.read_bytes(), path.name)

    assert said_by(cassette) == expected_of(path)
    assert said_by(load(dump(cassette), path.name)) == expected_of(path)


@pytest.mark.parametrize(
    "path", JOURNALS, ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_frozen_journal_says_what_it_said(path: Path) -> None:
    """A journal that a killed run left can be published."""
    assert said_in(path.read_bytes()) == expected_of(path)


def test_features_are_frozen() -> None:
    """There is a file for each feature of the format."""
    features = (
        "branches-and-orphan bytes-and-ends pushed redacted sealed sealed-answers streams verbatim "
        "written-by-hand"
    )

    assert {path.name.partition(".")[0] for path in CASSETTES} >= {*features.split()}
    assert len(JOURNALS) >= 3
