"""Batches of call reports for the supervisor: sent after 50 ms or when 256 have gathered.

A call that ends before its start was sent is reported once, as a whole; that is nearly every call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from interlock.bus.channel import IncomingCall
from interlock.bus.messages import CallReports, ControlUp
from interlock.bus.records import CallReport
from interlock.workers.kind import Gauges

BATCH_TIME: Final = 0.05
BATCH_SIZE: Final = 256
"""A busy server has dozens of calls under way. In smaller batches most of them would be reported in
two parts, and the supervisor woken up for each handful."""


class CallReporter:
    """Collects starts and ends of calls. A batch that cannot be sent is lost, not kept.

    `on_ended` is called after each batch with the end of a call in it.
    """

    def __init__(
        self,
        send: Callable[[ControlUp], bool],
        gauges: Callable[[], Gauges],
        on_ended: Callable[[], None],
    ) -> None:
        self.lost = 0
        self._send, self._gauges, self._on_ended = send, gauges, on_ended
        self._loop = asyncio.get_running_loop()
        self._begun: dict[str, IncomingCall] = {}
        self._ended: list[CallReport] = []
        self._timer: asyncio.Handle | None = None

    def started(self, request_id: str, call: IncomingCall) -> None:
        """Note that a call was sent to the server."""
        self._begun[request_id] = call
        if self._timer is None or len(self._begun) + len(self._ended) >= BATCH_SIZE:
            self._gather()

    def ended(
        self, request_id: str, call: IncomingCall, outcome: str, seconds: float, size: int = 0
    ) -> None:
        """Note how a call ended, started or not; `size` is that of its result in bytes."""
        report = CallReport(
            id=request_id,
            capability=call.name,
            caller=call.caller,
            turn=call.turn,
            outcome=outcome,
            duration_ms=int(seconds * 1e6) / 1e3,
            request_bytes=len(call.arguments),
            result_bytes=size,
            whole=self._begun.pop(request_id, None) is not None,
        )
        self._ended.append(report)
        if self._timer is None or len(self._begun) + len(self._ended) >= BATCH_SIZE:
            self._gather()

    def flush(self) -> None:
        """Send what has gathered, now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        begun, self._begun = self._begun, {}
        ended, self._ended = self._ended, []
        if not begun and not ended:
            return
        starts = [_start(request_id, call) for request_id, call in begun.items()]
        now = self._gauges()
        message = CallReports(reports=(*ended, *starts), in_flight=now.in_flight, queue=now.queue)
        if not self._send(message):
            self.lost += len(message.reports)
        if ended:
            self._on_ended()

    def _gather(self) -> None:
        if len(self._begun) + len(self._ended) >= BATCH_SIZE:
            self.flush()
        elif self._timer is None:
            self._timer = self._loop.call_later(BATCH_TIME, self.flush)


def _start(request_id: str, call: IncomingCall) -> CallReport:
    return CallReport(
        id=request_id,
        capability=call.name,
        caller=call.caller,
        turn=call.turn,
        request_bytes=len(call.arguments),
    )
