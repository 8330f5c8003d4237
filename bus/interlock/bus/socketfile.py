"""Socket files: made, named, and removed if they are still ours."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
from pathlib import Path
from typing import Final

BACKLOG: Final = 100
"""Connections that may wait to be let in; more are refused, and their owners try again."""


class SocketFile:
    """A socket file that gets its name only once somebody lets in who comes there."""

    def __init__(self, address: str) -> None:
        self.path = Path(address.removeprefix("ipc://"))
        self._names = itertools.count(1)
        self._file: tuple[int, int] | None = None
        """Device and inode of the file; None while there is none."""

    def fresh(self) -> Path:
        """Return a path to bind to, one that was not used before."""
        fresh = self.path.with_name(f".{os.getpid()}.{next(self._names)}")
        fresh.unlink(missing_ok=True)
        return fresh

    def name(self, fresh: Path) -> None:
        """Give the file its name, now that it is guarded. Raises OSError."""
        found = fresh.stat()
        self._file = (found.st_dev, found.st_ino)
        fresh.rename(self.path)

    def there(self) -> bool:
        """Whether the name still leads to this file."""
        try:
            found = self.path.lstat()
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._file

    def remove(self) -> None:
        """Remove the file if it is still this one."""
        if self.there():
            with contextlib.suppress(OSError):
                self.path.unlink()
        self._file = None


def listener() -> socket.socket:
    """Return a socket for connections on this machine that never waits."""
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)


def turn_away(listener: socket.socket) -> None:
    """Hang up on those who wait to be let in: they try again, and find the new file.

    Nobody would let them in any more, which libzmq notices no sooner than after its time for the
    greeting; what a caller had queued by then would be lost.
    """
    with contextlib.suppress(OSError):  # nobody waits any more
        while True:
            listener.accept()[0].close()
