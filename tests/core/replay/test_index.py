from __future__ import annotations

from dataclasses import replace

from builders import as_request, converse, exchange, post, retry, tool, with_meta, with_token
from messages import CAPABILITIES_KEY, YES, asks, text

from mrtr_cassette.core.exchange.lookup import LookupKey, lookup_key
from mrtr_cassette.core.exchange.recorded import RecordedExchange
from mrtr_cassette.core.protocol.calls import Traits, read_call
from mrtr_cassette.core.replay.index import Candidates, Index
from mrtr_cassette.core.replay.playable import CassettePlace, Playable, playable
from mrtr_cassette.core.secrets.surrogates import sealed_hash, sha256_of
from mrtr_cassette.core.wire.http import Request

CALL = tool("deploy", env="prod")
STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"
CAPABLE = with_meta(CALL, **{CAPABILITIES_KEY: {"elicitation": {}}})
TOKEN = with_token(CALL, 1)


def known(recorded: RecordedExchange, interaction: int = 1) -> Playable:
    """Return a recorded exchange as a replay knows it."""
    return playable(recorded, CassettePlace(interaction, 0), recorded.request, (), ())


def recorded_as(request: bytes | Request, number: int = 1) -> Playable:
    """Return an exchange that was recorded with this request, the `number`th."""
    return known(exchange(request, text("done"), number=number), number)


def lookup_of(request: bytes | Request) -> LookupKey:
    """Return the lookup key of a request."""
    return lookup_key(read_call(as_request(request)))


def traits_of(request: bytes | Request) -> Traits:
    """Return the traits of a request."""
    return read_call(as_request(request)).traits


def candidates_of(*requests: bytes | Request) -> tuple[Candidates, list[Playable]]:
    """Return exchanges with these requests as candidates, and in recorded order."""
    candidates = Candidates()
    playables = [recorded_as(request, number) for number, request in enumerate(requests, 1)]
    for each in playables:
        candidates.add(each)
    return candidates, playables


def test_exchanges_with_equal_traits_are_nearest() -> None:
    """Those with all traits of the request come alone, in recorded order."""
    candidates, (first, other, second) = candidates_of(CALL, TOKEN, CALL)

    assert candidates.nearest(traits_of(CALL)) == [first, second]
    assert list(candidates) == [first, second, other]
    assert candidates.nearest(traits_of(TOKEN)) == [other]


def test_weightier_trait_comes_nearer() -> None:
    """A request with traits of two recordings gets the one that shares the weightiest."""
    candidates, (token, capable) = candidates_of(TOKEN, CAPABLE)
    both = with_meta(CALL, progressToken=7, **{CAPABILITIES_KEY: {"elicitation": {}}})

    assert candidates.nearest(traits_of(both)) == [token]
    assert candidates.nearest(traits_of(post(CAPABLE, ("Mcp-Name", "deploy")))) == [capable]


def test_equally_near_exchanges_come_in_recorded_order() -> None:
    """Recordings whose traits are as near as others' are merged by arrival."""
    requests = [post(CALL, ("Mcp-Name", name)) for name in ("a", "b", "a")]
    candidates, playables = candidates_of(*requests)

    assert candidates.nearest(traits_of(CALL)) == playables


def test_exchanges_of_unknown_arrival_come_as_the_file_has_them() -> None:
    """An exchange without a number comes after all that have one, by its interaction."""
    numbered = recorded_as(post(CALL, ("Mcp-Name", "a")), 7)
    recorded = exchange(post(CALL, ("Mcp-Name", "b")), text("done"))
    unnumbered = known(replace(recorded, number=None), 3)
    candidates = Candidates()
    for each in (unnumbered, numbered):
        candidates.add(each)

    assert candidates.nearest(traits_of(CALL)) == [numbered, unnumbered]


def test_exchange_is_found_by_its_lookup_key() -> None:
    """An index has the exchanges of one key together, and none of another."""
    index = Index(lambda lookup: lookup, has_placeholders=False)
    first, second = recorded_as(CALL, 1), recorded_as(CALL, 2)
    for each in (first, second, recorded_as(tool("other"), 3)):
        index.add(each)

    candidates = index.of(lookup_of(CALL))
    assert candidates is not None
    assert candidates.nearest(traits_of(CALL)) == [first, second]
    assert index.of(lookup_of(tool("third"))) is None


def test_exchange_is_found_by_the_raw_state_too() -> None:
    """A retry is found by the state in the cassette and by the one that was sent while recording."""
    _, echoed = converse(
        (CALL, asks("a", state=STATE)), (retry(CALL, {"a": YES}, state=STATE), text("done"))
    )
    surrogate = retry(CALL, {"a": YES}, state="mrtr-state:0000000000000000:1:1")
    answered = playable(echoed, CassettePlace(1, 1), post(surrogate), (), ())
    index = Index(lambda lookup: lookup, has_placeholders=False)
    index.add(answered)

    for state in (STATE, sealed_hash(STATE), "mrtr-state:0000000000000000:1:1"):
        candidates = index.of(lookup_of(retry(CALL, {"a": YES}, state=state)))
        assert candidates is not None, state
        assert candidates.nearest(answered.traits) == [answered]
    assert index.of(lookup_of(retry(CALL, {"a": YES}, state="another"))) is None


def test_exchange_with_its_raw_state_is_there_once() -> None:
    """Where the cassette has the raw state, an exchange is not added under its hash again."""
    (echoed,) = converse((retry(CALL, {"a": YES}, state=STATE), text("done")), seals=False)
    answered = known(echoed)
    index = Index(lambda lookup: lookup, has_placeholders=False)
    index.add(answered)

    assert echoed.echoed_sha256 == sha256_of(STATE) == answered.lookup.state
    candidates = index.of(answered.lookup)
    assert candidates is not None
    assert candidates.nearest(answered.traits) == [answered]


def test_secret_is_found_under_any_rule_where_some_were_recorded() -> None:
    """A placeholder of one rule finds the one of another, but only in a cassette that has some."""
    placed = recorded_as(tool("login", with_="<github>"))
    plain = recorded_as(tool("login", with_="none"), 2)
    index, without = (
        Index(lambda lookup: lookup, has_placeholders=True),
        Index(lambda lookup: lookup, has_placeholders=False),
    )
    for each in (placed, plain):
        index.add(each)
        without.add(each)
    other_rule = lookup_of(tool("login", with_="<password>"))

    candidates = index.of_any_rule(other_rule)
    assert candidates is not None
    assert candidates.nearest(placed.traits) == [placed]
    assert index.of(other_rule) is None
    assert index.of_any_rule(plain.lookup) is None
    assert without.of_any_rule(other_rule) is None
