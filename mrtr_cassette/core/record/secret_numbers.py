"""The numbers of secrets in a cassette.

Rule: the numbers are given as the secrets turn up in the cassette. What an earlier recording
numbered keeps its number.
"""

from __future__ import annotations

from collections import Counter

from mrtr_cassette.core.exchange.recorded import RecordedExchange
from mrtr_cassette.core.record.history import is_journal_token, without_token
from mrtr_cassette.core.record.texts import renumbered
from mrtr_cassette.core.secrets.placeholders import renumber

_LONGEST_NUMBER = 10


class SecretNumbers:
    """The numbers of the secrets of a recording."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}
        self._last: Counter[str] = Counter()

    def add_earlier(self, exchange: RecordedExchange) -> None:
        """Leave out the numbers that an earlier recording gave."""
        renumbered(exchange, self._leave_out)

    def leave_out_those_in(self, file: bytes) -> None:
        """Leave out the numbers that a cassette's file has."""
        renumber(file, self._leave_out)

    def _leave_out(self, rule: str, token: str) -> None:
        if token.isascii() and token.isdigit() and len(token) < _LONGEST_NUMBER:
            self._last[rule] = max(self._last[rule], int(token))

    def are_in(self, exchange: RecordedExchange) -> bool:
        """Tell whether an exchange has secrets that have no number yet."""
        return renumbered(exchange, without_token) is not exchange

    def put_into(self, exchange: RecordedExchange) -> RecordedExchange:
        """Return an exchange with numbers for its secrets; itself where it has none."""
        return renumbered(exchange, self.number)

    def number(self, rule: str, token: str) -> int | None:
        """Return the number of a secret, a new one where it has none; None for other text."""
        if not is_journal_token(token):
            return None
        if (rule, token) not in self._numbers:
            self._last[rule] += 1
            self._numbers[rule, token] = self._last[rule]
        return self._numbers[rule, token]
