"""Wishes that cross each other: stop, start, restart and down at the wrong moment."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from breaking import (
    GOOD,
    STUBBORN,
    Busy,
    Watching,
    in_threads,
    popen,
    ready,
    restarts_at_once,
    restarts_together,
    run,
    topics,
)
from supervised import PATIENCE, Supervised, rogue_toml, timing

from interlock.bus.client import Client

SICK = (
    rogue_toml("mute", *STUBBORN, "mute_init")
    + rogue_toml("loop", "exit_at_start")
    + rogue_toml("bad", *STUBBORN)
)


@pytest.fixture(scope="module")
def interlock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervised]:
    config = timing(backoff_first=20.0, backoff_max=20.0, failures=1) + GOOD + SICK
    with Supervised(tmp_path_factory.mktemp("wishes"), config) as running:
        ready(running, "agent:main", "mcp:good", "mcp:bad")
        yield running


def control(interlock: Supervised, action: str, name: str) -> dict[str, object]:
    with Client(interlock.home.path) as client:
        return client.control(action, name)  # type: ignore[arg-type]


def test_stop_during_start(interlock: Supervised) -> None:
    """Stop during start: STOPPED, no further generation, healthy turns unaffected."""
    interlock.wait_event("worker.initializing", "mcp:mute")
    with Busy(interlock):
        place = interlock.mark()
        assert interlock.client.control("stop", "mcp:mute")["state"] == "STOPPED"
        interlock.wait_event("worker.stopped", "mcp:mute", place)
        assert topics(interlock, "mcp:mute", place) == ["worker.stopping", "worker.stopped"]


def test_stop_start_and_restart_while_it_starts(interlock: Supervised) -> None:
    """Every wish while a worker is STARTING has an answer, and one generation at a time runs."""
    interlock.wait_event("worker.stopped", "mcp:mute")
    place = interlock.mark()
    starting = threading.Thread(target=control, args=(interlock, "start", "mcp:mute"))
    starting.start()
    interlock.wait_event("worker.starting", "mcp:mute", place)
    assert control(interlock, "stop", "mcp:mute")["state"] == "STOPPED"
    starting.join(PATIENCE)
    assert not starting.is_alive()
    interlock.wait_event("worker.stopped", "mcp:mute", place)
    told = topics(interlock, "mcp:mute", place)
    assert told.count("worker.starting") == 1 and told[-1] == "worker.stopped"


def test_many_restarts_at_once_are_one(interlock: Supervised) -> None:
    """Two (and more) restarts at once: exactly one new generation for all who asked."""
    generation = interlock.wait_state("mcp:bad", "READY")["generation"]
    place = interlock.mark()
    with Busy(interlock):
        rows = restarts_at_once(interlock, "mcp:bad", 3)
    assert [(row["state"], row["generation"]) for row in rows] == [("READY", generation + 1)] * 3
    assert topics(interlock, "mcp:bad", place).count("worker.starting") == 1


def test_restart_during_backoff_does_not_wait_for_it(interlock: Supervised) -> None:
    """Restart while in BACKOFF (20 s here): it starts at once, and once only."""
    before = interlock.wait_state("mcp:bad", "READY")
    place = interlock.mark()
    with Busy(interlock):
        os.kill(before["pid"], signal.SIGKILL)
        interlock.wait_event("worker.backoff", "mcp:bad", place)
        began = time.monotonic()
        rows = restarts_together(interlock, "mcp:bad", 2)
        assert time.monotonic() - began < 15.0
    assert {(row["state"], row["generation"]) for row in rows} == {
        ("READY", before["generation"] + 1)
    }
    assert topics(interlock, "mcp:bad", place).count("worker.starting") == 1


def test_start_of_a_failed_one_is_a_new_beginning(interlock: Supervised) -> None:
    """Start of a FAILED worker: a fresh budget of failures; the answer is its outcome."""
    control(interlock, "start", "mcp:loop")
    interlock.client.control("restart", "mcp:loop")
    row = interlock.worker("mcp:loop")
    for _ in range(3):
        if row["state"] == "FAILED":
            break
        row = control(interlock, "restart", "mcp:loop")  # forgiven: BACKOFF again, never FAILED
    place = interlock.mark()
    with Busy(interlock):
        assert interlock.client.control("start", "mcp:loop")["state"] in ("BACKOFF", "FAILED")
    assert "worker.starting" in topics(interlock, "mcp:loop", place)


def test_down_during_start(tmp_path: Path) -> None:
    """Down while workers are starting that never will be ready: bounded, nothing left."""
    config = timing() + "".join(rogue_toml(f"m{n}", *STUBBORN, "mute_init") for n in range(3))
    with Supervised(tmp_path, config + rogue_toml("loop", "exit_at_start")) as interlock:
        interlock.wait_event("worker.initializing", "mcp:m0")
        code, out, err = run(interlock.home.path, "down")
        assert (code, err) == (0, "") and out
        assert interlock.process.wait(5.0) == 0


def test_two_downs_with_a_running_turn(tmp_path: Path) -> None:
    """Down with running turns: bounded by 20 s; twice at once both say it; a third finds none."""
    config = timing(drain=4.0) + GOOD + rogue_toml("bad", *STUBBORN)
    with Supervised(tmp_path, config) as interlock:
        ready(interlock, "agent:main", "mcp:good", "mcp:bad")
        turn = interlock.client.start_turn('mcp:bad/sleep {"seconds": 600}')["turn"]
        quick = interlock.client.start_turn('mcp:good/sleep {"seconds": 0.8}')["turn"]
        asking = Client(interlock.home.path)
        long, short = Watching(interlock, turn), Watching(interlock, quick)
        for name in ("mcp:bad", "mcp:good"):  # what has begun by then may end
            interlock.wait_event("tool.started", name)
        began = time.monotonic()
        asking.shutdown()
        asking.shutdown()  # to ask again is no reason to hurry
        asking.close()
        with (
            popen(interlock.home.path, "down") as first,
            popen(interlock.home.path, "down") as second,
        ):
            codes = []
            for process in (first, second):
                out, err = process.communicate(timeout=PATIENCE)
                assert "Traceback" not in err
                codes.append((process.returncode, out, err))
        assert interlock.process.wait(5.0) == 0
        assert time.monotonic() - began < 20.0
        assert sorted(code for code, _, _ in codes) in ([0, 0], [0, 3], [3, 3]), codes
        assert long.join()[-1]["type"] == "turn.failed"
        # It was given the time to end.
        assert short.join()[-1]["type"] == "turn.completed", short.items
        assert run(interlock.home.path, "down")[0] == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(tmp_path: Path, number: int) -> None:
    """SIGTERM or SIGINT twice: nobody is waited for, and still nothing is left."""
    config = timing(drain=60.0, term=60.0, stop_total=120.0) + GOOD + rogue_toml("bad", *STUBBORN)
    with Supervised(tmp_path, config) as interlock:
        ready(interlock, "agent:main", "mcp:good", "mcp:bad")
        turn = interlock.client.start_turn('mcp:bad/sleep {"seconds": 600}')["turn"]
        watching = Watching(interlock, turn)
        watching.until("tool.call")
        place = interlock.mark()
        interlock.process.send_signal(number)
        interlock.wait_event("worker.stopping", "mcp:bad", place)
        interlock.process.send_signal(number)
        assert interlock.process.wait(15.0) == 0
        watching.join()


def test_a_second_supervisor_disturbs_nothing(tmp_path: Path) -> None:
    """A second supervisor on the home: refused naming the pid; the first does not notice."""
    with Supervised(tmp_path, timing() + GOOD) as interlock:
        before = ready(interlock, "agent:main", "mcp:good")
        connection = interlock.home.connection_file.read_bytes()
        sockets = sorted(path.name for path in interlock.home.run.rglob("*"))
        place = interlock.mark()
        with Busy(interlock):
            for arguments in (["up"], ["up", "--detach"]):
                code, _, err = run(interlock.home.path, *arguments)
                assert code == 1 and f"pid {interlock.pid}" in err
                assert len(err.strip().splitlines()) == 1
            in_threads(*[partial(run, interlock.home.path, "status")] * 2)
        assert interlock.home.connection_file.read_bytes() == connection
        assert sorted(path.name for path in interlock.home.run.rglob("*")) == sockets
        for name, row in before.items():
            assert interlock.worker(name)["pid"] == row["pid"]
            assert topics(interlock, name, place) == []
