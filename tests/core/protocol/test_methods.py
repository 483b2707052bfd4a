"""Facts about the table of methods."""

from __future__ import annotations

import re
from pathlib import Path

from mrtr_cassette.core.protocol.methods import METHODS, Method, method_of

OF_BOTH = """
completion/complete elicitation/create notifications/cancelled notifications/message
notifications/progress notifications/prompts/list_changed notifications/resources/list_changed
notifications/resources/updated notifications/tools/list_changed prompts/get prompts/list
resources/list resources/read resources/templates/list roots/list sampling/createMessage tools/call
tools/list
"""
OF_2025 = """
initialize logging/setLevel notifications/elicitation/complete notifications/initialized
notifications/roots/list_changed notifications/tasks/status ping resources/subscribe
resources/unsubscribe tasks/cancel tasks/get tasks/list tasks/result
"""
OF_2026 = "notifications/subscriptions/acknowledged server/discover subscriptions/listen"
OF_EXTENSIONS = """
notifications/tasks resources/directory/read skills/get skills/list tasks/update
"""
"""Those of Tasks and Skills; Apps have none of their own."""


def test_table_has_the_methods_of_the_specification() -> None:
    """It has each of both revisions and of the extensions, and no other."""
    assert METHODS.keys() == {*f"{OF_BOTH} {OF_2025} {OF_2026} {OF_EXTENSIONS}".split()}


def test_method_that_is_in_no_table_is_a_write() -> None:
    """Nothing names it, and it asks for nothing."""
    assert method_of("made/up/list") == method_of("") == Method("other")


def test_the_guide_lists_the_methods_that_read() -> None:
    """Users find there which calls may be repeated."""
    guide = Path(__file__).parents[3] / "docs" / "matching.md"
    listed = re.search(r"`--reads`, (.*?)\)", guide.read_text(encoding="utf-8"))

    assert listed is not None
    assert {*re.findall("`(.*?)`", listed[1])} == {n for n, each in METHODS.items() if each.reads}


def test_what_a_server_asks_for_is_no_call() -> None:
    """A request that a server sends is neither named nor played again."""
    asking = {method.asks_for: method for method in METHODS.values() if method.asks_for}

    assert asking.keys() == {"elicitation", "roots", "sampling"}
    assert not any(method.named_by or method.reads for method in asking.values())
