"""A supervisor whose server asks before some of its tools run, and persons who answer."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from fault_rig import until
from supervised import DIRECT_AGENT, PATIENCE, Supervised, rogue_toml, timing

from interlock.bus.client import Client

ASK = '[policy]\nask = ["mcp:x/echo"]\n'
T = TypeVar("T")


class Asking:
    """`mcp:x/echo` waits for a person, unless `policy` says otherwise; all else runs."""

    def __init__(self, folder: Path, policy: str = ASK, **times: float) -> None:
        self.base = timing(**times) + DIRECT_AGENT + rogue_toml("x")
        self.interlock = Supervised(folder, self.base + policy)
        self._threads = ThreadPoolExecutor(8)
        self.begun = 0
        """The mark in the events at which the story under way began."""
        self._before: set[str] = set()

    def __enter__(self) -> Self:
        self.interlock.__enter__()
        for name in ("agent:main", "mcp:x"):
            self.interlock.wait_state(name, "READY")
        self.client = self.interlock.client
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.interlock.__exit__(kind, error, trace)
        self._threads.shutdown(wait=kind is None, cancel_futures=True)

    def start(self, work: Callable[[Client], T]) -> Future[T]:
        """Do something with a client of its own, which is another terminal."""

        def run() -> T:
            with Client(self.interlock.home.path) as client:
                return work(client)

        return self._threads.submit(run)

    def turn(self, text: str, **options: Any) -> Future[list[dict[str, Any]]]:
        """Send a turn from another terminal; its items."""
        return self.start(lambda client: list(client.turn(text, **options)))

    def call(self, arguments: dict[str, Any] | None = None, **options: Any) -> Future[Any]:
        """Call what asks from another terminal."""
        return self.start(lambda client: client.call("mcp:x/echo", arguments, **options))

    def begin(self) -> None:
        """What happened so far is another story: nobody waits, and all of its calls are counted."""
        for name in ("agent:main", "mcp:x"):
            self.interlock.wait_state(name, "READY")
        place = self.interlock.mark()
        assert self.client.call("mcp:x/pid").ok
        # Reports come in order, so those of all calls before this one are there with its own.
        self.interlock.wait_event("tool.completed", "mcp:x", after=place)
        assert self.client.approvals()["approvals"] == [] and self.interlock.attention() == []
        self.begun = self.interlock.mark()
        self._before = {row["id"] for row in self.client.approvals(1000)["past"]}

    def past(self) -> list[dict[str, Any]]:
        """The approvals of this story that have ended, the last one first."""
        rows = self.client.approvals(1000)["past"]
        return [row for row in rows if row["id"] not in self._before]

    def requested(self, after: int = 0) -> dict[str, Any]:
        """The next approval that waits, as its event tells."""
        return self.interlock.wait_event("approval.requested", after=after or self.begun)

    def resolved(self, id_: str, **fields: Any) -> dict[str, Any]:
        """How an approval ended, as its event tells."""
        return self.interlock.wait_event("approval.resolved", id=id_, **fields)

    def policy(self, text: str) -> None:
        """Put another policy in force."""
        self.interlock.config.write_text(self.base + text)
        self.client.reload()

    def calls(self) -> int:
        """Calls that the server has seen."""
        return int(self.interlock.worker("mcp:x")["calls"])

    def ran(self, count: int) -> None:
        """Wait until the server has reported that many calls."""
        until(lambda: self.calls() == count, what=f"{count} calls")

    def command(self, *arguments: str, stdin: str | None = None) -> tuple[int, str, str]:
        """Run a command as in another terminal: exit code, output, errors."""
        done = subprocess.run(
            [sys.executable, "-m", "interlock.supervisor.cli", *self.home_option, *arguments],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert "Traceback" not in done.stderr
        return done.returncode, done.stdout, done.stderr

    @property
    def home_option(self) -> tuple[str, str]:
        """The option that names the home."""
        return ("--home", str(self.interlock.home.path))

    def json(self, *arguments: str, code: int = 0, stdin: str | None = None) -> Any:
        """Run a command with --json and return its document."""
        found, out, err = self.command(*arguments, "--json", stdin=stdin)
        assert found == code, (found, out, err)
        return json.loads(out)


def results(items: list[dict[str, Any]]) -> list[str]:
    """How the calls of a turn ended."""
    assert items[-1]["type"] == "turn.completed", items
    return [item["outcome"] for item in items if item["type"] == "tool.result"]


def after(moment: float) -> Callable[[], bool]:
    """Whether a monotonic moment has passed."""
    return lambda: time.monotonic() > moment
