"""A client of `mrtr-cassette serve`, as a test suite in any language would write one."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from processes import PROGRAM, Listening, listening

JSON = MappingProxyType({"Content-Type": "application/json"})


class Answer(NamedTuple):
    """What a control request was answered with."""

    status: int
    json: dict[str, Any]

    @property
    def error(self) -> str:
        return str(self.json["error"])


@dataclass(slots=True)
class Serve:
    """A running `mrtr-cassette serve`."""

    process: Listening

    @property
    def url(self) -> str:
        return self.process.url

    def request(
        self,
        method: str,
        path: str = "",
        body: Any = None,
        headers: Mapping[str, str] = JSON,
    ) -> Answer:
        """Send a control request; a body that is no text is sent as JSON."""
        data = body if isinstance(body, str | None) else json.dumps(body)
        answer = self.exchange(method, f"/.mrtr/plays{path}", data, headers)
        return Answer(answer[0], json.loads(answer[1]))

    def exchange(
        self, method: str, target: str, body: str | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        """Send any request; return the status and the body of the response."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc)
        try:
            connection.request(method, target, body, dict(headers))
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def begin(self, cassette: str | list[str], **options: Any) -> dict[str, Any]:
        """Begin a play."""
        answer = self.request("POST", body={"cassette": cassette, **options})
        assert answer.status == 201, answer
        return answer.json

    def report(self, play: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a play came to so far."""
        return self.request("GET", f"/{play['id']}").json

    def end(self, play: Mapping[str, Any], outcome: str = "passed") -> dict[str, Any]:
        """End a play; return its last report."""
        answer = self.request("DELETE", f"/{play['id']}", {"outcome": outcome})
        assert answer.status == 200, answer
        return answer.json


@contextmanager
def serving(
    folder: Path,
    *options: str,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Serve]:
    """Serve the cassettes of a folder until the block ends."""
    variables = {"CI": "", "MRTR_CASSETTE_MODE": "", **environment}
    command = (*PROGRAM, "serve", str(folder), "--port", "0", *options)
    with listening(command, environment=variables) as process:
        yield Serve(process)
