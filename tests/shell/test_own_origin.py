"""Facts about what names the server's origin: a client is told of the one that it has called."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from authorizing import Guarded
from builders import (
    JOURNAL_HEADER,
    JSON_HEADERS,
    cassette_of,
    encode_cassette,
    get,
    tool,
)
from builders import Answer as Recorded
from harness import Answer, command, http, looped, playing, post, taping
from hypothesis import given
from hypothesis import strategies as st
from messages import message, result
from standin import EVENTS, JSON, Visit, answering, json_response, response, upstream

from mrtr_cassette.core.report.runs import recording_text

METADATA = "/.well-known/oauth-protected-resource/mcp"
AUTHORITIES = {
    "http://127.0.0.1:3000": [
        "http://127.0.0.1:3000",
        "https://127.0.0.1:3000",
        "http://localhost:3000",
        "http://[::1]:3000",
    ],
    "http://localhost": [
        "http://localhost",
        "http://127.0.0.1:80",
        "http://localhost:51234",
    ],
    "https://api.example": [
        "https://api.example",
        "https://API.example:443",
        "http://api.example",
        "http://api.example:80",
    ],
    "https://api.example:8443": ["https://api.example:8443"],
}
ELSEWHERE = [
    "https://auth.example",
    "https://api.example.evil",
    "ftp://localhost",
    "localhost:80",
]
HEADERS = [
    (
        "WWW-Authenticate",
        'Bearer realm="{}", resource_metadata="{}/.well-known/x", error="e"',
    ),
    ("Location", "{}/mcp/?a=b"),
    ("Location", "{relative}/mcp/?a=b"),
    ("Location", "http://client.example:1/back?code=1&iss={quoted}"),
]


def filled(template: str, origin: str, *, slash: str = "/") -> str:
    """Return a text with an origin in its places."""
    plain = origin.replace("/", slash)
    template = template.replace("{relative}", origin.partition(":")[2])
    return template.replace("{quoted}", quote(origin, safe="")).replace("{}", plain)


@given(data=st.data(), slash=st.sampled_from(["/", "\\/", "\\u002f", "\\u002F"]))
@looped
async def test_no_client_of_a_replay_is_sent_to_another_origin(
    data: st.DataObject, *, slash: str
) -> None:
    """Headers and metadata documents name the replay; bodies, and the origin of a page, stay."""
    upstream = data.draw(st.sampled_from(sorted(AUTHORITIES)))
    spelled = data.draw(st.sampled_from(AUTHORITIES[upstream]))
    headers = data.draw(
        st.lists(st.sampled_from(HEADERS), unique_by=lambda pair: pair[0])
    )
    members = data.draw(
        st.lists(st.sampled_from(["{}", "{}/a?b={quoted}", *ELSEWHERE]), max_size=5)
    )
    inner = ", ".join(f'"{n}" :\t"{member}"' for n, member in enumerate(members))
    document = f"{{ {inner} }}"
    body = f'{{"text":"{spelled}/mcp"}}'.encode()
    always = (*JSON_HEADERS, ("Access-Control-Allow-Origin", spelled))
    told = tuple((name, filled(value, spelled)) for name, value in headers)
    cassette = cassette_of(
        (
            get(METADATA),
            Recorded((filled(document, spelled, slash=slash).encode(),), JSON_HEADERS),
        ),
        (tool("x"), Recorded((body,), (*always, *told), 401)),
    )

    raw = encode_cassette(cassette).replace(
        JOURNAL_HEADER.upstream.encode(), f"{upstream}/mcp".encode()
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "c.json"
        path.write_bytes(raw)
        async with playing(path) as replay:
            origin = replay.url.removesuffix("/mcp")
            found = await http("GET", replay.url, target=METADATA)
            refused = await post(replay.url, tool("x"))

    assert found.body.decode() == filled(document, origin, slash=slash)
    assert refused.body == body
    assert refused.head.without("Content-Length") == (
        *always,
        *(
            (name, filled(value.replace("{relative}", "{}"), origin))
            for name, value in headers
        ),
    )


@pytest.mark.parametrize("where", [METADATA, "/custom/about.json?v=1"])
@looped
async def test_the_cassette_has_the_servers_own_words(
    tmp_path: Path, where: str
) -> None:
    """What passes names the proxy, or whatever the client calls it; what is kept, the server."""
    path = tmp_path / "c.json"

    async def challenged(url: str, *headers: str) -> str:
        (challenge,) = (await post(url, message("ping"), *headers)).head.values(
            "www-authenticate"
        )
        return challenge.partition('resource_metadata="')[2][:-1]

    async def resource(url: str, *headers: str) -> str:
        sent = ("Accept-Encoding: gzip", *headers)
        return str((await http("GET", url, *sent, target=where)).json["resource"])

    through_tls = ("Host: localhost:1", "X-Forwarded-Proto: https")
    async with taping(path, Guarded(metadata=where)) as tape:
        assert await challenged(tape.url) == tape.url.replace("/mcp", where)
        assert await resource(tape.url) == tape.url
        assert await challenged(tape.url, *through_tls) == f"https://localhost:1{where}"
        assert await resource(tape.url, *through_tls) == "https://localhost:1/mcp"
        assert "Accept-Encoding" not in dict(tape.server.received[1].head.headers)

        journal = path.with_name("c.json.journal").read_text()

    for kept in (journal, path.read_text()):
        assert (tape.server.authority in kept, tape.url in kept) == (True, False)

    async with playing(path) as replay:
        assert await resource(replay.url) == replay.url


@looped
async def test_client_that_registers_manages_its_registration_here(
    tmp_path: Path,
) -> None:
    """RFC 7592: the answer says where; the URLs that the client gave itself stay."""
    path = tmp_path / "c.json"
    about = "/.well-known/oauth-authorization-server"

    async def register(visit: Visit) -> None:
        origin = f"http://{visit.request.head.values('host')[0]}"
        told = {
            "registration_client_uri": f"{origin}/register/1",
            "redirect_uris": [f"{origin}/back"],
        }
        if visit.number == 1:
            told = {"issuer": origin, "registration_endpoint": f"{origin}/register"}

        await visit.send(json_response(told))

    async def registered(url: str) -> list[dict[str, Any]]:
        await http("GET", url, target=about)
        answers = []
        for method, target in (("POST", "/register"), ("GET", "/register/1")):
            answers.append(
                (await http(method, url, JSON, target=target, body=b"{}")).json
            )

        return answers

    async with taping(path, register) as tape:
        origin = tape.url.removesuffix("/mcp")
        server = tape.server.url.removesuffix("/mcp")
        told = {
            "registration_client_uri": f"{origin}/register/1",
            "redirect_uris": [f"{server}/back"],
        }

        assert await registered(tape.url) == [told, told]

    assert f"{server}/register/1" in path.read_text()
    assert origin not in path.read_text()

    async with playing(path) as replay:
        origin = replay.url.removesuffix("/mcp")
        told["registration_client_uri"] = f"{origin}/register/1"

        assert await registered(replay.url) == [told, told]


@looped
async def test_the_server_gets_its_own_resource_and_replay_the_same(
    tmp_path: Path,
) -> None:
    """`resource` is put back as the server has named itself; all other bytes of a form stay."""
    form = "grant_type=x&resource={}&note=%7e+resource=http://127.0.0.1:9/"

    async def script(visit: Visit) -> None:
        port = visit.request.head.values("host")[0].rpartition(":")[2]
        if visit.number == 1:
            body = f'{{"resource": "http:\\/\\/LOCALHOST:{port}\\/mcp"}}'
            await visit.send(response(body.encode(), "Content-Type: application/json"))
        else:
            resource = quote(f"http://LOCALHOST:{port}/mcp", safe="")

            assert visit.request.body.decode() == form.format(resource)

            await visit.send(json_response({"access_token": "t"}))

    async def exchange(url: str, *, is_known: bool = False) -> int:
        if not is_known:
            await http("GET", url, target=METADATA)

        sent = form.format(quote(url, safe="")).encode()
        kind = "Content-Type: application/x-www-form-urlencoded"
        return (await http("POST", url, kind, target="/token", body=sent)).status

    path = tmp_path / "c.json"
    async with taping(path, script) as tape:
        assert await exchange(tape.url) == 200

    async with playing(path) as replay:
        assert await exchange(replay.url) == 200

    async with playing(path) as replay:
        assert await exchange(replay.url, is_known=True) == 200
        assert replay.outcome.misses == ()


@looped
async def test_an_authorization_server_elsewhere_is_named(tmp_path: Path) -> None:
    """The summary of a recording and of a replay says that what passes there is not recorded."""
    path = tmp_path / "c.json"
    told = "  not recorded, as it is elsewhere: the authorization server https://auth.example\n"
    async with upstream(Guarded("https://auth.example")) as server:
        to_record = ("record", "--upstream", server.url, "--output", path)
        for words in (to_record, ("replay", path)):
            async with command(*words, "--port", 0) as process:
                document = (
                    await http("GET", await process.listening(), target=METADATA)
                ).json

                assert document["authorization_servers"] == ["https://auth.example"]

                ended = await process.stopped()

            assert (ended.code, ended.err.count(told)) == (0, 1), ended.err


@pytest.mark.parametrize(
    "host", ["http://127.0.0.1", "HTTP://LocalHost", "//[::1]", "https://localhost"]
)
@looped
async def test_redirect_to_the_servers_own_origin_stays_with_the_proxy(
    tmp_path: Path, host: str
) -> None:
    """A client that follows it is recorded, and plays the same, however the origin is spelled."""

    async def script(visit: Visit) -> None:
        port = visit.request.head.values("host")[0].rpartition(":")[2]
        if visit.request.head.line.startswith("POST /mcp "):
            moved = f"Location: {host}:{port}/mcp/"
            await visit.send(response(b"", moved, status="307 Temporary Redirect"))
        else:
            await visit.send(json_response(result({}, id=1)))

    async def followed(url: str) -> Answer:
        redirect = await post(url, message("ping"))

        assert redirect.head.values("location") == [f"{url}/"]

        return await post(f"{url}/", message("ping"))

    path = tmp_path / "c.json"
    async with taping(path, script) as tape:
        assert (await followed(tape.url)).result == {}
        assert not tape.recording_run.elsewhere

    async with playing(path) as replay:
        assert (await followed(replay.url)).result == {}
        assert replay.outcome.misses == ()


@looped
async def test_clients_of_a_recording_that_is_added_to_stay_with_the_proxy(
    tmp_path: Path,
) -> None:
    """What is played names the server where it was recorded; now it has another port."""

    async def script(visit: Visit) -> None:
        if not visit.request.head.line.startswith("POST /mcp "):
            await Guarded()(visit)
            return

        port = visit.request.head.values("host")[0].rpartition(":")[2]
        moved = f"Location: http://localhost:{port}/mcp/"
        await visit.send(response(b"", moved, status="307 Temporary Redirect"))

    async def told(url: str) -> None:
        redirect = await post(url, message("ping"))
        document = await http("GET", url, target=METADATA)

        assert redirect.head.values("location") == [f"{url}/"]
        assert document.json["resource"] == url

    path = tmp_path / "c.json"
    async with taping(path, script) as tape:
        await told(tape.url)

    async with taping(path, script, existing="append") as tape:
        await told(tape.url)

        assert (tape.server.received, tape.recording_run.elsewhere) == ([], {})
        assert tape.recording_run.player is not None
        assert tape.recording_run.player.tally.misses == []


ELSEWHERE_RESPONSES = {
    "a redirect to http://127.0.0.1:1": response(
        b"",
        "Location: http://user:secret@127.0.0.1:1/mcp",
        status="307 Temporary Redirect",
    ),
    "a redirect to //other.example": response(
        b"", "Location: //other.example/", status="302 Found"
    ),
    "the endpoint of HTTP+SSE at https://other.example": response(
        b": hi\n\ndata: https://other.example/m?sid=1\nevent: endpoint\n\n", EVENTS
    ),
}


@pytest.mark.parametrize("place", ELSEWHERE_RESPONSES)
@looped
async def test_client_that_is_sent_elsewhere_is_told_of_and_counted(
    tmp_path: Path, place: str
) -> None:
    """A recording passes on what was said, and warns; a replay counts what was not recorded."""
    path = tmp_path / "c.json"

    async def asked(url: str) -> Answer:
        if "SSE" in place:
            return await http("GET", url, "Accept: text/event-stream")
        return await post(url, message("ping"))

    async with taping(path, answering(ELSEWHERE_RESPONSES[place])) as tape:
        passed = await asked(tape.url)

        assert passed.body == ELSEWHERE_RESPONSES[place].partition(b"\r\n\r\n")[2]
        assert (
            len([line for line in tape.log if f"elsewhere, by {place};" in line]) == 1
        )

    assert f"elsewhere: {place}" in recording_text(tape.recording_run.report)

    async with playing(path) as replay:
        played = await asked(replay.url)

        assert played.status == passed.status
        assert played.body == passed.body.replace(b"sid=1", b"sid=mrtr-session:1")

        (miss,) = replay.outcome.misses

    assert (miss.reason, place.rpartition(" ")[2] in miss.detail) == ("elsewhere", True)
