from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from builders import Conversation, cassette_of, conversation, encode_cassette, get, retry, tool
from messages import NO, YES, asks, text
from pydantic import ValidationError

from mrtr_cassette.core.format.codec import schema
from mrtr_cassette.core.format.model import SCHEMA_ID, VERSION, CassetteModel, InteractionModel

CALL = tool("deploy", env="prod")
TALK = (
    (CALL, asks("ok", state="S" * 30)),
    (retry(CALL, {"ok": YES}, state="S" * 30), text("done")),
    (retry(CALL, {"ok": NO}, state="S" * 30), text("left")),
    (retry(CALL, {"ok": YES}, state="T" * 30), text("refused")),
    (get("/mcp", ("Accept", "a"), ("Accept", "b")), b"\xff"),
    (tool("other"), asks("never")),
)


def tree_of(cassette: CassetteModel) -> dict[str, Any]:
    """Return a cassette as the JSON that its file holds."""
    tree: dict[str, Any] = json.loads(encode_cassette(cassette))
    return tree


def test_file_begins_with_schema_and_version_and_ends_with_the_recording() -> None:
    """Keys stand in a fixed order, what varies last."""
    tree = tree_of(cassette_of(*TALK))

    assert list(tree) == [
        "$schema",
        "version",
        "upstream",
        "request_state",
        "interactions",
        "recording",
    ]
    assert (tree["$schema"], tree["version"]) == (SCHEMA_ID, VERSION)


def test_parts_of_an_interaction_stand_in_the_order_in_which_they_happened() -> None:
    """A person reads request, turns and response from the top to the bottom."""
    orphan_first = next(
        one for one in tree_of(cassette_of(*TALK))["interactions"] if "branch" in one
    )

    assert list(orphan_first) == ["branch", "request", "elicitation_turns", "response"]
    assert list(orphan_first["request"]) == ["http", "body"]
    assert list(orphan_first["elicitation_turns"][0]) == ["via", "ask", "answer"]
    assert list(orphan_first["elicitation_turns"][0]["ask"]) == [
        "status",
        "headers",
        "body",
    ]
    assert list(orphan_first["elicitation_turns"][0]["answer"]) == ["headers", "body"]
    assert list(orphan_first["response"]) == ["status", "headers", "body"]


def test_file_is_valid_by_the_published_schema() -> None:
    """The generated schema accepts what is written, and refuses what isn't the format."""
    published = json.loads(schema())
    jsonschema.Draft202012Validator.check_schema(published)
    validator = jsonschema.Draft202012Validator(published)
    tree = tree_of(cassette_of(*TALK))

    assert list(validator.iter_errors(tree)) == []
    changes: list[dict[str, Any]] = [
        {"version": 2},
        {"extra": 1},
        {"interactions": {}},
        {"request_state": "open"},
    ]
    for change in changes:
        assert not validator.is_valid({**tree, **change})
    assert not validator.is_valid({key: value for key, value in tree.items() if key != "upstream"})


def test_models_are_frozen() -> None:
    """A cassette that is being replayed can't change."""
    cassette, member = cassette_of(*TALK), "upstream"

    with pytest.raises(ValidationError):
        setattr(cassette, member, "elsewhere")


@pytest.mark.parametrize(
    "branch", [{"of": 0, "turn": 1}, {"of": 1, "turn": 0}, {"of": "1", "turn": 1}, {"of": 1}]
)
def test_branch_counts_from_one(branch: dict[str, Any]) -> None:
    """Interactions and turns are numbered from 1, by integers."""
    interaction = tree_of(cassette_of(*TALK))["interactions"][0]
    with pytest.raises(ValidationError):
        InteractionModel.model_validate({**interaction, "branch": branch})


def test_recording_an_unchanged_server_again_changes_the_recording_block_only() -> None:
    """Other raw states, times and order of arrival show in `recording` and nowhere else."""

    def recorded(mark: str, *, late: bool) -> dict[str, Any]:
        talk = Conversation()
        one, state = talk.request(CALL), mark * 30
        if late:
            talk.tick()
        other = talk.request(tool("other"))
        for number in (one, other) if late else (other, one):
            talk.response(number, asks("ok", state=state) if number == one else asks("never"))
        talk.response(talk.request(retry(CALL, {"ok": YES}, state=state)), text(f"after {state}"))
        talk.response(talk.request(retry(CALL, {"ok": NO}, state=state)), text("left"))
        tampered = retry(CALL, {"ok": YES}, state=f"{state}x")
        talk.response(talk.request(tampered), text("refused"))
        return tree_of(talk.cassette(recorded_at=f"2026-08-0{1 + late}T00:00:00+00:00"))

    first, second = recorded("S", late=False), recorded("T", late=True)

    assert first.pop("recording") != second.pop("recording")
    assert first == second


def test_no_raw_state_stands_in_a_sealed_file() -> None:
    """A sealed cassette has hashes and surrogates only; a verbatim one has the states."""
    script = [
        (CALL, {**asks("ok", state="S" * 30), "_meta": {"log": f"issued {'S' * 30}"}}),
        (retry(CALL, {"ok": "S" * 30}, state="S" * 30), text(f"got {'S' * 30}")),
        (retry(CALL, {"ok": YES}, state="S" * 30 + "x"), text("refused")),
    ]

    assert b"S" * 30 not in encode_cassette(conversation(*script).cassette())
    assert b"S" * 30 in encode_cassette(conversation(*script, seals=False).cassette())
