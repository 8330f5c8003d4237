"""What a worker still does at its end, and how long that may take."""

from __future__ import annotations

import asyncio

from interlock.bus.events import TurnCompleted
from interlock.bus.settings import Timing
from interlock.workers import host
from interlock.workers.agent.items import ItemSink
from interlock.workers.core.worker import CoreKind
from interlock.workers.mcp.worker import GRACE
from interlock.workers.reports import CallReporter


def test_all_steps_of_the_end_fit_before_sigkill() -> None:
    """Promise: a worker ends in order within the term that the supervisor gives it."""
    steps = (host.STOP_TIME, host.SWEEP_TIME, host.FAREWELL, host.LINGER)
    assert sum(steps) <= Timing().term - 0.5
    assert 4 * GRACE < host.STOP_TIME


def test_items_that_nobody_takes_are_not_waited_for_for_ever() -> None:
    async def scenario() -> None:
        taken: list[bytes] = []
        sink = ItemSink(lambda body: False)
        sink.put(TurnCompleted(text="x"))
        assert not await sink.flushed(0.05)
        sink.close()
        sink = ItemSink(lambda body: taken.append(body) is None)
        sink.put(TurnCompleted(text="x"))
        assert await sink.flushed(5.0)
        assert len(taken) == 1

    asyncio.run(scenario())


def test_reports_of_calls_that_were_lost_are_counted_in_the_status() -> None:
    async def scenario() -> None:
        kind = CoreKind()
        kind._reporter = reporter = CallReporter(lambda _: False, kind.gauges, lambda: None)
        before = kind.gauges().dropped
        reporter.lost += 3
        assert kind.gauges().dropped == before + 3

    asyncio.run(scenario())
