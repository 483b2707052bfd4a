"""The open questions of a live server in this run."""

from __future__ import annotations

from mrtr_cassette.core.protocol.calls import Call, CallKey
from mrtr_cassette.core.protocol.dialect import InputRequired


class LiveAsks:
    """The unanswered asks without state that a live server has made in this run.

    Their answers could be confused with answers to a recorded ask of the same call, which may have
    asked something else.
    """

    def __init__(self) -> None:
        self._open: dict[CallKey, list[frozenset[str]]] = {}

    def asked(self, key: CallKey, ask: InputRequired) -> None:
        """Take what a live server asked during a call with this key."""
        if ask.request_state is None:
            self._open.setdefault(key, []).append(frozenset(ask.input_requests))

    def answered_by(self, call: Call) -> bool:
        """Tell whether a request may answer one of them, which is answered then."""
        answers = call.answers
        if answers is None or answers.request_state is not None:
            return False
        key = call.key()
        for keys in self._open.get(key, ()):
            if keys >= set(answers.input_responses or ()):
                self._open[key].remove(keys)
                return True
        return False
