"""`interlock approvals`, `approve` and `deny`: the calls that wait for a person."""

from __future__ import annotations

import time
from typing import Any, Final

import click
import msgspec

from interlock.supervisor.cli.given import Count, json_document
from interlock.supervisor.cli.output import cut, document, exact, one_line, span, table, write
from interlock.supervisor.cli.session import approval_meant, client

_ARGUMENTS: Final = 400
"""Characters of a call's arguments in the list; --json has them all."""


@click.command
@json_document
@click.option("--past", type=Count(), default=0, metavar="N", help="Also N decisions.")
def approvals(as_json: bool, past: int) -> None:
    """List the calls that wait for a person to approve or deny them, the oldest first."""
    with client() as bus:
        found = bus.approvals(past)
    if as_json:
        document(found)
        return
    now = time.time()
    for row in found["approvals"]:
        write(f"{row['id']}  {_what(row)}; {span(row['expires'] - now)} left")
        write(f"  {_arguments(row)}")
    if not found["approvals"]:
        write("Nothing waits for approval.")
    cells = [
        (
            row["id"],
            _when(row["decided"]),
            row["outcome"],
            row["capability"],
            _who(row["by"]),
            cut(_arguments(row), 60),
        )
        for row in found.get("past", [])
    ]
    if cells:
        heads = ("ID", "DECIDED", "OUTCOME", "CAPABILITY", "BY", "ARGUMENTS")
        write("\n".join(["", *table(heads, cells)]))


@click.command
@click.argument("approval", metavar="ID")
@json_document
def approve(approval: str, as_json: bool) -> None:
    """Let the call of approval ID run, once, with the arguments that `approvals` shows."""
    with client() as bus:
        found = bus.approve(approval_meant(bus, approval))
    _tell(found, "is approved; its call runs once", as_json)


@click.command
@click.argument("approval", metavar="ID")
@json_document
def deny(approval: str, as_json: bool) -> None:
    """Refuse the call of approval ID."""
    with client() as bus:
        found = bus.deny(approval_meant(bus, approval))
    _tell(found, "is denied; its call does not run", as_json)


def _tell(found: dict[str, Any], words: str, as_json: bool) -> None:
    if as_json:
        document(found)
    else:
        write(one_line(f"{found['id']} {words}"))


def _what(row: dict[str, Any]) -> str:
    who = f"agent {row['agent']}, turn {row['turn']}" if row["turn"] else "a direct call"
    why = f" ({row['reason']})" if row["reason"] else ""
    return exact(f"{row['capability']}{why}, wanted by {who}")


def _when(unix: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix)) if unix else "-"


def _who(by: str) -> str:
    """Who decided: a client of the api has no name, but only a person's may decide."""
    return "a person" if by.startswith("api:") else by or "-"


def _arguments(row: dict[str, Any]) -> str:
    text = exact(msgspec.json.encode(row["arguments"]).decode())
    more = len(text) - _ARGUMENTS
    return text if more <= 0 else f"{text[:_ARGUMENTS]}… and {more} characters more (--json)"
