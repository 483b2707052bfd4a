"""Merging what several recorders saw: as one recorder would have seen it."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from builders import (
    JOURNAL_HEADER,
    JSON_HEADERS,
    Answer,
    Conversation,
    answer,
    assembled,
    cassette_of,
    conversation,
    encode_cassette,
    loaded,
    post,
    progress,
    retry,
    rpc,
    stream,
    tool,
    with_id,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from messages import Json, asks, text
from samples import sample
from tasking import created, get, update
from tasking import state as polled

from mrtr_cassette.core.cassette.dump import dump
from mrtr_cassette.core.cassette.load import load
from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    RecordedExchange,
    RecorderFacts,
)
from mrtr_cassette.core.cassette.sessions import opened_session
from mrtr_cassette.core.cassette.texts import (
    exchange_with_changed_texts,
    renumbered_exchange,
)
from mrtr_cassette.core.compare.conversations import cassette_comparison
from mrtr_cassette.core.protocol.calls import session_of
from mrtr_cassette.core.record.assembly import assemble
from mrtr_cassette.core.record.merge import Source, merged_cassette, sources_of
from mrtr_cassette.core.secrets.names import (
    is_journal_token,
    renumber_secrets,
    secrets_in,
    sha256_of,
)
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.errors import CassetteError

BEGAN_MS = 1_800_000_000_000.0
HEADER = replace(JOURNAL_HEADER, redaction=RedactionRules())
YES: Json = {"action": "accept", "content": {"ok": True}}
SECRET = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
SESSION = ("Mcp-Session-Id", "5e551011-aaaa-bbbb-cccc-0123456789ab")


def share(
    exchanges: Sequence[RecordedExchange],
    recorders: Mapping[int, int],
    skews: Mapping[int, float] | None = None,
) -> list[Source]:
    """Return what recorders would have seen of one recorder's exchanges.

    Args:
        exchanges: of one recorder.
        recorders: who sees an exchange, by its number.
        skews: by how much a recorder's clock is wrong, in milliseconds.
    """
    sources = []
    for name in sorted(set(recorders.values())):
        numbers = sorted(number for number, who in recorders.items() if who == name)
        counts = {number: at for at, number in enumerate(numbers, start=1)}
        seen = {}
        for exchange in exchanges:
            if exchange.number in counts:
                count = counts[exchange.number]
                seen[count] = _counted(exchange, count, numbers, f"recorder {name}")

        header = replace(
            HEADER,
            recorder=f"{name:032x}",
            wall_ms=BEGAN_MS + (skews or {}).get(name, 0.0),
        )
        sources.append(Source(f"{name}.journal", header, seen))

    return sources


def _counted(
    exchange: RecordedExchange, number: int, numbers: Sequence[int], key: str
) -> RecordedExchange:
    exchange = renumbered_exchange(
        exchange,
        exchange.recorded_by,
        number,
        lambda count, _: bisect_right(numbers, count),
    )
    # Each recorder has a key of its own.
    return exchange_with_changed_texts(
        exchange,
        lambda raw, _: renumber_secrets(
            raw, lambda _, token: sha256_of(f"{key} {token}")[:24]
        ),
    )


def published(sources: Sequence[Source]) -> bytes:
    """Return the cassette of a merge."""
    return dump(merged_cassette(sources, "test")[0])


def notes_of(sources: Sequence[Source]) -> tuple[str, ...]:
    """Return what to know of a merge."""
    return merged_cassette(sources, "test")[1]


def alone(exchanges: Sequence[RecordedExchange]) -> bytes:
    """Return the cassette of one recorder."""
    header = replace(HEADER, recorder="f" * 32, wall_ms=BEGAN_MS)
    by_number = {exchange.number or 0: exchange for exchange in exchanges}
    return dump(assemble(header, by_number, "test"))


def content(cassette: bytes) -> Json:
    """Return what two recordings of the same share."""
    tree = json.loads(cassette)
    del tree["recording"]
    return tree


def test_task_is_polled_through_another_recorder() -> None:
    """It is one interaction, whether the files are journals or cassettes."""
    task = "a-task-whose-id-is-long-enough"
    talk = conversation(
        (tool("book"), created(task)),
        (get(task), polled(task, "input_required", f"{task}:k")),
        (update(task, {f"{task}:k": YES}), {}),
        (get(task), polled(task, "completed", result=text("booked"))),
        (get("a-task-of-before-the-recordings"), polled("t")),
    )

    sources = share(talk.exchanges, {1: 1, 2: 2, 3: 1, 4: 2, 5: 2})
    whole = published(sources)

    assert (content(whole), notes_of(sources)) == (content(alone(talk.exchanges)), ())
    assert content(published([*source_of(whole), sources[1]])) == content(whole)


def is_same(cassette: bytes, expected: bytes) -> bool:
    """Tell whether two cassettes have the same interactions, in whatever order."""
    return cassette_comparison(load(cassette, "one"), load(expected, "other")).is_same


def test_all_facts_of_a_recorder_are_merged() -> None:
    """It began first, so the common time begins with it."""
    cassette = load(alone(TALK.exchanges), "c.json")
    recorder = sample(RecorderFacts)._replace(id=cassette.recorders[0].id, offset_ms=0)
    sources = sources_of(replace(cassette, recorders=(recorder,)))
    merged, _ = merged_cassette([*sources], "test")

    assert merged.recorders == (recorder,)


def source_of(cassette: bytes, name: str = "c.json") -> list[Source]:
    """Return a cassette as sources, as the shell reads it."""
    return [*sources_of(load(cassette, name))]


def book(client: str, **arguments: Json) -> bytes:
    """Return a call of one client."""
    return tool("book", client=client, **arguments)


def three_rounds(talk: Conversation, call: bytes, name: str) -> list[int]:
    """Have a call with two asks, and return its exchanges."""
    date_state = f"{name} asked for a date, and signed it 1"
    seat_state = f"{name} asked for a seat, and signed it 2"
    first = talk.request(call)
    talk.response(first, asks("date", state=date_state))
    talk._now_ms += 1
    second = talk.request(retry(call, {"date": YES}, state=date_state))
    talk.response(second, asks("seat", state=seat_state))
    third = talk.request(retry(call, {"seat": YES}, state=seat_state, number=3))
    talk.response(third, text("done"))

    return [first, second, third]


def pause(talk: Conversation, ms: float = 50) -> None:
    """Let time pass."""
    talk._now_ms += ms


def session(talk: Conversation) -> None:
    """Have a session of the 2025 era, in which the server pushes a question."""
    initialize = post(rpc("initialize"))
    talk.exchange(
        initialize, Answer((answer(initialize.body, {}),), (*JSON_HEADERS, SESSION))
    )

    call = tool("ask me")
    calling = talk.stream(post(with_id(call, 5), SESSION))
    question = rpc("elicitation/create", {"message": "Sure?"}, number=0)
    talk.event(calling, question)
    posting = talk.request(post(answer(question, YES), SESSION))
    talk.response(posting, Answer((), status=202))
    talk.event(calling, answer(with_id(call, 5), text("done")))
    talk.end(calling)


def begun(exchanges: Mapping[int, RecordedExchange]) -> dict[int, RecordedExchange]:
    """Return what a journal has that was copied while its streams went on."""
    copied = {}
    for number, exchange in exchanges.items():
        response = exchange.response
        if response is not None and response.is_event_stream:
            response = replace(response, pieces=response.pieces[:1])

        copied[number] = replace(exchange, response=response)

    return copied


def busy(random: Random, *, redacts: bool = False) -> Conversation:
    """Return a recording in which calls overlap, and follow each other."""
    talk = Conversation(redacts=redacts)
    for round_ in range(3):
        pause(talk)
        three_rounds(talk, book(f"client {round_}", token=SECRET), f"server {round_}")
        pause(talk)
        looks = []
        for place in range(3):
            look = with_id(tool("look", at=place), 10 + place)
            looks.append((talk.request(look), place))

        random.shuffle(looks)
        pause(talk)
        for number, place in looks:
            done = answer(tool("look", at=place), text(f"{place}"))
            talk.response(number, stream(progress(place), done))

        pause(talk)
        talk.exchange(tool("plain", at=round_), text("plain"))

    pause(talk)
    session(talk)
    return talk


def linking_calls(talk: Conversation, names: Sequence[int]) -> dict[int, int]:
    """Have calls that go back and forth between recorders, so that clocks can be compared."""
    recorders: dict[int, int] = {}
    for name, neighbour in pairwise(names):
        pause(talk)
        call = book("back and forth", one=name, token=SECRET)
        first, second, third = three_rounds(talk, call, f"server between {name}")
        recorders[first] = name
        recorders[second] = neighbour
        recorders[third] = name

    return recorders


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 4),
    skewed=st.booleans(),
    redacts=st.booleans(),
    spreads=st.booleans(),
)
def test_any_shares_of_recorders_merge_to_what_one_recorder_has(
    seed: int, count: int, *, skewed: bool, redacts: bool, spreads: bool
) -> None:
    """Whoever saw what, with whatever clock, in whatever order the files come.

    Calls that have nothing to do with each other stand in the order of the clocks. Only of a session that is spread over recorders a cassette doesn't know that it is one.
    """
    random = Random(seed)
    talk = busy(random, redacts=redacts)
    names = list(range(count))
    recorders = linking_calls(talk, names)
    for exchange in talk.exchanges:
        in_session = session_of(exchange.request) or opened_session(exchange.response)
        who = 0 if in_session and not spreads else random.choice(names)
        recorders.setdefault(exchange.number or 0, who)

    skews = {name: random.uniform(-1e8, 1e8) if skewed else 0.0 for name in names}
    sources = share(talk.exchanges, recorders, skews)
    expected = alone(talk.exchanges)

    cassette = published(sources)

    assert is_same(cassette, expected)

    shuffled = random.sample(sources, len(sources))

    assert published(shuffled) == cassette

    copies = [replace(source, name="copy") for source in sources]

    assert published([*sources, *copies]) == cassette

    cut = []
    for source in sources:
        begun_exchanges = begun(source.exchanges)
        cut.append(replace(source, name="0.cut", exchanges=begun_exchanges))

    assert published([*cut, *sources]) == cassette

    if spreads:
        return

    assert content(published([*sources, *source_of(cassette)])) == content(cassette)

    cassettes: list[Source] = []
    for source in sources:
        cassettes += source_of(published([source]), source.name)

    assert is_same(published(cassettes), expected)

    half = len(sources) // 2
    mixed = [*sources[:half], *cassettes[half:]]
    random.shuffle(mixed)

    assert is_same(published(mixed), expected)


def journals(talk: Conversation, *seen: int) -> list[Source]:
    """Return the journals of recorders that saw one exchange after the other."""
    recorders = dict(enumerate(seen, start=1))
    return share(talk.exchanges, recorders)


def test_asks_that_wait_for_each_other_hold_nobody_up() -> None:
    """A state that is issued again tells nothing: one retry is an orphan, the other has its ask."""
    talk = Conversation()
    for state in "ST":
        talk.exchange(retry(book("A"), {"ok": YES}, state=state), text("done"))

    for state in "TSTS":
        talk.exchange(book("A"), asks("ok", state=state))

    whole = published(journals(talk, 1, 2, 1, 2, 1, 2))

    interactions = load(whole, "c").interactions

    counts = [len(interaction.exchanges) for interaction in interactions]

    assert sorted(counts) == [1, 1, 1, 1, 2]


def test_what_is_missing_is_told() -> None:
    """A call whose beginning no file has, and a session without its opening."""
    talk = Conversation()
    three_rounds(talk, book("A"), "server")
    session(talk)
    _, two, three = journals(talk, 1, 2, 1, 1, 3, 3)

    session_, ask = notes_of([two, three])

    assert session_.startswith(
        "3.journal: 1 session began at another recorder, and no file tells"
    )
    assert ask == "2.journal: 1 answer to an ask that no file has"


def test_secrets_of_two_recorders_are_two_unless_a_call_shows_more() -> None:
    """Tokens of two keys tell nothing; the rounds of one call repeat its arguments."""
    talk = Conversation(redacts=True)
    for name in range(2):
        talk.exchange(tool("plain", at=name, token=SECRET), text("done"))

    apart = published(journals(talk, 1, 2))
    three_rounds(talk, book("A", token=SECRET), "server")
    together = published(journals(talk, 1, 2, 1, 2, 1))

    assert [apart.count(b":%d>" % number) for number in (1, 2)] == [1, 1]
    assert [together.count(b":%d>" % number) for number in (1, 2)] == [5, 0]
    assert content(together) == content(alone(talk.exchanges))


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"request_state": "verbatim"}, "with another request state than 2.journal"),
        ({"answers": "sealed"}, "with another sealing of answers than 2.journal"),
        ({"transport": "stdio"}, "with another transport than 2.journal"),
        (
            {"redaction": RedactionRules(keys=("pin",))},
            "with another redaction than 2.journal",
        ),
        ({"upstream": "http://localhost:8000/other"}, "another path is another server"),
    ],
)
def test_what_was_recorded_unlike_is_refused(
    header: dict[str, Any], message: str
) -> None:
    """One cassette can't be both; over pipes each has a client and a server of its own."""
    talk = Conversation()
    three_rounds(talk, book("A"), "server")
    first, second = journals(talk, 1, 2, 2)
    unlike = replace(second.header, wall_ms=2e12, **header)

    with pytest.raises(CassetteError, match=message):
        published([first, replace(second, header=unlike)])

    piped = [
        replace(source, header=replace(source.header, transport="stdio"))
        for source in (first, second)
    ]
    with pytest.raises(CassetteError, match="with another client and server"):
        published(piped)


def test_exchange_with_other_content_is_refused() -> None:
    """Nobody can tell which of two files is right."""
    talk = Conversation()
    three_rounds(talk, book("A"), "server")
    (journal,) = journals(talk, 1, 1, 1)
    edited = published([journal]).replace(b'"done"', b'"DONE"')
    tree = json.loads(edited)
    for facts in tree["recording"]["exchanges"]:
        del facts["sha256"]

    with pytest.raises(
        CassetteError, match=r'exchange 3 .* tools/call "book", is not as in 1.j'
    ):
        published([journal, *source_of(json.dumps(tree).encode())])


# What a cassette gives for a journal

CALL = tool("deploy")
SIGNED = "a state that the server signed"
TALK = conversation(
    (CALL, asks("ok", state=SIGNED)),
    (retry(CALL, {"ok": YES}, state=SIGNED), text("done")),
    (tool("watch"), stream(progress(1), answer(tool("watch"), text("seen")))),
)


def of(cassette: Cassette, path: str = "this file") -> list[RecordedExchange]:
    """Return the exchanges of one recorder."""
    (source,) = sources_of(replace(cassette, path=path))
    assert [exchange.number for exchange in source.exchanges.values()] == list(
        source.exchanges
    )
    return [source.exchanges[number] for number in sorted(source.exchanges)]


def all_text(exchange: RecordedExchange) -> bytes:
    """Return the bodies and headers of an exchange."""
    response = exchange.response
    assert response is not None
    return b" ".join(
        [
            exchange.request.target.encode(),
            repr((exchange.request.headers, response.headers)).encode(),
            exchange.request.body,
            response.body,
        ]
    )


def test_states_without_a_hash_get_one_of_this_file() -> None:
    """In a cassette that was written by hand; ask and answer have the same one."""
    tree = json.loads(encode_cassette(TALK.cassette()))
    tree["recording"] = {"recorded_at": "", "tool": "", "exchanges": []}
    cassette = load(json.dumps(tree).encode(), "f")

    ask, again, _ = of(cassette)

    assert ask.issued_sha256 == again.echoed_sha256 != sha256_of(SIGNED)
    assert str(ask.issued_sha256).encode() in all_text(again)

    elsewhere, *_ = of(cassette, "another file")

    assert elsewhere.issued_sha256 != ask.issued_sha256


def test_what_was_added_later_answers_the_earlier_ask() -> None:
    """It echoed the name of the state, and not the state."""
    earlier = cassette_of((CALL, asks("ok", state=SIGNED)))
    turn: Any = json.loads(encode_cassette(earlier))["interactions"][0][
        "elicitation_turns"
    ][0]
    surrogate = turn["ask"]["body"]["result"]["requestState"]
    later = conversation((retry(CALL, {"ok": YES}, state=surrogate), text("done")))

    ask, again = of(loaded(assembled(later.exchanges, earlier=earlier)))

    assert ask.issued_sha256 == again.echoed_sha256 == sha256_of(SIGNED)


def test_other_names_are_those_of_this_file() -> None:
    """Sessions and secrets, each the same wherever it stands."""
    talk = Conversation(redacts=True)
    talk.exchange(post(rpc("initialize")), Answer((b"{}",), (SESSION,)))
    talk.exchange(post(tool("x", token=SECRET), SESSION), text(SECRET))
    cassette = loaded(talk.cassette())
    recorded = b""
    for interaction in cassette.interactions:
        recorded += b"".join(map(all_text, interaction.unshared_exchanges))

    assert b"mrtr-session:1" in recorded
    assert b":1>" in recorded

    first, second = of(cassette)

    session_name = f"sha256:{sha256_of('this file mrtr-session:1')}".encode()

    assert b"mrtr-" not in all_text(first) + all_text(second)
    assert session_name in all_text(first)
    assert session_name in all_text(second)

    tokens = [secret.token for secret in secrets_in(all_text(second))]

    assert len(tokens) == 2
    assert all(map(is_journal_token, tokens))
