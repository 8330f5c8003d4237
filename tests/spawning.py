"""A launcher for tests, with every callback as an event that can be waited for."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import select
from collections.abc import AsyncIterator, Awaitable, Callable, Container
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from interlock.bus.records import Boot
from interlock.supervisor.spawn.launcher import Launcher
from interlock.supervisor.spawn.request import SpawnRequest
from interlock.supervisor.spawn.sweep import Records

TESTS = Path(__file__).parent
ENTRY = "spawn_entry:main"
WARM = "spawn_warm:light"
PATIENCE = 15.0

Event = tuple[Any, ...]


class Bench:
    """One launcher, the events it gave so far, and the facts that its workers report."""

    def __init__(
        self,
        folder: Path,
        mode: str = "fork",
        warm: str = WARM,
        failing: Container[str] = (),
        **more: Any,
    ) -> None:
        self.folder = folder
        self._failing = failing
        self.events: list[Event] = []
        self.facts: dict[int, dict[str, Any]] = {}
        self._changed = asyncio.Event()
        self.records = Records(folder / "processes.json")
        self.launcher = Launcher(
            mode,  # type: ignore[arg-type]
            on_spawned=self._event("spawned"),
            on_failed=self._event("failed"),
            on_exited=self._event("exited"),
            on_died=self._event("died"),
            on_spawner_lost=self._event("lost"),
            on_notice=self._event("notice"),
            records=self.records,
            log=folder / "spawner.log",
            warm=warm,
            **more,
        )

    def request(
        self, name: str, order: dict[str, Any] | None = None, image: str = "base", **more: Any
    ) -> SpawnRequest:
        order = {"report": str(self.folder / "r"), **(order or {})}
        boot = Boot(
            name=name,
            kind="test",
            generation=more.pop("generation", 1),
            nonce="n",
            token="t",
            control=json.dumps(order),
            home=str(self.folder),
            log=str(self.folder / "worker.log"),
            image=image,
            nice=more.pop("nice", 0),
        )
        more.setdefault("entry", ENTRY)
        more.setdefault("keep_env", ("PYTHONPATH",))
        return SpawnRequest(boot=boot, **more)

    def spawn(self, name: str, order: dict[str, Any] | None = None, **more: Any) -> None:
        self.launcher.spawn(self.request(name, order, **more))

    async def until(self, *start: Any, patience: float = PATIENCE) -> Event:
        """Wait for the first event that begins so."""
        return (await self.until_count(1, *start, patience=patience))[0]

    async def until_count(self, count: int, *start: Any, patience: float = PATIENCE) -> list[Event]:
        async with asyncio.timeout(patience):
            while True:
                found = [event for event in self.events if event[: len(start)] == start]
                if len(found) >= count:
                    return found
                self._changed.clear()
                await self._changed.wait()

    async def until_text(self, kind: str, code: str, text: str) -> None:
        """Wait for an event of that kind and code whose last value contains the text."""
        count = 1
        while text not in (await self.until_count(count, kind, code))[count - 1][-1]:
            count += 1

    async def facts_of(self, name: str) -> dict[str, Any]:
        """Start facts of a worker, once it sent them."""
        pid = (await self.until("spawned", name))[3]
        async with asyncio.timeout(PATIENCE):
            while pid not in self.facts:
                self._changed.clear()
                await self._changed.wait()
        return self.facts[pid]

    async def listen(self) -> asyncio.AbstractServer:
        return await asyncio.start_unix_server(self._report, self.folder / "r", limit=1 << 20)

    async def _report(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        writer.close()
        found = json.loads(line)
        self.facts[found["pid"]] = found
        self._changed.set()

    def _event(self, kind: str) -> Callable[..., None]:
        def note(*values: Any) -> None:
            self.events.append((kind, *values))
            self._changed.set()
            if kind in self._failing:
                raise LookupError(f"{kind} went wrong")

        return note


@asynccontextmanager
async def running(folder: Path, mode: str = "fork", **more: Any) -> AsyncIterator[Bench]:
    bench = Bench(folder, mode, **more)
    async with await bench.listen():
        await bench.launcher.start()
        try:
            yield bench
        finally:
            await bench.launcher.close()
            bench.records.flush()


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run an asynchronous test; the process is no subreaper afterwards."""
    try:
        asyncio.run(test())  # type: ignore[arg-type]
    finally:
        ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)


class Watched:
    """Processes that are watched by pidfd, so that their pids cannot mislead."""

    def __init__(self, pids: list[int]) -> None:
        self._handles = {pid: os.pidfd_open(pid) for pid in pids}

    def left(self, seconds: float) -> list[int]:
        """Wait until all have ended; those that have not after `seconds`."""
        waiting = select.poll()
        for handle in self._handles.values():
            waiting.register(handle, select.POLLIN)
        by_handle = {handle: pid for pid, handle in self._handles.items()}
        loops = int(seconds / 0.05)
        while by_handle and loops:
            loops -= 1
            for handle, _ in waiting.poll(50):
                waiting.unregister(handle)
                del by_handle[handle]
        for handle in self._handles.values():
            os.close(handle)
        self._handles.clear()
        return list(by_handle.values())
