"""A report of a replay that was saved as JSON, read back.

Rule: a report is a file from elsewhere: what is not as it was written is named by its place.
"""

from __future__ import annotations

from typing import Any, TypeVar

from mrtr_cassette.core.report.misses import MissReport, Nearest
from mrtr_cassette.core.report.summary import (
    HarmlessRequest,
    InteractionOutcome,
    Outcome,
    ReplayReport,
)
from mrtr_cassette.core.wire.jsonbytes import parse
from mrtr_cassette.core.wire.pointers import Difference
from mrtr_cassette.errors import NotJsonError

T = TypeVar("T")


class UnreadableReportError(ValueError):
    """A file is no report of a replay; the message says where."""


def saved_report(raw: bytes) -> ReplayReport:
    """Return a report as it was when it was saved.

    Raises:
        UnreadableReportError: it is none.
    """
    try:
        tree = parse(raw)
    except NotJsonError as error:
        raise UnreadableReportError(f"no JSON: {error}") from None
    return ReplayReport(
        _member(tree, "cassette", str, ""),
        tuple(_outcome(*each) for each in _items(tree, "interactions", "")),
        tuple(_miss(*each) for each in _items(tree, "misses", "")),
        tuple(
            HarmlessRequest(**_members(*each, call=str, answer=str, times=int))
            for each in _items(tree, "harmless", "")
        ),
    )


def _member(tree: Any, name: str, kind: type[T], place: str) -> T:
    value = tree.get(name) if isinstance(tree, dict) else None
    if not isinstance(value, kind):
        raise UnreadableReportError(f"{place}/{name} is no {_KINDS[kind]}")
    return value


def _members(tree: Any, place: str, **kinds: type) -> dict[str, Any]:
    return {name: _member(tree, name, kind, place) for name, kind in kinds.items()}


_KINDS: dict[type, str] = {str: "text", int: "whole number", list: "list", dict: "object"}


def _items(tree: Any, name: str, place: str) -> list[tuple[Any, str]]:
    items: list[Any] = _member(tree, name, list, place)
    return [(item, f"{place}/{name}/{index}") for index, item in enumerate(items)]


def _optional_text(tree: Any, name: str, place: str) -> str | None:
    is_absent = isinstance(tree, dict) and tree.get(name) is None
    return None if is_absent else _member(tree, name, str, place)


def _outcome(tree: Any, place: str) -> InteractionOutcome:
    word = _member(tree, "outcome", str, place)
    try:
        outcome = Outcome(word)
    except ValueError:
        raise UnreadableReportError(f"{place}/outcome is none of a replay") from None
    members = _members(tree, place, number=int, call=str, plays=int)
    return InteractionOutcome(outcome=outcome, **members)


def _miss(tree: Any, place: str) -> MissReport:
    nearest: Nearest | None = None
    if isinstance(tree, dict) and tree.get("nearest") is not None:
        facts: dict[str, Any] = _member(tree, "nearest", dict, place)
        members = _members(facts, f"{place}/nearest", interaction=int, turn=int, call=str)
        nearest = Nearest(**members)
    questions = _items(tree, "questions", place)
    return MissReport(
        **_members(tree, place, reason=str, detail=str, request=str, cassette=str, text=str),
        questions=tuple(str(question) for question, _ in questions),
        nearest=nearest,
        differences=tuple(
            Difference(
                _member(each, "pointer", str, inner),
                _optional_text(each, "recorded", inner),
                _optional_text(each, "received", inner),
            )
            for each, inner in _items(tree, "differences", place)
        ),
        fixes=(_member(tree, "fix", str, place),),
    )
