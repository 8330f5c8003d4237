"""Open descriptors: the supervisor allows itself many, its workers get what its user has set.

Each client and subscriber costs the supervisor one, and libzmq ends the process in which none is
left.
"""

from __future__ import annotations

import os
import resource
from typing import Final

MANY: Final = 1 << 16
VARIABLE: Final = "INTERLOCK_OPEN_FILES"
"""Tells the spawner the limit that was in force before the supervisor raised its own."""

_AT_START: Final = resource.getrlimit(resource.RLIMIT_NOFILE)


def raise_limit() -> None:
    """Allow this process as many descriptors as it may have, up to MANY."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MANY if hard == resource.RLIM_INFINITY else min(hard, MANY)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def spawner_environment() -> dict[str, str]:
    """Return the environment for the spawner of this process."""
    return {**os.environ, VARIABLE: str(_AT_START[0])}


def limit_of_workers() -> tuple[int, int]:
    """Return the limits, soft and hard, of a worker that names none of its own."""
    soft = os.environ.get(VARIABLE, "")
    return (int(soft) if soft.isdigit() else _AT_START[0], _AT_START[1])
