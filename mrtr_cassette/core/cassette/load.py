"""Read a recording from the file of a cassette, and write the files of edited ones."""

from __future__ import annotations

import base64
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from sys import intern
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import orjson
from pydantic import ValidationError

from mrtr_cassette.core.cassette.dump import compact, dump, exchange_sha256
from mrtr_cassette.core.cassette.model import (
    VERSION,
    AnswerModel,
    BodyModel,
    CassetteModel,
    EventModel,
    ExchangeFactsModel,
    HeaderMap,
    HttpModel,
    InteractionModel,
    LineModel,
    PushedEventModel,
    PushedTurnModel,
    RequestModel,
    ResponseModel,
    ResultTurnModel,
    TaskAnswerModel,
    TaskAskModel,
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
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.protocol.messages import completed_by, messages_in
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
    first, *others = error.errors(include_url=False)
    loc = first["loc"]
    # The third step into a list of turns only names one of the two models of a turn.
    steps = [step for at, step in enumerate(loc) if at < 2 or loc[at - 2] != "elicitation_turns"]
    pointer = "".join(f"/{escape_pointer(str(step))}" for step in steps)
    if first["type"] != "missing":
        return damaged(path, pointer, f"{first['msg'].lower()}, found {_shown(first['input'])}")
    strays = [
        f"`{other['loc'][-1]}`"
        for other in others
        if other["type"] == "extra_forbidden" and other["loc"][:-1] == loc[:-1]
    ]
    shown = f"; without a meaning there: {', '.join(strays)}" if strays else ""
    return damaged(path, pointer, f"{first['msg'].lower()}{shown}")


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "an array"
    return shorten(repr(value))


def _loaded(file: CassetteModel, path: str) -> Cassette:
    loader = _Loader(file, path)
    for number, interaction in enumerate(file.interactions, start=1):
        loader.add(number, interaction)
    return Cassette(
        path=path,
        upstream=file.upstream,
        request_state=file.request_state,
        redaction=None if file.redaction is None else file.redaction.rules(),
        seals_answers=file.answers is not None,
        recorded_at=file.recording.recorded_at,
        tool=file.recording.tool,
        interactions=loader.complete(),
        transport=file.transport or "http",
        client=file.recording.client,
        recorders=loader.recorders,
    )


class _Loader:
    def __init__(self, file: CassetteModel, path: str) -> None:
        self.recorders = tuple(
            RecorderFacts(each.id, each.wall_ms, each.offset_ms)
            for each in file.recording.recorders or ()
        )
        self._models = file.interactions
        self._path = path
        self._damaged = partial(damaged, path)
        self._is_stdio = file.transport == "stdio"
        self._facts = {_place_of(each): each for each in file.recording.exchanges}
        self._interactions: list[RecordedInteraction] = []

    def add(self, number: int, model: InteractionModel) -> None:
        """Add the next interaction; the requests that were pushed in it are placed at the end."""
        pointer = f"/interactions/{number - 1}"
        branch = None
        exchanges: list[RecordedExchange] = []
        pushed: list[PushedTurn] = []
        part: RequestModel | AnswerModel = model.request
        part_at, answered = f"{pointer}/request", 0
        if model.branch is not None:
            branch = Branch(model.branch.of, model.branch.turn)
            part = self._answer_of(number, branch)
            part_at = f"{pointer}/elicitation_turns/{branch.turn - 1}/answer"
            answered, other = branch.turn, self._interactions[branch.of - 1]
            vias = [turn.via for turn in model.elicitation_turns[: branch.turn]]
            exchanges += other.exchanges[: vias.count("result")]
            pushed += [turn for turn in other.pushed_turns if turn.position < len(exchanges)]
        turns = [each for each in model.elicitation_turns if not isinstance(each, TaskTurnModel)]
        for index, turn in enumerate(turns[answered:], start=answered):
            at = f"{pointer}/elicitation_turns/{index}"
            if isinstance(turn, PushedTurnModel):
                answers = tuple(self._posted_answers(number, index + 1, turn, at))
                pushed.append(PushedTurn(len(exchanges), (), answers))
                continue
            request = self._request(part, model.request.http, part_at)
            place = (number, answered, None, None)
            exchanges.append(self._exchange(place, request, turn.ask, f"{at}/ask"))
            if turn.answer is None:
                if index + 1 < len(turns):
                    raise self._damaged(at, "no `answer`, and another turn follows")
                if model.response is not None:
                    reason = "a response after a turn without `answer`"
                    raise self._damaged(f"{pointer}/response", reason)
                break
            part, part_at, answered = turn.answer, f"{at}/answer", index + 1
        else:
            request = self._request(part, model.request.http, part_at)
            place, at = (number, answered, None, None), f"{pointer}/response"
            exchanges.append(self._exchange(place, request, model.response, at))
        self._interactions.append(
            RecordedInteraction(
                number,
                tuple(exchanges),
                branch,
                bool(model.orphan),
                tuple(pushed),
                tuple(self._steps(number, model, pointer)),
            )
        )

    def _steps(self, number: int, model: InteractionModel, pointer: str) -> Sequence[TaskStep]:
        """Return the steps of a task, and make sure that the turns are those of the steps."""
        steps = []
        for index, step in enumerate(model.task or ()):
            at, place = f"{pointer}/task/{index}", (number, 0, None, index)
            facts = self._facts.get(place)
            request = self._request(step.request, step.request.http, f"{at}/request")
            exchange = self._exchange(place, request, step.response, f"{at}/response")
            steps.append(TaskStep(exchange, (facts and facts.polls) or 1))
        turns = [
            TaskTurnModel(
                via="task",
                ask=TaskAskModel(step=turn.asked, keys=list(turn.requests)),
                answer=TaskAnswerModel(steps=list(turn.answered)) if turn.answered else None,
            )
            for turn in task_turns(steps)
        ]
        others = [it for it in model.elicitation_turns if not isinstance(it, TaskTurnModel)]
        if model.elicitation_turns != [*others, *turns]:
            reason = "the turns of a task are not those of its steps, or another turn follows them"
            raise self._damaged(f"{pointer}/elicitation_turns", reason)
        return steps

    def _answer_of(self, number: int, branch: Branch) -> AnswerModel:
        """Return the first answer of a branch, which begins as an earlier interaction does."""
        pointer = f"/interactions/{number - 1}"
        if branch.of >= number:
            reason = f"{branch.of} is no earlier interaction"
            raise self._damaged(f"{pointer}/branch/of", reason)
        model, other = (self._models[each - 1] for each in (number, branch.of))
        own, others = (each.elicitation_turns[: branch.turn] for each in (model, other))
        pairs = list(zip(own, others, strict=False))
        last, its = pairs[-1] if len(pairs) == branch.turn else (None, None)
        if not (isinstance(last, ResultTurnModel) and isinstance(its, ResultTurnModel)):
            reason = f"interactions {branch.of} and {number} have no such turn in common that asks"
            raise self._damaged(f"{pointer}/branch/turn", f"{reason} by a result")
        if last.answer is None:
            reason = "the branch has no answer of its own there"
            raise self._damaged(f"{pointer}/branch/turn", reason)
        for index, (one, two) in enumerate([*pairs[:-1], (last.ask, its.ask)]):
            if one != two:
                raise self._not_same(f"{pointer}/elicitation_turns/{index}", branch)
        if model.request != other.request:
            raise self._not_same(f"{pointer}/request", branch)
        return last.answer

    def _not_same(self, pointer: str, branch: Branch) -> CassetteError:
        return CassetteError(
            self._path,
            f"at {pointer}: not the same as in interaction {branch.of}, "
            "of which this one is a branch",
            hint="edit both, or restore the file",
        )

    def _posted_answers(
        self, number: int, turn_number: int, turn: PushedTurnModel, pointer: str
    ) -> Iterator[PostedAnswer]:
        unanswered: set[str] = set()
        for index, event in enumerate(turn.ask.events):
            if event.key in unanswered:
                at = f"{pointer}/ask/events/{index}/key"
                raise self._damaged(at, "the same as another one")
            unanswered.add(event.key)
        for index, answer in enumerate(turn.answer.responses if turn.answer else ()):
            at = f"{pointer}/answer/responses/{index}"
            if answer.key not in unanswered:
                reason = "it names no event of the ask, or one that has an answer"
                raise self._damaged(f"{at}/key", reason)
            unanswered.remove(answer.key)
            request = self._request(answer.request, answer.request.http, f"{at}/request")
            place = (number, turn_number, index, None)
            exchange = self._exchange(place, request, answer.response, f"{at}/response")
            yield PostedAnswer(answer.key, exchange)

    def complete(self) -> tuple[RecordedInteraction, ...]:
        """Return the interactions, when all of them have been added."""
        for facts in self._facts.values():
            if facts.sha256 is not None:
                raise self._changed(facts, "there is no such exchange")
        for index, interaction in enumerate(self._interactions):
            if interaction.pushed_turns:
                turns = tuple(self._placed_turns(interaction))
                self._interactions[index] = replace(interaction, pushed_turns=turns)
        return tuple(self._interactions)

    def _placed_turns(self, interaction: RecordedInteraction) -> Iterator[PushedTurn]:
        """Yield the pushed turns of an interaction with the requests in them, shared ones first."""
        branch, shared = interaction.branch, interaction.shared
        others = () if branch is None else self._interactions[branch.of - 1].pushed_turns
        yield from (turn for turn in others if turn.position < shared)
        models = self._models[interaction.number - 1].elicitation_turns
        for turn, number in zip(interaction.pushed_turns, interaction.pushed_numbers, strict=True):
            model = models[number - 1]
            if turn.position >= shared and isinstance(model, PushedTurnModel):
                at = f"/interactions/{interaction.number - 1}/elicitation_turns/{number - 1}"
                pending = interaction.exchanges[turn.position]
                asked = [
                    self._pushed_request(event, pending, f"{at}/ask/events/{index}")
                    for index, event in enumerate(model.ask.events)
                ]
                yield replace(turn, asked=tuple(asked))

    def _pushed_request(
        self, event: PushedEventModel, pending: RecordedExchange, pointer: str
    ) -> PushedRequest:
        exchange = pending
        if event.interaction is not None:
            if event.interaction > len(self._interactions):
                raise self._damaged(f"{pointer}/interaction", "there is no such interaction")
            exchange = self._interactions[event.interaction - 1].exchanges[-1]
        response = exchange.response
        if response is None or event.event >= len(response.pieces):
            raise self._damaged(f"{pointer}/event", "the response has no such event")
        message = completed_by(response, event.event)
        if message is None or message.kind is not Kind.REQUEST:
            raise self._damaged(f"{pointer}/event", "this event is no request of the server's")
        return PushedRequest(event.key, exchange, event.event, event.interaction)

    def _exchange(
        self, place: _Place, request: Request, model: ResponseModel | None, pointer: str
    ) -> RecordedExchange:
        facts = self._facts.pop(place, None)
        response = None if model is None else self._response(model, facts, pointer)
        if facts is None:
            return RecordedExchange(None, request, response, 0, 0, None, None)
        digest = exchange_sha256(request, response)
        if facts.sha256 not in (None, digest):
            reason = f"the sha256 of the exchange is {digest}, not {facts.sha256}"
            raise self._changed(facts, reason)
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
            follows=tuple(facts.follows or ()),
        )

    def _changed(self, facts: ExchangeFactsModel, reason: str) -> CassetteError:
        """Return the error for an exchange that is not as it was recorded."""
        place = f"interaction {facts.interaction}"
        if facts.turn:
            place += f", turn {facts.turn}"
        if facts.step is not None:
            place += f", step {facts.step + 1} of the task"
        if facts.answer is not None:
            place += f", answer {facts.answer + 1}"
        return CassetteError(
            self._path,
            f"{place}: {reason}",
            hint="restore the file, or if you edited it on purpose, accept the edit with: "
            f"mrtr-cassette check {self._path} --fix",
        )

    def _recorded_by(self, facts: ExchangeFactsModel) -> RecordedBy | None:
        if not self.recorders:
            return None
        number = facts.recorder or 1
        if number > len(self.recorders):
            reason = f"exchange {facts.number} has recorder {number} of {len(self.recorders)}"
            raise self._damaged("/recording/exchanges", reason)
        return RecordedBy(self.recorders[number - 1].id, facts.own_number or facts.number)

    def _request(
        self, model: RequestModel | AnswerModel, http: HttpModel | None, pointer: str
    ) -> Request:
        body = b"".join(decode_body(model, self._path, pointer))
        headers = None if http is None else http.headers
        if isinstance(model, AnswerModel):
            headers = model.headers
        name = "http" if isinstance(model, RequestModel) else "headers"
        self._check_http({name: headers}, pointer)
        if http is None or headers is None:
            return line_request(body, model.session or "")
        return Request(intern(http.method), intern(http.path), _headers_of(headers), body)

    def _response(
        self, model: ResponseModel, facts: ExchangeFactsModel | None, pointer: str
    ) -> Response:
        self._check_http({"status": model.status, "headers": model.headers}, pointer)
        raws: Sequence[bytes] = decode_body(model, self._path, pointer)
        times = (facts and facts.pieces) or ()
        if times and model.events is None and model.lines is None:
            raws = _cut(b"".join(raws), [piece.size or 0 for piece in times])
        if facts is None or len(times) != len(raws):
            pieces = [Piece(raw, 0, 0) for raw in raws]
        else:
            pieces = [
                Piece(raw, facts.started_ms + piece.at_ms, piece.after)
                for raw, piece in zip(raws, times, strict=True)
            ]
        end = End.COMPLETE if model.end is None else End(model.end)
        status = NO_STATUS if model.status is None else model.status
        return Response(status, _headers_of(model.headers or {}), tuple(pieces), end)

    def _check_http(self, members: Mapping[str, Any], pointer: str) -> None:
        """Make sure that members of HTTP are there, or over pipes that none of them is."""
        for name, value in members.items():
            if (value is None) != self._is_stdio:
                reason = "field required"
                if self._is_stdio:
                    reason = "the transport is stdio, which has no HTTP"
                raise self._damaged(f"{pointer}/{name}", reason)


def _cut(raw: bytes, sizes: Iterable[int]) -> Sequence[bytes]:
    """Cut a body into pieces of these sizes; a rest, as after editing, goes to the last."""
    at = 0
    pieces = []
    for size in sizes:
        pieces.append(raw[at : at + size])
        at += size
    pieces[-1] += raw[at:]
    return pieces


def decode_body(body: BodyModel, path: str, pointer: str) -> tuple[bytes, ...]:
    """Return the bytes of a body; of an event stream or a pipe, event by event or line by line.

    Raises:
        CassetteError: two forms at once, or no base64; it names the place, `pointer`.
    """
    forms = [form for form in _FORMS if getattr(body, form) is not None]
    if len(forms) > 1:
        raise damaged(path, pointer, f"both `{forms[0]}` and `{forms[1]}`")
    pieces: Sequence[EventModel | LineModel] = body.events or body.lines or ()
    if pieces:
        at = f"{pointer}/{forms[0]}"
        return tuple([_decode_piece(each, path, f"{at}/{n}") for n, each in enumerate(pieces)])
    if body.body is not None:
        return (_json_bytes(body.body, path, pointer),)
    raw = _decode_opaque(body, path, pointer)
    return (raw,) if raw else ()


def _decode_piece(piece: EventModel | LineModel, path: str, pointer: str) -> bytes:
    if piece.data is None:
        return _decode_opaque(piece, path, pointer)
    data = _json_bytes(piece.data, path, pointer)
    if isinstance(piece, LineModel):
        return data + b"\n"
    return (piece.before or "").encode() + data + (piece.after or "").encode()


def _json_bytes(value: Any, path: str, pointer: str) -> bytes:
    try:
        return compact(value)
    except TypeError as error:
        raise damaged(path, pointer, str(error).lower()) from None


def _decode_opaque(body: BodyModel | EventModel | LineModel, path: str, pointer: str) -> bytes:
    if body.text is not None and _WITHHELD.fullmatch(body.text):
        raise CassetteError(
            path,
            f"at {pointer}: the body was withheld by --strict-redaction, so it can't be played",
            hint="record it again",
        )
    if body.base64 is not None:
        try:
            return base64.b64decode(body.base64, validate=True)
        except ValueError as error:
            raise damaged(path, f"{pointer}/base64", str(error).lower()) from None
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


class AcceptedEdit(NamedTuple):
    """The file of an edited cassette, and how many exchanges were edited, moved and removed."""

    data: bytes
    edited: int
    moved: int
    removed: int


def accept_edit(data: bytes, path: str) -> AcceptedEdit:
    """Return a cassette with the digests of what stands in it.

    Raises:
        CassetteError: it can't be loaded for another reason than its digests.
    """
    file = decode_cassette(data, path)
    facts = file.recording.exchanges
    digests: dict[_Place, str | None] = {
        (each.number, *place): exchange_sha256(exchange.request, exchange.response)
        for each in _loaded(_with_facts(file, []), path).interactions
        for exchange, place in each.placed
    }
    kept = [(facts[index], place) for index, place in sorted(_new_places(facts, digests).items())]
    accepted = [
        each.model_copy(
            update={
                "interaction": place[0],
                "turn": place[1],
                "answer": place[2],
                "step": place[3],
                "sha256": digests[place],
            }
        )
        for each, place in kept
    ]
    return AcceptedEdit(
        dump(_loaded(_with_facts(file, accepted), path)),
        edited=sum(each.sha256 != digests[place] for each, place in kept),
        moved=sum(_place_of(each) != place for each, place in kept),
        removed=len(facts) - len(kept),
    )


def _with_facts(file: CassetteModel, facts: Sequence[ExchangeFactsModel]) -> CassetteModel:
    recording = file.recording.model_copy(update={"exchanges": facts})
    return file.model_copy(update={"recording": recording})


def _place_of(facts: ExchangeFactsModel) -> _Place:
    return facts.interaction, facts.turn, facts.answer, facts.step


def _new_places(
    facts: Sequence[ExchangeFactsModel], digests: Mapping[_Place, str | None]
) -> dict[int, _Place]:
    """Return the present place of each exchange, by its index; removed ones have none.

    An exchange with its digest in its old place has not moved. Otherwise its place is that of an
    exchange with its digest, or else that of an edited one that moved with those before it.
    """
    free, places = dict(digests), {}
    for index, each in enumerate(facts):
        if free.get(_place_of(each), "") == each.sha256:
            places[index] = _place_of(each)
            del free[_place_of(each)]
    by_digest: dict[str | None, list[_Place]] = {}
    for place, digest in reversed(free.items()):
        by_digest.setdefault(digest, []).append(place)
    for index, each in enumerate(facts):
        if index not in places and by_digest.get(each.sha256):
            places[index] = by_digest[each.sha256].pop()
            del free[places[index]]
    moved = {facts[index].interaction: place[0] for index, place in places.items()}
    shift = 0
    for index, each in sorted(enumerate(facts), key=lambda item: item[1].interaction):
        shift = moved.get(each.interaction, each.interaction + shift) - each.interaction
        place = (each.interaction + shift, each.turn, each.answer, each.step)
        if index not in places and place in free:
            places[index] = place
            del free[place]
    return places


def with_responses(
    cassette: Cassette,
    responses: Mapping[RecordedExchange, Response],
    requests: Mapping[RecordedExchange, Request] = MappingProxyType({}),
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
