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


class Wholes:
    """The folder of one agent. `on_problem` is told, for each cut result, why it is lost, or ""."""

    def __init__(self, folder: Path, on_problem: Callable[[str], None]) -> None:
        self._folder = folder
        self._on_problem = on_problem
        self._disk = Disk()

    async def shown(self, body: bytes, tool: str) -> tuple[Any, Any]:
        """Return content and structured content for a turn item; a cut result's whole is kept.

        A disk that is full or slow costs the path, not the item.
        """
        if len(body) <= RESULT_INLINE:
            return shown_result(body)
        try:
            whole = await self._disk.do(partial(_keep, body, self._folder, tool))
        except TimeoutError:
            whole = Whole(problem="the disk did not answer in time")
        self._on_problem(whole.problem)
        return shown_result(body, whole)


def _keep(body: bytes, folder: Path, tool: str) -> Whole:
    """Write the whole to a file, unless the worker that gave the result did; run it in a thread."""
    named = last_text(body)
    if named and kept.is_kept(Path(named), folder.parent):
        return Whole(path=named, named=True)
    path, problem = kept.keep(*whole_of(body), folder=folder, tool=tool)
    return Whole(path=str(path or ""), problem=problem)
