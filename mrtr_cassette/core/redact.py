r"""Keeping known shapes of secrets off the disk: in bodies, in header values and in URLs.

Owns: the table of shapes, the member names whose values are secrets, where a secret stands in what
passes, and the placeholder `<rule:TOKEN>` that stands there instead.
Does not own: what a token is (the recorder's keyed hash, a constant on replay), request states and
session ids (`seal`), which headers are kept (`wire`).
Rule: a secret is known by its own shape or by the name it stands under, never by looking random.
Hashes, cursors and nonces are what requests are told apart by.
Laws: every byte outside a secret stays; JSON stays the same JSON with other string values; what
has been redacted is not changed by redacting it again.

Text is searched with its escapes undone, one layer at a time (`\u002d` in a JSON string, JSON in
that string, `%2D` in a URL in it), and what is found is mapped back to where it is spelled.
Source: docs/design.md, "Redaction"; the providers' own descriptions of their tokens.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as Base64Error
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Final, NamedTuple, overload

from mrtr_cassette.core.jsonbytes import Path, find_spans
from mrtr_cassette.core.wire import EVENT_STREAM
from mrtr_cassette.errors import NotJsonError, shorten


@dataclass(frozen=True, slots=True)
class Rule:
    """One shape of secret; several rows of the table may share a name.

    Attributes:
        name: what stands before the colon of its placeholders.
        pattern: finds it in text; group 1, where there is one, is the secret.
        markers: literals of which every match has one, so that most texts need no pattern.
        is_prefixed: a marker begins the secret, which is at least 20 of `[A-Za-z0-9_.-]` long.
            Markers of other rules are folded as member names are.
    """

    name: str
    pattern: re.Pattern[str]
    markers: tuple[str, ...]
    is_prefixed: bool


def _token(name: str, markers: str, pattern: str) -> Rule:
    """Return the row of a token that its beginning tells."""
    # After a letter or a digit it is the inside of a word: `task-…` has no `sk-…`.
    compiled = re.compile(rf"(?<![A-Za-z0-9])(?:{pattern})", re.ASCII)
    return Rule(name, compiled, tuple(markers.split()), is_prefixed=True)


def _shape(name: str, markers: str, pattern: str) -> Rule:
    """Return the row of a secret that what stands around it tells."""
    return Rule(name, re.compile(pattern, re.ASCII), tuple(markers.split(",")), is_prefixed=False)


RULES: Final[tuple[Rule, ...]] = (
    _shape(
        "private-key",
        "private",
        # The words alone are prose. A key that broke off has no end, but lines of base64.
        r"(?s)-----BEGIN (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:(?:(?!-----).){32,}+-----END (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----"
        r"|[A-Za-z0-9+/=\s\\]{48,})",
    ),
    _token("private-key", "AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[A-Z0-9]{50,}"),
    _token(
        "jwt",
        "eyJ",
        # Three parts, or five when encrypted (RFC 7516); then the second may be empty.
        r"eyJ[\w-]{10,}+\.(?:[\w-]{10,}+\.[\w-]{10,}+|[\w-]*+\.[\w-]+\.[\w-]+\.[\w-]{10,}+)",
    ),
    _token("aws", "AKIA ASIA", r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _token("aws", "ABSK", r"ABSK[A-Za-z0-9+/]{60,}={0,2}"),
    _shape(
        "aws",
        "secretkey,secret key,secretaccesskey,secret access key",
        # Forty hexadecimal digits are a commit.
        r"(?i:secret[ _-]?(?:access[ _-]?)?key)\\{0,8}[\"']?\s{0,3}(?:=>|[:=])\s{0,3}"
        r"\\{0,8}[\"']?"
        r"((?![0-9a-f]{40})[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
    ),
    _token("google", "AIza", r"AIza[\w-]{35,}"),
    _token("google", "ya29. GOCSPX- AQ.Ab", r"(?:ya29\.|GOCSPX-|AQ\.Ab)[\w.-]{20,}"),
    _shape("azure", "accountkey,sharedaccesskey", r"(?:Account|SharedAccess)Key=([\w+/%-]{40,}=*)"),
    _shape("azure", "sig=,sig%3d", r"(?<![A-Za-z0-9])sig=([\w+/%-]{30,}=*)"),
    _shape("azure", "q~", r"(?<![\w~.-])[\w~.-]{3}\dQ~[\w~.-]{31,34}(?![\w~.-])"),
    _token(
        "github",
        "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
        r"gh[oprsu]_[A-Za-z0-9_]{30,}|github_pat_\w{30,}",
    ),
    _token(
        "gitlab",
        "glpat- gldt- glrt- glcbt- glptt- glft- glsoat- glimt- glagent- gloas-",
        r"gl(?:pat|dt|rt|cbt|ptt|ft|soat|imt|agent|oas)-[\w.-]{20,}",
    ),
    _token(
        "slack",
        "xoxa- xoxb- xoxc- xoxd- xoxe- xoxe. xoxp- xoxr- xoxs- xapp-",
        r"(?:xox[a-eprs][.-]|xapp-)(?=[\w%.-]*\d)[\w%.-]{16,}",
    ),
    _shape(
        "webhook",
        "hook",
        r"hooks\.slack\.com/(?:services|workflows|triggers)/([\w/+-]{20,})",
    ),
    _shape("webhook", "hook", r"discord(?:app)?\.com/api/(?:v\d+/)?webhooks/\d+/([\w-]{20,})"),
    _shape("webhook", "hook", r"\.webhook\.office\.com/webhookb2/([\w@/-]{20,})"),
    _shape("webhook", "hook", r"hooks\.zapier\.com/hooks/catch/([\w/]{10,})"),
    _token(
        "stripe", "sk_live_ sk_test_ rk_live_ rk_test_", r"[rs]k_(?:live|test)_[A-Za-z0-9]{12,}"
    ),
    _shape("webhook-secret", "whsec", r"(?<![A-Za-z0-9])whsec_[A-Za-z0-9+/]{24,}=*"),
    _token("anthropic", "sk-ant-", r"sk-ant-[\w-]{20,}"),
    _token("openrouter", "sk-or-", r"sk-or-[\w-]{20,}"),
    _token("langfuse", "sk-lf-", r"sk-lf-[0-9a-f-]{30,}"),
    _token(
        "openai",
        "sk-",
        # Also the spelling of many who serve models under OpenAI's API.
        r"sk-(?:(?:proj|svcacct|admin|None)-[\w-]{20,}|(?=[A-Za-z]*\d)[A-Za-z0-9]{20,})",
    ),
    _token("hugging-face", "hf_ api_org_", r"(?:hf|api_org)_(?=[a-z]*[A-Z\d])[A-Za-z0-9]{30,}"),
    _token("groq", "gsk_", r"gsk_[A-Za-z0-9]{40,}"),
    _token("xai", "xai-", r"xai-[A-Za-z0-9]{60,}"),
    _token("perplexity", "pplx-", r"pplx-[A-Za-z0-9]{40,}"),
    _token("replicate", "r8_", r"r8_[A-Za-z0-9]{36,}"),
    _token("nvidia", "nvapi-", r"nvapi-[\w-]{50,}"),
    _token("cerebras", "csk-", r"csk-[a-z0-9]{40,}"),
    _token("together", "tgp_v1_", r"tgp_v1_[\w-]{40,}"),
    _token("elevenlabs", "sk_", r"sk_[0-9a-f]{40,}"),
    _token("pinecone", "pcsk_", r"pcsk_\w{40,}"),
    _token("langsmith", "lsv2_", r"lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}"),
    _token("tavily", "tvly-", r"tvly-(?=[A-Za-z-]*\d)[\w-]{20,}"),
    _token("firecrawl", "fc-", r"fc-[0-9a-f]{32}(?![A-Za-z0-9])"),
    _token("apify", "apify_api_", r"apify_api_[A-Za-z0-9]{30,}"),
    _token("databricks", "dapi", r"dapi[0-9a-f]{32}(?:-\d)?(?![A-Za-z0-9])"),
    _token("alibaba", "LTAI", r"LTAI[A-Za-z0-9]{16,26}(?![A-Za-z0-9])"),
    _token("tencent", "AKID", r"AKID[A-Za-z0-9]{32}(?![A-Za-z0-9])"),
    _token("digitalocean", "dop_v1_ doo_v1_ dor_v1_", r"do[opr]_v1_[0-9a-f]{40,}"),
    _token("heroku", "HRKU-", r"HRKU-[\w-]{36,}"),
    _token("fly", "fo1_ fm1_ fm2_", r"fo1_[\w-]{40,}|fm[12]_[A-Za-z0-9+/]{40,}=*"),
    _token("supabase", "sbp_ sb_secret_", r"sbp_[0-9a-f]{40,}|sb_secret_[\w-]{20,}"),
    _token("netlify", "nfp_", r"nfp_[A-Za-z0-9]{36,}"),
    _token("neon", "napi_", r"napi_[a-z0-9]{40,}"),
    _token("planetscale", "pscale_", r"pscale_(?:tkn|pw|oauth|otkn)_[\w.-]{32,}"),
    _token("shopify", "shpat_ shpca_ shppa_ shpss_", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32,}"),
    _token("square", "sq0atp- sq0csp-", r"sq0(?:atp|csp)-[\w-]{22,}"),
    _token("sendgrid", "SG.", r"SG\.[\w-]{16,}+\.[\w-]{16,}"),
    _token("mailgun", "key-", r"key-[0-9a-f]{32}(?![A-Za-z0-9])"),
    _token("resend", "re_", r"re_[A-Za-z0-9]{8}_[A-Za-z0-9]{20,}"),
    _shape("twilio", "twilio", r"(?i:twilio)[\w .:=\"'-]{0,40}?(?<![A-Za-z0-9])(SK[0-9a-f]{32})"),
    _shape("telegram", ":aa,%3aaa", r"(?<!\d)\d{8,10}:AA[\w-]{33}(?![\w-])"),
    _token(
        "discord",
        "M N O",
        r"(?=[\w-]*\d)[MNO][\w-]{22,27}\.[\w-]{6}\.[\w-]{27,40}(?![\w.-])",
    ),
    _token("notion", "ntn_ secret_", r"ntn_[A-Za-z0-9]{40,}|secret_[A-Za-z0-9]{43}(?!\w)"),
    _token("linear", "lin_api_ lin_oauth_", r"lin_(?:api|oauth)_[A-Za-z0-9]{32,}"),
    _token("figma", "figd_", r"figd_[\w-]{36,}"),
    _token("atlassian", "ATATT3 ATCTT3", r"AT[AC]TT3[\w-]{60,}=?[0-9A-F]*"),
    _token("airtable", "pat", r"pat[A-Za-z0-9]{14}\.[0-9a-f]{60,}"),
    _token("postman", "PMAK-", r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}"),
    _token("doppler", "dp.", r"dp\.(?:pt|st|ct|sa|scim|audit)\.[\w.-]{40,}"),
    _token("vault", "hvs. hvb. hvr.", r"hv[bsr]\.(?=[A-Za-z_-]*\d)[\w-]{24,}"),
    _token("grafana", "glsa_", r"glsa_[A-Za-z0-9]{32}_[0-9a-f]{8}"),
    _shape("grafana", "glc", r"(?<![A-Za-z0-9])glc_eyJ[A-Za-z0-9+/]{32,}=*"),
    _token("new-relic", "NRAK-", r"NRAK-[A-Z0-9]{27}"),
    _shape("sentry", "sntry", r"(?<![A-Za-z0-9])sntry[su]_[\w+/=-]{40,}"),
    _token("docker", "dckr_pat_ dckr_oat_", r"dckr_[po]at_[\w-]{24,}"),
    _token("npm", "npm_", r"npm_(?=[a-z]*[A-Z\d])[A-Za-z0-9]{36}(?!\w)"),
    _token("pypi", "pypi-AgE", r"pypi-AgE[\w-]{40,}"),
    _token("rubygems", "rubygems_", r"rubygems_[0-9a-f]{40,}"),
    _token("jfrog", "AKCp", r"AKCp[A-Za-z0-9]{60,}"),
    _token("1password", "ops_eyJ", r"ops_eyJ[\w+/-]{60,}=*"),
    _shape(
        "url-password",
        "@,%40",
        r"://[^\s/?#@:\"'<>\\]{0,256}+:((?![$%]?\{)[^\s/?#@\"'<>\\]{1,512}+)@",
    ),
    _shape(
        "basic",
        "basic",
        # Base64 of a text with a colon, which has three spellings; so "Basic authentication" stays.
        r"(?<![\w-])(?i:basic)[ \t]{1,4}((?=(?:[A-Za-z0-9+/]{4})*?"
        r"(?:O[g-v]|[A-Za-z0-9+/][DTjz][o-r]|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]6))"
        r"[A-Za-z0-9+/]{7,}={0,2})(?![\w+/=-])",
    ),
    _shape(
        "bearer",
        "bearer",
        # A challenge goes on with parameters (`Bearer resource_metadata="…"`), prose with words.
        r"(?<![\w-])(?i:bearer)[ \t]{1,4}"
        r"((?:(?=[A-Za-z._~+/-]*\d)[\w.~+/-]{16,}+|(?=[\w.~+/-]*?[a-z][A-Z])[\w.~+/-]{24,}+)"
        r"(?:={1,2}(?![\"']?[\w/])|(?!=)))",
    ),
    _shape(
        "bearer",
        "authorization",
        # After the header's name anything but a plain word is a credential.
        r"(?i:authorization)\\{0,8}[\"']?[ \t]{0,4}[:=][ \t]{0,4}\\{0,8}[\"']?"
        r"(?i:bearer|token|apikey|api-key|key)[ \t]{1,4}"
        r"((?![a-z]+(?![\w.~+/=:-]))[\w.~+/=:-]{8,})",
    ),
)
"""The shapes; where two rows find the same text, the first names it."""

NAMES: Final[Mapping[str, str]] = {
    name: rule
    for rule, names in {
        "password": "password passwords passwd passphrase passcode mysqlpwd",
        "secret": "secret clientsecret consumersecret secretkey secretaccesskey encryptionkey"
        " signingkey masterkey xamzsignature xgoogsignature",
        "api-key": "apikey xapikey apikeys xauthkey",
        "token": "accesstoken refreshtoken idtoken authtoken sessiontoken bearertoken apitoken"
        " githubtoken ghtoken gitlabtoken slacktoken npmtoken hftoken subjecttoken actortoken"
        " clientassertion codeverifier",
        "authorization": "authorization proxyauthorization xauthorization authorizationheader",
        "cookie": "cookie cookies setcookie sessioncookie",
        "private-key": "privatekey",
        "credentials": "credentials credential",
    }.items()
    for name in names.split()
}
"""Member names, folded, whose values are secrets whatever they look like, and the rule of each."""

NAME_ENDINGS: Final[Mapping[str, str]] = {
    ending: rule
    for rule, endings in {
        "password": "password passwd passphrase",
        "secret": "clientsecret consumersecret appsecret apisecret authsecret jwtsecret"
        " sessionsecret cookiesecret totpsecret sharedsecret signingsecret webhooksecret secretkey"
        " secretaccesskey accesskeysecret accountkey sharedaccesskey",
        "api-key": "apikey subscriptionkey",
        "token": "accesstoken refreshtoken authtoken sessiontoken bearertoken apitoken bottoken"
        " securitytoken",
        "private-key": "privatekey",
    }.items()
    for ending in endings.split()
}
"""What also makes a longer name a secret's: `DB_PASSWORD`, `openaiApiKey`."""

_CUSTOM_KEY = "custom-key"
"""The rule of the names that a user added."""

_HINTS = tuple(
    b"pass pwd secret token key auth cookie credential signature assertion verifier".split()
)
"""Each name has one of them."""

_RULE_NAMES = {rule.name for rule in RULES} | set(NAMES.values()) | {_CUSTOM_KEY}
_RULE = "|".join((*sorted(map(re.escape, _RULE_NAMES), key=len, reverse=True), r"custom-\d+"))
_PLACED = r"[A-Za-z0-9_.-]{1,200}"
_PLACEHOLDER = re.compile(
    # Clients that echo one may escape it: Go and .NET write `\u003c` for `<` in JSON.
    rf"(?:<|%3[Cc]|\\{{1,8}}u003[cC])(?P<rule>{_RULE})(?::|%3[Aa])"
    rf"(?P<token>{_PLACED})(?:>|%3[Ee]|\\{{1,8}}u003[eE])",
    re.ASCII,
)
_WHOLE_PLACED = re.compile(_PLACED)
_SURROGATE = re.compile(r"sha256:[0-9a-f]{64}|mrtr-(?:state|session):[0-9a-f:]+")
"""What `seal` has put in a secret's place: the same for everyone, and matched by."""

_SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"
_EXEMPT: Final[tuple[Path, ...]] = (
    ("id",),
    ("params", "_meta", "progressToken"),
    ("params", "progressToken"),
    ("params", "requestState"),
    ("result", "requestState"),
    ("params", "_meta", _SUBSCRIPTION_ID),
    ("result", "_meta", _SUBSCRIPTION_ID),
)
"""Places of a message that replay splices, seals or compares by itself."""

_FORM = "application/x-www-form-urlencoded"
_PASSES = 100
"""How often a text is searched again at most, for patterns that match next to a placeholder."""

_SHORTEST = len("apikey=x")
"""Characters that a text has at least if a rule of ours finds something in it."""

_DEEPEST = 5
"""URLs in URLs that are searched. JSON in JSON needs no limit, as its escapes double each time."""

_JSON_TOKEN = re.compile(
    r"[ \t\r\n,:]*+(?:"
    r'"(?P<text>[^"\\]*+(?:\\.[^"\\]*+)*+)(?:"(?P<key>[ \t\r\n]*+:)?|\\?\Z)'
    r"|(?P<opening>[{\[])|(?P<closing>[}\]])"
    r"|(?P<number>-?\d[\d.eE+-]*+)|true|false|null|[a-z]{1,4}\Z)",
    re.DOTALL,
)
_JSON_BEGINNING = re.compile(r'\ufeff?[ \t\r\n]*+(?=[{\["tfn\d-])')
_JSON_IN_TEXT = re.compile(r'[ \t\r\n]*+[{\[]|".*"\Z', re.DOTALL)
_JSON_END = re.compile(r"[ \t\r\n,:]*+-?\Z")
_JSON_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)",
    re.DOTALL,
)
_JSON_SHORT = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_PERCENT = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_PERCENT_OR_PLUS = re.compile(r"(?:%[0-9A-Fa-f]{2})+|\+")
_LINE = re.compile(r"([^\r\n]*+)(?:\r\n|\r|\n|\Z)")
_ENCODED_HEADER = re.compile(r"=\?base64\?([A-Za-z0-9+/]*={0,2})\?=")

_URL = re.compile(
    r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{0,30}://"
    r"[^\s\"'<>\\^`{|}]*[^\s\"'<>\\^`{|}.,;:!?)\]]"
)
_ASSIGNED = re.compile(
    r"(?<![\w.-])-{0,2}(?:\\{0,8}[\"'])?(?P<name>[A-Za-z_][\w.-]{1,63}+)(?P<quote>\\{0,8}[\"'])?"
    r"(?P<sign>[ \t]{0,4}(?:=>|[:=])[ \t]{0,4})"
    r"(?=\\{0,8}\"(?P<double>(?:[^\"\\\r\n]|\\++(?!\")){1,2048}+)(?:\\{0,8}\"|\Z)"
    r"|\\{0,8}'(?P<single>(?:[^'\\\r\n]|\\++(?!')){1,2048}+)(?:\\{0,8}'|\Z)"
    r"|(?P<bare>[^\s\"'<>&;,(){}\[\]$`|\\]{1,2048}+)(?:[\s&;\"'\\]|\Z))"
)
"""A name and its value in prose, logs, settings and code; what counts is decided by `_is_meant`."""

_SCHEME = re.compile(r"(?i)(bearer|basic|token|apikey|api-key|digest|negotiate)[ \t]+(?=\S)")
_NO_VALUE = re.compile(
    r"(?i)(?:bearer|basic|token|digest|negotiate|none|null|nil|true|false|undefined|required"
    r"|optional|string|str|\W*)"
)
_TEMPLATE = re.compile(r"[$<]|\{\{|%[({]")

_ESCAPED_ASCII = re.compile(
    rb"\\u00(?:2[0dDeE]|3[0-9aA]|4[0-9a-fA-F]|5[0-9aAfF]|6[1-9a-fA-F]|7[0-9aAeE])"
    rb"|%(?:2[dDeE]|3[0-9]|4[1-9a-fA-F]|5[0-9aAfF]|6[1-9a-fA-F]|7[0-9aAeE])"
)
"""Escapes of characters that need none: a marker may be spelled with them."""

_GOES_ON = rb"[a-z0-9]*+(?:\\*+[\"'])?(?:\s|\\++[nrt])*+(?:[:=])(?!\s*+\{)"
"""How a folded text goes on after a name that is given a value, which is no object."""

_LOWER = bytes(range(256)).lower()
_WORD = bytes(
    ord("w") if chr(code).isascii() and (chr(code).isalnum() or chr(code) in "_.-") else ord(" ")
    for code in range(256)
)
_LONG = b"w" * 20


@dataclass(frozen=True)
class RedactionRules:
    """What a user changes about redaction.

    Attributes:
        patterns: further regular expressions; group 1, where there is one, is the secret. The nth
            is the rule `custom-n`. They see the text of one JSON string at a time.
        keys: further member names whose values are secrets.
        disabled: rules, or member names, that are switched off.

    Raises:
        ValueError: a pattern that is no regular expression or matches the empty text, a key
            without a letter, or something disabled that doesn't exist.
    """

    patterns: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what can't be meant."""
        for pattern in self.patterns:
            try:
                matches_nothing = re.compile(pattern).match("") is not None
            except re.error as error:
                raise ValueError(
                    f"redaction pattern {shorten(repr(pattern))} is no regular expression: {error}"
                ) from None
            if matches_nothing:
                raise ValueError(
                    f"redaction pattern {shorten(repr(pattern))} matches the empty text"
                )
        for key in self.keys:
            if not _fold(key):
                raise ValueError(f"redaction key {key!r} names no member")
        for name in self.disabled:
            if name not in _RULE_NAMES and not _builtin_rule_of(_fold(name)):
                raise ValueError(
                    f"redaction rule {shorten(repr(name))} does not exist; the rules are "
                    f"{', '.join(sorted(_RULE_NAMES - {_CUSTOM_KEY}))}"
                )


def _fold(name: str) -> str:
    """Return what `api_key`, `api-key`, `apiKey` and `API_KEY` have in common."""
    return name.replace("_", "").replace("-", "").lower()


def _builtin_rule_of(folded: str) -> str:
    rule = NAMES.get(folded)
    if rule is None and folded.endswith(tuple(NAME_ENDINGS)):
        # The longest one: `…secretkey` is said more exactly than by `…key`.
        ending = max((e for e in NAME_ENDINGS if folded.endswith(e)), key=len)
        rule = NAME_ENDINGS[ending]
    return rule or ""


class _Plan(NamedTuple):
    """What a text has to be searched for, as far as a look from afar tells.

    Attributes:
        rules: shapes that may be in it.
        stems: parts of the folded names of secrets that are in it.
    """

    rules: tuple[Rule, ...]
    stems: tuple[str, ...]


def _as_it_is(placeholder: str) -> str:
    return placeholder


def _as_json_string(placeholder: str) -> str:
    return f'"{placeholder}"'


def _in_json_string(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _in_url(text: str) -> str:
    for char, escape in (("<", "%3C"), (">", "%3E"), ('"', "%22"), ("\\", "%5C")):
        text = text.replace(char, escape)
    return text


def _nothing(_placeholder: str) -> str:
    return ""


def _both(outer: Callable[[str], str], inner: Callable[[str], str], text: str) -> str:
    return outer(inner(text))


@dataclass(frozen=True, slots=True)
class _Found:
    """A secret in a text.

    Attributes:
        start: offset of its first character.
        end: offset after its last one.
        rule: what it was found by.
        secret: it, with all escapes undone.
        spelled: turns the placeholder into what stands for it in this text.
    """

    start: int
    end: int
    rule: str
    secret: str
    spelled: Callable[[str], str] = _as_it_is


class _View:
    """A text with one layer of escapes undone, and where each character of it came from."""

    def __init__(
        self, raw: str, pattern: re.Pattern[str], undo: Callable[[str], Iterable[tuple[str, int]]]
    ) -> None:
        """Undo what `pattern` matches; `undo` gives characters and how long each was spelled."""
        parts: list[str] = []
        self._starts: list[int] = [0]
        self._sources: list[int] = [0]
        length = at = 0
        for match in pattern.finditer(raw):
            if match.start() > at:
                parts.append(raw[at : match.start()])
                length += match.start() - at
            at = match.start()
            for char, spelled in undo(match[0]):
                self._starts.append(length)
                self._sources.append(at)
                parts.append(char)
                length += 1
                at += spelled
            self._starts.append(length)
            self._sources.append(at)
        parts.append(raw[at:])
        self.text = "".join(parts)

    def source(self, at: int) -> int:
        """Return where the character at an offset is spelled."""
        index = bisect_right(self._starts, at) - 1
        return self._sources[index] + at - self._starts[index]


def _undo_json(escape: str) -> list[tuple[str, int]]:
    if len(escape) == 2:
        return [(_JSON_SHORT.get(escape[1], escape[1]), 2)]
    units = bytes.fromhex(escape.replace("\\u", ""))
    return [(units.decode("utf-16-be", "surrogatepass"), len(escape))]


def _undo_percent(escape: str) -> list[tuple[str, int]]:
    if escape == "+":
        return [(" ", 1)]
    text = bytes.fromhex(escape.replace("%", "")).decode("utf-8", "surrogateescape")
    return [(char, 3 * len(char.encode("utf-8", "surrogateescape"))) for char in text]


_json_view = partial(_View, pattern=_JSON_ESCAPE, undo=_undo_json)
_url_view = partial(_View, pattern=_PERCENT, undo=_undo_percent)
_form_view = partial(_View, pattern=_PERCENT_OR_PLUS, undo=_undo_percent)


class _Query(NamedTuple):
    """How names and values stand in a text, and how they are spelled."""

    pair: re.Pattern[str]
    view: Callable[[str], _View]


_OF_URL = _Query(re.compile(r"[?&#]([^=&?#]{1,200})=([^&#]*)"), _url_view)
_OF_FORM = _Query(re.compile(r"(?:\A|&)([^=&]{1,200})=([^&]*)"), _form_view)


def _through(
    view: _View, found: Iterable[_Found], at: int, layer: Callable[[str], str]
) -> Iterator[_Found]:
    """Map what was found in a view to the text that has it at offset `at`."""
    for one in found:
        yield replace(
            one,
            start=at + view.source(one.start),
            end=at + view.source(one.end),
            spelled=partial(_both, layer, one.spelled),
        )


class _Spans:
    """Spans that don't overlap, in order, for quick questions."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        """Hold the spans."""
        self._spans = list(spans)
        self._starts = [start for start, _ in self._spans]

    def hold(self, start: int, end: int) -> bool:
        """Tell whether one of them holds all of another span."""
        index = bisect_right(self._starts, start) - 1
        return index >= 0 and end <= self._spans[index][1]

    def cut(self, start: int, end: int) -> bool:
        """Tell whether one of them begins or ends inside another span without lying in it."""
        before = bisect_left(self._starts, start) - 1
        last = bisect_left(self._starts, end) - 1
        return (before >= 0 and self._spans[before][1] > start) or (
            last >= 0 and self._spans[last][1] > end
        )


def _without_overlaps(text: str, found: list[_Found]) -> list[_Found]:
    """Return what was found, each place once; of two that overlap the wider one counts.

    Two that only overlap in part become one, or a rest of the second would be left.
    """
    found.sort(key=lambda one: (one.start, -one.end))
    kept: list[_Found] = []
    for one in found:
        if not kept or one.start >= kept[-1].end:
            kept.append(one)
        elif one.end > kept[-1].end:
            wider = text[kept[-1].start : one.end]
            kept[-1] = replace(kept[-1], end=one.end, secret=wider)
    return kept


def _json_tokens(text: str) -> list[re.Match[str]] | None:
    """Return the strings, brackets and numbers of JSON texts, or None for what is none.

    The texts may follow one another, break off, or be nested to any depth.
    """
    beginning = _JSON_BEGINNING.match(text)
    if beginning is None:
        return None
    at = beginning.end()
    tokens: list[re.Match[str]] = []
    while token := _JSON_TOKEN.match(text, at):
        tokens.append(token)
        at = token.end()
    return tokens if _JSON_END.match(text, at) else None


def _without_exempt(
    text: str, tokens: Iterable[re.Match[str]], found: Sequence[_Found]
) -> Iterator[_Found]:
    """Leave out what stands in the exempt places of the messages that `tokens` are of."""
    starts = [0]
    depth = 0
    for token in tokens:
        if depth == 0:
            starts.append(token.start())
        depth += (token.lastgroup == "opening") - (token.lastgroup == "closing")
    starts.append(len(text))
    at, exempt = -1, _Spans(())
    for one in found:
        index = bisect_right(starts, one.start) - 1
        if index != at:
            at, exempt = index, _exempt_spans(text[starts[index] : starts[index + 1]])
        if not exempt.hold(one.start - starts[at], one.end - starts[at]):
            yield one


def _exempt_spans(text: str) -> _Spans:
    raw = text.encode("utf-8", "surrogateescape")
    skipped = len(raw) - len(raw.lstrip(b"\xef\xbb\xbf \t\r\n,:"))
    try:
        found = find_spans(raw[skipped:], _EXEMPT)
    except NotJsonError:
        return _Spans(())
    spans = sorted(
        span
        for spans in found.values()
        for span in spans
        # What is no string and no number is no id, so it is like any other value.
        if raw[skipped + span.start] not in b"{["
    )
    characters = {0: 0}
    at = 0
    for boundary in (offset + skipped for span in spans for offset in span):
        length = len(raw[at:boundary].decode("utf-8", "surrogateescape"))
        characters[boundary] = characters[at] + length
        at = boundary
    return _Spans(
        (characters[span.start + skipped], characters[span.end + skipped]) for span in spans
    )


class Redactor:
    """Puts placeholders in the place of secrets; the same ones for the same text, every time."""

    def __init__(self, rules: RedactionRules, token: Callable[[str, str], str]) -> None:
        """Work out what is looked for.

        Args:
            token: returns what stands in a placeholder of a rule for a secret: 1 to 200 letters,
                digits, `_`, `-` and `.`. The secret has all escapes undone and may have lone
                surrogates. Anything else it returns raises ValueError where it is used.
        """
        self._token = token
        off = set(rules.disabled) & _RULE_NAMES
        self._rules = tuple(rule for rule in RULES if rule.name not in off)
        self._custom = tuple(
            Rule(f"custom-{number}", re.compile(pattern), (), is_prefixed=False)
            for number, pattern in enumerate(rules.patterns, start=1)
        )
        self._keys = {_fold(key) for key in rules.keys}
        self._off = off
        self._names_off = {_fold(name) for name in rules.disabled if name not in _RULE_NAMES}
        markers = [
            (place, rule.is_prefixed, tuple(marker.encode() for marker in rule.markers))
            for place, rule in enumerate(self._rules)
        ]
        self._shapes = [(place, ms) for place, is_prefixed, ms in markers if not is_prefixed]
        self._tokens = [(place, ms) for place, is_prefixed, ms in markers if is_prefixed]
        self._shape_markers = tuple({marker: None for _, ms in self._shapes for marker in ms})
        beginnings = b"|".join(
            re.escape(marker) for _, markers in self._tokens for marker in markers
        )
        # An escape before the token, `\n` or `%20`, leaves its last characters at the word's start.
        self._begins = re.compile(
            rb"(?:[bfnrt]|u[0-9a-fA-F]{4}|[0-9a-fA-F]{2})?(?:%s)" % (beginnings or rb"(?!)")
        )
        self._begins_inside = re.compile(rb"[_.-](?:%s)" % (beginnings or rb"(?!)"))
        stems = {*NAMES, *NAME_ENDINGS, *self._keys}
        self._stems = {
            # What isn't ASCII may be spelled in many ways, so it is always taken to be there.
            (stem.encode() if stem.isascii() else b""): (
                stem if stem.isascii() else "",
                re.compile(stem.encode() + _GOES_ON if stem.isascii() else b""),
            )
            for stem in stems
            if not any(other != stem and other in stem for other in stems)
        }
        self._hints = (
            *_HINTS,
            *(key.encode() if key.isascii() else b"" for key in self._keys),
        )

    def body(self, raw: bytes, content_type: str) -> bytes:
        """Redact a body, or any piece of one; of an event stream whole events.

        JSON, also line by line or broken off, forms, event streams and other text are searched.
        Bytes that are no text pass.
        """
        media_type = content_type.partition(";")[0].strip().lower()
        # Again, as a pattern may match next to a placeholder what it didn't before.
        for _ in range(_PASSES):
            plan = self._plan(raw)
            if plan is None or (b"\0" in raw and not _is_utf8(raw)):
                return raw
            text = raw.decode("utf-8", "surrogateescape")
            if media_type == EVENT_STREAM:
                found = self._in_stream(text, plan)
            else:
                found = self._in_body(text, plan, is_form=media_type == _FORM)
            if not found:
                return raw
            raw = self._replaced(text, found).encode("utf-8", "surrogateescape")
        return raw

    def text(self, value: str) -> str:
        """Redact a log line, or any text that is no body."""
        return self._settled(value, lambda text, plan: self._in_value(text, plan, _DEEPEST))

    def target(self, path_with_query: str) -> str:
        """Redact a request target; placeholders in it are percent-encoded."""
        return self._settled(
            path_with_query, lambda text, plan: self._in_text(text, plan, _DEEPEST, _OF_URL)
        )

    def header(self, name: str, value: str) -> str:
        """Redact a header's value, which may be a secret by the header's name.

        A value in MCP's base64 spelling that has a secret comes back as plain text if a header can
        hold that, else as a placeholder alone.
        """
        bare = name.lower().removeprefix("mcp-param-")
        encoded = _ENCODED_HEADER.fullmatch(value)
        plain = value
        if encoded is not None:
            try:
                plain = b64decode(encoded[1]).decode("utf-8", "surrogateescape")
            except Base64Error:
                encoded = None
        rule = self._rule_of(bare)
        redacted = self._settled(
            plain,
            lambda text, plan: (
                self._named(rule, text, plan) if rule else self._in_value(text, plan, _DEEPEST)
            ),
            is_named=bool(rule),
        )
        if redacted == plain:
            return value
        if encoded is not None and not (redacted.isascii() and redacted.isprintable()):
            first = _PLACEHOLDER.search(redacted)
            return value if first is None else first[0]
        return redacted

    def _settled(
        self,
        text: str,
        find: Callable[[str, _Plan], list[_Found]],
        *,
        is_named: bool = False,
    ) -> str:
        for _ in range(_PASSES):
            plan = self._plan(text.encode("utf-8", "surrogatepass"))
            if plan is None and not is_named:
                return text
            found = find(text, plan or _Plan((), ()))
            if not found:
                return text
            text = self._replaced(text, found)
        return text

    def _replaced(self, text: str, found: list[_Found]) -> str:
        parts: list[str] = []
        at = 0
        for one in sorted(found, key=lambda one: one.start):
            new = "" if one.spelled is _nothing else self._placeholder(one.rule, one.secret)
            parts += (text[at : one.start], one.spelled(new))
            at = one.end
        parts.append(text[at:])
        return "".join(parts)

    def _placeholder(self, rule: str, secret: str) -> str:
        token = self._token(rule, secret)
        if not _WHOLE_PLACED.fullmatch(token):
            raise ValueError(f"{token!r} can't stand in a placeholder")
        return f"<{rule}:{token}>"

    # A look from afar

    def _plan(self, raw: bytes) -> _Plan | None:
        """Tell what to search for; None where there is nothing."""
        if (b"\\u00" in raw or b"%" in raw) and _ESCAPED_ASCII.search(raw):
            return _Plan(
                (*self._custom, *self._rules), tuple(stem for stem, _ in self._stems.values())
            )
        folded = raw.translate(_LOWER, b"_-")
        # Nearly every request has a progress token, which would pass for a hint.
        hinting = folded if self._keys else folded.replace(b"progresstoken", b"")
        stems: tuple[str, ...] = ()
        if any(hint in hinting for hint in self._hints):
            is_plain = b"%" not in raw
            stems = tuple(
                stem
                for marker, (stem, assigned) in self._stems.items()
                if marker in folded and not (is_plain and assigned.search(folded) is None)
            )
        active = {marker for marker in self._shape_markers if marker in folded}
        likely = {place for place, ms in self._shapes if not active.isdisjoint(ms)}
        for word in _long_words(raw):
            if self._begins.match(word) or self._begins_inside.search(word):
                likely |= {place for place, ms in self._tokens if any(m in word for m in ms)}
        if not (likely or stems or self._custom):
            return None
        rules = (self._rules[place] for place in sorted(likely))
        return _Plan((*self._custom, *rules), stems)

    def _rule_of(self, name: str) -> str:
        """Return the rule that makes values under a name secrets, or an empty string."""
        folded = _fold(name)
        if folded in self._keys:
            return _CUSTOM_KEY
        rule = _builtin_rule_of(folded)
        return "" if rule in self._off or folded in self._names_off else rule

    # Where secrets stand, from the outermost layer inwards

    def _in_body(self, text: str, plan: _Plan, *, is_form: bool = False) -> list[_Found]:
        tokens = _json_tokens(text)
        if tokens is not None:
            found = self._in_json(tokens, plan, _DEEPEST)
            return list(_without_exempt(text, tokens, found)) if found else []
        if is_form:
            return self._in_text(text, plan, _DEEPEST, _OF_FORM)
        return self._in_text(text, plan, _DEEPEST)

    def _in_stream(self, text: str, plan: _Plan) -> list[_Found]:
        """Search the data of each event as one text, and other lines each by itself."""
        found: list[_Found] = []
        lines: list[tuple[int, int]] = []
        for line in _LINE.finditer(text, text.startswith("\ufeff")):
            name, colon, value = line[1].partition(":")
            start = line.end(1) - len(value)
            if not line[1]:
                found += self._in_event(text, lines, plan)
                lines = []
            elif name == "data" and colon:
                lines.append((start + value.startswith(" "), line.end(1)))
            elif colon:
                found += _moved(self._in_text(value, plan, _DEEPEST), start)
        return found

    def _in_event(
        self, text: str, lines: Sequence[tuple[int, int]], plan: _Plan
    ) -> Iterator[_Found]:
        data = "\n".join(text[start:end] for start, end in lines)
        offsets = [0, *accumulate(end - start + 1 for start, end in lines)]
        for one in self._in_body(data, plan) if data else ():
            # No string of JSON goes on in the next line, but other text may.
            pieces = []
            for index in range(bisect_right(offsets, one.start) - 1, bisect_left(offsets, one.end)):
                start, end = lines[index]
                first = start + max(one.start - offsets[index], 0)
                last = min(start + one.end - offsets[index], end)
                if first < last:
                    pieces.append((first, last))
            if _PLACEHOLDER.fullmatch("".join(text[first:last] for first, last in pieces)):
                continue
            spelled = one.spelled
            for first, last in pieces:
                yield replace(one, start=first, end=last, spelled=spelled)
                spelled = _nothing

    def _in_value(self, text: str, plan: _Plan, depth: int) -> list[_Found]:
        """Search a text that may be JSON itself: an object, an array, or one string in quotes."""
        tokens = _json_tokens(text) if _JSON_IN_TEXT.match(text) else None
        if tokens is not None and text[0] == '"' and len(tokens) > 1:
            tokens = None
        if tokens is None:
            return self._in_text(text, plan, depth)
        return self._in_json(tokens, plan, depth)

    def _in_json(self, tokens: list[re.Match[str]], plan: _Plan, depth: int) -> list[_Found]:
        found: list[_Found] = []
        # Of each open object or array: its bracket, and the rule for values right in it.
        opened = [("", "")]
        key = ""
        for token in tokens:
            bracket, rule = opened[-1]
            match token.lastgroup:
                case "key" if bracket != "[":
                    key = token["text"]
                    if "\\" in key:
                        key = _json_view(key).text
                    names = plan.stems and bracket != _OF_SCHEMA
                    opened[-1] = (bracket, self._rule_of(key) if names else "")
                    continue
                case "opening":
                    opened.append(_opened(token["opening"], bracket, rule, key))
                case "closing" if len(opened) > 1:
                    opened.pop()
                case "text" | "key":
                    found += self._in_string(token, rule, plan, depth)
                case "number" if rule and bracket != "[":
                    start, end = token.span("number")
                    found.append(_Found(start, end, rule, token["number"], _as_json_string))
            key = ""
        return found

    def _in_string(
        self, token: re.Match[str], rule: str, plan: _Plan, depth: int
    ) -> Iterable[_Found]:
        raw, at = token["text"], token.start("text")
        if len(raw) < _SHORTEST and not (rule or self._custom):
            return ()
        if "\\" not in raw:
            return _moved(self._in_member(rule, raw, plan, depth), at)
        view = _json_view(raw)
        return _through(view, self._in_member(rule, view.text, plan, depth), at, _in_json_string)

    def _in_member(self, rule: str, value: str, plan: _Plan, depth: int) -> list[_Found]:
        """Search a value that stands under a name; `rule` is empty for most names."""
        return self._named(rule, value, plan) if rule else self._in_value(value, plan, depth)

    def _named(self, rule: str, value: str, plan: _Plan) -> list[_Found]:
        """Return a value that its name makes a secret; the scheme of a credential stays."""
        start = 0
        if rule == "authorization" and (scheme := _SCHEME.match(value)):
            start = scheme.end()
            named = scheme[1].lower()
            rule = named if named in ("basic", "bearer") and named not in self._off else rule
        secret = value[start:]
        if not secret or _PLACEHOLDER.fullmatch(secret) or _SURROGATE.fullmatch(secret):
            return []
        if rule != _CUSTOM_KEY:
            # Where its shape is known too, it is called the same as in other places.
            for one in self._in_text(value, plan._replace(stems=()), depth=0):
                if (one.start, one.end) == (start, len(value)):
                    rule = one.rule
        return [_Found(start, len(value), rule, secret)]

    def _in_text(
        self, text: str, plan: _Plan, depth: int, query: _Query | None = None
    ) -> list[_Found]:
        """Search a text that is no JSON, and the URLs in it.

        Args:
            query: the text as a whole is a URL or a form.
        """
        found = [
            _Found(start, end, rule.name, text[start:end])
            for rule in plan.rules
            for match in rule.pattern.finditer(text)
            for start, end in [match.span(1 if rule.pattern.groups else 0)]
            if start < end
        ]
        urls: list[tuple[int, int]] = []
        if query is not None:
            urls = [(0, len(text))]
        elif "://" in text:
            urls = [match.span() for match in _URL.finditer(text)]
        within = _Spans(urls)
        found = [
            replace(one, secret=_url_view(one.secret).text, spelled=_in_url)
            if within.hold(one.start, one.end)
            else one
            for one in found
        ]
        if plan.stems:
            assigned = self._assigned(text, plan)
            found += (one for one in assigned if not within.hold(one.start, one.end))
        for start, end in urls if depth > 0 else ():
            url = text[start:end]
            if plan.stems or query or "%" in url:
                in_url = self._in_one_url(url, query or _OF_URL, plan, depth - 1)
                found += _moved(in_url, start)
        if not found:
            return []
        placeholders = _Spans(match.span() for match in _PLACEHOLDER.finditer(text))
        return _without_overlaps(
            text,
            [
                one
                for one in found
                if not placeholders.hold(one.start, one.end)
                and not placeholders.cut(one.start, one.end)
            ],
        )

    def _in_one_url(self, url: str, query: _Query, plan: _Plan, depth: int) -> Iterator[_Found]:
        for pair in query.pair.finditer(url):
            rule = self._rule_of(query.view(pair[1]).text) if plan.stems else ""
            view = query.view(pair[2])
            # What is spelled as it is has been searched with all the rest, unless it is JSON.
            if rule or view.text != pair[2] or pair[2][:1] in ("{", "["):
                found = self._in_member(rule, view.text, plan, depth)
                yield from _through(view, found, pair.start(2), _in_url)
        if "%" in url:
            view = _url_view(url)
            shapes = self._in_text(view.text, plan._replace(stems=()), depth)
            yield from _through(view, shapes, 0, _in_url)

    def _assigned(self, text: str, plan: _Plan) -> Iterator[_Found]:
        """Find values that are given to a secret's name in text: `DB_PASSWORD=…`."""
        folded = _fold(text)
        if not any(stem in folded for stem in plan.stems):
            return
        for match in _ASSIGNED.finditer(text):
            rule = self._rule_of(match["name"].rpartition(".")[2])
            group = match.lastgroup or ""
            if rule and _is_meant(match, group):
                yield from _moved(self._named(rule, match[group], plan), match.start(group))


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _long_words(raw: bytes) -> Iterator[bytes]:
    """Yield the words of at least 20 letters, digits, `_`, `.` and `-`."""
    mapped = raw.translate(_WORD)
    at = mapped.find(_LONG)
    while at >= 0:
        end = mapped.find(b" ", at)
        end = len(raw) if end < 0 else end
        yield raw[at:end]
        at = mapped.find(_LONG, end)


def _moved(found: Iterable[_Found], by: int) -> Iterator[_Found]:
    for one in found:
        yield replace(one, start=one.start + by, end=one.end + by)


_OF_SCHEMA = "{}"
"""Stands for the bracket of an object of a JSON Schema whose keys and values are property names."""


def _opened(bracket: str, outer: str, rule: str, key: str) -> tuple[str, str]:
    """Return the bracket, and the rule for values right inside it."""
    if bracket == "[":
        return "[", "" if outer == "[" else rule
    return (_OF_SCHEMA if key in ("dependentRequired", "dependencies") else "{"), ""


def _is_meant(match: re.Match[str], group: str) -> bool:
    """Tell whether a value in text is a secret and not a word, a type or a template."""
    value = match[group]
    if _NO_VALUE.fullmatch(value) or _TEMPLATE.match(value):
        return False
    if group != "bare":
        return match["quote"] is not None or not re.search(r"\s", value)
    if match["sign"] == "=":
        return match["quote"] is None
    return (
        len(value) >= 8
        and match["sign"][-1] in " \t"
        and re.search(r"\d", value) is not None
        and re.search(r"[A-Za-z]", value) is not None
        and "://" not in value
        and value[0] not in "./~"
    )


@overload
def renumber(raw: bytes, number: Callable[[str, str], int | None]) -> bytes: ...
@overload
def renumber(raw: str, number: Callable[[str, str], int | None]) -> str: ...
def renumber(raw: bytes | str, number: Callable[[str, str], int | None]) -> bytes | str:
    """Put numbers in the place of the tokens of placeholders: `<rule:TOKEN>` to `<rule:1>`.

    Args:
        raw: any bytes or text; what has the form of a placeholder but not the name of a rule stays.
        number: returns the number for a rule and a token, or None for text that only looks like a
            placeholder and stays; it is asked from left to right.
    """
    if isinstance(raw, bytes):
        return renumber(raw.decode("latin-1"), number).encode("latin-1")

    def numbered(match: re.Match[str]) -> str:
        first, last = match.start("token"), match.end("token")
        new = number(match["rule"], match["token"])
        if new is None:
            return match[0]
        return f"{raw[match.start() : first]}{new}{raw[last : match.end()]}"

    return _PLACEHOLDER.sub(numbered, raw)


def without_numbers(text: str) -> str:
    """Return a text in which a placeholder tells the rule, but not which of its secrets it is."""
    return _PLACEHOLDER.sub(r"<\g<rule>>", text)
