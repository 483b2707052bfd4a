"""What a request gets that was not recorded: a miss with its reason, or what any server answers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.cassette.lookup import LookupKey, lookup_key
from mrtr_cassette.core.cassette.recorded import posted_answer
from mrtr_cassette.core.protocol.calls import Call, resumed_event, session_of
from mrtr_cassette.core.protocol.dialect import INPUT_RESPONSES
from mrtr_cassette.core.protocol.jsonrpc import ID_PATH, Kind, Message
from mrtr_cassette.core.protocol.methods import DISCOVER, INITIALIZE, PING, TASK_ID, method_of
from mrtr_cassette.core.replay.matching import ReplayEntry
from mrtr_cassette.core.wire.codings import why_unread
from mrtr_cassette.core.wire.http import EVENT_STREAM, JSON_HEADERS, SESSION_HEADER, Headers
from mrtr_cassette.core.wire.jsonbytes import MemberPath, canonical
from mrtr_cassette.core.wire.pointers import Difference, differences, without_paths
from mrtr_cassette.errors import printable

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
    UNREADABLE = "unreadable"
    UNRECORDED = "unrecorded"


@dataclass(frozen=True, slots=True)
class Miss:
    """A request without a recorded reply, and in what it differs from the nearest recorded one.

    It is refused if it answers what the server asked during a call, which gets the miss too.
    `may_read` is the tool or method that would have to be known to change nothing, for the request
    to get a recorded reply; or empty.
    """

    call: Call
    reason: Reason
    detail: str
    nearest: ReplayEntry | None = None
    differences: tuple[Difference, ...] = ()
    is_refused: bool = False
    may_read: str = ""


def not_now(call: Call, nearest: Sequence[ReplayEntry], reason: Reason) -> Miss:
    """Explain why none of the exchanges with the key of a request can be played now."""
    if reason is Reason.OUT_OF_ORDER:
        detail = "this retry answers an ask that has not been played yet"
        return Miss(call, reason, detail, nearest[0])
    if reason is Reason.CONDITION_MISSING:
        detail = "only what the server says to a client that has a copy was recorded"
    elif reason is Reason.ALREADY_PLAYED:
        times = "once" if len(nearest) == 1 else f"{len(nearest)} times"
        detail = f"this was recorded {times}, and has been played {times} already"
    else:
        reason = Reason.ARGUMENTS_DIFFER if call.answers is None else Reason.ANSWERS_DIFFER
        detail = "this was recorded with another secret, and which one it is counts here"
    return Miss(call, reason, detail, nearest[-1])


def led_elsewhere(call: Call, entry: ReplayEntry, origin: str) -> Miss:
    """Explain that a recorded response sends its client to a server that was not recorded."""
    detail = f"the recorded response sends its client to {origin}, which is not in the cassette"
    return Miss(call, Reason.ELSEWHERE, printable(detail), entry)


def other_id(call: Call, nearest: ReplayEntry) -> Miss:
    """Explain why a recorded response can only be played to a caller with the recorded id."""
    response = nearest.exchange.response
    reason = "" if response is None else why_unread(response)
    reason = reason or "it is no JSON-RPC that can be read here"
    detail = f"the recorded response can't be given this request's id, as {reason}"
    return Miss(call, Reason.UNREADABLE, printable(detail), nearest)


def after_placeholders(miss: Miss, placeholders: Sequence[str]) -> Miss:
    """Add to a miss that its client was given placeholders, which it may have sent back."""
    if not placeholders:
        return miss
    shown = ", ".join(placeholders[:_MOST_PLACEHOLDERS])
    more = len(placeholders) - _MOST_PLACEHOLDERS
    if more > 0:
        shown += f" and {more} more"
    note = (
        f"what was played before has {shown} in the place of a secret, which the client may have "
        "sent back, or gone on from"
    )
    return replace(miss, detail=printable(f"{miss.detail}; {note}"))


class NoStep(NamedTuple):
    """Why a request about a task gets nothing now, and the recorded answers that it should have."""

    reason: Reason
    detail: str
    nearest: ReplayEntry
    recorded: Mapping[str, Any] = MappingProxyType({})


def no_step(call: Call, found: NoStep, ignored: Collection[MemberPath]) -> Miss:
    """Explain why a request about a task gets none of its recorded steps."""

    def shown(given: Mapping[str, Any]) -> Any:
        answers = {key: given[key] for key in found.recorded if given.get(key) is not None}
        return without_paths({INPUT_RESPONSES: answers}, ignored)

    received = shown((call.answers and call.answers.input_responses) or {})
    differing = differences(shown(found.recorded), received, without_null=True)
    return Miss(call, found.reason, printable(found.detail), found.nearest, tuple(differing))


def no_match(call: Call, entries: Sequence[ReplayEntry], ignored: Collection[MemberPath]) -> Miss:
    """Explain why nothing recorded matches a request."""
    miss = _other_answer(call, entries, ignored)
    if miss is not None:
        return miss
    event = resumed_event(call.request)
    if event:
        detail = printable(f'no recorded stream goes on after the event "{event}"')
        return Miss(call, Reason.STATE_UNKNOWN, detail)
    key = lookup_key(call, ignored).call
    here = [each for each in entries if each.key.endpoint == key.endpoint]
    same_method = [each for each in here if each.key.method == key.method]
    if not same_method:
        detail = f"{key} was not recorded"
        if here and not key.method:
            detail = f"only JSON-RPC requests were recorded at {key}"
        elsewhere = {each.key.endpoint for each in entries if each.key.method == key.method}
        if key.method and elsewhere:
            detail = f"{key.method} was recorded at {', '.join(sorted(elsewhere))}"
            detail = printable(f"{detail}, not at {key.endpoint}")
        return Miss(call, Reason.UNKNOWN_METHOD, detail)
    same_name = [each for each in same_method if each.key.name == key.name]
    if not same_name:
        names = ", ".join(sorted({f'"{each.key.name}"' for each in same_method}))
        detail = printable(f"{key.method} was recorded only for {names}")
        if method_of(key.method).named_by == TASK_ID:
            detail = "no call that was recorded created this task"
        return Miss(call, Reason.UNKNOWN_NAME, detail)
    if call.contradiction:
        detail = f"the header {call.contradiction} contradicts the body, which a server refuses"
        return Miss(call, Reason.HEADERS_CONTRADICT, printable(detail), same_name[0])
    search = _Search(call, lookup_key(call, ignored), entries, same_name, ignored)
    return search.first_request() if call.answers is None else search.retry()


def _other_answer(
    call: Call, entries: Sequence[ReplayEntry], ignored: Collection[MemberPath]
) -> Miss | None:
    """Explain that a pushed request was answered in another way; None for any other request.

    A server may use an id again, so answers that have not been played come before the others.
    """
    message = call.message
    if message is None or message.kind is not Kind.RESPONSE:
        return None
    session = session_of(call.request)
    posted = [
        each
        for each in entries
        if each.answers is not None
        and session_of(each.request) == session
        and each.answers.request.message.same_id == message.same_id
    ]
    if not posted:
        return None
    candidates = [each for each in posted if not each.played] or posted
    here = [each for each in candidates if each.key.endpoint == call.endpoint]
    if not here:
        nearest = candidates[0]
        detail = printable(f"this was answered at {nearest.key.endpoint}, not at {call.endpoint}")
        paths = (canonical(each.request.target) for each in (nearest, call))
        return Miss(call, Reason.UNKNOWN_METHOD, detail, nearest, (Difference("/#path", *paths),))
    candidates = here
    detail = "the question was answered in another way"
    return _beside(call, candidates, Reason.ANSWERS_DIFFER, detail, ignored)


def _beside(
    call: Call,
    candidates: Sequence[ReplayEntry],
    reason: Reason,
    detail: str,
    ignored: Collection[MemberPath],
) -> Miss:
    """Return a miss with the nearest of some recorded requests, by arguments or by answers."""

    def shown(call: Call) -> Any:
        value: Any = call.arguments
        if not by_answers:
            value = value.decode("latin-1") if isinstance(value, bytes) else value
        elif call.message is not None and call.message.kind is Kind.RESPONSE:
            value = posted_answer(call.message)
        else:
            value = {INPUT_RESPONSES: dict((call.answers and call.answers.input_responses) or {})}
        return without_paths(value, ignored)

    by_answers = reason is not Reason.ARGUMENTS_DIFFER
    received = shown(call)
    found = [
        (each, tuple(differences(shown(each.call), received, without_null=by_answers)))
        for each in candidates
    ]
    nearest, differing = min(found, key=lambda pair: len(pair[1]))
    return Miss(call, reason, detail, nearest, differing)


@dataclass(frozen=True)
class _Search:
    """The search for the nearest recorded exchange, once the name is known to be recorded."""

    call: Call
    lookup: LookupKey
    entries: Sequence[ReplayEntry]
    same_name: Sequence[ReplayEntry]
    ignored: Collection[MemberPath]

    @cached_property
    def _same_call(self) -> list[ReplayEntry]:
        return [each for each in self.same_name if each.key == self.lookup.call]

    def first_request(self) -> Miss:
        if self._same_call:
            # Recorded as a retry only, such as one whose state no recorded ask issued.
            nearest = self._same_call[0]
            has_state = nearest.lookup.state is not None
            reason = Reason.STATE_MISSING if has_state else Reason.ANSWERS_MISSING
            return Miss(self.call, reason, "this call was recorded only as a retry", nearest)
        firsts = [each for each in self.same_name if each.call.answers is None]
        return self._arguments_differ(firsts or self.same_name)

    def retry(self) -> Miss:
        if self.lookup.state is not None:
            return self._retry_with_state(self.lookup.state)
        if not self._same_call:
            return self._arguments_differ(self.same_name)
        answers = dict((self.call.answers and self.call.answers.input_responses) or {})
        asks = [each for each in self._same_call if each.ask is not None]
        asking = [each for each in asks if answers.keys() <= each.asked.keys()] or asks
        stateless = [each for each in asking if each.issued_sha256 is None]
        if stateless:
            return self._answers_differ(stateless)
        if asking:
            detail = "the ask has a request state, and the retry doesn't echo it"
            return Miss(self.call, Reason.STATE_MISSING, detail, asking[0])
        detail = "the server asked for no input when this call was recorded"
        found = (Difference(f"/{INPUT_RESPONSES}", None, canonical(answers)),)
        return Miss(self.call, Reason.ANSWERS_DIFFER, detail, self._same_call[0], found)

    def _retry_with_state(self, state: str) -> Miss:
        issuers = [each for each in self.entries if each.issued(state)]
        orphans = [
            each
            for each in self._same_call
            if each.parent is None and state in (each.lookup.state, each.exchange.echoed_sha256)
        ]
        own = [each for each in issuers if each in self._same_call]
        if own or orphans:
            return self._answers_differ(own, orphans)
        of_same_name = [each for each in issuers if each in self.same_name]
        if of_same_name or not (issuers or self._same_call):
            return self._arguments_differ(of_same_name or self.same_name)
        stateful = [each for each in self._same_call if each.issued_sha256 is not None]
        reason, nearest = Reason.STATE_UNKNOWN, (issuers or stateful or self._same_call)[0]
        if issuers:
            detail = "this request state belongs to another call"
        elif stateful:
            detail = "no recorded ask of this call has this request state"
        else:
            reason = Reason.STATE_UNEXPECTED
            detail = "no recorded ask of this call has a request state"
        return Miss(self.call, reason, detail, nearest)

    def _arguments_differ(self, candidates: Sequence[ReplayEntry]) -> Miss:
        detail = f"{candidates[0].key} was recorded with other arguments"
        miss = _beside(self.call, candidates, Reason.ARGUMENTS_DIFFER, detail, self.ignored)
        message, kind = self.call.message, (miss.nearest or candidates[0]).kind
        if miss.differences or message is None or kind is None or kind is message.kind:
            return miss
        detail = f"{candidates[0].key} was recorded as a {kind.value}, "
        return replace(miss, detail=f"{detail}but this is a {message.kind.value}")

    def _answers_differ(
        self, asks: Sequence[ReplayEntry], orphans: Sequence[ReplayEntry] = ()
    ) -> Miss:
        # Without memory, equal asks stand for each other.
        alike = {each.same or each for each in asks}
        parents = [(each, each.parent) for each in self.entries if each.parent is not None]
        recorded = [each for each, parent in parents if (parent.same or parent) in alike]
        recorded += orphans
        if not recorded:
            detail = "the recording ends with this ask, so no answer to it was recorded"
            return Miss(self.call, Reason.ANSWERS_DIFFER, detail, asks[0])
        detail = "other answers were recorded"
        miss = _beside(self.call, recorded, Reason.ANSWERS_DIFFER, detail, self.ignored)
        if miss.differences and all(each.received is None for each in miss.differences):
            detail = "the retry lacks answers that were recorded"
            return replace(miss, reason=Reason.ANSWERS_MISSING, detail=detail)
        one, other = self.call.answers, (miss.nearest or recorded[0]).call.answers
        if one is not None and other is not None and one.shape != other.shape:
            detail = f"the answers have the shape `{one.shape}`, recorded was `{other.shape}`"
        for each in self._same_call:
            if self.lookup.answers is not None and each.lookup.answers == self.lookup.answers:
                detail = f"#{each.interaction} has this answer, to another ask of an equal call"
                detail += "; equal calls are played in the order of the recording"
                break
        return replace(miss, detail=detail)


# Harmless requests

_NO_METHOD: Final = b'"error":{"code":-32601,"message":"Method not found"}'
"""A refusal of `server/discover` that clients take for a server of the 2025 era."""


class Harmless(NamedTuple):
    """A request that was not recorded, and the HTTP answer of any server, also in a few words."""

    call: Call
    status: int
    headers: Headers
    body: bytes
    answer: str


def answer_of_any_server(
    call: Call, entries: Iterable[ReplayEntry], *, lacks_session: bool = False
) -> Harmless | None:
    """Return what every server answers to a request that was not recorded, or None.

    To one that lacks the session which the server wants, most of this is no answer.
    """
    endpoint, message = call.endpoint, call.message
    keys = {entry.key[:2] for entry in entries if not resumed_event(entry.request)}
    endpoints = {recorded_at for recorded_at, _ in keys}
    if message is None:
        path = endpoint.partition(" ")[2].partition("?")[0]
        if call.request.method == "GET" and "/.well-known/" in path:
            return Harmless(call, 404, (), b"", "404")
        return None if lacks_session else _answer_to_no_message(call, endpoints)
    if endpoint not in endpoints or (lacks_session and message.method != DISCOVER):
        return None
    return _answer_to_message(call, message, initializes=(endpoint, INITIALIZE) in keys)


def _answer_to_no_message(call: Call, endpoints: Collection[str]) -> Harmless | None:
    http_method, _, path = call.endpoint.partition(" ")
    if f"POST {path}" not in endpoints:
        return None
    if http_method == "DELETE" and call.request.header(SESSION_HEADER):
        return Harmless(call, 204, (), b"", "204")
    wants_stream = EVENT_STREAM in call.request.header("accept")
    is_new = call.endpoint not in endpoints and not resumed_event(call.request)
    if http_method == "GET" and wants_stream and is_new:
        return Harmless(call, 405, (("Allow", "POST, DELETE"),), b"", "405")
    return None


def _answer_to_message(call: Call, message: Message, *, initializes: bool) -> Harmless | None:
    if message.kind is Kind.NOTIFICATION and message.method.startswith("notifications/"):
        return Harmless(call, 202, (), b"", "202")
    if message.kind is Kind.REQUEST and message.method == PING:
        outcome, answer = b'"result":{}', "{}"
    elif message.kind is Kind.REQUEST and message.method == DISCOVER and initializes:
        outcome, answer = _NO_METHOD, "Method not found"
    else:
        return None
    body = b'{"jsonrpc":"2.0","id":%b,%b}' % (message.spelled(ID_PATH) or b"null", outcome)
    return Harmless(call, 200, JSON_HEADERS, body, answer)
