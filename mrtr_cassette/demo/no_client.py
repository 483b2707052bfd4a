"""The demo's last part: a tool that asks is recorded and replayed without a client."""

from __future__ import annotations

from pathlib import Path

from mrtr_cassette.call_options import CallOptions
from mrtr_cassette.core.answers.arguments import wanted_of
from mrtr_cassette.core.answers.fulfilment import Sources
from mrtr_cassette.core.answers.rules import answers_of
from mrtr_cassette.core.report.calls import CallResult
from mrtr_cassette.shell.announcing import Announcer
from mrtr_cassette.shell.calling import call

CALL = ("deploy", "env=production")
RULES = {
    "rule": [{"message": "Deploy to production?", "action": "accept", "content": {"confirm": True}}]
}


async def call_without_client(url: str, cassette: Path | None = None) -> CallResult:
    """Call a tool that asks, answered by a rule; record it where a cassette is named."""
    sources = Sources(file=answers_of(RULES, "the demo's rules"))
    return await call(url, wanted_of(CALL), sources, CallOptions(), Announcer(), cassette=cassette)
