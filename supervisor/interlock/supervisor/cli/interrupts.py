"""What Ctrl-C does to a command: it ends the process at once, or raises, so that it can clean up.

This module is loaded before anything else, so it imports next to nothing itself.
"""

from __future__ import annotations

import gc
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

INTERRUPTED = 130
"""Exit code of a command that Ctrl-C ended: 128 and the number of the signal, as in a shell."""


def leave(_number: int = 0, _frame: FrameType | None = None) -> None:
    """End the process at once: the handler of a Ctrl-C that nobody has to be told of."""
    os._exit(INTERRUPTED)


def interruptible() -> None:
    """Have Ctrl-C raise KeyboardInterrupt from now on, so that a command can clean up."""
    import signal

    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.enable()


def uninterruptible() -> None:
    """Have Ctrl-C end the process at once again."""
    import signal

    signal.signal(signal.SIGINT, leave)


def by_interrupt(error: BaseException | None) -> bool:
    """Tell whether an error is a Ctrl-C, or what some library made of one."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__
    return False
