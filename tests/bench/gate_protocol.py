"""The protocol of the gate's benchmark: installs, judging, and the table."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tests.bench.gate_data import Folder, Request

from interlock.supervisor.gate import GateIndex, decide
from interlock.supervisor.gate.entry import Entry, read

Offers = Callable[[str, Sequence[str]], set[str]]
"""Given a request and the installed servers, what a method offers."""
HEAD = ("rec", "any", "exact", "wt", "FOR", "absent", "de rec")


@dataclass(frozen=True)
class Judged:
    """One request with what was installed and offered; `absent`: the right ones were left out."""

    request: Request
    installed: tuple[str, ...]
    offered: frozenset[str]
    absent: bool = False


def installs(
    requests: Iterable[Request], servers: Sequence[str], number: int, seed: int
) -> list[tuple[Request, bool, list[str]]]:
    """Draw an install for each request, and one without the right servers where there are any."""
    drawn = []
    for request in requests:
        others = [server for server in sorted(servers) if server not in request.right]
        for absent in (False, True) if request.right else (False,):
            dice = random.Random(f"{seed}/{number}/{request.id}/{absent}")
            right = [] if absent else sorted(request.right)
            picked = dice.sample(others, min(len(others), max(0, number - len(right))))
            drawn.append((request, absent, right + picked))
    return drawn


def the_gate(folder: Folder, index: GateIndex) -> Offers:
    """Return the product's gate as a method: its own index, changed from install to install."""
    entries: dict[str, Entry] = {}

    def offers(text: str, installed: Sequence[str]) -> set[str]:
        for source in index.entries.keys() - set(installed):
            index.remove(source)
        for source in installed:
            if source not in index.entries:
                if source not in entries:
                    entries[source] = read(folder.texts[source], index.tables)
                index.put(entries[source])
        return set(decide(index, text).offered)

    return offers


def judge(drawn: Iterable[tuple[Request, bool, list[str]]], offers: Offers) -> list[Judged]:
    """Run a method over installs."""
    return [
        Judged(request, tuple(installed), frozenset(offers(request.text, installed)), absent)
        for request, absent, installed in drawn
    ]


def measured(rows: Iterable[Judged], tools: dict[str, int]) -> dict[str, dict[str, float]]:
    """Return the table's numbers by source of the requests, "all" being all of them."""
    gathered: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        for source in ("all", row.request.source):
            _note(gathered[source], row, tools)
    return {
        source: {
            name: sum(values) / len(values) * (1 if name == "wt" else 100)
            for name, values in cells.items()
        }
        for source, cells in gathered.items()
    }


def _note(cells: dict[str, list[float]], row: Judged, tools: dict[str, int]) -> None:
    request, offered = row.request, row.offered
    if row.absent:
        cells["absent"].append(bool(offered))
        return
    wrong = offered - request.right
    cells["wt"].append(sum(tools[server] for server in wrong))
    if not request.right:
        cells["FOR"].append(bool(offered))
        return
    covered = all(offered & group for group in request.groups)
    cells["rec"].append(covered)
    cells["any"].append(bool(offered & request.right))
    cells["exact"].append(covered and not wrong)
    if request.lang == "de":
        cells["de rec"].append(covered)


def table(title: str, found: dict[str, dict[str, float]]) -> list[str]:
    """Return aligned lines, all requests first."""
    lines = [f"{title:34}" + "".join(f"{name:>8}" for name in HEAD)]
    for source in sorted(found, key=lambda name: (name != "all", name)):
        cells = found[source]
        shown = [_cell(name, cells) for name in HEAD]
        lines.append(f"  {source:32}" + "".join(shown))
    return lines


def _cell(name: str, cells: dict[str, float]) -> str:
    if name not in cells:
        return f"{'-':>8}"
    return f"{cells[name]:8.2f}" if name == "wt" else f"{cells[name]:8.1f}"
