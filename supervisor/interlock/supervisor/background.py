"""Work that goes on for as long as the supervisor: the owner of its tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

AGAIN_AFTER: Final = 1.0
"""Seconds before work that failed begins again."""
CANCEL_TIME: Final = 2.0

Work = Callable[[], Coroutine[Any, Any, None]]


class Background:
    """Keeps work running: what ends by an error is reported, and begins again."""

    def __init__(self, on_trouble: Callable[[BaseException, str], None]) -> None:
        self._on_trouble = on_trouble
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._closing = False

    def keep(self, name: str, work: Work) -> None:
        """Run `work` now, and again whenever it fails."""
        if self._closing:
            return
        task = asyncio.get_running_loop().create_task(work(), name=name)
        self._tasks[name] = task
        task.add_done_callback(lambda done: self._done(done, name, work))

    async def close(self) -> None:
        """Cancel everything and wait for it, bounded."""
        self._closing = True
        tasks = [task for task in self._tasks.values() if not task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CANCEL_TIME)

    def _done(self, task: asyncio.Task[None], name: str, work: Work) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_trouble(error, name)
            asyncio.get_running_loop().call_later(AGAIN_AFTER, self.keep, name, work)
