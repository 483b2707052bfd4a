from __future__ import annotations

from typing import Any

from builders import STREAM_HEADERS, Answer, answer, exchange, get, post, progress, rpc, sse, tool
from messages import asks, text
from pushing import ACCEPTED, SESSION, elicit, posted

from mrtr_cassette.core.exchange.recorded import RecordedExchange
from mrtr_cassette.core.record.history import (
    NEVER,
    Moment,
    Rank,
    SessionFacts,
    ended_with_session,
    ends_of,
    lasting,
    session_facts,
    streams_of_closing,
)
from mrtr_cassette.core.secrets.surrogates import sealed_hash

CALL = tool("deploy", env="prod")


def facts_of(recorded: RecordedExchange) -> SessionFacts:
    """Return what is to know of an exchange in its session."""
    call = recorded.call
    key = "\n".join(call.key())
    return session_facts(recorded, call, key, asks=recorded.ask is not None)


def test_requests_have_their_place_in_a_session() -> None:
    """The handshake comes first, then the listening streams, then the calls."""
    ready = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
    stream = Answer((), STREAM_HEADERS)
    endpoint = Answer((b"event: endpoint\ndata: /post?id=" + b"sha256:" + b"0" * 64,))
    endpoint = endpoint._replace(headers=STREAM_HEADERS)

    assert facts_of(exchange(rpc("initialize"), {})).rank is Rank.INITIALIZE
    assert facts_of(exchange(ready, ACCEPTED)).rank is Rank.INITIALIZED
    assert facts_of(exchange(get("/mcp"), stream)).rank is Rank.LISTENING
    assert facts_of(exchange(get("/mcp"), b"no stream")).rank is Rank.CALL
    assert facts_of(exchange(get("/sse"), endpoint)).rank is Rank.OPENING_STREAM
    assert facts_of(exchange(rpc("subscriptions/listen"), stream)).rank is Rank.LISTENING
    assert facts_of(exchange(rpc("subscriptions/listen"), asks("a"))).rank is Rank.CALL
    assert facts_of(exchange(CALL, text("done"))).rank is Rank.CALL


def test_session_is_that_of_the_request_or_the_one_that_it_opens() -> None:
    """The request that opens a session is in it."""
    opening = Answer((b"{}",), (("Mcp-Session-Id", SESSION[1]),))
    session = sealed_hash(SESSION[1])

    assert facts_of(exchange(rpc("initialize"), opening)).session == session
    assert facts_of(exchange(post(CALL, SESSION), text("done"))).session == session
    assert facts_of(exchange(CALL, text("done"))).session == ""


def test_requests_that_a_server_pushes_are_found() -> None:
    """A push is a request in the stream; progress and the response to the call are none."""
    events = (progress(1), elicit("push-1"), answer(CALL, text("done")))
    facts = facts_of(exchange(CALL, Answer(tuple(map(sse, events)), STREAM_HEADERS)))

    assert [(each.id, each.method, each.piece) for each in facts.pushes] == [
        ('"push-1"', "elicitation/create", 1)
    ]
    assert (facts.request_id, facts.posted_id, facts.is_answered) == ("1", None, True)
    assert facts_of(exchange(posted(elicit("push-1"), {}), ACCEPTED)).posted_id == '"push-1"'


def test_end_of_a_response() -> None:
    """A 202 is no end of a call; a line of an older journal tells the end by its pieces."""
    done = exchange(CALL, text("done"), number=4)
    old = RecordedExchange(4, done.request, done.response, 1.0, 2.0, None, None)

    assert facts_of(exchange(CALL, ACCEPTED)).ended == NEVER
    assert facts_of(done).ended.after == 4
    assert facts_of(old).ended == Moment(4, 2.0)
    assert facts_of(RecordedExchange(4, done.request, None, 1.0, 2.0, None, None)).ended.after == 4


def test_text_that_lasts_has_no_hash() -> None:
    """Hashes of states and sessions, and what stands for secrets, are others in every recording."""
    assert lasting(f"a {sealed_hash('x')} <jwt:{'0' * 24}> b") == "a sha256 <jwt:0> b"
    assert facts_of(exchange(get(f"/{'a' * 150}?{sealed_hash('x')}"), b"")).text.endswith("?")


def facts(session: str = "s", ended: int = 1, **known: Any) -> SessionFacts:
    """Return what is to know of a call, unless something else is said."""
    values: dict[str, Any] = {
        "text": "",
        "rank": Rank.CALL,
        "request_id": "1",
        "posted_id": None,
        "pushes": (),
        "responses": (),
        "is_answered": True,
        **known,
    }
    return SessionFacts(session=session, ended=Moment(ended, float(ended)), **values)


def test_call_without_a_response_of_its_own_is_over_with_that_on_a_stream() -> None:
    """The first response with its id counts that came after it, in its session."""
    came = (("1", Moment(1, 1.0)), ("1", Moment(3, 2.0)), ("1", Moment(5, 3.0)))
    stream = facts(rank=Rank.LISTENING, request_id=None, responses=came, ended=9)
    waiting = facts(is_answered=False, ended=2)

    assert ends_of({1: stream, 2: waiting, 3: facts(), 4: waiting, 5: waiting}) == {
        1: Moment(9, 9.0),
        2: Moment(3, 2.0),
        3: Moment(1, 1.0),
        4: Moment(5, 3.0),
        5: Moment(2, 2.0),
    }
    assert ends_of({1: stream, 2: facts("other", is_answered=False)})[2] == Moment(1, 1.0)


def test_stream_ends_with_its_session() -> None:
    """A stream that its client left before the DELETE alone, or that the server ended after it."""
    left = facts(rank=Rank.LISTENING, ended=2)
    stayed = facts(rank=Rank.LISTENING, ended=3, is_left=True)
    let_go = facts(rank=Rank.LISTENING, ended=3)
    later = facts(rank=Rank.LISTENING, ended=5)
    delete = facts(request_id=None, ends_session=True)
    elsewhere = facts("other", rank=Rank.LISTENING, ended=9)

    told = {1: left, 2: stayed, 3: facts(), 4: delete, 5: delete, 6: later, 7: elsewhere, 8: let_go}
    assert ended_with_session(told) == {2: 4, 6: 4}
    assert ended_with_session({1: facts("", rank=Rank.LISTENING), 2: facts("")}) == {}


def test_stream_that_is_opened_once_more_while_the_session_ends_is_told() -> None:
    """Nothing was said on it, and nothing but closing came after it; the first one counts."""

    def sought(session: str = "s", **known: Any) -> SessionFacts:
        return facts(session, request_id=None, seeks_stream=True, **{"is_silent": True, **known})

    delete = facts(request_id=None, ends_session=True)
    told = {1: sought(), 2: facts(), 3: sought(), 4: facts(), 5: sought(), 6: delete, 7: sought()}

    assert streams_of_closing(told) == {5, 7}
    assert streams_of_closing({**told, 7: sought(is_silent=False)}) == {5}
    assert streams_of_closing({**told, 8: facts()}) == set()
    assert streams_of_closing({**told, 6: facts()}) == set()
    assert streams_of_closing({each: told[each] for each in (2, 4, 6, 7)}) == set()
    nobodys = {1: sought(""), 2: facts("", ends_session=True), 3: sought("")}
    assert streams_of_closing(nobodys) == set()


def test_stream_on_which_nothing_is_said_is_silent() -> None:
    """A refusal, none at all, and events without a message say nothing to who listens."""
    listening = get("/mcp", ("Accept", "text/event-stream"))
    primed = Answer((b"id: 1\ndata:\n\n",), STREAM_HEADERS)
    spoken = Answer((sse(elicit()),), STREAM_HEADERS)
    refused = Answer((b"{}",), (), 404)
    never = RecordedExchange(4, exchange(listening, b"{}").request, None, 1.0, 2.0, None, None)

    silent = [facts_of(exchange(listening, each)) for each in (primed, refused)]
    assert all(each.seeks_stream and each.is_silent for each in (*silent, facts_of(never)))
    assert not facts_of(exchange(listening, spoken)).is_silent
    assert not facts_of(exchange(listening, b"{}")).is_silent
    assert not facts_of(exchange(get("/page"), b"{}")).seeks_stream


def test_response_of_a_call_on_its_stream_is_its_end() -> None:
    """A stream that breaks off before the response has none; progress is no response."""
    whole = Answer((sse(progress(1)), sse(answer(CALL, text("done")))), STREAM_HEADERS)

    assert facts_of(exchange(CALL, whole)).is_answered
    assert not facts_of(exchange(CALL, Answer(whole.chunks[:1], STREAM_HEADERS))).is_answered


def test_responses_on_a_listening_stream_are_told() -> None:
    """In HTTP+SSE all responses come on one stream."""
    events = (sse(answer(CALL, text("done"))), sse(progress(1)))
    told = facts_of(exchange(get("/sse"), Answer(events, STREAM_HEADERS)))

    assert [identity for identity, _ in told.responses] == ["1"]
    assert told.listens
