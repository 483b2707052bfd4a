"""Each option once, for every front: its name, its kind, its help text, what it may be."""

# Every run of pytest imports this module: nothing large is imported before there is a value.

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, get_args

from mrtr_cassette.errors import UsageError
from mrtr_cassette.terms import LIBRARY_TERMS, SHELL_TERMS, Terms

if TYPE_CHECKING:
    from mrtr_cassette.core.cassette.matchers import Matchers
    from mrtr_cassette.core.protocol.hooks import ClientRequest, MatchHook, RecordHook
    from mrtr_cassette.core.secrets.rules import RedactionRules
    from mrtr_cassette.core.wire.http import Headers
    from mrtr_cassette.core.wire.jsonbytes import MemberPath

FilePath = str | os.PathLike[str]
OptionKind = Literal[
    "text",
    "number",
    "switch",
    "choice",
    "list",
    "headers",
    "file",
    "function",
    "faults",
    "values",
    "match",
]
Existing = Literal["keep", "replace", "append"]

Mode = Literal["none", "once", "append", "all", "verify"]
"""What a test, or a play, does with its cassette."""

MODES: Sequence[Mode] = get_args(Mode)
MODE_VARIABLE = "MRTR_CASSETTE_MODE"
"""The environment variable that settles the mode of a whole suite."""

MEBIBYTE = 1024 * 1024
_CALL_TIMEOUT_HELP = "Seconds for a call, including its questions"
_SHORTEST_VALUE = 3
_VALUE_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_NAME_IN_COMMAND = re.compile(f"{{({_VALUE_NAME.pattern})}}")
_SHORTEST_SECRET = 8
"""Characters from which on a text is looked for everywhere, as for any credential."""


class Option(NamedTuple):
    """What the fronts have to know of one option; its help text has no full stop."""

    kind: OptionKind
    help: str
    in_shell: bool = True
    """Whether the command line has it; its flag is its name with dashes, in the singular."""

    flags: Mapping[str, tuple[str, str]] | None = None
    """For a choice, the flags that stand for a value, each with its help text."""

    metavar: str | None = None
    choices: tuple[str, ...] = ()
    of_programs: tuple[str, ...] = ()
    """Further choices, of the library alone: in a suite or a shell there is nothing to raise."""

    smallest: int = 0
    largest: int | None = None
    unit: int = 1
    """How many bytes one is on the command line."""

    shell_default: Any = None
    flag: str = ""
    """Its flag, where that is not its name."""


def option_field(
    kind: OptionKind, text: str, *, default: Any = None, **facts: Any
) -> Any:
    """Return a field that is an option; a list is empty by default, a choice its first value."""
    if kind in ("list", "headers", "faults", "values"):
        default = ()
    elif kind == "switch":
        default = False
    elif kind == "choice":
        default = facts["choices"][0]

    return field(default=default, metadata={"option": Option(kind, text, **facts)})


def options_of(options_class: type[Any]) -> dict[str, Option]:
    """Return the options of a class by name, in the order in which a help text has them."""
    options_by_name = {}
    for member in fields(options_class):
        if "option" in member.metadata:
            options_by_name[member.name] = member.metadata["option"]

    return options_by_name


def flag_of(name: str, option: Option) -> str:
    """Return the flag of an option on the command line; empty where it has none of its own."""
    if option.flags is not None or not option.in_shell:
        return ""
    if option.flag:
        return option.flag

    is_list = option.kind in ("list", "headers", "values")
    return f"--{name.removesuffix('s') if is_list else name}".replace("_", "-")


def default_of(options_class: type[Any], name: str) -> Any:
    """Return the default of an option."""
    return getattr(options_class, name)


_TESTS_OF_KINDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "file": (
        lambda value: value is None or isinstance(value, str | os.PathLike),
        "a path",
    ),
    "function": (lambda value: value is None or callable(value), "a function"),
    "list": (
        lambda value: (
            isinstance(value, Sequence | set | frozenset)
            and all(isinstance(item, str) for item in value)
        ),
        "a list of texts",
    ),
    "number": (lambda value: type(value) is int, "a whole number"),
    "switch": (lambda value: isinstance(value, bool), "True or False"),
    "text": (lambda value: isinstance(value, str), "a text"),
}
"""What the values of a kind are, and how that is said."""


def checked_value(name: str, option: Option, value: Any) -> Any:
    """Return a value in its unchangeable form.

    Raises:
        UsageError: it is not a value of this option.
    """
    if option.kind == "headers":
        return checked_headers(value)

    if option.kind == "faults":
        from mrtr_cassette.core.replay.faults import read_faults

        read_faults(value, f"<<{name}>>")
        return tuple(value)

    if option.kind == "values":
        return checked_values(value)
    if option.kind == "match":
        return checked_match(value)

    if option.kind == "choice":
        choices = option.choices + option.of_programs
        if value not in choices:
            choice_names = ", ".join(choices)
            raise UsageError(f"<<{name}>> is {value!r}, and not one of {choice_names}")

        return value

    if option.kind == "list" and isinstance(value, str):
        raise UsageError(
            f"<<{name}>> is a single text", hint=f"give a list: {name}=[{value!r}]"
        )

    is_right, wanted_words = _TESTS_OF_KINDS[option.kind]
    if not is_right(value):
        raise UsageError(f"<<{name}>> is {value!r}, and not {wanted_words}")

    if option.kind == "number":
        _check_range(name, option, value)

    return tuple(value) if option.kind == "list" else value


def _check_range(name: str, option: Option, value: int) -> None:
    """Raise a `UsageError` if a number is outside its option's limits."""
    largest = option.largest
    if value < option.smallest or (largest is not None and value > largest):
        limit = "" if largest is None else f" and at most {largest}"
        raise UsageError(
            f"<<{name}>> is {value}; it must be at least {option.smallest}{limit}"
        )


def checked_match(value: Any) -> Any:
    """Return the kinds of values that match, by pointer, or the function that tells it.

    Raises:
        UsageError: it is neither a function nor a mapping of JSON Pointers to kinds.
    """
    from mrtr_cassette.core.cassette.matchers import read_matchers

    if callable(value):
        return value

    is_mapping = isinstance(value, Mapping)
    if not is_mapping or not all(isinstance(kind, str) for kind in value.values()):
        raise UsageError(
            f"<<match>> is {value!r}, and not a mapping of JSON Pointers to kinds",
            hint='such as {"/arguments/id": "uuid"}, or a function of two requests',
        )

    for pointer in value:
        if not isinstance(pointer, str):
            raise UsageError(f"<<match>> {pointer!r} is not a JSON Pointer")

    read_matchers(value)
    return dict(value)


def _pairs_in(value: Any, refusal: UsageError) -> Iterator[tuple[Any, Any]]:
    """Yield the pairs of a mapping, or of a list of pairs.

    Raises:
        UsageError: the refusal, as it is neither.
    """
    pairs = value.items() if isinstance(value, Mapping) else value
    if isinstance(pairs, str) or not isinstance(pairs, Iterable):
        raise refusal

    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise refusal

        yield pair[0], pair[1]


def checked_headers(value: Any) -> Headers:
    """Return headers as pairs.

    Raises:
        UsageError: they are no mapping of names to texts, or HTTP can't carry one.
    """
    from mrtr_cassette.core.wire.http import (
        FORBIDDEN_IN_HEADER,
        HEADER_NAME,
        HOP_BY_HOP,
    )

    # Values are not shown: they may be secrets.
    refusal = UsageError(
        "<<headers>> is not a mapping of names to values",
        hint="give it as <<header_form>>",
    )
    pairs = tuple(_pairs_in(value, refusal))
    for name, text in pairs:
        are_texts = isinstance(name, str) and isinstance(text, str)
        has_header_name = are_texts and HEADER_NAME.fullmatch(name)
        if not has_header_name or FORBIDDEN_IN_HEADER.search(text):
            raise UsageError(
                f"<<headers>>: the header {name!r} is not valid in HTTP",
                hint="give it as <<header_form>>",
            )
        if name.lower() in HOP_BY_HOP | {"content-length", "expect"}:
            raise UsageError(
                f"<<headers>>: the header {name!r} is set by the connection itself"
            )

    return pairs


def checked_values(value: Any) -> tuple[tuple[str, str], ...]:
    """Return the texts of values as pairs.

    Raises:
        UsageError: they are no mapping of names to texts.
    """
    refusal = UsageError(
        "<<values>> is not a mapping of names to texts",
        hint="give it as <<give_value>>",
    )
    pairs = []
    for name, text_or_path in _pairs_in(value, refusal):
        text = text_or_path
        if isinstance(text_or_path, os.PathLike):
            text = os.fspath(text_or_path)

        if not isinstance(name, str) or not _VALUE_NAME.fullmatch(name):
            raise UsageError(
                f"<<values>>: {name!r} is not a name",
                hint="a name has letters, digits and underscores, such as root",
            )
        if not isinstance(text, str) or len(text) < _SHORTEST_VALUE:
            raise UsageError(
                f"<<values>>: the text of {name!r} has fewer than {_SHORTEST_VALUE} characters",
                hint="a shorter text is part of too many others",
            )

        pairs.append((name, text))

    return tuple(pairs)


def check_names(names: Iterable[str], known: Collection[str], owner: str) -> None:
    """Refuse what is no option of `owner`, with the nearest name that is one.

    Raises:
        UsageError: a name is not known.
    """
    import difflib

    for name in names:
        if name in known:
            continue

        hint = f"it has {', '.join(known)}"
        nearest_names = difflib.get_close_matches(name, known, n=1)
        if nearest_names:
            hint = f"did you mean {nearest_names[0]!r}?"

        raise UsageError(f"{owner} has no option {name!r}", hint=hint)


@dataclass(frozen=True, kw_only=True, eq=False)
class Options:
    """What all have in common; a value that can't be meant is a `UsageError`."""

    max_body: int = 256 * MEBIBYTE
    """Bytes of the largest body that is taken; only who calls an upstream can set it."""

    log: Callable[[str], None] | None = option_field(
        "function",
        "Takes a line of text at a time, from the thread of the proxy: recorded exchanges, "
        "misses, problems",
        in_shell=False,
    )
    terms: Terms = field(default_factory=lambda: LIBRARY_TERMS, repr=False)
    """How the front that made this value spells the options."""

    def __post_init__(self) -> None:
        """Check every value, and make lists unchangeable."""
        for name, option in options_of(type(self)).items():
            value = getattr(self, name)
            if value != default_of(type(self), name):
                object.__setattr__(self, name, checked_value(name, option, value))


AnyOptions = TypeVar("AnyOptions", bound=Options)


def options_from(
    options_class: type[AnyOptions], given_options: Mapping[str, Any], owner: str
) -> AnyOptions:
    """Return the options that `owner` was given by name."""
    check_names(given_options, options_of(options_class), owner)
    return options_class(**given_options)


@dataclass(frozen=True, kw_only=True, eq=False)
class SecretOptions(Options):
    """What all that see traffic have in common: secrets and values that their user names."""

    redact_env: Collection[str] = option_field(
        "list",
        "Replace the value of this environment variable by a placeholder everywhere",
        metavar="NAME",
    )
    redact_values: Collection[str] = option_field(
        "list",
        "Replace this text by a placeholder everywhere; the text is never written",
        metavar="TEXT",
    )
    values: Mapping[str, FilePath] | Sequence[tuple[str, FilePath]] = option_field(
        "values",
        "Keep this text as {NAME}, for which every run has its own text, such as a folder",
        metavar="NAME=TEXT",
    )

    def __post_init__(self) -> None:
        """Check every value, and that the texts are long enough."""
        super().__post_init__()
        for text in self.redact_values:
            _check_secret("<<redact_values>>: a text", text)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The texts to replace; a variable that is not set has none."""
        texts = [os.environ.get(name, "") for name in self.redact_env]
        return (*filter(None, texts), *self.redact_values)

    @property
    def texts(self) -> dict[str, str]:
        """The texts of values by name."""
        return dict(self.values)  # type: ignore[arg-type]

    def filled_command(self, command: Sequence[str]) -> list[str]:
        """Return a command with the texts of values in the places of their names.

        Raises:
            UsageError: values are given, and a name is none of theirs.
        """
        texts = self.texts

        def value_in_command(match: re.Match[str]) -> str:
            """Return the text for a name, which stays as it is if no values are given."""
            name = match[1]
            if name == "port" and name in texts:
                raise UsageError(
                    "<<values>>: {port} in a command is the port of its server",
                    hint="give the value another name",
                )
            if name == "port" or not texts:
                return match[0]
            if name in texts:
                return texts[name]

            raise UsageError(
                f"<<values>>: the command has {match[0]}, and no value has this name",
                hint="give it as <<give_value>>",
            )

        return [_NAME_IN_COMMAND.sub(value_in_command, part) for part in command]

    def check_secrets(self) -> None:
        """Make sure that each variable is set to what can be told apart from other text.

        Raises:
            UsageError: a variable is not set, or its value is too short.
        """
        for name in self.redact_env:
            value = os.environ.get(name)
            if value is None:
                raise UsageError(
                    f"<<redact_env>>: the environment variable {name!r} is not set",
                    hint="set it to the value that the server or the client uses",
                )

            _check_secret(f"<<redact_env>>: the value of {name!r}", value)


def _check_secret(name: str, text: str) -> None:
    """Raise a `UsageError` if a text is too short to be told apart from other text."""
    if len(text) < _SHORTEST_SECRET:
        raise UsageError(
            f"{name} has {len(text)} characters, and {_SHORTEST_SECRET} are needed",
            hint="a shorter text may be part of other texts",
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class ListeningOptions(Options):
    """What all that serve clients have in common: where they listen, and for whom."""

    host: str = option_field(
        "text",
        "Address to listen on; any address but loopback opens the proxy to others",
        metavar="ADDRESS",
        default="127.0.0.1",
    )
    port: int = option_field(
        "number",
        "Port to listen on; 0 takes a free one",
        largest=65535,
        shell_default=8722,
        default=0,
    )
    allow_hosts: Collection[str] = option_field(
        "list",
        "Accept clients that call the proxy by this name too, or pages of this origin, such as "
        "https://app.example",
        metavar="NAME|ORIGIN",
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class ServeOptions(ListeningOptions):
    """The options of a process that serves the plays of a whole suite."""

    exit_on_eof: bool = option_field(
        "switch",
        "End when standard input closes, as it does when the parent program ends",
    )
    exit_zero: bool = option_field(
        "switch",
        "Exit with 0 even if plays missed, because their tests have failed already",
    )


def mode_named(text: str, source: str) -> Mode:
    """Return the mode of this name, which a source has.

    Raises:
        UsageError: there is no such mode.
    """
    for mode in MODES:
        if mode == text:
            return mode

    raise UsageError(f"{source} is {text!r}, and not one of {', '.join(MODES)}")


def default_mode() -> Mode:
    """Return the mode where nothing has one: none under CI, where nobody can record, else once."""
    is_ci = os.environ.get("CI", "").lower() not in {"", "0", "false"}
    return "none" if is_ci else "once"


@dataclass(frozen=True, kw_only=True, eq=False)
class ProxyOptions(ListeningOptions, SecretOptions):
    """What the proxies have in common: where they listen, and what they play."""

    admin_port: int | None = option_field(
        "number",
        "Serve /livez, /readyz and /metrics on this port; 0 takes a free one",
        largest=65535,
    )
    ignore: Collection[str] = option_field(
        "list",
        "Leave a value out of matching: a JSON Pointer into the params, such as "
        "/arguments/requestedAt or /params/arguments/requestedAt",
        metavar="POINTER",
    )
    match: Mapping[str, str] | Callable[[ClientRequest, ClientRequest], bool] | None = (
        option_field(
            "match",
            "Let a value differ from the recorded one where both are of a kind: uuid, rfc3339, "
            "number, string, any, or /regex/ for the whole text; ** in a pointer is any depth",
            metavar="POINTER=KIND",
        )
    )
    before_record: Callable[[ClientRequest], ClientRequest | None] | None = (
        option_field(
            "function",
            "Takes a request before it is recorded or matched, and returns it, changed or not; or "
            "None, to leave its call out",
            in_shell=False,
        )
    )
    echo: bool = option_field(
        "switch",
        "Where a response repeats a matched value as a whole, give the caller's",
    )
    repeat: Literal["auto", "always", "never"] = option_field(
        "choice",
        "Whether a call may be played more often than recorded; auto: only if it reads",
        choices=("auto", "always", "never"),
    )
    history: Literal["auto", "strict", "order"] = option_field(
        "choice",
        "Which calls are played only after the same writes as recorded; auto: those with several "
        "recorded answers; strict: all; order: none",
        choices=("auto", "strict", "order"),
    )
    reads: Collection[str] = option_field(
        "list",
        "Name a tool, or a method unknown to MCP, that changes nothing on the server",
        metavar="TOOL|METHOD",
        flag="--reads",
    )

    def __post_init__(self) -> None:
        """Check every value, and make lists unchangeable."""
        super().__post_init__()
        if self.ignore:
            _ = self.ignored

        if self.echo and (not self.match or callable(self.match)):
            raise UsageError(
                "<<echo>> needs <<match>> with kinds",
                hint="it repeats the values that match",
            )
        if self.history == "strict" and self.repeat == "always":
            raise UsageError(
                "<<repeat>> always and <<history>> strict don't go together",
                hint="a write that is made again is another history; reads may be repeated anyway",
            )

    @cached_property
    def ignored(self) -> tuple[MemberPath, ...]:
        """The members of the params that don't count in matching.

        Raises:
            UsageError: one is not a JSON Pointer.
        """
        from mrtr_cassette.core.wire.pointers import pointer_path, without_side

        paths = []
        for pointer in self.ignore:
            try:
                paths.append(pointer_path(without_side(pointer, "params")))
            except ValueError:
                raise UsageError(
                    f"<<ignore>> {pointer!r} is not a JSON Pointer",
                    hint="it begins with a slash, such as /arguments/requestedAt",
                ) from None

        return tuple(paths)

    @cached_property
    def matchers(self) -> Matchers | MatchHook | None:
        """The kinds of values that match, or the function that tells it; None without any."""
        from mrtr_cassette.core.cassette.matchers import Matchers, read_matchers
        from mrtr_cassette.core.protocol.hooks import MatchHook

        if not self.match:
            return None
        if callable(self.match):
            return MatchHook(self.match)

        return Matchers(read_matchers(self.match), echo=self.echo)

    @property
    def record_hook(self) -> RecordHook | None:
        """The function that changes requests before they are recorded or matched."""
        from mrtr_cassette.core.protocol.hooks import RecordHook

        if self.before_record is None:
            return None
        return RecordHook(self.before_record)


@dataclass(frozen=True, kw_only=True, eq=False)
class UpstreamOptions(SecretOptions):
    """What all that call an upstream have in common: what it gets, and how it is verified."""

    max_body: int = option_field(
        "number",
        "Largest body that is taken and kept",
        metavar="MIB",
        smallest=1,
        unit=MEBIBYTE,
        default=256 * MEBIBYTE,
    )
    headers: Mapping[str, str] | Sequence[tuple[str, str]] = option_field(
        "headers",
        "Set a header, 'NAME: VALUE', in every request to the upstream",
        metavar="HEADER",
    )
    ca_file: FilePath | None = option_field(
        "file",
        "Certificates (PEM) that verify a TLS upstream, besides the system's",
        metavar="FILE",
    )
    insecure: bool = option_field(
        "switch", "Don't verify a TLS upstream: anybody may pose as it"
    )
    upstream_path: str | None = option_field(
        "text",
        "Path of a server that a command with {port} starts; by default the cassette's, or /mcp",
        metavar="PATH",
        flag="--path",
    )

    def __post_init__(self) -> None:
        """Check every value, and that the path is one."""
        super().__post_init__()
        path = self.upstream_path
        if path is not None and not path.startswith("/"):
            raise UsageError(
                f"<<upstream_path>> {path!r} is not a path",
                hint="it begins with a slash, such as /api/mcp",
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
        "keep: an existing cassette is an error; replace: it is replaced; append: recorded calls "
        "are played, and others are recorded and added",
        choices=get_args(Existing),
        flags={
            "replace": ("--force", "Replace the cassette if it exists"),
            "append": (
                "--append",
                "Play recorded calls, and record others and add them",
            ),
        },
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class ReplayOptions(ProxyOptions):
    """The options of a replay."""

    pace: Literal["none", "recorded"] = option_field(
        "choice",
        "Send event streams at once, or at the recorded speed",
        choices=("none", "recorded"),
    )
    poll_interval: int | None = option_field(
        "number",
        "Milliseconds after which clients poll a task again, whatever was recorded",
        metavar="MS",
    )
    faults: Collection[Mapping[str, Any]] = option_field(
        "faults",
        "Inject the faults in a TOML file of [[fault]] tables: delays, refusals, "
        "lost responses",
        metavar="FILE",
    )
    stateless: bool = option_field(
        "switch",
        "Give every request the same reply whatever was played before, so that several processes "
        "can share the load",
    )
    beside: Collection[str] = option_field(
        "list",
        "More cassettes, played together with the first",
        in_shell=False,
    )
    fail_on_unplayed: bool = option_field(
        "switch", "Fail unless all of the cassette was played"
    )
    on_miss: Literal["continue", "stop", "raise", "report"] = option_field(
        "choice",
        "What requests get after a miss; continue: what was recorded; stop: the same error",
        choices=("continue", "stop"),
        of_programs=("raise", "report"),
    )

    def __post_init__(self) -> None:
        """Check every value, and what goes together."""
        super().__post_init__()
        for option, value in (("repeat", "never"), ("history", "strict")):
            if self.stateless and getattr(self, option) == value:
                raise UsageError(
                    f"<<{option}>> {value} and <<stateless>> don't go together",
                    hint="a process doesn't know what others have played",
                )


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordOptions(WritingOptions, ProxyOptions):
    """The options of a recording."""

    match_headers: Collection[str] = option_field(
        "list",
        "Keep this request header too, so that replay tells equal calls apart by it",
        metavar="NAME",
    )
    request_state: Literal["sealed", "verbatim"] = option_field(
        "choice",
        "sealed: raw state tokens never reach the disk; verbatim: they are kept as they are",
        choices=("sealed", "verbatim"),
    )
    redact: Collection[str] = option_field(
        "list",
        "Replace matches of this regular expression by a placeholder, besides known secrets; "
        "with a group, only group 1",
        metavar="REGEX",
    )
    redact_keys: Collection[str] = option_field(
        "list",
        "Replace values of members with this name too, such as pin",
        metavar="NAME",
    )
    no_redact: Collection[str] = option_field(
        "list",
        "Switch off a rule, such as jwt, or a member name, such as password",
        metavar="NAME",
    )
    seal_answers: bool = option_field(
        "switch", "Keep only hashes of the user's answers"
    )
    answers: FilePath | None = option_field(
        "file",
        "Answer the server's questions by an answers file, for a client that can't",
        metavar="FILE",
    )
    masks: Collection[str] = option_field(
        "list",
        "Let no difference count within a text that this regular expression matches",
        metavar="REGEX",
    )
    ignore_from: FilePath | None = option_field(
        "file",
        "When replacing a cassette, ignore differences in the places that this file names",
        metavar="FILE",
    )
    publish_anyway: bool = option_field(
        "switch",
        "Write the cassette even if the command failed, or every request got an error that is "
        "not MCP's",
        in_shell=False,
    )

    def __post_init__(self) -> None:
        """Check every value, and what goes together."""
        super().__post_init__()
        self._check_options_about_existing()
        if self.masks:
            from mrtr_cassette.core.compare.values import masks_as_places

            masks_as_places(self.masks)

        if self.redact or self.redact_keys or self.no_redact:
            _ = self.redaction

        if self.match_headers:
            _ = self.kept_headers

    def _check_options_about_existing(self) -> None:
        """Make sure that options decide about a cassette that exists where they are to."""
        decides_on_plays = self.reads or self.repeat != "auto" or self.history != "auto"
        if (decides_on_plays or self.match) and self.existing != "append":
            raise UsageError(
                "<<repeat>>, <<history>>, <<reads>> and <<match>> need <<append>>",
                hint="they decide which calls are played from the cassette",
            )
        if (self.ignore or self.masks) and self.existing == "keep":
            raise UsageError(
                "<<ignore>> and <<masks>> need <<append>> or <<replace>>",
                hint="they decide which calls are the same as in the cassette",
            )
        if self.ignore_from is not None and self.existing != "replace":
            raise UsageError(
                "<<ignore_from>> needs <<replace>>",
                hint="it names differences to ignore when a cassette is replaced",
            )
        if self.answers is not None and self.existing == "append":
            raise UsageError("<<answers>> and <<append>> don't go together")

    @cached_property
    def kept_headers(self) -> frozenset[str]:
        """The lower-case names of the headers of requests that are kept too.

        Raises:
            UsageError: one is not a header's name, or would keep a credential.
        """
        from mrtr_cassette.core.wire.http import CREDENTIAL_HEADERS, HEADER_NAME

        for name in self.match_headers:
            if not HEADER_NAME.fullmatch(name):
                raise UsageError(f"<<match_headers>> {name!r} is not a header name")
            if name.lower() in CREDENTIAL_HEADERS:
                raise UsageError(
                    f"<<match_headers>> {name!r} would keep a credential",
                    hint="the presence of Authorization counts anyway, but never its value",
                )

        return frozenset(name.lower() for name in self.match_headers)

    @cached_property
    def redaction(self) -> RedactionRules:
        """What is changed about the built-in rules of redaction.

        Raises:
            UsageError: a pattern can't be read, or a rule is not known.
        """
        from mrtr_cassette.core.secrets.rules import RedactionRules

        try:
            return RedactionRules(
                tuple(self.redact), tuple(self.redact_keys), tuple(self.no_redact)
            )
        except ValueError as error:
            raise UsageError(str(error)) from None


@dataclass(frozen=True, kw_only=True, eq=False)
class CallOptions(WritingOptions):
    """The options of a call that needs no client."""

    timeout: int = option_field(
        "number",
        _CALL_TIMEOUT_HELP,
        metavar="SECONDS",
        smallest=1,
        default=300,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class VerifyOptions(UpstreamOptions):
    """The options of holding a live server to a cassette."""

    only: Collection[str] = option_field(
        "list",
        "Verify only calls whose method, name, both ('tools/call add') or number matches this "
        "pattern",
        metavar="PATTERN",
    )
    ignore: Collection[str] = option_field(
        "list",
        "Leave a value out of the comparison: a JSON Pointer into the result, such as "
        "/structuredContent/at or /result/structuredContent/at",
        metavar="POINTER",
    )
    masks: Collection[str] = option_field(
        "list",
        "Let no difference count within a text that this regular expression matches",
        metavar="REGEX",
    )
    ignore_from: FilePath | None = option_field(
        "file",
        "Leave the places that this file names out of the comparison",
        metavar="FILE",
    )
    learn: FilePath | None = option_field(
        "file",
        "Repeat calls that only read, and add places that differ by themselves to this file",
        metavar="FILE",
    )
    allow_destructive: bool = option_field(
        "switch",
        "Also call tools that the server declares destructive",
    )
    fail_on: Collection[str] = option_field(
        "list",
        "Fail only on this verdict, such as question-changed; not-reached always fails",
        metavar="VERDICT",
    )
    timeout: int = option_field(
        "number", _CALL_TIMEOUT_HELP, metavar="SECONDS", smallest=1, default=60
    )

    def __post_init__(self) -> None:
        """Check every value."""
        super().__post_init__()
        if self.ignore or self.fail_on or self.masks:
            from mrtr_cassette.core.compare.values import (
                VERDICTS,
                check_pointers,
                masks_as_places,
            )

            check_pointers(self.ignore)
            masks_as_places(self.masks)
            for verdict in self.fail_on:
                if verdict not in VERDICTS:
                    raise UsageError(
                        f"<<fail_on>> {verdict!r} is not a verdict",
                        hint=f"the verdicts are {', '.join(VERDICTS)}",
                    )


@dataclass(frozen=True, kw_only=True, eq=False)
class ProbeOptions(UpstreamOptions):
    """The options of probing a live server with answers that were not recorded."""

    only: Collection[str] = option_field(
        "list",
        "Probe only calls whose method, name, both ('tools/call add') or number matches this "
        "pattern; a tool named exactly is called even if it is destructive",
        metavar="PATTERN",
    )
    allow_destructive: bool = option_field(
        "switch",
        "Also call tools that the server declares destructive",
    )
    slow: int | None = option_field(
        "number",
        "Also answer with a request state that is so many seconds old",
        metavar="SECONDS",
        smallest=1,
    )
    fail_on: Collection[str] = option_field(
        "list",
        "Make this verdict a finding too: unprotected or repeatable",
        metavar="VERDICT",
    )
    expect: FilePath | None = option_field(
        "file",
        "Findings that are legitimate, with reasons: a TOML file with tables [[expect]]",
        metavar="FILE",
    )
    record: FilePath | None = option_field(
        "file",
        "Write a copy of the cassette to which the new answers are added as branches",
        metavar="CASSETTE",
    )
    existing: Existing = option_field(
        "choice",
        "keep: an existing file of `record` is an error; replace: it is replaced; append: it is "
        "the probed cassette, which gets the branches itself",
        choices=get_args(Existing),
        flags={
            "replace": ("--force", "Replace the cassette of --record if it exists"),
            "append": ("--append", "Let --record add to the probed cassette itself"),
        },
    )
    ignore: Collection[str] = option_field(
        "list",
        "Leave a value out of the comparison: a JSON Pointer into the result, as for `verify`",
        metavar="POINTER",
    )
    ignore_from: FilePath | None = option_field(
        "file",
        "Leave the places that this file names out of the comparison",
        metavar="FILE",
    )
    timeout: int = option_field(
        "number",
        "Seconds for a call, including its questions; a longer one counts as crashed",
        metavar="SECONDS",
        smallest=1,
        default=30,
    )

    def __post_init__(self) -> None:
        """Check every value."""
        super().__post_init__()
        from mrtr_cassette.core.compare.values import check_pointers

        check_pointers(self.ignore)
        if self.record is None and self.existing != "keep":
            raise UsageError(
                "<<replace>> and <<append>> are about a cassette of branches",
                hint="name it, too",
            )

        for verdict in self.fail_on:
            if verdict not in ("unprotected", "repeatable"):
                raise UsageError(
                    f"<<fail_on>> {verdict!r} is not unprotected or repeatable",
                    hint="other verdicts are findings anyway, or none",
                )


for _class in (
    ReplayOptions,
    RecordOptions,
    CallOptions,
    VerifyOptions,
    ProbeOptions,
    ServeOptions,
):
    _lines = [
        f"    {name}: {option.help}{', in bytes' if option.unit > 1 else ''}."
        for name, option in options_of(_class).items()
    ]
    _class.__doc__ = "\n".join([f"{_class.__doc__}\n\nArgs:", *_lines])


def shell_terms() -> Terms:
    """Return what the command line writes where a text names an option."""
    flags = {}
    for options in (ProbeOptions, RecordOptions, ReplayOptions, VerifyOptions):
        for name, option in options_of(options).items():
            flag = flag_of(name, option)
            if flag:
                flags[name] = flag

    return {**flags, **SHELL_TERMS}
