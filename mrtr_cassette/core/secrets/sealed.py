"""Find request states, answers and ids of tasks in messages, and replace them."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from json.encoder import encode_basestring_ascii
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.protocol.dialect import (
    ANSWERS_PATH,
    ECHOED_STATE_PATH,
    INPUT_RESPONSES,
    ISSUED_STATE_PATH,
    REQUEST_STATE,
)
from mrtr_cassette.core.protocol.jsonrpc import message_in
from mrtr_cassette.core.protocol.methods import (
    CREATED_TASK_PATHS,
    NAMED_TASK_PATHS,
    RELATED_TASK,
    TASK_ID,
)
from mrtr_cassette.core.secrets.decode import (
    end_of_json_string,
    unescaped_json,
    utf8_text_of_latin1,
    with_real_line_ends,
)
from mrtr_cassette.core.secrets.names import ANSWER, is_name_of_kind, sha256_of
from mrtr_cassette.core.wire.http import Request, decoded_header
from mrtr_cassette.core.wire.jsonbytes import (
    MemberPath,
    Span,
    canonical,
    find_spans,
    item_spans,
    parse,
    parse_tolerantly,
    splice,
)
from mrtr_cassette.core.wire.pointers import members_of, without_null_members
from mrtr_cassette.errors import NotJsonError

_ANSWER_MARKERS = (
    f'"{INPUT_RESPONSES}"'.encode(),
    b'"result"',
    b"\\u",
    b"mrtr-answer:",
)
"""A body with something to seal has at least one of these; a name may be escaped."""

_RESULT_PATH: MemberPath = ("result",)
_ELICITATION_ACTIONS = ("accept", "decline", "cancel")


def looks_sealed(text: str) -> bool:
    """Tell whether a text looks like a sealed answer."""
    return is_name_of_kind(text, ANSWER)


def seal_answers(body: bytes, is_sealed: Callable[[str], bool] = looks_sealed) -> bytes:
    """Replace a client's answers by hashes; the `action` of an elicitation stays readable.

    Answers are the `inputResponses` of a retry, and the result of a response that a client posts.
    They are serialised anew, which is safe: requests are matched, never played back.
    """
    if not any(marker in body for marker in _ANSWER_MARKERS):
        return body

    sealer = _AnswerSealer(is_sealed)
    try:
        replacements = list(sealer.sealed_message_parts(body))
    except NotJsonError:
        text = body.decode("latin-1")
        if is_sealed(text):
            return body
        return _answer_hash(text).encode()

    return splice(body, replacements)


def _answer_hash(text: str) -> str:
    """Return the hash that takes the place of an answer with this text."""
    return f"{ANSWER}:{sha256_of(text)}"


@dataclass(frozen=True, slots=True)
class _AnswerSealer:
    is_sealed: Callable[[str], bool]

    def sealed_message_parts(self, raw: bytes) -> Iterator[tuple[Span, bytes]]:
        """Yield where a message has answers, and the JSON that takes their places."""
        message = parse(raw)
        if not isinstance(message, dict):
            # Nobody answers in a batch, which MCP no longer has.
            raise NotJsonError("no message")

        paths: list[MemberPath] = [ANSWERS_PATH]
        if "jsonrpc" in message and "method" not in message:
            paths.append(_RESULT_PATH)

        for path, span in find_spans(raw, paths):
            value = parse(span.slice_of(raw))
            if path == ANSWERS_PATH:
                sealed_value = self.sealed_retry_answers(value)
            else:
                sealed_value = self.sealed_result(value)

            yield span, canonical(sealed_value).encode()

    def sealed_retry_answers(self, answers: Any) -> Any:
        """Seal the answers of a retry, a map or a list."""
        if isinstance(answers, dict):
            return {key: self.sealed_answer(answer) for key, answer in answers.items()}
        if isinstance(answers, list):
            return list(map(self.sealed_list_item, answers))
        return self.sealed_result(answers)

    def sealed_list_item(self, item: Any) -> Any:
        """Seal an item of a list of answers."""
        if isinstance(item, dict) and isinstance(item.get("id"), str):
            sealed_members = self.sealed_members(
                item,
                kept_name="id",
                known_names=["value"],
                seal_value=self.sealed_answer,
            )
            return {"id": item["id"]} | sealed_members

        return self.sealed_answer(item)

    def sealed_result(self, result: Any) -> Any:
        """Seal the result of a response, unless it is empty."""
        # An empty result answers nothing: it only says that the request has come.
        return result if result == {} else self.sealed_answer(result)

    def sealed_answer(self, answer: Any) -> Any:
        """Seal one answer; one to an elicitation keeps its `action`."""
        if isinstance(answer, dict) and answer.get("action") in _ELICITATION_ACTIONS:
            known_names = ["content", "_meta"]
            sealed_members = self.sealed_members(
                answer,
                kept_name="action",
                known_names=known_names,
                seal_value=self.hashed_value,
            )
            return {"action": answer["action"]} | sealed_members

        return self.hashed_value(answer)

    def hashed_value(self, value: Any) -> Any:
        """Return the hash of a value; null, and a value that is sealed already, stay."""
        if value is None or (isinstance(value, str) and self.is_sealed(value)):
            return value
        return _answer_hash(canonical(without_null_members(value)))

    def sealed_members(
        self,
        members: Mapping[str, Any],
        *,
        kept_name: str,
        known_names: Container[str],
        seal_value: Callable[[Any], Any],
    ) -> dict[str, Any]:
        """Seal all members but the kept one; unknown names, which a user may give, are hashed."""
        sealed: dict[str, Any] = {}
        for name, value in members.items():
            if name == kept_name or value is None:
                continue

            new_name = name if name in known_names else self.hashed_value(name)
            sealed[new_name] = seal_value(value)

        return sealed


SHORTEST_SEARCHED = 24
"""Characters from which on a state is also replaced outside `requestState`."""

_WORD = r"(?:[A-Za-z][a-z]{0,15}(?:[A-Z][a-z]{2,15}){0,9}|[A-Z]{1,16})?[0-9]{0,6}"
_WORDS_AND_NUMBERS = re.compile(rf"{_WORD}(?:[ .,:;!?'()_/@-]{_WORD})*|[0-9.]{{1,15}}")


def reads_as_words(plain_id: str) -> bool:
    """Tell whether an id may be in other text in its own right, as it is words and small numbers.

    Such an id is replaced only where the protocol has ids.
    """
    return _WORDS_AND_NUMBERS.fullmatch(plain_id) is not None


def is_searched_everywhere(state: str) -> bool:
    """Tell whether a state, or the id of a task, is replaced wherever it is found."""
    return len(state) >= SHORTEST_SEARCHED and not reads_as_words(state)


_STATE_NAME = REQUEST_STATE.encode()
_TASK_ID_NAME = TASK_ID.encode()
_STATE_MEMBER = re.compile(rf'{REQUEST_STATE}(\\{{0,63}})"\s*:\s*\1"', re.ASCII)
"""The end of the member's name, and the beginning of its value."""

_PLAIN_STATE = re.compile(rf'"{REQUEST_STATE}"\s*:\s*"([^"\\]*)"'.encode())
"""The member, with a value that has no escapes."""

_ESCAPED_LETTER = re.compile(rb"\\u00[4-7]")
_STATE_PATHS = (ECHOED_STATE_PATH, ISSUED_STATE_PATH)
_TASK_ID_PATHS: Final[tuple[MemberPath, ...]] = (
    *NAMED_TASK_PATHS,
    *CREATED_TASK_PATHS,
    ("result", *RELATED_TASK),
    ("params", "taskIds"),
    ("params", "notifications", "taskIds"),
)


class StatePlace(NamedTuple):
    """A state under `requestState`, or the id of a task, and where it is."""

    span: Span
    state: str
    strings_around: int
    """How many strings of JSON are around it."""

    is_state: bool = True


def may_have_states_or_task_ids(raw: bytes) -> bool:
    """Tell, quickly, whether `find_states_and_task_ids` may find something."""
    if _STATE_NAME in raw or _TASK_ID_NAME in raw:
        return True
    return _has_escaped_letter(raw)


def _has_escaped_letter(raw: bytes) -> bool:
    """Tell whether a name may be spelled with escapes."""
    return b"\\u00" in raw and _ESCAPED_LETTER.search(raw) is not None


def find_states_and_task_ids(
    raw: bytes, known_names: Container[str]
) -> list[StatePlace]:
    """Return the states in a message, and the ids of known tasks."""
    return [*find_states(raw, known_names), *find_task_ids(raw, known_names)]


def find_states(raw: bytes, known_states: Container[str] = ()) -> list[StatePlace]:
    """Return the states that messages issue or echo, and where other members repeat one.

    A member of another object may have the same name, such as an argument of a tool: it has a state
    only if that is a known one and does not read as words. In text that is no valid JSON, such as a
    message that broke off, every such member has one.
    """
    if _STATE_NAME not in raw and not _has_escaped_letter(raw):
        return []

    only_state = _single_plain_state(raw)
    if only_state is not None:
        return [only_state]

    whole_text = Span(0, len(raw))
    texts = [whole_text]
    in_messages = _states_of_messages(raw, whole_text)
    if b"\n" in raw.strip() and not _is_strict_json(raw):
        texts = _line_spans(raw)
        for line in texts:
            in_messages |= _states_of_messages(raw, line)

    places = []
    states_elsewhere = []
    for text in texts:
        is_json_text = _is_strict_json(text.slice_of(raw))
        for place in _states_by_search(raw, text):
            is_in_message = in_messages.pop(place.span.start, None) is not None
            if is_in_message or not is_json_text:
                places.append(place)
            else:
                states_elsewhere.append(place)

    places += in_messages.values()
    message_states = {place.state for place in places}
    for place in states_elsewhere:
        is_known = place.state in message_states or place.state in known_states
        if is_known and not reads_as_words(place.state):
            places.append(place)

    return places


def _single_plain_state(raw: bytes) -> StatePlace | None:
    """Return the plain state of a message if no other member can have that name; else None."""
    # A name that the bytes have once, in its only spelling, is that of the message's own member.
    if raw.count(_STATE_NAME) != 1 or b"\\u" in raw:
        return None

    message = message_in(raw)
    if message is None:
        return None

    result = members_of(message.tree.get("result"))
    state = message.params.get(REQUEST_STATE, result.get(REQUEST_STATE))
    member = _PLAIN_STATE.search(raw)
    if member is None or member[1].decode("utf-8", "replace") != state:
        return None

    return StatePlace(Span(*member.span(1)), state, strings_around=1)


def _is_strict_json(raw: bytes) -> bool:
    """Tell whether a text is JSON as its specification has it."""
    if message_in(raw) is not None:
        return True

    try:
        parse(raw)
    except NotJsonError:
        return False

    return True


def _line_spans(raw: bytes) -> list[Span]:
    """Return the spans of the lines of a body, with their line ends."""
    lines = []
    start = 0
    for line in raw.splitlines(keepends=True):
        end = start + len(line)
        lines.append(Span(start, end))
        start = end

    return lines


def _states_of_messages(raw: bytes, text: Span) -> dict[int, StatePlace]:
    """Return the states of the messages of a text that clients read as JSON, by their offsets."""
    try:
        messages = _message_spans(raw, text)
    except NotJsonError:
        return {}

    states = {}
    for message in messages:
        for _, span in find_spans(message.slice_of(raw), _STATE_PATHS):
            value = span.moved(message.start)
            if raw[value.start] == ord('"'):
                place = _plain_state(raw, Span(value.start + 1, value.end - 1))
                states[place.span.start] = place

    return states


def _plain_state(raw: bytes, span: Span, *, is_state: bool = True) -> StatePlace:
    """Return the state or the id that is in a string of a message itself."""
    escaped_state = span.slice_of(raw).decode("latin-1")
    state = utf8_text_of_latin1(unescaped_json(escaped_state, 1))
    return StatePlace(span, state, strings_around=1, is_state=is_state)


def _message_spans(raw: bytes, text: Span) -> list[Span]:
    """Return where the messages of a batch are, or the only one of a JSON text.

    Raises:
        NotJsonError: no client can read it.
    """
    json_text = text.slice_of(raw)
    is_message = message_in(json_text) is not None
    if is_message or not isinstance(parse_tolerantly(json_text), list):
        return [text]

    ((_, array),) = find_spans(json_text, [()])
    messages = []
    for item in item_spans(json_text, array):
        messages.append(item.moved(text.start))

    return messages


def _states_by_search(raw: bytes, part: Span) -> list[StatePlace]:
    """Return the strings under `requestState`, at any depth, and in JSON in a string too."""
    text = part.slice_of(raw).decode("latin-1")
    multiline_text = with_real_line_ends(text)
    places = []
    for match in _STATE_MEMBER.finditer(multiline_text):
        quote = f'{match[1]}"'
        if not multiline_text.endswith(quote, 0, match.start()):
            continue

        start = match.end()
        backslashes = len(match[1])
        end = end_of_json_string(text, start, backslashes)
        strings_around = (backslashes + 1).bit_length()
        state = utf8_text_of_latin1(unescaped_json(text[start:end], strings_around))
        span = Span(start, end).moved(part.start)
        places.append(StatePlace(span, state, strings_around))

    return places


def find_task_ids(raw: bytes, known_ids: Container[str]) -> list[StatePlace]:
    """Return the known ids of tasks where MCP has them; short ones are other values elsewhere."""
    if _TASK_ID_NAME not in raw:
        return []

    try:
        paths_and_spans = find_spans(raw, _TASK_ID_PATHS)
    except NotJsonError:
        return []

    value_spans = []
    for _, span in paths_and_spans:
        value_spans.append(span)
        if raw[span.start] == ord("["):
            value_spans += item_spans(raw, span)

    places = []
    for value in value_spans:
        if raw[value.start] != ord('"'):
            continue

        unquoted_span = Span(value.start + 1, value.end - 1)
        place = _plain_state(raw, unquoted_span, is_state=False)
        if place.state in known_ids:
            places.append(place)

    return places


def with_named_task_id(request: Request, new_id_of: Callable[[str], str]) -> Request:
    """Return a request with another id of what it is about, in its body and its header."""
    message = message_in(request.body)
    named_task_id = None if message is None else message.named_task_id
    if named_task_id is None:
        return request

    places = find_task_ids(request.body, {named_task_id})
    body = splice(request.body, state_replacements(places, new_id_of))
    if is_searched_everywhere(named_task_id):
        # Servers make keys of questions that begin with it.
        body = body.replace(named_task_id.encode(), new_id_of(named_task_id).encode())

    headers = []
    for name, value in request.headers:
        is_name_header = name.lower() == "mcp-name"
        if is_name_header and (decoded_header(value) or value) == named_task_id:
            headers.append((name, new_id_of(named_task_id)))
        else:
            headers.append((name, value))

    return replace(request, headers=tuple(headers), body=body)


def state_replacements(
    places: Iterable[StatePlace], new_state_of: Callable[[str], str]
) -> list[tuple[Span, bytes]]:
    """Return the replacements of states for `splice`.

    `new_state_of` returns the state for an old one, or the old one, which stays as it is spelled.
    """
    replacements = []
    for place in places:
        spelled_state = new_state_of(place.state)
        if spelled_state == place.state:
            continue

        for _ in range(place.strings_around):
            spelled_state = encode_basestring_ascii(spelled_state)[1:-1]

        replacements.append((place.span, spelled_state.encode()))

    return replacements


def seal_states(raw: bytes, new_state_of: Callable[[str], str]) -> bytes:
    """Replace each state that a message issues or echoes by what `new_state_of` returns for it."""
    return splice(raw, state_replacements(find_states(raw), new_state_of))
