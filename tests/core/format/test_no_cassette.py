"""Facts about files that are no cassette."""

from __future__ import annotations

import pytest

from mrtr_cassette.core.format.codec import decode_cassette
from mrtr_cassette.errors import CassetteError


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (
            b'{\n  "version": 1,\n<<<<<<< HEAD\n  "a": 1\n=======\n  "a": 2\n>>>>>>> theirs\n}\n',
            "f: line 3 is the mark of a merge conflict; take one side whole (git checkout",
        ),
        (
            b'{"journal":1,"upstream":"u"} 0\n[1] 0\n',
            "f: it is the journal of a recording, not a cassette; make the cassette of it with:",
        ),
        (b"interactions:\n- request: {}\n", "f: not JSON: "),
        (b'{"log": {"version": "1.2", "entries": []}}', "f: JSON, but no mrtr-cassette file"),
        (b'{"interactions": []}', "f: JSON, but no mrtr-cassette file"),
        (b"[]", "f: JSON, but no mrtr-cassette file"),
    ],
)
def test_file_that_is_no_cassette_is_refused_with_the_way_out(data: bytes, said: str) -> None:
    """Whoever names another file, or a damaged one, is told what to do."""
    with pytest.raises(CassetteError) as caught:
        decode_cassette(data, "f")
    assert str(caught.value).startswith(said)
