"""The law of credentials: whatever the command, none that a user gives is told or written."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from pipes import spoken
from typing import Any

import pytest
from click.testing import CliRunner, Result
from commands import repeated
from messages import CAPABLE, tool_call, yes
from processes import PROGRAM

from mrtr_cassette.cli import main

SERVER = '''
"""Says back all that it was given; a file beside it makes it say something else."""
import base64, json, os, pathlib, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

DRIFT = pathlib.Path(__file__).with_name("drift")
PUSHED = {"jsonrpc": "2.0", "id": "q1", "method": "elicitation/create"}

def outcome(message, given):
    told = (DRIFT.read_text() if DRIFT.exists() else "") + "knows " + ", ".join(given)
    params, method = message.get("params", {}), message["method"]
    schema = {"type": "object", "properties": {"sure": {"type": "boolean", "title": told}}}
    form = {"mode": "form", "message": told, "requestedSchema": schema}
    if method == "initialize":
        about = {"name": "s", "version": "1"}
        return {"result": dict(protocolVersion="2025-11-25", capabilities={}, serverInfo=about)}
    if method == "tools/list":
        names = ["say", "refuse", "ask", "push", "more"]
        schema = {"type": "object", "description": told}
        return {"result": {"tools": [{"name": name, "inputSchema": schema} for name in names]}}
    if method != "tools/call":
        return {"error": {"code": -32601, "message": "no such method"}}
    if params["name"] == "refuse":
        return {"error": {"code": -1, "message": told, "data": given}}
    if params["name"] == "ask" and "inputResponses" not in params:
        asks = {"sure": {"method": "elicitation/create", "params": form}}
        return {"result": dict(resultType="input_required", inputRequests=asks, requestState="s" * 40)}
    if params["name"] == "push" and sys.stdin.isatty() is False and len(sys.argv) > 2 and sys.argv[1] == "pipe":
        print(json.dumps({**PUSHED, "params": form}), flush=True)
        sys.stdin.readline()
    as_json = {"given": given, "nested": json.dumps(given), "raw": base64.b64encode(told.encode()).decode()}
    return {"result": {"content": [{"type": "text", "text": told}], "structuredContent": as_json}}

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        given = [value for _, value in parse_qsl(urlsplit(self.path).query)]
        for name in ("Authorization", "X-Api-Key", "X-Tenant", "Cookie"):
            value = self.headers.get(name, "")
            given.append(value.rpartition(" ")[2].rpartition("=")[2] if name != "Authorization" else value)
            if value.startswith("Basic "):
                given.append(base64.b64decode(value[6:]).decode())
        given += sys.argv[3:] and [sys.argv[3], os.environ.get("SERVICE_TOKEN", "")]
        body = json.dumps({"jsonrpc": "2.0", "id": message.get("id"), **outcome(message, list(filter(None, given)))}).encode()
        if "id" not in message:
            body = b""
        self.send_response(200 if body else 202)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

if sys.argv[1] == "pipe":
    for line in iter(sys.stdin.readline, ""):
        message = json.loads(line)
        if "id" in message:
            given = [sys.argv[3], os.environ["SERVICE_TOKEN"]]
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome(message, given)}), flush=True)
else:
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()
'''

CLIENT = """
import json, os, sys, urllib.request
for body in json.loads(sys.argv[1]):
    headers = {"Content-Type": "application/json", "Accept": "application/json", **json.loads(sys.argv[2])}
    request = urllib.request.Request(os.environ["MRTR_CASSETTE_URL"], json.dumps(body).encode(), headers)
    urllib.request.urlopen(request).read()
"""

HEADERS = {
    "Authorization": "Bearer kq7x-bearer-4711",
    "X-Api-Key": "kq7x-apikey-4712",
    "X-Tenant": "kq7x-tenant-4713",
    "Cookie": "theme=dark; sid=kq7x-cookie-4714",
}
ARGUMENT = "kq7x-argument"
VARIABLE = "kq7x-variable-4719"
SECRETS = [
    "kq7x-bearer-4711",
    "kq7x-apikey-4712",
    "kq7x-tenant-4713",
    "kq7x-cookie-4714",
    "kq7x-query-4715",
    "kq7x-inner-4716",
    "kq7x-password-4717",
    ARGUMENT,
    VARIABLE,
]
CONFIG = b64encode(b'{"region":"eu","apiKey":"kq7x-inner-4716"}').decode()
CALLS = [
    tool_call("say", id=1, arguments={}, _meta=CAPABLE),
    tool_call("refuse", id=2, arguments={}, _meta=CAPABLE),
    tool_call("ask", id=3, arguments={}, _meta=CAPABLE),
    tool_call(
        "ask",
        id=4,
        arguments={},
        _meta=CAPABLE,
        inputResponses=yes("sure"),
        requestState="s" * 40,
    ),
]
PUSHED = tool_call("push", id=5, arguments={}, _meta=CAPABLE)
ANSWER = {
    "jsonrpc": "2.0",
    "id": "q1",
    "result": {"action": "accept", "content": {"sure": True}},
}


@dataclass
class Project:
    """A folder with a server, and all that commands in it have told.

    Attributes:
        url: the server over HTTP.
        headers: what is given besides the URL.
    """

    folder: Path
    url: str
    headers: dict[str, str]
    told: list[str] = field(default_factory=list)

    @property
    def given(self) -> list[str]:
        """The options that give the headers."""
        return repeated("--header", map(": ".join, self.headers.items()))

    def server(self, kind: str) -> list[str]:
        """Return the end of a command line that starts the server."""
        return [
            "--",
            sys.executable,
            str(self.folder / "server.py"),
            kind,
            "--api-key",
            ARGUMENT,
        ]

    def client(self, *bodies: Any, **headers: str) -> list[str]:
        """Return the end of a command line that is a client."""
        program = [sys.executable, str(self.folder / "client.py")]
        return ["--", *program, json.dumps(bodies), json.dumps(headers)]

    def run(self, *arguments: str) -> Result:
        """Run a command in this process."""
        ended = CliRunner().invoke(main, arguments)
        assert ended.exception is None or isinstance(ended.exception, SystemExit)
        self.told.append(ended.output)

        return ended

    def say(self, *arguments: str, lines: list[Any]) -> str:
        """Say lines to a command on pipes, and return what it tells beside them."""
        said = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        told = spoken([*PROGRAM, *arguments], said).stderr.decode()
        self.told.append(told)

        return told

    def drift(self) -> None:
        """Have the server say something else from now on."""
        (self.folder / "drift").write_text("now ")

    def check(self) -> None:
        """Make sure that no credential was told or written, as it is or in base64."""
        programs = ("server.py", "client.py")
        texts = [*self.told]
        for path in self.folder.rglob("*"):
            if path.is_file() and path.name not in programs:
                texts.append(path.read_text(errors="replace"))

        text = "\n".join(texts)
        encoded = [b64encode(secret.encode()).decode()[:-4] for secret in SECRETS]
        secrets = [*SECRETS, CONFIG, *encoded]
        assert [secret for secret in secrets if secret in text] == []


@contextmanager
def project(
    folder: Path, user: str = "", headers: dict[str, str] | None = None
) -> Iterator[Project]:
    """Give a folder, and a server that runs."""
    (folder / "server.py").write_text(SERVER)
    (folder / "client.py").write_text(CLIENT)
    program = [sys.executable, str(folder / "server.py"), "0"]
    with subprocess.Popen(program, stdout=subprocess.PIPE) as served:
        try:
            assert served.stdout is not None
            port = int(served.stdout.readline())
            url = f"http://{user}127.0.0.1:{port}/mcp?api_key=kq7x-query-4715&config={CONFIG}"
            yield Project(folder, url, headers or {})
        finally:
            served.kill()


REPORTS = repeated("--report", ("r.json", "r.xml", "r.md"))


@pytest.mark.parametrize("who", ["headers", "user"])
def test_no_command_tells_what_it_gives_a_server_over_http(
    tmp_path: Path, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recorded, added to, called, verified, accepted and missed: placeholders stand everywhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    user = "bob:kq7x-password-4717@" if who == "user" else ""
    headers = dict(HEADERS)
    if user:
        del headers["Authorization"]

    with project(tmp_path, user, headers) as made:
        upstream = ("--upstream", made.url, *made.given)
        recorded = made.run(
            "record", *upstream, "--output", "c.json", *made.client(*CALLS)
        )

        assert recorded.exit_code == 0, recorded.output

        cassette = Path("c.json").read_text()

        assert "knows " in cassette
        assert "<api-key:" in cassette

        more = tool_call("more", arguments={"key": SECRETS[1]})
        append = ("record", "--append", *upstream, "--output", "c.json")
        appended = made.run(*append, *made.client(*CALLS, more))

        assert appended.exit_code == 0, appended.output

        for words in (
            ["say"],
            ["say", "--json"],
            ["refuse"],
            ["ask"],
            ["ask", "--json"],
        ):
            called = made.run("call", made.url, *words, *made.given)

            assert "knows " in called.output, called.output

        taping = ("--answer", "sure:=true", "--record", "d.json")

        assert made.run("call", made.url, "ask", *taping, *made.given).exit_code == 0

        same = made.run("verify", "c.json", *upstream, *REPORTS)

        assert "4 interactions: 3 same, 1 skipped" in same.output
        assert same.exit_code == 0

        made.drift()
        changed = made.run("verify", "c.json", *upstream, *REPORTS)

        assert changed.exit_code == 1
        assert changed.output.count("now knows") >= 3

        declined = {"sure": {"action": "decline"}}
        lost = tool_call(
            "ask", id=9, arguments={}, inputResponses=declined, requestState="s" * 40
        )
        made.run(*append, *made.client(CALLS[2], lost))
        accepted = made.run("verify", "c.json", *upstream, "--accept", "all")

        assert "accepted" in accepted.output
        assert "now knows" in Path("c.json").read_text()

        missed = tool_call(
            "say", id=9, arguments={"key": SECRETS[0], "other": SECRETS[1]}
        )
        client = made.client(missed, **{**HEADERS, "X-Api-Key": SECRETS[1]})
        played = made.run("replay", "c.json", "--report", "m.json", *client)

        assert played.exit_code == 1
        assert "arguments-differ" in played.output

        made.check()


def test_no_command_tells_what_it_gives_a_server_that_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arguments and environment of a server on pipes, or with a port, are credentials too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SERVICE_TOKEN", VARIABLE)
    with project(tmp_path) as made:
        server = made.server("pipe")
        record = ("record", "--stdio", "--output", "c.json")
        made.say(*record, *server, lines=[*CALLS[:2], PUSHED, ANSWER])

        assert "knows <api-key:1>, <token:1>" in Path("c.json").read_text()

        more = tool_call("more", id=7, arguments={"key": VARIABLE})
        made.say(*record, "--append", *server, lines=[CALLS[0], more])
        # The client's own are the same when it is played.
        played = made.say(
            "replay", "--stdio", "c.json", *server, lines=[CALLS[0], more]
        )

        assert "played 2 of 5 interactions, no misses" in played

        missed = tool_call("more", id=8, arguments={"key": VARIABLE, "as": ARGUMENT})
        replay = ("replay", "--stdio", "c.json", "--report", "m.json")

        assert "arguments-differ" in made.say(*replay, *server, lines=[missed])

        for words in (["say", "--json"], ["refuse"], ["push"], ["push", "--json"]):
            called = made.run("call", *words, *server)

            assert "knows " in called.output, called.output

        for start in ("pipe", "{port}"):
            same = made.run(
                "verify", "c.json", "--only", "say", *REPORTS, *made.server(start)
            )

            assert same.exit_code == 0, same.output

        made.drift()
        for start in ("pipe", "{port}"):
            changed = made.run("verify", "c.json", *REPORTS, *made.server(start))

            assert changed.exit_code == 1
            assert "now knows" in changed.output

        assert (
            "accepted"
            in made.run("verify", "c.json", "--accept", "all", *server).output
        )

        made.check()


def test_secret_in_the_path_of_the_url_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command that records the server says what to write, and that replaces it everywhere."""
    monkeypatch.chdir(tmp_path)
    secret = "1f0c9a7be45d4c21" * 2
    with project(tmp_path) as made:
        url = made.url.partition("/mcp")[0] + f"/s/{secret}/mcp"
        record = ("record", "--upstream", url, "--output", "c.json")
        kept = made.run(*record, *made.client(CALLS[0]))
        line = next(
            line
            for line in kept.output.splitlines()
            if line.startswith("warning: the path")
        )

        assert secret not in line

        option = shlex.split(line.partition("record with ")[2])
        for command in (
            [*record, "--append", *made.client(CALLS[1])],
            ["call", url, "say", "--record", "d.json"],
        ):
            assert line in made.run(*command).output, command

        Path("c.json").unlink()
        Path("d.json").unlink()
        made.told.clear()
        for command in (
            [*record, *option, *made.client(*CALLS[:2])],
            [*record, "--append", *made.client(CALLS[0], CALLS[1])],
            ["verify", "c.json", "--upstream", url],
            ["replay", "c.json", *made.client(*CALLS[:2])],
        ):
            ended = made.run(*command)

            assert ended.exit_code == 0, ended.output
            assert "warning: the path" not in ended.output

        assert "2 interactions: 2 same" in made.told[2]

        text = "\n".join([*made.told, Path("c.json").read_text()])

        assert secret not in text
