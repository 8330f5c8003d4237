"""The row of a worker that says that whole results cannot be kept, for as long as that is so."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Final

from interlock.bus.remedies import disk_remedy
from interlock.workers.disk import Disk
from interlock.workers.kept import reason_of, room_for
from interlock.workers.kind import Host

CODE: Final = "results_full"
RETRY: Final = 3.0
"""Seconds between two looks whether there is room again."""


class KeptRow:
    """Owner of that row. While it stands it is tried whether the largest lost one could be kept.

    `what`: what is kept, such as "results".
    """

    def __init__(self, host: Host, what: str = "results") -> None:
        self._host, self._what = host, what
        self._disk = Disk()
        self._lost = 0
        """Bytes of the largest that was lost; 0: none is."""
        self._trying = False

    def told(self, problem: OSError | None, folder: Path, size: int) -> None:
        """Take in how it went with a whole of `size` bytes that was to be kept in `folder`."""
        if problem is not None:
            self._lost = max(self._lost, size, 1)
            self._say(problem, folder)
            if not self._trying:
                self._trying = True
                self._host.background(self._try(folder), CODE)
        elif size >= self._lost:
            self._clear()

    def _say(self, problem: OSError, folder: Path) -> None:
        self._host.notice(
            CODE,
            message=f"Whole {self._what} cannot be kept: {reason_of(problem)}.",
            fix=f"{disk_remedy(problem.errno, folder)}.",
        )

    def _clear(self) -> None:
        if self._lost:
            self._lost = 0
            self._host.notice(CODE, clear=True)

    async def _try(self, folder: Path) -> None:
        while self._lost:
            await asyncio.sleep(RETRY)
            try:
                await self._disk.do(partial(room_for, self._lost, folder))
            except OSError as error:
                self._say(error, folder)
            else:
                self._clear()
        self._trying = False
