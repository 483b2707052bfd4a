"""Verdicts on a live server's reactions to answers that were not recorded."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.compare.responses import (
    TASK_POINTER,
    is_failure,
    outcome_value,
    question_changes,
    response_changes,
)
from mrtr_cassette.core.compare.values import (
    Change,
    without_ignored_changes,
    word_places,
)
from mrtr_cassette.core.drive.conversation import (
    AskedOtherwise,
    Conversation,
    FinishedCall,
    LiveAsk,
    NeedsAnswers,
)
from mrtr_cassette.core.drive.live_session import with_id_of
from mrtr_cassette.core.drive.probing import (
    EXTRA_PROBES,
    PROBE_CANCELLED,
    PROBE_DECLINED,
    PROBE_REPEATED,
    PROBE_UNASKED,
    PROBE_URL_ACCEPTED,
    Probe,
    ProbedAsk,
    ProbingScript,
)
from mrtr_cassette.core.wire.jsonbytes import canonical, to_json

ProbeVerdict = Literal[
    "refused",
    "ignored",
    "changed",
    "undecidable",
    "not-reached",
    "unprotected",
    "repeatable",
    "acted",
    "crashed",
]
PROBE_VERDICTS: Final[tuple[ProbeVerdict, ...]] = get_args(ProbeVerdict)
FINDING_VERDICTS: Final = frozenset({"acted", "crashed"})
_CHANGE_IS_FINDING: Final = EXTRA_PROBES | {PROBE_REPEATED}
"""Probes for which anything but the accept's result, or a refusal, is a finding."""

_SENT_AND_ACCEPTING_ACTIONS: Final = {
    PROBE_DECLINED: ("decline", "accept"),
    PROBE_CANCELLED: ("cancel", "accept"),
}
"""The action that a probe sends, and the one in its place that accepts."""

_LOWEST_SERVER_ERROR: Final = 500
_STACK_TRACE: Final = re.compile(
    r"Traceback \(most recent call last\)"
    r"|goroutine [0-9]+ \["
    r"|thread '[^']*' (\([0-9]+\) )?panicked at"
    r"|\\n\s*at \S.{0,200}?:(line )?[0-9]+"
)
"""A stack trace of Python, Go, Rust, JavaScript, Java or C#, in JSON."""


@dataclass(frozen=True, slots=True, eq=False)
class Reaction:
    """What a live server did with an answer: it ended the call, broke down, or still asks.

    Attributes:
        ask: what it asks in the end, if that has no recorded answer.
        problem: why nothing came that could be compared.
        next_ask: what it asked next after the answer.
    """

    exchange: RecordedExchange | None = None
    ask: LiveAsk | None = None
    problem: str | None = None
    next_ask: LiveAsk | None = None

    @property
    def compared_value(self) -> Any:
        """What it said: the outcome of the call, or what it asks."""
        if self.ask is not None:
            return {"inputRequests": self.ask.question}
        return None if self.exchange is None else outcome_value(self.exchange)


def reaction_of_conversation(
    conversation: Conversation, next_ask: LiveAsk | None
) -> Reaction:
    """Return what came of an answer; `next_ask` is the question that came next, if one did."""
    stopping_point = conversation.stopping_point
    if isinstance(stopping_point, NeedsAnswers | AskedOtherwise):
        return Reaction(
            stopping_point.ask.exchange, stopping_point.ask, next_ask=next_ask
        )
    if isinstance(stopping_point, FinishedCall):
        exchange = stopping_point.exchange
        if exchange.response is not None:
            return Reaction(exchange, next_ask=next_ask)

    return Reaction(problem="no response came")


def reaction_changes(before: Reaction, after: Reaction) -> list[Change] | None:
    """Return the differences of two reactions that count.

    None means that they can't be compared: only one of them asks, or one has no response.
    """
    if before.exchange is None or after.exchange is None:
        return None
    if (before.ask is None) != (after.ask is None):
        return None

    if before.ask is not None and after.ask is not None:
        changes = question_changes(before.ask.question, after.ask.question)
        return [change for change in changes if change.verdict != "key-changed"]

    live = with_id_of(before.exchange.call, after.exchange)
    # The same result may come with a task or without one.
    changes = without_ignored_changes(
        response_changes(before.exchange, live), (TASK_POINTER,)
    )
    return [change for change in changes if not change.is_information]


def is_same_reaction(
    before: Reaction,
    after: Reaction,
    ignored: Collection[str] = (),
    swapped: tuple[Any, Any] | None = None,
) -> bool:
    """Tell whether two reactions are the same, but for places that don't count.

    `swapped` are two values of which the first one was sent after, and the second one before.
    """
    changes = reaction_changes(before, after)
    if changes is None:
        return False

    for change in without_ignored_changes(changes, ignored):
        if swapped is None or not _does_reaction_repeat_sent_value(change, *swapped):
            return False

    return True


def _does_reaction_repeat_sent_value(change: Change, sent: Any, accepted: Any) -> bool:
    """Tell whether a value differs only because it repeats another value that was sent."""
    if change.recorded is None or change.received is None:
        return False

    recorded_text = change.recorded.strip('"')
    for sent_spelling in _spellings_in_json(sent):
        if not sent_spelling:
            continue

        for accepted_spelling in _spellings_in_json(accepted):
            with_accepted_value = change.received.replace(
                sent_spelling, accepted_spelling
            )
            if with_accepted_value.strip('"') == recorded_text:
                return True

    return False


def _spellings_in_json(value: Any) -> Iterator[str]:
    """Yield how results may spell a value, within JSON."""
    if isinstance(value, list) and value:
        for text in _spellings_in_json(value[0]):
            yield f"['{text}']"
            yield f'[\\"{text}\\"]'

    if isinstance(value, str):
        yield canonical(value).strip('"')
    else:
        yield to_json(value)
        yield to_json(value).capitalize()


def varying_places(first: Reaction, second: Reaction) -> tuple[str, ...]:
    """Return the places in which two reactions to the same answers differ."""
    places = []
    for change in reaction_changes(first, second) or ():
        places += word_places(change)

    return tuple(places)


@dataclass(slots=True, eq=False)
class Baseline:
    """What a live server does with the answers that are known.

    Attributes:
        accepted_reaction: its reaction to the recorded answers.
        script: what it asked until then, and how that was answered.
        ignored: places that don't count.
        declining_reactions: its reactions to declined and cancelled questions, by probe and key.
    """

    ask: ProbedAsk
    accepted_reaction: Reaction
    script: ProbingScript
    ignored: tuple[str, ...] = ()
    declining_reactions: dict[tuple[str, str | None], Reaction] = field(
        default_factory=dict
    )

    @property
    def has_state(self) -> bool:
        """Whether the server sends a state with the ask."""
        asked = self.script.live_ask
        return asked is not None and asked.request_state is not None

    @property
    def is_accepted(self) -> bool:
        """Whether the live server accepts what was accepted in the recording."""
        accepted_reaction = self.accepted_reaction
        return accepted_reaction.problem is None and not self.is_refusal(
            accepted_reaction
        )

    def is_refusal(self, reaction: Reaction) -> bool:
        """Tell whether a reaction is an error, or a question that was asked before."""
        if self.is_question_asked_again(reaction):
            return True
        if reaction.ask is not None or reaction.exchange is None:
            return False
        return is_failure(reaction.exchange)

    def is_question_asked_again(self, reaction: Reaction) -> bool:
        """Tell whether the server asks something again, at once or in the end."""
        earlier_asks = self.script.seen_asks
        until_answer = earlier_asks[: self.ask.index]
        next_ask = reaction.next_ask
        if next_ask is not None and _was_asked_before(next_ask, until_answer):
            return True
        if reaction.ask is None or reaction.ask is next_ask:
            return False

        return _was_asked_before(reaction.ask, earlier_asks)

    def does_declining_differ(self, probe: Probe) -> bool:
        """Tell whether declining, live or as recorded, gives something else than accepting."""
        recorded = self.ask.planned.interaction.ending_exchange
        for interaction in self.ask.declined_interactions:
            if outcome_value(interaction.ending_exchange) != outcome_value(recorded):
                return True

        for (name, key), reaction in self.declining_reactions.items():
            is_itself = (name, key) == (probe.name, probe.question)
            is_of_another = not probe.is_about_state and key != probe.question
            if is_itself or (is_of_another and probe.name not in EXTRA_PROBES):
                continue

            swapped = None
            if probe.name == PROBE_URL_ACCEPTED:
                # A server that only repeats the answer has not acted on a visit.
                swapped = _SENT_AND_ACCEPTING_ACTIONS[name]

            if not is_same_reaction(
                self.accepted_reaction, reaction, self.ignored, swapped
            ):
                return True

        return False

    def is_declined(self, reaction: Reaction) -> bool:
        """Tell whether a reaction is the one to a question that was declined or cancelled."""
        for declining_reaction in self.declining_reactions.values():
            if is_same_reaction(declining_reaction, reaction, self.ignored):
                return True

        return False

    @property
    def are_recorded_answers_turned_down(self) -> bool:
        """Whether the recorded answers give what declining gives now, and gave something else."""
        recorded = Reaction(self.ask.planned.interaction.ending_exchange)
        is_as_recorded = is_same_reaction(
            recorded, self.accepted_reaction, self.ignored
        )
        return self.is_declined(self.accepted_reaction) and not is_as_recorded

    def reactions_told_with_probe(
        self, probe: Probe, reaction: Reaction
    ) -> dict[str, Any]:
        """Return the reactions that are told with a probe, by the names of their members."""
        values = {
            "received": reaction.compared_value,
            "accepted": self.accepted_reaction.compared_value,
        }
        for (_, key), declining_reaction in self.declining_reactions.items():
            if probe.question in (None, key):
                values.setdefault("declined", declining_reaction.compared_value)

        return values


def _was_asked_before(ask: LiveAsk, earlier: Iterable[LiveAsk]) -> bool:
    """Tell whether a server has asked the same before."""
    reaction = Reaction(ask.exchange, ask)
    for earlier_ask in earlier:
        if is_same_reaction(Reaction(earlier_ask.exchange, earlier_ask), reaction):
            return True

    return False


def crash_in_words(reaction: Reaction) -> str | None:
    """Return how the server broke down; None if it didn't."""
    if reaction.problem is not None:
        return reaction.problem

    exchange = reaction.exchange
    if exchange is None or exchange.response is None or reaction.ask is not None:
        return None

    response = exchange.response
    if not response.is_lines and response.status >= _LOWEST_SERVER_ERROR:
        return f"HTTP {response.status}"
    if _STACK_TRACE.search(canonical(outcome_value(exchange))):
        return "its text has a stack trace"

    return None


def verdict_and_reason(
    probe: Probe, baseline: Baseline, reaction: Reaction
) -> tuple[ProbeVerdict, str | None]:
    """Return the verdict on a reaction to a probe, and the reason if it needs one."""
    crash = crash_in_words(reaction)
    if crash is not None and crash != crash_in_words(baseline.accepted_reaction):
        return "crashed", crash
    if baseline.is_question_asked_again(reaction):
        return "refused", "it asks again"
    if baseline.is_refusal(reaction):
        return "refused", None
    if is_same_reaction(
        baseline.accepted_reaction, reaction, baseline.ignored, probe.sent_and_accepted
    ):
        return _judged_as_accepted(probe, baseline)

    return _judged_as_changed(probe, baseline, reaction)


def _judged_as_changed(
    probe: Probe, baseline: Baseline, reaction: Reaction
) -> tuple[ProbeVerdict, str | None]:
    """Return the verdict on another reaction than to the recorded answers, and no error."""
    if probe.name in _CHANGE_IS_FINDING:
        return "changed", "the result is not the one of the recorded answers"
    if probe.name in (PROBE_DECLINED, PROBE_CANCELLED):
        return "refused", None
    if baseline.is_declined(reaction):
        return "refused", "as if declined"

    return "changed", None


def _judged_as_accepted(
    probe: Probe, baseline: Baseline
) -> tuple[ProbeVerdict, str | None]:
    """Return the verdict on the same reaction as to the recorded answers."""
    if probe.name in EXTRA_PROBES:
        return "ignored", None
    if probe.name == PROBE_REPEATED:
        return "repeatable", None
    if probe.name == PROBE_URL_ACCEPTED and baseline.are_recorded_answers_turned_down:
        return "refused", "as if declined"
    if not baseline.does_declining_differ(probe):
        return "undecidable", "accepting and declining give the same"
    # A task tells the server what it has asked, too.
    needs_state = baseline.ask.via == "result"
    if probe.name == PROBE_UNASKED and needs_state and not baseline.has_state:
        return "unprotected", "the server sends no state with its question"

    return "acted", None


@dataclass(frozen=True, slots=True)
class Probed:
    """What came of one probe.

    Attributes:
        number: the recorded call's number in the cassette, from 1.
        expected: why a finding was expected, as the user says.
        sent: the answer that was sent, or words for what a probe of states sends.
        also: the other places where the same was found, among findings.
    """

    number: int
    call: str
    tool: str
    turn: int
    question: str | None
    probe: str
    verdict: ProbeVerdict
    reason: str | None = None
    sent: str = ""
    received: str | None = None
    accepted: str | None = None
    declined: str | None = None
    is_finding: bool = False
    expected: str | None = None
    also: tuple[str, ...] = ()

    @property
    def is_found(self) -> bool:
        """Whether it is a finding, expected or not."""
        return self.is_finding or self.expected is not None

    @property
    def place(self) -> str:
        """The call's number and the turn in which it was made."""
        return f"#{self.number}, turn {self.turn}"


def probe_outcome(
    ask: ProbedAsk,
    probe: Probe,
    verdict: ProbeVerdict,
    reason: str | None,
    fail_on: Collection[str] = (),
    values: Mapping[str, Any] | None = None,
) -> Probed:
    """Return what came of a probe; `values` are the reactions that are told with it."""
    values_as_text: dict[str, Any] = {}
    for name, value in (values or {}).items():
        values_as_text[name] = canonical(value)

    is_finding = verdict in FINDING_VERDICTS or verdict in fail_on
    if verdict == "changed":
        is_finding = probe.name in _CHANGE_IS_FINDING

    return Probed(
        ask.planned.interaction.number,
        ask.planned.call.title,
        ask.tool,
        ask.turn.number,
        ask.turn.names_by_key.get(probe.question or "", probe.question),
        probe.name,
        verdict,
        reason,
        probe.sent_in_words,
        is_finding=is_finding,
        **values_as_text,
    )
