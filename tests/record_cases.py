"""Write the conversations of the SDKs' own clients and servers as cases, bytes as they passed.

    python tests/record_cases.py

Each flow of `tests/peers` that one SDK's client has with its server becomes a file in
`tests/data/conversations`, which the tests record and replay without an SDK.
"""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from both_eras import OVER_HTTP
from goldens import DATA
from processes import (
    SIDES,
    Side,
    install_node_packages,
    listening,
    peer,
    record_command,
    run,
)

from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.wire.http import Headers, Piece
from mrtr_cassette.core.wire.jsonbytes import Span, find_spans, splice
from mrtr_cassette.core.wire.sse import read_event
from mrtr_cassette.shell.files.cassettes import load_cassette

FLOWS = (
    "list",
    "add",
    "deploy",
    "deploy-declined",
    "tag-release",
    "provision",
    "wipe-cache",
    "release-train",
    "everything",
    "build",
    "count",
    "ask-late",
    "release-notes",
    "deployment",
    "plain",
)
LEGACY_FLOW = "plan"
"""A flow of the 2025-11-25 revision, whose server asks by pushed requests."""

_ORDINALS = (b"first", b"second", b"third", b"fourth")
_STATE = ("params", "requestState"), ("result", "requestState")
_TOKEN = ("params", "_meta", "progressToken"), ("params", "progressToken")


class Marks:
    """What differs from one repetition of a conversation to the next, as a case marks it."""

    def __init__(self) -> None:
        self._states: dict[bytes, bytes] = {}

    def request(self, message: bytes) -> bytes:
        """Return a client's message with marks; a posted answer has the server's id."""
        is_answer = message and not find_spans(message, [("method",)])
        return self._marked(message, () if is_answer else (("id",),))

    def response(self, message: bytes) -> bytes:
        """Return a server's message with marks; a pushed request has an id of the server's own."""
        is_pushed = message and find_spans(message, [("method",)])
        return self._marked(message, () if is_pushed else (("id",),))

    def _marked(self, message: bytes, ids: Sequence[tuple[str, ...]]) -> bytes:
        if not message:
            return message

        replaced = []
        for path, span in find_spans(message, [*ids, *_STATE, *_TOKEN]):
            if path == ("id",):
                replaced.append((span, "«id»".encode()))
            elif path in _TOKEN:
                replaced.append((span, "«token»".encode()))
            else:
                inside = Span(span.start + 1, span.end - 1)
                state = inside.slice_of(message)
                name = self._states.setdefault(state, _ORDINALS[len(self._states)])
                replaced.append((inside, "«state ".encode() + name + "»".encode()))

        return splice(message, replaced)


def sections(exchanges: list[RecordedExchange]) -> Iterator[str]:
    """Yield the sections of a case, in the order in which requests and events came."""
    marks = Marks()
    steps: list[tuple[int, bool, float, RecordedExchange, list[Piece]]] = []
    for number, exchange in enumerate(exchanges, start=1):
        response = exchange.response
        assert response is not None
        steps.append((number, False, 0, exchange, []))
        pieces = response.pieces or (Piece(b"", 0, number),)
        for after, group in groupby(pieces, key=lambda piece: piece.arrived_count):
            parts = list(group)
            steps.append((after, True, parts[0].at_ms, exchange, parts))

    steps.sort(key=lambda step: step[:3])
    begun: set[int] = set()
    for _, is_response, _, exchange, parts in steps:
        number = exchanges.index(exchange) + 1
        if not is_response:
            request = exchange.request
            yield f"--- request {number}\n{request.method} {request.target}\n"
            yield _headers(request.headers) + _text(marks.request(request.body)) + "\n"
            continue

        response = exchange.response
        assert response is not None
        goes_on = " goes on" if number in begun else ""
        yield f"--- response {number}{goes_on}\n{response.status}\n{_headers(response.headers)}"
        if not response.is_event_stream:
            yield _text(marks.response(response.body)) + "\n"
        else:
            yield from (_event(part.raw, marks, is_first=not begun) for part in parts)

        begun.add(number)


def _event(raw: bytes, marks: Marks, *, is_first: bool) -> str:
    event = read_event(raw, first=is_first)
    if event.data:
        at = raw.index(event.data)
        raw = raw[:at] + marks.response(event.data) + raw[at + len(event.data) :]

    return _text(raw)


def _headers(headers: Headers) -> str:
    """Return headers as a case has them; the session id is a state that a replay issues."""
    kept = {
        name.title(): "«state session»" if name.lower() == "mcp-session-id" else value
        for name, value in headers
        if name.lower() not in {"content-length", "connection"}
    }
    return "".join(f"{name}: {value}\n" for name, value in kept.items()) + "\n"


def _text(raw: bytes) -> str:
    return raw.decode().replace("\r\n", "␍\n")


def write_case(side: Side, flow: str, folder: Path) -> None:
    """Record a flow, and write it down."""
    is_legacy = flow == LEGACY_FLOW
    cassette = folder / f"{side}-{flow}.json"
    with listening(
        OVER_HTTP if is_legacy else (*peer("server", side), "--port", "0"),
        signal.SIGTERM,
    ) as server:
        client = (
            *peer("client", side),
            "--flow",
            flow,
            *(("--legacy",) if is_legacy else ()),
        )

        states = ("--request-state", "verbatim")
        done = run(record_command(server.url, cassette, *states, "--", *client))

    assert done.code == 0, done.stderr
    exchanges: list[RecordedExchange] = []
    for interaction in load_cassette(cassette).interactions:
        exchanges += interaction.unshared_exchanges

    exchanges.sort(key=lambda exchange: exchange.number or 0)
    shows = f"# What the {side} SDK's client and server say to each other: {flow}.\n"
    if is_legacy:
        shows = f"# What the {side} SDK's client of 2025 and a server of both eras say: {flow}.\n"

    text = shows + "".join(sections(exchanges))
    text = text.replace(
        server.url.removesuffix("/mcp").removeprefix("http://"), "127.0.0.1:8700"
    )
    path = DATA / "conversations" / f"{side}-sdk-{flow}.case"
    path.write_text(text)


def main() -> None:
    """Write all of them."""
    install_node_packages()
    with tempfile.TemporaryDirectory() as folder:
        for side in SIDES:
            for flow in (*FLOWS, LEGACY_FLOW):
                write_case(side, flow, Path(folder))


if __name__ == "__main__":
    main()
