"""What speaks for each source that a request touches, as numbers."""

from __future__ import annotations

from collections.abc import Mapping
from math import dist, exp, inf, log1p
from typing import Final

from interlock.supervisor.gate.entry import Entry
from interlock.supervisor.gate.gather import Gathered, Heavy, Hit
from interlock.supervisor.gate.generic import generic
from interlock.supervisor.gate.index import GateIndex
from interlock.supervisor.gate.named import Calls
from interlock.supervisor.gate.numbers import FARTHEST
from interlock.supervisor.gate.vectors import near

LEAST: Final = 0.25
"""Sources whose words weigh less together are not looked at."""
PART: Final = 0.2
"""Sources whose words weigh less than this part of the best one's are not looked at either."""
MOST_CANDIDATES: Final = 8
"""Sources that are looked at closely: those whose words weigh most."""
NOBODY: Final = -8.0
"""How little speaks for the next source where there is none."""
MOST_CARD: Final = 1.5
"""A card's phrase that weighs more counts as this."""
ROUNDING: Final = 1e-6
"""More than sums of a few numbers differ by the order in which they are added."""
_NOWHERE: Final[tuple[frozenset[int], tuple[int, ...]]] = (frozenset(), ())


def of_words(entry: Entry, hits: list[Hit]) -> tuple[float, ...]:
    """Return what the words of a source say for it, whatever else the request says.

    These are the features "most", "tool_name", "tool_share", "server_name", "pair" and "spread".
    """
    tools, name_terms = entry.tools, entry.name_terms
    by_name: dict[int, float] = {}
    most = own = pair = spread = last_weight = 0.0
    last_at = -2
    before = _NOWHERE[0]
    for at, term, weight in hits:
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
        most * most,
        log1p(best_name),
        share,
        own / (entry.name_weight or 1.0) * (own if own < 1.0 else 1.0),
        pair,
        spread / (len(entry.tool_names) or 1),
    )


def features(
    index: GateIndex, source: str, hits: list[Hit], gathered: Gathered, card: float
) -> tuple[float, ...]:
    """Return what speaks for one source by itself, in the order of `numbers.FEATURES`."""
    entry = index.entries[source]
    most, tool_name, tool_share, server_name, pair, spread = of_words(entry, hits)
    return (
        1.0,
        most,
        sum([weight for _, _, weight in hits]) / gathered.total,
        tool_name,
        tool_share,
        server_name,
        pair,
        entry.log_size,
        min(card, MOST_CARD),
        index.log_installed,
        spread,
        _squared(near(gathered.pointing, entry.direction)),
        missed(source, gathered.heavy),
        missed(source, gathered.written_big),
        log1p(len(gathered.words) - len(hits)),
    )


def missed(source: str, words: list[Heavy]) -> float:
    """Return what the heaviest word weighs that a source does not have; 0 if it has all.

    `words` stand with the heaviest first.
    """
    for weight, places in words:
        if source not in places:
            return weight
    return 0.0


def _squared(nearness: float) -> float:
    return nearness * nearness if nearness > 0.0 else 0.0


def alone(
    index: GateIndex, gathered: Gathered, hits: Mapping[str, list[Hit]], calls: Calls
) -> list[tuple[float, str]]:
    """Return what each source has alone, the best first.

    That is the sum of its features times their numbers. Most sources have one word of a request;
    what it does for them is kept, since it is the same in every request.
    """
    bias, _, covered, _, _, _, _, _, card, installed, _, nearness, missing, big, left = (
        index.numbers.alone
    )
    same = bias + installed * index.log_installed
    covered /= gathered.total
    entries, lone, cards = index.entries, index.lone, calls.cards
    numbers, length = gathered.pointing
    sides, twice = length * length + 1.0, 2.0 * length
    heavy, written_big, number = gathered.heavy, gathered.written_big, len(gathered.words)
    found = []
    for source, words in hits.items():
        entry = entries[source]
        if len(words) == 1:
            _, term, have = words[0]
            value = lone.get((source, term, have))
            if value is None:
                value = _worth(index, entry, words)
                index.keep_lone((source, term, have), value)
        else:
            have = sum([weight for _, _, weight in words])
            value = _worth(index, entry, words)
        # `missed` and `near` are written out here: to call them takes longer than what they do.
        lost = 0.0
        for weight, places in heavy:
            if source not in places:
                lost = weight
                break
        value += same + covered * have + missing * lost + left * log1p(number - len(words))
        for weight, places in written_big:
            if source not in places:
                value += big * weight
                break
        if numbers and entry.direction:
            far = dist(numbers, entry.direction)
            nearest = (sides - far * far) / twice
            if nearest > 0.0:
                value += nearness * (nearest * nearest)
        if source in cards:
            value += card * min(cards[source], MOST_CARD)
        found.append((-value, source))
    found.sort()
    return [(-value, source) for value, source in found]


def _worth(index: GateIndex, entry: Entry, hits: list[Hit]) -> float:
    """Return what a source's words and size bring, times their numbers."""
    _, a, _, b, c, d, e, size, _, _, f, *_ = index.numbers.alone
    most, tool_name, tool_share, server_name, pair, spread = of_words(entry, hits)
    return (
        a * most
        + b * tool_name
        + c * tool_share
        + d * server_name
        + e * pair
        + f * spread
        + size * entry.log_size
    )


def worth_a_look(gathered: Gathered, calls: Calls) -> dict[str, list[Hit]]:
    """Return the sources whose words weigh most, and those of a card, with their words."""
    sums = gathered.sums
    least = max(LEAST, PART * max(sums.values(), default=0.0))
    if len(sums) > MOST_CANDIDATES:
        least = max(least, sorted(sums.values())[-MOST_CANDIDATES])
    ranked = [source for source, have in sums.items() if have >= least]
    if len(ranked) > MOST_CANDIDATES:
        ranked.sort(key=lambda source: (-sums[source], source))
        del ranked[MOST_CANDIDATES:]
    found: dict[str, list[Hit]] = {source: [] for source in ranked}
    if calls.cards:
        for source in sorted(calls.cards):
            found.setdefault(source, [])
    for at, word in gathered.words:
        places = word.places
        if len(places) < len(found):
            for source, (term, weight) in places.items():
                if source in found:
                    found[source].append((at, term, weight))
        else:
            for source, hits in found.items():
                if source in places:
                    term, weight = places[source]
                    hits.append((at, term, weight))
    return found


def beside(
    hits: Mapping[str, list[Hit]], ranked: list[tuple[float, str]]
) -> list[tuple[str, tuple[float, ...]]]:
    """Return for each source, the best first, how it stands beside the others."""
    if not ranked:
        return []
    best, leader = ranked[0]
    found: list[tuple[str, tuple[float, ...]]] = [(leader, (1.0, best, lead(ranked)))]
    for have, source in ranked[1:]:
        new = share_of_new(hits[leader], hits[source])
        found.append((source, (1.0, have, min(best - have, FARTHEST), new)))
    return found


def lead(ranked: list[tuple[float, str]]) -> float:
    """Return how far the next source is behind the best."""
    following = ranked[1][0] if len(ranked) > 1 else NOBODY
    return min(ranked[0][0] - following, FARTHEST)


def share_of_new(best: list[Hit], other: list[Hit]) -> float:
    """Return which share of the other's words, by weight, the best source does not have."""
    taken = {at for at, _, _ in best}
    whole = fresh = 0.0
    for at, _, weight in other:
        whole += weight
        if at not in taken:
            fresh += weight
    return fresh / (whole or 1.0)


def worth_the_name(
    index: GateIndex, gathered: Gathered, hits: dict[str, list[Hit]]
) -> dict[str, list[Hit]]:
    """Leave out the sources that have nothing but words like those of "write a report".

    A model does that itself, whatever the report is about; only a source that has one of the words
    in its own name is meant.
    """
    vague = generic(gathered.words)
    if not vague:
        return hits
    entries = index.entries
    return {
        source: words
        for source, words in hits.items()
        if any(at not in vague or term in entries[source].name_terms for at, term, _ in words)
    }


def points(
    index: GateIndex, gathered: Gathered, calls: Calls, least: float = -inf
) -> dict[str, float]:
    """Return by source how likely it is that the request is about it, between 0 and 1.

    Sources whose logit is surely below `least` may be left out.
    """
    hits = worth_the_name(index, gathered, worth_a_look(gathered, calls))
    ranked = alone(index, gathered, hits, calls)
    if not ranked:
        return {}
    best, leader = ranked[0]
    ahead = lead(ranked)
    one, value, further = index.numbers.best
    found = {leader: _likelihood(one + value * best + further * ahead)}
    one, value, behind, fresh = index.numbers.others
    most_fresh = max(fresh, 0.0) + ROUNDING
    for have, source in ranked[1:]:
        after = min(best - have, FARTHEST)
        logit = one + value * have + behind * after
        if logit + most_fresh >= least:
            logit += fresh * share_of_new(hits[leader], hits[source])
            found[source] = _likelihood(logit)
    return found


def _likelihood(logit: float) -> float:
    logit = 30.0 if logit > 30.0 else -30.0 if logit < -30.0 else logit
    return 1.0 / (1.0 + exp(-logit))
