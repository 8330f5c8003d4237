"""Where the process of a command begins and ends: at no moment does Ctrl-C show a traceback.

Until the command itself runs there is nothing to clean up, and an import that is interrupted can
end in any error; so Ctrl-C ends the process at once. Only `signal` is imported before that holds.
"""

from __future__ import annotations

import gc
import os
import sys

from interlock.supervisor.cli.interrupts import INTERRUPTED, by_interrupt, leave

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import NoReturn


_MOMENT = 0.01
"""Seconds after which an interrupt that was only printed comes again."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and end the process with its exit code; nothing else runs in it after."""
    code = INTERRUPTED
    try:
        sys.unraisablehook, sys.excepthook = _on_ignored, _on_uncaught
        gc.disable()  # Imports make next to no garbage; looking for it costs a tenth.
        import signal

        signal.signal(signal.SIGINT, leave)
        from interlock.supervisor.spawn.signals import take_signals

        take_signals()
        from interlock.supervisor.cli.app import run

        code = run(list(sys.argv[1:] if arguments is None else arguments))
    except (KeyboardInterrupt, RuntimeError) as error:
        # Python turns an interrupt while a class is made into a RuntimeError.
        if not by_interrupt(error):
            raise
    _end(code)


def _on_ignored(unraisable: sys.UnraisableHookArgs) -> None:
    """Let an interrupt that came where Python only prints errors come again, a moment later.

    A command that has something to clean up does so then; any other one ends at once.
    """
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        import signal

        signal.signal(signal.SIGALRM, _again)
        signal.setitimer(signal.ITIMER_REAL, _MOMENT)
        return
    sys.__unraisablehook__(unraisable)


def _again(_number: int, _frame: object) -> None:
    import _thread

    _thread.interrupt_main()  # does what Ctrl-C does by now


def _on_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Show what nobody caught, which is never an interrupt."""
    if issubclass(kind, KeyboardInterrupt):
        os._exit(INTERRUPTED)
    sys.__excepthook__(kind, error, trace)


def _end(code: int) -> NoReturn:
    """Write what is left and end, without the time that Python takes to clear its memory."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            pass  # Nobody reads any more.
    os._exit(code)
