"""Faults laid over a replay: which requests meet which, and how often each was met."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.cassette.entries import ReplayEntry
from mrtr_cassette.core.cassette.lookup import LookupKey
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.secrets.names import sha256_of
from mrtr_cassette.core.wire.sse import SseFramer
from mrtr_cassette.errors import UsageError, printable

EXPIRED_STATE: Final = (
    b'{"jsonrpc":"2.0","id":%s,'
    b'"error":{"code":-32602,"message":"Invalid or expired requestState"}}'
)
"""What a server answers to a state that it takes no more, for an id."""


def _is_whole_number(value: Any, smallest: int, largest: float = float("inf")) -> bool:
    """Tell whether a value is an integer within limits, both included; a boolean is none."""
    return type(value) is int and smallest <= value <= largest


def _is_text(value: Any) -> bool:
    """Tell whether a value is a text that is not empty."""
    return isinstance(value, str) and value != ""


def _is_positive(value: Any) -> bool:
    """Tell whether a value is a finite number above 0; a boolean is none."""
    return type(value) in (int, float) and 0 < value < float("inf")


_VALUE_CHECKS: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "tool": (_is_text, "the name of a tool"),
    "method": (_is_text, "the name of a method"),
    "turn": (lambda value: _is_whole_number(value, 0), "a whole number from 0"),
    "occurrence": (lambda value: _is_whole_number(value, 1), "a whole number from 1"),
    "delay": (_is_positive, "a number of seconds"),
    "status": (lambda value: _is_whole_number(value, 400, 599), "between 400 and 599"),
    "retry_after": (
        lambda value: _is_whole_number(value, 0),
        "a whole number of seconds",
    ),
    "drop": (
        lambda value: value in ("head", "body") or _is_whole_number(value, 0),
        '"head", "body" or a number of events',
    ),
    "slow": (lambda value: _is_whole_number(value, 1), "a number of bytes a second"),
    "expired_state": (lambda value: value is True, "true"),
    "session_lost": (lambda value: value is True, "true"),
    "seed": (lambda value: _is_whole_number(value, 0), "a whole number from 0"),
    "probability": (
        lambda value: _is_positive(value) and value <= 1,
        "above 0 and at most 1",
    ),
}
"""What a fault may have, and which values; `_check_fault_table` says what goes together."""

_RESPONSE_REPLACING_KEYS: Final = ("status", "drop", "expired_state", "session_lost")
"""What takes the place of the recorded response."""

_HTTP_ONLY_KEYS: Final = ("status", "session_lost")


class FaultOutcome(NamedTuple):
    """How often a fault was met.

    Attributes:
        fault: the fault in words.
        came: how many requests were to meet it; chance may have spared some.
        times: how many of them met it.
    """

    fault: str
    came: int
    times: int

    def __str__(self) -> str:
        """Return it as a line for people."""
        if not self.came:
            return f"nothing met {self.fault}"

        times_in_words = str(self.times)
        if self.times < self.came:
            times_in_words += f" of {self.came}"

        return f"met {times_in_words}x: {self.fault}"


@dataclass(slots=True, kw_only=True)
class Fault:
    """What goes wrong for which requests; what is None or 0 is left out.

    Attributes:
        name: says which fault it is, in words.
        passed_count: how many requests have come at its place, whichever of them meets it.
        due_count: how many requests have come that meet it, unless chance spares them.
        met_count: how many have met it.
    """

    name: str
    tool: str | None = None
    method: str | None = None
    turn: int | None = None
    occurrence: int | None = None
    delay: float = 0
    status: int | None = None
    retry_after: int | None = None
    drop: str | int | None = None
    slow: int = 0
    expired_state: bool = False
    session_lost: bool = False
    seed: int = 0
    probability: float = 1
    passed_count: int = 0
    due_count: int = 0
    met_count: int = 0

    @property
    def replaces_response(self) -> bool:
        """Whether something takes the place of the recorded response."""
        if self.status is not None or self.drop is not None:
            return True
        return self.expired_state or self.session_lost

    def is_due(self, lookup: LookupKey, entry: ReplayEntry, session: str) -> bool:
        """Count a request; tell whether it meets the fault."""
        if not self._is_at_fault_place(lookup, entry, session):
            return False

        self.passed_count += 1
        if self.occurrence not in (None, self.passed_count):
            return False

        self.due_count += 1
        digest = sha256_of(f"{self.name} {self.seed} {self.due_count}")
        random_number = int(digest[:8], 16)
        return random_number < self.probability * 16**8

    def _is_at_fault_place(
        self, lookup: LookupKey, entry: ReplayEntry, session: str
    ) -> bool:
        """Tell whether a request is at the place of the fault."""
        call = lookup.call
        if self.tool is not None:
            if (call.method, call.name) != ("tools/call", self.tool):
                return False
        elif self.method is not None:
            if call.method != self.method:
                return False
        elif entry.kind is not Kind.REQUEST:
            return False

        if self.turn not in (None, entry.turn):
            return False
        if self.expired_state:
            return bool(lookup.state)

        return bool(session) or not self.session_lost

    def kept_part_of_body(self, body: bytes, *, is_event_stream: bool) -> bytes:
        """Return what a client gets of a body that is dropped in the middle."""
        if not isinstance(self.drop, int):
            return body[: len(body) // 2]

        events = body.splitlines(keepends=True)
        if is_event_stream:
            events = SseFramer().feed(body)

        if len(events) <= self.drop:
            return body

        return b"".join(events[: self.drop])


class Faults:
    """The faults of one replay."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self._faults = faults
        self._lost_sessions: dict[str, Fault] = {}
        """The sessions that a fault has ended."""

    def fault_met_by(
        self, lookup: LookupKey, entry: ReplayEntry | None, session: str
    ) -> Fault | None:
        """Return the fault that a request meets in a session, the first one of several.

        Without an entry it has no recorded response.
        """
        fault = self._lost_sessions.get(session)
        if fault is None and entry is not None:
            # Each counts the request, whichever it meets.
            for possible_fault in self._faults:
                if possible_fault.is_due(lookup, entry, session):
                    fault = fault or possible_fault

        if fault is None:
            return None

        fault.met_count += 1
        if fault.session_lost:
            self._lost_sessions[session] = fault

        return fault

    @property
    def outcomes_by_fault(self) -> tuple[FaultOutcome, ...]:
        """How often each was met so far."""
        outcomes = []
        for fault in self._faults:
            outcomes.append(FaultOutcome(fault.name, fault.due_count, fault.met_count))

        return tuple(outcomes)


def read_faults(tables: Any, place: str = "", *, is_piped: bool = False) -> list[Fault]:
    """Return the faults that tables describe; `place` says where these are.

    Raises:
        UsageError: a table can't be meant, or not over pipes.
    """
    if not isinstance(tables, list | tuple):
        raise UsageError(f"{place}: this is not a list of faults")

    faults = []
    for number, table in enumerate(tables, start=1):
        fault_name = f"fault {number}"
        where = f"{place}, {fault_name}" if place else fault_name
        _check_fault_table(table, where)
        for key in _HTTP_ONLY_KEYS:
            if is_piped and key in table:
                raise UsageError(f"{where}: {key} needs HTTP, and this is a pipe")

        settings_in_words = []
        for key, value in table.items():
            settings_in_words.append(key if value is True else f"{key} {value}")

        fault_name = printable(f"{fault_name} ({', '.join(settings_in_words)})")
        faults.append(Fault(name=fault_name, **table))

    return faults


def _check_fault_table(table: Any, where: str) -> None:
    """Make sure that a table describes a fault."""
    if not isinstance(table, dict):
        raise UsageError(f"{where} is not a table of keys and values")

    for key, value in table.items():
        if key not in _VALUE_CHECKS:
            close_keys = difflib.get_close_matches(str(key), _VALUE_CHECKS, n=1)
            hint = f"it may have {', '.join(_VALUE_CHECKS)}"
            if close_keys:
                hint = f"did you mean {close_keys[0]!r}?"

            raise UsageError(f"{where} has no key {key!r}", hint=hint)

        is_valid, wanted_value = _VALUE_CHECKS[key]
        if not is_valid(value):
            raise UsageError(f"{where}: {key} is {value!r}, and not {wanted_value}")

    _check_key_combination(table, where)


def _check_key_combination(table: Mapping[str, Any], where: str) -> None:
    """Make sure that the keys of a fault go together, and say what goes wrong."""
    if "tool" in table and "method" in table:
        raise UsageError(f"{where}: tool and method don't go together")
    if "retry_after" in table and "status" not in table:
        raise UsageError(f"{where}: retry_after needs status")

    replacing_keys = [key for key in _RESPONSE_REPLACING_KEYS if key in table]
    if len(replacing_keys) > 1:
        raise UsageError(f"{where}: {' and '.join(replacing_keys)} don't go together")
    if not replacing_keys and "delay" not in table and "slow" not in table:
        *first_keys, last_key = _RESPONSE_REPLACING_KEYS
        raise UsageError(
            f"{where} doesn't say what goes wrong",
            hint=f"it needs delay, slow, {', '.join(first_keys)} or {last_key}",
        )
