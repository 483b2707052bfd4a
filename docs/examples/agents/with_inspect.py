"""A task of Inspect, with its mock of a model; it answers no elicitation."""

import os

from inspect_ai import Task, eval
from inspect_ai.agent import react
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.tool import mcp_server_http

TOOL = os.environ.get("TOOL", "status")
VERSION = os.environ.get("VERSION", "1.0")
SCRIPT = [
    ModelOutput.for_tool_call("mockllm/model", TOOL, {"version": VERSION}),
    ModelOutput.for_tool_call("mockllm/model", "submit", {"answer": "released"}),
]
for output in SCRIPT:
    # Without it the mock counts tokens by a table that it downloads.
    output.usage = ModelUsage()

task = Task(
    dataset=[Sample(f"Is version {VERSION} released?", target="released")],
    solver=react(
        tools=[mcp_server_http(name="releases", url=os.environ["MRTR_CASSETTE_URL"])]
    ),
    scorer=includes(),
)
(log,) = eval(
    task,
    model=get_model("mockllm/model", custom_outputs=SCRIPT),
    display="none",
    log_dir=os.environ.get("INSPECT_LOG_DIR", "logs"),
)
for message in log.samples[0].messages:
    if message.role == "tool" and message.function == TOOL:
        print("tool:", message.error.message if message.error else message.text)
print("score:", log.results.scores[0].metrics["accuracy"].value)
