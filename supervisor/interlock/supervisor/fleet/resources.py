"""Memory and processor time of process trees, measured only when somebody asks."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Final, NamedTuple

from interlock.bus import procfs
from interlock.supervisor.spawn import limits

FRESH: Final = 0.5
"""Seconds for which a measurement is good enough for the next who asks."""
OWN: Final = ""
"""Name of the supervisor itself, without what is below it."""


class Load(NamedTuple):
    """What a tree uses; `cpu_percent` is of one core, since the measurement before."""

    rss_bytes: int = 0
    cpu_percent: float = 0.0


class Sampler:
    """Measures the trees that it is asked about, at most once every `FRESH` seconds."""

    def __init__(self) -> None:
        self._at = 0.0
        self._loads: dict[str, Load] = {}
        self._before: dict[str, tuple[int, limits.Usage]] = {}

    def sample(self, roots: Mapping[str, int]) -> Mapping[str, Load]:
        """Return the load of each tree by name, and that of the supervisor as `OWN`."""
        now = time.monotonic()
        seconds = now - self._at
        measured = {name: pid for name, (pid, _) in self._before.items()}
        if seconds < FRESH and roots.items() <= measured.items():
            return self._loads
        pids = {**roots, OWN: os.getpid()}
        usage = limits.sample(roots) | {OWN: _own_usage()}
        self._loads = {}
        for name, used in usage.items():
            pid, before = self._before.get(name, (0, used))
            percent = limits.cpu_percent(before, used, seconds) if pid == pids[name] else 0.0
            self._loads[name] = Load(used.resident, round(percent, 1))
        self._before = {name: (pids[name], used) for name, used in usage.items()}
        self._at = now
        return self._loads


def _own_usage() -> limits.Usage:
    own = [os.getpid()]
    return limits.Usage(
        resident=procfs.resident_bytes(own), cpu_ticks=procfs.cpu_ticks(own), processes=1
    )
