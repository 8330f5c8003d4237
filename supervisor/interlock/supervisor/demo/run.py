"""The demonstration, from the temporary home to the last process gone."""

from __future__ import annotations

import importlib.util
import json
import signal
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from interlock.bus import procfs
from interlock.bus.client import Client
from interlock.bus.errors import InterlockError
from interlock.supervisor.demo.repository import make_repository
from interlock.supervisor.demo.screen import Screen
from interlock.supervisor.home.folders import temporary_folder
from interlock.supervisor.home.temporary import (
    TemporaryInterlock,
    server_table,
    wait_ready,
)

SERVERS: Final = Path(__file__).parent / "servers"
READY: Final = 30.0
"""Seconds that the two real servers have to become READY."""
ROUNDS: Final = 5
"""Turns whose median is told, with the bad servers and without."""
NOISE: Final = 0.1
"""Share of a turn's time that is no difference between two medians of so few."""
WARM: Final = 2
"""Turns before them that are not counted."""
_REPO: Final = json.dumps({"repo_path": "."})
_UTC: Final = json.dumps({"timezone": "UTC"})
FIRST: Final = (
    f"mcp:git/git_log {json.dumps({'repo_path': '.', 'max_count': 3})} "
    f"& mcp:time/get_current_time {_UTC}\nmcp:git/git_status {_REPO}"
)
SECOND: Final = "\n".join(
    [f"mcp:git/git_status {_REPO}"] * 8 + [f"mcp:time/get_current_time {_UTC}"]
)
MEASURED: Final = f"mcp:git/git_status {_REPO} & mcp:time/get_current_time {_UTC}"


def run_demo(text: str | None, write: Callable[[str], None]) -> int:
    """Run the demonstration and return the exit status; 0 if everything ended well.

    `text` is sent as the first turn, in the form that the direct agent takes. `write` takes each
    line that is shown. Raises InterlockError with what to do where it cannot run, and
    KeyboardInterrupt after cleaning up.
    """
    screen = Screen(write)
    _check_extra()
    with temporary_folder("interlock-demo-") as folder:
        repository = make_repository(folder)
        screen.say("interlock demo: a supervisor, two real MCP servers, one that never answers,")
        screen.say("one that crashes in a loop, and an agent; all in a temporary home.")
        with TemporaryInterlock(_configuration(repository), folder) as interlock:
            with interlock.connect() as bus:
                well = _show(screen, interlock, bus, FIRST if text is None else text)
            screen.head("stopping everything in order")
        screen.say("  no process is left, the temporary home is removed")
        screen.say("")
        screen.say("Next: `interlock validate` and `interlock up` with servers of your own; the")
        screen.say("tutorial is docs/tutorial/first-steps.md, for a clone after")
        screen.say('`export PATH="$PWD/.venv/bin:$PATH"` in it.')
    return 0 if well else 1


def _show(screen: Screen, interlock: TemporaryInterlock, bus: Client, text: str) -> bool:
    ready = wait_ready(bus, {"mcp:git", "mcp:time", "agent:main"}, READY)
    for name, moment in sorted(ready.items(), key=lambda pair: pair[1]):
        screen.say(f"  {name} READY {moment - interlock.started_at:.1f} s after the start")
    screen.head("a turn with real tools")
    first = screen.turn(bus.turn(text, agent="main"))
    screen.head("a second turn; the git server is killed in the middle of it")
    killer = _Killer(screen, bus)
    second = screen.turn(bus.turn(SECOND, agent="main"), killer.on_item, brief=True)
    screen.head("the process table")
    screen.table(bus.status()["workers"])
    wait_ready(bus, {"mcp:git"}, READY)
    row = bus.status("mcp:git")["workers"][0]
    screen.say(f"  mcp:git is READY again (restarts: {row['restarts']})")
    screen.head("what the bad servers cost a turn")
    beside = _turn_times(bus)
    for name in ("mcp:mute", "mcp:crash"):
        bus.control("stop", name)
    alone = _turn_times(bus)
    for where, times in (("beside the bad servers:", beside), ("with them stopped:     ", alone)):
        median = statistics.median(times)
        screen.say(f"  {where} {median:.1f} ms (median of {ROUNDS} turns)")
    screen.say(f"  {cost(beside, alone)}")
    return all(turn["type"] == "turn.completed" for turn in (first, second))


def cost(beside: Sequence[float], alone: Sequence[float]) -> str:
    """Say what the bad servers cost, from the times of single turns in milliseconds.

    What is less than the turns of one kind differ among themselves says nothing about the servers,
    but that the machine is busy.

    >>> cost([9.0, 9.1, 9.2], [5.5, 5.6, 5.4])
    'the bad servers cost the turn 3.6 ms'
    >>> cost([5.4, 5.4, 5.4], [5.5, 5.5, 5.5])
    'the bad servers cost the turn nothing that can be measured'
    >>> cost([111.0, 140.0, 80.0], [81.0, 75.0, 120.0])
    'the bad servers cost the turn nothing that can be measured beside what else the machine does'
    """
    median = statistics.median(alone)
    more = statistics.median(beside) - median
    scatter = max(max(times) - min(times) for times in (beside, alone))
    nothing = "the bad servers cost the turn nothing that can be measured"
    if more < max(0.1, median * NOISE):
        return nothing
    if more < scatter:
        return f"{nothing} beside what else the machine does"
    return f"the bad servers cost the turn {more:.1f} ms"


class _Killer:
    """Kills the git server's process when the second of its calls begins."""

    def __init__(self, screen: Screen, bus: Client) -> None:
        self._screen = screen
        (row,) = bus.status("mcp:git")["workers"]
        own = procfs.children(row["pid"])
        self._targets = [child for child in procfs.descendants(row["pid"]) if child.pid in own]
        self._calls = 0

    def on_item(self, item: Mapping[str, Any]) -> None:
        """Count the calls; kill once."""
        if item["type"] != "tool.call":
            return
        self._calls += 1
        if self._calls != 2:
            return
        for child in self._targets:
            if procfs.kill(child, signal.SIGKILL):
                self._screen.say(f"  !! killed the git server, pid {child.pid}")


def _turn_times(bus: Client) -> list[float]:
    """Return the durations of the measured turns in milliseconds."""
    durations: list[float] = []
    for _ in range(WARM + ROUNDS):
        started = time.perf_counter()
        *_, last = bus.turn(MEASURED, agent="main")
        durations.append((time.perf_counter() - started) * 1000)
        if last["type"] != "turn.completed":
            raise InterlockError(f"A measured turn ended with {last['type']}.")
    return durations[WARM:]


def _configuration(repository: Path) -> str:
    python = [sys.executable, "-P"]
    return "\n".join(
        [
            server_table("git", [*python, "-m", "mcp_server_git"], cwd=str(repository)),
            server_table("time", [*python, "-m", "mcp_server_time"]),
            server_table("mute", [*python, str(SERVERS / "mute.py")]),
            server_table("crash", [*python, str(SERVERS / "crash.py")]),
            '[agents.main]\nmodel = "direct"\n',
        ]
    )


def _check_extra() -> None:
    for module in ("mcp_server_git", "mcp_server_time"):
        if importlib.util.find_spec(module) is None:
            raise InterlockError(
                "The demonstration needs two MCP servers that are not installed; "
                "run `pip install 'interlock[demo]'`.",
                code="extra_missing",
            )
