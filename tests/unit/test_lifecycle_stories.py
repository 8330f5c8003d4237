"""Whole stories of one worker, with the exact times and reasons."""

from __future__ import annotations

from interlock.bus.events import WorkerBackoff, WorkerFailedEvent
from interlock.bus.settings import Timing
from interlock.supervisor.lifecycle import inputs as i
from interlock.supervisor.lifecycle.commands import Command, Publish, SetTimer
from interlock.supervisor.lifecycle.states import State, Timer, Worker
from interlock.supervisor.lifecycle.step import step


def up(worker: Worker, now: float) -> None:
    generation = worker.generation
    step(worker, i.Spawned(now=now, generation=generation, pid=7))
    step(worker, i.HelloReceived(now=now, generation=generation, pid=42))
    step(worker, i.ReadyReceived(now=now, generation=generation))
    assert worker.state is State.READY


def crash(worker: Worker, now: float, **how: float) -> list[Command]:
    return step(worker, i.Exited(now=now, generation=worker.generation, signal=9, **how))


def timer(worker: Worker, now: float) -> list[Command]:
    assert worker.timer is not None
    return step(worker, i.TimerFired(now=now, generation=worker.generation, timer=worker.timer))


def delay_of(commands: list[Command]) -> float:
    return next(command.delay for command in commands if isinstance(command, SetTimer))


def test_a_crash_loop_doubles_its_delay_then_fails_then_is_retried() -> None:
    worker = Worker("mcp:git", "mcp", timing=Timing())
    step(worker, i.Start(now=0.0))
    now, delays = 0.0, []
    while worker.state is not State.FAILED:
        up(worker, now)
        now += 0.1
        commands = crash(worker, now)
        delays.append(delay_of(commands))
        if worker.state is State.BACKOFF:
            now += delays[-1]
            timer(worker, now)
    assert delays == [0.25, 0.5, 1.0, 2.0, 4.0, 300.0]
    assert worker.reason == "killed by SIGKILL (6 failures in 60 s)"
    published = [c.event for c in commands if isinstance(c, Publish)]
    assert published == [
        WorkerFailedEvent(name="mcp:git", generation=6, reason=worker.reason, signal=9)
    ]
    timer(worker, now + 300.0)
    assert (worker.state, worker.generation, worker.restarts) == (State.STARTING, 7, 6)
    up(worker, now + 300.0)
    assert delay_of(crash(worker, now + 300.1)) == 0.25


def test_a_lack_of_processes_never_makes_a_worker_give_up() -> None:
    """It is not the worker's fault, and ends as soon as whoever forks so much is gone."""
    worker = Worker("mcp:git", "mcp", timing=Timing())
    step(worker, i.Start(now=0.0))
    now, delays = 0.0, []
    for _ in range(20):
        lack = i.SpawnFailed(
            now=now, generation=worker.generation, code="fork_failed", message="no process"
        )
        delays.append(delay_of(step(worker, lack)))
        assert (worker.state, worker.reason) == (State.BACKOFF, "no process")
        now += delays[-1]
        timer(worker, now)
    assert max(delays) == 30.0
    up(worker, now)
    assert delay_of(crash(worker, now + 31.0)) == 0.25


def test_ready_for_long_enough_forgets_earlier_failures() -> None:
    worker = Worker("mcp:git", "mcp", timing=Timing())
    step(worker, i.Start(now=0.0))
    up(worker, 0.0)
    crash(worker, 1.0)
    timer(worker, 1.25)
    up(worker, 1.25)
    crash(worker, 31.3)
    assert worker.attempt == 1


def test_jitter_spreads_the_delay() -> None:
    worker = Worker("mcp:git", "mcp", timing=Timing())
    step(worker, i.Start(now=0.0))
    up(worker, 0.0)
    commands = crash(worker, 1.0, jitter=1.2)
    assert delay_of(commands) == 0.3
    assert [c.event for c in commands if isinstance(c, Publish)] == [
        WorkerBackoff(
            name="mcp:git",
            generation=1,
            attempt=1,
            delay=0.3,
            reason="killed by SIGKILL",
            signal=9,
        )
    ]


def test_what_the_worker_said_is_the_reason_of_its_failure() -> None:
    worker = Worker("mcp:git", "mcp", timing=Timing())
    step(worker, i.Start(now=0.0))
    step(worker, i.Spawned(now=0.0, generation=1, pid=7))
    step(worker, i.HelloReceived(now=0.0, generation=1, pid=42))
    step(
        worker,
        i.FailureReceived(
            now=0.1,
            generation=1,
            code="command_not_found",
            reason="command not found: mcp-server-git",
            fix="pipx install mcp-server-git",
            permanent=True,
        ),
    )
    step(worker, i.Exited(now=0.2, generation=1, exit_code=1))
    assert worker.state is State.FAILED
    assert worker.reason == "command not found: mcp-server-git"
    assert worker.failure is not None and worker.failure.fix == "pipx install mcp-server-git"


def test_two_restarts_at_once_make_one_new_generation() -> None:
    worker = Worker("mcp:git", "mcp", timing=Timing())
    step(worker, i.Start(now=0.0))
    up(worker, 0.0)
    step(worker, i.Restart(now=1.0, reason="restarted by hand"))
    step(worker, i.Restart(now=1.0, reason="restarted by hand"))
    step(worker, i.DrainedReceived(now=1.1, generation=1))
    step(worker, i.Exited(now=1.2, generation=1, exit_code=0))
    step(worker, i.Restart(now=1.2))
    assert (worker.state, worker.generation) == (State.STARTING, 2)
    assert worker.reason == "restarted by hand"


def test_a_failed_worker_starts_by_hand_with_a_fresh_budget() -> None:
    worker = Worker("mcp:git", "mcp", timing=Timing(failures=1))
    step(worker, i.Start(now=0.0))
    for at in (0.1, 0.2):
        up(worker, at)
        crash(worker, at)
        if worker.timer is Timer.BACKOFF:
            timer(worker, at)
    assert worker.state is State.FAILED
    step(worker, i.Start(now=1.0))
    up(worker, 1.0)
    crash(worker, 1.1)
    assert (worker.state, worker.attempt) == (State.BACKOFF, 1)
