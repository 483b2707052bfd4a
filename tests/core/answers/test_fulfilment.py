"""Facts about the sources of answers, in one round and in all rounds of a call."""

from __future__ import annotations

from typing import Any

import pytest
from builders import exchange, post, tool
from messages import array_asks, asks, compact, message, result

from mrtr_cassette.core.answers.forms import AskedTurn
from mrtr_cassette.core.answers.fulfilment import (
    AnswerSources,
    Fulfilment,
    Rounds,
    UnansweredQuestion,
    answer_from_sources,
    why_no_outcome,
)
from mrtr_cassette.core.answers.written import (
    AnswersFile,
    GivenAnswers,
    answers_from_tree,
    read_pairs,
)
from mrtr_cassette.core.drive.conversation import LiveAsk, PushedAsk
from mrtr_cassette.core.protocol.dialect import (
    DIALECTS,
    ELICITATION_KINDS,
    RESULT_KINDS,
    InputRequest,
    ask_in_result,
    write_answers,
)
from mrtr_cassette.core.protocol.jsonrpc import message_in
from mrtr_cassette.core.secrets.names import sha256_of
from mrtr_cassette.core.wire.jsonbytes import parse

SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
}
FORM = InputRequest("form", "Sure?", {"message": "Sure?", "requestedSchema": SCHEMA})
ROOTS = InputRequest("roots", "")
YES: Any = {"action": "accept", "content": {"ok": True}}
NO: Any = {"action": "decline"}
WRONG = {"action": "accept", "content": {"ok": "yes"}}
REST = {"url": "http://localhost/answers"}
JSON = "application/json; charset=utf-8"


def file(**tree: Any) -> AnswersFile:
    """Return an answers file."""
    return answers_from_tree(tree, "answers.toml")


def asked(requests: Any, turn: int = 2) -> AskedTurn:
    """Return what a call is asked."""
    return AskedTurn("tools/call", "deploy", {"env": "prod"}, turn, requests, turn)


def ended(steps: Fulfilment, *replies: Any) -> tuple[list[Any], Any]:
    """Return who was waited for, and the answers with their sources, or why there are none."""
    waited_for: list[Any] = []
    left = [None, *replies]
    while True:
        try:
            waited_for.append(steps.send(left.pop(0)))
        except StopIteration as end:
            assert not left
            if isinstance(end.value, UnansweredQuestion):
                return waited_for, (end.value.key, end.value.detail, *end.value.example)

            answers = {}
            for key, answer in end.value.items():
                answers[key] = (answer.value, answer.answered_by)

            return waited_for, answers


def fulfilled(
    requests: Any, *given: str, replies: Any = (), person: bool = False, **tree: Any
) -> Any:
    """Return what came of one ask, whose replies are given."""
    sources = AnswerSources(
        GivenAnswers(read_pairs(given, "answer")), file(**tree), person
    )
    return ended(answer_from_sources(asked(requests), sources), *replies)


def reply(answers: Any) -> bytes:
    """Return a reply of an endpoint."""
    return compact({"inputResponses": answers})


def test_sources_are_asked_in_their_order() -> None:
    """The call's own answers, the rules, the endpoint, a person, and what happens otherwise."""
    keys = ("given", "rule", "rest", "person", "other")
    (waited_for,), answers = fulfilled(
        dict.fromkeys(keys, FORM),
        "given=yes",
        person=True,
        rule=[{"key": "rule", **NO}, {"key": "given", **NO}],
        rest=REST,
        otherwise="cancel",
        replies=[reply(dict.fromkeys(keys[2:], YES))],
    )

    assert isinstance(waited_for, bytes)
    assert list(parse(waited_for)["inputRequests"]) == ["other", "person", "rest"]

    sources = ("call", "rule 1", "rest", "rest", "rest")

    assert {key: source for key, (_, source) in answers.items()} == dict(
        zip(keys, sources, strict=True)
    )

    requests = {"person": FORM, "other": FORM}

    assert fulfilled(
        requests, person=True, otherwise="cancel", replies=[YES, None]
    ) == (
        [("person", FORM), ("other", FORM)],
        {"person": (YES, "person"), "other": ({"action": "cancel"}, "otherwise")},
    )


@pytest.mark.parametrize(
    ("given", "sources", "source"),
    [
        ([], {"rule": [WRONG], "person": True, "otherwise": "cancel"}, "rule 1"),
        (["a.ok=perhaps"], {}, "call"),
        ([], {"rest": REST, "replies": [reply({"a": WRONG})]}, "rest"),
        ([], {"person": True, "replies": [WRONG]}, "person"),
    ],
)
def test_nothing_that_does_not_fit_is_sent(
    given: list[str], sources: Any, source: str
) -> None:
    """A source that answers wrongly is a fault, and no other is asked in its place."""
    _, outcome = fulfilled({"a": FORM}, *given, **sources)

    problem = "/ok is a text, and not true or false"

    assert outcome == ("a", f"the answer ({source}) doesn't fit: {problem}")


def test_accepting_a_form_fills_in_its_defaults() -> None:
    """A field that no source answers has the default of its schema (SEP-1034), and no other one."""
    fields = {
        "ok": {"type": "boolean", "default": True},
        "size": {"type": "integer", "default": 10**30},
        "free": {"type": "string"},
    }

    schema = {"type": "object", "properties": fields, "required": ["ok"]}
    form = InputRequest(
        "form", "Sure?", {"message": "Sure?", "requestedSchema": schema}
    )
    whole = {"ok": True, "size": 10**30}
    for content, filled in (
        ({}, whole),
        ({"ok": False, "free": "x"}, {**whole, "ok": False, "free": "x"}),
    ):
        accepted = {"action": "accept", "content": content}
        _, answers = fulfilled({"a": form}, rule=[{"key": "a", **accepted}])

        assert answers["a"][0]["content"] == filled

    _, answers = fulfilled(
        {"a": form}, rest=REST, replies=[reply({"a": {"action": "accept"}})]
    )

    assert answers["a"][0] == {"action": "accept", "content": whole}
    assert fulfilled({"a": form}, rule=[{"key": "a", **NO}])[1] == {"a": (NO, "rule 1")}


@pytest.mark.parametrize("content", [[], "", 0, False])
@pytest.mark.parametrize("default", [{}, {"default": True}])
def test_content_that_is_no_object_is_refused(
    content: Any, default: dict[str, Any]
) -> None:
    """Whether the form has defaults or not: nothing is sent that nobody wrote."""
    field = {"type": "boolean", **default}
    form = InputRequest("form", "", {"requestedSchema": {"properties": {"ok": field}}})
    answered = {"action": "accept", "content": content}
    _, outcome = fulfilled({"a": form}, rest=REST, replies=[reply({"a": answered})])

    assert outcome[0] == "a"
    assert outcome[1].endswith("and not an object")


def test_an_integer_of_any_length_is_sent_as_it_was_written() -> None:
    """No answer becomes a number with an exponent on its way, whoever gives it."""
    digits = "123456789012345678901234567890"
    number = {"type": "object", "properties": {"n": {"type": "integer"}}}
    form = InputRequest(
        "form", "How many?", {"message": "?", "requestedSchema": number}
    )
    spelled = f'{{"action":"accept","content":{{"n":{digits}}}}}'
    sources: Any = (
        ((f"n={digits}",), {}),
        ((), {"rule": [{"action": "accept", "content": {"n": int(digits)}}]}),
        (
            (),
            {
                "rest": REST,
                "replies": [b'{"inputResponses":{"a":%s}}' % spelled.encode()],
            },
        ),
    )
    for given, more in sources:
        _, answers = fulfilled({"a": form}, *given, **more)

        assert (
            write_answers(DIALECTS[0].name, {"a": answers["a"][0]})
            == f'{{"a":{spelled}}}'.encode()
        )


@pytest.mark.parametrize(
    "replied",
    [
        b'{"inputResponses":{"a":%(no)s,"a":%(no)s}}',
        b'{"inputResponses":[{"id":"a","value":1},{"id":"a","value":2}]}',
        b'{"inputResponses":{"a":%(no)s},"inputResponses":{"a":%(no)s}}',
    ],
)
def test_an_endpoint_that_answers_twice_is_refused(replied: bytes) -> None:
    """Of two answers to one question none is taken."""
    replies = [replied % {b"no": compact(NO)}]
    _, (key, detail) = fulfilled({"a": FORM}, rest=REST, replies=replies)

    assert (key, "'a' twice" in detail or "`inputResponses` twice" in detail) == (
        "a",
        True,
    )


def test_nothing_is_answered_where_one_request_is_not() -> None:
    """What happens otherwise is for forms and URLs; what is required fails."""
    assert fulfilled({"a": FORM}) == ([], ("a", "nothing answers it", "ok"))
    assert fulfilled({"a": FORM}, otherwise="decline") == ([], {"a": (NO, "otherwise")})
    assert fulfilled({"a": ROOTS}, otherwise="decline") == (
        [],
        ("a", "nothing answers it", "a"),
    )


def test_what_is_optional_is_left_out() -> None:
    """Only in the array dialect may a request go without an answer."""
    items = [
        {"id": "a", "kind": "string"},
        {"id": "b", "kind": "string", "required": False},
    ]

    ask = ask_in_result({"inputRequests": items, "requestState": "s"})

    assert ask is not None

    requests = ask.input_requests
    rule = {"key": "a", "value": "x"}

    assert fulfilled(requests, rule=[rule])[1] == {"a": ({"value": "x"}, "rule 1")}

    listed = reply([{"id": "a", "value": "y"}])
    (waited_for,), answers = fulfilled(requests, rest=REST, replies=[listed])

    assert parse(waited_for)["inputRequests"] == items
    assert answers == {"a": ({"value": "y"}, "rest")}


@pytest.mark.parametrize(
    ("keys", "given", "rules", "named"),
    [
        (["first", "second"], [], [], "#2.ok"),
        (["ok", "ok"], [], [], "#2.ok"),
        (["first", "second"], ["#2.ok=no"], [], None),
        (["first", "second"], ["second.ok=no"], [], None),
        (["first", "second"], [], [{"key": "second", "action": "cancel"}], None),
    ],
)
def test_answer_by_field_answers_one_question(
    keys: list[str], given: list[str], rules: Any, named: str | None
) -> None:
    """A later question with that field is open, unless its key is named or a rule is given."""
    answers = GivenAnswers(read_pairs(["ok=yes", *given], "answer"))
    sources = AnswerSources(answers, file(rule=rules))
    _, first = ended(answer_from_sources(asked({keys[0]: FORM}, 1), sources))
    _, later = ended(answer_from_sources(asked({keys[1]: FORM}, 2), sources))

    assert first == {keys[0]: (YES, "call")}

    if named is None:
        assert later["second"][1] in {"call", "rule 1"}
    else:
        assert later[1:] == (
            "nothing answers it: the answer 'ok' is for one question, and was given before",
            named,
        )


def test_kinds_are_those_of_the_sources() -> None:
    """Without a source, and with a person, all kinds are declared."""
    everything = ELICITATION_KINDS | RESULT_KINDS
    url = file(rule=[{"kind": "url", **NO}])
    roots = file(rule=[{"kind": "roots", "result": {}}])
    given = GivenAnswers(read_pairs(["a=1"], "answer"))

    assert AnswerSources().declared_kinds == everything
    assert AnswerSources(has_person=True, file=url).declared_kinds == everything
    assert AnswerSources(file=url).declared_kinds == {"url"}
    assert AnswerSources(given, roots).declared_kinds == {"form", "url", "roots"}


# An endpoint

GOOD = compact({"inputResponses": {"a": YES}})
ANSWERED = {"a": (YES, "rest")}


def test_endpoint_gets_the_call_and_the_full_requests() -> None:
    """Method, name, arguments, turn, and each request as the server spelled it."""
    (waited_for,), _ = fulfilled({"a": FORM, "b": ROOTS}, rest=REST, replies=["away"])

    assert parse(waited_for) == {
        "method": "tools/call",
        "name": "deploy",
        "arguments": {"env": "prod"},
        "turn": 2,
        "inputRequests": {
            "a": {"method": "elicitation/create", "params": FORM.definition},
            "b": {"method": "roots/list", "params": {}},
        },
    }


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        (GOOD, ANSWERED),
        (b"{", "its reply is not JSON"),
        (b"[]", "its reply has no `inputResponses`"),
        (b'{"inputResponses":null}', "its reply has no `inputResponses`"),
        (b'{"inputResponses":{"a":{},"x":{}}}', "it answers 'x', which was not asked"),
    ],
)
def test_reply_of_an_endpoint_has_answers_by_key(body: bytes, outcome: Any) -> None:
    """Else the reason says what came instead."""
    replies = [body]
    _, found = fulfilled({"a": FORM}, rest=REST, replies=replies)

    if isinstance(outcome, str):
        assert found[1].startswith(f"the endpoint gives no answer: {outcome}")
    else:
        assert found == outcome


CALL = post(tool("deploy", env="prod"))


def ask(value: Any, turn: int = 1, state: str | None = None) -> LiveAsk:
    """Return an ask of a live server."""
    asked_in = exchange(CALL, compact(result(value)))
    return LiveAsk(turn, asked_in, state)


def push(method: str = "roots/list", turn: int = 1) -> LiveAsk:
    """Return a pushed request."""
    pushed = message_in(compact(message(method, {"message": "Sure?"}, id="p")))
    assert pushed is not None
    return PushedAsk(
        turn, exchange(CALL, b""), key="roots-1", message=pushed, pushed=pushed
    )


def rounds(**tree: Any) -> Rounds:
    """Return rounds whose answers a file gives."""
    return Rounds(AnswerSources(file=answers_from_tree(tree, "answers.toml")))


def reply_to(rounds: Rounds, live: LiveAsk, pauses: float = 0.0) -> Any:
    """Return the answer to an ask, before which there are these seconds of pauses."""
    steps = rounds.answer_ask(live)
    while True:
        try:
            step = next(steps)
        except StopIteration as ended:
            assert pauses == 0
            return ended.value

        assert isinstance(step, float)
        pauses -= step


def test_wrong_answer_about_roots_is_not_taken_for_none() -> None:
    """An endpoint that fails ends the call, and what nobody answers is refused."""
    wrong = rounds(rest=REST)
    silent = rounds()
    steps = wrong.answer_ask(push())
    next(steps)
    with pytest.raises(StopIteration) as ended:
        steps.send("it answered HTTP 500")

    assert (ended.value.value, wrong.unanswered is None) == (None, False)
    assert reply_to(silent, push()).member == "error"
    assert silent.unanswered is None


def test_ask_is_answered_in_its_dialect() -> None:
    """The turn has who answered, and a hash of the state."""
    declining = rounds(rule=[{"action": "decline"}, {"value": "x"}])
    reply = reply_to(declining, ask(asks("a", state="raw"), state="raw"))

    assert reply.value == b'{"a":{"action":"decline"}}'

    (turn,) = declining.turns

    assert (turn.number, turn.via, turn.answered_by) == (1, "result", {"a": "rule 1"})
    assert turn.state_sha256 == sha256_of("raw")
    assert turn.answers == {"a": {"action": "decline"}}

    reply = reply_to(declining, ask(array_asks("a", state="s"), 2, "s"))

    assert reply.value == b'[{"value":"x","id":"a"}]'


def test_pushed_request_is_answered_by_its_result() -> None:
    """It has our own key, by which it may also be answered."""
    answering = rounds(rule=[{"key": "roots-1", "result": {"roots": []}}])
    reply = reply_to(answering, push())

    assert (reply.value, reply.member) == (b'{"roots":[]}', "result")
    assert answering.turns[0].via == "push"


def test_server_that_asks_for_ever_stops_at_the_cap() -> None:
    """As the TypeScript SDK has it: at most 10 rounds, and 250 ms before one without requests."""
    without_requests = ask(asks(state="s"), state="s")

    assert reply_to(rounds(), without_requests, pauses=0.25).value is None

    declining = rounds(otherwise="decline")

    assert reply_to(declining, ask(asks("a"), 10)) is not None
    assert not declining.overrun
    assert reply_to(declining, ask(asks("a"), 11)) is None
    assert declining.overrun


def test_what_nobody_answers_ends_the_call() -> None:
    """The question is kept, with the reason."""
    silent = rounds()

    assert reply_to(silent, ask(asks("a", "b"))) is None
    assert silent.unanswered is not None
    assert silent.unanswered.key == "a"
    assert [*silent.unanswered.asked.requests] == ["a", "b"]
    assert silent.turns[0].answered_by == {}


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (compact(result({"content": []})), None),
        (
            compact({"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "m"}}),
            None,
        ),
        (
            compact(result({"resultType": "input_required"})),
            "the server asks for input in an unknown form",
        ),
        (b"<html>", "the response is not a JSON-RPC response (HTTP 200)"),
    ],
)
def test_last_response_is_an_outcome_or_a_fault(body: bytes, fault: str | None) -> None:
    """TypeScript SDK: "neither inputRequests nor a requestState ... is rejected"."""
    assert why_no_outcome("tools/call", exchange(CALL, body)) == fault
