"""What the last turns of each session were about, so that the next one can go on about it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

SESSIONS: Final = 1_000
"""Sessions that are remembered; the one that was used longest ago goes first."""
TURNS: Final = 4
"""Turns of a session that are remembered."""


class Sessions:
    """Remembers, by agent and session, the gated sources of the last turns, the newest first.

    A turn without a session belongs to none.
    """

    def __init__(self) -> None:
        self._recent: OrderedDict[tuple[str, str], tuple[tuple[str, ...], ...]] = OrderedDict()

    def recent(self, agent: str, session: str) -> tuple[tuple[str, ...], ...]:
        """The sources of the last turns; empty for a new session."""
        return self._recent.get((agent, session), ()) if session else ()

    def ended(self, agent: str, session: str, sources: Iterable[str]) -> None:
        """A turn ended that had these sources."""
        if not session:
            return
        key = (agent, session)
        self._recent[key] = (tuple(sorted(set(sources))), *self._recent.get(key, ()))[:TURNS]
        self._recent.move_to_end(key)
        while len(self._recent) > SESSIONS:
            self._recent.popitem(last=False)
