"""Requests that only say that some text is wanted, which a model writes itself."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Final

from interlock.supervisor.gate.index import Found
from interlock.supervisor.gate.words import english, german

_WORDS: Final = """
write create make draft compose prepare generate produce add new short long
report file note document text
schreib schreibe schreiben erstelle erstellen verfasse verfassen neu neue neuen kurz kurzen kurze
bericht berichte datei notiz dokument texte
"""
"""What is done and what it makes; the words that tell of what are missing."""


@cache
def _terms() -> frozenset[str]:
    return frozenset(term for word in _WORDS.split() for term in english(word) + german(word))


def says_nothing_of_what(words: Iterable[tuple[int, Found]]) -> bool:
    """Tell whether a request has only words like "write a report", which fit the tools of many."""
    generic = _terms()
    # A loop, since every decision goes through here and `all` with a generator is slower.
    for _, found in words:
        if found.first not in generic:
            return False
    return True
