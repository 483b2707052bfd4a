"""How a Python server listens."""

from __future__ import annotations

import socket


def announced(port: int, path: str) -> socket.socket:
    """Listen on a port, and say where."""
    listener = socket.create_server(("127.0.0.1", port))
    print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}/{path}", flush=True)
    return listener
