"""Bringing a live server to the recorded ask that a client's retry answers.

A retry that isn't recorded answers an ask of the cassette, whose state no live server knows. So
the recorded conversation is repeated with it, from the first request to the ask, and the retry goes
on with the state that the server issues now.

Owns: which recorded ask a retry answers, and the retry with the live state in it.
Does not own: the conversation (`conversation`), the recorded answers (`recorded_script`).
Rule: the retry is the client's own; only the request state in it is another one.
"""

from __future__ import annotations

from json.encoder import encode_basestring_ascii

from mrtr_cassette.core.drive.conversation import AskedOtherwise, Conversation, Finished
from mrtr_cassette.core.drive.recorded_script import RecordedScript
from mrtr_cassette.core.drive.server_session import ServerSession, with_body
from mrtr_cassette.core.drive.unrecorded import Unrecorded, outcome
from mrtr_cassette.core.protocol.calls import Call
from mrtr_cassette.core.protocol.dialect import ECHOED_STATE_PATH
from mrtr_cassette.core.record.recorder import Recorder
from mrtr_cassette.core.replay.playable import Playable
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.states import SHORTEST_SEARCHED
from mrtr_cassette.core.secrets.surrogates import STATE_SURROGATE
from mrtr_cassette.core.wire.http import SESSION_HEADER, Request
from mrtr_cassette.core.wire.jsonbytes import find_spans, parse, splice


class RecordedAsks:
    """The asks of a cassette that issued a state, by this state."""

    def __init__(self, player: Player, redactor: Redactor | None) -> None:
        """Find them; what the live server says will be redacted as what was recorded is."""
        self._player = player
        self._redactor = redactor
        self._askers: dict[str, list[Playable]] = {}
        for own in player.interactions:
            for playable in own:
                if playable.ask is not None and playable.ask.request_state is not None:
                    self._askers.setdefault(playable.ask.request_state, []).append(playable)

    def catch_up_for(self, call: Call, shown: Call) -> CatchUp | Unrecorded | None:
        """Return how the server is brought to the ask that a request answers.

        None stands for a request that can be sent as it is: one without state, or with a state
        that a server issued.

        Args:
            call: the request as it would be sent.
            shown: the same as it is matched, and as messages may show it.
        """
        answers = call.answers
        state = None if answers is None else answers.request_state
        if state is None:
            return None
        # What a client adds to a state goes to the server too, to be refused there.
        within = [issued for issued in self._askers if _is_within(issued, state)]
        if within:
            issued = max(within, key=len)
            askers = self._askers[issued]
            key = self._player.key_of(shown)
            asker = next((asker for asker in askers if asker.key == key), None)
            if asker is None:
                detail = "its request state was recorded for another call"
                return Unrecorded(shown, detail, askers[0])
            script = RecordedScript([each.exchange for each in _chain(asker)])
            if script.problem is not None:
                return Unrecorded(shown, script.problem, asker)
            recorder = Recorder(seals=True, redactor=self._redactor)
            return CatchUp(call, shown, asker, script, recorder)
        if STATE_SURROGATE.search(state):
            return Unrecorded(shown, "no ask in this cassette has its request state")
        return None


def _is_within(issued: str, state: str) -> bool:
    """Tell whether a state is a recorded one, with or without something added."""
    return issued == state or (len(issued) >= SHORTEST_SEARCHED and issued in state)


def _chain(asker: Playable) -> list[Playable]:
    """Return the exchanges of an interaction up to one of them."""
    chain = [asker]
    while chain[0].parent is not None:
        chain.insert(0, chain[0].parent)
    return chain


class CatchUp(Conversation):
    """One recorded conversation, repeated with the live server up to an ask.

    Attributes:
        asker: the recorded exchange whose ask the retry answers.
        states: the states that the server has issued so far.
    """

    def __init__(
        self, call: Call, shown: Call, asker: Playable, script: RecordedScript, recorder: Recorder
    ) -> None:
        """Begin with the call that the retry `call` repeats; messages may show it as `shown`."""
        session = ServerSession(recorder, call.request.header(SESSION_HEADER))
        super().__init__(call.request, script, session)
        self.asker = asker
        self.states = script.states
        self._retry = call.request
        self._shown = shown

    @property
    def failure(self) -> Unrecorded | None:
        """Why the server can't be brought there, or None."""
        match self.standing:
            case Finished(turn, exchange):
                detail = f"the live server asks nothing in turn {turn}: {outcome(exchange)}"
                return Unrecorded(self._shown, detail, self._asker_of(turn))
            case AskedOtherwise(ask, changes):
                detail = f"the live server asks something else in turn {ask.turn}"
                differences = tuple(change.difference for change in changes)
                return Unrecorded(self._shown, detail, self._asker_of(ask.turn), differences)
            case _:
                return None

    def _asker_of(self, turn: int) -> Playable:
        return _chain(self.asker)[turn - 1]

    def retry(self) -> Request:
        """Return the client's retry with the live state in the place of the recorded one."""
        body = self._retry.body
        live, recorded = self.states[-1]
        replacements = []
        for span in find_spans(body, [ECHOED_STATE_PATH])[ECHOED_STATE_PATH]:
            value = parse(body[span.start : span.end])
            if isinstance(value, str):
                value = value.replace(recorded, live)
                replacements.append((span, encode_basestring_ascii(value).encode()))
        return with_body(self._retry, splice(body, replacements))
