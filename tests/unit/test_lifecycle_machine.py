"""A simulated spawner, clock and process drive the lifecycle at random; rules always hold."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from interlock.bus.settings import Timing
from interlock.supervisor.lifecycle import commands as c
from interlock.supervisor.lifecycle import inputs as i
from interlock.supervisor.lifecycle.states import UP, Process, State, Timer, Worker
from interlock.supervisor.lifecycle.step import step

WAITS: dict[State, set[Timer | None]] = {
    State.STOPPED: {None},
    State.STARTING: {None, Timer.HELLO},
    State.INITIALIZING: {Timer.INIT},
    State.READY: {None},
    State.DEGRADED: {None},
    State.STOPPING: {None, Timer.DRAIN, Timer.TERM, Timer.KILL},
    State.BACKOFF: {Timer.BACKOFF},
    State.FAILED: {Timer.RETRY},
}


class Lifecycle(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.worker = Worker("mcp:x", "mcp", timing=Timing())
        self.now = 0.0
        self.asked: int | None = None
        self.alive: int | None = None
        self.timer: tuple[int, Timer, float] | None = None
        self.starts: list[float] = []
        self.by_hand = 0
        self.killed = False

    def feed(self, event: i.Input) -> None:
        for command in step(self.worker, event):
            match command:
                case c.Spawn(generation):
                    assert self.asked is None and self.alive is None, "a second process"
                    self.asked = generation
                    self.starts.append(self.now)
                    self.killed = False
                case c.SetTimer(generation, timer, delay):
                    assert generation == self.worker.generation
                    self.timer = (generation, timer, self.now + delay)
                case c.CancelTimer():
                    self.timer = None
                case c.Signal(generation, kill=True):
                    self.killed = self.killed or generation == self.alive
                case c.Signal(generation) | c.SendStop(generation) | c.SendDrain(generation):
                    assert generation == self.alive
                case _:
                    pass

    @rule(seconds=st.floats(0.001, 40))
    def pass_time(self, seconds: float) -> None:
        """Time passes; a due timer fires on the way."""
        until = self.now + seconds
        while self.timer is not None and self.timer[2] <= until:
            generation, timer, at = self.timer
            self.timer, self.now = None, at
            self.feed(i.TimerFired(now=at, generation=generation, timer=timer))
            self.die_if_killed()
        self.now = until

    def die_if_killed(self) -> None:
        if self.killed and self.alive is not None:
            self.exits(9)

    @rule(which=st.sampled_from([i.Start, i.Stop, i.Restart]))
    def wish(self, which: type[i.Start | i.Stop | i.Restart]) -> None:
        if which is not i.Stop:
            self.by_hand += 1
        self.feed(which(now=self.now))

    @rule()
    def configuration_changed(self) -> None:
        self.by_hand += 1
        self.feed(i.Restart(now=self.now, changed=True))

    @precondition(lambda self: self.asked is not None)
    @rule(works=st.booleans(), permanent=st.booleans())
    def spawner_answers(self, works: bool, permanent: bool) -> None:
        generation, self.asked = self.asked, None
        assert generation is not None
        if works:
            self.alive = generation
            self.feed(i.Spawned(now=self.now, generation=generation, pid=generation + 1))
        else:
            self.feed(
                i.SpawnFailed(
                    now=self.now, generation=generation, code="c", message="m", permanent=permanent
                )
            )

    @precondition(lambda self: self.alive is not None)
    @rule(jitter=st.floats(0.8, 1.2))
    def crash(self, jitter: float) -> None:
        self.exits(11, jitter)

    def exits(self, signal: int, jitter: float = 1.0) -> None:
        generation, self.alive = self.alive, None
        assert generation is not None
        self.feed(i.Exited(now=self.now, generation=generation, signal=signal, jitter=jitter))

    @precondition(lambda self: self.alive is not None)
    @rule(
        says=st.sampled_from(["hello", "ready", "degraded", "fine", "failure", "drained"]),
        stale=st.booleans(),
    )
    def worker_says(self, says: str, stale: bool) -> None:
        at, generation = self.now, (self.alive or 0) - stale
        events = {
            "hello": i.HelloReceived(now=at, generation=generation, pid=42),
            "ready": i.ReadyReceived(now=at, generation=generation),
            "degraded": i.StateReceived(now=at, generation=generation, degraded=True, reason="r"),
            "fine": i.StateReceived(now=at, generation=generation, degraded=False),
            "failure": i.FailureReceived(now=at, generation=generation, code="c", reason="r"),
            "drained": i.DrainedReceived(now=at, generation=generation),
        }
        self.feed(events[says])

    @precondition(lambda self: self.alive is not None)
    @rule(limit=st.booleans())
    def found_bad(self, limit: bool) -> None:
        generation = self.alive or 0
        if limit:
            self.feed(i.LimitExceeded(now=self.now, generation=generation, reason="memory"))
        else:
            self.feed(i.Hung(now=self.now, generation=generation))
        self.die_if_killed()

    @rule()
    def spawner_dies(self) -> None:
        self.asked = self.alive = None
        self.by_hand += 1
        self.feed(i.SpawnerLost(now=self.now))

    @rule()
    def stop_ends_stopped(self) -> None:
        """Whatever the state: a stop, and time, lead to STOPPED."""
        self.feed(i.Stop(now=self.now))
        for _ in range(6):
            if self.worker.state is State.STOPPED:
                break
            if self.asked is not None:
                self.spawner_answers(True, False)
            self.pass_time(10.0)
        assert self.worker.state is State.STOPPED
        assert self.alive is None

    @invariant()
    def process_is_what_is_recorded(self) -> None:
        expected = (
            Process.ASKED
            if self.asked is not None
            else Process.ALIVE
            if self.alive is not None
            else Process.NONE
        )
        assert self.worker.process is expected
        if self.worker.state in UP:
            assert self.worker.process is Process.ALIVE
        if self.worker.state in {State.STOPPED, State.BACKOFF, State.FAILED}:
            assert self.worker.process is Process.NONE

    @invariant()
    def it_waits_for_exactly_what_its_state_waits_for(self) -> None:
        running = None if self.timer is None else self.timer[1]
        assert self.worker.timer is running
        assert running in WAITS[self.worker.state]

    @invariant()
    def failures_are_explained(self) -> None:
        if self.worker.state in {State.BACKOFF, State.FAILED}:
            assert self.worker.failure is not None and self.worker.reason

    @invariant()
    def restarts_in_a_window_are_bounded(self) -> None:
        timing = self.worker.timing
        lately = [at for at in self.starts if self.now - at < timing.failure_window]
        assert len(lately) <= (timing.failures + 2) * (self.by_hand + 1)


Lifecycle.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
test_lifecycle = Lifecycle.TestCase
