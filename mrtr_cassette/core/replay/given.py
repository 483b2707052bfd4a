"""What a replay gave the client in the place of what was not kept.

Rule: whoever made up a text that looks like one of ours, or found it in a file, doesn't know what
it stands for, so it counts only where this replay gave it out.
"""

from __future__ import annotations

from collections.abc import Iterator

from mrtr_cassette.core.secrets.answers import SEALED_ANSWER
from mrtr_cassette.core.secrets.placeholders import placeholder, placeholders_in
from mrtr_cassette.core.secrets.surrogates import SEALED_HASH
from mrtr_cassette.core.wire.http import Response


class GivenOut:
    """What stands for something else in the replay's URL and in the responses that it played."""

    def __init__(self, url: str) -> None:
        """Begin with the recorded URL, which is the path and query of the client's."""
        self._unread: dict[int, Response] = {}
        self._texts = set(_ours_in(url))

    def played(self, response: Response) -> None:
        """Take note of a response; it is read when the first client sends what looks like ours."""
        self._unread[id(response)] = response

    def __contains__(self, text: str) -> bool:
        """Tell whether the client was given a text, spelled as in a cassette."""
        for response in self._unread.values():
            self._texts.update(_ours_in(response.body.decode("latin-1")))
            for _, value in response.headers:
                self._texts.update(_ours_in(value))
        self._unread.clear()
        return text in self._texts


def _ours_in(text: str) -> Iterator[str]:
    for match in SEALED_HASH.finditer(text):
        yield f"sha256:{match[2]}"
    for match in placeholders_in(text):
        yield placeholder(match["rule"], match["token"])
    for match in SEALED_ANSWER.finditer(text):
        yield match[0]
