"""Fills the holes in the memory of an image, so that its forks write into pages of their own.

What a fork allocates would otherwise go into free blocks between the objects that it shares with
the image, and a page that is written to is shared no longer: one small object costs a page.
"""

from __future__ import annotations

from array import array
from typing import Final

_POOL: Final = 16 * 1024
"""Bytes of a pool of CPython's allocator, which holds blocks of one size."""
_FIRST: Final = 48
"""Where the first block of a pool begins, after its header."""
_STEP: Final = 16
_LARGEST: Final = 512
_BYTES_OVERHEAD: Final = 33
_BATCH: Final = 32
_TURNS: Final = (None,) * _BATCH
_ROW: Final = 8
"""Blocks that follow each other from the first one of a pool on: a pool with so many was empty."""
_MOST: Final = 1 << 20
"""Bytes spent on one size at most: an end in case that the allocator is another one."""

_plugs: Final[list[object]] = []


def fill_holes() -> int:
    """Occupy the free blocks of all pools in use, for the life of the process; return how many.

    Call it after the last collection of garbage, which makes new holes.
    """
    before = len(_plugs)
    for size in range(_STEP, _LARGEST + 1, _STEP):
        _fill(size)
    return len(_plugs) - before


def _fill(size: int) -> None:
    """Take blocks until they come from an empty pool, which stays empty."""
    blocks: list[object] = []
    places = array("Q")  # A list of numbers would take blocks itself.
    looked = 0
    while len(blocks) * size < _MOST:
        more = _blocks(size)
        blocks += more
        places.extend(map(id, more))
        while looked <= len(places) - _ROW:
            first = places[looked]
            row = range(first, first + _ROW * size, size)
            if first % _POOL == _FIRST and list(row) == places[looked : looked + _ROW].tolist():
                del blocks[looked:]
                _plugs.extend(blocks)
                return
            looked += 1
    _plugs.extend(blocks)


def _blocks(size: int) -> list[object]:
    """Return objects that are one block of this size each; in between nothing takes one."""
    if size == _STEP:
        return [object() for _ in _TURNS]
    if size == 2 * _STEP:
        return [*range(1 << 40, (1 << 40) + _BATCH)]
    return [bytes(size - _BYTES_OVERHEAD) for _ in _TURNS]
