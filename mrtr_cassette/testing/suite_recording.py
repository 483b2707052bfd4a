"""Record a cassette for the tests of a suite, or hold their upstream to it."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.compare.conversations import IgnoredFor, ignores_nothing
from mrtr_cassette.core.protocol.origins import lacks_scheme
from mrtr_cassette.errors import MrtrCassetteError, UpstreamError, UsageError, counted
from mrtr_cassette.options import Existing, RecordOptions
from mrtr_cassette.shell.files.cassettes import (
    check_replaceable,
    load_cassette,
    load_if_readable,
)
from mrtr_cassette.shell.files.ignored import ignored_for_options
from mrtr_cassette.shell.files.journals import (
    Publication,
    discard_journal,
    hint_at_journal,
    publish_recording,
    recorded_in_journal,
)
from mrtr_cassette.shell.files.stores import path_of
from mrtr_cassette.shell.runs.client_starts import ClientStarts, recorded_by_client
from mrtr_cassette.shell.runs.journaling import (
    RecordingRun,
    check_output,
    with_rules_of_cassette,
)
from mrtr_cassette.shell.runs.recording import recording
from mrtr_cassette.shell.runs.upstreams import (
    RunningCommand,
    is_on_pipes,
    path_to_call,
    running_command,
)
from mrtr_cassette.shell.runs.verifying import differences_of
from mrtr_cassette.shell.runs.views import Recording, existing_for_mode, options_for
from mrtr_cassette.terms import in_terms
from mrtr_cassette.testing.suite_cassette import CassetteUse, SharedRecording


class RecordingUse(CassetteUse):
    """A use in which the cassette is recorded, or added to."""

    _upstream_purpose = "record {} from"

    _shared_recording: SharedRecording | None = None
    _noted_exchanges = 0
    """How many exchanges were recorded by the tests that were noted."""

    _started_command: RunningCommand | None = None
    _recording_run: RecordingRun | ClientStarts

    def _start_use(self, exit_stack: ExitStack) -> Recording:
        """Reserve the cassette for this use, and begin to record it; `exit_stack` ends that."""
        request = self.request
        if self._settings.replay.beside:
            problem = f"{self.path} is one of several cassettes, which are only played"
            raise UsageError(problem)

        request.suite_run.reserve_cassette(self.path)
        try:
            return self._start_recording(exit_stack)
        except BaseException:
            request.suite_run.paths_being_recorded.discard(self.path)
            raise

    def _start_recording(self, exit_stack: ExitStack) -> Recording:
        """Begin to record the upstream over HTTP, or on pipes; `exit_stack` ends that."""
        request = self.request
        upstream = self._upstream_of_settings()
        is_piped = is_on_pipes(upstream)
        place = self._recording_place(is_piped=is_piped)
        options = self._recording_options(place)
        recording_context: Any
        if is_piped:
            recording_context = recorded_by_client(
                upstream, place, options, request.suite_run.cwd, shown_place=self.path
            )
        else:
            url, command = self._start_upstream(upstream, options, exit_stack)
            recording_context = recording(
                url,
                place,
                options,
                started=command,
                caller_publishes_to=self.path,
                site=request.site,
                on_event=request.on_event,
            )

        self._recording_run = exit_stack.enter_context(
            request.suite_run.entering(recording_context)
        )
        if not is_piped:
            self._bypass_proxies(self._recording_run.url, exit_stack)

        return Recording(
            self._recording_run, request.mode, self.path, self._settings.answers
        )

    @property
    def exchange_count(self) -> int:
        """How many exchanges were recorded."""
        return self._recording_run.exchange_count

    # Where the upstream is

    def _start_upstream(
        self, upstream: Any, options: RecordOptions, exit_stack: ExitStack
    ) -> tuple[str, Sequence[str] | None]:
        """Start an upstream that has to be started; `exit_stack` stops a command.

        Returns:
            its URL, and its command: an empty one for an application, None for a URL.

        Raises:
            UsageError: it is none of these, or a command that is no list.
            UpstreamError: it does not start.
        """
        if isinstance(upstream, str):
            if "://" not in upstream and not lacks_scheme(upstream):
                hint = f"a command is a list: {shlex.split(upstream)}"
                raise UsageError(f"the upstream {upstream!r} is no URL", hint=hint)

            return upstream, None

        suite_run = self.request.suite_run
        path = path_to_call(options.upstream_path, load_if_readable(self.path))
        try:
            if not isinstance(upstream, Sequence):
                return suite_run.applications.serve_once(upstream, path), ()

            upstream = options.filled_command(upstream)
            command_context = running_command(upstream, suite_run.cwd, path=path)
            self._started_command = exit_stack.enter_context(
                suite_run.entering(command_context)
            )
        except UpstreamError as error:
            if not self._is_outdated:
                raise
            raise UpstreamError(f"{error}\n{self._reason_to_renew}") from None

        return self._started_command.url, upstream

    @property
    def upstream_output(self) -> str | None:
        """The output of the command that serves the upstream, or None."""
        if self._started_command is None or self.is_stopped:
            return None
        return self._started_command.output

    # Where the recording goes

    @property
    def _is_outdated(self) -> bool:
        """Whether the cassette is older than `max_age` allows."""
        return self.request.age_days is not None

    @property
    def _reason_to_renew(self) -> str:
        """Why the cassette is recorded anew, as a text: its age, `max_age` and the mode."""
        request = self.request
        return (
            f"{self.path} is {request.age_days} days old, max_age is {self._settings.max_age}, so "
            f"mode {request.mode} recorded it anew"
        )

    def _treatment_of_existing(self) -> Existing:
        """Return whether a cassette that exists is kept, replaced or added to."""
        return existing_for_mode(self.request.mode, is_old=self._is_outdated)

    def _cassette_writer(self) -> Callable[..., Publication]:
        """Return what writes the cassette when its tests have passed."""
        existing = self._treatment_of_existing()
        ignored_for: IgnoredFor = ignores_nothing
        if existing == "replace":
            options = self._settings.verify
            ignored_for = ignored_for_options(
                options.ignore, options.ignore_from, options.masks
            )

        return partial(
            publish_recording,
            self.path,
            existing=existing,
            renews=self._is_outdated,
            ignored_for=ignored_for,
        )

    def _recording_place(self, *, is_piped: bool) -> Path:
        """Return the place of the recording: the cassette's own, or one that becomes it later."""
        check_replaceable(self.path)
        earlier_recording = None
        if self._treatment_of_existing() == "append":
            check_output(self.path, self._settings.record)
            earlier_recording = self.path

        if self.request.sharers is not None:
            self._shared_recording = self._share_recording(self.request.sharers)
            if self._shared_recording.place.exists():
                earlier_recording = self._shared_recording.place
        elif not is_piped:
            return self.path

        place = self._temporary_place()
        if earlier_recording is not None and earlier_recording.exists():
            place.write_bytes(earlier_recording.read_bytes())

        return place

    def _temporary_place(self) -> Path:
        """Return a place for the recording in a new folder, which is removed when the run ends."""
        folder = mkdtemp(dir=self.request.suite_run.temporary_folder)
        return Path(folder) / self.path.name

    def _share_recording(self, sharers: Sequence[str]) -> SharedRecording:
        """Take part in a shared recording."""
        suite_run = self.request.suite_run
        if suite_run.is_worker:
            problem = (
                f"{self.path} is shared by tests, and only one process can record it"
            )
            hint = (
                "record it with pytest -n 0; with workers of pytest-xdist it is played"
            )
            raise UsageError(problem, hint=hint)

        shared_recording = suite_run.shared_recordings.get(self.path)
        if shared_recording is None:
            shared_recording = SharedRecording(
                self.path,
                self._treatment_of_existing(),
                self._cassette_writer(),
                self._temporary_place(),
                self.terms,
            )
            suite_run.shared_recordings[self.path] = shared_recording

        shared_recording.tests |= dict.fromkeys(sharers)
        return shared_recording

    def _recording_options(self, place: Path) -> RecordOptions:
        """Return the options, with `existing` for the place of the recording."""
        existing = self._treatment_of_existing()
        if place != self.path:
            existing = "append" if place.exists() else "keep"

        ignore_from = self._settings.verify.ignore_from
        return options_for(existing, self._settings.record, ignore_from)

    def note_end_of_test(self, test: str) -> None:
        """Note a test that recorded something."""
        if self._shared_recording is not None:
            exchanges = self._recording_run.exchange_count
            if exchanges > self._noted_exchanges:
                self._shared_recording.tests[test] = None

            self._noted_exchanges = exchanges

    def load_recorded(self) -> Cassette | None:
        """Return the cassette as it is by now, if there is any."""
        return self._recording_run.cassette_so_far()

    # What becomes of it

    def _finish_use(self, problems: list[str], *, passed: bool) -> list[str]:
        """Publish, keep or discard the recording; return the problems as texts."""
        self.request.suite_run.paths_being_recorded.discard(self.path)
        problems = self._recording_objections() + problems
        self.outcome = "discarded (test failed)"
        try:
            if not passed or problems:
                self._discard_journal()
                return [*problems, f"{self.path} was not written"] if problems else []

            if self.given_up is not None and self._shared_recording is None:
                self._discard_journal()
                self.outcome = self._outcome_if_recorded(
                    f"discarded (test {self.given_up})"
                )
                return []

            publication, loss = self._publish_or_keep()
        except MrtrCassetteError as error:
            return [error.in_terms(self._settings.record.terms)]

        if loss is not None:
            return [f"the recording is incomplete: {loss}"]

        self.outcome = self._outcome_if_recorded(
            self._outcome_of_good_recording(publication)
        )
        return []

    def _recording_objections(self) -> list[str]:
        """Return why the recording is not good, as texts."""
        problems = []
        run_outcome = self._recording_run.outcome
        if run_outcome.problem is not None:
            problems.append(f"the recording is incomplete: {run_outcome.problem}")

        if run_outcome.unreachable:
            count = counted(run_outcome.unreachable, "request")
            problem = f"the upstream did not answer {count}"
            if self._is_outdated:
                problem = f"{problem}\n{self._reason_to_renew}"

            problems.append(problem)

        if run_outcome.objection is not None:
            advice = in_terms("<<publish_anyway>>", self.terms)
            problems.append(f"{run_outcome.objection}\nif that is meant: {advice}")

        return problems

    def _discard_journal(self) -> None:
        """Remove the journal, unless it is that of a process, which may still write it."""
        if isinstance(self._recording_run, RecordingRun):
            discard_journal(self._recording_run.path)

    def _publish_or_keep(self) -> tuple[Publication | None, str | None]:
        """Publish a recording, or keep it until the end of the run; return also what was lost."""
        recording_run = self._recording_run
        recorded_cassette = None
        loss = None
        hint = None
        if isinstance(recording_run, RecordingRun):
            recorded_cassette, loss = recorded_in_journal(recording_run.path)
            hint = hint_at_journal(recording_run.path)
        elif recording_run.exchange_count:
            recorded_cassette = load_cassette(recording_run.path)

        publication = None
        if recorded_cassette is not None and self._shared_recording is not None:
            self._shared_recording.keep_until_end(recorded_cassette)
        elif recorded_cassette is not None:
            publication = self._cassette_writer()(recorded_cassette, hint=hint)
            self.redacted = publication.redacted

        if isinstance(recording_run, RecordingRun):
            recording_run.publishing.published = publication

        self._discard_journal()
        return publication, loss

    def _outcome_of_good_recording(self, publication: Publication | None) -> str | None:
        """Return what became of a recording that is good; None if that comes later."""
        if self._shared_recording is not None:
            return None
        if self._recording_run.outcome.played:
            return "added to"

        is_same = publication is not None and publication.is_same
        return "same, kept" if is_same else "recorded"

    def _outcome_if_recorded(self, if_recorded: str | None) -> str | None:
        """Return what became of the cassette: `if_recorded`, unless nothing was recorded."""
        recording_run = self._recording_run
        if recording_run.exchange_count:
            return if_recorded
        if recording_run.outcome.played:
            return "replayed"

        return "left empty" if recording_run.played_cassette is None else "not used"


class VerifyingUse(RecordingUse):
    """A use in which the upstream is called, and held to the cassette, which stays."""

    _upstream_purpose = "hold to {}"
    _has_differences = False

    def conclude(self, *, passed: bool, plays_all: bool = False) -> list[str]:
        """Return the problems as texts, and remove the recording, which nobody needs any more."""
        try:
            return super().conclude(passed=passed, plays_all=plays_all)
        finally:
            temporary_place = path_of(self._recording_run.path)
            shutil.rmtree(temporary_place.parent, ignore_errors=True)

    def _recording_place(self, *, is_piped: bool) -> Path:  # noqa: ARG002
        """Return a temporary place, since the cassette itself is not written."""
        return self._temporary_place()

    def _recording_options(self, place: Path) -> RecordOptions:  # noqa: ARG002
        """Return options by which the recording hides the same things as the cassette."""
        options = with_rules_of_cassette(
            load_cassette(self.path), self._settings.record
        )
        return options_for("keep", options, None)

    def _finish_use(self, problems: list[str], *, passed: bool) -> list[str]:
        """Compare the recording with the cassette if the test passed; return the problems."""
        self.request.suite_run.paths_being_recorded.discard(self.path)
        problems = self._recording_objections()
        if self._has_differences:
            self.outcome = "different"
            return []

        if not passed or problems or self.given_up is not None:
            self.outcome = f"not compared (test {self.given_up or 'failed'})"
            return problems if passed else []

        # Another test may make the calls of a shared cassette that this one leaves out.
        differences = self._differences_text(
            may_lack_calls=self.request.sharers is not None
        )
        if differences is None:
            self.outcome = "the same"
            return []

        self.outcome = "different"
        return [differences]

    def unreported_differences(self, *, is_alone: bool) -> str | None:
        """Return what differs by the end of a test's call, once; or None.

        Where nothing but the test itself speaks to the cassette, it has made all its calls.
        """
        if self._has_differences or self._recording_objections():
            return None

        may_lack_calls = self.request.sharers is not None or not is_alone
        differences = self._differences_text(
            may_lack_calls=may_lack_calls, is_open=True
        )
        self._has_differences = differences is not None

        return differences

    def _differences_text(
        self, *, may_lack_calls: bool, is_open: bool = False
    ) -> str | None:
        """Return where what happened differs; of a part, without missing calls."""
        cassette_of_run = self._recording_run.cassette_so_far()
        options = self._settings.verify
        try:
            return differences_of(
                self.path,
                cassette_of_run,
                options,
                may_lack_calls=may_lack_calls,
                is_open=is_open,
            )
        except MrtrCassetteError as error:
            return error.in_terms(options.terms)
