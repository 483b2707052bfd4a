"""A server that asks before it acts, and faults that can be planted in it, one at a time.

It asks in one of three forms: round after round, by the results of a call; by requests that it
pushes while a call waits, in a session of the earlier revision; or by the state of the task that a
call becomes. A fault leaves out one check, or breaks down where the server should refuse.

`python probed.py FORM NAME` serves one on pipes, with the fault of that name or without one.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, ClassVar, NamedTuple

from messages import JsonObject, compact, message, result

INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
NO_METHOD = -32601
LIFETIME_S = 600.0

ROUNDS = "rounds"
PUSHES = "pushes"
TASKS = "tasks"
FORMS = (ROUNDS, PUSHES, TASKS)
OF_KEYS = (ROUNDS, TASKS)
"""The forms that give answers by keys, several at once."""

BESIDE = (PUSHES, TASKS)
"""The forms that give answers in another request than the call."""


class Fault(NamedTuple):
    """A fault, the tool that shows it, the probe that is named for it, and the forms that have it."""

    name: str
    tool: str
    probe: str
    forms: tuple[str, ...] = (ROUNDS,)


FAULTS = [
    # The state.
    Fault("unsigned", "deploy", "state-altered"),
    Fault("prefix", "deploy", "state-cut"),
    Fault("empty-state", "deploy", "state-empty"),
    Fault("optional-state", "deploy", "state-dropped"),
    Fault("remembered", "deploy", "state-dropped"),
    Fault("unbound-arguments", "deploy", "state-other-arguments"),
    Fault("unbound-tool", "deploy", "state-other-tool"),
    Fault("unbound-later", "deploy", "state-other-tool"),
    Fault("unbound-question", "release", "state-other-question"),
    Fault("second-differs", "deploy", "retry-repeated"),
    Fault("never-expires", "deploy", "state-expired"),
    Fault("unasked", "release", "answers-unasked"),
    Fault("unasked", "deploy", "answers-unasked", (TASKS,)),
    # The answers.
    Fault("decline", "deploy", "declined", FORMS),
    Fault("late-decline", "release", "declined", FORMS),
    Fault("cancel", "deploy", "cancelled", FORMS),
    Fault("no-content", "deploy", "accepted-empty", FORMS),
    Fault("false", "deploy", "accepted-false", FORMS),
    Fault("boolean-type", "deploy", "answer-wrong-type", FORMS),
    Fault("number-type", "order", "answer-wrong-type", FORMS),
    Fault("maximum", "order", "answer-out-of-bounds", FORMS),
    Fault("length", "resize", "answer-out-of-bounds", FORMS),
    Fault("enum", "order", "answer-not-in-enum", FORMS),
    Fault("missing-key", "survey", "answer-missing-key", OF_KEYS),
    Fault("extra-member", "deploy", "answer-extra-member", FORMS),
    Fault("extra-key", "deploy", "answer-extra-key", OF_KEYS),
    Fault("url", "signin", "url-accepted-at-once", FORMS),
    # Where it breaks down.
    Fault("traceback", "deploy", "answer-wrong-type", FORMS),
    Fault("stack", "deploy", "state-altered"),
    Fault("failed", "deploy", "answer-wrong-type", BESIDE),
    Fault("http-500", "deploy", "state-cut"),
    Fault("answer-500", "deploy", "accepted-empty", BESIDE),
    Fault("dropped-connection", "deploy", "accepted-empty", FORMS),
    Fault("hang", "deploy", "cancelled", FORMS),
    Fault("stuck", "deploy", "cancelled", (TASKS,)),
]
TWINS = {
    ROUNDS: ("good", "good-again", "good-once", "good-late"),
    PUSHES: ("good", "good-again", "good-late", "good-400"),
    TASKS: ("good", "good-again", "good-late", "good-400", "good-waiting"),
}
"""Without a fault: it refuses by errors, or asks again; takes each state only once; asks everything
before it obeys a no; refuses the request with an answer; or waits on for one that is right."""


def faults_of(form: str) -> list[Fault]:
    """Return the faults that a form can have."""
    return [fault for fault in FAULTS if form in fault.forms]


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

    @property
    def asked(self) -> Mapping[str, JsonObject]:
        """What is asked next."""
        return TOOLS[self.tool].rounds[self.step](self.arguments | self.known)


Say = Callable[[JsonObject], Awaitable[None]]


# The server


class ProbedServer:
    """It asks, holds answers to its questions, and acts; its kinds ask in different forms."""

    methods: ClassVar[tuple[str, ...]] = ("server/discover", "tools/list", "tools/call")
    capabilities: ClassVar[JsonObject] = {"tools": {}}

    def __init__(self, name: str) -> None:
        self.name = name
        self.clock = 0.0
        self.visits = 0
        self.taken = 0
        """How many messages have come, but for polls."""

    def has(self, *faults: str) -> bool:
        """Tell whether one of these faults is planted."""
        return self.name in faults

    async def take(self, message: JsonObject, say: Say) -> None:
        """Take one message, and say what it leads to.

        Raises:
            BrokenError: it breaks down.
        """
        if "id" not in message:
            return

        try:
            value = await self._result(message, say)
        except RefusedError as refused:
            error = {"jsonrpc": "2.0", "id": message["id"], "error": refused.error}
            await say(error)
        else:
            await say(result(value, id=message["id"]))

    async def _result(self, message: JsonObject, say: Say) -> JsonObject:
        method = message["method"]
        params = message.get("params", {})
        if method not in self.methods:
            raise RefusedError(f"Method not found: {method}", NO_METHOD)

        complete = {"resultType": "complete"}
        cacheable = {"ttlMs": 0, "cacheScope": "public"}
        match method:
            case "initialize":
                about = {"name": "probed", "version": "1"}
                version = {"protocolVersion": "2025-11-25", "serverInfo": about}
                return version | {"capabilities": self.capabilities}
            case "server/discover":
                found: JsonObject = {"supportedVersions": ["2026-07-28"]}
                found["capabilities"] = self.capabilities
                return complete | cacheable | found
            case "tools/list":
                return complete | cacheable | {"tools": _listed()}
            case "tools/call":
                return await self._called(params, say)

        return complete | self._about_task(method, params)

    async def _called(self, params: JsonObject, say: Say) -> JsonObject:
        raise NotImplementedError

    def _about_task(self, method: str, params: JsonObject) -> JsonObject:
        raise NotImplementedError

    def _go_on(self, begun: Begun, answers: JsonObject) -> Begun | JsonObject:
        """Read the answers of a round; return what is asked next, or the result."""
        tool = TOOLS[begun.tool]
        known = dict(begun.known)
        try:
            for key, question in begun.asked.items():
                read = self._read(tool, key, question["params"], answers.get(key))
                if read is None:
                    if self.has("good-again"):
                        return begun
                    return _text(f"{begun.tool} cancelled")

                known |= read
        except InvalidAnswerError as invalid:
            if self.has("good-again"):
                return begun
            return _text(str(invalid), is_error=True)

        if self.has("extra-key"):
            extra = [key for key in answers if key not in begun.asked]
            known |= {"also": extra} if extra else {}

        if begun.step + 1 < len(tool.rounds):
            return replace(begun, step=begun.step + 1, known=known)

        return self._done(tool, begun.arguments | known)

    @staticmethod
    def _done(tool: Tool, known: JsonObject) -> JsonObject:
        if known.get("is_denied"):
            return _text("cancelled in the end")

        text = tool.done.format_map(known)
        if known.get("also"):
            text = f"{text} with {known['also']}"

        return _text(text)

    def _read(
        self, tool: Tool, key: str, question: JsonObject, given: JsonObject | None
    ) -> JsonObject | None:
        """Return what was entered, None if that was refused; an answer may be invalid."""
        if given is None:
            if self.has("missing-key"):
                return tool.defaults

            raise InvalidAnswerError(f"{key} is missing")

        action = given.get("action")
        if action == "cancel" and self.has("hang", "stuck"):
            raise BrokenError(self.name)

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
            if self.has("dropped-connection", "answer-500"):
                raise BrokenError(self.name)
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
            if self.has("failed"):
                raise RefusedError("Internal error", INTERNAL_ERROR, stack=STACK)

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


class RoundsServer(ProbedServer):
    """It asks by results, and keeps what its states stand for: nothing else, without a fault."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._issued: dict[str, Begun] = {}
        self._used: set[str] = set()

    async def _called(self, params: JsonObject, say: Say) -> JsonObject:
        state = params.get("requestState")
        answers = params.get("inputResponses")
        fresh = Begun(params["name"], params.get("arguments", {}))
        if state is None and answers is None:
            return self._ask(fresh)

        try:
            begun = fresh if state is None else self._opened(state, fresh)
        except RefusedError:
            if self.has("good-again"):
                return self._ask(fresh)

            raise

        if state is None and not self._acts_without_state(fresh):
            return self._ask(fresh)

        if self.has("unbound-question", "unasked") and "window" in (answers or {}):
            begun = replace(begun, step=1)

        outcome = self._go_on(begun, answers or {})
        if isinstance(outcome, Begun):
            return self._ask(outcome)
        if state is None:
            return outcome

        if self.has("second-differs") and state in self._used:
            outcome = _text("Deployed once more")

        self._used.add(state)
        return outcome

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
            is_later = begun.step > 0 and self.has("unbound-later")
            if not is_later and not self.has("unbound-tool"):
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
            raise RefusedError("Internal error", INTERNAL_ERROR, stack=STACK)

        is_taken = is_whole and self.has("unsigned")
        is_taken = is_taken or (state == "" and self.has("empty-state"))
        if is_taken and of_call:
            return of_call[-1]

        raise RefusedError("Invalid or expired requestState")

    def _ask(self, begun: Begun) -> JsonObject:
        """Ask what a call needs next, with a state."""
        state = secrets.token_urlsafe(36)
        self._issued[state] = replace(begun, since=self.clock)
        return {
            "resultType": "input_required",
            "inputRequests": begun.asked,
            "requestState": state,
        }


class PushingServer(ProbedServer):
    """It asks by requests of its own while the call waits: nobody can answer before."""

    methods = ("initialize", "tools/list", "tools/call")

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._waiting: dict[str, asyncio.Future[JsonObject]] = {}

    async def take(self, message: JsonObject, say: Say) -> None:
        """Take one message, which may answer a question."""
        if "method" in message:
            await super().take(message, say)
            return

        answer = message.get("result", {})
        if self.has("answer-500") and answer == {"action": "accept"}:
            raise BrokenError("answer-500")
        if self.has("good-400") and answer.get("content", {}).get("confirm") == "no":
            raise BrokenError("good-400")

        self._waiting.pop(message["id"]).set_result(answer)

    async def _called(self, params: JsonObject, say: Say) -> JsonObject:
        begun = Begun(params["name"], params.get("arguments", {}))
        while True:
            answers = {}
            for key, question in begun.asked.items():
                number = secrets.token_hex(8)
                answered = asyncio.get_running_loop().create_future()
                self._waiting[number] = answered
                await say(message(question["method"], question["params"], id=number))
                answers[key] = await answered

            outcome = self._go_on(begun, answers)
            if not isinstance(outcome, Begun):
                return outcome

            begun = outcome


@dataclass
class Task:
    """A call under way: what it asks, what was answered so far, and its outcome."""

    id: str
    begun: Begun
    suffix: str = ""
    given: JsonObject = field(default_factory=dict)
    outcome: JsonObject = field(default_factory=dict)

    @property
    def asked(self) -> JsonObject:
        """What it asks now, by keys that are new when it asks again."""
        if self.outcome:
            return {}

        asked = self.begun.asked.items()
        open_ = {f"{key}{self.suffix}": question for key, question in asked}
        return {key: open_[key] for key in open_ if key not in self.given}


class TaskServer(ProbedServer):
    """It makes each call a task, whose state asks."""

    methods = (*ProbedServer.methods, "tasks/get", "tasks/update", "tasks/cancel")
    capabilities: ClassVar[JsonObject] = {
        "tools": {},
        "extensions": {"io.modelcontextprotocol/tasks": {}},
    }

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._tasks: dict[str, Task] = {}
        self._numbers = count(1)

    async def _called(self, params: JsonObject, say: Say) -> JsonObject:
        begun = Begun(params["name"], params.get("arguments", {}))
        task = Task(secrets.token_urlsafe(18), begun)
        self._tasks[task.id] = task
        if self.has("unasked") and "inputResponses" in params:
            self._answered(task, params["inputResponses"])
            if "result" in task.outcome:
                done: JsonObject = task.outcome["result"]
                return done

        return {"resultType": "task", **self._state(task), "status": "working"}

    def _about_task(self, method: str, params: JsonObject) -> JsonObject:
        task = self._tasks.get(params["taskId"])
        if task is None:
            raise RefusedError("Task not found")

        if method == "tasks/update":
            self._answered(task, params["inputResponses"])

        if method == "tasks/cancel":
            task.outcome = task.outcome or {"status": "cancelled"}

        return self._state(task) if method == "tasks/get" else {}

    @staticmethod
    def _state(task: Task) -> JsonObject:
        at = "2026-11-24T10:00:00Z"
        state: JsonObject = {"taskId": task.id, "status": "working"}
        state |= {"createdAt": at, "lastUpdatedAt": at, "ttlMs": 60_000}
        state |= {"pollIntervalMs": 1}
        if task.asked:
            state |= {"status": "input_required", "inputRequests": task.asked}

        return state | task.outcome

    def _answered(self, task: Task, given: JsonObject) -> None:
        """Take answers, and go on when there are all."""
        given = task.given | given
        if not given.keys() >= task.asked.keys() and not self.has("missing-key"):
            task.given = given
            return

        answers = {key.partition("/")[0]: given[key] for key in given}
        try:
            outcome = self._go_on(task.begun, answers)
        except RefusedError as refused:
            task.outcome = {"status": "failed", "error": refused.error}
            return
        except BrokenError as broken:
            if str(broken) != "stuck":
                raise

            task.outcome = {"status": "working"}
            return

        is_refusal = not isinstance(outcome, Begun) and outcome["isError"]
        if is_refusal and self.has("good-400"):
            raise BrokenError("good-400")
        if is_refusal and self.has("good-waiting"):
            return

        if isinstance(outcome, Begun):
            if outcome is task.begun:
                task.suffix = f"/{next(self._numbers)}"

            task.begun = outcome
            task.given = {}
        else:
            task.outcome = {"status": "completed", "result": outcome}


SERVERS: dict[str, type[ProbedServer]] = {
    ROUNDS: RoundsServer,
    PUSHES: PushingServer,
    TASKS: TaskServer,
}


def _text(text: str, *, is_error: bool = False) -> JsonObject:
    content = [{"type": "text", "text": text}]
    return {"resultType": "complete", "content": content, "isError": is_error}


TRACEBACK = """Traceback (most recent call last):
  File "/srv/app/server.py", line 12, in deploy
    agreed = content["confirm"] & True
TypeError: unsupported operand type(s) for &: 'str' and 'bool'"""
STACK = "TypeError: state is undefined\n    at open (server.js:12:7)"


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


# On pipes


async def serve_on_pipes(server: ProbedServer) -> None:
    """Answer lines until stdin ends; what breaks the server down ends the process, or a call."""
    lines = asyncio.StreamReader(limit=2**20)
    loop = asyncio.get_running_loop()
    protocol = asyncio.StreamReaderProtocol(lines)
    await loop.connect_read_pipe(lambda: protocol, sys.stdin.buffer)

    async def say(message: JsonObject) -> None:
        sys.stdout.buffer.write(compact(message) + b"\n")
        sys.stdout.buffer.flush()

    async def take(message: Any) -> None:
        try:
            await server.take(message, say)
        except BrokenError as broken:
            if str(broken) != "hang":
                os._exit(1)

    under_way = set()
    while line := await lines.readline():
        under_way.add(asyncio.ensure_future(take(json.loads(line))))


if __name__ == "__main__":
    form, name = sys.argv[1:]
    asyncio.run(serve_on_pipes(SERVERS[form](name)))
