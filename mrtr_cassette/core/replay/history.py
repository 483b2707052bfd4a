"""What came before what in a recording, and what of that a replay keeps to.

What the server says waits for what its client said before. And a call belongs to a history of
writes (docs/matching.md, "Reads belong to the history of writes"): a recording has one or several
worlds, and a play follows all of them at once, until it makes a write that a world does not have
next.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from hashlib import blake2b
from typing import Final, NamedTuple

from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    RecordedBy,
    RecordedExchange,
    RecordedInteraction,
    RecorderFacts,
)
from mrtr_cassette.core.cassette.sessions import ends_session, is_answered
from mrtr_cassette.core.protocol.calls import NO_SESSION, CallKey, Traits
from mrtr_cassette.core.protocol.jsonrpc import Kind, Message, messages_in, repeated_token
from mrtr_cassette.core.protocol.methods import CALL_TOOL, INITIALIZE, LIST_TOOLS, method_of
from mrtr_cassette.core.record.assembly import recounted, with_texts
from mrtr_cassette.core.replay.matching import ReplayEntry
from mrtr_cassette.core.secrets.sealed import PLACEHOLDER, is_searched, renumber
from mrtr_cassette.core.wire.http import End, Response
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.errors import CassetteError, shorten

GENERATED_NAME: Final = re.compile(
    r"mrtr-(?P<kind>state|session|event|elicitation|task)(?:(?::|%3A)[0-9a-f]+)+|"
    + PLACEHOLDER.pattern,
    re.ASCII,
)
# What the server says waits

_ACKNOWLEDGED = (Kind.RESPONSE, Kind.NOTIFICATION)


Arrivals = list[ReplayEntry]
"""Numbered exchanges in the order in which their requests arrived."""


def _arrived(arrivals: Arrivals, after: int) -> int:
    """Return how many had arrived when `after` requests had arrived in all."""
    return bisect_right(arrivals, after, key=lambda each: each.exchange.number or 0)


class Gate(NamedTuple):
    """What a part of a response waits for, besides all that is sent before it.

    Attributes:
        causes: what clients must have sent, in the order of arrival.
        request: the request that a message on a listening stream is about, or None.
        responds: whether the message is the response to that request.
    """

    causes: tuple[ReplayEntry, ...] = ()
    request: ReplayEntry | None = None
    responds: bool = False

    def is_for_later(self, entry: ReplayEntry) -> bool:
        """Tell whether it is about another request, or waits for one that came after one."""
        number = entry.exchange.number or 0
        return self.request not in (None, entry) or any(
            each.kind is not Kind.NOTIFICATION and (each.exchange.number or 0) > number
            for each in self.causes
        )


OPEN: Final = Gate()
"""Waits for nothing."""


class Waits(NamedTuple):
    """What the pieces of one response wait for, and its end; no pieces where nothing waits."""

    pieces: tuple[Gate, ...] = ()
    end: Gate = OPEN


NO_WAITS: Final = Waits()


class Lifetime(NamedTuple):
    """When a request arrived, and when it had its response, as requests arrive."""

    start: tuple[float, ...]
    end: tuple[float, ...]


_NEVER: Final = (float("inf"), float("inf"))


class Timelines:
    """What the clients of each recorded session sent; no session waits for another one."""

    def __init__(self, by_arrival: Sequence[ReplayEntry]) -> None:
        self._by_arrival = by_arrival
        # By session, the requests that may change something, and all else that may cause something.
        self._changes: dict[str, Arrivals] = {}
        self._messages: dict[str, Arrivals] = {}
        # The requests by their ids (True) and their progress tokens.
        self._named: dict[tuple[str, bool, str | None], Arrivals] = {}
        self._during: dict[ReplayEntry, Arrivals] = {}
        self._asking: dict[tuple[RecordedExchange, int], ReplayEntry] = {}
        for each in by_arrival:
            if each.exchange.number is None:
                continue
            if each.answers is not None and each.answered_call is not None:
                pending, pushed = each.answers
                self._during.setdefault(pending, []).append(each)
                self._asking[pushed.exchange, pushed.piece] = pending
            if each.kind is Kind.REQUEST and each.asker is not None:
                for name in ((True, each.asker.id), (False, each.asker.progress_token)):
                    self._named.setdefault((each.session, *name), []).append(each)
                if not method_of(each.key.method).reads:
                    self._changes.setdefault(each.session, []).append(each)
            # Clients without a session have nothing in common but what they change.
            elif each.session != NO_SESSION and (
                each.kind is not None or ends_session(each.request, each.exchange.response)
            ):
                self._messages.setdefault(each.session, []).append(each)

    def lifetime_of(self, entry: ReplayEntry) -> Lifetime:
        """Return when a request arrived, and when it had its response, wherever that came."""
        if entry.exchange.number is None:
            # Without the recording block there is only the order of the file.
            return Lifetime(entry.arrival, entry.arrival)
        ended = _end_of(entry) or self._ended_elsewhere.get(entry)
        return Lifetime(entry.arrival, _NEVER if ended is None else (ended, *_NEVER))

    @cached_property
    def _ended_elsewhere(self) -> dict[ReplayEntry, int]:
        """How many requests had arrived with responses on a stream that another request began."""
        ended: dict[ReplayEntry, int] = {}
        for each in self._by_arrival:
            response = each.exchange.response
            if each.is_listening and response is not None:
                for piece, gate in zip(response.pieces, self.waits_of(each).pieces, strict=False):
                    if gate.responds and gate.request is not None:
                        ended[gate.request] = piece.after
            elif each.stream is not each and (end := _end_of(each)) is not None:
                ended[each.stream] = end
        return ended

    def waits_of(self, entry: ReplayEntry) -> Waits:
        """Return what the response to a request waits for.

        It waits for the notifications and the posted answers that had arrived before it. That the
        server has taken one of these, or a request whose response comes on a listening stream,
        waits for nothing: a client that posts one after the other would wait for ever.
        """
        exchange, response = entry.exchange, entry.exchange.response
        if response is None or exchange.number is None:
            return NO_WAITS
        is_message = entry.kind in _ACKNOWLEDGED and not response.is_framed
        if is_message or response.only_accepts:
            return NO_WAITS
        causes, passed = self._causes_of(entry, response), 0
        if not causes and not entry.is_listening:
            return NO_WAITS

        def gate(after: int) -> Gate:
            nonlocal passed
            before, passed = passed, max(passed, _arrived(causes, after))
            return Gate(tuple(causes[before:passed]))

        # Of a whole body only its end is known.
        last = response.pieces[-1].after if response.pieces else 0
        ended = last if exchange.ended_after is None else exchange.ended_after
        pieces = [gate(piece.after or ended) for piece in response.pieces]
        for located in messages_in(response) if entry.is_listening else ():
            place, message = located.piece, located.message
            after = response.pieces[place].after
            request = self._request_of(entry.session, message, after)
            request = request or self._asking.get((exchange, place))
            responds = message.kind is Kind.RESPONSE
            pieces[place] = pieces[place]._replace(request=request, responds=responds)
        return Waits(tuple(pieces), gate(ended))

    def _request_of(self, session: str, message: Message, after: int) -> ReplayEntry | None:
        """Return the latest request that a message of the server is about, or None."""
        responds = message.kind is Kind.RESPONSE
        name = message.id if responds else repeated_token(message)
        named = [] if name is None else self._named.get((session, responds, name), [])
        before = named[: _arrived(named, after)]
        return before[-1] if before else None

    def answers_during(self, pending: ReplayEntry) -> Sequence[ReplayEntry]:
        """Return the answers to what the server asked during a call, as they arrived."""
        return self._during.get(pending, ())

    def _causes_of(self, entry: ReplayEntry, response: Response) -> Arrivals:
        """Return what clients sent for which a response waits.

        Calls do not wait for each other, nor for answers to what was asked during other calls. A
        listening stream tells what all of them caused, so it waits for every answer, and for all
        requests that can have changed something since it began.
        """
        messages, begun = self._messages.get(entry.session, []), entry.stream
        if entry.is_listening:
            changes = self._changes.get(entry.session, [])
            since = _arrived(changes, begun.exchange.number or 0)
            causes = messages + changes[since:]
            return sorted(causes, key=lambda each: each.exchange.number or 0)
        # What left a call without its response may be the end of the session.
        is_cut = response.is_event_stream and not is_answered(response)
        return [
            each
            for each in messages or self.answers_during(begun)
            if (each.answered_call in (None, begun) if each.kind is not None else is_cut)
        ]


def _end_of(entry: ReplayEntry) -> int | None:
    """Return how many requests had arrived when a request had its response on its own stream."""
    exchange, response = entry.exchange, entry.exchange.response
    if entry.kind is not Kind.REQUEST:
        return exchange.ended_after
    if response is None or response.only_accepts:
        return None
    located = exchange.located_response if response.is_framed else None
    after = None if located is None else response.pieces[located.piece].after
    is_whole = is_answered(response) if response.is_framed else response.end is End.COMPLETE
    return after or (exchange.ended_after if is_whole else None)


# Calls belong to a history of writes


class History(Enum):
    """Which calls are held to the history of writes in which they were recorded."""

    AUTO = "auto"
    """Those that were recorded with several answers."""
    STRICT = "strict"
    ORDER = "order"
    """None: equal calls are played in recorded order."""


WriteKey = tuple[int, tuple[str, ...]]
"""What equal writes share: the path of the call and its answers, and what was posted meanwhile."""
WorldKey = tuple[str, int]
"""A session, and the run of the recorder."""


class Write(NamedTuple):
    """A call that may have changed something, in one recorded history."""

    lifetime: Lifetime
    key: WriteKey
    entry: ReplayEntry


class _World:
    """The writes of one recorded history that a play has not made yet.

    Equal writes are counted: the first that is made is the first that began and the first that
    ended, though these may have been two.

    Attributes:
        until: when the first write ended that was not made yet.
    """

    def __init__(self, writes: Iterable[Write]) -> None:
        self._left = sorted(writes, key=lambda write: write.lifetime[::-1])
        self._equal: dict[WriteKey, list[Write]] = {}
        for each in self._left:
            self._equal.setdefault(each.key, []).append(each)
        alike = self._equal.items()
        self._starts = {key: sorted(each.lifetime.start for each in own) for key, own in alike}
        self._unmade = {key: dict.fromkeys([each.entry for each in own]) for key, own in alike}
        self._made: set[ReplayEntry] = set()
        self._latest: tuple[float, ...] = ()
        self.until = self._left[0].lifetime.end if self._left else _NEVER

    def make(self, key: WriteKey, entry: ReplayEntry) -> bool:
        """Make a write, if the world has it next."""
        equal, starts = self._equal.get(key), self._starts.get(key)
        if not equal or not starts or starts[0] > self.until:
            return False
        unmade = self._unmade[key]
        made = entry if entry in unmade else next(iter(unmade), entry)
        unmade.pop(made, None)
        self._made.add(made)
        self._left.remove(equal.pop(0))
        self.until = self._left[0].lifetime.end if self._left else _NEVER
        self._latest = max(self._latest, starts.pop(0))
        return True

    def is_at(self, entry: ReplayEntry, lifetime: Lifetime, key: WriteKey) -> bool:
        """Tell whether a call came here: after all writes that had ended, and before later ones."""
        if entry in self._made or lifetime.start > self.until:
            return False
        equal = self._equal.get(key)
        return self._latest <= (equal[0].lifetime if equal else lifetime).end


@dataclass(slots=True)
class PlayedWrites:
    """The writes of one play, and the worlds that they keep alive; None before the first."""

    made: list[ReplayEntry] = field(default_factory=list)
    living: dict[WorldKey, _World] | None = None


class Worlds:
    """The histories of a recording, and which of its calls are held to them.

    All but `reads` is found out when the first call comes that may be held.
    """

    def __init__(
        self,
        by_arrival: Sequence[ReplayEntry],
        timelines: Timelines,
        recorders: Sequence[RecorderFacts],
        history: History,
        reads: Collection[str],
    ) -> None:
        # A task goes on by itself, whatever is written.
        by_arrival = [each for each in by_arrival if each.created_by is None]
        self._by_arrival = by_arrival
        self._timelines = timelines
        self._recorders = recorders
        self._named = frozenset(reads)
        self._is_strict = history is History.STRICT
        paths = Counter(each.path for each in by_arrival)
        self._repeated = {path for path, count in paths.items() if count > 1}
        self.holds_any = self._is_strict or (history is History.AUTO and bool(self._repeated))

    # Reads and writes

    def only_reads(self, key: CallKey) -> bool:
        """Tell whether a call is known to change nothing."""
        if key.method == CALL_TOOL:
            return key.name in self._named or key.name in self._hinted
        return method_of(key.method).reads

    @cached_property
    def _hinted(self) -> frozenset[str]:
        """The tools of which every recorded list says that they only read."""
        says: dict[str, bool] = {}
        for each in self._by_arrival:
            if each.key.method != LIST_TOOLS:
                continue
            result = each.exchange.rpc_members.get("result")
            tools = result.get("tools") if isinstance(result, dict) else None
            for tool in tools if isinstance(tools, list) else ():
                hints = tool.get("annotations") if isinstance(tool, dict) else None
                is_hint = isinstance(hints, dict) and hints.get("readOnlyHint") is True
                if isinstance(tool, dict) and isinstance(name := tool.get("name"), str):
                    says[name] = says.get(name, True) and is_hint
        return frozenset(name for name, is_hint in says.items() if is_hint)

    def repeats_with_time(self, entry: ReplayEntry) -> bool:
        """Tell whether clients repeat a request as time goes by: a poll, or what a cache held."""
        response = entry.exchange.response
        is_cached = response is not None and b'"ttlMs"' in response.body
        is_poll = method_of(entry.key.method).repeats
        return entry.kind is Kind.REQUEST and (is_cached or is_poll) and self.only_reads(entry.key)

    def is_write(self, entry: ReplayEntry) -> bool:
        """Tell whether the response to a request ends a call that may have changed something."""
        is_call = entry.kind is Kind.REQUEST and entry.ask is None and not entry.is_listening
        return is_call and entry.created_by is None and not self.only_reads(entry.key)

    def write_key(self, entry: ReplayEntry) -> WriteKey:
        """Return what an entry shares with equal writes, in whichever world."""
        posted = self._timelines.answers_during(entry)
        return entry.path, tuple([each.key.arguments for each in posted])

    # Worlds

    @cached_property
    def writes(self) -> dict[WorldKey, list[Write]]:
        """The writes of each world."""
        writes: dict[WorldKey, list[Write]] = {}
        numbered = {each.exchange.number: each for each in self._by_arrival}
        for each in self._by_arrival:
            own = writes.setdefault(self._world_of(each), [])
            # A run that appended had played these one after the other, before the request came.
            follows = [numbered[number] for number in each.exchange.follows if number in numbered]
            for at, played in enumerate(follows, start=1):
                came = ((each.exchange.number or 0) - 1 + at / (len(follows) + 1),)
                own.append(Write(Lifetime(came, came), self.write_key(played), played))
            if self.is_write(each):
                own.append(Write(self._timelines.lifetime_of(each), self.write_key(each), each))
        return writes

    def _world_of(self, entry: ReplayEntry) -> WorldKey:
        by = entry.exchange.recorded_by
        return entry.session, 0 if by is None else self._runs.get(by.recorder, 0)

    @cached_property
    def _runs(self) -> dict[str, int]:
        """The run to which each recorder belongs; recorders that were merged are of one run."""
        appended = {each.id for each in self._recorders if not each.offset_ms}
        runs: dict[str, int] = {}
        run, ended = 0, 0
        for each in self._by_arrival:
            exchange = each.exchange
            number, by = exchange.number or 0, exchange.recorded_by
            if by is not None and by.recorder not in runs:
                # A run that was appended is timed anew, and came when all else was over.
                run += by.recorder in appended and number > ended > 0
                runs[by.recorder] = run
            ended = max(ended, number, exchange.ended_after or 0)
        return runs

    # What is held

    def living(self, played: PlayedWrites) -> dict[WorldKey, _World]:
        """Return the worlds that a play keeps alive."""
        if played.living is None:
            played.living = {key: _World(writes) for key, writes in self.writes.items()}
        return played.living

    def make(self, entry: ReplayEntry, played: PlayedWrites) -> None:
        """Make a write; worlds end that don't have it next."""
        played.made.append(entry)
        for name, world in [*self.living(played).items()]:
            # Clients without a session have nothing in common with those that have one.
            is_apart = bool(name[0]) != bool(entry.session)
            if not is_apart and not world.make(self.write_key(entry), entry):
                del self.living(played)[name]

    def keep(self, entries: list[ReplayEntry], played: PlayedWrites) -> list[ReplayEntry]:
        """Keep those of some equal calls that came after the writes of a play in a living world.

        They stand in the order of their arrival.
        """
        if not self._are_held(entries):
            return entries
        living = self.living(played)
        until = max((each.until for each in living.values()), default=())
        kept = []
        for each in entries:
            lifetime, world, key = self._facts[each]
            # What opens or listens belongs to no point of a history.
            is_free = each.opens_session or each.key.method == INITIALIZE or each.is_listening
            if is_free or each.kind is not Kind.REQUEST:
                kept.append(each)
            elif lifetime.start > until:
                break
            elif world in living and living[world].is_at(each, lifetime, key):
                kept.append(each)
        return kept

    @cached_property
    def _facts(self) -> dict[ReplayEntry, tuple[Lifetime, WorldKey, WriteKey]]:
        lifetime_of = self._timelines.lifetime_of
        every = self._by_arrival
        return {it: (lifetime_of(it), self._world_of(it), self.write_key(it)) for it in every}

    def _are_held(self, entries: list[ReplayEntry]) -> bool:
        first, last = entries[0], entries[-1]
        if self._is_strict or (first.path, first.traits) in self._answered_otherwise:
            return True
        # A caller that is like none of the recorded ones may get what was recorded of several.
        return first.traits != last.traits and len({self._digests.get(e) for e in entries}) > 1

    @cached_property
    def _digests(self) -> dict[ReplayEntry, bytes]:
        """Digests of the answers to calls that were recorded repeatedly."""
        repeated = [each for each in self._by_arrival if each.path in self._repeated]
        return {each: answer_digest(each) for each in repeated}

    @cached_property
    def _answered_otherwise(self) -> set[tuple[int, Traits]]:
        """Equal calls that got several answers, themselves or after equal retries."""
        latest: dict[tuple[int, Traits], bytes] = {}
        several: set[tuple[int, Traits]] = set()
        for each, digest in self._digests.items():
            if latest.setdefault((each.path, each.traits), digest) != digest:
                several.add((each.path, each.traits))
        # A retry came after the call that it answers.
        for each in reversed(self._by_arrival):
            if each.parent is not None and (each.path, each.traits) in several:
                several.add((each.parent.path, each.parent.traits))
        return several

    # What is told

    def nearest(
        self, entries: Sequence[ReplayEntry], played: PlayedWrites
    ) -> tuple[ReplayEntry, str]:
        """Return the nearest of some calls; say after which writes it came, and which were made."""
        living = self.living(played)
        nearest = next((each for each in entries if self._world_of(each) in living), entries[-1])
        start, writes = self._timelines.lifetime_of(nearest).start, self.writes
        before = [each for each in writes[self._world_of(nearest)] if each.lifetime.end < start]
        recorded = _listed([each.entry for each in before])
        made = _listed(played.made)
        return nearest, f"this was recorded after {recorded}; this run has made {made}"


def _listed(writes: Sequence[ReplayEntry]) -> str:
    told = ", ".join([f"{each.key} {each.key.arguments}" for each in writes])
    return shorten(told) or "no write"


def answer_digest(entry: ReplayEntry) -> bytes:
    """Return the digest of the response to a request, without names and the caller's values."""
    exchange, response = entry.exchange, entry.exchange.response
    message = exchange.rpc_response
    task = exchange.created_task
    if task is not None:
        # What was answered, and the last state.
        states = [task, *(each.state for each in entry.steps if each.state is not None)]
        answers = [str(each.lookup.answers) for each in entry.steps if each.state is None]
        text = "\n".join([*answers, states[-1].digest])
    elif message is None:
        text = "" if response is None else f"{response.status} {response.body.decode('latin-1')}"
    else:
        text = canonical([message.tree.get("result"), message.tree.get("error")])
    state = None if exchange.ask is None else exchange.ask.request_state
    if state is not None:
        spelled = canonical(state)
        text = text.replace(spelled[1:-1] if is_searched(state) else spelled, "")
    text = GENERATED_NAME.sub(lambda match: match["kind"] or match["rule"], text)
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


# Several cassettes

_NUMBERED = re.compile(
    rb"(mrtr-(?:session|task(?::|%3A)[0-9a-f]{16})(?::|%3A))([0-9]{1,9})(?![0-9])"
)
"""Names that a recorder numbers."""
_NAMES_OF_A_CASSETTE: Final = 100_000


def united(cassettes: Sequence[Cassette]) -> Cassette:
    """Return several cassettes as one, in which each has worlds of its own.

    Raises:
        CassetteError: they were recorded by different rules.
    """
    first, *others = cassettes
    if not others:
        return first
    interactions: list[RecordedInteraction] = []
    recorders: list[RecorderFacts] = []
    arrived = 0
    for index, cassette in enumerate(cassettes):
        for name in ("transport", "request_state", "redaction", "seals_answers"):
            if getattr(cassette, name) != getattr(first, name):
                words = name.replace("_", " ")
                reason = f"it was recorded with another {words} than {first.path}"
                raise CassetteError(cassette.path, reason, hint="play each by itself")
        moved = _moved(cassette, index, arrived)
        arrived = max((each.ended_after or each.number or 0 for each in moved.values()), default=0)
        before = len(interactions)
        for one in cassette.with_exchanges(moved).interactions:
            branch = one.branch and one.branch._replace(of=before + one.branch.of)
            interactions.append(replace(one, number=before + one.number, branch=branch))
        known = cassette.recorders or [RecorderFacts("", 0)]
        recorders += [each._replace(id=f"{index}:{each.id}") for each in known]
    path = ", ".join([each.path for each in cassettes])
    return replace(first, path=path, interactions=tuple(interactions), recorders=tuple(recorders))


def _moved(cassette: Cassette, index: int, before: int) -> dict[RecordedExchange, RecordedExchange]:
    """Return a cassette's exchanges with numbers and names that those before it don't have."""

    def named(number: bytes | str) -> int:
        return index * _NAMES_OF_A_CASSETTE + int(number)

    def renamed(raw: bytes, _name: str) -> bytes:
        raw = _NUMBERED.sub(lambda match: b"%b%d" % (match[1], named(match[2])), raw)
        return renumber(raw, lambda _, token: named(token) if token.isdigit() else None)

    changed: dict[RecordedExchange, RecordedExchange] = {}
    own = [exchange for one in cassette.interactions for exchange in one.own]
    for at, each in enumerate(sorted(own, key=lambda each: each.number or 0), start=1):
        by = each.recorded_by or RecordedBy("", at)
        by = by._replace(recorder=f"{index}:{by.recorder}")
        number = before + (each.number or at)
        moved = recounted(each, by, number, lambda after, _: after and before + after)
        follows = tuple([before + one for one in each.follows])
        changed[each] = with_texts(replace(moved, follows=follows), renamed)
    return changed
