from __future__ import annotations

import hashlib

from mrtr_cassette.core.secrets.sealed import (
    as_recorded,
    compared_sha256,
    occurrence_in,
    reveal,
    reveal_in_json,
    reveal_text,
    sealed_hash,
    session_surrogate,
    sha256_of,
    state_surrogate,
)


def test_hash_is_that_of_the_text() -> None:
    """A state is hashed as UTF-8, lone surrogates included."""
    assert sha256_of("é") == hashlib.sha256("é".encode()).hexdigest()
    assert len(sha256_of("\ud800")) == 64
    assert sealed_hash("é") == f"sha256:{sha256_of('é')}"


def test_what_a_client_sends_is_sealed_as_it_was_recorded() -> None:
    """A surrogate or a hash stays, and any other state becomes its hash; the hashes compare."""
    surrogate = state_surrogate(sha256_of("call"), 1, 2)

    assert as_recorded(surrogate) == surrogate
    assert as_recorded(sealed_hash("abc")) == sealed_hash("abc") == as_recorded("abc")
    assert as_recorded(f"{surrogate}x") == sealed_hash(f"{surrogate}x")
    assert compared_sha256("abc") == compared_sha256(sealed_hash("abc")) == sha256_of("abc")


def test_sealed_hash_is_replaced_by_its_surrogate() -> None:
    """Sealed hashes with a surrogate are replaced, and others stay."""
    known, other = sealed_hash("known"), sealed_hash("other")
    surrogates = {sha256_of("known"): "S1"}

    assert reveal(f"<{known}|{other}>".encode(), surrogates.get) == f"<S1|{other}>".encode()
    assert reveal_text(f"<{known}|{other}>", surrogates.get) == f"<S1|{other}>"
    in_url = known.replace(":", "%3A")
    assert reveal_text(f"?s={in_url}", {sha256_of("known"): "S:1"}.get) == "?s=S%3A1"


def test_surrogate_tells_call_occurrence_and_turn() -> None:
    """Another place in a conversation has another surrogate, which tells its occurrence."""
    call, other = sha256_of("call"), sha256_of("other")
    places = [(call, 1, 1), (other, 1, 1), (call, 12, 1), (call, 1, 2), (call, 1, 1)]
    surrogates = [state_surrogate(*place) for place in places]

    assert len({*surrogates}) == 4
    assert [occurrence_in(each) for each in surrogates] == [1, 1, 12, 1, 1]
    assert occurrence_in(surrogates[0] + "x") is occurrence_in(sealed_hash("call")) is None
    assert session_surrogate(1) != session_surrogate(2)


def test_recorded_states_stand_in_json_as_json() -> None:
    """A state may be any text, such as JSON with quotes."""
    raw = b'{"state":"sha256:%b","url":"?s=sha256:%b"}' % (b"a" * 64, b"b" * 64)
    assert reveal_in_json(raw, {"a" * 64: '{"n":1}'}) == (
        b'{"state":"{\\"n\\":1}","url":"?s=sha256:%b"}' % (b"b" * 64)
    )
