from __future__ import annotations

from builders import Answer, exchange, post, tool

from mrtr_cassette.core.exchange.recorded import RecordedExchange
from mrtr_cassette.core.record.secret_numbers import SecretNumbers

ONE, OTHER = "1" * 24, "2" * 24


def saying(*texts: str) -> RecordedExchange:
    """Return an exchange that has these texts in its URL, a header, its body, and its response."""
    url, header, body, *pieces = texts
    response = Answer(tuple(piece.encode() for piece in pieces), (("Mcp-Name", header),))
    request = post(tool(body), ("Mcp-Name", header), target=url)
    return exchange(request, response)


def said(recorded: RecordedExchange) -> list[str]:
    """Return the same of an exchange."""
    request, response = recorded.request, recorded.response
    assert response is not None
    return [
        request.target,
        request.header("mcp-name"),
        recorded.call.name,
        *(piece.raw.decode() for piece in response.pieces),
    ]


def test_secrets_are_numbered_within_their_rules_as_they_turn_up() -> None:
    """The same secret has the same number wherever it stands; each rule counts for itself."""
    numbers = SecretNumbers()
    first = saying(f"/<jwt:{OTHER}>", f"<jwt:{ONE}>", "deploy", f"<aws:{ONE}> <jwt:{OTHER}>", "b")
    second = saying("/", f"<jwt:{ONE}>", f"<jwt:{'3' * 24}>")

    assert numbers.are_in(first)
    assert said(numbers.put_into(first))[:3] == ["/<jwt:1>", "<jwt:2>", "deploy"]
    assert said(numbers.put_into(first))[3] in {"<aws:1> <jwt:1>", f"<aws:{ONE}> <jwt:1>"}
    assert said(numbers.put_into(second)) == ["/", "<jwt:2>", "<jwt:3>"]


def test_exchange_without_secrets_is_itself() -> None:
    """Somebody's text that looks like a placeholder is no secret of the journal."""
    numbers = SecretNumbers()
    plain = saying("/<jwt:7>", "<jwt:x>", "<nothing>")
    without_response = RecordedExchange(1, post(b"{}"), None, 0.0, 0.0, None, None)

    for each in (plain, without_response):
        assert not numbers.are_in(each)
        assert numbers.put_into(each) is each


def test_numbers_of_an_earlier_recording_are_left_out() -> None:
    """A recording that is added counts on after the numbers that are there."""
    numbers = SecretNumbers()
    numbers.add_earlier(saying("/<jwt:7>", "<jwt:4>", f"<jwt:{'9' * 12}> <jwt:somebody>"))

    assert said(numbers.put_into(saying(f"/<jwt:{ONE}>", "", "x"))) == ["/<jwt:8>", "", "x"]
    numbers.leave_out_those_in(b'{"a": "<jwt:12>"}')
    assert numbers.number("jwt", OTHER) == 13
