"""Answering what a call is asked, round by round, from sources that are tried in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.answers.forms import (
    AskedQuestion,
    AskedTurn,
    CallTurn,
    UnansweredQuestion,
    elicitation_answer,
    must_be_answered,
    problem_of_answer,
    with_defaults,
)
from mrtr_cassette.core.answers.written import AnswersFile, GivenAnswers
from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.drive.conversation import (
    AskAnswer,
    AskedOtherwise,
    LiveAsk,
    NeedsAnswers,
)
from mrtr_cassette.core.protocol.dialect import (
    DIALECTS,
    ELICITATION_KINDS,
    INPUT_RESPONSES,
    RESULT_KINDS,
    RESULT_TYPE,
    InputRequest,
    answers_in,
)
from mrtr_cassette.core.secrets.names import sha256_of
from mrtr_cassette.core.wire.jsonbytes import (
    MemberPath,
    canonical,
    find_spans,
    parse,
    to_json,
)
from mrtr_cassette.core.wire.pointers import members_of
from mrtr_cassette.errors import NotJsonError, printable, shorten

_ALL_KINDS: Final = ELICITATION_KINDS | RESULT_KINDS
LARGEST_REPLY: Final = 16 * 1024 * 1024
"""Bytes of a reply; sampled images are large, and nothing else is."""


@dataclass(frozen=True, slots=True)
class AnswerSources:
    """Who answers: the call's own answers, an answers file, and perhaps a person."""

    given: GivenAnswers = field(default_factory=GivenAnswers)
    file: AnswersFile = field(default_factory=AnswersFile)
    has_person: bool = False

    @property
    def declared_kinds(self) -> frozenset[str]:
        """The kinds of requests that a client with these sources declares.

        Without any it declares all, as a server never asks what is not declared, and what it asks
        is to be shown.
        """
        kinds = self.file.answerable_kinds() | self.given.answerable_kinds
        if self.has_person or not kinds:
            return _ALL_KINDS
        return _ALL_KINDS & kinds


Awaited = bytes | tuple[str, InputRequest] | float
"""What is waited for: the endpoint's reply to a body, or why there is none; a person's answer to a
form, a URL or a value, with its key, or None; or some seconds."""


class Answer(NamedTuple):
    """An answer, and who gave it: `call`, `rule 3`, `rest`, `person` or `otherwise`."""

    value: Any
    answered_by: str


class _WrongAnswerError(Exception):
    """A source answers a request wrongly; with the key, and what is wrong."""


Fulfilment = Generator[Awaited, Any, Mapping[str, Answer] | UnansweredQuestion]
"""One ask on its way to its answers by key, from which optional ones may be missing."""


def answer_from_sources(asked: AskedTurn, sources: AnswerSources) -> Fulfilment:
    """Answer an ask from sources; whoever has to be waited for is yielded.

    The call's own answers come first, then rules, endpoint, person, and what happens otherwise. A
    source that answers wrongly is a fault; the next one is not asked in its place.
    """
    ask_in_progress = _AskInProgress(asked, sources)
    try:
        ask_in_progress.answer_by_call_and_rules()
        yield from ask_in_progress.answer_by_endpoint()
        yield from ask_in_progress.answer_by_person()
    except _WrongAnswerError as fault:
        key, detail = fault.args
        return UnansweredQuestion(asked, key, detail, is_fault=True)

    return ask_in_progress.answers_or_unanswered_question()


class _AskInProgress:
    """One ask, and the answers to it so far."""

    def __init__(self, asked: AskedTurn, sources: AnswerSources) -> None:
        self._asked_turn = asked
        self._questions = asked.questions()
        self._sources = sources
        self._answers: dict[str, Answer] = {}

    def _take_answer_of_source(self, key: str, value: Any, source: str) -> None:
        """Take a source's answer, with the form's defaults, or raise a fault if it doesn't fit."""
        request = self._asked_turn.requests[key]
        completed_answer = with_defaults(request, value)
        problem = problem_of_answer(request, completed_answer)
        if problem is not None:
            raise _WrongAnswerError(
                key, f"the answer ({source}) doesn't fit: {problem}"
            )

        self._answers[key] = Answer(completed_answer, source)

    def _open_questions(self) -> list[AskedQuestion]:
        """Return the questions that have no answer so far."""
        open_questions = []
        for question in self._questions:
            if question.key not in self._answers:
                open_questions.append(question)

        return open_questions

    def answer_by_call_and_rules(self) -> None:
        """Answer what the call or a rule has an answer to."""
        # All of them first: whatever fault one has, the names of the others were asked for.
        answers_of_call = list(
            map(self._sources.given.answer_to_question, self._questions)
        )
        for question, answer in zip(self._questions, answers_of_call, strict=True):
            if answer is not None:
                self._take_answer_of_source(question.key, answer, "call")
                continue

            numbered_rule = self._sources.file.rule_for(self._asked_turn, question)
            if numbered_rule is not None:
                number, rule = numbered_rule
                self._take_answer_of_source(
                    question.key, rule.answer_of_rule(), f"rule {number}"
                )

    def answer_by_endpoint(self) -> Generator[Awaited, Any, None]:
        """Let the endpoint of the file answer what is missing."""
        open_questions = self._open_questions()
        if not open_questions or self._sources.file.rest is None:
            return

        open_part_of_turn = replace(
            self._asked_turn,
            requests={item.key: item.request for item in open_questions},
        )
        reply = yield to_json(open_part_of_turn.data_for_programs()).encode()
        answers = _answers_in_endpoint_reply(open_part_of_turn, reply)
        if isinstance(answers, str):
            raise _WrongAnswerError(
                open_questions[0].key, f"the endpoint gives no answer: {answers}"
            )

        for key, value in answers.items():
            self._take_answer_of_source(key, value, "rest")

    def answer_by_person(self) -> Generator[Awaited, Any, None]:
        """Let a person answer what is missing and can be typed."""
        if not self._sources.has_person:
            return

        for question in self._open_questions():
            request = question.request
            if not request.takes_bare_value and request.kind not in ELICITATION_KINDS:
                continue

            value = yield question.key, request
            if value is not None:
                self._take_answer_of_source(question.key, value, "person")

    def answers_or_unanswered_question(
        self,
    ) -> Mapping[str, Answer] | UnansweredQuestion:
        """Return the answers in the order of the questions, or which one has none."""
        action = self._sources.file.otherwise
        for question in self._open_questions():
            request = question.request
            is_elicitation = request.kind in ELICITATION_KINDS
            can_refuse = is_elicitation and not request.takes_bare_value
            if can_refuse and action != "fail":
                self._answers[question.key] = Answer(
                    elicitation_answer(action), "otherwise"
                )
            elif must_be_answered(request):
                return self._question_without_answer(question)

        answers = {}
        for question in self._questions:
            if question.key in self._answers:
                answers[question.key] = self._answers[question.key]

        return answers

    def _question_without_answer(self, question: AskedQuestion) -> UnansweredQuestion:
        """Return that nothing answers a question, with an example of answers for the call."""
        given = self._sources.given
        detail = "nothing answers it"
        spent_name = given.spent_name(question)
        if spent_name:
            detail = (
                f"nothing answers it: the answer {spent_name!r} is for one question, "
                "and was given before"
            )

        example = given.example_for(question, is_alone=len(self._questions) == 1)
        return UnansweredQuestion(self._asked_turn, question.key, detail, example)


def _answers_in_endpoint_reply(
    asked: AskedTurn, reply: bytes | str
) -> Mapping[str, Any] | str:
    """Return the answers of an endpoint's reply by key, or why it gives none."""
    if isinstance(reply, str):
        return reply

    try:
        tree = parse(reply)
    except NotJsonError:
        return "its reply is not JSON"

    answers = answers_in(members_of(tree))
    if answers is None or answers.input_responses is None:
        return f"its reply has no `{INPUT_RESPONSES}`"

    repeated = _repeated_member_of_reply(reply, tree[INPUT_RESPONSES])
    if repeated is not None:
        return f"it has {repeated} twice"

    for key in answers.input_responses:
        if key not in asked.requests:
            return f"it answers {key!r}, which was not asked"

    return answers.input_responses


def _repeated_member_of_reply(reply: bytes, responses: Any) -> str | None:
    """Return what a reply has more than once, or None."""
    if isinstance(responses, list):
        counts = Counter(repr(item.get("id")) for item in responses)
        return next((key for key, count in counts.items() if count > 1), None)

    top = (INPUT_RESPONSES,)
    paths: list[MemberPath] = [top]
    for key in members_of(responses):
        paths.append((INPUT_RESPONSES, key))

    places = Counter(path for path, _ in find_spans(reply, paths))
    for path, count in places.items():
        if count > 1:
            return f"`{INPUT_RESPONSES}`" if path == top else repr(path[1])

    return None


# Rounds

# As in the TypeScript SDK's client (pull request 2313 of modelcontextprotocol/typescript-sdk).
MOST_ROUNDS: Final = 10
PACE_S: Final = 0.25
"""Seconds before a retry that has nothing to answer, so that no server is asked without a pause."""

_ASKING_RESULT_TYPES: Final = frozenset(
    dialect.result_type for dialect in DIALECTS if dialect.result_type
)


class LeavesToSources:
    """The script of a call whose every question is for the sources."""

    def reply_to_ask(self, ask: LiveAsk) -> AskAnswer | NeedsAnswers | AskedOtherwise:
        """Leave it to them; a task that is only created asks nothing."""
        if ask.asks_nothing:
            return AskAnswer(None)
        return NeedsAnswers(ask)


@dataclass(slots=True)
class Rounds:
    """The rounds of one call; what nobody may answer, or more rounds than allowed, end it."""

    sources: AnswerSources
    turns: list[CallTurn] = field(default_factory=list)
    unanswered: UnansweredQuestion | None = None
    overrun: bool = False

    def answer_ask(self, ask: LiveAsk) -> Generator[Awaited, Any, AskAnswer | None]:
        """Take an ask; return the answer to send, or None if the call ends here."""
        if ask.turn > MOST_ROUNDS:
            self.overrun = True

        if self.overrun or self.unanswered is not None:
            return None

        asked = self._turn_with_numbered_questions(ask)
        if not asked.requests:
            yield PACE_S

        outcome = yield from answer_from_sources(asked, self.sources)
        if isinstance(outcome, UnansweredQuestion):
            self.turns.append(_call_turn_with_answers(ask, asked.requests, {}))
            return self._end_call_or_refuse_roots(ask, outcome)

        turn = _call_turn_with_answers(ask, asked.requests, outcome)
        self.turns.append(turn)
        return ask.answers_in_server_form(turn.answers)

    def _end_call_or_refuse_roots(
        self, ask: LiveAsk, unanswered: UnansweredQuestion
    ) -> AskAnswer | None:
        """End the call at an unanswered ask, or refuse a request for roots and go on."""
        request = unanswered.asked.requests[unanswered.key]
        if request.kind == "roots" and not unanswered.is_fault:
            # It is about the client, whatever call is pending.
            refusal = ask.answer_if_nobody_answers
            if refusal is not None:
                return refusal

        self.unanswered = unanswered
        return None

    def _turn_with_numbered_questions(self, ask: LiveAsk) -> AskedTurn:
        """Return the requests of an ask with their call, numbered after those of earlier turns."""
        call = ask.call
        params = {} if call.message is None else call.message.params
        first = 1
        for turn in self.turns:
            first += len(turn.requests)

        return AskedTurn(
            call.method,
            call.name,
            params.get("arguments"),
            ask.turn,
            ask.requests,
            first,
        )


def _call_turn_with_answers(
    ask: LiveAsk, requests: Mapping[str, InputRequest], answers: Mapping[str, Answer]
) -> CallTurn:
    """Return a turn with its requests and answers, who gave these, and the hash of its state."""
    values = {}
    sources = {}
    for key, answer in answers.items():
        values[key] = answer.value
        sources[key] = answer.answered_by

    state_sha256 = None
    if ask.request_state is not None:
        state_sha256 = sha256_of(ask.request_state)

    return CallTurn(ask.turn, ask.via, requests, values, sources, state_sha256)


def outcome_of(method: str, exchange: RecordedExchange) -> Mapping[str, Any]:
    """Return what a call came to, by its last response: its `result`, or its `error`."""
    state = exchange.polled_state
    if state is None or method == exchange.call.method:
        return exchange.rpc_members
    return state.response


def why_no_outcome(method: str, exchange: RecordedExchange) -> str | None:
    """Return why the last response of a call is no outcome; None where it is one."""
    state = exchange.polled_state
    if state is not None and not outcome_of(method, exchange):
        fault = f"its task ended as {state.status}"
        reason = state.tree.get("statusMessage")
        if reason:
            fault += f": {reason}"

        return fault

    members = exchange.rpc_members
    if not members:
        status = 0 if exchange.response is None else exchange.response.status
        return f"the response is not a JSON-RPC response (HTTP {status})"

    if members_of(members.get("result")).get(RESULT_TYPE) in _ASKING_RESULT_TYPES:
        return "the server asks for input in an unknown form"

    for name, value in outcome_of(method, exchange).items():
        if name in ("result", "error") and not isinstance(value, dict):
            shown = shorten(printable(canonical(value)))
            return f"the {name} is not an object: {shown}"

    return None
