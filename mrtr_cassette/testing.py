"""One cassette in a test suite: which file, recorded or replayed, and what became of it.

Owns: the record modes, the settings of a marker, names of files, and the life of one recording or
replay from the first request to the published cassette.
Does not own: pytest's side of it (`pytest_plugin`), relaying and replaying (`shell`).
Rule: a test passes only on what was recorded, and a cassette is written only by a test that passed.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from mrtr_cassette.api import Recording, Replay, replay
from mrtr_cassette.core.replay.player import Repeat
from mrtr_cassette.core.report.inspection import Interaction
from mrtr_cassette.core.report.misses import MissReport
from mrtr_cassette.errors import CassetteError, MrtrCassetteError, UsageError
from mrtr_cassette.options import ignored_member
from mrtr_cassette.shell import journal_file, locks
from mrtr_cassette.shell.background import in_thread
from mrtr_cassette.shell.publishing import publish_journal
from mrtr_cassette.shell.record_session import RecordSession
from mrtr_cassette.shell.recording import recording
from mrtr_cassette.shell.upstream_servers import (
    ENDPOINT,
    RunningCommand,
    running_command,
    serving_application,
)

Mode = Literal["none", "once", "append", "all"]

_PATIENCE_S = 300.0
"""Seconds to wait while another process records the same cassette."""
_LONGEST_NAME = 120
"""Characters of a file name's readable part; file systems take 255 bytes."""
_STARTED_HERE = f"http://localhost{ENDPOINT}"
"""What a cassette names as its upstream where that has another port on every run."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a test says of its cassette.

    Attributes:
        name: the file, or None for the test's own.
        upstream: what is recorded: a URL, a command, an application; None: the fixture
            `mrtr_upstream` is asked.
        ignore: JSON Pointers into the params of values that don't count in matching.
        repeat: `auto`, `always` or `never`.
        request_state: `sealed` or `verbatim`.
    """

    name: str | os.PathLike[str] | None = None
    upstream: Any = None
    ignore: Sequence[str] = ()
    repeat: Any = "auto"
    request_state: Any = "sealed"


def read_settings(written: Sequence[tuple[Sequence[Any], Mapping[str, Any]]]) -> Settings:
    """Return the settings that markers say together; the later ones have the last word.

    Args:
        written: positional and keyword arguments of each marker.

    Raises:
        UsageError: an argument is unknown, or is none that can be meant.
    """
    merged: dict[str, Any] = {}
    known = ("upstream", "ignore", "repeat", "request_state")
    for names, keywords in written:
        unknown = [*map(repr, names[1:]), *(name for name in keywords if name not in known)]
        if unknown:
            raise UsageError(
                f"mrtr_cassette does not know the argument {', '.join(unknown)}",
                hint=f"it takes one file name, and {', '.join(known)}",
            )
        if names:
            merged["name"] = names[0]
        merged |= keywords
    settings = Settings(**merged)
    if not isinstance(settings.name, str | os.PathLike | None):
        raise UsageError(f"mrtr_cassette takes the name of a file, and not {settings.name!r}")
    if isinstance(settings.ignore, str) or not isinstance(settings.ignore, Sequence):
        raise UsageError(f"mrtr_cassette: ignore is a list, and not {settings.ignore!r}")
    for option, value, values in (
        ("repeat", settings.repeat, ("auto", "always", "never")),
        ("request_state", settings.request_state, ("sealed", "verbatim")),
    ):
        if value not in values:
            raise UsageError(f"mrtr_cassette: {option} is {value!r}, not {' or '.join(values)}")
    return settings


def file_name(name: str) -> str:
    """Return the name of a test's own cassette, without `.json`.

    `test_deploy[prod]` becomes `test_deploy-prod`. A hash follows where the readable part does not
    tell tests apart on every file system: other characters than ASCII letters, digits, `_`, `-`
    and `.`, capitals in a parameter, or a long name.

    Args:
        name: the test's name with its classes and parameters.
    """
    function, bracket, parameters = name.partition("[")
    plain = f"{function}-{parameters.removesuffix(']')}" if bracket else function
    safe = re.sub(r"[^A-Za-z0-9_.-]+", "-", plain)[:_LONGEST_NAME]
    if safe == plain and parameters == parameters.lower():
        return plain
    return f"{safe}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:10]}"


class Applications:
    """Application objects that are served, each once and until the end of the run.

    Most can't be started a second time: the session manager of the Python SDK, for one.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._served = ExitStack()
        self._urls: dict[int, tuple[Any, str]] = {}

    def url(self, application: Any) -> str:
        """Return where an application is served, from now on at the latest."""
        # The object is kept, so that no other one can get its id.
        known = self._urls.get(id(application))
        if known is not None:
            return known[1]
        url = self._served.enter_context(in_thread(serving_application(application)))
        self._urls[id(application)] = (application, url)
        return url

    def close(self) -> None:
        """Stop them all."""
        self._served.close()


@dataclass(slots=True)
class Run:
    """What the cassettes of one test run share.

    Attributes:
        mode: the record mode.
        started_ns: when the run began, since the epoch.
        cwd: where commands run.
        applications: those that are served.
        recorded: the cassettes that this process is recording.
    """

    mode: Mode
    started_ns: int
    cwd: Path
    applications: Applications = field(default_factory=Applications)
    recorded: set[Path] = field(default_factory=set)


class MrtrCassette:
    """The cassette of a test: where the client connects to, and what was said.

    Attributes:
        mode: the record mode: `none`, `once`, `append` or `all`.
        is_recording: whether an upstream is asked, in mode append for what the cassette lacks;
            else all answers come from the cassette.
    """

    def __init__(self, session: Recording | Replay, mode: Mode) -> None:
        """Show a session under the mode that it was begun in."""
        self._session = session
        self.mode = mode
        self.is_recording = isinstance(session, Recording)

    @property
    def url(self) -> str:
        """What the client connects to."""
        return self._session.url

    @property
    def path(self) -> Path:
        """The cassette's file; while recording it is written after the test has passed."""
        return self._session.path

    @property
    def interactions(self) -> tuple[Interaction, ...]:
        """What is on the cassette; while recording: what has been recorded so far."""
        return self._session.interactions

    @property
    def misses(self) -> tuple[MissReport, ...]:
        """What was asked and had not been recorded; the test fails if there is any."""
        return self._session.misses if isinstance(self._session, Replay) else ()

    @property
    def unplayed(self) -> tuple[Interaction, ...]:
        """What is on the cassette and was not, or not wholly, played."""
        return self._session.unplayed

    @property
    def unrecorded(self) -> tuple[str, ...]:
        """In mode append: why retries were not recorded; the test fails if there is any."""
        return self._session.unrecorded if isinstance(self._session, Recording) else ()


class Take:
    """One recording or replay of a cassette, for as long as a test, class or module uses it.

    Its life has three parts: it is made, which starts the proxy; `stop` stops it; `conclude`,
    when it is known whether the tests passed, publishes the cassette or forgets the recording.

    Attributes:
        cassette: what tests see.
        failed: a test that used it did not pass.
        is_stopped: the proxy has been stopped.
    """

    def __init__(
        self,
        run: Run,
        path: Path,
        settings: Settings,
        ask_upstream: Callable[[], Any],
        *,
        is_shared: bool = False,
    ) -> None:
        """Start the proxy.

        Args:
            run: what it shares with others.
            path: the cassette.
            settings: what the test says of it.
            ask_upstream: gives the upstream where the settings have none, and is called only then.
            is_shared: several tests each have a part of the conversation.

        Raises:
            MrtrCassetteError: the cassette, the upstream or a setting can't be used.
        """
        self.path = path
        self.failed = False
        self.is_stopped = False
        self._run = run
        self._settings = settings
        self._ask_upstream = ask_upstream
        self._is_shared = is_shared
        self._told = 0
        self._session: RecordSession | None = None
        self._command: RunningCommand | None = None
        self._running = ExitStack()
        self._claimed = ExitStack()
        with ExitStack() as undone:
            undone.callback(self._claimed.close)
            undone.callback(self._running.close)
            self.cassette = MrtrCassette(self._begin(), run.mode)
            undone.pop_all()

    def _begin(self) -> Recording | Replay:
        _check_spelling(self.path)
        return self._record() if self._records() else self._replay()

    def _records(self) -> bool:
        """Decide whether to record, and claim the cassette if so."""
        if not self._is_missing():
            return False
        if self.path in self._run.recorded:
            raise UsageError(
                f"{self.path} is being recorded by this test already",
                hint="give one of the two fixtures another file",
            )
        self._make_folder()
        self._claimed.enter_context(locks.locked(self.path, _PATIENCE_S))
        # Meanwhile another process of this run may have recorded it.
        if not self._is_missing():
            self._claimed.close()
            return False
        self._run.recorded.add(self.path)
        self._claimed.callback(self._run.recorded.discard, self.path)
        return True

    def _is_missing(self) -> bool:
        """Tell whether the cassette as it stands is not all that the mode asks for."""
        match self._run.mode:
            case "none":
                return False
            case "append":
                return True
            case "once":
                return not self.path.exists() or self._is_begun()
            case "all":
                return not self._is_of_this_run() or self._is_begun()

    def _is_begun(self) -> bool:
        """Tell whether other tests of this run have recorded their part of a shared cassette.

        Workers of pytest-xdist share out the tests of a class or a module.
        """
        return self._is_shared and self._is_of_this_run()

    def _make_folder(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise CassetteError(self.path, f"its folder can't be made: {reason}") from None

    def _is_of_this_run(self) -> bool:
        return self.path.exists() and self.path.stat().st_mtime_ns >= self._run.started_ns

    def _replay(self) -> Replay:
        if not self.path.exists() and not journal_file.journal_path(self.path).exists():
            raise CassetteError(
                self.path,
                "there is no such cassette, and in mode none no new one is recorded",
                hint="record it with --mrtr-mode=once where the server can be reached, and commit "
                "it (mode none is the default under CI)",
            )
        settings = self._settings
        return self._running.enter_context(
            replay(self.path, ignore=settings.ignore, repeat=settings.repeat)
        )

    def _record(self) -> Recording:
        url, named = self._start_upstream()
        existing: Any = {"once": "keep", "all": "replace", "append": "append"}[self._run.mode]
        if self._is_begun():
            existing = "append"
        manager = recording(
            url,
            self.path,
            request_state=self._settings.request_state,
            existing=existing,
            ignored=[ignored_member(pointer, "ignore:") for pointer in self._settings.ignore],
            repeat=Repeat(self._settings.repeat),
            named=named,
            publishes=False,
        )
        self._session = self._running.enter_context(in_thread(manager))
        return Recording(self._session)

    def _start_upstream(self) -> tuple[str, str | None]:
        """Return the upstream's URL, and how the cassette names it if not by that."""
        upstream = self._settings.upstream
        if upstream is None:
            upstream = self._ask_upstream()
        if upstream is None:
            raise UsageError(
                f"there is nothing to record {self.path} from",
                hint="name an upstream in the marker, @pytest.mark.mrtr_cassette(upstream=...), or "
                "override the fixture mrtr_upstream; it may be a URL, a command or an application",
            )
        if isinstance(upstream, str):
            return upstream, None
        if isinstance(upstream, Sequence):
            if not upstream or not all(isinstance(part, str) for part in upstream):
                raise UsageError(f"the upstream {upstream!r} is no command: a list of texts")
            command = self._running.enter_context(running_command(upstream, self._run.cwd))
            self._command = command
            return command.url, _STARTED_HERE
        return self._run.applications.url(upstream), _STARTED_HERE

    def stop(self) -> None:
        """Stop the proxy, and then the upstream that was started for it."""
        self.is_stopped = True
        self._running.close()

    def conclude(self, *, passed: bool, plays_all: bool = False) -> list[str]:
        """Publish what was recorded if all is well; return what is not, in words.

        Args:
            passed: all tests that used the cassette have passed.
            plays_all: something recorded that was not played is a problem.
        """
        try:
            if self._session is not None:
                return self._conclude_recording(self._session, passed=passed, plays_all=plays_all)
            if passed and plays_all and self.cassette.unplayed:
                return [_unplayed_text(self.cassette)]
            return []
        finally:
            self._claimed.close()

    def _conclude_recording(
        self, session: RecordSession, *, passed: bool, plays_all: bool
    ) -> list[str]:
        problems = []
        if session.problem is not None:
            problems.append(f"the recording is not whole: {session.problem}")
        if session.unreachable:
            count = session.unreachable
            problems.append(f"the upstream did not answer {count} request{'s' * (count > 1)}")
        if passed and plays_all and self.cassette.unplayed:
            problems.append(_unplayed_text(self.cassette))
        if not passed or problems:
            journal_file.journal_path(self.path).unlink(missing_ok=True)
            return [*problems, f"{self.path} was not written"] if problems else []
        try:
            session.published, lost = publish_journal(self.path)
        except MrtrCassetteError as error:
            return [str(error)]
        return [f"the recording is not whole: {lost}"] if lost else []

    @property
    def is_empty(self) -> bool:
        """Whether it was to be recorded, and nobody asked anything."""
        session = self._session
        return session is not None and session.exchanges == session.played == 0

    @property
    def upstream_output(self) -> str | None:
        """What the command that serves the upstream has printed, or None where there is none."""
        return None if self._command is None or self.is_stopped else self._command.output

    def untold_misses(self) -> str | None:
        """Return what was asked in vain and was not told before, as one text, or None."""
        cassette = self.cassette
        in_vain = [*(miss.text for miss in cassette.misses), *cassette.unrecorded]
        untold, self._told = in_vain[self._told :], len(in_vain)
        if not untold:
            return None
        self.failed = True
        return _in_vain_text(cassette, untold)


def _check_spelling(path: Path) -> None:
    """Refuse a name that some file systems can't tell from another one beside it."""
    if not path.parent.is_dir():
        return
    for other in (beside.name for beside in path.parent.iterdir()):
        if other != path.name and other.casefold() == path.name.casefold():
            raise CassetteError(
                path,
                f"{other!r} stands beside it, and not every file system tells the two apart",
                hint="name one of them in the marker: @pytest.mark.mrtr_cassette(NAME)",
            )


def _in_vain_text(cassette: MrtrCassette, texts: Sequence[str]) -> str:
    count = len(texts)
    what = "could not be recorded" if cassette.is_recording else "had no recorded answer"
    head = f"{count} request{'s' * (count > 1)} {what} on {cassette.path}"
    ways_out = (
        "in pytest: --mrtr-mode=append records what is missing, --mrtr-mode=all records anew, and "
        'ignore=["/POINTER"] and repeat="always" are arguments of the marker mrtr_cassette'
    )
    return "\n\n".join([head, *texts, ways_out])


def _unplayed_text(cassette: MrtrCassette) -> str:
    lines = [f"not all that is on {cassette.path} was played:"]
    lines += [f"  #{one.number} {one.call}" for one in cassette.unplayed]
    lines.append("make these calls too, or record anew with --mrtr-mode=all")
    return "\n".join(lines)
