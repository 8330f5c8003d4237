"""Lets those who connect in one at a time, and none while descriptors run short."""

from __future__ import annotations

import abc
import os
import resource
import select
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from interlock.bus.socketfile import BACKLOG, SocketFile, listener, turn_away

if TYPE_CHECKING:
    import asyncio

RESERVE: Final = 64
"""Descriptors that no connection gets: they are for processes and files. Of a small limit it is a
quarter."""
LOOK: Final = 0.25
"""Seconds between two looks while nobody can be let in."""
CALM: Final = 1.0
AT_ONCE: Final = 0.0003
"""Seconds that one look may go on letting in, if one after another waits."""


def for_connections(limit: int, first: bool = False) -> int:
    """How many descriptors, of a limit, may be in use when one more connection comes.

    Those that come `first` may have half of the reserve as well.

    >>> for_connections(1024), for_connections(100), for_connections(1024, first=True)
    (960, 75, 992)
    """
    reserve = min(RESERVE, limit // 4)
    return limit - (reserve // 2 if first else reserve)


class Entrance(abc.ABC):
    """Stands before `waiting`, a listening socket, in the event loop.

    Whoever made the socket closes it after `close`. Whoever comes here is let in before those at
    other sockets where it is `first`. `on_full(True)` is called when somebody has to wait for a
    descriptor, with False once nobody had to for `CALM` seconds or it is closed.
    """

    def __init__(
        self, waiting: socket.socket, on_full: Callable[[bool], None], first: bool = False
    ) -> None:
        import asyncio

        self.waiting = waiting
        """The socket that it stands before."""
        self._on_full = on_full
        self._first = first
        self._full = False
        self._timer: asyncio.TimerHandle | None = None
        self._calm: asyncio.TimerHandle | None = None
        self._ready = select.poll()
        self._ready.register(waiting, select.POLLIN)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(waiting, self._let_in)

    @abc.abstractmethod
    def take(self) -> bool:
        """Let the one in who waits longest, if anybody still does; False if that is impossible."""

    def pause(self) -> None:  # noqa: B027 - most have nothing to do
        """Prepare for a time in which nobody is let in."""

    def turn_to(self, waiting: socket.socket) -> None:
        """Stand before another listening socket in place of the one before."""
        self._loop.remove_reader(self.waiting)
        self._ready.unregister(self.waiting)
        self._ready.register(waiting, select.POLLIN)
        self.waiting = waiting
        if self._timer is None:
            self._loop.add_reader(waiting, self._let_in)

    def close(self) -> None:
        """Let nobody in any more; call it before the socket is closed."""
        self._loop.remove_reader(self.waiting)
        for timer in (self._timer, self._calm):
            if timer is not None:
                timer.cancel()
        self._timer = self._calm = None
        if self._full:
            self._over()

    def _let_in(self) -> None:
        end = time.monotonic() + AT_ONCE
        while self._room() and self.take():
            if time.monotonic() > end or not self._ready.poll(0):
                return
        self.pause()
        self._loop.remove_reader(self.waiting)
        self._timer = self._loop.call_later(LOOK, self._look_again)
        if self._calm is not None:
            self._calm.cancel()
            self._calm = None
        if not self._full:
            self._full = True
            self._on_full(True)

    def _look_again(self) -> None:
        self._timer = None
        if self._room():
            self._calm = self._loop.call_later(CALM, self._over)
            self._loop.add_reader(self.waiting, self._let_in)
        else:
            self._timer = self._loop.call_later(LOOK, self._look_again)

    def _room(self) -> bool:
        """Whether the next connection gets one of the descriptors for connections.

        New ones have the lowest free number, so that one tells without counting.
        """
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        try:
            lowest = os.dup(self.waiting.fileno())
        except OSError:
            return False
        os.close(lowest)
        return limit == resource.RLIM_INFINITY or lowest < for_connections(limit, self._first)

    def _over(self) -> None:
        self._calm = None
        self._full = False
        self._on_full(False)


class Door(Entrance):
    """Listens at an `ipc://` address and hands each connection to `on_connection`.

    The file keeps its name until `close`. `on_full` as for `Entrance`. Raises OSError.
    """

    def __init__(
        self,
        address: str,
        on_connection: Callable[[socket.socket], None],
        on_full: Callable[[bool], None] = lambda full: None,
    ) -> None:
        self._file = SocketFile(address)
        self._on_connection = on_connection
        super().__init__(self._listen(), on_full)

    def take(self) -> bool:
        """Accept one connection, if somebody still waits; False where the system has no room."""
        try:
            connection = self.waiting.accept()[0]
        except (BlockingIOError, ConnectionError):  # gone again
            return True
        except OSError:
            return False
        self._on_connection(connection)
        return True

    def mend(self) -> bool:
        """Listen again if the file is not there or another one; True if that was so.

        Who is connected stays so; who waits at the file before tries again. Raises OSError.
        """
        if self._file.there():
            return False
        before = self.waiting
        self.turn_to(self._listen())
        turn_away(before)
        before.close()
        return True

    def close(self) -> None:
        """Let nobody in any more and remove the file."""
        super().close()
        self._file.remove()
        self.waiting.close()

    def _listen(self) -> socket.socket:
        fresh, waiting = self._file.fresh(), listener()
        try:
            waiting.bind(os.fspath(fresh))
            waiting.listen(BACKLOG)
            self._file.name(fresh)
        except OSError:
            waiting.close()
            fresh.unlink(missing_ok=True)
            raise
        return waiting
