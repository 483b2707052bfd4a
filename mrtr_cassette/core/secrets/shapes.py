"""The shapes of secrets, such as tokens of providers, and of texts that could identify somebody.

Text that nobody chose is searched in linear time. Filters of Rust's `regex`, which comes with
pydantic, tell which rows a text may match; they never backtrack. Where a row matches, `re` tells,
so rows are written for it: what follows a repetition without a limit can't match what it repeats,
or there is a limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, Literal, NamedTuple, get_args

from pydantic_core import SchemaError, SchemaValidator, core_schema


@lru_cache(maxsize=512)
def compiled_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of the package's own, for text decoded as Latin-1."""
    return re.compile(pattern, re.ASCII)


@lru_cache(maxsize=512)
def filter_of(pattern: str) -> Callable[[str], bool]:
    """Return what tells in linear time whether a pattern of Rust's `regex` is in a text."""
    schema = core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")
    return SchemaValidator(schema).isinstance_python


@lru_cache(maxsize=512)
def whole_matcher(pattern: str) -> Callable[[str], bool]:
    """Return what tells in linear time whether a user's pattern matches the whole of a text.

    Raises:
        ValueError: it is not a regular expression of Rust's `regex`.
    """
    try:
        pattern.encode()
        return filter_of(rf"\A(?:{pattern})\z")
    except UnicodeEncodeError:
        raise ValueError("it has half of a surrogate pair") from None
    except SchemaError as error:
        raise ValueError(str(error).strip().rpartition("error: ")[2]) from None


_COUNTED_REPETITIONS = 3
"""Repetitions that a filter of some patterns counts, so that its automaton fits into a cache.

One of more patterns counts none, and one of a single pattern all.
"""

_MOST_REPETITIONS = 1000
_CLASS_ESCAPES: Final = {
    "w": "[A-Za-z0-9_]",
    "d": "[0-9]",
    "s": r"[\t\n\f\r ]",
    "S": r"[^\t\n\f\r ]",
    "b": "",
}
_PATTERN_PART = re.compile(
    r"(?P<set>\[(?:\\.|[^\]\\])+\])|\\(?P<escaped>.)"
    r"|\(\?<?[=!](?:\\.|\[[^\]]+\]|[^()\[\\])*\)"
    r"|\{(?P<least>\d+)(?:,\d*)?\}\+?|(?P<repeated>[*+?])\+"
)


def widened_pattern(
    pattern: str, counted_repetitions: int = _COUNTED_REPETITIONS
) -> str:
    """Return a pattern for a filter that is wherever one for `re` matches, and elsewhere too.

    It counts so many repetitions, and looks at nothing around a match.
    """
    return _PATTERN_PART.sub(
        lambda part: _widened_pattern_part(part, counted_repetitions), pattern
    )


def _widened_pattern_part(part: re.Match[str], counted_repetitions: int) -> str:
    """Return the wider form of a part of a pattern; empty if the part looks around a match."""
    if part["set"] is not None:
        chars = part["set"]
        for name in "wds":
            chars = chars.replace(f"\\{name}", _CLASS_ESCAPES[name][1:-1])

        return chars

    if part["escaped"] is not None:
        return _CLASS_ESCAPES.get(part["escaped"], part[0])
    if part["least"] is not None:
        return f"{{{min(int(part['least']), counted_repetitions)},}}"

    # Nothing, if it looks around.
    return part["repeated"] or ""


_FIRST_CHAR = re.compile(r"(?:\[[^\]]+\]|\\?[^\\(\[])(?![{*+?])")
"""The first character of a pattern."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One shape of secret; several rows of the table may share a name."""

    name: str
    pattern: str
    """The secret is the group that took part, or all of the match."""

    required_beginning: str = ""
    """A pattern that the beginning of a secret must match too."""

    not_after: str = ""
    """A set of characters, as in brackets, of which none is before a match."""

    searched_parts: str = ""
    """A pattern for the parts of a text that are searched, if not all of it."""

    def filter_pattern(self, counted_repetitions: int) -> str:
        """Return a pattern for a filter that is in each text with a match."""
        pattern = widened_pattern(
            self.searched_parts or self.pattern, counted_repetitions
        )
        # A filter of several patterns looks for their literals, which what is before would hide.
        if not self.not_after or counted_repetitions == _COUNTED_REPETITIONS:
            return f"(?:{pattern})"

        allowed_before = f"^{self.not_after}"
        if self.not_after[0] == "^":
            allowed_before = self.not_after[1:]

        return f"(?:(?:^|{widened_pattern(f'[{allowed_before}]')})(?:{pattern}))"

    def secret_spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the places of secrets in a text, in order."""
        pattern = _compiled_not_after(self.pattern, self.not_after)
        for part in compiled_pattern(self.searched_parts or r"(?s:.+)").finditer(text):
            searched_at = part.start()
            while match := pattern.search(text, searched_at, part.end()):
                start, end = match.span(match.lastindex or 0)
                # The last character of a secret may be the first of another match.
                searched_at = max(end - 1, match.start() + 1)
                if re.match(
                    self.required_beginning, text[start:end], re.ASCII | re.DOTALL
                ):
                    yield start, end


@lru_cache(maxsize=512)
def _compiled_not_after(pattern: str, not_after: str) -> re.Pattern[str]:
    """Compile a pattern for places that certain characters don't precede.

    A search for a first character is fast, so it comes before what is asked about the one before.
    """
    if not not_after:
        return compiled_pattern(pattern)

    first_char_match = _FIRST_CHAR.match(pattern)
    first_char = "" if first_char_match is None else first_char_match[0]
    return compiled_pattern(
        f"{first_char}(?<![{not_after}]{first_char})(?:{pattern[len(first_char) :]})"
    )


_GROUP_COUNT = 6


class RuleGroup:
    """Rules, in groups of groups, of which few filters tell which ones a text may match."""

    def __init__(self, rules: Sequence[Rule], counted_repetitions: int = 1) -> None:
        self._rules = rules
        self.pattern = "|".join(
            [rule.filter_pattern(counted_repetitions) for rule in rules]
        )
        """A pattern for a filter that is in each text that may match."""

    def likely_rules(self, text: str) -> list[Rule]:
        """Return the rules that a text may match, and hardly others."""
        if not self._rules or not filter_of(self.pattern)(text):
            return []
        if len(self._rules) == 1:
            return [*self._rules]
        return [
            rule for group in self._rule_groups for rule in group.likely_rules(text)
        ]

    @cached_property
    def _rule_groups(self) -> list[RuleGroup]:
        """The rules in smaller groups, which have filters of their own."""
        group_size = -(-len(self._rules) // _GROUP_COUNT)
        counted_repetitions = _MOST_REPETITIONS
        if group_size > 1:
            counted_repetitions = _COUNTED_REPETITIONS

        groups = []
        for first in range(0, len(self._rules), group_size):
            groups.append(
                RuleGroup(self._rules[first : first + group_size], counted_repetitions)
            )

        return groups


_WORD_CHARS = "A-Za-z0-9"


def _token_rule(
    name: str, pattern: str, required_beginning: str = "", *, not_before: str = ""
) -> Rule:
    """Return the rule of a token that begins a word, and that certain characters don't follow."""
    if not_before:
        pattern += f"(?![{not_before}])"

    # After a letter or a digit it is the inside of a word: `task-…` contains no `sk-…`.
    return Rule(name, pattern, required_beginning, _WORD_CHARS)


def _token_rules(table: str) -> Iterator[Rule]:
    """Read rows of a name, a pattern, and `whole` or `digit` or both.

    After a `whole` one comes no letter or digit, and one with `digit` has a digit.
    """
    for row in table.strip().splitlines():
        name, pattern, *flags = row.split()
        required_beginning = _HAS_DIGIT if "digit" in flags else ""
        not_before = _WORD_CHARS if "whole" in flags else ""
        yield _token_rule(name, pattern, required_beginning, not_before=not_before)


def _named_value_rules(name: str, names: str) -> tuple[Rule, ...]:
    """Return the rules for the values that names have in XML, HTML and multipart forms."""
    names = f"(?i:{names})"
    required_beginning = r"\s*+(?![$%]?\{)\S"
    field = rf"(?:name|key|id)=(?:\\*[\"'])?{names}(?:\\*[\"'])?"
    tag = r"<(?:input|meta|add|property|param|entry|setting)\s(?:[^<>]*\s)?"
    value = r"\s(?:value|content)=\\*[\"']([^\"'<>\\]+)"
    element = rf"<(?:[\w.-]{{1,64}}:)?{names}(?:\s[^<>]{{0,256}})?>"
    text = r"(?:<!\[CDATA\[)?([^<>]{1,512}?)(?:\]\]>)?</"
    multipart_field = (
        r"(?:[ \r]*+\n[^\r\n]{1,200}+){0,3}[ \r]*+\n[ \r]*+\n {0,4}"
        r"((?:[^\r\n\\]|\\[^\r\n]){1,512})"
    )

    return (
        Rule(name, element + text, required_beginning),
        Rule(name, field + multipart_field, required_beginning, not_after=r"^\s;"),
        Rule(
            name,
            value,
            required_beginning,
            searched_parts=rf"{tag}{field}(?=[\s/>])[^<>]*+",
        ),
    )


_NO_TEMPLATE = r"(?![$%]?\{|\$|<|[?:%*]|\W*$)"


_NEXT_ITEM = r"\\{0,8}[\"'],\s{0,16}\\{0,8}[\"']"
"""From the end of an item of an array to the beginning of the next; both are in quotes."""

_BETWEEN_ITEMS = r"[\s\"',\\]{1,16}"
_NO_DESCRIPTION = (
    r"(?![a-z_]*+\\*[\"']|[^\s\d\"'\\]*+\s[^\d\"'\\]*+\\*[\"']|[$%]?[{(<]|\$[A-Z_])"
)
"""An item that is neither a name in code, nor words about an option, nor a template."""


def _argument_rule(
    name: str,
    option: str,
    gap: str = r"[ \t]{1,4}",
    *,
    required_beginning: str = _NO_TEMPLATE,
    commands: str = "",
) -> Rule:
    """Return the rule for an option's argument, after any command or only after `commands`.

    `gap` is between the two in a line; without one they are never two items of an array.
    """
    command_pattern = ""
    if commands:
        command_words = commands.replace(" ", _BETWEEN_ITEMS)
        command_pattern = (
            rf"(?i:{command_words})\b(?:[^\r\n;|&<>]|,\r?\n){{0,256}}?[ \t\"']"
        )

    quoted_argument = r"\\{0,8}[\"']([^\s\"'\\,:}\]][^\"'\r\n\\]{2,255})"
    bare_argument = r"([^\s\"'<>$|;&\\,:}\]-][^\s\"'<>\\;|&]{2,255})"
    argument = f"{gap}(?:{quoted_argument}|{bare_argument})"
    if gap:
        array_item = r"([^\s\"'\\-](?:[^\"'\r\n\\]|\\+[^\"'\r\n\\]){2,}+)"
        argument = f"(?:{argument}|{_NEXT_ITEM}{_NO_DESCRIPTION}{array_item})"

    return Rule(
        name,
        f"{command_pattern}{option}{argument}",
        required_beginning,
        not_after=r"\w\[-",
    )


_HAS_DIGIT = r"[^0-9]*+[0-9]"
_LONG_AND_MIXED = (
    r"(?=.{16})[^0-9]*+[0-9].*[A-Za-z]|(?=.{16})[^A-Za-z]*+[A-Za-z].*[0-9]"
)
_ANY_NAME_PREFIX = r"[\w.-]{0,64}?"
"""The beginning of longer names that are known by their end."""

_OPTION_PREFIX = r"--(?:\w{1,32}-)?"

_DATABASES = r"postgres(?:ql)?|mysql|mariadb|mongodb(?:\+srv)?|rediss?|amqps?"

RULES: Final[tuple[Rule, ...]] = (
    Rule(
        "private-key",
        # The words alone are prose. A key that is cut off has no end, but lines of base64.
        r"-----BEGIN (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:(?:-{0,4}+[^-]){32}(?:[^-]++|-{1,4}+[^-])*+"
        r"-----END (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----"
        r"|[A-Za-z0-9+/=\s\\]{48,})",
    ),
    _token_rule("private-key", r"AGE-SECRET-KEY-1[A-Z0-9]{50,}"),
    _token_rule(
        "jwt",
        # Three parts, or five when encrypted (RFC 7516); then the second may be empty.
        r"eyJ[\w-]*+"
        r"(?:\.(?:[\w-]{10,}+\.[\w-]{10,}|[\w-]*+\.[\w-]++\.[\w-]++\.[\w-]{10,}))?",
        # A word without the other parts is passed, so that it isn't read again from its middle.
        r"eyJ[\w-]{10,}\.",
    ),
    *_token_rules(
        r"""
        aws  A[KSB]IA[A-Z0-9]{16}  whole
        aws  ABSK[A-Za-z0-9+/]{60,}={0,2}
        """
    ),
    Rule(
        "aws",
        # Forty hexadecimal digits are a commit.
        r"[Ss](?i:ecret[ _-]?(?:access[ _-]?)?key)\\{0,8}[\"']?\s{0,3}(?:=>|[:=])\s{0,3}"
        r"(?:\\{0,8}[\"'])?"
        r"([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
        r"[0-9a-f]*+[^0-9a-f]",
    ),
    *_token_rules(
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
    Rule("azure", r"sig=([\w+/%-]{30,}=*)", not_after=_WORD_CHARS),
    Rule("azure", r"[\w~.-]{3}\dQ~[\w~.-]{31,34}(?![\w~.-])", not_after=r"\w~.-"),
    *_token_rules(
        r"""
        github  g(?:h[oprsu]_[A-Za-z0-9_]{30,}|ithub_pat_\w{30,})
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
    *_token_rules(
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
    _token_rule(
        "openai",
        r"sk-[A-Za-z0-9]{20,}",
        r"sk-(?:[A-Za-z]*+\d|(?=[A-Za-z]{40})[A-Za-z]*?[a-z][A-Z])",
    ),
    _token_rule("openai", r"sess-[A-Za-z0-9]{40}", r"sess-.*[0-9]"),
    # Each begins with a literal, for which a search is fast.
    _token_rule("hugging-face", r"hf_[A-Za-z0-9]{30,}", r"hf_[a-z]*+[A-Z0-9]"),
    _token_rule(
        "hugging-face", r"api_org_[A-Za-z0-9]{30,}", r"api_org_[a-z]*+[A-Z0-9]"
    ),
    *_token_rules(
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
    _token_rule("tavily", r"tvly-[\w-]{20,}", r"[A-Za-z-]*+[0-9]"),
    *_token_rules(
        r"""
        firecrawl     fc-[0-9a-f]{32}  whole
        apify         apify_api_[A-Za-z0-9]{30,}
        databricks    dapi[0-9a-f]{32}(?:-\d)?  whole
        alibaba       LTAI[A-Za-z0-9]{16,26}  whole
        tencent       AKID[A-Za-z0-9]{32}  whole
        digitalocean  do[opr]_v1_[0-9a-f]{40,}
        heroku        HRKU-[\w-]{36,}
        fly           f(?:o1_[\w-]{40,}|m[12]_[A-Za-z0-9+/]{40,}=*)
        supabase      sbp_[0-9a-f]{40,}
        supabase      sb_secret_[\w-]{20,}
        netlify       nfp_[A-Za-z0-9]{36,}
        neon          napi_[a-z0-9]{40,}
        planetscale   pscale_(?:tkn|pw|oauth|otkn)_[\w.-]{32,}
        shopify       shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32,}
        square        sq0(?:atp|csp)-[\w-]{22,}
        """
    ),
    _token_rule("square", r"EAAA[\w-]{60}", _HAS_DIGIT, not_before=r"\w+/=-"),
    *_token_rules(
        r"""
        sendgrid  SG\.[\w-]{16,}\.[\w-]{16,}
        mailgun   key-[0-9a-f]{32}  whole
        resend    re_[A-Za-z0-9]{8}_[A-Za-z0-9]{20,}
        """
    ),
    Rule("twilio", r"[Tt](?i:wilio)[\w .:=\"'-]{0,39}?[_ .:=\"'-](SK[0-9a-f]{32})"),
    Rule("telegram", r"\d{8,10}:AA[\w-]{33}(?![\w-])", not_after=r"\d"),
    Rule("telegram", r"/bot(\d{6,12}:[\w-]{30,})"),
    _token_rule(
        "discord",
        r"[MNO][\w-]{22,27}\.[\w-]{6}\.[\w-]{27,40}",
        r"[\w-]*[0-9]",
        not_before=r"\w.-",
    ),
    _token_rule("notion", r"ntn_[A-Za-z0-9]{40,}"),
    _token_rule("notion", r"secret_[A-Za-z0-9]{43}", not_before=r"\w"),
    *_token_rules(
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
    _token_rule(
        "npm", r"npm_[A-Za-z0-9]{36}", r"npm_[a-z]*+[A-Z0-9]", not_before=r"\w"
    ),
    *_token_rules(
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
    _token_rule(
        "facebook",
        r"EAA[A-Za-z0-9]{60,}",
        r"(?!.{0,12}AAAA).*[0-9]",
        not_before=r"\w+/=-",
    ),
    _token_rule("dropbox", r"sl\.[\w.=-]{100,}", _HAS_DIGIT),
    Rule(
        "dropbox",
        r"[A-Za-z0-9]{11}A{10}[\w-]{43}(?![\w+/=-])",
        required_beginning=_HAS_DIGIT,
        not_after=r"\w+/=-",
    ),
    *_token_rules(
        r"""
        fireworks  fw_[A-Za-z0-9]{22,}  digit
        mapbox     [st]k\.eyJ[\w-]{40,}\.[\w-]{20,}
        launchdarkly  (?:sdk|api)-[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}  whole
        bitbucket  ATBB[A-Za-z0-9]{32}  whole digit
        brevo      xkeysib-[0-9a-f]{64}-[A-Za-z0-9]{16}
        """
    ),
    _token_rule("brave", r"BSA[A-Za-z0-9_-]{27}", _HAS_DIGIT, not_before=r"\w-"),
    *_token_rules(
        r"""
        crates  cio[A-Za-z0-9]{32}  whole digit
        e2b     e2b_[0-9a-f]{40}  whole
        jina    jina_[A-Za-z0-9]{60}  whole
        """
    ),
    _token_rule("mailchimp", r"[0-9a-f]{32}-us\d{1,2}", not_before="A-Za-z0-9-"),
    *_token_rules(
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
    _argument_rule(
        "password",
        rf"{_OPTION_PREFIX}(?:password|passwd|passphrase)",
        required_beginning=r"[a-z]*+[^a-z.,:;)]",
    ),
    _argument_rule(
        "token", rf"{_OPTION_PREFIX}token", required_beginning=_LONG_AND_MIXED
    ),
    _argument_rule(
        "secret",
        rf"{_OPTION_PREFIX}(?:secret|(?:secret|access)-key)",
        required_beginning=_LONG_AND_MIXED,
    ),
    _argument_rule(
        "api-key", rf"{_OPTION_PREFIX}api-?key", required_beginning=_LONG_AND_MIXED
    ),
    Rule(
        "password",
        # As in a netrc file, on one line or several.
        r"login\s{1,8}\S{1,128}\s{1,16}password\s{1,8}([^\s\"'<$][^\s\"'\\]{1,255})",
        required_beginning=r"[a-z]*+[^a-z.,:;)]",
        not_after=r"^\s",
    ),
    Rule(
        "password",
        r"[Cc](?i:url)(?:\\{0,8}[ \t\"'](?:[^\r\n]{0,128}\\\r?\n){0,4}"
        r"(?:[^\r\n<>]|,\r?\n){0,400}?)??[ \t\"'](?:-u|--user)"
        rf"(?:[ \t=]{{0,2}}(?:\\{{0,8}}[\"'])?|{_NEXT_ITEM})"
        r"[^\s:\"'<>]{0,128}:([^\s\"'<>\\\[{][^\s\"'<>\\]{0,254})",
        r"(?![$%]?\{|\$)",
    ),
    _argument_rule("password", "-p", r"[ \t]{0,4}", commands="sshpass"),
    _argument_rule("password", "-p", "", commands=r"(?:mysql|mariadb)\w{0,12}"),
    _argument_rule("password", "(?:-a|--pass)", commands="redis-cli"),
    _argument_rule("password", "-p", commands=r"(?:docker|podman|helm registry) login"),
    _argument_rule(
        "cookie",
        "(?:-b|--cookie)",
        r"[ \t]{0,4}",
        required_beginning=r"[^=\s]+=.*[0-9A-Z]",
        commands="curl",
    ),
    _argument_rule(
        "secret",
        "aws_(?:secret_access_key|session_token)",
        commands="aws configure set",
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
        r"(?![$%]?\{|[0-9]{1,5}/[^?]*\?)",
    ),
    Rule(
        "url-password",
        r"://[^\s/?#:@\"'<>\\]*+:([^\s/?#\"'<>\\]{1,512})@"
        r"(?:\[|[\w.-]++(?::[0-9]{1,5}(?![0-9a-f])|(?!:)))",
        r"(?![$%]?\{|x-oauth-basic$)",
    ),
    # Tokens in their place: long, or with digits and letters in turns.
    Rule(
        "url-password",
        r"://([\w-]{10,512})(?::|:x-oauth-basic)?@",
        r"[A-Za-z0-9]{24,}$|(?=.{20})(?=.*[0-9]).*[A-Za-z]"
        r"|(?:[A-Za-z]*[0-9]+(?=[A-Za-z])){2}[A-Za-z0-9]*$",
    ),
    Rule("authorization", r"[Ss](?i:sws) {1,4}([\w-]{20,})", not_after=r"\w-"),
    *_named_value_rules(
        "password", rf"{_ANY_NAME_PREFIX}(?:password|passwd|passphrase)|pwd"
    ),
    *_named_value_rules(
        "secret", rf"secret|{_ANY_NAME_PREFIX}(?:client|app|consumer)[_-]?secret"
    ),
    *_named_value_rules("api-key", rf"{_ANY_NAME_PREFIX}api[_-]?key"),
    *_named_value_rules(
        "token",
        rf"{_ANY_NAME_PREFIX}(?:access|refresh|auth|csrf|xsrf|authenticity)[_-]?token|id[_-]?token"
        "|csrfmiddlewaretoken|samlresponse",
    ),
    Rule(
        "basic",
        # Base64 of a text with a colon, which has three spellings; so "Basic authentication" stays.
        r"[Bb](?i:asic)[ \t]{1,4}([A-Za-z0-9+/]{7,}+={0,2}+)(?![\w+/=-])",
        r"(?:[A-Za-z0-9+/]{4})*?"
        r"(?:O[g-v]|[A-Za-z0-9+/][DTjz][o-r]|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]6)",
        not_after=r"\w-",
    ),
    Rule(
        "bearer",
        # A challenge goes on with parameters (`Bearer resource_metadata="…"`), prose with words.
        r"[Bb](?i:earer)[ \t]{1,4}(?:([\w.~+/-]{16,}+={1,2})(?![\w/]|[\"'][\w/])"
        r"|([\w.~+/-]{16,}+)(?!=))",
        r"[^=]*?[0-9]|(?=[^=]{24})[^=]*?[a-z][A-Z]",
        not_after=r"\w-",
    ),
    Rule(
        "bearer",
        # After the header's name anything but a plain word is a credential.
        r"[Aa](?i:uthorization)\\{0,8}[\"']?[ \t]{0,4}[:=][ \t]{0,4}\\{0,8}[\"']?"
        r"(?i:bearer|token|apikey|api-key|key)[ \t]{1,4}"
        r"([\w.~+/=:-]{8,})",
        r"[a-z]*+[^a-z]",
    ),
)
"""The shapes; where two rows find the same text, the first names it."""


# Texts that could identify somebody, taken out to share a cassette with strangers

SharedKind = Literal["email", "host", "ip", "text", "user"]

_SLASH: Final = r"(?:[\\/]|%2[Ff]|%5[Cc])"
_SLASHES: Final = r"(?:[\\/]+|%2[Ff]|%5[Cc])"
_HOME_FOLDER: Final = (
    rf"(?:home|Users){_SLASHES}|[A-Za-z](?::|%3[Aa]){_SLASHES}users{_SLASHES}"
)
_IP_BYTE: Final = "(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])"
_IP_GROUP: Final = "[0-9A-Fa-f]{1,4}"
_LONG_IP: Final = (
    rf"(?:{_IP_GROUP}:){{7}}{_IP_GROUP}"
    rf"|(?:{_IP_GROUP}:){{1,6}}:(?:{_IP_GROUP}:){{0,5}}{_IP_GROUP}"
)
_LETTER: Final = r"[^\W\d_]"
_LETTER_OR_DIGIT: Final = r"[^\W_]"


def rule_of_kind(kind: SharedKind) -> str:
    """Return the name of a rule, which its placeholders have."""
    return f"shared-{kind}"


class SharedRule(NamedTuple):
    """A kind of text that could identify somebody."""

    name: str
    pattern: str
    """For `re`; group 1 is the text, or all of the match."""

    before_search_match: str = ""
    """Precedes the pattern where no match ends, so that a long word is read once."""

    required_text: str = ""

    def secret_spans(self, raw: bytes) -> Iterator[tuple[int, int]]:
        """Yield the places of such texts, in order."""
        text = raw.decode("utf-8", "surrogateescape")
        may_begin = re.compile(self.before_search_match + self.pattern)
        goes_on = re.compile(self.pattern)
        text_end = 0
        raw_end = 0
        searched_at = 0
        while match := goes_on.match(text, searched_at) or may_begin.search(
            text, searched_at
        ):
            searched_at = max(match.end(), searched_at + 1)
            secret_start, secret_end = match.span(match.lastindex or 0)
            secret = text[secret_start:secret_end]
            if not re.match(self.required_text, secret):
                continue

            raw_start = raw_end + _count_utf8_bytes(text[text_end:secret_start])
            raw_end = raw_start + _count_utf8_bytes(secret)
            text_end = secret_end
            yield raw_start, raw_end


def _count_utf8_bytes(text: str) -> int:
    """Return how many bytes a text has in UTF-8; an escaped byte counts as itself."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogateescape"))


SHARED_RULES: Final[Mapping[SharedKind, SharedRule]] = {
    "email": SharedRule(
        rule_of_kind("email"),
        rf"[\w.%+-]+(?:@|%40)(?:(?:{_LETTER_OR_DIGIT}|-)++\.){{1,127}}"
        rf"{_LETTER}(?:{_LETTER_OR_DIGIT}|-)+",
        before_search_match=r"(?<![\w.%+-])",
    ),
    "ip": SharedRule(
        rule_of_kind("ip"),
        rf"(?a)\b(?:{_IP_BYTE}(?:\.{_IP_BYTE}){{3}}|{_LONG_IP})\b",
        # The addresses of each machine itself say nothing.
        required_text=r"(?!127\.|0\.0\.0\.0)(?=.*[0-9])",
    ),
    "text": SharedRule(
        rule_of_kind("text"), r"(?as)\A(?:\s*+\S++\s|.*[^\x00-\x7F]).*\Z"
    ),
    "user": SharedRule(
        rule_of_kind("user"), rf"(?a){_SLASH}(?:{_HOME_FOLDER})([^\\/\s\"'<>:%?#]+)"
    ),
}
"""By kind. In JSON each finds its texts in strings; `text` is a whole string of several words.

No pattern finds a `host`: the server's own is known.
"""

SHARED_NAMES: Final = frozenset(map(rule_of_kind, get_args(SharedKind)))
_EXAMPLE_BY_RULE: Final[Mapping[str, str]] = {
    rule_of_kind("email"): "somebody{}@example.com",
    rule_of_kind("host"): "server{}.example",
    rule_of_kind("ip"): "192.0.2.{}",
    rule_of_kind("text"): "some text {}",
    rule_of_kind("user"): "somebody{}",
}


def example_of(rule: str, token: str) -> bytes | None:
    """Return a text that matches one that was taken out to share a cassette, or None."""
    example = _EXAMPLE_BY_RULE.get(rule)
    if example is None:
        return None
    return example.format(token).encode()
