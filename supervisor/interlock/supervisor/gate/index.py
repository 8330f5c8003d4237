"""The index over all sources, updated one source at a time."""

from __future__ import annotations

from collections.abc import Iterable
from math import log
from typing import Final, NamedTuple

from interlock.supervisor.gate.entry import Entry, read
from interlock.supervisor.gate.numbers import SHIPPED, Numbers
from interlock.supervisor.gate.records import SourceText, Tables

FEWEST: Final = 10
MOST: Final = 100
"""Fewer or more sources count as so many: the numbers know only installs between."""
MOST_KEPT: Final = 4096
"""Words of requests that are kept looked up."""
MOST_TERMS_KEPT: Final = 40
"""Terms of a word that is kept so."""
MAX_NAME_WORDS: Final = 5
"""Words of a request that may together spell one name."""


Word = tuple[tuple[str, ...], frozenset[str]]
"""The terms of a word, and which of those related to it count for another word."""
Lone = tuple[str, str, float]
"""A source, one of its terms and what the term weighs."""


class Found(NamedTuple):
    """One word of a request in the index.

    `first` tells it from other words; `places` gives by source the term that counts there, with its
    weight; `related` holds the terms that are not the word but stand for the same matter.
    """

    first: str
    weight: float
    places: dict[str, tuple[str, float]]
    related: frozenset[str]


class GateIndex:
    """What `decide` looks words up in. The same sources give the same index in any order."""

    def __init__(self, tables: Tables, numbers: Numbers = SHIPPED) -> None:
        self.numbers = numbers
        self.least = log(numbers.threshold / (1.0 - numbers.threshold)) - 1e-9
        """A logit below this is surely below the threshold."""
        self.tables = tables
        self.frequencies = tables.frequencies
        self.vectors = tables.vectors
        self.entries: dict[str, Entry] = {}
        self.postings: dict[str, dict[str, int]] = {}
        """Term to the sources that have it, with the best place."""
        self.names: dict[str, set[str]] = {}
        """Joined spelling to sources."""
        self.starts: dict[str, int] = {}
        """Beginnings of joined spellings, with how many spellings begin so."""
        self.phrases: dict[str, dict[str, str]] = {}
        """Key of a card's phrase to sources, with the phrase as it was written."""
        self.found: dict[Word, Found] = {}
        """Words that requests had, looked up (`score.look_up`)."""
        self.lone: dict[Lone, float] = {}
        """What one word does for a source that has no other (`score.alone`)."""
        self.log_installed = log(FEWEST)
        self._weights: dict[str, float] = {}
        self.longest_phrase = 1

    @classmethod
    def build(cls, sources: Iterable[SourceText], tables: Tables) -> GateIndex:
        """Return an index of these sources; of two with one id the last counts."""
        index = cls(tables)
        for text in sources:
            index.replace(text)
        return index

    def replace(self, text: SourceText) -> None:
        """Add a source, or put its new text in place of the old."""
        self.put(read(text, self.tables))

    def put(self, entry: Entry) -> None:
        """Add a source that is read already, or put it in place of the old."""
        source = entry.source
        self.remove(source)
        self.entries[source] = entry
        self._changed()
        for term, place in entry.terms.items():
            self.postings.setdefault(term, {})[source] = place
        for name in entry.names:
            self.names.setdefault(name, set()).add(source)
            for end in range(1, len(name) + 1):
                self.starts[name[:end]] = self.starts.get(name[:end], 0) + 1
        for key, phrase in entry.phrases:
            self.phrases.setdefault(key, {})[source] = phrase
            self.longest_phrase = max(self.longest_phrase, key.count(" ") + 1)

    def remove(self, source: str) -> None:
        """Forget a source; an unknown one is no error."""
        entry = self.entries.pop(source, None)
        if entry is None:
            return
        self._changed()
        for term in entry.terms:
            _drop(self.postings, term, source)
        for name in entry.names:
            self.names[name].discard(source)
            if not self.names[name]:
                del self.names[name]
            for end in range(1, len(name) + 1):
                self.starts[name[:end]] -= 1
                if not self.starts[name[:end]]:
                    del self.starts[name[:end]]
        for key, _ in entry.phrases:
            self.phrases[key].pop(source)
            if not self.phrases[key]:
                del self.phrases[key]

    def _changed(self) -> None:
        self.found.clear()
        self.lone.clear()
        self.log_installed = log(min(max(len(self.entries), FEWEST), MOST))

    def keep(self, word: Word, found: Found) -> None:
        """Keep what was looked up until the index changes; of very many words none.

        A text without spaces between words is looked up anew: it can be of hundreds of terms.
        """
        if len(word[0]) > MOST_TERMS_KEPT:
            return
        if len(self.found) >= MOST_KEPT:
            self.found.clear()
        self.found[word] = found

    def keep_lone(self, place: Lone, value: float) -> None:
        """Keep what one word does for a source in the same way."""
        if len(self.lone) >= MOST_KEPT:
            self.lone.clear()
        self.lone[place] = value

    def weight(self, term: str) -> float:
        """Return how much a term tells, 0 to 1 (kept, since it does not depend on the sources)."""
        found = self._weights.get(term)
        if found is None:
            if len(self._weights) > 1 << 16:
                self._weights.clear()
            found = self._weights[term] = self.frequencies.weight(term)
        return found

    def knows(self, term: str) -> bool:
        """Tell whether a term is in a source or in the table."""
        return term in self.postings or term in self.frequencies.tools


def _drop(postings: dict[str, dict[str, int]], term: str, source: str) -> None:
    places = postings[term]
    places.pop(source)
    if not places:
        del postings[term]
