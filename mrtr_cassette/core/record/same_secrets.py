"""Which tokens of several recorders stand for the same secret.

Rule: each recorder has a key of its own, so its tokens tell nothing about those of another one. A
retry repeats the arguments of its call, which is the only proof; without it, two tokens stay two
secrets. Two tokens of one recorder never become one.
"""

from __future__ import annotations

from mrtr_cassette.core.record.history import is_journal_token
from mrtr_cassette.core.secrets.placeholders import renumber

_Pair = tuple[tuple[str, str], tuple[str, str]]


class SameSecrets:
    """Tokens that stand for the same secret; each namespace is that of one key."""

    def __init__(self) -> None:
        self._same: dict[tuple[str, str], dict[str, str]] = {}

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
        pairs: list[_Pair] = list(dict.fromkeys(zip(tokens, other_tokens, strict=True)))
        is_one_to_one = len({one for one, _ in pairs}) == len({two for _, two in pairs})
        if is_one_to_one and len(pairs) == len({one for one, _ in pairs}):
            classes = [(self._class(one, namespace), self._class(two, other)) for one, two in pairs]
            if all(_fit(one, two) for one, two in classes):
                for (one, two), (rule_and_token, _) in zip(classes, pairs, strict=True):
                    self._join(rule_and_token[0], one, two)

    def _class(self, rule_and_token: tuple[str, str], namespace: str) -> dict[str, str]:
        return self._same.get(rule_and_token) or {namespace: rule_and_token[1]}

    def _join(self, rule: str, one: dict[str, str], two: dict[str, str]) -> None:
        joined = {**one, **two}
        for token in joined.values():
            self._same[rule, token] = joined

    def token(self, rule: str, token: str) -> str | None:
        """Return the one token of a secret that has several; None for any other."""
        same = self._same.get((rule, token))
        return None if same is None else min(same.values())


def _fit(one: dict[str, str], two: dict[str, str]) -> bool:
    return all(one[namespace] == two[namespace] for namespace in one.keys() & two.keys())


def _tokens_in(text: str) -> tuple[str, list[tuple[str, str]]]:
    """Return a text without its tokens, and these with their rules."""
    tokens: list[tuple[str, str]] = []

    def number(rule: str, token: str) -> int | None:
        if not is_journal_token(token):
            return None
        tokens.append((rule, token))
        return 0

    return renumber(text, number), tokens
