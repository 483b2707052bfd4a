"""Laws of values over recorder and player: a run in another folder plays, and says its own."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest
from builders import (
    JOURNAL_HEADER,
    Answer,
    Conversation,
    missed,
    play,
    retry,
    rpc,
    sse,
    tool,
    with_id,
)
from hypothesis import given
from hypothesis import strategies as st
from messages import asks, compact, result, text

from mrtr_cassette.core.cassette.dump import dump
from mrtr_cassette.core.cassette.load import load
from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.drive.rerecording import recorded_over
from mrtr_cassette.core.record.assembly import assemble
from mrtr_cassette.core.replay.diagnosis import Reason
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.secrets.values import Values

HERE = "/tmp/pytest-1/test_a0"
THERE = "/var/folders/x y/pytest-9/test_a0"
_SAFE = "/:@!$&'()*+,;=~"
STATES = re.compile(rb"mrtr-state:[0-9a-f:]+")
STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"


def read(folder: str, name: str) -> bytes:
    """Return a call that reads a file of a folder."""
    return tool("read", path=f"{folder}/{name}")


def script(folder: str) -> list[tuple[bytes, Any]]:
    """Return what a client and a server of files say in a folder."""
    uri = f"file://{quote(folder, _SAFE)}"
    write = tool("write", path=f"{folder}/one.txt", content="{root} is literal")
    found = {"content": [{"type": "resource_link", "uri": f"{uri}/one.txt"}]}
    roots = {"roots": {"roots": [{"uri": uri, "name": "root"}]}}
    event = compact(result(text(f"in\n{folder}/new.txt, not in {HERE}0"), id=4))

    return [
        (read(folder, "one.txt"), text(f"{folder}/one.txt is 'one'")),
        (rpc("resources/read", {"uri": f"{uri}/one.txt"}, 2), result(found, id=2)),
        (with_id(write, 3), asks("roots", state=STATE)),
        (retry(with_id(write, 3), roots, state=STATE), text("written")),
        (
            with_id(tool("watch", path=folder), 4),
            Answer([sse(event)], (("Content-Type", "text/event-stream"),)),
        ),
    ]


def recorded(folder: str, texts: dict[str, str] | None = None) -> Cassette:
    """Return the cassette of a run in a folder."""
    values = Values((), {"root": folder} if texts is None else texts)
    run = Conversation()
    run.recorder.sealer.values = values
    for request, response in script(folder):
        run.exchange(request, response)

    header = replace(JOURNAL_HEADER, values=values.names)
    journal = {exchange.number or 0: exchange for exchange in run.exchanges}
    return load(dump(assemble(header, journal, "test")), "f")


def played(cassette: Cassette, folder: str, texts: dict[str, str]) -> list[bytes]:
    """Return what a client in a folder gets."""
    player = Player(cassette)
    player.normaliser.values = Values(cassette.values, texts)
    got: list[bytes] = []
    for request, _ in script(folder):
        sent = request
        if got and b"inputResponses" in request:
            issued = json.loads(got[-1])["result"]["requestState"]
            sent = request.replace(STATE.encode(), issued.encode())

        got.append(play(player, sent))

    assert not player.tally.misses
    return got


@pytest.mark.parametrize("folder", [HERE, THERE])
def test_a_suite_recorded_in_one_folder_plays_in_another(folder: str) -> None:
    """Paths, URIs, answers with roots and events have this run's folder, and literals stay."""
    cassette = recorded(HERE)

    assert HERE.encode() not in dump(cassette).replace(f"{HERE}0".encode(), b"")
    assert "{=root} is literal" in dump(cassette).decode()

    got = played(cassette, folder, {"root": folder})
    unnamed = played(recorded(folder, {}), folder, {})

    assert [STATES.sub(b"", body) for body in got] == [
        STATES.sub(b"", body) for body in unnamed
    ]


def test_a_recording_in_another_folder_changes_no_line() -> None:
    """Recorded again elsewhere, the cassette itself stays."""
    cassette = recorded(HERE)
    again, kept = recorded_over(cassette, recorded(THERE))

    assert again is cassette
    assert kept == len(cassette.interactions)


def test_another_file_is_a_miss() -> None:
    """Whoever asks for two.txt doesn't get one.txt, with or without a text for the value."""
    for texts in ({"root": THERE}, {}):
        player = Player(recorded(HERE))
        player.normaliser.values = Values(["root"], texts)

        assert missed(player, read(THERE, "two.txt")).reason is Reason.ARGUMENTS_DIFFER
        assert not player.tally.learned


def test_a_value_is_learned_from_the_first_request_and_held_to() -> None:
    """A run without a text learns it where it can be only one; another folder is a miss then."""
    cassette = recorded(HERE)
    template = Player(cassette)
    player = template.fresh_player()

    assert THERE.encode() in play(player, read(THERE, "one.txt"))
    assert b"/elsewhere" in play(template.fresh_player(), read("/elsewhere", "one.txt"))
    assert player.tally.learned == {"root": THERE}
    assert (
        missed(player, read("/elsewhere", "one.txt")).reason is Reason.ARGUMENTS_DIFFER
    )

    uri = f"file://{quote(THERE, _SAFE)}/one.txt"

    assert uri.encode() in play(player, rpc("resources/read", {"uri": uri}))


def test_each_play_of_a_cassette_learns_by_itself() -> None:
    """Players of one cassette, such as of several trials, have texts of their own."""
    first = Player(recorded(HERE))
    for folder in (THERE, "/wk", HERE):
        player = first.fresh_player()

        assert folder.encode() in play(player, read(folder, "one.txt"))
        assert player.tally.learned == {"root": folder}

    assert not first.tally.learned


def test_a_number_teaches_a_value_too() -> None:
    """A port that stands in the arguments as a number is learned as it is from a URL."""
    run = Conversation()
    run.recorder.sealer.values = Values((), {"port": "41234"})
    for number in (41234, 80):
        run.exchange(tool("connect", port=number), text(f"to {number}"))

    header = replace(JOURNAL_HEADER, values=("port",))
    journal = {exchange.number or 0: exchange for exchange in run.exchanges}
    player = Player(load(dump(assemble(header, journal, "test")), "f"))

    assert b"to 5999" in play(player, tool("connect", port=5999))
    assert player.tally.learned == {"port": "5999"}
    assert b"to 80" in play(player, tool("connect", port=80))


def listing() -> Cassette:
    """Return a cassette in which a folder and one within it are listed, and where they are."""
    run = Conversation()
    run.recorder.sealer.values = Values((), {"root": HERE})
    for request in (tool("list", path=HERE), tool("list", path=f"{HERE}/sub")):
        run.exchange(request, text("a b"))

    run.exchange(rpc("tools/list"), text(HERE))
    header = replace(JOURNAL_HEADER, values=("root",))
    journal = {exchange.number or 0: exchange for exchange in run.exchanges}

    return load(dump(assemble(header, journal, "test")), "f")


def test_an_ambiguous_request_teaches_nothing() -> None:
    """A path that may be the folder, or one within it, is a miss that names the texts."""
    player = Player(listing())
    miss = missed(player, tool("list", path="/wk/sub"))

    assert miss.reason is Reason.VALUE_UNKNOWN
    assert "{root} = /wk/sub" in miss.detail
    assert "{root} = /wk," in f"{miss.detail},"

    play(player, tool("list", path="/wk"))

    assert player.tally.learned == {"root": "/wk"}

    play(player, tool("list", path="/wk/sub"))


def test_a_response_with_a_value_that_nobody_has_said_is_a_miss() -> None:
    """A value is never guessed: the recorded folder is played to nobody."""
    miss = missed(Player(listing()), rpc("tools/list"))

    assert miss.reason is Reason.VALUE_UNKNOWN
    assert "{root}" in miss.detail


@given(
    st.text('/ab é"\\{}', min_size=3, max_size=12),
    st.text('/ab é"\\{}', min_size=3, max_size=12),
)
def test_playing_with_other_values_is_recording_with_them(
    first_name: str, second_name: str
) -> None:
    """Whatever two folders are called, a client in the second gets what its own recording has."""
    first = f"/w{first_name}w"
    second = f"/w{second_name}w"

    def run(folder: str, texts: dict[str, str]) -> tuple[Cassette, bytes]:
        talk = Conversation()
        talk.recorder.sealer.values = Values((), texts)
        request = tool("read", path=f"{folder}/one.txt")
        response = text(f"{folder}/one.txt {{root}}\n{folder}")
        talk.exchange(request, response)
        header = replace(JOURNAL_HEADER, values=tuple(texts))
        made = assemble(header, {1: talk.exchanges[0]}, "test")

        return load(dump(made), "f"), request

    cassette, _ = run(first, {"root": first})
    plain, request = run(second, {})
    player = Player(cassette)
    player.normaliser.values = Values(("root",), {"root": second})

    assert play(player, request) == play(Player(plain), request)


def test_a_cassette_without_values_is_untouched() -> None:
    """What looks like a reference is a text like any other where no value is named."""
    cassette = recorded(HERE, {})

    assert cassette.values == ()
    assert b'"values"' not in dump(cassette)
    assert "{root} is literal" in dump(cassette).decode()
