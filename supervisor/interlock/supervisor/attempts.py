"""One step of several that must all be done, whatever becomes of each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec

P = ParamSpec("P")


def attempt(act: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
    """Do `act`; what it raises goes to the loop's exception handler and holds nothing else up.

    For steps that are each owed to somebody: a worker that misses its next timer, because the step
    before failed, would wait for ever.
    """
    try:
        act(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - the boundary between one step and the next
        context = {"message": f"{act!r} failed", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)
