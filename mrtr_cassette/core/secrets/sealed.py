"""What stands for a secret, a request state, an answer or an id, and how it gets there."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate, chain, pairwise
from json.encoder import encode_basestring_ascii
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.protocol.dialect import (
    ANSWERS_PATH,
    ECHOED_STATE_PATH,
    INPUT_RESPONSES,
    ISSUED_STATE_PATH,
    REQUEST_STATE,
)
from mrtr_cassette.core.protocol.jsonrpc import classify
from mrtr_cassette.core.protocol.methods import TASK_ID
from mrtr_cassette.core.protocol.tasks import named_task
from mrtr_cassette.core.secrets.decode import as_text, flattened, string_end, undo_json
from mrtr_cassette.core.secrets.names import ANSWER, is_of_kind, sha256_of
from mrtr_cassette.core.wire.http import Request, decoded_header
from mrtr_cassette.core.wire.jsonbytes import (
    MemberPath,
    Span,
    canonical,
    find_spans,
    item_spans,
    parse,
    splice,
)
from mrtr_cassette.core.wire.pointers import members_of
from mrtr_cassette.errors import NotJsonError

_MARKERS = (f'"{INPUT_RESPONSES}"'.encode(), b'"result"', b"\\u", b"mrtr-answer:")
"""What a body has at least one of if there is something to seal; a name may be escaped."""
_RESULT: MemberPath = ("result",)
_ACTIONS = ("accept", "decline", "cancel")


def looks_sealed(text: str) -> bool:
    """Tell whether a text looks like a sealed answer."""
    return is_of_kind(text, ANSWER)


def seal_answers(body: bytes, is_sealed: Callable[[str], bool] = looks_sealed) -> bytes:
    """Replace what a client answers by hashes; the `action` of an elicitation stays readable.

    Answers are what a retry has, and the result of a response that a client posts. They are
    written anew, which costs nothing: requests are matched, never played back.
    """
    if not any(marker in body for marker in _MARKERS):
        return body
    sealer = _AnswerSealer(is_sealed)
    try:
        sealed = list(sealer.message(body))
    except NotJsonError:
        text = body.decode("latin-1")
        return body if is_sealed(text) else _answer_hash(text).encode()
    return splice(body, sealed)


def _answer_hash(text: str) -> str:
    return f"{ANSWER}:{sha256_of(text)}"


@dataclass(frozen=True, slots=True)
class _AnswerSealer:
    is_sealed: Callable[[str], bool]

    def message(self, raw: bytes) -> Iterator[tuple[Span, bytes]]:
        message = parse(raw)
        if not isinstance(message, dict):
            # Nobody answers in a batch, which MCP no longer has.
            raise NotJsonError("no message")
        is_response = "jsonrpc" in message and "method" not in message
        paths = (ANSWERS_PATH, _RESULT) if is_response else (ANSWERS_PATH,)
        for path, spans in find_spans(raw, paths).items():
            for span in spans:
                value = parse(raw[span.start : span.end])
                if path == ANSWERS_PATH and isinstance(value, dict):
                    value = {key: self.answer(answer) for key, answer in value.items()}
                elif path == ANSWERS_PATH and isinstance(value, list):
                    value = [*map(self.item, value)]
                elif value != {}:
                    # An empty result answers nothing: it only says that the request has come.
                    value = self.answer(value)
                yield span, canonical(value).encode()

    def item(self, item: Any) -> Any:
        if isinstance(item, dict) and isinstance(item.get("id"), str):
            return {"id": item["id"]} | self.others(item, "id", self.answer, "value")
        return self.answer(item)

    def answer(self, answer: Any) -> Any:
        if isinstance(answer, dict) and answer.get("action") in _ACTIONS:
            kept = {"action": answer["action"]}
            return kept | self.others(answer, "action", self.hashed, "content", "_meta")
        return self.hashed(answer)

    def hashed(self, value: Any) -> Any:
        if value is None or (isinstance(value, str) and self.is_sealed(value)):
            return value
        return _answer_hash(canonical(value, without_null=True))

    def others(
        self,
        members: Mapping[str, Any],
        one: str,
        seal: Callable[[Any], Any],
        *known: str,
    ) -> dict[str, Any]:
        """Seal all members but one, and the names that are not known, which a user may give."""
        return {
            name if name in known else self.hashed(name): seal(it)
            for name, it in members.items()
            if name != one and it is not None
        }


SHORTEST_SEARCHED = 24
"""Characters from which on a state is also replaced where it stands outside `requestState`."""
_WORD: Final = (
    r"(?:[A-Za-z][a-z]{0,15}(?:[A-Z][a-z]{2,15}){0,9}|[A-Z]{1,16})?[0-9]{0,6}"
)
_WORDS: Final = re.compile(rf"{_WORD}(?:[ .,:;!?'()_/@-]{_WORD})*|[0-9.]{{1,15}}")


def reads_as_words(identity: str) -> bool:
    """Tell whether an id may stand in other text in its own right: words and small numbers.

    It is replaced only where the protocol has ids.
    """
    return _WORDS.fullmatch(identity) is not None


def is_searched(state: str) -> bool:
    """Tell whether a state, or the id of a task, is replaced wherever it stands."""
    return len(state) >= SHORTEST_SEARCHED and not reads_as_words(state)


_STATE = re.compile(rf'{REQUEST_STATE}(\\{{0,63}})"\s*:\s*\1"', re.ASCII)
"""The end of the member's name, and the beginning of its value."""
_STATE_PATHS: Final = (ECHOED_STATE_PATH, ISSUED_STATE_PATH)
_RELATED: Final = ("_meta", "io.modelcontextprotocol/related-task", TASK_ID)
_TASK_IDS: Final[tuple[MemberPath, ...]] = (
    ("params", TASK_ID),
    ("params", *_RELATED),
    ("result", TASK_ID),
    ("result", "task", TASK_ID),
    ("result", *_RELATED),
    ("params", "taskIds"),
    ("params", "notifications", "taskIds"),
)


class StatePlace(NamedTuple):
    """A state that stands under `requestState`, or the id of a task."""

    span: Span
    state: str
    depth: int
    """How many strings of JSON it stands in."""
    is_task: bool = False


def may_have_places(raw: bytes) -> bool:
    """Tell, quickly, whether `find_places` may find something."""
    return REQUEST_STATE.encode() in raw or TASK_ID.encode() in raw


def find_places(raw: bytes, known: Container[str]) -> list[StatePlace]:
    """Return the states in a message, and the ids of known tasks."""
    return [*find_states(raw, known), *find_task_ids(raw, known)]


def find_states(raw: bytes, known: Container[str] = ()) -> list[StatePlace]:
    """Return the states that messages issue or echo, and where other members repeat one.

    A member of another object may have the same name, such as an argument of a tool: it has a state
    only if it is a known one and does not read as words. In what is no JSON, such as a message that
    broke off, every such member has one.
    """
    if REQUEST_STATE.encode() not in raw:
        return []
    plain = _only_state(raw)
    if plain is not None:
        return [plain]
    own: list[StatePlace] = []
    others: list[StatePlace] = []
    for text in _json_texts(raw):
        spans = _state_spans(raw, text)
        for place in _states_in(raw, text):
            (own if spans is None or place.span in spans else others).append(place)
    issued = {place.state for place in own}
    for place in others:
        is_known = place.state in issued or place.state in known
        if is_known and not reads_as_words(place.state):
            own.append(place)
    return own


def _only_state(raw: bytes) -> StatePlace | None:
    """Return the state of a message if no other member can have that name; None if one may."""
    # A name that the bytes have once, in its only spelling, is that of the message's own member.
    if raw.count(REQUEST_STATE.encode()) != 1 or b"\\u" in raw:
        return None
    message = classify(raw)
    if message is None:
        return None
    result = members_of(message.tree.get("result"))
    state = message.params.get(REQUEST_STATE, result.get(REQUEST_STATE))
    places = _states_in(raw, Span(0, len(raw)))
    if len(places) == 1 and places[0].state == state:
        return places[0]
    return None


def _json_texts(raw: bytes) -> list[Span]:
    """Return where the texts of a body stand that are JSON each: all of it, or its lines."""
    whole = Span(0, len(raw))
    if b"\n" not in raw.strip():
        return [whole]
    try:
        parse(raw)
    except NotJsonError:
        ends = [*accumulate(len(line) for line in raw.splitlines(keepends=True))]
        return [Span(start, end) for start, end in pairwise([0, *ends])]
    return [whole]


def _state_spans(raw: bytes, text: Span) -> set[Span] | None:
    """Return where the messages of a JSON text have states, without quotes; None for no JSON."""
    try:
        messages = [text]
        inner = raw[text.start : text.end]
        if classify(inner) is None and isinstance(parse(inner), list):
            (array,) = find_spans(inner, [()])[()]
            items = item_spans(inner, array)
            messages = [
                Span(text.start + item.start, text.start + item.end) for item in items
            ]
    except NotJsonError:
        return None
    found = set()
    for message in messages:
        spans = find_spans(raw[message.start : message.end], _STATE_PATHS).values()
        for span in chain.from_iterable(spans):
            found.add(
                Span(message.start + span.start + 1, message.start + span.end - 1)
            )
    return found


def _states_in(raw: bytes, part: Span) -> list[StatePlace]:
    """Return the strings under `requestState`, at any depth, and in JSON in a string too."""
    text = raw[part.start : part.end].decode("latin-1")
    flat = flattened(text)
    places = []
    for match in _STATE.finditer(flat):
        if flat.endswith(f'{match[1]}"', 0, match.start()):
            start = match.end()
            backslashes = len(match[1])
            end = string_end(text, start, backslashes)
            depth = (backslashes + 1).bit_length()
            state = as_text(undo_json(text[start:end], depth))
            places.append(
                StatePlace(Span(part.start + start, part.start + end), state, depth)
            )
    return places


def find_task_ids(raw: bytes, known: Container[str]) -> list[StatePlace]:
    """Return the known ids of tasks where MCP has them; short ones are other values elsewhere."""
    try:
        found = find_spans(raw, _TASK_IDS) if TASK_ID.encode() in raw else {}
    except NotJsonError:
        return []
    values = [span for spans in found.values() for span in spans]
    values += [
        it for at in values if raw[at.start] == ord("[") for it in item_spans(raw, at)
    ]
    places = []
    for start, end in values:
        identity = as_text(undo_json(raw[start + 1 : end - 1].decode("latin-1"), 1))
        if raw[start] == ord('"') and identity in known:
            places.append(
                StatePlace(Span(start + 1, end - 1), identity, 1, is_task=True)
            )
    return places


def with_task(request: Request, new: Callable[[str], str]) -> Request:
    """Return a request with another id of the task that it names, in its body and its header."""
    task = named_task(classify(request.body))
    if task is None:
        return request
    body = splice(
        request.body, replaced_states(find_task_ids(request.body, {task}), new)
    )
    if is_searched(task):
        # Servers make keys of questions that begin with it.
        body = body.replace(task.encode(), new(task).encode())
    headers = [
        (name, new(task))
        if name.lower() == "mcp-name" and (decoded_header(value) or value) == task
        else (name, value)
        for name, value in request.headers
    ]
    return replace(request, headers=tuple(headers), body=body)


def replaced_states(
    places: Iterable[StatePlace], new: Callable[[str], str]
) -> list[tuple[Span, bytes]]:
    """Return, for `splice`, what `new` returns for the state at each place."""
    replaced = []
    for place in places:
        spelled = new(place.state)
        for _ in range(place.depth):
            spelled = encode_basestring_ascii(spelled)[1:-1]
        replaced.append((place.span, spelled.encode()))
    return replaced


def seal_states(raw: bytes, new: Callable[[str], str]) -> bytes:
    """Replace each state that a message issues or echoes by what `new` returns for it."""
    return splice(raw, replaced_states(find_states(raw), new))
