"""Facts about cassettes in a test suite that need no pytest: their names and settings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrtr_cassette.errors import UsageError
from mrtr_cassette.testing import Settings, file_name, read_settings


@pytest.mark.parametrize(
    ("test", "name"),
    [
        ("test_deploy", "test_deploy"),
        ("TestStages.test_deploy", "TestStages.test_deploy"),
        ("test_deploy[prod]", "test_deploy-prod"),
        ("test_deploy[prod-1.5]", "test_deploy-prod-1.5"),
        ("test_deploy[Prod]", "test_deploy-Prod-952e8a639d"),
    ],
)
def test_a_plain_name_is_kept(test, name):
    """What every file system tells apart stays readable; a hash follows what does not."""
    assert file_name(test) == name


@given(st.lists(st.text(min_size=1), min_size=2, max_size=2, unique=True))
def test_names_are_safe_and_tell_parameters_apart(parameters):
    """Two parameters never share a file, not even where capitals don't count."""
    names = [file_name(f"test_deploy[{parameter}]") for parameter in parameters]
    assert len({name.casefold() for name in names}) == 2
    for name in names:
        assert name.isascii()
        assert "/" not in name
        assert len(name) < 200


def test_the_last_marker_has_the_last_word():
    """Arguments of several markers add up."""
    written = [
        (("module.json",), {"upstream": "http://a", "repeat": "never"}),
        ((), {"repeat": "always", "ignore": ["/a"]}),
    ]
    assert read_settings(written) == Settings("module.json", "http://a", ["/a"], "always", "sealed")
    assert read_settings([]) == Settings()


@pytest.mark.parametrize(
    ("names", "options", "text"),
    [
        ((), {"until": 1, "upstraem": 2}, "does not know the argument until, upstraem; it takes"),
        (("a", "b"), {}, "does not know the argument 'b'; it takes one file name"),
        ((7,), {}, "takes the name of a file, and not 7"),
        ((), {"ignore": "/a"}, "ignore is a list, and not '/a'"),
        ((), {"ignore": None}, "ignore is a list, and not None"),
        ((), {"repeat": "often"}, "repeat is 'often', not auto or always or never"),
        ((), {"request_state": "raw"}, "request_state is 'raw', not sealed or verbatim"),
    ],
)
def test_a_wrong_argument_is_named(names, options, text):
    """What can't be meant is an error that says what can."""
    with pytest.raises(UsageError, match=text):
        read_settings([(names, options)])
