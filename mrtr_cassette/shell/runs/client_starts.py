"""Have a client start a recording or a replay on pipes, any number of times."""

# A replay loads no client and no recorder: what records imports them in its functions.

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import secrets
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import ConfigDict, TypeAdapter

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.cassette.texts import combine_cassettes
from mrtr_cassette.core.replay.faults import FaultOutcome, read_faults
from mrtr_cassette.core.report.text import as_data
from mrtr_cassette.core.report.trials import RecordingsLeft, RunOutcome
from mrtr_cassette.errors import MrtrCassetteError, UsageError
from mrtr_cassette.options import Options, RecordOptions, ReplayOptions
from mrtr_cassette.shell.files.cassettes import (
    cassette_exists,
    journal_path,
    load_cassette,
)
from mrtr_cassette.shell.files.disk import is_free_within, is_locked
from mrtr_cassette.shell.files.stores import (
    Location,
    StoreFile,
    fetched_texts,
    keep_fetched,
)
from mrtr_cassette.shell.runs.piped import StartingClient, replay_pipe
from mrtr_cassette.shell.runs.proxy_runs import ProxyRun
from mrtr_cassette.shell.runs.replaying import load_played
from mrtr_cassette.shell.runs.running import run

T = TypeVar("T")

# What a client starts is a process of its own, and clients hand on neither their environment nor
# descriptors: its work and its outcomes pass as JSON, in the files of a folder. A line of the
# outcomes is a process and what it came to by then, but for what its earlier lines list.

_WORK_FILE: Final = "work.json"
_OUTCOMES_FILE: Final = "outcomes"
_GROWING_LISTS: Final = ("misses", "unrecorded")
"""Lists of an outcome that grow, of which a line has the new items."""

_PUBLISHING_S: Final = 5.0
"""Seconds for processes whose clients have closed, which publish what they recorded."""

# Of the processes, only the one that has started none reads them.
_RUN_OUTCOMES: Final = TypeAdapter(
    list[RunOutcome], config=ConfigDict(defer_build=True)
)
_LEFT_OPEN: Final = RunOutcome(
    problem="a process that the client started as its server is still running: close the client "
    "before the test ends"
)


class ClientStarts:
    """A recording or a replay whose command a client may start any number of times."""

    admin_url = None
    is_piped = True

    def __init__(
        self, path: Location, base: Cassette | None, folder: Path, *, is_recording: bool
    ) -> None:
        """Prepare the command, and an empty file for the outcomes in the folder."""
        self.path = path
        self.played_cassette = base
        self.is_recording = is_recording
        self.command = [sys.executable, "-m", __name__, str(folder)]
        self._outcomes_file = folder / _OUTCOMES_FILE
        self._outcomes_file.touch()
        self._final_outcomes: list[RunOutcome] | None = None
        self._final_cassette: Cassette | None = None

    @property
    def url(self) -> str:
        """There is none.

        Raises:
            UsageError: clients on pipes start a command instead.
        """
        how_used = "recorded" if self.is_recording else "played"
        problem = f"{self.path} is {how_used} over pipes, where there is no URL"
        hint = "have the client start `command`"
        raise UsageError(problem, hint=hint)

    @property
    def exchange_count(self) -> int:
        """How many exchanges have been recorded."""
        highest_now = _highest_number(self.cassette_so_far())
        return highest_now - _highest_number(self.played_cassette)

    @property
    def outcome(self) -> RunOutcome:
        """What all starts came to so far."""
        cassette = self.played_cassette
        interactions = 0 if cassette is None else len(cassette.interactions)
        combined_outcome = RunOutcome(unplayed=range(1, interactions + 1))
        start_outcomes = self._final_outcomes
        if start_outcomes is None:
            start_outcomes = self._latest_outcomes()

        for start_outcome in start_outcomes:
            combined_outcome = _combined_outcome(combined_outcome, start_outcome)

        return combined_outcome

    def _latest_outcomes(self) -> list[RunOutcome]:
        """Return the latest outcome of every process that the client has started."""
        lists_by_process: dict[tuple[str, str], list[Any]] = defaultdict(list)
        latest_by_process: dict[str, dict[str, Any]] = {}
        for line in self._outcomes_file.read_bytes().splitlines():
            # A process that was killed while it wrote has left a part of one.
            with suppress(ValueError):
                process, outcome = json.loads(line)
                for name in _GROWING_LISTS:
                    items = lists_by_process[process, name]
                    items += outcome[name]
                    outcome[name] = items

                latest_by_process[process] = outcome

        return _RUN_OUTCOMES.validate_python([*latest_by_process.values()])

    def cassette_so_far(self) -> Cassette | None:
        """Return the cassette as it is by now."""
        if self._final_outcomes is not None:
            return self._final_cassette
        if not self.is_recording:
            return self.played_cassette

        from mrtr_cassette.shell.files.journals import recorded_so_far

        cassette = recorded_so_far(self.path)
        if cassette is None and cassette_exists(self.path):
            return load_cassette(self.path)

        return cassette

    def finish(self) -> None:
        """Wait for all starts, and publish the journal of one that was killed."""
        all_have_ended = is_free_within(self._outcomes_file, _PUBLISHING_S)
        start_outcomes = self._latest_outcomes()
        if not all_have_ended:
            start_outcomes.append(_LEFT_OPEN)

        has_objection = any(outcome.objection is not None for outcome in start_outcomes)
        if self.is_recording and not has_objection:
            from mrtr_cassette.shell.files.journals import recover_journal

            journal = journal_path(self.path)
            if journal.exists() and not is_locked(journal):
                recover_journal(self.path)

        self._final_cassette = self.cassette_so_far()
        self._final_outcomes = start_outcomes


def _combined_outcome(first: RunOutcome, second: RunOutcome) -> RunOutcome:
    """Return what two starts came to together."""
    after_other_writes = {*first.after_other_writes, *second.after_other_writes}
    unused = _common_items(first.unused, second.unused)
    return RunOutcome(
        misses=[*first.misses, *second.misses],
        played=first.played + second.played,
        harmless=first.harmless + second.harmless,
        unplayed=_common_items(first.unplayed, second.unplayed),
        after_other_writes=sorted(after_other_writes),
        faults=_added_faults(first.faults, second.faults),
        unknown_tools=Counter(first.unknown_tools) + Counter(second.unknown_tools),
        stopped=first.stopped + second.stopped,
        divergences=RecordingsLeft(
            first.divergences.nearest or second.divergences.nearest,
            [*first.divergences.all, *second.divergences.all],
        ),
        unreachable=first.unreachable + second.unreachable,
        unrecorded=[*first.unrecorded, *second.unrecorded],
        problem=first.problem or second.problem,
        objection=first.objection or second.objection,
        unused=None if unused is None else sorted(unused),
        learned={**first.learned, **second.learned},
        matched=Counter(first.matched) + Counter(second.matched),
    )


def _added_faults(
    first: Sequence[FaultOutcome], second: Sequence[FaultOutcome]
) -> Sequence[FaultOutcome]:
    """Return how often the same faults were met in two starts."""
    if not first or not second:
        return first or second

    added = []
    for first_outcome, second_outcome in zip(first, second, strict=True):
        came = first_outcome.came + second_outcome.came
        times = first_outcome.times + second_outcome.times
        added.append(FaultOutcome(first_outcome.fault, came, times))

    return added


def _common_items(
    first: Sequence[T] | None, second: Sequence[T] | None
) -> Sequence[T] | None:
    """Return the items that are in both; None means all."""
    if first is None or second is None:
        return second if first is None else first

    items_of_second = set(second)
    return [item for item in first if item in items_of_second]


def _highest_number(cassette: Cassette | None) -> int:
    """Return the highest number of a cassette's exchanges; 0 without a cassette."""
    return 0 if cassette is None else cassette.highest_number


def recorded_by_client(
    server: Sequence[str],
    output: Location,
    options: RecordOptions,
    cwd: Path | None = None,
    *,
    shown_place: Path | None = None,
) -> AbstractAsyncContextManager[ClientStarts]:
    """Prepare the recording of a server on pipes; a client starts its `command`.

    Each start publishes what it recorded when it ends, and is added to those before it. Messages
    name the cassette `shown_place`.

    Raises:
        CassetteError: the cassette can't be written, or exists.
        UsageError: a cassette that is to be added to was recorded over HTTP.
    """
    from mrtr_cassette.shell.runs.journaling import check_output, check_transport

    shown_name = str(shown_place or output)
    earlier = check_output(output, options)
    if earlier is not None:
        check_transport(earlier, shown_name, "stdio")

    work = {
        "server": list(server),
        "cwd": cwd,
        "named": shown_name,
        # Whoever has the command is the same client, by however many processes it starts it.
        "client": secrets.token_hex(32),
    }
    return _client_starts(output, earlier, options, work)


def replayed_by_client(
    path: Location, options: ReplayOptions
) -> AbstractAsyncContextManager[ClientStarts]:
    """Prepare a replay on pipes; a client starts its `command`.

    Raises:
        CassetteError: the cassette can't be read.
    """
    read_faults(options.faults, is_piped=True)
    played_cassette = combine_cassettes(load_played(path, options))
    return _client_starts(path, played_cassette, options, {})


@asynccontextmanager
async def _client_starts(
    path: Location, base: Cassette | None, options: Options, work: Mapping[str, object]
) -> AsyncIterator[ClientStarts]:
    """Write the work to a folder for the command, and finish all starts after the block."""
    absolute_place = path.absolute()
    place_parts: Sequence[object] = [absolute_place]
    if isinstance(absolute_place, StoreFile):
        place_parts = absolute_place

    option_values = {}
    for option in fields(options):
        value = getattr(options, option.name)
        if option.name == "log":
            continue
        if callable(value):
            problem = (
                f"<<{option.name}>> is a function, and clients on pipes start another process, "
                "which doesn't have it"
            )
            hint = "have the client connect to a URL"
            raise UsageError(problem, hint=hint)

        option_values[option.name] = value

    whole_work = {
        **work,
        "place": place_parts,
        "options": option_values,
        "fetched": fetched_texts(),
    }
    with tempfile.TemporaryDirectory(prefix="mrtr-cassette-") as folder_name:
        folder = Path(folder_name)
        text = json.dumps(whole_work, default=os.fspath)
        (folder / _WORK_FILE).write_text(text, encoding="utf-8")
        starts = ClientStarts(path, base, folder, is_recording=bool(work))
        try:
            yield starts
        finally:
            await asyncio.to_thread(starts.finish)


# In the process that a client has started


class _OutcomeWriter:
    """Writes what this process came to into the file that all processes write into."""

    def __init__(self, outcomes_file: int) -> None:
        """Take the descriptor of the file, to which all is appended."""
        self._outcomes_file = outcomes_file
        # Processes in containers of their own may have the same numbers.
        self._process = secrets.token_hex(8)
        self._told_counts = dict.fromkeys(_GROWING_LISTS, 0)

    def write_outcome(self, outcome: RunOutcome) -> None:
        """Write a line, and in it the items of lists that no earlier line of this process has."""
        new_items = {}
        for name, told_count in self._told_counts.items():
            new_items[name] = getattr(outcome, name)[told_count:]

        outcome_data = as_data(replace(outcome, **new_items), {})
        # What another process was killed at may be the beginning of a line.
        line = f"\n{json.dumps([self._process, outcome_data])}\n".encode()
        # Where nobody waits any more, there is nobody to be told.
        with suppress(OSError):
            if os.write(self._outcomes_file, line) < len(line):
                return

            for name, items in new_items.items():
                self._told_counts[name] += len(items)


async def _do_work_in(folder: Path) -> int:
    """Record or replay, write the outcomes to the file as they change; return the code."""
    work = json.loads((folder / _WORK_FILE).read_bytes())
    outcomes = os.open(folder / _OUTCOMES_FILE, os.O_RDWR | os.O_APPEND)
    # It is let go of when this process ends, whatever ends it.
    fcntl.flock(outcomes, fcntl.LOCK_SH)

    write_outcome = _OutcomeWriter(outcomes).write_outcome
    try:
        proxy_run, code = await _record_or_replay(work, folder, write_outcome)
    except MrtrCassetteError as error:
        problem = error.in_terms(work["options"]["terms"])
        write_outcome(RunOutcome(problem=problem))
        sys.stderr.write(f"error: {problem}\n")

        return error.exit_code

    write_outcome(proxy_run.outcome)
    return code


async def _record_or_replay(
    work: dict[str, Any], folder: Path, write_outcome: Callable[[RunOutcome], None]
) -> tuple[ProxyRun, int]:
    """Record or replay; tell the outcome at each miss."""
    proxy_runs: list[ProxyRun] = []

    def on_event(event: dict[str, object]) -> None:
        if event["event"] == "missed":
            write_outcome(proxy_runs[0].outcome)

    for name, text in work["fetched"].items():
        keep_fetched(name, text.encode())

    path = _place_from(work["place"])
    if "server" not in work:
        options = ReplayOptions(**work["options"])
        return await replay_pipe(path, options, on_event, on_begin=proxy_runs.append)

    from mrtr_cassette.shell.runs.pipe_recording import record_pipe

    return await record_pipe(
        work["server"],
        path,
        RecordOptions(**work["options"]),
        on_event,
        cwd=work["cwd"],
        client=StartingClient(work["client"], None, folder),
        shown_place=work["named"],
        on_begin=proxy_runs.append,
    )


def _place_from(parts: Sequence[str]) -> Location:
    """Return a cassette's place from the JSON: a path, or a store's URL and a folder."""
    if len(parts) == 1:
        return Path(parts[0])

    url, folder = parts
    return StoreFile(url, Path(folder))


if __name__ == "__main__":
    sys.exit(run(_do_work_in(Path(sys.argv[1]))))
