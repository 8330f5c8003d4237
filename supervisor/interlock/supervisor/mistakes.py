"""Tells of patterns and names in the configuration that mean nothing of what is served."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from interlock.bus.events import CatalogChanged, ConfigReloaded, Event, WorkerReady
from interlock.supervisor.attention import Attention, Row
from interlock.supervisor.catalog.rows import USABLE, Catalog
from interlock.supervisor.config.mistyped import CODE, mistyped
from interlock.supervisor.config.model import Loaded

DELAY: Final = 0.2
"""Seconds from news to a look at all patterns: at a start sources come in bursts."""


class Mistakes:
    """Owner of the rows of code `matches_nothing`; looks again when something may match."""

    def __init__(
        self, loaded: Callable[[], Loaded], catalog: Catalog, attention: Attention
    ) -> None:
        self._loaded = loaded
        self._catalog = catalog
        self._attention = attention
        self._news = asyncio.Event()
        self._news.set()

    def on_event(self, event: Event) -> None:
        """Listen to what happens: only news of sources and of the configuration matter."""
        if isinstance(event, (CatalogChanged, ConfigReloaded, WorkerReady)):
            self._news.set()

    async def watch(self) -> None:
        """Keep the rows true; never ends by itself."""
        while True:
            await self._news.wait()
            await asyncio.sleep(DELAY)
            self._news.clear()
            loaded = self._loaded()
            others = {problem.entry for problem in loaded.problems if problem.entry}
            # In a thread: many patterns and tools take longer than the loop has.
            found = await asyncio.to_thread(mistyped, loaded.written, self._served(), others)
            rows = [
                Row(
                    name="configuration",
                    code=CODE,
                    message=str(problem),
                    fix=problem.fix,
                    file=problem.file,
                    line=problem.line,
                    subject=f"{problem.file}:{problem.key}:{problem.message}",
                )
                for problem in found
            ]
            self._attention.replace(rows, lambda row: row.code != CODE)

    def _served(self) -> dict[str, tuple[str, ...] | None]:
        """What each source serves, as last reported; None until it was READY."""
        served: dict[str, tuple[str, ...] | None] = {}
        for name, source in self._catalog.sources().items():
            rows = self._catalog.rows_of(name)
            known = rows or source.state == USABLE
            served[name] = tuple(row.local for row in rows) if known else None
        return served
