from __future__ import annotations

import re
from pathlib import Path

import pytest

import mrtr_cassette
from mrtr_cassette.cli import common
from mrtr_cassette.errors import UsageError
from mrtr_cassette.options import (
    RecordOptions,
    ReplayOptions,
    VerifyOptions,
    default_of,
    flag_of,
    options_of,
)
from mrtr_cassette.shell.runs.proxy_runs import miss_terms
from mrtr_cassette.terms import COMMANDS, LIBRARY_TERMS, PLAY_TERMS, SUITE_TERMS
from mrtr_cassette.testing import settings

PACKAGE = Path(mrtr_cassette.__file__).parent
EVERY_CLASS = (RecordOptions, ReplayOptions, VerifyOptions)
EVERY_OPTION = {name for options in EVERY_CLASS for name in options_of(options)}


@pytest.mark.parametrize("options", EVERY_CLASS)
def test_defaults_pass_their_own_checks(options):
    """All defaults, given one by one, make the same options as none."""
    given = options(**{name: default_of(options, name) for name in options_of(options)})

    assert repr(given) == repr(options())


@pytest.mark.parametrize("spelled", ["/arguments/at", "/params/arguments/at"])
def test_a_place_in_the_params_may_begin_with_their_name(spelled):
    """The same pointer names it in every command, and the shorter one stays."""
    assert ReplayOptions(ignore=[spelled]).ignored == (("arguments", "at"),)


def test_values_can_not_be_changed():
    """What was checked stays as it was."""
    ignore = ["/a"]
    options = ReplayOptions(ignore=ignore)
    ignore.append("b")

    assert options.ignore == ("/a",)

    with pytest.raises(AttributeError):
        options.repeat = "always"


@pytest.mark.parametrize("options", EVERY_CLASS)
def test_every_option_can_be_given_in_a_shell(options):
    """Each has one flag or several, but for what arguments, exit code and `recover` do there."""
    programs = {"log", "publish_anyway", "beside", "before_record"}
    for name, option in options_of(options).items():
        assert bool(flag_of(name, option)) + bool(option.flags) == (
            name not in programs
        ), name


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        *((name, "hidden", "is not valid in HTTP") for name in ("", "a b", "a:b", "é")),
        *(
            ("N", value, "is not valid in HTTP")
            for value in ("a\nb", "a\0b", "\x1b[2J")
        ),
        *(
            (name, "5", "is set by the connection itself")
            for name in ("Content-Length", "TE")
        ),
    ],
)
def test_a_header_that_can_not_be_sent_is_refused(name, value, problem):
    """Neither what HTTP can't carry nor what frames a message; a value may be a secret."""
    with pytest.raises(UsageError, match=problem) as caught:
        RecordOptions(headers={name: value})

    assert "hidden" not in str(caught.value)
    assert RecordOptions(headers=[("N", "a\tb é")]).added_headers == (("N", "a\tb é"),)


@pytest.mark.parametrize(
    "headers", ["X: hidden", ["X: hidden"], ["ab"], [5], [("X", "hidden", "")], 5]
)
def test_headers_are_a_mapping_or_pairs(headers):
    """Whatever else they are given as is told as an error, without what may be a secret."""
    with pytest.raises(UsageError, match="is not a mapping of names to values") as told:
        RecordOptions(headers=headers)

    assert "hidden" not in str(told.value)


@pytest.mark.parametrize("match", [5, ["/a"], {"/a": 5}, {5: "uuid"}])
def test_kinds_that_match_are_a_mapping_of_pointers_to_texts(match):
    """Whatever else they are given as is told as an error."""
    with pytest.raises(UsageError, match=r"^match "):
        ReplayOptions(match=match)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("a b", "is not a header name"),
        ("", "is not a header name"),
        ("Authorization", "would keep a credential"),
        ("cookie", "would keep a credential"),
        ("Proxy-Authorization", "would keep a credential"),
    ],
)
def test_a_header_that_can_not_be_kept_is_refused(name, problem):
    """The headers that are kept too are known by lower-case names, and none is a credential."""
    with pytest.raises(UsageError, match=problem) as caught:
        RecordOptions(match_headers=["X-Tenant", name])

    assert caught.value.in_terms(common.TERMS).startswith("--match-header ")
    assert RecordOptions(match_headers=["X-Tenant"]).kept_headers == {"x-tenant"}


@pytest.mark.parametrize(
    "terms", [LIBRARY_TERMS, common.TERMS, SUITE_TERMS, PLAY_TERMS]
)
def test_every_front_has_a_term_for_every_slot(terms):
    """A text of the package names no slot that a front would leave as it stands."""
    slots: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        slots.update(re.findall("<<([a-z_]+)>>", path.read_text(encoding="utf-8")))

    assert {"append", "ignore"} <= slots

    values = set(re.findall("<<([a-z_]+)>>", " ".join(COMMANDS.values())))

    assert slots - EVERY_OPTION - values <= terms.keys()


def test_the_guide_lists_every_option_of_a_test_suite():
    """The table of docs/pytest.md has the options that exist, and no other."""
    guide = (PACKAGE.parent / "docs" / "pytest.md").read_text(encoding="utf-8")
    table = guide.partition("| option |")[2].partition("\n\n")[0]
    listed: list[str] = []
    for line in table.split("\n")[2:]:
        listed += re.findall(r"`(\w+)`", line.split("|")[1])

    assert sorted(listed) == sorted(settings.OPTIONS)


def test_only_the_command_line_names_its_flags():
    """No text of the core, the library or pytest's side has a flag of the command line in it."""
    flags = set()
    for options in EVERY_CLASS:
        flags.update(
            flag_of(name, option) for name, option in options_of(options).items()
        )

    flags -= {""}
    flags |= {"--force", "--append", "--output", "--upstream"}
    pattern = re.compile(rf"({'|'.join(sorted(flags))})(?![a-z-])")
    ours = {
        PACKAGE / "options.py",
        PACKAGE / "terms.py",
        *(PACKAGE / "cli").rglob("*.py"),
        *(PACKAGE / "demo").rglob("*"),
    }
    for path in set(PACKAGE.rglob("*.py")) - ours:
        named = pattern.findall(path.read_text(encoding="utf-8"))

        assert not named, f"{named} in {path}"


def test_what_counts_plays_does_not_go_with_what_counts_none():
    """Without memory nothing was played already, and a pipe has one process anyway."""
    with pytest.raises(UsageError) as caught:
        ReplayOptions(stateless=True, repeat="never")

    assert caught.value.in_terms(common.TERMS).startswith(
        "--repeat never and --stateless don't go"
    )

    with pytest.raises(UsageError, match="stdio and stateless don't go together"):
        mrtr_cassette.replay("c.json", stdio=True, stateless=True)


SHELL_OPTIONS = (
    " --ignore /a --reads 'get it' --redact-env PASS --repeat never --match '/c=/x y/'"
    " --redact-value TEXT"
)
LIBRARY_OPTIONS = (
    ", ignore=['/a'], reads=['get it'], redact_env=['PASS'], repeat='never', match=..."
    ", redact_values=['TEXT']"
)


@pytest.mark.parametrize(
    ("terms", "played_as"),
    [
        (
            common.TERMS,
            SHELL_OPTIONS,
        ),
        (
            LIBRARY_TERMS,
            LIBRARY_OPTIONS,
        ),
        (SUITE_TERMS, ""),
        (PLAY_TERMS, ""),
    ],
)
def test_recording_that_adds_is_offered_with_the_options_of_the_replay(
    terms, played_as
):
    """As a shell or Python spells them; a test or a play has them anyway."""
    options = ReplayOptions(
        ignore=["/a"],
        match={"/c": "/x y/"},
        reads=["get it"],
        redact_env=["PASS"],
        redact_values=["horse-battery"],
        repeat="never",
        terms=terms,
    )

    assert miss_terms(options)["played_as"] == played_as
    assert miss_terms(ReplayOptions(terms=terms))["played_as"] == ""
