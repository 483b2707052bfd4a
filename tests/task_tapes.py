"""Cassettes with tasks, and the requests of clients that poll, answer and cancel them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from builders import Step, conversation, rpc, tool
from messages import form

from mrtr_cassette.core.cassette.dump import dump
from mrtr_cassette.core.cassette.load import load
from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    RecordedExchange,
    RecordedInteraction,
    TaskStep,
)
from mrtr_cassette.core.protocol.tasks import created_task

CREATED_AT = "2026-01-01T00:00:00.5Z"
CALL = tool("deploy")


def poll(task: str = "t1") -> bytes:
    """Return a poll of a task."""
    return rpc("tasks/get", {"taskId": task})


def update(*keys: str, task: str = "t1", action: str = "accept") -> bytes:
    """Return an update that gives the recorded answers to some keys, or others."""
    answers = {key: {"action": action, "content": {"key": key}} for key in keys}
    return rpc("tasks/update", {"taskId": task, "inputResponses": answers})


def cancel(task: str = "t1") -> bytes:
    """Return the cancellation of a task."""
    return rpc("tasks/cancel", {"taskId": task})


def state(status: str, *keys: str, task: str = "t1", **members: Any) -> dict[str, Any]:
    """Return a state of a task, which asks a form under each key."""
    asked = {"inputRequests": {key: form(f"{key}?") for key in keys}} if keys else {}
    times = {"createdAt": CREATED_AT, "lastUpdatedAt": CREATED_AT, "ttlMs": 60000}
    return {"taskId": task, "status": status, **times, "pollIntervalMs": 50, **asked, **members}


def created(task: str = "t1") -> dict[str, Any]:
    """Return the result that creates a task."""
    return {"resultType": "task", **state("working", task=task)}


def task_cassette(*script: Step) -> Cassette:
    """Return the cassette of exchanges that follow one another, with the steps of its tasks."""
    return cassette_of_tasks(conversation(*script, seals=False).exchanges)


def cassette_of_tasks(exchanges: Sequence[RecordedExchange], path: str = "f") -> Cassette:
    """Return the cassette of some exchanges, in which tasks are part of the calls."""
    chains: list[tuple[RecordedExchange, list[TaskStep]]] = []
    tasks: dict[str, list[TaskStep]] = {}
    for each in sorted(exchanges, key=lambda each: each.number or 0):
        call, steps = each.call, list[TaskStep]()
        if call.method.startswith("tasks/") and call.name in tasks:
            tasks[call.name].append(TaskStep(each))
            continue
        chains.append((each, steps))
        task = created_task(each.rpc_response)
        if task is not None:
            tasks[task.id] = steps
    interactions = [
        RecordedInteraction(number, (first,), None, is_orphan=False, steps=tuple(steps))
        for number, (first, steps) in enumerate(chains, start=1)
    ]
    whole = Cassette(path, request_state="verbatim", interactions=tuple(interactions))
    return load(dump(whole), path)
