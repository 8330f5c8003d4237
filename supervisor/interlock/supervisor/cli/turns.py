"""`interlock turns`, `turn-show` and `turn-cancel`: the journal of turns."""

from __future__ import annotations

import time
from typing import Any

import click

from interlock.bus.watching import ENDED
from interlock.supervisor.cli.given import Count, json_document
from interlock.supervisor.cli.output import clean, cut, document, lasted, one_line, table, write
from interlock.supervisor.cli.session import client, turn_meant

_TEXT = 60
"""Characters of a turn's text in the list."""


@click.command
@json_document
@click.option("-n", "--limit", type=Count(1), default=50, help="How many, newest first.")
def turns(as_json: bool, limit: int) -> None:
    """List the turns of the journal, newest first."""
    with client() as bus:
        found = bus.turns(limit)
    if as_json:
        document(found)
        return
    rows = found["turns"]
    if not rows:
        write("No turns yet; send one with `interlock turn TEXT`.")
        return
    cells = [
        (
            row["turn"],
            _state(row),
            row["agent"],
            _when(row.get("started")),
            _took(row),
            cut(row["text"], _TEXT),
        )
        for row in rows
    ]
    write("\n".join(table(("TURN", "STATE", "AGENT", "STARTED", "TOOK", "TEXT"), cells)))


@click.command
@click.argument("turn_id", metavar="ID")
@json_document
def turn_show(turn_id: str, as_json: bool) -> None:
    """Show one turn with its calls."""
    with client() as bus:
        found = bus.turn_show(turn_meant(bus, turn_id))
    if as_json:
        document(found)
        return
    write(f"turn {clean(found['turn'])}: {_state(found)}, agent {clean(found['agent'])}")
    write(f"started {_when(found.get('started'))}, took {_took(found)}")
    write(clean(found["text"]))
    for call in found.get("calls", []):
        write(f"  {one_line(call['capability'])}: {_call_ended(call, running=not found['ended'])}")


@click.command
@click.argument("turn_id", metavar="ID")
@json_document
def turn_cancel(turn_id: str, as_json: bool) -> None:
    """Cancel a turn."""
    with client() as bus:
        found = bus.turn_cancel(turn_meant(bus, turn_id))
    if as_json:
        document(found)
    else:
        write(_cancelled(clean(found["turn"]), found["state"]))


def _cancelled(turn: str, state: str) -> str:
    """What a cancellation did, from the state in which it found the turn."""
    if state == "cancelled":
        return f"turn {turn} is cancelled"
    if state in ENDED:
        return f"turn {turn} had ended before: {state}"
    return f"turn {turn} is being cancelled; `interlock turn-watch {turn}` shows how it ends"


def _state(row: dict[str, Any]) -> str:
    """The state of a turn, and why it is so where that is known."""
    if row.get("code"):
        return f"{row['state']} ({row['code']})"
    return f"{row['state']} (waits for an approval)" if row.get("waits") else str(row["state"])


def _call_ended(call: dict[str, Any], *, running: bool) -> str:
    """How a call of a turn ended, or what it waits for."""
    if approval := call.get("approval"):
        yes, no = f"interlock approve {clean(approval)}", f"interlock deny {clean(approval)}"
        return f"waits for a person: `{yes}` or `{no}`"
    doubt = " (may have run)" if call.get("may_have_run") else ""
    took = call.get("duration_ms")
    # Zero is that of a call whose end nobody saw, because the supervisor was killed.
    after = f" after {took:.1f} ms" if isinstance(took, (int, float)) and took else ""
    outcome = call.get("outcome") or ("under way" if running else "unknown")
    return f"{outcome}{after}{doubt}"


def _when(unix: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix)) if unix else "-"


def _took(row: dict[str, Any]) -> str:
    started, ended = row.get("started"), row.get("ended")
    return lasted(ended - started) if started and ended else "-"
