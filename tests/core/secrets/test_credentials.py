"""Facts about credentials that pass in headers and are repeated elsewhere."""

from __future__ import annotations

from base64 import b64encode

import pytest

from mrtr_cassette.core.secrets.credentials import Credentials, UserSettings
from mrtr_cassette.core.secrets.names import sealed_hash
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.secrets.values import Values
from mrtr_cassette.core.wire.http import Headers, Request

BASIC = "Basic " + b64encode(b"bob:hunter2-4711").decode()


def credentials(
    *headers: tuple[str, str], ours: bool = False, disabled: str = ""
) -> Credentials:
    """Return what knows the credentials in these headers."""
    rules = RedactionRules(disabled=(disabled,) if disabled else ())
    made = Credentials(Redactor(rules, lambda _rule, _secret: "1"))
    made.add_headers(headers, are_from_user=ours)

    return made


@pytest.mark.parametrize(
    ("name", "value", "text", "sealed"),
    [
        ("Authorization", "Bearer kq7x-4711", "is kq7x-4711!", "is <authorization:1>!"),
        ("authorization", "kq7x-4711", "is kq7x-4711!", "is <authorization:1>!"),
        ("Proxy-Authorization", "Token  kq7x-4711", "kq7x-4711", "<authorization:1>"),
        ("Authorization", BASIC, "hunter2-4711", "<authorization:1>"),
        ("Authorization", BASIC, "bob:hunter2-4711", "<authorization:1>"),
        ("Authorization", BASIC, BASIC, "Basic <authorization:1>"),
        ("Authorization", "Basic no base64!", "no base64!", "<authorization:1>"),
        ("X-Api-Key", "kq7x-4711", "kq7x-4711", "<api-key:1>"),
        ("X-Auth-Token", "kq7x-4711", "kq7x-4711", "<token:1>"),
        ("X-Vault-Token", "kq7x-4711", "kq7x-4711", "<token:1>"),
        ("X-Next-Token", "kq7x-4711", "kq7x-4711", "kq7x-4711"),
        (
            "Cookie",
            'a=b; sid="kq7x-4711"; theme=dark-mode',
            "kq7x-4711 dark-mode",
            "<cookie:1> dark-mode",
        ),
        (
            "Set-Cookie",
            "sid=kq7x-4711; Path=/some/path7",
            "kq7x-4711 /some/path7",
            "<cookie:1> /some/path7",
        ),
        ("Authorization", "Bearer kq7x-47", "is kq7x-47!", "is kq7x-47!"),
        ("X-Tenant", "kq7x-4711", "kq7x-4711", "kq7x-4711"),
        ("Mcp-Session-Id", "kq7x-4711", "kq7x-4711", sealed_hash("kq7x-4711")),
    ],
)
def test_credential_is_replaced_wherever_it_is_repeated(
    name: str, value: str, text: str, sealed: str
) -> None:
    """What a header makes a credential is one in all other text, from 8 characters on."""
    known = credentials((name, value))

    assert known.known_secrets.sealed_text(text) == sealed
    assert known.known_secrets.sealed_bytes(text.encode()) == sealed.encode()


@pytest.mark.parametrize(
    ("name", "value", "is_one"),
    [
        ("X-Tenant", "kq7x-4711", True),
        ("X-Tenant", "production", False),
        ("X-Tenant", "20260728", False),
        ("X-Mode", "read only, no write", False),
        ("Accept-Encoding", "gzip;q=1.0", False),
        ("User-Agent", "agent/1.0-beta", False),
        ("MCP-Protocol-Version", "2026-07-28", False),
    ],
)
def test_header_that_a_user_adds_may_be_a_credential(
    name: str,
    value: str,
    is_one: bool,  # noqa: FBT001
) -> None:
    """What a user gives to the recorder is one, unless it is known to be none or reads as words."""
    assert (
        credentials((name, value), ours=True).known_secrets.sealed_text(value) != value
    ) is is_one


@pytest.mark.parametrize("disabled", ["authorization", "credentials"])
def test_rule_that_is_switched_off_makes_no_credential(disabled: str) -> None:
    """What a user switched off stays readable."""
    headers: Headers = (
        ("Authorization", "Bearer kq7x-4711"),
        ("X-Tenant", "kq7x-4712"),
    )

    sealed = credentials(
        *headers, ours=True, disabled=disabled
    ).known_secrets.sealed_text("kq7x-4711 kq7x-4712")

    assert ("kq7x-4711" in sealed) is (disabled == "authorization")
    assert ("kq7x-4712" in sealed) is (disabled == "credentials")


def test_credential_is_replaced_in_all_parts_of_a_request() -> None:
    """Target, headers and body of a request are searched; a target stays one."""
    known = credentials(("Authorization", "Bearer kq7x/4711"))
    headers = (("Mcp-Param-Note", "has kq7x/4711"),)
    request = Request(
        "POST", "/mcp/kq7x/4711?a=kq7x%2F4711", headers, b'{"a":"kq7x\\/4711"}'
    )

    assert known.known_secrets.sealed_request(request) == Request(
        "POST",
        "/mcp/%3Cauthorization:1%3E?a=%3Cauthorization%3A1%3E",
        (("Mcp-Param-Note", "has <authorization:1>"),),
        b'{"a":"<authorization:1>"}',
    )


def test_a_request_without_secrets_is_not_copied() -> None:
    """A replay keeps many, and reads a client's request once if it stays as it came."""
    redactor = Redactor(RedactionRules(), lambda _rule, _secret: "1")
    known = credentials(("Authorization", "Bearer kq7x/4711")).known_secrets
    values = Values((), {"root": "/srv/kq7x"})
    request = Request("POST", "/mcp", (("Accept", "text/html"),), b'{"a":"b"}')

    assert redactor.redacted_request(request) is request
    assert known.sealed_request(request) is request
    assert values.sealed_request(request) is request


def test_session_ids_of_a_replay_stay() -> None:
    """A replay gives surrogates out, which are no credentials."""
    known = Credentials(
        Redactor(RedactionRules(), lambda *_: "1"), seals_sessions=False
    )
    known.add_headers((("Mcp-Session-Id", "mrtr-session:1"),))

    assert known.known_secrets.sealed_text("mrtr-session:1") == "mrtr-session:1"


def test_what_a_user_gives_is_never_forgotten() -> None:
    """Headers, URL, command and environment have credentials by name or shape, and in base64."""
    config = b64encode(b'{"apiKey":"kq7x-inner"}').decode()
    known = credentials()
    known.add_settings(
        UserSettings(
            headers=(("X-Tenant", "kq7x-tenant"),),
            query=(("x-vault-token", "kq7x-query"),),
            target=f"/mcp?config={config}",
            environment=(
                ("SERVICE_TOKEN", "kq7x-variable"),
                ("DB_PASSWORD", "postgres"),
            ),
            command="server --api-key=kq7x-argument postgres://bob:kq7x-url@db",
        )
    )

    for number in range(1000):
        known.add_headers((("Set-Cookie", f"sid=cookie-{number:04}"),))

    words = f"kq7x-tenant kq7x-query {config} kq7x-inner kq7x-variable kq7x-argument kq7x-url"
    sealed = known.known_secrets.sealed_text(f"{words} postgres")

    assert sealed.count(":1>") == 7
    assert "kq7x" not in sealed
    assert sealed.endswith(" postgres")


def test_what_a_user_gives_is_never_forgotten_if_it_was_seen_before() -> None:
    """A server may have shown it before its user gave it, and others come after it."""
    redactor = Redactor(RedactionRules(), lambda _rule, _secret: "1")
    known = Credentials(redactor)
    redactor.redacted_body(b'{"access_token":"kq7x-4711"}', "application/json")
    known.add_headers((("X-Api-Key", "kq7x-header"),))
    known.add_settings(
        UserSettings(headers=(("X-Api-Key", "kq7x-header"),), secrets=("kq7x-4711",))
    )
    forget_found_secrets(redactor)

    assert "kq7x" not in known.known_secrets.sealed_text("kq7x-4711 kq7x-header")


def forget_found_secrets(redactor: Redactor) -> None:
    """Let a redactor find so many secrets that those it has found before are forgotten."""
    for number in range(300):
        redactor.redacted_body(
            b'{"password":"other-secret-%d"}' % number, "application/json"
        )


@pytest.mark.parametrize(
    "request_",
    [
        Request("POST", "/mcp?api_key=kq7x-4711", (), b""),
        Request("POST", "/mcp", (("Referer", "https://a/?api_key=kq7x-4711"),), b""),
        Request("POST", "/mcp", (("Mcp-Param-Pin-Code", "kq7x-4711"),), b""),
    ],
    ids=["target", "URL in a header", "header"],
)
def test_secret_of_a_client_is_known_for_as_long_as_it_is_sent(
    request_: Request,
) -> None:
    """It is told of again with each request, though its redacted form is remembered."""
    redactor = Redactor(RedactionRules(keys=("pin-code",)), lambda _rule, _secret: "1")
    known = Credentials(redactor).known_secrets
    redacted = redactor.redacted_request(request_)
    forget_found_secrets(redactor)
    forgotten = known.sealed_text("is kq7x-4711")
    again = redactor.redacted_request(request_)

    assert forgotten == "is kq7x-4711"
    assert again == redacted != request_
    assert known.sealed_text("is kq7x-4711") in {"is <api-key:1>", "is <custom-key:1>"}
