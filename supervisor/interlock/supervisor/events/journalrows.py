"""What the journal stores, as records."""

from __future__ import annotations

import msgspec


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
