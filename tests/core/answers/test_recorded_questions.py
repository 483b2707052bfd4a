"""Facts about rules from a recording."""

from __future__ import annotations

import tomllib
from typing import Any

from builders import cassette_of, loaded, retry, tool
from messages import array_asks, text
from pushing import asked_once, elicit

from mrtr_cassette.core.answers.recorded_questions import answers_text, recorded_questions
from mrtr_cassette.core.answers.rules import read_answers
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
    (question,) = recorded_questions(cassette)
    assert file.rule_for(question.asked, question.key, question.request) is file.rules[0]
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


def test_abandoned_question_is_no_rule() -> None:
    """It has no answer."""
    assert "[[rule]]" not in written(loaded(cassette_of((CALL, asks()))))
