"""What a user writes for a call: what to call, its answers as pairs or as a file of rules."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, NamedTuple, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    model_validator,
)

from mrtr_cassette.core.answers.forms import (
    ACTIONS,
    AskedQuestion,
    AskedTurn,
    elicitation_answer,
    example_answer,
    fields_of,
    problem_of_answer,
    required_fields,
    sampling_answer,
    type_to_read_as,
    value_of_text,
    value_schema,
)
from mrtr_cassette.core.cassette.recorded import Cassette, RecordedInteraction
from mrtr_cassette.core.protocol.dialect import (
    ELICITATION_KINDS,
    RESULT_KINDS,
    VALUE_KINDS,
    InputRequest,
    KindName,
)
from mrtr_cassette.core.protocol.methods import (
    CALL_TOOL,
    INITIALIZE,
    METHODS,
    method_of,
)
from mrtr_cassette.core.secrets.names import ANSWER, has_kind, has_secrets
from mrtr_cassette.core.secrets.shapes import whole_matcher
from mrtr_cassette.core.wire.jsonbytes import Number, canonical, parse
from mrtr_cassette.core.wire.pointers import members_of
from mrtr_cassette.errors import NotJsonError, UsageError, printable

_NAMING_MEMBERS: Final = frozenset(
    method.noun for method in METHODS.values() if method.noun
)
"""The members of a rule that name what is called, by a method with this noun."""

_KINDS_BY_ANSWER_MEMBER: Final = {
    "action": ELICITATION_KINDS,
    "result": RESULT_KINDS,
    "value": VALUE_KINDS,
}
"""The kinds of requests that each member of a rule can answer."""

_LONE_SURROGATE: Final = re.compile(r"(?<!\\)(?:\\\\)*\\U0000d[89a-f]")
"""Matches what `_toml_char` writes for one."""

Action = Literal["accept", "decline", "cancel"]


class _StrictModel(BaseModel):
    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False
    )


class AnswerRule(_StrictModel):
    """One rule: what it answers, and with what. The first rule that fits answers."""

    tool: str | None = Field(None, description="The tool that is called.")
    prompt: str | None = Field(None, description="The prompt that is got.")
    resource: str | None = Field(
        None, description="The URI of the resource that is read."
    )
    key: str | None = Field(
        None, description="The server's key of the request, or its last part."
    )
    message: str | None = Field(None, description="The message, exactly.")
    pattern: str | None = Field(
        None, description="A pattern (Rust's regex) for the whole message."
    )
    kind: KindName | None = Field(
        None, description="What is asked for; a type in the array dialect."
    )
    action: Action | None = Field(
        None, description="What a user does with a form or a URL."
    )
    content: dict[str, JsonValue] | None = Field(
        None, description="The fields of a form."
    )
    result: dict[str, JsonValue] | None = Field(
        None, description="For sampling and for roots."
    )
    value: JsonValue = Field(None, description="The value in the array dialect.")

    def answer_of_rule(self) -> Any:
        """Return what it answers, in which no number has lost anything."""
        if self.action is not None:
            return elicitation_answer(
                self.action, _value_with_exact_numbers(self.content)
            )
        if self.result is not None:
            return _value_with_exact_numbers(self.result)
        return _value_with_exact_numbers({"value": self.value})

    def answerable_kinds(self) -> frozenset[str]:
        """Return the kinds of requests that it can answer."""
        if self.kind is not None:
            return frozenset({self.kind})
        if self.content is not None:
            return frozenset({"form"})
        if self.action is not None:
            return ELICITATION_KINDS

        return VALUE_KINDS if self.result is None else RESULT_KINDS

    def fits_question(self, asked: AskedTurn, question: AskedQuestion) -> bool:
        """Tell whether it answers a request for input."""
        noun = method_of(asked.method).noun
        for member in _NAMING_MEMBERS:
            name = getattr(self, member)
            if name is not None and (member, name) != (noun, asked.name):
                return False

        request = question.request
        if self.key not in (None, question.key, question.short_key):
            return False

        has_message = self.message in (None, request.message)
        is_of_kind = self.kind in (None, request.kind)
        if not has_message or not is_of_kind:
            return False

        if self.pattern is not None:
            is_match = whole_matcher(self.pattern)
            if not is_match(request.message):
                return False

        if request.takes_bare_value:
            return self.value is not None

        return request.kind in self.answerable_kinds()

    @model_validator(mode="after")
    def _check_members(self) -> Self:
        """Return the rule; a `ValueError` says which of its members can't be meant."""
        answer_members = [
            name for name in _KINDS_BY_ANSWER_MEMBER if getattr(self, name) is not None
        ]
        if len(answer_members) != 1:
            given_members = " and ".join(answer_members) or "none"
            raise ValueError(
                f"exactly one of action, result and value is needed, it has {given_members}"
            )

        if self.content is not None and self.action != "accept":
            raise ValueError('content only goes with action = "accept"')

        answered_kinds = _KINDS_BY_ANSWER_MEMBER[answer_members[0]]
        if self.kind is not None and self.kind not in answered_kinds:
            raise ValueError(f"kind {self.kind} is not answered by {answer_members[0]}")

        if self.pattern is not None:
            try:
                whole_matcher(self.pattern)
            except ValueError as error:
                reason = f"pattern is not a regular expression: {error}"
                raise ValueError(reason) from None

        return self


def _value_with_exact_numbers(value: Any) -> Any:
    """Return a value as JSON is read here."""
    return parse(json.dumps(value).encode())


class RestModel(_StrictModel):
    """An endpoint that is asked what no rule answers."""

    url: str = Field(description="Where the questions are posted.")
    headers: dict[str, str] = Field(
        default_factory=dict, description="Headers of the request."
    )
    timeout: Annotated[float, Field(gt=0, strict=False)] = Field(
        10.0, description="Seconds that a response may take."
    )


class AnswersFile(_StrictModel):
    """Who answers what a server asks, where no client does, in TOML."""

    otherwise: Literal["fail", "decline", "cancel"] = Field(
        "fail",
        description="What happens with a form or a URL that nothing else answers.",
    )
    rest: RestModel | None = Field(None, description="An endpoint that gives answers.")
    rule: list[AnswerRule] = Field(
        default=[], description="The rules, in the order of trying."
    )

    def answerable_kinds(self) -> set[str]:
        """Return the kinds of requests that it can answer."""
        kinds: set[str] = set()
        if self.rest is not None:
            return kinds.union(ELICITATION_KINDS, RESULT_KINDS)

        if self.otherwise != "fail":
            kinds.update(ELICITATION_KINDS)

        return kinds.union(*(rule.answerable_kinds() for rule in self.rule))

    def rule_for(
        self, asked: AskedTurn, question: AskedQuestion
    ) -> tuple[int, AnswerRule] | None:
        """Return the number and the rule that answers a request for input, or None."""
        for number, rule in enumerate(self.rule, start=1):
            if rule.fits_question(asked, question):
                return number, rule

        return None


def read_answers_file(raw: bytes, path: str) -> AnswersFile:
    """Read an answers file.

    Raises:
        UsageError: it is not TOML, or a member can't be meant; the message names rule and field.
    """
    try:
        tree = tomllib.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from None

    return answers_from_tree(tree, path)


def answers_from_tree(tree: Mapping[str, Any], path: str) -> AnswersFile:
    """Return the answers that a tree of values says, or raise what `read_answers_file` does."""
    try:
        return AnswersFile.model_validate(tree)
    except ValidationError as error:
        first_error = error.errors(include_url=False, include_context=False)[0]

    location = first_error["loc"]
    place = f"{path}: "
    if location[:1] == ("rule",) and len(location) > 1:
        place += f"rule {int(location[1]) + 1}: "
        location = location[2:]

    member_path = ".".join(map(str, location))
    if member_path:
        place += f"{member_path}: "

    raise UsageError(place + first_error["msg"].removeprefix("Value error, "))


# Files from recordings


def answers_text(cassette: Cassette, name: str) -> str:
    """Return an answers file that gives the recorded answers of a cassette.

    An answer that is not known any more, as it is sealed, is never written as an answer.
    """
    blocks = [
        f"# The answers of {printable(name)}; the first rule that fits answers.\n"
    ]
    rule_texts = {}
    for interaction in cassette.interactions:
        for conditions, answer in _rule_texts_of(interaction):
            if _LONE_SURROGATE.search(conditions + answer):
                text = f"#{interaction.number} has a lone surrogate, which TOML can't write:\n"
                text += f"[[rule]]\n{conditions}{answer}"
                blocks.append(_commented(text))
            elif conditions not in rule_texts:
                rule_texts[conditions] = answer
                blocks.append(f"[[rule]]\n{conditions}{answer}")
            elif rule_texts[conditions] != answer:
                text = f"#{interaction.number} answers the same question otherwise:\n{answer}"
                blocks.append(_commented(text))

    return "\n".join(blocks)


def _commented(text: str) -> str:
    """Return lines as comments."""
    return "".join(f"# {line}\n" for line in text.splitlines())


def _rule_texts_of(interaction: RecordedInteraction) -> Iterator[tuple[str, str]]:
    """Yield the conditions and the answer of a rule for each answer that was given."""
    call = interaction.exchanges[0].call
    noun = method_of(call.method).noun
    call_conditions = {}
    if noun:
        call_conditions[noun] = call.name

    for turn in interaction.turns:
        given_answers = turn.given_answers or {}
        for key, request in turn.requests.items():
            answer = given_answers.get(key)
            if answer is None:
                continue

            conditions = call_conditions.copy()
            # The key of a pushed request is ours, and another one if the server asks more.
            if turn.is_key_from_server(key):
                conditions["key"] = key

            if request.message:
                conditions["message"] = request.message

            if request.kind in ELICITATION_KINDS | RESULT_KINDS:
                conditions["kind"] = request.kind

            yield _toml_lines(conditions), _answer_lines(request, answer)


def _answer_lines(request: InputRequest, answer: Any) -> str:
    """Return the lines of a rule for a recorded answer; a comment says if any of it was hidden."""
    text = canonical(answer)
    is_elicitation = request.kind in ELICITATION_KINDS and not request.takes_bare_value
    if has_kind(text, ANSWER):
        note = "# The recorded answer is sealed: only its hash is known.\n"
        if is_elicitation:
            return note + _toml_lines({"action": "decline"})
        return note + _toml_lines({"result": {}})

    note = ""
    if has_secrets(text):
        note = (
            "# The recorded answer has redacted secrets: write them instead of <...>.\n"
        )

    is_result = not (request.takes_bare_value or is_elicitation)
    # What a client answered may be no object, which only a result can say.
    if is_result or not isinstance(answer, dict):
        return note + _toml_lines({"result": answer})

    members = {name: answer.get(name) for name in ("value", "action", "content")}
    return note + _toml_lines(members)


def _toml_lines(members: Mapping[str, Any]) -> str:
    """Return members as lines of TOML, which has no null."""
    lines = []
    for name, value in members.items():
        if value is not None:
            lines.append(f"{name} = {_toml_value(value)}\n")

    return "".join(lines)


def _toml_value(value: Any) -> str:
    """Return a JSON value as TOML, without the nulls in it, which TOML doesn't have."""
    if isinstance(value, dict):
        members = []
        for name, member in value.items():
            if member is not None:
                members.append(f"{_toml_value(name)} = {_toml_value(member)}")

        return f"{{ {', '.join(members)} }}" if members else "{}"

    if isinstance(value, list):
        items = [_toml_value(item) for item in value if item is not None]
        return f"[{', '.join(items)}]"

    if isinstance(value, str):
        shown = json.dumps(value, ensure_ascii=False)
        return "".join(map(_toml_char, shown))

    return value.text if isinstance(value, Number) else canonical(value)


def _toml_char(char: str) -> str:
    """Return a character as a TOML string spells it: escaped unless it is printable.

    The escape of a lone surrogate is none that TOML has.
    """
    return char if char.isprintable() else f"\\U{ord(char):08x}"


# What is called, and the answers that a call brings


class WrittenPair(NamedTuple):
    """A name and what it stands for: the text after `=`, or the JSON value after `:=`."""

    name: str
    value: Any
    is_json: bool

    def value_read_as(self, schema: Any) -> Any:
        """Return the value; a text is read as the type that the schema has."""
        if self.is_json:
            return self.value
        return value_of_text(self.value, schema)


def read_pairs(texts: Iterable[str], noun: str) -> tuple[WrittenPair, ...]:
    """Read pairs, which messages call by `noun`.

    Raises:
        UsageError: a text is none, its JSON can't be read, or a name comes twice.
    """
    pairs: dict[str, WrittenPair] = {}
    for text in texts:
        pair = _read_pair(text, noun)
        if pair.name in pairs:
            raise UsageError(f"{noun} {pair.name!r} is given twice")

        pairs[pair.name] = pair

    return tuple(pairs.values())


def _read_pair(text: str, noun: str) -> WrittenPair:
    """Read `name=text` or `name:=json`; the `UsageError` for any other text calls it by `noun`."""
    written_name, separator, value = text.partition("=")
    name = written_name.removesuffix(":")
    # The text itself may be a secret.
    if not separator or not name:
        reason = f"{noun}: {name!r} has no name and value"
        raise UsageError(reason, hint="write name=text or name:=json")

    if name == written_name:
        return WrittenPair(name, value, is_json=False)

    try:
        json_value = parse(value.encode("utf-8", "surrogatepass"))
    except NotJsonError:
        raise UsageError(
            f"{noun} {name!r}: the text after := is not JSON",
            hint=f"a text is written {name}=text, and JSON in quotes of the shell",
        ) from None

    return WrittenPair(name, json_value, is_json=True)


@dataclass(frozen=True, slots=True)
class WantedCall:
    """What is to be called; `name` is empty for a method that names nothing."""

    method: str
    name: str
    pairs: tuple[WrittenPair, ...]
    names_method: bool = False
    """The method itself was named: nobody asks first whether there is such a tool."""

    def call_params(self, input_schema: Any = None) -> dict[str, Any]:
        """Return the params; a text is read as the type that a tool's schema declares."""
        argument_schemas = members_of(members_of(input_schema).get("properties"))
        arguments = {}
        for pair in self.pairs:
            arguments[pair.name] = pair.value_read_as(argument_schemas.get(pair.name))

        named_by = method_of(self.method).named_by
        if not self.name or not named_by:
            return arguments
        if named_by != "name":
            return {named_by: self.name} | arguments

        params: dict[str, Any] = {"name": self.name}
        if arguments:
            params["arguments"] = arguments

        return params


def can_be_called(method: str) -> bool:
    """Tell whether a call can name a method; any other word names a tool."""
    known_method = METHODS.get(method)
    # Sessions and streams are opened by no call.
    if known_method is None or method == INITIALIZE or known_method.listens:
        return False
    return known_method.reads or bool(known_method.named_by)


def wanted_call(words: Sequence[str]) -> WantedCall:
    """Return what is to be called: a tool, or a method and what it names, and the arguments.

    Raises:
        UsageError: a word is missing or is no argument.
    """
    if not words:
        raise UsageError("there is nothing to call", hint="name a tool, or a method")

    tool_or_method, *rest = words
    if not can_be_called(tool_or_method):
        return WantedCall(CALL_TOOL, tool_or_method, read_pairs(rest, "argument"))
    if not method_of(tool_or_method).named_by:
        return WantedCall(tool_or_method, "", read_pairs(rest, "argument"))
    if not rest:
        hint = f"write {tool_or_method} NAME"
        raise UsageError(f"{tool_or_method} needs what it names", hint=hint)

    pairs = read_pairs(rest[1:], "argument")
    return WantedCall(tool_or_method, rest[0], pairs, names_method=True)


def tool_named(name: str, tools: Iterable[Any]) -> Mapping[str, Any]:
    """Return a tool of a server's list.

    Raises:
        UsageError: it has none of this name.
    """
    by_name: dict[str, Mapping[str, Any]] = {}
    for tool in tools:
        listed_name = members_of(tool).get("name")
        if isinstance(listed_name, str):
            by_name[listed_name] = tool

    if name in by_name:
        return by_name[name]

    tool_names = ", ".join(by_name) or "none"
    raise UsageError(f"the server has no tool {name!r}", hint=f"it has {tool_names}")


class GivenAnswers:
    """The answers that a call brings itself.

    A name is a request's key, a form's field, or both with a dot between, such as `confirm.env`.
    `#2` stands for the second question of the call, whatever its key is in this run.
    The last part of a key stands for it where no other key of the turn ends so: `ask` for
    `__main__:ask`. A field's name alone answers one question: the next one may be about deleting
    what the first one was about.
    """

    def __init__(self, pairs: Iterable[WrittenPair] = ()) -> None:
        self._pairs_by_name = {pair.name: pair for pair in pairs}
        self._used_names: set[str] = set()
        self._field_names: set[str] = set()
        """The names that have answered a field."""
        self._names_by_question: dict[int, set[str]] = {}
        """The names by which each question could be meant, by its number in the call."""

    @property
    def unused_names(self) -> list[str]:
        """The names that nothing was asked for."""
        return [name for name in self._pairs_by_name if name not in self._used_names]

    @property
    def answerable_kinds(self) -> set[str]:
        """The kinds of requests that they can answer."""
        kinds: set[str] = set()
        for pair in self._pairs_by_name.values():
            kinds.update(ELICITATION_KINDS)
            if isinstance(pair.value, dict):
                kinds.update(RESULT_KINDS)

        return kinds

    def answer_to_question(self, question: AskedQuestion) -> Any:
        """Return the answer to a question; None where no name is for it.

        `decline` and `cancel` for a field that is no text refuse the whole form.
        """
        used_count_before = len(self._used_names)
        fields = fields_of(question.request)
        self._names_by_question[question.number] = {
            question.key,
            question.short_key,
            *fields,
        }
        answer = self._named_answer(question, fields)
        # What answered an earlier question of this key was not meant for another kind of question.
        is_repeated = answer is not None and len(self._used_names) == used_count_before
        if is_repeated and problem_of_answer(question.request, answer) is not None:
            return None

        return answer

    def _named_answer(self, question: AskedQuestion, fields: Mapping[str, Any]) -> Any:
        """Return the answer by the pair named like a question, or else by its fields' pairs."""
        whole_pair = self._pair_named_like_question(question)
        if whole_pair is not None:
            return self._answer_by_whole_pair(whole_pair, question, fields)
        if self.spent_name(question):
            return None

        return self._form_answer_of_pairs(
            self._pairs_for_fields(question, fields), fields
        )

    def _answer_by_whole_pair(
        self,
        whole_pair: WrittenPair,
        question: AskedQuestion,
        fields: Mapping[str, Any],
    ) -> Any:
        """Return the answer to a question by a pair that is named like it."""
        if isinstance(whole_pair.value, dict):
            self._used_names.add(whole_pair.name)
            return whole_pair.value

        names_field = whole_pair.name in fields
        if names_field and self.spent_name(question):
            return None

        field_pairs = self._pairs_for_fields(question, fields)
        if not field_pairs and len(fields) == 1 and whole_pair.value not in ACTIONS:
            field_pairs = dict.fromkeys(fields, whole_pair)

        if not names_field and (not field_pairs or whole_pair.value in ACTIONS[1:]):
            self._used_names.add(whole_pair.name)
            return _answer_of_whole_pair(whole_pair, question.request)

        return self._form_answer_of_pairs(field_pairs, fields)

    def _form_answer_of_pairs(
        self, field_pairs: Mapping[str, WrittenPair], fields: Mapping[str, Any]
    ) -> Any:
        """Return the answer to a form by pairs for its fields, which are used up by it."""
        for field, pair in field_pairs.items():
            self._used_names.add(pair.name)
            if pair.name == field:
                self._field_names.add(field)

        return _form_answer_by_fields(field_pairs, fields)

    def _pair_named_like_question(self, question: AskedQuestion) -> WrittenPair | None:
        """Return the pair that is named like a question."""
        # The place of a question is meant for no other one; a field's name was for its question.
        for name in question.names:
            if name in self._pairs_by_name and name not in self._field_names:
                return self._pairs_by_name[name]

        return None

    def _pairs_for_fields(
        self, question: AskedQuestion, fields: Iterable[str]
    ) -> dict[str, WrittenPair]:
        """Return the pairs that are named like the fields of a question."""
        pairs = {}
        for field in fields:
            names = [f"{alias}.{field}" for alias in question.names]
            for name in (*names, field):
                if name in self._pairs_by_name and name not in self._used_names:
                    pairs[field] = self._pairs_by_name[name]
                    break

        return pairs

    def spent_name(self, question: AskedQuestion) -> str | None:
        """Return the name of a field that has answered another question; None without one."""
        fields = fields_of(question.request)
        answered_fields: set[str] = set()
        for alias in question.names:
            answered_fields.update(
                field for field in fields if f"{alias}.{field}" in self._pairs_by_name
            )

        # Who names a question by its key or its place means it, and may leave out what is optional.
        open_fields = required_fields(question.request) if answered_fields else fields
        for field in open_fields:
            if field in self._used_names and field not in answered_fields:
                return field

        return None

    def example_for(self, question: AskedQuestion, *, is_alone: bool) -> dict[str, Any]:
        """Return names and values that answer a question, in the next run too.

        A key that is no plain word may be another one then.
        """
        fields, whole_answer = example_answer(question.request)
        names = fields or {question.short_key: whole_answer}
        has_plain_key = _PLAIN_WORD.fullmatch(question.short_key) is not None
        keeps_its_name = bool(fields) or has_plain_key
        if keeps_its_name and is_alone and self._are_names_free(names, question.number):
            if self.spent_name(question) is None:
                return dict(names)

        if not fields:
            return {question.numbered_name: whole_answer}

        example = {}
        for field, value in fields.items():
            example[f"{question.numbered_name}.{field}"] = value

        return example

    def _are_names_free(self, names: Mapping[str, Any], number: int) -> bool:
        """Tell whether names were neither given nor could be meant for an earlier question."""
        taken_names = {*self._pairs_by_name, *self._used_names}
        for earlier_number in range(1, number):
            taken_names |= self._names_by_question.get(earlier_number, set())

        return not any(name.startswith("#") or name in taken_names for name in names)


def _form_answer_by_fields(
    field_pairs: Mapping[str, WrittenPair], fields: Mapping[str, Any]
) -> Any:
    """Return the answer to a form that is given field by field; None where no field is."""
    for field, pair in field_pairs.items():
        if pair.value in ACTIONS[1:] and type_to_read_as(fields[field]) != "string":
            return elicitation_answer(pair.value)

    if not field_pairs:
        return None

    content = {}
    for field, pair in field_pairs.items():
        content[field] = pair.value_read_as(fields[field])

    return elicitation_answer("accept", content)


def _answer_of_whole_pair(pair: WrittenPair, request: InputRequest) -> Any:
    """Return the answer that a pair with a question's key is by itself."""
    if request.takes_bare_value:
        return {"value": pair.value_read_as(value_schema(request))}
    if request.kind in ELICITATION_KINDS and pair.value in ACTIONS:
        return elicitation_answer(pair.value)
    if request.kind == "sampling" and isinstance(pair.value, str):
        return sampling_answer(pair.value)

    return pair.value


_PLAIN_WORD: Final = re.compile("[A-Za-z_-]+")
