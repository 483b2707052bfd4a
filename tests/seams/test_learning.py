"""A law: what varies by itself is learned, wherever it stands, and nothing else is hidden by it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from builders import conversation, follow, loaded, tool
from hypothesis import example, given
from hypothesis import strategies as st
from messages import Json
from verifying import verifier_for

from mrtr_cassette.core.drive.ignored import learned_places
from mrtr_cassette.core.drive.plan import planned_interactions
from mrtr_cassette.core.drive.verification import VerifiedInteraction


@dataclass(frozen=True)
class Varying:
    """A value that is another one at each time; `each_call` is also within one run of the server."""

    kind: str
    each_call: bool

    def at(self, time: int, call: int) -> Json:
        """Return it in the run that begins at some time, in one of its calls."""
        moment = time * 2 + (call if self.each_call else 0)
        shapes: dict[str, Any] = {
            "time": f"2026-08-0{moment + 1}T10:00:0{moment}Z",
            "date": f"2026-08-0{moment + 1}",
            "id": f"{moment + 1:x}fa37b1c-0e{moment}d",
            "count": 40 + moment,
            "seconds": 1.5 + moment,
            "sentence": f"Built rev-{moment + 7} of the page in {moment + 3} s",
        }
        return shapes[self.kind]


@dataclass(frozen=True)
class Shuffled:
    """A list in another order at each time, whose items may vary too."""

    items: tuple[Any, ...]

    def at(self, time: int, call: int) -> Json:
        """Return it in the run that begins at some time."""
        place = time % len(self.items)
        items = [said(item, time, call) for item in self.items]
        return [*items[place:], *items[:place]]


def said(tree: Any, time: int, call: int) -> Json:
    """Return what the server says at some time."""
    if isinstance(tree, Varying | Shuffled):
        return tree.at(time, call)
    if isinstance(tree, dict):
        return {name: said(value, time, call) for name, value in tree.items()}
    if isinstance(tree, list):
        return [said(value, time, call) for value in tree]

    return tree


KINDS = st.sampled_from(["time", "date", "id", "count", "seconds", "sentence"])
VARYING = st.builds(Varying, KINDS, st.booleans())
WORDS = st.sampled_from(["ready", "in the cellar", "7", "UTC"])
STABLE = st.one_of(WORDS, st.integers(0, 99), st.booleans(), st.none())
SHUFFLED = st.builds(
    Shuffled, st.lists(STABLE, min_size=2, max_size=4, unique_by=str).map(tuple)
)
LEAVES = st.one_of(VARYING, VARYING, SHUFFLED, STABLE)
MEMBERS = st.sampled_from(["a", "b", "at/by", "c~d"])
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3),
        st.dictionaries(MEMBERS, inner, min_size=1),
    ),
    max_leaves=8,
)
RESULT_KINDS = st.tuples(
    st.dictionaries(MEMBERS, TREES, min_size=1),
    st.sampled_from(["json", "words", "none"]),
)
CALL = tool("clock")


def result_of(
    case: tuple[Any, str], time: int, call: int = 0, stable: str = "steady"
) -> Json:
    """Return a result: the structured content, which a text may repeat, beside what is stable."""
    tree, repeated = case
    content = said(tree, time, call)
    began = Varying("time", each_call=False).at(time, call)
    texts = {
        "json": json.dumps(content),
        "words": f"It is {began} and {stable}",
        "none": "done",
    }

    return {
        "content": [{"type": "text", "text": texts[repeated]}],
        "structuredContent": {"value": content, "stable": stable},
    }


def verified(
    case: tuple[Any, str], ignored: tuple[str, ...], *results: Json
) -> list[Any]:
    """Return what comes of the recorded call with a server that gives these results."""
    talk = conversation((CALL, result_of(case, 0)))
    cassette = loaded(talk.cassette())
    verifier: Any = verifier_for(cassette, ignored=ignored)
    (plan,) = planned_interactions(cassette)
    found = []
    for result in results:
        running = verifier.begin_interaction(plan)
        follow(running.conversation, result)
        found.append(verifier.end_interaction(running))

    return found


ROWS = tuple(
    {"name": name, "value": Varying("time", each_call=True)} for name in ("one", "two")
)


@given(RESULT_KINDS, st.booleans())
@example(case=({"a": Shuffled(ROWS)}, "json"), is_called_twice=True)
def test_after_learning_nothing_is_told_of_an_unchanged_server(
    case: tuple[Any, str],
    is_called_twice: bool,  # noqa: FBT001
) -> None:
    """Whether a tool is called twice or once, and though both calls come within one second."""
    first, second = verified(case, (), result_of(case, 1), result_of(case, 1, call=1))
    again: VerifiedInteraction | None = second if is_called_twice else None
    places = learned_places(first, again)

    assert [place for place in places if place.reason is not None] == []

    pointers = tuple(place.pointer for place in places)
    (later,) = verified(case, pointers, result_of(case, 2, call=1))

    assert (later.verdict, later.changes) == ("same", ())

    (changed,) = verified(case, pointers, result_of(case, 3, stable="shaky"))

    assert changed.verdict == "text-changed"
