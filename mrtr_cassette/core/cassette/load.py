"""From the bytes of a cassette to what was recorded: the one place where a file is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from sys import intern
from typing import Any, Final

import orjson
from pydantic import ValidationError

from mrtr_cassette.core.cassette.codec import damaged, decode_body, exchange_sha256, headers_of
from mrtr_cassette.core.cassette.model import (
    VERSION,
    AnswerModel,
    CassetteModel,
    ExchangeFactsModel,
    HttpModel,
    InteractionModel,
    PushedEventModel,
    PushedTurnModel,
    RequestModel,
    ResponseModel,
    ResultTurnModel,
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
)
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.protocol.messages import completed_by
from mrtr_cassette.core.wire.http import NO_STATUS, End, Piece, Request, Response
from mrtr_cassette.core.wire.lines import line_request
from mrtr_cassette.core.wire.pointers import escape_pointer
from mrtr_cassette.errors import CassetteError, shorten

_MERGE_MARK: Final = re.compile(rb"^(?:<{7} |>{7} |={7}\r?$)", re.MULTILINE)


def load(data: bytes, path: str, *, progress: Callable[[int, int], None] | None = None) -> Cassette:
    """Read a cassette.

    Args:
        progress: called after each interaction with how many are done, and how many there are.

    Raises:
        CassetteError: no cassette, of another version, damaged, or edited without its digests.
    """
    return loaded(decode_cassette(data, path), path, progress)


def decode_cassette(data: bytes, path: str) -> CassetteModel:
    """Read a file, whose turns and branches are not looked at.

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


def loaded(
    file: CassetteModel, path: str, progress: Callable[[int, int], None] | None = None
) -> Cassette:
    """Return what a file says, once its turns, branches and digests are found to be right."""
    loader = _Loader(file, path)
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
        transport=file.transport or "http",
        client=file.recording.client,
        recorders=loader.recorders,
    )


class _Loader:
    """Builds interactions one after the other; `path` is the file's, as messages show it."""

    def __init__(self, file: CassetteModel, path: str) -> None:
        self.recorders = tuple(
            RecorderFacts(each.id, each.wall_ms, each.offset_ms)
            for each in file.recording.recorders or ()
        )
        self._models = file.interactions
        self._path = path
        self._damaged = partial(damaged, path)
        self._is_stdio = file.transport == "stdio"
        self._facts = {
            (each.interaction, each.turn, each.answer): each for each in file.recording.exchanges
        }
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
        for index, turn in enumerate(model.elicitation_turns[answered:], start=answered):
            at = f"{pointer}/elicitation_turns/{index}"
            if isinstance(turn, PushedTurnModel):
                answers = tuple(self._posted_answers(number, index + 1, turn, at))
                pushed.append(PushedTurn(len(exchanges), (), answers))
                continue
            request = self._request(part, model.request.http, part_at)
            place = (number, answered, None)
            exchanges.append(self._exchange(place, request, turn.ask, f"{at}/ask"))
            if turn.answer is None:
                if index + 1 < len(model.elicitation_turns):
                    raise self._damaged(at, "no `answer`, and another turn follows")
                if model.response is not None:
                    reason = "a response after a turn without `answer`"
                    raise self._damaged(f"{pointer}/response", reason)
                break
            part, part_at, answered = turn.answer, f"{at}/answer", index + 1
        else:
            request = self._request(part, model.request.http, part_at)
            place, at = (number, answered, None), f"{pointer}/response"
            exchanges.append(self._exchange(place, request, model.response, at))
        self._interactions.append(
            RecordedInteraction(number, tuple(exchanges), branch, bool(model.orphan), tuple(pushed))
        )

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
        """Yield the posted answers of a turn, each of which answers one of its requests."""
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
            place = (number, turn_number, index)
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
        self,
        place: tuple[int, int, int | None],
        request: Request,
        model: ResponseModel | None,
        pointer: str,
    ) -> RecordedExchange:
        """Return the exchange at a place: interaction, answered turn, index of a posted answer."""
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
        )

    def _changed(self, facts: ExchangeFactsModel, reason: str) -> CassetteError:
        """Return the error for an exchange that is not as it was recorded."""
        place = f"interaction {facts.interaction}"
        if facts.turn:
            place += f", turn {facts.turn}"
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
        return Request(intern(http.method), intern(http.path), headers_of(headers), body)

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
        return Response(status, headers_of(model.headers or {}), tuple(pieces), end)

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
