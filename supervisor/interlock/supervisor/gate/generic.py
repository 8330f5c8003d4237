"""Words that only say that some text is wanted, which a model writes itself."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Final

from interlock.supervisor.gate.index import Found
from interlock.supervisor.gate.words import english, german

_WORDS: Final = """
write create make draft compose prepare generate produce add new short long
report file note document text
schreib schreibe schreiben entwirf entwerfe entwerfen entwurf erstelle erstellen verfasse verfassen
neu neue neuen kurz kurzen kurze bericht berichte datei notiz dokument texte
"""
"""What is done and what it makes; the words that tell of what are missing."""


@cache
def _terms() -> frozenset[str]:
    return frozenset(term for word in _WORDS.split() for term in english(word) + german(word))


def generic(words: Iterable[tuple[int, Found]]) -> set[int]:
    """Return which words of a request are of this kind, by where they stand."""
    known = _terms()
    return {at for at, found in words if found.first in known}
