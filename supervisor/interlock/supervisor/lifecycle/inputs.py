"""What can happen to a worker. `now` is a monotonic clock in seconds, read by the caller."""

from __future__ import annotations

from dataclasses import dataclass

from interlock.supervisor.lifecycle.states import Timer


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """Base of everything that `step` takes."""

    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(Input):
    """Somebody wants the worker to run; forgets earlier failures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop(Input):
    """Somebody wants the worker not to run.

    `configured`: because its entry says so, which therefore is there, even if it was gone before.
    """

    reason: str = ""
    configured: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart(Input):
    """Somebody wants a new generation.

    A start that has just begun counts as one, unless `changed` says that what it was started with
    is out of date.
    """

    reason: str = ""
    changed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove(Input):
    """The worker is in no configuration any more: stop it, then forget it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnerLost(Input):
    """The spawner died and every process below it has been swept."""

    reason: str = "spawner died"
    jitter: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired(Input):
    """The time of the worker's timer is up."""

    generation: int
    timer: Timer


@dataclass(frozen=True, slots=True, kw_only=True)
class FromProcess(Input):
    """Base of what happens to, or is said by, one generation; a stale one is ignored."""

    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawned(FromProcess):
    """The process exists."""

    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnFailed(FromProcess):
    """There will be no process. `jitter` (0.8 to 1.2) spreads the back-off."""

    code: str
    message: str
    permanent: bool = False
    jitter: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HelloReceived(FromProcess):
    """The process proved its one-time token; this may come before the spawner's own word."""

    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyReceived(FromProcess):
    """The worker finished its preparation."""

    tools: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsReceived(FromProcess):
    """The worker says how many tools it serves now."""

    tools: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StateReceived(FromProcess):
    """The worker says that it is usable as wished, or (`degraded`) why not."""

    degraded: bool
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureReceived(FromProcess):
    """The worker says why it is about to exit."""

    code: str
    reason: str
    fix: str = ""
    permanent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainedReceived(FromProcess):
    """Nothing is under way in the worker any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hung(FromProcess):
    """The worker's event loop did not answer its pings."""

    misses: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitExceeded(FromProcess):
    """The worker's process tree is over a hard limit."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exited(FromProcess):
    """The process is gone. Exactly one of `exit_code` and `signal` is set, if known at all."""

    exit_code: int | None = None
    signal: int | None = None
    jitter: float = 1.0
