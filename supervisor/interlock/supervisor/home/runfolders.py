"""Short folders of sockets, of homes with a long path: none outlives its supervisor."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from interlock.bus.endpoints import Home
from interlock.bus.errors import InterlockError
from interlock.supervisor.home.locking import take, taken

LONGEST: Final = 0.5
"""Seconds that one start gives to it; each start removes some, so their number goes down."""
YOUNG: Final = 600.0
"""Seconds for which a folder that does not say whose it is may belong to one that starts now."""
_NOBODY: Final = (errno.ECONNREFUSED, errno.ENOENT)
"""What a connection to a socket file says whose owner is dead, and to one that is not there."""


@contextlib.contextmanager
def undisturbed(home: Home) -> Iterator[None]:
    """Let nobody sweep such folders while this one gets its lock; returns at once for others.

    The home must be made. Raises ConfigError if somebody sweeps for ten seconds, and OSError.
    """
    if not home.run_is_elsewhere:
        yield
        return
    base = home.run.parent
    descriptor = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        take(descriptor, base)
        yield
    finally:
        os.close(descriptor)


def sweep_run_folders(own: Home) -> None:
    """Remove such folders of this user whose home is gone or has no supervisor.

    Does nothing for a home that has its sockets itself. What cannot be removed stays.
    """
    if not own.run_is_elsewhere:
        return
    until = time.monotonic() + LONGEST
    for folder in _newest_first(own.run.parent):
        if time.monotonic() > until:
            return
        if folder != own.run:
            with contextlib.suppress(OSError, InterlockError), undisturbed(own):
                _look(folder)


def _newest_first(base: Path) -> list[Path]:
    found: list[tuple[float, str]] = []
    with contextlib.suppress(OSError), os.scandir(base) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                found.append((entry.stat(follow_symlinks=False).st_mtime, entry.path))
    return [Path(path) for _, path in sorted(found, reverse=True)]


def _look(folder: Path) -> None:
    """Remove one folder if nobody uses it. Raises OSError."""
    home = Home.of_run_folder(folder)
    if home is None:
        # It says nothing of its home: only one without any socket is removed.
        if os.listdir(folder) == ["data"] and time.time() - folder.stat().st_mtime > YOUNG:
            for part in (folder / "data", folder):
                part.rmdir()
    elif _answers(home):
        return  # whatever became of its home, which may be back in a moment
    elif not home.path.exists():
        home.remove_run()
    else:
        _remove_unlocked(home)


def _answers(home: Home) -> bool:
    """Whether somebody has a socket there, also one who is stopped or whose queue is full."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as caller:
        return caller.connect_ex(os.fspath(home.run / "api")) not in _NOBODY


def _remove_unlocked(home: Home) -> None:
    """Remove the folder of a home that nobody has; whoever looks at it signs nothing there.

    A lock file that is missing or another one proves nothing: a supervisor that runs makes it again
    within a second, and would have lost its sockets by then.
    """
    try:
        lock = os.open(home.lock_file, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        if time.time() - home.run.stat().st_mtime > YOUNG:
            home.remove_run()
        return
    try:
        if taken(lock):
            home.remove_run()
    finally:
        os.close(lock)
