"""A client that has a copy may be told that it is fresh; any other gets the whole."""

from __future__ import annotations

import pytest
from builders import (
    Answer,
    cassette_of,
    get,
    heard,
    hit,
    loaded,
    missed,
    player_of,
    sent_now,
)

from mrtr_cassette.core.replay.diagnosis import Reason
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.wire.http import Headers, header_value

VALIDATORS: Headers = (
    ("ETag", '"v1"'),
    ("Last-Modified", "Sat, 28 Nov 2026 10:00:00 GMT"),
    ("Cache-Control", "max-age=60"),
)
WHOLE = Answer((b"whole",), VALIDATORS)
FRESH = Answer((), VALIDATORS[:1], status=304)
PLAIN = get("/.well-known/oauth-protected-resource")
CONDITIONS = [
    ("If-None-Match", '"v1"'),
    ("If-Modified-Since", "Sat, 28 Nov 2026 10:00:00 GMT"),
]


@pytest.mark.parametrize("condition", CONDITIONS, ids=lambda condition: condition[0])
@pytest.mark.parametrize("first", ["whole", "fresh"])
def test_only_a_conditional_request_is_told_that_nothing_changed(
    condition: tuple[str, str], first: str
) -> None:
    """Each request gets its own answer, whichever was recorded first, and any validator will do."""
    conditional = get(PLAIN.target, condition)
    script = [(PLAIN, WHOLE), (conditional, FRESH)]
    player = player_of(*script if first == "whole" else script[::-1])

    whole = hit(player, PLAIN)

    assert whole.delivery is not None
    assert sent_now(whole) == b"whole"
    assert whole.delivery.headers == VALIDATORS

    other_value = get(PLAIN.target, (condition[0].lower(), "another"))

    assert heard(player, other_value) == ""
    assert heard(player, PLAIN) == "whole"


def test_answer_to_a_condition_is_no_answer_without_one() -> None:
    """A client without a copy gets a miss, also from an older cassette without the condition."""
    conditional = get(PLAIN.target, CONDITIONS[0])
    for recorded in (conditional, PLAIN):
        player = player_of((recorded, FRESH))

        assert missed(player, PLAIN).reason is Reason.CONDITION_MISSING
        assert heard(player, conditional) == ""


def test_client_that_has_a_copy_may_get_the_whole() -> None:
    """A server may send what it would send anyway."""
    assert heard(player_of((PLAIN, WHOLE)), get(PLAIN.target, CONDITIONS[0])) == "whole"


def test_of_a_condition_only_the_name_is_recorded() -> None:
    """The value is that of an earlier response, and new whenever that is."""
    cassette = loaded(cassette_of((get(PLAIN.target, CONDITIONS[0]), FRESH)))

    (exchange,) = cassette.interactions[0].exchanges

    assert exchange.request.headers == (("If-None-Match", ""),)


def test_nonce_that_a_client_signs_is_played() -> None:
    """Without it, a client that binds its token to a key (RFC 9449) would never get in."""
    challenge = Answer((), (("DPoP-Nonce", "eyJ7S_zG.eyJH0-Z.HX4w-7v"),), status=401)
    player = player_of((PLAIN, challenge), redacts=True)

    delivery = hit(player, PLAIN).delivery

    assert delivery is not None
    assert header_value(delivery.headers, "dpop-nonce") == "eyJ7S_zG.eyJH0-Z.HX4w-7v"


def test_condition_of_a_header_that_the_user_named_has_its_value() -> None:
    """`--match-header If-None-Match` tells two copies apart."""
    conditional = [get(PLAIN.target, ("If-None-Match", tag)) for tag in ("a", "b")]
    script = [
        (conditional[0], Answer((b"for a",), ())),
        (conditional[1], Answer((b"for b",), ())),
    ]

    cassette = cassette_of(*script, kept_headers=frozenset({"if-none-match"}))
    player = Player(loaded(cassette))

    assert [heard(player, request) for request in reversed(conditional)] == [
        "for b",
        "for a",
    ]
