"""Functions of a user that see requests: whether two of them match, and what is recorded of one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from traceback import extract_tb
from typing import Any, Final

from mrtr_cassette.core.protocol.calls import PARAMETER_PREFIX, read_call
from mrtr_cassette.core.protocol.dialect import (
    ANSWERS_PATH,
    INPUT_RESPONSES,
    REQUEST_STATE,
)
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.protocol.methods import method_of
from mrtr_cassette.core.wire.http import Request
from mrtr_cassette.core.wire.jsonbytes import (
    MemberPath,
    Span,
    spans_of_values,
    splice,
    to_json,
)
from mrtr_cassette.core.wire.pointers import pointer_to
from mrtr_cassette.errors import HookError

_PARAMS_PATH: Final = ("params",)
_PARAMS_BESIDE_ARGUMENTS: Final = ("_meta", INPUT_RESPONSES, REQUEST_STATE)


@dataclass(frozen=True)
class ClientRequest:
    """A client's request or notification, as `match` and `before_record` get it.

    Attributes:
        method: the method of MCP, such as `tools/call`.
        name: the tool's or prompt's name, the resource's URI, the task's id; None for others.
        arguments: those of the tool or prompt; of other methods the params, without `_meta`.
        answers: the `inputResponses` of a later round of a call; None in its first one.
    """

    method: str
    name: str | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    answers: dict[str, Any] | None = None
    _body: bytes = field(default=b"", repr=False, compare=False)

    @property
    def body(self) -> bytes:
        """The whole message, as it was sent or recorded."""
        return self._body


def request_for_hooks(request: Request) -> ClientRequest | None:
    """Return a request as users' functions see it; None for what they are not asked about."""
    message = read_call(request).message
    if message is None or message.kind is Kind.RESPONSE:
        return None

    params: dict[str, Any] = json.loads(to_json(message.params))
    answers = None
    if INPUT_RESPONSES in params or REQUEST_STATE in params:
        answers = params.get(INPUT_RESPONSES) or {}

    named_by = method_of(message.method).named_by
    name = params.pop(named_by, None)
    arguments = params
    if _arguments_path(message.method) != _PARAMS_PATH:
        arguments = params.get("arguments") or {}

    for member in _PARAMS_BESIDE_ARGUMENTS:
        params.pop(member, None)

    return ClientRequest(message.method, name, arguments, answers, message.raw)


def _arguments_path(method: str) -> MemberPath:
    """Return where a call has its arguments; the params of most methods are these themselves."""
    if method_of(method).named_by == "name":
        return (*_PARAMS_PATH, "arguments")
    return _PARAMS_PATH


class Hook:
    """A function of a user; what goes wrong in it is an error with its name."""

    option = ""

    def __init__(self, function: Callable[..., Any]) -> None:
        """Take the function."""
        self.name = getattr(function, "__name__", type(function).__name__)
        self._user_function = function

    def error(self, problem: str) -> HookError:
        """Return what is wrong with the function, as an error."""
        return HookError(f"{self.option}: {self.name} {problem}")

    def _call_function(self, *requests: ClientRequest) -> Any:
        """Call the function; if it raises anything, raise a HookError that says where."""
        try:
            return self._user_function(*requests)
        except Exception as error:
            frame = extract_tb(error.__traceback__)[-1]
            where = f"line {frame.lineno} of {frame.filename.rpartition('/')[2]}"
            first_line = str(error).partition("\n")[0]
            problem = f"raised {type(error).__name__} at {where}: {first_line}"
            raise self.error(problem) from error


class MatchHook(Hook):
    """Tells whether a recorded request stands for a received one."""

    option = "match"

    def matches(self, recorded: Request, received: Request) -> bool:
        """Tell whether the arguments of two calls with the same name match.

        Raises:
            HookError: the function fails, or returns neither True nor False.
        """
        recorded_request = request_for_hooks(recorded)
        received_request = request_for_hooks(received)
        if recorded_request is None or received_request is None:
            return False

        is_match = self._call_function(recorded_request, received_request)
        if not isinstance(is_match, bool):
            raise self.error(f"returned {is_match!r}, and not True or False")

        return is_match


class RecordHook(Hook):
    """Changes requests before they are recorded or matched, or leaves their calls out."""

    option = "before_record"

    def request_after_hook(self, request: Request) -> Request | None:
        """Return a request as a cassette has it; None if it leaves out its call.

        Raises:
            HookError: the function fails, or changes more than values of arguments and answers.
        """
        # The function may change what it is given.
        request_for_function = request_for_hooks(request)
        unchanged_request = request_for_hooks(request)
        if request_for_function is None or unchanged_request is None:
            return request

        returned = self._call_function(request_for_function)
        if returned is None:
            return None
        if not isinstance(returned, ClientRequest):
            raise self.error(f"returned {returned!r}, and not a request or None")

        unchangeable_members = (
            unchanged_request.method,
            unchanged_request.name,
            unchanged_request.answers is None,
        )
        returned_members = (returned.method, returned.name, returned.answers is None)
        if unchangeable_members != returned_members:
            raise self.error("changed more than values of arguments and answers")

        arguments_path = _arguments_path(unchanged_request.method)
        arguments = unchanged_request.arguments
        changes = dict(_changed_values(arguments_path, arguments, returned.arguments))
        headers = list(request.headers)
        if changes:
            # They repeat arguments.
            headers = [pair for pair in headers if not _is_parameter_header(pair[0])]

        answers = unchanged_request.answers
        changes |= _changed_values(ANSWERS_PATH, answers, returned.answers)
        body = self._body_with_values(request.body, changes)
        if body == request.body:
            return request

        return replace(request, headers=tuple(headers), body=body)

    def _body_with_values(self, body: bytes, changes: dict[MemberPath, Any]) -> bytes:
        """Replace values in a body; all of its other bytes stay."""
        replacements: list[tuple[Span, bytes]] = []
        missing_paths = set(changes)
        for path, span in spans_of_values(body):
            if path not in changes or path == _PARAMS_PATH:
                continue

            missing_paths.discard(path)
            try:
                spelled_value = json.dumps(
                    changes[path], separators=(",", ":"), allow_nan=False
                )
            except (TypeError, ValueError) as error:
                raise self.error(f"returned what is no JSON: {error}") from None

            replacements.append((span, spelled_value.encode()))

        if missing_paths:
            pointer = pointer_to(min(missing_paths))
            raise self.error(f"changed {pointer}, whose members stay as they are")

        return splice(body, replacements)


def _is_parameter_header(header: str) -> bool:
    """Tell whether a header repeats an argument, by its name in any case."""
    return header.lower().startswith(PARAMETER_PREFIX)


def _changed_values(
    path: MemberPath, old: Any, new: Any
) -> Iterator[tuple[MemberPath, Any]]:
    """Yield the innermost values that differ, with their places."""
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        for name, value in old.items():
            yield from _changed_values((*path, name), value, new[name])
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, value in enumerate(old):
            yield from _changed_values((*path, str(index)), value, new[index])
    elif type(old) is not type(new) or old != new:
        yield path, new
