"""Which secrets are known: the table of shapes, the names, and what a user changes about both."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple

import re2

from mrtr_cassette.errors import shorten


@lru_cache(maxsize=512)
def compiled(pattern: str, *, is_text: bool = False) -> Any:
    """Compile a pattern by RE2.

    Raises:
        re2.error: RE2 refuses it.
        UnicodeEncodeError: it has a lone surrogate.
    """
    return re2.compile(pattern.encode(), _quiet_options(is_text=is_text))


def _quiet_options(*, is_text: bool = False) -> Any:
    # Nothing is logged, and automata have room for all rules of ours.
    options = re2.Options()
    options.log_errors = False
    if not is_text:
        options.encoding = re2.Options.Encoding.LATIN1
        options.max_mem = 64 << 20
    return options


def refusal_of(pattern: str) -> str:
    """Return why a user's pattern is no regular expression, or an empty string."""
    try:
        compiled(pattern, is_text=True)
    except UnicodeEncodeError:
        return "it has half of a surrogate pair"
    except re2.error as error:
        return str(error.args[0].decode("utf-8", "replace"))
    return ""


_MOST_PATTERNS: Final = 100
_LONGEST_PATTERN: Final = 4096
_MOST_GROUPS: Final = 200
_LARGEST_PROGRAMS: Final = 200_000


def _too_large(patterns: Sequence[str]) -> str:
    """Return why a user's patterns would take too long to search a text, or an empty string."""
    if len(patterns) > _MOST_PATTERNS:
        return f"there are {len(patterns):,} redaction patterns, and {_MOST_PATTERNS} at most"
    groups = size = 0
    for pattern in patterns:
        shown = f"redaction pattern {shorten(repr(pattern))}"
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


def matches_whole(pattern: str, text: str) -> bool:
    """Tell whether a user's pattern matches the whole of a text."""
    raw = text.encode("utf-8", "replace")
    return compiled(pattern, is_text=True).fullmatch(raw) is not None


@dataclass(frozen=True, slots=True)
class Rule:
    """One shape of secret; several rows of the table may share a name."""

    name: str
    pattern: str
    """For RE2; the secret is the group that took part, or all of the match."""
    needs: bytes = b""
    """A pattern for `re` that the beginning of a secret matches too."""
    marker: str = ""
    """What each text with a match contains, where the pattern has no literal to be looked for."""
    is_custom: bool = False

    def spans(self, raw: bytes) -> Iterator[tuple[int, int]]:
        """Yield where secrets stand in a text, in order."""
        pattern = compiled(self.pattern, is_text=self.is_custom)
        at = 0
        while at < len(raw) and (match := pattern.search(raw, at)):
            # Where a user's first group took no part, nothing is secret.
            group = min(pattern.groups, 1) if self.is_custom else match.lastindex or 0
            start, end = match.span(group)
            if 0 <= start < end and re.match(self.needs, raw[start:end], re.DOTALL):
                yield start, end
            # What ends one match may begin the next one, so only the secret itself is passed.
            at = max(match.end() if self.is_custom else max(end - 1, match.start() + 1), at + 1)


_WORD = "A-Za-z0-9"


def _token(
    name: str, pattern: str, needs: bytes = b"", *, ends: str = "", marker: str = ""
) -> Rule:
    # After a letter or a digit it is the inside of a word: `task-…` contains no `sk-…`.
    end = rf"(?:[^{ends}]|$)" if ends else ""
    return Rule(name, rf"(?:^|[^{_WORD}])({pattern}){end}", needs, marker)


def _named(name: str, names: str) -> tuple[Rule, ...]:
    names = f"(?i:{names})"
    field = rf"(?:name|key|id)=(?:\\*[\"'])?{names}(?:\\*[\"'])?"
    tag = r"<(?:input|meta|add|property|param|entry|setting)\s(?:[^<>]*\s)?"
    value = r"(?:value|content)=\\*[\"']([^\"'<>\\]+)"
    element = rf"<(?:[\w.-]{{1,64}}:)?{names}(?:\s[^<>]{{0,256}})?>"
    text = r"(?:<!\[CDATA\[)?([^<>]{1,512}?)(?:\]\]>)?</"
    lines = r"(?:[ \r]*\n[^\r\n]{1,200}){0,3}[ \r]*\n[ \r]*\n {0,4}((?:[^\r\n\\]|\\[^\r\n]){1,512})"
    patterns = (
        element + text,
        rf"(?:^|[\s;]){field}{lines}",
        rf"{tag}{field}\s(?:[^<>]*\s)?{value}",
        rf"{tag}{value}\\*[\"']\s(?:[^<>]*\s)?{field}[\s/>]",
    )
    return tuple(Rule(name, pattern, rb"\s*+(?![$%]?\{)\S") for pattern in patterns)


_NO_TEMPLATE = rb"(?![$%]?\{|\$|<|[?:%*]|\W*$)"


def _argument(name: str, option: str, needs: bytes = _NO_TEMPLATE, *, of: str = "") -> Rule:
    command = rf"(?i:{of})\b(?:[^\r\n;|&<>]{{0,256}}?)[ \t]" if of else ""
    return Rule(
        name,
        rf"(?:^|[^\w[-]){command}(?:{option})"
        r"(?:\\{0,8}[\"']([^\s\"'\\,:}\]][^\"'\r\n\\]{2,255})|([^\s\"'<>$|;&\\,:}\]-][^\s\"'<>\\;|&]{2,255}))",
        needs,
    )


_DIGIT = rb"[^0-9]*+[0-9]"
_LONG_AND_MIXED = rb"(?=.{16})[^0-9]*+[0-9].*[A-Za-z]|(?=.{16})[^A-Za-z]*+[A-Za-z].*[0-9]"
_ANY = r"[\w.-]{0,64}?"
"""What longer names have before the end by which they are known."""
_OPTION = r"--(?:\w{1,32}-)?"
_UUID = r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"

_DATABASES = r"postgres(?:ql)?|mysql|mariadb|mongodb(?:\+srv)?|rediss?|amqps?"

RULES: Final[tuple[Rule, ...]] = (
    Rule(
        "private-key",
        # The words alone are prose. A key that is cut off has no end, but lines of base64.
        r"(?s)-----BEGIN (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:(?:-{0,4}[^-]){32,}-----END (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----"
        r"|[A-Za-z0-9+/=\s\\]{48,})",
    ),
    _token("private-key", r"AGE-SECRET-KEY-1[A-Z0-9]{50,}"),
    _token(
        "jwt",
        # Three parts, or five when encrypted (RFC 7516); then the second may be empty.
        r"eyJ[\w-]{10,}\.(?:[\w-]{10,}\.[\w-]{10,}|[\w-]*\.[\w-]+\.[\w-]+\.[\w-]{10,})",
    ),
    _token("aws", r"A[KSB]IA[A-Z0-9]{16}", ends=_WORD),
    _token("aws", r"ABSK[A-Za-z0-9+/]{60,}={0,2}"),
    Rule(
        "aws",
        # Forty hexadecimal digits are a commit.
        r"(?i:secret[ _-]?(?:access[ _-]?)?key)\\{0,8}[\"']?\s{0,3}(?:=>|[:=])\s{0,3}"
        r"(?:\\{0,8}[\"'])?"
        r"([A-Za-z0-9/+]{40})(?:[^A-Za-z0-9/+=]|$)",
        rb"[0-9a-f]*+[^0-9a-f]",
    ),
    _token("google", r"AIza[\w-]{35,}"),
    _token("google", r"1//0[\w-]{40,}"),
    _token("google", r"(?:ya29\.|GOCSPX-|AQ\.Ab)[\w.-]{20,}"),
    Rule("azure", r"(?:Account|SharedAccess)Key=([\w+/%-]{40,}=*)"),
    Rule("aws", r"SignedHeaders=[\w;-]{1,512}[,&]\s{0,3}(?:X-Amz-)?Signature=([0-9a-f]{64})"),
    Rule("azure", r"(?:^|[^A-Za-z0-9])sig=([\w+/%-]{30,}=*)"),
    Rule("azure", r"(?:^|[^\w~.-])([\w~.-]{3}\dQ~[\w~.-]{31,34})(?:[^\w~.-]|$)"),
    _token("github", r"gh[oprsu]_[A-Za-z0-9_]{30,}|github_pat_\w{30,}"),
    _token("gitlab", r"gl(?:pat|dt|rt|cbt|ptt|ft|soat|imt|agent|oas)-[\w.-]{20,}"),
    _token("slack", r"(?:xox[a-eprs][.-]|xapp-)[\w%.-]{16,}", _DIGIT),
    Rule("webhook", r"hooks\.slack\.com/(?:services|workflows|triggers)/([\w/+-]{20,})"),
    Rule("webhook", r"discord(?:app)?\.com/api/(?:v\d+/)?webhooks/\d+/([\w-]{20,})"),
    Rule("webhook", r"\.webhook\.office\.com/webhookb2/([\w@/-]{20,})"),
    Rule("webhook", r"hooks\.zapier\.com/hooks/catch/([\w/]{10,})"),
    _token("stripe", r"[rs]k_(?:org_)?(?:live|test)_[A-Za-z0-9]{12,}"),
    _token("webhook-secret", r"whsec_[A-Za-z0-9+/]{24,}=*"),
    _token("anthropic", r"sk-ant-[\w-]{20,}"),
    _token("openrouter", r"sk-or-[\w-]{20,}"),
    _token("langfuse", r"sk-lf-[0-9a-f-]{30,}"),
    _token("openai", r"sk-(?:proj|svcacct|admin|None)-[\w-]{20,}"),
    # Also the spelling of many who serve models under OpenAI's API.
    _token(
        "openai",
        r"sk-[A-Za-z0-9]{20,}",
        rb"sk-(?:[A-Za-z]*+\d|(?=[A-Za-z]{40})[A-Za-z]*?[a-z][A-Z])",
    ),
    _token("openai", r"sess-[A-Za-z0-9]{40}", rb"sess-.*[0-9]"),
    _token("hugging-face", r"(?:hf|api_org)_[A-Za-z0-9]{30,}", rb"(?:hf|api_org)_[a-z]*+[A-Z0-9]"),
    _token("groq", r"gsk_[A-Za-z0-9]{40,}"),
    _token("xai", r"xai-[A-Za-z0-9]{60,}"),
    _token("perplexity", r"pplx-[A-Za-z0-9]{40,}"),
    _token("replicate", r"r8_[A-Za-z0-9]{36,}"),
    _token("nvidia", r"nvapi-[\w-]{50,}"),
    _token("cerebras", r"csk-[a-z0-9]{40,}"),
    _token("together", r"tgp_v1_[\w-]{40,}"),
    _token("elevenlabs", r"sk_[0-9a-f]{40,}"),
    _token("pinecone", r"pcsk_\w{40,}"),
    _token("langsmith", r"lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}"),
    _token("tavily", r"tvly-[\w-]{20,}", rb"[A-Za-z-]*+[0-9]"),
    _token("firecrawl", r"fc-[0-9a-f]{32}", ends=_WORD),
    _token("apify", r"apify_api_[A-Za-z0-9]{30,}"),
    _token("databricks", r"dapi[0-9a-f]{32}(?:-\d)?", ends=_WORD),
    _token("alibaba", r"LTAI[A-Za-z0-9]{16,26}", ends=_WORD),
    _token("tencent", r"AKID[A-Za-z0-9]{32}", ends=_WORD),
    _token("digitalocean", r"do[opr]_v1_[0-9a-f]{40,}"),
    _token("heroku", r"HRKU-[\w-]{36,}"),
    _token("fly", r"fo1_[\w-]{40,}|fm[12]_[A-Za-z0-9+/]{40,}=*"),
    _token("supabase", r"sbp_[0-9a-f]{40,}"),
    _token("supabase", r"sb_secret_[\w-]{20,}"),
    _token("netlify", r"nfp_[A-Za-z0-9]{36,}"),
    _token("neon", r"napi_[a-z0-9]{40,}"),
    _token("planetscale", r"pscale_(?:tkn|pw|oauth|otkn)_[\w.-]{32,}"),
    _token("shopify", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32,}"),
    _token("square", r"sq0(?:atp|csp)-[\w-]{22,}"),
    _token("square", r"EAAA[\w-]{60}", _DIGIT, ends=r"\w+/=-"),
    _token("sendgrid", r"SG\.[\w-]{16,}\.[\w-]{16,}"),
    _token("mailgun", r"key-[0-9a-f]{32}", ends=_WORD),
    _token("resend", r"re_[A-Za-z0-9]{8}_[A-Za-z0-9]{20,}"),
    Rule("twilio", r"(?i:twilio)[\w .:=\"'-]{0,39}?[_ .:=\"'-](SK[0-9a-f]{32})"),
    Rule("telegram", r"(?:^|\D)(\d{8,10}:AA[\w-]{33})(?:[^\w-]|$)"),
    Rule("telegram", r"/bot(\d{6,12}:[\w-]{30,})"),
    _token(
        "discord",
        r"[MNO][\w-]{22,27}\.[\w-]{6}\.[\w-]{27,40}",
        rb"[\w-]*[0-9]",
        ends=r"\w.-",
        marker=r"\.[\w-]{6}\.[\w-]{27}",
    ),
    _token("notion", r"ntn_[A-Za-z0-9]{40,}"),
    _token("notion", r"secret_[A-Za-z0-9]{43}", ends=r"\w"),
    _token("linear", r"lin_(?:api|oauth)_[A-Za-z0-9]{32,}"),
    _token("figma", r"figd_[\w-]{36,}"),
    _token("atlassian", r"AT[AC]TT3[\w-]{60,}=?[0-9A-F]*"),
    _token("airtable", r"pat[A-Za-z0-9]{14}\.[0-9a-f]{60,}"),
    _token("postman", r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}"),
    _token("doppler", r"dp\.(?:pt|st|ct|sa|scim|audit)\.[\w.-]{40,}"),
    _token("vault", r"hv[bsr]\.[\w-]{24,}", _DIGIT),
    _token("grafana", r"glsa_[A-Za-z0-9]{32}_[0-9a-f]{8}"),
    _token("grafana", r"glc_eyJ[A-Za-z0-9+/]{32,}=*"),
    _token("new-relic", r"NRAK-[A-Z0-9]{27}"),
    _token("sentry", r"sntry[su]_[\w+/=-]{40,}"),
    _token("docker", r"dckr_[po]at_[\w-]{24,}"),
    _token("npm", r"npm_[A-Za-z0-9]{36}", rb"npm_[a-z]*+[A-Z0-9]", ends=r"\w"),
    _token("pypi", r"pypi-AgE[\w-]{40,}"),
    _token("rubygems", r"rubygems_[0-9a-f]{40,}"),
    _token("azure", r"[A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4}", ends=_WORD),
    _token("terraform", r"[A-Za-z0-9]{14}\.atlasv1\.[\w-]{60,}"),
    _token("vercel", r"vc[piark]_[\w-]{24,}", _DIGIT),
    _token("hubspot", rf"pat-(?:na|eu|ap)\d-{_UUID}", ends=_WORD),
    _token("contentful", r"CFPAT-[\w-]{40,}"),
    # Other data in base64 has other characters too, or begins with many of this letter.
    _token("facebook", r"EAA[A-Za-z0-9]{60,}", rb"(?!.{0,12}AAAA).*[0-9]", ends=r"\w+/=-"),
    _token("dropbox", r"sl\.[\w.=-]{100,}", _DIGIT),
    Rule("dropbox", r"(?:^|[^\w+/=-])([A-Za-z0-9]{11}A{10}[\w-]{43})(?:[^\w+/=-]|$)", needs=_DIGIT),
    _token("fireworks", r"fw_[A-Za-z0-9]{22,}", _DIGIT),
    _token("mapbox", r"[st]k\.eyJ[\w-]{40,}\.[\w-]{20,}"),
    _token("launchdarkly", rf"(?:sdk|api)-{_UUID}", ends=_WORD),
    _token("bitbucket", r"ATBB[A-Za-z0-9]{32}", _DIGIT, ends=_WORD),
    _token("brevo", r"xkeysib-[0-9a-f]{64}-[A-Za-z0-9]{16}"),
    _token("brave", r"BSA[A-Za-z0-9_-]{27}", _DIGIT, ends=r"\w-"),
    _token("crates", r"cio[A-Za-z0-9]{32}", _DIGIT, ends=_WORD),
    _token("e2b", r"e2b_[0-9a-f]{40}", ends=_WORD),
    _token("jina", r"jina_[A-Za-z0-9]{60}", ends=_WORD),
    _token("mailchimp", r"[0-9a-f]{32}-us\d{1,2}", ends="A-Za-z0-9-"),
    _token("posthog", r"phx_[A-Za-z0-9]{40,}"),
    _token("pulumi", r"pul-[0-9a-f]{40}", ends=_WORD),
    _token("render", r"rnd_[A-Za-z0-9]{28,}", _DIGIT),
    _token("sourcegraph", r"sgp_(?:[0-9a-f]{16}_|local_)?[0-9a-f]{40}", ends=_WORD),
    _token("jfrog", r"AKCp[A-Za-z0-9]{60,}"),
    _token("1password", r"ops_eyJ[\w+/-]{60,}=*"),
    # Words after an option are prose about it.
    _argument(
        "password", rf"{_OPTION}(?:password|passwd|passphrase)[ \t]{{1,4}}", rb"[a-z]*+[^a-z.,:;)]"
    ),
    _argument("token", rf"{_OPTION}token[ \t]{{1,4}}", _LONG_AND_MIXED),
    _argument("secret", rf"{_OPTION}(?:secret|(?:secret|access)-key)[ \t]{{1,4}}", _LONG_AND_MIXED),
    _argument("api-key", rf"{_OPTION}api-?key[ \t]{{1,4}}", _LONG_AND_MIXED),
    Rule(
        "password",
        # As in a netrc file, on one line or several.
        r"(?:^|\s)login\s{1,8}\S{1,128}\s{1,16}password\s{1,8}([^\s\"'<$][^\s\"'\\]{1,255})",
        needs=rb"[a-z]*+[^a-z.,:;)]",
    ),
    Rule(
        "password",
        r"(?i:curl)(?:[ \t](?:[^\r\n]{0,128}\\\r?\n){0,4}[^\r\n<>]{0,400}?)??"
        r"[ \t](?:-u|--user)[ \t=]{0,2}"
        r"(?:\\{0,8}[\"'])?[^\s:\"'<>]{0,128}:([^\s\"'<>\\\[{][^\s\"'<>\\]{0,254})",
        rb"(?![$%]?\{|\$)",
    ),
    _argument("password", "-p[ \t]{0,4}", of="sshpass"),
    _argument("password", "-p", of=r"(?:mysql|mariadb)\w{0,12}"),
    _argument("password", r"(?:-a|--pass)[ \t]{1,4}", of="redis-cli"),
    _argument("password", r"-p[ \t]{1,4}", of=r"(?:docker|podman|helm registry) login"),
    _argument("cookie", r"(?:-b|--cookie)[ \t]{0,4}", rb"[^=\s]+=.*[0-9A-Z]", of="curl"),
    _argument(
        "secret", r"aws_(?:secret_access_key|session_token)[ \t]{1,4}", of="aws configure set"
    ),
    Rule(
        "password",
        r"(?i:identified(?: with \w{1,32})? by|\bwith (?:encrypted )?password|\bset password ?=)"
        r"\s{1,8}'([^'\\\r\n]{3,256})'",
        _NO_TEMPLATE,
    ),
    # Passwords before hosts. In the URLs of databases people write them without escapes.
    Rule(
        "url-password",
        rf"(?i:{_DATABASES})://[^\s/:@\"'<>\\]*:"
        r"(?:([^\s?,\"'<>\\]{1,512})@|([^\s\"'<>\\]{1,512})@)",
        # A port is none, nor is a template.
        rb"(?![$%]?\{|[0-9]{1,5}/[^?]*\?)",
    ),
    Rule(
        "url-password",
        r"://[^\s/?#:@\"'<>\\]*:([^\s/?#\"'<>\\]{1,512})@"
        r"(?:\[|[\w.-]+(?:$|[^\w.:-]|:[0-9]{1,5}(?:$|[^0-9a-f])))",
        rb"(?![$%]?\{|x-oauth-basic$)",
    ),
    # Tokens in their place: long, or with digits and letters in turns.
    Rule(
        "url-password",
        r"://([\w-]{10,512})(?::|:x-oauth-basic)?@",
        rb"[A-Za-z0-9]{24,}$|(?=.{20})(?=.*[0-9]).*[A-Za-z]"
        rb"|(?:[A-Za-z]*[0-9]+(?=[A-Za-z])){2}[A-Za-z0-9]*$",
    ),
    Rule("authorization", r"(?:^|[^\w-])(?i:ssws) {1,4}([\w-]{20,})"),
    *_named("password", rf"{_ANY}(?:password|passwd|passphrase)|pwd"),
    *_named("secret", rf"secret|{_ANY}(?:client|app|consumer)[_-]?secret"),
    *_named("api-key", rf"{_ANY}api[_-]?key"),
    *_named(
        "token",
        rf"{_ANY}(?:access|refresh|auth|csrf|xsrf|authenticity)[_-]?token|id[_-]?token"
        "|csrfmiddlewaretoken|samlresponse",
    ),
    Rule(
        "basic",
        # Base64 of a text with a colon, which has three spellings; so "Basic authentication" stays.
        r"(?:^|[^\w-])(?i:basic)[ \t]{1,4}([A-Za-z0-9+/]{7,}={0,2})(?:[^\w+/=-]|$)",
        rb"(?:[A-Za-z0-9+/]{4})*?"
        rb"(?:O[g-v]|[A-Za-z0-9+/][DTjz][o-r]|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]6)",
    ),
    Rule(
        "bearer",
        # A challenge goes on with parameters (`Bearer resource_metadata="…"`), prose with words.
        r"(?:^|[^\w-])(?i:bearer)[ \t]{1,4}(?:([\w.~+/-]{16,}={1,2})"
        r"(?:[^\w/\"']|[\"'](?:[^\w/]|$)|$)|([\w.~+/-]{16,})(?:[^\w.~+/=-]|$))",
        rb"[^=]*?[0-9]|(?=[^=]{24})[^=]*?[a-z][A-Z]",
    ),
    Rule(
        "bearer",
        # After the header's name anything but a plain word is a credential.
        r"(?i:authorization)\\{0,8}[\"']?[ \t]{0,4}[:=][ \t]{0,4}\\{0,8}[\"']?"
        r"(?i:bearer|token|apikey|api-key|key)[ \t]{1,4}"
        r"([\w.~+/=:-]{8,})",
        rb"[a-z]*+[^a-z]",
    ),
)
"""The shapes; where two rows find the same text, the first names it."""

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
_GIVEN = re.compile(rf"(?![{{\[<]|{REFERENCE}|%[({{])(?=.*\w)", re.DOTALL)
"""No template, nothing that is in brackets itself, and no stars."""
_IN_BASE64 = re.compile(r"(?=.{8})[A-Za-z0-9+/]+={0,2}")
_CASED_WORDS = re.compile(
    r"(?:(?:[A-Z]+|[A-Za-z]?[a-z]*(?:[A-Z][a-z]{2,})*[A-Z]{0,3})[0-9]*(?:[/+]|\Z))+"
)
"""Words in one case, or in camel case."""
_COUNTED = re.compile(r"(?i)\A[0-9]+(?:st|nd|rd|th)\b|\A[a-z]+[-_.][0-9]{1,2}\Z|[0-9](?:%|m?s|h)\Z")
_WORD_OF_RESULT = re.compile(r"(?i)true|false|none|null|pass|fail|passed|failed|skipped")
_MOST_FOREIGN: Final = 8
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
    return len(value) >= 8 and _whole(value) and _DIGIT_AND_LETTER.match(value) is not None


def looks_random(value: str) -> bool:
    """Tell whether a long value has digits between the letters of a long part."""
    parts = _SEPARATOR.split(value) if len(value) >= 16 and _whole(value) else ()
    return any(len(part) >= 12 and _MIXED.match(part) for part in parts)


def _given(value: str) -> bool:
    return _GIVEN.match(value) is not None


def _opaque(value: str) -> bool:
    # A postcode beside a state of a country is none.
    is_number = len(value) < 12 and not re.search("[A-Za-z]", value)
    return len(value) >= 8 and not is_number and _whole(value)


def _long(value: str) -> bool:
    return _mixed(value) or (len(value) >= 16 and _whole(value))


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
        and sum(not char.isascii() for char in value) <= _MOST_FOREIGN
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


def _mixed_token(value: str) -> bool:
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
    proofs: frozenset[str] = frozenset()
    """Folded names; beside one of them any value is a secret."""
    parameter: _Check | None = None
    """The same as `beside` of a parameter of a URL or form, where it is another one."""
    folded: str = ""
    """How it was spelled, folded."""

    def among(self, names: Collection[str], *, is_parameter: bool = False) -> _Check:
        """Return what tells a secret where values of these folded names stand beside it."""
        if not self.proofs.isdisjoint(names):
            return _given
        if is_parameter:
            is_alone = bool(self.parameters) and self.parameters.isdisjoint(names)
            return self.alone if is_alone else self.parameter or self.beside
        return self.alone if self.companions.isdisjoint(names) else self.beside

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
_OF_LOGIN = "user username userid login loginid email account accountid cardnumber phone host"
_OF_SIGNED_URL = "expires keypairid awsaccesskeyid googleaccessid policy"
_OF_TOKENS = (
    "granttype redirecturi codeverifier clientassertiontype tokentypehint usercode verificationuri"
    " verificationuricomplete sessionstate accesstoken refreshtoken idtoken clientsecret"
)
"""What stands beside a secret in a request to a token endpoint, or in its response."""
_OAUTH, _LOGIN, _SIGNED_URL, _OF_EXCHANGE = (
    frozenset(names.split()) for names in (_OF_OAUTH, _OF_LOGIN, _OF_SIGNED_URL, _OF_TOKENS)
)
_OF_AUTHORIZATION = frozenset(["code", "codechallenge", "responsetype"])

_OF_REQUEST = _OF_EXCHANGE | {"responsetype", "codechallenge"}
_OF_ISSUED = _OF_EXCHANGE | {"expiresin"}

_AMBIGUOUS: Final[Mapping[str, Name]] = {
    "code": Name("token", _random, _mixed, _OAUTH, False, _OAUTH | {"state"}, parameter=_opaque),
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
    "token": Name("token", _mixed_token, _mixed, _OAUTH | _LOGIN, False, proofs=_OF_ISSUED),
    "auth": Name("basic", _of_auth, _of_auth, takes_numbers=False),
    "key": Name("api-key", _never, looks_random, takes_numbers=False),
    "csrf": Name("token", looks_random, _mixed, takes_numbers=False),
    "signature sig": Name("secret", _never, looks_random, _SIGNED_URL, False),
    "pwd": Name("password", _password, _password, _LOGIN),
    "pass": Name("password", is_strong, _password, _LOGIN, False),
    "pin": Name("password", _pin, _pin, _LOGIN, False),
    "otp totp otpcode totpcode mfacode": Name("password", _one_time, _one_time, _LOGIN),
}
AMBIGUOUS: Final = {
    name: known._replace(proofs=known.proofs or _OF_EXCHANGE)
    for names, known in _AMBIGUOUS.items()
    for name in names.split()
}
"""Names, folded, whose values are secrets if context or value says so."""

_ENDING = re.compile(
    # Those of pages and of progress are no secrets.
    r"(?:[A-Z][A-Z0-9_]*|(?i:x)-[\w-]*)(?<!(?i:page|next|sync))(?<!(?i:continuation))[_-]"
    r"(?i:(TOKEN|SECRET)|PASS|PWD?)"
)
_KEY = re.compile(
    # Those of caches and of tables are no secrets, nor are public ones.
    r"[A-Z][A-Z0-9_]*(?<!PUBLIC)(?<!CACHE)(?<!PRIMARY)(?<!FOREIGN)(?<!SORT)(?<!PARTITION)"
    r"(?<!IDEMPOTENCY)(?<!SITE)(?<!OBJECT)_KEY"
)


def fold(name: str) -> str:
    """Return what `api_key`, `api-key`, `apiKey` and `API_KEY` have in common."""
    return name.replace("_", "").replace("-", "").lower()


def by_ending(name: str) -> Name | None:
    """Return what the name of an environment variable or of a header tells by its last word."""
    if _KEY.fullmatch(name):
        return Name("api-key", looks_random, looks_random, takes_numbers=False)
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
_BESIDE_SECRET = re.compile(r"(?!localhost\Z)[\w-]+")
_RANDOM_HEX = re.compile(r"(?=.*[0-9])(?=.*[A-Fa-f])[0-9A-Fa-f-]{16,}")


def patterns_of_path(url: str) -> list[str]:
    """Return patterns that find what looks random in the path of a URL, each as its group 1."""
    patterns = []
    # What stands before the first segment is the host, which a request's target doesn't have.
    segments = ["", *_BEFORE_QUERY.split(url)[0].split("/")[3:]]
    for before, segment in pairwise(segments):
        if looks_random(segment) or _RANDOM_HEX.fullmatch(segment):
            beside = f"{before}/" if _BESIDE_SECRET.fullmatch(before) else ""
            patterns.append(f"/{beside}([^/?#]{{{len(segment)}}})")
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
        for pattern in self.patterns[:_MOST_PATTERNS]:
            if len(pattern) > _LONGEST_PATTERN:
                break
            reason = refusal_of(pattern)
            if reason:
                reason = f"is no regular expression: {reason}"
            elif matches_whole(pattern, ""):
                reason = "matches the empty text"
            if reason:
                raise ValueError(f"redaction pattern {shorten(repr(pattern))} {reason}")
        if reason := _too_large(self.patterns):
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
    """What a text may contain besides the shapes of the table, as numbers beside theirs.

    From `NAME` on they may be secrets; the others say where to look, and what is none.
    """

    NAME = -1
    ESCAPE = -2
    PERCENT = -3
    PLACEHOLDER = -4
    BASE64 = -5


class NameBeside(NamedTuple):
    """A name that is a value itself, and where the value begins that it tells of."""

    name: tuple[int, int]
    value_at: int
    depth: int | None
    """How many backslashes stand before the quotes of a value of JSON; None in other text."""


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
        self.shapes = tuple(rule for rule in RULES if rule.name not in self.disabled)
        self._with_literals = {row for row, each in enumerate(self.shapes) if not each.marker}
        self.custom = tuple(
            Rule(f"custom-{number}", pattern, is_custom=True)
            for number, pattern in enumerate(rules.patterns, start=1)
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

    def beside_in(self, raw: bytes) -> Iterator[NameBeside]:
        """Yield where names stand beside their values, and descriptions beside what is typed."""
        for pattern in (self._beside, self._typed):
            for match in pattern.finditer(raw):
                depth = _backslashes(match.span(1)) if match.end(3) >= 0 else None
                yield NameBeside(match.span(2), match.end(), depth)
        for pattern in self._value_first:
            for match in pattern.finditer(raw):
                yield NameBeside(match.span(3), match.end(2), _backslashes(match.span(1)))
        for match in self._filled.finditer(raw):
            yield NameBeside(match.span(1), match.end(), None)

    def inserts_in(self, raw: bytes) -> Iterator[tuple[int, int, int]]:
        """Yield where statements of SQL have the names of columns, and where their rows begin."""
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
        """Finds the description of a field of a page, as `_beside`, up to what is typed into it."""
        return compiled(
            rf"\belement{_QUOTE}\s{{0,8}}:\s{{0,8}}({_QUOTE}){self._described}"
            rf"\\{{0,15}}\"[^{{}}]*?(\")text\\{{0,15}}\"\s{{0,8}}:"
        )

    @cached_property
    def _value_first(self) -> tuple[Any, Any]:
        """Find both where the value comes first (group 2 is its place, and 3 the name)."""
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
        """Finds the name of a field in code of a browser, up to what is typed into it."""
        typing = "fill|type|pressSequentially|press_sequentially|send_keys|sendKeys|setValue"
        return compiled(rf"{self._described}{_QUOTE}[^\r\n;]{{0,48}}?\)\.(?:{typing})\(\s{{0,4}}")

    @property
    def _described(self) -> str:
        name = rf"((?i:{self._stems}))"
        return rf"[\w .'-]{{0,64}}?{name}(?: (?i:field|input|textbox|box))?"

    @property
    def _stems(self) -> str:
        # A longer name that ends as one of the others does tells nothing: `progressToken`.
        ends, whole = {*ENDINGS, *self.keys}, {*NAMES, *AMBIGUOUS, "pw"}.difference(ENDINGS)
        return rf"{_any_of(ends)}|(?:\b|[_-]|\\[nrt])(?:{_any_of(whole)})"

    @cached_property
    def _markers(self) -> tuple[list[int], Any, Any]:
        """What each of a set of patterns means, the set, and a filter by the literals of shapes."""
        named = rf"(?i)(?:{self._stems})(?:\\*[\"'`\]])?(?:\s|\\+[nrt]|[:=,}}|;)])"
        markers = [
            (named, Mark.NAME),
            (_ESCAPED, Mark.ESCAPE),
            ("%[0-7][0-9A-Fa-f]", Mark.PERCENT),
            (PLACEHOLDER_MARKER, Mark.PLACEHOLDER),
            (_BASE64, Mark.BASE64),
            *((rule.marker, row) for row, rule in enumerate(self.shapes) if rule.marker),
        ]
        patterns = re2.Set.SearchSet(_quiet_options())
        for marker, _ in markers:
            patterns.Add(marker.encode())
        patterns.Compile()
        literals = re2.Filter()
        for rule in self.shapes:
            literals.Add(rule.pattern.encode(), _quiet_options())
        literals.Compile()
        return [meaning for _, meaning in markers], patterns, literals

    def _name(self, name: str) -> Name | None:
        folded = fold(name)
        if folded in self.keys:
            return Name(CUSTOM_KEY)
        known = None if folded in self._disabled_names else builtin_name(name)
        if known is None or known.rule in self.disabled:
            return None
        return known._replace(folded=folded)


def _any_of(names: Collection[str]) -> str:
    return "|".join("[_-]?".join(map(_spelled, name)) for name in sorted(names))


def _spelled(char: str) -> str:
    if char.isascii():
        return str(re2.escape(char))
    each = {char.lower(), char.upper()}
    escaped = "|".join(rf"\\+u(?i:{ord(c):04x})" for c in each if len(c) == 1)
    in_bytes = "|".join("".join(f"\\x{byte:02x}" for byte in c.encode()) for c in each)
    return f"(?:{in_bytes}|{escaped})"
