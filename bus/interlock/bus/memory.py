"""Gives memory back to the system after large work, which the C library keeps for the next one."""

from __future__ import annotations

import asyncio
import ctypes
import gc
from typing import Final

LARGE: Final = 16 << 20
"""Bytes of work after which it is worth it."""
DELAY: Final = 1.0
"""Seconds after which it is done, at most so often: it takes moments in which others wait."""
LATER: Final = 5.0
"""Seconds after which it is done once more."""


class MemoryReturn:
    """Counts the bytes of work that is done with; for use in one event loop."""

    def __init__(self) -> None:
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def used(self, size: int) -> None:
        """So many bytes were worked with and are needed no more."""
        self._bytes += size
        # Further work does not put it off: in a busy process there is always some.
        if self._bytes >= LARGE and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(DELAY, self._give_back, loop)

    def _give_back(self, loop: asyncio.AbstractEventLoop, once_more: bool = True) -> None:
        self._bytes, self._timer = 0, None
        loop.run_in_executor(None, give_back)  # outside the interpreter's lock
        if once_more:  # for what was still in use
            self._timer = loop.call_later(LATER, self._give_back, loop, False)


def give_back() -> None:
    """Give free memory back to the system, where the C library can; takes milliseconds.

    What only circles of objects hold is freed first: an idle process would keep it for good.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
