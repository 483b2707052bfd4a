"""Whose turns the requests are that a server pushes, and which of them wait for an answer.

Rule: a push in a call's own stream belongs to that call. One on a listening stream belongs to the
call that is pending in its session; where there is none or more than one, to the stream itself. A
turn begins with the first push after all pushes before it were answered.
Source: MCP 2025-11-25, "Elicitation", "Sampling", "Roots"; docs/matching.md, "Linking".
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from mrtr_cassette.core.protocol.calls import Call
from mrtr_cassette.core.protocol.dialect import InputRequest, input_request
from mrtr_cassette.core.protocol.jsonrpc import Kind, Message
from mrtr_cassette.core.wire.http import ACCEPTED

_KINDS = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
_PLAIN_NAME = re.compile("[A-Za-z0-9_-]{1,64}")


@dataclass(slots=True)
class TurnKeys:
    """The keys of one turn's pushed requests.

    Attributes:
        unanswered: how many of these wait for an answer.
    """

    unanswered: int = 0
    _counts: Counter[str] = field(default_factory=Counter)

    def key_for(self, method: str) -> str:
        """Return the key of one more request, which is unanswered."""
        kind = _KINDS.get(method) or _last_part(method)
        self._counts[kind] += 1
        self.unanswered += 1
        return f"{kind}-{self._counts[kind]}"


def _last_part(method: str) -> str:
    name = method.rpartition("/")[2]
    return name if _PLAIN_NAME.fullmatch(name) else "request"


class OpenPush(NamedTuple):
    """A pushed request that waits for its answer.

    Attributes:
        exchange: number of the exchange in whose interaction it is asked.
        call: the request of that exchange.
        key: our name for it within its turn.
        request: what it asks.
        message: the request itself.
    """

    exchange: int
    call: Call
    key: str
    request: InputRequest
    message: Message


class OpenPushes:
    """The pushed requests of one recording that wait for their answers."""

    def __init__(self) -> None:
        self._pending: dict[str, dict[str | None, tuple[int, Call]]] = {}
        self._turns: dict[int, TurnKeys] = {}
        self._open: dict[tuple[str, str | None], OpenPush] = {}

    def request_arrived(self, number: int, session: str, call: Call) -> OpenPush | None:
        """Take the next request; return the push that it answers, which is open no more.

        Args:
            number: its place in arrival order.
            session: what it shares with all that belongs to its session.
            call: the request, read.
        """
        message = call.message
        if message is None or message.kind is not Kind.RESPONSE:
            call_id = _call_id(message)
            if call_id is not None:
                pending = self._pending.get(session)
                if pending is None:
                    pending = self._pending[session] = {}
                pending[call_id] = number, call
            return None
        push = self._open.pop((session, message.id), None)
        if push is not None and push.exchange in self._turns:
            self._turns[push.exchange].unanswered -= 1
        return push

    def is_answered_by(self, session: str, call: Call) -> bool:
        """Tell whether a request, which has not been taken yet, answers an open push."""
        message = call.message
        is_response = message is not None and message.kind is Kind.RESPONSE
        return is_response and (session, message and message.id) in self._open

    def said(self, number: int, session: str, call: Call, message: Message) -> OpenPush | None:
        """Take a message of a response; return what it asks, if it is a pushed request.

        Args:
            number: the exchange in whose response it stands.
            session: what that exchange shares with all that belongs to its session.
            call: the request of that exchange.
            message: the message.
        """
        if message.kind is Kind.RESPONSE:
            self._pending.get(session, {}).pop(message.id, None)
        if message.kind is not Kind.REQUEST:
            return None
        pending = self._pending.get(session, {})
        is_nobodys = _call_id(call.message) is None
        if is_nobodys and len(pending) == 1:
            ((number, call),) = pending.values()
            is_nobodys = False
        keys = self._turns.get(number)
        if keys is None or is_nobodys or not keys.unanswered:
            keys = self._turns[number] = TurnKeys()
        request = input_request(message.method, message.params)
        push = OpenPush(number, call, keys.key_for(message.method), request, message)
        self._open[session, message.id] = push
        return push

    def ended(self, number: int, session: str, call: Call, status: int) -> None:
        """Take the end of a response; where it was accepted only, the call goes on."""
        if self._turns:
            self._turns.pop(number, None)
        call_id = _call_id(call.message)
        if call_id is not None and status != ACCEPTED:
            self._pending.get(session, {}).pop(call_id, None)


def _call_id(message: Message | None) -> str | None:
    """Return the id of a call of the client's; None where the response to a request listens."""
    if message is None or message.kind is not Kind.REQUEST:
        return None
    return None if message.method == "subscriptions/listen" else message.id
