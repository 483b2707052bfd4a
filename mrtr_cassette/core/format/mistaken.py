"""What a file is that was given in the place of a cassette.

Owns: telling the files that people confuse with cassettes, or make of them by accident.
Does not own: what is wrong within a cassette (`codec`).
Rule: it looks only at files that could not be read as a cassette.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple


class Mistaken(NamedTuple):
    """What a file is, and what to do about it."""

    reason: str
    hint: str


_RECORD_ANEW: Final = "record the server with: <<record>>"
_MERGE_MARK: Final = re.compile(rb"^(?:<{7} |>{7} |={7}\r?$)", re.MULTILINE)
_BEFORE_YAML: Final = rb"\A(?:[ \t]*(?:#[^\n]*|---[^\n]*)?\n)*"
_TEXTS: Final = {
    rb'\A\{"journal":': Mistaken(
        "it is the journal of a recording, not a cassette",
        "make the cassette of it with: mrtr-cassette recover CASSETTE, without .journal",
    ),
    rb"\A(?:\xff\xfe|\xfe\xff)": Mistaken("it is in UTF-16", "save it in UTF-8"),
    rb"\A\x1f\x8b": Mistaken("it is compressed by gzip", "unpack it first"),
    rb"\A\s*<(?:!|html|\?xml)": Mistaken("it is HTML or XML, not JSON", _RECORD_ANEW),
    _BEFORE_YAML + rb"(?:http_)?interactions:\s": Mistaken(
        "it is a YAML cassette of another tool, such as VCR.py or pytest-recording", _RECORD_ANEW
    ),
    _BEFORE_YAML + rb"[A-Za-z_][\w-]*:\s": Mistaken("it is YAML, not JSON", _RECORD_ANEW),
}
"""What begins like this."""


def mistaken_text(data: bytes) -> Mistaken | None:
    """Return what a file is that is no JSON; None where that is not known."""
    mark = _MERGE_MARK.search(data)
    if mark is not None:
        line = data.count(b"\n", 0, mark.start()) + 1
        return Mistaken(
            f"line {line} is the mark of a merge conflict",
            "take one side whole (git checkout --ours or --theirs), or record it again",
        )
    matching = (mistaken for pattern, mistaken in _TEXTS.items() if re.search(pattern, data))
    return next(matching, None)


def mistaken_json(tree: Any) -> Mistaken:
    """Return what a file is that is JSON, and no cassette."""
    members = tree.keys() if isinstance(tree, dict) else ()
    for what, names in _OTHER_FORMATS.items():
        if names <= set(members):
            return Mistaken(f"it is {what}", _RECORD_ANEW)
    return Mistaken(
        "JSON, but no mrtr-cassette file (no `version` and `interactions` at its top level)",
        "name a file that `mrtr-cassette record` wrote",
    )


_OTHER_FORMATS: Final = {
    "the report of a replay, not its cassette": {"cassette", "misses"},
    "a client's configuration of servers": {"mcpServers"},
    "a JSON Schema, not a cassette": {"$schema", "properties"},
    "an HTTP archive (HAR)": {"log"},
    "a cassette of another tool, such as VCR for Ruby": {"http_interactions"},
}
"""What has these members at its top level."""
