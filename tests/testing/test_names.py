from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrtr_cassette.testing.names import file_name, hint_at_rename


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


def test_a_renamed_test_is_told_a_command_that_a_shell_takes(tmp_path: Path) -> None:
    """Also where a folder has a space in its name."""
    folder = tmp_path / "my cassettes"
    folder.mkdir()
    old = folder / "test_deploys.json"
    old.touch()
    path = folder / "test_deploy.json"

    assert hint_at_rename(path, []).endswith(f"renamed: mv '{old}' '{path}'")
