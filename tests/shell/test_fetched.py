"""A cassette is fetched from an address once, whole and from nowhere else, or it is told why not."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
from builders import cassette_of, loaded, tool
from harness import command, looped, run
from messages import text
from standin import answering, response, upstream

import mrtr_cassette
from mrtr_cassette.core.cassette.dump import dump
from mrtr_cassette.errors import CassetteError, UsageError
from mrtr_cassette.shell.http import fetched
from mrtr_cassette.shell.http.fetched import fetch_cassette

FILE = dump(loaded(cassette_of((tool("add", a=1), text("2"))), "c.json"))
SHA256 = hashlib.sha256(FILE).hexdigest()
GOOD = response(FILE, "Content-Type: application/json")


async def refusal(address: str) -> str:
    """Return why nothing is fetched."""
    with pytest.raises((CassetteError, UsageError)) as refused:
        await fetch_cassette(address)

    return str(refused.value)


@looped
async def test_cassette_is_fetched_by_one_request_with_its_user_and_query() -> None:
    """They are sent and never shown; the digest may be part of the address."""
    async with upstream(answering(GOOD), path="/a/c.json") as server:
        place = server.url.replace("http://", "http://jo:pw@")
        found = await fetch_cassette(f"{place}?token=t#sha256={SHA256.upper()}")

    (received,) = server.received

    assert received.head.line == "GET /a/c.json?token=t HTTP/1.1"
    assert received.head.values("authorization") == ["Basic am86cHc="]
    assert (found.shown, found.data, found.sha256) == (server.url, FILE, SHA256)


@looped
async def test_each_fault_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not a cassette there, or not this one; nothing that a redirect names is asked."""
    page = response(b"<!doctype html>", "Content-Type: text/html; charset=utf-8")
    moved = response(b"", "Location: /b/c.json?key=k", status="302 Found")
    cut = response(b"{", "Content-Length: 99", length=False)
    for script, reason in (
        (response(b"", status="404 Not Found"), "there is no such file (HTTP 404)"),
        (response(b"", status="503 Busy"), "its server answered HTTP 503"),
        (page, "there is a web page, and not a cassette; name the address of the file"),
        (response(b" <html>"), "there is a web page, and not a cassette"),
        (moved, "/b/c.json, and redirects are not followed; name that address"),
        (cut, "the connection failed (the connection was closed)"),
        (GOOD, f"its SHA-256 is {SHA256}, and the address says {'0' * 64}"),
    ):
        async with upstream(answering(script), path="/a/c.json") as server:
            told = await refusal(f"{server.url}?secret#sha256={'0' * 64}")

        assert told.startswith(f"{server.url}: ")
        assert reason in told
        assert "secret" not in told
        assert "key=k" not in told
        assert len(server.received) == 1

    monkeypatch.setattr(fetched, "_MOST_BYTES", len(FILE) - 1)
    async with upstream(answering(GOOD)) as server:
        assert "it has more than 0 MiB" in await refusal(server.url)

    assert "connection refused" in await refusal("http://127.0.0.1:9/c.json")


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("http://example.com/c.json", "by http:// only from this machine"),
        ("https:///c.json", "is not a URL with a host"),
        ("https://xn--a/c.json", "is not a URL with a host"),
        ("https://localhost:9/c.json#sha256=abc", "what follows # is not a digest"),
        ("https://localhost:9/c.json#main", "write #sha256= and its 64 hexadecimal"),
    ],
)
@looped
async def test_address_that_is_none_is_refused(address: str, reason: str) -> None:
    """Nothing is sent."""
    assert reason in await refusal(address)


@pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl makes the certificate"
)
@looped
async def test_certificate_is_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the system's certificates, or those that the environment names."""
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
        told = await refusal(server.url)

        assert "its certificate is not verified (" in told
        assert "name the certificate of its authority in SSL_CERT_FILE" in told

        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

        assert (await fetch_cassette(server.url)).data == FILE


@looped
async def test_commands_take_addresses(tmp_path: Path) -> None:
    """Each fetches before it does anything else, and names the address from then on."""
    (tmp_path / "c.json").write_bytes(FILE)
    async with upstream(answering(*[GOOD] * 10), path="/c.json") as server:

        async def ran(*words: str) -> tuple[int, str, str]:
            ended = await run(*words, cwd=tmp_path)
            size = f"{len(FILE):,}"
            line = f"fetched {server.url}: {size} bytes, #sha256={SHA256}\n"

            assert line in ended.err

            return ended

        code, out, _ = await ran("inspect", server.url)

        assert code == 0
        assert out.startswith(f"{server.url}: 1 interaction")
        assert (await ran("diff", "c.json", server.url))[0] == 0
        assert (await ran("view", server.url))[0] == 0
        assert (tmp_path / "c.html").is_file()

        for cassettes in ((server.url,), ("c.json", server.url)):
            upstream_option = ("--upstream", "http://127.0.0.1:9/mcp")
            verified = await ran("verify", *cassettes, *upstream_option)

            assert verified[0] == 4

        assert len(server.received) == 5

        pinned = f"{server.url}#sha256={SHA256}"
        async with command("replay", pinned, "--port", "0", cwd=tmp_path) as replay:
            assert (await replay.listening()).startswith("http://127.0.0.1:")

        assert len(server.received) == 6
        assert (await ran("check", server.url))[0] == 0
        assert (await ran("cut", server.url, "--last", "-o", "part.json"))[0] == 0
        assert (tmp_path / "part.json").is_file()

        code, out, _ = await ran("report", server.url, "--last")

        assert (code, "attached cassette" in out) == (0, True)
        assert len(server.received) == 9


@looped
async def test_the_library_takes_addresses(tmp_path: Path) -> None:
    """Each call fetches once, before anything listens; a digest pins the file."""
    path = tmp_path / "c.json"
    path.write_bytes(FILE)
    async with upstream(answering(*[GOOD] * 4), path="/c.json") as server:

        def used() -> None:
            assert mrtr_cassette.diff(path, server.url).is_same

            pinned = f"{server.url}#sha256={SHA256}"
            with mrtr_cassette.replay(pinned, on_miss="report") as replay:
                assert replay.place == server.url

            with mrtr_cassette.replay(path, server.url, stdio=True) as replay:
                asked = tool("add", a=1) + b"\n"
                played = subprocess.check_output(replay.command, input=asked)

                assert b'"text":"2"' in played

            with pytest.raises(CassetteError, match=f"its SHA-256 is {SHA256}"):
                mrtr_cassette.replay(f"{server.url}#sha256={'0' * 64}")

        await asyncio.to_thread(used)

        assert len(server.received) == 4
