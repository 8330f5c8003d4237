"""The journal: turns, items and calls on disk, written by a thread that nobody waits for.

Operations wait in one queue in memory and are taken from it in order, in batches. A batch that the
disk refuses goes back to the head of the queue; the journal is then *degraded*: nobody waits for
commits any more, the trouble stands under needs attention, and every few seconds the writer tries
again with all that memory still holds. A disk that takes too long makes it *slow*: nobody waits
for commits either, until one was quick again.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import msgspec

from interlock.bus.errors import JournalError
from interlock.bus.threads import start_threads
from interlock.supervisor.events import journalfile, journalrescue, journaltrouble
from interlock.supervisor.events.journalfile import DamagedJournalError
from interlock.supervisor.events.journalrows import (
    UNFINISHED,
    WAITED,
    AddItems,
    ApprovalRow,
    CallRow,
    LoseCalls,
    Operation,
    PutApproval,
    PutCalls,
    PutTurn,
    TurnRow,
)
from interlock.supervisor.events.ports import Attention

T = TypeVar("T")


class JournalBounds(msgspec.Struct, frozen=True, kw_only=True):
    """How much the journal keeps and how long it waits; sizes in bytes, times in seconds."""

    turns: int = 1_000
    size: int = 512 << 20
    """Of all items on the disk."""
    calls: int = 10_000
    """Calls that belong to no turn."""
    prune_every: int = 100
    """Ended turns between two prunings."""
    prune_calls: int = 2_000
    """Reports of calls and of approvals between two prunings."""
    commit: float = 2.0
    """How long an accept or end waits for the disk before it goes on without it."""
    quick: float = 0.5
    """A commit within this is quick: from then on the disk is waited for again. Less than `commit`,
    so that a disk in between is not waited for every other time."""
    read: float = 10.0
    linger: float = 0.05
    """How long items and calls may wait for more of their kind."""
    retry: float = 5.0
    """Between two attempts on a disk that refused."""
    batch: int = 4 << 20
    backlog: int = 256 << 20
    """Of memory for what is not on the disk yet; beyond it the oldest items are given up, and if
    that is not enough, no new turn is taken."""
    call_backlog: int = 16 << 20
    """Of memory for reports of calls alone; beyond it new ones are dropped and counted."""
    close: float = 3.0


class Journal:
    """Writes in its own thread, reads in another; no method blocks the event loop.

    The futures of `accept_turn`, `end_turn` and `put_approval` always resolve, within
    `bounds.commit` seconds: True once the row is on the disk, False when it is only in memory so
    far. Of a disk that is full or known to be slow they say that at once.
    """

    def __init__(
        self, path: Path, epoch: str, attention: Attention, bounds: JournalBounds | None = None
    ) -> None:
        self.path = path
        self.epoch = epoch
        self.past: tuple[str, ...] = ()
        """Ids of the turns of earlier supervisors, oldest first; set by `open`."""
        self.dropped_calls = 0
        """Call reports that came faster than the disk takes them."""
        self._attention = attention
        self._bounds = bounds or JournalBounds()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reader: ThreadPoolExecutor | None = None
        self._thread: threading.Thread | None = None
        # Shared with the writer, under the condition's lock.
        self._wake = threading.Condition()
        self._queue: deque[Operation] = deque()
        self._taken: list[Operation] = []
        """The batch that is being written."""
        self._bytes = 0
        self._call_bytes = 0
        self._urgent = 0
        self._pending: Counter[str] = Counter()
        self._stored: set[str] = set()
        self._given_up: set[str] = set()
        self._degraded = False
        self._closing = False
        self._removed = self._overwritten = False
        # The writer's own; the loop may read where its file is, and how often it was written.
        self._writes = 0
        self._connection: sqlite3.Connection | None = None
        self._place = (0, 0)
        self._ended = self._bounds.prune_every
        self._reported = 0
        # The loop's own; the writer may read whether it is slow.
        self._slow = False
        self._troubled = False
        """It was said that the disk refuses."""
        self.fix = self._why = ""
        """What was said to do about it, and what it is; sentences."""
        self._looking = journalrescue.Look(path)
        self._checking = False

    @property
    def degraded(self) -> bool:
        """Whether the disk refused the last batch."""
        return self._degraded

    @property
    def overfull(self) -> bool:
        """Whether turns alone, none of which is given up, are too much for memory."""
        return self._bytes > self._bounds.backlog

    async def open(self) -> tuple[TurnRow, ...]:
        """Start both threads; returns the turns that the supervisor before left unfinished."""
        self._loop = asyncio.get_running_loop()
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="journal-reader")
        start_threads(self._reader, 1)
        opened: asyncio.Future[tuple[TurnRow, ...]] = self._loop.create_future()
        self._thread = threading.Thread(
            target=self._write_forever, args=(opened,), name="journal-writer", daemon=True
        )
        self._thread.start()
        try:
            async with asyncio.timeout(self._bounds.read):
                left = await opened
        except TimeoutError:
            self._trouble(JournalError("The disk of the journal does not answer."))
            return ()
        # What somebody writes before the first look would else pass for the file as it was.
        self._looking.doubtful(self._writes, self._place[0])
        return left

    # --- in the event loop ---

    def accept_turn(self, row: TurnRow) -> asyncio.Future[bool]:
        """Store a new turn."""
        return self._commit(lambda done, asked: PutTurn(row, done, asked))

    def change_turn(self, row: TurnRow) -> None:
        """Store a change that nobody waits for (running)."""
        self._put(PutTurn(row))

    def end_turn(self, row: TurnRow) -> asyncio.Future[bool]:
        """Store a turn's end."""
        return self._commit(lambda done, asked: PutTurn(row, done, asked))

    def put_approval(self, row: ApprovalRow) -> asyncio.Future[bool]:
        """Store an approval that waits, or how it ended; the first end that is stored stays."""
        return self._commit(lambda done, asked: PutApproval(row, done, asked))

    def append_items(self, turn: str, offset: int, items: Sequence[bytes]) -> None:
        """Store items in order, the first at `offset`."""
        if items:
            self._put(AddItems(turn, offset, tuple(items)))

    def add_calls(self, calls: Sequence[CallRow]) -> None:
        """Store starts and ends of calls."""
        if not calls:
            return
        if self._call_bytes > self._bounds.call_backlog:
            # One worker that floods must not push the items of others out.
            self.dropped_calls += len(calls)
            return
        self._put(PutCalls(tuple(calls)))

    def lose_calls(self, worker: str, generation: int) -> None:
        """Mark what that generation left without an end: worker_died, may_have_run."""
        self._put(LoseCalls(worker, generation))

    def holds(self, turn: str) -> bool:
        """Whether all of that turn is on the disk or was given up, so that memory may forget it."""
        with self._wake:
            if turn in self._given_up:
                return True
            return turn in self._stored and turn not in self._pending

    def forgotten(self, turn: str) -> None:
        """Memory has forgotten that turn: from now on the disk alone knows it."""
        with self._wake:
            self._stored.discard(turn)
            self._given_up.discard(turn)

    def look(self) -> None:
        """Have the file written anew if somebody removed, replaced or overwrote it.

        Of one that is overwritten all is kept that can still be read.
        """
        if journalfile.moved(self.path, self._place):
            with self._wake:
                self._removed = True
                self._wake.notify()
        elif self._looking.doubtful(self._writes, self._place[0]) and self._reader is not None:
            if not self._checking and not self._closing:
                self._checking = True
                self._reader.submit(self._check)

    def _check(self) -> None:
        """In the reader's thread: read the file through; takes a moment for a large one."""
        try:
            whole = journalrescue.is_whole(self.path)
        finally:
            self._checking = False
        if not whole:
            with self._wake:
                self._removed = self._overwritten = True
                self._wake.notify()

    def _commit(
        self, make: Callable[[asyncio.Future[bool] | None, float], Operation]
    ) -> asyncio.Future[bool]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[bool] = loop.create_future()
        if self._degraded or self._closing or self._thread is None:
            self._put(make(None, 0.0))
            done.set_result(False)
            return done
        if self._slow:
            done.set_result(False)  # its commit shows all the same how quick the disk is now
        else:
            timer = loop.call_later(self._bounds.commit, self._late, done)
            done.add_done_callback(lambda _: timer.cancel())
        self._put(make(done, time.monotonic()))
        return done

    def _late(self, done: asyncio.Future[bool]) -> None:
        if not done.done():
            done.set_result(False)
            self._slow = True
            self._attention(*journaltrouble.slow(self.path))
            with self._wake:
                self._wake.notify()  # the writer tries by itself from now on

    def _put(self, operation: Operation) -> None:
        given_up = False
        with self._wake:
            self._queue.append(operation)
            self._count(operation, 1)
            while self._bytes > self._bounds.backlog and self._give_up():
                given_up = True
            self._wake.notify()
        if given_up:
            self._attention(*journaltrouble.items_lost(self.path))

    def _count(self, operation: Operation, sign: int) -> None:
        self._bytes += sign * operation.cost
        if isinstance(operation, PutCalls):
            self._call_bytes += sign * operation.cost
        if isinstance(operation, WAITED) and operation.done is not None:
            self._urgent += sign
        if operation.turn:
            self._pending[operation.turn] += sign
            if not self._pending[operation.turn]:
                del self._pending[operation.turn]

    def _give_up(self) -> bool:
        for n, operation in enumerate(self._queue):
            if not isinstance(operation, WAITED):
                del self._queue[n]
                self._count(operation, -1)
                if operation.turn:
                    self._given_up.add(operation.turn)
                return True
        return False

    async def turns(self, limit: int) -> list[TurnRow]:
        """The newest turns on the disk, newest first. Raises JournalError."""
        return await self._read(lambda: journalfile.read_turns(self.path, self.epoch, limit))

    async def turn(self, turn: str) -> TurnRow | None:
        """One turn, if the disk has it. Raises JournalError."""
        return await self._read(lambda: journalfile.read_turn(self.path, self.epoch, turn))

    async def items(self, turn: str) -> list[bytes]:
        """All items of a turn that are on the disk, up to the first gap. Raises JournalError."""
        return await self._read(lambda: journalfile.read_items(self.path, turn))

    async def calls(self, turn: str) -> list[CallRow]:
        """The calls of a turn, oldest first. Raises JournalError."""
        return await self._read(lambda: journalfile.read_calls(self.path, self.epoch, turn))

    async def approvals(self, limit: int, turn: str = "") -> list[ApprovalRow]:
        """The newest approvals, of one turn or of all, the newest first. Raises JournalError."""
        return await self._read(lambda: journalfile.read_approvals(self.path, turn, limit))

    async def _read(self, query: Callable[[], T]) -> T:
        if self._reader is None or self._closing:
            raise JournalError("The journal is closed.")
        try:
            async with asyncio.timeout(self._bounds.read):
                return await asyncio.get_running_loop().run_in_executor(self._reader, query)
        except TimeoutError as error:
            raise JournalError("The disk of the journal does not answer; try again.") from error
        except (sqlite3.Error, OSError) as error:
            raise JournalError(f"The journal cannot be read ({error}).") from error

    async def close(self) -> None:
        """Write what is queued (bounded) and end both threads."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread is not None and self._reader is not None:
            thread, reader = self._thread, self._reader
            # The reader may be held up by the same disk as the writer.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._bounds.close):
                    await asyncio.get_running_loop().run_in_executor(
                        reader, thread.join, self._bounds.close
                    )
            reader.shutdown(wait=False, cancel_futures=True)
            self._reader = None
        if self._thread is None or not self._thread.is_alive():
            self._looking.close()  # else its file is in use, and the process about to end

    def not_kept(self) -> str:
        """Say in one sentence what the disk did not take, once closed; empty if it took all."""
        with self._wake:
            left = [*self._taken, *self._queue]
            turns = len(self._pending.keys() | self._given_up)
        approvals = len({one.row.id for one in left if isinstance(one, PutApproval)})
        calls = {call.call for one in left if isinstance(one, PutCalls) for call in one.calls}
        lost = journaltrouble.Unkept(turns, approvals, len(calls) + self.dropped_calls)
        late = "The disk of the journal did not answer in time."
        return journaltrouble.not_kept(lost, self._why or late)

    # --- in the writer's thread ---

    def _write_forever(self, opened: asyncio.Future[tuple[TurnRow, ...]]) -> None:
        interrupted = self._connect_and_interrupt()
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self.past = journalfile.ids(self._connection)
        self._tell(_resolve, opened, interrupted)
        if self._connection is not None:
            self._tell(self._acknowledge, [], False)  # nobody may have waited for so long
        while (batch := self._take()) is not None:
            self._write_anew()
            if batch or self._degraded or self._slow:
                self._write(batch)
            if self._closing and self._degraded:
                break
        journalfile.close(self._connection)
        self._connection = None

    def _take(self) -> list[Operation] | None:
        """The next batch; waits for one. None: closing, nothing is left.

        Empty: a look is due, or a trial whether the disk that was full or slow is so still.
        """
        with self._wake:
            if self._degraded and not self._closing:
                self._wake.wait_for(lambda: self._closing, self._bounds.retry)
            while not (self._queue or self._closing or self._removed or self._degraded):
                patience = self._bounds.retry if self._slow else None
                if not self._wake.wait(patience) and self._slow:
                    break
            if self._closing and not self._queue:
                return None
            if not self._urgent and not self._closing and not self._removed:
                self._wake.wait_for(lambda: self._urgent or self._closing, self._bounds.linger)
            batch: list[Operation] = []
            size = 0
            while self._queue and size < self._bounds.batch:
                batch.append(self._queue.popleft())
                size += batch[-1].cost
            self._taken = batch
            return batch

    def _write_anew(self) -> None:
        wanted, self._removed = self._removed, False
        overwritten, self._overwritten = self._overwritten, False
        if not wanted or self._connection is None:
            return
        moved = journalfile.moved(self.path, self._place)
        if not moved and (not overwritten or journalrescue.is_whole(self.path)):
            return
        try:
            if moved:
                self._replace_removed(self._connection)
            else:
                self._replace_overwritten(self._connection)
        except (sqlite3.Error, OSError, JournalError) as error:
            known = isinstance(error, JournalError)
            trouble = error if known else journalfile.translate(error)
            with self._wake:
                self._degraded = True
            self._tell(self._trouble, trouble)

    def _replace_removed(self, connection: sqlite3.Connection) -> None:
        fresh = journalfile.write_anew(connection, self.path)
        self._drop_connection()
        journalfile.put_in_place(fresh, self.path, self._place)
        self._open_anew()
        self._tell(self._attention, *journaltrouble.removed(self.path))

    def _replace_overwritten(self, connection: sqlite3.Connection) -> None:
        fresh, whole = journalrescue.rescue(connection, self.path)
        self._drop_connection()
        kept = journalfile.move_aside(self.path, int(time.time()))
        fresh.rename(self.path)
        self._open_anew()
        self._tell(self._attention, *journaltrouble.overwritten(self.path, kept, whole))

    def _open_anew(self) -> None:
        self._connection = journalfile.connect(self.path)
        journalfile.interrupt(self._connection, self.epoch, time.time())
        self._place = journalfile.place(self.path)

    def _write(self, batch: list[Operation]) -> None:
        begun = time.monotonic()
        try:
            if self._connection is None:
                self._connect_and_interrupt(again=True)
            if self._connection is None:
                raise JournalError("The journal cannot be opened.")
            self._apply(self._connection, batch)
        except JournalError as error:
            self._put_back(batch, error)
            return
        now = time.monotonic()
        waited = [operation for operation in batch if isinstance(operation, WAITED)]
        acknowledged = [operation.done for operation in waited]
        begun = min([one.asked for one in waited if one.asked], default=0.0 if batch else begun)
        quick = begun > now - self._bounds.quick
        with self._wake:
            for operation in batch:
                self._count(operation, -1)
                if isinstance(operation, PutTurn) and operation.row.state not in UNFINISHED:
                    self._stored.add(operation.turn)
                    self._ended += 1
                elif isinstance(operation, PutCalls):
                    self._reported += len(operation.calls)
                elif isinstance(operation, PutApproval):
                    self._reported += 1
            self._taken = []
            self._degraded = False
        self._tell(self._acknowledge, acknowledged, quick)
        self._prune()

    def _apply(self, connection: sqlite3.Connection, batch: Sequence[Operation]) -> None:
        durable = not batch or any(isinstance(operation, WAITED) for operation in batch)
        self._writes += 1
        try:
            journalfile.apply(connection, self.epoch, batch, durable=durable)
        except (sqlite3.Error, ValueError, OverflowError) as error:
            if not journalfile.is_bad_row(error):
                raise journalfile.translate(error) from error
            if len(batch) > 1:
                # One value that SQLite cannot store must not keep out all others.
                for operation in batch:
                    self._apply(connection, (operation,))

    def _put_back(self, batch: list[Operation], error: JournalError) -> None:
        journalfile.close(self._connection)
        self._connection = None
        if isinstance(error, DamagedJournalError):
            self._move_aside(error)
        with self._wake:
            self._queue.extendleft(reversed(batch))
            self._taken = []
            # Who waits goes on without the disk; the rows stay in the queue.
            waiting = [op.done for op in self._queue if isinstance(op, WAITED)]
            self._degraded = True
        self._tell(self._refuse, waiting, error)

    def _connect_and_interrupt(self, *, again: bool = False) -> tuple[TurnRow, ...]:
        for _ in range(2):
            try:
                self._connection = journalfile.connect(self.path)
                left = journalfile.interrupt(self._connection, self.epoch, time.time())
                self._place = journalfile.place(self.path)
                return left
            except DamagedJournalError as error:
                self._drop_connection()
                self._move_aside(error)
            except sqlite3.Error as error:
                self._drop_connection()
                self._fail_open(journalfile.translate(error), again=again)
                return ()
            except JournalError as error:
                self._fail_open(error, again=again)
                return ()
        return ()

    def _fail_open(self, error: JournalError, *, again: bool) -> None:
        if again:
            raise error
        with self._wake:
            self._degraded = True
        self._tell(self._trouble, error)

    def _drop_connection(self) -> None:
        journalfile.close(self._connection)
        self._connection = None

    def _move_aside(self, error: DamagedJournalError) -> None:
        try:
            kept = journalfile.move_aside(self.path, int(time.time()))
        except OSError as failure:
            self._tell(self._trouble, journalfile.translate(failure))
            return
        with self._wake:
            self._stored.clear()
        self._tell(self._attention, *journaltrouble.begun_anew(error, kept))

    def _prune(self) -> None:
        bounds = self._bounds
        due = self._ended >= bounds.prune_every or self._reported >= bounds.prune_calls
        if self._connection is None or not due:
            return
        self._ended = self._reported = 0
        self._writes += 1
        # If the disk refuses, the next batch notices; nothing depends on the pruning.
        with contextlib.suppress(sqlite3.Error):
            journalfile.prune(
                self._connection, turns=bounds.turns, size=bounds.size, calls=bounds.calls
            )

    def _tell(self, function: Callable[..., object], *values: object) -> None:
        if self._loop is not None:
            # A closed loop: the supervisor is gone, and with it everybody who waited.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(function, *values)

    # --- back in the event loop ---

    def _acknowledge(self, waiting: list[asyncio.Future[bool] | None], quick: bool) -> None:
        for done in waiting:
            if done is not None:
                _resolve(done, True)
        if self._troubled:
            self._troubled, self._why = False, ""
            self._attention(journaltrouble.FULL, "", "", clear=True)
        if self._slow and quick:
            self._slow = False
            self._attention(journaltrouble.SLOW, "", "", clear=True)

    def _refuse(self, waiting: list[asyncio.Future[bool] | None], error: JournalError) -> None:
        self._trouble(error)
        for done in waiting:
            if done is not None:
                _resolve(done, False)

    def _trouble(self, error: JournalError) -> None:
        self._troubled = True
        said = journaltrouble.refused(self.path, error)
        self.fix, self._why = said.fix, error.message
        self._attention(*said)


def _resolve(future: asyncio.Future[T], value: T) -> None:
    if not future.done():
        future.set_result(value)
