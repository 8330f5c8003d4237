"""`interlock bench`."""

from __future__ import annotations

import click


@click.command
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--only", metavar="KEY", help="Measure one key, such as call_p50_ratio.")
def bench(as_json: bool, only: str | None) -> int:
    """Measure this machine against Interlock's budgets; takes some minutes."""
    from interlock.supervisor.bench.run import run_bench

    return run_bench(only, as_json)
