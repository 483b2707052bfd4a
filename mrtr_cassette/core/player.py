"""The replay side of one run: requests in, recorded replies or misses out.

Owns: which recorded exchange a request gets, what has been played, and why nothing matches.
Does not own: how a miss reads (`report`), sockets (`shell`).
Rule: a request gets a recorded reply only if call, request state and answers are the recorded
ones. There is no closest match.
Source: docs/matching.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from mrtr_cassette.core.assembly import headers_of
from mrtr_cassette.core.calls import Call, CallKey, Traits, comparable_answers, read_call
from mrtr_cassette.core.cassette import Cassette, ExchangeFacts, Responding
from mrtr_cassette.core.codec import decode_body
from mrtr_cassette.core.dialect import Ask
from mrtr_cassette.core.jsonbytes import Difference, Path, differences, without_paths
from mrtr_cassette.core.jsonrpc import Kind
from mrtr_cassette.core.messages import ask_in, messages_in
from mrtr_cassette.core.reply import Reply, build_reply
from mrtr_cassette.core.seal import sha256_of
from mrtr_cassette.core.wire import End, Piece, Request, Response

_READING = frozenset(
    {
        "completion/complete",
        "initialize",
        "logging/setLevel",
        "ping",
        "prompts/get",
        "resources/read",
        "server/discover",
        "subscriptions/listen",
    }
)
"""Methods that change nothing, so that an answer given once may be given again."""
_SAFE_HTTP = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})


class Repeat(Enum):
    """Whether an exchange that has been played may be played again."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class Reason(Enum):
    """Why a request has no recorded reply."""

    UNKNOWN_METHOD = "unknown-method"
    UNKNOWN_NAME = "unknown-name"
    ARGUMENTS_DIFFER = "arguments-differ"
    STATE_UNKNOWN = "state-unknown"
    STATE_MISSING = "state-missing"
    STATE_UNEXPECTED = "state-unexpected"
    ANSWERS_DIFFER = "answers-differ"
    ANSWERS_MISSING = "answers-missing"
    ALREADY_PLAYED = "already-played"
    OUT_OF_ORDER = "out-of-order"


@dataclass(eq=False, slots=True)
class Node:
    """One recorded exchange and what replay knows of it.

    Attributes:
        interaction: number of the interaction, from 1.
        turn: the turn that its request answers, from 1; 0 for a first request.
        call: the recorded request.
        key: its call key.
        response: the recorded response, or None where there was none.
        ask: the ask that the response is, or None.
        parent: the exchange whose ask it answers; None for a first request and an orphan.
        number: the exchange's number in the recording, or None where that is not known.
        played: how often it has been played.
    """

    interaction: int
    turn: int
    call: Call
    key: CallKey
    response: Response | None
    ask: Ask | None
    parent: Node | None
    number: int | None
    gates: tuple[frozenset[int], ...] = ()
    played: int = 0
    has_children: bool = False
    reply: Reply | None = None


@dataclass(frozen=True, slots=True)
class Play:
    """A hit: the recorded reply, or None where the recorded request never got one."""

    call: Call
    node: Node
    reply: Reply | None


@dataclass(frozen=True, slots=True)
class Miss:
    """A request without a recorded reply.

    Attributes:
        call: the request.
        reason: why.
        detail: the reason as a sentence.
        nearest: the recorded exchange that comes nearest, or None.
        differences: where the two differ, by JSON Pointer into the params.
    """

    call: Call
    reason: Reason
    detail: str
    nearest: Node | None = None
    differences: tuple[Difference, ...] = ()


@dataclass(slots=True)
class _Shelf:
    """Recorded exchanges that the same request can get, in recorded order, by traits."""

    by_traits: dict[Traits, list[Node]] = field(default_factory=dict)

    def add(self, node: Node) -> None:
        self.by_traits.setdefault(node.call.traits, []).append(node)

    def most_specific(self, traits: Traits) -> list[Node]:
        """Return the exchanges whose traits come nearest, in recorded order.

        Those with other traits are no answers, even when these have all been played: the same
        body may have been refused for its headers.
        """
        exact = self.by_traits.get(traits)
        if exact is not None:
            return exact
        scored = [
            (tuple(one == other for one, other in zip(known, traits, strict=True)), nodes)
            for known, nodes in self.by_traits.items()
        ]
        best = max(score for score, _ in scored)
        chosen = [nodes for score, nodes in scored if score == best]
        if len(chosen) == 1:
            return chosen[0]
        return sorted(
            (node for nodes in chosen for node in nodes),
            key=lambda node: (node.interaction, node.turn),
        )


Slot = tuple[CallKey, str | None, str | None]
"""Call key, hash of the echoed state, canonical answers."""


class Player:
    """One replay of one cassette."""

    def __init__(
        self,
        cassette: Cassette,
        path: str,
        *,
        ignored: Collection[Path] = (),
        repeat: Repeat = Repeat.AUTO,
        paced: bool = False,
    ) -> None:
        """Prepare a replay.

        Args:
            cassette: what was recorded.
            path: how messages name its file.
            ignored: members of the params that don't count, as keys from the outermost inwards.
            repeat: whether what has been played may be played again.
            paced: the shell will keep the recorded rhythm.

        Raises:
            CassetteError: a body in the cassette isn't what was recorded.
        """
        self.path = path
        self.misses: list[Miss] = []
        self.plays = 0
        self.arrived: set[int] = set()
        self._ignored = tuple(ignored)
        self._repeat = repeat
        self._paced = paced
        self._index: dict[Slot, _Shelf] = {}
        self.interactions = _read_interactions(cassette, path, self._ignored)
        self._nodes = [node for nodes in self.interactions for node in nodes]
        _set_gates(self._nodes, cassette.recording.exchanges)
        hashes = {
            (facts.interaction, facts.turn): facts.echoed_state_sha256
            for facts in cassette.recording.exchanges
        }
        for node in self._nodes:
            self._add(node, hashes.get((node.interaction, node.turn)))

    def _add(self, node: Node, raw_sha256: str | None) -> None:
        slot = self._slot(node.call)
        self._index.setdefault(slot, _Shelf()).add(node)
        # What a client sends that doesn't come from the cassette, such as a literal in a test,
        # is known by the hash of what was sent while recording.
        if raw_sha256 is not None and raw_sha256 != slot[1]:
            self._index.setdefault((slot[0], raw_sha256, slot[2]), _Shelf()).add(node)

    def _slot(self, call: Call) -> Slot:
        answers = call.answers
        key = call.key(self._ignored)
        if answers is None:
            return key, None, None
        state = None if answers.request_state is None else sha256_of(answers.request_state)
        responses = comparable_answers(answers, self._ignored)
        # Some clients answer a state-only ask with an empty map, others with none.
        if state is not None and responses == '{"inputResponses":{}}':
            responses = None
        return key, state, responses

    def request_received(self, request: Request) -> Play | Miss:
        """Find the recorded reply to a request, and count it as played or missed."""
        call = read_call(request)
        slot = self._slot(call)
        shelf = self._index.get(slot)
        candidates = shelf.most_specific(call.traits) if shelf is not None else []
        node = self._choose(candidates, call)
        if node is None:
            miss = self._diagnose(call, slot, candidates)
            self.misses.append(miss)
            return miss
        node.played += 1
        self.plays += 1
        if node.number is not None:
            self.arrived.add(node.number)
        if node.reply is None and node.response is not None:
            node.reply = build_reply(
                node.call.message, node.response, node.gates, paced=self._paced
            )
        return Play(call, node, node.reply)

    def _choose(self, candidates: Sequence[Node], call: Call) -> Node | None:
        reachable = [node for node in candidates if node.parent is None or node.parent.played]
        unplayed = [node for node in reachable if not node.played]
        for node in unplayed:
            if node.call.caller == call.caller:
                return node
        if unplayed:
            return unplayed[0]
        return reachable[-1] if reachable and self._may_repeat(call) else None

    def _may_repeat(self, call: Call) -> bool:
        if self._repeat is not Repeat.AUTO:
            return self._repeat is Repeat.ALWAYS
        message = call.message
        if message is None or message.kind is Kind.RESPONSE:
            return call.request.method in _SAFE_HTTP
        return (
            message.kind is Kind.NOTIFICATION
            or message.method in _READING
            or message.method.endswith("/list")
        )

    @property
    def unplayed(self) -> list[int]:
        """Numbers of the interactions of which something was never played."""
        return [
            number
            for number, nodes in enumerate(self.interactions, start=1)
            if not all(node.played for node in nodes)
        ]

    def is_due(self, gate: frozenset[int]) -> bool:
        """Tell whether all requests that a part waits for have come."""
        return gate <= self.arrived

    def _diagnose(self, call: Call, slot: Slot, candidates: Sequence[Node]) -> Miss:
        if candidates:
            if any(node.parent is None or node.parent.played for node in candidates):
                return self._already_played(call, candidates)
            return Miss(
                call,
                Reason.OUT_OF_ORDER,
                "this retry answers an ask that has not been played yet",
                candidates[0],
            )
        endpoint = [node for node in self._nodes if node.key.endpoint == slot[0].endpoint]
        same_method = [node for node in endpoint if node.key.method == slot[0].method]
        if not same_method:
            what = f"no request like {slot[0]} was recorded"
            elsewhere = {
                node.key.endpoint for node in self._nodes if node.key.method == slot[0].method
            }
            if slot[0].method and elsewhere:
                what = f"{slot[0].method} was recorded at {', '.join(sorted(elsewhere))}"
                what += f", not at {slot[0].endpoint}"
            return Miss(call, Reason.UNKNOWN_METHOD, what)
        same_name = [node for node in same_method if node.key.name == slot[0].name]
        if not same_name:
            names = sorted({repr(node.key.name) for node in same_method})
            return Miss(
                call,
                Reason.UNKNOWN_NAME,
                f"{slot[0].method} was recorded for {', '.join(names)} only",
            )
        same_call = [node for node in same_name if node.key == slot[0]]
        if call.answers is None:
            return self._diagnose_first(call, same_name, same_call)
        return self._diagnose_retry(call, slot, same_name, same_call)

    def _already_played(self, call: Call, candidates: Sequence[Node]) -> Miss:
        count = len(candidates)
        times = "once" if count == 1 else f"{count} times"
        what = f"recorded {times}, and all of it has been played"
        return Miss(call, Reason.ALREADY_PLAYED, what, candidates[-1])

    def _diagnose_first(
        self, call: Call, same_name: Sequence[Node], same_call: Sequence[Node]
    ) -> Miss:
        if same_call:
            # Recorded as a retry only, such as one whose state no recorded ask issued.
            return Miss(
                call,
                Reason.STATE_MISSING,
                "this call was recorded only as a retry with a request state",
                same_call[0],
            )
        firsts = [node for node in same_name if node.call.answers is None] or same_name
        return self._arguments_differ(call, firsts)

    def _arguments_differ(self, call: Call, candidates: Sequence[Node]) -> Miss:
        received = without_paths(call.asked, self._ignored)
        nearest, found = _nearest(
            candidates, lambda node: without_paths(node.call.asked, self._ignored), received
        )
        return Miss(
            call,
            Reason.ARGUMENTS_DIFFER,
            f"{nearest.key} was recorded, with other arguments",
            nearest,
            tuple(found),
        )

    def _diagnose_retry(
        self, call: Call, slot: Slot, same_name: Sequence[Node], same_call: Sequence[Node]
    ) -> Miss:
        _, state, _ = slot
        asks = [node for node in same_call if node.ask is not None]
        if state is None:
            stateless = [node for node in asks if _state_of(node) is None]
            if stateless:
                return self._answers_differ(call, stateless)
            if asks:
                return Miss(
                    call,
                    Reason.STATE_MISSING,
                    "the ask that these answers belong to issued a request state, "
                    "and the retry must echo it",
                    asks[0],
                )
            if not same_call:
                return self._arguments_differ(call, same_name)
            return Miss(
                call,
                Reason.ANSWERS_DIFFER,
                "the recorded call was not asked anything",
                same_call[0],
                (Difference("/inputResponses", None, slot[2] or "{}"),),
            )
        issuers = [node for node in asks if _state_of(node) == state]
        orphans = [node for node in same_call if self._echoes(node, state)]
        if issuers or orphans:
            return self._answers_differ(call, issuers, orphans)
        elsewhere = [node for node in self._nodes if _state_of(node) == state]
        if elsewhere and elsewhere[0] in same_name:
            return self._arguments_differ(call, [n for n in elsewhere if n in same_name])
        if elsewhere:
            where = f"#{elsewhere[0].interaction}, {elsewhere[0].key}"
            detail = f"this request state belongs to another interaction ({where})"
            return Miss(call, Reason.STATE_UNKNOWN, detail, elsewhere[0])
        if not same_call:
            return self._arguments_differ(call, same_name)
        issuing = [node for node in asks if _state_of(node) is not None]
        if issuing:
            detail = "no recorded ask of this call issued this request state"
            return Miss(call, Reason.STATE_UNKNOWN, detail, issuing[0])
        detail = "no recorded ask of this call issued a request state"
        return Miss(call, Reason.STATE_UNEXPECTED, detail, same_call[0])

    def _echoes(self, node: Node, state: str) -> bool:
        return self._slot(node.call)[1] == state

    def _answers_differ(
        self, call: Call, asks: Sequence[Node], retries: Sequence[Node] = ()
    ) -> Miss:
        recorded = [
            node for node in self._nodes if node.parent is not None and node.parent in asks
        ] + [node for node in retries if node.parent is None]
        if not recorded:
            detail = "the recording ends with this ask: nobody answered it"
            return Miss(call, Reason.ANSWERS_DIFFER, detail, asks[0])
        received = self._shown_answers(call)
        nearest, found = _nearest(
            recorded, lambda node: self._shown_answers(node.call), received, without_null=True
        )
        if any(difference.received is not None for difference in found):
            detail = "the recorded answers are others"
            return Miss(call, Reason.ANSWERS_DIFFER, detail, nearest, tuple(found))
        detail = "the retry lacks answers that were recorded"
        return Miss(call, Reason.ANSWERS_MISSING, detail, nearest, tuple(found))

    def _shown_answers(self, call: Call) -> Any:
        responses = call.answers.input_responses if call.answers is not None else None
        return without_paths({"inputResponses": dict(responses or {})}, self._ignored)


def _state_of(node: Node) -> str | None:
    state = node.ask.request_state if node.ask is not None else None
    return None if state is None else sha256_of(state)


def _nearest(
    candidates: Sequence[Node], shown: Any, received: Any, *, without_null: bool = False
) -> tuple[Node, list[Difference]]:
    """Return the candidate with the fewest differences, the first of equals."""
    found = [
        (node, differences(shown(node), received, without_null=without_null)) for node in candidates
    ]
    return min(found, key=lambda pair: len(pair[1]))


def _read_interactions(
    cassette: Cassette, path: str, ignored: Collection[Path]
) -> list[list[Node]]:
    """Return each interaction's own exchanges; a branch's shared ones are the other's."""
    facts = {(facts.interaction, facts.turn): facts for facts in cassette.recording.exchanges}
    whole: list[list[Node]] = []
    own: list[list[Node]] = []
    for index, interaction in enumerate(cassette.interactions):
        pointer = f"/interactions/{index}"
        shared = interaction.branch.turn if interaction.branch is not None else 0
        nodes = list(whole[interaction.branch.of - 1][:shared]) if interaction.branch else []
        asking = interaction.request
        steps: list[tuple[Any, str, Responding | None, str]] = []
        request: tuple[Any, str] = (asking, f"{pointer}/request")
        for number, turn in enumerate(interaction.elicitation_turns):
            at = f"{pointer}/elicitation_turns/{number}"
            steps.append((*request, turn.ask, f"{at}/ask"))
            if turn.answer is not None:
                request = (turn.answer, f"{at}/answer")
        last = interaction.elicitation_turns[-1] if interaction.elicitation_turns else None
        if last is None or last.answer is not None:
            steps.append((*request, interaction.response, f"{pointer}/response"))
        for turn_number, (asked, asked_at, responding, responding_at) in enumerate(steps):
            if turn_number < shared:
                continue
            headers = asking.http.headers if asked is asking else asked.headers
            body = b"".join(decode_body(asked, path, asked_at))
            call = read_call(
                Request(asking.http.method, asking.http.path, headers_of(headers), body)
            )
            timing = facts.get((index + 1, turn_number))
            response = None
            if responding is not None:
                response = _response(responding, timing, path, responding_at)
            found = ask_in(call.message, response) if response is not None else None
            parent = nodes[-1] if nodes else None
            if parent is not None:
                parent.has_children = True
            nodes.append(
                Node(
                    interaction=index + 1,
                    turn=turn_number,
                    call=call,
                    key=call.key(ignored),
                    response=response,
                    ask=found[1] if found is not None else None,
                    parent=parent,
                    number=timing.number if timing is not None else None,
                )
            )
        whole.append(nodes)
        own.append(nodes[shared:])
    return own


def _response(
    responding: Responding, timing: ExchangeFacts | None, path: str, pointer: str
) -> Response:
    raw = decode_body(responding, path, pointer)
    headers = headers_of(responding.headers)
    end = End.COMPLETE if responding.end is None else End(responding.end)
    facts = timing.pieces if timing is not None else None
    if facts is not None and responding.events is None:
        raw = tuple(_cut(b"".join(raw), [piece.size or 0 for piece in facts]))
    if facts is None or len(facts) != len(raw):
        pieces = tuple(Piece(piece, 0, 0) for piece in raw)
    else:
        pieces = tuple(
            Piece(piece, fact.at_ms, fact.after) for piece, fact in zip(raw, facts, strict=True)
        )
    return Response(responding.status, headers, pieces, end)


def _cut(raw: bytes, sizes: Iterable[int]) -> Iterable[bytes]:
    """Cut a body into pieces of these sizes; a rest, as after editing, goes to the last."""
    at = 0
    pieces = []
    for size in sizes:
        pieces.append(raw[at : at + size])
        at += size
    if pieces:
        pieces[-1] += raw[at:]
    return pieces


def _set_gates(nodes: Sequence[Node], facts: Sequence[ExchangeFacts]) -> None:
    """Work out which requests each piece of a response has to wait for.

    A stream that listens tells what other requests caused: its events wait for the calls that had
    arrived by then. A response in whose stream the server pushed a request waits for the client's
    answer to that. Nothing else waits, because parallel calls owe each other nothing.
    """
    causing = sorted(
        node.number for node in nodes if node.number is not None and _can_cause_events(node)
    )
    answering: dict[str | None, list[int]] = {}
    for node in nodes:
        message = node.call.message
        if node.number is not None and message is not None and message.kind is Kind.RESPONSE:
            answering.setdefault(message.id, []).append(node.number)
    for node in nodes:
        if node.response is None:
            continue
        pieces = node.response.pieces
        nothing: frozenset[int] = frozenset()
        if node.number is None:
            node.gates = (nothing,) * len(pieces)
        elif _listens(node):
            node.gates = tuple(
                frozenset(n for n in causing if node.number < n <= piece.after) for piece in pieces
            )
        else:
            node.gates = _gates_of_pushed(node.number, node.response, answering)


def _listens(node: Node) -> bool:
    message = node.call.message
    if message is None:
        return node.call.request.method == "GET"
    return message.method == "subscriptions/listen"


def _can_cause_events(node: Node) -> bool:
    message = node.call.message
    return (
        message is not None
        and message.kind is Kind.REQUEST
        and message.method not in _READING
        and not message.method.endswith("/list")
    )


def _gates_of_pushed(
    number: int, response: Response, answering: dict[str | None, list[int]]
) -> tuple[frozenset[int], ...]:
    """Return the gates of a response in whose stream the server may have pushed requests."""
    if not response.is_event_stream or not answering:
        return (frozenset(),) * len(response.pieces)
    answers_to = {
        located.piece: min(
            (n for n in answering.get(located.message.id, ()) if n > number), default=0
        )
        for located in messages_in(response)
        if located.message.kind is Kind.REQUEST
    }
    gates = []
    pushed: set[int] = set()
    for index, piece in enumerate(response.pieces):
        gates.append(frozenset(answer for answer in pushed if 0 < answer <= piece.after))
        pushed.add(answers_to.get(index, 0))
    return tuple(gates)
