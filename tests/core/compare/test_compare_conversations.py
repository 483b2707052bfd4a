from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders import cassette_of, changed, loaded, post, retry, rpc, tool, with_meta
from hypothesis import given
from messages import NO, YES, Json, asks, form, text
from pushed_cassettes import branched, pushing_cassettes

from mrtr_cassette.core.compare.cassettes import compared
from mrtr_cassette.core.compare.conversations import Stage, side_of, stages_of
from mrtr_cassette.core.exchange.recorded import RecordedInteraction

CALL = tool("deploy", env="prod")


def asking(*keys: str, words: str = "done", answers: Json = YES, end: bool = True) -> Any:
    """Return the interaction of a call that asks once for each of these keys."""
    states = [f"state-of-{key}-0123456789abcdefghij" for key in keys]
    script: list[Any] = []
    request = CALL
    for key, state in zip(keys, states, strict=True):
        question = {key: form(f"about {key}?")}
        script.append((request, {**asks(key, state=state), "inputRequests": question}))
        request = retry(CALL, {key: answers}, state=state, number=len(script) + 1)
    if end:
        script.append((request, text(words)))
    return loaded(cassette_of(*script)).interactions[0]


def outline(old: RecordedInteraction | None, new: RecordedInteraction | None, *ignored: str) -> str:
    """Return the stages of two interactions in a few words."""
    sides = [None if each is None else side_of(each) for each in (old, new)]
    return "  ".join(map(in_words, stages_of(*sides, ignored)))


def in_words(stage: Stage) -> str:
    """Return a stage in a few words."""
    verdicts = sorted({change.verdict for change in stage.changes if not change.is_information})
    words = f"{stage.mark} {stage.kind}{stage.turn or ''}"
    return f"{words} {','.join(verdicts)}" if verdicts else words


@pytest.mark.parametrize(
    ("old", "new", "stages"),
    [
        (asking("a"), asking("a"), "= request  = ask1  = answer1  = result"),
        (
            asking("a"),
            asking("a", words="left", answers=NO),
            "= request  = ask1  ~ answer1 shape-changed,text-changed  ~ result text-changed",
        ),
        (
            asking("a", "b"),
            asking("a"),
            (
                "= request  = ask1  = answer1  - ask2 rounds-changed  - answer2 rounds-changed"
                "  = result"
            ),
        ),
        (
            asking("b"),
            asking("a", "b"),
            (
                "= request  + ask1 rounds-changed  + answer1 rounds-changed  = ask1  = answer1"
                "  = result"
            ),
        ),
        (
            asking("a"),
            asking("b"),
            "= request  ~ ask1 question-changed  ~ answer1 shape-changed  = result",
        ),
        (
            asking("a"),
            asking("a", end=False),
            "= request  = ask1  ~ answer1 shape-changed  - result shape-changed",
        ),
        (
            None,
            asking("a"),
            "+ ask1 shape-changed  + answer1 shape-changed  + result shape-changed",
        ),
        (asking("a", end=False), None, "- ask1 shape-changed"),
    ],
)
def test_turns_are_compared_one_by_one(old: Any, new: Any, stages: str) -> None:
    """A turn that only one of them has is a change of rounds; the others stay beside theirs."""
    assert outline(old, new) == stages


def test_what_only_one_has_is_shown_whole() -> None:
    """The question, the answer and the result of a call that is new."""
    ask, answer, result = stages_of(None, side_of(asking("a")))
    assert '"message":"about a?"' in (ask.changes[0].received or "")
    assert answer.changes[0].received == '{"a":{"action":"accept","content":{"ok":true}}}'
    assert (result.changes[0].received or "").startswith('{"content":[{"text":"done"')
    assert {change.recorded for change in ask.changes + answer.changes} == {None}


def test_who_asks_is_information() -> None:
    """Another client's name breaks nobody; its trace is not even told."""

    def of_client(name: str) -> RecordedInteraction:
        meta = {"client": name, "traceparent": name, "progressToken": name}
        return loaded(cassette_of((with_meta(CALL, **meta), text("a")))).interactions[0]

    request, result = stages_of(side_of(of_client("a")), side_of(of_client("b")))
    (change,) = request.changes
    assert (request.mark, result.mark) == ("=", "=")
    assert (change.pointer, change.is_information) == ("/#request/_meta/client", True)


def test_what_breaks_ties_on_replay_is_information() -> None:
    """Headers and what a client says of itself are told, of retries too; credentials are not."""
    first = changed(rpc("initialize"), "params", to={"protocolVersion": "1", "capabilities": {}})
    other = changed(first, "params", "protocolVersion", to="2")
    again = retry(CALL, {"a": YES}, state="s" * 40)
    asked = (CALL, asks("a", state="s" * 40))
    headers = [("Authorization", "Bearer a"), ("Accept", "text/plain"), ("Mcp-Param-Region", "eu")]
    old = loaded(cassette_of((first, {}), asked, (again, text("a"))))
    new = loaded(cassette_of((other, {}), asked, (post(again, *headers), text("a"))))
    found = compared(old, new)
    assert found.is_same
    assert [
        (change.pointer, change.recorded, change.received, change.is_information)
        for each in found.interactions
        for change in each.stages[0].changes
    ] == [
        ("/#request/params/protocolVersion", '"1"', '"2"', True),
        ("/#request/headers/accept", None, '"text/plain"', True),
        ("/#request/headers/authorization", None, '"..."', True),
        ("/#request/headers/mcp-param-region", None, '"eu"', True),
    ]
    assert compared(new, new).interactions[1].stages[0].changes == ()


def test_null_in_an_answer_is_as_good_as_nothing() -> None:
    """Some clients write members that have no value, others leave them out."""
    plain, spelled = asking("a"), asking("a", answers={**YES, "_meta": None, "list": [None]})
    assert "~ answer1" in outline(plain, spelled)
    assert "= answer1" in outline(plain, spelled, "/inputResponses/a/list")


def test_pushed_turns_are_compared_like_others() -> None:
    """A question that was pushed is compared by what it asks; its id is another one."""
    interactions = branched().interactions
    for each in interactions:
        assert "~" not in outline(each, each)
    turned = next(each for each in interactions if each.pushed_turns)
    without = replace(turned, pushed_turns=())
    assert "- ask1 rounds-changed  - answer1 rounds-changed" in outline(turned, without)


@given(pushing_cassettes())
def test_everything_is_the_same_as_itself(cassette: Any) -> None:
    """Whatever was pushed and answered when, a conversation has no change from itself."""
    for each in cassette.interactions:
        stages = stages_of(side_of(each), side_of(each))
        assert {stage.mark for stage in stages} == {"="}
        assert not any(stage.changes for stage in stages)
