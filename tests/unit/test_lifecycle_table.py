"""Every situation of a worker meets every input; what is not in the table must change nothing."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import pytest

from interlock.bus.settings import Timing
from interlock.supervisor.lifecycle import inputs as i
from interlock.supervisor.lifecycle.commands import Publish, SetTimer, Signal
from interlock.supervisor.lifecycle.states import After, State, Timer, Worker
from interlock.supervisor.lifecycle.step import step

TIMING = Timing()
NOW = 100.0


def feed(worker: Worker, *events: i.Input) -> Worker:
    for event in events:
        step(worker, event)
    return worker


def _new() -> Worker:
    return Worker("mcp:git", "mcp", timing=TIMING, init_budget=60.0)


def _starting() -> Worker:
    return feed(_new(), i.Start(now=NOW))


def _alive() -> Worker:
    return feed(_starting(), i.Spawned(now=NOW, generation=1, pid=42))


def _initializing() -> Worker:
    return feed(_alive(), i.HelloReceived(now=NOW, generation=1, pid=42))


def _ready() -> Worker:
    return feed(_initializing(), i.ReadyReceived(now=NOW, generation=1, tools=12))


def _degraded() -> Worker:
    return feed(_ready(), i.StateReceived(now=NOW, generation=1, degraded=True, reason="circuit"))


def _fire(timer: Timer) -> i.TimerFired:
    return i.TimerFired(now=NOW, generation=1, timer=timer)


SITUATIONS: dict[str, Callable[[], Worker]] = {
    "stopped": _new,
    "starting, asked": _starting,
    "starting, alive": _alive,
    "initializing": _initializing,
    "ready": _ready,
    "degraded": _degraded,
    "stopping, asked": lambda: feed(_starting(), i.Stop(now=NOW)),
    "stopping, drain": lambda: feed(_ready(), i.Stop(now=NOW)),
    "stopping, term": lambda: feed(_initializing(), i.Stop(now=NOW)),
    "stopping, kill": lambda: feed(_initializing(), i.Stop(now=NOW), _fire(Timer.TERM)),
    "stopping to start": lambda: feed(_initializing(), i.Restart(now=NOW)),
    "stopping to fail": lambda: feed(_ready(), i.Hung(now=NOW, generation=1)),
    "stopping to forget": lambda: feed(_initializing(), i.Remove(now=NOW)),
    "backoff": lambda: feed(_ready(), i.Exited(now=NOW, generation=1, signal=9)),
    "failed": lambda: feed(
        _starting(),
        i.SpawnFailed(now=NOW, generation=1, code="c", message="no binary", permanent=True),
    ),
}

INPUTS: dict[str, i.Input] = {
    "start": i.Start(now=NOW),
    "stop": i.Stop(now=NOW),
    "restart": i.Restart(now=NOW),
    "restart changed": i.Restart(now=NOW, changed=True),
    "remove": i.Remove(now=NOW),
    "spawner lost": i.SpawnerLost(now=NOW),
    "spawned": i.Spawned(now=NOW, generation=1, pid=42),
    "spawn failed": i.SpawnFailed(now=NOW, generation=1, code="c", message="m"),
    "hello": i.HelloReceived(now=NOW, generation=1, pid=42),
    "ready": i.ReadyReceived(now=NOW, generation=1, tools=3),
    "tools": i.ToolsReceived(now=NOW, generation=1, tools=4),
    "state READY": i.StateReceived(now=NOW, generation=1, degraded=False),
    "state DEGRADED": i.StateReceived(now=NOW, generation=1, degraded=True, reason="down"),
    "said failure": i.FailureReceived(now=NOW, generation=1, code="c", reason="r"),
    "drained": i.DrainedReceived(now=NOW, generation=1),
    "hung": i.Hung(now=NOW, generation=1),
    "limit": i.LimitExceeded(now=NOW, generation=1, reason="memory"),
    "exited": i.Exited(now=NOW, generation=1, exit_code=0),
    **{f"timer {timer}": _fire(timer) for timer in Timer},
}

BEGIN = "worker.starting CancelTimer Spawn"
TERM = "worker.stopping SendStop Signal:TERM SetTimer:term"
KILL = "Signal:KILL SetTimer:kill"
DRAIN = "worker.stopping SendDrain SetTimer:drain"
LOST = "Fence worker.stopped " + BEGIN
BACKOFF = "Fence SetTimer:backoff worker.backoff"
STOPPED = "Fence CancelTimer worker.stopped"
AGAIN = "Fence CancelTimer worker.stopped " + BEGIN


def _stopping(name: str, *timers: str) -> dict[tuple[str, str], tuple[State, str]]:
    """What all kinds of STOPPING to the end have in common."""
    return {
        (name, "spawner lost"): (State.STOPPED, STOPPED),
        (name, "exited"): (State.STOPPED, STOPPED),
        **{(name, f"timer {timer}"): (State.STOPPING, KILL) for timer in timers},
    }


def _up(name: str, ladder: str) -> dict[tuple[str, str], tuple[State, str]]:
    """What all states with a worker that said hello have in common."""
    return {
        (name, "stop"): (State.STOPPING, ladder),
        (name, "restart"): (State.STOPPING, ladder),
        (name, "restart changed"): (State.STOPPING, ladder),
        (name, "remove"): (State.STOPPING, ladder),
        (name, "spawner lost"): (State.STARTING, LOST),
        (name, "said failure"): (State.STOPPING, TERM),
        (name, "limit"): (State.STOPPING, TERM),
        (name, "hung"): (State.STOPPING, "worker.stopping " + KILL),
        (name, "exited"): (State.BACKOFF, BACKOFF),
    }


SILENT_TERM = "worker.stopping Signal:TERM SetTimer:term"
TABLE: dict[tuple[str, str], tuple[State, str]] = {
    ("stopped", "start"): (State.STARTING, BEGIN),
    ("stopped", "restart"): (State.STARTING, BEGIN),
    ("stopped", "restart changed"): (State.STARTING, BEGIN),
    ("stopped", "remove"): (State.STOPPED, "Forget"),
    ("starting, asked", "stop"): (State.STOPPING, "worker.stopping"),
    ("starting, asked", "restart changed"): (State.STOPPING, "worker.stopping"),
    ("starting, asked", "remove"): (State.STOPPING, "worker.stopping"),
    ("starting, asked", "spawner lost"): (State.STARTING, LOST),
    ("starting, asked", "spawned"): (State.STARTING, "SetTimer:hello"),
    ("starting, asked", "hello"): (
        State.INITIALIZING,
        "SetTimer:hello SetTimer:init SendConfigure worker.initializing",
    ),
    ("starting, asked", "spawn failed"): (State.BACKOFF, BACKOFF),
    ("starting, asked", "exited"): (State.BACKOFF, BACKOFF),
    ("starting, asked", "said failure"): (State.STOPPING, "worker.stopping"),
    ("starting, asked", "limit"): (State.STOPPING, "worker.stopping"),
    ("starting, alive", "stop"): (State.STOPPING, SILENT_TERM),
    ("starting, alive", "restart changed"): (State.STOPPING, SILENT_TERM),
    ("starting, alive", "remove"): (State.STOPPING, SILENT_TERM),
    ("starting, alive", "spawner lost"): (State.STARTING, LOST),
    ("starting, alive", "hello"): (
        State.INITIALIZING,
        "SetTimer:init SendConfigure worker.initializing",
    ),
    ("starting, alive", "said failure"): (State.STOPPING, SILENT_TERM),
    ("starting, alive", "limit"): (State.STOPPING, SILENT_TERM),
    ("starting, alive", "exited"): (State.BACKOFF, BACKOFF),
    ("starting, alive", "timer hello"): (State.STOPPING, "worker.stopping " + KILL),
    **_up("initializing", TERM),
    ("initializing", "ready"): (State.READY, "CancelTimer worker.ready"),
    ("initializing", "tools"): (State.INITIALIZING, ""),
    ("ready", "tools"): (State.READY, ""),
    ("degraded", "tools"): (State.DEGRADED, ""),
    ("initializing", "timer init"): (State.STOPPING, TERM),
    **_up("ready", DRAIN),
    ("ready", "state DEGRADED"): (State.DEGRADED, "worker.degraded"),
    **_up("degraded", DRAIN),
    ("degraded", "state READY"): (State.READY, "worker.ready"),
    ("degraded", "state DEGRADED"): (State.DEGRADED, "worker.degraded"),
    **_stopping("stopping, asked"),
    ("stopping, asked", "spawned"): (State.STOPPING, "SendStop Signal:TERM SetTimer:term"),
    ("stopping, asked", "hello"): (State.STOPPING, "SendStop Signal:TERM SetTimer:term"),
    ("stopping, asked", "spawn failed"): (State.STOPPED, STOPPED),
    **_stopping("stopping, drain"),
    ("stopping, drain", "drained"): (State.STOPPING, "SendStop Signal:TERM SetTimer:term"),
    ("stopping, drain", "timer drain"): (State.STOPPING, "SendStop Signal:TERM SetTimer:term"),
    **_stopping("stopping, term", "term"),
    **_stopping("stopping, kill", "kill"),
    **_stopping("stopping to start", "term"),
    ("stopping to start", "spawner lost"): (State.STARTING, AGAIN),
    ("stopping to start", "exited"): (State.STARTING, AGAIN),
    **_stopping("stopping to fail", "kill"),
    ("stopping to fail", "spawner lost"): (State.BACKOFF, BACKOFF),
    ("stopping to fail", "exited"): (State.BACKOFF, BACKOFF),
    **_stopping("stopping to forget", "term"),
    ("stopping to forget", "spawner lost"): (State.STOPPED, STOPPED + " Forget"),
    ("stopping to forget", "exited"): (State.STOPPED, STOPPED + " Forget"),
    ("backoff", "start"): (State.STARTING, BEGIN),
    ("backoff", "restart"): (State.STARTING, BEGIN),
    ("backoff", "restart changed"): (State.STARTING, BEGIN),
    ("backoff", "stop"): (State.STOPPED, "CancelTimer worker.stopped"),
    ("backoff", "remove"): (State.STOPPED, "CancelTimer worker.stopped Forget"),
    ("backoff", "timer backoff"): (State.STARTING, BEGIN),
    ("failed", "start"): (State.STARTING, BEGIN),
    ("failed", "restart"): (State.STARTING, BEGIN),
    ("failed", "restart changed"): (State.STARTING, BEGIN),
    ("failed", "stop"): (State.STOPPED, "CancelTimer worker.stopped"),
    ("failed", "remove"): (State.STOPPED, "CancelTimer worker.stopped Forget"),
    ("failed", "timer retry"): (State.STARTING, BEGIN),
}

JOINS = {
    ("start", After.START),
    ("restart", After.START),
    ("restart changed", After.START),
    ("stop", After.STAY),
    ("remove", After.FORGET),
}
"""Wishes that meet a STOPPING worker change what follows, and command nothing."""


def brief(command: object) -> str:
    match command:
        case Publish(event):
            return str(event.__struct_config__.tag)
        case SetTimer(timer=timer):
            return f"SetTimer:{timer}"
        case Signal(kill=kill):
            return "Signal:KILL" if kill else "Signal:TERM"
        case _:
            return type(command).__name__


@pytest.mark.parametrize("happens", INPUTS)
@pytest.mark.parametrize("situation", SITUATIONS)
def test_every_pair(situation: str, happens: str) -> None:
    worker = SITUATIONS[situation]()
    before = deepcopy(worker)
    commands = step(worker, INPUTS[happens])
    if (situation, happens) in TABLE:
        state, expected = TABLE[situation, happens]
        assert (worker.state, " ".join(map(brief, commands))) == (state, expected)
        return
    assert commands == []
    if situation.startswith("stopping") and happens in {name for name, _ in JOINS}:
        joined = (happens, worker.after)
        assert joined in JOINS or (situation, happens) == ("stopping to forget", "stop")
    else:
        assert worker == before


@pytest.mark.parametrize("happens", [n for n, e in INPUTS.items() if isinstance(e, i.FromProcess)])
@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_stale_generation_changes_nothing(situation: str, happens: str) -> None:
    worker = SITUATIONS[situation]()
    worker.generation += 1
    before = deepcopy(worker)
    assert step(worker, INPUTS[happens]) == []
    assert worker == before
