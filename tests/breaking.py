"""What tests of faults share: a healthy part that works all the time, commands, sick servers.

with Busy(interlock) as busy:      # turns through agent:main to mcp:good, one after another
    ...break something else...
# all of them completed
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from command_line import Command
from supervised import DIRECT_AGENT, PATIENCE, Supervised, rogue_toml

from interlock.bus import procfs
from interlock.bus.aclient import AsyncClient
from interlock.bus.client import Client

GOOD = DIRECT_AGENT + rogue_toml("good")
STUBBORN = ("ignore_end", "grandchild", "grandchild_session")
"""A server that neither SIGTERM nor the end of its input ends, and that leaves processes behind."""


PART = 'mcp:good/echo {"n": 1}\nmcp:good/sleep {"seconds": 0.05}'
"""A turn of the healthy part; short, but no burden for the machine."""


class Busy:
    """A client that runs turns without a pause in the healthy part; at the end all were well."""

    def __init__(self, interlock: Supervised, text: str = PART) -> None:
        self.turns = 0
        self.bad: list[Any] = []
        self._interlock = interlock
        self._text = text
        self._enough = threading.Event()
        self._some = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.wait(1)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.wait(1)  # what went wrong at the very end shows, too
        self._enough.set()
        self._thread.join(PATIENCE)
        if kind is None:
            assert not self._thread.is_alive()
            assert self.bad == [] and self.turns > 1

    def wait(self, count: int) -> None:
        """Wait until that many more turns have ended."""
        while self._some.acquire(blocking=False):
            pass
        for _ in range(count):
            assert self._some.acquire(timeout=PATIENCE), self.bad

    def _run(self) -> None:
        try:
            with Client(self._interlock.home.path) as client:
                while not self._enough.is_set() and not self.bad:
                    items = list(client.turn(self._text))
                    results = [item for item in items if item["type"] == "tool.result"]
                    well = items[-1]["type"] == "turn.completed" and results
                    if not well or any(result["outcome"] != "ok" for result in results):
                        self.bad.append(items)
                    self.turns += 1
                    self._some.release()
        except Exception as error:  # noqa: BLE001 - whatever it is, the test shows it
            self.bad.append(repr(error))


MAX_HELD = 64
"""Calls that one `Held` can let go."""


class Held:
    """A call, `text` in a turn, that lasts until it is let go."""

    def __init__(self, folder: Path, server: str) -> None:
        path = folder / f"held-{os.urandom(8).hex()}"
        os.mkfifo(path)
        self._end = os.open(path, os.O_RDWR)  # for both: neither end waits for the other
        weakref.finalize(self, os.close, self._end)
        self.arguments = {"path": str(path)}
        self.capability = f"{server}/hold"
        self.text = f"{self.capability} {json.dumps(self.arguments)}"

    def let_go(self) -> None:
        """The call is answered now."""
        os.write(self._end, b"." * MAX_HELD)


class Watching:
    """A client that goes through one turn's stream in a thread."""

    def __init__(self, interlock: Supervised, turn: str, offset: int = 0) -> None:
        self.items: list[dict[str, Any]] = []
        self.error: BaseException | None = None
        self._changed = threading.Condition()
        arguments = (interlock.home.path, turn, offset)
        self._thread = threading.Thread(target=self._run, args=arguments, daemon=True)
        self._thread.start()

    def until(self, kind: str) -> dict[str, Any]:
        """Wait for the first item of that type."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._find(kind) or self.error, PATIENCE), (
                self.items
            )
            found = self._find(kind)
            assert found is not None, (self.items, self.error)
            return found

    def join(self) -> list[dict[str, Any]]:
        """Wait for the end of the stream and return all of it."""
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        return self.items

    def _find(self, kind: str) -> dict[str, Any] | None:
        return next((item for item in self.items if item["type"] == kind), None)

    def _run(self, home: Path, turn: str, offset: int) -> None:
        try:
            with Client(home) as client:
                for item in client.watch(turn, offset):
                    with self._changed:
                        self.items.append(item)
                        self._changed.notify_all()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            with self._changed:
                self.error = error
                self._changed.notify_all()


def popen(home: Path, *arguments: str, prefix: Sequence[str] = ()) -> Command:
    """Start `interlock` with that home, apart from all configuration of this user."""
    return Command(
        [
            *prefix,
            sys.executable,
            "-m",
            "interlock.supervisor.cli",
            "--home",
            str(home),
            *arguments,
        ],
        cwd=home.parent,
        env={**os.environ, "HOME": str(home.parent), "XDG_CONFIG_HOME": str(home.parent / "none")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(home: Path, *arguments: str, prefix: Sequence[str] = ()) -> tuple[int, str, str]:
    """Run an `interlock` command: its exit code, standard output and standard error."""
    with popen(home, *arguments, prefix=prefix) as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in out + err, err
    return process.returncode, out, err


def in_threads(*work: Any) -> None:
    """Run all at once, each in a thread of its own; raises what the first of them raised."""
    trouble: list[BaseException] = []

    def guarded(one: Any) -> None:
        try:
            one()
        except BaseException as error:  # noqa: BLE001 - raised again below
            trouble.append(error)

    threads = [threading.Thread(target=guarded, args=(one,), daemon=True) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * PATIENCE)
        assert not thread.is_alive()
    if trouble:
        raise trouble[0]


def restarts_together(
    interlock: Supervised, name: str, count: int, then: Callable[[], None] = lambda: None
) -> list[dict[str, Any]]:
    """Ask for that many restarts over one connection, so that none is late; their answers.

    `then` is called once all have come.
    """

    async def ask() -> list[dict[str, Any]]:
        async with AsyncClient.connect(interlock.home.path) as client, asyncio.TaskGroup() as group:
            asked = [group.create_task(client.control("restart", name)) for _ in range(count)]
            await group.create_task(client.status())  # it came after them, over the same connection
            then()
            return [await one for one in asked]

    return asyncio.run(ask())


def restarts_at_once(interlock: Supervised, name: str, count: int) -> list[dict[str, Any]]:
    """Ask for that many restarts while a call is under way, which ends once all have asked.

    So the old generation, which drains, is there until then. Returns their answers.
    """
    held = Held(interlock.config.parent, name)
    place = interlock.mark()

    def call_it() -> str:
        with Client(interlock.home.path) as client:
            return client.call(held.capability, held.arguments).outcome

    with ThreadPoolExecutor(1) as thread:
        call = thread.submit(call_it)
        interlock.wait_event("tool.started", name, place)
        rows = restarts_together(interlock, name, count, held.let_go)
        assert call.result(PATIENCE) == "ok"
    return rows


@contextlib.contextmanager
def innocent() -> Iterator[subprocess.Popen[bytes]]:
    """A process that nobody may touch; it must still run at the end."""
    command = [sys.executable, "-S", "-c", "import signal; signal.pause()"]
    with subprocess.Popen(command, start_new_session=True) as process:
        try:
            yield process
            assert process.poll() is None, "an innocent process was killed"
        finally:
            process.kill()


def spawner_of(interlock: Supervised) -> int:
    """Pid of the spawner, which is the base image."""
    return procfs.children(interlock.pid)[0]


def mcp_image_of(interlock: Supervised) -> int:
    """Pid of the warm image for MCP workers."""
    workers = {row["pid"] for row in interlock.client.status()["workers"]}
    return next(one for one in procfs.children(spawner_of(interlock)) if one not in workers)


def tree_of(interlock: Supervised) -> list[int]:
    """The supervisor and all processes below it."""
    return [interlock.pid, *(child.pid for child in procfs.descendants(interlock.pid))]


def topics(interlock: Supervised, name: str, after: int = 0) -> list[str]:
    """Topics of the worker events about that worker, in order."""
    return [
        event["topic"]
        for event in interlock.events[after:]
        if event.get("name") == name and event["topic"].startswith("worker.")
    ]


def ready(interlock: Supervised, *names: str) -> dict[str, dict[str, Any]]:
    """Wait until these workers are READY; their status rows."""
    return {name: interlock.wait_state(name, "READY") for name in names}


def reported(interlock: Supervised, turn: str) -> list[dict[str, Any]]:
    """The calls of a turn that are in the journal because their workers reported them."""
    return [call for call in interlock.client.turn_show(turn)["calls"] if call["generation"]]


def until_stored(interlock: Supervised, turn: str, calls: int) -> None:
    """Wait until the journal on the disk has that many calls of a turn."""
    end = time.monotonic() + PATIENCE
    # No event tells of this; one request after the other is as fast as it gets.
    while len(reported(interlock, turn)) < calls:
        assert time.monotonic() < end, interlock.client.turn_show(turn)


def lines(text: str) -> list[dict[str, Any]]:
    """JSON objects, one a line."""
    return [json.loads(line) for line in text.splitlines()]
