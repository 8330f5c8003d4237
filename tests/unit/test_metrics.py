from __future__ import annotations

import os

from interlock.bus.records import CallReport
from interlock.supervisor.fleet.metrics import KEPT, CallMetrics
from interlock.supervisor.fleet.resources import Sampler


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


def test_a_new_process_is_not_measured_by_what_the_one_before_used() -> None:
    sampler = Sampler()
    own = os.getpid()
    assert sampler.sample({"mcp:a": own})["mcp:a"].rss_bytes > 0
    gone = 2**22 + 1  # above every pid
    assert sampler.sample({"mcp:a": gone})["mcp:a"].rss_bytes == 0
