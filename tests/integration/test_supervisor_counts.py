"""What the supervisor counts is in its status."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from interlock.bus.client import Client
from interlock.bus.endpoints import Home, HomeLock
from interlock.bus.events import CatalogChanged
from interlock.supervisor.config.model import Loaded, Settings
from interlock.supervisor.runtime import Supervisor


def test_everything_that_was_lost_or_refused_is_in_the_status(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.prepare()

    def status() -> dict[str, Any]:
        with Client(home.path) as client:
            return dict(client.status()["supervisor"])

    async def story(lock: HomeLock) -> int:
        loaded = Loaded(settings=Settings())
        supervisor = Supervisor(home, lock, lambda previous: loaded, loaded)
        up = asyncio.Event()
        running = asyncio.ensure_future(supervisor.run(up.set))
        async with asyncio.timeout(60):
            await up.wait()
            supervisor.turns.bad_items += 1
            supervisor._journal.dropped_calls += 20
            supervisor.attention.dropped += 300
            many = tuple(f"mcp:x/{n}" for n in range(1_000))
            supervisor.sequencer.publish(CatalogChanged(name="mcp:x", added=many))
            found = await asyncio.to_thread(status)
            supervisor.stop()
            await running
        return int(found["dropped"])

    with HomeLock(home) as lock:
        assert asyncio.run(story(lock)) == 321
    lines = map(json.loads, (home.logs / "supervisor.log").read_text().splitlines())
    (line,) = (line for line in lines if line["event"] == "catalog.changed" and line["added"])
    assert (line["added"], line["removed"]) == (1_000, 0)  # their number, not all their names
