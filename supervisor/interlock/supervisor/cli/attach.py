"""`interlock attach`: a monitor of everything that happens."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import click

from interlock.bus.names import WorkerName
from interlock.supervisor.cli.given import json_lines
from interlock.supervisor.cli.logs import log_line, log_path
from interlock.supervisor.cli.output import (
    ReaderGoneError,
    clean,
    document,
    one_line,
    options,
    plain,
    styled,
    write,
)
from interlock.supervisor.cli.reader import end_with_reader
from interlock.supervisor.cli.session import client, full_name, workers_of
from interlock.supervisor.cli.status import lines_of
from interlock.supervisor.cli.tail import LogTail

_EVERY: Final = 0.2
_FEW: Final = 5
"""Names of a list that a line has room for."""
_PLAIN: Final = frozenset({"topic", "epoch", "seq", "time", "name"})
_BAD: Final = ("failed", "backoff", "degraded", "died", "interrupted")


@click.command
@click.argument("names", nargs=-1, metavar="[NAME...]")
@json_lines
@click.option("--since", metavar="EPOCH:SEQ", help="Resume after that event.")
@click.option("--logs", "with_logs", is_flag=True, help="Add the lines of the workers' logs.")
def attach(names: tuple[str, ...], as_json: bool, since: str | None, with_logs: bool) -> None:
    """Follow events as they happen, of all workers or of those named, until Ctrl-C."""
    home = options().place
    lock = threading.Lock()
    paint = options().color and sys.stdout.isatty()
    with client() as bus:
        end_with_reader()
        now = bus.status() if names or with_logs else {"needs_attention": []}
        known = workers_of(now)
        chosen = frozenset(full_name(name, known, now["needs_attention"]) for name in names)
        if with_logs:
            followed = chosen or frozenset(known)
            tails = {name: LogTail(log_path(home, name)) for name in followed}

            def tell(worker: str, line: str) -> None:
                with lock:
                    if as_json:
                        document(log_line(worker, line))
                    else:
                        write(f"{clean(worker)} | {clean(line)}")

            threading.Thread(target=_follow_logs, args=(tails, tell), daemon=True).start()
        for event in bus.events(since=since):
            if chosen and not _concerns(event, chosen):
                continue
            with lock:
                if as_json:
                    document(event)
                elif event["topic"] == "snapshot":
                    write("\n".join([*lines_of(_of(event["status"], chosen)), ""]))
                else:
                    write(_line(event, paint))


def _follow_logs(tails: dict[str, LogTail], tell: Callable[[str, str], None]) -> None:
    for tail in tails.values():
        tail.skip_to_end()
    try:
        while True:
            for worker, tail in tails.items():
                for line in tail.new_lines():
                    tell(worker, line)
            time.sleep(_EVERY)
    except (ReaderGoneError, OSError, ValueError):
        return  # Nobody reads any more; the main thread notices it, too.


def _concerns(event: dict[str, Any], chosen: frozenset[str]) -> bool:
    """Tell whether an event is about one of the workers."""
    if event["topic"] == "snapshot":
        return True
    return event.get("name") in chosen or _agent_of(event) in chosen


def _of(status: dict[str, Any], chosen: frozenset[str]) -> dict[str, Any]:
    """Return the status document with the chosen workers only; none means all."""
    if not chosen:
        return status
    rows = ("workers", "needs_attention")
    return status | {key: [row for row in status[key] if row["name"] in chosen] for key in rows}


def _agent_of(event: dict[str, Any]) -> str:
    agent = event.get("agent")
    return str(WorkerName("agent", agent)) if agent else ""


def _many(value: object) -> bool:
    """Whether a list is too long for a line for people, who get the number; `--json` has all."""
    return isinstance(value, (list, tuple)) and len(value) > _FEW


def _shown(key: str, value: object) -> str:
    """The value of a field; which client called says nothing to people."""
    direct = key == "caller" and str(value).startswith("api:")
    return "a-client" if direct else plain(value)


def _line(event: dict[str, Any], paint: bool) -> str:
    topic = str(event["topic"])
    details = [
        f"{key}={len(value) if _many(value) else one_line(_shown(key, value))}"
        for key, value in event.items()
        if key not in _PLAIN and value not in ("", None, [], ())
    ]
    when = time.strftime("%H:%M:%S", time.localtime(event["time"]))
    if paint:
        topic = styled(topic, "red" if topic.endswith(_BAD) else "cyan")
    return " ".join([when, topic, clean(event.get("name", "")), *details]).rstrip()
