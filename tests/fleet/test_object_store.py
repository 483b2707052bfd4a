"""Cassettes in a store that speaks S3: moto's server, and the driver that users install.

Both are large, so `make fleet` and CI install them; elsewhere the store is in memory
(`tests/shell/test_stores.py`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fleet.balancers import missing
from harness import playing, post, taped, taping
from messages import message, result
from shown import ROOT, Session
from standin import answering, json_response

from mrtr_cassette.errors import CassetteError
from mrtr_cassette.shell.files.journals import Publication, recover_journal
from mrtr_cassette.shell.files.stores import StoreFile

try:
    import s3fs
    from moto import server as moto_server
except ImportError:
    missing("s3fs or moto[server]")

pytestmark = pytest.mark.filterwarnings("default")  # those of drivers are theirs
BUCKET = "cassettes"
SECTION = "Cassettes in an object store"


@pytest.fixture(scope="module", autouse=True)
def s3() -> Iterator[Any]:
    """A server that speaks S3 with an empty bucket, and an environment in which the driver finds it."""
    server = moto_server.ThreadedMotoServer(
        ip_address="127.0.0.1", port=0, verbose=False
    )
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "somebody")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-of-nobody")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        s3fs.S3FileSystem.clear_instance_cache()
        files = s3fs.S3FileSystem()
        files.mkdir(BUCKET)
        yield files
        server.stop()


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which journals stand."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def place(name: str, bucket: str = BUCKET) -> StoreFile:
    """Return a cassette in the bucket."""
    return StoreFile(f"s3://{bucket}/runs/{name}.json")


async def ping(output: StoreFile) -> None:
    """Record one `ping`."""
    await taped(output, (message("ping"), json_response(result({}))))


def test_what_the_guide_shows_works(tmp_path: Path) -> None:
    """The commands of the guide record, show and replay a cassette in the store."""
    text = (ROOT / "docs" / "fleet.md").read_text().partition(f"## {SECTION}\n")[2]
    block = re.search(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)

    assert block

    commands = [line for line in block[1].splitlines() if not line.startswith("pip")]

    assert len(commands) == 3

    folder = tmp_path / "session"
    folder.mkdir()
    session = Session(folder)
    session.run("python -m mrtr_cassette.demo.server --port 8000 &")
    outcomes = [session.run(command) for command in commands[:2]]
    session.stop()
    outcomes.append(session.run(commands[2]))

    assert [code for code, _ in outcomes] == [0, 0, 0], outcomes

    recorded, shown, played = [text for _, text in outcomes]

    assert "wrote s3://cassettes/deploy.json: 3 interactions" in recorded
    assert shown.startswith("s3://cassettes/deploy.json: 3 interactions")
    assert "played 3 of 3 interactions, no misses" in played
    assert not list(folder.glob("*.journal"))


def test_a_recording_is_put_and_replaces_nothing(s3: Any, here: Path) -> None:
    """A put on what came meanwhile is refused by the store itself, and the journal stays for that."""
    output = place("once")

    async def race() -> None:
        async with taping(output, answering(json_response(result({})))) as tape:
            await post(tape.url, message("ping"))
            s3.pipe_file(output.url, b"another recorder's")

    with pytest.raises(
        CassetteError, match=r"once.json: the cassette exists; .* recover s3://"
    ):
        asyncio.run(race())

    assert output.read_bytes() == b"another recorder's"

    s3.rm(output.url)

    assert recover_journal(output) == (Publication(1, exchanges=1), None)
    assert list(here.iterdir()) == []

    async def replayed() -> None:
        async with playing(output) as replay_run:
            assert (await post(replay_run.url, message("ping"))).json["result"] == {}

    asyncio.run(replayed())
