"""An answers file from a recording.

Rule: a recorded answer that is not known any more is never written as an answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mrtr_cassette.core.answers.asked import Asked, asked_in
from mrtr_cassette.core.answers.checking import ELICITATIONS, RESULTS
from mrtr_cassette.core.answers.rules import METHOD_OF
from mrtr_cassette.core.exchange.pushed import posted_answers, pushed_requests
from mrtr_cassette.core.exchange.recorded import Cassette, RecordedInteraction
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.protocol.messages import Via
from mrtr_cassette.core.secrets.answers import SEALED_ANSWER
from mrtr_cassette.core.secrets.placeholders import without_numbers
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.core.wire.numbers import Number
from mrtr_cassette.errors import printable

_MEMBERS: Final = {method: member for member, method in METHOD_OF.items()}


@dataclass(frozen=True, slots=True)
class RecordedQuestion:
    """A request for input on a cassette.

    Attributes:
        interaction: number of its interaction.
        turn: number of its turn.
        via: how the server asked.
        asked: the turn's requests.
        key: its key among these.
        answer: the recorded answer; None where there is none.
    """

    interaction: int
    turn: int
    via: Via
    asked: Asked
    key: str
    answer: Any

    @property
    def request(self) -> InputRequest:
        """What is asked."""
        return self.asked.requests[self.key]


def recorded_questions(cassette: Cassette) -> Iterator[RecordedQuestion]:
    """Yield the questions of a cassette, in the order of its interactions and turns."""
    for interaction in cassette.interactions:
        yield from _questions_of(interaction)


def _questions_of(interaction: RecordedInteraction) -> Iterator[RecordedQuestion]:
    first = interaction.exchanges[0].call
    turns: list[tuple[int, Via, Mapping[str, InputRequest], Any]] = [
        (number, "push", pushed_requests(turn), posted_answers(turn))
        for turn, number in zip(interaction.pushed_turns, interaction.pushed_numbers, strict=True)
    ]
    for position, exchange in enumerate(interaction.exchanges):
        ask = exchange.ask
        if ask is None:
            continue
        retry = interaction.exchanges[position + 1 : position + 2]
        answers = retry[0].call.answers if retry else None
        responses = None if answers is None else answers.input_responses
        turns.append((interaction.asking_turn(position), "result", ask.input_requests, responses))
    for number, via, requests, answers_by_key in sorted(turns, key=lambda turn: turn[0]):
        asked = asked_in(first, number, requests)
        for key in requests:
            answer = (answers_by_key or {}).get(key)
            yield RecordedQuestion(interaction.number, number, via, asked, key, answer)


def answers_text(questions: Iterable[RecordedQuestion], cassette: str) -> str:
    """Return an answers file that gives the recorded answers."""
    blocks = [f"# The answers of {printable(cassette)}; the first rule that fits answers.\n"]
    written: dict[tuple[str, ...], str] = {}
    for question in questions:
        if question.answer is None:
            continue
        conditions = tuple(_conditions(question))
        answer = "\n".join(_answer_lines(question))
        if conditions not in written:
            written[conditions] = answer
            blocks.append("\n".join(["[[rule]]", *conditions, answer, ""]))
        elif written[conditions] != answer:
            lines = [f"# #{question.interaction} answers the same question otherwise:", answer]
            blocks.append("\n".join(lines).replace("\n", "\n# ") + "\n")
    return "\n".join(blocks)


def _conditions(question: RecordedQuestion) -> Iterator[str]:
    member = _MEMBERS.get(question.asked.method)
    if member is not None:
        yield f"{member} = {_toml(question.asked.name)}"
    if question.via == "result":
        # The key of a pushed request is ours, and another one if the server asks more.
        yield f"key = {_toml(question.key)}"
    if question.request.message:
        yield f"message = {_toml(question.request.message)}"
    if question.request.kind in ELICITATIONS | RESULTS:
        yield f"kind = {_toml(question.request.kind)}"


def _answer_lines(question: RecordedQuestion) -> Iterator[str]:
    answer = question.answer
    text = canonical(answer)
    if SEALED_ANSWER.search(text):
        yield "# The recorded answer is sealed: only its hash is known."
        yield 'action = "decline"' if question.request.kind in ELICITATIONS else "result = {}"
        return
    if without_numbers(text) != text:
        yield "# The recorded answer has redacted secrets: write them in the place of <...>."
    if question.request.takes_value:
        yield f"value = {_toml(answer.get('value'))}"
    elif question.request.kind in ELICITATIONS and isinstance(answer, dict):
        yield f"action = {_toml(answer.get('action'))}"
        if answer.get("content") is not None:
            yield f"content = {_toml(answer['content'])}"
    else:
        yield f"result = {_toml(answer)}"


def _toml(value: Any) -> str:
    """Return a value in TOML, which has no null: such members are left out, as if absent."""
    if isinstance(value, dict):
        members = [
            f"{_toml(name)} = {_toml(each)}" for name, each in value.items() if each is not None
        ]
        return "{ " + ", ".join(members) + " }" if members else "{}"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(each) for each in value if each is not None) + "]"
    if isinstance(value, str):
        return '"' + "".join(map(_toml_character, value)) + '"'
    return value.text if isinstance(value, Number) else canonical(value)


def _toml_character(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    if char.isprintable() or char == "\u00a0":
        return char
    # Half of a surrogate pair is nothing that TOML can have.
    code = ord(char) if not "\ud800" <= char <= "\udfff" else 0xFFFD
    return f"\\U{code:08x}"
