"""The answers file: rules for what a server asks, an endpoint, and what happens otherwise.

Rule: the first rule that fits answers. A rule with a message never answers another message.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson
from pydantic import BaseModel, ValidationError

from mrtr_cassette.core.answers.asked import Asked
from mrtr_cassette.core.answers.checking import ELICITATIONS, RESULTS, VALUES, elicited
from mrtr_cassette.core.answers.file_model import FileModel, Otherwise, RestModel, RuleModel
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.secrets.patterns import refusal_of, searches
from mrtr_cassette.core.wire.jsonbytes import parse
from mrtr_cassette.errors import UsageError

METHOD_OF: Final = {"tool": "tools/call", "prompt": "prompts/get", "resource": "resources/read"}
"""The method of the calls that each member of a rule names."""
_ANSWERED_BY: Final = {"action": ELICITATIONS, "result": RESULTS, "value": VALUES}
"""The kinds of requests that each member of a rule can answer."""


@dataclass(frozen=True, slots=True)
class AnswerRule:
    """One rule of an answers file.

    Attributes:
        number: its place in the file, from 1.
        model: what it says.
    """

    number: int
    model: RuleModel

    @property
    def answer(self) -> Any:
        """What it answers."""
        if self.model.action is not None:
            return elicited(self.model.action, _exact(self.model.content))
        if self.model.result is not None:
            return _exact(self.model.result)
        return {"value": _exact(self.model.value)}

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of requests that it can answer."""
        if self.model.kind is not None:
            return frozenset({self.model.kind})
        if self.model.action is None:
            return RESULTS if self.model.result is not None else VALUES
        return frozenset({"form"}) if self.model.content is not None else ELICITATIONS

    def fits(self, asked: Asked, key: str, request: InputRequest) -> bool:
        """Tell whether it answers a request for input."""
        model = self.model
        if model.key not in (None, key) or model.kind not in (None, request.kind):
            return False
        if model.message not in (None, request.message):
            return False
        if model.pattern is not None and not searches(
            model.pattern, request.message, is_whole=True
        ):
            return False
        for member, method in METHOD_OF.items():
            name = getattr(model, member)
            if name is not None and (asked.method, asked.name) != (method, name):
                return False
        if request.takes_value:
            return "value" in model.model_fields_set
        return request.kind in self.kinds


def _exact(value: Any) -> Any:
    """Return a value of the file as `parse` returns one, so that no number loses anything."""
    return parse(orjson.dumps(value))


@dataclass(frozen=True, slots=True)
class AnswersFile:
    """An answers file, read.

    Attributes:
        path: how messages name it.
        rules: in the order of the file.
        rest: the endpoint, or None.
        otherwise: what happens with a form or a URL that nothing else answers.
    """

    path: str
    rules: tuple[AnswerRule, ...] = ()
    rest: RestModel | None = None
    otherwise: Otherwise = "fail"

    @property
    def kinds(self) -> set[str]:
        """The kinds of requests that it can answer."""
        if self.rest is not None:
            return {*ELICITATIONS, *RESULTS}
        kinds = {kind for rule in self.rules for kind in rule.kinds}
        return kinds if self.otherwise == "fail" else kinds | ELICITATIONS

    def rule_for(self, asked: Asked, key: str, request: InputRequest) -> AnswerRule | None:
        """Return the rule that answers a request for input, or None."""
        return next((rule for rule in self.rules if rule.fits(asked, key, request)), None)


def read_answers(raw: bytes, path: str) -> AnswersFile:
    """Read an answers file.

    Raises:
        UsageError: it is no TOML, or a member can't be meant; the message names rule and field.
    """
    try:
        tree = tomllib.loads(raw.decode())
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is no TOML: {error}") from None
    return answers_of(tree, path)


def answers_of(tree: Mapping[str, Any], path: str) -> AnswersFile:
    """Return the answers that a tree of values says, such as a file is read to.

    Raises:
        UsageError: a member can't be meant; the message names rule and field.
    """
    try:
        model = FileModel.model_validate(tree)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        raise UsageError(f"{path}: {_place(first['loc'])}{_reason(first)}") from None
    rules = tuple(AnswerRule(number, rule) for number, rule in enumerate(model.rule, start=1))
    for rule in rules:
        fault = _fault_of(rule.model)
        if fault is not None:
            raise UsageError(f"{path}: rule {rule.number}: {fault}")
    return AnswersFile(path, rules, model.rest, model.otherwise)


def _place(location: tuple[int | str, ...]) -> str:
    steps = list(location)
    where = ""
    if steps[:1] == ["rule"] and len(steps) > 1 and isinstance(steps[1], int):
        where = f"rule {steps[1] + 1}: "
        steps = steps[2:]
    # A union of JSON values names its members, which are no places in the file.
    names = [str(step) for step in steps if str(step) not in _JSON_TYPES]
    return where + (f"{'.'.join(names)}: " if names else "")


_JSON_TYPES: Final = frozenset({"list", "dict", "str", "bool", "int", "float", "none", "json"})


def _reason(fault: Any) -> str:
    match fault["type"]:
        case "extra_forbidden":
            model = _MODELS.get(fault["loc"][0] if len(fault["loc"]) > 1 else "", FileModel)
            return f"there is no such field; there are {', '.join(model.model_fields)}"
        case "missing":
            return "it is required"
        case "invalid-json-value":
            return "is no JSON value; write it as a text"
    text: str = fault["msg"]
    return text[:1].lower() + text[1:]


_MODELS: Final[Mapping[Any, type[BaseModel]]] = {"rule": RuleModel, "rest": RestModel}


def _fault_of(model: RuleModel) -> str | None:
    """Return what does not go together in a rule."""
    answers = [name for name in _ANSWERED_BY if name in model.model_fields_set]
    if len(answers) != 1:
        given = " and ".join(answers) or "none"
        return f"exactly one of action, result and value is needed, and it has {given}"
    if model.content is not None and model.action != "accept":
        return 'content: only goes with action = "accept"'
    if model.kind is not None and model.kind not in _ANSWERED_BY[answers[0]]:
        return f"kind: {model.kind} is not answered by {answers[0]}"
    if model.message is not None and model.pattern is not None:
        return "message and pattern don't go together"
    named = [name for name in METHOD_OF if getattr(model, name) is not None]
    if len(named) > 1:
        return f"{' and '.join(named)} don't go together"
    reason = "" if model.pattern is None else refusal_of(model.pattern)
    return f"pattern: is no regular expression: {reason}" if reason else None
