"""What stands for a body that can't be searched for secrets, where none of it may be kept.

Owns: its spelling: `mrtr-withheld:`, the size of the body, and its SHA-256.
Does not own: which bodies can't be searched (`wire.readable`).
Rule: two bodies have the same text only if they are the same, so a request is matched by it. A
response is not played, as nobody has its bytes.
Source: docs/security.md.
"""

from __future__ import annotations

import hashlib
import re

_WITHHELD = re.compile(rb"mrtr-withheld:[0-9]+:[0-9a-f]{64}")


def withheld(body: bytes) -> bytes:
    """Return what stands for a body."""
    return b"mrtr-withheld:%d:%b" % (len(body), hashlib.sha256(body).hexdigest().encode())


def is_withheld(body: bytes) -> bool:
    """Tell whether a body is what stands for another one."""
    return body.startswith(b"mrtr-withheld:") and _WITHHELD.fullmatch(body) is not None
