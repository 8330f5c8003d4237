"""The items of every turn in memory, and the clients that watch them.

A log holds complete items as bytes. A watcher gets them in batches as far as its credit reaches;
one that takes nothing for a while is dropped, and nobody waits for it. Logs of ended turns leave
memory, the least recently used first, once the journal holds them; a later watcher loads them back.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from interlock.bus.errors import OverloadedError
from interlock.bus.messages import ITEMS_BATCH, Items
from interlock.supervisor.events.journal import Journal
from interlock.supervisor.events.ports import Answer
from interlock.supervisor.events.turnitems import place

MAX_CREDIT: Final = 1 << 40


class LogBounds(msgspec.Struct, frozen=True, kw_only=True):
    """What stays in memory and for how long a watcher may take nothing."""

    ended: int = 200
    """Logs of ended turns."""
    size: int = 32 << 20
    """Bytes of those."""
    turn: int = 64 << 20
    """Bytes of one turn's items; beyond it the turn is ended."""
    watchers: int = 1_000
    """Watches of all clients, beyond which each may have `always` of them."""
    of_client: int = 100
    """Watches of one client."""
    always: int = 4
    look: float = 10.0
    """Seconds between two looks whether those who watch are still there."""
    again: float = 1.0
    """Seconds between two such looks while there is no room."""
    retry: float = 0.1
    """Seconds between two attempts to send to a watcher that was full."""
    patience: float = 30.0
    """Seconds after which a watcher that takes nothing is dropped."""


@dataclass(eq=False, slots=True)
class _Log:
    turn: str
    items: list[bytes] = field(default_factory=list)
    size: int = 0
    ended: bool = False
    stored: bool = False
    """It came from the journal."""
    watchers: set[_Watcher] = field(default_factory=set)


@dataclass(eq=False, slots=True)
class _Watcher:
    key: tuple[bytes, int]
    log: _Log
    offset: int
    credit: int
    stuck_since: float | None = None


class TurnLogs:
    """Owns the items of all turns; streams them to watchers without ever waiting for one.

    Used in the event loop only. `answer` sends `Items` to an api identity; `present` says whether
    there still is a client of that identity.
    """

    def __init__(
        self,
        journal: Journal,
        answer: Answer,
        bounds: LogBounds | None = None,
        present: Callable[[bytes], bool] = lambda identity: True,
    ) -> None:
        self._journal = journal
        self._answer = answer
        self._present = present
        self._bounds = bounds or LogBounds()
        self._logs: dict[str, _Log] = {}
        self._ended: OrderedDict[str, _Log] = OrderedDict()
        self._ended_bytes = 0
        self._watchers: dict[tuple[bytes, int], _Watcher] = {}
        self._loading: dict[tuple[bytes, int], int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.TimerHandle | None = None
        self._looked = -math.inf
        self.on_evicted: Callable[[str], None] = _nothing
        """Called with each turn that left memory."""

    # --- the turn's side ---

    def begin(self, turn: str) -> None:
        """A turn was taken; it has no items yet."""
        self._logs[turn] = _Log(turn)

    def append(self, turn: str, items: Sequence[bytes]) -> None:
        """Add items as an agent sent them: journal them, and send them to watchers."""
        log = self._logs[turn]
        placed = self._place(log, items)
        self._journal.append_items(turn, len(log.items), placed)
        self._add(log, placed)

    def prepare_end(self, turn: str, item: bytes) -> bytes:
        """Journal a turn's last item, which `end` shows to watchers once it is committed."""
        log = self._logs[turn]
        placed = self._place(log, (item,))
        self._journal.append_items(turn, len(log.items), placed)
        return placed[0]

    def end(self, turn: str, last: bytes | None) -> None:
        """The turn has ended; `last` is what `prepare_end` returned."""
        log = self._logs[turn]
        log.ended = True
        self._ended[turn] = log
        self._ended_bytes += log.size
        self._add(log, [] if last is None else [last])
        self._evict()

    def full(self, turn: str) -> bool:
        """Whether that turn has produced more than a turn may."""
        log = self._logs.get(turn)
        return log is not None and log.size > self._bounds.turn

    def known(self, turn: str) -> bool:
        """Whether the log is in memory."""
        return turn in self._logs

    def items(self, turn: str) -> list[bytes] | None:
        """All items so far of a turn that is in memory."""
        log = self._logs.get(turn)
        return list(log.items) if log is not None else None

    @staticmethod
    def _place(log: _Log, items: Sequence[bytes]) -> list[bytes]:
        first = len(log.items)
        return [place(item, log.turn, first + n) for n, item in enumerate(items)]

    def _add(self, log: _Log, placed: Sequence[bytes]) -> None:
        size = sum(map(len, placed))
        log.items.extend(placed)
        log.size += size
        if log.ended:
            self._ended_bytes += size
        for watcher in tuple(log.watchers):
            self._feed(watcher)

    # --- the watcher's side ---

    def reserve(self, identity: bytes, watch: int) -> None:
        """Count credit for a watch that is about to begin."""
        self._loading.setdefault((identity, watch), 0)

    def reserved(self, identity: bytes, watch: int) -> bool:
        """Whether a reserved watch is still wanted."""
        return (identity, watch) in self._loading

    async def watch(
        self, identity: bytes, watch: int, turn: str, *, offset: int, credit: int
    ) -> None:
        """Stream a turn to `identity` from `offset`; loads it from the journal where needed.

        Registers before it waits for anything, so that a `credit` that follows at once is counted.
        Raises JournalError if the disk cannot be read, OverloadedError above the watcher limit.
        """
        key = (identity, watch)
        self._remove(key)
        self.reserve(*key)
        try:
            self._check_room(identity)
            if turn not in self._logs:
                items = await self._journal.items(turn)
                if key not in self._loading:
                    return
                if turn not in self._logs:
                    self._restore(turn, items)
            credit += self._loading.get(key, 0)
        finally:
            self._loading.pop(key, None)
        log = self._logs[turn]
        if turn in self._ended:
            self._ended.move_to_end(turn)
        watcher = _Watcher(key, log, max(offset, 0), _clamp(credit))
        log.watchers.add(watcher)
        self._watchers[key] = watcher
        if self._looking is None:
            self._look_later()
        self._feed(watcher)
        self._evict()

    def credit(self, identity: bytes, watch: int, credit: int) -> None:
        """Let a watcher have more items."""
        key = (identity, watch)
        if key in self._loading:
            self._loading[key] = _clamp(self._loading[key] + max(credit, 0))
        elif (watcher := self._watchers.get(key)) is not None:
            watcher.credit = _clamp(watcher.credit + max(credit, 0))
            self._feed(watcher)

    def unwatch(self, identity: bytes, watch: int) -> None:
        """End one watch."""
        self._loading.pop((identity, watch), None)
        self._remove((identity, watch))
        self._evict()

    def drop_client(self, identity: bytes) -> None:
        """End all watches of a client that is gone."""
        for key in [key for key in (*self._watchers, *self._loading) if key[0] == identity]:
            self.unwatch(*key)

    def _check_room(self, identity: bytes) -> None:
        """Raise OverloadedError if a client that begins a watch has too many, or all have."""
        bounds = self._bounds
        mine = sum(key[0] == identity for key in (*self._watchers, *self._loading))
        if mine > bounds.of_client:
            raise OverloadedError("This client watches too many turns; end a watch and try again.")
        if mine > bounds.always and self._watching() > bounds.watchers:
            # Each look writes to all who watch, so those who are refused cannot ask for many.
            if asyncio.get_running_loop().time() >= self._looked + bounds.again:
                self._drop_absent()
            if self._watching() > bounds.watchers:
                raise OverloadedError("Too many turns are watched; try again in a while.")

    def _watching(self) -> int:
        return len(self._watchers) + len(self._loading)

    def _drop_absent(self) -> None:
        """End the watches of clients that are gone; of a turn that is quiet nothing else tells."""
        self._looked = asyncio.get_running_loop().time()
        for identity in {key[0] for key in self._watchers}:
            if not self._present(identity):
                self.drop_client(identity)

    def _look_later(self) -> None:
        self._looking = asyncio.get_running_loop().call_later(self._bounds.look, self._look)

    def _look(self) -> None:
        self._looking = None
        self._drop_absent()
        if self._watchers:
            self._look_later()

    def _remove(self, key: tuple[bytes, int]) -> None:
        watcher = self._watchers.pop(key, None)
        if watcher is not None:
            watcher.log.watchers.discard(watcher)

    def _restore(self, turn: str, items: list[bytes]) -> None:
        log = _Log(turn, items, sum(map(len, items)), ended=True, stored=True)
        self._logs[turn] = self._ended[turn] = log
        self._ended_bytes += log.size

    def _feed(self, watcher: _Watcher) -> None:
        """Send what the watcher may have now; ends the watch after the turn's last item."""
        log = watcher.log
        while True:
            batch = _batch(log.items, watcher.offset, watcher.credit)
            last = log.ended and watcher.offset + len(batch) >= len(log.items)
            if not batch and not last:
                return
            message = Items(
                id=watcher.key[1],
                turn=log.turn,
                offset=watcher.offset,
                count=len(batch),
                end=last,
            )
            if not self._answer(watcher.key[0], message, b"[" + b",".join(batch) + b"]"):
                self._stuck(watcher)
                return
            watcher.stuck_since = None
            watcher.offset += len(batch)
            watcher.credit -= len(batch)
            if last:
                self._remove(watcher.key)
                return

    def _stuck(self, watcher: _Watcher) -> None:
        loop = asyncio.get_running_loop()
        if watcher.stuck_since is None:
            watcher.stuck_since = loop.time()
        elif loop.time() - watcher.stuck_since > self._bounds.patience:
            self._remove(watcher.key)
            return
        if self._timer is None:
            self._timer = loop.call_later(self._bounds.retry, self._retry)

    def _retry(self) -> None:
        self._timer = None
        for watcher in tuple(self._watchers.values()):
            if watcher.stuck_since is not None:
                self._feed(watcher)
        self._evict()

    def _evict(self) -> None:
        """Forget ended turns that nobody watches, beyond the bounds and as far as disk has them."""
        if len(self._ended) <= self._bounds.ended and self._ended_bytes <= self._bounds.size:
            return
        for turn, log in tuple(self._ended.items()):
            if log.watchers or not (log.stored or self._journal.holds(turn)):
                continue
            del self._ended[turn], self._logs[turn]
            self._ended_bytes -= log.size
            self._journal.forgotten(turn)
            self.on_evicted(turn)
            if len(self._ended) <= self._bounds.ended and self._ended_bytes <= self._bounds.size:
                return

    def close(self) -> None:
        """Stop all streams."""
        for timer in (self._timer, self._looking):
            if timer is not None:
                timer.cancel()
        for watcher in tuple(self._watchers.values()):
            self._remove(watcher.key)


def _batch(items: Sequence[bytes], offset: int, credit: int) -> list[bytes]:
    """Items from `offset` on, at most `credit` and ITEMS_BATCH bytes, but at least one."""
    batch: list[bytes] = []
    size = 0
    for item in items[offset : offset + min(credit, 4096)]:
        size += len(item) + 1
        if batch and size > ITEMS_BATCH:
            break
        batch.append(item)
    return batch


def _nothing(turn: str) -> None:
    """Where nobody asked to be told."""


def _clamp(credit: int) -> int:
    return min(max(credit, 0), MAX_CREDIT)
