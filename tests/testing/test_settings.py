from __future__ import annotations

import pytest

from mrtr_cassette.errors import UsageError
from mrtr_cassette.testing.names import settings_of
from mrtr_cassette.testing.settings import OptionSource, option_source_of_call


def test_the_nearest_place_has_the_last_word():
    """A single value is the nearest one; the file and the upstream too."""
    settings = settings_of(
        [
            OptionSource(
                "ini", {"repeat": "never", "port": 1, "request_state": "verbatim"}
            ),
            OptionSource("suite", {"port": 2, "upstream": "http://suite"}),
            option_source_of_call(
                "module", ["module.json"], {"upstream": "http://a", "repeat": "always"}
            ),
            option_source_of_call("test", [], {"port": 3}),
        ]
    )

    assert (settings.name, settings.upstream) == ("module.json", "http://a")
    assert (settings.replay.repeat, settings.replay.port) == ("always", 3)
    assert (settings.record.repeat, settings.record.request_state) == (
        "always",
        "verbatim",
    )


def test_lists_of_all_places_add_up():
    """Ini file, suite, module, class and test each add to a list; what is twice counts once."""
    names = ("ini", "suite", "module", "class", "test")
    places = [OptionSource(name, {"ignore": [f"/{name}", "/all"]}) for name in names]
    expected = ("/ini", "/all", "/suite", "/module", "/class", "/test")

    assert settings_of(places).replay.ignore == expected
    assert settings_of(places).record.ignored == tuple((name[1:],) for name in expected)


def test_headers_of_all_places_add_up():
    """Of two headers of one name the nearest counts, however it is spelled."""
    settings = settings_of(
        [
            OptionSource(
                "suite", {"headers": {"Authorization": "far", "X-Env": "test"}}
            ),
            OptionSource("test", {"headers": {"authorization": "near"}}),
        ]
    )

    assert settings.record.added_headers == (
        ("X-Env", "test"),
        ("authorization", "near"),
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"upstraem": 2}, "test has no option 'upstraem'; did you mean 'upstream'?"),
        (
            {"existing": "keep"},
            "test has no option 'existing'; it has upstream, redact_env",
        ),
        (
            {"redact_key": ["a"]},
            "test has no option 'redact_key'; did you mean 'redact_keys'?",
        ),
        ({"ignore": "/a"}, "test: ignore is a single text; give a list: ignore=['/a']"),
        ({"ignore": None}, "test: ignore is None, and not a list of texts"),
        (
            {"repeat": "often"},
            "test: repeat is 'often', and not one of auto, always, never",
        ),
        (
            {"request_state": "raw"},
            "test: request_state is 'raw', and not one of sealed, verbatim",
        ),
        ({"port": "80"}, "test: port is '80', and not a whole number"),
        (
            {"port": 70000},
            "test: port is 70000; it must be at least 0 and at most 65535",
        ),
        ({"insecure": 1}, "test: insecure is 1, and not True or False"),
        (
            {"headers": {"A": 5}},
            "test: headers: the header 'A' is not valid in HTTP; give",
        ),
        ({"headers": 5}, "test: headers is not a mapping of names to values"),
        ({"redact": ["("]}, "redaction pattern '(' is not a regular expression"),
        ({"ignore": ["a"]}, "ignore 'a' is not a JSON Pointer"),
    ],
)
def test_a_wrong_option_is_named(options, text):
    """What can't be meant is an error that names the place, the option, and what could be."""
    with pytest.raises(UsageError) as caught:
        settings_of([OptionSource("test", options)])

    assert str(caught.value).startswith(text)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (("a", "b"), "the marker takes one file name, and not 'a', 'b'"),
        ((7,), "the marker takes the name of a file, and not 7"),
        (
            ("s3://me:secret@b/c.json",),
            "the marker takes the name of a file, and not a URL",
        ),
        (("",), "the marker takes the name of a file, and not ''"),
        (("a/../..",), "the marker takes the name of a file, and not 'a/../..'"),
    ],
)
def test_a_file_is_named_once(names, text):
    """The one positional argument is the name of a file."""
    with pytest.raises(UsageError, match=text):
        option_source_of_call("the marker", names, {})


@pytest.mark.parametrize("value", [None, 5, [], {}, ["a", 5], ["a", ""]], ids=repr)
def test_cassette_names_files(value):
    """The keyword is for one name or several; anything else is told as a wrong name is."""
    with pytest.raises(UsageError, match="takes the name of a file, and"):
        option_source_of_call("the marker", (), {"cassette": value})


def test_files_of_the_nearest_place_count():
    """One file of a test replaces the several of its module."""
    module = option_source_of_call("module", (), {"cassette": ["a", "b"]})
    settings = settings_of([module, option_source_of_call("test", ["c"], {})])

    assert settings.name == "c"
    assert not settings.replay.beside
