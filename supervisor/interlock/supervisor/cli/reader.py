"""Ends a command that shows things when nobody reads them any more, also while it is quiet."""

from __future__ import annotations

import os
import select
import stat
import threading

from interlock.supervisor.cli.exits import DONE


def end_with_reader() -> None:
    """End the process as soon as the reader of standard output is gone, as a failed write does.

    Without this `attach | head -1` stays until the next event. Only for commands that
    may end at any moment: what they show goes on without them, as a turn does. A file or a terminal
    has no reader that can go.
    """
    mode = os.fstat(1).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        threading.Thread(target=_wait, name="reader", daemon=True).start()


def _wait() -> None:
    watched = select.poll()
    watched.register(1, 0)  # errors and hang-ups are always told
    watched.poll()
    os._exit(DONE)
