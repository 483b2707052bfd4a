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
    NormalisedRequest,
    ReplayEntry,
    answer_digest,
    is_sent_by_client,
)
from mrtr_cassette.core.cassette.lookup import LookupKey
from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.protocol.calls import Call, Traits, read_call
from mrtr_cassette.core.protocol.hooks import MatchHook
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.replay.histories import WriteHistories
from mrtr_cassette.core.replay.timelines import Timelines
from mrtr_cassette.core.secrets.names import Ref
from mrtr_cassette.errors import CassetteError, shorten

_MOST_LISTED_ITEMS: Final = 10
_REMEDY: Final = "serve it without, from one process"


class RecordingIndex:
    """Finds the recordings with the key of a request, and which of them its headers are like.

    Attributes:
        entries_by_lookup: those that are found by each key, as they arrived.
        stand_in_by_entry: the equal exchanges that are played in the place of others.
    """

    stand_in_by_entry: Mapping[ReplayEntry, ReplayEntry] = MappingProxyType({})

    def __init__(self, entries_by_arrival: Sequence[ReplayEntry]) -> None:
        self._entries_by_arrival = entries_by_arrival
        self.entries_by_lookup: dict[LookupKey, list[ReplayEntry]] = {}
        self._groups_by_lookup: dict[LookupKey, dict[Traits, list[ReplayEntry]]] = {}
        """Those of each key that was asked for, by all that headers say."""
        self._entries_by_stricter_lookup: dict[
            tuple[LookupKey, int, LookupKey], list[ReplayEntry]
        ] = {}
        for entry in entries_by_arrival:
            if entry.call_of_step is None and entry not in self.stand_in_by_entry:
                self._index_entry(entry)

    def _index_entry(self, entry: ReplayEntry) -> None:
        """Take a recorded exchange under the keys by which it is found."""
        normalised = self.indexed_request(entry)
        lookup = normalised.lookup
        # A state that the client didn't get from the cassette, such as a literal in a test, has the
        # hash of the state that was sent while recording.
        raw_state = entry.exchange.echoed_sha256
        raw_lookup = lookup
        if raw_state is not None:
            raw_lookup = lookup._replace(state=raw_state)

        for key in dict.fromkeys([lookup, self.indexed_lookup(raw_lookup)]):
            self.entries_by_lookup.setdefault(key, []).append(entry)
            for strictness_level, stricter_lookup in enumerate(
                normalised.stricter_lookups
            ):
                self._entries_by_stricter_lookup.setdefault(
                    (key, strictness_level, stricter_lookup), []
                ).append(entry)

    def indexed_request(self, entry: ReplayEntry) -> NormalisedRequest:
        """Return a recorded request as it is found."""
        return entry.normalised

    def indexed_lookup(self, lookup: LookupKey) -> LookupKey:
        """Return the key under which a request is found that has this one."""
        return lookup

    def entries_with_traits(
        self, lookup: LookupKey, traits: Traits
    ) -> Sequence[ReplayEntry]:
        """Return the recordings that are found by a key and have the same in their headers."""
        groups = self._groups_by_lookup.get(lookup)
        if groups is None:
            groups = {}
            for entry in self.entries_by_lookup[lookup]:
                recorded = self.indexed_request(entry).traits
                groups.setdefault(recorded, []).append(entry)

            self._groups_by_lookup[lookup] = groups

        return groups.get(traits, ())

    def retries_of_equal_asks(
        self, lookup: LookupKey
    ) -> tuple[ReplayEntry | None, list[ReplayEntry]]:
        """Return the ask that a retry answers, and the retries of equal asks with its answers.

        Asks are equal if equal calls asked the same, after the same answers.
        """
        ask = self._asks_by_state.get(lookup.state)
        if ask is None:
            return None, []

        retry_key = (lookup.call, lookup.answers, *_equal_ask_key(ask))
        return ask, self._retries_by_equal_ask.get(retry_key, [])

    @cached_property
    def _asks_by_state(self) -> dict[str | None, ReplayEntry]:
        """The asks by the hashes of the states that they issue."""
        asks: dict[str | None, ReplayEntry] = {}
        for entry in self._entries_by_arrival:
            for sha256 in (entry.issued_sha256, entry.exchange.issued_sha256):
                if entry.is_ask and sha256 is not None:
                    asks.setdefault(sha256, entry)

        return asks

    @cached_property
    def _retries_by_equal_ask(self) -> dict[object, list[ReplayEntry]]:
        """The retries by their call, their answers, and what they answer."""
        retries: dict[object, list[ReplayEntry]] = {}
        for entry in self._entries_by_arrival:
            if entry.answered_ask is not None and entry.call_of_step is None:
                lookup = entry.normalised.lookup
                retry_key = (
                    lookup.call,
                    lookup.answers,
                    *_equal_ask_key(entry.answered_ask),
                )
                retries.setdefault(retry_key, []).append(entry)

        return retries

    def entries_matched_by_hook(
        self,
        hook: MatchHook,
        normalised: NormalisedRequest,
        *,
        in_any_turn: bool = False,
    ) -> list[ReplayEntry]:
        """Return the recordings of other calls that a function matches with a request.

        These are of the same tool or method, and, unless in any turn, with the same answers to what
        the same state proves.

        Raises:
            HookError: the function raised an error.
        """
        call = read_call(normalised.request)
        lookup = self.indexed_lookup(normalised.lookup)
        state_and_answers = (lookup.state, lookup.answers)
        matching_entries = []
        for recorded_lookup, entries in self.entries_by_lookup.items():
            recorded_turn = (recorded_lookup.state, recorded_lookup.answers)
            is_in_turn = in_any_turn or recorded_turn == state_and_answers
            recorded_key = recorded_lookup.call
            is_same_name = (
                recorded_key.without_arguments == lookup.call.without_arguments
            )
            is_other_call = is_same_name and recorded_key != lookup.call
            if not (is_in_turn and is_other_call):
                continue

            request = entries[0].normalised.request
            is_alike = _is_same_but_arguments(read_call(request), call)
            if is_alike and hook.matches(request, normalised.request):
                matching_entries += entries

        return sorted(matching_entries, key=lambda entry: entry.arrival)

    def stricter_groups(
        self, normalised: NormalisedRequest
    ) -> Iterator[Sequence[ReplayEntry]]:
        """Yield the recordings with the same value where the others match or are ignored."""
        lookup = self.indexed_lookup(normalised.lookup)
        for strictness_level, stricter_lookup in enumerate(normalised.stricter_lookups):
            entries = self._entries_by_stricter_lookup.get(
                (lookup, strictness_level, stricter_lookup), ()
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
        best_equalities: list[bool] = []
        nearest_traits: dict[ReplayEntry, Traits] = {}
        for entry in entries:
            recorded_traits = self.indexed_request(entry).traits
            # Whether each trait is the same, the weightiest first.
            equalities = list(map(eq, recorded_traits, traits))
            if equalities > best_equalities:
                best_equalities = equalities
                nearest_traits = {}

            if equalities == best_equalities:
                nearest_traits[entry] = recorded_traits

        granted_traits = set()
        for entry, entry_traits in nearest_traits.items():
            if not entry.is_refused:
                granted_traits.add(entry_traits)

        are_all_alike = len(set(nearest_traits.values())) == 1
        if are_all_alike or not granted_traits:
            return list(nearest_traits)

        entries_with_granted_traits = []
        for entry, entry_traits in nearest_traits.items():
            if entry_traits in granted_traits:
                entries_with_granted_traits.append(entry)

        return entries_with_granted_traits


def _equal_ask_key(ask: ReplayEntry) -> tuple[int, bytes]:
    """Return what equal asks share: the path to them, and what they say but for the state."""
    return ask.numbers.path, answer_digest(ask, ())


def _is_same_but_arguments(recorded_call: Call, received_call: Call) -> bool:
    """Tell whether two calls may differ in nothing but their arguments."""
    if recorded_call.contradicting_header or received_call.contradicting_header:
        return False
    return recorded_call.kind is received_call.kind


# Secrets


class SecretMapping:
    """Maps a client's secrets to recorded placeholders.

    A cassette has no secret, so a secret is first taken for the next recorded one that nobody has
    used, and from then on only for that one.
    """

    def __init__(self) -> None:
        self._received_by_recorded: dict[Ref, Ref] = {}

    def entries_fitting_secrets(
        self, candidates: Candidates, received_secrets: tuple[Ref, ...]
    ) -> Sequence[ReplayEntry]:
        """Return the recorded exchanges whose secrets can be those of a request."""
        possible_secrets = _compatible_secrets(
            candidates.secrets, received_secrets, _is_found_by_same_rule
        )
        if len(possible_secrets) > 1:
            mapped_secrets = _compatible_secrets(
                possible_secrets, received_secrets, self._is_mapped_to
            )
            if mapped_secrets:
                return candidates.entries_with_secrets(mapped_secrets)

            possible_secrets = _compatible_secrets(
                possible_secrets, received_secrets, self._may_map_to
            )

        entries = candidates.entries_with_secrets(possible_secrets)
        if not candidates.have_retries:
            return entries

        entries_fitting_secrets = []
        for entry in entries:
            if not self._contradicts_earlier_round(entry, received_secrets):
                entries_fitting_secrets.append(entry)

        return entries_fitting_secrets

    def _contradicts_earlier_round(
        self, entry: ReplayEntry, received_secrets: tuple[Ref, ...]
    ) -> bool:
        """Tell whether a secret was another recorded one in an earlier round of a call."""
        earlier_secrets: set[Ref] = set()
        ask = entry.answered_ask
        while ask is not None:
            earlier_secrets.update(ask.normalised.secrets)
            ask = ask.answered_ask

        for recorded_secret, received_secret in zip(
            entry.normalised.secrets, received_secrets, strict=False
        ):
            if self._is_mapped_to(recorded_secret, received_secret):
                continue

            for earlier_secret in earlier_secrets:
                if self._is_mapped_to(earlier_secret, received_secret):
                    return True

        return False

    def note_played_secrets(
        self, entry: ReplayEntry, received_secrets: tuple[Ref, ...]
    ) -> None:
        """Take note of what the secrets of a request were played as."""
        for recorded_secret, received_secret in zip(
            entry.normalised.secrets, received_secrets, strict=False
        ):
            if is_sent_by_client(received_secret):
                self._received_by_recorded.setdefault(recorded_secret, received_secret)

    def _is_mapped_to(self, recorded_secret: Ref, received_secret: Ref) -> bool:
        """Tell whether a client's secret is taken for a recorded one."""
        mapped_secret = self._received_by_recorded.get(recorded_secret)
        return received_secret in (recorded_secret, mapped_secret)

    def _may_map_to(self, recorded_secret: Ref, received_secret: Ref) -> bool:
        """Tell whether a client's secret may be taken for a recorded one."""
        if recorded_secret.kind != received_secret.kind:
            return True
        if self._is_mapped_to(recorded_secret, received_secret):
            return True
        if recorded_secret in self._received_by_recorded:
            return False

        return is_sent_by_client(received_secret)


def _compatible_secrets(
    recorded_secrets: Iterable[tuple[Ref, ...]],
    received_secrets: tuple[Ref, ...],
    is_compatible: Callable[[Ref, Ref], bool],
) -> set[tuple[Ref, ...]]:
    """Return the secrets of recorded requests of which each takes the one received in its place."""
    compatible_secrets = set()
    for secrets in recorded_secrets:
        if all(map(is_compatible, secrets, received_secrets)):
            compatible_secrets.add(secrets)

    return compatible_secrets


def _is_found_by_same_rule(recorded_secret: Ref, received_secret: Ref) -> bool:
    """Tell whether the rule that found a client's secret may have found a recorded one."""
    if recorded_secret.kind == received_secret.kind:
        return True

    # A placeholder that the client was given may stand where another rule found the secret.
    return not is_sent_by_client(received_secret)


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
        issued_names: Collection[str],
        changing_calls: Iterable[ReplayEntry],
        timelines: Timelines,
    ) -> None:
        """Compare requests.

        Args:
            issued_names: the hashes and placeholders that a client can have from a response.
            changing_calls: the calls whose later steps depend on earlier ones.
        """
        self._issued_names = issued_names
        self._entries = entries
        self._first_equal_names: dict[str, str] = {}
        self._normalised_by_entry: dict[ReplayEntry, NormalisedRequest] = {}
        self._refuse_dependence_on_memory(cassette, changing_calls, timelines)
        self.stand_in_by_entry = self._first_of_equal_requests(cassette)
        super().__init__(entries.by_arrival)

    def _refuse_dependence_on_memory(
        self,
        cassette: Cassette,
        changing_calls: Iterable[ReplayEntry],
        timelines: Timelines,
    ) -> None:
        """Refuse what depends on more than the request that gets it."""
        pushing_interactions = _numbers_with_pushed_turns(cassette)
        dependent_items = []
        why_dependent = (
            "the state of its task depends on earlier answers and cancellations"
        )
        for call in changing_calls:
            dependent_items.append(f"({call.place.in_file}): {why_dependent}")

        for entry in self._entries.by_arrival:
            why_dependent = ""
            if entry.call_of_step is None:
                why_dependent = _why_dependent(entry, pushing_interactions)
                if timelines.is_cancelled(entry.stream):
                    why_dependent = "its response depends on its cancellation"

            is_independent = not why_dependent and entry.is_listening
            if is_independent and timelines.messages_depend_on_later_requests(entry):
                why_dependent = "a stream has events that other requests caused"

            if why_dependent:
                place_in_words = f"({entry.place.in_file})"
                if entry.session:
                    place_in_words = f"{entry.session} {place_in_words}"

                dependent_items.append(f"{place_in_words}: {why_dependent}")

        reason = (
            f"<<stateless>> can't play what one process has to remember; {_REMEDY}, "
            "or from several to which a load balancer routes each session"
        )
        _refuse_cassette(cassette, reason, dependent_items)

    def _first_of_equal_requests(
        self, cassette: Cassette
    ) -> dict[ReplayEntry, ReplayEntry]:
        """Return the first of equal requests, and refuse those that got several answers."""
        stand_in_by_entry = {}
        groups: dict[object, list[ReplayEntry]] = {}
        # Whatever a request carries was issued before it arrived.
        for entry in self._entries.by_arrival:
            if entry.call_of_step is None:
                group = groups.setdefault(self._group_key_with_first_names(entry), [])
                group.append(entry)
                self._merge_issued_names(group[0], entry)

        ambiguous_groups = []
        for group in groups.values():
            first_entry = _first_answered(group)
            for entry in group:
                if entry is not first_entry:
                    stand_in_by_entry[entry] = first_entry

            is_repeated = len(group) > 1
            if is_repeated and len(set(self._digests_of_answers(group))) > 1:
                ambiguous_groups.append(_numbers_and_call(group))

        reason = (
            "with <<stateless>> nothing tells which of several recorded answers these "
            f"requests get; {_REMEDY}, or record one answer to each, or a header by "
            "<<match_headers>> that tells them apart"
        )
        _refuse_cassette(cassette, reason, ambiguous_groups)
        return stand_in_by_entry

    def first_equal_name(self, name: str) -> str:
        """Return the name that stands for all that equal one, of sessions or hashes of states."""
        while name in self._first_equal_names:
            name = self._first_equal_names[name]

        return name

    def indexed_lookup(self, lookup: LookupKey) -> LookupKey:
        """Return a lookup key with the first of the states that stand for the same."""
        if lookup.state is None:
            return lookup
        return lookup._replace(state=self.first_equal_name(lookup.state))

    def indexed_request(self, entry: ReplayEntry) -> NormalisedRequest:
        """Return a recorded request with the first of equal names, as it is found."""
        return self._normalised_by_entry.get(entry, entry.normalised)

    def _group_key_with_first_names(self, entry: ReplayEntry) -> object:
        """Put the first of equal names into what an entry is found by, and return all of this."""
        normalised = entry.normalised
        session = normalised.traits.session
        first_session = self.first_equal_name(session)
        normalised = normalised._replace(
            caller=f"{first_session}{normalised.caller[len(session) :]}",
            traits=normalised.traits._replace(session=first_session),
            lookup=self.indexed_lookup(normalised.lookup),
        )

        self._normalised_by_entry[entry] = normalised
        secret_names = tuple(map(self._secret_identity, normalised.secrets))

        return normalised.lookup, normalised.traits, normalised.caller, secret_names

    def _merge_issued_names(
        self, first_entry: ReplayEntry, equal_entry: ReplayEntry
    ) -> None:
        """Let the names that one request got stand for those that an equal one got."""
        self._merge_two_names(first_entry.issued_sha256, equal_entry.issued_sha256)
        self._merge_two_names(
            first_entry.issued_sha256, equal_entry.exchange.issued_sha256
        )
        if equal_entry.opens_session:
            self._merge_two_names(first_entry.session, equal_entry.session)

    def _merge_two_names(self, name: str | None, equal_name: str | None) -> None:
        """Let one name stand for an equal one, if there are both."""
        if not name or not equal_name:
            return

        first_name = self.first_equal_name(name)
        first_name_of_equal = self.first_equal_name(equal_name)
        if first_name != first_name_of_equal:
            self._first_equal_names[first_name_of_equal] = first_name

    def _digests_of_answers(self, group: Iterable[ReplayEntry]) -> Iterator[bytes]:
        """Yield the digests of the answers to equal requests."""
        answered_by_proxy = self._entries.answered_by_proxy
        for entry in group:
            answering_entry = entry
            # The client gets the end of what the proxy answered.
            while answering_entry in answered_by_proxy:
                answering_entry = answered_by_proxy[answering_entry]

            # A notification may have got no response.
            is_silent = (
                answering_entry.kind is Kind.NOTIFICATION
                and answering_entry.exchange.response is None
            )
            # What listening streams say is compared apart.
            if not is_silent and not answering_entry.is_listening:
                task_steps = self._entries.steps.get(answering_entry, ())
                yield answer_digest(answering_entry, task_steps)

    def _secret_identity(self, secret: Ref) -> str:
        """Return what a secret is known by; those that clients know by themselves are all alike."""
        if secret.name in self._issued_names:
            return secret.name
        return secret.kind

    def first_for_caller(
        self, candidates: Candidates, normalised: NormalisedRequest
    ) -> ReplayEntry | None:
        """Return the first of some equal recordings that fits, its caller's if possible."""
        entries_fitting_secrets = candidates.entries
        if normalised.secrets:
            entries_fitting_secrets = self._entries_fitting_secrets(
                candidates, normalised.secrets
            )
            if not entries_fitting_secrets:
                return None

        for entry in entries_fitting_secrets:
            if self.indexed_request(entry).caller == normalised.caller:
                return entry

        return entries_fitting_secrets[0]

    def _entries_fitting_secrets(
        self, candidates: Candidates, received_secrets: tuple[Ref, ...]
    ) -> Sequence[ReplayEntry]:
        """Return the exchanges whose secrets can be those of a request."""
        possible_secrets = _compatible_secrets(
            candidates.secrets, received_secrets, _is_found_by_same_rule
        )
        entries = candidates.entries_with_secrets(possible_secrets)
        received_identities = list(map(self._secret_identity, received_secrets))
        entries_with_same_secrets = []
        for entry in entries:
            identities = list(map(self._secret_identity, entry.normalised.secrets))
            if identities == received_identities:
                entries_with_same_secrets.append(entry)

        if not entries_with_same_secrets and len(entries) == 1:
            return entries

        return entries_with_same_secrets


def _numbers_with_pushed_turns(cassette: Cassette) -> set[int]:
    """Return the numbers of the interactions during which the server sent requests."""
    interactions = cassette.interactions
    return {call.number for call in interactions if call.pushed_turns}


def _first_answered(group: Sequence[ReplayEntry]) -> ReplayEntry:
    """Return the first exchange with a response, or else the first one."""
    for entry in group:
        if entry.exchange.response:
            return entry

    return group[0]


def _numbers_and_call(group: Sequence[ReplayEntry]) -> str:
    """Name a group by the numbers of its interactions, and by its call."""
    place_by_number = {entry.interaction: entry.place.in_file for entry in group}
    numbers = [str(place_by_number[number]) for number in sorted(place_by_number)]
    return f"{shorten(', '.join(numbers))}: {_first_answered(group).key}"


def _why_dependent(entry: ReplayEntry, pushing_interactions: Collection[int]) -> str:
    """Say why what a request gets depends on other requests; nothing where it doesn't."""
    if entry.interaction in pushing_interactions and not entry.turn:
        return "the server asks by requests of its own, which are answered by other requests"
    if entry.resumed_entry is not None and entry.resumed_entry.kind is Kind.REQUEST:
        return "a request gets the rest of another request's response"
    return ""


def _refuse_cassette(cassette: Cassette, reason: str, items: Sequence[str]) -> None:
    """Raise an error that lists some items, if there are any."""
    if not items:
        return

    lines = [f"{reason}:", *items[:_MOST_LISTED_ITEMS]]
    if len(items) > _MOST_LISTED_ITEMS:
        lines.append(f"and {len(items) - _MOST_LISTED_ITEMS} more")

    raise CassetteError(cassette.path, "\n  ".join(lines))


class Candidates:
    """Equal recordings among which a request gets one, in the order of their arrival."""

    def __init__(
        self, entries: Sequence[ReplayEntry], histories: WriteHistories
    ) -> None:
        self.entries = entries
        self.sequences = histories.sequences_by_caller(entries)
        self.are_held = any(sequence.point for sequence in self.sequences)
        self.have_retries = any(entry.answered_ask is not None for entry in entries)
        self.depend_on_asks = self.have_retries
        self.resume_streams = False
        for entry in entries:
            if entry.answered_question is not None:
                self.depend_on_asks = True
            if entry.resumed_entry is not None:
                self.resume_streams = True

    @cached_property
    def secrets(self) -> set[tuple[Ref, ...]]:
        """The secrets that their requests have."""
        return {entry.normalised.secrets for entry in self.entries}

    def entries_with_secrets(
        self, secrets: Collection[tuple[Ref, ...]]
    ) -> Sequence[ReplayEntry]:
        """Return those whose secrets are among some of theirs."""
        if len(secrets) == len(self.secrets):
            return self.entries
        return [entry for entry in self.entries if entry.normalised.secrets in secrets]
