"""Where a ZeroMQ socket listens: made, guarded, made again when somebody removed the file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import zmq

from interlock.bus.socketfile import BACKLOG, SocketFile, listener, turn_away
from interlock.bus.turnstile import NoTurnstileError, Turnstile


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
        self._file = SocketFile(address)
        self.on_used: Callable[[], None] = lambda: None
        """Called when `mend` has used the socket: see `FdSocket.look`."""
        self._sock = sock
        self._on_full = on_full
        self._first = first
        self._bind()

    @property
    def path(self) -> Path:
        """The socket file."""
        return self._file.path

    def mend(self) -> bool:
        """Bind again if the file is not there or another one; True if that was so.

        Who is connected stays so. Raises as the constructor.
        """
        if self._file.there():
            return False
        if self._turnstile is not None:
            self._exchange(self._turnstile)
            return True
        # Without one, libzmq has to bind again; to unbind would end all connections that came in
        # here, so one descriptor stays open each time.
        turn_away(self._listener)
        self._stop()
        try:
            self._bind()
        finally:
            self.on_used()
        return True

    def close(self) -> None:
        """Let nobody in any more and remove the file; to be called before the socket is closed."""
        self._stop()
        self._file.remove()

    def _bind(self) -> None:
        # To take a failed bind back ends all that came in under that name: none is used twice.
        fresh = self._file.fresh()
        self._turnstile: Turnstile | None = None
        self._listener = listener()
        try:
            self._listener.bind(os.fspath(fresh))
            self._listener.listen(BACKLOG)
            given = self._give(fresh)
            # Where the system has no such thing, libzmq takes whatever comes.
            with contextlib.suppress(NoTurnstileError):
                self._turnstile = Turnstile(self._listener, given, self._on_full, self._first)
            self._file.name(fresh)
        except (OSError, zmq.ZMQError):
            self._stop()
            with contextlib.suppress(zmq.ZMQError):  # it had not come to that
                self._sock.unbind(f"ipc://{fresh}")
            fresh.unlink(missing_ok=True)
            raise

    def _exchange(self, turnstile: Turnstile) -> None:
        """Have libzmq listen at a new file, with the descriptor that it has."""
        fresh, new = self._file.fresh(), listener()
        before = self._listener
        try:
            new.bind(os.fspath(fresh))
            new.listen(BACKLOG)
            turnstile.replace(new)
            turn_away(before)
            self._file.name(fresh)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise
        finally:
            self._listener = turnstile.waiting
            (new if self._listener is before else before).close()

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

    def _stop(self) -> None:
        if self._turnstile is not None:
            self._turnstile.close()
            self._turnstile = None
        self._listener.close()
