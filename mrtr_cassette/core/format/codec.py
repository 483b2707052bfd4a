"""Cassette files as bytes, and bytes as cassette files.

Rule: a file is the same however it is spelled.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import orjson
from pydantic import ValidationError

from mrtr_cassette.core.format.bodies import damaged
from mrtr_cassette.core.format.model import (
    SCHEMA_ID,
    VERSION,
    BranchModel,
    CassetteModel,
    InteractionModel,
    PushedTurnModel,
)
from mrtr_cassette.core.wire.pointers import escape_pointer
from mrtr_cassette.errors import CassetteError, shorten


def decode_cassette(data: bytes, path: str) -> CassetteModel:
    """Read a file.

    Raises:
        CassetteError: empty, no JSON, no cassette, of another version, of a wrong type, or its
            turns or branches can't have happened.
    """
    if not data or data.isspace():
        raise CassetteError(path, "the file is empty", hint="record it again")
    tree = _json(data, path)
    _check_version(tree, path)
    try:
        cassette = CassetteModel.model_validate(tree)
    except ValidationError as error:
        raise _invalid(path, error) from None
    for index, interaction in enumerate(cassette.interactions):
        if interaction.elicitation_turns:
            _check_turns(interaction, path, f"/interactions/{index}")
        if interaction.branch is not None:
            _check_branch(cassette.interactions, index, interaction.branch, path)
    return cassette


def _json(data: bytes, path: str) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        reason = f"not JSON: {error}"
        hint = "the file is damaged or no cassette; restore it or record it again"
        mark = _MERGE_MARK.search(data)
        if mark is not None:
            line = data.count(b"\n", 0, mark.start()) + 1
            reason = f"line {line} is the mark of a merge conflict"
            hint = "take one side whole (git checkout --ours or --theirs), or record it again"
        elif data.startswith(b'{"journal":'):
            reason = "it is the journal of a recording, not a cassette"
            hint = "make the cassette of it with: mrtr-cassette recover CASSETTE, without .journal"
        raise CassetteError(path, reason, hint=hint) from None


_MERGE_MARK: Final = re.compile(rb"^(?:<{7} |>{7} |={7}\r?$)", re.MULTILINE)


def _invalid(path: str, error: ValidationError) -> CassetteError:
    first, *others = error.errors(include_url=False)
    loc = first["loc"]
    # The third step into a list of turns only names one of the two models of a turn.
    steps = [step for at, step in enumerate(loc) if at < 2 or loc[at - 2] != "elicitation_turns"]
    pointer = "".join(f"/{escape_pointer(str(step))}" for step in steps)
    if first["type"] == "missing":
        strays = [
            f"`{other['loc'][-1]}`"
            for other in others
            if other["type"] == "extra_forbidden" and other["loc"][:-1] == loc[:-1]
        ]
        shown = f"; without a meaning there: {', '.join(strays)}" if strays else ""
    else:
        shown = f", found {_shown(first['input'])}"
    return damaged(path, pointer, f"{first['msg'].lower()}{shown}")


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "an array"
    return shorten(repr(value))


def _check_version(tree: Any, path: str) -> None:
    version = tree.get("version") if isinstance(tree, dict) else None
    if type(version) is not int or "interactions" not in tree:
        raise CassetteError(
            path,
            "JSON, but no mrtr-cassette file (no `version` and `interactions` at its top level)",
            hint="name a file that `mrtr-cassette record` wrote",
        )
    if version != VERSION:
        raise CassetteError(
            path,
            f"cassette version {version}, and this program reads version {VERSION}",
            hint="update mrtr-cassette" if version > VERSION else "record it again",
        )


def _check_turns(interaction: InteractionModel, path: str, pointer: str) -> None:
    """Make sure that only the last turn lacks an answer, and that nothing follows it.

    A request that was pushed may stay without one.
    """
    turns = interaction.elicitation_turns
    for index, turn in enumerate(turns):
        at = f"{pointer}/elicitation_turns/{index}"
        if isinstance(turn, PushedTurnModel):
            _check_keys(turn, path, at)
        elif turn.answer is None and index + 1 < len(turns):
            raise damaged(path, at, "no `answer`, and another turn follows")
        elif turn.answer is None and interaction.response is not None:
            raise damaged(path, f"{pointer}/response", "a response after a turn without `answer`")


def _check_keys(turn: PushedTurnModel, path: str, pointer: str) -> None:
    """Make sure that each answer is that to one pushed request."""
    unanswered: set[str] = set()
    for index, event in enumerate(turn.ask.events):
        if event.key in unanswered:
            raise damaged(path, f"{pointer}/ask/events/{index}/key", "the same as another one")
        unanswered.add(event.key)
    for index, answer in enumerate(turn.answer.responses if turn.answer is not None else ()):
        if answer.key not in unanswered:
            reason = "it names no event of the ask, or one that has an answer"
            raise damaged(path, f"{pointer}/answer/responses/{index}/key", reason)
        unanswered.remove(answer.key)


def _check_branch(
    interactions: Sequence[InteractionModel], index: int, branch: BranchModel, path: str
) -> None:
    pointer = f"/interactions/{index}/branch"
    if branch.of > index:
        raise damaged(path, f"{pointer}/of", f"{branch.of} is no earlier interaction")
    for number in (index, branch.of - 1):
        if branch.turn > len(interactions[number].elicitation_turns):
            reason = f"interaction {number + 1} has no such turn"
            raise damaged(path, f"{pointer}/turn", reason)
    shared, other = (
        [turn.via for turn in interactions[number].elicitation_turns[: branch.turn]]
        for number in (index, branch.of - 1)
    )
    if shared[-1] != "result" or shared != other:
        reason = f"the turns up to it are not those of interaction {branch.of}, the last a result"
        raise damaged(path, f"{pointer}/turn", reason)
    if interactions[index].elicitation_turns[branch.turn - 1].answer is None:
        raise damaged(path, f"{pointer}/turn", "the branch has no answer of its own there")


def schema() -> bytes:
    """Return the JSON Schema of the cassette format."""
    generated = CassetteModel.model_json_schema(by_alias=True)
    tree = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        **generated,
    }
    text = orjson.dumps(tree, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    # The suffix tells models from what they describe; a schema has no such need.
    return text.replace(b'Model"', b'"')
