"""A worker that is killed, stopped, broken or busy, idle and in a call."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from fault_rig import FaultRig, assert_gone, outcomes
from supervised import rogue_toml

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
