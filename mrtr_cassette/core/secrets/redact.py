r"""Keeping known secrets off the disk: in bodies, in header values and in URLs.

Owns: where a secret stands in what passes.
Does not own: which secrets are known (`rules`), what stands for one (`placeholders`), request
states and session ids (`seal`), which headers are kept (`wire`).
Laws: every byte outside a secret stays; JSON stays the same JSON with other string values; what
has been redacted is not changed by redacting it again.

Text is searched with its escapes undone, one layer at a time (`\u002d` in a JSON string, JSON in
that string, `%2D` in a URL in it), and what is found is mapped back to where it is spelled.
Source: docs/design.md, "Redaction".
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as Base64Error
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate
from typing import Final, NamedTuple

from mrtr_cassette.core.protocol.dialect import ECHOED_STATE_PATH, ISSUED_STATE_PATH
from mrtr_cassette.core.secrets.escapes import (
    Found,
    Spans,
    View,
    as_json_string,
    form_view,
    in_json_string,
    in_url,
    json_tokens,
    json_view,
    moved,
    nothing,
    through,
    url_view,
    without_overlaps,
)
from mrtr_cassette.core.secrets.placeholders import PLACEHOLDER, placeholder
from mrtr_cassette.core.secrets.prefilter import Plan, Planner
from mrtr_cassette.core.secrets.rules import (
    CUSTOM_KEY,
    RULE_NAMES,
    RULES,
    RedactionRules,
    Rule,
    builtin_rule_of,
    fold,
)
from mrtr_cassette.core.wire.http import EVENT_STREAM, Headers, Request
from mrtr_cassette.core.wire.jsonbytes import MemberPath, find_spans
from mrtr_cassette.errors import NotJsonError

_SURROGATE = re.compile(r"sha256:[0-9a-f]{64}|mrtr-(?:state|session|answer):[0-9a-f:]+")
"""What `seal` has put in a secret's place: the same for everyone, and matched by."""

_SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"
_EXEMPT: Final[tuple[MemberPath, ...]] = (
    ("id",),
    ("params", "_meta", "progressToken"),
    ("params", "progressToken"),
    ECHOED_STATE_PATH,
    ISSUED_STATE_PATH,
    ("params", "_meta", _SUBSCRIPTION_ID),
    ("result", "_meta", _SUBSCRIPTION_ID),
)
"""Places of a message that replay splices, seals or compares by itself."""

_FORM = "application/x-www-form-urlencoded"
_PASSES = 100
"""How often a text is searched again at most, for patterns that match next to a placeholder."""

_REPEATED = 1024
"""Header values, targets and lines of a log that are remembered with what became of them."""

_SHORTEST = len("apikey=x")
"""Characters that a text has at least if a rule of ours finds something in it."""

_DEEPEST = 5
"""URLs in URLs that are searched. JSON in JSON needs no limit, as its escapes double each time."""

_JSON_IN_TEXT = re.compile(r'[ \t\r\n]*+[{\[]|".*"\Z', re.DOTALL)
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


class _Query(NamedTuple):
    """How names and values stand in a text, and how they are spelled."""

    pair: re.Pattern[str]
    view: Callable[[str], View]


_OF_URL = _Query(re.compile(r"[?&#]([^=&?#]{1,200})=([^&#]*)"), url_view)
_OF_FORM = _Query(re.compile(r"(?:\A|&)([^=&]{1,200})=([^&]*)"), form_view)


def _without_exempt(
    text: str, tokens: Iterable[re.Match[str]], found: Sequence[Found]
) -> Iterator[Found]:
    """Leave out what stands in the exempt places of the messages that `tokens` are of."""
    starts = [0]
    depth = 0
    for token in tokens:
        if depth == 0:
            starts.append(token.start())
        depth += (token.lastgroup == "opening") - (token.lastgroup == "closing")
    starts.append(len(text))
    at, exempt = -1, Spans(())
    for one in found:
        index = bisect_right(starts, one.start) - 1
        if index != at:
            at, exempt = index, _exempt_spans(text[starts[index] : starts[index + 1]])
        if not exempt.hold(one.start - starts[at], one.end - starts[at]):
            yield one


def _exempt_spans(text: str) -> Spans:
    raw = text.encode("utf-8", "surrogateescape")
    skipped = len(raw) - len(raw.lstrip(b"\xef\xbb\xbf \t\r\n,:"))
    try:
        found = find_spans(raw[skipped:], _EXEMPT)
    except NotJsonError:
        return Spans(())
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
    return Spans(
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
        off = set(rules.disabled) & RULE_NAMES
        self._custom = tuple(
            Rule(f"custom-{number}", re.compile(pattern), (), is_prefixed=False)
            for number, pattern in enumerate(rules.patterns, start=1)
        )
        self._keys = {fold(key) for key in rules.keys}
        self._off = off
        self._names_off = {fold(name) for name in rules.disabled if name not in RULE_NAMES}
        active = tuple(rule for rule in RULES if rule.name not in off)
        self._planner = Planner(active, self._custom, self._keys)
        # What comes again is not searched again; a secret has one placeholder for all the run.
        self.header = lru_cache(maxsize=_REPEATED)(self._redacted_header)
        self.headers = lru_cache(maxsize=_REPEATED)(self._redacted_headers)
        self.text = lru_cache(maxsize=_REPEATED)(self._redacted_text)
        self.target = lru_cache(maxsize=_REPEATED)(self._redacted_target)

    def body(self, raw: bytes, content_type: str) -> bytes:
        """Redact a body, or any piece of one; of an event stream whole events.

        JSON, also line by line or broken off, forms, event streams and other text are searched.
        Bytes that are no text pass.
        """
        media_type = content_type.partition(";")[0].strip().lower()
        # Again, as a pattern may match next to a placeholder what it didn't before.
        for _ in range(_PASSES):
            plan = self._planner.plan(raw)
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

    def request(self, request: Request) -> Request:
        """Redact a request."""
        return Request(
            request.method,
            self.target(request.target),
            self.headers(request.headers),
            self.body(request.body, request.header("content-type")),
        )

    def _redacted_text(self, value: str) -> str:
        """Redact a log line, or any text that is no body."""
        return self._settled(value, lambda text, plan: self._in_value(text, plan, _DEEPEST))

    def _redacted_target(self, path_with_query: str) -> str:
        """Redact a request target; placeholders in it are percent-encoded."""
        return self._settled(
            path_with_query, lambda text, plan: self._in_text(text, plan, _DEEPEST, _OF_URL)
        )

    def _redacted_headers(self, headers: Headers) -> Headers:
        """Redact the values of headers."""
        return tuple([(name, self.header(name, value)) for name, value in headers])

    def _redacted_header(self, name: str, value: str) -> str:
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
            first = PLACEHOLDER.search(redacted)
            return value if first is None else first[0]
        return redacted

    def _settled(
        self,
        text: str,
        find: Callable[[str, Plan], list[Found]],
        *,
        is_named: bool = False,
    ) -> str:
        for _ in range(_PASSES):
            plan = self._planner.plan(text.encode("utf-8", "surrogatepass"))
            if plan is None and not is_named:
                return text
            found = find(text, plan or Plan((), ()))
            if not found:
                return text
            text = self._replaced(text, found)
        return text

    def _replaced(self, text: str, found: list[Found]) -> str:
        parts: list[str] = []
        at = 0
        for one in sorted(found, key=lambda one: one.start):
            new = "" if one.spelled is nothing else self._placeholder(one.rule, one.secret)
            parts += (text[at : one.start], one.spelled(new))
            at = one.end
        parts.append(text[at:])
        return "".join(parts)

    def _placeholder(self, rule: str, secret: str) -> str:
        return placeholder(rule, self._token(rule, secret))

    def _rule_of(self, name: str) -> str:
        """Return the rule that makes values under a name secrets, or an empty string."""
        folded = fold(name)
        if folded in self._keys:
            return CUSTOM_KEY
        rule = builtin_rule_of(folded)
        return "" if rule in self._off or folded in self._names_off else rule

    # Where secrets stand, from the outermost layer inwards

    def _in_body(self, text: str, plan: Plan, *, is_form: bool = False) -> list[Found]:
        tokens = json_tokens(text)
        if tokens is not None:
            found = self._in_json(tokens, plan, _DEEPEST)
            return list(_without_exempt(text, tokens, found)) if found else []
        if is_form:
            return self._in_text(text, plan, _DEEPEST, _OF_FORM)
        return self._in_text(text, plan, _DEEPEST)

    def _in_stream(self, text: str, plan: Plan) -> list[Found]:
        """Search the data of each event as one text, and other lines each by itself."""
        found: list[Found] = []
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
                found += moved(self._in_text(value, plan, _DEEPEST), start)
        return found

    def _in_event(self, text: str, lines: Sequence[tuple[int, int]], plan: Plan) -> Iterator[Found]:
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
            if PLACEHOLDER.fullmatch("".join(text[first:last] for first, last in pieces)):
                continue
            spelled = one.spelled
            for first, last in pieces:
                yield replace(one, start=first, end=last, spelled=spelled)
                spelled = nothing

    def _in_value(self, text: str, plan: Plan, depth: int) -> list[Found]:
        """Search a text that may be JSON itself: an object, an array, or one string in quotes."""
        tokens = json_tokens(text) if _JSON_IN_TEXT.match(text) else None
        if tokens is not None and text[0] == '"' and len(tokens) > 1:
            tokens = None
        if tokens is None:
            return self._in_text(text, plan, depth)
        return self._in_json(tokens, plan, depth)

    def _in_json(self, tokens: list[re.Match[str]], plan: Plan, depth: int) -> list[Found]:
        found: list[Found] = []
        # Of each open object or array: its bracket, and the rule for values right in it.
        opened = [("", "")]
        key = ""
        for token in tokens:
            bracket, rule = opened[-1]
            match token.lastgroup:
                case "key" if bracket != "[":
                    key = token["text"]
                    if "\\" in key:
                        key = json_view(key).text
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
                    found.append(Found(start, end, rule, token["number"], as_json_string))
            key = ""
        return found

    def _in_string(
        self, token: re.Match[str], rule: str, plan: Plan, depth: int
    ) -> Iterable[Found]:
        raw, at = token["text"], token.start("text")
        if len(raw) < _SHORTEST and not (rule or self._custom):
            return ()
        if "\\" not in raw:
            return moved(self._in_member(rule, raw, plan, depth), at)
        view = json_view(raw)
        return through(view, self._in_member(rule, view.text, plan, depth), at, in_json_string)

    def _in_member(self, rule: str, value: str, plan: Plan, depth: int) -> list[Found]:
        """Search a value that stands under a name; `rule` is empty for most names."""
        return self._named(rule, value, plan) if rule else self._in_value(value, plan, depth)

    def _named(self, rule: str, value: str, plan: Plan) -> list[Found]:
        """Return a value that its name makes a secret; the scheme of a credential stays."""
        start = 0
        if rule == "authorization" and (scheme := _SCHEME.match(value)):
            start = scheme.end()
            named = scheme[1].lower()
            rule = named if named in ("basic", "bearer") and named not in self._off else rule
        secret = value[start:]
        if not secret or PLACEHOLDER.fullmatch(secret) or _SURROGATE.fullmatch(secret):
            return []
        if rule != CUSTOM_KEY:
            # Where its shape is known too, it is called the same as in other places.
            for one in self._in_text(value, plan._replace(stems=()), depth=0):
                if (one.start, one.end) == (start, len(value)):
                    rule = one.rule
        return [Found(start, len(value), rule, secret)]

    def _in_text(
        self, text: str, plan: Plan, depth: int, query: _Query | None = None
    ) -> list[Found]:
        """Search a text that is no JSON, and the URLs in it.

        Args:
            query: the text as a whole is a URL or a form.
        """
        found = [
            Found(start, end, rule.name, text[start:end])
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
        within = Spans(urls)
        found = [
            replace(one, secret=url_view(one.secret).text, spelled=in_url)
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
                inside = self._in_one_url(url, query or _OF_URL, plan, depth - 1)
                found += moved(inside, start)
        if not found:
            return []
        placeholders = Spans(match.span() for match in PLACEHOLDER.finditer(text))
        return without_overlaps(
            text,
            [
                one
                for one in found
                if not placeholders.hold(one.start, one.end)
                and not placeholders.cut(one.start, one.end)
            ],
        )

    def _in_one_url(self, url: str, query: _Query, plan: Plan, depth: int) -> Iterator[Found]:
        for pair in query.pair.finditer(url):
            rule = self._rule_of(query.view(pair[1]).text) if plan.stems else ""
            view = query.view(pair[2])
            # What is spelled as it is has been searched with all the rest, unless it is JSON.
            if rule or view.text != pair[2] or pair[2][:1] in ("{", "["):
                found = self._in_member(rule, view.text, plan, depth)
                yield from through(view, found, pair.start(2), in_url)
        if "%" in url:
            view = url_view(url)
            shapes = self._in_text(view.text, plan._replace(stems=()), depth)
            yield from through(view, shapes, 0, in_url)

    def _assigned(self, text: str, plan: Plan) -> Iterator[Found]:
        """Find values that are given to a secret's name in text: `DB_PASSWORD=…`."""
        folded = fold(text)
        if not any(stem in folded for stem in plan.stems):
            return
        for match in _ASSIGNED.finditer(text):
            rule = self._rule_of(match["name"].rpartition(".")[2])
            group = match.lastgroup or ""
            if rule and _is_meant(match, group):
                yield from moved(self._named(rule, match[group], plan), match.start(group))


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


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
