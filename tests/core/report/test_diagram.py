"""Facts about the sequence diagram of a cassette."""

from __future__ import annotations

import re

from builders import Step, cassette_of, loaded, retry, tool
from harmless import HOSTILE, assert_harmless
from messages import NO, YES, asks, form, text
from pushing import asked_once, elicit

from mrtr_cassette.core.exchange.recorded import Cassette
from mrtr_cassette.core.report.diagram import MOST_ARROWS, diagram
from mrtr_cassette.core.report.inspection import inspected

CALL = tool("deploy", env="prod")


def drawn(recording: Cassette) -> list[str]:
    """Return the lines of a diagram, without what stands around the arrows."""
    first, second, *lines, last = diagram(inspected(recording)).splitlines()
    assert (first, second, last) == ("```mermaid", "sequenceDiagram", "```")
    assert lines[:2] == ["    participant client", "    participant server"]
    return [line.strip() for line in lines[2:]]


def of_script(*script: Step) -> list[str]:
    """Return the lines of a script's diagram."""
    return drawn(loaded(cassette_of(*script)))


def test_call_that_asks_is_drawn_turn_by_turn() -> None:
    """Each ask and each answer is an arrow; several questions are named without their words."""
    again = retry(CALL, {"a": YES})
    lines = of_script(
        (CALL, asks("a")),
        (again, asks("b", "c", state="x" * 40)),
        (retry(CALL, {"b": YES, "c": 5}, state="x" * 40), text("done")),
    )

    assert lines == [
        "client->>server: #35;1 tools/call #34;deploy#34;",
        "server-->>client: asks a (form)#58; a?",
        "client->>server: accept",
        "server-->>client: asks b (form), c (form)",
        "client->>server: b#58; accept, c#58; answer",
        "server-->>client: result",
    ]


def test_retry_alone_and_missing_answers_are_drawn() -> None:
    """A state-only ask is answered by a retry; an ask without an answer is the last arrow."""
    lines = of_script(
        (CALL, asks(state="x" * 40)), (retry(CALL, state="x" * 40), asks("a", state="y" * 40))
    )

    assert lines[1:] == [
        "server-->>client: asks for a retry",
        "client->>server: retry",
        "server-->>client: asks a (form)#58; a?",
    ]


def test_pushed_question_is_drawn_like_any_other() -> None:
    """What a server pushes is an arrow back and forth within the call."""
    lines = drawn(asked_once(elicit(), NO, CALL, text("x")))

    assert lines[1:3] == [
        "server-->>client: asks elicitation-1 (form)#58; Deploy?",
        "client->>server: decline",
    ]


def test_calls_that_ask_come_before_others() -> None:
    """There is room for twelve arrows: calls without questions fill what others leave."""
    script: list[Step] = [(tool(f"plain-{number}"), text("x")) for number in range(9)]
    script += [(CALL, asks("a")), (retry(CALL, {"a": YES}), text("done"))]

    lines = of_script(*script)

    arrows = [line for line in lines if "->>" in line]
    assert len(arrows) == MOST_ARROWS
    assert arrows[0] == "client->>server: #35;1 tools/call #34;plain-0#34;"
    assert arrows[-4] == "client->>server: #35;10 tools/call #34;deploy#34;"
    assert lines[-1] == "Note over client,server: and 5 more calls"


def test_long_call_is_cut() -> None:
    """A call with more turns than there is room for ends with a note."""
    script: list[Step] = [(CALL, asks("k0"))]
    script += [(retry(CALL, {f"k{at}": YES}), asks(f"k{at + 1}")) for at in range(8)]

    lines = of_script(*script, (tool("other"), text("x")))

    assert len([line for line in lines if "->>" in line]) == MOST_ARROWS
    assert lines[-2:] == [
        "Note over client,server: #35;1 goes on",
        "Note over client,server: and 1 more call",
    ]


def test_texts_are_no_part_of_the_diagram() -> None:
    """Nothing recorded is Mermaid, HTML, or the end of the block."""
    words = "```\n<img src=x onerror=alert(1)>; end %%{init}%% #59; " + HOSTILE
    ask = asks("a")
    ask["inputRequests"] = {"a": form(words)}

    lines = of_script((tool(words), ask), (retry(tool(words), {"a": {"action": words}}), text("x")))

    assert_harmless("\n".join(lines))
    for line in lines:
        _, _, shown = line.partition(": ")
        assert re.fullmatch(r"[\w ,.?!'()/_=+*-]*", re.sub(r"#\d+;", "", shown)), line
