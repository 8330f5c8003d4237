"""Nothing is left behind, whoever is killed."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from spawning import TESTS, Watched, running
from spawning import run as run_async

from interlock.bus import procfs
from interlock.bus.records import Child
from interlock.supervisor.spawn.signals import ASK_TO_STOP, STRAY
from interlock.supervisor.spawn.sweep import Recorded, sweep_recorded

LEFT_AFTER = 5.0


@pytest.fixture(autouse=True)
def search_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS))


@pytest.fixture
def innocent() -> Iterator[subprocess.Popen[bytes]]:
    """A process that nobody may touch."""
    command = [sys.executable, "-S", "-c", "import signal; signal.pause()"]
    with subprocess.Popen(command) as process:
        yield process
        assert process.poll() is None, "an innocent process was killed"
        process.kill()


class Supervised:
    """A supervisor process with its workers, started and watched."""

    def __init__(self, folder: Path, count: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(TESTS / "spawn_supervisor.py"), str(folder), str(count)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.output = self.process.stdout
        self.pids: dict[str, Any] = json.loads(self.output.readline())
        self.others = [*self.pids["images"], *self.pids["workers"], *self.pids["grandchildren"]]
        self.watched = Watched(self.others)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.output.close()


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Supervised]:
    found = Supervised(tmp_path, 20)
    yield found
    found.close()


def test_supervisor_killed(supervised: Supervised) -> None:
    assert len(supervised.others) == 2 + 20 + 14
    supervised.process.kill()
    assert supervised.watched.left(LEFT_AFTER) == []


def test_spawner_killed(supervised: Supervised) -> None:
    os.kill(supervised.pids["spawner"], signal.SIGKILL)
    assert supervised.watched.left(LEFT_AFTER) == []
    assert supervised.output.readline() == "lost\n"


def test_mcp_image_killed(supervised: Supervised) -> None:
    image = next(one for one in supervised.pids["images"] if one != supervised.pids["spawner"])
    os.kill(image, signal.SIGKILL)
    assert supervised.watched.left(LEFT_AFTER) == []
    assert supervised.output.readline() == "lost\n"


def test_supervisor_and_spawner_killed(supervised: Supervised, tmp_path: Path) -> None:
    """What both leave over dies at the next start: grandchildren whose workers were recorded."""
    recorded = msgspec.json.decode((tmp_path / "processes.json").read_bytes(), type=list[Recorded])
    started = {supervised.pids["spawner"], *supervised.pids["workers"]}
    assert {row.pid for row in recorded} == started | set(supervised.pids["grandchildren"])
    path = tmp_path / "processes.json"
    os.kill(supervised.process.pid, signal.SIGSTOP)
    os.kill(supervised.pids["spawner"], signal.SIGKILL)
    os.kill(supervised.process.pid, signal.SIGKILL)
    supervised.process.wait()
    tied = Watched([*supervised.pids["images"], *supervised.pids["workers"]])
    assert tied.left(LEFT_AFTER) == []
    names = sweep_recorded(path)
    assert sorted(names) == sorted(f"mcp:{one}#1 child" for one in range(0, 20, 3) for _ in "ab")
    assert not path.exists()
    assert supervised.watched.left(LEFT_AFTER) == []


@pytest.mark.parametrize(
    "change", [{"start": 1}, {"boot_id": "00000000-0000-0000-0000-000000000000"}, {"boot_id": ""}]
)
def test_a_record_of_another_process_is_never_signalled(
    innocent: subprocess.Popen[bytes], tmp_path: Path, change: dict[str, Any]
) -> None:
    true = Recorded(
        pid=innocent.pid,
        start=procfs.start_time(innocent.pid) or 0,
        boot_id=procfs.boot_id(),
        name="mcp:a",
    )
    path = tmp_path / "processes.json"
    path.write_bytes(msgspec.json.encode([msgspec.structs.replace(true, **change)]))
    assert sweep_recorded(path) == []
    assert procfs.alive(innocent.pid, true.start)


def test_a_recorded_process_is_killed_with_its_tree(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys; "
        "child = subprocess.Popen(['sleep', '1000'], start_new_session=True); "
        "print(child.pid, flush=True); child.wait()"
    )
    command = [sys.executable, "-S", "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        below = int(process.stdout.readline())
        watched = Watched([process.pid, below])
        row = Recorded(
            pid=process.pid,
            start=procfs.start_time(process.pid) or 0,
            boot_id=procfs.boot_id(),
            name="mcp:a#1",
        )
        path = tmp_path / "processes.json"
        path.write_bytes(msgspec.json.encode([row]))
        assert sweep_recorded(path) == ["mcp:a#1"]
        assert watched.left(LEFT_AFTER) == []


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"[" * 5000, b"\xff", b'[{"pid": 1}]'])
def test_a_file_that_is_no_record_is_ignored(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "processes.json"
    path.write_bytes(content)
    assert sweep_recorded(path) == []
    assert sweep_recorded(path) == []


@pytest.mark.parametrize(("mode", "image"), [("fork", "base"), ("fork", "mcp"), ("exec", "base")])
def test_leftovers_of_one_worker_go_and_others_stay(tmp_path: Path, mode: str, image: str) -> None:
    async def test() -> None:
        async with running(tmp_path, mode) as bench:
            bench.spawn("mcp:dies", {"grandchildren": 3}, image=image)
            bench.spawn("mcp:stays", {"grandchildren": 3}, image=image)
            bench.spawn("core", {"grandchildren": 1}, image="base")
            dies = await bench.facts_of("mcp:dies")
            stays = await bench.facts_of("mcp:stays")
            core = await bench.facts_of("core")
            starts = {
                pid: procfs.start_time(pid)
                for one in (stays, core)
                for pid in (one["pid"], *one["grandchildren"])
            }
            watched = Watched(dies["grandchildren"])
            os.kill(dies["pid"], signal.SIGKILL)
            assert watched.left(1.0) == []
            await bench.until("exited", "mcp:dies")
            assert all(procfs.alive(pid, start or 0) for pid, start in starts.items())

    run_async(test)


def test_the_launcher_goes_on_after_its_spawner(
    tmp_path: Path, innocent: subprocess.Popen[bytes]
) -> None:
    async def test() -> None:
        async with running(tmp_path) as bench:
            bench.spawn("mcp:a", {"stubborn": True, "grandchildren": 2}, image="mcp")
            facts = await bench.facts_of("mcp:a")
            watched = Watched([facts["pid"], *facts["grandchildren"]])
            first = bench.launcher.pid
            assert first is not None
            os.kill(first, signal.SIGKILL)
            # Asked for while there is no spawner: it is started by the next one.
            await bench.until("lost")
            bench.spawn("mcp:b", image="mcp")
            assert await bench.until("exited", "mcp:a") == ("exited", "mcp:a", 1, None, None)
            assert watched.left(0.1) == []
            await bench.facts_of("mcp:b")
            assert bench.launcher.pid not in (None, first)
            kinds = [event[0] for event in bench.events if event[1] == "mcp:a"]
            assert kinds == ["spawned", "died", "exited"]
            assert innocent.poll() is None

    run_async(test)


def test_spawner_killed_before_the_answer(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as bench:
            pid = bench.launcher.pid
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            bench.spawn("mcp:a")
            os.kill(pid, signal.SIGKILL)
            failed = await bench.until("failed", "mcp:a")
            assert failed[3] == "spawner_died"
            bench.spawn("mcp:a", generation=2)
            await bench.facts_of("mcp:a")

    run_async(test)


HANGING = "spawn_warm:hanging"


def test_a_spawner_that_hangs_is_replaced(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, warm=HANGING) as bench:
            bench.spawn("mcp:first", image="mcp")
            image = (await bench.facts_of("mcp:first"))["parent"]
            bench.launcher._patience = 0.5  # only now: its own start may take longer
            watched = Watched([image])
            os.kill(image, signal.SIGUSR1)
            bench.spawn("mcp:a", image="mcp")
            assert await bench.until("lost") == ("lost", "spawner did not answer")
            bench.launcher._patience = 40.0
            await bench.until("failed", "mcp:a")
            assert watched.left(1.0) == []
            bench.spawn("mcp:b", image="mcp")
            await bench.facts_of("mcp:b")

    run_async(test)


def test_a_spawner_that_hangs_after_a_death_is_replaced(tmp_path: Path) -> None:
    """The end of a dead worker is settled although its spawner never reports it."""

    async def test() -> None:
        async with running(tmp_path, warm=HANGING) as bench:
            bench.spawn("mcp:a", image="mcp")
            facts = await bench.facts_of("mcp:a")
            bench.launcher._patience = 0.5
            os.kill(facts["parent"], signal.SIGUSR1)
            os.kill(facts["pid"], signal.SIGKILL)
            await bench.until("died", "mcp:a")
            assert await bench.until("lost") == ("lost", "spawner did not answer")
            bench.launcher._patience = 40.0
            assert await bench.until("exited", "mcp:a") == ("exited", "mcp:a", 1, None, None)
            bench.spawn("mcp:a", image="mcp", generation=2)
            await bench.facts_of("mcp:a")

    run_async(test)


@pytest.mark.parametrize("image", ["base", "mcp"])
def test_a_spawner_that_was_stopped_goes_on(tmp_path: Path, image: str) -> None:
    """Promise: an order is answered within seconds, and no worker is restarted for it."""

    async def test() -> None:
        async with running(tmp_path) as bench:
            bench.spawn("mcp:a", image=image)
            bench.spawn("core")
            facts = await bench.facts_of("mcp:a")
            other = await bench.facts_of("core")
            start = procfs.start_time(other["pid"]) or 0
            os.kill(facts["parent"], signal.SIGSTOP)
            os.kill(facts["pid"], signal.SIGKILL)
            bench.spawn("mcp:b", image=image)
            assert (await bench.until("exited", "mcp:a"))[3:] == (None, 9)
            await bench.facts_of("mcp:b")
            pid = facts["parent"]
            await bench.until_text("notice", "spawner_stopped", f"(pid {pid}) had been stopped")
            await bench.until("notice", "spawner_stopped", "")
            assert not [event for event in bench.events if event[0] == "lost"]
            assert procfs.alive(other["pid"], start)

    run_async(test)


def test_of_two_generations_that_wait_for_a_spawner_one_is_started(tmp_path: Path) -> None:
    """Nobody would know the older one, so it would run for ever."""

    async def test() -> None:
        async with running(tmp_path) as bench:
            pid = bench.launcher.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            await bench.until("lost")
            bench.spawn("mcp:a", generation=1)
            bench.spawn("mcp:a", generation=2)
            await bench.until("spawned", "mcp:a", 2)
            bench.spawn("mcp:b")
            await bench.facts_of("mcp:b")
            assert [event[2] for event in bench.events if event[1] == "mcp:a"] == [2]

    run_async(test)


def test_spawner_killed_again_and_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as bench:
            for number in range(1, 4):
                bench.spawn("mcp:a", generation=number)
                await bench.until("spawned", "mcp:a", number)
                pid = bench.launcher.pid
                assert pid is not None
                os.kill(pid, signal.SIGKILL)
                await bench.until_count(number, "lost")
                await bench.until("exited", "mcp:a", number)

    run_async(test)


def test_no_signal_that_asks_to_stop_or_means_nothing_ends_the_images(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as bench:
            bench.spawn("mcp:a", image="mcp")
            facts = await bench.facts_of("mcp:a")
            for pid in (bench.launcher.pid, facts["parent"]):
                assert pid is not None
                for number in (*ASK_TO_STOP, *STRAY):
                    os.kill(pid, number)
            bench.spawn("mcp:b", image="mcp")
            await bench.facts_of("mcp:b")
            assert not [event for event in bench.events if event[0] == "lost"]

    run_async(test)


def test_no_descriptor_left_to_fork(tmp_path: Path) -> None:
    """A spawner without free descriptors refuses and goes on."""

    async def test() -> None:
        async with running(tmp_path) as bench:
            pid = bench.launcher.pid
            assert pid is not None
            limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (4, limits[1]))
            bench.spawn("core:a")
            failed = await bench.until("failed", "core:a")
            assert failed[3] == "fork_failed"
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
            bench.spawn("core:b")
            await bench.facts_of("core:b")

    run_async(test)


def test_a_kill_needs_the_right_start_time(innocent: subprocess.Popen[bytes]) -> None:
    start = procfs.start_time(innocent.pid) or 0
    assert not procfs.kill(Child(pid=innocent.pid, start=start + 1), signal.SIGKILL)
    assert procfs.alive(innocent.pid, start)
