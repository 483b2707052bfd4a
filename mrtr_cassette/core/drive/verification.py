"""Holding a live server to a cassette: each recorded conversation is repeated and compared.

What was not compared is never the same; what can't be sent as it was recorded is not sent in some
other form.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Literal

from mrtr_cassette.core.cassette.recorded import Cassette, RecordedExchange, RecordedInteraction
from mrtr_cassette.core.cassette.sessions import endpoint_in, listens, opened_session
from mrtr_cassette.core.compare.values import Change, Verdict, heaviest, without_ignored
from mrtr_cassette.core.drive.conversation import Conversation, Finished
from mrtr_cassette.core.drive.recorded_script import IssuedState, RecordedScript, TurnChange
from mrtr_cassette.core.drive.server_session import (
    LiveValues,
    ServerSession,
    ToolList,
    has_error,
    listing_beside,
    outcome,
    with_body,
)
from mrtr_cassette.core.protocol.calls import NO_SESSION, Call, is_read_only, session_of
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.record.recorder import Observation, Recorder
from mrtr_cassette.core.secrets.credentials import Credentials, Given
from mrtr_cassette.core.secrets.decode import as_text, undo_percent
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.rules import BUILT_IN
from mrtr_cassette.core.secrets.sealed import PLACEHOLDER, SEALED_HASH, without_numbers
from mrtr_cassette.core.wire.http import (
    CREDENTIAL_HEADERS,
    LARGEST_BODY,
    LAST_EVENT_ID_HEADER,
    NO_STATUS,
    End,
    Request,
)
from mrtr_cassette.core.wire.lines import opens_channel

Part = Literal["call", "opening", "notice", "listening", "other"]
"""What an interaction is: a call that a user makes, what opens and closes sessions, a notification,
a listening stream, or other traffic over HTTP."""
IgnoredFor = Callable[[Call], Collection[str]]
"""Returns the pointers that don't count in what a call gets."""


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """One interaction, as it is repeated.

    Attributes:
        call: its first request, read.
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
    def is_tool(self) -> bool:
        """Whether it calls a tool, of which the server says whether it destroys something."""
        return self.call.method == "tools/call"


def planned(
    cassette: Cassette, only: Sequence[str] = (), *, is_on_pipes: bool = False
) -> list[Planned]:
    """Return the interactions of a cassette, in its order.

    Of the patterns in `only`, one must match the method, the name, both, or the number; none stands
    for all.
    """
    over_sse = {_session_of_old_stream(each.exchanges[0]) for each in cassette.interactions}
    endpoint = endpoint_of(cassette.upstream)
    plan = []
    for interaction in cassette.interactions:
        first = interaction.exchanges[0]
        call, session = first.call, session_of(first.request)
        part = _part_of(first, call)
        if session in over_sse or _session_of_old_stream(first) is not None:
            skipped: str | None = "it was recorded over HTTP+SSE, which is not repeated"
        elif call.request.is_line and not is_on_pipes:
            skipped = "it stands for the beginning of a pipe"
        else:
            skipped = next(_objections(interaction, call, part, endpoint), None)
        opens = opened_session(first.response) if call.method == "initialize" else NO_SESSION
        names = (call.method, call.name, f"{call.method} {call.name}", f"{interaction.number}")
        wanted = any(fnmatchcase(name, pattern) for pattern in only for name in names)
        plan.append(Planned(interaction, call, part, session, opens, skipped, wanted or not only))
    return plan


def endpoint_of(url: str) -> str:
    """Return the path of an upstream's URL."""
    return _path_of("/" + url.partition("://")[2].partition("/")[2])


def _is_at(endpoint: str, request: Request) -> bool:
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


def _part_of(exchange: RecordedExchange, call: Call) -> Part:
    if opens_channel(call.request) or (call.message is None and listens(call, exchange.response)):
        return "listening"
    if call.message is None:
        return "opening" if call.request.method == "DELETE" else "other"
    if call.method in ("initialize", "notifications/initialized"):
        return "opening"
    return "call" if call.message.kind is Kind.REQUEST else "notice"


def _objections(
    interaction: RecordedInteraction, call: Call, part: Part, endpoint: str
) -> Iterator[str]:
    """Yield why an interaction can't be repeated."""
    first, last = interaction.exchanges[0], interaction.exchanges[-1]
    if part == "notice" and call.method == "notifications/cancelled":
        yield "it cancels a call that is not pending now"
    if part == "notice" and call.message is not None and call.message.kind is Kind.RESPONSE:
        yield "it answers what a server pushed in the recorded run"
    if call.request.header(LAST_EVENT_ID_HEADER):
        yield "it resumes a stream of the recorded run, with which it is compared"
    is_whole = last.response is not None and last.response.end is End.COMPLETE
    if part == "call":
        if last.response is None:
            yield "no response was recorded"
        if listens(call, last.response):
            yield "it listens to what other calls cause"
        if not is_whole and last.rpc_response is None:
            yield "its client left, or the server was lost, before the response was whole"
        if problem := RecordedScript(interaction.exchanges, interaction.pushed_turns).problem:
            yield problem
    elif part != "listening" and not is_whole and not call.request.is_line:
        yield "no whole response was recorded"
    # What was sent to the upstream's URL is sent to that of the live server.
    target = "" if _is_at(endpoint, call.request) else call.request.target
    text = f"{first.request.body.decode('latin-1')}\n{target}"
    if PLACEHOLDER.search(text):
        yield "its request has redacted secrets"
    if SEALED_HASH.search(text):
        yield "its request has a state or a session id that no recorded response issued"


@dataclass(frozen=True, slots=True, eq=False)
class VerifiedInteraction:
    """What came of one interaction.

    Attributes:
        verdict: the heaviest of its changes, or why there was nothing to compare.
        changes: where the live server differs, information included.
        reason: why it was skipped, not reached or is unstable; None where it was compared.
        live: the live exchanges, each in the place of the recorded one, as far as there are any.
        states: what the live server issued, with what the cassette has in its place.
        left_out: where it differs at what is ignored.
    """

    planned: Planned = field(repr=False)
    verdict: Verdict
    changes: tuple[TurnChange, ...] = ()
    reason: str | None = None
    live: tuple[RecordedExchange, ...] = field(default=(), repr=False)
    states: tuple[IssuedState, ...] = field(default=(), repr=False)
    left_out: tuple[Change, ...] = ()

    @property
    def number(self) -> int:
        """Its number in the cassette, from 1."""
        return self.planned.interaction.number

    @property
    def call(self) -> str:
        """Its call, as shown in messages."""
        return self.planned.call.title


@dataclass(slots=True)
class Repeated:
    """One interaction that is repeated with the live server, as `conversation` says."""

    planned: Planned
    conversation: Conversation
    _script: RecordedScript
    _is_unheard: bool = False

    def verified(self) -> VerifiedInteraction:
        """Return what came of it."""
        script, standing = self._script, self.conversation.standing
        if isinstance(standing, Finished):
            script.finished(standing.exchange)
        live, changes = tuple(script.live), tuple(script.changes)
        verdict, reason = heaviest(each.change for each in changes), None
        if self.planned.part == "listening":
            if self._is_unheard:
                verdict, reason = "not-reached", "no stream came"
            elif not changes:
                verdict, reason = "skipped", "what a listening stream says depends on other calls"
        elif standing is None:
            verdict, reason, changes = "not-reached", "no response came", ()
        elif live and self._is_no_response(len(live) - 1, live[-1]):
            verdict = "not-reached"
            reason = f"{outcome(live[-1])}, which is no response of MCP"
        left_out = tuple(script.left_out)
        return VerifiedInteraction(
            self.planned, verdict, changes, reason, live, tuple(script.states), left_out
        )

    def _is_no_response(self, position: int, live: RecordedExchange) -> bool:
        """Tell whether the server did not respond as it did when it was recorded, in any way."""
        exchanges = self.planned.interaction.exchanges
        recorded = exchanges[min(position, len(exchanges) - 1)]
        return recorded.rpc_response is not None and live.rpc_response is None

    def has_begun(self, observation: Observation | None) -> None:
        """Take the beginning of a listening stream."""
        response = self.planned.interaction.exchanges[0].response
        if observation is None or response is None or response.is_lines:
            return
        self._is_unheard = observation.status == NO_STATUS
        if not self._is_unheard and observation.status != response.status:
            statuses = (str(response.status), str(observation.status))
            change = Change("error-changed", "/#status", *statuses)
            self._script.changes.append(TurnChange(0, change))


class Verifier:
    """One cassette, recorded over the live server's transport, and one live server."""

    def __init__(
        self,
        cassette: Cassette,
        endpoint: str,
        ignored_for: IgnoredFor,
        *,
        token_of: Callable[[str, str], str] = lambda _rule, _secret: "0",
        allows_destructive: bool = False,
        largest_body: int = LARGEST_BODY,
    ) -> None:
        """Begin before anything is sent.

        Args:
            endpoint: path and query of the live server.
            token_of: tells apart the secrets of a rule that the live server says.
        """
        self.cassette = cassette
        self._endpoint = endpoint
        self._recorded_endpoint = endpoint_of(cassette.upstream)
        self._ignored_for = ignored_for
        self._allows_destructive = allows_destructive
        redactor = None if cassette.redaction is None else Redactor(cassette.redaction, token_of)
        self._credentials = Credentials(
            redactor or Redactor(BUILT_IN, token_of), seals_sessions=redactor is not None
        )
        self._new_recorder = partial(
            Recorder,
            seals=True,
            redactor=redactor,
            credentials=self._credentials,
            largest_body=largest_body,
        )
        self._sessions: dict[str, ServerSession] = {}
        self._unopened: dict[str, str] = {}
        self._tools: dict[str, ToolList] = {}
        self._listening: dict[str, list[RecordedScript]] = {}
        self._values = LiveValues()

    def was_given(self, given: Given) -> None:
        """Look for the credentials in what the user gives for the server from now on."""
        self._credentials.was_given(given)

    def _session_of(self, planned: Planned) -> ServerSession:
        key = planned.opens or planned.session
        if key not in self._sessions:
            self._sessions[key] = ServerSession(self._new_recorder())
        return self._sessions[key]

    def tools_for(self, planned: Planned) -> ToolList | None:
        """Return what has to be followed before a call, to know what its tool does; or None."""
        if not planned.is_tool or planned.skipped is not None or not planned.is_compared:
            return None
        if planned.session not in self._tools:
            listing = listing_beside(self._sent(planned.call.request))
            self._tools[planned.session] = ToolList(listing, self._session_of(planned))
        tools = self._tools[planned.session]
        return None if tools.is_over else tools

    def only_reads(self, planned: Planned) -> bool:
        """Tell whether an interaction changes nothing, as the protocol or the server says."""
        if planned.part == "call" and is_read_only(planned.call.method):
            return True
        tools = self._tools.get(planned.session)
        return planned.is_tool and tools is not None and tools.only_reads(planned.call.name)

    def begin(self, planned: Planned) -> Repeated | VerifiedInteraction:
        """Return how an interaction is repeated, or the verdict where it is not."""
        reason = planned.skipped
        # Others may need that a session or a stream is opened.
        if not (reason or planned.is_compared or planned.part in ("opening", "listening")):
            reason = "it was not selected"
        if reason is None and self._destroys(planned):
            reason = "the server says that the tool may destroy something"
        if reason is not None:
            return VerifiedInteraction(planned, "skipped", reason=reason)
        if planned.session in self._unopened:
            return VerifiedInteraction(
                planned, "not-reached", reason=self._unopened[planned.session]
            )
        interaction, listening = planned.interaction, self._listening
        script = RecordedScript(
            interaction.exchanges,
            interaction.pushed_turns,
            self._ignored_for(planned.call),
            listening.setdefault(planned.session, []),
        )
        if planned.part == "listening":
            listening[planned.session].append(script)
        session = self._session_of(planned)
        if session.id and planned.session:
            script.states.append(IssuedState(session.id, planned.session))
        request = self._sent(planned.call.request)
        return Repeated(planned, Conversation(request, script, session), script)

    def _destroys(self, planned: Planned) -> bool:
        tools = self._tools.get(planned.session)
        if self._allows_destructive or tools is None or not planned.is_tool:
            return False
        return tools.destroys(planned.call.name)

    def _sent(self, request: Request) -> Request:
        """Return a recorded request as it is sent to where the live server is."""
        if _is_at(self._recorded_endpoint, request):
            request = replace(request, target=self._endpoint)
        kept = tuple(
            (name, value)
            for name, value in request.headers
            # Of a credential only the name was kept.
            if value or name.lower() not in CREDENTIAL_HEADERS
        )
        request = replace(request, headers=kept)
        return with_body(request, self._values.in_live(request.body)) if request.body else request

    def ended(self, repeated: Repeated) -> VerifiedInteraction:
        """Return what came of an interaction, and take what others need of it."""
        verified = repeated.verified()
        planned = verified.planned
        for recorded, live in zip(planned.interaction.exchanges, verified.live, strict=False):
            before, now = recorded.rpc_response, live.rpc_response
            if before is not None and now is not None:
                self._values.issued(before, now)
        last = verified.live[-1] if verified.live else None
        if planned.opens and (last is None or has_error(last) or verified.verdict == "not-reached"):
            why = verified.reason or "no response" if last is None else outcome(last)
            self._unopened[planned.opens] = f"its session was not opened: {why}"
        if planned.is_compared or verified.verdict == "not-reached":
            return verified
        return replace(verified, verdict="skipped", changes=(), reason="it was not selected")

    def verified_again(self, verified: VerifiedInteraction) -> VerifiedInteraction:
        """Return the verdict, where more places are left out now."""
        ignored = self._ignored_for(verified.planned.call)
        counting = without_ignored([each.change for each in verified.changes], ignored)
        changes = tuple(each for each in verified.changes if each.change in counting)
        return replace(verified, verdict=heaviest(counting), changes=changes)

    def failed(self, planned: Planned, reason: str) -> VerifiedInteraction:
        """Return that an interaction got no response, and why."""
        if planned.opens:
            self._unopened[planned.opens] = f"its session was not opened: {reason}"
        return VerifiedInteraction(planned, "not-reached", reason=reason)
