"""Facts about calls without a client from Python."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import listening

import mrtr_cassette

SERVER = (sys.executable, "-m", "mrtr_cassette.demo.server", "--port", "0")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Give a server that asks."""
    with listening(SERVER) as server:
        yield server.url


def test_call_is_answered_by_name_or_by_a_file(url: str, tmp_path: Path) -> None:
    """In any thread, with and without an event loop; it may be recorded."""
    arguments = {"env": "production"}
    cassette = tmp_path / "call.json"
    result = mrtr_cassette.call(
        url, "deploy", arguments, answers={"confirm": True}, path=cassette
    )

    assert (result.text, result.is_error) == ("Deployed to production", False)
    assert result.turns[0].answered_by == {"confirm": "call"}

    rules = tmp_path / "answers.toml"
    rules.write_text('[[rule]]\naction = "decline"\n')

    async def within_a_loop() -> Any:
        return mrtr_cassette.call(url, "deploy", arguments, answers=rules)

    assert asyncio.run(within_a_loop()).text == "Deployment cancelled"

    with mrtr_cassette.replay(cassette) as replay:
        again = mrtr_cassette.call(
            replay.url, "deploy", arguments, answers={"confirm": True}
        )

    assert again == result


def test_what_is_wrong_is_told(url: str) -> None:
    """An answer that JSON can't carry, a method without a name, arguments that are no mapping."""
    with pytest.raises(
        mrtr_cassette.UsageError, match="answers: 'a' has no value that JSON"
    ):
        mrtr_cassette.call(url, "deploy", answers={"a": object()})

    with pytest.raises(
        mrtr_cassette.UsageError, match="the method 'ping' is not one of tools/c"
    ):
        mrtr_cassette.call(url, "deploy", method="ping")

    with pytest.raises(
        mrtr_cassette.UsageError, match="arguments is 5, and not a mapping"
    ):
        mrtr_cassette.call(url, "deploy", 5)  # type: ignore[arg-type]


def test_question_that_nothing_answers_is_an_error(url: str) -> None:
    """With the text of the command line, which names an answer that nothing asked for."""
    arguments = {"env": "production"}
    with pytest.raises(mrtr_cassette.UnansweredError) as mistyped:
        mrtr_cassette.call(url, "deploy", arguments, answers={"confrim": True})

    assert str(mistyped.value) == (
        "turn 1 is not answered: 'confirm': nothing answers it; write answers={'confirm': True}; "
        "nothing asked for the answer 'confrim'"
    )

    unanswered = mistyped.value.result.unanswered

    assert unanswered is not None
    assert unanswered.asked.requests["confirm"].message == "Deploy to production?"

    with pytest.warns(UserWarning, match="nothing asked for the answer 'spare'"):
        mrtr_cassette.call(
            url, "deploy", arguments, answers={"confirm": True, "spare": 1}
        )

    gone = mrtr_cassette.call("http://127.0.0.1:9/mcp", "deploy")
    with pytest.raises(mrtr_cassette.UpstreamError, match="connection refused"):
        _ = gone.text
