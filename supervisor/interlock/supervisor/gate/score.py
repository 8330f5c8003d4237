"""What speaks for each source that a request touches, as numbers."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import nlargest
from math import exp, log1p
from operator import mul
from typing import Final, NamedTuple

from interlock.supervisor.gate.entry import Entry
from interlock.supervisor.gate.index import Found, GateIndex
from interlock.supervisor.gate.named import Calls
from interlock.supervisor.gate.numbers import FARTHEST, RELATED
from interlock.supervisor.gate.related import relatives
from interlock.supervisor.gate.request import Request
from interlock.supervisor.gate.vectors import Direction, near

FLOOR: Final = 0.07
"""Words that weigh less are no evidence."""
LEAST: Final = 0.25
"""Sources whose words weigh less together are not looked at."""
PART: Final = 0.2
"""Sources whose words weigh less than this part of the best one's are not looked at either."""
MOST_CANDIDATES: Final = 8
"""Sources that are looked at closely: those whose words weigh most."""
FEW: Final = 40
"""So many sources are sorted without ado."""
NOBODY: Final = -8.0
"""How little speaks for the next source where there is none."""


_NO_TERMS: Final[frozenset[str]] = frozenset()
_NOWHERE: Final[tuple[frozenset[int], tuple[int, ...]]] = (frozenset(), ())
Hit = tuple[int, str, float]
"""A word of the request that a source has: which word, as which term, and its weight."""


class Gathered(NamedTuple):
    """The different words of a request with where they stand, what they weigh by source and all."""

    words: list[tuple[int, Found]]
    sums: dict[str, float]
    total: float
    direction: Direction
    """Where the request points."""

    def hits(self, source: str) -> list[Hit]:
        """Return the words that a source has, in the request's order."""
        return [(at, *place) for at, found in self.words if (place := found.places.get(source))]


def gather(index: GateIndex, request: Request) -> Gathered:
    """Return where the words of a request stand, each word once."""
    direct: set[str] = set()
    for _, terms in request.terms:
        direct.update(terms)
    seen: set[str] = set()
    words: list[tuple[int, Found]] = []
    sums: dict[str, float] = {}
    total = 0.0
    for at, (_, terms) in enumerate(request.terms):
        found = index.found.get((terms, _NO_TERMS)) or look_up(index, terms, _NO_TERMS)
        if found.first in seen:
            continue
        seen.add(found.first)
        if not found.related.isdisjoint(direct):
            said = found.related & direct
            found = index.found.get((terms, said)) or look_up(index, terms, said)
        total += found.weight
        words.append((at, found))
        for source, place in found.places.items():
            sums[source] = sums.get(source, 0.0) + place[1]
    return Gathered(words, sums, total or 1e-9, index.vectors.direction(request.meant))


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


def features(
    index: GateIndex, source: str, hits: list[Hit], gathered: Gathered, card: float
) -> tuple[float, ...]:
    """Return what speaks for one source by itself, in the order of `numbers.FEATURES`."""
    entry = index.entries[source]
    if len(hits) == 1:
        return _one_word(index, entry, hits[0], gathered, card)
    tools, name_terms = entry.tools, entry.name_terms
    by_name: dict[int, float] = {}
    have = most = own = pair = spread = last_weight = 0.0
    last_at = -2
    before = _NOWHERE[0]
    for at, term, weight in hits:
        have += weight
        if weight > most:
            most = weight
        if term in name_terms:
            own += weight
        every, named = tools.get(term, _NOWHERE)
        spread += weight * len(every)
        for number in named:
            by_name[number] = by_name.get(number, 0.0) + weight
        if last_at + 1 == at and before and not before.isdisjoint(every):
            lesser = last_weight if last_weight < weight else weight
            if lesser > pair:
                pair = lesser
        before, last_at, last_weight = every, at, weight
    best_name = share = 0.0
    for number, got in by_name.items():
        whole = got / (entry.tool_weights[number] or 1.0) * (got if got < 1.0 else 1.0)
        if whole > share:
            share = whole
        if got > best_name:
            best_name = got
    return (
        1.0,
        most,
        have / gathered.total,
        log1p(best_name),
        share,
        own / (entry.name_weight or 1.0) * (own if own < 1.0 else 1.0),
        pair,
        entry.log_size,
        card if card < 1.5 else 1.5,
        index.log_installed,
        spread / (len(entry.tool_names) or 1),
        near(gathered.direction, entry.direction),
    )


def _one_word(
    index: GateIndex, entry: Entry, hit: Hit, gathered: Gathered, card: float
) -> tuple[float, ...]:
    """Return the same for a source that has one word of the request, as most have."""
    _, term, weight = hit
    once = weight if weight < 1.0 else 1.0
    lightest = entry.lightest.get(term)
    in_name = lightest is not None
    return (
        1.0,
        weight,
        weight / gathered.total,
        log1p(weight) if in_name else 0.0,
        weight / (lightest or 1.0) * once if in_name else 0.0,
        weight / (entry.name_weight or 1.0) * once if term in entry.name_terms else 0.0,
        0.0,
        entry.log_size,
        card if card < 1.5 else 1.5,
        index.log_installed,
        weight * len(entry.tools.get(term, _NOWHERE)[0]) / (len(entry.tool_names) or 1),
        near(gathered.direction, entry.direction),
    )


def alone(
    index: GateIndex, gathered: Gathered, hits: Mapping[str, list[Hit]], calls: Calls
) -> list[tuple[float, str]]:
    """Return what each source has alone, the best first."""
    numbers, cards = index.numbers.alone, calls.cards
    found = []
    for source, words in hits.items():
        values = features(index, source, words, gathered, cards.get(source, 0.0))
        found.append((sum(map(mul, numbers, values)), source))
    found.sort(key=lambda item: (-item[0], item[1]))
    return found


def worth_a_look(gathered: Gathered, calls: Calls) -> dict[str, list[Hit]]:
    """Return the sources whose words weigh most, and those of a card, with their words."""
    sums = gathered.sums
    most = nlargest(MOST_CANDIDATES, sums.values()) if len(sums) > FEW else ()
    least = max(LEAST, PART * (most[0] if most else max(sums.values(), default=0.0)))
    if most:
        least = max(least, most[-1])
    ranked = sorted([(-have, source) for source, have in sums.items() if have >= least])
    found = {source: gathered.hits(source) for _, source in ranked[:MOST_CANDIDATES]}
    for source in sorted(calls.cards):
        if source not in found:
            found[source] = gathered.hits(source)
    return found


def beside(
    hits: Mapping[str, list[Hit]], ranked: list[tuple[float, str]]
) -> list[tuple[str, tuple[float, ...]]]:
    """Return for each source, the best first, how it stands beside the others."""
    if not ranked:
        return []
    best, leader = ranked[0]
    following = ranked[1][0] if len(ranked) > 1 else NOBODY
    found: list[tuple[str, tuple[float, ...]]] = [
        (leader, (1.0, best, min(best - following, FARTHEST)))
    ]
    taken = {at for at, _, _ in hits[leader]}
    for have, source in ranked[1:]:
        whole = fresh = 0.0
        for at, _, weight in hits[source]:
            whole += weight
            if at not in taken:
                fresh += weight
        behind = min(best - have, FARTHEST)
        found.append((source, (1.0, have, behind, fresh / (whole or 1.0))))
    return found


def points(index: GateIndex, gathered: Gathered, calls: Calls) -> dict[str, float]:
    """Return by source how likely it is that the request is about it, between 0 and 1."""
    hits = worth_a_look(gathered, calls)
    found: dict[str, float] = {}
    for source, values in beside(hits, alone(index, gathered, hits, calls)):
        numbers = index.numbers.others if found else index.numbers.best
        logit = sum(map(mul, numbers, values))
        found[source] = 1.0 / (1.0 + exp(-max(-30.0, min(30.0, logit))))
    return found
