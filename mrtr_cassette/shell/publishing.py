"""From the journal of a recording to its cassette.

Owns: publishing a journal, whether its recording ended or was killed.
Does not own: the files as such (`files`), and how exchanges become interactions (`core.record`).
Rule: the journal goes only when the cassette stands.
"""

from __future__ import annotations

from pathlib import Path

from mrtr_cassette import __version__
from mrtr_cassette.core.exchange.recorded import Cassette
from mrtr_cassette.core.format.codec import encode_cassette
from mrtr_cassette.core.format.load import load
from mrtr_cassette.core.format.model import CassetteModel
from mrtr_cassette.core.record.assembly import assemble
from mrtr_cassette.errors import CassetteError
from mrtr_cassette.shell import files

TOOL = f"mrtr-cassette {__version__}"


def publish_journal(output: Path) -> tuple[CassetteModel | None, str | None]:
    """Turn the journal of a recording into its cassette, and remove the journal.

    Returns:
        the cassette, or None where nothing was recorded; and what was lost, or None.

    Raises:
        CassetteError: the journal can't be read, or the cassette not be written. The journal stays.
    """
    journal = files.journal_path(output)
    with files.without_collection():
        content = files.read_journal(journal)
        cassette = _assembled(content, output)
        if cassette is not None:
            files.publish(output, cassette, replace=content.header.existing != "keep")
    journal.unlink()
    return cassette, content.lost


def recorded_so_far(output: Path) -> Cassette | None:
    """Return what the journal of a recording under way would become; None where it has nothing."""
    try:
        content = files.read_journal(files.journal_path(output))
    except CassetteError:
        return None
    assembled = _assembled(content, output)
    return None if assembled is None else load(encode_cassette(assembled), str(output))


def _assembled(content: files.JournalContent, output: Path) -> CassetteModel | None:
    """Return the cassette that a journal becomes; None where it has no exchange."""
    if not content.exchanges:
        return None
    header = content.header
    earlier = None
    if header.existing == "append" and output.exists():
        earlier = files.read_cassette(output)
    return assemble(
        list(content.exchanges.values()),
        upstream=header.upstream,
        request_state=header.request_state,
        recorded_at=header.recorded_at,
        tool=TOOL,
        redaction=header.redaction,
        answers=header.answers,
        earlier=earlier,
    )
