from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Mapping

import msgspec
import pytest

from interlock.bus import procfs
from interlock.bus.records import CallReport, Child
from interlock.supervisor.fleet import resources
from interlock.supervisor.fleet.metrics import KEPT, CallMetrics
from interlock.supervisor.fleet.resources import Load, Sampler
from interlock.supervisor.spawn.limits import Usage
from interlock.supervisor.spawn.sweep import MAX_CLAIMED, below


def ended(outcome: str, duration: float) -> CallReport:
    return CallReport(id="1", capability="t", outcome=outcome, duration_ms=duration)


def test_only_ends_count_and_a_tool_s_own_error_is_no_error() -> None:
    metrics = CallMetrics()
    metrics.add([CallReport(id="1", capability="t")])
    metrics.add([ended("ok", 1.0), ended("tool_error", 2.0), ended("timeout", 3.0)])
    assert (metrics.calls, metrics.errors) == (3, 1)
    assert metrics.percentiles() == (2.0, 3.0)


def test_percentiles_are_of_the_last_calls() -> None:
    metrics = CallMetrics()
    metrics.add(ended("ok", 1000.0) for _ in range(10))
    metrics.add(ended("ok", float(n)) for n in range(KEPT))
    p50, p99 = metrics.percentiles()
    assert p50 is not None and abs(p50 - KEPT / 2) <= 1
    assert p99 is not None and abs(p99 - KEPT * 0.99) <= 2
    assert metrics.calls == KEPT + 10


GONE = 2**22 + 1
"""Above every pid."""


class Slow:
    """Takes until `go` is set for each measurement, and keeps what it was asked for."""

    def __init__(self) -> None:
        self.go, self.asked = threading.Event(), list[set[str]]()

    def __call__(self, roots: Mapping[str, int]) -> dict[str, Usage]:
        self.asked.append(set(roots))
        assert self.go.wait(20), "nothing else runs meanwhile"
        return {name: Usage(resident=pid) for name, pid in roots.items()}


def test_a_new_process_is_not_measured_by_what_the_one_before_used() -> None:
    async def story() -> None:
        sampler = Sampler()
        own = os.getpid()
        await sampler.measure({"mcp:a": own})
        assert sampler.load("mcp:a", own).rss_bytes > 0
        assert sampler.own().rss_bytes > 0
        assert sampler.load("mcp:a", GONE) == Load()
        await sampler.measure({"mcp:a": GONE})
        assert sampler.load("mcp:a", GONE) == Load()
        assert sampler.load("mcp:a", own) == Load()

    asyncio.run(story())


def test_a_long_look_at_many_processes_holds_nobody_up_and_serves_all_who_ask() -> None:
    async def story() -> None:
        slow = Slow()
        sampler = Sampler(slow)
        async with asyncio.TaskGroup() as group:
            asking = [group.create_task(sampler.measure({"a": 1, "b": 2})) for _ in range(3)]
            late = group.create_task(sampler.measure({"a": 1, "c": 3}))
            await asyncio.sleep(0)  # all of them have begun
            assert not any(task.done() for task in (*asking, late))
            slow.go.set()
        assert slow.asked == [{"a", "b"}, {"c"}]
        loads = [sampler.load(name, pid).rss_bytes for name, pid in (("a", 1), ("b", 2), ("c", 3))]
        assert loads == [1, 2, 3]

    asyncio.run(story())


def test_who_asks_waits_for_so_long_and_gets_what_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resources, "PATIENCE", 0.05)

    async def story() -> None:
        slow = Slow()
        sampler = Sampler(slow)
        await sampler.measure({"a": 1})
        assert sampler.load("a", 1) == Load()
        await sampler.measure({"a": 1})
        assert slow.asked == [{"a"}]
        slow.go.set()
        monkeypatch.setattr(resources, "PATIENCE", 20.0)
        await sampler.measure({"a": 1})
        assert sampler.load("a", 1).rss_bytes == 1
        await sampler.measure({"a": 1})  # what took long is good for long
        assert slow.asked == [{"a"}]

    asyncio.run(story())


def test_the_claims_of_one_worker_cost_little_whatever_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Processes that are not below it are all looked at anew, together."""
    reads: list[int] = []
    stat = procfs.stat
    mine = Child(pid=os.getpid(), start=procfs.start_time(os.getpid()) or 0)

    def counted(pid: int) -> procfs.Stat | None:
        reads.append(pid)
        return stat(pid)

    monkeypatch.setattr(procfs, "stat", counted)
    claims = [msgspec.structs.replace(mine, command=str(n)) for n in range(MAX_CLAIMED)]
    assert below(GONE, claims) == ()
    assert len(reads) <= 2 * len(set(reads))
    assert below(os.getppid(), claims) == tuple(claims)


def test_a_measurement_that_is_over_and_not_taken_in_yet_stops_nobody() -> None:
    """To wait for it gives way to nobody: the loop went round for ever, and the supervisor hung."""

    async def story() -> None:
        sampler = Sampler(lambda roots: {name: Usage(resident=1) for name in roots})
        over: asyncio.Future[dict[str, Usage]] = asyncio.get_running_loop().create_future()

        def done(_: asyncio.Future[dict[str, Usage]]) -> None:
            sampler._running = None

        over.add_done_callback(done)
        sampler._running = over
        over.set_result({})
        await sampler.measure({"x": GONE})
        assert sampler.load("x", GONE) == Load(1, 0.0)

    asyncio.run(story())


def test_a_measurement_that_fails_takes_no_status_away_and_is_told_of_once() -> None:
    async def story() -> None:
        told: list[BaseException] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
        fails = [True]

        def measure(roots: Mapping[str, int]) -> dict[str, Usage]:
            if fails[0]:
                raise ValueError("an odd line in a file of the kernel")
            return {name: Usage(resident=1) for name in roots}

        sampler = Sampler(measure)
        for _ in range(2):
            await asyncio.gather(*(sampler.measure({"x": GONE}) for _ in range(3)))
        assert [type(error) for error in told] == [ValueError]
        assert sampler.load("x", GONE) == Load()
        fails[0] = False
        await sampler.measure({"x": GONE})
        assert sampler.load("x", GONE).rss_bytes == 1
        fails[0] = True
        await sampler.measure({"y": GONE})
        assert len(told) == 2

    asyncio.run(story())
