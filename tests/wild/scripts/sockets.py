"""How a Python server listens."""

from __future__ import annotations

import socket
from typing import Any

import uvicorn


def serve(app: Any, port: int, path: str) -> None:
    """Serve an application on a port until SIGTERM, and say where."""
    listener = socket.create_server(("127.0.0.1", port))
    print(
        f"listening on http://127.0.0.1:{listener.getsockname()[1]}/{path}", flush=True
    )
    config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=0)
    uvicorn.Server(config).run(sockets=[listener])
