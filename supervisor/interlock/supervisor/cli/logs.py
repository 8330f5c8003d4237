"""`interlock logs`: a worker's log file, also when no supervisor runs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import click
import msgspec

from interlock.bus.endpoints import Home, file_stem
from interlock.bus.errors import NoSupervisorError, NotFoundError, UsageError
from interlock.bus.names import WorkerName, workers_meant
from interlock.supervisor.cli.given import Count, json_lines
from interlock.supervisor.cli.output import clean, document, options, plain, write
from interlock.supervisor.cli.reader import end_with_reader
from interlock.supervisor.cli.session import client, did_you_mean, full_name, workers_of
from interlock.supervisor.cli.tail import LogTail, last_lines

_EVERY: Final = 0.2
_KINDS: Final = ("mcp", "agent", "cli", "core")


@click.command
@click.argument("name")
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines until Ctrl-C.")
@click.option("-n", "--lines", type=Count(), default=100, help="How many of the last lines.")
@json_lines
def logs(name: str, follow: bool, lines: int, as_json: bool) -> None:
    """Show the end of the log of the worker NAME, or of the `supervisor`."""
    home = options().place
    worker = worker_with_log(home, name)
    path = log_path(home, worker)
    tail = LogTail(path)
    tail.skip_to_end()
    for line in last_lines(path, lines):
        _show(worker, line, as_json)
    if follow:
        end_with_reader()
    while follow:
        for line in tail.new_lines():
            _show(worker, line, as_json)
        time.sleep(_EVERY)


def _show(worker: str, line: str, as_json: bool) -> None:
    if as_json:
        document(log_line(worker, line))
    else:
        write(clean(line if worker != "supervisor" else readable(line)))


def readable(line: str) -> str:
    """Return a line of the supervisor's log for people; a line that is no JSON object as it is."""
    try:
        found = msgspec.json.decode(line)
        when = datetime.fromisoformat(found.pop("timestamp")).astimezone()
        words = [when.strftime("%Y-%m-%d %H:%M:%S"), found.pop("level"), found.pop("event")]
    except (msgspec.DecodeError, AttributeError, KeyError, TypeError, ValueError):
        return line
    words += [
        f"{key}={plain(value)}" for key, value in found.items() if value not in ("", None, [])
    ]
    # Further lines of a value stand further in, so that none can pass for a line of the log.
    return " ".join(map(str, words)).replace("\n", "\n    ")


def log_line(worker: str, line: str) -> dict[str, Any]:
    """Return a line of a log as a document."""
    return {"topic": "log", "name": worker, "line": line}


def log_path(home: Home, worker: str) -> Any:
    """Return the log file of a worker."""
    stem = worker if worker == "supervisor" else file_stem(worker)
    return home.logs / f"{stem}.log"


def worker_with_log(home: Home, typed: str) -> str:
    """Return the worker that is meant; if there is none now, one that left a log file.

    Raises NotFoundError.
    """
    if typed == "supervisor":
        return typed
    known: list[str] | None = None
    attention: list[dict[str, Any]] = []
    with contextlib.suppress(NoSupervisorError), client() as bus:
        status = bus.status()
        known, attention = workers_of(status), status["needs_attention"]
    if known and workers_meant(typed, known):
        return full_name(typed, known)
    found = [worker for worker in dict.fromkeys(_guesses(typed)) if log_path(home, worker).exists()]
    if not found:
        if workers_meant(typed, [row["name"] for row in attention if ":" in row["name"]]):
            full_name(typed, known or (), attention)  # raises, and says why it does not run
        raise NotFoundError(f"There is no log of {typed} in {home.logs}{_instead(typed, known)}")
    return full_name(typed, found)


def _instead(typed: str, known: list[str] | None) -> str:
    """Return what to do where there is no log; None: no supervisor runs."""
    if known is None:
        return ", and no supervisor is running; start one with `interlock up`."
    return f". Workers are: {', '.join(known) or 'none'}.{did_you_mean(typed, known)}"


def _guesses(typed: str) -> Iterator[str]:
    """Names of workers that `typed` can stand for, those that are written like it first."""
    kind, colon, rest = typed.partition(":")
    if colon and kind in _KINDS:
        yield typed
        yield from _written(kind, rest)
    for kind in _KINDS:
        yield f"{kind}:{typed}"
        yield from _written(kind, typed)


def _written(kind: str, name: str) -> Iterator[str]:
    with contextlib.suppress(UsageError):  # no worker can have that name
        yield str(WorkerName(kind, name))
