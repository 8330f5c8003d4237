"""Temporary folders that do not outlive their use, not even when it is killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Final

from interlock.bus.endpoints import Home, HomeLock
from interlock.bus.errors import InterlockError
from interlock.supervisor.spawn.sweep import sweep_recorded

_REMOVED: Final = 5.0
"""Seconds within which a folder has to be gone; else whoever makes the next one removes it."""
_LOOK: Final = 0.02


@contextlib.contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A temporary folder that is gone afterwards; SIGTERM and SIGHUP end the block like Ctrl-C."""
    previous = {
        number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)
    }
    sweep_folders(prefix)
    folder, lock = _locked_folder(prefix)
    try:
        yield folder
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        _remove(folder)
        os.close(lock)


def sweep_folders(prefix: str) -> None:
    """Remove the temporary folders of that prefix whose processes were killed.

    Only folders of this user in which nobody works any more; what is left of their processes is
    ended before.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        lock = _lock(folder)
        if lock is None:
            continue
        try:
            home = Home(folder / "home")
            if home.lock_file.exists():
                with HomeLock(home):
                    sweep_recorded(home.processes)
                    home.remove_run()
            shutil.rmtree(folder, ignore_errors=True)
        except (InterlockError, OSError):
            pass  # its supervisor still stops; the next one finds the folder again
        finally:
            os.close(lock)


def _remove(folder: Path) -> None:
    """Remove a folder, in which what was interrupted may write for a moment longer."""
    until = time.monotonic() + _REMOVED
    while True:
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists() or time.monotonic() > until:
            return
        time.sleep(_LOOK)


def _locked_folder(prefix: str) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix))
        lock = _lock(folder)
        if lock is not None:  # else somebody who sweeps was faster
            return folder, lock


def _lock(folder: Path) -> int | None:
    """Lock a folder of this user for as long as the process lives; None where that cannot be."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        lock = os.open(folder, flags)
    except OSError:
        return None
    try:
        if os.fstat(lock).st_uid == os.geteuid():
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(lock), os.stat(folder)):
                return lock
    except OSError:
        pass  # somebody works in it, or it was removed just now
    os.close(lock)
    return None


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
