"""Memory and processor time of process trees, measured only when somebody asks."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Final, NamedTuple

from interlock.bus import procfs

FRESH: Final = 0.5
"""Seconds for which a measurement is good enough for the next who asks."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Usage(NamedTuple):
    """`cpu_percent` is of one core, since the measurement before."""

    rss_bytes: int = 0
    cpu_percent: float = 0.0


class Sampler:
    """Measures the tree of each process that it is asked about, and of this process alone."""

    def __init__(self) -> None:
        self._at = 0.0
        self._usage: dict[str, Usage] = {}
        self._before: dict[str, tuple[int, float, int]] = {}

    def sample(self, pids: Mapping[str, int]) -> Mapping[str, Usage]:
        """Return the usage of each tree by name; "" is the supervisor itself.

        `pids` has the root of each tree.
        """
        now = time.monotonic()
        if now - self._at < FRESH and pids.keys() <= self._usage.keys():
            return self._usage
        self._at = now
        before, self._before = self._before, {}
        self._usage = {
            name: self._measure(name, pid, now, before.get(name)) for name, pid in pids.items()
        }
        self._usage[""] = self._measure("", os.getpid(), now, before.get(""))
        return self._usage

    def _measure(
        self, name: str, root: int, now: float, before: tuple[int, float, int] | None
    ) -> Usage:
        pids = [root]
        if name:
            pids += [child.pid for child in procfs.descendants(root)]
        ticks = procfs.cpu_ticks(pids)
        self._before[name] = (root, now, ticks)
        percent = 0.0
        if before is not None and before[0] == root and now > before[1]:
            # A child that ended takes its time with it; that is no negative load.
            percent = max(0.0, 100 * (ticks - before[2]) / _TICKS / (now - before[1]))
        return Usage(procfs.resident_bytes(pids), round(percent, 1))
