"""`interlock why`: what of each source an agent would be offered for a request, and why."""

from __future__ import annotations

from typing import Any

import click

from interlock.supervisor.cli.given import json_document
from interlock.supervisor.cli.output import document, one_line, styled, write
from interlock.supervisor.cli.session import client

_WORDS = 8
"""Words of evidence that are shown for a source; --json has all."""
_PLACES = {
    "name": "its name",
    "usage_card": "its usage card",
    "server_name": "its name",
    "tool_name": "the name of a tool",
    "description": "a description",
    "context": "the conversation",
}


@click.command
@click.argument("text")
@click.option("--agent", default="", metavar="A", help="Whose offer; else the default agent's.")
@click.option("--session", default="", metavar="S", help="As the next turn of that session.")
@json_document
def why(text: str, agent: str, session: str, as_json: bool) -> None:
    """Show for a request why each source is offered or not: words, weights, threshold."""
    with client() as bus:
        found = bus.why(text, agent, session)
    if as_json:
        document(found)
        return
    write("\n".join(_lines(found)))


def _lines(found: dict[str, Any]) -> list[str]:
    lines = []
    for row in sorted(found["sources"], key=lambda row: not row["offered"]):
        lines += _source(row, found["threshold"])
    if not lines:
        lines.append("No sources; see `interlock status`.")
    tokens = found["schema_tokens"]
    lines.append(
        f"Schemas: about {tokens['offered']} tokens instead of {tokens['all']} "
        "(a quarter of their bytes)."
    )
    return lines


def _place(one: dict[str, Any]) -> str:
    if one["from"] == "meaning":
        return "how near the request is in meaning"
    return f"{one_line(one['word'])!r} in {_PLACES.get(one['from'], one['from'])}"


def _source(row: dict[str, Any], threshold: float) -> list[str]:
    count = row["capabilities"]
    verdict = (
        styled(f"offered, {count['offered']} of {count['all']}", "green")
        if row["offered"]
        else styled("not offered", "yellow")
    )
    lines = [f"{one_line(row['source'])}: {verdict}, {_because(row, threshold)}"]
    shown = row["evidence"][:_WORDS]
    lines += [f"    {_place(one)}: {one['weight']:.2f}" for one in shown]
    if more := len(row["evidence"]) - len(shown):
        lines.append(f"    and {more} more")
    lines += [
        f"    {one['count']} withheld by {one['by']}: {one_line(one['reason'])}"
        for one in row["withheld"]
        if row["offered"] or one["by"] != row["by"]
    ]
    return lines


def _because(row: dict[str, Any], threshold: float) -> str:
    points = f"{row['score']:.2f} of the {threshold:.2f} that are needed"
    if row["by"] != "gate":
        return one_line(row["reason"]) if row["reason"] else "within the agent's grant"
    match row["via"]:
        case "name":
            return "the request names it"
        case "usage_card":
            return "the request matches its usage card"
        case "context":
            return "the conversation goes on about it"
        case "evidence":
            return f"its words count: {points}"
    return f"{one_line(row['reason'])}: {points}"
