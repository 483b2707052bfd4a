"""A server's command: how it is shown, and the credentials in it."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from mrtr_cassette.core.secrets.credentials import UserSettings, text_redactor
from mrtr_cassette.core.secrets.rules import BUILT_IN_RULES, RedactionRules
from mrtr_cassette.errors import printable


def shown_command(
    command: Sequence[str], rules: RedactionRules = BUILT_IN_RULES
) -> str:
    """Return a server's command as cassettes and messages show it."""
    redact = text_redactor(
        rules, UserSettings(environment=tuple(_options_of_command(command)))
    )
    text = redact(shlex.join([Path(command[0]).name, *command[1:]]))
    # A cassette doesn't name its user, and is the same in another one's home directory.
    home = os.path.expanduser("~").rstrip("/")  # noqa: PTH111  a user may have none
    if not home:
        return text

    return re.sub(rf"(?<![\w.~-]){re.escape(home)}/", "~/", text)


def command_in_words(command: Sequence[str]) -> str:
    """Return a command as an error names it: its words, without the credentials it is given."""
    without_secrets = text_redactor(BUILT_IN_RULES, credentials_given_to(command))
    return without_secrets(" ".join(map(printable, command)))


def credentials_given_to(command: Sequence[str]) -> UserSettings:
    """Return the credentials that a started server gets: arguments and environment."""
    settings = (*os.environ.items(), *_options_of_command(command))
    return UserSettings(environment=settings, command=shlex.join(command))


def _options_of_command(command: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield a command's options, without dashes, with the value after `=` or the next word."""
    for option, next_word in pairwise((*command, "")):
        name, has_value, value = option.lstrip("-").partition("=")
        if not has_value:
            value = next_word

        if option.startswith("-") and not value.startswith("-"):
            yield name, value
