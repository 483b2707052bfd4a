"""What the benchmark's clients ask and its servers answer, as bytes.

Owns: the kinds of call, their requests and their answers, and HTTP/1.1 messages whole.
Does not own: sockets (`load`, `servers`), and what is measured (`bench`).
Rule: each request has an id of its own, and the answer repeats the number of the conversation, so
that a client can tell its answer from anybody else's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

PATH = "/mcp"
EVENTS = 50
MEGABYTE = 1024 * 1024
_SENTENCE = (
    b"The benchmark says the same few words again and again, until there are enough. "
)
_STATE_TAIL = b"x" * 160
"""Makes a request state about as long as a sealed one of the Python SDK is."""
_META = (
    b'"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
    b'"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1.0.0"},'
    b'"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}'
)


def _text(size: int) -> bytes:
    return (_SENTENCE * (size // len(_SENTENCE) + 1))[:size]


@dataclass(frozen=True)
class Kind:
    """One kind of call; its name is the name of the tool.

    Attributes:
        asks: how many asks stand between the request and the final response.
        events: how many events the answer has; 0 is plain JSON.
        padding: bytes of text in the answer.
        upload: bytes of text in the arguments.
        has_meta: the request has the `_meta` that both SDKs send.
        rest_after_s: seconds that the upstream waits after the first event.
    """

    name: str
    title: str
    asks: int = 0
    events: int = 0
    padding: int = 0
    upload: int = 0
    has_meta: bool = True
    rest_after_s: float = 0.0

    @cached_property
    def _text(self) -> bytes:
        return _text(self.padding)

    @cached_property
    def _template(self) -> bytes:
        """What all requests of this kind share, with places for id, number and retry."""
        fields = _META if self.has_meta else b""
        if self.events:
            fields += b',"progressToken":%d'
        text = b',"text":"%b"' % _text(self.upload) if self.upload else b""
        meta = b',"_meta":{%b}' % fields if fields else b""
        return (
            b'{"jsonrpc":"2.0","id":%%d,"method":"tools/call","params":{"name":"%b",'
            b'"arguments":{"number":%%d%b}%%b%b}}' % (self.name.encode(), text, meta)
        )

    def request(self, identity: int, number: int, state: bytes) -> bytes:
        """Return the body of a call, or of its retry where there is a state to echo."""
        retry = state and (
            b',"inputResponses":{"confirm":{"action":"accept","content":{"confirm":true}}},'
            b'"requestState":"%b"' % state
        )
        values: tuple[int | bytes, ...] = (identity, number, retry)
        return self._template % ((*values, identity) if self.events else values)

    def answer(
        self, identity: bytes, number: bytes, answered: int
    ) -> tuple[bytes, ...]:
        """Return the answer: one body, or the events of a stream.

        Args:
            identity: the request's id as JSON.
            number: which conversation it is.
            answered: how many asks of this conversation were answered.
        """
        if answered < self.asks:
            return (
                b'{"jsonrpc":"2.0","id":%b,"result":{"resultType":"input_required",'
                b'"inputRequests":{"confirm":{"method":"elicitation/create","params":'
                b'{"message":"Go on with %b?","requestedSchema":{"type":"object","properties":'
                b'{"confirm":{"type":"boolean"}},"required":["confirm"]}}}},'
                b'"requestState":"%d.%b.%b"}}'
                % (identity, number, answered + 1, number, _STATE_TAIL),
            )
        result = (
            b'{"jsonrpc":"2.0","id":%b,"result":{"content":[{"type":"text",'
            b'"text":"answer %b.%b"}],"isError":false,"resultType":"complete"}}'
            % (identity, number, self._text)
        )
        if not self.events:
            return (result,)
        told = (
            b'event: message\ndata: {"jsonrpc":"2.0","method":"notifications/progress","params":'
            b'{"progressToken":%b,"progress":%d,"total":%d,"message":"working"}}\n\n'
        )
        notifications = (
            told % (identity, n, self.events) for n in range(1, self.events)
        )
        return (*notifications, b"event: message\ndata: %b\n\n" % result)

    @property
    def content_type(self) -> str:
        """The media type of its answers."""
        return "text/event-stream" if self.events else "application/json"


PLAIN = Kind("plain", "plain calls")
BARE = Kind("bare", "calls without _meta", has_meta=False)
ROUNDS = Kind("rounds", "three-round calls with state", asks=2)
STREAM = Kind("stream", f"streams of {EVENTS} events", events=EVENTS)
PAUSED = Kind(
    "paused", "streams that pause after the first event", events=3, rest_after_s=0.005
)
LARGE = Kind("large", "answers of 1 MB", padding=MEGABYTE)
UPLOAD = Kind("upload", "requests of 1 MB", upload=MEGABYTE)
KINDS = {
    kind.name: kind for kind in (PLAIN, BARE, ROUNDS, STREAM, PAUSED, LARGE, UPLOAD)
}


def asked(message: Any) -> tuple[Kind, int]:
    """Return which kind of call a parsed request is, and how many asks it has answered."""
    params = message["params"]
    state = params.get("requestState")
    return KINDS[params["name"]], 0 if state is None else int(state[0])


def request_head(kind: Kind, host: str, length: int) -> bytes:
    """Return the head of a request, with the headers that both SDKs send."""
    return (
        f"POST {PATH} HTTP/1.1\r\nHost: {host}\r\nAccept: application/json, text/event-stream\r\n"
        "Content-Type: application/json\r\nMCP-Protocol-Version: 2026-07-28\r\n"
        f"Mcp-Method: tools/call\r\nMcp-Name: {kind.name}\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


class Incoming:
    """The bytes that come in on one connection, cut into HTTP/1.1 messages, one at a time."""

    def __init__(self) -> None:
        """Begin before the first message."""
        self.buffer = bytearray()
        self._body_at = 0
        self._end: int | None = None

    def feed(self, data: bytes) -> tuple[bytes, bytes] | None:
        """Take bytes; return head and body when a message is whole.

        Raises:
            ValueError: a message has neither a length nor chunks.
        """
        self.buffer += data
        if not self._body_at:
            at = self.buffer.find(b"\r\n\r\n")
            if at < 0:
                return None
            self._body_at = at + 4
            head = self.buffer[:at].lower()
            _, found, rest = head.partition(b"\r\ncontent-length:")
            if found:
                self._end = self._body_at + int(rest.partition(b"\r\n")[0])
            elif b"\r\ntransfer-encoding: chunked" not in head:
                raise ValueError(f"a message of unknown length: {bytes(head)!r}")
        if self._end is None:
            # No body of the benchmark has such bytes in it.
            if not self.buffer.endswith(b"\r\n0\r\n\r\n"):
                return None
            body = _joined(bytes(self.buffer[self._body_at :]))
        elif len(self.buffer) < self._end:
            return None
        else:
            body = bytes(self.buffer[self._body_at : self._end])
        head = bytes(self.buffer[: self._body_at])
        self.buffer.clear()
        self._body_at, self._end = 0, None
        return head, body


def _joined(chunked: bytes) -> bytes:
    parts = []
    at = 0
    while True:
        line_end = chunked.index(b"\r\n", at)
        size = int(chunked[at:line_end], 16)
        if not size:
            return b"".join(parts)
        parts.append(chunked[line_end + 2 : line_end + 2 + size])
        at = line_end + 2 + size + 2
