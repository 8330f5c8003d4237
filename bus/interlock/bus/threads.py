"""Makes sure of threads before a library needs them: several end the process that gets none.

Also says why no process can be started.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import resource
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from interlock.bus.errors import MOST_PROCESSES, ProcessLimitError

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

OF_CONTEXT: Final = 2
"""Threads of a ZeroMQ context with one I/O thread; they start with its first socket."""

_MEMORY: Final = (
    "the limit on the memory of this process (`ulimit -v`; of a worker `limits.address_space`)"
)
_STACK: Final = 2 << 20
"""Bytes of a stack where the system names no bound for one."""


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
        raise no_thread() from None
    finally:
        over.set()
        for thread in started:
            thread.join()


def no_thread() -> ProcessLimitError:
    """Return the error for a thread that could not be started just now: Python does not say why."""
    if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        return ProcessLimitError()
    try:
        mmap.mmap(-1, _stack_size()).close()
    except OSError:
        return ProcessLimitError(_MEMORY)
    return ProcessLimitError(f"{_MEMORY}, or {MOST_PROCESSES}")


def _stack_size() -> int:
    """Bytes of memory that a new thread needs for its stack."""
    limit = resource.getrlimit(resource.RLIMIT_STACK)[0]
    return threading.stack_size() or (_STACK if limit == resource.RLIM_INFINITY else limit)


def start_threads(pool: ThreadPoolExecutor, count: int) -> None:
    """Start all `count` threads of a pool, which else start one by one when there is work.

    A pool that may have no more than these never needs a thread later. Raises ProcessLimitError.
    """
    over = threading.Event()
    try:
        for _ in range(count):
            pool.submit(over.wait)
    except RuntimeError:
        raise no_thread() from None
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
