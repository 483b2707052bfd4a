"""The cassette format, version 1: what stands in the file, and what doesn't.

Rule: whatever differs between two recordings of an unchanged server stands in `Recording` only.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

import orjson
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from mrtr_cassette.core.cassette.recorded import SCHEMA_ID, VERSION
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.secrets.shapes import SharedKind

HeaderName = Annotated[str, Field(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")]
HeaderValue = Annotated[str, Field(pattern=r"^[^\x00-\x08\x0a-\x1f\x7f]*$")]
_BODY_FORMS = ("body", "text", "base64", "events", "lines")
_WITHHELD = re.compile("mrtr-withheld:[0-9]+:[0-9a-f]{64}")
"""Stands for a body of which an earlier version kept only the size and the SHA-256."""

_SESSION = "over stdio: which further start of the server; absent for the first one"
HeaderMap = dict[HeaderName, HeaderValue | list[HeaderValue]]
Number = Annotated[int, Field(ge=1)]
Index = Annotated[int, Field(ge=0)]
Status = Annotated[int, Field(ge=100, le=999)]
ValueName = Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]*$")]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class _Model(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        validate_by_name=True,
        validate_by_alias=True,
        # A model is built with the one that it is part of, and each by itself takes half a load.
        defer_build=True,
    )


class PieceModel(_Model):
    """An event of a stream, or a line of a pipe: `before`, JSON `data`, `after`; else bytes."""

    before: str | None = Field(None, description="the bytes of an event up to its data")
    data: Any = Field(
        None, description="JSON, if compact re-serialising gives the same bytes"
    )
    after: str | None = Field(
        None, description="what follows the data; of a line, a line feed"
    )
    text: str | None = Field(
        None, description="the whole piece, if its data is not such JSON"
    )
    base64: str | None = Field(None, description="the whole piece, if it is not UTF-8")


class BodyModel(_Model):
    """Bytes in the most readable form that gives them back; no form at all is an empty body."""

    body: Any = Field(
        None, description="JSON, if compact re-serialising gives the same bytes"
    )
    text: str | None = Field(None, description="UTF-8 text, if it is not such JSON")
    base64: str | None = Field(None, description="base64, if it is not UTF-8")
    events: list[PieceModel] | None = Field(
        None, description="the events of an event stream"
    )
    lines: list[PieceModel] | None = Field(
        None, description="the lines of a server on a pipe"
    )

    @property
    def raw_pieces(self) -> list[bytes]:
        """Its bytes, in one piece or those of its events or lines.

        Raises:
            ValueError: two forms at once, no base64, or JSON that is nested too deeply.
        """
        forms = [form for form in _BODY_FORMS if getattr(self, form) is not None]
        if len(forms) > 1:
            raise ValueError(f"both `{forms[0]}` and `{forms[1]}`")
        if self.text is not None and _WITHHELD.fullmatch(self.text):
            raise ValueError(
                "a body was withheld by --strict-redaction, so it can't be played"
            )
        if self.events is not None:
            return _bytes_of_pieces(self.events, end="")
        if self.lines is not None:
            return _bytes_of_pieces(self.lines, end="\n")

        raw = _bytes_of_piece_or_body(self.body, text=self.text, base64=self.base64)
        return [raw] if raw else []


def _bytes_of_pieces(pieces: Iterable[PieceModel], end: str) -> list[bytes]:
    """Return the bytes of events or of lines; `end` is after the data of those that don't say."""
    raws = []
    for piece in pieces:
        raw = _bytes_of_piece_or_body(
            piece.data,
            text=piece.text,
            base64=piece.base64,
            before=piece.before or "",
            after=piece.after or end,
        )
        raws.append(raw)

    return raws


def _bytes_of_piece_or_body(
    data: Any,
    *,
    text: str | None,
    base64: str | None,
    before: str = "",
    after: str = "",
) -> bytes:
    """Return the bytes that a piece or body gives as base64, as text, or as JSON between texts."""
    if base64 is not None:
        return b64decode(base64, validate=True)
    if data is None:
        return (text or "").encode()

    try:
        json = orjson.dumps(data)
    except TypeError as error:
        raise ValueError(str(error)) from None

    return b"".join([before.encode(), json, after.encode()])


class HttpModel(_Model):
    """The HTTP side of a request."""

    method: str = Field(description="HTTP method")
    path: str = Field(description="path with query")
    headers: HeaderMap = Field(
        description="the headers that matter to MCP and to replay"
    )


# Whether members of HTTP have to be there depends on the transport, so the loader makes sure.


class RequestModel(BodyModel):
    """The request that began an interaction."""

    http: HttpModel | None = Field(None, description="absent if the transport is stdio")
    session: HeaderValue | None = Field(None, description=_SESSION)


class AnswerModel(BodyModel):
    """A retry that carries answers, the echoed request state, or both."""

    headers: HeaderMap | None = Field(
        None, description="absent if the transport is stdio"
    )
    session: HeaderValue | None = Field(None, description=_SESSION)


class ResponseModel(BodyModel):
    """A response: an ask, or the one that ended the interaction."""

    status: Status | None = Field(None, description="absent if the transport is stdio")
    headers: HeaderMap | None = Field(
        None, description="absent if the transport is stdio"
    )
    end: Literal["open", "broken"] | None = Field(
        None,
        description="`open`: no end was seen, replay holds it open until the client leaves; "
        "`broken`: the upstream was lost, replay breaks off; absent: it ended",
    )


class ExchangeModel(_Model):
    """A request and what it got: of a task, a poll with a new state, an update, a cancellation."""

    request: RequestModel
    response: ResponseModel | None = Field(
        None, description="absent if none was received"
    )


class ResultTurnModel(_Model):
    """A result that asked, and its answer; an ask that the client abandoned has none."""

    via: Literal["result"] = Field(
        "result", description="the response to the call asked"
    )
    ask: ResponseModel
    answer: AnswerModel | None = None


class PushedEventModel(_Model):
    """A request that the server pushed, and where it stands."""

    key: str = Field(description="our name for it, such as `elicitation-1`")
    interaction: Number | None = Field(
        None, description="with it in its last response, if another"
    )
    event: Index = Field(
        description="index of the event with it in that response, from 0"
    )


class PushedAskModel(_Model):
    """What the server asked meanwhile; the requests were open at the same time."""

    events: list[PushedEventModel] = Field(min_length=1)


class PostedAnswerModel(ExchangeModel):
    """The response that the client posted to a pushed request, and what it got for it."""

    key: str


class PostedAnswersModel(_Model):
    """The answers to pushed requests, in the order in which they came."""

    responses: list[PostedAnswerModel] = Field(min_length=1)


class PushedTurnModel(_Model):
    """Requests that the server pushed, and the answers to them; absent where nobody answered."""

    via: Literal["push"] = Field(description="the server asked by requests of its own")
    ask: PushedAskModel
    answer: PostedAnswersModel | None = None


class TaskAskModel(_Model):
    """The state of the task that shows requests for input for the first time."""

    step: Index = Field(
        description="index of the step whose response has that state, from 0"
    )
    keys: list[str] = Field(
        min_length=1, description="its `inputRequests` that are new in it"
    )


class TaskAnswerModel(_Model):
    """The updates that answer them."""

    steps: list[int] = Field(min_length=1, description="indexes of steps, from 0")


class TaskTurnModel(_Model):
    """Requests for input of a task, and the answers to them; absent where nobody answered."""

    via: Literal["task"] = Field(description="a state of the call's task asked")
    ask: TaskAskModel
    answer: TaskAnswerModel | None = None


def _way_of_asking(turn: Any) -> str:
    """Return how a turn asks; older files only know the result."""
    if isinstance(turn, dict):
        via = turn.get("via", "result")
    else:
        via = getattr(turn, "via", "result")

    return via if isinstance(via, str) else ""


TurnModel = Annotated[
    Annotated[ResultTurnModel, Tag("result")]
    | Annotated[PushedTurnModel, Tag("push")]
    | Annotated[TaskTurnModel, Tag("task")],
    Discriminator(
        _way_of_asking,
        custom_error_type="via",
        custom_error_message="`via` should be 'result', 'push' or 'task'",
    ),
]


class BranchModel(_Model):
    """Where this interaction comes from: another one's ask, answered again in another way."""

    of: Number = Field(description="number of the other interaction, from 1")
    turn: Number = Field(description="number of the turn whose ask they share, from 1")


class InteractionModel(ExchangeModel):
    """One logical call: the request, its elicitation turns, the final response."""

    orphan: Literal[True] | None = Field(
        None, description="no recorded ask issued its state"
    )
    branch: BranchModel | None = None
    elicitation_turns: list[TurnModel]
    task: list[ExchangeModel] | None = Field(
        None, description="the steps of the task that it creates"
    )


class PieceFactsModel(_Model):
    """When one event, or one piece of another streamed body, arrived."""

    at_ms: int = Field(description="milliseconds since its request")
    after: int = Field(
        description="how many requests had arrived in the whole recording by then"
    )
    size: Index | None = Field(None, description="its bytes, if the body has no events")


class ExchangeFactsModel(_Model):
    """The volatile facts of one exchange."""

    number: Number = Field(description="place in arrival order, from 1")
    recorder: Number | None = Field(
        None, description="which of `recorders`; absent: the first one"
    )
    own_number: Number | None = Field(
        None, description="place in order at its recorder, if another"
    )
    interaction: Number = Field(
        description="the interaction that it belongs to, from 1"
    )
    turn: Index = Field(
        description="the turn that its request answers; 0: the first request"
    )
    answer: Index | None = Field(
        None, description="index of a posted answer of its turn, from 0"
    )
    step: Index | None = Field(None, description="index of a step of the task, from 0")
    polls: Number | None = Field(
        None, description="polls that got this state; absent: one"
    )
    started_ms: int = Field(description="milliseconds since the recording began")
    duration_ms: int
    ended_after: Index | None = Field(
        None, description="how many requests had come when it ended"
    )
    follows: list[int] | None = Field(
        None,
        description="writes recorded earlier that an appending run played since the last one",
    )
    request_state_sha256: Sha256 | None = Field(
        None,
        description="hash of the raw request state, or id of a task, that its response issued",
    )
    echoed_state_sha256: Sha256 | None = Field(
        None,
        description="hash of the raw request state, or id of a task, that its request carried",
    )
    sha256: Sha256 | None = Field(
        None, description="digest of request and response, checked"
    )
    pieces: list[PieceFactsModel] | None = None


class RedactionModel(_Model):
    """What was changed about redaction for this recording; the built-in rules always apply."""

    patterns: list[str] = Field(
        description="further regular expressions; group 1 is the secret"
    )
    keys: list[str] = Field(description="further member names whose values are secrets")
    disabled: list[str] = Field(
        description="rules or member names that were switched off"
    )
    shared: list[SharedKind] | None = Field(
        None, description="kinds of texts taken out to share the cassette"
    )

    def redaction_rules(self) -> RedactionRules:
        """Return the same as the rules that a redactor takes."""
        return RedactionRules(
            tuple(self.patterns),
            tuple(self.keys),
            tuple(self.disabled),
            tuple(self.shared or ()),
        )

    @model_validator(mode="after")
    def _can_be_meant(self) -> Self:
        """Make sure that a redactor takes the rules."""
        self.redaction_rules()
        return self


class RecorderModel(_Model):
    """One of the recorders that saw the exchanges."""

    id: str = Field(description="tells its exchanges from those of any other recorder")
    wall_ms: int = Field(
        description="its clock when it began: milliseconds since 1970, UTC"
    )
    offset_ms: int = Field(0, description="when it began, in the time of `started_ms`")


class RecordingModel(_Model):
    """What differs from one recording to the next."""

    recorded_at: str = Field(description="ISO 8601, UTC")
    tool: str
    client: Sha256 | None = Field(
        None, description="over stdio: hash of the process that started the recorder"
    )
    command: str | None = Field(
        None,
        description="starts the server, if the recorder did that, and not over stdio",
    )
    recorders: list[RecorderModel] | None = Field(
        None, description="whose exchanges these are"
    )
    exchanges: list[ExchangeFactsModel]
    sha256: Sha256 | None = Field(
        None, description="of earlier versions; it is not checked"
    )


class CassetteModel(_Model):
    """A recorded conversation between an MCP client and an MCP server."""

    schema_id: Literal["urn:mrtr-cassette:cassette:1"] = Field(
        SCHEMA_ID, validation_alias="$schema", serialization_alias="$schema"
    )
    version: Literal[1] = VERSION
    transport: Literal["stdio"] | None = Field(
        None, description="`stdio`: pipes; absent: HTTP"
    )
    upstream: str = Field(
        description="the server's URL, without credentials; or its command"
    )
    request_state: Literal["sealed", "verbatim"] = Field(
        description="`sealed`: raw states are replaced by surrogates; `verbatim`: kept"
    )
    redaction: RedactionModel | None = Field(
        None, description="the rules of its placeholders"
    )
    answers: Literal["sealed"] | None = Field(
        None, description="only hashes of answers are kept"
    )
    values: list[ValueName] | None = Field(
        None, description="names of values: `{NAME}` stands for a text that varies"
    )
    interactions: list[InteractionModel]
    recording: RecordingModel


# Here, and not at their first use, so that threads which load at once wait for it.
InteractionModel.model_rebuild()
CassetteModel.model_rebuild()
TaskTurnModel.model_rebuild()


def cassette_schema() -> bytes:
    """Return the JSON Schema of the cassette format."""
    tree = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        **CassetteModel.model_json_schema(by_alias=True),
    }

    text = orjson.dumps(tree, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    # The suffix tells models from what they describe; a schema has no such need.
    return text.replace(b'Model"', b'"')
