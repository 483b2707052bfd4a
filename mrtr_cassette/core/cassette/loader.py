"""Make a recording of the checked model of its file."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from sys import intern
from typing import Any

from mrtr_cassette.core.cassette.dump import exchange_sha256, task_turn_tree
from mrtr_cassette.core.cassette.model import (
    AnswerModel,
    CassetteModel,
    ExchangeFactsModel,
    ExchangeModel,
    HeaderMap,
    HttpModel,
    InteractionModel,
    PieceFactsModel,
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
    ExchangePlace,
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
from mrtr_cassette.core.protocol.jsonrpc import Kind, message_completed_by
from mrtr_cassette.core.wire.http import (
    NO_STATUS,
    End,
    Headers,
    Piece,
    Request,
    Response,
    line_request,
)
from mrtr_cassette.errors import CassetteError, damage_error
from mrtr_cassette.terms import shell_command


def place_of_facts(facts: ExchangeFactsModel) -> ExchangePlace:
    """Return the place of the exchange that the facts are about."""
    return ExchangePlace(facts.interaction, facts.turn, facts.answer, facts.step)


def cassette_of(
    file: CassetteModel,
    path: str,
    facts: Iterable[ExchangeFactsModel],
    interactions: Iterable[InteractionModel],
    branched_numbers: Container[int],
) -> Cassette:
    """Return the recording in a file, with these facts about its exchanges.

    Args:
        branched_numbers: the numbers of the interactions that others branch off from.

    Raises:
        CassetteError: turns or branches contradict each other, or an exchange is not as recorded.
    """
    loader = _Loader(file, path, facts, branched_numbers)
    redaction = None
    if file.redaction is not None:
        redaction = file.redaction.redaction_rules()

    return Cassette(
        path=path,
        upstream=file.upstream,
        request_state=file.request_state,
        redaction=redaction,
        seals_answers=file.answers is not None,
        values=tuple(file.values or ()),
        recorded_at=file.recording.recorded_at,
        tool=file.recording.tool,
        interactions=loader.loaded_interactions(interactions),
        transport=file.transport or "http",
        client=file.recording.client,
        command=file.recording.command,
        recorders=loader.recorders,
    )


class _Loader:
    def __init__(
        self,
        file: CassetteModel,
        path: str,
        facts: Iterable[ExchangeFactsModel],
        branched_numbers: Container[int],
    ) -> None:
        recorders = []
        for model in file.recording.recorders or ():
            recorders.append(RecorderFacts(model.id, model.wall_ms, model.offset_ms))

        self.recorders = tuple(recorders)
        self._path = path
        self._branched_numbers = branched_numbers
        self._kept_models: dict[int, InteractionModel] = {}
        """Those that others branch off from, or that have pushed turns, by number."""
        self._is_stdio = file.transport == "stdio"
        self._facts = {place_of_facts(exchange): exchange for exchange in facts}
        self._interactions_so_far: list[RecordedInteraction] = []

    def loaded_interactions(
        self, models: Iterable[InteractionModel]
    ) -> tuple[RecordedInteraction, ...]:
        """Return all interactions."""
        self._for_each_model(enumerate(models, start=1), self._add_interaction)
        # The response that has a pushed request may belong to a later interaction.
        self._for_each_model(self._kept_models.items(), self._add_pushed_turns)
        for facts in self._facts.values():
            if facts.sha256 is not None:
                raise self._changed_exchange_error(facts, "there is no such exchange")

        return tuple(self._interactions_so_far)

    def _for_each_model(
        self,
        numbered_models: Iterable[tuple[int, InteractionModel]],
        load_model: Callable[[int, InteractionModel], None],
    ) -> None:
        """Call a function for interactions; an error gets the pointer to its interaction."""
        for number, model in numbered_models:
            try:
                load_model(number, model)
            except ValueError as error:
                raise damage_error(
                    self._path, f"/interactions/{number - 1}", str(error)
                ) from None

    def _add_interaction(self, number: int, model: InteractionModel) -> None:
        """Load an interaction, as yet without its pushed turns."""
        branch: Branch | None = None
        shared_exchanges: tuple[RecordedExchange, ...] = ()
        if model.branch is not None:
            branch = Branch(model.branch.of, model.branch.turn)
            shared_exchanges = self._exchanges_shared_with_origin(number, model, branch)

        unshared_exchanges = self._call_exchanges(number, model, len(shared_exchanges))
        interaction = RecordedInteraction(
            number,
            (*shared_exchanges, *unshared_exchanges),
            branch,
            bool(model.orphan),
            steps=tuple(self._task_steps(number, model)),
        )
        self._interactions_so_far.append(interaction)
        is_needed_later = number in self._branched_numbers or _has_pushed_turns(model)
        if is_needed_later:
            self._kept_models[number] = model

    def _exchanges_shared_with_origin(
        self, number: int, model: InteractionModel, branch: Branch
    ) -> tuple[RecordedExchange, ...]:
        """Return the exchanges that a branch shares, which must be equal in the file."""
        turns = model.elicitation_turns[: branch.turn]
        is_answered = False
        if len(turns) == branch.turn:
            parting_turn = turns[-1]
            is_result = isinstance(parting_turn, ResultTurnModel)
            is_answered = is_result and parting_turn.answer is not None

        if branch.of >= number or not is_answered:
            raise ValueError(
                "it branches at no answered result of an earlier interaction"
            )

        origin_model = self._kept_models[branch.of]
        if _parts_up_to_ask(model, branch.turn) != _parts_up_to_ask(
            origin_model, branch.turn
        ):
            raise ValueError(
                f"up to the ask of turn {branch.turn} it is not the same as interaction "
                f"{branch.of}, of which it is a branch; edit both"
            )

        shared_count = sum(isinstance(turn, ResultTurnModel) for turn in turns)
        return self._interactions_so_far[branch.of - 1].exchanges[:shared_count]

    def _call_exchanges(
        self, number: int, model: InteractionModel, first_index: int
    ) -> Iterator[RecordedExchange]:
        """Yield the exchanges of a call from one on, each the answer to the ask before it."""
        exchange_models: list[
            tuple[ExchangePlace, RequestModel | AnswerModel, ResponseModel | None]
        ] = []
        place = ExchangePlace(number)
        request: RequestModel | AnswerModel | None = model.request
        for turn_number, turn in enumerate(model.elicitation_turns, start=1):
            if request is None:
                raise ValueError(f"turn {turn_number} follows a turn without `answer`")

            if isinstance(turn, ResultTurnModel):
                exchange_models.append((place, request, turn.ask))
                place = ExchangePlace(number, turn_number)
                request = turn.answer

        if request is not None:
            exchange_models.append((place, request, model.response))
        elif model.response is not None:
            raise ValueError("`response` follows a turn without `answer`")

        http = model.request.http
        for place, request_model, response_model in exchange_models[first_index:]:
            yield self._loaded_exchange(place, request_model, http, response_model)

    def _task_steps(self, number: int, model: InteractionModel) -> Sequence[TaskStep]:
        """Return the steps of a task, and make sure that the turns are those of the steps."""
        steps = []
        for index, step in enumerate(model.task or ()):
            place = ExchangePlace(number, step=index)
            facts = self._facts.get(place)
            poll_count = 1
            if facts is not None and facts.polls is not None:
                poll_count = facts.polls

            steps.append(
                TaskStep(self._exchange_of_answer_or_step(place, step), poll_count)
            )

        turns_in_file = []
        for turn in model.elicitation_turns:
            if isinstance(turn, TaskTurnModel):
                turns_in_file.append(turn.model_dump(exclude_none=True))

        if turns_in_file != [task_turn_tree(turn) for turn in task_turns(steps)]:
            raise ValueError("the turns of a task are not those of its steps")

        return steps

    def _add_pushed_turns(self, number: int, model: InteractionModel) -> None:
        """Add its pushed turns to a loaded interaction; a branch takes over shared turns."""
        interaction = self._interactions_so_far[number - 1]
        branch = interaction.branch
        turns: list[PushedTurn] = []
        position = 0
        for turn_number, turn in enumerate(model.elicitation_turns, start=1):
            if isinstance(turn, ResultTurnModel):
                position += 1

            if not isinstance(turn, PushedTurnModel):
                continue

            if branch is not None and turn_number < branch.turn:
                shared_turns = self._interactions_so_far[branch.of - 1].pushed_turns
                turns.append(shared_turns[len(turns)])
            else:
                place = ExchangePlace(number, turn_number)
                turns.append(self._loaded_pushed_turn(turn, place, position))

        interaction_with_turns = replace(interaction, pushed_turns=tuple(turns))
        self._interactions_so_far[number - 1] = interaction_with_turns

    def _loaded_pushed_turn(
        self, turn: PushedTurnModel, place: ExchangePlace, position: int
    ) -> PushedTurn:
        """Return a pushed turn; its keys must be unique, and include those of its answers."""
        answer_models = []
        if turn.answer is not None:
            answer_models = turn.answer.responses

        keys = [event.key for event in turn.ask.events]
        answered_keys = [answer_model.key for answer_model in answer_models]
        known_keys = set(answered_keys) & set(keys)
        are_asked_once = len(set(keys)) == len(keys)
        are_answered_once = len(known_keys) == len(answered_keys)
        if not are_asked_once or not are_answered_once:
            raise ValueError(
                f"keys of turn {place.turn} come twice, or in its answers only"
            )

        pending_exchange = self._interactions_so_far[place.interaction - 1].exchanges[
            position
        ]
        pushed_requests = [
            self._loaded_pushed_request(event, pending_exchange)
            for event in turn.ask.events
        ]
        answers = []
        for index, answer_model in enumerate(answer_models):
            exchange = self._exchange_of_answer_or_step(
                place._replace(answer=index), answer_model
            )
            answers.append(PostedAnswer(answer_model.key, exchange))

        return PushedTurn(position, tuple(pushed_requests), tuple(answers))

    def _loaded_pushed_request(
        self, event: PushedEventModel, pending_exchange: RecordedExchange
    ) -> PushedRequest:
        """Return a pushed request, in the response to the pending call or to an interaction's."""
        no_request_error = ValueError(f"{event.key} is not a request of the server")
        asking_exchange = pending_exchange
        if event.interaction is not None:
            if event.interaction > len(self._interactions_so_far):
                raise no_request_error

            asking_exchange = self._interactions_so_far[
                event.interaction - 1
            ].exchanges[-1]

        response = asking_exchange.response
        if response is None or event.event >= len(response.pieces):
            raise no_request_error

        message = message_completed_by(response, event.event)
        if message is None or message.kind is not Kind.REQUEST:
            raise no_request_error

        return PushedRequest(event.key, asking_exchange, event.event, event.interaction)

    def _exchange_of_answer_or_step(
        self, place: ExchangePlace, model: ExchangeModel
    ) -> RecordedExchange:
        """Return the exchange of a posted answer or of a step of a task."""
        return self._loaded_exchange(
            place, model.request, model.request.http, model.response
        )

    def _loaded_exchange(
        self,
        place: ExchangePlace,
        request_model: RequestModel | AnswerModel,
        http: HttpModel | None,
        response_model: ResponseModel | None,
    ) -> RecordedExchange:
        """Return an exchange with the facts about its place; its digest must be as recorded."""
        request = self._loaded_request(request_model, http)
        facts = self._facts.pop(place, None)
        response = None
        if response_model is not None:
            response = self._loaded_response(response_model, facts)

        if facts is None:
            return RecordedExchange(None, request, response, 0, 0)

        digest = exchange_sha256(request, response)
        if facts.sha256 not in (None, digest):
            reason = f"the sha256 of the exchange is {digest}, not {facts.sha256}"
            raise self._changed_exchange_error(facts, reason)

        return RecordedExchange(
            number=facts.number,
            request=request,
            response=response,
            started_ms=facts.started_ms,
            ended_ms=facts.started_ms + facts.duration_ms,
            issued_sha256=facts.request_state_sha256,
            echoed_sha256=facts.echoed_state_sha256,
            ended_after=facts.ended_after,
            recorded_by=self._recorded_by(facts),
            played_writes=tuple(facts.follows or ()),
        )

    def _recorded_by(self, facts: ExchangeFactsModel) -> RecordedBy | None:
        """Return the recorder that saw an exchange; None if the cassette doesn't list it."""
        recorder_number = facts.recorder or 1
        if recorder_number > len(self.recorders):
            return None

        recorder = self.recorders[recorder_number - 1]
        return RecordedBy(recorder.id, facts.own_number or facts.number)

    def _changed_exchange_error(
        self, facts: ExchangeFactsModel, reason: str
    ) -> CassetteError:
        """Return the error for an exchange that is not as it was recorded."""
        place_in_words = f"interaction {facts.interaction}"
        if facts.turn:
            place_in_words += f", turn {facts.turn}"

        command = shell_command("accept_edit", path=self._path)
        return CassetteError(
            self._path,
            f"{place_in_words}: {reason}",
            hint="restore the file, or if you edited it on purpose, accept the edit with: "
            f"{command}",
        )

    def _loaded_request(
        self, model: RequestModel | AnswerModel, http: HttpModel | None
    ) -> Request:
        """Return a request from the file; without headers of HTTP it is a line on pipes."""
        body = b"".join(model.raw_pieces)
        headers = None
        if isinstance(model, AnswerModel):
            headers = model.headers
        elif http is not None:
            headers = http.headers

        self._check_http_members(headers)
        if http is None or headers is None:
            return line_request(body, model.session or "")

        method = intern(http.method)
        target = intern(http.path)
        return Request(method, target, _headers_of_map(headers), body)

    def _loaded_response(
        self, model: ResponseModel, facts: ExchangeFactsModel | None
    ) -> Response:
        """Return a response from the file, with the times of its pieces if the facts have them."""
        self._check_http_members(model.status, model.headers)
        end = End.COMPLETE if model.end is None else End(model.end)
        status = NO_STATUS if model.status is None else model.status
        headers = _headers_of_map(model.headers or {})
        pieces = _pieces_with_known_times(model, facts)

        return Response(status, headers, tuple(pieces), end)

    def _check_http_members(self, *members: Any) -> None:
        """Make sure that the members of HTTP are there, or over pipes that none of them is."""
        for value in members:
            if self._is_stdio and value is not None:
                raise ValueError("it has members of HTTP, and the transport is stdio")
            if not self._is_stdio and value is None:
                raise ValueError(
                    "it has not all members of HTTP, and the transport is HTTP"
                )


def _has_pushed_turns(model: InteractionModel) -> bool:
    """Tell whether the server asked by requests of its own."""
    return any(isinstance(turn, PushedTurnModel) for turn in model.elicitation_turns)


def _parts_up_to_ask(model: InteractionModel, turn_number: int) -> list[Any]:
    """Return what branches have in common: everything before the answer of a turn."""
    turns = model.elicitation_turns[:turn_number]
    common_parts: list[Any] = [model.request, *turns[:-1]]
    if turns:
        common_parts.append(turns[-1].ask)

    return common_parts


def _pieces_with_known_times(
    model: ResponseModel, facts: ExchangeFactsModel | None
) -> list[Piece]:
    """Return the pieces of a response, with the times at which they came if these fit."""
    raw_pieces = model.raw_pieces
    if facts is None or not facts.pieces:
        return [Piece(raw, 0, 0) for raw in raw_pieces]

    if model.events is None and model.lines is None:
        raw_pieces = _pieces_cut_by_size(b"".join(raw_pieces), facts.pieces)

    if len(facts.pieces) != len(raw_pieces):
        return [Piece(raw, 0, 0) for raw in raw_pieces]

    pieces = []
    for raw, time in zip(raw_pieces, facts.pieces, strict=True):
        at_ms = facts.started_ms + time.at_ms
        pieces.append(Piece(raw, at_ms, time.after))

    return pieces


def _pieces_cut_by_size(body: bytes, facts: Iterable[PieceFactsModel]) -> list[bytes]:
    """Return the pieces of a body, or all of it if they don't have its size together."""
    raw_pieces = []
    start = 0
    for piece in facts:
        end = start + (piece.size or 0)
        raw_pieces.append(body[start:end])
        start = end

    return raw_pieces if start == len(body) else [body]


def _headers_of_map(tree: HeaderMap) -> Headers:
    """Return the headers of a map, in which a name that came more than once has a list."""
    headers = []
    for name, values in tree.items():
        if isinstance(values, str):
            headers.append((name, values))
        else:
            headers.extend((name, value) for value in values)

    return _interned_headers(tuple(headers))


@lru_cache(maxsize=1024)
def _interned_headers(headers: Headers) -> Headers:
    """Return the first of equal headers: nearly all requests of a client have the same."""
    return headers
