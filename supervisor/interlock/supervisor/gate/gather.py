"""Which sources have the words of a request, and how much those weigh."""

from __future__ import annotations

from operator import itemgetter
from typing import Final, NamedTuple

from interlock.supervisor.gate.index import Found, GateIndex
from interlock.supervisor.gate.numbers import RELATED
from interlock.supervisor.gate.related import relatives
from interlock.supervisor.gate.request import Request
from interlock.supervisor.gate.vectors import Pointing

FLOOR: Final = 0.07
"""Words that weigh less are no evidence."""
_NO_TERMS: Final[frozenset[str]] = frozenset()
Hit = tuple[int, str, float]
"""A word of the request that a source has: which word, as which term, and its weight."""


Heavy = tuple[float, dict[str, tuple[str, float]]]
"""What a word of the request weighs, and by source where it stands."""
_FIRST: Final = itemgetter(0)


class Gathered(NamedTuple):
    """The different words of a request with where they stand, what they weigh by source and all."""

    words: list[tuple[int, Found]]
    sums: dict[str, float]
    total: float
    pointing: Pointing
    """Where the request points."""
    heavy: list[Heavy]
    """The words, the heaviest first."""
    written_big: list[Heavy]
    """Those of them with a capital that is not the first letter of the request."""

    def hits(self, source: str) -> list[Hit]:
        """Return the words that a source has, in the request's order."""
        return [(at, *place) for at, found in self.words if (place := found.places.get(source))]


def gather(index: GateIndex, request: Request) -> Gathered:
    """Return where the words of a request stand, each word once."""
    direct: set[str] = set()
    for _, terms in request.terms:
        direct.update(terms)
    kept = index.found
    seen: set[str] = set()
    words: list[tuple[int, Found]] = []
    heavy: list[Heavy] = []
    big: list[Heavy] = []
    sums: dict[str, float] = {}
    total = 0.0
    for at, (word, terms) in enumerate(request.terms):
        found = kept.get((terms, _NO_TERMS)) or look_up(index, terms, _NO_TERMS)
        first, own, places, related = found
        if first in seen:
            continue
        seen.add(first)
        if not related.isdisjoint(direct):
            said = related & direct
            found = kept.get((terms, said)) or look_up(index, terms, said)
            _, own, places, _ = found
        total += own
        words.append((at, found))
        heavy.append((own, places))
        if word[0].isupper() and (at or word != request.words[0]):
            big.append((own, places))
        for source, (_, weight) in places.items():
            sums[source] = sums.get(source, 0.0) + weight
    heavy.sort(key=_FIRST, reverse=True)
    if len(big) > 1:
        big.sort(key=_FIRST, reverse=True)
    pointing = index.vectors.pointing(request.meant)
    return Gathered(words, sums, total or 1e-9, pointing, heavy, big)


def look_up(index: GateIndex, terms: tuple[str, ...], said: frozenset[str]) -> Found:
    """Return where one word stands: by source its best term, or one related to it; this is kept.

    Related terms that are said themselves do not count twice.
    """
    postings, weight, table = index.postings, index.weight, relatives()
    known = [term for term in terms if term in postings]
    own = max(map(weight, known or terms[:1]))
    related = [
        other
        for term in terms
        for other in table.get(term, ())
        if other in postings and other not in terms and other not in said
    ]
    weights = [(term, weight(term)) for term in known]
    weights += [(term, RELATED * min(weight(term), own)) for term in related]
    places: dict[str, tuple[str, float]] = {}
    for term, value in weights:
        if value > FLOOR:
            for source in postings[term]:
                if source not in places or places[source][1] < value:
                    places[source] = (term, value)
    found = Found(known[0] if known else terms[0], own, places, frozenset(related))
    index.keep((terms, said), found)
    return found
