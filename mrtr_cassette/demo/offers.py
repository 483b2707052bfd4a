"""What the demo server offers: tools, prompts and resources, and the flow that each call takes.

Rule: a flow is a pure function of (arguments, answers, state). What a later round needs of an
earlier one travels in the signed state; the server remembers nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from mrtr_cassette.demo.inputs import LINK, ROOTS, SAMPLING, TEXT, YES_NO, InputRound
from mrtr_cassette.demo.rpc import INVALID_PARAMS, JsonObject, RpcError


class InputNeeded(NamedTuple):
    """The call requires input; the state is signed and sent with it, unless it is None."""

    questions: InputRound
    state: JsonObject | None


class Completed(NamedTuple):
    """The call is complete."""

    text: str
    is_error: bool = False


Outcome: TypeAlias = InputNeeded | Completed
Flow: TypeAlias = Callable[[JsonObject, JsonObject, JsonObject | None], Outcome]


def _add(arguments: JsonObject, _answers: JsonObject, _state: JsonObject | None) -> Completed:
    return Completed(str(arguments["a"] + arguments["b"]))


def _rounds(
    done: str, refused: str | None, *rounds: InputRound, signed: bool = False, fails: bool = False
) -> Flow:
    """Make the flow that puts `rounds` one after another and then says `done`.

    `done` and `refused` are templates over the arguments and the answers. A refusal ends the call
    with `refused`, as a tool error if it `fails`; where there is no text for it, it is an answer
    like any other. `signed` asks carry a request state; two rounds cannot do without.
    """

    def flow(arguments: JsonObject, answers: JsonObject, state: JsonObject | None) -> Outcome:
        turn, known = (state["turn"], state["known"]) if state else (0, {})
        # Answers that come without the state of their questions answer nothing.
        is_asked = turn < len(rounds) and (state is not None or not signed)
        if is_asked and rounds[turn].keys() <= answers.keys():
            read = {key: kind.read(key, answers[key]) for key, (kind, _) in rounds[turn].items()}
            known = known | {key: text for key, (_, text) in read.items()}
            if refused is not None and not all(agreed for agreed, _ in read.values()):
                return Completed(refused.format_map(arguments | known), fails)
            turn += 1
        if turn < len(rounds):
            return InputNeeded(rounds[turn], {"turn": turn, "known": known} if signed else None)
        return Completed(done.format_map(arguments | known))

    return flow


_deploy = _rounds("Deployed to {env}", "Deployment cancelled", YES_NO(confirm="Deploy to {env}?"))
_tag_release = _rounds(
    "Tagged {tag}", "Tagging cancelled by the operator", YES_NO(confirm="Tag {tag}?"), fails=True
)
_provision = _rounds(
    "Provisioned {name} in {region}",
    "Provisioning cancelled",
    TEXT(name="Database name?", region="Which region?"),
)
_wipe_cache = _rounds(
    "Wiped {scope}",
    "Wiping cancelled",
    YES_NO(confirm="Really wipe the cache?"),
    TEXT(scope="Which scope?"),
    signed=True,
)
_release_train = _rounds(
    "Train {version}: {window}, {notes}",
    "Train {version} cancelled",
    YES_NO(approve="Approve train {version}?"),
    TEXT(window="Which window?"),
    TEXT(notes="Any notes?"),
    signed=True,
)
_everything = _rounds(
    "confirm {confirm}, signin {signin}, summary {summary}, roots {roots}",
    None,
    YES_NO(confirm="Continue?")
    | LINK(signin="Sign in to continue")
    | SAMPLING(summary="Summarize the diff")
    | ROOTS(roots=""),
    signed=True,
)
_build = _rounds("Built {target}", None, {}, signed=True)
_count = _rounds("Counted to {to}", None)
_ask_late = _rounds(
    "Done after {steps}",
    "Stopped after {steps}",
    YES_NO(confirm="Finish after {steps}?"),
    signed=True,
)
_release_notes = _rounds(
    "Notes on {version} for {audience}",
    "Notes on {version} for everyone",
    TEXT(audience="Who reads the notes?"),
)
_deployment = _rounds(
    "replicas: 3", "withheld", YES_NO(confirm="Reveal the deployment configuration?")
)
_plain = _rounds("plain", None)


class Offer(NamedTuple):
    """A tool, prompt or resource; with `progress`, it streams that argument's number of steps."""

    flow: Flow
    parameters: Mapping[str, JsonObject] = {}
    progress: str | None = None


STRING: JsonObject = {"type": "string"}
COUNT: JsonObject = {"type": "integer", "minimum": 0, "maximum": 1000}
# Within these bounds every sum is finite and can be written down.
NUMBER: JsonObject = {"type": "number", "minimum": -1e300, "maximum": 1e300}

TOOLS: dict[str, Offer] = {
    "add": Offer(_add, {"a": NUMBER, "b": NUMBER}),
    "deploy": Offer(_deploy, {"env": STRING}),
    "tag-release": Offer(_tag_release, {"tag": STRING}),
    "provision": Offer(_provision),
    "wipe-cache": Offer(_wipe_cache),
    "release-train": Offer(_release_train, {"version": STRING}),
    "everything": Offer(_everything),
    "build": Offer(_build, {"target": STRING}),
    "count": Offer(_count, {"to": COUNT}, progress="to"),
    "ask-late": Offer(_ask_late, {"steps": COUNT}, progress="steps"),
}
PROMPTS: dict[str, Offer] = {"release-notes": Offer(_release_notes, {"version": STRING})}
RESOURCES: dict[str, Offer] = {
    "config://deployment": Offer(_deployment),
    "config://plain": Offer(_plain),
}


def checked_arguments(offer: Offer, given: JsonObject) -> JsonObject:
    """Return the arguments of a call, counts as integers.

    Raises:
        RpcError: one is missing, or has the wrong type or range.
    """
    whole: JsonObject = {}
    for key, schema in offer.parameters.items():
        value = given.get(key)
        if schema is STRING:
            is_valid = isinstance(value, str)
        else:
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            is_valid = is_number and schema["minimum"] <= value <= schema["maximum"]
        if is_valid and isinstance(value, float) and schema is COUNT:
            is_valid, whole[key] = value.is_integer(), int(value)
        if not is_valid:
            raise RpcError(INVALID_PARAMS, f"Invalid argument {key!r}", {"schema": schema})
    return given | whole
