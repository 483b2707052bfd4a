"""Record or replay a cassette for the tests of a suite, and publish it at the end."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, Final, Literal, NoReturn, cast

from mrtr_cassette.core.cassette.load import load
from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.report.runs import UnplayedError
from mrtr_cassette.errors import CassetteError, MrtrCassetteError, UsageError, counted
from mrtr_cassette.options import Existing, RecordOptions, ReplayOptions, VerifyOptions
from mrtr_cassette.shell.files import disk
from mrtr_cassette.shell.files.cassettes import (
    discard_journal,
    journal_path,
    load_cassette,
    publish_journal,
    publish_recording,
)
from mrtr_cassette.shell.files.stores import path_of
from mrtr_cassette.shell.runs.piped import ClientStarts, recorded_by_client, replayed_by_client
from mrtr_cassette.shell.runs.recording import recording
from mrtr_cassette.shell.runs.replaying import replaying
from mrtr_cassette.shell.runs.running import in_thread
from mrtr_cassette.shell.runs.sessions import RecordSession, RunOutcome, check_output, kept_as_in
from mrtr_cassette.shell.runs.shared_plays import Share
from mrtr_cassette.shell.runs.upstreams import (
    Applications,
    RunningCommand,
    is_on_pipes,
    start_upstream,
)
from mrtr_cassette.shell.runs.views import Mode, MrtrCassette, Recording, Replay

_PATIENCE_S: Final = 300.0
"""Seconds to wait for a cassette that another process records."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a test's cassette."""

    name: str | os.PathLike[str] | None
    """The file, or None for the test's own."""
    upstream: Any
    """A URL, a command, an application; None: the fixture `mrtr_upstream` says."""
    record: RecordOptions
    """Those for a cassette that is added to."""
    replay: ReplayOptions
    verify: VerifyOptions
    max_age: int = 0
    """Days after which the cassette is old; 0: never."""
    answers: Any = None
    """Who answers calls that the test makes without a client: by name, or a file."""
    mode: Mode | None = None
    """The mode where neither the command line nor the environment has one."""


@dataclass(slots=True)
class Run:
    """One run of a test suite."""

    mode: Mode
    cwd: Path
    """Where commands run."""
    tell: Callable[[str], None]
    """Takes a line that can't wait for the end of the run."""
    folder: Callable[[], Path]
    """Makes the folder in which the run keeps what is recorded for shared cassettes."""
    applications: Applications = field(default_factory=Applications)
    recorded: set[Path] = field(default_factory=set)
    """The cassettes that this process is recording."""
    is_mode_given: bool = False
    """The command line or the environment has the mode, whatever a test's settings say."""


class _NoCassette:
    """Stands for the replay of a cassette that is missing: a test may skip before it needs it."""

    is_recording = False
    outcome = RunOutcome()

    def __init__(self, error: CassetteError, fail: Callable[[MrtrCassetteError], NoReturn]) -> None:
        self.error = error
        self.is_needed = False
        self._fail = fail

    def __getattr__(self, _name: str) -> NoReturn:
        self.is_needed = True
        self._fail(self.error)


class CassetteUse:
    """One recording or replay of a cassette, for a test, class or module.

    Making it starts the proxy, `stop` stops it, and `conclude`, when it is known whether the tests
    passed, publishes the cassette or forgets the recording.

    Attributes:
        shown: what tests see.
        failed: a test that used it failed.
        given_up: its only test was skipped, or failed as expected.
        outcome: what became of the cassette, as the run's summary counts it; None where the end of
            the run decides.
    """

    def __init__(
        self,
        run: Run,
        path: Path,
        settings: Settings,
        ask_upstream: Callable[[], Any],
        fail: Callable[[MrtrCassetteError], NoReturn],
        *,
        sharers: Sequence[str] | None = None,
        test: str | None = None,
    ) -> None:
        """Start the proxy.

        Args:
            ask_upstream: gives the upstream where the settings have none.
            fail: fails the test that needs a cassette which is missing.
            sharers: the tests of this run that share the cassette; None where it is a test's own.
            test: the only test of this use; None where its class or module has more.
        """
        self.path = path
        self.failed = False
        self.given_up: Literal["skipped", "xfailed"] | None = None
        self.is_stopped = False
        self.outcome: str | None = "replayed"
        self._run = run
        self._mode = run.mode if run.is_mode_given else settings.mode or run.mode
        self._settings = settings
        self._ask_upstream = ask_upstream
        self._fail = fail
        self._missing: _NoCassette | None = None
        self._sharers = sharers
        self._test = test
        self._share: Share | None = None
        self._reported = 0
        self._recorded_as = "recorded"
        self._recording: RecordSession | ClientStarts | None = None
        self._command: RunningCommand | None = None
        self._running = ExitStack()
        self._claimed = ExitStack()
        with ExitStack() as undone:
            undone.callback(self._claimed.close)
            undone.callback(self._running.close)
            self.shown: MrtrCassette = self._record() if self._records() else self._replay()
            undone.pop_all()

    def _records(self) -> bool:
        """Decide whether to record, and claim the cassette if so."""
        if self._mode == "verify":
            return self.path.exists()
        if not self._is_missing():
            return False
        if self.path in self._run.recorded:
            raise UsageError(
                f"{self.path} is being recorded by this test already",
                hint="give one of the two fixtures another file",
            )
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise CassetteError(self.path, f"its folder can't be made: {reason}") from None
        if self._test is not None or self._sharers is None:
            self._claimed.enter_context(disk.locked(self.path, _PATIENCE_S, self._run.tell))
        # Meanwhile another process may have recorded it.
        if not self._is_missing():
            self._claimed.close()
            return False
        self._run.recorded.add(self.path)
        self._claimed.callback(self._run.recorded.discard, self.path)
        return True

    def _is_missing(self) -> bool:
        """Tell whether the mode wants more than the existing cassette."""
        if self._mode == "once":
            return not self.path.exists() or self.age_days is not None
        return self._mode in ("append", "all")

    @property
    def age_days(self) -> int | None:
        """The cassette's age in days, if that is more than `max_age`; else None."""
        if not self._settings.max_age or not self.path.exists():
            return None
        try:
            cassette = load(self.path.read_bytes(), str(self.path))
            recorded = datetime.fromisoformat(cassette.recorded_at)
        except (OSError, ValueError, MrtrCassetteError):
            return None  # whoever plays it will say so
        age = (datetime.now(UTC) - recorded).days
        return age if age >= self._settings.max_age else None

    def _replay(self) -> Replay:
        shown = (self._mode, self.path, self._settings.answers)
        if not self.path.exists() and not journal_path(self.path).exists():
            default = " (mode none is the default under CI)" if self._mode == "none" else ""
            error = CassetteError(
                self.path,
                f"there is no such cassette, and in mode {self._mode} no new one is recorded",
                hint="record it with --mrtr-mode=once where the server can be reached, and commit "
                f"it{default}",
            )
            self._missing = _NoCassette(error, self._fail)
            return Replay(cast("Any", self._missing), *shown)
        opened = replayed_by_client if self._was_on_pipes() else replaying
        options = self._settings.replay
        if options.beside:
            names = [name if name.endswith(".json") else f"{name}.json" for name in options.beside]
            options = replace(options, beside=[str(self.path.parent / name) for name in names])
        manager: AbstractAsyncContextManager[Any] = opened(self.path, options)
        return Replay(self._running.enter_context(in_thread(manager)), *shown)

    def _was_on_pipes(self) -> bool:
        """Tell whether the cassette was recorded over pipes; one that can't be read was not."""
        try:
            data = self.path.read_bytes()
            return b'"transport"' in data and load(data, str(self.path)).transport == "stdio"
        except (OSError, CassetteError):
            return False

    def _record(self) -> Recording:
        if self._settings.replay.beside:
            raise UsageError(f"{self.path} is one of several cassettes, which are only played")
        upstream = self._upstream()
        is_piped = is_on_pipes(upstream)
        place = self._place(is_piped=is_piped)
        manager: Any
        if is_piped:
            manager = recorded_by_client(
                *(upstream, place, self._record_options(), self._run.cwd),
                named=self.path,
            )
        else:
            started = start_upstream(upstream, self._run.applications, self._run.cwd, self._running)
            self._command = started.command
            manager = recording(
                *(started.url, place, self._record_options()),
                started=started.arguments,
                kept_for=self.path,
            )
        session = self._running.enter_context(in_thread(manager))
        self._recording = session
        return Recording(session, self._mode, self.path, self._settings.answers)

    def _upstream(self) -> Any:
        settings = self._settings
        upstream = self._ask_upstream() if settings.upstream is None else settings.upstream
        if upstream is None:
            purpose = f"record {self.path} from"
            if self._mode == "verify":
                purpose = f"hold to {self.path}"
            raise UsageError(
                f"there is nothing to {purpose}",
                hint="name an upstream in the marker, @pytest.mark.mrtr_cassette(upstream=...), or "
                "override the fixture mrtr_upstream; it may be a URL, a command or an application",
            )
        return upstream

    def _temporary(self) -> Path:
        """Return a place in a folder that lives as long as this use."""
        folder = Path(mkdtemp(prefix="mrtr-cassette-"))
        self._claimed.callback(rmtree, folder, ignore_errors=True)
        return folder / self.path.name

    def _place(self, *, is_piped: bool) -> Path:
        """Return the place of the recording: the cassette's own, or one that becomes it later."""
        if self._mode == "verify":
            return self._temporary()
        existing = self._existing()
        if existing == "append":
            check_output(self.path, self._settings.record)
        if self._sharers is not None:
            self._share = Share(
                *(self._run.folder(), self.path, existing, self._sharers, self._test),
                renews=self.age_days is not None,
            )
            return self._share.place
        if not is_piped:
            return self.path
        place = self._temporary()
        if existing == "append" and self.path.exists():
            place.write_bytes(self.path.read_bytes())
        return place

    def _existing(self) -> Existing:
        if self._mode == "append":
            return "append"
        is_replaced = self._mode in ("all", "verify") or self.age_days is not None
        return "replace" if is_replaced else "keep"

    def _record_options(self) -> RecordOptions:
        """Return the options, with `existing` for the place of the recording."""
        options = self._settings.record
        existing = self._existing()
        if self._share is not None:
            existing = "keep" if self._share.base is None else "append"
        if existing == "append":
            return options
        if self._mode == "verify":
            options = kept_as_in(load_cassette(self.path), options)
        return replace(
            options, existing=existing, ignore=(), repeat="auto", history="auto", reads=()
        )

    def stop(self) -> None:
        """Stop the proxy, and then the upstream that was started for it."""
        self.is_stopped = True
        self._running.close()

    def test_ended(self, test: str) -> None:
        """Note that one of the tests of a class or module has ended."""
        if self._share is not None and self._test is None and self._recording is not None:
            self._share.test_ended(test, self._recording.exchanges)

    def conclude(self, *, passed: bool, plays_all: bool = False) -> list[str]:
        """Publish the recording if all is well; return the problems as texts."""
        plays_all = plays_all or self._settings.replay.fail_on_unplayed
        problems: list[str] = []
        try:
            if self._missing is not None:
                self.outcome = "not used"
                return [str(self._missing.error)] if passed and self._missing.is_needed else []
            if passed and plays_all and self.shown.unplayed:
                unplayed = UnplayedError(self.path, self.shown.unplayed)
                problems.append(
                    f"{unplayed}\nmake these calls too, or record anew with --mrtr-mode=all"
                )
            if self._recording is not None and self._mode == "verify":
                problems = self._conclude_verifying(self._recording, passed=passed)
            elif self._recording is not None:
                problems = self._conclude_recording(self._recording, problems, passed=passed)
                is_good = passed and not problems
                self.outcome = self._outcome_of(self._recording, passed=is_good)
            elif isinstance(self.shown, Replay) and not (self.shown.played or self.shown.misses):
                self.outcome = "not used"
            elif self.shown.problem is not None:
                problems.insert(0, self.shown.problem)
            return problems
        finally:
            self._claimed.close()

    def _outcome_of(self, session: RecordSession | ClientStarts, *, passed: bool) -> str | None:
        if not passed:
            return "discarded (test failed)"
        if session.exchanges and self._share is not None:
            return None
        if session.exchanges and self.given_up is not None:
            return f"discarded (test {self.given_up})"
        played = session.outcome.played
        if session.exchanges:
            return "added to" if played else self._recorded_as
        if played:
            return "replayed"
        return "left empty" if session.base is None else "not used"

    def _objections_to(self, session: RecordSession | ClientStarts) -> list[str]:
        """Return why a recording is not good, as texts."""
        problems = []
        outcome = session.outcome
        if outcome.problem is not None:
            problems.append(f"the recording is not whole: {outcome.problem}")
        if outcome.unreachable:
            count = counted(outcome.unreachable, "request")
            problems.append(f"the upstream did not answer {count}")
        if outcome.objection is not None:
            problems.append(
                f"{outcome.objection}\nif that is meant: publish_anyway=True in the marker"
            )
        return problems

    def _conclude_verifying(
        self, session: RecordSession | ClientStarts, *, passed: bool
    ) -> list[str]:
        problems = self._objections_to(session)
        is_left = self.given_up is not None and self._test is not None
        if not passed or problems or is_left:
            self.outcome = f"not compared (test {(is_left and self.given_up) or 'failed'})"
            return problems if passed else []
        # What a test leaves out of a shared cassette, another one may do.
        differences = self.differences(is_part=self._sharers is not None)
        self.outcome = "different" if differences else "the same"
        return [] if differences is None else [differences]

    def differences(self, *, is_part: bool = True) -> str | None:
        """Return in mode verify, as text, where what happened differs from the cassette; or None.

        Args:
            is_part: calls that were not made are no difference.
        """
        if self._mode != "verify" or self._recording is None:
            return None
        from mrtr_cassette.shell.runs.verifying import differences_of

        repeated = self._recording.recorded()
        try:
            return differences_of(self.path, repeated, self._settings.verify, is_part=is_part)
        except MrtrCassetteError as error:
            return error.in_terms(self._settings.verify.terms)

    def _conclude_recording(
        self, session: RecordSession | ClientStarts, unplayed: Sequence[str], *, passed: bool
    ) -> list[str]:
        problems = [*self._objections_to(session), *unplayed]
        is_kept = passed and not problems and (self._share is not None or self.given_up is None)
        try:
            if is_kept:
                problems += self._keep(session)
            elif isinstance(session, RecordSession):
                discard_journal(session.path)
        except MrtrCassetteError as error:
            return [error.in_terms(self._settings.record.terms)]
        except OSError as error:
            return [str(error)]
        return [*problems, f"{self.path} was not written"] if problems and not is_kept else problems

    def _keep(self, session: RecordSession | ClientStarts) -> list[str]:
        """Publish a recording, or keep it until the end of the run; return losses as texts."""
        lost = published = None
        renews = self.age_days is not None
        if isinstance(session, RecordSession):
            session.published, lost = publish_journal(session.path, renews=renews)
            published = session.published
        elif session.exchanges and self._share is None:
            whole = load_cassette(session.path)
            published = publish_recording(self.path, whole, self._existing(), renews=renews)
        if published is not None and published.is_same:
            self._recorded_as = "same, kept"
        if self._share is not None:
            earlier, unplayed = session.base, session.outcome.unplayed or ()
            played = () if earlier is None else earlier.interactions
            recorded = path_of(session.path)
            self._share.keep(recorded, (each for each in played if each.number not in unplayed))
        return [f"the recording is not whole: {lost}"] if lost else []

    @property
    def warnings(self) -> list[str]:
        """Texts about probable mistakes for which no test fails."""
        if self.given_up is not None:
            text = f"{self.path} was not written: the test was {self.given_up}"
            is_discarded = (self.outcome or "").startswith("discarded")
            return [f"{text}, and a test's own cassette is written when it passes"] * is_discarded
        told = []
        if self.outcome == "not used":
            told.append(f"{self.path} was not played: no client sent it a request")
        if self.outcome == "left empty":
            told.append(
                f"nothing was recorded, and {self.path} not written: no client sent a request to "
                "the url of the cassette"
            )
        elif (age := self.age_days) is not None:
            told.append(f"{self.path} is {age} days old; record it anew with --mrtr-mode=all")
        return told

    def load_recorded(self) -> Cassette | None:
        """Return the cassette as it is by now, if there is any."""
        if self._recording is not None:
            return self._recording.recorded()
        return load_cassette(self.path) if self._missing is None else None

    @property
    def upstream_output(self) -> str | None:
        """The output of the command that serves the upstream, or None."""
        return None if self._command is None or self.is_stopped else self._command.output

    def unreported_misses(self) -> str | None:
        """Return the misses that were not reported before as one text, or None."""
        misses = self.shown.misses
        texts = [*(miss.text for miss in misses), *self.shown.unrecorded]
        first, self._reported = self._reported, len(texts)
        unreported = texts[first:]
        if not unreported:
            return None
        self.failed = True
        head, what = "the live server asks something else", "could not be recorded"
        if misses:
            head = f"miss: {misses[first].reason}: {misses[first].request}"
            what = "had no recorded answer"
        count = len(unreported)
        more = f", and {count - 1} more" if count > 1 else ""
        end = f"{counted(count, 'request')} {what} on {self.path}"
        hint = "--mrtr-mode=all records the whole cassette anew"
        if self._sharers is not None:
            hint = f"{hint}, in a run of all tests that share it"
        return "\n\n".join([f"{head}{more}", *unreported, f"{end}; {hint}"])
