"""`interlock bench`: runs the measurements and prints them beside their budgets."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, TextIO

from interlock.bus.errors import UsageError
from interlock.supervisor.bench.budgets import KEYS, table
from interlock.supervisor.bench.calls import measure_calls
from interlock.supervisor.bench.fleet import measure_fleet
from interlock.supervisor.bench.gate import measure_gate
from interlock.supervisor.bench.kills import measure_kills
from interlock.supervisor.bench.lab import Say, machine
from interlock.supervisor.bench.stall import measure_stall, measure_stopped
from interlock.supervisor.home.folders import temporary_folder

Measure = Callable[[Path, Say], dict[str, float]]

GROUPS: Final[tuple[tuple[Measure, tuple[str, ...]], ...]] = (
    (measure_calls, ("call_p50_ratio", "call_10k_p50_ratio", "calls32_ratio")),
    (measure_kills, ("kill_to_event_ms", "kill_to_usable_ms")),
    (
        measure_fleet,
        (
            "workers50_ready_s",
            "worker_pss_mb",
            "supervisor_idle_cpu_percent",
            "supervisor_rss_mb",
            "status_ms",
        ),
    ),
    (measure_gate, ("gate_us_30", "gate_us_1000")),
    (measure_stall, ("stall_p50_ratio", "stall_failures", "stall_max_ms")),
    (measure_stopped, ("stopped_supervisor_failures",)),
)
"""Each measurement with the keys that it gives; each runs in a temporary home of its own."""


def run_bench(
    only: str | None = None,
    as_json: bool = False,
    out: TextIO | None = None,
    err: TextIO | None = None,
) -> int:
    """Measure, print a table or with `as_json` one object, and return 0.

    `only` names one key; progress goes to `err`. A missed budget is printed, not an error. Raises
    UsageError for an unknown key and InterlockError where something cannot be measured.
    """
    if only is not None and only not in KEYS:
        raise UsageError(f"{only!r} is not measured; the keys are {', '.join(KEYS)}.")
    errors = sys.stderr if err is None else err
    results: dict[str, float] = {}

    def say(text: str) -> None:
        errors.write(text + "\n")
        errors.flush()

    for measure, keys in GROUPS:
        if only is None or only in keys:
            with temporary_folder("interlock-bench-") as folder:
                results |= measure(folder, say)
    if only is not None:
        results = {only: results[only]}
    rounded = {key: round(results[key], 4) for key in KEYS if key in results}
    output = sys.stdout if out is None else out
    if as_json:
        output.write(json.dumps(rounded | {"machine": machine()}) + "\n")
    else:
        output.write("\n".join([*table(rounded), "", machine()]) + "\n")
    return 0
