"""Pure: what is measured, what is aimed at, and the table that sets one beside the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Budget:
    """One measured number. `most` and `least` bound it; both None means that it is only told."""

    key: str
    what: str
    most: float | None = None
    least: float | None = None

    def met(self, value: float) -> bool:
        """Tell whether a value is within the budget."""
        return (self.most is None or value <= self.most) and (
            self.least is None or value >= self.least
        )

    @property
    def target(self) -> str:
        """The bound in words."""
        if self.most is not None:
            return f"<= {self.most:g}"
        return "" if self.least is None else f">= {self.least:g}"


BUDGETS: Final = (
    Budget("call_p50_ratio", "100-byte call, p50, against the SDK client", most=0.7),
    Budget("call_10k_p50_ratio", "10 KB call, p50, against the SDK client", most=0.9),
    Budget("calls32_ratio", "32 calls at once, calls per second, against the same", least=4),
    Budget("kill_to_event_ms", "SIGKILL of a worker until the event, ms", most=50),
    Budget("kill_to_usable_ms", "SIGKILL until usable, less the server's start, ms", most=1000),
    Budget("workers50_ready_s", "50 MCP workers in one burst until READY, s", most=5),
    Budget("worker_pss_mb", "memory of one MCP worker (PSS), MB", most=10),
    Budget("supervisor_idle_cpu_percent", "supervisor with 50 idle workers, % of a core", most=1),
    Budget("supervisor_rss_mb", "supervisor with 50 idle workers, MB", most=60),
    Budget("status_ms", "`interlock status` with the start of Python, ms", most=250),
    Budget("stall_p50_ratio", "call beside bad servers against beside as much load", most=1.3),
    Budget("stall_failures", "failures of 2,000 calls beside bad servers", most=0),
    Budget("stall_max_ms", "slowest of these calls, ms", most=250),
    Budget("gate_us_30", "the gate's decision with 30 servers, CPU p50, us", most=75),
    Budget("gate_us_1000", "the same with 1,000 servers, us", most=300),
    Budget("stopped_supervisor_failures", "failures while the supervisor is stopped", most=0),
)
KEYS: Final = tuple(budget.key for budget in BUDGETS)


def table(results: Mapping[str, float]) -> list[str]:
    """Return aligned lines: what, measured, target, and whether it is met.

    >>> table({"stall_failures": 0.0})[1].split("  ")[-1]
    'met'
    """
    cells = [("MEASURED", "VALUE", "TARGET", "")]
    for budget in BUDGETS:
        if budget.key in results:
            value = results[budget.key]
            verdict = "met" if budget.met(value) else "missed"
            cells.append((budget.what, f"{value:.4g}", budget.target, verdict))
    return _aligned(cells)


def _aligned(cells: Iterable[tuple[str, ...]]) -> list[str]:
    lines = list(cells)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
