"""`interlock up`: the supervisor's beginning."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from interlock.bus.client import connect
from interlock.bus.endpoints import Home, lock_holder, read_connection
from interlock.bus.errors import (
    AlreadyRunningError,
    ConnectionLostError,
    NoSupervisorError,
    RequestTimeoutError,
    SpawnError,
)
from interlock.bus.regular import regular
from interlock.bus.threads import starting_process
from interlock.supervisor.cli.exits import DONE
from interlock.supervisor.cli.output import clean, counted, document, note, options, write
from interlock.supervisor.cli.status import told
from interlock.supervisor.cli.teller import Teller

if TYPE_CHECKING:
    from interlock.bus.events import Event

START: Final = 30.0
"""Seconds until the api of a detached supervisor has to answer."""
_SAID: Final = 64 << 10
"""Bytes of a supervisor's last words that are looked at."""
_LOOK: Final = 0.02


@click.command
@click.option("--detach", is_flag=True, help="Return when the api answers; it goes on running.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A file that wins over all others and is trusted.",
)
@click.option("--json", "as_json", is_flag=True, help="With --detach: one JSON document.")
def up(detach: bool, config: Path | None, as_json: bool) -> int:
    """Start the supervisor and everything configured; Ctrl-C stops it in order."""
    home = options().place
    config = config.expanduser().absolute() if config is not None else None
    if holder := lock_holder(home):  # Said at once; the supervisor itself would find it out later.
        raise AlreadyRunningError(holder, str(home.path))
    if detach:
        return _detach(home, config, as_json)
    if as_json:
        raise click.UsageError("--json needs --detach; `interlock attach --json` streams events.")
    from interlock.supervisor.run import run_supervisor

    with Teller() as teller:
        progress = _Progress(teller.say)

        def ready() -> None:
            teller.say(f"The supervisor (pid {os.getpid()}) runs on {home.path}; Ctrl-C stops it.")

        return run_supervisor(
            home.path,
            config=config,
            workspace=Path.cwd(),
            on_ready=ready,
            on_event=progress.event,
            on_failure=note,
        )


class _Progress:
    """Says in one line each what happens to workers and what needs attention."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._failures: dict[str, str] = {}

    def event(self, event: Event) -> None:
        """Say the line for an event, unless it would repeat the one before, and what to do."""
        text = self._text(event)
        if text:
            self._say(text)
        fix = getattr(event, "fix", "")
        if fix:
            self._say(f"    do: {fix}")

    def _text(self, event: Event) -> str:
        from interlock.bus import events

        match event:
            case events.WorkerStarting():
                return f"{event.name} starts"
            case events.WorkerReady():
                self._failures.pop(event.name, None)
                return f"{event.name} is READY" + (f", {event.tools} tools" if event.tools else "")
            case events.WorkerDegraded():
                self._failures[event.name] = event.reason
                return f"{event.name} is DEGRADED: {event.reason}"
            case events.WorkerBackoff():
                self._failures[event.name] = event.reason
                return f"{event.name} ended: {event.reason}; again in {event.delay:.1f} s"
            case events.WorkerFailedEvent():
                self._failures[event.name] = event.reason
                return f"{event.name} FAILED: {event.reason}"
            case events.WorkerStopped():
                return "" if event.name in self._failures else f"{event.name} is stopped"
            case events.ConfigReloaded():
                return f"configuration read again, {counted(event.problems, 'problem', 'problems')}"
            case events.AttentionChanged() if not event.clear:
                if self._failures.get(event.name) == event.message:
                    return ""
                return f"needs attention: {event.name}: {event.message}"
            case _:
                return ""


def _detach(home: Home, config: Path | None, as_json: bool) -> int:
    home.make()
    command = [sys.executable, "-P", "-m", "interlock.supervisor.run", "--home", str(home.path)]
    command += ["--workspace", str(Path.cwd())]
    if config is not None:
        command += ["--config", str(config)]
    said = home.logs / "up.log"
    hear, tell = os.pipe()
    output = _log(said)
    with open(hear, "rb") as reasons:
        try:
            with starting_process():
                child = subprocess.Popen(
                    [*command, "--tell", str(tell)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=home.path,
                    start_new_session=True,
                    pass_fds=(tell,),
                )
        finally:
            os.close(tell)
            os.close(output)
        try:
            status = _answer(home, child)
        except BaseException:
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
            raise
        if status is None:
            reason = reasons.read().decode(errors="replace").strip()
            raise SpawnError(reason or _last_words(said, child), code="start_failed")
    child.returncode = 0  # It is no longer ours to wait for.
    workers, attention = status["workers"], status["needs_attention"]
    if as_json:
        document({"pid": child.pid, "home": str(home.path), "epoch": status["supervisor"]["epoch"]})
        return DONE
    count = counted(len(workers), "worker", "workers")
    write(clean(f"The supervisor (pid {child.pid}) runs on {home.path}, {count}."))
    if attention:
        write(
            f"{counted(told(attention), 'thing needs', 'things need')} attention; "
            "see `interlock status`."
        )
    return DONE


def _answer(home: Home, child: subprocess.Popen[bytes]) -> dict[str, Any] | None:
    """Return the first status document of the supervisor, None if it ended before."""
    until = time.monotonic() + START
    while time.monotonic() < until:
        if child.poll() is not None:
            return None
        try:
            if read_connection(home).pid == child.pid:
                with connect(home.path) as bus:
                    return bus.status()
        except (NoSupervisorError, ConnectionLostError, RequestTimeoutError):
            pass  # Not yet; what is wrong shows when it ends or when time is up.
        time.sleep(_LOOK)
    raise SpawnError(
        f"The supervisor did not answer within {START:.0f} s and was stopped; "
        f"see {home.logs / 'supervisor.log'}.",
        code="start_failed",
    )


def _log(path: Path) -> int:
    """Return a descriptor for what the supervisor writes past its own log, lost on a full disk."""
    try:
        return regular(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def _last_words(said: Path, child: subprocess.Popen[bytes]) -> str:
    """Return why a supervisor ended: its last line, unless it had no words for it."""
    from interlock.supervisor.lifecycle.wording import describe_exit

    status = child.returncode
    if status < 0:
        how = describe_exit(None, -status)
        return f"The supervisor was {how} while it started; see {said}, then start it again."
    text = _said(said)
    if not text or "Traceback" in text:
        how = describe_exit(status, None)
        return f"The supervisor {how} while it started; see {said}."
    return text.splitlines()[-1]


def _said(path: Path) -> str:
    """Return the end of what a supervisor wrote there; nothing of what is no regular file."""
    try:
        with open(path, "rb", opener=regular) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _SAID))
            return file.read().decode(errors="replace").strip()
    except OSError:
        return ""
