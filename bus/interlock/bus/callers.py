"""The connections of a serving worker's callers: who is there, who is gone, who makes room."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from interlock.bus.admission import Holder
from interlock.bus.codec import Encoding
from interlock.bus.errors import InterlockError, OverloadedError, TicketError

if TYPE_CHECKING:
    from interlock.bus.dataserver import IncomingCall

MAX_CONNECTIONS: Final = 1024
"""Connections with a valid ticket at the same time."""
MAX_REFUSED: Final = 1024
"""Refused tickets whose reason is remembered for the calls that follow."""
LONGEST_ID: Final = 64
"""Characters of a ticket's id that is remembered and repeated."""
_CLIENTS: Final = "api:"


class Connection:
    """What a peer has presented and asked for. `used` is monotonic seconds."""

    __slots__ = ("calls", "encoding", "holder", "identity", "used")

    def __init__(self, identity: bytes, encoding: Encoding, holder: Holder, used: float) -> None:
        self.identity = identity
        self.encoding: Encoding = encoding
        self.holder = holder
        self.calls: dict[int, IncomingCall] = {}
        self.used = used


class Callers:
    """Owns the connections. `receiving()` tells which peers still get an answer."""

    def __init__(self, worker: str, receiving: Callable[[], set[bytes]]) -> None:
        self._worker = worker
        self._receiving = receiving
        self._connections: dict[bytes, Connection] = {}
        self._refused: OrderedDict[tuple[bytes, str], tuple[str, str]] = OrderedDict()

    def __len__(self) -> int:
        """How many connections there are."""
        return len(self._connections)

    def __iter__(self) -> Iterator[Connection]:
        """All of them, the oldest first."""
        return iter(self._connections.values())

    def get(self, identity: bytes) -> Connection | None:
        """The connection of that peer, if it has presented a valid ticket."""
        return self._connections.get(identity)

    def add(self, identity: bytes, encoding: Encoding, caller: str, now: float) -> Connection:
        """Take a new connection; if there is no room, an idle one is given up for it.

        Raises OverloadedError if none is idle.
        """
        if len(self._connections) >= MAX_CONNECTIONS:
            self._make_room()
        connection = Connection(identity, encoding, Holder(caller), now)
        self._connections[identity] = connection
        return connection

    def gone(self, identity: bytes) -> None:
        """Drop a connection whose peer has hung up, and cancel what it asked for."""
        connection = self._connections.pop(identity, None)
        if connection is not None:
            for call in tuple(connection.calls.values()):
                call.cancel()

    def forget(self, before: float) -> None:
        """Drop idle connections whose tickets had all expired before that moment."""
        receiving = self._receiving()
        for connection in tuple(self):
            held = connection.holder.forget_expired(before)
            if not held and not connection.calls and connection.identity not in receiving:
                del self._connections[connection.identity]

    def refuse(self, identity: bytes, ticket: str, error: InterlockError) -> None:
        """Remember why a ticket was not opened: its calls may be on their way already."""
        if len(ticket) > LONGEST_ID:
            return
        self._refused[identity, ticket] = (error.code, error.message)
        self._refused.move_to_end((identity, ticket))
        if len(self._refused) > MAX_REFUSED:
            self._refused.popitem(last=False)

    def why_not(self, identity: bytes, ticket: str) -> InterlockError:
        """Why there is no such ticket open on that connection."""
        known = self._refused.get((identity, ticket))
        # A new one each time: an error that is raised keeps what the frames on its way hold.
        return InterlockError(known[1], code=known[0]) if known else TicketError("not_open")

    def _make_room(self) -> None:
        """Give one idle connection up: of whoever has most, the one that was not used longest.

        All clients of the api count as one: a program can have as many names as it likes.
        """
        receiving = self._receiving()
        crowds = Counter(_crowd(connection) for connection in self)
        idle = [one for one in self if not one.calls and one.identity not in receiving]
        if not idle:
            raise OverloadedError(f"{self._worker} has too many callers; try again later.")
        least = min(idle, key=lambda one: (-crowds[_crowd(one)], one.used))
        del self._connections[least.identity]


def _crowd(connection: Connection) -> str:
    caller = connection.holder.caller
    return _CLIENTS if caller.startswith(_CLIENTS) else caller
