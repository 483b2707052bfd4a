from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest
from builders import answer, notification, progress, rpc, tool, with_id, with_token

from mrtr_cassette.core.record.channel import Channel
from mrtr_cassette.core.wire.http import End, Request

LISTENING = 0
ADD = tool("add", a=1)
PUSH = rpc("elicitation/create", {"message": "Really?"}, number=0)


def channel(session: str = "") -> tuple[Channel[int], list[Request]]:
    """Return a channel whose exchanges are numbers, 0 its own, and their requests."""
    requests: list[Request] = []
    numbers = count()

    def begin(request: Request) -> int:
        requests.append(request)
        return next(numbers)

    return Channel(begin, session), requests


def part(exchange: int) -> tuple[int, bool]:
    """Return that a line is part of an exchange."""
    return exchange, False


def last(exchange: int) -> tuple[int, bool]:
    """Return that a line is the last one of an exchange."""
    return exchange, True


@pytest.mark.parametrize(
    "line",
    [
        notification("notifications/initialized"),
        answer(PUSH, {"action": "accept"}),
        b"no json",
        b"",
        b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
    ],
)
def test_what_gets_no_response_is_an_exchange_of_its_own(line: bytes) -> None:
    """Notifications, answers to pushed requests and lines that are no message are over at once."""
    pipe, _ = channel()

    assert pipe.take_client_line(line + b"\n") == last(1)


def test_response_ends_the_oldest_request_with_its_id() -> None:
    """Responses come in any order, and `1` is not `"1"`; one to nothing is the channel's."""
    pipe, requests = channel()
    with_text_id = with_id(ADD, "1")

    assert [
        pipe.take_client_line(line + b"\n") for line in (ADD, with_text_id, ADD)
    ] == [part(number) for number in (1, 2, 3)]
    assert pipe.take_server_line(answer(with_text_id, {}) + b"\n") == last(2)
    assert [pipe.take_server_line(answer(ADD, {})) for _ in "abc"] == [
        last(1),
        last(3),
        part(LISTENING),
    ]
    assert [request.body for request in requests] == [b"", ADD, with_text_id, ADD]


def test_progress_belongs_to_the_call_with_its_token() -> None:
    """A progress notification is part of the exchange whose token it names, as long as it runs."""
    pipe, _ = channel()
    pipe.take_client_line(with_token(ADD, "a"))
    pipe.take_client_line(with_token(with_id(ADD, 2), "b"))

    assert pipe.take_server_line(progress("b")) == part(2)
    assert pipe.take_server_line(progress("a")) == part(1)

    pipe.take_server_line(answer(ADD, {}))
    pipe.take_client_line(with_id(ADD, 3))

    assert pipe.take_server_line(progress("a")) == part(LISTENING)


def test_token_that_two_calls_have_is_the_later_one_s_until_that_is_answered() -> None:
    """The end of the earlier call takes nothing from the later one."""
    pipe, _ = channel()
    pipe.take_client_line(with_token(ADD, "a"))
    later = with_id(ADD, 2)
    pipe.take_client_line(with_token(later, "a"))

    assert pipe.take_server_line(answer(ADD, {})) == last(1)
    assert pipe.take_server_line(progress("a")) == part(2)
    assert pipe.is_token_in_use('"a"')

    pipe.take_server_line(answer(later, {}))

    assert not pipe.is_token_in_use('"a"')


@pytest.mark.parametrize(
    "line", [PUSH, notification("notifications/message"), b"noise", b""]
)
def test_what_is_said_while_one_call_is_pending_belongs_to_it(line: bytes) -> None:
    """Pushed requests, notifications and noise are part of the only call; else of the channel."""
    pipe, _ = channel()

    assert pipe.take_server_line(line + b"\n") == part(LISTENING)

    pipe.take_client_line(ADD)

    assert pipe.take_server_line(line + b"\n") == part(1)

    pipe.take_client_line(with_id(ADD, 2))

    assert pipe.take_server_line(line + b"\n") == part(LISTENING)

    pipe.take_server_line(answer(ADD, {}))

    assert pipe.take_server_line(line + b"\n") == part(2)


@pytest.mark.parametrize("spelled", [7, "7"])
def test_subscription_has_what_names_it(spelled: int | str) -> None:
    """A subscription has the notifications with its id, and no others; it is no pending call."""
    pipe, _ = channel()
    listen = rpc("subscriptions/listen", {}, number=7)
    meta: dict[str, Any] = {"io.modelcontextprotocol/subscriptionId": spelled}
    changed = notification("notifications/tools/list_changed", _meta=meta)

    pipe.take_client_line(listen)

    assert pipe.take_server_line(changed) == part(1)
    assert pipe.take_server_line(notification("notifications/message")) == part(
        LISTENING
    )

    pipe.take_client_line(ADD)

    assert pipe.take_server_line(changed) == part(1)
    assert pipe.take_server_line(notification("notifications/message")) == part(2)

    cancelled = notification("notifications/cancelled", requestId=spelled)

    assert pipe.take_server_line(cancelled) == part(1)


def test_cancelled_call_is_not_pending_any_more() -> None:
    """After a cancellation other lines are not the call's; its late response still is."""
    pipe, _ = channel()
    pipe.take_client_line(ADD)

    assert pipe.take_client_line(
        notification("notifications/cancelled", requestId=1)
    ) == last(2)
    assert pipe.take_server_line(b"noise") == part(LISTENING)
    assert pipe.take_server_line(answer(ADD, {})) == last(1)


@pytest.mark.parametrize("spelled", [0, "0"])
def test_server_cancels_a_question_where_it_has_asked_it(spelled: int | str) -> None:
    """The cancelled question of a call that is over belongs to no other call that is pending."""
    withdrawn = notification("notifications/cancelled", requestId=spelled)
    pipe, _ = channel()
    pipe.take_client_line(ADD)
    pipe.take_server_line(PUSH)
    pipe.take_client_line(with_id(ADD, 2))

    assert pipe.take_server_line(withdrawn) == part(1)

    pipe.take_server_line(answer(with_id(ADD, 2), {}))
    pipe.take_server_line(PUSH)
    pipe.take_server_line(answer(ADD, {}))
    pipe.take_client_line(with_id(ADD, 3))

    assert pipe.take_server_line(withdrawn) == part(LISTENING)
    assert pipe.ended_exchanges(by_server=False)[0] == (LISTENING, End.OPEN)


def test_cancellation_of_an_answered_question_is_like_any_other_line() -> None:
    """It belongs to the only call that is pending."""
    pipe, _ = channel()
    pipe.take_client_line(ADD)
    pipe.take_server_line(PUSH)
    pipe.take_client_line(answer(PUSH, {"action": "accept"}))
    pipe.take_server_line(answer(ADD, {}))
    pipe.take_client_line(with_id(ADD, 2))
    withdrawn = notification("notifications/cancelled", requestId=0)

    assert pipe.take_server_line(withdrawn) == part(3)


def test_end_leaves_what_is_pending() -> None:
    """Where the client closes first, calls stay open; where the server ends, they break off."""
    pipe, _ = channel()
    pipe.take_client_line(ADD)
    pipe.take_client_line(with_id(ADD, 2))
    pipe.take_server_line(answer(ADD, {}))

    assert pipe.ended_exchanges(by_server=False) == [(LISTENING, None), (2, End.OPEN)]
    assert pipe.ended_exchanges(by_server=True) == [
        (LISTENING, End.COMPLETE),
        (2, End.BROKEN),
    ]

    pipe.take_server_line(progress("nobody's"))
    pipe.take_client_line(with_id(ADD, 3))
    pipe.take_server_line(b"noise")

    assert pipe.ended_exchanges(by_server=False)[0] == (LISTENING, End.OPEN)


def test_further_start_of_a_server_names_its_session() -> None:
    """Each request of a further start has its session, that of the channel too."""
    pipe, requests = channel("a session")
    pipe.take_client_line(ADD)

    assert [request.header("mcp-session-id") for request in requests] == [
        "a session"
    ] * 2
    assert json.loads(requests[1].body)["method"] == "tools/call"
