"""The rules of redaction: shapes, names, and the patterns and names that a user adds."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple, get_args

import re2

from mrtr_cassette.core.secrets.shapes import RULES, Rule, compiled, quiet_options
from mrtr_cassette.errors import shorten

# Names

_NAMED: Final[Mapping[str, str]] = {
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
    rules = {}
    for rule, names in _NAMED.items():
        for name in names.replace("*", "").split():
            rules[name] = rule
    return rules


NAMES: Final[Mapping[str, str]] = _rule_by_name()
"""The rule of each of these names."""

ENDINGS: Final = tuple(re.findall(r"\*(\S+)", " ".join(_NAMED.values())))
"""The names that longer names may end with."""

_Check = Callable[[str], bool]
_LEAST = 4
"""Characters, without `_` and `-`, of each value that makes an ambiguous name count."""
REFERENCE: Final = (
    r"\$(?:[({]|[0-9]+\Z|(?:[A-Z_][A-Z0-9_]*|[A-Za-z_]+)(?![A-Za-z0-9!#%^&*+=?~]))"
)
"""Matches the beginning of a value that names a variable: `$PASSWORD`, and not `$uper5ecret`."""
_WHOLE = re.compile(
    # No template, nothing that is in brackets itself, and no address of a blockchain.
    rf"(?!0x|[{{\[<]|{REFERENCE}|%[({{])"
    rf"(?:[_-]*[^\s\"'_-]){{{_LEAST}}}[^\s\"']{{0,2048}}"
)
_DIGIT_AND_LETTER = re.compile(r"(?=[^0-9]*[0-9])[^A-Za-z]*[A-Za-z]")
_LETTER_AND_OTHER = re.compile(
    r"(?=[^A-Za-z]*[A-Za-z])[^0-9!@#$^&*]*(?:[0-9@#$^&*]|!.)"
)
_GIVEN = re.compile(rf"(?![{{\[<]|{REFERENCE}|%[({{])(?=.*\w)", re.DOTALL)
"""No template, nothing that is in brackets itself, and no stars."""
_IN_BASE64 = re.compile(r"(?=.{8})[A-Za-z0-9+/]+={0,2}")
_CASED_WORDS = re.compile(
    r"(?:(?:[A-Z]+|[A-Za-z]?[a-z]*(?:[A-Z][a-z]{2,})*[A-Z]{0,3})[0-9]*(?:[/+]|\Z))+"
)
"""Words in one case, or in camel case."""
_COUNTED = re.compile(
    r"(?i)\A[0-9]+(?:st|nd|rd|th)\b|\A[a-z]+[-_.][0-9]{1,2}\Z|[0-9](?:%|m?s|h)\Z"
)
_WORD_OF_RESULT = re.compile(
    r"(?i)true|false|none|null|pass|fail|passed|failed|skipped"
)
_MOST_FOREIGN = 8
"""Characters outside ASCII of a password; languages without spaces have sentences of more."""
_USER_AND_PASSWORD = re.compile(rb"[!-9;-~]+:[ -~]{3,}")
_PATH = re.compile(r"[/~.]|[A-Za-z]:[\\/]")
_SEPARATOR = re.compile(r"[^A-Za-z0-9]+")
_MIXED = re.compile(r"[A-Za-z]*+[0-9]+[A-Za-z]")


def _never(_value: str) -> bool:
    return False


def _whole(value: str) -> bool:
    return _WHOLE.fullmatch(value) is not None


def _mixed(value: str) -> bool:
    return (
        len(value) >= 8 and _whole(value) and _DIGIT_AND_LETTER.match(value) is not None
    )


def looks_random(value: str) -> bool:
    """Tell whether a long value has digits between the letters of a long part."""
    if len(value) < 16 or not _whole(value):
        return False
    return any(
        len(part) >= 12 and _MIXED.match(part) for part in _SEPARATOR.split(value)
    )


def _given(value: str) -> bool:
    return _GIVEN.match(value) is not None


def _opaque(value: str) -> bool:
    # A postcode beside a state of a country is not a secret.
    is_postcode = len(value) < 12 and not re.search("[A-Za-z]", value)
    return len(value) >= 8 and not is_postcode and _whole(value)


def _long(value: str) -> bool:
    return _mixed(value) or (len(value) >= 16 and _whole(value))


def _random(value: str) -> bool:
    return len(value) >= 20 and looks_random(value)


def _password(value: str) -> bool:
    return _whole(value) and not (
        _WORD_OF_RESULT.fullmatch(value) or _PATH.match(value)
    )


def is_strong(value: str) -> bool:
    """Tell whether a value reads as a password: it has more than letters and is not a figure."""
    if len(value) < 6 or not _password(value):
        return False
    if not _LETTER_AND_OTHER.match(value) or _COUNTED.search(value):
        return False
    return sum(not char.isascii() for char in value) <= _MOST_FOREIGN


def is_encoded(value: str) -> bool:
    """Tell whether a value may be base64 of anything, and is neither a word nor a path of words."""
    return (
        _IN_BASE64.fullmatch(value) is not None
        and _CASED_WORDS.fullmatch(value) is None
    )


def _pin(value: str) -> bool:
    return _LEAST <= len(value) <= 12 and value.isascii() and value.isdigit()


def _of_basic(value: str) -> bool:
    try:
        return _USER_AND_PASSWORD.fullmatch(b64decode(value, validate=True)) is not None
    except ValueError:
        return False


def _of_auth(value: str) -> bool:
    return _of_basic(value) or _random(value)


def _mixed_token(value: str) -> bool:
    return len(value) >= 12 and _mixed(value)


def _one_time(value: str) -> bool:
    return _pin(value) or _mixed(value)


def _always(_value: str) -> bool:
    return True


class Name(NamedTuple):
    """A name whose values are secrets; some names also mean harmless things."""

    rule: str
    alone: _Check = _always
    """Tells whether a value is a secret by itself."""
    beside: _Check = _always
    """The same beside a companion, or as a parameter of a URL or form."""
    companions: frozenset[str] = frozenset()
    """Folded names; beside one of them a value takes less to be a secret."""
    takes_numbers: bool = True
    parameters: frozenset[str] = frozenset()
    """If any, a parameter needs one of these beside it as a companion."""
    proofs: frozenset[str] = frozenset()
    """Folded names; beside one of them any value is a secret."""
    parameter: _Check | None = None
    """Replaces `beside` for a parameter of a URL or form."""
    folded: str = ""
    """How it was spelled, folded."""

    def among(self, names: Collection[str], *, is_parameter: bool = False) -> _Check:
        """Return the check for a value that has values of these folded names beside it."""
        if not self.proofs.isdisjoint(names):
            return _given
        if is_parameter:
            if self.parameters and self.parameters.isdisjoint(names):
                return self.alone
            return self.parameter or self.beside
        if self.companions.isdisjoint(names):
            return self.alone
        return self.beside

    def may_be(self, value: str) -> bool:
        """Tell whether a value is a secret, if the right names stand beside it."""
        return self.beside(value) or (bool(self.proofs) and _given(value))

    @property
    def is_certain(self) -> bool:
        """Whether any value is a secret."""
        return self.alone is _always


_OF_OAUTH = (
    "granttype redirecturi codeverifier codechallenge clientid clientsecret clientassertiontype"
    " tokentype tokentypehint responsetype sessionstate usercode verificationuri"
    " verificationuricomplete expiresin"
)
_OF_LOGIN = (
    "user username userid login loginid email account accountid cardnumber phone host"
)
_OF_SIGNED_URL = "expires keypairid awsaccesskeyid googleaccessid policy"
_OF_TOKENS = (
    "granttype redirecturi codeverifier clientassertiontype tokentypehint usercode verificationuri"
    " verificationuricomplete sessionstate accesstoken refreshtoken idtoken clientsecret"
)
"""The names beside a secret in a request to a token endpoint, or in its response."""
_OAUTH = frozenset(_OF_OAUTH.split())
_LOGIN = frozenset(_OF_LOGIN.split())
_SIGNED_URL = frozenset(_OF_SIGNED_URL.split())
_OF_EXCHANGE = frozenset(_OF_TOKENS.split())
_OF_AUTHORIZATION = frozenset(["code", "codechallenge", "responsetype"])

_OF_REQUEST = _OF_EXCHANGE | {"responsetype", "codechallenge"}
_OF_ISSUED = _OF_EXCHANGE | {"expiresin"}

_AMBIGUOUS: Final[Mapping[str, Name]] = {
    "code": Name(
        "token", _random, _mixed, _OAUTH, False, _OAUTH | {"state"}, parameter=_opaque
    ),
    "state": Name(
        "token",
        _never,
        _mixed,
        takes_numbers=False,
        parameters=_OF_AUTHORIZATION,
        proofs=_OF_REQUEST,
        parameter=_long,
    ),
    "devicecode": Name("token", _random, _whole, _OAUTH, False, proofs=_OF_ISSUED),
    "assertion": Name("token", _random, _whole, _OAUTH, False),
    "token": Name(
        "token", _mixed_token, _mixed, _OAUTH | _LOGIN, False, proofs=_OF_ISSUED
    ),
    "auth": Name("basic", _of_auth, _of_auth, takes_numbers=False),
    "key": Name("api-key", _never, looks_random, takes_numbers=False),
    "csrf": Name("token", looks_random, _mixed, takes_numbers=False),
    "signature sig": Name("secret", _never, looks_random, _SIGNED_URL, False),
    "pwd": Name("password", _password, _password, _LOGIN),
    "pass": Name("password", is_strong, _password, _LOGIN, False),
    "pin": Name("password", _pin, _pin, _LOGIN, False),
    "otp totp otpcode totpcode mfacode": Name("password", _one_time, _one_time, _LOGIN),
}


def _ambiguous_by_name() -> dict[str, Name]:
    found = {}
    for names, known in _AMBIGUOUS.items():
        for name in names.split():
            found[name] = known._replace(proofs=known.proofs or _OF_EXCHANGE)
    return found


AMBIGUOUS: Final = _ambiguous_by_name()
"""Names, folded, whose values are secrets if context or value says so."""

_ENDING = re.compile(
    # Tokens of pages and of progress are not secrets.
    r"(?:[A-Z][A-Z0-9_]*|(?i:x)-[\w-]*)(?<!(?i:page|next|sync))(?<!(?i:continuation))[_-]"
    r"(?i:(TOKEN|SECRET)|PASS|PWD?)"
)
_KEY = re.compile(
    # Keys of caches and of tables are not secrets, nor are public ones.
    r"[A-Z][A-Z0-9_]*(?<!PUBLIC)(?<!CACHE)(?<!PRIMARY)(?<!FOREIGN)(?<!SORT)(?<!PARTITION)"
    r"(?<!IDEMPOTENCY)(?<!SITE)(?<!OBJECT)_KEY"
)


def fold(name: str) -> str:
    """Return the common form of `api_key`, `api-key`, `apiKey` and `API_KEY`."""
    return name.replace("_", "").replace("-", "").lower()


def by_ending(name: str) -> Name | None:
    """Judge the name of an environment variable or of a header by its last word."""
    if _KEY.fullmatch(name):
        return Name("api-key", looks_random, looks_random, takes_numbers=False)
    ending = _ENDING.fullmatch(name)
    if ending is None:
        return None
    if ending[1]:
        return Name(ending[1].lower(), looks_random, looks_random, takes_numbers=False)
    return Name("password", is_strong, is_strong, takes_numbers=False)


def builtin_name(name: str) -> Name | None:
    """Judge a name by the rules that come with the package."""
    folded = fold(name)
    if folded in NAMES:
        return Name(NAMES[folded])
    endings = [ending for ending in ENDINGS if folded.endswith(ending)]
    if endings:
        # `…secretkey` says more than `…key`.
        return Name(NAMES[max(endings, key=len)])
    return AMBIGUOUS.get(folded) or by_ending(name)


_BEFORE_QUERY = re.compile(r"[?#]")
_BESIDE_SECRET = re.compile(r"(?!localhost\Z)[\w-]+")
_RANDOM_HEX = re.compile(r"(?=.*[0-9])(?=.*[A-Fa-f])[0-9A-Fa-f-]{16,}")


def patterns_of_path(url: str) -> list[str]:
    """Return patterns that find random segments in the path of a URL, each as its group 1."""
    patterns = []
    # The host comes before the first segment, and a request's target doesn't have it.
    segments = ["", *_BEFORE_QUERY.split(url)[0].split("/")[3:]]
    for before, segment in pairwise(segments):
        if looks_random(segment) or _RANDOM_HEX.fullmatch(segment):
            beside = ""
            if _BESIDE_SECRET.fullmatch(before):
                beside = f"{before}/"
            patterns.append(f"/{beside}([^/?#]{{{len(segment)}}})")
    return patterns


CUSTOM_KEY: Final = "custom-key"
"""The rule of the names that a user added."""

# Texts that could identify somebody, taken out to share a cassette with strangers

SharedKind = Literal["email", "host", "ip", "text", "user"]

_SLASH: Final = r"(?:[\\/]+|%2[Ff]|%5[Cc])"
_HOME: Final = rf"(?:(?:home|Users){_SLASH}|[A-Za-z](?::|%3[Aa]){_SLASH}users{_SLASH})"
_BYTE: Final = "(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])"
_HEX: Final = "[0-9A-Fa-f]{1,4}"
_LONG_IP: Final = rf"(?:{_HEX}:){{7}}{_HEX}|(?:{_HEX}:){{1,6}}:(?:{_HEX}:){{0,5}}{_HEX}"


def rule_of_kind(kind: SharedKind) -> str:
    """Return the name of a rule, which its placeholders have."""
    return f"shared-{kind}"


def _rule(kind: SharedKind, pattern: str, needs: bytes = b"") -> Rule:
    return Rule(rule_of_kind(kind), pattern, needs, is_custom=True)


SHARED_RULES: Final[Mapping[SharedKind, Rule]] = {
    "email": _rule(
        "email",
        r"[\pL\pN._%+-]+(?:@|%40)(?:[\pL\pN-]+\.)+\pL[\pL\pN-]+",
    ),
    "ip": _rule(
        "ip",
        rf"\b(?:{_BYTE}(?:\.{_BYTE}){{3}}|{_LONG_IP})\b",
        # The addresses of each machine itself say nothing.
        rb"(?!127\.|0\.0\.0\.0)(?=.*[0-9])",
    ),
    "text": _rule("text", r"(?s)\A(?:\s*\S+\s.*|.*[^\x00-\x7F].*)\z"),
    "user": _rule("user", rf"{_SLASH}{_HOME}([^\\/\s\"'<>:%?#]+)"),
}
"""By kind. In JSON each finds its texts in strings; `text` is a whole string of several words.

No pattern finds a `host`: the server's own is known.
"""
SHARED_NAMES: Final = frozenset(map(rule_of_kind, get_args(SharedKind)))
_EXAMPLES: Final[Mapping[str, str]] = {
    rule_of_kind("email"): "somebody{}@example.com",
    rule_of_kind("host"): "server{}.example",
    rule_of_kind("ip"): "192.0.2.{}",
    rule_of_kind("text"): "some text {}",
    rule_of_kind("user"): "somebody{}",
}


def example_of(rule: str, token: str) -> bytes | None:
    """Return a text that matches one that was taken out to share a cassette, or None."""
    example = _EXAMPLES.get(rule)
    if example is None:
        return None
    return example.format(token).encode()


_ESCAPED = r"\\(?:/|u00[2-7])"
"""An escape of a character of names and secrets, or of a quote in JSON."""
_BASE64 = r"(?:^|[^A-Za-z0-9+/_-])[C-Za-fw-z0-9][A-Za-z0-9+/_-]{10}"
"""Text in base64 begins with ASCII or the first byte of a character; PNG and JPEG don't."""
PLACEHOLDER_MARKER = r"(?:<|%3[cC]|u003[cC])[a-z0-9-]+(?::|%3[aA])"
_QUOTE = r"\\{0,15}[\"']"
RULE_NAMES: Final = {rule.name for rule in RULES} | set(NAMES.values()) | {CUSTOM_KEY}
PLACED_NAMES: Final = RULE_NAMES | SHARED_NAMES
"""The names that placeholders have, besides those of a user's patterns."""


def refusal_of(pattern: str) -> str:
    """Return why a user's pattern is not a regular expression, or an empty string."""
    try:
        compiled(pattern, is_text=True)
    except UnicodeEncodeError:
        return "it has half of a surrogate pair"
    except re2.error as error:
        return str(error.args[0].decode("utf-8", "replace"))
    return ""


_MOST_PATTERNS = 100
_LONGEST_PATTERN = 4096
_MOST_GROUPS = 200
_LARGEST_PROGRAMS = 200_000


def _too_large(patterns: Sequence[str]) -> str:
    """Return why a user's patterns would take too long to search a text, or an empty string."""
    if len(patterns) > _MOST_PATTERNS:
        return f"there are {len(patterns):,} redaction patterns, and {_MOST_PATTERNS} at most"
    groups = 0
    size = 0
    for pattern in patterns:
        shown = _shown(pattern)
        if len(pattern) > _LONGEST_PATTERN:
            return f"{shown} has {len(pattern):,} characters, and {_LONGEST_PATTERN:,} at most"
        program = compiled(pattern, is_text=True)
        groups += program.groups
        size += program.programsize
        if groups > _MOST_GROUPS:
            return f"{shown} has too many groups: {_MOST_GROUPS} at most, of all patterns together"
        if size > _LARGEST_PROGRAMS:
            return f"{shown} repeats too much: all patterns together are too large to search with"
    return ""


def _shown(pattern: str) -> str:
    return f"redaction pattern {shorten(repr(pattern))}"


def matches_whole(pattern: str, text: str) -> bool:
    """Tell whether a user's pattern matches the whole of a text."""
    raw = text.encode("utf-8", "replace")
    return compiled(pattern, is_text=True).fullmatch(raw) is not None


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
        for pattern in self.patterns[:_MOST_PATTERNS]:
            if len(pattern) > _LONGEST_PATTERN:
                break
            reason = refusal_of(pattern)
            if reason:
                raise ValueError(
                    f"{_shown(pattern)} is not a regular expression: {reason}"
                )
            if matches_whole(pattern, ""):
                raise ValueError(f"{_shown(pattern)} matches the empty text")
        reason = _too_large(self.patterns)
        if reason:
            raise ValueError(reason)
        for key in self.keys:
            if not fold(key):
                raise ValueError(f"redaction key {key!r} names no member")
        for name in self.disabled:
            if name not in RULE_NAMES and builtin_name(fold(name)) is None:
                raise ValueError(
                    f"redaction rule {shorten(repr(name))} does not exist; the rules are "
                    f"{', '.join(sorted(RULE_NAMES - {CUSTOM_KEY}))}"
                )


BUILT_IN: Final = RedactionRules()
"""The rules that nobody has changed."""


class Mark:
    """Signs in a text besides the shapes of the table, as numbers beside theirs.

    From `NAME` on they may be secrets; the others say where to look.
    """

    NAME = -1
    ESCAPE = -2
    PERCENT = -3
    PLACEHOLDER = -4
    BASE64 = -5


class NameBeside(NamedTuple):
    """A name that is a value itself, and where the value that it names begins."""

    name: tuple[int, int]
    value_at: int
    depth: int | None
    """How many backslashes are before the quotes of a value of JSON; None in other text."""


_INSERT = (
    r"(?i)\binsert\s+(?:or\s+\w+\s+|ignore\s+)?into\s+[\w.\"'`\[\]\\]{1,128}\s{0,8}"
    r"\(([^()]{1,1000})\)\s{0,8}values"
)
"""A statement of SQL up to its rows; group 1 has the names of the columns."""


def _backslashes(quote: tuple[int, int]) -> int:
    return max(quote[1] - quote[0] - 1, 0)


class ActiveRules:
    """The rules of one recording: the table without what is disabled, and the user's own."""

    def __init__(self, rules: RedactionRules) -> None:
        self.disabled = set(rules.disabled) & RULE_NAMES
        self.shapes = tuple([rule for rule in RULES if rule.name not in self.disabled])
        self._with_literals = {
            row for row, rule in enumerate(self.shapes) if not rule.marker
        }
        custom = []
        for number, pattern in enumerate(rules.patterns, start=1):
            custom.append(Rule(f"custom-{number}", pattern, is_custom=True))
        for kind, rule in SHARED_RULES.items():
            if kind in rules.shared:
                custom.append(rule)
        self.custom = tuple(custom)
        self.keys = set(map(fold, rules.keys))
        self._disabled_names = {
            fold(name) for name in rules.disabled if name not in RULE_NAMES
        }
        # Most names occur many times.
        self.name = lru_cache(maxsize=1024)(self._name)

    def marks(self, raw: bytes) -> set[int]:
        """Return the rows of the table and the marks that a text may contain."""
        meanings, patterns, literals = self._markers
        matched = patterns.Match(raw) or ()
        candidates = literals.Match(raw, potential=True) or ()
        return {
            meanings[number] for number in matched
        } | self._with_literals.intersection(candidates)

    def likely(self, marks: Collection[int]) -> list[Rule]:
        """Return the shapes that a text may contain."""
        return [self.shapes[row] for row in sorted(marks) if row >= 0]

    @cached_property
    def named(self) -> Any:
        """Finds the end of a name (group 1), the quote after it, and the sign before its value."""
        return compiled(rf"(?i)({self._stems})({_QUOTE})?\s{{0,64}}(=>|[:=])")

    def beside_in(self, raw: bytes) -> Iterator[NameBeside]:
        """Yield names beside their values, and descriptions beside the typed text."""
        for pattern in (self._beside, self._typed):
            for match in pattern.finditer(raw):
                depth = _backslashes(match.span(1)) if match.end(3) >= 0 else None
                yield NameBeside(match.span(2), match.end(), depth)
        for pattern in self._value_first:
            for match in pattern.finditer(raw):
                yield NameBeside(
                    match.span(3), match.end(2), _backslashes(match.span(1))
                )
        for match in self._filled.finditer(raw):
            yield NameBeside(match.span(1), match.end(), None)

    def inserts_in(self, raw: bytes) -> Iterator[tuple[int, int, int]]:
        """Yield the place of the column names in statements of SQL, and where their rows begin."""
        for match in compiled(_INSERT).finditer(raw):
            yield (*match.span(1), match.end())

    @cached_property
    def _beside(self) -> Any:
        """Finds a name (group 2) that is a value, up to where another value begins (3: of JSON)."""
        return compiled(
            rf"\b(?:name|id|key)(?:{_QUOTE})?\s{{0,8}}[:=]\s{{0,8}}({_QUOTE})?[\w.-]*"
            rf"((?i:{self._stems}))"
            r"(?:\\{0,15}\"[^{}]*?(\")value\\{0,15}\"\s{0,8}:"
            r"|[\"']?[ \t\r]*\n\s{0,64}value[ \t]*[:=][ \t]*)"
        )

    @cached_property
    def _typed(self) -> Any:
        """Finds the description of a field of a page up to the text typed into it, as `_beside`."""
        return compiled(
            rf"\belement{_QUOTE}\s{{0,8}}:\s{{0,8}}({_QUOTE}){self._described}"
            rf"\\{{0,15}}\"[^{{}}]*?(\")text\\{{0,15}}\"\s{{0,8}}:"
        )

    @cached_property
    def _value_first(self) -> tuple[Any, Any]:
        """Find both if the value comes first (group 2 is its place, and 3 the name)."""
        colon = r"\\{0,15}\"\s{0,8}:"
        named = rf"\b(?:name|id|key){colon}\s{{0,8}}{_QUOTE}[\w.-]*((?i:{self._stems}))"
        typed = rf"\belement{colon}\s{{0,8}}{_QUOTE}{self._described}"
        end = r"\\{0,15}\""
        return (
            compiled(rf"({_QUOTE})value{colon}()[^{{}}]*?{named}{end}"),
            compiled(rf"({_QUOTE})text{colon}()[^{{}}]*?{typed}{end}"),
        )

    @cached_property
    def _filled(self) -> Any:
        """Finds the name of a field in code of a browser, up to the text typed into it."""
        typing = (
            "fill|type|pressSequentially|press_sequentially|send_keys|sendKeys|setValue"
        )
        return compiled(
            rf"{self._described}{_QUOTE}[^\r\n;]{{0,48}}?\)\.(?:{typing})\(\s{{0,4}}"
        )

    @property
    def _described(self) -> str:
        name = rf"((?i:{self._stems}))"
        return rf"[\w .'-]{{0,64}}?{name}(?: (?i:field|input|textbox|box))?"

    @property
    def _stems(self) -> str:
        ends = {*ENDINGS, *self.keys}
        # These count only as whole names: `progressToken` is harmless.
        whole = {*NAMES, *AMBIGUOUS, "pw"}.difference(ENDINGS)
        return rf"{_any_of(ends)}|(?:\b|[_-]|\\[nrt])(?:{_any_of(whole)})"

    @cached_property
    def _markers(self) -> tuple[list[int], Any, Any]:
        """The meanings of a set of patterns, the set, and a filter by the literals of shapes."""
        named = rf"(?i)(?:{self._stems})(?:\\*[\"'`\]])?(?:\s|\\+[nrt]|[:=,}}|;)])"
        markers = [
            (named, Mark.NAME),
            (_ESCAPED, Mark.ESCAPE),
            ("%[0-7][0-9A-Fa-f]", Mark.PERCENT),
            (PLACEHOLDER_MARKER, Mark.PLACEHOLDER),
            (_BASE64, Mark.BASE64),
        ]
        for row, rule in enumerate(self.shapes):
            if rule.marker:
                markers.append((rule.marker, row))
        patterns = re2.Set.SearchSet(quiet_options())
        for marker, _ in markers:
            patterns.Add(marker.encode())
        patterns.Compile()
        literals = re2.Filter()
        for rule in self.shapes:
            literals.Add(rule.pattern.encode(), quiet_options())
        literals.Compile()
        return [meaning for _, meaning in markers], patterns, literals

    def _name(self, name: str) -> Name | None:
        folded = fold(name)
        if folded in self.keys:
            return Name(CUSTOM_KEY)
        known = None
        if folded not in self._disabled_names:
            known = builtin_name(name)
        if known is None or known.rule in self.disabled:
            return None
        return known._replace(folded=folded)


def _any_of(names: Collection[str]) -> str:
    return "|".join("[_-]?".join(map(_spelled, name)) for name in sorted(names))


def _spelled(char: str) -> str:
    if char.isascii():
        return str(re2.escape(char))
    spellings = []
    for case in {char.lower(), char.upper()}:
        spellings.append("".join(f"\\x{byte:02x}" for byte in case.encode()))
        if len(case) == 1:
            spellings.append(rf"\\+u(?i:{ord(case):04x})")
    return f"(?:{'|'.join(spellings)})"
