"""How supervisors begin and end: in order, in a hurry, killed, stopped, without a spawner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from supervised import DIRECT_AGENT, PATIENCE, Supervised, rogue_toml, timing

from interlock.bus import procfs
from interlock.bus.client import Client
from interlock.supervisor.spawn.signals import ASK_TO_STOP, STRAY, name_of

BOTH = DIRECT_AGENT + rogue_toml("x")


def wait_ready(interlock: Supervised) -> None:
    for name in ("agent:main", "mcp:x"):
        interlock.wait_state(name, "READY")


def spawner_of(interlock: Supervised) -> int:
    return procfs.children(interlock.pid)[0]


@pytest.mark.parametrize("number", ASK_TO_STOP)
def test_a_signal_ends_it_in_order(tmp_path: Path, number: int) -> None:
    with Supervised(tmp_path, timing() + BOTH) as interlock:
        wait_ready(interlock)
        place = interlock.mark()
        assert interlock.stop(number) == 0
        names = [event["name"] for event in interlock.events[place:] if "stopped" in event["topic"]]
        assert set(names) <= {"agent:main", "mcp:x", "core:basics"}


def test_a_signal_that_means_nothing_is_logged_and_ends_nobody(tmp_path: Path) -> None:
    """Promise: only what asks to stop, or kills, ends the supervisor, and then in order."""
    with Supervised(tmp_path, timing() + BOTH) as interlock:
        wait_ready(interlock)
        before = interlock.worker("mcp:x")["pid"]
        for number in STRAY:
            interlock.process.send_signal(number)
        assert interlock.client.call("mcp:x/echo", {}).outcome == "ok"
        assert interlock.worker("mcp:x")["pid"] == before
        log = (interlock.home.logs / "supervisor.log").read_text()
        for number in STRAY:
            assert name_of(number) in log


def test_a_shutdown_request_is_answered_and_then_obeyed(tmp_path: Path) -> None:
    with Supervised(tmp_path, timing() + BOTH) as interlock:
        wait_ready(interlock)
        interlock.client.shutdown()
        assert interlock.process.wait(PATIENCE) == 0


def test_it_ends_while_workers_are_still_starting(tmp_path: Path) -> None:
    config = timing() + "".join(rogue_toml(f"s{n}", "mute_init", "ignore_end") for n in range(4))
    with Supervised(tmp_path, config) as interlock:
        interlock.wait_event("worker.initializing")


def test_a_second_interrupt_does_not_wait_for_anybody(tmp_path: Path) -> None:
    config = timing(drain=60.0, term=60.0, stop_total=120.0) + BOTH
    with Supervised(tmp_path, config) as interlock:
        wait_ready(interlock)
        stuck = interlock.worker("mcp:x")["pid"]
        os.kill(stuck, signal.SIGSTOP)
        interlock.process.send_signal(signal.SIGINT)
        interlock.wait_event("worker.stopping", "mcp:x")
        interlock.process.send_signal(signal.SIGINT)
        assert interlock.process.wait(PATIENCE) == 0


def test_stop_total_bounds_the_end(tmp_path: Path) -> None:
    config = timing(drain=60.0, term=60.0, stop_total=4.0, ping=60.0) + BOTH
    with Supervised(tmp_path, config) as interlock:
        wait_ready(interlock)
        os.kill(interlock.worker("mcp:x")["pid"], signal.SIGSTOP)
        interlock.process.send_signal(signal.SIGTERM)
        assert interlock.process.wait(10.0) == 0


def test_a_second_supervisor_on_the_home_is_refused_and_names_the_first(tmp_path: Path) -> None:
    with Supervised(tmp_path, timing()) as interlock:
        second = subprocess.run(
            [sys.executable, "-m", "interlock.supervisor.run", "--home", str(interlock.home.path)],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert second.returncode == 1
        assert f"pid {interlock.pid}" in second.stderr and "Traceback" not in second.stderr
        interlock.client.status()


def test_a_killed_supervisor_leaves_nothing_and_the_next_start_is_clean(tmp_path: Path) -> None:
    with Supervised(tmp_path, timing() + BOTH, clean=False) as interlock:
        wait_ready(interlock)
        interlock.process.kill()
        interlock.stop()
        interlock.assert_nothing_left()
        interlock.client.close()
        interlock.start()
        interlock.clean = True
        wait_ready(interlock)
        assert interlock.client.call("mcp:x/echo", {}).outcome == "ok"


def test_a_killed_spawner_is_replaced_and_its_workers_come_back(tmp_path: Path) -> None:
    with Supervised(tmp_path, timing() + BOTH) as interlock:
        wait_ready(interlock)
        place = interlock.mark()
        os.kill(spawner_of(interlock), signal.SIGKILL)
        interlock.wait_event("spawner.died", after=place)
        for name in ("agent:main", "mcp:x"):
            ready = interlock.wait_event("worker.ready", name, place)
            assert ready["generation"] == 2
        assert interlock.worker("mcp:x")["restarts"] == 1
        assert interlock.client.call("mcp:x/echo", {}).outcome == "ok"
        topics = [event["topic"] for event in interlock.events[place:]]
        assert "worker.backoff" not in topics and "worker.failed" not in topics


@pytest.mark.parametrize("which", ["spawner", "image"])
def test_a_stopped_spawner_delays_no_end(tmp_path: Path, which: str) -> None:
    """Promise: the end is bounded by what workers need, not by what somebody has stopped."""
    with Supervised(tmp_path, timing() + BOTH) as interlock:
        wait_ready(interlock)
        image = procfs.stat(interlock.worker("mcp:x")["pid"])
        assert image is not None and image.parent != spawner_of(interlock)
        os.kill(spawner_of(interlock) if which == "spawner" else image.parent, signal.SIGSTOP)
        interlock.process.send_signal(signal.SIGTERM)
        assert interlock.process.wait(8.0) == 0


def test_a_supervisor_that_was_stopped_blames_no_worker(tmp_path: Path) -> None:
    with Supervised(tmp_path, timing(ping=1.0) + BOTH) as interlock:
        wait_ready(interlock)
        place = interlock.mark()
        interlock.process.send_signal(signal.SIGSTOP)
        # The time itself is what is tested: it is far more than three pings.
        os.waitid(os.P_PID, interlock.pid, os.WSTOPPED | os.WNOWAIT)
        subprocess.run(["sleep", "4"], check=True)
        interlock.process.send_signal(signal.SIGCONT)
        with pytest.raises(AssertionError):
            interlock.wait_event("worker.stopping", after=place, patience=2.0)
        assert interlock.client.call("mcp:x/echo", {}).outcome == "ok"
        assert interlock.worker("mcp:x")["generation"] == 1


def test_the_running_supervisor_has_not_loaded_what_only_workers_need(tmp_path: Path) -> None:
    interpreter = ("-X", "importtime")
    with Supervised(tmp_path, timing() + BOTH, interpreter=interpreter) as interlock:
        wait_ready(interlock)
        list(interlock.client.turn('mcp:x/echo {"a": 1}'))
        interlock.client.status()
        loaded = {
            line.rpartition("|")[2].strip()
            for line in interlock.errors.read_text().splitlines()
            if line.startswith("import time:")
        }
    assert "zmq" in loaded and "interlock.supervisor.runtime" in loaded
    heavy = {"mcp", "mcp_types", "pydantic", "httpx", "starlette", "uvicorn", "keyring"}
    assert loaded & heavy == set()


def test_a_turn_that_ends_with_the_supervisor_says_so_to_who_watches(tmp_path: Path) -> None:
    with Supervised(tmp_path, timing(drain=0.5) + BOTH) as interlock:
        wait_ready(interlock)

        def watch() -> list[dict[str, Any]]:
            with Client(interlock.home.path) as client:
                return list(client.turn('mcp:x/sleep {"seconds": 60}'))

        with ThreadPoolExecutor(1) as threads:
            turn = threads.submit(watch)
            interlock.wait_event("tool.started", "mcp:x")
            assert interlock.stop() == 0
            last = turn.result(PATIENCE)[-1]
        assert (last["type"], last["code"]) == ("turn.failed", "supervisor_stopped")
        assert "interlock up" in last["message"]
        interlock.wait_event("turn.failed", turn=last["turn"], code="supervisor_stopped")
        assert not interlock.home.processes.exists()
