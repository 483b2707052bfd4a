from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, unquote

import pytest
from builders import (
    JSON_HEADERS,
    STREAM_HEADERS,
    Answer,
    Conversation,
    Step,
    answer,
    cassette_of,
    changed,
    get,
    loaded,
    members,
    missed,
    notification,
    play,
    player_of,
    post,
    progress,
    refusal,
    result_of,
    retry,
    rpc,
    said,
    sent_now,
    sse,
    state_in,
    stream,
    tool,
    with_id,
    with_meta,
    with_token,
)
from messages import CAPABILITIES_KEY, NO, VERSION_KEY, YES, asks, form, text

from mrtr_cassette.core.format.model import RedactionModel
from mrtr_cassette.core.protocol.calls import Call
from mrtr_cassette.core.replay.delivery import Ending, Refusal
from mrtr_cassette.core.replay.diagnosis import Reason
from mrtr_cassette.core.replay.harmless import Harmless
from mrtr_cassette.core.replay.player import Play, Player
from mrtr_cassette.core.secrets.answers import SEALED_ANSWER
from mrtr_cassette.core.secrets.surrogates import sealed_hash
from mrtr_cassette.core.wire.http import End, Request, header_value
from mrtr_cassette.core.wire.jsonbytes import canonical

CALL = tool("deploy", env="prod")
STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"
TWO_ROUNDS: tuple[Step, ...] = (
    (CALL, asks("a")),
    (retry(CALL, {"a": YES}), asks("b", state=STATE)),
    (retry(CALL, {"b": YES}, state=STATE), text("done")),
)


def test_conversation_plays_from_the_first_request_to_the_last_response() -> None:
    """Each turn comes back with the caller's id, and the surrogate leads to the next."""
    player = player_of(*TWO_ROUNDS)

    assert result_of(play(player, with_id(CALL, "x"))) == asks("a")
    state = state_in(play(player, retry(CALL, {"a": YES}, number="y")))
    final = play(player, retry(CALL, {"b": YES}, state=state, number="z"))
    assert state != STATE
    assert said(final) == "done"
    assert b'"id":"z"' in final
    assert (player.plays, player.misses, player.unplayed) == (3, [], [])


def test_raw_state_of_the_recording_is_known_by_its_hash() -> None:
    """A literal in a test's code plays, whatever the surrogate is."""
    player = player_of(*TWO_ROUNDS)
    play(player, CALL)
    play(player, retry(CALL, {"a": YES}))

    assert said(play(player, retry(CALL, {"b": YES}, state=STATE))) == "done"


def test_verbatim_cassette_plays_with_its_raw_states() -> None:
    """Without sealing the ask comes back with the very state that the server issued."""
    player = player_of(
        (CALL, asks("a", state=STATE)),
        (retry(CALL, {"a": YES}, state=STATE), text("done")),
        seals=False,
    )

    assert state_in(play(player, CALL)) == STATE
    assert said(play(player, retry(CALL, {"a": YES}, state=STATE))) == "done"


def test_branch_is_chosen_by_the_answers() -> None:
    """An ask that has two recorded answers gives each of them its own response."""
    script = (
        (CALL, asks("a", state=STATE)),
        (retry(CALL, {"a": NO}, state=STATE), text("left")),
        (retry(CALL, {"a": YES}, state=STATE), text("done")),
    )
    for answers in itertools.permutations([(YES, "done"), (NO, "left")]):
        player = player_of(*script)
        state = state_in(play(player, CALL))
        for given, words in answers:
            assert said(play(player, retry(CALL, {"a": given}, state=state))) == words
        assert player.unplayed == []


def test_tampered_state_gets_the_recorded_refusal() -> None:
    """What a client adds to a state it adds on replay too, and is refused as recorded."""
    player = player_of(
        (CALL, asks("a", state=STATE)),
        (retry(CALL, {"a": YES}, state=STATE + "x"), refusal(CALL, words="tampered")),
    )
    state = state_in(play(player, CALL))

    assert b"tampered" in play(player, retry(CALL, {"a": YES}, state=state + "x"))


@pytest.mark.parametrize("other", [tool("deploy", env="test"), tool("other")])
def test_state_on_another_call_gets_the_recorded_refusal(other: bytes) -> None:
    """A state that a client used for another call is refused on replay as it was recorded."""
    player = player_of(
        (CALL, asks("a", state=STATE)),
        (retry(other, {"a": YES}, state=STATE), refusal(other, words="bound to another call")),
    )
    state = state_in(play(player, CALL))

    assert b"bound to another call" in play(player, retry(other, {"a": YES}, state=state))


@pytest.mark.parametrize("state", [5, True, {"s": 1}])
def test_state_that_is_no_string_gets_the_recorded_refusal(state: Any) -> None:
    """A malformed state plays as recorded, and its look-alike doesn't."""
    player = player_of((retry(CALL, {"a": YES}, state=state), refusal(CALL)))

    missed(player, retry(CALL, {"a": YES}, state=str(state)))
    assert b"invalid state" in play(player, retry(CALL, {"a": YES}, state=state))


def test_answer_to_an_equal_ask_plays() -> None:
    """Of equal asks without state any may be the one that was played, as nothing tells them apart."""
    player = player_of(
        (CALL, asks("a")),
        (retry(CALL, {"a": NO}), text("left")),
        (CALL, asks("a")),
        (retry(CALL, {"a": YES}), text("done")),
    )
    play(player, CALL)

    assert said(play(player, retry(CALL, {"a": YES}))) == "done"
    play(player, CALL)
    assert said(play(player, retry(CALL, {"a": NO}))) == "left"
    assert player.unplayed == []


@pytest.mark.parametrize(
    "other",
    [
        asks("a", "b"),
        {"resultType": "input_required", "inputRequests": {"a": form("Really?")}},
        {
            "resultType": "input_required",
            "inputRequests": {"a": {"method": "elicitation/create", "params": {"mode": "url"}}},
        },
        {
            "resultType": "input_required",
            "inputRequests": {
                "a": {
                    "method": "elicitation/create",
                    "params": {"mode": "form", "message": "a?", "requestedSchema": {"x": 1}},
                }
            },
        },
        asks("a", state=STATE),
    ],
    ids=["more", "message", "mode", "schema", "state"],
)
def test_answer_to_another_ask_does_not_play(other: Any) -> None:
    """An ask that differs in anything is not the one that a recorded answer belongs to."""
    state = other.get("requestState")
    player = player_of(
        (CALL, asks("a")),
        (retry(CALL, {"a": NO}), text("left")),
        (CALL, other),
        (retry(CALL, {"a": YES}, state=state), text("done")),
    )
    play(player, CALL)

    miss = missed(player, retry(CALL, {"a": YES}, state=state))

    assert miss.reason in {Reason.OUT_OF_ORDER, Reason.ANSWERS_DIFFER}


FULL = with_meta(CALL, **{"progressToken": 1, CAPABILITIES_KEY: {"roots": {}}, VERSION_KEY: "v"})


@pytest.mark.parametrize(
    "other",
    [
        post(CALL),
        post(with_meta(CALL, **{"progressToken": 1, VERSION_KEY: "v"})),
        post(FULL.replace(b'"v"', b'"w"')),
        post(FULL, ("Mcp-Session-Id", "s")),
        post(FULL, ("Accept", "text/event-stream")),
        post(FULL, ("Mcp-Param-Region", "eu")),
    ],
)
def test_most_like_request_is_played(other: Request) -> None:
    """What a server may answer differently by breaks the tie between equal calls."""
    for script in (
        ((FULL, text("full")), (other, text("other"))),
        ((other, text("other")), (FULL, text("full"))),
    ):
        player = player_of(*script)
        assert said(play(player, FULL)) == "full"
        assert said(play(player, other)) == "other"


def test_weightier_trait_decides() -> None:
    """Where no recorded request is exactly like the caller's, the weightiest trait counts."""
    streaming = post(with_token(CALL, 1), ("Accept", "x"))
    plain = post(CALL, ("Accept", "y"))
    player = player_of((plain, text("plain")), (streaming, text("streaming")))

    assert said(play(player, post(with_token(CALL, 2), ("Accept", "y")))) == "streaming"


def test_less_like_request_is_no_substitute() -> None:
    """When the best are used up, the refusal of the same body with other headers is not played."""
    player = player_of(
        (post(CALL, ("Mcp-Name", "deploy")), text("done")),
        (post(CALL, ("Mcp-Name", "x")), refusal(CALL)),
    )
    play(player, post(CALL, ("Mcp-Name", "deploy")))

    assert missed(player, post(CALL, ("Mcp-Name", "deploy"))).reason is Reason.ALREADY_PLAYED


def test_plays_are_counted() -> None:
    """Each exchange knows how often it was played, and the replay how many plays there were."""
    player = player_of((rpc("tools/list"), text("x")), (CALL, text("y")))
    for _ in range(3):
        play(player, rpc("tools/list"))

    assert [each.played for own in player.interactions for each in own] == [3, 0]
    assert player.plays == 3


def test_request_that_got_no_response_plays_none() -> None:
    """A recorded request without response is a hit without reply."""
    player = player_of((CALL, Answer((), status=0, end=End.OPEN)))
    decision = player.request_received(post(CALL))

    assert isinstance(decision, Play)
    assert decision.delivery is None
    assert player.unplayed == []


def test_unplayed_interactions_are_counted() -> None:
    """An interaction counts as played when all of it was."""
    player = player_of(
        (CALL, asks("a")), (retry(CALL, {"a": YES}), text("x")), (tool("other"), text("y"))
    )
    assert player.unplayed == [1, 2]
    play(player, tool("other"))
    assert player.unplayed == [1]
    play(player, CALL)
    assert player.unplayed == [1]
    play(player, retry(CALL, {"a": YES}))
    assert player.unplayed == []


def test_replay_keeps_the_rhythm_where_asked() -> None:
    """A paced replay has a part for each event; else a stream is one part."""
    script = ((CALL, stream(progress(1), progress(2))),)

    def parts(*, paced: bool) -> int:
        decision = player_of(*script, paced=paced).request_received(post(CALL))
        assert isinstance(decision, Play)
        assert decision.delivery is not None
        return len(decision.delivery.reply.parts)

    assert (parts(paced=False), parts(paced=True)) == (1, 2)


def test_each_play_is_filled_with_its_own_callers_values() -> None:
    """A reply that is played twice has each caller's own id and token."""
    request = with_token(rpc("resources/read", {"uri": "u"}), "t")
    player = player_of(
        (request, stream(progress("t"), sse_body := b'{"jsonrpc":"2.0","id":1,"result":{}}'))
    )

    for number, token in ((5, "x"), ("six", 6)):
        asked = with_token(with_id(request, number), token)
        assert play(player, asked) == sse(progress(token), with_id(sse_body, number))


def test_arrival_of_other_traffic_counts_too() -> None:
    """GET, DELETE and opaque bodies play by method, path and body."""
    player = player_of(
        (get("/a"), b"a"),
        (get("/a?x"), b"ax"),
        (b"[1]", b"batch"),
        (Request("DELETE", "/a", (), b""), b"gone"),
    )

    assert play(player, Request("DELETE", "/a", (), b"")) == b"gone"
    assert play(player, get("/a?x")) == b"ax"
    assert play(player, get("/a")) == b"a"
    assert play(player, b"[1.0]") == b"batch"
    assert missed(player, b"[2]").reason is Reason.ARGUMENTS_DIFFER


def test_cassette_without_its_recording_block_plays() -> None:
    """Without timings and hashes a conversation plays in the order of the file."""
    whole = cassette_of(*TWO_ROUNDS, (CALL, text("again")))
    bare = whole.model_copy(
        update={"recording": whole.recording.model_copy(update={"exchanges": []})}
    )
    player = Player(loaded(bare, "f"))

    play(player, CALL)
    state = state_in(play(player, retry(CALL, {"a": YES})))
    assert said(play(player, retry(CALL, {"b": YES}, state=state))) == "done"
    assert said(play(player, CALL)) == "again"


def test_cassette_can_be_played_many_times() -> None:
    """What one replay has played is nothing to another of the same cassette."""
    cassette = cassette_of((CALL, text("done")))

    for _ in range(2):
        assert said(play(Player(loaded(cassette, "f")), CALL)) == "done"


@pytest.mark.parametrize(
    "odd",
    [
        b'[{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"requestState":"%s"}}]',
        b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"requestState":"%s",}}',
        b'{"id":2,"method":"tools/call","params":{"name":"deploy","requestState":"%s"}}',
        b'{"jsonrpc":"2.0","id":2,"method":"m","params":{"text":"{\\"requestState\\": \\"%s\\"}"}}',
    ],
)
@pytest.mark.parametrize("was_issued", [True, False])
def test_state_in_what_is_no_retry_plays(odd: bytes, was_issued: bool) -> None:  # noqa: FBT001
    """A state in a batch or an unreadable body is matched, whether the cassette issued it or not."""
    script: list[Step] = [(odd % STATE.encode(), b"seen")]
    if was_issued:
        script.insert(0, (CALL, asks("ok", state=STATE)))
    player = player_of(*script)
    sent = state_in(play(player, CALL)) if was_issued else STATE

    missed(player, odd % b"another")
    assert play(player, odd % sent.encode()) == b"seen"
    assert player.unplayed == []


def test_states_of_a_batch_play() -> None:
    """A client that sends batches gets sealed states, and finds what was recorded for them."""
    state = "another-state-0123456789-abc"
    batch = b'[{"jsonrpc":"2.0","id":1,"result":{"requestState":"%s"}},{"jsonrpc":"2.0","id":2,"result":{"requestState":"%s"}}]'
    raw = batch % (STATE.encode(), state.encode())
    player = player_of((b"[1]", raw), (raw, b"done"))

    first = play(player, b"[1]")

    assert STATE.encode() not in first
    assert state.encode() not in first
    assert play(player, first) == b"done"


def test_url_that_repeats_a_state_plays() -> None:
    """A client that opens the URL that it was given on replay finds what was recorded."""
    state = "eyJzdGVwIjoxfQ/c2lnbmF0dXJl+="
    asked = asks("k", state=state)
    asked["inputRequests"]["k"]["params"]["url"] = f"/confirm?state={quote(state, safe='')}"
    player = player_of((CALL, asked), (get(f"/confirm?state={quote(state, safe='')}"), b"thanks"))

    result = result_of(play(player, CALL))
    url = result["inputRequests"]["k"]["params"]["url"]

    assert unquote(url) == f"/confirm?state={result['requestState']}"
    assert play(player, get(url)) == b"thanks"


# Secrets and sealed answers


@pytest.mark.parametrize(("recorded", "received"), [("87654321", 12345678), (12345678, "87654321")])
def test_secret_number_and_secret_text_are_different_questions(
    recorded: Any, received: Any
) -> None:
    """What stands for a secret keeps its type of JSON, and any other secret of the type plays."""
    say = tool("open", user="ada", pin=recorded)
    player = player_of((say, text("open")), redacts=True)

    assert missed(player, tool("open", user="ada", pin=received)).reason is Reason.ARGUMENTS_DIFFER
    other = type(recorded)(int(recorded) + 1)
    assert said(play(player, tool("open", user="ada", pin=other))) == "open"


def test_cassette_with_placeholders_plays_to_the_real_secrets() -> None:
    """A client that sends its secret again finds what was recorded for it."""
    login = tool("login", user="ada", password="correct-horse")
    player = player_of((login, text("welcome")), (tool("logout"), text("bye")), redacts=True)

    assert said(play(player, tool("login", user="ada", password="another-horse"))) == "welcome"
    assert missed(player, login).reason is Reason.ALREADY_PLAYED


@pytest.mark.parametrize(
    "other",
    [
        tool("login", user="eve", password="correct-horse"),
        tool("login", user="ada", password=""),
        tool("login", user="ada", password=["correct-horse"]),
        tool("login", user="correct-horse", password="ada"),
        tool("login", user="ada"),
    ],
)
def test_what_is_no_secret_counts_beside_one(other: bytes) -> None:
    """Everything but which secret it is counts as before."""
    player = player_of(
        (tool("login", user="ada", password="correct-horse"), text("welcome")), redacts=True
    )

    miss = missed(player, other)

    assert miss.reason is Reason.ARGUMENTS_DIFFER
    assert "correct-horse" not in str(miss.differences) or b'user":"correct' in other


TOKEN = "made-up-0123456789"
ISSUING: Step = (tool("login"), {"resultType": "complete", "access_token": TOKEN})


@pytest.mark.parametrize(
    "using",
    [
        lambda token: tool("use", api_key=token),
        lambda token: tool("use", header=f"Authorization: Bearer {token}"),
        lambda token: get(f"/files?password={quote(token)}"),
        lambda token: retry(CALL, {"a": {"action": "accept", "content": {"api_key": token}}}),
    ],
)
def test_secret_that_the_cassette_gave_plays_under_another_name(
    using: Callable[[str], bytes | Request],
) -> None:
    """A client that got a placeholder finds what was recorded for that secret, whatever its rule."""
    script: list[Step] = [ISSUING, (CALL, asks("a")), (using(TOKEN), b"used")]
    player = player_of(*script, redacts=True)
    token = result_of(play(player, tool("login")))["access_token"]
    play(player, CALL)

    assert token == "<token:1>"
    assert play(player, using(token)) == b"used"


def test_secret_of_another_kind_is_another_argument() -> None:
    """What a client knows by itself is told apart by its rule, and so is a placeholder, if it can be."""
    github = "ghp_" + "0123456789abcdefghijABCDEFGHIJ012345"
    script: list[Step] = [
        ISSUING,
        (tool("look"), text(github)),
        (tool("use", api_key=TOKEN), text("by name")),
        (tool("use", api_key=github), text("by shape")),
        (tool("use", other=github), text("by shape only")),
    ]
    player = player_of(*script, redacts=True)
    play(player, tool("login"))

    missed(player, tool("use", api_key="<github:1>"))
    play(player, tool("look"))
    missed(player, tool("use", other="sk-ant-" + "0123456789abcdefghijABCDEFGHIJ012345"))
    assert said(play(player, tool("use", api_key="<github:1>"))) == "by shape"
    assert said(play(player, tool("use", api_key="<token:1>"))) == "by name"
    assert said(play(player, tool("use", other="<token:1>"))) == "by shape only"


def test_secret_that_was_recorded_as_it_is_plays() -> None:
    """A request from before a rule existed, as in a cassette that was added to, is found as well."""
    login, other = tool("login", password="correct-horse"), tool("login", door="0000")
    cassette = cassette_of((login, text("one")), (other, text("two")), redacts=True)
    rules = RedactionModel(patterns=[], keys=["door"], disabled=[])
    player = Player(loaded(cassette.model_copy(update={"redaction": rules}), "f"))

    assert said(play(player, other)) == "two"
    assert said(play(player, login)) == "one"


def test_caller_gets_its_own_id_whatever_it_looks_like() -> None:
    """Ids and tokens are never redacted, on neither side."""
    request = with_token(with_id(tool("login", password="correct-horse"), "x"), "y")
    script: Step = (request, stream(progress("y"), b'{"jsonrpc":"2.0","id":"x","result":{}}'))
    secret = "ghp_" + "0123456789abcdefghijABCDEFGHIJ012345"

    got = play(player_of(script, redacts=True), with_token(with_id(request, secret), secret))

    assert got.count(secret.encode()) == 2


def test_text_for_the_terminal_is_redacted() -> None:
    """A replay shows no secret that a recording hides, whether the cassette has rules or none."""
    words = "password=correct-horse"

    assert "correct" not in player_of((CALL, text("x")), redacts=True).redacted(words)
    assert "correct" not in player_of((CALL, text("x"))).redacted(words)


def test_sealed_answers_choose_the_branch() -> None:
    """Answers of which only hashes are kept are known by them, and others are misses."""

    def pin(number: float) -> Any:
        return {"pin": {"action": "accept", "content": {"pin": number}}}

    player = player_of(
        (CALL, asks("pin", state=STATE)),
        (retry(CALL, pin(1), state=STATE), text("one")),
        (retry(CALL, pin(2), state=STATE), text("two")),
        seals_answers=True,
    )
    state = state_in(play(player, CALL))

    miss = missed(player, retry(CALL, pin(3), state=state))
    assert miss.reason is Reason.ANSWERS_DIFFER
    assert [one.pointer for one in miss.differences] == ["/inputResponses/pin/content"]
    assert said(play(player, retry(CALL, pin(2.0), state=state))) == "two"
    assert said(play(player, retry(CALL, pin(1), state=state))) == "one"


@pytest.mark.parametrize(
    "answer_of",
    [
        b'{"jsonrpc":"2.0","id":"pushed","result":{"action":"accept","content":{"pin":%d}}}',
        b'[{"jsonrpc":"2.0","id":"pushed","result":{"action":"accept","content":{"pin":%d}}}]',
        retry(CALL, "pin %d", state=STATE),
        b'{"jsonrpc":"2.0","id":"pushed","result":{"content":{"pin":%d},}}',
    ],
)
def test_sealed_answers_of_any_form_play(answer_of: bytes) -> None:
    """The same answer is found by its hash, whatever carries it, and another one is a miss."""
    recorded = answer_of % 1234
    cassette = cassette_of((recorded, Answer((), status=202)), redacts=True, seals_answers=True)
    player = Player(loaded(cassette, "f"))

    assert "1234" not in str(members(cassette))
    missed(player, answer_of % 4321)
    assert play(player, recorded) == b""


# What the replay gave


def test_a_hash_that_the_replay_gave_counts() -> None:
    """A state that no ask issued is a hash on replay, and the client may send that."""
    shown: Step = (tool("peek"), {"resultType": "complete", "seen": {"requestState": STATE}})
    player = player_of(shown, (retry(tool("go"), {"a": 1}, state=STATE), text("gone")))

    missed(player, retry(tool("go"), {"a": 1}, state=sealed_hash(STATE)))
    given = result_of(play(player, tool("peek")))["seen"]["requestState"]
    assert given == sealed_hash(STATE)
    assert said(play(player, retry(tool("go"), {"a": 1}, state=given))) == "gone"


def test_a_sealed_answer_that_the_replay_gave_counts() -> None:
    """A client that repeats what it was given sends what was recorded."""
    sealed = f"mrtr-answer:{'ab' * 32}"
    script: list[Step] = [
        (tool("peek"), text(sealed)),
        (tool("go"), asks("a")),
        (retry(tool("go"), {"a": sealed}), text("gone")),
    ]
    player = player_of(*script, seals_answers=True)
    play(player, tool("go"))

    missed(player, retry(tool("go"), {"a": sealed}))
    play(player, tool("peek"))
    assert said(play(player, retry(tool("go"), {"a": sealed}))) == "gone"


def test_a_sealed_body_counts_only_where_it_was_given() -> None:
    """A body that nobody can read is kept as one hash, which is no body of a client's."""
    body = b'{"jsonrpc":"2.0","id":"pushed","result":{"pin":1234,}}'
    cassette = loaded(cassette_of((body, Answer((), status=202)), seals_answers=True))
    recorded = cassette.interactions[0].exchanges[0].request.body
    assert SEALED_ANSWER.fullmatch(recorded.decode())
    player = Player(cassette)

    missed(player, recorded)
    play(player, post(body))


def test_a_verbatim_state_is_not_its_hash() -> None:
    """Where states are kept, one that looks like a hash is a state like any other."""
    for recorded, other in ((STATE, sealed_hash(STATE)), (sealed_hash(STATE), STATE)):
        go = tool("go")
        script: list[Step] = [(go, asks("a", state=recorded))]
        script.append((retry(go, {"a": 1}, state=recorded), text("gone")))
        player = player_of(*script, seals=False)
        play(player, go)

        missed(player, retry(go, {"a": 1}, state=other))
        assert said(play(player, retry(go, {"a": 1}, state=recorded))) == "gone"


# Traits and headers


@pytest.mark.parametrize(("member", "empty"), [("arguments", {}), ("name", "")])
def test_absent_equals_empty_only_where_not_both_were_recorded(member: str, empty: Any) -> None:
    """If both spellings were recorded each gets its own answer; if one was, both get that."""
    params = {"name": "x", "arguments": {"a": 1}}
    absent = rpc("tools/call", {key: params[key] for key in params if key != member})
    present = changed(absent, "params", member, to=empty)
    player = player_of((absent, text("absent")), (present, text("present")))
    assert said(play(player, present)) == "present"
    assert missed(player, present).reason is Reason.ALREADY_PLAYED
    assert said(play(player, absent)) == "absent"

    assert said(play(player_of((absent, text("absent"))), present)) == "absent"
    assert said(play(player_of((present, text("present"))), absent)) == "present"


def test_initialize_of_another_client_gets_the_recorded_answer() -> None:
    """The nearest in capabilities and version is played, whoever the client is."""

    def initialize(version: str, name: str = "recorded", **capabilities: Any) -> bytes:
        return rpc(
            "initialize",
            {
                "protocolVersion": version,
                "capabilities": capabilities,
                "clientInfo": {"name": name},
            },
        )

    player = player_of(
        (initialize("2025-06-18"), text("old")),
        (initialize("2025-11-25", roots={}), text("roots")),
        (initialize("2025-11-25"), text("new")),
    )

    assert said(play(player, initialize("2025-11-25", "other"))) == "new"
    assert said(play(player, initialize("2024-11-05", "other", roots={}))) == "roots"
    assert said(play(player, initialize("2025-06-18", "other", tasks={}))) == "old"


@pytest.mark.parametrize("header", [("Authorization", "Bearer made-up"), ("X-Tenant", "a")])
def test_header_tells_equal_calls_apart(header: tuple[str, str]) -> None:
    """A credential, and what the user named, decide which answer is played."""
    talk = Conversation(kept_headers=frozenset({"x-tenant"}))
    for request, words in ((post(CALL), "without"), (post(CALL, header), "with")):
        talk.response(talk.request(request), text(words))
    cassette = talk.cassette()
    assert "made-up" not in str(cassette)

    for order in ((False, True), (True, False)):
        player = Player(loaded(cassette, "f"))
        for has_header in order:
            request = post(CALL, header) if has_header else post(CALL)
            assert said(play(player, request)) == ("with" if has_header else "without")


def test_header_that_contradicts_the_body_gets_no_good_answer() -> None:
    """A server refuses such a request; a refusal that was recorded is played."""
    contradicting = post(CALL, ("Mcp-Name", "drop"))
    refused = refusal(CALL, -32020, "mismatch")
    good = (post(CALL, ("Mcp-Name", "deploy")), text("done"))

    miss = missed(player_of(good), contradicting)
    assert miss.reason is Reason.HEADERS_CONTRADICT
    assert "Mcp-Name: drop" in miss.detail
    assert miss.nearest is not None
    player = player_of(good, (contradicting, refused))
    assert play(player, contradicting) == refused
    assert said(play(player, good[0])) == "done"


def test_one_call_of_two_sessions_has_one_key() -> None:
    """A session id in the URL chooses among recordings, and is no part of the call."""
    targets = [f"/messages?session_id=mrtr-session%3A{number}" for number in (1, 2, 3)]
    player = player_of(
        (post(CALL, target=targets[0]), text("one")), (post(CALL, target=targets[1]), text("two"))
    )

    assert said(play(player, post(CALL, target=targets[1]))) == "two"
    assert said(play(player, post(CALL, target=targets[2]))) == "one"


SESSION = "s" * 32
LISTEN = get("/mcp", ("Accept", "text/event-stream"))
INITIALIZE = rpc("initialize", {"clientInfo": {"name": "c"}}, number=0)
OPENED = Answer(
    (answer(INITIALIZE, {"serverInfo": {}}),), (*JSON_HEADERS, ("Mcp-Session-Id", SESSION))
)
ACCEPTED = Answer((), (), 202)
QUESTION = rpc("elicitation/create", {"message": "Really?"}, number="p1")
AGREED, REFUSED = (answer(QUESTION, {"action": action}) for action in ("accept", "decline"))


def within(session: str, request: bytes | Request) -> Request:
    """Return a request in a session."""
    whole = request if isinstance(request, Request) else post(request)
    headers = (*whole.headers, ("Mcp-Session-Id", session))
    return Request(whole.method, whole.target, headers, whole.body)


def hit(player: Player, request: bytes | Request) -> Play:
    """Return what a request gets, which must have been recorded."""
    decision = player.request_received(post(request) if isinstance(request, bytes) else request)
    assert isinstance(decision, Play), decision
    return decision


def test_call_of_a_play_is_the_clients_own() -> None:
    """What is told of a play has the client's request, and the key by which it was matched."""
    player = player_of((tool("go", at="noon", to="x"), text("done")), ignored=[("arguments", "at")])

    played = hit(player, tool("go", at="night", to="x"))

    assert played.call.arguments == {"arguments": {"at": "night", "to": "x"}}
    assert player.key_of(played.call) == player.key_of(hit_call(player, "dawn"))
    assert player.key_of(played.call).method == "tools/call"


def hit_call(player: Player, at: str) -> Call:
    """Return a call that differs in an ignored argument only, as the miss that it is tells it."""
    return missed(player, tool("go", at=at, to="x")).call


def test_request_that_every_server_answers_alike_is_no_miss() -> None:
    """It was not recorded, so it is listed apart; a strict replay misses it."""
    ping = rpc("ping", number=5)
    player = player_of((CALL, text("done")))

    harmless = player.request_received(post(ping))

    assert isinstance(harmless, Harmless)
    assert (player.harmless, player.misses, player.plays) == ([harmless], [], 0)
    strict = player_of((CALL, text("done")), strict=True)
    assert missed(strict, ping).reason is Reason.UNKNOWN_METHOD
    assert strict.harmless == []


def asked() -> Player:
    """Return a replay of a session in which the server asked twice during a call, then another."""
    talk = Conversation()
    talk.response(talk.request(INITIALIZE), OPENED)
    call = talk.stream(within(SESSION, CALL))
    for number in ("p1", "p2"):
        talk.event(call, with_id(QUESTION, number))
        talk.response(talk.request(within(SESSION, with_id(AGREED, number))), ACCEPTED)
    talk.event(call, answer(CALL, text("done")))
    talk.end(call)
    return Player(loaded(talk.cassette()))


def session_of(player: Player) -> str:
    """Open a session, and return its id."""
    delivery = hit(player, INITIALIZE).delivery
    assert delivery is not None
    return header_value(delivery.headers, "mcp-session-id")


def test_pushed_question_is_answered_as_recorded() -> None:
    """Each answer is played for its own question, and the result follows the last one."""
    player = asked()
    session = session_of(player)
    call = hit(player, within(session, CALL))

    assert sent_now(call) == sse(QUESTION)
    assert sent_now(hit(player, within(session, AGREED))) == b""
    assert sent_now(call) == sse(with_id(QUESTION, "p2"))
    hit(player, within(session, with_id(AGREED, "p2")))
    assert b"done" in sent_now(call)
    assert (player.misses, player.unplayed) == ([], [])


def test_wrong_answer_to_a_pushed_question_refuses_the_call_once() -> None:
    """The call gets the miss, nothing waits for later answers, and a second one refuses nothing."""
    player = asked()
    session = session_of(player)
    call = hit(player, within(session, CALL))
    sent_now(call)

    first, second = (missed(player, within(session, REFUSED)) for _ in range(2))

    assert (first.reason, first.is_refused) == (Reason.ANSWERS_DIFFER, True)
    assert not second.is_refused
    assert call.delivery is not None
    assert isinstance(call.delivery.next(), Refusal)


def test_wrong_answer_to_what_was_not_asked_refuses_nobody() -> None:
    """Before the call nobody waits for an answer, under whatever id."""
    player = asked()
    session = session_of(player)

    for number in ("p1", "p9"):
        assert not missed(player, within(session, with_id(REFUSED, number))).is_refused


def test_answer_under_an_id_that_no_question_had_ends_the_wait() -> None:
    """The call that waits for an answer gets the miss, and is not left silent."""
    player = asked()
    session = session_of(player)
    call = hit(player, within(session, CALL))
    sent_now(call)

    assert missed(player, within(session, with_id(AGREED, "p9"))).is_refused
    assert call.delivery is not None
    assert isinstance(call.delivery.next(), Refusal)


def test_call_is_resumed_by_the_id_of_its_last_event() -> None:
    """A client that lost the stream of a call has the rest on a GET, as often as it asks."""
    events = tuple(
        b"id: e%d\ndata: %b\n\n" % (number, message)
        for number, message in enumerate((progress(1), answer(CALL, text("done"))))
    )
    listening = within(SESSION, LISTEN)
    player = player_of(
        (INITIALIZE, OPENED),
        (within(SESSION, with_token(CALL, 1)), Answer(events, STREAM_HEADERS)),
        (listening, Answer((), STREAM_HEADERS)),
    )
    session = session_of(player)
    hit(player, within(session, LISTEN))
    first, _, rest = sent_now(hit(player, within(session, with_token(CALL, 1)))).partition(b"\n\n")
    last = first.split(b"\n")[0].removeprefix(b"id: ").decode()

    def resumed(event: str) -> Play:
        headers = (*LISTEN.headers, ("Last-Event-ID", event))
        return hit(player, within(session, Request("GET", "/mcp", headers, b"")))

    for _ in range(2):
        again = resumed(last)
        assert sent_now(again) == rest
        assert again.delivery is not None
        assert again.delivery.next() == Ending(End.COMPLETE)
    # Behind the response nothing is left: clients that come back all the same are kept waiting.
    over = resumed(rest.split(b"\n")[0].removeprefix(b"id: ").decode())
    assert over.delivery is not None
    assert over.delivery.next() == Ending(End.OPEN)
    made_up = within(session, get("/mcp", ("Last-Event-ID", "made-up")))
    assert missed(player, made_up).reason is Reason.STATE_UNKNOWN


@pytest.mark.parametrize("order", ["ab", "ba", "b"])
def test_call_that_was_let_go_gets_its_own_result(order: str) -> None:
    """Whichever calls a client makes, in whatever order, an event id names the stream of its call."""
    talk = Conversation()
    talk.response(talk.request(INITIALIZE), OPENED)
    calls = {word: with_id(tool("work", word=word), word) for word in "ab"}
    primed = {word: b"id: %b1\ndata: \n\n" % word.encode() for word in "ab"}
    for word in "ab":
        let_go = Answer((primed[word],), STREAM_HEADERS)
        talk.response(talk.request(within(SESSION, calls[word])), let_go)
    resumed = [
        talk.stream(within(SESSION, get("/mcp", ("Last-Event-ID", f"{word}1")))) for word in "ab"
    ]
    for number, word in reversed([*zip(resumed, "ab", strict=True)]):
        talk.event(number, answer(calls[word], text(word)))
        talk.end(number, End.OPEN if word == "a" else End.COMPLETE)
    talk.response(talk.request(within(SESSION, Request("DELETE", "/mcp", (), b""))), ACCEPTED)
    player = Player(loaded(talk.cassette()))
    session = session_of(player)

    last = {}
    for word in order:
        call = hit(player, within(session, with_id(calls[word], f"my {word}")))
        last[word] = sent_now(call).split(b"\n")[0].removeprefix(b"id: ").decode()
    for word in reversed(order):
        for _ in range(2):
            rest = hit(player, within(session, get("/mcp", ("Last-Event-ID", last[word]))))
            assert sent_now(rest) == sse(answer(with_id(calls[word], f"my {word}"), text(word)))
            assert rest.delivery is not None
            assert rest.delivery.next() == Ending(End.COMPLETE)


def test_stream_of_a_client_is_that_of_the_session_that_it_turns_out_to_have() -> None:
    """It began like another one; what it does shows which one it is, also for its stream."""
    talk = Conversation()
    for number, session in enumerate(("1" * 32, "2" * 32)):
        opened = OPENED._replace(headers=(*JSON_HEADERS, ("Mcp-Session-Id", session)))
        talk.response(talk.request(INITIALIZE), opened)
        listening = talk.stream(within(session, LISTEN))
        talk.response(talk.request(within(session, tool("work", n=number))), text(str(number)))
        talk.event(listening, notification("notifications/x", n=number))
        talk.end(listening, End.OPEN)
    player = Player(loaded(talk.cassette()))
    session = session_of(player)
    stream_ = hit(player, within(session, LISTEN))

    assert said(play(player, within(session, tool("work", n=1)))) == "1"

    assert sent_now(stream_) == sse(notification("notifications/x", n=1))
    assert player.unplayed == [3, 4]


def test_what_was_not_recorded_is_said_on_the_stream_that_has_all_responses() -> None:
    """A client of HTTP+SSE reads nothing else; any other one gets it in response to its request."""
    endpoint = b"event: endpoint\ndata: /messages?session_id=" + SESSION.encode() + b"\n\n"
    talk = Conversation(redacts=True)
    listening = talk.stream(get("/sse"))
    talk.observation(listening).response_bytes(endpoint, talk.tick())
    talk.end(listening, End.OPEN)
    player = Player(loaded(talk.cassette()))
    stream_ = hit(player, get("/sse"))
    where = sent_now(stream_).decode().split("data: ")[1].strip()

    assert player.respond_on_stream(post(CALL, target=where), b"{}")
    assert sent_now(stream_) == b"event: message\ndata: {}\n\n"
    assert not player.respond_on_stream(post(CALL), b"{}")


def test_what_the_recording_proxy_answered_is_answered_on_replay() -> None:
    """The client's call gets the end of the conversation, and all of it counts as played."""
    call = tool("deploy")
    ours = post(retry(call, {"a": YES}), ("Mrtr-Cassette-Answered-By", "rule 1"))
    player = player_of((call, asks("a")), (ours, text("done")))
    assert "done" in play(player, call).decode()
    assert not player.unplayed


def test_without_memory_any_player_goes_on() -> None:
    """A retry is played where nothing was asked, and what a stream ends with is left to its client."""
    listen = get("/mcp", ("Accept", "text/event-stream"))
    talk = Conversation()
    listening = talk.stream(listen)
    for request, response in TWO_ROUNDS:
        talk.response(talk.request(request), response)
    talk.end(listening)
    talk.response(talk.request(tool("lost")), Answer((), (), 0, End.OPEN))
    cassette = loaded(talk.cassette())
    one, other = (Player(cassette, stateless=True) for _ in range(2))

    remembering = missed(Player(cassette), retry(CALL, {"a": YES}))
    assert remembering.reason is Reason.OUT_OF_ORDER
    state = state_in(play(one, retry(CALL, {"a": YES})))
    assert said(play(other, retry(CALL, {"b": YES}, state=state))) == "done"
    decision = other.request_received(listen)
    assert isinstance(decision, Play)
    assert decision.delivery is not None
    assert decision.delivery.next() == Ending(End.OPEN)
    assert (one.unplayed, other.unplayed) == ([1, 2, 3], [2, 3])


def test_secret_that_is_none_of_the_recorded_ones_is_a_miss() -> None:
    """Where several were recorded, which one it is counts."""
    logins = [tool("login", user="ada", password=f"horse-{word}-1") for word in "abc"]
    player = player_of(*((login, text("no")) for login in logins[:2]), redacts=True)
    for login in logins[:2]:
        play(player, login)

    assert missed(player, logins[2]).reason is Reason.ARGUMENTS_DIFFER


# Large requests


def test_a_large_request_gets_what_was_recorded_for_it() -> None:
    """It is matched and spliced as a small one is, with secrets in the cassette and without."""
    login = tool("login", password="correct-horse")
    value = ["words " * 30_000, [["token", {"n": 1}]] * 3_000, {"k": "é" * 40_000}]
    large = tool("store", value=value)
    for redacts in (False, True):
        player = player_of((large, text("kept")), (login, text("welcome")), redacts=redacts)
        got = play(player, with_id(large, "abc"))
        assert said(got) == "kept"
        assert json.loads(got)["id"] == "abc"
        miss = missed(player, tool("store", value=[value]))
        assert miss.reason is Reason.ARGUMENTS_DIFFER
        (difference,) = miss.differences
        assert difference.pointer == "/arguments/value"
        assert difference.received == canonical([value])
