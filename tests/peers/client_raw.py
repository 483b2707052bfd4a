"""A client without any library: it calls the demo server over sockets and prints what it got.

    MRTR_CASSETTE_URL=http://127.0.0.1:8722/mcp python tests/peers/client_raw.py [--offline]

Each exchange is one line, its request states left out, so that two runs can be compared. With
`--offline` it first makes sure that there is no network but loopback.
"""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import sys
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

ELSEWHERE = ("192.0.2.1", 9)
"""An address that is nobody's (RFC 5737)."""
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
}
YES = {"action": "accept", "content": {"confirm": True}}
CALLS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("add", {"a": 1, "b": 2}, {}),
    ("deploy", {"env": "production"}, {"confirm": YES}),
    ("tag-release", {"tag": "v1"}, {"confirm": {"action": "decline"}}),
    (
        "wipe-cache",
        {},
        {"confirm": YES, "scope": {"action": "accept", "content": {"scope": "sessions"}}},
    ),
    ("build", {"target": "docs"}, {}),
    ("count", {"to": 3}, {}),
    ("ask-late", {"steps": 2}, {"confirm": YES}),
]


def check_offline() -> None:
    """Fail unless loopback is the only network."""
    names = [name for _, name in socket.if_nameindex()]
    if names != ["lo"]:
        sys.exit(f"there are other networks than loopback: {names}")
    try:
        socket.create_connection(ELSEWHERE).close()
    except OSError as error:
        if error.errno == errno.ENETUNREACH:
            return
        sys.exit(f"{ELSEWHERE} should be unreachable: {error}")
    sys.exit(f"{ELSEWHERE} was reached")


def send(connection: HTTPConnection, path: str, message: dict[str, Any]) -> dict[str, Any]:
    """Do one exchange, print it, and return the response."""
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
    }
    connection.request("POST", path, json.dumps(message), headers)
    response = connection.getresponse()
    body = response.read()
    shown = re.sub(rb'("requestState":")[^"]+', rb"\1", body)
    print(response.status, response.headers["Content-Type"], shown)
    data = body.strip().rpartition(b"data: ")[2]
    answer: dict[str, Any] = json.loads(data)
    return answer


def main() -> None:
    """Make all calls, answering what they ask."""
    if "--offline" in sys.argv:
        check_offline()
    url = urlsplit(os.environ["MRTR_CASSETTE_URL"])
    connection = HTTPConnection(url.hostname or "", url.port)
    identity = 0
    for name, arguments, answers in CALLS:
        retry: dict[str, Any] = {}
        while True:
            identity += 1
            meta = META | {"progressToken": identity}
            params = {"name": name, "arguments": arguments, **retry, "_meta": meta}
            message = {"jsonrpc": "2.0", "id": identity, "method": "tools/call", "params": params}
            result = send(connection, url.path, message).get("result", {})
            if result.get("resultType") != "input_required":
                break
            retry = {}
            if "requestState" in result:
                retry["requestState"] = result["requestState"]
            if "inputRequests" in result:
                retry["inputResponses"] = {key: answers[key] for key in result["inputRequests"]}
    connection.close()


if __name__ == "__main__":
    main()
