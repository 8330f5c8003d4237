"""A worker that is killed, stopped, broken or busy, idle and in a call."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from breaking import GOOD, ready
from fault_rig import FaultRig, assert_gone, outcomes, until
from supervised import Supervised, rogue_toml, timing

from interlock.bus import procfs

KILLED = [signal.SIGKILL, signal.SIGSEGV]
HUNG = [signal.SIGSTOP, signal.SIGUSR1]
"""Stopped, and busy in an endless loop of Python (see tests/busy)."""
OFFSPRING = ("grandchild", "grandchild_session")


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultRig]:
    with FaultRig(tmp_path_factory.mktemp("worker")) as running:
        yield running


@pytest.mark.parametrize("fault", [*KILLED, *HUNG], ids=lambda fault: fault.name)
def test_a_worker_that_fails_harms_its_own_calls_only(rig: FaultRig, fault: signal.Signals) -> None:
    """A worker that crashes or hangs fails its calls in flight, says so, and comes back."""
    names = ("mcp:idle", "mcp:calling")
    tables = (rogue_toml("idle", *OFFSPRING), rogue_toml("calling", *OFFSPRING))
    with rig.faulty(*tables) as interlock:
        rows = {name: interlock.wait_state(name, "READY") for name in names}
        trees = [rig.tree(name, 3) for name in names]
        place = interlock.mark()
        turn = rig.start(lambda client: list(client.turn("mcp:calling/mute {}")))
        call = rig.start(lambda client: client.call("mcp:calling/sleep", {"seconds": 60}))
        for tool in ("mute", "sleep"):
            interlock.wait_event("tool.started", capability=f"mcp:calling/{tool}", after=place)
        for row in rows.values():
            os.kill(row["pid"], fault)
        if fault in HUNG:
            late = interlock.client.call("mcp:idle/echo", timeout=0.5)
            assert late.outcome in ("timeout", "unavailable", "worker_died")
        for name, row in rows.items():
            backoff = interlock.wait_event("worker.backoff", name, place)
            assert backoff["generation"] == row["generation"]
            assert backoff["signal"] == (signal.SIGKILL if fault in HUNG else fault)
            said = "pings" if fault in HUNG else f"killed by {fault.name}"
            assert said in backoff["reason"]
            ready = interlock.wait_event("worker.ready", name, place)
            assert ready["generation"] == row["generation"] + 1
            assert interlock.client.call(f"{name}/echo").outcome == "ok"
            assert f"ended: {backoff['reason']}." in interlock.log(name.replace(":", "-"))
        assert outcomes(turn.result(10)) == ["worker_died"]
        ended = call.result(10)
        assert (ended.outcome, ended.may_have_run) == ("worker_died", True)
        for tool in ("mute", "sleep"):
            failed = interlock.wait_event(
                "tool.failed", capability=f"mcp:calling/{tool}", after=place
            )
            assert failed["code"] == "worker_died"
            # Nobody but the supervisor can tell how long they lasted; the hung one for some pings.
            assert failed["duration_ms"] > (1000 if fault in HUNG else 0)
        row = interlock.worker("mcp:calling")
        assert row["errors"] == 2 <= row["calls"]
        assert row["p99_ms"] >= failed["duration_ms"]
        for tree in trees:
            assert_gone(tree)


def test_an_agent_gives_back_the_memory_of_a_huge_turn(rig: FaultRig) -> None:
    """Results of 380 MB in one turn: the C library kept most of that for good."""
    with rig.faulty(rogue_toml("x")) as interlock:
        interlock.wait_state("mcp:x", "READY")
        pid = int(interlock.wait_state("agent:main", "READY")["pid"])
        before = procfs.resident_bytes([pid])
        text = " & ".join(['mcp:x/big {"bytes": 8000000}'] * 48)
        assert outcomes(list(interlock.client.turn(text))) == ["ok"] * 48
        until(
            lambda: procfs.resident_bytes([pid]) < before + (160 << 20),
            what="the agent's memory back",
        )


def test_stopped_processes_end_in_order_and_hold_nobody_up(tmp_path: Path) -> None:
    """A worker, an agent, or a server that somebody stopped goes on to end, long before the ladder
    of the end is through: with these times that would take far longer than anybody waits."""
    times = timing(drain=40.0, term=40.0, stop_total=90.0, ping=60.0)
    config = times + GOOD + rogue_toml("x", "grandchild")
    with Supervised(tmp_path, config) as interlock:
        ready(interlock, "agent:main", "mcp:good", "mcp:x")
        (server, *_) = procfs.descendants(interlock.worker("mcp:x")["pid"])
        for pid in (server.pid, *(interlock.worker(f"{n}")["pid"] for n in ("mcp:good",))):
            os.kill(pid, signal.SIGSTOP)
        begun = time.monotonic()
        assert interlock.client.control("restart", "mcp:good")["state"] == "READY"
        os.kill(interlock.worker("mcp:good")["pid"], signal.SIGSTOP)
        os.kill(interlock.worker("agent:main")["pid"], signal.SIGSTOP)
        assert interlock.stop() == 0
        assert time.monotonic() - begun < 30
        assert "SIGKILL" not in interlock.log()


@pytest.mark.parametrize("fault", [*KILLED, *HUNG], ids=lambda fault: fault.name)
def test_an_agent_that_fails_harms_its_own_turns_only(rig: FaultRig, fault: signal.Signals) -> None:
    """A turn whose agent died ends with agent_died; the same agent takes the next turn."""
    agents = '[agents.idle]\nmodel = "direct"\n[agents.calling]\nmodel = "direct"\n'
    with rig.faulty(agents, rogue_toml("x")) as interlock:
        names = ("agent:idle", "agent:calling")
        rows = [interlock.wait_state(name, "READY") for name in names]
        interlock.wait_state("mcp:x", "READY")
        place = interlock.mark()
        turn = rig.start(
            lambda client: list(client.turn('mcp:x/sleep {"seconds": 60}', agent="calling"))
        )
        interlock.wait_event("tool.started", "mcp:x", place)
        for row in rows:
            os.kill(row["pid"], fault)
        for row in rows:
            backoff = interlock.wait_event("worker.backoff", row["name"], place)
            assert backoff["signal"] == (signal.SIGKILL if fault in HUNG else fault)
            generation = row["generation"] + 1
            interlock.wait_event("worker.ready", row["name"], place, generation=generation)
        last = turn.result(10)[-1]
        assert (last["type"], last["code"]) == ("turn.failed", "agent_died")
        interlock.wait_event("turn.failed", after=place, turn=last["turn"])
        for name in ("idle", "calling"):
            items = list(interlock.client.turn("mcp:x/echo {}", agent=name))
            assert outcomes(items) == ["ok"]
