"""Signals that were blocked or ignored by whoever started a process: that outlasts an exec."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from breaking import GOOD, ready
from command_line import CommandLine
from supervised import Supervised, rogue_toml, timing

from interlock.bus import procfs


@contextmanager
def blocked() -> Iterator[None]:
    """Block what can be blocked, as programs with a signalfd do; their children inherit it."""
    before = signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def blocked_in(pid: int) -> int:
    """The mask of a process' first thread."""
    (line,) = (
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("SigBlk:")
    )
    return int(line.split()[1], 16)


def test_blocked_signals_of_the_starter_harm_nobody(tmp_path: Path) -> None:
    """A server that crashes harms nobody but itself, and SIGTERM stops all in order."""
    interlock = Supervised(tmp_path, timing() + GOOD + rogue_toml("bad"))
    with blocked():
        interlock.start()
    with interlock:
        before = ready(interlock, "agent:main", "mcp:good", "mcp:bad")
        ours = [interlock.pid, *(child.pid for child in procfs.descendants(interlock.pid))]
        assert {pid: blocked_in(pid) for pid in ours} == dict.fromkeys(ours, 0)
        place = interlock.mark()
        os.kill(interlock.worker("mcp:bad")["pid"], signal.SIGKILL)
        interlock.wait_event("worker.ready", "mcp:bad", place)
        for name in ("agent:main", "mcp:good"):
            assert interlock.worker(name)["pid"] == before[name]["pid"]


def block_all() -> None:
    """Leave a new process with all signals blocked."""
    signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())


def ignore_some() -> None:
    """Leave a new process with signals ignored that it needs."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.mark.parametrize("left_behind", [block_all, ignore_some])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_ends_although_its_starter_blocked_or_ignored_signals(
    tmp_path: Path, left_behind: Callable[[], None], number: signal.Signals
) -> None:
    """Ctrl-C ends a command at any moment, SIGTERM as any program."""
    with Supervised(tmp_path, timing()) as interlock:
        cli = CommandLine(tmp_path)
        with cli.popen("attach", "--json", preexec_fn=left_behind) as command:
            interlock.spare(command.pid)
            assert command.stdout is not None
            assert command.stdout.readline()
            command.send_signal(number)
            assert command.wait(10) == (130 if number == signal.SIGINT else -number)
