"""The answers that a call brings itself, each for the field or the request that it names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mrtr_cassette.core.answers.arguments import WrittenPair
from mrtr_cassette.core.answers.checking import (
    ACTIONS,
    ELICITATIONS,
    RESULTS,
    elicited,
    fields_of,
    sampled,
    value_schema,
)
from mrtr_cassette.core.answers.schemas import type_of_text
from mrtr_cassette.core.protocol.dialect import InputRequest


class GivenAnswers:
    """The answers that a call brings.

    A name is a request's key, a form's field, or both with a dot between, such as `confirm.env`.
    A field's name alone answers one question: the next one may be about deleting what the first
    one was about.
    """

    def __init__(self, pairs: Iterable[WrittenPair]) -> None:
        self._pairs = {pair.name: pair for pair in pairs}
        self._used: set[str] = set()

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._pairs)

    @property
    def unused(self) -> list[str]:
        """The names of those that nothing was asked for."""
        return [name for name in self._pairs if name not in self._used]

    @property
    def kinds(self) -> set[str]:
        """The kinds of requests that they can answer."""
        has_results = any(isinstance(pair.value, dict) for pair in self._pairs.values())
        return {*ELICITATIONS, *RESULTS} if has_results else set(ELICITATIONS)

    def answer_to(self, key: str, request: InputRequest) -> Any:
        """Return the answer to a request; None where no name is for it."""
        own = self._pairs.get(key)
        fields = fields_of(request)
        if own is not None and isinstance(own.value, dict):
            self._used.add(key)
            return own.value
        if self.spent_name(key, request):
            return None
        names = {
            field: name
            for field in fields
            for name in (field, f"{key}.{field}")
            if name in self._pairs
        }
        if own is not None and not names and len(fields) == 1 and own.value not in ACTIONS:
            names = {next(iter(fields)): key}
        if not names:
            return None if own is None else self._whole(own, request)
        action = self._action_of(own, fields)
        if action is not None:
            return elicited(action)
        self._used.update(names.values())
        return elicited(
            "accept",
            {field: self._pairs[name].read_as(fields[field]) for field, name in names.items()},
        )

    def spent_name(self, key: str, request: InputRequest) -> str | None:
        """Return the name of a field that has answered another question; None without one."""
        spent = (
            field
            for field in fields_of(request)
            if field in self._used and f"{key}.{field}" not in self._pairs
        )
        return next(spent, None)

    def _action_of(self, own: WrittenPair | None, fields: Any) -> str | None:
        """Return what a word says to do with a form, where it is not the text of its field."""
        if own is None or own.value not in ACTIONS[1:]:
            return None
        if own.name in fields and type_of_text(fields[own.name]) == "string":
            return None
        self._used.add(own.name)
        return str(own.value)

    def _whole(self, own: WrittenPair, request: InputRequest) -> Any:
        """Return the answer where a name is the request's key, and no field's."""
        self._used.add(own.name)
        if request.takes_value:
            return {"value": own.read_as(value_schema(request))}
        if request.kind in ELICITATIONS and own.value in ACTIONS:
            return elicited(own.value)
        if request.kind == "sampling" and isinstance(own.value, str):
            return sampled(own.value)
        return own.value
