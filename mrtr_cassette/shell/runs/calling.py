"""Call a live server without a client, directly or through the recording proxy."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from yarl import URL

from mrtr_cassette import __version__
from mrtr_cassette.core.answers.fulfilment import (
    MOST_ROUNDS,
    AnswerSources,
    LeavesToSources,
    Rounds,
    outcome_of,
    why_no_outcome,
)
from mrtr_cassette.core.answers.written import (
    GivenAnswers,
    WantedCall,
    WrittenPair,
    tool_named,
)
from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.drive.conversation import (
    AskAnswer,
    Conversation,
    FinishedCall,
    LiveAsk,
    ToolList,
    response_in_words,
)
from mrtr_cassette.core.drive.live_session import BuiltInClient, ServerSession
from mrtr_cassette.core.protocol.methods import (
    CALL_TOOL,
    LIST_TOOLS,
    METHODS,
    method_of,
)
from mrtr_cassette.core.record.recorder import Recorder
from mrtr_cassette.core.record.sealing import ExchangeSealer
from mrtr_cassette.core.report.events import (
    call_ended_event,
    progress_log_line,
    recording_log_line,
)
from mrtr_cassette.core.report.runs import CallResult, UnansweredError
from mrtr_cassette.core.secrets.credentials import (
    AddSettings,
    Credentials,
    UserSettings,
)
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.rules import BUILT_IN_RULES
from mrtr_cassette.core.wire.http import Request
from mrtr_cassette.core.wire.jsonbytes import parse
from mrtr_cassette.errors import (
    BodyTooLargeError,
    CassetteError,
    UpstreamError,
    UsageError,
)
from mrtr_cassette.options import (
    CallOptions,
    FilePath,
    RecordOptions,
    WritingOptions,
    options_of,
)
from mrtr_cassette.shell.files.log import Announcer
from mrtr_cassette.shell.files.stores import Location, location_of
from mrtr_cassette.shell.http.client import connected_client
from mrtr_cassette.shell.pipes.upstream import NEEDS_PORT
from mrtr_cassette.shell.runs.answerers import (
    Answerers,
    AskThePerson,
    answers_endpoint,
    load_answers,
)
from mrtr_cassette.shell.runs.journaling import RecordingRun
from mrtr_cassette.shell.runs.live_server import LiveServer
from mrtr_cassette.shell.runs.recording import recording
from mrtr_cassette.shell.runs.running import result_in_thread
from mrtr_cassette.shell.runs.upstreams import (
    NOT_SERVED_STATUSES,
    is_on_pipes,
    not_served_error,
    reached_upstream,
)

Answers = Mapping[str, Any] | FilePath | None
"""By the name of a field or the key of a question; or an answers file."""


class _ReachedServer(NamedTuple):
    """A live server that is called, directly or through the recording proxy.

    Attributes:
        is_started: we have started it, and chosen its path.
    """

    server: LiveServer
    path: str
    is_started: bool
    recording_run: RecordingRun | None = None


@asynccontextmanager
async def _reached_directly(
    upstream: str | Sequence[str], options: CallOptions, add_settings: AddSettings
) -> AsyncIterator[_ReachedServer]:
    """Connect to the server without a recording proxy."""
    upstream_context = reached_upstream(upstream, options, BUILT_IN_RULES)
    async with upstream_context as target, target.connect(add_settings) as client:
        is_started = target.recorded_as != target.name
        shown_as = target.origin
        if is_started and target.command:
            shown_as = target.command

        server = LiveServer(client, shown_as, is_on_pipes=target.is_on_pipes)
        try:
            yield _ReachedServer(server, target.path, is_started)
        finally:
            await server.close()


@asynccontextmanager
async def _reached_by_proxy(
    upstream: str | Sequence[str],
    options: RecordOptions,
    cassette: Location,
    announcer: Announcer,
    add_settings: AddSettings,
) -> AsyncIterator[_ReachedServer]:
    """Connect to the server through the recording proxy.

    Raises:
        CassetteError: at the end, as the recording is incomplete.
    """
    async with recording(upstream, cassette, options) as recording_run:
        add_settings(recording_run.server_settings)
        url = URL(recording_run.url)
        async with connected_client(url.origin(), None) as proxy:
            on_pipes = is_on_pipes(upstream)
            server = LiveServer(proxy, recording_run.shown_url, is_on_pipes=on_pipes)
            try:
                yield _ReachedServer(
                    server,
                    url.raw_path_qs,
                    recording_run.publishing.is_server_started,
                    recording_run,
                )
            finally:
                await server.close()

    announcer.say(recording_log_line, recording_run.report)
    if recording_run.problem is not None:
        reason = f"the recording is incomplete: {recording_run.problem}"
        raise CassetteError(recording_run.path, reason)


async def call(
    upstream: str | Sequence[str],
    wanted_call: WantedCall,
    sources: AnswerSources,
    options: CallOptions,
    announcer: Announcer,
    *,
    cassette: Location | None = None,
    ask_person: AskThePerson | None = None,
) -> CallResult:
    """Make one call on a live server, and answer what it asks.

    Raises:
        UsageError: the tool is unknown, its arguments don't fit, or the endpoint's URL is none.
        CassetteError: the cassette can't be written, or exists.
    """
    options.check_secrets()
    # What is said of the call has no credentials either.
    redactor = Redactor(BUILT_IN_RULES, lambda _rule, _secret: "1")
    credentials = Credentials(redactor, seals_sessions=False)
    sealer = ExchangeSealer(seals_states=False, credentials=credentials)
    sealer.add_settings(UserSettings(secrets=options.secrets))
    endpoint_context = answers_endpoint(
        sources.file.rest, options.ca_path, verifies=not options.insecure
    )
    if cassette is None:
        server_context = _reached_directly(upstream, options, sealer.add_settings)
    else:
        writing_options = {
            name: getattr(options, name) for name in options_of(WritingOptions)
        }
        # The call itself is told, and not what its recording says of it.
        writing_options |= {"log": None, "terms": options.terms}
        record_options = RecordOptions(**writing_options)
        server_context = _reached_by_proxy(
            upstream, record_options, cassette, announcer, sealer.add_settings
        )

    async with endpoint_context as endpoint, server_context as reached:
        caller = _Caller(
            reached,
            BuiltInClient(
                reached.path, sources.declared_kinds, __version__, options.added_headers
            ),
            Rounds(sources),
            Answerers(announcer, endpoint, ask_person),
            ServerSession(Recorder(sealer)),
        )

        final_members = await _final_response_members(caller, wanted_call, options)
        result = _call_result(wanted_call, caller.rounds, final_members, caller.problem)
        announcer.tell(call_ended_event, result)

        return result


async def _final_response_members(
    caller: _Caller, wanted_call: WantedCall, options: CallOptions
) -> Mapping[str, Any]:
    """Make the call; return the members of its last response, none if there was a problem."""
    exchange = None
    try:
        async with asyncio.timeout(options.timeout):
            exchange = await caller.make_call(wanted_call)
    except TimeoutError:
        caller.problem = f"the call took more than {options.timeout} s"
        if caller.server.is_mute:
            why_mute = f"nothing came on its server's stdout; {NEEDS_PORT}"
            caller.problem = f"{caller.problem}, and {why_mute}"
    except (UpstreamError, BodyTooLargeError) as error:
        caller.problem = error.in_terms(options.terms)

    if caller.rounds.overrun:
        caller.problem = f"the server asked more than {MOST_ROUNDS} times"

    if exchange is None or caller.problem:
        return {}

    return outcome_of(wanted_call.method, exchange)


def _call_result(
    wanted_call: WantedCall,
    rounds: Rounds,
    final_members: Mapping[str, Any],
    problem: str | None,
) -> CallResult:
    """Return how a call ended, from the members of its last response."""
    unused: Sequence[str] = ()
    has_asked = bool(rounds.turns) or rounds.unanswered is not None
    # Of a call that failed before any question nobody knows what it would have asked.
    if has_asked or "result" in final_members:
        unused = rounds.sources.given.unused_names

    return CallResult(
        wanted_call.method,
        wanted_call.name,
        tuple(rounds.turns),
        final_members.get("result"),
        final_members.get("error"),
        rounds.unanswered,
        problem,
        tuple(unused),
    )


@dataclass(slots=True)
class _Caller:
    """One call under way."""

    reached: _ReachedServer
    client: BuiltInClient
    rounds: Rounds
    answerers: Answerers
    session: ServerSession
    problem: str | None = None
    _reported_digest: str = ""

    @property
    def server(self) -> LiveServer:
        return self.reached.server

    async def make_call(self, wanted_call: WantedCall) -> RecordedExchange | None:
        """Open the server, make the call and leave; return the call's last exchange, or None."""
        await self._open_session()
        schema = None
        if wanted_call.method == CALL_TOOL and not wanted_call.names_method:
            schema = await self._input_schema_of_tool(wanted_call.name)

        request = self.client.call_request(
            wanted_call.method, wanted_call.call_params(schema), schema
        )
        supply = partial(self.answerers.answer, self.rounds)
        exchange = await self._follow_request(request, supply)
        if exchange is not None:
            self.problem = why_no_outcome(wanted_call.method, exchange)

        if self.client.era == "legacy" and self.session.id:
            await self._follow_request(self.client.session_end_request())

        return exchange

    def _report_progress(self, conversation: Conversation) -> None:
        """Report the progress of a call that has not ended when it changed."""
        state = conversation.state
        if state is None or not state.is_at_work:
            return

        if state.digest != self._reported_digest:
            self._reported_digest = state.digest
            self.answerers.announcer.say(progress_log_line, state)

    async def _follow_request(
        self, request: Request, supply: Any = None
    ) -> RecordedExchange | None:
        """Follow a request until its call is finished; return the last exchange, or else None."""
        script = LeavesToSources()
        conversation = Conversation(request, script, self.session)
        await self.server.follow_conversation(
            conversation, supply, self._report_progress
        )
        stopping_point = conversation.stopping_point
        if not isinstance(stopping_point, FinishedCall):
            return None

        self._refuse_if_unreachable(stopping_point.exchange)
        return stopping_point.exchange

    def _refuse_if_unreachable(self, exchange: RecordedExchange | None = None) -> None:
        """Refuse a response that the recording proxy gave for a missing upstream."""
        recording_run = self.reached.recording_run
        if recording_run is None or not recording_run.unreachable_count:
            return

        error = None
        if exchange is not None:
            error = exchange.rpc_members.get("error")

        message = (error or {}).get("message", "the upstream gave no response")
        raise UpstreamError(str(message))

    async def _open_session(self) -> None:
        """Find out the server's era; open a session and listen to it if it is the legacy era."""
        if self.client.era is None:
            discover_exchange = await self._follow_request(
                self.client.discover_request()
            )
            if discover_exchange is not None:
                self.client.take_discover_response(discover_exchange)

        if self.client.era == "modern":
            return

        request = self.client.initialize_request()
        initialize_exchange = await self._follow_request(request)
        next_request = None
        if initialize_exchange is not None:
            next_request = self.client.take_initialize_response(initialize_exchange)

        if next_request is None:
            raise self._session_refusal(request, initialize_exchange)

        await self._follow_request(next_request)
        listening_conversation = Conversation(
            self.client.listening_request(), LeavesToSources(), self.session
        )
        await self.server.listen(listening_conversation, self._answer_outside_call)

    def _session_refusal(
        self, request: Request, initialize_exchange: RecordedExchange | None
    ) -> UpstreamError:
        """Return the error for an `initialize` that has opened no session."""
        shown_server = self.server.shown_as
        if initialize_exchange is None or initialize_exchange.response is None:
            return UpstreamError(
                f"{shown_server} opens no session: no response at {request.target}"
            )

        status = initialize_exchange.response.status
        if status in NOT_SERVED_STATUSES:
            is_started = self.reached.is_started
            return not_served_error(
                request.target, shown_server, status, is_started=is_started
            )

        place = ""
        if initialize_exchange.rpc_response is None:
            place = f" at {request.target}"

        return UpstreamError(
            f"{shown_server} opens no session: {response_in_words(initialize_exchange)}{place}"
        )

    async def _input_schema_of_tool(self, name: str) -> Mapping[str, Any] | None:
        """Return a tool's input schema; None if it has none, or the list is incomplete."""
        request = self.client.call_request(LIST_TOOLS, {})
        tool_list = ToolList(request, self.session, LeavesToSources())
        await self.server.follow_conversation(tool_list, self._answer_outside_call)
        self._refuse_if_unreachable()
        if not tool_list.is_whole:
            return None

        schema = tool_named(name, tool_list.tools).get("inputSchema")
        return schema if isinstance(schema, dict) else None

    async def _answer_outside_call(self, ask: LiveAsk) -> AskAnswer | None:
        """Return the answer to an ask outside the call; refuse a pushed question without any."""
        quiet_answerers = replace(self.answerers, announcer=Announcer())
        reply = await quiet_answerers.answer(Rounds(self.rounds.sources), ask)
        return ask.answer_if_nobody_answers if reply is None else reply


def answered_call(
    upstream: str | Sequence[str],
    name: str,
    arguments: Mapping[str, Any] | None,
    method: str,
    answers: Answers,
    *,
    path: FilePath | None = None,
    options: CallOptions | None = None,
) -> CallResult:
    """Make one call without a client.

    Raises:
        UsageError: an answer or an argument is wrong, or the tool is unknown.
        UnansweredError: nothing answers a question of the server.
    """
    options = options or CallOptions()
    if not method_of(method).named_by:
        callable_methods = []
        for known_name, known_method in METHODS.items():
            if known_method.named_by:
                callable_methods.append(known_name)

        problem = f"the method {method!r} is not one of {', '.join(callable_methods)}"
        raise UsageError(problem)

    wanted_call = WantedCall(method, name, _written_pairs(arguments or {}, "arguments"))
    sources = _sources_of(answers)
    announcer = Announcer(options.log)
    cassette = None if path is None else location_of(path)
    call_coroutine = call(
        upstream, wanted_call, sources, options, announcer, cassette=cassette
    )
    result = result_in_thread(call_coroutine)
    if result.unanswered is not None:
        raise UnansweredError(result)

    return result


def _sources_of(answers: Answers) -> AnswerSources:
    """Return the sources of answers: an answers file, or the given values."""
    if isinstance(answers, str | os.PathLike):
        return AnswerSources(file=load_answers(Path(answers)))

    if answers is None:
        answers = {}

    return AnswerSources(GivenAnswers(_written_pairs(answers, "answers")))


def _written_pairs(values: Any, noun: str) -> tuple[WrittenPair, ...]:
    """Return named values of Python as JSON values."""
    if not isinstance(values, Mapping):
        raise UsageError(f"{noun} is {values!r}, and not a mapping of names to values")

    pairs = []
    for name, value in values.items():
        try:
            pairs.append(WrittenPair(name, parse(orjson.dumps(value)), is_json=True))
        except TypeError:
            problem = f"{noun}: {name!r} has no value that JSON can carry"
            raise UsageError(problem) from None

    return tuple(pairs)
