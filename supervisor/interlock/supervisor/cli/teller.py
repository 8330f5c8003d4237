"""Lines to standard error from a process that must never wait for whoever reads them."""

from __future__ import annotations

import os
import queue
import threading
from typing import Final, Self

from interlock.supervisor.cli.output import clean

_WAITING: Final = 1000
"""Lines that wait for a reader; further ones are lost."""
_LAST: Final = 0.5
"""Seconds that the last lines have to get out."""


class Teller:
    """Writes lines in a thread of its own, so that a terminal that is held (Ctrl-S) or a reader
    that is gone stops nobody but this thread.
    """

    def __init__(self, descriptor: int = 2) -> None:
        self._descriptor = descriptor
        self._lines: queue.Queue[str | None] = queue.Queue(_WAITING)
        self._thread = threading.Thread(target=self._write, name="teller", daemon=True)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        """Write what waits, within half a second."""
        self._put(None)
        self._thread.join(_LAST)

    def say(self, text: str) -> None:
        """Write a line soon, or lose it; never waits and never raises."""
        self._put(text)

    def _put(self, text: str | None) -> None:
        try:
            self._lines.put_nowait(text)
        except queue.Full:
            return

    def _write(self) -> None:
        while (text := self._lines.get()) is not None:
            try:
                # Past `sys.stderr`, whose lock would keep a process from ending while this waits.
                os.write(self._descriptor, f"{clean(text)}\n".encode(errors="backslashreplace"))
            except OSError:
                return  # Nobody reads any more.
