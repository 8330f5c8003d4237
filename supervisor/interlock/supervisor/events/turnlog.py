"""The items of every turn in memory, and the clients that watch them."""

from __future__ import annotations

from collections.abc import Sequence

from interlock.supervisor.events.journal import Journal
from interlock.supervisor.events.ports import Answer


class TurnLogs:
    """Owns the items of all turns; streams them to watchers without ever waiting for one."""

    def __init__(self, journal: Journal, answer: Answer) -> None:
        raise NotImplementedError

    def append(self, turn: str, items: Sequence[bytes]) -> None:
        """Add complete items and send them to watchers."""
        raise NotImplementedError

    def credit(self, identity: bytes, watch: int, credit: int) -> None:
        """Let a watcher have more items."""
        raise NotImplementedError

    def unwatch(self, identity: bytes, watch: int) -> None:
        """End one watch."""
        raise NotImplementedError

    def drop_client(self, identity: bytes) -> None:
        """End all watches of a client that is gone."""
        raise NotImplementedError
