"""What a worker's calls amount to, from its own reports."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from interlock.bus.records import CallReport

KEPT: Final = 512
"""Durations that percentiles are taken over: the newest ones."""
FINE: Final = frozenset({"ok", "tool_error", "cancelled"})
"""Outcomes that are no fault of the worker."""


class CallMetrics:
    """Counters since the supervisor started and the durations of the last calls."""

    def __init__(self) -> None:
        self.calls = 0
        self.errors = 0
        self._durations: deque[float] = deque(maxlen=KEPT)

    def add(self, reports: Iterable[CallReport]) -> None:
        """Count the calls that have ended."""
        for report in reports:
            if not report.outcome:
                continue
            self.calls += 1
            self.errors += report.outcome not in FINE
            self._durations.append(report.duration_ms)

    def percentiles(self) -> tuple[float | None, float | None]:
        """Median and 99th percentile of the last calls in milliseconds; None without calls.

        >>> metrics = CallMetrics()
        >>> metrics.percentiles()
        (None, None)
        """
        if not self._durations:
            return None, None
        ordered = sorted(self._durations)
        last = len(ordered) - 1
        return ordered[round(last * 0.5)], ordered[round(last * 0.99)]
