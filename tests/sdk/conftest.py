"""Peers on the official SDKs, each in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest
from forked import FORKS_ALL
from processes import (
    Listening,
    ProcessError,
    Run,
    RunClient,
    Side,
    StartServer,
    install_node_packages,
    listening,
    peer,
    run,
)


@pytest.fixture(autouse=True, scope="module")
def forks_all() -> Iterator[None]:
    """Have servers forked that a client or the program starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FORKS_ALL, "1")
        yield


@pytest.fixture(scope="session")
def typescript_sdk() -> None:
    """Have the TypeScript SDK installed, or fail."""
    problem = ""
    try:
        install_node_packages()
    except ProcessError as error:
        problem = str(error)

    if problem:
        pytest.fail(problem, pytrace=False)


@pytest.fixture(scope="session")
def start_server(typescript_sdk: None) -> StartServer:
    """Give what runs a server peer, by its side and port, until a `with` block ends."""

    def start(side: Side, port: int) -> AbstractContextManager[Listening]:
        return listening((*peer("server", side), "--port", str(port)))

    return start


@pytest.fixture(scope="session")
def run_client(typescript_sdk: None) -> RunClient:
    """Give what runs a client peer, by its side, URL and options, to its end."""

    def run_to_end(side: Side, url: str, *options: str) -> Run:
        return run((*peer("client", side), url, *options))

    return run_to_end
