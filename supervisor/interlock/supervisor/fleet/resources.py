"""Memory and processor time of process trees, measured only when somebody asks."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from interlock.bus import procfs
from interlock.supervisor.spawn import limits

FRESH: Final = 0.5
"""Seconds for which a measurement is good enough for the next who asks."""
SHARE: Final = 4
"""A measurement that took long stays good for that many times as long."""
PATIENCE: Final = 2.0
"""Seconds that who asks waits for a measurement; then the one before has to do."""
OWN: Final = ""
"""Name of the supervisor itself, without what is below it."""

Measure = Callable[[Mapping[str, int]], dict[str, limits.Usage]]


class Load(NamedTuple):
    """What a tree uses; `cpu_percent` is of one core, since the measurement before."""

    rss_bytes: int = 0
    cpu_percent: float = 0.0


class _Measured(NamedTuple):
    pid: int
    at: float
    """Monotonic seconds."""
    usage: limits.Usage
    load: Load


class Sampler:
    """Measures the trees that it is asked about, in a thread: a tree may have any number of
    processes, and a look at thousands takes longer than any turn may wait.

    One measurement runs at a time, and it serves all who ask meanwhile.
    """

    def __init__(self, measure: Measure = limits.sample) -> None:
        self._measure = measure
        self._measured: dict[str, _Measured] = {}
        self._due = 0.0
        """When the next one may begin, in monotonic seconds."""
        self._running: asyncio.Future[dict[str, limits.Usage]] | None = None
        self._told = False

    async def measure(self, roots: Mapping[str, int]) -> None:
        """Bring the loads of these trees and of the supervisor up to date, if they are not."""
        roots = {**roots, OWN: os.getpid()}
        try:
            async with asyncio.timeout(PATIENCE):
                while self._running is not None or (wanted := self._wanted(roots)):
                    if self._running is None:
                        self._running = self._begin(wanted)
                    await asyncio.shield(self._running)
                    # To wait for what is over gives way to nobody, and `done` may not have run yet.
                    await asyncio.sleep(0)
        except Exception as error:  # noqa: BLE001 - whatever it was, who asks gets what is known
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        """Tell of what no measurement should raise, once until one succeeds."""
        # Too slow, no file, or the system has no thread left.
        if self._told or isinstance(error, TimeoutError | OSError | RuntimeError):
            return
        self._told = True
        context = {"message": "Processes could not be measured", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)

    def load(self, name: str, pid: int) -> Load:
        """The last load of that tree; nothing if it has not been measured."""
        found = self._measured.get(name)
        return found.load if found is not None and found.pid == pid else Load()

    def own(self) -> Load:
        """That of the supervisor."""
        return self.load(OWN, os.getpid())

    def _wanted(self, roots: Mapping[str, int]) -> dict[str, int]:
        """What is to be measured: all, or while that is too early, what never was."""
        if time.monotonic() >= self._due:
            return dict(roots)
        known = self._measured
        return {
            name: pid for name, pid in roots.items() if name not in known or known[name].pid != pid
        }

    def _begin(self, roots: dict[str, int]) -> asyncio.Future[dict[str, limits.Usage]]:
        begun = time.monotonic()
        whole = begun >= self._due

        def done(measured: asyncio.Future[dict[str, limits.Usage]]) -> None:
            self._running = None
            if not measured.cancelled() and measured.exception() is None:
                self._take(roots, measured.result(), begun, whole)

        running = asyncio.get_running_loop().run_in_executor(None, self._look, roots)
        running.add_done_callback(done)
        return running

    def _look(self, roots: Mapping[str, int]) -> dict[str, limits.Usage]:
        usage = self._measure({name: pid for name, pid in roots.items() if name != OWN})
        return usage | {OWN: _own_usage()} if OWN in roots else usage

    def _take(
        self, roots: Mapping[str, int], usage: Mapping[str, limits.Usage], begun: float, whole: bool
    ) -> None:
        self._told = False
        before = self._measured
        self._measured = {} if whole else dict(before)
        for name, used in usage.items():
            pid, percent = roots[name], 0.0
            last = before.get(name)
            if last is not None and last.pid == pid:
                percent = round(limits.cpu_percent(last.usage, used, begun - last.at), 1)
            self._measured[name] = _Measured(pid, begun, used, Load(used.resident, percent))
        if whole:
            now = time.monotonic()
            self._due = now + max(FRESH, SHARE * (now - begun))


def _own_usage() -> limits.Usage:
    own = [os.getpid()]
    return limits.Usage(
        resident=procfs.resident_bytes(own), cpu_ticks=procfs.cpu_ticks(own), processes=1
    )
