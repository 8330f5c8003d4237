"""What the journal stores: rows, and the operations that its writer applies in order."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

import msgspec

UNFINISHED: Final = ("accepted", "running")
"""States of a turn that has not ended."""


class TurnRow(msgspec.Struct, frozen=True, kw_only=True):
    """One turn as `interlock turns --json` shows it."""

    turn: str
    agent: str
    session: str = ""
    state: str = "accepted"
    text: str = ""
    started: float = 0.0
    """Unix seconds of its acceptance."""
    ended: float | None = None
    code: str = ""
    message: str = ""
    unattended: bool = False


class CallRow(msgspec.Struct, frozen=True, kw_only=True):
    """One call as `turn-show --json` shows it; `outcome` is empty while it runs."""

    worker: str
    generation: int
    call: str
    capability: str
    caller: str = ""
    turn: str = ""
    outcome: str = ""
    duration_ms: float = 0.0
    started: float = 0.0
    may_have_run: bool = False
    """The call was under way when its worker or the supervisor died."""


class ApprovalRow(msgspec.Struct, frozen=True, kw_only=True):
    """One approval; `outcome` is empty while it waits. Times are Unix seconds."""

    id: str
    turn: str = ""
    agent: str = ""
    caller: str = ""
    capability: str
    arguments: str
    """JSON, cut if it is long."""
    digest: str
    reason: str = ""
    asked: float
    outcome: str = ""
    by: str = ""
    decided: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class PutTurn:
    """Insert a turn or replace what is known about it."""

    row: TurnRow
    done: asyncio.Future[bool] | None = None
    asked: float = 0.0
    """When it was put, if somebody asked for its commit; seconds, monotonic."""

    @property
    def turn(self) -> str:
        """The turn that this operation belongs to."""
        return self.row.turn

    @property
    def cost(self) -> int:
        """Bytes that it holds in memory, about."""
        return 200 + len(self.row.text)


@dataclass(frozen=True, slots=True, eq=False)
class PutApproval:
    """Insert an approval or store how it ended."""

    row: ApprovalRow
    done: asyncio.Future[bool] | None = None
    asked: float = 0.0
    """When it was put, if somebody asked for its commit; seconds, monotonic."""

    @property
    def turn(self) -> str:
        """The turn that this operation belongs to."""
        return self.row.turn

    @property
    def cost(self) -> int:
        """Bytes that it holds in memory, about."""
        return 300 + len(self.row.arguments)


@dataclass(frozen=True, slots=True, eq=False)
class AddItems:
    """Store items, the first at `offset`."""

    turn: str
    offset: int
    items: tuple[bytes, ...]

    @property
    def cost(self) -> int:
        """Bytes that it holds in memory, about."""
        return 200 + sum(map(len, self.items))


@dataclass(frozen=True, slots=True, eq=False)
class PutCalls:
    """Insert calls or replace what is known about them."""

    calls: tuple[CallRow, ...]
    turn: str = ""

    @property
    def cost(self) -> int:
        """Bytes that it holds in memory, about."""
        return 300 * len(self.calls)


@dataclass(frozen=True, slots=True, eq=False)
class LoseCalls:
    """Mark the calls of a dead generation that have no end."""

    worker: str
    generation: int
    turn: str = ""

    @property
    def cost(self) -> int:
        """Bytes that it holds in memory, about."""
        return 200


Operation = PutTurn | PutApproval | AddItems | PutCalls | LoseCalls
WAITED: Final = (PutTurn, PutApproval)
"""Operations that somebody may wait for; they are never given up."""
