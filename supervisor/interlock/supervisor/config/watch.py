"""Tells when configuration files change; notices a file that appears or is replaced, too."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from pathlib import Path
from typing import Final

LOOK: Final = 1.0
"""Seconds between two looks at the files where the system reports nothing."""
SETTLE: Final = 0.15
"""Seconds without a further change after which a change is taken as complete."""
VANISHED: Final = 0.6
"""Seconds that a file may be missing while an editor replaces it."""

_Print = tuple[int, int, int, int]


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
    files: Callable[[], Iterable[Path]], seen: dict[Path, _Print], now: dict[Path, _Print]
) -> dict[Path, _Print]:
    """Wait until the files stay as they are, bounded; return how they are then."""
    waited = 0.0
    while waited < VANISHED:
        await asyncio.sleep(SETTLE)
        waited += SETTLE
        before, now = now, _prints(files())
        if before == now and seen.keys() <= now.keys():
            break
    return now


def _prints(files: Iterable[Path]) -> dict[Path, _Print]:
    """Return what tells the present content of each existing file from another."""
    found: dict[Path, _Print] = {}
    for file in files:
        try:
            info = os.stat(file)
        except (OSError, ValueError):
            continue
        found[file] = (info.st_mtime_ns, info.st_size, info.st_ino, info.st_ctime_ns)
    return found


def _folders(files: Iterable[Path]) -> tuple[Path, ...]:
    """Return the folders of the files; of a folder that is missing, the closest one above it."""
    found: dict[Path, None] = {}
    for file in files:
        folder = file.parent
        while not folder.is_dir() and folder != folder.parent:
            folder = folder.parent
        found[folder] = None
    return tuple(found)
