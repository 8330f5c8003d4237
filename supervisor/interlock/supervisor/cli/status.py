"""`interlock status`: every process, one row each, and what needs attention."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from interlock.bus.wording import listed
from interlock.supervisor.cli.given import json_document
from interlock.supervisor.cli.output import (
    clean,
    cut,
    document,
    one_line,
    size,
    span,
    styled,
    table,
    write,
)
from interlock.supervisor.cli.session import client, full_name, workers_of

_STYLES = {
    "READY": ("green",),
    "DEGRADED": ("yellow",),
    "BACKOFF": ("yellow",),
    "FAILED": ("red",),
    "STOPPED": ("dim",),
}
_EVERY = 1.0
_REASON = 60
"""Characters of a reason in the table; the whole stands below it."""
_OF_CAUSE = 10
"""Rows of one cause that are shown one by one; more are summed up."""
_LEFT_OUT = 400
"""Characters of the line with the entries that do not run."""
_HEADS = (
    "NAME", "STATE", "PID", "GEN", "RESTARTS", "FOR", "MEMORY", "CPU", "CALLS", "ERRORS", "P50",
    "P99", "TOOLS", "REASON",
)  # fmt: skip
_RIGHT = (
    "PID",
    "GEN",
    "RESTARTS",
    "FOR",
    "MEMORY",
    "CPU",
    "CALLS",
    "ERRORS",
    "P50",
    "P99",
    "TOOLS",
)


@click.command
@click.argument("name", required=False)
@json_document
@click.option("--watch", is_flag=True, help="Show it again every second until Ctrl-C.")
def status(name: str | None, as_json: bool, watch: bool) -> None:
    """Show the health of every process, one row a worker, or of the one called NAME."""
    with client() as bus:
        while True:
            found = bus.status()
            if name is not None:
                found = narrowed(found, name)
            if as_json:
                document(found)
            else:
                if watch and sys.stdout.isatty():
                    write("\x1b[H\x1b[2J", end="")
                write("\n".join(lines_of(found, single=name is not None)))
            if not watch:
                return
            time.sleep(_EVERY)


def narrowed(status: dict[str, Any], typed: str) -> dict[str, Any]:
    """Return the document with one worker only. Raises NotFoundError."""
    chosen = full_name(typed, workers_of(status), status["needs_attention"])
    return status | {
        "workers": [row for row in status["workers"] if row["name"] == chosen],
        "needs_attention": [row for row in status["needs_attention"] if row["name"] == chosen],
    }


def lines_of(status: dict[str, Any], *, single: bool = False) -> list[str]:
    """Return the document as lines for people; `single` adds the child processes."""
    now = time.time()
    lines = [_headline(status["supervisor"]), ""]
    lines += _worker_table(status["workers"], now)
    if single:
        for row in status["workers"]:
            lines += [
                f"  child {child['pid']}  {one_line(child.get('command', ''))}"
                for child in row.get("children", [])
            ]
    else:
        lines += _left_out(status)
    return lines + _attention(status["needs_attention"], single)


def _left_out(status: dict[str, Any]) -> list[str]:
    """Name the entries that no worker stands for."""
    known = {row["name"] for row in status["workers"]}
    about = (row["name"] for row in status["needs_attention"] if row["code"] != "untrusted")
    kinds = ("mcp:", "cli:", "agent:")
    names = [one for one in dict.fromkeys(about) if one not in known and one.startswith(kinds)]
    if not names:
        return []
    verb = "does" if len(names) == 1 else "do"
    return [cut(f"{listed(names)} {verb} not run: see below", _LEFT_OUT)]


def told(rows: list[dict[str, Any]]) -> int:
    """Return how many things `status` names; many of one cause, or of one file, are one."""
    return len(_things(rows))


def _attention(rows: list[dict[str, Any]], single: bool = False) -> list[str]:
    """Return the lines about what needs attention.

    `single`: only one worker is asked for, and all about it is shown.
    """
    if not rows:
        return []
    lines = ["", styled("needs attention", "bold")]
    for what, fix in _things(rows, single):
        lines.append(f"  {what}")
        if fix:
            lines.append(f"      do: {fix}")
    return lines


def _things(rows: list[dict[str, Any]], single: bool = False) -> list[tuple[str, str]]:
    """Return what needs attention and what to do, each in one line.

    Many of one cause, or of one untrusted file, are one thing.
    """
    things: list[tuple[str, str]] = []
    untrusted: dict[str, list[str]] = {}
    alike: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row["code"] == "untrusted" and row.get("fix"):
            untrusted.setdefault(row["fix"], []).append(row["name"])
            continue
        if ":" in row["name"] and not single:
            same = alike.setdefault(row["code"], [])
            same.append(row)
            if len(same) > _OF_CAUSE:
                continue
        about = f"{clean(row['name'])}: {one_line(row['message'])}"
        things.append((about, one_line(row.get("fix") or "")))
    things += [_summed(same[_OF_CAUSE:]) for same in alike.values() if len(same) > _OF_CAUSE]
    for fix, names in untrusted.items():
        about = clean(", ".join(dict.fromkeys(names)))
        things.append((f"{about}: set in a file that is not trusted as it is now", one_line(fix)))
    return things


def _summed(rows: list[dict[str, Any]]) -> tuple[str, str]:
    """Return what further rows with one code are about, and what to do."""
    names = {str(row["name"]) for row in rows}
    servers = all(name.startswith("mcp:") for name in names)
    about = f"of {clean(names.pop())}" if len(names) == 1 else "servers" if servers else "entries"
    messages, fixes = ({str(row.get(key, "")) for row in rows} for key in ("message", "fix"))
    message = one_line(str(rows[0]["message"]).rstrip("."))
    others = "" if len(messages) == 1 else ", or the like"
    fix = f"{one_line(fixes.pop().rstrip('.'))}; " if len(fixes) == 1 else ""
    return (
        f"{len(rows)} more {about}: {message}{others}",
        f"{fix}`interlock status --json` has them all",
    )


def _headline(supervisor: dict[str, Any]) -> str:
    return (
        f"supervisor {supervisor['version']}, pid {supervisor['pid']}, "
        f"up {span(supervisor['uptime'])}, {size(supervisor['rss_bytes'])}, "
        f"{supervisor['cpu_percent']:.1f} % CPU, "
        f"home {clean(supervisor['home'])}"
    )


def _worker_table(rows: list[dict[str, Any]], now: float) -> list[str]:
    if not rows:
        return ["No workers are configured."]
    cells = [
        (
            row["name"],
            row["state"],
            row["pid"] or "-",
            row["generation"],
            row["restarts"],
            span(now - row["since"]),
            size(row["rss_bytes"]),
            f"{row['cpu_percent']:.1f}%",
            row["calls"],
            row["errors"],
            _ms(row["p50_ms"]),
            _ms(row["p99_ms"]),
            row["tools"],
            cut(_reason(row), _REASON),
        )
        for row in rows
    ]
    heads, *lines = table(_HEADS, cells, right=_RIGHT)
    state_at = heads.index("STATE")
    painted = []
    for row, line in zip(rows, lines, strict=True):
        state = str(row["state"])
        rest = line[state_at + len(state) :]
        painted.append(line[:state_at] + styled(state, *_STYLES.get(state, ())) + rest)
    return [styled(heads, "dim"), *painted]


def _reason(row: dict[str, Any]) -> str:
    """Return why the worker is in its state; a server that is slow to begin has given no reason."""
    if row["kind"] == "mcp" and row["state"] == "INITIALIZING":
        return str(row["reason"]) or "the server has not answered yet"
    return str(row["reason"])


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
