"""The signals that would end a process of Interlock's although nobody wants that."""

from __future__ import annotations

import signal
from typing import Final

ASK_TO_STOP: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""They ask the supervisor to stop in order. Its spawner takes none: it ends with the supervisor."""
_NAMES: Final = (
    "SIGUSR1",
    "SIGUSR2",
    "SIGALRM",
    "SIGVTALRM",
    "SIGPROF",
    "SIGIO",
    "SIGPWR",
    "SIGSTKFLT",
)


def _stray() -> tuple[int, ...]:
    named = [int(getattr(signal, name)) for name in _NAMES if hasattr(signal, name)]
    if hasattr(signal, "SIGRTMIN"):
        named += range(signal.SIGRTMIN, signal.SIGRTMAX + 1)
    return tuple(named)


STRAY: Final = _stray()
"""They mean nothing here, and by default each would end the process that gets one."""


def take_signals() -> None:
    """Undo what the program that started this process left behind: both outlast an exec.

    A blocked signal never comes, so that it would stop nothing and no child would be seen to end.
    With SIGCHLD ignored nobody learns how a child ended. SIGTERM ends every process of ours.
    """
    for number in (signal.SIGCHLD, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def asking_to_stop() -> list[int]:
    """Those of ASK_TO_STOP that count here: not SIGHUP if it was ignored, as by `nohup`."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in ASK_TO_STOP if number != signal.SIGHUP or not ignored]


def unused_strays() -> list[int]:
    """Those of STRAY that nothing in this process, such as a profiler, has taken for itself."""
    return [number for number in STRAY if signal.getsignal(number) is signal.SIG_DFL]


def name_of(number: int) -> str:
    """How people call a signal; real-time signals have numbers."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
