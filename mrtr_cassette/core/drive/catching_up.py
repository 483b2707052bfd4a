"""Bringing a live server to where a client of the cassette is.

A retry that isn't recorded answers an ask of the cassette, whose state no live server knows. So
the recorded conversation is repeated with it, from the first request to the ask, and the retry goes
on with the state that the server issues now. The same holds for the page of a list that isn't
recorded, and the cursor that a recorded page issued.

Rule: the request is the client's own; only the request state or the cursor in it is another one.
"""

from __future__ import annotations

from json.encoder import encode_basestring_ascii

from mrtr_cassette.core.drive.conversation import AskedOtherwise, Conversation, Finished
from mrtr_cassette.core.drive.recorded_script import RecordedScript
from mrtr_cassette.core.drive.server_session import ServerSession, with_body
from mrtr_cassette.core.drive.tool_list import Pages, page_at
from mrtr_cassette.core.drive.unrecorded import Unrecorded, outcome
from mrtr_cassette.core.protocol.calls import Call
from mrtr_cassette.core.protocol.dialect import ECHOED_STATE_PATH
from mrtr_cassette.core.record.recorder import Recorder
from mrtr_cassette.core.replay.playable import Playable
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.secrets.credentials import Credentials
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.states import SHORTEST_SEARCHED
from mrtr_cassette.core.secrets.surrogates import STATE_SURROGATE
from mrtr_cassette.core.wire.http import SESSION_HEADER, Request
from mrtr_cassette.core.wire.jsonbytes import find_spans, parse, splice


class RecordedAsks:
    """The asks of a cassette that issued a state, by this state; and its pages, by their cursor."""

    def __init__(
        self, player: Player, redactor: Redactor | None, credentials: Credentials | None = None
    ) -> None:
        """Find them; what the live server says will be redacted as what was recorded is."""
        self._player = player
        self._redactor = redactor
        self._credentials = credentials
        self._askers: dict[str, list[Playable]] = {}
        for own in player.interactions:
            for playable in own:
                if playable.ask is not None and playable.ask.request_state is not None:
                    self._askers.setdefault(playable.ask.request_state, []).append(playable)

    def catch_up_for(self, call: Call, shown: Call) -> CatchUp | PagesBefore | Unrecorded | None:
        """Return how the server is brought to the ask that a request answers, or to a page.

        None stands for a request that can be sent as it is: one without state and cursor, or with
        one that no recorded response issued.

        Args:
            call: the request as it would be sent.
            shown: the same as it is matched, and as messages may show it.
        """
        answers = call.answers
        state = None if answers is None else answers.request_state
        if state is None:
            return self._pages_before(call, shown)
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
            recorder = Recorder(seals=True, redactor=self._redactor, credentials=self._credentials)
            return CatchUp(call, shown, asker, script, recorder)
        if STATE_SURROGATE.search(state):
            return Unrecorded(shown, "no ask in this cassette has its request state")
        return None

    def _pages_before(self, call: Call, shown: Call) -> PagesBefore | None:
        """Return how the live server gets to the page whose cursor a recorded one issued."""
        cursor, seen = call.cursor, set[str]()
        while cursor is not None and cursor not in seen:
            page = self._page_with(call, cursor)
            if page is None:
                break
            seen.add(cursor)
            cursor = page.call.cursor
        if not seen:
            return None
        # Nothing of these pages is shown, and a cursor has to be the live server's own.
        session = ServerSession(Recorder(seals=False), call.request.header(SESSION_HEADER))
        return PagesBefore(page_at(call.request, cursor), shown, session, len(seen))

    def _page_with(self, call: Call, cursor: str) -> Playable | None:
        """Return a recorded page of the same list that issued a cursor."""
        pages = (
            each
            for each in self._player.playables
            if (each.key.method, each.key.endpoint) == (call.method, call.endpoint)
        )
        return next((each for each in pages if each.exchange.next_cursor == cursor), None)


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


class PagesBefore(Pages):
    """The pages before the one that a client requests, fetched from the live server."""

    def __init__(self, first: Request, shown: Call, session: ServerSession, most: int) -> None:
        """Begin with the first of these pages; messages show the client's request as `shown`."""
        super().__init__(first, session, most)
        self._shown = shown
        self._most = most

    @property
    def failure(self) -> Unrecorded | None:
        """Why the live server has no such page, or None."""
        if self.last is None or self.last.next_cursor is not None:
            return None
        page = self._most - self._left + 1
        return Unrecorded(self._shown, f"the live server's list has no page {page}")

    def retry(self) -> Request:
        """Return the client's request with the live cursor in the place of the recorded one."""
        return self.listing
