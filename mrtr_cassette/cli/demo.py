"""`mrtr-cassette demo`."""

from __future__ import annotations

import sys

import click


@click.command()
def demo() -> None:
    """Show the main job on a server of our own.

    Record it, stop it, replay it, and compare every byte.
    """
    from mrtr_cassette.demo.run import run_demo
    from mrtr_cassette.shell.running import run

    sys.exit(run(run_demo(click.echo)))
