"""Which secrets are known: the table of shapes, the names, and what a user changes about them.

Owns: the shape of each provider's tokens, the member names whose values are secrets, and the
checks of a user's own rules.
Does not own: where a text contains them (`text_search`, `json_search`).
Rule: a secret is known by its own shape or by the name that it stands under, never because it looks
random: hashes, cursors and nonces are what requests are told apart by.
Source: the providers' own descriptions of their tokens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mrtr_cassette.errors import shorten


@dataclass(frozen=True, slots=True)
class Rule:
    """One shape of secret; several rows of the table may share a name.

    Attributes:
        name: what stands before the colon of its placeholders.
        pattern: finds it in text; group 1, where there is one, is the secret.
        markers: literals; every match contains one of them, so that most texts need no pattern.
        is_prefixed: a marker begins the secret, which is at least 20 of `[A-Za-z0-9_.-]` long.
            The markers of other rules are folded as member names are.
    """

    name: str
    pattern: re.Pattern[str]
    markers: tuple[str, ...]
    is_prefixed: bool


def _token(name: str, markers: str, pattern: str) -> Rule:
    """Return the row of a token that is known by its beginning."""
    # After a letter or a digit it is the inside of a word: `task-…` contains no `sk-…`.
    compiled = re.compile(rf"(?<![A-Za-z0-9])(?:{pattern})", re.ASCII)
    return Rule(name, compiled, tuple(markers.split()), is_prefixed=True)


def _shape(name: str, markers: str, pattern: str) -> Rule:
    """Return the row of a secret that is known by the text around it."""
    return Rule(name, re.compile(pattern, re.ASCII), tuple(markers.split(",")), is_prefixed=False)


RULES: Final[tuple[Rule, ...]] = (
    _shape(
        "private-key",
        "private",
        # The words alone are prose. A key that is cut off has no end, but lines of base64.
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

_NAMED: Final[Mapping[str, str]] = {
    "password": "*password passwords *passwd *passphrase passcode mysqlpwd",
    "secret": "secret *clientsecret *consumersecret *appsecret *apisecret *authsecret *jwtsecret"
    " *sessionsecret *cookiesecret *totpsecret *sharedsecret *signingsecret *webhooksecret"
    " *secretkey *secretaccesskey *accesskeysecret *accountkey *sharedaccesskey encryptionkey"
    " signingkey masterkey xamzsignature xgoogsignature",
    "api-key": "*apikey apikeys *subscriptionkey xauthkey",
    "token": "*accesstoken *refreshtoken *authtoken *sessiontoken *bearertoken *apitoken *bottoken"
    " *securitytoken idtoken githubtoken ghtoken gitlabtoken slacktoken npmtoken hftoken"
    " subjecttoken actortoken clientassertion codeverifier",
    "authorization": "authorization proxyauthorization xauthorization authorizationheader",
    "cookie": "cookie cookies setcookie sessioncookie",
    "private-key": "*privatekey",
    "credentials": "credentials credential",
}
"""Member names, folded, whose values are secrets whatever they look like, by rule.

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

CUSTOM_KEY: Final = "custom-key"
"""The rule of the names that a user added."""

RULE_NAMES: Final = {rule.name for rule in RULES} | set(_NAMED) | {CUSTOM_KEY}


@dataclass(frozen=True)
class RedactionRules:
    """What a user changes about redaction.

    Attributes:
        patterns: further regular expressions; group 1, where there is one, is the secret. The nth
            is the rule `custom-n`. They see the text of one JSON string at a time.
        keys: further member names whose values are secrets.
        disabled: rules, or member names, that are switched off.

    Raises:
        ValueError: a pattern is no regular expression or matches the empty text, a key has no
            letter, or something disabled doesn't exist.
    """

    patterns: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the rules."""
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
            if not fold(key):
                raise ValueError(f"redaction key {key!r} names no member")
        for name in self.disabled:
            if name not in RULE_NAMES and not builtin_rule_of(fold(name)):
                raise ValueError(
                    f"redaction rule {shorten(repr(name))} does not exist; the rules are "
                    f"{', '.join(sorted(RULE_NAMES - {CUSTOM_KEY}))}"
                )


class ActiveRules:
    """The rules of one recording: the table without what is disabled, and the user's own.

    Attributes:
        shapes: rows of the table.
        custom: the user's patterns.
        keys: the user's member names, folded.
        disabled: names of the rules that are switched off.
    """

    def __init__(self, rules: RedactionRules) -> None:
        """Apply what a user changes to the table."""
        self.disabled = set(rules.disabled) & RULE_NAMES
        self.shapes = tuple(rule for rule in RULES if rule.name not in self.disabled)
        self.custom = tuple(
            Rule(f"custom-{number}", re.compile(pattern), (), is_prefixed=False)
            for number, pattern in enumerate(rules.patterns, start=1)
        )
        self.keys = {fold(key) for key in rules.keys}
        self._disabled_names = {fold(name) for name in rules.disabled if name not in RULE_NAMES}

    def rule_of(self, name: str) -> str:
        """Return the rule that makes values under a name secrets, or an empty string."""
        folded = fold(name)
        if folded in self.keys:
            return CUSTOM_KEY
        rule = builtin_rule_of(folded)
        return "" if rule in self.disabled or folded in self._disabled_names else rule


def fold(name: str) -> str:
    """Return what `api_key`, `api-key`, `apiKey` and `API_KEY` have in common."""
    return name.replace("_", "").replace("-", "").lower()


def builtin_rule_of(folded: str) -> str:
    """Return the rule of a folded name, or an empty string."""
    rule = NAMES.get(folded)
    if rule is None and folded.endswith(ENDINGS):
        # The longest one: `…secretkey` is said more exactly than by `…key`.
        rule = NAMES[max((e for e in ENDINGS if folded.endswith(e)), key=len)]
    return rule or ""
