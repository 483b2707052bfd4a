"""Keeping what a recording sees: its journal, and in the end its cassette."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from mrtr_cassette.core.exchange.recorded import Cassette, Transport
from mrtr_cassette.core.format.journal import JournalHeader
from mrtr_cassette.core.record.recorder import Recorder
from mrtr_cassette.core.secrets.credentials import Credentials
from mrtr_cassette.core.secrets.redact import Redactor, keyed_hash
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.errors import CassetteError, UsageError
from mrtr_cassette.options import RecordOptions
from mrtr_cassette.shell import cassette_file, journal_file
from mrtr_cassette.shell.announcing import Announcer
from mrtr_cassette.shell.clock import Clock
from mrtr_cassette.shell.progress import told_by
from mrtr_cassette.shell.publishing import publish_journal
from mrtr_cassette.shell.record_session import RecordSession
from mrtr_cassette.shell.stores import Location
from mrtr_cassette.shell.watching import OnAsk, Watcher


def check_output(output: Location, options: RecordOptions) -> Cassette | None:
    """Make sure, before anything is recorded, that the cassette can be written.

    Returns:
        the cassette that is added to, or None.
    """
    cassette_file.check_replaceable(output)
    cassette_file.tidy(output)
    if not cassette_file.exists(output) or options.existing == "replace":
        return None
    if options.existing == "keep":
        raise cassette_file.cassette_exists(output)
    earlier = cassette_file.load_cassette(output)
    if earlier.request_state != options.request_state:
        raise UsageError(
            f"{output} has its request states {earlier.request_state}, "
            f"and this recording would have them {options.request_state}",
            hint="choose another <<cassette>>, or the same <<request_state>>",
        )
    if earlier.seals_answers != options.seal_answers:
        before, after = (
            "sealed" if seals else "readable"
            for seals in (earlier.seals_answers, options.seal_answers)
        )
        raise UsageError(
            f"{output} has its answers {before}, and this recording would have them {after}",
            hint="choose another <<cassette>>, or <<seal_answers>> as it was recorded",
        )
    return earlier


def rules_of_both(earlier: Cassette | None, rules: RedactionRules) -> RedactionRules:
    """Return the rules for a cassette that is added to: its own, and then those of the addition."""
    if earlier is None or earlier.redaction is None:
        return rules
    before = earlier.redaction
    return RedactionRules(
        patterns=tuple(dict.fromkeys((*before.patterns, *rules.patterns))),
        keys=tuple(dict.fromkeys((*before.keys, *rules.keys))),
        disabled=tuple(name for name in before.disabled if name in rules.disabled),
    )


def journal_header(
    options: RecordOptions,
    rules: RedactionRules,
    upstream: str,
    transport: Transport = "http",
    client: str | None = None,
) -> JournalHeader:
    """Return what a recording that begins now says of itself."""
    now = datetime.now(UTC)
    return JournalHeader(
        upstream=upstream,
        request_state=options.request_state,
        recorded_at=now.isoformat(timespec="seconds"),
        existing=options.existing,
        redaction=rules,
        answers="sealed" if options.seal_answers else None,
        transport=transport,
        client=client,
        recorder=secrets.token_hex(16),
        wall_ms=now.timestamp() * 1000,
    )


@contextmanager
def keeping(
    session: RecordSession,
    header: JournalHeader,
    options: RecordOptions,
    announcer: Announcer,
    clock: Clock,
    *,
    publishes: bool = True,
    on_ask: OnAsk | None = None,
) -> Iterator[Watcher]:
    """Keep what is shown to the watcher, until the block ends.

    Args:
        publishes: when the block ends, the journal becomes the cassette, unless something speaks
            against it; else it stays.

    Raises:
        CassetteError: the journal can't be written, or the cassette not be published.
    """
    path = journal_file.journal_path(session.path)
    journal = journal_file.Journal(path, header, session.path)
    recorder = _recorder(options, header.redaction or RedactionRules())
    try:
        yield Watcher(recorder, journal, session, announcer, clock, clock.now(), on_ask)
    finally:
        with journal.held():
            is_in_place = _close(journal, session)
            progress = told_by(announcer, "writing", session.path, clock)
            wanted = options.publish_anyway or session.find_objection() is None
            if publishes and is_in_place and wanted:
                session.published, lost = publish_journal(session.path, progress)
                session.problem = lost or session.problem


def _close(journal: journal_file.Journal, session: RecordSession) -> bool:
    """Let go of a journal; return whether it stands where it belongs."""
    try:
        journal.close()
    except CassetteError as error:
        session.problem = session.problem or error.in_terms(session.terms)
        return False
    return True


def _recorder(options: RecordOptions, rules: RedactionRules) -> Recorder:
    redactor = Redactor(rules, keyed_hash(secrets.token_bytes(32)))
    return Recorder(
        seals=options.request_state == "sealed",
        redactor=redactor,
        credentials=Credentials(redactor),
        seals_answers=options.seal_answers,
        kept_headers=options.kept_headers,
        largest_body=options.max_body,
    )
