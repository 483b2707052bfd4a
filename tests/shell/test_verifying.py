"""Facts about verifying: what an unchanged server, a changed one, and a broken one come to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from contract import (
    FORM,
    PROMPTS,
    TOOLS,
    Contract,
    Plant,
    Reply,
    progress,
    record_contract,
    say_everything,
    text,
)
from harness import looped, post, taping
from messages import tool_call
from standin import Script, Visit, response, upstream

from mrtr_cassette.core.report.verification import Verification
from mrtr_cassette.errors import UsageError
from mrtr_cassette.shell.verifying import verify_cassette
from mrtr_cassette.verify_options import VerifyOptions

SMALL_TIMEOUT = 2
ALL_SAME = {"same": 17}


@pytest.fixture(scope="module")
def cassette(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cassette of all that the server says."""
    return record_contract(tmp_path_factory.mktemp("verified") / "contract.json")


async def verified(path: Path, script: Script, **options: Any) -> Verification:
    """Hold a server that does what a script says to a cassette."""
    async with upstream(script) as server:
        return await verify_cassette(path, server.url, VerifyOptions(**options))


@looped
async def test_unchanged_server_is_the_same(cassette: Path) -> None:
    """With a new key for its states and new sessions, nothing differs, and every answer is given."""
    server = Contract()
    verification = await verified(cassette, server)
    assert verification.counts == ALL_SAME
    assert verification.is_good
    assert not any(each.changes for each in verification.interactions)
    assert server.answers == {
        "deploy.1": 2, "train.1": 1, "train.2": 1, "train.3": 1, "plan.1": 1, "late.1": 1,
        "prompt.1": 1, "push": 1,
    }  # fmt: skip


def at(*path: Any) -> Callable[[Any], Plant]:
    """Return what makes a plant that sets a member of the result, or takes it out."""

    def to(value: Any) -> Plant:
        def plant(reply: Reply) -> None:
            target: Any = reply.said[-1]
            for key in path[:-1]:
                target = target[key]
            if value is None:
                del target[path[-1]]
            else:
                target[path[-1]] = value

        return plant

    return to


def ask_at(*path: Any) -> Callable[[Any], Plant]:
    """Do the same within the question of `deploy`."""
    return at("result", "inputRequests", "confirm", "params", *path)


def finished(reply: Reply) -> None:
    """Give the result at once, without a question."""
    reply.said[-1]["result"] = text("Done")


def refused(reply: Reply) -> None:
    """Give an error."""
    reply.said[-1] = {"jsonrpc": "2.0", "error": {"code": -32603, "message": "Broken"}}


def status(text_: str) -> Plant:
    """Give another HTTP status."""

    def plant(reply: Reply) -> None:
        reply.status = text_

    return plant


def header(*lines: str) -> Plant:
    """Give other headers."""

    def plant(reply: Reply) -> None:
        reply.headers = list(lines)

    return plant


def as_json(reply: Reply) -> None:
    """Respond with JSON in the place of a stream."""
    reply.is_stream = False


def said(*messages: Any) -> Plant:
    """Say other messages before the response."""

    def plant(reply: Reply) -> None:
        reply.said[:-1] = messages

    return plant


def asks_again(reply: Reply) -> None:
    """Ask once more in the place of the result."""
    reply.said[-1]["result"] = {
        "resultType": "input_required",
        "inputRequests": {"more": FORM},
        "requestState": "one-more-state",
    }


def pushed(*path: Any, to: Any) -> Plant:
    """Change a pushed request."""

    def plant(reply: Reply) -> None:
        target: Any = reply.said[0]
        for key in path[:-1]:
            target = target[key]
        target[path[-1]] = to

    return plant


def pushes_nothing(reply: Reply) -> None:
    """Push no question."""
    reply.said.clear()


def pushes_twice(reply: Reply) -> None:
    """Push one question more."""
    reply.said.append({**reply.said[0], "id": "second"})


class Planted(NamedTuple):
    """One change, and what must be found.

    Attributes:
        reply: which reply is changed.
        plant: how.
        verdict: what the interaction comes to.
        pointer: how the pointer of one change ends.
        answers: how many answers the asks get whose names begin with the changed one; None where
            it doesn't matter.
    """

    reply: str
    plant: Plant
    verdict: str
    pointer: str
    answers: int | None = None


REQUESTS = "/inputRequests/confirm"
SCHEMA = f"{REQUESTS}/params/requestedSchema"
ASKED = "question-changed"
PLANTED: dict[str, Planted] = {
    "a word in a question": Planted(
        "deploy.1", ask_at("message")("Deploy to production?"), ASKED, f"{REQUESTS}/params/message", 0
    ),
    "a default": Planted(
        "deploy.1", ask_at("requestedSchema", "properties", "size", "default")("large"), ASKED,
        f"{SCHEMA}/properties/size/default", 0,
    ),
    "an enum": Planted(
        "deploy.1", ask_at("requestedSchema", "properties", "size", "enum")(["small", "huge"]), ASKED,
        f"{SCHEMA}/properties/size/enum/1", 0,
    ),
    "a required field": Planted(
        "deploy.1", ask_at("requestedSchema", "required")(["size", "note"]), ASKED,
        f"{SCHEMA}/required/1", 0,
    ),
    "a field": Planted(
        "deploy.1", ask_at("requestedSchema", "properties", "note")(None), ASKED,
        f"{SCHEMA}/properties/note", 0,
    ),
    "another kind of input": Planted(
        "deploy.1", at("result", "inputRequests", "confirm")({"method": "roots/list"}), ASKED,
        f"{REQUESTS}/method", 0,
    ),
    "another key": Planted(
        "deploy.1", at("result", "inputRequests")({"sure": FORM}), ASKED, "/inputRequests/sure", 0
    ),
    "one more key": Planted(
        "deploy.1", at("result", "inputRequests", "more")(FORM), ASKED, "/inputRequests/more", 0
    ),
    "a URL": Planted(
        "train.2", at("result", "inputRequests", "b", "params", "url")("https://id.example/x"), ASKED,
        "/inputRequests/b/params/url", 0,
    ),
    "a sampling prompt": Planted(
        "plan.1",
        at("result", "inputRequests", "sample", "params", "messages", 0, "content", "text")("Do it"),
        ASKED, "/content/text", 0,
    ),
    "one question more": Planted("deploy.end", asks_again, "rounds-changed", "/inputRequests"),
    "one question less": Planted("train.2", finished, "rounds-changed", "/inputRequests", 0),
    "no question": Planted("late.1", finished, "rounds-changed", "/inputRequests", 0),
    "other order of rounds": Planted(
        "train.1", at("result", "inputRequests")({"b": FORM}), ASKED, "/inputRequests/b", 0
    ),
    "no state": Planted("plan.1", at("result", "requestState")(None), ASKED, "/requestState", 0),
    "a state only": Planted("late.1", at("result", "inputRequests")(None), ASKED, "/inputRequests/confirm", 0),
    "text of a result": Planted(
        "train.end", at("result", "content", 0, "text")("Finished"), "text-changed", "/content/0/text"
    ),
    "a number": Planted(
        "deploy.end", at("result", "structuredContent")({"total": 4, "items": ["a", "b"], "ok": True}),
        "text-changed", "/structuredContent/total",
    ),
    "a type": Planted(
        "deploy.end", at("result", "structuredContent")({"total": "3", "items": ["a", "b"], "ok": True}),
        "shape-changed", "/structuredContent/total",
    ),
    "a list's length": Planted(
        "deploy.end", at("result", "structuredContent")({"total": 3, "items": ["a"], "ok": True}),
        "shape-changed", "/structuredContent/items/1",
    ),
    "a member less": Planted(
        "deploy.end", at("result", "structuredContent")(None), "shape-changed", "/structuredContent"
    ),
    "JSON in a text": Planted(
        "report", at("result", "content", 0, "text")('{"by":"me","lines":[1,3]}'), "text-changed",
        "/content/0/text#json/lines/1",
    ),
    "result to error": Planted("build", refused, "error-changed", "/#error"),
    "error to result": Planted("unknown", lambda reply: at("result")({})(reply) or at("error")(None)(reply),
        "error-changed", "/#error"),
    "an error's code": Planted(
        "unknown", at("error", "code")(-32601), "error-changed", "/#error/code"
    ),
    "an error's text": Planted(
        "unknown", at("error", "message")("No such tool"), "text-changed", "/#error/message"
    ),
    "isError": Planted("plan.end", at("result", "isError")(True), "error-changed", "/isError"),
    "HTTP status": Planted("report", status("404 Not Found"), "error-changed", "/#status"),
    "a tool removed": Planted(
        "tools_list", at("result", "tools")(TOOLS[1:]), "surface-changed", "/tools/0"
    ),
    "an argument made required": Planted(
        "tools_list", at("result", "tools", 0, "inputSchema", "required")(["env", "dry"]),
        "surface-changed", "/required/1",
    ),
    "a prompt argument": Planted(
        "prompts_list",
        at("result", "prompts")([{**PROMPTS[0], "arguments": [{"name": "whom", "required": True}]}]),
        "surface-changed", "/prompts/0/arguments/0",
    ),
    "resource content": Planted(
        "resources_read", at("result", "contents", 0, "text")("port: 81"), "text-changed", "/contents/0/text"
    ),
    "a prompt's text": Planted(
        "prompt.end", at("result", "messages", 0, "content", "text")("Hi"), "text-changed",
        "/messages/0/content/text",
    ),
    "a progress message": Planted(
        "build", said(progress(1), progress(3)), "text-changed", "/params/message"
    ),
    "a progress message less": Planted("build", said(progress(2)), "shape-changed", "/#messages/0"),
    "a stream that became JSON": Planted("build", as_json, "shape-changed", "/#headers/content-type"),
    "a header": Planted(
        "resources_read", header("Cache-Control: max-age=9"), "text-changed", "/#headers/cache-control"
    ),
    "a word in a pushed question": Planted(
        "push", pushed("params", "message", to="Sure?"), ASKED, "/params/message", 0
    ),
    "a pushed question more": Planted("push", pushes_twice, "rounds-changed", "/inputRequests", 1),
    "a pushed question less": Planted("push", pushes_nothing, "rounds-changed", "/inputRequests", 0),
    "the result after a pushed question": Planted(
        "push.end", at("result", "content", 0, "text")("Popped"), "text-changed", "/content/0/text"
    ),
}  # fmt: skip


def test_every_planted_change_is_found_and_no_other(cassette: Path) -> None:
    """Each has its verdict and its place, all else is the same, and what is asked otherwise is not answered."""
    problems = []

    @looped
    async def check() -> None:
        for name, planted in PLANTED.items():
            problems.extend([f"{name}: {each}" for each in await _problems(cassette, planted)])

    check()
    assert problems == []
    assert len(PLANTED) >= 30


async def _problems(cassette: Path, planted: Planted) -> Iterator[str]:
    server = Contract(**{planted.reply: planted.plant})
    verification = await verified(cassette, server)
    differing = [each for each in verification.interactions if each.verdict != "same"]
    return _compared(planted, differing, server)


def _compared(planted: Planted, differing: Any, server: Contract) -> Iterator[str]:
    # Of `deploy` there is a second branch, which the change concerns where it is in what both have.
    if {each.verdict for each in differing} != {planted.verdict}:
        yield f"{[(each.call, each.verdict, each.changes) for each in differing]}"
    for each in differing:
        first = planted.reply.partition(".")[0].replace("_", "/")
        if first not in f"{each.call} {'push' if each.number == 16 else ''}":
            yield f"found in {each.call}"
        if not any(change.pointer.endswith(planted.pointer) for _, change in each.changes):
            yield f"{each.call}: {each.changes}"
    given = sum(count for ask, count in server.answers.items() if ask.startswith(planted.reply))
    if planted.answers not in (None, given):
        yield f"{given} answers"


@looped
async def test_additions_are_information(cassette: Path) -> None:
    """A new tool and a new version are told, and nothing fails."""
    added = {"name": "extra", "inputSchema": {"type": "object"}}
    server = Contract(
        tools_list=at("result", "tools")([*TOOLS, added]),
        server_discover=at("result", "serverInfo", "version")("2"),
    )
    verification = await verified(cassette, server)
    assert verification.counts == ALL_SAME
    notes = [change.change for each in verification.interactions for change in each.changes]
    assert [note.pointer for note in notes] == ["/serverInfo/version", "/tools/3"]
    assert all(note.is_information for note in notes)


@looped
async def test_refused_session_leaves_its_calls_unreached(cassette: Path) -> None:
    """What should have been sent in a session that was not opened is not reached."""
    verification = await verified(cassette, Contract(initialize=refused))
    by_number = {each.number: each for each in verification.interactions}
    assert by_number[14].verdict == "error-changed"
    assert [by_number[number].verdict for number in (15, 16, 17)] == ["not-reached"] * 3
    assert "session was not opened" in str(by_number[16].reason)
    assert verification.exit_code == 1


def failing(server: Script, fault: Script, name: str) -> Script:
    """Return a server that fails in the calls of one tool."""

    async def script(visit: Visit) -> None:
        is_call = b'"tools/call"' in visit.request.body and name.encode() in visit.request.body
        await (fault if is_call else server)(visit)

    return script


async def breaks_off(visit: Visit) -> None:
    """Die in the middle of a response."""
    await visit.send(response(b"{", "Content-Length: 99", length=False))
    visit.reset()


async def says_nothing(visit: Visit) -> None:
    """Take the request, and say nothing."""
    await visit.left()


async def says_html(visit: Visit) -> None:
    """Respond with a page."""
    await visit.send(response(b"<html>Sign in</html>", "Content-Type: text/html"))


async def wants_authorization(visit: Visit) -> None:
    """Refuse."""
    await visit.send(response(b"", "WWW-Authenticate: Bearer", status="401 Unauthorized"))


class DiesBetween:
    """Asks, and is gone when the answer comes."""

    def __init__(self) -> None:
        """Begin."""
        self.server = Contract()

    async def __call__(self, visit: Visit) -> None:
        """Answer what is no answer."""
        if b"inputResponses" in visit.request.body:
            visit.reset()
        else:
            await self.server(visit)


async def asks_forever(visit: Visit) -> None:
    """Ask the same again and again."""
    from messages import compact

    body = visit.request.json
    result = {
        "resultType": "input_required",
        "inputRequests": {"confirm": FORM},
        "requestState": "s" * 30,
    }
    reply = compact({"jsonrpc": "2.0", "id": body["id"], "result": result})
    await visit.send(response(reply, "Content-Type: application/json"))


@pytest.mark.parametrize(
    ("fault", "verdict", "reason"),
    [
        (breaks_off, "not-reached", "gave no response"),
        (says_nothing, "not-reached", "nothing whole within 2 s"),
        (says_html, "not-reached", "HTTP 200, which is no response of MCP"),
        (wants_authorization, "not-reached", "HTTP 401, which is no response of MCP"),
        (DiesBetween(), "not-reached", "gave no response"),
        (asks_forever, "rounds-changed", ""),
    ],
    ids=["breaks off", "times out", "HTML", "401", "dies between turns", "too many rounds"],
)
@looped
async def test_broken_server_is_never_the_same(
    cassette: Path, fault: Script, verdict: str, reason: str
) -> None:
    """What did not come is not reached, and all else is compared."""
    script = failing(Contract(), fault, "deploy")
    seconds = SMALL_TIMEOUT if fault is says_nothing else 60
    verification = await verified(cassette, script, timeout=seconds)
    broken = [each for each in verification.interactions if "deploy" in each.call]
    assert [each.verdict for each in broken] == [verdict, verdict]
    assert all(reason in str(each.reason) for each in broken)
    assert verification.counts["same"] == 15
    assert verification.exit_code == 1


@looped
async def test_run_that_compared_nothing_is_no_good_one(cassette: Path) -> None:
    """A server that is away, or a selection of nothing, is exit code 4."""
    async with upstream(Contract()) as server:
        gone = server.url
    away = await verify_cassette(cassette, gone, VerifyOptions())
    nothing = await verified(cassette, Contract(), only=["tools/call none"])
    assert (away.exit_code, nothing.exit_code) == (4, 4)
    assert away.counts == {"not-reached": 17}
    assert nothing.counts == {"skipped": 17}


@looped
async def test_selection(cassette: Path) -> None:
    """By name, by method and by number."""
    server = Contract()
    verification = await verified(cassette, server, only=["train", "tools/list", "9"])
    assert [each.number for each in verification.interactions if each.verdict == "same"] == [
        2,
        6,
        9,
    ]
    assert set(server.answers) == {"train.1", "train.2", "train.3", "deploy.1"}


@looped
async def test_places_are_left_out_where_they_are_named(cassette: Path, tmp_path: Path) -> None:
    """By an option for all calls, by a file for some."""
    changed = Contract(**{"train.end": at("result", "content", 0, "text")("Finished")})
    rules = tmp_path / "ignore.toml"
    rules.write_text('[[ignore]]\ncall = "tools/call train"\npointers = ["/content/0/text"]\n')
    other = tmp_path / "other.toml"
    other.write_text('[[ignore]]\ncall = "tools/call plan"\npointers = ["/content/0/text"]\n')
    for options, is_good in (
        ({"ignore": ["/content"]}, True),
        ({"ignore_from": rules}, True),
        ({"ignore_from": other}, False),
    ):
        assert (await verified(cassette, changed, **options)).is_good is is_good
    for content, problem in (("[ignore]", "one table"), ("x", "Expected"), ("", "no file")):
        broken = tmp_path / f"{problem[:3]}.toml"
        if content:
            broken.write_text(content)
        with pytest.raises(UsageError, match=problem):
            await verified(cassette, changed, ignore_from=broken)


@looped
async def test_only_chosen_verdicts_fail(cassette: Path) -> None:
    """A change of text is told, and fails only where it is one of the verdicts that fail."""
    changed = Contract(**{"train.end": at("result", "content", 0, "text")("Finished")})
    for verdict, code in (("question-changed", 0), ("text-changed", 1)):
        assert (await verified(cassette, changed, fail_on=[verdict])).exit_code == code


DESTRUCTIVE = {"annotations": {"destructiveHint": True}}


@looped
async def test_tool_that_may_destroy_is_called_only_if_allowed(cassette: Path) -> None:
    """The live server's hint counts, not what was recorded."""
    tools = at("result", "tools")([{**TOOLS[0], **DESTRUCTIVE}, *TOOLS[1:]])
    server = Contract(tools_list=tools)
    verification = await verified(cassette, server, only=["deploy"])
    assert verification.counts == {"skipped": 17}
    assert "may destroy" in str(verification.interactions[4].reason)
    assert server.called["deploy"] == 0
    allowed = await verified(cassette, server, only=["deploy"], allow_destructive=True)
    assert allowed.counts["same"] == 2


@looped
async def test_what_cannot_be_sent_again_is_skipped(tmp_path: Path) -> None:
    """Sealed answers and redacted secrets are not known, so nothing else is sent in their place."""
    sealed, redacted = tmp_path / "sealed.json", tmp_path / "redacted.json"
    async with taping(sealed, Contract(), seal_answers=True) as tape:
        await say_everything(tape.url)
    async with taping(redacted, Contract(), redact=["small", "config://port"]) as tape:
        await say_everything(tape.url)
    for path, reason in ((sealed, "sealed"), (redacted, "redacted secrets")):
        server = Contract()
        verification = await verified(path, server)
        skipped = [each for each in verification.interactions if each.verdict == "skipped"]
        assert any(reason in str(each.reason) for each in skipped)
        assert verification.is_good
        assert not server.answers["train.1"]


@looped
async def test_verifying_leaves_the_cassette_as_it_is(cassette: Path) -> None:
    """A cassette is only read."""
    before = cassette.read_bytes()
    await verified(cassette, Contract(tools_list=refused))
    assert cassette.read_bytes() == before


CLOCK = "tools/call clock"
LEARNED = {
    "/content/0/text#json/at",
    "/structuredContent/count",
    "/structuredContent/id",
    "/structuredContent/items#order",
}


def in_clock(*path: Any, to: Any) -> Plant:
    """Change what the clock says beside what differs by itself."""
    return at("result", "structuredContent", *path)(to)


def item_less(reply: Reply) -> None:
    """Take an item out of the list whose order means nothing."""
    reply.result["structuredContent"]["items"].pop()


def other_zone(reply: Reply) -> None:
    """Change what stands beside the time."""
    text_ = reply.result["content"][0]
    text_["text"] = text_["text"].replace("UTC", "CET")


@looped
async def test_what_differs_by_itself_is_learned_and_hides_nothing_else(tmp_path: Path) -> None:
    """Exact places of times, ids, counts and orders; a change beside each of them is still found."""
    path, rules = tmp_path / "clock.json", tmp_path / "rules" / "ignore.toml"
    rules.parent.mkdir()
    async with taping(path, Contract()) as tape:
        await post(tape.url, tool_call("clock"))
    before = await verified(path, Contract())
    assert before.counts == {"text-changed": 1}
    learning = await verified(path, Contract(), learn=rules)
    assert learning.counts == {"same": 1}
    assert set(learning.learned) == {(CLOCK, pointer) for pointer in LEARNED}
    assert learning.refused == ()
    for _ in range(3):
        assert (await verified(path, Contract(), ignore_from=rules)).counts == {"same": 1}
    for plant, pointer in (
        (in_clock("stable", to="no"), "/structuredContent/stable"),
        (in_clock("list", to=["y", "x"]), "/structuredContent/list/"),
        (in_clock("more", to=1), "/structuredContent/more"),
        (item_less, "/structuredContent/items/"),
        (other_zone, "/content/0/text#json/zone"),
    ):
        found = await verified(path, Contract(clock=plant), ignore_from=rules)
        changes = found.interactions[0].changes
        assert changes, pointer
        assert all(change.pointer.startswith(pointer) for _, change in changes), changes
    again = await verified(path, Contract(), learn=rules)
    assert again.learned == ()


@looped
async def test_what_would_hide_something_stable_is_not_learned(tmp_path: Path) -> None:
    """Words of a sentence, a value that is there sometimes, and a question are told with a reason."""
    import secrets

    path, rules = tmp_path / "clock.json", tmp_path / "ignore.toml"
    async with taping(path, Contract()) as tape:
        await post(tape.url, tool_call("clock"))

    def sentence(reply: Reply) -> None:
        reply.said[-1]["result"] = text(f"It is {secrets.token_hex(4)} now")

    def sometimes(reply: Reply) -> None:
        reply.said[-1]["result"] = {"content": [], secrets.token_hex(4): 1}

    for plant, reason in ((sentence, "'It is now'"), (sometimes, "would be hidden")):
        learning = await verified(path, Contract(clock=plant), learn=rules)
        assert learning.counts == {"unstable": 1}
        assert reason in str(learning.refused)
        assert learning.exit_code == 1
        assert not rules.exists()


@looped
async def test_only_what_reads_is_asked_twice(cassette: Path, tmp_path: Path) -> None:
    """A tool is called twice only where the server says that it changes nothing."""
    server = Contract()
    await verified(cassette, server, learn=tmp_path / "ignore.toml")
    assert server.called["deploy"] == 4
    assert server.called["build"] == 1
    assert server.answers["prompt.1"] == 2
