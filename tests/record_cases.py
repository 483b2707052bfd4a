"""Write the conversations of the SDKs' own clients and servers as cases, bytes as they passed.

    python tests/record_cases.py

Each flow of `tests/peers` that one SDK's client has with its server becomes a file in
`tests/data/conversations`, which the tests record and replay without an SDK.
"""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

from goldens import DATA
from processes import SIDES, Side, install_node_packages, listening, peer, record_command, run

from mrtr_cassette.core.exchange.recorded import RecordedExchange
from mrtr_cassette.core.wire.http import Headers
from mrtr_cassette.core.wire.jsonbytes import Span, find_spans, splice
from mrtr_cassette.core.wire.sse import read_event
from mrtr_cassette.shell.cassette_file import load_cassette

FLOWS = (
    *("list", "add", "deploy", "deploy-declined", "tag-release", "provision", "wipe-cache"),
    *("release-train", "everything", "build", "count", "ask-late", "release-notes"),
    *("deployment", "plain"),
)
_ORDINALS = (b"first", b"second", b"third", b"fourth")
_STATE = ("params", "requestState"), ("result", "requestState")
_TOKEN = ("params", "_meta", "progressToken"), ("params", "progressToken")


class Marks:
    """What differs from one repetition of a conversation to the next, as a case marks it."""

    def __init__(self) -> None:
        """Know no state."""
        self._states: dict[bytes, bytes] = {}

    def marked(self, message: bytes) -> bytes:
        """Return one JSON-RPC message with marks for its id, its progress token and its states."""
        spans = find_spans(message, [("id",), *_STATE, *_TOKEN])
        replaced = [(span, "«id»".encode()) for span in spans.get(("id",), ())]
        for path in _TOKEN:
            replaced += [(span, "«token»".encode()) for span in spans.get(path, ())]
        for path in _STATE:
            for span in spans.get(path, ()):
                state = message[span.start + 1 : span.end - 1]
                name = self._states.setdefault(state, _ORDINALS[len(self._states)])
                inside = Span(span.start + 1, span.end - 1)
                replaced.append((inside, "«state ".encode() + name + "»".encode()))
        return splice(message, replaced)


def sections(exchanges: list[RecordedExchange]) -> Iterator[str]:
    """Yield the sections of a case."""
    marks = Marks()
    for number, exchange in enumerate(exchanges, start=1):
        request, response = exchange.request, exchange.response
        assert response is not None
        yield f"--- request {number}\n{request.method} {request.target}\n"
        yield _headers(request.headers) + _text(marks.marked(request.body)) + "\n"
        yield f"--- response {number}\n{response.status}\n{_headers(response.headers)}"
        if not response.is_event_stream:
            yield _text(marks.marked(response.body) if response.body else b"") + "\n"
            continue
        for index, piece in enumerate(response.pieces):
            event = read_event(piece.raw, first=index == 0)
            raw = piece.raw
            if event.data:
                at = raw.index(event.data)
                raw = raw[:at] + marks.marked(event.data) + raw[at + len(event.data) :]
            yield _text(raw)


def _headers(headers: Headers) -> str:
    kept = (each for each in headers if each[0].lower() not in {"content-length", "connection"})
    return "".join(f"{name.title()}: {value}\n" for name, value in kept) + "\n"


def _text(raw: bytes) -> str:
    return raw.decode().replace("\r\n", "␍\n")


def write_case(side: Side, flow: str, folder: Path) -> None:
    """Record a flow, and write it down."""
    cassette = folder / f"{side}-{flow}.json"
    with listening((*peer("server", side), "--port", "0"), signal.SIGTERM) as server:
        client = (*peer("client", side), "--flow", flow)
        states = ("--request-state", "verbatim")
        done = run(record_command(server.url, cassette, *states, "--", *client))
    assert done.code == 0, done.stderr
    exchanges = [
        exchange for each in load_cassette(cassette).interactions for exchange in each.exchanges
    ]
    exchanges.sort(key=lambda exchange: exchange.number or 0)
    shows = f"# What the {side} SDK's client and server say to each other: {flow}.\n"
    text = shows + "".join(sections(exchanges))
    text = text.replace(server.url.removesuffix("/mcp").removeprefix("http://"), "127.0.0.1:8700")
    path = DATA / "conversations" / f"{side}-sdk-{flow}.case"
    path.write_text(text)


def main() -> None:
    """Write all of them."""
    install_node_packages()
    with tempfile.TemporaryDirectory() as folder:
        for side in SIDES:
            for flow in FLOWS:
                write_case(side, flow, Path(folder))


if __name__ == "__main__":
    main()
