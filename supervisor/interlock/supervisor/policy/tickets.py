"""Issues every ticket: keys of generations, tickets of turns and of clients, revocations."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from interlock.bus.messages import TICKET_LIFE, Revoke
from interlock.bus.records import Target
from interlock.bus.tickets import TicketClaims, mint


class Revocation(msgspec.Struct, frozen=True, kw_only=True):
    """A `revoke` to send to one generation of a serving worker."""

    worker: str
    generation: int
    message: Revoke


@dataclass(frozen=True, slots=True)
class _Serving:
    generation: int
    key: bytes
    endpoint: str


class TicketOffice:
    """Holds the keys of the generations that serve now, and knows what it issued under them.

    A ticket lives `life` seconds, at most TICKET_LIFE. Tickets are secrets: they go to their caller
    on its own connection and nowhere else.
    """

    def __init__(self, life: float = TICKET_LIFE, clock: Callable[[], float] = time.time) -> None:
        self.life = min(life, TICKET_LIFE)
        self._clock = clock
        self._serving: dict[str, _Serving] = {}
        self._turns: dict[str, set[tuple[str, int]]] = {}
        self._waiting: dict[tuple[str, int], dict[int, float]] = {}
        self._next = 0

    def open_target(self, worker: str, generation: int, key: bytes, endpoint: str) -> None:
        """A generation serves from now on, under that key (call it at `ready`)."""
        self._serving[worker] = _Serving(generation, key, endpoint)

    def close_target(self, worker: str, generation: int) -> None:
        """A generation ended: nothing is issued for it any more, its key is forgotten."""
        serving = self._serving.get(worker)
        if serving is not None and serving.generation == generation:
            del self._serving[worker]
        self._waiting.pop((worker, generation), None)
        for used in self._turns.values():
            used.discard((worker, generation))

    def serves(self, worker: str) -> int | None:
        """The generation of that worker that serves now."""
        serving = self._serving.get(worker)
        return serving.generation if serving is not None else None

    def turn_target(
        self, worker: str, turn: str, caller: str, names: Sequence[str]
    ) -> Target | None:
        """A ticket for all `names` of the worker's current generation; None if none serves."""
        target = self._issue(worker, caller, tuple(names), turn)
        if target is not None:
            self._turns.setdefault(turn, set()).add((worker, target.generation))
        return target

    def api_target(self, worker: str, local: str, caller: str) -> Target | None:
        """A ticket for one name, for an api client; None if none serves."""
        return self._issue(worker, caller, (local,), "")

    def _issue(self, worker: str, caller: str, names: tuple[str, ...], turn: str) -> Target | None:
        serving = self._serving.get(worker)
        if serving is None:
            return None
        now = self._clock()
        claims = TicketClaims(
            id=secrets.token_hex(12),
            caller=caller,
            target=worker,
            generation=serving.generation,
            names=names,
            turn=turn,
            issued=now,
            expires=now + self.life,
        )
        return Target(
            worker=worker,
            generation=serving.generation,
            endpoint=serving.endpoint,
            ticket=mint(serving.key, claims),
            expires_in=self.life,
        )

    def revoke_turn(self, turn: str) -> tuple[Revocation, ...]:
        """Void all tickets of a turn: one message for each generation that still serves."""
        void = []
        for worker, generation in sorted(self._turns.pop(turn, ())):
            if self.serves(worker) != generation:
                continue
            self._next += 1
            waiting = self._waiting.setdefault((worker, generation), {})
            self._forget_expired(waiting)
            waiting[self._next] = self._clock() + self.life
            void.append(
                Revocation(
                    worker=worker, generation=generation, message=Revoke(n=self._next, turn=turn)
                )
            )
        return tuple(void)

    def revoked(self, worker: str, generation: int, n: int) -> bool:
        """A worker acknowledged revocation `n`; False if it was never asked to."""
        return self._waiting.get((worker, generation), {}).pop(n, None) is not None

    def unacknowledged(self) -> int:
        """Revocations that no worker has acknowledged yet and whose tickets may still live."""
        for waiting in self._waiting.values():
            self._forget_expired(waiting)
        return sum(map(len, self._waiting.values()))

    def _forget_expired(self, waiting: dict[int, float]) -> None:
        now = self._clock()
        for n in [n for n, until in waiting.items() if until <= now]:
            del waiting[n]
