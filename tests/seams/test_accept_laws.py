"""What is accepted from a changed server is what a fresh recording of it would have."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from builders import Conversation, loaded, refusal, retry, show, token_of, tool
from hypothesis import given
from hypothesis import strategies as st
from messages import NO, YES, Json, asks, form, text
from tasking import created, get, state, update
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


class Question(NamedTuple):
    """A question that a build of the server asks, and what it is about in all builds."""

    about: str
    key: str
    words: str

    @property
    def asked(self) -> Json:
        return {self.key: form(self.words)}

    def asked_by(self, task: str) -> Json:
        """Return it as a task asks it: what it is about is a field of its form."""
        schema = {"type": "object", "properties": {self.about: {"type": "boolean"}}}
        question = form(self.words)
        return {
            f"{task}:{self.key}": {
                **question,
                "params": {**question["params"], "requestedSchema": schema},
            }
        }


@dataclass(frozen=True)
class Build:
    """One build of a server that keeps what is put, and does jobs as tasks.

    Attributes:
        rounds: the questions of `put`, one round after the other.
        names: its tools.
        job: the questions of a job, one after the other.
        prefix: what all results begin with.
        has_states: whether `put` hands out states.
    """

    rounds: tuple[tuple[Question, ...], ...]
    names: frozenset[str] = frozenset({"put", "get", "job"})
    job: tuple[Question, ...] = ()
    prefix: str = ""
    has_states: bool = True

    def tools(self) -> Json:
        return {"tools": [{"name": name} for name in sorted(self.names)]}


@dataclass
class Server:
    """A live server; its request states and task ids are its own."""

    build: Build
    run: str
    values: list[str] = field(default_factory=list)
    agreed: dict[str, list[bool]] = field(default_factory=dict)
    tasks: dict[str, list[bool]] = field(default_factory=dict)

    def respond(self, body: bytes) -> Json:
        """Return the response to a request."""
        message = json.loads(body)
        params = message.get("params", {})
        match message["method"]:
            case "tools/call":
                return self._called(body, params)
            case "tools/list":
                return self.build.tools()
            case "tasks/get":
                return self._task(params["taskId"])
            case "tasks/update":
                (given,) = params["inputResponses"].values()
                self.tasks[params["taskId"]].append(given["action"] == "accept")

        return {}

    def _called(self, body: bytes, params: Json) -> Json:
        if params["name"] not in self.build.names:
            return refusal(body, words=f"Unknown tool: {params['name']}")
        if params["name"] == "get":
            return self._said(json.dumps(self.values))
        if params["name"] == "put":
            return self._put(params)

        identity = f"task-{len(self.tasks)}-of-{self.run}-{'x' * 20}"
        self.tasks[identity] = []
        return created(identity)

    def _said(self, words: str) -> Json:
        return text(f"{self.build.prefix}{words}")

    def _put(self, params: Json) -> Json:
        place = params.get("requestState")
        agreed = self.agreed[place] if place else []
        given = params.get("inputResponses", {})
        said = [answer["action"] == "accept" for answer in given.values()]
        agreed = [*agreed, *said]
        turn = self._turn_after(given) if place is None else int(place.split("-")[1])
        if turn == len(self.build.rounds):
            if all(agreed):
                self.values.append(params["arguments"]["value"])

            return self._said("kept" if all(agreed) else "left")

        state = f"state-{turn + 1}-{len(self.agreed)}-of-{self.run}-{'x' * 20}"
        self.agreed[state] = agreed
        asked: Json = {}
        for question in self.build.rounds[turn]:
            asked |= question.asked

        return {
            **asks(state=state if self.build.has_states else None),
            "inputRequests": asked,
        }

    def _turn_after(self, given: Json) -> int:
        for turn, asked in enumerate(self.build.rounds, start=1):
            if given and given.keys() == {question.key for question in asked}:
                return turn

        return 0

    def _task(self, identity: str) -> Json:
        agreed = self.tasks[identity]
        if len(agreed) < len(self.build.job):
            question = self.build.job[len(agreed)]
            return state(
                identity, "input_required", inputRequests=question.asked_by(identity)
            )

        result = self._said("done" if all(agreed) else "not done")
        return state(identity, "completed", result=result)


class Operation(NamedTuple):
    """One call of a client, and what it answers to each subject."""

    name: str
    value: str = ""
    answers: tuple[bool, ...] = (True, True, True)

    def given(self, about: str) -> Json:
        return YES if self.answers["abc".index(about)] else NO


@dataclass
class Client:
    """Makes the same calls, and answers what it could answer when it was recorded."""

    server: Server
    known: Build
    talk: Conversation = field(default_factory=Conversation)

    def sends(self, request: Any) -> Json:
        number = self.talk.request(request)
        body = self.talk.observation(number).call.request.body
        response = self.server.respond(body)
        self.talk.response(number, response)

        return response

    def does(self, operation: Operation) -> None:
        """Make a call, with all its rounds."""
        arguments = {"value": operation.value} if operation.name == "put" else {}
        request = tool(operation.name, **arguments)
        response = self.sends(request)
        if operation.name == "job" and isinstance(response, dict):
            self._follows(response["taskId"], operation)
            return

        turn = 0
        while isinstance(response, dict) and "inputRequests" in response:
            asked = self.server.build.rounds[turn]
            if not self._knows(asked):
                return

            given = {
                question.key: operation.given(question.about) for question in asked
            }
            again = retry(
                request, given, state=response.get("requestState"), number=turn + 2
            )
            response = self.sends(again)
            turn += 1

    def _knows(self, asked: tuple[Question, ...]) -> bool:
        """Tell whether it has the answers to a round."""
        for known in self.known.rounds:
            keys = {question.key for question in known}
            words = {question.words for question in known}
            if all(
                question.key in keys or question.words in words for question in asked
            ):
                return True

        return False

    def _follows(self, task: str, operation: Operation) -> None:
        seen = self.sends(get(task))
        while seen["status"] == "input_required":
            ((key, asked),) = seen["inputRequests"].items()
            (about,) = asked["params"]["requestedSchema"]["properties"]
            if about not in {question.about for question in self.known.job}:
                return

            self.sends(update(task, {key: operation.given(about)}))
            seen = self.sends(get(task))


def recorded(run: list[Operation], build: Build, known: Build, name: str) -> Cassette:
    """Return the recording of a client with one build, which knows the questions of another."""
    client = Client(Server(build, name), known)
    for operation in run:
        client.does(operation)

    return load(dump(loaded(client.talk.cassette())), name)


def followed(steps: Any, server: Server) -> None:
    """Have a live server respond to all that is sent."""
    while (observation := steps.next_request()) is not None:
        show(observation, server.respond(observation.call.request.body))
        steps.response_received(observation)


def held(
    cassette: Cassette, server: Server, accepts: Accepts | None = None
) -> list[VerifiedInteraction]:
    """Return what comes of a cassette with a live server."""
    verifier = verifier_for(cassette, token_of=token_of, accepts=accepts)
    verified = []
    for plan in planned_interactions(cassette):
        repeated = verifier.begin_interaction(plan)
        if not isinstance(repeated, VerifiedInteraction):
            followed(repeated.conversation, server)
            repeated = verifier.end_interaction(repeated)

        verified.append(repeated)

    return verified


def taken(
    cassette: Cassette, server: Server, verdicts: tuple[str, ...]
) -> tuple[Cassette, list[Proposal]]:
    """Take what a live server says now into a cassette; return it, and what is left."""

    def choose(proposed: Any) -> list[Proposal]:
        return accepted_by_verdict(proposed, verdicts)

    proposed = proposals_for_cassette(
        cassette, held(cassette, server, turn_accepter(cassette, choose))
    )
    chosen = choose(proposed)
    left = [proposal for proposal in proposed if proposal not in chosen]

    return load(updated_cassette_file(dump(cassette), cassette, chosen), "taken"), left


def verdicts_of(cassette: Cassette, server: Server) -> set[str]:
    """Return the verdicts on a live server."""
    return {verified.verdict for verified in held(cassette, server)}


A = Question("a", "a", "About a?")
B = Question("b", "b", "About b?")
C = Question("c", "c", "About c?")
OLD_ROUNDS = [((A,),), ((A,), (B,)), ((A, B),), ((A, B), (C,))]


def new_question(question: Question) -> st.SearchStrategy[Question]:
    """Return a question as another build asks it: in other words, or under another key."""
    reworded = question._replace(words=f"Really about {question.about}?")
    renamed = question._replace(key=f"{question.key}2")
    return st.sampled_from([question, reworded, renamed])


@st.composite
def builds(draw: Callable[[st.SearchStrategy[Any]], Any]) -> tuple[Build, Build]:
    """Return two builds, of which the later one has changed in any way."""
    asked_by_job = draw(st.sampled_from([(A,), (A, B)]))
    had_states = draw(st.booleans())
    old = Build(
        draw(st.sampled_from(OLD_ROUNDS)), job=asked_by_job, has_states=had_states
    )
    rounds = []
    for asked in old.rounds:
        kept = [question for question in asked if draw(st.integers(0, 5))]
        questions = [draw(new_question(question)) for question in kept]
        rounds.append(tuple(questions))

    added = Question("c", "new", "Something else?")
    if draw(st.booleans()):
        place = draw(st.integers(0, len(rounds)))
        rounds.insert(place, (added,))

    rounds = draw(st.permutations(rounds)) if draw(st.booleans()) else rounds
    names = frozenset(name for name in sorted(old.names) if draw(st.integers(0, 4)))
    job = [
        draw(new_question(question)) for question in old.job if draw(st.integers(0, 3))
    ]
    if draw(st.booleans()):
        place = draw(st.integers(0, len(job)))
        job.insert(place, added)

    prefix = draw(st.sampled_from(["", "v2: "]))
    new_rounds = tuple(asked for asked in rounds if asked)
    return old, Build(new_rounds, names, tuple(job), prefix, had_states)


def operations() -> st.SearchStrategy[list[Operation]]:
    """Return what a client does."""
    answers = st.tuples(st.booleans(), st.booleans(), st.booleans())
    puts = st.builds(Operation, st.just("put"), st.sampled_from("AB"), answers)
    jobs = st.builds(Operation, st.just("job"), st.just(""), answers)
    gets = st.just(Operation("get"))

    return st.lists(st.one_of(puts, puts, gets, gets, jobs), min_size=1, max_size=6)


@given(operations(), builds())
def test_accepting_all_is_recording_the_conversation_anew(
    run: list[Operation], changed: tuple[Build, Build]
) -> None:
    """The cassette then says what the server says now, and nothing differs any more."""
    old, new = changed
    cassette = recorded(run, old, old, "old")
    updated, left = taken(cassette, Server(new, "live"), ACCEPTABLE_VERDICTS)

    assert left == []
    assert verdicts_of(updated, Server(new, "next")) == {"same"}

    fresh = recorded(run, new, old, "fresh")
    comparison = cassette_comparison(fresh, updated)

    assert comparison.changes == []
    assert comparison.is_same


def ending(interaction: RecordedInteraction) -> str:
    """Return how a call ended, in whatever build: in a word, an error, or at a question."""
    members = interaction.ending_exchange.rpc_members
    if interaction.is_open or "error" in members:
        return "open" if interaction.is_open else "error"

    result = members["result"]
    words: str = result.get("result", result)["content"][0]["text"]
    return words.removeprefix("v2: ")


@given(operations(), builds(), st.sets(st.sampled_from(ACCEPTABLE_VERDICTS)))
def test_no_read_is_taken_after_a_write_that_is_not(
    run: list[Operation], changed: tuple[Build, Build], verdicts: set[str]
) -> None:
    """Where the cassette has another end of a write than the live server, what is read stays."""
    old, new = changed
    cassette = recorded(run, old, old, "old")
    updated, _ = taken(cassette, Server(new, "live"), tuple(verdicts))
    fresh = recorded(run, new, old, "fresh")
    is_live = True
    for before, now, live in zip(
        cassette.interactions, updated.interactions, fresh.interactions, strict=True
    ):
        if before.exchanges[0].call.name == "get":
            is_as_live = is_live and ending(now) == ending(live)

            assert is_as_live or ending(now) == ending(before)
        else:
            is_live = is_live and ending(now) == ending(live)


@given(operations(), builds())
def test_no_read_differs_because_a_question_was_not_answered(
    run: list[Operation], changed: tuple[Build, Build]
) -> None:
    """Of a server that asks otherwise, and is the same in all else, only what asks is changed."""
    old, new = changed
    asking = replace(new, prefix=old.prefix, names=old.names)
    cassette = recorded(run, old, old, "old")
    for verified in held(cassette, Server(asking, "live")):
        if verified.verdict == "skipped":
            assert "may depend on #" in str(verified.reason)
        elif verified.planned.call.name == "get":
            assert verified.verdict == "same"
