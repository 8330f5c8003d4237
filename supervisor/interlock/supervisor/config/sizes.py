"""Sizes in bytes, as people write them."""

from __future__ import annotations

import re
from typing import Final

LARGEST: Final = 1 << 50
"""Bytes; more than this is a slip of the pen."""

_FACTORS: Final = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
}
_SIZE = re.compile(r"\s*([0-9]{1,18}(?:\.[0-9]{1,6})?)\s*([a-z]{0,3})\s*", re.IGNORECASE | re.ASCII)


def parse_size(size: int | str) -> int:
    """Return the bytes that a number or a text such as "8MiB" means.

    Raises ValueError with a plain sentence for anything else and for what is not between 1 byte
    and 1 PiB.

    >>> parse_size("8MiB")
    8388608
    """
    if isinstance(size, str):
        match = _SIZE.fullmatch(size)
        factor = _FACTORS.get(match[2].lower()) if match else None
        if match is None or factor is None:
            raise ValueError('a size is a number of bytes or a text such as "512KiB" or "8MiB"')
        size = round(float(match[1]) * factor) if "." in match[1] else int(match[1]) * factor
    if not 1 <= size <= LARGEST:
        raise ValueError("a size lies between 1 byte and 1024 TiB")
    return size
