"""A call as an issue: nothing in it can break its blocks, and nothing tells who recorded it."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace

from builders import (
    answer,
    cassette_of,
    changed,
    loaded,
    pipe_cassette,
    retry,
    rpc,
    tool,
)
from messages import asks, text

from mrtr_cassette.core.record.sharing import shareable_cassette
from mrtr_cassette.core.report.bug import bug_report
from mrtr_cassette.core.wire.http import End, line_request

NO = {"action": "decline"}
BREAKING = "```\n</details>\n```` <script> @team\n`````json"
CLIENT = {"name": "cli`|", "version": "1"}
CALL = tool("de`ploy", to="jo@acme.example", note=BREAKING, count=2)
SCRIPT = (
    (
        rpc("initialize", {"clientInfo": CLIENT}),
        {"serverInfo": {"name": "s", "version": "9"}},
    ),
    (CALL, asks("ok")),
    (retry(CALL, {"ok": NO}), text(f"no: {BREAKING} in /home/jo/x")),
)


def test_report_has_all_of_the_call_and_nothing_of_its_reporter() -> None:
    """Blocks are fenced by more ticks than anything in them; texts that were taken out stay out."""
    whole = loaded(cassette_of(*SCRIPT), "/home/jo/c.json")
    whole = replace(whole, upstream="http://10.1.2.3:8123/acme/mcp")
    body = bug_report(shareable_cassette(whole).cassette, 2, "c.json", 7)
    for private in ("jo@", "/home/jo", "10.1.2.3", "8123", "acme"):
        assert private not in body

    for told in ("`cli'| 1`", "`s 9`", "sequenceDiagram", "cut c.json '#7' --share"):
        assert told in body

    again = bug_report(shareable_cassette(whole).cassette, 2, "bug.json", 2)

    assert "take the attached cassette `bug.json`:" in again

    fence = ""
    blocks = []
    for line in body.splitlines():
        if fence and line == fence:
            fence = ""
        elif not fence and line.startswith("```"):
            fence = "`" * (len(line) - len(line.lstrip("`")))
            blocks.append(line.lstrip("`"))
        elif not fence:
            assert "script" not in line
            assert line.count("<details>") == line.count("<summary>")

    assert fence == ""
    assert blocks == ["mermaid", *["json"] * 4, "console"]
    assert body.count("\n<details>") == 4

    (command,) = [line for line in body.splitlines() if "replay bug.json" in line]
    words = shlex.split(command)

    assert words[:9] == [
        *["$", "mrtr-cassette", "replay", "bug.json", "--", "mrtr-cassette", "call"],
        *["tools/call", "de`ploy"],
    ]

    assert words[9:12] == [
        "to=somebody1@example.com",
        f"note:={json.dumps(BREAKING)}",
        "count:=2",
    ]
    assert words[12:] == ["--answer", '#1:={"action":"decline"}']


def test_a_version_of_mcp_may_be_told_by_requests_alone() -> None:
    """Requests of 2026-07-28 name it in `_meta`; on pipes there is no header."""
    version = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    call = tool("deploy", env="prod")
    told = changed(call, "params", "_meta", to=version)
    for request, shown in ((told, "- MCP: `2026-07-28`"), (call, "- MCP: `not told`")):
        lines = [answer(request, text("done"))]
        cassette = pipe_cassette((line_request(request), lines, End.COMPLETE))

        assert shown in bug_report(cassette, 1, "c.json", 1).splitlines()


def test_a_call_that_no_command_makes_is_only_replayed() -> None:
    """The opening of a session and a retry without its ask are for the reader's own client."""
    opening = loaded(cassette_of(*SCRIPT), "c.json")
    orphan = loaded(cassette_of((retry(CALL, {"ok": NO}), text("done"))), "c.json")
    for cassette in (opening, orphan):
        body = bug_report(cassette, 1, "c.json", 1)

        assert "$ mrtr-cassette replay bug.json\n" in body
