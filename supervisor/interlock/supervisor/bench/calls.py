"""The way of one call: through the bus, and by the SDK's client, round by round in turns."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from interlock.bus import AsyncClient
from interlock.bus.client import Client
from interlock.bus.errors import InterlockError
from interlock.supervisor.bench.lab import Say, running, server, timed_call
from interlock.supervisor.home.temporary import TemporaryInterlock, server_table, wait_ready

ROUNDS: Final = 15
"""Many short ones: other work on the machine then falls on both sides alike."""
SERIAL: Final = 150
"""Calls of a round, one after the other."""
WIDTH: Final = 32
WIDE: Final = 960
"""Calls of a round with `WIDTH` under way."""
_ECHO: Final = "mcp:tiny/echo"


def measure_calls(folder: Path, say: Say) -> dict[str, float]:
    """Return the three ratios of the bus to the SDK client; medians over interleaved rounds."""
    config = server_table("tiny", server("tiny"), concurrency=WIDTH, queue=WIDTH)
    ratios: dict[str, list[float]] = {}
    with TemporaryInterlock(config, folder) as interlock, interlock.connect() as bus, _sdk() as sdk:
        wait_ready(bus, {"mcp:tiny"}, 30)
        for size in (100, 10_000):
            _serial(bus, SERIAL, size)
            sdk.p50(SERIAL, size)
        for number in range(1, ROUNDS + 1):
            say(f"calls: round {number} of {ROUNDS}")
            for key, size in (("call_p50_ratio", 100), ("call_10k_p50_ratio", 10_000)):
                # Who begins takes turns as well.
                theirs = sdk.p50(SERIAL, size) if number % 2 else 0.0
                ours = _serial(bus, SERIAL, size)
                ratios.setdefault(key, []).append(ours / (theirs or sdk.p50(SERIAL, size)))
            wide = asyncio.run(_wide(interlock.home))
            ratios.setdefault("calls32_ratio", []).append(wide / sdk.per_second(WIDE, 100))
    return {key: statistics.median(values) for key, values in ratios.items()}


def _serial(bus: Client, calls: int, size: int) -> float:
    """Return the median duration of a call in microseconds."""
    arguments: dict[str, object] = {"text": "x" * size}
    return statistics.median(timed_call(bus, _ECHO, arguments) for _ in range(calls)) * 1e6


async def _wide(home: Path) -> float:
    """Return calls per second with `WIDTH` calls under way."""
    arguments = {"text": "x" * 100}
    async with AsyncClient.connect(home) as bus:

        async def lane(calls: int) -> None:
            for _ in range(calls):
                result = await bus.call(_ECHO, arguments)
                if not result.ok:
                    raise InterlockError(f"A measured call ended with {result.outcome}.")

        await lane(20)
        started = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(WIDTH):
                group.create_task(lane(WIDE // WIDTH))
        return WIDE / (time.perf_counter() - started)


class _Sdk:
    """The SDK's client in a process of its own; the supervisor's package may not import it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def p50(self, calls: int, size: int) -> float:
        """Return the median duration of a call in microseconds."""
        return self._ask(calls, size, 1)["p50_us"]

    def per_second(self, calls: int, size: int) -> float:
        """Return calls per second with `WIDTH` calls under way."""
        return self._ask(calls, size, WIDTH)["per_second"]

    def _ask(self, calls: int, size: int, width: int) -> dict[str, float]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"calls": calls, "size": size, "width": width}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise InterlockError("The SDK's client ended; is the package mcp installed?")
        answer: dict[str, float] = json.loads(line)
        return answer


@contextmanager
def _sdk() -> Iterator[_Sdk]:
    command = [sys.executable, "-P", "-m", "interlock.workers.mcp.sdkbench", *server("tiny")]
    pipe = subprocess.PIPE
    with running(command, stdin=pipe, stdout=pipe, text=True, bufsize=1) as process:
        yield _Sdk(process)
