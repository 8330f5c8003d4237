"""Takes the rows of a source that stays down out of the catalog when their time is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from interlock.supervisor.catalog.rows import Catalog, Delta


class StaleRows:
    """Owner of one timer for each source that is down; `on_expired` hears what went."""

    def __init__(self, catalog: Catalog, on_expired: Callable[[str, Delta], None]) -> None:
        self._catalog = catalog
        self._on_expired = on_expired
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def look(self, worker: str, seconds: float) -> None:
        """Call after every change of a source; its rows go `seconds` after it went down."""
        if not self._catalog.stale(worker):
            self._cancel(worker)
        elif worker not in self._timers:
            loop = asyncio.get_running_loop()
            self._timers[worker] = loop.call_later(seconds, self._expire, worker)

    def close(self) -> None:
        """Forget all timers; nothing expires any more."""
        for worker in list(self._timers):
            self._cancel(worker)

    def _expire(self, worker: str) -> None:
        del self._timers[worker]
        self._on_expired(worker, self._catalog.expire(worker))

    def _cancel(self, worker: str) -> None:
        timer = self._timers.pop(worker, None)
        if timer is not None:
            timer.cancel()
