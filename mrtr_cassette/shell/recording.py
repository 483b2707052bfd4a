"""Recording: a proxy between a client and the upstream, and what becomes of what passes.

Owns: putting the parts of a recording together, and its journal and cassette.
Does not own: what passes (`relay`) and what is kept of it (`watching`).
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from mrtr_cassette.core.drive.catching_up import RecordedAsks
from mrtr_cassette.core.drive.live_asks import LiveAsks
from mrtr_cassette.core.drive.sessions import Sessions
from mrtr_cassette.core.exchange.recorded import Cassette
from mrtr_cassette.core.format.journal import JournalHeader
from mrtr_cassette.core.record.recorder import Recorder
from mrtr_cassette.core.replay.matching import redactor_of
from mrtr_cassette.core.replay.player import Player, Repeat
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.errors import CassetteError, UsageError
from mrtr_cassette.options import RecordOptions
from mrtr_cassette.shell import cassette_file, journal_file
from mrtr_cassette.shell.announcing import Announcer, OnEvent
from mrtr_cassette.shell.appending import Appender
from mrtr_cassette.shell.clock import CLOCK, Clock
from mrtr_cassette.shell.files import real_path, remove_leftovers
from mrtr_cassette.shell.http_client import connecting
from mrtr_cassette.shell.http_server import (
    REQUEST_TIMEOUTS,
    RequestTimeouts,
    access_of,
    listening,
    serving,
)
from mrtr_cassette.shell.publishing import publish_journal
from mrtr_cassette.shell.record_session import RecordSession
from mrtr_cassette.shell.relay import Relay
from mrtr_cassette.shell.replaying import ReplayServer
from mrtr_cassette.shell.transport import Handler
from mrtr_cassette.shell.upstream_url import credentials, shown_url, tls_context, upstream_url
from mrtr_cassette.shell.watching import Watcher

DEFAULTS: Final = RecordOptions()


@asynccontextmanager
async def recording(
    upstream: str,
    output: Path,
    options: RecordOptions = DEFAULTS,
    *,
    named: str | None = None,
    publishes: bool = True,
    on_event: OnEvent | None = None,
    clock: Clock = CLOCK,
    timeouts: RequestTimeouts = REQUEST_TIMEOUTS,
) -> AsyncIterator[RecordSession]:
    """Record what passes until the block ends, then publish the cassette.

    With `existing="append"`, what the cassette has is played, and only what it lacks is sent to the
    upstream and recorded. Where it lacks nothing, the file stays untouched.

    Args:
        upstream: URL of the real server.
        output: the cassette.
        options: how it is recorded.
        named: what the cassette names as its upstream, where the URL is another one on every run.
        publishes: when the block ends, the journal becomes the cassette; else it stays.
        on_event: takes what the log takes and more as facts, for programs.
        clock: tells the time.
        timeouts: how long clients may take.

    Raises:
        CassetteError: the cassette can't be written, or exists.
        UsageError: the upstream is no URL, or the address can't be bound.
    """
    url = upstream_url(upstream, _shown_by(options.redaction))
    with cassette_file.without_collection():
        earlier = _check_output(output, options)
        player = None if earlier is None else _player_of(earlier, options)
    rules = _rules_of_both(earlier, options.redaction)
    shown = _shown_by(rules)
    headers = (*credentials(url), *options.added_headers)
    tls = tls_context(url, options.ca_path, verifies=not options.insecure)
    access = access_of(options)
    with listening(access) as listener:
        if url.port == listener.address.port and access.is_named(url.host or ""):
            raise UsageError(f"the upstream {shown(shown_url(url))} is this proxy itself")
        own_url = listener.address.url(url.raw_path_qs)
        session = RecordSession(own_url, shown(own_url), output, earlier, player, options.terms)
        header = _header(options, rules, shown(named or shown_url(url)))
        with _journal(session, header, options, publishes=publishes) as journal:
            live_asks = LiveAsks()
            watcher = Watcher(
                _recorder(options, rules),
                journal,
                session,
                Announcer(options.log, on_event, options.terms),
                clock,
                started=clock.now(),
                on_ask=None if earlier is None else live_asks.asked,
            )
            async with connecting(url.origin(), tls) as client:
                relay = Relay(client, shown_url(url.origin()), headers, watcher)
                handler: Handler = relay.handle
                if earlier is not None and player is not None:
                    handler = _appender(relay, earlier, player, live_asks).handle
                async with serving(
                    handler, listener, access, options.log, files_each=2, timeouts=timeouts
                ):
                    yield session


def _shown_by(rules: RedactionRules) -> Callable[[str], str]:
    """Return what takes secrets out of a URL that is shown: the same in every recording."""
    return Redactor(rules, lambda _rule, _secret: "1").text


def _recorder(options: RecordOptions, rules: RedactionRules) -> Recorder:
    return Recorder(
        seals=options.request_state == "sealed",
        redactor=Redactor(rules, _keyed_hash(secrets.token_bytes(32))),
        seals_answers=options.seal_answers,
        withholds=options.strict_redaction,
        kept_headers=options.kept_headers,
        largest_body=options.max_body,
    )


def _header(options: RecordOptions, rules: RedactionRules, upstream: str) -> JournalHeader:
    return JournalHeader(
        upstream=upstream,
        request_state=options.request_state,
        recorded_at=datetime.now(UTC).isoformat(timespec="seconds"),
        existing=options.existing,
        redaction=rules,
        answers="sealed" if options.seal_answers else None,
    )


def _appender(relay: Relay, earlier: Cassette, player: Player, live_asks: LiveAsks) -> Appender:
    """Return what plays a cassette and has the relay record what it lacks."""
    as_recorded = redactor_of(earlier)
    return Appender(
        ReplayServer(player, relay.watcher.announcer, paced=False),
        relay,
        RecordedAsks(player, as_recorded),
        Sessions(as_recorded),
        live_asks,
    )


@contextmanager
def _journal(
    session: RecordSession, header: JournalHeader, options: RecordOptions, *, publishes: bool
) -> Iterator[journal_file.Journal]:
    """Keep a journal until the block ends, and then publish it unless something speaks against."""
    path = journal_file.journal_path(session.path)
    journal = journal_file.Journal(path, header, syncs=options.fsync)
    try:
        yield journal
    finally:
        is_in_place = _close(journal, session)
        wanted = options.publish_anyway or session.find_objection() is None
        if publishes and is_in_place and wanted:
            session.published, lost = publish_journal(session.path)
            if lost is not None:
                session.problem = lost


def _close(journal: journal_file.Journal, session: RecordSession) -> bool:
    """Let go of a journal; return whether it stands where it belongs."""
    try:
        if journal.close() is journal_file.Restored.CUT and session.problem is None:
            session.problem = journal_file.cut_short(journal.path).in_terms(session.terms)
    except CassetteError as error:
        session.problem = session.problem or error.in_terms(session.terms)
        return False
    return True


def _rules_of_both(earlier: Cassette | None, rules: RedactionRules) -> RedactionRules:
    """Return the rules for a cassette that is added to: its own, and then those of the addition."""
    if earlier is None or earlier.redaction is None:
        return rules
    before = earlier.redaction
    return RedactionRules(
        patterns=tuple(dict.fromkeys((*before.patterns, *rules.patterns))),
        keys=tuple(dict.fromkeys((*before.keys, *rules.keys))),
        disabled=tuple(name for name in before.disabled if name in rules.disabled),
    )


def _keyed_hash(key: bytes) -> Callable[[str, str], str]:
    """Return what stands for a secret in the journal: its hash under a key that nobody keeps."""

    def token(_rule: str, secret: str) -> str:
        raw = secret.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(raw, key=key, digest_size=12).hexdigest()

    return token


def _player_of(earlier: Cassette, options: RecordOptions) -> Player:
    """Return what plays the cassette that is added to."""
    # What it lacks is for the upstream to answer, harmless or not.
    return Player(earlier, ignored=options.ignored, repeat=Repeat(options.repeat), strict=True)


def _check_output(output: Path, options: RecordOptions) -> Cassette | None:
    """Make sure, before anything is recorded, that the cassette can be written.

    Returns:
        the cassette that is added to, or None.
    """
    cassette_file.check_replaceable(output)
    remove_leftovers(real_path(output))
    if not output.exists() or options.existing == "replace":
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
