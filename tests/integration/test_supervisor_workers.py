"""A real supervisor and real workers: start, crash, hang, stop, restart, limits."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from breaking import restarts_at_once
from supervised import DIRECT_AGENT, Supervised, rogue_toml, server_toml, timing
from zmtp import patiently

from interlock.bus import messages
from interlock.bus.errors import InterlockError, NotFoundError


@pytest.fixture(scope="module")
def interlock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervised]:
    config = timing() + DIRECT_AGENT + rogue_toml("x") + rogue_toml("y")
    with Supervised(tmp_path_factory.mktemp("workers"), config) as running:
        for name in ("agent:main", "mcp:x", "mcp:y"):
            running.wait_state(name, "READY")
        yield running


def test_status_has_the_shape_of_the_contract(interlock: Supervised) -> None:
    document = interlock.client.status()
    assert document.keys() >= {"supervisor", "workers", "needs_attention"}
    supervisor = document["supervisor"]
    assert supervisor["pid"] == interlock.pid
    assert supervisor["home"] == str(interlock.home.path)
    assert 0 < supervisor["rss_bytes"] < 100 << 20
    rows = {row["name"]: row for row in document["workers"]}
    assert list(rows) == ["agent:main", "mcp:x", "mcp:y", "core:basics"]
    row = interlock.wait_state("mcp:x", "READY")
    assert row["pid"] > 0 and row["generation"] == 1 and row["tools"] > 10
    assert row["rss_bytes"] > 0 and row["p50_ms"] is None and row["reason"] == ""
    assert abs(row["since"] - supervisor["uptime"]) > 0
    with pytest.raises(NotFoundError):
        interlock.client.status("mcp:nobody")


def test_a_killed_worker_is_announced_and_comes_back(interlock: Supervised) -> None:
    before, beside = interlock.worker("mcp:x"), interlock.worker("mcp:y")
    place = interlock.mark()
    os.kill(before["pid"], signal.SIGKILL)
    event = interlock.wait_event("worker.backoff", "mcp:x", place)
    assert (event["generation"], event["signal"]) == (before["generation"], signal.SIGKILL)
    assert event["reason"] == "killed by SIGKILL"
    ready = interlock.wait_event("worker.ready", "mcp:x", place)
    assert ready["generation"] == before["generation"] + 1
    assert interlock.client.call("mcp:x/echo", {"a": 1}).outcome == "ok"
    assert interlock.worker("mcp:y")["pid"] == beside["pid"]


def test_by_hand_stop_start_restart(interlock: Supervised) -> None:
    generation = interlock.worker("mcp:x")["generation"]
    stopped = interlock.client.control("stop", "mcp:x")
    assert (stopped["state"], stopped["pid"], stopped["children"]) == ("STOPPED", None, [])
    assert interlock.client.call("mcp:x/echo").outcome == "unavailable"
    assert interlock.client.control("stop", "mcp:x")["state"] == "STOPPED"
    started = interlock.client.control("start", "x")
    assert (started["state"], started["generation"]) == ("READY", generation + 1)
    again = interlock.client.control("start", "mcp:x")
    assert (again["state"], again["pid"]) == ("READY", started["pid"])
    restarted = interlock.client.control("restart", "mcp:x")
    assert (restarted["state"], restarted["generation"]) == ("READY", generation + 2)
    with pytest.raises(NotFoundError):
        interlock.client.control("start", "mcp:nobody")


def test_two_restarts_at_once_are_one(interlock: Supervised) -> None:
    generation = interlock.worker("mcp:x")["generation"]
    rows = restarts_at_once(interlock, "mcp:x", 2)
    assert [(row["state"], row["generation"]) for row in rows] == [("READY", generation + 1)] * 2


def test_a_stopped_process_is_hung_and_replaced(interlock: Supervised) -> None:
    before = interlock.worker("mcp:x")
    place = interlock.mark()
    os.kill(before["pid"], signal.SIGSTOP)
    assert "pings" in interlock.wait_event("worker.stopping", "mcp:x", place)["reason"]
    assert interlock.wait_event("worker.backoff", "mcp:x", place)["signal"] == signal.SIGKILL
    ready = interlock.wait_event("worker.ready", "mcp:x", place)
    assert ready["generation"] == before["generation"] + 1


def test_calls_are_counted(interlock: Supervised) -> None:
    before = interlock.worker("mcp:y")["calls"]
    place = interlock.mark()
    interlock.client.call("mcp:y/echo", {})
    interlock.wait_event("tool.completed", "mcp:y", place)
    row = interlock.worker("mcp:y")
    assert row["calls"] == before + 1 and row["errors"] == 0
    assert row["p50_ms"] > 0 and row["p99_ms"] >= row["p50_ms"]


def test_descriptors_do_not_grow_with_restarts(interlock: Supervised) -> None:
    interlock.client.control("restart", "mcp:y")
    before = interlock.descriptors()
    for _ in range(4):
        assert interlock.client.control("restart", "mcp:y")["state"] == "READY"
    for _ in patiently():  # nothing tells when the last connection of the old one is closed
        if interlock.descriptors() <= before:
            break
    assert len(list((interlock.home.run / "data").iterdir())) == 3


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervised]:
    """A supervisor of servers that each have a trouble of their own, one test for each."""
    config = (
        timing(failures=3)
        + rogue_toml("well")
        + server_toml("gone", "/no/such/program")
        + rogue_toml("loop", "exit_at_start")
        + rogue_toml("mute", "mute_init", init_timeout=0.5)
        + rogue_toml("large", limits={"memory": "1MiB"})
        + rogue_toml("stuck", "mute_init", "ignore_end")
        + rogue_toml("off", enabled=False)
        + rogue_toml("broken", "no_schema")
    )
    with Supervised(tmp_path_factory.mktemp("sick"), config) as running:
        yield running


def test_a_missing_program_fails_its_worker_at_once_and_says_what_to_do(sick: Supervised) -> None:
    failed = sick.wait_state("mcp:gone", "FAILED")
    assert "command not found: /no/such/program" in failed["reason"]
    assert failed["generation"] == 1
    rows = sick.attention("mcp:gone")
    assert rows[0]["code"] == "command_not_found" and rows[0]["fix"]
    sick.wait_state("mcp:well", "READY")
    assert sick.client.control("start", "mcp:gone")["state"] == "FAILED"


def test_a_crash_loop_ends_in_failed_and_a_mute_server_in_its_own_time(sick: Supervised) -> None:
    failed = sick.wait_event("worker.failed", "mcp:loop")
    assert failed["generation"] == 4 and "4 failures" in failed["reason"]
    assert sick.attention("mcp:loop")
    place = sick.mark()
    assert sick.client.control("restart", "mcp:loop")["generation"] == 5
    sick.wait_event("worker.starting", "mcp:loop", place)
    assert "0.5 s" in sick.wait_event("worker.backoff", "mcp:mute")["reason"]


def test_a_worker_over_its_memory_is_restarted_with_that_reason(sick: Supervised) -> None:
    event = sick.wait_event("worker.backoff", "mcp:large")
    assert event["reason"].startswith("used ") and "its limit is 1 MiB" in event["reason"]


def test_a_stop_during_the_start(sick: Supervised) -> None:
    sick.wait_event("worker.initializing", "mcp:stuck")
    assert sick.client.control("stop", "mcp:stuck")["state"] == "STOPPED"
    place = sick.mark()
    sick.client.request(messages.Reload)
    with pytest.raises(AssertionError):
        sick.wait_event("worker.starting", "mcp:stuck", place, patience=0.5)


def test_a_disabled_server_is_not_started_by_hand(sick: Supervised) -> None:
    assert sick.worker("mcp:off")["state"] == "STOPPED"
    with pytest.raises(InterlockError, match="disabled"):
        sick.client.control("start", "mcp:off")


def test_a_broken_tool_is_left_out_alone_and_named(sick: Supervised) -> None:
    assert sick.wait_state("mcp:broken", "READY")["tools"] > 10
    rows = sick.attention("mcp:broken")
    assert rows and {row["code"] for row in rows} == {"tool_schema"}
    assert all(row["subject"] and row["fix"] for row in rows)


def test_executed_workers_do_the_same_as_forked_ones(tmp_path: Path) -> None:
    config = timing() + 'spawn = "exec"\n' + DIRECT_AGENT + rogue_toml("x")
    with Supervised(tmp_path, config) as interlock:
        interlock.wait_state("agent:main", "READY")
        before = interlock.wait_state("mcp:x", "READY")
        items = list(interlock.client.turn('mcp:x/echo {"a": 1}'))
        assert items[-1]["type"] == "turn.completed"
        place = interlock.mark()
        os.kill(before["pid"], signal.SIGKILL)
        assert interlock.wait_event("worker.ready", "mcp:x", place)["generation"] == 2
