"""Lets connections into a ZeroMQ socket one at a time, and none while descriptors run short.

libzmq takes whatever comes, in a thread of its own, and ends the process that has no descriptor
left for a connection. How fast they come is the callers' choice, so looking now and then is not
enough. Here the kernel is told to wake that thread for a single connection, and only after a look
at what is left; then the next one has its turn.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import platform
import resource
import select
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

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
_FIND: Final = 0.5
"""Seconds within which libzmq's thread must have begun to listen."""
_PAUSE: Final = 0.0002
_ADD: Final = 1
_REMOVE: Final = 2
_MODIFY: Final = 3


def for_connections(limit: int, first: bool = False) -> int:
    """How many descriptors, of a limit, may be in use when one more connection comes.

    Those that come `first` may have half of the reserve as well.

    >>> for_connections(1024), for_connections(100), for_connections(1024, first=True)
    (960, 75, 992)
    """
    reserve = min(RESERVE, limit // 4)
    return limit - (reserve // 2 if first else reserve)


class NoTurnstileError(Exception):
    """This system, or this libzmq, does not wait for connections in a way that can be guarded."""


class Turnstile:
    """Stands before `accepting`, a listening socket that libzmq's thread waits on.

    `waiting` is another descriptor of the same socket, which the loop can wait on too; whoever
    made it closes it after `close`. Whoever comes here is let in before those at other sockets
    where it is `first`. `on_full(True)` is called when somebody has to wait for a
    descriptor, with False once nobody had to for `CALM` seconds or it is closed. Raises
    NoTurnstileError where this cannot be done, and OSError where it can, but not now.
    """

    def __init__(
        self,
        waiting: socket.socket,
        accepting: int,
        on_full: Callable[[bool], None],
        first: bool = False,
    ) -> None:
        import asyncio

        self.waiting = waiting
        """The socket that it stands before."""
        self._accepting = accepting
        self._on_full = on_full
        self._first = first
        self._full = False
        self._timer: asyncio.TimerHandle | None = None
        self._calm: asyncio.TimerHandle | None = None
        self._ready = select.poll()
        self._ready.register(waiting, select.POLLIN)
        self._poller, self._data = _waiter(accepting)
        self._stop()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(waiting, self._let_in)

    def replace(self, waiting: socket.socket) -> None:
        """Have libzmq's thread wait on another listening socket in place of the one before.

        It knows a number and what is registered for it, so both stay and mean the new socket.
        Whoever still waits at the one before is hung up on when its last descriptor is closed, that
        which came as `waiting`. Raises OSError; called again it goes on where it ended.
        """
        self._loop.remove_reader(self.waiting)
        self._turn(0, _REMOVE)
        os.dup2(waiting.fileno(), self._accepting, inheritable=False)
        self._ready.unregister(self.waiting)
        self._ready.register(waiting, select.POLLIN)
        self.waiting = waiting
        self._stop()
        if self._timer is None:
            self._loop.add_reader(waiting, self._let_in)

    def close(self) -> None:
        """Let nobody in any more; call it before the socket is closed."""
        # Afterwards the number may mean another connection, which must not be touched.
        self._stop()
        self._accepting = -1
        self._loop.remove_reader(self.waiting)
        for timer in (self._timer, self._calm):
            if timer is not None:
                timer.cancel()
        self._timer = self._calm = None
        if self._full:
            self._over()

    def _let_in(self) -> None:
        end = time.monotonic() + AT_ONCE
        while self._room():
            self._turn(select.EPOLLIN | select.EPOLLONESHOT)
            os.sched_yield()
            if time.monotonic() > end or not self._ready.poll(0):
                return
        self._stop()
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
            lowest = os.dup(self._accepting)
        except OSError:
            return False
        os.close(lowest)
        return limit == resource.RLIM_INFINITY or lowest < for_connections(limit, self._first)

    def _stop(self) -> None:
        self._turn(select.EPOLLONESHOT)

    def _turn(self, events: int, how: int = _MODIFY) -> None:
        """Say what libzmq's thread is to be woken for, once."""
        number = self._tell(how, events)
        if number == errno.ENOENT and how == _MODIFY:
            # It has to be known to libzmq's thread again before that closes it, or that aborts.
            number = self._tell(_ADD, events)
        if number not in (0, errno.ENOENT):
            raise OSError(number, os.strerror(number))

    def _tell(self, how: int, events: int) -> int:
        event = _event()(events, self._data)
        done = _epoll_ctl()(self._poller, how, self._accepting, ctypes.byref(event))
        return 0 if done == 0 else ctypes.get_errno()

    def _over(self) -> None:
        self._calm = None
        self._full = False
        self._on_full(False)


def _waiter(accepting: int) -> tuple[int, int]:
    """The epoll descriptor that waits on this one, and what is registered with it there."""
    inode = f"ino:{os.fstat(accepting).st_ino:x}"
    end = time.monotonic() + _FIND
    while True:
        for name in _descriptors():
            found = registered(int(name), accepting, inode)
            if found is not None:
                return int(name), found
        if time.monotonic() > end:
            raise NoTurnstileError("libzmq does not wait for connections with epoll here")
        time.sleep(_PAUSE)  # its thread was told, and is about to


def _descriptors() -> list[str]:
    try:
        return os.listdir("/proc/self/fd")
    except FileNotFoundError:
        raise NoTurnstileError("there is no /proc here") from None


def registered(poller: int, accepting: int, inode: str) -> int | None:
    """Return what is registered for a socket with an epoll descriptor that waits for connections.

    None if it does not wait for that socket yet. `inode` is the socket's, as fdinfo writes it.
    Raises OSError while there is no descriptor to look with.
    """
    try:
        if "eventpoll" not in os.readlink(f"/proc/self/fd/{poller}"):
            return None
        with open(f"/proc/self/fdinfo/{poller}") as file:
            rows = [line.split() for line in file if line.startswith("tfd:")]
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        return None  # closed meanwhile
    for row in rows:
        if row[1] == str(accepting) and inode in row:
            # libzmq adds it with no events and asks for them in a second step, which would undo
            # whatever is said between the two.
            listens = int(row[row.index("events:") + 1], 16) & select.EPOLLIN
            return int(row[row.index("data:") + 1], 16) if listens else None
    return None


@functools.cache
def _event() -> type[ctypes.Structure]:
    class Event(ctypes.Structure):
        if platform.machine() == "x86_64":
            _pack_ = 1
        _fields_ = (("events", ctypes.c_uint32), ("data", ctypes.c_uint64))

    return Event


@functools.cache
def _epoll_ctl() -> Callable[..., int]:
    call = ctypes.CDLL(None, use_errno=True).epoll_ctl
    call.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
    call.restype = ctypes.c_int
    return call
