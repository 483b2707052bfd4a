"""Facts about what a user writes for a call: its words, its answers, and the answers file."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from builders import cassette_of, loaded, retry, tool
from goldens import expect_file
from messages import array_asks, asks, compact, text
from pushing import asked_once, elicit

from mrtr_cassette.core.answers.forms import AskedTurn
from mrtr_cassette.core.answers.written import (
    AnswersFile,
    GivenAnswers,
    answers_text,
    read_answers_file,
    read_pairs,
    tool_named,
    wanted_call,
)
from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.protocol.dialect import (
    ELICITATION_KINDS,
    RESULT_KINDS,
    InputRequest,
)
from mrtr_cassette.core.wire.jsonbytes import canonical, parse
from mrtr_cassette.errors import UsageError


def form(**fields: Any) -> InputRequest:
    """Return a form with these fields."""
    return InputRequest("form", "?", {"requestedSchema": {"properties": fields}})


def given(*texts: str) -> GivenAnswers:
    """Return what a call brings."""
    return GivenAnswers(read_pairs(texts, "answer"))


SURE = form(confirm={"type": "boolean"})
PLAN = form(env={"type": "string"}, count={"type": "integer"})
URL = InputRequest("url", "Sign in")
VALUE = InputRequest("number", "How many?", takes_bare_value=True)
ROOTS: Any = {"roots": [{"uri": "file:///a"}]}


def accepted(**content: Any) -> Any:
    """Return an accepted form."""
    return {"action": "accept", "content": content}


@pytest.mark.parametrize(
    ("texts", "key", "request_", "answer"),
    [
        (["confirm=yes"], "confirm", SURE, accepted(confirm=True)),
        (["confirm=yes"], "elicitation-1", SURE, accepted(confirm=True)),
        (["sure=yes"], "sure", SURE, accepted(confirm=True)),
        (["sure.confirm:=false"], "sure", SURE, accepted(confirm=False)),
        (["confirm=decline"], "confirm", SURE, {"action": "decline"}),
        (["sure=cancel"], "sure", SURE, {"action": "cancel"}),
        (["env=decline"], "env", form(env={"type": "string"}), accepted(env="decline")),
        (['env:={"action":"decline"}'], "env", form(env={}), {"action": "decline"}),
        (["env=a", "count=2", "other=1"], "plan", PLAN, accepted(env="a", count=2)),
        (["count=two"], "plan", PLAN, accepted(count="two")),
        (["plan=accept"], "plan", PLAN, {"action": "accept"}),
        (["link=accept"], "link", URL, {"action": "accept"}),
        (["n=5"], "n", VALUE, {"value": 5}),
        (["sum=All fine"], "sum", InputRequest("sampling", ""), "All fine"),
        (['r:={"roots":[{"uri":"file:///a"}]}'], "r", InputRequest("roots", ""), ROOTS),
        (["other=1"], "confirm", SURE, None),
    ],
)
def test_name_is_a_key_or_a_field(
    texts: list[str], key: str, request_: InputRequest, answer: Any
) -> None:
    """What a field's schema can't mean as its text is what the word says."""
    (question,) = asked(request_, key).questions()
    found = given(*texts).answer_to_question(question)
    if request_.kind == "sampling":
        found = found["content"]["text"]

    assert found == answer


def test_unused_answers_are_known() -> None:
    """What nothing was asked for is told in the end."""
    answers = given("confirm=yes", "other=1")

    assert answers.unused_names == ["confirm", "other"]

    answers.answer_to_question(*asked(SURE).questions())

    assert answers.unused_names == ["other"]


# Words of a call

SCHEMA: Any = {
    "type": "object",
    "properties": {"env": {"type": "string"}, "count": {"type": "integer"}},
}


@pytest.mark.parametrize(
    ("words", "method", "params"),
    [
        (["deploy"], "tools/call", {"name": "deploy"}),
        (
            ["deploy", "env=5", "count=5", "other=x", "more:=[1]"],
            "tools/call",
            {
                "name": "deploy",
                "arguments": {"env": "5", "count": 5, "other": "x", "more": [1]},
            },
        ),
        (["prompts/get", "notes"], "prompts/get", {"name": "notes"}),
        (
            ["resources/read", "file:///a?b=c"],
            "resources/read",
            {"uri": "file:///a?b=c"},
        ),
        (["tools/list", "cursor=2"], "tools/list", {"cursor": "2"}),
        (["tasks/update", "t", "n:=1"], "tasks/update", {"taskId": "t", "n": 1}),
        (["ping"], "ping", {}),
    ],
)
def test_words_name_a_tool_or_a_method(
    words: list[str], method: str, params: Any
) -> None:
    """What is no method is a tool; a text is read as the type that the schema has."""
    wanted = wanted_call(words)

    assert wanted.method == method
    assert wanted.call_params(SCHEMA) == params


@pytest.mark.parametrize(
    ("read", "words", "reason"),
    [
        (wanted_call, [], "there is nothing to call; name a tool, or a method"),
        (
            wanted_call,
            ["prompts/get"],
            "prompts/get needs what it names; write prompts/get NAME",
        ),
        (wanted_call, ["deploy", "env"], "argument: 'env' has no name and value"),
        (
            given,
            ["confirm"],
            "answer: 'confirm' has no name and value; write name=text or name:=",
        ),
        (given, ["=1"], "answer: '' has no name and value"),
        (given, ["a=1", "a=2"], "answer 'a' is given twice"),
        (
            given,
            ["a:=yes"],
            "answer 'a': the text after := is not JSON; a text is written a=text",
        ),
    ],
)
def test_what_is_no_call_or_no_pair_is_refused(
    read: Any, words: list[str], reason: str
) -> None:
    """The message says what is missing, names the pair, and never has its value."""
    with pytest.raises(UsageError) as caught:
        read(words) if read is wanted_call else read(*words)

    assert reason in str(caught.value)


def test_tool_is_one_of_the_servers() -> None:
    """Where it has none of the name, all are listed."""
    tools = [{"name": "deploy", "inputSchema": {}}, {"name": "add"}, "odd", {}]
    tools += [{"name": ["deploy"]}, {"name": None}]

    assert tool_named("deploy", tools) == tools[0]

    with pytest.raises(UsageError, match="no tool 'deplyo'; it has deploy, add"):
        tool_named("deplyo", tools)

    with pytest.raises(UsageError, match="it has none"):
        tool_named("deploy", [])


DEPLOY = InputRequest("form", "Deploy to prod?")


def asked(
    request: InputRequest,
    key: str = "confirm",
    name: str = "deploy",
    method: str = "tools/call",
) -> AskedTurn:
    """Return what a call is asked."""
    return AskedTurn(method, name, {}, 1, {key: request})


def answer_of(text: str, request: InputRequest = DEPLOY, **of: str) -> Any:
    """Return the answer of the rule that answers a request; None where none does."""
    ask = asked(request, **of)
    (question,) = ask.questions()
    rule = read_answers_file(text.encode(), "answers.toml").rule_for(ask, question)

    return None if rule is None else rule[1].answer_of_rule()


ACCEPT = 'action = "accept"\ncontent = { confirm = true }'
ACCEPTED = {"action": "accept", "content": {"confirm": True}}


@pytest.mark.parametrize(
    ("condition", "fits"),
    [
        ("", True),
        ('tool = "deploy"', True),
        ('tool = "wipe"', False),
        ('prompt = "deploy"', False),
        ('key = "confirm"', True),
        ('key = "other"', False),
        ('kind = "form"', True),
        ('message = "Deploy to prod?"', True),
        ('message = "Deploy to prod"', False),
        ("pattern = 'Deploy to \\w+\\?'", True),
        ("pattern = 'Deploy'", False),
    ],
)
def test_rule_answers_what_all_of_its_conditions_name(
    condition: str,
    fits: bool,  # noqa: FBT001
) -> None:
    """A message is compared whole, and a pattern is one for the whole message."""
    assert answer_of(f"[[rule]]\n{condition}\n{ACCEPT}") == (ACCEPTED if fits else None)


def test_order_decides() -> None:
    """The first rule that fits answers."""
    text = (
        '[[rule]]\nmessage = "Wipe all?"\naction = "decline"\n'
        '[[rule]]\nkey = "confirm"\naction = "cancel"\n'
        '[[rule]]\naction = "decline"\n'
    )

    assert answer_of(text) == {"action": "cancel"}
    assert answer_of(text, InputRequest("form", "Wipe all?")) == {"action": "decline"}
    assert answer_of(text, key="other") == {"action": "decline"}
    assert answer_of(text, key="__main__:confirm") == {"action": "cancel"}


def test_rule_answers_only_what_its_answer_is_for() -> None:
    """Content is for forms, a result for sampling and roots, a value for the array dialect."""
    url = InputRequest("url", "Sign in")
    roots = InputRequest("roots", "")
    value = InputRequest("string", "City?", takes_bare_value=True)

    assert answer_of(f"[[rule]]\n{ACCEPT}", url) is None
    assert answer_of('[[rule]]\naction = "accept"', url) == {"action": "accept"}
    assert answer_of('[[rule]]\naction = "decline"', roots) is None

    result = '[[rule]]\nresult = { roots = [{ uri = "file:///a" }] }'

    assert answer_of(result, roots) == {"roots": [{"uri": "file:///a"}]}
    assert answer_of(result) is None
    assert answer_of('[[rule]]\nvalue = "Rome"', value) == {"value": "Rome"}
    assert answer_of('[[rule]]\nvalue = "Rome"') is None
    assert answer_of('[[rule]]\naction = "decline"', value) is None


def test_file_says_which_kinds_it_can_answer() -> None:
    """A client declares what its sources can answer."""

    def kinds(text: str) -> set[str]:
        return read_answers_file(text.encode(), "answers.toml").answerable_kinds()

    assert kinds("") == set()
    assert kinds('otherwise = "decline"') == {"form", "url"}
    assert kinds(f"[[rule]]\n{ACCEPT}") == {"form"}
    assert kinds('[[rule]]\nkind = "url"\naction = "accept"') == {"url"}
    assert kinds('[[rule]]\nkind = "roots"\nresult = {}') == {"roots"}
    assert (
        kinds('[rest]\nurl = "http://localhost/"') == ELICITATION_KINDS | RESULT_KINDS
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a =", "answers.toml is not TOML: "),
        ("rules = []", "answers.toml: rules: Extra inputs are not permitted"),
        (
            'otherwise = "ask"',
            "answers.toml: otherwise: Input should be 'fail', 'decline' or",
        ),
        ("[rest]", "answers.toml: rest.url: Field required"),
        (
            '[rest]\nurl = "http://a"\ntimeout = 0',
            "rest.timeout: Input should be greater than 0",
        ),
        (
            f'[[rule]]\n{ACCEPT}\n[[rule]]\ntol = "a"',
            "rule 2: tol: Extra inputs are not permitted",
        ),
        (
            f"[[rule]]\n{ACCEPT}\n[[rule]]\ntool = 5",
            "rule 2: tool: Input should be a valid string",
        ),
        (
            '[[rule]]\nkind = "forms"\naction = "accept"',
            "rule 1: kind: Input should be 'form'",
        ),
        (
            '[[rule]]\nkey = "a"',
            "rule 1: exactly one of action, result and value is needed",
        ),
        ('[[rule]]\naction = "accept"\nvalue = 1', "it has action and value"),
        (
            '[[rule]]\naction = "decline"\ncontent = {}',
            'content only goes with action = "accept"',
        ),
        (
            '[[rule]]\nkind = "roots"\naction = "accept"',
            "kind roots is not answered by action",
        ),
        (
            f'[[rule]]\npattern = "("\n{ACCEPT}',
            "rule 1: pattern is not a regular expression: uncl",
        ),
        (
            '[[rule]]\naction = "accept"\ncontent = { day = 2026-07-28 }',
            "rule 1: content.day: input was not a valid JSON value",
        ),
        (
            '[[rule]]\naction = "accept"\ncontent = { size = inf }',
            "rule 1: content.size.float: Input should be a finite number",
        ),
        (
            "[[rule]]\nvalue = [nan]",
            "rule 1: value.list.0.float: Input should be a finite number",
        ),
    ],
)
def test_fault_names_rule_and_field(text: str, reason: str) -> None:
    """What is wrong with a file says where, and with what."""
    with pytest.raises(UsageError) as caught:
        read_answers_file(text.encode(), "answers.toml")

    assert reason in str(caught.value)


def test_published_schema_is_the_models(*, updates_goldens: bool) -> None:
    """The schema in the documentation is generated, and takes what the reader takes."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **AnswersFile.model_json_schema(),
    }
    page = Path(__file__).parents[3] / "docs" / "answers.schema.json"
    expect_file(page, f"{json.dumps(schema, indent=2)}\n", updates=updates_goldens)

    jsonschema.validate(
        {"otherwise": "decline", "rule": [{"tool": "deploy", **ACCEPTED}]}, schema
    )
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"rule": [{"tol": "deploy"}]}, schema)


# Files from recordings

CALL = tool("deploy", env="prod")
MESSAGE = 'Sure "now"?\n'


def recorded(*answers: Any) -> Cassette:
    """Return a cassette on which a question has these answers, one in each interaction."""
    script: list[Any] = []
    for number, answer in enumerate(answers):
        first = tool("deploy", env=f"prod-{number}")
        script += [(first, asks("a")), (retry(first, {"a": answer}), text("done"))]
        script[-2][1]["inputRequests"]["a"]["params"]["message"] = MESSAGE

    return loaded(cassette_of(*script))


def test_rules_from_a_recording_give_its_answers() -> None:
    """Whatever the texts, and with fractions and exponents; every question is answered again."""
    content = {
        "n": 1.5,
        "m": 2e30,
        "t": 'a "b" \\ \x00 ü 😀',
        "l": ["a"],
        "f": True,
        "é": 1,
    }

    written = answers_text(recorded(accepted(**content, x=None)), "f.json")

    answer = answer_of(written, InputRequest("form", MESSAGE), key="a")

    expected = parse(compact(accepted(**content)))

    assert canonical(answer) == canonical(expected)
    assert tomllib.loads(written)["rule"][0]["message"] == MESSAGE


def test_rule_with_a_lone_surrogate_is_a_comment() -> None:
    """JSON may have one, and TOML none: the other rules of the file can be read."""
    script: list[Any] = []
    for key, number in (("a", "9"), ("b", '"a\\ud800b"')):
        call = tool("deploy", env=key)
        answered = retry(call, {key: accepted(n=9)})
        answered = answered.replace(b'"n":9', f'"n":{number}'.encode())
        script += [(call, asks(key)), (answered, text("done"))]

    written = answers_text(loaded(cassette_of(*script)), "f.json")

    assert [
        rule.key for rule in read_answers_file(written.encode(), "f.toml").rule
    ] == ["a"]
    assert "# #2 has a lone surrogate, which TOML can't write:\n# [[rule]]\n" in written


def test_other_answers_to_the_same_question_are_comments() -> None:
    """The first rule that fits would win; equal ones are written once, abandoned ones never."""
    answers = (accepted(n=1), {"action": "decline"}, accepted(n=1))
    written = answers_text(recorded(*answers), "f.json")

    assert written.count("[[rule]]") == 1
    assert (
        '# #2 answers the same question otherwise:\n# action = "decline"\n' in written
    )
    unanswered = loaded(cassette_of((CALL, asks("a"))))

    assert "[[rule]]" not in answers_text(unanswered, "f.json")
    assert 'result = "yes"' in answers_text(recorded("yes"), "f.json")


def test_answers_that_are_not_known_are_not_written() -> None:
    """A sealed answer leaves a decline, a redacted one a note."""
    sealed = answers_text(recorded(accepted(n="mrtr-answer:" + "0" * 64)), "f.json")
    redacted = answers_text(recorded(accepted(n="<jwt:1>")), "f.json")

    assert "# The recorded answer is sealed" in sealed
    assert tomllib.loads(sealed)["rule"][0]["action"] == "decline"
    assert "mrtr-answer" not in sealed
    assert "# The recorded answer has redacted secrets" in redacted


def test_array_and_pushed_questions_have_rules() -> None:
    """A bare value, and no key where that is ours."""
    array = cassette_of(
        (CALL, array_asks("city", state="s")),
        (retry(CALL, [{"id": "city", "value": "Rome"}], state="s"), text("done")),
    )

    pushed = asked_once(elicit(), {"action": "decline"}, CALL, text("done"))

    (rule,) = tomllib.loads(answers_text(loaded(array), "f.json"))["rule"]

    assert (rule["value"], rule["key"]) == ("Rome", "city")

    (rule,) = tomllib.loads(answers_text(pushed, "f.json"))["rule"]

    assert rule == {
        "tool": "deploy",
        "message": "Deploy?",
        "kind": "form",
        "action": "decline",
    }
