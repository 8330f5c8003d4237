"""Programs that a measurement starts end with it, however it ends."""

from __future__ import annotations

import sys
from contextlib import ExitStack

import pytest

from interlock.bus import procfs
from interlock.supervisor.bench.lab import running

ENDLESS = [sys.executable, "-c", "import sys; sys.stdin.read()"]


def test_programs_end_when_a_later_one_cannot_be_started() -> None:
    pids: list[int] = []
    with pytest.raises(FileNotFoundError), ExitStack() as programs:
        for command in (ENDLESS, ENDLESS, ["/no/such/program"]):
            pids.append(programs.enter_context(running(command, stdin=-1)).pid)
    assert len(pids) == 2
    assert not [pid for pid in pids if procfs.start_time(pid)]
