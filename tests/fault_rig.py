"""Faulty servers beside a healthy part that works all the time and must not notice.

    with FaultRig(folder) as rig, rig.faulty(rogue_toml("x", "mute_init")) as interlock:
        interlock.wait_event("worker.backoff", "mcp:x")

While a block runs, another thread sends turns to a healthy server through a healthy agent. At its
end the faulty servers leave the configuration, and then everything must be as it was before: the
processes, the descriptors of the supervisor and of the healthy workers, and the socket files.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from supervised import DIRECT_AGENT, PATIENCE, Supervised, rogue_toml, timing

from interlock.bus import procfs
from interlock.bus.client import Client
from interlock.bus.messages import ZERO_COPY
from interlock.bus.records import Child

HEALTHY = ("agent:main", "mcp:healthy", "core:basics")
LONGEST_TURN = 5.0
"""Seconds that no turn of the healthy part may reach, on a busy machine."""
BETWEEN_TURNS = 0.05
LOOK_AGAIN = 0.02
SLOWEST_END = 15.0
"""Seconds within which faulty servers that are configured no more must be gone."""
LARGE_TURN = f'mcp:healthy/echo {{"text": "{"x" * 2 * ZERO_COPY}"}}'
BUSY_FOLDER = Path(__file__).parent / "busy"

T = TypeVar("T")
_NEVER = threading.Event()


def until(true: Callable[[], object], seconds: float = PATIENCE, what: str = "it") -> None:
    """Look again and again until something is true that no event tells of."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"{what} did not come true"
        _NEVER.wait(LOOK_AGAIN)


class Traffic:
    """A thread that sends turns to the healthy server, one after the other."""

    def __init__(self, home: Path) -> None:
        self.turns = 0
        self.slowest = 0.0
        self.failures: list[Any] = []
        self._home = home
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the turn under way."""
        self._stop.set()
        self._thread.join(PATIENCE)

    def _run(self) -> None:
        with Client(self._home) as client:
            while not self._stop.wait(BETWEEN_TURNS):
                begun = time.monotonic()
                items = list(client.turn('mcp:healthy/echo {"n": 1}'))
                spent = time.monotonic() - begun
                results = [one["outcome"] for one in items if one["type"] == "tool.result"]
                if items[-1]["type"] != "turn.completed" or results != ["ok"]:
                    self.failures.append([_brief(item) for item in items])
                self.slowest = max(self.slowest, spent)
                self.turns += 1


class FaultRig:
    """A supervisor with a healthy server and a healthy agent, and room for faulty servers."""

    def __init__(self, folder: Path, **times: float) -> None:
        self._base = timing(**times) + DIRECT_AGENT + rogue_toml("healthy")
        environ = {"PYTHONPATH": str(BUSY_FOLDER)}
        self.interlock = Supervised(folder, self._base, environ=environ)
        self.begun = 0
        """Where the events of the block under way begin."""
        self._threads = ThreadPoolExecutor(16)

    def __enter__(self) -> Self:
        self.interlock.__enter__()
        for name in HEALTHY:
            self.interlock.wait_state(name, "READY")
        # The first message that a process sends without copying costs it some descriptors for
        # good; here each of them sends one before anybody counts.
        assert outcomes(list(self.interlock.client.turn(LARGE_TURN))) == ["ok"]
        self.interlock.client.turns()  # SQLite keeps its descriptor for whoever reads next
        self._traffic = Traffic(self.interlock.home.path)
        until(lambda: self._traffic.turns >= 3, what="three turns")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._traffic.stop()
        self._threads.shutdown(wait=kind is None, cancel_futures=True)
        self.interlock.__exit__(kind, error, trace)

    @contextmanager
    def faulty(self, *tables: str) -> Iterator[Supervised]:
        """Run these servers for the block; afterwards nothing of them may be left."""
        interlock = self.interlock
        turns, self._traffic.slowest, self.begun = self._traffic.turns, 0.0, interlock.mark()
        before = self._condition()
        self._configure(*tables)
        try:
            yield interlock
        except BaseException:
            self._configure()  # the next test has a chance
            raise
        until(lambda: self._traffic.turns > turns + 3, what="turns of the healthy part")
        self._configure()
        until(lambda: len(interlock.client.status()["workers"]) == len(HEALTHY), SLOWEST_END, "end")
        troubles = [
            event
            for event in interlock.events[self.begun :]
            if event.get("name") in HEALTHY and event["topic"].startswith("worker.")
        ]
        failures, self._traffic.failures = self._traffic.failures, []  # the next test has its own
        assert not failures and not troubles, (failures, troubles)
        assert self._traffic.slowest < LONGEST_TURN, self._traffic.slowest
        self._as_before(before)
        assert "Traceback" not in interlock.log() + interlock.errors.read_text()

    def event(self, topic: str, name: str, **fields: Any) -> dict[str, Any]:
        """Wait for an event of the block under way."""
        return self.interlock.wait_event(topic, name, self.begun, **fields)

    def start(self, work: Callable[[Client], T]) -> Future[T]:
        """Do something with a client of its own in a thread of its own."""

        def run() -> T:
            with Client(self.interlock.home.path) as client:
                return work(client)

        return self._threads.submit(run)

    def tree(self, name: str, count: int) -> list[Child]:
        """The processes below a worker, once there are that many."""
        pid = self.interlock.worker(name)["pid"]
        until(lambda: len(procfs.descendants(pid)) >= count, what=f"{count} below {name}")
        return procfs.descendants(pid)

    def _configure(self, *tables: str) -> None:
        self.interlock.config.write_text(self._base + "".join(tables))
        self.interlock.client.reload()

    def _pids(self) -> dict[str, int]:
        rows = {name: int(self.interlock.worker(name)["pid"]) for name in HEALTHY}
        return {"supervisor": self.interlock.pid, **rows}

    def _condition(self) -> tuple[Mapping[str, int], set[int], set[Path]]:
        descriptors = {name: descriptors_of(pid) for name, pid in self._pids().items()}
        below = {child.pid for child in procfs.descendants(self.interlock.pid)}
        return descriptors, below, set(self.interlock.home.run.rglob("*"))

    def _as_before(self, before: tuple[Mapping[str, int], set[int], set[Path]]) -> None:
        seen = [before]

        def same() -> bool:
            seen[:] = [now] = [self._condition()]
            fewer = all(now[0][name] <= count for name, count in before[0].items())
            return fewer and now[1:] == before[1:]

        try:
            until(same, 5.0)
        except AssertionError:
            raise AssertionError(f"not as before: {before}, {seen}") from None


def _brief(item: dict[str, Any]) -> str:
    """What an item of a turn that failed says, short enough for the report of a test run."""
    told = (item.get(key) for key in ("outcome", "code", "message", "content"))
    return " ".join([item["type"], *(str(one)[:200] for one in told if one)])


@cache
def descriptors_at_first(interlock: Supervised) -> int:
    """Descriptors of a supervisor before the first test that harms it; none later may add one."""
    return interlock.descriptors()


def descriptors_of(pid: int) -> int:
    """How many descriptors a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def assert_gone(tree: list[Child], seconds: float = 5.0) -> None:
    """Check that none of these processes runs any more."""
    until(lambda: not any(procfs.alive(one.pid, one.start) for one in tree), seconds, "their end")


def outcomes(items: list[dict[str, Any]]) -> list[str]:
    """How the calls of a turn ended, in the order of their results."""
    assert items[-1]["type"] == "turn.completed", items
    return [one["outcome"] for one in items if one["type"] == "tool.result"]
