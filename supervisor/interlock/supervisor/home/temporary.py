"""A whole Interlock in a temporary home, for the demonstration and the measurements."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Final

from interlock.bus import procfs
from interlock.bus.client import Client, connect
from interlock.bus.errors import InterlockError, NoSupervisorError, RequestTimeoutError
from interlock.bus.threads import starting_process

START: Final = 20.0
"""Seconds until the api has to answer."""
STOP: Final = 25.0
"""Seconds that an orderly stop may take; it is bounded by 20 in the supervisor."""
INTERRUPTS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end what runs in a temporary home, all in the same way."""
_LOOK: Final = 0.02
_TAIL: Final = 2000

COMMAND: Final = (sys.executable, "-P", "-c", "from interlock.supervisor.cli import main; main()")
"""The command line of `interlock` in this Python, wherever it is installed."""
_SUPERVISOR: Final = (sys.executable, "-P", "-m", "interlock.supervisor.run")


class TemporaryInterlock:
    """A supervisor of its own, with its own home and configuration, that ends with the block.

    Nothing of the user's configuration is read. The supervisor ends too when this process is
    killed.
    """

    def __init__(self, config: str, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self._config = folder / "interlock.toml"
        self._config.write_text(config)
        self._process: subprocess.Popen[bytes] | None = None
        self.started_at = 0.0
        """`time.monotonic()` when the supervisor was started."""

    def __enter__(self) -> TemporaryInterlock:
        """Start the supervisor and wait until it answers. Raises InterlockError."""
        try:
            self._start()
        except BaseException:
            with uninterrupted():
                self.stop()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop everything."""
        with uninterrupted():
            self.stop()

    @property
    def pid(self) -> int:
        """The supervisor's process."""
        assert self._process is not None
        return self._process.pid

    def connect(self) -> Client:
        """Return a new client of this supervisor."""
        return connect(self.home)

    def environment(self) -> dict[str, str]:
        """Return the environment for `interlock` commands on this home."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("INTERLOCK_")}
        kept["INTERLOCK_HOME"] = str(self.home)
        kept["XDG_CONFIG_HOME"] = str(self.folder / "config")
        return kept

    def stop(self) -> None:
        """Stop in order, within bounds, and whatever happens leave no process."""
        process, self._process = self._process, None
        if process is None:
            return
        # The spawner is no child of ours once its parent is dead, so it is remembered here.
        below = procfs.descendants(process.pid)
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP)
        if process.poll() is None:
            below = procfs.descendants(process.pid)
            process.kill()
            process.wait(5)
        for child in below:
            procfs.kill(child)

    def _start(self) -> None:
        errors = (self.folder / "up.log").open("wb")
        with errors:
            self.started_at = time.monotonic()
            with starting_process(), interrupted_later():  # `stop` has to know of the process
                self._process = subprocess.Popen(
                    [*_SUPERVISOR, "--home", str(self.home), "--config", str(self._config)],
                    cwd=self.folder,
                    env=self.environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=errors,
                    stderr=errors,
                    start_new_session=True,
                    preexec_fn=_end_with_parent,
                )
        deadline = time.monotonic() + START
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise InterlockError(f"The supervisor did not start: {self._said()}")
            try:
                with self.connect() as bus:
                    bus.status()
                return
            except (NoSupervisorError, RequestTimeoutError):
                time.sleep(_LOOK)
        raise InterlockError(f"The supervisor did not answer within {START:g} s: {self._said()}")

    def _said(self) -> str:
        text = (self.folder / "up.log").read_text(errors="replace").strip()
        return text[-_TAIL:] or "it said nothing."


def wait_ready(bus: Client, names: set[str], seconds: float) -> dict[str, float]:
    """Wait until the named workers are READY; returns the monotonic time at which each was seen.

    Raises InterlockError naming those that were not in time.
    """
    seen: dict[str, float] = {}
    deadline = time.monotonic() + seconds
    while True:
        rows = {row["name"]: row for row in bus.status()["workers"]}
        now = time.monotonic()
        for name in names - seen.keys():
            if rows.get(name, {}).get("state") == "READY":
                seen[name] = now
        if len(seen) == len(names):
            return seen
        if now > deadline:
            late = ", ".join(
                f"{name} is {_state(rows.get(name))}" for name in sorted(names - seen.keys())
            )
            raise InterlockError(f"Not ready after {seconds:g} s: {late}.")
        time.sleep(_LOOK)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Let a second Ctrl-C not break the cleaning up after the first."""
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


@contextlib.contextmanager
def interrupted_later() -> Iterator[None]:
    """Let what would interrupt the block, which must be short, interrupt what comes after it."""
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    previous = {number: signal.signal(number, note) for number in INTERRUPTS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    for held in came:
        signal.raise_signal(held)


def toml_text(value: object) -> str:
    """Return a string, number, truth value, list or table as TOML (inline)."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        inner = ", ".join(f"{toml_text(str(k))} = {toml_text(v)}" for k, v in value.items())
        return f"{{ {inner} }}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(toml_text, value)) + "]"
    if isinstance(value, (int, float)):
        return repr(value)
    escaped = "".join(
        f"\\u{ord(c):04x}" if ord(c) < 32 or c in '"\\\x7f' else c for c in str(value)
    )
    return f'"{escaped}"'


def server_table(name: str, command: list[str], **settings: object) -> str:
    """Return the `[mcp_servers.NAME]` table of a stdio server."""
    entry = {"command": command[0], "args": command[1:], **settings}
    lines = [f"{key} = {toml_text(value)}" for key, value in entry.items()]
    return "\n".join([f"[mcp_servers.{name}]", *lines, ""])


def _state(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "unknown"
    return f"{row['state']} ({row['reason']})" if row.get("reason") else str(row["state"])


def _end_with_parent() -> None:
    procfs.set_parent_death_signal(signal.SIGTERM)
