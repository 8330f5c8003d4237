"""The supervisor, or everything, stopped for a while: nobody is blamed and nothing fails."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from breaking import GOOD, STUBBORN, Busy, Watching, ready, run, topics, tree_of
from fault_rig import until
from supervised import PATIENCE, Supervised, rogue_toml, timing

from interlock.bus.aclient import AsyncClient
from interlock.bus.client import Client
from interlock.bus.errors import RequestTimeoutError
from interlock.bus.messages import StatusGet

PING = 0.8
ALL = ("agent:main", "mcp:good", "mcp:bad")


@contextlib.contextmanager
def stopped(pids: list[int], number: int = signal.SIGSTOP) -> Iterator[None]:
    """Hold these processes for the block; the one that the others belong to comes first."""
    for pid in pids:
        os.kill(pid, number)
    try:
        yield
    finally:
        for pid in reversed(pids):
            os.kill(pid, signal.SIGCONT)


def elapse(seconds: float) -> None:
    """Let time pass: here the time is what is tested."""
    threading.Event().wait(seconds)


def assert_nobody_was_restarted(
    interlock: Supervised, before: dict[str, dict[str, object]], place: int
) -> None:
    """After more than three further pings all are the same processes and no event blames one."""
    with pytest.raises(AssertionError):
        interlock.wait_for(lambda event: "stopping" in event["topic"], place, 4 * PING)
    for name, row in before.items():
        now = interlock.worker(name)
        assert (now["pid"], now["state"], now["restarts"]) == (row["pid"], "READY", 0)
        assert topics(interlock, name, place) == []
    assert interlock.attention() == []


@pytest.fixture(scope="module")
def interlock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervised]:
    config = timing(ping=PING) + GOOD + rogue_toml("bad", *STUBBORN)
    with Supervised(tmp_path_factory.mktemp("stopped"), config) as running:
        yield running


@pytest.mark.parametrize(
    "command",
    [
        ("status",),
        ("tools",),
        ("turn", "mcp:good/echo {}"),
        ("call", "mcp:good/echo"),
        ("restart", "good"),
        ("down",),
    ],
)
def test_a_command_says_at_once_that_the_supervisor_is_stopped(
    interlock: Supervised, command: tuple[str, ...]
) -> None:
    """It names the process and what to do; it waited for 10 seconds and sent to `status`."""
    ready(interlock, *ALL)
    with stopped([interlock.pid]):
        begun = time.monotonic()
        code, out, error = run(interlock.home.path, *command)
        assert time.monotonic() - begun < 5.0
    assert (code, out) == (5, "")
    assert f"`kill -CONT {interlock.pid}`" in error and error.count("\n") == 1


def test_a_program_waits_for_a_stopped_supervisor_and_then_says_the_same(
    interlock: Supervised,
) -> None:
    with stopped([interlock.pid]), Client(interlock.home.path) as bus:
        with pytest.raises(RequestTimeoutError, match="kill -CONT"):
            bus.request(StatusGet, timeout=0.5)
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(asyncio.run, _asked(interlock))
            with pytest.raises(RequestTimeoutError, match="kill -CONT"):
                asked.result(PATIENCE)


async def _asked(interlock: Supervised) -> None:
    async with AsyncClient.connect(interlock.home.path) as bus:
        await bus.request(StatusGet, timeout=0.5)


def test_calls_under_held_tickets_go_on_without_the_supervisor(interlock: Supervised) -> None:
    """Supervisor stopped for five pings: no call fails, nobody is restarted."""
    before = ready(interlock, *ALL)
    outcomes: list[str] = []
    slowest = 0.0
    with Client(interlock.home.path) as caller:
        assert caller.call("mcp:good/echo").outcome == "ok"
        place = interlock.mark()
        with stopped([interlock.pid]):
            end = time.monotonic() + 5 * PING
            while time.monotonic() < end:
                began = time.monotonic()
                outcomes.append(caller.call("mcp:good/echo", {"n": len(outcomes)}).outcome)
                slowest = max(slowest, time.monotonic() - began)
    assert len(outcomes) > 50 and set(outcomes) == {"ok"}
    assert slowest < 3.0  # nobody waited for the supervisor
    assert_nobody_was_restarted(interlock, before, place)
    assert list(interlock.client.turn('mcp:good/echo {"a": 1}'))[-1]["type"] == "turn.completed"
    # What happened meanwhile is told afterwards; `calls` counts also what is too much for events.
    counted = int(str(before["mcp:good"]["calls"])) + len(outcomes)
    until(lambda: interlock.worker("mcp:good")["calls"] > counted, what="all reports")


def test_a_turn_goes_on_while_the_supervisor_is_stopped(interlock: Supervised) -> None:
    """Supervisor stopped in the middle of a turn: its calls run on, all its items arrive."""
    before = ready(interlock, *ALL)
    text = "\n".join('mcp:good/sleep {"seconds": 0.05}' for _ in range(10))
    watching = Watching(interlock, interlock.client.start_turn(text)["turn"])
    watching.until("tool.result")
    place = interlock.mark()
    with stopped([interlock.pid]):
        elapse(5 * PING)
    items = watching.join()
    assert items[-1]["type"] == "turn.completed"
    results = [item for item in items if item["type"] == "tool.result"]
    assert [item["outcome"] for item in results] == ["ok"] * 10
    assert [item["offset"] for item in items] == list(range(len(items)))
    assert_nobody_was_restarted(interlock, before, place)


def test_a_sleep_of_the_whole_machine_blames_nobody(interlock: Supervised) -> None:
    """SIGSTOP and SIGCONT of everything, far beyond three pings: all go on as they were."""
    before = ready(interlock, *ALL)
    place = interlock.mark()
    with Busy(interlock) as busy:
        with stopped(tree_of(interlock)):
            elapse(5 * PING)
        busy.wait(3)
    assert_nobody_was_restarted(interlock, before, place)


def test_a_stopped_worker_is_replaced_and_the_others_are_not(interlock: Supervised) -> None:
    """The counterpart: one worker stopped, while the supervisor runs, is hung and only that one."""
    before = ready(interlock, *ALL)
    place = interlock.mark()
    with Busy(interlock):
        os.kill(int(before["mcp:bad"]["pid"]), signal.SIGSTOP)
        event = interlock.wait_event("worker.backoff", "mcp:bad", place, patience=PATIENCE)
        assert "hung" in event["reason"]
        generation = before["mcp:bad"]["generation"] + 1
        assert interlock.wait_event("worker.ready", "mcp:bad", place)["generation"] == generation
    assert interlock.worker("mcp:good")["pid"] == before["mcp:good"]["pid"]
