"""A server that keeps what it is told, as the text of a program."""

from __future__ import annotations

SERVER = """
import http.server, json, sys

kept = []
PLACE = "/api/mcp"
TOOLS = [{"name": "put", "inputSchema": {"type": "object"}},
         {"name": "get", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}]

def answered(asked):
    results = {"server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {}},
               "tools/list": {"tools": TOOLS}}
    result = results.get(asked["method"])
    if result is None:
        kept.extend(asked["params"].get("arguments", {}).values())
        result = {"content": [{"type": "text", "text": " ".join(kept) or "nothing"}]}
    return json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}).encode()

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        asked = self.rfile.read(int(self.headers["Content-Length"]))
        body = answered(json.loads(asked)) if self.path == PLACE else b"nothing here"
        self.send_response(200 if self.path == PLACE else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

if len(sys.argv) > 1:
    http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
for line in sys.stdin:
    print(answered(json.loads(line)).decode(), flush=True)
"""
"""A server on pipes, or over HTTP at a path of its own, that keeps what it is told."""
