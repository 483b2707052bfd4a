"""The demo server's request states: signed, bound to one call, good for a limited time.

Source: MCP 2026-07-28, "Multi Round-Trip Requests", server requirements.
"""

from __future__ import annotations

import base64
import hmac
import json
import secrets
import time

from mrtr_cassette.demo.rpc import INVALID_PARAMS, JsonObject, RpcError, dump, object_of


class StateSigner:
    """Signs request states, each bound to one call and a time to live, with a key of its own."""

    def __init__(self, lifetime_s: float) -> None:
        self._key = secrets.token_bytes(32)
        self._lifetime_s = lifetime_s

    def sign(self, call: str, state: JsonObject) -> str:
        """Return the request state: readable, not to be altered, and another one each time."""
        fields = [secrets.token_hex(8), time.monotonic() + self._lifetime_s, state]
        payload = base64.urlsafe_b64encode(dump(fields)).decode()
        return f"{payload}.{self._mac(call, payload)}"

    def open(self, call: str, request_state: object) -> JsonObject:
        """Return the state that `sign` put into `request_state` for the same call."""
        payload, _, mac = str(request_state).rpartition(".")
        if hmac.compare_digest(dump(mac), dump(self._mac(call, payload))):
            _, expires, state = json.loads(base64.urlsafe_b64decode(payload))
            if time.monotonic() < expires:
                return object_of(state)
        raise RpcError(INVALID_PARAMS, "Invalid or expired requestState")

    def _mac(self, call: str, payload: str) -> str:
        return hmac.digest(self._key, dump([call, payload]), "sha256").hex()
