"""Which conversations of a cassette are repeated with a live server, and why others are not.

Rule: what can't be sent as it was recorded is not sent in some other form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal

from mrtr_cassette.core.drive.recorded_script import RecordedScript
from mrtr_cassette.core.exchange.recorded import Cassette, RecordedExchange, RecordedInteraction
from mrtr_cassette.core.exchange.sessions import NO_SESSION, endpoint_in, listens, opened_session
from mrtr_cassette.core.protocol.calls import Call, is_read_only
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.protocol.session_ids import session_of
from mrtr_cassette.core.secrets.decode import as_text, undo_percent
from mrtr_cassette.core.secrets.placeholders import PLACEHOLDER, without_numbers
from mrtr_cassette.core.secrets.surrogates import SEALED_HASH
from mrtr_cassette.core.wire.http import LAST_EVENT_ID_HEADER, End, Request
from mrtr_cassette.core.wire.lines import opens_channel

Part = Literal["call", "opening", "notice", "listening", "other"]
"""What an interaction is: a call that a user makes, what opens and closes sessions, a notification,
a listening stream, or other traffic over HTTP."""


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """One interaction, as it is repeated.

    Attributes:
        interaction: the interaction.
        call: its first request, read.
        part: what it is.
        session: the recorded session in which it is sent; empty where it is in none.
        opens: the recorded session that its response opens; empty where it opens none.
        skipped: why it is not repeated, or None.
        is_compared: it is one of those that the user wants.
    """

    interaction: RecordedInteraction
    call: Call
    part: Part
    session: str
    opens: str
    skipped: str | None
    is_compared: bool = True

    @property
    def label(self) -> str:
        """How messages name it."""
        return self.call.title

    @property
    def opens_or_closes(self) -> bool:
        """Whether others may need that it is sent: it is no call that a user makes."""
        return self.part in ("opening", "listening")

    @property
    def is_tool(self) -> bool:
        """Whether it calls a tool, of which the server says whether it destroys something."""
        return self.call.method == "tools/call"

    @property
    def only_reads(self) -> bool:
        """Whether it changes nothing, whatever the server says."""
        return self.part == "call" and is_read_only(self.call.method)


def planned(
    cassette: Cassette, only: Sequence[str] = (), *, is_on_pipes: bool = False
) -> list[Planned]:
    """Return the interactions of a cassette, in its order.

    Args:
        only: patterns of which one must match the method, the name, both, or the number; none
            stands for all.
    """
    over_sse = {
        session
        for each in cassette.interactions
        if (session := _session_of_old_stream(each.exchanges[0])) is not None
    }
    endpoint = endpoint_of(cassette.upstream)
    plan = [_planned(each, only, over_sse, endpoint) for each in cassette.interactions]
    if is_on_pipes:
        return plan
    reason = "it stands for the beginning of a pipe"
    return [replace(each, skipped=reason) if each.call.request.is_line else each for each in plan]


def endpoint_of(url: str) -> str:
    """Return the path of an upstream's URL."""
    return _path_of("/" + url.partition("://")[2].partition("/")[2])


def is_at(endpoint: str, request: Request) -> bool:
    """Tell whether a request was sent to the upstream's URL, whatever its query."""
    return not request.is_line and _path_of(request.target) == endpoint


def _path_of(target: str) -> str:
    """Return the path of a target, in which a secret may have been replaced."""
    return without_numbers(as_text(undo_percent(target.partition("?")[0], is_form=False)))


def _session_of_old_stream(exchange: RecordedExchange) -> str | None:
    """Return the session of a stream of HTTP+SSE; None for any other response."""
    response = exchange.response
    if response is None or not (response.is_event_stream and response.pieces):
        return None
    is_one = endpoint_in(response.pieces[0].raw) is not None
    return opened_session(response) if is_one else None


def _planned(
    interaction: RecordedInteraction, only: Sequence[str], over_sse: set[str], endpoint: str
) -> Planned:
    first = interaction.exchanges[0]
    call = first.call
    part = _part_of(first, call)
    session = session_of(first.request)
    opens = opened_session(first.response) if call.method == "initialize" else NO_SESSION
    if session in over_sse or _session_of_old_stream(first) is not None:
        skipped: str | None = "it was recorded over HTTP+SSE, which is not repeated"
    else:
        skipped = _why_not(interaction, call, part, endpoint)
    wanted = not only or any(_matches(pattern, interaction, call) for pattern in only)
    return Planned(interaction, call, part, session, opens, skipped, wanted)


def _part_of(exchange: RecordedExchange, call: Call) -> Part:
    response = exchange.response
    if opens_channel(call.request) or (call.message is None and listens(call, response)):
        return "listening"
    if call.message is None:
        return "opening" if call.request.method == "DELETE" else "other"
    if call.method in ("initialize", "notifications/initialized"):
        return "opening"
    return "call" if call.message.kind is Kind.REQUEST else "notice"


def _matches(pattern: str, interaction: RecordedInteraction, call: Call) -> bool:
    names = (call.method, call.name, f"{call.method} {call.name}", f"{interaction.number}")
    return any(fnmatchcase(name, pattern) for name in names)


def _why_not(interaction: RecordedInteraction, call: Call, part: Part, endpoint: str) -> str | None:
    """Return why an interaction can't be repeated, or None."""
    first, last = interaction.exchanges[0], interaction.exchanges[-1]
    if part == "notice":
        if call.method == "notifications/cancelled":
            return "it cancels a call that is not pending now"
        if call.message is not None and call.message.kind is Kind.RESPONSE:
            return "it answers what a server pushed in the recorded run"
    if call.request.header(LAST_EVENT_ID_HEADER):
        return "it resumes a stream of the recorded run, with which it is compared"
    if part == "call":
        return _why_no_call(interaction, call, endpoint)
    if part != "listening" and (last.response is None or last.response.end is not End.COMPLETE):
        return "no whole response was recorded" if not call.request.is_line else None
    return _unsendable(first, endpoint)


def _why_no_call(interaction: RecordedInteraction, call: Call, endpoint: str) -> str | None:
    last = interaction.exchanges[-1]
    if last.response is None:
        return "no response was recorded"
    if listens(call, last.response):
        return "it listens to what other calls cause"
    if last.response.end is not End.COMPLETE and last.rpc_response is None:
        return "its client left, or the server was lost, before the response was whole"
    problem = RecordedScript(interaction.exchanges, interaction.pushed_turns).problem
    return problem or _unsendable(interaction.exchanges[0], endpoint)


def _unsendable(exchange: RecordedExchange, endpoint: str) -> str | None:
    """Return what stands in a request in the place of something that only its client knew."""
    text = exchange.request.body.decode("latin-1")
    # What was sent to the upstream's URL is sent to that of the live server.
    target = "" if is_at(endpoint, exchange.request) else exchange.request.target
    if PLACEHOLDER.search(text) or PLACEHOLDER.search(target):
        return "its request has redacted secrets"
    if SEALED_HASH.search(text) or SEALED_HASH.search(target):
        return "its request has a state or a session id that no recorded response issued"
    return None
