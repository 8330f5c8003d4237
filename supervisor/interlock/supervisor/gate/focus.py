"""An agent's focus: what its name and description say that it works with, chosen once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from interlock.supervisor.gate.boilerplate import strip
from interlock.supervisor.gate.entry import GENERIC
from interlock.supervisor.gate.frequencies import Frequencies
from interlock.supervisor.gate.words import english, german, is_german, parts, tokens

MOST: Final = 6
"""Names in a focus."""
TITLE_HIT: Final = 3
TEXT_HIT: Final = 1
LEAST: Final = 3
"""Points that a focus needs: one word of the title, or three of the description."""
TELLING: Final = 0.45
"""Words that weigh less ("daily", "list") are no evidence."""


@dataclass(frozen=True, slots=True)
class FocusRow:
    """One thing that a focus can name: a capability or a whole source, with what it is called."""

    name: str
    title: str
    description: str = ""


def choose(
    name: str,
    description: str,
    rows: Iterable[FocusRow],
    frequencies: Frequencies,
) -> tuple[str, ...]:
    """Return the names of at most six rows for an agent, the best first.

    Only whole words count, 3 for a word of a row's title and 1 for one of its description. Rows
    with as many points stand in the order of their names.
    """
    wanted = _terms(f"{' '.join(parts(name))} {description}")
    points: dict[str, int] = {}
    for row in rows:
        title = {term for word in parts(row.title) if word not in GENERIC for term in english(word)}
        titles = _telling(title & wanted, frequencies)
        texts = _telling((_terms(strip(row.description)) - title) & wanted, frequencies)
        score = TITLE_HIT * titles + TEXT_HIT * texts
        if score >= LEAST:
            points[row.name] = max(score, points.get(row.name, 0))
    return tuple(sorted(points, key=lambda found: (-points[found], found))[:MOST])


def _terms(text: str) -> frozenset[str]:
    words = [token.lower() for token in tokens(text)]
    pick = german if is_german(words) else english
    return frozenset(term for word in words for term in pick(word))


def _telling(terms: Iterable[str], table: Frequencies) -> int:
    return sum(table.weight(term) >= TELLING for term in terms)
