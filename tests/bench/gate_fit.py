"""Fits the gate's numbers and cross-validates them by server; needs numpy.

`python -m tests.bench.gate_fit --data DIR` prints the table of requests whose servers neither the
numbers nor the table of frequencies have seen, then the numbers fitted on everything. In both, a
server's own text is never in the table that its examples are read with, as it will not be for
servers that people install.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from tests.bench.gate_data import Folder, Request, read
from tests.bench.gate_protocol import installs, judge, measured, table, the_gate
from tests.bench.gate_table import counted

from interlock.supervisor.gate import GateIndex, Tables
from interlock.supervisor.gate.entry import read as read_entry
from interlock.supervisor.gate.gather import Hit, gather
from interlock.supervisor.gate.named import calls
from interlock.supervisor.gate.numbers import Numbers
from interlock.supervisor.gate.request import read as read_request
from interlock.supervisor.gate.score import beside, features, worth_a_look, worth_the_name
from interlock.supervisor.shipped import tables

FOLDS = 5
INSTALLED = (10, 30, 100)
NOTHING_RIGHT = 2.0
"""How much a request counts for which no server at all is right."""
ABSENT = 3.0
"""How much a request counts in an install without its right servers."""
DRAWS = (3, 4, 5)
"""Seeds of the installs that are fitted on; more of them leave less to chance."""


Rows = tuple[list[tuple[float, ...]], list[bool], list[float]]


@dataclass(frozen=True)
class Example:
    """One request in one install: the words and features by source, what is right."""

    hits: dict[str, list[Hit]]
    values: dict[str, tuple[float, ...]]
    right: frozenset[str]
    weight: float


def folds(folder: Folder) -> list[tuple[list[str], list[Request]]]:
    """Deal the servers so that those of one request stay together, and the requests with them."""
    group = {server: server for server in folder.texts}

    def root(server: str) -> str:
        while group[server] != server:
            server = group[server]
        return server

    for request in folder.requests:
        first, *rest = sorted(request.right) or [""]
        for other in rest:
            group[root(other)] = root(first)
    together: dict[str, list[str]] = {}
    for server in sorted(folder.texts):
        together.setdefault(root(server), []).append(server)
    dice = random.Random(7)
    groups = sorted(together.values())
    dice.shuffle(groups)
    groups.sort(key=len, reverse=True)
    dealt: list[tuple[list[str], list[Request]]] = [([], []) for _ in range(FOLDS)]
    for servers in groups:
        min(dealt, key=lambda fold: len(fold[0]))[0].extend(servers)
    where = {server: number for number, fold in enumerate(dealt) for server in fold[0]}
    turn = 0
    for request in folder.requests:
        if request.right:
            dealt[where[min(request.right)]][1].append(request)
        else:
            dealt[turn % FOLDS][1].append(request)
            turn += 1
    return dealt


def unseen(folder: Folder, hidden: Iterable[str]) -> Tables:
    """Count the table without some servers."""
    left = set(hidden)
    texts = [text for source, text in folder.texts.items() if source not in left]
    shipped = tables()
    return shipped._replace(frequencies=counted(texts, dict(shipped.frequencies.ranks)))


def examples(folder: Folder, fold: tuple[list[str], list[Request]], known: Tables) -> list[Example]:
    """Read a fold's requests in installs of its servers, with a table that has not seen them."""
    index = GateIndex(known)
    entries = {source: read_entry(folder.texts[source], known) for source in fold[0]}
    found: list[Example] = []
    for number, draw in product(INSTALLED, DRAWS):
        for request, absent, installed in installs(fold[1], fold[0], number, draw):
            for source in index.entries.keys() - set(installed):
                index.remove(source)
            for source in installed:
                if source not in index.entries:
                    index.put(entries[source])
            asked = read_request(index, request.text)
            gathered, called = gather(index, asked), calls(index, asked)
            hits = worth_the_name(index, gathered, worth_a_look(gathered, called))
            values = {
                source: features(index, source, words, gathered, called.cards.get(source, 0.0))
                for source, words in hits.items()
            }
            right = frozenset() if absent else request.right
            weight = (ABSENT if absent else 1.0) if request.right else NOTHING_RIGHT
            found.append(Example(hits, values, right, weight))
    return found


def logistic(
    rows: list[tuple[float, ...]], right: list[bool], weights: list[float], ridge: float
) -> tuple[float, ...]:
    """Fit by Newton's method."""
    x, y, w = np.array(rows), np.array(right, float), np.array(weights)
    penalty = np.eye(x.shape[1]) * ridge
    penalty[0, 0] = 1e-6
    b = np.zeros(x.shape[1])
    for _ in range(30):
        p = 1 / (1 + np.exp(-np.clip(x @ b, -30, 30)))
        step = np.linalg.solve(
            (x * (w * p * (1 - p))[:, None]).T @ x + penalty, x.T @ (w * (p - y)) + penalty @ b
        )
        b -= step
        if abs(step).max() < 1e-6:
            break
    return tuple(round(float(v), 2) for v in b)


def fit(found: list[Example], threshold: float, more: float) -> Numbers:
    """Fit all numbers; `more` is how much a right server beside the best counts."""
    rows, right, weights = [], [], []
    for example in found:
        for source, value in example.values.items():
            rows.append(value)
            right.append(source in example.right)
            weights.append(example.weight)
    alone = logistic(rows, right, weights, 1.0)
    best: Rows = ([], [], [])
    others: Rows = ([], [], [])
    for example in found:
        ranked = [
            (sum(a * v for a, v in zip(alone, x, strict=True)), source)
            for source, x in example.values.items()
        ]
        ranked.sort(key=lambda item: (-item[0], item[1]))
        for place, (source, value) in enumerate(beside(example.hits, ranked)):
            hit = source in example.right
            into = others if place else best
            into[0].append(value)
            into[1].append(hit)
            into[2].append(example.weight * (more if place and hit else 1.0))
    return Numbers(alone, logistic(*best, 0.1), logistic(*others, 0.1), threshold)


def main() -> None:
    """Cross-validate, print, then fit on everything and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--threshold", type=float, nargs="+", default=[0.102])
    parser.add_argument("--more", type=float, default=1.7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="only pooled lines")
    chosen = parser.parse_args()
    folder = read(chosen.data)
    dealt = folds(folder)
    held: list[tuple[int, Tables, Numbers]] = []
    for number in range(FOLDS):
        found = []
        for other in range(FOLDS):
            if other != number:
                known = unseen(folder, dealt[number][0] + dealt[other][0])
                found += examples(folder, dealt[other], known)
        numbers = fit(found, 0.0, chosen.more)
        held.append((number, unseen(folder, dealt[number][0]), numbers))
    for threshold in chosen.threshold:
        for installed in INSTALLED:
            rows = []
            for number, known, numbers in held:
                mine = Numbers(numbers.alone, numbers.best, numbers.others, threshold)
                drawn = installs(dealt[number][1], dealt[number][0], installed, chosen.seed)
                rows += judge(drawn, the_gate(folder, GateIndex(known, mine)))
            lines = table(
                f"unseen, {installed} installed, {threshold:g}", measured(rows, folder.tools)
            )
            sys.stdout.write("\n".join(lines[:2] if chosen.quick else lines) + "\n")
            sys.stdout.flush()
    every = []
    for servers, requests in dealt:
        every += examples(folder, (servers, requests), unseen(folder, servers))
    sys.stdout.write(f"{fit(every, chosen.threshold[0], chosen.more)}\n")


if __name__ == "__main__":
    main()
