"""Facts about cassettes in a store: they are whole or not there, and what goes wrong is said."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
from builders import JOURNAL_HEADER
from click.testing import CliRunner, Result
from fsspec.implementations.memory import MemoryFileSystem
from harness import looped, playing, post, taping
from messages import message, result
from standin import answering, json_response

from mrtr_cassette import CassetteError, UsageError, diff, replay
from mrtr_cassette.cli import main
from mrtr_cassette.shell.files import cassettes
from mrtr_cassette.shell.files.cassettes import journal_path
from mrtr_cassette.shell.files.journals import Journal
from mrtr_cassette.shell.files.stores import StoreFile, location_of

CASSETTES = Path(__file__).parent.parent.parent / "cassettes"
DEMO = (CASSETTES / "demo-server.json").read_bytes()
URL = "memory://bucket/runs/demo-server.json"


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An empty store in memory; what this machine keeps stands in the test's folder."""
    monkeypatch.chdir(tmp_path)
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]

    return memory


@pytest.fixture
def stored(store: Any) -> StoreFile:
    """A cassette in the store."""
    store.pipe_file(URL, DEMO)
    return StoreFile(URL)


def invoke(*arguments: object) -> Result:
    """Run a command in this process, which has the store."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.mark.parametrize(
    ("named", "place"),
    [
        ("runs/c.json", Path("runs/c.json")),
        ("./s3:/c.json", Path("s3:/c.json")),
        ("./s3://c.json", Path("s3:/c.json")),
        (Path("s3://bucket/c.json"), Path("s3:/bucket/c.json")),
        ("file:///runs/a%20b.json", Path("/runs/a b.json")),
        ("FILE:/runs/a%20b.json", Path("/runs/a b.json")),
        ("FILE://localhost/c.json", Path("/c.json")),
        ("s3://bucket/c.json", StoreFile("s3://bucket/c.json")),
        ("GS://bucket/a/c.json", StoreFile("GS://bucket/a/c.json")),
    ],
)
def test_a_url_of_a_store_is_no_path(
    named: str | Path, place: Path | StoreFile
) -> None:
    """A text that begins with the scheme of a store names a place in it; all else is a path."""
    assert location_of(named) == place


@pytest.mark.parametrize(
    "named",
    ["s3://bucket/runs/", "s3://", "s3://me:secret@b/?x=1"],
)
def test_a_url_that_is_no_cassette_s_is_refused(named: str) -> None:
    """A folder of a store is a usage error that names the URL."""
    with pytest.raises(UsageError, match="doesn't name a cassette") as caught:
        location_of(named)

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "named", ["a\0b.json", "file:///runs/a%00b.json", "no scheme://a\0b.json"]
)
def test_a_name_that_no_file_may_have_is_told(named: str) -> None:
    """In whatever way the path of a file is spelled."""
    with pytest.raises(CassetteError, match="no name of a file has a NUL"):
        location_of(named)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://bucket/a@b/c.json", "s3://bucket/a@b/c.json"),
        ("sftp://me:pass@host:22/c.json", "sftp://***@host:22/c.json"),
        ("s3://KEY:SEC/RET@bucket/c.json", "s3://***@bucket/c.json"),
        ("hf://TOKEN@place/c.json", "hf://***@place/c.json"),
        ("abfs://container@account/c.json", "abfs://container@account/c.json"),
        ("abfs://me:pass@account/c.json", "abfs://***@account/c.json"),
        ("az://container/c.json?sig=SECRET", "az://container/c.json?***"),
    ],
)
def test_credentials_in_a_url_are_not_shown(url: str, shown: str) -> None:
    """A URL is shown with its place, and without its user, password and query."""
    assert str(StoreFile(url)) == shown
    assert StoreFile(url).name == "c.json"

    of_stored = journal_path(StoreFile(url))
    of_shown = journal_path(StoreFile(shown))

    assert of_stored == of_shown != journal_path(StoreFile("s3://bucket/c.json"))


@looped
async def test_a_recording_is_put_when_it_ends(store: Any, tmp_path: Path) -> None:
    """The journal stands on this machine, and goes when the cassette is in the store, whole."""
    place = location_of(URL)
    script = answering(*[json_response(result({}))] * 2)
    async with taping(place, script) as tape:
        await post(tape.url, message("ping"))

        assert [path.suffix for path in tmp_path.iterdir()] == [".journal"]
        assert store.store == {}

    assert list(tmp_path.iterdir()) == []
    assert list(store.store) == ["/bucket/runs/demo-server.json"]

    with pytest.raises(CassetteError, match=f"{URL}: the cassette exists"):
        async with taping(place, script):
            pass

    async with taping(place, script, existing="append") as tape:
        await post(tape.url, message("ping"))
        await post(tape.url, message("tools/list"))

    assert len(cassettes.load_cassette(place).interactions) == 2

    async with playing(place) as replay_run:
        assert (await post(replay_run.url, message("ping"))).json["result"] == {}


def test_the_library_takes_a_url(stored: StoreFile) -> None:
    """A replay by URL says where its cassette is, and has no path."""
    with replay(URL, on_miss="report") as playing_it:
        assert playing_it.place == URL
        assert len(playing_it.interactions) > 1

        with pytest.raises(UsageError, match="has no path"):
            assert playing_it.path

    assert diff(URL, URL).is_same


def refusing(error: Exception) -> Callable[..., Any]:
    """Return what fails in the place of a driver's method."""

    def refuse(*_: object, **__: object) -> None:
        raise error

    return refuse


@looped
async def test_a_cassette_that_can_t_be_put_is_recovered(
    store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the store fails at the end, the journal stays, and `recover` with the URL puts it."""
    place = location_of(URL)
    with pytest.raises(CassetteError, match=f"recover {URL}"):  # noqa: PT012  it ends with an error
        async with taping(place, answering(json_response(result({})))) as tape:
            await post(tape.url, message("ping"))
            monkeypatch.setattr(
                MemoryFileSystem, "pipe_file", refusing(OSError("it is full"))
            )

    monkeypatch.undo()

    assert store.store == {}

    monkeypatch.chdir(tmp_path)
    with pytest.raises(CassetteError, match=f"recover {URL}"):
        Journal(place, JOURNAL_HEADER)

    with pytest.raises(CassetteError, match=f"recover {URL}"):
        cassettes.read_file(place)

    done = invoke("recover", URL)

    assert (done.exit_code, done.output) == (
        0,
        f"wrote {URL}: 1 interaction, 1 exchange recorded\n",
    )

    assert len(cassettes.load_cassette(place).interactions) == 1
    assert invoke("recover", URL).exit_code == 3


@pytest.mark.parametrize("scheme", ["memory", "local"])
@pytest.mark.parametrize("replace", [False, True])
def test_what_exists_is_replaced_only_when_asked(
    tmp_path: Path, scheme: str, *, replace: bool
) -> None:
    """A put leaves what exists alone, or replaces it whole; a new one needs no leave."""
    place = location_of(f"{scheme}://{tmp_path}/c.json")
    cassettes.publish_cassette(place, [b"o", b"ld"], replace=replace)
    if replace:
        cassettes.publish_cassette(place, [b"new"], replace=True)
    else:
        with pytest.raises(CassetteError, match="the cassette exists"):
            cassettes.publish_cassette(place, [b"new"], replace=False)

    assert place.read_bytes() == (b"new" if replace else b"old")


def test_a_store_that_knows_no_condition_is_asked_before(
    stored: StoreFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a put can't be made to fail on what exists, a look before it does that."""
    put = MemoryFileSystem.pipe_file

    def unconditional(
        self: Any, path: str, value: bytes, mode: str = "overwrite"
    ) -> None:
        if mode == "create":
            raise NotImplementedError

        put(self, path, value)

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", unconditional)
    with pytest.raises(FileExistsError):
        stored.write([b"new"], replace=False)

    StoreFile("memory://other.json").write([b"new"], replace=False)

    assert (stored.read_bytes(), StoreFile("memory://other.json").read_bytes()) == (
        DEMO,
        b"new",
    )


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (FileNotFoundError(URL), "there is no such cassette"),
        (
            PermissionError("Forbidden"),
            "the store can't be used (Forbidden); check its address",
        ),
        (
            RuntimeError("no route\n to host"),
            "the store can't be used (no route to host); check",
        ),
        (TimeoutError(), "the store can't be used (TimeoutError)"),
        (
            OSError(f"bad token ghp_{'a1' * 18}"),
            "the store can't be used (bad token <github:1>)",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_what_a_driver_raises_is_an_error_of_the_cassette(
    monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    """Whatever a driver raises ends in one line with the place and a way out, exit code 3."""
    monkeypatch.setattr(MemoryFileSystem, "cat_file", refusing(error))
    monkeypatch.setattr(MemoryFileSystem, "info", refusing(error))
    done = invoke("inspect", URL)

    assert done.exit_code == 3
    assert done.output.startswith(f"error: {URL}: {said}")
    assert done.output.count("\n") == 1


@pytest.mark.parametrize("method", ["cat_file", "info", "pipe_file"])
@pytest.mark.parametrize("error", [FileNotFoundError, PermissionError, OSError])
def test_no_failure_of_a_put_shows_a_password(
    monkeypatch: pytest.MonkeyPatch, method: str, error: type[OSError]
) -> None:
    """Whichever step fails, and however, it is said once, without the credentials of the URL."""
    url = "memory://me:hunter2@bucket/c.json"
    monkeypatch.setattr(MemoryFileSystem, "pipe_file", refusing(OSError("begins")))
    monkeypatch.setattr(
        MemoryFileSystem, method, refusing(error(f"{url} is not there"))
    )
    with pytest.raises(
        CassetteError, match=r"^memory://\*\*\*@bucket/c.json: "
    ) as caught:
        cassettes.publish_cassette(StoreFile(url), [b"x"], replace=False)

    assert "hunter2" not in str(caught.value)
    assert str(caught.value).count("the store") <= 1


def test_a_further_cassette_is_found_by_its_whole_url(stored: StoreFile) -> None:
    """Its credentials and its query are used, and only hidden where its name is shown."""
    url = "memory://me:hunter2@bucket/c.json?version=1"
    StoreFile(url).write([DEMO], replace=False)
    with replay(stored.url, url, on_miss="report") as playing_both:
        assert playing_both.place == stored.url


def test_a_folder_is_no_cassette(stored: StoreFile, tmp_path: Path) -> None:
    """It can't be recorded to, and neither can what is no working directory."""
    assert stored.exists()

    with pytest.raises(CassetteError, match="is a folder; name an object"):
        cassettes.cassette_exists(StoreFile("memory://bucket/runs"))

    (tmp_path / "file").touch()
    place = StoreFile(URL, tmp_path / "file")
    with pytest.raises(
        CassetteError, match="record in a folder where the journal can be written"
    ):
        Journal(place, JOURNAL_HEADER)


@pytest.mark.parametrize(
    ("url", "missing", "said"),
    [
        (
            URL,
            "fsspec.core",
            "pip install 'mrtr-cassette[stores]', and the package of its kind",
        ),
        ("gs://bucket/c.json", "gcsfs", "no driver for gs:// (Please install gcsfs"),
    ],
)
def test_what_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, url: str, missing: str, said: str
) -> None:
    """A missing extra and a missing driver are usage errors with a way out."""
    monkeypatch.setitem(sys.modules, missing, None)  # type: ignore[arg-type]
    done = invoke("replay", url)

    assert done.exit_code == 2
    assert said in done.output


def test_a_client_s_configuration_gets_the_url(stored: StoreFile) -> None:
    """`wrap` has a store's cassette replayed, and refuses to record to one."""
    config = Path("config.json")
    config.write_text('{"mcpServers": {"it": {"command": "server"}}}')
    done = invoke("wrap", config, "it", "--record", URL)

    assert (done.exit_code, "it has no path" in done.output) == (2, True)
    assert invoke("wrap", config, "it", "--replay", URL).exit_code == 0
    assert f'"{URL}"' in config.read_text()


def test_a_file_needs_no_fsspec(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cassette on this machine, also by a URL, is read without importing fsspec."""
    monkeypatch.setitem(sys.modules, "fsspec", None)  # type: ignore[arg-type]
    for place in (
        CASSETTES / "demo-server.json",
        f"file://{CASSETTES}/demo-server.json",
    ):
        assert invoke("check", place).exit_code == 0
