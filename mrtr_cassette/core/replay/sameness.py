"""What says the same in recordings that were made one after the other.

Rule: two request states stand for the same only if the same request got them in equal responses.
Source: docs/matching.md, "Without memory".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from mrtr_cassette.core.exchange.lookup import LookupKey
from mrtr_cassette.core.protocol.calls import Traits
from mrtr_cassette.core.protocol.jsonrpc import Kind, Message, echoes
from mrtr_cassette.core.protocol.messages import messages_in
from mrtr_cassette.core.replay.matching import Secret
from mrtr_cassette.core.replay.playable import Playable
from mrtr_cassette.core.secrets.placeholders import PLACEHOLDER, placeholder
from mrtr_cassette.core.secrets.states import SHORTEST_SEARCHED
from mrtr_cassette.core.secrets.surrogates import STATE_SURROGATE, sha256_of
from mrtr_cassette.core.wire.jsonbytes import canonical, parse, splice

_NAME: Final = re.compile(
    r"mrtr-(?P<kind>state|session|event|elicitation)(?:(?::|%3A)[0-9a-f]+)+|" + PLACEHOLDER.pattern,
    re.ASCII,
)


class Gist(NamedTuple):
    """What a recorded response says.

    Attributes:
        text: digest of all of it but names and the caller's values.
        states: hashes of the request states in it.
        names: the names of sessions, events, elicitations and secrets in it.
    """

    text: bytes
    states: tuple[str, ...]
    names: tuple[str, ...]


class Identity(NamedTuple):
    """What the same request has, whenever and by whichever client it is sent.

    Attributes:
        lookup: its lookup key.
        traits: what breaks ties.
        secrets: what stands for secrets in it, as far as a client can only have it from the server.
    """

    lookup: LookupKey
    traits: Traits
    secrets: tuple[str, ...]


class Sameness:
    """Which recorded exchanges are the same.

    Attributes:
        says: digests of what responses say, where a call was recorded more than once.
    """

    def __init__(
        self, by_arrival: Sequence[Playable], answered: Mapping[Playable, Playable]
    ) -> None:
        """Compare what was recorded.

        Args:
            by_arrival: all exchanges of a cassette, in the order in which they arrived.
            answered: the exchange with the answers that the recorder gave in its client's place, by
                the one that asks.
        """
        self._roots: dict[str, str] = {}
        self._surrogates: dict[str, str] = {}
        self._issued = _issued_secrets(by_arrival)
        often = Counter((each.key, each.lookup.answers) for each in by_arrival)
        gists: dict[Playable, Gist] = {}
        by_recorder = set(answered.values())
        for each in by_arrival:
            if often[each.key, each.lookup.answers] > 1 and each not in by_recorder:
                gist, last = self._gist(each), each
                while last in answered:
                    last = answered[last]
                    # The client gets the end, and carries no state.
                    gist = self._gist(last)._replace(states=gist.states)
                gists[each] = gist
        changed_states = [text for each in by_arrival if (text := _changed_state(each))]
        while self._united(gists, changed_states):
            pass
        self.says = {each: gist.text for each, gist in gists.items()}

    def root(self, name: str) -> str:
        """Return the first of the names, or hashes of states, that stand for the same as one."""
        while name in self._roots:
            name = self._roots[name]
        return name

    @property
    def states(self) -> dict[str, str]:
        """The hash of the first state that stands for the same, by that of each other state."""
        return {name: self.root(name) for name in self._roots}

    def identity(self, playable: Playable) -> Identity:
        """Return what all requests have that are the same as a recorded one."""
        lookup, traits = playable.lookup, playable.traits
        if lookup.state is not None:
            lookup = lookup._replace(state=self.root(lookup.state))
        session = self.root(traits.session)
        if session != traits.session:
            traits = traits._replace(session=session)
        return Identity(lookup, traits, tuple(map(self.secret, playable.secrets)))

    def caller(self, playable: Playable) -> str:
        """Return who sent a request, as far as that tells."""
        session = playable.traits.session
        return f"{self.root(session)}{playable.caller[len(session) :]}"

    def secret(self, secret: Secret) -> str:
        """Return what a secret is known by; those that clients know by themselves are all alike."""
        text = placeholder(*secret)
        return self.root(text) if text in self._issued else f"<{secret.rule}>"

    def _unite(self, names: Iterable[str], others: Iterable[str]) -> bool:
        is_new = False
        for name, other in zip(names, others, strict=False):
            root, other_root = self.root(name), self.root(other)
            if root != other_root:
                self._roots[other_root] = root
                is_new = True
        return is_new

    def _united(self, gists: Mapping[Playable, Gist], changed_states: Iterable[str]) -> bool:
        """Unite the names in equal responses to the same request; return whether any were new."""
        is_new = False
        states: dict[tuple[Identity, bytes], Gist] = {}
        names: dict[tuple[Identity, str, bytes], Gist] = {}
        for text in changed_states:
            same = STATE_SURROGATE.sub(self._first_surrogate, text)
            is_new |= self._unite([sha256_of(same)], [sha256_of(text)])
        for each, gist in gists.items():
            identity = self.identity(each)
            first = states.setdefault((identity, gist.text), gist)
            is_new |= self._unite(first.states, gist.states)
            # Clients that tell who they are get sessions and secrets of their own.
            first = names.setdefault((identity, self.caller(each), gist.text), gist)
            is_new |= self._unite(first.names, gist.names)
        return is_new

    def _first_surrogate(self, match: re.Match[str]) -> str:
        return self._surrogates.get(self.root(sha256_of(match[0])), match[0])

    def _gist(self, playable: Playable) -> Gist:
        exchange, response = playable.exchange, playable.exchange.response
        if response is None:
            return Gist(b"", (), ())
        request = exchange.call.message
        parts = [_without_caller(each.message, request) for each in messages_in(response)]
        if not parts and not response.is_event_stream:
            parts = [response.body.decode("latin-1")]
        states: list[str] = []
        names: list[str] = []
        ask = playable.ask
        state = None if ask is None else ask.request_state
        if state is not None and not STATE_SURROGATE.fullmatch(state):
            # A verbatim cassette has it as it was issued, and wherever the server repeated it.
            parts = [part.replace(canonical(state), '"<state>"') for part in parts]
            if len(state) >= SHORTEST_SEARCHED:
                parts = [part.replace(canonical(state)[1:-1], "<state>") for part in parts]
            states.append(sha256_of(state))

        def named(match: re.Match[str]) -> str:
            if match["kind"] is None:
                names.append(placeholder(match["rule"], match["token"]))
                return f"<{match['rule']}>"
            name = match[0].replace("%3A", ":")
            if match["kind"] == "state":
                sha256 = sha256_of(name)
                self._surrogates[sha256] = name
                states.append(sha256)
            else:
                names.append(name)
            return f"<{match['kind']}>"

        # Who ends a listening stream is chance.
        ends = not (playable.is_listening or response.only_accepts)
        head = [str(response.status), response.end.value if ends else ""]
        head += sorted(f"{name.lower()}: {value}" for name, value in response.headers)
        text = _NAME.sub(named, "\n".join([*head, *parts]))
        if exchange.issued_sha256 is not None:
            states.append(exchange.issued_sha256)
        return Gist(_digest(text), tuple(states), tuple(names))


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _without_caller(message: Message, request: Message | None) -> str:
    """Return the canonical text of a message without the values of the request's caller."""
    if request is None or request.kind is not Kind.REQUEST:
        return canonical(message.tree)
    spans = echoes(message, request)
    replacements = [(span, b"0") for span in (*spans.id, *spans.progress_token, *spans.id_as_text)]
    return canonical(parse(splice(message.raw, sorted(replacements))))


def _changed_state(playable: Playable) -> str:
    """Return the state that a request carries if a client made it of a surrogate; else nothing."""
    if playable.lookup.state is None:
        return ""
    answers = playable.exchange.call.answers
    state = None if answers is None else answers.request_state
    is_changed = isinstance(state, str) and STATE_SURROGATE.search(state)
    return state if state and is_changed and not STATE_SURROGATE.fullmatch(state) else ""


def _issued_secrets(by_arrival: Sequence[Playable]) -> set[str]:
    """Return what stands for the secrets that no client sent before the server did."""
    own: set[str] = set()
    issued: set[str] = set()
    if not any(each.secrets for each in by_arrival):
        return issued
    for each in by_arrival:
        own.update(placeholder(*secret) for secret in each.secrets)
        own -= issued
        response = each.exchange.response
        body = "" if response is None else response.body.decode("latin-1")
        for match in PLACEHOLDER.finditer(body):
            issued.add(placeholder(match["rule"], match["token"]))
        issued -= own
    return issued
