"""A real supervisor in a process of its own, on a home of its own, for tests of any kind.

    with Supervised(tmp_path, TOML) as interlock:
        interlock.wait_state("mcp:x", "READY")

Waiting is for events, never for a time to pass. At the end everything must be gone: processes
(this process is a subreaper, so none can hide), socket files, the connection file and the lock.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import msgspec

from interlock.bus import procfs
from interlock.bus.client import Client
from interlock.bus.endpoints import Home, HomeLock
from interlock.bus.errors import InterlockError

PATIENCE = 30.0
"""Seconds within which whatever is waited for must happen, on a busy machine."""
FAST: Mapping[str, float] = {
    "hello": 10.0,
    "ping": 2.0,
    "drain": 1.0,
    "term": 2.0,
    "kill": 1.0,
    "stop_total": 15.0,
    "backoff_first": 0.05,
    "backoff_max": 0.4,
    "failed_retry": 300.0,
    "sample": 0.5,
}
"""Times for tests that do not want to wait.

But a worker that is merely late, on a busy machine, must not be taken for one that hangs: three
pings are longer than any answer of it takes.
"""

ROGUE = Path(__file__).parent / "rogue" / "server.py"
DIRECT_AGENT = '[agents.main]\nmodel = "direct"\n'

Document = dict[str, Any]


def timing(**times: float) -> str:
    """The `[supervisor]` table with fast times, some of them replaced."""
    pairs = ", ".join(f"{name} = {value}" for name, value in {**FAST, **times}.items())
    return f"[supervisor]\ntiming = {{ {pairs} }}\n"


class Supervised:
    """A supervisor, a client of it, and all its events so far."""

    _running: ClassVar[set[int]] = set()

    def __init__(
        self,
        folder: Path,
        config: str,
        *,
        environ: Mapping[str, str] | None = None,
        workspace: Path | None = None,
        python: Path = Path(sys.executable),
        interpreter: Sequence[str] = (),
        file_size: int | None = None,
        open_files: int | None = None,
        clean: bool = True,
    ) -> None:
        self.home = Home(folder / "home")
        self.config = folder / "interlock-test.toml"
        self.config.write_text(config)
        self.clean = clean
        """False: the test kills the supervisor and looks after the rest itself."""
        self.events: list[Document] = []
        self.errors = folder / "supervisor.stderr"
        self._python = [str(python), "-P", *interpreter]
        self._file_size = file_size
        self._open_files = open_files
        self._environ = {**os.environ, **(environ or {})}
        self._workspace = workspace
        self._changed = threading.Condition()
        self._trouble: BaseException | None = None
        self._process: subprocess.Popen[bytes] | None = None

    # --- from start to end ---

    def __enter__(self) -> Self:
        if self._process is None:
            self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            code = self.stop()
        finally:
            self._client.close()
        if kind is None:
            self.assert_nothing_left()
            if self.clean:
                assert code == 0, self.log()

    def start(self) -> None:
        """Start (again) and return when the api answers."""
        procfs.become_subreaper()
        if self._process is None:  # what a first life left over is not known at the second start
            self._known = set(procfs.children(os.getpid()))
        arguments = ["--home", str(self.home.path), "--config", str(self.config)]
        if self._workspace is not None:
            arguments += ["--workspace", str(self._workspace)]
        python = self._python
        if self._file_size is not None:  # no file of it grows beyond: what a full disk is like
            python = ["prlimit", f"--fsize={self._file_size}", *python]
        if self._open_files is not None:  # soft and hard
            python = ["prlimit", f"--nofile={self._open_files}:{self._open_files}", *python]
        with self.errors.open("ab") as errors:
            self._process = subprocess.Popen(
                [*python, "-m", "interlock.supervisor.run", "--announce", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=self._environ,
                start_new_session=True,
            )
        self._running.add(self._process.pid)
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE)
        line = self._process.stdout.readline() if ready else b""
        if line != b"ready\n":
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()
        assert line == b"ready\n", (line, self.errors.read_text(), self.log())
        self.client = self._client = Client(self.home.path)
        following = threading.Event()
        self._follower = threading.Thread(target=self._follow, args=(following,), daemon=True)
        self._follower.start()
        assert following.wait(PATIENCE)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End the supervisor, if it still runs, and return its exit code."""
        process = self.process
        if process.poll() is None:
            process.send_signal(number)
        try:
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(PATIENCE)
            raise AssertionError(f"the supervisor did not end\n{self.log()}") from None
        finally:
            if process.stdout is not None:
                process.stdout.close()
            self._running.discard(process.pid)
        self._follower.join(PATIENCE)
        return code

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The supervisor's process."""
        assert self._process is not None
        return self._process

    @property
    def pid(self) -> int:
        """The supervisor's pid."""
        return self.process.pid

    # --- what happens ---

    def mark(self) -> int:
        """A place in the events, to wait for what comes after it."""
        with self._changed:
            return len(self.events)

    def wait_event(
        self, topic: str, name: str = "", after: int = 0, patience: float = PATIENCE, **fields: Any
    ) -> Document:
        """Wait for an event of that topic, about that worker, with those fields."""
        wanted = fields | ({"name": name} if name else {})

        def fits(event: Document) -> bool:
            return event["topic"] == topic and all(
                event.get(key) == value for key, value in wanted.items()
            )

        return self.wait_for(fits, after, patience, f"{topic} {wanted}")

    def wait_for(
        self,
        fits: Callable[[Document], bool],
        after: int = 0,
        patience: float = PATIENCE,
        what: str = "event",
    ) -> Document:
        """Wait for the first event after a mark that fits."""
        end = time.monotonic() + patience
        with self._changed:
            looked = after
            while True:
                for event in self.events[looked:]:
                    if fits(event):
                        return event
                looked = len(self.events)
                if self._trouble is not None or not self._changed.wait(end - time.monotonic()):
                    told = "\n".join(map(str, self.events[-20:]))
                    raise AssertionError(f"no {what}; events:\n{told}\n{self._trouble}")

    def wait_state(self, name: str, *states: str, patience: float = PATIENCE) -> Document:
        """Wait until a worker is in one of these states; return its status row."""
        end = time.monotonic() + patience
        while True:
            place = self.mark()
            row = self.worker(name)
            if row["state"] in states:
                return row
            with contextlib.suppress(AssertionError):
                self.wait_for(
                    lambda event: (
                        event.get("name") == name and event["topic"].startswith("worker.")
                    ),
                    place,
                    min(1.0, max(0.01, end - time.monotonic())),
                )
            assert time.monotonic() < end, (row, self.log())

    def wait_for_children(self, name: str, count: int, patience: float = PATIENCE) -> None:
        """Wait until a worker has reported that many processes below it."""
        end = time.monotonic() + patience
        # No event tells of this; one request after the other is as fast as it gets.
        while len(self.worker(name)["children"]) < count:
            assert time.monotonic() < end, self.worker(name)
            with self._changed:
                self._changed.wait(0.05)

    def worker(self, name: str) -> Document:
        """The status row of a worker."""
        return dict(self.client.status(name)["workers"][0])

    def attention(self, name: str = "") -> list[Document]:
        """The rows of needs attention."""
        return list(self.client.status(name)["needs_attention"])

    def log(self, name: str = "supervisor") -> str:
        """The end of a log file."""
        with contextlib.suppress(OSError):
            return (self.home.logs / f"{name}.log").read_text(errors="replace")[-4000:]
        return ""

    def spare(self, pid: int) -> None:
        """A child of this process that is the test's own, no leftover."""
        self._known.add(pid)

    def descriptors(self) -> int:
        """How many descriptors the supervisor has open."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    # --- nothing is left ---

    def assert_nothing_left(self, within: float = 5.0) -> None:
        """Check that no process, socket file, connection file or lock is left."""
        end = time.monotonic() + within
        while left := list(self._leftovers()):
            handles = select.poll()
            opened = []
            for pid in left:
                with contextlib.suppress(OSError):
                    opened.append(os.pidfd_open(pid))
                    handles.register(opened[-1], select.POLLIN)
            remaining = end - time.monotonic()
            if remaining > 0:
                handles.poll(remaining * 1000)
            for handle in opened:
                os.close(handle)
            assert time.monotonic() < end, [(pid, procfs.command(pid)) for pid in left]
        if self.clean:
            sockets = [path for path in self.home.run.rglob("*") if not path.is_dir()]
            sockets = [path for path in sockets if path.name != "home"]  # whose folder it is
            assert sockets == []
            assert not self.home.connection_file.exists()
        HomeLock(self.home).close()

    def _leftovers(self) -> Iterator[int]:
        """Processes that came to this one as orphans; the dead among them are reaped."""
        for pid in procfs.children(os.getpid()):
            if pid in self._known or pid in self._running:
                continue
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0]:
                    continue
            yield pid

    def _follow(self, following: threading.Event) -> None:
        try:
            with Client(self.home.path) as client:
                for event in client.events():
                    with self._changed:
                        self.events.append(event)
                        self._changed.notify_all()
                    following.set()
        except InterlockError as error:
            with self._changed:
                self._trouble = error
                self._changed.notify_all()


def server_toml(name: str, *command: str, **settings: Any) -> str:
    """An `[mcp_servers.NAME]` table."""
    lines = [f"[mcp_servers.{name}]"]
    for key, value in {"command": command[0], "args": list(command[1:]), **settings}.items():
        lines.append(f"{key} = {_toml(value)}")
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + " }"
    return msgspec.json.encode(value).decode()


def rogue_toml(name: str, *modes: str, **settings: Any) -> str:
    """An `[mcp_servers.NAME]` table for the server of tests/rogue, in these modes."""
    return server_toml(name, sys.executable, str(ROGUE), *modes, **settings)
