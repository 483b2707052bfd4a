"""The shapes of secrets, such as tokens of providers: a table of patterns of RE2."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import re2


@lru_cache(maxsize=512)
def compiled(pattern: str, *, is_text: bool = False) -> Any:
    """Compile a pattern by RE2.

    Raises:
        re2.error: RE2 refuses it.
        UnicodeEncodeError: it has a lone surrogate.
    """
    return re2.compile(pattern.encode(), quiet_options(is_text=is_text))


def quiet_options(*, is_text: bool = False) -> Any:
    """Return options of RE2: nothing is logged, and automata have room for all our rules."""
    options = re2.Options()
    options.log_errors = False
    if not is_text:
        options.encoding = re2.Options.Encoding.LATIN1
        options.max_mem = 64 << 20
    return options


@dataclass(frozen=True, slots=True)
class Rule:
    """One shape of secret; several rows of the table may share a name."""

    name: str
    pattern: str
    """For RE2; the secret is the group that took part, or all of the match."""
    needs: bytes = b""
    """A pattern for `re` that the beginning of a secret must match too."""
    marker: str = ""
    """A pattern in each text with a match, for a pattern without a literal to look for."""
    is_custom: bool = False

    def spans(self, raw: bytes) -> Iterator[tuple[int, int]]:
        """Yield the places of secrets in a text, in order."""
        pattern = compiled(self.pattern, is_text=self.is_custom)
        at = 0
        while at < len(raw):
            match = pattern.search(raw, at)
            if match is None:
                return
            if self.is_custom:
                # If a user's first group took no part, nothing is secret.
                start, end = match.span(min(pattern.groups, 1))
                passed = match.end()
            else:
                start, end = match.span(match.lastindex or 0)
                # The end of one match may begin the next, so only the secret itself is passed.
                passed = max(end - 1, match.start() + 1)
            if 0 <= start < end and re.match(self.needs, raw[start:end], re.DOTALL):
                yield start, end
            at = max(passed, at + 1)


_WORD = "A-Za-z0-9"


def _token(
    name: str, pattern: str, needs: bytes = b"", *, ends: str = "", marker: str = ""
) -> Rule:
    # After a letter or a digit it is the inside of a word: `task-…` contains no `sk-…`.
    end = ""
    if ends:
        end = rf"(?:[^{ends}]|$)"
    return Rule(name, rf"(?:^|[^{_WORD}])({pattern}){end}", needs, marker)


def _tokens(table: str) -> Iterator[Rule]:
    """Read rows of a name, a pattern, and `whole` or `digit` or both.

    After a `whole` one comes no letter or digit, and one with `digit` has a digit.
    """
    for row in table.strip().splitlines():
        name, pattern, *facts = row.split()
        needs = _DIGIT if "digit" in facts else b""
        ends = _WORD if "whole" in facts else ""
        yield _token(name, pattern, needs, ends=ends)


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


def _argument(
    name: str, option: str, needs: bytes = _NO_TEMPLATE, *, of: str = ""
) -> Rule:
    command = ""
    if of:
        command = rf"(?i:{of})\b(?:[^\r\n;|&<>]{{0,256}}?)[ \t]"
    quoted = r"\\{0,8}[\"']([^\s\"'\\,:}\]][^\"'\r\n\\]{2,255})"
    bare = r"([^\s\"'<>$|;&\\,:}\]-][^\s\"'<>\\;|&]{2,255})"
    return Rule(name, rf"(?:^|[^\w[-]){command}(?:{option})(?:{quoted}|{bare})", needs)


_DIGIT = rb"[^0-9]*+[0-9]"
_LONG_AND_MIXED = (
    rb"(?=.{16})[^0-9]*+[0-9].*[A-Za-z]|(?=.{16})[^A-Za-z]*+[A-Za-z].*[0-9]"
)
_ANY = r"[\w.-]{0,64}?"
"""The beginning of longer names that are known by their end."""
_OPTION = r"--(?:\w{1,32}-)?"

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
    *_tokens(
        r"""
        aws  A[KSB]IA[A-Z0-9]{16}  whole
        aws  ABSK[A-Za-z0-9+/]{60,}={0,2}
        """
    ),
    Rule(
        "aws",
        # Forty hexadecimal digits are a commit.
        r"(?i:secret[ _-]?(?:access[ _-]?)?key)\\{0,8}[\"']?\s{0,3}(?:=>|[:=])\s{0,3}"
        r"(?:\\{0,8}[\"'])?"
        r"([A-Za-z0-9/+]{40})(?:[^A-Za-z0-9/+=]|$)",
        rb"[0-9a-f]*+[^0-9a-f]",
    ),
    *_tokens(
        r"""
        google  AIza[\w-]{35,}
        google  1//0[\w-]{40,}
        google  (?:ya29\.|GOCSPX-|AQ\.Ab)[\w.-]{20,}
        """
    ),
    Rule("azure", r"(?:Account|SharedAccess)Key=([\w+/%-]{40,}=*)"),
    Rule(
        "aws",
        r"SignedHeaders=[\w;-]{1,512}[,&]\s{0,3}(?:X-Amz-)?Signature=([0-9a-f]{64})",
    ),
    Rule("azure", r"(?:^|[^A-Za-z0-9])sig=([\w+/%-]{30,}=*)"),
    Rule("azure", r"(?:^|[^\w~.-])([\w~.-]{3}\dQ~[\w~.-]{31,34})(?:[^\w~.-]|$)"),
    *_tokens(
        r"""
        github  gh[oprsu]_[A-Za-z0-9_]{30,}|github_pat_\w{30,}
        gitlab  gl(?:pat|dt|rt|cbt|ptt|ft|soat|imt|agent|oas)-[\w.-]{20,}
        slack   (?:xox[a-eprs][.-]|xapp-)[\w%.-]{16,}  digit
        """
    ),
    Rule(
        "webhook", r"hooks\.slack\.com/(?:services|workflows|triggers)/([\w/+-]{20,})"
    ),
    Rule("webhook", r"discord(?:app)?\.com/api/(?:v\d+/)?webhooks/\d+/([\w-]{20,})"),
    Rule("webhook", r"\.webhook\.office\.com/webhookb2/([\w@/-]{20,})"),
    Rule("webhook", r"hooks\.zapier\.com/hooks/catch/([\w/]{10,})"),
    *_tokens(
        r"""
        stripe          [rs]k_(?:org_)?(?:live|test)_[A-Za-z0-9]{12,}
        webhook-secret  whsec_[A-Za-z0-9+/]{24,}=*
        anthropic       sk-ant-[\w-]{20,}
        openrouter      sk-or-[\w-]{20,}
        langfuse        sk-lf-[0-9a-f-]{30,}
        openai          sk-(?:proj|svcacct|admin|None)-[\w-]{20,}
        """
    ),
    # Also the spelling of many who serve models under OpenAI's API.
    _token(
        "openai",
        r"sk-[A-Za-z0-9]{20,}",
        rb"sk-(?:[A-Za-z]*+\d|(?=[A-Za-z]{40})[A-Za-z]*?[a-z][A-Z])",
    ),
    _token("openai", r"sess-[A-Za-z0-9]{40}", rb"sess-.*[0-9]"),
    _token(
        "hugging-face",
        r"(?:hf|api_org)_[A-Za-z0-9]{30,}",
        rb"(?:hf|api_org)_[a-z]*+[A-Z0-9]",
    ),
    *_tokens(
        r"""
        groq        gsk_[A-Za-z0-9]{40,}
        xai         xai-[A-Za-z0-9]{60,}
        perplexity  pplx-[A-Za-z0-9]{40,}
        replicate   r8_[A-Za-z0-9]{36,}
        nvidia      nvapi-[\w-]{50,}
        cerebras    csk-[a-z0-9]{40,}
        together    tgp_v1_[\w-]{40,}
        elevenlabs  sk_[0-9a-f]{40,}
        pinecone    pcsk_\w{40,}
        langsmith   lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}
        """
    ),
    _token("tavily", r"tvly-[\w-]{20,}", rb"[A-Za-z-]*+[0-9]"),
    *_tokens(
        r"""
        firecrawl     fc-[0-9a-f]{32}  whole
        apify         apify_api_[A-Za-z0-9]{30,}
        databricks    dapi[0-9a-f]{32}(?:-\d)?  whole
        alibaba       LTAI[A-Za-z0-9]{16,26}  whole
        tencent       AKID[A-Za-z0-9]{32}  whole
        digitalocean  do[opr]_v1_[0-9a-f]{40,}
        heroku        HRKU-[\w-]{36,}
        fly           fo1_[\w-]{40,}|fm[12]_[A-Za-z0-9+/]{40,}=*
        supabase      sbp_[0-9a-f]{40,}
        supabase      sb_secret_[\w-]{20,}
        netlify       nfp_[A-Za-z0-9]{36,}
        neon          napi_[a-z0-9]{40,}
        planetscale   pscale_(?:tkn|pw|oauth|otkn)_[\w.-]{32,}
        shopify       shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32,}
        square        sq0(?:atp|csp)-[\w-]{22,}
        """
    ),
    _token("square", r"EAAA[\w-]{60}", _DIGIT, ends=r"\w+/=-"),
    *_tokens(
        r"""
        sendgrid  SG\.[\w-]{16,}\.[\w-]{16,}
        mailgun   key-[0-9a-f]{32}  whole
        resend    re_[A-Za-z0-9]{8}_[A-Za-z0-9]{20,}
        """
    ),
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
    *_tokens(
        r"""
        linear     lin_(?:api|oauth)_[A-Za-z0-9]{32,}
        figma      figd_[\w-]{36,}
        atlassian  AT[AC]TT3[\w-]{60,}=?[0-9A-F]*
        airtable   pat[A-Za-z0-9]{14}\.[0-9a-f]{60,}
        postman    PMAK-[0-9a-f]{24}-[0-9a-f]{34}
        doppler    dp\.(?:pt|st|ct|sa|scim|audit)\.[\w.-]{40,}
        vault      hv[bsr]\.[\w-]{24,}  digit
        grafana    glsa_[A-Za-z0-9]{32}_[0-9a-f]{8}
        grafana    glc_eyJ[A-Za-z0-9+/]{32,}=*
        new-relic  NRAK-[A-Z0-9]{27}
        sentry     sntry[su]_[\w+/=-]{40,}
        docker     dckr_[po]at_[\w-]{24,}
        """
    ),
    _token("npm", r"npm_[A-Za-z0-9]{36}", rb"npm_[a-z]*+[A-Z0-9]", ends=r"\w"),
    *_tokens(
        r"""
        pypi       pypi-AgE[\w-]{40,}
        rubygems   rubygems_[0-9a-f]{40,}
        azure      [A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4}  whole
        terraform  [A-Za-z0-9]{14}\.atlasv1\.[\w-]{60,}
        vercel     vc[piark]_[\w-]{24,}  digit
        hubspot    pat-(?:na|eu|ap)\d-[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}  whole
        contentful CFPAT-[\w-]{40,}
        """
    ),
    # Other data in base64 has other characters too, or begins with many of this letter.
    _token(
        "facebook", r"EAA[A-Za-z0-9]{60,}", rb"(?!.{0,12}AAAA).*[0-9]", ends=r"\w+/=-"
    ),
    _token("dropbox", r"sl\.[\w.=-]{100,}", _DIGIT),
    Rule(
        "dropbox",
        r"(?:^|[^\w+/=-])([A-Za-z0-9]{11}A{10}[\w-]{43})(?:[^\w+/=-]|$)",
        needs=_DIGIT,
    ),
    *_tokens(
        r"""
        fireworks  fw_[A-Za-z0-9]{22,}  digit
        mapbox     [st]k\.eyJ[\w-]{40,}\.[\w-]{20,}
        launchdarkly  (?:sdk|api)-[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}  whole
        bitbucket  ATBB[A-Za-z0-9]{32}  whole digit
        brevo      xkeysib-[0-9a-f]{64}-[A-Za-z0-9]{16}
        """
    ),
    _token("brave", r"BSA[A-Za-z0-9_-]{27}", _DIGIT, ends=r"\w-"),
    *_tokens(
        r"""
        crates  cio[A-Za-z0-9]{32}  whole digit
        e2b     e2b_[0-9a-f]{40}  whole
        jina    jina_[A-Za-z0-9]{60}  whole
        """
    ),
    _token("mailchimp", r"[0-9a-f]{32}-us\d{1,2}", ends="A-Za-z0-9-"),
    *_tokens(
        r"""
        posthog      phx_[A-Za-z0-9]{40,}
        pulumi       pul-[0-9a-f]{40}  whole
        render       rnd_[A-Za-z0-9]{28,}  digit
        sourcegraph  sgp_(?:[0-9a-f]{16}_|local_)?[0-9a-f]{40}  whole
        jfrog        AKCp[A-Za-z0-9]{60,}
        1password    ops_eyJ[\w+/-]{60,}=*
        """
    ),
    # Words after an option are prose about it.
    _argument(
        "password",
        rf"{_OPTION}(?:password|passwd|passphrase)[ \t]{{1,4}}",
        rb"[a-z]*+[^a-z.,:;)]",
    ),
    _argument("token", rf"{_OPTION}token[ \t]{{1,4}}", _LONG_AND_MIXED),
    _argument(
        "secret",
        rf"{_OPTION}(?:secret|(?:secret|access)-key)[ \t]{{1,4}}",
        _LONG_AND_MIXED,
    ),
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
    _argument(
        "cookie", r"(?:-b|--cookie)[ \t]{0,4}", rb"[^=\s]+=.*[0-9A-Z]", of="curl"
    ),
    _argument(
        "secret",
        r"aws_(?:secret_access_key|session_token)[ \t]{1,4}",
        of="aws configure set",
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
