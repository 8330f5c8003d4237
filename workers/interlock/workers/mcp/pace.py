"""How soon the lists of a server are read again; pure."""

from __future__ import annotations

import math
from typing import Final

DELAY: Final = 0.2
"""Seconds from a word of the server to the next reading: changes come in bursts."""
BETWEEN: Final = 1.0
"""Seconds from a change to the next reading at least."""
AT_MOST: Final = 60.0
"""The same for a server that changes its lists at every reading."""
QUICK: Final = 4
"""Changes in a row, each at the first reading after the one before, that slow nothing down."""
SLOW: Final = 8.0
"""From so many seconds on a person should know."""


class ListPace:
    """Doubles the time between readings while every reading finds something else.

    What a change costs is paid by all: rows, offers and running turns of the supervisor. A server
    that is quiet for twice that time is read at once again. The caller passes the time in seconds.

    >>> pace = ListPace()
    >>> for second in (1, 2, 3, 4, 5, 6):
    ...     pace.changed(second)
    >>> pace.delay(6), pace.delay(20)
    (4.0, 0.2)
    """

    def __init__(self) -> None:
        self._between = BETWEEN
        self._changed = -math.inf
        self._quick = 0

    @property
    def slow(self) -> bool:
        """Whether the lists are read so seldom that a person should know."""
        return self._between >= SLOW

    @property
    def calm_after(self) -> float:
        """Seconds without a change after which the pace is the first one again."""
        return 2 * self._between

    def changed(self, now: float) -> None:
        """A reading found something else than the one before."""
        self.look(now)
        self._quick += 1
        if self._quick > QUICK:
            self._between = min(2 * self._between, AT_MOST)
        self._changed = now

    def look(self, now: float) -> None:
        """Go back to the first pace if the lists have not changed for long enough."""
        if now - self._changed > self.calm_after:
            self.reset()

    def reset(self) -> None:
        """Read again at the first pace."""
        self._between, self._quick = BETWEEN, 0

    def delay(self, now: float) -> float:
        """Seconds from now to the next reading."""
        return max(DELAY, self._changed + self._between - now)
