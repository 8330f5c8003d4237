"""The launcher, the spawner and real worker processes."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest
from spawning import TESTS, running
from spawning import run as run_async

from interlock.bus import procfs
from interlock.supervisor.spawn.environment import scrub

WAYS = [("fork", "base"), ("fork", "mcp"), ("exec", "base"), ("exec", "mcp")]


@pytest.fixture(autouse=True)
def search_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS))


@pytest.mark.parametrize(("mode", "image"), WAYS)
def test_a_worker_starts_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, image: str
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "planted-secret")
    monkeypatch.setenv("INTERLOCK_HOME", "planted-home")
    monkeypatch.setenv("GIT_AUTHOR_NAME", "kept")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")

    async def test() -> None:
        async with running(tmp_path, mode) as bench:
            keep = ("PYTHONPATH", "GIT_AUTHOR_*", "INTERLOCK_HOME")
            bench.spawn("mcp:a", image=image, keep_env=keep, nice=3, open_files=300, cpu_seconds=60)
            facts = await bench.facts_of("mcp:a")
            names = set(facts["environ"]) - {"LC_CTYPE"}
            assert names == set(scrub(os.environ, keep)) - {"LC_CTYPE"}
            assert not names & {"SOME_API_KEY", "INTERLOCK_HOME"}
            assert facts["environ"]["GIT_AUTHOR_NAME"] == "kept"
            assert facts["environ"]["LC_ALL"] == "C.UTF-8"
            assert "planted" not in facts["proc_environ"]
            assert facts["cwd"] == str(tmp_path)
            assert facts["descriptors"] == [0, 1, 2, facts["lifeline"]]
            assert facts["stdin"] == "/dev/null"
            assert facts["stdout"] == facts["stderr"] == str(tmp_path / "worker.log")
            assert facts["sid"] == facts["pid"]
            assert (facts["nice"], facts["open_files"], facts["cpu_seconds"]) == (
                os.nice(0) + 3,
                300,
                60,
            )
            assert int(facts["blocked"], 16) == 0
            # Python itself ignores these two; its `subprocess` resets them for programs.
            pythons = 1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)
            threads = 3 << (32 - 1)  # 32 and 33 are the C library's own: nobody can set them
            assert facts["ignored"] & ~threads == pythons
            assert facts["threads"] == 1
            if mode == "fork":
                assert facts["title"] == "interlock: mcp:a"
        log = (tmp_path / "worker.log").read_text()
        assert "a line on stdout" in log
        assert "a line on stderr" in log

    run_async(test)


@pytest.mark.parametrize(("mode", "image"), WAYS)
def test_exit_codes_and_signals_are_told(tmp_path: Path, mode: str, image: str) -> None:
    async def test() -> None:
        async with running(tmp_path, mode) as bench:
            bench.spawn("mcp:code", {"exit": 7}, image=image)
            bench.spawn("mcp:text", {"exit": "some text"}, image=image)
            bench.spawn("mcp:error", {"raise": True}, image=image)
            bench.spawn("mcp:fine", {"exit": 0}, image=image)
            bench.spawn("mcp:killed", image=image)
            bench.spawn("mcp:missing", image=image, entry="no_such_module:main")
            pid = (await bench.facts_of("mcp:killed"))["pid"]
            os.kill(pid, signal.SIGKILL)
            assert await bench.until("exited", "mcp:code") == ("exited", "mcp:code", 1, 7, None)
            assert (await bench.until("exited", "mcp:text"))[3:] == (1, None)
            assert (await bench.until("exited", "mcp:error"))[3:] == (1, None)
            assert (await bench.until("exited", "mcp:fine"))[3:] == (0, None)
            assert (await bench.until("exited", "mcp:missing"))[3:] == (1, None)
            assert (await bench.until("exited", "mcp:killed"))[3:] == (None, 9)
            for name in ("mcp:code", "mcp:killed"):
                kinds = [event[0] for event in bench.events if event[1] == name]
                assert kinds == ["spawned", "died", "exited"]
        log = (tmp_path / "worker.log").read_text()
        assert "some text" in log
        assert "RuntimeError: as told" in log

    run_async(test)


def test_a_worker_that_ends_before_it_read_anything_is_told_by_its_code(tmp_path: Path) -> None:
    """Promise: how a worker ended is told truly, however quick it was."""

    async def test() -> None:
        async with running(tmp_path, warm="spawn_warm:patient") as bench:
            bench.spawn("mcp:missing", image="mcp", entry="no_such_module:main")
            assert (await bench.until("exited", "mcp:missing"))[3:] == (1, None)
            assert not [event for event in bench.events if event[0] == "failed"]

    run_async(test)


def test_death_is_noticed_at_once_and_the_zombie_goes(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as bench:
            delays = []
            for number in range(10):
                name = f"mcp:{number}"
                bench.spawn(name)
                facts = await bench.facts_of(name)
                started = time.perf_counter()
                assert bench.launcher.signal(name, 1, signal.SIGKILL)
                await bench.until("died", name)
                delays.append(time.perf_counter() - started)
                await bench.until("exited", name)
                assert not bench.launcher.signal(name, 1, signal.SIGKILL)
                # The answer to the next order comes after the reaping.
                bench.spawn(f"mcp:next{number}", {"exit": 0})
                await bench.until("exited", f"mcp:next{number}")
                assert procfs.stat(facts["pid"]) is None
            assert sorted(delays)[5] < 0.05

    run_async(test)


def test_the_zombie_waits_for_the_supervisor(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as bench:
            bench.spawn("mcp:a")
            facts = await bench.facts_of("mcp:a")
            handle = os.pidfd_open(facts["pid"])
            seen: list[str] = []
            exited = bench.launcher._on_exited

            def look(*values: object) -> None:
                stat = procfs.stat(facts["pid"])
                seen.append(stat.state if stat else "gone")
                exited(*values)  # type: ignore[arg-type]

            bench.launcher._on_exited = look
            signal.pidfd_send_signal(handle, signal.SIGTERM)
            os.close(handle)
            await bench.until("exited", "mcp:a")
            assert seen == ["Z"]

    run_async(test)


def test_fifty_workers_in_one_burst(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as bench:
            started = time.perf_counter()
            for number in range(50):
                bench.spawn(f"mcp:{number}", image="mcp")
            await bench.until_count(50, "spawned")
            assert time.perf_counter() - started < 5
            for number in range(50):
                bench.launcher.signal(f"mcp:{number}", 1, signal.SIGKILL)
            exits = await bench.until_count(50, "exited")
            assert {event[3:] for event in exits} == {(None, 9)}

    run_async(test)


def descriptors(pid: int | None) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


@pytest.mark.parametrize("mode", ["fork", "exec"])
def test_workers_that_ended_leave_no_descriptor_and_no_zombie(tmp_path: Path, mode: str) -> None:
    async def test() -> None:
        async with running(tmp_path, mode) as bench:
            bench.spawn("core:0", {"exit": 0, "report": ""})
            await bench.until("exited", "core:0")
            # Orders are taken in turn: after this answer the first worker is reaped.
            bench.spawn("core:first", open_files=1 << 40)
            await bench.until("failed", "core:first")
            spawner = bench.launcher.pid
            assert spawner is not None
            before = descriptors(os.getpid()), descriptors(spawner), procfs.children(spawner)
            for number in range(1, 11):
                bench.spawn(f"core:{number}", {"exit": 0, "report": ""})
                bench.spawn(f"core:fails{number}", open_files=1 << 40)
            await bench.until_count(11, "exited")
            await bench.until_count(11, "failed")
            bench.spawn("core:last", open_files=1 << 40)
            await bench.until("failed", "core:last")
            assert before == (
                descriptors(os.getpid()),
                descriptors(spawner),
                procfs.children(spawner),
            )

    run_async(test)


def test_a_signal_before_the_start_is_kept(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as bench:
            bench.spawn("mcp:a")
            assert bench.launcher.signal("mcp:a", 1, signal.SIGKILL)
            assert (await bench.until("exited", "mcp:a"))[3:] == (None, 9)
            assert not bench.launcher.signal("mcp:unknown", 1, signal.SIGKILL)

    run_async(test)


@pytest.mark.parametrize("mode", ["fork", "exec"])
def test_what_prevents_a_start_is_told(tmp_path: Path, mode: str) -> None:
    async def test() -> None:
        async with running(tmp_path, mode) as bench:
            bench.spawn("mcp:limit", open_files=1 << 40)
            failed = await bench.until("failed", "mcp:limit")
            assert failed[3] == "limit_refused"
            assert "open_files" in failed[4]
            bench.spawn("mcp:large", keep_env=("x" * 300_000,))
            failed = await bench.until("failed", "mcp:large")
            assert failed[3] == "too_large"
            bench.spawn("mcp:boot", {"padding": "x" * 100_000})
            assert (await bench.until("failed", "mcp:boot"))[3] == "too_large"
            bench.spawn("mcp:wide", keep_env=("PYTHONPATH", "x" * 190_000))
            await bench.facts_of("mcp:wide")
            assert not [event for event in bench.events if event[0] == "exited"]

    run_async(test)


@pytest.mark.parametrize("warm", ["spawn_warm:broken", "spawn_warm:threaded", "spawn_warm:missing"])
def test_an_image_that_cannot_warm_still_starts_workers(tmp_path: Path, warm: str) -> None:
    async def test() -> None:
        async with running(tmp_path, warm=warm) as bench:
            await bench.until_text("notice", "image_not_warm", "mcp image")
            bench.spawn("mcp:a", image="mcp")
            bench.spawn("core", image="base")
            facts = await bench.facts_of("mcp:a")
            assert facts["threads"] == 1
            assert "python" in os.path.basename(facts["title"])
            assert (await bench.facts_of("core"))["title"] == "interlock: core"

    run_async(test)


def title_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0]


@pytest.mark.parametrize(("mode", "image"), WAYS)
def test_images_prepare_their_memory_for_forks(tmp_path: Path, mode: str, image: str) -> None:
    async def test() -> None:
        async with running(tmp_path, mode) as bench:
            bench.spawn("mcp:a", image=image)
            facts = await bench.facts_of("mcp:a")
            assert facts["filled"] == (mode == "fork")
            # Warmed, then rehearsed: to see what runs, and once more after that has moved.
            assert facts["warmed"] == (3 if (mode, image) == ("fork", "mcp") else 0)

    run_async(test)


def test_images_have_one_thread_and_say_who_they_are(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as bench:
            bench.spawn("mcp:a", image="mcp")
            image = (await bench.facts_of("mcp:a"))["parent"]
            spawner = bench.launcher.pid
            assert spawner is not None
            for pid, title in ((spawner, "interlock: spawner"), (image, "interlock: image mcp")):
                assert len(os.listdir(f"/proc/{pid}/task")) == 1
                assert title_of(pid) == title

    run_async(test)


def test_records_that_are_no_orders_end_nobody(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as bench:
            for link in bench.launcher._links.values():
                for data in (b"\xc1", b"garbage", b"\x91" * 50_000, b"\x81\xa4type\xa4nope"):
                    await asyncio.get_running_loop().sock_sendall(_raw(link), data)
            assert len(await bench.until_count(8, "notice", "spawner_record")) == 8
            bench.spawn("mcp:a", image="mcp")
            bench.spawn("core")
            await bench.facts_of("mcp:a")
            await bench.facts_of("core")

    run_async(test)


def _raw(link: object) -> object:
    return link._end  # type: ignore[attr-defined]


def test_a_supervisor_that_does_not_read_blocks_no_image(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as bench:
            loop = asyncio.get_running_loop()
            links = bench.launcher._links
            loop.remove_reader(links["base"]._end)
            count = 600
            for number in range(count):
                bench.spawn(f"core:{number}", {"exit": 0, "report": ""}, open_files=1 << 40)
            # The other image still answers, and the first one delivers when it is read again.
            bench.spawn("mcp:a", image="mcp")
            await bench.facts_of("mcp:a")
            loop.add_reader(links["base"]._end, links["base"]._receive)
            await bench.until_count(count, "failed", patience=40)

    run_async(test)
