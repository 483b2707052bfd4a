"""A process that leads a group of its own, with all that it starts.

Rule: a group is ended when none of its processes is left, children included.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import Final

_POLL_S: Final = 0.01
"""Seconds between two looks at a process group, which gives no notice."""


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """A running process and its children.

    Attributes:
        leader: the process, whose id is that of the group.
    """

    leader: subprocess.Popen[bytes]

    def signal(self, number: int) -> bool:
        """Send the group a signal; return whether a process is left in it."""
        # A process that has ended keeps its group alive until it is waited for.
        self.leader.poll()
        try:
            os.killpg(self.leader.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def stop(self, grace_s: float) -> None:
        """End the group: SIGTERM, and SIGKILL for who is left after so many seconds."""
        deadline = time.monotonic() + grace_s
        self.signal(signal.SIGTERM)
        while self.signal(0):
            if time.monotonic() > deadline:
                self.signal(signal.SIGKILL)
                break
            time.sleep(_POLL_S)
        self.leader.wait()
