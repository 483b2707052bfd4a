from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
from builders import (
    INITIALIZED,
    Answer,
    Conversation,
    Step,
    answer,
    as_request,
    cassette_of,
    conversation,
    loaded,
    open_session,
    pipe_cassette,
    play,
    player_of,
    post,
    refusal,
    retry,
    rpc,
    said,
    sent_now,
    session_steps,
    state_in,
    stream,
    tool,
    with_token,
    within,
)
from messages import NO, YES, asks, text

from mrtr_cassette.core.cassette.recorded import Cassette, RecordedBy, RecorderFacts
from mrtr_cassette.core.cassette.texts import combine_cassettes
from mrtr_cassette.core.cassette.transports import FIRST_SESSION, cassette_over_pipes
from mrtr_cassette.core.replay.deliveries import Play
from mrtr_cassette.core.replay.diagnosis import Miss, Reason
from mrtr_cassette.core.replay.order import History, Repeat
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.wire.http import End, Request, line_request

GET = tool("get")
SET = tool("set", to=1)
SET_2 = tool("set", to=2)
LOG = tool("log")
LIST = rpc("tools/list")
HINTED: Step = (
    LIST,
    {"tools": [{"name": "get", "annotations": {"readOnlyHint": True}}]},
)
STORE: tuple[Step, ...] = ((GET, text("0")), (SET, text("set")), (GET, text("1")))
OTHER = "other-history"


def told(player: Player, *requests: bytes | Request) -> list[str]:
    """Return what requests get: texts, or the reasons of misses."""
    decisions = [player.request_received(as_request(request)) for request in requests]
    words = []
    for decision in decisions:
        if isinstance(decision, Play):
            words.append(said(sent_now(decision)))
        else:
            assert isinstance(decision, Miss)
            words.append(decision.reason.value)

    return words


@pytest.mark.parametrize(
    ("options", "requests", "got"),
    [
        ({}, [GET, SET, GET], ["0", "set", "1"]),
        ({}, [GET, GET, SET], ["0", "0", "set"]),
        ({}, [SET, GET, GET], ["set", "1", "1"]),
        ({}, [SET_2, SET, GET], ["set", "set", OTHER]),
        ({}, [LOG, LOG], ["logged", "already-played"]),
        ({"history": History.ORDER}, [SET, GET, GET], ["set", "0", "1"]),
        ({"repeat": Repeat.ALWAYS}, [SET, GET, GET, GET], ["set", "0", "1", "0"]),
        ({"history": History.STRICT}, [LOG, SET, GET], [OTHER, "set", "1"]),
        ({"history": History.STRICT}, [SET_2, GET, SET, GET], [OTHER, "0", "set", "1"]),
    ],
)
def test_read_gets_what_it_got_after_the_same_writes(
    options: dict[str, Any], requests: list[bytes], got: list[str]
) -> None:
    """A read that is played elsewhere would have another value, which nobody recorded."""
    script = (HINTED, *STORE, (LOG, text("logged")), (SET_2, text("set")))

    assert told(player_of(*script, **options), *requests) == got


@pytest.mark.parametrize(
    ("requests", "got"),
    [
        ([SET, GET], ["set", "1"]),
        ([SET_2, GET], ["set", "2"]),
        ([SET, SET_2, GET], ["set", "set", OTHER]),
        ([GET], [OTHER]),
    ],
)
def test_read_of_several_sessions_got_several_answers(
    requests: list[bytes], got: list[str]
) -> None:
    """Whichever session a client has, it gets what was read after the writes that it made."""
    steps = []
    for session, write, value in (("1" * 32, SET, "1"), ("2" * 32, SET_2, "2")):
        steps += session_steps(
            session, HINTED, (write, text("set")), (GET, text(value))
        )

    player = player_of(*steps)
    session = open_session(player)
    play(player, within(session, INITIALIZED))

    assert told(player, *(within(session, request) for request in requests)) == got


@pytest.mark.parametrize(
    ("requests", "got"),
    [
        ([GET], ["0"]),
        ([GET, LOG], ["0", "logged"]),
        ([SET, GET], ["set", "1"]),
        ([LOG, GET], ["logged", OTHER]),
    ],
)
def test_read_of_several_starts_on_pipes_got_several_answers(
    requests: list[bytes], got: list[str]
) -> None:
    """A start of the server is a session: another one begins with a fresh server."""
    steps = [
        (FIRST_SESSION, *HINTED),
        (FIRST_SESSION, SET, text("set")),
        (FIRST_SESSION, GET, text("1")),
        ("mrtr-session:1", GET, text("0")),
        ("mrtr-session:1", LOG, text("logged")),
    ]
    exchanges = []
    for start, request, response in steps:
        line = line_request(request, start)
        exchanges.append((line, [answer(request, response)], End.COMPLETE))

    player = Player(cassette_over_pipes(pipe_cassette(*exchanges)))

    assert (
        told(player, *(line_request(body, FIRST_SESSION) for body in requests)) == got
    )


def test_call_in_a_session_gets_what_another_one_got_after_the_same_writes() -> None:
    """That one has made its calls in the order of this client."""
    first = [(SET, text("set first")), (LOG, text("logged last"))]
    second = [(LOG, text("logged first")), (SET, text("set last"))]
    steps = session_steps("1" * 32, *first) + session_steps("2" * 32, *second)
    player = player_of(*steps)
    session = open_session(player)
    play(player, within(session, INITIALIZED))

    assert told(player, within(session, LOG), within(session, SET)) == [
        "logged first",
        "set last",
    ]


def test_read_is_held_to_writes_whether_its_client_wants_progress_or_not() -> None:
    """The token is the client's, and tells nothing of what the server has."""
    tracked = with_token(GET, "t")
    script = ((SET, text("set")), (tracked, text("1")), (SET_2, text("set")))
    for hint in ((), (HINTED,)):
        player = player_of(*hint, *script, (GET, text("2")))

        assert told(player, SET, GET, SET_2, tracked) == ["set", "1", "set", "2"]


def test_tool_that_is_not_known_to_read_is_a_write() -> None:
    """A user may say that it only reads."""
    assert told(player_of(*STORE), GET, GET, SET, GET) == ["0", OTHER, "set", "1"]
    assert told(player_of(*STORE), SET, GET) == ["set", OTHER]
    assert told(player_of(*STORE, reads=["get"]), SET, GET, GET) == ["set", "1", "1"]


def test_method_that_is_in_no_table_is_a_write() -> None:
    """A user may say that it only reads."""
    look = rpc("store/look")
    store = ((look, text("0")), (SET, text("set")), (look, text("1")))

    assert told(player_of(*store), SET, look, look) == ["set", OTHER, OTHER]
    assert told(player_of(*store, reads=["store/look"]), SET, look, look) == [
        "set",
        "1",
        "1",
    ]


def test_what_is_said_to_read_and_matches_nothing_is_known() -> None:
    """A name counts if a call has it, recorded or live, or a recorded list of tools."""
    names = ["get", "log", "live", "store/look", "tools/call", "tpyo"]
    player = player_of(HINTED, *STORE, reads=names)
    unused = [name for name in names if ("reads", name) in player.unused_options()]

    assert unused == ["log", "live", "store/look", "tools/call", "tpyo"]

    player.note_live_request(post(tool("live")))
    player.note_live_request(post(rpc("store/look")))

    assert player.unused_options() == [
        ("reads", name) for name in ("log", "tools/call", "tpyo")
    ]


def test_miss_tells_both_histories() -> None:
    """It lists the writes before the nearest recording, and those that were played."""
    player = player_of(HINTED, *STORE, (SET_2, text("set")))
    told(player, SET_2, GET)

    (miss,) = player.tally.misses

    assert miss.reason is Reason.OTHER_HISTORY

    told_ = 'this was recorded after tools/call "set" {"arguments":{"to":1}}; '

    assert (
        miss.detail
        == told_ + 'this run has made tools/call "set" {"arguments":{"to":2}}'
    )


def test_write_that_a_live_server_got_is_the_recorded_one_where_histories_part() -> (
    None
):
    """So the tool that may only read is one of those that this run has not called."""
    player = player_of(
        HINTED, (SET, text("set")), (LOG, text("logged")), (GET, text("1"))
    )
    player.note_live_request(as_request(SET))
    told(player, GET)

    (miss,) = player.tally.misses

    assert miss.reason is Reason.OTHER_HISTORY
    assert "this run has made unrecorded tools/call" in miss.detail
    assert miss.read_suggestion == "log"


def test_answer_is_part_of_a_write() -> None:
    """After a decline a store says something else than after an accept."""
    state = "state-of-the-question-xxxxx"
    script: list[Step] = [HINTED, (GET, text("0")), (SET, asks("sure", state=state))]
    for given, value in ((NO, "0 still"), (YES, "1")):
        script += [
            (retry(SET, {"sure": given}, state=state), text("set")),
            (GET, text(value)),
        ]

    for given, got in ((NO, "0 still"), (YES, OTHER)):
        player = player_of(*script)
        asked = state_in(sent_now(player.request_received(as_request(SET))))  # type: ignore[arg-type]

        assert told(player, retry(SET, {"sure": given}, state=asked), GET) == [
            "set",
            got,
        ]


def test_call_that_asks_first_has_its_point_in_history_too() -> None:
    """Its asks are equal, and which of them a client gets decides which value it gets."""
    script: list[Step] = [HINTED]
    for value, step in (("0", (SET, text("set"))), ("1", (LOG, text("logged")))):
        state = f"state-of-{value}-xxxxxxxxxxxx"
        script += [(GET, asks("sure", state=state))]
        script += [(retry(GET, {"sure": YES}, state=state), text(value)), step]

    player = player_of(*script)

    assert told(player, SET) == ["set"]

    asked = state_in(sent_now(player.request_received(as_request(GET))))  # type: ignore[arg-type]

    assert told(player, retry(GET, {"sure": YES}, state=asked)) == ["1"]


def test_unequal_calls_whose_rounds_interleave_end_in_either_order() -> None:
    """A call is in flight from its first request to its last response, its questions included."""
    states = {
        request: f"state-of-{at}-{'x' * 20}" for at, request in enumerate((SET, SET_2))
    }
    script: list[Step] = [HINTED, (GET, text("0"))]
    script += [
        (request, asks("sure", state=state)) for request, state in states.items()
    ]
    retries = [
        retry(request, {"sure": YES}, state=state) for request, state in states.items()
    ]
    script += [(request, text("set")) for request in retries]
    script += [(GET, text("1"))]
    for order in (retries, retries[::-1]):
        player = player_of(*script, seals=False)
        for request in (SET, SET_2):
            player.request_received(as_request(request))

        assert told(player, GET, *order, GET) == ["0", "set", "set", "1"]


def test_call_that_another_client_made_later_is_no_value_of_now() -> None:
    """Calls that this play has not in flight together keep to the recorded order."""
    asking = tool("book")
    state = "state-of-the-question-xxxxx"
    answer = retry(asking, {"sure": YES}, state=state)
    player = player_of(
        (asking, asks("sure", state=state)),
        (answer, text("ticket 1")),
        (SET, text("set")),
        (asking, asks("sure", state=state + "2")),
        (retry(asking, {"sure": YES}, state=state + "2"), text("ticket 2")),
        seals=False,
    )

    player.request_received(as_request(asking))

    assert told(player, asking, answer) == [OTHER, "ticket 1"]


UNKNOWN_STATE = "a-state-that-no-ask-of-this-recording-issued"


@pytest.mark.parametrize("answers", [None, {"sure": YES}])
def test_retry_with_an_unknown_state_holds_no_other_call(answers: Any) -> None:
    """That a server refused somebody's state says nothing of what calls without one depend on."""
    book = tool("book")
    orphan = retry(book, answers, state=UNKNOWN_STATE)
    player = player_of(
        (SET, text("set")),
        (retry(book, answers, number=1), text("booked")),
        (orphan, refusal(orphan)),
    )

    assert told(player, retry(book, answers, number=1), SET) == ["booked", "set"]


def test_call_that_was_refused_is_no_write() -> None:
    """Nothing came of it, so what was read after it belongs to the same history."""
    script: tuple[Step, ...] = (
        HINTED,
        (GET, text("0")),
        (SET_2, refusal(SET_2)),
        *STORE[1:],
    )

    assert told(player_of(*script), GET, SET, GET) == ["0", "set", "1"]

    forbidden = Answer((b"no",), status=403)
    script = (HINTED, (GET, text("0")), (SET_2, forbidden), *STORE[1:])

    assert told(player_of(*script), GET, SET, GET) == ["0", "set", "1"]


def test_each_cassette_has_a_world_of_its_own() -> None:
    """A play goes on as long as one of them has what it writes."""

    def written(write: bytes, value: str) -> Cassette:
        script = (HINTED, (GET, text("0")), (write, text("set")), (GET, text(value)))
        return loaded(cassette_of(*script), "f")

    both = combine_cassettes([written(SET, "1"), written(SET_2, "2")])

    assert told(Player(both), GET, SET_2, GET) == ["0", "set", "2"]
    assert told(Player(both), SET, GET, SET_2, GET) == ["set", "1", "set", OTHER]


def test_sessions_of_several_cassettes_stay_apart() -> None:
    """Their ids are made different, and each is opened in its turn."""

    def session_of(value: str) -> Cassette:
        return loaded(cassette_of(*session_steps("1" * 32, (GET, text(value)))), "f")

    player = Player(combine_cassettes([session_of("1"), session_of("2")]))
    sessions = [open_session(player) for _ in range(2)]

    assert sessions == ["mrtr-session:1", "mrtr-session:100001"]

    words = [said(play(player, within(session, GET))) for session in sessions]

    assert words == ["1", "2"]


def test_questions_of_several_cassettes_stay_apart() -> None:
    """An answer is to the question with its state, whatever else the same call was asked."""

    def asked(words: str) -> Cassette:
        state = f"state-of-{words}-0123456789abcdef"
        again = retry(SET, {"a": YES}, state=state)
        asking = asks("a", state=state, words=f"{words}?")

        return loaded(cassette_of((SET, asking), (again, text(words))), "f")

    player = Player(combine_cassettes([asked("one"), asked("two")]))
    states = [state_in(play(player, SET)) for _ in range(2)]
    answering_second = retry(SET, {"a": YES}, state=states[1])

    assert said(play(player, answering_second)) == "two"


def runs_of(*scripts: tuple[Step, ...], offset_ms: float) -> Cassette:
    """Return a cassette that several recorders wrote, the later ones behind the first."""
    cassette = loaded(cassette_of(*chain(*scripts)))
    ends = [sum(map(len, scripts[: at + 1])) for at in range(len(scripts))]
    changed = {}
    for interaction in cassette.interactions:
        for exchange in interaction.unshared_exchanges:
            number = exchange.number or 0
            run = sum(number > end for end in ends)
            changed[exchange] = replace(
                exchange, recorded_by=RecordedBy(f"r{run}", number)
            )

    facts = [
        RecorderFacts(f"r{run}", 0, run * offset_ms) for run in range(len(scripts))
    ]
    return replace(cassette.with_exchanges(changed), recorders=tuple(facts))


def test_run_that_was_appended_is_a_world_and_recorders_that_were_merged_are_one() -> (
    None
):
    """An appended run saw the server from its own beginning, a merged one beside the others."""
    second: tuple[Step, ...] = ((SET_2, text("set")), (GET, text("2")))
    for offset_ms, got in ((0.0, ["set", "2"]), (5.0, ["set", OTHER])):
        player = Player(runs_of((HINTED, *STORE), second, offset_ms=offset_ms))

        assert told(player, SET_2, GET) == got


def test_write_that_got_no_response_may_have_been_made_or_not() -> None:
    """What came after it belongs to either."""
    talk = conversation(HINTED, (GET, text("0")))
    left = talk.request(SET)
    talk.exchange(GET, text("1"))
    talk.end(left)
    for requests, got in (([GET, GET], ["0", "1"]), ([GET, SET, GET], ["0", "", "1"])):
        player = Player(loaded(talk.cassette()))
        words = []
        for request in requests:
            body = play(player, request)
            words.append(said(body) if body else "")

        assert words == got


def test_response_on_another_stream_ends_a_write() -> None:
    """A call that was only accepted is in flight until its response has come on the session's."""
    talk = Conversation()
    session = "1" * 32
    for request, response in session_steps(session, HINTED, (GET, text("0"))):
        talk.exchange(request, response)

    listening = talk.stream(
        within(session, rpc("subscriptions/listen", {}, number="l"))
    )
    talk.exchange(within(session, SET), stream())

    assert listening


READ_AFTER: tuple[Step, ...] = (
    HINTED,
    (SET, text("set")),
    (GET, text("1")),
    (SET_2, text("set")),
)
READ_TWICE: tuple[Step, ...] = (
    HINTED,
    (GET, text("0")),
    (SET, text("set")),
    (GET, text("0")),
)


@pytest.mark.parametrize(
    ("script", "requests", "strayed"),
    [
        (READ_AFTER, [SET, GET, GET, SET_2], {}),
        (READ_AFTER, [GET, GET, SET], {3: 2}),
        (READ_AFTER, [SET, SET_2, GET], {3: 1}),
        (READ_AFTER, [SET_2, GET], {3: 1}),
        (READ_TWICE, [SET, GET], {}),
        (READ_TWICE, [GET, GET, SET, GET, GET], {}),
        (STORE, [GET, SET, GET], {}),
    ],
)
def test_read_that_is_let_through_is_known(
    script: tuple[Step, ...], requests: list[bytes], strayed: dict[int, int]
) -> None:
    """It had one answer, and this play's writes are not those that were recorded before it."""
    player = player_of(*script)

    assert OTHER not in told(player, *requests)
    assert player.played_part.after_other_writes == strayed

    ordered = player_of(*script, history=History.ORDER)
    told(ordered, *requests)

    assert ordered.played_part.after_other_writes == {}

    if strayed:
        assert OTHER in told(player_of(*script, history=History.STRICT), *requests)
