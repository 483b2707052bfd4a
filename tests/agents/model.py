"""A model for tests: it speaks chat completions, calls a tool, then repeats its result."""

from __future__ import annotations

import argparse
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Model(BaseHTTPRequestHandler):
    """Answers each request by its last message alone."""

    def do_POST(self) -> None:
        """Answer a request for a completion."""
        length = int(self.headers["Content-Length"])
        last = json.loads(self.rfile.read(length))["messages"][-1]
        message: dict[str, Any] = {"role": "assistant", "content": last["content"]}
        if last["role"] == "user":
            called = {"name": "release", "arguments": '{"version": "2.0"}'}
            call = {"id": "1", "type": "function", "function": called}
            message = {"role": "assistant", "content": None, "tool_calls": [call]}

        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        completion = {"id": "1", "object": "chat.completion", "created": 0}
        body = json.dumps(completion | {"model": "model", "choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Log nothing."""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    server = ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Model)
    print(f"listening on http://localhost:{server.server_port}/v1", flush=True)
    server.serve_forever()
