"""Bring clients' requests and recorded exchanges into the form in which the two are compared."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.cassette.entries import NormalisedRequest, ReplayEntry
from mrtr_cassette.core.cassette.lookup import (
    CallerValues,
    LookupKey,
    caller_values_in,
    digest_and_values_of_body,
    digest_without_caller_values,
    lookup_key,
)
from mrtr_cassette.core.cassette.matchers import Matchers
from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.cassette.sessions import resumed_events, with_event_as_recorded
from mrtr_cassette.core.cassette.texts import request_with_changed_texts
from mrtr_cassette.core.protocol.calls import (
    Call,
    CallKey,
    Traits,
    read_call,
    resumed_event_id,
    traits_of_headers,
)
from mrtr_cassette.core.protocol.hooks import MatchHook
from mrtr_cassette.core.replay.placed_secrets import (
    NOT_ISSUED_MARK,
    PlacedSecrets,
    SentSecrets,
)
from mrtr_cassette.core.secrets.credentials import RepeatedSecrets
from mrtr_cassette.core.secrets.names import (
    ANSWER,
    HASH,
    ISSUED,
    LIVE,
    Ref,
    has_secrets,
    is_name_of_kind,
    placeholder,
    ref_of,
    refs_in,
    renumber_secrets,
    sealed_hash,
    secrets_in,
    without_numbers,
    without_rules,
)
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.secrets.sealed import (
    is_searched_everywhere,
    looks_sealed,
    may_have_states_or_task_ids,
    reads_as_words,
    seal_answers,
    seal_states,
    with_named_task_id,
)
from mrtr_cassette.core.secrets.values import Values
from mrtr_cassette.core.wire.http import SESSION_HEADER, Headers, Request, Response
from mrtr_cassette.core.wire.jsonbytes import MemberPath
from mrtr_cassette.core.wire.pointers import (
    pointer_to,
    texts_in,
    value_at,
    without_side,
)

Matching = Matchers | MatchHook
"""By what requests match that are not equal: kinds of values, or a user's function."""

_META_PATH: Final = ("params", "_meta")


def unknown_values_in(response: Response, values: Values) -> list[str]:
    """Return the values in a response whose texts nobody knows."""
    if not values.unknown:
        return []

    texts = [response.body]
    for _, value in response.headers:
        texts.append(value.encode())

    names_in_response = values.names_in(b"\n".join(texts))
    return sorted(names_in_response.intersection(values.unknown))


def redactor_of(cassette: Cassette) -> Redactor | None:
    """Return what redacts by a cassette's rules, all secrets of a rule alike, or None."""
    if cassette.redaction is None:
        return None
    return Redactor(cassette.redaction, lambda _rule, _secret: "0")


class PreparedRequest(NamedTuple):
    """How a request is matched.

    Attributes:
        caller_values: its caller's.
        learned_values: the values with what it teaches, if it is a recorded one only so.
        possible_values: the same where it may teach several texts, and none is taken.
    """

    normalised: NormalisedRequest
    caller_values: CallerValues
    learned_values: Values | None = None
    possible_values: Sequence[Values] = ()


class _WithoutSecrets(NamedTuple):
    """A client's request, the values that were known then, and the request without secrets."""

    request: Request
    values: Values
    without_secrets: Request

    def is_of(self, request: Request, values: Values) -> bool:
        """Tell whether this is of the same request and the same values."""
        return self.request is request and self.values is values


class RequestSealer:
    """Seals the states, ids and answers of requests as they are in a cassette."""

    def __init__(self, cassette: Cassette) -> None:
        self._cassette = cassette
        self._resumed_events = resumed_events(list(cassette.exchanges))
        self._seals_states = cassette.request_state == "sealed"

    @cached_property
    def issued_names(self) -> frozenset[str]:
        """The hashes, placeholders and sealed answers that a client can have from a response.

        Any other that a client sends is a text like any other.
        """
        refs = refs_in(self._cassette.upstream)
        for exchange in self._cassette.exchanges:
            response = exchange.response
            if response is None:
                continue

            for _, value in response.headers:
                refs += refs_in(value)

            refs += refs_in(response.body.decode("latin-1"))

        names = set()
        for ref in refs:
            if ref.is_secret or ref.kind in (HASH, ANSWER):
                names.add(ref.name)

        return frozenset(names)

    def sealed_recorded_request(self, recorded_request: Request) -> Request:
        """Return a recorded request with states, ids and answers sealed: all are issued."""
        return self._with_sealed_states(recorded_request, lambda _token: True)

    def sealed_request(self, request: Request) -> Request:
        """Return a client's request with states, ids and answers sealed."""
        request = with_event_as_recorded(request, self._resumed_events)
        return self._with_sealed_states(
            request, lambda token: token in self.issued_names
        )

    def _with_sealed_states(
        self, request: Request, is_issued: Callable[[str], bool]
    ) -> Request:
        """Return a request with states, ids and answers sealed as they are in the cassette.

        `is_issued` tells whether a hash is the cassette's and stays as it is.
        """

        def new_state(state: str) -> str:
            if self._is_state_kept(state, is_issued):
                return state
            return sealed_hash(state)

        def new_id(name: str) -> str:
            return new_state(name) if is_searched_everywhere(name) else name

        def is_sealed_answer(text: str) -> bool:
            return looks_sealed(text) and is_issued(text)

        if self._seals_states:
            request = with_named_task_id(request, new_id)

        body = request.body
        may_have_hash = b"sha256" in body or b"\\u" in body
        if self._seals_states or may_have_hash:
            body = seal_states(body, new_state)

        if self._cassette.seals_answers:
            body = seal_answers(body, is_sealed_answer)

        if body == request.body:
            return request

        return replace(request, body=body)

    def _is_state_kept(self, state: str, is_issued: Callable[[str], bool]) -> bool:
        """Tell whether a request state, or the id of a task, stays as it is."""
        ref = ref_of(state, *ISSUED, HASH)
        if ref is None:
            return not self._seals_states
        if ref.kind != HASH:
            return True

        return self._seals_states and is_issued(ref.name)

    def with_marked_placeholders(self, raw: bytes, _name: str) -> bytes:
        """Mark the placeholders that the cassette has not issued."""

        def mark_of_unissued_token(rule: str, token: str) -> str | None:
            """Return another token for one that was not issued."""
            if placeholder(rule, token) in self.issued_names:
                return None
            return NOT_ISSUED_MARK

        return renumber_secrets(raw, mark_of_unissued_token)


class RequestKeys:
    """The keys of requests without secrets, by which they are looked up among a cassette's.

    Attributes:
        unused_ignored_members: the ignored members that no request or response has had so far.
        has_placeholders: the cassette's requests have placeholders of secrets.
    """

    def __init__(
        self,
        cassette: Cassette,
        ignored: Collection[MemberPath],
        matchers: Matching | None,
    ) -> None:
        """Take a cassette, and what a user lets differ."""
        self.matchers = matchers if isinstance(matchers, Matchers) else None
        self.hook = matchers if isinstance(matchers, MatchHook) else None
        self.ignored_members = ignored
        self.unused_ignored_members = list(ignored)
        requests = [exchange.request for exchange in cassette.exchanges]
        self.has_placeholders = cassette.redaction is not None and any(
            map(_has_placeholders, requests)
        )
        self._user_header_names = cassette.kept_headers

    def for_another_play(self) -> RequestKeys:
        """Return the same, of which nothing was used."""
        keys = copy(self)
        keys.unused_ignored_members = list(self.ignored_members)
        if self.matchers is not None:
            keys.matchers = self.matchers.for_another_play()

        return keys

    def call_and_normalised_request(
        self, with_secrets: Request, *, is_matched_by_body_bytes: bool = False
    ) -> tuple[Call, NormalisedRequest]:
        """Make all secrets of a rule the same one, and tell which they are.

        `is_matched_by_body_bytes` tells whether the bytes of the body match by themselves.
        """
        request = with_secrets
        stricter_lookups: tuple[LookupKey, ...] = ()
        if self.matchers is not None or self.hook is not None:
            stricter_lookups = (self._lookup_with_all_values(request),)

        if self.matchers is not None:
            request = self.matchers.comparable_request(request)
            stricter_lookups = (
                *stricter_lookups,
                self._lookup_with_all_values(request),
            )

        secrets: tuple[Ref, ...] = ()
        if self.has_placeholders and _has_placeholders(request):
            called_key, _, answers = lookup_key(
                read_call(request), self.ignored_members
            )
            looked_up_text = "\n".join([*called_key, answers or ""])
            secrets = tuple(
                [ref.in_cassette_spelling for ref in secrets_in(looked_up_text)]
            )
            request = _with_one_secret_per_rule(request)

        call = read_call(request)
        key, lookup = self._call_and_lookup_key(call, self.ignored_members)
        traits = call.traits(self._user_header_names)
        digest = None
        if (
            is_matched_by_body_bytes
            and request is with_secrets
            and call.message is not None
        ):
            digest = digest_without_caller_values(call.message)

        normalised = NormalisedRequest(
            request,
            key,
            lookup,
            traits,
            call.caller,
            secrets,
            digest=digest,
            stricter_lookups=stricter_lookups,
        )

        return call, normalised

    def _lookup_with_all_values(self, request: Request) -> LookupKey:
        """Return the key of a request with all its values."""
        call = read_call(_with_one_secret_per_rule(request))
        _, lookup = self._call_and_lookup_key(call, ())
        return lookup

    def _call_and_lookup_key(
        self, call: Call, ignored: Collection[MemberPath]
    ) -> tuple[CallKey, LookupKey]:
        """Return the key of a call, and the key by which its request is looked up.

        A client that was given a placeholder may send it where another rule found the secret while
        recording, so placeholders in what is looked up don't tell their rules.
        """
        lookup = lookup_key(call, ignored)
        if not self.has_placeholders:
            return lookup.call, lookup

        answers = lookup.answers
        if answers is not None:
            answers = without_rules(answers)

        call_without_rules = CallKey(*map(without_rules, lookup.call))
        return lookup.call, LookupKey(call_without_rules, lookup.state, answers)

    def distinguishing_key(self, request: Request) -> tuple[LookupKey, Headers]:
        """Return what tells a request apart from others, whatever its secrets."""
        alike_secrets_request = _with_one_secret_per_rule(request)
        user_headers = []
        for name, value in alike_secrets_request.headers:
            if name.lower() in self._user_header_names:
                user_headers.append((name.lower(), value))

        _, lookup = self._call_and_lookup_key(
            read_call(alike_secrets_request), self.ignored_members
        )
        return lookup, tuple(sorted(user_headers))

    def differing_values(
        self, recorded_request: Request, received_request: Request
    ) -> list[tuple[Any, Any]]:
        """Return the recorded values in whose places a request has others of their kind."""
        if self.matchers is None:
            return []
        return self.matchers.differing_values(recorded_request, received_request)

    def note_ignored_members_in(self, request: Request) -> None:
        """Take note of which ignored members a request has."""
        if not self.unused_ignored_members:
            return

        call = read_call(request)
        key_with_all_members = lookup_key(call)
        still_unused = []
        for path in self.unused_ignored_members:
            if lookup_key(call, (path,)) == key_with_all_members:
                still_unused.append(path)

        self.unused_ignored_members = still_unused

    def note_ignored_in_response(self, has_left_out: Callable[[str], bool]) -> None:
        """Take note that ignored pointers have left something out of a response."""
        still_unused = []
        for path in self.unused_ignored_members:
            pointer = without_side(pointer_to(path), "result")
            if not has_left_out(pointer):
                still_unused.append(path)

        self.unused_ignored_members = still_unused


class RequestNormaliser:
    """Turns requests into the form in which they are compared with one cassette's.

    Attributes:
        keys: those by which requests without secrets are looked up.
        sealer: seals the states of requests as they are in the cassette.
        sent_secrets: the secrets that clients have sent.
    """

    def __init__(
        self,
        cassette: Cassette,
        ignored: Collection[MemberPath],
        *,
        remembers: bool = True,
        matchers: Matching | None = None,
    ) -> None:
        """Read a cassette; with `remembers`, secrets of earlier requests are recognised."""
        self.values = Values(cassette.values)
        self.keys = RequestKeys(cassette, ignored, matchers)
        self.sealer = RequestSealer(cassette)
        self._cassette = cassette
        self._remembers = remembers
        self._recorded_sessions = {
            exchange.request.header(SESSION_HEADER) for exchange in cassette.exchanges
        }
        self._recorded_keys: set[tuple[LookupKey, Headers]] = set()
        """What tells the recorded requests apart, as they are matched."""
        self._placed_secrets = PlacedSecrets(
            cassette, self.sealer.sealed_recorded_request
        )
        self.start_afresh()

    def start_afresh(self) -> None:
        """Forget what clients have sent."""
        self.keys = self.keys.for_another_play()
        # A cassette that was written by hand has no rules, but what is shown of it has.
        rules = self._cassette.redaction or RedactionRules()
        self.sent_secrets = SentSecrets(rules, remembers=self._remembers)
        self._latest_without_secrets: _WithoutSecrets | None = None
        """The request that was read last, and itself without secrets: a miss shows it again."""

    def normalised_recorded_request(
        self, request: Request
    ) -> tuple[Call, NormalisedRequest]:
        """Return a recorded request as it is matched, read."""
        request = self.sealer.sealed_recorded_request(request)
        if self.keys.has_placeholders:
            request = self.sent_secrets.redacted_request(request)

        request = self.values.request_without_spellings(request)
        if self.keys.has_placeholders:
            self._recorded_keys.add(self.keys.distinguishing_key(request))

        is_matched_by_body_bytes = self._is_matched_by_body_bytes(request)
        return self.keys.call_and_normalised_request(
            request, is_matched_by_body_bytes=is_matched_by_body_bytes
        )

    def _is_matched_by_body_bytes(self, recorded_request: Request) -> bool:
        """Tell whether the bytes of a recorded request, as it is matched, match by themselves."""
        if self.keys.has_placeholders or self._cassette.seals_answers:
            return False
        if self._cassette.kept_headers or self.values.names:
            return False
        # The hash of a state counts only where it was issued.
        body = recorded_request.body
        return b"sha256" not in body or not may_have_states_or_task_ids(body)

    def prepared_request(self, request: Request) -> PreparedRequest:
        """Return how a client's request is matched, and its caller's values."""
        call, normalised = self.keys.call_and_normalised_request(
            self._without_any_secrets(request)
        )
        if normalised.request is not request:
            call = read_call(request)

        return PreparedRequest(normalised, caller_values_in(call))

    def _without_any_secrets(self, request: Request) -> Request:
        """Return a client's request without secrets, which is remembered of the latest one."""
        latest = self._latest_without_secrets
        if latest is not None and latest.is_of(request, self.values):
            return latest.without_secrets

        without_secrets = self._with_secrets_replaced(request)
        self._latest_without_secrets = _WithoutSecrets(
            request, self.values, without_secrets
        )
        return without_secrets

    def _with_secrets_replaced(self, request: Request) -> Request:
        """Return a client's request with placeholders for secrets.

        Where that is not what was recorded, secrets are looked for that are not found by
        themselves: those that were sent before, and what stands in the places of placeholders.
        """
        self.sent_secrets.begin_request()
        without_secrets = self.values.sealed_request(self._with_placeholders(request))
        without_secrets = self.values.request_without_spellings(without_secrets)
        if not self.keys.has_placeholders or self._is_recorded(without_secrets):
            return without_secrets

        without_secrets = self.sent_secrets.without_repeated_secrets(without_secrets)
        text_by_secret = self._placed_secrets.secrets_in(
            without_secrets, self.sent_secrets.learned
        )
        without_secrets = self.sent_secrets.without_texts_of_secrets(
            without_secrets, text_by_secret
        )
        if self._remembers and self._is_recorded(without_secrets):
            self.sent_secrets.learn(request.header(SESSION_HEADER), text_by_secret)

        return without_secrets

    def _is_recorded(self, without_secrets: Request) -> bool:
        """Tell whether a request without secrets is a recorded one."""
        return self.keys.distinguishing_key(without_secrets) in self._recorded_keys

    def _with_placeholders(self, request: Request) -> Request:
        """Return a request with placeholders for the secrets that rules find."""
        if self.keys.has_placeholders:
            self.sent_secrets.add_headers(request.headers)

        request = self.sealer.sealed_request(request)
        if not self.keys.has_placeholders:
            return request
        if not _has_placeholders(request):
            return self.sent_secrets.redacted_request(request)

        # What was not issued looks like a placeholder until secrets have been found: it is none.
        marked_request = request_with_changed_texts(
            request, self.sealer.with_marked_placeholders
        )
        redacted_request = self.sent_secrets.redacted_request(marked_request)
        return request_with_changed_texts(
            redacted_request, _with_spoilt_unissued_tokens
        )

    def shown_request(self, request: Request) -> Request:
        """Return a client's request as it is matched, without secrets, to be shown."""
        without_secrets = self._without_any_secrets(request)
        # Redacting twice would take what was not issued for a secret.
        redacts = self._cassette.redaction is not None
        if redacts and not self.keys.has_placeholders:
            self.sent_secrets.add_headers(request.headers)
            without_secrets = self.sent_secrets.redacted_request(without_secrets)

        if redacts:
            without_secrets = _with_one_secret_per_rule(
                self.sent_secrets.without_all_secrets(without_secrets)
            )

        if request.header(SESSION_HEADER) not in self._recorded_sessions:
            without_secrets = _without_session(without_secrets)

        if self.keys.matchers is not None:
            without_secrets = self.keys.matchers.comparable_request(without_secrets)

        return without_secrets


def _without_session(request: Request) -> Request:
    """Replace the id of a session that is none of the cassette's: it may be a bearer token."""
    session_id = request.header(SESSION_HEADER)
    if not session_id or reads_as_words(session_id):
        return request
    if is_name_of_kind(session_id, *LIVE):
        return request

    has_known_session = RepeatedSecrets()
    has_known_session.add_known_text(session_id, sealed_hash(session_id))
    return has_known_session.sealed_request(request)


def _has_placeholders(request: Request) -> bool:
    """Tell whether a request has placeholders of secrets."""
    if has_secrets(request.body):
        return True
    return _head_has_placeholders(request.target, request.headers)


@lru_cache(maxsize=1024)
def _head_has_placeholders(target: str, headers: Headers) -> bool:
    """Tell whether a URL or headers have placeholders: most requests have the same ones."""
    values = [value for _, value in headers]
    return has_secrets("\n".join([target, *values]))


def _with_one_secret_per_rule(request: Request) -> Request:
    """Return a request in which all secrets of a rule are the same one."""
    return request_with_changed_texts(request, lambda raw, _name: without_numbers(raw))


def _with_spoilt_unissued_tokens(raw: bytes, _name: str) -> bytes:
    """Spoil the tokens that were marked, which are no placeholders then."""

    def spoilt_token(_rule: str, token: str) -> str | None:
        return f"~{token}" if token == NOT_ISSUED_MARK else None

    return renumber_secrets(raw, spoilt_token)


# Requests among recorded ones

_Likeness = tuple[bytes, str, str, Traits]
"""The digest of a body without the caller's values, and what else of a request counts."""


class RecordedRequests:
    """The recorded requests as they are matched, among which a client's is recognised."""

    def __init__(self, entries_by_arrival: Sequence[ReplayEntry]) -> None:
        self._entries_by_arrival = entries_by_arrival

    @cached_property
    def by_likeness(self) -> dict[_Likeness, ReplayEntry]:
        """The first recorded exchange of requests that differ in caller's values only."""
        entries_by_likeness: dict[_Likeness, ReplayEntry] = {}
        for entry in self._entries_by_arrival:
            digest = entry.normalised.digest
            if digest is not None:
                entries_by_likeness.setdefault(
                    _likeness_of(entry.normalised.request, digest), entry
                )

        return entries_by_likeness

    @cached_property
    def endpoints_and_methods(self) -> set[tuple[str, str]]:
        """The endpoint and the method of each recorded request that resumes no stream."""
        endpoints_and_methods = set()
        for entry in self._entries_by_arrival:
            if not resumed_event_id(entry.normalised.request):
                endpoints_and_methods.add((entry.key.endpoint, entry.key.method))

        return endpoints_and_methods

    @cached_property
    def _recorded_lookups(self) -> set[LookupKey]:
        """The keys of all recorded requests."""
        return {entry.normalised.lookup for entry in self._entries_by_arrival}

    def recognised_request(self, request: Request) -> PreparedRequest | None:
        """Return how a request is matched that differs from a recorded one in caller's values only.

        A shorter way to what `RequestNormaliser` returns, which takes most of the time of a play.
        """
        cut_body_and_values = digest_and_values_of_body(request.body)
        if cut_body_and_values is None:
            return None

        digest, values = cut_body_and_values
        entry = self.by_likeness.get(_likeness_of(request, digest))
        if entry is None:
            return None

        return PreparedRequest(entry.normalised, values)

    def with_learned_values(
        self, prepared: PreparedRequest, request: Request, normaliser: RequestNormaliser
    ) -> PreparedRequest:
        """Return a reading with the texts that make a request a recorded one, if any do."""
        known_values = normaliser.values
        is_recorded = prepared.normalised.lookup in self._recorded_lookups
        if is_recorded or not known_values.unknown:
            return prepared

        possible_values = []
        last_reading = prepared
        for values in _learnable_values(
            known_values, self._entries_by_arrival, request
        ):
            normaliser.values = values
            reading = normaliser.prepared_request(request)
            normaliser.values = known_values
            if reading.normalised.lookup in self._recorded_lookups:
                possible_values.append(values)
                last_reading = reading._replace(learned_values=values)

        if len(possible_values) == 1:
            return last_reading

        return prepared._replace(possible_values=possible_values)


def _likeness_of(request: Request, digest: bytes) -> _Likeness:
    """Return what requests share that differ in caller's values only."""
    return digest, request.method, request.target, traits_of_headers(request.headers)


def _learnable_values(
    values: Values, recorded_entries: Iterable[ReplayEntry], request: Request
) -> list[Values]:
    """Return each choice of texts with which a request may be one of the recorded ones."""
    received_call = read_call(values.sealed_request(request))
    values_by_texts: dict[tuple[tuple[str, str], ...], Values] = {}
    for entry in recorded_entries:
        texts = _value_texts_that_match_calls(
            values, entry.exchange.call, received_call
        )
        if texts:
            sorted_texts = tuple(sorted(texts.items()))
            values_by_texts.setdefault(sorted_texts, values.with_further_texts(texts))

    return list(values_by_texts.values())


def _value_texts_that_match_calls(
    values: Values, recorded_call: Call, received_call: Call
) -> dict[str, str] | None:
    """Return the texts with which a recorded call may be a received one; None without any."""
    if recorded_call.method != received_call.method:
        return None
    if recorded_call.message is None or received_call.message is None:
        return None

    texts_by_name: dict[str, str] = {}
    for path, text in texts_in(recorded_call.message.tree):
        is_unknown = not values.names_in(text.encode()).isdisjoint(values.unknown)
        if not is_unknown or path[:2] == _META_PATH:
            continue

        received_value = value_at(received_call.message.tree, path)
        texts = values.texts_learned_from(
            text, _text_of_string_or_integer(received_value)
        )
        if texts is None:
            return None

        for name, value in texts.items():
            if texts_by_name.setdefault(name, value) != value:
                return None

    return texts_by_name or None


def _text_of_string_or_integer(value: Any) -> str:
    """Return a text or an integer, such as a port, as a text; empty for other values."""
    return str(value) if isinstance(value, str | int) else ""
