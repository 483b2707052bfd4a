"""Cassettes in use: publish what tests recorded, and play what they need."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from threading import Lock
from typing import Any, Literal, NoReturn, Protocol, TypeVar

from mrtr_cassette.core.cassette.dump import dump
from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.cassette.transports import ENDPOINT
from mrtr_cassette.core.report.details import Redaction
from mrtr_cassette.core.report.runs import (
    UnplayedError,
    unmet_faults_text,
    unused_answers_text,
)
from mrtr_cassette.core.secrets.names import strip_volatile
from mrtr_cassette.errors import (
    BeingRecordedError,
    MrtrCassetteError,
    UsageError,
    counted,
)
from mrtr_cassette.options import (
    Existing,
    Mode,
    RecordOptions,
    ReplayOptions,
    VerifyOptions,
)
from mrtr_cassette.shell.files.cassettes import load_cassette, publish_cassette
from mrtr_cassette.shell.files.journals import Publication
from mrtr_cassette.shell.files.log import OnEvent
from mrtr_cassette.shell.files.stores import Location, path_of
from mrtr_cassette.shell.runs.replaying import LoadedReplays
from mrtr_cassette.shell.runs.running import in_thread, reached_without_proxy
from mrtr_cassette.shell.runs.sites import Site
from mrtr_cassette.shell.runs.views import MrtrCassette, ProbedServer, days_too_old
from mrtr_cassette.terms import Terms, in_terms

T = TypeVar("T")
TestOutcome = Literal["passed", "skipped", "xfailed", "failed"]
"""The outcome of a test; of its last run, if it was run again."""


@dataclass(slots=True)
class SharedRecording:
    """The recording of a cassette that tests share: each use adds to those before it."""

    path: Path
    """The cassette that it becomes."""

    existing: Existing
    write_cassette: Callable[[Cassette], Publication]
    """Writes the cassette when its tests have passed."""

    place: Path
    """Where the recording is until the run ends."""

    terms: Terms
    tests: dict[str, None] = field(default_factory=dict)
    """The tests that share the cassette."""

    redacted: tuple[Redaction, ...] = ()
    """What redaction replaced, when it is published."""

    def keep_until_end(self, recorded: Cassette) -> None:
        """Keep what was recorded so far until the run ends."""
        publish_cassette(self.place, [dump(recorded)], replace=True)

    def publish_if_passed(
        self, outcomes: Mapping[str, TestOutcome], why_partial: str | None
    ) -> tuple[str, str | None]:
        """Publish the cassette; return its outcome, and why the run has to fail, or None.

        A run that is partial, for the reason `why_partial`, may not have all tests.
        """
        outcome = self._why_discarded(outcomes)
        if outcome is not None:
            return outcome, None

        recorded_cassette = load_cassette(self.place)
        is_new = not self.path.exists()
        if self.existing == "replace" and not is_new:
            problem = self._loss_if_replaced(
                recorded_cassette, self._test_without_calls(outcomes) or why_partial
            )
            if problem is not None:
                return "discarded (not all calls recorded)", problem

        publication = self.write_cassette(recorded_cassette)
        self.redacted = publication.redacted
        if publication.is_same:
            return "same, kept", None
        if self.existing == "append" and not is_new:
            return "added to", None

        return "recorded", None

    def _why_discarded(self, outcomes: Mapping[str, TestOutcome]) -> str | None:
        """Return the outcome `discarded` if a test failed or did not run, else None."""
        for test in self.tests:
            if test not in outcomes:
                return "discarded (test did not run)"
            if outcomes[test] == "failed":
                return "discarded (test failed)"

        return None

    def _test_without_calls(self, outcomes: Mapping[str, TestOutcome]) -> str | None:
        """Return which of the tests has not made its calls, or None."""
        for test in self.tests:
            if outcomes[test] != "passed":
                return f"{test} was {outcomes[test]}"

        return None

    def _loss_if_replaced(
        self, recorded: Cassette, why_partial: str | None
    ) -> str | None:
        """Return why a run that left something out must not replace the cassette, or None."""
        if why_partial is None:
            return None

        counts_before = _call_counts(load_cassette(self.path))
        lost_count = (counts_before - _call_counts(recorded)).total()
        if not lost_count:
            return None

        return (
            f"{self.path} was not replaced: this run has not recorded "
            f"{counted(lost_count, 'call')} that it has, and {why_partial}\nrun all tests that "
            f"share it, add to it with {self.terms['append']}, or delete it first"
        )


def _call_counts(cassette: Cassette) -> Counter[str]:
    """Count the calls of a cassette by keys that are the same in every recording."""
    calls: Counter[str] = Counter()
    for interaction in cassette.interactions:
        key = "\n".join(interaction.exchanges[0].call.key())
        calls[strip_volatile(key)] += 1

    return calls


class Applications:
    """Serves application objects until the end of the run.

    Most can't be started a second time: the session manager of the Python SDK, for one.
    """

    def __init__(self) -> None:
        self._served_applications = ExitStack()
        self._urls_by_application: dict[int, tuple[Any, str]] = {}
        """By the ids of the objects, which are kept so that no other object gets their ids."""

    def serve_once(self, application: Any, path: str) -> str:
        """Serve an application, unless it is served already, and return where."""
        # Whoever replays loads no client.
        from mrtr_cassette.shell.runs.upstreams import serving_application

        if id(application) not in self._urls_by_application:
            server_context = in_thread(serving_application(application))
            url = self._served_applications.enter_context(server_context)
            self._urls_by_application[id(application)] = (application, url)

        _, url = self._urls_by_application[id(application)]
        return url.removesuffix(ENDPOINT) + path

    def close(self) -> None:
        """Stop them all."""
        self._served_applications.close()


class Entering(Protocol):
    """Enters and leaves an async context manager, wherever its loop is."""

    def __call__(
        self, manager: AbstractAsyncContextManager[T], /
    ) -> AbstractContextManager[T]:
        """Return a context manager that does both, and waits for them."""


@dataclass(slots=True)
class SuiteContext:
    """One run of a test suite."""

    cwd: Path
    """Where commands run."""

    is_worker: bool
    """Other processes run tests of the suite too."""

    option_matches: Counter[str]
    """In how many tests each name in `reads`, and each kind in `match`, matched something."""

    entering: Entering = in_thread
    """Runs what a cassette needs; by default in a thread of its own."""

    applications: Applications = field(default_factory=Applications)
    loaded_replays: LoadedReplays | None = None
    """What many replays play; None: each loads its own."""

    temporary_folder: Path = field(
        default_factory=lambda: Path(mkdtemp(prefix="mrtr-cassette-"))
    )
    """Has the recordings that are no cassettes yet."""

    paths_being_recorded: set[Path] = field(default_factory=set)
    """The cassettes that are being recorded."""

    shared_recordings: dict[Path, SharedRecording] = field(default_factory=dict)
    _reserving_lock: Lock = field(default_factory=Lock)

    def reserve_cassette(self, path: Path) -> None:
        """Note that a cassette is being recorded.

        Raises:
            BeingRecordedError: another use of this run records it.
        """
        with self._reserving_lock:
            if path in self.paths_being_recorded:
                problem = "it is being recorded already"
                hint = "give one of the two recordings another file"
                raise BeingRecordedError(path, problem, hint=hint)

            self.paths_being_recorded.add(path)

    def close(self) -> None:
        """Stop the applications, and remove what became no cassette."""
        self.applications.close()
        shutil.rmtree(self.temporary_folder, ignore_errors=True)


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
    max_age: int
    """Days after which the cassette is old; 0: never."""

    answers: Any
    """Who answers calls that the test makes without a client: by name, or a file."""

    mode: Mode | None
    """The mode where neither the command line nor the environment has one."""


@dataclass(frozen=True)
class UseRequest:
    """The cassette that a fixture opens, and for whom."""

    suite_run: SuiteContext
    path: Location
    settings: Settings
    mode: Mode
    ask_upstream: Callable[[], Any]
    fail_test: Callable[[MrtrCassetteError], NoReturn]
    sharers: Sequence[str] | None
    """The tests of this run that share the cassette; None where it is a test's own."""

    site: Site | None = None
    """Where clients reach it; None: on a port of its own, which this process reaches too."""

    on_event: OnEvent | None = None

    @cached_property
    def age_days(self) -> int | None:
        """The age of the cassette where it is too old, else None."""
        return days_too_old(self.path, self.settings.max_age)


class CassetteUse:
    """One recording or replay of a cassette, for a test, class or module.

    Making it starts the proxy, `stop` stops it, and `conclude`, when it is known whether the tests
    passed, publishes the cassette or forgets the recording.

    Attributes:
        request: the cassette, and for whom it is opened.
        shown: what tests see.
        failed: a test that used it failed.
        given_up: its only test was skipped, or failed as expected.
        outcome: what became of the cassette, as the run's summary counts it; None where the end of
            the run decides.
        redacted: what redaction replaced in a cassette that was written for the test alone.
    """

    _upstream_purpose = "probe with {}"

    def __init__(self, request: UseRequest) -> None:
        self.request = request
        self.failed = False
        self.given_up: Literal["skipped", "xfailed"] | None = None
        self.is_stopped = False
        self.outcome: str | None = "replayed"
        self.redacted: tuple[Redaction, ...] = ()
        self._reported_misses = 0
        self._reported_unrecorded = 0
        with ExitStack() as exit_stack:
            self.view: MrtrCassette = self._start_use(exit_stack)
            self._running_proxy = exit_stack.pop_all()

        self.view.live = ProbedServer(self._live_server, self._settings.verify)

    def _start_use(self, exit_stack: ExitStack) -> MrtrCassette:
        """Start the proxy; `exit_stack` stops it, and what was started for it."""
        raise NotImplementedError

    def _bypass_proxies(self, url: str, exit_stack: ExitStack) -> None:
        """Let this process reach a port of our own without a proxy."""
        if self.request.site is None:
            exit_stack.enter_context(reached_without_proxy(url))

    def _upstream_of_settings(self) -> Any:
        """Return the upstream from the settings, or else from the fixture `mrtr_upstream`."""
        upstream = self._settings.upstream
        if upstream is None:
            upstream = self.request.ask_upstream()

        if upstream is None:
            raise UsageError(
                f"there is nothing to {self._upstream_purpose.format(self.place)}",
                hint=in_terms("<<name_upstream>>", self.terms),
            )

        return upstream

    def _live_server(self) -> str | Sequence[str]:
        """Return the URL of the upstream, or the command that starts it."""
        upstream = self._upstream_of_settings()
        if isinstance(upstream, str | Sequence):
            return upstream

        # Whoever replays loads no client.
        from mrtr_cassette.shell.runs.upstreams import path_to_call

        path = path_to_call(self._settings.verify.upstream_path, self.load_recorded())
        return self.request.suite_run.applications.serve_once(upstream, path)

    @property
    def place(self) -> Location:
        """Where the cassette is."""
        return self.request.path

    @property
    def path(self) -> Path:
        """The cassette's file, which what is recorded or shown in a suite has."""
        return path_of(self.place)

    @property
    def _settings(self) -> Settings:
        return self.request.settings

    @property
    def terms(self) -> Terms:
        """The terms of messages."""
        return self._settings.replay.terms

    @property
    def exchange_count(self) -> int:
        """How many exchanges were recorded."""
        return 0

    def stop(self) -> None:
        """Stop the proxy, and then the upstream that was started for it."""
        self.is_stopped = True
        self._running_proxy.close()

    def note_end_of_test(self, test: str) -> None:
        """Note a test that recorded something."""

    def conclude(self, *, passed: bool, plays_all: bool = False) -> list[str]:
        """Publish the recording if all is well; return the problems as texts."""
        if passed and self.given_up is None:
            self._count_option_matches()

        problems = []
        plays_all = plays_all or self._settings.replay.fail_on_unplayed
        if passed and plays_all and self.view.unplayed:
            unplayed = UnplayedError(self.place, self.view.unplayed)
            advice = in_terms(
                "make these calls too, or record anew with <<record_again>>",
                self.terms,
            )
            problems.append(f"{unplayed}\n{advice}")

        unmet_faults = unmet_faults_text(self.view.faults)
        if passed and self.given_up is None and unmet_faults is not None:
            problems.append(unmet_faults)

        return self._finish_use(problems, passed=passed)

    def _finish_use(self, problems: list[str], *, passed: bool) -> list[str]:
        """Publish a recording or forget it; return all problems, with those given."""
        raise NotImplementedError

    def _count_option_matches(self) -> None:
        """Note for the run which values of `reads` and `match` have matched something here."""
        unused = self.view.unused_options
        if unused is None:
            return

        options = self._settings.replay
        given_values = [("reads", name) for name in options.reads]
        if isinstance(options.match, Mapping):
            for pointer, kind in options.match.items():
                given_values.append(("match", f"{pointer}={kind}"))

        for option, value in given_values:
            has_matched = (option, value) not in unused
            self.request.suite_run.option_matches[f"{option} {value!r}"] += has_matched

    def unreported_differences(self, *, is_alone: bool) -> str | None:  # noqa: ARG002
        """Return what differs by the end of a test's call in mode verify, once; or None.

        Where nothing but the test itself speaks to the cassette, it has made all its calls.
        """
        return None

    @property
    def warnings(self) -> list[str]:
        """Texts about probable mistakes for which no test fails."""
        if self.given_up is not None:
            return self._warnings_of_given_up()

        warning_texts = []
        if self.outcome == "not used":
            warning_texts.append(
                f"{self.place} was not played: no client sent it a request"
            )

        if self.outcome == "left empty":
            warning_texts.append(
                f"nothing was recorded, and {self.place} not written: no client sent a request to "
                "the url of the cassette"
            )

        age_days = self.request.age_days
        if self.outcome == "replayed" and age_days is not None:
            warning_texts.append(
                f"{self.place} is {age_days} days old; record it anew with {self.terms['replace']}"
            )

        if self.view.unused_answers:
            warning_texts.append(unused_answers_text(self.view.unused_answers))

        return warning_texts

    def _warnings_of_given_up(self) -> list[str]:
        """Return a warning if the recording was discarded because its test was given up."""
        if self.outcome != f"discarded (test {self.given_up})":
            return []

        text = (
            f"{self.place} was not written: the test was {self.given_up}, and a test's own "
            "cassette is written when it passes"
        )
        return [text]

    def load_recorded(self) -> Cassette | None:
        """Return the cassette as it is by now, if there is any."""
        return load_cassette(self.place)

    @property
    def upstream_output(self) -> str | None:
        """The output of the command that serves the upstream, or None."""
        return None

    def unreported_misses(self) -> str | None:
        """Return the misses that were not reported before as one text, or None."""
        misses = self.view.misses[self._reported_misses :]
        unrecorded = self.view.unrecorded[self._reported_unrecorded :]
        self._reported_misses += len(misses)
        self._reported_unrecorded += len(unrecorded)
        problem_texts = [*(miss.text for miss in misses), *unrecorded]
        if not problem_texts:
            return None

        self.failed = True
        requests = counted(len(problem_texts), "request")
        if misses:
            problem_headline = f"miss: {misses[0].reason}: {misses[0].request}"
            problem_conclusion = f"{requests} had no recorded answer on {self.place}"
        else:
            problem_headline = "the live server asks something else"
            problem_conclusion = (
                f"{requests} could not be recorded on {self.place}; "
                f"{self.terms['replace']} records the whole cassette anew"
            )

        if len(problem_texts) > 1:
            problem_headline += f", and {len(problem_texts) - 1} more"

        return "\n\n".join([problem_headline, *problem_texts, problem_conclusion])
