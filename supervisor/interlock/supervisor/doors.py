"""Lets no new client in while the descriptors run short.

libzmq ends the process that has no descriptor left for a connection, so it must never come to that.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

LOOK: Final = 0.25
"""Seconds between two looks."""
RESERVE: Final = 64
"""Descriptors that are kept for workers, the spawner and files, and for a burst between two looks;
of a small limit it is a quarter."""


def lets_in(used: int, limit: int, before: bool) -> bool:
    """Say whether new clients are let in; `before`: whether they were.

    >>> lets_in(960, 1024, True), lets_in(961, 1024, True)
    (True, False)
    >>> lets_in(900, 1024, False), lets_in(896, 1024, False)
    (False, True)
    """
    reserve = min(RESERVE, limit // 4)
    return used <= limit - (reserve if before else 2 * reserve)


class Doors:
    """The socket files that clients connect to. Closed, they have another name: who is in stays in.

    (To unbind would end all connections that came in there.)
    `on_trouble(reason)` is called when they close and with "" when they open again.
    """

    def __init__(self, doors: Sequence[Path], on_trouble: Callable[[str], None]) -> None:
        self._doors = doors
        self._on_trouble = on_trouble
        self._open = True

    async def watch(self) -> None:
        """Look again and again. Until cancelled."""
        while True:
            await asyncio.sleep(LOOK)
            self.look()

    def look(self) -> None:
        """Open or close the doors as is right now; call it when somebody has come in, too."""
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        try:
            used = len(os.listdir("/proc/self/fd"))
        except OSError:
            used = limit
        wanted = limit == resource.RLIM_INFINITY or lets_in(used, limit, self._open)
        if wanted == self._open:
            return
        for door in self._doors:
            closed = door.with_name(f"{door.name}.closed")
            with contextlib.suppress(OSError):  # the home was removed, or is read-only by now
                os.rename(*((closed, door) if wanted else (door, closed)))
        self._open = wanted
        told = f"{used} of {limit} files are open: no further client is let in until some leave."
        self._on_trouble("" if wanted else told)
