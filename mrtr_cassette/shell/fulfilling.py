"""Waiting for those who answer an ask: the pace, an endpoint, a person.

Owns: asking whoever is to be asked next.
Does not own: who that is and what becomes of the answers (`core.answers`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from mrtr_cassette.core.answers.fulfilment import AskEndpoint, AskPerson
from mrtr_cassette.core.answers.rounds import Rounds
from mrtr_cassette.core.drive.conversation import Answered, LiveAsk, LivePush, Posted
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.shell.answers_endpoint import AnswersEndpoint

AskThePerson = Callable[[str, InputRequest], Awaitable[Any]]
"""Asks a person one request for input, and returns the answer or None."""


@dataclass(frozen=True, slots=True)
class Answerers:
    """Those who are waited for.

    Attributes:
        endpoint: the endpoint, or None.
        ask_person: asks a person, or None.
    """

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
                    return rounds.concluded(ask, ended)
