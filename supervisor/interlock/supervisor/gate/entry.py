"""One source's text, read once: its terms, its tools, its name and its card."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log1p
from typing import Final

from interlock.supervisor.gate.boilerplate import is_admin, strip
from interlock.supervisor.gate.records import SourceText
from interlock.supervisor.gate.words import english, german, humps, is_german, parts, tokens

GENERIC: Final = frozenset(
    "mcp server api tool tools plugin service app client cli the v1 v2 v3 official".split()
)
"""Words that names of servers have whatever they are about."""
SERVER_NAME: Final = 3
TOOL_NAME: Final = 2
DESCRIPTION: Final = 1
MAX_TOOLS: Final = 400
"""Tools of one source that are read."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What the gate keeps of one source.

    `terms` gives the best place of each term, `tools` the places in each tool by term: the number
    of the tool, and whether the term is in its name. `tool_names` holds each tool's name as terms.
    """

    source: str
    terms: dict[str, int]
    tools: dict[str, tuple[tuple[int, bool], ...]]
    tool_names: tuple[frozenset[str], ...]
    tool_weights: tuple[float, ...]
    """What each tool's name weighs as a whole."""
    name_terms: frozenset[str]
    name_weight: float
    names: tuple[str, ...]
    """Spellings of the name: lower case, without separators."""
    name_words: int
    """Words of the name, those left out that all servers have."""
    log_size: float
    """Logarithm of the number of terms: who says much matches much by chance."""
    phrases: tuple[tuple[str, str], ...]
    """Keys of the card's phrases (`phrase_keys`) with the phrases as they were written."""


def _stems(words: list[str], in_german: bool) -> list[str]:
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


def read(text: SourceText, weight: Callable[[str], float]) -> Entry:
    """Return the entry of a source; the same text always gives the same entry.

    `weight` tells how much a term tells (`Frequencies.weight`).
    """
    terms: dict[str, int] = {}
    tools: dict[str, dict[int, bool]] = {}
    tool_names: list[frozenset[str]] = []
    own = parts(text.name)
    base = [word for word in own if word not in GENERIC] or own
    seen: set[tuple[str, str]] = set()
    for name, description in text.tools[:MAX_TOOLS]:
        words = parts(name)
        if is_admin(words) or (name, description) in seen:
            continue
        seen.add((name, description))
        number = len(tool_names)
        in_name = frozenset(_stems([word for word in words if word not in GENERIC], False))
        tool_names.append(in_name)
        for term in _described(description):
            terms.setdefault(term, DESCRIPTION)
            tools.setdefault(term, {}).setdefault(number, False)
        for term in in_name:
            terms[term] = TOOL_NAME
            tools.setdefault(term, {})[number] = True
    for term in _described(text.description):
        terms.setdefault(term, DESCRIPTION)
    name_terms = frozenset(_stems(base, False))
    for term in name_terms:
        terms[term] = SERVER_NAME
    phrases: dict[str, str] = {}
    for phrase in text.phrases():
        for key in phrase_keys(phrase):
            phrases.setdefault(key, phrase)
            for term in key.split():
                if terms.get(term, 0) < TOOL_NAME:
                    terms[term] = TOOL_NAME
    return Entry(
        text.source,
        terms,
        {term: tuple(sorted(places.items())) for term, places in tools.items()},
        tuple(tool_names),
        tuple(sum(map(weight, sorted(name))) for name in tool_names),
        name_terms,
        sum(map(weight, sorted(name_terms))),
        tuple(dict.fromkeys(name for name in ("".join(own), "".join(base)) if name)),
        len(base),
        log1p(len(terms)),
        tuple(phrases.items()),
    )


def phrase_keys(phrase: str) -> tuple[str, ...]:
    """Return how a phrase of a card is looked up: as English stems and as German ones.

    >>> phrase_keys("pull requests")
    ('pull request',)
    """
    words = tokens(phrase.lower())
    keys = (" ".join(t for word in words for t in pick(word)[:1]) for pick in (english, german))
    return tuple(dict.fromkeys(key for key in keys if key))
