"""The ways out of a miss, with the values that make them work when copied."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from mrtr_cassette.core.cassette.entries import ReplayEntry
from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.cassette.transports import is_started_here
from mrtr_cassette.core.compare.values import is_time_or_id
from mrtr_cassette.core.protocol.calls import resumed_event_id
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.replay.diagnosis import Miss, Reason
from mrtr_cassette.core.secrets.names import has_secrets
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.wire.pointers import Difference, pointer_path
from mrtr_cassette.terms import Terms, Values, given_options, in_terms

_RECORD_TOO: Final = "record this {} too with <<record_too>>"
_IGNORE_VALUES: Final = (
    "leave values that change in every run out of matching with <<ignore_values>>"
)
_DECLARE_READ_ONLY: Final = (
    "if it changes nothing on the server, say so with <<reads_tool>>"
)
_ALLOW_REPEAT: Final = "allow it again with <<repeat_always>>"
_RECORD_INSTEAD: Final = "record this answer instead with <<record_again>>"
_RECORD_AGAIN: Final = "record all of this cassette again with <<record_again>>"

_FIXES_OF_RESUMPTION: Final = (
    "resume a stream after an event that this replay has sent on it",
    _RECORD_TOO.format("request"),
)
_FIXES_BY_REASON: Final[Mapping[Reason, Sequence[str]]] = {
    Reason.UNKNOWN_METHOD: (
        "check the URL that the client uses",
        _RECORD_TOO.format("request"),
    ),
    Reason.UNKNOWN_NAME: ("make a recorded call", _RECORD_TOO.format("call")),
    Reason.SESSION_UNKNOWN: (
        "send the session id that this replay gave in its response to initialize",
        _RECORD_TOO.format("request"),
    ),
    Reason.CONDITION_MISSING: (_RECORD_TOO.format("request"),),
    Reason.ARGUMENTS_DIFFER: (
        "send the recorded arguments",
        _RECORD_TOO.format("call"),
        _IGNORE_VALUES,
    ),
    Reason.STATE_UNKNOWN: (
        "echo the requestState of the ask as this replay sent it, not one of another call or run",
    ),
    Reason.STATE_MISSING: ("send the retry with the requestState of the ask",),
    Reason.STATE_UNEXPECTED: (
        "send the retry without a requestState, as the ask has none",
    ),
    Reason.ANSWERS_DIFFER: (
        "answer as recorded",
        _RECORD_TOO.format("answer"),
        _RECORD_INSTEAD,
        _IGNORE_VALUES,
    ),
    Reason.ANSWERS_MISSING: (
        "answer everything that was answered in the recording",
        _RECORD_TOO.format("answer"),
    ),
    Reason.HEADERS_CONTRADICT: (
        "send the method and the name of the body in the headers Mcp-Method and Mcp-Name",
    ),
    Reason.ALREADY_PLAYED: (
        "make the call no more often than it was recorded",
        _RECORD_TOO.format("call"),
        _DECLARE_READ_ONLY,
        _ALLOW_REPEAT,
    ),
    Reason.OTHER_HISTORY: (
        "make the same writes as in the recording before this call",
        _DECLARE_READ_ONLY,
        _RECORD_TOO.format("call"),
        "play equal calls in recorded order, whatever was written, with <<history_order>>",
    ),
    Reason.OUT_OF_ORDER: (
        "send the call without answers first, then answer its question",
    ),
    Reason.ELSEWHERE: ("let the server name its own origin, and record it again",),
    Reason.NO_RESPONSE: (
        "give the call up sooner, as in the recording",
        "record the whole call again, and wait for its response",
    ),
    Reason.NOT_LISTENING: (
        "open the stream (GET) on which the server asks, and answer there",
        "record the whole call again with a client that doesn't open it",
    ),
    Reason.UNREADABLE: (
        "have the client send the recorded id",
        "record the call again, with a response that can be read: <<no_coding>>",
    ),
    Reason.HOOK_FAILED: ("mend the function",),
    Reason.VALUE_UNKNOWN: ("say which text it has in this run with <<give_value>>",),
    Reason.UNRECORDED: (
        "record the whole call again, into another cassette",
        _RECORD_AGAIN,
    ),
}
"""The ways out of a miss, by its reason; each front fills the slots in its own terms."""

_FIXES_DURING_A_CALL: Final[Mapping[Reason, Sequence[str]]] = {
    Reason.ANSWERS_DIFFER: (
        "answer as recorded",
        "record the whole call, or session, with this answer, into another cassette",
    ),
    Reason.OUT_OF_ORDER: (
        "make the call, poll its task, and answer its question, in this order",
    ),
    Reason.UNKNOWN_METHOD: (
        "let the task go on",
        "record the whole call with the cancellation, into another cassette",
    ),
}
"""The same for answers to pushed requests and tasks: a call that is played has no other course."""

_ABOUT_ANSWERS: Final = (Reason.ANSWERS_DIFFER, Reason.ANSWERS_MISSING)
_USER_IN_URL: Final = re.compile("(?<=://)[^/@]*@")
_VALUE_OF_SLOT: Final = {"<<reads_tool>>": "tool", "<<ignore_values>>": "pointers"}
"""Slots of ways out that work only with a value."""


def fixes_of(miss: Miss, cassette: Cassette, adds_to: str, terms: Terms) -> list[str]:
    """Return the ways out of a miss, in the terms of a front.

    `adds_to` is the file to which more is recorded.
    """
    values = _values_for_slots(miss, cassette, adds_to)
    is_on_pipes = miss.call.request.is_line
    fitting_fixes = _fitting_fixes(miss, values)
    if is_on_pipes is not (cassette.transport == "stdio"):
        fitting_fixes = _fixes_over_other_transport(
            fitting_fixes, is_on_pipes=is_on_pipes
        )

    filled_terms = _terms_for_recording_server(cassette, terms, is_on_pipes=is_on_pipes)
    if any("<<record_again>>" in fix for fix in fitting_fixes):
        filled_terms["hidden"] = given_options(_hiding_options(cassette), terms)

    return [
        in_terms(fix, filled_terms, values)
        for fix in fitting_fixes
        if _has_needed_values(fix, values)
    ]


def _has_needed_values(fix: str, values: Values) -> bool:
    """Tell whether the values are known without which a way out doesn't work."""
    for slot, name in _VALUE_OF_SLOT.items():
        if slot in fix and name not in values:
            return False

    return True


def _fitting_fixes(miss: Miss, values: Values) -> Sequence[str]:
    """Return the ways out that fit a miss, before any value is filled in."""
    nearest = miss.nearest
    if resumed_event_id(miss.call.request) and miss.reason is Reason.STATE_UNKNOWN:
        return _FIXES_OF_RESUMPTION

    fixes = list(_FIXES_BY_REASON[miss.reason])
    if "tool" in values and _ALLOW_REPEAT in fixes:
        fixes.remove(_ALLOW_REPEAT)

    if nearest is None:
        return fixes

    return _fixes_for_nearest(miss, nearest, fixes, values)


def _answers_pushed_question_otherwise(miss: Miss, nearest: ReplayEntry) -> bool:
    """Tell whether a client has answered a pushed question otherwise than was recorded."""
    reason = miss.reason
    if reason is Reason.ANSWERS_DIFFER and miss.call.kind is Kind.RESPONSE:
        return True
    if nearest.answered_question is None or not miss.differences:
        return False

    return reason is not Reason.UNKNOWN_METHOD


def _fixes_for_nearest(
    miss: Miss, nearest: ReplayEntry, fixes: list[str], values: Values
) -> Sequence[str]:
    """Return the ways out that fit what is nearest to a miss: these, or others instead."""
    reason = miss.reason
    if _answers_pushed_question_otherwise(miss, nearest):
        return _FIXES_DURING_A_CALL[Reason.ANSWERS_DIFFER]
    if nearest.call_of_step is not None:
        return _FIXES_DURING_A_CALL.get(reason, fixes)
    if reason is Reason.UNRECORDED and not nearest.is_ask:
        # It can't be recorded after a write that was played, whose result may vary in every run.
        return [
            _IGNORE_VALUES if "pointers" in values else _DECLARE_READ_ONLY,
            _RECORD_AGAIN,
        ]

    if reason is Reason.ALREADY_PLAYED and nearest.session:
        fixes.append("open a new session, in which everything is played anew")

    return fixes


def record_more_fix(cassette: Cassette, terms: Terms) -> str:
    """Return the way to record more to a cassette, in the terms of a front."""
    is_on_pipes = cassette.transport == "stdio"
    server = _values_of_server(cassette, is_on_pipes=is_on_pipes)
    filled_terms = _terms_for_recording_server(cassette, terms, is_on_pipes=is_on_pipes)

    return in_terms("<<record_too>>", filled_terms, {"path": cassette.path, **server})


def _fixes_over_other_transport(
    fixes: Sequence[str], *, is_on_pipes: bool
) -> list[str]:
    """Return ways out of a miss over a transport over which nothing can be added."""
    transport = "pipes" if is_on_pipes else "HTTP"
    record_again_over_it = (
        f"record all of this cassette again over {transport} with <<record_again>>"
    )
    fixes_over_it = []
    for fix in fixes:
        if "<<record_too>>" in fix:
            fixes_over_it.append(record_again_over_it)
        elif fix is not _RECORD_INSTEAD:
            fixes_over_it.append(fix)

    return fixes_over_it


def _terms_for_recording_server(
    cassette: Cassette, terms: Terms, *, is_on_pipes: bool
) -> dict[str, str]:
    """Return terms in which recording is that of a cassette's server, and keeps as much as it."""
    recorder = "record"
    if is_on_pipes:
        recorder = "record_pipe"
    elif not _is_recorded_from_url(cassette):
        recorder = "record_started"

    return {
        **terms,
        "kept": _kept_options(cassette, terms),
        "record_again": terms[f"{recorder}_again"],
        "record_too": terms[f"{recorder}_too"],
    }


def _is_recorded_from_url(cassette: Cassette) -> bool:
    """Tell whether a cassette names its server by a URL, and not by what starts it."""
    return cassette.transport == "http" and cassette.command is None


def _values_for_slots(miss: Miss, cassette: Cassette, adds_to: str) -> Values:
    """Return known values for the slots of commands, without secrets."""
    server = _values_of_server(cassette, is_on_pipes=miss.call.request.is_line)
    values: dict[str, str | Sequence[str]] = {"path": adds_to, **server}
    tool = _tool_that_may_read(miss)
    if tool:
        values["tool"] = tool

    differences = miss.differences
    if differences and all(
        _differs_in_every_run(difference, miss) for difference in differences
    ):
        values["pointers"] = [difference.pointer for difference in differences]

    return values


def _values_of_server(cassette: Cassette, *, is_on_pipes: bool) -> Values:
    """Return what starts the recorded server, or where it is, unless a part of that is secret."""
    server = cassette.server
    if not server or is_started_here(server) or has_secrets(server):
        return {}
    if _is_recorded_from_url(cassette):
        return {"upstream": _USER_IN_URL.sub("", server)}

    words = _command_words(server)
    if is_on_pipes and any("{port}" in word for word in words):
        return {}

    return {"command": words, "started": server}


def _command_words(command: str) -> Sequence[str]:
    """Return the words of a command, or the whole command as a single word if it is misquoted."""
    try:
        return shlex.split(command)
    except ValueError:
        return [command]


def _hiding_options(cassette: Cassette) -> Values:
    """Return what a cassette was told to hide, and which headers to keep, as options.

    All exchanges are looked through, so only who records all of it again asks for them.
    """
    rules = cassette.redaction or RedactionRules()
    return {
        "redact": rules.patterns,
        "redact_keys": rules.keys,
        "no_redact": rules.disabled,
        "match_headers": sorted(cassette.kept_headers),
    }


def _kept_options(cassette: Cassette, terms: Terms) -> str:
    """Return the options without which nothing can be added to a cassette."""
    options = ""
    if cassette.request_state == "verbatim":
        options += terms.get("kept_verbatim", "")

    if cassette.seals_answers:
        options += terms.get("kept_sealed", "")

    for name in cassette.values:
        options += terms.get("kept_value", "").replace("NAME", name)

    return options


def _tool_that_may_read(miss: Miss) -> str:
    """Return the tool or method that a user may declare to only read, to mend the miss."""
    nearest = miss.nearest
    if miss.reason is not Reason.UNRECORDED or nearest is None:
        return miss.read_suggestion
    return nearest.key.tool_or_method


def _differs_in_every_run(difference: Difference, miss: Miss) -> bool:
    """Tell whether a value differs in every run."""
    asked = differing_questions(miss).get(
        _answer_key_in_pointer(difference.pointer) or ""
    )
    # No model says the same thing twice.
    if asked is not None and asked.kind == "sampling":
        return True
    if difference.recorded is None or difference.received is None:
        return False

    return is_time_or_id(difference.recorded) and is_time_or_id(difference.received)


def differing_questions(miss: Miss) -> Mapping[str, InputRequest]:
    """Return the questions whose answers differ, by their keys."""
    nearest = miss.nearest
    if nearest is None:
        return {}

    question = nearest.answered_question
    if question is not None:
        return {question.key: question.asked_input}

    asking_entry: ReplayEntry | None = nearest
    if nearest.state is None:
        asking_entry = nearest.answered_ask

    if asking_entry is None or miss.reason not in _ABOUT_ANSWERS:
        return {}

    asked = {}
    keys = {
        _answer_key_in_pointer(difference.pointer) for difference in miss.differences
    }
    for key, request in asking_entry.asked_inputs.items():
        if key in keys:
            asked[key] = request

    return asked


def _answer_key_in_pointer(pointer: str) -> str | None:
    """Return the key of the answer that a pointer leads to, or None if it leads to all answers."""
    # The first step is the member that has the answers.
    if pointer.count("/") < 2:
        return None
    return pointer_path(pointer)[1]
