"""The secrets that clients send, those among them that are only found by their recorded places."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.cassette.entries import RECEIVED
from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.cassette.texts import request_with_changed_texts
from mrtr_cassette.core.protocol.calls import Call, read_call
from mrtr_cassette.core.secrets.credentials import (
    Credentials,
    RepeatedSecrets,
    UserSettings,
    is_secret_anywhere,
)
from mrtr_cassette.core.secrets.names import (
    Ref,
    secrets_in,
    with_changed_refs,
    without_numbers,
)
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.wire.http import SESSION_HEADER, Headers, Request
from mrtr_cassette.core.wire.jsonbytes import MemberPath
from mrtr_cassette.core.wire.pointers import texts_in, value_at

NOT_ISSUED_MARK: Final = "not-issued"
"""The token of what looks like a placeholder and stands in no response."""

_MOST_PLACED_SECRETS: Final = 64
"""At most this many placeholders are kept of one member, for all calls of a tool."""

_STAND_IN_PREFIX: Final = "Kq7x9Zw4vT8m"
"""Begins what stands for a secret where it is asked whether rules find it by themselves."""

LearnedSecrets = dict[tuple[str, Ref], str]
"""What the clients of sessions sent for recorded secrets that are told nowhere before."""


class _PlacedSecret(NamedTuple):
    """A recorded placeholder, and what stands before and behind it in its text.

    Attributes:
        was_found_earlier: an earlier request has the secret where it is found by itself, as by its
            name.
    """

    text_before: str
    text_after: str
    secret: Ref
    was_found_earlier: bool = False

    def secret_in_text(self, text: str) -> str:
        """Return what a client's text has in its place, or nothing if that can be no secret."""
        if not text.startswith(self.text_before) or not text.endswith(self.text_after):
            return ""

        end_of_secret = len(text) - len(self.text_after)
        placed_text = text[len(self.text_before) : end_of_secret]
        if NOT_ISSUED_MARK in placed_text or any(map(str.isspace, placed_text)):
            return ""

        return placed_text if is_secret_anywhere(self.secret.kind, placed_text) else ""


_PlacesByMember = dict[MemberPath, set[_PlacedSecret]]


def numbering_redactor(rules: RedactionRules) -> Redactor:
    """Return what replaces secrets that a request has, each by one of its own."""
    token_by_secret: dict[tuple[str, str], str] = {}

    def token_of_secret(rule: str, secret: str) -> str:
        return token_by_secret.setdefault(
            (rule, secret), f"{RECEIVED}{len(token_by_secret)}"
        )

    return Redactor(rules, token_of_secret)


class SentSecrets:
    """The secrets that the clients of a replay have sent, and their placeholders.

    Attributes:
        learned: what clients sent for secrets that are told nowhere before; None where nothing is
            remembered from one request to the next.
    """

    def __init__(self, rules: RedactionRules, *, remembers: bool) -> None:
        """Take the rules by which secrets are found."""
        self.learned: LearnedSecrets | None = {} if remembers else None
        self._redactor = numbering_redactor(rules)
        self._credentials = Credentials(self._redactor, seals_sessions=False)
        # The credentials know what was given or is in headers; what is found is known apart.
        self._redactor.on_find = self._note_found_secret
        self._secrets_sent_before = RepeatedSecrets()
        """The secrets that clients have sent, which no message shows."""
        self._secrets_sent_now = RepeatedSecrets()
        """The secrets of the request that is read."""

    def add_settings(self, settings: UserSettings) -> None:
        """Take credentials, to be looked for in what clients send from now on."""
        self._credentials.add_settings(settings)

    def add_headers(self, headers: Headers) -> None:
        """Take the credentials in the headers of a request."""
        self._credentials.add_headers(headers)

    def begin_request(self) -> None:
        """Find the secrets of another request."""
        self._secrets_sent_now = RepeatedSecrets()

    def _note_found_secret(self, rule: str, secret: str) -> None:
        """Take note of a secret that a client has sent."""
        if not is_secret_anywhere(rule, secret):
            return

        for secrets_sent in (self._secrets_sent_now, self._secrets_sent_before):
            secrets_sent.add_known_text(
                secret, self._redactor.placeholder(rule, secret)
            )

    def redacted_request(self, request: Request) -> Request:
        """Return a request without the secrets that rules find, and without credentials."""
        without_found_secrets = self._redactor.redacted_request(request)
        return self._credentials.known_secrets.sealed_request(without_found_secrets)

    def without_repeated_secrets(self, request: Request) -> Request:
        """Return a request without the secrets that are known wherever they are repeated."""
        if self.learned is None:
            return self._secrets_sent_now.sealed_request(request)
        return self.without_all_secrets(request)

    def without_all_secrets(self, request: Request) -> Request:
        """Return a request without any secret that a client has sent."""
        return self._secrets_sent_before.sealed_request(request)

    def without_texts_of_secrets(
        self, request: Request, text_by_secret: Mapping[Ref, str]
    ) -> Request:
        """Return a request without the texts that it has for recorded secrets."""
        secrets_in_places = RepeatedSecrets()
        for secret, text in text_by_secret.items():
            secrets_in_places.add_known_text(
                text, self._redactor.placeholder(secret.kind, text)
            )

        return secrets_in_places.sealed_request(request)

    def learn(self, session: str, text_by_secret: Mapping[Ref, str]) -> None:
        """Remember what the client of a session has sent for recorded secrets."""
        if self.learned is not None:
            for secret, text in text_by_secret.items():
                self.learned[session, secret] = text

    def shown_text(self, text: str) -> str:
        """Return a text for the terminal, without known secrets."""
        return without_numbers(self._redactor.redacted_text(text))

    def shown_target(self, target: str) -> str:
        """Return a request's target for the terminal, without known secrets."""
        return without_numbers(self._redactor.redacted_target(target))


class PlacedSecrets:
    """Where recorded calls have placeholders, which is found out once for all plays."""

    def __init__(
        self, cassette: Cassette, seal_request: Callable[[Request], Request]
    ) -> None:
        """Take a cassette, and what seals the states of its requests."""
        self._cassette = cassette
        self._seal_request = seal_request

    @cached_property
    def _places_by_call(self) -> dict[tuple[str, str], _PlacesByMember]:
        """The placeholders by method and name, and by member."""
        rules = self._cassette.redaction or RedactionRules()
        redactor = numbering_redactor(rules)
        exchanges = list(self._cassette.exchanges)
        exchanges.sort(key=lambda exchange: exchange.number or float("inf"))
        places_by_call: dict[tuple[str, str], _PlacesByMember] = {}
        found_earlier: set[Ref] = set()
        for exchange in exchanges:
            redacted_request = redactor.redacted_request(
                self._seal_request(exchange.request)
            )
            call = read_call(redacted_request)
            for path, placed_secret in _placeholders_in(call):
                places_by_member = places_by_call.setdefault(
                    (call.method, call.name), {}
                )
                places = places_by_member.setdefault(path, set())
                if len(places) < _MOST_PLACED_SECRETS:
                    was_found_earlier = placed_secret.secret in found_earlier
                    places.add(
                        placed_secret._replace(was_found_earlier=was_found_earlier)
                    )

            found_earlier |= _secrets_found_in(redacted_request, rules)

        return places_by_call

    def secrets_in(
        self, request: Request, learned_secrets: LearnedSecrets | None
    ) -> dict[Ref, str]:
        """Return what a call has for secrets that the recording tells nowhere before it.

        A secret's first text is free, and later ones must repeat it, if `learned_secrets` has them:
        it is None where nothing is remembered. If an earlier request shows the secret plainly, that
        text counts.
        """
        call = read_call(request)
        places_by_member = self._places_by_call.get((call.method, call.name))
        if places_by_member is None:
            return {}

        session = request.header(SESSION_HEADER)
        given_values = _given_values(call)
        sent_secrets: dict[Ref, str] = {}
        for path, places in places_by_member.items():
            given_text = value_at(given_values, path)
            if not isinstance(given_text, str):
                continue

            for placed_secret in places:
                sent_text = placed_secret.secret_in_text(given_text)
                learned_text = sent_text
                is_known_from_earlier = False
                if learned_secrets is not None:
                    learned_text = learned_secrets.get(
                        (session, placed_secret.secret), sent_text
                    )
                    is_known_from_earlier = placed_secret.was_found_earlier

                if is_known_from_earlier or learned_text != sent_text:
                    continue
                if sent_text:
                    sent_secrets.setdefault(placed_secret.secret, sent_text)

        return sent_secrets


def _given_values(call: Call) -> dict[str, Any]:
    """Return the arguments of a call, and the answers that it gives."""
    given_values = {"arguments": call.arguments}
    answers = call.answers
    if answers is not None:
        given_values["answers"] = answers.input_responses

    return given_values


def _placeholders_in(call: Call) -> Iterator[tuple[MemberPath, _PlacedSecret]]:
    """Yield the placeholders that a call gives, of texts that have a single one."""
    for path, text in texts_in(_given_values(call)):
        placeholders = secrets_in(text)
        if len(placeholders) == 1:
            text_before, _, text_after = text.partition(placeholders[0].raw.decode())
            yield (
                path,
                _PlacedSecret(
                    text_before, text_after, placeholders[0].in_cassette_spelling
                ),
            )


def _secrets_found_in(recorded_request: Request, rules: RedactionRules) -> set[Ref]:
    """Return the secrets that rules find by themselves in a recorded request."""
    secret_by_stand_in: dict[str, Ref] = {}
    found_secrets: set[Ref] = set()

    def stand_in_for_secret(ref: Ref) -> bytes | None:
        """Return a text that looks like a secret for a placeholder."""
        if not ref.is_secret:
            return None

        text = f"{_STAND_IN_PREFIX}{len(secret_by_stand_in)}"
        secret_by_stand_in[text] = ref.in_cassette_spelling
        return text.encode()

    def note_found_stand_in(_rule: str, text: str) -> None:
        """Take note of a stand-in that a rule has found."""
        if text in secret_by_stand_in:
            found_secrets.add(secret_by_stand_in[text])

    redactor = Redactor(rules, lambda _rule, _secret: "0")
    redactor.on_find = note_found_stand_in
    request_with_stand_ins = request_with_changed_texts(
        recorded_request, lambda raw, _name: with_changed_refs(raw, stand_in_for_secret)
    )
    redactor.redacted_request(request_with_stand_ins)

    return found_secrets
