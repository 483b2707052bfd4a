from __future__ import annotations

from builders import cassette_of, loaded, post, retry, stream, tool
from messages import asks, text

from mrtr_cassette.core.exchange.recorded import TurnPlace
from mrtr_cassette.core.record.exposed import ExposedSecret, exposed_secrets

TOKEN = "ghp_" + "aB3dE5fG7h" * 3 + "123456"
CALL = tool("deploy", env="test")
ASK = asks("confirm")
SCRIPT = (
    (post(tool("login", password="correct-horse", note=TOKEN)), text(f"{TOKEN} {TOKEN}")),
    (CALL, ASK),
    (retry(CALL, {"confirm": {"action": "accept"}}), stream(tool(TOKEN))),
)


def test_secrets_are_found_where_they_stand() -> None:
    """Each rule that finds something is told once for each side of an exchange."""
    first, answer = TurnPlace(0), TurnPlace(1)
    found = list(exposed_secrets(loaded(cassette_of(*SCRIPT))))
    assert sorted(found[:2]) == [
        ExposedSecret(1, first, "request", "github"),
        ExposedSecret(1, first, "request", "password"),
    ]
    assert found[2:] == [
        ExposedSecret(1, first, "response", "github"),
        ExposedSecret(2, answer, "response", "github"),
    ]


def test_what_was_redacted_has_none() -> None:
    """A placeholder is no secret, and neither is a surrogate."""
    assert list(exposed_secrets(loaded(cassette_of(*SCRIPT, redacts=True)))) == []
