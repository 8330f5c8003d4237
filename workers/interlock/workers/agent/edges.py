"""The agent's connections to serving workers, and the tickets that its turns hold for them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from interlock.bus.channel import DataEdge
from interlock.bus.errors import TicketError, UnreachableError
from interlock.bus.records import Target
from interlock.workers.agent.tickets import TicketDesk

RENEW_PATIENCE: Final = 5.0
"""Seconds to wait for one renewal before it is asked for again."""


class EdgePool:
    """One connection per target generation, shared by all turns, dropped when that ends."""

    def __init__(self) -> None:
        self._edges: dict[str, tuple[int, DataEdge]] = {}
        self._ended: dict[str, int] = {}

    def edge(self, target: Target) -> DataEdge | None:
        """Return the connection to that generation, or None if it has ended.

        Raises UnreachableError.
        """
        worker, generation = target.worker, target.generation
        if generation <= self._ended.get(worker, -1):
            return None
        known = self._edges.get(worker)
        if known is not None and known[0] == generation:
            return known[1]
        if known is not None and known[0] > generation:
            return None
        if known is not None:
            # A newer generation proves the end of the older one, should its `gone` be lost.
            self.gone(worker, known[0], "it was started again")
        edge = DataEdge(target)
        self._edges[worker] = (generation, edge)
        return edge

    def gone(self, worker: str, generation: int, reason: str) -> None:
        """Fail what is in flight to that generation and older ones, and forget them."""
        self._ended[worker] = max(generation, self._ended.get(worker, -1))
        known = self._edges.get(worker)
        if known is not None and known[0] <= generation:
            del self._edges[worker]
            known[1].gone(reason)

    def close(self) -> None:
        """Drop all connections."""
        for _, edge in self._edges.values():
            edge.close()
        self._edges.clear()


@dataclass(slots=True)
class _Held:
    target: Target
    expires: float
    """In the loop's time."""
    ticket: str = ""
    """The ticket's id once it was opened on the connection."""


class TurnTickets:
    """The targets of one turn: opened when first used, then renewed at half their life.

    `keepers` owns the tasks that renew; it is cancelled with the turn.
    """

    def __init__(
        self, turn: str, pool: EdgePool, desk: TicketDesk, keepers: asyncio.TaskGroup
    ) -> None:
        self._turn = turn
        self._pool = pool
        self._desk = desk
        self._keepers = keepers
        self._held: dict[str, _Held] = {}
        self._kept: dict[str, asyncio.Task[None]] = {}
        self._loop = asyncio.get_running_loop()

    def update(self, targets: Iterable[Target]) -> None:
        """Hold these targets, in place of older ones for the same workers."""
        for target in targets:
            known = self._held.get(target.worker)
            if known is None or known.target.generation <= target.generation:
                expires = self._loop.time() + target.expires_in
                self._held[target.worker] = _Held(target=target, expires=expires)

    def gone(self, worker: str, generation: int) -> None:
        """Forget the target if it is of that generation or an older one."""
        known = self._held.get(worker)
        if known is not None and known.target.generation <= generation:
            del self._held[worker]

    async def open(self, worker: str, patience: float) -> tuple[DataEdge, str] | None:
        """Return the connection to a worker and the id of a valid ticket on it.

        None if the turn holds no target for it, its generation ended, or the ticket expired and
        was not renewed within `patience` seconds.
        """
        held = self._held.get(worker)
        if held is None:
            return None
        if held.expires <= self._loop.time() and not await self._renew(worker, patience):
            return None
        held = self._held.get(worker)
        if held is None or (edge := self._pool.edge(held.target)) is None:
            return None
        if not held.ticket or edge.is_refused(held.ticket):
            held.ticket = edge.open(held.target.ticket)
        if worker not in self._kept:
            self._kept[worker] = self._keepers.create_task(self._keep(worker))
        return edge, held.ticket

    def lend(self, target: Target) -> tuple[DataEdge, str] | None:
        """Return connection and ticket id for a target that is good for one call only."""
        edge = self._pool.edge(target)
        return None if edge is None else (edge, edge.open(target.ticket))

    def close(self) -> None:
        """Stop renewing."""
        for task in self._kept.values():
            task.cancel()

    async def _keep(self, worker: str) -> None:
        """Renew the ticket for a worker at half its life, as long as the turn holds one."""
        while (held := self._held.get(worker)) is not None:
            left = held.expires - self._loop.time()
            await asyncio.sleep(max(left / 2, 0.05))
            if self._held.get(worker) is not held:
                continue
            if not await self._renew(worker, RENEW_PATIENCE) and held.expires < self._loop.time():
                break
        # Whoever uses the worker next asks again, and starts a new keeper.
        self._kept.pop(worker, None)

    async def _renew(self, worker: str, patience: float) -> bool:
        grant = await self._desk.ask(self._turn, worker=worker, patience=patience)
        if grant is None or grant.target is None:
            return False
        self.update((grant.target,))
        held = self._held[worker]
        try:
            edge = self._pool.edge(held.target)
            if edge is None:
                return False
            held.ticket = edge.open(held.target.ticket)
        except (TicketError, UnreachableError):
            return False
        return True
