"""Open files: the supervisor has none left for a while."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from breaking import GOOD, Busy, ready, run, spawner_of
from supervised import Supervised, rogue_toml, timing

from interlock.bus import messages
from interlock.bus.client import Client
from interlock.bus.errors import InterlockError


@contextmanager
def open_files(pid: int, number: int) -> Iterator[None]:
    """Let a process open no descriptor from that number on."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (number, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def test_a_supervisor_short_of_descriptors_lets_nobody_new_in_and_goes_on(tmp_path: Path) -> None:
    """RLIMIT_NOFILE nearly reached: new clients get a coded error, all others are well."""
    config = timing() + GOOD + rogue_toml("bad")
    with Supervised(tmp_path, config) as interlock:
        before = ready(interlock, "agent:main", "mcp:good", "mcp:bad")
        place = interlock.mark()
        with Busy(interlock) as busy, open_files(interlock.pid, 128), ExitStack() as stack:
            for _ in range(128):
                client = stack.enter_context(Client(interlock.home.path))
                try:
                    client.request(messages.StatusGet, timeout=2.0)
                except InterlockError as error:
                    assert error.code == "timeout"
                    break
            else:
                pytest.fail("everybody was let in")
            interlock.wait_event("attention.changed", "supervisor", place, code="open_files")
            assert all(row["fix"] for row in interlock.attention())
            os.kill(before["mcp:bad"]["pid"], signal.SIGKILL)
            interlock.wait_event("worker.ready", "mcp:bad", place)
            busy.wait(3)
        interlock.wait_event("attention.changed", after=place, code="open_files", clear=True)
        assert run(interlock.home.path, "status")[0] == 0
        assert interlock.client.call("mcp:bad/echo").outcome == "ok"
        assert interlock.worker("mcp:good")["pid"] == before["mcp:good"]["pid"]


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
