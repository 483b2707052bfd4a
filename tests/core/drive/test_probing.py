"""Probes without a socket: what is sent for a recorded ask, and the verdict on what comes."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from builders import Answer, cassette_of, exchange, follow, loaded, retry, tool
from messages import NO, YES, Json, asks, text
from pushing import asked_once, elicit
from tasking import CALL as TASK
from tasking import created, get, state, task_steps, update
from verifying import verifier_for

from mrtr_cassette.core.drive.conversation import Conversation
from mrtr_cassette.core.drive.plan import planned_interactions
from mrtr_cassette.core.drive.probing import (
    PROBE_AS_RECORDED,
    PROBES,
    Probe,
    ProbedAsk,
    ProbingScript,
    altered_state,
    probed_asks,
    probes_of_ask,
    with_another_argument,
)
from mrtr_cassette.core.drive.verdicts import (
    Baseline,
    Probed,
    Reaction,
    probe_outcome,
    reaction_of_conversation,
    varying_places,
    verdict_and_reason,
)
from mrtr_cassette.core.drive.verification import Verifier
from mrtr_cassette.core.report.probes import (
    Probing,
    probing_annotations,
    probing_junit,
    probings_data,
    probings_markdown,
    read_expected,
)

CALL = tool("deploy", env="prod")
STATE = "recorded-state-0123456789"
LIVE = "live-state-0123456789"
ACCEPT: Json = {
    "action": "accept",
    "content": {"ok": True, "count": 3, "env": "prod", "mail": "a@example.com"},
}
SCHEMA: Json = {
    "type": "object",
    "properties": {
        "ok": {"type": "boolean"},
        "count": {"type": "integer", "minimum": 1, "maximum": 5},
        "env": {"type": "string", "enum": ["prod", "staging"]},
        "mail": {"type": "string", "format": "email"},
    },
    "required": ["ok", "count"],
}


def form_of(schema: Json = SCHEMA) -> Json:
    """Return an ask with a form under the key `a`, and a state."""
    asked = asks("a", state=STATE)
    asked["inputRequests"]["a"]["params"]["requestedSchema"] = schema
    return asked


def probing_of(*script: Any) -> tuple[Verifier, list[ProbedAsk]]:
    """Return what a cassette's questions are probed with, and these."""
    cassette = loaded(cassette_of(*script), "c.json")
    return verifier_for(cassette, "/live"), probed_asks(planned_interactions(cassette))


def apart(
    verifier: Verifier, ask: ProbedAsk, probe: Probe | None
) -> tuple[Conversation, ProbingScript]:
    """Return a conversation that makes a probe, and its script."""
    script = ProbingScript(verifier.separate_script(ask.planned), ask, probe)
    return verifier.conversation_with(ask.planned, script), script


SCRIPT = (
    (CALL, form_of()),
    (retry(CALL, {"a": ACCEPT}, state=STATE), text("deployed 3 to prod")),
)


def test_a_form_is_answered_in_each_way_that_its_schema_tells() -> None:
    """Each probe has the recorded answer, but for a single thing."""
    _, (ask,) = probing_of(*SCRIPT)
    sent = {}
    for probe in probes_of_ask(ask, is_slow=True):
        if not probe.is_about_state:
            sent[probe.name] = json.loads(probe.answer or b"null")

    content = ACCEPT["content"]

    def accepting(**members: Json) -> Json:
        return {"action": "accept", "content": {**content, **members}}

    assert sent == {
        "declined": {"action": "decline"},
        "cancelled": {"action": "cancel"},
        "accepted-empty": {"action": "accept"},
        "accepted-false": accepting(ok=False),
        "answer-wrong-type": accepting(ok="no"),
        "answer-out-of-bounds": accepting(count=6),
        "answer-not-in-enum": accepting(env="mrtr-cassette-probe"),
        "answer-extra-member": accepting(mrtrCassetteProbe=True),
        "answer-extra-key": {"action": "accept"},
        "answer-missing-key": None,
    }

    names = {probe.name for probe in probes_of_ask(ask, is_slow=True)}

    assert PROBES[0] in names
    assert "state-other-question" not in names


def test_a_number_is_sent_as_text_rather_than_a_text_as_a_list() -> None:
    """Servers convert that, whatever the order of the fields."""
    kind = {"type": "string"}
    size = {"type": "integer"}
    schema = {"properties": {"kind": kind, "size": size}, "required": ["kind", "size"]}
    accept = {"action": "accept", "content": {"kind": "small", "size": 3}}
    answer = (retry(CALL, {"a": accept}, state=STATE), text("done"))
    _, (ask,) = probing_of((CALL, form_of(schema)), answer)
    sent = {
        probe.name: probe.sent_in_words for probe in probes_of_ask(ask, is_slow=False)
    }
    content = json.loads(sent["answer-wrong-type"])["content"]

    assert content == {"kind": "small", "size": "3"}


@pytest.mark.parametrize(
    ("bounds", "sent"),
    [
        ({"maximum": 5.5}, 6),
        ({"minimum": -5.5}, -6),
        ({"maximum": 9007199254740993}, 9007199254740994),
        ({"maximum": 1e17}, 10**17 + 1),
    ],
)
def test_a_number_out_of_bounds_is_exact(bounds: Json, sent: int) -> None:
    """A bound may have more digits than a floating-point number."""
    schema = {"properties": {"n": {"type": "number", **bounds}}, "required": ["n"]}

    assert out_of_bounds(schema, 3) == sent


@pytest.mark.parametrize("bounds", [{"maxLength": 2**31 - 1}, {"maximum": 10**400}])
def test_no_probe_goes_beyond_a_bound_that_is_far_away(bounds: Json) -> None:
    """A text of two gigabytes is none that a server has to refuse."""
    schema = {"properties": {"n": {"type": "string", **bounds}}, "required": ["n"]}

    assert out_of_bounds(schema, "x") is None


def out_of_bounds(schema: Json, accepted: Any) -> Any:
    """Return what is sent beyond the bounds of a field; None if nothing is."""
    accept = {"action": "accept", "content": {"n": accepted}}
    answer = (retry(CALL, {"a": accept}, state=STATE), text("done"))
    _, (ask,) = probing_of((CALL, form_of(schema)), answer)
    for probe in probes_of_ask(ask, is_slow=True):
        if probe.name == "answer-out-of-bounds":
            return json.loads(probe.answer or b"null")["content"]["n"]

    return None


def test_branches_of_one_ask_are_probed_once_from_the_accepted_one() -> None:
    """A recorded decline is no probe of its own; it says how the server declines."""
    declined = (retry(CALL, {"a": NO}, state=STATE), text("not deployed"))
    _, (ask,) = probing_of(SCRIPT[0], declined, SCRIPT[1])

    assert ask.given_answers == {"a": ACCEPT}
    assert [exchange.number for exchange in ask.declined_interactions] == [1]


@pytest.mark.parametrize(
    ("probe", "answers"),
    [
        (Probe("declined", "a", b'{"action":"decline"}'), {"a": NO}),
        (Probe("answer-missing-key", "a"), {}),
        (Probe("answer-extra-key", "b", b"{}"), {"a": ACCEPT, "b": {}}),
        (PROBE_AS_RECORDED, {"a": ACCEPT}),
    ],
)
def test_a_probe_is_the_recorded_retry_with_another_answer(
    probe: Probe, answers: Json
) -> None:
    """It has the live state, and what comes after it is not answered."""
    verifier, (ask,) = probing_of(*SCRIPT)
    live = form_of() | {"requestState": LIVE}
    conversation, script = apart(verifier, ask, probe)
    _, sent = follow(conversation, live, live)
    params = json.loads(sent.body)["params"]

    assert (params["inputResponses"], params["requestState"]) == (answers, LIVE)
    assert script.next_ask is not None
    assert (
        reaction_of_conversation(conversation, script.next_ask).ask is script.next_ask
    )


def test_another_question_is_not_probed() -> None:
    """The recorded answers are about something else."""
    verifier, (ask,) = probing_of(*SCRIPT)
    conversation, script = apart(verifier, ask, PROBE_AS_RECORDED)
    follow(conversation, asks("other", state=LIVE))

    assert script.reply is None


def test_a_pushed_question_has_the_probes_of_answers_only() -> None:
    """It has no state, and its keys are ours."""
    pushed = elicit(7)
    cassette = asked_once(pushed, YES, CALL, text("done"))
    (ask,) = probed_asks(planned_interactions(cassette))
    names = {probe.name for probe in probes_of_ask(ask, is_slow=True)}

    assert {"declined", "cancelled"} <= names
    assert not any(name.startswith(("state", "retry")) for name in names)
    assert names.isdisjoint({"answers-unasked", "answer-missing-key"})


def test_a_question_of_a_task_has_the_name_that_it_has_in_every_run() -> None:
    """Its key has the id of the task, so nobody could name it in a file. It has no state."""
    _, (ask,) = probing_of(*task_steps("recorded-task-0123456789-abcdef"))
    questions = set()
    of_states = []
    for probe in probes_of_ask(ask, is_slow=False):
        if probe.is_about_state:
            of_states.append(probe.name)
        else:
            questions.add(probe_outcome(ask, probe, "refused", None).question)

    assert questions == {"task:1", "mrtr-cassette-probe"}
    assert of_states == ["answers-unasked"]


def test_the_question_of_a_task_that_is_probed_gets_the_answer() -> None:
    """Questions that are asked together may come in another order in every run."""
    recorded = "recorded-task-0123456789-abcdef"
    live = "live-task-0123456789-abcdef"
    both = {f"{recorded}:x": YES, f"{recorded}:y": YES}
    last = state(recorded, "completed", result=text("built"))
    verifier, (ask,) = probing_of(
        (TASK, created(recorded)),
        (get(recorded), state(recorded, "input_required", *both)),
        (update(recorded, both), {}),
        (get(recorded), last),
    )

    (key,) = [key for key, asked in ask.requests.items() if asked.message == "x?"]
    probe = Probe("declined", key, b'{"action":"decline"}')
    conversation, _ = apart(verifier, ask, probe)
    both_live = state(live, "input_required", f"{live}:y", f"{live}:x")
    done = {**last, "taskId": live}
    sent = follow(conversation, created(live), both_live, {}, done)
    (answers,) = [
        json.loads(request.body)["params"]["inputResponses"]
        for request in sent
        if b"inputResponses" in request.body
    ]

    assert answers == {f"{live}:x": NO, f"{live}:y": YES}


def test_a_state_is_altered_in_what_it_encodes() -> None:
    """A digit of readable base64, or else of the state itself; its length stays."""
    encoded = base64.urlsafe_b64encode(b'{"step":2,"env":"prod"}').decode().rstrip("=")
    altered = altered_state(f"{encoded}.c2ln")
    head, _, tail = altered.partition(".")
    padded = head + "=" * (-len(head) % 4)

    assert base64.urlsafe_b64decode(padded) == b'{"step":3,"env":"prod"}'
    assert tail == "c2ln"

    version, payload, tail = altered_state(f"v1.{encoded}.c2ln").split(".")

    assert (version, payload, tail) == ("v1", head, "c2ln")
    assert altered_state("step-2") == "step-3"


def test_other_arguments_are_such_as_the_tool_takes() -> None:
    """Another choice where there are choices, or another text."""
    schema = {"properties": {"env": {"enum": ["prod", "staging"]}}}
    arguments = []
    for known in (schema, {}):
        body = with_another_argument(CALL, known) or b""
        arguments.append(json.loads(body)["params"]["arguments"])

    assert arguments == [{"env": "staging"}, {"env": "prod-2"}]
    assert with_another_argument(tool("ping"), {}) is None


def ended(value: Json) -> Reaction:
    """Return the reaction of a server that ends the call."""
    return Reaction(exchange(CALL, value))


DONE = text("deployed 3 to prod")
REFUSED = text("not deployed")
FAILED = {"isError": True, **text("no")}
SHARP = {"isError": True, **text("Boom\n   at Shop.Deploy() in /src/Shop.cs:line 12")}
TRACED = {"isError": True, **text('Traceback (most recent call last):\n  File "x"')}
OUTSIDE = Probe("answer-out-of-bounds", "a", b"{}", (6, 3))


@pytest.mark.parametrize(
    ("name", "response", "verdict"),
    [
        ("answer-wrong-type", DONE, "acted"),
        ("answer-wrong-type", REFUSED, "refused"),
        ("answer-wrong-type", FAILED, "refused"),
        ("answer-wrong-type", form_of(), "refused"),
        ("answer-wrong-type", text("something else"), "changed"),
        ("answer-wrong-type", TRACED, "crashed"),
        ("answer-wrong-type", SHARP, "crashed"),
        ("answer-wrong-type", Answer((b"oops",), (), 500), "crashed"),
        ("answer-extra-member", DONE, "ignored"),
        ("answer-extra-member", text("something else"), "changed"),
        ("retry-repeated", DONE, "repeatable"),
        ("answers-unasked", DONE, "acted"),
        ("declined", DONE, "acted"),
        ("declined", REFUSED, "refused"),
        (OUTSIDE, text("deployed 6 to prod"), "acted"),
        (OUTSIDE, text("deployed 7 to prod"), "changed"),
    ],
)
def test_a_reaction_has_its_verdict(name: Any, response: Json, verdict: str) -> None:
    """It is compared with what accepting and declining give."""
    verifier, (ask,) = probing_of(*SCRIPT)
    conversation, script = apart(verifier, ask, PROBE_AS_RECORDED)
    follow(conversation, form_of() | {"requestState": LIVE}, DONE)
    baseline = Baseline(ask, reaction_of_conversation(conversation, None), script)
    for declining in ("declined", "cancelled"):
        baseline.declining_reactions[declining, "a"] = ended(REFUSED)

    probe = name
    if isinstance(name, str):
        question = "a" if name.startswith(("answer-", "declined")) else None
        probe = Probe(name, question, b"{}")

    conversation, script = apart(verifier, ask, PROBE_AS_RECORDED)
    follow(conversation, form_of() | {"requestState": LIVE}, response)

    assert (
        verdict_and_reason(
            probe, baseline, reaction_of_conversation(conversation, script.next_ask)
        )[0]
        == verdict
    )


def test_a_trace_that_the_tool_shows_anyway_is_no_crash() -> None:
    """Its result for the recorded answers has one too."""
    verifier, (ask,) = probing_of(*SCRIPT)
    _, script = apart(verifier, ask, PROBE_AS_RECORDED)
    shown = ended(text("Traceback (most recent call last):"))
    baseline = Baseline(ask, shown, script)
    probe = Probe("answer-extra-member", "a", b"{}")

    assert verdict_and_reason(probe, baseline, shown)[0] == "ignored"


def test_a_confirmation_is_denied_though_no_field_is_required() -> None:
    """A form of nothing but booleans is one; another form may have them for something else."""
    flag = {"type": "boolean"}
    word = {"type": "string"}
    names = []
    for fields in ({"ok": flag}, {"ok": flag, "env": word}):
        accept = {"action": "accept", "content": {"ok": True}}
        answered = retry(CALL, {"a": accept}, state=STATE), text("done")
        _, (ask,) = probing_of((CALL, form_of({"properties": fields})), answered)
        names.append({probe.name for probe in probes_of_ask(ask, is_slow=False)})

    assert ["accepted-false" in found for found in names] == [True, False]


def test_nothing_is_decided_where_declining_gives_the_same() -> None:
    """Unless the recording has another ending for it."""
    for script, verdict in (
        (SCRIPT, "undecidable"),
        ((*SCRIPT, (retry(CALL, {"a": NO}, state=STATE), text("no"))), "acted"),
    ):
        verifier, (ask,) = probing_of(*script)
        conversation, probing = apart(verifier, ask, PROBE_AS_RECORDED)
        follow(conversation, form_of() | {"requestState": LIVE}, DONE)
        baseline = Baseline(ask, reaction_of_conversation(conversation, None), probing)
        for declining in ("declined", "cancelled"):
            baseline.declining_reactions[declining, "a"] = ended(DONE)

        probe = Probe("declined", "a", b"{}")

        assert verdict_and_reason(probe, baseline, ended(DONE))[0] == verdict


@pytest.mark.parametrize(
    ("done", "declined", "verdict"),
    [
        ("sign-in: accept", "sign-in: decline", "undecidable"),
        ("sign-in: accept", "not signed in", "acted"),
        ("not signed in", "not signed in", "refused"),
        ("deployed 3 to prod", "deployed 3 to prod", "undecidable"),
    ],
)
def test_a_server_that_repeats_the_answer_has_not_acted_on_a_visit(
    done: str, declined: str, verdict: str
) -> None:
    """Its result says what was answered, or that nobody visited the page, unlike the recorded one."""
    verifier, (ask,) = probing_of(*SCRIPT)
    _, script = apart(verifier, ask, PROBE_AS_RECORDED)
    accepted = ended(text(done))
    baseline = Baseline(ask, accepted, script)
    baseline.declining_reactions["declined", "a"] = ended(text(declined))
    probe = Probe("url-accepted-at-once", "a", b"{}")

    assert verdict_and_reason(probe, baseline, accepted)[0] == verdict


def test_words_in_which_two_accepts_differ_do_not_count() -> None:
    """A number that goes up with each call is no difference, and hides nothing else."""
    first = ended(text("run 1 deployed"))
    second = ended(text("run 2 deployed"))

    assert varying_places(first, second) == ("/content/0/text#word/1",)


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        ("[[expect]]\nprobe='declined'\ntool='a'", "has no 'reason'"),
        (
            "[[expect]]\nprobe='declined'\ntool='a'\nreason='b'\nwhy='c'",
            "has an unknown key 'why'",
        ),
        ("[[expect]]\nprobe='x'\ntool='a'\nreason='b'", "is not a probe"),
        ("[[expect]]\nprobe='declined'\ntool='a'\nreason=' '", "is not a text"),
        ("[expected]", "may have tables"),
    ],
)
def test_a_file_of_expected_findings_is_exact(file: str, problem: str) -> None:
    """A key that is unknown or missing is an error, as a typo would silence nothing."""
    with pytest.raises(ValueError, match=problem.replace("[", r"\[")):
        read_expected(file)


def test_a_finding_is_told_once_with_all_its_calls() -> None:
    """In every form of the report; another verdict, and another tool, are findings by themselves."""
    made = []
    for number, tool_name, verdict in (
        (1, "deploy", "acted"),
        (2, "deploy", "acted"),
        (3, "deploy", "crashed"),
        (4, "wipe", "acted"),
        (5, "deploy", "acted"),
    ):
        call = f'tools/call "{tool_name}"'
        made.append(
            Probed(
                number, call, tool_name, 1, "a", "declined", verdict, is_finding=True
            )
        )

    probing = Probing("c.json", "server", tuple(made))

    assert [(found.number, found.also) for found in probing.findings] == [
        (1, ("#2, turn 1", "#5, turn 1")),
        (3, ()),
        (4, ()),
    ]

    assert "3 findings in 5 probes" in probing.text

    (data,) = probings_data([probing])["cassettes"]

    assert [len(data[name]) for name in ("findings", "probes")] == [3, 5]
    assert len(probing_annotations(probing)) == 3

    junit = probing_junit([probing]).decode()

    assert junit.count("<failure") == 3

    for shown in (probing.text, junit, probings_markdown([probing])):
        assert shown.count("acted: declined") == 2
        assert "also      #2, turn 1; #5, turn 1" in shown


def test_an_expected_change_is_told_once() -> None:
    """It is neither a finding any more, nor one of the changes that only inform."""
    _, (ask,) = probing_of(*SCRIPT)
    made = probe_outcome(ask, Probe("retry-repeated"), "changed", None)
    (expected,) = read_expected(
        "[[expect]]\nprobe='retry-repeated'\ntool='deploy'\nreason='it counts'"
    )
    probing = Probing("c.json", "server", (made,)).with_expected([expected])

    assert probing.text.count("retry-repeated") == 1
    assert probing.is_good
