"""A server whose every reply a test can change, and a client that has it say everything once."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from harness import ACCEPT, connected, http, looped, post, taping
from messages import CAPABLE, JsonObject, compact, message, tool_call
from standin import EVENTS, JSON, Visit, chunk, event, response, stream_head

LEGACY = "2025-11-25"


@dataclass
class Reply:
    """What the server says to one request: messages, of which the last responds."""

    said: list[JsonObject]
    status: str = "200 OK"
    headers: list[str] = field(default_factory=list)
    is_stream: bool = False
    body: bytes | None = None

    @property
    def result(self) -> JsonObject:
        """The result of the response."""
        result: JsonObject = self.said[-1]["result"]
        return result


Plant = Callable[[Reply], None]
"""Changes one reply."""

FORM: JsonObject = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "Deploy to prod?",
        "requestedSchema": {
            "type": "object",
            "properties": {
                "size": {
                    "type": "string",
                    "enum": ["small", "large"],
                    "default": "small",
                },
                "note": {"type": "string"},
            },
            "required": ["size"],
        },
    },
}
URL: JsonObject = {
    "method": "elicitation/create",
    "params": {"mode": "url", "message": "Sign in", "url": "https://id.example/login"},
}
SAMPLE: JsonObject = {
    "method": "sampling/createMessage",
    "params": {
        "messages": [{"role": "user", "content": {"type": "text", "text": "Plan it"}}],
        "maxTokens": 100,
    },
}
ROOTS: JsonObject = {"method": "roots/list"}
TOOLS: list[JsonObject] = [
    {
        "name": "deploy",
        "description": "Deploy it",
        "inputSchema": {
            "type": "object",
            "properties": {"env": {"type": "string"}, "dry": {"type": "boolean"}},
            "required": ["env"],
        },
    },
    {
        "name": "wipe",
        "inputSchema": {"type": "object"},
        "annotations": {"destructiveHint": True},
    },
    {
        "name": "clock",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
    },
]
PROMPTS: list[JsonObject] = [
    {"name": "greet", "arguments": [{"name": "who", "required": True}]}
]
RESOURCE: JsonObject = {"text": "port: 80", "mimeType": "text/yaml"}
RESULT: JsonObject = {
    "content": [{"type": "text", "text": "Deployed to prod"}],
    "structuredContent": {"total": 3, "items": ["a", "b"], "ok": True},
}
REPORT: JsonObject = {
    "content": [{"type": "text", "text": '{"lines":[1,2],"by":"me"}'}]
}


def text(words: str, **more: Any) -> JsonObject:
    """Return a result of one text."""
    return {"content": [{"type": "text", "text": words}], **more}


def progress(step: int) -> JsonObject:
    """Return a notification of progress."""
    params = {"progressToken": 0, "progress": step, "message": f"step {step}"}
    return message("notifications/progress", params, id=None)


class Contract:
    """The server; each run has a key of its own, and refuses the states of others.

    Attributes:
        plants: the changes, by the name of the reply.
        answers: how many answers it got, by the name of the ask.
        called: how often each tool was called.
    """

    def __init__(self, **plants: Plant) -> None:
        """Begin with these changes."""
        self.plants = plants
        self.key = secrets.token_hex(12)
        self.answers: Counter[str] = Counter()
        self.called: Counter[str] = Counter()
        self._count = count(secrets.randbelow(1000))
        self._pushed: dict[str, asyncio.Future[Any]] = {}

    async def __call__(self, visit: Visit) -> None:
        """Answer one request."""
        if visit.request.head.line.startswith("DELETE"):
            await visit.send(response(b"", status="204 No Content"))
            return

        body = visit.request.json
        if "method" not in body:
            self.answers["push"] += 1
            self._pushed[body["id"]].set_result(body.get("result"))
            await visit.send(response(b"", status="202 Accepted"))
        elif "id" not in body:
            await visit.send(response(b"", status="202 Accepted"))
        elif body["method"] == "tools/call" and body["params"]["name"] == "pushing":
            await self._push(visit, body["id"])
        else:
            await self._reply(visit, body)

    async def _reply(self, visit: Visit, body: JsonObject) -> None:
        name, reply = self._said(body)
        if name in self.plants:
            self.plants[name](reply)

        for said in reply.said:
            if "method" not in said:
                said["id"] = body["id"]

        if reply.body is not None:
            await visit.send(response(reply.body, *reply.headers, status=reply.status))
        elif reply.is_stream:
            head = stream_head(EVENTS, *reply.headers, status=reply.status)
            chunks = [chunk(event(said)) for said in reply.said]
            await visit.send(head, *chunks, chunk(b""))
        else:
            head = ["Content-Type: application/json", *reply.headers]
            await visit.send(
                response(compact(reply.said[-1]), *head, status=reply.status)
            )

    def _said(self, body: JsonObject) -> tuple[str, Reply]:
        """Return the reply to a request, and its name."""
        method = body["method"]
        params = body.get("params", {})
        kept = json.loads(json.dumps([TOOLS, PROMPTS]))
        info = {"name": "contract", "version": "1"}
        about = {"capabilities": {"tools": {}}, "serverInfo": info}
        replies = {
            "server/discover": _reply(about),
            "tools/list": _reply({"tools": kept[0], "ttlMs": secrets.randbelow(9999)}),
            "prompts/list": _reply({"prompts": kept[1]}),
            "resources/read": _reply(
                {"contents": [{**RESOURCE, "uri": params.get("uri")}]},
                "Cache-Control: no-cache",
            ),
        }

        if method == "initialize":
            session = f"Mcp-Session-Id: {secrets.token_hex(16)}"
            return method, _reply({"protocolVersion": LEGACY, **about}, session)

        if method in replies:
            return method.replace("/", "_"), replies[method]
        if method == "prompts/get":
            return self._asked("prompt", params, [{"who": FORM}], lambda _: _prompt())

        return self._tool(params["name"], params)

    def _tool(self, name: str, params: JsonObject) -> tuple[str, Reply]:
        self.called[name] += 1
        if name in QUESTIONS:
            final = deployed if name == "deploy" else lambda _: text("Done")
            label, reply = self._asked(name, params, QUESTIONS[name], final)
            if name == "late":
                reply.is_stream = True
                reply.said.insert(0, progress(1))

            return label, reply

        results = {
            "build": text("Built"),
            "report": json.loads(json.dumps(REPORT)),
            "clock": _clock(next(self._count)),
        }

        if name not in results:
            error = {"code": -32602, "message": f"Unknown tool: {name}"}
            return name, Reply([{"jsonrpc": "2.0", "error": error}])

        reply = _reply(results[name])
        if name == "build":
            reply.said[:0] = [progress(1), progress(2)]
            reply.is_stream = True

        return name, reply

    def _asked(
        self,
        name: str,
        params: JsonObject,
        rounds: list[JsonObject],
        final: Callable[[JsonObject], JsonObject],
    ) -> tuple[str, Reply]:
        """Ask round after round, and end with a result."""
        state = params.get("requestState")
        answers = params.get("inputResponses", {})
        if state is None and not answers:
            turn = 0
        elif state is None or not state.startswith(f"{self.key}-{name}-"):
            error = {"code": -32602, "message": "Invalid or expired requestState"}
            return f"{name}.refused", Reply([{"jsonrpc": "2.0", "error": error}])
        else:
            turn = int(state.rpartition("-")[2])
            self.answers[f"{name}.{turn}"] += 1

        if turn == len(rounds):
            result = final(answers)
            return f"{name}.{'declined' if 'isError' in result else 'end'}", _reply(
                result
            )

        asked = json.loads(json.dumps(rounds[turn]))
        asking = {
            "resultType": "input_required",
            "requestState": f"{self.key}-{name}-{turn + 1}",
        }

        if asked:
            asking["inputRequests"] = asked

        return f"{name}.{turn + 1}", _reply(asking)

    async def _push(self, visit: Visit, identity: Any) -> None:
        """Push a question within a call, and give the result that its answer leads to."""
        pushed = {
            **json.loads(json.dumps(FORM)),
            "jsonrpc": "2.0",
            "id": secrets.token_hex(4),
        }

        asking = Reply([pushed])
        if "push" in self.plants:
            self.plants["push"](asking)

        await visit.send(stream_head())
        for push in asking.said:
            answer = self._pushed[push["id"]] = (
                asyncio.get_running_loop().create_future()
            )
            await visit.send(chunk(event(push)))
            left = asyncio.ensure_future(visit.left())
            await asyncio.wait({answer, left}, return_when=asyncio.FIRST_COMPLETED)
            left.cancel()
            await asyncio.gather(left, return_exceptions=True)
            if not answer.done():
                return

        ending = _reply(text("Pushed"))
        if "push.end" in self.plants:
            self.plants["push.end"](ending)

        ending.said[-1]["id"] = identity
        await visit.send(chunk(event(ending.said[-1])), chunk(b""))


def _reply(result: JsonObject, *headers: str) -> Reply:
    return Reply([{"jsonrpc": "2.0", "result": result}], headers=list(headers))


def deployed(answers: JsonObject) -> JsonObject:
    """Return the result of `deploy`, where it was confirmed or not."""
    is_on = answers["confirm"]["action"] == "accept"
    done: JsonObject = json.loads(json.dumps(RESULT))
    return done if is_on else text("Not deployed", isError=True)


def _clock(number: int) -> JsonObject:
    """Return what differs by itself: a time, an id, a count and an order, beside what does not."""
    names = "abcdefgh"[number % 8 :] + "abcdefgh"[: number % 8]
    items = [{"id": name} for name in names]
    inner = {
        "at": f"2026-08-01T00:00:{number % 60:02}.{secrets.randbelow(10**6)}Z",
        "zone": "UTC",
    }

    return {
        "content": [{"type": "text", "text": json.dumps(inner)}],
        "structuredContent": {
            "id": secrets.token_hex(8),
            "count": number,
            "items": items,
            "stable": "yes",
            "list": ["x", "y"],
        },
    }


def _prompt() -> JsonObject:
    said = {"role": "user", "content": {"type": "text", "text": "Hello Ada"}}
    return {"description": "A greeting", "messages": [said]}


QUESTIONS: dict[str, list[JsonObject]] = {
    "deploy": [{"confirm": FORM}],
    "train": [{"a": FORM}, {"b": URL}, {}],
    "plan": [{"sample": SAMPLE, "roots": ROOTS}],
    "late": [{"confirm": FORM}],
}
SMALL: JsonObject = {"action": "accept", "content": {"size": "small"}}
DECLINED: JsonObject = {"action": "decline"}
SAMPLED: JsonObject = {
    "role": "assistant",
    "content": {"type": "text", "text": "Plan"},
    "model": "m",
}
ROUNDS: dict[str, list[JsonObject]] = {
    "deploy": [{"confirm": SMALL}],
    "train": [{"a": SMALL}, {"b": {"action": "accept"}}, {}],
    "plan": [{"sample": SAMPLED, "roots": {"roots": []}}],
    "late": [{"confirm": SMALL}],
}


async def say_everything(url: str) -> None:
    """Have each conversation once, through a recording proxy."""
    for method, params in (
        ("server/discover", {}),
        ("tools/list", {}),
        ("prompts/list", {}),
        ("resources/read", {"uri": "config://port"}),
    ):
        await post(url, message(method, {**params, "_meta": CAPABLE}))

    for name, answers in ROUNDS.items():
        await _rounds(url, tool_call(name, _meta=CAPABLE), answers)

    await _rounds(url, tool_call("deploy", _meta=CAPABLE), [{"confirm": DECLINED}])
    prompt = message("prompts/get", {"name": "greet", "_meta": CAPABLE})
    await _rounds(url, prompt, [{"who": SMALL}])
    for name in ("build", "report", "unknown"):
        await post(url, tool_call(name, _meta={**CAPABLE, "progressToken": 0}))

    await _in_session(url)


async def _rounds(url: str, call: JsonObject, answers: list[JsonObject]) -> None:
    asked = _response(await post(url, call))
    for number, answer in enumerate(answers, start=2):
        state = asked["result"]["requestState"]
        more = {"requestState": state, **({"inputResponses": answer} if answer else {})}
        asked = _response(
            await post(
                url, {**call, "id": number, "params": {**call["params"], **more}}
            )
        )


def _response(answer: Any) -> JsonObject:
    body: bytes = answer.body
    if b"data: " in body:
        body = body.rstrip().rpartition(b"data: ")[2]

    parsed: JsonObject = json.loads(body)
    return parsed


async def _in_session(url: str) -> None:
    """Open a session of the 2025 era, be asked during a call, and close it."""
    params = {
        "protocolVersion": LEGACY,
        "capabilities": {},
        "clientInfo": {"name": "c"},
    }

    opened = await post(url, message("initialize", params))
    session = f"Mcp-Session-Id: {opened.head.values('mcp-session-id')[0]}"
    await post(url, message("notifications/initialized", id=None), session)
    await _pushed_call(url, session)
    await http("DELETE", url, session)


async def _pushed_call(url: str, session: str) -> None:
    path = urlsplit(url).path
    async with connected(url) as connection:
        call = compact(tool_call("pushing", id=7))
        _, body = await connection.ask("POST", path, JSON, ACCEPT, session, body=call)
        pushed = json.loads((await body.until(b"\n\n")).partition(b"data: ")[2])
        await post(
            url, {"jsonrpc": "2.0", "id": pushed["id"], "result": SMALL}, session
        )
        await body.rest()


@looped
async def record_contract(path: Path) -> Path:
    """Record all that the server says to a cassette, and return its path."""
    async with taping(path, Contract()) as tape:
        await say_everything(tape.url)

    return path
