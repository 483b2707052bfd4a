"""Holding a live server to a cassette: each recorded conversation is repeated and compared.

Rule: what was not compared is never the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial

from mrtr_cassette.core.compare.changes import Change, Verdict, heaviest, without_ignored
from mrtr_cassette.core.drive.conversation import Conversation, Finished
from mrtr_cassette.core.drive.live_values import LiveValues
from mrtr_cassette.core.drive.ordering import without_reordered
from mrtr_cassette.core.drive.plan import Planned, endpoint_of, is_at
from mrtr_cassette.core.drive.recorded_script import IssuedState, RecordedScript, TurnChange
from mrtr_cassette.core.drive.server_session import ServerSession, with_body
from mrtr_cassette.core.drive.tool_list import ToolList, listing_beside
from mrtr_cassette.core.drive.unrecorded import has_error, outcome
from mrtr_cassette.core.exchange.recorded import Cassette, RecordedExchange
from mrtr_cassette.core.protocol.calls import Call
from mrtr_cassette.core.record.recorder import Observation, Recorder
from mrtr_cassette.core.secrets.credentials import Credentials, Given
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.rules import BUILT_IN
from mrtr_cassette.core.wire.http import CREDENTIAL_HEADERS, LARGEST_BODY, NO_STATUS, Request

IgnoredFor = Callable[[Call], Collection[str]]
"""Returns the pointers that don't count in what a call gets."""


@dataclass(frozen=True, slots=True, eq=False)
class Verified:
    """What came of one interaction.

    Attributes:
        planned: the interaction, as it was repeated.
        verdict: the heaviest of its changes, or why there was nothing to compare.
        changes: where the live server differs, information included.
        reason: why it was skipped, not reached or is unstable; None where it was compared.
        live: the live exchanges, each in the place of the recorded one, as far as there are any.
        states: what the live server issued, with what the cassette has in its place.
        left_out: where it differs at what is ignored.
    """

    planned: Planned
    verdict: Verdict
    changes: tuple[TurnChange, ...] = ()
    reason: str | None = None
    live: tuple[RecordedExchange, ...] = ()
    states: tuple[IssuedState, ...] = ()
    left_out: tuple[Change, ...] = ()


class Repeated:
    """One interaction that is repeated with the live server.

    Attributes:
        planned: the interaction.
        conversation: what is sent; it stands somewhere when all has been sent.
    """

    def __init__(
        self, planned: Planned, conversation: Conversation, script: RecordedScript
    ) -> None:
        self.planned = planned
        self.conversation = conversation
        self._script = script
        self._is_unheard = False

    def verified(self) -> Verified:
        """Return what came of it."""
        script = self._script
        return replace(
            self._verified(), states=tuple(script.states), left_out=tuple(script.left_out)
        )

    def _verified(self) -> Verified:
        planned, script = self.planned, self._script
        standing = self.conversation.standing
        if isinstance(standing, Finished):
            script.finished(standing.exchange)
        live = tuple(script.live)
        if self.planned.part == "listening":
            return self._heard()
        if standing is None:
            return Verified(planned, "not-reached", reason="no response came", live=live)
        last = live[-1] if live else None
        if last is not None and self._is_no_response(len(live) - 1, last):
            reason = f"{outcome(last)}, which is no response of MCP"
            return Verified(planned, "not-reached", tuple(script.changes), reason, live)
        verdict = heaviest(each.change for each in script.changes)
        return Verified(planned, verdict, tuple(script.changes), None, live)

    def _is_no_response(self, position: int, live: RecordedExchange) -> bool:
        """Tell whether the server did not respond as it did when it was recorded, in any way."""
        exchanges = self.planned.interaction.exchanges
        recorded = exchanges[min(position, len(exchanges) - 1)]
        return recorded.rpc_response is not None and live.rpc_response is None

    def _heard(self) -> Verified:
        if self._is_unheard:
            return Verified(self.planned, "not-reached", reason="no stream came")
        changes = tuple(self._script.changes)
        if changes:
            return Verified(self.planned, heaviest(each.change for each in changes), changes)
        reason = "what a listening stream says depends on other calls"
        return Verified(self.planned, "skipped", reason=reason)

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
    """One cassette and one live server.

    Attributes:
        cassette: the recording.
    """

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
            cassette: the recording, of the live server's transport.
            endpoint: path and query at which the live server is.
            token_of: tells the secrets of a rule apart that the live server says.
            allows_destructive: tools that may destroy something are called as well.
            largest_body: bytes up to which a response is kept.
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
        session = self._session_of(planned)
        if planned.session not in self._tools:
            listing = listing_beside(self._sent(planned.call.request))
            self._tools[planned.session] = ToolList(listing, session)
        tools = self._tools[planned.session]
        return None if tools.is_over else tools

    def only_reads(self, planned: Planned) -> bool:
        """Tell whether an interaction changes nothing, as the protocol or the server says."""
        tools = self._tools.get(planned.session)
        return planned.only_reads or (
            planned.is_tool and tools is not None and tools.only_reads(planned.call.name)
        )

    def begin(self, planned: Planned) -> Repeated | Verified:
        """Return how an interaction is repeated, or the verdict where it is not."""
        reason = planned.skipped
        if reason is None and not (planned.is_compared or planned.opens_or_closes):
            reason = "it was not selected"
        if reason is None and self._destroys(planned):
            reason = "the server says that the tool may destroy something"
        if reason is not None:
            return Verified(planned, "skipped", reason=reason)
        if planned.session in self._unopened:
            return Verified(planned, "not-reached", reason=self._unopened[planned.session])
        interaction = planned.interaction
        script = RecordedScript(
            interaction.exchanges,
            interaction.pushed_turns,
            self._ignored_for(planned.call),
            self._listening.setdefault(planned.session, []),
        )
        if planned.part == "listening":
            self._listening[planned.session].append(script)
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
        if is_at(self._recorded_endpoint, request):
            request = replace(request, target=self._endpoint)
        kept = tuple(
            (name, value)
            for name, value in request.headers
            # Of a credential only the name was kept.
            if value or name.lower() not in CREDENTIAL_HEADERS
        )
        request = replace(request, headers=kept)
        return with_body(request, self._values.in_live(request.body)) if request.body else request

    def ended(self, repeated: Repeated) -> Verified:
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

    def verified_again(self, verified: Verified) -> Verified:
        """Return the verdict, where more places are left out now."""
        ignored = self._ignored_for(verified.planned.call)
        counting = without_ignored([each.change for each in verified.changes], ignored)
        exchanges = verified.planned.interaction.exchanges
        if len(verified.live) == len(exchanges):
            counting = without_reordered(counting, exchanges[-1], verified.live[-1], ignored)
        changes = tuple(each for each in verified.changes if each.change in counting)
        verdict = heaviest(each.change for each in changes)
        return replace(verified, verdict=verdict, changes=changes)

    def unstable(self, verified: Verified, reason: str) -> Verified:
        """Return the verdict on what differs by itself in a way that is not left out."""
        return replace(verified, verdict="unstable", reason=reason)

    def failed(self, planned: Planned, reason: str) -> Verified:
        """Return that an interaction got no response, and why."""
        if planned.opens:
            self._unopened[planned.opens] = f"its session was not opened: {reason}"
        return Verified(planned, "not-reached", reason=reason)
