"""What a worker's lifecycle consists of: its states, its process, its one timer and its record."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from interlock.bus.settings import Timing

INIT_MARGIN = 5.0
"""Seconds on top of a worker's own budget for its preparation, so that it can report first."""


class State(StrEnum):
    """The states of a worker; each worker is in exactly one."""

    STOPPED = "STOPPED"
    STARTING = "STARTING"
    INITIALIZING = "INITIALIZING"
    READY = "READY"
    DEGRADED = "DEGRADED"
    STOPPING = "STOPPING"
    BACKOFF = "BACKOFF"
    FAILED = "FAILED"


UP = frozenset({State.INITIALIZING, State.READY, State.DEGRADED})
"""States in which the worker has said hello, so that its control channel works."""
USABLE = frozenset({State.READY, State.DEGRADED})
"""States in which the worker has finished its preparation."""


class Process(StrEnum):
    """What is known about the operating-system process of the current generation."""

    NONE = "none"
    ASKED = "asked"
    """The spawner has been asked for it and has not answered yet."""
    ALIVE = "alive"


class Timer(StrEnum):
    """What a worker is waiting for; it never waits for two things at once."""

    HELLO = "hello"
    INIT = "init"
    DRAIN = "drain"
    TERM = "term"
    KILL = "kill"
    BACKOFF = "backoff"
    RETRY = "retry"


class After(StrEnum):
    """What follows when the process of a STOPPING worker is gone."""

    STAY = "stay"
    START = "start"
    FAIL = "fail"
    FORGET = "forget"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a generation fails. `permanent`: trying again soon cannot help."""

    code: str
    reason: str
    fix: str = ""
    permanent: bool = False


@dataclass(slots=True)
class Worker:
    """The whole lifecycle of one worker name; only `step` changes it.

    `since` and `ready_at` are readings of the clock that events carry. `init_budget` (seconds) and
    `timing` come from configuration and may be replaced while the worker runs.
    """

    name: str
    kind: str
    timing: Timing = field(default_factory=Timing)
    init_budget: float = 60.0
    state: State = State.STOPPED
    reason: str = ""
    since: float = 0.0
    generation: int = 0
    process: Process = Process.NONE
    pid: int = 0
    tools: int = 0
    restarts: int = 0
    timer: Timer | None = None
    after: After = After.STAY
    failure: Failure | None = None
    """In STOPPING why it ends, in BACKOFF and FAILED why it ended; else None."""
    attempt: int = 0
    """Failures in a row, for the back-off."""
    failures: tuple[float, ...] = ()
    """When it failed lately, for the limit of failures in a window."""
    ready_at: float | None = None
