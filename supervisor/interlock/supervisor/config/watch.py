"""Tells when configuration files change; notices a file that appears or is replaced, too."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Final, NamedTuple

LOOK: Final = 1.0
"""Seconds between two looks at the files where the system reports nothing."""
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
    Folders that are missing, or that the system cannot watch, are looked at every second instead.
    Only content counts: a new file with the same bytes may yield, an untouched file never does.
    """
    seen = _prints(files())
    yield
    while True:
        watched = _folders(files())
        async with aclosing(_stirrings(watched)) as stirrings:
            async for _ in stirrings:
                now = _prints(files())
                if now != seen:
                    now = await _settled(files, seen, now)
                    changed = now != seen
                    seen = now
                    if changed:
                        yield
                if _folders(files()) != watched:
                    break


async def _stirrings(folders: tuple[Path, ...]) -> AsyncGenerator[None, None]:
    """Yield whenever something happened in one of the folders, and every `LOOK` seconds."""
    from watchfiles import awatch

    try:
        async for _ in awatch(
            *folders,
            watch_filter=None,
            debounce=100,
            step=50,
            rust_timeout=int(LOOK * 1000),
            yield_on_timeout=True,
            recursive=False,
        ):
            yield
    except (OSError, RuntimeError, UnicodeError):
        # No watches left, a folder that vanished or whose name is no text: looking is slower, but
        # it always works.
        await asyncio.sleep(LOOK)
        yield


async def _settled(
    files: Callable[[], Iterable[Path]], seen: dict[Path, Print], now: dict[Path, Print]
) -> dict[Path, Print]:
    """Wait until the files stay as they are, bounded; return how they are then."""
    loop = asyncio.get_running_loop()
    began = changed = loop.time()
    while loop.time() - began < RESTLESS:
        await asyncio.sleep(SETTLE)
        before, now = now, _prints(files())
        if before != now:
            changed = loop.time()
        elif loop.time() - changed >= (LESS if lost_much(seen, now) else SETTLE):
            break
    return now


def lost_much(before: Mapping[Path, Print], now: Mapping[Path, Print]) -> bool:
    """Tell whether a file is gone, is empty or holds less than half of what it held."""
    return any(file not in now or now[file].size * 2 < seen.size for file, seen in before.items())


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


def _folders(files: Iterable[Path]) -> tuple[Path, ...]:
    """Return the folders of the files; of one that cannot be looked into, the closest above it."""
    found: dict[Path, None] = {}
    for file in files:
        folder = file.parent
        while not os.path.isdir(folder) and folder != folder.parent:
            folder = folder.parent
        found[folder] = None
    return tuple(found)
