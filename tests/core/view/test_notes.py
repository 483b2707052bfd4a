"""Facts about what a page notes of a replay."""

from __future__ import annotations

from builders import missed, player_of, post, retry, rpc, tool
from messages import NO, YES, asks, text
from pages import parsed

from mrtr_cassette.core.report.misses import MissReport
from mrtr_cassette.core.report.summary import reports_of_misses
from mrtr_cassette.core.view.notes import miss_article, miss_note, misses_section

CALL = tool("deploy", env="prod")


def misses() -> tuple[MissReport, ...]:
    """Return a miss near a recorded answer, and one that is near nothing."""
    player = player_of((CALL, asks("a")), (retry(CALL, {"a": YES}), text("x")))
    player.request_received(post(CALL))
    missed(player, retry(CALL, {"a": NO}))
    missed(player, rpc("odd/method"))
    return reports_of_misses(player)


def test_miss_stands_beside_what_was_recorded() -> None:
    """A miss tells its reason, what was received, the nearest call, the difference and the way out."""
    near, _ = misses()
    article = parsed(miss_article(near, 1))

    assert article.one("article").attributes["id"] == "m1"
    assert article.one("h4").text == "Miss 1: other answers were recorded answers-differ"
    assert 'a (form) "a?"' in article.text
    links = [each.attributes["href"] for each in article.every("a")]
    assert links == ["#m1", "#i1t1"]
    assert [each.text for each in article.every("td")][:2] == ['"accept"', '"decline"']
    assert len(list(article.one("ul").every("li"))) == len(near.fixes)


def test_all_misses_are_listed() -> None:
    """The list links to each miss, and has those whole that are near no call."""
    section = parsed(misses_section(misses()) or "")

    assert section.one("h2").text == "2 requests were missed"
    assert [each.attributes["href"] for each in section.every("a")] == ["#m1", "#m2"]
    assert section.one("article").attributes["id"] == "m2"
    assert section.one("section").attributes["id"] == "misses"


def test_replay_without_misses_has_no_list() -> None:
    """Where all was played there is nothing to note."""
    assert misses_section(()) is None
    assert parsed(misses_section(misses()[:1]) or "").one("h2").text == "1 request was missed"


def test_miss_is_a_note_of_the_nearest_call() -> None:
    """The label says that there was a miss, and why."""
    near, _ = misses()
    note = miss_note(near, 1)

    assert (note.label, note.kind) == ("miss: answers-differ", "bad")
    assert note.content == miss_article(near, 1)
