"""What the package brings with it as files, read once."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from interlock.supervisor.gate import Tables, frequencies, vectors


@cache
def tables() -> Tables:
    """Return the gate's own tables of words."""
    folder = files(frequencies.__package__)
    return Tables(
        frequencies.parse(folder.joinpath("frequencies.tsv").read_text("utf-8")),
        vectors.parse(folder.joinpath("vectors.bin").read_bytes()),
    )
