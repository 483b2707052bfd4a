"""A call that is cut out of a recording is a cassette by itself, as it was recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import cassette_of, loaded, retry, rpc, session_steps, tool
from messages import asks, text
from pushing import branched

from mrtr_cassette.core.cassette.dump import dump, exchange_sha256
from mrtr_cassette.core.cassette.load import load
from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.compare.conversations import (
    cassette_comparison,
    ignores_nothing,
)
from mrtr_cassette.core.drive.cut import cut_out_calls, last_call
from mrtr_cassette.core.replay.diagnosis import Miss
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.secrets.names import ANSWER, has_kind, has_secrets

ROOT = Path(__file__).parents[3]
PATHS = sorted(
    [*ROOT.glob("cassettes/*.json"), *ROOT.glob("tests/data/frozen/*/*.cassette.json")]
)
YES = {"action": "accept", "content": {"ok": True}}
NO = {"action": "decline"}


def digests_of(cassette: Cassette) -> list[str]:
    """Return the digests of all exchanges, in the order of the file."""
    digests = []
    for interaction in cassette.interactions:
        for exchange in interaction.unshared_exchanges:
            digests.append(exchange_sha256(exchange.request, exchange.response))

    return digests


def calls_of(cassette: Cassette) -> list[str]:
    """Return the calls, in the order of the file."""
    return [str(found.exchanges[0].call.title) for found in cassette.interactions]


def check_by_itself(part: Cassette, whole: Cassette) -> None:
    """Make sure that a part loads, is as recorded, is the same as itself, and is played."""
    file = dump(part)
    again = load(file, "part.json")
    assert dump(again) == file
    left = iter(digests_of(whole))
    assert all(digest in left for digest in digests_of(again))
    assert cassette_comparison(again, part, ignores_nothing).is_same
    player = Player(again)
    for interaction in again.interactions:
        for exchange in interaction.exchanges[interaction.shared_count :]:
            # A client sends secrets and answers, and not their placeholders and hashes.
            body = exchange.request.body
            if not has_secrets(body) and not has_kind(body, ANSWER):
                assert not isinstance(player.request_received(exchange.request), Miss)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_each_call_is_a_cassette_by_itself(path: Path) -> None:
    """Exchanges keep their bytes and their order, whatever call is cut out, and play again."""
    whole = load(path.read_bytes(), str(path))
    for interaction in whole.interactions:
        for alone in (False, True):
            check_by_itself(
                cut_out_calls(whole, [interaction.number], alone=alone), whole
            )


def test_branch_and_pushed_questions_keep_what_asks_them() -> None:
    """A branch keeps the call that it shares, and a question on a stream of its own that stream."""
    whole = branched()
    for interaction in whole.interactions:
        part = cut_out_calls(whole, [interaction.number])
        again = load(dump(part), "part.json")

        assert cassette_comparison(again, part, ignores_nothing).is_same

        turns = [len(found.pushed_turns) for found in whole.interactions]
        kept = [len(found.pushed_turns) for found in again.interactions]

        assert max(kept) <= max(turns)

    branch = next(found for found in whole.interactions if found.branch is not None)

    assert len(cut_out_calls(whole, [branch.number]).interactions) > 1


LISTED = {"tools": [{"name": "get", "annotations": {"readOnlyHint": True}}]}
SCRIPT = (
    (rpc("server/discover"), {"serverInfo": {"name": "s"}}),
    (rpc("tools/list"), LISTED),
    (rpc("prompts/list"), {"prompts": []}),
    (tool("get", key="a"), text("nothing")),
    (tool("put", key="a"), text("done")),
    (tool("put", key="b"), asks("ok")),
    (retry(tool("put", key="b"), {"ok": YES}), text("id 7f3a9c21d4")),
    (rpc("server/discover"), {"serverInfo": {"name": "s"}}),
    (tool("get", key="7f3a9c21d4"), text("found")),
    (tool("put", key="c"), text("done")),
)


def test_call_has_what_it_needs_and_no_more() -> None:
    """The last opening before it, the list of its kind, earlier writes; alone, without the writes."""
    whole = loaded(cassette_of(*SCRIPT))
    found = calls_of(whole).index('tools/call "get"', 4) + 1
    part = cut_out_calls(whole, [found])

    assert calls_of(part) == [
        "tools/list",
        'tools/call "put"',
        'tools/call "put"',
        "server/discover",
        'tools/call "get"',
    ]

    assert calls_of(cut_out_calls(whole, [found], alone=True)) == [
        "tools/list",
        "server/discover",
        'tools/call "get"',
    ]
    assert last_call(whole) == found + 1


def test_call_of_a_session_has_its_opening_and_nothing_of_another() -> None:
    """Its `initialize` and the notice after it, and writes of its own session."""
    steps = []
    for session in ("one-0123456789abcdef", "two-0123456789abcdef"):
        steps += session_steps(
            session,
            (tool("put", of=session[:3]), text("done")),
            (tool("end"), text("over")),
        )

    whole = loaded(cassette_of(*steps))
    part = cut_out_calls(whole, [last_call(whole)])

    assert calls_of(part)[0] == "initialize"
    assert calls_of(part).count('tools/call "put"') == 1
    assert len(part.interactions) * 2 == len(whole.interactions)

    check_by_itself(part, whole)
