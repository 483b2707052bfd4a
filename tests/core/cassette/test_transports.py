from __future__ import annotations

import pytest
from builders import (
    ACCEPTED,
    INITIALIZE,
    INITIALIZED,
    JSON_HEADERS,
    STREAM_HEADERS,
    Answer,
    Conversation,
    answer,
    cassette_of,
    get,
    loaded,
    notification,
    pipe_cassette,
    post,
    progress,
    refusal,
    rpc,
    session_steps,
    sse,
    stream,
    tool,
    with_token,
    within,
)

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.cassette.transports import (
    FIRST_SESSION,
    cassette_over_http,
    cassette_over_pipes,
)
from mrtr_cassette.core.wire.http import (
    End,
    Request,
    Response,
    channel_request,
    line_request,
)
from mrtr_cassette.errors import CassetteError

ADD = with_token(tool("add", a=1), "t")
NOTED = notification("notifications/initialized")
DONE = answer(ADD, {"content": []})


def first_of(cassette: Cassette) -> tuple[Request, Response | None]:
    """Return the first exchange."""
    exchange = cassette.interactions[0].exchanges[0]
    return exchange.request, exchange.response


def raws_of(response: Response | None) -> list[bytes]:
    """Return the pieces of a response."""
    assert response is not None
    return [piece.raw for piece in response.pieces if piece.raw]


SPREAD = b'{"jsonrpc": "2.0",\r\n "id": 1,\n "result": {"text": "a\\nb"}}'
EVENTS = Answer(
    (b": ping\n\n", sse(progress("t")), b"id: 1\ndata:\n\n", sse(DONE)), STREAM_HEADERS
)


@pytest.mark.parametrize(
    ("request_", "response", "lines"),
    [
        (ADD, DONE, [DONE + b"\n"]),
        (ADD, EVENTS, [progress("t") + b"\n", DONE + b"\n"]),
        (
            ADD,
            Answer((SPREAD,)),
            [b'{"jsonrpc": "2.0",   "id": 1,  "result": {"text": "a\\nb"}}\n'],
        ),
        (ADD, Answer((refusal(ADD),), JSON_HEADERS, 404), [refusal(ADD) + b"\n"]),
        (ADD, Answer((), status=0, end=End.OPEN), None),
        (NOTED, Answer((b"",), (), 202), None),
        (ADD, Answer((b"Accepted",), (), 202), []),
        (ADD, stream(b"no json", DONE), [DONE + b"\n"]),
    ],
)
def test_each_message_is_a_line(
    request_: bytes, response: bytes | Answer, lines: list[bytes] | None
) -> None:
    """What says nothing is left out, as pipes acknowledge nothing by a status alone."""
    cassette = loaded(cassette_of((request_, response)))
    request, found = first_of(cassette_over_pipes(cassette))

    assert request == line_request(request_, FIRST_SESSION)
    assert (None if found is None else raws_of(found)) == lines


@pytest.mark.parametrize(
    ("request_", "response", "reason"),
    [
        (
            get("/mcp"),
            Answer((b"",), STREAM_HEADERS),
            "interaction 2: GET /mcp means nothing",
        ),
        (
            post(ADD, ("Mcp-Session-Id", "x")),
            DONE,
            "interaction 2: it is part of an HTTP session",
        ),
        (ADD, Answer((b"<html>",), (), 502), "interaction 2: its response is HTTP 502"),
        (
            ADD,
            Answer((refusal(ADD, -32020),), JSON_HEADERS, 400),
            "2: its headers decided",
        ),
        (
            post(ADD, ("Mcp-Param-Tenant", "a")),
            answer(ADD, {"content": [1]}),
            r"the header or path \(Mcp-Param-Tenant\) decides a response",
        ),
        (
            post(ADD, target="/other"),
            answer(ADD, {"content": [1]}),
            r"\(path\) decides a response",
        ),
    ],
)
def test_what_only_http_has_is_named(
    request_: Request | bytes, response: bytes | Answer, reason: str
) -> None:
    """What pipes can't say is an error that names the interaction and the way out."""
    with pytest.raises(
        CassetteError, match=f"can't be played over pipes: .*{reason}"
    ) as caught:
        cassette_over_pipes(loaded(cassette_of((ADD, DONE), (request_, response))))

    assert "; record it over pipes with: record(command, 'f', " in str(caught.value)


def test_one_session_of_http_is_one_of_a_pipe() -> None:
    """Its stream is what the server says by itself; its end, and a refused stream, are left out."""
    discovery = rpc("server/discover")
    roots = rpc("roots/list", number="r")
    talk = Conversation()
    talk.exchange(discovery, Answer((refusal(discovery, -32601),)))
    for request_, response in session_steps("s"):
        talk.exchange(request_, response)

    talk.exchange(within("s", get("/mcp")), Answer((), (), 405))
    listening = talk.stream(within("s", get("/mcp")))
    talk.event(listening, roots)
    talk.exchange(within("s", answer(roots, {"roots": []})), ACCEPTED)
    talk.exchange(within("s", ADD), DONE)
    talk.exchange(within("s", Request("DELETE", "/mcp", (), b"")), ACCEPTED)
    talk.end(listening)

    over = cassette_over_pipes(loaded(talk.cassette()))

    requests = [interaction.exchanges[0].request for interaction in over.interactions]
    said = (discovery, INITIALIZE, INITIALIZED, b"", ADD)

    assert requests == [line_request(body, FIRST_SESSION) for body in said]
    assert [interaction.number for interaction in over.interactions] == [1, 2, 3, 4, 5]

    channel = over.interactions[3]

    assert channel.exchanges[0].response is not None
    assert raws_of(channel.exchanges[0].response) == [roots + b"\n"]
    assert channel.exchanges[0].response.end is End.OPEN

    (turn,) = channel.pushed_turns

    assert [answer.exchange.request.method for answer in turn.answers] == [""]


def test_header_that_decides_nothing_is_no_matter() -> None:
    """Where responses are equal or differ without it too, or another client asks, pipes do."""
    another_result = answer(ADD, {"content": [1]})
    elsewhere = post(ADD, ("Mcp-Param-Tenant", "a"))
    newer = tool("add", a=1).replace(
        b'"params":{',
        b'"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"x"},',
    )
    for talk in (
        [(ADD, DONE), (elsewhere, DONE)],
        [(ADD, DONE), (ADD, another_result), (elsewhere, another_result)],
        [(ADD, DONE), (post(newer, ("MCP-Protocol-Version", "x")), another_result)],
    ):
        cassette_over_pipes(loaded(cassette_of(*talk)))


def test_line_is_a_json_response() -> None:
    """A response alone becomes a JSON body, without the line's end."""
    cassette = cassette_over_http(
        pipe_cassette((line_request(ADD), [DONE], End.COMPLETE))
    )
    request, response = first_of(cassette)

    assert (request.method, request.target, request.body) == ("POST", "/mcp", ADD)
    assert response is not None
    assert (response.status, response.headers, response.body) == (
        200,
        JSON_HEADERS,
        DONE,
    )


@pytest.mark.parametrize(
    ("lines", "end"),
    [
        ([progress("t"), DONE], End.COMPLETE),
        ([progress("t")], End.OPEN),
        ([], End.BROKEN),
    ],
)
def test_lines_are_events(lines: list[bytes], end: End) -> None:
    """More than a response becomes an event stream that ends in the same way."""
    cassette = pipe_cassette((line_request(ADD), lines, end))
    _, response = first_of(cassette_over_http(cassette))

    assert response is not None
    assert response.is_event_stream
    assert response.end is end
    assert response.body == b"".join(b"event: message\n" + sse(line) for line in lines)


def test_noise_is_not_said_over_http() -> None:
    """What a server prints by mistake is left out, and so is a channel with nothing else."""
    cassette = pipe_cassette(
        (line_request(ADD), [b"debug", DONE], End.COMPLETE),
        (channel_request(), [b"starting"], End.OPEN),
        (line_request(NOTED), None, End.OPEN),
    )

    changed = cassette_over_http(cassette)

    assert raws_of(first_of(changed)[1]) == [DONE]

    # What a pipe does not answer is acknowledged over HTTP.
    accepted = changed.interactions[2].exchanges[0].response

    assert accepted == Response(202, (), (), End.COMPLETE)


@pytest.mark.parametrize(
    ("exchange", "reason"),
    [
        ((channel_request(), [NOTED], End.OPEN), "the server speaks of its own accord"),
        (
            (line_request(b"no json"), None, End.OPEN),
            "a line of the client is not a message",
        ),
    ],
)
def test_what_only_pipes_have_is_named(
    exchange: tuple[Request, list[bytes] | None, End], reason: str
) -> None:
    """What HTTP can't say is an error that names the interaction."""
    with pytest.raises(CassetteError, match=f"over HTTP: interaction 1: {reason}"):
        cassette_over_http(pipe_cassette(exchange))


def test_own_transport_stays() -> None:
    """HTTP over HTTP is the cassette itself; on pipes, further starts keep their sessions."""
    cassette = loaded(cassette_of((ADD, DONE)))
    pipe = pipe_cassette(
        (line_request(ADD), [DONE], End.COMPLETE),
        (line_request(ADD, "mrtr-session:1"), [DONE], End.COMPLETE),
    )

    assert cassette_over_http(cassette) is cassette
    assert [
        interaction.exchanges[0].request.headers
        for interaction in cassette_over_pipes(pipe).interactions
    ] == [
        (("mcp-session-id", FIRST_SESSION),),
        (("mcp-session-id", "mrtr-session:1"),),
    ]
