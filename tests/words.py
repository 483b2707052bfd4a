"""Count the habits of speech that make README and docs hard to read; `python tests/words.py` prints them.

Code, addresses and the figures of a table are no prose and are left out.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

HABITS = {
    "what": r"\bwhat\b",
    "that of": r"\b(?:that|those) of\b|\bof (?:what|which)\b",
    "each, one, nobody": r"\b(?:each|ones?|nobody)\b",
}
"""A habit, and the words that show it."""

LONGEST_SENTENCE = 30

_LEFT_OUT = [
    (re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL), ""),
    (re.compile(r"`[^`]*`"), "CODE"),
    (re.compile(r"\]\([^)]*\)"), "]"),
]
_SENTENCE_END = re.compile(r"(?<=[.?!:])[)*\"]*\s+|\n+|\|")


def prose(page: str) -> str:
    """Return the text of a page without blocks of code, with a word in place of code in a line."""
    for pattern, kept in _LEFT_OUT:
        page = pattern.sub(kept, page)

    return page


def count_habits(page: str) -> dict[str, int]:
    """Count the words of a page's prose, and in it every habit."""
    text = prose(page)
    # A bar is between two cells.
    counts = {"words": len(text.replace("|", " ").split())}
    for habit, pattern in HABITS.items():
        counts[habit] = len(re.findall(pattern, text, re.IGNORECASE))

    return counts


def long_sentences(page: str) -> list[str]:
    """Return the sentences of a page that have too many words."""
    sentences = _SENTENCE_END.split(prose(page))
    return [
        sentence for sentence in sentences if len(sentence.split()) > LONGEST_SENTENCE
    ]


def habits_per_thousand_words() -> dict[str, float]:
    """Return how often a thousand words of README and docs show every habit."""
    counts: Counter[str] = Counter()
    for page in PAGES:
        counts.update(count_habits(page.read_text("utf-8")))

    return {habit: counts[habit] * 1_000 / counts["words"] for habit in HABITS}


def main() -> None:
    """Print the figures of every page, and those of all pages."""
    columns = ["all words", "words", *HABITS, "long sentences"]
    print(f"{'page':24}", *(f"{column:>18}" for column in columns))
    texts = {page.name: page.read_text("utf-8") for page in PAGES}
    for name, text in (texts | {"all": "\n".join(texts.values())}).items():
        counts = count_habits(text)
        figures = [len(text.split()), counts["words"]]
        figures += [counts[habit] for habit in HABITS]
        figures.append(len(long_sentences(text)))
        print(f"{name:24}", *(f"{figure:18,}" for figure in figures))

    for habit, figure in habits_per_thousand_words().items():
        print(f"{habit}: {figure:.1f} in 1,000 words")


if __name__ == "__main__":
    main()
