"""Facts about why a recording is not published by itself, and about secrets on a cassette."""

from __future__ import annotations

import pytest
from builders import (
    JSON_HEADERS,
    STREAM_HEADERS,
    Answer,
    Json,
    cassette_of,
    exchange,
    get,
    loaded,
    post,
    refusal,
    retry,
    rpc,
    sse,
    stream,
    tool,
)
from messages import asks, text

from mrtr_cassette.core.cassette.recorded import ExchangePlace, RecordedExchange
from mrtr_cassette.core.record.publish_check import Outcomes, exposed_secrets
from mrtr_cassette.core.wire.http import (
    NO_STATUS,
    End,
    Headers,
    Request,
    Response,
    line_request,
)

PING = rpc("ping")
HTML: Headers = (("Content-Type", "Text/HTML; charset=utf-8"),)


def objection(
    *answers: Json, failure: str | None = None, target: str = "/mcp?key=1"
) -> str | None:
    """Return what speaks against a recording in which pings got these answers."""
    outcomes = Outcomes()
    for number, answered in enumerate(answers, start=1):
        outcomes.note_outcome(
            exchange(post(PING, target=target), answered, number=number)
        )

    return outcomes.why_not_publish(failure)


def failed(status: int, body: bytes = b"no", headers: Headers = ()) -> Answer:
    """Return an answer with a status."""
    return Answer((body,), headers, status)


CREDENTIALS = 'does the server want credentials, such as headers={"Name": "value"}?'


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([failed(404)], "the only request got 404; is the path /mcp right?"),
        ([failed(405)] * 2, "all 2 requests got 405; is the path /mcp right?"),
        ([failed(401)], f"the only request got 401; {CREDENTIALS}"),
        ([failed(502)], "the only request got 502; does the server run?"),
        ([failed(307)], "the only request got 307; is the upstream an MCP server?"),
        (
            [failed(200, b"<p>", HTML)],
            "the only request got HTML; is the upstream an MCP server?",
        ),
        (
            [failed(404), failed(502), failed(404)],
            "all 3 requests got 404 or 502; is the path /mcp right?",
        ),
    ],
)
def test_errors_of_the_transport_speak_against_a_recording(
    answers: list[Json], said: str
) -> None:
    """Where there is nothing else, it is said what was seen, and what may be wrong."""
    assert objection(*answers) == said
    assert objection(*answers, text("fine")) is None


@pytest.mark.parametrize(
    "answered",
    [
        text("fine"),
        failed(400, refusal(PING), JSON_HEADERS),
        failed(404, refusal(PING), JSON_HEADERS),
        failed(400, sse(refusal(PING)), STREAM_HEADERS),
        failed(202, b""),
        failed(200, b"plain"),
        failed(200, refusal(PING), HTML),
    ],
)
def test_a_refusal_in_json_rpc_is_mcp(answered: Json) -> None:
    """Whatever its status, a message is what a server had to say; and so is a success."""
    assert objection(answered) is None
    assert objection(answered, failed(404)) is None


@pytest.mark.parametrize(
    ("request_sent", "answered"),
    [
        (get("/mcp"), failed(405)),
        (Request("DELETE", "/mcp", (), b""), failed(405)),
        (Request("OPTIONS", "/mcp", (), b""), failed(204, b"")),
        (post(PING), Answer((), (), 0)),
    ],
)
def test_what_any_server_may_answer_says_nothing(
    request_sent: Request, answered: Answer
) -> None:
    """No stream, no sessions, a preflight, no response, silence over pipes: neither good nor bad."""
    outcomes = Outcomes()
    outcomes.note_outcome(exchange(request_sent, answered))
    silence = Response(NO_STATUS, (), (), End.OPEN)
    outcomes.note_outcome(
        RecordedExchange(1, line_request(PING), silence, 0.0, 0.0, None, None)
    )

    assert outcomes == Outcomes()


def test_a_failed_command_speaks_against_any_recording() -> None:
    """How the command failed is the reason where nothing else is."""
    assert objection(text("fine"), failure="'x' ended with 7") == "'x' ended with 7"
    assert objection(failure="'x' ended with 7") == "'x' ended with 7"
    assert objection() is None

    said = "the only request got 404; the URL has no path, and most servers have /mcp"

    assert objection(failed(404), target="/") == said
    assert (
        objection(failed(404), failure="no")
        == "the only request got 404; is the path /mcp right?"
    )


TOKEN = "ghp_" + "aB3dE5fG7h" * 3 + "123456"
DEPLOY = tool("deploy", env="test")
QUESTION = asks("confirm")
EXPOSING = (
    (
        post(tool("login", password="correct-horse", note=TOKEN)),
        text(f"{TOKEN} {TOKEN}"),
    ),
    (DEPLOY, QUESTION),
    (retry(DEPLOY, {"confirm": {"action": "accept"}}), stream(tool(TOKEN))),
)


def test_secrets_are_found_where_they_stand() -> None:
    """Each rule that finds something is told once for each side of an exchange."""
    first = ExchangePlace(1)
    answer = ExchangePlace(2, 1)
    cassette = loaded(cassette_of(*EXPOSING))
    found = list(exposed_secrets(cassette))

    assert sorted(found[:2]) == [
        (first, "request", "github"),
        (first, "request", "password"),
    ]

    assert found[2:] == [
        (first, "response", "github"),
        (answer, "response", "github"),
    ]

    redacted = loaded(cassette_of(*EXPOSING, redacts=True))

    assert list(exposed_secrets(redacted)) == []

    calls = [
        (post(tool(name), target="/mcp?api_key=hunter2hunter2"), text("x"))
        for name in "ab"
    ]

    found = exposed_secrets(loaded(cassette_of(*calls)))

    assert [place.interaction for place, *_ in found] == [1, 2]
