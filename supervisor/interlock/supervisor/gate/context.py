"""A conversation goes on: what the last turns were offered stays while the talk is about it."""

from __future__ import annotations

from typing import Final

from interlock.supervisor.gate.index import GateIndex
from interlock.supervisor.gate.records import Context
from interlock.supervisor.gate.request import Request

TURNS: Final = 3
"""How many turns back count."""
LONGEST: Final = 16
"""Words of the longest request that can be a mere follow-up."""
NEW_MATTER: Final = 0.75
"""A follow-up brings at most this weight of words that what it follows does not know."""
_POINTING: Final = frozenset(
    """it its that this those these them they one ones same again another other both all first
    second third last next previous former latter there instead too also
    das dies diese diesen dieses dieser den die denen davon darin damit dazu daran dafür ihn sie es
    selbe selben gleiche gleichen nochmal nochmals erneut beide alle erste ersten zweite zweiten
    dritte dritten letzte letzten nächste nächsten andere anderen auch dort stattdessen""".split()
)


def followed(index: GateIndex, request: Request, context: Context) -> tuple[str, ...]:
    """Return the sources of the last turns that this request goes on about, in order.

    A request goes on if it is short, points back ("that one", "again"), and brings hardly a word
    that the source does not know.
    """
    lowered = request.lowered
    if not context.recent or not lowered or len(lowered) > LONGEST:
        return ()
    if _POINTING.isdisjoint(lowered):
        return ()
    last = next((turn for turn in context.recent[:TURNS] if turn), ())
    kept = {
        source
        for source in last
        if source in index.entries and _new_matter(index, request, source) <= NEW_MATTER
    }
    return tuple(sorted(kept))


def _new_matter(index: GateIndex, request: Request, source: str) -> float:
    known = index.entries[source].terms
    return sum(
        index.weight(terms[0])
        for word, terms in request.terms
        if word.lower() not in _POINTING and known.keys().isdisjoint(terms)
    )
