"""Recordings and replays as users see them, and what each mode does with a cassette."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.replay.faults import FaultOutcome
from mrtr_cassette.core.report.details import CassetteDetails, Interaction, details_of
from mrtr_cassette.core.report.runs import CallResult, MissReport
from mrtr_cassette.errors import CassetteError, MrtrCassetteError, UsageError, shorten
from mrtr_cassette.options import (
    Existing,
    FilePath,
    Mode,
    ProbeOptions,
    RecordOptions,
    UpstreamOptions,
    VerifyOptions,
    options_from,
    options_of,
)
from mrtr_cassette.shell.files.cassettes import cassette_exists, load_cassette
from mrtr_cassette.shell.files.stores import Location, location_of, path_of
from mrtr_cassette.shell.runs.proxy_runs import ProxyRun
from mrtr_cassette.shell.runs.running import result_in_thread

if TYPE_CHECKING:
    from mrtr_cassette.core.report.probes import Probing
    from mrtr_cassette.core.report.trials import RunOutcome
    from mrtr_cassette.shell.runs.calling import Answers
    from mrtr_cassette.shell.runs.client_starts import ClientStarts


@lru_cache(maxsize=4)
def _details_of(cassette: Cassette) -> CassetteDetails:
    """Return the details of a cassette, which many plays may have in common."""
    return details_of(cassette)


class ProbedServer(NamedTuple):
    """The server that a test's cassette was recorded from."""

    upstream: Callable[[], str | Sequence[str]]
    """Returns its URL, or the command that starts it."""

    options: VerifyOptions
    """How it is reached, and what doesn't count."""


class MrtrCassette:
    """A cassette in use.

    Attributes:
        mode: the mode of a test: `none`, `once`, `append`, `all` or `verify`.
        is_recording: whether requests go to an upstream, in mode append what the cassette lacks;
            else all answers come from the cassette.
    """

    def __init__(
        self,
        proxy_run: ProxyRun | ClientStarts,
        mode: Mode | None = None,
        path: Location | None = None,
        answers: Answers = None,
    ) -> None:
        """Show a run whose cassette will be at `path`, if it is at another place so far."""
        self._proxy_run = proxy_run
        self._cassette_path = path
        self._default_answers = answers
        self.live: ProbedServer | None = None
        """The server of a test's cassette; None outside of tests."""
        self.has_probed_server = False
        """A live server was probed with it."""
        self._unused_answer_names: set[str] = set()
        self._unused_default_names: set[str] | None = None
        self.is_recording = proxy_run.is_recording
        self.mode: Mode = mode or ("once" if self.is_recording else "none")

    @property
    def url(self) -> str:
        """What the client connects to."""
        return self._proxy_run.url

    @property
    def admin_url(self) -> str | None:
        """Where /livez, /readyz and /metrics are served; None without `admin_port`."""
        return self._proxy_run.admin_url

    @property
    def is_piped(self) -> bool:
        """Whether clients start `command`, and have no `url`."""
        return self._proxy_run.is_piped

    @property
    def command(self) -> list[str]:
        """What a client of a server on pipes starts, as often as it likes."""
        return self._proxy_run.command

    @property
    def path(self) -> Path:
        """The cassette's file; what is recorded is written when the block, test or run ends."""
        return path_of(self._cassette_path or location_of(self.place))

    @property
    def place(self) -> str:
        """The same as text: its path, or its URL in a store without the credentials in it."""
        return str(self._proxy_run.path)

    @property
    def results(self) -> RunOutcome:
        """All that it came to so far, at one moment."""
        return self._proxy_run.outcome

    @property
    def played(self) -> int:
        """How many requests got a recorded reply so far."""
        return self._proxy_run.outcome.played

    @property
    def harmless(self) -> int:
        """How many requests were not recorded, and got any server's answer."""
        return self._proxy_run.outcome.harmless

    @property
    def interactions(self) -> tuple[Interaction, ...]:
        """The interactions of the cassette; while recording, those recorded so far."""
        cassette = self._proxy_run.cassette_so_far()
        return () if cassette is None else details_of(cassette).interactions

    @property
    def unplayed(self) -> tuple[Interaction, ...]:
        """Interactions of the cassette, or of one that is added to, not wholly played so far."""
        return self.interactions_with_numbers(self._proxy_run.outcome.unplayed or ())

    @property
    def after_other_writes(self) -> tuple[Interaction, ...]:
        """The reads that were played after other writes than recorded, as they had one answer."""
        return self.interactions_with_numbers(
            self._proxy_run.outcome.after_other_writes
        )

    def interactions_with_numbers(
        self, numbers: Collection[int]
    ) -> tuple[Interaction, ...]:
        """Return the interactions with these numbers of the cassette that is played."""
        base = self._proxy_run.played_cassette
        if base is None or not numbers:
            return ()

        wanted_numbers = set(numbers)
        interactions = _details_of(base).interactions
        return tuple(
            [details for details in interactions if details.number in wanted_numbers]
        )

    @property
    def misses(self) -> tuple[MissReport, ...]:
        """What was asked so far and had not been recorded; a test fails if there is any."""
        return tuple(self._proxy_run.outcome.misses)

    @property
    def faults(self) -> tuple[FaultOutcome, ...]:
        """How often each fault was met so far; a test fails if nothing met one."""
        return tuple(self._proxy_run.outcome.faults)

    @property
    def unrecorded(self) -> tuple[str, ...]:
        """Why retries were not recorded: the live server no longer asks what was recorded."""
        return tuple(self._proxy_run.outcome.unrecorded)

    @property
    def unknown_tools(self) -> Mapping[str, int]:
        """How often each tool was called that the recorded server doesn't have, in a trial."""
        return self._proxy_run.outcome.unknown_tools

    @property
    def problem(self) -> str | None:
        """Why the recording is incomplete, or a process that the client started came to nothing."""
        return self._proxy_run.outcome.problem

    @property
    def unused_answers(self) -> list[str]:
        """The names of answers that nothing asked for: of a call, or of the marker in all calls."""
        return sorted(self._unused_answer_names | (self._unused_default_names or set()))

    @property
    def unused_options(self) -> Sequence[tuple[str, str]] | None:
        """Values of `ignore` and `reads` that matched nothing so far; None where nothing plays."""
        return self._proxy_run.outcome.unused

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        method: str = "tools/call",
        answers: Answers = None,
    ) -> CallResult:
        """Make one call without a client, and answer what the server asks.

        Args:
            name: the tool's or prompt's name, or the resource's URI.
            method: `tools/call`, `prompts/get` or `resources/read`.
            answers: by the name of a field or the key of a question, or an answers file; None
                takes those of the marker.
        """
        from mrtr_cassette.shell.runs.calling import answered_call

        upstream: str | list[str]
        if self._proxy_run.is_piped:
            upstream = self.command
        else:
            upstream = self.url

        if answers is not None:
            result = answered_call(upstream, name, arguments, method, answers)
            self._unused_answer_names.update(result.unused)
            return result

        result = answered_call(upstream, name, arguments, method, self._default_answers)
        if self._unused_default_names is None:
            self._unused_default_names = set(result.unused)
        else:
            self._unused_default_names.intersection_update(result.unused)

        return result

    def probe(
        self, upstream: str | Sequence[str] | None = None, **options: Any
    ) -> Probing:
        """Answer the recorded questions of a live server in ways that nobody recorded.

        Args:
            upstream: URL of the server, or the command that starts it; None takes the test's.
            **options: as in `ProbeOptions`; those of the marker about the server hold too.

        Raises:
            UsageError: an option is wrong, no server is known, or nothing is recorded.
        """
        from mrtr_cassette.shell.runs.probing import probe_recorded

        checked_options = options_from(ProbeOptions, options, "probe")
        if self.live is not None:
            probe_options = {}
            for name in [*options_of(UpstreamOptions), "ignore", "ignore_from"]:
                if name not in options:
                    probe_options[name] = getattr(self.live.options, name)

            checked_options = replace(checked_options, **probe_options)
            upstream = upstream or self.live.upstream()

        if not upstream:
            raise UsageError("probe needs the URL or the command of a server")

        cassette = self._proxy_run.cassette_so_far()
        if cassette is None:
            raise UsageError(f"nothing is recorded on {self.path} so far to probe with")

        self.has_probed_server = True
        return result_in_thread(probe_recorded(cassette, upstream, checked_options))


class Recording(MrtrCassette):
    """A recording under way, or done."""

    @property
    def objection(self) -> str | None:
        """Why what was recorded is not published as a cassette, or None."""
        return self._proxy_run.outcome.objection

    @property
    def unreachable(self) -> int:
        """How many requests the upstream did not answer."""
        return self._proxy_run.outcome.unreachable


class Replay(MrtrCassette):
    """A replay under way, or done."""


# What a mode does with a cassette


def needs_upstream(mode: Mode, cassette: Location, *, is_old: bool) -> bool:
    """Tell whether a mode calls the upstream of a cassette, which need not exist."""
    if mode == "once":
        return is_old or not cassette.exists()
    if mode == "verify":
        return cassette.exists()
    return mode in ("append", "all")


def existing_for_mode(mode: Mode, *, is_old: bool) -> Existing:
    """Return what becomes of an existing cassette when a mode records."""
    if mode == "append":
        return "append"
    if mode == "all" or is_old:
        return "replace"
    return "keep"


def options_for(
    existing: Existing, options: RecordOptions, ignore_from: FilePath | None
) -> RecordOptions:
    """Turn the options for adding to a cassette into those for keeping or replacing one.

    Args:
        ignore_from: a file of places that don't count when a cassette is replaced.
    """
    if existing == "append":
        return options

    replaces = existing == "replace"
    return replace(
        options,
        existing=existing,
        ignore=options.ignore if replaces else (),
        ignore_from=ignore_from if replaces else None,
        masks=options.masks if replaces else (),
        repeat="auto",
        history="auto",
        reads=(),
        match=None,
        echo=False,
    )


def days_too_old(cassette: Location, max_age: int) -> int | None:
    """Return the age of a cassette in days; None if it is below the limit, or there is none.

    Raises:
        CassetteError: its date can't be read.
    """
    if not max_age or not cassette_exists(cassette):
        return None

    try:
        date_text = load_cassette(cassette).recorded_at
    except MrtrCassetteError:
        return None  # whoever plays it will say so

    try:
        recorded_at = datetime.fromisoformat(date_text)
    except ValueError:
        reason = (
            f"/recording/recorded_at is {shorten(repr(date_text))}, which is not a date"
        )
        hint = "write one such as 2026-07-28T12:00:00+00:00, or leave out max_age"
        raise CassetteError(cassette, reason, hint=hint) from None

    if recorded_at.tzinfo is None:
        recorded_at = recorded_at.replace(tzinfo=UTC)

    age = (datetime.now(UTC) - recorded_at).days
    return age if age >= max_age else None
