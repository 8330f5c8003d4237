"""Tells when configuration files change."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path


async def changes(files: Callable[[], Iterable[Path]]) -> AsyncIterator[None]:
    """Yield once after every settled change of the files that `files` names at that moment."""
    raise NotImplementedError
    yield
