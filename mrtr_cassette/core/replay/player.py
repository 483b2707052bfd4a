"""The replay side of one run: requests in, recorded replies or misses out.

The closest match is never played; docs/matching.md says which recording a request gets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Final

from mrtr_cassette.core.cassette.lookup import (
    CallerValues,
    LookupKey,
    cut_body,
    lookup_key,
    values_in,
)
from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.cassette.sessions import (
    endpoint_elsewhere,
    event_ids,
    is_answered,
    ping_ids,
    redirected_elsewhere,
)
from mrtr_cassette.core.cassette.transports import origin_of
from mrtr_cassette.core.protocol.calls import (
    Call,
    CallKey,
    read_call,
    resumed_event,
    session_of,
    traits_of_headers,
)
from mrtr_cassette.core.protocol.jsonrpc import ID_PATH, Kind, Message
from mrtr_cassette.core.protocol.methods import CANCELLED, DISCOVER, TASK_STEPS
from mrtr_cassette.core.protocol.origins import ServerOrigin
from mrtr_cassette.core.replay.diagnosis import (
    Harmless,
    Miss,
    NoStep,
    Reason,
    after_placeholders,
    answer_of_any_server,
    led_elsewhere,
    no_match,
    no_step,
    not_now,
    other_id,
)
from mrtr_cassette.core.replay.equivalence import EqualRequests
from mrtr_cassette.core.replay.history import NO_WAITS, Timelines
from mrtr_cassette.core.replay.matching import (
    MatchedForm,
    ReplayEntry,
    entries_of,
    number_lookups,
    placeholders_in,
)
from mrtr_cassette.core.replay.order import Chosen, LiveSession, MatchKey, PlayOrder, Repeat
from mrtr_cassette.core.replay.reply import Came, Delivery, Reply, build_reply
from mrtr_cassette.core.replay.tasks import LiveTask, RecordedTask, Step, recorded_tasks
from mrtr_cassette.core.replay.worlds import History, Worlds, called_as
from mrtr_cassette.core.wire.codings import readable
from mrtr_cassette.core.wire.http import ACCEPTED, End, Request
from mrtr_cassette.core.wire.jsonbytes import MemberPath, canonical, parse
from mrtr_cassette.core.wire.pointers import pointer_to, without_side

_LONGER_S: Final = 10.0
"""Seconds that a client may wait longer than the recorded one for a response."""


@dataclass(frozen=True, slots=True)
class Play:
    """A hit; without a delivery where the recorded request got no response.

    The miss, if there is one, is what its client will find where the response sends it.

    Attributes:
        patience_s: how many seconds a client waits for a response that was not recorded, after all
            that was, until it is told; None where it expects no response, or gets one.
    """

    request: Request
    entry: ReplayEntry
    session: LiveSession
    delivery: Delivery | None
    patience_s: float | None = None
    miss: Miss | None = None

    @property
    def caller_id(self) -> bytes | None:
        """The id of the call, as its client spells it."""
        if self.delivery is not None:
            return self.delivery.values.id
        message = read_call(self.request).message
        return None if message is None else message.spelled(ID_PATH)


class Player:
    """One replay of one cassette.

    Attributes:
        path: the cassette's path, as shown in messages.
        adds_to: the file to which a recording may add, the first one where several are played.
        recording: the cassette.
        interactions: for each interaction, the exchanges that no earlier one has.
        plays: how many requests got a recorded reply.
        poll_interval: the milliseconds between polls of a task, for clients; None as recorded.
        is_write: tells whether an exchange ends a call that may have changed something.
        was_given: takes credentials, to be looked for in what clients send from now on.
        redacted: gives a text for the terminal, without known secrets.
        was_probed: an earlier process of the client has played `server/discover`.
    """

    was_probed = False

    def __init__(
        self,
        cassette: Cassette,
        *,
        ignored: Collection[MemberPath] = (),
        repeat: Repeat = Repeat.AUTO,
        history: History = History.AUTO,
        reads: Collection[str] = (),
        paced: bool = False,
        strict: bool = False,
        stateless: bool = False,
    ) -> None:
        """Prepare a replay.

        Args:
            ignored: members of the params that don't count, as keys from the outermost inwards.
            reads: tools and methods that change nothing, whatever the recording says of them.
            paced: the shell will keep the recorded rhythm.
            strict: harmless requests that were not recorded are misses.
            stateless: no reply depends on what has been played.

        Raises:
            CassetteError: the cassette can't be played without memory.
        """
        self.path = self.adds_to = cassette.path
        self.recording = cassette
        self.misses: list[Miss] = []
        self.harmless: list[Harmless] = []
        self.plays = 0
        self._ignored = tuple(ignored)
        self._unseen = list(self._ignored)
        self._paced, self._strict, self._stateless = paced, strict, stateless
        self._now: float | None = None
        self.poll_interval: int | None = None
        self._matched = MatchedForm(cassette, self._ignored, remembers=not stateless)
        self.interactions = entries_of(cassette, self._matched)
        self.entries = [each for own in self.interactions for each in own]
        by_arrival = self._by_arrival = sorted(self.entries, key=lambda each: each.arrival)
        number_lookups(by_arrival)
        self._pings = ping_ids(each.exchange for each in by_arrival)
        for entry in by_arrival:
            entry.is_pong = entry.asks_nothing and self._is_pong(entry.session, entry.asker)
        self._timelines = Timelines(by_arrival)
        tasks = recorded_tasks(self.interactions)
        self._tasks = {each.created.id: each for each in tasks}
        self._created_by = {each.creating: each for each in tasks}
        self._elsewhere = _leading_elsewhere(self.entries, origin_of(cassette))
        self._listening: dict[LiveSession, list[Delivery]] = {}
        self._replies: dict[ReplayEntry, Reply] = {}
        equal = None
        if stateless:
            facts = self._matched, self._timelines, self._tasks.values()
            equal = EqualRequests(cassette, by_arrival, *facts)
        if history is History.AUTO and (stateless or repeat is Repeat.ALWAYS):
            history = History.ORDER
        self._worlds = Worlds(by_arrival, self._timelines, cassette.recorders, history, reads)
        self.is_write, self.was_given = self._worlds.is_write, self._matched.was_given
        self.redacted = self._matched.shown
        self._order = PlayOrder(by_arrival, self._worlds, repeat, equal)
        # The first of each.
        self._by_digest = {each.digest: each for each in by_arrival[::-1] if each.digest}

    def key_of(self, call: Call) -> CallKey:
        """Return the call key by which a request is matched, for a miss."""
        return call.key(self._ignored)

    def request_received(
        self, request: Request, now: float | None = None
    ) -> Play | Miss | Harmless:
        """Find the recorded reply to a request, and count it as played, missed or harmless.

        Args:
            now: the seconds since 1970, to which times of tasks are moved; without it they stay.
        """
        self._now = now
        session = self._order.session_of(request)
        recorded = readable(session.in_recorded(request))
        key = self._recognised(recorded) or self._read(recorded)
        if key.lookup.call.method == CANCELLED:
            _cancel(recorded, session)
        task = self._tasks.get(key.lookup.call.name) if self._tasks else None
        is_step = key.lookup.call.method in TASK_STEPS
        if task is not None and task.steps and is_step and task.has(key.lookup):
            return self._play_step(request, task, session, key)
        taken_for = session.recorded
        choice = self._order.choose(key, session)
        if session.recorded != taken_for:
            self._follow(session)
        if choice.entry is not None:
            if not choice.entry.may_get(key.values.id):
                self.misses.append(other_id(read_call(self._matched.told(recorded)), choice.entry))
                return self.misses[-1]
            play = self._play(request, choice.entry, session, key)
            if choice.entry in self._elsewhere:
                play = replace(play, miss=self._sent_elsewhere(recorded, choice.entry))
            return play
        call = read_call(recorded)
        if self._is_pong(session.recorded, call.message):
            return Harmless(call, ACCEPTED, (), b"", "202")
        return self._rest(request, session) or self._unmatched(recorded, session, choice)

    def _is_pong(self, session: str, message: Message | None) -> bool:
        """Tell whether a message answers a ping, however it does so."""
        is_answer = message is not None and message.kind is Kind.RESPONSE
        return is_answer and (session, message and message.id) in self._pings

    def _play(
        self, request: Request, chosen: ReplayEntry, session: LiveSession, key: MatchKey
    ) -> Play:
        session = self._order.played(chosen, key.secrets, session)
        self.plays += 1
        if chosen.answered_by_proxy is not None:
            return self._play(request, chosen.answered_by_proxy, session, key)
        if chosen in self._created_by:
            self._begin(self._created_by[chosen], session)
        session.arrive(chosen, key.values)
        delivery = self._delivery(chosen, session, key.values)
        times = session.played.get(chosen, 0)
        listens = chosen.is_listening and chosen.session and not self._stateless
        if delivery is not None and listens:
            if times > 1:
                # The end of a resumed stream was not recorded, so keep it open.
                delivery.reply = delivery.reply._replace(end=End.OPEN)
                delivery.sent = session.sent.get(chosen, 0) if chosen.stream is chosen else 0
            self._listens(session, delivery)
        return Play(request, chosen, session, delivery, self._patience(chosen))

    def _sent_elsewhere(self, recorded: Request, entry: ReplayEntry) -> Miss:
        """Count as missed what a client asks a server to which a recorded response sends it."""
        call = read_call(self._matched.told(recorded))
        miss = led_elsewhere(call, entry, self._elsewhere[entry])
        self.misses.append(miss)
        return miss

    def _listens(self, session: LiveSession, delivery: Delivery) -> None:
        """Take note of a stream to which the client of a session listens."""
        streams = self._listening.setdefault(session, [])
        streams[:] = [stream for stream in streams if not stream.is_left]
        streams.append(delivery)

    def _begin(self, task: RecordedTask, session: LiveSession) -> None:
        interval, is_over = self.poll_interval, self._stateless
        session.begin(LiveTask(task, self._now, poll_interval=interval, is_over=is_over))

    def _play_step(
        self, request: Request, task: RecordedTask, session: LiveSession, key: MatchKey
    ) -> Play | Miss:
        """Return what a request about a task gets that a recorded call created."""
        if self._stateless:
            self._begin(task, session)
        live = session.tasks.get(task.created.id)
        detail = "the call that creates this task has not been played"
        found: Step | NoStep = NoStep(Reason.OUT_OF_ORDER, detail, task.steps[0])
        if live is not None:
            found = live.request_received(key.lookup)
            if isinstance(found, NoStep) and not self._stateless:
                found = self._as_branch(task, session, key.lookup) or found
        if isinstance(found, NoStep):
            call = read_call(self._matched.told(readable(session.in_recorded(request))))
            self.misses.append(no_step(call, found, self._ignored))
            return self.misses[-1]
        for each in dict.fromkeys(found.came):
            self._order.played(each, (), session)
            session.arrive(each, key.values)
        self.plays += 1
        delivery = self._delivery(found.entry, session, key.values)
        return Play(request, found.entry, session, delivery, self._patience(found.entry))

    def _as_branch(
        self, task: RecordedTask, session: LiveSession, lookup: LookupKey
    ) -> Step | None:
        """Let a task go on as the one of an equal call that was answered so, if there is one.

        Its client goes on with the id that it knows, and the task of that call gets this recording.
        """
        for branch in self._tasks.values():
            if not branch.is_branch_of(task):
                continue
            taken = session.tasks[task.created.id].taken_for(branch)
            begun = session.tasks.get(branch.created.id)
            given_back = None if begun is None else begun.taken_for(task)
            is_in_use = begun is not None and (begun.accepted or given_back is None)
            if taken is None or is_in_use:
                continue
            found = taken.request_received(branch.in_terms_of(task, lookup))
            if isinstance(found, NoStep):
                continue
            session.tasks[branch.created.id] = taken
            del session.tasks[task.created.id]
            if given_back is not None:
                session.tasks[task.created.id] = given_back
            session.exchange(task.created.id, branch.created.id)
            self._order.exchange(task.creating, branch.creating, session)
            return found
        return None

    def _rest(self, request: Request, session: LiveSession) -> Play | None:
        """Find what a stream has after an event after which no recorded client resumed it."""
        where = session.recorded, resumed_event(request)
        entry, piece = self._events.get(where, (None, 0))
        if entry is None or not (entry.is_listening or entry.stream in session.callers):
            return None
        delivery = self._delivery(entry, session, CallerValues(None, None))
        if delivery is None:
            return None
        delivery.sent = piece + 1
        if len(delivery.reply.parts) == delivery.sent:
            # What a call's stream has after that was never seen, unless it has its response.
            response = entry.exchange.response
            has_all = response is not None and (response.end is End.OPEN or is_answered(response))
            if not entry.is_listening and not has_all:
                return None
            delivery.reply = delivery.reply._replace(end=End.OPEN)
        if entry.is_listening:
            self._listens(session, delivery)
        self.plays += 1
        return Play(request, entry, session, delivery, self._patience(entry))

    def _patience(self, entry: ReplayEntry) -> float | None:
        """Return how long a client waits for a response that was not recorded; see `Play`."""
        if not self._is_given_up(entry):
            return None
        waited_ms = self._given_up_at(entry) - entry.exchange.started_ms
        return waited_ms / 1000 + _LONGER_S

    def _given_up_at(self, entry: ReplayEntry) -> float:
        """Return the time in milliseconds at which a client stopped waiting for a response."""
        response = entry.exchange.response
        times = [entry.exchange.ended_ms]
        if response is not None and response.only_accepts:
            # HTTP+SSE: responses come on the stream that opened the session.
            for stream in self._by_arrival:
                if stream.is_listening and stream.session == entry.session:
                    times.append(stream.exchange.ended_ms)
        return max(times)

    def _is_given_up(self, entry: ReplayEntry) -> bool:
        """Tell whether it is about a call whose client left before the response."""
        response, call = entry.exchange.response, entry.stream
        has_ended = response is not None and response.end is not End.OPEN
        comes_elsewhere = response is not None and response.only_accepts
        if has_ended and not comes_elsewhere:
            return False
        expects_response = call.kind is Kind.REQUEST and not call.is_listening
        return expects_response and not self._timelines.has_response(call)

    def waited_in_vain(self, play: Play) -> Miss | None:
        """Count a call without a recorded response as a miss, unless its client cancelled it."""
        caller_id, session = play.caller_id, play.session
        if caller_id is not None and canonical(parse(caller_id)) in session.cancelled:
            return None
        call = read_call(self._matched.told(readable(session.in_recorded(play.request))))
        miss = Miss(call, Reason.NO_RESPONSE, "its response was not recorded", play.entry)
        self.misses.append(miss)
        return miss

    def _recognised(self, request: Request) -> MatchKey | None:
        """Return the key of a request that differs from a recorded one in the caller's values only.

        A shorter way to what `_read` returns, which takes most of the time of a play.
        """
        cut = cut_body(request.body)
        same = None if cut is None else self._by_digest.get(cut[0])
        if (
            cut is None
            or same is None
            or request.method != same.request.method
            or request.target != same.request.target
            or traits_of_headers(request.headers) != traits_of_headers(same.request.headers)
        ):
            return None
        return MatchKey(same.lookup, same.traits, same.caller, cut[1], ())

    def _read(self, request: Request) -> MatchKey:
        matched, secrets = self._matched.received(request)
        received = call = read_call(request)
        if matched is not request:
            call = read_call(matched)
        if self._unseen:
            self._see(call)
        traits = call.traits(self._matched.header_names)
        values = values_in(received)
        return MatchKey(self._matched.lookup(call), traits, call.caller, values, secrets)

    def _see(self, call: Call) -> None:
        key = lookup_key(call)
        self._unseen = [path for path in self._unseen if lookup_key(call, (path,)) == key]

    def unused_options(self) -> list[tuple[str, str]]:
        """Return the options that made no difference to any request, recorded or received.

        These are pointers to what was to be left out, and the names of what was to only read.
        """
        for entry in self.entries if self._unseen else ():
            self._see(entry.call)
        unused = [("reads", name) for name in self._worlds.unused_reads()]
        unused += [("ignore", pointer_to(path)) for path in self._unseen]
        return unused

    def left_out(self, is_at: Callable[[str], bool]) -> None:
        """Note that an ignored pointer has left something out of a response."""
        left = []
        for path in self._unseen:
            if not is_at(without_side(pointer_to(path), "result")):
                left.append(path)
        self._unseen = left

    def _unmatched(
        self, recorded: Request, session: LiveSession, choice: Chosen
    ) -> Miss | Harmless:
        """Count a request that gets no recording; return why, or what any server answers."""
        if not (self._strict or choice.nearest):
            known = read_call(recorded)
            is_outside = self._order.opened.is_outside(session_of(recorded), known.endpoint)
            harmless = answer_of_any_server(known, self.entries, lacks_session=is_outside)
            if harmless is not None:
                self.harmless.append(harmless)
                return harmless
        # What is told of a miss has no secrets either.
        call = read_call(self._matched.told(recorded))
        if choice.why_not is None:
            miss = no_match(call, self.entries, self._ignored)
            if miss.differences:
                miss = after_placeholders(miss, self._placeholders_played())
        elif choice.why_not is Reason.OTHER_HISTORY:
            nearest, detail, tool = self._worlds.nearest(choice.nearest, session.writes)
            miss = Miss(call, choice.why_not, detail, nearest, may_read=tool)
        elif choice.why_not is Reason.SESSION_UNKNOWN:
            standing = self._order.opened.standing_of(session_of(recorded))
            miss = Miss(call, choice.why_not, standing.value, choice.nearest[0])
        else:
            may_read = called_as(call.key()) if self._order.repeats_reads else ""
            miss = replace(not_now(call, choice.nearest, choice.why_not), may_read=may_read)
        if call.message is not None and call.message.kind is Kind.RESPONSE:
            miss = replace(miss, is_refused=self._refuse(call.message, session, miss))
        self.misses.append(miss)
        return miss

    def _placeholders_played(self) -> list[str]:
        """Return the placeholders in what was played by now."""
        shown = [names for entry, names in self._placeholders.items() if entry.was_played]
        return list(dict.fromkeys(chain.from_iterable(shown)))

    @cached_property
    def _placeholders(self) -> dict[ReplayEntry, list[str]]:
        """The placeholders in each recorded response that has any."""
        found = {entry: placeholders_in(entry.exchange.response) for entry in self._by_arrival}
        return {entry: names for entry, names in found.items() if names}

    def _refuse(self, answer: Message, session: LiveSession, miss: Miss) -> bool:
        """Let the call during which the server asked get a miss; return whether there is one."""
        posted = [each for each in self._by_arrival if each.answers is not None]
        here = [each for each in posted if each.session == session.recorded]
        own = [
            each for each in here if each.asker is not None and each.asker.same_id == answer.same_id
        ]
        # Under an id that no question had, it is taken for the answer to the oldest one.
        for expected in own or here:
            call = expected.answered_call
            if not session.was_asked(expected) or session.has_arrived(expected):
                continue
            # Nothing else has to wait any more for the right answer, nor for later ones.
            session.waive(expected)
            for each in () if call is None else self._timelines.answers_during(call):
                session.waive(each)
            if call is not None:
                session.refused[call] = miss
            return call is not None
        return False

    def _delivery(
        self, entry: ReplayEntry, session: LiveSession, values: CallerValues
    ) -> Delivery | None:
        reply = self._replies.get(entry) or self._reply(entry)
        if reply is None:
            return None
        values = session.callers.get(entry.stream, values)
        waits_for_streams = entry.session and not (entry.is_listening or self._stateless)
        streams = self._listening.setdefault(session, []) if waits_for_streams else ()
        return Delivery(entry, reply, session, values, self._timelines.lifetime_of, streams)

    def _follow(self, session: LiveSession) -> None:
        """Let a client listen to the session that it has turned out to have."""
        for delivery in self._listening.get(session, ()):
            here = session.recorded, delivery.entry.lookup_number
            like = (it for it in self._by_arrival if (it.session, it.lookup_number) == here)
            stream = next((each for each in like if each.is_listening), None)
            if stream is not None and (reply := self._reply(stream)) is not None:
                stream.played += 1
                session.count(stream)
                delivery.follow(stream, reply)

    @cached_property
    def _events(self) -> dict[tuple[str, str], tuple[ReplayEntry, int]]:
        """Where events stand, by session and id; without a session an id may be used again."""
        places: dict[tuple[str, str], list[tuple[ReplayEntry, int]]] = {}
        for each in self._by_arrival:
            for index, identity in event_ids(each.exchange.response):
                places.setdefault((each.session, identity), []).append((each, index))
        return {key: found[-1] for key, found in places.items() if key[0] or len(found) == 1}

    def _reply(self, entry: ReplayEntry) -> Reply | None:
        response = entry.exchange.response
        if response is None:
            return None
        waits, stays_open = self._timelines.waits_of(entry), False
        if self._stateless:
            gates = (*waits.pieces, waits.end) if entry.is_listening else ()
            stays_open = any(gate.is_for_later(entry) for gate in gates)
            waits = NO_WAITS
        reply = build_reply(
            entry.stream.asker,
            response,
            waits,
            tasks=self._tasks,
            started_ms=entry.exchange.started_ms,
            ended=Came(entry.exchange.ended_after or 0, entry.exchange.ended_ms),
            # A stream may be resumed at any event that has an id.
            piecewise=self._paced or entry.session != "" or any(event_ids(response)),
            batch=entry.call.batch,
        )
        self._replies[entry] = reply = reply._replace(end=End.OPEN) if stays_open else reply
        return reply

    def respond_on_stream(self, request: Request, message: bytes) -> bool:
        """Put an unrecorded message on the stream that has all responses; tell whether one has."""
        events = self._order.session_of(request).unrecorded
        if events is not None:
            events.append(b"event: message\ndata: %b\n\n" % message)
        return events is not None

    def recorded_session(self, request: Request) -> str:
        """Return the id of the recorded session that is played to the client of a request."""
        return self._order.session_of(request).recorded

    def shown(self, request: Request) -> Call:
        """Return a client's request as messages may show it."""
        session = self._order.session_of(request)
        return read_call(self._matched.told(readable(session.in_recorded(request))))

    def goes_live(self, request: Request) -> None:
        """Take note that a request gets an unrecorded response, which no world has if it writes.

        After a write nothing is played that may depend on it.
        """
        call = self.shown(request)
        if call.message is None or call.message.kind is not Kind.REQUEST:
            return
        writes = self._order.session_of(request).writes
        if self._worlds.went_live(self.key_of(call), writes):
            self._order.has_written_elsewhere = True

    @property
    def connected(self) -> Iterator[tuple[int, int]]:
        """Pairs of interactions of which one's stream has what the server said about the other."""
        for each in self.entries:
            yield each.interaction, each.stream.interaction
            for gate in self._timelines.waits_of(each).pieces if each.is_listening else ():
                if gate.request is not None:
                    yield each.interaction, gate.request.interaction

    @property
    def after_other_writes(self) -> dict[int, int]:
        """How often each read was played after other writes than recorded, by its interaction."""
        return dict(sorted(self._worlds.strayed.items()))

    @property
    def without_response(self) -> list[int]:
        """Numbers of the interactions that were played up to a call without a recorded response."""
        numbers = []
        for number, entries in enumerate(self.interactions, start=1):
            if any(entry.was_played and self._is_given_up(entry) for entry in entries):
                numbers.append(number)
        return numbers

    @property
    def only_probed(self) -> bool:
        """Whether a client has asked for nothing but `server/discover`."""
        played = {entry.key.method for entry in self.entries if entry.was_played}
        return played == {DISCOVER} and not self.misses

    @property
    def unplayed(self) -> list[int]:
        """Numbers of the interactions of which something was never played."""
        played = {each.lookup_number for each in self.entries if each.was_played}
        numbers = []
        for number, entries in enumerate(self.interactions, start=1):
            if any(self._lacks(entry, played) for entry in entries):
                numbers.append(number)
        return numbers

    def _lacks(self, entry: ReplayEntry, played: Collection[int]) -> bool:
        """Tell whether an exchange was never played, and neither was what stands for it."""
        was_probed = self.was_probed and entry.key.method == DISCOVER
        if entry.was_played or entry.is_pong or was_probed:
            return False
        if entry.created_by is not None and self._worlds.only_reads(entry.key):
            # How often a task is polled before it ends depends on the pace.
            is_end = entry.state is not None and entry.state.is_over
            return is_end and entry.created_by.same is None
        # A faster replay repeats these less often.
        is_repeat = entry.lookup_number in played
        return not (is_repeat and self._worlds.repeats_with_time(entry))


def _leading_elsewhere(
    entries: Sequence[ReplayEntry], origin: ServerOrigin
) -> dict[ReplayEntry, str]:
    """Return the exchanges that send their clients away from a server, and to which origin."""
    leading: dict[ReplayEntry, str] = {}
    for entry in entries:
        response = entry.exchange.response
        if response is None:
            continue
        elsewhere = redirected_elsewhere(entry.request, response.status, response.headers, origin)
        if entry.is_listening:
            elsewhere = endpoint_elsewhere(response, origin)
        if elsewhere is not None:
            leading[entry] = elsewhere
    return leading


def _cancel(request: Request, session: LiveSession) -> None:
    """Take note that a client waits no more for the response to one of its requests."""
    message = read_call(request).message
    cancelled = None if message is None else message.params.get("requestId")
    if cancelled is not None:
        session.cancelled.add(canonical(cancelled))
