"""German compounds, split with care: only where what remains is a known word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from interlock.supervisor.gate.words import LONGEST, german

LEAST: Final = 4
"""Letters of the shortest part."""
_LINKS: Final = ("", "s", "n", "en", "es")


def split(word: str, knows: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the terms of the two parts of a compound, or nothing.

    Both parts have at least four letters and are known words; the longest last part wins. So
    "Terminals" is not "Termin" and a remainder. A word of more than `LONGEST` letters has no parts.

    >>> split("wetterbericht", {"wett", "bericht"}.__contains__)
    ('wett', 'bericht')
    >>> split("terminals", {"termin", "als"}.__contains__)
    ()
    """
    if len(word) > LONGEST:
        return ()
    for cut in range(LEAST, len(word) - LEAST + 1):
        last = _known(word[cut:], knows)
        if not last:
            continue
        for link in _LINKS:
            head = word[:cut]
            if link and not head.endswith(link):
                continue
            head = head[: len(head) - len(link)]
            first = _known(head, knows) if len(head) >= LEAST else ""
            if first:
                return (first, last)
    return ()


def _known(part: str, knows: Callable[[str], bool]) -> str:
    return next((term for term in german(part) if knows(term)), "")
