from __future__ import annotations

import pytest
from builders import STREAM_HEADERS, Answer, exchange, rpc, sse, tool

from mrtr_cassette.core.exchange.recorded import RecordedExchange
from mrtr_cassette.core.record.elicitation_ids import ElicitationIds

CALL = tool("deploy")
FIRST, SECOND = "68bd7e60-d327-4838-ae34-59eb64f86eaa", "fa5cff16-f68a-4503-80a9-e47cbb1cff41"


def asking(*ids: str, number: int = 1) -> RecordedExchange:
    """Return a call on whose stream the server asks for a visit of URLs."""
    events = [
        sse(rpc("elicitation/create", {"url": f"https://h/{each}?a", "elicitationId": each}))
        for each in ids
    ]
    return exchange(CALL, Answer(tuple(events), STREAM_HEADERS), number=number)


def body(recorded: RecordedExchange) -> bytes:
    """Return the body of a response."""
    assert recorded.response is not None
    return recorded.response.body


def named(ids: ElicitationIds, recorded: RecordedExchange, session: str = "s") -> bytes:
    """Return the body of a response in the session of number 7, with the names in it."""
    ids.add(1, recorded)
    ids.name(1, session, 7)
    return body(ids.put_into(recorded, session))


def test_ids_are_named_in_their_order_wherever_they_are_repeated() -> None:
    """Their URL has the name too, and an id that comes again has the same one."""
    ids = ElicitationIds()

    assert named(ids, asking(FIRST, SECOND, FIRST)) == body(
        asking("mrtr-elicitation:7:1", "mrtr-elicitation:7:2", "mrtr-elicitation:7:1")
    )
    told = rpc("notifications/elicitation/complete", {"elicitationId": SECOND})
    later = exchange(told, {}, number=2)
    assert b"mrtr-elicitation:7:2" in ids.put_into(later, "s").request.body
    never = RecordedExchange(3, later.request, None, 1.0, 2.0, None, None)
    assert ids.put_into(never, "s").response is None


@pytest.mark.parametrize("word", ["confirm", "confirm-the-payment", "x" * 201 + "1", ""])
def test_words_stay(word: str) -> None:
    """What nobody made up is the same in every recording."""
    assert named(ElicitationIds(), asking(word)) == body(asking(word))


def test_names_are_known_in_their_session_only() -> None:
    """Two sessions never touch each other."""
    ids = ElicitationIds()
    named(ids, asking(FIRST))

    assert body(ids.put_into(asking(FIRST), "other")) == body(asking(FIRST))


def test_names_go_on_from_an_earlier_recording() -> None:
    """What was recorded before keeps its name, and nothing new gets it."""
    ids = ElicitationIds()
    ids.add_earlier(asking("mrtr-elicitation:7:2", "mrtr-elicitation:9:4"))
    ids.add_earlier(RecordedExchange(1, asking().request, None, 1.0, 2.0, None, None))

    assert named(ids, asking(FIRST)) == body(asking("mrtr-elicitation:7:3"))
