"""The library: one call on a server, without a client.

Rule: the keywords of `call` are the fields of `CallOptions`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

import orjson

from mrtr_cassette.call_options import CallOptions
from mrtr_cassette.core.answers.arguments import Wanted, WrittenPair
from mrtr_cassette.core.answers.fulfilment import Sources
from mrtr_cassette.core.answers.given import GivenAnswers
from mrtr_cassette.core.protocol.calls import NAMED_BY
from mrtr_cassette.core.report.calls import CallResult, UnansweredError, unused_text
from mrtr_cassette.core.wire.jsonbytes import parse
from mrtr_cassette.errors import UsageError
from mrtr_cassette.option_values import FilePath
from mrtr_cassette.options import Existing
from mrtr_cassette.shell.announcing import Announcer
from mrtr_cassette.shell.answers_file import load_answers
from mrtr_cassette.shell.background import result_in_thread
from mrtr_cassette.shell.calling import call as call_server
from mrtr_cassette.shell.stores import location

Answers = Mapping[str, Any] | FilePath | None


class CallKeywords(TypedDict, total=False):
    """The keywords of `call`, as types; `CallOptions` says what each does."""

    headers: Mapping[str, str] | Sequence[tuple[str, str]]
    ca_file: FilePath | None
    insecure: bool
    max_body: int
    max_rounds: int
    timeout: int
    existing: Existing
    log: Callable[[str], None] | None


def call(
    upstream: str | Sequence[str],
    name: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    method: str = "tools/call",
    answers: Answers = None,
    path: FilePath | None = None,
    **options: Unpack[CallKeywords],
) -> CallResult:
    """Make one call on a server, answer what it asks, and return what it came to.

    It returns when the call has ended; a program with an event loop runs it in a thread.

    Args:
        upstream: URL of the server, or its program and arguments, if it is on pipes.
        name: the tool's or prompt's name, or the resource's URI.
        arguments: those of the call.
        method: `tools/call`, `prompts/get` or `resources/read`.
        answers: by the name of a field or the key of a question; or an answers file.
        path: the cassette in which the call is recorded; None where it isn't.
        **options: as in `CallOptions`; `help(mrtr_cassette.CallOptions)` lists them.

    Raises:
        UsageError: an option, an answer or an argument is wrong, or the tool is unknown.
        UnansweredError: nothing answers a question of the server.
        CassetteError: the cassette can't be written, or exists.
    """
    result = answered_call(upstream, name, arguments, method, answers, path, **options)
    if result.unused:
        warnings.warn(unused_text(result.unused), stacklevel=2)
    return result


def answered_call(
    upstream: str | Sequence[str],
    name: str,
    arguments: Mapping[str, Any] | None,
    method: str,
    answers: Answers,
    path: FilePath | None = None,
    **options: Unpack[CallKeywords],
) -> CallResult:
    """Make a call as `call` does, but for the warning."""
    checked = CallOptions(**options)
    if method not in NAMED_BY:
        raise UsageError(f"the method {method!r} is not one of {', '.join(NAMED_BY)}")
    wanted = Wanted(method, name, _pairs_of(arguments or {}, "arguments"))
    calling = call_server(
        upstream,
        wanted,
        _sources_of(answers),
        checked,
        Announcer(checked.log),
        cassette=None if path is None else location(path),
    )
    result = result_in_thread(calling)
    if result.unanswered is not None:
        raise UnansweredError(result)
    return result


def _sources_of(answers: Answers) -> Sources:
    if answers is None:
        return Sources()
    if isinstance(answers, str | os.PathLike):
        return Sources(file=load_answers(Path(answers)))
    return Sources(GivenAnswers(_pairs_of(answers, "answers")))


def _pairs_of(values: Any, what: str) -> tuple[WrittenPair, ...]:
    """Return what a program gives by name, as JSON values.

    Raises:
        UsageError: it is no mapping, or a value is none that JSON has.
    """
    if not isinstance(values, Mapping):
        raise UsageError(f"{what} is {values!r}, and not a mapping of names to values")
    pairs = []
    for name, value in values.items():
        try:
            pairs.append(WrittenPair(name, parse(orjson.dumps(value)), is_json=True))
        except TypeError:
            raise UsageError(f"{what}: {name!r} has no value that JSON can carry") from None
    return tuple(pairs)
