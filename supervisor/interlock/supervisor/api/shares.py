"""How many bytes each client has, and all together: of requests, or of answers it did not take."""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

import zmq

from interlock.bus.socket import shares_memory

OF_CLIENT: Final = 8 << 20
"""Bytes from which on one client gets nothing more until some of its own are gone."""
OF_ALL: Final = 128 << 20
"""Bytes from which on only those who have nothing get something, at most `SMALL`."""
SMALL: Final = 1 << 20
"""Bytes that a client that has nothing gets whatever others have."""
CONFIRMED: Final = 16 << 10
"""Bytes to one client after which libzmq is asked to tell when they have left."""


class Shares:
    """Bytes by client. A client is nothing here as soon as it has none."""

    def __init__(
        self, of_client: int = OF_CLIENT, of_all: int = OF_ALL, small: int = SMALL
    ) -> None:
        self._of_client = of_client
        self._of_all = of_all
        self._small = small
        self._bytes: Counter[bytes] = Counter()
        self.total = 0

    def fits(self, client: bytes, size: int) -> bool:
        """Whether the client may have that much more; the first may be as large as there is room.

        >>> shares = Shares(of_client=10, of_all=20, small=5)
        >>> shares.fits(b"a", 15), shares.fits(b"a", 25)
        (True, False)
        >>> shares.add(b"a", 15)
        >>> shares.fits(b"a", 1), shares.fits(b"b", 5), shares.fits(b"b", 6)
        (False, True, False)
        """
        has = self._bytes[client]
        if not has and size <= self._small:
            return True
        if self.total + size > self._of_all:
            return False
        return not has or has + size <= self._of_client

    def has_room(self, size: int) -> bool:
        """Whether that much more is within the bound for all."""
        return self.total + size <= self._of_all

    def add(self, client: bytes, size: int) -> None:
        """The client has that much more."""
        self._bytes[client] += size
        self.total += size

    def remove(self, client: bytes, size: int) -> None:
        """The client has that much less."""
        self.total -= size
        self._bytes[client] -= size
        if not self._bytes[client]:
            del self._bytes[client]


class Unsent:
    """Answers that libzmq still holds, by client.

    It holds them in order and says of a frame when it has left. To ask costs more than a small
    answer does, so one frame speaks for the small ones before it.
    """

    def __init__(self, shares: Shares | None = None) -> None:
        self._shares = shares or Shares()
        self._asked: dict[bytes, deque[tuple[zmq.MessageTracker, int]]] = {}
        self._not_asked: dict[bytes, int] = {}

    @property
    def total(self) -> int:
        """Bytes of all clients that libzmq was asked about and still holds."""
        self._look()
        return self._shares.total

    def fits(self, client: bytes, size: int) -> bool:
        """Whether that much more may be sent to the client now."""
        self._look(client)
        if self._shares.fits(client, size):
            return True
        self._look()
        return self._shares.fits(client, size)

    def has_room(self, size: int) -> bool:
        """Whether that much more may be sent to anybody now."""
        if not self._shares.has_room(size):
            self._look()
        return self._shares.has_room(size)

    def frame(self, client: bytes, body: bytes) -> bytes | zmq.Frame:
        """Make the frame to send, which can tell of its end if that is wanted now."""
        if self._not_asked.get(client, 0) + len(body) < CONFIRMED or not shares_memory():
            return body
        return zmq.Frame(body, track=True, copy=False)

    def sent(self, client: bytes, frame: bytes | zmq.Frame) -> None:
        """That frame was taken by libzmq."""
        size = len(frame)
        if isinstance(frame, bytes):
            self._not_asked[client] = self._not_asked.get(client, 0) + size
            return
        size += self._not_asked.pop(client, 0)
        assert isinstance(frame.tracker, zmq.MessageTracker)
        self._asked.setdefault(client, deque()).append((frame.tracker, size))
        self._shares.add(client, size)

    def forget(self, client: bytes) -> None:
        """The client is gone; what libzmq holds for it counts until that is gone, too."""
        self._not_asked.pop(client, None)

    def _look(self, client: bytes | None = None) -> None:
        """Take off what has left, of one client or of all."""
        for one in tuple(self._asked) if client is None else (client,):
            waiting = self._asked.get(one)
            while waiting and waiting[0][0].done:
                self._shares.remove(one, waiting.popleft()[1])
            if waiting is not None and not waiting:
                del self._asked[one]
