"""`interlock bench`."""

from __future__ import annotations

import click

from interlock.supervisor.cli.given import json_document


@click.command
@json_document
@click.option("--only", metavar="KEY", help="Measure one key, such as call_p50_ratio.")
def bench(as_json: bool, only: str | None) -> int:
    """Measure this machine against Interlock's budgets; takes some minutes."""
    from interlock.supervisor.bench.run import run_bench

    return run_bench(only, as_json)
