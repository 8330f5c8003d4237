"""How often one call reports progress: small bursts at once, of a flood the newest now and then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

EVERY: Final = 0.05
"""Seconds between two messages of a flood."""
PARTS: Final = 4
"""Messages that a flood has at least for a caller while its patience lasts: each renews that."""
LEAST: Final = 0.001
"""Seconds between two messages of a flood, however short a caller's patience is."""
BURST: Final = 8
"""Messages that pass at once after a time of silence."""


class Pace(Generic[T]):
    """Hands news to `send` so slowly that no flood fills a queue; the newest always arrives.

    `every`: seconds between two messages of a flood.
    """

    __slots__ = ("_at", "_every", "_loop", "_news", "_room", "_send", "_timer")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, send: Callable[[T], None], every: float = EVERY
    ) -> None:
        self._loop = loop
        self._every = every
        self._send = send
        self._room = float(BURST)
        self._at = loop.time()
        self._news: T | None = None
        self._timer: asyncio.TimerHandle | None = None

    def tell(self, news: T) -> None:
        """Send this now or a little later, unless something newer comes before."""
        if self._timer is not None:
            self._news = news
            return
        now = self._loop.time()
        self._room = min(self._room + (now - self._at) / self._every, BURST)
        self._at = now
        if self._room >= 1:
            self._room -= 1
            self._send(news)
        else:
            self._news = news
            self._timer = self._loop.call_later(self._every, self._later)

    def finish(self) -> None:
        """Send at once what still waits, the last that there is."""
        news = self._news
        self.stop()
        if news is not None:
            self._send(news)

    def stop(self) -> None:
        """Drop what still waits."""
        self._news = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _later(self) -> None:
        self._room = 0.0
        self._at = self._loop.time()
        self.finish()


def pace_for(patience: float) -> float:
    """Return the seconds between two messages for a caller that waits so many for each.

    >>> pace_for(30.0), pace_for(0.04)
    (0.05, 0.01)
    """
    return min(EVERY, max(patience / PARTS, LEAST))
