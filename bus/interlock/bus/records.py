"""Records that several messages carry, and the boot record of a worker process."""

from __future__ import annotations

from typing import Literal

import msgspec

Tier = Literal["safe", "monitor", "ask", "block"]


class Child(msgspec.Struct, frozen=True, kw_only=True):
    """A process below a worker. `start` is its start time in kernel ticks since boot."""

    pid: int
    start: int
    command: str = ""


class CapabilityReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One tool as its source reports it. Annotations are None where the source says nothing."""

    name: str
    digest: str
    """SHA-256, 64 hex digits, of the tool's schema document."""
    summary: str = ""
    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None


class DroppedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that was left out or mended, and why."""

    name: str
    reason: str
    mended: bool = False


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where one generation of a serving worker is reached, and the right to call it."""

    worker: str
    generation: int
    endpoint: str
    ticket: str
    expires_in: float
    """Seconds from now; relative, so that clocks need not agree."""


class OfferRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One capability of a turn's offer. `local` is the name that the target knows it by."""

    name: str
    wire: str
    worker: str
    local: str
    summary: str = ""
    tier: Tier = "monitor"
    digest: str = ""
    timeout: float = 60.0
    timeout_max: float = 600.0
    idempotent: bool = False
    per_call: bool = False
    """Each call needs a ticket of its own: ask for it with the arguments (`ticket.request`)."""


class CallReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call seen by the serving worker. `outcome` is empty while it runs."""

    id: str
    """Unique within the worker's generation."""
    capability: str
    """The local name."""
    caller: str = ""
    turn: str = ""
    outcome: str = ""
    duration_ms: float = 0.0
    request_bytes: int = 0
    result_bytes: int = 0
    whole: bool = False
    """It ended before its start was reported, so this report stands for both."""


class Boot(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker process learns on its lifeline before anything else; msgpack, one record."""

    name: str
    kind: str
    generation: int
    nonce: str
    token: str
    control: str
    """Endpoint of the control plane."""
    home: str
    log: str
    """Absolute path of the worker's log file."""
    nice: int = 0
    image: str = "base"
    before: str = ""
    """Why the generation before ended, for the log; empty if there was none."""

    @property
    def identity(self) -> bytes:
        """Routing id on the control plane."""
        return f"{self.name}#{self.generation}#{self.nonce}".encode()
