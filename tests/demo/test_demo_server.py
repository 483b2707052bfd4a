"""Facts about the embedded demo server, each over a real socket."""

import asyncio
import base64
import json
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import pytest
from aiohttp import ClientSession
from harness import Answer, demo_server, http
from messages import CAPABILITIES_KEY, VERSION_KEY, JsonObject
from patience import HANGS_S

ALL_CAPABILITIES = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
INVALID_STATE = {"code": -32602, "message": "Invalid or expired requestState"}
YES = {"action": "accept", "content": {"confirm": True}}
NO = {"action": "accept", "content": {"confirm": False}}
DECLINE = {"action": "decline"}


class Caller:
    """Speaks to one server as an MCP client does."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.capabilities: JsonObject = ALL_CAPABILITIES

    async def post(self, body: bytes, headers: dict[str, str] | None = None) -> Answer:
        given = (f"{name}: {value}" for name, value in (headers or {}).items())
        return await http("POST", self.url, *given, body=body)

    async def call(
        self,
        method: str,
        params: JsonObject | None = None,
        *,
        meta: JsonObject | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        declared = {
            VERSION_KEY: "2026-07-28",
            CAPABILITIES_KEY: self.capabilities,
        }
        params = {**(params or {}), "_meta": declared | (meta or {})}
        message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        return await self.post(json.dumps(message).encode(), headers)

    async def tool(
        self,
        tool: str,
        arguments: JsonObject | None = None,
        answers: JsonObject | None = None,
        state: str | None = None,
        meta: JsonObject | None = None,
    ) -> Answer:
        params: JsonObject = {"name": tool, "arguments": arguments or {}}
        if answers is not None:
            params["inputResponses"] = answers
        if state is not None:
            params["requestState"] = state
        return await self.call("tools/call", params, meta=meta)


Script = Callable[[Caller], Awaitable[None]]


def talk(script: Script, *, lifetime_s: float = 600.0) -> None:
    """Run `script` against a server of its own."""

    async def run() -> None:
        async with demo_server(lifetime_s=lifetime_s) as url:
            await script(Caller(url))

    asyncio.run(run())


def text_answer(key: str, value: str) -> JsonObject:
    """Accept a form with one text field, as a map of answers."""
    return {key: {"action": "accept", "content": {key: value}}}


def test_discover_names_version_and_capabilities() -> None:
    """`server/discover` names the one supported version, the capabilities and the server."""

    async def script(client: Caller) -> None:
        answer = await client.call("server/discover")
        assert answer.content_type == "application/json"
        assert answer.result["supportedVersions"] == ["2026-07-28"]
        assert answer.result["capabilities"].keys() == {"tools", "prompts", "resources"}
        assert "io.modelcontextprotocol/serverInfo" in answer.result["_meta"]

    talk(script)


def test_lists_are_cacheable_and_complete() -> None:
    """List results name every offer, are complete and carry the caching hints."""

    async def script(client: Caller) -> None:
        for kind, key, size in (
            ("tools", "name", 10),
            ("prompts", "name", 1),
            ("resources", "uri", 2),
        ):
            result = (await client.call(f"{kind}/list")).result
            assert len({item[key] for item in result[kind]}) == size
            assert (result["resultType"], result["ttlMs"], result["cacheScope"]) == (
                "complete",
                0,
                "public",
            )

    talk(script)


def test_answers_are_compact_json_with_the_callers_id() -> None:
    """An answer is compact UTF-8 JSON that starts with the version and the caller's id."""

    async def script(client: Caller) -> None:
        answer = await client.post('{"jsonrpc":"2.0","method":"ping","id":"é-1"}'.encode())
        assert answer.body.startswith(
            '{"jsonrpc":"2.0","id":"é-1","result":{"resultType":"complete",'.encode()
        )

    talk(script)


def test_add_is_exact() -> None:
    """Sums of integers beyond 64 bits are exact, and fractions stay fractions."""

    async def script(client: Caller) -> None:
        assert (await client.tool("add", {"a": 2**64, "b": 1})).text == "18446744073709551617"
        assert (await client.tool("add", {"a": 1, "b": 0.5})).text == "1.5"

    talk(script)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("add", {"a": 1}),
        ("add", {"a": 1, "b": True}),
        ("add", {"a": 1, "b": 1e301}),
        ("deploy", {"env": 1}),
        ("count", {"to": 1.5}),
        ("count", {"to": -1}),
        ("count", {"to": 1001}),
        ("count", {"to": "3"}),
    ],
)
def test_invalid_arguments_are_refused(tool: str, arguments: JsonObject) -> None:
    """An argument that is missing, of the wrong type or out of bounds is an invalid param."""

    async def script(client: Caller) -> None:
        answer = await client.tool(tool, arguments)
        assert (answer.status, answer.error["code"]) == (400, -32602)

    talk(script)


def test_arguments_may_be_absent() -> None:
    """A tool without parameters takes absent, null and empty arguments for the same call."""

    async def script(client: Caller) -> None:
        state = (await client.call("tools/call", {"name": "wipe-cache"})).state
        for arguments in ({}, {"arguments": None}, {"arguments": {}}):
            retry = {
                "name": "wipe-cache",
                "requestState": state,
                "inputResponses": {"confirm": YES},
            }
            assert (
                "scope"
                in (await client.call("tools/call", retry | arguments)).result["inputRequests"]
            )

    talk(script)


def test_deploy_asks_without_a_state() -> None:
    """`deploy` asks one form, sends no request state, and takes only an accepted true for a yes."""

    async def script(client: Caller) -> None:
        ask = await client.tool("deploy", {"env": "prod"})
        assert ask.result["resultType"] == "input_required"
        assert "requestState" not in ask.result
        assert ask.result["inputRequests"] == {
            "confirm": {
                "method": "elicitation/create",
                "params": {
                    "mode": "form",
                    "message": "Deploy to prod?",
                    "requestedSchema": {
                        "type": "object",
                        "properties": {"confirm": {"type": "boolean"}},
                        "required": ["confirm"],
                    },
                },
            }
        }
        done = await client.tool("deploy", {"env": "prod"}, {"confirm": YES})
        assert (done.text, done.result["isError"]) == ("Deployed to prod", False)
        text_true = {"action": "accept", "content": {"confirm": "true"}}
        for refusal in (NO, DECLINE, {"action": "cancel"}, {"action": "accept"}, text_true, {}):
            cancelled = await client.tool("deploy", {"env": "prod"}, {"confirm": refusal})
            assert (cancelled.text, cancelled.result["isError"]) == ("Deployment cancelled", False)

    talk(script)


def test_answers_to_other_questions_are_asked_again() -> None:
    """A retry whose answers do not cover the questions gets the ask again."""

    async def script(client: Caller) -> None:
        answer = await client.tool("deploy", {"env": "prod"}, {"region": YES})
        assert answer.result["inputRequests"].keys() == {"confirm"}

    talk(script)


def test_refused_tag_is_a_tool_error() -> None:
    """Declining `tag-release` gives a tool result that is an error."""

    async def script(client: Caller) -> None:
        answer = await client.tool("tag-release", {"tag": "v1"}, {"confirm": DECLINE})
        assert (answer.status, answer.result["isError"]) == (200, True)
        assert answer.text == "Tagging cancelled by the operator"
        assert (
            await client.tool("tag-release", {"tag": "v1"}, {"confirm": YES})
        ).text == "Tagged v1"

    talk(script)


def test_provision_asks_two_forms_in_one_round() -> None:
    """`provision` asks for name and region at once and uses both answers."""

    async def script(client: Caller) -> None:
        ask = await client.tool("provision")
        assert ask.result["inputRequests"].keys() == {"name", "region"}
        assert "requestState" not in ask.result
        answers = text_answer("name", "db-1") | text_answer("region", "eu")
        assert (await client.tool("provision", {}, answers)).text == "Provisioned db-1 in eu"

    talk(script)


def test_wipe_cache_asks_twice() -> None:
    """`wipe-cache` asks in two rounds, each with a state of its own."""

    async def script(client: Caller) -> None:
        first = await client.tool("wipe-cache")
        second = await client.tool("wipe-cache", {}, {"confirm": YES}, first.state)
        assert second.result["inputRequests"].keys() == {"scope"}
        assert second.state != first.state
        done = await client.tool("wipe-cache", {}, text_answer("scope", "all"), second.state)
        assert done.text == "Wiped all"
        refused = await client.tool("wipe-cache", {}, {"confirm": NO}, first.state)
        assert refused.text == "Wiping cancelled"

    talk(script)


def test_release_train_remembers_earlier_answers_in_the_state() -> None:
    """`release-train` needs three rounds; only the last answers are sent, the state has the rest."""

    async def script(client: Caller) -> None:
        version = {"version": "2.0"}
        approve = {"approve": {"action": "accept", "content": {"approve": True}}}
        ask = await client.tool("release-train", version)
        for answers in (approve, text_answer("window", "Friday")):
            assert ask.result["inputRequests"].keys() == answers.keys()
            ask = await client.tool("release-train", version, answers, ask.state)
        done = await client.tool("release-train", version, text_answer("notes", "none"), ask.state)
        assert done.text == "Train 2.0: Friday, none"

    talk(script)


def test_everything_asks_all_kinds() -> None:
    """`everything` asks a form, a link, a sample and the roots at once and joins the answers."""

    async def script(client: Caller) -> None:
        ask = await client.tool("everything")
        requests = ask.result["inputRequests"]
        assert [(key, request["method"]) for key, request in requests.items()] == [
            ("confirm", "elicitation/create"),
            ("signin", "elicitation/create"),
            ("summary", "sampling/createMessage"),
            ("roots", "roots/list"),
        ]
        assert requests["signin"]["params"]["mode"] == "url"
        sampled = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "Short."}}
        answers = {
            "confirm": YES,
            "signin": {"action": "accept"},
            "summary": sampled,
            "roots": {"roots": [{"uri": "file:///a"}, {"uri": "file:///b"}]},
        }
        done = await client.tool("everything", {}, answers, ask.state)
        assert (
            done.text == "confirm accept, signin accept, summary Short., roots file:///a file:///b"
        )
        answers |= {"confirm": DECLINE, "summary": sampled | {"content": [sampled["content"]] * 2}}
        done = await client.tool("everything", {}, answers, ask.state)
        assert done.text.startswith("confirm decline, signin accept, summary Short. Short.,")

    talk(script)


def test_build_asks_with_a_state_only() -> None:
    """`build` first answers with a state and no questions, and is done on the retry."""

    async def script(client: Caller) -> None:
        ask = await client.tool("build", {"target": "wheel"})
        assert ask.result.keys() == {"resultType", "requestState", "_meta"}
        assert (
            await client.tool("build", {"target": "wheel"}, None, ask.state)
        ).text == "Built wheel"

    talk(script)


@pytest.mark.parametrize("token", [3, "t-1"])
def test_count_streams_progress(token: int | str) -> None:
    """`count` streams its progress with the caller's token, and the response comes last."""

    async def script(client: Caller) -> None:
        answer = await client.tool("count", {"to": 3}, meta={"progressToken": token})
        assert answer.content_type == "text/event-stream"
        *progress, last = answer.events
        assert [event["params"] for event in progress] == [
            {"progressToken": token, "progress": step, "total": 3, "message": f"step {step}"}
            for step in (1, 2, 3)
        ]
        assert last["id"] == 7
        assert last["result"]["content"][0]["text"] == "Counted to 3"

    talk(script)


def test_count_without_a_token_streams_the_response_alone() -> None:
    """Without a progress token the stream of `count` has one event, and `2.0` counts as `2`."""

    async def script(client: Caller) -> None:
        answer = await client.tool("count", {"to": 2.0})
        assert answer.content_type == "text/event-stream"
        assert [event["result"]["content"][0]["text"] for event in answer.events] == [
            "Counted to 2"
        ]

    talk(script)


def test_ask_late_asks_at_the_end_of_its_stream() -> None:
    """The last event of `ask-late` is the ask, and the retry is a stream again."""

    async def script(client: Caller) -> None:
        meta = {"progressToken": 1}
        *progress, last = (await client.tool("ask-late", {"steps": 2}, meta=meta)).events
        assert len(progress) == 2
        assert last["result"]["resultType"] == "input_required"
        state = last["result"]["requestState"]
        done = (await client.tool("ask-late", {"steps": 2}, {"confirm": YES}, state, meta)).events
        assert len(done) == 3
        assert done[-1]["result"]["content"][0]["text"] == "Done after 2"

    talk(script)


def test_prompt_asks_for_its_audience() -> None:
    """The prompt asks one form without a state and becomes one message of the user."""

    async def script(client: Caller) -> None:
        params = {"name": "release-notes", "arguments": {"version": "2.0"}}
        ask = await client.call("prompts/get", params)
        assert ask.result["inputRequests"].keys() == {"audience"}
        assert "requestState" not in ask.result
        retry = params | {"inputResponses": text_answer("audience", "admins")}
        (message,) = (await client.call("prompts/get", retry)).result["messages"]
        assert message["role"] == "user"
        assert message["content"]["text"] == "Notes on 2.0 for admins"

    talk(script)


def test_resources_are_read() -> None:
    """A plain resource is read at once, the guarded one after an accepted form."""

    async def script(client: Caller) -> None:
        plain = (await client.call("resources/read", {"uri": "config://plain"})).result
        assert plain["contents"][0]["text"] == "plain"
        assert (plain["ttlMs"], plain["cacheScope"]) == (0, "public")
        guarded = {"uri": "config://deployment"}
        ask = (await client.call("resources/read", guarded)).result
        assert ask["inputRequests"].keys() == {"confirm"}
        assert "requestState" not in ask
        for answer, text in ((YES, "replicas: 3"), (NO, "withheld")):
            retry = guarded | {"inputResponses": {"confirm": answer}}
            contents = (await client.call("resources/read", retry)).result["contents"]
            assert contents == [
                {"uri": "config://deployment", "mimeType": "text/plain", "text": text}
            ]

    talk(script)


def test_states_differ_from_call_to_call() -> None:
    """Two asks of the same call carry different states, and both are good."""

    async def script(client: Caller) -> None:
        states = {(await client.tool("build", {"target": "x"})).state for _ in range(2)}
        assert len(states) == 2
        for state in states:
            assert (await client.tool("build", {"target": "x"}, None, state)).text == "Built x"

    talk(script)


def test_altered_states_are_refused() -> None:
    """A state with any one character changed, or one that never was a state, is refused."""

    async def script(client: Caller) -> None:
        state = (await client.tool("build", {"target": "x"})).state
        altered = [
            state[:at] + ("A" if char != "A" else "B") + state[at + 1 :]
            for at, char in enumerate(state)
        ]
        for bad in (*altered, state + "=", " " + state, "", ".", "é.é", "\ud800"):
            answer = await client.tool("build", {"target": "x"}, None, bad)
            assert (answer.status, answer.error) == (400, INVALID_STATE)

    talk(script)


def test_states_are_bound_to_their_call() -> None:
    """A state is refused with other arguments and by another tool, even one that asks nothing."""

    async def script(client: Caller) -> None:
        state = (await client.tool("build", {"target": "x"})).state
        for tool, arguments in (("build", {"target": "y"}), ("add", {"a": 1, "b": 2})):
            answer = await client.tool(tool, arguments, None, state)
            assert (answer.status, answer.error) == (400, INVALID_STATE)

    talk(script)


def test_states_of_another_server_are_refused() -> None:
    """A state that another server signed is refused, as each server has a key of its own."""
    states = []

    async def issue(client: Caller) -> None:
        states.append((await client.tool("build", {"target": "x"})).state)

    async def use(client: Caller) -> None:
        assert (await client.tool("build", {"target": "x"}, None, states[0])).error == INVALID_STATE

    talk(issue)
    talk(use)


def test_states_expire() -> None:
    """A state that has outlived its lifetime is refused."""

    async def script(client: Caller) -> None:
        state = (await client.tool("build", {"target": "x"})).state
        assert (await client.tool("build", {"target": "x"}, None, state)).error == INVALID_STATE

    talk(script, lifetime_s=0)


def test_answers_without_their_state_are_asked_again() -> None:
    """Where asks carry a state, answers that come without it start the call from the beginning."""

    async def script(client: Caller) -> None:
        answer = await client.tool("wipe-cache", {}, {"confirm": YES} | text_answer("scope", "all"))
        assert answer.result["inputRequests"].keys() == {"confirm"}

    talk(script)


@pytest.mark.parametrize(
    ("capabilities", "missing"),
    [
        ({}, ALL_CAPABILITIES),
        ({"elicitation": {}}, {"elicitation": {"url": {}}, "sampling": {}, "roots": {}}),
        ({"elicitation": {"url": {}}, "sampling": {}, "roots": {}}, {"elicitation": {"form": {}}}),
        ({"elicitation": {"form": {}, "url": {}}, "sampling": {}}, {"roots": {}}),
    ],
)
def test_undeclared_capabilities_are_named(capabilities: JsonObject, missing: JsonObject) -> None:
    """A client is not asked for what it did not declare; the error names what is missing."""

    async def script(client: Caller) -> None:
        client.capabilities = capabilities
        answer = await client.tool("everything")
        assert (answer.status, answer.error["code"]) == (400, -32021)
        assert answer.error["data"] == {"requiredCapabilities": missing}

    talk(script)


def test_a_missing_capability_is_no_stream() -> None:
    """A streamed tool that may not ask answers with a plain error, before any progress."""

    async def script(client: Caller) -> None:
        client.capabilities = {}
        answer = await client.tool("ask-late", {"steps": 2}, meta={"progressToken": 1})
        assert (answer.status, answer.error["code"]) == (400, -32021)

    talk(script)


def test_empty_elicitation_means_forms() -> None:
    """A client that declares elicitation and no mode of it is asked forms."""

    async def script(client: Caller) -> None:
        client.capabilities = {"elicitation": {}}
        assert "confirm" in (await client.tool("deploy", {"env": "x"})).result["inputRequests"]

    talk(script)


@pytest.mark.parametrize(
    ("method", "params", "status", "code"),
    [
        ("tools/none", {}, 404, -32601),
        ("initialize", {}, 404, -32601),
        ("tools/call", {"name": "none"}, 400, -32602),
        ("tools/call", {"name": ["add"]}, 400, -32602),
        ("tools/call", {}, 400, -32602),
        ("prompts/get", {"name": "none"}, 400, -32602),
        ("resources/read", {"uri": "config://none"}, 400, -32602),
    ],
)
def test_unknown_things_are_refused(
    method: str, params: JsonObject, status: int, code: int
) -> None:
    """An unknown method is a 404; an unknown tool, prompt or resource an invalid param."""

    async def script(client: Caller) -> None:
        answer = await client.call(method, params)
        assert (answer.status, answer.error["code"]) == (status, code)

    talk(script)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b'"\xff"', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":NaN}}', -32700),
        (b"[" * 100_000, -32700),
        (b"[]", -32600),
        (b'{"id":1,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600),
    ],
)
def test_what_is_no_request_is_refused_without_an_id(body: bytes, code: int) -> None:
    """Malformed JSON, and JSON that is no request, get an error that has no id."""

    async def script(client: Caller) -> None:
        answer = await client.post(body)
        assert (answer.status, answer.error["code"]) == (400, code)
        assert "id" not in answer.json

    talk(script)


def test_notifications_are_accepted() -> None:
    """A message without an id is a notification and gets an empty 202."""

    async def script(client: Caller) -> None:
        answer = await client.post(b'{"jsonrpc":"2.0","method":"notifications/cancelled"}')
        assert (answer.status, answer.body) == (202, b"")

    talk(script)


def test_meta_may_be_left_out() -> None:
    """A request without `_meta` is answered, but asked nothing."""

    async def script(client: Caller) -> None:
        head = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":'
        add = await client.post((head + '{"name":"add","arguments":{"a":1,"b":2}}}').encode())
        assert add.text == "3"
        ask = await client.post((head + '{"name":"provision"}}').encode())
        assert ask.error["code"] == -32021

    talk(script)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_only_post_is_served(method: str) -> None:
    """Other HTTP methods on the endpoint are not allowed."""

    async def script(client: Caller) -> None:
        answer = await http(method, client.url)
        assert (answer.status, answer.head.values("Allow")) == (405, ["POST"])

    talk(script)


def test_unsupported_versions_are_refused() -> None:
    """An unsupported version in `_meta` gets an error that names the supported one."""

    async def script(client: Caller) -> None:
        answer = await client.call("ping", meta={VERSION_KEY: "1900-01-01"})
        assert (answer.status, answer.error["code"]) == (400, -32022)
        assert answer.error["data"] == {"supported": ["2026-07-28"], "requested": "1900-01-01"}

    talk(script)


ENCODED_ADD = f"=?base64?{base64.b64encode(b'add').decode()}?="


@pytest.mark.parametrize(
    ("header", "value", "is_refused"),
    [
        ("Mcp-Method", "tools/call", False),
        ("Mcp-Method", "tools/list", True),
        ("Mcp-Name", "add", False),
        ("Mcp-Name", ENCODED_ADD, False),
        ("Mcp-Name", "deploy", True),
        ("Mcp-Name", "=?base64?ZGVwbG95?=", True),
        ("Mcp-Name", "=?base64?*?=", True),
        ("MCP-Protocol-Version", "2026-07-28", False),
        ("MCP-Protocol-Version", "2025-11-25", True),
    ],
)
def test_headers_agree_with_the_body(header: str, value: str, is_refused: bool) -> None:  # noqa: FBT001
    """A header that says something else than the body is refused, an encoded one is decoded."""

    async def script(client: Caller) -> None:
        params = {"name": "add", "arguments": {"a": 1, "b": 2}}
        answer = await client.call("tools/call", params, headers={header: value})
        if is_refused:
            assert (answer.status, answer.error["code"]) == (400, -32020)
        else:
            assert answer.text == "3"

    talk(script)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_process_announces_itself_and_ends_quietly(number: signal.Signals) -> None:
    """The process prints one line once it accepts connections, and a signal ends it with code 0."""
    command = [sys.executable, "-m", "mrtr_cassette.demo.server", "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        url = line.removeprefix("listening on ").strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/mcp", url)

        async def ping_and_signal() -> None:
            # The connection stays open, so that the end is quick in spite of it.
            async with ClientSession() as http:
                async with http.post(
                    url, data=b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
                ) as response:
                    assert response.status == 200
                    await response.read()
                server.send_signal(number)
                assert await asyncio.to_thread(server.communicate, timeout=HANGS_S) == ("", "")

        asyncio.run(ping_and_signal())
        assert server.returncode == 0


def test_taken_port_is_a_message() -> None:
    """A port that is taken gives one line on stderr and no traceback."""

    async def script(client: Caller) -> None:
        port = str(urlsplit(client.url).port)
        command = [sys.executable, "-m", "mrtr_cassette.demo.server", "--port", port]
        run = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
        assert run.returncode == 1
        assert run.stdout == ""
        assert run.stderr == (
            f"port {port} is in use; choose another with --port, or 0 for a free one\n"
        )

    talk(script)
