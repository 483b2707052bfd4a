"""Facts about the answers file: which rule answers what, and what is wrong with a file."""

from __future__ import annotations

from typing import Any

import pytest

from mrtr_cassette.core.answers.asked import Asked
from mrtr_cassette.core.answers.rules import read_answers
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.errors import UsageError

DEPLOY = InputRequest("form", "Deploy to prod?")


def asked(
    request: InputRequest, key: str = "confirm", name: str = "deploy", method: str = "tools/call"
) -> Asked:
    """Return what a call is asked."""
    return Asked(method, name, {}, 1, {key: request})


def answer_of(text: str, request: InputRequest = DEPLOY, **of: str) -> Any:
    """Return the answer of the rule that answers a request; None where none does."""
    ask = asked(request, **of)
    ((key, request),) = ask.requests.items()
    rule = read_answers(text.encode(), "answers.toml").rule_for(ask, key, request)
    return None if rule is None else rule.answer


ACCEPT = 'action = "accept"\ncontent = { confirm = true }'
ACCEPTED = {"action": "accept", "content": {"confirm": True}}


@pytest.mark.parametrize(
    ("condition", "fits"),
    [
        ("", True),
        ('tool = "deploy"', True),
        ('tool = "wipe"', False),
        ('prompt = "deploy"', False),
        ('resource = "deploy"', False),
        ('key = "confirm"', True),
        ('key = "other"', False),
        ('kind = "form"', True),
        ('message = "Deploy to prod?"', True),
        ('message = "Deploy to prod"', False),
        ('message = "deploy to prod?"', False),
        ("pattern = 'Deploy to \\w+\\?'", True),
        ("pattern = 'Deploy'", False),
        ("pattern = '.*'", True),
    ],
)
def test_rule_answers_what_all_of_its_conditions_name(condition: str, fits: bool) -> None:  # noqa: FBT001
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


@pytest.mark.parametrize("method", ["prompts/get", "resources/read"])
def test_prompts_and_resources_have_rules_of_their_own(method: str) -> None:
    """A tool's rule is not for a prompt of that name."""
    member = {"prompts/get": "prompt", "resources/read": "resource"}[method]
    assert answer_of(f'[[rule]]\n{member} = "deploy"\n{ACCEPT}', method=method) == ACCEPTED
    assert answer_of(f'[[rule]]\ntool = "deploy"\n{ACCEPT}', method=method) is None


def test_rule_answers_only_what_its_answer_is_for() -> None:
    """Content is for forms, a result for sampling and roots, a value for the array dialect."""
    url = InputRequest("url", "Sign in")
    roots = InputRequest("roots", "")
    value = InputRequest("string", "City?", takes_value=True)
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
        return read_answers(text.encode(), "answers.toml").kinds

    assert kinds("") == set()
    assert kinds('otherwise = "decline"') == {"form", "url"}
    assert kinds(f"[[rule]]\n{ACCEPT}") == {"form"}
    assert kinds('[[rule]]\nkind = "url"\naction = "accept"') == {"url"}
    assert kinds('[[rule]]\nkind = "roots"\nresult = {}') == {"roots"}
    assert kinds('[rest]\nurl = "http://localhost/"') == {"form", "url", "sampling", "roots"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a =", "answers.toml is no TOML: "),
        ("rules = []", "answers.toml: rules: there is no such field; there are otherwise, rest"),
        ('otherwise = "ask"', "answers.toml: otherwise: input should be 'fail', 'decline' or"),
        ("[rest]", "answers.toml: rest.url: it is required"),
        ('[rest]\nurl = "http://a"\nproxy = 1', "rest.proxy: there is no such field; there are"),
        ('[rest]\nurl = "http://a"\ntimeout = 0', "rest.timeout: input should be greater than 0"),
        (f'[[rule]]\n{ACCEPT}\n[[rule]]\ntol = "a"', "rule 2: tol: there is no such field"),
        (f"[[rule]]\n{ACCEPT}\n[[rule]]\ntool = 5", "rule 2: tool: input should be a valid string"),
        ('[[rule]]\nkind = "forms"\naction = "accept"', "rule 1: kind: input should be 'form'"),
        ('[[rule]]\nkey = "a"', "rule 1: exactly one of action, result and value is needed"),
        ('[[rule]]\naction = "accept"\nvalue = 1', "and it has action and value"),
        ('[[rule]]\naction = "decline"\ncontent = {}', 'content: only goes with action = "accept"'),
        ('[[rule]]\nkind = "roots"\naction = "accept"', "kind: roots is not answered by action"),
        (f'[[rule]]\nmessage = "a"\npattern = "b"\n{ACCEPT}', "message and pattern don't go"),
        (f'[[rule]]\ntool = "a"\nprompt = "b"\n{ACCEPT}', "tool and prompt don't go together"),
        (f'[[rule]]\npattern = "("\n{ACCEPT}', "rule 1: pattern: is no regular expression: miss"),
        (
            '[[rule]]\naction = "accept"\ncontent = { day = 2026-07-28 }',
            "rule 1: content.day: is no JSON value; write it as a text",
        ),
    ],
)
def test_fault_names_rule_and_field(text: str, reason: str) -> None:
    """What is wrong with a file says where, and with what."""
    with pytest.raises(UsageError) as caught:
        read_answers(text.encode(), "answers.toml")
    assert reason in str(caught.value)


def test_file_is_utf_8() -> None:
    """Other bytes are no answers file."""
    with pytest.raises(UsageError, match=r"answers\.toml is not UTF-8"):
        read_answers(b"\xff", "answers.toml")
