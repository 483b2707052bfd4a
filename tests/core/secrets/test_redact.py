from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, unquote, urlencode

import pytest
from core.secrets.planted import (
    BASIC,
    GITHUB,
    IN_CONTEXT,
    JUDGED,
    LOOK_ALIKES,
    PLANTED,
    SHAPES,
    Place,
    Planted,
    armoured,
    content_type_of,
    fill,
    message_of,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mrtr_cassette.core.secrets.names import renumber_secrets, without_numbers
from mrtr_cassette.core.secrets.redact import Redactor, keyed_hash
from mrtr_cassette.core.secrets.rules import (
    AMBIGUOUS_NAMES,
    CUSTOM_KEY,
    NAME_ENDINGS,
    RULE_BY_NAME,
    RULE_NAMES,
    RULES,
    ActiveRules,
    RedactionRules,
    UserRule,
)
from mrtr_cassette.core.secrets.shapes import Rule
from mrtr_cassette.core.wire.http import Request
from mrtr_cassette.errors import UsageError

STREAM = "text/event-stream"
FORM = "application/x-www-form-urlencoded"
JSON = "application/json"


def token(_rule: str, secret: str) -> str:
    """Stand for the recorder's keyed hash."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()[:12]


REDACTOR = Redactor(RedactionRules(), token)
ACTIVE = ActiveRules(RedactionRules())
WITH_PATTERNS = Redactor(
    RedactionRules(patterns=(r"[0-9]{3}", r"is (\w+)"), keys=("token", "ключ")),
    lambda _rule, _secret: "T",
)


def placeholder(rule: str, secret: str) -> str:
    """Return what stands for a secret."""
    return f"<{rule}:{token(rule, secret)}>"


def raw_of(row: Planted) -> bytes:
    """Return the bytes that a row is, or stands in."""
    return (
        row.raw.encode()
        if row.place in (Place.TARGET, Place.HEADER)
        else message_of(row)
    )


def redact(
    row: Planted, redactor: Redactor = REDACTOR, raw: bytes | None = None
) -> bytes:
    """Redact a row, or what it has become, by the way that its place takes."""
    raw = raw_of(row) if raw is None else raw
    match row.place:
        case Place.TARGET:
            return redactor.redacted_target(raw.decode()).encode()
        case Place.HEADER:
            return header_of(redactor, "x-other", raw.decode()).encode()
        case _:
            return redactor.redacted_body(raw, content_type_of(row))


def header_of(redactor: Redactor, name: str, value: str) -> str:
    """Redact the only header of a message; return its value."""
    ((_, redacted),) = redactor.redacted_headers(((name, value),))
    return redacted


def body(value: Any, redactor: Redactor = REDACTOR) -> Any:
    """Redact a value as a JSON body, and read it again."""
    return json.loads(redactor.redacted_body(json.dumps(value).encode(), JSON))


def spellings(text: str, depth: int = 4) -> Iterator[str]:
    """Yield a text and whatever a reader may find in it: strings of JSON, escapes of URLs."""
    yield text
    if depth == 0:
        return

    if "%" in text or "+" in text:
        yield from spellings(unquote(text), 0)
        yield from spellings(unquote(text.replace("+", " ")), depth - 1)

    for string in re.findall(r'"(?:[^"\\]|\\.)*"', text, re.DOTALL):
        try:
            inner = json.loads(string, strict=False)
        except ValueError:
            continue

        if inner != string[1:-1] or "%" in inner:
            yield from spellings(inner, depth - 1)


def is_same_name(before: str, after: str) -> bool:
    """Tell whether a name stayed, or became a placeholder."""
    return before == after or without_numbers(after) != after


def same_shape(before: Any, after: Any) -> bool:
    """Tell whether two values differ in strings and in what became a placeholder only."""
    if isinstance(before, dict | list):
        if type(after) is not type(before) or len(before) != len(after):
            return False

        if isinstance(before, list):
            return all(map(same_shape, before, after))

        has_names = all(map(is_same_name, before, after))
        return has_names and all(map(same_shape, before.values(), after.values()))

    if isinstance(before, str):
        return isinstance(after, str)
    if isinstance(after, str):
        return isinstance(before, int | float) and without_numbers(after) != after

    return before == after and type(before) is type(after)


# The planted secrets and the look-alikes


@pytest.mark.parametrize("row", PLANTED, ids=str)
def test_planted_secret_is_replaced_and_nothing_else(row: Planted) -> None:
    """A secret is found in its place by its rule, escapes undone; all around it stays, as JSON."""
    asked: list[tuple[str, str]] = []

    def remember(rule: str, secret: str) -> str:
        asked.append((rule, secret))
        return "0" * 12

    raw = raw_of(row)
    redacted = redact(row, Redactor(RedactionRules(), remember))

    assert set(asked) == {(row.rule, row.secret)}
    assert not any(
        row.secret in text for text in spellings(redacted.decode()) if row.secret
    )
    assert redact(row, raw=redacted) == redacted

    first, *_, last = re.split(rb"(?:<|%3C)[a-z0-9-]+:0{12}(?:>|%3E)", redacted)
    if row.rule.endswith("-number"):
        # A number's placeholder comes with quotes of its own.
        first = re.sub(rb'\\*"\Z', b"", first)
        last = re.sub(rb'\A\\*"', b"", last)

    if "encoded header" not in row.name:
        assert (raw.startswith(first), raw.endswith(last)) == (True, True)

    try:
        before = json.loads(
            raw.partition(b"data: ")[2] if row.place is Place.EVENT else raw
        )
    except ValueError:
        return

    after = json.loads(
        redacted.partition(b"data: ")[2] if row.place is Place.EVENT else redacted
    )

    assert same_shape(before, after)


@pytest.mark.parametrize("row", LOOK_ALIKES, ids=str)
def test_look_alike_stays(row: Planted) -> None:
    """What only looks like a secret stays byte for byte."""
    assert redact(row) == raw_of(row)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_shape_is_planted(rule: Any) -> None:
    """Each row of the table finds one of the planted secrets."""
    texts = [secret for _, secret in SHAPES]
    texts += [text.format(secret) for _, secret, text in IN_CONTEXT]
    texts.append("aws configure set aws_session_token made-up")
    texts.append(f"https://api.telegram.org/bot123456789:AA{fill(33)}/getMe")
    found = [text for text in texts if list(rule.secret_spans(text))]

    assert found, "plant a secret of this shape in tests/data/secrets/shapes.tsv"
    assert all(rule in ACTIVE.likely_rules(text) for text in found)


@pytest.mark.parametrize("name", RULE_BY_NAME)
def test_every_name_is_looked_for(name: str) -> None:
    """Each name makes its value a secret, however it is spelled; endings do in longer names."""
    rule = RULE_BY_NAME[name]

    longer = [f"main_{name}"] if name in NAME_ENDINGS else []
    for spelled in (name, name.upper(), f"-{name[:3]}_{name[3:]}", *longer):
        assert body({spelled: "made up"}) == {spelled: placeholder(rule, "made up")}


# Where secrets are looked for


def test_known_shape_under_a_name_is_called_by_its_shape() -> None:
    """The same secret has the same placeholder under a name and in other text."""
    found = body(
        {"password": GITHUB, "note": f"use {GITHUB}", "apiKey": f"use {GITHUB}"}
    )

    assert found["password"] == placeholder("github", GITHUB)
    assert found["note"] == f"use {placeholder('github', GITHUB)}"
    assert found["apiKey"] == placeholder("api-key", f"use {GITHUB}")


def test_ids_are_exempt_in_their_places_only() -> None:
    """A secret's shape is replaced under `id` and `requestState` anywhere else."""
    raw = json.dumps(
        {
            "jsonrpc": "2.0",
            "id": GITHUB,
            "params": {"id": GITHUB, "arguments": {"requestState": GITHUB}},
        }
    )

    tree = json.loads(REDACTOR.redacted_body(raw.encode(), JSON))

    assert (
        REDACTOR.redacted_body(b'{"id":{"password":"made up"}}', JSON)
        != b'{"id":{"password":"made up"}}'
    )

    assert tree["id"] == GITHUB
    assert tree["params"]["id"] == tree["params"]["arguments"]["requestState"] != GITHUB


@pytest.mark.parametrize("break_", ["\n", "\r\n"])
def test_ids_are_exempt_in_messages_of_several_lines(break_: str) -> None:
    """A state that is kept stays what the client has to send, and what the server has sent."""
    message = {
        "jsonrpc": "2.0",
        "id": GITHUB,
        "result": {"requestState": GITHUB, "password": "made up"},
    }

    raw = json.dumps(message, indent=1).replace("\n", break_)
    data = f"data: {raw.replace(break_, f'{break_}data: ')}{break_}{break_}"

    for text, content_type in ((raw, JSON), (data, STREAM)):
        redacted = REDACTOR.redacted_body(text.encode(), content_type).decode()

        assert redacted == text.replace("made up", placeholder("password", "made up"))


def test_value_under_the_name_of_an_id_is_searched() -> None:
    """An object or an array is no id, so what stands in it is like any other value."""
    raw = json.dumps(
        {"id": [{"id": GITHUB}], "result": {"requestState": {"requestState": GITHUB}}}
    )

    assert GITHUB.encode() not in REDACTOR.redacted_body(raw.encode(), JSON)


def test_messages_too_deep_to_read_are_redacted() -> None:
    """Nesting has no limit, as it has for those who read messages."""
    deep = b'{"a":[' * 50_000 + b'{"password":"made up"}'

    assert b"made up" not in REDACTOR.redacted_body(deep, JSON)


def test_event_stream_keeps_its_framing() -> None:
    """Secrets are replaced in data, in comments and in other fields, line by line."""
    key = armoured("PRIVATE")
    lines = "\r\n".join(f"data: {line}" for line in key.split("\n"))
    raw = f"\ufeff: {GITHUB}\r\nid:{GITHUB}\r\ndata\r\n\r\n{lines}\r\n\r\ndata:{GITHUB}\rretry: 5\n"

    redacted = REDACTOR.redacted_body(raw.encode(), STREAM).decode()

    new = placeholder("github", GITHUB)
    empty = "data: \r\n" * key.count("\n")

    assert redacted == (
        f"\ufeff: {new}\r\nid:{new}\r\ndata\r\n\r\n"
        f"data: {placeholder('private-key', key)}\r\n{empty}\r\ndata:{new}\rretry: 5\n"
    )


def test_data_of_several_lines_is_one_text() -> None:
    """A name and its value may stand in different data lines."""
    raw = b'data: {"jsonrpc":"2.0","id":1,"password":\ndata:"x","n":1}\n\n'

    assert REDACTOR.redacted_body(raw, STREAM) == raw.replace(
        b'"x"', b'"%s"' % placeholder("password", "x").encode()
    )


def test_json_is_recognised_under_any_media_type() -> None:
    """A body that is JSON is read as JSON, whatever it says it is."""
    raw = b'{"password":"a&client_secret=b"}'
    new = b'{"password":"%s"}' % placeholder("password", "a&client_secret=b").encode()

    assert (
        REDACTOR.redacted_body(raw, FORM)
        == REDACTOR.redacted_body(raw, "text/plain")
        == REDACTOR.redacted_body(raw, "")
        == new
    )


@pytest.mark.parametrize(
    "content_type", [JSON, FORM, STREAM, "text/html", "image/png", ""]
)
def test_bytes_that_are_no_text_are_searched(content_type: str) -> None:
    """In a body with NUL bytes that is not UTF-8, what is spelled as in ASCII is found."""
    raw = b"\x89PNG\0\0 %b\xff\0"

    redacted = REDACTOR.redacted_body(raw % GITHUB.encode(), content_type)

    new = placeholder("github", GITHUB)

    assert redacted in [
        raw % spelled.encode() for spelled in (new, quote(new, safe=":"))
    ]


@pytest.mark.parametrize(
    ("name", "value", "redacted"),
    [
        ("Mcp-Param-Password", "made up", placeholder("password", "made up")),
        (
            "mcp-param-api_key",
            "=?base64?bWFkZSB1cA==?=",
            placeholder("api-key", "made up"),
        ),
        ("Mcp-Param-Password", "", ""),
        ("Mcp-Param-Note", "password", "password"),
        ("Mcp-Param-Pin", "1234", placeholder("password", "1234")),
        ("Mcp-Param-Pass", "letmein", placeholder("password", "letmein")),
        ("Mcp-Param-Code", "US", "US"),
        ("Mcp-Name", "=?base64?w6k=?=", "=?base64?w6k=?="),
        ("Mcp-Name", "=?base64?w6k?=", "=?base64?w6k?="),
        ("Mcp-Method", "tools/call", "tools/call"),
    ],
)
def test_header_is_redacted_by_name_too(name: str, value: str, redacted: str) -> None:
    """A header that mirrors an argument with a secret's name has a secret."""
    assert header_of(REDACTOR, name, value) == redacted
    assert header_of(REDACTOR, name, redacted) == redacted


def test_target_stays_a_target() -> None:
    """Placeholders in a target have no character that a target may not have."""
    redacted = REDACTOR.redacted_target(
        f"/a/{GITHUB}?api_key=x&y=%20&access_token=a%3Cb#password=z"
    )

    assert redacted == (
        f"/a/%3Cgithub:{token('', GITHUB)}%3E?api_key=%3Capi-key:{token('', 'x')}%3E&y=%20"
        f"&access_token=%3Ctoken:{token('', 'a<b')}%3E#password=%3Cpassword:{token('', 'z')}%3E"
    )


# What is secret in which text


def secrets_of(text: str, kind: str = "text") -> list[tuple[str, str]]:
    """Return rule and secret of all that is replaced in a text, in order, each once."""
    asked: list[tuple[str, str]] = []

    def remember(rule: str, secret: str) -> str:
        asked.append((rule, secret))
        return "T"

    redactor = Redactor(RedactionRules(), remember)
    match kind:
        case "target":
            redactor.redacted_target(text)
        case "form":
            redactor.redacted_body(text.encode(), "application/x-www-form-urlencoded")
        case "stream":
            redactor.redacted_body(text.encode(), "text/event-stream")
        case _:
            redactor.redacted_body(text.encode(), "application/json")

    return list(dict.fromkeys(asked))


@pytest.mark.parametrize(("kind", "secrets", "text"), JUDGED)
def test_secrets_are_told_from_what_stands_around_them(
    kind: str, secrets: list[str], text: str
) -> None:
    """Names, companions and places decide, in JSON and however deep in strings of JSON."""
    for _ in range(4 if kind == "json" else 1):
        assert [secret for _, secret in secrets_of(text, kind)] == secrets

        text = json.dumps({"text": text})


@pytest.mark.parametrize(
    "value", ["A", "404", "US", "letters", "ERR_TLS", "code-AbCdEfGhIjKl_Mn-Op"]
)
@pytest.mark.parametrize(
    "proof", ["grant_type", "redirect_uri", "code_verifier", "access_token"]
)
def test_any_value_counts_where_the_place_proves_a_secret(
    value: str, proof: str
) -> None:
    """Beside what only an exchange of OAuth has, a value counts under every ambiguous name."""
    for name, known in AMBIGUOUS_NAMES.items():
        members = {name: value, proof: ""}
        form = urlencode({name: value, proof: ""})
        found = [
            secrets_of(json.dumps(members)),
            secrets_of(json.dumps(dict(reversed(members.items())))),
            secrets_of(json.dumps({"body": json.dumps(members)})),
            secrets_of(json.dumps({"body": form})),
            secrets_of(f"see https://a.example/cb?{form}#x"),
            secrets_of(form, "form"),
            secrets_of(f"{proof}=&note={'long' * 600}&{name}={value}", "form"),
            secrets_of(f"/cb?{form}", "target"),
        ]

        assert found == [[(known.rule, value)]] * len(found), name


@pytest.mark.parametrize(
    "code", ["code-AbCdEfGhIjKl_Mn-Op", "abcdefgh", "Letters-Only", "4" * 20]
)
def test_a_code_beside_a_state_is_a_secret(code: str) -> None:
    """A redirection back to a client has a secret whatever that looks like, and a long state."""
    state = "AbCdEfGhIjKlMnOpQrStUv"
    target = f"/cb?code={code}&state={state}&iss=x"

    assert secrets_of(target, "target") == [("token", code), ("token", state)]
    assert secrets_of(f"http://a.example{target}") == [
        ("token", code),
        ("token", state),
    ]


@pytest.mark.parametrize(
    "value", ["{{ token }}", "${TOKEN}", "<token>", "[a1b2c3d4]", "%(token1)s"]
)
def test_templates_are_no_secrets(value: str) -> None:
    """What stands for a value that is put in later is no secret under an ambiguous name."""
    text = json.dumps(
        {**dict.fromkeys(AMBIGUOUS_NAMES, value), "user": "u", "grant_type": "code"}
    )

    assert secrets_of(text) == []


ENV = "HOST=db.example.com\nDB_PASSWORD=made-up\n"
DOCKER = json.dumps({"auths": {"registry.example.com": {"auth": BASIC}}})


@pytest.mark.parametrize(
    ("template", "inner"),
    [
        ('{"a":"%s"}', ENV),
        ("apiVersion: v1\ndata:\n  .dockerconfigjson: %s\n", DOCKER),
        ("users:\n- user:\n    client-key-data: %s\n", armoured("PRIVATE")),
        ("config=%s", armoured("RSA PRIVATE")),
    ],
)
def test_text_in_base64_is_a_secret_if_it_contains_one(
    template: str, inner: str
) -> None:
    """It is replaced as a whole, wherever it stands; other base64 stays."""
    spelled = base64.b64encode(inner.encode()).decode()
    public = base64.b64encode(b"some words, and no more of them").decode()

    assert [secret for _, secret in secrets_of(template % spelled)] == [spelled]
    assert secrets_of(template % public) == []


@pytest.mark.parametrize("width", [None, 64, 76], ids=str)
@pytest.mark.parametrize("length", [60, 61, 62, 150, 151, 152])
@pytest.mark.parametrize(
    "template",
    ["key: %s is the key", "data:\n  key: %s\n  user: anybody\n", "%s\nwhich is all"],
)
def test_words_after_base64_hide_no_secret(
    template: str, length: int, width: int | None
) -> None:
    """Base64 of a multiple of three bytes has no padding, and may be broken into lines."""
    inner = ENV.ljust(length, "#")
    spelled = base64.b64encode(inner.encode()).decode()
    lines = [spelled]
    if width is not None:
        lines = [spelled[at : at + width] for at in range(0, len(spelled), width)]

    wrapped = "\n".join(lines)

    assert [secret for _, secret in secrets_of(template % wrapped)] == [wrapped]


# Rules of the user's own


def test_custom_pattern_is_matched_in_the_text_of_strings() -> None:
    """Group 1 is the secret if there is one; of keys only those with a digit are matched."""
    rules = RedactionRules(
        patterns=(r"EMP-\d+", r"ticket (\w+)", r"x(y)?", "ticket_id")
    )
    redactor = Redactor(rules, lambda _rule, secret: secret.replace(" ", "_"))
    raw = b'{"EMP-1":{"ticket_id":1},"m":"EMP-2 \\u0045MP-3","a":"ticket T\\u0031","n":"x","b":"{\\"c\\":\\"EMP-4\\"}"}'

    assert redactor.redacted_body(raw, JSON) == (
        b'{"<custom-1:EMP-1>":{"ticket_id":1},"m":"<custom-1:EMP-2> <custom-1:EMP-3>","a":"ticket <custom-2:T1>","n":"x",'
        b'"b":"{\\"c\\":\\"<custom-1:EMP-4>\\"}"}'
    )

    assert redactor.redacted_target("/EMP%2D7") == "/%3Ccustom-1:EMP-7%3E"
    assert redactor.redacted_text("EMP-5.") == "<custom-1:EMP-5>."


def test_custom_pattern_may_match_anything_within_a_string() -> None:
    """Whatever a pattern matches, JSON stays JSON and framing stays framing."""
    redactor = Redactor(RedactionRules(patterns=(r"(?s).+",)), token)

    assert body({"a": ["b\n", 1, None, {"c": '"'}]}, redactor) == {
        "a": [
            placeholder("custom-1", "b\n"),
            placeholder("custom-1-number", "1"),
            None,
            {"c": placeholder("custom-1", '"')},
        ]
    }
    assert (
        redactor.redacted_body(b"id: 1\ndata: a\ndata: b\n\n", STREAM).count(b"\n") == 4
    )


def test_custom_pattern_is_matched_in_numbers() -> None:
    """A number of which a part matches is replaced, also in a string; one of the protocol stays."""
    rules = RedactionRules(patterns=(r"\d{8}", "true"))
    redactor = Redactor(rules, lambda _rule, secret: secret)
    fields = '{"id":41111111,"b":[true,-1e5,4111111122.5],"c":"%s"}'
    in_string = json.dumps('{"d":41111111}')[1:-1]
    raw = '{"jsonrpc":"2.0","id":41111111,"params":%s}' % (fields % in_string)

    redacted = redactor.redacted_body(raw.encode(), JSON).decode()

    shown = '"<custom-1-number:41111111>"'
    in_string_shown = json.dumps('{"d":' + shown + "}")[1:-1]
    fields_shown = fields % in_string_shown
    fields_shown = fields_shown.replace('"id":41111111', f'"id":{shown}')
    fields_shown = fields_shown.replace(
        "4111111122.5", '"<custom-1-number:4111111122.5>"'
    )

    assert redacted == raw.replace(fields % in_string, fields_shown)
    assert redactor.redacted_body(f"data: {raw}\n\n".encode(), STREAM).decode() == (
        f"data: {redacted}\n\n"
    )
    assert (
        redactor.redacted_text("41111111 true") == "<custom-1:41111111> <custom-2:true>"
    )


def test_pattern_leaves_the_lines_of_an_event() -> None:
    """A pattern that matches over several lines of data leaves their fields."""
    redactor = Redactor(
        RedactionRules(patterns=(r"(?s)b.*",)), lambda _rule, _secret: "T"
    )
    raw = b"data: ab\ndata\ndata:\ndata: c\n\n"

    assert (
        redactor.redacted_body(raw, STREAM)
        == b"data: a<custom-1:T>\ndata\ndata:\ndata: c\n\n"
    )


def test_custom_key_is_a_name() -> None:
    """Further names are folded as the others are, and win over them."""
    redactor = Redactor(
        RedactionRules(keys=("Licence-Key", "token", "ключ", "password")), token
    )
    alone = Redactor(RedactionRules(keys=("progressToken",)), token)

    assert body({"progressToken": "x"}, alone) == {
        "progressToken": placeholder("custom-key", "x")
    }

    new = placeholder("custom-key", "x")

    assert body(
        {"licenceKey": "x", "TOKEN": "x", "КЛЮЧ": "x", "password": "x"}, redactor
    ) == {
        "licenceKey": new,
        "TOKEN": new,
        "КЛЮЧ": new,
        "password": new,
    }


def test_rules_and_names_can_be_switched_off() -> None:
    """A rule is switched off with all its names, and a name alone."""
    value = {"password": "x", "passwd": "x", "secret": "x", "a": GITHUB}

    without = Redactor(RedactionRules(disabled=("password", "github")), token)

    assert body(value, without) == {**value, "secret": placeholder("secret", "x")}

    without = Redactor(RedactionRules(disabled=("PASSWD", "db_password")), token)

    assert body({**value, "dbPassword": "x"}, without) == {
        "password": placeholder("password", "x"),
        "passwd": "x",
        "secret": placeholder("secret", "x"),
        "a": placeholder("github", GITHUB),
        "dbPassword": "x",
    }

    without = Redactor(RedactionRules(disabled=("bearer",)), token)

    assert body({"authorization": "Bearer x"}, without) == {
        "authorization": f"Bearer {placeholder('authorization', 'x')}"
    }


def test_all_rules_can_be_switched_off() -> None:
    """With every rule off nothing is redacted."""
    nothing = Redactor(RedactionRules(disabled=tuple(RULE_NAMES - {CUSTOM_KEY})), token)

    for row in PLANTED:
        assert redact(row, nothing) == raw_of(row)


def test_replay_finds_what_was_recorded() -> None:
    """Numbered placeholders and a constant token are the same without numbers."""
    raw = json.dumps(
        {"password": "made up", "note": f"{GITHUB} and {JWT_URL}"}
    ).encode()
    recorded = renumber_secrets(
        REDACTOR.redacted_body(raw, JSON), lambda _rule, _token: 3
    ).decode()
    received = (
        Redactor(RedactionRules(), lambda _rule, _secret: "0")
        .redacted_body(raw, JSON)
        .decode()
    )

    assert without_numbers(recorded) == without_numbers(received)
    assert REDACTOR.redacted_body(recorded.encode(), JSON).decode() == recorded


JWT_URL = "https://example.com/?id_token=made-up"


# Laws

PLAIN_SECRETS = [secret for _, secret in SHAPES]
NAMED = [
    "password",
    "clientSecret",
    "API_KEY",
    "access-token",
    "Set-Cookie",
    "credentials",
]
AROUND = st.sampled_from(
    ["", " ", "\n", "see: ", "é ", '"', "'", "(", "/", "=", "\t", ", "]
)

leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from([row.raw for row in LOOK_ALIKES if row.place is Place.TARGET])
)
names = st.text(max_size=8) | st.sampled_from(
    ["id", "token", "params", "name", "requestState", "_meta"]
)


@st.composite
def secrets_in_text(draw: st.DrawFn) -> str:
    """Make a text with a secret that its shape tells."""
    return (
        draw(AROUND)
        + draw(st.sampled_from(PLAIN_SECRETS))
        + draw(st.sampled_from(["", " ", "\n", '"', "'", ")"]))
    )


def trees(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Make JSON values with some of `inner` in them."""
    return st.recursive(
        inner,
        lambda deeper: (
            st.lists(deeper, max_size=3)
            | st.dictionaries(names, deeper, max_size=3)
            | deeper.map(json.dumps)
            | deeper.map(lambda value: {"password": value})
        ),
        max_leaves=8,
    )


spellers: st.SearchStrategy[Callable[[Any], bytes]] = st.sampled_from(
    [
        lambda value: json.dumps(value).encode(),
        lambda value: json.dumps(value, ensure_ascii=False, indent=1).encode(
            "utf-8", "surrogatepass"
        ),
        lambda value: (
            json.dumps(value, separators=(",", ":")).replace("/", "\\/").encode()
        ),
        lambda value: (
            json.dumps(value).replace("_", "\\u005f").replace("k", "\\u006B").encode()
        ),
    ]
)


named_secrets = st.tuples(
    st.sampled_from(NAMED), st.text('äöü🔑"\\/\n', min_size=1, max_size=9)
).map(lambda pair: {pair[0]: f"made-up{pair[1]}"})


@settings(max_examples=60)
@given(
    st.dictionaries(
        names, trees(secrets_in_text() | named_secrets), min_size=1, max_size=3
    ),
    spellers,
)
def test_no_secret_survives(value: Any, spell: Callable[[Any], bytes]) -> None:
    """Wherever a shape or a name tells a secret in JSON, it is gone, and the JSON has its shape."""
    raw = spell({"params": {"arguments": value}})

    redacted = REDACTOR.redacted_body(raw, JSON)

    for text in spellings(redacted.decode("utf-8", "surrogatepass"), 6):
        assert not any(secret in text for secret in (*PLAIN_SECRETS, "made-up"))

    assert same_shape(json.loads(raw), json.loads(redacted))
    assert REDACTOR.redacted_body(redacted, JSON) == redacted


@example(
    {"a": "password%22=", "b": ["api_key%22%3D", "x"]},
    lambda value: json.dumps(value).encode(),
)
@given(trees(leaves), spellers)
def test_json_keeps_its_shape(value: Any, spell: Callable[[Any], bytes]) -> None:
    """Whatever is replaced, keys, brackets and what is no string stay."""
    raw = spell(value)

    redacted = REDACTOR.redacted_body(raw, JSON)

    assert same_shape(json.loads(raw), json.loads(redacted))

    for redactor in (REDACTOR, WITH_PATTERNS):
        once = redactor.redacted_body(raw, JSON)

        assert same_shape(json.loads(raw), json.loads(once))
        assert redactor.redacted_body(once, JSON) == once


@given(
    st.lists(
        st.sampled_from([row for row in LOOK_ALIKES if row.place is Place.RESULT]),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from(PLAIN_SECRETS),
)
def test_look_alikes_stay_beside_a_secret(rows: list[Planted], secret: str) -> None:
    """A body that has a secret keeps all that is none."""
    spelled = json.dumps(secret)[1:-1]
    raw = f'{{"a":[{",".join(row.raw for row in rows)}],"b":"{spelled}"}}'
    rule = next(rule for rule, planted in SHAPES if planted == secret)

    assert REDACTOR.redacted_body(raw.encode(), JSON).decode() == raw.replace(
        spelled, placeholder(rule, secret)
    )


WORDS = """
password secret api_key Authorization cookie token id params 123 https:// u:p@h %22 %3C %3E
\\u005f \\n T made-up made-up-w0rd <password:T> %3Cjwt:T%3E <custom-1:x> %3Cpassword%3AT%3E
"""
PIECES = st.sampled_from(
    [
        *"{}[]:,=&?#;%+@/\\\"'<> \n\r\x00é",
        *WORDS.split(),
        "data: ",
        "is ",
        "Bearer ",
        "Basic ",
        "-----BEGIN PRIVATE KEY-----",
        GITHUB,
        JWT_URL,
        armoured("PRIVATE", 1),
        f"sig={fill(44)}",
        "0" * 20,
    ]
)
MESS = st.lists(PIECES | st.text(max_size=3), max_size=14).map("".join)


@given(MESS, st.sampled_from([JSON, FORM, STREAM, "text/plain"]))
@example("password=%3Cpassword:T%3E", FORM)
def test_redacting_is_idempotent(text: str, content_type: str) -> None:
    """What has been redacted isn't changed by doing it again, also with any custom pattern."""
    raw = text.encode("utf-8", "surrogatepass")
    for redactor in (REDACTOR, WITH_PATTERNS):
        once = redactor.redacted_body(raw, content_type)

        assert redactor.redacted_body(once, content_type) == once

        plain = redactor.redacted_text(text)

        assert redactor.redacted_text(plain) == plain

        target = redactor.redacted_target(text)

        assert redactor.redacted_target(target) == target

        header = header_of(redactor, "Mcp-Param-Authorization", text)

        assert header_of(redactor, "Mcp-Param-Authorization", header) == header


@given(
    st.sampled_from(
        [row for row in PLANTED if row.place not in (Place.TARGET, Place.HEADER)]
    ),
    st.data(),
)
def test_cut_body_is_safe(row: Planted, data: st.DataObject) -> None:
    """A body that broke off anywhere is redacted as far as it goes, and the same again."""
    raw = message_of(row)
    cut = raw[: data.draw(st.integers(0, len(raw)))]

    once = REDACTOR.redacted_body(cut, content_type_of(row))

    assert REDACTOR.redacted_body(once, content_type_of(row)) == once

    is_word = re.search(rb"\W", row.secret.encode() if row.secret else b" ") is None
    # What stands before a host is none where the host is cut off.
    if is_word and row.depends_on.encode() in cut and row.rule != "url-password":
        assert (row.secret or "").encode() not in once


@given(MESS)
def test_framing_of_events_stays(text: str) -> None:
    """An event stream has the same lines with the same fields; other lines stay no fields."""
    fields = {b"", b"data", b"event", b"id", b"retry"}
    raw = text.encode("utf-8", "surrogatepass")

    for redactor in (REDACTOR, WITH_PATTERNS):
        redacted = redactor.redacted_body(raw, STREAM)
        lines = re.split(rb"\r\n|\r|\n", raw)
        if b"\0" not in raw:
            new = re.split(rb"\r\n|\r|\n", redacted)
            for line, new_line in zip(lines, new, strict=True):
                name, _, _ = line.partition(b":")
                new_name, _, _ = new_line.partition(b":")
                if name in fields:
                    assert new_name == name
                else:
                    assert new_name not in fields


def test_request_is_redacted_in_all_its_parts() -> None:
    """Target, headers and body of a request are redacted."""
    headers = (("Content-Type", FORM), ("Mcp-Param-Api-Key", "x"))
    request = Request("POST", "/a?api_key=x", headers, b"api_key=x")

    new = placeholder("api-key", "x")
    in_url = new.replace("<", "%3C").replace(">", "%3E")

    assert REDACTOR.redacted_request(request) == Request(
        "POST",
        f"/a?api_key={in_url}",
        (("Content-Type", FORM), ("Mcp-Param-Api-Key", new)),
        f"api_key={in_url}".encode(),
    )


def test_hash_of_a_secret_depends_on_its_key() -> None:
    """The same secret has the same token under one key, whatever its rule, and another elsewhere."""
    hashed = keyed_hash(b"1" * 16)
    hashed_elsewhere = keyed_hash(b"2" * 16)
    tokens = {
        hashed("jwt", "x"),
        hashed("jwt", "y"),
        hashed("jwt", "\ud800"),
        hashed_elsewhere("jwt", "x"),
    }

    assert hashed("jwt", "x") == hashed("password", "x")
    assert len(tokens) == 4
    assert re.fullmatch("[0-9a-f]{24}", hashed("jwt", "x"))


# Rules


@pytest.mark.parametrize(
    ("rules", "named"),
    [
        ({"patterns": ("(",)}, "'\\('.*not a regular expression"),
        ({"patterns": ("a", "b*")}, "'b\\*'.*empty"),
        (
            {"patterns": ("a{1001}",)},
            "not a regular expression: invalid repetition size",
        ),
        ({"patterns": ("(?<=a)b",)}, "invalid perl operator"),
        (
            {"patterns": ("(a)\\1",)},
            "not a regular expression: invalid escape sequence",
        ),
        ({"patterns": ("\ud800",)}, "half of a surrogate pair"),
        ({"patterns": ("(" * 500 + "a*" + ")" * 500,)}, "empty"),
        ({"keys": ("",)}, "''"),
        ({"keys": ("-_",)}, "'-_'"),
        ({"disabled": ("passwort",)}, "'passwort'.*api-key, .*password"),
        ({"disabled": ("token", "custom-1")}, "'custom-1'"),
        ({"disabled": ("cursor",)}, "'cursor'"),
    ],
)
def test_rules_that_cannot_be_meant_are_refused(
    rules: dict[str, tuple[str, ...]], named: str
) -> None:
    """The message names what is wrong."""
    with pytest.raises(ValueError, match=named):
        RedactionRules(**rules)


def test_a_name_is_ambiguous_or_not() -> None:
    """No name is both, and each ending is a name."""
    assert not [
        name
        for name in AMBIGUOUS_NAMES
        if name in RULE_BY_NAME or name.endswith(NAME_ENDINGS)
    ]
    assert set(NAME_ENDINGS) <= set(RULE_BY_NAME)


# Shapes

BY_NAME = {rule.name: rule for rule in RULES}


def found(rule: Rule | UserRule, text: str) -> list[str]:
    """Return what a rule finds in a text."""
    raw = text.encode("utf-8", "surrogatepass")
    if isinstance(rule, Rule):
        spans = rule.secret_spans(raw.decode("latin-1"))
    else:
        spans = rule.secret_spans(raw)

    return [raw[start:end].decode("utf-8", "surrogatepass") for start, end in spans]


@pytest.mark.parametrize("between", [" ", "\n", "é🔑", "\ud800", '"', ","])
def test_token_begins_after_what_is_no_letter(between: str) -> None:
    """What ends one token may begin the next one, and no offset is lost to characters."""
    text = f"é{GITHUB}{between}{GITHUB}"

    assert found(BY_NAME["github"], text) == [GITHUB, GITHUB]
    assert found(BY_NAME["github"], f"x{GITHUB}") == []


@pytest.mark.parametrize(
    ("pattern", "text", "secrets"),
    [
        (r"EMP-\d+", "EMP-1 EMP-2", ["EMP-1", "EMP-2"]),
        (r"x(y)?", "x xy", ["y"]),
        (r"(?s)b.*", "a" * 10_000 + "b" * 10_000, ["b" * 10_000]),
        (r"[à-ü]+", "abc äöü", ["äöü"]),
        (r"a$", "aaa", ["a"]),
        (r"\b", "a b", []),
        (r"x", "", []),
    ],
)
def test_pattern_of_a_user_finds_all_matches(
    pattern: str, text: str, secrets: list[str]
) -> None:
    """Group 1 is the secret if there is one, however far the match is from the last one."""
    assert found(UserRule("custom-1", pattern), text) == secrets


def test_pattern_without_its_engine_is_one_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Patterns that tell where something is need an extra; it is named, and how it is installed."""
    monkeypatch.setitem(sys.modules, "re2", None)

    with pytest.raises(UsageError, match="needs the package google-re2") as refused:
        RedactionRules(patterns=("never-compiled-before-[0-9]",))

    assert "pip install 'mrtr-cassette[re2]'" in str(refused.value.hint)
