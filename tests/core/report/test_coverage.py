"""Facts about the coverage of recordings: which answers a client was tried with."""

from __future__ import annotations

from builders import Step, cassette_of, loaded, retry, tool
from messages import JsonObject, asks, text

from mrtr_cassette.core.report.coverage import (
    coverage_data,
    coverage_markdown,
    coverage_of,
    coverage_text,
    given_answers,
    untried_line,
    untried_questions,
)
from mrtr_cassette.core.report.details import CassetteDetails, details_of

ACCEPT: JsonObject = {"confirm": {"action": "accept", "content": {"ok": True}}}
DECLINE: JsonObject = {"confirm": {"action": "decline"}}
DEPLOY = tool("deploy", env="prod")
STAGE = tool("deploy", env="stage")


def details(*script: Step) -> CassetteDetails:
    """Return the details of a cassette of these steps."""
    return details_of(loaded(cassette_of(*script)))


DECLINED = details(
    (DEPLOY, asks("confirm", state="s")),
    (retry(DEPLOY, DECLINE, state="s"), text("no")),
    (retry(DEPLOY, ACCEPT, state="s", number=3), {**text("failed"), "isError": True}),
    (STAGE, asks("confirm", state="t")),
)
ASKED_AGAIN = details(
    (DEPLOY, asks("confirm", state="s")),
    (retry(DEPLOY, ACCEPT, state="s"), asks("confirm", state="u")),
    (retry(DEPLOY, {"confirm": {"action": "cancel"}}, state="u"), text("no")),
)


def test_a_history_takes_no_more_room_the_longer_it_is() -> None:
    """Each call follows all earlier writes, of which not all are kept for each."""
    script: list[Step] = [(tool("write", n=n), text("done")) for n in range(20)]
    histories = coverage_of([details(*script)])["write"].histories

    assert len(histories) == 20
    assert {len(history) for history in histories} == {0, 64}


def test_answers_arguments_and_histories_are_counted() -> None:
    """A shared ask counts once with each answer; an accept that ends in an error was rejected."""
    covered = coverage_of([DECLINED])
    confirm = {"turn": 1, "key": "confirm"}
    counts = {"accept": 1, "decline": 1, "cancel": 0, "rejected": 1}
    deploy = {
        "arguments": 2,
        "errors": 1,
        "histories": 3,
        "questions": [confirm | counts],
    }

    assert coverage_data(covered) == {"tools": {"deploy": deploy}}
    assert coverage_text(covered) == (
        "deploy: 2 sets of arguments, 3 sequences of earlier writes, 1 error\n"
        "  turn 1, confirm: accept 1 (1 rejected), decline 1, cancel never"
    )


def test_several_cassettes_cover_together_what_each_covers() -> None:
    """An accept that the same question follows was rejected; turns are questions of their own."""
    (tool_covered,) = coverage_of([DECLINED, ASKED_AGAIN]).values()

    assert tool_covered.questions == {
        (1, "confirm"): {"decline": 1, "accept": 2, "rejected": 2, "": 1},
        (2, "confirm"): {"cancel": 1},
    }


def test_a_line_tells_what_was_never_tried() -> None:
    """It counts questions without an answer of each kind, and is absent where there is none."""
    given = [
        *given_answers(DECLINED.interactions),
        *given_answers(ASKED_AGAIN.interactions),
    ]

    assert untried_line(given) == (
        "never tried: accept on 1 of 2 questions, decline on 1 of 2 questions, "
        "cancel on 1 of 2 questions (mrtr-cassette inspect --coverage)"
    )

    cancelled = given[0]._replace(answer="cancel")
    first = [answer for answer in given if answer.turn == 1]

    assert untried_line([*first, cancelled]) is None
    assert untried_line([]) is None


def test_markdown_has_a_table_of_tools_and_one_of_questions() -> None:
    """A name can't end its cell; cassettes without a question have the first table alone."""
    covered = coverage_of([DECLINED])
    covered["a|b"] = covered.pop("deploy")

    assert coverage_markdown(covered) == (
        "| tool | different arguments | histories | errors |\n"
        "| --- | --- | --- | --- |\n"
        "| a\\|b | 2 | 3 | 1 |\n"
        "\n"
        "| tool | turn | question | accept | decline | cancel | accept rejected |\n"
        "| --- | --- | --- | --- | --- | --- | --- |\n"
        "| a\\|b | 1 | confirm | 1 | 1 | never | 1 |"
    )
    assert coverage_markdown({}).count("\n") == 1


def test_questions_without_an_answer_are_named() -> None:
    """The share is of questions, whatever their number of answers; exactly enough is enough."""
    covered = coverage_of([DECLINED, ASKED_AGAIN])

    assert untried_questions(covered, "decline", 51) == (
        "tried on 50% of the questions, never on deploy turn 2 confirm"
    )
    assert untried_questions(covered, "decline", 50) is None
    assert untried_questions({}, "decline", 100) is None
