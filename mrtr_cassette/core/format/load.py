"""From the bytes of a cassette to what was recorded.

Rule: this is the one place where a file becomes a recording; what it returns is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from sys import intern
from typing import NamedTuple

from mrtr_cassette.core.exchange.recorded import (
    Branch,
    Cassette,
    PostedAnswer,
    PushedRequest,
    PushedTurn,
    RecordedBy,
    RecordedExchange,
    RecordedInteraction,
    RecorderFacts,
    Transport,
)
from mrtr_cassette.core.format.bodies import damaged, decode_body, headers_of
from mrtr_cassette.core.format.codec import decode_cassette
from mrtr_cassette.core.format.digest import changed, check_exchange, place_of
from mrtr_cassette.core.format.model import (
    AnswerModel,
    CassetteModel,
    ExchangeFactsModel,
    HttpModel,
    InteractionModel,
    PushedTurnModel,
    RequestModel,
    ResponseModel,
)
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.protocol.messages import completed_by
from mrtr_cassette.core.wire.http import NO_STATUS, End, Headers, Piece, Request, Response
from mrtr_cassette.core.wire.lines import line_request
from mrtr_cassette.errors import CassetteError


def load(data: bytes, path: str, *, progress: Callable[[int, int], None] | None = None) -> Cassette:
    """Read a cassette.

    Args:
        progress: called after each interaction with how many are done, and how many there are.

    Raises:
        CassetteError: no cassette, of another version, damaged, or edited without its digests.
    """
    file = decode_cassette(data, path)
    recorders = tuple(
        RecorderFacts(each.id, each.wall_ms, each.offset_ms)
        for each in file.recording.recorders or ()
    )
    loader = _Loader(path, file, [each.id for each in recorders])
    for number, interaction in enumerate(file.interactions, start=1):
        loader.add(number, interaction)
        if progress is not None:
            progress(number, len(file.interactions))
    return Cassette(
        path=path,
        upstream=file.upstream,
        request_state=file.request_state,
        redaction=None if file.redaction is None else file.redaction.rules(),
        seals_answers=file.answers is not None,
        recorded_at=file.recording.recorded_at,
        tool=file.recording.tool,
        interactions=loader.complete(),
        transport=loader.transport,
        client=file.recording.client,
        recorders=recorders,
    )


class _Step(NamedTuple):
    """One exchange as the file has it, and where its parts stand there.

    Attributes:
        turn: number of the turn that its request answers; 0 for the first request.
        http: what its method and target are; None over pipes.
    """

    turn: int
    http: HttpModel | None
    request: RequestModel | AnswerModel
    request_at: str
    response: ResponseModel | None
    response_at: str


def _steps(interaction: InteractionModel, pointer: str) -> Iterator[_Step]:
    """Yield all exchanges but the posted answers."""
    http = interaction.request.http
    request: RequestModel | AnswerModel = interaction.request
    request_at = f"{pointer}/request"
    answered = 0
    for number, turn in enumerate(interaction.elicitation_turns, start=1):
        if isinstance(turn, PushedTurnModel):
            continue
        turn_at = f"{pointer}/elicitation_turns/{number - 1}"
        yield _Step(answered, http, request, request_at, turn.ask, f"{turn_at}/ask")
        if turn.answer is None:
            return
        request, request_at, answered = turn.answer, f"{turn_at}/answer", number
    response_at = f"{pointer}/response"
    yield _Step(answered, http, request, request_at, interaction.response, response_at)


class _UnplacedTurn(NamedTuple):
    """A pushed turn whose events may stand in an interaction that is yet to be read."""

    position: int
    model: PushedTurnModel
    at: str
    answers: tuple[PostedAnswer, ...]


class _Loader:
    """Builds interactions one after the other.

    Of many exchanges most have the same headers and the same target: one of each is kept.
    """

    def __init__(self, path: str, file: CassetteModel, recorders: Sequence[str]) -> None:
        self._facts = {
            (facts.interaction, facts.turn, facts.answer): facts
            for facts in file.recording.exchanges
        }
        self._recorders = recorders
        self.transport: Transport = file.transport or "http"
        self._interactions: list[RecordedInteraction] = []
        self._unplaced: dict[int, list[_UnplacedTurn]] = {}
        self._path = path
        self._headers: dict[Headers, Headers] = {}

    def add(self, number: int, interaction: InteractionModel) -> None:
        """Add the next interaction, whose branch has been checked."""
        pointer = f"/interactions/{number - 1}"
        branch = None
        exchanges: list[RecordedExchange] = []
        if interaction.branch is not None:
            branch = Branch(interaction.branch.of, interaction.branch.turn)
            before = interaction.elicitation_turns[: branch.turn]
            shared = sum(turn.via == "result" for turn in before)
            exchanges += self._interactions[branch.of - 1].exchanges[:shared]
        shared = len(exchanges)
        for position, step in enumerate(_steps(interaction, pointer)):
            facts = None if position < shared else self._facts.pop((number, step.turn, None), None)
            exchange = self._exchange(step, facts)
            if position >= shared:
                exchanges.append(exchange)
            elif not _is_same(exchange, exchanges[position]):
                raise self._not_same(step.request_at, branch)
        self._interactions.append(
            RecordedInteraction(number, tuple(exchanges), branch, bool(interaction.orphan))
        )
        if interaction.elicitation_turns:
            turns = list(self._pushed_turns(number, interaction, pointer))
            if turns:
                self._unplaced[number] = turns

    def _not_same(self, pointer: str, branch: Branch | None) -> CassetteError:
        return CassetteError(
            self._path,
            f"at {pointer}: not the same as in interaction {branch and branch.of}, "
            "of which this one is a branch",
            hint="edit both, or restore the file",
        )

    def _pushed_turns(
        self, number: int, interaction: InteractionModel, pointer: str
    ) -> Iterator[_UnplacedTurn]:
        branch, position = interaction.branch, 0
        for turn_number, turn in enumerate(interaction.elicitation_turns, start=1):
            if not isinstance(turn, PushedTurnModel):
                position += 1
                continue
            at = f"{pointer}/elicitation_turns/{turn_number - 1}"
            is_own = branch is None or turn_number > branch.turn
            answers: list[PostedAnswer] = []
            for index, answer in enumerate(turn.answer.responses if turn.answer else ()):
                answer_at = f"{at}/answer/responses/{index}"
                step = _Step(
                    turn_number,
                    answer.request.http,
                    answer.request,
                    f"{answer_at}/request",
                    answer.response,
                    f"{answer_at}/response",
                )
                facts = None
                if is_own:
                    facts = self._facts.pop((number, turn_number, index), None)
                answers.append(PostedAnswer(answer.key, self._exchange(step, facts)))
            yield _UnplacedTurn(position, turn, at, tuple(answers))

    def complete(self) -> tuple[RecordedInteraction, ...]:
        """Return the interactions, when all of them have been added."""
        for facts in self._facts.values():
            if facts.sha256 is not None:
                raise changed(self._path, f"{place_of(facts)}: there is no such exchange")
        for number, turns in self._unplaced.items():
            interaction = self._interactions[number - 1]
            placed = tuple([self._placed(turn, interaction) for turn in turns])
            interaction = replace(interaction, pushed_turns=placed)
            if interaction.branch is not None:
                placed = self._with_shared(placed, turns, interaction)
                interaction = replace(interaction, pushed_turns=placed)
            self._interactions[number - 1] = interaction
        return tuple(self._interactions)

    def _placed(self, turn: _UnplacedTurn, interaction: RecordedInteraction) -> PushedTurn:
        """Return a pushed turn, its requests found in the streams in which they stand."""
        asked: list[PushedRequest] = []
        for index, event in enumerate(turn.model.ask.events):
            at = f"{turn.at}/ask/events/{index}"
            exchange = interaction.exchanges[turn.position]
            if event.interaction is not None:
                if event.interaction > len(self._interactions):
                    raise damaged(self._path, f"{at}/interaction", "there is no such interaction")
                exchange = self._interactions[event.interaction - 1].exchanges[-1]
            response = exchange.response
            if response is None or event.event >= len(response.pieces):
                raise damaged(self._path, f"{at}/event", "the response has no such event")
            message = completed_by(response, event.event)
            if message is None or message.kind is not Kind.REQUEST:
                raise damaged(self._path, f"{at}/event", "this event is no request of the server's")
            asked.append(PushedRequest(event.key, exchange, event.event, event.interaction))
        return PushedTurn(turn.position, tuple(asked), turn.answers)

    def _with_shared(
        self,
        placed: tuple[PushedTurn, ...],
        turns: Sequence[_UnplacedTurn],
        interaction: RecordedInteraction,
    ) -> tuple[PushedTurn, ...]:
        """Return the pushed turns of a branch, the shared ones those of the other interaction."""
        branch = interaction.branch
        others = self._interactions[branch.of - 1].pushed_turns if branch is not None else ()
        shared = [turn for turn in others if turn.position < interaction.shared]
        for turn, other, unplaced in zip(placed, shared, turns, strict=False):
            if not _is_same_turn(turn, other):
                raise self._not_same(unplaced.at, branch)
        return (*shared, *placed[len(shared) :])

    def _exchange(self, step: _Step, facts: ExchangeFactsModel | None) -> RecordedExchange:
        started_ms = 0 if facts is None else facts.started_ms
        request, response = self._request(step), self._response(step, facts)
        if facts is not None:
            check_exchange(facts, request, response, self._path)
        return RecordedExchange(
            number=None if facts is None else facts.number,
            request=request,
            response=response,
            started_ms=started_ms,
            ended_ms=started_ms if facts is None else started_ms + facts.duration_ms,
            issued_sha256=None if facts is None else facts.request_state_sha256,
            echoed_sha256=None if facts is None else facts.echoed_state_sha256,
            ended_after=None if facts is None else facts.ended_after,
            recorded_by=None if facts is None else self._recorded_by(facts),
        )

    def _recorded_by(self, facts: ExchangeFactsModel) -> RecordedBy | None:
        if not self._recorders:
            return None
        index = (facts.recorder or 1) - 1
        if index >= len(self._recorders):
            reason = f"exchange {facts.number} has recorder {index + 1} of {len(self._recorders)}"
            raise damaged(self._path, "/recording/exchanges", reason)
        return RecordedBy(self._recorders[index], facts.own_number or facts.number)

    def _request(self, step: _Step) -> Request:
        http, request = step.http, step.request
        body = b"".join(decode_body(request, self._path, step.request_at))
        if self.transport == "stdio":
            self._check_no_http(request, step.request_at)
            return line_request(body, request.session or "")
        answered = request.headers if isinstance(request, AnswerModel) else None
        if http is None or (answered is None and isinstance(request, AnswerModel)):
            raise self._missing(request, step.request_at)
        headers = http.headers if answered is None else answered
        return Request(
            intern(http.method), intern(http.path), self._same(headers_of(headers)), body
        )

    def _check_no_http(
        self, model: RequestModel | AnswerModel | ResponseModel, pointer: str
    ) -> None:
        for name in ("http", "status", "headers"):
            if getattr(model, name, None) is not None:
                reason = "the transport is stdio, which has no HTTP"
                raise damaged(self._path, f"{pointer}/{name}", reason)

    def _missing(
        self, model: RequestModel | AnswerModel | ResponseModel, pointer: str
    ) -> CassetteError:
        names = [name for name in ("http", "status", "headers") if name in type(model).model_fields]
        name = next(name for name in names if getattr(model, name) is None)
        return damaged(self._path, f"{pointer}/{name}", "field required")

    def _response(self, step: _Step, facts: ExchangeFactsModel | None) -> Response | None:
        response = step.response
        if response is None:
            return None
        raws: Sequence[bytes] = decode_body(response, self._path, step.response_at)
        pieces = None if facts is None else facts.pieces
        if pieces and response.events is None and response.lines is None:
            raws = _cut(b"".join(raws), [piece.size or 0 for piece in pieces])
        if facts is None or pieces is None or len(pieces) != len(raws):
            placed = [Piece(raw, 0, 0) for raw in raws]
        else:
            placed = [
                Piece(raw, facts.started_ms + piece.at_ms, piece.after)
                for raw, piece in zip(raws, pieces, strict=True)
            ]
        end = End.COMPLETE if response.end is None else End(response.end)
        if self.transport == "stdio":
            self._check_no_http(response, step.response_at)
            return Response(NO_STATUS, (), tuple(placed), end)
        if response.status is None or response.headers is None:
            raise self._missing(response, step.response_at)
        headers = self._same(headers_of(response.headers))
        return Response(response.status, headers, tuple(placed), end)

    def _same(self, headers: Headers) -> Headers:
        return self._headers.setdefault(headers, headers)


def _is_same(one: RecordedExchange, other: RecordedExchange) -> bool:
    old, new = one.response, other.response
    has_same = old is new if old is None or new is None else old.is_same_as(new)
    return has_same and one.request == other.request


def _is_same_turn(one: PushedTurn, other: PushedTurn) -> bool:
    """Tell whether a pushed turn is a copy; its events stand in exchanges that are compared too."""
    return (
        [(asked.key, asked.piece, asked.interaction) for asked in one.asked]
        == [(asked.key, asked.piece, asked.interaction) for asked in other.asked]
        and [answer.key for answer in one.answers] == [answer.key for answer in other.answers]
        and all(
            _is_same(answer.exchange, copy.exchange)
            for answer, copy in zip(one.answers, other.answers, strict=True)
        )
    )


def _cut(raw: bytes, sizes: Iterable[int]) -> Sequence[bytes]:
    """Cut a body into pieces of these sizes; a rest, as after editing, goes to the last."""
    at = 0
    pieces = []
    for size in sizes:
        pieces.append(raw[at : at + size])
        at += size
    if pieces:
        pieces[-1] += raw[at:]
    return pieces
