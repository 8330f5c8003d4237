"""The moves between states: each changes the record and returns the commands of the move.

The diagram, and what holds in each state, stand in `step`.
"""

from __future__ import annotations

from interlock.bus.events import (
    WorkerBackoff,
    WorkerFailedEvent,
    WorkerStarting,
    WorkerStopped,
    WorkerStopping,
)
from interlock.supervisor.lifecycle import inputs
from interlock.supervisor.lifecycle.commands import (
    CancelTimer,
    Command,
    Fence,
    Forget,
    Publish,
    SendDrain,
    SendStop,
    SetTimer,
    Signal,
    Spawn,
)
from interlock.supervisor.lifecycle.restart import backoff_delay, recent, too_many
from interlock.supervisor.lifecycle.states import (
    UP,
    USABLE,
    After,
    Failure,
    Process,
    State,
    Timer,
    Worker,
)


def begin(worker: Worker, now: float, reason: str) -> list[Command]:
    """Enter STARTING with a new generation."""
    worker.generation += 1
    worker.process = Process.ASKED
    worker.pid = 0
    worker.ready_at = None
    worker.failure = None
    worker.after = After.STAY
    worker.timer = None
    enter(worker, State.STARTING, now, reason)
    return [
        Publish(WorkerStarting(name=worker.name, generation=worker.generation)),
        CancelTimer(),
        Spawn(worker.generation),
    ]


def end(
    worker: Worker, now: float, reason: str, after: After, *, kill: bool = False
) -> list[Command]:
    """Enter STOPPING at the rung of the ladder that fits what the worker can still do."""
    drains = worker.state in USABLE and after is not After.FAIL
    talks = worker.state in UP
    enter(worker, State.STOPPING, now, reason)
    worker.after = after
    begun = Publish(WorkerStopping(name=worker.name, generation=worker.generation, reason=reason))
    if worker.process is Process.ASKED:  # the spawner owes an answer, and one comes always
        return [begun]
    if kill:
        return [begun, *kill_now(worker)]
    if drains:
        seconds = worker.timing.drain
        return [
            begun,
            SendDrain(worker.generation, seconds),
            set_timer(worker, Timer.DRAIN, seconds),
        ]
    return [begun, *terminate(worker, talks=talks)]


def terminate(worker: Worker, *, talks: bool = True) -> list[Command]:
    """Ask for the end: by message if the worker `talks`, and by SIGTERM."""
    said: list[Command] = [SendStop(worker.generation)] if talks else []
    return [*said, Signal(worker.generation), set_timer(worker, Timer.TERM, worker.timing.term)]


def kill_now(worker: Worker) -> list[Command]:
    """End it by force; repeated until the process is known to be gone."""
    return [
        Signal(worker.generation, kill=True),
        set_timer(worker, Timer.KILL, worker.timing.kill),
    ]


def gone(worker: Worker, event: inputs.Exited | inputs.SpawnFailed, how: str) -> list[Command]:
    """The process is gone, or there never was one: settle what follows."""
    expected = worker.state is State.STOPPING
    _no_process(worker)
    if expected and worker.after is not After.FAIL:
        return [CancelTimer(), *_settle(worker, event.now)]
    exit_code = event.exit_code if isinstance(event, inputs.Exited) else None
    signal = event.signal if isinstance(event, inputs.Exited) else None
    failure = worker.failure or Failure("exited", how)
    return _fail(worker, event, failure, exit_code, signal)


def _no_process(worker: Worker) -> None:
    worker.process = Process.NONE
    worker.pid = 0
    worker.tools = 0
    worker.timer = None


def _settle(worker: Worker, now: float) -> list[Command]:
    if worker.after is not After.START:
        return stopped(worker, now, worker.after is After.FORGET)
    worker.restarts += 1
    return [_publish_stopped(worker), *begin(worker, now, worker.reason)]


def stopped(worker: Worker, now: float, forget: bool, reason: str = "") -> list[Command]:
    """Enter STOPPED, for `reason` unless it was stopping for another; `forget`: and drop it."""
    worker.timer = None
    worker.failure = None
    worker.after = After.STAY
    enter(worker, State.STOPPED, now, worker.reason if worker.state is State.STOPPING else reason)
    published = _publish_stopped(worker)
    return [published, Forget()] if forget else [published]


def _fail(
    worker: Worker,
    event: inputs.Exited | inputs.SpawnFailed | inputs.SpawnerLost,
    failure: Failure,
    exit_code: int | None,
    signal: int | None,
) -> list[Command]:
    now, timing = event.now, worker.timing
    worker.failure = failure
    if worker.ready_at is not None and now - worker.ready_at >= timing.backoff_reset:
        worker.attempt = 0
    worker.attempt += 1
    worker.failures = recent(worker.failures, now, timing)
    if not isinstance(event, inputs.SpawnFailed):  # that is the machine's fault: it is tried again
        worker.failures = (*worker.failures, now)
    reason = failure.reason
    if failure.permanent or too_many(worker.failures, timing):
        if not failure.permanent:
            reason = f"{reason} ({len(worker.failures)} failures in {timing.failure_window:g} s)"
        enter(worker, State.FAILED, now, reason)
        failed = WorkerFailedEvent(
            name=worker.name,
            generation=worker.generation,
            reason=reason,
            exit_code=exit_code,
            signal=signal,
        )
        return [set_timer(worker, Timer.RETRY, timing.failed_retry), Publish(failed)]
    delay = backoff_delay(worker.attempt, timing, event.jitter)
    enter(worker, State.BACKOFF, now, reason)
    backoff = WorkerBackoff(
        name=worker.name,
        generation=worker.generation,
        attempt=worker.attempt,
        delay=delay,
        reason=reason,
        exit_code=exit_code,
        signal=signal,
    )
    return [set_timer(worker, Timer.BACKOFF, delay), Publish(backoff)]


def spawner_lost(worker: Worker, event: inputs.SpawnerLost) -> list[Command]:
    """Its process is gone through no fault of its own."""
    if worker.process is Process.NONE:
        return []
    fence = Fence(worker.generation, event.reason)
    stopping = worker.state is State.STOPPING
    after = worker.after
    _no_process(worker)
    if stopping and after is After.FAIL:
        failure = worker.failure or Failure("exited", event.reason)
        return [fence, *_fail(worker, event, failure, None, None)]
    if stopping:
        return [fence, CancelTimer(), *_settle(worker, event.now)]
    worker.restarts += 1
    return [fence, _publish_stopped(worker), *begin(worker, event.now, event.reason)]


def enter(worker: Worker, state: State, now: float, reason: str) -> None:
    """Change the state; the only place that does."""
    if worker.state is not state:
        worker.since = now
    worker.state = state
    worker.reason = reason


def set_timer(worker: Worker, timer: Timer, delay: float) -> Command:
    """Let the worker wait for `timer`, and for nothing else."""
    worker.timer = timer
    return SetTimer(worker.generation, timer, delay)


def forgive(worker: Worker) -> None:
    """Give the worker a fresh budget of failures, as a start by hand does."""
    worker.failures = ()
    worker.attempt = 0
    worker.failure = None


def _publish_stopped(worker: Worker) -> Command:
    return Publish(WorkerStopped(name=worker.name, generation=worker.generation))
