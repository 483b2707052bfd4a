"""The plays of one process, each a cassette in use: requests begin, watch and end them."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from hmac import compare_digest
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn, TypeVar, get_args

import orjson

from mrtr_cassette.core.report.text import as_data
from mrtr_cassette.core.report.trials import TrialReport, ended_by
from mrtr_cassette.core.wire.http import JSON_HEADERS, Request
from mrtr_cassette.errors import (
    BeingRecordedError,
    CassetteError,
    MrtrCassetteError,
    UpstreamError,
    UsageError,
)
from mrtr_cassette.options import Mode, check_names, default_mode, mode_named
from mrtr_cassette.shell.files.cassettes import cassettes_in
from mrtr_cassette.shell.files.disk import check_file_name
from mrtr_cassette.shell.files.log import Announcer, OnEvent
from mrtr_cassette.shell.files.stores import Location, full_name, location_of
from mrtr_cassette.shell.http.server import HttpDownstream
from mrtr_cassette.shell.runs.replaying import LoadedReplays
from mrtr_cassette.shell.runs.running import LoopOfThreads
from mrtr_cassette.shell.runs.sites import SITES, SharedSite, site_named_in
from mrtr_cassette.terms import PLAY_TERMS, Terms, without_upstream
from mrtr_cassette.testing.settings import (
    OPTION_NAMES,
    OPTIONS,
    OptionSource,
    combined_options,
    option_source_of_call,
    settings_from,
)
from mrtr_cassette.testing.suite_cassette import (
    CassetteUse,
    Settings,
    SuiteContext,
    TestOutcome,
    UseRequest,
)
from mrtr_cassette.testing.suite_replay import MissingUse, begin_use

T = TypeVar("T")

_A_PLAY: Final = "a play"
_A_TRIAL: Final = "a trial"
_FOR_ALL_PLAYS: Final = "all plays have the address of this process"
_WHY_NOT_FOR_PLAYS: Final[Mapping[str, str]] = {
    "host": _FOR_ALL_PLAYS,
    "port": _FOR_ALL_PLAYS,
    "allow_hosts": _FOR_ALL_PLAYS,
    "answers": "the client of the play answers",
    "before_record": "a function can't be sent as JSON",
}
"""The options of a test's cassette that a play does not take, with the reasons."""

_TRIAL_OPTIONS: Final = tuple(
    name
    for name in OPTION_NAMES
    if name != "upstream" and name not in _WHY_NOT_FOR_PLAYS
)
_PLAY_OPTIONS: Final = ("cassette", "upstream", *_TRIAL_OPTIONS)

_FILE_OPTIONS: Final = tuple(
    name for name, option in OPTIONS.items() if option.kind == "file"
)
_GLOB_CHARACTER = re.compile("[*?]")
"""Matches what makes a name a glob; brackets are in the names of parametrized tests."""

_MOST_WORKERS: Final = 32
"""Plays that may be begun or ended at the same time: each may wait for its upstream."""

_MOST_REMEMBERED: Final = 10_000
"""Ended plays of which it is known that they have been there."""

_STATUS_OF_ERRORS: Final = (
    (BeingRecordedError, 409),
    (CassetteError, 422),
    (UpstreamError, 502),
)
"""The HTTP status of each kind of error; of all others it is 400."""


class _ControlRefusedError(Exception):
    """A control request is refused, with this status and text."""

    def __init__(
        self, status: int, text: str, headers: tuple[tuple[str, str], ...] = ()
    ) -> None:
        self.status = status
        self.text = text
        self.headers = headers


@dataclass(slots=True)
class CassettePlay:
    """One play: a cassette in use at a site of its own.

    Attributes:
        name: the cassette as a path within the folder.
    """

    id: str
    name: str
    site: SharedSite
    use: CassetteUse
    is_ending: bool = False

    @property
    def report_data(self) -> dict[str, Any]:
        """What it came to so far, as JSON."""
        view = self.use.view
        results = view.results
        unplayed_calls = []
        for interaction in view.interactions_with_numbers(results.unplayed or ()):
            place = interaction.place
            unplayed_calls.append(
                {
                    "number": place.number,
                    "cassette": place.file or view.place,
                    "method": interaction.method,
                    "name": interaction.name,
                }
            )

        unused = []
        for option, value in results.unused or ():
            unused.append({"option": option, "value": value})

        nearest = results.divergences.nearest
        data: dict[str, Any] = as_data(
            {
                **self._common_members,
                "served": results.played,
                "recorded": self.use.exchange_count,
                "misses": [miss.facts for miss in results.misses],
                "harmless": results.harmless,
                "unknown_tools": results.unknown_tools,
                "stopped": results.stopped,
                "unplayed": unplayed_calls,
                "first_divergence": None if nearest is None else nearest.facts,
                "faults": results.faults,
                "matched": results.matched,
                "learned": results.learned,
                "unused": unused,
                "valid": not results.misses,
            },
            {},
        )
        return data

    @property
    def trial_report(self) -> TrialReport:
        """What it came to as a trial of an agent."""
        results = self.use.view.results
        return TrialReport(
            trial=self.id,
            cassette=self.name,
            valid=not results.misses,
            served=results.played,
            missed=len(results.misses),
            unplayed=len(results.unplayed or ()),
            unknown_tools=dict(results.unknown_tools),
            stopped=results.stopped,
            ended_by=ended_by(results.misses),
            divergences=results.divergences,
            misses=tuple(results.misses),
        )

    @property
    def address_data(self) -> dict[str, Any]:
        """How a client reaches it, as JSON."""
        view = self.use.view
        is_piped = view.is_piped
        return {
            **self._common_members,
            "url": None if is_piped else view.url,
            "command": view.command if is_piped else None,
        }

    @property
    def _common_members(self) -> dict[str, Any]:
        """The members that its beginning and its reports have in common, as JSON."""
        view = self.use.view
        return {
            "id": self.id,
            "cassette": self.name,
            "mode": view.mode,
            "is_recording": view.is_recording,
        }

    def stop_and_publish(self, outcome: TestOutcome) -> dict[str, Any]:
        """Stop it, publish what was recorded if its test passed, and return the last report."""
        use = self.use
        if outcome in ("skipped", "xfailed"):
            use.given_up = outcome

        output = use.upstream_output
        problems = []
        try:
            use.stop()
        except MrtrCassetteError as error:
            problems.append(error.in_terms(use.terms))

        misses = use.unreported_misses()
        if misses is not None:
            problems.append(misses)

        passed = outcome != "failed" and not problems
        problems += use.conclude(passed=passed)
        warnings = []
        if passed and not problems:
            warnings = use.warnings

        return {
            **self.report_data,
            "outcome": use.outcome,
            "problems": problems,
            "warnings": warnings,
            "output": output,
        }


class Trials(NamedTuple):
    """The cassettes of which all plays of a process are trials, and the options of these."""

    cassettes: Sequence[Location]
    options: Mapping[str, Any]
    terms: Terms


class _PlayOptions:
    """The options of plays, whose files are in the served folder."""

    def __init__(
        self, folder: Path, mode: Mode | None, trials_setup: Trials | None
    ) -> None:
        self._served_folder = folder
        self._mode_of_all_plays = mode
        self._trials_setup = trials_setup

    @property
    def must_name_cassettes(self) -> bool:
        """Whether a play has to name its cassettes."""
        return self._trials_setup is None

    def mode_of_play(self, mode_name: Any) -> Mode:
        """Return the mode of all plays if there is any, else the given mode or the default."""
        given_mode = None if mode_name is None else mode_named(mode_name, "mode")
        return self._mode_of_all_plays or given_mode or default_mode()

    def settings_of(self, given_options: dict[str, Any]) -> tuple[Settings, Terms]:
        """Return the settings of a play by the options that it was given, and their terms.

        Raises:
            UsageError: an option is wrong, or a file is not in the folder.
        """
        options = combined_options(self._sources(given_options), PLAY_TERMS)
        terms = PLAY_TERMS
        if self._trials_setup is not None:
            terms = self._trials_setup.terms
        elif "upstream" not in options:
            terms = without_upstream(PLAY_TERMS)

        return settings_from(options, terms), terms

    def _sources(self, values: dict[str, Any]) -> list[OptionSource]:
        """Return what sets the options of a play, with the paths of its files.

        Raises:
            UsageError: one is not in the folder.
        """
        for option in _FILE_OPTIONS:
            if values.get(option) is not None:
                values[option] = self._path_of(values[option])

        trials_setup = self._trials_setup
        if trials_setup is None:
            check_names(values, _PLAY_OPTIONS, _A_PLAY)
            values["cassette"] = self._named_cassettes(values)
            return [option_source_of_call(_A_PLAY, (), values)]

        for name in ("cassette", "upstream"):
            if name in values:
                hint = "it plays the cassettes that this process was started with"
                raise UsageError(f"{_A_TRIAL} has no option {name!r}", hint=hint)

        check_names(values, _TRIAL_OPTIONS, _A_TRIAL)
        names = tuple(map(full_name, trials_setup.cassettes))
        command_line = OptionSource("the command line", trials_setup.options, names)
        return [command_line, OptionSource(_A_TRIAL, values)]

    def _named_cassettes(self, values: Mapping[str, Any]) -> list[Path]:
        """Return the cassettes that a play names: by a file, a folder, a glob, or a list of these.

        Where the play may record, a folder is named with a slash at its end.
        """
        names: Any = values.get("cassette")
        if not isinstance(names, list):
            names = [names]

        if not names or not all(isinstance(name, str) for name in names):
            problem = f'{_A_PLAY} needs "cassette", the name of a file or a list'
            raise UsageError(problem)

        cassette_paths: list[Path] = []
        for name in names:
            path = self._path_of(name)
            file = path
            if path.suffix != ".json":
                file = path.with_name(f"{path.name}.json")

            check_file_name(file)
            may_be_folder = name.endswith("/") or "upstream" not in values
            is_folder = may_be_folder and path.is_dir() and not file.exists()
            if not is_folder and not _GLOB_CHARACTER.search(name):
                cassette_paths.append(file)
                continue

            for path_in_folder in cassettes_in([str(path)]):
                cassette_paths.append(self._path_of(str(path_in_folder)))

        return cassette_paths

    def _path_of(self, name: Any) -> Path:
        """Return the path of a file that a play names; refuse any outside of the folder."""
        if not isinstance(name, str) or not name or "\0" in name:
            raise UsageError(f"{_A_PLAY}: {name!r} is not the name of a file")
        if "://" in name:
            raise UsageError(f"{_A_PLAY} takes the name of a file, and not a URL")

        path = Path(os.path.normpath(self._served_folder / name))
        folder = self._served_folder
        is_inside = path.is_relative_to(folder) and path != folder
        # A symbolic link may lead out of it.
        is_really_inside = path.resolve().is_relative_to(folder.resolve())
        if not is_inside or not is_really_inside:
            problem = f"{_A_PLAY}: {name} is outside of {self._served_folder}"
            hint = "name a file in the served folder, or serve a folder that the file is in"
            raise UsageError(problem, hint=hint)

        return path

    def name_in_folder(self, settings: Settings) -> str:
        """Return the names of the cassettes of a play, as paths within the folder."""
        folder_prefix = f"{self._served_folder}{os.sep}"
        names = []
        for place in (location_of(settings.name or ""), *settings.replay.beside):
            # The name of one in a store may have credentials.
            names.append(str(location_of(place)).removeprefix(folder_prefix))

        return ", ".join(names)


class _Workers:
    """Threads for work that may block, and work that goes on when its client has left."""

    def __init__(self) -> None:
        self.loop_of_threads = LoopOfThreads(asyncio.get_running_loop())
        self._threads = ThreadPoolExecutor(_MOST_WORKERS, "mrtr-cassette-plays")
        self._shielded_futures: set[asyncio.Future[Any]] = set()
        """What is begun or ended just now."""

    def run(self, work: Callable[[], Any]) -> asyncio.Future[Any]:
        """Do work that may block in a worker thread; return the future of its result."""
        return asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def shielded_result(self, work: Awaitable[T]) -> T:
        """Return the result of work, which a client that goes away does not end."""
        work_future = asyncio.ensure_future(work)
        self._shielded_futures.add(work_future)
        work_future.add_done_callback(self._shielded_futures.discard)

        return await asyncio.shield(work_future)

    async def finish_work(self) -> None:
        """Wait for the work that was begun."""
        # An upstream may take long to start, and nobody waits for it any more.
        self.loop_of_threads.give_up_entering()
        await asyncio.gather(*self._shielded_futures, return_exceptions=True)

    def shut_down(self) -> None:
        """End the threads."""
        self._threads.shutdown()


class EndedPlays:
    """What the plays came to that have ended.

    Attributes:
        outcome_counts: counts of what became of their cassettes.
        failed_count: how many of them have missed, or failed their tests in another way.
        validity_counts: how many that recorded nothing were valid, and how many were not.
        trials: what those came to that recorded nothing, if that is kept.
    """

    def __init__(self, *, keeps_trials: bool) -> None:
        self.outcome_counts: Counter[str] = Counter()
        self.failed_count = 0
        self.validity_counts: Counter[bool] = Counter()
        self.trials: list[TrialReport] = []
        self._keeps_trials = keeps_trials
        self._latest_ids: deque[str] = deque(maxlen=_MOST_REMEMBERED)

    def note_end(self, play_id: str) -> None:
        """Remember that a play has been there."""
        self._latest_ids.append(play_id)

    def has_been_there(self, play_id: str) -> bool:
        """Tell whether a play has ended."""
        return play_id in self._latest_ids

    def keep_trial(self, play: CassettePlay, report: dict[str, Any]) -> None:
        """Keep what a play came to that recorded nothing, if that is wanted."""
        if self._keeps_trials and not report["is_recording"]:
            self.trials.append(play.trial_report)

    def count_report(self, report: dict[str, Any]) -> None:
        """Count what a play came to."""
        if not report["is_recording"]:
            self.validity_counts[report["valid"]] += 1

        self.failed_count += bool(report["problems"])
        self.outcome_counts[report["outcome"]] += 1


class Plays:
    """Begins, watches and ends plays of the cassettes in a folder, or of given ones.

    Attributes:
        open_plays: the plays that were not ended, by their ids.
        ended_plays: what those came to that were.
    """

    def __init__(
        self,
        folder: Path,
        mode: Mode | None,
        token: str,
        announcer: Announcer,
        trials_setup: Trials | None = None,
        *,
        keeps_trials: bool = False,
    ) -> None:
        """Begin with none.

        Args:
            keeps_trials: keep what each play came to, for a report at the end.
            trials_setup: the cassettes of all plays; None: each names its own.
            mode: the mode of all plays, whatever they say; None: each says its own.
            token: what control requests have to be authorized by; empty: nothing.
        """
        self.open_plays: dict[str, CassettePlay] = {}
        self.ended_plays = EndedPlays(keeps_trials=keeps_trials)
        self.url = ""
        """The URL of the server, without a path; set before the first request."""
        self._play_options = _PlayOptions(folder, mode, trials_setup)
        self._bearer_token = token
        self._announcer = announcer
        self._workers = _Workers()
        self._suite_run = SuiteContext(
            Path.cwd(),
            is_worker=False,
            option_matches=Counter(),
            entering=self._workers.loop_of_threads.entering,
            loaded_replays=LoadedReplays(),
        )

    async def close(self) -> None:
        """End the plays that nobody has ended; what they recorded is discarded."""
        await self._workers.finish_work()
        async with AsyncExitStack() as exit_stack:
            exit_stack.callback(self._suite_run.close)
            exit_stack.callback(self._workers.shut_down)
            for play in reversed(self.open_plays.values()):
                exit_stack.push_async_callback(self._end_forgotten_play, play)

    async def _end_forgotten_play(self, play: CassettePlay) -> None:
        """End a play that its suite did not end."""
        text = f"the play of {play.name} was never ended"
        event = {"event": "never_ended", "play": play.id}
        self._announcer.say(lambda said: said, (event, f"note: {text}"))
        await self.end_play(play, "failed")

    async def answer_request(self, request: Request, client: HttpDownstream) -> None:
        """Answer a request to a play, or about plays; errors are answered with status and text."""
        site_and_request = site_named_in(request)
        if site_and_request is not None:
            play_id, inner_request = site_and_request
            play = self.open_plays.get(play_id)
            if play is not None and await play.site.answer_request(
                inner_request, client
            ):
                return

        headers: tuple[tuple[str, str], ...] = ()
        try:
            if site_and_request is not None:
                self._refuse_unknown(site_and_request[0])

            status, answer = await self._answer_to_control(request)
        except _ControlRefusedError as refusal:
            status = refusal.status
            answer = {"error": refusal.text}
            headers = refusal.headers
        except MrtrCassetteError as error:
            status = _status_of(error)
            answer = {"error": error.in_terms(PLAY_TERMS)}

        body = orjson.dumps(answer) + b"\n"
        await client.send_response(status, (*JSON_HEADERS, *headers), body)

    # Control requests

    async def _answer_to_control(self, request: Request) -> tuple[int, dict[str, Any]]:
        """Return the HTTP status and the JSON object that answer a control request."""
        path = request.target.partition("?")[0]
        if path != SITES and not path.startswith(f"{SITES}/"):
            problem = f"there is nothing at {path}; plays are at {SITES}"
            raise _ControlRefusedError(404, problem)

        self._check_token(request)
        play_id = path.removeprefix(SITES).removeprefix("/")
        if not play_id:
            return await self._answer_about_plays(request)

        return await self._answer_about_play(request, play_id)

    async def _answer_about_plays(self, request: Request) -> tuple[int, dict[str, Any]]:
        """Report all open plays (GET), or begin a play (POST); return the status and the answer."""
        if request.method == "GET":
            return 200, {"plays": await self._workers.run(self._reports_of_open_plays)}
        if request.method != "POST":
            raise _not_allowed(request, "GET, POST")

        values: dict[str, Any] = {}
        if request.body or self._play_options.must_name_cassettes:
            values = _json_body(request)

        play_future = self._workers.run(partial(self._begin_play, values))
        play: CassettePlay = await self._workers.shielded_result(play_future)
        self._announcer.tell(lambda: {"event": "began", **play.address_data})

        return 201, play.address_data

    async def _answer_about_play(
        self, request: Request, play_id: str
    ) -> tuple[int, dict[str, Any]]:
        """Report a play (GET), or end it (DELETE); return the status and the answer."""
        if request.method not in ("GET", "DELETE"):
            raise _not_allowed(request, "GET, DELETE")

        play = self.open_plays.get(play_id)
        if play is None or play.is_ending:
            self._refuse_unknown(play_id)

        if request.method == "GET":
            return 200, await self._workers.run(lambda: play.report_data)

        outcome: TestOutcome = "passed"
        if request.body:
            outcome = _test_outcome(_json_body(request))

        return 200, await self.end_play(play, outcome)

    def _check_token(self, request: Request) -> None:
        """Refuse a control request without the token that this process requires, if any."""
        if not self._bearer_token:
            return

        given_header = request.header("authorization")
        wanted_header = f"Bearer {self._bearer_token}"
        if not compare_digest(given_header.encode(), wanted_header.encode()):
            raise _ControlRefusedError(
                401,
                "this needs the token of MRTR_CASSETTE_TOKEN, as Authorization: Bearer TOKEN",
                (("WWW-Authenticate", "Bearer"),),
            )

    def _refuse_unknown(self, play_id: str) -> NoReturn:
        """Refuse a play that isn't open: with 410 if it has ended, else with 404."""
        if play_id in self.open_plays or self.ended_plays.has_been_there(play_id):
            raise _ControlRefusedError(410, f"the play {play_id} has ended")
        problem = f"there is no play {play_id!r}; POST {SITES} begins one"
        raise _ControlRefusedError(404, problem)

    # Plays

    def _reports_of_open_plays(self) -> list[dict[str, Any]]:
        """Return the reports of all open plays, as JSON."""
        return [play.report_data for play in tuple(self.open_plays.values())]

    def _begin_play(self, given_options: dict[str, Any]) -> CassettePlay:
        """Begin a play, in a thread: its upstream may take long to start."""
        for name in given_options:
            if name in _WHY_NOT_FOR_PLAYS:
                reason = _WHY_NOT_FOR_PLAYS[name]
                raise UsageError(f"{_A_PLAY} has no option {name!r}", hint=reason)

        mode = self._play_options.mode_of_play(given_options.pop("mode", None))
        settings, terms = self._play_options.settings_of(given_options)
        path = location_of(settings.name or "")
        play_id = secrets.token_hex(8)
        site = SharedSite(self.url, play_id)

        def raise_error(error: MrtrCassetteError) -> NoReturn:
            raise error

        use = begin_use(
            UseRequest(
                self._suite_run,
                path,
                settings,
                mode,
                ask_upstream=lambda: None,
                fail_test=raise_error,
                sharers=None,
                site=site,
                on_event=self._event_callback(play_id),
            )
        )

        if isinstance(use, MissingUse):
            raise _ControlRefusedError(404, use.missing_error.in_terms(terms))

        name = self._play_options.name_in_folder(settings)
        play = CassettePlay(play_id, name, site, use)
        self.open_plays[play_id] = play

        return play

    def _event_callback(self, play_id: str) -> OnEvent | None:
        """Return a function that adds the play's id to events; None if no log takes events."""
        listeners = self._announcer.listeners
        if not listeners:
            return None

        def on_event(event: dict[str, Any]) -> None:
            for listener in listeners:
                listener({**event, "play": play_id})

        return on_event

    async def end_play(
        self, play: CassettePlay, outcome: TestOutcome
    ) -> dict[str, Any]:
        """End a play; say what it came to, and return the report."""
        play.is_ending = True
        return await self._workers.shielded_result(
            self._end_and_count_play(play, outcome)
        )

    async def _end_and_count_play(
        self, play: CassettePlay, outcome: TestOutcome
    ) -> dict[str, Any]:
        """End a play, count and say what it came to, and return the report."""
        try:
            conclude = partial(self._conclude_play, play, outcome)
            report: dict[str, Any] = await self._workers.run(conclude)
        finally:
            del self.open_plays[play.id]
            self.ended_plays.note_end(play.id)

        self.ended_plays.count_report(report)
        announcer = self._announcer
        announcer.tell(lambda: {**report, "event": "ended"})
        if announcer.log is not None:
            for problem in report["problems"]:
                announcer.log(f"error: {problem}")

            for warning in report["warnings"]:
                announcer.log(f"warning: {warning}")

        return report

    def _conclude_play(
        self, play: CassettePlay, outcome: TestOutcome
    ) -> dict[str, Any]:
        """End a play, in a thread: what it has recorded is published."""
        report = play.stop_and_publish(outcome)
        self.ended_plays.keep_trial(play, report)
        return report


def _status_of(error: MrtrCassetteError) -> int:
    """Return the HTTP status with which an error is answered."""
    for kind, status in _STATUS_OF_ERRORS:
        if isinstance(error, kind):
            return status

    return 400


def _not_allowed(request: Request, allowed: str) -> _ControlRefusedError:
    """Return the refusal of the request's method, with the methods that are allowed."""
    text = f"{request.method} is not possible here, only {allowed}"
    return _ControlRefusedError(405, text, (("Allow", allowed),))


def _json_body(request: Request) -> dict[str, Any]:
    """Return the object that a control request has.

    A page of another site can't send this content type unless it is allowed to.
    """
    content_type = request.header("content-type").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise _ControlRefusedError(415, "the Content-Type has to be application/json")

    try:
        values = orjson.loads(request.body)
    except ValueError as error:
        raise _ControlRefusedError(400, f"the body is not JSON: {error}") from None

    if not isinstance(values, dict):
        raise _ControlRefusedError(400, "the body is not a JSON object")

    return values


def _test_outcome(values: dict[str, Any]) -> TestOutcome:
    """Return the outcome of the test that ends a play; `passed` if it doesn't say."""
    outcome = values.get("outcome", "passed")
    outcomes = get_args(TestOutcome)
    if outcome not in outcomes or not values.keys() <= {"outcome"}:
        outcome_names = ", ".join(outcomes)
        problem = f'the body may have "outcome", one of {outcome_names}'
        raise _ControlRefusedError(400, problem)

    test_outcome: TestOutcome = outcome
    return test_outcome
