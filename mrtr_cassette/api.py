"""The library: recording and replaying from Python.

Owns: `record` and `replay`, and what they show of a run.
Does not own: what happens meanwhile (`shell.recording`, `shell.replaying`).
Rule: the options are those of the command line, under the same names and with the same defaults,
but for the port: here a free one is taken.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from mrtr_cassette.core.format.model import CassetteModel
from mrtr_cassette.core.replay.player import Player, Repeat
from mrtr_cassette.core.report.report import inspection, miss_data, miss_text, not_led_text
from mrtr_cassette.core.wire.http import LARGEST_BODY
from mrtr_cassette.core.wire.jsonbytes import Path as MemberPath
from mrtr_cassette.errors import UsageError
from mrtr_cassette.options import ignored_member, redaction_rules, upstream_header
from mrtr_cassette.shell import files
from mrtr_cassette.shell.background import Proxy
from mrtr_cassette.shell.http_server import Access
from mrtr_cassette.shell.publishing import recorded_so_far
from mrtr_cassette.shell.recording import RecordSession, recording
from mrtr_cassette.shell.replaying import ReplaySession, replaying

FilePath = str | os.PathLike[str]
Log = Callable[[str], None]

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Turn:
    """One elicitation turn of an interaction.

    Attributes:
        asked: what the server asked, as the message shown to the user, by key.
        answered: what the client answered, as JSON, by key; None where it never did.
    """

    asked: Mapping[str, str]
    answered: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Interaction:
    """One logical call on a cassette.

    Attributes:
        number: its number on the cassette, from 1.
        call: what was called, such as `tools/call "deploy"`.
        arguments: its arguments as JSON; None where it had none.
        turns: what was asked and answered before it ended.
        ended: how it ended, such as `HTTP 200, result`.
    """

    number: int
    call: str
    arguments: Any
    turns: tuple[Turn, ...]
    ended: str


@dataclass(frozen=True, slots=True)
class Miss:
    """A request that was not recorded.

    Attributes:
        reason: one of the reasons in docs/matching.md, such as `answers-differ`.
        text: the miss as people read it, several lines.
        facts: the same as JSON, as the client got it in `error.data`.
    """

    reason: str
    text: str
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording under way, or done."""

    _session: RecordSession

    @property
    def url(self) -> str:
        """What the client connects to."""
        return self._session.url

    @property
    def path(self) -> Path:
        """The cassette, which is written when the block ends."""
        return self._session.path

    @property
    def interactions(self) -> tuple[Interaction, ...]:
        """What has been recorded so far, with what was on a cassette that is added to."""
        session = self._session
        cassette = session.published or recorded_so_far(self.path) or session.earlier
        return () if cassette is None else _interactions(cassette, self.path)

    @property
    def unplayed(self) -> tuple[Interaction, ...]:
        """What is on a cassette that is added to and was not, or not wholly, played so far."""
        session = self._session
        if session.earlier is None or session.player is None:
            return ()
        return _unplayed(session.earlier, session.player)

    @property
    def not_led(self) -> tuple[str, ...]:
        """Why retries were not recorded: the live server no longer asks what was recorded."""
        player = self._session.player
        if player is None:
            return ()
        path = str(self.path)
        return tuple(
            player.redacted(not_led_text(one, path)) for one in tuple(self._session.not_led)
        )

    @property
    def problem(self) -> str | None:
        """Why the recording is not whole, or None."""
        return self._session.problem

    @property
    def unreachable(self) -> int:
        """How many requests the upstream did not answer."""
        return self._session.unreachable


@dataclass(frozen=True, slots=True)
class Replay:
    """A replay under way, or done."""

    _session: ReplaySession

    @property
    def url(self) -> str:
        """What the client connects to."""
        return self._session.url

    @property
    def path(self) -> Path:
        """The cassette."""
        return Path(self._session.player.path)

    @property
    def interactions(self) -> tuple[Interaction, ...]:
        """What is on the cassette."""
        return _interactions(files.read_cassette(self.path), self.path)

    @property
    def misses(self) -> tuple[Miss, ...]:
        """What was asked so far and had not been recorded."""
        return _misses(self._session.player)

    @property
    def unplayed(self) -> tuple[Interaction, ...]:
        """What is on the cassette and was not, or not wholly, played so far."""
        return _unplayed(files.read_cassette(self.path), self._session.player)


def record(
    upstream: str,
    path: FilePath = "cassette.json",
    *,
    existing: Literal["keep", "replace", "append"] = "keep",
    ignore: Collection[str] = (),
    repeat: Literal["auto", "always", "never"] = "auto",
    headers: Mapping[str, str] | None = None,
    request_state: Literal["sealed", "verbatim"] = "sealed",
    redact: Sequence[str] = (),
    redact_keys: Sequence[str] = (),
    no_redact: Sequence[str] = (),
    seal_answers: bool = False,
    ca_file: FilePath | None = None,
    insecure: bool = False,
    fsync: bool = False,
    host: str = "127.0.0.1",
    port: int = 0,
    allow_hosts: Collection[str] = (),
    allow_origins: Collection[str] = (),
    max_body: int = LARGEST_BODY,
    log: Log | None = None,
) -> Proxy[Recording]:
    """Record what passes between a client and a server, in a `with` or an `async with` block.

    The cassette is written when the block ends, also where it ends with an exception.

    Args:
        upstream: URL of the real server, as the client would name it.
        path: the cassette to write.
        existing: what becomes of a cassette that exists: it is left alone, which is an error; it
            is replaced; or what it has is played, and what it lacks is recorded and added.
        ignore: with `append`: JSON Pointers of values that don't count in matching.
        repeat: with `append`: whether a call may be played more often than recorded.
        headers: added to every upstream request, in the place of the client's of that name.
        request_state: `sealed`: raw states never reach the disk; `verbatim`: kept as they are.
        redact: regular expressions whose matches become placeholders; of one with a group,
            group 1 does.
        redact_keys: further member names whose values become placeholders.
        no_redact: names of rules, or member names, that are switched off.
        seal_answers: of what users answer only hashes are kept.
        ca_file: certificates (PEM) by which a TLS upstream is verified, besides the system's.
        insecure: a TLS upstream is not verified.
        fsync: each exchange is on the medium before its client has it.
        host: address to listen on; any but loopback opens the proxy to others.
        port: port to listen on; 0 takes a free one.
        allow_hosts: further names under which clients may call the proxy.
        allow_origins: further origins whose pages may call it, such as `https://app.example`.
        max_body: bytes of the largest body that is taken and kept.
        log: takes one line for each exchange and each problem, from the proxy's thread.

    Raises:
        UsageError: an option is wrong; or, when the block begins, the address can't be bound.
        CassetteError: when the block begins or ends: the cassette can't be written, or exists.
    """
    access = _access(host, port, allow_hosts, allow_origins, max_body)
    opened = partial(
        recording,
        upstream,
        Path(path),
        access=access,
        headers=tuple(
            upstream_header(name, value, f"header {name!r} is none that HTTP can carry")
            for name, value in (headers or {}).items()
        ),
        request_state=_one_of("request_state", request_state, ("sealed", "verbatim")),
        existing=_one_of("existing", existing, ("keep", "replace", "append")),
        ignored=_ignored(ignore),
        repeat=_repeat(repeat),
        redaction=redaction_rules(redact, redact_keys, no_redact),
        seals_answers=seal_answers,
        ca_file=None if ca_file is None else Path(ca_file),
        verifies=not insecure,
        syncs=fsync,
        log=log,
    )
    return Proxy(partial(_shown_as, Recording, opened))


def replay(
    path: FilePath,
    *,
    ignore: Collection[str] = (),
    repeat: Literal["auto", "always", "never"] = "auto",
    pace: Literal["none", "recorded"] = "none",
    host: str = "127.0.0.1",
    port: int = 0,
    allow_hosts: Collection[str] = (),
    allow_origins: Collection[str] = (),
    max_body: int = LARGEST_BODY,
    log: Log | None = None,
) -> Proxy[Replay]:
    """Serve a cassette as if it were the server, in a `with` or an `async with` block.

    A request that was not recorded is no exception here: its client gets an error, and it is one
    of the `misses`.

    Args:
        path: the cassette.
        ignore: JSON Pointers into the params of values that don't count in matching.
        repeat: whether a call may be played more often than recorded; `auto`: where it only reads.
        pace: whether event streams are sent at once, or in the recorded rhythm.
        host: address to listen on; any but loopback opens the proxy to others.
        port: port to listen on; 0 takes a free one.
        allow_hosts: further names under which clients may call the proxy.
        allow_origins: further origins whose pages may call it, such as `https://app.example`.
        max_body: bytes of the largest body that is taken.
        log: takes the text of each miss, from the proxy's thread.

    Raises:
        UsageError: an option is wrong; or, when the block begins, the address can't be bound.
        CassetteError: when the block begins: the cassette can't be read.
    """
    opened = partial(
        replaying,
        Path(path),
        access=_access(host, port, allow_hosts, allow_origins, max_body),
        ignored=_ignored(ignore),
        repeat=_repeat(repeat),
        paced=_one_of("pace", pace, ("none", "recorded")) == "recorded",
        log=log,
    )
    return Proxy(partial(_shown_as, Replay, opened))


@asynccontextmanager
async def _shown_as(
    view: Callable[[S], T], opened: Callable[[], AbstractAsyncContextManager[S]]
) -> AsyncIterator[T]:
    """Run a session of the shell, and give the view of it that users get."""
    async with opened() as session:
        yield view(session)


def _access(
    host: str,
    port: int,
    allow_hosts: Collection[str],
    allow_origins: Collection[str],
    max_body: int,
) -> Access:
    return Access(host, port, tuple(allow_hosts), tuple(allow_origins), max_body)


def _ignored(pointers: Collection[str]) -> list[MemberPath]:
    if isinstance(pointers, str):
        raise UsageError("ignore is one text", hint=f"give a list: ignore=[{pointers!r}]")
    return [ignored_member(pointer, "ignore:") for pointer in pointers]


def _repeat(value: str) -> Repeat:
    return Repeat(_one_of("repeat", value, [each.value for each in Repeat]))


def _one_of(option: str, value: Any, known: Sequence[str]) -> Any:
    if value not in known:
        raise UsageError(f"{option} is {value!r}, and not one of {', '.join(known)}")
    return value


def _misses(player: Player) -> tuple[Miss, ...]:
    return tuple(
        Miss(
            miss.reason.value,
            player.redacted(miss_text(miss, player.path)),
            miss_data(miss, player.path),
        )
        for miss in tuple(player.misses)
    )


def _unplayed(cassette: CassetteModel, player: Player) -> tuple[Interaction, ...]:
    numbers = set(player.unplayed)
    shown = _interactions(cassette, Path(player.path))
    return tuple(one for one in shown if one.number in numbers)


def _interactions(cassette: CassetteModel, path: Path) -> tuple[Interaction, ...]:
    shown = inspection(cassette, Player(cassette, str(path)))
    return tuple(
        Interaction(
            number=one["number"],
            call=one["call"],
            arguments=None if one["arguments"] is None else json.loads(one["arguments"]),
            turns=tuple(_turn(turn) for turn in one["turns"]),
            ended=one["ended"],
        )
        for one in shown["interactions"]
    )


def _turn(turn: dict[str, Any]) -> Turn:
    answered = turn["answered"]
    return Turn(
        asked={asked["key"]: asked["message"] for asked in turn["asked"]},
        answered=None
        if answered is None
        else {key: json.loads(value) for key, value in answered.items()},
    )
