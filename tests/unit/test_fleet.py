"""What the fleet tells others about a worker whose process is going or gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from interlock.bus.endpoints import Home
from interlock.bus.events import AttentionChanged, Event
from interlock.bus.records import CallReport
from interlock.bus.settings import AgentSettings
from interlock.supervisor.attention import Attention, Row
from interlock.supervisor.config.model import AgentEntry, Settings
from interlock.supervisor.events.sequencer import Sequencer
from interlock.supervisor.fleet.fleet import TOOLS, Fleet
from interlock.supervisor.lifecycle import inputs

NAME = "agent:main"


class Silent:
    """Control plane and launcher that take everything and do nothing."""

    pid = None

    def __getattr__(self, name: str) -> Callable[..., bool]:
        return lambda *_: True


class Told:
    """A listener that keeps the ends that it was told of."""

    def __init__(self) -> None:
        self.ends: list[tuple[str, int, str]] = []

    def worker_changed(self, worker: str) -> None:
        """Nothing to do."""

    def worker_gone(self, worker: str, generation: int, reason: str) -> tuple[CallReport, ...]:
        self.ends.append((worker, generation, reason))
        return ()

    def worker_forgotten(self, worker: str) -> None:
        """Nothing to do."""


def story(path: Path, tell: Callable[[Fleet, Told, list[Event]], Awaitable[None]]) -> None:
    async def whole() -> None:
        sequencer, events, told, silent = Sequencer("e"), list[Event](), Told(), Silent()
        sequencer.listen(events.append)
        entry = AgentEntry(settings=AgentSettings())
        settings = Settings(agents={"main": entry})
        fleet = Fleet(Home(path), settings, sequencer, Attention(sequencer.publish))
        everything: Any = silent
        fleet.connect(everything, everything, told)
        fleet.add(NAME, entry)
        fleet.feed(NAME, inputs.Start(now=0.0))
        ready(fleet, 1)
        await tell(fleet, told, events)

    asyncio.run(whole())


def ready(fleet: Fleet, generation: int) -> None:
    fleet.spawned(NAME, generation, 42, 1)
    fleet.feed(NAME, inputs.HelloReceived(now=0.0, generation=generation, pid=42))
    fleet.feed(NAME, inputs.ReadyReceived(now=0.0, generation=generation))


def seen(fleet: Fleet) -> tuple[str, str]:
    view = fleet.view(NAME)
    assert view is not None
    return view.state, view.stopped_for


def test_a_dead_process_takes_nothing_more_before_its_end_is_settled(tmp_path: Path) -> None:
    async def tell(fleet: Fleet, told: Told, events: list[Event]) -> None:
        assert seen(fleet) == ("READY", "")
        fleet.died(NAME, 1)
        assert seen(fleet) == ("BACKOFF", "")
        assert fleet.members[NAME].worker.state == "READY"
        fleet.exited(NAME, 1, None, 9)
        fleet.feed(NAME, inputs.Start(now=1.0))
        ready(fleet, 2)
        assert seen(fleet) == ("READY", "")
        assert told.ends == [(NAME, 1, "its process died")]

    story(tmp_path, tell)


def test_what_is_stopped_to_start_again_comes_back(tmp_path: Path) -> None:
    async def tell(fleet: Fleet, told: Told, events: list[Event]) -> None:
        fleet.feed(NAME, inputs.Restart(now=1.0, reason="its configuration changed"))
        assert seen(fleet) == ("BACKOFF", "its configuration changed")
        fleet.died(NAME, 1)
        assert told.ends == [(NAME, 1, "its configuration changed")]

    story(tmp_path, tell)


@pytest.mark.parametrize(("code", "told_at_once"), [("init_timeout", True), ("exited", False)])
def test_what_was_waited_for_in_vain_needs_attention_at_its_first_failure(
    tmp_path: Path, code: str, told_at_once: bool
) -> None:
    async def tell(fleet: Fleet, told: Told, events: list[Event]) -> None:
        failure = inputs.FailureReceived(now=1.0, generation=1, code=code, reason="too late")
        fleet.feed(NAME, failure)
        fleet.exited(NAME, 1, 1, None)
        assert fleet.members[NAME].worker.state == "BACKOFF"
        rows = [event for event in events if isinstance(event, AttentionChanged)]
        assert [row.code for row in rows] == ([code] if told_at_once else [])

    story(tmp_path, tell)


def test_what_is_stopped_for_good_does_not(tmp_path: Path) -> None:
    async def tell(fleet: Fleet, told: Told, events: list[Event]) -> None:
        fleet.feed(NAME, inputs.Stop(now=1.0, reason="stopped by hand"))
        assert seen(fleet) == ("STOPPING", "stopped by hand")

    story(tmp_path, tell)


def test_what_hangs_is_not_stopped_in_order(tmp_path: Path) -> None:
    async def tell(fleet: Fleet, told: Told, events: list[Event]) -> None:
        fleet.feed(NAME, inputs.Hung(now=1.0, generation=1))
        assert seen(fleet) == ("BACKOFF", "")

    story(tmp_path, tell)


def test_what_a_process_said_of_itself_goes_with_it(tmp_path: Path) -> None:
    async def tell(fleet: Fleet, told: Told, events: list[Event]) -> None:
        attention = fleet._attention
        for code in ("log_disk_full", "memory_soft", TOOLS):
            attention.set(Row(name=NAME, code=code, message="m", fix="f"))
        attention.set(Row(name=NAME, code="wrong_type", message="m", fix="f", file="/f"))
        fleet.exited(NAME, 1, None, 9)
        assert {row.code for row in attention.rows()} == {TOOLS, "wrong_type"}
        fleet.feed(NAME, inputs.Stop(now=1.0))
        assert {row.code for row in attention.rows()} == {"wrong_type"}

    story(tmp_path, tell)


def test_the_spawner_knows_the_pid_better_than_a_hello(tmp_path: Path) -> None:
    async def tell(fleet: Fleet, told: Told, events: list[Event]) -> None:
        fleet.feed(NAME, inputs.Restart(now=1.0))
        fleet.exited(NAME, 1, None, 9)
        fleet.feed(NAME, inputs.HelloReceived(now=2.0, generation=2, pid=1))
        fleet.spawned(NAME, 2, 77, 1)
        assert fleet.pids() == {NAME: 77}

    story(tmp_path, tell)


def test_a_socket_file_that_cannot_be_removed_costs_no_worker_its_next_start(
    tmp_path: Path,
) -> None:
    async def tell(fleet: Fleet, told: Told, events: list[Event]) -> None:
        member = fleet.members[NAME]
        (tmp_path / "socket" / "taken").mkdir(parents=True)
        member.endpoint = f"ipc://{tmp_path / 'socket'}"
        fleet.exited(NAME, 1, None, 9)
        assert member.worker.state == "BACKOFF" and member.timer is not None
        fleet.feed(NAME, inputs.Start(now=1.0))
        ready(fleet, 2)
        assert seen(fleet) == ("READY", "")

    story(tmp_path, tell)


def test_a_step_that_fails_is_reported_and_holds_up_no_other(tmp_path: Path) -> None:
    async def tell(fleet: Fleet, told: Told, events: list[Event]) -> None:
        trouble: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: trouble.append(context["exception"]))
        error = UnicodeEncodeError("utf-8", "\udcff", 0, 1, "no text")

        def broken(*_: object) -> bool:
            raise error

        everything: Any = Silent()
        everything.forget = everything.send = broken
        fleet.connect(everything, everything, told)
        member = fleet.members[NAME]
        fleet.exited(NAME, 1, None, 9)
        assert member.worker.state == "BACKOFF" and member.timer is not None
        assert told.ends and events[-1].__struct_config__.tag == "worker.backoff"
        fleet.feed(NAME, inputs.Start(now=1.0))
        fleet.feed(NAME, inputs.HelloReceived(now=1.0, generation=2, pid=43))
        assert member.worker.state == "INITIALIZING" and member.timer is not None
        assert trouble == [error, error]

    story(tmp_path, tell)
