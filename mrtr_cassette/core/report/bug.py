"""A recorded call as the body of an issue, with commands that repeat it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from mrtr_cassette.core.cassette.recorded import Cassette, RecordedExchange
from mrtr_cassette.core.protocol.jsonrpc import messages_in
from mrtr_cassette.core.protocol.methods import CALL_TOOL, METHODS
from mrtr_cassette.core.report.details import CassetteDetails, Interaction, details_of
from mrtr_cassette.core.report.text import diagram, json_text
from mrtr_cassette.core.secrets.names import example_in_place, with_refs
from mrtr_cassette.core.wire.http import Response
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.core.wire.pointers import members_of
from mrtr_cassette.errors import printable, shorten
from mrtr_cassette.terms import shell_command, shell_words

_FILE: Final = "bug.json"
_LONGEST: Final = 6_000
"""Characters of a body that are shown: an issue has 65,536 at most."""
_LONGEST_FACT: Final = 200
_INFO: Final = "io.modelcontextprotocol/serverInfo"
_TICKS: Final = re.compile("`+")
_SERVER_HEADERS: Final = ("server", "x-powered-by")


def bug_report(cassette: Cassette, number: int, source: str, recorded_as: int) -> str:
    """Return an issue's body about a call of a cassette for strangers.

    Args:
        number: of the call in this cassette.
        source: the name of the file from which it was cut out, without its folder.
        recorded_as: the number of the call there.
    """
    details = details_of(cassette)
    (call,) = [found for found in details.interactions if found.number == number]
    lines = [
        f"{_code(call.call)} ended: {printable(call.ended)}.",
        "",
        *_facts(details, call),
        "",
        diagram(CassetteDetails(cassette, (call,))),
        "",
    ]
    (recorded,) = [found for found in cassette.interactions if found.number == number]
    for exchange in (*recorded.exchanges, *[step.exchange for step in recorded.steps]):
        lines += _folded("Request", exchange.call.message, exchange.request.body)
        lines += _response_lines(exchange)
    cut = shell_command("cut_shared", path=source, number=f"#{recorded_as}", to=_FILE)
    lines += [
        f"To reproduce it, take the attached cassette `{_FILE}`, made with {_code(cut)}:",
        "",
        *_fenced("console", f"$ pip install mrtr-cassette\n$ {_replay_command(call)}"),
    ]
    return "\n".join([*lines, ""])


def _code(text: str) -> str:
    """Return a text as code in a line, which it can't end."""
    shown = shorten(printable(text), _LONGEST_FACT)
    return f"`{shown.replace('`', chr(39))}`"


def _facts(details: CassetteDetails, call: Interaction) -> Iterator[str]:
    """Yield who was recorded, as far as the recording tells."""
    recorded = details.recorded
    named = [found.client for found in details.interactions if found.client]
    yield f"- client: {_code(call.client or ''.join(named[-1:]) or 'not told')}"
    servers: dict[str, None] = {}
    software: dict[str, None] = {}
    versions: dict[str, None] = {}
    for exchange in recorded.exchanges:
        result = members_of(exchange.rpc_members.get("result"))
        info = members_of(result.get("serverInfo"))
        info = info or members_of(members_of(result.get("_meta")).get(_INFO))
        if info:
            servers[f"{info.get('name')} {info.get('version')}"] = None
        if isinstance(result.get("protocolVersion"), str):
            versions[result["protocolVersion"]] = None
        versions[exchange.request.header("mcp-protocol-version")] = None
        if exchange.response is not None:
            software |= dict.fromkeys(_software_of(exchange.response))
    yield f"- server: {_code(', '.join(servers) or 'not told')}"
    if software:
        yield f"- software of the server: {_code(', '.join(software))}"
    yield f"- MCP: {_code(', '.join(filter(None, versions)) or 'not told')}"
    transport = "pipes" if recorded.transport == "stdio" else "HTTP"
    yield f"- recorded: over {transport}, {_code(recorded.recorded_at)}, {_code(recorded.tool)}"


def _software_of(response: Response) -> Iterator[str]:
    for name, value in response.headers:
        if name.lower() in _SERVER_HEADERS:
            yield value


def _response_lines(exchange: RecordedExchange) -> list[str]:
    response = exchange.response
    if response is None:
        return ["No response came.", ""]
    messages = [located.message.tree for located in messages_in(response)]
    title = "Response"
    if not response.is_lines:
        title = f"Response, HTTP {response.status}"
    if len(messages) == 1:
        return _folded(title, messages[0], response.body)
    return _folded(title, messages or None, response.body)


def _folded(title: str, shown: Any, body: bytes) -> list[str]:
    """Return the lines of a body that is folded; nothing in it can end its block."""
    if shown is None:
        text = "\n".join(map(printable, body.decode("utf-8", "replace").splitlines()))
    else:
        text = json_text(getattr(shown, "tree", shown))
    rest = len(text) - _LONGEST
    if rest > 0:
        text = f"{text[:_LONGEST]}\n… ({rest:,} more characters are in the cassette)"
    language = "text" if shown is None else "json"
    fenced = _fenced(language, text)
    return [f"<details><summary>{title}</summary>", "", *fenced, "", "</details>", ""]


def _fenced(language: str, text: str) -> list[str]:
    longest = max(map(len, _TICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", text, fence]


def _replay_command(call: Interaction) -> str:
    """Return the command that plays the cassette, to the same call where one can make it."""
    command = ["mrtr-cassette", "replay", _FILE]
    if call.method not in METHODS or call.listens:
        return shell_words(command)
    words = [call.name]
    if call.method != CALL_TOOL:
        words = [call.method, call.name]
    for name, value in members_of(call.parameters).items():
        is_text = isinstance(value, str) and value.isprintable()
        words.append(f"{name}={value}" if is_text else f"{name}:={canonical(value)}")
    number = 0
    for turn in call.turns:
        for key in turn.input_requests:
            number += 1
            if key in (turn.answers_json or {}):
                words += ["--answer", f"#{number}:={(turn.answers_json or {})[key]}"]
    named = [with_refs(word, example_in_place) for word in words if word]
    return shell_words([*command, "--", "mrtr-cassette", "call", *named])
