from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from builders import (
    STREAM_HEADERS,
    Answer,
    Conversation,
    answer,
    cassette_of,
    conversation,
    encode_cassette,
    get,
    loaded,
    play,
    post,
    progress,
    refusal,
    retry,
    rpc,
    said,
    state_in,
    stream,
    tool,
    within,
)
from messages import NO, YES, asks, text
from pushing import SESSION, PushingSession, elicit, posted, roots

from mrtr_cassette.core.cassette.journal import JournalHeader
from mrtr_cassette.core.cassette.model import (
    BranchModel,
    CassetteModel,
    InteractionModel,
)
from mrtr_cassette.core.cassette.recorded import Branch, RecorderFacts
from mrtr_cassette.core.record.assembly import assemble
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.secrets.names import sealed_hash
from mrtr_cassette.core.wire.http import End, Request
from mrtr_cassette.core.wire.sse import event_id

CALL = tool("deploy", env="prod")
STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"
FIRST_AT = "2026-08-01T00:00:00+00:00"


def states(interaction: InteractionModel) -> list[Any]:
    """Return the states of an interaction: issued, echoed, issued, …, as they stand in the file."""
    found: list[Any] = []
    for turn in interaction.elicitation_turns:
        found.append(turn.ask.body["result"].get("requestState"))
        if turn.answer is not None:
            found.append(turn.answer.body["params"].get("requestState"))

    return found


def shapes(cassette: CassetteModel) -> list[tuple[int, bool]]:
    """Return of each interaction how many turns it has, and whether it has a response."""
    return [
        (len(interaction.elicitation_turns), interaction.response is not None)
        for interaction in cassette.interactions
    ]


@pytest.mark.parametrize("issued", ["x", STATE])
def test_rounds_are_turns_of_one_interaction(issued: str) -> None:
    """Each ask and its answer is a turn, and states are surrogates that name call and turn."""
    cassette = cassette_of(
        (CALL, asks("a", state=issued)),
        (retry(CALL, {"a": YES}, state=issued), asks("b", state=issued + "2")),
        (retry(CALL, {"b": NO}, state=issued + "2"), text("done")),
    )

    assert shapes(cassette) == [(2, True)]

    first, first_echo, second, second_echo = states(cassette.interactions[0])

    assert first == first_echo != second == second_echo
    assert first.removesuffix(":1:1") == second.removesuffix(":1:2")
    assert first.startswith("mrtr-state:")


def test_second_answer_to_an_ask_is_a_branch() -> None:
    """A branch repeats what it shares, and the recording block has each exchange once."""
    cassette = cassette_of(
        (CALL, asks("a", state=STATE)),
        (retry(CALL, {"a": NO}, state=STATE), text("left")),
        (retry(CALL, {"a": YES}, state=STATE), asks("b", state=STATE + STATE)),
        (retry(CALL, {"b": YES}, state=STATE + STATE), text("done")),
    )

    first, second = cassette.interactions

    assert (first.branch, second.branch) == (None, BranchModel(of=1, turn=1))
    assert second.elicitation_turns[0].ask == first.elicitation_turns[0].ask
    assert second.request == first.request
    assert [
        (exchange.number, exchange.interaction, exchange.turn)
        for exchange in cassette.recording.exchanges
    ] == [
        (1, 1, 0),
        (2, 1, 1),
        (3, 2, 1),
        (4, 2, 2),
    ]
    assert states(second)[2].endswith(":2:2")


@pytest.mark.parametrize(
    ("again", "state", "shown"),
    [
        pytest.param(CALL, STATE + "x", "{issued}x", id="with something added"),
        pytest.param(
            tool("deploy", env="test"), STATE, "{issued}", id="other arguments"
        ),
        pytest.param(tool("other"), STATE, "{issued}", id="another call"),
        pytest.param(
            CALL, "unknown", "{call}:2:0", id="a state that no recorded ask issued"
        ),
    ],
)
def test_retry_with_a_wrong_state_shows_it_by_what_it_has(
    again: bytes, state: str, shown: str
) -> None:
    """One raw state has one surrogate, whoever carries it; an unknown one has that of turn zero."""
    cassette = cassette_of(
        (CALL, asks("a", state=STATE)),
        (retry(again, {"a": YES}, state=state), refusal(again)),
    )

    issued = states(cassette.interactions[0])[0]
    orphan = cassette.interactions[1]

    assert orphan.orphan is True

    expected = shown.format(issued=issued, call=issued.removesuffix(":1:1"))

    assert orphan.request.body["params"]["requestState"] == expected


def test_timings_of_a_stream_are_kept() -> None:
    """The recording block has when each event came, and how many requests had come before."""
    talk = Conversation()
    number = talk.request(CALL)
    talk.request(tool("other"))
    talk.response(number, stream(progress(1), progress(1)))
    (facts,) = talk.cassette().recording.exchanges

    assert facts.pieces is not None
    assert [(piece.at_ms, piece.after, piece.size) for piece in facts.pieces] == [
        (2, 2, None),
        (3, 2, None),
    ]
    assert (facts.started_ms, facts.duration_ms) == (1, 5 - 1 + 1)


# Appending


def appended(*scripts: Any) -> CassetteModel:
    """Return the cassette of several recordings, each added to those before."""
    cassette = None
    for script in scripts:
        cassette = conversation(*script).cassette(earlier=cassette)

    assert cassette is not None
    return cassette


def test_recording_can_be_added_to_a_cassette() -> None:
    """What was there stays, and numbers go on."""
    first = (
        (CALL, asks("a", state=STATE)),
        (retry(CALL, {"a": YES}, state=STATE), text("one")),
    )

    second = (
        (CALL, asks("a", state=STATE + "2")),
        (retry(CALL, {"a": YES}, state=STATE + "2"), text("two")),
        (retry(CALL, {"a": NO}, state=STATE + "2"), text("three")),
        (
            get("/mcp"),
            Answer((b"data: 1\n\n",), (("Content-Type", "text/event-stream"),)),
        ),
    )

    before = appended(first)
    both = appended(first, second)

    assert both.interactions[:1] == before.interactions
    assert both.recording.exchanges[:2] == before.recording.exchanges
    assert [exchange.number for exchange in both.recording.exchanges] == [
        1,
        2,
        3,
        4,
        5,
        6,
    ]
    assert [exchange.interaction for exchange in both.recording.exchanges] == [
        1,
        1,
        2,
        2,
        3,
        4,
    ]
    assert both.interactions[2].branch == BranchModel(of=2, turn=1)
    assert states(both.interactions[1])[0].endswith(":2:1")

    last = both.recording.exchanges[-1]

    assert last.pieces is not None
    assert last.pieces[0].after == 6


ABANDONED = ((CALL, asks("a", state=STATE)),)


@pytest.mark.parametrize("echoed", ["raw", "surrogate"])
def test_ask_of_one_recording_is_answered_in_the_next(echoed: str) -> None:
    """The interaction goes on, with the surrogates that it has, and plays as one."""
    before = appended(ABANDONED)
    issued = states(before.interactions[0])[0]
    state = STATE if echoed == "raw" else issued
    later = (
        (retry(CALL, {"a": YES}, state=state), asks("b", state=STATE * 2)),
        (retry(CALL, {"b": YES}, state=STATE * 2), text("done")),
    )

    both = appended(ABANDONED, later)

    assert shapes(both) == [(2, True)]
    assert states(both.interactions[0]) == [
        issued,
        issued,
        f"{issued[:-1]}2",
        f"{issued[:-1]}2",
    ]

    player = Player(loaded(both, "c.json"))
    first = play(player, CALL)
    second = play(player, retry(CALL, {"a": YES}, state=state_in(first)))
    last = play(player, retry(CALL, {"b": YES}, state=state_in(second)))

    assert said(last) == "done"


def test_answered_ask_of_one_recording_gets_a_branch_in_the_next() -> None:
    """A branch names the earlier interaction, shares its surrogate, and has new ones of its own."""
    first = (*ABANDONED, (retry(CALL, {"a": YES}, state=STATE), text("one")))
    issued = states(appended(first).interactions[0])[0]
    later = ((retry(CALL, {"a": NO}, state=issued), asks("b", state=STATE * 2)),)
    before = appended(first)
    both = appended(first, later)

    assert both.interactions[:1] == before.interactions
    assert both.interactions[1].branch == BranchModel(of=1, turn=1)
    assert states(both.interactions[1]) == [
        issued,
        issued,
        issued.replace(":1:1", ":2:2"),
    ]


def test_surrogates_go_on_after_the_highest_that_is_there() -> None:
    """Where an interaction was taken out by hand, its surrogate is not given to another state."""
    first = ((CALL, asks("a", state=STATE)), (CALL, asks("a", state=STATE[::-1])))
    whole = appended(first)
    second = whole.interactions[1]
    recording = whole.recording.model_copy(update={"exchanges": []})
    cut = whole.model_copy(update={"interactions": [second], "recording": recording})
    added = conversation((CALL, asks("a", state=STATE * 2))).cassette(earlier=cut)

    assert states(second)[0].endswith(":2:1")
    assert states(added.interactions[1])[0].endswith(":3:1")


def test_cassette_names_the_recorders_of_all_its_exchanges_or_none() -> None:
    """A recorder that is added stands behind the others, unless one of them is unknown."""
    unnamed = JournalHeader("http://h/mcp", "sealed", FIRST_AT, "append")
    first = replace(unnamed, recorder="first", wall_ms=1.5)
    second = replace(unnamed, recorder="second", wall_ms=2.5)
    first_facts = RecorderFacts("first", 1.5)
    second_facts = RecorderFacts("second", 2.5)
    named = assemble(first, {}, "tool")
    nameless = assemble(unnamed, {}, "tool")

    assert named.recorders == (first_facts,)
    assert assemble(second, {}, "tool", named).recorders == (first_facts, second_facts)
    assert nameless.recorders == ()
    assert assemble(second, {}, "tool", nameless).recorders == ()
    assert assemble(unnamed, {}, "tool", named).recorders == ()


# Placeholders of secrets


def redacted(*script: Any, earlier: CassetteModel | None = None) -> CassetteModel:
    """Return the cassette of a recording that redacts secrets."""
    return conversation(*script, redacts=True).cassette(earlier=earlier)


def said_in(cassette: CassetteModel) -> list[str]:
    """Return the text of each interaction's response."""
    return [
        interaction.response.body["result"]["content"][0]["text"]
        for interaction in cassette.interactions
        if interaction.response is not None
    ]


def test_secrets_are_numbered_as_they_turn_up() -> None:
    """The same secret has the same number everywhere, and each rule counts for itself."""
    cassette = redacted(
        (tool("login", password="first-one"), text("api_key=0123456789abcdef")),
        (tool("login", password="second-one"), text("password=first-one")),
    )

    passwords = [
        interaction.request.body["params"]["arguments"]["password"]
        for interaction in cassette.interactions
    ]

    assert passwords == ["<password:1>", "<password:2>"]
    assert said_in(cassette) == ["api_key=<api-key:1>", "password=<password:1>"]
    assert cassette.redaction is not None


@pytest.mark.parametrize("redacts", [False, True])
@pytest.mark.parametrize(
    "words", ["see <github:3>", "<password:hunter2>", "<a:1> <jwt:x>"]
)
def test_text_in_the_form_of_a_placeholder_stays(words: str, redacts: bool) -> None:  # noqa: FBT001
    """What a server said is kept to the byte, even where it looks like a placeholder."""
    cassette = conversation((CALL, text(words)), redacts=redacts).cassette()

    assert said_in(cassette) == [words]


def closing(*order: str) -> list[InteractionModel]:
    """Return a session whose client resumes its stream while it leaves, or not."""
    session = PushingSession()
    session.post(post(rpc("initialize")), Answer((b"{}",), (SESSION,)))
    listening = get("/mcp", ("Accept", "text/event-stream"), SESSION)
    session.end(session.open(listening), roots())
    done = b"id: c1\ndata: %b\n\n" % answer(CALL, text("done"))
    session.post(CALL, Answer((done,), STREAM_HEADERS))
    of_call = replace(listening, headers=(*listening.headers, ("Last-Event-ID", "c1")))
    for step in order:
        if step == "DELETE":
            leaving = Request("DELETE", "/mcp", (SESSION,), b"")
            session.post(leaving, Answer((), (), 200))
        else:
            again = of_call if step == "resume the call" else listening
            session.post(again, Answer((b"{}",), (), 404))

    return session.talk.cassette().interactions


def test_stream_that_a_client_resumes_while_it_leaves_is_left_out() -> None:
    """Whether it does is chance, so it is no change of the cassette."""
    for again in ("resume", "resume the call"):
        for order in (("DELETE", again), (again, "DELETE"), (again, "DELETE", again)):
            assert closing(*order) == closing("DELETE")

    assert closing("resume") != closing("DELETE")


def test_pushed_requests_and_posted_answers_are_turns() -> None:
    """A call has what the server asked meanwhile, on its own stream and on a listening one."""
    session = PushingSession()
    session.post(post(rpc("initialize")), Answer((b"{}",), (SESSION,)))
    stream = session.listen()
    call = session.open(CALL)
    session.say(call, elicit("push-1"))
    session.post(posted(elicit("push-1"), YES))
    session.say(stream, roots("push-3"))
    session.post(posted(roots("push-3"), {"roots": []}))
    session.end(call, answer(CALL, text("done")))
    session.post(posted(elicit("push-1"), NO))
    session.end(stream)
    cassette = loaded(session.talk.cassette())

    _, listening, asked, alone = cassette.interactions

    assert [turn.position for turn in asked.pushed_turns] == [0, 0]
    assert asked.pushed_turns[0].requests.keys() == {"elicitation-1"}
    assert asked.pushed_turns[0].given_answers == {"elicitation-1": YES}
    assert asked.pushed_turns[1].requests["roots-1"].kind == "roots"
    assert asked.pushed_turns[1].pushed_requests[0].exchange is listening.exchanges[0]
    assert asked.pushed_turns[1].given_answers == {"roots-1": {"roots": []}}
    assert [exchange.number for exchange in asked.unshared_exchanges] == [3, 4, 5]
    assert [exchange.ended_after for exchange in asked.unshared_exchanges] == [5, 4, 5]
    assert [exchange.number for exchange in alone.unshared_exchanges] == [6]


def test_added_recording_keeps_pushed_turns_and_counts_on() -> None:
    """What an earlier recording knows of pushed requests stays where a later one adds to it."""
    session = PushingSession()
    call = session.open(CALL)
    session.say(call, elicit("push-1"))
    session.post(posted(elicit("push-1"), YES))
    session.end(call, answer(CALL, asks("ok")))
    earlier = session.talk.cassette()
    later = PushingSession()
    again = later.open(retry(CALL, {"ok": YES}))
    later.say(again, elicit("push-1"))
    later.post(posted(elicit("push-1"), NO))
    later.end(again, answer(retry(CALL, {"ok": YES}), text("done")))

    whole = loaded(later.talk.cassette(earlier=earlier)).interactions

    placed = [
        (exchange.number, place.turn) for exchange, place in whole[0].placed_exchanges
    ]

    assert placed == [(1, 0), (3, 2), (2, 1), (4, 3)]
    assert [turn.given_answers for turn in whole[0].pushed_turns] == [
        {"elicitation-1": YES},
        {"elicitation-1": NO},
    ]

    assert whole[0].exchanges[1].ended_after == 4
    assert len(whole) == 1


def test_branch_shares_pushed_turns() -> None:
    """Where an ask is answered in two ways, what the server pushed before it is in both."""
    session = PushingSession()
    call = session.open(CALL)
    session.say(call, elicit("push-1"))
    session.post(posted(elicit("push-1"), YES))
    session.end(call, answer(CALL, asks("ok")))
    for value in (YES, NO):
        session.post(retry(CALL, {"ok": value}), text("done"))

    first, branch = loaded(session.talk.cassette()).interactions

    assert branch.branch == Branch(of=1, turn=2)
    assert branch.pushed_turns == first.pushed_turns
    assert [place.turn for _, place in branch.placed_exchanges] == [2]

    added = conversation((tool("other"), text("x"))).cassette(
        earlier=session.talk.cassette()
    )

    assert [
        len(interaction.pushed_turns) for interaction in loaded(added).interactions
    ] == [1, 1, 0]


def legacy_session(
    name: str, events: list[str], *, endpoint: str = "", target: str = ""
) -> CassetteModel:
    """Return a session over HTTP+SSE whose id is `name`, with these event ids.

    The server may name another endpoint, and its client may spell that otherwise.
    """
    talk = Conversation(redacts=True)
    sse_headers = (("Content-Type", "text/event-stream"),)
    stream = talk.request(get("/sse"))
    seen = talk.observation(stream)
    seen.response_started(200, sse_headers)
    endpoint = endpoint or f"/messages?session_id={name}"
    target = target or endpoint
    seen.response_bytes(f"event: endpoint\ndata: {endpoint}\n\n".encode(), talk.tick())
    for request in (rpc("initialize"), CALL):
        number = talk.request(post(request, target=target))
        talk.response(number, Answer((b"Accepted",), (), 202))
        identity = events.pop(0).encode()
        said = answer(request, {"of": name})
        event = b"id: %b\ndata: %b\n\n" % (identity, said)
        seen.response_bytes(event, talk.tick())

    talk.response(stream, Answer((), sse_headers, end=End.OPEN))
    return talk.cassette()


@pytest.mark.parametrize("endpoint", ["/messages", "/messages?", "messages?"])
@pytest.mark.parametrize("target", ["/messages", "/messages?"])
def test_an_empty_query_in_the_endpoint_makes_no_difference(
    endpoint: str, target: str
) -> None:
    """Some clients post with it, others without, as with WHATWG's URLs."""
    cassette = legacy_session("s", ["a-1", "a-2"], endpoint=endpoint, target=target)
    stream, opening, call = loaded(cassette).interactions
    (first, *_) = stream.exchanges[0].response.pieces
    (named,) = re.findall(
        rb"data: (/messages[?]session_id=mrtr-session:1)\n", first.raw
    )

    assert opening.exchanges[0].request.target == named.decode()
    assert call.exchanges[0].request.target == named.decode()


def test_ids_of_the_old_transport_are_sealed() -> None:
    """A session has one name in URLs and bodies, and of the ids of its events there are hashes."""
    cassette = legacy_session("0f9d8c7b6a5e4d3c2b1a", ["a-1", "a-2"])
    stream, opening, call = loaded(cassette).interactions

    post_target = "/messages?session_id=mrtr-session:1"

    assert stream.exchanges[0].request.target == "/sse"
    assert opening.exchanges[0].request.target == post_target
    assert call.exchanges[0].request.target == post_target

    response = stream.exchanges[0].response

    assert response is not None
    assert [piece.raw.partition(b"\ndata: ")[0] for piece in response.pieces] == [
        b"event: endpoint",
        *(f"id: {sealed_hash(identity)}".encode() for identity in ("a-1", "a-2")),
    ]
    assert b"0f9d8c7b" not in encode_cassette(cassette)


@pytest.mark.parametrize(
    "earlier",
    [
        cassette_of((post(CALL, ("Mcp-Session-Id", "one")), text("done"))),
        legacy_session("0f9d8c7b6a5e4d3c2b1a", ["a-1", "a-2"]),
    ],
    ids=["in a header", "in a URL"],
)
def test_session_seen_anywhere_before_is_not_another_recordings_session(
    earlier: CassetteModel,
) -> None:
    """Two sessions never share a surrogate, wherever in the earlier cassette the first one stands."""
    later = conversation((post(tool("later"), ("Mcp-Session-Id", "two")), text("done")))

    *_, last = later.cassette(earlier=earlier).interactions

    assert last.request.http.headers["Mcp-Session-Id"] == "mrtr-session:2"


def test_events_of_a_later_recording_are_no_earlier_ones() -> None:
    """A server that is started anew counts its events from the same number."""
    cassette = None
    for session in ("one-0123456789abcdef", "mrtr-session:1"):
        talk = Conversation()
        event = Answer((b"id: 1\ndata: \n\n",), STREAM_HEADERS)
        for request in (post(CALL), get("/mcp", ("Last-Event-ID", "1"))):
            talk.exchange(within(session, request), event)

        cassette = talk.cassette(earlier=cassette)

    assert cassette is not None

    interactions = loaded(cassette).interactions
    calls = [interactions[0].exchanges[0], interactions[2].exchanges[0]]
    resumptions = [interactions[1].exchanges[0], interactions[3].exchanges[0]]
    last_ids = [resumed.request.header("last-event-id") for resumed in resumptions]
    for call, last_id in zip(calls, last_ids, strict=True):
        assert call.response is not None
        assert last_id == event_id(call.response.body)
        assert call.request.header("mcp-session-id") == "mrtr-session:1"

    assert last_ids[0] != last_ids[1]
