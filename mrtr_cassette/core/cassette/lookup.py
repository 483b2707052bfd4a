"""The key of a recorded exchange (docs/matching.md), and the caller's values, no part of it."""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b
from typing import NamedTuple

from mrtr_cassette.core.protocol.calls import Call, CallKey
from mrtr_cassette.core.protocol.dialect import INPUT_RESPONSES
from mrtr_cassette.core.protocol.jsonrpc import (
    ID_KEY,
    ID_PATH,
    PLAIN_ID,
    PLAIN_TOKEN,
    TOKEN_KEY,
    TOKEN_PATH,
    Kind,
    Message,
    same_name,
)
from mrtr_cassette.core.secrets.names import compared_sha256
from mrtr_cassette.core.wire.jsonbytes import MemberPath, canonical, parse
from mrtr_cassette.core.wire.pointers import without_paths

_NO_ANSWERS = f'{{"{INPUT_RESPONSES}":{{}}}}'


class LookupKey(NamedTuple):
    """The key of a recorded exchange; equal requests have equal keys.

    A retry's has the hash of its state, and the canonical text of its answers with their shape.
    """

    call: CallKey
    state: str | None
    answers: str | None


def lookup_key(call: Call, ignored: Collection[MemberPath] = ()) -> LookupKey:
    """Return the key by which a request's recorded exchange is looked up."""
    answers = call.answers
    key = call.key(ignored)
    if answers is None:
        return LookupKey(key, None, None)
    state = (
        None
        if answers.request_state is None
        else compared_sha256(answers.request_state)
    )
    responses = None
    if answers.input_responses is not None:
        kept = without_paths({INPUT_RESPONSES: answers.input_responses}, ignored)
        # A member that is null is absent.
        responses = canonical(kept, without_null=True)
        responses = (
            responses if answers.shape == "map" else f"{answers.shape} {responses}"
        )
    # Some clients answer a state-only ask with an empty map, others with none.
    if state is not None and responses == _NO_ANSWERS:
        responses = None
    return LookupKey(key, state, responses)


def answers_by_key(lookup: LookupKey) -> dict[str, str]:
    """Return the canonical text of each answer of a retry."""
    shape, brace, text = (lookup.answers or "").partition("{")
    answers = parse(f"{brace}{text}".encode()).get(INPUT_RESPONSES, {}) if brace else {}
    return {key: f"{shape}{canonical(value)}" for key, value in answers.items()}


class CallerValues(NamedTuple):
    """A caller's id and progress token as they are spelled; None where the request has none."""

    id: bytes | None
    progress_token: bytes | None
    batch: tuple[CallerValues, ...] = ()
    """Those of the requests of a batch, each."""

    def spelled(self, value: str) -> bytes | None:
        """Return a value by its name, which may tell that the server changes its type.

        That of a request of a batch begins with its place there.
        """
        at, is_batched, of_request = value.partition(":")
        if is_batched:
            return self.batch[int(at)].spelled(of_request) if self.batch else None
        name, _, kind = value.partition(" as ")
        spelled = self.id if name == "id" else self.progress_token
        if spelled is None or not kind:
            return spelled
        plain = same_name(spelled.decode("latin-1")) or ""
        is_text = plain.startswith('"') or kind == "number"
        return (plain if is_text else f'"{plain}"').encode("latin-1")


def caller_values(message: Message | None) -> CallerValues:
    """Return the caller's values in its message."""
    if message is None:
        return CallerValues(None, None)
    # What is no string or number, or stands in params that don't count, is no token.
    token = None if message.progress_token is None else message.spelled(TOKEN_PATH)
    return CallerValues(message.spelled(ID_PATH), token)


def values_in(call: Call) -> CallerValues:
    """Return the caller's values in a request, which may be a batch."""
    values = caller_values(call.message)
    return values._replace(
        batch=tuple([caller_values(message) for message in call.batch])
    )


def cut_body(body: bytes) -> tuple[bytes, CallerValues] | None:
    """Cut what looks like the caller's values out of an unparsed body; None where nothing does.

    What is left is given as a digest, beside the values.
    """
    identity, token = PLAIN_ID.search(body), PLAIN_TOKEN.search(body)
    if identity is None or (token is None and TOKEN_KEY in body):
        return None
    remaining, values = (
        body,
        CallerValues(identity[1], None if token is None else token[1]),
    )
    for match in sorted(
        filter(None, (identity, token)), key=lambda each: -each.start()
    ):
        # No JSON has this byte.
        remaining = b"%b\0%b" % (remaining[: match.start(1)], remaining[match.end(1) :])
    return blake2b(remaining, digest_size=16).digest(), values


def digest_of(message: Message) -> bytes | None:
    """Return the digest of a request without the caller's values; None where a cut may be wrong.

    A body whose cut has this digest is the same message but for these values.
    """
    raw = message.raw
    # A key that stands there once, in its one spelling, is the one that the message has.
    is_certain = (
        message.kind is Kind.REQUEST
        and raw.count(ID_KEY) == 1
        and raw.count(TOKEN_KEY) == (message.progress_token is not None)
        and b"\\u" not in raw
    )
    cut = cut_body(raw) if is_certain else None
    return None if cut is None else cut[0]
