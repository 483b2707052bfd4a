"""Facts about the report of a whole replay."""

from __future__ import annotations

from builders import NO, YES, Step, asks, get, missed, play, player_of, post, retry, text, tool

from mrtr_cassette.core.report.summary import report_of_replay, summary_data, summary_text

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
    }
    assert data["misses"][0]["reason"] == "arguments-differ"
    assert [each.number for each in report.incomplete] == [2, 3]


def test_report_has_no_secrets() -> None:
    """A secret that a client sends is redacted, also where the cassette has none."""
    player = player_of((tool("login", user="ada"), text("in")), redacts=True)
    player.request_received(post(tool("login", user="ada", password="correct-horse")))
    data = summary_data(report_of_replay(player))

    assert "correct-horse" not in str(data)
    assert data["misses"][0]["differences"] == [
        {"pointer": "/arguments/password", "recorded": None, "received": '"<password>"'}
    ]
