from __future__ import annotations

from typing import Any, TypedDict

import pytest

from mrtr_cassette.core.record.linking import (
    NEVER,
    NO_TASK,
    ExchangeFacts,
    Moment,
    linked_interactions,
)


class Step(TypedDict, total=False):
    """What linking sees of an exchange; each letter of `answers` and `asks` is a key."""

    key: str
    caller: str
    client: str
    answers: str
    echoes: str
    asks: str
    issues: str
    after: int


def facts_of(*steps: Step) -> dict[int, ExchangeFacts]:
    """Return the facts about exchanges, numbered from 1."""
    return {number: _facts(number, step) for number, step in enumerate(steps, start=1)}


def _facts(number: int, step: Step) -> ExchangeFacts:
    is_retry = {"answers", "echoes"} & step.keys()
    is_ask = {"asks", "issues"} & step.keys()
    return ExchangeFacts(
        session="",
        is_listening=False,
        request_id=None,
        answered_push_id=None,
        pushes=(),
        responses=(),
        end_moment=NEVER,
        is_answered=True,
        resumed_call_number=None,
        call_sha256=step.get("key", "deploy"),
        caller=step.get("caller", ""),
        client=step.get("client", ""),
        answered_keys=frozenset(step.get("answers", "")) if is_retry else None,
        echoed_hash=step.get("echoes"),
        asked_keys=frozenset(step.get("asks", "")) if is_ask else None,
        issued_hashes=(step["issues"],) if "issues" in step else (),
        asked_moment=Moment(step.get("after", number), 0.0),
        creates_task=False,
        task=NO_TASK,
    )


ASK: Step = {"asks": "a"}
ASK_S: Step = {"asks": "a", "issues": "S"}
RETRY: Step = {"answers": "a"}
RETRY_S: Step = {"answers": "a", "echoes": "S"}


@pytest.mark.parametrize(
    ("steps", "linked"),
    [
        pytest.param(
            [ASK_S, {**ASK, "issues": "T"}, {**RETRY, "echoes": "T"}, RETRY_S],
            [[1, 4], [2, 3]],
            id="a state outranks arrival, so parallel calls don't mix",
        ),
        pytest.param(
            [ASK, ASK, RETRY, RETRY], [[1, 3], [2, 4]], id="the oldest open ask first"
        ),
        pytest.param(
            [ASK, {"asks": "b"}, RETRY], [[1, 3], [2]], id="keys tell the ask"
        ),
        pytest.param(
            [ASK, {"asks": "b"}, {"answers": "b"}], [[1], [2, 3]], id="keys, the other"
        ),
        pytest.param(
            [ASK, {"asks": "b"}, {"answers": "ab"}], [[1], [2], [3]], id="too many keys"
        ),
        pytest.param(
            [ASK, {"asks": "b"}, {"answers": ""}], [[1, 3], [2]], id="no key at all"
        ),
        pytest.param([ASK_S, {**RETRY, "echoes": "T"}], [[1], [2]], id="another state"),
        pytest.param([ASK_S, RETRY], [[1], [2]], id="no state where one was issued"),
        pytest.param(
            [ASK_S, {**RETRY_S, "key": "sell"}], [[1], [2]], id="another call"
        ),
        pytest.param([ASK, RETRY_S], [[1], [2]], id="a state where none was issued"),
        pytest.param(
            [ASK_S, RETRY_S, RETRY_S], [[1, 2], [1, 3]], id="a second answer branches"
        ),
        pytest.param(
            [ASK_S, {"key": "sell"}, RETRY_S, RETRY_S],
            [[1, 3], [1, 4], [2]],
            id="a branch follows what it parts from",
        ),
        pytest.param(
            [{**ASK, "after": 2}, RETRY], [[1], [2]], id="an ask that was not whole"
        ),
        pytest.param(
            [{**ASK, "after": 3}, {**ASK, "after": 2}, RETRY, RETRY],
            [[1, 4], [2, 3]],
            id="the ask that was whole",
        ),
        pytest.param(
            [
                {**ASK, "client": "a"},
                {**RETRY, "client": "b"},
                {**RETRY, "client": "a"},
            ],
            [[1, 3], [2]],
            id="another client answers nothing without a state",
        ),
        pytest.param(
            [{**ASK_S, "client": "a"}, {**RETRY_S, "client": "b"}],
            [[1, 2]],
            id="but with one",
        ),
        pytest.param(
            [ASK, RETRY, {"asks": "ab"}, RETRY],
            [[1, 2], [3, 4]],
            id="open before answered",
        ),
        pytest.param(
            [{"asks": "ab"}, ASK, RETRY], [[1, 3], [2]], id="the first of other keys"
        ),
        pytest.param([ASK, {"asks": "ab"}, RETRY], [[1, 3], [2]], id="either way"),
    ],
)
def test_retry_joins_the_ask_that_it_answers(
    steps: list[Step], linked: list[list[int]]
) -> None:
    """Each row says why; only a retry that answers no recorded ask is an orphan."""
    interactions = linked_interactions(facts_of(*steps), (), {})

    assert [interaction.exchange_numbers for interaction in interactions] == linked

    for interaction in interactions:
        first_step = steps[interaction.exchange_numbers[0] - 1]
        is_call = "asks" in first_step or first_step.keys() <= {"key"}

        assert interaction.is_orphan is not is_call


@pytest.mark.parametrize(
    "state", [{}, {"issues": "same for all", "echoes": "same for all"}]
)
def test_of_equal_asks_the_callers_own_comes_first(state: Any) -> None:
    """Where states don't tell, an open ask of the same client comes before an older one."""
    issues = {key: state[key] for key in state if key == "issues"}
    echoes = {key: state[key] for key in state if key == "echoes"}
    ask_of_a: Any = {"asks": "k", "caller": "a", **issues}
    ask_of_b: Any = {"asks": "k", "caller": "b", **issues}
    retry_of_b: Any = {"answers": "k", "caller": "b", **echoes}
    retry_of_c: Any = {"answers": "k", "caller": "c", **echoes}
    with_its_own = linked_interactions(
        facts_of(ask_of_a, ask_of_b, retry_of_b, retry_of_c), (), {}
    )
    without = linked_interactions(facts_of(ask_of_a, ask_of_b, retry_of_c), (), {})

    assert [interaction.exchange_numbers for interaction in with_its_own] == [
        [1, 4],
        [2, 3],
    ]
    assert [interaction.exchange_numbers for interaction in without] == [[1, 3], [2]]
