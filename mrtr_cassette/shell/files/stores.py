"""Cassettes in a store, which fsspec reads and writes; what is on this machine is a `Path`."""

from __future__ import annotations

import errno
import hashlib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from mrtr_cassette.errors import UsageError, shorten
from mrtr_cassette.options import FilePath
from mrtr_cassette.shell.files.disk import check_file_name

_WITH_CONTAINERS: Final = ("abfs", "az", "wasb")
"""Beginnings of the schemes whose URLs have a container where others have a user."""

_FILE_URL: Final = "file:/"
"""What the URLs of files begin with, which may have no place for a host."""

_HIDDEN_CREDENTIALS: Final = "***"
_fetched_bodies: dict[str, bytes] = {}
"""The cassettes that this process has fetched, by the names that stand for them."""


class StoreFile(NamedTuple):
    """A cassette in a store, with as much of `Path` as cassettes need.

    `folder` is where this machine keeps files about it.
    """

    url: str
    folder: Path = Path()

    def __str__(self) -> str:
        """Return the URL without what may be a credential."""
        scheme, _, address = self.url.partition("://")
        place, question, _ = address.partition("?")
        first, slash, inner_path = place.partition("/")
        if ":" in first and "@" in place:
            # Whatever stands before the last one: a password may have any character.
            place = f"{_HIDDEN_CREDENTIALS}@{place.rpartition('@')[2]}"
        elif "@" in first and not scheme.lower().startswith(_WITH_CONTAINERS):
            host = first.rpartition("@")[2]
            place = f"{_HIDDEN_CREDENTIALS}@{host}{slash}{inner_path}"

        return f"{scheme}://{place}{question and question + _HIDDEN_CREDENTIALS}"

    @property
    def name(self) -> str:
        """The last part of its place."""
        place = self.url.partition("://")[2].partition("?")[0]
        return place.rpartition("/")[2]

    @property
    def stem(self) -> str:
        """The same without its suffix."""
        return Path(self.name).stem

    @property
    def local_name(self) -> str:
        """The name of its files here; URLs that differ in user or query only have the same."""
        return f"{self.name}.{hashlib.sha256(str(self).encode()).hexdigest()[:8]}"

    def absolute(self) -> StoreFile:
        """Return the same for a process that runs in another folder."""
        return StoreFile(self.url, self.folder.absolute())

    def exists(self) -> bool:
        """Tell whether there is a cassette; an OSError says that it is a folder, or not known."""
        if self.url in _fetched_bodies:
            return True

        with self._opened_store() as (store, path):
            kind = _kind_if_exists(store, path)

        if kind == "directory":
            raise IsADirectoryError(errno.EISDIR, "is a folder; name an object")

        return kind is not None

    def read_bytes(self) -> bytes:
        """Fetch it whole."""
        if self.url in _fetched_bodies:
            return _fetched_bodies[self.url]

        with self._opened_store() as (store, path):
            return bytes(store.cat_file(path))

    def write(self, pieces: Iterable[bytes], *, replace: bool) -> None:
        """Put it by one put, of which an object store shows no part.

        Raises:
            FileExistsError: there is one, and it is not to be replaced.
            OSError: it could not be put.
        """
        if self.url in _fetched_bodies:
            raise OSError(errno.EROFS, "it was fetched, and can't be written")

        data = b"".join(pieces)
        with self._opened_store() as (store, path):
            if not replace:
                try:
                    store.pipe_file(path, data, mode="create")
                except Exception:  # noqa: BLE001  drivers don't tell this from an unknown mode
                    if _kind_if_exists(store, path) is not None:
                        raise FileExistsError from None
                else:
                    return

            store.pipe_file(path, data)

    @contextmanager
    def _opened_store(self) -> Iterator[tuple[Any, str]]:
        """Give the driver and the path in it; any error of the driver becomes an OSError."""
        scheme = self.url.partition("://")[0].lower()
        try:
            from fsspec.core import url_to_fs

            store, path = url_to_fs(self.url)
            store.invalidate_cache()
            yield store, path
        except ImportError as error:
            problem = f"{self}: there is no driver for {scheme}:// ({error})"
            hint = (
                "install it with: pip install 'mrtr-cassette[stores]', and the package of its "
                "kind of store, such as s3fs for s3:// and gcsfs for gs://"
            )
            raise UsageError(problem, hint=hint) from None
        except FileExistsError:
            raise
        except FileNotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, self._reason_of(error)) from None
        except Exception as error:  # noqa: BLE001  each driver has its own
            problem = (
                f"the store can't be used ({self._reason_of(error)}); "
                "check its address, the network and the credentials that its driver finds"
            )
            raise OSError(errno.EIO, problem) from None

    def _reason_of(self, error: Exception) -> str:
        """Return what a driver says, unless it may repeat a credential."""
        from mrtr_cassette.core.secrets.credentials import text_redactor
        from mrtr_cassette.core.secrets.rules import RedactionRules

        text = " ".join(str(error).split())
        if not text or str(self) != self.url:
            return type(error).__name__

        # Drivers find credentials, and their errors may have them, as in a URL that is signed.
        return shorten(text_redactor(RedactionRules())(text))


def _kind_if_exists(store: Any, path: str) -> str | None:
    """Return fsspec's type of what is at a path, such as `file`; None if nothing is there."""
    with suppress(FileNotFoundError):
        return str(store.info(path)["type"])

    return None


def is_address(place: object) -> bool:
    """Tell whether a cassette is named by an address from which it is fetched first."""
    return isinstance(place, str) and place.lower().startswith(("http://", "https://"))


def keep_fetched(address: str, data: bytes) -> str:
    """Keep a cassette that was fetched; return the name that stands for it from now on."""
    name = address
    if _fetched_bodies.get(name, data) != data:
        # Two addresses may differ in their queries alone.
        name = f"{name}#sha256={hashlib.sha256(data).hexdigest()}"

    _fetched_bodies[name] = data
    return name


def fetched_texts() -> dict[str, str]:
    """Return the cassettes that this process has fetched, for another that it starts."""
    return {name: body.decode() for name, body in _fetched_bodies.items()}


Location = Path | StoreFile
"""Where a cassette stands."""


def location_of(place: FilePath | Location) -> Location:
    """Return where a cassette stands that a user names.

    Raises:
        CassetteError: no file may have the name.
        UsageError: the URL names a folder, or is one of HTTP.
    """
    if isinstance(place, StoreFile):
        return place
    if isinstance(place, str) and place.lower().startswith(_FILE_URL):
        return _checked_path(_path_in_url(place))
    if not isinstance(place, str) or "://" not in place:
        return _checked_path(place)

    scheme = place.partition("://")[0]
    if place in _fetched_bodies:
        return StoreFile(place)

    if scheme.lower() in ("http", "https"):
        server_url = StoreFile(place.partition("#")[0])
        problem = f"{server_url} is the URL of a server, and not a cassette in a store"
        hint = "download it, and name the file"
        raise UsageError(problem, hint=hint)

    if not re.fullmatch("[a-zA-Z][a-zA-Z0-9+.-]*", scheme):
        return _checked_path(place)

    store_file = StoreFile(place)
    if not store_file.name:
        problem = (
            f"{store_file} doesn't name a cassette, and folders of a store are not read"
        )
        hint = "end the URL with the name of an object"
        raise UsageError(problem, hint=hint)

    return store_file


def _path_in_url(url: str) -> str:
    """Return the path that a URL of a file has, with a host or with one slash (RFC 8089)."""
    path = url[len("file:") :]
    if path.startswith("//"):
        path = path.removeprefix("//").removeprefix("localhost")

    return unquote(path)


def _checked_path(name: FilePath) -> Path:
    """Return the path of a name that a file may have."""
    path = Path(name)
    check_file_name(path)
    return path


def full_name(place: Location) -> str:
    """Return the name by which a cassette is found again, with any credentials in it."""
    return place.url if isinstance(place, StoreFile) else str(place)


def path_of(place: Location) -> Path:
    """Return the path of a cassette on this machine.

    Raises:
        UsageError: it is in a store.
    """
    if isinstance(place, Path):
        return place
    raise UsageError(f"{place} is in a store, where it has no path")
