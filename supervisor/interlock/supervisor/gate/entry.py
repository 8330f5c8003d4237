"""One source's text, read once: its terms, its tools, its name and its card."""

from __future__ import annotations

from dataclasses import dataclass
from math import log1p
from typing import Final

from interlock.supervisor.gate.boilerplate import is_admin, strip
from interlock.supervisor.gate.frequencies import Frequencies
from interlock.supervisor.gate.records import SourceText, Tables
from interlock.supervisor.gate.vectors import Direction
from interlock.supervisor.gate.words import english, german, humps, is_german, parts, tokens

GENERIC: Final = frozenset(
    "mcp server api tool tools plugin service app client cli the v1 v2 v3 official".split()
)
"""Words that names of servers have whatever they are about."""
SERVER_NAME: Final = 3
TOOL_NAME: Final = 2
DESCRIPTION: Final = 1
_NONE: Final[frozenset[str]] = frozenset()
MAX_TOOLS: Final = 400
"""Tools of one source that are read."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What the gate keeps of one source.

    `terms` gives the best place of each term, `tools` by term the numbers of the tools with it
    and of those with it in their names. `tool_names` holds each tool's name as terms.
    """

    source: str
    terms: dict[str, int]
    tools: dict[str, tuple[frozenset[int], tuple[int, ...]]]
    tool_names: tuple[frozenset[str], ...]
    tool_weights: tuple[float, ...]
    """What each tool's name weighs as a whole."""
    lightest: dict[str, float]
    """By term the least that a tool's name weighs which has it."""
    name_terms: frozenset[str]
    name_weight: float
    names: tuple[str, ...]
    """Spellings of the name: lower case, without separators."""
    name_words: int
    """Words of the name, those left out that all servers have."""
    log_size: float
    """Logarithm of the number of terms: who says much matches much by chance."""
    direction: Direction
    """Where all of its text points."""
    phrases: tuple[tuple[str, str], ...]
    """Keys of the card's phrases (`phrase_keys`) with the phrases as they were written."""


def _stems(words: list[str], in_german: bool = False) -> list[str]:
    pick = german if in_german else english
    return [term for word in words for term in pick(word)]


def _described(text: str) -> list[str]:
    """Return the terms of a description; each line may be in another language."""
    found: list[str] = []
    for line in strip(text).splitlines():
        written = tokens(line)
        lowered = [token.lower() for token in written]
        inner = [word for token in written for word in humps(token)]
        found += _stems(lowered + inner, is_german(lowered))
    return found


def read(text: SourceText, tables: Tables) -> Entry:
    """Return the entry of a source; the same text always gives the same entry."""
    frequencies = tables.frequencies
    own = parts(text.name)
    base = [word for word in own if word not in GENERIC] or own
    skipped = frozenset(_stems(base)) if _is_mere_name(text, base, frequencies) else _NONE
    tools = _Tools()
    for name, description in dict.fromkeys(text.tools[:MAX_TOOLS]):
        tools.add(parts(name), description, skipped)
    about = [term for term in _described(text.description) if term not in skipped]
    terms = dict.fromkeys(about, DESCRIPTION)
    for term, places in tools.places.items():
        terms[term] = TOOL_NAME if any(places.values()) else DESCRIPTION
    name_terms = frozenset(_stems(base)) - skipped
    terms.update(dict.fromkeys(sorted(name_terms), SERVER_NAME))
    phrases: dict[str, str] = {}
    for phrase in text.phrases():
        for key in phrase_keys(phrase):
            phrases.setdefault(key, phrase)
            for term in key.split():
                terms[term] = max(terms.get(term, 0), TOOL_NAME)
    weights = tuple(sum(map(frequencies.weight, sorted(name))) for name in tools.names)
    return Entry(
        text.source,
        terms,
        tools.numbers(),
        tuple(tools.names),
        weights,
        tools.lightest(weights),
        name_terms,
        sum(map(frequencies.weight, sorted(name_terms))),
        tuple(dict.fromkeys(name for name in ("".join(own), "".join(base)) if name)),
        len(base),
        log1p(len(terms)),
        tables.vectors.direction([*_stems(base), *about, *tools.said]),
        tuple(phrases.items()),
    )


class _Tools:
    """The tools of one source while they are read."""

    def __init__(self) -> None:
        self.places: dict[str, dict[int, bool]] = {}
        self.names: list[frozenset[str]] = []
        self.said: list[str] = []
        """All terms, each as often as it is said."""

    def add(self, words: list[str], description: str, skipped: frozenset[str]) -> None:
        """Read one tool, if it is about more than its server's health."""
        if is_admin(words):
            return
        number = len(self.names)
        named = _stems([word for word in words if word not in GENERIC])
        name = frozenset(named) - skipped
        self.names.append(name)
        described = _described(description)
        self.said += named + described
        for term in described:
            if term not in skipped:
                self.places.setdefault(term, {}).setdefault(number, False)
        for term in name:
            self.places.setdefault(term, {})[number] = True

    def numbers(self) -> dict[str, tuple[frozenset[int], tuple[int, ...]]]:
        """Return by term the tools that have it, and those that have it in their names."""
        return {
            term: (frozenset(places), tuple(number for number in sorted(places) if places[number]))
            for term, places in self.places.items()
        }

    def lightest(self, weights: tuple[float, ...]) -> dict[str, float]:
        """Return by term the least weight of a tool's name that has it."""
        found: dict[str, float] = {}
        for name, weight in zip(self.names, weights, strict=True):
            for term in name:
                found[term] = min(weight, found.get(term, weight))
        return found


def _is_mere_name(text: SourceText, base: list[str], frequencies: Frequencies) -> bool:
    """Tell whether a name is one ordinary word that its server's text uses only as a name.

    Then the word tells nothing of what the server is about: a server "linear" is not about linear
    equations, a server "weather" is about the weather if its text speaks of it.
    """
    if len(base) != 1:
        return False
    terms = english(base[0])
    if not terms or not frequencies.is_ordinary(terms[0]):
        return False
    if any(terms[0] in _stems(parts(name)[1:]) for name, _ in text.tools):
        return False
    said = " ".join([text.description, *(description for _, description in text.tools)])
    return not any(
        english(word.lower())[:1] == terms[:1] and (word[0].islower() or word.lower() != base[0])
        for word in tokens(said)
    )


def phrase_keys(phrase: str) -> tuple[str, ...]:
    """Return how a phrase of a card is looked up: as English stems and as German ones.

    >>> phrase_keys("open issues")
    ('open issu', 'open issus')
    """
    words = tokens(phrase.lower())
    keys = (" ".join(t for word in words for t in pick(word)[:1]) for pick in (english, german))
    return tuple(dict.fromkeys(key for key in keys if key))
