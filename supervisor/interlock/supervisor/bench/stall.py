"""A healthy server beside bad ones, and with the supervisor stopped: does anything stall it?"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from interlock.bus import procfs
from interlock.bus.client import Client
from interlock.supervisor.bench.lab import Say, cpu_seconds, running, server
from interlock.supervisor.home.temporary import (
    COMMAND,
    TemporaryInterlock,
    server_table,
    wait_ready,
)

CALLS: Final = 2000
ROUNDS: Final = 5
STOPPED: Final = 3.0
"""Seconds for which the supervisor is stopped."""
_BAD: Final = ("mcp:mute", "mcp:crash", "mcp:flood", "mcp:big")
_PING: Final = 0.5
_MOVER: Final = (
    "import sys\n"
    "from interlock.bus import connect\n"
    "with connect(sys.argv[1]) as bus:\n"
    "    while True:\n"
    "        bus.call('mcp:big/bytes', {'n': 10_000_000})\n"
)


@dataclass(slots=True)
class _Calls:
    durations: list[float] = field(default_factory=list)
    failures: int = 0

    def run(self, bus: Client, count: int) -> None:
        """Make `count` calls to the healthy server."""
        for _ in range(count):
            self.one(bus)

    def one(self, bus: Client) -> None:
        """Make one call and keep how long it took, or that it failed."""
        started = time.perf_counter()
        result = bus.call("mcp:good/echo", {"text": "x" * 100}, timeout=10.0)
        self.durations.append(time.perf_counter() - started)
        self.failures += not result.ok


def measure_stall(folder: Path, say: Say) -> dict[str, float]:
    """Return what bad neighbours do to a healthy server's calls.

    Rounds beside the bad servers take turns with rounds in which they are stopped and unrelated
    processes use as much CPU time as they did.
    """
    beside = _Calls()
    ratios: list[float] = []
    with TemporaryInterlock(_configuration(), folder) as interlock, interlock.connect() as bus:
        wait_ready(bus, {"mcp:good", "mcp:big", "mcp:flood"}, 30)
        _Calls().run(bus, 100)
        for number in range(1, ROUNDS + 1):
            say(f"stall: round {number} of {ROUNDS}, beside bad servers")
            with _mover(interlock) as mover:
                part = _Calls()
                share = _shares(bus, part, mover)
            beside.durations += part.durations
            beside.failures += part.failures
            for name in _BAD:
                bus.control("stop", name)
            say(f"stall: round {number} of {ROUNDS}, beside {sum(share):.2f} cores of other work")
            with _burners(share):
                other = _Calls()
                other.run(bus, CALLS // ROUNDS)
            ratios.append(statistics.median(part.durations) / statistics.median(other.durations))
            if number < ROUNDS:
                _start_bad(interlock, bus)
    return {
        "stall_p50_ratio": statistics.median(ratios),
        "stall_failures": float(beside.failures),
        "stall_max_ms": max(beside.durations) * 1000,
    }


def measure_stopped(folder: Path, say: Say) -> dict[str, float]:
    """Return how many calls fail, and workers restart, because the supervisor is stopped."""
    calls = _Calls()
    with TemporaryInterlock(_configuration(), folder) as interlock, interlock.connect() as bus:
        wait_ready(bus, {"mcp:good", "mcp:big", "mcp:flood"}, 30)
        calls.run(bus, 10)
        before = _restarts(bus)
        say(f"stopped: the supervisor is stopped for {STOPPED:g} s")
        os.kill(interlock.pid, signal.SIGSTOP)
        try:
            until = time.monotonic() + STOPPED
            while time.monotonic() < until:
                calls.one(bus)
        finally:
            os.kill(interlock.pid, signal.SIGCONT)
        calls.run(bus, max(0, CALLS - len(calls.durations)))
        # A worker that was wrongly taken for hung would be killed within these pings.
        until = time.monotonic() + 6 * _PING
        while time.monotonic() < until:
            calls.one(bus)
            time.sleep(0.01)
        after = _restarts(bus)
    restarted = sum(after[name] - before[name] for name in before)
    return {"stopped_supervisor_failures": float(calls.failures + restarted)}


def _restarts(bus: Client) -> dict[str, int]:
    rows = bus.status()["workers"]
    return {row["name"]: row["restarts"] for row in rows if row["name"] != "mcp:crash"}


def _configuration() -> str:
    python = [sys.executable, "-I", "-S", "-c"]
    return "\n".join(
        [
            f"[supervisor]\ntiming = {{ ping = {_PING} }}\n",
            server_table("good", server("tiny")),
            server_table("mute", [*python, "import sys\nfor line in sys.stdin: pass"]),
            server_table("crash", [*python, "import os\nos._exit(3)"]),
            server_table("flood", server("tiny", "flood")),
            server_table("big", server("tiny"), max_result="16MiB"),
        ]
    )


def _start_bad(interlock: TemporaryInterlock, bus: Client) -> None:
    """Start the bad servers again; the two that never become READY are not waited for."""
    environment, nobody = interlock.environment(), subprocess.DEVNULL
    with ExitStack() as waiting:
        for name in _BAD:
            command = [*COMMAND, "start", name]
            starting = running(command, env=environment, stdout=nobody, stderr=nobody)
            waiting.enter_context(starting)
        wait_ready(bus, {"mcp:big", "mcp:flood"}, 30)


def _shares(bus: Client, calls: _Calls, mover: int) -> list[float]:
    """Make a round of calls and return which shares of a core the neighbours used meanwhile.

    The process `mover` is one of them: what it fetches costs time at both ends.
    """
    rows = {row["name"]: row for row in bus.status()["workers"]}
    roots = [pid for name in _BAD if (pid := rows[name]["pid"])]
    trees = [[pid, *(child.pid for child in procfs.descendants(pid))] for pid in roots]
    trees.append([mover])
    before = [cpu_seconds(tree) for tree in trees]
    started = time.monotonic()
    calls.run(bus, CALLS // ROUNDS)
    spent = time.monotonic() - started
    used = [max(0.0, cpu_seconds(tree) - b) for tree, b in zip(trees, before, strict=True)]
    return [share for each in used if (share := min(1.0, each / spent)) > 0.01]


@contextmanager
def _mover(interlock: TemporaryInterlock) -> Iterator[int]:
    """Run a client that does nothing but fetch 10 MB results; yields its pid."""
    with running([sys.executable, "-P", "-c", _MOVER, str(interlock.home)]) as process:
        yield process.pid


@contextmanager
def _burners(shares: list[float]) -> Iterator[None]:
    """Processes that have nothing to do with Interlock and use these shares of a core."""
    with ExitStack() as burning:
        for share in shares:
            burning.enter_context(running(server("burn", f"{share:.3f}")))
        yield
