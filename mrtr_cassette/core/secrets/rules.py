"""The rules of redaction: shapes, names, and the patterns and names that a user adds."""

from __future__ import annotations

import re
from base64 import b64decode
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.secrets.shapes import (
    RULES,
    SHARED_NAMES,
    SHARED_RULES,
    RuleGroup,
    SharedKind,
    SharedRule,
    compiled_pattern,
    filter_of,
)
from mrtr_cassette.errors import UsageError, shorten

# Names

_NAMES_BY_RULE: Final[Mapping[str, str]] = {
    "password": "*password passwords *passwd *passphrase passcode mysqlpwd dbpwd dbpass mysqlpass"
    " postgrespass redispass smtppass mailpass ftppass *sshpass *becomepass ldappass adminpass"
    " userpass",
    "secret": "secret *clientsecret *consumersecret *appsecret *apisecret *authsecret *jwtsecret"
    " *sessionsecret *cookiesecret *totpsecret *sharedsecret *signingsecret *webhooksecret"
    " *tokensecret *secretkey *secretaccesskey *accesskeysecret *accountkey *sharedaccesskey"
    " secretkeybase encryptionkey signingkey masterkey xamzsignature xgoogsignature",
    "api-key": "*apikey apikeys *subscriptionkey xauthkey",
    "token": "*accesstoken *refreshtoken *authtoken *sessiontoken *bearertoken *apitoken *bottoken"
    " *securitytoken *privatetoken *deploytoken idtoken idtokenhint logouttoken githubtoken ghtoken"
    " gitlabtoken slacktoken npmtoken hftoken verceltoken subjecttoken actortoken"
    " clientassertion codeverifier *csrftoken *xsrftoken csrfmiddlewaretoken authenticitytoken"
    " requestverificationtoken samlresponse samlart",
    "authorization": "authorization proxyauthorization xauthorization authorizationheader",
    "cookie": "cookie cookies setcookie sessioncookie",
    "private-key": "*privatekey",
    "credentials": "credentials credential",
}
"""Names, folded, whose values are secrets whatever they look like, by rule.

A star is before a name that longer names may end with: `DB_PASSWORD`, `openaiApiKey`.
"""


def _rule_by_name() -> dict[str, str]:
    """Return the rule of all names in `_NAMES_BY_RULE`, by name without a star."""
    rules = {}
    for rule, names in _NAMES_BY_RULE.items():
        for name in names.replace("*", "").split():
            rules[name] = rule

    return rules


RULE_BY_NAME: Final[Mapping[str, str]] = _rule_by_name()
"""The rule of each of these names."""

NAME_ENDINGS: Final = tuple(re.findall(r"\*(\S+)", " ".join(_NAMES_BY_RULE.values())))
"""The names that longer names may end with."""

_ValueCheck = Callable[[str], bool]
_LEAST_VALUE_CHARS = 4
"""Characters, without `_` and `-`, of each value that makes an ambiguous name count."""

VARIABLE_REFERENCE: Final = (
    r"\$(?:[({]|[0-9]+\Z|(?:[A-Z_][A-Z0-9_]*|[A-Za-z_]+)(?![A-Za-z0-9!#%^&*+=?~]))"
)
"""Matches the beginning of a value that names a variable: `$PASSWORD`, and not `$uper5ecret`."""

_WHOLE_VALUE = re.compile(
    # No template, nothing that is in brackets itself, and no address of a blockchain.
    rf"(?!0x|[{{\[<]|{VARIABLE_REFERENCE}|%[({{])"
    rf"(?:[_-]*[^\s\"'_-]){{{_LEAST_VALUE_CHARS}}}[^\s\"']{{0,2048}}"
)
_DIGIT_AND_LETTER = re.compile(r"(?=[^0-9]*[0-9])[^A-Za-z]*[A-Za-z]")
_LETTER_AND_OTHER = re.compile(
    r"(?=[^A-Za-z]*[A-Za-z])[^0-9!@#$^&*]*(?:[0-9@#$^&*]|!.)"
)
_REAL_VALUE = re.compile(rf"(?![{{\[<]|{VARIABLE_REFERENCE}|%[({{])(?=.*\w)", re.DOTALL)
"""No template, nothing that is in brackets itself, and no stars."""

_IN_BASE64 = re.compile(r"(?=.{8})[A-Za-z0-9+/]+={0,2}")
_CASED_WORDS = re.compile(
    r"(?:(?:[A-Z]+|[A-Za-z]?[a-z]*(?:[A-Z][a-z]{2,})*[A-Z]{0,3})[0-9]*(?:[/+]|\Z))+"
)
"""Words in one case, or in camel case."""

_COUNTED_FIGURE = re.compile(
    r"(?i)\A[0-9]+(?:st|nd|rd|th)\b|\A[a-z]+[-_.][0-9]{1,2}\Z|[0-9](?:%|m?s|h)\Z"
)
_WORD_OF_RESULT = re.compile(
    r"(?i)true|false|none|null|pass|fail|passed|failed|skipped"
)
_MOST_FOREIGN = 8
"""Characters outside ASCII of a password; languages without spaces have sentences of more."""

_USER_AND_PASSWORD = re.compile(rb"[!-9;-~]+:[ -~]{3,}")
_PATH_BEGINS = re.compile(r"[/~.]|[A-Za-z]:[\\/]")
_SEPARATOR = re.compile(r"[^A-Za-z0-9]+")
_DIGITS_BETWEEN_LETTERS = re.compile(r"[A-Za-z]*+[0-9]+[A-Za-z]")


def _is_never_secret(_value: str) -> bool:
    return False


def _is_whole_value(value: str) -> bool:
    """Tell whether a value has no spaces or quotes, is no template, and has enough characters."""
    return _WHOLE_VALUE.fullmatch(value) is not None


def _has_digit_and_letter(value: str) -> bool:
    """Tell whether a value has at least 8 characters, among them a digit and a letter."""
    if len(value) < 8 or not _is_whole_value(value):
        return False
    return _DIGIT_AND_LETTER.match(value) is not None


def looks_random(value: str) -> bool:
    """Tell whether a long value has digits between the letters of a long part."""
    if len(value) < 16 or not _is_whole_value(value):
        return False

    for part in _SEPARATOR.split(value):
        if len(part) >= 12 and _DIGITS_BETWEEN_LETTERS.match(part):
            return True

    return False


def _is_real_value(value: str) -> bool:
    """Tell whether a value has a letter or digit, and is neither a template nor in brackets."""
    return _REAL_VALUE.match(value) is not None


def _is_opaque(value: str) -> bool:
    """Tell whether a value has at least 8 characters, and is no short number such as a postcode."""
    # A postcode beside a state of a country is not a secret.
    is_postcode = len(value) < 12 and not re.search("[A-Za-z]", value)
    return len(value) >= 8 and not is_postcode and _is_whole_value(value)


def _is_long_or_mixed(value: str) -> bool:
    """Tell whether a value has at least 16 characters, or 8 with a digit and a letter."""
    return _has_digit_and_letter(value) or (len(value) >= 16 and _is_whole_value(value))


def _is_long_and_random(value: str) -> bool:
    """Tell whether a value has at least 20 characters and looks random."""
    return len(value) >= 20 and looks_random(value)


def _may_be_password(value: str) -> bool:
    """Tell whether a value may be a password: it is no path, and no word for a result."""
    if _WORD_OF_RESULT.fullmatch(value) or _PATH_BEGINS.match(value):
        return False
    return _is_whole_value(value)


def is_strong(value: str) -> bool:
    """Tell whether a value reads as a password: it has more than letters and is not a figure."""
    if len(value) < 6 or not _may_be_password(value):
        return False
    if not _LETTER_AND_OTHER.match(value) or _COUNTED_FIGURE.search(value):
        return False
    return sum(not char.isascii() for char in value) <= _MOST_FOREIGN


def may_be_base64(value: str) -> bool:
    """Tell whether a value may be base64 of anything, and is neither a word nor a path of words."""
    if _IN_BASE64.fullmatch(value) is None:
        return False
    return _CASED_WORDS.fullmatch(value) is None


def _is_pin(value: str) -> bool:
    """Tell whether a value has 4 to 12 characters, all of them digits."""
    if not value.isascii() or not value.isdigit():
        return False
    return _LEAST_VALUE_CHARS <= len(value) <= 12


def _is_basic_credential(value: str) -> bool:
    """Tell whether a value is base64 of a user and a password, as in Basic authentication."""
    try:
        return _USER_AND_PASSWORD.fullmatch(b64decode(value, validate=True)) is not None
    except ValueError:
        return False


def _is_auth_credential(value: str) -> bool:
    """Tell whether a value is a credential of Basic, or looks random."""
    return _is_basic_credential(value) or _is_long_and_random(value)


def _is_mixed_token(value: str) -> bool:
    """Tell whether a value has at least 12 characters, among them a digit and a letter."""
    return len(value) >= 12 and _has_digit_and_letter(value)


def _is_one_time_code(value: str) -> bool:
    """Tell whether a value may be a one-time code: a PIN, or digits and letters."""
    return _is_pin(value) or _has_digit_and_letter(value)


def _is_always_secret(_value: str) -> bool:
    return True


class SecretName(NamedTuple):
    """A name whose values are secrets; some names also mean harmless things."""

    rule: str
    is_secret_alone: _ValueCheck = _is_always_secret
    """Tells whether a value is a secret by itself."""

    is_secret_beside: _ValueCheck = _is_always_secret
    """The same beside a companion, or as a parameter of a URL or form."""

    companions: frozenset[str] = frozenset()
    """Folded names; beside one of them a value takes less to be a secret."""

    takes_numbers: bool = True
    parameter_companions: frozenset[str] = frozenset()
    """If any, a parameter needs one of these beside it as a companion."""

    proofs: frozenset[str] = frozenset()
    """Folded names; beside one of them any value is a secret."""

    is_secret_parameter: _ValueCheck | None = None
    """Replaces `beside` for a parameter of a URL or form."""

    folded: str = ""
    """How it was spelled, folded."""

    def value_check_beside(
        self, names: Collection[str], *, is_parameter: bool = False
    ) -> _ValueCheck:
        """Return the check for a value that has values of these folded names beside it."""
        if not self.proofs.isdisjoint(names):
            return _is_real_value

        if is_parameter:
            if self.parameter_companions and self.parameter_companions.isdisjoint(
                names
            ):
                return self.is_secret_alone
            return self.is_secret_parameter or self.is_secret_beside

        if self.companions.isdisjoint(names):
            return self.is_secret_alone

        return self.is_secret_beside

    def may_be_secret(self, value: str) -> bool:
        """Tell whether a value is a secret, if the right names stand beside it."""
        if self.is_secret_beside(value):
            return True
        return bool(self.proofs) and _is_real_value(value)

    @property
    def is_certain(self) -> bool:
        """Whether any value is a secret."""
        return self.is_secret_alone is _is_always_secret


_OAUTH_WORDS = (
    "granttype redirecturi codeverifier codechallenge clientid clientsecret clientassertiontype"
    " tokentype tokentypehint responsetype sessionstate usercode verificationuri"
    " verificationuricomplete expiresin"
)
_LOGIN_WORDS = (
    "user username userid login loginid email account accountid cardnumber phone host"
)
_SIGNED_URL_WORDS = "expires keypairid awsaccesskeyid googleaccessid policy"
_BESIDE_TOKENS = (
    "granttype redirecturi codeverifier clientassertiontype tokentypehint usercode verificationuri"
    " verificationuricomplete sessionstate accesstoken refreshtoken idtoken clientsecret"
)
"""The names beside a secret in a request to a token endpoint, or in its response."""

_OAUTH_NAMES = frozenset(_OAUTH_WORDS.split())
_LOGIN_NAMES = frozenset(_LOGIN_WORDS.split())
_SIGNED_URL_NAMES = frozenset(_SIGNED_URL_WORDS.split())
_TOKEN_EXCHANGE_NAMES = frozenset(_BESIDE_TOKENS.split())
_AUTHORIZATION_NAMES = frozenset(["code", "codechallenge", "responsetype"])

_TOKEN_REQUEST_NAMES = _TOKEN_EXCHANGE_NAMES | {"responsetype", "codechallenge"}
_ISSUED_TOKEN_NAMES = _TOKEN_EXCHANGE_NAMES | {"expiresin"}

_AMBIGUOUS_RULES: Final[Mapping[str, SecretName]] = {
    "code": SecretName(
        "token",
        is_secret_alone=_is_long_and_random,
        is_secret_beside=_has_digit_and_letter,
        companions=_OAUTH_NAMES,
        takes_numbers=False,
        parameter_companions=_OAUTH_NAMES | {"state"},
        is_secret_parameter=_is_opaque,
    ),
    "state": SecretName(
        "token",
        is_secret_alone=_is_never_secret,
        is_secret_beside=_has_digit_and_letter,
        takes_numbers=False,
        parameter_companions=_AUTHORIZATION_NAMES,
        proofs=_TOKEN_REQUEST_NAMES,
        is_secret_parameter=_is_long_or_mixed,
    ),
    "devicecode": SecretName(
        "token",
        is_secret_alone=_is_long_and_random,
        is_secret_beside=_is_whole_value,
        companions=_OAUTH_NAMES,
        takes_numbers=False,
        proofs=_ISSUED_TOKEN_NAMES,
    ),
    "assertion": SecretName(
        "token",
        is_secret_alone=_is_long_and_random,
        is_secret_beside=_is_whole_value,
        companions=_OAUTH_NAMES,
        takes_numbers=False,
    ),
    "token": SecretName(
        "token",
        is_secret_alone=_is_mixed_token,
        is_secret_beside=_has_digit_and_letter,
        companions=_OAUTH_NAMES | _LOGIN_NAMES,
        takes_numbers=False,
        proofs=_ISSUED_TOKEN_NAMES,
    ),
    "auth": SecretName(
        "basic",
        is_secret_alone=_is_auth_credential,
        is_secret_beside=_is_auth_credential,
        takes_numbers=False,
    ),
    "key": SecretName(
        "api-key",
        is_secret_alone=_is_never_secret,
        is_secret_beside=looks_random,
        takes_numbers=False,
    ),
    "csrf": SecretName(
        "token",
        is_secret_alone=looks_random,
        is_secret_beside=_has_digit_and_letter,
        takes_numbers=False,
    ),
    "signature sig": SecretName(
        "secret",
        is_secret_alone=_is_never_secret,
        is_secret_beside=looks_random,
        companions=_SIGNED_URL_NAMES,
        takes_numbers=False,
    ),
    "pwd": SecretName(
        "password",
        is_secret_alone=_may_be_password,
        is_secret_beside=_may_be_password,
        companions=_LOGIN_NAMES,
    ),
    "pass": SecretName(
        "password",
        is_secret_alone=is_strong,
        is_secret_beside=_may_be_password,
        companions=_LOGIN_NAMES,
        takes_numbers=False,
    ),
    "pin": SecretName(
        "password",
        is_secret_alone=_is_pin,
        is_secret_beside=_is_pin,
        companions=_LOGIN_NAMES,
        takes_numbers=False,
    ),
    "otp totp otpcode totpcode mfacode": SecretName(
        "password",
        is_secret_alone=_is_one_time_code,
        is_secret_beside=_is_one_time_code,
        companions=_LOGIN_NAMES,
    ),
}


def _ambiguous_by_name() -> dict[str, SecretName]:
    """Return the rules of `_AMBIGUOUS_RULES` by name, with the usual proofs if they have none."""
    name_by_word = {}
    for names, ambiguous_name in _AMBIGUOUS_RULES.items():
        for name in names.split():
            name_by_word[name] = ambiguous_name._replace(
                proofs=ambiguous_name.proofs or _TOKEN_EXCHANGE_NAMES
            )

    return name_by_word


AMBIGUOUS_NAMES: Final = _ambiguous_by_name()
"""Names, folded, whose values are secrets if context or value says so."""

_SECRET_ENDING = re.compile(
    # Tokens of pages and of progress are not secrets.
    r"(?:[A-Z][A-Z0-9_]*|(?i:x)-[\w-]*)(?<!(?i:page|next|sync))(?<!(?i:continuation))[_-]"
    r"(?i:(TOKEN|SECRET)|PASS|PWD?)"
)
_KEY_VARIABLE = re.compile(
    # Keys of caches and of tables are not secrets, nor are public ones.
    r"[A-Z][A-Z0-9_]*(?<!PUBLIC)(?<!CACHE)(?<!PRIMARY)(?<!FOREIGN)(?<!SORT)(?<!PARTITION)"
    r"(?<!IDEMPOTENCY)(?<!SITE)(?<!OBJECT)_KEY"
)


def folded_name(name: str) -> str:
    """Return the common form of `api_key`, `api-key`, `apiKey` and `API_KEY`."""
    return name.replace("_", "").replace("-", "").lower()


def name_by_ending(name: str) -> SecretName | None:
    """Judge the name of an environment variable or of a header by its last word."""
    if _KEY_VARIABLE.fullmatch(name):
        return SecretName(
            "api-key",
            is_secret_alone=looks_random,
            is_secret_beside=looks_random,
            takes_numbers=False,
        )

    ending = _SECRET_ENDING.fullmatch(name)
    if ending is None:
        return None
    if ending[1]:
        return SecretName(
            ending[1].lower(),
            is_secret_alone=looks_random,
            is_secret_beside=looks_random,
            takes_numbers=False,
        )

    return SecretName(
        "password",
        is_secret_alone=is_strong,
        is_secret_beside=is_strong,
        takes_numbers=False,
    )


def builtin_name(name: str) -> SecretName | None:
    """Judge a name by the rules that come with the package."""
    folded_text = folded_name(name)
    if folded_text in RULE_BY_NAME:
        return SecretName(RULE_BY_NAME[folded_text])

    endings = [ending for ending in NAME_ENDINGS if folded_text.endswith(ending)]
    if endings:
        # `…secretkey` says more than `…key`.
        return SecretName(RULE_BY_NAME[max(endings, key=len)])

    return AMBIGUOUS_NAMES.get(folded_text) or name_by_ending(name)


_BEFORE_QUERY = re.compile(r"[?#]")
_BESIDE_SECRET = re.compile(r"(?!localhost\Z)[\w-]+")
_RANDOM_HEX = re.compile(r"(?=.*[0-9])(?=.*[A-Fa-f])[0-9A-Fa-f-]{16,}")


def random_segment_patterns(url: str) -> list[str]:
    """Return patterns that find random segments in the path of a URL, each as its group 1."""
    patterns = []
    # The host comes before the first segment, and a request's target doesn't have it.
    segments = ["", *_BEFORE_QUERY.split(url)[0].split("/")[3:]]
    for segment_before, segment in pairwise(segments):
        if looks_random(segment) or _RANDOM_HEX.fullmatch(segment):
            folder_before = ""
            if _BESIDE_SECRET.fullmatch(segment_before):
                folder_before = f"{segment_before}/"

            patterns.append(f"/{folder_before}([^/?#]{{{len(segment)}}})")

    return patterns


CUSTOM_KEY: Final = "custom-key"
"""The rule of the names that a user added."""


ESCAPED: Final = r"\\(?:/|u00[2-7])"
"""An escape of a character of names and secrets, or of a quote in JSON."""

ESCAPED_IN_URL: Final = "%[0-7][0-9A-Fa-f]"
PLACEHOLDER_MARKER = r"(?:<|%3[cC]|u003[cC])[a-z0-9-]+(?::|%3[aA])"
_QUOTE = r"\\{0,15}[\"']"
RULE_NAMES: Final = (
    {rule.name for rule in RULES} | set(RULE_BY_NAME.values()) | {CUSTOM_KEY}
)
PLACED_NAMES: Final = RULE_NAMES | SHARED_NAMES
"""The names that placeholders have, besides those of a user's patterns."""


@lru_cache(maxsize=512)
def compiled_user_pattern(pattern: str) -> Any:
    """Compile a pattern of a user by RE2, which searches in linear time whatever it is.

    Raises:
        ValueError: RE2 refuses it.
        UsageError: RE2 is not installed.
    """
    try:
        import re2
    except ImportError:
        raise UsageError(
            f"the pattern {shorten(repr(pattern))} needs the package google-re2, "
            "which is not installed",
            hint="install it with: pip install 'mrtr-cassette[re2]'",
        ) from None

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern.encode(), options)
    except UnicodeEncodeError:
        raise ValueError("it has half of a surrogate pair") from None
    except re2.error as error:
        raise ValueError(error.args[0].decode("utf-8", "replace")) from None


class UserRule(NamedTuple):
    """A pattern of a user; group 1 is the secret, if there is one."""

    name: str
    pattern: str

    def secret_spans(self, raw: bytes) -> Iterator[tuple[int, int]]:
        """Yield the places of secrets, in order."""
        pattern = compiled_user_pattern(self.pattern)
        searched_at = 0
        while searched_at < len(raw):
            match = pattern.search(raw, searched_at)
            if match is None:
                return

            # If a user's first group took no part, nothing is secret.
            start, end = match.span(min(pattern.groups, 1))
            if 0 <= start < end:
                yield start, end

            searched_at = max(match.end(), searched_at + 1)


_MOST_PATTERNS = 100
_LONGEST_PATTERN = 4096
_MOST_GROUPS = 200
_LARGEST_PROGRAMS = 200_000


def _check_patterns(patterns: Sequence[str]) -> None:
    """Make sure that a text can be searched for a user's patterns, and soon enough.

    Raises:
        ValueError: RE2 refuses one, it matches the empty text, or they would take too long.
    """
    if len(patterns) > _MOST_PATTERNS:
        raise ValueError(
            f"there are {len(patterns):,} redaction patterns, and {_MOST_PATTERNS} at most"
        )

    group_count = 0
    program_size = 0
    for pattern in patterns:
        label = f"redaction pattern {shorten(repr(pattern))}"
        if len(pattern) > _LONGEST_PATTERN:
            raise ValueError(
                f"{label} has {len(pattern):,} characters, and {_LONGEST_PATTERN:,} at most"
            )

        try:
            program = compiled_user_pattern(pattern)
        except ValueError as error:
            raise ValueError(f"{label} is not a regular expression: {error}") from None

        if program.fullmatch(b""):
            raise ValueError(f"{label} matches the empty text")

        group_count += program.groups
        program_size += program.programsize
        if group_count > _MOST_GROUPS:
            raise ValueError(
                f"{label} has too many groups: {_MOST_GROUPS} at most, of all patterns together"
            )
        if program_size > _LARGEST_PROGRAMS:
            raise ValueError(
                f"{label} repeats too much: all patterns together are too large to search with"
            )


@dataclass(frozen=True)
class RedactionRules:
    """A user's changes to redaction.

    Raises:
        ValueError: RE2 refuses a pattern, or it matches the empty text, a key has no letter, or
            something disabled doesn't exist.
    """

    patterns: tuple[str, ...] = ()
    """Regular expressions of RE2; group 1, if any, is the secret of the rule `custom-n`."""

    keys: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    shared: tuple[SharedKind, ...] = ()
    """The kinds of texts that were taken out to share a cassette with strangers."""

    def __post_init__(self) -> None:
        """Check the rules."""
        _check_patterns(self.patterns)
        for key in self.keys:
            if not folded_name(key):
                raise ValueError(f"redaction key {key!r} names no member")

        for rule_name in self.disabled:
            is_name = builtin_name(folded_name(rule_name)) is not None
            if rule_name not in RULE_NAMES and not is_name:
                raise ValueError(
                    f"redaction rule {shorten(repr(rule_name))} does not exist; the rules are "
                    f"{', '.join(sorted(RULE_NAMES - {CUSTOM_KEY}))}"
                )


BUILT_IN_RULES: Final = RedactionRules()
"""The rules that nobody has changed."""


class NameBesideValue(NamedTuple):
    """A name that is a value itself, and where the value that it names begins."""

    name_span: tuple[int, int]
    value_start: int
    backslashes: int | None
    """How many backslashes are before the quotes of a value of JSON; None in other text."""


_LONGEST_DISTANCE = 1088
"""Characters between a name that is a value itself and the value that it names."""

_KEY_BEFORE = rf"({_QUOTE})?\s{{0,8}}([:=])\s{{0,8}}({_QUOTE})?"
_NAME_WORD = r"((?:[\w.\x80-\xff-]|\\+u[0-9a-fA-F]{4})*+)"
_NAME_AS_VALUE = rf"(?:n(?<!\wn)ame|i(?<!\wi)d|k(?<!\wk)ey){_KEY_BEFORE}{_NAME_WORD}"
_DESCRIBED_ELEMENT = (
    rf"e(?<!\we)lement({_QUOTE})\s{{0,8}}(:)\s{{0,8}}({_QUOTE})([\w .'\x80-\xff-]*+)"
)
_END_OF_MEMBER_NAME = r"\\{0,15}\"\s{0,8}:"
"""What comes after the name of a member of JSON."""

_VALUE_AFTER = (
    rf"\\{{0,15}}\"[^{{}}]{{0,{_LONGEST_DISTANCE}}}?(\")value{_END_OF_MEMBER_NAME}"
    r"|[\"']?[ \t\r]*+\n\s{0,64}value[ \t]*+[:=][ \t]*+"
)
_TEXT_AFTER = (
    rf"\\{{0,15}}\"[^{{}}]{{0,{_LONGEST_DISTANCE}}}?(\")text{_END_OF_MEMBER_NAME}"
)
_LONGEST_DESCRIPTION = 64
_TYPING_CALL = (
    r"\)\.(?:fill|type|pressSequentially|press_sequentially|send_keys|sendKeys"
    r"|setValue)\(\s{0,4}"
)
"""Code of a browser that types a text into a field."""

_BEFORE_TYPED = rf"[\"'](?=([^\r\n;]{{0,48}}?{_TYPING_CALL}))"
_LONGEST_QUOTE = 16
_MEMBER_BEFORE = re.compile(rf"\w+{_END_OF_MEMBER_NAME}\s{{0,8}}{_QUOTE}", re.ASCII)
_END_OF_STRING = re.compile(r"\\{0,15}\"")
_OPENING_QUOTE = re.compile(r"\\{0,15}[\"']\Z")
_BRACE = re.compile("[{}]")
_KIND_OF_FIELD = re.compile(r"(?i) (?:field|input|textbox|box)\Z")
_SQL_INSERT = (
    r"[Ii](?<!\w[Ii])(?i:nsert\s++(?:or\s++\w++\s++|ignore\s++)?into)\s++[\w.\"'`\[\]\\]{1,128}+"
    r"\s{0,8}\(([^()]{1,1000})\)\s{0,8}(?i:values)"
)
"""A statement of SQL up to its rows; group 1 has the names of the columns."""


class _NameAsValue(NamedTuple):
    match_start: int
    span: tuple[int, int]
    text_end: int
    """Where the text ends that ends with the name."""

    backslashes: int


def _names_after_values(
    text: str, member: str, names: Sequence[_NameAsValue]
) -> Iterator[NameBesideValue]:
    """Yield names in JSON whose values come first."""
    member_names = []
    for name in names:
        is_member = _MEMBER_BEFORE.match(text, name.match_start)
        if is_member and _END_OF_STRING.match(text, name.text_end):
            member_names.append(name)

    name_starts = [name.match_start for name in member_names]
    previous_end = 0
    for value in compiled_pattern(member + _END_OF_MEMBER_NAME).finditer(text):
        opening_quote = _OPENING_QUOTE.search(
            text, max(previous_end, value.start() - 16), value.start()
        )
        index = bisect_left(name_starts, value.end())
        if opening_quote is None or index == len(member_names):
            continue

        name = member_names[index]
        if name.match_start - value.end() > _LONGEST_DISTANCE:
            continue

        if _BRACE.search(text, value.end(), name.match_start) is None:
            previous_end = name.text_end
            yield NameBesideValue(
                name.span, value.end(), _backslash_count(opening_quote.span())
            )


def _backslash_count(quote: tuple[int, int]) -> int:
    """Return how many backslashes a span has before its quote; 0 if there is no quote."""
    return max(quote[1] - quote[0] - 1, 0)


class ActiveRules:
    """The rules of one recording: the table without what is disabled, and the user's own."""

    def __init__(self, rules: RedactionRules) -> None:
        """Prepare the rules that aren't disabled, and number the user's patterns from 1."""
        self.disabled = set(rules.disabled) & RULE_NAMES
        shapes = [rule for rule in RULES if rule.name not in self.disabled]
        self._shapes = RuleGroup(shapes)
        self.likely_rules = self._shapes.likely_rules
        self.user_rules: list[UserRule] = []
        for number, pattern in enumerate(rules.patterns, start=1):
            self.user_rules.append(UserRule(f"custom-{number}", pattern))

        custom_rules: list[UserRule | SharedRule] = [*self.user_rules]
        for kind, rule in SHARED_RULES.items():
            if kind in rules.shared:
                custom_rules.append(rule)

        self.custom_rules = tuple(custom_rules)
        self.keys = set(map(folded_name, rules.keys))
        self._disabled_names = {
            folded_name(name) for name in rules.disabled if name not in RULE_NAMES
        }
        # Most names occur many times.
        self.judge_name = lru_cache(maxsize=1024)(self._judge_name)

    @cached_property
    def may_find_secrets(self) -> Callable[[str], bool]:
        """Tells whether a text may have a shape, or a name beside a value."""
        return filter_of(f"{self._shapes.pattern}|{self._name_filter_pattern}")

    @cached_property
    def may_have_names(self) -> Callable[[str], bool]:
        """Tells whether a text may have a name beside a value."""
        return filter_of(self._name_filter_pattern)

    @cached_property
    def _name_filter_pattern(self) -> str:
        """The pattern for a filter that is in all texts with a name and a sign or space behind."""
        endings, whole_names = self._name_stems
        before_whole_name = r"(?:^|[^A-Za-z0-9]|\\[nrt])"
        any_whole_name = _any_name_pattern(whole_names)
        stems = f"{_any_name_pattern(endings)}|{before_whole_name}(?:{any_whole_name})"
        after_name = r"(?:\\*[\"'`\]])?(?:[ \t\n\f\r]|\\+[nrt]|[:=,}|;)])"

        return f"(?i:{stems}){after_name}"

    def names_before_signs(self, text: str) -> Iterator[tuple[int, int, int, int]]:
        """Yield the offsets of names, of the ends of quotes after them, and of their values."""
        for match in self._name_end_and_sign_pattern.finditer(text.lower()):
            name_end = match.end()
            name_start = self._start_of_name_before(text, name_end)
            if name_start is not None:
                yield name_start, name_end, max(name_end, match.end(1)), match.end(2)

    def names_beside_values(self, text: str) -> Iterator[NameBesideValue]:
        """Yield names beside their values, and descriptions beside the typed text."""
        for member, name_pattern, value_pattern in (
            ("value", _NAME_AS_VALUE, _VALUE_AFTER),
            ("text", _DESCRIBED_ELEMENT, _TEXT_AFTER),
        ):
            if member not in text:
                continue

            names = list(self._names_as_values(text, name_pattern))
            value_start = 0
            for name in names:
                value_match = compiled_pattern(value_pattern).match(text, name.text_end)
                if name.match_start < value_start or value_match is None:
                    continue

                value_start = value_match.end()
                backslashes = name.backslashes if value_match.end(1) >= 0 else None
                yield NameBesideValue(name.span, value_start, backslashes)

            yield from _names_after_values(text, member, names)

        yield from self._names_of_filled_fields(text)

    def sql_inserts_in(self, text: str) -> Iterator[tuple[int, int, int]]:
        """Yield the place of the column names in statements of SQL, and where their rows begin."""
        if filter_of("(?i)insert")(text):
            for match in compiled_pattern(_SQL_INSERT).finditer(text):
                yield (*match.span(1), match.end())

    def _names_as_values(self, text: str, name_pattern: str) -> Iterator[_NameAsValue]:
        """Yield the matches of a pattern: values of `name`, `id` or `key`, or descriptions."""
        searched_at = 0
        while match := compiled_pattern(name_pattern).search(text, searched_at):
            # It may be before another one: `id="name: …"`.
            searched_at = match.start() + 1
            word_start, text_end = match.span(4)
            if name_pattern == _DESCRIBED_ELEMENT:
                span = self._name_in_description(text, text_end)
                if span is not None and span[0] - word_start > _LONGEST_DESCRIPTION:
                    continue
            else:
                start = self._start_of_name_before(text, text_end)
                span = None if start is None else (start, text_end)

            if span is None:
                continue

            backslashes = _backslash_count(match.span(3))
            yield _NameAsValue(match.start(), span, text_end, backslashes)

    def _names_of_filled_fields(self, text: str) -> Iterator[NameBesideValue]:
        """Yield the names of fields in code of a browser, up to the text typed into them."""
        if not filter_of(_TYPING_CALL)(text):
            return

        typed_start = 0
        for quote in compiled_pattern(_BEFORE_TYPED).finditer(text):
            text_before = text[max(0, quote.start() - _LONGEST_QUOTE) : quote.start()]
            end = quote.start() - len(text_before) + len(text_before.rstrip("\\"))
            span = self._name_in_description(text, end)
            if span is not None and span[0] >= typed_start:
                typed_start = quote.end(1)
                yield NameBesideValue(span, typed_start, None)

    def _name_in_description(self, text: str, end: int) -> tuple[int, int] | None:
        """Return the place of the name in the description that ends at an offset."""
        kind_of_field = _KIND_OF_FIELD.search(text[max(0, end - len(" textbox")) : end])
        possible_ends = [end]
        if kind_of_field is not None:
            possible_ends = [end - len(kind_of_field[0]), end]

        for name_end in possible_ends:
            start = self._start_of_name_before(text, name_end)
            if start is not None:
                return start, name_end

        return None

    def _start_of_name_before(self, text: str, end: int) -> int | None:
        """Return where the longest name begins that ends at an offset."""
        pattern, longest = self._reversed_name_pattern
        match = pattern.match(text[max(0, end - longest) : end].lower()[::-1])
        return None if match is None else end - match.end()

    @cached_property
    def _name_stems(self) -> tuple[set[str], set[str]]:
        """The names that longer names may end with, and those that count only as a whole."""
        endings = {*NAME_ENDINGS, *self.keys}
        # `progressToken` is harmless.
        return endings, {*RULE_BY_NAME, *AMBIGUOUS_NAMES, "pw"}.difference(NAME_ENDINGS)

    @cached_property
    def _name_end_and_sign_pattern(self) -> re.Pattern[str]:
        """Finds the end of a name in lower case, with a quote (group 1) and a sign after it."""
        last_char = "(?s:.)"
        before_sign = ""
        name_ends = {name[-2:] for name in set().union(*self._name_stems)}
        if all(end.isascii() and len(end) == 2 for end in name_ends):
            # What most characters are not is asked first.
            last_char = f"[{re.escape(''.join({end[1] for end in name_ends}))}]"
            pairs = "|".join(map(re.escape, sorted(name_ends)))
            before_sign = rf"(?![a-z0-9,.;)_-])(?<=(?:{pairs})|[_-].)"

        return compiled_pattern(
            rf"(?:{last_char}){before_sign}(?=({_QUOTE})?\s{{0,64}}(=>|[:=]))"
        )

    @cached_property
    def _reversed_name_pattern(self) -> tuple[re.Pattern[str], int]:
        """Matches a name in lower case from its end to its beginning, of so many characters."""
        endings, whole_names = self._name_stems
        names = sorted(endings | whole_names, key=len, reverse=True)
        patterns = []
        for name in names:
            pattern = "[_-]?".join([_char_pattern(char, -1) for char in reversed(name)])
            if name in whole_names:
                pattern += r"(?:[nrt]\\|[_-]|(?![a-z0-9_]))"

            patterns.append(pattern)

        return compiled_pattern("|".join(patterns)), len(names[0]) * _LONGEST_SPELLING

    def _judge_name(self, name: str) -> SecretName | None:
        """Return the rule of a name, the user's keys first; None if harmless or disabled."""
        folded = folded_name(name)
        if folded in self.keys:
            return SecretName(CUSTOM_KEY)

        secret_name = None
        if folded not in self._disabled_names:
            secret_name = builtin_name(name)

        if secret_name is None or secret_name.rule in self.disabled:
            return None

        return secret_name._replace(folded=folded)


_LONGEST_SPELLING = 24


def _any_name_pattern(names: Collection[str]) -> str:
    """Return a pattern for any of some names in all their spellings."""
    return "|".join("[_-]?".join(map(_char_pattern, name)) for name in sorted(names))


def _char_pattern(char: str, step: int = 1) -> str:
    """Return a pattern for a character as it may be spelled, read backwards if `step` is -1."""
    if char.isascii():
        return re.escape(char)

    spellings = []
    for case in {char.lower(), char.upper()}:
        spellings.append(case.encode().decode("latin-1").lower()[::step])
        if len(case) == 1:
            digits = f"{ord(case):04x}"[::step]
            spellings.append(rf"\\+u{digits}" if step > 0 else rf"{digits}u\\+")

    return f"(?:{'|'.join(spellings)})"
