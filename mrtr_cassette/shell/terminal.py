"""A person at a terminal who answers.

Rule: without a terminal nobody is asked, and while a line is awaited everything else goes on.
"""

from __future__ import annotations

import asyncio
import os
import sys
import webbrowser
from collections import deque
from pathlib import Path
from typing import Any, Final

from mrtr_cassette.core.answers.prompts import dialogue_for
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.wire.lines import LineFramer

_LONGEST_LINE: Final = 1024 * 1024
_AT_ONCE: Final = 65536


def has_terminal() -> bool:
    """Tell whether a person can read what is asked, and type."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


class Terminal:
    """Asks at the terminal of this process, one question after the other."""

    def __init__(self) -> None:
        self._framer = LineFramer(_LONGEST_LINE)
        self._typed: deque[str] = deque()
        self._has_ended = False

    async def ask(self, key: str, request: InputRequest) -> Any:
        """Ask one request for input; return the answer, or None where there is none."""
        dialogue = dialogue_for(key, request)
        while not dialogue.is_over:
            for line in dialogue.said:
                sys.stderr.write(f"{line}\n")
            dialogue.said.clear()
            sys.stderr.write(dialogue.prompt)
            sys.stderr.flush()
            dialogue.line(await self._line())
            if dialogue.file is not None:
                dialogue.file_read(_text_in(dialogue.file))
            if dialogue.url is not None:
                await asyncio.to_thread(webbrowser.open, dialogue.url)
                dialogue.url = None
        for line in dialogue.said:
            sys.stderr.write(f"{line}\n")
        return dialogue.answer

    async def _line(self) -> str | None:
        """Return the next line, without its end; None at the end of all."""
        while not self._typed and not self._has_ended:
            await self._readable()
            chunk = os.read(sys.stdin.fileno(), _AT_ONCE)
            lines = self._framer.feed(chunk) if chunk else self._framer.finish()
            self._typed += [line.raw.decode("utf-8", "replace").rstrip("\r\n") for line in lines]
            self._has_ended = not chunk
        return self._typed.popleft() if self._typed else None

    @staticmethod
    async def _readable() -> None:
        loop = asyncio.get_running_loop()
        came = asyncio.Event()
        loop.add_reader(sys.stdin.fileno(), came.set)
        try:
            await came.wait()
        finally:
            loop.remove_reader(sys.stdin.fileno())


def _text_in(name: str) -> str | None:
    try:
        return Path(name).expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
