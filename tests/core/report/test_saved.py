"""Facts about reports that are read back from files."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from builders import missed, play, player_of, post, rpc, tool
from messages import asks, text

from mrtr_cassette.core.report.saved import UnreadableReportError, saved_report
from mrtr_cassette.core.report.summary import report_of_replay, summary_data


def saved() -> dict[str, Any]:
    """Return a report with a miss that has a nearest call, one that has none, and harmless traffic."""
    player = player_of((tool("deploy", env="prod"), text("x")), (tool("ask"), asks("a")))
    play(player, tool("deploy", env="prod"))
    missed(player, tool("deploy", env="test"))
    missed(player, rpc("odd/method"))
    player.request_received(post(rpc("ping")))
    data: dict[str, Any] = json.loads(orjson.dumps(summary_data(report_of_replay(player))))
    return data


def test_report_is_read_as_it_was() -> None:
    """What a report says is the same after it went through a file."""
    data = saved()
    report = saved_report(orjson.dumps(data))

    assert summary_data(report) == data
    assert [miss.nearest is None for miss in report.misses] == [False, True]
    assert len(report.harmless) == 1


def _spoiled(*path: str | int) -> Callable[[Any], None]:
    def change(tree: Any) -> None:
        for step in path[:-1]:
            tree = tree[step]
        tree[path[-1]] = 1.5

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_spoiled("cassette"), "/cassette is no text"),
        (_spoiled("interactions"), "/interactions is no list"),
        (_spoiled("interactions", 0), "/interactions/0/outcome is no text"),
        (_spoiled("interactions", 0, "number"), "/interactions/0/number is no whole number"),
        (_spoiled("misses", 0, "reason"), "/misses/0/reason is no text"),
        (_spoiled("misses", 0, "nearest"), "/misses/0/nearest is no object"),
        (_spoiled("misses", 0, "nearest", "turn"), "/misses/0/nearest/turn is no whole number"),
        (
            _spoiled("misses", 0, "differences", 0, "recorded"),
            "/misses/0/differences/0/recorded is no text",
        ),
        (_spoiled("harmless", 0, "times"), "/harmless/0/times is no whole number"),
    ],
)
def test_place_of_what_is_wrong_is_named(change: Callable[[Any], None], said: str) -> None:
    """A report that somebody changed is refused with the place."""
    data = saved()
    change(data)

    with pytest.raises(UnreadableReportError, match=said):
        saved_report(orjson.dumps(data))


def test_other_files_are_no_reports() -> None:
    """XML, a list and an outcome that no replay has are refused."""
    with pytest.raises(UnreadableReportError, match="no JSON: "):
        saved_report(b"<testsuite/>")
    with pytest.raises(UnreadableReportError, match="/cassette is no text"):
        saved_report(b"[]")
    data = saved()
    data["interactions"][0]["outcome"] = "eaten"
    with pytest.raises(UnreadableReportError, match="/interactions/0/outcome is none of a replay"):
        saved_report(orjson.dumps(data))
