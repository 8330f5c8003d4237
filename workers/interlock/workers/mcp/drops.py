"""Bounds what is said of tools that were left out or mended; pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from interlock.bus.records import DroppedTool

MAX_NAMED: Final = 100
MAX_SAID: Final = 44 << 10
"""Bytes of one list's remarks; with all reports they have to fit into one header."""
MAX_REASON: Final = 400
"""Characters."""


def bounded(drops: Sequence[DroppedTool]) -> tuple[DroppedTool, ...]:
    """Return the first remarks that fit, with long reasons cut; the last one counts the others.

    >>> told = bounded([DroppedTool(name=f"t{n}", reason="it has no name") for n in range(300)])
    >>> len(told), told[-1].reason
    (100, '201 further remarks are left out')
    """
    told: list[DroppedTool] = []
    room = MAX_SAID
    for drop in drops:
        short = msgspec.structs.replace(drop, reason=drop.reason[:MAX_REASON])
        room -= len(msgspec.msgpack.encode(short))
        if room < 0 or (len(told) == MAX_NAMED - 1 and len(drops) > MAX_NAMED):
            reason = f"{len(drops) - len(told)} further remarks are left out"
            told.append(DroppedTool(name="further tools", reason=reason))
            break
        told.append(short)
    return tuple(told)
