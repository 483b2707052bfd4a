"""Requests of a probe as the recorded client would have sent them: branches of its recording."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from mrtr_cassette.core.cassette.transports import FIRST_SESSION
from mrtr_cassette.core.drive.conversation import LiveAsk
from mrtr_cassette.core.drive.live_session import in_session, with_body
from mrtr_cassette.core.drive.probing import ProbedAsk, ProbingScript
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.protocol.dialect import (
    ANSWERS_PATH,
    with_answer_keys,
    write_retry,
)
from mrtr_cassette.core.protocol.jsonrpc import ID_PATH, Kind
from mrtr_cassette.core.record.recorder import Recorder
from mrtr_cassette.core.wire.http import SESSION_HEADER, Request, line_request
from mrtr_cassette.core.wire.jsonbytes import replace_members, spelled_at


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

    def as_recorded(self, sent: Request) -> Request | None:
        """Return a request as the recorded client would have sent it; None leaves it out."""
        if not self._is_branch:
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

        asked = self.script.asked
        if ask.via == "result" and asked is not None and not self._is_begun:
            body = with_answer_keys(body, _recorded_keys(ask, asked))
            state = self._recorded_state(ask, state)

        self._is_begun = True
        answers = spelled_at(body, ANSWERS_PATH)
        identity = spelled_at(body, ID_PATH)
        retry = write_retry(recorded.body, answers, state)
        retry = replace_members(retry, (), {"id": identity})
        return self._in_recorded_session(with_body(recorded, retry))

    @property
    def _is_branch(self) -> bool:
        """Whether the answers are some to the recorded ask."""
        ask = self.script.ask
        probe = self.script.probe
        if probe is not None and probe.question not in ask.requests:
            return False

        return ask.via != "result" or _is_fit(ask, self.script.asked)

    def _recorded_state(self, ask: ProbedAsk, state: str | None) -> str | None:
        """Return the state that the recorded ask issued, for which the live one stands."""
        recorded = None if ask.turn.ask is None else ask.turn.ask.request_state
        if state is not None and recorded is not None:
            self.recorder.known.remember(recorded)
            self.recorder.known.remember(state, shown_as=recorded)

        return recorded

    def _in_recorded_session(self, request: Request) -> Request:
        planned = self.script.ask.planned
        session = planned.session
        if request.is_line:
            is_first = session == FIRST_SESSION
            return line_request(request.body, "" if is_first else session)

        request = replace(request, target=planned.call.request.target)
        if not request.header(SESSION_HEADER):
            return request

        return in_session(request, session)


def _is_fit(ask: ProbedAsk, asked: LiveAsk | None) -> bool:
    """Tell whether a live ask was reached, and its answer fits the recorded one."""
    if asked is None or ask.turn.ask is None:
        return False

    has_state = ask.turn.ask.request_state is not None
    has_keys = len(asked.live_keys) == len(ask.requests)
    return has_keys and has_state == (asked.request_state is not None)


def _recorded_keys(ask: ProbedAsk, asked: LiveAsk) -> dict[str, str | None]:
    """Return the recorded keys of questions by the live ones that differ."""
    names: dict[str, str | None] = {}
    for live, recorded in zip(asked.live_keys.values(), ask.requests, strict=False):
        if live != recorded and recorded not in asked.live_keys.values():
            names[live] = recorded

    return names
