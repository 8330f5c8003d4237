"""What speaks for each source that a request touches, as numbers."""

from __future__ import annotations

from math import exp, log1p
from operator import mul
from typing import Final, NamedTuple

from interlock.supervisor.gate.index import Found, GateIndex
from interlock.supervisor.gate.named import Calls
from interlock.supervisor.gate.numbers import FARTHEST, RELATED
from interlock.supervisor.gate.related import relatives
from interlock.supervisor.gate.request import Request

FLOOR: Final = 0.07
"""Words that weigh less are no evidence."""
LEAST: Final = 0.25
"""Sources whose words weigh less together are not looked at."""
PART: Final = 0.2
"""Sources whose words weigh less than this part of the best one's are not looked at either."""
MOST_CANDIDATES: Final = 8
"""Sources that are looked at closely: those whose words weigh most."""
NOBODY: Final = -8.0
"""How little speaks for the next source where there is none."""


Hit = tuple[int, str, float]
"""A word of the request that a source has: which word, as which term, and its weight."""
Hits = dict[str, list[Hit]]


class Gathered(NamedTuple):
    """The words by source, with the weight of all different words of the request."""

    hits: Hits
    total: float


def gather(index: GateIndex, request: Request) -> Gathered:
    """Return the words that each source has, in the request's order, each once."""
    direct: set[str] = set()
    for _, terms in request.terms:
        direct.update(terms)
    seen: set[str] = set()
    hits: Hits = {}
    total = 0.0
    for at, (_, terms) in enumerate(request.terms):
        found = index.found.get(terms) or look_up(index, terms)
        if found.first in seen:
            continue
        seen.add(found.first)
        total += found.weight
        for term, weight, sources in found.terms:
            _add(hits, sources, (at, term, weight))
        for term, weight, sources in found.related:
            if term not in direct:
                _add(hits, sources, (at, term, weight))
    return Gathered(hits, total or 1e-9)


def look_up(index: GateIndex, terms: tuple[str, ...]) -> Found:
    """Return where the terms of one word stand, and those related to them; kept until a change."""
    postings, weight, table = index.postings, index.weight, relatives()
    known = [term for term in terms if term in postings]
    own = max(map(weight, known or terms[:1]))
    related = {
        other: RELATED * min(weight(other), own)
        for term in terms
        for other in table.get(term, ())
        if other in postings
    }
    found = Found(
        known[0] if known else terms[0],
        own,
        tuple((t, weight(t), tuple(postings[t])) for t in known if weight(t) > FLOOR),
        tuple((t, w, tuple(postings[t])) for t, w in related.items() if w > FLOOR),
    )
    index.found[terms] = found
    return found


def _add(hits: Hits, sources: tuple[str, ...], hit: Hit) -> None:
    """Give a word to the sources that have it; of several terms of one word the best counts."""
    at, _, weight = hit
    for source in sources:
        have = hits.get(source)
        if have is None:
            hits[source] = [hit]
        elif (last := have[-1])[0] != at:
            have.append(hit)
        elif last[2] < weight:
            have[-1] = hit


def features(
    index: GateIndex, source: str, hits: list[Hit], total: float, card: float
) -> tuple[float, ...]:
    """Return what speaks for one source by itself, in the order of `numbers.FEATURES`."""
    entry = index.entries[source]
    tools, name_terms = entry.tools, entry.name_terms
    by_tool: dict[int, float] = {}
    by_name: dict[int, float] = {}
    have = most = own = pair = last_weight = 0.0
    last_at = -2
    before: tuple[tuple[int, bool], ...] = ()
    for at, term, weight in hits:
        have += weight
        if weight > most:
            most = weight
        if term in name_terms:
            own += weight
        places = tools.get(term, ())
        for number, in_name in places:
            by_tool[number] = by_tool.get(number, 0.0) + weight
            if in_name:
                by_name[number] = by_name.get(number, 0.0) + weight
        if last_at + 1 == at and before and places:
            lesser = last_weight if last_weight < weight else weight
            if lesser > pair and _meet(before, places):
                pair = lesser
        before, last_at, last_weight = places, at, weight
    best_name = share = 0.0
    for number, got in by_name.items():
        whole = got / (entry.tool_weights[number] or 1.0) * (got if got < 1.0 else 1.0)
        if whole > share:
            share = whole
        if got > best_name:
            best_name = got
    covered = have / total
    return (
        1.0,
        log1p(have),
        most,
        covered,
        log1p(best_name),
        share,
        own / (entry.name_weight or 1.0) * (own if own < 1.0 else 1.0),
        pair,
        entry.log_size,
        card if card < 1.5 else 1.5,
        covered * covered,
        index.log_installed,
        log1p(max(by_tool.values())) if by_tool else 0.0,
    )


def _meet(some: tuple[tuple[int, bool], ...], others: tuple[tuple[int, bool], ...]) -> bool:
    """Tell whether two words stand in one tool."""
    return not {number for number, _ in some}.isdisjoint([number for number, _ in others])


def alone(index: GateIndex, gathered: Gathered, calls: Calls) -> list[tuple[float, str]]:
    """Return the sources worth a closer look with what each has alone, the best first."""
    found = []
    for source in worth_a_look(gathered, calls):
        values = features(
            index, source, gathered.hits.get(source, []), gathered.total, calls.cards.get(source, 0)
        )
        found.append((sum(map(mul, index.numbers.alone, values)), source))
    found.sort(key=lambda item: (-item[0], item[1]))
    return found


def worth_a_look(gathered: Gathered, calls: Calls) -> list[str]:
    """Return the sources whose words weigh most, with those of a card."""
    sums = []
    most = 0.0
    for source, hits in gathered.hits.items():
        have = 0.0
        for _, _, weight in hits:
            have += weight
        if have > LEAST and have > most * PART:
            sums.append((-have, source))
            if have > most:
                most = have
    sums.sort()
    found = [source for have, source in sums[:MOST_CANDIDATES] if have < -most * PART]
    return found + sorted(calls.cards.keys() - set(found)) if calls.cards else found


def beside(
    gathered: Gathered, ranked: list[tuple[float, str]]
) -> list[tuple[str, tuple[float, ...]]]:
    """Return for each source, the best first, how it stands beside the others."""
    if not ranked:
        return []
    best, leader = ranked[0]
    following = ranked[1][0] if len(ranked) > 1 else NOBODY
    found: list[tuple[str, tuple[float, ...]]] = [
        (leader, (1.0, best, min(best - following, FARTHEST)))
    ]
    taken = {at for at, _, _ in gathered.hits.get(leader, ())}
    for have, source in ranked[1:]:
        whole = fresh = 0.0
        for at, _, weight in gathered.hits.get(source, ()):
            whole += weight
            if at not in taken:
                fresh += weight
        behind = min(best - have, FARTHEST)
        found.append((source, (1.0, have, behind, fresh / (whole or 1.0))))
    return found


def points(index: GateIndex, gathered: Gathered, calls: Calls) -> dict[str, float]:
    """Return by source how likely it is that the request is about it, between 0 and 1."""
    found: dict[str, float] = {}
    for source, values in beside(gathered, alone(index, gathered, calls)):
        numbers = index.numbers.others if found else index.numbers.best
        logit = sum(map(mul, numbers, values))
        found[source] = 1.0 / (1.0 + exp(-max(-30.0, min(30.0, logit))))
    return found
