"""Which tokens of several recorders stand for the same secret.

Rule: each recorder has a key of its own, so its tokens tell nothing about those of another one. A
retry repeats the arguments of its call, which is the only proof; without it, two tokens stay two
secrets. Two tokens of one recorder never become one.
"""

from __future__ import annotations

from mrtr_cassette.core.record.history import is_journal_token
from mrtr_cassette.core.secrets.placeholders import renumber

_RuleAndToken = tuple[str, str]


class SameSecrets:
    """Tokens that stand for the same secret; each namespace is that of one key."""

    def __init__(self) -> None:
        self._same: dict[_RuleAndToken, dict[str, str]] = {}

    def __bool__(self) -> bool:
        """Tell whether any two tokens are the same secret."""
        return bool(self._same)

    def repeated(self, call: str, namespace: str, retry: str, other: str) -> None:
        """Take note of a call and of a retry that repeats it through another recorder.

        Args:
            call: the text of the call's key.
            namespace: whose tokens it has.
            retry: the same of the retry.
            other: whose tokens that has.
        """
        without, tokens = _tokens_in(call)
        other_without, other_tokens = _tokens_in(retry)
        if without != other_without:
            return
        same: dict[_RuleAndToken, dict[str, str]] = {}
        for one, two in zip(tokens, other_tokens, strict=True):
            known = same.get(one) or self._same.get(one) or {namespace: one[1]}
            others = same.get(two) or self._same.get(two) or {other: two[1]}
            if any(known[name] != others[name] for name in known.keys() & others.keys()):
                return
            joined = {**known, **others}
            same.update({(one[0], token): joined for token in joined.values()})
        self._same |= same

    def token(self, rule: str, token: str) -> str | None:
        """Return the one token of a secret that has several; None for any other."""
        same = self._same.get((rule, token))
        return None if same is None else min(same.values())


def _tokens_in(text: str) -> tuple[str, list[_RuleAndToken]]:
    """Return a text without its tokens, and these with their rules."""
    tokens: list[_RuleAndToken] = []

    def number(rule: str, token: str) -> int | None:
        if not is_journal_token(token):
            return None
        tokens.append((rule, token))
        return 0

    return renumber(text, number), tokens
