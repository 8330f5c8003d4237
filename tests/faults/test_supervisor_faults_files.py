"""Open files: the supervisor has none left for a while."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from breaking import GOOD, ready, spawner_of
from supervised import Supervised, timing


@contextmanager
def open_files(pid: int, number: int) -> Iterator[None]:
    """Let a process open no descriptor from that number on."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (number, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def test_a_spawner_that_cannot_be_started_for_want_of_descriptors_is_tried_again(
    tmp_path: Path,
) -> None:
    """Spawner killed while no descriptor is free: said, tried again, and everything comes back."""
    with Supervised(tmp_path, timing() + GOOD) as interlock:
        ready(interlock, "agent:main", "mcp:good")
        place = interlock.mark()
        spawner = spawner_of(interlock)
        with open_files(interlock.pid, 3):
            os.kill(spawner, signal.SIGKILL)
            interlock.wait_event("spawner.died", after=place)
            interlock.wait_event("attention.changed", "supervisor", place, code="spawner_failed")
            assert all(row["fix"] for row in interlock.attention())
        for name in ("agent:main", "mcp:good"):
            assert interlock.wait_event("worker.ready", name, place)["generation"] >= 2
        failed = {"code": "spawner_failed", "clear": True}
        interlock.wait_event("attention.changed", "supervisor", place, **failed)
