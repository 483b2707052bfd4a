"""Whether a run has all tests of its suite, as far as pytest tells."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest

_NARROWING = ("deselect", "ignore", "ignore_glob", "lf", "stepwise", "collectonly")
"""The options that leave tests out, beside `-k` and `-m`, as pytest keeps them."""


def narrowed_by(config: pytest.Config) -> str | None:
    """Return what on the command line leaves tests out, or None."""
    options = {name: f"--{name.replace('_', '-')}" for name in _NARROWING}
    for name, option in {"keyword": "-k", "markexpr": "-m", **options}.items():
        if config.getoption(name, None):
            return f"{option} leaves tests out"
    if config.args_source is pytest.Config.ArgsSource.ARGS:
        return "only the tests under the given paths were collected"
    return None


def left_out_at(path: Path, config: pytest.Config) -> bool:
    """Tell whether tests may be left out where pytest ignores a path, as `collect_ignore` says."""
    if path.is_file():
        return any(fnmatch(path.name, pattern) for pattern in config.getini("python_files"))
    patterns = ("__pycache__", *config.getini("norecursedirs"))
    is_passed_over = any(fnmatch(path.name, pattern) for pattern in patterns)
    return not is_passed_over and not (path / "pyvenv.cfg").exists()
