"""Checking a cassette by its digests and for secrets, and accepting what was edited in it."""

from __future__ import annotations

from mrtr_cassette.core.format.check import AcceptedEdit, accept_edit
from mrtr_cassette.core.record.exposed import ExposedSecret, exposed_secrets
from mrtr_cassette.shell.cassette_file import load_cassette, publish, read_file
from mrtr_cassette.shell.progress import Progress
from mrtr_cassette.shell.stores import Location


def check(path: Location, progress: Progress) -> tuple[int, list[ExposedSecret]]:
    """Return how many interactions a cassette has, all of them as recorded, and secrets in it.

    Raises:
        CassetteError: it is missing, damaged, or was edited.
    """
    cassette = load_cassette(path, progress)
    return len(cassette.interactions), list(exposed_secrets(cassette))


def fix(path: Location) -> AcceptedEdit:
    """Accept what was edited in a cassette; it is written only where that changes it.

    Raises:
        CassetteError: it is missing, or damaged in another way than by an edit.
    """
    data = read_file(path)
    accepted = accept_edit(data, str(path))
    if accepted.data != data:
        publish(path, [accepted.data], replace=True)
    return accepted
