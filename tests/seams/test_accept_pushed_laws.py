"""What is accepted of pushed questions is what a fresh recording of the changed server would have."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from builders import (
    ACCEPTED,
    STREAM_HEADERS,
    Answer,
    Conversation,
    answer,
    loaded,
    rpc,
    show,
    sse,
    token_of,
    tool,
    with_id,
    within,
)
from hypothesis import given
from hypothesis import strategies as st
from messages import NO, YES, Json, compact, message, result, text
from verifying import verifier_for

from mrtr_cassette.core.cassette.dump import dump
from mrtr_cassette.core.cassette.load import load
from mrtr_cassette.core.cassette.recorded import Cassette, RecordedInteraction
from mrtr_cassette.core.compare.conversations import cassette_comparison
from mrtr_cassette.core.drive.plan import planned_interactions
from mrtr_cassette.core.drive.updating import (
    ACCEPTABLE_VERDICTS,
    Proposal,
    accepted_by_verdict,
    proposals_for_cassette,
    turn_accepter,
    updated_cassette_file,
)
from mrtr_cassette.core.drive.verification import Accepts, VerifiedInteraction
from mrtr_cassette.core.wire.http import JSON_HEADERS


class Question(NamedTuple):
    """A question that a build pushes; what it is about is a field of its form."""

    about: str
    words: str

    def pushed(self, identity: str) -> bytes:
        """Return it as a request of the server."""
        schema = {"type": "object", "properties": {self.about: {"type": "boolean"}}}
        params = {"mode": "form", "message": self.words, "requestedSchema": schema}
        return compact(message("elicitation/create", params, id=identity))


@dataclass(frozen=True)
class Build:
    """One build of a server that asks before it keeps a value.

    Attributes:
        questions: what it pushes, one after the other.
        prefix: what all results begin with.
        progress: how often it logs before it asks.
    """

    questions: tuple[Question, ...]
    prefix: str = ""
    logs: int = 0


@dataclass
class Server:
    """A live server."""

    build: Build
    run: str
    values: list[str] = field(default_factory=list)
    pushed: int = 0

    @property
    def session(self) -> str:
        return f"session-of-{self.run}-{'x' * 20}"

    def opens(self, body: bytes) -> Answer:
        """Return the response that opens a session."""
        return Answer(
            (answer(body, {}),), (*JSON_HEADERS, ("Mcp-Session-Id", self.session))
        )

    def reads(self) -> Json:
        """Return the result of `get`."""
        return text(f"{self.build.prefix}{json.dumps(self.values)}")

    def talks(self, value: str) -> Generator[bytes, bool, Json]:
        """Yield the messages of `put`, and get whether the client agrees; return the result."""
        are_agreed = []
        for _ in range(self.build.logs):
            yield LOG

        for question in self.build.questions:
            self.pushed += 1
            are_agreed.append((yield question.pushed(f"{self.run}-{self.pushed}")))

        if all(are_agreed):
            self.values.append(value)

        return text(f"{self.build.prefix}{'kept' if all(are_agreed) else 'left'}")


LOG = compact(
    message("notifications/message", {"level": "info", "data": "thinking"}, id=None)
)


class Operation(NamedTuple):
    """One call of a client, and what it answers to each subject."""

    name: str
    value: str = ""
    agrees: tuple[bool, ...] = (True, True, True)


def answered(operation: Operation, pushed: bytes) -> bytes:
    """Return what the client posts in response to a question."""
    asked = json.loads(pushed)
    (about,) = asked["params"]["requestedSchema"]["properties"]
    agrees = operation.agrees["abc".index(about)]

    return compact(result(YES if agrees else NO, id=asked["id"]))


def recorded(run: list[Operation], build: Build, name: str) -> Cassette:
    """Return the recording of a client with a build."""
    server = Server(build, name)
    talk = Conversation()
    opening = rpc("initialize")
    talk.exchange(opening, server.opens(opening))
    session = server.session
    for place, operation in enumerate(run, start=2):
        request = with_id(tool(operation.name, value=operation.value), place)
        if operation.name == "get":
            talk.exchange(within(session, request), server.reads())
            continue

        number = talk.stream(within(session, request))
        end = _put(talk, number, server, operation)
        talk.event(number, answer(request, end))
        talk.end(number)

    return load(dump(loaded(talk.cassette())), name)


def _put(talk: Conversation, number: int, server: Server, operation: Operation) -> Json:
    """Record a call; return its result."""
    steps = server.talks(operation.value)
    said: Any = next_of(steps)
    while isinstance(said, bytes):
        talk.event(number, said)
        agrees = True
        if said != LOG:
            (about,) = json.loads(said)["params"]["requestedSchema"]["properties"]
            post = within(server.session, answered(operation, said))
            talk.exchange(post, ACCEPTED)
            agrees = operation.agrees["abc".index(about)]

        said = next_of(steps, agrees)

    return said


def next_of(steps: Generator[bytes, bool, Json], *agrees: bool) -> Json:
    """Return the next message, or the result at the end."""
    try:
        return steps.send(*agrees) if agrees else next(steps)
    except StopIteration as end:
        return end.value


class Live:
    """A live server that is held to a cassette."""

    def __init__(self, build: Build, run: str) -> None:
        self.server = Server(build, run)

    def follow(self, steps: Any) -> None:
        """Have it respond to all that is sent."""
        while (observation := steps.next_request()) is not None:
            call = observation.call
            if observation.call.name == "put":
                self._puts(steps, observation)
            elif call.method == "initialize":
                show(observation, self.server.opens)
            else:
                show(
                    observation, self.server.reads() if call.name == "get" else ACCEPTED
                )

            steps.response_received(observation)

    def _puts(self, steps: Any, observation: Any) -> None:
        value = json.loads(observation.call.request.body)["params"]["arguments"][
            "value"
        ]
        observation.response_started(200, STREAM_HEADERS)
        talking = self.server.talks(value)
        said: Any = next_of(talking)
        while isinstance(said, bytes):
            agrees = True
            if said == LOG:
                observation.response_bytes(sse(said), 0.0)
            else:
                observation.response_bytes(sse(said), 0.0)
                (push,) = observation.take_pushes()
                posted = steps.session.give_push_to_owner(push)
                if posted is None:
                    return

                show(posted, ACCEPTED)
                steps.session.response_received(posted)
                reply = json.loads(posted.call.request.body)
                agrees = reply["result"]["action"] == "accept"

            said = next_of(talking, agrees)

        observation.response_bytes(
            sse(answer(observation.call.request.body, said)), 0.0
        )
        observation.response_ended(0.0)


def held(
    cassette: Cassette, live: Live, accepts: Accepts | None = None
) -> list[VerifiedInteraction]:
    """Return what comes of a cassette with a live server."""
    verifier = verifier_for(cassette, token_of=token_of, accepts=accepts)
    verified = []
    for plan in planned_interactions(cassette):
        repeated = verifier.begin_interaction(plan)
        if not isinstance(repeated, VerifiedInteraction):
            live.follow(repeated.conversation)
            repeated = verifier.end_interaction(repeated)

        verified.append(repeated)

    return verified


def taken(cassette: Cassette, live: Live) -> tuple[Cassette, list[Proposal]]:
    """Take what a live server says now into a cassette; return it, and what is left."""

    def choose(proposed: Any) -> list[Proposal]:
        return accepted_by_verdict(proposed, ACCEPTABLE_VERDICTS)

    proposed = proposals_for_cassette(
        cassette, held(cassette, live, turn_accepter(cassette, choose))
    )
    chosen = choose(proposed)
    left = [proposal for proposal in proposed if proposal not in chosen]

    return load(updated_cassette_file(dump(cassette), cassette, chosen), "taken"), left


def waits_for_answers(interaction: RecordedInteraction) -> bool:
    """Tell whether a replay says what follows a question once that is answered, by its id."""
    for turn in interaction.pushed_turns:
        for request, posted in zip(turn.pushed_requests, turn.answers, strict=False):
            pieces = request.exchange.response.pieces  # type: ignore[union-attr]
            number = posted.exchange.number or 0
            later = [piece.arrived_count for piece in pieces[request.piece_index + 1 :]]
            said = posted.exchange.call.message
            if said is None or said.id != request.message.id:
                return False
            if pieces[request.piece_index].arrived_count >= number or any(
                after < number for after in later
            ):
                return False

    return True


SUBJECTS = [Question(name, f"About {name}?") for name in "ab"]


@st.composite
def changes(
    draw: Callable[[st.SearchStrategy[Any]], Any],
) -> tuple[list[Operation], Build, Build]:
    """Return what a client does, and two builds, of which the later one has changed in any way."""
    agrees = st.tuples(st.booleans(), st.booleans(), st.booleans())
    puts = st.builds(Operation, st.just("put"), st.sampled_from("AB"), agrees)
    operation = st.one_of(puts, st.just(Operation("get")))
    calls = st.lists(operation, min_size=1, max_size=5)
    run = draw(calls)
    subjects = draw(st.sampled_from([SUBJECTS[:1], SUBJECTS]))
    logs = draw(st.integers(0, 1))
    old = Build(tuple(subjects), logs=logs)

    questions = []
    for question in old.questions:
        if draw(st.integers(0, 3)):
            words = draw(st.sampled_from([question.words, f"Really {question.about}?"]))
            questions.append(question._replace(words=words))

    prefix = draw(st.sampled_from(["", "v2: "]))
    return run, old, Build(tuple(questions), prefix, draw(st.integers(0, 2)))


@given(changes())
def test_accepting_pushed_questions_is_recording_the_conversation_anew(
    changed: tuple[list[Operation], Build, Build],
) -> None:
    """Reworded or gone: the cassette says what the server asks now, and nothing differs then."""
    run, old, new = changed
    cassette = recorded(run, old, "old")
    updated, left = taken(cassette, Live(new, "live"))

    assert left == []

    verdicts = {verified.verdict for verified in held(updated, Live(new, "next"))}

    assert verdicts == {"same"}
    assert all(map(waits_for_answers, updated.interactions))

    comparison = cassette_comparison(recorded(run, new, "fresh"), updated)

    assert comparison.changes == []
    assert comparison.is_same


def test_a_pushed_question_without_a_recorded_answer_is_not_taken() -> None:
    """No recording adds the answer, so the call stays; the others are taken."""
    run = [Operation("put", "A"), Operation("get")]
    cassette = recorded(run, Build((SUBJECTS[0],)), "old")
    extra = Question("c", "Something else?")
    updated, left = taken(cassette, Live(Build((SUBJECTS[0], extra)), "live"))
    (proposal,) = left

    assert dump(updated) == dump(cassette)
    assert proposal.problem == (
        "the server pushes a question without a recorded answer: record it again"
    )
    assert not proposal.ends_at_question
