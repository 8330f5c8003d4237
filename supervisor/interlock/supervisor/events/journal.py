"""The journal: turns, items and calls on disk, written by a thread that nobody waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from interlock.supervisor.events.journalrows import CallRow, TurnRow
from interlock.supervisor.events.ports import Attention


class Journal:
    """Writes in its own thread, reads in another; no method blocks the event loop.

    The futures of `accept_turn` and `end_turn` always resolve, within `deadline` seconds: True once
    the row is on the disk, False when it is only in memory so far (disk full, read-only, slow).
    """

    def __init__(self, path: Path, epoch: str, attention: Attention) -> None:
        raise NotImplementedError

    async def open(self) -> tuple[TurnRow, ...]:
        """Start both threads; returns the turns that the supervisor before left unfinished."""
        raise NotImplementedError

    def accept_turn(self, row: TurnRow) -> asyncio.Future[bool]:
        """Store a new turn."""
        raise NotImplementedError

    def change_turn(self, row: TurnRow) -> None:
        """Store a change that nobody waits for (running)."""
        raise NotImplementedError

    def end_turn(self, row: TurnRow) -> asyncio.Future[bool]:
        """Store a turn's end."""
        raise NotImplementedError

    def append_items(self, turn: str, offset: int, items: Sequence[bytes]) -> None:
        """Store items in order, the first at `offset`."""
        raise NotImplementedError

    def add_calls(self, calls: Sequence[CallRow]) -> None:
        """Store starts and ends of calls."""
        raise NotImplementedError

    def lose_calls(self, worker: str, generation: int) -> None:
        """Mark what that generation left without an end: worker_died, may_have_run."""
        raise NotImplementedError

    def holds(self, turn: str) -> bool:
        """Whether everything of that turn is on the disk, so that memory may forget it."""
        raise NotImplementedError

    async def turns(self, limit: int) -> list[TurnRow]:
        """The newest turns on the disk, newest first."""
        raise NotImplementedError

    async def turn(self, turn: str) -> TurnRow | None:
        """One turn, if the disk has it."""
        raise NotImplementedError

    async def items(self, turn: str) -> list[bytes]:
        """All items of a turn that are on the disk, in order and without a gap."""
        raise NotImplementedError

    async def calls(self, turn: str) -> list[CallRow]:
        """The calls of a turn, oldest first."""
        raise NotImplementedError

    async def close(self) -> None:
        """Write what is queued (bounded) and end both threads."""
        raise NotImplementedError
