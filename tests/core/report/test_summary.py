"""Facts about the report of a whole replay."""

from __future__ import annotations

from typing import Any

import pytest
from builders import Step, get, missed, play, player_of, post, retry, rpc, tool
from messages import NO, YES, asks, text

from mrtr_cassette.core.report.summary import (
    RecordingReport,
    recording_event,
    recording_text,
    report_of_replay,
    summary_data,
    summary_event,
    summary_text,
)

CALL = tool("deploy", env="prod")
STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"
BRANCHED: tuple[Step, ...] = (
    (CALL, asks("a", state=STATE)),
    (retry(CALL, {"a": NO}, state=STATE), text("left")),
    (retry(CALL, {"a": YES}, state=STATE), text("done")),
)


def test_summary_of_a_clean_replay_is_one_line() -> None:
    """All played and nothing missed is said in one line."""
    player = player_of((CALL, text("x")))
    play(player, CALL)

    assert summary_text(report_of_replay(player)) == "played 1 of 1 interactions, no misses"


def test_summary_lists_what_was_not_played_and_counts_misses() -> None:
    """What was played in part or never is listed, and misses are counted by reason."""
    player = player_of(*BRANCHED, (get("/x"), b"x"))
    play(player, CALL)
    missed(player, CALL)
    assert ", 1 miss (already-played 1)" in summary_text(report_of_replay(player))
    missed(player, CALL)
    missed(player, tool("x"))

    assert summary_text(report_of_replay(player)).splitlines() == [
        "played 0 of 3 interactions, 3 misses (already-played 2, unknown-name 1)",
        '  played in part: #1 tools/call "deploy"',
        '  never played: #2 tools/call "deploy"',
        "  never played: #3 GET /x",
    ]


def test_summary_of_much_unplayed_is_cut() -> None:
    """At most ten interactions are listed, and the rest is counted."""
    lines = summary_text(report_of_replay(player_of(*[(CALL, text("x"))] * 12))).splitlines()

    assert len(lines) == 12
    assert lines[-1] == "  and 2 more"


def test_report_tells_played_unplayed_and_missed() -> None:
    """Each interaction has an outcome, and each miss what its error has."""
    player = player_of((tool("add"), text("1")), *BRANCHED[:2], (tool("drop"), text("gone")))
    play(player, tool("add"))
    play(player, CALL)
    missed(player, tool("deploy", env="dev"))

    report = report_of_replay(player)
    data = summary_data(report)

    assert data == {
        "cassette": "talk.json",
        "interactions": [
            {"number": 1, "call": 'tools/call "add"', "outcome": "played", "plays": 1},
            {"number": 2, "call": 'tools/call "deploy"', "outcome": "played in part", "plays": 1},
            {"number": 3, "call": 'tools/call "drop"', "outcome": "unplayed", "plays": 0},
        ],
        "misses": [{"text": report.misses[0].text, **report.misses[0].facts}],
        "harmless": [],
    }
    assert data["misses"][0]["reason"] == "arguments-differ"
    assert [each.number for each in report.incomplete] == [2, 3]


def test_report_lists_harmless_requests() -> None:
    """What was not recorded and got what any server answers is counted, and is no miss."""
    player = player_of((CALL, text("x")))
    play(player, CALL)
    for request in (post(rpc("ping")), post(rpc("ping", number=2)), get("/.well-known/x")):
        player.request_received(request)
    report = report_of_replay(player)

    assert summary_text(report).splitlines() == [
        "played 1 of 1 interactions, no misses",
        "  not recorded, answered as by any server 2 times: ping",
        "  not recorded, answered as by any server: GET /.well-known/x",
    ]
    assert summary_data(report)["harmless"] == [
        {"call": "ping", "answer": "{}", "times": 2},
        {"call": "GET /.well-known/x", "answer": "404", "times": 1},
    ]
    assert summary_event(report)["harmless"] == 3


def test_summary_of_many_harmless_requests_is_cut() -> None:
    """At most ten of them are listed, and the rest is counted."""
    player = player_of((CALL, text("x")))
    play(player, CALL)
    for number in range(12):
        player.request_received(get(f"/.well-known/{number}"))

    lines = summary_text(report_of_replay(player)).splitlines()
    assert (len(lines), lines[-1]) == (12, "  and 2 more")


def test_report_has_no_secrets() -> None:
    """A secret that a client sends is redacted, also where the cassette has none."""
    player = player_of((tool("login", user="ada"), text("in")), redacts=True)
    player.request_received(post(tool("login", user="ada", password="correct-horse")))
    data = summary_data(report_of_replay(player))

    assert "correct-horse" not in str(data)
    assert data["misses"][0]["differences"] == [
        {"pointer": "/arguments/password", "recorded": None, "received": '"<password>"'}
    ]


def test_event_of_a_replay_has_the_counts() -> None:
    """The last event of a log tells how many interactions there are, and which were not played."""
    player = player_of((tool("add"), text("1")), *BRANCHED[:2])
    play(player, CALL)
    missed(player, tool("drop"))

    assert summary_event(report_of_replay(player)) == {
        "event": "concluded",
        "interactions": 2,
        "unplayed": [1, 2],
        "misses": 1,
        "harmless": 0,
    }


@pytest.mark.parametrize(
    ("report", "told", "event"),
    [
        (
            RecordingReport("c.json", 3, 4, None, 0),
            "wrote c.json: 3 interactions, 4 exchanges recorded",
            {"interactions": 3, "exchanges": 4},
        ),
        (
            RecordingReport("c.json", 1, 1, 2, 3),
            "wrote c.json: 1 interaction, 1 exchange recorded, 2 played, 3 could not be recorded",
            {"interactions": 1, "exchanges": 1, "played": 2, "unrecorded": 3},
        ),
        (
            RecordingReport("c.json", None, 0, 5, 0),
            "c.json stays as it is, 0 exchanges recorded, 5 played",
            {"interactions": 0, "exchanges": 0, "played": 5, "unrecorded": 0},
        ),
        (
            RecordingReport("c.json", None, 0, None, 0),
            "nothing was recorded, no cassette was written",
            {"interactions": 0, "exchanges": 0},
        ),
    ],
)
def test_recording_tells_what_it_came_to(
    report: RecordingReport, told: str, event: dict[str, Any]
) -> None:
    """What was written, recorded, played and not recorded is told in one line and one event."""
    assert recording_text(report) == told
    assert recording_event(report) == {"event": "concluded", **event}


def test_recording_that_was_not_published_tells_why() -> None:
    """The reason comes first, and the log has it beside the counts."""
    report = RecordingReport("c.json", None, 2, None, 0, "all 2 requests got 404")

    assert recording_text(report).startswith("c.json was not written: all 2 requests got 404\n")
    assert recording_event(report) == {
        "event": "concluded",
        "interactions": 0,
        "exchanges": 2,
        "unpublished": "all 2 requests got 404",
    }
