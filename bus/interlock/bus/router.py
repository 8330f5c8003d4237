"""A ROUTER in an event loop that reads and writes its connections itself: see `link`."""

from __future__ import annotations

import asyncio
import itertools
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from interlock.bus.entrance import Door
from interlock.bus.link import Link, LinkClosed
from interlock.bus.messages import ZERO_COPY

Frames = Sequence[bytes | memoryview]

HANDSHAKE: Final = 5.0
"""Seconds that a caller may take to introduce itself."""
BUDGET: Final = 64
"""Messages of one caller delivered in one turn of the loop; then others have theirs."""
MAX_HELD: Final = 64
"""Messages of a burst that are held back until they are sent together."""


class _Peer:
    """One connection. `inbox` has what came and was not delivered yet, `since` when it came."""

    __slots__ = ("identity", "inbox", "link", "reading", "rest", "since", "writing")

    def __init__(self, link: Link, since: float) -> None:
        self.link = link
        self.since = since
        self.identity = b""
        self.inbox: deque[list[bytes]] = deque()
        self.rest: asyncio.Handle | None = None
        self.reading = False
        self.writing = False


class Router:
    """Listens at `address` and calls `on_message` with the identity and frames of each message.

    `on_burst(True)` is called when a caller has sent more than one message, before the second one
    is delivered, and `on_burst(False)` after the last. `on_unsent(token)` is called for a message
    of `send_soon` that found no room after all, `on_gone(identity)` when a peer has hung up, and
    `on_full` as by `Entrance`. Raises OSError.
    """

    def __init__(
        self,
        address: str,
        on_message: Callable[[list[bytes]], None],
        *,
        on_burst: Callable[[bool], None] | None = None,
        on_unsent: Callable[[Any], None] = lambda token: None,
        on_gone: Callable[[bytes], None] = lambda identity: None,
        on_full: Callable[[bool], None] = lambda full: None,
    ) -> None:
        self.closed = False
        self.unreachable = False
        """Whether the last send that failed had no peer; otherwise its queue was full."""
        self._on_message = on_message
        self._on_burst = on_burst
        self._on_unsent = on_unsent
        self._on_gone = on_gone
        self._loop = asyncio.get_running_loop()
        self._names = itertools.count(1)
        self._peers: dict[bytes, _Peer] = {}
        """Those that have introduced themselves, by identity."""
        self._strangers: dict[int, _Peer] = {}
        """The others, by descriptor, the oldest first."""
        self._late: asyncio.TimerHandle | None = None
        self._sent = False
        """Something was sent since the last message came."""
        self._full = False
        """A message that was held found no room, so until the turn ends none is held."""
        self._held: list[tuple[Frames, Any]] = []
        self._over: asyncio.Handle | None = None
        self._door = Door(address, self._connected, on_full)

    def send(self, frames: Frames) -> bool:
        """Send a message, the first frame the identity of its receiver. Never waits.

        False if there is no such peer, or too many wait for it. Frames of `ZERO_COPY` bytes and
        more are not copied and must not change.
        """
        if self._held:
            self._release()
        return self._send_now(frames)

    def send_soon(self, frames: Frames, token: Any = None) -> bool:
        """Send as `send` does; in a burst, together with others at the end of the loop's turn.

        Each write is a system call and a wake-up of the other end. True may mean that the message
        is held; `on_unsent(token)` is called if it then finds no room. The order of messages stays.
        """
        if len(self._held) >= MAX_HELD:
            self._release()
        if not self._sent or self._full or len(frames[-1]) >= ZERO_COPY:
            self._sent = True
            return self.send(frames)
        self._held.append((frames, token))
        if self._over is None:
            self._over = self._loop.call_soon(self._turn_over)
        return True

    def trust(self, identity: bytes) -> None:
        """Take large messages of that peer from now on, and many at once."""
        peer = self._peers.get(identity)
        if peer is not None:
            peer.link.trust()

    def mend(self) -> bool:
        """Listen again if the socket file was removed; True if that was so. Raises OSError."""
        return not self.closed and self._door.mend()

    def close(self, linger: float = 0.0) -> None:
        """Hang up on everybody and remove the socket file; twice is harmless.

        What is queued is dropped too, or has `linger` seconds to leave, during which this waits.
        """
        if self.closed:
            return
        self.closed = True
        self._door.close()
        if self._held:
            self._release()
        if linger:
            self._flush(time.monotonic() + linger)
        for handle in (self._late, self._over):
            if handle is not None:
                handle.cancel()
        for peer in (*self._peers.values(), *self._strangers.values()):
            self._forget(peer)

    # --- connections ---

    def _connected(self, connection: socket.socket) -> None:
        peer = _Peer(Link(connection, "ROUTER"), self._loop.time())
        self._strangers[peer.link.fd] = peer
        self._read(peer, True)
        if self._late is None:
            self._late = self._loop.call_later(HANDSHAKE, self._too_late)

    def _too_late(self) -> None:
        self._late = None
        before = self._loop.time() - HANDSHAKE
        while self._strangers:
            oldest = next(iter(self._strangers.values()))
            if oldest.since > before:
                self._late = self._loop.call_at(oldest.since + HANDSHAKE, self._too_late)
                return
            self._forget(oldest)

    def _introduced(self, peer: _Peer) -> bool:
        """Give a peer its identity; False if it has chosen one that is taken."""
        identity = peer.link.identity
        while not identity or identity in self._peers:
            if identity == peer.link.identity and identity:
                return False
            # As libzmq's: a zero byte, with which no chosen one may begin, and a number.
            identity = b"\0" + (next(self._names) & 0xFFFFFFFF).to_bytes(4)
        del self._strangers[peer.link.fd]
        peer.identity = identity
        self._peers[identity] = peer
        return True

    def _hung_up(self, peer: _Peer) -> None:
        # All that it said before is delivered: nothing is read while something waits for that.
        self._forget(peer)
        if peer.identity:
            self._on_gone(peer.identity)

    def _forget(self, peer: _Peer) -> None:
        self._strangers.pop(peer.link.fd, None)
        if self._peers.get(peer.identity) is peer:
            del self._peers[peer.identity]
        if peer.rest is not None:
            peer.rest.cancel()
        peer.inbox.clear()
        if not peer.link.closed:
            self._loop.remove_reader(peer.link.fd)
            self._loop.remove_writer(peer.link.fd)
            peer.link.close()

    def _read(self, peer: _Peer, on: bool) -> None:
        if on == peer.reading or peer.link.closed:
            return
        peer.reading = on
        if on:
            self._loop.add_reader(peer.link.fd, self._readable, peer)
        else:
            self._loop.remove_reader(peer.link.fd)

    # --- receiving ---

    def _readable(self, peer: _Peer) -> None:
        link = peer.link
        try:
            messages = link.receive()
        except LinkClosed:
            self._hung_up(peer)
            return
        if link.pending and not peer.writing:
            self._write_later(peer)
        if not peer.identity and link.ready and not self._introduced(peer):
            self._forget(peer)
            return
        if messages:
            self._sent = False
            peer.inbox.extend(messages)
        if peer.rest is None:
            if peer.inbox or link.more:
                self._deliver(peer)
            else:
                self._read(peer, True)

    def _deliver(self, peer: _Peer) -> None:
        peer.rest = None
        inbox, identity, on_message = peer.inbox, peer.identity, self._on_message
        burst = False
        try:
            for _ in range(min(BUDGET, len(inbox))):
                on_message([identity, *inbox.popleft()])
                if self.closed or not inbox:
                    break
                if not burst and self._on_burst is not None:
                    burst = True
                    self._on_burst(True)
        finally:
            # Also when `on_message` raised: no further wake-up would come for what is here.
            more = peer.link.more
            if inbox:
                peer.rest = self._loop.call_soon(self._deliver, peer)
            elif more:
                peer.rest = self._loop.call_soon(self._go_on, peer)
            self._read(peer, not inbox and not more)
            if burst and self._on_burst is not None:
                self._on_burst(False)

    def _go_on(self, peer: _Peer) -> None:
        peer.rest = None
        self._readable(peer)

    # --- sending ---

    def _send_now(self, frames: Frames) -> bool:
        peer = self._peers.get(frames[0])  # type: ignore[arg-type]  # identities are bytes
        self.unreachable = peer is None
        if peer is None or not peer.link.send(frames[1:]):
            return False
        if peer.link.pending and not peer.writing:
            self._write_later(peer)
        return True

    def _turn_over(self) -> None:
        self._over = None
        if self._held:
            self._release()
        self._sent = self._full = False

    def _release(self) -> None:
        held, self._held = self._held, []
        by_peer: dict[bytes, list[tuple[Frames, Any]]] = {}
        for one in held:
            by_peer.setdefault(one[0][0], []).append(one)  # type: ignore[arg-type]
        for identity, messages in by_peer.items():
            peer = self._peers.get(identity)
            taken = 0
            if peer is not None:
                taken = peer.link.send_all([frames[1:] for frames, _ in messages])
                if peer.link.pending and not peer.writing:
                    self._write_later(peer)
            for _, token in messages[taken:]:
                self._full = True
                self.unreachable = peer is None
                self._on_unsent(token)

    def _write_later(self, peer: _Peer) -> None:
        peer.writing = True
        self._loop.add_writer(peer.link.fd, self._writable, peer)

    def _writable(self, peer: _Peer) -> None:
        peer.link.flush()
        if not peer.link.pending:
            peer.writing = False
            self._loop.remove_writer(peer.link.fd)

    def _flush(self, until: float) -> None:
        """Write what waits, and wait for its readers until that moment."""
        poller = select.poll()
        waiting = {peer.link.fd: peer.link for peer in self._peers.values() if peer.link.pending}
        for descriptor in waiting:
            poller.register(descriptor, select.POLLOUT)
        while waiting and (left := until - time.monotonic()) > 0:
            for descriptor, events in poller.poll(left * 1000):
                link = waiting[descriptor]
                link.flush()
                if not link.pending or events & (select.POLLHUP | select.POLLERR):
                    poller.unregister(descriptor)
                    del waiting[descriptor]
