"""From the bytes of a cassette to what was recorded.

Owns: joining the file's interactions with the facts of their exchanges, and branches with the
interactions that they part from.
Does not own: the file's syntax (`codec`), what a replay makes of a recording (`replay`).
Rule: this is the one place where a file becomes a recording; what it returns is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from sys import intern
from typing import NamedTuple

from mrtr_cassette.core.exchange.recorded import (
    Branch,
    Cassette,
    RecordedExchange,
    RecordedInteraction,
)
from mrtr_cassette.core.format.bodies import decode_body, headers_of
from mrtr_cassette.core.format.codec import decode_parts
from mrtr_cassette.core.format.digest import check_exchange
from mrtr_cassette.core.format.model import (
    AnswerModel,
    ExchangeFactsModel,
    InteractionModel,
    RequestModel,
    ResponseModel,
)
from mrtr_cassette.core.wire.http import End, Headers, Piece, Request, Response
from mrtr_cassette.errors import CassetteError


def load(
    data: bytes, path: str, *, progress: Callable[[int], None] = lambda _count: None
) -> Cassette:
    """Read a cassette.

    Args:
        data: the file's bytes.
        path: how messages name the file.
        progress: called with the number of interactions that have been read, after each.

    Raises:
        CassetteError: no cassette, of another version, damaged, or edited without its digests.
    """
    head, interactions, exchanges = decode_parts(data, path)
    loader = _Loader(path, _Facts(exchanges))
    for number, interaction in enumerate(interactions, start=1):
        loader.add(number, interaction)
        progress(number)
    loader.facts.read_rest()
    return Cassette(
        path=path,
        upstream=head.upstream,
        request_state=head.request_state,
        redaction=None if head.redaction is None else head.redaction.rules(),
        seals_answers=head.answers is not None,
        recorded_at=head.recording.recorded_at,
        tool=head.recording.tool,
        interactions=tuple(loader.interactions),
    )


class _Facts:
    """The facts of exchanges, read no further than they are wanted: most stand in file order."""

    def __init__(self, facts: Iterable[ExchangeFactsModel]) -> None:
        self._unread = iter(facts)
        self._skipped: dict[tuple[int, int], ExchangeFactsModel] = {}

    def of(self, interaction: int, turn: int) -> ExchangeFactsModel | None:
        """Return the facts of an exchange, which are wanted once."""
        wanted = interaction, turn
        if wanted in self._skipped:
            return self._skipped.pop(wanted)
        for facts in self._unread:
            place = facts.interaction, facts.turn
            if place == wanted:
                return facts
            self._skipped[place] = facts
        return None

    def read_rest(self) -> None:
        """Read the remaining facts too, as they have to be valid."""
        for _ in self._unread:
            pass


class _Step(NamedTuple):
    """One exchange as the file has it, and where its parts stand there."""

    request: RequestModel | AnswerModel
    request_at: str
    response: ResponseModel | None
    response_at: str


def _steps(interaction: InteractionModel, pointer: str) -> Iterator[_Step]:
    request: RequestModel | AnswerModel = interaction.request
    request_at = f"{pointer}/request"
    for index, turn in enumerate(interaction.elicitation_turns):
        turn_at = f"{pointer}/elicitation_turns/{index}"
        yield _Step(request, request_at, turn.ask, f"{turn_at}/ask")
        if turn.answer is None:
            return
        request, request_at = turn.answer, f"{turn_at}/answer"
    yield _Step(request, request_at, interaction.response, f"{pointer}/response")


class _Loader:
    """Builds interactions one after the other.

    Of many exchanges most have the same headers and the same target: one of each is kept.
    """

    def __init__(self, path: str, facts: _Facts) -> None:
        self.facts = facts
        self.interactions: list[RecordedInteraction] = []
        self._path = path
        self._headers: dict[Headers, Headers] = {}

    def add(self, number: int, interaction: InteractionModel) -> None:
        """Add the next interaction, whose branch has been checked."""
        pointer = f"/interactions/{number - 1}"
        branch = None
        exchanges: list[RecordedExchange] = []
        if interaction.branch is not None:
            branch = Branch(interaction.branch.of, interaction.branch.turn)
            exchanges += self.interactions[branch.of - 1].exchanges[: branch.turn]
        shared = len(exchanges)
        for turn, step in enumerate(_steps(interaction, pointer)):
            facts = None if turn < shared else self.facts.of(number, turn)
            exchange = self._exchange(interaction, step, facts)
            if turn >= shared:
                exchanges.append(exchange)
            elif not _is_same(exchange, exchanges[turn]):
                raise CassetteError(
                    self._path,
                    f"at {step.request_at}: not the same as in interaction {branch and branch.of}, "
                    "of which this one is a branch",
                    hint="edit both, or restore the file",
                )
        self.interactions.append(
            RecordedInteraction(number, tuple(exchanges), branch, bool(interaction.orphan))
        )

    def _exchange(
        self, interaction: InteractionModel, step: _Step, facts: ExchangeFactsModel | None
    ) -> RecordedExchange:
        started_ms = 0 if facts is None else facts.started_ms
        request, response = self._request(interaction, step), self._response(step, facts)
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
        )

    def _request(self, interaction: InteractionModel, step: _Step) -> Request:
        http, request = interaction.request.http, step.request
        headers = http.headers if isinstance(request, RequestModel) else request.headers
        body = b"".join(decode_body(request, self._path, step.request_at))
        return Request(
            intern(http.method), intern(http.path), self._same(headers_of(headers)), body
        )

    def _response(self, step: _Step, facts: ExchangeFactsModel | None) -> Response | None:
        response = step.response
        if response is None:
            return None
        raws: Sequence[bytes] = decode_body(response, self._path, step.response_at)
        pieces = None if facts is None else facts.pieces
        if pieces and response.events is None:
            raws = _cut(b"".join(raws), [piece.size or 0 for piece in pieces])
        if facts is None or pieces is None or len(pieces) != len(raws):
            placed = [Piece(raw, 0, 0) for raw in raws]
        else:
            placed = [
                Piece(raw, facts.started_ms + piece.at_ms, piece.after)
                for raw, piece in zip(raws, pieces, strict=True)
            ]
        end = End.COMPLETE if response.end is None else End(response.end)
        headers = self._same(headers_of(response.headers))
        return Response(response.status, headers, tuple(placed), end)

    def _same(self, headers: Headers) -> Headers:
        return self._headers.setdefault(headers, headers)


def _is_same(one: RecordedExchange, other: RecordedExchange) -> bool:
    if one.response is None or other.response is None:
        return one.request == other.request and one.response is other.response
    return (
        one.request == other.request
        and one.response.status == other.response.status
        and one.response.headers == other.response.headers
        and one.response.body == other.response.body
        and one.response.end is other.response.end
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
