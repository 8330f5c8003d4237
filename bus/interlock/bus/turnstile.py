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
import select
import socket
import time
from collections.abc import Callable
from typing import Final

from interlock.bus.entrance import Entrance

_FIND: Final = 0.5
"""Seconds within which libzmq's thread must have begun to listen."""
_PAUSE: Final = 0.0002
_ADD: Final = 1
_REMOVE: Final = 2
_MODIFY: Final = 3


class NoTurnstileError(Exception):
    """This system, or this libzmq, does not wait for connections in a way that can be guarded."""


class Turnstile(Entrance):
    """Stands before `accepting`, a listening socket that libzmq's thread waits on.

    `waiting` is another descriptor of the same socket, which the loop can wait on too. Raises
    NoTurnstileError where this cannot be done, and OSError where it can, but not now.
    """

    def __init__(
        self,
        waiting: socket.socket,
        accepting: int,
        on_full: Callable[[bool], None],
        first: bool = False,
    ) -> None:
        self._accepting = accepting
        self._poller, self._data = _waiter(accepting)
        self.pause()
        super().__init__(waiting, on_full, first)

    def replace(self, waiting: socket.socket) -> None:
        """Have libzmq's thread wait on another listening socket in place of the one before.

        It knows a number and what is registered for it, so both stay and mean the new socket.
        Whoever still waits at the one before is hung up on when its last descriptor is closed, that
        which came as `waiting`. Raises OSError; called again it goes on where it ended.
        """
        self._loop.remove_reader(self.waiting)
        self._turn(0, _REMOVE)
        os.dup2(waiting.fileno(), self._accepting, inheritable=False)
        self.pause()
        self.turn_to(waiting)

    def close(self) -> None:
        """Let nobody in any more; call it before the socket is closed."""
        # Afterwards the number may mean another connection, which must not be touched.
        self.pause()
        self._accepting = -1
        super().close()

    def take(self) -> bool:
        """Have libzmq's thread take one connection."""
        self._turn(select.EPOLLIN | select.EPOLLONESHOT)
        os.sched_yield()
        return True

    def pause(self) -> None:
        """Have it take none."""
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
