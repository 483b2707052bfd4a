"""Probes of a live server: answers to recorded questions that no client gave."""
# Source: MCP 2026-07-28, "Multi Round-Trip Requests", "Elicitation" (`requestedSchema`).

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from mrtr_cassette.core.cassette.recorded import RecordedInteraction, RecordedTurn
from mrtr_cassette.core.cassette.transports import FIRST_SESSION
from mrtr_cassette.core.drive.conversation import (
    AskAnswer,
    Conversation,
    LiveAsk,
    NeedsAnswers,
    Reply,
)
from mrtr_cassette.core.drive.live_session import with_body, with_session_header
from mrtr_cassette.core.drive.plan import PlannedInteraction
from mrtr_cassette.core.drive.script import RecordedScript
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.protocol.dialect import (
    ANSWERS_PATH,
    ELICITATION_KINDS,
    InputRequest,
    with_answer_keys,
    write_retry,
)
from mrtr_cassette.core.protocol.jsonrpc import ID_PATH, Kind, Via
from mrtr_cassette.core.record.recorder import Recorder
from mrtr_cassette.core.wire.http import SESSION_HEADER, Request, line_request
from mrtr_cassette.core.wire.jsonbytes import (
    Number,
    canonical,
    decimal_of,
    parse,
    replace_members,
    spelled_at,
    to_json,
)
from mrtr_cassette.core.wire.pointers import members_of

PROBE_DECLINED: Final = "declined"
PROBE_CANCELLED: Final = "cancelled"
PROBE_UNASKED: Final = "answers-unasked"
PROBE_REPEATED: Final = "retry-repeated"
PROBE_EXPIRED: Final = "state-expired"
PROBE_OTHER_ARGUMENTS: Final = "state-other-arguments"
PROBE_OTHER_TOOL: Final = "state-other-tool"
PROBE_OTHER_QUESTION: Final = "state-other-question"
PROBE_URL_ACCEPTED: Final = "url-accepted-at-once"
EXTRA_PROBES: Final = frozenset({"answer-extra-member", "answer-extra-key"})
"""Probes that add something, which a server may ignore."""

STATE_PROBES: Final[Mapping[str, str]] = {
    "state-altered": "one character of the state altered",
    "state-cut": "half of the state",
    "state-empty": "an empty state",
    "state-dropped": "no state",
    PROBE_OTHER_ARGUMENTS: "the state of a call with other arguments",
    PROBE_OTHER_TOOL: "the state of another tool",
    PROBE_OTHER_QUESTION: "the state of the question before",
    PROBE_UNASKED: "the answers at once, without having been asked",
    PROBE_REPEATED: "the same retry twice",
    PROBE_EXPIRED: "an old state",
}
"""What the probes of request states send."""

ANSWER_PROBES: Final = (
    PROBE_DECLINED,
    PROBE_CANCELLED,
    "accepted-empty",
    "accepted-false",
    "answer-wrong-type",
    "answer-out-of-bounds",
    "answer-not-in-enum",
    "answer-extra-member",
    "answer-extra-key",
    "answer-missing-key",
    PROBE_URL_ACCEPTED,
)
PROBES: Final = (*STATE_PROBES, *ANSWER_PROBES)
"""The names of all probes."""

_PROBES_WITHOUT_STATE: Final = frozenset({PROBE_UNASKED, PROBE_REPEATED})
_PROBE_TEXT: Final = "mrtr-cassette-probe"
_ACCEPT_ACTION: Final = "accept"
_CHECKED_FORMATS: Final = frozenset({"email", "uri", "date", "date-time"})


@dataclass(frozen=True, slots=True)
class Probe:
    """Something that is sent to a live server in place of the recorded answers.

    Attributes:
        name: one of `PROBES`.
        question: the recorded key of the question that is answered otherwise; None for all.
        answer: its new answer as JSON; None for none.
        sent_and_accepted: the value in a form that is sent in place of the recorded one, and that.
    """

    name: str
    question: str | None = None
    answer: bytes | None = None
    sent_and_accepted: tuple[Any, Any] | None = None

    @property
    def is_about_state(self) -> bool:
        """Whether the answers are the recorded ones, and what goes with them is not."""
        return self.name in STATE_PROBES

    @property
    def sent_in_words(self) -> str:
        """What it sends, for people."""
        if self.is_about_state:
            return STATE_PROBES[self.name]
        if self.answer is None:
            return "no answer"
        return self.answer.decode()


@dataclass(frozen=True, slots=True, eq=False)
class ProbedAsk:
    """A recorded question or several, whose answers are altered.

    Attributes:
        index: its place among all that is asked in its conversation, from 1.
        given_answers: the recorded answers by key.
        declined_interactions: recorded endings of the same conversation in which it was declined.
    """

    planned: PlannedInteraction
    turn: RecordedTurn
    index: int
    requests: Mapping[str, InputRequest]
    given_answers: Mapping[str, Any]
    declined_interactions: tuple[RecordedInteraction, ...] = ()

    @property
    def via(self) -> Via:
        """The way by which the server asks."""
        return self.turn.via

    @property
    def tool(self) -> str:
        """The name of its tool, or its method."""
        return self.planned.call.name or self.planned.call.method

    @property
    def is_form_of_map(self) -> bool:
        """Whether the questions are those of the specification, with actions as answers."""
        return not any(request.takes_bare_value for request in self.requests.values())


def _answered_asks_in(planned: PlannedInteraction) -> Iterator[ProbedAsk]:
    """Yield what is asked in a recorded conversation and has an answer."""
    index = 0
    for turn in planned.interaction.turns:
        for requests in turn.request_groups:
            index += 1
            if turn.given_answers is not None:
                yield ProbedAsk(planned, turn, index, requests, turn.given_answers)


def _are_all_questions_accepted(ask: ProbedAsk) -> bool:
    """Tell whether a client accepted all that it was asked."""
    for key, request in ask.requests.items():
        answer = members_of(ask.given_answers.get(key))
        is_elicited = request.kind in ELICITATION_KINDS and not request.takes_bare_value
        if is_elicited and answer.get("action") != _ACCEPT_ACTION:
            return False

    return True


def probed_asks(plan: Iterable[PlannedInteraction]) -> list[ProbedAsk]:
    """Return the recorded questions of a plan, each once, with the answers that accept them."""
    asks_by_call_and_index: dict[object, list[ProbedAsk]] = {}
    for planned in plan:
        if planned.part != "call" or not planned.is_compared:
            continue

        call = planned.call
        earlier_answers: tuple[str, ...] = ()
        for ask in _answered_asks_in(planned):
            call_key = (
                call.method,
                call.name,
                canonical(call.arguments),
                earlier_answers,
            )
            asks_by_call_and_index.setdefault((*call_key, ask.index), []).append(ask)
            earlier_answers = (*earlier_answers, canonical(dict(ask.given_answers)))

    chosen_asks = []
    for equal_asks in asks_by_call_and_index.values():
        accepted_asks = [ask for ask in equal_asks if _are_all_questions_accepted(ask)]
        chosen_ask = (accepted_asks or equal_asks)[0]
        declining_interactions = [
            ask.planned.interaction for ask in equal_asks if ask not in accepted_asks
        ]
        if accepted_asks:
            chosen_ask = replace(
                chosen_ask, declined_interactions=tuple(declining_interactions)
            )

        chosen_asks.append(chosen_ask)

    return chosen_asks


# What is sent


def probes_of_ask(ask: ProbedAsk, *, is_slow: bool) -> list[Probe]:
    """Return the probes of an ask, as far as the recording tells; declining comes first."""
    probes = []
    if ask.is_form_of_map and _are_all_questions_accepted(ask):
        for key, request in ask.requests.items():
            answer = members_of(ask.given_answers.get(key))
            if request.kind == "url":
                probes += _declining_probes(key)
                probes.append(_accepting_probe(PROBE_URL_ACCEPTED, key))
            elif request.kind == "form":
                probes += _declining_probes(key)
                probes += _probes_of_form(key, request, answer)

    if not ask.turn.is_posted and ask.requests and ask.is_form_of_map:
        probes.append(_accepting_probe("answer-extra-key", _PROBE_TEXT))
        probes += [Probe("answer-missing-key", key) for key in ask.requests]

    probes += [
        Probe(name)
        for name in STATE_PROBES
        if _is_probe_for_ask(name, ask, is_slow=is_slow)
    ]
    return sorted(
        probes, key=lambda probe: probe.name not in (PROBE_DECLINED, PROBE_CANCELLED)
    )


def _is_probe_for_ask(name: str, ask: ProbedAsk, *, is_slow: bool) -> bool:
    """Tell whether a probe of states fits the place of an ask in its conversation."""
    if name == PROBE_UNASKED:
        is_first = ask.index == 1 and not ask.turn.is_posted
        return is_first and bool(ask.requests)
    if ask.via != "result":
        return False
    if name == PROBE_EXPIRED:
        return is_slow
    if name == PROBE_OTHER_QUESTION:
        return ask.index > 1

    return True


def most_requests_of_probes(
    ask: ProbedAsk, probes: Sequence[Probe], last_index: int
) -> int:
    """Return how many requests at most probe an ask, besides polls of tasks.

    `last_index` is the greatest index of all asks, whose state may be sent.
    """
    conversation_length = 1
    for turn in ask.planned.interaction.turns:
        conversation_length += len(turn.request_groups)

    if ask.via != "result":
        # A call or a task that goes on asking is cancelled.
        conversation_length += 1

    request_count = 2 * conversation_length
    for probe in probes:
        request_count += conversation_length
        if probe.name == PROBE_REPEATED:
            request_count += conversation_length - ask.index

        if probe.name == PROBE_OTHER_TOOL:
            request_count += conversation_length + last_index

    return request_count


def needs_server_state(probe: Probe) -> bool:
    """Tell whether a probe is made only if the server sends a request state."""
    return probe.is_about_state and probe.name not in _PROBES_WITHOUT_STATE


def _declining_probes(key: str) -> list[Probe]:
    """Return the probes that decline and cancel a question."""
    return [
        Probe(PROBE_DECLINED, key, b'{"action":"decline"}'),
        Probe(PROBE_CANCELLED, key, b'{"action":"cancel"}'),
    ]


def _accepting_probe(
    name: str,
    key: str,
    content: Mapping[str, Any] | None = None,
    sent_and_accepted: tuple[Any, Any] | None = None,
) -> Probe:
    """Return a probe that accepts a question, with content unless that is None."""
    answer: dict[str, Any] = {"action": _ACCEPT_ACTION}
    if content is not None:
        answer["content"] = content

    return Probe(name, key, to_json(answer).encode(), sent_and_accepted)


def _probes_of_form(
    key: str, request: InputRequest, answer: Mapping[str, Any]
) -> Iterator[Probe]:
    """Yield the probes of an accepted form."""
    schema = members_of(request.definition.get("requestedSchema"))
    fields = members_of(schema.get("properties"))
    required_fields = schema.get("required")
    content = members_of(answer.get("content"))
    if not isinstance(required_fields, list):
        required_fields = []

    if required_fields:
        yield _accepting_probe("accepted-empty", key)

    field_types = {members_of(field).get("type") for field in fields.values()}
    denied_fields = {}
    for name, value in content.items():
        is_decisive = name in required_fields or field_types == {"boolean"}
        if value is True and is_decisive:
            denied_fields[name] = False

    if denied_fields:
        yield _accepting_probe("accepted-false", key, {**content, **denied_fields})

    yield from _probes_of_fields(key, content, fields, required_fields)
    content_with_extra_member = {**content, "mrtrCassetteProbe": True}
    yield _accepting_probe("answer-extra-member", key, content_with_extra_member)


def _probes_of_fields(
    key: str,
    content: Mapping[str, Any],
    fields: Mapping[str, Any],
    required: Sequence[Any],
) -> Iterator[Probe]:
    """Yield the probes that give a field another value: of each kind the first that fits."""
    names = sorted(content, key=lambda name: _type_order(content[name]))
    names.sort(key=lambda name: name not in required)
    probes_by_name: dict[str, Probe] = {}
    for name in names:
        accepted_value = content[name]
        for probe, value in _values_out_of_schema(
            members_of(fields.get(name)), accepted_value
        ):
            probes_by_name.setdefault(
                probe,
                _accepting_probe(
                    probe, key, {**content, name: value}, (value, accepted_value)
                ),
            )

    yield from probes_by_name.values()


def _type_order(value: Any) -> int:
    """Return the order of a field's value: careless servers take "no" for true, and "3" for 3."""
    if isinstance(value, bool):
        return 0
    return 1 if isinstance(value, int | Number) else 2


def _values_out_of_schema(
    schema: Mapping[str, Any], accepted: Any
) -> Iterator[tuple[str, Any]]:
    """Yield values that a field may not have, and the probes that send them."""
    yield "answer-wrong-type", _value_of_other_type(accepted)
    if _is_choice(schema):
        yield "answer-not-in-enum", _PROBE_TEXT
    elif _is_choice(members_of(schema.get("items"))):
        yield "answer-not-in-enum", [_PROBE_TEXT]

    value_out_of_bounds = _value_out_of_bounds(schema)
    if value_out_of_bounds is not None:
        yield "answer-out-of-bounds", value_out_of_bounds


def _is_choice(schema: Mapping[str, Any]) -> bool:
    """Tell whether a field's schema lists the values that it may have."""
    return not {"enum", "oneOf", "anyOf"}.isdisjoint(schema)


def _value_of_other_type(value: Any) -> Any:
    """Return a value of another type that a careless server takes for the same."""
    if isinstance(value, bool):
        return "no"
    if isinstance(value, int | Number):
        return to_json(value)
    return [value] if isinstance(value, str) else _PROBE_TEXT


_LARGEST_NUMBER: Final = 10**18
_LONGEST_TEXT: Final = 1_000_000
"""Bounds that no probe goes beyond."""


def _value_out_of_bounds(schema: Mapping[str, Any]) -> Any:
    """Return a value beyond the bounds of a field; None if it has no bounds."""
    for bound, step in (("maximum", 1), ("minimum", -1)):
        limit = decimal_of(schema.get(bound))
        if limit is not None and abs(limit) < _LARGEST_NUMBER:
            return int(limit) + step

    max_length = schema.get("maxLength")
    if isinstance(max_length, int) and max_length < _LONGEST_TEXT:
        return "x" * (max_length + 1)

    min_length = schema.get("minLength")
    if isinstance(min_length, int) and min_length:
        return ""

    return _PROBE_TEXT if schema.get("format") in _CHECKED_FORMATS else None


def altered_state(state: str) -> str:
    """Return a state with another character, in the first part that encodes a readable text."""
    parts = state.split(".")
    for index, part in enumerate(parts):
        altered_part = _altered_base64_text(part)
        if altered_part is not None:
            parts[index] = altered_part
            return ".".join(parts)

    return _with_altered_character(state)


def _altered_base64_text(encoded: str) -> str | None:
    """Return base64 of a text with another character; None if what it encodes isn't readable."""
    encoded_without_padding = encoded.rstrip("=")
    padding = "=" * (-len(encoded_without_padding) % 4)
    for alphabet in (b"-_", b"+/"):
        try:
            decoded = base64.b64decode(
                encoded_without_padding + padding, alphabet, validate=True
            )
            text = decoded.decode("ascii")
        except (binascii.Error, ValueError):
            continue

        if text and text.isprintable():
            altered_bytes = base64.b64encode(
                _with_altered_character(text).encode(), alphabet
            ).decode()
            return altered_bytes if encoded.endswith("=") else altered_bytes.rstrip("=")

    return None


def _with_altered_character(text: str) -> str:
    """Return a text with another digit, or else another letter, as near its middle as possible."""
    middle = len(text) // 2
    offsets = sorted(range(len(text)), key=lambda offset: abs(offset - middle))
    for is_wanted in (str.isdigit, str.isalpha, str.isprintable):
        for offset in offsets:
            char = text[offset]
            if char.isascii() and is_wanted(char):
                altered_char = chr(ord(char) ^ 1)
                return f"{text[:offset]}{altered_char}{text[offset + 1 :]}"

    return f"{text}x"


def with_another_argument(body: bytes, schema: Mapping[str, Any]) -> bytes | None:
    """Return a call with another argument, as its tool's schema allows it; None if it has none."""
    path = ("params", "arguments")
    params = members_of(parse(body).get("params"))
    fields = members_of(schema.get("properties"))
    for name, value in members_of(params.get("arguments")).items():
        other_value = _other_argument_value(members_of(fields.get(name)), value)
        if other_value is not None:
            return replace_members(body, path, {name: to_json(other_value).encode()})

    return None


def _other_argument_value(schema: Mapping[str, Any], value: Any) -> Any:
    """Return another value for an argument, a choice if it has choices; None if none is known."""
    choices = schema.get("enum")
    if isinstance(choices, list):
        other_choices = [choice for choice in choices if choice != value]
        return other_choices[0] if other_choices else None

    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1

    return f"{value}-2" if isinstance(value, str) else None


PROBE_AS_RECORDED: Final = Probe("accepted")
"""The recorded answers."""


@dataclass(slots=True, eq=False)
class ProbingScript:
    """Answers as recorded, but for the ask that is probed.

    Attributes:
        reply: the recorded answers to the ask; None until it is reached.
        next_ask: what is asked next after it.
        seen_asks: what was asked so far and has an answer, the probed ask included.
    """

    recorded: RecordedScript
    ask: ProbedAsk
    probe: Probe | None
    """None stops at the ask."""

    live_ask: LiveAsk | None = None
    reply: AskAnswer | None = None
    next_ask: LiveAsk | None = None
    seen_asks: list[LiveAsk] = field(default_factory=list)

    def is_still_asked(self, conversation: Conversation) -> bool:
        """Tell whether the server goes on asking what a probe has answered."""
        if self.live_ask is None or self.probe is PROBE_AS_RECORDED:
            return False
        return conversation.still_asks(self.live_ask)

    def reply_to_ask(self, ask: LiveAsk) -> Reply:
        """Answer an ask, or say why it is not answered."""
        if self.reply is not None:
            return self._reply_after_probe(ask)

        reply = self.recorded.reply_to_ask(ask)
        if ask.asks_nothing:
            return reply

        self.seen_asks.append(ask)
        if isinstance(reply, AskAnswer) and len(self.seen_asks) == self.ask.index:
            return self._reply_to_probed_ask(ask, reply)

        return reply

    def _reply_to_probed_ask(self, ask: LiveAsk, reply: AskAnswer) -> Reply:
        """Answer the ask that is probed."""
        self.live_ask = ask
        self.reply = reply
        if self.probe is None:
            return NeedsAnswers(ask)
        if self.probe.question is None:
            return reply

        live_key = self._live_key_of_question(ask, self.probe.question)
        return ask.with_answer(reply, live_key, self.probe.answer)

    def _live_key_of_question(self, ask: LiveAsk, question: str) -> str:
        """Return the live key of a recorded question."""
        if question not in self.ask.requests:
            return question

        # Where a task asks, its questions may have other keys, and come in another order.
        pairs = self.recorded.findings.complete_pairs
        recorded_keys = pairs[-1].keys if pairs else {}
        for name, live_key in ask.live_keys.items():
            if recorded_keys.get(name, name) == question:
                return live_key

        live_keys = list(ask.live_keys.values())
        place = list(self.ask.requests).index(question)
        return live_keys[place] if place < len(live_keys) else question

    def _reply_after_probe(self, ask: LiveAsk) -> Reply:
        """Go on with the recorded answers, as a server may decide only at the end."""
        reply = self.recorded.reply_to_ask(ask)
        if ask.asks_nothing:
            return reply if isinstance(reply, AskAnswer) else AskAnswer(None)

        if self.next_ask is None:
            self.next_ask = ask

        if isinstance(reply, AskAnswer):
            self.seen_asks.append(ask)

        return reply


# Requests of a probe as the recorded client would have sent them: branches of its recording


@dataclass(slots=True, eq=False)
class BranchRequests:
    """The requests of a conversation in which an ask gets answers that were not recorded.

    If the response to the call asks, the answers are a branch of the recorded call, and nothing
    before them is recorded again. If the server pushes its question, or a task asks, the call is
    recorded whole. An answer to a question that was not asked is no branch.
    """

    script: ProbingScript
    recorder: Recorder
    _is_begun: bool = field(default=False, init=False)

    def request_of_recorded_client(self, sent: Request) -> Request | None:
        """Return a request as the recorded client would have sent it; None leaves it out."""
        if not self._answers_recorded_ask:
            return None

        ask = self.script.ask
        call = read_call(sent)
        is_request = call.message is not None and call.message.kind is Kind.REQUEST
        if not is_request or call.method != ask.planned.call.method:
            return self._in_recorded_session(sent)

        recorded = ask.planned.call.request
        body = sent.body
        state = None
        if call.answers is not None:
            state = call.answers.request_state

        asked = self.script.live_ask
        if ask.via == "result" and asked is not None and not self._is_begun:
            body = with_answer_keys(body, _recorded_keys_by_live(ask, asked))
            state = self._recorded_state_for_live(ask, state)

        self._is_begun = True
        answers = spelled_at(body, ANSWERS_PATH)
        identity = spelled_at(body, ID_PATH)
        retry = write_retry(recorded.body, answers, state)
        retry = replace_members(retry, (), {"id": identity})

        return self._in_recorded_session(with_body(recorded, retry))

    @property
    def _answers_recorded_ask(self) -> bool:
        """Whether the answers are some to the recorded ask."""
        ask = self.script.ask
        probe = self.script.probe
        if probe is not None and probe.question not in ask.requests:
            return False

        return ask.via != "result" or _has_fitting_answer(ask, self.script.live_ask)

    def _recorded_state_for_live(self, ask: ProbedAsk, state: str | None) -> str | None:
        """Return the state that the recorded ask issued, for which the live one stands."""
        recorded = None if ask.turn.ask is None else ask.turn.ask.request_state
        if state is not None and recorded is not None:
            self.recorder.sealer.known_states.remember_state(recorded)
            self.recorder.sealer.known_states.remember_state(
                state, hashed_text=recorded
            )

        return recorded

    def _in_recorded_session(self, request: Request) -> Request:
        """Return a request with the target and the session of the recorded call."""
        planned = self.script.ask.planned
        session = planned.session
        if request.is_line:
            is_first = session == FIRST_SESSION
            return line_request(request.body, "" if is_first else session)

        request = replace(request, target=planned.call.request.target)
        if not request.header(SESSION_HEADER):
            return request

        return with_session_header(request, session)


def _has_fitting_answer(ask: ProbedAsk, asked: LiveAsk | None) -> bool:
    """Tell whether a live ask was reached, and its answer fits the recorded one."""
    if asked is None or ask.turn.ask is None:
        return False

    has_state = ask.turn.ask.request_state is not None
    has_keys = len(asked.live_keys) == len(ask.requests)
    return has_keys and has_state == (asked.request_state is not None)


def _recorded_keys_by_live(ask: ProbedAsk, asked: LiveAsk) -> dict[str, str | None]:
    """Return the recorded keys of questions by the live ones that differ."""
    names: dict[str, str | None] = {}
    for live, recorded in zip(asked.live_keys.values(), ask.requests, strict=False):
        if live != recorded and recorded not in asked.live_keys.values():
            names[live] = recorded

    return names
