"""Recording over a cassette: what stays, what changes, and what the one repeats of the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders import (
    INITIALIZE,
    Answer,
    Conversation,
    Step,
    answer,
    cassette_of,
    changed,
    loaded,
    notification,
    opened,
    play,
    post,
    progress,
    retry,
    rpc,
    said,
    state_in,
    stream,
    tool,
    with_id,
    with_meta,
    with_token,
    within,
)
from messages import YES, Json, asks, form, text
from pushing import PushingSession, elicit, posted
from tasking import created, get, state, update

from mrtr_cassette.core.cassette.dump import dump
from mrtr_cassette.core.cassette.load import load
from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.compare.conversations import cassette_comparison
from mrtr_cassette.core.drive.plan import planned_interactions
from mrtr_cassette.core.drive.rerecording import recorded_over
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.report.details import details_of
from mrtr_cassette.core.wire.sse import event_id


def recorded(*script: Step, **options: Any) -> Cassette:
    """Return the cassette of exchanges that follow one another."""
    return loaded(cassette_of(*script, **options))


def over(old: Cassette, new: Cassette) -> tuple[Cassette, str]:
    """Return a recording over another one, read from its file, and which interactions it kept."""
    whole, count = recorded_over(old, new)
    written = load(dump(whole), "f")
    before = lines_of(old)
    marks = ""
    for lines in lines_of(written):
        marks += "=" if lines in before else "~"

    assert marks.count("=") == count
    return written, marks


def lines_of(cassette: Cassette) -> list[bytes]:
    """Return what a file has of each interaction."""
    found = []
    for interaction in cassette.interactions:
        alone = replace(cassette, interactions=(interaction,))
        lines, _, _ = dump(alone).partition(b'\n  "recording"')
        found.append(lines)

    return found


def session(run: str, *, number: int = 1, report: Json = "as ever") -> list[Step]:
    """Return a session in which all that nobody fixes is a run's own."""
    session_id = f"session-of-{run}-0123456789"
    listing = with_meta(rpc("tools/list", {}, number), traceparent=f"00-{run}")
    page = with_id(changed(listing, "params", "cursor", to=f"{run}:2"), number + 1)
    call = with_token(with_id(tool("deploy"), number + 2), run)
    state = f"state-of-{run}" * 3
    again = retry(call, {"a": YES}, state=state, number=number + 3)
    asking = stream(progress(run), answer(call, asks("a", state=state)))
    events = []
    for at, event in enumerate(asking.chunks):
        events.append(b"id: %b-%d\n%b" % (run.encode(), at, event))

    return [
        (INITIALIZE, opened(session_id)),
        (within(session_id, listing), {"tools": [], "nextCursor": f"{run}:2"}),
        (within(session_id, page), {"tools": [{"name": report}]}),
        (within(session_id, call), asking._replace(chunks=tuple(events))),
        (within(session_id, again), text("done")),
    ]


def test_what_is_new_in_every_run_changes_nothing() -> None:
    """Ids, tokens, traces, cursors, states, events and sessions of a run leave a cassette alone."""
    old = recorded(*session("one"))

    assert recorded_over(old, recorded(*session("two", number=40))) == (old, 4)


def test_changed_interaction_repeats_what_was_kept() -> None:
    """A page that differs stands in the kept session, behind the kept cursor."""
    news = within("session-of-others-0123456789", tool("news"))
    new = recorded((news, text("new")), *session("two", number=40, report="now"))
    whole, marks = over(recorded(*session("one")), new)

    assert marks == "~==~="

    requests = []
    for interaction in whole.interactions:
        requests += [exchange.request for exchange in interaction.unshared_exchanges]

    names = [request.header("mcp-session-id") for request in requests]

    assert names == ["mrtr-session:2", "", *["mrtr-session:1"] * 4]

    cursors = [read_call(request).cursor for request in requests]

    assert cursors[2:4] == [None, "one:2"]


SECRET = "ghp_" + "abcdefghij" * 3
OTHER = "ghp_" + "klmnopqrst" * 3


def test_changed_interaction_shares_no_secret_by_chance() -> None:
    """The number of a secret is that of the kept one, or one that nothing kept has."""
    login = (tool("login", key=SECRET), text("in"))
    old = recorded(login, (tool("use", key=SECRET), text("used")), redacts=True)
    new = recorded(
        (tool("other", key=OTHER), text("new")),
        login,
        (tool("use", key=SECRET), text("used otherwise")),
        redacts=True,
    )

    whole, marks = over(old, new)

    assert marks == "~=~"

    keys = []
    for interaction in whole.interactions:
        message = interaction.exchanges[0].call.message
        assert message is not None
        keys.append(message.params["arguments"]["key"])

    assert keys == ["<github:2>", "<github:1>", "<github:1>"]


def test_changed_interaction_names_the_questions_of_the_kept_ones() -> None:
    """Each has its kept id, also if a server numbers its questions and another came first."""

    def named(place: int) -> str:
        return f"question-{place:08}"

    def asked(*order: str, words: str) -> Cassette:
        session = PushingSession()
        for place, name in enumerate(order):
            call = with_id(tool("deploy", name=name), name)
            question = elicit(name, f"Deploy {name}?", elicitationId=named(place))
            number = session.open(call)
            session.say(number, question)
            session.post(posted(question, YES))
            session.end(number, answer(call, text("done")))

        summary = [f"{name} {named(place)}" for place, name in enumerate(order)]
        session.post(tool("sum"), text(f"{words}: {', '.join(sorted(summary))}"))

        return loaded(session.talk.cassette())

    old = asked("a", "b", words="old")
    whole, marks = over(old, asked("b", "a", words="new"))
    bodies = [
        exchange.response.body for exchange in whole.exchanges if exchange.response
    ]

    assert marks == "==~"
    assert f"new: a {named(0)}, b {named(1)}".encode() in bodies[-1]


def test_changed_stream_has_no_event_of_a_kept_one() -> None:
    """In a session a client that resumes the one would get the rest of the other."""

    def of(*names: str) -> Cassette:
        script: list[Step] = []
        for at, name in enumerate(names):
            call = tool(name)
            response = stream(answer(call, text(name)))
            event = b"id: %d\n%b" % (at, response.chunks[0])
            numbered = response._replace(chunks=(event,))
            script.append((within("1" * 32, call), numbered))

        return recorded(*script)

    whole, marks = over(of("a", "b"), of("new", "a", "b"))

    assert marks == "~=="

    ids = [
        event_id(interaction.exchanges[0].response.body)
        for interaction in whole.interactions
    ]  # type: ignore[union-attr]

    assert len({*ids}) == 3


def test_equal_call_has_a_state_of_its_own() -> None:
    """A state that a new call was issued is none of those that stand already."""
    call = tool("deploy")
    kept_state = "s" * 30
    new_state = "t" * 30
    kept = [
        (call, asks("a", state=kept_state)),
        (retry(call, {"a": YES}, state=kept_state), text("a")),
    ]

    asking = (call, asks("b", state=new_state))
    branch = (retry(call, {"a": 1}, state=new_state), text("b"))
    whole, marks = over(recorded(*kept), recorded(asking, branch, *kept))

    assert marks == "~="

    issued = [
        interaction.exchanges[0].ask.request_state for interaction in whole.interactions
    ]  # type: ignore[union-attr]

    assert len({*issued}) == 2

    player = Player(whole)
    for answers, words in (({"a": 1}, "b"), ({"a": YES}, "a")):
        state = state_in(play(player, call))
        played = play(player, retry(call, answers, state=state))

        assert said(played) == words


def names_of(cassette: Cassette) -> str:
    """Return the names of the calls of a file, in its order."""
    return "".join(
        interaction.exchanges[0].call.name for interaction in cassette.interactions
    )


def test_order_is_that_of_the_new_conversation() -> None:
    """What moved is moved, kept or not, and what was not called again goes."""
    a = (tool("a"), text("a"))
    b = (tool("b"), text("b"))
    other_b = (tool("b"), text("B"))
    c = (tool("c"), text("c"))
    d = (tool("d"), text("d"))
    whole, marks = over(recorded(a, b, c), recorded(c, d, other_b, a))

    assert (names_of(whole), marks) == ("cdba", "=~~=")
    assert [interaction.exchanges[0].number for interaction in whole.interactions] == [
        1,
        2,
        3,
        4,
    ]


def test_calls_that_were_in_flight_together_stay_in_the_earlier_order() -> None:
    """Which of them came first is chance, and moves no line."""
    talk = Conversation()
    numbers = [talk.request(tool(name)) for name in "bca"]
    for number in numbers:
        talk.response(number, text("B" if number == 1 else "other"))

    later = talk.request(tool("d"))
    talk.response(later, text("other"))
    old = recorded(*((tool(name), text("other")) for name in "dabc"))

    whole, marks = over(old, loaded(talk.cassette()))

    assert (names_of(whole), marks) == ("abcd", "=~==")


def test_what_was_called_first_is_first_whatever_the_file_has() -> None:
    """An older file may have a read before the write that came before it."""
    whole = recorded((tool("put"), text("kept")), (tool("get"), text("[1]")))
    first, second = whole.interactions
    moved = (replace(second, number=1), replace(first, number=2))
    older = load(dump(replace(whole, interactions=moved)), "f")

    assert names_of(older) == "getput"
    assert [plan.call.name for plan in planned_interactions(older)] == ["put", "get"]
    assert [interaction.number for interaction in details_of(older).interactions] == [
        2,
        1,
    ]

    pairs = [
        (interaction.recorded, interaction.is_moved)
        for interaction in cassette_comparison(older, whole).interactions
    ]

    assert pairs == [(2, False), (1, False)]


def test_a_changed_result_is_a_diff_of_its_lines() -> None:
    """What is kept has its times and its upstream, too, however long the new recording took."""
    asked = asks("a", state="the-state-of-0123456789abcdef-once")
    script = [
        (tool("a"), text("a")),
        (tool("b"), stream(progress(1), answer(tool("b"), text("b")))),
        (tool("c"), asked),
        (retry(tool("c"), {"a": YES}, state=asked["requestState"]), text("c")),
        (tool("d"), text("d")),
    ]

    old = replace(recorded(*script), upstream="http://127.0.0.1:1234/mcp")
    talk = Conversation()
    for request, response in [
        *script[:4],
        (tool("d"), text("D")),
        (tool("e"), text("e")),
    ]:
        for _ in range(7):
            talk.tick()

        number = talk.request(request)
        talk.tick()
        talk.response(number, response)

    new = replace(loaded(talk.cassette()), upstream="http://127.0.0.1:5678/mcp")
    without_e = replace(new, interactions=new.interactions[:-1])

    before = dump(old).decode().splitlines()
    over_old, _ = recorded_over(old, without_e)
    after = dump(over_old).decode().splitlines()
    pairs = zip(before, after, strict=True)
    changed = [line.strip()[:12] for old, line in pairs if old != line]

    assert changed == ['"text": "D"', '{"number":5,']

    whole = recorded_over(old, new)[0]
    more = dump(whole).decode().splitlines()

    assert [line for line in after if line not in more] == [after[-4]]

    *_, last, added = whole.interactions

    assert added.exchanges[-1].started_ms > last.exchanges[-1].ended_ms


def listening(words: str, *, more: str = "", first: int = 1) -> Cassette:
    """Return a session in which a question comes on a stream that other calls share."""
    pushing = PushingSession()
    stream = pushing.listen()
    call = with_id(tool("ask"), first)
    other_call = with_id(tool("other"), first + 1)
    asking = pushing.open(call)
    question = elicit(f"push-{first}", words)
    pushing.say(stream, question)
    pushing.post(posted(question, YES))
    pushing.end(asking, answer(call, text("done")))
    pushing.post(other_call, text(f"other{more}"))
    pushing.end(stream)

    return loaded(pushing.talk.cassette())


@pytest.mark.parametrize(
    ("new", "marks"),
    [
        (listening("Sure?", first=10), "==="),
        (listening("Sure?", first=10, more=" now"), "==~"),
        (listening("Really?", first=10), "~~="),
    ],
    ids=["all the same", "the question stays", "another question"],
)
def test_stream_is_kept_together_with_the_calls_of_which_it_tells(
    new: Cassette, marks: str
) -> None:
    """A question and the call during which it was asked never have ids of two recordings."""
    whole, found = over(listening("Sure?"), new)

    assert found == marks
    assert whole.interactions[1].pushed_turns[0].given_answers == {"elicitation-1": YES}
    assert Player(whole).entries


def test_branches_are_kept_together() -> None:
    """Where one answer has another result, its question is the new one in all branches."""

    def branches(result: str, run: str) -> Cassette:
        call = with_token(tool("deploy"), run)
        state = "s" * 30 + run
        return recorded(
            (call, asks("a", state=state)),
            (retry(call, {"a": 1}, state=state), text("a")),
            (retry(call, {"a": 2}, state=state), text(result)),
            (tool("x"), text("x")),
        )

    assert over(branches("b", "one"), branches("c", "two"))[1] == "~~="


@pytest.mark.parametrize(
    "options", [{"seals": False}, {"redacts": True}, {"seals_answers": True}]
)
def test_recording_that_hides_something_else_is_written_whole(
    options: dict[str, bool],
) -> None:
    """Nothing is kept that another recording left out, or in."""
    new = recorded((tool("a"), text("a")), **options)

    assert recorded_over(recorded((tool("a"), text("a"))), new) == (new, 0)


def test_what_the_earlier_one_lacks_is_written() -> None:
    """What breaks no client is written all the same: a header of a request, a further tool."""
    new = recorded(
        (post(tool("a"), ("Accept", "x")), text("a")), (tool("b"), text("b"))
    )
    old = recorded((tool("a"), text("a")), (tool("b"), text("b")))

    assert over(old, new)[1] == "~="
    assert recorded_over(new, old) == (new, 2)

    listing = rpc("tools/list")
    tools = [{"name": "a"}, {"name": "b"}]
    shorter = recorded((listing, {"tools": tools[:1]}))
    longer = recorded((listing, {"tools": tools}))

    assert over(shorter, longer)[1] == "~"


def test_a_call_without_response_gets_none_of_the_earlier_recording() -> None:
    """The earlier response is not put into a recording that has seen none."""
    old = recorded((tool("a"), text("a")), (tool("b"), text("b")))
    new = recorded((tool("a"), Answer((), (), 0)), (tool("b"), text("b")))
    whole, marks = over(old, new)

    assert marks == "~="
    assert whole.interactions[0].exchanges[0].response is None


def test_pace_of_polls_changes_nothing() -> None:
    """A task is as it was, whatever its id, and a changed call beside it is the only change."""

    def run(task: str, *polled: Json, note: str = "as ever") -> Cassette:
        key = f"{task}:k"
        noted = (tool("note"), text(note))
        begun = (tool("book"), created(task))
        polls = [(get(task), poll) for poll in polled]
        asked = (get(task), state(task, "input_required", key))
        answered = (update(task, {key: YES}), {})
        end = state(task, "completed", at=f"{len(polled)}", result=text("booked"))

        return recorded(noted, begun, *polls, asked, answered, *polls, (get(task), end))

    first_task = "id-of-the-first-task-a1b2c"
    third_task = "and-an-id-of-a-third-1a2b3c"
    slow = run(first_task, state(first_task, words="soon"))
    fast = run("id-of-another-task-d3e4f5")

    assert recorded_over(slow, fast) == (slow, 2)
    assert recorded_over(fast, slow) == (fast, 2)

    for old in (slow, fast):
        whole, marks = over(old, run(third_task, state(third_task), note="new"))

        assert marks == "~="
        assert [step.poll_count for step in whole.interactions[1].steps][-1] == 1


def test_stream_that_tells_of_a_task_is_as_it_was() -> None:
    """Another id, and other keys made of it, are no change."""

    def run(task: str, key: str) -> Cassette:
        talk = Conversation()
        talk.exchange(tool("book"), created(task))
        listening = talk.stream(rpc("subscriptions/listen", {"taskIds": [task]}))
        asked = state(task, "input_required", key)
        asked["inputRequests"] = {key: form("Sure?")}
        talk.event(listening, notification("notifications/tasks", **asked))
        talk.exchange(update(task, {key: YES}), {})
        talk.end(listening)

        return loaded(talk.cassette())

    old = run("id-of-the-first-task-a1b2c", "id-of-the-first-task-a1b2c:9e")

    new = run("id-of-another-task-d3e4f5", "id-of-another-task-d3e4f5:1a")

    assert recorded_over(old, new) == (old, 2)


def test_validators_and_nonces_of_a_run_change_nothing_once_they_are_recorded() -> None:
    """A cassette from before they were kept gets them; from then on, new values leave it alone."""

    def run(*headers: tuple[str, str]) -> Cassette:
        listing = rpc("tools/list")
        response = Answer((answer(listing, {}),), headers)
        return recorded((listing, response))

    first = run(("ETag", "1"), ("Last-Modified", "then"), ("DPoP-Nonce", "one"))
    second = run(("ETag", "2"), ("Last-Modified", "now"), ("DPoP-Nonce", "two"))

    assert lines_of(over(run(), first)[0]) == lines_of(first)
    assert recorded_over(first, second) == (first, 1)
    assert recorded_over(first, run()) == (first, 1)
