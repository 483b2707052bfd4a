"""Made-up secrets in the places where they turn up, and look-alikes that must stay.

Each row is ready to be put into a message (`message_of`) or is a form, a request target or a
header's value. All secrets are made up, and put together from parts, so that no scanner takes this
file for a leak.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from urllib.parse import urlencode

DATA = Path(__file__).parents[2] / "data"


class Place(Enum):
    """Where a row stands; what `raw` is follows from it."""

    ARGUMENTS = "arguments"  # JSON, a value in the arguments of a `tools/call`
    ANSWER = "answer"  # JSON, a value in the content of an accepted answer
    RESULT = "result"  # JSON, a value in the `structuredContent` of a result
    ERROR = "error"  # JSON, the `data` of an error
    EVENT = "event"  # JSON, the `data` of a notification in an event stream
    MESSAGE = "message"  # JSON, a message as a whole
    FORM = "form"  # a body in `application/x-www-form-urlencoded`
    TEXT = "text"  # a body in `text/plain`
    TARGET = "target"
    HEADER = "header"


JSON_PLACES = (Place.ARGUMENTS, Place.ANSWER, Place.RESULT, Place.ERROR, Place.EVENT)


@dataclass(frozen=True)
class Planted:
    """One row.

    Attributes:
        raw: what stands there, spelled for the place.
        secret: what must not reach the disk, with all escapes undone; None for a look-alike.
        depends_on: a name that has to stand beside it.
    """

    name: str
    place: Place
    raw: str
    secret: str | None = None
    rule: str = ""
    depends_on: str = ""

    def __str__(self) -> str:
        """Name the row in a test's id."""
        return self.name.replace(" ", "-")


_MESSAGES = {
    Place.ARGUMENTS: '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":'
    '{"name":"t","arguments":{"input":INPUT}}}',
    Place.ANSWER: '{"jsonrpc":"2.0","id":"r-2","method":"tools/call","params":{"name":"t",'
    '"inputResponses":{"ask":{"action":"accept","content":{"input":INPUT}}},'
    '"requestState":"opaque"}}',
    Place.RESULT: '{"result":{"content":[],"structuredContent":{"output":INPUT}},"id":1,"jsonrpc":"2.0"}',
    Place.ERROR: '{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no","data":INPUT}}',
    Place.EVENT: "id: 7\r\nevent: message\r\ndata: "
    '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":INPUT}}'
    "\r\n\r\n",
}
"""What a row is put into, in the place of `INPUT`."""


def message_of(row: Planted) -> bytes:
    """Return the body that a row stands in."""
    return _MESSAGES.get(row.place, "INPUT").replace("INPUT", row.raw).encode()


def content_type_of(row: Planted) -> str:
    """Return the media type of the body that a row stands in."""
    return {
        Place.EVENT: "text/event-stream",
        Place.FORM: "application/x-www-form-urlencoded",
        Place.TEXT: "text/plain; charset=utf-8",
    }.get(row.place, "application/json")


# Made-up secrets


def encoded_header(text: str) -> str:
    """Return a text in the spelling that MCP has for headers."""
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def fill(length: int) -> str:
    """Return letters and digits that nobody takes for a real secret."""
    return ("Fake0NotReal1MadeUp2" * 20)[:length]


def digits(length: int) -> str:
    """Return hexadecimal digits that nobody takes for a real secret."""
    return ("fa4e0bad0c0ffee0" * 20)[:length]


def armoured(kind: str, lines: int = 4) -> str:
    """Return text in the form of a PEM file."""
    words = f"{kind} KEY" if "CERT" not in kind else kind
    body = "\n".join(fill(64) for _ in range(lines))
    return f"-----BEGIN {words}-----\n{body}\n-----END {words}-----"


JWT = ".".join(
    base64.urlsafe_b64encode(part).decode().rstrip("=")
    for part in (
        b'{"alg":"none","typ":"fake"}',
        b'{"sub":"nobody","for":"tests"}',
        b"made up signature",
    )
)
JWE = f"{'ey' + 'J' + fill(20)}..{fill(16)}.{fill(30)}.{fill(22)}"
GITHUB = "gh" + "p_" + fill(36)
BASIC = base64.b64encode(b"nobody:made-up-word").decode()

_NAMED_SECRETS = {"JWT": JWT, "JWE": JWE, "GITHUB": GITHUB, "BASIC": BASIC, "+": ""}
_MADE_UP: dict[str, Callable[[str], str]] = {
    "fill": lambda length: fill(int(length)),
    "FILL": lambda length: fill(int(length)).upper(),
    "low": lambda length: fill(int(length)).lower(),
    "digits": lambda length: digits(int(length)),
    "armoured": armoured,
}
_HOLE = re.compile(
    r"\{(?:(JWT|JWE|GITHUB|BASIC|\+)|(fill|FILL|low|digits|armoured):([^}]+))\}"
)


def _made_up(text: str) -> str:
    """Put secrets together, such as `gh{+}p_{fill:36}`; what has no hole stays."""
    return _HOLE.sub(
        lambda hole: _NAMED_SECRETS[hole[1]] if hole[1] else _MADE_UP[hole[2]](hole[3]),
        text,
    )


def _lines_of(name: str) -> list[str]:
    """Read the rows of a file; a comment is an empty one."""
    text = (DATA / "secrets" / name).read_text(encoding="utf-8")
    return ["" if line.startswith("#") else line for line in text.splitlines()]


def _rows_of(name: str) -> list[list[str]]:
    return [line.split("\t") for line in _lines_of(name) if line]


def _secret(spelled: str) -> str:
    return _made_up(json.loads(spelled))


SHAPES = tuple((rule, _made_up(parts)) for rule, parts in _rows_of("shapes.tsv"))
"""Secrets that their own shape tells, and the rule of each."""

IN_CONTEXT = tuple(
    (rule, _secret(secret), json.loads(text))
    for rule, secret, text in _rows_of("in-context.tsv")
)
"""Secrets that the text around them tells: rule, secret, and the text with a hole for it."""

JUDGED = tuple(
    (kind, json.loads(_made_up(secrets)), _secret(text))
    for kind, secrets, text in _rows_of("judged.tsv")
)
"""Texts by kind, and the secrets that the text around them tells, in order."""


def _shaped() -> list[Planted]:
    rows = []
    for index, (rule, secret) in enumerate(SHAPES):
        place = JSON_PLACES[index % len(JSON_PLACES)]
        raw = json.dumps({"note": f"it is {secret}, keep it", "list": [secret]})
        rows.append(
            Planted(f"{rule} {index} in {place.value}", place, raw, secret, rule)
        )

    for index, (rule, secret, text) in enumerate(IN_CONTEXT):
        place = JSON_PLACES[index % len(JSON_PLACES)]
        raw = json.dumps(text.format(secret))
        rows.append(
            Planted(
                f"{rule} context {index} in {place.value}", place, raw, secret, rule
            )
        )

    return rows


def _ambiguous() -> list[Planted]:
    """Return values under names that also mean harmless things."""
    planted = []
    for index, (name, spelled, rule, companions) in enumerate(
        _rows_of("ambiguous.tsv")
    ):
        place = JSON_PLACES[index % len(JSON_PLACES)]
        secret = _made_up(spelled)
        beside = json.loads(companions)
        companion = next(iter(beside), "")
        first = {**beside, name: secret} if index % 2 else {name: secret, **beside}
        # As JSON, in the text of a string, and as a form.
        for form, where, raw in (
            ("", place, json.dumps({"other": "stays", "inner": first})),
            (" in text", place, json.dumps(json.dumps(first))),
            (" form", Place.FORM, urlencode({"a": "b", **first})),
        ):
            named = f"ambiguous {index} {name}{form}"
            planted.append(Planted(named, where, raw, secret, rule, companion))

    return planted


def _blob(
    name: str, place: Place, text: str, rule: str, member: str = "blob"
) -> Planted:
    blob = base64.b64encode(text.encode()).decode()
    raw = json.dumps({"contents": [{"uri": "file:///a", member: blob}]})
    return Planted(name, place, raw, blob, rule)


PLANTED: tuple[Planted, ...] = (
    *_shaped(),
    *_ambiguous(),
    *(
        Planted(
            f"line {number} of planted",
            Place(place),
            _made_up(raw),
            _secret(secret),
            rule,
        )
        for number, (place, rule, secret, raw) in enumerate(_rows_of("planted.tsv"))
    ),
    _blob("blob", Place.RESULT, f"{GITHUB}\n", "github"),
    _blob(
        "blob with a name", Place.EVENT, "HOST=db\nDB_PASSWORD=made-up\n", "password"
    ),
    _blob(
        "blob of JSON",
        Place.ARGUMENTS,
        '{"user": "nobody", "apiKey": "made up"}',
        "api-key",
    ),
    _blob("blob of a key file", Place.RESULT, armoured("PRIVATE"), "private-key"),
    _blob("blob with a mark", Place.RESULT, "\ufeffpassword=made-up\n", "password"),
    _blob("data", Place.RESULT, f"the key is {GITHUB}", "github", member="data"),
    Planted(
        "key file in nested JSON",
        Place.ARGUMENTS,
        json.dumps(json.dumps({"file": armoured("PRIVATE")})),
        armoured("PRIVATE"),
        "private-key",
    ),
    Planted(
        "second line of JSON lines",
        Place.MESSAGE,
        '{"jsonrpc":"2.0","method":"a"}\n{"jsonrpc":"2.0","method":"b","params":{"secret":"made-up"}}\n',
        "made-up",
        "secret",
    ),
    Planted(
        "key file in a form",
        Place.FORM,
        urlencode({"k": armoured("PRIVATE")}),
        armoured("PRIVATE"),
        "private-key",
    ),
    Planted(
        "encoded header", Place.HEADER, encoded_header(f"é {GITHUB}"), GITHUB, "github"
    ),
)


def _from_file() -> list[Planted]:
    """Read the look-alikes that are kept as lines of a file."""
    rows = []
    for number, line in enumerate(_lines_of("look-alikes.txt"), start=1):
        place, _, raw = line.partition(" ")
        if raw:
            where = Place.RESULT if place == "json" else Place(place)
            rows.append(Planted(f"line {number} of look-alikes", where, _made_up(raw)))

    return rows


LOOK_ALIKES: tuple[Planted, ...] = (
    Planted("public key", Place.RESULT, json.dumps(armoured("PUBLIC"))),
    Planted("certificate", Place.RESULT, json.dumps(armoured("CERTIFICATE"))),
    Planted(
        "ids of JSON lines",
        Place.MESSAGE,
        '{"jsonrpc":"2.0","id":"SHAPE"}\n{"jsonrpc":"2.0","id":"SHAPE"}\n'.replace(
            "SHAPE", GITHUB
        ),
    ),
    Planted(
        "text with colons",
        Place.TEXT,
        "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n\r\n<b>secret: no</b>",
    ),
    *_from_file(),
)
"""What looks like a secret to a careless rule, and must stay byte for byte."""
