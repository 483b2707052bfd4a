"""Two recorders in front of one server of an official SDK, through which a client's rounds pass in turns."""

from __future__ import annotations

import http.client
import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from processes import RunClient, StartServer

import mrtr_cassette

FLOWS = ("--flow", "list", "--flow", "release-train", "--flow", "deploy")


@contextmanager
def in_turns(*urls: str) -> Iterator[str]:
    """Give the URL of a balancer that passes each request to the next server."""
    targets = itertools.cycle(urlsplit(url) for url in urls)

    class Balancer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            target = next(targets)
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name: value for name, value in self.headers.items() if name != "Host"}
            server = http.client.HTTPConnection(target.hostname or "", target.port)
            server.request("POST", self.path, body, headers | {"Host": target.netloc})
            response = server.getresponse()
            content = response.read()
            self.send_response(response.status)
            for name, value in response.getheaders():
                if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            server.close()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Balancer) as balancer:
        thread = threading.Thread(target=balancer.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{balancer.server_port}/mcp"
        finally:
            balancer.shutdown()
            thread.join()


def content(path: Path) -> Any:
    """Return what two recordings of the same share: the balancer is another upstream."""
    tree = json.loads(path.read_bytes())
    del tree["recording"], tree["upstream"]
    return tree


def test_rounds_through_two_recorders_are_what_one_recorder_has(
    start_server: StartServer, run_client: RunClient, tmp_path: Path
) -> None:
    """A recorder before the balancer and two behind it see the same; it plays, too."""
    one, two, whole = (tmp_path / f"{name}.json" for name in ("one", "two", "whole"))
    with (
        start_server("python", 0) as server,
        mrtr_cassette.record(server.url, one) as first,
        mrtr_cassette.record(server.url, two) as second,
        in_turns(first.url, second.url) as balancer,
        mrtr_cassette.record(balancer, whole) as alone,
    ):
        recorded = run_client("python", alone.url, *FLOWS)
        assert recorded.code == 0, recorded
        journals = [tmp_path / f"{path.stem}.journal" for path in (one, two)]
        for path, copy in zip((one, two), journals, strict=True):
            copy.write_bytes(path.with_name(f"{path.name}.journal").read_bytes())
    merged, of_cassettes = tmp_path / "merged.json", tmp_path / "of cassettes.json"

    notes = mrtr_cassette.merge(journals, merged)
    mrtr_cassette.merge([two, one], of_cassettes)

    assert notes == ()
    assert content(merged) == content(whole)
    assert content(of_cassettes) == content(whole)
    assert b'"orphan": true' in one.read_bytes()
    with mrtr_cassette.replay(merged) as player:
        assert run_client("python", player.url, *FLOWS) == recorded
