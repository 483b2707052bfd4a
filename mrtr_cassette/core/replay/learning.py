"""Learn from a request which texts the values of a cassette have in this run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mrtr_cassette.core.cassette.entries import ReplayEntry
from mrtr_cassette.core.protocol.calls import Call, read_call
from mrtr_cassette.core.replay.diagnosis import Miss, Reason
from mrtr_cassette.core.replay.matching import texts_in
from mrtr_cassette.core.secrets.values import Values
from mrtr_cassette.core.wire.http import Request
from mrtr_cassette.errors import counted

_META = ("params", "_meta")


def learnable(
    values: Values, recorded: Iterable[ReplayEntry], request: Request
) -> list[Values]:
    """Return each choice of texts with which a request may be one of the recorded ones."""
    received = read_call(values.sealed(request))
    found: dict[tuple[tuple[str, str], ...], Values] = {}
    for entry in recorded:
        texts = _texts_between(values, entry.exchange.call, received)
        if texts:
            key = tuple(sorted(texts.items()))
            found.setdefault(key, values.with_texts(texts))
    return list(found.values())


def _texts_between(
    values: Values, recorded: Call, received: Call
) -> dict[str, str] | None:
    """Return the texts with which a recorded call may be a received one; None without any."""
    if recorded.method != received.method:
        return None
    if recorded.message is None or received.message is None:
        return None
    now = dict(texts_in(received.message.tree))
    found: dict[str, str] = {}
    for path, text in texts_in(recorded.message.tree):
        is_unknown = not values.names_in(text.encode()).isdisjoint(values.unknown)
        if not is_unknown or path[:2] == _META:
            continue
        texts = values.texts_between(text, now.get(path, ""))
        if texts is None:
            return None
        for name, value in texts.items():
            if found.setdefault(name, value) != value:
                return None
    return found or None


def unlearned(call: Call, names: Sequence[str], nearest: ReplayEntry) -> Miss:
    """Explain that a recorded response has a value whose text nobody knows."""
    refs = ", ".join([f"{{{name}}}" for name in names])
    detail = f"the recorded response has {refs}, and this run has not said its text"
    return Miss(call, Reason.VALUE_UNKNOWN, detail, nearest)


def ambiguous(call: Call, choices: Sequence[Values], known: Values) -> Miss:
    """Explain that several recorded requests teach other texts for a value."""
    told = []
    for choice in choices:
        for name in known.unknown:
            if name in choice.texts:
                told.append(f"{{{name}}} = {choice.texts[name]}")
    detail = (
        f"{counted(len(choices), 'text')} of a value make it a recorded request: "
        f"{', '.join(told)}"
    )
    return Miss(call, Reason.VALUE_UNKNOWN, detail)
