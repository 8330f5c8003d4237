"""Fills the holes in the memory of an image, so that its forks write into pages of their own.

What a fork allocates would otherwise go into free blocks between the objects that it shares with
the image, and a page that is written to is shared no longer: one small object costs a page.
"""

from __future__ import annotations

from typing import Final

_POOL: Final = 16 * 1024
"""Bytes of a pool of CPython's allocator, which holds blocks of one size."""
_POOL_HEADER: Final = 48
_STEP: Final = 16
_LARGEST: Final = 512
_BYTES_OVERHEAD: Final = 33
_MOST: Final = 30_000
"""Blocks of one size: an end in case that the allocator is another one."""

_plugs: Final[list[object]] = []


def fill_holes() -> None:
    """Occupy the free blocks of all pools in use, for the life of the process.

    Call it after the last collection of garbage, which makes new holes.
    """
    for size in range(_STEP, _LARGEST + 1, _STEP):
        for _ in range(_MOST):
            block = _block(size)
            if id(block) % _POOL == _POOL_HEADER:
                break  # The first block of a pool: no other pool has room, most likely.
            _plugs.append(block)


def _block(size: int) -> object:
    if size == _STEP:
        return object()
    if size == 2 * _STEP:
        return (1 << 40) + len(_plugs)
    return bytes(size - _BYTES_OVERHEAD)
