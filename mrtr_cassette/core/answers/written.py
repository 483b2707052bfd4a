"""What a user writes for a call: what to call, its answers as pairs or as a file of rules."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from mrtr_cassette.core.answers.examples import example_answer
from mrtr_cassette.core.answers.forms import (
    ACTIONS,
    ELICITATIONS,
    RESULTS,
    VALUES,
    Asked,
    elicited,
    fields_of,
    problem_of,
    required_in,
    sampled,
    type_of_text,
    value_of_text,
    value_schema,
)
from mrtr_cassette.core.cassette.recorded import Cassette, PushedTurn
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.protocol.methods import (
    CALL_TOOL,
    GET_PROMPT,
    INITIALIZE,
    METHODS,
    READ_RESOURCE,
    method_of,
)
from mrtr_cassette.core.protocol.tasks import key_names
from mrtr_cassette.core.secrets.rules import matches_whole, refusal_of
from mrtr_cassette.core.secrets.sealed import SEALED_ANSWER, without_numbers
from mrtr_cassette.core.wire.jsonbytes import Number, canonical, parse
from mrtr_cassette.errors import NotJsonError, UsageError, printable

_METHOD_OF: Final = {"tool": CALL_TOOL, "prompt": GET_PROMPT, "resource": READ_RESOURCE}
"""The method of the calls that each member of a rule names."""
_ANSWERED_BY: Final = {"action": ELICITATIONS, "result": RESULTS, "value": VALUES}
"""The kinds of requests that each member of a rule can answer."""


Kind = Literal["form", "url", "sampling", "roots", "string", "number", "integer", "boolean"]
Action = Literal["accept", "decline", "cancel"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class AnswerRule(_Strict):
    """One rule: what it answers, and with what. The first rule that fits answers."""

    tool: str | None = Field(None, description="The tool that is called.")
    prompt: str | None = Field(None, description="The prompt that is got.")
    resource: str | None = Field(None, description="The URI of the resource that is read.")
    key: str | None = Field(None, description="The server's key of the request, or its last part.")
    message: str | None = Field(None, description="The message, exactly.")
    pattern: str | None = Field(None, description="A pattern (RE2) for the whole message.")
    kind: Kind | None = Field(None, description="What is asked for; a type in the array dialect.")
    action: Action | None = Field(None, description="What a user does with a form or a URL.")
    content: dict[str, JsonValue] | None = Field(None, description="The fields of a form.")
    result: dict[str, JsonValue] | None = Field(None, description="For sampling and for roots.")
    value: JsonValue = Field(None, description="The value in the array dialect.")

    def answer(self) -> Any:
        """Return what it answers, in which no number has lost anything."""
        if self.action is not None:
            return elicited(self.action, parse(json.dumps(self.content).encode()))
        answer = {"value": self.value} if self.result is None else self.result
        return parse(json.dumps(answer).encode())

    def kinds(self) -> frozenset[str]:
        """Return the kinds of requests that it can answer."""
        if self.kind is not None:
            return frozenset({self.kind})
        if self.action is None:
            return VALUES if self.result is None else RESULTS
        return ELICITATIONS if self.content is None else frozenset({"form"})

    def fits(self, asked: Asked, key: str, request: InputRequest) -> bool:
        """Tell whether it answers a request for input."""
        fitting = {
            "key": (key, short_key(key, asked.requests)),
            "message": (request.message,),
            "kind": (request.kind,),
            **{name: (asked.name,) for name, of in _METHOD_OF.items() if of == asked.method},
        }
        for name in (*_METHOD_OF, "key", "message", "kind"):
            if getattr(self, name) not in (None, *fitting.get(name, ())):
                return False
        if self.pattern is not None and not matches_whole(self.pattern, request.message):
            return False
        return self.value is not None if request.takes_value else request.kind in self.kinds()

    @model_validator(mode="after")
    def _can_be_meant(self) -> Self:
        answers = [name for name in _ANSWERED_BY if getattr(self, name) is not None]
        if len(answers) != 1:
            given = " and ".join(answers) or "none"
            raise ValueError(f"exactly one of action, result and value is needed, it has {given}")
        if self.content is not None and self.action != "accept":
            raise ValueError('content only goes with action = "accept"')
        if self.kind is not None and self.kind not in _ANSWERED_BY[answers[0]]:
            raise ValueError(f"kind {self.kind} is not answered by {answers[0]}")
        if self.pattern is not None and (reason := refusal_of(self.pattern)):
            raise ValueError(f"pattern is no regular expression: {reason}")
        return self


class RestModel(_Strict):
    """An endpoint that is asked what no rule answers."""

    url: str = Field(description="Where the questions are posted.")
    headers: dict[str, str] = Field(default_factory=dict, description="Headers of the request.")
    timeout: Annotated[float, Field(gt=0, strict=False)] = Field(
        10.0, description="Seconds that a response may take."
    )


class AnswersFile(_Strict):
    """Who answers what a server asks, where no client does, in TOML."""

    otherwise: Literal["fail", "decline", "cancel"] = Field(
        "fail", description="What happens with a form or a URL that nothing else answers."
    )
    rest: RestModel | None = Field(None, description="An endpoint that gives answers.")
    rule: list[AnswerRule] = Field(default=[], description="The rules, in the order of trying.")

    def kinds(self) -> set[str]:
        """Return the kinds of requests that it can answer."""
        if self.rest is not None:
            return {*ELICITATIONS, *RESULTS}
        kinds = {kind for rule in self.rule for kind in rule.kinds()}
        return kinds if self.otherwise == "fail" else kinds | ELICITATIONS

    def rule_for(
        self, asked: Asked, key: str, request: InputRequest
    ) -> tuple[int, AnswerRule] | None:
        """Return the number and the rule that answers a request for input, or None."""
        rules = enumerate(self.rule, start=1)
        return next((each for each in rules if each[1].fits(asked, key, request)), None)


def read_answers(raw: bytes, path: str) -> AnswersFile:
    """Read an answers file.

    Raises:
        UsageError: it is no TOML, or a member can't be meant; the message names rule and field.
    """
    try:
        tree = tomllib.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no TOML: {error}") from None
    return answers_of(tree, path)


def answers_of(tree: Mapping[str, Any], path: str) -> AnswersFile:
    """Return the answers that a tree of values says, or raise what `read_answers` does."""
    try:
        return AnswersFile.model_validate(tree)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where, steps = "", first["loc"]
        if steps[:1] == ("rule",) and len(steps) > 1:
            where, steps = f"rule {int(steps[1]) + 1}: ", steps[2:]
        names = ".".join(map(str, steps))
        reason = first["msg"].removeprefix("Value error, ")
        raise UsageError(f"{path}: {where}{names}{': ' if names else ''}{reason}") from None


# Files from recordings


def answers_text(cassette: Cassette, name: str) -> str:
    """Return an answers file that gives the recorded answers of a cassette.

    An answer that is not known any more, as it is sealed, is never written as an answer.
    """
    blocks = [f"# The answers of {printable(name)}; the first rule that fits answers.\n"]
    written: dict[str, str] = {}
    for interaction in cassette.interactions:
        call = interaction.exchanges[0].call
        for turn in interaction.turns:
            names = key_names(turn.requests, interaction.task_id)
            for key, request in turn.requests.items():
                answer = (turn.given or {}).get(key)
                if answer is None:
                    continue
                conditions = {it: call.name for it, of in _METHOD_OF.items() if call.method == of}
                # The key of a pushed request is ours, and another one if the server asks more.
                if not isinstance(turn, PushedTurn) and names[key] == key:
                    conditions["key"] = key
                conditions |= {"message": request.message} if request.message else {}
                if request.kind in ELICITATIONS | RESULTS:
                    conditions["kind"] = request.kind
                asked, said = _lines(conditions), _answer_lines(request, answer)
                if asked not in written:
                    written[asked] = said
                    blocks.append(f"[[rule]]\n{asked}{said}")
                elif written[asked] != said:
                    text = f"#{interaction.number} answers the same question otherwise:\n{said}"
                    blocks.append("".join(f"# {line}\n" for line in text.splitlines()))
    return "\n".join(blocks)


def _answer_lines(request: InputRequest, answer: Any) -> str:
    text = canonical(answer)
    is_elicitation = request.kind in ELICITATIONS and not request.takes_value
    if SEALED_ANSWER.search(text):
        note = "# The recorded answer is sealed: only its hash is known.\n"
        return note + _lines({"action": "decline"} if is_elicitation else {"result": {}})
    note = ""
    if without_numbers(text) != text:
        note = "# The recorded answer has redacted secrets: write them in the place of <...>.\n"
    # What a client answered may be no object, which only a result can say.
    if not (request.takes_value or is_elicitation) or not isinstance(answer, dict):
        return note + _lines({"result": answer})
    given = {name: answer.get(name) for name in ("value", "action", "content")}
    return note + _lines({name: value for name, value in given.items() if value is not None})


def _lines(members: Mapping[str, Any]) -> str:
    return "".join(f"{name} = {_toml(value)}\n" for name, value in members.items())


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        members = [f"{_toml(name)} = {_toml(it)}" for name, it in value.items() if it is not None]
        return f"{{ {', '.join(members)} }}" if members else "{}"
    if isinstance(value, list):
        return f"[{', '.join(_toml(each) for each in value if each is not None)}]"
    if isinstance(value, str):
        shown = json.dumps(value, ensure_ascii=False)
        return "".join(it if it.isprintable() else f"\\U{ord(it):08x}" for it in shown)
    return value.text if isinstance(value, Number) else canonical(value)


# What is called, and the answers that a call brings


class WrittenPair(NamedTuple):
    """A name and what it stands for: the text after `=`, or the JSON value after `:=`."""

    name: str
    value: Any
    is_json: bool

    def read_as(self, schema: Any) -> Any:
        """Return the value; a text is read as the type that the schema has."""
        return self.value if self.is_json else value_of_text(self.value, schema)


def read_pairs(texts: Iterable[str], what: str) -> tuple[WrittenPair, ...]:
    """Read pairs, which messages call by `what`.

    Raises:
        UsageError: a text is none, its JSON can't be read, or a name comes twice.
    """
    pairs: dict[str, WrittenPair] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        is_json, name = name.endswith(":"), name.removesuffix(":")
        # The text itself may be a secret.
        if not separator or not name:
            reason = f"{what}: {name!r} has no name and value"
            raise UsageError(reason, hint="write name=text or name:=json")
        if name in pairs:
            raise UsageError(f"{what} {name!r} is given twice")
        try:
            read = parse(value.encode("utf-8", "surrogatepass")) if is_json else value
        except NotJsonError:
            raise UsageError(
                f"{what} {name!r}: what follows := is no JSON",
                hint=f"a text is written {name}=text, and JSON in quotes of the shell",
            ) from None
        pairs[name] = WrittenPair(name, read, is_json)
    return tuple(pairs.values())


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be called; `name` is empty for a method that names nothing."""

    method: str
    name: str
    pairs: tuple[WrittenPair, ...]

    def params(self, input_schema: Any = None) -> dict[str, Any]:
        """Return the params; a text is read as the type that a tool's schema declares."""
        fields = input_schema.get("properties") if isinstance(input_schema, Mapping) else None
        fields = fields if isinstance(fields, Mapping) else {}
        values = {pair.name: pair.read_as(fields.get(pair.name)) for pair in self.pairs}
        named_by = method_of(self.method).named_by if self.name else ""
        if named_by != "name":
            return {named_by: self.name} | values if named_by else values
        return {"name": self.name} | ({"arguments": values} if values else {})


def wanted_of(words: Sequence[str]) -> Wanted:
    """Return what is to be called: a tool, or a method and what it names, and the arguments.

    Raises:
        UsageError: a word is missing or is no argument.
    """
    if not words:
        raise UsageError("there is nothing to call", hint="name a tool, or a method")
    method, name, rest = words[0], "", words[1:]
    known = METHODS.get(method)
    # Sessions and streams are opened by no call.
    is_opening = method == INITIALIZE or (known is not None and known.listens)
    if known is None or is_opening or not (known.reads or known.named_by):
        method, name = CALL_TOOL, method
    elif known.named_by:
        if not rest:
            raise UsageError(f"{method} needs what it names", hint=f"write {method} NAME")
        name, *rest = rest
    return Wanted(method, name, read_pairs(rest, "argument"))


def tool_named(name: str, tools: Iterable[Any]) -> Mapping[str, Any]:
    """Return a tool of a server's list.

    Raises:
        UsageError: it has none of this name.
    """
    by_name: dict[str, Mapping[str, Any]] = {
        each["name"]: each for each in tools if isinstance(each, Mapping) and "name" in each
    }
    if name in by_name:
        return by_name[name]
    listed = ", ".join(map(str, by_name)) or "none"
    raise UsageError(f"the server has no tool {name!r}", hint=f"it has {listed}")


class GivenAnswers:
    """The answers that a call brings itself.

    A name is a request's key, a form's field, or both with a dot between, such as `confirm.env`.
    `#2` stands for the second question of the call, whatever its key is in this run.
    The last part of a key stands for it where no other key of the turn ends so: `ask` for
    `__main__:ask`. A field's name alone answers one question: the next one may be about deleting
    what the first one was about.
    """

    def __init__(self, pairs: Iterable[WrittenPair] = ()) -> None:
        self._pairs = {pair.name: pair for pair in pairs}
        self._used: set[str] = set()
        self._fields: set[str] = set()
        """The names that have answered a field."""
        self._names: dict[int, set[str]] = {}
        """The names by which each question could be meant, by its number in the call."""

    @property
    def unused(self) -> list[str]:
        """The names of those that nothing was asked for."""
        return [name for name in self._pairs if name not in self._used]

    @property
    def kinds(self) -> set[str]:
        """The kinds of requests that they can answer."""
        values = [pair.value for pair in self._pairs.values()]
        results = RESULTS if any(isinstance(each, dict) for each in values) else ()
        return {*ELICITATIONS, *results} if values else set()

    def answer_to(
        self, key: str, request: InputRequest, keys: Collection[str] = (), number: int = 1
    ) -> Any:
        """Return the answer to a request, one of several by `keys`; None where no name is for it.

        `decline` and `cancel` for a field that is no text refuse the whole form. `number` is that
        of the question in the call, from 1.
        """
        before = len(self._used)
        self._names[number] = {key, short_key(key, keys), *fields_of(request)}
        answer = self._named_answer(key, request, keys, number)
        # What answered an earlier question of this key was not meant for another kind of question.
        is_repeated = answer is not None and len(self._used) == before
        return None if is_repeated and problem_of(request, answer) else answer

    def _named_answer(
        self, key: str, request: InputRequest, keys: Collection[str], number: int
    ) -> Any:
        aliases = (key, short_key(key, keys), f"#{number}")
        # The place of a question is meant for no other one; a field's name was for its question.
        named = [name for name in reversed(aliases) if name in self._pairs]
        own = next((self._pairs[name] for name in named if name not in self._fields), None)
        fields = fields_of(request)
        if own is not None and isinstance(own.value, dict):
            self._used.add(own.name)
            return own.value
        if (own is None or own.name in fields) and self.spent_name(key, request, keys, number):
            return None
        given = {
            field: self._pairs[name]
            for field in fields
            for name in (field, *(f"{alias}.{field}" for alias in aliases))
            if name in self._pairs and name not in self._used
        }
        if own is not None and not given and len(fields) == 1 and own.value not in ACTIONS:
            given = {next(iter(fields)): own}
        if own is not None and own.name not in fields and (not given or own.value in ACTIONS[1:]):
            self._used.add(own.name)
            return _whole(own, request)
        self._used.update(pair.name for pair in given.values())
        self._fields.update(field for field, pair in given.items() if pair.name == field)
        for field, pair in given.items():
            if pair.value in ACTIONS[1:] and type_of_text(fields[field]) != "string":
                return elicited(pair.value)
        content = {field: pair.read_as(fields[field]) for field, pair in given.items()}
        return elicited("accept", content) if content else None

    def spent_name(
        self, key: str, request: InputRequest, keys: Collection[str] = (), number: int = 1
    ) -> str | None:
        """Return the name of a field that has answered another question; None without one."""
        aliases = {key, short_key(key, keys), f"#{number}"}
        named: set[str] = set()
        fields = fields_of(request)
        for alias in aliases:
            named |= {field for field in fields if f"{alias}.{field}" in self._pairs}
        # Who names a question by its key or its place means it, and may leave out what is optional.
        open_fields = required_in(request) if named else fields
        for field in open_fields:
            if field in self._used and field not in named:
                return field
        return None

    def example_for(
        self, key: str, request: InputRequest, keys: Collection[str], number: int
    ) -> dict[str, Any]:
        """Return names and values that answer a request, in the next run too.

        A key that is no plain word may be another one then.
        """
        fields, whole = example_answer(request)
        short, place = short_key(key, keys), f"#{number}"
        names = fields or {short: whole}
        is_lasting = bool(fields or _PLAIN_WORD.fullmatch(short))
        taken = {*self._pairs, *self._used}
        for earlier in range(1, number):
            taken |= self._names.get(earlier, set())
        is_place = any(name.startswith("#") for name in names)
        is_alone = len(keys) == 1 and not is_place and names.keys().isdisjoint(taken)
        is_spent = self.spent_name(key, request, keys, number) is not None
        if is_lasting and is_alone and not is_spent:
            return dict(names)
        if not fields:
            return {place: whole}
        return {f"{place}.{field}": value for field, value in fields.items()}


def _whole(own: WrittenPair, request: InputRequest) -> Any:
    """Return the answer that a pair with a question's key is by itself."""
    if request.takes_value:
        return {"value": own.read_as(value_schema(request))}
    if request.kind in ELICITATIONS and own.value in ACTIONS:
        return elicited(own.value)
    is_text = request.kind == "sampling" and isinstance(own.value, str)
    return sampled(own.value) if is_text else own.value


_PLAIN_WORD: Final = re.compile("[A-Za-z_-]+")
_KEY_PARTS: Final = re.compile("[:./#]")


def short_key(key: str, keys: Collection[str]) -> str:
    """Return the last part of a key, or the key where another one of `keys` ends so too."""
    last = _KEY_PARTS.split(key)[-1]
    ends = [_KEY_PARTS.split(other)[-1] for other in keys if other != key]
    return key if not last or last in ends else last
