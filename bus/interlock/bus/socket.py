"""A ZeroMQ socket in an event loop, through its file descriptor."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import zmq
from zmq.utils import garbage

from interlock.bus.errors import ProcessLimitError, UnreachableError
from interlock.bus.messages import MAX_MESSAGE, ZERO_COPY
from interlock.bus.threads import OF_CONTEXT, need_threads

if TYPE_CHECKING:
    import asyncio

Frames = Sequence[bytes | memoryview | zmq.Frame]

HIGH_WATER: Final = 1000
"""Messages that one peer's queue holds before sends to it fail."""
MAX_FRAMES: Final = 8
"""Frames of one message that are kept; no message of any plane has that many."""
SKIPPED: Final = 500
"""Frames of a message of too many that are thrown away in one turn of the loop."""
OWN_DESCRIPTORS: Final = 8
"""Descriptors that a context and its first socket take."""
HANDSHAKE_MS: Final = 5000
"""How long a peer may take to introduce itself."""


class OwnContext(zmq.Context[zmq.Socket[bytes]]):
    """A context whose end never waits for a socket, also when both are merely forgotten.

    The collector of garbage ends a context by waiting until its sockets are closed, and may well
    do so before it closes them, in the same thread: that would last for ever.
    """

    _opened: tuple[zmq.Socket[bytes], ...] = ()
    _begun = False

    def socket(self, *arguments: Any, **options: Any) -> zmq.Socket[bytes]:
        """Open a socket, which is closed with its context at the latest.

        Raises ProcessLimitError where its threads cannot be started.
        """
        if not self._begun:
            need_threads(OF_CONTEXT)  # libzmq would end the process
            self._begun = True
        made: zmq.Socket[bytes] = super().socket(*arguments, **options)
        self._opened = (*(one for one in self._opened if not one.closed), made)
        return made

    @classmethod
    def made(cls, peer: str) -> OwnContext:
        """Make one for connections to `peer`. Raises UnreachableError."""
        spare: list[int] = []
        try:
            # libzmq ends the process if its threads find no descriptor.
            while len(spare) < OWN_DESCRIPTORS:
                spare.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            return cls(io_threads=1)
        except (OSError, zmq.ZMQError) as error:
            raise UnreachableError(peer, error.strerror or str(error)) from None
        finally:
            for descriptor in spare:
                os.close(descriptor)

    def __del__(self) -> None:
        """Close what is open, then end."""
        for one in self._opened:
            one.close(0)
        super().__del__()


def shares_memory() -> bool:
    """Whether frames can be sent without copying: pyzmq has threads for that, since the first one.

    Where these cannot be started they are copied, as libzmq would end the process.
    """
    if not garbage.gc.is_alive():
        try:
            need_threads(OF_CONTEXT + 1)
            garbage.gc.start()
            # The first one also opens a socket for good, which should not look like a leak later.
            zmq.Frame(bytes(1), copy=False, copy_threshold=0)
        except (ProcessLimitError, RuntimeError):
            return False
    return True


def open_socket(
    ctx: zmq.Context[zmq.Socket[bytes]], kind: int, **options: int | bytes
) -> zmq.Socket[bytes]:
    """Make a socket whose queues are bounded and that never delays the end of its process.

    `options` are libzmq socket options in lower case, such as `identity=b"x"` or `immediate=1`;
    they come after the common ones and so may replace them. Set before bind and connect.
    """
    sock = ctx.socket(kind)
    chosen: dict[str, int | bytes] = {
        "linger": 0,
        "sndhwm": HIGH_WATER,
        "rcvhwm": HIGH_WATER,
        "maxmsgsize": MAX_MESSAGE,
        "handshake_ivl": HANDSHAKE_MS,
        "reconnect_ivl": 100,
        "reconnect_ivl_max": 2000,
    }
    if kind == zmq.ROUTER:
        # A full or absent peer is an error to the sender, and nobody takes over a connection.
        chosen |= {"router_mandatory": 1, "router_handover": 0}
    for name, value in (chosen | options).items():
        sock.set(getattr(zmq.SocketOption, name.upper()), value)
    return sock


def connect_socket(
    ctx: zmq.Context[zmq.Socket[bytes]],
    kind: int,
    endpoint: str,
    peer: str,
    **options: int | bytes,
) -> zmq.Socket[bytes]:
    """Make a socket as `open_socket` does and connect it; `peer` names the other end in words.

    Raises UnreachableError, and leaves nothing open then.
    """
    sock = None
    try:
        sock = open_socket(ctx, kind, **options)
        sock.connect(endpoint)
    except zmq.ZMQError as error:
        if sock is not None:
            sock.close(0)
        raise UnreachableError(peer, error.strerror or str(error)) from None
    return sock


# Plain integers: combining and comparing the enum's members would cost as much as a system call.
_EVENTS: Final = int(zmq.EVENTS)
_MORE_COMES: Final = int(zmq.RCVMORE)
_IN: Final = int(zmq.POLLIN)
_OUT: Final = int(zmq.POLLOUT)
_NOW: Final = int(zmq.DONTWAIT)
_NOW_PART: Final = int(zmq.DONTWAIT | zmq.SNDMORE)


class FdSocket:
    """Owns a ZeroMQ socket and calls `on_message` with the frames of each message, in the loop.

    The descriptor announces a change once, and any operation on the socket may swallow the
    announcement. So every wake-up receives until nothing is left (at most `budget` messages, then
    other callbacks have a turn), and sends look again afterwards.

    `on_writable` is called after each wake-up while `want_writable` is True and a peer can take
    messages. What is large is sent without copying, unless it `shares` nothing: for that pyzmq
    needs a thread and seven descriptors, for good.
    """

    __slots__ = (
        "_again",
        "_draining",
        "_fd",
        "_get",
        "_identified",
        "_long",
        "_looked",
        "_loop",
        "_on_message",
        "_on_writable",
        "_recv",
        "_send",
        "_shares",
        "_sock",
        "_want_writable",
        "budget",
        "closed",
        "unreachable",
    )

    def __init__(
        self,
        zmq_socket: zmq.Socket[bytes],
        on_message: Callable[[list[bytes]], None],
        budget: int = 64,
        on_writable: Callable[[], None] | None = None,
        shares: bool = True,
    ) -> None:
        # Imported here: the synchronous client uses this module and should not pay for asyncio.
        import asyncio

        self._sock = zmq_socket
        self._get: Callable[[int], Any] = zmq_socket.get
        self._recv: Callable[[int], bytes] = zmq_socket.recv
        # The method below the one that also knows groups and routing ids.
        self._send: Callable[..., Any] = super(zmq.Socket, zmq_socket).send
        self._identified = zmq_socket.type == zmq.ROUTER
        self._on_message = on_message
        self._on_writable = on_writable
        self._shares = shares
        self.budget = budget
        self.closed = False
        self.unreachable = False
        """Whether the last send that failed had no peer; otherwise its queue was full."""
        self._long = False
        """Further frames of a message that has too many are still to be thrown away."""
        self._want_writable = False
        self._draining = False
        self._looked = False
        self._loop = asyncio.get_running_loop()
        self._fd = int(zmq_socket.get(zmq.FD))
        self._loop.add_reader(self._fd, self._drain)
        self._again: asyncio.Handle | None = self._loop.call_soon(self._drain)

    @property
    def want_writable(self) -> bool:
        """Whether `on_writable` is to be called."""
        return self._want_writable

    @want_writable.setter
    def want_writable(self, wanted: bool) -> None:
        self._want_writable = wanted
        if wanted:  # the look after the send that failed may have swallowed the announcement
            self.look()

    def look(self) -> None:
        """Receive soon what may wait; for whoever used the ZeroMQ socket by itself meanwhile.

        Every operation on it, binding too, may swallow the announcement of a message.
        """
        if self._again is None and not self.closed:
            self._again = self._loop.call_soon(self._drain)

    def send(self, frames: Frames) -> bool:
        """Queue one message; False if its peer's queue is full or the peer is not there.

        Never waits. Frames of `ZERO_COPY` bytes and more are not copied and must not change.
        """
        if self.closed:
            return False
        send = self._send
        try:
            for frame in frames[:-1]:
                send(frame, _NOW_PART)
            frame = frames[-1]
            copied = len(frame) < ZERO_COPY or not (self._shares and shares_memory())
            send(frame, _NOW, copied)
        except zmq.Again:
            self.unreachable = False
            return False
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                self.unreachable = True
                return False
            raise
        finally:
            if not self._draining and self._again is None:
                self._look()
        return True

    def close(self, linger: float = 0.0) -> None:
        """Leave the loop and drop the socket; twice is harmless.

        What is queued is dropped too, or has `linger` seconds to leave.
        """
        if self.closed:
            return
        self.closed = self.unreachable = True
        self._loop.remove_reader(self._fd)
        if self._again is not None:
            self._again.cancel()
            self._again = None
        self._sock.close(round(linger * 1000))

    def _look(self) -> None:
        # A look at once is cheap for a lone send; in a burst of sends one look at its end will do.
        if not self._looked:
            found = self._get(_EVENTS)
            self._looked = True
            if not found & (_IN | _OUT if self._want_writable else _IN):
                return
        self._again = self._loop.call_soon(self._drain_rest)

    def _drain_rest(self) -> None:
        if self._get(_EVENTS) & _IN or self._want_writable:
            self._drain()
        else:
            self._looked = False
            self._again = None

    def _drain(self) -> None:
        self._looked = False
        if self._again is not None:
            self._again.cancel()
            self._again = None
        get, on_message, left = self._get, self._on_message, self.budget
        more, burst = True, False
        self._draining = True
        try:
            # The descriptor rarely wakes up for nothing, so the first receive does not ask.
            frames = self._receive()
            while frames is not None:
                on_message(frames)
                if self.closed:
                    return
                left -= 1
                if not left:
                    break
                if not burst:
                    # For a lone message asking is cheaper than the exception of a receive that
                    # finds nothing; in a burst that exception comes once, asking costs each time.
                    burst = bool(get(_EVENTS) & _IN)
                frames = self._receive() if burst else None
            more = frames is not None
        finally:
            # Also when `on_message` raised: no further edge would come for what is queued.
            self._draining = False
            if (more or self._long) and not self.closed:
                self._again = self._loop.call_soon(self._drain_rest)
        if self._want_writable and self._on_writable is not None and get(_EVENTS) & _OUT:
            self._on_writable()

    def _receive(self) -> list[bytes] | None:
        recv, get = self._recv, self._get
        if self._long and not self._skip():
            return None
        try:
            frames = [recv(_NOW)]
        except zmq.Again:
            return None
        if self._identified:  # an identity is never alone
            frames.append(recv(_NOW))
        while get(_MORE_COMES):
            if len(frames) == MAX_FRAMES:
                self._long = True
                break
            frames.append(recv(_NOW))
        return frames

    def _skip(self) -> bool:
        """Throw away what is left of a message of too many frames; False: there is still more."""
        recv, get = self._recv, self._get
        for _ in range(SKIPPED):
            if not get(_MORE_COMES):
                self._long = False
                return True
            recv(_NOW)
        return False
