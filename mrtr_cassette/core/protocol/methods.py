"""The methods that MCP 2025-11-25 and 2026-07-28 name, for whoever counts by method."""

from __future__ import annotations

from typing import Final

from mrtr_cassette.errors import printable

OTHER: Final = "other"
"""Stands for a method that MCP does not name, and for what is no call."""
METHODS: Final = (
    "completion/complete",
    "elicitation/create",
    "initialize",
    "logging/setLevel",
    "notifications/cancelled",
    "notifications/elicitation/complete",
    "notifications/initialized",
    "notifications/message",
    "notifications/progress",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
    "notifications/resources/updated",
    "notifications/roots/list_changed",
    "notifications/subscriptions/acknowledged",
    "notifications/tasks/status",
    "notifications/tools/list_changed",
    "ping",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/subscribe",
    "resources/templates/list",
    "resources/unsubscribe",
    "roots/list",
    "sampling/createMessage",
    "server/discover",
    "subscriptions/listen",
    "tasks/cancel",
    "tasks/get",
    "tasks/list",
    "tasks/result",
    "tools/call",
    "tools/list",
    OTHER,
)
_KNOWN: Final = frozenset(METHODS)
_WITH_TARGET: Final = frozenset({"tools/call", "prompts/get"})


def known_method(method: str) -> str:
    """Return a method, or what stands for those that MCP does not name."""
    return method if method in _KNOWN else OTHER


def target_of(method: str, name: str) -> str:
    """Return the tool or the prompt that a call names, printable; a resource's URI is none."""
    return printable(name) if method in _WITH_TARGET else ""
