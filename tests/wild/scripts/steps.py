"""Scenarios as a Python client runs them, whatever SDK it is made with.

Each line of the transcript is a JSON object: what the client saw or answered, in the order in which
it did, with nothing that varies between runs. Answers depend on the question alone.
`steps.mjs` prints the same lines.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

JsonObject = dict[str, Any]

SCENARIOS: dict[str, JsonObject] = json.loads(
    Path(__file__).with_name("scenarios.json").read_text(encoding="utf-8")
)
SHOWN = ("content", "isError", "structuredContent", "messages", "contents")
VALUES = {"string": "Ada", "boolean": True, "integer": 7, "number": 7}
MODES = {"2025": "legacy", "2026": "auto"}
ROOT = {"uri": "file:///workspace", "name": "workspace"}


class RpcError(Exception):
    """A server's error, or the one that a client answers a question with."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def plain(model: Any) -> JsonObject:
    """Return a model of an SDK as JSON."""
    dumped: JsonObject = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return dumped


@dataclass
class Connection:
    """A session of an SDK, with results as plain JSON.

    Attributes:
        sdk: the SDK's session or client.
        error: what it raises for a server's error.
        suffix: of its methods that return a result as the server sent it.
        progress: its name for what takes progress.
    """

    sdk: Any
    error: type[Exception]
    suffix: str = ""
    progress: str = "progress_callback"

    async def _result(self, method: str, *arguments: Any, **more: Any) -> JsonObject:
        try:
            return plain(
                await getattr(self.sdk, f"{method}{self.suffix}")(*arguments, **more)
            )
        except self.error as error:
            data = error.error  # type: ignore[attr-defined]
            raise RpcError(data.code, data.message) from error

    async def names(self, kind: str) -> list[str]:
        listed = await getattr(self.sdk, f"list_{kind}")()
        return [item.name for item in getattr(listed, kind, listed)]

    async def call(self, name: str, arguments: JsonObject, progress: Any) -> JsonObject:
        return await self._result(
            "call_tool", name, arguments, **{self.progress: progress}
        )

    async def prompt(self, name: str, arguments: dict[str, str]) -> JsonObject:
        return await self._result("get_prompt", name, arguments)

    async def read(self, uri: str) -> JsonObject:
        return await self._result("read_resource", uri)

    async def set_level(self, level: str) -> None:
        await self.sdk.set_logging_level(level)

    async def roots_changed(self) -> None:
        await self.sdk.send_roots_list_changed()


@dataclass
class Answers:
    """A session's answers as the official SDK's callbacks; `types` is the module of its models."""

    session: Session
    types: Any

    async def elicit(self, _: Any, params: Any) -> Any:
        return self.types.ElicitResult.model_validate(
            await self.session.elicit(plain(params))
        )

    async def sample(self, _: Any, params: Any) -> Any:
        try:
            answer = await self.session.sample(plain(params))
        except RpcError as error:
            return self.types.ErrorData(code=error.code, message=str(error))

        return self.types.CreateMessageResult.model_validate(answer)

    async def roots(self, _: Any) -> Any:
        return self.types.ListRootsResult.model_validate(await self.session.roots())


def command_in(target: str) -> list[str] | None:
    """Return the command that a target is, or None where it is a URL."""
    command: list[str] = json.loads(target) if target.startswith("[") else None
    return command


@dataclass
class Rendezvous:
    """Keeps back each answer until every session has been asked."""

    sessions: int
    asked: int = 0
    all_asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self) -> None:
        self.asked += 1
        if self.asked >= self.sessions:
            self.all_asked.set()

        await self.all_asked.wait()


@dataclass
class Session:
    """One session of a scenario: its part of the transcript, and its answers."""

    scenario: str
    number: int
    rendezvous: Rendezvous
    mode: str
    seen: Counter[str] = field(default_factory=Counter)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def say(self, kind: str, lane: str = "", **members: Any) -> None:
        line = {
            "scenario": self.scenario,
            "session": self.number,
            "lane": lane,
            "kind": kind,
        }
        print(
            json.dumps(line | members, ensure_ascii=False, sort_keys=True), flush=True
        )

    async def elicit(self, params: JsonObject) -> JsonObject:
        message = params["message"]
        fields = params.get("requestedSchema", {}).get("properties", {})
        shown = {name: schema.get("type") for name, schema in fields.items()}
        asked = {"message": message, "fields": shown, "url": params.get("url")}
        lane = _lane(message)
        self.say("ask", lane, method="elicitation/create", params=asked)
        await self.rendezvous.wait()
        answer: JsonObject = {"action": _action(message)}
        if answer["action"] == "accept" and fields:
            required = params["requestedSchema"].get("required", list(fields))
            answer["content"] = {name: _value(name, fields[name]) for name in required}

        self.say("answer", lane, result=answer)
        await self._count("elicitation/create")
        return answer

    async def sample(self, params: JsonObject) -> JsonObject:
        blocks = [message["content"] for message in params["messages"]]
        listed = [
            b
            for block in blocks
            for b in (block if isinstance(block, list) else [block])
        ]

        text = " ".join(block["text"] for block in listed)
        lane = _lane(text)
        asked = {"text": text, "maxTokens": params.get("maxTokens")}
        self.say("ask", lane, method="sampling/createMessage", params=asked)
        await self.rendezvous.wait()
        await self._count("sampling/createMessage")
        if "refuse" in text:
            self.say("answer", lane, error=[-1, "User rejected sampling request"])
            raise RpcError(-1, "User rejected sampling request")

        content = {"type": "text", "text": f"Sampled {text}"}
        self.say("answer", lane, result=content["text"])
        return {
            "role": "assistant",
            "content": content,
            "model": "stub",
            "stopReason": "endTurn",
        }

    async def roots(self) -> JsonObject:
        self.say("ask", method="roots/list", params={})
        await self.rendezvous.wait()
        self.say("answer", result={"roots": [ROOT]})
        await self._count("roots/list")

        return {"roots": [ROOT]}

    async def heard(self, message: Any) -> None:
        """Take what an SDK hands on: an exception, or a message; progress goes to its call."""
        if isinstance(message, Exception):
            self.say("problem", text=f"{type(message).__name__}: {message}")
            return

        # The v1 line wraps what the server sent.
        message = getattr(message, "root", message)
        notification = plain(message) if hasattr(message, "model_dump") else {}
        method = notification.get("method", "")
        if (
            not method.startswith("notifications/")
            or method == "notifications/progress"
        ):
            return

        params = notification.get("params") or {}
        known = {key: value for key, value in params.items() if key != "_meta"}
        is_listening = known.get("logger") == "get" or "list_changed" in method
        self.say(
            "notification", "get" if is_listening else "", method=method, params=known
        )
        await self._count(method)

    def progress(self, step: JsonObject) -> Callable[..., Awaitable[None]]:
        async def show(
            progress: float, total: float | None, message: str | None
        ) -> None:
            of_total = None if total is None else int(total)
            shown = {"progress": int(progress), "total": of_total, "message": message}
            self.say("progress", "progress", call=step["call"], params=shown)
            await self._count("notifications/progress")

        return show

    async def _count(self, method: str) -> None:
        async with self.changed:
            self.seen[method] += 1
            self.changed.notify_all()

    async def until(self, method: str, count: int) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: self.seen[method] >= count)

    async def step(self, connection: Connection, step: JsonObject) -> None:
        """Run one step; a server's error is a line like a result."""
        lane = step.get("lane", "")
        try:
            match step:
                case {"at_once": list(steps)}:
                    await asyncio.gather(
                        *(self.step(connection, step) for step in steps)
                    )
                case {"until": str(method)}:
                    await self.until(method, step.get("count", 1))
                case {"list": str(kind)}:
                    self.say("names", lane, of=kind, names=await connection.names(kind))
                case {"call": str(name)}:
                    callback = self.progress(step) if step.get("progress") else None
                    result = await connection.call(
                        name, step.get("arguments", {}), callback
                    )
                    self.say("result", lane, of=name, result=_shown(result))
                case {"prompt": str(name)}:
                    result = await connection.prompt(name, step.get("arguments", {}))
                    self.say("result", lane, of=name, result=_shown(result))
                case {"read": str(uri)}:
                    self.say(
                        "result",
                        lane,
                        of=uri,
                        result=_shown(await connection.read(uri)),
                    )
                case {"level": str(level)}:
                    await connection.set_level(level)
                case {"roots_changed": _}:
                    await connection.roots_changed()
                case _:
                    raise ValueError(f"no such step: {step}")
        except RpcError as error:
            # The TypeScript SDK's v1 line puts the code into the message, on either side.
            text = re.sub(r"^(?:MCP error -?\d+: )+", "", str(error))
            self.say("error", lane, code=error.code, message=text)


Open = Callable[[str, Session], AbstractAsyncContextManager[Connection]]


def _lane(text: str) -> str:
    lane, colon, _ = text.partition(": ")
    return lane if colon and len(lane) == 1 else ""


def _action(message: str) -> str:
    return next(
        (action for action in ("decline", "cancel") if action in message), "accept"
    )


def _value(name: str, schema: JsonObject) -> Any:
    if "default" in schema:
        return schema["default"]
    return schema["enum"][0] if "enum" in schema else VALUES[schema["type"]]


def _shown(result: JsonObject) -> JsonObject:
    """Keep what MCP gives a meaning; a false `isError` is an absent one."""
    shown = {key: result[key] for key in SHOWN if result.get(key) is not None}
    if not shown.get("isError"):
        shown.pop("isError", None)

    return shown


def flat(error: BaseException) -> str:
    """Spell an error, or those of a group."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(flat(exception) for exception in error.exceptions)
    return f"{type(error).__name__}: {error}"


async def _run_session(session: Session, open_: Open, target: str) -> None:
    async with open_(target, session) as connection:
        for step in SCENARIOS[session.scenario]["steps"]:
            await session.step(connection, step)

        session.say("end")


async def _run(name: str, open_: Open, target: str, mode: str, patience: float) -> bool:
    count = SCENARIOS[name].get("sessions", 1)
    rendezvous = Rendezvous(count)
    sessions = [
        Session(name, number, rendezvous, mode) for number in range(1, count + 1)
    ]
    try:
        async with asyncio.timeout(patience):
            await asyncio.gather(
                *(_run_session(session, open_, target) for session in sessions)
            )
    except TimeoutError:
        sessions[0].say("hang")
        return False
    except Exception as error:  # noqa: BLE001  whatever it is, the next scenario has its turn
        sessions[0].say("failure", text=flat(error))
        return False

    return True


async def _run_all(open_: Open, pairs: list[str], mode: str, patience: float) -> int:
    went_well = [
        await _run(name, open_, target, mode, patience)
        for name, _, target in (pair.partition("=") for pair in pairs)
    ]
    return 0 if all(went_well) else 1


def main(open_: Open) -> None:
    """Run scenarios, each against its own URL or command; exit status 1 tells that one hung."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patience", type=float, default=20)
    parser.add_argument("--era", choices=["2025", "2026"], default="2025")
    parser.add_argument(
        "pairs", nargs="+", metavar="SCENARIO=URL|SCENARIO=[COMMAND, ...]"
    )
    options = parser.parse_args()
    mode = MODES[options.era]
    sys.exit(asyncio.run(_run_all(open_, options.pairs, mode, options.patience)))
