"""`interlock demo`."""

from __future__ import annotations

import click

from interlock.supervisor.cli.output import clean, write


@click.command
@click.argument("text", required=False)
def demo(text: str | None) -> int:
    """Show a whole Interlock at work, in a temporary home.

    TEXT is sent as the first turn: tool calls, one a line, such as
    'mcp:git/git_log {"repo_path": "."}'.
    """
    from interlock.supervisor.demo.run import run_demo

    return run_demo(text, lambda line: write(clean(line)))
