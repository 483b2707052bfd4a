"""The demo's client: without an SDK, so that it sees every byte."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from mrtr_cassette.core.protocol.calls import NAMED_BY
from mrtr_cassette.core.protocol.dialect import recognise
from mrtr_cassette.demo.calls import DemoCall

_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "mrtr-cassette-demo", "version": "1.0.0"},
    "io.modelcontextprotocol/clientCapabilities": {
        "elicitation": {"form": {}, "url": {}},
        "sampling": {},
        "roots": {},
    },
}


@dataclass(frozen=True, slots=True)
class Received:
    """A response as the client saw it.

    Attributes:
        body: all its bytes.
        state: the request state that it issues.
        asked: the inputs that it requires, as text.
    """

    status: int
    body: bytes
    message: dict[str, Any]
    state: str | None
    asked: str


class DemoClient:
    """A client without an SDK that sees every byte."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        """Connect to a URL; ids are counted from 1."""
        self._http = http
        self._url = url
        self._id = 0

    async def converse(self, call: DemoCall) -> list[Received]:
        """Make a call and answer whatever it asks, until it ends."""
        received = await self._send(call, {})
        responses = [received]
        while (ask := recognise(received.message.get("result"))) is not None:
            retry: dict[str, Any] = {}
            if ask.input_requests:
                retry["inputResponses"] = {key: call.answers[key] for key in ask.input_requests}
            if ask.request_state is not None:
                retry["requestState"] = ask.request_state + ("x" if call.tampers else "")
            received = await self._send(call, retry)
            responses.append(received)
        return responses

    async def _send(self, call: DemoCall, retry: Mapping[str, Any]) -> Received:
        self._id += 1
        params: dict[str, Any] = {NAMED_BY[call.method]: call.name}
        if call.arguments:
            params["arguments"] = call.arguments
        params |= retry
        params["_meta"] = {**_META, "progressToken": self._id}
        message = {"jsonrpc": "2.0", "id": self._id, "method": call.method, "params": params}
        headers = {
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": call.method,
            "Mcp-Name": call.name,
        }
        async with self._http.post(self._url, data=orjson.dumps(message), headers=headers) as got:
            body = await got.read()
            is_stream = got.content_type == "text/event-stream"
            answer = orjson.loads(_last_event(body) if is_stream else body)
            ask = recognise(answer.get("result"))
            return Received(
                got.status,
                body,
                answer,
                ask.request_state if ask is not None else None,
                ", ".join(f"{k} ({r.kind})" for k, r in ask.input_requests.items()) if ask else "",
            )


def _last_event(body: bytes) -> bytes:
    return body.strip().rpartition(b"data: ")[2]
