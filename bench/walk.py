"""Count the Python calls of one plain call that is recorded or replayed, and its changes of module.

    python bench/walk.py [--all] [KIND]

The client, the upstream and the proxy share one event loop; what `sys.setprofile` sees of the
package is counted, from the request's arrival to the end of its response. `--all` lists the calls.
KIND is a kind of call of `traffic.py`, such as `rounds`; `plain` without it.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

from servers import Upstream
from traffic import KINDS, PATH, Incoming, Kind, request_head

import mrtr_cassette
from mrtr_cassette.options import RecordOptions, ReplayOptions
from mrtr_cassette.shell.runs.recording import recording
from mrtr_cassette.shell.runs.replaying import replaying

_PACKAGE = str(Path(mrtr_cassette.__file__).parent) + "/"
_CONVERSATIONS = 20
"""The last one is counted: caches are filled and modules are imported by then."""


@contextmanager
def _counted(calls: list[tuple[str, str]]) -> Iterator[None]:
    """Append module and function of each of the package's calls that start in the block."""

    def seen(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(_PACKAGE):
            calls.append((code.co_filename.removeprefix(_PACKAGE), code.co_qualname))

    sys.setprofile(seen)
    try:
        yield
    finally:
        sys.setprofile(None)


async def _walked(url: str, kind: Kind) -> list[tuple[str, str]]:
    """Have conversations on one connection; return the package's calls of the last response."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    calls: list[tuple[str, str]] = []
    for number in range(_CONVERSATIONS):
        state = b""
        for turn in range(kind.asks + 1):
            body = kind.request(number * 10 + turn, number, state)
            head = request_head(kind, address.netloc, len(body))
            incoming = Incoming()
            calls = []
            with _counted(calls):
                writer.write(head + body)
                while (whole := incoming.feed(await reader.read(2**20))) is None:
                    pass
            _, found, rest = whole[1].partition(b'"requestState":"')
            state = rest.partition(b'"')[0] if found else b""
    writer.close()
    await writer.wait_closed()
    return calls


async def _walks(kind: Kind, folder: Path) -> dict[str, Sequence[tuple[str, str]]]:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Upstream, "127.0.0.1", 0)
    upstream = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{PATH}"
    cassette = folder / "walk.json"
    async with recording(upstream, cassette, RecordOptions(port=0)) as recording_run:
        recorded = await _walked(recording_run.url, kind)
    server.close()
    async with replaying(cassette, ReplayOptions(port=0)) as replay:
        replayed = await _walked(replay.url, kind)
    return {"recorded": recorded, "replayed": replayed}


def main() -> None:
    """Print the counts of both."""
    words = sys.argv[1:]
    kind = KINDS[next((word for word in words if not word.startswith("-")), "plain")]
    with tempfile.TemporaryDirectory() as folder:
        walks = asyncio.run(_walks(kind, Path(folder)))
    for name, calls in walks.items():
        modules = [module for module, _ in calls]
        changes = sum(a != b for a, b in itertools.pairwise(modules))
        print(
            f"{name}: {len(calls)} calls in {len(set(modules))} modules, {changes} changes"
        )
        if "--all" in words:
            print("\n".join(f"  {module} {function}" for module, function in calls))
        else:
            print(
                "".join(
                    f"  {n:4} {module}\n"
                    for module, n in Counter(modules).most_common(9)
                )
            )


if __name__ == "__main__":
    main()
