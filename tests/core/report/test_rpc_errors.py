"""Facts about the JSON-RPC errors of the proxy itself."""

from __future__ import annotations

import json

import pytest
from builders import get, notification, post, rpc

from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.report.rpc_errors import UPSTREAM_CODE, error_body, upstream_error_body


def test_error_of_an_upstream_has_the_callers_id() -> None:
    """An upstream that gives no response is a JSON-RPC error to whoever called."""
    error = {"code": UPSTREAM_CODE, "message": "refused"}

    assert json.loads(upstream_error_body(post(rpc("x", number="i")), "refused")) == {
        "jsonrpc": "2.0",
        "id": "i",
        "error": error,
    }
    for other in (post(notification("n")), post(b"junk"), get("/")):
        assert json.loads(upstream_error_body(other, "refused"))["id"] is None


@pytest.mark.parametrize("identity", [b"7", b'"a"', b"1.0e3"])
def test_error_has_the_id_as_the_client_spelled_it(identity: bytes) -> None:
    """The id of the request is copied, not written anew."""
    request = post(b'{"jsonrpc":"2.0","id": %s ,"method":"x"}' % identity)

    body = error_body(read_call(request), -32000, "no", {"a": 1})

    assert body == (
        b'{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"no","data":{"a":1}}}'
        % identity
    )
