"""How each front spells the ways out that messages offer: here, and nowhere else."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

Terms = Mapping[str, str]
"""What a front writes in the place of each slot.

A text of the core or the shell never spells an option: it has a slot, such as `<<append>>`.
"""

Values = Mapping[str, str | Sequence[str]]
"""What the slots within a term stand for."""


class WayOut(NamedTuple):
    """How each front spells a way out; a slot in it stands for a value, which is quoted."""

    shell: str = ""
    library: str = ""
    suite: str = ""
    play: str = ""
    """In an option of a play, which any program may have begun."""


def _offered_option(flag: str, keyword: str, value: str = "") -> WayOut:
    """Return an option of a command that is offered; a test or a play has it in its own options."""
    slot = f"<<{keyword}>>"
    return WayOut(f"{flag} {slot}", f"{keyword}={value or slot}")


TERMS_BY_SCOPE: Final[Mapping[str, Terms]] = {
    "class": {
        "in_place": "in the marker mrtr_cassette of the class",
        "upstream_in_marker": "name an upstream in the marker of the class, "
        "@pytest.mark.mrtr_cassette(upstream=...), or ",
    },
    "module": {
        "in_place": "in the marker mrtr_cassette of the module (pytestmark)",
        "upstream_in_marker": "name an upstream in the marker of the module, "
        "pytestmark = pytest.mark.mrtr_cassette(upstream=...), or ",
    },
    "session": {
        "in_place": "in the fixture mrtr_cassette_config",
        "upstream_in_marker": "",
    },
}
"""What stands for the marker of a test, for the cassettes that tests share by a fixture."""

_MODE_APPEND = "MRTR_CASSETTE_MODE=append"
_MODE_ALL = "MRTR_CASSETTE_MODE=all"
_MODE_ONCE = "MRTR_CASSETTE_MODE=once"
_NO_CODING = 'headers={"Accept-Encoding": "identity"}'
_EXAMPLE_HEADER = 'headers={"Name": "value"}'

WAYS_OUT: Final[Mapping[str, WayOut]] = {
    "accept_verdicts": WayOut(
        "--accept <<verdicts>>", "accept=<<verdicts>>", "--mrtr-mode=all", _MODE_ALL
    ),
    "answer": WayOut(
        "--answer <<given>>",
        "answers=<<given>>",
        "answers=<<given>>",
        "answers=<<given>>",
    ),
    "append": WayOut(
        "--append", 'existing="append"', "--mrtr-mode=append", _MODE_APPEND
    ),
    "cassette": WayOut("--output", "path", "file name", "file name"),
    "give_value": WayOut(
        "--value NAME=TEXT",
        'values={"NAME": "TEXT"}',
        'values={"NAME": "TEXT"} <<in_place>>',
        'values: {"NAME": "TEXT"} <<in_place>>',
    ),
    "header_form": WayOut(
        "--header 'Name: value'",
        _EXAMPLE_HEADER,
        _EXAMPLE_HEADER,
        'headers: {"Name": "value"}',
    ),
    "history_order": WayOut(
        "--history order",
        'history="order"',
        'history="order" <<in_place>>',
        'history: "order" <<in_place>>',
    ),
    "ignore_values": WayOut(
        "--ignore <<pointers>>",
        "ignore=<<pointers>>",
        "ignore=<<pointers>> <<in_place>>",
        "ignore: <<pointers>> <<in_place>>",
    ),
    "learn_places": WayOut(
        "--learn <<rules>>",
        "learn=<<rules>>",
        "ignore_from=<<rules>>",
        "ignore_from: <<rules>> <<in_place>>",
    ),
    "no_coding": WayOut(
        "--header 'Accept-Encoding: identity'",
        _NO_CODING,
        _NO_CODING,
        'headers: {"Accept-Encoding": "identity"} <<in_place>>',
    ),
    "reads_tool": WayOut(
        "--reads <<tool>>",
        "reads=[<<tool>>]",
        "reads=[<<tool>>] <<in_place>>",
        "reads: [<<tool>>] <<in_place>>",
    ),
    "record": WayOut(
        "mrtr-cassette record --upstream URL --output <<path>>",
        "record(upstream, <<path>>)",
        "pytest --mrtr-mode=once",
        _MODE_ONCE,
    ),
    "record_again": WayOut(
        "mrtr-cassette record --force<<kept>><<hidden>> --output <<path>> "
        "--upstream <<upstream>><<client>>",
        'record(<<upstream>>, <<path>>, existing="replace"<<kept>><<hidden>>)',
        "pytest<<test>> --mrtr-mode=all",
        _MODE_ALL,
    ),
    "record_pipe_again": WayOut(
        "mrtr-cassette record --stdio --force<<kept>><<hidden>> --output <<path>> -- <<command>>",
        'record(<<command>>, <<path>>, stdio=True, existing="replace"<<kept>><<hidden>>)',
        "pytest<<test>> --mrtr-mode=all",
        _MODE_ALL,
    ),
    "record_pipe_too": WayOut(
        "mrtr-cassette record --stdio --append<<kept>><<played_as>> --output <<path>> "
        "-- <<command>>",
        'record(<<command>>, <<path>>, stdio=True, existing="append"<<kept>><<played_as>>)',
        "pytest<<test>> --mrtr-mode=append",
        _MODE_APPEND,
    ),
    "record_started_again": WayOut(
        "mrtr-cassette record --force<<kept>><<hidden>> --output <<path>> "
        "--upstream <<started>><<client>>",
        'record(<<command>>, <<path>>, existing="replace"<<kept>><<hidden>>)',
        "pytest<<test>> --mrtr-mode=all",
        _MODE_ALL,
    ),
    "record_started_too": WayOut(
        "mrtr-cassette record --append<<kept>><<played_as>> --output <<path>> "
        "--upstream <<started>><<client>>",
        'record(<<command>>, <<path>>, existing="append"<<kept>><<played_as>>)',
        "pytest<<test>> --mrtr-mode=append",
        _MODE_APPEND,
    ),
    "record_too": WayOut(
        "mrtr-cassette record --append<<kept>><<played_as>> --output <<path>> "
        "--upstream <<upstream>><<client>>",
        'record(<<upstream>>, <<path>>, existing="append"<<kept>><<played_as>>)',
        "pytest<<test>> --mrtr-mode=append",
        _MODE_APPEND,
    ),
    "repeat_always": WayOut(
        "--repeat always",
        'repeat="always"',
        'repeat="always" <<in_place>>',
        'repeat: "always" <<in_place>>',
    ),
    "publish_anyway": WayOut(
        "",
        "publish_anyway=True",
        "publish_anyway=True in the marker",
        "publish_anyway: true <<in_place>>",
    ),
    "name_upstream": WayOut(
        suite="<<upstream_in_marker>>override the fixture mrtr_upstream; it may be a URL, a "
        "command or an application",
        play="name an upstream <<in_place>>: a URL, or a command as a list",
    ),
    "replace": WayOut("--force", 'existing="replace"', "--mrtr-mode=all", _MODE_ALL),
    "history_strict": WayOut(
        "--history strict",
        'history="strict"',
        'history="strict" <<in_place>>',
        'history: "strict" <<in_place>>',
    ),
    "in_place": WayOut(
        suite="in the marker mrtr_cassette", play="in the options of the play"
    ),
    "upstream_in_marker": WayOut(
        suite="name an upstream in the marker, @pytest.mark.mrtr_cassette(upstream=...), or "
    ),
    # What a command names, where nobody knows it, or only who runs it.
    "given": WayOut(
        "NAME=VALUE", '{"NAME": VALUE}', '{"NAME": VALUE}', '{"NAME": VALUE}'
    ),
    "path": WayOut("FILE", "path", "FILE", "FILE"),
    "pointers": WayOut("POINTER", '["/POINTER"]', '["/POINTER"]', '["/POINTER"]'),
    "rules": WayOut("FILE", "path", "path", "FILE"),
    "verdicts": WayOut("VERDICT", '["VERDICT"]', '["VERDICT"]', '["VERDICT"]'),
    "tool": WayOut("TOOL", '"TOOL"', '"TOOL"', '"TOOL"'),
    "client": WayOut(),
    "command": WayOut("SERVER ARGS", "command", "command", "command"),
    "kept": WayOut(),
    "kept_sealed": WayOut(" --seal-answers", ", seal_answers=True"),
    "kept_verbatim": WayOut(" --request-state verbatim", ', request_state="verbatim"'),
    "kept_value": WayOut(" --value NAME=TEXT", ', values={"NAME": "TEXT"}'),
    # A recording in the place of a cassette has to hide as much as it does.
    "hidden": WayOut(),
    # A recording that adds to a cassette has to play and to hide what the replay did that missed.
    "played_as": WayOut(),
    "between_options": WayOut(" ", ", "),
    "given_history": _offered_option("--history", "history"),
    "given_ignore": _offered_option("--ignore", "ignore"),
    "given_match": _offered_option("--match", "match", "..."),
    "given_match_headers": _offered_option("--match-header", "match_headers"),
    "given_no_redact": _offered_option("--no-redact", "no_redact"),
    "given_reads": _offered_option("--reads", "reads"),
    "given_redact": _offered_option("--redact", "redact"),
    "given_redact_env": _offered_option("--redact-env", "redact_env"),
    "given_redact_keys": _offered_option("--redact-key", "redact_keys"),
    "given_redact_values": _offered_option("--redact-value", "redact_values"),
    "given_repeat": _offered_option("--repeat", "repeat"),
    "started": WayOut("'SERVER ARGS'", "command", "command", "command"),
    "test": WayOut(),
    "upstream": WayOut("URL", "upstream", "upstream", "upstream"),
}
"""Every command and argument that a message offers."""

SHELL_TERMS: Final[Terms] = {name: way.shell for name, way in WAYS_OUT.items()}
LIBRARY_TERMS: Final[Terms] = {name: way.library for name, way in WAYS_OUT.items()}
"""The slots that are no option's name; an option is its keyword here."""

SUITE_TERMS: Final[Terms] = {name: way.suite for name, way in WAYS_OUT.items()}
PLAY_TERMS: Final[Terms] = {name: way.play for name, way in WAYS_OUT.items()}

RECORDING: Final = (
    "record_again",
    "record_too",
    "record_pipe_again",
    "record_pipe_too",
    "record_started_again",
    "record_started_too",
)
"""The ways out that record."""


def without_upstream(terms: Terms) -> dict[str, str]:
    """Return the terms for a test, or a play, that names no server: it has to."""
    terms_without_upstream = {**terms, "command": "[...]", "upstream": "..."}
    is_play = terms["append"] == _MODE_APPEND
    for name in RECORDING:
        slot = "<<command>>"
        if name in ("record_again", "record_too"):
            slot = "<<upstream>>"

        upstream = f"upstream={slot} <<in_place>>"
        if is_play:
            upstream = f"upstream: {slot} <<in_place>>"

        terms_without_upstream[name] = f"{upstream}, and {terms[name]}"

    return terms_without_upstream


COMMANDS: Final[Mapping[str, str]] = {
    "accept_edit": "mrtr-cassette check <<path>> --fix",
    "cut_shared": "mrtr-cassette cut <<path>> <<number>> --share -o <<to>>",
    "merge_sides": (
        "git -C <<folder>> show <<ours>> > ours.json && "
        "git -C <<folder>> show <<theirs>> > theirs.json && "
        "mrtr-cassette merge ours.json theirs.json -o both.json && mv both.json <<path>>"
    ),
    "play_call": "mrtr-cassette replay <<path>> -- mrtr-cassette call",
    "play_call_undiscovered": (
        "mrtr-cassette replay <<path>> -- mrtr-cassette call --header <<header>>"
    ),
    "publish_journal": "mrtr-cassette recover <<path>>",
    "record_url": "mrtr-cassette record --upstream <<url>> --output <<path>>",
    "report_replay": "mrtr-cassette replay <<path>> --report <<report>>",
    "unwrap_server": "mrtr-cassette unwrap <<path>> <<server>>",
    "wrap_server": "mrtr-cassette wrap <<file>> <<server>> --record <<path>>",
}
"""The commands that messages on every front offer: only a shell runs them."""


def shell_command(name: str, **values: str) -> str:
    """Return one of the commands with these values."""
    return _SLOT_IN_TEXT.sub(lambda slot: shell_words(values[slot[1]]), COMMANDS[name])


_SLOT_IN_TEXT = re.compile("<<([a-z_]+)>>")
_SHELL_PREFIXES = ("--", "mrtr-cassette ", "pytest")
"""Begin what is written in a shell; all else is Python."""

_IN_HOME = re.compile(r"~/[\w./-]+", re.ASCII)
"""A word that the shell expands, and that is nothing else to it."""


def in_terms(
    text: str, terms: Terms = LIBRARY_TERMS, values: Values | None = None
) -> str:
    """Fill the slots of a text in the terms of a front; what it has no term for is its name.

    A slot within a term stands for a value, or for what the front writes where it has none.
    """
    values_of_slots = values or {}

    def term_of(slot: re.Match[str]) -> str:
        """Return the term for a slot, with the slots in it filled."""
        term = terms.get(slot[1], slot[1])
        is_shell = term.startswith(_SHELL_PREFIXES)
        # A flag of the command line is repeated for each of several values.
        separator = f" {term.partition(' ')[0]} " if term.startswith("--") else " "

        def value_or_term_of(inner_slot: re.Match[str]) -> str:
            """Return a value as a shell or Python spells it; if there is none, its term."""
            name = inner_slot[1]
            if name not in values_of_slots:
                return terms.get(name, name)
            if is_shell:
                return shell_words(values_of_slots[name], separator)

            value = values_of_slots[name]
            return repr(value if isinstance(value, str) else [*value])

        return _SLOT_IN_TEXT.sub(value_or_term_of, term)

    return _SLOT_IN_TEXT.sub(term_of, text)


def given_options(options: Values, terms: Terms) -> str:
    """Return the options that have a value as they go on in an offered command, in these terms."""
    options_text = ""
    for name, value in options.items():
        if not value:
            continue

        spelled_option = in_terms(f"<<given_{name}>>", terms, {name: value})
        if spelled_option:
            options_text += terms["between_options"] + spelled_option

    return options_text


def shell_words(value: str | Sequence[str], separator: str = " ") -> str:
    """Return a value, or several, as words of a shell."""
    words = [value] if isinstance(value, str) else value
    return separator.join(
        word if _IN_HOME.fullmatch(word) else shlex.quote(word) for word in words
    )
