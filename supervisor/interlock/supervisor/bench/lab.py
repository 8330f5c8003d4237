"""What the measurements share: programs to run, clocks to read, progress to tell."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from interlock.bus import procfs
from interlock.bus.client import Client
from interlock.bus.errors import InterlockError
from interlock.bus.threads import starting_process

SERVERS: Final = Path(__file__).parent / "servers"
PYTHON: Final = (sys.executable, "-I", "-S")
"""A Python that starts fast: the measured servers need the standard library alone."""

Say = Callable[[str], None]
"""Tells progress, on standard error."""


def server(name: str, *arguments: str) -> list[str]:
    """Return the command of one of the small servers."""
    return [*PYTHON, str(SERVERS / f"{name}.py"), *arguments]


def timed_call(bus: Client, capability: str, arguments: dict[str, object]) -> float:
    """Make one call and return its duration in seconds. Raises InterlockError if it fails."""
    started = time.perf_counter()
    result = bus.call(capability, arguments)
    duration = time.perf_counter() - started
    if not result.ok:
        raise InterlockError(f"A measured call ended with {result.outcome}: {result.text}")
    return duration


@contextmanager
def running(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Start a program with these options of Popen; at the end of the block it is killed.

    Raises ProcessLimitError.
    """
    with starting_process():
        process = subprocess.Popen(command, **options)
    with process:
        try:
            yield process
        finally:
            process.kill()


def server_start_seconds() -> float:
    """Return how long the tiny server takes from its start to its first answer."""
    started = time.perf_counter()
    with running(server("tiny"), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        process.stdin.flush()
        process.stdout.readline()
        return time.perf_counter() - started


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the CPU time that these processes used so far."""
    return procfs.cpu_ticks(pids) / os.sysconf("SC_CLK_TCK")


def pss_bytes(pid: int) -> int:
    """Return a process's memory, with shared pages divided among those who share them."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as lines:
        for line in lines:
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return 0


def machine() -> str:
    """Return one line about this machine: numbers of two machines do not compare."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            names = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    except OSError:
        names = []
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"{os.cpu_count()} x {names[0] if names else model}, {platform.system()} "
        f"{platform.release()}, Python {platform.python_version()}, load {load}"
    )
