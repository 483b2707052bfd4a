"""Recorded exchanges and clients' requests in the form in which the two are compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.cassette.lookup import LookupKey, digest_of, lookup_key
from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    PushedRequest,
    RecordedExchange,
    RecordedInteraction,
    TaskTurn,
)
from mrtr_cassette.core.cassette.sessions import Streams, listens, opened_session
from mrtr_cassette.core.cassette.texts import request_with
from mrtr_cassette.core.protocol.calls import NO_SESSION, Call, CallKey, read_call, session_of
from mrtr_cassette.core.protocol.dialect import INPUT_REQUESTS, InputRequest
from mrtr_cassette.core.protocol.jsonrpc import Kind, Message, hides_response
from mrtr_cassette.core.protocol.methods import PING
from mrtr_cassette.core.protocol.tasks import TaskState
from mrtr_cassette.core.secrets.credentials import Credentials, KnownTexts, is_told_apart
from mrtr_cassette.core.secrets.names import (
    ANSWER,
    HASH,
    SESSION,
    STATE,
    TASK,
    Ref,
    is_of_kind,
    placeholder,
    ref_of,
    refs_in,
    renumber,
    sealed_hash,
    secrets_in,
    sha256_of,
    with_refs,
    without_numbers,
    without_rules,
)
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.secrets.sealed import (
    is_searched,
    looks_sealed,
    may_have_places,
    reads_as_words,
    seal_answers,
    seal_states,
    with_task,
)
from mrtr_cassette.core.wire.http import (
    ABOUT_COPIES,
    ANSWERED_BY_HEADER,
    REFUSED,
    SESSION_HEADER,
    Headers,
    Request,
    Response,
    named_by_user,
)
from mrtr_cassette.core.wire.jsonbytes import MemberPath, canonical, parse

_RECEIVED: Final = "received."
"""Begins the token of a secret that a client sent; a cassette's tokens are numbers."""
_MOST_PLACED: Final = 64
"""Placeholders of one member that a client's text is held to, of all the calls of a tool."""
_STAND_IN: Final = "Kq7x9Zw4vT8m"
"""Begins what stands for a secret where it is asked whether rules find it by themselves."""
_NOT_ISSUED: Final = "not-issued"
"""The token of what looks like a placeholder and stands in no response."""


def is_received(secret: Ref) -> bool:
    """Tell whether a client sent the secret itself that a placeholder stands for."""
    return secret.token.startswith(_RECEIVED)


def placeholders_in(response: Response | None) -> list[str]:
    """Return the placeholders in a response's body."""
    body = b"" if response is None else response.body
    return [ref.raw.decode() for ref in secrets_in(body)]


class PlacedSecret(NamedTuple):
    """A recorded placeholder, and what stands before and behind it in its text.

    Attributes:
        was_told: an earlier request has the secret where it is found by itself, as by its name.
    """

    before: str
    behind: str
    secret: Ref
    was_told: bool

    def in_text(self, text: str) -> str:
        """Return what a client's text has in its place, or nothing if that can be no secret."""
        if not (text.startswith(self.before) and text.endswith(self.behind)):
            return ""
        given = text[len(self.before) : len(text) - len(self.behind)]
        if _NOT_ISSUED in given or any(map(str.isspace, given)):
            return ""
        return given if is_told_apart(self.secret.kind, given) else ""


def texts_in(value: Any, path: MemberPath = ()) -> Iterator[tuple[MemberPath, str]]:
    """Yield the texts in a value of JSON, with where they stand."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for name, member in value.items():
            yield from texts_in(member, (*path, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from texts_in(item, (*path, str(index)))


def redactor_of(cassette: Cassette) -> Redactor | None:
    """Return what redacts by a cassette's rules, all secrets of a rule alike, or None."""
    rules = cassette.redaction
    return None if rules is None else Redactor(rules, lambda _rule, _secret: "0")


class MatchedForm:
    """Turns requests into the form in which they are compared with one cassette's."""

    def __init__(
        self, cassette: Cassette, ignored: Collection[MemberPath], *, remembers: bool = True
    ) -> None:
        """Read a cassette; what `remembers` knows the secrets that requests before had."""
        self._cassette = cassette
        self._remembers = remembers
        self.ignored = ignored
        self._states_are_sealed = cassette.request_state == "sealed"
        self._answers_are_sealed = cassette.seals_answers
        requests = [each.request for one in cassette.interactions for each in one.own]
        # Lower-case names of the headers that were kept because the user named them.
        self.header_names = frozenset[str]().union(*[named_by_user(r.headers) for r in requests])
        self._sessions = {request.header(SESSION_HEADER) for request in requests}
        self._redacts = cassette.redaction is not None
        self.has_placeholders = self._redacts and any(map(_has_placeholders, requests))
        self._tokens: dict[tuple[str, str], str] = {}
        # A cassette that was written by hand has no rules, but what is shown of it has.
        self._redactor = Redactor(cassette.redaction or RedactionRules(), self._token)
        self._credentials = Credentials(self._redactor, seals_sessions=False)
        self._found = KnownTexts()
        """The secrets that clients have sent, which no message shows."""
        self._own = KnownTexts()
        """Those of the request that is read."""
        self._learned: dict[tuple[str, Ref], str] = {}
        """What the clients of sessions sent for secrets that are told nowhere before."""
        self._redactor.on_find = self._take
        self._recorded: set[tuple[LookupKey, Headers]] = set()
        """What tells the recorded requests apart, as they are matched."""
        self.was_given = self._credentials.was_given

    @cached_property
    def issued(self) -> frozenset[str]:
        """The hashes, placeholders and sealed answers that a client can have from a response.

        Any other that a client sends is a text like any other.
        """
        texts = [self._cassette.upstream]
        for exchange in (each for one in self._cassette.interactions for each in one.own):
            if exchange.response is not None:
                texts += (value for _, value in exchange.response.headers)
                texts.append(exchange.response.body.decode("latin-1"))
        refs = [ref for text in texts for ref in refs_in(text)]
        return frozenset(ref.name for ref in refs if ref.is_secret or ref.kind in (HASH, ANSWER))

    def lookup(self, call: Call) -> LookupKey:
        """Return the key by which a request in this form is looked up.

        A client that was given a placeholder may send it where another rule found the secret while
        recording, so placeholders don't tell their rules.
        """
        lookup = lookup_key(call, self.ignored)
        if not self.has_placeholders:
            return lookup
        key, state, answers = lookup
        any_answers = None if answers is None else without_rules(answers)
        return LookupKey(CallKey(*map(without_rules, key)), state, any_answers)

    def keeps_body(self, recorded: Request) -> bool:
        """Tell whether the bytes of a recorded request, as it is matched, match by themselves."""
        if self.has_placeholders or self._answers_are_sealed or self.header_names:
            return False
        # The hash of a state counts only where it was issued.
        return b"sha256" not in recorded.body or not may_have_places(recorded.body)

    def recorded(self, request: Request) -> tuple[Request, tuple[Ref, ...]]:
        """Return a recorded request as it is matched, and the secrets in it."""
        request = self._sealed(request, lambda _: True)
        if not self.has_placeholders:
            return self._alike(request)
        request = self._redacted(request)
        self._recorded.add(self._told_apart(request))
        return self._alike(request)

    def received(self, request: Request) -> tuple[Request, tuple[Ref, ...]]:
        """Return a client's request as it is matched, the same one if possible, and its secrets."""
        return self._alike(self._received(request))

    def _received(self, request: Request) -> Request:
        """Return a client's request without secrets.

        Where that is not what was recorded, secrets are looked for that are not found by
        themselves: those that were sent before, and what stands in the places of placeholders.
        """
        self._own = KnownTexts()
        matched = self._without_secrets(request)
        if not self.has_placeholders or self._told_apart(matched) in self._recorded:
            return matched
        sent = self._found if self._remembers else self._own
        matched = sent.sealed_request(matched)
        placed = self._placed_in(matched)
        known = KnownTexts()
        for secret, text in placed.items():
            known.add(text, self._redactor.placeholder(secret.kind, text))
        matched = known.sealed_request(matched)
        if self._remembers and self._told_apart(matched) in self._recorded:
            session = request.header(SESSION_HEADER)
            self._learned |= {(session, secret): text for secret, text in placed.items()}
        return matched

    def _take(self, rule: str, secret: str) -> None:
        if is_told_apart(rule, secret):
            for known in (self._own, self._found):
                known.add(secret, self._redactor.placeholder(rule, secret))

    def _told_apart(self, request: Request) -> tuple[LookupKey, Headers]:
        same = _all_alike(request)
        named = [(name.lower(), value) for name, value in same.headers]
        kept = tuple(sorted(pair for pair in named if pair[0] in self.header_names))
        return self.lookup(read_call(same)), kept

    @cached_property
    def _placed(self) -> dict[tuple[str, str, MemberPath], set[PlacedSecret]]:
        """Where recorded calls have placeholders, by method, name and member."""
        placed: dict[tuple[str, str, MemberPath], set[PlacedSecret]] = {}
        told: set[Ref] = set()
        exchanges = [each for one in self._cassette.interactions for each in one.own]
        for exchange in sorted(exchanges, key=lambda each: each.number or float("inf")):
            request = self._redacted(self._sealed(exchange.request, lambda _: True))
            call = read_call(request)
            for path, text in texts_in(call.arguments):
                found = secrets_in(text)
                if len(found) != 1:
                    continue
                before, _, behind = text.partition(found[0].raw.decode())
                secret = found[0].plain
                places = placed.setdefault((call.method, call.name, path), set())
                if len(places) < _MOST_PLACED:
                    places.add(PlacedSecret(before, behind, secret, secret in told))
            told |= self._told_by(request)
        return placed

    def _told_by(self, recorded: Request) -> set[Ref]:
        """Return the secrets that rules find by themselves in a recorded request."""
        secrets: dict[str, Ref] = {}

        def stand_in(ref: Ref) -> bytes | None:
            if not ref.is_secret:
                return None
            text = f"{_STAND_IN}{len(secrets)}"
            secrets[text] = ref.plain
            return text.encode()

        told: set[str] = set()
        redactor = Redactor(self._cassette.redaction or RedactionRules(), lambda *_: "0")
        redactor.on_find = lambda _rule, secret: told.add(secret)
        redactor.request(request_with(recorded, lambda raw, _: with_refs(raw, stand_in)))
        return {secret for text, secret in secrets.items() if text in told}

    def _placed_in(self, request: Request) -> dict[Ref, str]:
        """Return what a call has for secrets that the recording tells nowhere before it.

        It may be any text that could be a secret, the same for the same from then on. One that was
        told before has to be what the client has told.
        """
        call = read_call(request)
        session = request.header(SESSION_HEADER)
        found: dict[Ref, str] = {}
        for path, text in texts_in(call.arguments):
            for placed in self._placed.get((call.method, call.name, path), ()):
                is_known = placed.was_told and self._remembers
                given = "" if is_known else placed.in_text(text)
                held = self._learned.get((session, placed.secret), given)
                if given and held == given:
                    found.setdefault(placed.secret, given)
        return found

    def _without_secrets(self, request: Request) -> Request:
        if self.has_placeholders:
            self._credentials.seen(request.headers)
        request = self._sealed(request, lambda token: token in self.issued)
        if not self.has_placeholders:
            return request
        if not _has_placeholders(request):
            return self._redacted(request)
        # What was not issued looks like a placeholder until secrets have been found: it is none.
        marked = request_with(request, self._marked)
        return request_with(self._redacted(marked), _disowned)

    def _alike(self, request: Request) -> tuple[Request, tuple[Ref, ...]]:
        """Return a request in which all secrets of a rule are the same one, and which they are."""
        same = _all_alike(request) if self.has_placeholders else request
        if same == request:
            return request, ()
        call, _, answers = lookup_key(read_call(request), self.ignored)
        texts = (*call, answers or "")
        found = [ref for text in texts for ref in secrets_in(text)]
        return same, tuple([ref.plain for ref in found])

    def _sealed(self, request: Request, is_issued: Callable[[str], bool]) -> Request:
        def new_state(state: str) -> str:
            name = ref_of(state, STATE, TASK, HASH)
            stays = not self._states_are_sealed
            if name is not None:
                stays = name.kind != HASH or (self._states_are_sealed and is_issued(name.name))
            return state if stays else sealed_hash(state)

        body = request.body
        if self._states_are_sealed:
            request = with_task(request, lambda it: new_state(it) if is_searched(it) else it)
            body = request.body
        if self._states_are_sealed or b"sha256" in body or b"\\u" in body:
            body = seal_states(body, new_state)
        if self._answers_are_sealed:
            body = seal_answers(body, lambda text: looks_sealed(text) and is_issued(text))
        return request if body == request.body else replace(request, body=body)

    def _redacted(self, request: Request) -> Request:
        return self._credentials.known.sealed_request(self._redactor.request(request))

    def _marked(self, raw: bytes, _name: str) -> bytes:
        def marked(rule: str, token: str) -> str | None:
            return None if placeholder(rule, token) in self.issued else _NOT_ISSUED

        return renumber(raw, marked)

    def _token(self, rule: str, secret: str) -> str:
        return self._tokens.setdefault((rule, secret), f"{_RECEIVED}{len(self._tokens)}")

    def told(self, request: Request) -> Request:
        """Return a client's request as it is matched, without secrets, to be shown."""
        matched = self._received(request)
        # Redacting twice would take what was not issued for a secret.
        if self._redacts and not self.has_placeholders:
            self._credentials.seen(request.headers)
            matched = self._redacted(matched)
        if self._redacts:
            matched = self._found.sealed_request(matched)
        if request.header(SESSION_HEADER) not in self._sessions:
            matched = _without_session(matched)
        return _all_alike(matched) if self._redacts else matched

    def shown(self, text: str) -> str:
        """Return a text for the terminal, without known secrets."""
        return without_numbers(self._redactor.text(text))


def _without_session(request: Request) -> Request:
    """Replace the id of a session that is none of the cassette's: it may be a bearer token."""
    identity = request.header(SESSION_HEADER)
    if not identity or is_of_kind(identity, STATE, TASK, SESSION) or reads_as_words(identity):
        return request
    known = KnownTexts()
    known.add(identity, sealed_hash(identity))
    return known.sealed_request(request)


def _has_placeholders(request: Request) -> bool:
    return _all_alike(request) != request


def _all_alike(request: Request) -> Request:
    return request_with(request, lambda raw, _: without_numbers(raw))


def _disowned(raw: bytes, _name: str) -> bytes:
    """Spoil the tokens that were marked, which are no placeholders then."""
    return renumber(raw, lambda _, token: f"~{token}" if token == _NOT_ISSUED else None)


# Recorded exchanges


class PushedQuestion(NamedTuple):
    """The request that a posted answer answers, and what was pending when the server sent it."""

    pending: ReplayEntry
    request: PushedRequest


class ReplayEntry:
    """A recorded exchange, with what a replay finds it by and how often it was played.

    Attributes:
        turn: the turn that its request answers, from 1; 0 for a first request.
        asking_turn: the turn that its response asks, if it does.
        parent: the exchange whose ask it answers; None for a first request and an orphan.
        is_listening: its response is a stream that tells what other requests caused.
        digest: of its request without the caller's values, if equal digests are matched alike.
        question: what its ask is known by: the hash of the state that it issues, or what it asks;
            equal ones of a call stand for each other.
        answered_by_proxy: the retry with which the proxy answered its ask while recording
            (`answers`), and which is played instead of the ask.
        opens_session: its response gave the id of its session to its client.
        asker: its message, as far as responses repeat it.
        stream: the exchange that began the stream of its response: itself, or what it resumes.
        steps: what was recorded of the task that it created.
        created_by: the call that created the task of which it is a step; None for anything else.
        state: the state of the task that it polled.
        same: the equal one that is played in its place; only where nothing is remembered.
        lookup_number: the same for all exchanges of one lookup key.
        is_pong: it answers a ping.
        path: the same for all equal calls that were answered alike, whichever known states they
            carried.
        occurrence: how many exchanges of its lookup key its session had, up to and with it.
    """

    def __init__(
        self,
        exchange: RecordedExchange,
        place: tuple[int, int, int],
        matched: MatchedForm,
        parent: ReplayEntry | None = None,
        answers: PushedQuestion | None = None,
    ) -> None:
        self.exchange = exchange
        self.interaction, self.turn, self.asking_turn = place
        self.parent, self.answers = parent, answers
        self.request, self.secrets = matched.recorded(exchange.request)
        call = read_call(self.request)
        message = call.message
        self.kind = None if message is None else message.kind
        self.lookup = matched.lookup(call)
        self.key = call.key(matched.ignored)
        self.asker: Message | None = None
        if message is not None:
            token = {name: it for name, it in message.meta.items() if name == "progressToken"}
            self.asker = message._replace(raw=b"", tree={}, params={}, meta=token)
        self.traits = call.traits(matched.header_names)
        if self.is_about_a_copy:
            # An older cassette doesn't have the condition.
            self.traits = self.traits._replace(is_conditional=True)
        self.caller = call.caller
        self.is_listening = listens(call, exchange.response)
        keeps_body = matched.keeps_body(self.request)
        self.digest = digest_of(message) if keeps_body and message is not None else None
        session = session_of(exchange.request)
        self.session = session or opened_session(exchange.response)
        self.opens_session = bool(self.session and not session)
        self.ask = exchange.ask
        self.question = self.issued_sha256
        if self.ask is not None and self.question is None:
            requests = self.ask.message.tree["result"].get(INPUT_REQUESTS)
            self.question = canonical([*self.key, requests])
        self.answered_by_proxy: ReplayEntry | None = None
        if parent is not None and self.request.header(ANSWERED_BY_HEADER):
            parent.answered_by_proxy = self
        self.stream = self
        self.steps: list[ReplayEntry] = []
        self.created_by: ReplayEntry | None = None
        self.state: TaskState | None = None
        self.same: ReplayEntry | None = None
        self.is_pong = False
        self.lookup_number = self.path = self.occurrence = self.played = 0

    @property
    def asks_nothing(self) -> bool:
        """Whether it answers no question, unless that was a ping."""
        return self.answers is None or self.answers.request.message.method == PING

    @property
    def answered_call(self) -> ReplayEntry | None:
        """The call during which the server asked what it answers, if it is a posted answer."""
        pending = None if self.answers is None else self.answers.pending
        return pending if pending is not None and pending.kind is Kind.REQUEST else None

    @property
    def proves_its_ask(self) -> bool:
        """Whether the server knows what it answers: by its state, or by its session."""
        return self.lookup.state is not None or self.session != NO_SESSION

    @property
    def asked(self) -> Mapping[str, InputRequest]:
        """What its response asks for, by key."""
        if self.state is not None:
            return self.state.input_requests
        return {} if self.ask is None else self.ask.input_requests

    @property
    def was_played(self) -> bool:
        """Whether it, or the equal one that is played in its place, has been played."""
        return bool((self.same or self).played)

    @property
    def is_about_a_copy(self) -> bool:
        """Whether its response says nothing to a client without a copy of an earlier one."""
        response = self.exchange.response
        return response is not None and response.status in ABOUT_COPIES

    @property
    def is_refused(self) -> bool:
        """Whether the server refused its request, by the HTTP status or by a JSON-RPC error."""
        response = self.exchange.response
        is_error = response is not None and response.status >= REFUSED
        return is_error or "error" in self.exchange.rpc_members

    def may_get(self, identity: bytes | None) -> bool:
        """Tell whether its response can be played to a caller with an id, as it is spelled."""
        if identity is None or self.asker is None or not self._hides_response:
            return True
        return canonical(parse(identity)) == self.asker.id

    @cached_property
    def _hides_response(self) -> bool:
        response = self.exchange.response
        return response is not None and hides_response(self.asker, response)

    @property
    def call(self) -> Call:
        """Its request as it is matched, read."""
        return read_call(self.request)

    @property
    def issued_sha256(self) -> str | None:
        """Hash of the request state that its ask issues on replay, or None."""
        state = None if self.ask is None else self.ask.request_state
        return None if state is None else sha256_of(state)

    def issued(self, sha256: str) -> bool:
        """Tell whether its ask issued a state with this hash, on replay or while recorded."""
        return self.ask is not None and sha256 in (self.issued_sha256, self.exchange.issued_sha256)

    @property
    def arrival(self) -> tuple[float, int, int]:
        """Orders exchanges as their requests arrived, or as the file has them."""
        number = self.exchange.number
        return float("inf") if number is None else number, self.interaction, self.turn


def entries_of(cassette: Cassette, matched: MatchedForm) -> list[list[ReplayEntry]]:
    """Return the exchanges of each interaction that no earlier one has."""
    # All of each interaction, as a branch begins with what it shares.
    chains: list[list[ReplayEntry]] = []
    own: list[list[ReplayEntry]] = []
    for interaction in cassette.interactions:
        branch, shared, number = interaction.branch, interaction.shared, interaction.number
        chain = [] if branch is None else chains[branch.of - 1][:shared]
        turns = iter([place.turn for _, place in interaction.placed])
        for exchange in interaction.exchanges[shared:]:
            place = (number, next(turns), interaction.asking_turn(len(chain)))
            chain.append(ReplayEntry(exchange, place, matched, chain[-1] if chain else None))
        posted = []
        for turn in interaction.pushed_turns:
            requests = {asked.key: asked for asked in turn.asked}
            for answer in turn.answers if turn.position >= shared else ():
                question = PushedQuestion(chain[turn.position], requests[answer.key])
                place = (number, next(turns), 0)
                posted.append(ReplayEntry(answer.exchange, place, matched, answers=question))
        chains.append(chain)
        if interaction.steps:
            chain[-1].steps = _steps_of(interaction, chain[-1], matched)
        own.append([*chain[shared:], *posted, *(chain[-1].steps if interaction.steps else ())])
    return own


def _steps_of(
    interaction: RecordedInteraction, creating: ReplayEntry, matched: MatchedForm
) -> list[ReplayEntry]:
    asking: dict[int, int] = {}
    answering: dict[int, tuple[int, int]] = {}
    for number, turn in enumerate(interaction.turns, start=1):
        if isinstance(turn, TaskTurn):
            asking[turn.asked] = number
            answering |= dict.fromkeys(turn.answered, (number, turn.asked))
    steps: list[ReplayEntry] = []
    for at, step in enumerate(interaction.steps):
        answered, asked = answering.get(at, (0, -1))
        place = (interaction.number, answered, asking.get(at, 0))
        parent = steps[asked] if answered else None
        steps.append(ReplayEntry(step.exchange, place, matched, parent))
        steps[-1].created_by, steps[-1].state = creating, step.state
    return steps


def number_lookups(by_arrival: Iterable[ReplayEntry]) -> None:
    """Number the lookup keys and paths of all exchanges; count how often each comes in a session.

    Equal answers to what was asked during other calls count apart. What resumes a stream has the
    number of that stream in the place of a key, as each session has other ids of events.
    """
    numbers: dict[tuple[Any, ...], int] = {}
    paths: dict[tuple[Any, ...], int] = {}
    occurrences: Counter[tuple[str, int]] = Counter()
    streams = Streams[ReplayEntry]()
    for each in by_arrival:
        key: tuple[Any, ...] = each.lookup, each.answers and each.answers.pending.lookup_number
        parent = each.parent if each.proves_its_ask else None
        # The answer to a retry with an unknown state tells nothing of calls without one.
        unknown_state = each.lookup.state if each.parent is None else None
        asked_by = unknown_state if parent is None else parent.path
        path = each.key, each.lookup.answers, each.secrets, asked_by
        each.path = paths.setdefault(path, len(paths))
        begun = streams.add(each.exchange, each)
        if begun is not None:
            each.stream = begun
            each.is_listening = each.is_listening and begun.is_listening
            key = begun.lookup_number, begun.occurrence
        each.lookup_number = numbers.setdefault(key, len(numbers))
        occurrences[each.session, each.lookup_number] += 1
        each.occurrence = occurrences[each.session, each.lookup_number]
