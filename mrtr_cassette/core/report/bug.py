"""A recorded call as the body of an issue, with commands that repeat it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from mrtr_cassette.core.answers.written import can_be_called
from mrtr_cassette.core.cassette.recorded import Cassette, RecordedExchange
from mrtr_cassette.core.drive.live_session import MODERN_VERSION, VERSION_HEADER
from mrtr_cassette.core.protocol.calls import PROTOCOL_VERSION
from mrtr_cassette.core.protocol.jsonrpc import messages_in
from mrtr_cassette.core.protocol.methods import DISCOVER, INITIALIZE
from mrtr_cassette.core.report.details import CassetteDetails, Interaction, details_of
from mrtr_cassette.core.report.text import code_block, json_text, mermaid_diagram
from mrtr_cassette.core.secrets.names import example_in_place, with_changed_refs
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.core.wire.pointers import members_of
from mrtr_cassette.errors import printable, shorten
from mrtr_cassette.terms import shell_command, shell_words

_ATTACHED_FILE: Final = "bug.json"
_MOST_BODY_CHARS: Final = 6_000
"""Characters of a body that are shown: an issue has 65,536 at most."""

_LONGEST_FACT: Final = 200
_SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
_SERVER_HEADERS: Final = ("server", "x-powered-by")


def bug_report(cassette: Cassette, number: int, source: str, recorded_as: int) -> str:
    """Return an issue's body about a call of a cassette for strangers.

    Args:
        number: of the call in this cassette.
        source: the name of the file from which it was cut out, without its folder.
        recorded_as: the number of the call there.
    """
    details = details_of(cassette)
    place = [interaction.number for interaction in details.interactions].index(number)
    call = details.interactions[place]
    lines = [
        f"{_inline_code(call.call)} ended: {printable(call.ended)}.",
        "",
        *_recording_facts(details, call),
        "",
        mermaid_diagram(CassetteDetails(cassette, (call,))),
        "",
    ]

    recorded = cassette.interactions[number - 1]
    for exchange in recorded.exchanges:
        lines += _exchange_lines(exchange)

    for step in recorded.steps:
        lines += _exchange_lines(step.exchange)

    command = _replay_command(cassette, call)
    attachment = f"the attached cassette `{_ATTACHED_FILE}`"
    if source != _ATTACHED_FILE:
        cut = shell_command(
            "cut_shared", path=source, number=f"#{recorded_as}", to=_ATTACHED_FILE
        )
        attachment += f", made with {_inline_code(cut)}"

    lines += [
        f"To reproduce it, take {attachment}:",
        "",
        *code_block("console", f"$ pip install mrtr-cassette\n$ {command}"),
    ]

    return "\n".join([*lines, ""])


def _inline_code(text: str) -> str:
    """Return a text as code in a line, which it can't end."""
    shown = shorten(printable(text), _LONGEST_FACT)
    return f"`{shown.replace('`', chr(39))}`"


def _recording_facts(details: CassetteDetails, call: Interaction) -> Iterator[str]:
    """Yield who was recorded, as far as the recording tells."""
    recorded = details.recorded
    client = call.client
    for interaction in reversed(details.interactions):
        client = client or interaction.client

    servers: list[str] = []
    software: list[str] = []
    versions: list[str] = []
    for recorded_interaction in recorded.interactions:
        for exchange in recorded_interaction.unshared_exchanges:
            servers += _server_names_in(exchange)
            software += _server_software_in(exchange)
            versions += _protocol_versions_in(exchange)

    yield f"- client: {_inline_code(client or 'not told')}"
    yield f"- server: {_code_list(servers)}"
    if software:
        yield f"- software of the server: {_code_list(software)}"

    yield f"- MCP: {_code_list(versions)}"
    transport = "pipes" if recorded.transport == "stdio" else "HTTP"
    recorded_at = _inline_code(recorded.recorded_at)
    yield f"- recorded: over {transport}, {recorded_at}, {_inline_code(recorded.tool)}"


def _code_list(texts: Iterable[str]) -> str:
    """Return different texts as code, in the order in which they came first."""
    return _inline_code(", ".join(dict.fromkeys(texts)) or "not told")


def _server_names_in(exchange: RecordedExchange) -> Iterator[str]:
    """Yield the name and the version that a server gives itself in a response."""
    result = exchange.result_members
    info = members_of(result.get("serverInfo"))
    if not info:
        info = members_of(members_of(result.get("_meta")).get(_SERVER_INFO))

    if info:
        yield f"{info.get('name')} {info.get('version')}"


def _protocol_versions_in(exchange: RecordedExchange) -> Iterator[str]:
    """Yield the versions of MCP that an exchange names."""
    version = exchange.result_members.get("protocolVersion")
    if version and isinstance(version, str):
        yield version

    message = exchange.call.message
    requested_version = None if message is None else message.meta.get(PROTOCOL_VERSION)
    if requested_version and isinstance(requested_version, str):
        yield requested_version

    header = exchange.request.header("mcp-protocol-version")
    if header:
        yield header


def _server_software_in(exchange: RecordedExchange) -> Iterator[str]:
    """Yield what the headers of a response say of the server's software."""
    if exchange.response is None:
        return

    for name, value in exchange.response.headers:
        if name.lower() in _SERVER_HEADERS:
            yield value


def _exchange_lines(exchange: RecordedExchange) -> list[str]:
    """Return the lines of a request and its response."""
    message = exchange.call.message
    tree = None if message is None else message.tree
    request = _folded_body("Request", tree, exchange.request.body)

    return [*request, *_response_lines(exchange)]


def _response_lines(exchange: RecordedExchange) -> list[str]:
    """Return the lines of a response with its messages folded, or a line that none came."""
    response = exchange.response
    if response is None:
        return ["No response came.", ""]

    messages = []
    for located in messages_in(response):
        messages.append(located.message.tree)

    title = "Response"
    if not response.is_lines:
        title = f"Response, HTTP {response.status}"

    if len(messages) == 1:
        return _folded_body(title, messages[0], response.body)

    return _folded_body(title, messages or None, response.body)


def _folded_body(title: str, shown: Any, body: bytes) -> list[str]:
    """Return the lines of a body that is folded; nothing in it can end its block."""
    if shown is None:
        text = "\n".join(map(printable, body.decode("utf-8", "replace").splitlines()))
    else:
        text = json_text(shown)

    cut_count = len(text) - _MOST_BODY_CHARS
    if cut_count > 0:
        text = f"{text[:_MOST_BODY_CHARS]}\n… ({cut_count:,} more characters are in the cassette)"

    language = "text" if shown is None else "json"
    fenced = code_block(language, text)
    return [f"<details><summary>{title}</summary>", "", *fenced, "", "</details>", ""]


def _replay_command(cassette: Cassette, call: Interaction) -> str:
    """Return the command that plays the cassette, to the same call where one can make it."""
    is_orphan_or_stream = call.is_orphan or call.listens
    if is_orphan_or_stream or not can_be_called(call.method):
        return shell_words(["mrtr-cassette", "replay", _ATTACHED_FILE])

    methods = {exchange.call.method for exchange in cassette.exchanges}
    if methods.isdisjoint({DISCOVER, INITIALIZE}):
        # The recorded client did not ask what the server speaks, so a replay can't say it.
        version = f"{VERSION_HEADER}: {MODERN_VERSION}"
        command = shell_command(
            "play_call_undiscovered", path=_ATTACHED_FILE, header=version
        )
    else:
        command = shell_command("play_call", path=_ATTACHED_FILE)

    words = [
        with_changed_refs(word, example_in_place)
        for word in _command_words_of_call(call)
    ]
    return f"{command} {shell_words(words)}"


def _command_words_of_call(call: Interaction) -> Iterator[str]:
    """Yield what is called, its arguments and the recorded answers, for the command line."""
    # A tool without its method has to be in the server's list, which may not be recorded.
    yield call.method
    if call.name:
        yield call.name

    for name, value in members_of(call.parameters).items():
        if isinstance(value, str) and value.isprintable():
            yield f"{name}={value}"
        else:
            yield f"{name}:={canonical(value)}"

    number = 0
    for turn in call.turns:
        answers = turn.answers_json or {}
        for key in turn.input_requests:
            number += 1
            if key in answers:
                yield "--answer"
                yield f"#{number}:={answers[key]}"
