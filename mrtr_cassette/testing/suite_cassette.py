"""Record or replay a cassette for the tests of a suite, and publish it at the end."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Literal, NoReturn, cast

from mrtr_cassette.core.cassette.load import load
from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.compare.conversations import IgnoredFor
from mrtr_cassette.core.report.redactions import Redaction
from mrtr_cassette.core.report.runs import UnplayedError, unused_text
from mrtr_cassette.core.secrets.names import lasting
from mrtr_cassette.errors import (
    CassetteError,
    MrtrCassetteError,
    UpstreamError,
    UsageError,
    counted,
    shorten,
)
from mrtr_cassette.options import Existing, RecordOptions, ReplayOptions, VerifyOptions
from mrtr_cassette.shell.files.cassettes import (
    discard_journal,
    journal_path,
    load_cassette,
    load_if_readable,
    publish_journal,
    publish_recording,
    read_file,
)
from mrtr_cassette.shell.files.disk import reason_of
from mrtr_cassette.shell.files.stores import path_of
from mrtr_cassette.shell.runs.piped import (
    ClientStarts,
    recorded_by_client,
    replayed_by_client,
)
from mrtr_cassette.shell.runs.recording import recording
from mrtr_cassette.shell.runs.replaying import replaying
from mrtr_cassette.shell.runs.running import in_thread, reached_without_proxy
from mrtr_cassette.shell.runs.sessions import (
    RecordSession,
    RunOutcome,
    check_output,
    kept_as_in,
)
from mrtr_cassette.shell.runs.upstreams import (
    Applications,
    RunningCommand,
    is_on_pipes,
    path_at,
    start_upstream,
)
from mrtr_cassette.shell.runs.views import Mode, MrtrCassette, Recording, Replay
from mrtr_cassette.terms import SUITE_TERMS

TestOutcome = Literal["passed", "skipped", "xfailed", "failed"]
"""The outcome of a test; where it was run again, that of the last time."""


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
class SharedRecording:
    """The recording of a cassette that tests share: each use adds to those before it."""

    path: Path
    place: Path
    """Where the recording stands until the run ends."""
    existing: Existing
    renews: bool
    """The cassette is too old as it stands."""
    tests: dict[str, None]
    """The tests that share the cassette."""
    ignored_for: IgnoredFor
    """Tells what doesn't count where the cassette is recorded over."""
    redacted: tuple[Redaction, ...] = ()
    """What redaction replaced, when it is published."""

    def publish(
        self, outcomes: Mapping[str, TestOutcome], narrowed: str | None
    ) -> tuple[str, str | None]:
        """Publish the cassette; return its outcome, and why the run has to fail, or None.

        What narrows the run is why it may not have all tests.
        """
        for test in self.tests:
            if outcomes.get(test, "failed") == "failed":
                return (
                    f"discarded (test {'failed' if test in outcomes else 'did not run'})",
                    None,
                )
        ends = ((test, outcomes[test]) for test in self.tests)
        left_out = next(
            (f"{test} was {end}" for test, end in ends if end != "passed"), narrowed
        )
        recorded, is_new = load_cassette(self.place), not self.path.exists()
        if self.existing == "replace" and left_out is not None and not is_new:
            lost = (_calls(load_cassette(self.path)) - _calls(recorded)).total()
            if lost:
                return "discarded (not all calls recorded)", (
                    f"{self.path} was not replaced: this run has not recorded "
                    f"{counted(lost, 'call')} that it has, and {left_out}\nrun all tests that "
                    f"share it, add to it with {SUITE_TERMS['append']}, or delete it first"
                )
        published = publish_recording(
            *(self.path, recorded, self.existing),
            renews=self.renews,
            ignored_for=self.ignored_for,
        )
        self.redacted = published.redacted
        if published.is_same:
            return "same, kept", None
        return (
            "added to" if self.existing == "append" and not is_new else "recorded",
            None,
        )


def _calls(cassette: Cassette) -> Counter[str]:
    keys = ("\n".join(each.exchanges[0].call.key()) for each in cassette.interactions)
    return Counter(map(lasting, keys))


@dataclass(slots=True)
class Run:
    """One run of a test suite."""

    mode: Mode
    is_mode_given: bool
    """The command line or the environment has the mode, whatever a test's settings say."""
    cwd: Path
    """Where commands run."""
    is_worker: bool
    """Other processes run tests of the suite too."""
    reads: Counter[str]
    """In how many tests each name in `reads` matched something."""
    applications: Applications = field(default_factory=Applications)
    folder: Path = field(default_factory=lambda: Path(mkdtemp(prefix="mrtr-cassette-")))
    """Has the recordings that are no cassettes yet."""
    recording: set[Path] = field(default_factory=set)
    """The cassettes that are being recorded."""
    shared: dict[Path, SharedRecording] = field(default_factory=dict)

    def close(self) -> None:
        """Stop the applications, and remove what became no cassette."""
        self.applications.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class _NoCassette:
    """Stands for the replay of a cassette that is missing: a test may skip before it needs it."""

    is_recording = False
    outcome = RunOutcome()

    def __init__(
        self, error: CassetteError, fail: Callable[[MrtrCassetteError], NoReturn]
    ) -> None:
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
        age_days: the age of the cassette where it is too old, else None.
        redacted: what redaction replaced in a cassette that was written for the test alone.
    """

    def __init__(
        self,
        run: Run,
        path: Path,
        settings: Settings,
        ask_upstream: Callable[[], Any],
        fail: Callable[[MrtrCassetteError], NoReturn],
        sharers: Iterable[str] | None,
    ) -> None:
        """Start the proxy.

        `sharers` are the tests of this run that share the cassette; None where it is a test's own.
        """
        self.path = path
        self.failed = False
        self.given_up: Literal["skipped", "xfailed"] | None = None
        self.is_stopped = self._is_same = self._differs = False
        self.outcome: str | None = "replayed"
        self.redacted: tuple[Redaction, ...] = ()
        self._run = run
        self._mode = run.mode if run.is_mode_given else settings.mode or run.mode
        self._settings = settings
        self._ask_upstream = ask_upstream
        self._fail = fail
        self._missing: _NoCassette | None = None
        self._sharers = sharers
        self._shared: SharedRecording | None = None
        self._reported = self._noted = 0
        self._recording: RecordSession | ClientStarts | None = None
        self._command: RunningCommand | None = None
        self.age_days = self._too_old()
        with ExitStack() as running:
            self._running = running
            if self._records():
                self.shown: MrtrCassette = self._record()
            else:
                self.shown = self._replay()
            self._running = running.pop_all()

    def _too_old(self) -> int | None:
        if not self._settings.max_age or not self.path.exists():
            return None
        try:
            date = load_cassette(self.path).recorded_at
        except MrtrCassetteError:
            return None  # whoever plays it will say so
        try:
            recorded = datetime.fromisoformat(date)
        except ValueError:
            raise CassetteError(
                self.path,
                f"/recording/recorded_at is {shorten(repr(date))}, which is no date",
                hint="write one such as 2026-07-28T12:00:00+00:00, or leave out max_age",
            ) from None
        if recorded.tzinfo is None:
            recorded = recorded.replace(tzinfo=UTC)
        age = (datetime.now(UTC) - recorded).days
        return age if age >= self._settings.max_age else None

    @property
    def _reason_to_renew(self) -> str:
        return (
            f"{self.path} is {self.age_days} days old, max_age is {self._settings.max_age}, so "
            f"mode {self._mode} recorded it anew"
        )

    def _records(self) -> bool:
        """Tell whether the mode needs the upstream."""
        if self._mode == "once":
            return not self.path.exists() or self.age_days is not None
        return self._mode in ("append", "all") or (
            self._mode == "verify" and self.path.exists()
        )

    def _replay(self) -> Replay:
        shown = (self._mode, self.path, self._settings.answers)
        if not self.path.exists() and not journal_path(self.path).exists():
            default = (
                " (mode none is the default under CI)" if self._mode == "none" else ""
            )
            error = CassetteError(
                self.path,
                f"there is no such cassette, and in mode {self._mode} no new one is recorded",
                hint=f"record it with {SUITE_TERMS['record']} where the server can be reached, and "
                f"commit it{default}",
            )
            self._missing = _NoCassette(error, self._fail)
            return Replay(cast("Any", self._missing), *shown)
        options = self._settings.replay
        if options.beside:
            names = [
                name if name.endswith(".json") else f"{name}.json"
                for name in options.beside
            ]
            options = replace(
                options, beside=[str(self.path.parent / name) for name in names]
            )
        data = read_file(self.path)
        is_piped = (
            b'"transport"' in data and load(data, str(self.path)).transport == "stdio"
        )
        opened: Any = replayed_by_client if is_piped else replaying
        session = self._running.enter_context(in_thread(opened(self.path, options)))
        if not is_piped:
            self._running.enter_context(reached_without_proxy(session.url))
        return Replay(session, *shown)

    def _record(self) -> Recording:
        if self._settings.replay.beside:
            raise UsageError(
                f"{self.path} is one of several cassettes, which are only played"
            )
        if self.path in self._run.recording:
            raise UsageError(
                f"{self.path} is being recorded by this test already",
                hint="give one of the two fixtures another file",
            )
        upstream = self._upstream()
        is_piped = is_on_pipes(upstream)
        place = self._place(is_piped=is_piped)
        options = self._record_options(place)
        manager: Any
        if is_piped:
            manager = recorded_by_client(
                upstream, place, options, self._run.cwd, named=self.path
            )
        else:
            path = path_at(options.upstream_path, load_if_readable(self.path))
            try:
                url, self._command, arguments = start_upstream(
                    upstream, self._run.applications, self._run.cwd, path, self._running
                )
            except UpstreamError as error:
                if self.age_days is None:
                    raise
                raise UpstreamError(f"{error}\n{self._reason_to_renew}") from None
            manager = recording(
                *(url, place, options), started=arguments, kept_for=self.path
            )
        session = self._running.enter_context(in_thread(manager))
        if not is_piped:
            self._running.enter_context(reached_without_proxy(session.url))
        self._recording = session
        self._run.recording.add(self.path)
        return Recording(session, self._mode, self.path, self._settings.answers)

    def _upstream(self) -> Any:
        upstream = self._settings.upstream
        upstream = self._ask_upstream() if upstream is None else upstream
        if upstream is None:
            purpose = "hold to {}" if self._mode == "verify" else "record {} from"
            raise UsageError(
                f"there is nothing to {purpose.format(self.path)}",
                hint="name an upstream in the marker, @pytest.mark.mrtr_cassette(upstream=...), or "
                "override the fixture mrtr_upstream; it may be a URL, a command or an application",
            )
        return upstream

    def _place(self, *, is_piped: bool) -> Path:
        """Return the place of the recording: the cassette's own, or one that becomes it later."""
        earlier = None
        if self._mode != "verify":
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                reason = f"its folder can't be made: {reason_of(error)}"
                raise CassetteError(self.path, reason) from None
            if self._existing() == "append":
                check_output(self.path, self._settings.record)
                earlier = self.path
            if self._sharers is not None:
                earlier = self._share(self._sharers) or earlier
            elif not is_piped:
                return self.path
        place = Path(mkdtemp(dir=self._run.folder)) / self.path.name
        if earlier is not None and earlier.exists():
            place.write_bytes(earlier.read_bytes())
        return place

    def _share(self, sharers: Iterable[str]) -> Path | None:
        """Take part in a shared recording; return what it has so far, or None."""
        if self._run.is_worker:
            raise UsageError(
                f"{self.path} is shared by tests, and only one process can record it",
                hint="record it with pytest -n 0; with workers of pytest-xdist it is played",
            )
        shared = self._run.shared.get(self.path)
        if shared is None:
            place = Path(mkdtemp(dir=self._run.folder)) / self.path.name
            renews = self.age_days is not None
            shared = SharedRecording(
                *(self.path, place, self._existing(), renews, {}), self._ignored_for()
            )
            self._run.shared[self.path] = shared
        shared.tests |= dict.fromkeys(sharers)
        self._shared = shared
        return shared.place if shared.place.exists() else None

    def _ignored_for(self) -> IgnoredFor:
        from mrtr_cassette.shell.files.ignored import ignoring

        options = self._settings.verify
        return ignoring(options.ignore, options.ignore_from)

    def _existing(self) -> Existing:
        if self._mode == "append":
            return "append"
        return "replace" if self._mode == "all" or self.age_days is not None else "keep"

    def _record_options(self, place: Path) -> RecordOptions:
        """Return the options, with `existing` for the place of the recording."""
        options = self._settings.record
        existing = self._existing()
        if place != self.path:
            existing = "append" if place.exists() else "keep"
        if existing == "append":
            return options
        if self._mode == "verify":
            options = kept_as_in(load_cassette(self.path), options)
        is_over = existing == "replace"
        return replace(
            options,
            existing=existing,
            ignore=options.ignore if is_over else (),
            ignore_from=self._settings.verify.ignore_from if is_over else None,
            repeat="auto",
            history="auto",
            reads=(),
        )

    def stop(self) -> None:
        """Stop the proxy, and then the upstream that was started for it."""
        self.is_stopped = True
        self._running.close()

    def test_ended(self, test: str) -> None:
        """Note a test that recorded something."""
        if self._shared is not None and self._recording is not None:
            exchanges = self._recording.exchanges
            if exchanges > self._noted:
                self._shared.tests[test] = None
            self._noted = exchanges

    def conclude(self, *, passed: bool, plays_all: bool = False) -> list[str]:
        """Publish the recording if all is well; return the problems as texts."""
        if self._missing is not None:
            self.outcome = "not used"
            return (
                [str(self._missing.error)] if passed and self._missing.is_needed else []
            )
        if passed and self.given_up is None:
            self._count_reads()
        problems: list[str] = []
        plays_all = plays_all or self._settings.replay.fail_on_unplayed
        if passed and plays_all and self.shown.unplayed:
            unplayed = UnplayedError(self.path, self.shown.unplayed)
            problems.append(
                f"{unplayed}\nmake these calls too, or record anew with {SUITE_TERMS['replace']}"
            )
        if self._recording is not None:
            self._run.recording.discard(self.path)
            if self._mode == "verify":
                return self._conclude_verifying(self._recording, passed=passed)
            return self._conclude_recording(self._recording, problems, passed=passed)
        if isinstance(self.shown, Replay) and not (
            self.shown.played or self.shown.misses
        ):
            self.outcome = "not used"
        elif self.shown.problem is not None:
            problems.insert(0, self.shown.problem)
        return problems

    def _count_reads(self) -> None:
        unused = self.shown.unused_options
        if unused is None:
            return
        for name in self._settings.replay.reads:
            self._run.reads[name] += ("reads", name) not in unused

    def _objections_to(self, session: RecordSession | ClientStarts) -> list[str]:
        """Return why a recording is not good, as texts."""
        problems = []
        outcome = session.outcome
        if outcome.problem is not None:
            problems.append(f"the recording is not whole: {outcome.problem}")
        if outcome.unreachable:
            count = counted(outcome.unreachable, "request")
            problem = f"the upstream did not answer {count}"
            if self.age_days is not None:
                problem = f"{problem}\n{self._reason_to_renew}"
            problems.append(problem)
        if outcome.objection is not None:
            problems.append(
                f"{outcome.objection}\nif that is meant: publish_anyway=True in the marker"
            )
        return problems

    def _conclude_verifying(
        self, session: RecordSession | ClientStarts, *, passed: bool
    ) -> list[str]:
        problems = self._objections_to(session)
        if self._differs:
            self.outcome = "different"
            return []
        if not passed or problems or self.given_up is not None:
            self.outcome = f"not compared (test {self.given_up or 'failed'})"
            return problems if passed else []
        # What a test leaves out of a shared cassette, another one may do.
        differences = self.differences(is_part=self._sharers is not None)
        self.outcome = "the same" if differences is None else "different"
        return [] if differences is None else [differences]

    def unreported_differences(self, *, is_alone: bool) -> str | None:
        """Return what differs by the end of a test's call in mode verify, once; or None.

        Where nothing but the test itself speaks to the cassette, it has made all its calls.
        """
        if (
            self._differs
            or self._recording is None
            or self._objections_to(self._recording)
        ):
            return None
        is_part = self._sharers is not None or not is_alone
        differences = self.differences(is_part=is_part, is_open=True)
        self._differs = differences is not None
        return differences

    def differences(self, *, is_part: bool = True, is_open: bool = False) -> str | None:
        """Return where what happened differs in mode verify; of a part, without missing calls."""
        if self._mode != "verify" or self._recording is None:
            return None
        from mrtr_cassette.shell.runs.verifying import differences_of

        repeated, options = self._recording.recorded(), self._settings.verify
        try:
            return differences_of(
                self.path, repeated, options, is_part=is_part, is_open=is_open
            )
        except MrtrCassetteError as error:
            return error.in_terms(self._settings.verify.terms)

    def _conclude_recording(
        self,
        session: RecordSession | ClientStarts,
        unplayed: list[str],
        *,
        passed: bool,
    ) -> list[str]:
        problems = self._objections_to(session) + unplayed
        is_kept = passed and not problems
        is_left = self.given_up is not None and self._shared is None
        self.outcome = "discarded (test failed)"
        try:
            if is_kept and not is_left:
                problems += self._keep(session)
            elif isinstance(session, RecordSession):
                discard_journal(session.path)
        except MrtrCassetteError as error:
            return [error.in_terms(self._settings.record.terms)]
        if not is_kept:
            return [*problems, f"{self.path} was not written"] if problems else []
        played = session.outcome.played
        if session.exchanges and is_left:
            self.outcome = f"discarded (test {self.given_up})"
        elif session.exchanges and not problems:
            recorded = "same, kept" if self._is_same else "recorded"
            self.outcome = None if self._shared else "added to" if played else recorded
        elif not problems:
            unused = "left empty" if session.base is None else "not used"
            self.outcome = "replayed" if played else unused
        return problems

    def _keep(self, session: RecordSession | ClientStarts) -> list[str]:
        """Publish a recording, or keep it until the end of the run; return losses as texts."""
        lost = published = None
        renews = self.age_days is not None
        if isinstance(session, RecordSession):
            session.published, lost = publish_journal(session.path, renews=renews)
            published = session.published
        elif session.exchanges and self._shared is None:
            whole = load_cassette(session.path)
            published = publish_recording(
                *(self.path, whole, self._existing()),
                renews=renews,
                ignored_for=self._ignored_for(),
            )
        self._is_same = published is not None and published.is_same
        if published is not None and self._shared is None:
            self.redacted = published.redacted
        if self._shared is not None and session.exchanges:
            path_of(session.path).replace(self._shared.place)
        return [f"the recording is not whole: {lost}"] if lost else []

    @property
    def warnings(self) -> list[str]:
        """Texts about probable mistakes for which no test fails."""
        told = []
        if self.outcome == f"discarded (test {self.given_up})":
            told.append(
                f"{self.path} was not written: the test was {self.given_up}, and a test's own "
                "cassette is written when it passes"
            )
        if self.given_up is not None:
            return told
        if self.outcome == "not used":
            told.append(f"{self.path} was not played: no client sent it a request")
        if self.outcome == "left empty":
            told.append(
                f"nothing was recorded, and {self.path} not written: no client sent a request to "
                "the url of the cassette"
            )
        if self.outcome == "replayed" and self.age_days is not None:
            told.append(
                f"{self.path} is {self.age_days} days old; record it anew with "
                f"{SUITE_TERMS['replace']}"
            )
        if self.shown.unused_answers:
            told.append(unused_text(self.shown.unused_answers))
        return told

    def load_recorded(self) -> Cassette | None:
        """Return the cassette as it is by now, if there is any."""
        if self._recording is not None:
            return self._recording.recorded()
        return load_cassette(self.path) if self._missing is None else None

    @property
    def upstream_output(self) -> str | None:
        """The output of the command that serves the upstream, or None."""
        return (
            None if self._command is None or self.is_stopped else self._command.output
        )

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
        if not misses:
            end += f"; {SUITE_TERMS['replace']} records the whole cassette anew"
        return "\n\n".join([f"{head}{more}", *unreported, end])
