"""Makes sure of threads before a library needs them: several end the process that gets none.

Also says why no process can be started.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from interlock.bus.errors import ProcessLimitError

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

OF_CONTEXT: Final = 2
"""Threads of a ZeroMQ context with one I/O thread; they start with its first socket."""


def need_threads(count: int) -> None:
    """Return if that many threads could be started just now; they have ended again.

    Raises ProcessLimitError.
    """
    over = threading.Event()
    started = []
    try:
        for _ in range(count):
            thread = threading.Thread(target=over.wait, daemon=True)
            thread.start()
            started.append(thread)
    except RuntimeError:
        raise ProcessLimitError from None
    finally:
        over.set()
        for thread in started:
            thread.join()


def start_threads(pool: ThreadPoolExecutor, count: int) -> None:
    """Start all `count` threads of a pool, which else start one by one when there is work.

    A pool that may have no more than these never needs a thread later. Raises ProcessLimitError.
    """
    over = threading.Event()
    try:
        for _ in range(count):
            pool.submit(over.wait)
    except RuntimeError:
        raise ProcessLimitError from None
    finally:
        over.set()


@contextlib.contextmanager
def starting_process() -> Iterator[None]:
    """Raise ProcessLimitError where the system refuses the process that this block starts.

    Only there: EAGAIN has another meaning wherever a stream does not block.
    """
    try:
        yield
    except OSError as error:
        if error.errno == errno.EAGAIN:
            raise ProcessLimitError from None
        raise
