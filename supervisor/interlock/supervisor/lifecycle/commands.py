"""What the caller of `step` must do, in order."""

from __future__ import annotations

from dataclasses import dataclass

from interlock.bus.events import WorkerEvent
from interlock.supervisor.lifecycle.states import Timer


@dataclass(frozen=True, slots=True)
class Spawn:
    """Ask the spawner for the process of this generation."""

    generation: int


@dataclass(frozen=True, slots=True)
class SendConfigure:
    """Tell the worker what it is to be."""

    generation: int


@dataclass(frozen=True, slots=True)
class SendDrain:
    """Tell the worker to finish what runs within `seconds`."""

    generation: int
    seconds: float


@dataclass(frozen=True, slots=True)
class SendStop:
    """Tell the worker to end in order."""

    generation: int


@dataclass(frozen=True, slots=True)
class Signal:
    """Send SIGTERM, or with `kill` SIGKILL, to the process of this generation."""

    generation: int
    kill: bool = False


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Feed `TimerFired` after `delay` seconds; replaces the worker's timer, if any."""

    generation: int
    timer: Timer
    delay: float


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """The worker waits for nothing any more."""


@dataclass(frozen=True, slots=True)
class Fence:
    """The process of this generation is gone: fail its calls, forget its keys and sockets."""

    generation: int
    reason: str


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish this event."""

    event: WorkerEvent


@dataclass(frozen=True, slots=True)
class Forget:
    """Drop the worker's record."""


Command = (
    Spawn
    | SendConfigure
    | SendDrain
    | SendStop
    | Signal
    | SetTimer
    | CancelTimer
    | Fence
    | Publish
    | Forget
)
