"""Tells that clients have to wait outside, because the descriptors run short."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Callable
from typing import Final

from interlock.bus.entrance import LOOK, for_connections

LEAST: Final = 128
"""Open files without which no supervisor starts."""
OF_WORKER: Final = 3
"""Open files for each worker: its process, its connection, and one for a restart."""


def open_files_needed(workers: int) -> int:
    """How many files a supervisor of that many workers must be allowed to have open.

    >>> open_files_needed(2), open_files_needed(50)
    (134, 278)
    """
    return LEAST + OF_WORKER * workers


class Doors:
    """`on_trouble(reason)` is called when somebody has to wait, and with "" once that is over."""

    def __init__(self, on_trouble: Callable[[str], None]) -> None:
        self._on_trouble = on_trouble
        self._full = 0
        self._told = False
        self._timer: asyncio.TimerHandle | None = None

    def waiting(self, full: bool) -> None:
        """At one of the doors somebody begins to wait, or nobody waits any more."""
        self._full += 1 if full else -1
        if self._full and not self._told:
            used, limit = _used(), _limit()
            self._told = True
            self._on_trouble(
                f"{used} of {limit} files are open: no further client is let in until some leave."
            )
        if not self._full and self._timer is None:
            self._look_later()

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK, self._look)

    def _look(self) -> None:
        """The trouble is over once there is room again for more than the next client."""
        self._timer = None
        limit = _limit()
        enough = for_connections(limit) - (limit - for_connections(limit))
        if self._full:
            return
        if _used() > enough:
            self._look_later()
            return
        self._told = False
        self._on_trouble("")


def _limit() -> int:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return limit if limit != resource.RLIM_INFINITY else 1 << 31


def _used() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:  # not even one for this
        return _limit()
