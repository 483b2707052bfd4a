"""The cassette of a test, a class or a module: recorded or replayed, and what became of it.

Rule: a test passes only on what was recorded, and its own cassette is written only if it passed;
what tests share is only kept here, for the end of the run (`shared`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, Literal, NoReturn, cast

from mrtr_cassette.api import Recording, Replay, replay_with
from mrtr_cassette.core.exchange.recorded import Cassette
from mrtr_cassette.core.format.load import load
from mrtr_cassette.core.report.calls import unused_text
from mrtr_cassette.core.report.failures import UnplayedError
from mrtr_cassette.errors import CassetteError, MrtrCassetteError, UsageError, counted
from mrtr_cassette.options import Existing, RecordOptions
from mrtr_cassette.shell import journal_file, locks
from mrtr_cassette.shell.background import in_thread
from mrtr_cassette.shell.cassette_file import load_cassette, publish
from mrtr_cassette.shell.client_starts import PipedRecording, recorded_by_client
from mrtr_cassette.shell.keeping import check_output
from mrtr_cassette.shell.publishing import discard_journal, publish_journal
from mrtr_cassette.shell.record_session import RecordSession
from mrtr_cassette.shell.recording import recording
from mrtr_cassette.shell.stores import path_of
from mrtr_cassette.shell.upstream_servers import RunningCommand
from mrtr_cassette.testing.cassette import MrtrCassette
from mrtr_cassette.testing.names import check_spelling
from mrtr_cassette.testing.settings import TERMS, Mode, Settings
from mrtr_cassette.testing.shared import Share, Sharers, check_complete
from mrtr_cassette.testing.upstreams import Applications, is_on_pipes, start_upstream, upstream_of

_PATIENCE_S = 300.0
"""Seconds to wait while another process records the same cassette."""


Outcome = Literal[
    "recorded",
    "added to",
    "replayed",
    "discarded (test failed)",
    "discarded (test skipped)",
    "discarded (test xfailed)",
    "left empty",
    "not used",
]
"""What became of a cassette in a run."""


@dataclass(slots=True)
class Run:
    """What the cassettes of one test run share.

    Attributes:
        mode: the record mode.
        cwd: where commands run.
        tell: takes a line that can't wait for the end of the run.
        folder: makes the folder in which the run keeps what is recorded for shared cassettes.
        applications: those that are served.
        recorded: the cassettes that this process is recording.
    """

    mode: Mode
    cwd: Path
    tell: Callable[[str], None]
    folder: Callable[[], Path]
    applications: Applications = field(default_factory=Applications)
    recorded: set[Path] = field(default_factory=set)


class _NoCassette:
    """Stands for the replay of a cassette that is missing, as a test may skip before it needs it.

    Attributes:
        error: what is wrong where it is needed.
        is_needed: something but its misses was asked for.
    """

    misses = ()
    played = 0

    def __init__(self, error: CassetteError, fail: Callable[[MrtrCassetteError], NoReturn]) -> None:
        self.error = error
        self.is_needed = False
        self._fail = fail

    def __getattr__(self, _name: str) -> NoReturn:
        self.is_needed = True
        self._fail(self.error)


class CassetteUse:
    """One recording or replay of a cassette, for as long as a test, class or module uses it.

    Its life has three parts: it is made, which starts the proxy; `stop` stops it; `conclude`,
    when it is known whether the tests passed, publishes the cassette or forgets the recording.

    Attributes:
        cassette: what tests see.
        failed: a test that used it failed.
        given_up: its only test was skipped, or failed as expected.
        is_stopped: the proxy has been stopped.
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
        sharers: Sharers | None = None,
        test: str | None = None,
    ) -> None:
        """Start the proxy.

        Args:
            run: what it shares with others.
            ask_upstream: gives the upstream where the settings have none, and is called only then.
            fail: fails the test that needs a cassette which is missing.
            sharers: the tests that share the cassette; None where it is one test's own.
            test: the only test of this use; None where its class or module has more.

        Raises:
            MrtrCassetteError: the cassette, the upstream or a setting can't be used.
        """
        self.path = path
        self.failed = False
        self.given_up: Literal["skipped", "xfailed"] | None = None
        self.is_stopped = False
        self.outcome: Outcome | None = "replayed"
        self._run = run
        self._settings = settings
        self._ask_upstream = ask_upstream
        self._fail = fail
        self._missing: _NoCassette | None = None
        self._sharers = sharers
        self._test = test
        self._share: Share | None = None
        self._reported = 0
        self._recording: RecordSession | PipedRecording | None = None
        self._command: RunningCommand | None = None
        self._running = ExitStack()
        self._claimed = ExitStack()
        with ExitStack() as undone:
            undone.callback(self._claimed.close)
            undone.callback(self._running.close)
            self._session = self._begin()
            self.cassette = MrtrCassette(self._session, run.mode, path, settings.answers)
            undone.pop_all()

    def _begin(self) -> Recording | Replay:
        check_spelling(self.path)
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
        if self._sharers is not None and self._run.mode == "all" and self.path.exists():
            check_complete(self.path, self._sharers)
        if self._test is not None or self._sharers is None:
            self._claimed.enter_context(locks.locked(self.path, _PATIENCE_S, self._run.tell))
        # Meanwhile another process may have recorded it.
        if not self._is_missing():
            self._claimed.close()
            return False
        self._run.recorded.add(self.path)
        self._claimed.callback(self._run.recorded.discard, self.path)
        return True

    def _is_missing(self) -> bool:
        """Tell whether the cassette as it stands is not all that the mode asks for."""
        match self._run.mode:
            case "none" | "verify":
                return False
            case "append" | "all":
                return True
            case "once":
                return not self.path.exists() or self.age_days is not None

    @property
    def age_days(self) -> int | None:
        """How many days old the cassette is that stands here, if it may not be so old; or None."""
        if not self._settings.max_age or not self.path.exists():
            return None
        try:
            cassette = load(self.path.read_bytes(), str(self.path))
            recorded = datetime.fromisoformat(cassette.recorded_at)
        except (OSError, ValueError, MrtrCassetteError):
            return None  # whoever plays it will say so
        age = (datetime.now(UTC) - recorded).days
        return age if age >= self._settings.max_age else None

    def _make_folder(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise CassetteError(self.path, f"its folder can't be made: {reason}") from None

    def _replay(self) -> Replay:
        if not self.path.exists() and not journal_file.journal_path(self.path).exists():
            error = CassetteError(
                self.path,
                "there is no such cassette, and in mode none no new one is recorded",
                hint="record it with --mrtr-mode=once where the server can be reached, and commit "
                "it (mode none is the default under CI)",
            )
            self._missing = _NoCassette(error, self._fail)
            return Replay(cast("Any", self._missing))
        # What is wrong is told when it is known which test fails for it.
        options = replace(self._settings.replay, on_miss="report", fail_on_unplayed=False)
        stdio = self._is_on_pipes()
        return self._running.enter_context(replay_with(self.path, options, stdio=stdio))

    def _is_on_pipes(self) -> bool:
        """Tell whether the cassette was recorded over pipes; one that can't be read was not."""
        try:
            data = self.path.read_bytes()
            return b'"transport"' in data and load(data, str(self.path)).transport == "stdio"
        except (OSError, CassetteError):
            return False

    def _record(self) -> Recording:
        purpose = f"record {self.path} from"
        upstream = upstream_of(self._settings, self._ask_upstream, purpose)
        if is_on_pipes(upstream):
            return self._record_on_pipes(upstream)
        started = start_upstream(upstream, self._run.applications, self._run.cwd, self._running)
        self._command = started.command
        place, options = self._place(), self._record_options()
        manager = recording(
            *(started.url, place, options),
            started=started.arguments,
            kept_for=self.path,
        )
        self._recording = self._running.enter_context(in_thread(manager))
        return Recording(self._recording)

    def _record_on_pipes(self, upstream: Sequence[str]) -> Recording:
        """Record what a client starts; it becomes the cassette if all is well."""
        folder = Path(mkdtemp(prefix="mrtr-cassette-"))
        self._claimed.callback(self._remove, folder)
        base: Path | None = self.path
        if self._sharers is not None:
            self._place()
        if self._share is not None:
            base = self._share.base
        manager = recorded_by_client(
            *(upstream, folder / self.path.name, self._record_options(), self._run.cwd),
            copied_from=base,
            named=self.path,
        )
        self._recording = self._running.enter_context(manager)
        return Recording(self._recording)

    def _remove(self, folder: Path) -> None:
        """Remove where processes recorded, unless one still does."""
        session = self._recording
        if not (isinstance(session, PipedRecording) and session.is_left_open):
            rmtree(folder, ignore_errors=True)

    def _place(self) -> Path:
        """Return where is recorded: beside the cassette, or where the run keeps what is shared."""
        if self._sharers is None:
            return self.path
        existing = self._existing()
        if existing == "append":
            check_output(self.path, self._settings.record)
        folder = self._run.folder()
        self._share = Share(folder, self.path, existing, self._sharers.selected, self._test)
        return self._share.place

    def _existing(self) -> Existing:
        """Return what becomes of a cassette that exists in this mode."""
        if self._run.mode == "append":
            return "append"
        return "replace" if self._run.mode == "all" or self.age_days is not None else "keep"

    def _record_options(self) -> RecordOptions:
        """Return the options for what becomes of what stands in the place of the recording."""
        options = self._settings.record
        existing = self._existing()
        if self._share is not None:
            existing = "keep" if self._share.base is None else "append"
        if existing == "append":
            return options
        return replace(options, existing=existing, ignore=(), repeat="auto")

    def stop(self) -> None:
        """Stop the proxy, and then the upstream that was started for it."""
        self.is_stopped = True
        self._running.close()

    def test_ended(self, test: str) -> None:
        """Take note that one of the tests of a class or module is over."""
        session = self._recording
        if self._share is None or self._test is not None or session is None:
            return
        if isinstance(session, RecordSession):
            self._share.test_ended(test, session.exchanges)
        else:
            self._share.test_ended_with(test, session.recorded())

    def conclude(self, *, passed: bool, plays_all: bool = False) -> list[str]:
        """Keep what was recorded if all is well; return what is not, in words.

        Args:
            passed: of the tests that used the cassette, none is known to have failed.
            plays_all: something recorded that was not played is a problem in every test.
        """
        plays_all = plays_all or self._settings.replay.fail_on_unplayed
        try:
            if self._recording is not None:
                problems = self._conclude_recording(
                    self._recording, passed=passed, plays_all=plays_all
                )
                self.outcome = self._outcome_of(self._recording, passed=passed and not problems)
                return problems
            problems = self.cassette.problems
            session = self._session
            if isinstance(session, Replay) and not (session.played or session.misses):
                self.outcome = "not used"
            if self._missing is not None:
                return [str(self._missing.error)] if passed and self._missing.is_needed else []
            if passed and plays_all and self.cassette.unplayed:
                problems.append(_unplayed_text(self.cassette))
            return problems
        finally:
            self._claimed.close()

    def _outcome_of(
        self, session: RecordSession | PipedRecording, *, passed: bool
    ) -> Outcome | None:
        if not passed:
            return "discarded (test failed)"
        if session.exchanges and self._share is not None:
            return None
        if session.exchanges and self.given_up is not None:
            is_skipped = self.given_up == "skipped"
            return "discarded (test skipped)" if is_skipped else "discarded (test xfailed)"
        if session.exchanges:
            return "added to" if session.played else "recorded"
        if session.played:
            return "replayed"
        return "left empty" if session.earlier is None else "not used"

    def _conclude_recording(
        self, session: RecordSession | PipedRecording, *, passed: bool, plays_all: bool
    ) -> list[str]:
        problems = []
        if session.problem is not None:
            problems.append(f"the recording is not whole: {session.problem}")
        if session.unreachable:
            count = session.unreachable
            problems.append(f"the upstream did not answer {counted(count, 'request')}")
        if passed and plays_all and self.cassette.unplayed:
            problems.append(_unplayed_text(self.cassette))
        if not self._settings.record.publish_anyway:
            objection = session.find_objection()
            if objection is not None:
                problems.append(f"{objection}\nif that is meant: publish_anyway=True in the marker")
        is_kept = passed and not problems and (self._share is not None or self.given_up is None)
        try:
            problems += self._keep(session) if is_kept else self._discard(session)
        except MrtrCassetteError as error:
            return [error.in_terms(TERMS)]
        except OSError as error:
            return [str(error)]
        return [*problems, f"{self.path} was not written"] if problems and not is_kept else problems

    def _keep(self, session: RecordSession | PipedRecording) -> list[str]:
        """Publish a recording, or keep it until the end of the run; return what was lost."""
        lost = None
        if isinstance(session, RecordSession):
            session.published, lost = publish_journal(session.path)
        elif session.exchanges and self._share is None:
            data = session.path.read_bytes()
            publish(self.path, [data], replace=self._existing() != "keep")
        if self._share is not None:
            earlier, unplayed = session.earlier, set(session.unplayed)
            played = () if earlier is None else earlier.interactions
            recorded = path_of(session.path)
            self._share.keep(recorded, (each for each in played if each.number not in unplayed))
        return [f"the recording is not whole: {lost}"] if lost else []

    def _discard(self, session: RecordSession | PipedRecording) -> list[str]:
        if isinstance(session, RecordSession):
            discard_journal(session.path)
        return []

    @property
    def warnings(self) -> Iterator[str]:
        """What is hardly meant, though no test fails for it."""
        if self.given_up is not None:
            if self.outcome is not None and self.outcome.startswith("discarded"):
                yield (
                    f"{self.path} was not written: the test was {self.given_up}, and a test's own "
                    "cassette is written when it passes"
                )
            return
        if self.outcome == "not used":
            yield f"{self.path} was not played: no client sent it a request"
        if self.cassette.unused_answers:
            yield unused_text(self.cassette.unused_answers)
        if self.outcome == "left empty":
            yield (
                f"nothing was recorded, and {self.path} not written: no client sent a request to "
                "the url of the cassette"
            )
        elif self.age_days is not None:
            yield f"{self.path} is {self.age_days} days old; record it anew with --mrtr-mode=all"

    def load_recorded(self) -> Cassette | None:
        """Return what is on the cassette, while recording what has been recorded so far, if any.

        Raises:
            CassetteError: it can't be read.
        """
        session = self._recording
        if session is not None:
            return session.recorded()
        return load_cassette(self.path) if self._missing is None else None

    @property
    def upstream_output(self) -> str | None:
        """What the command that serves the upstream has printed, or None where there is none."""
        return None if self._command is None or self.is_stopped else self._command.output

    def unreported_misses(self) -> str | None:
        """Return what had no recorded answer and was not reported before, as one text, or None."""
        cassette = self.cassette
        misses, unrecorded = cassette.misses, cassette.unrecorded
        texts = [*(miss.text for miss in misses), *unrecorded]
        unreported, self._reported = texts[self._reported :], len(texts)
        if not unreported:
            return None
        self.failed = True
        first = len(texts) - len(unreported)
        head, what = "the live server asks something else", "could not be recorded"
        if first < len(misses):
            head = f"miss: {misses[first].reason}: {misses[first].request}"
            what = "had no recorded answer"
        count = len(unreported)
        more = f", and {count - 1} more" if count > 1 else ""
        end = f"{counted(count, 'request')} {what} on {cassette.path}"
        hint = "--mrtr-mode=all records the whole cassette anew"
        if self._sharers is not None and len([*chain(*self._sharers)]) != 1:
            hint = f"{hint}, in a run of all tests that share it"
        return "\n\n".join([f"{head}{more}", *unreported, f"{end}; {hint}"])


def _unplayed_text(cassette: MrtrCassette) -> str:
    unplayed = UnplayedError(cassette.path, cassette.unplayed)
    return f"{unplayed}\nmake these calls too, or record anew with --mrtr-mode=all"
