from __future__ import annotations

from interlock.bus.records import CallReport
from interlock.supervisor.metrics import KEPT, CallMetrics


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
