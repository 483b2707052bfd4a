"""Read a recording from the file of a cassette, and write the files of edited ones."""

from __future__ import annotations

import base64
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, pairwise
from sys import intern
from typing import Any, Final

import orjson
from pydantic import ValidationError

from mrtr_cassette.core.cassette.dump import dump, exchange_sha256, task_turn_tree
from mrtr_cassette.core.cassette.model import (
    VERSION,
    AnswerModel,
    BodyModel,
    CassetteModel,
    ExchangeFactsModel,
    ExchangeModel,
    HeaderMap,
    HttpModel,
    InteractionModel,
    PieceModel,
    PushedEventModel,
    PushedTurnModel,
    RequestModel,
    ResponseModel,
    ResultTurnModel,
    TaskTurnModel,
)
from mrtr_cassette.core.cassette.recorded import (
    Branch,
    Cassette,
    PostedAnswer,
    PushedRequest,
    PushedTurn,
    RecordedBy,
    RecordedExchange,
    RecordedInteraction,
    RecorderFacts,
    TaskStep,
    task_turns,
)
from mrtr_cassette.core.protocol.jsonrpc import Kind, completed_by, messages_in
from mrtr_cassette.core.wire.http import (
    NO_STATUS,
    End,
    Headers,
    Piece,
    Request,
    Response,
    line_request,
)
from mrtr_cassette.core.wire.pointers import escape_pointer
from mrtr_cassette.errors import CassetteError, printable, shorten

_MERGE_MARK: Final = re.compile(rb"^(?:<{7} |>{7} |={7}\r?$)", re.MULTILINE)
_FORMS: Final = ("body", "text", "base64", "events", "lines")
_WITHHELD: Final = re.compile("mrtr-withheld:[0-9]+:[0-9a-f]{64}")
"""Stands for a body of which an earlier version kept only the size and the SHA-256."""

_Place = tuple[int, int, int | None, int | None]
"""The place of an exchange: interaction, answered turn, index of a posted answer, or of a step."""


def damaged(path: str, pointer: str, reason: str) -> CassetteError:
    """Return the error for a place in a file, named by its JSON Pointer."""
    return CassetteError(
        path, printable(f"at {pointer}: {reason}"), hint="restore the file, or record it again"
    )


def load(data: bytes, path: str) -> Cassette:
    """Read a cassette.

    Raises:
        CassetteError: no cassette, of another version, damaged, or edited without its digests.
    """
    return _loaded(decode_cassette(data, path), path)


def decode_cassette(data: bytes, path: str) -> CassetteModel:
    """Read a file without checking its turns and branches.

    Raises:
        CassetteError: empty, no JSON, no cassette, of another version, or of a wrong type.
    """
    if not data or data.isspace():
        raise CassetteError(path, "the file is empty", hint="record it again")
    tree = _json(data, path)
    version = tree.get("version") if isinstance(tree, dict) else None
    if type(version) is not int or "interactions" not in tree:
        raise CassetteError(
            path,
            "JSON, but no mrtr-cassette file (no `version` and `interactions` at its top level)",
            hint="name a file that `mrtr-cassette record` wrote",
        )
    if version != VERSION:
        raise CassetteError(
            path,
            f"cassette version {version}, and this program reads version {VERSION}",
            hint="update mrtr-cassette" if version > VERSION else "record it again",
        )
    try:
        return CassetteModel.model_validate(tree)
    except ValidationError as error:
        raise _invalid(path, error) from None


def _json(data: bytes, path: str) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        reason = f"not JSON: {error}"
        hint = "the file is damaged or no cassette; restore it or record it again"
        mark = _MERGE_MARK.search(data)
        if mark is not None:
            line = data.count(b"\n", 0, mark.start()) + 1
            reason = f"line {line} is the mark of a merge conflict"
            hint = "take one side whole (git checkout --ours or --theirs), or record it again"
        elif data.startswith(b'{"journal":'):
            reason = "it is the journal of a recording, not a cassette"
            hint = "make the cassette of it with: mrtr-cassette recover CASSETTE, without .journal"
        raise CassetteError(path, reason, hint=hint) from None


def _invalid(path: str, error: ValidationError) -> CassetteError:
    first = error.errors(include_url=False)[0]
    loc = first["loc"]
    # The third step into a list of turns only names one of the models of a turn.
    steps = [step for at, step in enumerate(loc) if at < 2 or loc[at - 2] != "elicitation_turns"]
    pointer = "".join(f"/{escape_pointer(str(step))}" for step in steps)
    found = "" if first["type"] == "missing" else f", found {_shown(first['input'])}"
    return damaged(path, pointer, f"{first['msg'].lower()}{found}")


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "an array"
    return shorten(repr(value))


def _loaded(
    file: CassetteModel, path: str, facts: Sequence[ExchangeFactsModel] | None = None
) -> Cassette:
    loader = _Loader(file, path, file.recording.exchanges if facts is None else facts)
    return Cassette(
        path=path,
        upstream=file.upstream,
        request_state=file.request_state,
        redaction=None if file.redaction is None else file.redaction.rules(),
        seals_answers=file.answers is not None,
        recorded_at=file.recording.recorded_at,
        tool=file.recording.tool,
        interactions=loader.interactions(),
        transport=file.transport or "http",
        client=file.recording.client,
        recorders=loader.recorders,
    )


class _Loader:
    def __init__(self, file: CassetteModel, path: str, facts: Iterable[ExchangeFactsModel]) -> None:
        self.recorders = tuple(
            RecorderFacts(each.id, each.wall_ms, each.offset_ms)
            for each in file.recording.recorders or ()
        )
        self._models = file.interactions
        self._path = path
        self._damaged = partial(damaged, path)
        self._is_stdio = file.transport == "stdio"
        self._facts = {_place_of(each): each for each in facts}
        self._loaded: list[RecordedInteraction] = []

    def interactions(self) -> tuple[RecordedInteraction, ...]:
        """Return all interactions."""
        for number, model in enumerate(self._models, start=1):
            branch = None if model.branch is None else Branch(model.branch.of, model.branch.turn)
            shared = () if branch is None else self._shared(number, branch)
            exchanges = (*shared, *self._chain(number, model, len(shared)))
            steps = tuple(self._steps(number, model))
            orphan = bool(model.orphan)
            self._loaded.append(RecordedInteraction(number, exchanges, branch, orphan, steps=steps))
        # A pushed request may stand in a response of a later interaction.
        for index, interaction in enumerate(self._loaded):
            turns = tuple(self._pushed_turns(interaction))
            self._loaded[index] = replace(interaction, pushed_turns=turns)
        for facts in self._facts.values():
            if facts.sha256 is not None:
                raise self._changed(facts, "there is no such exchange")
        return tuple(self._loaded)

    def _shared(self, number: int, branch: Branch) -> tuple[RecordedExchange, ...]:
        """Return the exchanges that a branch shares, which its file has to tell alike."""
        pointer, turn = f"/interactions/{number - 1}", branch.turn
        model = self._models[number - 1]
        own = model.elicitation_turns[:turn]
        parting = own[-1] if len(own) == turn else None
        is_answered = isinstance(parting, ResultTurnModel) and parting.answer is not None
        if branch.of >= number or not is_answered:
            reason = "it names no earlier interaction, or no turn with a result that is answered"
            raise self._damaged(f"{pointer}/branch", reason)
        other = self._models[branch.of - 1]
        # They part with the answer.
        asked, same = (
            [each.request, *turns[:-1], *[turn.ask for turn in turns[-1:]]]
            for each, turns in ((model, own), (other, other.elicitation_turns[:turn]))
        )
        if asked != same:
            raise CassetteError(
                self._path,
                f"at {pointer}: up to the ask of turn {turn} it is not the same as interaction "
                f"{branch.of}, of which it is a branch",
                hint="edit both, or restore the file",
            )
        count = sum(isinstance(each, ResultTurnModel) for each in own)
        return self._loaded[branch.of - 1].exchanges[:count]

    def _chain(
        self, number: int, model: InteractionModel, begin: int
    ) -> Iterator[RecordedExchange]:
        """Yield the exchanges of a call from one on, each the answer to the ask before it."""
        pointer = f"/interactions/{number - 1}"
        parts: list[tuple[RequestModel | AnswerModel, int, str]]
        parts = [(model.request, 0, f"{pointer}/request")]
        responses: list[tuple[ResponseModel | None, str]] = []
        for index, turn in enumerate(model.elicitation_turns):
            at = f"{pointer}/elicitation_turns/{index}"
            if len(responses) == len(parts):
                raise self._damaged(at, "it follows a turn without `answer`")
            if isinstance(turn, ResultTurnModel):
                responses.append((turn.ask, f"{at}/ask"))
                if turn.answer is not None:
                    parts.append((turn.answer, index + 1, f"{at}/answer"))
        if len(responses) < len(parts):
            responses.append((model.response, f"{pointer}/response"))
        elif model.response is not None:
            raise self._damaged(f"{pointer}/response", "it follows a turn without `answer`")
        pairs = list(zip(parts, responses, strict=True))
        for (part, answered, part_at), (response, at) in pairs[begin:]:
            request = self._request(part, model.request.http, part_at)
            yield self._exchange((number, answered, None, None), request, response, at)

    def _steps(self, number: int, model: InteractionModel) -> Sequence[TaskStep]:
        """Return the steps of a task, and make sure that the turns are those of the steps."""
        steps = []
        for index, step in enumerate(model.task or ()):
            place = (number, 0, None, index)
            facts = self._facts.get(place)
            exchange = self._whole(place, step, f"/interactions/{number - 1}/task/{index}")
            steps.append(TaskStep(exchange, (facts and facts.polls) or 1))
        told = [each for each in model.elicitation_turns if isinstance(each, TaskTurnModel)]
        turns = [each.model_dump(exclude_none=True) for each in told]
        if turns != [task_turn_tree(turn) for turn in task_turns(steps)]:
            reason = "the turns of a task are not those of its steps"
            raise self._damaged(f"/interactions/{number - 1}/elicitation_turns", reason)
        return steps

    def _pushed_turns(self, interaction: RecordedInteraction) -> Iterator[PushedTurn]:
        number, branch, position = interaction.number, interaction.branch, 0
        shared = iter(() if branch is None else self._loaded[branch.of - 1].pushed_turns)
        for index, turn in enumerate(self._models[number - 1].elicitation_turns):
            if isinstance(turn, PushedTurnModel):
                is_shared = branch is not None and index < branch.turn
                place = (number, index + 1, position)
                yield next(shared) if is_shared else self._pushed_turn(turn, *place)
            position += isinstance(turn, ResultTurnModel)

    def _pushed_turn(
        self, turn: PushedTurnModel, number: int, turn_number: int, position: int
    ) -> PushedTurn:
        pending = self._loaded[number - 1].exchanges[position]
        pointer = f"/interactions/{number - 1}/elicitation_turns/{turn_number - 1}"
        responses = turn.answer.responses if turn.answer else []
        unanswered = [each.key for each in turn.ask.events]
        keys = [each.key for each in responses]
        if len({*unanswered}) < len(unanswered) or len({*keys, *unanswered}) > len(unanswered):
            reason = "a key comes twice, or an answer has none of the keys of the ask"
            raise self._damaged(pointer, reason)
        asked = [
            self._pushed_request(event, pending, f"{pointer}/ask/events/{index}")
            for index, event in enumerate(turn.ask.events)
        ]
        answers = []
        for index, each in enumerate(responses):
            at = f"{pointer}/answer/responses/{index}"
            exchange = self._whole((number, turn_number, index, None), each, at)
            answers.append(PostedAnswer(each.key, exchange))
        return PushedTurn(position, tuple(asked), tuple(answers))

    def _pushed_request(
        self, event: PushedEventModel, pending: RecordedExchange, pointer: str
    ) -> PushedRequest:
        holders, number = [pending], event.interaction
        if number is not None:
            holders = [each.exchanges[-1] for each in self._loaded[number - 1 : number]]
        response, message = holders[0].response if holders else None, None
        if response is not None and event.event < len(response.pieces):
            message = completed_by(response, event.event)
        if message is None or message.kind is not Kind.REQUEST:
            raise self._damaged(pointer, "no request of the server's stands there")
        return PushedRequest(event.key, holders[0], event.event, number)

    def _whole(self, place: _Place, model: ExchangeModel, pointer: str) -> RecordedExchange:
        request = self._request(model.request, model.request.http, f"{pointer}/request")
        return self._exchange(place, request, model.response, f"{pointer}/response")

    def _exchange(
        self, place: _Place, request: Request, model: ResponseModel | None, pointer: str
    ) -> RecordedExchange:
        facts = self._facts.pop(place, None)
        response = None if model is None else self._response(model, facts, pointer)
        if facts is None:
            return RecordedExchange(None, request, response, 0, 0)
        digest = exchange_sha256(request, response)
        if facts.sha256 not in (None, digest):
            reason = f"the sha256 of the exchange is {digest}, not {facts.sha256}"
            raise self._changed(facts, reason)
        recorder = self.recorders[(facts.recorder or 1) - 1 :][:1]
        own_number = facts.own_number or facts.number
        return RecordedExchange(
            number=facts.number,
            request=request,
            response=response,
            started_ms=facts.started_ms,
            ended_ms=facts.started_ms + facts.duration_ms,
            issued_sha256=facts.request_state_sha256,
            echoed_sha256=facts.echoed_state_sha256,
            ended_after=facts.ended_after,
            recorded_by=RecordedBy(recorder[0].id, own_number) if recorder else None,
            follows=tuple(facts.follows or ()),
        )

    def _changed(self, facts: ExchangeFactsModel, reason: str) -> CassetteError:
        """Return the error for an exchange that is not as it was recorded."""
        turn = f", turn {facts.turn}" if facts.turn else ""
        return CassetteError(
            self._path,
            f"interaction {facts.interaction}{turn}: {reason}",
            hint="restore the file, or if you edited it on purpose, accept the edit with: "
            f"mrtr-cassette check {self._path} --fix",
        )

    def _request(
        self, model: RequestModel | AnswerModel, http: HttpModel | None, pointer: str
    ) -> Request:
        body = b"".join(self._body(model, pointer))
        headers = None if http is None else http.headers
        if isinstance(model, AnswerModel):
            headers = model.headers
        self._check_http(pointer, headers)
        if http is None or headers is None:
            return line_request(body, model.session or "")
        return Request(intern(http.method), intern(http.path), _headers_of(headers), body)

    def _response(
        self, model: ResponseModel, facts: ExchangeFactsModel | None, pointer: str
    ) -> Response:
        self._check_http(pointer, model.status, model.headers)
        raws = self._body(model, pointer)
        times = (facts and facts.pieces) or []
        if times and model.events is None and model.lines is None:
            # What was edited to another length has no pieces.
            body, ends = b"".join(raws), [0, *accumulate(piece.size or 0 for piece in times)]
            fits = ends[-1] == len(body)
            raws = [body[a:b] for a, b in pairwise(ends)] if fits else [body]
        pieces = [Piece(raw, 0, 0) for raw in raws]
        if facts is not None and len(times) == len(raws):
            pieces = [
                Piece(raw, facts.started_ms + piece.at_ms, piece.after)
                for raw, piece in zip(raws, times, strict=True)
            ]
        end = End.COMPLETE if model.end is None else End(model.end)
        status = NO_STATUS if model.status is None else model.status
        return Response(status, _headers_of(model.headers or {}), tuple(pieces), end)

    def _check_http(self, pointer: str, *members: Any) -> None:
        """Make sure that members of HTTP are there, or over pipes that none of them is."""
        if any((value is None) != self._is_stdio for value in members):
            reason = "HTTP method, path, status or headers are missing"
            if self._is_stdio:
                reason = "the transport is stdio, which has no HTTP"
            raise self._damaged(pointer, reason)

    def _body(self, model: BodyModel, pointer: str) -> list[bytes]:
        """Return the bytes of a body, in one piece or those of its events or lines."""
        forms = [form for form in _FORMS if getattr(model, form) is not None]
        if len(forms) > 1:
            raise self._damaged(pointer, f"both `{forms[0]}` and `{forms[1]}`")
        if model.text is not None and _WITHHELD.fullmatch(model.text):
            raise CassetteError(
                self._path,
                f"at {pointer}: the body was withheld by --strict-redaction, so it can't be played",
                hint="record it again",
            )
        try:
            if model.body is not None:
                return [_compact(model.body)]
            if model.events is not None:
                return [_piece(each, end="") for each in model.events]
            if model.lines is not None:
                return [_piece(each, end="\n") for each in model.lines]
            raw = _opaque(model)
        # It is nested too deeply, or no base64.
        except (TypeError, ValueError) as error:
            raise self._damaged(pointer, str(error).lower()) from None
        return [raw] if raw else []


def _piece(piece: PieceModel, end: str) -> bytes:
    if piece.data is None:
        return _opaque(piece)
    before, after = piece.before or "", piece.after or end
    return before.encode() + _compact(piece.data) + after.encode()


def _compact(value: Any) -> bytes:
    # A copy, as what orjson returns holds on to the 4 KiB that it was written in.
    return bytes(memoryview(orjson.dumps(value)))


def _opaque(body: BodyModel | PieceModel) -> bytes:
    if body.base64 is not None:
        return base64.b64decode(body.base64, validate=True)
    return (body.text or "").encode()


def _headers_of(headers: HeaderMap) -> Headers:
    return tuple(
        [
            (name, value)
            for name, values in headers.items()
            for value in ([values] if isinstance(values, str) else values)
        ]
    )


# Edited cassettes


def accept_edit(data: bytes, path: str) -> tuple[bytes, int]:
    """Return a cassette with the digests of what stands in it, and how many exchanges changed.

    The facts of an exchange are found by its digest, or else by the place that it had.

    Raises:
        CassetteError: it can't be loaded for another reason than its digests.
    """
    file = decode_cassette(data, path)
    digests: dict[_Place, str] = {
        (each.number, *place): exchange_sha256(exchange.request, exchange.response)
        for each in _loaded(file, path, []).interactions
        for exchange, place in each.placed
    }
    recorded = {_place_of(each): each for each in file.recording.exchanges}
    same = {at for at, each in recorded.items() if digests.get(at, "") == each.sha256}
    kept = {at: recorded.pop(at) for at in same}
    by_digest = {each.sha256: at for at, each in recorded.items()}
    for at, digest in digests.items():
        if at not in kept and digest in by_digest:
            kept[at] = recorded.pop(by_digest.pop(digest))
    moved = {at[0]: each.interaction for at, each in kept.items()}
    for at in digests:
        was_at = (moved.get(at[0], at[0]), *at[1:])
        if at not in kept and was_at in recorded:
            kept[at] = recorded.pop(was_at)
    members = ("interaction", "turn", "answer", "step")
    accepted = [
        each.model_copy(update=dict(zip(members, at, strict=True), sha256=digests[at]))
        for at, each in kept.items()
    ]
    return dump(_loaded(file, path, accepted)), len(file.recording.exchanges) - len(same)


def _place_of(facts: ExchangeFactsModel) -> _Place:
    return facts.interaction, facts.turn, facts.answer, facts.step


def with_responses(
    cassette: Cassette,
    responses: Mapping[RecordedExchange, Response],
    requests: Mapping[RecordedExchange, Request],
) -> bytes:
    """Return the file of a cassette in which other responses stand, and other requests.

    Where the new response ends a conversation in which the recorded one asks, the turns from that
    ask on go.

    Raises:
        CassetteError: no cassette can have such a response.
    """
    new = {
        exchange: replace(exchange, response=in_time_of(exchange, response))
        for exchange, response in responses.items()
    }
    for exchange, request in requests.items():
        new[exchange] = replace(new.get(exchange, exchange), request=request)
    cut = [_without_turns_after_the_end(each, new) for each in cassette.interactions]
    data = dump(replace(cassette, interactions=tuple(cut)).with_exchanges(new))
    load(data, cassette.path)
    return data


def in_time_of(exchange: RecordedExchange, response: Response) -> Response:
    """Return a response whose messages came when those of the exchange's response did."""
    pieces, old = response.pieces, () if exchange.response is None else exchange.response.pieces
    if not response.is_framed and len(pieces) != len(old):
        return replace(response, pieces=(Piece(response.body, 0, 0),))
    end = Piece(b"", exchange.ended_ms, exchange.ended_after or exchange.number or 0)
    times = [piece for piece in old if piece.after] or [end]
    if exchange.response is not None and len(times) == len(old) != len(pieces):
        # What stands between two messages, such as a comment, came with the later one.
        came = [times[located.piece] for located in messages_in(exchange.response)] + times[-1:]
        ends = [located.piece for located in messages_in(response)]
        places = [bisect_left(ends, at) for at in range(len(pieces))]
        times = [came[min(place, len(came) - 1)] for place in places]
    times += times[-1:] * len(pieces)
    timed = [time._replace(raw=piece.raw) for piece, time in zip(pieces, times, strict=False)]
    return replace(response, pieces=tuple(timed))


def _without_turns_after_the_end(
    interaction: RecordedInteraction, new: Mapping[RecordedExchange, RecordedExchange]
) -> RecordedInteraction:
    """Return an interaction up to the first response that asks no more."""
    for position, exchange in enumerate(interaction.exchanges):
        if exchange in new and exchange.ask is not None and new[exchange].ask is None:
            turns = [turn for turn in interaction.pushed_turns if turn.position <= position]
            exchanges = interaction.exchanges[: position + 1]
            return replace(interaction, exchanges=exchanges, pushed_turns=tuple(turns))
    return interaction
