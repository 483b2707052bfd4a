from __future__ import annotations

from builders import post, retry, tool
from messages import YES

from mrtr_cassette.core.drive.live_asks import LiveAsks
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.protocol.dialect import InputRequest, InputRequired

CALL = tool("deploy", env="prod")


def test_live_ask_without_state_is_answered_once() -> None:
    """Answers whose keys fit may be to what was asked live; a state tells that they are not."""
    live = LiveAsks()
    call = read_call(post(CALL))
    live.asked(call.key(), InputRequired("2026-07-28", {"a": InputRequest("form", "?")}, None))
    live.asked(call.key(), InputRequired("2026-07-28", {}, "state"))

    def answered(body: bytes) -> bool:
        return live.answered_by(read_call(post(body)))

    assert not answered(CALL)
    assert not answered(retry(CALL, {"z": YES}))
    assert not answered(retry(CALL, {"a": YES}, state="state"))
    assert not answered(retry(tool("other"), {"a": YES}))
    assert answered(retry(CALL, {"a": YES}))
    assert not answered(retry(CALL, {"a": YES}))
