"""Warm entries for the mcp image of the spawner's tests."""

import os
import signal
import threading

calls = 0
"""Calls of `light` in the image that this process was forked from."""


def light() -> None:
    """Warm nothing: most tests do not need the SDK."""
    global calls
    calls += 1


def broken() -> None:
    raise RuntimeError("no SDK here")


def threaded() -> None:
    threading.Thread(target=threading.Event().wait, daemon=True).start()


def patient() -> None:
    """Have each worker come to its end before the image goes on after the fork."""
    fork = os.fork

    def fork_and_wait() -> int:
        pid = fork()
        if pid:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        return pid

    os.fork = fork_and_wait


def hanging() -> None:
    """Have the image hang for ever, without being stopped, from the first SIGUSR1 on."""

    def hang(*_: object) -> None:
        while True:
            signal.pause()

    signal.signal(signal.SIGUSR1, hang)
