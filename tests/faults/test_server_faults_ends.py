"""Servers that flood, that do not end when they should, and that leave processes behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fault_rig import FaultRig, assert_gone, outcomes, until
from supervised import rogue_toml

from interlock.bus import procfs
from interlock.bus.client import Client

FLOODS = {"flood_stderr": 2, "flood_stdout": 5, "flood_line": 68, "flood_answers": 5}
"""Megabytes that a worker reads before it takes a flood for one; a long line may be an answer."""
OFFSPRING = ("grandchild", "grandchild_session")


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultRig]:
    with FaultRig(tmp_path_factory.mktemp("ends")) as running:
        yield running


def test_floods_reach_nobody_else(rig: FaultRig) -> None:
    """A server that floods without end takes no turn away, fills no disk, and can be stopped."""
    with rig.faulty(*(rogue_toml(flood, flood) for flood in FLOODS)) as interlock:
        for flood in FLOODS:
            rig.event("worker.ready", f"mcp:{flood}")
        for flood, megabytes in FLOODS.items():
            _until_read(interlock.worker(f"mcp:{flood}")["pid"], megabytes * 1_000_000)
        ticks = {flood: _ticks(interlock.worker(f"mcp:{flood}")["pid"]) for flood in FLOODS}
        begun = time.monotonic()
        place = interlock.mark()
        for _ in range(20):
            assert outcomes(list(interlock.client.turn("mcp:healthy/echo {}"))) == ["ok"]
            interlock.wait_for(lambda event: event["topic"] == "turn.completed", interlock.mark())
        # Standard error is apart from the answers, so a flood there does not even harm its own.
        assert interlock.client.call("mcp:flood_stderr/echo", timeout=10).outcome == "ok"
        spent = time.monotonic() - begun
        states = {flood: interlock.worker(f"mcp:{flood}") for flood in FLOODS}
        assert {row["state"] for row in states.values()} == {"READY"}, states
        shares = {
            flood: (_ticks(row["pid"]) - ticks[flood]) / procfs.TICKS / spent
            for flood, row in states.items()
        }
        assert max(shares.values()) < 0.3, shares
        assert all(row["rss_bytes"] < 300 << 20 for row in states.values()), states
        troubles = [one for one in interlock.events[place:] if one["topic"] == "worker.stopping"]
        assert not troubles, troubles
        for flood in FLOODS:
            log = interlock.home.logs / f"mcp-{flood}.log"
            assert log.stat().st_size < 6 << 20


def _stop(name: str, client: Client) -> dict[str, Any]:
    return client.control("stop", name)


def _ticks(pid: int) -> int:
    return procfs.cpu_ticks([pid])


def _until_read(pid: int, size: int) -> None:
    """Wait until a process has read that many bytes."""
    until(lambda: int(Path(f"/proc/{pid}/io").read_text().split()[1]) > size)


def test_a_server_that_ignores_every_request_to_end_is_stopped_in_bounded_time(
    rig: FaultRig,
) -> None:
    """Neither SIGTERM nor the end of its input ends it, so SIGKILL does, with all below it."""
    tables = (
        rogue_toml("x", "ignore_end", *OFFSPRING),
        rogue_toml("y", "ignore_end", "not_reading", *OFFSPRING),
    )
    with rig.faulty(*tables):
        names = ("mcp:x", "mcp:y")
        for name in names:
            rig.event("worker.ready", name)
        trees = [rig.tree(name, 3) for name in names]
        stops = [rig.start(partial(_stop, name)) for name in names]
        for name, stop, tree in zip(names, stops, trees, strict=True):
            row = stop.result(10)
            assert (row["state"], row["pid"]) == ("STOPPED", None)
            rig.event("worker.stopped", name)
            assert_gone(tree, 0.5)


@pytest.mark.parametrize("end", ["worker killed", "server exits", "stop", "restart"])
def test_no_grandchild_survives(rig: FaultRig, end: str) -> None:
    """Processes that a server started, also in a session of their own, end with its worker."""
    with rig.faulty(rogue_toml("x", *OFFSPRING)) as interlock:
        worker = rig.event("worker.ready", "mcp:x")
        for session in ("false", "true"):
            turn = interlock.client.turn(f'mcp:x/spawn {{"session": {session}}}')
            assert outcomes(list(turn)) == ["ok"]
        tree = rig.tree("mcp:x", 5)
        place = interlock.mark()
        match end:
            case "worker killed":
                os.kill(worker["pid"], signal.SIGKILL)
            case "server exits":
                os.kill(tree[0].pid, signal.SIGTERM)
            case "stop":
                assert interlock.client.control("stop", "mcp:x")["state"] == "STOPPED"
            case _:
                assert interlock.client.control("restart", "mcp:x")["state"] == "READY"
        if end in ("worker killed", "server exits"):
            interlock.wait_event("worker.backoff", "mcp:x", place)
            interlock.wait_event("worker.ready", "mcp:x", place)
        assert_gone(tree)


def test_a_grandchild_whose_parent_died_is_still_known(rig: FaultRig) -> None:
    """What a server's dead child left behind stays below the worker and ends with it."""
    with rig.faulty(rogue_toml("x", "grandchild_session")):
        worker = rig.event("worker.ready", "mcp:x")
        (server, child) = rig.tree("mcp:x", 2)
        os.kill(server.pid, signal.SIGKILL)
        rig.event("worker.backoff", "mcp:x")
        assert_gone([server, child])
        again = rig.event("worker.ready", "mcp:x", generation=worker["generation"] + 1)
        assert again["pid"] != worker["pid"]
