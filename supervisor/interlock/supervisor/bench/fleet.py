"""Fifty workers: how fast they come, what they weigh, and what they cost while idle."""

from __future__ import annotations

import statistics
import subprocess
import time
from pathlib import Path
from typing import Final

from interlock.bus import procfs
from interlock.bus.client import Client
from interlock.bus.messages import ReplayGet
from interlock.bus.threads import starting_process
from interlock.supervisor.bench.lab import Say, cpu_seconds, pss_bytes, server
from interlock.supervisor.home.temporary import (
    COMMAND,
    TemporaryInterlock,
    server_table,
    wait_ready,
)

WORKERS: Final = 50
SETTLE: Final = 5.0
IDLE: Final = 20.0
"""Seconds over which the idle supervisor's CPU time is counted."""
STATUS_RUNS: Final = 9


def measure_fleet(folder: Path, say: Say) -> dict[str, float]:
    """Return the five numbers about many workers."""
    names = [f"w{number:02}" for number in range(WORKERS)]
    config = "\n".join(server_table(name, server("tiny")) for name in names)
    say(f"fleet: starting {WORKERS} workers")
    with TemporaryInterlock(config, folder) as interlock:
        with interlock.connect() as bus:
            wait_ready(bus, {f"mcp:{name}" for name in names}, 60)
            burst = _burst(bus)
            pids = [row["pid"] for row in bus.status()["workers"] if row["kind"] == "mcp"]
        say(f"fleet: idle for {SETTLE + IDLE:g} s")
        time.sleep(SETTLE)
        before = cpu_seconds([interlock.pid])
        time.sleep(IDLE)
        idle = (cpu_seconds([interlock.pid]) - before) / IDLE
        say("fleet: memory and status")
        return {
            "workers50_ready_s": burst,
            "worker_pss_mb": statistics.fmean(map(pss_bytes, pids)) / 2**20,
            "supervisor_idle_cpu_percent": idle * 100,
            "supervisor_rss_mb": procfs.resident_bytes([interlock.pid]) / 2**20,
            "status_ms": statistics.median(_status(interlock) for _ in range(STATUS_RUNS)),
        }


def _burst(bus: Client) -> float:
    """Return the seconds from the first worker's start to the last worker's READY."""
    events = bus.request(ReplayGet, epoch=bus.epoch, seq=0)["events"]
    started = [event["time"] for event in events if event["topic"] == "worker.starting"]
    ready = [event["time"] for event in events if event["topic"] == "worker.ready"]
    return float(max(ready) - min(started))


def _status(interlock: TemporaryInterlock) -> float:
    """Return the milliseconds of one `interlock status`, with the start of its Python."""
    started = time.perf_counter()
    with starting_process():
        subprocess.run(
            [*COMMAND, "status"],
            env=interlock.environment(),
            stdout=subprocess.DEVNULL,
            check=True,
            timeout=30,
        )
    return (time.perf_counter() - started) * 1000
