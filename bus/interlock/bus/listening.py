"""The socket file of a ZeroMQ socket: made, guarded, made again when somebody removed it."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

import zmq

from interlock.bus.turnstile import NoTurnstileError, Turnstile

BACKLOG: Final = 100
"""Connections that may wait to be let in; more are refused, and their owners try again."""


class Listening:
    """Binds `sock` to an `ipc://` address; needs the running event loop.

    The file has its name only once it is guarded: see `Turnstile`, its `on_full` and `first`. It
    keeps that name until `close`, and the file is removed then if it is still this one. Raises
    OSError and zmq.ZMQError.
    """

    def __init__(
        self,
        sock: zmq.Socket[bytes],
        address: str,
        on_full: Callable[[bool], None] = lambda full: None,
        first: bool = False,
    ) -> None:
        self.path = Path(address.removeprefix("ipc://"))
        self.on_used: Callable[[], None] = lambda: None
        """Called when `mend` has used the socket: see `FdSocket.look`."""
        self._sock = sock
        self._on_full = on_full
        self._first = first
        self._names = itertools.count(1)
        self._file: tuple[int, int] | None = None
        """Device and inode of the file; None while there is none."""
        self._bind()

    def mend(self) -> bool:
        """Bind again if the file is not there or another one; True if that was so.

        Who is connected stays so. Raises as the constructor.
        """
        if self._there():
            return False
        if self._turnstile is not None:
            self._exchange(self._turnstile)
            return True
        # Without one, libzmq has to bind again; to unbind would end all connections that came in
        # here, so one descriptor stays open each time.
        _turn_away(self._listener)
        self._stop()
        try:
            self._bind()
        finally:
            self.on_used()
        return True

    def close(self) -> None:
        """Let nobody in any more and remove the file; to be called before the socket is closed."""
        self._stop()
        if self._there():
            with contextlib.suppress(OSError):
                self.path.unlink()
        self._file = None

    def _bind(self) -> None:
        fresh = self._fresh()
        self._turnstile: Turnstile | None = None
        self._listener = _listener()
        try:
            self._listener.bind(os.fspath(fresh))
            self._listener.listen(BACKLOG)
            given = self._give(fresh)
            # Where the system has no such thing, libzmq takes whatever comes.
            with contextlib.suppress(NoTurnstileError):
                self._turnstile = Turnstile(self._listener, given, self._on_full, self._first)
            self._name(fresh)
        except (OSError, zmq.ZMQError):
            self._stop()
            with contextlib.suppress(zmq.ZMQError):  # it had not come to that
                self._sock.unbind(f"ipc://{fresh}")
            fresh.unlink(missing_ok=True)
            raise

    def _exchange(self, turnstile: Turnstile) -> None:
        """Have libzmq listen at a new file, with the descriptor that it has."""
        fresh, new = self._fresh(), _listener()
        before = self._listener
        try:
            new.bind(os.fspath(fresh))
            new.listen(BACKLOG)
            turnstile.replace(new)
            _turn_away(before)
            self._name(fresh)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise
        finally:
            self._listener = turnstile.waiting
            (new if self._listener is before else before).close()

    def _fresh(self) -> Path:
        # To take a failed bind back ends all that came in under that name: none is used twice.
        fresh = self.path.with_name(f".{os.getpid()}.{next(self._names)}")
        fresh.unlink(missing_ok=True)
        return fresh

    def _name(self, fresh: Path) -> None:
        """Give the file its name, now that it is guarded."""
        found = fresh.stat()
        self._file = (found.st_dev, found.st_ino)
        fresh.rename(self.path)

    def _give(self, fresh: Path) -> int:
        """Hand libzmq a descriptor of its own; it closes that."""
        given = os.dup(self._listener.fileno())
        self._sock.set(zmq.SocketOption.USE_FD, given)
        try:
            self._sock.bind(f"ipc://{fresh}")
        except zmq.ZMQError:
            os.close(given)
            raise
        return given

    def _there(self) -> bool:
        try:
            found = self.path.lstat()
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._file

    def _stop(self) -> None:
        if self._turnstile is not None:
            self._turnstile.close()
            self._turnstile = None
        self._listener.close()


def _listener() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)


def _turn_away(listener: socket.socket) -> None:
    """Hang up on those who wait to be let in: they try again, and find the new file.

    Nobody would let them in any more, which libzmq notices no sooner than after its time for the
    greeting; what a caller had queued by then would be lost.
    """
    with contextlib.suppress(OSError):  # nobody waits any more
        while True:
            listener.accept()[0].close()
