"""The answers file as a model: its JSON Schema, and what is wrong with a file.

Rule: each description is a sentence that users read in the published schema.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

Otherwise = Literal["fail", "decline", "cancel"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class RuleModel(_Strict):
    """One rule: what it answers, and with what. The first rule that fits answers."""

    tool: str | None = Field(None, description="The tool that is called.")
    prompt: str | None = Field(None, description="The prompt that is got.")
    resource: str | None = Field(None, description="The URI of the resource that is read.")
    key: str | None = Field(None, description="The server's key of the request for input.")
    message: str | None = Field(None, description="The message, exactly.")
    pattern: str | None = Field(
        None, description="A regular expression (RE2) for the whole message."
    )
    kind: (
        Literal["form", "url", "sampling", "roots", "string", "number", "integer", "boolean"] | None
    ) = Field(None, description="What the server asks for; the last four in the array dialect.")
    action: Literal["accept", "decline", "cancel"] | None = Field(
        None, description="What a user does with a form or a URL."
    )
    content: dict[str, JsonValue] | None = Field(
        None, description="The fields of a form that is accepted."
    )
    result: dict[str, JsonValue] | None = Field(
        None, description="The result of a sampling or roots request."
    )
    value: JsonValue = Field(None, description="The value in the array dialect.")


class RestModel(_Strict):
    """An endpoint that is asked what no rule answers."""

    url: str = Field(description="Where the questions are posted.")
    headers: dict[str, str] = Field(default_factory=dict, description="Headers of the request.")
    timeout: Annotated[float, Field(gt=0, strict=False)] = Field(
        10.0, description="Seconds that a response may take."
    )


class FileModel(_Strict):
    """Who answers what a server asks, where no client does, in TOML."""

    otherwise: Otherwise = Field(
        "fail", description="What happens with a form or a URL that nothing else answers."
    )
    rest: RestModel | None = Field(None, description="An endpoint that gives answers.")
    rule: list[RuleModel] = Field(
        default_factory=list, description="The rules, in the order in which they are tried."
    )
