"""How much a word tells: document frequencies that ship with the package."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

COMMON_RANKS: Final = 20_000
"""Words of general English up to this rank are ordinary words."""


COMMON: Final = 0.3
"""How much less the most common words of general English tell."""


@dataclass(frozen=True, slots=True)
class Frequencies:
    """Counts by stem: `tools` in how many of `documents` servers, `ranks` the place in English."""

    documents: int
    tools: Mapping[str, int]
    ranks: Mapping[str, int]

    def weight(self, term: str) -> float:
        """Return how much a term tells, from 0 (it is everywhere) to 1 (it is nowhere)."""
        seen = math.log1p(self.tools.get(term, 0)) / math.log1p(self.documents)
        rank = self.ranks.get(term)
        common = 0.0 if rank is None else 1.0 - math.log1p(rank) / math.log1p(COMMON_RANKS)
        return (1.0 - seen) * (1.0 - COMMON * common)

    def is_ordinary(self, term: str) -> bool:
        """Tell whether a term is a word of everyday language or of many servers."""
        return term in self.ranks or self.tools.get(term, 0) > 3


def parse(text: str) -> Frequencies:
    """Read a table: the number of servers, then lines of stem, count and rank (0: none).

    Raises ValueError for text in another form.
    """
    first, *lines = text.splitlines()
    tools: dict[str, int] = {}
    ranks: dict[str, int] = {}
    for line in lines:
        term, count, rank = line.split("\t")
        if count != "0":
            tools[term] = int(count)
        if rank != "0":
            ranks[term] = int(rank)
    return Frequencies(int(first), tools, ranks)
