"""Facts about the sources of answers: their order, what happens otherwise."""

from __future__ import annotations

from typing import Any

from messages import compact

from mrtr_cassette.core.answers.arguments import read_pairs
from mrtr_cassette.core.answers.asked import Asked
from mrtr_cassette.core.answers.fulfilment import (
    AskEndpoint,
    AskPerson,
    Fulfilled,
    Fulfilment,
    Sources,
    Unanswered,
)
from mrtr_cassette.core.answers.given import GivenAnswers
from mrtr_cassette.core.answers.rules import AnswersFile, answers_of
from mrtr_cassette.core.protocol.dialect import InputRequest, recognise
from mrtr_cassette.core.wire.jsonbytes import parse

SCHEMA = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
FORM = InputRequest("form", "Sure?", {"message": "Sure?", "requestedSchema": SCHEMA})
ROOTS = InputRequest("roots", "")
YES: Any = {"action": "accept", "content": {"ok": True}}
NO: Any = {"action": "decline"}
REST = {"url": "http://localhost/answers"}
JSON = "application/json; charset=utf-8"


def file(**tree: Any) -> AnswersFile:
    """Return an answers file."""
    return answers_of(tree, "answers.toml")


def fulfilment(requests: Any, *given: str, person: bool = False, **tree: Any) -> Fulfilment:
    """Return one ask on its way to its answers."""
    sources = Sources(GivenAnswers(read_pairs(given, "answer")), file(**tree), person)
    return Fulfilment(Asked("tools/call", "deploy", {"env": "prod"}, 2, requests), sources)


def outcome(work: Fulfilment) -> Any:
    """Return the answers with their sources, or why there are none."""
    last = work.next()
    if isinstance(last, Fulfilled):
        return {key: (each.value, each.answered_by) for key, each in last.answers.items()}
    assert isinstance(last, Unanswered)
    return last.key, last.detail


def test_sources_are_asked_in_their_order() -> None:
    """The call's own answers, the rules, the endpoint, a person, and what happens otherwise."""
    rules = [{"key": "rule", **NO}, {"key": "given", **NO}]
    keys = ("given", "rule", "rest", "person", "other")
    work = fulfilment(
        dict.fromkeys(keys, FORM),
        "given=yes",
        person=True,
        rule=rules,
        rest=REST,
        otherwise="cancel",
    )
    endpoint = work.next()
    assert isinstance(endpoint, AskEndpoint)
    asked = parse(endpoint.body)
    assert list(asked["inputRequests"]) == ["other", "person", "rest"]
    work.replied(200, JSON, compact({"inputResponses": dict.fromkeys(keys[2:], YES)}))
    assert outcome(work) == {
        "given": (YES, "call"),
        "rule": (NO, "rule 1"),
        "rest": (YES, "rest"),
        "person": (YES, "rest"),
        "other": (YES, "rest"),
    }
    work = fulfilment({"person": FORM, "other": FORM}, person=True, otherwise="cancel")
    assert work.next() == AskPerson("person", FORM)
    work.person_answered("person", YES)
    assert work.next() == AskPerson("other", FORM)
    work.person_answered("other", None)
    assert outcome(work) == {
        "person": (YES, "person"),
        "other": ({"action": "cancel"}, "otherwise"),
    }


def test_nothing_that_does_not_fit_is_sent() -> None:
    """A source that answers wrongly is a fault, and no other is asked in its place."""
    wrong = {"action": "accept", "content": {"ok": "yes"}}
    problem = "/ok is a text, and not true or false"
    work = fulfilment({"a": FORM}, person=True, rule=[NO | wrong], otherwise="cancel")
    assert outcome(work) == ("a", f"the answer of rule 1 doesn't fit: {problem}")
    work = fulfilment({"a": FORM}, "a.ok=perhaps")
    assert outcome(work) == ("a", f"the answer of the call doesn't fit: {problem}")
    work = fulfilment({"a": FORM}, rest=REST)
    work.replied(200, JSON, compact({"inputResponses": {"a": wrong}}))
    assert outcome(work) == ("a", f"the answer of the endpoint doesn't fit: {problem}")


def test_nothing_is_answered_where_one_request_is_not() -> None:
    """What happens otherwise is for forms and URLs; what is required fails."""
    assert outcome(fulfilment({"a": FORM})) == ("a", "nothing answers it")
    assert outcome(fulfilment({"a": FORM}, otherwise="decline")) == {"a": (NO, "otherwise")}
    assert outcome(fulfilment({"a": ROOTS}, otherwise="decline")) == ("a", "nothing answers it")


def test_what_is_optional_is_left_out() -> None:
    """Only in the array dialect may a request go without an answer."""
    items = [{"id": "a", "kind": "string"}, {"id": "b", "kind": "string", "required": False}]
    ask = recognise({"inputRequests": items, "requestState": "s"})
    assert ask is not None
    rule = {"key": "a", "value": "x"}
    assert outcome(fulfilment(ask.input_requests, rule=[rule])) == {"a": ({"value": "x"}, "rule 1")}
    work = fulfilment(ask.input_requests, rest=REST)
    endpoint = work.next()
    assert isinstance(endpoint, AskEndpoint)
    assert parse(endpoint.body)["inputRequests"] == items
    work.replied(200, JSON, compact({"inputResponses": [{"id": "a", "value": "y"}]}))
    assert outcome(work) == {"a": ({"value": "y"}, "rest")}


def test_kinds_are_those_of_the_sources() -> None:
    """Without a source, and with a person, all kinds are declared."""
    everything = {"form", "url", "sampling", "roots"}
    assert Sources().kinds == everything
    assert Sources(has_person=True, file=file(rule=[{"kind": "url", **NO}])).kinds == everything
    assert Sources(file=file(rule=[{"kind": "url", **NO}])).kinds == {"url"}
    given = GivenAnswers(read_pairs(["a=1"], "answer"))
    assert Sources(given, file(rule=[{"kind": "roots", "result": {}}])).kinds == {
        "form",
        "url",
        "roots",
    }
