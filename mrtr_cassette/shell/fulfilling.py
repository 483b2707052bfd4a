"""Waiting for those who answer an ask: the pace, an endpoint, a person."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mrtr_cassette.core.answers.fulfilment import AskEndpoint, AskPerson, Sources
from mrtr_cassette.core.answers.rounds import CallTurn, Rounds
from mrtr_cassette.core.drive.conversation import Answered, LiveAsk, LivePush, Posted
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.report.calls import turn_event, turn_line
from mrtr_cassette.shell.announcing import Announcer

if TYPE_CHECKING:
    from mrtr_cassette.shell.answers_endpoint import AnswersEndpoint

AskThePerson = Callable[[str, InputRequest], Awaitable[Any]]
"""Asks a person one request for input, and returns the answer or None."""


@dataclass(frozen=True, slots=True)
class Answerers:
    """Those who are waited for.

    Attributes:
        announcer: says who answered each turn; None where nobody has to know.
        endpoint: the endpoint, or None.
        ask_person: asks a person, or None.
    """

    announcer: Announcer | None = None
    endpoint: AnswersEndpoint | None = None
    ask_person: AskThePerson | None = None

    async def answer(self, rounds: Rounds, ask: LiveAsk | LivePush) -> Answered | Posted | None:
        """Return the answer to an ask; None where there is none."""
        fulfilment = rounds.asked(ask)
        if fulfilment is None:
            return None
        await asyncio.sleep(rounds.pause_s(ask))
        while True:
            match fulfilment.next():
                case AskEndpoint(body) if self.endpoint is not None:
                    await self.endpoint.ask(body, fulfilment)
                case AskPerson(key, request):
                    answer = None if self.ask_person is None else self.ask_person(key, request)
                    fulfilment.person_answered(key, None if answer is None else await answer)
                case AskEndpoint():
                    raise AssertionError("unreachable because there is an endpoint to be asked")
                case ended:
                    reply = rounds.concluded(ask, ended)
                    self._tell(rounds.turns[-1])
                    return reply

    def _tell(self, turn: CallTurn) -> None:
        if self.announcer is not None:
            self.announcer.say(lambda: (turn_event(turn), turn_line(turn)))


@asynccontextmanager
async def answerers(
    sources: Sources,
    announcer: Announcer,
    ca_file: Path | None = None,
    *,
    verifies: bool = True,
    ask_person: AskThePerson | None = None,
) -> AsyncIterator[Answerers]:
    """Give those who answer for the sources, with the endpoint open where there is one.

    Args:
        ca_file: certificates that the endpoint is checked with, besides the system's.
        ask_person: asks a person, where the sources have one.

    Raises:
        UsageError: the endpoint's URL is none.
    """
    async with AsyncExitStack() as stack:
        endpoint = None
        if sources.file.rest is not None:
            # Most runs have no endpoint, and an HTTP client takes long to import.
            from mrtr_cassette.shell.answers_endpoint import answers_endpoint

            opening = answers_endpoint(sources.file.rest, ca_file, verifies=verifies)
            endpoint = await stack.enter_async_context(opening)
        yield Answerers(announcer, endpoint, ask_person)
