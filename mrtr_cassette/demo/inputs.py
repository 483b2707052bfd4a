"""The kinds of input that the demo server can require of a client.

Source: MCP 2026-07-28, elicitation, sampling and roots.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import NoneType
from typing import NamedTuple, TypeAlias

from mrtr_cassette.demo.rpc import JsonObject, object_of, schema_of, text_content


class InputKind(NamedTuple):
    """A kind of input that a server can require.

    Attributes:
        method: of the request for it.
        needs: the capabilities that a client must declare.
        params: makes the request's params from the key and the message.
        holds: the type of what an accepted form holds.
    """

    method: str
    needs: JsonObject
    params: Callable[[str, str], JsonObject]
    holds: type = NoneType

    def __call__(self, **messages: str) -> InputRound:
        """Make the requests of one round by key; a message is a template over the arguments."""
        return {key: (self, message) for key, message in messages.items()}

    def read(self, key: str, answer: JsonObject) -> tuple[bool, str]:
        """Tell whether the client agreed, and what it answered, as text."""
        if self.method != "elicitation/create":
            given = answer.get("roots", answer.get("content"))
            items = map(object_of, given if isinstance(given, list) else [given])
            return True, " ".join(str(item.get("uri", item.get("text", ""))) for item in items)
        action, value = answer.get("action"), object_of(answer.get("content")).get(key)
        if action != "accept" or not isinstance(value, self.holds):
            return False, str(action)
        return value is not False, value if isinstance(value, str) else str(action)


InputRound: TypeAlias = dict[str, tuple[InputKind, str]]


def _form(json_type: str, key: str, text: str) -> JsonObject:
    return {
        "mode": "form",
        "message": text,
        "requestedSchema": schema_of({key: {"type": json_type}}),
    }


def _link(_key: str, text: str) -> JsonObject:
    return {"mode": "url", "message": text, "url": "https://example.com/auth"}


def _sampling(_key: str, text: str) -> JsonObject:
    return {"messages": [{"role": "user", "content": text_content(text)}], "maxTokens": 200}


_FORM: JsonObject = {"elicitation": {"form": {}}}
YES_NO = InputKind("elicitation/create", _FORM, partial(_form, "boolean"), bool)
TEXT = InputKind("elicitation/create", _FORM, partial(_form, "string"), str)
LINK = InputKind("elicitation/create", {"elicitation": {"url": {}}}, _link)
SAMPLING = InputKind("sampling/createMessage", {"sampling": {}}, _sampling)
ROOTS = InputKind("roots/list", {"roots": {}}, lambda _key, _message: {})
