"""No further thread can be started: whoever needs one says so, and what runs goes on.

A limit on the address space keeps a process from new threads as one on processes does, and needs
no user of its own for the test.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from supervised import DIRECT_AGENT, Supervised, rogue_toml, timing

from interlock.bus.limits import NO_THREADS
from interlock.supervisor.lifecycle.wording import describe_exit

FULL = """
import resource, sys, threading
import asyncio
from interlock.bus import AsyncClient, InterlockError, connect
from interlock.bus.threads import start_threads
from interlock.supervisor.cli import app, entry, status, workers
from concurrent.futures import ThreadPoolExecutor

def fill():
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (4 << 20),) * 2)

async def later(home):
    fill()
    async with AsyncClient.connect(home) as bus:
        await bus.status()

try:
"""
TOLD = """
except InterlockError as error:
    print(error.code, "ulimit -v" in error.message, "ulimit -u" in error.message)
"""


@pytest.fixture(scope="module")
def interlock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervised]:
    config = timing() + DIRECT_AGENT + rogue_toml("x")
    with Supervised(tmp_path_factory.mktemp("limit"), config) as running:
        for name in ("agent:main", "mcp:x"):
            running.wait_state(name, "READY")
        yield running


@pytest.mark.parametrize(
    "what",
    [
        "fill(); connect(sys.argv[1])",
        "asyncio.run(later(sys.argv[1]))",
        "fill(); start_threads(ThreadPoolExecutor(2), 2)",
    ],
)
def test_a_client_that_gets_no_thread_says_so(interlock: Supervised, what: str) -> None:
    """It was killed by SIGABRT, from within a library; it is told which limit that is."""
    code = f"{FULL}    {what}{TOLD}"
    done = subprocess.run(
        [sys.executable, "-c", code, str(interlock.home.path)],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "process_limit True False\n", "")


def test_a_command_that_gets_no_thread_says_one_sentence(interlock: Supervised) -> None:
    code = f"{FULL}    fill(); entry.main(['--home', sys.argv[1], 'status']){TOLD}"
    done = subprocess.run(
        [sys.executable, "-c", code, str(interlock.home.path)],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 1
    assert "ulimit -v" in done.stderr and done.stderr.count("\n") == 1


def test_who_gets_no_process_says_so() -> None:
    code = """
import os, resource, subprocess
from interlock.bus.errors import ProcessLimitError
from interlock.bus.threads import starting_process
os.getuid() or os.setuid(65534)  # root has no such limit
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
try:
    with starting_process():
        subprocess.Popen(["true"])
except ProcessLimitError as error:
    print(error.code, "ulimit -u" in error.message)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, "process_limit True\n", "")


def test_a_supervisor_starts_no_thread_after_its_start(
    interlock: Supervised, tmp_path: Path
) -> None:
    """It has all that it ever needs before anybody can take them away."""
    pid = interlock.client.status()["supervisor"]["pid"]
    tasks = f"/proc/{pid}/task"
    before = set(os.listdir(tasks))
    for _ in range(8):
        interlock.client.reload()
        interlock.client.turns()
    text = "x" * 200_000
    assert list(interlock.client.turn(text))[-1]["type"] in ("turn.completed", "turn.failed")
    interlock.client.turns()
    assert interlock.client.call("mcp:x/echo", {}).outcome == "ok"
    interlock.client.control("restart", "mcp:x")
    assert set(os.listdir(tasks)) == before


def test_a_worker_that_gets_no_thread_has_a_reason() -> None:
    assert "ulimit -u" in describe_exit(NO_THREADS, None)
