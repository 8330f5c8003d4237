"""What the turn service needs from the runtime around it, as protocols and plain records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from interlock.bus.messages import ApiAnswer, ControlDown
from interlock.bus.settings import AgentSettings, PolicySettings

Answer = Callable[[bytes, ApiAnswer, bytes | None], bool]
"""Sends one answer to an api identity in its encoding; False: full or gone, it never waits."""


class Attention(Protocol):
    """Sets a needs-attention row of the supervisor, or with `clear` takes it away."""

    def __call__(self, code: str, message: str, fix: str, *, clear: bool = False) -> None:
        """Set or clear the row `code`; called in the event loop."""


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """One worker as the lifecycle sees it now."""

    name: str
    """`mcp:git`, `agent:main`."""
    kind: str
    state: str
    """A lifecycle state: READY, BACKOFF, ...; BACKOFF as soon as its process is known to be dead,
    and while it is stopped only to be started again."""
    reason: str = ""
    generation: int = 0
    stopped_for: str = ""
    """Why its process is being stopped in order; empty if it is not."""


class Workers(Protocol):
    """The runtime, as far as turns need it. No method waits."""

    def view(self, worker: str) -> WorkerView | None:
        """The worker with that name, or None if none is configured."""

    def agents(self) -> Mapping[str, AgentSettings]:
        """Enabled agents by name, without `agent:`."""

    def unused(self, name: str) -> str:
        """Why the entry with that name has no worker, and what to do; empty if there is none."""

    def default_agent(self) -> str:
        """Name of the agent that a turn without one goes to."""

    def policy(self) -> PolicySettings:
        """The policy in force."""

    def send(
        self, worker: str, generation: int, message: ControlDown, body: bytes | None = None
    ) -> bool:
        """Send on control to exactly that generation; False: gone or full."""
