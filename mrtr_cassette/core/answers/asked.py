"""What a live server asks, with what a source of answers may know of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mrtr_cassette.core.protocol.calls import Call
from mrtr_cassette.core.protocol.dialect import InputRequest, spelled_requests


@dataclass(frozen=True, slots=True)
class Asked:
    """The requests for input of one turn.

    Attributes:
        method: JSON-RPC method of the call; empty where the server asks outside of any.
        name: the tool's or prompt's name, or the resource's URI.
        arguments: those of the call; None where it has none.
        turn: number of the turn, from 1.
        requests: what is asked, by the server's key.
    """

    method: str
    name: str
    arguments: Any
    turn: int
    requests: Mapping[str, InputRequest]

    def data(self) -> dict[str, Any]:
        """Return it for programs, with each request as the server spelled it."""
        return {
            "method": self.method,
            "name": self.name,
            "arguments": self.arguments,
            "turn": self.turn,
            "inputRequests": spelled_requests(self.requests),
        }

    def of(self, requests: Mapping[str, InputRequest]) -> Asked:
        """Return the same for some of its requests."""
        return replace(self, requests=requests)


def asked_in(call: Call, turn: int, requests: Mapping[str, InputRequest]) -> Asked:
    """Return what is asked in a turn of a call."""
    arguments = None if call.message is None else call.message.params.get("arguments")
    return Asked(call.method, call.name, arguments, turn, requests)
