"""`python -m mrtr_cassette`, the same as the command `mrtr-cassette`."""

from __future__ import annotations

import gc
import signal
import sys


def main() -> None:
    """Run the command line; as long as it is being imported, Ctrl-C ends the process at once."""
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    # What is imported stays: the collector need not look at it, now or later.
    gc.disable()
    from mrtr_cassette.cli import load_command
    from mrtr_cassette.cli import main as program

    load_command(sys.argv[1:])
    gc.freeze()
    gc.enable()
    if is_ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)

    program()


if __name__ == "__main__":
    main()
