"""Bodies in the content codings that only a library can decode."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec


def packed_by_libraries(body: bytes) -> list[tuple[str, bytes]]:
    """Return a body in each coding whose library is installed, and the coding."""
    packed: list[tuple[str, bytes]] = []
    if find_spec("brotli"):
        packed.append(("br", import_module("brotli").compress(body)))

    if find_spec("zstandard"):
        compress = import_module("zstandard").compress
        packed += [
            ("zstd", compress(body)),
            ("zstd", compress(body[:5]) + compress(body[5:])),
        ]

    return packed
