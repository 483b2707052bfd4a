"""What of a cassette is repeated with a live server, and how."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final, Literal

from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    RecordedExchange,
    RecordedInteraction,
    RecorderFacts,
    in_conversation_order,
    run_number_by_recorder,
)
from mrtr_cassette.core.cassette.sessions import (
    is_listening_stream,
    opened_session,
    without_pongs,
)
from mrtr_cassette.core.drive.conversation import (
    Departure,
    count_messages_so_far,
    has_error,
)
from mrtr_cassette.core.protocol.calls import NO_SESSION, Call, session_of
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.protocol.methods import (
    CANCELLED,
    INITIALIZE,
    INITIALIZED,
    method_of,
)
from mrtr_cassette.core.secrets.decode import utf8_text_of_latin1, without_percent
from mrtr_cassette.core.secrets.names import (
    ANSWER,
    HASH,
    has_kind,
    has_secrets,
    without_numbers,
)
from mrtr_cassette.core.wire.http import (
    CONDITIONAL_STATUSES,
    LAST_EVENT_ID_HEADER,
    End,
    Request,
    opens_channel,
)
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.errors import UsageError, shorten

ConversationPart = Literal["call", "opening", "notice", "listening", "other"]
"""What an interaction is: a call that a user makes, what opens and closes sessions, a notification,
a listening stream, or other traffic over HTTP."""


@dataclass(frozen=True, slots=True, eq=False)
class PlannedInteraction:
    """One interaction, as it is repeated."""

    interaction: RecordedInteraction
    call: Call
    part: ConversationPart
    session: str
    opens_session: str
    why_skipped: str | None
    is_compared: bool = True
    """It was selected."""

    departure: Departure | None = None
    """How the client left it before it ended."""

    cancelled_call: int | None = None
    """The number of the call that it cancels."""

    is_setup: bool = False
    """It was played when what follows was recorded, and only brings the server there."""

    is_needed: bool = False
    """It was not selected, and may write what a selected call depends on."""

    @property
    def is_sent(self) -> bool:
        """Whether the server gets it, unless something speaks against that."""
        if self.is_compared or self.is_needed:
            return True
        return self.part in ("opening", "listening")

    @property
    def is_left(self) -> bool:
        """Whether its client left it before it ended, or it says so of another one."""
        return self.departure is not None or self.cancelled_call is not None

    @property
    def may_write(self) -> bool:
        """Whether it may have changed something, as far as its method and its response say."""
        is_call = self.part == "call" and not method_of(self.call.method).reads
        return is_call and not has_error(self.interaction.ending_exchange)


def planned_interactions(
    cassette: Cassette, only: Sequence[str] = (), *, is_on_pipes: bool = False
) -> list[PlannedInteraction]:
    """Return the interactions of a cassette, in the order of the conversation.

    Of the patterns in `only`, one must match the method, the name, both, or the number; none stands
    for all. Of the others those are needed that may write what a selected one depends on.
    """
    endpoint = endpoint_of(cassette.upstream)
    interactions = without_pongs(in_conversation_order(cassette.interactions))
    departures = _departures_in(interactions)
    cancelled_by_notice = {
        departure.notice: number for number, departure in departures.items()
    }
    plan = []
    for interaction in interactions:
        first_exchange = interaction.exchanges[0]
        call = first_exchange.call
        opens_session = NO_SESSION
        if call.method == INITIALIZE:
            opens_session = opened_session(first_exchange.response)

        planned = PlannedInteraction(
            interaction,
            call,
            _conversation_part(first_exchange, call),
            session_of(first_exchange.request),
            opens_session,
            why_skipped=None,
            is_compared=not only or is_selected(interaction, call, only),
            departure=departures.get(interaction.number),
            cancelled_call=cancelled_by_notice.get(interaction.number),
        )

        why_skipped = _why_skipped(planned, endpoint, is_on_pipes=is_on_pipes)
        plan.append(replace(planned, why_skipped=why_skipped))

    return _with_needed_calls(plan)


def _why_skipped(
    planned: PlannedInteraction, endpoint: str, *, is_on_pipes: bool
) -> str | None:
    """Return why an interaction can't be sent to the live server, or None."""
    if planned.call.request.is_line and not is_on_pipes:
        return "it is the beginning of a pipe"
    if is_on_pipes and not planned.call.request.is_line:
        return "it is not part of a session, and the server accepts nothing else"
    return next(_objections_to_repeating(planned, endpoint), None)


def _with_needed_calls(plan: Sequence[PlannedInteraction]) -> list[PlannedInteraction]:
    """Mark the calls that were not selected, and may write what a selected one depends on."""
    last_dependent_place = 0
    for place, planned in enumerate(plan):
        is_to_be_compared = planned.is_compared and planned.why_skipped is None
        if is_to_be_compared and planned.call.depends_on_writes:
            last_dependent_place = place

    marked_plan = []
    for place, planned in enumerate(plan):
        is_needed = False
        if place < last_dependent_place and not planned.is_compared:
            is_needed = planned.may_write

        marked_plan.append(replace(planned, is_needed=is_needed))

    return marked_plan


def is_selected(
    interaction: RecordedInteraction, call: Call, only: Sequence[str]
) -> bool:
    """Tell whether one of the patterns matches the method, the name, both, or the number."""
    names = (
        call.method,
        call.name or call.method,
        f"{call.method} {call.name}",
        f"{interaction.number}",
    )

    for pattern in only:
        if any(fnmatchcase(name, pattern) for name in names):
            return True

    return False


def refuse_unmatched_patterns(
    interactions: Sequence[RecordedInteraction], only: Sequence[str]
) -> None:
    """Make sure that each pattern fits a call.

    Raises:
        UsageError: one fits none; the error says what there is.
    """
    names: dict[str, None] = {}
    unmatched_patterns = dict.fromkeys(only)
    for interaction in interactions:
        call = interaction.exchanges[0].call
        names[call.name or call.method] = None
        for pattern in list(unmatched_patterns):
            if is_selected(interaction, call, (pattern,)):
                del unmatched_patterns[pattern]

    for pattern in unmatched_patterns:
        raise UsageError(
            f"<<only>> {pattern!r} matches no call of the cassettes",
            hint=shorten(f"they have {', '.join(names)}"),
        )


def endpoint_of(url: str) -> str:
    """Return the path of an upstream's URL."""
    return _decoded_path("/" + url.partition("://")[2].partition("/")[2])


def _decoded_path(target: str) -> str:
    """Return the decoded path of a target, in which a placeholder tells only its rule."""
    return without_numbers(
        utf8_text_of_latin1(without_percent(target.partition("?")[0]).text)
    )


def is_sent_to(endpoint: str, request: Request) -> bool:
    """Tell whether a request is sent to a path."""
    return not request.is_line and _decoded_path(request.target) == endpoint


def _conversation_part(exchange: RecordedExchange, call: Call) -> ConversationPart:
    """Return which part of a conversation an interaction is, by its first exchange."""
    is_stream = call.message is None and is_listening_stream(call, exchange.response)
    if is_stream or opens_channel(call.request):
        return "listening"
    if call.message is None:
        return "opening" if call.request.method == "DELETE" else "other"
    if call.method in (INITIALIZE, INITIALIZED):
        return "opening"

    return "call" if call.message.kind is Kind.REQUEST else "notice"


def _objections_to_repeating(
    planned: PlannedInteraction, endpoint: str
) -> Iterator[str]:
    """Yield why an interaction can't be repeated with a live server."""
    call = planned.call
    is_response = call.message is not None and call.message.kind is Kind.RESPONSE
    response = planned.interaction.exchanges[0].response
    if call.method == CANCELLED and not planned.is_left:
        yield "it cancels a call that is not pending now"

    if is_response:
        yield "it answers a question that was pushed in the recorded run"

    if call.request.header(LAST_EVENT_ID_HEADER):
        yield "it resumes a stream of the recorded run, with which it is compared"

    if response is not None and response.status in CONDITIONAL_STATUSES:
        yield "it asks about a copy that its client had of an earlier response"

    if _has_lost_response(planned):
        yield "no complete response was recorded: its client left, or the server was lost"

    if planned.part == "call":
        yield from _objections_to_call(planned)

    yield from _objections_to_request(call.request, endpoint)


def _objections_to_call(planned: PlannedInteraction) -> Iterator[str]:
    """Yield why a call can't be repeated: it listens, or can't be answered as recorded."""
    if is_listening_stream(planned.call, planned.interaction.exchanges[-1].response):
        yield "it listens to effects of other calls"

    reason = why_not_repeatable(planned.interaction)
    if reason is not None:
        yield reason


def _has_lost_response(planned: PlannedInteraction) -> bool:
    """Tell whether no complete response was recorded where there should be one."""
    last_exchange = planned.interaction.exchanges[-1]
    if planned.is_left or planned.part == "listening":
        return False
    if last_exchange.rpc_response is not None:
        return False
    if planned.part != "call" and planned.call.request.is_line:
        return False

    response = last_exchange.response
    return response is None or response.end is not End.COMPLETE


def _objections_to_request(request: Request, endpoint: str) -> Iterator[str]:
    """Yield why a request can't be sent again: secrets, states or session ids in it are unknown."""
    # What was sent to the upstream's URL is sent to that of the live server.
    target = "" if is_sent_to(endpoint, request) else request.target
    text = f"{request.body.decode('latin-1')}\n{target}"
    if has_secrets(text):
        yield "its request has redacted secrets"

    if has_kind(text, HASH):
        yield "its request has a state or a session id that no recorded response issued"


_ASK_OF_FIRST_RETRY_UNRECORDED: Final = (
    "the recorded conversation begins with a retry whose ask was not recorded"
)


def why_not_repeatable(interaction: RecordedInteraction) -> str | None:
    """Return why a recorded conversation can't be repeated with a live server, or None."""
    if interaction.exchanges[0].call.answers is not None:
        return _ASK_OF_FIRST_RETRY_UNRECORDED

    answering_exchanges: set[RecordedExchange] = set()
    for turn in interaction.turns:
        answers = canonical(turn.given_answers)
        if has_kind(answers, ANSWER):
            return f"the recorded answer of turn {turn.number} is sealed: only its hash is known"
        if has_secrets(answers):
            return f"the recorded answer of turn {turn.number} has redacted secrets"

        answering_exchanges.update(turn.answering_exchanges)

    for step in interaction.steps:
        if step.is_update and step.exchange not in answering_exchanges:
            return "it answers a question in a notification of its task, or nothing"

    return None


def planned_by_run(
    plan: Sequence[PlannedInteraction], recorders: Sequence[RecorderFacts]
) -> list[list[PlannedInteraction]]:
    """Return what is repeated in each run of the recorder, which had a server of its own.

    What a run that appended had played from the cassette is brought to its server: the openings of
    its sessions, and the writes that came before a call.
    """
    exchanges: list[RecordedExchange] = []
    for planned in plan:
        exchanges += planned.interaction.unshared_exchanges

    exchanges.sort(key=lambda exchange: exchange.number or 0)
    runs = run_number_by_recorder(exchanges, recorders)
    by_number: dict[int | None, PlannedInteraction] = {}
    openings: dict[str, list[PlannedInteraction]] = {}
    sessions_opened_in_run: set[tuple[int, str]] = set()
    plans: dict[int, list[PlannedInteraction]] = {}
    for planned in plan:
        unshared_exchanges = planned.interaction.unshared_exchanges
        run = _run_number_of(unshared_exchanges[0], runs)
        brought_interactions: list[PlannedInteraction] = []
        session = planned.opens_session or planned.session
        if (run, session) not in sessions_opened_in_run:
            sessions_opened_in_run.add((run, session))
            brought_interactions += openings.get(session, ())

        brought_interactions += _played_writes_before(planned, by_number)
        run_plan = plans.setdefault(run, [])
        for brought_interaction in brought_interactions:
            run_plan.append(replace(brought_interaction, is_setup=True))

        run_plan.append(planned)
        for exchange in unshared_exchanges:
            by_number[exchange.number] = planned

        if planned.call.method in (INITIALIZE, INITIALIZED):
            openings.setdefault(session, []).append(planned)

    return list(plans.values())


def _played_writes_before(
    planned: PlannedInteraction, by_number: Mapping[int | None, PlannedInteraction]
) -> Iterator[PlannedInteraction]:
    """Yield the writes that an interaction follows."""
    for exchange in planned.interaction.unshared_exchanges:
        for write in exchange.played_writes:
            if write in by_number:
                yield by_number[write]


def _run_number_of(exchange: RecordedExchange, runs: Mapping[str, int]) -> int:
    """Return the run of the recorder in which an exchange was recorded."""
    recorder_mark = exchange.recorded_by
    if recorder_mark is None:
        return 0
    return runs.get(recorder_mark.recorder, 0)


# How clients left calls before these ended: by cancelling them, or by closing the connection


def _departures_in(interactions: Iterable[RecordedInteraction]) -> dict[int, Departure]:
    """Return how clients of a recording left calls early, by the number of the call."""
    departures_by_number: dict[int, Departure] = {}
    calls: dict[tuple[str, str], RecordedInteraction] = {}
    for interaction in interactions:
        exchange = interaction.exchanges[-1]
        session = session_of(exchange.request)
        message = exchange.call.message
        if message is None:
            continue

        if message.cancelled_id is not None:
            call = calls.get((session, message.cancelled_id))
            if call is not None and _was_pending_when_cancelled(
                call.exchanges[-1], exchange
            ):
                departures_by_number[call.number] = _departure_by_notice(
                    call, interaction
                )
        elif message.kind is Kind.REQUEST and message.id is not None:
            calls[session, message.id] = interaction
            if _was_connection_closed(exchange):
                departures_by_number[interaction.number] = _departure_by_closing(
                    interaction
                )

    return departures_by_number


def _was_pending_when_cancelled(
    call: RecordedExchange, cancelling_exchange: RecordedExchange
) -> bool:
    """Tell whether a call had no response when a notification came that cancels it."""
    if is_listening_stream(call.call, call.response):
        return False

    response = call.response
    located = call.located_response
    if located is None or response is None:
        return True
    if cancelling_exchange.number is None:
        return False

    return response.pieces[located.piece].arrived_count >= cancelling_exchange.number


def _departure_by_notice(
    call: RecordedInteraction, notice: RecordedInteraction
) -> Departure:
    """Return how a call was left that a notification cancels."""
    exchange = call.exchanges[-1]
    count = count_messages_so_far(exchange.response, notice.exchanges[0].number)
    is_answered = exchange.rpc_response is not None

    return Departure(len(call.exchanges) - 1, count, notice.number, is_answered)


def _departure_by_closing(call: RecordedInteraction) -> Departure:
    """Return how a call was left whose client closed the connection."""
    count = count_messages_so_far(call.exchanges[-1].response)
    return Departure(len(call.exchanges) - 1, count)


def _was_connection_closed(exchange: RecordedExchange) -> bool:
    """Tell whether a client closed the connection before the response came."""
    response = exchange.response
    if response is None or response.is_lines:
        return False
    if is_listening_stream(exchange.call, response):
        return False

    return response.end is End.OPEN and exchange.rpc_response is None
