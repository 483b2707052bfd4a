"""A server that asks before it acts, and thirty faults that can be planted in it, one at a time.

`/NAME/mcp` serves it with the fault of that name, `/good/mcp` and two other ways without one. A
fault leaves out one check, or breaks down where it should refuse.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from aiohttp import web
from harness import call, post
from messages import CAPABLE, JsonObject, compact, message, result

from mrtr_cassette.options import RecordOptions
from mrtr_cassette.shell.runs.recording import recording

INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
LIFETIME_S = 600.0


class Fault(NamedTuple):
    """A fault, the tool that shows it, and the probe that is named for it."""

    name: str
    tool: str
    probe: str


FAULTS = [
    # The state.
    Fault("unsigned", "deploy", "state-altered"),
    Fault("prefix", "deploy", "state-cut"),
    Fault("empty-state", "deploy", "state-empty"),
    Fault("optional-state", "deploy", "state-dropped"),
    Fault("remembered", "deploy", "state-dropped"),
    Fault("unbound-arguments", "deploy", "state-other-arguments"),
    Fault("unbound-tool", "deploy", "state-other-tool"),
    Fault("unbound-question", "release", "state-other-question"),
    Fault("second-differs", "deploy", "retry-repeated"),
    Fault("never-expires", "deploy", "state-expired"),
    Fault("unasked", "release", "answers-unasked"),
    # The answers.
    Fault("decline", "deploy", "declined"),
    Fault("late-decline", "release", "declined"),
    Fault("cancel", "deploy", "cancelled"),
    Fault("no-content", "deploy", "accepted-empty"),
    Fault("false", "deploy", "accepted-false"),
    Fault("boolean-type", "deploy", "answer-wrong-type"),
    Fault("number-type", "order", "answer-wrong-type"),
    Fault("maximum", "order", "answer-out-of-bounds"),
    Fault("length", "resize", "answer-out-of-bounds"),
    Fault("enum", "order", "answer-not-in-enum"),
    Fault("missing-key", "survey", "answer-missing-key"),
    Fault("extra-member", "deploy", "answer-extra-member"),
    Fault("extra-key", "deploy", "answer-extra-key"),
    Fault("url", "signin", "url-accepted-at-once"),
    # Where it breaks down.
    Fault("traceback", "deploy", "answer-wrong-type"),
    Fault("stack", "deploy", "state-altered"),
    Fault("http-500", "deploy", "state-cut"),
    Fault("dropped-connection", "deploy", "accepted-empty"),
    Fault("hang", "deploy", "cancelled"),
]
TWINS = ["good", "good-again", "good-once", "good-late"]
"""Without a fault: it refuses by errors, or asks again; takes each state only once; or asks
everything before it obeys a no."""


class RefusedError(Exception):
    """What a client sent is not acted upon."""

    def __init__(self, text: str, code: int = INVALID_PARAMS, **data: str) -> None:
        super().__init__(text)
        self.error = {"code": code, "message": text} | ({"data": data} if data else {})


class InvalidAnswerError(Exception):
    """An answer is not as its question asks for it."""


class BrokenError(Exception):
    """The server breaks down, in the way that is named."""


# The tools


def _form(message: str, **properties: JsonObject) -> JsonObject:
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
    }
    params = {"mode": "form", "message": message, "requestedSchema": schema}
    return {"method": "elicitation/create", "params": params}


def _confirm(message: str) -> JsonObject:
    return _form(message, confirm={"type": "boolean"})


Round = Callable[[JsonObject], Mapping[str, JsonObject]]


@dataclass(frozen=True)
class Tool:
    """It asks round after round, and says in the end that it is done.

    Attributes:
        argument: the one that it takes.
        defaults: what a fault puts in the place of an answer that was not given.
    """

    argument: str
    rounds: tuple[Round, ...]
    done: str
    defaults: JsonObject


TOOLS = {
    "deploy": Tool(
        "env",
        (lambda known: {"confirm": _confirm(f"Deploy to {known['env']}?")},),
        "Deployed to {env}",
        {"confirm": True},
    ),
    "wipe": Tool(
        "env",
        (lambda known: {"confirm": _confirm(f"Wipe {known['env']}?")},),
        "Wiped {env}",
        {"confirm": True},
    ),
    "release": Tool(
        "version",
        (
            lambda known: {"approve": _approve(known)},
            lambda known: {
                "window": _form("Which window?", window={"type": "string"}),
            },
        ),
        "Released {version}",
        {"approve": True, "window": "night"},
    ),
    "order": Tool(
        "shop",
        (
            lambda known: {
                "wish": _form(
                    "What?",
                    amount={"type": "integer", "minimum": 1, "maximum": 10},
                    colour={"type": "string", "enum": ["red", "green"]},
                )
            },
        ),
        "Ordered {amount} {colour} at {shop}",
        {"amount": 1, "colour": "green"},
    ),
    "resize": Tool(
        "group",
        (
            lambda known: {
                "why": _form(
                    "Why?",
                    reason={"type": "string", "minLength": 3, "maxLength": 20},
                )
            },
        ),
        "Resized {group}",
        {"reason": "none given"},
    ),
    "survey": Tool(
        "topic",
        (
            lambda known: {
                "name": _form("Who are you?", name={"type": "string"}),
                "mail": _form("Which address?", mail={"type": "string"}),
            },
        ),
        "Thanks for your answers on {topic}",
        {"name": "somebody", "mail": "nowhere"},
    ),
    "signin": Tool(
        "site",
        (
            lambda known: {
                "signin": {
                    "method": "elicitation/create",
                    "params": {
                        "mode": "url",
                        "message": "Sign in",
                        "url": "https://example.com/sign-in",
                    },
                }
            },
        ),
        "Signed in to {site}",
        {},
    ),
}


def _approve(known: JsonObject) -> JsonObject:
    return _form(f"Release {known['version']}?", approve={"type": "boolean"})


@dataclass(frozen=True)
class Begun:
    """How far a call is; what a state stands for."""

    tool: str
    arguments: JsonObject
    step: int = 0
    known: JsonObject = field(default_factory=dict)
    since: float = 0.0


# The server


class ProbedServer:
    """It keeps what its states stand for, and nothing else, unless a fault says otherwise."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.clock = 0.0
        self.visits = 0
        self._issued: dict[str, Begun] = {}
        self._used: set[str] = set()
        self._counts: dict[str, int] = {}

    def has(self, *faults: str) -> bool:
        """Tell whether one of these faults is planted."""
        return self.name in faults

    async def post(self, request: web.Request) -> web.StreamResponse:
        """Answer one message."""
        message = await request.json()
        if "id" not in message:
            return web.Response(status=202)
        try:
            answer = result(self._result(message), id=message["id"])
        except RefusedError as refused:
            error = {"jsonrpc": "2.0", "id": message["id"], "error": refused.error}
            return self._json(error)
        except BrokenError as broken:
            return await self._broken(str(broken), request)
        return self._json(answer)

    @staticmethod
    def _json(value: JsonObject) -> web.Response:
        return web.Response(body=compact(value), content_type="application/json")

    @staticmethod
    async def _broken(way: str, request: web.Request) -> web.StreamResponse:
        if way == "http-500":
            return web.Response(status=500, text="Internal Server Error")
        if way == "hang":
            await asyncio.Event().wait()
        transport = request.transport
        assert transport is not None
        transport.abort()
        return web.Response()

    def _result(self, message: JsonObject) -> JsonObject:
        params = message.get("params", {})
        match message["method"]:
            case "server/discover":
                capabilities: JsonObject = {"tools": {}}
                versions = ["2026-07-28"]
                found = {"supportedVersions": versions, "capabilities": capabilities}
            case "tools/list":
                found = {"tools": _listed()}
            case "tools/call":
                return self._called(params)
            case method:
                raise RefusedError(f"Method not found: {method}", -32601)
        return {"resultType": "complete", "ttlMs": 0, "cacheScope": "public", **found}

    def _called(self, params: JsonObject) -> JsonObject:
        tool, arguments = params["name"], params.get("arguments", {})
        state, answers = params.get("requestState"), params.get("inputResponses")
        fresh = Begun(tool, arguments)
        if state is None and answers is None:
            return self._ask(fresh)
        try:
            begun = fresh if state is None else self._opened(state, fresh)
            if state is None and not self._acts_without_state(fresh):
                return self._ask(fresh)
            return self._go_on(begun, answers or {}, state)
        except RefusedError as refused:
            if self.has("good-again") and "requestState" in str(refused):
                return self._ask(fresh)
            raise

    def _acts_without_state(self, fresh: Begun) -> bool:
        if self.has("remembered"):
            return any(
                (begun.tool, begun.arguments) == (fresh.tool, fresh.arguments)
                for begun in self._issued.values()
            )
        return self.has("optional-state", "unasked")

    def _opened(self, state: str, fresh: Begun) -> Begun:
        """Return what a state stands for; refuse one that is not this call's."""
        begun = self._issued.get(state) or self._mistaken(state, fresh)
        refused = RefusedError("Invalid or expired requestState")
        age = self.clock - begun.since
        if age > LIFETIME_S and not self.has("never-expires"):
            raise refused
        if begun.tool != fresh.tool:
            if not self.has("unbound-tool"):
                raise refused
            return fresh
        if begun.arguments != fresh.arguments:
            if not self.has("unbound-arguments"):
                raise refused
            begun = Begun(fresh.tool, fresh.arguments, begun.step, begun.known)
        if state in self._used and self.has("good-once"):
            raise refused
        return begun

    def _mistaken(self, state: str, fresh: Begun) -> Begun:
        """Return what an unknown state is taken for by a fault; refuse it otherwise."""
        of_call: list[Begun] = []
        for issued, begun in self._issued.items():
            is_call = (begun.tool, begun.arguments) == (fresh.tool, fresh.arguments)
            is_cut = issued.startswith(state) and state != ""
            if is_cut and self.has("http-500"):
                raise BrokenError("http-500")
            if is_cut and self.has("prefix"):
                return begun
            if is_call:
                of_call.append(begun)
        is_whole = any(len(state) == len(issued) for issued in self._issued)
        if is_whole and self.has("stack"):
            trace = "TypeError: state is undefined\n    at open (server.js:12:7)"
            raise RefusedError("Internal error", INTERNAL_ERROR, stack=trace)
        is_taken = is_whole and self.has("unsigned")
        is_taken = is_taken or (state == "" and self.has("empty-state"))
        if is_taken and of_call:
            return of_call[-1]
        raise RefusedError("Invalid or expired requestState")

    def _go_on(
        self, begun: Begun, answers: JsonObject, state: str | None
    ) -> JsonObject:
        """Read the answers of a round, and ask the next or act."""
        tool = TOOLS[begun.tool]
        step = begun.step
        if self.has("unbound-question", "unasked") and "window" in answers:
            step = 1
        given = begun.arguments | begun.known
        known = dict(begun.known)
        try:
            for key, question in tool.rounds[step](given).items():
                read = self._read(tool, key, question["params"], answers.get(key))
                if read is None:
                    if self.has("good-again"):
                        return self._ask(begun)
                    return self._text(f"{begun.tool} cancelled")
                known |= read
        except InvalidAnswerError as invalid:
            if self.has("good-again"):
                return self._ask(begun)
            return self._text(str(invalid), is_error=True)
        if self.has("extra-key"):
            asked = tool.rounds[step](given)
            extra = [key for key in answers if key not in asked]
            known |= {"also": extra} if extra else {}
        if step + 1 < len(tool.rounds):
            return self._ask(
                Begun(begun.tool, begun.arguments, step + 1, known, begun.since)
            )
        return self._done(tool, begun.arguments | known, state)

    def _done(self, tool: Tool, known: JsonObject, state: str | None) -> JsonObject:
        if known.get("is_denied"):
            return self._text("cancelled in the end")
        text = tool.done.format_map(known)
        if known.get("also"):
            text = f"{text} with {known['also']}"
        if state is not None:
            if self.has("second-differs") and state in self._used:
                text = f"{text} once more"
            self._used.add(state)
        return self._text(text)

    def _read(
        self, tool: Tool, key: str, question: JsonObject, given: JsonObject | None
    ) -> JsonObject | None:
        """Return what was entered, None if that was refused; an answer may be invalid."""
        if given is None:
            if self.has("missing-key"):
                return tool.defaults
            raise InvalidAnswerError(f"{key} is missing")
        action = given.get("action")
        if action == "cancel" and self.has("hang"):
            raise BrokenError("hang")
        is_taken = action == "decline" and self.has("decline")
        is_taken = is_taken or (action == "cancel" and self.has("cancel"))
        if action == "decline" and key == "window":
            is_taken = self.has("late-decline")
        if is_taken:
            return tool.defaults
        if action != "accept":
            return None
        if question["mode"] == "url":
            return self._visited()
        return self._entered(tool, question["requestedSchema"], given.get("content"))

    def _visited(self) -> JsonObject:
        if self.visits == 0 and not self.has("url"):
            raise InvalidAnswerError("not signed in yet")
        self.visits = max(0, self.visits - 1)
        return {}

    def _entered(
        self, tool: Tool, schema: JsonObject, content: JsonObject | None
    ) -> JsonObject | None:
        """Return the members of a form; None if a confirmation says no."""
        if not content:
            if self.has("dropped-connection"):
                raise BrokenError("dropped-connection")
            if self.has("no-content"):
                return tool.defaults
            raise InvalidAnswerError("nothing was entered")
        entered: JsonObject = {}
        for name, kind in schema["properties"].items():
            if name not in content:
                raise InvalidAnswerError(f"{name} is missing")
            value = content[name]
            self._check(name, kind, value)
            is_no = kind["type"] == "boolean" and not value
            if is_no and self.has("good-late"):
                return {"is_denied": True}
            if is_no and not self.has("false"):
                return None
            entered[name] = value
        if self.has("extra-member"):
            extra = [name for name in content if name not in schema["properties"]]
            entered |= {"also": extra} if extra else {}
        return entered

    def _check(self, name: str, kind: JsonObject, value: object) -> None:
        """Hold a member to its schema."""
        invalid = InvalidAnswerError(f"{name} is not as asked for")
        wanted = {"boolean": bool, "integer": int, "string": str}[kind["type"]]
        if type(value) is not wanted:
            if self.has("traceback"):
                raise InvalidAnswerError(TRACEBACK)
            skipped = {bool: "boolean-type", int: "number-type", str: ""}[wanted]
            if not self.has(skipped):
                raise invalid
            return
        if isinstance(value, int) and kind["type"] == "integer":
            is_within = kind["minimum"] <= value <= kind["maximum"]
            if not is_within and not self.has("maximum"):
                raise invalid
        if isinstance(value, str):
            length = len(value)
            is_within = kind.get("minLength", 0) <= length <= kind.get("maxLength", 99)
            if not is_within and not self.has("length"):
                raise invalid
            if value not in kind.get("enum", [value]) and not self.has("enum"):
                raise invalid

    def _ask(self, begun: Begun) -> JsonObject:
        """Ask what a call needs next, with a state."""
        state = secrets.token_urlsafe(36)
        known = begun.arguments | begun.known
        self._issued[state] = Begun(
            begun.tool, begun.arguments, begun.step, begun.known, self.clock
        )
        return {
            "resultType": "input_required",
            "inputRequests": TOOLS[begun.tool].rounds[begun.step](known),
            "requestState": state,
        }

    @staticmethod
    def _text(text: str, *, is_error: bool = False) -> JsonObject:
        content = [{"type": "text", "text": text}]
        return {"resultType": "complete", "content": content, "isError": is_error}


TRACEBACK = """Traceback (most recent call last):
  File "/srv/app/server.py", line 12, in deploy
    agreed = content["confirm"] & True
TypeError: unsupported operand type(s) for &: 'str' and 'bool'"""


def _listed() -> list[JsonObject]:
    listed: list[JsonObject] = []
    for name, tool in TOOLS.items():
        schema = {
            "type": "object",
            "properties": {tool.argument: {"type": "string"}},
            "required": [tool.argument],
        }
        listed.append({"name": name, "inputSchema": schema})
    return listed


@dataclass
class Probed:
    """All servers, with each fault and without, at one port."""

    origin: str
    servers: dict[str, ProbedServer]

    def url(self, name: str) -> str:
        """Return the URL of the server with a fault, or of one without."""
        return f"{self.origin}/{name}/mcp"


@asynccontextmanager
async def probed() -> AsyncIterator[Probed]:
    """Serve it with each fault, and without one."""
    app = web.Application()
    servers: dict[str, ProbedServer] = {}
    for name in [*TWINS, *(fault.name for fault in FAULTS)]:
        servers[name] = ProbedServer(name)
        app.router.add_post(f"/{name}/mcp", servers[name].post)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
        yield Probed(f"http://127.0.0.1:{runner.addresses[0][1]}", servers)
    finally:
        await runner.cleanup()


# What is recorded of it


VALUES = {
    "confirm": True,
    "approve": True,
    "window": "night",
    "amount": 3,
    "colour": "red",
    "size": 3,
    "reason": "busy evening",
    "name": "Ada",
    "mail": "ada@example.com",
}
"""What a client enters, by the names of members."""
CALLS = [
    ("deploy", {"env": "staging"}),
    ("deploy", {"env": "production"}),
    ("wipe", {"env": "staging"}),
    ("release", {"version": "1.0"}),
    ("order", {"shop": "corner"}),
    ("resize", {"group": "web"}),
    ("survey", {"topic": "tea"}),
    ("signin", {"site": "forge"}),
]


async def record(
    upstream: str, cassette: Path, calls: Sequence[tuple[str, JsonObject]]
) -> None:
    """Record calls whose questions are all accepted."""
    async with recording(upstream, cassette, RecordOptions()) as session:
        await post(session.url, message("tools/list", {"_meta": CAPABLE}))
        for tool, arguments in calls:
            asked = (await call(session.url, tool, arguments)).result
            while "inputRequests" in asked:
                retry = {
                    "inputResponses": _entered_in(asked["inputRequests"]),
                    "requestState": asked["requestState"],
                }
                asked = (await call(session.url, tool, arguments, **retry)).result
            assert not asked["isError"], asked


def _entered_in(requests: JsonObject) -> JsonObject:
    answers: JsonObject = {}
    for key, asked in requests.items():
        answers[key] = {"action": "accept"}
        schema = asked["params"].get("requestedSchema", {})
        if schema:
            content = {name: VALUES[name] for name in schema["properties"]}
            answers[key]["content"] = content
    return answers
