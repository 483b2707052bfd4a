"""The recording, the replay and the call without a client, as users see them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import orjson

from mrtr_cassette.core.answers.fulfilment import AnswerSources
from mrtr_cassette.core.answers.written import GivenAnswers, Wanted, WrittenPair
from mrtr_cassette.core.protocol.methods import METHODS, method_of
from mrtr_cassette.core.report.details import Interaction, details_of
from mrtr_cassette.core.report.runs import CallResult, MissReport, UnansweredError
from mrtr_cassette.core.wire.jsonbytes import parse
from mrtr_cassette.errors import UsageError
from mrtr_cassette.options import CallOptions, FilePath
from mrtr_cassette.shell.files.log import Announcer
from mrtr_cassette.shell.files.stores import location, path_of
from mrtr_cassette.shell.runs.answerers import load_answers
from mrtr_cassette.shell.runs.calling import call as call_server
from mrtr_cassette.shell.runs.piped import ClientStarts
from mrtr_cassette.shell.runs.running import result_in_thread
from mrtr_cassette.shell.runs.sessions import Session

Answers = Mapping[str, Any] | FilePath | None
"""By the name of a field or the key of a question; or an answers file."""
Mode = Literal["none", "once", "append", "all", "verify"]


class MrtrCassette:
    """A cassette in use.

    Attributes:
        mode: the mode of a test: `none`, `once`, `append`, `all` or `verify`.
        is_recording: whether requests go to an upstream, in mode append what the cassette lacks;
            else all answers come from the cassette.
    """

    def __init__(
        self,
        session: Session | ClientStarts,
        mode: Mode | None = None,
        path: Path | None = None,
        answers: Answers = None,
    ) -> None:
        """Show a session whose cassette will be at `path`, if it is at another place so far."""
        self._session = session
        self._path = path
        self._answers = answers
        self._unused: set[str] = set()
        self._unused_of_all: set[str] | None = None
        self.is_recording = session.is_recording
        self.mode: Mode = mode or ("once" if self.is_recording else "none")

    @property
    def url(self) -> str:
        """What the client connects to."""
        return self._session.url

    @property
    def admin_url(self) -> str | None:
        """Where /livez, /readyz and /metrics are served; None without `admin_port`."""
        return self._session.admin_url

    @property
    def command(self) -> list[str]:
        """What a client of a server on pipes starts, as often as it likes."""
        return self._session.command

    @property
    def path(self) -> Path:
        """The cassette's file; what is recorded is written when the block, test or run ends."""
        return self._path or path_of(location(self.place))

    @property
    def place(self) -> str:
        """The same as text: its path, or its URL in a store without the credentials in it."""
        return str(self._session.path)

    @property
    def interactions(self) -> tuple[Interaction, ...]:
        """What is on the cassette; while recording: what has been recorded so far."""
        cassette = self._session.recorded()
        return () if cassette is None else details_of(cassette).interactions

    @property
    def unplayed(self) -> tuple[Interaction, ...]:
        """What is on the cassette, or on one that is added to, and was not wholly played so far."""
        base, unplayed = self._session.base, self._session.outcome.unplayed or ()
        details = () if base is None else details_of(base).interactions
        return tuple(each for each in details if each.number in unplayed)

    @property
    def after_other_writes(self) -> tuple[Interaction, ...]:
        """The reads that were played after other writes than recorded, as they had one answer."""
        base, numbers = self._session.base, self._session.outcome.after_other_writes
        details = () if base is None else details_of(base).interactions
        return tuple(each for each in details if each.number in numbers)

    @property
    def misses(self) -> tuple[MissReport, ...]:
        """What was asked so far and had not been recorded; a test fails if there is any."""
        return tuple(self._session.outcome.misses)

    @property
    def unrecorded(self) -> tuple[str, ...]:
        """Why retries were not recorded: the live server no longer asks what was recorded."""
        return tuple(self._session.outcome.unrecorded)

    @property
    def problem(self) -> str | None:
        """Why the recording is not whole, or a process that the client started came to nothing."""
        return self._session.outcome.problem

    @property
    def unused_answers(self) -> list[str]:
        """The names of answers that nothing asked for: of a call, or of the marker in all calls."""
        return sorted(self._unused | (self._unused_of_all or set()))

    @property
    def unused_options(self) -> Sequence[tuple[str, str]] | None:
        """Values of `ignore` and `reads` that matched nothing so far; None where nothing plays."""
        return self._session.outcome.unused

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
        is_piped = isinstance(self._session, ClientStarts)
        upstream = self.command if is_piped else self.url
        own = self._answers if answers is None else answers
        result = answered_call(upstream, name, arguments, method, own)
        if answers is not None:
            self._unused.update(result.unused)
        elif self._unused_of_all is None:
            self._unused_of_all = set(result.unused)
        else:
            self._unused_of_all.intersection_update(result.unused)
        return result


class Recording(MrtrCassette):
    """A recording under way, or done."""

    @property
    def objection(self) -> str | None:
        """Why what was recorded is not published as a cassette, or None."""
        return self._session.outcome.objection

    @property
    def unreachable(self) -> int:
        """How many requests the upstream did not answer."""
        return self._session.outcome.unreachable


class Replay(MrtrCassette):
    """A replay under way, or done."""

    @property
    def played(self) -> int:
        """How many requests got a recorded reply so far."""
        return self._session.outcome.played


def answered_call(
    upstream: str | Sequence[str],
    name: str,
    arguments: Mapping[str, Any] | None,
    method: str,
    answers: Answers,
    *,
    path: FilePath | None = None,
    options: CallOptions | None = None,
) -> CallResult:
    """Make one call without a client.

    Raises:
        UsageError: an answer or an argument is wrong, or the tool is unknown.
        UnansweredError: nothing answers a question of the server.
    """
    options = options or CallOptions()
    if not method_of(method).named_by:
        named = ", ".join(name for name, each in METHODS.items() if each.named_by)
        raise UsageError(f"the method {method!r} is not one of {named}")
    wanted = Wanted(method, name, _pairs_of(arguments or {}, "arguments"))
    if isinstance(answers, str | os.PathLike):
        sources = AnswerSources(file=load_answers(Path(answers)))
    else:
        pairs = _pairs_of({} if answers is None else answers, "answers")
        sources = AnswerSources(GivenAnswers(pairs))
    cassette, announcer = None if path is None else location(path), Announcer(options.log)
    calling = call_server(upstream, wanted, sources, options, announcer, cassette=cassette)
    result = result_in_thread(calling)
    if result.unanswered is not None:
        raise UnansweredError(result)
    return result


def _pairs_of(values: Any, what: str) -> tuple[WrittenPair, ...]:
    """Return named values of Python as JSON values."""
    if not isinstance(values, Mapping):
        raise UsageError(f"{what} is {values!r}, and not a mapping of names to values")
    pairs = []
    for name, value in values.items():
        try:
            pairs.append(WrittenPair(name, parse(orjson.dumps(value)), is_json=True))
        except TypeError:
            raise UsageError(f"{what}: {name!r} has no value that JSON can carry") from None
    return tuple(pairs)
