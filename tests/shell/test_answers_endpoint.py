"""Facts about an endpoint that gives answers: what it gets, each fault, proxies and TLS."""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
from pathlib import Path
from typing import Any

import pytest
from harness import looped
from standin import Visit, answering, json_response, response, upstream

from mrtr_cassette.core.answers.written import RestModel
from mrtr_cassette.errors import UsageError
from mrtr_cassette.shell.runs import answerers
from mrtr_cassette.shell.runs.answerers import answers_endpoint

YES = {"action": "accept"}
GOOD = json_response({"inputResponses": {"a": YES}})
ANSWERED = {"inputResponses": {"a": YES}}


async def outcome(
    url: str,
    *,
    secret: str = "",
    seconds: float = 5.0,
    ca_file: Path | None = None,
    **options: Any,
) -> Any:
    """Ask an endpoint one question; return what it replies as JSON, or why it doesn't."""
    headers = {"Authorization": f"Bearer {secret}"}
    rest = RestModel(url=url, timeout=seconds, headers=headers)
    async with answers_endpoint(rest, ca_file, **options) as ask:
        reply = await ask(b'{"asked":1}')

    return reply if isinstance(reply, str) else json.loads(reply)


@looped
async def test_endpoint_is_posted_to_with_its_headers() -> None:
    """As JSON, and what it replies is the answer; the user of its URL becomes a header."""
    async with upstream(answering(GOOD)) as server:
        assert await outcome(f"{server.url}?q=1", secret="s") == ANSWERED

    (received,) = server.received

    assert received.head.line == "POST /mcp?q=1 HTTP/1.1"
    assert received.head.values("content-type") == ["application/json"]
    assert received.head.values("authorization") == ["Bearer s"]
    assert received.body == b'{"asked":1}'


@looped
async def test_each_fault_is_told() -> None:
    """A redirect is not followed; a reply that breaks off, nonsense and silence are no replies."""

    async def silent(visit: Visit) -> None:
        await visit.left()

    cut = response(
        b"{", "Content-Type: application/json", "Content-Length: 99", length=False
    )
    for script, reason in (
        (
            answering(
                response(b"{}", "Location: http://127.0.0.1:1/", status="307 Go")
            ),
            "it answered HTTP 307",
        ),
        (answering(cut), "the connection failed (the connection was closed)"),
        (answering(b"nonsense\r\n\r\n"), "the connection failed (no HTTP response"),
    ):
        async with upstream(script) as server:
            assert (await outcome(server.url)).startswith(reason)

        assert len(server.received) == 1

    async with upstream(silent) as server:
        assert (
            await outcome(server.url, seconds=0.05)
            == "no complete response within 0.05 s"
        )

    assert "connection refused" in await outcome("http://127.0.0.1:9/")


@looped
async def test_reply_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is larger than any answer is not read on."""
    monkeypatch.setattr(answerers, "LARGEST_REPLY", 10)
    async with upstream(answering(GOOD)) as server:
        assert await outcome(server.url) == "its reply has more than 10 bytes"


@looped
async def test_proxy_of_the_environment_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And not for what `NO_PROXY` names."""
    async with upstream(answering(GOOD, GOOD)) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.removesuffix("/mcp"))
        monkeypatch.setenv("no_proxy", "127.0.0.1")

        assert await outcome("http://answers.example/give") == ANSWERED
        assert "connection refused" in await outcome("http://127.0.0.1:9/")

    (received,) = proxy.received

    assert received.head.line == "POST http://answers.example/give HTTP/1.1"


@pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl makes the certificate"
)
@looped
async def test_certificate_is_verified(tmp_path: Path) -> None:
    """By the system's certificates, and those that the user names."""
    key = tmp_path / "key.pem"
    certificate = tmp_path / "certificate.pem"
    making = await asyncio.create_subprocess_exec(
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
        "-nodes", "-days", "1", "-subj", "/CN=localhost",
        "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate,
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip

    assert await making.wait() == 0

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    async with upstream(answering(GOOD, GOOD), tls=context) as server:
        assert "its certificate is not verified" in await outcome(server.url)
        assert await outcome(server.url, ca_file=certificate) == ANSWERED
        assert await outcome(server.url, verifies=False) == ANSWERED


@looped
async def test_bad_endpoint_fails_before_anything_is_asked() -> None:
    """Its URL is read, and its headers checked, when it is opened."""
    for rest, reason in (
        (
            RestModel(url="localhost:9/answers"),
            "rest.url of the answers file is not an HTTP URL",
        ),
        (
            RestModel(url="ftp://localhost/"),
            "rest.url of the answers file is not an HTTP URL",
        ),
        (
            RestModel(url="http://a/", headers={"A b": "c"}),
            "the header 'A b' is not valid in HTTP",
        ),
    ):
        with pytest.raises(UsageError, match=reason):
            async with answers_endpoint(rest, None):
                pass
