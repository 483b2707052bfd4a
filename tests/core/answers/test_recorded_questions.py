"""Facts about recorded questions: which rule answers each, and rules from a recording."""

from __future__ import annotations

import tomllib
from typing import Any

from builders import cassette_of, loaded, retry, tool
from messages import array_asks, text
from pushing import asked_once, elicit

from mrtr_cassette.core.answers.recorded_questions import (
    answers_text,
    coverage_of,
    recorded_questions,
)
from mrtr_cassette.core.answers.rules import answers_of, read_answers
from mrtr_cassette.core.exchange.recorded import Cassette

CALL = tool("deploy", env="prod")
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}


def asks(message: str = 'Sure "now"?\n', **more: Any) -> Any:
    """Return a result that asks one question."""
    params = {"message": message, "requestedSchema": SCHEMA, **more}
    question = {"method": "elicitation/create", "params": params}
    return {"resultType": "input_required", "inputRequests": {"a": question}}


def recorded(*answers: Any) -> Cassette:
    """Return a cassette on which a question has these answers, one in each interaction."""
    script: list[Any] = []
    for number, answer in enumerate(answers):
        first = tool("deploy", env=f"prod-{number}")
        script += [(first, asks()), (retry(first, {"a": answer}), text("done"))]
    return loaded(cassette_of(*script))


def accepted(**content: Any) -> Any:
    """Return an accepted form."""
    return {"action": "accept", "content": content}


def written(cassette: Cassette) -> str:
    """Return the answers file of a cassette."""
    return answers_text(recorded_questions(cassette), "f.json")


def test_rules_from_a_recording_give_its_answers() -> None:
    """Whatever the texts; every question of the cassette is answered again."""
    content = {"n": 5, "t": 'a "b" \\ \x00 ü 😀', "x": None, "l": ["a"], "f": True, "é": 1}
    cassette = recorded(accepted(**content))
    text_ = written(cassette)
    file = read_answers(text_.encode(), "f.toml")
    (coverage,) = coverage_of(recorded_questions(cassette), file)
    assert (coverage.answered_by, coverage.is_good) == ("rule 1", True)
    assert file.rules[0].answer == accepted(**{k: v for k, v in content.items() if v is not None})
    assert tomllib.loads(text_)["rule"][0]["message"] == 'Sure "now"?\n'


def test_numbers_keep_their_value() -> None:
    """Fractions and exponents are TOML's too."""
    file = read_answers(written(recorded(accepted(n=1.5, m=2e30))).encode(), "f.toml")
    assert file.rules[0].model.content == {"n": 1.5, "m": 2e30}


def test_other_answers_to_the_same_question_are_comments() -> None:
    """The first rule that fits would win; equal ones are written once."""
    text_ = written(recorded(accepted(n=1), {"action": "decline"}, accepted(n=1)))
    assert text_.count("[[rule]]") == 1
    assert '# #2 answers the same question otherwise:\n# action = "decline"\n' in text_


def test_answers_that_are_not_known_are_not_written() -> None:
    """A sealed answer leaves a decline, a redacted one a note."""
    sealed = written(recorded(accepted(n="mrtr-answer:" + "0" * 64)))
    assert "# The recorded answer is sealed" in sealed
    assert tomllib.loads(sealed)["rule"][0]["action"] == "decline"
    assert "mrtr-answer" not in sealed
    redacted = written(recorded(accepted(n="<jwt:1>")))
    assert "# The recorded answer has redacted secrets" in redacted


def test_array_and_pushed_questions_have_rules() -> None:
    """A bare value, and no key where that is ours."""
    script = (
        (CALL, array_asks("city", state="s")),
        (retry(CALL, [{"id": "city", "value": "Rome"}], state="s"), text("done")),
    )
    (rule,) = tomllib.loads(written(loaded(cassette_of(*script))))["rule"]
    assert rule["value"] == "Rome"
    assert rule["key"] == "city"
    cassette = asked_once(elicit(), {"action": "decline"}, CALL, text("done"))
    (rule,) = tomllib.loads(written(cassette))["rule"]
    assert rule == {"tool": "deploy", "message": "Deploy?", "kind": "form", "action": "decline"}


def test_question_without_an_answer_is_told() -> None:
    """And one whose answer doesn't fit; abandoned questions are no rule."""
    cassette = loaded(cassette_of((CALL, asks())))
    assert "[[rule]]" not in written(cassette)

    def coverage(**tree: Any) -> Any:
        (only,) = coverage_of(recorded_questions(cassette), answers_of(tree, "f.toml"))
        return only.answered_by, only.problem, only.is_good

    assert coverage() == (None, None, False)
    wrong = {"action": "accept", "content": {"n": "x"}}
    problem = "/n is a text, and not a whole number"
    assert coverage(rule=[wrong]) == ("rule 1", problem, False)
    assert coverage(rest={"url": "http://a/"}) == ("the endpoint", None, True)
    assert coverage(otherwise="cancel") == ("otherwise: cancel", None, True)
