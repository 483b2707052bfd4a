"""Tasks of the extension `io.modelcontextprotocol/tasks`: what clients and servers say of them."""

from __future__ import annotations

from typing import Any

from builders import Step, post, rpc, tool
from messages import YES, form, text

from mrtr_cassette.core.wire.http import Request

Json = Any

AT = "2026-11-24T10:00:00Z"


def created(task: str, status: str = "working", **more: Json) -> Json:
    """Make a result that creates a task."""
    times = {"createdAt": AT, "lastUpdatedAt": AT, "ttlMs": 60_000, "pollIntervalMs": 5}
    return {"resultType": "task", "taskId": task, "status": status, **times, **more}


def state(
    task: str, status: str = "working", /, *asked: str, at: str = AT, **more: Json
) -> Json:
    """Make the result of a poll, which asks a form under each key."""
    questions = (
        {"inputRequests": {key: form(f"{key[-1]}?") for key in asked}} if asked else {}
    )
    times = {"createdAt": AT, "lastUpdatedAt": at, "ttlMs": 60_000, "pollIntervalMs": 5}
    return {
        "resultType": "complete",
        "taskId": task,
        "status": status,
        **times,
        **questions,
    } | more


def request_of(method: str, task: str, number: int = 9, **params: Json) -> Request:
    """Make a request that names a task, in its body and in a header."""
    body = rpc(method, {"taskId": task, **params}, number)
    return post(body, ("Mcp-Method", method), ("Mcp-Name", task))


def get(task: str) -> Request:
    """Make a poll."""
    return request_of("tasks/get", task)


def update(task: str, answers: Json) -> Request:
    """Make a request that answers a task's questions."""
    return request_of("tasks/update", task, inputResponses=answers)


def cancel(task: str) -> Request:
    """Make a request that cancels a task."""
    return request_of("tasks/cancel", task)


CALL = tool("build", env="prod")


def task_steps(task: str, answer: Json = YES, *after: Step) -> list[Step]:
    """Make the script of a call that is a task, and asks once."""
    key = f"{task}:a1"
    return [
        (CALL, created(task)),
        (get(task), state(task, statusMessage="Half\ndone")),
        (get(task), state(task, "input_required", key)),
        (update(task, {key: answer}), {}),
        *(after or ((get(task), state(task, "completed", result=text("built"))),)),
    ]
