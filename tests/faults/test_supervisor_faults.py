"""The guardians killed: the supervisor, its spawner, one image, and both at once."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from breaking import (
    GOOD,
    STUBBORN,
    Watching,
    innocent,
    lines,
    mcp_image_of,
    popen,
    ready,
    spawner_of,
    topics,
    until_stored,
)
from supervised import PATIENCE, Supervised, rogue_toml, timing

from interlock.bus import procfs
from interlock.bus.errors import ConnectionLostError
from interlock.supervisor.spawn.sweep import Recorded

SLOW_TURN = 'mcp:good/echo {"a": 1}\nmcp:good/sleep {"seconds": 600}'
SICK = GOOD + rogue_toml("bad", *STUBBORN) + rogue_toml("worse", *STUBBORN, "mute_init")


def test_a_killed_supervisor_takes_everything_along_and_the_turn_is_interrupted(
    tmp_path: Path,
) -> None:
    """Supervisor killed with -9: nothing left after 5 s, streams end clearly, next start clean."""
    with Supervised(tmp_path, timing() + SICK, clean=False) as interlock:
        ready(interlock, "agent:main", "mcp:good", "mcp:bad")
        place = interlock.mark()
        turn = "ab" * 16
        watcher = popen(interlock.home.path, "turn", SLOW_TURN, "--json", "--id", turn)
        interlock.spare(watcher.pid)
        interlock.wait_event("tool.started", "mcp:good", place, capability="mcp:good/sleep")
        watching = Watching(interlock, turn)
        watching.until("tool.result")
        until_stored(interlock, turn, 2)
        interlock.process.kill()
        interlock.stop()
        interlock.assert_nothing_left()
        out, err = watcher.communicate(timeout=10)
        assert watcher.returncode == 1
        assert len(err.strip().splitlines()) == 1 and "Traceback" not in err
        assert [item.get("type") for item in lines(out)][:2] == ["turn.started", "tool.call"]
        watching.join()
        assert isinstance(watching.error, ConnectionLostError)
        interlock.client.close()

        interlock.clean = True
        interlock.start()
        ready(interlock, "agent:main", "mcp:good", "mcp:bad")
        shown = interlock.client.turn_show(turn)
        assert shown["state"] == "interrupted"
        calls = {call["capability"]: call for call in shown["calls"]}
        assert calls["mcp:good/echo"]["outcome"] == "ok"
        assert not calls["mcp:good/echo"].get("may_have_run")
        assert calls["mcp:good/sleep"]["may_have_run"] is True
        again = list(interlock.client.watch(turn))  # from the journal, and it ends
        assert [item["offset"] for item in again] == list(range(len(again)))
        assert interlock.client.start_turn(SLOW_TURN, id=turn)["state"] == "interrupted"
        assert list(interlock.client.turn('mcp:good/echo {"a": 1}'))[-1]["type"] == "turn.completed"


def test_a_call_that_nobody_could_report_may_have_run(tmp_path: Path) -> None:
    """Supervisor killed with -9 before a report of the call reached it: the turn still names it."""
    with Supervised(tmp_path, timing(ping=30.0) + GOOD, clean=False) as interlock:
        ready(interlock, "agent:main", "mcp:good")
        os.kill(interlock.worker("mcp:good")["pid"], signal.SIGSTOP)  # so it reports nothing
        turn = interlock.client.start_turn('mcp:good/sleep {"seconds": 600}')["turn"]
        Watching(interlock, turn).until("tool.call")
        end = time.monotonic() + PATIENCE
        with closing(sqlite3.connect(interlock.home.journal)) as journal:
            count = "SELECT count(*) FROM items WHERE turn = ?"
            while journal.execute(count, (turn,)).fetchone()[0] < 2:
                assert time.monotonic() < end
        (call,) = interlock.client.turn_show(turn)["calls"]
        assert (call["generation"], call["outcome"]) == (0, "")  # the agent alone told of it
        interlock.process.kill()
        interlock.stop()
        interlock.client.close()
        interlock.clean = True
        interlock.start()
        shown = interlock.client.turn_show(turn)
        assert shown["state"] == "interrupted"
        (call,) = shown["calls"]
        assert (call["capability"], call["worker"]) == ("mcp:good/sleep", "mcp:good")
        assert (call["outcome"], call["may_have_run"]) == ("worker_died", True)


@pytest.mark.parametrize("victim", [spawner_of, mcp_image_of])
def test_without_its_spawner_everything_comes_back_and_no_server_is_blamed(
    tmp_path: Path, victim: Any
) -> None:
    """Spawner or mcp image killed with -9: swept, back with that reason, no failure counted."""
    config = timing(failures=1) + SICK
    with Supervised(tmp_path, config) as interlock:
        before = ready(interlock, "agent:main", "mcp:good", "mcp:bad")
        old = [child.pid for child in procfs.descendants(interlock.pid)]
        turn = interlock.client.start_turn(SLOW_TURN)["turn"]
        watching = Watching(interlock, turn)
        watching.until("tool.result")
        for generation in (2, 3):  # more often than a server may fail
            place = interlock.mark()
            os.kill(victim(interlock), signal.SIGKILL)
            interlock.wait_event("spawner.died", after=place)
            for name in before:
                event = interlock.wait_event("worker.ready", name, place)
                assert event["generation"] == generation
                told = topics(interlock, name, place)
                assert "worker.backoff" not in told and "worker.failed" not in told, told
        assert not set(old) & {child.pid for child in procfs.descendants(interlock.pid)}
        end = watching.join()[-1]
        # The workers of the mcp image die before the agent: the turn may end well meanwhile.
        ended_well = victim is mcp_image_of and end["type"] == "turn.completed"
        assert ended_well or end["code"] == "agent_died"
        row = interlock.worker("mcp:bad")
        assert (row["state"], row["restarts"]) == ("READY", 2)
        assert interlock.attention() == []
        assert list(interlock.client.turn('mcp:good/echo {"a": 1}'))[-1]["type"] == "turn.completed"


def title_of(pid: int) -> str:
    """The whole title, or command line; empty when the process is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text("utf-8", "replace")
    except OSError:
        return ""


def test_a_spawner_that_dies_while_it_starts_is_no_failure_of_a_worker(tmp_path: Path) -> None:
    """Killed over and over before it is ready: the workers wait for one that lives, unblamed."""
    config = timing(failures=1) + GOOD
    with Supervised(tmp_path, config) as interlock:
        ready(interlock, "agent:main", "mcp:good")
        place = interlock.mark()
        seen: set[int] = set()
        end = time.monotonic() + PATIENCE
        while len(seen) < 4:  # each lives until it is seen, which is long before it is ready
            assert time.monotonic() < end
            for pid in set(procfs.children(interlock.pid)) - seen:
                if "spawner" in title_of(pid):
                    seen.add(pid)
                    os.kill(pid, signal.SIGKILL)
        for name in ("agent:main", "mcp:good"):
            interlock.wait_event("worker.ready", name, place)
            told = topics(interlock, name, place)
            assert "worker.backoff" not in told and "worker.failed" not in told, told
        assert interlock.attention("agent:main") == interlock.attention("mcp:good") == []
        titles = [title_of(one.pid) for one in procfs.descendants(interlock.pid)]
        assert len([title for title in titles if "agent:main" in title]) == 1, titles
        assert list(interlock.client.turn('mcp:good/echo {"a": 1}'))[-1]["type"] == "turn.completed"


def test_what_both_deaths_leave_over_is_swept_by_the_next_start(tmp_path: Path) -> None:
    """Both killed at once: the next start sweeps what is recorded, and never another process."""
    config = timing() + GOOD + rogue_toml("x", "grandchild_session", "ignore_end")
    with innocent() as stranger, Supervised(tmp_path, config, clean=False) as interlock:
        interlock.wait_state("mcp:x", "READY")
        place = interlock.mark()
        interlock.client.call("mcp:x/echo", {})  # after a call a worker looks at its children
        interlock.wait_event("tool.completed", "mcp:x", place)
        interlock.wait_for_children("mcp:x", 2)
        interlock.process.send_signal(signal.SIGSTOP)
        os.kill(spawner_of(interlock), signal.SIGKILL)
        interlock.process.kill()
        interlock.stop()
        interlock.client.close()
        true = Recorded(
            pid=stranger.pid,
            start=procfs.start_time(stranger.pid) or 0,
            boot_id=procfs.boot_id(),
            name="mcp:x#1",
        )
        rows = msgspec.json.decode(interlock.home.processes.read_bytes(), type=list[Recorded])
        rows.append(msgspec.structs.replace(true, start=true.start - 1))
        rows.append(msgspec.structs.replace(true, boot_id="0" * 36))
        interlock.home.processes.write_bytes(msgspec.json.encode(rows))
        interlock.clean = True
        interlock.spare(stranger.pid)
        interlock.start()
        alive = [row.name for row in rows if procfs.alive(row.pid, row.start)]
        assert alive == ["mcp:x#1"]  # the stranger with another boot id
        interlock.wait_state("mcp:x", "READY")
        assert interlock.client.call("mcp:x/echo", {}).outcome == "ok"
