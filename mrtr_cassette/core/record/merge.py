"""Merge what several recorders saw into one recording, as one recorder would have seen it.

The files' order and their number mean nothing. What contradicts itself is an error that names the
files. What one recorder saw stays in its order, and nothing comes before its cause: the ask before
the retry with its state, the opening of a session before its use, a pushed request before its
answer. Only then the clocks decide.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, partial
from heapq import heappop, heappush
from itertools import count
from typing import Final, NamedTuple

from mrtr_cassette.core.cassette.digests import AnnouncedDigests
from mrtr_cassette.core.cassette.journal import JournalHeader
from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    RecordedBy,
    RecordedExchange,
    RecorderFacts,
)
from mrtr_cassette.core.cassette.texts import (
    RULE_WORDS,
    exchange_with_changed_texts,
    renumbered_exchange,
)
from mrtr_cassette.core.protocol.calls import NO_SESSION, session_of
from mrtr_cassette.core.record.assembly import assemble, issued_name
from mrtr_cassette.core.record.linking import ExchangeFacts, Moment, facts_of
from mrtr_cassette.core.secrets.names import (
    HASH,
    ISSUED,
    LIVE,
    Ref,
    compared_sha256,
    is_cassette_token,
    is_journal_token,
    is_name_of_kind,
    renumber_secrets,
    sha256_of,
    strip_volatile,
    with_changed_refs,
)
from mrtr_cassette.core.wire.http import Piece
from mrtr_cassette.errors import CassetteError, counted

_ORIGIN_PATTERN = re.compile("[a-z]+://[^/?]*")


@dataclass(frozen=True, slots=True)
class Source:
    """What one file has of one recorder."""

    name: str
    header: JournalHeader
    exchanges: Mapping[int, RecordedExchange]
    """By number at the recorder."""

    is_published: bool = False
    """It is a cassette, whose placeholders have numbers of its own."""

    @property
    def recorder(self) -> str:
        """The id of the recorder."""
        return self.header.recorder or ""

    @property
    def token_namespace(self) -> str:
        """Names whose tokens stand for its secrets."""
        return self.name if self.is_published else self.recorder


def merged_cassette(
    sources: Sequence[Source], tool: str
) -> tuple[Cassette, tuple[str, ...]]:
    """Return the cassette of what recorders saw, and what to know of it, in words.

    Raises:
        CassetteError: they can't be put together, or contradict each other.
    """
    sources = sorted(sources, key=_most_telling_first)
    recorder_by_id: dict[str, _Recorder] = {}
    for source in sources:
        _check_same_settings(sources[0], source)
        began_ms = source.header.wall_ms or 0.0
        new_recorder = _Recorder(source.recorder, began_ms)
        recorder = recorder_by_id.setdefault(source.recorder, new_recorder)
        for number, exchange in source.exchanges.items():
            recorder.add_exchange(number, source, exchange)

    recorders = sorted(
        recorder_by_id.values(), key=lambda recorder: (recorder.began_ms, recorder.id)
    )
    earliest_recorder = recorders[0]
    header = next(
        source.header for source in sources if source.recorder == earliest_recorder.id
    )
    providers = _providers_by_cause(recorders)
    cassette = assemble(header, _merged_exchanges(recorders, providers), tool)
    recorder_facts: list[RecorderFacts] = []
    for recorder in recorders:
        began_ms = recorder.began_ms
        offset_ms = began_ms - earliest_recorder.began_ms
        recorder_facts.append(RecorderFacts(recorder.id, began_ms, offset_ms))

    notes = tuple(_notes_on_missing_causes(recorders, providers))
    return replace(cassette, recorders=tuple(recorder_facts)), notes


def _most_telling_first(source: Source) -> tuple[bool, int, str]:
    """Sort what tells most first: a journal has ids of sessions, and a cassette has not."""
    return (source.is_published, -len(source.exchanges), source.name)


def _check_same_settings(first: Source, source: Source) -> None:
    """Make sure that two recordings can be in one cassette."""
    expected = first.header
    header = source.header
    for name in ("transport", "request_state", "redaction", "answers", "values"):
        if getattr(expected, name) != getattr(header, name):
            setting_in_words = RULE_WORDS.get(name, name.replace("_", " "))
            reason = (
                f"it was recorded with another {setting_in_words} than {first.name}"
            )
            raise CassetteError(
                source.name, reason, hint="merge recordings with the same settings"
            )

    if header.transport == "stdio" and source.recorder != first.recorder:
        reason = f"it was recorded over pipes, like {first.name}, with another client and server"
        raise CassetteError(
            source.name, reason, hint="only pieces of one journal can be merged"
        )

    path = _ORIGIN_PATTERN.sub("", header.upstream)
    expected_path = _ORIGIN_PATTERN.sub("", expected.upstream)
    if path != expected_path:
        upstream = header.upstream
        reason = f"its upstream is {upstream}, but {first.name} has {expected.upstream}"
        hint = "another path is another server; merge the recordings of each server separately"
        raise CassetteError(source.name, reason, hint=hint)


def sources_of(cassette: Cassette) -> Iterator[Source]:
    """Yield what a cassette has of each of its recorders."""
    clocks = {recorder.id: recorder.wall_ms for recorder in cassette.recorders}
    # Older cassettes name no recorder; a copy has the same one.
    unnamed = sha256_of(f"{cassette.recorded_at}\n{cassette.upstream}")[:32]
    began_ms = 0.0
    with suppress(ValueError):
        began_ms = datetime.fromisoformat(cassette.recorded_at).timestamp() * 1000

    for recorder, exchanges in _exchanges_as_recorded(cassette).items():
        header = JournalHeader(
            upstream=cassette.upstream,
            request_state=cassette.request_state,
            recorded_at=cassette.recorded_at,
            existing="keep",
            redaction=cassette.redaction,
            answers="sealed" if cassette.seals_answers else None,
            values=cassette.values,
            transport=cassette.transport,
            client=cassette.client,
            command=cassette.command,
            recorder=recorder or unnamed,
            wall_ms=clocks.get(recorder, began_ms),
        )
        yield Source(cassette.path, header, exchanges, is_published=True)


# What one recorder saw

_SeenExchange = tuple[Source, RecordedExchange]
_Cause = tuple[str, ...]
"""The kind of a cause, and what tells it from others of the kind."""

_STATE_CAUSE: Final = "state"
_SESSION_CAUSE: Final = "session"
_ASK_CAUSE: Final = "ask"
_PUSH_CAUSE: Final = "push"
_REQUEST_CAUSE: Final = "request"


class _Happening(NamedTuple):
    """A request, a piece of a response or its end, as one recorder saw it."""

    arrived_count: int
    """How many of the recorder's requests had arrived, with this one if it is one."""

    is_piece: bool
    at_ms: float
    exchange_number: int
    """The exchange at its recorder."""

    needed_causes: tuple[_Cause, ...] = ()
    """Causes that have to be there before."""

    given_causes: tuple[_Cause, ...] = ()
    """Causes that are there from then on."""

    @property
    def order_key(self) -> tuple[int, bool, float]:
        """Its place among all that its recorder saw."""
        return (self.arrived_count, self.is_piece, self.at_ms)


@dataclass
class _Recorder:
    """All that the sources have of one recorder."""

    id: str
    began_ms: float
    """By its wall clock."""

    exchanges_by_number: dict[int, _SeenExchange] = field(default_factory=dict)

    def add_exchange(
        self, number: int, source: Source, exchange: RecordedExchange
    ) -> None:
        """Take an exchange that is new, or of which this source has more.

        Raises:
            CassetteError: two sources have different exchanges under one number.
        """
        other_source, known_exchange = self.exchanges_by_number.setdefault(
            number, (source, exchange)
        )
        if known_exchange is exchange:
            return

        content = _comparable_content(exchange)
        known_content = _comparable_content(known_exchange)
        if content.startswith(known_content):
            if len(content) > len(known_content):
                self.exchanges_by_number[number] = (source, exchange)
        elif not known_content.startswith(content):
            raise CassetteError(
                source.name,
                f"exchange {number} of its recorder, {exchange.call.title}, is not as in "
                f"{other_source.name}",
                hint="one of the files was edited or damaged; leave one of them out",
            )

    @cached_property
    def happenings(self) -> list[_Happening]:
        """What it saw, in its order."""
        happenings: list[_Happening] = []
        for number, (_, exchange) in sorted(self.exchanges_by_number.items()):
            happenings.extend(_happenings_of(number, exchange))

        return sorted(happenings, key=lambda happening: happening.order_key)


def _comparable_content(exchange: RecordedExchange) -> str:
    """Return what copies of an exchange share; one may have more of the response."""
    request = exchange.request
    status = 0
    body = b""
    if exchange.response is not None:
        status = exchange.response.status
        body = exchange.response.body

    first_line = f"{request.method} {request.target} {status}".encode()
    content = b"\n".join([first_line, request.body, body])
    return strip_volatile(content.decode("latin-1"))


def _happenings_of(number: int, exchange: RecordedExchange) -> Iterator[_Happening]:
    """Yield what was seen of an exchange, with its causes and what it causes."""
    facts = facts_of(exchange)
    session = facts.session
    request_names_session = session_of(exchange.request) != NO_SESSION
    ask = _cause_of_ask(exchange)
    needed_causes = tuple(_causes_needed_before(exchange, facts, ask))
    given_causes: tuple[_Cause, ...] = ()
    if facts.request_id is not None:
        given_causes = ((_REQUEST_CAUSE, session, facts.request_id),)

    yield _Happening(
        number, False, exchange.started_ms, number, needed_causes, given_causes
    )

    def happening_at(
        moment: Moment, *given_causes: _Cause, needed_causes: tuple[_Cause, ...] = ()
    ) -> _Happening:
        arrived_count = max(number, moment.arrived_count)
        return _Happening(
            arrived_count, True, moment.at_ms, number, needed_causes, given_causes
        )

    moments = _response_moments(exchange, number)
    end_moment = moments[-1]
    yield from map(happening_at, moments)
    if session != NO_SESSION and not request_names_session:
        yield happening_at(moments[0], (_SESSION_CAUSE, session))

    if exchange.issued_sha256 is not None:
        whole_moment = end_moment if facts.asked_keys is None else facts.asked_moment
        yield happening_at(whole_moment, (_STATE_CAUSE, exchange.issued_sha256))
    elif facts.asked_keys is not None:
        yield happening_at(facts.asked_moment, ask)

    for push in facts.pushes:
        yield happening_at(push.moment, (_PUSH_CAUSE, session, push.id))

    for request_id, moment in facts.responses:
        yield happening_at(
            moment, needed_causes=((_REQUEST_CAUSE, session, request_id),)
        )


def _response_moments(exchange: RecordedExchange, number: int) -> list[Moment]:
    """Return when the pieces of a response came, and when it ended."""
    moments: list[Moment] = []
    if exchange.response is not None:
        for piece in exchange.response.pieces:
            moments.append(Moment(piece.arrived_count, piece.at_ms))

    moments.append(Moment(exchange.ended_after or number, exchange.ended_ms))
    return moments


def _cause_of_ask(exchange: RecordedExchange) -> _Cause:
    """Return the cause that an ask without a state is, which its call and its client tell."""
    call = exchange.call
    return (_ASK_CAUSE, sha256_of(strip_volatile("\n".join(call.key()))), call.client)


def _causes_needed_before(
    exchange: RecordedExchange, facts: ExchangeFacts, ask: _Cause
) -> Iterator[_Cause]:
    """Yield what has to be there before an exchange."""
    if session_of(exchange.request) != NO_SESSION:
        yield (_SESSION_CAUSE, facts.session)

    if exchange.echoed_sha256 is not None:
        yield (_STATE_CAUSE, exchange.echoed_sha256)
    elif exchange.call.answers is not None:
        yield ask

    if facts.answered_push_id is not None:
        yield (_PUSH_CAUSE, facts.session, facts.answered_push_id)


# The order of what several recorders saw

_Providers = Mapping[_Cause, Sequence[tuple[int, _SeenExchange]]]
"""Who gave each cause: the index of the recorder, and the exchange."""


def _providers_by_cause(recorders: Sequence[_Recorder]) -> _Providers:
    """Return which exchanges gave each cause."""
    providers: dict[_Cause, list[tuple[int, _SeenExchange]]] = {}
    for index, recorder in enumerate(recorders):
        for happening in recorder.happenings:
            seen_exchange = recorder.exchanges_by_number[happening.exchange_number]
            for cause in happening.given_causes:
                providers.setdefault(cause, []).append((index, seen_exchange))

    return providers


class _RecorderQueues:
    """What comes next of each recorder: ready, or blocked until others have given its causes."""

    def __init__(self, recorders: Sequence[_Recorder], providers: _Providers) -> None:
        self._recorders = recorders
        self._queues = [deque(recorder.happenings) for recorder in recorders]
        self._providing_recorders_by_cause: dict[_Cause, set[int]] = {}
        for cause, providers_of_cause in providers.items():
            self._providing_recorders_by_cause[cause] = {
                recorder_index for recorder_index, _ in providers_of_cause
            }

        self._ready: list[tuple[float, bool, int]] = []
        """A heap of moments, each with the index of its recorder."""

        self._missing_cause_by_recorder: dict[int, _Cause] = {}
        """A cause that is missing, by the index of the recorder."""

        self._recorders_waiting_for: dict[_Cause, list[int]] = defaultdict(list)
        self._given_causes: set[_Cause] = set()
        for recorder_index in range(len(recorders)):
            self._queue_next_happening(recorder_index)

    def ordered_happenings(self) -> Iterator[tuple[int, _Happening]]:
        """Yield all, the earliest first that has its causes."""
        while self._ready or self._missing_cause_by_recorder:
            if self._ready:
                *_, recorder_index = heappop(self._ready)
            else:
                # No true cause is missing: a state was issued, or an id used, again.
                recorder_index = min(
                    self._missing_cause_by_recorder, key=self._order_of_next
                )
                del self._missing_cause_by_recorder[recorder_index]

            happening = self._queues[recorder_index].popleft()
            yield recorder_index, happening
            for cause in happening.given_causes:
                self._note_given_cause(cause)

            self._queue_next_happening(recorder_index)

    def _order_of_next(self, recorder_index: int) -> tuple[float, bool, int]:
        """Return when the head of a recorder was seen, with its index."""
        next_happening = self._queues[recorder_index][0]
        wall_ms = self._recorders[recorder_index].began_ms + next_happening.at_ms
        # A request of the same moment comes later: its client may have waited for this.
        comes_later = not next_happening.is_piece
        return wall_ms, comes_later, recorder_index

    def _queue_next_happening(self, recorder_index: int) -> None:
        """Take the next head of a recorder, if it has any."""
        queue = self._queues[recorder_index]
        if not queue:
            return

        for cause in queue[0].needed_causes:
            providing_recorders = self._providing_recorders_by_cause.get(
                cause, {recorder_index}
            )
            if (
                recorder_index not in providing_recorders
                and cause not in self._given_causes
            ):
                self._missing_cause_by_recorder[recorder_index] = cause
                self._recorders_waiting_for[cause].append(recorder_index)
                return

        heappush(self._ready, self._order_of_next(recorder_index))

    def _note_given_cause(self, cause: _Cause) -> None:
        """Take note of a cause; what waited for it is ready, or waits for the next one."""
        self._given_causes.add(cause)
        for recorder_index in self._recorders_waiting_for.pop(cause, ()):
            if self._missing_cause_by_recorder.get(recorder_index) == cause:
                del self._missing_cause_by_recorder[recorder_index]
                self._queue_next_happening(recorder_index)


def _merged_exchanges(
    recorders: Sequence[_Recorder], providers: _Providers
) -> dict[int, RecordedExchange]:
    """Return the exchanges of all recorders, counted and timed as one recorder would have."""
    requests: list[tuple[int, int]] = []
    arrived_counts = {}
    for index, happening in _RecorderQueues(recorders, providers).ordered_happenings():
        if happening.is_piece:
            place_at_recorder = (
                index,
                happening.exchange_number,
                happening.arrived_count,
                happening.at_ms,
            )
            arrived_counts[place_at_recorder] = len(requests)
        else:
            requests.append((index, happening.exchange_number))

    token_of = _unified_token_of(recorders, providers)

    def merged_arrived_count(
        index: int, number: int, arrived_count: int, at_ms: float
    ) -> int:
        return arrived_counts[index, number, max(number, arrived_count), at_ms]

    merged_exchanges: dict[int, RecordedExchange] = {}
    for position, (index, number) in enumerate(requests, start=1):
        recorder = recorders[index]
        _, seen_exchange = recorder.exchanges_by_number[number]
        exchange = renumbered_exchange(
            seen_exchange,
            RecordedBy(recorder.id, number),
            position,
            partial(merged_arrived_count, index, number),
            recorder.began_ms - recorders[0].began_ms,
        )

        # All recorders are one world, whose order the clocks tell.
        exchange = replace(exchange, played_writes=())
        with_merged_numbers = exchange_with_changed_texts(
            exchange, lambda raw, _: renumber_secrets(raw, token_of)
        )
        merged_exchanges[position] = with_merged_numbers

    return merged_exchanges


def _needed_causes(
    recorders: Sequence[_Recorder],
) -> Iterator[tuple[_SeenExchange, _Cause]]:
    """Yield the causes that each exchange needs."""
    for recorder in recorders:
        for happening in recorder.happenings:
            for cause in happening.needed_causes:
                yield recorder.exchanges_by_number[happening.exchange_number], cause


def _notes_on_missing_causes(
    recorders: Sequence[_Recorder], providers: _Providers
) -> Iterator[str]:
    """Yield which sessions and calls have their beginning in none of the files."""
    missing_causes: dict[tuple[str, str], list[_Cause]] = {}
    for (source, exchange), cause in _needed_causes(recorders):
        # A task may be older than all recordings.
        if cause not in providers and exchange.call.named_task_id is None:
            kind_of_cause, *_ = cause
            missing_causes.setdefault((kind_of_cause, source.name), []).append(cause)

    for (kind, name), causes in sorted(missing_causes.items()):
        if kind == _STATE_CAUSE:
            yield f"{name}: {counted(len(causes), 'answer')} to an ask that no file has"
        elif kind == _SESSION_CAUSE:
            sessions = counted(len(set(causes)), "session")
            note = (
                f"{name}: {sessions} began at another recorder, and no file tells where; journals "
                "have the ids of sessions, but cassettes don't"
            )
            yield note


def _unified_token_of(
    recorders: Sequence[_Recorder], providers: _Providers
) -> Callable[[str, str], str]:
    """Return a function that gives one token for each secret that has several.

    Each recorder has a key of its own, so its tokens tell nothing about those of another one. A
    retry repeats the arguments of its call, which is the only proof; without it, two tokens stay
    two secrets.
    """
    kept_token_by_dropped: dict[tuple[str, str], str] = {}

    def unified_token(rule: str, token: str) -> str:
        while (rule, token) in kept_token_by_dropped:
            token = kept_token_by_dropped[rule, token]

        return token

    for (source, retry), cause in _needed_causes(recorders):
        providers_of_cause = providers.get(cause, ())
        kind_of_cause, *_ = cause
        is_of_retry = kind_of_cause in (_STATE_CAUSE, _ASK_CAUSE)
        if not is_of_retry or len(providers_of_cause) != 1:
            continue

        _, (asking_source, call) = providers_of_cause[0]
        if asking_source.token_namespace == source.token_namespace:
            continue

        call_key, call_tokens = _call_key_and_tokens_of(call)
        retry_key, retry_tokens = _call_key_and_tokens_of(retry)
        if call_key != retry_key:
            continue

        for (rule, token), (_, retry_token) in zip(
            call_tokens, retry_tokens, strict=True
        ):
            two_tokens = [unified_token(rule, token), unified_token(rule, retry_token)]
            kept_token, dropped_token = sorted(two_tokens)
            if kept_token != dropped_token:
                kept_token_by_dropped[rule, dropped_token] = kept_token

    return unified_token


def _call_key_and_tokens_of(
    exchange: RecordedExchange,
) -> tuple[str, list[tuple[str, str]]]:
    """Return the call key of a request without its tokens, and these with their rules."""
    tokens: list[tuple[str, str]] = []

    def number_of_noted_token(rule: str, token: str) -> int | None:
        """Return 0 for a journal's token, which is noted; None for another one, which stays."""
        if not is_journal_token(token):
            return None

        tokens.append((rule, token))
        return 0

    return renumber_secrets(
        "\n".join(exchange.call.key()), number_of_noted_token
    ), tokens


# A cassette's exchanges as the journals of its recorders had them


def _exchanges_as_recorded(
    cassette: Cassette,
) -> dict[str, dict[int, RecordedExchange]]:
    """Return exchanges as the journals of their recorders had them, by recorder and number there.

    A recorder that is not known has an empty id.
    """
    hash_by_state = _state_hashes(cassette)
    announced_digests = AnnouncedDigests()
    numbers_by_recorder: dict[str, list[_ExchangeNumbers]] = {}
    exchanges_put_back: dict[int, RecordedExchange] = {}
    for number, named_exchange in sorted(_exchanges_by_number(cassette).items()):
        exchange = _with_hashes_for_names(named_exchange, hash_by_state, cassette.path)
        if named_exchange.response is not None and exchange.response is not None:
            digests = announced_digests.add_response(
                named_exchange.response, exchange.response
            )
            exchange = replace(exchange, digests=digests)

        exchanges_put_back[number] = exchange
        recorded_by = named_exchange.recorded_by or RecordedBy("", number)
        recorder, number_at_recorder = recorded_by
        numbers_by_recorder.setdefault(recorder, []).append(
            _ExchangeNumbers(number, number_at_recorder)
        )

    offsets = {recorder.id: recorder.offset_ms for recorder in cassette.recorders}
    exchanges_by_recorder: dict[str, dict[int, RecordedExchange]] = {}
    for recorder, recorder_numbers in numbers_by_recorder.items():
        offset_ms = offsets.get(recorder, 0)
        exchanges_by_recorder[recorder] = {}
        for number, number_at_recorder in recorder_numbers:
            exchange = _with_recorder_numbers(
                exchanges_put_back[number],
                number_at_recorder,
                recorder_numbers,
                offset_ms,
            )
            exchanges_by_recorder[recorder][number_at_recorder] = exchange

    return exchanges_by_recorder


def _state_hashes(cassette: Cassette) -> dict[str, str]:
    """Return the hash that `recording` keeps of each state, by its name.

    What a cassette has no hash of (session ids, ids of events and of questions, secrets) gets one
    that is derived from the file's path.
    """
    hashes = {}
    for exchange in cassette.exchanges:
        name = issued_name(exchange)
        if name is not None:
            sha256 = exchange.issued_sha256
            hashes[name] = sha256 or _sha256_of_name(name, cassette.path)

    return hashes


def _exchanges_by_number(cassette: Cassette) -> dict[int, RecordedExchange]:
    """Return exchanges by their numbers; one that has none gets one after all others."""
    free_numbers = count(cassette.highest_number + 1)
    exchanges_by_number = {}
    for exchange in cassette.exchanges:
        number = exchange.number or next(free_numbers)
        exchanges_by_number[number] = exchange

    return exchanges_by_number


class _ExchangeNumbers(NamedTuple):
    """The number of an exchange in a cassette, and at its recorder."""

    in_cassette: int
    at_recorder: int


def _with_recorder_numbers(
    exchange: RecordedExchange,
    number_at_recorder: int,
    numbers: Sequence[_ExchangeNumbers],
    offset_ms: float,
) -> RecordedExchange:
    """Return an exchange as its recorder counted: its own requests, and the time since it began."""
    response = exchange.response
    ended_after = exchange.ended_after or 0
    if response is not None:
        pieces: list[Piece] = []
        for piece in response.pieces:
            if not piece.arrived_count:
                # Of a response in one piece a cassette tells the end alone.
                piece_at_end = piece._replace(
                    at_ms=exchange.ended_ms, arrived_count=ended_after
                )
                pieces.append(piece_at_end)
            else:
                pieces.append(piece)

        response = replace(response, pieces=tuple(pieces))

    def count_at_recorder(arrived_count: int, _at_ms: float) -> int:
        """Return how many requests had arrived by then at the recorder itself."""
        arrived_of_recorder = bisect_right(
            numbers, arrived_count, key=lambda pair: pair.in_cassette
        )
        if arrived_of_recorder == 0:
            return number_at_recorder

        last_arrived = numbers[arrived_of_recorder - 1]
        return max(number_at_recorder, last_arrived.at_recorder)

    exchange = replace(exchange, response=response, ended_after=ended_after)
    return renumbered_exchange(
        exchange,
        exchange.recorded_by,
        number_at_recorder,
        count_at_recorder,
        -offset_ms,
    )


def _with_hashes_for_names(
    exchange: RecordedExchange, hash_by_state: Mapping[str, str], path: str
) -> RecordedExchange:
    """Return an exchange with hashes instead of names; `hash_by_state` has hashes by name."""
    echoed_state = exchange.call.echoed
    issued_state = issued_name(exchange)
    if echoed_state is not None and echoed_state not in hash_by_state:
        # A later recording that was added echoed the name itself.
        sha256 = exchange.echoed_sha256 or _sha256_of_name(echoed_state, path)
        hash_by_state = {**hash_by_state, echoed_state: sha256}

    issued_sha256 = None if issued_state is None else hash_by_state[issued_state]
    echoed_sha256 = None if echoed_state is None else hash_by_state[echoed_state]
    journal_ref = partial(_journal_ref, hash_by_state, path)
    with_hashes = exchange_with_changed_texts(
        exchange, lambda raw, _: with_changed_refs(raw, journal_ref)
    )
    return replace(
        with_hashes, issued_sha256=issued_sha256, echoed_sha256=echoed_sha256
    )


def _journal_ref(hash_by_state: Mapping[str, str], path: str, ref: Ref) -> Ref | None:
    """Return a name as a hash, or a secret with a journal's token; None for anything else."""
    if ref.is_secret and is_cassette_token(ref.token):
        return ref.with_last_part(sha256_of(f"{path} {ref.kind} {ref.token}")[:24])
    if ref.kind not in LIVE:
        return None

    sha256 = hash_by_state.get(ref.name) or sha256_of(f"{path} {ref.name}")
    return Ref(HASH, (sha256,), ref.spelling)


def _sha256_of_name(state: str, path: str) -> str:
    """Return the hash that a journal has for a name, or for a state that a cassette keeps."""
    is_surrogate = is_name_of_kind(state, *ISSUED)
    return sha256_of(f"{path} {state}") if is_surrogate else compared_sha256(state)
