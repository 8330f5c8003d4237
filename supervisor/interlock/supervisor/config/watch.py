"""Tells when configuration files change; notices a file that appears or is replaced, too."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

LOOK: Final = 0.25
"""Seconds between two looks at the files."""
SETTLE: Final = 0.15
"""Seconds without a further change after which a change is taken as complete."""
LESS: Final = 1.5
"""The same where a file is gone or has lost much: perhaps it is only being written again, and
what it says in between would end servers and take rules away."""
RESTLESS: Final = 30.0
"""Seconds of changes without a pause after which the files are read all the same."""


class Print(NamedTuple):
    """What tells the present content of a file from another."""

    written: int
    size: int
    inode: int
    changed: int


async def changes(files: Callable[[], Iterable[Path]]) -> AsyncGenerator[None, None]:
    """Yield at once, and once after every settled change of the files that `files` names then.

    Who reads them each time misses nothing: what is told of is looked at before it is read.
    Only content counts: a new file with the same bytes may yield, an untouched file never does.
    """
    # To be told by the system would take a new thread for each change of what is watched; the
    # library for that ends the process that gets none.
    seen = await _look(files)
    yield
    while True:
        await asyncio.sleep(LOOK)
        now = await _look(files)
        if now != seen:
            now = await _settled(files, seen, now)
            changed = now != seen
            seen = now
            if changed:
                yield


async def _settled(
    files: Callable[[], Iterable[Path]], seen: dict[Path, Print], now: dict[Path, Print]
) -> dict[Path, Print]:
    """Wait until the files stay as they are, bounded; return how they are then."""
    loop = asyncio.get_running_loop()
    began = changed = loop.time()
    while loop.time() - began < RESTLESS:
        await asyncio.sleep(SETTLE)
        before, now = now, await _look(files)
        if before != now:
            changed = loop.time()
        elif loop.time() - changed >= (LESS if lost_much(seen, now) else SETTLE):
            break
    return now


def lost_much(before: Mapping[Path, Print], now: Mapping[Path, Print]) -> bool:
    """Tell whether a file is gone, is empty or holds less than half of what it held."""
    return any(file not in now or now[file].size * 2 < seen.size for file, seen in before.items())


async def _look(files: Callable[[], Iterable[Path]]) -> dict[Path, Print]:
    # In a thread: a file may be on a disk far away that does not answer.
    return await asyncio.to_thread(_prints, tuple(files()))


def _prints(files: Iterable[Path]) -> dict[Path, Print]:
    """Return the print of each file that is there."""
    found: dict[Path, Print] = {}
    for file in files:
        try:
            info = os.stat(file)
        except (OSError, ValueError):
            continue
        found[file] = Print(info.st_mtime_ns, info.st_size, info.st_ino, info.st_ctime_ns)
    return found
