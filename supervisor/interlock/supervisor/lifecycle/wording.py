"""Plain words for how a process ended, and how it is started again."""

from __future__ import annotations

import signal as signals
from typing import Final

from interlock.bus.limits import NO_THREADS

SUPERVISOR_STOPS: Final = "the supervisor stops"
"""Why a worker is stopped, if everything is."""


def start_again(worker: str, reason: str) -> str:
    """Say how a worker that was stopped for `reason` is started; a sentence without its full stop.

    >>> start_again("mcp:git", "stopped by hand")
    'Start it with `interlock start mcp:git`'
    """
    if reason == SUPERVISOR_STOPS:
        return "Start Interlock again with `interlock up`"
    return f"Start it with `interlock start {worker}`"


def describe_exit(exit_code: int | None, signal: int | None) -> str:
    """Say how a process ended, in a few words.

    >>> describe_exit(3, None), describe_exit(None, 9), describe_exit(None, None)
    ('exited with code 3', 'killed by SIGKILL', 'ended in an unknown way')
    """
    if signal is not None:
        try:
            return f"killed by {signals.Signals(signal).name}"
        except ValueError:
            return f"killed by signal {signal}"
    if exit_code == NO_THREADS:
        return "could not start: a limit, on processes (`ulimit -u`) or its memory, is reached"
    if exit_code is not None:
        return f"exited with code {exit_code}"
    return "ended in an unknown way"
