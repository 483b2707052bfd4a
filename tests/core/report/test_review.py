"""Facts about the text that reviewers read of a cassette."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from builders import Answer as Response
from builders import Step, answer, cassette_of, get, loaded, progress, refusal, retry, stream, tool
from harmless import HOSTILE, assert_harmless
from messages import NO, YES, array_asks, asks, text
from pushing import asked_once, elicit

from mrtr_cassette.core.exchange.recorded import Cassette
from mrtr_cassette.core.report.details import detailed
from mrtr_cassette.core.report.review import review_data, review_text

CALL = tool("deploy", env="prod")
STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"


def recording_of(*script: Step, **options: Any) -> Cassette:
    """Return the recording of a script."""
    return loaded(cassette_of(*script, **options), "talk.json")


def text_of(*script: Step) -> str:
    """Return the review text of a script."""
    return review_text(detailed(recording_of(*script)))


def test_review_text_has_everything_whole() -> None:
    """Arguments, questions with their schema, answers and results stand in it in full."""
    words = "x" * 1000
    ask = asks("a", state=STATE)
    ask["inputRequests"]["a"]["params"]["requestedSchema"] = {"type": "object"}

    shown = text_of((CALL, ask), (retry(CALL, {"a": YES}, state=STATE), text(words)))

    assert (
        shown
        == f"""\
recorded from http://localhost:8000/mcp
format version 1, request states sealed

#1 tools/call "deploy"
    arguments:
      {{
        "env": "prod"
      }}
    turn 1, with request state:
      asked    a (form)
        a?
        {{
          "requestedSchema": {{
            "type": "object"
          }}
        }}
      answered a
        {{
          "action": "accept",
          "content": {{
            "ok": true
          }}
        }}
    ended: HTTP 200, result
      {{
        "resultType": "complete",
        "content": [
          {{
            "type": "text",
            "text": "{words}"
          }}
        ]
      }}"""
    )


def test_review_text_is_the_same_for_every_recording() -> None:
    """Times and sizes, which differ between recordings of one conversation, are not in it."""
    recording = recording_of((CALL, text("done")))
    later = replace(
        recording,
        recorded_at="2027-01-01T00:00:00+00:00",
        tool="mrtr-cassette 9",
        path="other.json",
        interactions=tuple(
            replace(
                each,
                exchanges=tuple(replace(one, ended_ms=9000.0) for one in each.exchanges),
            )
            for each in recording.interactions
        ),
    )

    assert review_text(detailed(later)) == review_text(detailed(recording))


def test_review_text_tells_what_is_out_of_the_ordinary() -> None:
    """Branches, orphans, unasked and missing answers, retries alone, errors and other bodies show."""
    shown = text_of(
        (CALL, asks("a")),
        (retry(CALL, {"a": YES}), refusal(CALL, -32602, "no")),
        (retry(CALL, {"a": NO}), asks("c")),
        (tool("x"), asks("a", state=STATE)),
        (retry(tool("x"), {"a": NO, "b": 5}, state=STATE), text("x")),
        (retry(tool("lost"), state="unknown"), text("x")),
        (tool("wait"), asks(state=STATE)),
        (get("/page"), Response((b"<html>\n</html>",), (), 404)),
        (tool("slow"), stream(progress(7), answer(CALL, text("x")))),
    )

    for line in (
        "    shares the ask of turn 1 with #1",
        "    continues a request state that no recorded ask issued",
        "      answered b, which was not asked",
        "      not answered",
        "      asked for a retry only",
        '    ended: HTTP 200, error -32602 "no"',
        '        "code": -32602,',
        "      <html>",
        "      </html>",
        "    said notifications/progress",
    ):
        assert f"{line}\n" in f"{shown}\n", line


def test_review_text_of_other_spellings() -> None:
    """Questions of the array dialect and pushed ones are told like any other."""
    listed = text_of((CALL, array_asks("name", state="s")))
    pushed = review_text(detailed(asked_once(elicit(words="Two\nlines"), YES, CALL, text("x"))))

    assert "      asked    name (string)\n        name?\n" in listed
    assert "    turn 1, pushed:\n" in pushed
    assert "        Two\n        lines\n" in pushed


def test_review_text_tells_who_answered_in_the_clients_place() -> None:
    """Answers that the recording proxy gave are not taken for the client's."""
    details = detailed(recording_of((CALL, asks("a")), (retry(CALL, {"a": YES}), text("x"))))
    (each,) = details.interactions
    turns = (replace(each.interaction.turns[0], answered_by="rule 1"),)
    ruled = replace(each, interaction=replace(each.interaction, turns=turns))

    shown = review_text(replace(details, interactions=(ruled,)))

    assert "      by the recording proxy (rule 1), and not by the client\n" in shown


def test_review_data_adds_what_the_outline_leaves_out() -> None:
    """The data have each question's definition and the final response."""
    recording = recording_of(
        (CALL, asks("a")), (retry(CALL, {"a": YES}), text("x")), (get("/x"), Response((b"x",)))
    )
    call, page = review_data(detailed(recording))["interactions"]

    definition = json.loads(call["turns"][0]["asked"][0]["definition"])
    assert definition == {"mode": "form", "message": "a?"}
    assert json.loads(call["final"]["value"]) == text("x")
    assert page["final"] == {"kind": "text", "value": "x"}


def test_hostile_texts_steer_nothing() -> None:
    """Nothing that a server or a client says steers a terminal or a runner."""
    ask = asks("a")
    ask["inputRequests"] = {HOSTILE: ask["inputRequests"]["a"]}
    ask["inputRequests"][HOSTILE]["params"]["message"] = HOSTILE
    shown = text_of(
        (tool(HOSTILE, key=HOSTILE), ask),
        (retry(tool(HOSTILE, key=HOSTILE), {HOSTILE: {"x": HOSTILE}}), text(HOSTILE)),
        (get("/x"), Response((HOSTILE.encode(),))),
    )

    assert_harmless(shown)
