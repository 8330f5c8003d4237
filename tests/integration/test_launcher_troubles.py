"""What must not end the launcher: callbacks that fail, no descriptor left, a child that breaks."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import signal
from pathlib import Path
from typing import Any, NoReturn

import pytest
from spawning import TESTS, run, running

from interlock.supervisor.spawn import child
from interlock.supervisor.spawn.protocol import Spawn


@pytest.fixture(autouse=True)
def _entry_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS))


def test_callbacks_that_fail_cost_nobody_anything(tmp_path: Path) -> None:
    async def test() -> None:
        told: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: told.append(context["exception"])
        )
        failing = {"lost", "spawned", "died", "exited", "failed", "notice"}
        async with running(tmp_path, failing=failing) as bench:
            bench.spawn("mcp:a")
            await bench.facts_of("mcp:a")
            assert bench.launcher.pid is not None
            os.kill(bench.launcher.pid, signal.SIGKILL)
            await bench.until("lost")
            await bench.until("exited", "mcp:a")
            bench.spawn("mcp:b", {"exit": 0})
            await bench.until("exited", "mcp:b")
        assert {type(one) for one in told} == {LookupError}

    run(test)


def test_without_descriptors_the_spawner_comes_back_later(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as bench:
            assert bench.launcher.pid is not None
            limits = resource.getrlimit(resource.RLIMIT_NOFILE)
            hoarded = _take_all_descriptors(limits[1])
            try:
                os.kill(bench.launcher.pid, signal.SIGKILL)
                await bench.until("notice", "spawner_failed")
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
                for descriptor in hoarded:
                    os.close(descriptor)
            await bench.until("notice", "spawner_failed", "")
            bench.spawn("mcp:a", {"exit": 0})
            await bench.until("exited", "mcp:a")

    run(test)


def _take_all_descriptors(hard: int) -> list[int]:
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    hoarded = []
    while True:
        try:
            hoarded.append(os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            assert error.errno == errno.EMFILE
            return hoarded


def test_a_child_that_cannot_be_prepared_never_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object) -> NoReturn:
        raise LookupError("something nobody thought of")

    monkeypatch.setattr(child, "_prepare", breaks)
    order = Spawn(name="mcp:a", generation=1, boot=b"", entry="a:b", title="t", log="")
    hear, tell = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            child.run(order, parent, -1, tell, executes=False)
        finally:
            os._exit(99)
    os.close(tell)
    with open(hear, "rb") as report:
        code, _, message = report.read().partition(b"\0")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 127
    assert code == b"spawn_failed"
    assert b"something nobody thought of" in message
