"""Read a recording from the file of a cassette, and write the files of edited ones."""

from __future__ import annotations

import codecs
import re
import shlex
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from sys import intern
from typing import Any, Final

import orjson
from pydantic import ValidationError

from mrtr_cassette.core.cassette.dump import dump, exchange_sha256, task_turn_tree
from mrtr_cassette.core.cassette.model import (
    VERSION,
    AnswerModel,
    CassetteModel,
    ExchangeFactsModel,
    HeaderMap,
    HttpModel,
    InteractionModel,
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
from mrtr_cassette.terms import shell_words

LFS_POINTER: Final = b"version https://git-lfs"
"""What begins a file that Git LFS has not fetched."""
_MERGE_MARK: Final = re.compile(rb"^(?:<{7} |>{7} |={7}\r?$)", re.MULTILINE)

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
        CassetteError: no JSON, no cassette, of another version, or of a wrong type.
    """
    try:
        tree = orjson.loads(data.removeprefix(codecs.BOM_UTF8))
    except orjson.JSONDecodeError as error:
        raise _not_json(data, path, error) from None
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
        first = error.errors(include_url=False)[0]
        pointer = "".join(f"/{escape_pointer(str(step))}" for step in first["loc"])
        found = "" if first["type"] == "missing" else f", found {shorten(repr(first['input']))}"
        raise damaged(path, pointer, f"{first['msg'].lower()}{found}") from None


def is_foreign(data: bytes) -> bool:
    """Tell whether a file is JSON that was never meant to be a cassette."""
    try:
        tree = orjson.loads(data.removeprefix(codecs.BOM_UTF8))
    except orjson.JSONDecodeError:
        return False
    if not isinstance(tree, dict):
        return True
    is_named = str(tree.get("$schema")).startswith(_SCHEMAS)
    return not is_named and not tree.keys() >= _ALWAYS_THERE


_SCHEMAS: Final = "urn:mrtr-cassette:"
_ALWAYS_THERE: Final = frozenset({"upstream", "recording"})
"""Members of a cassette that other files with interactions don't have, VCR's for one."""


def _not_json(data: bytes, path: str, error: orjson.JSONDecodeError) -> CassetteError:
    if not data.strip():
        return CassetteError(
            path, "not JSON: the file is empty", hint="restore it or record it again"
        )
    if data.startswith(LFS_POINTER):
        return lfs_pointer_error(path)
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return CassetteError(
            path,
            "not JSON: the file is in UTF-16, and a cassette is UTF-8",
            hint="save it as UTF-8",
        )
    mark = _MERGE_MARK.search(data)
    if mark is not None:
        line = data.count(b"\n", 0, mark.start()) + 1
        name = path.rpartition("/")[2]
        ours = f"git show {shlex.quote(f':2:./{name}')} > ours.json"
        theirs = f"git show {shlex.quote(f':3:./{name}')} > theirs.json"
        merge = "mrtr-cassette merge ours.json theirs.json -o both.json"
        move = f"mv both.json {shlex.quote(name)}"
        commands = f"{ours} && {theirs} && {merge} && {move}"
        return CassetteError(
            path,
            f"line {line} is the mark of a merge conflict",
            hint=f"both sides are merged by: {commands}; or take one side whole (git checkout "
            "--ours or --theirs), or record it again",
        )
    return CassetteError(
        path,
        f"not JSON: {error}",
        hint="the file is damaged or no cassette; restore it or record it again",
    )


def lfs_pointer_error(path: object) -> CassetteError:
    """Return the error for a file that Git LFS has not fetched."""
    return CassetteError(
        path, "a pointer of Git LFS, and not the cassette", hint="fetch it with: git lfs pull"
    )


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
        command=file.recording.command,
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
        self._is_stdio = file.transport == "stdio"
        self._facts = {_place_of(each): each for each in facts}
        self._loaded: list[RecordedInteraction] = []

    def interactions(self) -> tuple[RecordedInteraction, ...]:
        """Return all interactions."""
        # A pushed request may stand in a response of a later interaction.
        for add in (self._add, self._add_pushed_turns):
            for number, model in enumerate(self._models, start=1):
                try:
                    add(number, model)
                except ValueError as error:
                    raise damaged(self._path, f"/interactions/{number - 1}", str(error)) from None
        for facts in self._facts.values():
            if facts.sha256 is not None:
                raise self._changed(facts, "there is no such exchange")
        return tuple(self._loaded)

    def _add(self, number: int, model: InteractionModel) -> None:
        branch = None if model.branch is None else Branch(model.branch.of, model.branch.turn)
        shared = () if branch is None else self._shared(number, branch)
        exchanges = (*shared, *self._chain(number, model, len(shared)))
        steps = tuple(self._steps(number, model))
        orphan = bool(model.orphan)
        self._loaded.append(RecordedInteraction(number, exchanges, branch, orphan, steps=steps))

    def _shared(self, number: int, branch: Branch) -> tuple[RecordedExchange, ...]:
        """Return the exchanges that a branch shares, which its file has to tell alike."""
        model, turn = self._models[number - 1], branch.turn
        own = model.elicitation_turns[:turn]
        parting = own[-1] if len(own) == turn else None
        is_answered = isinstance(parting, ResultTurnModel) and parting.answer is not None
        if branch.of >= number or not is_answered:
            raise ValueError("it branches at no answered result of an earlier interaction")
        other = self._models[branch.of - 1]
        # They part with the answer.
        asked, same = (
            [each.request, *turns[:-1], *[turn.ask for turn in turns[-1:]]]
            for each, turns in ((model, own), (other, other.elicitation_turns[:turn]))
        )
        if asked != same:
            same_as = f"not the same as interaction {branch.of}, of which it is a branch"
            raise ValueError(f"up to the ask of turn {turn} it is {same_as}; edit both")
        count = sum(isinstance(each, ResultTurnModel) for each in own)
        return self._loaded[branch.of - 1].exchanges[:count]

    def _chain(
        self, number: int, model: InteractionModel, begin: int
    ) -> Iterator[RecordedExchange]:
        """Yield the exchanges of a call from one on, each the answer to the ask before it."""
        parts: list[tuple[int, RequestModel | AnswerModel]] = [(0, model.request)]
        responses: list[ResponseModel | None] = []
        for answered, turn in enumerate(model.elicitation_turns, start=1):
            if len(responses) == len(parts):
                raise ValueError(f"turn {answered} follows a turn without `answer`")
            if isinstance(turn, ResultTurnModel):
                responses.append(turn.ask)
                parts += [] if turn.answer is None else [(answered, turn.answer)]
        if len(responses) < len(parts):
            responses.append(model.response)
        elif model.response is not None:
            raise ValueError("`response` follows a turn without `answer`")
        pairs = list(zip(parts, responses, strict=True))
        for (answered, part), response in pairs[begin:]:
            place = (number, answered, None, None)
            yield self._exchange(place, part, model.request.http, response)

    def _steps(self, number: int, model: InteractionModel) -> Sequence[TaskStep]:
        """Return the steps of a task, and make sure that the turns are those of the steps."""
        steps = []
        for index, step in enumerate(model.task or ()):
            place = (number, 0, None, index)
            facts = self._facts.get(place)
            exchange = self._exchange(place, step.request, step.request.http, step.response)
            steps.append(TaskStep(exchange, (facts and facts.polls) or 1))
        told = [each for each in model.elicitation_turns if isinstance(each, TaskTurnModel)]
        turns = [each.model_dump(exclude_none=True) for each in told]
        if turns != [task_turn_tree(turn) for turn in task_turns(steps)]:
            raise ValueError("the turns of a task are not those of its steps")
        return steps

    def _add_pushed_turns(self, number: int, model: InteractionModel) -> None:
        interaction, position, turns = self._loaded[number - 1], 0, list[PushedTurn]()
        branch = interaction.branch
        shared = () if branch is None else self._loaded[branch.of - 1].pushed_turns
        for index, turn in enumerate(model.elicitation_turns, start=1):
            if isinstance(turn, PushedTurnModel):
                is_shared = branch is not None and index < branch.turn
                place = (number, index, position)
                turns.append(shared[len(turns)] if is_shared else self._pushed(turn, *place))
            position += isinstance(turn, ResultTurnModel)
        self._loaded[number - 1] = replace(interaction, pushed_turns=tuple(turns))

    def _pushed(
        self, turn: PushedTurnModel, number: int, turn_number: int, position: int
    ) -> PushedTurn:
        pending = self._loaded[number - 1].exchanges[position]
        responses = turn.answer.responses if turn.answer else []
        keys, answered = [each.key for each in turn.ask.events], [each.key for each in responses]
        if len({*keys}) < len(keys) or len({*answered} & {*keys}) < len(answered):
            raise ValueError(f"keys of turn {turn_number} come twice, or in its answers only")
        asked, answers = [], []
        for event in turn.ask.events:
            holder: RecordedExchange | None = pending
            if event.interaction is not None:
                holders = self._loaded[event.interaction - 1 : event.interaction]
                holder = holders[0].exchanges[-1] if holders else None
            response, message = holder and holder.response, None
            if response and event.event < len(response.pieces):
                message = completed_by(response, event.event)
            if holder is None or message is None or message.kind is not Kind.REQUEST:
                raise ValueError(f"{event.key} is no request of the server's")
            asked.append(PushedRequest(event.key, holder, event.event, event.interaction))
        for index, each in enumerate(responses):
            place = (number, turn_number, index, None)
            exchange = self._exchange(place, each.request, each.request.http, each.response)
            answers.append(PostedAnswer(each.key, exchange))
        return PushedTurn(position, tuple(asked), tuple(answers))

    def _exchange(
        self,
        place: _Place,
        asked: RequestModel | AnswerModel,
        http: HttpModel | None,
        answered: ResponseModel | None,
    ) -> RecordedExchange:
        request = self._request(asked, http)
        facts = self._facts.pop(place, None)
        response = None if answered is None else self._response(answered, facts)
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
            f"mrtr-cassette check {shell_words(self._path)} --fix",
        )

    def _request(self, model: RequestModel | AnswerModel, http: HttpModel | None) -> Request:
        body = b"".join(model.raws)
        headers = None if http is None else http.headers
        if isinstance(model, AnswerModel):
            headers = model.headers
        self._check_http(headers)
        if http is None or headers is None:
            return line_request(body, model.session or "")
        return Request(intern(http.method), intern(http.path), _headers_of(headers), body)

    def _response(self, model: ResponseModel, facts: ExchangeFactsModel | None) -> Response:
        self._check_http(model.status, model.headers)
        raws = model.raws
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

    def _check_http(self, *members: Any) -> None:
        """Make sure that members of HTTP are there, or over pipes that none of them is."""
        if any((value is None) != self._is_stdio for value in members):
            has, name = ("has", "stdio") if self._is_stdio else ("has not all", "HTTP")
            raise ValueError(f"it {has} members of HTTP, and the transport is {name}")


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
