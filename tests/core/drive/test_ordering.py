"""Facts about lists whose order means nothing."""

from __future__ import annotations

from builders import converse, get, tool
from messages import Json, text

from mrtr_cassette.core.compare.changes import Change
from mrtr_cassette.core.drive.ordering import reordered_in, without_reordered
from mrtr_cassette.core.exchange.recorded import RecordedExchange


def exchange_of(result: Json) -> RecordedExchange:
    """Return an exchange with a result."""
    (exchange,) = converse((tool("a"), result))
    return exchange


def test_lists_with_the_same_items_are_found_around_places() -> None:
    """The outermost one, once; in JSON within a text too."""
    before = exchange_of({"a": [[1, 2], [3]], "b": [1], **text('{"c":[1,2]}')})
    after = exchange_of({"a": [[3], [1, 2]], "b": [2], **text('{"c":[2,1]}')})
    pointers = ["/a/0/0", "/a/1", "/b/0", "/content/0/text#json/c/0", "/none/x/0", "/#error/a"]
    assert reordered_in(before, after, pointers) == ["/a", "/content/0/text#json/c"]


def test_only_another_order_is_left_out() -> None:
    """With an item less, or where nothing says so, all changes stay."""
    before, same = exchange_of({"a": [1, 2], "b": 1}), exchange_of({"a": [2, 1], "b": 2})
    changes = [Change("text-changed", pointer, "1", "2") for pointer in ("/a/0", "/a/1", "/b")]
    assert without_reordered(changes, before, same, ["/a#order"]) == changes[2:]
    assert without_reordered(changes, before, same, ["/a", "/c#order"]) == changes
    other = exchange_of({"a": [2, 3], "b": 2})
    assert without_reordered(changes, before, other, ["/a#order"]) == changes
    broken, page = exchange_of(text("no JSON")), converse((get("/x"), b"page"))[0]
    for recorded, live in ((broken, broken), (page, page)):
        ignored = ["/content/0/text#json/c#order", "a#order", "/content/7/x#order"]
        assert without_reordered(changes, recorded, live, ignored) == changes
