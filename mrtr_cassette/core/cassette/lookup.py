"""The key of a recorded exchange (docs/matching.md), and the caller's values, no part of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from hashlib import blake2b
from types import MappingProxyType
from typing import NamedTuple

from mrtr_cassette.core.protocol.calls import Call, CallKey
from mrtr_cassette.core.protocol.dialect import INPUT_RESPONSES
from mrtr_cassette.core.protocol.jsonrpc import (
    ID_KEY,
    PLAIN_ID,
    PLAIN_TOKEN,
    TOKEN_KEY,
    TOKEN_PATH,
    Kind,
    Message,
    comparable_id_or_token,
)
from mrtr_cassette.core.secrets.names import compared_sha256
from mrtr_cassette.core.wire.jsonbytes import MemberPath, canonical, parse
from mrtr_cassette.core.wire.pointers import without_null_members, without_paths

_NO_ANSWERS = f'{{"{INPUT_RESPONSES}":{{}}}}'


class LookupKey(NamedTuple):
    """The key of a recorded exchange; equal requests have equal keys.

    The key of a retry has the hash of its state, and the canonical text of its answers with their
    shape.
    """

    call: CallKey
    state: str | None
    answers: str | None


def lookup_key(call: Call, ignored: Collection[MemberPath] = ()) -> LookupKey:
    """Return the key by which a request's recorded exchange is looked up."""
    answers = call.answers
    call_key = call.key(ignored)
    if answers is None:
        return LookupKey(call_key, None, None)

    state = None
    if answers.request_state is not None:
        state = compared_sha256(answers.request_state)

    answers_text = None
    if answers.input_responses is not None:
        compared_answers = without_paths(
            {INPUT_RESPONSES: answers.input_responses}, ignored
        )
        # A member that is null is absent.
        answers_text = canonical(without_null_members(compared_answers))
        if answers.shape != "map":
            answers_text = f"{answers.shape} {answers_text}"

    # Some clients answer a state-only ask with an empty map, others with none.
    if state is not None and answers_text == _NO_ANSWERS:
        answers_text = None

    return LookupKey(call_key, state, answers_text)


def answers_by_key(lookup: LookupKey) -> dict[str, str]:
    """Return the canonical text of each answer of a retry."""
    shape, brace, text = (lookup.answers or "").partition("{")
    if not brace:
        return {}

    answers = parse(f"{brace}{text}".encode()).get(INPUT_RESPONSES, {})
    return {key: f"{shape}{canonical(value)}" for key, value in answers.items()}


class CallerValues(NamedTuple):
    """A caller's id and progress token as they are spelled; None if the request has none."""

    id: bytes | None
    progress_token: bytes | None
    batch: tuple[CallerValues, ...] = ()
    """The values of each request, if this is a batch."""

    echoed: Mapping[str, bytes] = MappingProxyType({})
    """What the caller sent in the place of recorded values, which responses may repeat."""

    def spelled_value(self, value_name: str) -> bytes | None:
        """Return a value by its name, which may say that the server changes its type.

        In a batch, the name begins with the place of the request that has the value.
        """
        if value_name.startswith("="):
            return self.echoed.get(value_name)

        place_in_batch, is_batched, name_in_request = value_name.partition(":")
        if is_batched:
            if not self.batch:
                return None
            return self.batch[int(place_in_batch)].spelled_value(name_in_request)

        name, _, kind = value_name.partition(" as ")
        spelled_value = self.progress_token
        if name == "id":
            spelled_value = self.id

        if spelled_value is None or not kind:
            return spelled_value

        same_value = comparable_id_or_token(spelled_value.decode("latin-1")) or ""
        if kind != "number" and not same_value.startswith('"'):
            same_value = f'"{same_value}"'

        return same_value.encode("latin-1")


def caller_values(message: Message | None) -> CallerValues:
    """Return the caller's values in its message."""
    if message is None:
        return CallerValues(None, None)

    token = None
    # A member that is no string or number, or is in params that don't count, is no token.
    if message.progress_token is not None:
        token = message.spelled(TOKEN_PATH)

    return CallerValues(message.spelled_id, token)


def caller_values_in(call: Call) -> CallerValues:
    """Return the caller's values in a request, which may be a batch."""
    values = caller_values(call.message)
    values_in_batch = [caller_values(message) for message in call.batch]
    return values._replace(batch=tuple(values_in_batch))


def digest_and_values_of_body(body: bytes) -> tuple[bytes, CallerValues] | None:
    """Cut what looks like the caller's values out of an unparsed body; None if nothing does.

    Returns:
        The digest of what is left, and the values.
    """
    id_match = PLAIN_ID.search(body)
    if id_match is None:
        return None

    if TOKEN_KEY in body:
        token_match = PLAIN_TOKEN.search(body)
        if token_match is None:
            return None

        values = CallerValues(id_match[1], token_match[1])
        # The last one first, so that the place of the first one stays as it is.
        first_span, last_span = sorted([id_match.span(1), token_match.span(1)])
        body_without_values = _with_value_replaced_by_null_byte(
            _with_value_replaced_by_null_byte(body, *last_span), *first_span
        )
    else:
        values = CallerValues(id_match[1], None)
        body_without_values = _with_value_replaced_by_null_byte(body, *id_match.span(1))

    digest = blake2b(body_without_values, digest_size=16).digest()
    return digest, values


def _with_value_replaced_by_null_byte(body: bytes, start: int, end: int) -> bytes:
    """Return a body with a byte that no JSON has in the place of a value."""
    return b"%b\0%b" % (body[:start], body[end:])


def digest_without_caller_values(message: Message) -> bytes | None:
    """Return the digest of a request without the caller's values; None if a cut may be wrong.

    A body whose cut has this digest is the same message but for these values.
    """
    raw = message.raw
    if message.kind is not Kind.REQUEST or b"\\u" in raw:
        return None

    # A key that is there once, in its one spelling, is the one that the message has.
    tokens = 0 if message.progress_token is None else 1
    if raw.count(ID_KEY) != 1 or raw.count(TOKEN_KEY) != tokens:
        return None

    cut_values = digest_and_values_of_body(raw)
    return None if cut_values is None else cut_values[0]
