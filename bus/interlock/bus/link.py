"""One connection of the data plane: a ZeroMQ socket's end of it without libzmq's thread.

A message through libzmq wakes a thread up at each end that only moves it on, which takes longer
than the message itself. Here whoever has the message writes it, and whoever wants it reads it; the
other end may be libzmq and does not notice.
"""

from __future__ import annotations

import contextlib
import errno
import math
import socket
from collections import deque
from collections.abc import Sequence
from typing import Final

from interlock.bus.messages import MAX_MESSAGE, ZERO_COPY
from interlock.bus.zmtp import ProtocolFault, Reader, opening, prefix, small_message

HIGH_WATER: Final = 1000
"""Messages that wait for a peer that does not read, before sends to it fail."""
MAX_FRAMES: Final = 8
"""Frames of one message that are kept; no message of any plane has that many."""
MAX_WAITING: Final = 16 << 20
"""Bytes that wait for a caller that does not read; one message may be larger. Callers have no such
bound: what waits there are arguments that they hold anyway."""
MAX_FIRST: Final = 512 << 10
"""Bytes of a message of a peer that has not proven yet that it may call."""
READ_SIZE: Final = 64 << 10
MOST: Final = 256
"""Messages that one look at a connection takes."""
LAST_READS: Final = 64
"""Reads from an end that is gone: more than the system keeps of one connection."""


class LinkClosed(Exception):  # noqa: N818 - the end of a connection is no error
    """The other end hung up, or has to be hung up on."""


class Link:
    """Owns a connected socket; never waits. `kind` is the type of this end: DEALER or ROUTER.

    If anything raises but what is said here, such as an interrupt, it is of no use any more.
    """

    __slots__ = (
        "_broken",
        "_bytes",
        "_max_waiting",
        "_messages",
        "_out",
        "_reader",
        "_sock",
        "closed",
        "fd",
    )

    def __init__(self, sock: socket.socket, kind: str) -> None:
        sock.setblocking(False)
        self._sock = sock
        self.fd = sock.fileno()
        self.closed = False
        if kind == "ROUTER":
            self._reader = Reader(kind, MAX_FIRST, MAX_FRAMES, most=1)
            self._max_waiting: float = MAX_WAITING
        else:
            self._reader = Reader(kind, MAX_MESSAGE, MAX_FRAMES)
            self._max_waiting = math.inf
        self._out: deque[tuple[bytes | memoryview, int]] = deque()
        """What waits, and of how many messages each buffer is the end."""
        self._messages = 0
        self._bytes = 0
        self._broken = False
        """The other end is gone; what it had said before may still be there to be read."""
        self._write([opening(kind)])

    @property
    def ready(self) -> bool:
        """Whether messages can be sent: the other end has introduced itself."""
        return self._reader.ready

    @property
    def identity(self) -> bytes:
        """The name that the other end has given itself; usually empty."""
        return self._reader.identity

    @property
    def pending(self) -> bool:
        """Whether something waits until the other end reads: call `flush` when it can."""
        return bool(self._out)

    @property
    def more(self) -> bool:
        """Whether `receive` has further messages without anything new to read."""
        return self._reader.more and not self.closed

    def trust(self) -> None:
        """Take large messages, and many at once, from now on."""
        self._reader.max_size = MAX_MESSAGE
        self._reader.most = MOST

    def send(self, frames: Sequence[bytes | memoryview], always: bool = False) -> bool:
        """Send one message, or keep it until the other end reads.

        False if too many are kept, unless it is to be sent `always`, or if the other end is gone:
        then it did not get this one. Frames of `ZERO_COPY` bytes and more are not copied and must
        not change.
        """
        if self.closed or not self._reader.ready or self._broken or (self._full and not always):
            return False
        if len(frames[-1]) < ZERO_COPY:
            self._write([small_message(frames)])
        else:
            last = frames[-1]
            first = b"".join(prefix(len(one), True) + bytes(one) for one in frames[:-1])
            self._write([first + prefix(len(last), False), memoryview(last)])
        return not self._broken

    def send_all(self, messages: Sequence[Sequence[bytes | memoryview]]) -> int:
        """Send small messages as one; returns how many of them, from the first, found room."""
        if self.closed or not self._reader.ready or self._full:
            return 0
        taken = messages[: HIGH_WATER - self._messages]
        self._write([b"".join(map(small_message, taken))], len(taken))
        return 0 if self._broken else len(taken)

    def flush(self) -> None:
        """Write what waits, as far as the other end takes it."""
        out = self._out
        while out and not self.closed:
            first, messages = out[0]
            sent = self._sent([first])
            self._bytes -= sent
            if sent < len(first):
                out[0] = (memoryview(first)[sent:], messages)
                return
            self._messages -= messages
            out.popleft()

    def receive(self) -> list[list[bytes]]:
        """Read once and return the messages that are whole now.

        Raises LinkClosed.
        """
        data = b"" if self._reader.more else self._read()
        if data is None:
            return []
        messages = self._messages_of(data)
        if self._reader.reply:
            reply, self._reader.reply = self._reader.reply, b""
            if not self._out:  # who does not read what was said before misses no sign of life
                self._write([reply])
        return messages

    def last_words(self) -> list[list[bytes]]:
        """Return all messages that are here, from an end that is gone and says nothing more."""
        found: list[list[bytes]] = []
        with contextlib.suppress(LinkClosed):
            for _ in range(LAST_READS):
                while self._reader.more:
                    found += self._messages_of(b"")
                data = self._read()
                if data is None:
                    break
                found += self._messages_of(data)
        return found

    def close(self) -> None:
        """Hang up; twice is harmless."""
        if not self.closed:
            self.closed = True
            self._out.clear()
            self._sock.close()

    @property
    def _full(self) -> bool:
        return self._broken or self._messages >= HIGH_WATER or self._bytes > self._max_waiting

    def _read(self) -> bytes | None:
        """Return what is here, None if nothing is. Raises LinkClosed."""
        if self.closed:
            raise LinkClosed
        try:
            data = self._sock.recv(READ_SIZE)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        if not data:
            raise LinkClosed
        return data

    def _messages_of(self, data: bytes) -> list[list[bytes]]:
        try:
            return self._reader.feed(data)
        except ProtocolFault as fault:
            raise LinkClosed(str(fault)) from None

    def _write(self, buffers: Sequence[bytes | memoryview], messages: int = 1) -> None:
        """Write buffers that are so many messages, or keep what is left of them."""
        sent = 0 if self._out else self._sent(buffers)
        for buffer in buffers:
            if sent >= len(buffer):
                sent -= len(buffer)
                continue
            left = memoryview(buffer)[sent:] if sent else buffer
            self._bytes += len(left)
            last = buffer is buffers[-1]
            self._messages += messages if last else 0
            self._out.append((left, messages if last else 0))
            sent = 0

    def _sent(self, buffers: Sequence[bytes | memoryview]) -> int:
        try:
            if len(buffers) == 1:
                return self._sock.send(buffers[0])
            return self._sock.sendmsg(buffers)
        except BlockingIOError:
            return 0
        except OSError as error:
            if error.errno in (errno.ENOBUFS, errno.ENOMEM):
                return 0
            self._broken = True
            return sum(map(len, buffers))


def connected(path: str, kind: str) -> Link | None:
    """Connect to a socket file; None if nobody listens there, or there is no room now.

    Raises OSError where no socket can be had at all, or the path is none.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        missing = sock.connect_ex(path)
    except OSError:  # no path at all
        sock.close()
        raise
    if missing:
        sock.close()
        return None
    return Link(sock, kind)


def path_of(endpoint: str) -> str:
    """Return the socket file of an `ipc://` address."""
    return endpoint.removeprefix("ipc://")
