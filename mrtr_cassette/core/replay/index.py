"""Which recordings a request may get, whatever was played: by its key, headers and secrets.

Where nothing is remembered, equal recordings are one: a request state, or a session, stands for any
that an equal request got.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from operator import eq
from types import MappingProxyType
from typing import Final

from mrtr_cassette.core.cassette.entries import (
    Entries,
    MatchedRequest,
    ReplayEntry,
    answer_digest,
    is_received,
)
from mrtr_cassette.core.cassette.lookup import LookupKey
from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.protocol.calls import Call, Traits, read_call
from mrtr_cassette.core.protocol.hooks import MatchHook
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.replay.histories import WriteHistories
from mrtr_cassette.core.replay.tasks import RecordedTasks
from mrtr_cassette.core.replay.timelines import Timelines
from mrtr_cassette.core.secrets.names import Ref
from mrtr_cassette.errors import CassetteError, shorten

_MOST_LISTED: Final = 10
_REMEDY: Final = "serve it without, from one process"


class RecordingIndex:
    """Finds the recordings with the key of a request, and which of them its headers are like.

    Attributes:
        entries_by_lookup: those that are found by each key, as they arrived.
        entries_by_lookup_and_traits: the same with all that headers say.
        stand_ins: the equal exchanges that are played in the place of others.
    """

    stand_ins: Mapping[ReplayEntry, ReplayEntry] = MappingProxyType({})

    def __init__(self, by_arrival: Sequence[ReplayEntry]) -> None:
        self._by_arrival = by_arrival
        self.entries_by_lookup: dict[LookupKey, list[ReplayEntry]] = {}
        self.entries_by_lookup_and_traits: dict[
            tuple[LookupKey, Traits], list[ReplayEntry]
        ] = {}
        self._entries_by_stricter_lookup: dict[
            tuple[LookupKey, int, LookupKey], list[ReplayEntry]
        ] = {}
        for entry in by_arrival:
            if entry.created_by is None and entry not in self.stand_ins:
                self._index_entry(entry)

    def _index_entry(self, entry: ReplayEntry) -> None:
        """Take a recorded exchange under the keys by which it is found."""
        matched = self.matched_as_found(entry)
        lookup = matched.lookup
        # A state that the client didn't get from the cassette, such as a literal in a test, has the
        # hash of the state that was sent while recording.
        raw_state = entry.exchange.echoed_sha256 or lookup.state
        raw_lookup = self.lookup_as_found(lookup._replace(state=raw_state))
        for key in dict.fromkeys([lookup, raw_lookup]):
            self.entries_by_lookup.setdefault(key, []).append(entry)
            self.entries_by_lookup_and_traits.setdefault(
                (key, matched.traits), []
            ).append(entry)
            for strictness, stricter in enumerate(matched.stricter_lookups):
                self._entries_by_stricter_lookup.setdefault(
                    (key, strictness, stricter), []
                ).append(entry)

    def matched_as_found(self, entry: ReplayEntry) -> MatchedRequest:
        """Return a recorded request as it is found."""
        return entry.matched

    def lookup_as_found(self, lookup: LookupKey) -> LookupKey:
        """Return the key under which a request is found that has this one."""
        return lookup

    def retries_of_equal_asks(
        self, lookup: LookupKey
    ) -> tuple[ReplayEntry | None, list[ReplayEntry]]:
        """Return the ask that a retry answers, and the retries of equal asks with its answers.

        Asks are equal if equal calls asked the same, after the same answers.
        """
        ask = self._asks_by_state.get(lookup.state)
        if ask is None:
            return None, []

        key = (lookup.call, lookup.answers, *_questions_asked(ask))
        return ask, self._retries_by_equal_ask.get(key, [])

    @cached_property
    def _asks_by_state(self) -> dict[str | None, ReplayEntry]:
        """The asks by the hashes of the states that they issue."""
        asks: dict[str | None, ReplayEntry] = {}
        for entry in self._by_arrival:
            for sha256 in (entry.issued_sha256, entry.exchange.issued_sha256):
                if entry.is_ask and sha256 is not None:
                    asks.setdefault(sha256, entry)

        return asks

    @cached_property
    def _retries_by_equal_ask(self) -> dict[object, list[ReplayEntry]]:
        """The retries by their call, their answers, and what they answer."""
        retries: dict[object, list[ReplayEntry]] = {}
        for entry in self._by_arrival:
            if entry.parent is not None and entry.created_by is None:
                lookup = entry.matched.lookup
                key = (lookup.call, lookup.answers, *_questions_asked(entry.parent))
                retries.setdefault(key, []).append(entry)

        return retries

    def matched_by(
        self, hook: MatchHook, matched: MatchedRequest, *, in_any_turn: bool = False
    ) -> list[ReplayEntry]:
        """Return the recordings of other calls that a function matches with a request.

        These are of the same tool or method, and, unless in any turn, with the same answers to what
        the same state proves.

        Raises:
            HookError: the function raised an error.
        """
        call = read_call(matched.request)
        lookup = self.lookup_as_found(matched.lookup)
        matching_entries = []
        for recorded, entries in self.entries_by_lookup.items():
            is_in_turn = in_any_turn or recorded[1:] == lookup[1:]
            is_same_name = recorded.call[:-1] == lookup.call[:-1]
            is_other_call = is_same_name and recorded.call != lookup.call
            if not (is_in_turn and is_other_call):
                continue

            request = entries[0].matched.request
            is_alike = _is_same_but_arguments(read_call(request), call)
            if is_alike and hook.matches(request, matched.request):
                matching_entries += entries

        return sorted(matching_entries, key=lambda entry: entry.arrival)

    def stricter_groups(
        self, matched: MatchedRequest
    ) -> Iterator[Sequence[ReplayEntry]]:
        """Yield the recordings with the same value where the others match or are ignored."""
        lookup = self.lookup_as_found(matched.lookup)
        for strictness, stricter in enumerate(matched.stricter_lookups):
            entries = self._entries_by_stricter_lookup.get(
                (lookup, strictness, stricter), ()
            )
            if entries and len(entries) < len(self.entries_by_lookup[lookup]):
                yield entries

    def most_alike(
        self, entries: Sequence[ReplayEntry], traits: Traits
    ) -> Sequence[ReplayEntry]:
        """Return the exchanges whose traits come nearest, in recorded order.

        Recordings with other traits are never a substitute, even when these are used up: the same
        body may have been refused for its headers. So of recordings that are equally near, a
        refusal is for those who send what was refused.
        """
        best_score: list[bool] = []
        nearest: dict[ReplayEntry, Traits] = {}
        for entry in entries:
            recorded = self.matched_as_found(entry).traits
            score = list(map(eq, recorded, traits))
            if score > best_score:
                best_score = score
                nearest = {}

            if score == best_score:
                nearest[entry] = recorded

        granted_traits = {
            found for entry, found in nearest.items() if not entry.is_refused
        }
        is_alike = len(set(nearest.values())) == 1
        if is_alike or not granted_traits:
            return list(nearest)

        return [entry for entry, found in nearest.items() if found in granted_traits]


def _questions_asked(ask: ReplayEntry) -> tuple[int, bytes]:
    """Return what equal asks share: the path to them, and what they say but for the state."""
    return ask.numbers.path, answer_digest(ask, ())


def _is_same_but_arguments(recorded: Call, received: Call) -> bool:
    """Tell whether two calls may differ in nothing but their arguments."""
    if recorded.contradicting_header or received.contradicting_header:
        return False
    return recorded.kind is received.kind


# Secrets


class SecretMapping:
    """Maps a client's secrets to recorded placeholders.

    A cassette has no secret, so a secret is first taken for the next recorded one that nobody has
    used, and from then on only for that one.
    """

    def __init__(self) -> None:
        self._received_by_recorded: dict[Ref, Ref] = {}

    def fitting_entries(
        self, candidates: Candidates, received: tuple[Ref, ...]
    ) -> Sequence[ReplayEntry]:
        """Return the recorded exchanges whose secrets can be those of a request."""
        possible = _secrets_taking(candidates.secrets, received, _is_found_by_same_rule)
        if len(possible) > 1:
            taken = _secrets_taking(possible, received, self._is_taken_for)
            if taken:
                return candidates.entries_with_secrets(taken)

            possible = _secrets_taking(possible, received, self._may_be_taken_for)

        entries = candidates.entries_with_secrets(possible)
        if not candidates.have_parents:
            return entries

        fitting = []
        for entry in entries:
            if not self._has_been_another(entry, received):
                fitting.append(entry)

        return fitting

    def _has_been_another(self, entry: ReplayEntry, received: tuple[Ref, ...]) -> bool:
        """Tell whether a secret was another recorded one in an earlier round of a call."""
        earlier: set[Ref] = set()
        parent = entry.parent
        while parent is not None:
            earlier.update(parent.matched.secrets)
            parent = parent.parent

        for recorded, secret in zip(entry.matched.secrets, received, strict=False):
            if self._is_taken_for(recorded, secret):
                continue

            for earlier_secret in earlier:
                if self._is_taken_for(earlier_secret, secret):
                    return True

        return False

    def note_played_secrets(
        self, entry: ReplayEntry, received: tuple[Ref, ...]
    ) -> None:
        """Take note of what the secrets of a request were played as."""
        for recorded, secret in zip(entry.matched.secrets, received, strict=False):
            if is_received(secret):
                self._received_by_recorded.setdefault(recorded, secret)

    def _is_taken_for(self, recorded: Ref, received: Ref) -> bool:
        """Tell whether a client's secret is taken for a recorded one."""
        return received in (recorded, self._received_by_recorded.get(recorded))

    def _may_be_taken_for(self, recorded: Ref, received: Ref) -> bool:
        """Tell whether a client's secret may be taken for a recorded one."""
        if recorded.kind != received.kind or self._is_taken_for(recorded, received):
            return True
        return recorded not in self._received_by_recorded and is_received(received)


def _secrets_taking(
    recorded: Iterable[tuple[Ref, ...]],
    received: tuple[Ref, ...],
    takes: Callable[[Ref, Ref], bool],
) -> set[tuple[Ref, ...]]:
    """Return the secrets of recorded requests of which each takes the one received in its place."""
    return {secrets for secrets in recorded if all(map(takes, secrets, received))}


def _is_found_by_same_rule(recorded: Ref, received: Ref) -> bool:
    """Tell whether the rule that found a client's secret may have found a recorded one."""
    # A placeholder that the client was given may stand where another rule found the secret.
    return recorded.kind == received.kind or not is_received(received)


# Where nothing is remembered


class StatelessIndex(RecordingIndex):
    """Lets the first of equal requests stand for all of them.

    Raises:
        CassetteError: some reply depends on more than its request; the error names which.
    """

    def __init__(
        self,
        cassette: Cassette,
        entries: Entries,
        issued: Collection[str],
        tasks: RecordedTasks,
        timelines: Timelines,
    ) -> None:
        """Compare requests.

        Args:
            issued: the hashes and placeholders that a client can have from a response.
        """
        self._issued_names = issued
        self._entries = entries
        self._first_equal_names: dict[str, str] = {}
        self._matched_by_entry: dict[ReplayEntry, MatchedRequest] = {}
        self._refuse_dependence_on_memory(cassette, tasks, timelines)
        self.stand_ins = self._equal_requests(cassette)
        super().__init__(entries.by_arrival)

    def _refuse_dependence_on_memory(
        self, cassette: Cassette, tasks: RecordedTasks, timelines: Timelines
    ) -> None:
        """Refuse what depends on more than the request that gets it."""
        pushing = {call.number for call in cassette.interactions if call.pushed_turns}
        dependent_items = []
        why_dependent = (
            "the state of its task depends on earlier answers and cancellations"
        )
        for call in tasks.changing_calls:
            dependent_items.append(f"({call.place.in_file}): {why_dependent}")

        for entry in self._entries.by_arrival:
            why_dependent = ""
            if entry.created_by is None:
                why_dependent = _why_dependent(entry, pushing)
                if timelines.is_cancelled(entry.stream):
                    why_dependent = "its response depends on its cancellation"

            is_independent = not why_dependent and entry.is_listening
            if is_independent and timelines.messages_depend_on_later(entry):
                why_dependent = "a stream has events that other requests caused"

            if why_dependent:
                number = f"({entry.place.in_file})"
                if entry.session:
                    number = f"{entry.session} {number}"

                dependent_items.append(f"{number}: {why_dependent}")

        reason = (
            f"<<stateless>> can't play what one process has to remember; {_REMEDY}, "
            "or from several to which a load balancer routes each session"
        )
        _refuse_cassette(cassette, reason, dependent_items)

    def _equal_requests(self, cassette: Cassette) -> dict[ReplayEntry, ReplayEntry]:
        """Return the first of equal requests, and refuse those that got several answers."""
        stand_ins = {}
        groups: dict[object, list[ReplayEntry]] = {}
        # Whatever a request carries was issued before it arrived.
        for entry in self._entries.by_arrival:
            if entry.created_by is None:
                group = groups.setdefault(self._note_group_key(entry), [])
                group.append(entry)
                self._merge_names(group[0], entry)

        ambiguous_groups = []
        for group in groups.values():
            first = _first_answered(group)
            for entry in group:
                if entry is not first:
                    stand_ins[entry] = first

            is_repeated = len(group) > 1
            if is_repeated and len(set(self._answer_digests(group))) > 1:
                ambiguous_groups.append(_numbers_and_call(group))

        reason = (
            "with <<stateless>> nothing tells which of several recorded answers these "
            f"requests get; {_REMEDY}, or record one answer to each, or a header by "
            "<<match_headers>> that tells them apart"
        )
        _refuse_cassette(cassette, reason, ambiguous_groups)
        return stand_ins

    def first_equal_name(self, name: str) -> str:
        """Return the name that stands for all that equal one, of sessions or hashes of states."""
        while name in self._first_equal_names:
            name = self._first_equal_names[name]

        return name

    def lookup_as_found(self, lookup: LookupKey) -> LookupKey:
        """Return a lookup key with the first of the states that stand for the same."""
        if lookup.state is None:
            return lookup
        return lookup._replace(state=self.first_equal_name(lookup.state))

    def matched_as_found(self, entry: ReplayEntry) -> MatchedRequest:
        """Return a recorded request with the first of equal names, as it is found."""
        return self._matched_by_entry.get(entry, entry.matched)

    def _note_group_key(self, entry: ReplayEntry) -> object:
        """Put the first of equal names into what an entry is found by, and return all of this."""
        matched = entry.matched
        session = matched.traits.session
        root = self.first_equal_name(session)
        matched = matched._replace(
            caller=f"{root}{matched.caller[len(session) :]}",
            traits=matched.traits._replace(session=root),
            lookup=self.lookup_as_found(matched.lookup),
        )

        self._matched_by_entry[entry] = matched
        secret_names = tuple(map(self._secret_known_as, matched.secrets))

        return matched.lookup, matched.traits, matched.caller, secret_names

    def _merge_names(self, first: ReplayEntry, equal: ReplayEntry) -> None:
        """Let the names that one request got stand for those that an equal one got."""
        self._merge_two_names(first.issued_sha256, equal.issued_sha256)
        self._merge_two_names(first.issued_sha256, equal.exchange.issued_sha256)
        if equal.opens_session:
            self._merge_two_names(first.session, equal.session)

    def _merge_two_names(self, name: str | None, equal: str | None) -> None:
        """Let one name stand for an equal one, if there are both."""
        if not name or not equal:
            return

        first = self.first_equal_name(name)
        other_first = self.first_equal_name(equal)
        if first != other_first:
            self._first_equal_names[other_first] = first

    def _answer_digests(self, group: Iterable[ReplayEntry]) -> Iterator[bytes]:
        """Yield the digests of the answers to equal requests."""
        retries = self._entries.answered_by_proxy
        for entry in group:
            answering_entry = entry
            # The client gets the end of what the proxy answered.
            while answering_entry in retries:
                answering_entry = retries[answering_entry]

            # A notification may have got no response.
            is_silent = (
                answering_entry.kind is Kind.NOTIFICATION
                and answering_entry.exchange.response is None
            )
            # What listening streams say is compared apart.
            if not is_silent and not answering_entry.is_listening:
                yield answer_digest(
                    answering_entry, self._entries.steps.get(answering_entry, ())
                )

    def _secret_known_as(self, secret: Ref) -> str:
        """Return what a secret is known by; those that clients know by themselves are all alike."""
        if secret.name in self._issued_names:
            return secret.name
        return secret.kind

    def first_for_caller(
        self, candidates: Candidates, matched: MatchedRequest
    ) -> ReplayEntry | None:
        """Return the first of some equal recordings that fits, its caller's if possible."""
        fitting = candidates.entries
        if matched.secrets:
            fitting = self._fitting_entries(candidates, matched.secrets)
            if not fitting:
                return None

        for entry in fitting:
            if self.matched_as_found(entry).caller == matched.caller:
                return entry

        return fitting[0]

    def _fitting_entries(
        self, candidates: Candidates, received: tuple[Ref, ...]
    ) -> Sequence[ReplayEntry]:
        """Return the exchanges whose secrets can be those of a request."""
        possible = _secrets_taking(candidates.secrets, received, _is_found_by_same_rule)
        entries = candidates.entries_with_secrets(possible)
        known_secrets = list(map(self._secret_known_as, received))
        entries_with_same = []
        for entry in entries:
            if list(map(self._secret_known_as, entry.matched.secrets)) == known_secrets:
                entries_with_same.append(entry)

        if not entries_with_same and len(entries) == 1:
            return entries

        return entries_with_same


def _first_answered(group: Sequence[ReplayEntry]) -> ReplayEntry:
    """Return the first exchange with a response, or else the first one."""
    for entry in group:
        if entry.exchange.response:
            return entry

    return group[0]


def _numbers_and_call(group: Sequence[ReplayEntry]) -> str:
    """Name a group by the numbers of its interactions, and by its call."""
    places = {entry.interaction: entry.place.in_file for entry in group}
    numbers = [str(places[number]) for number in sorted(places)]
    return f"{shorten(', '.join(numbers))}: {_first_answered(group).key}"


def _why_dependent(entry: ReplayEntry, pushing: Collection[int]) -> str:
    """Say why what a request gets depends on other requests; nothing where it doesn't."""
    if entry.interaction in pushing and not entry.turn:
        return "the server asks by requests of its own, which are answered by other requests"
    if entry.resumed_entry is not None and entry.resumed_entry.kind is Kind.REQUEST:
        return "a request gets the rest of another request's response"
    return ""


def _refuse_cassette(cassette: Cassette, reason: str, items: Sequence[str]) -> None:
    """Raise an error that lists some items, if there are any."""
    if not items:
        return

    lines = [f"{reason}:", *items[:_MOST_LISTED]]
    if len(items) > _MOST_LISTED:
        lines.append(f"and {len(items) - _MOST_LISTED} more")

    raise CassetteError(cassette.path, "\n  ".join(lines))


class Candidates:
    """Equal recordings among which a request gets one, in the order of their arrival."""

    def __init__(
        self, entries: Sequence[ReplayEntry], histories: WriteHistories
    ) -> None:
        self.entries = entries
        self.rows = histories.rows_by_caller(entries)
        self.are_held = any(row.point for row in self.rows)
        self.have_parents = any(entry.parent is not None for entry in entries)
        self.answer_questions = self.have_parents
        self.resume_streams = False
        for entry in entries:
            if entry.answered_question is not None:
                self.answer_questions = True
            if entry.resumed_entry is not None:
                self.resume_streams = True

    @cached_property
    def secrets(self) -> set[tuple[Ref, ...]]:
        """The secrets that their requests have."""
        return {entry.matched.secrets for entry in self.entries}

    def entries_with_secrets(
        self, secrets: Collection[tuple[Ref, ...]]
    ) -> Sequence[ReplayEntry]:
        """Return those whose secrets are among some of theirs."""
        if len(secrets) == len(self.secrets):
            return self.entries
        return [entry for entry in self.entries if entry.matched.secrets in secrets]
