from __future__ import annotations

from dataclasses import replace

from builders import STREAM_HEADERS, Answer, exchange, get, response_of, retry, tool, values_of
from messages import asks

from mrtr_cassette.core.exchange.recorded import RecordedExchange
from mrtr_cassette.core.exchange.sessions import opened_session
from mrtr_cassette.core.protocol.session_ids import session_of
from mrtr_cassette.core.record.linking import LinkedInteraction, LinkFacts
from mrtr_cassette.core.record.naming import Surrogates
from mrtr_cassette.core.secrets.surrogates import sha256_of, state_surrogate

CALL = tool("deploy", env="prod")
HASH = sha256_of("the call")
FACTS = LinkFacts(HASH, "", None, None)
STATE = "S" * 30


def named(
    *exchanges: RecordedExchange,
    interactions: list[list[int]],
    surrogates: Surrogates | None = None,
) -> list[bytes]:
    """Return the bodies of exchanges, request and response, with names in them."""
    names = surrogates or Surrogates()
    for number, each in enumerate(exchanges, start=1):
        names.add(number, each)
    facts = dict.fromkeys(range(-9, len(exchanges) + 1), FACTS)
    names.name_states([LinkedInteraction(numbers) for numbers in interactions], facts)
    finished = [names.put_into(number, each) for number, each in enumerate(exchanges, start=1)]
    return [each.request.body + (each.response.body if each.response else b"") for each in finished]


ASK = exchange(CALL, asks("ok", state=STATE))
ANSWER = exchange(retry(CALL, {"ok": 1}, state=STATE), asks("more", state="T" * 30))


def test_state_is_named_by_call_occurrence_and_turn() -> None:
    """The ask that issued it gives a state its name, in the retry too."""
    first, second = named(ASK, ANSWER, interactions=[[1, 2]])

    assert state_surrogate(HASH, 1, 1).encode() in first
    assert state_surrogate(HASH, 1, 1).encode() in second
    assert state_surrogate(HASH, 1, 2).encode() in second
    assert b"sha256:" not in first + second


def test_interactions_of_one_call_are_counted() -> None:
    """The second conversation of a call has names of its own, even for an equal state."""
    first, second = named(ASK, ASK, interactions=[[1], [2]])

    assert state_surrogate(HASH, 1, 1).encode() in first
    assert state_surrogate(HASH, 2, 1).encode() in second


def test_state_that_nobody_issued_has_turn_0() -> None:
    """An orphan's state is named as well, so that no hash is left to compare."""
    (only,) = named(ANSWER, interactions=[[1]])

    assert state_surrogate(HASH, 1, 0).encode() in only


def test_names_of_an_earlier_recording_stay() -> None:
    """A retry of an ask that was recorded earlier has that ask's name; new ones count on."""
    shown = state_surrogate(HASH, 7, 1)
    earlier = exchange(CALL, asks("ok", state=shown), seals=False)
    surrogates = Surrogates()
    surrogates.add_earlier(-1, earlier, HASH, is_first=True)
    answer = exchange(retry(CALL, {"ok": 1}, state=shown), asks("more", state="T" * 30))

    first, second = named(answer, ASK, interactions=[[-1, 1], [2]], surrogates=surrogates)

    assert shown.encode() in first
    assert state_surrogate(HASH, 7, 2).encode() in first
    assert state_surrogate(HASH, 8, 1).encode() in second


def test_sessions_are_numbered_as_they_turn_up() -> None:
    """A session id has a number, the same wherever it comes again, after those of before."""

    def opened(name: str) -> RecordedExchange:
        return exchange(CALL, Answer((b"{}",), (("Mcp-Session-Id", name),)))

    surrogates = Surrogates()
    before = exchange(CALL, Answer((b"{}",), (("Mcp-Session-Id", "x"),)))
    numbered = Surrogates()
    numbered.add(1, before, opened_session(before.response))
    numbered.name_session_of(1)
    surrogates.add_earlier(-1, numbered.put_into(1, before), HASH, is_first=True)
    sessions = []
    for number, each in enumerate([opened("a"), opened("b"), opened("a")], start=1):
        surrogates.add(number, each, opened_session(each.response))
        surrogates.name_session_of(number)
        response = surrogates.put_into(number, each).response
        assert response is not None
        sessions.append(dict(response.headers)["Mcp-Session-Id"])

    assert sessions == ["mrtr-session:2", "mrtr-session:3", "mrtr-session:2"]


def test_exchange_without_states_is_itself() -> None:
    """Nothing is copied where there is nothing to name."""
    plain = exchange(CALL, {"content": []})
    surrogates = Surrogates()
    surrogates.add(1, plain)
    surrogates.name_states([LinkedInteraction([1])], {1: FACTS})

    assert surrogates.put_into(1, plain) is plain


def test_events_are_counted_by_session() -> None:
    """An id of an event has one name in its session, the next that is free there."""
    stream = Answer((b"id: x\ndata: 1\n\n", b"id: y\ndata: 2\n\n"), STREAM_HEADERS)
    again = Answer((b"id: y\ndata: 2\n\n", b"data: 3\n\n"), STREAM_HEADERS)
    session = ("Mcp-Session-Id", "s" * 20)
    streams = {
        1: exchange(get("/mcp", session), stream),
        2: exchange(get("/mcp", session, ("Last-Event-ID", "x")), again),
        3: exchange(get("/mcp"), stream),
        4: exchange(get("/mcp"), b"none"),
    }
    before = response_of(Answer((b"id: mrtr-event:0:4\n\n",), STREAM_HEADERS))
    earlier = replace(streams[3], response=before)
    surrogates = Surrogates()
    surrogates.add_earlier(-1, earlier, HASH, is_first=True)
    for number, each in streams.items():
        surrogates.add(number, each, session_of(each.request))
    for number in streams:
        surrogates.name_session_of(number)
    named = {number: surrogates.put_into(number, each) for number, each in streams.items()}

    assert [each.response and each.response.body[:18] for each in named.values()][:3] == [
        b"id: mrtr-event:1:1",
        b"id: mrtr-event:1:2",
        b"id: mrtr-event:0:5",
    ]
    assert named[2].request.header("last-event-id") == "mrtr-event:1:1"
    assert values_of(named[4]) == values_of(streams[4])
