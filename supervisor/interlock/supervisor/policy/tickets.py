"""Issues every ticket: keys of generations, tickets of turns and of clients, revocations."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from interlock.bus.messages import TICKET_LIFE, Revoke
from interlock.bus.records import Target
from interlock.bus.tickets import TicketClaims, mint
from interlock.supervisor.policy.lent import Basis, Lent

OF_TURN: Final = 16
"""Tickets that one turn got for one worker, from which on expired ones are forgotten."""


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


@dataclass(frozen=True, slots=True)
class _Asked:
    """A revocation that no worker has acknowledged; both times are Unix seconds."""

    revocation: Revocation
    at: float
    until: float
    """When the last of its tickets is void by itself."""


class TicketOffice:
    """Holds the keys of the generations that serve now, and knows what it issued under them.

    A ticket lives `life` seconds, at most TICKET_LIFE. Tickets are secrets: they go to their caller
    on its own connection and nowhere else.
    """

    def __init__(self, life: float = TICKET_LIFE, clock: Callable[[], float] = time.time) -> None:
        self.life = min(life, TICKET_LIFE)
        self._clock = clock
        self._serving: dict[str, _Serving] = {}
        self._turns: dict[str, dict[tuple[str, int], dict[str, float]]] = {}
        """Of each turn, the generations that it has tickets for; those that serve many calls by
        id, with their expiry in Unix seconds."""
        self._lent: dict[tuple[str, int], OrderedDict[str, Lent]] = {}
        """Tickets of clients, and all that are for one call, by id, the oldest first."""
        self._waiting: dict[tuple[str, int], dict[int, _Asked]] = {}
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
        self._lent.pop((worker, generation), None)
        for used in self._turns.values():
            used.pop((worker, generation), None)

    def serves(self, worker: str) -> int | None:
        """The generation of that worker that serves now."""
        serving = self._serving.get(worker)
        return serving.generation if serving is not None else None

    def turn_target(
        self, worker: str, turn: str, caller: str, names: Sequence[str]
    ) -> Target | None:
        """A ticket for all `names` of the worker's current generation; None if none serves."""
        return self._issue(worker, caller, tuple(names), turn)

    def api_target(self, worker: str, local: str, caller: str) -> Target | None:
        """A ticket for one name, for an api client; None if none serves."""
        return self._issue(worker, caller, (local,), "")

    def call_target(
        self, basis: Basis, generation: int, caller: str, turn: str, digest: str
    ) -> Target | None:
        """A ticket for one call with the arguments of that digest, at that generation.

        None if that generation does not serve (any more). `turn` is empty for api clients.
        """
        worker = basis.row.source
        if self.serves(worker) != generation:
            return None
        return self._issue(worker, caller, (basis.row.local,), turn, digest, basis)

    def _issue(
        self,
        worker: str,
        caller: str,
        names: tuple[str, ...],
        turn: str,
        digest: str = "",
        basis: Basis | None = None,
    ) -> Target | None:
        """Mint a ticket; one that is bound to arguments is for a single call."""
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
            digest=digest,
            single_use=bool(digest),
        )
        key = (worker, serving.generation)
        of_turn = self._turns.setdefault(turn, {}).setdefault(key, {}) if turn else {}
        if turn and basis is None:
            if len(of_turn) >= OF_TURN:
                for id_ in [id_ for id_, expires in of_turn.items() if expires <= now]:
                    del of_turn[id_]
            of_turn[claims.id] = claims.expires
        else:
            self._lend(key, claims, basis)
        return Target(
            worker=worker,
            generation=serving.generation,
            endpoint=serving.endpoint,
            ticket=mint(serving.key, claims),
            expires_in=self.life,
        )

    def _lend(self, key: tuple[str, int], claims: TicketClaims, basis: Basis | None) -> None:
        lent = self._lent.setdefault(key, OrderedDict())
        now = self._clock()
        while lent and next(iter(lent.values())).expires <= now:
            lent.popitem(last=False)
        lent[claims.id] = Lent(
            id=claims.id, local=claims.names[0], expires=claims.expires, basis=basis
        )

    def revoke_turn(self, turn: str) -> tuple[Revocation, ...]:
        """Void all tickets of a turn: one message for each generation that still serves."""
        return tuple(
            self._void(worker, generation, Revoke(n=self._number(), turn=turn))
            for worker, generation in sorted(self._turns.pop(turn, ()))
            if self.serves(worker) == generation
        )

    def revoke_earlier(self, turn: str, worker: str) -> Revocation | None:
        """Void what the turn holds for many calls of that worker; what it gets then is valid.

        Tickets of the turn for one call are no part of that: see `lent`.
        """
        generation = self.serves(worker)
        if generation is None:
            return None
        held = self._turns.get(turn, {}).get((worker, generation), {})
        now = self._clock()
        ids = tuple(id_ for id_, expires in held.items() if expires > now)
        held.clear()
        return self._revoke_ids(worker, generation, ids)

    def lent(self, worker: str) -> tuple[Lent, ...]:
        """The valid tickets of clients, and those of anybody for one call, at that worker."""
        generation = self.serves(worker)
        if generation is None:
            return ()
        lent = self._lent.get((worker, generation), OrderedDict())
        now = self._clock()
        return tuple(one for one in lent.values() if one.expires > now)

    def revoke_lent(self, worker: str, ids: Collection[str]) -> Revocation | None:
        """Void some of what `lent` has told of."""
        generation = self.serves(worker)
        if generation is None:
            return None
        lent = self._lent.get((worker, generation), OrderedDict())
        return self._revoke_ids(
            worker, generation, tuple(id_ for id_ in ids if lent.pop(id_, None) is not None)
        )

    def _revoke_ids(self, worker: str, generation: int, ids: tuple[str, ...]) -> Revocation | None:
        if not ids:
            return None
        return self._void(worker, generation, Revoke(n=self._number(), ids=ids))

    def _number(self) -> int:
        self._next += 1
        return self._next

    def _void(self, worker: str, generation: int, message: Revoke) -> Revocation:
        waiting = self._waiting.setdefault((worker, generation), {})
        self._forget_expired(waiting)
        revocation = Revocation(worker=worker, generation=generation, message=message)
        now = self._clock()
        # Its tickets may be from before the life of new ones was made shorter.
        waiting[message.n] = _Asked(revocation, now, now + TICKET_LIFE)
        return revocation

    def revoked(self, worker: str, generation: int, n: int) -> bool:
        """A worker acknowledged revocation `n`; False if it was never asked to."""
        return self._waiting.get((worker, generation), {}).pop(n, None) is not None

    def unheard(self, patience: float) -> tuple[Revocation, ...]:
        """Revocations to send again: no worker acknowledged them within `patience` seconds.

        None whose tickets have all expired by now. To send one twice does no harm.
        """
        latest = self._clock() - patience
        for waiting in self._waiting.values():
            self._forget_expired(waiting)
        return tuple(
            asked.revocation
            for waiting in self._waiting.values()
            for asked in waiting.values()
            if asked.at <= latest
        )

    def _forget_expired(self, waiting: dict[int, _Asked]) -> None:
        now = self._clock()
        for n in [n for n, asked in waiting.items() if asked.until <= now]:
            del waiting[n]
