"""Why a request gets no recording, and what a replay counts of its requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from itertools import takewhile
from operator import attrgetter, eq
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.cassette.entries import MadeWrite, ReplayEntry, is_answer_to
from mrtr_cassette.core.cassette.lookup import LookupKey, lookup_key
from mrtr_cassette.core.cassette.recorded import posted_answer_value
from mrtr_cassette.core.protocol.any_server import HarmlessReply
from mrtr_cassette.core.protocol.calls import (
    Call,
    CallKey,
    read_call,
    resumed_event_id,
    session_of,
)
from mrtr_cassette.core.protocol.dialect import INPUT_RESPONSES
from mrtr_cassette.core.protocol.jsonrpc import Kind, Message, messages_in
from mrtr_cassette.core.protocol.methods import method_of
from mrtr_cassette.core.secrets.names import secrets_in
from mrtr_cassette.core.secrets.values import Values
from mrtr_cassette.core.wire.codings import why_body_unreadable
from mrtr_cassette.core.wire.jsonbytes import MemberPath, canonical
from mrtr_cassette.core.wire.pointers import (
    Difference,
    differences,
    without_null_members,
    without_paths,
)
from mrtr_cassette.errors import SHOWN_CHARS, counted, printable, shorten

_MOST_PLACEHOLDERS: Final = 3
"""Placeholders that the detail of a miss lists."""


class Reason(Enum):
    """Why a request has no recorded reply."""

    UNKNOWN_METHOD = "unknown-method"
    UNKNOWN_NAME = "unknown-name"
    SESSION_UNKNOWN = "session-unknown"
    CONDITION_MISSING = "condition-missing"
    ARGUMENTS_DIFFER = "arguments-differ"
    STATE_UNKNOWN = "state-unknown"
    STATE_MISSING = "state-missing"
    STATE_UNEXPECTED = "state-unexpected"
    ANSWERS_DIFFER = "answers-differ"
    ANSWERS_MISSING = "answers-missing"
    HEADERS_CONTRADICT = "headers-contradict"
    ALREADY_PLAYED = "already-played"
    OUT_OF_ORDER = "out-of-order"
    OTHER_HISTORY = "other-history"
    ELSEWHERE = "elsewhere"
    NO_RESPONSE = "no-response"
    NOT_LISTENING = "not-listening"
    UNREADABLE = "unreadable"
    HOOK_FAILED = "hook-failed"
    VALUE_UNKNOWN = "value-unknown"
    UNRECORDED = "unrecorded"


@dataclass(frozen=True, slots=True, eq=False)
class Miss:
    """A request without a recorded reply, and in what it differs from the nearest recorded one.

    `is_refused`: it is a wrong answer to a pushed question; the pending call gets the miss too.
    `read_suggestion` is the tool or method that would have to be known to change nothing, for the
    request to get a recorded reply; or empty.
    """

    call: Call
    reason: Reason
    detail: str
    nearest: ReplayEntry | None = None
    differences: tuple[Difference, ...] = ()
    is_refused: bool = False
    read_suggestion: str = ""


# Misses beside a recorded exchange


def miss_not_playable_now(
    call: Call, nearest: Sequence[ReplayEntry], reason: Reason
) -> Miss:
    """Explain why none of the exchanges with the key of a request can be played now."""
    entry = nearest[-1]
    if reason is Reason.OUT_OF_ORDER:
        detail = "this retry answers an ask that has not been played yet"
        entry = nearest[0]
    elif reason is Reason.CONDITION_MISSING:
        detail = "only the reply to a client with a copy was recorded"
    elif reason is Reason.ALREADY_PLAYED:
        times = "once"
        if len(nearest) > 1:
            times = f"{len(nearest)} times"

        detail = f"this was recorded {times}, and has been played {times} already"
    else:
        detail = "this was recorded with another secret, and the difference counts here"
        if call.answers is not None:
            reason = Reason.ANSWERS_DIFFER

    return Miss(call, reason, detail, entry)


def miss_led_elsewhere(call: Call, entry: ReplayEntry, origin: str) -> Miss:
    """Explain that a recorded response sends its client to a server that was not recorded."""
    detail = f"the recorded response sends its client to {origin}, which is not in the cassette"
    return Miss(call, Reason.ELSEWHERE, printable(detail), entry)


def miss_without_response(
    call: Call, entry: ReplayEntry, *, was_given_up: bool
) -> Miss:
    """Explain why a call has no response: its client left, or cancelled it, while recording."""
    detail = "its response was not recorded"
    if not was_given_up:
        detail = (
            "its response was recorded after its cancellation, which this client "
            "hasn't sent"
        )

    return Miss(call, Reason.NO_RESPONSE, detail, entry)


def miss_of_unheard_question(call: Call, entry: ReplayEntry) -> Miss:
    """Explain that a client can't hear what the server asks during a call."""
    detail = "the server asked on the listening stream, which this client hasn't opened"
    return Miss(call, Reason.NOT_LISTENING, detail, entry)


def miss_of_other_id(call: Call, nearest: ReplayEntry) -> Miss:
    """Explain why a recorded response can only be played to a caller with the recorded id."""
    response = nearest.exchange.response
    why_unreadable = ""
    if response is not None:
        why_unreadable = why_body_unreadable(response)

    if not why_unreadable:
        why_unreadable = "it is not readable JSON-RPC"

    detail = (
        f"the recorded response can't be given this request's id, as {why_unreadable}"
    )
    return Miss(call, Reason.UNREADABLE, printable(detail), nearest)


def miss_of_unlearned_value(
    call: Call, names: Sequence[str], nearest: ReplayEntry
) -> Miss:
    """Explain that a recorded response has a value whose text nobody knows."""
    refs = ", ".join([f"{{{name}}}" for name in names])
    detail = f"the recorded response has {refs}, and this run has not said its text"
    return Miss(call, Reason.VALUE_UNKNOWN, detail, nearest)


def miss_of_ambiguous_value(
    call: Call, choices: Sequence[Values], known_values: Values
) -> Miss:
    """Explain that several recorded requests teach other texts for a value."""
    choices_in_words = []
    for choice in choices:
        for name in known_values.unknown:
            if name in choice.texts:
                choices_in_words.append(f"{{{name}}} = {choice.texts[name]}")

    text_count = counted(len(choices), "text")
    detail = f"{text_count} of a value make it a recorded request: {', '.join(choices_in_words)}"
    return Miss(call, Reason.VALUE_UNKNOWN, detail)


def placeholders_by_entry(
    entries: Iterable[ReplayEntry],
) -> dict[ReplayEntry, list[str]]:
    """Return the placeholders in the body of each recorded response that has any."""
    placeholders_of_entries: dict[ReplayEntry, list[str]] = {}
    for entry in entries:
        response = entry.exchange.response
        if response is None:
            continue

        placeholders = [ref.raw.decode() for ref in secrets_in(response.body)]
        if placeholders:
            placeholders_of_entries[entry] = placeholders

    return placeholders_of_entries


def miss_after_placeholders(
    miss: Miss,
    recorded_placeholders: Mapping[ReplayEntry, Iterable[str]],
    played_entries: Collection[ReplayEntry],
) -> Miss:
    """Add to a miss that its client was given placeholders, which it may have sent back."""
    given_placeholders: dict[str, None] = {}
    for entry, names in recorded_placeholders.items():
        if entry in played_entries:
            given_placeholders.update(dict.fromkeys(names))

    if not given_placeholders:
        return miss

    placeholders = list(given_placeholders)
    placeholders_in_words = ", ".join(placeholders[:_MOST_PLACEHOLDERS])
    left_out_count = len(placeholders) - _MOST_PLACEHOLDERS
    if left_out_count > 0:
        placeholders_in_words += f" and {left_out_count} more"

    note = (
        f"earlier replies have {placeholders_in_words} in place of a secret, which the client may "
        "have sent back or used"
    )
    return replace(miss, detail=printable(f"{miss.detail}; {note}"))


class NoStep(NamedTuple):
    """Why a request about a task gets nothing now, and the recorded answers that it should have."""

    reason: Reason
    detail: str
    nearest: ReplayEntry
    recorded: Mapping[str, Any] = MappingProxyType({})


def miss_without_step(
    call: Call, no_step: NoStep, ignored: Collection[MemberPath]
) -> Miss:
    """Explain why a request about a task gets none of its recorded steps."""

    def comparable_answers(answers_by_key: Mapping[str, Any]) -> Any:
        """Return the answers to the keys in question, without what is ignored."""
        answers = {}
        for key in no_step.recorded:
            if answers_by_key.get(key) is not None:
                answers[key] = answers_by_key[key]

        return without_null_members(without_paths({INPUT_RESPONSES: answers}, ignored))

    recorded_answers = comparable_answers(no_step.recorded)
    received_answers = comparable_answers(_answers_in(call))
    differences_of_answers = tuple(differences(recorded_answers, received_answers))
    detail = printable(no_step.detail)

    return Miss(call, no_step.reason, detail, no_step.nearest, differences_of_answers)


# Misses after other writes


def miss_after_other_writes(
    call: Call,
    nearest: ReplayEntry,
    recorded_writes: Sequence[MadeWrite],
    made_writes: Sequence[MadeWrite],
) -> Miss:
    """Explain after which writes a call was recorded, and after which it was made."""
    recorded_list, made_list = _distinguishable_lists(recorded_writes, made_writes)
    detail = f"this was recorded after {recorded_list}; this run has made {made_list}"
    suggestion = _differing_tool_or_method(nearest.key, recorded_writes, made_writes)

    return Miss(call, Reason.OTHER_HISTORY, detail, nearest, read_suggestion=suggestion)


def _shared_beginning_length(first: Sequence[str], second: Sequence[str]) -> int:
    """Return how many items two lists share at their beginnings."""
    return len(list(takewhile(bool, map(eq, first, second))))


def _differing_tool_or_method(
    called_key: CallKey,
    recorded_writes: Sequence[MadeWrite],
    made_writes: Sequence[MadeWrite],
) -> str:
    """Return a tool or method in which two lists of writes differ: what is called, if it is in one.

    What is called again and again, with other answers, is likely to be what only reads.
    """
    description_of = attrgetter("description")
    shared_count = _shared_beginning_length(
        list(map(description_of, recorded_writes)),
        list(map(description_of, made_writes)),
    )
    differing_names = []
    for write in (*made_writes[shared_count:], *recorded_writes[shared_count:]):
        if write.key is not None:
            differing_names.append(write.key.tool_or_method)

    if not differing_names:
        return ""
    if called_key.tool_or_method in differing_names:
        return called_key.tool_or_method

    return differing_names[0]


def _distinguishable_lists(
    recorded_writes: Sequence[MadeWrite], made_writes: Sequence[MadeWrite]
) -> tuple[str, str]:
    """Return two lists of writes in words that differ, by their recordings if by nothing else."""
    plain_description_of = attrgetter("description_without_number")
    recorded_list, made_list = _lists_in_words(
        list(map(plain_description_of, recorded_writes)),
        list(map(plain_description_of, made_writes)),
    )

    if recorded_list != made_list:
        return recorded_list, made_list

    numbered_description_of = attrgetter("numbered_description")
    return _lists_in_words(
        list(map(numbered_description_of, recorded_writes)),
        list(map(numbered_description_of, made_writes)),
    )


def _lists_in_words(
    recorded_descriptions: Sequence[str], made_descriptions: Sequence[str]
) -> tuple[str, str]:
    """Return two lists in words, without what both begin with where they are long."""
    shared_count = 0
    recorded_length = len(", ".join(recorded_descriptions))
    made_length = len(", ".join(made_descriptions))
    if max(recorded_length, made_length) > SHOWN_CHARS:
        shared_count = _shared_beginning_length(
            recorded_descriptions, made_descriptions
        )

    recorded_list = _writes_in_words(recorded_descriptions[shared_count:], shared_count)
    made_list = _writes_in_words(made_descriptions[shared_count:], shared_count)
    return recorded_list, made_list


def _writes_in_words(descriptions: Sequence[str], shared_count: int) -> str:
    """Spell writes that come after some that are left out, as another list begins with them too."""
    other_writes = shorten(", ".join(descriptions))
    if not shared_count:
        return other_writes or "no write"

    shared_writes = f"the same {counted(shared_count, 'write')}"
    if not other_writes:
        return f"{shared_writes} and no other"

    return f"{shared_writes} and then {other_writes}"


# Misses without a recorded exchange


def _detail_of_unknown_name(key: CallKey, same_method: Sequence[ReplayEntry]) -> str:
    """Say for which names a method was recorded."""
    if method_of(key.method).names_task:
        return "no call that was recorded created this task"

    quoted_names = {f'"{entry.key.name}"' for entry in same_method}
    listed_names = ", ".join(sorted(quoted_names))
    return printable(f"{key.method} was recorded only for {listed_names}")


def _detail_of_unknown_method(key: CallKey, entries: Sequence[ReplayEntry]) -> str:
    """Say where a method was recorded, or what was recorded at an endpoint."""
    all_endpoints = set()
    endpoints_of_method = set()
    for entry in entries:
        all_endpoints.add(entry.key.endpoint)
        if entry.key.method == key.method:
            endpoints_of_method.add(entry.key.endpoint)

    if not key.method and key.endpoint in all_endpoints:
        return f"only JSON-RPC requests were recorded at {key}"
    if not key.method or not endpoints_of_method:
        return f"{key} was not recorded"

    listed_endpoints = ", ".join(sorted(endpoints_of_method))
    detail = f"{key.method} was recorded at {listed_endpoints}, not at {key.endpoint}"
    return printable(detail)


def miss_of_other_answer(
    call: Call, recorded_answers: Sequence[ReplayEntry], ignored: Collection[MemberPath]
) -> Miss:
    """Explain that a pushed request was answered in another way than these ones."""
    detail = "the question was answered in another way"
    return _nearest_miss(call, recorded_answers, Reason.ANSWERS_DIFFER, detail, ignored)


def _matched_call_of(entry: ReplayEntry) -> Call:
    """Return a recorded call as it is matched."""
    return read_call(entry.normalised.request)


def _answers_in(call: Call) -> dict[str, Any]:
    """Return the answers of a retry by key; none of any other call."""
    if call.answers is None:
        return {}
    return dict(call.answers.input_responses or {})


def _compared_part(call: Call, reason: Reason, ignored: Collection[MemberPath]) -> Any:
    """Return what of a call is compared for a reason: its arguments, or its answers."""
    message = call.message
    compared_value: Any = call.arguments
    if reason is Reason.ARGUMENTS_DIFFER:
        if isinstance(compared_value, bytes):
            compared_value = compared_value.decode("latin-1")

        return without_paths(compared_value, ignored)

    if message is not None and message.kind is Kind.RESPONSE:
        compared_value = posted_answer_value(message)
    else:
        compared_value = {INPUT_RESPONSES: _answers_in(call)}

    return without_null_members(without_paths(compared_value, ignored))


def _nearest_miss(
    call: Call,
    candidates: Sequence[ReplayEntry],
    reason: Reason,
    detail: str,
    ignored: Collection[MemberPath],
) -> Miss:
    """Return a miss with the nearest of some recorded requests, by arguments or by answers."""
    received_part = _compared_part(call, reason, ignored)
    nearest = candidates[0]
    fewest_differences: list[Difference] | None = None
    first_of_equal: dict[int, ReplayEntry] = {}
    for entry in candidates:
        first_of_equal.setdefault(entry.numbers.lookup, entry)

    for entry in first_of_equal.values():
        recorded_part = _compared_part(_matched_call_of(entry), reason, ignored)
        differences_of_entry = list(differences(recorded_part, received_part))
        if fewest_differences is None or len(differences_of_entry) < len(
            fewest_differences
        ):
            nearest = entry
            fewest_differences = differences_of_entry

    return Miss(call, reason, detail, nearest, tuple(fewest_differences or ()))


@dataclass(frozen=True)
class MissSearch:
    """The search for why nothing recorded matches a request, and for what comes nearest to it.

    Attributes:
        play_counts: how often each exchange was played.
        stand_in_by_entry: the equal ones that are played in the place of others.
        hook_name: of the user's function that tells whether two requests match, or empty.
        calls_matched_by_hook: those whose call is the same, as this function says.
    """

    call: Call
    entries: Sequence[ReplayEntry]
    ignored: Collection[MemberPath]
    play_counts: Mapping[ReplayEntry, int]
    stand_in_by_entry: Mapping[ReplayEntry, ReplayEntry]
    hook_name: str
    calls_matched_by_hook: Sequence[ReplayEntry]

    @cached_property
    def _lookup(self) -> LookupKey:
        """The key by which the request is looked up."""
        return lookup_key(self.call, self.ignored)

    @cached_property
    def _same_method_entries(self) -> list[ReplayEntry]:
        """The recorded exchanges of the same method at the same endpoint."""
        # Of a key the endpoint and the method come first.
        endpoint_and_method = self._lookup.call[:2]
        return [entry for entry in self.entries if entry.key[:2] == endpoint_and_method]

    @cached_property
    def _same_name_entries(self) -> list[ReplayEntry]:
        """Those of the same name."""
        name = self._lookup.call.name
        return [entry for entry in self._same_method_entries if entry.key.name == name]

    @cached_property
    def _same_call_entries(self) -> list[ReplayEntry]:
        """Those of the same call, by its key or as a user's function says."""
        entries_of_same_call = []
        for entry in self._same_name_entries:
            if entry.key == self._lookup.call or entry in self.calls_matched_by_hook:
                entries_of_same_call.append(entry)

        return entries_of_same_call

    def explained_miss(self) -> Miss:
        """Explain why nothing recorded matches the request."""
        call = self.call
        if call.message is not None and call.message.kind is Kind.RESPONSE:
            miss = self._miss_of_posted_answer(call.message)
            if miss is not None:
                return miss

        event = resumed_event_id(call.request)
        if event:
            detail = printable(f'no recorded stream goes on after the event "{event}"')
            return Miss(call, Reason.STATE_UNKNOWN, detail)

        call_key = self._lookup.call
        if not self._same_method_entries:
            detail = _detail_of_unknown_method(call_key, self.entries)
            return Miss(call, Reason.UNKNOWN_METHOD, detail)

        if not self._same_name_entries:
            detail = _detail_of_unknown_name(call_key, self._same_method_entries)
            return Miss(call, Reason.UNKNOWN_NAME, detail)

        header = call.contradicting_header
        if header:
            detail = f"the header {header} contradicts the body, which a server refuses"
            nearest = self._same_name_entries[0]
            return Miss(call, Reason.HEADERS_CONTRADICT, printable(detail), nearest)

        return self._miss_of_known_name()

    def _miss_of_posted_answer(self, message: Message) -> Miss | None:
        """Explain that a pushed request was answered in another way, or None.

        A server may use an id again, so answers that have not been played come before the others.
        """
        call = self.call
        answers_with_id = self._answers_with_id(message)
        if not answers_with_id:
            asking_exchange = self._exchange_asking_under_id(message)
            detail = "the recording has no answer to this question"
            if asking_exchange is None:
                return None
            return Miss(call, Reason.ANSWERS_DIFFER, detail, asking_exchange)

        unplayed_answers = [
            entry for entry in answers_with_id if not self.play_counts.get(entry)
        ]
        candidates = unplayed_answers or answers_with_id
        answers_at_endpoint = [
            entry for entry in candidates if entry.key.endpoint == call.endpoint
        ]
        if answers_at_endpoint:
            return miss_of_other_answer(call, answers_at_endpoint, self.ignored)

        nearest = candidates[0]
        detail = f"this was answered at {nearest.key.endpoint}, not at {call.endpoint}"
        target = canonical(nearest.normalised.request.target)
        difference = Difference("/#path", target, canonical(call.request.target))
        reason = Reason.UNKNOWN_METHOD

        return Miss(call, reason, printable(detail), nearest, (difference,))

    def _answers_with_id(self, message: Message) -> list[ReplayEntry]:
        """Return the recorded answers to questions with the id of an answer, in its session."""
        session = session_of(self.call.request)
        answers_with_id = []
        for entry in self.entries:
            is_in_session = session_of(entry.normalised.request) == session
            if is_in_session and is_answer_to(entry, message):
                answers_with_id.append(entry)

        return answers_with_id

    def _exchange_asking_under_id(self, message: Message) -> ReplayEntry | None:
        """Return the exchange whose response asks under the id of an answer, or None."""
        session = session_of(self.call.request)
        for entry in self.entries:
            response = entry.exchange.response
            if response is None or entry.session != session:
                continue

            for located in messages_in(response):
                pushed = located.message
                has_same_id = pushed.comparable_id == message.comparable_id
                if pushed.kind is Kind.REQUEST and has_same_id:
                    return entry

        return None

    def _miss_of_known_name(self) -> Miss:
        """Explain why a request of a recorded method and name matches none of these."""
        if self.call.answers is None:
            miss = self._miss_of_first_request()
        else:
            miss = self._miss_of_retry()

        is_other_call = miss.reason is Reason.ARGUMENTS_DIFFER
        if self.hook_name and is_other_call and not self.calls_matched_by_hook:
            detail = f"{miss.detail}, and {self.hook_name} matched none"
            return replace(miss, detail=detail)

        return miss

    def _miss_of_first_request(self) -> Miss:
        """Explain why no first request of a call matches."""
        if self._same_call_entries:
            # Recorded as a retry only, such as one whose state no recorded ask issued.
            nearest = self._same_call_entries[0]
            reason = Reason.STATE_MISSING
            if nearest.normalised.lookup.state is None:
                reason = Reason.ANSWERS_MISSING

            detail = "this call was recorded only as a retry"
            return Miss(self.call, reason, detail, nearest)

        first_requests = [
            entry
            for entry in self._same_name_entries
            if _matched_call_of(entry).answers is None
        ]
        return self._miss_of_other_arguments(first_requests or self._same_name_entries)

    def _miss_of_retry(self) -> Miss:
        """Explain why no retry of a call matches."""
        if self._lookup.state is not None:
            return self._miss_of_retry_with_state(self._lookup.state)
        if not self._same_call_entries:
            return self._miss_of_other_arguments(self._same_name_entries)

        asking_entries = self._asks_preferring_all_keys()
        asks_without_state = [
            entry for entry in asking_entries if entry.issued_sha256 is None
        ]
        if asks_without_state:
            return self._miss_of_other_answers(asks_without_state)

        if asking_entries:
            detail = "the ask has a request state, and the retry doesn't echo it"
            return Miss(self.call, Reason.STATE_MISSING, detail, asking_entries[0])

        detail = "the server asked for no input when this call was recorded"
        answers = canonical(_answers_in(self.call))
        unasked_answers = Difference(f"/{INPUT_RESPONSES}", None, answers)
        nearest = self._same_call_entries[0]
        reason = Reason.ANSWERS_DIFFER

        return Miss(self.call, reason, detail, nearest, (unasked_answers,))

    def _asks_preferring_all_keys(self) -> list[ReplayEntry]:
        """Return the asks of the same call, preferring those for all that a retry answers."""
        answered_keys = _answers_in(self.call).keys()
        asks = []
        asks_for_all_keys = []
        for entry in self._same_call_entries:
            if not entry.is_ask:
                continue

            asks.append(entry)
            if answered_keys <= entry.asked_inputs.keys():
                asks_for_all_keys.append(entry)

        return asks_for_all_keys or asks

    def _miss_of_retry_with_state(self, state: str) -> Miss:
        """Explain why no retry with the same state matches, or that none has it."""
        issuers = [entry for entry in self.entries if entry.has_issued_state(state)]
        same_call_issuers = [
            entry for entry in issuers if entry in self._same_call_entries
        ]
        orphans = [
            entry for entry in self._same_call_entries if _is_orphan(entry, state)
        ]
        if same_call_issuers or orphans:
            return self._miss_of_other_answers(same_call_issuers, orphans)

        issuers_of_same_name = [
            entry for entry in issuers if entry in self._same_name_entries
        ]
        if issuers_of_same_name:
            return self._miss_of_other_arguments(issuers_of_same_name)

        if issuers:
            detail = "this request state belongs to another call"
            return Miss(self.call, Reason.STATE_UNKNOWN, detail, issuers[0])

        if not self._same_call_entries:
            return self._miss_of_other_arguments(self._same_name_entries)

        return self._miss_of_unissued_state()

    def _miss_of_unissued_state(self) -> Miss:
        """Explain that no recorded exchange issued the state of a retry."""
        for entry in self._same_call_entries:
            if entry.issued_sha256 is not None:
                detail = "no recorded ask of this call has this request state"
                return Miss(self.call, Reason.STATE_UNKNOWN, detail, entry)

        detail = "no recorded ask of this call has a request state"
        nearest = self._same_call_entries[0]
        return Miss(self.call, Reason.STATE_UNEXPECTED, detail, nearest)

    def _miss_of_other_arguments(self, candidates: Sequence[ReplayEntry]) -> Miss:
        """Explain in what the arguments differ from the nearest recorded ones."""
        recorded_key = candidates[0].key
        ignored = self.ignored
        detail = f"{recorded_key} was recorded with other arguments"
        miss = _nearest_miss(
            self.call, candidates, Reason.ARGUMENTS_DIFFER, detail, ignored
        )
        if miss.differences:
            return miss

        recorded_kind = (miss.nearest or candidates[0]).kind
        message = self.call.message
        if recorded_kind is None or message is None or recorded_kind is message.kind:
            return miss

        received_kind = message.kind
        detail = (
            f"{recorded_key} was recorded as a {recorded_kind.value}, but this is a "
            f"{received_kind.value}"
        )
        return replace(miss, detail=detail)

    def _miss_of_other_answers(
        self, asks: Sequence[ReplayEntry], orphans: Sequence[ReplayEntry] = ()
    ) -> Miss:
        """Explain in what the answers to some asks differ from the nearest recorded ones."""
        answering_entries = [*self._retries_of(asks), *orphans]
        if not answering_entries:
            detail = "the recording ends with this ask, so no answer to it was recorded"
            return Miss(self.call, Reason.ANSWERS_DIFFER, detail, asks[0])

        detail = "other answers were recorded"
        ignored = self.ignored
        miss = _nearest_miss(
            self.call, answering_entries, Reason.ANSWERS_DIFFER, detail, ignored
        )
        received_values = {difference.received for difference in miss.differences}
        if received_values == {None}:
            detail = "the retry lacks answers that were recorded"
            return replace(miss, reason=Reason.ANSWERS_MISSING, detail=detail)

        other_detail = self._detail_of_other_answers(
            miss.nearest or answering_entries[0]
        )
        return replace(miss, detail=other_detail or detail)

    def _retries_of(self, asks: Sequence[ReplayEntry]) -> list[ReplayEntry]:
        """Return the retries that answer some asks, or equal ones where nothing is remembered."""
        stand_ins = self.stand_in_by_entry
        equal_asks = {stand_ins.get(ask, ask) for ask in asks}
        retries = []
        for entry in self.entries:
            answered_ask = entry.answered_ask
            if answered_ask is None:
                continue
            if stand_ins.get(answered_ask, answered_ask) in equal_asks:
                retries.append(entry)

        return retries

    def _detail_of_other_answers(self, nearest: ReplayEntry) -> str:
        """Say in what answers differ from recorded ones, if not by their values."""
        answers = self._lookup.answers
        for entry in self._same_call_entries:
            if answers is not None and entry.normalised.lookup.answers == answers:
                place_in_file = entry.place.in_file
                return f"{place_in_file} has this answer, to another ask of this call"

        received_answers = self.call.answers
        recorded_answers = _matched_call_of(nearest).answers
        if received_answers is None or recorded_answers is None:
            return ""

        received_shape = received_answers.shape
        recorded_shape = recorded_answers.shape
        if received_shape == recorded_shape:
            return ""

        return f"the answers have the shape `{received_shape}`, recorded was `{recorded_shape}`"


def _is_orphan(entry: ReplayEntry, state: str) -> bool:
    """Tell whether a retry has a state that no recorded ask issued."""
    echoed_states = (entry.normalised.lookup.state, entry.exchange.echoed_sha256)
    return entry.answered_ask is None and state in echoed_states


# Recordings that a play has left


class Divergence(NamedTuple):
    """The first request of a play that a recording doesn't have where the play is.

    Attributes:
        recording: the place of the recording among those that are played.
        reply_count: how many requests had got a recorded reply.
        entry: what the request got from another recording, if it is no miss.
    """

    recording: int
    reply_count: int
    entry: ReplayEntry | None = None
    explained_miss: Miss | None = None


class Divergences:
    """Follows all recordings that are played together, each until a play leaves it.

    Attributes:
        recording_count: how many; 1 where calls are not held to them.
    """

    def __init__(self, recording_count: int) -> None:
        self.recording_count = recording_count
        self.first_divergences: list[Divergence] = []
        """The first one from each recording that the play has left, in that order."""
        self.followed_recordings = set(range(recording_count))
        """The recordings that alone would have answered all requests."""

    def note_play(
        self,
        entry: ReplayEntry,
        recordings_with_entry: Collection[int],
        reply_count: int,
    ) -> None:
        """Take note that a request was played that only these recordings have there."""
        for recording in sorted(
            self.followed_recordings.difference(recordings_with_entry)
        ):
            self.followed_recordings.discard(recording)
            self.first_divergences.append(
                Divergence(recording, reply_count, entry=entry)
            )

    def note_miss(self, miss: Miss, reply_count: int) -> None:
        """Take note that no recording has a request there."""
        for recording in sorted(self.followed_recordings):
            self.first_divergences.append(
                Divergence(recording, reply_count, explained_miss=miss)
            )

        self.followed_recordings.clear()

    @property
    def longest_followed(self) -> Divergence | None:
        """The divergence from the recording that was followed longest; None where one still is."""
        if self.followed_recordings:
            return None

        return max(self.first_divergences, key=attrgetter("reply_count"), default=None)


# What a replay counts


class Tally:
    """What one replay has counted so far.

    Attributes:
        reply_count: how many requests got a recorded reply.
        misses: why requests got none.
        harmless: what requests got that any server answers alike.
        unknown_tools: how often each tool was called that the recorded server doesn't have.
        stopped_request_count: how many requests got the miss after which the replay stopped.
        match_counts_by_kind: how many values of clients matched others, by what their kind is:
            those of a matcher, or of what was taken out to share the cassette; and how many
            requests did as a user's function says, by its name.
        learned: the texts of values that requests have taught, by name.
        divergences: where the play left each recording.
    """

    def __init__(self, recording_count: int) -> None:
        """Begin to count; so many recordings are followed."""
        self.reply_count = 0
        self.misses: list[Miss] = []
        self.harmless: list[HarmlessReply] = []
        self.unknown_tools: Counter[str] = Counter()
        self.stopped_request_count = 0
        self.match_counts_by_kind: Counter[str] = Counter()
        self.learned: dict[str, str] = {}
        self.divergences = Divergences(recording_count)

    @property
    def request_counts(self) -> tuple[int, ...]:
        """How many requests got each kind of response; one of these grows with every response."""
        return (
            self.reply_count,
            len(self.misses),
            len(self.harmless),
            self.unknown_tools.total(),
            self.stopped_request_count,
        )

    def count_miss(self, miss: Miss) -> Miss:
        """Count a miss, and return it."""
        self.misses.append(miss)
        self.divergences.note_miss(miss, self.reply_count)
        return miss
