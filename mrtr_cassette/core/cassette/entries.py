"""Recorded exchanges in the form in which requests are matched with them, as values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from itertools import chain
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.cassette.lookup import LookupKey
from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    InteractionPlace,
    PushedRequest,
    RecordedExchange,
    RecordedInteraction,
)
from mrtr_cassette.core.cassette.sessions import (
    PingIds,
    Streams,
    answers_ping,
    event_ids,
    foreign_endpoint_origin,
    foreign_redirect_origin,
    is_listening_stream,
    issued_session,
    ping_ids,
    session_of_exchange,
)
from mrtr_cassette.core.protocol.calls import (
    NO_SESSION,
    Call,
    CallKey,
    Traits,
    session_of,
)
from mrtr_cassette.core.protocol.dialect import INPUT_REQUESTS, InputRequest
from mrtr_cassette.core.protocol.jsonrpc import Kind, Message, Via
from mrtr_cassette.core.protocol.methods import PING
from mrtr_cassette.core.protocol.origins import ServerOrigin
from mrtr_cassette.core.protocol.tasks import TaskState
from mrtr_cassette.core.secrets.names import (
    ANSWER,
    HASH,
    Ref,
    sha256_of,
    with_changed_refs,
)
from mrtr_cassette.core.secrets.sealed import is_searched_everywhere
from mrtr_cassette.core.wire.http import ANSWERED_BY_HEADER, Request
from mrtr_cassette.core.wire.jsonbytes import canonical

RECEIVED: Final = "received."
"""Begins the token of a secret that a client sent; a cassette's tokens are numbers."""


def is_sent_by_client(secret: Ref) -> bool:
    """Tell whether a client sent the secret itself that a placeholder stands for."""
    return secret.token.startswith(RECEIVED)


def ref_without_number(ref: Ref) -> bytes | None:
    """Return a name or a placeholder without its number or token; None for a hash."""
    if ref.kind in (HASH, ANSWER):
        return None
    return ref.kind.encode()


class NormalisedRequest(NamedTuple):
    """A request in the form in which it is matched: all secrets of a rule are the same one.

    Attributes:
        digest: of a recorded one without the caller's values, if equal digests are matched alike.
        stricter_lookups: the keys of requests that are more alike than those with the same lookup,
            from the strictest on; none where all of these are equally alike.
    """

    request: Request
    key: CallKey
    lookup: LookupKey
    traits: Traits
    caller: str
    secrets: tuple[Ref, ...]
    digest: bytes | None = None
    stricter_lookups: tuple[LookupKey, ...] = ()


class EntryPlace(NamedTuple):
    """Where a cassette has an exchange.

    Attributes:
        turn: the turn that its request answers, from 1; 0 for a first request.
        asking_turn: the turn that its response asks, if it does.
        in_file: its interaction by the number in its own file, as messages name it.
    """

    interaction: int
    turn: int
    asking_turn: int
    in_file: InteractionPlace


class EntryNumbers(NamedTuple):
    """Numbers that equal exchanges share, and one that tells them apart.

    Attributes:
        lookup: the same for all exchanges of one lookup key.
        pending: the lookup number of what was pending when the server asked what it answers; None
            if it is no posted answer.
        path: the same for calls that are equal up to here, answers included, whichever known
            states they carried.
        occurrence: how many exchanges of its lookup key its session had, itself included.
    """

    lookup: int
    path: int
    occurrence: int
    pending: int | None


ArrivalTime = tuple[float, ...]
"""A time that is counted in requests: how many had arrived, and what else orders it."""


class Lifetime(NamedTuple):
    """When a request arrived, and when it had its response, as requests arrive."""

    start: ArrivalTime
    end: ArrivalTime


@dataclass(frozen=True, slots=True, eq=False)
class ReplayEntry:
    """A recorded exchange, with everything by which a replay finds it.

    Attributes:
        client_message: its message, as far as responses repeat it.
        session: the session in which it was sent, or which its response opens.
        issued_sha256: hash of the request state that its ask issues on replay, or None.
        ask_key: identifies its ask: the hash of the state that it issues, or what it asks; equal
            ones of a call are interchangeable.
        answered_ask: the exchange whose ask it answers; None for a first request and an orphan.
        answered_question: the pushed request that it answers, if it was posted.
        continued_entry: what it goes on with: what was pending when the server asked what it
            answers, or the call of which it is a step; None for anything else.
        state: the state of a task that it polled as a step.
        resumed_entry: the exchange that began the stream that it goes on with, or None.
        is_listening: its response is a stream with messages that other requests caused.
        is_pong: it answers a ping.
        arrival: orders exchanges as their requests arrived, or as the file has them.
    """

    exchange: RecordedExchange
    place: EntryPlace
    normalised: NormalisedRequest
    client_message: Message | None
    numbers: EntryNumbers
    session: str
    issued_sha256: str | None
    ask_key: str | None
    answered_ask: ReplayEntry | None
    answered_question: PushedRequest | None
    continued_entry: ReplayEntry | None
    state: TaskState | None
    resumed_entry: ReplayEntry | None
    is_listening: bool
    is_pong: bool
    arrival: tuple[float, int, int]

    @property
    def kind(self) -> Kind | None:
        """The kind of its message; None if its request is no message."""
        return None if self.client_message is None else self.client_message.kind

    @property
    def key(self) -> CallKey:
        """The key of its call."""
        return self.normalised.key

    @property
    def interaction(self) -> int:
        """The number of the interaction to which it belongs."""
        return self.place.interaction

    @property
    def turn(self) -> int:
        """The turn that its request answers, from 1; 0 for a first request."""
        return self.place.turn

    @property
    def stream(self) -> ReplayEntry:
        """The exchange that began the stream of its response."""
        return self.resumed_entry or self

    @property
    def opens_session(self) -> bool:
        """Whether its response gave the id of its session to its client."""
        return self.session != NO_SESSION and not session_of(self.exchange.request)

    @property
    def call_of_question(self) -> ReplayEntry | None:
        """The call during which the server asked what it answers, if it is a posted answer."""
        pending_entry = self.continued_entry
        if self.answered_question is None or pending_entry is None:
            return None
        if pending_entry.kind is not Kind.REQUEST:
            return None

        return pending_entry

    @property
    def call_of_step(self) -> ReplayEntry | None:
        """The call of which it is a step; None if it is a call itself, or a posted answer."""
        return self.continued_entry if self.answered_question is None else None

    @property
    def via(self) -> Via:
        """The way of the turns to which it belongs."""
        if self.answered_question is not None:
            return "push"
        if self.continued_entry is not None:
            return "task"
        return "result"

    @property
    def proves_its_ask(self) -> bool:
        """Whether the server knows what it answers: by its state, or by its session."""
        return self.normalised.lookup.state is not None or self.session != NO_SESSION

    @property
    def asked_inputs(self) -> Mapping[str, InputRequest]:
        """What its response asks for, by key."""
        if self.state is not None:
            return self.state.input_requests

        ask = self.exchange.ask
        if ask is None:
            return {}

        return ask.input_requests

    @property
    def is_ask(self) -> bool:
        """Whether its response asks for input, instead of ending the call."""
        return self.ask_key is not None

    @property
    def is_by_proxy(self) -> bool:
        """Whether the proxy sent it while recording, in place of the client."""
        return bool(self.normalised.request.header(ANSWERED_BY_HEADER))

    @property
    def is_refused(self) -> bool:
        """Whether the server refused its request, by the HTTP status or by a JSON-RPC error."""
        return self.exchange.is_refused

    def has_issued_state(self, sha256: str) -> bool:
        """Tell whether its ask issued a state with this hash, on replay or while recorded."""
        issued_hashes = (self.issued_sha256, self.exchange.issued_sha256)
        return self.is_ask and sha256 in issued_hashes


def entries_leading_elsewhere(
    entries: Iterable[ReplayEntry], origin: ServerOrigin
) -> dict[ReplayEntry, str]:
    """Return the exchanges that send their clients elsewhere than to an origin, and where."""
    foreign_origin_by_entry = {}
    for entry in entries:
        response = entry.exchange.response
        if response is None:
            continue

        if entry.is_listening:
            foreign_origin = foreign_endpoint_origin(response, origin)
        else:
            foreign_origin = foreign_redirect_origin(
                entry.normalised.request, response.status, response.headers, origin
            )

        if foreign_origin is not None:
            foreign_origin_by_entry[entry] = foreign_origin

    return foreign_origin_by_entry


def entry_and_piece_by_event(
    entries: Iterable[ReplayEntry],
) -> dict[tuple[str, str], tuple[ReplayEntry, int]]:
    """Return in which response, and which of its pieces, events are, by session and id.

    Without a session an id may be used again, and is left out.
    """
    places: dict[tuple[str, str], tuple[ReplayEntry, int]] = {}
    ambiguous_events = set()
    for entry in entries:
        for index, id_of_event in event_ids(entry.exchange.response):
            event = (entry.session, id_of_event)
            if event in places and not entry.session:
                ambiguous_events.add(event)

            places[event] = (entry, index)

    for event in ambiguous_events:
        del places[event]

    return places


def learned_origin(
    entries: Iterable[ReplayEntry], origin: ServerOrigin
) -> ServerOrigin:
    """Return the origin of a server, with what its responses tell of it."""
    for entry in entries:
        if entry.exchange.response is not None:
            origin.learn_from_exchange(
                entry.normalised.request, entry.exchange.response
            )

    return origin


def _arrival_order_of(
    exchange: RecordedExchange, place: EntryPlace
) -> tuple[float, int, int]:
    """Return a sort key by arrival; an exchange without a number comes last."""
    number: float | None = exchange.number
    if number is None:
        number = float("inf")

    return number, place.interaction, place.turn


def is_answer_to(entry: ReplayEntry, answer: Message) -> bool:
    """Tell whether a posted answer was recorded under the id of another one."""
    question = entry.answered_question
    if question is None:
        return False
    return question.message.comparable_id == answer.comparable_id


class MadeWrite(NamedTuple):
    """A write that a play has made: its recording, or its key if a live server got it.

    Attributes:
        others_in_flight: how many equal calls were in flight besides it.
    """

    entry: ReplayEntry | None = None
    others_in_flight: int = 0
    live_key: CallKey | None = None

    @property
    def key(self) -> CallKey | None:
        """The call."""
        return self.live_key if self.entry is None else self.entry.key

    @property
    def description(self) -> str:
        """The write in words: the call, and how its user answered."""
        calls_and_answers = []
        step = self.entry
        while step is not None:
            answers = step.normalised.lookup.answers
            if answers is not None:
                calls_and_answers.append(answers)

            step = step.answered_ask

        call = ""
        if self.key is not None:
            call = f"{self.key} {self.key.arguments}"

        calls_and_answers.append(call)
        return " answered ".join(reversed(calls_and_answers))

    @property
    def numbered_description(self) -> str:
        """The same with the number of its interaction."""
        if self.entry is None:
            return self.description_without_number
        return f"{self.entry.place.in_file} {self.description}"

    @property
    def description_without_number(self) -> str:
        """The same, and whether nothing is recorded of it."""
        if self.entry is None:
            return f"unrecorded {self.description}"
        return self.description


def answer_digest(entry: ReplayEntry, steps: Iterable[ReplayEntry]) -> bytes:
    """Return the digest of the response to a request, without names and the caller's values.

    For a call that created a task, the digest covers what was answered, and the last state.
    """
    text = _answer_text(entry.exchange, steps)
    ask = entry.exchange.ask
    if ask is not None and ask.request_state is not None:
        issued_state = canonical(ask.request_state)
        if is_searched_everywhere(ask.request_state):
            issued_state = issued_state[1:-1]

        text = text.replace(issued_state, "")

    text = with_changed_refs(text, ref_without_number)
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _answer_text(exchange: RecordedExchange, steps: Iterable[ReplayEntry]) -> str:
    """Return what a response says: about its task, as a result or error, or in an HTTP body."""
    task = exchange.created_task
    if task is not None:
        return _task_answers_and_last_state(task, steps)

    message = exchange.rpc_response
    if message is not None:
        return canonical([message.tree.get("result"), message.tree.get("error")])

    response = exchange.response
    if response is not None:
        return f"{response.status} {response.body.decode('latin-1')}"

    return ""


def _task_answers_and_last_state(task: TaskState, steps: Iterable[ReplayEntry]) -> str:
    """Return the answers that a task was given, and the digest of its last state."""
    lines = []
    for step in steps:
        if step.state is None:
            lines.append(str(step.normalised.lookup.answers))
        else:
            task = step.state

    lines.append(task.digest)
    return "\n".join(lines)


# Reading a cassette


class Entries(NamedTuple):
    """The exchanges of a cassette as they are matched.

    Attributes:
        by_interaction: for each interaction, those that no earlier one has.
        by_arrival: all in the order in which their requests arrived.
        steps: what was recorded of the task that a call created.
        answered_by_proxy: the retries with which the proxy answered asks while recording
            (`answers`), and which are played instead of these.
        pings: the pings of the server, by session and id.
    """

    by_interaction: list[list[ReplayEntry]]
    by_arrival: list[ReplayEntry]
    steps: dict[ReplayEntry, list[ReplayEntry]]
    answered_by_proxy: dict[ReplayEntry, ReplayEntry]
    pings: PingIds

    @property
    def in_file_order(self) -> list[ReplayEntry]:
        """All exchanges, as the file has them."""
        return list(chain.from_iterable(self.by_interaction))


ReadRequest = Callable[[Request], tuple[Call, NormalisedRequest]]
"""Brings a recorded request into the form in which it is matched."""


def entries_of(cassette: Cassette, read_request: ReadRequest) -> Entries:
    """Return the exchanges of a cassette as they are matched."""
    drafts = _drafts_with_due_times(cassette)
    pings = ping_ids([draft.exchange for draft in drafts])
    writer = _EntryWriter(read_request, pings)
    for draft in sorted(drafts, key=lambda draft: draft.due):
        writer.write_entry(draft)

    by_interaction: list[list[ReplayEntry]] = [[] for _ in cassette.interactions]
    by_arrival = []
    steps: dict[ReplayEntry, list[ReplayEntry]] = {}
    answered_by_proxy: dict[ReplayEntry, ReplayEntry] = {}
    for draft in drafts:
        entry = writer.entry_by_exchange[draft.exchange]
        by_interaction[entry.interaction - 1].append(entry)
        by_arrival.append(entry)
        if entry.call_of_step is not None:
            steps.setdefault(entry.call_of_step, []).append(entry)

        if entry.answered_ask is not None and entry.is_by_proxy:
            answered_by_proxy[entry.answered_ask] = entry

    by_arrival.sort(key=lambda entry: entry.arrival)
    return Entries(by_interaction, by_arrival, steps, answered_by_proxy, pings)


@dataclass(slots=True)
class _Draft:
    """An exchange that becomes an entry, and the exchanges to whose entries it refers.

    Attributes:
        due: orders drafts as their requests arrived, after those to which they refer.
    """

    exchange: RecordedExchange
    place: EntryPlace
    answered_ask: RecordedExchange | None
    answered_question: PushedRequest | None
    continued_exchange: RecordedExchange | None
    due: tuple[float, int, int]


def _drafts_with_due_times(cassette: Cassette) -> list[_Draft]:
    """Return the drafts of all exchanges, and when their entries are due."""
    drafts = []
    due_by_exchange: dict[RecordedExchange, tuple[float, int, int]] = {}
    for interaction in cassette.interactions:
        for draft in _drafts_of_interaction(interaction):
            for referred_exchange in (draft.answered_ask, draft.continued_exchange):
                if referred_exchange is not None:
                    draft.due = max(draft.due, due_by_exchange[referred_exchange])

            due_by_exchange[draft.exchange] = draft.due
            drafts.append(draft)

    return drafts


def _drafts_of_interaction(interaction: RecordedInteraction) -> Iterator[_Draft]:
    """Yield the drafts of the exchanges that no earlier interaction has."""
    exchanges = interaction.exchanges
    answered_ask_by_exchange = dict(zip(exchanges[1:], exchanges, strict=False))
    asked_turn_by_exchange: dict[RecordedExchange, int] = {}
    for position, exchange in enumerate(exchanges):
        asked_turn_by_exchange[exchange] = interaction.asking_turn(position)

    question_by_answer: dict[
        RecordedExchange, tuple[RecordedExchange, PushedRequest]
    ] = {}
    for pushed_turn in interaction.pushed_turns:
        questions = {question.key: question for question in pushed_turn.pushed_requests}
        for answer in pushed_turn.answers:
            pending_exchange_of_turn = exchanges[pushed_turn.position]
            question_by_answer[answer.exchange] = (
                pending_exchange_of_turn,
                questions[answer.key],
            )

    answered_turn_by_update: dict[RecordedExchange, int] = {}
    turns = interaction.turns if interaction.steps else ()
    for turn in turns:
        if turn.via == "task":
            asked_turn_by_exchange[turn.asking_exchange] = turn.number
            for update in turn.answering_exchanges:
                answered_turn_by_update[update] = turn.number
                answered_ask_by_exchange[update] = turn.asking_exchange

    place_in_file = interaction.place
    for exchange, place in interaction.placed_exchanges:
        entry_place = EntryPlace(
            place.interaction,
            answered_turn_by_update.get(exchange, place.turn),
            asked_turn_by_exchange.get(exchange, 0),
            place_in_file,
        )
        continued_exchange, question = question_by_answer.get(exchange, (None, None))
        if place.step is not None:
            continued_exchange = exchanges[-1]

        yield _Draft(
            exchange,
            entry_place,
            answered_ask_by_exchange.get(exchange),
            question,
            continued_exchange,
            due=_arrival_order_of(exchange, entry_place),
        )


class _EntryWriter:
    """Writes entries of exchanges as these arrived, and numbers those that are alike.

    Equal answers to what was asked during other calls are numbered apart. A request that resumes a
    stream is numbered by that stream instead of its key, as each session has other ids of events.
    """

    def __init__(self, read_request: ReadRequest, pings: PingIds) -> None:
        self.entry_by_exchange: dict[RecordedExchange, ReplayEntry] = {}
        self._read_request = read_request
        self._pings = pings
        self._streams = Streams()
        self._lookup_numbers: dict[object, int] = {}
        self._path_numbers: dict[object, int] = {}
        self._occurrences: Counter[tuple[str, int]] = Counter()

    def write_entry(self, draft: _Draft) -> None:
        """Write the entry of the next exchange."""
        exchange = draft.exchange
        call, normalised = self._read_request(exchange.request)
        if exchange.is_about_cached_copy:
            # An older cassette doesn't have the condition.
            traits = normalised.traits._replace(is_conditional=True)
            normalised = normalised._replace(traits=traits)

        client_message = _message_as_responses_repeat_it(call.message)
        session = session_of_exchange(exchange)
        answered_ask = self._entry_of(draft.answered_ask)
        answered_question = draft.answered_question
        continued_entry = self._entry_of(draft.continued_exchange)
        pending_entry = None if answered_question is None else continued_entry
        resumed_entry = self._entry_of(self._streams.stream_resumed_by(exchange))
        issued_hash, ask_key = _issued_hash_and_ask_key(exchange, normalised)
        entry = ReplayEntry(
            exchange=exchange,
            place=draft.place,
            normalised=normalised,
            client_message=client_message,
            numbers=self._counted_numbers(
                normalised, session, answered_ask, pending_entry, resumed_entry
            ),
            session=session,
            issued_sha256=issued_hash,
            ask_key=ask_key,
            answered_ask=answered_ask,
            answered_question=answered_question,
            continued_entry=continued_entry,
            state=None if continued_entry is None else exchange.polled_state,
            resumed_entry=resumed_entry,
            is_listening=_is_listening(call, exchange, resumed_entry),
            is_pong=self._entry_answers_ping(
                session, client_message, answered_question
            ),
            arrival=_arrival_order_of(exchange, draft.place),
        )

        self.entry_by_exchange[exchange] = entry

    def _entry_of(self, exchange: RecordedExchange | None) -> ReplayEntry | None:
        """Return the entry of an exchange, which must be written; None without an exchange."""
        if exchange is None:
            return None
        return self.entry_by_exchange[exchange]

    def _entry_answers_ping(
        self,
        session: str,
        answer: Message | None,
        answered_question: PushedRequest | None,
    ) -> bool:
        """Tell whether an answer is to a ping, and not to another request that was pushed."""
        if answered_question is not None:
            pushed_message = answered_question.message
            if pushed_message.method != PING:
                return False

        return answers_ping(session, answer, self._pings)

    def _counted_numbers(
        self,
        normalised: NormalisedRequest,
        session: str,
        answered_ask: ReplayEntry | None,
        pending_entry: ReplayEntry | None,
        resumed_entry: ReplayEntry | None,
    ) -> EntryNumbers:
        """Return the numbers of the next request, and count it in its session."""
        state = normalised.lookup.state
        # The answer to a retry with an unknown state tells nothing of calls without one.
        ask_number_or_state: object = state if answered_ask is None else None
        if answered_ask is not None and (state is not None or session != NO_SESSION):
            ask_number_or_state = answered_ask.numbers.path

        path_key = (
            normalised.key,
            normalised.lookup.answers,
            normalised.secrets,
            ask_number_or_state,
        )
        path_number = self._path_numbers.setdefault(path_key, len(self._path_numbers))
        pending_number = None
        if pending_entry is not None:
            pending_number = pending_entry.numbers.lookup

        lookup_and_cause: object = (normalised.lookup, pending_number)
        if resumed_entry is not None:
            lookup_and_cause = (
                resumed_entry.numbers.lookup,
                resumed_entry.numbers.occurrence,
            )

        lookup_number = self._lookup_numbers.setdefault(
            lookup_and_cause, len(self._lookup_numbers)
        )
        self._occurrences[session, lookup_number] += 1
        return EntryNumbers(
            lookup_number,
            path_number,
            self._occurrences[session, lookup_number],
            pending_number,
        )


_NO_MEMBERS: Final[dict[str, Any]] = {}
"""An empty object, which nobody changes."""


def _message_as_responses_repeat_it(message: Message | None) -> Message | None:
    """Return a message as far as responses repeat it, without what takes memory."""
    if message is None:
        return None

    meta = _NO_MEMBERS
    if "progressToken" in message.meta:
        meta = {"progressToken": message.meta["progressToken"]}

    nothing = _NO_MEMBERS
    return Message(
        b"", message.kind, nothing, message.method, message.id, nothing, meta
    )


def _is_listening(
    call: Call, exchange: RecordedExchange, resumed_entry: ReplayEntry | None
) -> bool:
    """Tell whether an exchange listens to the server; so must the stream that it resumes."""
    if resumed_entry is not None and not resumed_entry.is_listening:
        return False
    return is_listening_stream(call, exchange.response)


def _issued_hash_and_ask_key(
    exchange: RecordedExchange, normalised: NormalisedRequest
) -> tuple[str | None, str | None]:
    """Return the hash of the state that a response issues, and what its ask is known by."""
    ask = exchange.ask
    if ask is None:
        return None, None

    if ask.request_state is not None:
        issued_hash = sha256_of(ask.request_state)
        return issued_hash, issued_hash

    requests = ask.message.tree["result"].get(INPUT_REQUESTS)
    return None, canonical([*normalised.key, requests])


# Sessions that a recording opened


class SessionStanding(Enum):
    """How a request names a session; the value says why it doesn't get what others got."""

    NONE = "this was recorded in a session, and the request names none"
    UNKNOWN = "the request names a session that no recorded response opened"
    OPENED = "this was recorded only outside the session, and refused there"


class OpenedSessions:
    """The sessions that a recording has: those that responses opened, and a pipe each.

    They count at the paths where clients named a session. Where nothing was opened, the server
    keeps no sessions, whatever its clients name.
    """

    def __init__(self, entries: Sequence[ReplayEntry]) -> None:
        """Find the sessions that were opened, and the paths at which clients named any."""
        self._opened_ids: set[str] = set()
        issued_ids: set[str] = set()
        named_ids: set[str] = set()
        for entry in entries:
            issued_ids.add(issued_session(entry.exchange))
            named_ids.add(session_of(entry.exchange.request))
            if entry.opens_session or entry.exchange.request.is_line:
                self._opened_ids.add(entry.session)

        # One that replaced another, and in which nobody was recorded, can't be played.
        self._opened_ids |= issued_ids & named_ids
        self._opened_ids.discard(NO_SESSION)
        self._session_paths: set[str] = set()
        if not self._opened_ids:
            return

        for entry in entries:
            if entry.kind is not None and entry.normalised.traits.session != NO_SESSION:
                self._session_paths.add(_endpoint_path(entry.key.endpoint))

    def standing_of(self, session: str) -> SessionStanding:
        """Return the standing of a request that names a session as the recording names it."""
        if session == NO_SESSION:
            return SessionStanding.NONE
        if session in self._opened_ids:
            return SessionStanding.OPENED
        return SessionStanding.UNKNOWN

    def lacks_open_session(self, session: str, endpoint: str) -> bool:
        """Tell whether a request lacks an open session where the server wants one."""
        if _endpoint_path(endpoint) not in self._session_paths:
            return False
        return self.standing_of(session) is not SessionStanding.OPENED

    def entries_for_session(
        self, entries: Sequence[ReplayEntry], session: str
    ) -> Sequence[ReplayEntry]:
        """Keep those of some equal requests that answer a request which names a session.

        What the server said without a session it may say in one too, unless it refused.
        """
        if _endpoint_path(entries[0].key.endpoint) not in self._session_paths:
            return entries

        standing = self.standing_of(session)
        entries_of_standing = []
        outside_entries = []
        for entry in entries:
            named_session = entry.normalised.traits.session
            if self.standing_of(named_session) is standing:
                entries_of_standing.append(entry)

            if named_session == NO_SESSION and not entry.is_refused:
                outside_entries.append(entry)

        if standing is SessionStanding.OPENED and not entries_of_standing:
            return outside_entries

        return entries_of_standing


def _endpoint_path(endpoint: str) -> str:
    """Return the path of an endpoint, without the HTTP method before it."""
    return endpoint.partition(" ")[2]
