from __future__ import annotations

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from mrtr_cassette.core.record.history import NEVER, Moment, Push, Rank, SessionFacts, ends_of
from mrtr_cassette.core.record.pushes import LinkedPushes, link_pushes


class History:
    """What passes in sessions, one thing after the other, with the shortest words for each."""

    def __init__(self) -> None:
        self.exchanges: dict[int, SessionFacts] = {}
        self._pushes: dict[int, list[Push]] = {}
        self._clock = count()

    def _now(self) -> Moment:
        return Moment(len(self.exchanges), float(next(self._clock)))

    def _request(self, session: str, rank: Rank, request: str | None, posted: str | None) -> int:
        number = len(self.exchanges) + 1
        self._pushes[number] = []
        self.exchanges[number] = SessionFacts(
            session, "", rank, request, posted, (), (), NEVER, is_answered=True
        )
        return number

    def call(self, session: str = "s") -> int:
        """Let a call arrive."""
        return self._request(session, Rank.CALL, f"id {len(self.exchanges)}", None)

    def notify(self, session: str = "s") -> int:
        """Let a notification arrive, which is over at once."""
        number = self._request(session, Rank.CALL, None, None)
        self.end(number)
        return number

    def listen(self, session: str = "s") -> int:
        """Let a listening stream begin."""
        return self._request(session, Rank.LISTENING, None, None)

    def push(self, stream: int, identity: str, method: str = "elicitation/create") -> None:
        """Let the server push a request on a stream."""
        pushes = self._pushes[stream]
        pushes.append(Push(identity, method, len(pushes), self._now()))

    def post(self, identity: str, session: str = "s") -> int:
        """Let the client post the response to a request."""
        number = self._request(session, Rank.CALL, None, identity)
        self.end(number)
        return number

    def end(self, number: int) -> None:
        """Let a response end."""
        self.exchanges[number] = _with(self.exchanges[number], ended=self._now())

    def linked(self) -> LinkedPushes:
        """Return what became of the pushes."""
        facts = {
            number: _with(each, pushes=tuple(self._pushes[number]))
            for number, each in self.exchanges.items()
        }
        return link_pushes(facts, ends_of(facts))

    def turns(self) -> dict[int, list[tuple[str, str]]]:
        """Return the turns of each exchange: what was asked where, and what answered it."""
        return {
            number: [
                (
                    " ".join(f"{each.key}@{each.number}.{each.piece}" for each in turn.asked),
                    " ".join(f"{each.key}={each.number}" for each in turn.answers),
                )
                for turn in turns
            ]
            for number, turns in self.linked().turns.items()
        }


def _with(facts: SessionFacts, **changes: object) -> SessionFacts:
    values = {name: getattr(facts, name) for name in facts.__slots__}
    return SessionFacts(**{**values, **changes})


def test_push_on_the_stream_of_a_call_is_a_turn_of_it() -> None:
    """What the server asks in the stream of a call belongs to that call, whatever else runs."""
    history = History()
    call, _other = history.call(), history.call()
    history.push(call, "1")
    posted = history.post("1")

    assert history.turns() == {call: [("elicitation-1@1.0", "elicitation-1=3")]}
    assert history.linked().posted == {posted}


def test_push_on_a_listening_stream_is_a_turn_of_the_only_pending_call() -> None:
    """The v1 SDKs ask for sampling and roots on the session's GET stream."""
    history = History()
    stream = history.listen()
    before = history.call()
    history.end(before)
    call = history.call()
    history.push(stream, "1", "roots/list")
    history.post("1")
    history.end(call)

    assert history.turns() == {call: [("roots-1@1.0", "roots-1=4")]}


def test_push_on_a_listening_stream_is_its_own_without_exactly_one_pending_call() -> None:
    """With no call, or with two, nothing tells which of them the server asks for."""
    history = History()
    stream = history.listen()
    history.notify()
    history.push(stream, "1", "roots/list")
    history.post("1")
    history.call()
    history.call()
    history.push(stream, "2", "sampling/createMessage")

    assert history.turns() == {stream: [("roots-1@1.0", "roots-1=3"), ("sampling-1@1.1", "")]}


def test_requests_on_a_stream_that_calls_share_are_turns_of_their_own() -> None:
    """Whether a client answers one call's question before the other's comes is chance."""
    expected = [("elicitation-1@1.0", "elicitation-1={}"), ("roots-1@1.1", "roots-1={}")]
    for answered_first in (True, False):
        history = History()
        stream = history.listen()
        history.call()
        history.call()
        history.push(stream, "1")
        first = history.post("1") if answered_first else 0
        history.push(stream, "2", "roots/list")
        second = history.post("2")
        first = first or history.post("1")

        turns = history.turns()[stream]

        assert turns == [
            (asked, answer.format(number))
            for (asked, answer), number in zip(expected, (first, second), strict=True)
        ]


def test_answers_stand_in_the_order_of_their_requests() -> None:
    """Clients that ask several people at once post the answers as they get them."""
    history = History()
    call = history.call()
    history.push(call, "1")
    history.push(call, "2", "sampling/createMessage")
    history.post("2")
    history.post("1")

    assert history.turns() == {
        call: [("elicitation-1@1.0 sampling-1@1.1", "elicitation-1=3 sampling-1=2")]
    }


def test_requests_that_are_open_together_are_one_turn() -> None:
    """A turn goes on until all of its requests were answered; keys count by kind."""
    history = History()
    call = history.call()
    history.push(call, "1")
    history.push(call, "2")
    history.post("2")
    history.push(call, "3", "roots/list")
    history.post("1")
    history.post("3")
    history.push(call, "4")
    history.push(call, "5", "x/odd method")

    assert history.turns() == {
        call: [
            (
                "elicitation-1@1.0 elicitation-2@1.1 roots-1@1.2",
                "elicitation-1=3 elicitation-2=2 roots-1=4",
            ),
            ("elicitation-1@1.3 request-1@1.4", ""),
        ]
    }


def test_answer_of_one_session_is_none_of_another() -> None:
    """Two servers' sessions count their requests alike."""
    history = History()
    one, other = history.call("one"), history.call("other")
    history.push(one, "1")
    history.push(other, "1")
    history.post("1", "other")
    history.post("1", "one")
    history.post("1", "third")

    assert history.turns() == {
        one: [("elicitation-1@1.0", "elicitation-1=4")],
        other: [("elicitation-1@2.0", "elicitation-1=3")],
    }
    assert history.linked().posted == {3, 4}


def test_answer_to_nothing_stays_an_exchange_of_its_own() -> None:
    """A second answer, and one that comes before its request, answer nothing."""
    history = History()
    call = history.call()
    history.post("1")
    history.push(call, "1")
    history.post("1")
    history.post("1")

    assert history.linked().posted == {3}


def test_call_of_an_old_transport_is_pending_until_its_response_on_the_stream() -> None:
    """Where a call only gets 202, the response on the session's stream ends it."""
    stream = SessionFacts(
        "s",
        "",
        Rank.OPENING_STREAM,
        None,
        None,
        (
            Push("p1", "roots/list", 0, Moment(2, 20.0)),
            Push("p2", "roots/list", 2, Moment(2, 40.0)),
        ),
        (("7", Moment(2, 30.0)),),
        NEVER,
        is_answered=False,
    )
    call = SessionFacts("s", "", Rank.CALL, "7", None, (), (), NEVER, is_answered=False)
    facts = {1: stream, 2: call}

    assert ends_of(facts) == {1: NEVER, 2: Moment(2, 30.0)}
    turns = link_pushes(facts, ends_of(facts)).turns
    assert {number: len(each) for number, each in turns.items()} == {1: 1, 2: 1}


steps = st.lists(
    st.tuples(
        st.sampled_from(["call", "listen", "push", "post", "end", "notify"]),
        st.sampled_from(["one", "two"]),
        st.integers(0, 5),
    ),
    max_size=40,
)


@given(steps)
def test_sessions_never_touch_each_other(script: list[tuple[str, str, int]]) -> None:
    """Every push is in one turn, every answer in one of its own session, asked before it."""
    history = History()
    for what, session, pick in script:
        own = [number for number, each in history.exchanges.items() if each.session == session]
        open_ones = [number for number in own if history.exchanges[number].ended == NEVER]
        if what == "push" and open_ones:
            history.push(open_ones[pick % len(open_ones)], str(pick))
        elif what == "end" and open_ones:
            history.end(open_ones[pick % len(open_ones)])
        elif what == "post":
            history.post(str(pick), session)
        elif what in {"call", "listen", "notify"}:
            getattr(history, what)(session)
    linked = history.linked()

    pushes: list[tuple[int, int]] = []
    for owner, turns in linked.turns.items():
        session = history.exchanges[owner].session
        for index, turn in enumerate(turns):
            pushes += [(each.number, each.piece) for each in turn.asked]
            assert {history.exchanges[each.number].session for each in turn.asked} == {session}
            keys = [each.key for each in turn.asked]
            assert len(set(keys)) == len(keys)
            assert {each.key for each in turn.answers} <= set(keys)
            if not history.exchanges[owner].listens:
                assert index == len(turns) - 1 or len(turn.answers) == len(turn.asked)
            elif any(each.number != owner for each in turn.asked):
                raise AssertionError("a stream has a turn of another one")
            assert {history.exchanges[each.number].session for each in turn.answers} <= {session}
    assert sorted(pushes) == sorted(
        (number, push.piece) for number, each in history._pushes.items() for push in each
    )
    answers = [
        each.number for turns in linked.turns.values() for turn in turns for each in turn.answers
    ]
    assert sorted(answers) == sorted(linked.posted)
