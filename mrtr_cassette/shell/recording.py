"""Recording: a proxy between a client and the upstream, and what becomes of what passes.

Owns: putting the parts of a recording together, and its journal and cassette.
Does not own: what passes (`relay`) and what is kept of it (`watching`).
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from mrtr_cassette.core.drive.catching_up import RecordedAsks
from mrtr_cassette.core.drive.live_asks import LiveAsks
from mrtr_cassette.core.drive.sessions import Sessions
from mrtr_cassette.core.exchange.recorded import Cassette, RequestState
from mrtr_cassette.core.format.journal import Existing, JournalHeader
from mrtr_cassette.core.record.recorder import Recorder
from mrtr_cassette.core.replay.matching import redactor_of
from mrtr_cassette.core.replay.player import Player, Repeat
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.wire.http import Headers
from mrtr_cassette.core.wire.jsonbytes import MemberPath
from mrtr_cassette.errors import LIBRARY_TERMS, Terms, UsageError
from mrtr_cassette.shell import cassette_file, journal_file
from mrtr_cassette.shell.announcing import Announcer, Log, OnEvent
from mrtr_cassette.shell.appending import Appender
from mrtr_cassette.shell.clock import CLOCK, Clock
from mrtr_cassette.shell.http_client import connecting
from mrtr_cassette.shell.http_server import LOOPBACK, Access, listening, serving
from mrtr_cassette.shell.publishing import publish_journal
from mrtr_cassette.shell.record_session import RecordSession
from mrtr_cassette.shell.relay import Relay
from mrtr_cassette.shell.replaying import ReplayServer
from mrtr_cassette.shell.transport import Handler
from mrtr_cassette.shell.upstream_url import credentials, shown_url, tls_context, upstream_url
from mrtr_cassette.shell.watching import Watcher

BUILT_IN = RedactionRules()
"""The rules of redaction as they come."""

_OWN_BY_US = frozenset({"host", "expect"})
"""Request headers of one connection for which `end_to_end` has no rule."""


@asynccontextmanager
async def recording(
    upstream: str,
    output: Path,
    *,
    access: Access = LOOPBACK,
    headers: Headers = (),
    request_state: RequestState = "sealed",
    existing: Existing = "keep",
    ignored: Collection[MemberPath] = (),
    repeat: Repeat = Repeat.AUTO,
    redaction: RedactionRules = BUILT_IN,
    seals_answers: bool = False,
    ca_file: Path | None = None,
    verifies: bool = True,
    syncs: bool = False,
    named: str | None = None,
    publishes: bool = True,
    log: Log | None = None,
    on_event: OnEvent | None = None,
    terms: Terms = LIBRARY_TERMS,
    clock: Clock = CLOCK,
) -> AsyncIterator[RecordSession]:
    """Record what passes until the block ends, then publish the cassette.

    With `existing="append"`, what the cassette has is played, and only what it lacks is sent to the
    upstream and recorded. Where it lacks nothing, the file stays untouched.

    Args:
        upstream: URL of the real server.
        output: the cassette.
        access: where to listen, and for whom.
        headers: added to every upstream request, in the place of the client's of that name.
        request_state: whether raw states are replaced by surrogates.
        existing: what becomes of a cassette that exists.
        ignored: members of the params that don't count in matching with what is added to.
        repeat: whether what has been played of it may be played again.
        redaction: what is changed about the built-in rules of redaction.
        seals_answers: of what users answer only hashes are kept.
        ca_file: certificates (PEM) by which a TLS upstream is verified, besides the system's.
        verifies: a TLS upstream that can't be verified is refused.
        syncs: what is written is on the medium before the client has its response.
        named: what the cassette names as its upstream, where the URL is another one on every run.
        publishes: when the block ends, the journal becomes the cassette; else it stays.
        log: takes one line for each exchange and each problem.
        on_event: takes the same and more as facts, for programs.
        terms: how texts spell the options.
        clock: tells the time.

    Raises:
        CassetteError: the cassette can't be written, or exists.
        UsageError: the upstream is no URL, or the address can't be bound.
    """
    url = upstream_url(upstream)
    with cassette_file.without_collection():
        earlier = _check_output(
            output, existing, request_state, "sealed" if seals_answers else None
        )
        player = None
        if earlier is not None:
            player = Player(earlier, ignored=ignored, repeat=repeat)
    redaction = _rules_of_both(earlier, redaction)
    redactor = Redactor(redaction, _keyed_hash(secrets.token_bytes(32)))
    header = JournalHeader(
        upstream=redactor.text(named or shown_url(url)),
        request_state=request_state,
        recorded_at=datetime.now(UTC).isoformat(timespec="seconds"),
        existing=existing,
        redaction=redaction,
        answers="sealed" if seals_answers else None,
    )
    headers = (*credentials(url), *headers)
    tls = tls_context(url, ca_file, verifies=verifies)
    recorder = Recorder(
        seals=request_state == "sealed",
        redactor=redactor,
        seals_answers=seals_answers,
        largest_body=access.max_body,
    )
    announcer = Announcer(log, on_event, terms)
    live_asks = LiveAsks()
    with listening(access) as listener:
        if url.port == listener.address.port and access.is_named(url.host or ""):
            raise UsageError(f"the upstream {shown_url(url)} is this proxy itself")
        session_url = listener.address.url(url.raw_path_qs)
        session = RecordSession(session_url, output, earlier, player, terms)
        with _journal(session, header, syncs=syncs, publishes=publishes) as journal:
            watcher = Watcher(
                recorder,
                journal,
                session,
                announcer,
                clock,
                started=clock.now(),
                on_ask=None if earlier is None else live_asks.asked,
            )
            async with connecting(url.origin(), tls) as client:
                relay = Relay(client, shown_url(url.origin()), headers, watcher)
                handler: Handler = relay.handle
                if earlier is not None and player is not None:
                    as_recorded = redactor_of(earlier)
                    handler = Appender(
                        ReplayServer(player, announcer, paced=False),
                        relay,
                        RecordedAsks(player, as_recorded),
                        Sessions(as_recorded),
                        live_asks,
                    ).handle
                async with serving(handler, listener, access, log, files_each=2):
                    yield session


@contextmanager
def _journal(
    session: RecordSession, header: JournalHeader, *, syncs: bool, publishes: bool
) -> Iterator[journal_file.Journal]:
    """Keep a journal until the block ends, and then publish it."""
    journal = journal_file.Journal(journal_file.journal_path(session.path), header, syncs=syncs)
    try:
        yield journal
    finally:
        journal.close()
        if publishes:
            session.published, lost = publish_journal(session.path)
            if lost is not None:
                session.problem = lost


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


def _check_output(
    output: Path,
    existing: Existing,
    request_state: RequestState,
    answers: Literal["sealed"] | None,
) -> Cassette | None:
    """Make sure, before anything is recorded, that the cassette can be written.

    Returns:
        the cassette that is added to, or None.
    """
    cassette_file.check_writable(output)
    if not output.exists() or existing == "replace":
        return None
    if existing == "keep":
        raise cassette_file.cassette_exists(output)
    earlier = cassette_file.load_cassette(output)
    if earlier.request_state != request_state:
        raise UsageError(
            f"{output} has its request states {earlier.request_state}, "
            f"and this recording would have them {request_state}",
            hint="choose another <<cassette>>, or the same <<request_state>>",
        )
    if earlier.seals_answers != (answers is not None):
        raise UsageError(
            f"{output} has its answers {'sealed' if earlier.seals_answers else 'readable'}, "
            f"and this recording would have them {answers or 'readable'}",
            hint="choose another <<cassette>>, or <<seal_answers>> as it was recorded",
        )
    return earlier
