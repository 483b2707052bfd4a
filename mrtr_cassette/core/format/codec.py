"""Cassette files as bytes, and bytes as cassette files.

Owns: the version gate, and the errors that name the place in a damaged file.
Does not own: the bodies within (`bodies`), and what the models mean (`load`).
Rule: a file is the same however it is spelled; where it is spelled as `dump` does, it is read
without holding all of it as a tree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

import orjson
from pydantic import ValidationError

from mrtr_cassette.core.format.bodies import damaged
from mrtr_cassette.core.format.digest import RecordingDigest, changed
from mrtr_cassette.core.format.model import (
    SCHEMA_ID,
    VERSION,
    BranchModel,
    CassetteModel,
    ExchangeFactsModel,
    InteractionModel,
    PushedTurnModel,
)
from mrtr_cassette.core.wire.pointers import escape_pointer
from mrtr_cassette.errors import CassetteError, shorten

_Item = TypeVar("_Item", InteractionModel, ExchangeFactsModel)


class Parts(NamedTuple):
    """A cassette whose two lists are read item by item, as there may be many.

    An error in an item is raised when its turn comes.

    Attributes:
        head: the cassette less the items of the lists.
        interactions: its interactions.
        exchanges: the facts of its exchanges.
    """

    head: CassetteModel
    interactions: Iterator[InteractionModel]
    exchanges: Iterator[ExchangeFactsModel]


def decode_parts(data: bytes, path: str) -> Parts:
    """Read a file, its lists item by item.

    Raises:
        CassetteError: empty, no JSON, no cassette, of another version, of a wrong type, or not what
            its digest says.
    """
    if not data or data.isspace():
        raise CassetteError(path, "the file is empty", hint="record it again")
    tree, interactions, exchanges = _parts(data, path)
    _check_version(tree, path)
    try:
        head = CassetteModel.model_validate(tree)
    except ValidationError as error:
        raise _invalid(path, error) from None
    digest = RecordingDigest()
    unread = {"interactions", "exchanges"}

    def check_after(name: str, items: Iterator[_Item]) -> Iterator[_Item]:
        """Check the recording's digest when the second of the lists has been read."""
        yield from items
        unread.discard(name)
        if not unread and head.recording.sha256 is not None:
            sha256 = digest.sha256(tree)
            if sha256 != head.recording.sha256:
                reason = f"at /recording/sha256: it is {head.recording.sha256}, not {sha256}"
                raise changed(path, reason)

    if head.recording.sha256 is not None:
        interactions = _passed_to(digest.add_interaction, interactions)
        exchanges = _passed_to(digest.add_facts, exchanges)
    return Parts(
        head,
        check_after("interactions", _read_interactions(interactions, path)),
        check_after(
            "exchanges", _validated(exchanges, ExchangeFactsModel, path, "/recording/exchanges")
        ),
    )


def _passed_to(add: Callable[[Any], None], items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        add(item)
        yield item


class _List(NamedTuple):
    """A list of objects in a file, as `dump` spells it; no string has a line's end."""

    place: tuple[str, ...]
    first: bytes
    end: bytes
    between: bytes
    last: bytes


def _list_at(*place: str, is_indented: bool) -> _List:
    outer = b"\n" + b"  " * len(place)
    inner = outer + b"  "
    end = inner + b"}" if is_indented else b"}"
    return _List(
        place,
        first=b'%b"%b": [%b{' % (outer, place[-1].encode(), inner),
        end=end,
        between=b"%b,%b{" % (end, inner),
        last=b"%b%b]" % (end, outer),
    )


_INTERACTIONS = _list_at("interactions", is_indented=True)
_EXCHANGES = _list_at("recording", "exchanges", is_indented=False)


def _parts(data: bytes, path: str) -> tuple[Any, Iterable[Any], Iterable[Any]]:
    """Return what stands in a file less the items of its lists, and these."""
    cut: dict[_List, tuple[int, int]] = {}
    rest: list[bytes] = []
    at = 0
    for layout in (_INTERACTIONS, _EXCHANGES):
        first, last = data.find(layout.first, at), data.rfind(layout.last, at)
        if not 0 <= first < last:
            break
        rest += (data[at:first], b'"%b":[]' % layout.place[-1].encode())
        cut[layout] = first + len(layout.first) - 1, last
        at = last + len(layout.last)
    try:
        tree = orjson.loads(b"".join([*rest, data[at:]]))
    except orjson.JSONDecodeError:
        cut.clear()
        tree = _json(data, path)
    interactions, exchanges = (
        _read_by_parts(data, layout, *cut[layout], path)
        if layout in cut
        else _taken_out(tree, layout)
        for layout in (_INTERACTIONS, _EXCHANGES)
    )
    return tree, interactions, exchanges


def interaction_count(data: bytes) -> int:
    """Return how many interactions a file has that is spelled as `dump` does."""
    return data.count(_INTERACTIONS.between) + 1


def _taken_out(tree: Any, layout: _List) -> list[Any]:
    """Return the items of a list, which is empty from then on."""
    *outer, name = layout.place
    for step in outer:
        tree = tree.get(step) if isinstance(tree, dict) else None
    if not isinstance(tree, dict) or not isinstance(tree.get(name), list):
        return []
    items: list[Any] = tree[name]
    tree[name] = []
    return items


_READ_AT_ONCE = 32 * 1024
"""Bytes of items, or one item, that are read as JSON at once; many small texts take longer."""


def _read_by_parts(data: bytes, layout: _List, at: int, last: int, path: str) -> Iterator[Any]:
    count = 0
    while at <= last:
        end = data.find(layout.between, at + _READ_AT_ONCE, last)
        end = last if end < 0 else end
        try:
            trees = orjson.loads(b"[%b]" % data[at : end + len(layout.end)])
        except orjson.JSONDecodeError:
            # Read as a whole, the file tells where it is damaged.
            yield from _taken_out(_json(data, path), layout)[count:]
            return
        yield from trees
        count += len(trees)
        at = end + len(layout.between) - 1


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


def _read_interactions(trees: Iterable[Any], path: str) -> Iterator[InteractionModel]:
    vias: list[tuple[str, ...]] = []
    for index, interaction in enumerate(_validated(trees, InteractionModel, path, "/interactions")):
        vias.append(tuple([turn.via for turn in interaction.elicitation_turns]))
        if vias[-1]:
            _check_turns(interaction, path, f"/interactions/{index}")
        if interaction.branch is not None:
            _check_branch(interaction, vias, interaction.branch, path)
        yield interaction


AT_ONCE = 32
"""Items that are read together, step by step: a processor is quicker at more of the same."""


def _validated(
    trees: Iterable[Any], model: type[_Item], path: str, pointer: str
) -> Iterator[_Item]:
    """Yield what items of a list are; all that come before a wrong one are yielded."""
    coming = enumerate(trees)
    while batch := list(islice(coming, AT_ONCE)):
        items: list[_Item] = []
        for index, tree in batch:
            try:
                items.append(model.model_validate(tree))
            except ValidationError as error:
                yield from items
                raise _invalid(path, error, f"{pointer}/{index}") from None
        yield from items


def _invalid(path: str, error: ValidationError, at: str = "") -> CassetteError:
    first, *others = error.errors(include_url=False)
    pointer = at + "".join(f"/{escape_pointer(str(step))}" for step in _steps_to(first["loc"]))
    if first["type"] == "missing":
        strays = [
            f"`{other['loc'][-1]}`"
            for other in others
            if other["type"] == "extra_forbidden" and other["loc"][:-1] == first["loc"][:-1]
        ]
        shown = f"; without a meaning there: {', '.join(strays)}" if strays else ""
    else:
        shown = f", found {_shown(first['input'])}"
    return damaged(path, pointer, f"{first['msg'].lower()}{shown}")


_MODEL_STEP = 2
"""Index in the steps to a place within a turn, at which stands how the turn asks."""


def _steps_to(loc: tuple[int | str, ...]) -> Iterator[int | str]:
    """Yield the steps to a place in the file, without what only names one of several models."""
    for index, step in enumerate(loc):
        if index != _MODEL_STEP or loc[0] != "elicitation_turns":
            yield step


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
    interaction: InteractionModel, vias: list[tuple[str, ...]], branch: BranchModel, path: str
) -> None:
    """Check the branch that the last interaction read is; `vias` has how the turns of all ask."""
    index = len(vias) - 1
    pointer = f"/interactions/{index}/branch"
    if branch.of > index:
        raise damaged(path, f"{pointer}/of", f"{branch.of} is no earlier interaction")
    for number in (index, branch.of - 1):
        if branch.turn > len(vias[number]):
            reason = f"interaction {number + 1} has no such turn"
            raise damaged(path, f"{pointer}/turn", reason)
    shared, other = (vias[number][: branch.turn] for number in (index, branch.of - 1))
    if shared[-1] != "result" or shared != other:
        reason = f"the turns up to it are not those of interaction {branch.of}, the last a result"
        raise damaged(path, f"{pointer}/turn", reason)
    if interaction.elicitation_turns[branch.turn - 1].answer is None:
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
