"""Names whose values are secrets: always, or only where context or value says so.

Rule: an ambiguous name (`code`, `token`, `pin`) counts if the value looks like a secret of its
kind; beside a name that a login or OAuth has, in the same object, query or form, it takes less.
Source: RFC 6749, RFC 7521, RFC 8628, OpenID Connect, SAML 2.0 bindings; signed URLs of S3,
CloudFront and Cloud Storage.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

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
_BASE64 = re.compile(r"(?=.{8})[A-Za-z0-9+/]+={0,2}")
_CASED_WORDS = re.compile(
    r"(?:(?:[A-Z]+|[A-Za-z]?[a-z]*(?:[A-Z][a-z]{2,})*[A-Z]{0,3})[0-9]*(?:[/+]|\Z))+"
)
"""Words in one case, or in camel case."""
_COUNTED = re.compile(r"(?i)\A[0-9]+(?:st|nd|rd|th)\b|\A[a-z]+[-_.][0-9]{1,2}\Z|[0-9](?:%|m?s|h)\Z")
_WORD_OF_RESULT = re.compile(r"(?i)true|false|none|null|pass|fail|passed|failed|skipped")
_USER_AND_PASSWORD = re.compile(rb"[!-9;-~]+:[ -~]{3,}")
_PATH = re.compile(r"[/~.]|[A-Za-z]:[\\/]")
_SEPARATOR = re.compile(r"[^A-Za-z0-9]+")
_RUN = re.compile(r"[a-z]+|[A-Z]+|[0-9]+")
_TURNS = 0.45
"""Runs of one kind for each character; names in camel case have about a third."""
_MIXED = re.compile(r"[A-Za-z]*+[0-9]+[A-Za-z]")


def _never(_value: str) -> bool:
    return False


def _whole(value: str) -> bool:
    """Tell whether a value is one word, and no template."""
    return _WHOLE.fullmatch(value) is not None


def _mixed(value: str) -> bool:
    """Tell whether a value is one word of at least 8 characters with a digit and a letter."""
    return len(value) >= 8 and _whole(value) and _DIGIT_AND_LETTER.match(value) is not None


def looks_random(value: str) -> bool:
    """Tell whether digits and letters, or small and capital letters, take turns for long."""
    if len(value) < 16 or not _whole(value):
        return False
    if any(len(part) >= 12 and _MIXED.match(part) for part in _SEPARATOR.split(value)):
        return True
    return len(_RUN.findall(value)) >= _TURNS * len(value)


def _long(value: str) -> bool:
    return len(value) >= 16 and _whole(value)


def _random(value: str) -> bool:
    return len(value) >= 20 and looks_random(value)


def _password(value: str) -> bool:
    """Tell whether a value is no word of a test's result, and no path."""
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
    return _BASE64.fullmatch(value) is not None and _CASED_WORDS.fullmatch(value) is None


def _pin(value: str) -> bool:
    return _LEAST <= len(value) <= 12 and value.isascii() and value.isdigit()


def _of_basic(value: str) -> bool:
    """Tell whether a value is a user and a password in base64, as `auth` has them for Docker."""
    try:
        return _USER_AND_PASSWORD.fullmatch(b64decode(value, validate=True)) is not None
    except ValueError:
        return False


def _of_auth(value: str) -> bool:
    return _of_basic(value) or (_random(value) and "://" not in value)


def _token(value: str) -> bool:
    return len(value) >= 12 and _mixed(value)


def _one_time(value: str) -> bool:
    return (_pin(value) and len(value) <= 10) or _mixed(value)


class AmbiguousName(NamedTuple):
    """A name that also means harmless things.

    Attributes:
        rule: what its secrets are called.
        companions: names, folded; beside one of them a value takes less to be a secret.
        beside: tells whether a value is one beside a companion.
        in_query: the same for a parameter of a URL or a form that has no companion.
        alone: the same for any other value that has none.
        takes_numbers: a number of JSON may be one without a companion.
        in_query_only: companions that are none in JSON.
    """

    rule: str
    companions: frozenset[str]
    beside: _Check
    in_query: _Check
    alone: _Check
    takes_numbers: bool = False
    in_query_only: frozenset[str] = frozenset()


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

_ONE_TIME = AmbiguousName("password", _LOGIN, _one_time, _one_time, _one_time, takes_numbers=True)
_AUTH = AmbiguousName("basic", frozenset(), _of_auth, _of_auth, _of_auth)
_SIGNATURE = AmbiguousName("secret", _SIGNED_URL, _long, _random, _never)

AMBIGUOUS: Final[Mapping[str, AmbiguousName]] = {
    "code": AmbiguousName(
        "token", _OAUTH, _mixed, looks_random, _random, in_query_only=frozenset(["state"])
    ),
    "devicecode": AmbiguousName("token", _OAUTH, _whole, _mixed, _random),
    "assertion": AmbiguousName("token", _OAUTH, _whole, looks_random, _random),
    "token": AmbiguousName("token", _OAUTH | _LOGIN, _mixed, _mixed, _token),
    "auth": _AUTH,
    "key": AmbiguousName("api-key", frozenset(), _never, looks_random, _never),
    "csrf": AmbiguousName("token", frozenset(), _never, _mixed, looks_random),
    "signature": _SIGNATURE,
    "sig": _SIGNATURE,
    "pwd": AmbiguousName("password", _LOGIN, _password, _password, _password, takes_numbers=True),
    "pass": AmbiguousName("password", _LOGIN, _password, is_strong, is_strong),
    "pin": AmbiguousName("password", _LOGIN, _pin, _pin, _pin),
    **dict.fromkeys(("otp", "totp", "otpcode", "totpcode", "mfacode"), _ONE_TIME),
}
"""Names, folded, whose values are secrets if context or value says so."""

_ENDING = re.compile(
    # Those of pages and of progress are no secrets.
    r"(?:[A-Z][A-Z0-9_]*|(?i:x)-[\w-]*)(?<!(?i:page|next|sync))(?<!(?i:continuation))[_-]"
    r"(?i:(?P<token>TOKEN)|(?P<secret>SECRET)|(?P<password>PASS|PWD?))"
)
_BY_ENDING: Final[Mapping[str, AmbiguousName]] = {
    rule: AmbiguousName(rule, frozenset(), check, check, check)
    for rule, check in (("token", looks_random), ("secret", looks_random), ("password", is_strong))
}


def fold(name: str) -> str:
    """Return what `api_key`, `api-key`, `apiKey` and `API_KEY` have in common."""
    return name.replace("_", "").replace("-", "").lower()


def by_ending(name: str) -> AmbiguousName | None:
    """Return what the name of an environment variable or of a header tells by its last word."""
    ending = _ENDING.fullmatch(name)
    return None if ending is None or ending.lastgroup is None else _BY_ENDING[ending.lastgroup]


def builtin_rule_of(folded: str) -> str:
    """Return the rule of a folded name whose values are always secrets, or an empty string."""
    rule = NAMES.get(folded)
    if rule is None and folded.endswith(ENDINGS):
        # The longest one: `…secretkey` is said more exactly than by `…key`.
        rule = NAMES[max((e for e in ENDINGS if folded.endswith(e)), key=len)]
    return rule or ""
