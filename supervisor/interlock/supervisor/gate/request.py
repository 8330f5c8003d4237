"""A request, read once: its words, and its terms sentence by sentence."""

from __future__ import annotations

from typing import Final, NamedTuple

from interlock.supervisor.gate.compounds import split
from interlock.supervisor.gate.index import GateIndex
from interlock.supervisor.gate.lexicon import meanings
from interlock.supervisor.gate.links import Links, links
from interlock.supervisor.gate.links import terms as of_links
from interlock.supervisor.gate.words import english, german, humps, is_german, tokens

MAX_WORDS: Final = 400
"""Words of a request that count."""


Term = tuple[str, tuple[str, ...]]
"""A word that can be evidence: as it is written, and its terms."""


class Request(NamedTuple):
    """`words` as they are written, `lowered` in small letters, `terms` without function words."""

    words: list[str]
    lowered: list[str]
    german: bool
    terms: list[Term]
    meant: list[str]
    """The terms in English, each as often as it is said."""


def read(index: GateIndex, text: str) -> Request:
    """Return what a request says.

    Of links only the hosts are words, and those only as names.
    """
    linked = links(text)
    words = tokens(linked.rest if linked else text)[:MAX_WORDS]
    lowered = [word.lower() for word in words]
    in_german = is_german(lowered)
    pick = german if in_german else english
    found: list[Term] = []
    meant: list[str] = []
    for word, low in zip(words, lowered, strict=True):
        if terms := pick(low):
            if in_german:
                every = _in_german(index, low, terms)
                meant += [term for term in every if term not in terms]
                terms = every
            else:
                meant += terms
            found.append((word, terms))
        if low != word and low[1:] != word[1:] and len(found) < MAX_WORDS:
            found += [(part, pick(part)) for part in humps(word) if pick(part)]
    if linked:
        words = tokens(linked.named)[:MAX_WORDS]
        lowered = [word.lower() for word in words]
        added = _of_links(linked, found)
        found += added
        meant += [terms[0] for _, terms in added]
    return Request(words, lowered, in_german, found, meant)


def _of_links(linked: Links, said: list[Term]) -> list[Term]:
    kinds = [(kind, english(kind)) for kind in linked.kinds if english(kind)]
    every = [terms for _, terms in said + kinds]
    return kinds + [(linked.first, terms) for terms in of_links(every)]


def _in_german(index: GateIndex, word: str, terms: tuple[str, ...]) -> tuple[str, ...]:
    """Add the parts of a compound that is unknown itself, and what all of it means in English."""
    known = meanings()
    if not any(term in index.postings or term in known for term in terms):
        terms += split(word, lambda part: part in known or index.knows(part))
    others = tuple(other for term in terms for other in known.get(term, ()))
    return tuple(dict.fromkeys(terms + others))
