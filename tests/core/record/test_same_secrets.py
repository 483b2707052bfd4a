"""Tokens of several recorders: which of them are proven to be the same secret."""

from __future__ import annotations

from mrtr_cassette.core.record.same_secrets import SameSecrets


def token(digit: str) -> str:
    """Return what a journal has for a secret."""
    return digit * 24


def call(*digits: str) -> str:
    """Return the text of a call with some secrets in it."""
    return " ".join(f"argument <jwt:{token(digit)}>" for digit in digits)


def test_retry_repeats_the_secrets_of_its_call() -> None:
    """Its tokens are those of the call, place by place, and through any number of recorders."""
    secrets = SameSecrets()
    assert not secrets
    secrets.repeated(call("1", "2"), "A", call("3", "4"), "B")
    secrets.repeated(call("4"), "B", call("5"), "C")

    assert secrets
    assert [secrets.token("jwt", token(digit)) for digit in "135"] == [
        token("1"),
        token("1"),
        token("2"),
    ]
    assert secrets.token("jwt", token("9")) is None
    assert secrets.token("bearer", token("1")) is None


def test_two_secrets_of_one_recorder_never_become_one() -> None:
    """A retry that contradicts what is known repeats no call."""
    for first, second in ((("1", "2"), ("3", "3")), (("1", "1"), ("3", "4"))):
        secrets = SameSecrets()
        secrets.repeated(call(*first), "A", call(*second), "B")
        assert not secrets
    secrets.repeated(call("1"), "A", call("3"), "B")
    secrets.repeated(call("2"), "A", call("3"), "B")
    assert secrets.token("jwt", token("2")) is None


def test_other_calls_prove_nothing() -> None:
    """Nor does a text that only looks like a placeholder."""
    secrets = SameSecrets()
    secrets.repeated(call("1"), "A", call("2", "3"), "B")
    secrets.repeated("<jwt:mine> " + call("1"), "A", "<jwt:other> " + call("2"), "B")
    assert not secrets
