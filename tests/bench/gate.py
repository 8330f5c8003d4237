"""Measures the gate: `python -m tests.bench.gate --data DIR --installed N --seed S [--dump FILE]`.

DIR holds gate_servers.jsonl and gate_requests.jsonl. Every request is judged in an install of N
servers, through the product's own index and decision with the shipped table and numbers. `absent`
is the share of requests that got an offer although their right servers were not installed.
`--seeds FILE` prints instead what the requests get that the gate was first described with.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tests.bench.gate_baselines import BASELINES
from tests.bench.gate_data import read
from tests.bench.gate_protocol import Judged, installs, judge, measured, table, the_gate
from tests.bench.gate_seeds import lines as seed_lines

from interlock.supervisor.gate import GateIndex
from interlock.supervisor.shipped import tables


def dump(rows: list[Judged], path: Path) -> None:
    """Write one line for each request whose right servers, if any, were installed."""
    with path.open("w", encoding="utf-8") as out:
        for row in rows:
            if not row.absent:
                line = {
                    "id": row.request.id,
                    "installed": list(row.installed),
                    "offered": sorted(row.offered),
                }
                out.write(json.dumps(line, ensure_ascii=False) + "\n")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--data", type=Path, help="folder of servers and requests")
    what.add_argument("--seeds", type=Path, help="file of servers for the first fifteen requests")
    parser.add_argument("--installed", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dump", type=Path)
    parser.add_argument("--no-baselines", action="store_true")
    chosen = parser.parse_args()
    if chosen.seeds:
        sys.stdout.write("\n".join(seed_lines(chosen.seeds)) + "\n")
        return
    folder = read(chosen.data)
    drawn = installs(folder.requests, sorted(folder.texts), chosen.installed, chosen.seed)
    rows = judge(drawn, the_gate(folder, GateIndex(tables())))
    if chosen.dump:
        dump(rows, chosen.dump)
    sys.stdout.write(f"{chosen.installed} installed, {len(folder.requests)} requests\n")
    sys.stdout.write("\n".join(table("the gate", measured(rows, folder.tools))) + "\n")
    if not chosen.no_baselines:
        for title, method in BASELINES.items():
            found = measured(judge(drawn, method(folder)), folder.tools)
            sys.stdout.write("\n".join(table(title, found)) + "\n")


if __name__ == "__main__":
    main()
