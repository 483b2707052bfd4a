"""The methods of MCP and of its extensions: one table that says what each of them is like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mrtr_cassette.core.wire.jsonbytes import MemberPath
from mrtr_cassette.core.wire.pointers import ANY

INITIALIZE: Final = "initialize"
INITIALIZED: Final = "notifications/initialized"
CANCELLED: Final = "notifications/cancelled"
PING: Final = "ping"
DISCOVER: Final = "server/discover"
LISTEN: Final = "subscriptions/listen"
CALL_TOOL: Final = "tools/call"
LIST_TOOLS: Final = "tools/list"
GET_PROMPT: Final = "prompts/get"
READ_RESOURCE: Final = "resources/read"
LOG: Final = "notifications/message"
LIST_ROOTS: Final = "roots/list"
GET_TASK: Final = "tasks/get"
UPDATE_TASK: Final = "tasks/update"
CANCEL_TASK: Final = "tasks/cancel"
NOTIFIED_TASK: Final = "notifications/tasks"
ELICITATION: Final = "elicitation"
SPOKEN_EXTENSIONS: Final = frozenset({"io.modelcontextprotocol/tasks"})
"""The extensions that a client of ours declares if its server does."""


@dataclass(frozen=True, slots=True)
class Method:
    """What a method is like; one that is in no table changes something and is named by nothing.

    Attributes:
        named_by: the member of its params that names what is called, as the header `Mcp-Name` does.
        repeats: whether clients send it again and again as time goes by.
        reads: whether it changes nothing, so that its response may be played again.
        steady: whether its result is the same whatever was written before.
        listens: whether its response is a stream that stays open, of what others cause.
        asks: whether its result may ask for input, which the same request answers, sent again.
        volatile: the places in its result that differ in each recording.
        describes_server: whether its result says what the server offers.
        not_in_key: the members of its params by which equal calls may differ.
        asks_for: what a server asks its client for by it.
        is_step: whether it goes on with the call that created what it names.
        noun: what it names, as rules of an answers file call it.
        listed_by: the methods that list what it may name.
    """

    name: str
    named_by: str = ""
    repeats: bool = False
    reads: bool = False
    steady: bool = False
    listens: bool = False
    asks: bool = False
    volatile: frozenset[MemberPath] = frozenset()
    describes_server: bool = False
    not_in_key: tuple[str, ...] = ()
    asks_for: str = ""
    is_step: bool = False
    noun: str = ""
    listed_by: tuple[str, ...] = ()

    @property
    def names_task(self) -> bool:
        """Whether what it names is the id of a task, which a response issued."""
        return self.named_by == TASK_ID


def _modified_times(*places: MemberPath) -> frozenset[MemberPath]:
    """Return where annotations at some places say when something was modified."""
    return frozenset((*place, "annotations", "lastModified") for place in places)


def _volatile_in_task(*place: str) -> frozenset[MemberPath]:
    """Return what differs in each task that stands at a place."""
    return frozenset((*place, name) for name in TASK_VALUES)


TASK_ID: Final = "taskId"
RELATED_TASK: Final = ("_meta", "io.modelcontextprotocol/related-task", TASK_ID)
"""Where params and results name the task that they belong to."""

NAMED_TASK_PATHS: Final = (("params", TASK_ID), ("params", *RELATED_TASK))
CREATED_TASK_PATHS: Final = (("result", TASK_ID), ("result", "task", TASK_ID))
TASK_VALUES: Final = ("createdAt", "lastUpdatedAt", TASK_ID)
"""Members of a task that differ in each recording."""

ISSUED_VALUE_PATHS: Final[tuple[MemberPath, ...]] = (
    ("result", "nextCursor"),
    *CREATED_TASK_PATHS,
)
"""Members of responses with values that clients send back."""

SENT_BACK_PATHS: Final[tuple[MemberPath, ...]] = (
    ("params", "cursor"),
    *NAMED_TASK_PATHS,
)
"""Members of requests in which clients send these values back."""

_VOLATILE_IN_RESULTS: Final = (
    _volatile_in_task()
    | _volatile_in_task("task")
    | _modified_times(("content", ANY), ("content", ANY, "resource"))
)
_VOLATILE_IN_PROMPTS: Final = _modified_times(
    ("messages", ANY, "content"), ("messages", ANY, "content", "resource")
)
_VOLATILE_IN_RESOURCES: Final = _modified_times(("resources", ANY))
_VOLATILE_IN_EVENTS: Final = frozenset({("events", ANY, "timestamp")})
_CLIENT_PARAMS: Final = ("capabilities", "clientInfo", "protocolVersion")

_METHOD_TABLE: Final = (
    # Opening, ending and watching
    Method(
        INITIALIZE,
        reads=True,
        steady=True,
        describes_server=True,
        not_in_key=_CLIENT_PARAMS,
    ),
    Method(DISCOVER, reads=True, steady=True, describes_server=True),
    Method(LISTEN, reads=True, listens=True),
    Method(PING, repeats=True, reads=True, steady=True),
    Method("logging/setLevel", reads=True, steady=True),
    Method(CANCELLED, not_in_key=("requestId", "reason")),
    # Tools and prompts
    Method(
        CALL_TOOL,
        "name",
        repeats=True,
        asks=True,
        volatile=_VOLATILE_IN_RESULTS,
        noun="tool",
        listed_by=(LIST_TOOLS,),
    ),
    Method(LIST_TOOLS, reads=True, describes_server=True),
    Method(
        GET_PROMPT,
        "name",
        reads=True,
        asks=True,
        volatile=_VOLATILE_IN_PROMPTS,
        noun="prompt",
        listed_by=("prompts/list",),
    ),
    Method("prompts/list", reads=True, describes_server=True),
    Method("completion/complete", reads=True),
    # Resources, of which the `ui://` ones are those of the extension Apps
    Method(
        READ_RESOURCE,
        "uri",
        reads=True,
        asks=True,
        volatile=_modified_times(("contents", ANY)),
        noun="resource",
        listed_by=("resources/list", "resources/templates/list"),
    ),
    Method(
        "resources/list",
        reads=True,
        describes_server=True,
        volatile=_VOLATILE_IN_RESOURCES,
    ),
    Method(
        "resources/templates/list",
        reads=True,
        describes_server=True,
        volatile=_modified_times(("resourceTemplates", ANY)),
    ),
    Method("resources/subscribe", "uri"),
    Method("resources/unsubscribe", "uri"),
    # What a server asks its client for
    Method("elicitation/create", asks_for=ELICITATION),
    Method(LIST_ROOTS, asks_for="roots"),
    Method("sampling/createMessage", asks_for="sampling"),
    # Tasks
    Method(
        GET_TASK,
        TASK_ID,
        repeats=True,
        reads=True,
        volatile=_volatile_in_task()
        | frozenset(("result", *place) for place in _VOLATILE_IN_RESULTS),
        is_step=True,
    ),
    Method(UPDATE_TASK, TASK_ID, is_step=True),
    Method(CANCEL_TASK, TASK_ID, volatile=_volatile_in_task(), is_step=True),
    Method("tasks/result", TASK_ID, reads=True, volatile=_VOLATILE_IN_RESULTS),
    Method(
        "tasks/list", repeats=True, reads=True, volatile=_volatile_in_task("tasks", ANY)
    ),
    # Skills
    Method("skills/list", reads=True, describes_server=True),
    Method("skills/get", "uri", reads=True),
    Method(
        "resources/directory/read", "uri", reads=True, volatile=_VOLATILE_IN_RESOURCES
    ),
    # Events, by SEP-3415
    Method("events/list", reads=True, describes_server=True),
    Method(
        "events/poll", "name", repeats=True, reads=True, volatile=_VOLATILE_IN_EVENTS
    ),
    Method("events/stream", "name", reads=True, listens=True),
    Method("events/subscribe", "name"),
    Method("events/unsubscribe", "name"),
    # Interceptors
    Method("interceptors/list", reads=True, describes_server=True),
)
_NOTIFICATION_NAMES = """
elicitation/complete initialized message progress prompts/list_changed resources/list_changed
resources/updated roots/list_changed subscriptions/acknowledged tasks tasks/status
tools/list_changed
"""
"""Other notifications, without `notifications/`."""

_NOTIFICATION_METHODS: Final = tuple(
    Method(f"notifications/{name}") for name in _NOTIFICATION_NAMES.split()
)
METHODS: Final[Mapping[str, Method]] = {
    method.name: method for method in _METHOD_TABLE + _NOTIFICATION_METHODS
}
_OTHER_METHOD: Final = Method("other")
"""Stands for a method that is not in the table, and for what is no call."""


def method_of(name: str) -> Method:
    """Return what is known of a method."""
    return METHODS.get(name, _OTHER_METHOD)
