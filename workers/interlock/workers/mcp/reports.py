"""Batches of call reports for the supervisor: sent after 50 ms or when 64 have gathered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from interlock.bus.messages import CallReports, ControlUp
from interlock.bus.records import CallReport
from interlock.workers.kind import Gauges

BATCH_TIME: Final = 0.05
BATCH_SIZE: Final = 64


class CallReporter:
    """Collects reports and sends them in order. A batch that cannot be sent is lost, not kept."""

    def __init__(self, send: Callable[[ControlUp], bool], gauges: Callable[[], Gauges]) -> None:
        self.lost = 0
        self._send, self._gauges = send, gauges
        self._loop = asyncio.get_running_loop()
        self._batch: list[CallReport] = []
        self._timer: asyncio.Handle | None = None

    def add(self, report: CallReport) -> None:
        """Take one report; it leaves with its batch."""
        self._batch.append(report)
        if len(self._batch) >= BATCH_SIZE:
            self.flush()
        elif self._timer is None:
            self._timer = self._loop.call_later(BATCH_TIME, self.flush)

    def flush(self) -> None:
        """Send what has gathered, now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._batch:
            return
        batch, self._batch = tuple(self._batch), []
        now = self._gauges()
        message = CallReports(reports=batch, in_flight=now.in_flight, queue=now.queue)
        if not self._send(message):
            self.lost += len(batch)
