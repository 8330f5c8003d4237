"""Work at the disk in threads, of which a disk that hangs keeps a few and no more.

A thread that waits for a disk cannot be ended. Whoever gives it up leaves it there with all it
holds, and in the pool that all work of a worker shares.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

PATIENCE: Final = 10.0
"""Seconds to wait for the disk."""
MOST: Final = 3
"""Threads at the disk at once; the smallest pool has five, so others go on."""
_T = TypeVar("_T")


class Disk:
    """Runs what reads and writes files; for use in one event loop."""

    def __init__(self) -> None:
        self._busy = 0
        self._given_up = 0
        """Threads at the disk for whose work nobody waits any more."""
        self._changed = asyncio.Event()

    async def do(self, work: Callable[[], _T]) -> _T:
        """Return what `work` does in a thread, once fewer than `MOST` others are at the disk.

        Raises TimeoutError after `PATIENCE`, and at once while only given-up work is there.
        """
        async with asyncio.timeout(PATIENCE):
            while self._busy >= MOST:
                if self._given_up >= MOST:
                    raise TimeoutError
                await self._changed.wait()
            running = asyncio.get_running_loop().run_in_executor(None, work)
            self._busy += 1
            running.add_done_callback(self._over)
            try:
                return await asyncio.shield(running)
            finally:
                if not running.done():
                    self._given_up += 1
                    running.add_done_callback(self._back)
                    self._tell()

    def _over(self, running: asyncio.Future[Any]) -> None:
        self._busy -= 1
        if not running.cancelled():
            running.exception()  # nobody else may be there to ask for it
        self._tell()

    def _back(self, _: asyncio.Future[Any]) -> None:
        self._given_up -= 1

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
