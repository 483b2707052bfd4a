"""The log of a run: lines for people and events for programs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar, TypeVarTuple, Unpack

from mrtr_cassette.errors import printable_lines
from mrtr_cassette.terms import LIBRARY_TERMS, Terms

_MOST_WAITING: Final = 10_000
_GATHERED_S: Final = 0.02
"""Seconds in which values gather after one was passed on: waking a thread for every value costs as
much as all other work for a call."""

WriteLine = Callable[[str], None]
OnEvent = Callable[[dict[str, Any]], None]
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class BackgroundCaller(Generic[T]):
    """Passes values to a function in its own thread; drops values when too many wait.

    It takes all that have gathered at once.
    """

    def __init__(self, take: Callable[..., None]) -> None:
        self._take_values = take
        self._waiting_values: SimpleQueue[T | None] = SimpleQueue()
        self._is_finishing = threading.Event()
        self._thread = threading.Thread(
            target=self._pass_on_waiting_values, daemon=True
        )
        self._thread.start()

    def __call__(self, value: T) -> None:
        """Pass a value on, unless too many wait already."""
        if self._waiting_values.qsize() < _MOST_WAITING:
            self._waiting_values.put(value)

    def finish(self, seconds: float) -> None:
        """Wait until all values were passed on, this many seconds at most."""
        self._waiting_values.put(None)
        self._is_finishing.set()
        self._thread.join(seconds)

    def _pass_on_waiting_values(self) -> None:
        """Pass values on, as many at once as have gathered, until `finish` is called."""
        is_over = False
        while not is_over:
            values = [self._waiting_values.get()]
            while not self._waiting_values.empty():
                values.append(self._waiting_values.get())

            if None in values:
                is_over = True
                values = values[: values.index(None)]

            if values:
                with suppress(OSError):
                    self._take_values(*values)

            if not is_over:
                self._is_finishing.wait(_GATHERED_S)


def given_listeners(*listeners: OnEvent | None) -> tuple[OnEvent, ...]:
    """Return the listeners that are not None."""
    return tuple(listener for listener in listeners if listener is not None)


@dataclass(frozen=True, slots=True)
class Announcer:
    """Logs lines, with options spelled as in `terms`, and tells listeners events."""

    log: WriteLine | None = None
    listeners: tuple[OnEvent, ...] = ()
    terms: Terms = field(default_factory=lambda: LIBRARY_TERMS)

    def say(
        self,
        make_event_and_line: Callable[[Unpack[Ts]], tuple[dict[str, Any], str]],
        *args: *Ts,
    ) -> None:
        """Log one event as a line and tell the listeners; it is made only if somebody wants it."""
        if self.listeners or self.log is not None:
            event, line = make_event_and_line(*args)
            self.tell(lambda: event)
            if self.log is not None:
                with suppress(OSError):
                    self.log(printable_lines(line))

    def tell(
        self, make_event: Callable[[Unpack[Ts]], dict[str, Any]], *args: *Ts
    ) -> None:
        """Tell the listeners one event; it is made only if there are any."""
        if self.listeners:
            event = make_event(*args)
            for listener in self.listeners:
                # A log that nobody reads any more must not break what passes.
                with suppress(OSError):
                    listener(event)
