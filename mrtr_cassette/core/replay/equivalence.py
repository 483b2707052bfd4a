"""Which recorded responses are equal except for generated names, and so what any replica may play.

Two request states stand for each other only if equal requests got them in equal responses.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from mrtr_cassette.core.cassette.lookup import LookupKey
from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.protocol.calls import Traits
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.protocol.messages import messages_in
from mrtr_cassette.core.replay.history import (
    GENERATED_NAME,
    Timelines,
    outcome_of_task,
    without_caller,
)
from mrtr_cassette.core.replay.matching import ReplayEntry, Secret
from mrtr_cassette.core.replay.tasks import RecordedTask
from mrtr_cassette.core.secrets.sealed import (
    PLACEHOLDER,
    SHORTEST_SEARCHED,
    STATE_SURROGATE,
    placeholder,
    sha256_of,
)
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.errors import CassetteError, shorten

_MOST_LISTED: Final = 10


class ResponseDigest(NamedTuple):
    """A response without names and the caller's values; hashes of its states; its other names."""

    digest: bytes
    states: tuple[str, ...]
    names: tuple[str, ...]


class Identity(NamedTuple):
    """What equal requests share; of secrets those that a client can only have from the server."""

    lookup: LookupKey
    traits: Traits
    secrets: tuple[str, ...]
    caller: str


class ResponseClasses:
    """Which recorded exchanges are equal; `digests` are of calls that were recorded repeatedly."""

    def __init__(
        self, by_arrival: Sequence[ReplayEntry], answered: Mapping[ReplayEntry, ReplayEntry]
    ) -> None:
        self._roots: dict[str, str] = {}
        self._issued = _issued_secrets(by_arrival)
        often = Counter((each.key, each.lookup.answers) for each in by_arrival)
        responses: dict[ReplayEntry, ResponseDigest] = {}
        by_proxy = set(answered.values())
        for each in by_arrival:
            # A notification may have got no response.
            is_silent = each.kind is Kind.NOTIFICATION and each.exchange.response is None
            is_alone = often[each.key, each.lookup.answers] == 1
            if not (is_alone or is_silent or each in by_proxy):
                digest, last = self._digest(each), each
                while last in answered:
                    last = answered[last]
                    # The client gets the end, and carries no state.
                    digest = self._digest(last)._replace(states=digest.states)
                responses[each] = digest
        states: dict[tuple[Identity, bytes], ResponseDigest] = {}
        names: dict[tuple[Identity, bytes], ResponseDigest] = {}
        # Whatever a request carries was issued before it arrived.
        for each, found in responses.items():
            identity = self.identity(each)
            first = states.setdefault((identity._replace(caller=""), found.digest), found)
            self._unite(first.states, found.states)
            # Clients that tell who they are get sessions and secrets of their own.
            first = names.setdefault((identity, found.digest), found)
            self._unite(first.names, found.names)
        self.digests = {each: found.digest for each, found in responses.items()}

    def root(self, name: str) -> str:
        """Return the first of the names, or hashes of states, that stand for the same as one."""
        while name in self._roots:
            name = self._roots[name]
        return name

    def identity(self, entry: ReplayEntry) -> Identity:
        """Return what all requests share that are equal to a recorded one."""
        lookup, traits = entry.lookup, entry.traits
        if lookup.state is not None:
            lookup = lookup._replace(state=self.root(lookup.state))
        session = self.root(traits.session)
        caller = f"{session}{entry.caller[len(traits.session) :]}"
        traits = traits._replace(session=session)
        return Identity(lookup, traits, tuple(map(self._secret, entry.secrets)), caller)

    def _secret(self, secret: Secret) -> str:
        """Return what a secret is known by; those that clients know by themselves are all alike."""
        text = placeholder(*secret)
        return self.root(text) if text in self._issued else f"<{secret.rule}>"

    def fitting(
        self, entries: list[ReplayEntry], received: tuple[Secret, ...]
    ) -> list[ReplayEntry]:
        """Return the exchanges whose secrets can be those of a request; all if they are equal."""
        same = [
            each
            for each in entries
            if all(self._secret(one) == self._secret(other) for one, other in each.paired(received))
        ]
        is_one_answer = len({self.digests.get(each) for each in entries}) == 1
        return same or (entries if is_one_answer else [])

    def _unite(self, names: Iterable[str], others: Iterable[str]) -> None:
        for name, other in zip(names, others, strict=False):
            root, other_root = self.root(name), self.root(other)
            if root != other_root:
                self._roots[other_root] = root

    def _digest(self, entry: ReplayEntry) -> ResponseDigest:
        exchange, response = entry.exchange, entry.exchange.response
        if response is None:
            return ResponseDigest(b"", (), ())
        request = exchange.call.message
        parts = [without_caller(each.message, request) for each in messages_in(response)]
        task = exchange.created_task
        if task is not None:
            parts = [outcome_of_task(task, entry)]
        if not parts and not response.is_event_stream:
            parts = [response.body.decode("latin-1")]
        states: list[str] = []
        names: list[str] = []
        state = None if entry.ask is None else entry.ask.request_state
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
                states.append(sha256_of(name))
            else:
                names.append(name)
            return f"<{match['kind']}>"

        # Who ends a listening stream is chance.
        ends = not (entry.is_listening or response.only_accepts)
        head = [str(response.status), response.end.value if ends else ""]
        head += sorted(f"{name.lower()}: {value}" for name, value in response.headers)
        text = GENERATED_NAME.sub(named, "\n".join([*head, *parts]))
        if exchange.issued_sha256 is not None:
            states.append(exchange.issued_sha256)
        digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        return ResponseDigest(digest, tuple(states), tuple(names))


def _issued_secrets(by_arrival: Sequence[ReplayEntry]) -> set[str]:
    """Return the placeholders of the secrets that no client sent before the server did."""
    own: set[str] = set()
    issued: set[str] = set()
    for each in by_arrival if any(each.secrets for each in by_arrival) else ():
        own.update(placeholder(*secret) for secret in each.secrets)
        own -= issued
        response = each.exchange.response
        for match in PLACEHOLDER.finditer(
            "" if response is None else response.body.decode("latin-1")
        ):
            issued.add(placeholder(match["rule"], match["token"]))
        issued -= own
    return issued


# What no replica can know


def unite_equal(
    cassette: Cassette,
    by_arrival: Sequence[ReplayEntry],
    timelines: Timelines,
    answered: Mapping[ReplayEntry, ReplayEntry],
    tasks: Iterable[RecordedTask],
) -> ResponseClasses:
    """Let one exchange stand for all that are equal, so that any process plays the same.

    Raises:
        CassetteError: some reply depends on more than its request; the error names which.
    """
    by_arrival = [each for each in by_arrival if each.created_by is None]
    bound = [
        f"(#{each.creating.interaction}): which state of its task is played depends on what was "
        "answered or cancelled"
        for each in tasks
        if each.asks or each.causes
    ]
    bound += _bound(cassette, by_arrival, timelines)
    if bound:
        reason = (
            "<<stateless>> can't play what one process has to remember; serve it without, from "
            "one process, or from several to which a load balancer routes each session"
        )
        raise CassetteError(cassette.path, _listed(reason, bound))
    classes = ResponseClasses(by_arrival, answered)
    groups: dict[Identity, list[ReplayEntry]] = {}
    for each in by_arrival:
        groups.setdefault(classes.identity(each), []).append(each)
    ambiguous = [
        f"{_numbered(members)}: {identity.lookup.call}"
        for identity, members in groups.items()
        if len({classes.digests[each] for each in members if each in classes.digests}) > 1
    ]
    if ambiguous:
        reason = (
            "with <<stateless>> nothing tells which of several recorded answers these requests "
            "get; serve it without, from one process, or record one answer to each, or a "
            "header by <<match_headers>> that tells them apart"
        )
        raise CassetteError(cassette.path, _listed(reason, ambiguous))
    for identity, members in groups.items():
        first = next((each for each in members if each.exchange.response), members[0])
        for each in members:
            each.lookup, each.traits, _, each.caller = identity
            each.same = None if each is first else first
    return classes


def _bound(
    cassette: Cassette, by_arrival: Iterable[ReplayEntry], timelines: Timelines
) -> Iterator[str]:
    """Say which calls get what depends on other requests, and why."""
    pushing = {each.number for each in cassette.interactions if each.pushed_turns}
    for each in by_arrival:
        reason, response = "", each.exchange.response
        if each.interaction in pushing and not each.turn:
            reason = "the server asks by requests of its own, which are answered by other requests"
        elif each.stream is not each and each.stream.kind is Kind.REQUEST:
            reason = "a request gets the rest of what was said to another one"
        elif response is not None and each.is_listening:
            waits = timelines.waits_of(each)
            said = messages_in(response) if waits.pieces else ()
            if any(waits.is_for_later(waits.pieces[located.piece], each) for located in said):
                reason = "a stream says what other requests caused"
        if reason:
            session = f"{each.session} " if each.session else ""
            yield f"{session}(#{each.interaction}): {reason}"


def _numbered(members: Iterable[ReplayEntry]) -> str:
    return shorten(", ".join(f"#{n}" for n in sorted({each.interaction for each in members})))


def _listed(reason: str, items: Sequence[object]) -> str:
    lines = [f"{reason}:", *(f"  {each}" for each in items[:_MOST_LISTED])]
    if len(items) > _MOST_LISTED:
        lines.append(f"  and {len(items) - _MOST_LISTED} more")
    return "\n".join(lines)
