"""The options of recording and replaying: each is defined once, for every front.

Rule: every run of pytest imports this module, so it imports nothing large before there is a value
to check. A new option is one field here, and one line in the keywords of `api`.

The library and the marker of pytest use the name of the field.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from mrtr_cassette.errors import LIBRARY_TERMS, Terms, UsageError
from mrtr_cassette.option_values import (
    FilePath,
    checked,
    default_of,
    ignored_paths,
    kept_header_names,
    list_options,
    option_field,
    options_of,
)

if TYPE_CHECKING:
    from mrtr_cassette.core.secrets.rules import RedactionRules
    from mrtr_cassette.core.wire.http import Headers
    from mrtr_cassette.core.wire.jsonbytes import MemberPath

Existing = Literal["keep", "replace", "append"]
RequestStates = Literal["sealed", "verbatim"]
Repeats = Literal["auto", "always", "never"]
Pace = Literal["none", "recorded"]
OnMiss = Literal["raise", "report"]

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, kw_only=True, eq=False)
class Options:
    """What all have in common.

    Attributes:
        terms: how the front that made this value spells the options.

    Raises:
        UsageError: a value has the wrong type, or can't be meant.
    """

    max_body: int = option_field(
        "number",
        "Largest body that is taken and kept",
        "--max-body",
        metavar="MIB",
        smallest=1,
        unit=MEBIBYTE,
        default=256 * MEBIBYTE,
    )
    log: Callable[[str], None] | None = option_field(
        "function",
        "Takes one line of text at a time, from the thread of the proxy: each recorded "
        "exchange, each miss, each problem",
    )
    terms: Terms = field(default_factory=lambda: LIBRARY_TERMS, repr=False)

    def __post_init__(self) -> None:
        """Check every value, and make lists unchangeable."""
        for name, option in options_of(type(self)).items():
            value = getattr(self, name)
            if value != default_of(type(self), name):
                object.__setattr__(self, name, checked(name, option, value))


@dataclass(frozen=True, kw_only=True, eq=False)
class ProxyOptions(Options):
    """What the proxies have in common: where they listen, for whom, and what they play."""

    host: str = option_field(
        "text",
        "Address to listen on; any but loopback opens the proxy to others",
        "--host",
        default="127.0.0.1",
    )
    port: int = option_field(
        "number",
        "Port to listen on; 0 takes a free one",
        "--port",
        largest=65535,
        shell_default=8722,
        default=0,
    )
    admin_port: int | None = option_field(
        "number",
        "Serve /livez, /readyz and /metrics on this port; 0 takes a free one",
        "--admin-port",
        largest=65535,
        in_suites=False,
        default=None,
    )
    allow_hosts: Collection[str] = option_field(
        "list", "Let clients call the proxy by this name too", "--allow-host", metavar="NAME"
    )
    allow_origins: Collection[str] = option_field(
        "list",
        "Let pages of this origin call the proxy, such as https://app.example",
        "--allow-origin",
        metavar="ORIGIN",
    )
    ignore: Collection[str] = option_field(
        "list",
        "Leave a value out of matching: a JSON Pointer into the params, such as "
        "/inputResponses/summary or /arguments/requestedAt",
        "--ignore",
        metavar="POINTER",
    )
    repeat: Repeats = option_field(
        "choice",
        "Whether a call may be played more often than recorded; auto: where it only reads",
        "--repeat",
        choices=("auto", "always", "never"),
    )

    def __post_init__(self) -> None:
        """Check every value, and make lists unchangeable."""
        super().__post_init__()
        if self.ignore:
            _ = self.ignored

    @cached_property
    def ignored(self) -> tuple[MemberPath, ...]:
        """The members of the params that don't count in matching."""
        return ignored_paths(self.ignore)


@dataclass(frozen=True, kw_only=True, eq=False)
class UpstreamOptions(Options):
    """What all that call an upstream have in common: what it gets, and how it is verified."""

    headers: Mapping[str, str] | Sequence[tuple[str, str]] = option_field(
        "headers",
        "Add a header to every request to the upstream, in the place of one of that name",
        "--header",
        metavar="'NAME: VALUE'",
    )
    ca_file: FilePath | None = option_field(
        "file",
        "Certificates (PEM) by which a TLS upstream is verified, besides the system's",
        "--ca-file",
        metavar="FILE",
    )
    insecure: bool = option_field(
        "switch", "Don't verify a TLS upstream: whoever answers is believed", "--insecure"
    )

    @cached_property
    def added_headers(self) -> Headers:
        """The headers that every request to the upstream gets."""
        return tuple(self.headers)  # type: ignore[arg-type]

    @property
    def ca_path(self) -> Path | None:
        """The file of certificates."""
        return None if self.ca_file is None else Path(self.ca_file)


@dataclass(frozen=True, kw_only=True, eq=False)
class WritingOptions(UpstreamOptions):
    """What all that write a cassette have in common: what becomes of one that exists."""

    existing: Existing = option_field(
        "choice",
        "keep: a cassette that exists is an error; replace: it is replaced; append: what it "
        "has is played, and what it lacks is recorded and added",
        choices=("keep", "replace", "append"),
        flags={
            "replace": ("--force", "Replace the cassette if it exists"),
            "append": (
                "--append",
                "Play what the cassette has, record what it lacks, and add that",
            ),
        },
        in_suites=False,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class ReplayOptions(ProxyOptions):
    """The options of a replay."""

    pace: Pace = option_field(
        "choice",
        "Send event streams at once, or in the recorded rhythm",
        "--pace",
        choices=("none", "recorded"),
    )
    strict: bool = option_field(
        "switch",
        "Also miss requests that were not recorded and that every server answers alike, such "
        "as ping",
        "--strict",
    )
    stateless: bool = option_field(
        "switch",
        "Give every request the same reply whatever was played before, so that any of several "
        "processes may serve it",
        "--stateless",
        in_suites=False,
    )
    fail_on_unplayed: bool = option_field(
        "switch", "Fail where not all of the cassette was played", "--fail-on-unplayed"
    )
    on_miss: OnMiss = option_field(
        "choice",
        "raise: misses are an error when the block ends; report: they are only reported",
        choices=("raise", "report"),
        in_suites=False,
    )

    def __post_init__(self) -> None:
        """Check every value, and what goes together."""
        super().__post_init__()
        if self.stateless and self.repeat == "never":
            raise UsageError(
                "<<repeat>> never and <<stateless>> don't go together",
                hint="how often a call was played depends on the process that is asked",
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordOptions(WritingOptions, ProxyOptions):
    """The options of a recording."""

    match_headers: Collection[str] = option_field(
        "list",
        "Keep this header of requests too, so that replay tells equal calls apart by it",
        "--match-header",
        metavar="NAME",
    )
    request_state: RequestStates = option_field(
        "choice",
        "sealed: raw state tokens never reach the disk; verbatim: they are kept as they are",
        "--request-state",
        choices=("sealed", "verbatim"),
    )
    redact: Collection[str] = option_field(
        "list",
        "Replace what this regular expression matches by a placeholder, besides the known "
        "shapes of secrets; with a group, group 1",
        "--redact",
        metavar="REGEX",
    )
    redact_keys: Collection[str] = option_field(
        "list",
        "Replace values under this member name too, such as pin",
        "--redact-key",
        metavar="NAME",
    )
    no_redact: Collection[str] = option_field(
        "list",
        "Switch off a rule, such as jwt, or a member name, such as password",
        "--no-redact",
        metavar="NAME",
    )
    seal_answers: bool = option_field(
        "switch", "Keep only hashes of what the user answered", "--seal-answers"
    )
    answers: FilePath | None = option_field(
        "file",
        "Answer what the server asks in the place of a client that can't, by an answers file",
        "--answers",
        metavar="FILE",
        in_suites=False,
    )
    publish_anyway: bool = option_field(
        "switch",
        "Write the cassette even if the command failed, or every request got an error that is "
        "not MCP's",
        "--publish-anyway",
    )

    def __post_init__(self) -> None:
        """Check every value, and what goes together."""
        super().__post_init__()
        if (self.ignore or self.repeat != "auto") and self.existing != "append":
            raise UsageError(
                "<<ignore>> and <<repeat>> need <<append>>",
                hint="they say which calls are played from the cassette that is added to",
            )
        if self.answers is not None and self.existing == "append":
            raise UsageError("<<answers>> and <<append>> don't go together")
        if self.redact or self.redact_keys or self.no_redact:
            _ = self.redaction
        if self.match_headers:
            _ = self.kept_headers

    @cached_property
    def kept_headers(self) -> frozenset[str]:
        """The lower-case names of the headers of requests that are kept too."""
        return kept_header_names(self.match_headers)

    @cached_property
    def redaction(self) -> RedactionRules:
        """What is changed about the built-in rules of redaction."""
        from mrtr_cassette.core.secrets.rules import RedactionRules

        try:
            return RedactionRules(
                tuple(self.redact), tuple(self.redact_keys), tuple(self.no_redact)
            )
        except ValueError as error:
            raise UsageError(str(error)) from None


for _class in (ReplayOptions, RecordOptions):
    list_options(_class)
