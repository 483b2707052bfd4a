"""Laws of session ids: only an id that a response issued is that of a session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from builders import (
    INITIALIZE,
    Answer,
    Conversation,
    compact,
    heard,
    id_of,
    loaded,
    open_session,
    opened,
    post,
    rpc,
    tool,
)
from hypothesis import given
from hypothesis import strategies as st
from messages import text

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.replay.diagnosis import Reason
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.wire.http import SESSION_HEADER, Headers, Request

PING = rpc("ping")
CALLS = {"write": tool("work"), "read": rpc("resources/read", {"uri": "file:///a"})}

IDS: dict[str, Callable[[str], list[str]]] = {
    "issued": lambda session: [session],
    "unknown": lambda _: ["0f8fad5b-d9cb-469f-a165-70867728950e"],
    "cut": lambda session: [session[:-3]],
    "upper-case": lambda session: [session.upper()],
    "doubled": lambda session: [f"{session}, {session}"],
    "header twice": lambda session: [session, session],
    "none": lambda _: [],
}
"""The values of the header by which a client names its session, rightly or wrongly."""


def named(body: bytes, session: str, kind: str) -> Request:
    """Return a request that names a session in one of these ways."""
    request = post(body)
    headers: Headers = tuple((SESSION_HEADER, value) for value in IDS[kind](session))
    return replace(request, headers=(*request.headers, *headers))


def refused(body: bytes, kind: str) -> Answer:
    """Return what the server says to a request that is in no session."""
    error = {
        "code": -32001,
        "message": f"no session: {'none' if kind == 'none' else 'unknown'}",
    }

    raw = compact({"jsonrpc": "2.0", "id": id_of(body), "error": error})
    return Answer((raw,), status=400 if kind == "none" else 404)


def record(
    session_count: int, asked: dict[str, list[str]], *, accepts_none: bool
) -> Cassette:
    """Record sessions whose clients then make calls under these ids."""
    talk = Conversation()
    for number in range(1, session_count + 1):
        session = f"{number}abcdef{number}" * 4
        talk.exchange(INITIALIZE, opened(session))
        for kind, calls in asked.items():
            for call in calls:
                body = CALLS[call]
                response: object = refused(body, kind)
                if kind == "issued":
                    response = text(f"live {call}")
                elif kind == "none" and accepts_none:
                    response = text(f"without a session {call}")

                talk.exchange(named(body, session, kind), response)

    return loaded(talk.cassette())


calls_made = st.lists(st.sampled_from(sorted(CALLS)), unique=True)


@given(
    st.integers(1, 3),
    st.fixed_dictionaries(
        {"issued": st.just(sorted(CALLS))},
        optional=dict.fromkeys([*IDS][1:], calls_made),
    ),
    st.booleans(),
    st.booleans(),
    st.data(),
)
def test_only_an_issued_id_gets_what_was_said_in_a_session(
    session_count: int,
    asked: dict[str, list[str]],
    accepts_none: bool,  # noqa: FBT001  drawn
    stateless: bool,  # noqa: FBT001  drawn
    data: st.DataObject,
) -> None:
    """Any other id gets what was said to one that nobody issued, no id what was said to none."""
    cassette = record(session_count, asked, accepts_none=accepts_none)
    player = Player(cassette, stateless=stateless)
    sessions = [open_session(player) for _ in range(data.draw(st.integers(1, 4)))]
    requests = [(kind, call) for kind in IDS for call in CALLS]
    for kind, call in data.draw(st.permutations(requests)):
        session = data.draw(st.sampled_from(sessions))
        answer = heard(player, named(CALLS[call], session, kind))
        if kind == "issued":
            assert answer in {f"live {call}", "miss already-played"}

            continue

        if kind == "none":
            recorded = call in asked.get("none", ())
            expected = "without a session" if accepts_none else "no session: none"
        else:
            wrong = asked.keys() - {"issued", "none"}
            recorded = any(call in asked[other_kind] for other_kind in wrong)
            expected = "no session: unknown"

        if not recorded:
            assert answer == f"miss {Reason.SESSION_UNKNOWN.value}"
        else:
            assert expected in answer or answer == "miss already-played"

        is_harmless = heard(player, named(PING, session, kind)) == "harmless"

        assert is_harmless is (kind == "issued")
