from __future__ import annotations

import json

from builders import (
    Answer,
    answer,
    cassette_of,
    exchange,
    loaded,
    post,
    progress,
    refusal,
    retry,
    stream,
    tool,
)
from messages import NO, YES, asks, text
from pushed_cassettes import branched

from mrtr_cassette.core.exchange.recorded import (
    Branch,
    RecordedExchange,
    RecordedInteraction,
    TurnPlace,
)
from mrtr_cassette.core.wire.http import End

CALL = tool("deploy", env="prod")


def recorded(body: bytes) -> RecordedExchange:
    """Return an exchange that got no response."""
    return RecordedExchange(1, post(body), None, 1.0, 2.0, None, None)


def test_exchanges_are_equal_only_to_themselves() -> None:
    """Equal calls may be recorded often, and each is an exchange of its own."""
    one, other = recorded(CALL), recorded(CALL)

    assert one == one  # noqa: PLR0124  what it is about
    assert one != other
    assert len({one, other}) == 2


def test_exchange_reads_its_call() -> None:
    """The call of an exchange is that of its request."""
    call = recorded(CALL).call

    assert (call.request.body, call.method, call.name) == (CALL, "tools/call", "deploy")


def test_exchange_reads_its_ask() -> None:
    """An exchange asks where its response requires input, in a body or in a stream."""
    whole = exchange(CALL, asks("a", state="s" * 24), seals=False)
    streamed = exchange(CALL, stream(answer(CALL, asks("a"))))

    assert whole.ask is not None
    assert list(whole.ask.input_requests) == ["a"]
    assert whole.ask.request_state == "s" * 24
    assert streamed.ask is not None
    assert streamed.ask.request_state is None


def test_exchange_without_ask_has_none() -> None:
    """A result, no response and the response to another request ask nothing."""
    elsewhere = (
        b'{"jsonrpc":"2.0","id":2,"result":{"resultType":"input_required","requestState":"s"}}'
    )

    assert exchange(CALL, text("done")).ask is None
    assert exchange(CALL, elsewhere).ask is None
    assert exchange(CALL, Answer((), status=0, end=End.OPEN)).ask is None
    assert recorded(CALL).ask is None


def test_exchange_reads_the_response_to_its_request() -> None:
    """It is found in a body or behind other messages of a stream, and an error is one too."""
    done = answer(CALL, text("done"))
    streamed = exchange(CALL, stream(progress(1), done))
    refused = exchange(CALL, refusal(CALL, code=-32602)).rpc_response

    whole, behind = exchange(CALL, done).rpc_response, streamed.rpc_response
    assert whole is not None
    assert behind is not None
    assert whole.tree == behind.tree == json.loads(done)
    assert streamed.located_response is not None
    assert streamed.located_response.piece == 1
    assert refused is not None
    assert refused.tree["error"]["code"] == -32602
    assert streamed.rpc_members == whole.tree
    assert recorded(CALL).rpc_members == {}


def test_exchange_without_response_to_its_request_has_none() -> None:
    """No response, a stream that ends before it, and the response to another request are none."""
    elsewhere = answer(retry(CALL, number=2), text("done"))

    for each in (
        recorded(CALL),
        exchange(CALL, stream(progress(1), end=End.OPEN)),
        exchange(CALL, elsewhere),
    ):
        assert (each.located_response, each.rpc_response) == (None, None)


def test_interaction_owns_what_no_earlier_one_has() -> None:
    """A branch shares the exchanges before the answer in which it parts."""
    exchanges = tuple(recorded(CALL) for _ in range(3))
    whole = RecordedInteraction(1, exchanges, None, is_orphan=False)
    branch = RecordedInteraction(2, exchanges, Branch(of=1, turn=2), is_orphan=False)

    assert (whole.shared, whole.own) == (0, exchanges)
    assert (branch.shared, branch.own) == (2, exchanges[2:])


def test_loaded_branch_shares_its_exchanges() -> None:
    """What two interactions of a cassette share is the same exchange."""
    answers = [{"a": YES}, {"a": NO}]
    first, branch = loaded(
        cassette_of(
            (CALL, asks("a", state="s" * 24)),
            *((retry(CALL, each, state="s" * 24), text("done")) for each in answers),
        )
    ).interactions

    assert branch.branch == Branch(of=1, turn=1)
    assert branch.exchanges[: branch.shared] == first.exchanges[:1]
    assert len(branch.own) == 1


def test_places_count_the_turns_of_both_kinds() -> None:
    """A turn's number counts the asks before it, however they were made."""
    _, first, branch = branched().interactions

    assert (first.shared, branch.shared) == (0, 1)
    assert [each.number for each in first.own] == [2, 5, 3, 4]
    assert first.places == (TurnPlace(0), TurnPlace(3), TurnPlace(1, 0), TurnPlace(1, 1))
    assert [each.number for each in branch.own] == [6, 7]
    assert branch.places == (TurnPlace(3), TurnPlace(4, 0))
    assert (first.asking_turn(0), first.pushed_numbers, branch.pushed_numbers) == (
        3,
        [1, 2],
        [1, 2, 4],
    )
