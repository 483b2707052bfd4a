from __future__ import annotations

from builders import cassette_of, loaded, missed, play, player_of, tool
from messages import text

from mrtr_cassette.core.report.failures import MissesError, UnplayedError, UnpublishedError
from mrtr_cassette.core.report.inspection import inspected
from mrtr_cassette.core.report.misses import report_of_miss


def test_misses_are_told_with_their_texts() -> None:
    """The error has how many requests were missed, and of each what a report says."""
    player = player_of((tool("a"), text("x")))
    play(player, tool("a"))
    report = report_of_miss(missed(player, tool("b")), "c.json")

    error = MissesError("c.json", [report, report])

    head = "2 requests had no recorded answer on c.json"
    assert str(error) == f"{head}\n\n{report.text}\n\n{report.text}"
    assert (error.misses, error.exit_code) == ((report, report), 1)


def test_what_was_not_played_is_listed() -> None:
    """The error has the interactions, each with its number and its call."""
    (one,) = inspected(loaded(cassette_of((tool("a"), text("x"))))).interactions

    error = UnplayedError("c.json", [one])

    assert str(error) == 'not all that is on c.json was played:\n  #1 tools/call "a"'
    assert (error.unplayed, error.exit_code) == ((one,), 1)


def test_an_unpublished_recording_can_be_published() -> None:
    """The error has the reason and both ways out."""
    error = UnpublishedError("c.json", "all 2 requests got 404")

    assert str(error).splitlines() == [
        "c.json was not written: all 2 requests got 404",
        (
            "what was recorded is in the journal beside it; publish it with: "
            "mrtr-cassette recover c.json (or delete the journal)"
        ),
    ]
    assert (error.reason, error.exit_code) == ("all 2 requests got 404", 4)
