"""What a user of the library writes; `mypy --strict` agrees with every type (test_api.py)."""

from __future__ import annotations

from dataclasses import replace as replaced
from pathlib import Path
from typing import Any, Literal, assert_type

from mrtr_cassette import (
    CassetteError,
    ClientRequest,
    Interaction,
    MissReport,
    MrtrCassette,
    MrtrCassetteError,
    Recording,
    RecordOptions,
    Replay,
    ReplayOptions,
    Turn,
    UsageError,
    record,
    replay,
)


def in_plain_code(upstream: str, cassette: Path) -> None:
    """Record, then replay, with blocks that run anywhere."""
    with record(upstream, cassette, headers={"Authorization": "Bearer x"}) as recording:
        assert_type(recording, Recording)
        assert_type(recording.url, str)
        assert_type(recording.path, Path)
        assert_type(recording.interactions, tuple[Interaction, ...])
        assert_type(recording.problem, str | None)

    with replay(
        "cassette.json", ignore=["/arguments/at"], repeat="always"
    ) as replaying:
        assert_type(replaying, Replay)
        assert_type(replaying.misses, tuple[MissReport, ...])
        assert_type(replaying.misses[0].reason, str)
        assert_type(replaying.unplayed, tuple[Interaction, ...])
        assert_type(replaying.interactions[0].turns, tuple[Turn, ...])


def what_goes_wrong(upstream: str) -> str | None:
    """Tell errors apart by what can be done about them."""
    try:
        with record(upstream, existing="append", ignore=["/arguments/at"]):
            pass
    except UsageError as error:
        return error.hint
    except CassetteError as error:
        return error.reason
    except MrtrCassetteError as error:
        assert_type(error.exit_code, int)

    return None


def the_options() -> None:
    """Look at the defaults."""
    assert_type(RecordOptions().request_state, Literal["sealed", "verbatim"])
    assert_type(ReplayOptions(ignore=["/arguments/at"]).port, int)


def same_tool(recorded: ClientRequest, received: ClientRequest) -> bool:
    """Tell whether two requests match."""
    assert_type(recorded.name, str | None)
    assert_type(recorded.arguments, dict[str, Any])
    assert_type(recorded.answers, dict[str, Any] | None)
    assert_type(recorded.body, bytes)

    return recorded.method == received.method


def without_lists(request: ClientRequest) -> ClientRequest | None:
    """Change a request, or leave its call out."""
    if request.method == "tools/list":
        return None
    return replaced(request, arguments={})


def the_functions() -> None:
    """Give kinds or a function, and what changes requests."""
    ReplayOptions(match={"/arguments/id": "uuid"})
    RecordOptions(existing="append", match=same_tool, before_record=without_lists)
    with replay("c.json", match=same_tool, before_record=without_lists) as replaying:
        assert_type(replaying, Replay)


async def in_asyncio(upstream: str) -> None:
    """Do the same in the running event loop."""
    async with record(upstream) as recording:
        assert_type(recording, Recording)

    async with replay(recording.path) as replaying:
        assert_type(replaying, Replay)


def test_with_the_fixture(mrtr_cassette: MrtrCassette) -> None:
    """Annotate the fixture of the pytest plugin."""
    assert_type(mrtr_cassette.url, str)
    assert_type(mrtr_cassette.is_recording, bool)
    assert_type(mrtr_cassette.misses, tuple[MissReport, ...])
    assert_type(mrtr_cassette.unplayed, tuple[Interaction, ...])
