"""What could identify somebody is taken out of a cassette for strangers, which plays on."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from builders import (
    Step,
    cassette_of,
    hit,
    loaded,
    missed,
    play,
    post,
    retry,
    rpc,
    tool,
)
from core.secrets.planted import PLANTED, Place, content_type_of, message_of
from messages import asks, text

from mrtr_cassette.core.cassette.dump import dump
from mrtr_cassette.core.cassette.load import load
from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    RecordedExchange,
    RecordedInteraction,
)
from mrtr_cassette.core.cassette.transports import origin_of
from mrtr_cassette.core.record.publish_check import exposed_secrets
from mrtr_cassette.core.record.sharing import shareable_cassette
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.report.details import redactions_of
from mrtr_cassette.core.report.runs import report_of_replay, summary_text
from mrtr_cassette.core.wire.http import End, Piece, Request, Response
from mrtr_cassette.errors import CassetteError

UPSTREAM = "https://mcp.acme-corp.example:8443/tenants/acme-4711/mcp"
HERE = "/tenants/acme-4711/mcp"


def of_exchanges(
    *pairs: tuple[Request, Response], upstream: str = UPSTREAM
) -> Cassette:
    """Return a cassette that nothing was taken out of."""
    interactions = []
    for number, (request, response) in enumerate(pairs, start=1):
        exchange = RecordedExchange(number, request, response, 0, 0)
        interactions.append(
            RecordedInteraction(number, (exchange,), None, is_orphan=False)
        )

    whole = loaded(cassette_of())
    return replace(
        whole, upstream=upstream, redaction=None, interactions=tuple(interactions)
    )


def responding(
    raw: bytes,
    media_type: str = "application/json",
    *headers: tuple[str, str],
    status: int = 200,
) -> Response:
    """Return a response."""
    all_headers = (("Content-Type", media_type), *headers)
    return Response(status, all_headers, (Piece(raw, 0, 0),), End.COMPLETE)


def file_of(cassette: Cassette, **options: bool) -> str:
    """Return the file of a cassette for strangers, which loads and has no secret."""
    raw = dump(shareable_cassette(cassette, **options).cassette)
    again = load(raw, "bug.json")
    assert list(exposed_secrets(again)) == []
    assert dump(shareable_cassette(again, **options).cassette) == raw

    return raw.decode()


def test_no_planted_secret_is_in_a_shared_file() -> None:
    """Each is taken out of a cassette in which nothing was redacted, wherever it is."""
    pairs = []
    nothing = b'{"jsonrpc":"2.0","id":1,"result":{}}'
    for row in PLANTED:
        media_type = ("Content-Type", content_type_of(row))
        request = post(tool("t"))
        response = responding(nothing)
        if row.place is Place.TARGET:
            request = replace(request, target=row.raw)
        elif row.place is Place.HEADER:
            request = replace(request, headers=(("x-other", row.raw),))
        elif row.place in (Place.RESULT, Place.ERROR, Place.EVENT, Place.TEXT):
            response = responding(message_of(row), content_type_of(row))
        else:
            request = Request("POST", "/mcp", (media_type,), message_of(row))

        pairs.append((request, response))

    whole = of_exchanges(*pairs)

    assert len(pairs) >= 415
    assert sum(1 for _ in exposed_secrets(whole)) >= len(pairs)

    told = file_of(whole)
    for row in PLANTED:
        assert json.dumps(row.secret)[1:-1] not in told, row.name


CLIENT = {
    "name": "cli",
    "version": "1",
    "title": "Jo's laptop",
    "websiteUrl": "https://jo.example",
}
DEPLOY = tool("deploy", path="/home/jo/app", mail="jo@acme.example", at="10.1.2.3")
AGAIN = retry(
    DEPLOY, {"ok": {"action": "accept", "content": {"by": "C:\\Users\\jo\\x"}}}
)
DONE = "by jo@acme.example from 10.1.2.3, see https://mcp.acme-corp.example:8443/tenants/acme-4711/mcp"
SCRIPT = (
    (rpc("initialize", {"clientInfo": CLIENT}), {"serverInfo": {"name": "s"}}),
    (DEPLOY, asks("ok")),
    (AGAIN, text(DONE)),
    (tool("fetch", url="https://mcp.acme-corp.example:8443/file"), text("a b")),
)
PRIVATE = ("jo", "acme", "4711", "8443", "10.1.2.3", "tenants", "laptop")


def script() -> Cassette:
    """Return a conversation with much that could identify somebody."""
    whole = loaded(cassette_of(*SCRIPT), "c.json")
    moved = {}
    for interaction in whole.interactions:
        for exchange in interaction.unshared_exchanges:
            request = replace(exchange.request, target=HERE)
            moved[exchange] = replace(exchange, request=request)

    return replace(whole.with_exchanges(moved), upstream=UPSTREAM)


def test_what_identifies_is_taken_out_everywhere() -> None:
    """Address, path, users, mail, IPs and the client's own words; each is counted by its kind."""
    whole = script()
    told = file_of(whole)
    for private in PRIVATE:
        assert private not in told.replace('"json', "").replace("object", ""), private

    sharing = shareable_cassette(whole)

    assert sharing.shortened_client_count == 1

    counts = {
        found.rule: found.count for found in redactions_of(sharing.cassette, whole)
    }

    assert counts == {
        "shared-user": 3,
        "shared-email": 3,
        "shared-ip": 3,
        "shared-host": 2,
    }

    assert sharing.cassette.upstream == "https://<shared-host:1>/mcp"
    assert {
        found.exchanges[0].request.target for found in sharing.cassette.interactions
    } == {"/mcp"}
    assert "a b" in told
    assert "a b" not in file_of(whole, blanks_text=True)


def test_user_is_taken_out_however_many_others_are_found_after() -> None:
    """A name that only a path tells to be a user's is taken out of earlier text, too."""
    steps: list[Step] = [
        (tool("who"), text("deployed by mallory-4711 today")),
        (tool("home"), text("in /home/mallory-4711/src")),
    ]
    for number in range(300):
        mail = text(f"to bob{number}@corp{number}.example.org")
        steps.append((tool("mail", number=number), mail))

    assert "mallory" not in file_of(loaded(cassette_of(*steps)))


def test_same_client_still_plays_and_another_user_too() -> None:
    """A text matches another of its kind, which is told; one of no such kind doesn't."""
    part = load(dump(shareable_cassette(script()).cassette), "bug.json")
    player = Player(part)
    asked = play(player, DEPLOY)

    assert b"requestState" in asked or b"inputRequests" in asked

    play(player, AGAIN)
    play(player, SCRIPT[3][0])

    assert player.tally.match_counts_by_kind == {
        "shared-user": 3,
        "shared-email": 2,
        "shared-ip": 2,
        "shared-host": 1,
    }

    told = summary_text(report_of_replay(player))

    assert "  matched without being equal, by shared-email: 2 times" in told

    player = Player(part)
    of_another_user = tool(
        "deploy", path="/home/al/app", mail="al@other.example", at="10.9.9.9"
    )
    hit(player, of_another_user)
    missed(
        player, tool("deploy", path="/srv/app", mail="al@other.example", at="10.9.9.9")
    )


def test_challenge_still_leads_a_client_to_the_replay() -> None:
    """The server's origin is recognised where authorization names it."""
    document = "/.well-known/oauth-protected-resource/tenants/acme-4711/mcp"
    origin = "https://mcp.acme-corp.example:8443"
    challenge = ("WWW-Authenticate", f'Bearer resource_metadata="{origin}{document}"')
    refused = responding(b"", "text/plain", challenge, status=401)
    calling = replace(post(tool("t")), target=HERE)
    looking = Request("GET", document, (), b"")
    metadata = responding(json.dumps({"resource": UPSTREAM}).encode())
    whole = of_exchanges((calling, refused), (looking, metadata))

    part = shareable_cassette(whole).cassette
    known = origin_of(part)
    first, second = [found.exchanges[0] for found in part.interactions]

    assert first.response is not None
    assert second.response is not None

    headers = dict(
        known.headers_with_origin(first.response.headers, "http://127.0.0.1:1")
    )
    named = "http://127.0.0.1:1/.well-known/oauth-protected-resource/mcp"

    assert headers["WWW-Authenticate"] == f'Bearer resource_metadata="{named}"'
    assert named.endswith(second.request.target)

    document_now = known.document_with_origin(
        second.response.body, "http://127.0.0.1:1"
    )

    assert json.loads(document_now) == {"resource": "http://127.0.0.1:1/mcp"}


def test_server_on_pipes_has_no_folder() -> None:
    """Of the command that starts it, the names of files are left."""
    whole = replace(
        script(),
        transport="stdio",
        upstream="/opt/acme/bin/python /srv/acme/server.py --port 1",
        interactions=(),
    )

    assert shareable_cassette(whole).cassette.upstream == "python server.py --port 1"


def test_raw_states_are_not_shared() -> None:
    """A cassette with raw tokens is refused, with the way out."""
    whole = replace(script(), request_state="verbatim")
    with pytest.raises(CassetteError, match="record it again with sealed ones"):
        shareable_cassette(whole)


def test_page_of_an_error_is_a_text_too() -> None:
    """With all texts, a response that is not JSON is taken out whole; else it stays."""
    page = responding(b"<h1>Jo broke it</h1>", "text/html", status=500)
    whole = of_exchanges((post(tool("t")), page))

    assert "Jo broke it" in file_of(whole)
    assert '"text": "<shared-text:1>"' in file_of(whole, blanks_text=True)
