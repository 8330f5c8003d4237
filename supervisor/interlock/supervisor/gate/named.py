"""Sources that a request calls by name or by a phrase of their card."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from interlock.supervisor.gate.index import MAX_NAME_WORDS, GateIndex
from interlock.supervisor.gate.records import Evidence
from interlock.supervisor.gate.request import Request
from interlock.supervisor.gate.words import english, german

CARD_ENOUGH: Final = 0.4
"""Weight of a card's phrase that is enough alone; "information" on a card is not."""
PHRASE_ENOUGH: Final = 1.4
"""Weight of ordinary words in a row that are a whole name ("Google Maps")."""
SHORTEST: Final = 3
"""Letters of the shortest name that is found anywhere; shorter ones must be used as a name."""
_BEFORE: Final = frozenset(
    "in on with via using from at into mit bei über aus auf per im am".split()
)


@dataclass(slots=True)
class Calls:
    """What a request calls.

    `by_name` and `by_card` hold the sources for which that is enough alone; `cards` by source how
    much the best phrase weighs, enough or not; `words` what was found.
    """

    cards: dict[str, float] = field(default_factory=dict)
    by_name: set[str] = field(default_factory=set)
    by_card: set[str] = field(default_factory=set)
    words: dict[str, list[Evidence]] = field(default_factory=dict)

    def evidence(self, source: str) -> list[Evidence]:
        """Return the names and phrases found for a source."""
        return self.words.get(source, [])


_NOTHING: Final = Calls()
"""What most requests call; nobody changes it."""


def calls(index: GateIndex, request: Request) -> Calls:
    """Return which sources a request calls by name or card."""
    names = spelled(index, request)
    if not names and not index.phrases:
        return _NOTHING
    found = Calls()
    for joined, first, count in names:
        _name(index, request, found, (joined, first, count))
    if index.phrases:
        for key in _phrases(index, request):
            weight = sum(map(index.weight, key.split()))
            for source, phrase in index.phrases[key].items():
                found.cards[source] = max(found.cards.get(source, 0.0), weight)
                found.words.setdefault(source, []).append(Evidence(phrase, "usage_card", weight))
                if weight >= CARD_ENOUGH:
                    found.by_card.add(source)
    return found


def spelled(index: GateIndex, request: Request) -> list[tuple[str, int, int]]:
    """Return the spellings of names in a request: joined spelling, first word, number of words."""
    starts, names, lowered = index.starts, index.names, request.lowered
    found: list[tuple[str, int, int]] = []
    if starts.keys().isdisjoint(lowered):
        return found
    for first, word in enumerate(lowered):
        if word not in starts:
            continue
        joined, count = word, 1
        while joined in starts:
            if joined in names:
                found.append((joined, first, count))
            if count == MAX_NAME_WORDS or first + count >= len(lowered):
                break
            joined += lowered[first + count]
            count += 1
    return found


def _name(index: GateIndex, request: Request, found: Calls, place: tuple[str, int, int]) -> None:
    joined, first, count = place
    written = request.lowered[first : first + count]
    terms = [term for word in written for term in english(word)[:1]]
    weight = sum(map(index.weight, terms))
    ordinary = all(map(index.frequencies.is_ordinary, terms))
    used = count == 1 and used_as_name(request, first)
    spelling = " ".join(request.words[first : first + count])
    for source in index.names[joined]:
        if count > index.entries[source].name_words and ordinary:
            continue
        if (not ordinary and len(joined) >= SHORTEST) or used:
            worth = weight + 1.0
        elif count > 1 and weight >= PHRASE_ENOUGH:
            worth = weight
        else:
            continue
        found.by_name.add(source)
        found.words.setdefault(source, []).append(Evidence(spelling, "name", worth))


def used_as_name(request: Request, first: int) -> bool:
    """Tell whether an ordinary word is used as a name at this place.

    In English that is a capital inside a sentence that is otherwise written small, or after "in",
    "with" and their like; in German, where all nouns have capitals, only the latter.
    """
    word = request.words[first]
    if not first or not word[0].isupper():
        return False
    after = request.lowered[first - 1] in _BEFORE
    if request.german:
        return after
    others = [other for other in request.words[1:] if other is not word]
    small = sum(other[0].islower() for other in others)
    return small * 2 > len(others) or (after and not others)


def _phrases(index: GateIndex, request: Request) -> list[str]:
    found: dict[str, None] = {}
    for pick in (german, english) if request.german else (english,):
        stems = [stem for word in request.lowered for stem in pick(word)[:1]]
        for first, stem in enumerate(stems):
            key = stem
            for last in range(first + 1, first + index.longest_phrase + 1):
                if key in index.phrases:
                    found[key] = None
                if last >= len(stems):
                    break
                key = f"{key} {stems[last]}"
    return list(found)
