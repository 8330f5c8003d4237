"""Searches capabilities by words: what a model does when its offer lacks a tool; pure."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from interlock.supervisor.catalog.rows import CatalogRow

MAX_QUERY: Final = 500
"""Characters of a query that are looked at."""
MAX_FOUND: Final = 20
"""Capabilities in one answer."""
IN_NAME: Final = 3.0
"""Weight of a word in a capability's name against the same word in its summary."""
BEGINNING: Final = 0.5
"""Weight of a word that only begins like the one asked for."""
SHORTEST_BEGINNING: Final = 4
"""Letters that a word must have for its beginning to count."""
_WORD: Final = re.compile(r"[^\W_]+")
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def find(query: str, rows: Sequence[CatalogRow], limit: int) -> tuple[CatalogRow, ...]:
    """Return the rows that fit a query, best first, at most `limit`; none that does not fit at all.

    A row that the query names exactly comes first. Rare words count more than frequent ones. Equal
    rows stay in the order in which they came.
    """
    limit = max(1, min(limit, MAX_FOUND))
    asked = set(words(query[:MAX_QUERY]))
    exact = {text for text in query[:MAX_QUERY].split() if ":" in text or "__" in text}
    texts = [_texts(row.name, row.summary) for row in rows]
    spread = Counter(word for name, summary in texts for word in name | summary)
    scored = []
    for place, (row, (name, summary)) in enumerate(zip(rows, texts, strict=True)):
        score = math.inf if {row.name, row.wire} & exact else 0.0
        for word in asked:
            rarity = math.log1p(len(rows) / (spread[word] or 1))
            score += rarity * max(IN_NAME * _fits(word, name), _fits(word, summary))
        if score > 0:
            scored.append((-score, place, row))
    return tuple(row for _, _, row in sorted(scored, key=lambda one: one[:2])[:limit])


def words(text: str) -> tuple[str, ...]:
    """Return the words of a text or name in one case, a plain English plural as its singular.

    >>> words("createPullRequests for_repo")
    ('create', 'pull', 'request', 'for', 'repo')
    """
    plain = unicodedata.normalize("NFKC", _HUMP.sub(" ", text)).casefold()
    return tuple(_singular(word) for word in _WORD.findall(plain))


def _singular(word: str) -> str:
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _fits(word: str, among: frozenset[str]) -> float:
    if word in among:
        return 1.0
    if len(word) < SHORTEST_BEGINNING:
        return 0.0
    return BEGINNING if any(one.startswith(word) for one in among) else 0.0


@lru_cache(1 << 14)
def _texts(name: str, summary: str) -> tuple[frozenset[str], frozenset[str]]:
    return frozenset(words(name.partition(":")[2])), frozenset(words(summary))
