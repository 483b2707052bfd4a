"""Mode verify: the cassettes of the selected tests are held to their upstreams, and no test runs.

Owns: which tests stand for a cassette, and the outcome of each.
Does not own: comparing (`shell.verifying`), pytest's side of fixtures (`pytest_plugin`).
Rule: of a test's fixtures only the cassette is made; nothing of it that might need a server runs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from mrtr_cassette.api import verify_with
from mrtr_cassette.core.report.verification import Verification
from mrtr_cassette.errors import CassetteError
from mrtr_cassette.testing.names import FIXTURES, check_spelling
from mrtr_cassette.testing.settings import Settings
from mrtr_cassette.testing.upstreams import is_on_pipes, start_upstream, upstream_of
from mrtr_cassette.testing.use import Run


def keep_cassettes(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests without a cassette, and leave the others no fixture but theirs."""
    with_cassette: list[pytest.Item] = []
    others: list[pytest.Item] = []
    for item in items:
        names: list[str] = getattr(item, "fixturenames", [])
        kept = [name for name in names if name in FIXTURES]
        if kept:
            # Tests with the same arguments share the list.
            item.fixturenames = kept  # type: ignore[attr-defined]
        (with_cassette if kept else others).append(item)
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = with_cassette


def verify_use(
    run: Run, path: Path, settings: Settings, ask_upstream: Callable[[], Any]
) -> Verification:
    """Hold an upstream to the cassette of a test.

    Args:
        ask_upstream: gives the upstream where the settings have none.

    Raises:
        MrtrCassetteError: the cassette, the upstream or a setting can't be used.
    """
    check_spelling(path)
    if not path.exists():
        raise CassetteError(
            path, "there is no such cassette to verify", hint="record it with --mrtr-mode=once"
        )
    upstream = upstream_of(settings, ask_upstream, f"hold to {path}")
    with ExitStack() as running:
        if is_on_pipes(upstream):
            return verify_with(path, upstream, settings.verify)
        started = start_upstream(upstream, run.applications, run.cwd, running)
        return verify_with(path, started.url, settings.verify, started.arguments or ())
