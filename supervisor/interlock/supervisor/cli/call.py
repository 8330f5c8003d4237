"""`interlock call`: one capability, directly."""

from __future__ import annotations

import json
import sys
from typing import Any

import click
import msgspec

from interlock.supervisor.cli.exits import code_of_outcome
from interlock.supervisor.cli.output import clean, document, note, write
from interlock.supervisor.cli.session import client


@click.command
@click.argument("capability")
@click.argument("arguments", default="{}", metavar="[JSON]")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="SEC",
    help="Seconds; else what the server is configured with.",
)
def call(capability: str, arguments: str, as_json: bool, timeout: float | None) -> int:
    """Call CAPABILITY (mcp:git/git_status) with a JSON object; `-` reads it from standard input."""
    given = _object(sys.stdin.read() if arguments == "-" else arguments)
    with client() as bus:
        result = bus.call(capability, given, timeout=timeout)
    if as_json:
        document(msgspec.to_builtins(result))
    else:
        _show(result.content, to_output=result.outcome in ("ok", "tool_error"))
        if not result.ok:
            doubt = "; it may have run all the same" if result.may_have_run else ""
            note(f"{capability}: {result.outcome}{doubt}.")
    return code_of_outcome(result.outcome)


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"The arguments are no JSON object: {error}.") from None
    if not isinstance(found, dict):
        raise click.UsageError("The arguments are no JSON object; write something like '{}'.")
    return found


def _show(content: list[Any], *, to_output: bool) -> None:
    """Write text items as text and name the others."""
    for item in content:
        if isinstance(item, dict) and isinstance(item.get("text"), str):
            text = item["text"]
        else:
            kind = item.get("type", "item") if isinstance(item, dict) else "item"
            text = f"[{kind}; shown with --json]"
        if to_output:
            write(clean(text) if sys.stdout.isatty() else text)
        else:
            note(text)
