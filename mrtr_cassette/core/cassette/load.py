"""Read a recording from the file of a cassette, and accept what was edited in it."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import orjson

from mrtr_cassette.core.cassette.recorded import VERSION, Cassette, ExchangePlace
from mrtr_cassette.core.wire.pointers import escape_pointer, members_of
from mrtr_cassette.errors import CassetteError, damage_error, shorten
from mrtr_cassette.terms import shell_command

if TYPE_CHECKING:
    from pydantic import BaseModel

    from mrtr_cassette.core.cassette.model import CassetteModel, ExchangeFactsModel

    _FactsByPlace = dict[ExchangePlace, ExchangeFactsModel]

_Item = TypeVar("_Item")
_Model = TypeVar("_Model", bound="BaseModel")

LFS_POINTER: Final = b"version https://git-lfs"
"""The first bytes of a file that Git LFS has not fetched."""

_MERGE_MARK = re.compile(rb"^(?:<{7} |>{7} |={7}\r?$)", re.MULTILINE)


def load(data: bytes, path: str) -> Cassette:
    """Read a cassette.

    Raises:
        CassetteError: no cassette, of another version, damaged, or edited without its digests.
    """
    # The models of a file take half of a start: only who reads a cassette waits for them.
    from mrtr_cassette.core.cassette.loader import cassette_of
    from mrtr_cassette.core.cassette.model import CassetteModel, InteractionModel

    tree = _json_tree_of(data, path)
    del data
    _check_version(tree, path)
    # A model takes more memory than what is made of it, so there is one at a time.
    interactions: list[Any] = []
    if isinstance(tree["interactions"], list):
        interactions = tree["interactions"]
        tree["interactions"] = []

    file = _validated_model(CassetteModel, tree, path)
    del tree
    branched_numbers = _numbers_of_branched(interactions)
    interaction_trees = enumerate(_taken_out_one_by_one(interactions))
    models = (
        _validated_model(InteractionModel, tree, path, f"/interactions/{index}")
        for index, tree in interaction_trees
    )
    facts = _taken_out_one_by_one(file.recording.exchanges)

    return cassette_of(file, path, facts, models, branched_numbers)


def _taken_out_one_by_one(items: list[_Item]) -> Iterator[_Item]:
    """Yield the items of a list, and leave none."""
    items.reverse()
    while items:
        yield items.pop()


def _numbers_of_branched(interactions: list[Any]) -> set[int]:
    """Return the numbers of the interactions that others branch off from, in unchecked JSON."""
    numbers = set()
    for interaction in interactions:
        branch = members_of(members_of(interaction).get("branch"))
        origin = branch.get("of")
        if isinstance(origin, int):
            numbers.add(origin)

    return numbers


def decode_cassette(data: bytes, path: str) -> CassetteModel:
    """Read a file without checking its turns and branches.

    Raises:
        CassetteError: no JSON, no cassette, of another version, or of a wrong type.
    """
    from mrtr_cassette.core.cassette.model import CassetteModel

    tree = _json_tree_of(data, path)
    _check_version(tree, path)
    return _validated_model(CassetteModel, tree, path)


def _json_tree_of(data: bytes, path: str) -> Any:
    """Return the JSON of a file, which may begin with a byte order mark."""
    from pydantic_core import from_json

    text = data.removeprefix(codecs.BOM_UTF8)
    try:
        # Equal texts in a large file take the memory of one.
        return from_json(text, allow_inf_nan=False)
    except ValueError:
        # It doesn't read what is nested deeply, either.
        pass

    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise _not_json_error(data, path, error) from None


def _check_version(tree: Any, path: str) -> None:
    """Make sure that JSON is a cassette of the version that this program reads."""
    version = tree.get("version") if isinstance(tree, dict) else None
    if type(version) is not int or "interactions" not in tree:
        raise foreign_error(path)
    if version != VERSION:
        raise CassetteError(
            path,
            f"cassette version {version}, and this program reads version {VERSION}",
            hint="update mrtr-cassette" if version > VERSION else "record it again",
        )


def _validated_model(
    model: type[_Model], tree: Any, path: str, place: str = ""
) -> _Model:
    """Return the model of a cassette, or of a part of it; the error names the first wrong member.

    Args:
        place: the pointer to the part.
    """
    from pydantic import ValidationError

    try:
        return model.model_validate(tree)
    except ValidationError as error:
        first_error = error.errors(include_url=False)[0]
        pointer = place
        for step in first_error["loc"]:
            pointer += f"/{escape_pointer(str(step))}"

        reason = first_error["msg"].lower()
        if first_error["type"] != "missing":
            reason += f", found {shorten(repr(first_error['input']))}"

        raise damage_error(path, pointer, reason) from None


def accept_edit(data: bytes, path: str) -> tuple[bytes, int]:
    """Return a cassette with the digests of its present content, and how many exchanges changed.

    The facts of an exchange are found by its digest, or else by the place that it had.

    Raises:
        CassetteError: it can't be loaded for another reason than its digests.
    """
    from mrtr_cassette.core.cassette.dump import dump
    from mrtr_cassette.core.cassette.loader import place_of_facts

    file = decode_cassette(data, path)
    digests = _digests_by_place(file, path)
    facts_left = {place_of_facts(facts): facts for facts in file.recording.exchanges}
    kept_facts: _FactsByPlace = {}
    for place, digest in digests.items():
        if place in facts_left and facts_left[place].sha256 == digest:
            kept_facts[place] = facts_left.pop(place)

    changed_count = len(file.recording.exchanges) - len(kept_facts)
    _keep_moved_facts(digests, facts_left, kept_facts)
    updated_facts = []
    for place, facts in kept_facts.items():
        members = {**place._asdict(), "sha256": digests[place]}
        updated_facts.append(facts.model_copy(update=members))

    return dump(_loaded_cassette(file, path, updated_facts)), changed_count


def _loaded_cassette(
    file: CassetteModel, path: str, facts: Iterable[ExchangeFactsModel]
) -> Cassette:
    """Return the recording in a file, with these facts about its exchanges."""
    from mrtr_cassette.core.cassette.loader import cassette_of

    interactions = file.interactions
    numbers = range(1, len(interactions) + 1)
    return cassette_of(file, path, facts, interactions, branched_numbers=numbers)


def _digests_by_place(file: CassetteModel, path: str) -> dict[ExchangePlace, str]:
    """Return the digests of the exchanges as they are in the file now."""
    from mrtr_cassette.core.cassette.dump import exchange_sha256

    digests: dict[ExchangePlace, str] = {}
    cassette = _loaded_cassette(file, path, ())
    for interaction in cassette.interactions:
        for exchange, place in interaction.placed_exchanges:
            digests[place] = exchange_sha256(exchange.request, exchange.response)

    return digests


def _keep_moved_facts(
    digests: Mapping[ExchangePlace, str],
    facts_left: _FactsByPlace,
    kept_facts: _FactsByPlace,
) -> None:
    """Keep the facts of exchanges that are not at their recorded place, or not as recorded."""
    place_by_digest = {facts.sha256: place for place, facts in facts_left.items()}
    for place, digest in digests.items():
        if place not in kept_facts and digest in place_by_digest:
            kept_facts[place] = facts_left.pop(place_by_digest.pop(digest))

    recorded_interaction = {}
    for place, facts in kept_facts.items():
        recorded_interaction[place.interaction] = facts.interaction

    for place in digests:
        interaction = recorded_interaction.get(place.interaction, place.interaction)
        recorded_place = place._replace(interaction=interaction)
        if place not in kept_facts and recorded_place in facts_left:
            kept_facts[place] = facts_left.pop(recorded_place)


def is_not_meant_as_cassette(data: bytes) -> bool:
    """Tell whether a file is JSON that was never meant to be a cassette."""
    try:
        tree = orjson.loads(data.removeprefix(codecs.BOM_UTF8))
    except orjson.JSONDecodeError:
        return False

    if not isinstance(tree, dict):
        return True

    is_named = str(tree.get("$schema")).startswith(_SCHEMA_PREFIX)
    return not is_named and not tree.keys() >= _REQUIRED_MEMBERS


def foreign_error(path: object) -> CassetteError:
    """Return the error for a file that is JSON, but no cassette."""
    return CassetteError(
        path,
        "JSON, but not a cassette (no `version` and `interactions` at its top level)",
        hint="name a file that `mrtr-cassette record` wrote",
    )


_SCHEMA_PREFIX = "urn:mrtr-cassette:"
_REQUIRED_MEMBERS = frozenset({"upstream", "recording"})
"""Members of a cassette that other files with interactions don't have, VCR's for one."""


def _not_json_error(
    data: bytes, path: str, error: orjson.JSONDecodeError
) -> CassetteError:
    """Return the error for a file that is not JSON, with the likely reason."""
    if not data.strip():
        return CassetteError(
            path, "not JSON: the file is empty", hint="restore it or record it again"
        )
    if data.startswith(LFS_POINTER):
        return lfs_pointer_error(path)
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return CassetteError(
            path,
            "not JSON: the file is in UTF-16, and a cassette is UTF-8",
            hint="save it as UTF-8",
        )

    mark = _MERGE_MARK.search(data)
    if mark is not None:
        return _merge_conflict_error(data, path, mark.start())

    return CassetteError(
        path,
        f"not JSON: {error}",
        hint="the file is damaged, or not a cassette; restore it or record it again",
    )


def _merge_conflict_error(data: bytes, path: str, mark: int) -> CassetteError:
    """Return the error for a merge conflict, whose first mark is at the offset `mark`."""
    line = data.count(b"\n", 0, mark) + 1
    folder, slash, name = path.rpartition("/")
    sides = {"ours": f":2:./{name}", "theirs": f":3:./{name}"}
    commands = shell_command(
        "merge_sides", folder=folder + slash or ".", path=path, **sides
    )

    return CassetteError(
        path,
        f"line {line} is the mark of a merge conflict",
        hint=f"merge both sides with: {commands}; or take a side whole (git checkout "
        "--ours or --theirs), or record it again",
    )


def lfs_pointer_error(path: object) -> CassetteError:
    """Return the error for a file that Git LFS has not fetched."""
    return CassetteError(
        path,
        "a pointer of Git LFS, and not the cassette",
        hint="fetch it with: git lfs pull",
    )
