"""A DEALER in an event loop, on a connection of its own: see `link`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from interlock.bus.errors import UnreachableError
from interlock.bus.link import Link, LinkClosed, connected
from interlock.bus.messages import ZERO_COPY

Frames = Sequence[bytes | memoryview]

AGAIN: Final = 0.1
"""Seconds until the first further attempt to connect."""
AGAIN_AT_MOST: Final = 2.0
"""Seconds between attempts, once many have failed."""
HANDSHAKE: Final = 5.0
"""Seconds that the other end may take to introduce itself."""
BUDGET: Final = 64
"""Messages delivered in one turn of the loop; then others have theirs."""
MAX_HELD: Final = 64
"""Messages of a burst that are held back until they are sent together."""


class Dealer:
    """Connects to the socket file of a ROUTER, again whenever that hangs up, until it is closed.

    Nothing is kept for a peer that is not there. `on_message` gets the frames of each message;
    `on_writable` is called while `want_writable` is True and messages can be sent;
    `on_unsent(token)` for a message of `send_soon` that found no room after all; `on_lost` when a
    peer that was there has hung up. Making one raises UnreachableError where there is no descriptor
    for it; `peer` names the other end in words.
    """

    def __init__(
        self,
        path: str,
        peer: str,
        on_message: Callable[[list[bytes]], None],
        on_writable: Callable[[], None],
        on_unsent: Callable[[Any], None],
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self.closed = False
        self._path = path
        self._on_message = on_message
        self._on_writable = on_writable
        self._on_unsent = on_unsent
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._link: Link | None = None
        self._introduced = False
        self._timer: asyncio.TimerHandle | None = None
        """Of the next attempt, or of the time that the other end has to introduce itself."""
        self._pause = AGAIN
        self._reading = False
        self._writing = False
        self._want_writable = False
        self._inbox: deque[list[bytes]] = deque()
        self._rest: asyncio.Handle | None = None
        self._sent = False
        """Something was sent since the last message came."""
        self._full = False
        """A message that was held found no room, so until the turn ends none is held."""
        self._held: list[tuple[Frames, Any]] = []
        self._over: asyncio.Handle | None = None
        try:
            self._connect()
        except OSError as error:
            raise UnreachableError(peer, error.strerror or str(error)) from None

    @property
    def want_writable(self) -> bool:
        """Whether `on_writable` is to be called."""
        return self._want_writable

    @want_writable.setter
    def want_writable(self, wanted: bool) -> None:
        self._want_writable = wanted
        if wanted and self._introduced and not self._writing:
            self._loop.call_soon(self._now_writable)

    @property
    def held(self) -> list[Any]:
        """The tokens of messages that wait for the end of the loop's turn."""
        return [token for _, token in self._held]

    def send(self, frames: Frames, always: bool = False) -> bool:
        """Send one message; False if the peer is not there, or too many wait for it. Never waits.

        One that is to be sent `always` is so however many wait. Frames of `ZERO_COPY` bytes and
        more are not copied and must not change.
        """
        if self._held:
            self._release()
        link = self._link
        if link is None or not link.send(frames, always):
            return False
        if link.pending and not self._writing:
            self._write_later(link)
        return True

    def send_soon(self, frames: Frames, token: Any = None) -> bool:
        """Send as `send` does; in a burst, together with others at the end of the loop's turn.

        Each write is a system call and a wake-up of the other end. True may mean that the message
        is held; `on_unsent(token)` is called if it then finds no room. The order of messages stays.
        """
        if len(self._held) >= MAX_HELD:
            self._release()
        at_once = not self._sent or self._full or not self._introduced
        if at_once or len(frames[-1]) >= ZERO_COPY:
            self._sent = True
            return self.send(frames)
        self._held.append((frames, token))
        if self._over is None:
            self._over = self._loop.call_soon(self._turn_over)
        return True

    def hear_out(self) -> None:
        """Deliver what a peer that is gone has said, before `close`."""
        if self._link is not None:
            self._inbox.extend(self._link.last_words())
        while self._inbox and not self.closed:
            self._on_message(self._inbox.popleft())

    def close(self) -> None:
        """Hang up and connect no more; twice is harmless."""
        self.closed = True
        self._held.clear()
        for handle in (self._timer, self._rest, self._over):
            if handle is not None:
                handle.cancel()
        self._timer = self._rest = self._over = None
        self._inbox.clear()
        self._drop()

    # --- the connection ---

    def _connect(self) -> None:
        self._timer = None
        self._link = connected(self._path, "DEALER")
        if self._link is None:
            self._again()
            return
        self._read(True)
        self._timer = self._loop.call_later(HANDSHAKE, self._lost)

    def _connect_again(self) -> None:
        try:
            self._connect()
        except OSError:  # no descriptor, now
            self._again()

    def _again(self) -> None:
        self._timer = self._loop.call_later(self._pause, self._connect_again)
        self._pause = min(2 * self._pause, AGAIN_AT_MOST)

    def _lost(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        introduced = self._introduced
        self._drop()
        self._again()
        if introduced:
            self._on_lost()

    def _drop(self) -> None:
        self._introduced = False
        link, self._link = self._link, None
        if link is not None and not link.closed:
            self._loop.remove_reader(link.fd)
            self._loop.remove_writer(link.fd)
            link.close()
        self._reading = self._writing = False

    # --- receiving ---

    def _readable(self) -> None:
        link = self._link
        if link is None:
            return
        try:
            messages = link.receive()
        except LinkClosed:
            self._lost()
            return
        if link.pending and not self._writing:
            self._write_later(link)
        if not self._introduced and link.ready:
            self._greeted()
        if messages:
            self._sent = False
            self._inbox.extend(messages)
        if self._rest is None:
            if self._inbox or link.more:
                self._deliver()
            else:
                self._read(True)

    def _deliver(self) -> None:
        self._rest = None
        inbox = self._inbox
        try:
            for _ in range(min(BUDGET, len(inbox))):
                self._on_message(inbox.popleft())
                if self.closed:
                    return
        finally:
            # Also when `on_message` raised: no further wake-up would come for what is here.
            link = self._link
            more = link is not None and link.more
            if inbox:
                self._rest = self._loop.call_soon(self._deliver)
            elif more:
                self._rest = self._loop.call_soon(self._go_on)
            self._read(not inbox and not more)

    def _go_on(self) -> None:
        self._rest = None
        self._readable()

    def _read(self, on: bool) -> None:
        """Read from the connection only while all that came is delivered."""
        if on == self._reading or self._link is None:
            return
        self._reading = on
        if on:
            self._loop.add_reader(self._link.fd, self._readable)
        else:
            self._loop.remove_reader(self._link.fd)

    def _greeted(self) -> None:
        self._introduced = True
        self._pause = AGAIN
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._now_writable()

    # --- sending ---

    def _write_later(self, link: Link) -> None:
        self._writing = True
        self._loop.add_writer(link.fd, self._writable)

    def _writable(self) -> None:
        link = self._link
        if link is None:
            return
        link.flush()
        if not link.pending:
            self._writing = False
            self._loop.remove_writer(link.fd)
            self._now_writable()

    def _now_writable(self) -> None:
        if self._want_writable and self._introduced:
            self._on_writable()

    def _turn_over(self) -> None:
        self._over = None
        if self._held:
            self._release()
        self._sent = self._full = False

    def _release(self) -> None:
        held, self._held = self._held, []
        link = self._link
        taken = 0 if link is None else link.send_all([frames for frames, _ in held])
        if link is not None and link.pending and not self._writing:
            self._write_later(link)
        for _, token in held[taken:]:
            self._full = True
            self._on_unsent(token)
