"""What the runtime keeps about one worker beside its lifecycle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from interlock.bus.records import Child
from interlock.supervisor.config.model import Entry
from interlock.supervisor.fleet.metrics import CallMetrics
from interlock.supervisor.fleet.resources import Load
from interlock.supervisor.lifecycle.states import State, Worker

Predicate = Callable[[Worker], bool]

SETTLED = frozenset({State.STOPPED, State.READY, State.DEGRADED, State.BACKOFF, State.FAILED})
"""States that are the outcome of something, and not a way to one."""


@dataclass(slots=True)
class Member:
    """One worker: its lifecycle, its configuration and what its current generation told."""

    worker: Worker
    entry: Entry
    key: bytes = b""
    """Ticket key of the current generation; a secret."""
    endpoint: str = ""
    server: str = ""
    children: tuple[Child, ...] = ()
    in_flight: int = 0
    queue: int = 0
    dropped: int = 0
    degraded_code: str = ""
    fenced: int = 0
    """The newest generation that is known to be dead."""
    told_gone: int = 0
    """The newest generation whose end has been told."""
    metrics: CallMetrics = field(default_factory=CallMetrics)
    timer: asyncio.TimerHandle | None = None
    waiters: list[tuple[Predicate, asyncio.Future[None]]] = field(default_factory=list)

    def forget_generation(self) -> None:
        """Drop what only a live process can have."""
        self.key = b""
        self.endpoint = ""
        self.children = ()
        self.in_flight = self.queue = 0

    def wake(self) -> None:
        """Resolve the waiters whose wish has come true."""
        waiting, self.waiters = self.waiters, []
        for predicate, future in waiting:
            if future.done():
                continue
            if predicate(self.worker):
                future.set_result(None)
            else:
                self.waiters.append((predicate, future))

    def row(self, load: Load, now: float, unix: float) -> dict[str, Any]:
        """Make the worker's row of the status document; `now` and `unix` are the same moment."""
        worker = self.worker
        p50, p99 = self.metrics.percentiles()
        return {
            "name": worker.name,
            "kind": worker.kind,
            "state": str(worker.state),
            "reason": worker.reason,
            "pid": worker.pid or None,
            "generation": worker.generation,
            "restarts": worker.restarts,
            "since": unix - (now - worker.since),
            "rss_bytes": load.rss_bytes,
            "cpu_percent": load.cpu_percent,
            "calls": self.metrics.calls,
            "errors": self.metrics.errors,
            "in_flight": self.in_flight,
            "queue": self.queue,
            "p50_ms": p50,
            "p99_ms": p99,
            "tools": worker.tools,
            "children": [{"pid": child.pid, "command": child.command} for child in self.children],
            "server": self.server,
            "dropped": self.dropped,
        }
