"""Digests that a server announces agree with the texts that a cassette has of it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from builders import JOURNAL_HEADER, STREAM_HEADERS, Conversation, answer, get, rpc, sse
from core.secrets.planted import GITHUB
from hypothesis import given
from hypothesis import strategies as st
from pushing import SESSION

from mrtr_cassette.core.cassette.dump import dump
from mrtr_cassette.core.cassette.journal import (
    decode_journal,
    decode_journal_line,
    encode_journal_header,
    encode_journal_line,
)
from mrtr_cassette.core.cassette.load import load
from mrtr_cassette.core.cassette.recorded import Cassette, RecordedExchange
from mrtr_cassette.core.drive.rerecording import recorded_over
from mrtr_cassette.core.record.assembly import assemble
from mrtr_cassette.core.record.merge import merged_cassette, sources_of

TEXTS = st.sampled_from(
    ["plain", f"key: {GITHUB}", "password: hunter22 é", "x <password:7>", ""]
)


def sha256(text: str) -> str:
    """Return what a server announces of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def recorded(texts: Sequence[str], order: Sequence[int]) -> list[RecordedExchange]:
    """Record reads of texts and of the list of their digests, in some order."""
    talk = Conversation(redacts=True)
    listed = [f"{number}.md {sha256(text)}" for number, text in enumerate(texts)]
    for number in order:
        if number == len(texts):
            talk.exchange(rpc("skills/list"), {"files": listed})
        else:
            request = rpc("resources/read", {"uri": f"{number}.md"})
            talk.exchange(request, {"contents": [{"text": texts[number]}]})

    # As they come back from the journal.
    found = [
        decode_journal_line(encode_journal_line(exchange), "one")
        for exchange in talk.exchanges
    ]
    return [exchange for exchange in found if isinstance(exchange, RecordedExchange)]


def assembled(
    exchanges: Sequence[RecordedExchange], earlier: Cassette | None = None
) -> Cassette:
    """Return the cassette of a recording, loaded."""
    numbered = {exchange.number or 0: exchange for exchange in exchanges}
    return load(dump(assemble(JOURNAL_HEADER, numbered, "test", earlier)), "c.json")


def assert_agree(cassette: Cassette) -> None:
    """Check that each text has the digest that the list has of it."""
    lists = []
    texts: dict[str, str] = {}
    for interaction in cassette.interactions:
        exchange = interaction.exchanges[-1]
        message = exchange.call.message
        result = exchange.rpc_members["result"]
        if "files" in result:
            lists.append(dict(line.split(" ") for line in result["files"]))
        elif message is not None and "contents" in result:
            texts[message.params["uri"]] = result["contents"][0]["text"]

    (listed,) = lists

    assert "hunter22" not in str(texts)
    for uri, text in texts.items():
        assert listed[uri] == sha256(text)


@given(st.lists(TEXTS, min_size=1, max_size=4), st.lists(TEXTS, max_size=2), st.data())
def test_each_announced_digest_is_that_of_the_text(
    texts: list[str], more: list[str], data: st.DataObject
) -> None:
    """Whatever is redacted, in any order, and if merged.

    It holds where the same server, with texts more and less, is recorded over the cassette, too.
    """

    def record(texts: list[str]) -> Cassette:
        order = data.draw(st.permutations(range(len(texts) + 1)))
        return assembled(recorded(texts, order))

    cassette = record(texts)
    again, _ = merged_cassette([*sources_of(cassette)], "test")
    over, _ = recorded_over(cassette, record([*texts[:2], *more]))

    assert_agree(cassette)
    assert_agree(again)
    assert_agree(over)


def test_digests_on_a_stream_of_many_calls_agree() -> None:
    """Each message of such a stream is written as it comes, with the digests that it brings."""
    text = f"key: {GITHUB}"
    talk = Conversation(redacts=True)
    observation = talk.observation(talk.request(get("/mcp", SESSION)))
    dues = [observation.response_started(200, STREAM_HEADERS)]
    for value in ({"files": [sha256(text)]}, {"contents": [{"text": text}]}):
        message = sse(answer(rpc("resources/read"), value))
        dues.append(observation.response_bytes(message, 1.0))

    journal = encode_journal_header(JOURNAL_HEADER)
    for due in dues:
        assert due is not None

        sealed = talk.recorder.sealer.seal(due.exchange, due.call).exchange
        journal += encode_journal_line(sealed, continues=due.continues_written)

    cassette = assembled([*decode_journal(journal, "one").exchanges.values()])
    (exchange,) = cassette.exchanges

    assert exchange.response is not None
    assert sha256(text).encode() not in exchange.response.body
    assert sha256("key: <github:1>").encode() in exchange.response.body


def test_no_other_digest_of_a_secret_is_kept() -> None:
    """The journal has digests of texts with secrets only where the server announced them."""
    secret_text = f"key: {GITHUB}"
    (unannounced,) = recorded([secret_text], [0])
    before, announced = recorded([secret_text], [0, 1])

    assert unannounced.digests == ()
    assert before.digests == ()
    assert [digest for digest, _ in announced.digests] == [sha256(secret_text)]
