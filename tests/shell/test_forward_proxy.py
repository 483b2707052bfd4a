"""Facts about proxies of the environment: an upstream is reached through them, as by any client."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import DEVNULL, run
from urllib.parse import urlsplit

import pytest
from harness import http, looped, post, taping
from messages import message, result
from standin import (
    Body,
    Head,
    Received,
    Upstream,
    Visit,
    chunk,
    json_response,
    read_head,
    response,
    stream_head,
    upstream,
)
from yarl import URL

from mrtr_cassette.errors import UsageError
from mrtr_cassette.options import RecordOptions
from mrtr_cassette.shell.http.client import forward_proxy
from mrtr_cassette.shell.runs.recording import recording

PASSWORD = "Zx81-qwertzuiop"
USER = f"me:{PASSWORD}%40"
AUTHORIZATION = "Basic bWU6Wng4MS1xd2VydHp1aW9wQA=="


@dataclass
class Office:
    """A forward proxy; `refusal` is what it answers in the place of all else."""

    refusal: bytes = b""
    url: str = ""
    heads: list[Head] = field(default_factory=list)

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Serve one connection, which leads to one server."""
        head = await read_head(reader)
        self.heads.append(head)
        method, target, version = head.line.split()
        if self.refusal:
            writer.write(self.refusal)
            writer.close()
            return

        parts = urlsplit(f"//{target}" if method == "CONNECT" else target)
        there, to_server = await asyncio.open_connection(parts.hostname, parts.port)
        back = asyncio.ensure_future(passed(there, writer))
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\nVia: office\r\n\r\n")
            await passed(reader, to_server)

        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while method != "CONNECT":
                method, target, version = head.line.split()
                path = target.removeprefix(f"http://{parts.netloc}")
                kept = [
                    f"{name}: {value}"
                    for name, value in head.without("Proxy-Authorization")
                ]

                lines = [f"{method} {path} {version}", *kept, "", ""]
                body = await Body(reader, head, is_empty=False).rest()
                to_server.write("\r\n".join(lines).encode() + body)
                head = await read_head(reader)
                self.heads.append(head)

        back.cancel()
        to_server.close()
        writer.close()


async def passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on what comes."""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def office(refusal: bytes = b"") -> AsyncIterator[Office]:
    """Run a proxy."""
    proxy = Office(refusal)
    async with await asyncio.start_server(proxy.serve, "127.0.0.1", 0) as server:
        proxy.url = f"http://{USER}@127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield proxy


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a certificate of localhost, which has its key beside it."""
    path = tmp_path_factory.mktemp("tls") / "certificate.pem"
    making = (
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
        "-nodes", "-days", "1", "-subj", "/CN=localhost", "-addext",
        "subjectAltName=DNS:localhost", "-keyout", path.with_name("key.pem"), "-out", path,
    )  # fmt: skip

    run(making, check=True, stderr=DEVNULL)

    return path


def tls_of(certificate: Path) -> ssl.SSLContext:
    """Return how a server with a certificate speaks TLS."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    return context


async def script(visit: Visit) -> None:
    """Answer a call with a stream, anything else with JSON."""
    if b"tools/call" in visit.request.body:
        await visit.send(
            stream_head(), chunk(b": first\n\n"), chunk(b"data: {}\n\n"), chunk(b"")
        )
    else:
        await visit.send(
            json_response(result({}, id=1), "X-Kept: yes", "X-Kept: twice")
        )


async def conversed(
    server: Upstream, path: Path, certificate: Path | None
) -> list[object]:
    """Record a conversation; return what the client got, and what the server."""
    options = RecordOptions(ca_file=None if certificate is None else str(certificate))
    async with recording(server.url, path, options) as recording_run:
        answers = [
            await post(recording_run.url, message("ping"), "X-Mine: 1"),
            await post(recording_run.url, message("tools/call", {"name": "a"})),
            await http("HEAD", recording_run.url, target="/other?a=%20b"),
        ]

    seen: list[Received] = [*server.received]
    server.received.clear()
    return [[(answer.head, answer.body, answer.is_whole) for answer in answers], seen]


@pytest.mark.parametrize(
    "variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "https_proxy"]
)
@looped
async def test_bytes_are_the_same_with_and_without_a_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, certificate: Path, variable: str
) -> None:
    """For both sides; and what the proxy wants to know stays between it and us."""
    used = certificate if variable == "https_proxy" else None
    tls = None if used is None else tls_of(used)
    async with upstream(script, tls=tls) as server, office() as proxy:
        direct = await conversed(server, tmp_path / "direct.json", used)
        monkeypatch.setenv(variable, proxy.url)

        assert await conversed(server, tmp_path / "c.json", used) == direct

        target = server.authority if used else f"http://{server.authority}/mcp"
        method = "CONNECT" if used else "POST"
        monkeypatch.setenv("NO_PROXY", "other, 127.0.0.0/8, .localhost")
        seen = [*proxy.heads]

        assert await conversed(server, tmp_path / "no.json", used) == direct

    assert seen[0].line == f"{method} {target} HTTP/1.1"
    assert {*seen[0].values("proxy-authorization")} == {AUTHORIZATION}
    assert proxy.heads == seen

    recorded = (tmp_path / "c.json").read_bytes()

    assert PASSWORD.encode() not in recorded
    assert b"127.0.0.1" not in recorded or used is None


@looped
async def test_certificate_that_is_not_verified_is_told_with_the_ways_out(
    tmp_path: Path, certificate: Path
) -> None:
    """The options that verify it, or any, are named."""
    options = RecordOptions(publish_anyway=True)
    async with (
        upstream(script, tls=tls_of(certificate)) as server,
        recording(server.url, tmp_path / "c.json", options) as recording_run,
    ):
        answer = await post(recording_run.url, message("ping"))

    said = str(answer.json["error"]["message"])

    assert "gave no response: its certificate is not verified (self" in said
    assert "the option ca_file" in said
    assert "the option insecure" in said


REFUSED = response(b"", status="407 Proxy Authentication Required")


@pytest.mark.parametrize(
    ("scheme", "refusal", "reason"),
    [
        (
            "https",
            REFUSED,
            "refused to connect to server.example:443: 407 proxy authentication",
        ),
        ("https", b"HTTP/1.1 403 No\x1b[2J\r\n\r\n", "server.example:443: 403 no"),
        ("https", b"", "connection refused"),
        ("http", REFUSED, "it refused: 407 proxy authentication required"),
        ("http", b"nonsense\r\n\r\n", "no http response"),
        ("http", b"", "connection refused"),
    ],
)
@looped
async def test_proxy_that_fails_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    scheme: str,
    refusal: bytes,
    reason: str,
) -> None:
    """Without its password, in the response, the log, and everything on the disk."""
    log: list[str] = []
    async with office(refusal) as proxy:
        url = proxy.url if refusal else f"http://{USER}@127.0.0.1:9"
        monkeypatch.setenv(f"{scheme}_proxy", url)
        place = f"{scheme}://server.example/mcp"
        options = RecordOptions(log=log.append, publish_anyway=True)
        async with recording(place, tmp_path / "c.json", options) as recording_run:
            answer = await post(recording_run.url, message("ping"))

    said = str(answer.json["error"]["message"])

    assert answer.status == 502
    assert f"through the proxy {url.replace(f'{USER}@', '')}: " in said
    assert reason in said.lower()

    for text in (said, *log):
        assert "\x1b" not in text
        assert PASSWORD not in text


def test_proxy_is_found_as_other_clients_find_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The more exact variable and the lower-case one come first; what is excluded has none."""
    monkeypatch.setenv("ALL_PROXY", "socks5://me:secret@all:1080")
    monkeypatch.setenv("HTTP_PROXY", "http://upper:1")
    monkeypatch.setenv("http_proxy", "lower:3128")
    monkeypatch.setenv("no_proxy", "inner.example,10.0.0.0/8,localhost,other:8000")
    found = forward_proxy(URL("http://server.example/mcp"))

    assert found is not None
    assert (found.host, found.port, found.headers) == ("lower", 3128, ())

    for excluded in ("a.inner.example", "10.1.2.3", "localhost:8000", "other:8000"):
        assert forward_proxy(URL(f"http://{excluded}/mcp")) is None

    assert forward_proxy(URL("http://other:8001/mcp")) is not None

    with pytest.raises(
        UsageError, match="the proxy socks5://all of the environment"
    ) as refused:
        forward_proxy(URL("https://server.example/mcp"))

    assert "secret" not in str(refused.value)


@looped
async def test_no_proxy_stands_before_a_server_that_a_test_run_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else can reach it."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    async with taping(tmp_path / "c.json", script, started=()) as tape:
        assert (await post(tape.url, message("ping"))).status == 200
