"""How soon a worker's death is told, and how soon its successor serves."""

from __future__ import annotations

import os
import signal
import statistics
import threading
import time
from pathlib import Path
from typing import Any, Final

from interlock.bus.client import Client
from interlock.bus.errors import ConnectionLostError, InterlockError
from interlock.supervisor.bench.lab import Say, server, server_start_seconds
from interlock.supervisor.home.temporary import TemporaryInterlock, server_table, wait_ready

WORKERS: Final = 7
"""Each is killed once: a second death would wait for a longer backoff."""
_PATIENCE: Final = 20.0


def measure_kills(folder: Path, say: Say) -> dict[str, float]:
    """Return the medians of SIGKILL to event and SIGKILL to usable, in milliseconds."""
    names = [f"k{number}" for number in range(WORKERS)]
    config = "\n".join(server_table(name, server("tiny")) for name in names)
    told: list[float] = []
    usable: list[float] = []
    with TemporaryInterlock(config, folder) as interlock, interlock.connect() as bus:
        wait_ready(bus, {f"mcp:{name}" for name in names}, 30)
        ears = _Ears(interlock)
        try:
            for name in names:
                say(f"kills: {name}")
                event, call = _kill(bus, ears, f"mcp:{name}")
                told.append(event * 1000)
                usable.append(call * 1000)
        finally:
            ears.close()
    own = statistics.median(server_start_seconds() for _ in range(5)) * 1000
    return {
        "kill_to_event_ms": statistics.median(told),
        "kill_to_usable_ms": statistics.median(usable) - own,
    }


def _kill(bus: Client, ears: _Ears, worker: str) -> tuple[float, float]:
    """Kill one worker; return the seconds until its event and until a call to it succeeds."""
    (row,) = bus.status(worker)["workers"]
    ears.listen_for(worker)
    killed = time.monotonic()
    os.kill(row["pid"], signal.SIGKILL)
    heard = ears.heard(_PATIENCE)
    while not bus.call(f"{worker}/echo", {"text": "again"}, timeout=1.0).ok:
        if time.monotonic() - killed > _PATIENCE:
            raise InterlockError(f"{worker} was not usable {_PATIENCE:g} s after it was killed.")
        time.sleep(0.005)
    return heard - killed, time.monotonic() - killed


class _Ears:
    """A subscriber in a thread of its own, as a monitor would be."""

    def __init__(self, interlock: TemporaryInterlock) -> None:
        self._interlock = interlock
        self._worker = ""
        self._at = 0.0
        self._heard = threading.Event()
        self._subscribed = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._listen, name="bench-events", daemon=True)
        self._thread.start()
        if not self._subscribed.wait(_PATIENCE):
            raise InterlockError("No snapshot of the events came.")

    def listen_for(self, worker: str) -> None:
        """Wait for the next event of a worker's death from now on."""
        self._heard.clear()
        self._worker = worker

    def heard(self, seconds: float) -> float:
        """Return the monotonic time of that event."""
        if not self._heard.wait(seconds):
            raise InterlockError(f"No event told of the death of {self._worker}.")
        return self._at

    def close(self) -> None:
        """Stop listening with the next event or with the supervisor."""
        self._closed = True

    def _listen(self) -> None:
        try:
            with self._interlock.connect() as bus:
                for event in bus.events(["worker."]):
                    self._subscribed.set()
                    self._hear(event)
                    if self._closed:
                        return
        except ConnectionLostError:
            return

    def _hear(self, event: dict[str, Any]) -> None:
        deaths = ("worker.backoff", "worker.failed", "worker.stopped")
        if event["topic"] in deaths and event["name"] == self._worker:
            self._at = time.monotonic()
            self._worker = ""
            self._heard.set()
