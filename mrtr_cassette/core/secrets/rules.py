"""Which secrets are known: by names, by shapes, and by what a user changes about both."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple

import re2

from mrtr_cassette.core.secrets.shapes import (
    RULES,
    Rule,
    compiled,
    custom_rule,
    matches_whole,
    quiet_options,
    refusal_of,
)
from mrtr_cassette.errors import shorten

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

A star stands before a name that longer names may end with: `DB_PASSWORD`, `openaiApiKey`.
"""

NAMES: Final[Mapping[str, str]] = {
    name.removeprefix("*"): rule for rule, names in _NAMED.items() for name in names.split()
}
"""Each of these names, and its rule."""

ENDINGS: Final = tuple(
    name.removeprefix("*")
    for names in _NAMED.values()
    for name in names.split()
    if name.startswith("*")
)
"""Those of them that longer names may end with."""

_Check = Callable[[str], bool]
_LEAST: Final = 4
"""Characters, without `_` and `-`, of each value that makes an ambiguous name count."""
REFERENCE: Final = r"\$(?:[({]|[0-9]+\Z|(?:[A-Z_][A-Z0-9_]*|[A-Za-z_]+)(?![A-Za-z0-9!#%^&*+=?~]))"
"""Matches at the beginning of a value that names a variable: `$PASSWORD`, and not `$uper5ecret`."""
_WHOLE = re.compile(
    # No template, nothing that is in brackets itself, and no address of a blockchain.
    rf"(?!0x|[{{\[<]|{REFERENCE}|%[({{])"
    rf"(?:[_-]*[^\s\"'_-]){{{_LEAST}}}[^\s\"']{{0,2048}}"
)
_DIGIT_AND_LETTER = re.compile(r"(?=[^0-9]*[0-9])[^A-Za-z]*[A-Za-z]")
_LETTER_AND_OTHER = re.compile(r"(?=[^A-Za-z]*[A-Za-z])[^0-9!@#$^&*]*(?:[0-9@#$^&*]|!.)")
_IN_BASE64 = re.compile(r"(?=.{8})[A-Za-z0-9+/]+={0,2}")
_CASED_WORDS = re.compile(
    r"(?:(?:[A-Z]+|[A-Za-z]?[a-z]*(?:[A-Z][a-z]{2,})*[A-Z]{0,3})[0-9]*(?:[/+]|\Z))+"
)
"""Words in one case, or in camel case."""
_COUNTED = re.compile(r"(?i)\A[0-9]+(?:st|nd|rd|th)\b|\A[a-z]+[-_.][0-9]{1,2}\Z|[0-9](?:%|m?s|h)\Z")
_WORD_OF_RESULT = re.compile(r"(?i)true|false|none|null|pass|fail|passed|failed|skipped")
_USER_AND_PASSWORD = re.compile(rb"[!-9;-~]+:[ -~]{3,}")
_PATH = re.compile(r"[/~.]|[A-Za-z]:[\\/]")
_SEPARATOR = re.compile(r"[^A-Za-z0-9]+")
_MIXED = re.compile(r"[A-Za-z]*+[0-9]+[A-Za-z]")


def _never(_value: str) -> bool:
    return False


def _whole(value: str) -> bool:
    return _WHOLE.fullmatch(value) is not None


def _mixed(value: str) -> bool:
    return len(value) >= 8 and _whole(value) and _DIGIT_AND_LETTER.match(value) is not None


def looks_random(value: str) -> bool:
    """Tell whether a long value has digits between the letters of a long part."""
    parts = _SEPARATOR.split(value) if len(value) >= 16 and _whole(value) else ()
    return any(len(part) >= 12 and _MIXED.match(part) for part in parts)


def _random(value: str) -> bool:
    return len(value) >= 20 and looks_random(value)


def _password(value: str) -> bool:
    return _whole(value) and not (_WORD_OF_RESULT.fullmatch(value) or _PATH.match(value))


def is_strong(value: str) -> bool:
    """Tell whether a value is a password to whoever reads it: more than letters, and no figure."""
    return (
        len(value) >= 6
        and _password(value)
        and _LETTER_AND_OTHER.match(value) is not None
        and not _COUNTED.search(value)
    )


def is_encoded(value: str) -> bool:
    """Tell whether a value may be base64 of anything, and is no word and no path of words."""
    return _IN_BASE64.fullmatch(value) is not None and _CASED_WORDS.fullmatch(value) is None


def _pin(value: str) -> bool:
    return _LEAST <= len(value) <= 12 and value.isascii() and value.isdigit()


def _of_basic(value: str) -> bool:
    try:
        return _USER_AND_PASSWORD.fullmatch(b64decode(value, validate=True)) is not None
    except ValueError:
        return False


def _of_auth(value: str) -> bool:
    return _of_basic(value) or _random(value)


def _token(value: str) -> bool:
    return len(value) >= 12 and _mixed(value)


def _one_time(value: str) -> bool:
    return _pin(value) or _mixed(value)


def _always(_value: str) -> bool:
    return True


class Name(NamedTuple):
    """What the name of a value tells; some names also mean harmless things."""

    rule: str
    alone: _Check = _always
    """Tells whether a value is a secret that stands by itself."""
    beside: _Check = _always
    """The same beside a companion, or as a parameter of a URL or form."""
    companions: frozenset[str] = frozenset()
    """Folded names; beside one of them a value takes less to be a secret."""
    takes_numbers: bool = True
    parameters: frozenset[str] = frozenset()
    """Where these are given, a parameter needs one of them beside it as a companion."""

    @property
    def is_certain(self) -> bool:
        """Whether any value is a secret."""
        return self.alone is _always


_OF_OAUTH = (
    "granttype redirecturi codeverifier codechallenge clientid clientsecret clientassertiontype"
    " tokentype tokentypehint responsetype sessionstate usercode verificationuri"
    " verificationuricomplete expiresin"
)
_OF_LOGIN = "user username userid login loginid email account accountid cardnumber phone host"
_OF_SIGNED_URL = "expires keypairid awsaccesskeyid googleaccessid policy"
_OAUTH, _LOGIN, _SIGNED_URL = (
    frozenset(names.split()) for names in (_OF_OAUTH, _OF_LOGIN, _OF_SIGNED_URL)
)
_OF_AUTHORIZATION = frozenset(["code", "codechallenge", "responsetype"])

_AMBIGUOUS: Final[Mapping[str, Name]] = {
    "code": Name("token", _random, _mixed, _OAUTH, False, _OAUTH | {"state"}),
    "state": Name("token", _never, _mixed, frozenset(), False, _OF_AUTHORIZATION),
    "devicecode assertion": Name("token", _random, _whole, _OAUTH, False),
    "token": Name("token", _token, _mixed, _OAUTH | _LOGIN, False),
    "auth": Name("basic", _of_auth, _of_auth, takes_numbers=False),
    "key": Name("api-key", _never, looks_random, takes_numbers=False),
    "csrf": Name("token", looks_random, _mixed, takes_numbers=False),
    "signature sig": Name("secret", _never, looks_random, _SIGNED_URL, False),
    "pwd": Name("password", _password, _password, _LOGIN),
    "pass": Name("password", is_strong, _password, _LOGIN, False),
    "pin": Name("password", _pin, _pin, _LOGIN, False),
    "otp totp otpcode totpcode mfacode": Name("password", _one_time, _one_time, _LOGIN),
}
AMBIGUOUS: Final = {name: known for names, known in _AMBIGUOUS.items() for name in names.split()}
"""Names, folded, whose values are secrets if context or value says so."""

_ENDING = re.compile(
    # Those of pages and of progress are no secrets.
    r"(?:[A-Z][A-Z0-9_]*|(?i:x)-[\w-]*)(?<!(?i:page|next|sync))(?<!(?i:continuation))[_-]"
    r"(?i:(TOKEN|SECRET)|PASS|PWD?)"
)


def fold(name: str) -> str:
    """Return what `api_key`, `api-key`, `apiKey` and `API_KEY` have in common."""
    return name.replace("_", "").replace("-", "").lower()


def by_ending(name: str) -> Name | None:
    """Return what the name of an environment variable or of a header tells by its last word."""
    ending = _ENDING.fullmatch(name)
    if ending is None:
        return None
    rule, check = (ending[1].lower(), looks_random) if ending[1] else ("password", is_strong)
    return Name(rule, check, check, takes_numbers=False)


def builtin_name(name: str) -> Name | None:
    """Return what a name tells if a user has changed nothing."""
    folded = fold(name)
    # The longest one: `…secretkey` is said more exactly than by `…key`.
    endings = [each for each in ENDINGS if folded.endswith(each)]
    rule = NAMES.get(max([folded] if folded in NAMES else endings, key=len, default=""))
    return Name(rule) if rule else AMBIGUOUS.get(folded) or by_ending(name)


_BEFORE_QUERY = re.compile(r"[?#]")
_WORD = re.compile(r"(?!localhost\Z)[\w-]+")
_RANDOM_HEX = re.compile(r"(?=.*[0-9])(?=.*[A-Fa-f])[0-9A-Fa-f-]{16,}")
_KINDS = ("[0-9a-f]", "[0-9a-f-]", "[0-9A-Za-z]", "[0-9A-Za-z_-]", "[^/?#]")


def patterns_of_path(url: str) -> list[str]:
    """Return patterns that find what looks random in the path of a URL, each as its group 1."""
    patterns = []
    # What stands before the first segment is the host, which a request's target doesn't have.
    segments = ["", *_BEFORE_QUERY.split(url)[0].split("/")[3:]]
    for before, segment in pairwise(segments):
        if looks_random(segment) or _RANDOM_HEX.fullmatch(segment):
            kind = next(kind for kind in _KINDS if re.fullmatch(f"{kind}+", segment))
            beside = f"{before}/" if _WORD.fullmatch(before) else ""
            patterns.append(f"/{beside}({kind}{{{len(segment)}}})")
    return patterns


CUSTOM_KEY: Final = "custom-key"
"""The rule of the names that a user added."""

_ESCAPED = r"\\(?:/|u00[2-7])"
"""An escape of what may be part of a name or of a secret, or of a quote in JSON."""
_BASE64 = r"(?:^|[^A-Za-z0-9+/_-])[C-Za-fw-z0-9][A-Za-z0-9+/_-]{10}"
"""Text in base64 begins with ASCII or the first byte of a character; PNG and JPEG don't."""
PLACEHOLDER_MARKER = r"(?:<|%3[cC]|u003[cC])[a-z0-9-]+(?::|%3[aA])"
_QUOTE = r"\\{0,15}[\"']"
RULE_NAMES: Final = {rule.name for rule in RULES} | set(NAMES.values()) | {CUSTOM_KEY}


@dataclass(frozen=True)
class RedactionRules:
    """What a user changes about redaction.

    Raises:
        ValueError: RE2 refuses a pattern, or it matches the empty text, a key has no letter, or
            something disabled doesn't exist.
    """

    patterns: tuple[str, ...] = ()
    """Regular expressions of RE2; group 1, if any, is the secret of the rule `custom-n`."""
    keys: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the rules."""
        for pattern in self.patterns:
            reason = _why_refused(pattern)
            if reason:
                raise ValueError(f"redaction pattern {shorten(repr(pattern))} {reason}")
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


def _why_refused(pattern: str) -> str:
    reason = refusal_of(pattern)
    if reason.startswith("invalid perl operator"):
        reason += ", as nothing can be looked at without being matched (a group is the secret)"
    if reason:
        return f"is no regular expression: {reason}"
    return "matches the empty text" if matches_whole(pattern, "") else ""


class Mark:
    """What a text may contain besides the shapes of the table, as numbers beside theirs.

    From `NAME` on they may be secrets; the others say where to look, and what is none.
    """

    NAME = -1
    ESCAPE = -2
    PERCENT = -3
    PLACEHOLDER = -4
    BASE64 = -5


class ActiveRules:
    """The rules of one recording: the table without what is disabled, and the user's own."""

    def __init__(self, rules: RedactionRules) -> None:
        self.disabled = set(rules.disabled) & RULE_NAMES
        self.shapes = tuple(rule for rule in RULES if rule.name not in self.disabled)
        self._with_literals = {row for row, each in enumerate(self.shapes) if not each.marker}
        self.custom = tuple(
            custom_rule(number, pattern) for number, pattern in enumerate(rules.patterns, start=1)
        )
        self.keys = {fold(key) for key in rules.keys}
        self._disabled_names = {fold(name) for name in rules.disabled if name not in RULE_NAMES}
        # Most names come again.
        self.name = lru_cache(maxsize=1024)(self._name)

    def marks(self, raw: bytes) -> set[int]:
        """Return what a text may contain: rows of the table, and marks."""
        meanings, patterns, literals = self._markers
        marked = set(map(meanings.__getitem__, patterns.Match(raw) or ()))
        return marked | self._with_literals.intersection(literals.Match(raw, potential=True) or ())

    def likely(self, marks: Collection[int]) -> list[Rule]:
        """Return the shapes that a text may contain."""
        return [self.shapes[row] for row in sorted(marks) if row >= 0]

    @cached_property
    def named(self) -> Any:
        """Finds the end of a name (group 1), the quote after it, and the sign before its value."""
        return compiled(rf"(?i)({self._stems})({_QUOTE})?\s{{0,64}}(=>|[:=])")

    @cached_property
    def beside(self) -> Any:
        """Finds a name (group 2) that is a value, up to where another value begins (3: of JSON)."""
        return compiled(
            rf"\b(?:name|id|key)(?:{_QUOTE})?\s{{0,8}}[:=]\s{{0,8}}({_QUOTE})?[\w.-]*"
            rf"((?i:{self._stems}))(?:\\{{0,15}}\"[^{{}}]*?(\")value\\{{0,15}}\"\s{{0,8}}:"
            r"|[\"']?[ \t\r]*\n\s{0,64}value[ \t]*[:=][ \t]*)"
        )

    @property
    def _stems(self) -> str:
        # A longer name that ends as one of the others does tells nothing: `progressToken`.
        ends, whole = {*ENDINGS, *self.keys}, {*NAMES, *AMBIGUOUS, "pw"}.difference(ENDINGS)
        return rf"{_any_of(ends)}|(?:\b|[_-]|\\[nrt])(?:{_any_of(whole)})"

    @cached_property
    def _markers(self) -> tuple[list[int], Any, Any]:
        """What each of a set of patterns means, the set, and a filter by the literals of shapes."""
        named = rf"(?i)(?:{self._stems})(?:\\*[\"'])?(?:\s|\\+[nrt]|[:=,}}|;])"
        markers = [
            (named, Mark.NAME),
            (_ESCAPED, Mark.ESCAPE),
            ("%[0-7][0-9A-Fa-f]", Mark.PERCENT),
            (PLACEHOLDER_MARKER, Mark.PLACEHOLDER),
            (_BASE64, Mark.BASE64),
            *((rule.marker, row) for row, rule in enumerate(self.shapes) if rule.marker),
        ]
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
        known = None if folded in self._disabled_names else builtin_name(name)
        return None if known is None or known.rule in self.disabled else known


def _any_of(names: Collection[str]) -> str:
    return "|".join("[_-]?".join(map(_spelled, name)) for name in sorted(names))


def _spelled(char: str) -> str:
    if char.isascii():
        return str(re2.escape(char))
    each = {char.lower(), char.upper()}
    escaped = "|".join(rf"\\+u(?i:{ord(c):04x})" for c in each if len(c) == 1)
    in_bytes = "|".join("".join(f"\\x{byte:02x}" for byte in c.encode()) for c in each)
    return f"(?:{in_bytes}|{escaped})"
