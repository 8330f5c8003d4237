"""Finds what was stopped between an order and its answer, and has it go on."""

from __future__ import annotations

import signal
from collections.abc import Container
from typing import Final

from interlock.bus import procfs
from interlock.bus.records import Child

_STOPPED: Final = "T"
"""By a signal; one that a debugger holds ("t") is left to the debugger."""


def go_on(spawner: int, workers: Container[int]) -> list[int]:
    """Continue the spawner, its images and what they are just starting; pids that were stopped.

    `workers`: pids that run as workers already. Those are left alone with all below them: their
    pings tell whether they still work.
    """
    return [one.pid for one in _concerned(spawner, workers) if procfs.kill(one, signal.SIGCONT)]


def _concerned(spawner: int, workers: Container[int]) -> list[Child]:
    waiting, stopped = [spawner], []
    while waiting:
        pid = waiting.pop()
        found = procfs.stat(pid)
        if found is None:
            continue
        if found.state == _STOPPED:
            stopped.append(Child(pid=pid, start=found.start))
        waiting += [child for child in procfs.children(pid) if child not in workers]
    return stopped
