"""Play a cassette for the tests of a suite, and choose what a mode does with it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NoReturn, cast

from mrtr_cassette.core.cassette.load import load
from mrtr_cassette.core.report.trials import RunOutcome
from mrtr_cassette.errors import CassetteError
from mrtr_cassette.shell.files.cassettes import cassette_exists, journal_path, read_file
from mrtr_cassette.shell.files.stores import location_of
from mrtr_cassette.shell.runs.client_starts import ClientStarts, replayed_by_client
from mrtr_cassette.shell.runs.proxy_runs import ProxyRun
from mrtr_cassette.shell.runs.replaying import replaying
from mrtr_cassette.shell.runs.views import Replay, needs_upstream
from mrtr_cassette.testing.suite_cassette import CassetteUse, UseRequest


class ReplayUse(CassetteUse):
    """A use in which the cassette is played."""

    view: Replay

    def _start_use(self, exit_stack: ExitStack) -> Replay:
        """Start the replay, over HTTP or on pipes as the cassette was recorded."""
        data = read_file(self.place)
        is_piped = False
        if b'"transport"' in data:
            is_piped = load(data, str(self.place)).transport == "stdio"

        options = self._settings.replay
        request = self.request
        if is_piped:
            client_starts = request.suite_run.entering(
                replayed_by_client(self.place, options)
            )
            replay_run: ProxyRun | ClientStarts = exit_stack.enter_context(
                client_starts
            )
        else:
            replay_context = replaying(
                self.place,
                options,
                site=request.site,
                on_event=request.on_event,
                loaded=request.suite_run.loaded_replays,
            )

            replay_run = exit_stack.enter_context(
                request.suite_run.entering(replay_context)
            )
            self._bypass_proxies(replay_run.url, exit_stack)

        return Replay(replay_run, request.mode, self.place, self._settings.answers)

    def _finish_use(self, problems: list[str], *, passed: bool) -> list[str]:  # noqa: ARG002
        """Return all problems, the replay's own first, or note that nothing was played."""
        has_met_fault = any(fault.came for fault in self.view.faults)
        results = self.view.results
        is_answered = results.played or results.unknown_tools
        was_asked = is_answered or results.misses or has_met_fault
        if not was_asked and not self.view.has_probed_server:
            self.outcome = "not used"
        elif self.view.problem is not None:
            problems.insert(0, self.view.problem)

        return problems


class _NoCassette:
    """Stands for the replay of a cassette that is missing: a test may skip before it needs it."""

    is_recording = False
    outcome = RunOutcome()

    def __init__(self, fail_test: Callable[[], NoReturn]) -> None:
        self._fail_test = fail_test

    def __getattr__(self, _name: str) -> NoReturn:
        self._fail_test()


class MissingUse(CassetteUse):
    """A use of a cassette that doesn't exist in a mode that only plays."""

    _is_needed = False

    def _start_use(self, exit_stack: ExitStack) -> Replay:  # noqa: ARG002
        """Return a replay that fails the test when it is first needed."""
        missing_replay = cast("Any", _NoCassette(self._fail_test))
        return Replay(
            missing_replay, self.request.mode, self.place, self._settings.answers
        )

    @property
    def missing_error(self) -> CassetteError:
        """Why it can't be played."""
        mode = self.request.mode
        default = " (mode none is the default under CI)" if mode == "none" else ""
        return CassetteError(
            self.place,
            f"there is no such cassette, and in mode {mode} no new one is recorded",
            hint=f"record it with {self.terms['record']} where the server can be reached, and "
            f"commit it{default}",
        )

    def _fail_test(self) -> NoReturn:
        """Fail the test for the missing cassette, and note that it was needed."""
        self._is_needed = True
        self.request.fail_test(self.missing_error)

    def conclude(self, *, passed: bool, plays_all: bool = False) -> list[str]:  # noqa: ARG002
        """Return why a test that passed should not have: it has swallowed the error."""
        self.outcome = "not used"
        is_told = self.failed or self.given_up is not None
        if not passed or is_told or not self._is_needed:
            return []

        return [str(self.missing_error)]

    def load_recorded(self) -> None:
        """Return None: there is none."""


def begin_use(request: UseRequest) -> CassetteUse:
    """Begin to record or replay a cassette, as the mode says."""
    path = request.path
    if needs_upstream(request.mode, path, is_old=request.age_days is not None):
        # Whoever replays loads no client.
        from mrtr_cassette.testing.suite_recording import RecordingUse, VerifyingUse

        use_class = VerifyingUse if request.mode == "verify" else RecordingUse
        return use_class(request)

    if cassette_exists(path) or journal_path(path).exists():
        _refuse_missing_beside(request)
        return ReplayUse(request)

    return MissingUse(request)


def _refuse_missing_beside(request: UseRequest) -> None:
    """Make sure that the further cassettes to play exist.

    Raises:
        CassetteError: a file is missing.
    """
    for place in map(location_of, request.settings.replay.beside):
        if not cassette_exists(place) and not journal_path(place).exists():
            reason = "there is no such cassette, and several are only played"
            hint = "record it as the only cassette, with <<record>>"
            raise CassetteError(place, reason, hint=hint)
