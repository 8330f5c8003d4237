"""`interlock tools`: the catalog, or the offer of an agent for a request."""

from __future__ import annotations

import click

from interlock.supervisor.cli.arguments import described
from interlock.supervisor.cli.given import json_document
from interlock.supervisor.cli.output import cut, document, one_line, table, write
from interlock.supervisor.cli.session import client

_SUMMARY = 80
"""Characters of a summary in the list."""


@click.command
@click.argument("name", required=False, default="")
@click.option("--agent", default="", metavar="A", help="Whose offer; else the default agent's.")
@click.option("--for", "text", default="", metavar="TEXT", help="The offer for this request.")
@json_document
def tools(name: str, agent: str, text: str, as_json: bool) -> None:
    """List the catalog, or with --for what an agent would be offered for a request.

    With NAME, of a capability (mcp:git/git_status) or a source (git), show what arguments it takes.
    """
    with client() as bus:
        found = bus.tools(text, agent, name)
    if as_json:
        document(found)
        return
    rows = found["capabilities"]
    if name:
        write("\n\n".join("\n".join(described(row)) for row in rows))
        return
    cells = [
        (
            row["name"],
            row["tier"],
            "yes" if row["connected"] else f"no: {row['reason']}",
            cut(row["summary"], _SUMMARY),
        )
        for row in rows
    ]
    if cells:
        write("\n".join(table(("NAME", "TIER", "USABLE", "SUMMARY"), cells)))
    else:
        write("No tools; see `interlock status` for what is not ready.")
    for row in found.get("withheld", []):
        count = f"{row['count']} of " if row["count"] else ""
        names = row.get("names", [])
        more = ", …" if len(names) < row["count"] else ""
        which = f": {', '.join(map(one_line, names))}{more}" if names else ""
        write(f"withheld: {count}{one_line(row['source'])}, {one_line(row['reason'])}{which}")
