"""What a new reading of the configuration does to the fleet."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from interlock.bus.endpoints import Home
from interlock.bus.errors import InterlockError
from interlock.bus.settings import CliToolSettings, SupervisorSettings
from interlock.supervisor.attention import Attention
from interlock.supervisor.config.model import CliEntry, Loaded, Settings
from interlock.supervisor.events.sequencer import Sequencer
from interlock.supervisor.fleet.fleet import DISABLED, Fleet
from interlock.supervisor.lifecycle import inputs
from interlock.supervisor.reload import Configuration

NAME = "cli:nap"


class Silent:
    """Parts that take everything and do nothing."""

    def __getattr__(self, name: str) -> Callable[..., bool]:
        return lambda *_: True


class Rig:
    """A fleet, its configuration, and what the next reading finds."""

    def __init__(self, path: Path) -> None:
        self.sequencer = Sequencer("e")
        self.attention = Attention(self.sequencer.publish)
        self.fleet = Fleet(Home(path), tools(), self.sequencer, self.attention)
        self.parts: Any = Silent()
        self.fleet.connect(self.parts, self.parts, self.parts)
        self.next = tools()
        self.sources: Any = Silent()
        self.configuration = Configuration(
            self.read,
            Loaded(settings=tools()),
            self.fleet,
            self.attention,
            self.sequencer,
            self.sources,
        )

    def read(self, previous: Loaded | None) -> Loaded:
        return Loaded(settings=self.next)

    async def change(self, settings: Settings) -> None:
        self.next = settings
        await self.configuration.reload()

    def state(self, name: str = NAME) -> str:
        return self.fleet.members[name].worker.state


def tools(spawn: str = "fork", **enabled: bool) -> Settings:
    return Settings(
        supervisor=SupervisorSettings(spawn="exec" if spawn == "exec" else "fork"),
        cli_tools={
            name: CliEntry(settings=CliToolSettings(command=name, enabled=on), folder="/")
            for name, on in enabled.items()
        },
    )


def story(path: Path, tell: Callable[[Rig], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(10):
            await tell(Rig(path))

    asyncio.run(whole())


def test_an_entry_that_comes_back_disabled_keeps_its_worker_in_the_status(tmp_path: Path) -> None:
    async def tell(rig: Rig) -> None:
        await rig.change(tools(nap=True))
        rig.fleet.spawned(NAME, 1, 42, 1)
        await rig.change(tools())
        assert rig.state() == "STOPPING"
        await rig.change(tools(nap=False))
        rig.fleet.exited(NAME, 1, 0, None)
        assert rig.state() == "STOPPED"
        assert rig.fleet.members[NAME].worker.reason == DISABLED

    story(tmp_path, tell)


def test_a_stop_by_hand_does_not_keep_what_was_removed(tmp_path: Path) -> None:
    async def tell(rig: Rig) -> None:
        await rig.change(tools(nap=True))
        rig.fleet.spawned(NAME, 1, 42, 1)
        await rig.change(tools())
        rig.fleet.feed(NAME, inputs.Stop(now=0.0, reason="stopped by hand"))
        rig.fleet.exited(NAME, 1, 0, None)
        assert NAME not in rig.fleet.members

    story(tmp_path, tell)


def test_the_row_about_a_needed_restart_goes_when_the_old_value_comes_back(tmp_path: Path) -> None:
    async def tell(rig: Rig) -> None:
        await rig.change(tools("exec"))
        assert rig.attention.has("supervisor", "needs_restart")
        await rig.change(tools("exec", nap=True))
        assert rig.attention.has("supervisor", "needs_restart")
        await rig.change(tools("fork", nap=True))
        assert not rig.attention.has("supervisor", "needs_restart")

    story(tmp_path, tell)


def test_a_reading_that_is_under_way_at_the_end_starts_nothing(tmp_path: Path) -> None:
    async def tell(rig: Rig) -> None:
        reading, go_on = threading.Event(), threading.Event()

        def read(previous: Loaded | None) -> Loaded:
            reading.set()
            go_on.wait(10)
            return Loaded(settings=tools(nap=True))

        rig.configuration._loader = read
        under_way = asyncio.ensure_future(rig.configuration.reload())
        assert await asyncio.to_thread(reading.wait, 10)
        rig.configuration.close()
        go_on.set()
        with pytest.raises(InterlockError) as caught:
            await under_way
        assert caught.value.code == "stopping"
        assert rig.fleet.members == {}

    story(tmp_path, tell)


def test_one_worker_that_cannot_be_told_keeps_no_other_from_its_change(tmp_path: Path) -> None:
    async def tell(rig: Rig) -> None:
        trouble: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: trouble.append(context["exception"]))
        error = UnicodeEncodeError("utf-8", "\udcff", 0, 1, "no text")

        def broken(*_: object) -> None:
            raise error

        rig.sources.settings_changed = broken
        await rig.change(tools(nap=True, zap=True))
        assert (rig.state(), rig.state("cli:zap")) == ("STARTING", "STARTING")
        rig.parts.spawn = broken
        await rig.change(tools(a=True, b=True))
        assert (rig.state("cli:a"), rig.state("cli:b")) == ("STARTING", "STARTING")
        assert rig.state() == "STOPPING"
        assert trouble == [error] * 4

    story(tmp_path, tell)
