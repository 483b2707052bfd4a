"""Read the states of tasks (extension `io.modelcontextprotocol/tasks` of MCP 2026-07-28).

A call that takes long returns a task, whose state a client polls, or is notified of. The state says
what the task needs answers to, and at last how the call ended.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from mrtr_cassette.core.protocol.dialect import (
    INPUT_REQUESTS,
    RESULT_TYPE,
    InputRequest,
    read_request_map,
)
from mrtr_cassette.core.protocol.jsonrpc import Message, messages_in
from mrtr_cassette.core.protocol.methods import NOTIFIED_TASK, TASK_ID, TASK_VALUES
from mrtr_cassette.core.wire.http import Response
from mrtr_cassette.core.wire.jsonbytes import Span, canonical, find_spans
from mrtr_cassette.core.wire.pointers import members_of

CREATED_AT: Final = "createdAt"
POLL_INTERVAL: Final = "pollIntervalMs"
_CLOCK_MEMBERS: Final = (CREATED_AT, "lastUpdatedAt", POLL_INTERVAL)
TASK: Final = "task"
"""The `resultType` of the response that creates a task."""

TERMINAL_STATUSES: Final = frozenset({"completed", "failed", "cancelled"})
_MEMBERS_THAT_VARY: Final = frozenset(
    {*TASK_VALUES, "_meta", POLL_INTERVAL, "ttlMs", RESULT_TYPE}
)


@dataclass(frozen=True, slots=True)
class TaskState:
    """One state of a task, with all requests for input that wait for an answer."""

    id: str
    status: str
    input_requests: Mapping[str, InputRequest]
    tree: Mapping[str, Any]

    @property
    def is_over(self) -> bool:
        """Whether the state never changes again."""
        return self.status in TERMINAL_STATUSES

    @property
    def is_at_work(self) -> bool:
        """Whether the task has not ended, and asks nothing."""
        return not self.is_over and not self.input_requests

    @property
    def digest(self) -> str:
        """The same for polls that say the same, whenever they came."""
        lasting_members = {}
        for name, member in self.tree.items():
            if name not in _MEMBERS_THAT_VARY:
                lasting_members[name] = member

        return canonical(lasting_members)

    @property
    def response(self) -> dict[str, Any]:
        """The members `result` or `error` of a terminal state: what the call came to."""
        outcome = {}
        for name in ("result", "error"):
            if name in self.tree:
                outcome[name] = self.tree[name]

        return outcome


def created_task(request: Message | None, response: Message | None) -> TaskState | None:
    """Return the task that a response to a call creates, or None where it is an ordinary result.

    Some servers say in each poll that a result is a task.
    """
    result = _result_in(response)
    if result.get(RESULT_TYPE) != TASK:
        return None
    if request is not None and request.named_task_id is not None:
        return None

    return _task_state_in(result)


def created_task_id(request: Message | None, response: Message | None) -> str | None:
    """Return the id of the task that a response creates, as either version of MCP has it."""
    task = created_task(request, response)
    if task is None:
        # MCP 2025-11-25 has the task as a member.
        task = _task_state_in(_result_in(response).get(TASK))

    return None if task is None else task.id


def stable_key_names(
    requests: Mapping[str, InputRequest], task_id: str
) -> dict[str, str]:
    """Return names for the keys under which a task asks, the same in every recording.

    Servers make such a key of the id and something random, and show their questions in any order.
    """
    name_by_key = {key: key for key in requests}
    keys_with_id = [key for key in requests if task_id and task_id in key]
    keys_with_id.sort(key=lambda key: canonical(dict(requests[key].definition)))
    for number, key in enumerate(keys_with_id, start=1):
        name_by_key[key] = f"{TASK}:{number}"

    return name_by_key


def polled_state(response: Message | None) -> TaskState | None:
    """Return the state that a response to `tasks/get` says; servers differ in its `resultType`."""
    return _task_state_in(_result_in(response))


def notified_state(message: Message) -> TaskState | None:
    """Return the state of which a server notifies its client, or None for any other message."""
    if message.method != NOTIFIED_TASK:
        return None
    return _task_state_in(message.params)


def notified_states(response: Response | None) -> list[TaskState]:
    """Return the states of which a stream notifies a client."""
    if response is None or NOTIFIED_TASK.encode() not in response.body:
        return []

    states = []
    for located in messages_in(response):
        state = notified_state(located.message)
        if state is not None:
            states.append(state)

    return states


def clock_spans(message: Message) -> Iterator[tuple[str, Span]]:
    """Yield the members of a state that depend on the clock: times, and how often to poll."""
    state_member = "params" if message.method else "result"
    clock_paths = [(state_member, name) for name in _CLOCK_MEMBERS]
    for path, span in find_spans(message.raw, clock_paths):
        yield path[-1], span


def _result_in(response: Message | None) -> dict[str, Any]:
    """Return the result of a response; empty if there is none, or no object."""
    if response is None:
        return {}
    return members_of(response.tree.get("result"))


def _task_state_in(value: Any) -> TaskState | None:
    """Return the state of a task that a result or params have; None for anything else."""
    tree = members_of(value)
    task_id = tree.get(TASK_ID)
    status = tree.get("status")
    if not isinstance(task_id, str) or not isinstance(status, str):
        return None

    input_requests = read_request_map(tree.get(INPUT_REQUESTS)) or {}
    return TaskState(task_id, status, input_requests, tree)


_TIME_TEXT: Final = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)?", re.ASCII
)


def read_time(value: object) -> datetime | None:
    """Read a time in ISO 8601, or return None; without a zone it is UTC's."""
    if not isinstance(value, str) or _TIME_TEXT.fullmatch(value) is None:
        return None

    try:
        time = datetime.fromisoformat(value.upper())
    except ValueError:
        return None

    return time if time.tzinfo else time.replace(tzinfo=UTC)


def shifted_time(spelled: object, delay: timedelta) -> str | None:
    """Return a later time, spelled like a recorded one; None for no time, or beyond year 9999."""
    time = read_time(spelled)
    spelled_parts = _TIME_TEXT.fullmatch(str(spelled))
    if time is None or spelled_parts is None:
        return None

    fraction, zone = spelled_parts.groups(default="")
    smallest_unit = "seconds"
    if fraction:
        smallest_unit = (
            "milliseconds" if len(fraction) <= len(".999") else "microseconds"
        )

    try:
        later_time = time + delay
    except OverflowError:
        return None

    separator = spelled_parts[0][10]
    return later_time.replace(tzinfo=None).isoformat(separator, smallest_unit) + zone
