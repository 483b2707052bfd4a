"""Answering one ask from sources that are asked one after the other.

Rule: the call's own answers, then the rules, the endpoint, a person, and what happens otherwise. A
source that answers wrongly is a fault; the next one is not asked in its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mrtr_cassette.core.answers.asked import Asked
from mrtr_cassette.core.answers.checking import (
    ELICITATIONS,
    RESULTS,
    elicited,
    is_required,
    problem_of,
)
from mrtr_cassette.core.answers.given import GivenAnswers
from mrtr_cassette.core.answers.rest import read_reply, request_body
from mrtr_cassette.core.answers.rules import AnswersFile
from mrtr_cassette.core.protocol.dialect import InputRequest

ALL_KINDS = ELICITATIONS | RESULTS


@dataclass(frozen=True, slots=True)
class Sources:
    """Who answers.

    Attributes:
        given: the call's own answers.
        file: rules, an endpoint, and what happens otherwise.
        has_person: somebody is there to be asked.
    """

    given: GivenAnswers = field(default_factory=lambda: GivenAnswers(()))
    file: AnswersFile = field(default_factory=lambda: AnswersFile(""))
    has_person: bool = False

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of requests that a client with these sources declares.

        Without any it declares all, as a server never asks what is not declared, and what it asks
        is to be shown.
        """
        kinds = set(self.file.kinds)
        if self.given:
            kinds |= self.given.kinds
        return ALL_KINDS if self.has_person or not kinds else ALL_KINDS & kinds


class AskEndpoint(NamedTuple):
    """The endpoint is to be asked.

    Attributes:
        body: what it gets.
    """

    body: bytes


class AskPerson(NamedTuple):
    """A person is to be asked one request for input."""

    key: str
    request: InputRequest


class Answer(NamedTuple):
    """An answer, and who gave it: `call`, `rule 3`, `rest`, `person` or `otherwise`."""

    value: Any
    answered_by: str


@dataclass(frozen=True, slots=True)
class Fulfilled:
    """Everything that has to be answered is; what is optional may be left out."""

    answers: Mapping[str, Answer]


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A request for input has no answer, so nothing is answered.

    Attributes:
        asked: what is asked.
        key: the request's key.
        detail: why, as a part of a sentence.
    """

    asked: Asked
    key: str
    detail: str


class Fulfilment:
    """One ask on its way to its answers."""

    def __init__(self, asked: Asked, sources: Sources) -> None:
        """Begin with what needs nobody to wait for."""
        self._asked = asked
        self._sources = sources
        self._answers: dict[str, Answer] = {}
        self._fault: Unanswered | None = None
        self._has_asked_endpoint = False
        self._seen_by_person: set[str] = set()
        for key, request in asked.requests.items():
            own = sources.given.answer_to(key, request)
            if own is not None:
                self._take(key, own, "call")
                continue
            rule = sources.file.rule_for(asked, key, request)
            if rule is not None:
                self._take(key, rule.answer, f"rule {rule.number}")

    def next(self) -> AskEndpoint | AskPerson | Fulfilled | Unanswered:
        """Return who is to be asked next, or what has come of it."""
        if self._fault is not None:
            return self._fault
        missing = self._missing
        if missing and self._sources.file.rest is not None and not self._has_asked_endpoint:
            return AskEndpoint(request_body(self._asked.of(missing)))
        if self._sources.has_person:
            for key, request in missing.items():
                if key not in self._seen_by_person:
                    return AskPerson(key, request)
        return self._otherwise(missing)

    @property
    def _missing(self) -> dict[str, InputRequest]:
        requests = self._asked.requests
        return {key: each for key, each in requests.items() if key not in self._answers}

    def replied(self, status: int, content_type: str, body: bytes) -> None:
        """Take the endpoint's reply."""
        self._has_asked_endpoint = True
        missing = self._missing
        answers = read_reply(self._asked.of(missing), status, content_type, body)
        if isinstance(answers, str):
            self.endpoint_failed(answers)
            return
        for key, answer in answers.items():
            self._take(key, answer, "rest")

    def endpoint_failed(self, reason: str) -> None:
        """Take that the endpoint gave no answer."""
        self._fail(next(iter(self._missing)), f"the endpoint gives no answer: {reason}")

    def person_answered(self, key: str, answer: Any) -> None:
        """Take a person's answer; None where there is none."""
        self._seen_by_person.add(key)
        if answer is not None:
            self._take(key, answer, "person")

    def _take(self, key: str, answer: Any, source: str) -> None:
        problem = problem_of(self._asked.requests[key], answer)
        if problem is None:
            self._answers[key] = Answer(answer, source)
        else:
            self._fail(key, f"the answer of {_SHOWN.get(source, source)} doesn't fit: {problem}")

    def _fail(self, key: str, detail: str) -> None:
        if self._fault is None:
            self._fault = Unanswered(self._asked, key, detail)

    def _otherwise(self, missing: Mapping[str, InputRequest]) -> Fulfilled | Unanswered:
        action = self._sources.file.otherwise
        for key, request in missing.items():
            is_elicitation = request.kind in ELICITATIONS and not request.takes_value
            if action != "fail" and is_elicitation:
                self._answers[key] = Answer(elicited(action), "otherwise")
            elif is_required(request):
                return Unanswered(self._asked, key, self._why_open(key, request))
        # As the server asked, not as the sources came.
        requests = self._asked.requests
        return Fulfilled({key: self._answers[key] for key in requests if key in self._answers})

    def _why_open(self, key: str, request: InputRequest) -> str:
        spent = self._sources.given.spent_name(key, request)
        if spent is None:
            return "nothing answers it"
        return (
            f"nothing answers it: the answer {spent!r} is for one question, and was given "
            f"before; name the key too, {key}.{spent}=…"
        )


_SHOWN: Mapping[str, str] = {"call": "the call", "rest": "the endpoint", "person": "the person"}
