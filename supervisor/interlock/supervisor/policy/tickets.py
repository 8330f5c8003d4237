"""Issues every ticket: keys of generations, tickets of turns and of clients, revocations."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from interlock.bus.messages import Revoke
from interlock.bus.records import Target


class Revocation(msgspec.Struct, frozen=True, kw_only=True):
    """A `revoke` to send to one generation of a serving worker."""

    worker: str
    generation: int
    message: Revoke


class TicketOffice:
    """Holds the keys of the generations that serve now, and what it issued under them."""

    def __init__(self, life: float = 60.0, clock: Callable[[], float] = time.time) -> None:
        raise NotImplementedError

    def open_target(self, worker: str, generation: int, key: bytes, endpoint: str) -> None:
        """A generation serves from now on, under that key (call it at `ready`)."""
        raise NotImplementedError

    def close_target(self, worker: str, generation: int) -> None:
        """A generation ended: nothing is issued for it any more."""
        raise NotImplementedError

    def turn_target(
        self, worker: str, turn: str, caller: str, names: Sequence[str]
    ) -> Target | None:
        """A ticket for all `names` of the worker's current generation; None if none serves."""
        raise NotImplementedError

    def api_target(self, worker: str, local: str, caller: str) -> Target | None:
        """A ticket for one name, for an api client; None if none serves."""
        raise NotImplementedError

    def revoke_turn(self, turn: str) -> tuple[Revocation, ...]:
        """Void all tickets of a turn: one message for each generation that still serves."""
        raise NotImplementedError

    def revoked(self, worker: str, generation: int, n: int) -> None:
        """A worker acknowledged revocation `n`."""
        raise NotImplementedError

    def unacknowledged(self) -> int:
        """Revocations that no worker has acknowledged yet."""
        raise NotImplementedError
