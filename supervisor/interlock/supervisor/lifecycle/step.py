"""The lifecycle of a worker as a pure function: an input in, commands out.

::

    STOPPED --start--> STARTING --hello--> INITIALIZING --ready--> READY <--state--> DEGRADED
       ^                  |  ^                  |                    |                  |
       |                  |  |   stop, restart, removal, hung, over a limit, said failure, too late
       |                  |  |                  |                    |                  |
       |                  v  |                  v                    v                  v
       +-----------------------------------  STOPPING (drain, SIGTERM, SIGKILL)
       |                     |                  |
       |       restart ------+                  | failure          exit of the process in any state
       |                     |                  v                    |
       +---stop--- BACKOFF --+ <----------- failure <----------------+
       +---stop--- FAILED ---+ (retried)

What holds in each state (process / the one timer):

- STOPPED: none / none. Nobody wants it to run.
- STARTING: asked / none, then alive / hello. That the spawner answers, or is replaced, is the
  launcher's affair alone.
- INITIALIZING: alive / init. It proved its token; the worker's own budget is shorter than the
  timer, which is for workers that cannot keep it.
- READY, DEGRADED: alive / none. Pings watch it from outside.
- STOPPING: asked / none, or alive / drain, term or kill. `after` says what follows. Left only when
  the process is known to be gone, so no worker ever has two processes.
- BACKOFF: none / backoff. FAILED: none / retry. `failure` says why.

A timer of another generation, or anything that a generation says after its end, changes nothing.
"""

from __future__ import annotations

from interlock.bus.events import (
    WorkerDegraded,
    WorkerInitializing,
    WorkerReady,
)
from interlock.bus.wording import spoken
from interlock.supervisor.lifecycle import inputs
from interlock.supervisor.lifecycle.commands import (
    CancelTimer,
    Command,
    Fence,
    Forget,
    Publish,
    SendConfigure,
)
from interlock.supervisor.lifecycle.states import (
    INIT_MARGIN,
    UP,
    After,
    Failure,
    Process,
    State,
    Timer,
    Worker,
)
from interlock.supervisor.lifecycle.transitions import (
    begin,
    end,
    enter,
    forgive,
    gone,
    kill_now,
    set_timer,
    spawner_lost,
    stopped,
    terminate,
)
from interlock.supervisor.lifecycle.wording import describe_exit


def step(worker: Worker, event: inputs.Input) -> list[Command]:
    """Apply one input and return what the caller must do, in order.

    >>> worker = Worker("mcp:git", "mcp")
    >>> step(worker, inputs.Start(now=0.0))[1:]
    [CancelTimer(), Spawn(generation=1)]
    >>> step(worker, inputs.Exited(now=1.0, generation=7))
    []
    """
    match event:
        case inputs.FromProcess():
            if event.generation != worker.generation or worker.process is Process.NONE:
                return []
            return _from_process(worker, event)
        case inputs.TimerFired():
            if (event.generation, event.timer) != (worker.generation, worker.timer):
                return []
            return _timer(worker, event)
        case inputs.SpawnerLost():
            return spawner_lost(worker, event)
        case _:
            return _wish(worker, event)


# --- wishes of people and of configuration ---


def _wish(worker: Worker, event: inputs.Input) -> list[Command]:
    match worker.state, event:
        case State.STOPPED, inputs.Stop():
            return []
        case State.STOPPED, inputs.Remove():
            return [Forget()]
        case ((State.BACKOFF | State.FAILED), inputs.Stop()):
            reason = event.reason or "stopped by hand"
            return [CancelTimer(), *stopped(worker, event.now, False, reason)]
        case ((State.BACKOFF | State.FAILED), inputs.Remove()):
            return [CancelTimer(), *stopped(worker, event.now, True)]
        case ((State.STOPPED | State.BACKOFF | State.FAILED), inputs.Start()):
            forgive(worker)
            return begin(worker, event.now, "")
        case ((State.STOPPED | State.BACKOFF | State.FAILED), inputs.Restart()):
            forgive(worker)
            worker.restarts += worker.generation > 0
            return begin(worker, event.now, event.reason)
        case State.STOPPING, (inputs.Start() | inputs.Restart()):
            # Whatever it was ending for, a new start joins: one new generation for all who ask.
            forgive(worker)
            worker.after = After.START
            if isinstance(event, inputs.Restart):
                worker.reason = event.reason or worker.reason
            return []
        case State.STOPPING, inputs.Stop():
            if event.configured:
                worker.reason = event.reason
            if event.configured or worker.after is not After.FORGET:
                worker.after = After.STAY
            worker.failure = None
            return []
        case State.STOPPING, inputs.Remove():
            worker.after = After.FORGET
            worker.failure = None
            return []
        case State.STARTING, inputs.Restart(changed=False):
            return []
        case _, inputs.Restart():
            forgive(worker)
            return end(worker, event.now, event.reason or "restarted by hand", After.START)
        case _, inputs.Stop():
            return end(worker, event.now, event.reason or "stopped by hand", After.STAY)
        case _, inputs.Remove():
            return end(worker, event.now, "removed from the configuration", After.FORGET)
        case _:  # start of what runs already
            return []


# --- what a process does and says ---


def _from_process(worker: Worker, event: inputs.FromProcess) -> list[Command]:
    match event:
        case inputs.Exited():
            how = describe_exit(event.exit_code, event.signal)
            return [Fence(worker.generation, how), *gone(worker, event, how)]
        case inputs.SpawnFailed() if worker.process is Process.ASKED:
            if worker.state is State.STARTING:
                worker.failure = Failure(event.code, event.message, permanent=event.permanent)
            return [Fence(worker.generation, event.message), *gone(worker, event, event.message)]
        case inputs.Spawned() if worker.process is Process.ASKED:
            return _spawned(worker, event)
        case inputs.Spawned():
            worker.pid = event.pid  # the spawner's word counts more than what a hello claims
            return []
        case inputs.HelloReceived() if worker.process is Process.ASKED:
            return [*_spawned(worker, event), *_from_process(worker, event)]
    match worker.state, event:
        case State.STARTING, inputs.HelloReceived():
            enter(worker, State.INITIALIZING, event.now, worker.reason)
            return [
                set_timer(worker, Timer.INIT, worker.init_budget + INIT_MARGIN),
                SendConfigure(worker.generation),
                _publish_initializing(worker),
            ]
        case State.INITIALIZING, inputs.ReadyReceived():
            worker.tools = max(worker.tools, event.tools)
            worker.ready_at = event.now
            worker.timer = None
            return [CancelTimer(), *_usable(worker, event.now)]
        case ((State.INITIALIZING | State.READY | State.DEGRADED), inputs.ToolsReceived()):
            worker.tools = event.tools
            return []
        case ((State.READY | State.DEGRADED), inputs.StateReceived()):
            return _reported(worker, event)
        case State.STOPPING, inputs.DrainedReceived() if worker.timer is Timer.DRAIN:
            return terminate(worker)
        case (
            (State.STARTING | State.INITIALIZING | State.READY | State.DEGRADED),
            (inputs.FailureReceived() | inputs.LimitExceeded() | inputs.Hung()),
        ):
            return _must_end(worker, event)
        case _:
            return []


def _spawned(worker: Worker, event: inputs.Spawned | inputs.HelloReceived) -> list[Command]:
    worker.process = Process.ALIVE
    worker.pid = event.pid
    if worker.state is State.STOPPING:  # it was wanted no more before it was there
        return terminate(worker)
    return [set_timer(worker, Timer.HELLO, worker.timing.hello)]


def _publish_initializing(worker: Worker) -> Command:
    return Publish(
        WorkerInitializing(name=worker.name, generation=worker.generation, pid=worker.pid)
    )


def _reported(worker: Worker, event: inputs.StateReceived) -> list[Command]:
    if not event.degraded:
        return _usable(worker, event.now) if worker.state is State.DEGRADED else []
    if worker.state is State.DEGRADED and worker.reason == event.reason:
        return []
    enter(worker, State.DEGRADED, event.now, event.reason)
    return [
        Publish(WorkerDegraded(name=worker.name, generation=worker.generation, reason=event.reason))
    ]


def _usable(worker: Worker, now: float) -> list[Command]:
    enter(worker, State.READY, now, "")
    return [
        Publish(
            WorkerReady(
                name=worker.name,
                generation=worker.generation,
                pid=worker.pid,
                tools=worker.tools,
            )
        )
    ]


def _must_end(worker: Worker, event: inputs.FromProcess) -> list[Command]:
    match event:
        case inputs.FailureReceived():
            failure = Failure(event.code, event.reason, event.fix, event.permanent)
        case inputs.LimitExceeded():
            failure = Failure("limit_exceeded", event.reason)
        case inputs.Hung():
            if worker.state not in UP:
                return []
            failure = Failure("hung", f"hung: {event.misses} pings in a row were not answered")
        case _:
            return []
    worker.failure = failure
    hung = failure.code == "hung"  # a hung loop reads neither messages nor its SIGTERM
    return end(worker, event.now, failure.reason, After.FAIL, kill=hung)


# --- time ---


def _timer(worker: Worker, event: inputs.TimerFired) -> list[Command]:
    match event.timer:
        case Timer.HELLO:
            worker.failure = Failure(
                "hello_timeout", f"said no hello within {spoken(worker.timing.hello)} s"
            )
            return end(worker, event.now, worker.failure.reason, After.FAIL, kill=True)
        case Timer.INIT:
            worker.failure = Failure(
                "init_timeout", f"was not ready within {spoken(worker.init_budget)} s"
            )
            return end(worker, event.now, worker.failure.reason, After.FAIL)
        case Timer.DRAIN:
            return terminate(worker)
        case Timer.TERM | Timer.KILL:
            return kill_now(worker)
        case Timer.BACKOFF:
            worker.restarts += 1
            return begin(worker, event.now, worker.reason)
        case Timer.RETRY:
            worker.restarts += 1
            worker.attempt = 0
            return begin(worker, event.now, worker.reason)
