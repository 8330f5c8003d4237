"""Keeps the whole of each result of which a turn item shows only the beginning."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from interlock.bus.messages import RESULT_INLINE
from interlock.workers import kept
from interlock.workers.agent.cut import Whole, last_text, shown_result
from interlock.workers.cuts import whole_of
from interlock.workers.disk import Disk

OnKept = Callable[[OSError | None, Path, int], None]
"""Called with why a whole was lost, the folder and the bytes of the whole."""


class Wholes:
    """The folder of one agent. `on_kept` is told of each cut result why it is lost, or None."""

    def __init__(self, folder: Path, on_kept: OnKept) -> None:
        self._folder = folder
        self._on_kept = on_kept
        self._disk = Disk()
        self.taken = 0
        """Bytes of all results so far."""

    async def shown(self, body: bytes, tool: str) -> tuple[tuple[Any, Any], str]:
        """Return content and structured content for a turn item; a cut result's whole is kept.

        The second is the path of that whole, empty where there is none.
        A disk that is full or slow costs the path, not the item.
        """
        self.taken += len(body)
        if len(body) <= RESULT_INLINE:
            return shown_result(body), ""
        try:
            path, problem = await self._disk.do(partial(_keep, body, self._folder, tool))
        except TimeoutError as error:
            path, problem = None, error
        named = path is not None and path.parent != self._folder.absolute()
        self._on_kept(problem, self._folder, 0 if named else len(body))
        if problem is not None:
            return shown_result(body, Whole(problem=kept.reason_of(problem))), ""
        return shown_result(body, Whole(path=str(path or ""), named=named)), str(path or "")


def _keep(body: bytes, folder: Path, tool: str) -> tuple[Path | None, OSError | None]:
    """Write the whole to a file, unless the worker that gave the result did; run it in a thread."""
    named = last_text(body)
    if named and kept.is_kept(Path(named), folder.parent):
        return Path(named), None
    return kept.keep(*whole_of(body), folder=folder, tool=tool)
